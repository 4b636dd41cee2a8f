//! The plan beside this crate, in small: every sum is exact, the seed says it all, and keys are checked.

use std::sync::Once;

use fanin_plan::run::{check, run};
use fanin_plan::{Plan, PlanError};
use own_balancer::Reps;

fn plan(sets: &[&str]) -> Result<Plan, PlanError> {
    static ONCE: Once = Once::new();
    ONCE.call_once(fanin_plan::own::register_balancer::<Reps>);
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

const SMALL: &[&str] = &["jobs.0.message=1MiB", "run.repetitions=1"];

#[test]
fn it_is_exact_the_same_for_any_number_of_threads_and_better_than_chance() {
    let one = goodput(SMALL, 1);
    assert_eq!(goodput(SMALL, 3), one);
    // Series: ecmp, random, drill, reps.
    assert_eq!(one.len(), 4);
    assert!(one[3] > one[1], "{one:?}");
}

#[test]
fn it_is_exact_where_links_lose_double_and_fail() {
    let faults = "faults={ links = [{ loss = 0.005, duplication = 0.005, reordering = 0.01 }], timed = [{ kind = \"link-down\", between = [\"leaf0\", \"spine1\"], from = \"5us\", until = \"40us\" }] }";
    goodput(&[SMALL, &[faults]].concat(), 1);
}

#[test]
fn wrong_keys_are_refused() {
    let says = |set: &str, words: &str| {
        let error = plan(&["series=[{ name = \"one\", set = {} }]", set]).map(|_| ()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
    };
    says("network.routing={ name = \"reps\", cache = 0 }", "network.routing.cache = 0: expected 1 to 1024 entropies");
    says("network.routing={ name = \"reps\", cash = 8 }", "cash = 8: unknown key of reps; expected one of cache");
}
