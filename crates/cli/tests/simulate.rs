//! `fanin sim` from end to end: the same results whatever the number of threads, formats that read back, physical limits, examples.

mod common;

use std::fs;
use std::path::{Path, PathBuf};

use common::{SMALL, examples, fanin, folder, good, plan, refused, rows, without_wall_s};
use serde_json::Value;

#[test]
fn results_do_not_depend_on_the_number_of_threads() {
    let folder = folder("threads");
    let name = plan(&folder, SMALL);
    let run = |threads: &str| {
        let printed = good(&folder, &["sim", name, "--threads", threads, "--format", "json", "--out", threads]);
        let rows: Vec<Value> = rows(&printed).into_iter().map(without_wall_s).collect();
        (rows, fs::read(folder.join(threads).join("links.csv")).unwrap(), fs::read(folder.join(threads).join("links.svg")).unwrap())
    };
    let one = run("1");
    assert_eq!(one.0.len(), 12);
    assert_eq!(one, run("4"));
}

/// A run of a large network has several threads where there are more of them than runs, and what keeps it on one is said to who asked for more.
#[test]
fn threads_beyond_runs_are_for_parts_of_a_run_or_it_is_said_why_not() {
    let folder = folder("parts");
    let text = "[network]\nshape = \"fat-tree\"\nleaves = 8\nhosts_per_leaf = 16\nspines = 4\nrate = \"100Gb/s\"\nlatency = \"300ns\"\nrouting = \"adaptive\"\n\
                [[jobs]]\nsystem = \"canary\"\nworkers = 128\nmessage = \"64KiB\"\npayload = \"1KiB\"\n";
    let name = plan(&folder, text);
    let run = |threads: &str| {
        let rows: Vec<Value> =
            rows(&good(&folder, &["sim", name, "--threads", threads, "--format", "json"])).into_iter().map(without_wall_s).collect();
        rows
    };
    assert_eq!(run("1"), run("2"));
    // All files are the same, but for how long runs took; what is seen over time among them.
    let text = text.replace("payload = \"1KiB\"\n", "payload = \"1KiB\"\n[run]\nseries_interval = \"1us\"\nmemory_interval = \"1us\"\n");
    let name = plan(&folder, &text);
    let files = |threads: &str| {
        let out = format!("looked-at-{threads}");
        let said = fanin(&folder, &["sim", name, "--threads", threads, "--out", &out]);
        assert!(said.status.success() && !String::from_utf8_lossy(&said.stderr).contains("one core"), "{said:?}");
        written(&folder.join(out))
    };
    let one = files("1");
    assert!(
        ["series.csv", "links.csv", "memory.csv", "report.html"].iter().all(|name| one.iter().any(|(known, _)| known == name)),
        "{one:?}"
    );
    assert_eq!(one, files("2"));
    let lossless = text.replace("routing = ", "lossless = { model = \"output-queued\", input = \"64KiB\" }\nrouting = ");
    let name = plan(&folder, &lossless);
    let said = fanin(&folder, &["sim", name, "--threads", "2"]).stderr;
    assert_eq!(String::from_utf8_lossy(&said), "note: 1 of 1 runs used one core only: lossless links learn at once of credits\n");
    good(&folder, &["sim", name]);
}

/// The files of a folder by name, without how long runs took: `wall_s`, which results.csv has in a column, and other files in JSON.
fn written(folder: &Path) -> Vec<(String, String)> {
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).filter(|path| path.is_file()).collect();
    files.sort();
    let read = |path: &PathBuf| {
        let mut text = String::from_utf8_lossy(&fs::read(path).unwrap()).to_string();
        while let Some(at) = text.find("\"wall_s\":") {
            let length = text[at..].find([',', '}']).unwrap();
            text.replace_range(at..at + length, "");
        }
        if path.ends_with("results.csv") {
            let column = text.lines().next().unwrap().split(',').position(|name| name == "wall_s").unwrap();
            let cells = |line: &str| {
                line.split(',')
                    .enumerate()
                    .filter(|(place, _)| *place != column)
                    .map(|(_, cell)| cell.to_string() + ",")
                    .collect::<String>()
            };
            text = text.lines().map(cells).collect::<Vec<_>>().join("\n");
        }
        (path.file_name().unwrap().to_string_lossy().to_string(), text)
    };
    files.iter().map(read).collect()
}

