//! Networks of rails and planes, and hardware of today, against what can be counted by hand.

use fanin_plan::run::{self, Finished};
use fanin_plan::{Plan, PlanError};

fn plan(text: &str, sets: &[&str]) -> Result<Plan, PlanError> {
    let sets: Vec<String> = sets.iter().map(ToString::to_string).collect();
    let plan = Plan::parse("plan", text, &sets, None)?;
    run::check(&plan)?;
    Ok(plan)
}

fn outcome(text: &str, sets: &[&str]) -> Finished {
    let plan = plan(text, sets).unwrap_or_else(|error| panic!("{text}{sets:?}: {error}"));
    let finished = run::run(&plan, 1, || true).unwrap().remove(0);
    assert_eq!((finished.record.census.as_str(), &finished.record.failure), ("exact", &None), "{text}{sets:?}");
    finished
}

fn refused(text: &str, sets: &[&str]) -> String {
    plan(text, sets).map(drop).unwrap_err().to_string()
}

/// Bytes from one node to another.
fn bytes(finished: &Finished, from: &str, to: &str) -> u64 {
    finished.links.iter().filter(|link| &*link.from == from && &*link.to == to).map(|link| link.bytes).sum()
}

/// Three machines of four GPUs, two below each leaf of a rail.
const RAILS: &str = r#"
[network]
shape = "rail-optimised"
machines = 3
per_machine = 4
machines_per_leaf = 2
spines = 2
rate = "400Gb/s"
intra_rate = "3600Gb/s"
latency = "300ns"
[[jobs]]
system = "exchange"
collective = "broadcast"
message = "64KiB"
"#;

#[test]
fn gpus_of_a_rail_are_one_switch_away_from_each_other() {
    let vector = 64 << 10;
    // Rank 0 is GPU 1 of machine 0, rank 1 the GPU of the same place in machine 1: host5.
    let same = outcome(RAILS, &["jobs.0.placement=[1, 5]"]);
    assert!(bytes(&same, "host1", "rail1-leaf0") > vector && bytes(&same, "rail1-leaf0", "host5") > vector);
    assert_eq!((bytes(&same, "rail1-leaf0", "spine0"), bytes(&same, "rail1-leaf0", "spine1")), (0, 0));
    // Machine 2 is below another leaf of the rail.
    let far = outcome(RAILS, &["jobs.0.placement=[1, 9]"]);
    assert!(bytes(&far, "rail1-leaf0", "spine0") + bytes(&far, "rail1-leaf0", "spine1") > vector);
    assert!(bytes(&far, "rail1-leaf1", "host9") > vector);
    // Another rail of the next machine: hosts do not forward, so it is by a spine.
    let other = outcome(RAILS, &["jobs.0.placement=[1, 6]"]);
    assert!(bytes(&other, "rail2-leaf0", "host6") > vector && bytes(&other, "host1", "machine0") == 0);
    // Within a machine it is by its switch.
    let inside = outcome(RAILS, &["jobs.0.placement=[1, 2]"]);
    assert!(bytes(&inside, "host1", "machine0") > vector && bytes(&inside, "host1", "rail1-leaf0") == 0);
}

#[test]
fn cards_of_machines_carry_what_has_been_summed_inside() {
    let tree = ["jobs.0.system=tree", "jobs.0.collective=all-reduce", "jobs.0.placement=[0, 1, 2, 3, 4, 5, 6, 7]"];
    let vector = 64 << 10;
    let up = |finished: &Finished, machine: &str, leaf: &str| {
        (0..4).map(|rail| bytes(finished, machine, &format!("rail{rail}{leaf}"))).sum::<u64>()
    };
    // By hosts' cards, each GPU's vector leaves the machine.
    let by_hosts = outcome(RAILS, &tree);
    let cards: u64 = (0..4).map(|gpu| bytes(&by_hosts, &format!("host{gpu}"), &format!("rail{gpu}-leaf0"))).sum();
    assert!(cards > 4 * vector, "{cards}");
    // By the machine's, one does: the sum of all four.
    let by_machines = outcome(RAILS, &[&tree[..], &["network.cards=machines"]].concat());
    let cards = up(&by_machines, "machine0", "-leaf0");
    assert!(cards > vector && cards < 5 * vector / 4, "{cards}");
    assert!(bytes(&by_machines, "host2", "machine0") > vector);
    // Without spines below one leaf of each rail: the roots of trees are leaves of rails.
    let flat = [&tree[..], &["network.cards=machines", "network.machines_per_leaf=3", "jobs.0.trees=4"]].concat();
    let flat = outcome(&RAILS.replace("spines = 2\n", ""), &flat);
    let used = (0..4).filter(|rail| bytes(&flat, "machine0", &format!("rail{rail}")) > vector / 8).count();
    assert_eq!(used, 4, "{:?}", flat.links.iter().filter(|link| &*link.from == "machine0").collect::<Vec<_>>());
}

