//! How vectors go through switches as pairs of index and value (`flare 1`): how blocks are cut, and what switches keep their sums in.

use fanin_control::{HEADER_BYTES_MAX, PAYLOAD_STEP_BYTES, header_bytes_max};
use fanin_core::ElementOp;
use fanin_systems::{FlarePackets, FlareParameters, FlareStorage, SumOrder, System};

/// Indices are named by 16 bits within a block (`flare 2`).
const RANGE_MAX: u64 = 1 << 16;
/// Bytes of an index in a packet.
const INDEX_BYTES: u32 = 2;
/// A worker's part of a block is expected to be so many bytes, or one packet where that is more: several packets of a block, all but the last
/// of which are full, go by one system call and through the kernel as one. With one packet a block, of 1.4 kB, an allreduce took twice as long.
const BLOCK_BYTES: u32 = 12 << 10;
/// So much of the last packet is expected to stay empty, as the authors leave 16 of 164 pairs free: most blocks need no packet more.
const LEFT_FREE: f64 = 0.1;
/// The densities that are told apart end at 2^-16: blocks cannot have more indices.
const HALVINGS_MAX: u32 = 16;
/// What the switch may keep for a job's blocks, in bytes.
const SWITCH_BYTES: u64 = 64 << 20;
/// Blocks under way: at least so many that a round trip is shared, at most as many packets as queues take at once.
const WINDOWS: std::ops::RangeInclusive<u64> = 4..=128;
/// How sparse vectors go through a switch.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Plan {
    pub(crate) op: ElementOp,
    /// Blocks are cut for vectors with a share of 2^-halvings of their indices.
    halvings: u32,
    pub(crate) parameters: FlareParameters,
    pub(crate) payload_bytes: u32,
    pub(crate) window: u32,
}

/// Bytes of pairs in a packet that is no longer than those of the communicator's own job, which carry `payload_bytes` bytes of elements by
/// `system`: Flare's headers are longer, and admission refuses a wish that the shortest path does not carry.
pub(crate) fn payload_of_pairs(payload_bytes: u32, system: &System) -> u32 {
    let longer = HEADER_BYTES_MAX.saturating_sub(header_bytes_max(system, false));
    (payload_bytes.saturating_sub(longer) / PAYLOAD_STEP_BYTES * PAYLOAD_STEP_BYTES).max(PAYLOAD_STEP_BYTES)
}

impl Plan {
    /// For vectors of `size` elements of which a rank gives at most `longest`; `None` where packets have no room for a pair, or there would be
    /// more blocks than can be numbered.
    pub(crate) fn new(op: ElementOp, world: u32, payload_bytes: u32, size: u64, longest: u64) -> Option<Self> {
        let element_bytes = op.dtype.bytes() as u32;
        let capacity = payload_bytes / (INDEX_BYTES + element_bytes);
        let halvings = (size / longest.max(1)).max(1).ilog2().min(HALVINGS_MAX);
        // Packets of a block are numbered by 16 bits at the switch, which has at most one of its own for each that comes.
        let numbered = u64::from(u16::MAX) / u64::from(world) * u64::from(capacity);
        let filled = f64::from(capacity) * (f64::from((BLOCK_BYTES / payload_bytes).max(1)) - LEFT_FREE) * f64::from(1u32 << halvings);
        let range = (filled as u64).clamp(1, RANGE_MAX.min(numbered.max(1)));
        if capacity == 0 || size.div_ceil(range) > u64::from(u32::MAX) {
            return None;
        }
        let density = 1.0 / f64::from(1u32 << halvings);
        let parameters = FlareParameters {
            density,
            range: range as u32,
            // One switch, with one thread: there is no other core that could take another block meanwhile.
            staggered: false,
            storage: FlareStorage::Fitting,
            slots: table_slots(density, world, range),
            probes: true,
            ..FlareParameters::default()
        };
        let packets = FlarePackets { workers: world, window: *WINDOWS.start() as u32, payload_bytes, element_bytes };
        let block = packets.block_bytes(&parameters).ok()?;
        let window = (SWITCH_BYTES / (2 * block)).clamp(*WINDOWS.start(), *WINDOWS.end());
        Some(Plan { op, halvings, parameters, payload_bytes, window: 1 << window.ilog2() })
    }

    /// The same, by switches that add in a fixed order (`flare 4.3`), which have no tables then; `None` as in [`Plan::new`].
    pub(crate) fn in_order(self, world: u32) -> Option<Self> {
        let parameters = FlareParameters { storage: FlareStorage::Array, sum_order: SumOrder::Fixed, ..self.parameters };
        let element_bytes = self.op.dtype.bytes() as u32;
        let packets = FlarePackets { workers: world, window: *WINDOWS.start() as u32, payload_bytes: self.payload_bytes, element_bytes };
        let window = (SWITCH_BYTES / (2 * packets.block_bytes(&parameters).ok()?)).clamp(*WINDOWS.start(), *WINDOWS.end());
        Some(Plan { parameters, window: 1 << window.ilog2(), ..self })
    }

