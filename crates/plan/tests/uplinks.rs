//! Hosts with several cables, against arithmetic that can be done by hand.

use std::fs;
use std::path::PathBuf;

use fanin_plan::run::{self, Finished};
use fanin_plan::{Plan, PlanError};
use fanin_systems::System;

/// Four hosts, each with a cable to either of two switches that are not joined.
const PLANES: &str = r#"
hosts = ["h[0-3]"]
[defaults]
rate = "100Gb/s"
latency = "1us"
[[switches]]
name = ["a", "b"]
[[links]]
from = ["a", "b"]
to = "h[0-3]"
"#;

/// Two pairs of leaves below two spines; each host has a cable to both leaves of its pair.
const PAIRS: &str = r#"
hosts = ["h[0-7]"]
[defaults]
rate = "100Gb/s"
latency = "1us"
[[switches]]
name = ["leaf[0-3]", "spine[0-1]"]
aggregates = true
[[links]]
from = ["leaf0", "leaf1"]
to = "h[0-3]"
[[links]]
from = ["leaf2", "leaf3"]
to = "h[4-7]"
[[links]]
from = "spine[0-1]"
to = "leaf[0-3]"
"#;

/// A frame of 1024 bytes of payload and 57 of headers on a link of 100 Gb/s, in microseconds.
const FRAME_US: f64 = 1_081.0 * 8.0 / 100e3;
/// The shortest one.
const SHORT_US: f64 = 84.0 * 8.0 / 100e3;

fn plan(name: &str, network: &str, text: &str) -> Result<Plan, PlanError> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    fs::write(folder.join(format!("uplinks-{name}.toml")), network).unwrap();
    let head = format!("[network]\nshape = \"file\"\nfile = \"uplinks-{name}.toml\"\n");
    let plan = Plan::parse(&folder.join(format!("uplinks-{name}-plan.toml")).display().to_string(), &(head + text), &[], None)?;
    run::check(&plan)?;
    Ok(plan)
}

fn outcome(name: &str, network: &str, text: &str) -> Finished {
    let plan = plan(name, network, text).unwrap_or_else(|error| panic!("{text}: {error}"));
    let finished = run::run(&plan, 1, || true).unwrap().remove(0);
    assert_eq!((finished.record.census.as_str(), &finished.record.failure), ("exact", &None), "{text}");
    finished
}

/// Bytes that went from one node to another.
fn bytes(finished: &Finished, from: &str, to: &str) -> u64 {
    finished.links.iter().filter(|link| &*link.from == from && &*link.to == to).map(|link| link.bytes).sum()
}

/// Two jobs on the same hosts wait for different cables: a call for one that comes before a call for the other takes its place.
#[test]
fn jobs_that_wait_for_different_cables_are_called_once_each() {
    let network = r#"
        hosts = ["h[0-4]"]
        [defaults]
        rate = "40Gb/s"
        latency = "300ns"
        [[switches]]
        name = ["tor[0-1]", "spine[0-3]"]
        [[links]]
        from = ["tor0", "tor1"]
        to = "h[0-2]"
        [[links]]
        from = ["tor1", "tor0"]
        to = "h[3-4]"
        [[links]]
        from = "spine[0-3]"
        to = "tor[0-1]"
        rate = "10Gb/s"
    "#;
    let jobs = r#"
        [[jobs]]
        system = "ring"
        workers = 5
        placement = "spread"
        message = "1MiB"
        jobs_per_host = 2
        window = 24
        [[jobs]]
        system = "ring"
        workers = 2
        placement = "random"
        message = "2621440B"
        jobs_per_host = 2
        window = 64
        [run]
        seed = 39
    "#;
    let done = outcome("called-once", network, jobs).record;
    assert!(done.events < 4 * done.packet_hops, "{} events for {} hops", done.events, done.packet_hops);
}

