//! Results stay byte for byte what they are: a digest of the full record and the links of a run of each system, in networks of each shape, with each load
//! balancer, with losses, lossless, and beside background traffic. `digests.txt` holds them; a change of behaviour changes it, and with
//! `FANIN_WRITE` in the environment it is written anew. What a system cannot do is held by what is said of it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use fanin_plan::results::write_json;
use fanin_plan::run::{self, run};
use fanin_plan::{Plan, PlanError};
use fanin_systems::System;
use sha2::{Digest, Sha256};

const BASE: &str = r#"
[network]
shape = "fat-tree"
leaves = 4
hosts_per_leaf = 4
spines = 2
rate = "100Gb/s"
latency = "300ns"

[[jobs]]
workers = 7
placement = "spread"
message = "96KiB"
payload = "1KiB"
operations = 2
window = 16
rto_initial = "100us"
rto_min = "20us"

[run]
seed = 7
"#;

const TRAFFIC: &str = "traffic=[{ pattern = \"uniform\", hosts = \"rest\", message = \"16KiB\", load = 0.5 }]";
const THREE_LEVELS: &str = "network={ shape = \"fat-tree-3\", ports = 4, rate = \"100Gb/s\", latency = \"300ns\" }";
const DRAGONFLY: &str = "network={ shape = \"dragonfly\", groups = 5, routers = 2, global_links = 2, hosts_per_router = 2, rate = \"100Gb/s\", \
     latency = \"300ns\" }";
const STAR: &str = "network={ shape = \"star\", hosts = 16, rate = \"25Gb/s\", latency = \"1us\" }";

/// What each system is run with.
const CASES: [(&str, &[&str]); 15] = [
    ("alone", &[]),
    ("congested", &[TRAFFIC, "network.queue=\"32KiB\""]),
    ("losses", &["faults.links=[{ links = \"all\", loss = 0.004 }]"]),
    (
        "input-queued",
        &[TRAFFIC, "jobs.0.reliable=false", "network.lossless={ model = \"input-queued\", input = \"16KiB\", output = \"8KiB\" }"],
    ),
    (
        "input-queued, timers",
        &[TRAFFIC, "network.lossless={ model = \"input-queued\", input = \"16KiB\", output = \"8KiB\", made_packets = \"own-fifo\" }"],
    ),
    ("output-queued", &["jobs.0.reliable=false", "network.lossless={ model = \"output-queued\", input = \"16KiB\" }"]),
    ("star", &[STAR]),
    ("three levels", &[THREE_LEVELS]),
    ("three levels, congested", &[THREE_LEVELS, TRAFFIC, "network.routing=\"random\""]),
    ("three levels, adaptive", &[THREE_LEVELS, TRAFFIC, "network.routing=\"adaptive\""]),
    ("three levels, drill", &[THREE_LEVELS, TRAFFIC, "network.routing=\"drill\""]),
    (
        "three levels, lossless",
        &[
            THREE_LEVELS,
            TRAFFIC,
            "jobs.0.reliable=false",
            "network.routing=\"destination\"",
            "network.lossless={ model = \"input-queued\", input = \"16KiB\", output = \"8KiB\" }",
        ],
    ),
    ("dragonfly", &[DRAGONFLY, TRAFFIC, "network.routing=\"flowlet\""]),
    ("dragonfly, ugal", &[DRAGONFLY, TRAFFIC, "network.routing=\"ugal\""]),
    ("conga", &[TRAFFIC, "network.routing=\"conga\""]),
];

/// The digest of a run's record, but for the time that it took.
fn digest(system: &str, sets: &[&str]) -> Result<String, PlanError> {
    let own = [format!("jobs.0.system={system}")];
    let sets: Vec<String> = own.into_iter().chain(sets.iter().map(|set| set.to_string())).collect();
    let is_reliable = sets.iter().all(|set| set != "jobs.0.reliable=false");
    let lines = BASE.lines().filter(|line| is_reliable || !line.starts_with("rto"));
    let plan = Plan::parse("plan", &lines.collect::<Vec<_>>().join("\n"), &sets, None)?;
    run::check(&plan)?;
    let mut finished = run(&plan, 1, || true).expect("nobody interrupts it");
    finished[0].record.wall_s = 0.0;
    let record = &finished[0].record;
    let mut json = Vec::new();
    write_json(&[record], true, &mut json).expect("memory takes all");
    serde_json::to_writer(&mut json, &finished[0].links).expect("memory takes all");
    let digest: String = Sha256::digest(&json).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{digest} {} {} hops, {} events", record.census, record.packet_hops, record.events))
}

#[test]
fn results_of_all_systems_stay_as_they_are() {
    let mut table = String::new();
    let mut ran = 0;
    for system in System::NAMES {
        for (name, sets) in CASES {
            let line = digest(system, sets).map_err(|error| error.to_string().lines().next().unwrap_or_default().to_string());
            ran += usize::from(line.is_ok());
            writeln!(table, "{system:<10} {name:<24} {}", line.unwrap_or_else(|refused| format!("refused: {refused}"))).unwrap();
        }
    }
    assert!(ran >= 10 * System::NAMES.len(), "{ran} runs are left: {table}");
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/digests.txt");
    if env::var_os("FANIN_WRITE").is_some() {
        fs::write(&path, &table).unwrap();
    }
    let held = fs::read_to_string(&path).unwrap();
    let differ: Vec<String> =
        held.lines().zip(table.lines()).filter(|(held, now)| held != now).map(|(held, now)| format!("was {held}\nis  {now}")).collect();
    assert!(held == table, "results have changed (FANIN_WRITE=1 writes digests.txt anew):\n{}", differ.join("\n"));
}
