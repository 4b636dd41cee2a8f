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

/// Two machines of two GPUs whose cards carry what their NVSwitches have summed, below one leaf of each rail.
const NVLS: &str = r#"
[network]
shape = "rail-optimised"
machines = 2
per_machine = 2
spines = 1
nvls = true
rate = "100Gb/s"
intra_rate = "800Gb/s"
latency = "1us"
intra_latency = "200ns"
[[jobs]]
system = "tree"
workers = 4
message = "1KiB"
"#;

/// A frame of 1024 bytes of payload and 57 of headers: on a link of 100 Gb/s, and of 800 Gb/s, in nanoseconds.
const FRAME_NS: f64 = 1_081.0 * 8.0 / 100.0;
const FRAME_INSIDE_NS: f64 = 1_081.0 * 8.0 / 800.0;
/// The first packet's way: to the NVSwitch, to the GPU that carries, to its rail's leaf; and back.
const WAY_NS: f64 = 4.0 * (FRAME_INSIDE_NS + 200.0) + 2.0 * (FRAME_NS + 1_000.0);

/// What is computed by hand, to the nanosecond.
#[track_caller]
fn takes(text: &str, sets: &[&str], ns: f64) {
    let us = outcome(text, sets).record.completion_us.unwrap();
    assert!((us * 1e3 - ns).abs() < 1.0, "{sets:?}: {} ns, not {ns}", us * 1e3);
}

#[test]
fn what_an_nvswitch_has_summed_goes_up_by_gpus_in_the_time_that_its_links_take() {
    takes(NVLS, &[], WAY_NS);
    for system in ["panama", "switchml"] {
        takes(NVLS, &[&format!("jobs.0.system={system}")], WAY_NS);
    }
    // 64 packets one after the other by one card, or 32 by each of two, to which the NVSwitch hands them in turn.
    let long = ["jobs.0.message=64KiB", "jobs.0.window=64"];
    takes(NVLS, &long, WAY_NS + 63.0 * FRAME_NS);
    takes(NVLS, &[&long[..], &["jobs.0.trees=2"]].concat(), WAY_NS + FRAME_INSIDE_NS + 31.0 * FRAME_NS);
    // Two leaves of each rail: a spine between them, by two more links each way.
    takes(NVLS, &["network.machines_per_leaf=1"], WAY_NS + 2.0 * (FRAME_NS + 1_000.0));
    // One machine needs no card: to its NVSwitch and back.
    takes(NVLS, &["jobs.0.placement=[0, 1]", "jobs.0.workers=2"], 2.0 * (FRAME_INSIDE_NS + 200.0));
}

#[test]
fn one_share_of_each_machine_goes_up() {
    let vector = 64 << 10;
    let sets = ["network.nvls=true", "jobs.0.collective=all-reduce", "jobs.0.placement=[0, 1, 2, 3, 4, 5, 6, 7]"];
    let by_cards = |sets: &[&str]| -> Vec<u64> {
        let done = outcome(RAILS, sets);
        assert!((0..4).all(|gpu| bytes(&done, &format!("host{gpu}"), "machine0") > vector));
        (0..4).map(|gpu| bytes(&done, &format!("host{gpu}"), &format!("rail{gpu}-leaf0"))).collect()
    };
    for system in ["tree", "panama", "sharp", "switchml"] {
        let system = format!("jobs.0.system={system}");
        let up = by_cards(&[&[system.as_str()], &sets[..]].concat());
        let used: Vec<u64> = up.iter().copied().filter(|bytes| *bytes > vector).collect();
        assert!(used.len() == 1 && used[0] < 5 * vector / 4 && up.iter().sum::<u64>() == used[0], "{system}: {up:?}");
    }
    // A share by each rail, as NCCL's trees above NVLS have it.
    let up = by_cards(&[&["jobs.0.system=tree", "jobs.0.trees=4"], &sets[..]].concat());
    assert!(up.iter().all(|bytes| (vector / 4..vector / 3).contains(bytes)), "{up:?}");
    // Only GPUs of the job carry: 1 and 2 of both machines.
    let some = by_cards_of(&[
        "network.nvls=true",
        "jobs.0.system=tree",
        "jobs.0.collective=all-reduce",
        "jobs.0.trees=4",
        "jobs.0.placement=[1, 2, 5, 6]",
    ]);
    assert!(some[0] == 0 && some[3] == 0 && some[1].abs_diff(some[2]) < vector / 8, "{some:?}");
}