/// Rank 0 sends 256 KiB to rank 2 and to rank 3 at once.
const SENDS: &str = r#"
[[jobs]]
system = "ring"
placement = [0, 1, 2, 3]
[jobs.workload]
workload = 1
ranks = 4
programs = [
  { name = "from", ranks = "0", nodes = [
    { id = "a", send = 2, bytes = "256KiB", stream = "a" }, { id = "b", send = 3, bytes = "256KiB", stream = "b" },
  ] },
  { name = "to", ranks = "2-3", nodes = [{ id = "r", receive = 0, bytes = "256KiB" }] },
  { name = "rest", ranks = "1", nodes = [{ id = "c", compute = "1us" }] },
]
"#;

#[test]
fn two_cables_carry_two_flows_in_the_time_of_one() {
    let iteration_us = |name: &str, network: &str, routing: &str| {
        let finished = outcome(name, network, &format!("routing = {routing:?}\n{SENDS}"));
        (finished.record.jobs[0].iteration_us.unwrap(), finished)
    };
    // 256 packets one after the other, one more link, both delays; the acknowledgement of the last over two links. One before may be in its way.
    let transfer_us = |packets: f64| packets * FRAME_US + FRAME_US + 2.0 + 2.0 * SHORT_US + 2.0;
    let near = |us: f64, packets: f64, what: &str| {
        let least = transfer_us(packets) - 2e-5;
        assert!((least..least + 3.0 * SHORT_US).contains(&us), "{what}: {us} us, expected {least}");
    };
    // By destination: h2 by the first of both ways, h3 by the second.
    let (us, finished) = iteration_us("two", PLANES, "destination");
    near(us, 256.0, "two cables, two flows");
    let data = 256 * 1_081;
    assert!(bytes(&finished, "h0", "a") >= data && bytes(&finished, "h0", "b") >= data, "each flow has a cable");
    assert!(bytes(&finished, "a", "h2") >= data && bytes(&finished, "b", "h3") >= data && bytes(&finished, "b", "h2") < data);
    // What chooses for each packet takes the shorter queue: half of each flow by each cable.
    let (us, finished) = iteration_us("spread", PLANES, "random");
    near(us, 256.0, "two cables, packet by packet");
    assert_eq!(bytes(&finished, "h0", "a"), bytes(&finished, "h0", "b"));
    // One cable has to carry both.
    let single =
        PLANES.replace("from = [\"a\", \"b\"]\nto = \"h[0-3]\"", "from = \"a\"\nto = \"h[0-3]\"\n[[links]]\nfrom = \"a\"\nto = \"b\"");
    near(iteration_us("one", &single, "destination").0, 512.0, "one cable");
}

/// Two machines of two GPUs: each GPU has a cable to the switch of its rail and a fourfold one to its machine's NVSwitch.
const RAILS: &str = r#"
hosts = ["gpu[0-3]"]
[defaults]
rate = "100Gb/s"
latency = "1us"
[[switches]]
name = ["rail[0-1]", "spine", "nvswitch[0-1]"]
[[links]]
from = "rail0"
to = ["gpu0", "gpu2", "spine"]
[[links]]
from = "rail1"
to = ["gpu1", "gpu3", "spine"]
[[links]]
from = "nvswitch0"
to = "gpu[0-1]"
rate = "400Gb/s"
[[links]]
from = "nvswitch1"
to = "gpu[2-3]"
rate = "400Gb/s"
"#;

