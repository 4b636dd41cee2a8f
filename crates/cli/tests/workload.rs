//! `fanin import` and `fanin workload`: what they write, what they say, and what they refuse.

mod common;

use std::fs;

use common::{folder, good, refused};

const GOAL: &str =
    "num_ranks 2\nrank 0 {\nl1: calc 100\nl2: send 4096b to 1 tag 0\nl2 requires l1\n}\nrank 1 {\nl1: recv 4096b from 0 tag 0\n}\n";

#[test]
fn a_trace_becomes_a_workload_and_a_table() {
    let folder = folder("import");
    fs::write(folder.join("t.goal"), GOAL).expect("a file");
    let said = good(&folder, &["import", "t.goal", "--out", "w.toml", "--summary"]);
    let expected = "\
wrote w.toml
GOAL text, 1 file

2 ranks, 2 hosts, 1 iteration, 2 programs, 3 nodes
computing, a rank: 0.00 ps to 100.00 ns
span, if communication took no time: 100.00 ns

 collective   group   type   a rank   in all   lengths   bytes   elements an iteration   bytes a rank
──────────────────────────────────────────────────────────────────────────────────────────────────────
 send         -       -           1        1         -    4096                       -          4 KiB
──────────────────────────────────────────────────────────────────────────────────────────────────────
";
    assert_eq!(said, expected);
    let written = fs::read_to_string(folder.join("w.toml")).expect("the workload");
    assert!(written.starts_with("workload = 1\nname = \"t.goal\"\n"), "{written}");
    assert!(written.contains("{ id = \"l2\", send = 1, bytes = \"4KiB\", stream = \"\", after = [\"l1\"] }"), "{written}");
}

#[test]
fn wrong_files_are_refused_and_nothing_is_written() {
    let folder = folder("import_refused");
    fs::write(folder.join("t.goal"), GOAL.replace("to 1", "to 7")).expect("a file");
    fs::write(folder.join("x.txt"), "hello\n").expect("a file");
    let found = refused(&folder, &["import", "t.goal", "--out", "w.toml"]);
    assert_eq!(found, "error: t.goal:4: send to 7: expected a rank below 2; receiving from any is not supported");
    let found = refused(&folder, &["import", "x.txt", "--summary"]);
    assert!(found.starts_with("error: x.txt: not known: expected PyTorch profiler (Kineto) JSON, "), "{found}");
    let found = refused(&folder, &["import", "none.et", "--summary"]);
    assert!(found.starts_with("error: none.et: cannot be read: "), "{found}");
    assert!(refused(&folder, &["import", "t.goal"]).contains("--out <OUT>"));
    assert!(!folder.join("w.toml").exists());
}

#[test]
fn models_become_workloads_and_wrong_options_are_refused() {
    let folder = folder("workload");
    let said = good(&folder, &["workload", "resnet50", "--dp", "4", "--out", "w.toml", "--summary"]);
    assert!(
        said.starts_with("wrote w.toml\nresnet50, dp 4, tp 1, pp 1, ep 1, micro-batches 1\n\n4 ranks, 1 host, 1 iteration, 1 program, "),
        "{said}"
    );
    assert!(said.contains("25557032"), "{said}");
    assert!(
        fs::read_to_string(folder.join("w.toml"))
            .expect("the workload")
            .contains("source = \"generated for h100 at a utilisation of 0.4\"")
    );
    let found = refused(&folder, &["workload", "llama3-8b", "--tp", "5", "--out", "x.toml"]);
    assert_eq!(found, "error: fanin workload: --tp 5: expected a divisor of 32 heads");
    assert!(!folder.join("x.toml").exists());
}

#[test]
fn measured_times_win_over_computed_ones() {
    let folder = folder("workload_durations");
    good(&folder, &["workload", "resnet50", "--dp", "2", "--gpu", "v100", "--out", "trace.toml"]);
    let said = good(&folder, &["workload", "resnet50", "--dp", "2", "--durations", "trace.toml", "--out", "w.toml"]);
    let expected =
        "wrote w.toml\ndurations of 108 computations, by their names 108, by the time 0, as computed 0\nfrom a workload, 1 file\n";
    assert_eq!(said, expected);
    let nodes = |name: &str| {
        let text = fs::read_to_string(folder.join(name)).expect("a workload");
        text.lines().filter(|line| line.contains("compute = ")).map(str::to_string).collect::<Vec<_>>()
    };
    assert_eq!((nodes("w.toml").len(), nodes("w.toml")), (108, nodes("trace.toml")));
    fs::write(folder.join("t.goal"), GOAL).expect("a file");
    let found = refused(&folder, &["workload", "resnet50", "--dp", "2", "--durations", "t.goal", "--out", "x.toml"]);
    assert!(found.starts_with("error: t.goal: nothing is found in the model: "), "{found}");
    assert!(!folder.join("x.toml").exists());
}

