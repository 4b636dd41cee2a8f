//! What travels in static trees, whatever its format.

use fanin_core::{Suspect, Wire};

/// Congestion marks of a sum.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Marks {
    /// Some packet was marked on its way up, in whatever part of the tree.
    pub up: bool,
    /// The sum was marked on its way down to here.
    pub down: bool,
}

/// A packet of a static tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TreePacket {
    /// Upwards: a worker's contribution or a switch's partial aggregate.
    Contribution {
        /// The block's number in its job.
        block: u32,
        /// 0 for the first time, else how often it was sent before (255 for more).
        attempt: u8,
        /// A packet that is part of it was marked.
        marked: bool,
    },
    /// Downwards: the sum over all workers.
    Aggregate {
        /// The block's number in its job.
        block: u32,
        /// Its marks.
        marks: Marks,
    },
    /// The answer to a repeated contribution whose block is not complete: who is missing.
    Waiting {
        /// The block's number in its job.
        block: u32,
        /// Who has not contributed.
        suspect: Suspect,
    },
    /// Downwards: the contribution differs in length from the one that came first.
    Rejected {
        /// The block's number in its job.
        block: u32,
    },
}

/// A system's packet format for static trees.
pub trait TreeFormat: Wire {
    /// Whether packets carry congestion marks; without it the network's are not looked at.
    const MARKS: bool;

    /// The header of a packet.
    fn pack(packet: TreePacket) -> Self;

    /// The packet of a header.
    fn unpack(&self) -> TreePacket;
}
