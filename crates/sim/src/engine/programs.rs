//! Drives the ranks of jobs that run programs: a step begins when all that it waits for is done, and operations go to the workers of their
//! lanes.

mod lanes;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use fanin_core::hash::{derive, mix};
use fanin_core::{Instant, Outcome, Wire, Worker};

use super::failures::Host;
use super::{NONE, Simulation};
use crate::programs::{Call, ProgramFailure, ProgramJob, ProgramResult, Span, Step};
use crate::random::Purpose;
use crate::setup::SetupError;
use crate::vectors::Simulated;
use lanes::LaneState;

/// Something that happens at a known time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    /// A rank begins.
    Begin(u32),
    /// A rank has computed a step.
    Computed(u32, u32),
    /// A host's members have done what comes before an operation of a lane.
    Before(u32, u32),
    /// And what comes after.
    After(u32, u32),
}

/// A job of programs that runs.
struct Running {
    job: ProgramJob,
    /// By rank: where its steps begin in the lists below, and the end.
    base: Vec<usize>,
    /// By step of all ranks: how many it still waits for.
    waits: Vec<u32>,
    spans: Vec<Span>,
    /// By rank: steps that are not done.
    left: Vec<u32>,
    /// Ranks that have steps to do and live.
    ranks_left: u32,
    lanes: Vec<LaneState>,
    over: bool,
    ended: Option<Instant>,
    failure: Option<ProgramFailure>,
    crashed: Option<Instant>,
}

/// Jobs of programs, and what is due.
pub(super) struct Programs {
    jobs: Vec<Running>,
    /// By job of the network: the job of programs and the lane that it does.
    lane_of: Vec<Option<(u32, u32)>>,
    due: BinaryHeap<Reverse<(u64, u64, u32, Due)>>,
    order: u64,
    /// Time of the pending look at `due`; `u64::MAX` without one.
    armed: u64,
    /// What is due at hosts that stall: host, job, what.
    stalled: Vec<(u32, u32, Due)>,
    /// Operations that have ended at workers: job, lane, host, outcome.
    outcomes: Vec<(u32, u32, u32, Outcome)>,
    /// Steps that may begin: job, rank, step.
    ready: Vec<(u32, u32, u32)>,
}

impl Default for Programs {
    fn default() -> Self {
        Programs::new(Vec::new(), 0)
    }
}

impl Programs {
    pub(super) fn new(jobs: Vec<ProgramJob>, network_jobs: usize) -> Self {
        let mut programs = Programs {
            jobs: Vec::new(),
            lane_of: vec![None; network_jobs],
            due: BinaryHeap::new(),
            order: 0,
            armed: u64::MAX,
            stalled: Vec::new(),
            outcomes: Vec::new(),
            ready: Vec::new(),
        };
        for (number, job) in (0..).zip(jobs) {
            for (lane, of) in (0..).zip(&job.lanes) {
                if let Some(network_job) = of.job {
                    programs.lane_of[usize::from(network_job)] = Some((number, lane));
                }
            }
            for (rank, of) in (0..).zip(&job.ranks) {
                programs.push(of.start.as_ps(), number, Due::Begin(rank));
            }
            programs.jobs.push(Running::new(job));
        }
        programs
    }

    /// How many there are.
    pub(super) fn count(&self) -> u32 {
        self.jobs.len() as u32
    }

    /// Whether this job of the network does what programs say.
    #[inline]
    pub(super) fn drives(&self, job: u16) -> bool {
        self.lane_of.get(usize::from(job)).is_some_and(Option::is_some)
    }

    fn push(&mut self, at_ps: u64, job: u32, due: Due) {
        self.due.push(Reverse((at_ps, self.order, job, due)));
        self.order += 1;
    }

    /// An operation of a lane has ended at a worker: it is told what to do next when the event is over.
    pub(super) fn end(&mut self, job: u16, rank: u32, outcome: Outcome) {
        if let Some((program_job, lane)) = self.lane_of[usize::from(job)] {
            self.outcomes.push((program_job, lane, rank, outcome));
        }
    }

    /// What came out, by job.
    pub(super) fn results(self) -> Vec<ProgramResult> {
        self.jobs.into_iter().map(Running::result).collect()
    }
}

