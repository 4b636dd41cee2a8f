//! Wrong plans: the error names file, line, key, value and what was expected, and nothing is written.

mod common;

use common::{SMALL, folder, good, plan, refused, rows};

/// A plan whose line 10 is `jobs[0].workers`.
const GOOD: &str = r#"[network]
shape = "star"
hosts = 16
rate = "100Gb/s"
latency = "300ns"

[[jobs]]
system = "tree"
trees = 1
workers = 4
message = "4KiB"

[[traffic]]
pattern = "uniform"
hosts = 4
load = 0.5

[faults]
anti_replay = true

[run]
seed = 1
"#;

/// A line of the plan, what takes its place, and the error.
const WRONG: &[(&str, &str, &str)] = &[
    ("workers = 4", "workers = 2000", "plan.toml:10: jobs[0].workers = 2000: expected at most 16, the number of hosts"),
    (
        "workers = 4",
        "workers = 0",
        "plan.toml:10: jobs[0].workers = 0: expected a whole number of 1 or more, a percentage or a range, such as 512, \"50%\" or \"2..8\"",
    ),
    ("workers = 4", "", "plan.toml:7: jobs[0].workers is missing: expected a number of workers or a percentage of all hosts"),
    ("workers = 4", "workers = 14", "plan.toml:15: traffic[0].hosts = 4: expected at most 2, the number of hosts without a worker"),
    (
        "workers = 4",
        "workers = 4\nplacement = [1, 2, 2, 3]",
        "plan.toml:11: jobs[0].placement[2] = 2: expected a host that no other worker has",
    ),
    ("workers = 4", "workers = 4\nplacement = [16]", "plan.toml:10: jobs[0].workers = 4: expected 1, the number of hosts listed"),
    ("workers = 4", "placement = [16]", "plan.toml:10: jobs[0].placement[0] = 16: expected hosts from 0 to 15"),
    (
        "message = \"4KiB\"",
        "message = \"4kb\"",
        "plan.toml:11: jobs[0].message = \"4kb\": expected bytes, such as 1024, \"100kB\" or \"4MiB\"",
    ),
    ("message = \"4KiB\"", "message = 4.5", "plan.toml:11: jobs[0].message = 4.5: expected bytes, such as 1024, \"100kB\" or \"4MiB\""),
    (
        "message = \"4KiB\"",
        "message = 1022",
        "plan.toml:11: jobs[0].message = 1022: expected a multiple of 4 bytes, the length of an element",
    ),
    (
        "message = \"4KiB\"",
        "",
        "plan.toml:7: jobs[0].message is missing: expected a length, such as \"4MiB\", or else a model or a workload",
    ),
    (
        "message = \"4KiB\"",
        "message = \"4KiB\"\nmesage = 1",
        "plan.toml:12: jobs[0].mesage = 1: unknown key; did you mean message? Expected one of system, file, workload, groups, across, chunks, local_rate, \
         local_latency, collective, root_rank, copies, workers, servers, server_placement, placement, jobs_per_host, message, payload, element, reproducible, operator, indices, operations, model, scale, iterations, \
         tensor, compute, compute_spread, start, start_skew, arrivals, crash, noise, window, reliable, rto_initial, rto_min, patience, sum_order, trees",
    ),
    ("trees = 1", "trees = 0", "plan.toml:9: jobs[0].trees = 0: expected 1 to 1024"),
    ("trees = 1", "trees = \"many\"", "plan.toml:9: jobs[0].trees = \"many\": expected a whole number of 0 or more"),
    ("trees = 1", "payload = \"70000B\"", "plan.toml:9: jobs[0].payload = \"70000B\": expected 1 to 65000 bytes"),
    ("trees = 1", "payload = 1023", "plan.toml:9: jobs[0].payload = 1023: expected a multiple of 4, the length of an element"),
    (
        "rate = \"100Gb/s\"",
        "rate = \"100GB/s\"",
        "plan.toml:4: network.rate = \"100GB/s\": expected bits per second from 1kb/s to 100Tb/s, such as \"100Gb/s\"",
    ),
    (
        "latency = \"300ns\"",
        "latency = 300",
        "plan.toml:5: network.latency = 300: expected a time, such as \"300ns\", \"1.5us\", \"10ms\" or \"2s\"",
    ),
    ("hosts = 16", "hosts = 16\nleaves = 4", "plan.toml:4: network.leaves = 4: expected no such key with shape = \"star\""),
    ("hosts = 16", "hosts = 0", "plan.toml:3: network.hosts = 0: expected a whole number of 1 or more"),
    ("hosts = 16", "hosts = 70000", "plan.toml:3: network.hosts = 70000: expected at most 60000 ports on a switch"),
    (
        "hosts = 16",
        "hosts = 16\nqueue = \"1KiB\"",
        "plan.toml:4: network.queue = \"1KiB\": expected at least 1081 bytes, a full frame of jobs[0]",
    ),
    (
        "hosts = 16",
        "hosts = 16\nlossless = { model = \"output-queued\", input = \"64KiB\", arbitration = \"round-robin\" }",
        "plan.toml:4: network.lossless.arbitration = \"round-robin\": expected no such key with model = \"output-queued\"",
    ),
    (
        "hosts = 16",
        "hosts = 16\nlossless = { model = \"output-queued\", input = \"64KiB\", made_packets = \"input\" }",
        "plan.toml:4: network.lossless.made_packets = \"input\": expected no such key with model = \"output-queued\"",
    ),
    (
        "hosts = 16",
        "hosts = 16\nlossless = { model = \"input-queued\", input = \"64KiB\", made_packets = \"fifo\" }",
        "plan.toml:4: network.lossless.made_packets = \"fifo\": expected \"own-fifo\" or \"input\" or \"per-output\"",
    ),
    (
        "hosts = 16",
        "hosts = 16\nlossless = { model = \"input-queued\", input = \"64KiB\", arbitration = \"random\" }",
        "plan.toml:4: network.lossless.arbitration = \"random\": expected \"first-come\" or \"round-robin\" or \"oldest-first\"",
    ),
    (
        "hosts = 16",
        "hosts = 16\nlossless = { model = \"input-queued\", input = \"64KiB\", channels = 2 }",
        "plan.toml:4: network.lossless.channels = 2: expected no such key with shape = \"star\"",
    ),
    (
        "shape = \"star\"",
        "shape = \"ring\"",
        "plan.toml:2: network.shape = \"ring\": expected \"star\" or \"fat-tree\" or \"fat-tree-3\" or \"dragonfly\" or \
     \"machines\" or \"rail-optimised\" or \"file\"",
    ),
    (
        "load = 0.5",
        "load = 1.5",
        "plan.toml:16: traffic[0].load = 1.5: expected a number from 0 to 1 or a percentage, such as 0.01 or \"1%\"",
    ),
    ("load = 0.5", "load = 0", "plan.toml:16: traffic[0].load = 0: expected a share of the link's rate above 0 and at most 1"),
    (
        "pattern = \"uniform\"",
        "pattern = \"uniform\"\ncongestion = \"cubic\"",
        "plan.toml:15: traffic[0].congestion = \"cubic\": expected \"none\" or \"dctcp\"",
    ),
    (
        "pattern = \"uniform\"",
        "pattern = \"uniform\"\ncongestion = \"dctcp\"",
        "plan.toml:17: traffic[0].load = 0.5: expected no such key with congestion = \"dctcp\", which finds its rate itself",
    ),
    (
        "pattern = \"uniform\"",
        "pattern = \"uniform\"\nrto_min = \"1ms\"",
        "plan.toml:15: traffic[0].rto_min = \"1ms\": expected no such key without congestion = \"dctcp\"",
    ),
    ("load = 0.5", "congestion = \"dctcp\"\nrto_min = \"0us\"", "plan.toml:17: traffic[0].rto_min = 0 ps: expected more than 0 s"),
    ("pattern = \"uniform\"", "pattern = \"incast\"\nreceivers = 4", "plan.toml:15: traffic[0].receivers = 4: expected 1 to 3 receivers"),
    (
        "anti_replay = true",
        "links = [{ links = { from = \"host0\", to = \"leaf0\" } }]",
        "plan.toml:19: faults.links[0].links.to = \"leaf0\": expected a node of the network: host0 to host15, switch0",
    ),
    (
        "anti_replay = true",
        "links = [{ loss = 1.1 }]",
        "plan.toml:19: faults.links[0].loss = 1.1: expected a number from 0 to 1 or a percentage, such as 0.01 or \"1%\"",
    ),
    (
        "anti_replay = true",
        "timed = [{ kind = \"host-dies\", rank = 4 }]",
        "plan.toml:19: faults.timed[0].rank = 4: expected a rank below 4, the number of workers",
    ),
    (
        "anti_replay = true",
        "timed = [{ kind = \"host-stall\", rank = 3, from = \"2us\", until = \"1us\" }]",
        "plan.toml:19: faults.timed[0].until = \"1us\": expected a time after from",
    ),
    ("anti_replay = true", "anti_replay = 1", "plan.toml:19: faults.anti_replay = 1: expected true or false"),
    ("seed = 1", "seed = -1", "plan.toml:22: run.seed = -1: expected a whole number of 0 or more"),
    (
        "[run]",
        "[runs]",
        "plan.toml:21: runs = { seed = 1 }: unknown key; did you mean run? Expected one of network, jobs, traffic, flows, limits, \
         faults, series, sweep, run, plot",
    ),
    ("seed = 1", "seed = 1\n[sweep]\n\"jobs.0.trees\" = [1, 0]", "plan.toml:24: jobs[0].trees = 0: expected 1 to 1024 (in jobs.0.trees 0)"),
    (
        "seed = 1",
        "seed = 1\n[[series]]\nname = \"a\"\nset = { \"jobs.1.trees\" = 1 }",
        "plan.toml:25: jobs.1.trees: [1]: expected an index below 1",
    ),
    (
        "seed = 1",
        "seed = 1\n[[plot]]\nname = \"p\"\ntitle = \"P\"\nkind = \"bars\"\nx = \"series\"\ny = \"goodput_gbps\"",
        "plan.toml:27: plot[0].x = \"series\": expected what the plan varies: nothing",
    ),
    (
        "\"tree\"\ntrees = 1",
        "\"canary\"\ntimeout = \"1\"",
        "plan.toml:9: jobs[0].timeout = \"1\": expected a time, such as \"300ns\", \"1.5us\", \"10ms\" or \"2s\"",
    ),
    (
        "\"tree\"\ntrees = 1",
        "\"canary\"\ntable = \"hashed\"",
        "plan.toml:9: jobs[0].table = \"hashed\": expected \"auto\" or \"hash\" or \"d-choice\" or \"static\"",
    ),
    (
        "\"tree\"\ntrees = 1",
        "\"canary\"\nfan_in = \"guessed\"",
        "plan.toml:9: jobs[0].fan_in = \"guessed\": expected \"unknown\" or \"known\"",
    ),
    (
        "\"tree\"\ntrees = 1",
        "\"canary\"\nleader = \"fixed\"",
        "plan.toml:9: jobs[0].leader = \"fixed\": expected \"rotating\", \"random\", or \"fixed:\" and a rank, as in \"fixed:0\"",
    ),
    (
        "\"tree\"\ntrees = 1",
        "\"canary\"\nleader = \"fixed:9999\"",
        "plan.toml:9: jobs[0].leader = \"fixed:9999\": expected a rank from 0 to 3",
    ),
    (
        "\"tree\"\ntrees = 1",
        "\"canary\"\nroot = \"spine\"",
        "plan.toml:9: jobs[0].root = \"spine\": expected no such key: a block's root is the switch of its leader, which leader says; a spine is none, since packets name their leader only",
    ),
    (
        "\"tree\"\ntrees = 1",
        "\"canary\"\nleader_time = 1",
        "plan.toml:9: jobs[0].leader_time = 1: expected a time, such as \"300ns\", \"1.5us\", \"10ms\" or \"2s\"",
    ),
    (
        "trees = 1",
        "noise = { probability = 0.1, delay = { distribution = \"pareto\", min = \"1us\" } }",
        "plan.toml:9: jobs[0].noise.delay = { distribution = \"pareto\", min = \"1us\" }: expected shape: \"pareto\" has min and shape",
    ),
    (
        "trees = 1",
        "noise = { probability = 0.1, delay = { distribution = \"exponential\", mean = \"1us\", sigma = 1.0 } }",
        "plan.toml:9: jobs[0].noise.delay = { distribution = \"exponential\", mean = \"1us\", sigma = 1.0 }: expected no sigma: \"exponential\" has mean",
    ),
    (
        "trees = 1",
        "noise = { probability = 0.1, delay = { distribution = \"lognormal\", median = \"1us\", sigma = 11.0 } }",
        "plan.toml:9: jobs[0].noise.delay = { distribution = \"lognormal\", median = \"1us\", sigma = 11.0 }: expected sigma of 0 to 10",
    ),
    (
        "\"tree\"\ntrees = 1",
        "\"canary\"\ntimeout_ps = 5",
        "plan.toml:9: jobs[0].timeout_ps = 5: unknown key; expected one of system, file, workload, groups, across, chunks, local_rate, \
         local_latency, collective, root_rank, copies, workers, servers, server_placement, placement, jobs_per_host, message, payload, \
         element, reproducible, operator, indices, operations, model, scale, iterations, tensor, compute, compute_spread, start, \
         start_skew, arrivals, crash, noise, window, reliable, rto_initial, rto_min, patience, collision_weight, collisions, \
         descriptors, failure, fan_in, generations, hold, initial, leader, leader_time, lifetime, mark_weight, scan, shared, table, \
         threshold, timeout, timeout_max, timeout_min, window_min, windows",
    ),
    ("trees = 1", "window = 0", "plan.toml:9: jobs[0].window = 0: expected a whole number of 1 or more, or \"unlimited\""),
    ("trees = 1", "window = \"unlimited\"", "plan.toml:9: jobs[0].window = \"unlimited\": expected 1 to 1048576 packets"),
    ("seed = 1", "seed = 1\nmemory_interval = \"0us\"", "plan.toml:23: run.memory_interval = \"0us\": expected a time above 0"),
    (
        "seed = 1",
        "seed = 1\n[sweep.load]\nlow = 0.5",
        "plan.toml:23: sweep.load.low = 0.5: expected names that set several keys each: { idle = { \"traffic.0.enabled\" = false }, congested = \
         { ... } }, or else a quoted key path",
    ),
    (
        "seed = 1",
        "seed = 1\n[[plot]]\nname = \"p\"\ntitle = \"P\"\nkind = \"memory\"",
        "plan.toml: run.memory_interval is missing: the plot \"p\" needs it, such as \"5us\"",
    ),
];