/// Exact under loss, and with an exchange of exponents ahead a little later.
#[test]
fn switchml_runs_from_a_plan() {
    let folder = folder("switchml");
    let text = SMALL
        .replace("system = \"tree\"", "system = \"switchml\"\nwindow = 16")
        .replace("\"jobs.0.system\" = \"ring\"", "\"jobs.0.fixed_point\" = true")
        .replace("\"jobs.0.system\" = \"tree\", \"jobs.0.trees\" = 2", "\"jobs.0.element\" = \"bf16\"")
        + "\n[[faults.links]]\nloss = \"2%\"\nduplication = \"2%\"\n";
    let name = plan(&folder, &text);
    let all = rows(&good(&folder, &["sim", name, "--format", "json"]));
    assert_eq!(all.len(), 12);
    for row in &all {
        assert_eq!((&row["jobs"][0]["system"], &row["census"]), (&"switchml".into(), &"exact".into()), "{row}");
        assert!(row["drops"]["injected_loss"].as_u64().is_some_and(|count| count > 0), "{row}");
    }
    let wrong = text.replace("\"bf16\"", "\"bf16\", \"jobs.0.fixed_point\" = true");
    let said = refused(&folder, &["sim", plan(&folder, &wrong)]);
    assert!(said.contains("fixed_point") && said.contains("32-bit floats"), "{said}");
}

#[test]
fn a_repetition_has_the_same_hosts_and_traffic_in_every_series() {
    let folder = folder("paired");
    let name = plan(&folder, SMALL);
    good(&folder, &["sim", name, "--out", "out"]);
    let all = rows(&fs::read_to_string(folder.join("out/results.json")).unwrap());
    let hosts =
        |row: &Value| -> Vec<Value> { row["jobs"][0]["workers_us"].as_array().unwrap().iter().map(|pair| pair[0].clone()).collect() };
    for repetition in 0..3 {
        let same: Vec<&Value> = all.iter().filter(|row| row["repetition"] == repetition).collect();
        assert!(same.len() == 4 && same.iter().all(|row| hosts(row) == hosts(same[0])));
    }
    assert_ne!(hosts(&all[0]), hosts(&all[1]), "repetitions differ");
}

