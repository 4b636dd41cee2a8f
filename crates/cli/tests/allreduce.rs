//! `fanin bench allreduce` with real processes.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

fn fanin() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanin"));
    command.args(["bench", "allreduce"]);
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("FANIN_")) {
        command.env_remove(name);
    }
    command
}

fn run(arguments: &[&str]) -> Output {
    fanin().args(arguments).output().unwrap()
}

fn rows(arguments: &[&str]) -> Vec<Value> {
    let output = run(arguments);
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn every_element_is_right_by_either_path() {
    for transport in ["shm", "udp"] {
        for collective in ["allreduce", "reduce", "broadcast", "reduce-scatter", "all-gather"] {
            let arguments = ["--workers", "3", "--sizes", "0,4,1000B,256KiB", "--iterations", "3", "--format", "json"];
            let rows = rows(&[&arguments[..], &["--transport", transport, "--collective", collective]].concat());
            assert_eq!(rows.len(), 4, "{collective}");
            for row in rows {
                assert_eq!(row["wrong"], 0, "{row}");
                for field in ["size_bytes", "time_us", "algbw_mb_s", "busbw_mb_s"] {
                    assert!(row[field].is_number(), "{row}");
                }
            }
        }
    }
}

/// What reads files of nccl-tests finds all that theirs have, and bandwidths of which one is the factor times the other.
#[test]
fn results_are_written_as_nccl_tests_do_and_compared_with_the_link() {
    let file = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("nccl-tests.json");
    let arguments = ["--workers", "4", "--sizes", "4KiB,64KiB", "--iterations", "3", "--link", "10Gb/s", "--format", "json"];
    let more = ["--dtype", "bf16", "--op", "max", "--json-nccl-tests", file.to_str().unwrap()];
    let rows = rows(&[&arguments[..], &more].concat());
    assert!(rows.iter().all(|row| row["bus_factor"] == 1.5), "{rows:?}");
    for row in &rows {
        let (share, algbw) = (row["of_link"].as_f64().unwrap(), row["algbw_mb_s"].as_f64().unwrap());
        assert!((share - algbw * 8e6 / 10e9).abs() < 1e-9, "{row}");
    }
    let written: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(
        (&written["version"], &written["config"]["maximum_bytes"], &written["out_of_bounds"]["okay"]),
        (&3.into(), &65_536.into(), &true.into())
    );
    assert_eq!(written["devices"].as_array().unwrap().len(), 4);
    for (line, row) in written["results"].as_array().unwrap().iter().zip(&rows) {
        assert_eq!(
            (&line["type"], &line["redop"], &line["root"], &line["count"]),
            (&"bfloat16".into(), &"max".into(), &"-1".into(), &row["elements"])
        );
        assert!(line["in_place"].is_null() && line["out_of_place"]["nwrong"] == 0.0 && line["experiment_name"] == "AllReduce", "{line}");
        let bandwidth = |name: &str| line["out_of_place"][name].as_f64().unwrap();
        assert!((bandwidth("bus_bw") - 1.5 * bandwidth("alg_bw")).abs() < 1e-12 && bandwidth("time") > 0.0, "{line}");
    }
    assert_eq!(written["start_time"].as_str().unwrap().len(), "2026-01-31 23:59:59".len());
    let nowhere = run(&["--workers", "2", "--sizes", "4B", "--iterations", "1", "--json-nccl-tests", "/nowhere/x.json"]);
    let text = String::from_utf8_lossy(&nowhere.stderr);
    assert!(!nowhere.status.success() && text.contains("--json-nccl-tests /nowhere/x.json: cannot be written"), "{text}");
    let text = String::from_utf8_lossy(&run(&["--workers", "2", "--link", "fast"]).stderr).into_owned();
    assert!(text.contains("--link") && text.contains("bits per second"), "{text}");
}

#[test]
fn in_place_too_where_both_vectors_are_equally_long() {
    let base = ["--workers", "3", "--sizes", "4,256KiB", "--iterations", "2", "--format", "json", "--in-place"];
    for more in [["--transport", "shm"], ["--transport", "udp"], ["--collective", "broadcast"], ["--op", "prod"]] {
        let rows = rows(&[&base[..], &more].concat());
        assert!(rows.len() == 2 && rows.iter().all(|row| row["wrong"] == 0 && row["in_place"] == true), "{more:?}: {rows:?}");
    }
    let output = run(&[&base[..], &["--collective", "all-gather"]].concat());
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && text.contains("--in-place with --collective all-gather"), "{text}");
}

#[test]
fn vectors_that_are_longer_than_caches_too() {
    // From 8 MiB a rank on, results are written past the caches.
    let base = ["--workers", "3", "--iterations", "1", "--format", "json", "--transport", "shm"];
    let cases: [&[&str]; 4] = [
        &["--sizes", "9MiB"],
        &["--sizes", "9MiB", "--in-place"],
        &["--sizes", "27MiB", "--collective", "all-gather"],
        &["--sizes", "27MiB", "--collective", "reduce-scatter"],
    ];
    for more in cases {
        assert_eq!(rows(&[&base[..], more].concat())[0]["wrong"], 0, "{more:?}");
    }
}