/// The same for training jobs, hosts that are shared, and what there is beside the jobs.
const WRONG_BESIDE: &[(&str, &str, &str)] = &[
    (
        "workers = 4",
        "workers = \"8..2\"",
        "plan.toml:10: jobs[0].workers = \"8..2\": expected a whole number of 1 or more, a percentage or a range, such as 512, \"50%\" or \"2..8\"",
    ),
    (
        "workers = 4",
        "workers = \"2..20\"",
        "plan.toml:10: jobs[0].workers = \"2..20\": expected at most 16, the number of hosts that have room",
    ),
    ("workers = 4", "workers = 4\nservers = 1", "plan.toml:11: jobs[0].servers = 1: expected 0: tree has no servers"),
    (
        "workers = 4",
        "workers = 4\nservers = 13",
        "plan.toml:11: jobs[0].servers = 13: expected at most 12, the number of hosts that have room beside the workers",
    ),
    (
        "workers = 4",
        "placement = [0, 1]\nservers = [1]",
        "plan.toml:11: jobs[0].servers[0] = 1: expected a host without a worker of the job",
    ),
    (
        "workers = 4",
        "placement = [3, 3]\njobs_per_host = 2",
        "plan.toml:10: jobs[0].placement[1] = 3: expected each host once, and with at most 2 jobs (jobs_per_host)",
    ),
    ("trees = 1", "compute = \"1us\"", "plan.toml:9: jobs[0].compute = \"1us\": expected no such key without iterations or a model"),
    (
        "trees = 1",
        "iterations = 2\noperations = 2",
        "plan.toml:10: jobs[0].operations = 2: expected no such key for a job that trains: iterations says how often it reduces its vector",
    ),
    ("trees = 1", "scale = 0.5", "plan.toml:9: jobs[0].scale = 0.5: expected no such key without a model or a workload"),
    (
        "trees = 1",
        "model = \"resnet\"",
        "plan.toml:9: jobs[0].model = \"resnet\": expected \"resnet50\" or \"vgg16\" or \"alexnet\" or \"resnet101\" or \"inceptionv3\" or \"lstm\" or \"bert\"",
    ),
    (
        "trees = 1",
        "iterations = 2\ntensor = 1022",
        "plan.toml:10: jobs[0].tensor = 1022: expected a multiple of 4 bytes, the length of an element",
    ),
    ("trees = 1", "iterations = 2000000", "plan.toml:9: jobs[0].iterations = 2000000: expected at most 1048576 operations in all"),
    ("trees = 1", "arrivals = \"0us\"", "plan.toml:9: jobs[0].arrivals = \"0us\": expected a time above 0"),
    (
        "anti_replay = true",
        "anti_replay = true\n[[flows]]\nfrom = \"host0\"\nto = \"host16\"\nrate = \"1Gb/s\"",
        "plan.toml:22: flows[0].to = \"host16\": expected a host of the network, host0 to host15, or who lives there",
    ),
    (
        "anti_replay = true",
        "anti_replay = true\n[[flows]]\nfrom = { rank = 4 }\nto = \"host1\"\nrate = \"1Gb/s\"",
        "plan.toml:21: flows[0].from.rank = 4: expected a rank below 4, the number that the job has",
    ),
    (
        "anti_replay = true",
        "anti_replay = true\n[[flows]]\nfrom = \"host0\"\nto = \"host1\"\nrate = \"200Gb/s\"",
        "plan.toml:23: flows[0].rate = 200000000000: expected at most 100000000000 b/s, the rate of the host's link",
    ),
    (
        "anti_replay = true",
        "anti_replay = true\n[[flows]]\nfrom = \"host0\"\nto = \"host1\"\nsteps = [{ at = \"1us\", rate = \"10b/s\" }]",
        "plan.toml:23: flows[0].steps[0].rate = \"10b/s\": expected bits per second up to 100Tb/s, such as \"20Gb/s\" or \"0Gb/s\"",
    ),
    (
        "anti_replay = true",
        "anti_replay = true\n[[flows]]\nfrom = \"host0\"\nto = \"host1\"\nrate = \"1Gb/s\"\nsteps = []",
        "plan.toml:23: flows[0].rate = \"1Gb/s\": expected no such key beside steps",
    ),
    (
        "anti_replay = true",
        "anti_replay = true\n[[limits]]\nhosts = [16]\nsend = \"1Mp/s\"",
        "plan.toml:21: limits[0].hosts[0] = 16: expected hosts from 0 to 15",
    ),
    (
        "anti_replay = true",
        "anti_replay = true\n[[limits]]\nhosts = [1]",
        "plan.toml:20: limits[0] = nothing: expected at least one of send, receive and rate",
    ),
    (
        "anti_replay = true",
        "anti_replay = true\n[[limits]]\nsend = \"1Gb/s\"",
        "plan.toml:21: limits[0].send = \"1Gb/s\": expected packets per second from 1kp/s to 100Gp/s, such as \"26.7Mp/s\"",
    ),
    ("seed = 1", "seed = 1\nseries_interval = \"0us\"", "plan.toml:23: run.series_interval = \"0us\": expected a time above 0"),
    (
        "seed = 1",
        "seed = 1\n[[plot]]\nname = \"p\"\ntitle = \"P\"\nkind = \"time\"\ny = \"slots\"",
        "plan.toml: run.series_interval is missing: the plot \"p\" needs it, such as \"10us\"",
    ),
    (
        "seed = 1",
        "seed = 1\n[[plot]]\nname = \"p\"\ntitle = \"P\"\nkind = \"time\"\ny = \"slot\"",
        "plan.toml:27: plot[0].y = \"slot\": expected fairness, or one of goodput_gbps, packets, slots, slot_bytes, collisions, marked, aggregator_window, link_window, \
         collision_share, mark_share, synchrony, outstanding, round_trip",
    ),
];