#[test]
fn json_and_csv_hold_the_same_numbers() {
    let folder = folder("formats");
    let name = plan(&folder, SMALL);
    let json = rows(&good(&folder, &["sim", name, "--format", "json"]));
    let csv = good(&folder, &["sim", name, "--format", "csv"]);
    let mut reader = csv::Reader::from_reader(csv.as_bytes());
    let header = reader.headers().unwrap().clone();
    let records: Vec<csv::StringRecord> = reader.records().map(Result::unwrap).collect();
    assert_eq!(records.len(), json.len());
    for (record, row) in records.iter().zip(&json) {
        for (column, cell) in header.iter().zip(record) {
            let value = match column.split_once('.') {
                Some((table, key)) => &row[table][key],
                None => &row[column],
            };
            let expected = match value {
                Value::Null if ["drops", "retransmissions", "begun_anew", "counts"].iter().any(|table| column.starts_with(table)) => {
                    "0".to_string()
                }
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            // Readers of JSON may round the last digit of a number in their own way.
            let same = match (cell.parse::<f64>(), expected.parse::<f64>()) {
                (Ok(a), Ok(b)) => (a - b).abs() <= b.abs() * 1e-12,
                _ => cell == expected,
            };
            assert!(column == "wall_s" || same, "{column}: {cell} but {expected}");
        }
    }
    for key in json[0]
        .as_object()
        .unwrap()
        .keys()
        .filter(|key| !["jobs", "drops", "retransmissions", "begun_anew", "counts", "params"].contains(&key.as_str()))
    {
        assert!(header.iter().any(|column| column == key), "{key} is missing in the CSV");
    }
    let needed = [
        "system",
        "seed",
        "params",
        "hosts",
        "workers",
        "message_bytes",
        "congested",
        "completion_us",
        "goodput_gbps",
        "link_utilization_mean",
        "switch_bytes_peak",
        "census",
        "packet_hops",
        "link_bytes",
        "packets_dropped",
        "wall_s",
    ];
    assert!(needed.iter().all(|key| json.iter().all(|row| row.get(key).is_some())));
}

/// A change of behaviour is a difference here: look at it, and if it is meant, accept it with `cargo insta accept`.
#[test]
fn the_summary_of_a_small_plan() {
    let folder = folder("summary");
    let name = plan(&folder, SMALL);
    insta::assert_snapshot!(good(&folder, &["sim", name]));
}

#[test]
fn goodput_stays_below_what_frames_leave_of_the_wire() {
    let folder = folder("caps");
    for (payload, cap, least) in [(1024u32, 94.73, 90.0), (128, 69.19, 65.0)] {
        for workers in [2u32, 3, 8] {
            for system in ["tree", "ring"] {
                let text = format!(
                    "[network]\nshape = \"star\"\nhosts = {workers}\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n\
                     [[jobs]]\nsystem = \"{system}\"\nworkers = {workers}\nmessage = \"1MiB\"\npayload = {payload}\n"
                );
                let name = plan(&folder, &text);
                let row = rows(&good(&folder, &["sim", name, "--format", "json"])).remove(0);
                let goodput = row["goodput_gbps"].as_f64().unwrap();
                let n = f64::from(workers);
                let share = if system == "ring" { n / (2.0 * (n - 1.0)) } else { 1.0 };
                assert!(goodput <= cap * share, "{system}, {workers} workers, {payload} B: {goodput} above {}", cap * share);
                assert!(goodput >= least * share * 0.95, "{system}, {workers} workers, {payload} B: {goodput} for {}", cap * share);
                assert_eq!(row["census"], "exact");
            }
        }
    }
}

#[test]
fn every_payload_gives_the_same_times() {
    let folder = folder("payloads");
    let name = plan(&folder, SMALL);
    let run = |payload: &str| {
        let set = format!("run.payload={payload}");
        let printed = good(&folder, &["sim", name, "--format", "json", "--set", &set, "--set", "run.repetitions=1"]);
        rows(&printed).into_iter().map(without_wall_s).collect::<Vec<_>>()
    };
    let census = run("census");
    assert!(census.iter().all(|row| row["census"] == "exact"));
    assert_eq!(census, run("elements"));
    let mut length = run("length");
    assert!(length.iter().all(|row| row["census"] == "off"));
    length.iter_mut().for_each(|row| row["census"] = "exact".into());
    assert_eq!(census, length);
}

#[test]
fn every_example_can_be_read_and_small_ones_run() {
    let folder = folder("examples");
    let mut count = 0;
    for entry in fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_some_and(|extension| extension == "toml") {
            count += 1;
            good(&folder, &["sim", path.to_str().unwrap(), "--check"]);
        }
    }
    assert!(count >= 4, "{count} examples");
    let small = [
        ("dragonfly.toml", 3),
        ("jobs.toml", 3),
        ("loss.toml", 60),
        ("lossless.toml", 4),
        ("nvls.toml", 7),
        ("rina.toml", 6),
        ("shapes.toml", 24),
        ("sharp.toml", 6),
        ("trimming.toml", 90),
        ("training.toml", 4),
        ("two-jobs.toml", 8),
        ("workload.toml", 8),
    ];
    for (name, runs) in small {
        let path = examples().join(name);
        let all = rows(&good(&folder, &["sim", path.to_str().unwrap(), "--format", "json", "--out", name]));
        assert_eq!(all.len(), runs);
        assert!(all.iter().all(|row| row["census"] == "exact" && row["failure"].is_null()), "{name}");
    }
    assert!(folder.join("loss.toml/completion.svg").exists());
}

/// A training mix gives the same bytes with any number of threads, and the same numbers as ever.
#[test]
fn a_training_mix_does_not_depend_on_threads() {
    let folder = folder("training");
    let path = examples().join("training.toml");
    let run = |threads: &str| {
        let printed = good(&folder, &["sim", path.to_str().unwrap(), "--format", "json", "--threads", threads, "--out", threads]);
        let files = ["series.csv", "links.csv", "goodput.svg", "slots.svg", "iterations.svg"];
        let read = |name: &str| fs::read_to_string(folder.join(threads).join(name)).expect(name);
        (rows(&printed).into_iter().map(without_wall_s).collect::<Vec<_>>(), files.map(read))
    };
    let (rows, files) = run("1");
    assert_eq!((&rows, &files), (&run("3").0, &run("3").1));
    let mut text = String::new();
    for row in &rows {
        let number = |value: &Value| value.as_f64().map_or("-".into(), |number| format!("{number:.3}"));
        text += &format!("{} seed {}: {} us an iteration\n", row["series"].as_str().unwrap(), row["seed"], number(&row["iteration_us"]));
        for job in row["jobs"].as_array().unwrap() {
            let told = ["begun_us", "iteration_us", "communication_us", "jct_us", "crashed_us"].map(|key| number(&job[key]));
            text += &format!("  {} workers: {}\n", job["workers"], told.join(" "));
        }
    }
    insta::assert_snapshot!(text);
}

