//! The working memory of a switch's cores (Flare 4.3, 5): each cluster of them has its own (L1), in which blocks have their sums. A block holds
//! memory from its first contribution until its sum leaves; contributions to blocks that find none wait, in the order in which they came.

#![allow(clippy::vec_box, reason = "tasks are boxes everywhere, which are used again")]

use std::collections::{BTreeMap, VecDeque};

use crate::tasks::Task;

/// What clusters of cores have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WorkingMemory {
    /// Cores of a cluster: a divisor of those of a switch; a divisor or a multiple of those that packets of a block go to.
    pub cores: u32,
    /// Bytes of a cluster's memory.
    pub bytes: u64,
}

/// Whether a block has memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Room {
    /// It holds some, or no switch has an end of it.
    Held,
    /// It has been given some for this packet. If the node does not take it, it has to be given back: the packet is a copy, and its sum has left.
    Given,
    /// There is none, or others have asked before.
    Full,
}

#[derive(Debug, Default)]
struct Cluster {
    bytes: u64,
    /// Blocks that wait, the first one in front.
    waiting: VecDeque<u64>,
}

/// The working memory of one switch.
#[derive(Debug, Default)]
pub(crate) struct Clusters {
    limit: u64,
    clusters: Vec<Cluster>,
    /// Bytes that a block has.
    held: BTreeMap<u64, u64>,
    /// Contributions that wait, by block.
    waiting: BTreeMap<u64, Vec<Box<Task>>>,
    waiting_bytes: u64,
    /// What a block of a job takes, from the first on: its node says so when it takes it.
    sizes: BTreeMap<u16, u64>,
    /// The most that one cluster had in use.
    pub bytes_peak: u64,
    /// Contributions that have waited.
    pub waited: u64,
}

impl Clusters {
    /// That of a switch with so many cores.
    pub fn new(memory: WorkingMemory, cores: u32) -> Self {
        let clusters = std::iter::repeat_with(Cluster::default).take((cores / memory.cores) as usize).collect();
        Clusters { limit: memory.bytes, clusters, ..Clusters::default() }
    }

    /// Whether blocks have to ask at all.
    pub fn is_finite(&self) -> bool {
        !self.clusters.is_empty()
    }

    /// Bytes for a block of a job. Before the first is known they are those of a whole cluster.
    fn wanted(&self, job: u16) -> u64 {
        self.sizes.get(&job).copied().unwrap_or(self.limit)
    }

    /// Asks for memory for a contribution's block.
    pub fn ask(&mut self, task: &Task) -> Room {
        if !self.is_finite() || self.held.contains_key(&task.block) {
            return Room::Held;
        }
        let wanted = self.wanted(task.job);
        let cluster = &mut self.clusters[task.cluster as usize];
        if !cluster.waiting.is_empty() || cluster.bytes + wanted > self.limit {
            return Room::Full;
        }
        self.give(task, wanted);
        Room::Given
    }

    fn give(&mut self, task: &Task, bytes: u64) {
        self.clusters[task.cluster as usize].bytes += bytes;
        self.held.insert(task.block, bytes);
    }

    /// A contribution whose block has no memory waits; gives it back where contributions that wait take up `room` bytes of packet memory already:
    /// the rest is for blocks that have memory, or they might never end.
    pub fn wait(&mut self, task: Box<Task>, room: u64) -> Option<Box<Task>> {
        if self.waiting_bytes + task.bytes > room {
            return Some(task);
        }
        self.waiting_bytes += task.bytes;
        self.waited += 1;
        let tasks = self.waiting.entry(task.block).or_default();
        if tasks.is_empty() {
            self.clusters[task.cluster as usize].waiting.push_back(task.block);
        }
        tasks.push(task);
        None
    }

    /// A node has taken so many bytes for a block.
    pub fn on_taken(&mut self, task: &Task, bytes: u64) {
        let Some(held) = self.held.get_mut(&task.block) else { return };
        let cluster = &mut self.clusters[task.cluster as usize];
        cluster.bytes = cluster.bytes - *held + bytes;
        *held = bytes;
        self.bytes_peak = self.bytes_peak.max(cluster.bytes);
        let size = self.sizes.entry(task.job).or_default();
        *size = (*size).max(bytes);
    }

    /// A block's memory is free, if it had any.
    pub fn free(&mut self, task: &Task) {
        if let Some(bytes) = self.held.remove(&task.block) {
            self.clusters[task.cluster as usize].bytes -= bytes;
        }
    }

    /// The next block of a cluster that waited and has memory now: what has come for it, in the order in which it came.
    pub fn next(&mut self, cluster: u32) -> Option<Vec<Box<Task>>> {
        let block = *self.clusters.get(cluster as usize)?.waiting.front()?;
        let first = self.waiting.get(&block)?.first()?;
        let wanted = self.wanted(first.job);
        if self.clusters[cluster as usize].bytes + wanted > self.limit {
            return None;
        }
        self.clusters[cluster as usize].waiting.pop_front();
        let mut tasks = self.waiting.remove(&block)?;
        // They may all be copies of what has left meanwhile.
        tasks[0].is_given = true;
        self.waiting_bytes -= tasks.iter().map(|task| task.bytes).sum::<u64>();
        self.give(&tasks[0], wanted);
        Some(tasks)
    }
}