#[test]
fn every_wrong_plan_is_refused_in_words_that_lead_to_the_place() {
    let folder = folder("wrong-plans");
    for (old, new, expected) in WRONG.iter().chain(WRONG_BESIDE) {
        assert_eq!(GOOD.matches(old).count(), 1, "{old}");
        let name = plan(&folder, &GOOD.replace(old, new));
        let said = refused(&folder, &["sim", name, "--out", "results"]);
        assert_eq!(said, format!("error: {expected}"), "{old} -> {new}");
        assert!(!folder.join("results").exists(), "nothing is written for a plan that cannot run");
    }
    let name = plan(&folder, &GOOD.replace("\"tree\"", "\"trie\""));
    let systems = fanin_systems::System::NAMES.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or ");
    assert_eq!(refused(&folder, &["sim", name]), format!("error: plan.toml:8: jobs[0].system = \"trie\": expected {systems}"));
    let name = plan(&folder, GOOD);
    good(&folder, &["sim", name, "--out", "results"]);
    assert!(folder.join("results/results.json").exists());
}

#[test]
fn what_is_not_there_or_not_toml_is_refused() {
    let folder = folder("not-toml");
    assert!(refused(&folder, &["sim", "none.toml"]).starts_with("error: none.toml: cannot be read: "));
    let name = plan(&folder, "[network]\nshape = star\n");
    assert!(refused(&folder, &["sim", name]).starts_with("error: plan.toml:2: not TOML: "));
    let name = plan(&folder, "");
    assert_eq!(refused(&folder, &["sim", name]), "error: plan.toml:1: network is missing: it has no default");
}

