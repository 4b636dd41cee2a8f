//! The plan beside this crate, in small: every sum is exact, the seed says it all, and keys are checked.

use std::sync::Once;

use fanin_plan::run::{check, run};
use fanin_plan::{Plan, PlanError};

fn plan(sets: &[&str]) -> Result<Plan, PlanError> {
    static ONCE: Once = Once::new();
    ONCE.call_once(own_traffic::register);
    let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
    Plan::parse("plan.toml", include_str!("../plan.toml"), &sets, None).and_then(|plan| check(&plan).map(|()| plan))
}

/// Goodput of each series in Gb/s, in the order of the plan.
fn goodput(sets: &[&str], threads: usize) -> Vec<Option<f64>> {
    let finished = run(&plan(sets).unwrap(), threads, || true).unwrap();
    let one = |finished: &fanin_plan::run::Finished| {
        assert!(finished.record.is_good() && finished.record.is_exact(), "{:?}", finished.record.failure);
        finished.record.goodput_gbps
    };
    finished.iter().map(one).collect()
}

const SMALL: &[&str] = &["sweep={ \"jobs.0.system\" = [\"ring\"] }", "jobs.0.message=1MiB", "run.repetitions=1"];

#[test]
fn what_is_beside_a_job_and_at_its_hosts_slows_it_down_and_sums_stay_exact() {
    let one = goodput(SMALL, 1);
    assert_eq!(goodput(SMALL, 3), one, "threads change nothing");
    let [quiet, search, apart, together] = one[..] else { panic!("{one:?}") };
    assert!(search < quiet && apart < quiet && together <= quiet, "{one:?}");
}

#[test]
fn wrong_keys_are_refused() {
    let says = |set: &str, words: &str| {
        let error = plan(&["series=[{ name = \"one\", set = {} }]", "traffic.0.enabled=true", set]).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    says("traffic.0.pattern.load=1.5", "traffic[0].pattern.load = 1.5: expected");
    says("traffic.0.pattern.longest=0B", "traffic[0].pattern.longest = 0: expected 1 byte or more");
    says("traffic.0.pattern.size=1KiB", "unknown key of web-search; expected one of load, longest, messages");
    says("traffic.0.message=1KiB", "no such key with pattern = \"web-search\"");
    says(
        "jobs.0.noise={ probability = 1.0, delay = { distribution = \"daemon\", length = \"2ms\" } }",
        "expected length of less than period, 1 ms",
    );
}
