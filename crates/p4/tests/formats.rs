//! No bytes whatever make a parser panic; what a parser takes is written again as the same bytes.
#![allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`")]

use std::net::Ipv4Addr;

use fanin_p4::formats::atp::{self, ATP, AtpFrame, KIND_ATP};
use fanin_p4::formats::canary::{CANARY, CanaryFrame, KIND_CANARY, Name};
use fanin_p4::formats::netreduce::NetReduceFrame;
use fanin_p4::formats::rina::{self, RINA, RINA_SUM, RinaFrame};
use fanin_p4::formats::switchml::{PORT, SWITCHML, SwitchMlFrame};
use fanin_p4::frames::{ETHERNET, Endpoint, IPV4, Mac, UDP, seal};
use fanin_p4::{control, pcap};
use fanin_wire::netreduce::{NetReduceHeader, PacketNumber};
use fanin_wire::roce::Envelope;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

const OWN: Name = Name { ip: Ipv4Addr::new(10, 0, 255, 7), number: 7 };

/// The addresses and ports of a frame, which a packet does not have.
fn ends(frame: &[u8], packet: &SwitchMlFrame) -> [Endpoint; 2] {
    let udp = &frame[ETHERNET.bytes() + IPV4.bytes()..];
    let end = |mac, ip, udp| Endpoint { mac: Mac(ETHERNET.get(frame, mac)), ip, udp };
    [end("src", packet.src, UDP.get(udp, "src") as u16), end("dst", packet.dst, packet.port)]
}

/// Whether it is a packet.
fn switchml_leads_back(frame: &[u8]) -> bool {
    let Ok(packet) = SwitchMlFrame::parse(frame) else { return false };
    let [src, dst] = ends(frame, &packet);
    let again = packet.emit(&src, &dst);
    // What a switch does not look at is not kept.
    let mut same = frame.to_vec();
    let (ip, rest) = same[ETHERNET.bytes()..].split_at_mut(IPV4.bytes());
    for (name, value) in [("service", 0), ("id", 0), ("reserved", 0), ("whole", 1), ("hops", 64)] {
        IPV4.put(ip, name, value);
    }
    UDP.put(rest, "checksum", 0);
    seal(&mut same);
    assert_eq!(again, same);
    true
}

fn canary_leads_back(frame: &[u8]) -> bool {
    let Ok(packet) = CanaryFrame::parse(frame, OWN) else { return false };
    let mac = |name| Mac(ETHERNET.get(frame, name));
    let again = packet.emit(mac("src"), mac("dst"));
    // Elements are whole.
    let length = frame.len() - (frame.len() - ETHERNET.bytes() - CANARY.bytes()) % 4;
    assert_eq!(again, frame[..length]);
    true
}

/// Aggregators of the switch whose packets are read.
const AGGREGATORS: u16 = 7;

fn atp_leads_back(frame: &[u8]) -> bool {
    let Ok(packet) = AtpFrame::parse(frame, AGGREGATORS) else { return false };
    assert_eq!(atp::rewrite(frame, &packet.header, &packet.elements), frame);
    true
}

/// A packet of ATP, if its header allows.
fn almost_atp(bytes: &[u8]) -> Vec<u8> {
    let mut frame = bytes.to_vec();
    frame.resize(bytes.len().max(atp::FRAME), 0);
    ETHERNET.put(&mut frame, "kind", KIND_ATP);
    let header = &mut frame[ETHERNET.bytes() + IPV4.bytes()..];
    ["server", "half", "reserved"].into_iter().for_each(|name| ATP.put(header, name, 0));
    let index = ATP.get(header, "index");
    ATP.put(header, "second_index", index + u64::from(AGGREGATORS));
    let (ack, app) = (ATP.get(header, "ack"), ATP.get(header, "app") | 1);
    ATP.put(header, "resend", 1 - ack);
    ATP.put(header, "app", app);
    frame
}

fn rina_leads_back(frame: &[u8]) -> bool {
    let Ok(packet) = RinaFrame::parse(frame) else { return false };
    let mac = |name| Mac(ETHERNET.get(frame, name));
    let again = packet.emit(mac("src"), mac("dst"));
    // Behind a task there may be anything.
    assert_eq!(again, frame[..again.len()]);
    true
}

/// A task, gradient or result of Rina.
fn almost_rina(bytes: &[u8]) -> Vec<u8> {
    let mut frame = bytes.to_vec();
    frame.resize(rina::FRONT + 4 * rina::ELEMENTS, 0);
    ETHERNET.put(&mut frame, "kind", rina::KIND_RINA);
    let header = &mut frame[ETHERNET.bytes()..];
    let kind = [rina::TASK, rina::GRADIENT, rina::RESULT][bytes.len() % 3];
    RINA.put(header, "kind", kind);
    RINA.put(header, "value", 1);
    if kind != rina::GRADIENT {
        RINA.put(header, "flag", 0);
    } else {
        RINA_SUM.put(&mut header[RINA.bytes()..], "pad", 0);
    }
    frame
}

/// A packet of RoCEv2 that fills its frame; checks are put right.
fn netreduce_leads_back(bytes: &[u8]) {
    let mut frame = bytes.to_vec();
    if frame.len() > 80 {
        fanin_wire::roce::finish(&mut frame);
    }
    let Ok(packet) = NetReduceFrame::parse(&frame) else { return };
    let (roce, _) = fanin_wire::roce::RoceHeader::parse(&frame).unwrap();
    let mut same = frame.clone();
    UDP.put(&mut same[ETHERNET.bytes() + IPV4.bytes()..], "checksum", 0);
    assert_eq!(packet.emit(roce.envelope), same);
}

