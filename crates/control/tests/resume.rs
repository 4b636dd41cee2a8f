//! The merge of what ranks have after a restart: no block is lost, none is summed twice.

use fanin_control::resume::{ResumeError, check, merge};
use fanin_control::{BlockRange, CallDescription, CallKind, Op, OperationPlan, Progress, ResumeState, Segment, Signature, Source};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed};

const SIGNATURE: Signature = Signature { kind: CallKind::Allreduce, op: Op::F32_SUM, elements: 1, part: None };

fn progress(operation: u32, total: u64, finished: &[bool], held: &[bool]) -> Progress {
    Progress {
        call: CallDescription::begun(operation, SIGNATURE, total),
        finished: ranges(finished),
        held: ranges(held),
        contributions: Vec::new(),
    }
}

fn ranges(set: &[bool]) -> Vec<BlockRange> {
    let mut ranges: Vec<BlockRange> = Vec::new();
    for block in (0..set.len() as u64).filter(|block| set[*block as usize]) {
        match ranges.last_mut() {
            Some(last) if last.end() == block => last.blocks += 1,
            _ => ranges.push(BlockRange::new(block, 1)),
        }
    }
    ranges
}

fn state(operation: u32, progress: Vec<Progress>) -> ResumeState {
    ResumeState { instance: 1, payload_bytes: 1_024, operation, progress }
}

/// What a plan says about each block.
fn fates(plan: &OperationPlan, total: u64) -> Vec<Option<Source>> {
    let mut fates = vec![None; total as usize];
    let mut from = 0;
    for segment in &plan.segments {
        assert!(segment.blocks > 0 && segment.first_block >= from, "segments ascend and do not overlap: {plan:?}");
        from = segment.first_block + segment.blocks;
        for block in segment.first_block..from {
            fates[block as usize] = Some(segment.source);
        }
    }
    fates
}

/// What one rank is in a random situation: how far it is (0: behind, 1: ahead by one), and for each block whether it is finished and
/// whether the result is kept.
type Situation = Vec<(u32, Vec<(bool, bool)>)>;

fn situation() -> impl Strategy<Value = (Situation, u64)> {
    (1usize..6, 0u64..40).prop_flat_map(|(ranks, total)| {
        let block = (prop::bool::weighted(0.6), prop::bool::weighted(0.8));
        let rank = (0u32..2, prop::collection::vec(block, total as usize));
        (prop::collection::vec(rank, ranks), Just(total))
    })
}

fn seeded() -> Config {
    Config {
        cases: 3_000,
        rng_algorithm: RngAlgorithm::ChaCha,
        rng_seed: RngSeed::Fixed(41),
        failure_persistence: None,
        ..Config::default()
    }
}

proptest! {
    #![proptest_config(seeded())]

    #[test]
    fn no_block_is_lost_and_none_is_summed_twice((ranks, total) in situation()) {
        let finished = |rank: &(u32, Vec<(bool, bool)>), block: usize| rank.0 == 1 || rank.1[block].0;
        let states: Vec<ResumeState> = ranks
            .iter()
            .map(|rank| {
                let done: Vec<bool> = (0..total as usize).map(|block| finished(rank, block)).collect();
                let held: Vec<bool> = (0..total as usize).map(|block| finished(rank, block) && rank.1[block].1).collect();
                state(7 + rank.0, vec![progress(7, total, &done, &held)])
            })
            .collect();
        let merged = merge(&states);
        let lost = (0..total as usize).find(|&block| {
            let had = ranks.iter().any(|rank| finished(rank, block));
            had && !ranks.iter().all(|rank| finished(rank, block)) && !ranks.iter().any(|rank| finished(rank, block) && rank.1[block].1)
        });
        if let Some(block) = lost {
            let is_lost = matches!(merged, Err(ResumeError::Lost { operation: 7, block: first, .. }) if first == block as u64);
            prop_assert!(is_lost, "block {} is lost: {:?}", block, merged);
            return Ok(());
        }
        let plans = merged.unwrap();
        // Where all are ahead, operation 7 concerns nobody any more.
        let all_ahead = ranks.iter().all(|rank| rank.0 == 1);
        prop_assert_eq!(plans.iter().map(|plan| plan.operation).collect::<Vec<_>>(), if all_ahead { vec![] } else { vec![7] });
        for plan in &plans {
            for (block, fate) in fates(plan, total).into_iter().enumerate() {
                let holders: Vec<u32> = (0..ranks.len()).filter(|&r| finished(&ranks[r], block) && ranks[r].1[block].1).map(|r| r as u32).collect();
                match fate {
                    None => prop_assert!(ranks.iter().all(|rank| finished(rank, block)), "block {} is lost", block),
                    Some(Source::Sum) => prop_assert!(!ranks.iter().any(|rank| finished(rank, block)), "block {} is summed twice", block),
                    Some(Source::Holder(rank)) => {
                        prop_assert_eq!(rank, holders[0], "the lowest rank that has it sends block {}", block);
                        prop_assert!(!ranks.iter().all(|rank| finished(rank, block)));
                    }
                }
            }
            // Segments with the same fate are not cut without need.
            prop_assert!(plan.segments.windows(2).all(|two| two[0].source != two[1].source || two[0].first_block + two[0].blocks < two[1].first_block));
        }
    }

    #[test]
    fn nonsense_is_refused_and_never_a_panic(
        lists in prop::collection::vec((0u32..4, 0u32..4, 0u64..50, prop::collection::vec((any::<u64>(), 0u64..60), 0..4), prop::collection::vec((0u64..60, 0u64..30), 0..4)), 0..5)
    ) {
        let states: Vec<ResumeState> = lists
            .into_iter()
            .map(|(operation, in_operation, total, finished, held)| {
                let ranges = |list: Vec<(u64, u64)>| list.into_iter().map(BlockRange::from).collect();
                state(operation, vec![Progress {
                    call: CallDescription::begun(in_operation, SIGNATURE, total),
                    finished: ranges(finished.into_iter().map(|(first, blocks)| (first % 70, blocks)).collect()),
                    held: ranges(held),
                    contributions: Vec::new(),
                }])
            })
            .collect();
        let sensible = states.iter().enumerate().all(|(rank, state)| check(rank as u32, state).is_ok());
        let merged = merge(&states);
        let refused = matches!(merged, Err(ResumeError::Nonsense { .. }));
        prop_assert!(sensible || refused);
    }
}

