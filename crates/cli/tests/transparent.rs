//! `fanin switch --transparent` and `fanin bench stream` as their users meet them.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::thread;
use std::time::{Duration, Instant};

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
        (&["switch", "--transparent", "a,b", "--http", "nowhere"], "`http` is \"nowhere\" where an IP address and a TCP port"),
        (&["switch", "--transparent", "a,b", "--log-format", "xml"], "`log_format` is \"xml\" where text or json is expected"),
        (&["switch", "--transparent", "a,b", "--ring-patience", "2 days"], "2 days is not a time from 1s to 86400s, as 60s"),
        (&["switch", "--transparent", "a,b", "--corrupt", "0.1"], "of the faults only --loss is injected with --transparent"),
        (&["switch", "--transparent", "a,b", "--stream-memory", "1KiB"], "1KiB is not between 64 KiB and 1024 MiB"),
        (&["switch", "--transparent", "udp:127.0.0.1:5,b"], "\"udp:127.0.0.1:5\" is no cable: `udp:` and the addresses of its two ends"),
        (
            &["switch", "--transparent", "a,b", "--uplink", "c"],
            "`uplink` is \"c\" where one of the interfaces of `transparent` is expected",
        ),
        (&["switch", "--uplink", "c"], "the following required arguments were not provided"),
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

/// A page of a server, with its status.
fn get(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: switch\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

/// A switch between cables, which needs no privilege.
#[test]
fn every_metric_is_documented_and_every_documented_metric_is_there() {
    let ends = [(); 4].map(|()| UdpSocket::bind("127.0.0.1:0").unwrap());
    let [a, b, c, d] = ends.each_ref().map(|socket| socket.local_addr().unwrap());
    drop(ends);
    let cables = format!("udp:{a}/{b},udp:{c}/{d}");
    let mut switch = Command::new(env!("CARGO_BIN_EXE_fanin"))
        .args(["switch", "--transparent", &cables, "--http", "127.0.0.1:0"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(switch.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.next().unwrap().starts_with("joins udp:"));
    let said = lines.next().unwrap();
    let http = said.strip_prefix("metrics at http://").unwrap().split('/').next().unwrap().to_owned();
    // The first report is a moment away.
    let begin = Instant::now();
    while get(&http, "/healthz") != (200, "ok\n".to_owned()) {
        assert!(begin.elapsed() < Duration::from_secs(60), "{:?}", get(&http, "/healthz"));
        thread::sleep(Duration::from_millis(20));
    }
    // A frame that comes is counted while the switch runs.
    let host = UdpSocket::bind(b).unwrap();
    host.send_to(&[0x55; 60], a).unwrap();
    let begin = Instant::now();
    let metrics = loop {
        let (status, metrics) = get(&http, "/metrics");
        assert_eq!(status, 200);
        if metrics.contains("fanin_transparent_frames_total 1\n") {
            break metrics;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "{metrics}");
        thread::sleep(Duration::from_millis(20));
    };
    switch.kill().unwrap();
    switch.wait().unwrap();
    let documentation = fs::read_to_string(repository().join("docs/transparent.md")).unwrap();
    let documented: BTreeSet<&str> = documentation.split('`').filter(|word| word.starts_with("fanin_transparent_")).collect();
    let names = metrics.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(['{', ' ']).next().unwrap());
    let found: BTreeSet<&str> = names.filter(|name| name.starts_with("fanin_transparent_")).collect();
    let undocumented: Vec<_> = found.difference(&documented).collect();
    assert!(undocumented.is_empty(), "{undocumented:?}");
    // There is no ring, so nothing is told of any.
    let absent: Vec<_> = documented.difference(&found).filter(|name| !name.starts_with("fanin_transparent_ring_")).collect();
    assert!(absent.is_empty(), "{absent:?}");
    let reasons = metrics.lines().filter_map(|line| line.split("reason=\"").nth(1)?.split('"').next());
    reasons.for_each(|reason| assert!(documentation.contains(&format!("`{reason}`")), "{reason} is not documented"));
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

#[test]
#[ignore = "makes network namespaces, which needs root: run by `make test-all`"]
fn faults_of_networks_and_users_cost_no_sum_and_are_told_by_name() {
    let output = script("transparent_faults.py", &["--fanin", env!("CARGO_BIN_EXE_fanin")]);
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    for case in ["damage", "ports", "jobs", "rings", "killed", "memory", "two-switches", "racks", "racks-loss", "ipv6", "pages"] {
        assert!(text(&output.stdout).contains(&format!("{case}: ")), "{case} was not run");
    }
}
