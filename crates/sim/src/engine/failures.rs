//! What fails during a run: cables, switches and hosts, at the times of the fault plan.

use fanin_core::{DropReason, Instant, NodeId, PortId, Wire, Worker};

use super::Simulation;
use crate::faults::timeline::{Change, timeline};
use crate::link::link_flags;
use crate::packet::NO_PACKET;
use crate::scenario::Scenario;
use crate::vectors::Simulated;

/// The state of a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Host {
    Runs,
    Stalls,
    Dead,
}

/// The fault plan's timeline and what it has done so far.
pub(super) struct Failures {
    changes: Vec<(u64, Change)>,
    next: usize,
    /// Whether a host can be in another state than [`Host::Runs`].
    of_hosts: bool,
    hosts: Vec<Host>,
    /// By host: when the last of its stalls ends; stalls may overlap.
    stalled_until: Vec<Instant>,
    /// By link: how many failures keep it down; failures may overlap.
    down_count: Vec<u16>,
    /// Packets that wait at stalled hosts, in order of arrival: host, port, place.
    waiting: Vec<(u32, PortId, u32)>,
}

impl Failures {
    pub fn new(scenario: &Scenario, hosts: u32, links: usize) -> Self {
        let changes = timeline(scenario);
        Failures {
            of_hosts: changes.iter().any(|(_, change)| matches!(change, Change::HostStalls(..) | Change::HostDies(_))),
            changes,
            next: 0,
            hosts: vec![Host::Runs; hosts as usize],
            stalled_until: vec![Instant::ZERO; hosts as usize],
            down_count: vec![0; links],
            waiting: Vec::new(),
        }
    }

    /// When the next change happens.
    pub fn next_change_ps(&self) -> Option<u64> {
        self.changes.get(self.next).map(|(time, _)| *time)
    }

    /// A host's state.
    #[inline(always)]
    pub fn host(&self, host: u32) -> Host {
        if self.of_hosts { self.hosts[host as usize] } else { Host::Runs }
    }

