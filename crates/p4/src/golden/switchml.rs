//! Traces of SwitchML's workers. Each worker has a round for every slot; it sends, sends again what it has no result of, and goes on with
//! the next round when a result has come. Results get lost, packets of earlier and later rounds come, and so do those of nobody.

use std::net::Ipv4Addr;

use fanin_core::{Address, DropReason, Event, Ingress, Instant, JobId, Node, NodeId, PortId};
use fanin_protocols::switchml::SwitchMlSwitch;
use fanin_wire::switchml::{SlotUse, SwitchMlHeader};

use super::{About, Draws, Files, Outlet, To, Trace, alter, damage, elements};
use crate::control::switchml::{Job, Member, Switch};
use crate::formats::switchml::{PORT, PORT_MASK, SWITCHML, SwitchMlFrame, passes};
use crate::frames::{ETHERNET, Endpoint, IPV4, Mac, UDP};

/// Rounds begin near the end of their numbers, so that they wrap.
const FIRST_ROUND: u32 = u32::MAX - 3;

/// Shapes of jobs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Shape {
    /// Two jobs of short packets, which share ports.
    TwoJobs,
    /// One job of the longest packets.
    Long,
    /// A job of one worker, and one of packets of two passes.
    OneAndMany,
}

impl Shape {
    /// All of them.
    pub const ALL: [Shape; 3] = [Shape::TwoJobs, Shape::Long, Shape::OneAndMany];

    /// Its name.
    pub const fn name(self) -> &'static str {
        match self {
            Shape::TwoJobs => "two-jobs",
            Shape::Long => "long",
            Shape::OneAndMany => "one-and-many",
        }
    }

    /// The switch.
    pub fn switch(self) -> Switch {
        let job = |job, elements, slots, ports: &[u16]| {
            let member = |port: &u16| Member { port: *port, at: end(*port as u8 + 1, 4_000 + u16::from(job)) };
            Job { job, elements, slots, members: ports.iter().map(member).collect() }
        };
        let jobs = match self {
            Shape::TwoJobs => vec![job(7, 32, 3, &[0, 1, 2]), job(8, 32, 2, &[3, 1])],
            Shape::Long => vec![job(1, 256, 2, &[2, 0, 1])],
            Shape::OneAndMany => vec![job(0, 32, 1, &[3]), job(255, 64, 4, &[0, 1, 2, 3])],
        };
        Switch { at: end(254, PORT), ports: 4, jobs }
    }
}

fn end(number: u8, udp: u16) -> Endpoint {
    Endpoint { mac: Mac(0x0200_0000_0000 | u64::from(number)), ip: Ipv4Addr::new(10, 0, 0, number), udp }
}

/// A job and its state machine.
struct Running<'a> {
    job: &'a Job,
    node: SwitchMlSwitch<[u8]>,
    /// By rank and slot.
    rounds: Vec<Vec<u32>>,
    /// By slot and version: the round that some have contributed to, and others have not.
    begun: Vec<[Option<u32>; 2]>,
}

impl Running<'_> {
    /// What a rank sends for a slot and round.
    fn contribution(&self, switch: &Switch, rank: usize, at: SlotUse) -> SwitchMlFrame {
        let member = &self.job.members[rank];
        let name = u64::from(at.round) << 32 | u64::from(at.slot) << 16 | u64::from(self.job.job) << 8 | rank as u64;
        let elements = elements(self.job.elements, name);
        let byte = i64::from(elements[0]) - 128;
        let exponent = match byte {
            -128 => fanin_core::BlockExponent::ZERO,
            127 => fanin_core::BlockExponent::NOT_FINITE,
            other => fanin_core::BlockExponent::from_bits(other as i16),
        };
        SwitchMlFrame { src: member.at.ip, dst: switch.at.ip, port: PORT, job: self.job.job, at, exponent, elements }
    }
}

/// The switch as the state machines have it, with what is the driver's business: whose packet it is.
pub struct Oracle<'a> {
    switch: &'a Switch,
    jobs: Vec<Running<'a>>,
    outlet: Outlet<SwitchMlHeader>,
}

/// A result that left: job, rank, slot and round.
pub type Left = (usize, usize, SlotUse);

