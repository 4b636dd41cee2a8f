//! What a job can have in use of a switch's memory at most, for switches whose memory has an end, and for whoever wants to know beforehand
//! what a simulation takes.

use fanin_core::{NetworkMap, NodeId};

use crate::config::JobSpec;

impl<Op> JobSpec<'_, Op> {
    /// Slots that the job has in use at most at a switch where it has a node, if all its operations together have so many blocks; 0 for
    /// systems without memory at switches.
    pub fn switch_slots(&self, blocks: u64) -> u64 {
        let facts = self.system.facts();
        facts.switch_slots(self.window).min(blocks.saturating_mul(1 + u64::from(facts.begun_anew())))
    }

    /// Bytes of such a slot at this switch.
    pub fn slot_bytes(&self, map: &NetworkMap, switch: NodeId) -> u64 {
        self.system.facts().slot_bytes(&self.without_operator(), map, switch)
    }

    /// The most bytes that a block's sum takes at any switch until it leaves; `None` where switches do not tell when that is.
    pub fn sum_bytes(&self, map: &NetworkMap) -> Option<u64> {
        self.system.facts().sum_bytes(&self.without_operator(), map)
    }

    /// About how many bytes of lists all workers of an operation on so many elements keep at most, beside their windows.
    pub fn list_bytes(&self, elements: u64) -> u64 {
        self.system.facts().list_bytes(self.hosts.len() as u64, elements)
    }

    /// Whether the memory is one that all jobs of the system share.
    pub fn shares_slots(&self) -> bool {
        self.system.facts().shares_slots()
    }

    /// The parameter that says how many slots there are.
    pub fn slots_key(&self) -> &'static str {
        self.system.facts().slots_key()
    }
}