#[test]
fn set_changes_a_value_and_its_errors_name_it() {
    let folder = folder("set");
    let name = plan(&folder, GOOD);
    let run = |sets: &[&str]| {
        let arguments: Vec<&str> =
            ["sim", name, "--format", "json"].into_iter().chain(sets.iter().flat_map(|set| ["--set", set])).collect();
        rows(&good(&folder, &arguments)).remove(0)
    };
    let row = run(&["jobs.0.message=8KiB", "jobs[0].workers=\"50%\"", "traffic.0.enabled=false", "run.seed=5"]);
    assert_eq!((&row["message_bytes"], &row["workers"]), (&8192.into(), &8.into()));
    assert_eq!((&row["congested"], &row["seed"]), (&false.into(), &5.into()));
    for (set, expected) in [
        ("jobs.0.worker=3", "jobs[0].worker = 3: unknown key; did you mean workers?"),
        ("jobs.0.workers=17", "jobs[0].workers = 17: expected at most 16, the number of hosts"),
        ("jobs.1.workers=3", "jobs.1.workers: [1]: expected an index below 1"),
        ("jobs.workers=3", "jobs.workers: workers: expected an index below 1, such as 0"),
        ("jobs.0.workers", "expected KEY=VALUE, such as jobs.0.message=1MiB"),
        ("networks.hosts=3", "networks = { hosts = 3 }: unknown key; did you mean network?"),
        ("jobs.0.message.x=3", "jobs.0.message.x: x: expected nothing below \"4KiB\""),
    ] {
        let said = refused(&folder, &["sim", name, "--set", set]);
        assert!(said.starts_with(&format!("error: plan.toml: --set {set}: {expected}")), "{said}");
    }
}

