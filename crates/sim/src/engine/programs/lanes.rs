//! Lanes: who has come to which operation, and what workers are asked for.

use std::collections::{BTreeMap, VecDeque};

use fanin_core::{Collective, Instant, OperationId, Outcome, Wire, Worker};

use super::Due;
use crate::engine::failures::Host;
use crate::engine::{NONE, Simulation};
use crate::metrics::OperationResult;
use crate::programs::{Call, Lane, LaneKind, LaneOperation, ProgramFailure};
use crate::vectors::{Simulated, Vectors};

/// A rank that takes part, and its step.
type Member = (u32, u32);

/// A lane of a job that runs.
pub(super) struct LaneState {
    kind: LaneKind,
    pub(super) first_worker: u32,
    /// The host where all members are, if they are at one.
    pub(super) at: u32,
    hosts: Vec<LaneHost>,
    /// Transfers that were sent and have not begun.
    sent: VecDeque<(u32, Member)>,
    under_way: Option<UnderWay>,
    /// By transfer: who waits for it; `None` where it has come and nobody has asked for it yet.
    receivers: BTreeMap<u32, Option<Member>>,
}

/// A host of a lane.
#[derive(Default)]
struct LaneHost {
    members: u32,
    /// The operation that it does, or will do next.
    next: u32,
    runs: bool,
    /// Members that wait for an operation, or are in it.
    waiting: Vec<(u32, Member)>,
}

/// The transfer that is under way.
struct UnderWay {
    number: u32,
    sender: Member,
    /// At how many hosts it is not over.
    hosts: u32,
}

