//! Sums that switches send early, and leaders that are chosen or take their time: whatever switches believe and whoever leads, every sum is
//! right and comes once.

use crate::canary_fabric::{Plan, Run};
use crate::common::{Faults, Script};
use fanin_core::hash::mix;
use fanin_core::{Census, Duration, Rank};
use fanin_protocols::canary::{Duties, FailureRule, Leaders, Recovery};
use fanin_protocols::shared::reliability::Reliability;

/// 3 leaves of 3 workers, 2 spines; a cable takes a microsecond.
fn fabric() -> Plan {
    Plan { leaves_per_pod: 3, spines_per_pod: 2, ..Plan::star(9) }
}

/// The same with losses, and what is done about them.
fn lossy(seed: u64) -> Plan {
    let patience = Duration::from_ms(400);
    let reliability = Reliability::lossy(Duration::from_us(200), Duration::from_us(60), patience);
    let lifetime = Duration::from_ms(5);
    let rule = if seed.is_multiple_of(2) { FailureRule::AllAsked } else { FailureRule::FirstRequest };
    Plan {
        recovery: Recovery { rule, generations: 1 + (seed % 3) as u8, ..Recovery::new(reliability, lifetime) },
        descriptor_lifetime: lifetime,
        patience,
        window: 8,
        descriptors: 1 + (mix(seed, 1) % 12) as u32,
        wander: (mix(seed, 2) % 400) as u32,
        adaptive: mix(seed, 3).is_multiple_of(3),
        faults: Faults { seed, loss: 20, jitter_us: mix(seed, 4) % 4, ..Faults::NONE },
        ..fabric()
    }
}

/// Who leads in the run of this seed.
fn leaders(seed: u64) -> Leaders {
    match seed % 3 {
        0 => Leaders::InTurn,
        1 => Leaders::Fixed(Rank((mix(seed, 5) % 9) as u32)),
        _ => Leaders::Drawn(seed),
    }
}

#[test]
fn sums_are_exact_whatever_switches_believe_that_will_come() {
    for seed in 0..60 {
        let plan = Plan { any_fan_in: Some(seed), wander: (mix(seed, 6) % 500) as u32, descriptors: 1 + (seed % 9) as u32, ..fabric() };
        plan.complete::<Census>(&[4 * 40, 7, 4 * 25]);
        Plan { any_fan_in: Some(seed), ..lossy(seed) }.run::<Census>(scripts()).ended.all_done(3);
    }
}

fn scripts() -> Vec<Script> {
    vec![Script::of(&[4 * 40, 7, 4 * 25]); 9]
}

#[test]
fn sums_are_exact_whoever_leads_and_however_long_that_takes() {
    for seed in 0..60 {
        let time = Duration::from_us(mix(seed, 7) % 3 * 40);
        let duties = Duties { leaders: leaders(seed), time };
        Plan { duties, first_block: u32::MAX - 30, ..fabric() }.complete::<Census>(&[4 * 40, 7, 4 * 25]);
        Plan { duties, ..lossy(seed) }.run::<Census>(scripts()).ended.all_done(3);
    }
}

/// When the last worker has the last sum.
fn ends_at(run: &Run) -> Duration {
    let ends = run.ended.outcomes.iter().filter_map(|outcomes| outcomes.last()).map(|(at, _)| at.since(fanin_core::Instant::ZERO));
    ends.max().expect("workers")
}

#[test]
fn a_leader_that_takes_its_time_delays_each_operation_by_as_much_and_repeats_nothing() {
    let of = |us, recovery: Recovery| {
        let duties = Duties { time: Duration::from_us(us), ..Duties::default() };
        Plan { duties, recovery, window: 8, ..fabric() }.complete::<Census>(&[4; 20])
    };
    let reliability = Reliability::lossy(Duration::from_us(200), Duration::from_us(100), Duration::from_ms(400));
    for recovery in [Recovery::NONE, Recovery::new(reliability, Duration::from_ms(5))] {
        let (at_once, late) = (of(0, recovery), of(30, recovery));
        assert_eq!(ends_at(&late) - ends_at(&at_once), Duration::from_us(20 * 30));
        assert_eq!((late.tally.broadcasts, late.tally.requests), (at_once.tally.broadcasts, 0));
    }
}

#[test]
fn a_leader_works_on_several_blocks_at_once() {
    let of = |us| {
        let duties = Duties { leaders: Leaders::Fixed(Rank(4)), time: Duration::from_us(us) };
        ends_at(&Plan { duties, window: 64, ..fabric() }.complete::<Census>(&[4 * 40]))
    };
    assert_eq!(of(50) - of(0), Duration::from_us(50), "the blocks of one window wait side by side");
}
