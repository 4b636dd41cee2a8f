//! Where fields are in the headers of all systems.

use fanin_core::Wire;
use fanin_wire::layout::{Layout, blocks, hop, hosts, trees};

use crate::any::{
    A2TP, ATP, AnyHeader, BACKGROUND, CANARY, DOUBLING, EXCHANGE, FLARE, MACHINES, NETREDUCE, PANAMA, PS, RINA, RING, SHARP, SWITCHML, TREE,
};

/// Packets as hop headers tell them apart: the number, the system's name in plans, and where fields are in its headers.
pub const LAYOUTS: &[(u8, &str, &Layout)] = &[
    (BACKGROUND, "link", &hop::LINK),
    (TREE, "tree", &trees::TREE),
    (RING, "ring", &hosts::RING),
    (CANARY, "canary", &blocks::CANARY),
    (SWITCHML, "switchml", &trees::SWITCHML),
    (ATP, "atp", &hosts::ATP),
    (A2TP, "a2tp", &hosts::ATP),
    (PANAMA, "panama", &trees::PANAMA),
    (SHARP, "sharp", &trees::SHARP),
    (NETREDUCE, "netreduce", &blocks::NETREDUCE),
    (MACHINES, "machines", &blocks::NETREDUCE),
    (RINA, "rina", &blocks::RINA),
    (PS, "ps", &hosts::PS),
    (FLARE, "flare", &trees::FLARE),
    (DOUBLING, "doubling", &hosts::DOUBLING),
    (EXCHANGE, "exchange", &hosts::EXCHANGE),
];

/// The block that a header is about, of systems whose packets say that.
pub fn block_of(header: &AnyHeader) -> Option<u64> {
    let mut bytes = [0; 1 + AnyHeader::MAX_LEN];
    let length = header.emit(&mut bytes);
    layout_of(bytes[0])?.block_of(&bytes[1..length])
}

/// The layout of a system's headers, by its number.
pub fn layout_of(system: u8) -> Option<&'static Layout> {
    LAYOUTS.iter().find(|(number, ..)| *number == system).map(|(.., layout)| *layout)
}
