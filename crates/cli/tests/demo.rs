//! `fanin demo` as a user sees it: exact sums under faults, a named error for a worker that dies, and no process left behind.

mod common;

use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// The patience of these runs is far above what a busy machine needs; only the runs in which somebody dies wait for it.
const PATIENCE: &str = "60";

fn demo(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanin"));
    command.arg("demo").args(arguments).env_remove("RUST_BACKTRACE");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Runs the demo, which must succeed, and gives its JSON.
fn succeed(arguments: &[&str]) -> Value {
    let output = demo(arguments).args(["--format", "json"]).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}{}", text(&output.stdout), text(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn all_exact(result: &Value) -> bool {
    result["iterations"].as_array().unwrap().iter().all(|iteration| iteration["exact"] == true)
}

#[test]
fn every_system_is_exact_under_every_fault() {
    for system in ["tree", "ring", "switchml"] {
        let faults = ["--loss", "0.01", "--duplicate", "0.01", "--reorder", "0.01", "--corrupt", "0.01"];
        let arguments = ["--system", system, "--workers", "3", "--size", "1MiB", "--iterations", "2", "--patience", PATIENCE];
        let result = succeed(&[&arguments[..], &faults[..]].concat());
        assert!(all_exact(&result), "{result}");
        assert_eq!(result["iterations"].as_array().unwrap().len(), 2);
        for kind in ["loss", "duplicate", "reorder", "corrupt"] {
            assert!(result["injected"][kind].as_u64().unwrap() > 0, "{kind}: {result}");
        }
        assert!(result["dropped"]["repeated"].as_u64().unwrap() > 0, "{result}");
        assert!(result["retransmitted"].as_object().unwrap().values().any(|count| count.as_u64().unwrap() > 0), "{result}");
    }
}

/// Neither a switch nor its ranks need a capability or a way to one (docs/security.md, "Least privilege"). Who is not root has none anyway.
#[test]
fn without_any_capability_sums_are_exact_over_udp_and_shared_memory() {
    for transport in ["udp", "shm"] {
        let arguments = [
            "demo",
            "--transport",
            transport,
            "--workers",
            "2",
            "--size",
            "64KiB",
            "--iterations",
            "1",
            "--format",
            "json",
            "--patience",
            PATIENCE,
        ];
        let given_up: &[&str] = match rustix::process::geteuid().is_root() {
            true => &["--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"],
            false => &["--no-new-privs"],
        };
        let program = env!("CARGO_BIN_EXE_fanin");
        let output = Command::new("setpriv").args(given_up).arg(program).args(arguments).output().expect("setpriv, of util-linux");
        assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
        assert!(all_exact(&serde_json::from_slice(&output.stdout).unwrap()), "{transport}");
    }
}

#[test]
fn vectors_of_no_element_and_of_one_and_a_lone_worker_work() {
    for size in ["0", "4", "20"] {
        for workers in ["1", "2"] {
            let result = succeed(&["--size", size, "--workers", workers, "--iterations", "1", "--patience", PATIENCE]);
            assert!(all_exact(&result), "{result}");
        }
    }
}

#[test]
fn a_worker_that_is_killed_is_named_by_all_others_that_lack_its_contribution() {
    for system in ["tree", "ring", "switchml"] {
        let result = succeed(&["--system", system, "--size", "1MiB", "--iterations", "2", "--kill", "2", "--patience", "2"]);
        let last = result["iterations"].as_array().unwrap().last().unwrap();
        assert_eq!(last["ended"][2], Value::Null, "{result}");
        // Who has all sums when the worker dies is done, with exact sums; somebody is not, and names it.
        let (done, failed): (Vec<_>, Vec<_>) = [0, 1, 3].into_iter().partition(|rank| last["ended"][rank] == "done");
        assert!(!failed.is_empty() && done.iter().all(|rank| last["wrong"][rank] == 0), "{result}");
        assert!(failed.iter().all(|rank| last["ended"][rank]["failed"]["suspect_rank"] == 2), "{result}");
        assert!(last["lost"][0].as_str().unwrap().contains("worker 2"), "{result}");
    }
}

#[test]
fn several_switches_sum_exactly_under_faults_and_name_whoever_is_killed() {
    for system in ["canary", "rina", "auto"] {
        let faults = ["--loss", "0.01", "--duplicate", "0.01", "--reorder", "0.01", "--corrupt", "0.01"];
        let arguments = ["--fabric", "--system", system, "--size", "256KiB", "--iterations", "2", "--patience", PATIENCE];
        let result = succeed(&[&arguments[..], &faults[..]].concat());
        assert!(all_exact(&result), "{result}");
        assert_eq!(result["system"], system);
        for kind in ["loss", "duplicate", "reorder", "corrupt"] {
            assert!(result["injected"][kind].as_u64().unwrap() > 0, "{kind}: {result}");
        }
    }
    let folder = common::folder("demo-fabric");
    let file = folder.join("fabric.toml");
    std::fs::write(&file, "[defaults]\nrate = \"1Gb/s\"\n[leaf_spine]\nleaves = 2\nspines = 1\nhosts_per_leaf = 1\nport = 7900\n").unwrap();
    let result =
        succeed(&["--fabric", file.to_str().unwrap(), "--workers", "5", "--size", "1MiB", "--iterations", "2", "--patience", PATIENCE]);
    assert!(
        all_exact(&result) && result["path"].as_str().unwrap().starts_with("memory in each of 2 hosts, and between hosts canary, UDP"),
        "{result}"
    );
    let arguments = ["--fabric", "2x1", "--system", "canary", "--workers", "3", "--size", "1MiB", "--iterations", "2"];
    let result = succeed(&[&arguments[..], &["--kill", "2", "--patience", "2"]].concat());
    let last = result["iterations"].as_array().unwrap().last().unwrap();
    let failed: Vec<_> = [0, 1].into_iter().filter(|rank| last["ended"][rank] != "done").collect();
    assert!(!failed.is_empty() && failed.iter().all(|rank| last["ended"][rank]["failed"]["suspect_rank"] == 2), "{result}");
}