/// Three workers, three blocks, one switch: each block has two contributions, which are added and sent on as one. With a single place the first
/// block has it until its sum is back, so the four packets of the others collide, come to their leaders one by one, and their sums are brought
/// by a restoration each.
#[test]
fn what_is_central_is_counted_exactly() {
    let folder = folder("counts");
    let base = "[network]\nshape = \"star\"\nhosts = 3\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n\
                lossless = { model = \"input-queued\", input = \"16KiB\", output = \"16KiB\" }\n";
    let job = "[[jobs]]\nsystem = \"canary\"\nworkers = 3\nmessage = \"3KiB\"\nreliable = false\nplacement = \"packed\"\noperations = 4\n";
    let run = |network: &str, of_job: &str| {
        let name = plan(&folder, &format!("{base}{network}{job}{of_job}"));
        rows(&good(&folder, &["sim", name, "--format", "json"])).remove(0)
    };
    let counts = |row: &Value, names: &[&str]| names.iter().map(|name| row["counts"][*name].as_u64().unwrap_or(0)).collect::<Vec<_>>();
    const NAMES: [&str; 8] = ["summed", "stragglers", "collisions", "restorations", "sums", "timed_out", "leader_packets", "leader_blocks"];
    let enough = run("aggregators = 1000\n", "table = \"d-choice\"\n");
    assert_eq!(counts(&enough, &NAMES), [24, 0, 0, 0, 12, 0, 12, 12], "{enough}");
    assert_eq!((&enough["collided_share"], &enough["leader_packets_per_block"]), (&0.0.into(), &1.0.into()));
    let one = run("aggregators = 1\n", "");
    assert_eq!(counts(&one, &NAMES), [8, 0, 16, 8, 4, 0, 20, 12], "{one}");
    assert_eq!(one["jobs"][0]["counts"]["collisions"], serde_json::json!({ "leaf": 16 }));
    assert_eq!(one["jobs"][0]["counts"]["leader_blocks"], serde_json::json!({ "host": 12 }));
    assert_eq!(one["collided_share"].as_f64().map(|share| (share * 3.0).round()), Some(2.0));
    // Four links of 300 ns, each with a frame of 1081 bytes, and another one in front of some.
    let frame_us = 1_081.0 * 8.0 / 1e5;
    let [p50, max] = ["block_us_p50", "block_us_max"].map(|key| enough[key].as_f64().unwrap());
    let least = 4.0 * (0.3 + frame_us);
    assert!(least <= p50 * 1.02 && p50 <= max && max <= least + 3.0 * frame_us, "{p50} {max} {least}");
    let operations = &enough["jobs"][0]["operation_us"];
    assert_eq!(operations["max"], enough["operation_us_max"]);
    assert!(operations["p50"].as_f64() <= operations["max"].as_f64() && operations["max"].as_f64() >= Some(max), "{operations}");
}

/// Parts, shares, and what cannot be either, by the name of the key.
#[test]
fn aggregators_are_descriptors_of_canary() {
    let folder = folder("shared_arrays");
    let text = |network: &str, jobs: &[&str]| {
        let mut text = format!("[network]\nshape = \"star\"\nhosts = 8\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n{network}");
        jobs.iter().for_each(|job| text += &format!("[[jobs]]\n{job}\nworkers = 4\nmessage = \"64KiB\"\nwindow = 16\n"));
        text
    };
    const CANARY: &str = "system = \"canary\"";
    let ran = |network: &str, jobs: &[&str]| {
        let name = plan(&folder, &text(network, jobs));
        let row = rows(&good(&folder, &["sim", name, "--format", "json"])).remove(0);
        assert_eq!(row["census"], "exact", "{row}");
        row["counts"]["collisions"].as_u64().unwrap_or(0)
    };
    // 16 of 64 places each do for a window; one place for both does not.
    assert_eq!(ran("aggregators = 64\n", &["system = \"canary\"\ntable = \"static\""; 2]), 0);
    assert!(ran("aggregators = 1\n", &[CANARY; 2]) > 100);
    let says = |network: &str, jobs: &[&str]| refused(&folder, &["sim", plan(&folder, &text(network, jobs))]);
    let beside = says("aggregators = 64\n", &[CANARY, "system = \"canary\"\ndescriptors = 5"]);
    assert!(beside.contains("jobs[1].descriptors = 5: expected no such key beside network.aggregators"), "{beside}");
    let none = says("aggregators = 1\n", &["system = \"canary\"\ntable = \"static\""; 2]);
    assert!(none.contains("network.aggregators = 1: expected at least 2, one for each job of canary with table = \"static\""), "{none}");
    let tree = says("aggregators = 64\n", &["system = \"tree\""]);
    assert!(tree.contains("network.aggregators = 64: expected no such key without a job of canary, switchml, atp or a2tp"), "{tree}");
    let unlike = says("aggregators = 64\n", &[CANARY, "system = \"canary\"\ntable = \"d-choice\""]);
    assert!(unlike.contains("jobs[1].table = \"d-choice\": expected as in the jobs before it"), "{unlike}");
    let own = says("", &["system = \"canary\"\nshared = true\ntable = \"static\""]);
    assert!(own.contains("jobs[0].table = \"static\": expected hash or d-choice"), "{own}");
}