#[test]
fn gpus_go_by_their_nvswitch_within_a_machine_and_by_their_rail_beyond() {
    // GPU 0 sends to 1 in its machine, to 2 on its rail, and to 3, for which the packets go on from rail to rail by the spine.
    let text =
        SENDS.replace("{ id = \"b\", send = 3,", "{ id = \"c\", send = 1, bytes = \"256KiB\", stream = \"c\" }, { id = \"b\", send = 3,");
    let text = text
        .replace("ranks = \"2-3\"", "ranks = \"1-3\"")
        .replace("  { name = \"rest\", ranks = \"1\", nodes = [{ id = \"c\", compute = \"1us\" }] },\n", "");
    let finished = outcome("rails", RAILS, &text);
    let data = 256 * 1_081;
    let share = |from: &str, to: &str| bytes(&finished, from, to) / data;
    assert_eq!((share("gpu0", "nvswitch0"), share("nvswitch0", "gpu1")), (1, 1));
    assert_eq!((share("gpu0", "rail0"), share("rail0", "gpu2"), share("rail0", "spine"), share("rail1", "gpu3")), (2, 1, 1, 1));
    let times: Vec<(u32, f64)> = finished.record.jobs[0].workload.as_ref().unwrap().communication[0]
        .by_group
        .iter()
        .map(|pair| (pair.ranks.rsplit(' ').next().unwrap().parse().unwrap(), pair.operation_us.unwrap().max))
        .collect();
    // The NVSwitch's links take a quarter of the time. 64 KiB go at once; the rest waits for a round trip at most, since the window doubles. Rails carry two flows in turn, so that both end with the last packets.
    let within = 256.0 * FRAME_US / 4.0 + FRAME_US / 4.0 + 2.0 + 2.0 * SHORT_US / 4.0 + 2.0;
    assert_eq!(times[0].0, 1);
    assert!((within - 2e-5..within + 4.0 + 4.0 * FRAME_US).contains(&times[0].1), "{} us, expected {within}", times[0].1);
    let beyond = 512.0 * FRAME_US + 3.0 * FRAME_US + 4.0 + 4.0 * SHORT_US + 4.0;
    assert!((times[2].1 - beyond).abs() < 6.0 * FRAME_US, "{} us, expected about {beyond}", times[2].1);
}

#[test]
fn a_flow_keeps_its_cable_where_flows_are_hashed() {
    let (mut by_a, mut by_b) = (0, 0);
    for seed in 0..8 {
        let finished = outcome("hashed", PLANES, &format!("routing = \"ecmp\"\n[run]\nseed = {seed}\n{SENDS}"));
        let data = 256 * 1_081;
        let (a, b) = (bytes(&finished, "h0", "a"), bytes(&finished, "h0", "b"));
        // 256 KiB twice; no flow is divided.
        assert!([a, b].iter().all(|one| [0, 1, 2].contains(&(one / data)) && one % data < data / 10), "{a} {b}");
        (by_a, by_b) = (by_a + a / data, by_b + b / data);
    }
    assert_eq!(by_a + by_b, 16);
    assert!(by_a >= 2 && by_b >= 2, "{by_a} and {by_b} of 16 flows");
}

#[test]
fn a_host_goes_on_by_its_other_cable_when_one_is_dead() {
    let sum = "[[jobs]]\nsystem = \"ring\"\nworkers = 4\nmessage = \"1MiB\"\n";
    let dead = "[[faults.timed]]\nkind = \"link-down\"\nbetween = [\"h1\", \"a\"]\nfrom = \"20us\"\n";
    for routing in ["ecmp", "random", "destination", "flowlet", "adaptive"] {
        let text = |faults: &str| format!("routing = {routing:?}\n{faults}{sum}");
        let (whole, broken) = (outcome("whole", PLANES, &text("")), outcome("broken", PLANES, &text(dead)));
        let before = bytes(&broken, "h1", "a") + bytes(&broken, "a", "h1");
        // 20 us of a cable in each direction, and no more.
        assert!(before <= 2 * 250_000, "{routing}: {before}");
        let us = |finished: &Finished| finished.record.completion_us.unwrap();
        assert!(us(&broken) < us(&whole) + 2_500.0, "{routing}: {} and {} us", us(&broken), us(&whole));
        assert!(bytes(&broken, "h1", "b") > 1_000_000 && bytes(&broken, "b", "h1") > 1_000_000, "{routing}");
    }
    // Systems whose switches need not know the hosts below them do without the first cable.
    let dead = dead.replace("\"a\"", "\"leaf0\"");
    for system in by_hosts().chain(["canary"]) {
        let sum = format!("[[jobs]]\nsystem = {system:?}\nworkers = 6\nmessage = \"1MiB\"\npatience = \"50ms\"\n{}", keys(system));
        let broken = outcome("first", PAIRS, &format!("{dead}{sum}"));
        assert!(bytes(&broken, "h1", "leaf1") > 20_000, "{system}: {}", bytes(&broken, "h1", "leaf1"));
    }
    // A tree waits for the host, and says so.
    let tree = format!("{dead}[[jobs]]\nsystem = \"tree\"\nworkers = 6\nmessage = \"1MiB\"\npatience = \"5ms\"\n");
    let finished = run::run(&plan("tree", PAIRS, &tree).unwrap(), 1, || true).unwrap().remove(0);
    let failure = finished.record.failure.unwrap_or_default();
    assert!(failure.contains("no progress within the time allowed") && failure.contains("h1"), "{failure}");
    // A switch that is gone is a dead cable for all.
    let gone = "[[faults.timed]]\nkind = \"switch-down\"\nswitch = \"a\"\nfrom = \"20us\"\n";
    let broken = outcome("gone", PLANES, &format!("{gone}{sum}"));
    assert!(bytes(&broken, "b", "h0") > 1_000_000);
}