#[test]
fn planes_are_not_joined_and_hosts_use_all_of_them() {
    const PLANES: &str = r#"
        [network]
        shape = "fat-tree"
        leaves = 2
        hosts_per_leaf = 2
        spines = 1
        planes = 2
        rate = "100Gb/s"
        latency = "300ns"
        nic_queue = "4KiB"
        routing = "random"
        [[jobs]]
        system = "exchange"
        collective = "broadcast"
        placement = [0, 2]
        message = "1MiB"
        window = 512
    "#;
    let two = outcome(PLANES, &[]);
    let sent = |finished: &Finished, plane| bytes(finished, "host0", &format!("plane{plane}-leaf0"));
    let (first, second) = (sent(&two, 0), sent(&two, 1));
    assert!(first.abs_diff(second) < (first + second) / 10, "{first} and {second}");
    assert!(two.links.iter().all(|link| link.from.starts_with("host") || link.to.starts_with("host") || link.from[..6] == link.to[..6]));
    // Both links of a host carry it in nearly half the time of one.
    let one = outcome(
        PLANES,
        &[
            "network={ shape = \"fat-tree\", leaves = 2, hosts_per_leaf = 2, spines = 1, rate = \"100Gb/s\", latency = \"300ns\", nic_queue = \"4KiB\" }",
        ],
    );
    let time = |finished: &Finished| finished.record.completion_us.unwrap();
    assert!(time(&two) < 0.6 * time(&one), "{} and {}", time(&two), time(&one));
    // What switches sum is in the first plane.
    let sums =
        outcome(&PLANES.replace("routing = \"random\"", ""), &["jobs.0.system=tree", "jobs.0.collective=all-reduce", "jobs.0.window=64"]);
    assert_eq!(sent(&sums, 1), 0);
}

const SHARP: &str = r#"
    [network]
    shape = "fat-tree"
    leaves = 2
    hosts_per_leaf = 4
    spines = 2
    latency = "300ns"
    [[jobs]]
    system = "sharp"
    mode = "streaming"
    refused = "wait"
    placement = [0, 1, 4, 5]
    message = "1MiB"
    [[jobs]]
    system = "sharp"
    mode = "streaming"
    refused = "wait"
    placement = [2, 3, 6, 7]
    message = "1MiB"
"#;

#[test]
fn hardware_of_today_says_what_the_plan_does_not() {
    let run = |sets: &[&str]| outcome(SHARP, sets).record;
    let at = |preset: &str, rate: &str| {
        let (preset, rate) = (format!("network.hardware={preset}"), format!("network.rate={rate}"));
        // Jobs draw their roots: one pair of seeds in which they differ.
        (1..16).map(|seed| run(&[&preset, &rate, &format!("run.seed={seed}")]).simulated_us).fold(f64::INFINITY, f64::min)
    };
    let (quantum, quantum_2) = (at("quantum", "400Gb/s"), at("quantum-2", "400Gb/s"));
    // Two jobs of which neither has a port of the other's take the time of one.
    assert!(quantum_2 < 0.6 * quantum, "{quantum_2} and {quantum} us");
    // Links are as fast as the preset's, unless the plan says it.
    let faster = run(&["network.hardware=quantum-x800"]).simulated_us;
    assert!((faster / (quantum_2 / 2.0) - 1.0).abs() < 0.5, "{faster} and {quantum_2}");
    let plan = plan(SHARP, &["network.hardware=quantum-2", "jobs.0.streams_by=switch", "jobs.1.streams_by=switch"]).unwrap();
    assert!(format!("{:?}", plan.points[0].setup.jobs[0].system).contains("streams_by: Switch"));
    let mixed = refused(SHARP, &["network.hardware=quantum-2", "jobs.1.streams_by=switch"]);
    assert!(mixed.ends_with("streams_by = \"switch\": expected \"port\", as in the jobs before it: they share their switches"), "{mixed}");
    let by_nobody = refused(SHARP, &["network.hardware=spectrum-x"]);
    assert!(by_nobody.contains("jobs[0].system = \"sharp\": expected"), "{by_nobody}");
    let named = refused(SHARP, &["network.hardware=quantum-3"]);
    assert!(named.contains("network.hardware = \"quantum-3\"") && named.contains("quantum-x800"), "{named}");
    assert!(
        refused(SHARP, &["network.hardware=nvl72"])
            .ends_with("network.shape = \"fat-tree\": expected \"rail-optimised\" with hardware of preset \"nvl72\"")
    );
}

