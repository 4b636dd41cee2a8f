//! What NetReduce's paper has where its specification recommends something else, and what that breaks (`netreduce 9`).

use crate::common::suite::{Job, LOSSY};
use crate::common::{Counts, Faults, Script};
use crate::netreduce_plan::Plan;
use fanin_core::{Census, Duration, FailureReason, Instant, RetransmitReason};
use fanin_protocols::netreduce::{Deallocation, Lookup, Reemission, Variants};
use fanin_protocols::shared::reliability::Reliability;

const SEEDS: u64 = 60;

/// A job of four workers under 2 % loss.
fn lossy(seed: u64, variants: Variants) -> Plan {
    Plan { packets: 8, variants, faults: Faults { seed, loss: 20, ..Faults::NONE }, ..Plan::star(4) }
}

/// How many of the runs do not come to an end but by the job's patience. Whatever is lost, no sum is wrong: each is compared.
fn stuck(variants: Variants) -> u64 {
    let is_stuck = |seed: &u64| {
        let ended = lossy(*seed, variants).run::<Census>(&[2_000]);
        let failed: Vec<FailureReason> =
            ended.outcomes.iter().filter_map(|outcomes| outcomes[0].1.result.as_ref().err()).map(|failure| failure.reason).collect();
        assert!(failed.iter().all(|reason| matches!(reason, FailureReason::NoProgress | FailureReason::PeerAborted)));
        !failed.is_empty()
    };
    (0..SEEDS).filter(is_stuck).count() as u64
}

#[test]
fn the_recommended_choices_are_never_stuck() {
    assert_eq!(stuck(Variants::default()), 0);
    assert_eq!(stuck(Variants::CARDS), 0);
}

/// P2: a packet in the middle of message m is lost, the first one of m+1 comes through; then the table knows m+1 only, and drops what is sent
/// again of m for ever.
#[test]
fn a_lookup_table_with_one_message_is_stuck_after_a_loss_at_the_end_of_a_message() {
    let stuck = stuck(Variants { lookup: Lookup::Newest, ..Variants::CARDS });
    assert!(stuck > SEEDS / 2, "{stuck} of {SEEDS}");
}

/// P3: a worker whose sum was lost asks for it in vain when another has gone a window further.
#[test]
fn slots_that_a_contribution_frees_are_missed_by_who_lost_the_sum() {
    let stuck = stuck(Variants { deallocation: Deallocation::Packet, ..Variants::CARDS });
    assert!(stuck > SEEDS / 2, "{stuck} of {SEEDS}");
}

fn counts(workers: u32, variants: Variants) -> Counts {
    let faults = Faults { seed: 5, loss: 5, ..Faults::NONE };
    let ended = Plan { window: 2, packets: 32, variants, faults, ..Plan::star(workers) }.run::<Census>(&[20_000]);
    ended.all_done(1);
    ended.counts
}

/// P1: all go back after one loss; where each of their packets is answered to all, there are as many answers as workers times workers.
#[test]
fn sums_that_go_to_all_again_are_a_storm() {
    // What the accelerator, which is the node behind the workers, sends for each byte of the sums.
    let sent = |workers: u32, reemission| {
        let bytes = counts(workers, Variants { reemission, ..Variants::CARDS }).data_bytes_sent[workers as usize];
        bytes as f64 / (80_000.0 * f64::from(workers))
    };
    let [few, many] = [4, 16].map(|workers| sent(workers, Reemission::All) / sent(workers, Reemission::Requester));
    println!("{few:.1} times as much for 4 workers, {many:.1} for 16");
    assert!(few > 1.5 && many > 2.0 * few, "{few} and {many}");
}

/// P1: one packet is lost before the accelerator, and everybody goes back.
#[test]
fn one_loss_makes_all_go_back() {
    let workers = 8;
    // One packet of thousands: the run with the fewest repetitions but some has one loss.
    let runs = (0..200).map(|seed| {
        let faults = Faults { seed, loss: 1, ..Faults::NONE };
        let plan = Plan { window: 2, packets: 16, variants: Variants::CARDS, faults, ..Plan::star(workers) };
        plan.run::<Census>(&[500]).counts.retransmitted
    });
    let gone_back: Vec<u64> = runs.filter_map(|again| again.get(&RetransmitReason::Gap).copied()).collect();
    assert!(gone_back.iter().any(|packets| *packets >= u64::from(workers) * 4), "{gone_back:?}");
}

/// P5: a card that gives up after seven timeouts does so while its packet is held for a straggler; the network has lost nothing.
#[test]
fn a_retry_limit_does_not_bear_a_straggler() {
    let run = |retry_limit| {
        let reliability = Reliability { rto_initial: Duration::from_us(50), patience: Duration::from_ms(200), ..LOSSY };
        let plan = Plan { retry_limit, reliability, ..Plan::star(4) };
        let mut scripts = vec![Script::of(&[400]); 4];
        scripts[1].start = Instant::ZERO + Duration::from_ms(30);
        plan.net::<Census>(scripts).run(Duration::from_ms(1_000))
    };
    run(None).all_done(1);
    let broken = run(Some(7));
    assert!(broken.outcomes[0][0].1.result.is_err() && broken.outcomes[0][0].0 < Instant::ZERO + Duration::from_ms(30));
}
