//! What `--check` accepts can be run: every system in every network, with what packets carry, with and without loss recovery.

use fanin_plan::Plan;
use fanin_plan::run::{self, RunError};
use fanin_systems::System;

const NETWORKS: &[(&str, &str)] = &[
    ("star", "shape = \"star\"\nhosts = 10"),
    ("one leaf", "shape = \"fat-tree\"\nleaves = 1\nhosts_per_leaf = 10\nspines = 1"),
    ("fat tree", "shape = \"fat-tree\"\nleaves = 3\nhosts_per_leaf = 4\nspines = 2"),
    ("some aggregate", "shape = \"fat-tree\"\nleaves = 3\nhosts_per_leaf = 4\nspines = 2\naggregating = [\"leaf0\", \"spine0\"]"),
    ("none aggregates", "shape = \"fat-tree\"\nleaves = 3\nhosts_per_leaf = 4\nspines = 2\naggregating = []"),
    ("fat tree of three levels", "shape = \"fat-tree-3\"\nports = 4"),
    ("dragonfly", "shape = \"dragonfly\"\ngroups = 3\nrouters = 2\nglobal_links = 1\nhosts_per_router = 2"),
    ("machines", "shape = \"machines\"\nmachines = 3\nper_machine = 4"),
    ("rails", "shape = \"rail-optimised\"\nmachines = 4\nper_machine = 3\nmachines_per_leaf = 2\nspines = 2"),
    ("rails, of machines' cards", "shape = \"rail-optimised\"\nmachines = 3\nper_machine = 4\ncards = \"machines\""),
    ("rails, through cards", "shape = \"rail-optimised\"\nmachines = 3\nper_machine = 4\nspines = 2\nnvls = true"),
    ("planes", "shape = \"fat-tree\"\nleaves = 3\nhosts_per_leaf = 4\nspines = 2\nplanes = 2"),
    (
        "lossless",
        "shape = \"fat-tree\"\nleaves = 3\nhosts_per_leaf = 4\nspines = 2\nlossless = { model = \"input-queued\", input = \"8KiB\" }",
    ),
    ("file", "shape = \"file\"\nfile = \"tests/keys/a.toml\""),
    ("file, as wired", "shape = \"file\"\nfile = \"../../examples/networks/racks.toml\"\naggregating = \"file\""),
];

/// Further keys of the job.
const JOBS: &[&str] = &["", "reliable = false", "element = \"i8\"\npayload = 1000", "workers = \"3..9\""];
const PAYLOADS: &[&str] = &["census", "length", "elements"];

#[test]
fn what_is_accepted_can_be_run() {
    let (mut accepted, mut refused) = (0, 0);
    for system in System::NAMES {
        for (name, network) in NETWORKS {
            for job in JOBS {
                // What packets carry is the same to networks, and to what jobs say.
                for payload in if job.is_empty() { PAYLOADS } else { &PAYLOADS[..1] } {
                    let workers = if job.contains("workers") { "" } else { "workers = 8\n" };
                    let text = format!(
                        "[network]\n{network}\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n[[jobs]]\nsystem = \"{system}\"\nmessage = \
                         4000\n{workers}{job}\n[run]\npayload = \"{payload}\"\nrepetitions = 2\ntime_limit = \"1ms\"\n"
                    );
                    let what = format!("{system}, {name}, {job:?}, {payload}");
                    let Ok(plan) = Plan::parse("plan", &text, &[], None) else { panic!("{what}") };
                    match run::check(&plan) {
                        Err(error) => {
                            refused += 1;
                            assert!(error.to_string().contains(": expected "), "{what}: {error}");
                        }
                        Ok(()) => {
                            accepted += 1;
                            match run::run(&plan, 1, || true) {
                                Ok(finished) => assert!(finished.iter().all(|run| run.record.is_exact()), "{what}"),
                                Err(RunError::Plan(error)) => panic!("{what}: accepted, and then refused: {error}"),
                                Err(other) => panic!("{what}: {other}"),
                            }
                        }
                    }
                }
            }
        }
    }
    assert!(accepted > 300 && refused > 100, "{accepted} accepted, {refused} refused");
}

/// A run that only some seeds can have is refused before the first one begins.
#[test]
fn every_repetition_is_looked_at() {
    // Rings of machines need as many workers on each, which random places seldom give.
    let text = "[network]\nshape = \"machines\"\nmachines = 2\nper_machine = 3\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n[[jobs]]\nsystem = \
                \"machines\"\nalgorithm = \"parallel-ring\"\nworkers = 4\nmessage = 8000\n";
    let single = |seed| Plan::parse("plan", text, &[], Some(seed)).and_then(|plan| run::check(&plan));
    let good = (0..100).find(|&seed| single(seed).is_ok() && single(seed + 1).is_err()).expect("some do, and some do not");
    let two = Plan::parse("plan", &format!("{text}[run]\nrepetitions = 2\n"), &[], Some(good)).unwrap();
    let error = run::check(&two).unwrap_err().to_string();
    assert!(error.contains("jobs[0].workers = 4: expected as many on each machine"), "{error}");
}
