//! What a job can have in use of a switch's memory at most, for switches whose memory has an end, and for whoever wants to know beforehand
//! what a simulation takes.

use fanin_core::{NetworkMap, NodeId};

use crate::config::{AlgorithmRule, JobSpec, SharpMode, SumOrder, System};
use crate::flare::FlarePackets;
use crate::layout::leaf_of;

/// Slots of a window: two of each number, which are counted by powers of two.
fn two_windows(window: u32) -> u64 {
    2 * u64::from(window).next_power_of_two()
}

impl<Op> JobSpec<'_, Op> {
    /// Slots that the job has in use at most at a switch where it has a node, if all its operations together have so many blocks; 0 for
    /// systems without memory at switches.
    pub fn switch_slots(&self, blocks: u64) -> u64 {
        // A block that is begun anew may have a place beside its old one.
        let blocks = match self.system {
            System::Canary(parameters) => blocks.saturating_mul(1 + u64::from(parameters.generations)),
            _ => blocks,
        };
        let slots = match self.system {
            System::Ring { .. } | System::Ps(_) | System::Doubling(_) | System::Exchange => 0,
            System::Machines(parameters) if parameters.algorithm != AlgorithmRule::ParallelNetReduce => 0,
            System::Sharp(parameters) if parameters.mode == SharpMode::LowLatency => two_windows(parameters.quota),
            System::Canary(parameters) => u64::from(parameters.descriptors),
            System::Atp(parameters) => u64::from(parameters.aggregators),
            System::A2tp(parameters) => u64::from(parameters.aggregators),
            _ => two_windows(self.window),
        };
        slots.min(blocks)
    }

    /// Bytes of such a slot at this switch.
    pub fn slot_bytes(&self, map: &NetworkMap, switch: NodeId) -> u64 {
        let payload = u64::from(self.payload_bytes);
        match self.system {
            // What each child has sent is kept by itself.
            System::NetReduce(_) => payload.saturating_mul(map.neighbours(switch).len() as u64),
            // The same for each of a machine's rings.
            System::Machines(_) => {
                let rings = self.rings(map);
                payload.saturating_mul(map.neighbours(switch).len() as u64).saturating_mul(rings)
            }
            System::Flare(parameters) => {
                let packets = FlarePackets {
                    workers: self.hosts.len() as u32,
                    window: self.window,
                    payload_bytes: self.payload_bytes,
                    element_bytes: self.element_bytes,
                };
                packets.block_bytes(&parameters).unwrap_or(payload)
            }
            // What waits for its neighbour.
            System::Tree { sum_order: SumOrder::Fixed, .. } => payload.saturating_mul(1 + map.neighbours(switch).len().div_ceil(2) as u64),
            _ => payload,
        }
    }

    /// Whether the memory is one that all jobs of the system share.
    pub fn shares_slots(&self) -> bool {
        match self.system {
            System::Atp(_) | System::A2tp(_) => true,
            System::Canary(parameters) => parameters.shared,
            _ => false,
        }
    }

    /// The parameter that says how many slots there are.
    pub fn slots_key(&self) -> &'static str {
        match self.system {
            System::Atp(_) | System::A2tp(_) => "aggregators",
            System::Canary(_) => "descriptors",
            System::Sharp(parameters) if parameters.mode == SharpMode::LowLatency => "quota",
            _ => "window",
        }
    }

    /// Workers of the machine that has most of them.
    fn rings(&self, map: &NetworkMap) -> u64 {
        let mut leaves: Vec<NodeId> = self.hosts.iter().filter_map(|host| leaf_of(map, *host).ok()).map(|leaf| leaf.node).collect();
        leaves.sort_unstable();
        leaves.chunk_by(|a, b| a == b).map(<[NodeId]>::len).max().unwrap_or(1) as u64
    }
}
