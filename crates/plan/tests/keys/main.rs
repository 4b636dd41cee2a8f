//! Every key of a plan changes something in a run, or is refused by its name: of every table, for every system. Which keys there are the
//! program says itself, so that a new one is looked at as soon as it can be written.

mod values;

use std::collections::BTreeSet;

use fanin_plan::run::{self, Finished};
use fanin_plan::schema::Expect;
use fanin_plan::{Plan, PlanError};
use fanin_systems::System;
use values::{HARDWARE_KEYS, JOBS, Key, LOSSLESS_KEYS, NETWORK, OTHERS, PROCESSOR_KEYS, Try};

/// Three leaves of five hosts; twelve workers leave one host of each leaf free.
const BASE: &str = r#"
[network]
shape = "fat-tree"
leaves = 3
hosts_per_leaf = 5
spines = 2
rate = "100Gb/s"
latency = "300ns"

[[jobs]]
system = "tree"
workers = 12
placement = "spread"
message = "96KiB"
"#;

/// The plan for a system, with these assignments.
fn plan(system: &str, sets: &[String]) -> Result<Plan, PlanError> {
    let sets: Vec<String> = sets.to_vec();
    Plan::parse("plan", &BASE.replace("\"tree\"", &format!("\"{system}\"")), &sets, None)
}

/// All that a plan's runs give, as text.
fn outcome(system: &str, sets: &[String]) -> Result<String, String> {
    let plan = plan(system, sets).and_then(|plan| run::check(&plan).map(|()| plan)).map_err(|error| error.to_string())?;
    let finished = run::run(&plan, 1, || true).map_err(|error| error.to_string())?;
    let one = |run: &Finished| {
        let mut record = run.record.clone();
        (record.wall_s, record.params) = (0.0, Vec::new());
        let good = match plan.points[run.point].setup.general.run.expect {
            Expect::Success => record.is_good(),
            Expect::Failure => record.is_exact() && record.failure.is_some(),
        };
        let record = serde_json::to_string(&record).unwrap();
        format!("{record} {good} {:?} {:?} {:?}", run.links, run.memory, run.series)
    };
    Ok(finished.iter().map(one).collect::<Vec<_>>().join("\n"))
}

/// What a key does.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Effect {
    Changes,
    Refused,
    Nothing,
    /// It is refused, and what is said does not lead to it.
    Unnamed(String),
    /// What is to stand beside it is refused, so it cannot be tried.
    Impossible(String),
}

fn effect(system: &str, path: &str, key: &str, one: &Try) -> Effect {
    let base: Vec<String> = one.with.iter().map(|set| set.to_string()).collect();
    let more: Vec<String> = base.iter().cloned().chain([format!("{path}.{key}={}", one.value)]).collect();
    let varied = outcome(system, &more);
    match (outcome(system, &base), varied) {
        (_, Err(error)) if error.contains(key) => Effect::Refused,
        (Err(error), Err(_)) => Effect::Impossible(error),
        // A system that cannot do with some switches says so of itself.
        (Ok(_), Err(error)) if key == "aggregating" && error.contains("only forward") => Effect::Refused,
        (Ok(_), Err(error)) => Effect::Unnamed(error),
        // The key is what was missing.
        (Err(error), Ok(_)) if error.contains(key) => Effect::Changes,
        (Err(error), Ok(_)) => Effect::Impossible(error),
        (Ok(before), Ok(after)) if before == after => Effect::Nothing,
        _ => Effect::Changes,
    }
}

/// The keys of a table, as the program lists them.
fn known(system: &str, path: &str, with: &[&str]) -> Vec<String> {
    let sets: Vec<String> = with.iter().map(|set| set.to_string()).chain([format!("{path}.qqqqqqqq=1")]).collect();
    let error = plan(system, &sets).expect_err("no such key").to_string();
    let (_, keys) = error.split_once("xpected one of ").unwrap_or_else(|| panic!("{path}: {error}"));
    keys.split(", ").map(str::to_string).collect()
}

