//! SwitchML.

use std::collections::BTreeSet;

use fanin_core::{DType, ElementOp, Operator};
use fanin_wire::switchml::{CallLabel, SlotUse};
use fanin_xdp::layout::{OP_FIXED_POINT, OP_IS, OP_REDUCES};
use fanin_xdp::{Kernel, XdpSystem};
use proptest::prelude::*;

use crate::common::{LOOPBACK, Shape, contribution, frame, ops_here};
use crate::trace::{Step, campaign, difference};

fn shape() -> impl Strategy<Value = Shape> {
    let ranks = prop_oneof![8 => 1u32..5, 1 => Just(33u32), 1 => Just(64u32)];
    let block_bytes = prop_oneof![Just(8u32), Just(64u32), Just(1_408u32)];
    let here = ops_here();
    let first = prop_oneof![3 => Just(ElementOp::I32_SUM), 3 => prop::sample::select(here), 1 => Just(ElementOp::F32_SUM)];
    (ranks, 1u32..4, block_bytes, any::<bool>(), first).prop_map(|(ranks, pool, block_bytes, fixed_point, first)| Shape {
        ranks,
        system: XdpSystem::SwitchMl,
        pool,
        block_bytes,
        fixed_point,
        first,
    })
}

/// The call of a round: all that the program reduces, copies, and now and then what it leaves to user space.
fn call(shape: &Shape, number: usize) -> CallLabel {
    let op = |dtype, operator| shape.numbers().built_in(ElementOp { dtype, operator }, false).unwrap_or(250);
    let scaled = shape.numbers().built_in(ElementOp::F32_SUM, true).unwrap_or(1);
    let receivers = [CallLabel::ALL, 0, 1, 700];
    let label = |op| CallLabel { fingerprint: 5, receiver: receivers[number / 16 % 4], op };
    match number % 16 {
        0..4 => CallLabel::NONE,
        4..10 => {
            let here = ops_here();
            let ElementOp { dtype, operator } = here[(number / 16 * 6 + number % 16 - 4) % here.len()];
            label(op(dtype, operator))
        }
        10 => label(op(DType::F32, Operator::Max)),
        11 | 12 => CallLabel { receiver: CallLabel::ALL, ..label(scaled) },
        13 => label(200),
        14 => label(op(DType::I32, Operator::Sum)),
        _ => label(op(DType::F32, Operator::Avg)),
    }
}

/// The datagram of a step.
fn datagram(shape: &Shape, step: &Step, rounds: u32, calls: u8) -> Vec<u8> {
    // Rounds begin near the end of the numbers, so that they wrap.
    let round = (u32::MAX - 3).wrapping_add(rounds).wrapping_add_signed(i32::from(step.drift));
    // Few packets name a slot that there is not.
    let slot = if u32::from(step.slot) == shape.pool { step.slot } else { step.slot % shape.pool as u16 };
    let at = SlotUse { slot, round };
    // Most traces have one call that user space need not see; what is odd may be anything.
    let number = usize::from(at.slot) + (at.round as usize % 4_096) * 3 + usize::from(calls) * 7 + usize::from(step.odd);
    let call = call(shape, if step.odd == 0 && number % 16 == 15 { 5 } else { number });
    let table = shape.ops();
    let scaled = table[usize::from(call.op)] & OP_FIXED_POINT != 0;
    let full = i64::from(shape.block_bytes) - i64::from(at.round % 3 == 1) * 8 + i64::from(step.more);
    // Only one rank has something where elements are copied.
    let copies = table[usize::from(call.op)] & (OP_REDUCES | OP_IS) == OP_IS && step.odd == 0 && call != CallLabel::NONE;
    let bytes = if step.empty || copies && step.rank % shape.ranks != at.round % shape.ranks { 0 } else { full.max(0) as usize };
    let payload = step.elements(bytes);
    contribution(at, step.attempt, (scaled ^ (step.odd % 7 == 1)).then_some(step.exponent), call, &payload)
}

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn answers_go_where_the_last_contribution_came_from() {
    let kernel = Kernel::load().unwrap_or_else(|error| panic!("{error}"));
    let (system, first) = (XdpSystem::SwitchMl, ElementOp::I32_SUM);
    let shape = Shape { system, ranks: 1, pool: 1, block_bytes: 8, fixed_point: false, first };
    let place = kernel.open(&shape.job()).unwrap();
    let mut packet = frame(0, &contribution(SlotUse { slot: 0, round: 0 }, 0, None, CallLabel::NONE, &[1; 8]));
    // Another network card, and another address of ours.
    packet[..12].copy_from_slice(&[2, 0, 0, 0, 9, 9, 2, 0, 0, 0, 7, 7]);
    packet[33] = 99;
    let result = kernel.test(&packet, LOOPBACK, 1).unwrap();
    let copy = kernel.test_exit(&result.frame, LOOPBACK).unwrap().frame;
    assert_eq!((&copy[..12], copy[29]), (&[2, 0, 0, 0, 7, 7, 2, 0, 0, 0, 9, 9][..], 99));
    kernel.close(place);
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
    "outside_window",
    "stale",
    "unproven",
    "kind 2",
    "kind 3 empty",
    "kind 4 empty",
    "kind 6",
    "kind 2 empty",
    "up foreign",
    "up kind",
    "up operator",
    "up stranger",
    "resumed",
    "back",
];

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn the_kernel_says_what_the_state_machine_says() {
    campaign((400, 200), shape(), datagram, EXPECTED);
}

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn minutes_of_traces_in_the_kernel() {
    campaign((10_000, 400), shape(), datagram, EXPECTED);
}