/// What the series says over a run is what the run says.
#[test]
fn jobs_over_time_add_up_to_the_run() {
    let folder = folder("series");
    let text = "[network]\nshape = \"star\"\nhosts = 9\nrate = \"100Gb/s\"\nlatency = \"1us\"\nframe_overhead = 58\n\
                [[jobs]]\nsystem = \"switchml\"\nplacement = [0, 1, 2, 3]\nmessage = \"2MB\"\npayload = 248\n\
                [[jobs]]\nsystem = \"switchml\"\nplacement = [4, 5, 6, 7]\nmessage = \"1MB\"\npayload = 248\n\
                [[limits]]\nsend = \"26.7Mp/s\"\nreceive = \"26.7Mp/s\"\n\
                [[limits]]\nhosts = { job = 1, rank = 3 }\nrate = \"16.04032Gb/s\"\n\
                [run]\nseries_interval = \"10us\"\n";
    let name = plan(&folder, text);
    let row = rows(&good(&folder, &["sim", name, "--format", "json", "--out", "out"])).remove(0);
    // 26.7 million packets a second of 248 bytes; and 306 bytes a packet at 16.04 Gb/s leave 13 Gb/s.
    let goodput = |job: usize| row["jobs"][job]["goodput_gbps"].as_f64().unwrap();
    assert!((goodput(0) - 52.97).abs() < 1.0 && (goodput(1) - 13.0).abs() < 0.2, "{} {}", goodput(0), goodput(1));
    let mut bytes = [0.0, 0.0];
    let mut steady = [Vec::new(), Vec::new()];
    let mut reader = csv::Reader::from_path(folder.join("out/series.csv")).expect("series.csv");
    let columns: Vec<String> = reader.headers().unwrap().iter().map(String::from).collect();
    let expected = [
        "time_us",
        "interval_us",
        "job",
        "goodput_gbps",
        "packets",
        "slots",
        "slot_bytes",
        "collisions",
        "marked",
        "outstanding",
        "round_trip",
    ];
    assert_eq!(columns, expected);
    for record in reader.records() {
        let record = record.unwrap();
        let cell = |column: usize| record[column].parse::<f64>().unwrap_or(f64::NAN);
        let job = cell(2) as usize;
        bytes[job] += cell(3) * cell(1) * 1e3 / 8.0;
        if (50.0..250.0).contains(&cell(0)) {
            steady[job].push((cell(3), cell(5)));
        }
    }
    assert!((bytes[0] - 2e6).abs() < 1.0 && (bytes[1] - 1e6).abs() < 1.0, "{bytes:?}");
    // Between the beginning and the end nothing changes: two versions of each of 512 slots stay in use.
    for (job, expected) in [(0, 52.97), (1, 13.0)] {
        assert_eq!(steady[job].len(), 20);
        assert!(steady[job].iter().all(|(goodput, slots)| (goodput - expected).abs() < 1.0 && *slots <= 1_024.0), "{:?}", steady[job]);
    }
    assert!(fs::read_to_string(folder.join("out/report.html")).unwrap().contains("Slots in use over time"));
}

#[test]
fn jobs_that_share_hosts_share_their_links() {
    let folder = folder("sharing");
    let job = |system: &str| {
        format!("[[jobs]]\nsystem = \"{system}\"\nplacement = [0, 1, 2, 3]\njobs_per_host = 3\nmessage = \"2MiB\"\nwindow = 256\n")
    };
    for system in ["switchml", "tree", "ring"] {
        let network = "[network]\nshape = \"star\"\nhosts = 4\nrate = \"100Gb/s\"\nlatency = \"1us\"\n";
        let name = plan(&folder, &format!("{network}{}", job(system).repeat(3)));
        let row = rows(&good(&folder, &["sim", name, "--format", "json"])).remove(0);
        let goodput: Vec<f64> = (0..3).map(|job| row["jobs"][job]["goodput_gbps"].as_f64().unwrap()).collect();
        let (low, high) = goodput.iter().fold((f64::INFINITY, 0.0f64), |(low, high), value| (low.min(*value), high.max(*value)));
        assert!(high / low < 1.15, "{system}: {goodput:?}");
        assert_eq!(row["census"], "exact");
    }
}

