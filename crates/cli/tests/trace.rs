//! `fanin trace` as its users meet it. What scapy says of the frames is looked at by scripts/trace_tests.py.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use common::folder;
use fanin_core::Wire;
use fanin_plan::Plan;
use fanin_systems::{LAYOUTS, SwitchMlParameters, System, layout_of};
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
        assert!(System::SwitchMl(SwitchMlParameters { fixed_point }).stays_next_door());
        let more = if fixed_point { "fixed_point = true\n" } else { "" };
        fs::write(&plan, PLAN.replace("\"netreduce\"", &format!("\"{system}\"\n{more}"))).unwrap();
        let output = trace(&plan, &out, &[]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let bytes = fs::read(&out).unwrap();
        let blocks = blocks(&bytes);
        // An enhanced packet block has 20 bytes before the frame, a frame headers of Ethernet, IPv4 and UDP.
        let packets: Vec<&[u8]> = blocks.iter().filter(|block| block.0 == 6).map(|block| &block.1[20 + 14 + 20 + 8..]).collect();
        assert!(packets.len() >= 3 * 16 * 2, "{}", packets.len());
        let room = fanin_control::header_bytes_max(&System::SwitchMl(SwitchMlParameters { fixed_point }), false) as usize;
        for packet in packets {
            let (hop, hop_bytes) = HopHeader::parse(packet).unwrap();
            let (header, header_bytes) = SwitchMlHeader::parse(&packet[hop_bytes + 1..]).unwrap();
            assert!(hop.neighbour && hop_bytes + 1 + header_bytes <= room, "{hop:?} {header:?}");
        }
    }
}

/// The names of a file's interfaces, and its frames with the interface of each.
fn frames(bytes: &[u8]) -> (Vec<String>, Vec<(usize, Vec<u8>)>) {
    let (mut names, mut frames) = (Vec::new(), Vec::new());
    for (kind, body) in blocks(bytes) {
        let word = |at: usize| u32::from_ne_bytes(body[at..at + 4].try_into().unwrap()) as usize;
        match kind {
            // The name is the first option: its code and length, and then the text.
            1 => {
                let length = usize::from(u16::from_ne_bytes(body[10..12].try_into().unwrap()));
                names.push(text(&body[12..12 + length]));
            }
            6 => frames.push((word(0), body[20..20 + word(12)].to_vec())),
            _ => {}
        }
    }
    (names, frames)
}

/// The node that an IPv4 address stands for.
fn node(address: &[u8]) -> u32 {
    assert_eq!(address[0], 10, "{address:?}");
    u32::from_be_bytes([0, address[1], address[2], address[3]]).checked_sub(1).expect("node n has n + 1")
}

/// Four hosts on each of three leaves, one or two spines: nodes 0 to 11, 12 to 14, and from 15 on.
const NETWORKS: &[(&str, u32)] = &[
    ("shape = \"machines\"\nmachines = 3\nper_machine = 4", 16),
    ("shape = \"fat-tree\"\nleaves = 3\nhosts_per_leaf = 4\nspines = 2", 17),
];