    /// A packet arrives at a stalled host.
    #[cold]
    pub fn wait(&mut self, host: u32, port: PortId, place: u32) {
        self.waiting.push((host, port, place));
    }
}

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    pub(super) fn on_timeline(&mut self) {
        while let Some(&(time, change)) = self.failures.changes.get(self.failures.next) {
            if time > self.net.now {
                self.net.queue.push(time, self.net.ids.timeline);
                return;
            }
            self.failures.next += 1;
            match change {
                Change::CablesDown(a, b) => self.cables(a, b, true),
                Change::CablesUp(a, b) => self.cables(a, b, false),
                Change::SwitchDown(switch) => self.switch(switch, true),
                Change::SwitchUp(switch) => self.switch(switch, false),
                Change::HostStalls(host, until) => self.stall_host(host, until),
                Change::HostWakes(host) => self.wake_host(host),
                Change::HostDies(host) => self.kill_host(host),
                Change::JobCrashes(job) => self.crash_job(job),
                Change::Limits => self.net.set_limits(&self.scenario.limits),
            }
        }
    }

    /// Takes the cables between two nodes down or up.
    fn cables(&mut self, a: NodeId, b: NodeId, down: bool) {
        for number in 0..self.net.links.len() {
            let cable = self.net.cable(number);
            if (cable.from, cable.to) == (a, b) || (cable.from, cable.to) == (b, a) {
                self.set_link(number, down);
            }
        }
    }

    /// One failure more, or less, of a link. When the first one strikes, what is queued or on the wire is lost.
    fn set_link(&mut self, number: usize, down: bool) {
        self.change_link(number, down);
        self.net.reroute(number as u32);
    }

    fn change_link(&mut self, number: usize, down: bool) {
        let count = &mut self.failures.down_count[number];
        let link = &mut self.net.links[number];
        if !down {
            *count -= 1;
            if *count == 0 {
                link.flags &= !link_flags::DOWN;
            }
            return;
        }
        *count += 1;
        link.flags |= link_flags::DOWN;
        link.busy_until = self.net.now;
        let mut lost = std::mem::replace(&mut link.on_wire.first, NO_PACKET);
        while lost != NO_PACKET {
            let head = self.net.packets.get(lost);
            let (next, frame_bytes) = (head.next, head.frame_bytes);
            let link = &mut self.net.links[number];
            let sending_from = head.arrival_ps - link.latency_ps - link.send_time_ps(frame_bytes);
            if sending_from >= self.net.now {
                // It never left the queue.
                link.bytes_sent -= u64::from(frame_bytes);
                link.packets_sent -= 1;
            }
            self.net.drop_packet(lost, DropReason::Down);
            lost = next;
        }
        if self.net.is_lossless {
            self.net.drop_waiting(number as u32);
        }
    }

    /// Takes a switch down with all its cables, or brings it back without its state.
    fn switch(&mut self, switch: NodeId, down: bool) {
        for number in 0..self.net.links.len() {
            let cable = self.net.cable(number);
            if cable.from == switch || cable.to == switch {
                self.set_link(number, down);
            }
        }
        for number in 0..self.slots.len() {
            if self.slots[number].post.at == switch.0
                && let Some(fresh) = &self.fresh[number]
            {
                self.slots[number].node = (**fresh).clone();
            }
        }
        self.net.lose_slots(switch.0);
        self.net.forget_kept(switch.0);
        if let Some(recorder) = &mut self.net.series {
            recorder.lose_all((switch.0 - self.net.topology.map.hosts()) as usize, self.net.now);
        }
    }

    fn stall_host(&mut self, host: NodeId, until: Instant) {
        let stalled_until = &mut self.failures.stalled_until[host.index()];
        *stalled_until = until.max(*stalled_until);
        let state = &mut self.failures.hosts[host.index()];
        if *state != Host::Dead {
            *state = Host::Stalls;
        }
    }

    fn kill_host(&mut self, host: NodeId) {
        self.failures.hosts[host.index()] = Host::Dead;
        for worker in 0..self.workers.len() as u32 {
            let state = &self.workers[worker as usize];
            if state.result.host == host.0 && !state.done {
                self.end_worker(worker);
            }
        }
        self.kill_ranks(host.0);
        let waiting = std::mem::take(&mut self.failures.waiting);
        for (at, port, place) in waiting {
            if at == host.0 {
                self.net.drop_packet(place, DropReason::HostDead);
            } else {
                self.failures.waiting.push((at, port, place));
            }
        }
    }

    /// A stalled host goes on: first what has arrived, then its timers.
    fn wake_host(&mut self, host: NodeId) {
        let over = self.failures.stalled_until[host.index()].as_ps() <= self.net.now;
        if !over || self.failures.hosts[host.index()] != Host::Stalls {
            return;
        }
        self.failures.hosts[host.index()] = Host::Runs;
        for worker in 0..self.workers.len() as u32 {
            let state = &mut self.workers[worker as usize];
            if state.result.host == host.0 && std::mem::take(&mut state.due) {
                self.submit(worker);
                self.after(self.workers[worker as usize].slot);
            }
        }
        self.wake_ranks(host.0);
        let waiting = std::mem::take(&mut self.failures.waiting);
        for (at, port, place) in waiting {
            if at == host.0 {
                self.arrive_apart(at, port, link_flags::TO_HOST, place)
            } else {
                self.failures.waiting.push((at, port, place))
            }
        }
        for index in 0..self.at_host[host.index()].len() {
            let slot = self.at_host[host.index()][index];
            self.slots[slot as usize].armed = u64::MAX;
            self.after(slot);
        }
        for number in 0..self.sources.len() {
            if self.sources[number].host == host && std::mem::take(&mut self.sources[number].paused) {
                self.net.queue.push(self.net.now, self.net.ids.sources + number as u32);
            }
        }
        self.wake_generated(host);
        self.wake_connections(host);
        self.on_tx_ready(host.0);
    }
}
