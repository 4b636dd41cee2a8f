//! Packets in and packets out: random traces, drawn from a seed, go through the protocols' state machines. A program that is played the same
//! packets, port by port in the order of their times, must send the same ones.
//!
//! What a trace consists of is what a network does (losses, repetitions, packets that come late or in another order) and what it must not do
//! to a switch: packets that were damaged, cut, or made by somebody else.

pub mod atp;
pub mod canary;
pub mod netreduce;
pub mod rina;
pub mod switchml;

use std::collections::BTreeMap;

use fanin_core::hash::mix;
use fanin_core::{Body, Egress, Event, OpError, Payload, Piece, PortId, PortSet, Route, Tx, Wire};
use serde::Serialize;

use crate::formats::Header;
use crate::frames::{ETHERNET, seal};
use crate::pcap::{self, Packet};

/// Time zero of a trace: bmv2 takes a file's first packet for the first, whatever its time.
const BEGIN_US: u64 = 1_000_000;

/// Numbers drawn from a seed.
#[derive(Clone, Debug)]
pub struct Draws {
    seed: u64,
    drawn: u64,
}

impl Draws {
    /// The numbers of a seed.
    pub fn new(seed: u64) -> Self {
        Draws { seed, drawn: 0 }
    }

    /// Any number.
    pub fn any(&mut self) -> u64 {
        self.drawn += 1;
        mix(self.seed, self.drawn)
    }

    /// A number below `bound`, which is not zero.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.any()) * u128::from(bound)) >> 64) as u64
    }

    /// True in so many of a hundred cases.
    pub fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

/// A frame at a port, and when.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Crossing {
    at_us: u64,
    port: u16,
    frame: Vec<u8>,
}

/// A trace as it is made.
#[derive(Clone, Debug)]
pub struct Trace {
    ports: u16,
    gap_us: u64,
    now_us: u64,
    into: Vec<Crossing>,
    out: Vec<Crossing>,
    /// How often what happened.
    pub seen: BTreeMap<&'static str, u64>,
}

impl Trace {
    /// Nothing yet, at a switch of so many ports; packets come `gap_us` microseconds apart, which the program has for each.
    pub fn new(ports: u16, gap_us: u64) -> Self {
        Trace { ports, gap_us, now_us: BEGIN_US, into: Vec::new(), out: Vec::new(), seen: BTreeMap::new() }
    }

    /// A packet comes.
    pub fn comes(&mut self, port: u16, frame: Vec<u8>) {
        self.comes_at(self.now_us + self.gap_us, port, frame);
    }

    /// A packet comes at this time.
    pub fn comes_at(&mut self, at_us: u64, port: u16, frame: Vec<u8>) {
        self.now_us = at_us;
        self.into.push(Crossing { at_us, port, frame });
    }

    /// For the packet that came last a packet leaves.
    pub fn leaves(&mut self, port: u16, frame: Vec<u8>) {
        self.out.push(Crossing { at_us: self.now_us, port, frame });
    }

    /// Something happened.
    pub fn saw(&mut self, what: &'static str) {
        *self.seen.entry(what).or_default() += 1;
    }

    /// When the packet that came last came, in microseconds.
    pub fn now_us(&self) -> u64 {
        self.now_us
    }

    /// Packets that have come.
    pub fn length(&self) -> usize {
        self.into.len()
    }

    fn file(&self, crossings: &[Crossing], port: u16) -> Vec<u8> {
        let at_port = crossings.iter().filter(|crossing| crossing.port == port);
        let packets: Vec<Packet> = at_port.map(|crossing| Packet { at_us: crossing.at_us, frame: crossing.frame.clone() }).collect();
        pcap::write(&packets)
    }

    /// The files of a case, by name.
    ///
    /// # Panics
    /// Where the configuration cannot be written as JSON.
    pub fn case(&self, config: &impl Serialize, commands: String, about: About) -> BTreeMap<String, Vec<u8>> {
        let mut files = BTreeMap::new();
        for port in 0..self.ports {
            files.insert(format!("p{port}_in.pcap"), self.file(&self.into, port));
            files.insert(format!("p{port}_out.pcap"), self.file(&self.out, port));
        }
        let json = |value: &serde_json::Value| (serde_json::to_string_pretty(value).expect("it is plain data") + "\n").into_bytes();
        files.insert("switch.json".into(), json(&serde_json::to_value(config).expect("it is plain data")));
        files.insert("commands.txt".into(), commands.into_bytes());
        let about = serde_json::json!({
            "program": about.program, "ports": self.ports, "defines": about.defines, "headers": about.headers,
            "packets": self.into.len(), "seen": self.seen,
        });
        files.insert("case.json".into(), json(&about));
        files
    }
}

