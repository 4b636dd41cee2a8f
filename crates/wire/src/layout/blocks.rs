//! [`canary`](crate::canary), [`rina`](crate::rina) and [`netreduce`](crate::netreduce).

use super::trees::SUSPECTS;
use super::{Field, Layout, Show, kind};

/// Kinds whose `children` is a rank.
const BY_RANK: &[u8] = &[3, 6, 7, 8, 9, 10];

/// Canary.
pub const CANARY: Layout = Layout {
    name: "canary",
    title: "Canary",
    big_endian: false,
    kind: (18, 0x0F),
    kinds: &[
        kind(0, "reduce", 19),
        kind(1, "broadcast", 19),
        kind(2, "restore", 19),
        kind(3, "request", 19),
        kind(4, "answer", 19),
        kind(5, "failed", 19),
        kind(6, "done", 19),
        kind(7, "direct", 19),
        kind(8, "waiting", 19),
        kind(9, "aborted", 19),
        kind(10, "probe", 19),
    ],
    block: Some("block"),
    fields: &[
        Field::new("dst", 0, 4).of(&[0, 2, 5]),
        Field::new("block", 4, 4).bits(0x000F_FFFF),
        Field::new("generation", 4, 4).bits(0x00F0_0000),
        Field::new("app", 4, 4).bits(0xFF00_0000),
        Field::new("counter", 8, 2).of(&[0, 3]),
        Field::new("hosts", 10, 2).of(&[0]),
        Field::new("port", 12, 4).of(&[0]),
        Field::new("ports", 12, 4).bits(0x0000_FFFF).of(&[2]).shown(Show::Bits),
        Field::new("shard", 12, 4).bits(0xFFFF_0000).of(&[2]),
        Field::new("rank", 12, 4).of(BY_RANK),
        Field::new("switch_addr", 16, 2).of(&[0]),
        Field::new("bypass", 18, 1).bits(0x80),
        Field::new("multicast", 18, 1).bits(0x40),
    ],
};

const PIECES: &[u8] = &[1, 2, 3, 4, 5];
const NUMBERED: &[u8] = &[1, 2, 3, 4, 5];
const DIGESTS: &[u8] = &[10, 12, 13, 14];

/// Rina.
pub const RINA: Layout = Layout {
    name: "rina",
    title: "Rina",
    big_endian: false,
    kind: (0, 0xFF),
    kinds: &[
        kind(1, "task", 24),
        kind(2, "pull", 16),
        kind(3, "gradient", 18),
        kind(4, "sum", 18),
        kind(5, "result", 24),
        kind(6, "ack", 16),
        kind(7, "repair", 16),
        kind(8, "done", 8),
        kind(9, "commit", 8),
        kind(10, "ping", 8),
        kind(11, "pong", 4),
        kind(12, "exclude", 12),
        kind(13, "ready", 12),
        kind(14, "go", 12),
        kind(15, "abort", 8),
        kind(16, "unknown", 8),
    ],
    block: None,
    fields: &[
        Field::new("count", 1, 1).of(&[1]),
        Field::new("count", 1, 1).bits(0x7F).of(&[2]),
        Field::new("fresh", 1, 1).bits(0x80).of(&[2]),
        Field::new("member", 1, 1).of(&[3]),
        Field::new("marked", 1, 1).of(&[4]),
        Field::new("way", 1, 1).of(&[5]).named(&[(0, "direct"), (1, "relayed"), (2, "repair")]),
        Field::new("marked", 1, 1).bits(1).of(&[6]),
        Field::new("gather", 1, 1).bits(2).of(&[6]),
        Field::new("late", 1, 1).bits(4).of(&[6]),
        Field::new("skip", 1, 1).bits(0xF8).of(&[6]),
        Field::new("goes", 1, 1).of(&[10]),
        Field::new("holds", 1, 1).of(&[13]),
        Field::new("suspect_kind", 1, 1).of(&[15]).named(SUSPECTS),
        Field::new("epoch", 2, 2),
        Field::new("operation", 4, 2).of(&[1, 2, 3, 4, 5, 6, 7, 16]),
        Field::new("operation", 4, 4).of(&[8, 9]),
        Field::new("digest", 4, 4).of(DIGESTS).shown(Show::Hex),
        Field::new("suspect", 4, 4).of(&[15]),
        Field::new("partition", 6, 2).of(PIECES),
        Field::new("mask", 6, 6).of(&[6, 7]).shown(Show::Bits),
        Field::new("number", 8, 4).bits(0x7FFF_FFFF).of(NUMBERED),
        Field::new("asks", 8, 4).bits(0x8000_0000).of(NUMBERED),
        Field::new("rank", 8, 4).of(&[12]),
        Field::new("committed", 8, 4).of(&[13, 14]),
        Field::new("segment", 12, 4).of(PIECES),
        Field::new("next", 12, 4).of(&[6]),
        Field::new("base", 12, 4).of(&[7]),
        Field::new("members", 16, 6).of(&[1]).shown(Show::Bits),
        Field::new("next", 22, 2).of(&[1]),
        Field::new("contributors", 16, 2).of(&[3, 4]),
        Field::new("to", 16, 4).of(&[5]),
        Field::new("group", 20, 2).of(&[5]),
        Field::new("hops", 22, 2).of(&[5]),
    ],
};