#[test]
fn the_error_names_the_host_that_died() {
    let folder = folder("failure");
    let path = examples().join("failure.toml");
    let path = path.to_str().unwrap();
    let all = rows(&good(&folder, &["sim", path, "--format", "json", "--set", "jobs.0.placement=packed"]));
    assert_eq!(all.len(), 2);
    for row in &all {
        let failure = row["failure"].as_str().unwrap();
        assert!(failure.ends_with("waiting for rank 3 on host3"), "{failure}");
        assert_eq!((&row["census"], &row["completion_us"]), (&Value::from("exact"), &Value::Null));
    }
    let unexpected = fanin(&folder, &["sim", path, "--set", "run.expect=success"]);
    assert_eq!(unexpected.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unexpected.stdout).contains("FAILED: series tree, seed 1: "));
    let survived = fanin(&folder, &["sim", path, "--set", "faults.timed=[]"]);
    assert_eq!(survived.status.code(), Some(1), "failure was expected");
}

/// `rina 4.5` to `4.7`: with real elements, the results of those that are left are compared with the sum of exactly their vectors.
#[test]
fn a_job_that_goes_on_without_a_host_that_died_is_complete_and_says_so() {
    let folder = folder("without");
    let text = "[network]\nshape = \"fat-tree\"\nleaves = 2\nhosts_per_leaf = 3\nspines = 1\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n\
                [[jobs]]\nsystem = \"rina\"\nworkers = 6\nplacement = \"packed\"\nmessage = \"64KiB\"\niterations = 3\npatience = \"1ms\"\n\
                [[faults.timed]]\nkind = \"host-dies\"\nhost = \"host3\"\nfrom = \"12us\"\n[run]\npayload = \"elements\"\n";
    let name = plan(&folder, text);
    for payload in ["elements", "census"] {
        let set = format!("run.payload={payload}");
        let row = rows(&good(&folder, &["sim", name, "--format", "json", "--set", &set])).remove(0);
        assert_eq!((&row["census"], &row["failure"], &row["ended"]), (&"exact".into(), &Value::Null, &"jobs_done".into()), "{row}");
        assert_eq!(row["jobs"][0]["without"], Value::from(vec![3]), "{row}");
        assert!(row["goodput_gbps"].as_f64() > Some(0.0) && row["jobs"][0]["jct_us"].as_f64() > Some(1_000.0), "{row}");
    }
    let summary = good(&folder, &["sim", name]);
    assert!(summary.contains("seed 1: job 0 completed without rank 3; its results are the others' sums"), "{summary}");
    // Three of six are no majority.
    let more = "faults.timed=[{ kind = \"host-dies\", host = \"host3\", from = \"12us\" }, { kind = \"host-dies\", host = \"host4\", from = \"12us\" }, \
        { kind = \"host-dies\", host = \"host5\", from = \"12us\" }]";
    let failed = fanin(&folder, &["sim", name, "--set", more]);
    assert_eq!(failed.status.code(), Some(1), "{}{}", String::from_utf8_lossy(&failed.stdout), String::from_utf8_lossy(&failed.stderr));
    assert!(String::from_utf8_lossy(&failed.stdout).contains("FAILED: seed 1: "));
}

/// What a worker at its server's own host sends is there a window before the rest: the rest is not late for that.
#[test]
fn a_server_beside_a_worker_asks_for_nothing_that_is_on_its_way() {
    let folder = folder("beside");
    let text = "[network]\nshape = \"fat-tree\"\nleaves = 2\nhosts_per_leaf = 4\nspines = 1\nrate = \"25Gb/s\"\nlatency = \"300ns\"\necn = \"80kB\"\n\
                [[jobs]]\nsystem = \"atp\"\nworkers = 8\nmessage = \"2MB\"\nservers = 0\nwindow = 512\naggregators = 4096\nrto_min = \"20us\"\n";
    let name = plan(&folder, text);
    for system in ["atp", "a2tp"] {
        let row = rows(&good(&folder, &["sim", name, "--format", "json", "--set", &format!("jobs.0.system={system}")])).remove(0);
        assert_eq!(
            (&row["census"], &row["packets_dropped"], &row["packets_retransmitted"]),
            (&"exact".into(), &0.into(), &0.into()),
            "{row}"
        );
    }
}

