//! `fanin switch --transparent` and `fanin bench stream` as their users meet them.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::folder;
use serde_json::Value;

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn fanin(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fanin")).args(arguments).env_remove("RUST_LOG").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn wrong_settings_are_named() {
    for (arguments, words) in [
        (&["switch", "--transparent", "lo"][..], "`transparent` names 1 interfaces where at least 2 different ones are needed"),
        (&["switch", "--transparent", "no-such-a,no-such-b"], "there is no network interface \"no-such-a\""),
        (&["switch", "--transparent", "a,b", "--http", "127.0.0.1:0"], "cannot be used with"),
        (&["switch", "--transparent", "a,b", "--stream-memory", "1KiB"], "1KiB is not between 64 KiB and 1024 MiB"),
        (&["switch", "--transparent", "udp:127.0.0.1:5,b"], "\"udp:127.0.0.1:5\" is no cable: `udp:` and the addresses of its two ends"),
        (&["switch", "--transparent", "a,b", "--rdma-ring", "7:i32:sum:10.0.0.1"], "where 2 to 1024 different addresses is expected"),
        (
            &["switch", "--transparent", "a,b", "--trace", "/no/such/folder/file"],
            "--trace /no/such/folder/file: expected a file that can be written",
        ),
        (
            &["bench", "stream", "--rank", "0", "--world", "1", "--listen", "127.0.0.1:0", "--successor", "127.0.0.1:1"],
            "1 is not in 2..=1024",
        ),
    ] {
        let output = fanin(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
    }
    let rank = ["bench", "stream", "--rank", "3", "--world", "3", "--listen", "127.0.0.1:0", "--successor", "127.0.0.1:1"];
    let output = fanin(&rank);
    assert_eq!(text(&output.stderr).trim(), "error: field `rank` is 3, and there are 3 workers: 0 to 2");
}

/// Runs a script of the repository that needs root.
fn script(name: &str, arguments: &[&str]) -> Output {
    Command::new("python3").current_dir(repository()).arg(format!("scripts/{name}")).args(arguments).output().unwrap()
}

#[test]
#[ignore = "makes network namespaces, which needs root: run by `make test-all`"]
fn connections_are_summed_exactly_and_others_pass() {
    let out = folder("transparent").join("rows.json");
    let arguments =
        ["--fanin", env!("CARGO_BIN_EXE_fanin"), "--workers", "3", "--rate", "200mbit", "--size", "4MiB", "--out", out.to_str().unwrap()];
    let output = script("transparent.py", &arguments);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let rows: Value = serde_json::from_slice(&fs::read(&out).unwrap()).unwrap();
    let summed: Vec<&Value> = rows.as_array().unwrap().iter().filter(|row| row["mode"] == "transparent").collect();
    assert_eq!(summed.len(), 3);
    for row in summed {
        assert_eq!((&row["wrong"], &row["switch"]["rings"], &row["switch"]["rings_failed"]), (&0.into(), &1.into(), &0.into()), "{row}");
        assert!(row["switch"]["summed"].as_u64().unwrap() > 100, "{row}");
    }
    assert!(text(&output.stdout).contains("IPv4 and IPv6: unharmed"));
}

#[test]
#[ignore = "makes network namespaces, which needs root: run by `make test-all`"]
fn the_example_of_plain_sockets_gets_sums_and_a_dead_worker_is_told_to_all() {
    let output = script("transparent_example.py", &["--fanin", env!("CARGO_BIN_EXE_fanin")]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    let said = text(&output.stdout);
    assert_eq!(said.matches("message 1: 100000 sums, the last one is 4.5").count(), 3, "{said}");
    assert!(said.contains("rank 0: the connection with"), "{said}");
    assert!(said.contains("rank 2: the connection with"), "{said}");
}
