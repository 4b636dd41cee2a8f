//! What clusters keep buffers in (L1): blocks reserve them, and packets of those that find no room wait.

use std::collections::{BTreeMap, VecDeque};

use crate::config::Config;
use crate::cores::Packet;

/// The memory of one cluster.
#[derive(Clone, Default, Debug)]
struct Cluster {
    reserved: u32,
    /// Blocks that wait for room, the one that asked first in front.
    waiting: VecDeque<u32>,
}

/// That of all clusters.
#[derive(Debug)]
pub(crate) struct Memory {
    clusters: Vec<Cluster>,
    /// Packets that wait, by block.
    packets: BTreeMap<u32, Vec<Packet>>,
    /// Buffers of a cluster, and those that a block reserves.
    room: u32,
    of_block: u32,
    /// Packets that have waited.
    waited: u64,
}

impl Memory {
    pub fn new(config: &Config) -> Self {
        Memory {
            clusters: vec![Cluster::default(); (config.cores / config.cluster) as usize],
            packets: BTreeMap::new(),
            room: if config.l1 == 0 { u32::MAX } else { config.l1 },
            of_block: config.design.reserved(config.children),
            waited: 0,
        }
    }

    fn has_room(&self, cluster: u32) -> bool {
        self.room - self.clusters[cluster as usize].reserved >= self.of_block
    }

    /// Room for a block, unless others have asked before it.
    pub fn reserve(&mut self, cluster: u32) -> bool {
        let is_free = self.clusters[cluster as usize].waiting.is_empty() && self.has_room(cluster);
        if is_free {
            self.clusters[cluster as usize].reserved += self.of_block;
        }
        is_free
    }

    /// A packet whose block has no room waits for it.
    pub fn wait(&mut self, cluster: u32, packet: Packet) {
        self.waited += 1;
        let packets = self.packets.entry(packet.block).or_default();
        if packets.is_empty() {
            self.clusters[cluster as usize].waiting.push_back(packet.block);
        }
        packets.push(packet);
    }

    /// A block has ended: those that have room now, with what has come of them.
    pub fn release(&mut self, cluster: u32) -> Vec<(u32, Vec<Packet>)> {
        self.clusters[cluster as usize].reserved -= self.of_block;
        let mut begin = Vec::new();
        while self.has_room(cluster) {
            let Some(block) = self.clusters[cluster as usize].waiting.pop_front() else { break };
            self.clusters[cluster as usize].reserved += self.of_block;
            begin.push((block, self.packets.remove(&block).unwrap_or_default()));
        }
        begin
    }

    /// Packets that have waited for memory.
    pub fn waited(&self) -> u64 {
        self.waited
    }

    /// The most buffers that one cluster has reserved now.
    pub fn most_reserved(&self) -> u32 {
        self.clusters.iter().map(|cluster| cluster.reserved).max().unwrap_or(0)
    }
}