#[test]
fn a_domain_of_72_sums_inside() {
    const NVL: &str = r#"
        [network]
        shape = "rail-optimised"
        machines = 2
        latency = "500ns"
        hardware = "nvl72"
        [[jobs]]
        system = "tree"
        workers = "100%"
        trees = 72
        message = "1MiB"
    "#;
    let done = outcome(NVL, &[]);
    assert_eq!(done.record.hosts, 144);
    let vector = 1u64 << 20;
    // 900 GB/s from each GPU into its switch, and one sum out of the machine over the cards of all.
    let out: Vec<u64> = (0..72).map(|rail| bytes(&done, "machine0", &format!("rail{rail}"))).collect();
    let all: u64 = out.iter().sum();
    assert!(all > vector && all < 5 * vector / 4, "{all}");
    assert!(out.iter().filter(|bytes| **bytes > 0).count() > 36, "{out:?}");
}

#[test]
fn numbers_that_do_not_fit_are_named() {
    for (sets, expected) in [
        (&["network.machines_per_leaf=0"][..], "network.machines_per_leaf = 0: expected a whole number of 1 or more"),
        (&["network.planes=9"], "network.planes = 9: expected 1 to 8"),
        (&["network.machines=200000"], "network.per_machine = 4: expected at most 524288 hosts in all, not 800000"),
        (&["network.cards=racks"], "network.cards = \"racks\": expected"),
        (&["network.leaves=4"], "network.leaves = 4: expected no such key with shape = \"rail-optimised\""),
    ] {
        let words = refused(RAILS, &[&["jobs.0.placement=[1, 5]"], sets].concat());
        assert!(words.contains(expected), "{words}");
    }
    let words = refused(&RAILS.replace("spines = 2\n", ""), &["jobs.0.placement=[1, 5]"]);
    assert!(
        words.contains("network.spines is missing: expected 1 or more: hosts of different leaves have no other way to each other"),
        "{words}"
    );
}

/// A tree a job, and so many trees a mode.
#[test]
fn jobs_of_sharp_that_begin_together_are_at_most_as_many_as_trees() {
    let many = |preset: &str, copies: u32, more: &[&str]| {
        let sets = [format!("network.hardware={preset}"), format!("jobs.0.copies={copies}")];
        let shared = ["jobs.0.jobs_per_host=1024", "jobs.1.jobs_per_host=1024", "jobs.0.placement=random", "jobs.0.workers=2"];
        plan(SHARP, &[&sets.each_ref().map(String::as_str)[..], &shared[..], more].concat()).map(|_| ()).map_err(|error| error.to_string())
    };
    assert_eq!(many("quantum", 62, &[]), Ok(()));
    let refused_many = many("quantum", 63, &[]).unwrap_err();
    assert!(refused_many.contains("jobs[1].system = \"sharp\": expected at most 63 jobs of sharp that stream"), "{refused_many}");
    assert_eq!(many("quantum", 63, &["jobs.1.mode=low-latency"]), Ok(()));
    assert_eq!(many("quantum", 63, &["jobs.1.start=1ms"]), Ok(()));
    assert_eq!(many("quantum-2", 510, &[]), Ok(()));
    assert!(many("quantum-2", 600, &[]).unwrap_err().contains("jobs[0].copies = 600: expected at most 511"), "{refused_many}");
}