/// The commands of the document that need no file are run as they stand there.
#[test]
fn commands_of_the_document_are_run() {
    let folder = folder("workload_document");
    let document = fs::read_to_string(common::examples().join("../docs/workloads.md")).expect("the document");
    let commands = document.lines().filter_map(|line| line.strip_prefix("    fanin workload "));
    let commands: Vec<&str> = commands.filter(|command| !command.contains("--durations")).collect();
    assert_eq!(commands.len(), 4);
    for command in commands {
        let arguments: Vec<&str> = ["workload"].into_iter().chain(command.split_whitespace()).collect();
        assert!(good(&folder, &arguments).starts_with("wrote step.toml\n"), "{command}");
    }
}

/// A network that was taken over is one that plans take.
#[test]
fn networks_become_files_that_plans_take() {
    let folder = folder("import_network");
    let topology = "Nodes 16\nTiers 2\nPodsize 16\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 4\nRadix_Up 2\nDownlink_Latency_ns 500\n\
        Tier 1\nDownlink_speed_Gbps 100\nRadix_Down 4\nDownlink_Latency_ns 500\n";
    fs::write(folder.join("small.topo"), topology).expect("a file");
    let said = good(&folder, &["import", "small.topo", "--out", "network.toml", "--summary"]);
    let expected = "wrote network.toml\nhtsim .topo, 1 file\n\n16 hosts, 6 switches, 24 cables\ncables of hosts: 16 of 100 Gb/s\n\
        cables between switches: 8 of 100 Gb/s\n";
    assert_eq!(said, expected);
    // Hosts with two cables are hosts with two cables.
    fs::write(
        folder.join("planes.csv"),
        "from,to,rate,latency,from_kind\nh0,a,100Gb/s,1us,host\nh0,b,100Gb/s,1us,host\nh1,a,100Gb/s,1us,host\n\
        h1,b,100Gb/s,1us,host\n",
    )
    .expect("a file");
    good(&folder, &["import", "planes.csv", "--out", "planes.toml"]);
    for (file, workers) in [("network.toml", 16), ("planes.toml", 2)] {
        let plan = format!(
            "[network]\nshape = \"file\"\nfile = \"{file}\"\n\n[[jobs]]\nsystem = \"ring\"\nworkers = {workers}\nmessage = \"64KiB\"\n"
        );
        good(&folder, &["sim", common::plan(&folder, &plan), "--check"]);
    }
    let found = refused(&folder, &["import", "small.topo", "--out", "x.toml", "--ranks", "4"]);
    assert_eq!(found, "error: small.topo: --ranks: expected none for a network");
}

/// Blocks of a collective and queues go into the trace of the first run, and what is not there is refused before anything runs.
#[test]
fn a_trace_has_the_blocks_and_queues_that_were_asked_for() {
    let folder = folder("trace_blocks");
    let plan = common::plan(
        &folder,
        "[network]\nshape = \"star\"\nhosts = 2\nrate = \"100Gb/s\"\nlatency = \"1us\"\n\n[[jobs]]\nsystem = \"tree\"\nworkers = 2\nmessage = \"4KiB\"\n",
    );
    let arguments = ["sim", plan, "--trace", "t.json", "--trace-blocks", "0:0", "--trace-links", "host0-switch0,switch0-host0"];
    good(&folder, &arguments);
    let trace: serde_json::Value = serde_json::from_str(&fs::read_to_string(folder.join("t.json")).expect("the trace")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("a list");
    assert_eq!(events.iter().filter(|event| event["ph"] == "X").count(), 8);
    assert!(events.iter().any(|event| event["ph"] == "C" && event["name"] == "switch0-host0" && event["args"]["bytes"] == 1_081));
    let found = refused(&folder, &["sim", plan, "--trace", "none.json", "--trace-blocks", "0:1"]);
    assert_eq!(found, "error: --trace-blocks 0:1: expected an operation from 0 to 0 of job 0, as JOB:NUMBER: it has no workload");
    let found = refused(&folder, &["sim", plan, "--trace", "none.json"]);
    assert_eq!(found, "error: --trace: expected a plan with a job that has a workload, or --trace-blocks or --trace-links");
    assert!(refused(&folder, &["sim", plan, "--trace-links", "host0-switch0"]).contains("--trace <FILE.json>"));
    assert!(!folder.join("none.json").exists());
}