#[test]
fn several_cables_go_with_credits_noise_and_traffic() {
    let lossless = "lossless = { input = \"32KiB\", model = \"output-queued\" }\n";
    let noise = "noise = { probability = 0.01, delay = \"3us\" }\n";
    let traffic = "[[traffic]]\npattern = \"uniform\"\nhosts = [1, 2, 5, 6]\nmessage = \"32KiB\"\n";
    let flow = "[[flows]]\nfrom = \"h3\"\nto = \"h7\"\nrate = \"20Gb/s\"\n";
    for (network, routing) in [(lossless, "ecmp"), (lossless, "random"), ("", "ecmp"), ("", "adaptive")] {
        for system in ["ring", "canary", "exchange"] {
            let job = format!(
                "[[jobs]]\nsystem = {system:?}\nworkers = 6\nplacement = [0, 1, 2, 4, 5, 6]\nmessage = \"256KiB\"\noperations = 2\n"
            );
            let beside = format!("{traffic}{flow}[[jobs]]\nsystem = \"ring\"\nplacement = [3, 7]\nmessage = \"256KiB\"\n{noise}");
            let finished = outcome("beside", PAIRS, &format!("routing = {routing:?}\n{network}{job}{noise}{beside}"));
            for (host, leaf) in [("h0", "leaf0"), ("h3", "leaf1"), ("h5", "leaf2"), ("h6", "leaf3")] {
                assert!(routing == "ecmp" || bytes(&finished, host, leaf) > 0, "{system} {routing}: {host} to {leaf}");
            }
        }
    }
}

/// Contributions and results of Canary go by first cables, as if there were no others.
#[test]
fn sums_of_canary_take_as_long_as_with_first_cables_alone() {
    let sum = "[[jobs]]\nsystem = \"canary\"\nworkers = 8\nplacement = \"packed\"\nmessage = \"1MiB\"\n";
    let us = |name: &str, network: &str, workers: u32| {
        let finished = outcome(name, network, &sum.replace("workers = 8", &format!("workers = {workers}")));
        finished.record.completion_us.unwrap()
    };
    let alone =
        PAIRS.replace("from = [\"leaf0\", \"leaf1\"]", "from = \"leaf0\"").replace("from = [\"leaf2\", \"leaf3\"]", "from = \"leaf2\"");
    let (two, one) = (us("canary-two", PAIRS, 8), us("canary-one", &alone, 8));
    assert!((two / one - 1.0).abs() < 0.02, "{two} and {one} us");
    let rails = RAILS.replace("name = [\"rail", "aggregates = true\nname = [\"rail");
    let alone = rails.split("[[links]]\nfrom = \"nvswitch0\"").next().unwrap().replace(", \"nvswitch[0-1]\"", "");
    let (two, one) = (us("canary-rails", &rails, 4), us("canary-rail", &alone, 4));
    assert!((two / one - 1.0).abs() < 0.02, "{two} and {one} us");
}