/// Keys that say what the rest of the table is: nothing can be compared.
const WHAT: &[&str] = &["system"];

/// Tries all keys of a table for some systems; gives the faults, and the keys that have changed something.
fn try_all(systems: &[&str], path: &str, table: &[Key], with: &[&str], changing: &mut BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for system in systems {
        for key in known(system, path, with).iter().filter(|key| !WHAT.contains(&key.as_str())) {
            let Some((_, tries)) = table.iter().find(|(name, _)| name == key) else {
                faults.push(format!("{path}.{key}: nothing says what to try"));
                continue;
            };
            let effects: Vec<Effect> = tries.iter().map(|one| effect(system, path, key, one)).collect();
            let is_bare = |one: &Try| one.with.is_empty();
            let bare = || effects.iter().zip(*tries).filter(|(_, one)| is_bare(one)).map(|(effect, _)| effect);
            let silent = bare().next().is_some() && bare().all(|effect| *effect == Effect::Nothing);
            if effects.contains(&Effect::Changes) {
                changing.insert(format!("{path}.{key}"));
            }
            let shown = effects.iter().any(|effect| matches!(effect, Effect::Changes | Effect::Refused));
            let unnamed = effects.iter().any(|effect| matches!(effect, Effect::Unnamed(_)));
            if silent || !shown || unnamed {
                faults.push(format!("{path}.{key} of {system}: {effects:?}"));
            }
        }
    }
    faults
}

/// Keys that only say what a plan may not need: it is refused, or they change nothing.
const LIMITS: &[&str] = &["network.hardware.memory"];

/// Nothing is silently ignored, and every key of the table changes something of some system, or is a limit.
fn check(systems: &[&str], path: &str, table: &[Key], with: &[&str]) {
    let mut changing = BTreeSet::new();
    let mut faults = try_all(systems, path, table, with, &mut changing);
    let never =
        table.iter().map(|(key, _)| format!("{path}.{key}")).filter(|key| !changing.contains(key) && !LIMITS.contains(&key.as_str()));
    faults.extend(never.map(|key| format!("{key} changes nothing of any system")));
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn keys_of_jobs() {
    check(System::NAMES, "jobs.0", JOBS, &[]);
}

#[test]
fn keys_of_networks() {
    check(System::NAMES, "network", NETWORK, &[]);
}

#[test]
fn keys_of_lossless_networks() {
    let with = ["network.lossless={ model = \"input-queued\", input = \"4KiB\" }"];
    check(&["tree", "canary", "ring"], "network.lossless", LOSSLESS_KEYS, &with);
}

#[test]
fn keys_of_processors() {
    let with = ["network.processor={ cores = 4, packet_time = \"1us\" }"];
    check(&["tree", "canary", "flare", "ring"], "network.processor", PROCESSOR_KEYS, &with);
}

#[test]
fn keys_of_hardware() {
    let with = ["network.hardware={ aggregation_rate = \"50Gb/s\" }"];
    check(&["tree", "canary"], "network.hardware", HARDWARE_KEYS, &with);
}

#[test]
fn keys_of_other_tables() {
    for (path, keys) in OTHERS {
        let table = path.trim_end_matches(".0");
        let with = match table {
            "traffic" => "traffic=[{ pattern = \"uniform\" }]",
            "flows" => "flows=[{ from = \"host0\", to = \"host7\", rate = \"20Gb/s\" }]",
            "limits" => "limits=[{ send = \"20Mp/s\" }]",
            "faults.links" => "faults.links=[{ loss = 0.1 }]",
            "faults.timed" => "faults.timed=[{ kind = \"host-dies\", rank = 1 }]",
            "jobs.0.noise" => "jobs.0.noise={ probability = 0.5, delay = \"1us\" }",
            _ => "run.seed=1",
        };
        check(&["tree", "canary", "ring", "flare"], path, keys, &[with]);
    }
}