impl Running {
    fn new(job: ProgramJob) -> Self {
        let mut base = vec![0];
        let (mut waits, mut left) = (Vec::new(), Vec::new());
        for rank in &job.ranks {
            let program = &job.programs[rank.program as usize];
            waits.extend_from_slice(&program.waits);
            left.push(program.steps.len() as u32);
            base.push(waits.len());
        }
        let spans = vec![Span { begun_ps: Span::NEVER, ended_ps: Span::NEVER }; waits.len()];
        let lanes = job.lanes.iter().map(LaneState::new).collect();
        let ranks_left = job.ranks.len() as u32;
        let (over, ended, failure, crashed) = (false, None, None, None);
        Running { job, base, waits, spans, left, ranks_left, lanes, over, ended, failure, crashed }
    }

    fn result(self) -> ProgramResult {
        let spans = self.base.windows(2).map(|part| self.spans[part[0]..part[1]].to_vec()).collect();
        ProgramResult { ranks: spans, ended: self.ended, failure: self.failure, crashed: self.crashed }
    }

    fn index(&self, rank: u32, step: u32) -> usize {
        self.base[rank as usize] + step as usize
    }

    fn step(&self, rank: u32, step: u32) -> Step {
        self.job.programs[self.job.ranks[rank as usize].program as usize].steps[step as usize]
    }

