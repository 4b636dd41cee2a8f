//! What a job's only switch holds, for a program elsewhere that goes on with the job.

use fanin_core::Payload;
pub use fanin_protocols::shared::kept::KeptSlot;

use crate::any::AnyNode;

impl<P: Payload + ?Sized> AnyNode<P> {
    /// What slots of a switch of SwitchML or of a static tree hold; `None` of other nodes, where the switch is not the job's only one, or where
    /// something waits for room on its way.
    pub fn kept(&self) -> Option<Vec<KeptSlot<'_, P::Acc>>> {
        match self {
            AnyNode::SwitchMlSwitch(switch) => Some(switch.kept()?.collect()),
            AnyNode::TreeSwitch(switch) => Some(switch.kept()?.collect()),
            _ => None,
        }
    }
}