#[test]
fn a_fabric_that_cannot_be_is_refused_by_what_is_wrong_with_it() {
    for (arguments, expected) in [
        (&["--fabric", "0x2"][..], "--fabric 0x2: expected at least one leaf and one spine"),
        (&["--fabric", "none.toml"], "--fabric none.toml: expected LEAVESxSPINES, as 2x2, or a file"),
        (&["--fabric", "--system", "unknown"], "--system unknown: expected auto, or a system that sums dense vectors over a fabric"),
        (&["--system", "canary"], "--system canary: expected switchml, tree or ring; other systems need --fabric"),
        (&["--fabric", "--transport", "shm"], "--transport shm: in a fabric each rank is a host of its own"),
    ] {
        let output = demo(arguments).output().unwrap();
        assert!(!output.status.success() && text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
    }
}

#[test]
fn in_shared_memory_sums_are_exact_and_whoever_is_killed_is_named() {
    let arguments = ["--transport", "auto", "--workers", "3", "--size", "1MiB", "--iterations", "2", "--patience"];
    let result = succeed(&[&arguments[..], &[PATIENCE]].concat());
    assert!(all_exact(&result) && result["path"] == "shared memory" && result["params"]["payload_bytes"].is_null(), "{result}");
    // What is to be lost must be sent.
    let result = succeed(&[&arguments[..], &[PATIENCE, "--loss", "0.05"]].concat());
    assert!(all_exact(&result) && result["params"]["payload_bytes"] == 1_408, "{result}");
    let result = succeed(&[&arguments[..], &["2", "--kill", "1"]].concat());
    let last = result["iterations"].as_array().unwrap().last().unwrap();
    assert!([0, 2].iter().any(|rank: &usize| last["ended"][*rank]["failed"]["suspect_rank"] == 1), "{result}");
}

#[test]
fn wrong_arguments_are_refused_with_what_was_expected() {
    for (arguments, expected) in [
        (["--size", "5"], "whole number of float32"),
        (["--loss", "1.5"], "less than 1"),
        (["--kill", "9"], "only workers 0 to 3"),
        (["--payload", "70000"], "at most"),
        (["--transport", "rdma"], "auto, udp, shm"),
    ] {
        let output = demo(&arguments).output().unwrap();
        assert!(!output.status.success());
        assert!(text(&output.stderr).contains(expected), "{arguments:?}: {}", text(&output.stderr));
    }
}

/// Processes that are children of `parent`.
fn children_of(parent: u32) -> Vec<u32> {
    let stat_of = |process: &Path| std::fs::read_to_string(process.join("stat")).ok();
    let processes = std::fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    // Behind the name in parentheses come the state and the parent.
    let parent_of = |stat: &str| stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok();
    processes
        .filter(|process| stat_of(process).and_then(|stat| parent_of(&stat)) == Some(parent))
        .filter_map(|process| process.file_name()?.to_str()?.parse().ok())
        .collect()
}

fn is_running(process: u32) -> bool {
    // A zombie has ended; its parent has only not noticed yet.
    std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// A demo that runs for a long time, and its node processes in the order in which they were started.
fn start(patience: &str) -> (Child, Vec<u32>) {
    let arguments = ["--size", "4MiB", "--iterations", "1000000", "--patience", patience];
    let demo = demo(&arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut children = Vec::new();
    while children.len() < 5 {
        std::thread::sleep(Duration::from_millis(10));
        children = children_of(demo.id());
    }
    children.sort_unstable();
    (demo, children)
}

fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap().success());
}

fn none_is_left(children: &[u32]) {
    // Returns as soon as all have ended; a test that hangs here has found a process left behind.
    while children.iter().any(|&child| is_running(child)) {
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn an_interrupted_demo_ends_itself_and_its_children() {
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let (demo, children) = start(PATIENCE);
        // In whatever state it is: starting, running or checking.
        signal(demo.id(), name);
        let Output { status, stderr, .. } = demo.wait_with_output().unwrap();
        assert_eq!(status.code(), Some(code), "{}", text(&stderr));
        assert!(text(&stderr).contains("interrupted"), "{}", text(&stderr));
        assert!(children.iter().all(|&child| !is_running(child)), "children end before the demo does");
    }
}

#[test]
fn the_children_of_a_demo_that_is_killed_end_by_themselves() {
    let (mut demo, children) = start(PATIENCE);
    demo.kill().unwrap();
    demo.wait().unwrap();
    none_is_left(&children);
}

#[test]
fn a_switch_that_dies_is_an_error_and_no_hang() {
    let (mut demo, children) = start("1");
    // The switch is started last.
    signal(*children.last().unwrap(), "KILL");
    assert_eq!(demo.wait().unwrap().code(), Some(1));
    none_is_left(&children);
}
