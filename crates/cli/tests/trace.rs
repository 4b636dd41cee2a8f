//! `fanin trace` as its users meet it. What scapy says of the frames is looked at by scripts/trace_tests.py.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::folder;
use fanin_core::Wire;
use fanin_systems::System;
use fanin_wire::hop::HopHeader;
use fanin_wire::switchml::SwitchMlHeader;

const PLAN: &str = r#"[network]
shape = "star"
hosts = 3
rate = "100Gb/s"
latency = "300ns"

[[jobs]]
system = "netreduce"
workers = 3
message = "16KiB"
"#;

fn trace(plan: &Path, out: &Path, more: &[&str]) -> Output {
    let program = Command::new(env!("CARGO_BIN_EXE_fanin")).arg("trace").arg(plan).arg("--out").arg(out).args(more).output();
    program.unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Blocks of a pcapng file in this machine's byte order: type and body.
fn blocks(bytes: &[u8]) -> Vec<(u32, &[u8])> {
    let word = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut at, mut blocks) = (0, Vec::new());
    while at < bytes.len() {
        let length = word(at + 4) as usize;
        blocks.push((word(at), &bytes[at + 8..at + length - 4]));
        at += length;
    }
    blocks
}

#[test]
fn links_are_interfaces_and_packets_are_bounded() {
    let folder = folder("trace");
    let (plan, out) = (folder.join("plan.toml"), folder.join("out.pcapng"));
    fs::write(&plan, PLAN).unwrap();
    let output = trace(&plan, &out, &["--links", "host0-switch0,switch0-host2", "--packets", "9"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with("9 packets of 2 links in "), "{}", text(&output.stdout));
    let first = fs::read(&out).unwrap();
    let count = |bytes: &[u8], kind| blocks(bytes).iter().filter(|block| block.0 == kind).count();
    // Section header, interfaces, packets.
    assert_eq!((count(&first, 0x0A0D_0D0A), count(&first, 1), count(&first, 6)), (1, 2, 9));
    trace(&plan, &out, &["--links", "host0-switch0,switch0-host2", "--packets", "9"]);
    assert!(fs::read(&out).unwrap() == first, "a trace depends on plan and seed only");
    // Only what arrives within the time, and all of it.
    let between = trace(&plan, &out, &["--from", "1us", "--until", "2us"]);
    let some = count(&fs::read(&out).unwrap(), 6);
    assert!(between.status.success() && text(&between.stdout).starts_with(&format!("{some} packets of 6 links in ")));
    trace(&plan, &out, &[]);
    let all = count(&fs::read(&out).unwrap(), 6);
    assert!(some > 0 && some < all, "{some} of {all}");
}

/// What the daemon's room for headers counts on: packets of these systems never need the longer hop header.
#[test]
fn systems_that_stay_next_door_send_to_neighbours_only() {
    let folder = folder("trace-next-door");
    let (plan, out) = (folder.join("plan.toml"), folder.join("out.pcapng"));
    for (system, fixed_point) in [("switchml", false), ("switchml", true)] {
        assert!(System::SwitchMl { fixed_point }.stays_next_door());
        let more = if fixed_point { "fixed_point = true\n" } else { "" };
        fs::write(&plan, PLAN.replace("\"netreduce\"", &format!("\"{system}\"\n{more}"))).unwrap();
        let output = trace(&plan, &out, &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let bytes = fs::read(&out).unwrap();
        let blocks = blocks(&bytes);
        // An enhanced packet block has 20 bytes before the frame, a frame headers of Ethernet, IPv4 and UDP.
        let packets: Vec<&[u8]> = blocks.iter().filter(|block| block.0 == 6).map(|block| &block.1[20 + 14 + 20 + 8..]).collect();
        assert!(packets.len() >= 3 * 16 * 2, "{}", packets.len());
        let room = fanin_control::header_bytes_max(&System::SwitchMl { fixed_point }, false) as usize;
        for packet in packets {
            let (hop, hop_bytes) = HopHeader::parse(packet).unwrap();
            let (header, header_bytes) = SwitchMlHeader::parse(&packet[hop_bytes..]).unwrap();
            assert!(hop.neighbour && hop_bytes + 1 + header_bytes <= room, "{hop:?} {header:?}");
        }
    }
}

#[test]
fn wrong_arguments_are_named() {
    let folder = folder("trace-wrong");
    let (plan, out) = (folder.join("plan.toml"), folder.join("out.pcapng"));
    fs::write(&plan, PLAN).unwrap();
    for (arguments, words) in [
        (&["--links", "host0-host1"][..], "--links host0-host1: expected the two ends of a link, as host0-switch0, host1-switch0"),
        (&["--run", "1"], "--run 1: expected 0 to 0, the plan's runs"),
        (&["--from", "soon"], "expected a time, such as"),
        (&["--set", "jobs.0.message=1GiB"], "vectors of 6 GiB: expected at most 1 GiB of all workers"),
    ] {
        let output = trace(&plan, &out, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
    }
    assert!(!out.exists());
}
