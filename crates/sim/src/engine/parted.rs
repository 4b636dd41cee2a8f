//! What parts of a network need of a simulation: see [`crate::parts`].

use std::borrow::Borrow;

use fanin_core::{NodeId, Wire, Worker};

use super::Simulation;
use super::connections::Connections;
use super::generated::Generated;
use crate::metrics::Verdict;
use crate::net::Net;
use crate::parts::mailbox::Mail;
use crate::scenario::Scenario;
use crate::vectors::{Simulated, Vectors};

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// Whether there is background traffic that follows congestion, or whose pattern is from elsewhere.
    pub(crate) fn has_special_traffic(&self) -> bool {
        self.connections.count() > 0 || self.generated.events() > 0 || self.generated.sets() > 0
    }

    /// Whether jobs run programs.
    pub(crate) fn has_programs(&self) -> bool {
        self.programs.count() > 0
    }

    /// Whether switches take time to add, or packets pass them several times.
    pub(crate) fn switches_take_time(&self) -> bool {
        !self.net.adders.is_empty() || self.processors.is_some() || self.pipelines.is_some()
    }

    /// The same simulation before its nodes were placed, in this network.
    pub(crate) fn without_nodes(&self, net: Net<N::Header, P::Owned>, scenario: Scenario) -> Self
    where
        P::Vectors: Clone,
    {
        let of_others = (Generated::new(&net.topology, &scenario), Connections::new(&scenario));
        Simulation::bare(net, self.vectors.clone(), scenario, self.sources.clone(), of_others)
    }

    /// Schedules what begins by itself in a part.
    pub(crate) fn begin_part(&mut self) {
        self.arm_starts();
        let Some(outbox) = &self.net.outbox else { return };
        let (ids, traffic) = (self.net.ids, &self.scenario.traffic);
        for (index, source) in self.sources.iter().enumerate().filter(|(_, source)| outbox.is_here(source.host.0)) {
            self.net.queue.push(traffic[source.config as usize].start.as_ps(), ids.sources + index as u32);
        }
        for (index, flow) in self.scenario.flows.iter().enumerate().filter(|(_, flow)| outbox.is_here(flow.from.0)) {
            self.net.queue.push(flow.steps[0].at.as_ps(), ids.sources + (self.sources.len() + index) as u32);
        }
    }

    /// What another part has for this one.
    pub(crate) fn take_mail(&mut self, mail: &mut Mail<N::Header, P::Owned>) {
        for (number, payload) in mail.take_lost() {
            self.lose_of_source(number, &payload);
            if self.sources[number as usize].is_idle()
                && let Some(outbox) = &mut self.net.outbox
            {
                // Its next message should have begun by now.
                outbox.again = Some("the last packet under way of a background message was lost");
            }
        }
        self.net.take_mail(mail);
    }

    /// A link's event where nothing is on its wire: it went down, or a background packet arrives by it in another part.
    #[cold]
    #[inline(never)]
    pub(super) fn on_idle_link(&mut self, number: u32) {
        let notice = self.net.outbox.as_mut().and_then(|outbox| outbox.due((self.net.now, number)));
        if let Some(notice) = notice {
            // It is counted where the packet arrives.
            self.events -= 1;
            self.arrive_of_source(notice.source, &notice.payload);
        }
    }

    /// A packet of a source has arrived.
    #[inline]
    pub(super) fn arrive_of_source(&mut self, number: u32, payload: &P::Owned) {
        self.lose_of_source(number, payload);
        let source = &mut self.sources[number as usize];
        source.bytes_delivered += payload.borrow().bytes() as u64;
        if source.is_idle() {
            self.net.queue.push(self.net.now, self.net.ids.sources + number);
        }
    }

    /// A packet of a source is not under way any more.
    #[inline]
    pub(super) fn lose_of_source(&mut self, number: u32, payload: &P::Owned) {
        let source = &mut self.sources[number as usize];
        source.in_flight -= 1;
        source.balance = source.balance.wrapping_sub(P::background_weight(payload));
    }

    /// Whether a source of background traffic belongs to another part.
    #[inline]
    pub(super) fn is_elsewhere(&self, host: NodeId) -> bool {
        self.net.outbox.as_ref().is_some_and(|outbox| !outbox.is_here(host.0))
    }

    /// Takes in what has come out of a part beside what belongs to single nodes.
    pub(crate) fn add_part(&mut self, part: &Simulation<N, P>, verdict: &mut Verdict) {
        let of_part = part.vectors.verdict();
        verdict.pieces_checked += of_part.pieces_checked;
        verdict.results = verdict.results.wrapping_add(of_part.results);
        self.events += part.events;
        for (to, from) in self.sources.iter_mut().zip(&part.sources).filter(|(_, from)| !part.is_elsewhere(from.host)) {
            to.clone_from(from);
        }
        for (to, from) in self.flows.iter_mut().zip(&part.flows) {
            to.in_flight = to.in_flight.wrapping_add(from.in_flight);
            to.bytes_delivered += from.bytes_delivered;
            to.balance = to.balance.wrapping_add(from.balance);
        }
    }

    /// One event of a part.
    pub(crate) fn step(&mut self) {
        (self.leaves, self.steps_once, self.net.attention) = (true, true, true);
        self.run_events();
    }

    /// All events of a part before `end_ps`.
    pub(crate) fn run_until(&mut self, end_ps: u64) {
        // An event that is none ends the loop.
        self.leaves = false;
        self.net.queue.push(end_ps - 1, self.net.ids.deadlock_check);
        self.run_events();
        self.events -= 1;
    }
}
