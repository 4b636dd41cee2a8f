//! Traces of ATP's and A2TP's workers and servers. Workers send a window of fragments, send again what is not acknowledged, and some of it
//! past the aggregators; servers answer what is complete. Jobs want the same aggregators; acknowledgements get lost; indices, bits and
//! fan-ins are wrong now and then.

use std::collections::BTreeMap;

use fanin_core::{Address, DropReason, Event, Ingress, Instant, JobId, Node, NodeId, PortId, Tally};
use fanin_protocols::atp::AtpSwitch;
use fanin_wire::atp::{AtpFlags, AtpHeader};

use super::{About, Draws, Outlet, To, Trace, damage, elements};
use crate::control::atp::{Host, Job, Switch};
use crate::formats::atp::{AtpFrame, ELEMENTS, FRONT, KIND_ATP, frame, rewrite};
use crate::frames::{ETHERNET, Mac, ethernet};

/// Fragments begin near the end of their numbers, so that they wrap.
const FIRST: u16 = u16::MAX - 5;
/// Fragments of a job under way.
const WINDOW: u16 = 3;
/// A gap between packets that a program with its aggregators in one pass has time for.
const GAP_US: u64 = 2_000;
/// Longer than any trace: a program's clock runs as it likes.
const RECLAIM_US: u32 = 1 << 31;

/// The switch of the traces: two jobs of several workers and one of a single one, at shared ports and aggregators.
pub fn switch() -> Switch {
    let job = |app, members: &[u16], server| Job { app, members: members.to_vec(), server };
    Switch {
        ports: 6,
        aggregators: 7,
        reclaim_us: RECLAIM_US,
        jobs: vec![job(1, &[0, 1, 2], 5), job(0x8001, &[3, 2, 1, 0], 5), job(3, &[4], 5)],
        hosts: (0..6).map(|port| Host { mac: host(port), port }).collect(),
    }
}

fn host(port: u16) -> Mac {
    Mac(0x0200_0000_0001 + u64::from(port))
}

/// A job's fragments as its workers and its server have them.
#[derive(Clone, Debug)]
struct Fragments {
    base: u16,
    /// By fragment: who has sent it, what the server has, and whether it is acknowledged.
    sent: BTreeMap<u16, u32>,
    known: BTreeMap<u16, u32>,
    acknowledged: BTreeMap<u16, bool>,
    /// The fragments that have aggregators, by index.
    opened: BTreeMap<u64, u16>,
}

impl Fragments {
    fn new() -> Self {
        Fragments { base: FIRST, sent: BTreeMap::new(), known: BTreeMap::new(), acknowledged: BTreeMap::new(), opened: BTreeMap::new() }
    }

    /// The server has heard of these ranks.
    fn on_server(&mut self, seq: u16, ranks: u32) {
        *self.known.entry(seq).or_default() |= ranks;
    }

    /// An acknowledgement has come to the workers.
    fn on_ack(&mut self, seq: u16) {
        self.acknowledged.insert(seq, true);
        while self.acknowledged.remove(&self.base).is_some() {
            self.sent.remove(&self.base);
            self.known.remove(&self.base);
            self.base = self.base.wrapping_add(1);
        }
    }

    /// The first fragment of the window that a rank has not sent.
    fn next(&self, rank: usize) -> Option<u16> {
        let is_sent = |seq: &u16| self.sent.get(seq).is_some_and(|ranks| ranks >> rank & 1 == 1);
        (0..WINDOW).map(|ahead| self.base.wrapping_add(ahead)).find(|seq| !is_sent(seq))
    }

    /// What nobody would ever free: an aggregator of a fragment that is not under way, or one that is another's.
    fn stray(&self, own: impl Fn(u16) -> u64) -> Option<(u16, u64)> {
        let is_live = |seq: u16| seq.wrapping_sub(self.base) < WINDOW && !self.acknowledged.contains_key(&seq);
        self.opened.iter().map(|(index, seq)| (*seq, *index)).find(|(seq, index)| !is_live(*seq) || *index != own(*seq))
    }

    /// A fragment that the server has all of and has not acknowledged.
    fn complete(&self, all: u32) -> Option<u16> {
        let is_complete = |seq: &u16| self.known.get(seq) == Some(&all) && !self.acknowledged.contains_key(seq);
        (0..WINDOW).map(|ahead| self.base.wrapping_add(ahead)).find(is_complete)
    }
}