#[test]
fn types_operators_and_block_fixed_point() {
    let base = ["--workers", "2", "--sizes", "64KiB", "--iterations", "2", "--format", "json"];
    let cases: [&[&str]; 3] =
        [&["--dtype", "bf16", "--op", "avg"], &["--dtype", "u8", "--op", "xor"], &["--transport", "udp", "--fixed-point"]];
    for more in cases {
        let rows = rows(&[&base[..], more].concat());
        assert_eq!(rows[0]["wrong"], 0);
    }
}

#[test]
fn the_table_names_path_and_columns() {
    let output = run(&["--workers", "2", "--sizes", "4KiB", "--iterations", "2"]);
    let text = String::from_utf8(output.stdout).unwrap();
    for expected in ["allreduce over shared memory", "algbw, MB/s", "busbw, MB/s", "wrong", " 4096 |"] {
        assert!(text.contains(expected), "{expected}: {text}");
    }
}

#[test]
fn what_the_command_line_does_not_say_the_environment_does() {
    let arguments = ["--workers", "2", "--sizes", "64KiB", "--iterations", "2", "--transport", "udp", "--format", "json"];
    let output = fanin().args(arguments).env("FANIN_PAYLOAD", "1024").env("FANIN_WINDOW", "32").output().unwrap();
    let rows: Vec<Value> = serde_json::from_slice(&output.stdout).unwrap();
    let path = rows[0]["path"].as_str().unwrap();
    assert!(path.contains("1024 bytes a packet, 32 packets under way"), "{path}");
}

/// More ranks than a vector has elements: sizes grow until every rank has one, which the table says.
#[test]
fn every_rank_has_an_element_or_more() {
    for collective in ["all-gather", "reduce-scatter"] {
        let base = ["--workers", "5", "--sizes", "4B..64B", "--iterations", "1", "--collective", collective];
        let rows = rows(&[&base[..], &["--format", "json"]].concat());
        let seen: Vec<_> = rows.iter().map(|row| (row["size_bytes"].as_u64(), row["elements"].as_u64(), row["wrong"].as_u64())).collect();
        assert_eq!(seen, [(20, 5), (40, 10), (80, 20)].map(|(bytes, elements)| (Some(bytes), Some(elements), Some(0))));
        let table = String::from_utf8(run(&base).stdout).unwrap();
        assert!(table.contains("Sizes are rounded up"), "{table}");
    }
    let table = String::from_utf8(run(&["--workers", "2", "--sizes", "64B", "--iterations", "1"]).stdout).unwrap();
    assert!(!table.contains("rounded"), "{table}");
}

/// What ends the number of ranks is what a switch admits.
#[test]
fn more_ranks_than_256() {
    for transport in ["shm", "udp"] {
        let base = ["--workers", "260", "--sizes", "4B", "--iterations", "1", "--format", "json", "--timeout", "300"];
        let rows = rows(&[&base[..], &["--transport", transport, "--collective", "all-gather"]].concat());
        assert_eq!((&rows[0]["elements"], &rows[0]["wrong"]), (&260.into(), &0.into()), "{rows:?}");
    }
    let output = run(&["--workers", "1025"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(text.contains("expected 1 to 1024, the most ranks that a switch admits to a job"), "{text}");
}

#[test]
fn wrong_arguments_are_refused_with_what_was_expected() {
    for (arguments, expected) in [
        (vec!["--sizes", "9..4"], "range that begins above 0"),
        (vec!["--dtype", "f8"], "f32 f64 i32"),
        (vec!["--dtype", "f32", "--op", "xor"], "no xor of f32"),
        (vec!["--rank", "2", "--world", "2", "--switch", "127.0.0.1:1"], "rank = 2: expected 0 to 1"),
        (vec!["--rank", "0", "--world", "2"], "no place to meet"),
        (vec!["--rank", "0", "--world", "1", "--timeout", "0"], "expected 0.1 to 86400"),
        (vec!["--timeout", "0"], "expected 0.1 to 86400"),
        (
            vec!["--sizes", "16GiB", "--workers", "1024"],
            "--sizes 16GiB: expected less: 1024 ranks with vectors of 16 GiB take about 48 TiB",
        ),
        (vec!["--sizes", "17GiB"], "larger than 16 GiB"),
        (vec!["--op", "max", "--collective", "all-gather"], "--op max with --collective all-gather: expected none"),
        (vec!["--fixed-point", "--dtype", "i32"], "--fixed-point: expected --dtype f32"),
    ] {
        let output = run(&[&["--iterations", "1"], &arguments[..]].concat());
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(expected), "{arguments:?}: {text}");
    }
}

fn rank(rank: u32, place: &str, transport: &str) -> Child {
    let mut command = fanin();
    command.args(["--rank", &rank.to_string(), "--world", "3", "--rendezvous", place, "--transport", transport]);
    command.args(["--sizes", "1MiB", "--iterations", "1000000", "--timeout", "10"]);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
}

#[test]
fn a_rank_that_is_killed_is_named_by_all_others() {
    for transport in ["shm", "udp"] {
        let place = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut ranks: Vec<Child> = (0..3).map(|number| rank(number, &place, transport)).collect();
        // Whether they are joining or computing by then, the others learn of it.
        std::thread::sleep(Duration::from_millis(500));
        let mut killed = ranks.remove(1);
        killed.kill().unwrap();
        killed.wait().unwrap();
        for mut other in ranks {
            let mut text = String::new();
            other.stderr.take().unwrap().read_to_string(&mut text).unwrap();
            assert!(!other.wait().unwrap().success());
            assert!(text.contains("rank 1"), "{transport}: {text}");
        }
    }
}