impl LaneState {
    pub(super) fn new(lane: &Lane) -> Self {
        LaneState {
            kind: lane.kind,
            first_worker: NONE,
            at: NONE,
            hosts: lane.hosts.iter().map(|members| LaneHost { members: *members, ..LaneHost::default() }).collect(),
            sent: VecDeque::new(),
            under_way: None,
            receivers: BTreeMap::new(),
        }
    }
}

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// Where the lanes of programs find their workers, once all are placed.
    pub(in crate::engine) fn join_lanes(&mut self) {
        for job in &mut self.programs.jobs {
            for rank in &job.job.ranks {
                for call in &rank.calls {
                    job.lanes[call.lane as usize].at = rank.host;
                }
            }
        }
        for (number, worker) in (0..).zip(&self.workers) {
            if let Some((job, lane)) = self.programs.lane_of[usize::from(worker.job)]
                && worker.rank == 0
            {
                self.programs.jobs[job as usize].lanes[lane as usize].first_worker = number;
            }
        }
    }

    fn operation(&self, job: u32, lane: u32, number: u32) -> LaneOperation {
        self.programs.jobs[job as usize].job.lanes[lane as usize].operations[number as usize]
    }

    fn lane(&mut self, job: u32, lane: u32) -> &mut LaneState {
        &mut self.programs.jobs[job as usize].lanes[lane as usize]
    }

    /// A rank comes to an operation.
    pub(super) fn come(&mut self, job: u32, call: Call, member: Member) {
        let state = self.lane(job, call.lane);
        match (state.kind, call.sends) {
            (LaneKind::Group, _) => {
                state.hosts[call.host as usize].waiting.push((call.operation, member));
                self.try_group(job, call.lane, call.host);
            }
            (LaneKind::Transfers, true) => {
                state.sent.push_back((call.operation, member));
                self.try_transfer(job, call.lane);
            }
            (LaneKind::Transfers, false) => match state.receivers.remove(&call.operation) {
                Some(_) => self.end_step(job, member.0, member.1),
                None => {
                    state.receivers.insert(call.operation, Some(member));
                }
            },
        }
    }

    /// A host begins its next operation where all of its members have come.
    fn try_group(&mut self, job: u32, lane: u32, host: u32) {
        let at = &mut self.lane(job, lane).hosts[host as usize];
        let here = at.waiting.iter().filter(|(number, _)| *number == at.next).count() as u32;
        if at.runs || here < at.members {
            return;
        }
        at.runs = true;
        let number = at.next;
        self.prepare(job, lane, (host, number));
    }

    /// An operation begins at a host with what comes before it there.
    fn prepare(&mut self, job: u32, lane: u32, (host, number): (u32, u32)) {
        match self.operation(job, lane, number).before.as_ps() {
            0 => self.submit_lane(job, lane, host),
            before => {
                self.programs.push(self.net.now + before, job, Due::Before(lane, host));
                self.arm_programs();
            }
        }
    }

    /// The next transfer begins where none is under way. Its receiver's host takes it whether or not a rank waits for it.
    fn try_transfer(&mut self, job: u32, lane: u32) {
        let state = self.lane(job, lane);
        if state.under_way.is_some() {
            return;
        }
        let Some((number, sender)) = state.sent.pop_front() else { return };
        let hosts = state.hosts.len() as u32;
        state.under_way = Some(UnderWay { number, sender, hosts });
        state.hosts.iter_mut().for_each(|host| host.next = number);
        // The receiver first, so that nothing comes before it can be taken.
        for host in (0..hosts).rev() {
            self.prepare(job, lane, (host, number));
        }
    }

    /// Asks the worker of a lane's host for the operation that is next there; without a worker it is done.
    pub(super) fn submit_lane(&mut self, job: u32, lane: u32, host: u32) {
        let Some(worker) = self.lane_worker(job, lane, host) else { return self.end_lane(job, lane, host) };
        let at = self.workers[worker as usize].result.host;
        match self.failures.host(at) {
            Host::Runs => {}
            Host::Stalls => return self.programs.stalled.push((at, job, Due::Before(lane, host))),
            Host::Dead => return,
        }
        let number = self.lane(job, lane).hosts[host as usize].next;
        let LaneOperation { kind, elements, .. } = self.operation(job, lane, number);
        let submitted = Instant::from_ps(self.net.now);
        let state = &mut self.workers[worker as usize];
        let operation = OperationId(state.next_operation);
        let collective = Collective { kind, ..Collective::allreduce(operation, elements) };
        state.next_operation += 1;
        // Only the last one is kept: programs know when their steps were under way.
        state.result.operations.clear();
        state.result.operations.push(OperationResult { submitted, ended: None, failure: None, without: Vec::new() });
        let slot = state.slot;
        self.watch_operation(worker, operation);
        self.vectors.begin(worker, &collective);
        let (node, mut tx) = self.lend(slot);
        node.submit(submitted, collective, &mut tx);
        self.after(slot);
    }

    /// A worker says how the operation of its lane has ended.
    pub(super) fn on_lane_outcome(&mut self, job: u32, lane: u32, host: u32, outcome: Outcome) {
        if self.programs.jobs[job as usize].over {
            return;
        }
        let number = self.lane(job, lane).hosts[host as usize].next;
        if let Err(failure) = outcome.result {
            self.programs.jobs[job as usize].failure = Some(ProgramFailure { lane, host, operation: number, failure });
            return self.end_programs(job);
        }
        match self.operation(job, lane, number).after.as_ps() {
            0 => self.end_lane(job, lane, host),
            after => {
                self.programs.push(self.net.now + after, job, Due::After(lane, host));
                self.arm_programs();
            }
        }
    }

    /// An operation of a lane is over at a host.
    pub(super) fn end_lane(&mut self, job: u32, lane: u32, host: u32) {
        if self.lane(job, lane).kind == LaneKind::Transfers {
            return self.end_transfer(job, lane, host);
        }
        let at = &mut self.lane(job, lane).hosts[host as usize];
        let number = at.next;
        let (done, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut at.waiting).into_iter().partition(|(of, _)| *of == number);
        (at.waiting, at.runs, at.next) = (rest, false, number + 1);
        for (_, (rank, step)) in done {
            self.end_step(job, rank, step);
        }
        self.try_group(job, lane, host);
    }

    /// A transfer is over at its sender (host 0), at its receiver, or at the one host of both.
    fn end_transfer(&mut self, job: u32, lane: u32, host: u32) {
        let state = self.lane(job, lane);
        let is_receiver = host + 1 == state.hosts.len() as u32;
        let Some(under_way) = &mut state.under_way else { return };
        under_way.hosts -= 1;
        let (number, sender) = (under_way.number, (host == 0).then_some(under_way.sender));
        if under_way.hosts == 0 {
            state.under_way = None;
        }
        let receiver = if is_receiver { state.receivers.remove(&number).flatten() } else { None };
        if is_receiver && receiver.is_none() {
            state.receivers.insert(number, None);
        }
        for (rank, step) in sender.into_iter().chain(receiver) {
            self.end_step(job, rank, step);
        }
        self.try_transfer(job, lane);
    }
}