#[test]
fn timeouts_by_level_are_read_and_what_is_wrong_is_named() {
    let folder = folder("timeouts");
    let canary = GOOD.replace("\"tree\"", "\"canary\"");
    let with = |key: &str| plan(&folder, &canary.replace("trees = 1", key));
    let good = |key: &str| good(&folder, &["sim", with(key), "--check"]);
    good("timeout = { leaf = \"1us\", spine = \"1.5us\", root = \"4us\" }\nscan = \"500ns\"");
    good("timeout = { root = \"4us\" }");
    for (key, expected) in [
        ("timeout = { core = \"1us\" }", "jobs[0].timeout.core = \"1us\": unknown key; expected one of leaf, spine, root"),
        ("timeout = { root = 4 }", "jobs[0].timeout.root = 4: expected a time, such as \"300ns\", \"1.5us\", \"10ms\" or \"2s\""),
        ("timeout = {}", "jobs[0].timeout = {}: expected a time for leaf, spine or root"),
        ("timeout = \"adaptive\"\nscan = \"1us\"", "jobs[0].scan = \"1us\": expected no such key with timeout = \"adaptive\""),
    ] {
        let said = refused(&folder, &["sim", with(key)]);
        assert!(said.ends_with(expected), "{key}: {said}");
    }
}

