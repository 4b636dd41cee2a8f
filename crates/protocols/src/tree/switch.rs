//! The aggregator of a tree job at one switch: [`Reduction`] with the packets of this system.

use fanin_core::{Ingress, Instant, JobId, Node, Payload, Tx};
use fanin_wire::tree::TreeHeader;

use crate::shared::state::node_state;
#[cfg(feature = "planted-bugs")]
use crate::shared::trees::Planted;
use crate::shared::trees::{Marks, Reduction, TreeFormat, TreePacket, TreeSwitchConfig};

/// Packets of this system carry no marks.
impl TreeFormat for TreeHeader {
    const MARKS: bool = false;

    #[inline]
    fn pack(packet: TreePacket) -> Self {
        match packet {
            TreePacket::Contribution { block, attempt, .. } => TreeHeader::Contribution { block, attempt },
            TreePacket::Aggregate { block, .. } => TreeHeader::Aggregate { block },
            TreePacket::Waiting { block, suspect } => TreeHeader::Waiting { block, suspect },
            TreePacket::Rejected { block } => TreeHeader::Rejected { block },
        }
    }

    #[inline]
    fn unpack(&self) -> TreePacket {
        match *self {
            TreeHeader::Contribution { block, attempt } => TreePacket::Contribution { block, attempt, marked: false },
            TreeHeader::Aggregate { block } => TreePacket::Aggregate { block, marks: Marks::default() },
            TreeHeader::Waiting { block, suspect } => TreePacket::Waiting { block, suspect },
            TreeHeader::Rejected { block } => TreePacket::Rejected { block },
        }
    }
}

/// The aggregator of one job at one switch, with its role in each of the job's trees.
pub struct TreeSwitch<P: Payload + ?Sized> {
    reduction: Reduction<P>,
}

node_state!(TreeSwitch { reduction });

impl<P: Payload + ?Sized> TreeSwitch<P> {
    /// A switch with all its memory: two slots for every block of the window.
    ///
    /// # Panics
    /// As [`Reduction::new`].
    pub fn new(config: TreeSwitchConfig<P::Op>) -> Self {
        TreeSwitch { reduction: Reduction::new(config) }
    }

    /// The job that the switch aggregates for.
    pub fn job(&self) -> JobId {
        self.reduction.job()
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.reduction.plant(bug);
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.reduction.rebase(now);
    }
}

impl<P: Payload + ?Sized> Node<P> for TreeSwitch<P> {
    type Header = TreeHeader;

    #[inline]
    fn on_packet<T: Tx<TreeHeader, P>>(&mut self, now: Instant, from: Ingress, header: &TreeHeader, payload: &P, tx: &mut T) {
        self.reduction.on_packet(now, from, header, payload, tx);
    }

    fn on_timeout<T: Tx<TreeHeader, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_tx_ready<T: Tx<TreeHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.reduction.on_tx_ready(now, tx);
    }
}
