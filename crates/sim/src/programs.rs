//! Jobs whose ranks run programs: graphs of computations and of operations in several groups, which overlap.
//!
//! Each group of ranks that communicate in one way is a *lane*: a job of its own to the network, with workers at the hosts of its members,
//! which does one operation at a time. A host takes part in an operation when all members that it has have come to it; members of one host
//! share a worker. What they do inside of the host before and after takes times that are given.

use std::sync::Arc;

use fanin_core::{CollectiveKind, Duration, Failure, Instant};

/// A job whose ranks run programs.
#[derive(Clone, PartialEq, Debug)]
pub struct ProgramJob {
    /// What ranks run; several may run the same.
    pub programs: Vec<Arc<Program>>,
    /// The ranks.
    pub ranks: Vec<ProgramRank>,
    /// Where they communicate.
    pub lanes: Vec<Lane>,
    /// Each computation's time is drawn anew, evenly between its time less this share of it and its time plus this share: 0 to 1.
    pub compute_spread: f64,
    /// When the job stops at once, for good and without a word.
    pub crash: Option<Instant>,
    /// A number by which draws of this job differ from those of others.
    pub seed: u64,
}

/// A rank.
#[derive(Clone, PartialEq, Debug)]
pub struct ProgramRank {
    /// Index in [`ProgramJob::programs`].
    pub program: u32,
    /// The number of its host in the network.
    pub host: u32,
    /// When it begins.
    pub start: Instant,
    /// Its calls: what [`Step::Call`] numbers.
    pub calls: Vec<Call>,
}

/// A rank's part in an operation of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call {
    /// Index in [`ProgramJob::lanes`].
    pub lane: u32,
    /// Index in [`Lane::hosts`].
    pub host: u32,
    /// Index in [`Lane::operations`].
    pub operation: u32,
    /// Of a transfer: it is the sender's part.
    pub sends: bool,
}

/// What a rank does, in which order.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Program {
    /// The steps.
    pub steps: Vec<Step>,
    /// How many steps must be done before each.
    pub waits: Vec<u32>,
    /// The steps that wait for each.
    successors: Vec<u32>,
    /// Where each step's part of `successors` begins, and the end.
    starts: Vec<u32>,
}

impl Program {
    /// Steps, with those that each one waits for.
    ///
    /// # Panics
    /// Where a step waits for one that is not there.
    pub fn new(steps: Vec<Step>, after: &dyn Fn(usize) -> Vec<u32>) -> Self {
        let all: Vec<Vec<u32>> = (0..steps.len()).map(after).collect();
        let mut counts = vec![0u32; steps.len() + 1];
        all.iter().flatten().for_each(|before| counts[*before as usize + 1] += 1);
        for index in 1..counts.len() {
            counts[index] += counts[index - 1];
        }
        let (starts, mut next) = (counts.clone(), counts);
        let mut successors = vec![0; all.iter().map(Vec::len).sum()];
        for (step, before) in (0..).zip(&all) {
            for before in before {
                let place = &mut next[*before as usize];
                successors[*place as usize] = step;
                *place += 1;
            }
        }
        Program { waits: all.iter().map(|before| before.len() as u32).collect(), steps, successors, starts }
    }

    /// The steps that wait for one.
    #[inline]
    pub fn successors(&self, step: u32) -> &[u32] {
        &self.successors[self.starts[step as usize] as usize..self.starts[step as usize + 1] as usize]
    }
}

/// A step of a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Computes for so long.
    Compute(Duration),
    /// Takes part in an operation: an index in [`ProgramRank::calls`].
    Call(u32),
}

/// Where ranks communicate in one way.
#[derive(Clone, PartialEq, Debug)]
pub struct Lane {
    /// What it does.
    pub kind: LaneKind,
    /// The job of the network that does it, by number; `None` where all members are at one host.
    pub job: Option<u16>,
    /// How many members each host has, in the order of the job's workers.
    pub hosts: Vec<u32>,
    /// What it does, in order.
    pub operations: Vec<LaneOperation>,
}

/// Kinds of lanes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LaneKind {
    /// Operations of a group, in their order.
    Group,
    /// Transfers from the first host to the second, as they are sent.
    Transfers,
}

/// An operation of a lane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LaneOperation {
    /// What workers are asked for.
    pub kind: CollectiveKind,
    /// Length of their vector in elements.
    pub elements: u64,
    /// What a host's members do among themselves before.
    pub before: Duration,
    /// And after.
    pub after: Duration,
}

/// When a step was under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// When it began; [`Span::NEVER`] where it has not.
    pub begun_ps: u64,
    /// When it was done.
    pub ended_ps: u64,
}

impl Span {
    /// Of what has not happened.
    pub const NEVER: u64 = u64::MAX;

    /// How long it took; `None` where it is not done.
    pub fn duration_ps(&self) -> Option<u64> {
        (self.ended_ps != Span::NEVER).then(|| self.ended_ps - self.begun_ps)
    }
}

/// What came out of a job of programs.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct ProgramResult {
    /// By rank: by step, when it was under way.
    pub ranks: Vec<Vec<Span>>,
    /// When all ranks were through; `None` where they were not.
    pub ended: Option<Instant>,
    /// Why not, where an operation failed.
    pub failure: Option<ProgramFailure>,
    /// When it crashed.
    pub crashed: Option<Instant>,
}

/// An operation that failed.
#[derive(Clone, PartialEq, Debug)]
pub struct ProgramFailure {
    /// Index in [`ProgramJob::lanes`].
    pub lane: u32,
    /// Index in [`Lane::hosts`] of who says so.
    pub host: u32,
    /// Index in [`Lane::operations`].
    pub operation: u32,
    /// What it says.
    pub failure: Failure,
}
