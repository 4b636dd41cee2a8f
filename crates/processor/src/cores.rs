//! Which core gets which packet (Flare 5): packets wait in one queue before each subset of cores, first come, first served. With plain
//! scheduling all cores are one subset.

use std::collections::VecDeque;

use crate::config::{Config, Map, Scheduling};

/// A packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packet {
    pub block: u32,
    pub child: u32,
}

/// Cores that share a queue.
#[derive(Debug, Default)]
struct Subset {
    waiting: VecDeque<Packet>,
    /// The free ones; which of them is next does not matter, as they are alike.
    free: Vec<u32>,
    longest: usize,
}

/// All cores.
#[derive(Debug)]
pub(crate) struct Cores {
    subsets: Vec<Subset>,
    /// Cores of a subset.
    size: u32,
    cluster: u32,
    scheduling: Scheduling,
    map: Map,
    /// Subsets, or clusters where scheduling is plain, that blocks are dealt out to.
    shares: u32,
}

impl Cores {
    pub fn new(config: &Config) -> Self {
        let size = match config.scheduling {
            Scheduling::Hierarchical => config.subset,
            Scheduling::Plain => config.cores,
        };
        let subset = |number: u32| Subset { free: (number * size..(number + 1) * size).rev().collect(), ..Subset::default() };
        Cores {
            subsets: (0..config.cores / size).map(subset).collect(),
            size,
            cluster: config.cluster,
            scheduling: config.scheduling,
            map: config.map,
            shares: config.shares(),
        }
    }

    pub fn share(&self, block: u32) -> u32 {
        match self.map {
            Map::Modulo => block % self.shares,
            Map::Skewed => (block + block / self.shares) % self.shares,
        }
    }

    /// Whether the block's memory is in another cluster than the core.
    pub fn is_remote(&self, core: u32, block: u32) -> bool {
        self.scheduling == Scheduling::Plain && core / self.cluster != self.share(block)
    }

    /// A packet has come: the core that begins with it at once, or `None`: it waits.
    pub fn give(&mut self, packet: Packet) -> Option<u32> {
        let number = if self.subsets.len() == 1 { 0 } else { self.share(packet.block) };
        let subset = &mut self.subsets[number as usize];
        let core = subset.free.pop();
        if core.is_none() {
            subset.waiting.push_back(packet);
            subset.longest = subset.longest.max(subset.waiting.len());
        }
        core
    }

    /// A core has ended with its packet: the next one, or `None`: it is free.
    pub fn next(&mut self, core: u32) -> Option<Packet> {
        let subset = &mut self.subsets[(core / self.size) as usize];
        let next = subset.waiting.pop_front();
        if next.is_none() {
            subset.free.push(core);
        }
        next
    }

    /// Packets that have waited for memory, oldest first, are before all that have come since: the cores that begin at once with some of them.
    pub fn give_back(&mut self, packets: impl DoubleEndedIterator<Item = Packet>) -> Vec<(u32, Packet)> {
        let mut begun = Vec::new();
        let mut numbers = Vec::new();
        for packet in packets.rev() {
            let number = if self.subsets.len() == 1 { 0 } else { self.share(packet.block) } as usize;
            self.subsets[number].waiting.push_front(packet);
            numbers.push(number);
        }
        for number in numbers {
            let subset = &mut self.subsets[number];
            subset.longest = subset.longest.max(subset.waiting.len());
            if let Some(core) = subset.free.pop_if(|_| !subset.waiting.is_empty()) {
                begun.extend(subset.waiting.pop_front().map(|packet| (core, packet)));
            }
        }
        begun
    }

    /// The most packets that waited before a subset at once, for each of its cores (Q).
    pub fn longest_queue(&self) -> f64 {
        let longest = self.subsets.iter().map(|subset| subset.longest).max().unwrap_or(0);
        longest as f64 / f64::from(self.size)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_skewed_map_deals_out_as_evenly_and_does_not_repeat() {
        let cores = |map| Cores { subsets: Vec::new(), size: 1, cluster: 1, scheduling: Scheduling::Hierarchical, map, shares: 4 };
        let shares = |map| (0..16).map(|block| cores(map).share(block)).collect::<Vec<_>>();
        assert_eq!(shares(Map::Modulo), [0, 1, 2, 3].repeat(4));
        assert_eq!(shares(Map::Skewed), [0, 1, 2, 3, 1, 2, 3, 0, 2, 3, 0, 1, 3, 0, 1, 2]);
    }
}