impl<'a> Oracle<'a> {
    /// A switch that has got no packet.
    pub fn new(switch: &'a Switch) -> Self {
        let running = |job: &'a Job| Running {
            job,
            node: job.oracle(),
            rounds: vec![vec![FIRST_ROUND; job.slots.into()]; job.members.len()],
            begun: vec![[None; 2]; job.slots.into()],
        };
        Oracle { switch, jobs: switch.jobs.iter().map(running).collect(), outlet: Outlet::default() }
    }

    /// Which job's packet it is, if it is one's.
    fn admit(&self, port: u16, frame: &[u8]) -> Result<(usize, SwitchMlFrame), &'static str> {
        let packet = SwitchMlFrame::parse(frame).map_err(|_| "malformed")?;
        let number = self.jobs.iter().position(|running| running.job.job == packet.job).ok_or("no such job")?;
        let job = self.jobs[number].job;
        if packet.elements.len() != 4 * job.elements {
            return Err("another length");
        }
        let is_member = job.members.iter().any(|member| member.port == port && member.at.ip == packet.src);
        if packet.dst == self.switch.at.ip && is_member { Ok((number, packet)) } else { Err("no member") }
    }

    /// What a frame makes the switch send, which the trace is told.
    pub fn on_frame(&mut self, trace: &mut Trace, port: u16, frame: &[u8]) -> Vec<Left> {
        let (number, packet) = match self.admit(port, frame) {
            Ok(admitted) => admitted,
            Err(why) => {
                trace.saw(why);
                return Vec::new();
            }
        };
        let running = &mut self.jobs[number];
        let ingress = Ingress { port: PortId(port), source: Address::worker(NodeId(0)), job: JobId(running.job.job.into()), ecn: false };
        running.node.on_packet(Instant::ZERO, ingress, &packet.contribution(), &packet.elements, &mut self.outlet);
        for note in self.outlet.notes.drain(..) {
            if matches!(note, Event::SlotTaken { .. }) {
                running.begun[usize::from(packet.at.slot)][packet.at.version() as usize] = Some(packet.at.round);
            }
            trace.saw(match note {
                Event::SlotTaken { .. } => "first",
                Event::SlotFreed { .. } => "version used again",
                Event::Dropped(DropReason::Stale) => "stale",
                Event::Dropped(DropReason::InProgress) => "in progress",
                Event::Dropped(DropReason::OutsideWindow) => "outside of the window",
                Event::Dropped(_) => "dropped for another reason",
                Event::Retransmitted { .. } => "answered again",
                _ => "noted",
            });
        }
        let mut left = Vec::new();
        for (to, header, body) in std::mem::take(&mut self.outlet.sent) {
            running.begun[usize::from(packet.at.slot)][packet.at.version() as usize] = None;
            left.extend(send(self.switch, number, (to, header, body), packet.port, trace));
        }
        left
    }
}

/// A result leaves.
fn send(switch: &Switch, number: usize, sent: (To, SwitchMlHeader, Vec<u8>), port: u16, trace: &mut Trace) -> Vec<Left> {
    let (to, SwitchMlHeader::Result { at, exponent: Some(exponent) }, elements) = sent else {
        unreachable!("contributions of one form are answered with results: {sent:?}")
    };
    let (ports, what): (Vec<PortId>, _) = match to {
        To::Port(port) => (vec![port], "result to one"),
        To::Ports(ports) => (ports.iter().collect(), "result to all"),
        To::Route(_) => unreachable!("a switch answers its ports"),
    };
    trace.saw(what);
    let job = &switch.jobs[number];
    let mut left = Vec::new();
    for to in ports {
        let rank = job.members.iter().position(|member| member.port == to.0).expect("a result goes to members");
        let (src, dst) = (Endpoint { udp: port, ..switch.at }, job.members[rank].at);
        let result = SwitchMlFrame { src: src.ip, dst: dst.ip, port: dst.udp, job: job.job, at, exponent, elements: elements.clone() };
        trace.leaves(to.0, result.emit(&src, &dst));
        left.push((number, rank, at));
    }
    left
}

/// Bytes in front of the elements.
const FRONT: usize = ETHERNET.bytes() + IPV4.bytes() + UDP.bytes() + SWITCHML.bytes();

