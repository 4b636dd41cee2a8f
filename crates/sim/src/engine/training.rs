//! Jobs that compute between their operations, that share a host, and that crash.

use fanin_core::hash::{derive, mix};
use fanin_core::{Instant, Wire, Worker};

use super::{NONE, ROLES, Simulation};
use crate::random::Purpose;
use crate::vectors::Simulated;

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// How long a worker computes before its operation number `operation`.
    pub(super) fn compute_ps(&self, job: u16, rank: u32, operation: u32) -> u64 {
        let Some(compute) = &self.scenario.jobs[usize::from(job)].compute else { return 0 };
        if !operation.is_multiple_of(compute.operations) {
            return 0;
        }
        let stream = derive(derive(self.scenario.seed, Purpose::Compute as u64), u64::from(job));
        let draw = mix(stream, u64::from(rank) << 32 | u64::from(operation / compute.operations));
        let share = (draw >> 11) as f64 / (1u64 << 53) as f64;
        (compute.mean.as_ps() as f64 * (1.0 + compute.spread * (2.0 * share - 1.0))).round() as u64
    }

    /// A worker has ended an operation and is not through: it goes on at once, or when it has computed. Whether at once.
    pub(super) fn goes_on(&mut self, worker: u32) -> bool {
        let state = &self.workers[worker as usize];
        let compute_ps = self.compute_ps(state.job, state.rank, state.next_operation);
        if compute_ps == 0 {
            return true;
        }
        let entry = (self.net.now + compute_ps, worker);
        let place = self.starts.partition_point(|other| *other > entry);
        self.starts.insert(place, entry);
        self.arm_starts();
        false
    }

    /// Schedules the next worker that begins an operation by itself, unless an earlier look is pending.
    pub(crate) fn arm_starts(&mut self) {
        if let Some(&(time, _)) = self.starts.last()
            && time < self.starts_armed
        {
            self.starts_armed = time;
            self.net.queue.push(time, self.net.ids.job_start);
        }
    }

    /// The jobs of a host fill its queue in turn: whoever is called first finds all the room, and is called last the next time. A job's nodes
    /// stand together.
    pub(super) fn next_jobs_turn(&mut self, host: u32, served: u16) {
        let Simulation { at_host, slots, .. } = self;
        let here = &mut at_host[host as usize];
        if let Some(last) = here.iter().rposition(|slot| slots[*slot as usize].post.job == served) {
            let count = here.len();
            here.rotate_left((last + 1) % count);
        }
    }

    /// All nodes of a job that live on hosts are gone; what they hold at switches stays.
    pub(super) fn crash_job(&mut self, job: u16) {
        let running = self.workers.iter().any(|worker| worker.job == job && !worker.done);
        if !running {
            return;
        }
        self.crash_programs(job);
        self.crashed[usize::from(job)] = Some(Instant::from_ps(self.net.now));
        for worker in 0..self.workers.len() as u32 {
            let state = &mut self.workers[worker as usize];
            if state.job == job && !state.done {
                state.due = false;
                self.end_worker(worker);
            }
        }
        let workers = &self.workers;
        self.starts.retain(|(_, worker)| workers[*worker as usize].job != job);
        let jobs = self.scenario.jobs.len();
        for (number, slot) in self.slots.iter_mut().enumerate().filter(|(_, slot)| slot.post.job == job && slot.post.is_host) {
            slot.armed = u64::MAX;
            let host = slot.post.at as usize;
            self.lookup[(host * jobs + usize::from(job)) * ROLES + slot.post.role as usize] = NONE;
            self.at_host[host].retain(|other| *other != number as u32);
        }
    }
}
