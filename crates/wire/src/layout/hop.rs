//! The hop header ([`hop`](crate::hop)) and packets of links ([`link`](crate::link)).

use super::{Field, Layout, Show, kind};

/// Roles of nodes, by their numbers.
const ROLES: &[(u64, &str)] = &[(0, "worker"), (1, "switch"), (2, "leader"), (3, "server"), (4, "agent")];

/// The hop header. It has no kinds: the last three fields are not there where `neighbour` is set.
pub const HOP: Layout = Layout {
    name: "hop",
    title: "Fanin hop",
    big_endian: false,
    kind: (0, 0xF0),
    kinds: &[kind(0xF, "hop", 20)],
    block: None,
    fields: &[
        Field::new("version", 0, 1).bits(0x0F),
        Field::new("system", 1, 1),
        Field::new("by_aggregators", 2, 1).bits(1),
        Field::new("ecn", 2, 1).bits(2),
        Field::new("neighbour", 2, 1).bits(4),
        Field::new("background", 2, 1).bits(8),
        Field::new("source_role", 3, 1).bits(0x0F).named(ROLES),
        Field::new("destination_role", 3, 1).bits(0xF0).named(ROLES),
        Field::new("job", 4, 2),
        Field::new("payload_bytes", 6, 2),
        Field::new("epoch", 8, 4).shown(Show::Hex),
        Field::new("sequence", 12, 4),
        Field::new("check", 16, 4).shown(Show::Hex),
    ],
};

/// What follows in hop headers of packets that are not for the neighbour.
pub const WAY: &[Field] = &[Field::new("source", 20, 4), Field::new("destination", 24, 4), Field::new("flow", 28, 4).shown(Show::Hex)];

const HELLO: &[u8] = &[1];

/// Packets of links: system 0.
pub const LINK: Layout = Layout {
    name: "link",
    title: "Link",
    big_endian: false,
    kind: (0, 0xFF),
    kinds: &[kind(1, "hello", 16), kind(2, "background", 8)],
    block: None,
    fields: &[
        Field::new("has_hears", 1, 1).bits(1).of(HELLO),
        Field::new("has_told", 1, 1).bits(2).of(HELLO),
        Field::new("port", 2, 2).of(HELLO),
        Field::new("fabric", 4, 4).of(HELLO).shown(Show::Hex),
        Field::new("hears", 8, 4).of(HELLO).shown(Show::Hex),
        Field::new("told", 12, 4).of(HELLO).shown(Show::Hex),
    ],
};
