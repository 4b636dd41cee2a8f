//! Switches that can do what a prototype's can (`network.hardware`): further passes, multicast groups, scans, rates and memory, with times that can
//! be worked out by hand; and what a switch could not do is refused by key.

use fanin_plan::Plan;
use fanin_plan::results::RunRecord;
use fanin_plan::run::run;
use fanin_systems::{CanaryParameters, System};

const STAR: &str = "shape = \"star\"\nhosts = 8\nrate = \"100Gb/s\"\nlatency = \"300ns\"\nqueue = \"8MiB\"";
/// A window that no repetition disturbs.
const TREE: &str = "system = \"tree\"\nworkers = 4\nmessage = \"1KiB\"\nwindow = 64\nrto_initial = \"1s\"\nrto_min = \"1s\"";
const CANARY: &str =
    "system = \"canary\"\nworkers = 8\nmessage = \"1KiB\"\nwindow = 64\nleader = \"fixed:0\"\nrto_initial = \"1s\"\nrto_min = \"1s\"";
/// A frame of 1 KiB of vector on the wire, in us at 100 Gb/s.
const FRAME_US: f64 = (1_024.0 + 57.0) * 8.0 / 100_000.0;

fn parse(network: &str, hardware: &str, job: &str) -> Result<Plan, String> {
    let hardware = if hardware.is_empty() { String::new() } else { format!("hardware = {hardware}\n") };
    let text = format!("[network]\n{network}\n{hardware}[[jobs]]\n{job}\npatience = \"9s\"\n[run]\ntime_limit = \"20s\"\n");
    let plan = Plan::parse("plan.toml", &text, &[], None).map_err(|error| error.to_string())?;
    plan.check_keys().map_err(|error| error.to_string())?;
    Ok(plan)
}

fn record(hardware: &str, job: &str) -> RunRecord {
    let plan = parse(STAR, hardware, job).unwrap_or_else(|error| panic!("{error}"));
    let record = run(&plan, 1, || true).expect("the plan runs").remove(0).record;
    assert!(record.is_good() && record.is_exact(), "{record:?}");
    record
}

fn took_us(hardware: &str, job: &str) -> f64 {
    record(hardware, job).completion_us.expect("complete")
}

fn canary(network: &str, hardware: &str, job: &str) -> CanaryParameters {
    let plan = parse(network, hardware, job).unwrap_or_else(|error| panic!("{error}"));
    match plan.prepare(&plan.points[0], 0).unwrap_or_else(|error| panic!("{error}")).jobs[0].system {
        System::Canary(parameters) => parameters,
        other => panic!("{other:?}"),
    }
}

/// The groups' ports and whether anything passes again, of a canary job.
fn shard_ports(network: &str, hardware: &str, job: &str) -> Option<u16> {
    let plan = parse(network, hardware, job).unwrap_or_else(|error| panic!("{error}"));
    plan.prepare(&plan.points[0], 0).unwrap_or_else(|error| panic!("{error}")).pipeline.and_then(|pipeline| pipeline.shard_ports)
}

fn refused(network: &str, hardware: &str, job: &str) -> String {
    match parse(network, hardware, job) {
        Err(error) => error,
        Ok(plan) => match plan.prepare(&plan.points[0], 0) {
            Err(error) => error.to_string(),
            Ok(_) => run(&plan, 1, || true).expect_err("it cannot be built").to_string(),
        },
    }
}

/// 256 elements at 64 a pass are led back three times, one packet after the other: the sum leaves when the last of four has passed.
#[test]
fn packets_pass_again_one_after_the_other() {
    let free = took_us("", TREE);
    let back = took_us("{ elements = 64, recirculation = \"100Gb/s\" }", TREE);
    assert!((back - free - 4.0 * 3.0 * FRAME_US).abs() < 0.001, "{free} us and {back} us");
    let faster = took_us("{ elements = 64, recirculation = \"400Gb/s\" }", TREE);
    assert!((faster - free - 3.0 * FRAME_US).abs() < 0.001, "{free} us and {faster} us");
    // What a pass takes besides delays each, and keeps no port busy.
    let slower = took_us("{ elements = 64, recirculation = \"400Gb/s\", pass_time = \"1us\" }", TREE);
    assert!((slower - faster - 3.0).abs() < 0.001, "{faster} us and {slower} us");
    for one_pass in ["{ elements = 256 }", "\"unlimited\"", "{ elements = 256, recirculation = \"1Gb/s\" }"] {
        assert_eq!(took_us(one_pass, TREE), free, "{one_pass}");
    }
}