/// `rina 6.5`: static trees where some switches only forward are exact, with losses too, and are slower than where all sum. In a tree of three
/// levels, where children, parents and both are behind others.
#[test]
fn static_trees_do_with_some_of_the_switches() {
    let folder = folder("partial-trees");
    let text = "[network]\nshape = \"fat-tree-3\"\nports = 4\nrate = \"25Gb/s\"\nlatency = \"300ns\"\necn = \"80kB\"\n\
                [[jobs]]\nsystem = \"tree\"\nworkers = 16\nmessage = \"256KiB\"\ntrees = 2\nrto_min = \"200us\"\niterations = 2\n";
    let name = plan(&folder, text);
    let row = |sets: &[&str]| rows(&good(&folder, &[&["sim", name, "--format", "json"], sets].concat())).remove(0);
    let some = [
        "[\"edge0\", \"edge3\", \"core1\"]",
        "[\"core0\", \"core1\", \"core2\"]",
        "[\"edge0\", \"edge1\", \"edge2\", \"edge3\", \"edge4\", \"edge5\", \"edge6\", \"edge7\"]",
        "[\"aggregation2\", \"edge7\"]",
    ];
    for system in ["tree", "panama"] {
        let system = format!("jobs.0.system={system}");
        let all = row(&["--set", &system]);
        for aggregating in some {
            let aggregating = format!("network.aggregating={aggregating}");
            let sets = ["--set", &system, "--set", &aggregating];
            let (clean, lossy) = (
                row(&sets),
                row(&[&sets[..], &["--set", "faults.links=[{ loss = 0.01, duplication = 0.01, reordering = 0.02 }]"]].concat()),
            );
            for row in [&clean, &lossy] {
                assert_eq!((&row["census"], &row["ended"]), (&"exact".into(), &"jobs_done".into()), "{aggregating}: {row}");
            }
            assert!(clean["completion_us"].as_f64() > all["completion_us"].as_f64(), "{aggregating}: more bytes where fewer sum");
            assert!(lossy["packets_retransmitted"].as_u64() > Some(0), "{lossy}");
        }
    }
    let refused = |sets: &[&str]| String::from_utf8_lossy(&fanin(&folder, &[&["sim", name], sets].concat()).stderr).into_owned();
    // The number of its trees is no key of this system.
    std::fs::write(folder.join("canary.toml"), text.replace("\"tree\"", "\"canary\"").replace("trees = 2\n", "")).unwrap();
    let canary = fanin(&folder, &["sim", "canary.toml", "--set", "network.aggregating=[\"edge0\"]"]);
    let error = String::from_utf8_lossy(&canary.stderr);
    assert!(
        error.contains("expected a system that can do without switch")
            && error.contains("which only forwards: atp, a2tp, rina, tree or panama"),
        "{error}"
    );
    let error = refused(&["--set", "network.aggregating=[\"edge0\", \"host3\"]"]);
    assert!(error.contains("network.aggregating[1] = \"host3\": expected the name of a switch"), "{error}");
    let error = refused(&["--set", "network.aggregating=\"file\""]);
    assert!(error.contains("network.aggregating = \"file\": expected names of switches with this shape"), "{error}");
    let error = refused(&["--set", "network.aggregating=[]"]);
    assert!(error.contains("expected a network in which some switch aggregates"), "{error}");
}

#[test]
fn windows_that_hear_of_no_mark_are_told_of_where_queues_overflow() {
    let folder = folder("unmarked");
    let text = "[network]\nshape = \"star\"\nhosts = 9\nrate = \"10Gb/s\"\nlatency = \"300ns\"\nqueue = \"20kB\"\n\
                [[jobs]]\nsystem = \"atp\"\nworkers = 8\nmessage = \"256KiB\"\naggregators = 4\nwindow = 64\n";
    let name = plan(&folder, text);
    let told = |sets: &[&str]| {
        good(&folder, &[&["sim", name], sets].concat()).contains("windows of atp shrink by ECN marks only, and network.ecn is not given")
    };
    assert!(told(&[]));
    assert!(!told(&["--set", "network.ecn=10kB"]), "they are marked");
    assert!(!told(&["--set", "network.queue=10MB"]), "nothing is lost");
}