fn by_cards_of(sets: &[&str]) -> Vec<u64> {
    let done = outcome(RAILS, sets);
    (0..4).map(|gpu| bytes(&done, &format!("host{gpu}"), &format!("rail{gpu}-leaf0"))).collect()
}

/// `examples/nvls.toml`, whose table examples/README.md has; `--nocapture` prints it.
#[test]
fn a_share_on_each_card_is_faster_than_one_card_and_than_trees_over_rails() {
    let text = include_str!("../../../examples/nvls.toml");
    let plan = plan(text, &[]).unwrap_or_else(|error| panic!("{error}"));
    let finished = run::run(&plan, 1, || true).unwrap();
    let of = |series: &str| {
        let run = finished.iter().find(|run| run.record.series.as_deref() == Some(series)).unwrap_or_else(|| panic!("{series}"));
        assert_eq!((run.record.census.as_str(), &run.record.failure), ("exact", &None), "{series}");
        let up: Vec<u64> = (0..8).map(|gpu| bytes(run, &format!("host{gpu}"), &format!("rail{gpu}"))).collect();
        (run.record.completion_us.unwrap(), up)
    };
    for run in &finished {
        let series = run.record.series.as_deref().unwrap();
        let (us, up) = of(series);
        println!(
            "{series:<24} {us:>8.1} us, {:>7.2} Gb/s, MiB by each card: {:.2?}",
            16.0 * 8.388608e3 / us,
            up.iter().map(|bytes| *bytes as f64 / 1048576.0).collect::<Vec<_>>()
        );
    }
    let us = |series: &str| of(series).0;
    let (rails, shares, one) = (us("8 trees over rails"), us("NVSwitch, a share a card"), us("NVSwitch, one card"));
    assert!(one / shares > 4.0 && shares < rails && shares < us("ring"), "{one} {shares} {rails}");
    // 4,096 frames of 4,153 bytes by one card, and what the first one takes to the root and back.
    let first_ns = 4.0 * (300.0 + 4_153.0 * 8.0 / 3_600.0) + 2.0 * (500.0 + 4_153.0 * 8.0 / 400.0);
    let expected_us = (first_ns + 4_095.0 * 4_153.0 * 8.0 / 400.0) / 1e3;
    assert!((one / expected_us - 1.0).abs() < 0.001, "{one} us, not {expected_us}");
}