/// Four workers at full rate need three further passes for each packet: at 100 Gb/s they get a twelfth of theirs.
#[test]
fn ports_that_lead_back_limit_the_goodput() {
    let long = TREE.replace("1KiB", "1MiB");
    let (free, back) = (record("", &long), record("{ elements = 64, recirculation = \"100Gb/s\" }", &long));
    let expected_us = 1_024.0 * 4.0 * 3.0 * FRAME_US;
    let took = back.completion_us.expect("complete");
    assert!((took / expected_us - 1.0).abs() < 0.01, "{took} us, {expected_us} expected");
    assert!(back.recirculation_busy.is_some_and(|share| share > 0.98) && free.recirculation_busy.is_none(), "{back:?}");
    // With as much as they send three times over, nothing is lost but the last packets' time.
    let enough = took_us("{ elements = 64, recirculation = \"1200Gb/s\" }", &long);
    assert!(enough < free.completion_us.expect("complete") * 1.02, "{enough} us");
}

/// What waits to be led back has a buffer: contributions that find no room are dropped, and every sum is exact all the same.
#[test]
fn contributions_without_room_are_dropped_and_retransmitted() {
    let job = "system = \"tree\"\nworkers = 4\nmessage = \"256KiB\"\nwindow = 64";
    let network = STAR.replace("8MiB", "32KiB");
    let plan = parse(&network, "{ elements = 64, recirculation = \"50Gb/s\" }", job).unwrap();
    let record = run(&plan, 1, || true).expect("the plan runs").remove(0).record;
    assert!(record.is_good() && record.is_exact(), "{record:?}");
    assert!(record.packets_dropped > 0, "{record:?}");
}

/// A packet that is led back is in the queue once at a time: with room for two it comes through, however many passes it needs.
#[test]
fn a_packet_with_more_passes_than_there_is_room_for_comes_through() {
    let job = "system = \"tree\"\nworkers = 4\nmessage = \"16KiB\"\nwindow = 1";
    let network = STAR.replace("8MiB", "2200B");
    let plan = parse(&network, "{ elements = 16, recirculation = \"100Gb/s\" }", job).unwrap();
    let record = run(&plan, 1, || true).expect("the plan runs").remove(0).record;
    assert!(record.is_good() && record.is_exact(), "{record:?}");
}

/// The result goes to seven ports: two shards of four, so one further pass, and none where a pass has two groups.
#[test]
fn a_multicast_to_several_shards_passes_again() {
    let free = took_us("", CANARY);
    let with = |more: &str| took_us(&format!("{{ groups = 32, recirculation = \"100Gb/s\"{more} }}"), CANARY);
    assert_eq!(shard_ports(STAR, "{ groups = 32, recirculation = \"100Gb/s\" }", CANARY), Some(4));
    let one = with("");
    assert!((one - free - FRAME_US).abs() < 0.001, "{free} us and {one} us");
    assert_eq!(with(", groups_per_pass = 2"), free);
    // Trees know their groups.
    assert_eq!(took_us("{ groups = 32, recirculation = \"100Gb/s\" }", TREE), took_us("", TREE));
}

/// Canary 4.2: four shards of 64 ports take 262,144 groups. 65,536, as many as 16 bits name, are enough for five.
#[test]
fn shards_are_as_long_as_there_are_groups_for() {
    let network = STAR.replace("hosts = 8", "hosts = 64");
    let ports = |groups: u32| shard_ports(&network, &format!("{{ groups = {groups}, recirculation = \"1Tb/s\" }}"), CANARY);
    assert_eq!(ports(262_144), Some(16));
    assert_eq!(ports(262_143), Some(15));
    assert_eq!(ports(65_536), Some(13));
    assert_eq!(ports(128), Some(2), "32 shards of 4 groups each");
    let error = refused(&network, "{ groups = 127, recirculation = \"1Tb/s\" }", CANARY);
    assert!(error.contains("network.hardware.groups") && error.contains("128 multicast groups or more"), "{error}");
    let error = refused(STAR, "{ groups = 1 }", &TREE.replace("\"tree\"", "\"tree\"\ntrees = 1\ncopies = 2\njobs_per_host = 2"));
    assert!(error.contains("network.hardware.groups") && error.contains("2 trees"), "{error}");
}

/// Canary 4.3: clock packets look at one descriptor after the other.
#[test]
fn timers_are_found_once_a_scan() {
    let scan = |hardware: &str, more: &str| canary(STAR, hardware, &format!("{CANARY}\n{more}")).scan_ps;
    assert_eq!(scan("", ""), 0);
    assert_eq!(scan("{ scan_rate = 1200000000 }", ""), 32_768 * 1_000 * 1_000 / 1_200);
    assert_eq!(scan("{ scan_rate = 1000000000 }", "descriptors = 1000"), 1_000_000);
    assert_eq!(scan("{ scan_rate = 1000000000 }", "scan = \"5us\""), 5_000_000, "what the job says");
    let of_network = canary(&format!("{STAR}\naggregators = 500"), "{ scan_rate = 1000000000 }", CANARY);
    assert_eq!((of_network.descriptors, of_network.scan_ps), (500, 500_000));
    let error = refused(STAR, "{ scan_rate = 1000000000 }", TREE);
    assert!(error.contains("network.hardware.scan_rate") && error.contains("canary"), "{error}");
}

