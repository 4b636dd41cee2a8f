//! What a driver does for other threads: jobs begin and end, streams too, and how are things?

use fanin_core::{Instant, Node, PortId};

use super::inbox::{Command, FabricRemote, FabricStatus, Inbox, PortStatus};
use super::links::{LinkObserver, Port};
use super::source::TrafficCount;
use crate::driver::{Driver, Statistics};

impl<N: Node<[u8]>> Driver<N> {
    /// Does what other threads ask for.
    pub(crate) fn serve_inbox(&mut self, now: Instant) {
        while let Some(command) = self.inbox.as_ref().and_then(|inbox| inbox.take()) {
            match command {
                Command::Admit { job, system, node, reply } => {
                    let role = self.outlet.address.role;
                    reply(self.admit_job(job, role, system, *node));
                }
                Command::Share { job, system, node, join, reply } => {
                    let role = self.outlet.address.role;
                    reply(self.residents.share((job, role, system), *node, join));
                }
                Command::End { job, reply } => reply(self.end_job(job)),
                Command::Look { reply } => reply(self.fabric_status()),
                Command::StartTraffic(config) => {
                    if let Some(links) = &mut self.outlet.links {
                        links.start_source(config, now);
                    }
                }
                Command::StopTraffic { id, reply } => reply(self.outlet.links.as_mut().and_then(|links| links.stop_source(id))),
            }
        }
    }

    /// A way to ask and tell from another thread.
    pub(crate) fn remote(&mut self) -> FabricRemote<N> {
        let inbox = self.inbox.get_or_insert_with(Inbox::new);
        FabricRemote::new(inbox.clone(), self.socket.waker())
    }

    /// Calls `observer` whenever a link of a fabric changes, and now for each.
    pub(crate) fn observe_links(&mut self, observer: LinkObserver) {
        if let Some(links) = &mut self.outlet.links {
            links.observe(observer);
        }
    }

    /// What has been done in a fabric so far.
    pub(crate) fn fabric_status(&mut self) -> FabricStatus {
        let now = self.clock.now();
        let Statistics { counters, sent } = self.statistics();
        let jobs = self.residents.members().iter().map(|member| (member.job, member.counters.clone())).collect();
        let last = self.residents.members().iter().map(|member| (member.job, member.contributors.last())).collect();
        let Some(links) = &mut self.outlet.links else { return FabricStatus { counters, sent, jobs, ..FabricStatus::default() } };
        let mut traffic_sent = TrafficCount::default();
        for source in &links.sources {
            traffic_sent.packets += source.sent.packets;
            traffic_sent.bytes += source.sent.bytes;
        }
        let port = |(index, port): (usize, &mut Port)| PortStatus {
            port: PortId(index as u16),
            state: port.neighbour.state(),
            queue_bytes: port.queue.queued_bytes(now),
            queue_bytes_peak: port.queue.queued_bytes_peak(),
            counts: port.counts,
        };
        FabricStatus {
            counters,
            sent,
            ports: links.ports.iter_mut().enumerate().map(port).collect(),
            jobs,
            last,
            traffic_sent,
            traffic_received: links.received,
            background_forwarded: links.background_forwarded,
            marked_received: links.marked_received,
        }
    }
}
