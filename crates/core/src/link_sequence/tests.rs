use std::collections::BTreeSet;

use super::*;
use crate::hash::mix;

const LENGTH: u64 = ReplayWindow::LENGTH;
const NEW: Result<Restarted, DropReason> = Ok(Restarted(false));

/// A link in epoch 7, on which `numbers` numbers have come.
fn after(rule: EpochRule, numbers: u64) -> LinkSequence {
    let mut link = LinkSequence::new(rule);
    assert!(link.agree(7, 0));
    (0..numbers).for_each(|number| assert_eq!(link.accept(7, number as u32), NEW, "{number}"));
    link
}

#[test]
fn one_packet_with_another_epoch_or_a_number_far_ahead_changes_nothing() {
    for rule in [EpochRule::Agreed, EpochRule::Shown] {
        let mut link = after(rule, 5_000);
        for (draw, number) in (5_000..9_000).enumerate() {
            let stray = mix(1, draw as u64);
            assert_eq!(link.accept((stray >> 32) as u32 | 8, stray as u32), Err(DropReason::Unproven));
            assert_eq!(link.accept(7, number + 1_000_000), Err(DropReason::Unproven));
            assert_eq!(link.accept(7, number), NEW, "{number}");
            assert_eq!(link.accept(7, number), Err(DropReason::Repeated), "{number}");
        }
    }
}

#[test]
fn many_packets_far_ahead_that_agree_do_not_end_the_real_ones() {
    let mut link = after(EpochRule::Agreed, 5_000);
    // Four hundred in a row: a jump is believed. What was believed before goes on beside it.
    for round in 0..400 {
        let taken = link.accept(7, 1_005_000 + round);
        assert_eq!(taken.is_ok(), round >= LinkSequence::EVIDENCE - 1, "{round}");
    }
    for number in 4_990..20_000 {
        assert_eq!(link.accept(7, number).is_ok(), number >= 5_000, "{number}");
    }
    // Where the real ones come to what others have used, those numbers are gone, and no more.
    let refused = (20_000..1_020_000).filter(|number| link.accept(7, *number).is_err()).count();
    assert!((393..393 + ReplayWindow::SPAN as usize).contains(&refused), "{refused}");
}

#[test]
fn others_that_jump_again_and_again_use_up_their_own_room() {
    let mut link = after(EpochRule::Agreed, 100);
    for (real, jump) in (100..).zip(1..200u32) {
        for number in 0..20 {
            let _ = link.accept(7, jump * 100_000 + number);
        }
        assert_eq!(link.accept(7, real), NEW, "after {jump} jumps");
    }
}

#[test]
fn a_long_burst_of_losses_costs_few_packets_more() {
    for lost in [10, 1_000, LENGTH, 100_000, 50_000_000] {
        let mut link = after(EpochRule::Agreed, 3_000);
        let from = 3_000 + lost;
        let refused = (from..from + 10_000).filter(|number| link.accept(7, *number as u32).is_err()).count();
        assert_eq!(refused, if lost < LENGTH - ReplayWindow::SPAN { 0 } else { LinkSequence::EVIDENCE as usize - 1 }, "{lost} lost");
        assert!((from + 10..from + 10_000).all(|number| link.accept(7, number as u32).is_err()), "none comes twice");
    }
}

#[test]
fn late_packets_around_a_jump_come_once() {
    let mut link = after(EpochRule::Agreed, 3_000);
    for number in 70_000..70_008 {
        let _ = link.accept(7, number);
    }
    // Those of the evidence were dropped, so they may come; one from before the jump too.
    for late in [70_000, 70_006, 69_500, 2_999 + 40, 2_999 + 2_000] {
        assert_eq!(link.accept(7, late), NEW, "{late}");
        assert_eq!(link.accept(7, late), Err(DropReason::Repeated), "{late}");
    }
    assert_eq!(link.accept(7, 2_999), Err(DropReason::Repeated));
    assert_eq!(link.accept(7, 60_000), Err(DropReason::Unproven));
}