#[test]
fn rates_and_memory_are_those_of_files() {
    let long = TREE.replace("1KiB", "1MiB");
    let took = took_us("{ aggregation_rate = \"20Gb/s\" }", &long);
    let expected_us = 1_048_576.0 * 8.0 / 20_000.0;
    assert!((took / expected_us - 1.0).abs() < 0.02, "{took} us, {expected_us} expected");
    let error = refused(STAR, "{ memory = \"64KiB\" }", &long);
    assert!(error.contains("window") && error.contains("switch0 has 64 KiB of memory"), "{error}");
    assert!(parse(STAR, "{ memory = \"128KiB\" }", &long).is_ok());
}

/// As Canary's prototype: 128 bytes of vector a packet, 32 Ki descriptors, timers that are late by up to 27 us.
#[test]
fn the_prototypes_switch_takes_what_the_prototype_takes() {
    let job = CANARY.replace("1KiB", "64KiB");
    let small = format!("{job}\npayload = \"128B\"");
    let parameters = canary(STAR, "\"tofino1\"", &small);
    assert_eq!((parameters.descriptors, parameters.scan_ps), (32_768, 27_306_666));
    // Between leaves and spines nobody knows how many contributions will come: there timers decide.
    let leaves = STAR.replace("\"star\"\nhosts = 8", "\"fat-tree\"\nleaves = 2\nhosts_per_leaf = 4\nspines = 1");
    let took_us = |hardware: &str| {
        let plan = parse(&leaves, hardware, &small).unwrap_or_else(|error| panic!("{error}"));
        let record = run(&plan, 1, || true).expect("the plan runs").remove(0).record;
        assert!(record.is_good() && record.is_exact(), "{record:?}");
        record.completion_us.expect("complete")
    };
    let (timers, scans) = (took_us(""), took_us("\"tofino1\""));
    assert!(scans > timers + 10.0, "{timers} us with timers and {scans} us with scans");
    let error = refused(STAR, "\"tofino1\"", &job);
    assert!(error.contains("network.hardware") && error.contains("take 8 passes") && error.contains("recirculation"), "{error}");
    let error = refused(STAR, "{ preset = \"tofino1\", recirculation = \"800Gb/s\" }", &job.replace("64KiB", "8MiB"));
    assert!(error.contains("descriptors") && error.contains("4 MiB of memory"), "{error}");
    assert!(record("{ preset = \"tofino1\", recirculation = \"800Gb/s\" }", &format!("{job}\ndescriptors = 4096")).is_exact());
}

/// A core that takes 400 ns and 8 bits of 9 Gb/s for each contribution.
#[test]
fn a_switch_in_the_kernel_has_a_core() {
    let long = TREE.replace("1KiB", "1MiB");
    let expected_us = 1_024.0 * 4.0 * (0.4 + 1_024.0 * 8.0 / 9_000.0);
    let took = took_us("\"xdp\"", &long);
    assert!((took / expected_us - 1.0).abs() < 0.01, "{took} us, {expected_us} expected");
    let error = refused(STAR, "\"xdp\"", &format!("{TREE}\npayload = \"1412B\""));
    assert!(error.contains("network.hardware") && error.contains("1408 B"), "{error}");
}

#[test]
fn what_says_nothing_is_refused_by_key() {
    let lossless = STAR.replace("queue = \"8MiB\"", "lossless = { model = \"output-queued\", input = \"1MiB\" }");
    for (network, hardware, job, key, expected) in [
        (STAR, "\"tofino9\"", TREE, "network.hardware", "tofino1"),
        (STAR, "{ element = 3 }", TREE, "network.hardware", "elements"),
        (STAR, "{ elements = 0 }", TREE, "network.hardware.elements", "1"),
        (STAR, "{ elements = 64 }", TREE, "network.hardware.elements", "take 4 passes"),
        (STAR, "{ recirculation = \"1Gb/s\" }", TREE, "network.hardware.recirculation", "elements or groups"),
        (STAR, "{ elements = 64, pass_time = \"1us\" }", TREE, "network.hardware.pass_time", "recirculation"),
        (STAR, "{ groups_per_pass = 2 }", CANARY, "network.hardware.groups_per_pass", "groups"),
        (STAR, "{ groups = 9, groups_per_pass = 2 }", TREE, "network.hardware.groups_per_pass", "canary"),
        (STAR, "{ groups = 32 }", CANARY, "network.hardware", "recirculation"),
        (STAR, "\"tofino1\"", &TREE.replace("\"tree\"", "\"ring\""), "network.hardware", "sums are made at switches"),
        (&lossless, "{ elements = 64, recirculation = \"1Gb/s\" }", TREE, "network.hardware", "lossless"),
        (&lossless, "\"xdp\"", TREE, "network.hardware", "lossless"),
        (&format!("{STAR}\nprocessor = {{ cores = 1, packet_time = \"1us\" }}"), "\"xdp\"", TREE, "network.processor", "core"),
    ] {
        let error = refused(network, hardware, job);
        assert!(error.contains(key) && error.contains(expected), "{hardware}: {error}");
    }
}
