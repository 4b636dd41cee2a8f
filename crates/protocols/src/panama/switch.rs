//! The aggregator of a PANAMA job at one switch: [`Reduction`] with packets that carry marks.

use fanin_core::{Ingress, Instant, JobId, Node, Payload, Tx};
use fanin_wire::panama::PanamaHeader;

use crate::shared::state::node_state;
#[cfg(feature = "planted-bugs")]
use crate::shared::trees::Planted;
use crate::shared::trees::{Marks, Reduction, TreeFormat, TreePacket, TreeSwitchConfig};

impl TreeFormat for PanamaHeader {
    const MARKS: bool = true;

    #[inline]
    fn pack(packet: TreePacket) -> Self {
        match packet {
            TreePacket::Contribution { block, attempt, marked } => PanamaHeader::Contribution { block, attempt, marked_up: marked },
            TreePacket::Aggregate { block, marks: Marks { up, down } } => {
                PanamaHeader::Aggregate { block, marked_up: up, marked_down: down }
            }
            TreePacket::Waiting { block, suspect } => PanamaHeader::Waiting { block, suspect },
            TreePacket::Rejected { block } => PanamaHeader::Rejected { block },
        }
    }

    #[inline]
    fn unpack(&self) -> TreePacket {
        match *self {
            PanamaHeader::Contribution { block, attempt, marked_up } => TreePacket::Contribution { block, attempt, marked: marked_up },
            PanamaHeader::Aggregate { block, marked_up, marked_down } => {
                TreePacket::Aggregate { block, marks: Marks { up: marked_up, down: marked_down } }
            }
            PanamaHeader::Waiting { block, suspect } => TreePacket::Waiting { block, suspect },
            PanamaHeader::Rejected { block } => TreePacket::Rejected { block },
        }
    }
}

/// The aggregator of one job at one switch, with its role in each of the job's trees.
pub struct PanamaSwitch<P: Payload + ?Sized> {
    reduction: Reduction<P>,
}

node_state!(PanamaSwitch { reduction });

impl<P: Payload + ?Sized> PanamaSwitch<P> {
    /// A switch with all its memory: two slots for every block of the window.
    ///
    /// # Panics
    /// As [`Reduction::new`].
    pub fn new(config: TreeSwitchConfig<P::Op>) -> Self {
        PanamaSwitch { reduction: Reduction::new(config) }
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

impl<P: Payload + ?Sized> Node<P> for PanamaSwitch<P> {
    type Header = PanamaHeader;

    #[inline]
    fn on_packet<T: Tx<PanamaHeader, P>>(&mut self, now: Instant, from: Ingress, header: &PanamaHeader, payload: &P, tx: &mut T) {
        self.reduction.on_packet(now, from, header, payload, tx);
    }

    fn on_timeout<T: Tx<PanamaHeader, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_tx_ready<T: Tx<PanamaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.reduction.on_tx_ready(now, tx);
    }
}
