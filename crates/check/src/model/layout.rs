//! The network, its jobs and where their nodes live: what stays the same in all states.

use std::collections::BTreeMap;

use fanin_core::map::Neighbour;
use fanin_core::payload::{CensusPairs, Density};
use fanin_core::{Address, CollectiveKind, Instant, JobId, JobNodes, NetworkMap, NodeId, OpError, Piece, PortId, Rank, SharedNode};
use fanin_systems::{AnyNode, JobSpec};

use super::payload::{Contents, Vectors};

/// A job in the network.
pub(super) struct Job<Op> {
    pub(super) system: &'static str,
    pub(super) vectors: Vectors<Op>,
    /// `None`: its vectors are dense.
    pub(super) density: Option<Density>,
    /// Of each of its operations.
    pub(super) elements: Vec<u64>,
    /// The same; allreduces where nothing is said.
    kinds: Vec<CollectiveKind>,
    /// Its workers are the nodes from this one on.
    first: usize,
    workers: usize,
}

/// Where a node lives, and whose it is.
struct Home {
    at: Address,
    /// `None`: several jobs share it.
    job: Option<usize>,
}

/// What stays the same in all states. Nodes are the workers of all jobs, by job and rank, then the others.
pub struct Layout<P: Contents + ?Sized> {
    pub(super) map: NetworkMap,
    pub(super) jobs: Vec<Job<P::Op>>,
    homes: Vec<Home>,
    /// By job and address.
    index_of: BTreeMap<(usize, Address), usize>,
    /// What all clocks show where they go alike; otherwise each node has its own, which shows 0 whenever it is looked at.
    pub(super) clock: Option<Instant>,
}

/// A job's nodes, and what its workers do.
pub struct Placing<'a, P: Contents + ?Sized> {
    pub spec: &'a JobSpec<'a, P::Op>,
    pub nodes: JobNodes<AnyNode<P>>,
    pub elements: &'a [u64],
}

impl<P: Contents + ?Sized> Layout<P> {
    /// The layout, and the nodes in its order.
    pub(super) fn new(map: NetworkMap, jobs: Vec<Placing<'_, P>>, shared: Vec<SharedNode<AnyNode<P>>>) -> (Self, Vec<AnyNode<P>>) {
        let mut layout = Layout { map, jobs: Vec::new(), homes: Vec::new(), index_of: BTreeMap::new(), clock: None };
        let (mut nodes, mut others) = (Vec::new(), Vec::new());
        for (number, job) in jobs.into_iter().enumerate() {
            layout.jobs.push(Job {
                system: job.spec.system.name(),
                vectors: Vectors { job: job.spec.id, op: job.spec.op.clone(), element_bytes: job.spec.element_bytes },
                density: None,
                elements: job.elements.to_vec(),
                kinds: Vec::new(),
                first: nodes.len(),
                workers: job.nodes.workers.len(),
            });
            for placed in job.nodes.workers {
                layout.place(placed.at, Some(number), &[number]);
                nodes.push(placed.node);
            }
            others.extend(job.nodes.others.into_iter().map(|placed| (placed, number)));
        }
        for (placed, number) in others {
            layout.place(placed.at, Some(number), &[number]);
            nodes.push(placed.node);
        }
        for node in shared {
            let sharers: Vec<usize> = (0..layout.jobs.len()).filter(|job| node.jobs.contains(&layout.id(*job))).collect();
            layout.place(node.placed.at, None, &sharers);
            nodes.push(node.placed.node);
        }
        (layout, nodes)
    }

    fn place(&mut self, at: Address, job: Option<usize>, reached_by: &[usize]) {
        self.index_of.extend(reached_by.iter().map(|job| ((*job, at), self.homes.len())));
        self.homes.push(Home { at, job });
    }

    pub(super) fn jobs(&self) -> usize {
        self.jobs.len()
    }

    pub(super) fn id(&self, job: usize) -> JobId {
        self.jobs[job].vectors.job
    }

    pub(super) fn workers(&self) -> usize {
        self.jobs.iter().map(|job| job.workers).sum()
    }

    pub(super) fn workers_of(&self, job: usize) -> std::ops::Range<usize> {
        let job = &self.jobs[job];
        job.first..job.first + job.workers
    }

    pub(super) fn rank_of(&self, worker: usize) -> Rank {
        Rank(self.job_of(worker).map_or(0, |job| worker - self.jobs[job].first) as u32)
    }

    pub(super) fn address_of(&self, node: usize) -> Address {
        self.homes[node].at
    }