/// A step of the trace: a frame, and the port that it comes by.
fn step(oracle: &mut Oracle<'_>, draws: &mut Draws) -> (u16, Vec<u8>) {
    let running = &mut oracle.jobs[draws.below(oracle.switch.jobs.len() as u64) as usize];
    let rank = draws.below(running.job.members.len() as u64) as usize;
    let slot = draws.below(running.job.slots.into()) as u16;
    // Everybody leaves rounds out now and then, as between operations; so a round that only one has sent does not stay for ever.
    let begun = running.begun[usize::from(slot)][draws.below(2) as usize];
    if let Some(begun) = begun.filter(|_| draws.percent(20)) {
        running.rounds.iter_mut().for_each(|rounds| rounds[usize::from(slot)] = begun);
    }
    let round = running.rounds[rank][usize::from(slot)];
    let ahead = 2 * u32::from(running.job.slots) + 4;
    let drift = match draws.below(100) {
        0..82 => 0,
        82..91 => (1 + draws.below(4) as u32).wrapping_neg(),
        91..94 => 1 + draws.below(2) as u32,
        94..96 => 0,
        // About where the window ends, on both sides.
        96..98 => ahead - 2 + draws.below(6) as u32,
        _ => draws.any() as u32,
    };
    let at = SlotUse { slot, round: round.wrapping_add(drift) };
    let slot = if draws.percent(2) { slot + running.job.slots } else { slot };
    let mut packet = running.contribution(oracle.switch, rank, SlotUse { slot, ..at });
    let Member { mut port, at } = running.job.members[rank];
    if draws.percent(4) {
        port = draws.below(oracle.switch.ports.into()) as u16;
    }
    if draws.percent(2) {
        packet.job = draws.any() as u8;
    }
    if draws.percent(2) {
        packet.elements = elements(*draws.of(&[32, 64, 128, 256]), 0);
    }
    let udp = if draws.percent(20) { PORT | (draws.any() as u16 & !PORT_MASK) } else { PORT };
    let mut frame = packet.emit(&at, &Endpoint { udp, ..oracle.switch.at });
    if draws.percent(12) {
        if draws.percent(50) {
            alter(draws, &mut frame, &[&ETHERNET, &IPV4, &UDP, &SWITCHML]);
        } else {
            damage(draws, &mut frame, FRONT);
        }
        // A program keeps both exponents, a state machine one: see the format.
        if let Some([e0, e1]) = frame.get_mut(FRONT - 2..FRONT) {
            *e1 = *e0;
        }
    }
    (port, frame)
}

/// A trace of so many packets.
pub fn trace(shape: Shape, seed: u64, packets: usize) -> (Switch, Trace) {
    let switch = shape.switch();
    let mut draws = Draws::new(seed);
    let longest = switch.jobs.iter().map(|job| passes(job.elements)).max().unwrap_or(1);
    let mut trace = Trace::new(switch.ports, 1_000 * longest as u64);
    let mut oracle = Oracle::new(&switch);
    while trace.length() < packets {
        let (port, frame) = step(&mut oracle, &mut draws);
        trace.comes(port, frame.clone());
        for (job, rank, at) in oracle.on_frame(&mut trace, port, &frame) {
            let round = &mut oracle.jobs[job].rounds[rank][usize::from(at.slot)];
            if *round != at.round {
                continue;
            }
            // A result that gets lost is asked for again.
            if draws.percent(85) {
                *round = round.wrapping_add(1);
            } else {
                trace.saw("result lost");
            }
        }
    }
    drop(oracle);
    (switch, trace)
}

/// The files of a case.
///
/// # Panics
/// Where a shape is one that no switch can have.
pub fn case(shape: Shape, seed: u64, packets: usize) -> Files {
    let (switch, trace) = trace(shape, seed, packets);
    let commands = switch.commands().expect("shapes fit a switch").text();
    let defines = vec![("SWITCHML_CELLS", 64), ("SWITCHML_FIRST_ROUND", u64::from(FIRST_ROUND))];
    let about = About { program: "switchml", defines, headers: &["ethernet", "ipv4", "udp", "switchml"] };
    trace.case(&switch, commands, about)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn a_seed_says_it_all_and_traces_meet_everything() {
        let mut seen: BTreeMap<&str, u64> = BTreeMap::new();
        for shape in Shape::ALL {
            assert_eq!(case(shape, 1, 60), case(shape, 1, 60));
            assert_ne!(case(shape, 1, 60), case(shape, 2, 60));
            let (_, trace) = trace(shape, 3, 600);
            trace.seen.iter().for_each(|(what, count)| *seen.entry(what).or_default() += count);
        }
        for what in [
            "first",
            "stale",
            "in progress",
            "outside of the window",
            "answered again",
            "malformed",
            "no such job",
            "another length",
            "no member",
            "result to one",
            "result to all",
            "result lost",
        ] {
            assert!(seen.get(what).is_some_and(|count| *count >= 3), "{what}: {seen:?}");
        }
        assert!(!seen.contains_key("dropped for another reason"), "{seen:?}");
    }
}
