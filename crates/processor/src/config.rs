//! What is simulated.

use thiserror::Error;

/// Ticks of a cycle: gaps between packets need not be whole cycles.
pub(crate) const TICKS: f64 = 1024.0;

/// How a block's working memory is organised, and what a handler does (slides "single buffer", "multiple buffers", "tree").
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Design {
    /// No working memory and no locks: each packet takes a core for the time of an addition. The model of scheduling alone (Flare 5).
    Fixed,
    /// One buffer and its lock a block.
    Single,
    /// So many buffers a block, each with a lock; who comes last sums them.
    Multiple(u32),
    /// A binary tree whose leaves are the children, by number: whoever completes a pair adds it up and goes on upwards. The order of
    /// additions does not depend on that of arrivals.
    Tree,
}

impl Design {
    /// The most buffers that a block of so many children can have at a time. A node of a tree that has one is the sum of two children or more.
    pub fn reserved(self, children: u32) -> u32 {
        match self {
            Design::Fixed => 0,
            Design::Single => 1,
            Design::Multiple(count) => count,
            Design::Tree => children / 2,
        }
    }
}

/// Who may process a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scheduling {
    /// A subset of cores of one cluster, by block; there, the first that is free.
    Hierarchical,
    /// The first core that is free, of all. Where it is not of the block's cluster, memory is remote.
    Plain,
}

/// Which subset (or cluster) a block belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Map {
    /// The block's number modulo theirs.
    Modulo,
    /// The same, moved by one after each round through all of them: hosts that begin apart by a multiple of their number do not meet at
    /// one of them (flare P8b).
    Skewed,
}

/// In which order a host sends its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sending {
    /// All hosts alike, from block 0 on.
    Aligned,
    /// Host i of P begins i P-ths of the way through the vector, and goes round (Flare 5, staggered sending).
    Staggered,
    /// The same inside each window, so that hosts never need more blocks at once than there are slots (flare 4.7, P8).
    StaggeredInWindow,
}

/// Gaps between a host's packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Arrivals {
    /// All alike; hosts take turns.
    Regular,
    /// Exponentially distributed.
    Exponential,
}

/// A packet processor, and what it is given.
#[derive(Clone, PartialEq, Debug)]
pub struct Config {
    /// Cores in all (K).
    pub cores: u32,
    /// Cores of a cluster, which share a memory.
    pub cluster: u32,
    /// Cores that a block may be processed by (S); divides `cluster`. Where scheduling is plain, not looked at.
    pub subset: u32,
    /// Scheduling of packets.
    pub scheduling: Scheduling,
    /// How much longer memory of another cluster takes (plain scheduling): 2 at most, the slides say.
    pub remote: f64,
    /// Which subset or cluster a block belongs to.
    pub map: Map,
    /// Children (P), one at each port.
    pub children: u32,
    /// Blocks of a vector (N_b), a packet from each child.
    pub blocks: u32,
    /// Blocks that may be under way at a time; block b waits until block `b - window` has been sent on.
    pub window: u32,
    /// Cycles from a block's end until hosts know of it.
    pub round_trip: f64,
    /// Order of blocks.
    pub sending: Sending,
    /// Gaps between packets.
    pub arrivals: Arrivals,
    /// Cycles between two packets at the switch while all hosts send (delta).
    pub interarrival: f64,
    /// Working memory.
    pub design: Design,
    /// Buffers that the memory of a cluster has room for (L1); 0: any number. A block takes all that it may need when its first packet is
    /// begun with, [`Design::reserved`] of them, so that no two blocks wait for each other; a packet whose block finds too few stays in packet
    /// memory, at its place in the queue, while its core goes on with others. Blocks get memory in the order in which they asked. The
    /// paper lets hosts have no more blocks under way than there are buffers (Flare 4.3), and does not say what happens else: blocks are
    /// dealt out to clusters, so that one may be full although all of them together are not.
    pub l1: u32,
    /// Cycles to add a packet to a buffer (A), or to copy it there.
    pub add: f64,
    /// Cycles to send a packet on.
    pub emit: f64,
    /// For all that is random.
    pub seed: u64,
}

/// What is wrong with a [`Config`].
#[derive(Clone, PartialEq, Debug, Error)]
#[error("{key} = {value}: expected {expected}")]
pub struct ConfigError {
    /// The field.
    pub key: &'static str,
    /// What was given.
    pub value: f64,
    /// What would do.
    pub expected: String,
}

impl Config {
    /// Subsets of cores that blocks are dealt out to; with plain scheduling, clusters.
    pub fn shares(&self) -> u32 {
        match self.scheduling {
            Scheduling::Hierarchical => self.cores / self.subset,
            Scheduling::Plain => self.cores / self.cluster,
        }
    }

    /// The cluster in whose memory a share's blocks have their buffers.
    pub(crate) fn cluster_of(&self, share: u32) -> u32 {
        match self.scheduling {
            Scheduling::Hierarchical => share * self.subset / self.cluster,
            Scheduling::Plain => share,
        }
    }

    /// Whether it can be simulated.
    ///
    /// # Errors
    /// [`ConfigError`] for the first field that makes no sense.
    pub fn check(&self) -> Result<(), ConfigError> {
        let refused = |key, value: f64, expected: String| Err(ConfigError { key, value, expected });
        for (key, value, most) in [
            ("cores", self.cores, 4096),
            ("cluster", self.cluster, 4096),
            ("subset", self.subset, 4096),
            ("children", self.children, 1024),
            ("blocks", self.blocks, 1_000_000),
            ("window", self.window, u32::MAX),
            ("buffers", if let Design::Multiple(buffers) = self.design { buffers } else { 1 }, 1024),
        ] {
            if value == 0 || value > most {
                return refused(key, f64::from(value), format!("a whole number from 1 to {most}"));
            }
        }
        if !self.cores.is_multiple_of(self.cluster) {
            return refused("cluster", f64::from(self.cluster), format!("a divisor of the number of cores ({})", self.cores));
        }
        if self.scheduling == Scheduling::Hierarchical && !self.cluster.is_multiple_of(self.subset) {
            return refused("subset", f64::from(self.subset), format!("a divisor of the cores of a cluster ({})", self.cluster));
        }
        let of_block = self.design.reserved(self.children);
        if self.l1 > 0 && self.l1 < of_block {
            return refused(
                "l1",
                f64::from(self.l1),
                format!("at least the {of_block} buffers that a block may need, or 0 for any number"),
            );
        }
        let packets = u64::from(self.blocks) * u64::from(self.children);
        if packets > 50_000_000 {
            return refused("blocks", f64::from(self.blocks), "at most 50 million packets in all".into());
        }
        for (key, value, least) in [
            ("interarrival", self.interarrival, 1.0 / TICKS),
            ("add", self.add, 1.0 / TICKS),
            ("emit", self.emit, 0.0),
            ("round_trip", self.round_trip, 0.0),
            ("remote", self.remote, 1.0),
        ] {
            if !(value >= least && value <= 1e6) {
                return refused(key, value, format!("a number from {least} to 1000000"));
            }
        }
        Ok(())
    }
}

/// Cycles as ticks.
pub(crate) fn ticks(cycles: f64) -> u64 {
    libm::round(cycles * TICKS) as u64
}
