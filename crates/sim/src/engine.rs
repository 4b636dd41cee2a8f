//! The event loop: one event at a time, in the order of (time, id).

pub(crate) mod adding;
mod carrying;
mod connections;
mod failures;
mod flows;
mod generated;
mod held_back;
mod outcome;
mod parted;
mod placing;
pub(crate) mod processing;
mod programs;
mod recirculation;
mod series;
pub(crate) mod setup;
mod training;
mod trimming;

pub use adding::NO_ADDING;
pub use processing::{BlockMap, NO_CORES, Processing, WorkingMemory};
pub use recirculation::{NO_PASSES, Pipeline};

use std::borrow::Borrow;
use std::sync::Arc;

use fanin_core::hash::mix;
use fanin_core::{
    Address, Collective, DropReason, Duration, Ingress, Instant, JobId, JobNodes, NodeId, OperationId, Outcome, PacketKind, PortId, Role,
    SharedNode, Wire, Worker,
};

use crate::channels::Channels;
use crate::flows::Flow;
use crate::lent::{Lent, Post};
use crate::link::link_flags;
use crate::metrics::{Ended, MemorySampler, OperationResult, RunResult, WorkerResult};
use crate::net::{EventIds, HeldBack, Net};
use crate::packet::{Arrived, NO_LINK, Packet, flags, pack_roles};
use crate::queue::EventQueue;
use crate::scenario::Scenario;
use crate::setup::SetupError;
use crate::topology::Topology;
use crate::traffic::{Source, pace};
use crate::vectors::{Simulated, Vectors};
use connections::Connections;
use failures::{Failures, Host};
use generated::Generated;
use programs::Programs;
use setup::{check, mean_gap_ps};

pub(crate) const NONE: u32 = u32::MAX;
/// Time between two looks for a deadlock.
pub(crate) const DEADLOCK_CHECK_PS: u64 = 50_000_000;
/// Roles per (node, job) in the lookup table.
const ROLES: usize = 5;

/// A node and what the engine knows of it.
#[repr(C)]
pub(crate) struct Slot<N> {
    pub post: Post,
    /// Time of the earliest pending timer event; `u64::MAX` without one.
    armed: u64,
    pub node: N,
}

impl<N> Slot<N> {
    /// The node, and what its handlers are lent.
    #[inline(always)]
    fn lend<'a, P: Simulated + ?Sized>(
        &'a mut self,
        net: &'a mut Net<N::Header, P::Owned>,
        vectors: &'a mut P::Vectors,
    ) -> (&'a mut N, Lent<'a, N::Header, P>)
    where
        N: Worker<P>,
    {
        (&mut self.node, Lent { net, vectors, post: &mut self.post })
    }

    /// Schedules the node's deadline.
    #[inline(always)]
    fn arm<H: Wire, O: Clone>(&mut self, number: u32, deadline: Option<Instant>, net: &mut Net<H, O>) {
        let Some(deadline) = deadline else { return };
        let at = deadline.as_ps().max(net.now);
        // An earlier event that is still pending will look again; a later one is superseded.
        if at < self.armed && at != u64::MAX {
            self.armed = at;
            net.queue.push(at, net.ids.timers + number);
        }
    }
}

/// A worker's schedule and results.
pub(crate) struct WorkerState {
    pub slot: u32,
    pub job: u16,
    pub rank: u32,
    pub next_operation: u32,
    /// Elements that became final in operations that have ended.
    pub finished_elements: u64,
    pub result: WorkerResult,
    pub done: bool,
    /// Its host has stalled when it was about to begin an operation.
    pub due: bool,
}

impl WorkerState {
    pub fn is_running(&self) -> bool {
        self.result.operations.last().is_some_and(|operation| operation.ended.is_none())
    }
}