/// Ends of frames are nodes that are there; a host is the source of what it sends by its own link, and the destination of what comes by it; what
/// leaves a leaf upwards is for somebody elsewhere, and from somebody below it.
#[test]
fn frames_are_between_those_who_send_and_receive_them() {
    let folder = folder("trace-ends");
    let (plan, out) = (folder.join("plan.toml"), folder.join("out.pcapng"));
    let algorithms = ["flat-ring", "parallel-ring", "tencent", "parallel-netreduce"].map(|name| format!("algorithm = \"{name}\""));
    let machines: Vec<(&str, &str)> = algorithms.iter().map(|line| ("machines", line.as_str())).collect();
    let orders = [("netreduce", "order = \"placement\""), ("rina", "order = \"placement\""), ("tree", "trees = 2")];
    let plain = System::NAMES.iter().map(|system| (*system, ""));
    for (system, more) in plain.chain(machines).chain(orders) {
        for (network, nodes) in NETWORKS {
            let servers = if ["atp", "a2tp", "ps"].contains(&system) { "servers = 0\n" } else { "" };
            let job =
                format!("[[jobs]]\nsystem = \"{system}\"\n{more}\nworkers = 12\nplacement = \"random\"\nmessage = \"48KiB\"\n{servers}");
            let links = "rate = \"100Gb/s\"\nlatency = \"300ns\"\n";
            fs::write(&plan, format!("[network]\n{network}\n{links}{job}")).unwrap();
            let output = trace(&plan, &out, &["--packets", "3000"]);
            let what = format!("{system} {more} in {network}");
            assert!(output.status.success(), "{what}: {}", text(&output.stderr));
            let (names, frames) = frames(&fs::read(&out).unwrap());
            assert!(frames.len() >= 24, "{what}");
            for (interface, frame) in frames {
                let (from, to) = (node(&frame[26..30]), node(&frame[30..34]));
                let (near, far) = names[interface].split_once('-').unwrap();
                let context = || format!("{what}: {near} to {far} carries {from} -> {to}");
                assert!(from < *nodes && to < *nodes && from != to, "{}", context());
                // MAC addresses are those of the same nodes.
                assert_eq!((u32::from(frame[5]), u32::from(frame[11])), (to + 1, from + 1), "{}", context());
                if let Some(host) = near.strip_prefix("host") {
                    assert_eq!(host.parse::<u32>().unwrap(), from, "{}", context());
                }
                if let Some(host) = far.strip_prefix("host") {
                    assert_eq!(host.parse::<u32>().unwrap(), to, "{}", context());
                }
                let is_below = |leaf: &str, node: u32| {
                    let leaf: u32 = leaf.strip_prefix("leaf").unwrap().parse().unwrap();
                    node == 12 + leaf || node / 4 == leaf && node < 12
                };
                if near.starts_with("leaf") && far.starts_with("spine") {
                    assert!(is_below(near, from) && !is_below(near, to), "{}", context());
                }
                if near.starts_with("spine") && far.starts_with("leaf") {
                    assert!(!is_below(far, from) && is_below(far, to), "{}", context());
                }
            }
        }
    }
}

/// Two leaves of five hosts below two spines; one of each five has no worker.
const TREES: &str = r#"[network]
shape = "fat-tree"
leaves = 2
hosts_per_leaf = 5
spines = 2
rate = "100Gb/s"
latency = "300ns"

[[jobs]]
system = "canary"
placement = [0, 1, 2, 3, 5, 6, 7, 8]
message = "48KiB"
"#;

/// What follows the headers of Ethernet, IPv4 and UDP: the number of the system, and its header.
fn header(frame: &[u8]) -> (u8, &[u8]) {
    let (hop, bytes) = HopHeader::parse(&frame[14 + 20 + 8..]).unwrap();
    assert_eq!(frame[14 + 20 + 8 + bytes], hop.system);
    (hop.system, &frame[14 + 20 + 8 + bytes + 1..])
}

