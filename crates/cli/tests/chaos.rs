//! `fanin testbed --chaos` as its users meet it.

mod common;

use std::fs;

use common::{fanin, folder, good, refused};
use serde_json::Value;

/// Seconds of a fabric whose switches are killed, paused and cut off while packets are damaged; small enough for every change.
const SCENARIO: &str = r#"
seed = 5

[place]
kind = "fabric"
leaves = 2
spines = 1
hosts_per_leaf = 2

[noise]
loss = 0.01
reordering = 0.02
corruption = 0.005

[[job]]
system = "canary"
meets = "place"
transport = "auto"
fallback = "ring"
timeout_ms = 20000
hosts = [0, 2]
start_ms = 0
run_ms = 1500
call = [
    { collective = "allreduce", element = "f32", operator = "sum", elements = 5003 },
    { collective = "reduce-scatter", element = "i32", operator = "max", elements = 1000 },
]

[[job]]
system = "tree"
meets = "place"
transport = "auto"
fallback = "ring"
timeout_ms = 20000
hosts = [1, 3]
start_ms = 0
run_ms = 1500
call = [{ collective = "allreduce", element = "bf16", operator = "min", elements = 1000 }]

[[fault]]
kind = "kill"
target = "spine0"
at_ms = 300
for_ms = 1

[[fault]]
kind = "cut"
target = "leaf1>spine0"
at_ms = 900
for_ms = 300

[[fault]]
kind = "pause"
target = "manager"
at_ms = 600
for_ms = 200
"#;

fn json(text: &[u8]) -> Value {
    serde_json::from_slice(text).expect("an object")
}

#[test]
fn a_fabric_that_is_killed_cut_and_paused_costs_no_sum() {
    let folder = folder("chaos_scenario");
    fs::write(folder.join("scenario.toml"), SCENARIO).unwrap();
    let output = fanin(&folder, &["testbed", "--scenario", "scenario.toml", "--format", "json", "--logs", "logs"]);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{errors}");
    assert!(errors.starts_with("run 1, seed 5: "), "{errors}");
    let summary = json(&output.stdout);
    let kinds = &summary["kinds"];
    for kind in ["restart of a switch", "cut of a link, one way", "pause of a manager", "corruption", "all"] {
        assert_eq!((&kinds[kind]["runs"], &kinds[kind]["findings"]), (&1.into(), &0.into()), "{kind}: {kinds}");
    }
    assert!(kinds["all"]["exact_calls"].as_u64().unwrap() >= 12, "{kinds}");
    assert_eq!(kinds["all"]["errors"], serde_json::json!({}));
    assert_eq!(fs::read_dir(folder.join("logs")).unwrap().count(), 0, "runs without findings leave no logs");
}

#[test]
fn a_scenario_comes_from_its_seed_and_is_read_back() {
    let folder = folder("chaos_seed");
    let drawn = good(&folder, &["testbed", "--chaos", "7", "--check"]);
    assert_eq!(drawn, good(&folder, &["testbed", "--chaos", "7", "--check"]));
    assert_ne!(drawn, good(&folder, &["testbed", "--chaos", "8", "--check"]));
    fs::write(folder.join("7.toml"), &drawn).unwrap();
    assert_eq!(drawn, good(&folder, &["testbed", "--scenario", "7.toml", "--check"]));
}

#[test]
fn a_finding_is_made_smaller_and_replayed() {
    let folder = folder("chaos_finding");
    // Ranks at one switch cannot have memory in common with nobody's leave: a configuration that every rank refuses, for no fault's sake.
    let wrong = SCENARIO.replacen("transport = \"auto\"", "transport = \"shm\"", 1);
    fs::write(folder.join("wrong.toml"), wrong).unwrap();
    let arguments = ["testbed", "--scenario", "wrong.toml", "--format", "json", "--logs", "logs", "--shrink-runs", "6"];
    let output = fanin(&folder, &arguments);
    assert_eq!(output.status.code(), Some(1), "{}", String::from_utf8_lossy(&output.stderr));
    let finding = json(&output.stdout)["findings"][0].clone();
    let words = finding["findings"][0].as_str().unwrap();
    assert!(words.starts_with("error without a cause: job0.rank0, joining: ") && words.contains("shm"), "{words}");
    // The first step that is tried drops the job that is well, or the one that is not.
    let smaller = finding["scenario"].as_str().unwrap();
    assert_eq!((smaller.matches("[[job]]").count(), smaller.matches("shm").count()), (1, 1), "{smaller}");
    assert!(folder.join("logs/run-0/scenario.txt").exists());
    fs::write(folder.join("smaller.toml"), smaller).unwrap();
    let again = fanin(&folder, &["testbed", "--scenario", "smaller.toml", "--shrink-runs", "0", "--logs", "again"]);
    assert_eq!(again.status.code(), Some(1));
    let text = String::from_utf8(again.stdout).unwrap();
    assert!(text.contains("finding of seed 5") && text.contains("error without a cause"), "{text}");
}

#[test]
fn what_cannot_be_run_is_refused_by_name() {
    let folder = folder("chaos_refused");
    let said = |old: &str, new: &str| {
        fs::write(folder.join("bad.toml"), SCENARIO.replacen(old, new, 1)).unwrap();
        refused(&folder, &["testbed", "--scenario", "bad.toml"])
    };
    let expected = "error: bad.toml: fault 1: target = \"leaf1>leaf0\": expected a link of the fabric, or manager or switch and a rank that meets there";
    assert_eq!(said("leaf1>spine0", "leaf1>leaf0"), expected);
    assert_eq!(said("loss = 0.01", "loss = 2.0"), "error: bad.toml: noise.loss = 2: expected a probability, from 0 to 1");
    assert_eq!(said("hosts = [1, 3]", "hosts = [1, 2]"), "error: bad.toml: job 1: hosts: host 2 has a rank already, and one port");
    assert!(said("seed = 5", "seed = 5\nsed = 6").contains("unknown field `sed`"));
    assert!(refused(&folder, &["testbed"]).contains("FABRIC.toml"));
    assert!(refused(&folder, &["testbed", "--chaos", "1", "--runs", "0"]).contains("--runs"));
}
