//! A static tree of one switch.

use std::collections::BTreeSet;

use fanin_wire::tree::TreeHeader;
use fanin_xdp::{Kernel, XdpSystem};
use proptest::prelude::*;

use crate::common::{Shape, contribution_of, ops_here};
use crate::trace::{Step, campaign, difference};

fn shape() -> impl Strategy<Value = Shape> {
    let ranks = prop_oneof![8 => 1u32..5, 1 => Just(33u32), 1 => Just(64u32)];
    let block_bytes = prop_oneof![Just(8u32), Just(64u32), Just(1_408u32)];
    let here = ops_here();
    (ranks, 1u32..6, block_bytes, prop::sample::select(here)).prop_map(|(ranks, pool, block_bytes, first)| Shape {
        system: XdpSystem::Tree,
        ranks,
        pool,
        block_bytes,
        fixed_point: false,
        first,
    })
}

/// The datagram of a step.
fn datagram(shape: &Shape, step: &Step, rounds: u32, _calls: u8) -> Vec<u8> {
    // Blocks begin near the end of the numbers, so that they wrap.
    let window = shape.pool.next_power_of_two();
    let block = (u32::MAX - 3 * window)
        .wrapping_add(rounds * window)
        .wrapping_add(u32::from(step.slot) % window)
        .wrapping_add_signed(i32::from(step.drift) * window as i32);
    let full = i64::from(shape.block_bytes) - i64::from(block % 3 == 1) * 8 + i64::from(step.more);
    let bytes = if step.empty && step.odd != 0 { 0 } else { full.max(0) as usize };
    let payload = step.elements(bytes);
    contribution_of(&TreeHeader::Contribution { block, attempt: step.attempt }.into(), &payload)
}

/// What tells a program with a mistake from the state machine.
pub fn shown_by(kernel: &Kernel) -> Option<String> {
    difference((kernel, &mut BTreeSet::new()), (400, 200, 0), shape(), datagram)
}

const EXPECTED: &[&str] = &[
    "corrupted",
    "duplicate",
    "in_progress",
    "malformed",
    "mismatch",
    "stale",
    "unproven",
    "kind 2",
    "kind 3 empty",
    "kind 4 empty",
    "up foreign",
    "up kind",
    "up too_long",
    "up stranger",
    "resumed",
    "back",
];

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn the_kernel_says_what_the_trees_state_machine_says() {
    campaign((400, 200), shape(), datagram, EXPECTED);
}

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn minutes_of_traces_of_trees() {
    campaign((10_000, 400), shape(), datagram, EXPECTED);
}
