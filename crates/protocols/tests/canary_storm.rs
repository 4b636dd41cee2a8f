//! The storm of the paper's rule: a worker that is merely late has all others begin every block anew, generation after generation, until they
//! pass the switches by. The packets that workers send are those of `src/canary/storm.txt`, which the module's documentation shows.

use crate::canary_fabric::{Plan, Run};
use crate::common::{Faults, Script};
use fanin_core::{Census, Duration, Instant};
use fanin_protocols::canary::{FailureRule, Recovery};
use fanin_protocols::shared::reliability::Reliability;

/// Three workers at one switch, two blocks; the third comes after 1 ms. Nothing is lost.
fn with_a_late_worker(rule: FailureRule) -> Run {
    let reliability = Reliability::lossy(Duration::from_us(200), Duration::from_us(50), Duration::from_ms(40));
    let lifetime = Duration::from_ms(4);
    let plan = Plan {
        window: 4,
        patience: Duration::from_ms(40),
        recovery: Recovery { rule, generations: 2, ..Recovery::new(reliability, lifetime) },
        descriptor_lifetime: lifetime,
        faults: Faults { seed: 1, jitter_us: 0, ..Faults::NONE },
        ..Plan::star(3)
    };
    let mut scripts = vec![Script::of(&[8]); 3];
    scripts[2].start = Instant::ZERO + Duration::from_ms(1);
    let run = plan.run::<Census>(scripts);
    run.assert_whole(1);
    run
}

#[test]
fn the_storm_of_the_papers_rule_is_the_documented_one() {
    let run = with_a_late_worker(FailureRule::FirstRequest);
    let documented: Vec<&str> = include_str!("../src/canary/storm.txt").lines().collect();
    assert_eq!(run.log, documented, "what is documented is not what happens; it is now:\n{}", run.log.join("\n"));
    // Each block is begun anew at the first request, twice, although nothing is lost.
    assert_eq!(run.ended.counts.begun_anew.into_iter().collect::<Vec<_>>(), [(1, 2), (2, 2)]);
}

#[test]
fn by_the_other_rule_nothing_is_begun_anew_for_a_late_worker() {
    let run = with_a_late_worker(FailureRule::AllAsked);
    assert_eq!((run.ended.counts.begun_anew.len(), run.tally.direct, run.tally.failed), (0, 0, 0), "{:#?}", run.log);
    assert_eq!(run.tally.contributions, 4);
}