/// All that trees through cards can meet: several rails, leaves, planes and jobs; losses, lossless links, hosts that stall, late packets.
#[test]
fn sums_through_cards_are_exact_whatever_happens() {
    const TWO: &str = r#"
        [[jobs]]
        system = "tree"
        trees = 4
        placement = [0, 2, 3, 5, 7, 10, 11]
        jobs_per_host = 2
        message = "96KiB"
        window = 32
        rto_initial = "100us"
        rto_min = "20us"
        [[jobs]]
        system = "tree"
        placement = [1, 4, 6, 8, 9, 10, 5, 0, 3]
        jobs_per_host = 2
        message = "64KiB"
        rto_initial = "100us"
        rto_min = "20us"
    "#;
    let text = RAILS.split("[[jobs]]").next().unwrap().to_string() + TWO;
    let conditions: [&[&str]; 11] = [
        &[],
        &["network.planes=2"],
        &["network.machines_per_leaf=1", "network.parallel_links=2"],
        &["faults.links=[{ links = \"all\", loss = 0.01, duplication = 0.01, reordering = 0.01, delay = \"5us\" }]"],
        &["network.lossless={ model = \"output-queued\", input = \"16KiB\" }"],
        &["network.lossless={ model = \"input-queued\", input = \"16KiB\" }"],
        &["network.queue=\"8KiB\"", "network.ecn=\"4KiB\""],
        &["network.trimming=hosts", "network.queue=\"8KiB\""],
        &["faults.timed=[{ kind = \"host-stall\", host = \"host5\", from = \"3us\", until = \"30us\" }]"],
        &["jobs.0.noise={ probability = \"20%\", delay = \"2us\" }"],
        &["network.processor={ cores = 4, packet_time = \"50ns\" }"],
    ];
    for systems in [["tree", "tree"], ["sharp", "sharp"], ["switchml", "panama"], ["panama", "ring"], ["flare", "machines"]] {
        for condition in conditions {
            let mut sets = vec!["network.nvls=true".to_string()];
            for (index, system) in systems.iter().enumerate() {
                sets.push(format!("jobs.{index}.system={system}"));
            }
            let mut text = text.clone();
            if systems[0] != "tree" {
                text = text.replace("trees = 4\n", "");
            }
            sets.extend(condition.iter().map(ToString::to_string));
            outcome(&text, &sets.iter().map(String::as_str).collect::<Vec<_>>());
        }
    }
}

#[test]
fn what_cannot_go_through_cards_is_refused_by_name() {
    let base = ["network.nvls=true", "jobs.0.placement=[0, 1, 4, 5]", "jobs.0.collective=all-reduce"];
    for system in ["canary", "atp", "a2tp", "netreduce", "rina"] {
        let words = refused(RAILS, &[&base[..], &[&format!("jobs.0.system={system}")]].concat());
        let expected = format!("jobs[0].system = \"{system}\": expected one whose trees go through cards, tree, ");
        assert!(words.contains(&expected) && words.ends_with("machines' switches sum here (nvls)"), "{words}");
    }
    for (sets, expected) in [
        (&["network.cards=machines", "network.nvls=false"][..], "network.nvls = false: expected true: with cards = \"machines\""),
        (&["network.aggregating=[\"machine0\"]"], "network.aggregating = [\"machine0\"]: expected no such list with nvls"),
        (&["network.trimming=all"], "network.trimming = \"all\": expected \"hosts\" with nvls"),
        (&["network.nvls=1"], "network.nvls = 1: expected"),
        (&["jobs.0.system=machines", "jobs.0.algorithm=parallel-netreduce"], "jobs[0].system = \"machines\": expected one whose trees"),
        (&["jobs.0.placement=[0, 1, 6]", "network.machines_per_leaf=3", "network.planes=1"], "spine"),
    ] {
        let words = plan(RAILS, &[&base[..], &["jobs.0.system=tree"], sets].concat()).map(drop);
        match words {
            Err(error) => assert!(error.to_string().contains(expected), "{error}"),
            // Machines that have no rail in common are joined by the spines.
            Ok(()) => assert_eq!(expected, "spine"),
        }
    }
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
    // The same where each GPU has its card to itself: it carries its share of the sum.
    let done = outcome(NVL, &["network.cards=hosts", "network.spines=1"]);
    let out: Vec<u64> = (0..72).map(|gpu| bytes(&done, &format!("host{gpu}"), &format!("rail{gpu}"))).collect();
    let share = vector / 72;
    assert!(out.iter().all(|bytes| (share / 2..2 * share).contains(bytes)), "{out:?}");
    // Unless the plan says that its NVSwitch does not sum.
    let done = outcome(NVL, &["network.cards=hosts", "network.spines=1", "network.nvls=false", "jobs.0.trees=1"]);
    assert!((0..72).all(|gpu| bytes(&done, &format!("host{gpu}"), &format!("rail{gpu}")) > vector));
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
