//! Whether a job could end within a window. A worker that lacks more elements than its links can bring in that time cannot end its
//! operation; as long as one of a job is known to be so far from its end, its *witness*, the job does not end.

use fanin_core::{CollectiveKind, Rank, Wire, Worker};

use crate::engine::{NONE, Simulation};
use crate::vectors::{Simulated, Vectors};

/// Jobs that are told apart by bits of a word.
pub(super) const JOBS_MAX: usize = 64;

/// Bytes that may come beside what a link brings in a window: frames that have been under way.
const FRAMES_BYTES: u64 = 2 * 2_048;

/// What a part knows of its jobs' ends. Bit j stands for job j, and where there are more than 64, for all jobs that j is the rest of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Ends {
    /// Jobs with workers that have not ended.
    pub run: u64,
    /// Jobs with a worker that cannot end within a window.
    pub far: u64,
}

/// Witnesses of the jobs of a part.
#[derive(Clone, Debug)]
pub(super) struct Witnesses {
    /// By job.
    of_job: Vec<Option<u32>>,
    /// By job: its workers here, as a range of their numbers.
    workers: Vec<(u32, u32)>,
    /// By job: a worker gets at most so many elements in a window.
    elements_max: Vec<u64>,
}

impl Witnesses {
    /// Those of a part, where at most `bytes` bytes come to a host in a window.
    pub fn new<N: Worker<P>, P: Simulated + ?Sized>(part: &Simulation<N, P>, bytes: u64) -> Self {
        let mut first = 0;
        let workers = part.scenario.jobs.iter().map(|job| {
            let begin = first;
            first += job.start.len() as u32;
            (begin, first)
        });
        let elements_max = |job: &crate::scenario::JobSchedule| (bytes + bytes / 4 + FRAMES_BYTES) / u64::from(job.element_bytes.max(1));
        Witnesses {
            of_job: vec![None; part.scenario.jobs.len()],
            workers: workers.collect(),
            elements_max: part.scenario.jobs.iter().map(elements_max).collect(),
        }
    }

    /// What can be said at the end of a window.
    pub fn look<N, P>(&mut self, part: &Simulation<N, P>) -> Ends
    where
        N: Worker<P> + Clone,
        N::Header: Wire + Default,
        P: Simulated + ?Sized,
    {
        let mut ends = Ends::default();
        for (job, _) in part.running_in.iter().enumerate().filter(|(_, running)| **running > 0) {
            let (bit, max) = (1 << (job % JOBS_MAX), self.elements_max[job]);
            ends.run |= bit;
            let is_far = |worker: u32| part.lacks_more(worker, max);
            let still = self.of_job[job].filter(|worker| is_far(*worker));
            let (first, end) = self.workers[job];
            self.of_job[job] = still.or_else(|| (first..end).rev().find(|worker| is_far(*worker)));
            ends.far |= if self.of_job[job].is_some() { bit } else { 0 };
        }
        ends
    }
}

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// Whether a worker of this part lacks more than so many elements of all that it is to get yet.
    fn lacks_more(&self, worker: u32, elements: u64) -> bool {
        let state = &self.workers[worker as usize];
        if state.done || state.slot == NONE {
            return false;
        }
        let job = &self.scenario.jobs[usize::from(state.job)];
        let running = if state.is_running() { state.next_operation.saturating_sub(1) } else { state.next_operation };
        let has = if state.is_running() { self.vectors.delivered_elements(worker) } else { 0 };
        let mut lacks = 0u64;
        for operation in running as usize..job.elements.len() {
            let kind = job.kinds.get(operation).copied().unwrap_or_default();
            lacks += received(kind, job.elements[operation], state.rank, job.start.len() as u32);
            if lacks > elements.saturating_add(has) {
                return true;
            }
        }
        false
    }
}

/// How many of a collective's elements a rank gets.
fn received(kind: CollectiveKind, elements: u64, rank: u32, workers: u32) -> u64 {
    if kind == CollectiveKind::Allreduce {
        return elements;
    }
    let shares = kind.shares(workers);
    let mine = (0..shares).filter(|share| kind.receives(Rank(rank), *share)).count() as u64;
    elements / u64::from(shares.max(1)) * mine
}