#[test]
fn without_the_hop_sequence_duplicates_are_told() {
    let folder = folder("duplicates");
    let text = "[network]\nshape = \"star\"\nhosts = 4\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n\
                [[jobs]]\nsystem = \"ring\"\nworkers = 4\nmessage = \"64KiB\"\nreliable = false\n\
                [faults]\nlinks = [{ duplication = 0.2 }]\n";
    let name = plan(&folder, text);
    good(&folder, &["sim", name]);
    let off = fanin(&folder, &["sim", name, "--set", "faults.anti_replay=false", "--set", "run.time_limit=1ms"]);
    // With debug assertions the node's own bookkeeping may panic before the oracle speaks.
    assert!(matches!(off.status.code(), Some(1 | 101)), "{:?}", off.status);
    let said = String::from_utf8_lossy(&off.stdout).into_owned();
    assert!(off.status.code() == Some(101) || said.contains("NOT EXACT: seed 1: wrong: "), "{said}");
}

#[test]
fn traffic_alone_is_a_plan_too() {
    let folder = folder("traffic");
    let text = "[network]\nshape = \"star\"\nhosts = 4\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n\
                [[traffic]]\npattern = \"permutation\"\nmessages = 3\nmessage = \"10KiB\"\n";
    let name = plan(&folder, text);
    let row = rows(&good(&folder, &["sim", name, "--format", "json"])).remove(0);
    assert_eq!((&row["ended"], &row["goodput_gbps"]), (&Value::from("traffic_done"), &Value::Null));
    assert_eq!(row["packet_hops"], 4 * 3 * 10 * 2);
    assert!(good(&folder, &["sim", name]).contains("background"));
}

#[test]
fn help_and_version_are_there() {
    let folder = folder("help");
    assert!(good(&folder, &["--version"]).starts_with("fanin "));
    for arguments in [&["--help"][..], &["sim", "--help"], &["bench", "sim", "--help"], &["demo", "--help"]] {
        assert!(good(&folder, arguments).contains("Usage: fanin"));
    }
    assert_eq!(fanin(&folder, &["sim"]).status.code(), Some(2));
    assert_eq!(fanin(&folder, &["sim", "x.toml", "--threads", "0"]).status.code(), Some(2));
}

#[test]
fn the_bench_measures_what_it_says() {
    let folder = folder("bench");
    let measured = rows(&good(&folder, &["bench", "sim", "--only", "w1", "--packets", "8", "--repetitions", "1", "--format", "json"]));
    let payloads: Vec<&str> = measured.iter().map(|row| row["payload"].as_str().unwrap()).collect();
    assert_eq!(payloads, ["length", "census"]);
    for row in &measured {
        // 8 packets of each of 1024 hosts over two links under one leaf, or four links.
        let hops = row["packet_hops"].as_u64().unwrap();
        assert!((8 * 1024 * 2..=8 * 1024 * 4).contains(&hops), "{hops}");
        let rate = hops as f64 / row["cpu_s"].as_f64().unwrap();
        assert!((row["packet_hops_per_cpu_s"].as_f64().unwrap() / rate - 1.0).abs() < 1e-6);
    }
    assert_eq!(measured[0]["events"], measured[1]["events"]);
}

#[test]
fn the_bench_measures_the_congested_cell_of_canary() {
    let folder = folder("bench_fig08");
    let arguments = ["bench", "sim", "--only", "fig08", "--message", "64KiB", "--payload", "census", "--repetitions", "1"];
    let measured = rows(&good(&folder, &[&arguments[..], &["--format", "json"]].concat())).remove(0);
    assert_eq!((&measured["name"], &measured["payload"]), (&Value::from("fig08"), &Value::from("census")));
    // The same run by the figure's plan, without what it varies.
    let text = fs::read_to_string(examples().join("../experiments/canary/fig08/plan.toml")).expect("the plan of Fig. 8");
    let (setting, _) = text.split_once("[[series]]").expect("the series");
    let name = plan(&folder, &format!("{setting}[run]\nseed = 1\n"));
    let keys = ["workers=512", "message=64KiB", "system=canary", "timeout=1us"].map(|key| format!("jobs.0.{key}"));
    let sets: Vec<&str> = keys.iter().flat_map(|key| ["--set", key.as_str()]).collect();
    let row = rows(&good(&folder, &[&["sim", name, "--format", "json"], &sets[..]].concat())).remove(0);
    assert_eq!((&row["packet_hops"], &row["events"]), (&measured["packet_hops"], &measured["events"]));
    let per_hop = measured["events"].as_f64().unwrap() / measured["packet_hops"].as_f64().unwrap();
    assert!((measured["events_per_hop"].as_f64().unwrap() - per_hop).abs() < 1e-9 && per_hop < 1.7, "{per_hop}");
    match measured["instructions"].as_u64() {
        Some(count) => assert!(count > measured["packet_hops"].as_u64().unwrap()),
        None => assert!(measured["instructions_per_hop"].is_null()),
    }
}
