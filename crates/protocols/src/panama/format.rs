//! What static trees say in the packets of this system.

use fanin_wire::panama::PanamaHeader;

use crate::shared::trees::{Marks, TreeFormat, TreePacket};

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