/// What a runner must know of a case.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct About {
    /// The program, `switchml` say.
    pub program: &'static str,
    /// Sizes that it is compiled with.
    pub defines: Vec<(&'static str, u64)>,
    /// The headers of its packets, by name, for words about differences.
    pub headers: &'static [&'static str],
}

/// Where a state machine sends something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum To {
    /// A port.
    Port(PortId),
    /// A copy on each of these.
    Ports(PortSet),
    /// Wherever the way to there begins.
    Route(Route),
}

/// The way out of a state machine.
#[derive(Debug)]
pub struct Outlet<H> {
    /// What was sent.
    pub sent: Vec<(To, H, Vec<u8>)>,
    /// What was said.
    pub notes: Vec<Event>,
}

impl<H> Default for Outlet<H> {
    fn default() -> Self {
        Outlet { sent: Vec::new(), notes: Vec::new() }
    }
}

impl<H: Wire + Copy> Tx<H, [u8]> for Outlet<H> {
    fn send(&mut self, to: Egress<'_>, header: &H, body: Body<'_, [u8]>) {
        let body = match body {
            Body::Empty => &[][..],
            Body::Borrowed(bytes) => bytes,
            Body::Acc(acc) => acc.as_bytes(),
            other => unreachable!("{other:?}: a switch has no vectors"),
        };
        let to = match to {
            Egress::Port(port) => To::Port(port),
            Egress::Ports(ports) => To::Ports(ports.clone()),
            Egress::Route(route) => To::Route(route),
        };
        self.sent.push((to, *header, body.to_vec()));
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, event: Event) {
        self.notes.push(event);
    }