    /// What a rank receives, in bytes: at most the pairs of all ranks, and the header of a packet for every block.
    pub(crate) fn bytes(&self, size: u64, entries: u64) -> u64 {
        let pair = u64::from(INDEX_BYTES) + self.op.dtype.bytes() as u64;
        entries.min(size).saturating_mul(pair).saturating_add(self.blocks(size) * u64::from(HEADER_BYTES_MAX))
    }

    /// How many blocks a vector of `size` elements has.
    pub(super) fn blocks(&self, size: u64) -> u64 {
        size.div_ceil(u64::from(self.parameters.range))
    }

    /// Whether a job that was opened by this plan does for another one: blocks may be somewhat larger or smaller than would be best.
    pub(super) fn does_for(&self, other: &Plan) -> bool {
        let same = |plan: &Plan| (plan.op, plan.payload_bytes);
        same(self) == same(other) && self.halvings.abs_diff(other.halvings) <= 1
    }
}

/// Slots of a table that is half full with what is expected in the sum; the switch takes an array where that is smaller.
fn table_slots(density: f64, world: u32, range: u64) -> u32 {
    let expected = (1.0 - (1.0 - density).powi(world as i32)) * range as f64;
    ((2.0 * expected) as u32).clamp(64, RANGE_MAX as u32).next_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(world: u32, payload: u32, size: u64, longest: u64) -> Plan {
        Plan::new(ElementOp::F32_SUM, world, payload, size, longest).unwrap()
    }

    #[test]
    fn blocks_are_cut_by_the_density_and_switches_keep_what_fits() {
        // 240 pairs of 6 bytes in a packet, and eight packets; one element in 16 is there or more.
        let sparse = plan(4, 1_440, 1_000_000, 50_000);
        assert_eq!((sparse.halvings, sparse.parameters.range, sparse.parameters.slots), (4, 30_336, 16_384));
        let dense = plan(4, 1_440, 1_000, 900);
        assert_eq!((dense.halvings, dense.parameters.range), (0, 1_896));
        // Packets that take all of it.
        let long = plan(4, 60_000, 1_000_000, 50_000);
        assert_eq!((long.halvings, long.parameters.range), (4, 65_536));
        let emptiest = plan(4, 1_440, 1 << 40, 3);
        assert_eq!((emptiest.halvings, emptiest.parameters.range), (16, 65_536));
        for plan in [sparse, dense, emptiest, plan(1_024, 1_440, 1 << 30, 1 << 20)] {
            let packets = FlarePackets { workers: 4, window: plan.window, payload_bytes: 1_440, element_bytes: 4 };
            let bytes = 2 * u64::from(plan.window) * packets.block_bytes(&plan.parameters).unwrap();
            assert!(WINDOWS.contains(&u64::from(plan.window)) && bytes <= SWITCH_BYTES, "{plan:?}");
        }
        assert_eq!(Plan::new(ElementOp::F32_SUM, 4, 4, 1_000, 900), None, "no room for a pair");
        assert_eq!(Plan::new(ElementOp::F32_SUM, 4, 1_440, 1 << 62, 900), None, "more blocks than numbers");
    }

    #[test]
    fn packets_of_pairs_are_no_longer_than_those_of_elements() {
        let switchml = System::SwitchMl(fanin_systems::SwitchMlParameters { fixed_point: false });
        for payload in (8..4_096).step_by(8).chain([65_416]) {
            let pairs = payload_of_pairs(payload, &switchml);
            assert!(pairs > 0 && pairs.is_multiple_of(PAYLOAD_STEP_BYTES), "{payload}");
            let longest = payload + header_bytes_max(&switchml, false);
            let headers = header_bytes_max(&System::Flare(plan(4, 1_440, 1_000, 900).parameters), false);
            assert!(payload < 64 || (longest - PAYLOAD_STEP_BYTES < pairs + headers && pairs + headers <= longest), "{payload} {pairs}");
        }
    }

    #[test]
    fn a_job_goes_on_while_densities_stay_about_the_same() {
        let of = |longest| plan(4, 1_440, 1 << 20, longest);
        let opened = of(1 << 10);
        assert!(opened.does_for(&of(1 << 10)) && opened.does_for(&of(700)) && opened.does_for(&of(2_000)));
        assert!(!opened.does_for(&of(100)) && !opened.does_for(&of(10_000)));
        let other = Plan::new(ElementOp::I32_SUM, 4, 1_440, 1 << 20, 1 << 10).unwrap();
        assert!(!opened.does_for(&other));
    }

    #[test]
    fn bytes_are_those_of_pairs_and_headers() {
        let headers = 16 * u64::from(HEADER_BYTES_MAX);
        assert_eq!(plan(4, 1_440, 1_000_000, 5_000).bytes(1_000_000, 18_000), 18_000 * 6 + headers);
    }
}