/// A simulation of nodes `N` that carry payloads `P`.
pub struct Simulation<N: Worker<P>, P: Simulated + ?Sized> {
    pub(crate) net: Net<N::Header, P::Owned>,
    pub(crate) vectors: P::Vectors,
    pub(crate) scenario: Scenario,
    pub(crate) slots: Vec<Slot<N>>,
    /// Fresh copies of switch nodes, by slot, where a switch can fail.
    pub(crate) fresh: Vec<Option<Box<N>>>,
    /// Per (node, job, role): slot.
    pub(crate) lookup: Vec<u32>,
    /// Slots at each host.
    pub(crate) at_host: Vec<Vec<u32>>,
    pub(crate) workers: Vec<WorkerState>,
    pub(crate) workers_running: u32,
    /// By job: workers that have not ended.
    pub(crate) running_in: Vec<u32>,
    /// By job: the nodes that it shares with others.
    pub(crate) shared_by: Vec<Vec<u32>>,
    pub(crate) sources: Vec<Source>,
    flows: Vec<Flow>,
    /// Traffic whose patterns are from elsewhere.
    generated: Generated,
    /// Background traffic with congestion control.
    connections: Connections,
    /// Per (traffic set's source): how long a full packet lasts on its host's link at its load.
    traffic_runs: bool,
    sources_running: u32,
    failures: Failures,
    /// (time, worker) of operations that begin by themselves, descending.
    pub(crate) starts: Vec<(u64, u32)>,
    /// Time of the pending look at `starts`; `u64::MAX` without one.
    starts_armed: u64,
    /// By job: when it crashed.
    crashed: Vec<Option<Instant>>,
    pub(crate) events: u64,
    /// Links that wait for each other in a circle.
    deadlock: Vec<u32>,
    /// Jobs whose ranks run programs.
    programs: Programs,
    /// What switches compute with, where that takes time.
    processors: Option<Box<processing::Processors<N::Header>>>,
    pipelines: Option<Box<recirculation::Pipelines>>,
    /// Where this is a part of a network: it leaves the loop when the next event is over.
    pub(crate) leaves: bool,
    /// One event happens although there is something to look at.
    pub(crate) steps_once: bool,
}

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// Builds a simulation: `jobs[j]` are the nodes of job j, `operators[j]` its operator.
    ///
    /// # Errors
    /// [`SetupError`] where the scenario contradicts itself.
    pub fn new(
        topology: impl Into<Arc<Topology>>,
        scenario: Scenario,
        jobs: Vec<JobNodes<N>>,
        operators: &[P::Op],
    ) -> Result<Self, SetupError> {
        Simulation::with_shared(topology, scenario, jobs, Vec::new(), operators)
    }

    /// Whether topology, scenario and nodes fit together, as [`Simulation::with_shared`] finds out.
    ///
    /// # Errors
    /// [`SetupError`] names the field.
    pub fn check(topology: &Topology, scenario: &Scenario, jobs: &[JobNodes<N>], shared: &[SharedNode<N>]) -> Result<(), SetupError> {
        check(topology, scenario, jobs, shared)
    }

    /// The same with nodes that several jobs share.
    ///
    /// # Errors
    /// [`SetupError`] where the scenario contradicts itself.
    pub fn with_shared(
        topology: impl Into<Arc<Topology>>,
        scenario: Scenario,
        jobs: Vec<JobNodes<N>>,
        shared: Vec<SharedNode<N>>,
        operators: &[P::Op],
    ) -> Result<Self, SetupError> {
        let topology = topology.into();
        Self::check(&topology, &scenario, &jobs, &shared)?;
        let sources: Vec<Source> =
            scenario.traffic.iter().enumerate().flat_map(|(index, config)| Source::all(config, index as u32, scenario.seed)).collect();
        let node_count: usize = jobs.iter().map(|job| job.workers.len() + job.others.len()).sum::<usize>() + shared.len();
        let map = &topology.map;
        let channels = Channels::new(&topology, &scenario.network);
        let links = channels.links() as u32;
        let tx_ready = links + node_count as u32;
        let first_source = tx_ready + map.hosts();
        let generated = Generated::new(&topology, &scenario);
        let connections = Connections::new(&scenario);
        let held_back = first_source + (sources.len() + scenario.flows.len() + generated.events() + connections.count()) as u32;
        let ids = EventIds {
            timers: links,
            tx_ready,
            sources: first_source,
            held_back,
            timeline: held_back + 1,
            job_start: held_back + 2,
            deadlock_check: held_back + 3,
            programs: held_back + 4,
            wakes: held_back + 5,
        };
        let queue = EventQueue::new(mean_gap_ps(&topology, &scenario), ids.wakes + links);
        let vectors = P::Vectors::new(&scenario.jobs, operators);
        let net = Net::new(topology, channels, &scenario, ids, queue);
        let mut simulation = Simulation::bare(net, vectors, scenario, sources, (generated, connections));
        simulation.slots.reserve(node_count);
        simulation.fresh.reserve(node_count);
        for (job, nodes) in jobs.into_iter().enumerate() {
            simulation.place_job(job as u16, nodes);
        }
        shared.into_iter().for_each(|node| simulation.place_shared(node));
        simulation.net.limit(&simulation.scenario.limits);
        simulation.prepare_trimming();
        simulation.schedule_beginnings();
        Ok(simulation)
    }

    /// Asks for the memory of switches at this interval.
    pub fn sample_memory(&mut self, interval: Duration) {
        self.net.memory = MemorySampler::new(interval);
        self.net.watch_ps = 0;
    }

    /// Runs to the end.
    pub fn run(mut self) -> RunResult {
        let ended = self.run_events();
        let verdict = self.vectors.verdict().clone();
        self.result(ended, verdict)
    }

    /// The node at `slot` of job `job`, for tests that look inside after a run.
    pub fn nodes(&self) -> impl Iterator<Item = (NodeId, &N)> {
        self.slots.iter().map(|slot| (NodeId(slot.post.at), &slot.node))
    }

    pub(crate) fn run_events(&mut self) -> Ended {
        let limit = self.scenario.time_limit.as_ps();
        // The time limit, or an earlier sample.
        let mut stop = limit.min(self.next_sample_ps());
        let has_jobs = !self.workers.is_empty() || self.programs.count() > 0;
        let ids = self.net.ids;
        loop {
            if self.net.outbox.is_some() {
                // Whether the run has ended is for all parts together to say.
                if self.leaves && !self.steps_once {
                    return Ended::JobsDone;
                }
            } else if has_jobs && self.workers_running == 0 {
                if !self.scenario.drain {
                    return Ended::JobsDone;
                }
                self.traffic_runs = false;
            } else if !has_jobs && self.sources_running == 0 {
                return Ended::TrafficDone;
            }
            // What most events cannot cause is looked at only when one says so.
            while !self.net.attention || std::mem::take(&mut self.steps_once) {
                let Some((time, id)) = self.net.queue.pop() else {
                    return match (has_jobs, self.workers_running) {
                        (true, 0) => Ended::JobsDone,
                        (true, _) => Ended::Stuck,
                        (false, _) => Ended::TrafficDone,
                    };
                };
                if time > stop {
                    stop = self.sample_until(time.min(limit)).min(limit);
                    if time > limit {
                        self.net.now = limit;
                        return Ended::TimeLimit;
                    }
                }
                self.net.now = time;
                self.net.event = id;
                self.events += 1;
                if id < ids.timers {
                    self.on_link(id);
                } else if id >= ids.wakes {
                    self.net.on_wake(id - ids.wakes);
                } else {
                    self.on_other(id);
                }
                self.net.settle();
            }
            self.net.attention = false;
            if !self.deadlock.is_empty() {
                return Ended::Deadlock;
            }
            if self.net.trace.as_ref().is_some_and(|tracer| tracer.is_full()) {
                return Ended::TimeLimit;
            }
            if self.net.is_lossless {
                self.net.settle();
            }
            while let Some(place) = self.net.loopback.pop_front() {
                let arrived = self.net.packets.arrived(place);
                let (at, role) = (arrived.label.destination, usize::from(arrived.label.destination_role()));
                self.hand_over(at, PortId(0), role, arrived);
            }
            if !self.net.lost_background.is_empty() {
                self.on_lost_background();
            }
            self.drive();
        }
    }

    /// The packet at the front of a link arrives.
    #[inline(always)]
    fn on_link(&mut self, number: u32) {
        let Net { links, packets, queue, now, .. } = &mut self.net;
        let (link, heads) = (&mut links[number as usize], packets.heads());
        let place = link.on_wire.first;
        // What was scheduled may have been lost with its link.
        let Some(head) = heads.get(place as usize).filter(|head| head.arrival_ps == *now) else { return self.on_idle_link(number) };
        let (arrived, next) = (head.arrived(place), head.next);
        link.on_wire.first = next;
        if let Some(next) = heads.get(next as usize) {
            queue.push(next.arrival_ps, number);
        }
        let (to, port, flags) = (link.to, PortId(link.to_port), link.flags);
        self.net.packet_hops += 1;
        if flags & (link_flags::FAULTY | link_flags::COUNTED | link_flags::ADDED | link_flags::HANDLED | link_flags::CARRIES) != 0 {
            self.arrive_by_special_link(number, place);
        } else if let Some(role) = self.arrive(to, port, flags, arrived) {
            self.hand_over(to, port, role, arrived);
        }
    }

    #[cold]
    fn arrive_by_special_link(&mut self, number: u32, place: u32) {
        if self.net.links[number as usize].has(link_flags::FAULTY) {
            return self.arrive_by_faulty_link(number, place);
        }
        self.arrive_counted(number, place);
    }

    /// Counts the packet, and keeps it, where somebody wants to know.
    fn arrive_counted(&mut self, number: u32, place: u32) {
        let link = &self.net.links[number as usize];
        let (to, port, link_flags) = (link.to, PortId(link.to_port), link.flags);
        let head = self.net.packets.get(place);
        if link.has(link_flags::COUNTED)
            && link.has(link_flags::TO_HOST)
            && !head.has(flags::BACKGROUND | flags::TRIMMED | flags::CARRIED)
            && let Some(recorder) = &mut self.net.series
        {
            recorder.count_packet(head.job, head.has(flags::ECN));
        }
        if link.has(link_flags::COUNTED)
            && let Some(tracer) = &mut self.net.trace
        {
            tracer.note(self.net.now, self.net.channels.cable(number), head, self.net.packets.rest(place));
            self.net.attention |= tracer.is_full();
        }
        if self.net.packets.get(place).has(flags::TRIMMED) {
            return self.arrive_cut(number, place);
        }
        if link_flags & link_flags::TO_HOST == 0 && self.net.apart.is_some() {
            self.net.look_at_arrival(number, place);
        }
        if link_flags & link_flags::ADDED != 0 && self.waits_to_be_added(number, place) {
            return;
        }
        if link_flags & link_flags::HANDLED != 0 && (self.waits_to_be_handled(number, place) || self.passes_again(number, place)) {
            return;
        }
        self.arrive_apart(to, port, link_flags, place);
    }

    /// A packet arrives by `port` of host or switch `to`. Gives the role of the node there that it is for, if it goes no further.
    #[inline(always)]
    fn arrive(&mut self, to: u32, port: PortId, link_flags: u16, arrived: Arrived) -> Option<usize> {
        if link_flags & link_flags::TO_HOST != 0 {
            return self.arrive_at_host(to, port, arrived);
        }
        let label = arrived.label;
        if label.has(flags::NEIGHBOUR | flags::VIA_AGGREGATORS) || label.destination == to {
            return Some(Role::Switch as usize);
        }
        self.net.forward(to, arrived);
        None
    }

    /// The same at another time than the link's.
    fn arrive_apart(&mut self, to: u32, port: PortId, link_flags: u16, place: u32) {
        let arrived = self.net.packets.arrived(place);
        if arrived.label.has(flags::CARRIED) {
            return self.arrive_carried(to, port, arrived);
        }
        if let Some(role) = self.arrive(to, port, link_flags, arrived) {
            self.hand_over(to, port, role, arrived);
        }
    }

    /// Draws what the link does to the packet, and drops repeats by the hop sequence.
    #[cold]
    fn arrive_by_faulty_link(&mut self, number: u32, place: u32) {
        let is_background = self.net.packets.get(place).has(flags::BACKGROUND);
        let kind = if is_background { PacketKind::Background } else { self.net.packets.rest(place).header.kind() };
        let faulty = self.net.faulty[number as usize].as_mut().expect("a faulty link has a state");
        let sequence = faulty.number();
        let fate = faulty.fate(kind);
        if let Some(reason) = faulty.stray() {
            self.net.counters.drop(reason);
        }
        if let Some(delay) = fate.second
            && !is_background
        {
            let mut copy = self.net.packets.copy(place);
            copy.head.charged_to = NO_LINK;
            let copy = self.net.packets.add(copy);
            if let Some(apart) = &mut self.net.apart {
                apart.copy(place, copy);
            }
            self.net.hold_back(self.net.now + delay, HeldBack::Arrive(number, sequence, copy));
        }
        match fate.first {
            Err(reason) => self.net.drop_packet(place, reason),
            Ok(0) => self.arrive_numbered(number, sequence, place),
            Ok(delay) => self.net.hold_back(self.net.now + delay, HeldBack::Arrive(number, sequence, place)),
        }
    }

    fn arrive_numbered(&mut self, number: u32, sequence: u64, place: u32) {
        let faulty = self.net.faulty[number as usize].as_mut().expect("a faulty link has a state");
        match faulty.accept(sequence) {
            Ok(()) => self.arrive_counted(number, place),
            Err(reason) => self.net.drop_packet(place, reason),
        }
    }

    #[inline(always)]
    fn arrive_at_host(&mut self, host: u32, port: PortId, arrived: Arrived) -> Option<usize> {
        match self.failures.host(host) {
            Host::Runs if arrived.label.has(flags::BACKGROUND) => self.on_background(arrived.place),
            Host::Runs => return Some(usize::from(arrived.label.destination_role())),
            Host::Stalls => self.failures.wait(host, port, arrived.place),
            Host::Dead => self.net.drop_packet(arrived.place, DropReason::HostDead),
        }
        None
    }

    /// Gives a packet to the node of its job and of this role at `at`.
    #[inline(always)]
    fn hand_over(&mut self, at: u32, port: PortId, role: usize, arrived: Arrived) {
        let index = (at as usize * self.scenario.jobs.len() + arrived.label.job as usize) * ROLES + role;
        match self.lookup.get(index) {
            Some(&slot) if slot != NONE => self.deliver(slot, port, arrived),
            _ => self.miss_node(at, arrived.place),
        }
    }

    /// There is no such node at `at`: a packet that an aggregator might have absorbed goes on.
    #[inline(never)]
    fn miss_node(&mut self, at: u32, place: u32) {
        let arrived = self.net.packets.arrived(place);
        if arrived.label.has(flags::VIA_AGGREGATORS) && arrived.label.destination != at {
            self.net.forward(at, arrived);
        } else {
            self.net.drop_packet(place, DropReason::NoNode);
        }
    }

    #[inline(always)]
    fn deliver(&mut self, number: u32, port: PortId, Arrived { place, label, frame_bytes, charged_to }: Arrived) {
        let rest = self.net.packets.leave(place);
        let (header, payload) = (rest.header, std::mem::replace(&mut rest.payload, P::nothing()));
        let source = Address { node: NodeId(rest.source), role: label.source_role() };
        let from = Ingress { port, source, job: JobId(label.job), ecn: label.has(flags::ECN) };
        if charged_to != NO_LINK {
            self.net.give_back(charged_to, self.net.now, frame_bytes);
        }
        let now = Instant::from_ps(self.net.now);
        let slot = &mut self.slots[number as usize];
        // A node that several jobs share acts for the one whose packet it is.
        slot.post.job = label.job;
        self.net.lossless.handled_by = charged_to;
        let (node, mut tx) = slot.lend(&mut self.net, &mut self.vectors);
        let deadline = node.receive(now, from, &header, payload.borrow(), &mut tx);
        self.net.lossless.handled_by = NO_LINK;
        self.after_handler(number, deadline);
    }

    /// A node, and what its handlers are lent.
    #[inline]
    fn lend(&mut self, slot: u32) -> (&mut N, Lent<'_, N::Header, P>) {
        self.slots[slot as usize].lend(&mut self.net, &mut self.vectors)
    }

    /// After a handler that has left the node with this deadline: the end of its operation, and the deadline.
    #[inline(always)]
    fn after_handler(&mut self, number: u32, deadline: Option<Instant>) {
        let slot = &mut self.slots[number as usize];
        if slot.post.worker.is_some()
            && let Some(outcome) = slot.node.poll()
        {
            self.on_outcome(number, outcome);
            self.after(number);
        } else {
            slot.arm(number, deadline, &mut self.net);
        }
    }

    /// The same where the node has not said its deadline.
    fn after(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        if slot.post.worker.is_some()
            && let Some(outcome) = slot.node.poll()
        {
            self.on_outcome(number, outcome);
        }
        let slot = &mut self.slots[number as usize];
        slot.arm(number, slot.node.next_timeout(), &mut self.net);
    }

    #[cold]
    fn on_outcome(&mut self, slot: u32, outcome: Outcome) {
        let Some(worker) = self.slots[slot as usize].post.worker else { return };
        let mut next = Some(outcome);
        while let Some(outcome) = next {
            let state = &mut self.workers[worker as usize];
            let result = state.result.operations.last_mut().expect("an operation was submitted");
            result.ended = Some(Instant::from_ps(self.net.now));
            let failed = outcome.result.is_err();
            state.finished_elements += self.vectors.delivered_elements(worker);
            match &outcome.result {
                Ok(()) => {
                    self.vectors.finish(worker);
                    result.without = self.vectors.excluded(worker).to_vec();
                }
                Err(failure) => result.failure = Some(failure.clone()),
            }
            if self.programs.drives(state.job) {
                self.programs.end(state.job, state.rank, outcome);
                self.net.attention = true;
                return;
            }
            if failed || state.next_operation as usize == self.scenario.jobs[state.job as usize].elements.len() {
                return self.end_worker(worker);
            }
            if !self.goes_on(worker) {
                return;
            }
            self.submit(worker);
            next = self.slots[slot as usize].node.poll();
        }
    }

    /// Submits a worker's next operation.
    fn submit(&mut self, worker: u32) {
        let state = &mut self.workers[worker as usize];
        let operation = OperationId(state.next_operation);
        let job = &self.scenario.jobs[state.job as usize];
        let kind = job.kinds.get(operation.index()).copied().unwrap_or_default();
        let collective = Collective { kind, ..Collective::allreduce(operation, job.elements[operation.index()]) };
        state.next_operation += 1;
        let submitted = Instant::from_ps(self.net.now);
        state.result.operations.push(OperationResult { submitted, ended: None, failure: None, without: Vec::new() });
        let slot = state.slot;
        self.watch_operation(worker, operation);
        self.vectors.begin(worker, &collective);
        let (node, mut tx) = self.lend(slot);
        node.submit(submitted, collective, &mut tx);
    }

    /// An event that is neither a packet's arrival nor a link's wake-up. Apart from the loop, which needs its registers for these.
    #[inline(never)]
    fn on_other(&mut self, id: u32) {
        let ids = self.net.ids;
        match id {
            _ if id < ids.tx_ready => self.on_timer(id - ids.timers),
            _ if id < ids.sources && self.net.is_due(id - ids.tx_ready) => self.on_tx_ready(id - ids.tx_ready),
            _ if id < ids.sources => {}
            _ if id < ids.held_back => self.on_source(id - ids.sources),
            _ if id == ids.held_back => self.on_held_back(),
            _ if id == ids.timeline => self.on_timeline(),
            _ if id == ids.job_start => self.on_job_start(),
            _ if id == ids.programs => self.on_programs(),
            _ => self.on_deadlock_check(),
        }
    }

    fn on_timer(&mut self, number: u32) {
        let slot = &mut self.slots[number as usize];
        if slot.armed != self.net.now {
            return;
        }
        slot.armed = u64::MAX;
        if slot.post.is_host && self.failures.host(slot.post.at) != Host::Runs {
            return;
        }
        let now = Instant::from_ps(self.net.now);
        let (node, mut tx) = slot.lend(&mut self.net, &mut self.vectors);
        let deadline = node.expire(now, &mut tx);
        self.after_handler(number, deadline);
    }

    fn on_tx_ready(&mut self, host: u32) {
        self.net.open_queue(host);
        if self.failures.host(host) != Host::Runs {
            return;
        }
        let mut served = None;
        for index in 0..self.at_host[host as usize].len() {
            let slot = self.at_host[host as usize][index];
            // Who has ended its operation may owe others something all the same: a leader of Canary the sum of its last block.
            let waits = std::mem::take(&mut self.slots[slot as usize].post.waits_for_room);
            if !waits && self.rests(slot) {
                continue;
            }
            let now = Instant::from_ps(self.net.now);
            let before = self.net.queued_at(host);
            let (node, mut tx) = self.lend(slot);
            node.on_tx_ready(now, &mut tx);
            self.after(slot);
            if served.is_none() && self.net.queued_at(host) > before {
                served = Some(self.slots[slot as usize].post.job);
            }
        }
        if let Some(job) = served {
            self.next_jobs_turn(host, job);
        }
    }

    /// Looks for a deadlock now and then; without other events there is nothing to look for later.
    fn on_deadlock_check(&mut self) {
        if self.net.outbox.is_some() {
            // The end of a window.
            (self.leaves, self.net.attention) = (true, true);
        } else if let Some(cycle) = self.net.deadlock() {
            self.deadlock = cycle;
            self.net.attention = true;
        } else if !self.net.queue.is_empty() {
            self.net.queue.push(self.net.now + DEADLOCK_CHECK_PS, self.net.ids.deadlock_check);
        }
    }

    fn on_job_start(&mut self) {
        if self.starts_armed != self.net.now {
            // Superseded by an earlier look.
            return;
        }
        self.starts_armed = u64::MAX;
        if let Some(outbox) = &mut self.net.outbox {
            outbox.beginnings.push(self.net.now);
        }
        while let Some(&(time, worker)) = self.starts.last() {
            if time > self.net.now {
                break;
            }
            self.starts.pop();
            let state = &mut self.workers[worker as usize];
            if self.failures.host(state.result.host) != Host::Runs {
                // A dead host never starts; a stalled one starts when it wakes.
                state.due = !state.done;
                continue;
            }
            self.submit(worker);
            self.after(self.workers[worker as usize].slot);
        }
        self.arm_starts();
    }

    /// A source of background traffic may send.
    fn on_source(&mut self, number: u32) {
        if !self.traffic_runs {
            return;
        }
        if number as usize >= self.sources.len() {
            return self.on_flow(number);
        }
        let source = &mut self.sources[number as usize];
        let config = &self.scenario.traffic[source.config as usize];
        if self.failures.host(source.host.0) != Host::Runs {
            source.paused = true;
            return;
        }
        if source.is_idle() && !source.next_message(config) {
            self.sources_running -= 1;
            self.net.attention = true;
            return;
        }
        let link = self.net.link_of_background(source.host, source.destination, number, (source.flow & 0xffff) as u16);
        // At full rate a few packets are queued at a time; below it each leaves at its own instant.
        let burst = if config.load >= 1.0 { 8 } else { 1 };
        let full_frame = self.net.frame_bytes(config.payload_bytes as usize);
        let gap = pace(self.net.links[link as usize].send_time_ps(full_frame), config.load).as_ps();
        let mut sent = 0;
        while sent < burst && source.bytes_left > 0 {
            let payload_bytes = source.bytes_left.min(u64::from(config.payload_bytes)) as u32;
            source.bytes_left -= u64::from(payload_bytes);
            source.in_flight += 1;
            sent += 1;
            let weight = mix(u64::from(number), source.packet_count);
            source.packet_count += 1;
            let payload = P::background(payload_bytes, weight);
            source.balance = source.balance.wrapping_add(P::background_weight(&payload));
            let frame_bytes = self.net.frame_bytes(payload_bytes as usize);
            let roles = pack_roles(Role::Worker, Role::Worker);
            // The job field tells messages apart for flow hashing; the flow label names the source.
            let job = (source.flow & 0xffff) as u16;
            let mut packet = Packet::new(source.host.0, frame_bytes, job, roles, N::Header::default(), payload);
            packet.head.destination = source.destination.0;
            packet.rest.flow = number;
            packet.head.flags = flags::BACKGROUND;
            let place = self.net.packets.add(packet);
            self.net.transmit(link, place, frame_bytes);
        }
        if source.bytes_left > 0 {
            let queue_ends = (self.net.now + self.net.links[link as usize].queued_ps(self.net.now)).saturating_sub(gap);
            let at = (self.net.now + gap * sent).max(queue_ends);
            self.net.queue.push(at, self.net.ids.sources + number);
        }
    }

    /// A background packet has arrived.
    #[inline]
    fn on_background(&mut self, place: u32) {
        let packet = self.net.packets.rest(place);
        let Some(source) = self.sources.get_mut(packet.flow as usize) else {
            return self.on_background_of_others(place);
        };
        // A source of another part has been told already.
        if self.net.outbox.as_ref().is_none_or(|outbox| outbox.is_here(source.host.0)) {
            source.in_flight -= 1;
            source.bytes_delivered += packet.payload.borrow().bytes() as u64;
            source.balance = source.balance.wrapping_sub(P::background_weight(&packet.payload));
            if source.is_idle() {
                let id = self.net.ids.sources + packet.flow;
                self.net.queue.push(self.net.now, id);
            }
        }
        self.net.packets.free(place);
    }

    /// Background packets were lost: nobody sends them again, but their messages end.
    #[cold]
    fn on_lost_background(&mut self) {
        while let Some((number, payload)) = self.net.lost_background.pop() {
            let Some(source) = self.sources.get(number as usize) else {
                self.on_lost_background_of_others(number, &payload);
                continue;
            };
            let host = source.host;
            if let Some(outbox) = self.net.outbox.as_mut().filter(|outbox| !outbox.is_here(host.0)) {
                outbox.lose(host.0, number, payload);
                continue;
            }
            self.lose_of_source(number, &payload);
            if self.sources[number as usize].is_idle() {
                self.net.queue.push(self.net.now, self.net.ids.sources + number);
            }
        }
    }
}
