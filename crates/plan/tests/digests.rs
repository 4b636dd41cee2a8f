//! Results stay byte for byte what they are: a digest of the full record and the links of a run of each system, in networks of each shape, with each load
//! balancer, with losses, lossless, and beside background traffic. `digests.txt` holds them; a change of behaviour changes it, and with
//! `FANIN_WRITE` in the environment it is written anew. What a system cannot do is held by what is said of it.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::{env, fs};

use fanin_plan::results::write_json;
use fanin_plan::run::cores::{Cores, OnCores};
use fanin_plan::run::view::Looks;
use fanin_plan::run::{self, Finished};
use fanin_plan::traced::Wanted;
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

/// A system's plan.
fn plan(system: &str, sets: &[&str]) -> Result<Plan, PlanError> {
    let own = [format!("jobs.0.system={system}")];
    let sets: Vec<String> = own.into_iter().chain(sets.iter().map(|set| set.to_string())).collect();
    let is_reliable = sets.iter().all(|set| set != "jobs.0.reliable=false");
    let lines = BASE.lines().filter(|line| is_reliable || !line.starts_with("rto"));
    let plan = Plan::parse("plan", &lines.collect::<Vec<_>>().join("\n"), &sets, None)?;
    run::check(&plan)?;
    Ok(plan)
}

/// The digest of a run's record in so many parts, but for the time that it took; and on how many cores it was.
fn digest(plan: &Plan, parts: usize) -> (String, OnCores) {
    let cores = Cores { runs: 1, parts, hosts_min: 0 };
    let (mut finished, _) = run::run_on(plan, cores, Looks::default(), || true).expect("nobody interrupts it");
    let Finished { record, links, cores, .. } = &mut finished[0];
    record.wall_s = 0.0;
    let mut json = Vec::new();
    write_json(&[&*record], true, &mut json).expect("memory takes all");
    serde_json::to_writer(&mut json, &*links).expect("memory takes all");
    let digest: String = Sha256::digest(&json).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    (format!("{digest} {} {} hops, {} events", record.census, record.packet_hops, record.events), std::mem::take(cores))
}

