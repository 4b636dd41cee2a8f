//! Runs the program as a user would.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::fs;
use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use fanin_fabric::Fabric;

/// A folder of its own for each test; emptied first.
pub fn folder(test: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    folder
}

/// A fabric at ports that are free at this address, which is one test's alone: ports of hosts are taken later than they are found.
pub fn at_free_ports(text: &str, address: Ipv4Addr) -> Fabric {
    let fabric = Fabric::parse("fabric.toml", text).unwrap();
    let pair = || {
        let udp = UdpSocket::bind((address, 0)).unwrap();
        TcpListener::bind(udp.local_addr().unwrap()).ok().map(|tcp| (udp, tcp))
    };
    // All are held until all are found, so that no port is found twice.
    let held: Vec<(UdpSocket, TcpListener)> = std::iter::repeat_with(pair).flatten().take(fabric.nodes().len()).collect();
    fabric.with_addresses(|node| held[node.index()].0.local_addr().unwrap())
}

/// The repository's examples.
pub fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

/// `fanin` with these arguments, in this folder.
pub fn fanin(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fanin"))
        .current_dir(folder)
        .args(arguments)
        .env_remove("RUST_LOG")
        .output()
        .expect("the program starts")
}

/// Standard output of a run that must end with 0.
pub fn good(folder: &Path, arguments: &[&str]) -> String {
    let output = fanin(folder, arguments);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{arguments:?}: {errors}{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(errors, "", "nothing on standard error in a pipe");
    String::from_utf8(output.stdout).expect("text")
}

/// What a run says that must end with 2: the input is wrong.
pub fn refused(folder: &Path, arguments: &[&str]) -> String {
    let output = fanin(folder, arguments);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", String::from_utf8_lossy(&output.stdout));
    assert!(output.stdout.is_empty());
    String::from_utf8(output.stderr).expect("text").trim_end().to_string()
}

/// Writes a plan and gives its name.
pub fn plan(folder: &Path, text: &str) -> &'static str {
    fs::write(folder.join("plan.toml"), text).expect("a plan");
    "plan.toml"
}

/// The objects of `--format json`.
pub fn rows(json: &str) -> Vec<serde_json::Value> {
    serde_json::from_str(json).expect("an array of objects")
}

/// A row without the only field that may differ from run to run.
pub fn without_wall_s(mut row: serde_json::Value) -> serde_json::Value {
    assert!(row.as_object_mut().expect("an object").remove("wall_s").is_some());
    row
}

/// Four leaves of four hosts, and half of the hosts busy with something else.
pub const SMALL: &str = r#"
[network]
shape = "fat-tree"
leaves = 4
hosts_per_leaf = 4
spines = 2
rate = "100Gb/s"
latency = "300ns"

[[jobs]]
system = "tree"
workers = 8
message = "64KiB"

[[traffic]]
pattern = "uniform"
message = "16KiB"

[[series]]
name = "ring"
set = { "jobs.0.system" = "ring" }

[[series]]
name = "2 trees"
set = { "jobs.0.system" = "tree", "jobs.0.trees" = 2 }

[sweep]
"traffic.0.enabled" = { idle = false, congested = true }

[run]
seed = 7
repetitions = 3
"#;