#[test]
fn finished_somewhere_comes_from_the_lowest_holder_and_the_rest_is_summed() {
    let set = |text: &str| text.chars().map(|c| c == 'x').collect::<Vec<bool>>();
    let rank = |finished: &str, held: &str| state(3, vec![progress(3, 6, &set(finished), &set(held))]);
    let plans = merge(&[rank("xx....", "......"), rank("xxxx..", "..xx.."), rank("xx.xx.", "...xx.")]).unwrap();
    let segment = |first_block, blocks, source| Segment { first_block, blocks, source };
    let expected = [segment(2, 2, Source::Holder(1)), segment(4, 1, Source::Holder(2)), segment(5, 1, Source::Sum)];
    assert_eq!(plans, [OperationPlan { operation: 3, segments: expected.to_vec() }]);
}

#[test]
fn a_rank_that_is_an_operation_ahead_sends_what_the_others_lack() {
    let behind = state(3, vec![progress(3, 4, &[true, false, false, false], &[true, false, false, false])]);
    let ahead = state(4, vec![progress(3, 4, &[true; 4], &[true; 4]), progress(4, 9, &[false; 9], &[false; 9])]);
    let plans = merge(&[behind.clone(), ahead]).unwrap();
    assert_eq!(plans[0].segments, [Segment { first_block: 1, blocks: 3, source: Source::Holder(1) }]);
    assert_eq!(plans[1], OperationPlan { operation: 4, segments: vec![Segment { first_block: 0, blocks: 9, source: Source::Sum }] });
    // It has returned the result to its caller and kept nothing.
    let error = merge(&[behind, state(4, vec![])]).unwrap_err();
    assert_eq!(error, ResumeError::Lost { operation: 3, block: 1, needs: 0, had: 1 });
    let error = merge(&[state(3, vec![]), state(4, vec![])]).unwrap_err();
    assert_eq!(error, ResumeError::Lost { operation: 3, block: 0, needs: 0, had: 1 });
}

#[test]
fn ranks_that_called_different_things_or_are_far_apart_are_named() {
    let with = |elements, total| {
        let mut state = state(3, vec![progress(3, total, &[], &[])]);
        state.progress[0].call.signature = Some(Signature { elements, ..SIGNATURE });
        state
    };
    let text = |states: &[ResumeState]| merge(states).unwrap_err().to_string();
    assert_eq!(
        text(&[with(5, 2), with(5, 2), with(6, 2)]),
        "rank 2 calls allreduce of 6 f32 (sum) as operation 3 where rank 0 calls allreduce of 5 f32 (sum)"
    );
    assert_eq!(text(&[with(5, 2), with(5, 3)]), "rank 1 cuts operation 3 into 3 blocks where others have 2");
    assert!(text(&[state(3, vec![]), state(u32::MAX, vec![])]).contains("too far"));
}

#[test]
fn a_job_between_two_operations_has_nothing_left_to_do() {
    assert_eq!(merge(&[state(5, vec![]), state(5, vec![])]), Ok(vec![]));
    assert_eq!(merge(&[]), Ok(vec![]));
}

/// Only the last rank gets the reduction; the others have returned, and keep what they have contributed to the last two blocks.
#[test]
fn what_only_one_rank_gets_is_summed_anew_from_what_the_others_have_kept() {
    let given = |kept: u64| Progress { contributions: vec![BlockRange::new(6 - kept, kept)], ..progress(3, 6, &[], &[]) };
    let root = |finished: u64| progress(3, 6, &(0..6).map(|block| block < finished).collect::<Vec<_>>(), &[]);
    let root_lacks_two = [state(4, vec![given(2)]), state(4, vec![given(2)]), state(3, vec![root(4)])];
    let plans = merge(&root_lacks_two).unwrap();
    assert_eq!(plans, [OperationPlan { operation: 3, segments: vec![Segment { first_block: 4, blocks: 2, source: Source::Sum }] }]);
    // What one of them keeps no more cannot be summed.
    let one_is_short = [state(4, vec![given(2)]), state(4, vec![given(1)]), state(3, vec![root(4)])];
    assert_eq!(merge(&one_is_short), Err(ResumeError::Lost { operation: 3, block: 4, needs: 2, had: 1 }));
    // What the root has is not summed again: it goes to the rank that still waits to hear that the block is over.
    let root_has = Progress { held: vec![BlockRange::new(4, 2)], ..progress(3, 6, &[], &[]) };
    let waiting =
        [state(4, vec![given(2)]), state(3, vec![progress(3, 6, &[true, true, true, true, false, false], &[])]), state(4, vec![root_has])];
    let plans = merge(&waiting).unwrap();
    assert_eq!(plans, [OperationPlan { operation: 3, segments: vec![Segment { first_block: 4, blocks: 2, source: Source::Holder(2) }] }]);
    // Nobody contributes once more to what it still does.
    assert!(matches!(check(0, &state(3, vec![given(2)])), Err(ResumeError::Nonsense { operation: 3, .. })));
}