#[test]
fn results_of_all_systems_stay_as_they_are() {
    let mut table = String::new();
    let mut ran = 0;
    for system in System::NAMES {
        for (name, sets) in CASES {
            let line = plan(system, sets).map(|plan| digest(&plan, 1).0);
            let line = line.map_err(|error| error.to_string().lines().next().unwrap_or_default().to_string());
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

/// The same digests whatever the number of parts, and what keeps a run on one core; `parts.txt` says which do.
#[test]
fn results_do_not_depend_on_the_number_of_parts() {
    let held = fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/digests.txt")).unwrap();
    let mut held = held.lines();
    let mut table = String::new();
    for system in System::NAMES {
        for (name, sets) in CASES {
            let line = held.next().unwrap_or_default();
            let Ok(plan) = plan(system, sets) else { continue };
            let mut said: Vec<&str> = Vec::new();
            for parts in [2, 3, 8] {
                let (digest, cores) = digest(&plan, parts);
                assert!(line.ends_with(&digest), "{system} {name} in {parts} parts: {digest}, was {line}");
                assert_ne!(cores.parts.is_some(), cores.one_core.is_some(), "{system} {name}");
                said.push(cores.one_core.unwrap_or("in parts"));
            }
            said.dedup();
            writeln!(table, "{system:<10} {name:<24} {}", said.join(", ")).unwrap();
        }
    }
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/parts.txt");
    if env::var_os("FANIN_WRITE").is_some() {
        fs::write(&path, &table).unwrap();
    }
    assert!(
        fs::read_to_string(&path).unwrap_or_default() == table,
        "other runs go in parts (FANIN_WRITE=1 writes parts.txt anew):\n{table}"
    );
}

/// Several jobs that share switches, whose ends all of these learn at once; jobs that begin at different times; real elements; several
/// messages; a network that is congested.
#[test]
fn jobs_that_share_switches_do_not_depend_on_the_number_of_parts() {
    let job = |system: &str, more: &str| {
        format!(
            "[[jobs]]\nsystem = \"{system}\"\nworkers = 6\nmessage = \"128KiB\"\npayload = \"1KiB\"\nrto_initial = \"100us\"\nrto_min = \"20us\"\n{more}"
        )
    };
    let network = "[network]\nshape = \"fat-tree\"\nleaves = 4\nhosts_per_leaf = 4\nspines = 2\nrate = \"100Gb/s\"\nlatency = \"300ns\"\nrouting = \"adaptive\"\n";
    let mut in_parts = 0;
    for (systems, run) in [
        (["canary", "canary"], ""),
        (["atp", "atp"], ""),
        (["a2tp", "atp"], "payload = \"length\""),
        (["canary", "ring"], "payload = \"elements\""),
        (["tree", "ps"], ""),
        (["switchml", "sharp"], "time_limit = \"30us\""),
    ] {
        let jobs = [job(systems[0], "operations = 3\n"), job(systems[1], "start = \"5us\"\n")].concat();
        let text = format!("{network}{jobs}[run]\nseed = 3\n{run}\n");
        let plan = Plan::parse("shared", &text, &[], None).unwrap();
        let (expected, _) = digest(&plan, 1);
        for parts in [2, 3, 4] {
            let (found, cores) = digest(&plan, parts);
            assert_eq!(found, expected, "{systems:?} in {parts} parts: {cores:?}");
            in_parts += u32::from(cores.parts.is_some());
        }
    }
    assert!(in_parts >= 12, "{in_parts} in parts");
}

/// What runs are looked at for: jobs and memory over time, the network over time, blocks and queues of the first run.
#[test]
fn what_is_seen_of_runs_does_not_depend_on_the_number_of_parts() {
    // What one sees in so many parts, all of it, and whether it was in parts.
    let seen = |plan: &Plan, parts: usize, wanted: Option<&Wanted>| {
        let cores = Cores { runs: 1, parts, hosts_min: 0 };
        let (finished, traced) = run::run_on(plan, cores, Looks { wanted, page: true }, || true).expect("nobody interrupts it");
        let run = &finished[0];
        let mut record = run.record.clone();
        record.wall_s = 0.0;
        let view = serde_json::to_string(&(&record, &run.links, &run.view)).expect("memory takes all");
        let mut blocks = Vec::new();
        traced.iter().for_each(|traced| traced.write(&mut blocks).expect("memory takes all"));
        let text = format!("{view}\n{:?}\n{:?}\n{}", run.memory, run.series, String::from_utf8_lossy(&blocks));
        (text, (run.memory.len(), run.series.len(), run.view.network.is_some(), blocks.len()), run.cores.parts.is_some())
    };
    let second = "jobs.0.copies=2";
    let looks = ["run.series_interval=\"1us\"", "run.memory_interval=\"700ns\"", "network.routing=\"adaptive\""];
    for (system, more) in [
        ("ring", &[TRAFFIC][..]),
        ("tree", &[TRAFFIC, "jobs.0.trees=2"]),
        ("canary", &[TRAFFIC]),
        ("atp", &[second]),
        ("a2tp", &[second]),
        ("switchml", &["faults.links=[{ links = \"all\", loss = 0.004 }]"]),
        ("sharp", &["run.time_limit=\"12us\""]),
        ("panama", &["network.ecn=\"8KiB\"", "jobs.0.window=64"]),
    ] {
        let routes = ["tree", "switchml", "panama"].contains(&system) && !more.contains(&TRAFFIC);
        let sets: Vec<&str> = looks.iter().filter(|set| !routes || !set.contains("routing")).chain(more).copied().collect();
        let plan = plan(system, &sets).unwrap_or_else(|error| panic!("{error}"));
        let links = ["leaf0-spine0", "spine1-leaf3", "host0-leaf0"].map(String::from);
        let wanted = Wanted::new(&plan, Some("0:1"), &links).unwrap();
        for wanted in [None, Some(&wanted)] {
            let (expected, (memory, series, network, blocks), _) = seen(&plan, 1, wanted);
            assert!(series > 4 && network == wanted.is_none() && (blocks > 1_000) == wanted.is_some(), "{system}: {series} {blocks}");
            assert!(memory > 4 || ["ring"].contains(&system), "{system}: {memory}");
            for parts in [2, 3, 8] {
                let (found, _, in_parts) = seen(&plan, parts, wanted);
                let at = found.bytes().zip(expected.bytes()).position(|(a, b)| a != b).unwrap_or(found.len().min(expected.len()));
                let around =
                    |text: &str| String::from_utf8_lossy(&text.as_bytes()[at.saturating_sub(200)..(at + 80).min(text.len())]).to_string();
                assert!(found == expected, "{system} in {parts} parts: {}\n--- was\n{}", around(&found), around(&expected));
                assert!(in_parts, "{system} in {parts} parts");
            }
        }
    }
}

/// Processor seconds of this process, user and system.
fn cpu_s() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |place: usize| fields.get(place).and_then(|field| field.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

/// Also says how fast parts are: `cargo test --locked -p fanin-plan --test digests -- --ignored --nocapture`, with `FANIN_HOSTS` for one size.
#[test]
#[ignore = "takes minutes, and measures"]
fn minutes_of_large_networks_give_the_same_in_parts() {
    let sizes = env::var("FANIN_HOSTS").map_or_else(|_| vec![1_024, 8_192], |hosts| vec![hosts.parse().expect("a number of hosts")]);
    for (hosts, system) in sizes.into_iter().flat_map(|hosts: u32| ["canary", "tree", "ring"].map(|system| (hosts, system))) {
        // A ring of so many takes as many steps as it has ranks.
        let (leaf, message) = match hosts {
            ..=2_048 => (32, "1MiB"),
            _ if system == "ring" => continue,
            _ => (64, "256KiB"),
        };
        let text = format!(
            "[network]\nshape = \"fat-tree\"\nleaves = {}\nhosts_per_leaf = {leaf}\nspines = {leaf}\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n\
             routing = \"adaptive\"\n[[jobs]]\nsystem = \"{system}\"\nworkers = \"100%\"\nplacement = \"packed\"\nmessage = \"{message}\"\n\
             payload = \"1KiB\"\n[run]\nseed = 1\n",
            hosts / leaf
        );
        let plan = Plan::parse("speed", &text, &[], None).unwrap();
        let mut first = None;
        for (round, parts) in (0..2).flat_map(|round| [1, 2].map(|parts| (round, parts))) {
            let (begin, cpu) = (std::time::Instant::now(), cpu_s());
            let (digest, cores) = digest(&plan, parts);
            let (wall, cpu) = (begin.elapsed().as_secs_f64(), cpu_s() - cpu);
            let most = cores.parts.as_ref().map_or(1.0, |report| report.speedup_max());
            println!(
                "{hosts} {system} round {round}, {parts} parts: {wall:.2} s, {cpu:.2} CPU s, speed-up at most {most:.3}, {digest}, {cores:?}"
            );
            assert_eq!(cores.parts.is_some(), parts > 1, "{hosts} {system}");
            assert_eq!(*first.get_or_insert_with(|| digest.clone()), digest, "{hosts} {system} in {parts} parts");
        }
    }
}