    fn contribute(&mut self, _: Piece, _: &mut <[u8] as Payload>::Acc, _: bool) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn fold(&mut self, _: Piece, _: &[u8]) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn deliver(&mut self, _: Piece, _: Body<'_, [u8]>) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }
}

/// Elements of a contribution, little-endian: the same for the same words. Some are the largest and smallest that there are.
pub fn elements(count: usize, name: u64) -> Vec<u8> {
    let element = |number: usize| {
        let drawn = mix(name, number as u64);
        match drawn >> 60 {
            0 => i32::MAX,
            1 => i32::MIN,
            _ => drawn as i32,
        }
    };
    (0..count).flat_map(|number| element(number).to_le_bytes()).collect()
}

/// Damages a frame: a bit of its headers, anything, its end, or all of it. Checksums of IPv4 are sometimes put right again.
pub fn damage(draws: &mut Draws, frame: &mut Vec<u8>, headers_bytes: usize) {
    match draws.below(8) {
        0 => {
            let length = draws.below(frame.len() as u64) as usize;
            frame.truncate(length);
        }
        1 => frame.extend((0..1 + draws.below(40)).map(|byte| byte as u8)),
        2 => {
            let length = 1 + draws.below(200) as usize;
            *frame = (0..length).map(|_| draws.any() as u8).collect();
        }
        _ => {
            let bit = draws.below(8 * headers_bytes.min(frame.len()) as u64) as usize;
            frame[bit / 8] ^= 0x80 >> (bit % 8);
        }
    }
    let is_ipv4 = frame.len() >= 34 && ETHERNET.get(frame, "kind") == crate::frames::KIND_IPV4;
    if is_ipv4 && draws.percent(70) {
        seal(frame);
    }
}

/// Gives a field of a frame's headers another value. The last header is the likeliest, and every field of a header is as
/// likely as any other, however few bits it has.
pub fn alter(draws: &mut Draws, frame: &mut [u8], headers: &[&Header]) {
    let number = if draws.percent(50) { headers.len() - 1 } else { draws.below(headers.len() as u64) as usize };
    let first: usize = headers[..number].iter().map(|header| header.bytes()).sum();
    let (header, Some(bytes)) = (headers[number], frame.get_mut(first..first + headers[number].bytes())) else { return };
    let field = draws.of(header.fields);
    let mask = u64::MAX >> (u64::BITS as usize - field.bits);
    let by = draws.any() & mask;
    let value = header.get(bytes, field.name) ^ if draws.percent(50) { by.max(1) } else { 1 << draws.below(field.bits as u64) };
    header.put(bytes, field.name, value);
    if frame.len() >= 34 && ETHERNET.get(frame, "kind") == crate::frames::KIND_IPV4 && draws.percent(80) {
        seal(frame);
    }
}

/// The files of a case, by name.
pub type Files = BTreeMap<String, Vec<u8>>;

/// Cases of all shapes of all programs, by name: so many of each, of so many packets.
pub fn cases(seed: u64, packets: usize, cases: u64) -> Vec<(String, Files)> {
    let mut all = Vec::new();
    for number in seed..seed.saturating_add(cases) {
        for shape in canary::Shape::ALL {
            all.push((format!("canary-{}-{number}", shape.name()), canary::case(shape, number, packets)));
        }
        for shape in switchml::Shape::ALL {
            all.push((format!("switchml-{}-{number}", shape.name()), switchml::case(shape, number, packets)));
        }
        all.push((format!("atp-{number}"), atp::case(number, packets)));
        all.push((format!("rina-{number}"), rina::case(number, packets)));
        all.push((format!("netreduce-long-{number}"), netreduce::case(number, packets)));
    }
    all
}

/// What the state machine says to packets that have been captured: the files of what leaves, by name. The switch is as in `switch.json`.
///
/// # Errors
/// What is wrong with the configuration or with a file.
pub fn replay(program: &str, json: &str, into: &[Vec<u8>]) -> Result<Files, String> {
    let mut come = Vec::new();
    for (port, bytes) in into.iter().enumerate() {
        let packets = pcap::read(bytes).map_err(|error| format!("p{port}_in.pcap: {error}"))?;
        come.extend(packets.into_iter().map(|packet| (packet.at_us, port as u16, packet.frame)));
    }
    come.sort_by_key(|(at_us, port, _)| (*at_us, *port));
    let mut trace = Trace::new(into.len() as u16, 0);
    let wrong = |error: serde_json::Error| error.to_string();
    match program {
        "switchml" => {
            let switch: crate::control::switchml::Switch = serde_json::from_str(json).map_err(wrong)?;
            switch.check().map_err(|error| error.to_string())?;
            let mut oracle = switchml::Oracle::new(&switch);
            for (at_us, port, frame) in come {
                trace.comes_at(at_us, port, frame.clone());
                oracle.on_frame(&mut trace, port, &frame);
            }
        }
        "canary" => {
            let switch: crate::control::canary::Switch = serde_json::from_str(json).map_err(wrong)?;
            switch.check().map_err(|error| error.to_string())?;
            let mut oracle = canary::Oracle::new(switch);
            for (at_us, port, frame) in come {
                trace.comes_at(at_us, port, frame.clone());
                oracle.on_frame(&mut trace, port, &frame);
            }
        }
        "atp" => {
            let switch: crate::control::atp::Switch = serde_json::from_str(json).map_err(wrong)?;
            switch.check().map_err(|error| error.to_string())?;
            let mut oracle = atp::Oracle::new(&switch);
            for (at_us, port, frame) in come {
                trace.comes_at(at_us, port, frame.clone());
                oracle.on_frame(&mut trace, port, &frame);
            }
        }
        "rina" => {
            let switch: crate::control::rina::Switch = serde_json::from_str(json).map_err(wrong)?;
            switch.check().map_err(|error| error.to_string())?;
            let mut oracle = rina::Oracle::new(&switch);
            for (at_us, port, frame) in come {
                trace.comes_at(at_us, port, frame.clone());
                oracle.on_frame(&mut trace, port, &frame);
            }
        }
        "netreduce" => {
            let switch: crate::control::netreduce::Switch = serde_json::from_str(json).map_err(wrong)?;
            switch.check().map_err(|error| error.to_string())?;
            let mut oracle = netreduce::Oracle::new(&switch);
            for (at_us, port, frame) in come {
                trace.comes_at(at_us, port, frame.clone());
                oracle.on_frame(&mut trace, port, &frame);
            }
        }
        _ => return Err(format!("there is no state machine for {program}")),
    }
    Ok((0..trace.ports).map(|port| (format!("p{port}_out.pcap"), trace.file(&trace.out, port))).collect())
}