    /// How long a rank computes a step.
    fn compute_ps(&self, seed: u64, rank: u32, step: u32, mean_ps: u64) -> u64 {
        if self.job.compute_spread == 0.0 {
            return mean_ps;
        }
        let stream = derive(derive(seed, Purpose::Compute as u64), self.job.seed);
        let share = (mix(stream, u64::from(rank) << 32 | u64::from(step)) >> 11) as f64 / (1u64 << 53) as f64;
        (mean_ps as f64 * (1.0 + self.job.compute_spread * (2.0 * share - 1.0))).round() as u64
    }
}

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// Ranks of these jobs run programs, whose lanes are jobs of the scenario: those begin nothing by themselves.
    ///
    /// # Errors
    /// [`SetupError`] where programs and the scenario do not fit together.
    pub fn run_programs(&mut self, jobs: Vec<ProgramJob>) -> Result<(), SetupError> {
        let workers: Vec<usize> = self.scenario.jobs.iter().map(|job| job.start.len()).collect();
        for (number, job) in jobs.iter().enumerate() {
            check_job(job, number, &workers)?;
            if let Some(rank) = job.ranks.iter().find(|rank| rank.host >= self.net.topology.map.hosts()) {
                return Err(SetupError::new(format!("programs[{number}].ranks"), rank.host, "hosts of the network"));
            }
        }
        self.programs = Programs::new(jobs, self.scenario.jobs.len());
        let (programs, workers) = (&self.programs, &self.workers);
        self.starts.retain(|(_, worker)| !programs.drives(workers[*worker as usize].job));
        self.workers_running += self.programs.count();
        self.join_lanes();
        self.arm_programs();
        Ok(())
    }

    /// Schedules the first of what is due, unless an earlier look is pending.
    pub(super) fn arm_programs(&mut self) {
        if let Some(Reverse((time, ..))) = self.programs.due.peek()
            && *time < self.programs.armed
        {
            self.programs.armed = *time;
            self.net.queue.push(*time, self.net.ids.programs);
        }
    }

    /// Something is due.
    #[cold]
    pub(super) fn on_programs(&mut self) {
        if self.programs.armed != self.net.now {
            // Superseded by an earlier look.
            return;
        }
        self.programs.armed = u64::MAX;
        while let Some(Reverse((time, _, job, due))) = self.programs.due.peek().copied() {
            if time > self.net.now {
                break;
            }
            self.programs.due.pop();
            self.do_due(job, due);
        }
        self.drive();
        self.arm_programs();
    }

    /// The host at which something is due.
    fn host_of(&self, job: u32, due: Due) -> u32 {
        let running = &self.programs.jobs[job as usize];
        match due {
            Due::Begin(rank) | Due::Computed(rank, _) => running.job.ranks[rank as usize].host,
            Due::Before(lane, host) | Due::After(lane, host) => self.lane_host(job, lane, host),
        }
    }

    fn do_due(&mut self, job: u32, due: Due) {
        if self.programs.jobs[job as usize].over {
            return;
        }
        let host = self.host_of(job, due);
        match self.failures.host(host) {
            Host::Runs => {}
            Host::Stalls => return self.programs.stalled.push((host, job, due)),
            Host::Dead => return,
        }
        match due {
            Due::Begin(rank) => self.begin_rank(job, rank),
            Due::Computed(rank, step) => self.end_step(job, rank, step),
            Due::Before(lane, host) => self.submit_lane(job, lane, host),
            Due::After(lane, host) => self.end_lane(job, lane, host),
        }
    }

    fn begin_rank(&mut self, job: u32, rank: u32) {
        let running = &self.programs.jobs[job as usize];
        let program = running.job.programs[running.job.ranks[rank as usize].program as usize].clone();
        if program.steps.is_empty() {
            return self.end_rank(job);
        }
        let first = (0..).zip(&program.waits).filter(|(_, waits)| **waits == 0).map(|(step, _)| (job, rank, step));
        // The last that is pushed begins first.
        let first: Vec<(u32, u32, u32)> = first.collect();
        self.programs.ready.extend(first.into_iter().rev());
    }

    /// Does all that can be done now.
    pub(super) fn drive(&mut self) {
        loop {
            if let Some((job, rank, step)) = self.programs.ready.pop() {
                self.begin_step(job, rank, step);
            } else if self.programs.outcomes.is_empty() {
                return;
            } else {
                for (job, lane, host, outcome) in std::mem::take(&mut self.programs.outcomes) {
                    self.on_lane_outcome(job, lane, host, outcome);
                }
            }
        }
    }

    fn begin_step(&mut self, job: u32, rank: u32, step: u32) {
        let (now, seed) = (self.net.now, self.scenario.seed);
        let running = &mut self.programs.jobs[job as usize];
        if running.over {
            return;
        }
        let index = running.index(rank, step);
        running.spans[index].begun_ps = now;
        match running.step(rank, step) {
            Step::Compute(mean) => match running.compute_ps(seed, rank, step, mean.as_ps()) {
                0 => self.end_step(job, rank, step),
                time => {
                    self.programs.push(now + time, job, Due::Computed(rank, step));
                    self.arm_programs();
                }
            },
            Step::Call(call) => {
                let call = running.job.ranks[rank as usize].calls[call as usize];
                self.come(job, call, (rank, step));
            }
        }
    }

    fn end_step(&mut self, job: u32, rank: u32, step: u32) {
        let now = self.net.now;
        let running = &mut self.programs.jobs[job as usize];
        if running.over {
            return;
        }
        let index = running.index(rank, step);
        running.spans[index].ended_ps = now;
        running.left[rank as usize] -= 1;
        let base = running.base[rank as usize];
        let program = running.job.programs[running.job.ranks[rank as usize].program as usize].clone();
        let from = self.programs.ready.len();
        for successor in program.successors(step) {
            let waits = &mut running.waits[base + *successor as usize];
            *waits -= 1;
            if *waits == 0 {
                self.programs.ready.push((job, rank, *successor));
            }
        }
        self.programs.ready[from..].reverse();
        if self.programs.jobs[job as usize].left[rank as usize] == 0 {
            self.end_rank(job);
        }
    }

    /// A rank is through, or has died.
    fn end_rank(&mut self, job: u32) {
        let now = Instant::from_ps(self.net.now);
        let running = &mut self.programs.jobs[job as usize];
        running.ranks_left -= 1;
        if running.ranks_left == 0 && !running.over {
            running.ended = running.left.iter().all(|left| *left == 0).then_some(now);
            self.end_programs(job);
        }
    }

    /// A job of programs is over: so are its lanes' jobs.
    pub(super) fn end_programs(&mut self, job: u32) {
        let running = &mut self.programs.jobs[job as usize];
        if std::mem::replace(&mut running.over, true) {
            return;
        }
        self.workers_running -= 1;
        self.net.attention = true;
        for worker in 0..self.workers.len() as u32 {
            let state = &self.workers[worker as usize];
            let is_ours = self.programs.lane_of[usize::from(state.job)].is_some_and(|(of, _)| of == job);
            if is_ours && !state.done {
                self.end_worker(worker);
            }
        }
    }

    /// A job of the network has crashed: the programs that drive it have.
    pub(super) fn crash_programs(&mut self, network_job: u16) {
        if let Some(Some((job, _))) = self.programs.lane_of.get(usize::from(network_job)).copied() {
            let running = &mut self.programs.jobs[job as usize];
            if !running.over {
                running.crashed = Some(Instant::from_ps(self.net.now));
                self.end_programs(job);
            }
        }
    }

    /// A host has died: its ranks will do nothing more.
    pub(super) fn kill_ranks(&mut self, host: u32) {
        for job in 0..self.programs.count() {
            let running = &self.programs.jobs[job as usize];
            let lost = running.job.ranks.iter().zip(&running.left).filter(|(rank, left)| rank.host == host && **left > 0).count();
            (0..lost).for_each(|_| self.end_rank(job));
        }
    }

    /// A host goes on after a stall.
    pub(super) fn wake_ranks(&mut self, host: u32) {
        for (at, job, due) in std::mem::take(&mut self.programs.stalled) {
            if at == host { self.do_due(job, due) } else { self.programs.stalled.push((at, job, due)) }
        }
        self.drive();
    }

    /// Whether a node is a worker whose lane does nothing now: it has nothing to send but what it was told to have no room for.
    #[inline]
    pub(super) fn rests(&self, slot: u32) -> bool {
        if self.programs.jobs.is_empty() {
            return false;
        }
        let worker = self.slots[slot as usize].post.worker.map(|worker| &self.workers[worker as usize]);
        worker.is_some_and(|worker| self.programs.drives(worker.job) && !worker.is_running())
    }

    /// The worker of a lane at a host; none where all members are there.
    fn lane_worker(&self, job: u32, lane: u32, host: u32) -> Option<u32> {
        let first = self.programs.jobs[job as usize].lanes[lane as usize].first_worker;
        (first != NONE).then(|| first + host)
    }

    fn lane_host(&self, job: u32, lane: u32, host: u32) -> u32 {
        match self.lane_worker(job, lane, host) {
            Some(worker) => self.workers[worker as usize].result.host,
            None => self.programs.jobs[job as usize].lanes[lane as usize].at,
        }
    }
}