#[test]
fn windows_of_canary_that_follow_are_read_and_what_is_wrong_is_named() {
    let folder = folder("canary-windows");
    let canary = GOOD.replace("\"tree\"", "\"canary\"");
    let with = |key: &str| plan(&folder, &canary.replace("trees = 1", key));
    good(&folder, &["sim", with("windows = \"a2tp\"\ninitial = 16\nwindow_min = 4\ncollisions = \"stragglers\""), "--check"]);
    for (key, expected) in [
        ("windows = \"own\"", "jobs[0].windows = \"own\": expected \"fixed\" or \"a2tp\""),
        ("initial = 9", "jobs[0].initial = 9: expected no such key without windows = \"a2tp\""),
        ("threshold = 0.3", "jobs[0].threshold = 0.3: expected no such key without windows = \"a2tp\""),
        (
            "windows = \"a2tp\"\nreliable = false\nwindow = \"unlimited\"",
            "jobs[0].window = \"unlimited\": expected 1 to 65536 packets, the longest that windows = \"a2tp\" may become",
        ),
        ("windows = \"a2tp\"\nwindow = 64\nwindow_min = 65", "jobs[0].window_min = 65: expected 0 to 64, the window"),
    ] {
        let said = refused(&folder, &["sim", with(key)]);
        assert!(said.ends_with(expected), "{key}: {said}");
    }
}

#[test]
fn set_fixes_what_is_swept_and_may_not_touch_what_series_set() {
    let folder = folder("set-sweep");
    let name = plan(&folder, SMALL);
    let all = good(&folder, &["sim", name, "--check"]);
    assert!(all.starts_with("plan.toml: 4 points, 12 runs\n"), "{all}");
    let fixed = good(&folder, &["sim", name, "--check", "--set", "traffic.0.enabled=true"]);
    assert_eq!(fixed, "plan.toml: 2 points, 6 runs\n  series ring x 3\n  series 2 trees x 3\n");
    let swept = good(&folder, &["sim", name, "--check", "--set", "sweep.jobs.0.message=[\"1KiB\", \"2KiB\"]"]);
    assert!(swept.starts_with("plan.toml: 8 points, 24 runs\n"), "{swept}");
    let said = refused(&folder, &["sim", name, "--set", "jobs.0.trees=4"]);
    assert!(said.contains("set by the series \"2 trees\""), "{said}");
}

#[test]
fn a_seed_on_the_command_line_repeats_one_run_of_many() {
    let folder = folder("seed");
    let name = plan(&folder, SMALL);
    let all = rows(&good(&folder, &["sim", name, "--format", "json"]));
    assert_eq!(all.len(), 12);
    let third = all.iter().filter(|row| row["seed"] == 9);
    let again = rows(&good(&folder, &["sim", name, "--format", "json", "--seed", "9", "--set", "run.repetitions=1"]));
    for (first, mut second) in third.zip(again) {
        assert_eq!(first["repetition"], 2);
        second["repetition"] = 2.into();
        second["wall_s"] = first["wall_s"].clone();
        assert_eq!(*first, second);
    }
}

#[test]
fn a_sweep_may_set_several_keys_by_a_name() {
    let folder = folder("named-sweep");
    let sweep = "[sweep.crowd]\nsmall = { \"jobs.0.workers\" = 2, \"traffic.0.enabled\" = false }\nlarge = { \"jobs.0.workers\" = 8 }\n";
    let name = plan(&folder, &format!("{GOOD}\n{sweep}"));
    assert_eq!(good(&folder, &["sim", name, "--check"]), "plan.toml: 2 points, 2 runs\n  crowd small x 1\n  crowd large x 1\n");
    let all = rows(&good(&folder, &["sim", name, "--format", "json"]));
    let seen: Vec<_> = all.iter().map(|row| (row["workers"].as_u64(), row["congested"].as_bool())).collect();
    assert_eq!(seen, [(Some(2), Some(false)), (Some(8), Some(true))]);
    let said = refused(&folder, &["sim", name, "--set", "jobs.0.workers=4"]);
    assert!(said.ends_with("sweep.crowd.small.jobs.0.workers: set by the sweep; expected a key that it does not set"), "{said}");
}