#[test]
fn what_hosts_with_several_cables_cannot_have_is_refused() {
    let sum = "[[jobs]]\nsystem = \"ring\"\nworkers = 4\nmessage = \"64KiB\"\n";
    let refused = |text: &str| plan("refused", PAIRS, text).expect_err(text).to_string();
    let found = refused(&format!("routing = \"drill\"\n{sum}"));
    assert!(found.contains("routing = drill: expected ecmp, destination, random, flowlet or adaptive"), "{found}");
    assert!(found.contains("where a host has several links: h0 has 2"), "{found}");
    let found = refused(&format!("{sum}[[limits]]\nhosts = [2]\nsend = \"1Mp/s\"\n"));
    assert!(found.contains("limits[0].hosts") && found.contains("expected hosts with one link: it has 2"), "{found}");
    let none = PAIRS.replace("hosts = [\"h[0-7]\"]", "hosts = [\"h[0-8]\"]");
    let found = plan("none", &none, sum).unwrap_err().to_string();
    assert!(found.contains("hosts = h8 with 0 links: expected one link to a switch for each, or several"), "{found}");
}

/// Keys that some systems need or do better with.
fn keys(system: &str) -> &'static str {
    match system {
        "ps" => "servers = 2\n",
        "atp" | "a2tp" => "servers = 1\n",
        "sharp" => "mode = \"streaming\"\n",
        sparse if System::named(sparse).is_some_and(|system| system.sparsity().is_some()) => "density = 0.2\n",
        _ => "",
    }
}

/// Systems whose messages go from any host to any other, and are summed there.
fn by_hosts() -> impl Iterator<Item = &'static str> {
    // Connections of network cards begin at a first cable.
    let is_by_hosts = |name: &&str| *name != "machines" && !System::named(name).unwrap().sums_at_switches();
    System::NAMES.iter().copied().filter(is_by_hosts)
}

#[test]
fn every_system_is_exact_where_hosts_have_several_cables() {
    let loss = "[faults]\nlinks = [{ loss = \"0.5%\", duplication = \"0.5%\", reordering = \"0.5%\", delay = \"2us\" }]\n";
    // Those whose packets go to neighbours only have nothing to choose.
    let chosen = |system: &str| !["tree", "panama", "switchml", "flare", "sharp"].contains(&system);
    for system in System::NAMES {
        for faults in ["", loss] {
            for routing in ["ecmp", "random", "adaptive"].into_iter().take(if chosen(system) { 3 } else { 1 }) {
                let routing = if chosen(system) { format!("routing = {routing:?}\n") } else { String::new() };
                let job = format!("[[jobs]]\nsystem = {system:?}\nworkers = 6\nmessage = \"64KiB\"\noperations = 2\n{}", keys(system));
                let finished = outcome("all", PAIRS, &format!("{routing}{faults}{job}"));
                // What switches add up leaves by first cables; what hosts send each other by both.
                let by = |near: &str, far: &str| -> u64 {
                    let hosts = |range: std::ops::Range<u32>, leaf: &str| {
                        range.map(|host| bytes(&finished, &format!("h{host}"), leaf)).sum::<u64>()
                    };
                    hosts(0..4, near) + hosts(4..8, far)
                };
                let (first, second) = (by("leaf0", "leaf2"), by("leaf1", "leaf3"));
                assert!(first > 0, "{system}");
                let by_one = ["tree", "panama", "switchml", "flare", "sharp"].contains(system);
                assert!(!by_one || second == 0, "{system}: {second} bytes by second cables");
                assert!(!by_hosts().any(|one| one == *system) || second > 0, "{system}");
            }
        }
    }
}
