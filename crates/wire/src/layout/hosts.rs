//! What hosts do among themselves or with servers: [`ring`](crate::ring), [`doubling`](crate::doubling), [`exchange`](crate::exchange), [`ps`](crate::ps),
//! [`atp`](crate::atp).

use super::trees::SUSPECTS;
use super::{Field, Layout, Show, kind};

const DATA: &[u8] = &[1, 2];
const STEPS: &[u8] = &[7, 8];

/// Ring allreduce.
pub const RING: Layout = Layout {
    name: "ring",
    title: "Ring",
    big_endian: false,
    kind: (0, 0xFF),
    kinds: &[
        kind(1, "scatter", 12),
        kind(2, "gather", 12),
        kind(3, "ack", 12),
        kind(4, "ready", 4),
        kind(5, "probe", 4),
        kind(6, "alive", 4),
        kind(7, "step done", 12),
        kind(8, "go", 8),
        kind(9, "abort", 8),
    ],
    block: None,
    fields: &[
        Field::new("segment", 1, 3).of(DATA),
        Field::new("operation", 4, 2).of(DATA),
        Field::new("step", 6, 2).of(DATA),
        Field::new("sequence", 8, 4).of(DATA),
        Field::new("mask", 2, 6).of(&[3]).shown(Show::Bits),
        Field::new("next", 8, 4).of(&[3]),
        Field::new("suspect_kind", 1, 1).of(&[9]).named(SUSPECTS),
        Field::new("operation", 2, 2).of(&[4, 5, 6, 7, 8, 9]),
        Field::new("step", 4, 2).of(STEPS),
        Field::new("rank", 8, 4).of(&[7]),
        Field::new("suspect", 4, 4).of(&[9]),
    ],
};

const LISTS: &[u8] = &[1, 2];

/// Recursive doubling.
pub const DOUBLING: Layout = Layout {
    name: "doubling",
    title: "Recursive doubling",
    big_endian: false,
    kind: (0, 0xFF),
    kinds: &[
        kind(1, "pairs", 16),
        kind(2, "last pairs", 16),
        kind(3, "acknowledgement", 16),
        kind(4, "probe", 16),
        kind(5, "waiting", 20),
        kind(6, "abort", 16),
    ],
    block: None,
    fields: &[
        Field::new("step", 1, 1),
        Field::new("count", 2, 2).of(LISTS),
        Field::new("suspect_kind", 2, 1).of(&[6]).named(SUSPECTS),
        Field::new("cause", 3, 1).of(&[6]).named(&[(0, "somebody is missing"), (1, "workers disagree")]),
        Field::new("operation", 4, 4),
        Field::new("digest", 8, 4).shown(Show::Hex),
        Field::new("number", 12, 4).of(&[1, 2, 3]),
        Field::new("suspect", 12, 4).of(&[5, 6]),
        Field::new("idle", 16, 4).of(&[5]),
    ],
};

const MESSAGES: &[u8] = &[1, 2];

/// Messages between hosts.
pub const EXCHANGE: Layout = Layout {
    name: "exchange",
    title: "Messages between hosts",
    big_endian: false,
    kind: (0, 0xFF),
    kinds: &[
        kind(1, "partial", 16),
        kind(2, "copy", 16),
        kind(3, "ack", 16),
        kind(4, "done", 8),
        kind(5, "ready", 8),
        kind(6, "probe", 8),
        kind(7, "alive", 8),
        kind(8, "abort", 12),
    ],
    block: None,
    fields: &[
        Field::new("begun", 1, 1).of(&[7]),
        Field::new("suspect_kind", 1, 1).of(&[8]).named(SUSPECTS),
        Field::new("operation", 2, 2),
        Field::new("sender", 4, 2),
        Field::new("message", 6, 2).of(MESSAGES),
        Field::new("packet", 8, 4).of(MESSAGES),
        Field::new("sequence", 12, 4).of(MESSAGES),
        Field::new("mask", 6, 6).of(&[3]).shown(Show::Bits),
        Field::new("next", 12, 4).of(&[3]),
        Field::new("suspect", 8, 4).of(&[8]),
    ],
};

/// Parameter servers.
pub const PS: Layout = Layout {
    name: "ps",
    title: "Parameter server",
    big_endian: false,
    kind: (0, 0xFF),
    kinds: &[kind(1, "push", 16), kind(2, "sum", 16), kind(3, "waiting", 16), kind(4, "rejected", 16)],
    block: Some("seq"),
    fields: &[
        Field::new("attempt", 1, 1).of(&[1]),
        Field::new("marked", 1, 1).of(&[2]),
        Field::new("server", 1, 1).of(&[3]),
        Field::new("shard", 2, 2),
        Field::new("seq", 4, 4),
        Field::new("operation", 8, 4).shown(Show::Hex),
        Field::new("rank", 12, 2).of(&[1, 3]),
    ],
};

const GRADIENT: &[u8] = &[1];
const ACK: &[u8] = &[2];
const FRAGMENTS: &[u8] = &[1, 2];

/// ATP and A2TP.
pub const ATP: Layout = Layout {
    name: "atp",
    title: "ATP",
    big_endian: false,
    kind: (0, 0xFF),
    kinds: &[
        kind(1, "gradient", 28),
        kind(2, "acknowledgement", 28),
        kind(3, "flush", 16),
        kind(4, "waiting", 16),
        kind(5, "rejected", 16),
    ],
    block: Some("seq"),
    fields: &[
        Field::new("direct", 1, 1).bits(1).of(GRADIENT),
        Field::new("resend", 1, 1).bits(2).of(GRADIENT),
        Field::new("collided", 1, 1).bits(4).of(FRAGMENTS),
        Field::new("col", 1, 1).bits(8).of(FRAGMENTS),
        Field::new("ecn", 1, 1).bits(16).of(FRAGMENTS),
        Field::new("float", 1, 1).bits(32).of(FRAGMENTS),
        Field::new("index", 2, 2).of(&[1, 2, 3]),
        Field::new("version", 4, 1).of(&[1, 2, 3]),
        Field::new("attempt", 5, 1).of(GRADIENT),
        Field::new("next_version", 5, 1).of(ACK),
        Field::new("rank", 5, 1).of(&[4]),
        Field::new("fan_in0", 6, 1).of(GRADIENT),
        Field::new("to", 6, 1).of(ACK).named(&[(255, "all")]),
        Field::new("fan_in1", 7, 1).of(GRADIENT),
        Field::new("tensor", 8, 4),
        Field::new("seq", 12, 4),
        Field::new("bitmap", 16, 8).of(GRADIENT).shown(Show::Bits),
        Field::new("ahead", 16, 2).of(ACK),
        Field::new("length", 18, 2).of(ACK),
        Field::new("aggregated", 20, 2).of(ACK),
        Field::new("waited", 24, 3).of(FRAGMENTS),
    ],
};