#[test]
fn a_block_is_kept_alone_and_drawn() {
    let folder = folder("trace-block");
    let (plan, out, picture) = (folder.join("plan.toml"), folder.join("out.pcapng"), folder.join("tree.svg"));
    for system in ["canary", "tree", "panama", "atp"] {
        fs::write(&plan, TREES.replace("canary", system)).unwrap();
        let output = trace(&plan, &out, &["--block", "5", "--picture", picture.to_str().unwrap()]);
        assert!(output.status.success(), "{}", text(&output.stderr));
        let (names, frames) = frames(&fs::read(&out).unwrap());
        for (_, frame) in &frames {
            let (number, header) = header(frame);
            assert_eq!(layout_of(number).unwrap().block_of(header), Some(5), "{system}");
        }
        // Every worker sends or receives something, and the picture has all that do.
        let ends: BTreeSet<&str> = frames.iter().flat_map(|(interface, _)| names[*interface].split('-')).collect();
        assert!([0, 1, 2, 3, 5, 6, 7, 8].iter().all(|host| ends.contains(format!("host{host}").as_str())), "{system}: {ends:?}");
        let svg = fs::read_to_string(&picture).unwrap();
        assert!(ends.iter().all(|name| svg.contains(&format!("\n{name}\n"))), "{system}: {ends:?}");
    }
    // Eight workers and 48 blocks of Canary: a leaf's contributions to a block are one packet less for its leader.
    fs::write(&plan, TREES).unwrap();
    trace(&plan, &out, &["--block", "5"]);
    let up = |(_, frame): &&(usize, Vec<u8>)| header(frame).1[18] == 0;
    let contributions = frames(&fs::read(&out).unwrap()).1.iter().filter(up).count();
    // Seven to leaves, one partial sum from the other leaf to a spine and one on, and one from the root to the leader, at least.
    assert!((10..=7 + 8).contains(&contributions), "{contributions}");
}

/// Which fields there are Wireshark is told by the program that writes the packets.
#[test]
fn the_dissector_has_every_system_and_field() {
    let folder = folder("trace-dissector");
    let lua = folder.join("fanin.lua");
    let output = Command::new(env!("CARGO_BIN_EXE_fanin")).arg("trace").arg("--dissector").arg(&lua).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let lua = fs::read_to_string(lua).unwrap();
    for (number, name, layout) in LAYOUTS {
        assert!(lua.contains(&format!("[{number}] = {name:?}")) && lua.contains(&format!("title = {:?}", layout.title)), "{name}");
        assert!(layout.fields.iter().all(|field| lua.contains(&format!("name = {:?}, at = {},", field.name, field.at))), "{name}");
    }
    let known: BTreeSet<&str> = LAYOUTS.iter().map(|(_, name, _)| *name).filter(|name| *name != "link").collect();
    assert_eq!(known, System::NAMES.iter().copied().collect());
}

/// The numbers beside names are those that the systems themselves say.
#[test]
fn systems_have_the_numbers_that_layouts_say() {
    for system in System::NAMES {
        let plan = Plan::parse("plan", &TREES.replace("canary", system), &[], None).unwrap();
        let prepared = plan.prepare(&plan.points[0], 0).unwrap();
        let number = prepared.jobs[0].system.number();
        assert!(LAYOUTS.iter().any(|(known, name, _)| (*known, *name) == (number, *system)), "{system} has {number}");
    }
}

#[test]
fn wrong_arguments_are_named() {
    let folder = folder("trace-wrong");
    let (plan, out) = (folder.join("plan.toml"), folder.join("out.pcapng"));
    fs::write(&plan, PLAN).unwrap();
    for (arguments, words) in [
        (&["--links", "host0-host1"][..], "--links host0-host1: expected the two ends of a link, as host0-switch0, host1-switch0"),
        (
            &["--block", "3"],
            "--block 3: expected a job of a system whose packets name blocks: tree, canary, atp, a2tp, panama, sharp, ps, flare",
        ),
        (&["--set", "jobs.0.system=tree", "--block", "3", "--job", "1"], "--job 1: expected 0 to 0, the plan's jobs"),
        (&["--picture", "tree.svg"], "--block <N>"),
        (&["--run", "1"], "--run 1: expected 0 to 0, the plan's runs"),
        (&["--from", "soon"], "expected a time, such as"),
        (&["--from", "3us", "--until", "2us"], "--until 2 us: expected no time before --from 3 us"),
        (&["--set", "network.routing=random"], "network.routing = \"random\": expected no such key in a network with one way"),
        (&["--set", "jobs.0.message=1GiB"], "vectors of 6 GiB: expected at most 1 GiB of all workers"),
    ] {
        let output = trace(&plan, &out, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).contains(words), "{arguments:?}: {}", text(&output.stderr));
    }
    assert!(!out.exists());
}
