//! Where nodes are, those of one job and those that several share; and what happens when a job ends.

use fanin_core::{Instant, JobId, JobNodes, Placed, SharedNode, Wire, Worker};

use super::{ROLES, Simulation, Slot, WorkerState};
use crate::lent::Post;
use crate::metrics::WorkerResult;
use crate::vectors::Simulated;

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    pub(super) fn place_job(&mut self, job: u16, nodes: JobNodes<N>) {
        let ranks = nodes.workers.len();
        for (index, placed) in nodes.workers.into_iter().chain(nodes.others).enumerate() {
            let number = self.slots.len() as u32;
            let worker = (index < ranks).then_some(self.workers.len() as u32);
            if let Some(worker) = worker {
                let rank = index as u32;
                let compute_ps = self.compute_ps(job, rank, 0);
                let schedule = &self.scenario.jobs[job as usize];
                self.starts.push((schedule.start[index].as_ps() + compute_ps, worker));
                let result = WorkerResult { host: placed.at.node.0, operations: Vec::with_capacity(schedule.elements.len()) };
                self.workers.push(WorkerState {
                    slot: number,
                    job,
                    rank,
                    next_operation: 0,
                    finished_elements: 0,
                    result,
                    done: false,
                    due: false,
                });
                self.workers_running += 1;
                self.running_in[usize::from(job)] += 1;
            }
            self.place_node(placed, worker, &[JobId(job)]);
        }
    }

    pub(super) fn place_shared(&mut self, shared: SharedNode<N>) {
        let number = self.slots.len() as u32;
        for job in &shared.jobs {
            self.shared_by[job.index()].push(number);
        }
        self.place_node(shared.placed, None, &shared.jobs);
    }

    /// Places a node of these jobs, of which there is one at least.
    fn place_node(&mut self, placed: Placed<N>, worker: Option<u32>, jobs: &[JobId]) {
        let number = self.slots.len() as u32;
        let (node_id, count) = (placed.at.node, self.scenario.jobs.len());
        let is_host = self.net.topology.map.is_host(node_id);
        for job in jobs {
            self.lookup[(node_id.index() * count + job.index()) * ROLES + placed.at.role as usize] = number;
        }
        let keeps_copy = !is_host && !self.scenario.faults.timed.is_empty();
        self.fresh.push(keeps_copy.then(|| Box::new(placed.node.clone())));
        let links = self.net.topology.links_out(node_id);
        let (first_link, ports) = (links.first().copied().unwrap_or(0), links.len() as u16);
        let job = jobs.first().map_or(0, |job| job.0);
        if is_host {
            let slots = &mut self.at_host[node_id.index()];
            if slots.iter().any(|other| self.slots[*other as usize].post.job != job) {
                self.net.share_queue(node_id.0, first_link);
            }
            slots.push(number);
        }
        let level = self.net.level_of[node_id.index()];
        let rank = worker.map_or(0, |worker| self.workers[worker as usize].rank);
        let post = Post {
            at: node_id.0,
            first_link,
            ports,
            is_host,
            level,
            role: placed.at.role,
            job,
            is_watched: false,
            worker,
            rank,
            waits_for_room: false,
        };
        self.slots.push(Slot { post, armed: u64::MAX, node: placed.node });
    }

    /// A worker has nothing more to do. When it is the last of its job, the nodes that the job shares are told.
    pub(super) fn end_worker(&mut self, worker: u32) {
        let state = &mut self.workers[worker as usize];
        state.done = true;
        let job = state.job;
        self.workers_running -= 1;
        self.net.attention = true;
        self.running_in[usize::from(job)] -= 1;
        // Whether all of the job have ended is for all parts of a network together to say.
        if self.running_in[usize::from(job)] == 0 && self.net.outbox.is_none() {
            self.tell_end(job);
        }
    }

    /// The nodes that a job shares are told that it has ended.
    pub(crate) fn tell_end(&mut self, job: u16) {
        for index in 0..self.shared_by[usize::from(job)].len() {
            let number = self.shared_by[usize::from(job)][index];
            let now = Instant::from_ps(self.net.now);
            let (node, mut tx) = self.lend(number);
            node.on_job_end(now, JobId(job), &mut tx);
        }
    }
}