/// A write of NetReduce with some bits of its headers changed.
fn almost_netreduce(bytes: &[u8]) -> Vec<u8> {
    let at = PacketNumber::new(u32::from(bytes.first().copied().unwrap_or(0)), false);
    let header = match bytes.len() % 2 {
        0 => NetReduceHeader::First { at, message: 7, length: 9, address: 11, connection: 1, ring: 3, packets: 2 },
        _ => NetReduceHeader::Next { at, connection: 1, last: true },
    };
    let elements = vec![5; 1024 - 16 * (1 - bytes.len() % 2)];
    let envelope = Envelope {
        macs: [[2; 6]; 2],
        addresses: [[10, 0, 0, 1], [10, 0, 0, 2]],
        service: 2,
        identification: 0,
        hops: 64,
        source_port: 49_152,
        dont_fragment: true,
        tags: [None; 2],
    };
    let mut frame = NetReduceFrame { header, marked: false, elements }.emit(envelope);
    let place = usize::from(bytes.get(1).copied().unwrap_or(0)) % 90;
    frame[place] ^= bytes.get(2).copied().unwrap_or(0);
    frame
}

fn capture_leads_back(bytes: &[u8]) {
    if let Ok(packets) = pcap::read(bytes) {
        assert_eq!(pcap::read(&pcap::write(&packets)), Ok(packets));
    }
}

/// Puts what a parser asks for first in its place.
fn almost(bytes: &[u8]) -> [Vec<u8>; 2] {
    let mut canary = bytes.to_vec();
    canary.resize(bytes.len().max(ETHERNET.bytes() + CANARY.bytes()), 0);
    ETHERNET.put(&mut canary, "kind", KIND_CANARY);
    let mut switchml = bytes.to_vec();
    let front = ETHERNET.bytes() + IPV4.bytes() + UDP.bytes() + SWITCHML.bytes();
    switchml.resize(front + 128, 0);
    ETHERNET.put(&mut switchml, "kind", 0x0800);
    let (ip, udp) = (ETHERNET.bytes(), ETHERNET.bytes() + IPV4.bytes());
    for (name, value) in [("version", 4), ("words", 5), ("length", 166), ("more", 0), ("offset", 0), ("protocol", 17)] {
        IPV4.put(&mut switchml[ip..], name, value);
    }
    UDP.put(&mut switchml[udp..], "dst", u64::from(PORT) | u64::from(bytes.len() as u8 & 15));
    UDP.put(&mut switchml[udp..], "length", 146);
    for (name, value) in [("msg_type", 0), ("unused", 0), ("size", 0)] {
        SWITCHML.put(&mut switchml[udp + UDP.bytes()..], name, value);
    }
    let header = &mut switchml[udp + UDP.bytes()..];
    let (version, exponent) = (SWITCHML.get(header, "tsi") & 1, SWITCHML.get(header, "e0"));
    SWITCHML.put(header, "version", version);
    SWITCHML.put(header, "e1", exponent);
    seal(&mut switchml);
    [canary, switchml]
}

fn lead_back(bytes: &[u8]) {
    switchml_leads_back(bytes);
    canary_leads_back(bytes);
    atp_leads_back(bytes);
    capture_leads_back(bytes);
    assert!(atp_leads_back(&almost_atp(bytes)));
    rina_leads_back(bytes);
    assert!(rina_leads_back(&almost_rina(bytes)));
    netreduce_leads_back(bytes);
    netreduce_leads_back(&almost_netreduce(bytes));
    let [canary, switchml] = almost(bytes);
    canary_leads_back(&canary);
    assert!(switchml_leads_back(&switchml));
}

#[test]
fn any_bytes_are_refused_or_lead_back() {
    let config = Config { cases: 4_000, failure_persistence: None, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    // Few bits: much of what Canary's packets do not use is zero.
    let byte = prop_oneof![3 => Just(0u8), 1 => any::<u8>(), 1 => (0u8..8).prop_map(|bit| 1 << bit)];
    let taken = std::cell::Cell::new(0u32);
    let result = runner.run(&prop::collection::vec(byte, 0..260), |bytes| {
        lead_back(&bytes);
        taken.set(taken.get() + u32::from(canary_leads_back(&almost(&bytes)[0])));
        Ok(())
    });
    result.unwrap();
    assert!(taken.get() > 20, "only {} of Canary's packets were taken", taken.get());
}

/// The same property for a fuzzer (`make fuzz`); an ordinary test runs what it has found.
#[test]
fn frames_fuzzed() {
    bolero::check!().with_iterations(0).for_each(lead_back);
}

/// Files that somebody else has captured.
#[test]
fn captures_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
        let mut file = pcap::write(&[]);
        file.extend(bytes);
        capture_leads_back(&file);
        capture_leads_back(bytes);
    });
}

/// Configurations of switches, for each program: commands, or words that say what is wrong.
#[test]
fn configurations_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
        let Some(json) = std::str::from_utf8(bytes).ok() else { return };
        for program in ["atp", "canary", "netreduce", "rina", "switchml"] {
            if let Err(error) = control::commands(program, json) {
                assert!(!error.is_empty(), "{program}");
            }
        }
    });
}