#[test]
fn memory_is_sampled_where_the_plan_asks_for_it() {
    let folder = folder("memory");
    let name = plan(&folder, &GOOD.replace("seed = 1", "seed = 1\nmemory_interval = \"200ns\""));
    let row = rows(&good(&folder, &["sim", name, "--out", "results", "--format", "json"])).remove(0);
    let samples = std::fs::read_to_string(folder.join("results/memory.csv")).expect("samples");
    let used: Vec<u64> = samples.lines().skip(1).map(|line| line.split(',').nth(1).expect("a column").parse().expect("bytes")).collect();
    let peak = row["switch_bytes_peak"].as_u64().expect("bytes");
    assert_eq!(used.len(), (row["simulated_us"].as_f64().expect("us") / 0.2) as usize + 1);
    assert!(used[0] == 0 && used.iter().any(|bytes| *bytes > 0) && used.iter().all(|bytes| *bytes <= peak), "{used:?} {peak}");
    let mean = row["switch_bytes_mean"].as_f64().expect("bytes");
    assert!(mean > 0.0 && mean < peak as f64 && row["leaf_bytes_peak"] == peak, "{row}");
}

/// Shapes refuse what is another shape's, what does not fit together, and what would not fit any machine.
#[test]
fn every_shape_has_keys_of_its_own() {
    let folder = folder("shapes");
    let name =
        plan(&folder, "[network]\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n[[jobs]]\nsystem = \"ring\"\nworkers = 2\nmessage = \"4KiB\"\n");
    let fat_tree = ["network.shape=fat-tree-3", "network.ports=4"];
    let dragonfly =
        ["network.shape=dragonfly", "network.groups=3", "network.routers=2", "network.global_links=1", "network.hosts_per_router=2"];
    let file = ["network.shape=file", "network.file=net.toml"];
    std::fs::write(
        folder.join("net.toml"),
        "hosts = [\"a\", \"b\"]\nswitches = [{ name = \"s\" }]\nlinks = [{ from = \"s\", to = [\"a\", \"b\"] }]\n",
    )
    .unwrap();
    let arguments = |sets: &[&'static str], more: &[&'static str]| -> Vec<&str> {
        ["sim", name].into_iter().chain(sets.iter().chain(more).flat_map(|set| ["--set", set])).collect()
    };
    for sets in [&fat_tree[..], &dragonfly, &file] {
        good(&folder, &arguments(sets, &["network.routing=drill"]));
    }
    for routing in ["network.routing=minimal", "network.routing=valiant", "network.routing=ugal"] {
        good(&folder, &arguments(&dragonfly, &[routing]));
        good(&folder, &arguments(&dragonfly, &[routing, "network.lossless={ model = \"input-queued\", input = \"8KiB\" }"]));
    }
    good(&folder, &arguments(&file, &["network.routing=conga"]));
    for (sets, wrong, expected) in [
        (&fat_tree[..], "network.ports=5", "network.ports = 5: expected an even number of 2 or more"),
        (&fat_tree, "network.ports=5000", "network.ports = 5000: expected at most 524288 hosts in all, not 31250000000"),
        (&fat_tree, "network.groups=3", "network.groups = 3: expected no such key with shape = \"fat-tree-3\""),
        (&fat_tree, "network.hosts=3", "network.hosts = 3: expected no such key with shape = \"fat-tree-3\""),
        (&dragonfly, "network.groups=4", "network.groups = 4: expected at most 3 groups, routers times global_links and one"),
        (&dragonfly, "network.groups=9000", "network.groups = 9000: expected at most 8192 switches in all, not 18000"),
        (
            &fat_tree,
            "network.routing=valiant",
            "network.routing = \"valiant\": expected another routing: this one is for shape = \"dragonfly\"",
        ),
        (
            &fat_tree,
            "network.routing=conga",
            "network.routing = conga: expected leaves, which have hosts, and spines, each joined only to the others; aggregation0 and core0",
        ),
        (&fat_tree, "network.drill_samples=0", "network.drill_samples = 0: expected 1 to 8 queues"),
        (&fat_tree, "network.drill_memory=9", "network.drill_memory = 9: expected at most 8 queues"),
        (&dragonfly, "network.conga_time=\"0s\"", "network.conga_time = \"0s\": expected 1 ns or more"),
        (&file, "network.global_rate=\"1Gb/s\"", "network.global_rate = \"1Gb/s\": expected no such key with shape = \"file\""),
    ] {
        let said = refused(&folder, &arguments(sets, &[wrong]));
        assert!(said.starts_with(&format!("error: plan.toml: --set {wrong}: {expected}")), "{said}");
    }
    let said = refused(&folder, &arguments(&file, &["network.file=no.toml"]));
    assert!(said.contains("no.toml: cannot be read: "), "{said}");
    std::fs::write(folder.join("net.toml"), "hosts = [\"a\"]\nswitches = [{ name = \"s\" }]\n").unwrap();
    let said = refused(&folder, &arguments(&file, &[]));
    assert_eq!(said, "error: net.toml:1: hosts = a with 0 links: expected one link to a switch for each, or several");
}