/// The switch as the state machine has it.
pub struct Oracle<'a> {
    switch: &'a Switch,
    node: AtpSwitch<[u8]>,
    fragments: Vec<Fragments>,
}

impl<'a> Oracle<'a> {
    /// A switch that has got no packet.
    pub fn new(switch: &'a Switch) -> Self {
        Oracle { switch, node: switch.oracle(), fragments: vec![Fragments::new(); switch.jobs.len()] }
    }

    /// Whose packet it is, if the program looks at it.
    fn admit(&self, frame: &[u8]) -> Result<(usize, AtpFrame), &'static str> {
        let packet = AtpFrame::parse(frame, self.switch.aggregators).map_err(|_| "malformed")?;
        let number = self.switch.jobs.iter().position(|job| job.app == packet.app).ok_or("no such job")?;
        let workers = self.switch.jobs[number].members.len();
        match packet.header {
            AtpHeader::Gradient { fan_in, .. } if usize::from(fan_in[0]) != workers => Err("another fan-in"),
            _ => Ok((number, packet)),
        }
    }

    /// What a frame makes the switch send, which the trace is told.
    pub fn on_frame(&mut self, trace: &mut Trace, port: u16, frame: &[u8]) {
        if ETHERNET.split(frame).is_ok_and(|(ethernet, _)| ETHERNET.get(ethernet, "kind") != KIND_ATP) {
            let to = ETHERNET.get(frame, "dst");
            let host = self.switch.hosts.iter().find(|host| host.mac.0 == to);
            trace.saw(if host.is_some() { "other traffic" } else { "for nobody" });
            return host.into_iter().for_each(|host| trace.leaves(host.port, frame.to_vec()));
        }
        let (number, packet) = match self.admit(frame) {
            Ok(admitted) => admitted,
            Err(why) => return trace.saw(why),
        };
        let job = &self.switch.jobs[number];
        let source = if port == job.server { job.server() } else { Address::worker(NodeId(port.into())) };
        let ingress = Ingress { port: PortId(port), source, job: JobId(job.app), ecn: packet.marked };
        let now = Instant::from_ps(trace.now_us() * 1_000_000);
        let mut outlet = Outlet::default();
        self.node.on_packet(now, ingress, &packet.header, &packet.elements, &mut outlet);
        let (AtpHeader::Gradient { at, slot, .. } | AtpHeader::Ack { at, slot, .. }) = packet.header else {
            unreachable!("the paper's packets are these")
        };
        let (seq, index, opened) = (at.seq as u16, u64::from(slot.index), &mut self.fragments[number].opened);
        for note in outlet.notes {
            trace.saw(match note {
                Event::SlotTaken { .. } => {
                    opened.insert(index, seq);
                    "aggregator taken"
                }
                Event::SlotFreed { .. } => {
                    opened.remove(&index);
                    "aggregator freed"
                }
                Event::Counted(Tally::Collision) => "collision",
                Event::Dropped(DropReason::NotAMember) => "no member",
                Event::Dropped(DropReason::Duplicate) => "duplicate",
                Event::Dropped(DropReason::OutsideWindow) => "no such aggregator",
                _ => "noted",
            });
        }
        for (to, header, body) in outlet.sent {
            self.leaves(trace, number, (to, header), rewrite(frame, &header, &body));
        }
    }

    fn leaves(&mut self, trace: &mut Trace, number: usize, (to, header): (To, AtpHeader), frame: Vec<u8>) {
        let (job, seq) = (&self.switch.jobs[number], header.at().seq as u16);
        match (to, header) {
            (To::Route(_), AtpHeader::Gradient { ranks, flags, .. }) => {
                let is_sum = ranks.bits().count_ones() > 1;
                trace.saw(match (is_sum, flags.has(AtpFlags::RESEND), flags.has(AtpFlags::COL)) {
                    (true, false, false) => "sum",
                    (true, false, true) => "sum that was wanted",
                    (true, true, _) => "sum again or flushed",
                    (false, ..) => "passed on",
                });
                self.fragments[number].on_server(seq, ranks.bits() as u32);
                trace.leaves(job.server, frame);
            }
            (To::Ports(ports), AtpHeader::Ack { flags, .. }) => {
                trace.saw("acknowledgement");
                ports.iter().for_each(|port| trace.leaves(port.0, frame.clone()));
                if !flags.has(AtpFlags::FLOAT) {
                    self.fragments[number].on_ack(seq);
                }
            }
            other => unreachable!("{other:?}"),
        }
    }
}