/// Whether everything that is named is there.
///
/// # Errors
/// [`SetupError`] names the field.
fn check_job(job: &ProgramJob, number: usize, workers: &[usize]) -> Result<(), SetupError> {
    let path = |key: &str| format!("programs[{number}].{key}");
    if !(0.0..=1.0).contains(&job.compute_spread) {
        return Err(SetupError::new(path("compute_spread"), job.compute_spread, "a spread from 0 to 1"));
    }
    for (index, lane) in job.lanes.iter().enumerate() {
        let at = path(&format!("lanes[{index}]"));
        match lane.job {
            Some(job) if workers.get(usize::from(job)) != Some(&lane.hosts.len()) => {
                return Err(SetupError::new(at, lane.hosts.len(), "as many hosts as the lane's job has workers"));
            }
            None if lane.hosts.len() != 1 => return Err(SetupError::new(at, lane.hosts.len(), "one host, or a job")),
            _ => {}
        }
    }
    for (index, rank) in job.ranks.iter().enumerate() {
        let at = path(&format!("ranks[{index}]"));
        let Some(program) = job.programs.get(rank.program as usize) else {
            return Err(SetupError::new(at, rank.program, format!("a program below {}", job.programs.len())));
        };
        let called = |step: &Step| if let Step::Call(call) = step { Some(*call as usize) } else { None };
        if let Some(call) = program.steps.iter().filter_map(called).find(|call| *call >= rank.calls.len()) {
            return Err(SetupError::new(at, call, format!("a call below {}", rank.calls.len())));
        }
        let is_there = |call: &Call| {
            let lane = job.lanes.get(call.lane as usize);
            lane.is_some_and(|lane| (call.host as usize) < lane.hosts.len() && (call.operation as usize) < lane.operations.len())
        };
        if let Some(call) = rank.calls.iter().find(|call| !is_there(call)) {
            return Err(SetupError::new(at, format!("{call:?}"), "lanes, hosts and operations that there are"));
        }
    }
    Ok(())
}
