//! Static trees and what is built on them: [`tree`](crate::tree), [`panama`](crate::panama), [`sharp`](crate::sharp),
//! [`switchml`](crate::switchml), [`flare`](crate::flare).

use super::{Field, Layout, Show, kind};

/// Who is suspected.
pub const SUSPECTS: &[(u64, &str)] = &[(0, "unknown"), (1, "rank"), (2, "switch")];

const CONTRIBUTION: &[u8] = &[1];
const WAITING: &[u8] = &[3];

/// Static trees.
pub const TREE: Layout = Layout {
    name: "tree",
    title: "Static tree",
    big_endian: false,
    kind: (0, 0xFF),
    kinds: &[kind(1, "contribution", 8), kind(2, "aggregate", 8), kind(3, "waiting", 12), kind(4, "rejected", 8)],
    block: Some("block"),
    fields: &[
        Field::new("attempt", 1, 1).of(CONTRIBUTION),
        Field::new("suspect_kind", 1, 1).of(WAITING).named(SUSPECTS),
        Field::new("block", 4, 4),
        Field::new("suspect", 8, 4).of(WAITING),
    ],
};

/// PANAMA.
pub const PANAMA: Layout = Layout {
    name: "panama",
    title: "PANAMA",
    fields: &[
        Field::new("attempt", 1, 1).of(CONTRIBUTION),
        Field::new("suspect_kind", 1, 1).of(WAITING).named(SUSPECTS),
        Field::new("marked_up", 2, 1).bits(1).of(&[1, 2]),
        Field::new("marked_down", 2, 1).bits(2).of(&[2]),
        Field::new("block", 4, 4),
        Field::new("suspect", 8, 4).of(WAITING),
    ],
    ..TREE
};

const ASK: &[u8] = &[5];
const QUESTIONS: &[u8] = &[5, 6, 7];

/// SHARP. Kind 8 has a header of rings behind its first byte.
pub const SHARP: Layout = Layout {
    name: "sharp",
    title: "SHARP",
    big_endian: false,
    kind: (0, 0xFF),
    kinds: &[
        kind(1, "contribution", 8),
        kind(2, "aggregate", 8),
        kind(3, "waiting", 12),
        kind(4, "rejected", 8),
        kind(5, "ask", 8),
        kind(6, "answer", 8),
        kind(7, "missing", 12),
        kind(8, "between hosts", 1),
    ],
    block: Some("block"),
    fields: &[
        Field::new("attempt", 1, 1).of(&[1, 5]),
        Field::new("suspect_kind", 1, 1).of(&[3, 7]).named(SUSPECTS),
        Field::new("refused", 2, 1).bits(1).of(&[5, 6]),
        Field::new("gives_back", 2, 1).bits(2).of(ASK),
        Field::new("block", 4, 4).of(&[1, 2, 3, 4]),
        Field::new("number", 4, 4).of(QUESTIONS),
        Field::new("suspect", 8, 4).of(&[3, 7]),
    ],
};

/// SwitchML.
pub const SWITCHML: Layout = Layout {
    name: "switchml",
    title: "SwitchML",
    big_endian: false,
    kind: (0, 0xFF),
    kinds: &[
        kind(1, "contribution", 8),
        kind(2, "result", 8),
        kind(3, "waiting", 12),
        kind(4, "rejected", 8),
        kind(5, "scaled contribution", 12),
        kind(6, "scaled result", 12),
        kind(7, "contribution with a call", 15),
        kind(8, "scaled contribution with a call", 19),
    ],
    block: None,
    fields: &[
        Field::new("attempt", 1, 1).of(&[1, 5, 7, 8]),
        Field::new("suspect_kind", 1, 1).of(WAITING).named(SUSPECTS),
        Field::new("slot", 2, 2),
        Field::new("round", 4, 4),
        Field::new("suspect", 8, 4).of(WAITING),
        Field::new("exponent", 8, 2).of(&[5, 6, 8]).shown(Show::Signed),
        Field::new("fingerprint", 8, 4).of(&[7]).shown(Show::Hex),
        Field::new("receiver", 12, 2).of(&[7]),
        Field::new("op", 14, 1).of(&[7]),
        Field::new("fingerprint", 12, 4).of(&[8]).shown(Show::Hex),
        Field::new("receiver", 16, 2).of(&[8]),
        Field::new("op", 18, 1).of(&[8]),
    ],
};

const PAIRS: &[u8] = &[1, 2, 7, 8, 9, 10];

/// Flare's sparse allreduce.
pub const FLARE: Layout = Layout {
    name: "flare",
    title: "Flare",
    big_endian: false,
    kind: (0, 0xFF),
    kinds: &[
        kind(1, "contribution", 20),
        kind(2, "aggregate", 20),
        kind(3, "waiting", 20),
        kind(4, "rejected", 20),
        kind(5, "ask", 20),
        kind(6, "wanted", 20),
        kind(7, "contribution, bitmap", 20),
        kind(8, "aggregate, bitmap", 20),
        kind(9, "contribution, run", 20),
        kind(10, "aggregate, run", 20),
    ],
    block: Some("block"),
    fields: &[
        Field::new("attempt", 1, 1).of(&[1, 5, 7, 9]),
        Field::new("suspect_kind", 1, 1).of(WAITING).named(SUSPECTS),
        Field::new("number", 2, 2).of(&[1, 2, 5, 6, 7, 8, 9, 10]),
        Field::new("block", 4, 4),
        Field::new("operation", 8, 4).shown(Show::Hex),
        Field::new("count", 12, 2).of(PAIRS),
        Field::new("packets", 14, 2).of(PAIRS),
        Field::new("making", 16, 4).of(PAIRS),
        Field::new("suspect", 12, 4).of(WAITING),
    ],
};