/// What a server sends.
fn acknowledgement(switch: &Switch, fragments: &Fragments, number: usize, draws: &mut Draws) -> (u16, Vec<(&'static str, u64)>, u16) {
    let job = &switch.jobs[number];
    let all = u32::MAX >> (u32::BITS - job.members.len() as u32);
    let seq = match fragments.complete(all) {
        Some(seq) if draws.percent(85) => seq,
        _ => fragments.base.wrapping_add(draws.below(4) as u16).wrapping_sub(1),
    };
    let mut fields = vec![("ack", 1), ("bitmap", all.into())];
    fields.extend(["overflow", "collision", "col", "ecn"].into_iter().filter(|_| draws.percent(10)).map(|name| (name, 1)));
    if draws.percent(3) {
        fields.push(("resend", 1));
    }
    (job.server, fields, seq)
}

/// What a worker sends.
fn gradient(switch: &Switch, fragments: &mut Fragments, number: usize, draws: &mut Draws) -> (u16, Vec<(&'static str, u64)>, u16, usize) {
    let job = &switch.jobs[number];
    let rank = draws.below(job.members.len() as u64) as usize;
    let drift = |draws: &mut Draws| fragments.base.wrapping_add(draws.below(u64::from(WINDOW) + 2) as u16).wrapping_sub(1);
    let next = fragments.next(rank).filter(|_| draws.percent(88));
    let seq = next.unwrap_or_else(|| drift(draws));
    let bit = 1u32 << rank;
    let was_sent = fragments.sent.get(&seq).is_some_and(|ranks| ranks & bit != 0);
    let mut fields = vec![("bitmap", u64::from(bit))];
    if draws.percent(if was_sent { 25 } else { 2 }) {
        fields.push(("resend", 1));
    }
    for (name, percent) in [("collision", 1), ("overflow", 1), ("ecn", 5), ("col", 4)] {
        if draws.percent(percent) {
            fields.push((name, 1));
        }
    }
    if draws.percent(3) {
        fields.push(("bitmap", draws.any() & 0xf));
    }
    *fragments.sent.entry(seq).or_default() |= bit;
    (job.members[rank], fields, seq, rank)
}

/// A step of the trace: a frame, and the port that it comes by.
fn step(oracle: &mut Oracle<'_>, draws: &mut Draws) -> (u16, Vec<u8>) {
    // What the lone worker sends only passes.
    let number = *draws.of(&[0, 0, 0, 0, 1, 1, 1, 1, 2]);
    let job = &oracle.switch.jobs[number];
    let all = u32::MAX >> (u32::BITS - job.members.len() as u32);
    let fragments = &mut oracle.fragments[number];
    let aggregators = u64::from(oracle.switch.aggregators);
    let own = |seq: u16| (u64::from(seq) * 3 + u64::from(job.app) * 5) % aggregators;
    let answers = if fragments.complete(all).is_some() { 22 } else { 2 };
    let stray = fragments.stray(own).filter(|_| draws.percent(30));
    let (mut port, mut fields, seq, rank) = if let Some((seq, _)) = stray {
        (job.server, vec![("ack", 1)], seq, 31)
    } else if draws.percent(answers) {
        let (port, fields, seq) = acknowledgement(oracle.switch, fragments, number, draws);
        (port, fields, seq, 31)
    } else {
        gradient(oracle.switch, fragments, number, draws)
    };
    let index = match (stray, draws.below(100)) {
        (Some((_, index)), _) => index,
        (None, 0..2) => draws.any() & 0xffff,
        (None, 2..4) => draws.below(aggregators + 1),
        (None, _) => own(seq),
    };
    let workers = if draws.percent(2) { draws.any() & 7 } else { job.members.len() as u64 };
    let app = if draws.percent(1) { draws.any() & 0xffff } else { job.app.into() };
    let place =
        [("index", index), ("second_index", (index + aggregators) & 0xffff), ("workers", workers), ("app", app), ("seq", seq.into())];
    fields.extend(place);
    if draws.percent(2) {
        port = draws.below(oracle.switch.ports.into()) as u16;
    }
    let service = if draws.percent(6) { 3 } else { 2 * draws.below(2) };
    let name = u64::from(seq) << 32 | u64::from(job.app) << 8 | rank as u64;
    let mut frame = frame((host(port).0, host(job.server).0), service, &fields, &elements(ELEMENTS, name), draws.any());
    if draws.percent(8) {
        damage(draws, &mut frame, FRONT);
    }
    (port, frame)
}

/// What is rare: another job's fragment wants an aggregator whose sum has gone on, so that the next sum of the job from there says so; and a
/// fragment that has lost elsewhere finds others of its own.
fn rare(switch: &Switch) -> Vec<(u16, Vec<u8>)> {
    let packet = |number: usize, rank: Option<usize>, seq: u64, lost: u64| {
        let job = &switch.jobs[number];
        let place = [("index", 1), ("second_index", 1 + u64::from(switch.aggregators)), ("workers", job.members.len() as u64)];
        let own = rank.map_or(("ack", 1), |rank| ("bitmap", 1 << rank));
        let fields = [&place[..], &[("app", job.app.into()), ("seq", seq), ("collision", lost), own]].concat();
        let port = rank.map_or(job.server, |rank| job.members[rank]);
        (port, frame((host(port).0, host(job.server).0), 0, &fields, &elements(ELEMENTS, seq), seq))
    };
    let all = |seq| (0..switch.jobs[0].members.len()).map(move |rank| (Some(rank), seq));
    let own: Vec<(Option<usize>, u64)> = all(100).chain([(None, 100)]).chain(all(101)).chain([(None, 101)]).collect();
    let mut packets: Vec<(u16, Vec<u8>)> = own.into_iter().map(|(rank, seq)| packet(0, rank, seq, 0)).collect();
    packets.insert(switch.jobs[0].members.len(), packet(1, Some(0), 100, 0));
    packets.extend([packet(0, Some(0), 102, 0), packet(0, Some(1), 102, 1), packet(0, Some(2), 102, 0), packet(0, None, 102, 0)]);
    packets
}

/// A trace of so many packets.
pub fn trace(seed: u64, packets: usize) -> (Switch, Trace) {
    let switch = switch();
    let mut draws = Draws::new(seed);
    let mut trace = Trace::new(switch.ports, GAP_US);
    let mut oracle = Oracle::new(&switch);
    let mut first = rare(&switch).into_iter();
    while trace.length() < packets {
        let (port, frame) = if let Some(packet) = first.next() {
            packet
        } else if draws.percent(3) {
            let to = if draws.percent(80) { host(draws.below(switch.ports.into()) as u16) } else { Mac(draws.any() >> 16) };
            let payload: Vec<u8> = (0..draws.below(100)).map(|byte| byte as u8).collect();
            (draws.below(switch.ports.into()) as u16, ethernet(host(0), to, 0x0806, &payload))
        } else {
            step(&mut oracle, &mut draws)
        };
        trace.comes(port, frame.clone());
        oracle.on_frame(&mut trace, port, &frame);
    }
    drop(oracle);
    (switch, trace)
}

/// What a runner must know of a switch's case.
pub fn about(switch: &Switch) -> About {
    let defines = vec![("ATP_AGGREGATORS", switch.aggregators.into())];
    About { program: "atp", defines, headers: &["ethernet", "ipv4", "atp"] }
}

/// The files of a case.
///
/// # Panics
/// Where the switch of the traces is one that there cannot be.
pub fn case(seed: u64, packets: usize) -> BTreeMap<String, Vec<u8>> {
    let (switch, trace) = trace(seed, packets);
    let commands = switch.commands().expect("the jobs fit the switch").text();
    trace.case(&switch, commands, about(&switch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_says_it_all_and_traces_meet_everything() {
        assert_eq!(case(1, 60), case(1, 60));
        assert_ne!(case(1, 60), case(2, 60));
        let (_, trace) = trace(3, 2_000);
        for what in [
            "other traffic",
            "for nobody",
            "malformed",
            "no such job",
            "another fan-in",
            "aggregator taken",
            "aggregator freed",
            "collision",
            "no member",
            "duplicate",
            "no such aggregator",
            "sum",
            "sum that was wanted",
            "sum again or flushed",
            "passed on",
            "acknowledgement",
        ] {
            assert!(trace.seen.get(what).is_some_and(|count| *count >= 5), "{what}: {:?}", trace.seen);
        }
        assert!(!trace.seen.contains_key("noted"), "{:?}", trace.seen);
    }
}
