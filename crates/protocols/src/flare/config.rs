//! What the nodes are told when they are made.

use fanin_core::{Duration, JobId, NodeId, PairCut, PairFormat, PortId, Rank};
use fanin_wire::flare::INDEX_BYTES;

use super::ordered::Ordered;
use super::storage::{Array, Storage, Table, union_density};
use crate::shared::reliability::Reliability;
use crate::shared::trees::TreeRole;

/// The most indices of a block: they are named by 16 bits.
pub const RANGE_MAX: u32 = 1 << 16;

/// The longest window, in blocks.
pub const WINDOW_MAX: u32 = 1 << 15;

/// How blocks are cut and packed; the same at all nodes of a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Blocks {
    /// Indices of a block; 1 to [`RANGE_MAX`].
    pub range: u32,
    /// Most pairs in a packet, where each has its index; at least 1.
    pub capacity: u32,
    /// Whether each packet names its indices as is shortest: sums become dense near the root (`flare 5`), where indices would be a third of the bytes.
    /// Else as pairs, as the authors have it (`flare 2`).
    pub shortest: bool,
    /// Bytes of a value.
    pub value_bytes: u32,
    /// Blocks that a worker has under way at most; rounded up to a power of two, at most [`WINDOW_MAX`].
    pub window: u32,
}

impl Blocks {
    /// How pairs lie in packets.
    pub fn format(&self) -> PairFormat {
        PairFormat { index_bytes: INDEX_BYTES, value_bytes: self.value_bytes }
    }

    /// How pairs are dealt to packets.
    pub fn cut(&self) -> PairCut {
        PairCut { format: self.format(), capacity: self.capacity, shortest: self.shortest }
    }

    /// Panics where a field is out of its range.
    pub(super) fn check(&self) {
        assert!((1..=RANGE_MAX).contains(&self.range), "a block has 1 to 65536 indices");
        assert!(self.capacity > 0 && self.capacity <= u32::from(u16::MAX), "a packet takes 1 to 65535 pairs");
        assert!(matches!(self.value_bytes, 1 | 2 | 4 | 8), "a value has 1, 2, 4 or 8 bytes");
        assert!((1..=WINDOW_MAX).contains(&self.window), "a window of 1 to 32768 blocks");
    }
}

/// What a switch keeps the sum of a block in.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum StorageKind {
    /// A value for each index (`flare 4.4`).
    Array,
    /// A hash table, which spills what finds its slot taken (`flare 4.5`).
    Table {
        /// Slots; at least 1.
        slots: u32,
        /// Whether the next slot is tried too.
        probes: bool,
    },
    /// What each child has sent, added up in the order of children (`flare 4.3`): the bits of a sum do not depend on whose packets come first.
    Ordered,
}

impl StorageKind {
    /// For the sum of `vectors` vectors of this density below a switch: a table where what is in the sum fills no more than half of it, else
    /// an array (`flare 5`, two-level approach: sums are dense near the root, and a full table spills nearly everything, P9).
    pub fn fitting(blocks: &Blocks, density: f64, vectors: u32, slots: u32, probes: bool) -> Self {
        let expected = union_density(density, vectors) * f64::from(blocks.range);
        if slots < blocks.range && expected <= f64::from(slots) / 2.0 { StorageKind::Table { slots, probes } } else { StorageKind::Array }
    }

    /// Bytes that one block of so many children takes at a switch until its sum leaves: values, indices of a table, and a packet of pairs.
    pub fn bytes(self, blocks: &Blocks, children: u32) -> u32 {
        let pair = blocks.format().pair_bytes() as u32;
        let pairs = match self {
            StorageKind::Array => return blocks.range * blocks.value_bytes + blocks.capacity * pair,
            StorageKind::Table { slots, .. } => slots.max(1),
            StorageKind::Ordered => children.saturating_mul(blocks.range),
        };
        pairs.saturating_add(blocks.capacity).saturating_mul(pair)
    }

    /// Memory for one block of so many children.
    pub(super) fn storage(self, blocks: &Blocks, children: u32) -> Storage<u64> {
        match self {
            StorageKind::Ordered => Storage::Ordered(Ordered::cut(children, blocks.range, blocks.cut())),
            StorageKind::Array => Storage::Array(Array::cut(blocks.range, blocks.cut())),
            StorageKind::Table { slots, probes } => Storage::Table(Table::cut(slots, probes, blocks.cut())),
        }
    }
}

/// What a worker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlareWorkerConfig<O> {
    /// The job.
    pub job: JobId,
    /// This worker.
    pub rank: Rank,
    /// Number of workers in the job.
    pub workers: u32,
    /// Element type and operator.
    pub op: O,
    /// How blocks are cut and packed.
    pub blocks: Blocks,
    /// Whether a worker begins a part of each window by its rank (`flare 4.7`).
    pub staggered: bool,
    /// The port that leads to the worker's leaf switch.
    pub uplink: PortId,
    /// The leaf switch: who is suspected where nothing is heard.
    pub leaf: NodeId,
    /// Loss recovery and patience.
    pub reliability: Reliability,
}

/// What a switch is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct FlareSwitchConfig<O> {
    /// The job.
    pub job: JobId,
    /// Element type and operator.
    pub op: O,
    /// How blocks are cut and packed.
    pub blocks: Blocks,
    /// What it keeps its sums in.
    pub storage: StorageKind,
    /// Its place in the tree.
    pub role: TreeRole,
    /// What it has sent to its parent is sent again at most once in this time. Somewhat less than the workers' shortest retransmission timeout.
    pub resend_gap: Duration,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn leaves_get_tables_and_roots_arrays() {
        // A block of 60,000 indices at 0.2 % has 120 pairs; with a table of 1,024, eight vectors make 950 and four 480.
        let blocks = |range| Blocks { range, capacity: 164, shortest: false, value_bytes: 4, window: 4 };
        let of = |vectors| StorageKind::fitting(&blocks(60_000), 0.002, vectors, 1_024, false);
        let table = StorageKind::Table { slots: 1_024, probes: false };
        assert_eq!((of(1), of(4), of(8)), (table, table, StorageKind::Array));
        for kind in [StorageKind::Array, table, StorageKind::Ordered] {
            assert_eq!(kind.bytes(&blocks(512), 3), kind.storage(&blocks(512), 3).bytes(4), "{kind:?}");
        }
        assert_eq!(StorageKind::fitting(&blocks(512), 0.002, 1, 1_024, false), StorageKind::Array, "a table would not be smaller");
    }
}