/// Every key that the program knows is in the documentation; the program itself says which it knows.
#[test]
fn every_key_is_documented() {
    let folder = folder("documented");
    let name = plan(&folder, GOOD);
    let documentation = std::fs::read_to_string(common::examples().join("README.md")).expect("the documentation of plans");
    let tables = [
        "network",
        "network.lossless",
        "jobs.0",
        "jobs.0.noise",
        "traffic.0",
        "flows.0",
        "limits.0",
        "faults",
        "faults.links.0",
        "faults.timed.0",
        "run",
    ];
    let mut count = 0;
    for table in tables {
        let said = refused(&folder, &["sim", name, "--set", &format!("{table}.qqqqqqqq=1")]);
        let (_, keys) = said.split_once("xpected one of ").unwrap_or_else(|| panic!("{table}: {said}"));
        for key in keys.split(", ") {
            count += 1;
            let mentioned = [format!("`{key}`"), format!("`{key} = "), format!("{key} = "), format!(".{key}]]")]
                .iter()
                .any(|word| documentation.contains(word));
            assert!(mentioned, "{table}.{key} is not documented");
        }
    }
    assert!(count > 60, "{count} keys");
}

/// `network.aggregators`: what ATP and A2TP share is divided equally among jobs of SwitchML.
#[test]
fn aggregators_are_shared_or_divided() {
    let folder = folder("aggregators");
    let text = "[network]\nshape = \"star\"\nhosts = 12\nrate = \"100Gb/s\"\nlatency = \"300ns\"\naggregators = 48\n\n[[jobs]]\nsystem = \
                \"switchml\"\nworkers = 4\ncopies = 2\nmessage = \"64KiB\"\npayload = 248\n";
    let name = plan(&folder, text);
    let peaks = |sets: &[&str]| {
        let arguments: Vec<&str> =
            ["sim", name, "--format", "json"].into_iter().chain(sets.iter().flat_map(|set| ["--set", set])).collect();
        let row = rows(&good(&folder, &arguments)).remove(0);
        assert_eq!(row["census"], "exact", "{row}");
        let jobs = row["jobs"].as_array().expect("jobs").clone();
        jobs.iter().map(|job| job["slots_peak"].as_u64().expect("a count")).collect::<Vec<_>>()
    };
    // Each has a pool of 24 slots with two versions.
    assert_eq!(peaks(&[]), [48, 48]);
    assert_eq!(peaks(&["network.slot_versions=2"]), [24, 24]);
    for system in ["atp", "a2tp"] {
        let peaks = peaks(&[&format!("jobs.0.system={system}")]);
        assert!(peaks.iter().all(|peak| (1..=48).contains(peak)), "{peaks:?}");
    }
    for (sets, expected) in [
        (
            &["network.aggregators=1"][..],
            "network.aggregators = 1: expected at least 2, one for each version of a slot of each job of switchml",
        ),
        (&["network.slot_versions=3"], "network.slot_versions = 3: expected 1 or 2"),
        (&["jobs.0.system=atp", "jobs.0.aggregators=4"], "jobs[0].aggregators = 4: expected no such key beside network.aggregators"),
        (&["jobs.0.system=atp", "jobs.0.reliable=false"], "jobs[0].reliable = false: expected true: without timers"),
        (&["jobs.0.system=a2tp", "jobs.0.threshold=2"], "jobs[0].threshold = 2: expected"),
        (&["jobs.0.system=a2tp", "jobs.0.windows=mine"], "jobs[0].windows = \"mine\": expected \"agreed\" or \"own\""),
        (&["jobs.0.system=a2tp", "jobs.0.synchrony=time"], "jobs[0].synchrony = \"time\": expected \"spread\" or \"round-trip\""),
        (
            &["jobs.0.system=a2tp", "jobs.0.collisions=all"],
            "jobs[0].collisions = \"all\": expected \"round\" or \"aggregated\" or \"shared\"",
        ),
    ] {
        let arguments: Vec<&str> = ["sim", name].into_iter().chain(sets.iter().flat_map(|set| ["--set", set])).collect();
        let said = refused(&folder, &arguments);
        assert!(said.contains(expected), "{said}");
    }
}