/// First packets of messages: with a RETH and an INA header.
const FIRST: &[u8] = &[6, 10, 0xC2];
/// What switches say of a place in a message.
const PLACES: &[u8] = &[0xC0, 0xC1, 0xC3, 0xC5];

/// NetReduce in hops: a BTH, and what follows it. The kind is the operation code.
pub const NETREDUCE: Layout = Layout {
    name: "netreduce",
    title: "NetReduce",
    big_endian: true,
    kind: (0, 0xFF),
    kinds: &[
        kind(6, "first", 44),
        kind(7, "middle", 12),
        kind(8, "last", 12),
        kind(10, "only", 44),
        kind(17, "acknowledgement", 16),
        kind(0x81, "congestion notification", 28),
        kind(0xC0, "up", 20),
        kind(0xC1, "down", 20),
        kind(0xC2, "notice", 44),
        kind(0xC3, "waiting", 24),
        kind(0xC4, "abort", 20),
        kind(0xC5, "ask", 20),
    ],
    block: None,
    fields: &[
        Field::new("flags", 1, 1).shown(Show::Hex),
        Field::new("partition", 2, 2).shown(Show::Hex),
        Field::new("forward_congestion", 4, 1).bits(0x80),
        Field::new("backward_congestion", 4, 1).bits(0x40),
        Field::new("summed", 4, 1).bits(1),
        Field::new("queue_pair", 5, 3),
        Field::new("acknowledge", 8, 1).bits(0x80),
        Field::new("packet_number", 9, 3),
        Field::new("address", 12, 8).of(FIRST).shown(Show::Hex),
        Field::new("key", 20, 4).of(FIRST).shown(Show::Hex),
        Field::new("length", 24, 4).of(FIRST),
        Field::new("syndrome", 12, 1).of(&[17]).shown(Show::Hex),
        Field::new("message_number", 13, 3).of(&[17]),
        Field::new("tag", 28, 4).of(FIRST).shown(Show::Hex),
        Field::new("ring", 32, 2).of(FIRST),
        Field::new("rank", 34, 2).of(FIRST),
        Field::new("message", 36, 4).of(FIRST),
        Field::new("packets", 40, 2).of(FIRST),
        Field::new("summed_workers", 42, 2).of(FIRST),
        Field::new("message", 12, 4).of(PLACES),
        Field::new("offset", 16, 2).of(PLACES),
        Field::new("suspect_kind", 18, 1).of(&[0xC3]).named(SUSPECTS),
        Field::new("acknowledged", 18, 2).of(&[0xC5]),
        Field::new("suspect", 20, 4).of(&[0xC3]),
        Field::new("suspect_kind", 12, 1).of(&[0xC4]).named(SUSPECTS),
        Field::new("suspect", 16, 4).of(&[0xC4]),
    ],
};