#[test]
fn an_epoch_that_was_agreed_needs_no_evidence_and_ends_the_one_before() {
    let mut link = after(EpochRule::Agreed, 10);
    (0..1_000).for_each(|number| assert_eq!(link.accept(9, number), Err(DropReason::Unproven)));
    assert!(link.agree(9, 0));
    assert_eq!((link.accept(9, 0), link.accept(9, 0), link.accept(7, 10)), (NEW, Err(DropReason::Repeated), Err(DropReason::TooOld)));
    assert!(!link.agree(7, 0), "nobody lives twice");
    assert_eq!(link.epoch(), Some(9));
}

#[test]
fn a_restart_is_shown_by_several_packets_in_a_row() {
    let mut link = LinkSequence::new(EpochRule::Shown);
    assert_eq!(link.accept(7, 3), NEW, "the first is believed");
    // The old life speaks in between: it is not over.
    for number in 0..40 {
        assert_eq!(link.accept(8, number), Err(DropReason::Unproven));
        if number % 7 == 6 {
            assert_eq!(link.accept(7, number + 10), NEW);
        }
    }
    let mut link = after(EpochRule::Shown, 100);
    for number in 0..LinkSequence::EVIDENCE - 1 {
        assert_eq!(link.accept(8, number), Err(DropReason::Unproven));
    }
    assert_eq!(link.accept(8, LinkSequence::EVIDENCE - 1), Ok(Restarted(true)));
    assert_eq!(link.accept(8, 2), NEW, "it was not taken before");
    assert_eq!((link.accept(7, 100), link.accept(7, 5)), (Err(DropReason::TooOld), Err(DropReason::TooOld)));
}

#[test]
fn numbers_begin_again_and_nothing_is_taken_for_a_repeat() {
    let mut link = LinkSequence::new(EpochRule::Shown);
    let start = u32::MAX - 5_000;
    for step in 0..200_000u32 {
        assert_eq!(link.accept(1, start.wrapping_add(step)), NEW, "{step}");
        assert_eq!(link.accept(1, start.wrapping_add(step)), Err(DropReason::Repeated), "{step}");
    }
}

/// Everything at once, against a set of all numbers that were taken: real packets that are lost, doubled, late or jump, and others that
/// claim epochs and numbers, alone and in runs. Whatever comes, none is taken twice; and a real one that comes in order on a link without
/// losses is taken.
#[test]
fn agrees_with_a_set_of_everything_that_was_taken() {
    for seed in 0..300u64 {
        let mut link = after(if seed % 2 == 0 { EpochRule::Agreed } else { EpochRule::Shown }, 0);
        let (mut taken, mut next, mut draws) = (BTreeSet::new(), 0u64, 0u64);
        let mut draw = |bound: u64| {
            draws += 1;
            mix(seed, draws) % bound
        };
        let has_jumps = seed % 3 == 0;
        // More runs than there are tracks, with nothing real between them, end what is real: then it is too old, and not taken twice.
        let mut runs = 0;
        let mut take = |link: &mut LinkSequence, number: u64| {
            let is_taken = link.accept(7, number as u32).is_ok();
            assert!(!is_taken || taken.insert(number as u32), "seed {seed}: {number} is taken twice");
            is_taken
        };
        for _ in 0..4_000 {
            match draw(20) {
                0 => _ = link.accept(draw(1 << 32) as u32 | 8, draw(1 << 32) as u32),
                1 => _ = take(&mut link, next + draw(1 << 22)),
                2 if has_jumps || runs < TRACKS - 1 => {
                    runs += 1;
                    let from = next + 5_000 + draw(1 << 24);
                    (0..draw(40)).for_each(|step| _ = take(&mut link, from + step));
                }
                3 if has_jumps => next += draw(10_000),
                4..=8 => _ = take(&mut link, next.saturating_sub(draw(3_000))),
                _ => {
                    let is_fresh = !has_jumps && next < 5_000;
                    let is_taken = take(&mut link, next);
                    assert!(is_taken || !is_fresh || link.accept(7, next as u32) == Err(DropReason::Repeated), "seed {seed}: {next}");
                    next += 1;
                }
            }
        }
    }
}