    pub(super) fn now(&self) -> Instant {
        self.clock.unwrap_or(Instant::ZERO)
    }

    pub(super) fn operations(&self, job: usize) -> usize {
        self.jobs[job].elements.len()
    }

    /// The job that a node is of; `None` where several share it.
    pub(super) fn job_of(&self, node: usize) -> Option<usize> {
        self.homes[node].job
    }

    /// The job's vectors have pairs at some indices only.
    pub(super) fn make_sparse(&mut self, job: usize, density: Density) {
        self.jobs[job].density = Some(density);
    }

    /// The job's operations are of these kinds.
    pub(super) fn set_kinds(&mut self, job: usize, kinds: Vec<CollectiveKind>) {
        self.jobs[job].kinds = kinds;
    }

    pub(super) fn kind(&self, job: usize, operation: usize) -> CollectiveKind {
        self.jobs[job].kinds.get(operation).copied().unwrap_or_default()
    }

    /// Length of a share of an operation's vector.
    pub(super) fn share_elements(&self, job: usize, operation: usize) -> u64 {
        let Job { elements, workers, .. } = &self.jobs[job];
        elements[operation] / u64::from(self.kind(job, operation).shares(*workers as u32))
    }

    /// How many elements an operation gives to a rank.
    pub(super) fn received(&self, job: usize, operation: usize, rank: Rank) -> u64 {
        let kind = self.kind(job, operation);
        let shares = (0..kind.shares(self.jobs[job].workers as u32)).filter(|share| kind.receives(rank, *share));
        shares.count() as u64 * self.share_elements(job, operation)
    }

    /// The share that a piece lies in, with the operation's kind; `None` where it lies in two.
    pub(super) fn share_of(&self, job: usize, piece: Piece) -> Option<(CollectiveKind, u32)> {
        let (operation, length) = (piece.operation.index(), self.share_elements(job, piece.operation.index()).max(1));
        let share = piece.start / length;
        (piece.end().saturating_sub(1) / length == share).then_some((self.kind(job, operation), share as u32))
    }

    /// What all elements of a piece are worked on by, where vectors are dense.
    pub(super) fn dense(&self, job: usize) -> Result<&Vectors<P::Op>, OpError> {
        let job = &self.jobs[job];
        if job.density.is_none() { Ok(&job.vectors) } else { Err(OpError::NoVector) }
    }

    /// The pairs of a job whose vectors are sparse.
    pub(super) fn sparse(&self, job: usize) -> Result<CensusPairs, OpError> {
        let Job { vectors, density, .. } = &self.jobs[job];
        match (P::element_op(&vectors.op), *density) {
            (Some(op), Some(density)) => Ok(CensusPairs { job: vectors.job, op, density }),
            _ => Err(OpError::NoVector),
        }
    }

    /// The job's ranks but for some.
    pub(super) fn ranks(&self, job: usize, without: &[usize]) -> impl Iterator<Item = Rank> {
        (0..self.jobs[job].workers).filter(|rank| !without.contains(rank)).map(|rank| Rank(rank as u32))
    }

    /// Where a packet arrives that is sent to a neighbour.
    pub(super) fn way_by(&self, job: usize, next: &Neighbour) -> Option<(usize, PortId)> {
        self.node_at(job, next.node).map(|to| (to, next.their_port))
    }

    pub(super) fn node_by(&self, job: usize, at: Address) -> Option<usize> {
        self.index_of.get(&(job, at)).copied()
    }

    /// All neighbours that are nearer to the destination; where the job has no node, those behind it.
    pub(super) fn next_hops(&self, job: usize, here: NodeId, to: Address) -> Vec<(usize, PortId)> {
        if here == to.node {
            return self.node_by(job, to).map(|to| (to, PortId(0))).into_iter().collect();
        }
        let distances = self.map.distances(to.node);
        let is_nearer = |next: &&Neighbour| distances[next.node.index()] < distances[here.index()];
        let ways = |next: &Neighbour| -> Vec<(usize, PortId)> {
            match self.way_by(job, next) {
                _ if next.node == to.node => self.node_by(job, to).map(|to| (to, next.their_port)).into_iter().collect(),
                Some(way) => vec![way],
                None => self.next_hops(job, next.node, to),
            }
        };
        let mut ways: Vec<_> = self.map.neighbours(here).iter().filter(is_nearer).flat_map(ways).collect();
        ways.dedup();
        ways
    }

    pub(super) fn node_at(&self, job: usize, node: NodeId) -> Option<usize> {
        self.node_by(job, if self.map.is_host(node) { Address::worker(node) } else { Address::switch(node) })
    }
}
