//! Traces of a ring of network cards around an accelerator: messages of some packets in a window, packets that are lost and sent again, in
//! another order and of long ago, acknowledgements and other traffic that go by, and packets that were damaged.

use std::collections::BTreeMap;

use fanin_core::{Address, DropReason, Event, Ingress, Instant, JobId, Node, NodeId, PortId};
use fanin_protocols::netreduce::NetReduceSwitch;
use fanin_protocols::shared::connection::Psn;
use fanin_wire::netreduce::{NetReduceHeader, PacketNumber};
use fanin_wire::roce::{self, Aeth, Bth, RoceHeader, opcode};

use super::{About, Draws, Outlet, To, Trace, damage, elements};
use crate::control::netreduce::{Switch, Worker};
use crate::formats::netreduce::{BTH, ELEMENTS, FRONT, FRONT_ELEMENTS, INA, NetReduceFrame, RETH, WINDOW, write_bytes};
use crate::frames::{ETHERNET, Endpoint, IPV4, KIND_IPV4, Mac, PROTOCOL_UDP, UDP, datagram};

/// The switch of the traces: three workers and a port of nobody.
pub fn switch() -> Switch {
    let worker = |(number, port): (u8, u16)| Worker {
        port,
        mac: Mac(0x0200_0000_0100 | u64::from(number)),
        ip: std::net::Ipv4Addr::new(10, 0, 0, number),
        udp: 49_152 + u16::from(number),
    };
    Switch { ports: 4, ring: 9, packets: 3, workers: [(1, 0), (2, 2), (3, 1)].map(worker).to_vec() }
}

/// The switch as the state machine has it, with what is the driver's business: which packets are contributions, and what goes by.
pub struct Oracle<'a> {
    switch: &'a Switch,
    node: NetReduceSwitch<[u8]>,
}

/// What became of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Fate {
    /// It is held, or was the last one; whether a sum left for all.
    Counted(bool),
    /// Anything else.
    Other,
}

impl<'a> Oracle<'a> {
    /// A switch that has got no packet.
    pub fn new(switch: &'a Switch) -> Self {
        Oracle { switch, node: switch.oracle() }
    }

    /// What a frame makes the switch send, which the trace is told.
    pub fn on_frame(&mut self, trace: &mut Trace, port: u16, frame: &[u8]) {
        self.play(trace, port, frame);
    }

    fn play(&mut self, trace: &mut Trace, port: u16, frame: &[u8]) -> Fate {
        let Some((ip, code)) = network(frame) else {
            trace.saw("no packet of IPv4");
            return Fate::Other;
        };
        let Some(rank) = code.and_then(|_| self.connection(port, frame)) else {
            let to = IPV4.get(ip, "dst") as u32;
            let host = self.switch.workers.iter().find(|worker| u32::from(worker.ip) == to);
            trace.saw(if host.is_some() { "goes by" } else { "for nobody" });
            host.into_iter().for_each(|host| trace.leaves(host.port, frame.to_vec()));
            return Fate::Other;
        };
        let packet = NetReduceFrame::parse(frame);
        let Ok(packet) = packet else {
            trace.saw("malformed");
            return Fate::Other;
        };
        if let NetReduceHeader::Next { at, .. } = packet.header
            && self.offset(rank, at.psn()) == Some(0)
        {
            trace.saw("first packet by number only");
            return Fate::Other;
        }
        self.contribute(trace, port, &packet)
    }

    /// Whose connection a frame is of, by addresses and its number.
    fn connection(&self, port: u16, frame: &[u8]) -> Option<usize> {
        let (ip, bth) = (&frame[ETHERNET.bytes()..], &frame[FRONT - BTH.bytes()..]);
        let number = BTH.get(bth, "queue_pair") as usize;
        let rank = number.checked_sub(2).filter(|rank| *rank < self.switch.workers.len())?;
        let (from, to) = (&self.switch.workers[rank], self.switch.successor(rank));
        let ends = (IPV4.get(ip, "src") as u32, IPV4.get(ip, "dst") as u32);
        (from.port == port && ends == (u32::from(from.ip), u32::from(to.ip))).then_some(rank)
    }

    /// Where a packet stands in its message.
    fn offset(&self, rank: usize, psn: u32) -> Option<u16> {
        let newest = self.node.newest(rank as u16)?;
        (0..2 * WINDOW).find_map(|back| {
            let (first, packets, _) = self.node.message(rank as u16, newest.wrapping_sub(back))?;
            u16::try_from(Psn::new(psn).since(first)).ok().filter(|offset| *offset < packets)
        })
    }

    fn contribute(&mut self, trace: &mut Trace, port: u16, packet: &NetReduceFrame) -> Fate {
        let source = Address::worker(NodeId(port.into()));
        let ingress = Ingress { port: PortId(port), source, job: JobId(self.switch.ring), ecn: packet.marked };
        let mut outlet = Outlet::default();
        self.node.on_packet(Instant::ZERO, ingress, &packet.header, &packet.elements, &mut outlet);
        let mut is_counted = true;
        for note in outlet.notes {
            is_counted &= !matches!(note, Event::Dropped(_) | Event::Retransmitted { .. });
            trace.saw(match note {
                Event::SlotTaken { .. } => "slot taken",
                Event::SlotFreed { .. } => "slot free",
                Event::Dropped(DropReason::Stale) => "stale",
                Event::Dropped(DropReason::Duplicate) => "held already",
                Event::Dropped(DropReason::NotReady) => "first packet missing",
                Event::Dropped(DropReason::Mismatch) => "mismatch",
                Event::Dropped(DropReason::NotAMember) => "a sum from a worker",
                Event::Retransmitted { .. } => "sum again",
                _ => "noted",
            });
        }
        let mut sums = 0;
        for (to, header, body) in outlet.sent {
            let rank = match header {
                NetReduceHeader::First { connection, .. } | NetReduceHeader::Next { connection, .. } => usize::from(connection),
                // Flow control is told who is missing; network cards would not know what that is.
                _ => {
                    trace.saw("a word to flow control");
                    continue;
                }
            };
            let To::Port(to) = to else { unreachable!("an accelerator of one rack sends to ports") };
            sums += 1;
            let sum = NetReduceFrame { header, marked: false, elements: body };
            trace.leaves(to.0, sum.emit(self.switch.envelope(rank)));
        }
        trace.saw(if sums > 1 {
            "sum to all"
        } else if sums == 1 {
            "sum to one"
        } else {
            "held or dropped"
        });
        if is_counted { Fate::Counted(sums > 1) } else { Fate::Other }
    }
}

/// The IPv4 header of a frame that a program parses whole, and the operation code if it is one of writes.
fn network(frame: &[u8]) -> Option<(&[u8], Option<u8>)> {
    let (ethernet, rest) = ETHERNET.split(frame).ok()?;
    if ETHERNET.get(ethernet, "kind") != KIND_IPV4 {
        return None;
    }
    let (ip, rest) = IPV4.split(rest).ok()?;
    let is_udp = IPV4.get(ip, "version") == 4
        && IPV4.get(ip, "words") == 5
        && IPV4.get(ip, "more") == 0
        && IPV4.get(ip, "offset") == 0
        && IPV4.get(ip, "protocol") == PROTOCOL_UDP;
    if !is_udp {
        return Some((ip, None));
    }
    let (udp, rest) = UDP.split(rest).ok()?;
    if UDP.get(udp, "dst") != u64::from(roce::UDP_PORT) {
        return Some((ip, None));
    }
    let (bth, rest) = BTH.split(rest).ok()?;
    let code = BTH.get(bth, "opcode") as u8;
    match write_bytes(code) {
        // The program takes all fields of a write apart.
        Some(bytes) if rest.len() < bytes => None,
        Some(_) => Some((ip, Some(code))),
        None => Some((ip, None)),
    }
}

/// A packet of a worker: its rank, the message, and the place in that.
type Named = (usize, (u32, u16));

/// What workers have under way.
struct World<'a> {
    draws: Draws,
    switch: &'a Switch,
    /// Messages that all have the sums of.
    done: u32,
    /// By worker: packets of the window that are not counted yet.
    missing: Vec<Vec<(u32, u16)>>,
    /// Sums of the window that are there.
    complete: BTreeMap<(u32, u16), ()>,
}

impl<'a> World<'a> {
    fn new(switch: &'a Switch, seed: u64) -> Self {
        let mut world =
            World { draws: Draws::new(seed), switch, done: 0, missing: vec![Vec::new(); switch.workers.len()], complete: BTreeMap::new() };
        (0..WINDOW).for_each(|message| world.begin(message));
        world
    }

    fn packets(&self, message: u32) -> u16 {
        1 + (fanin_core::hash::mix(7, message.into()) % u64::from(self.switch.packets)) as u16
    }

    fn begin(&mut self, message: u32) {
        let packets = self.packets(message);
        self.missing.iter_mut().for_each(|missing| missing.extend((0..packets).map(|offset| (message, offset))));
    }

    /// Near the end of packet numbers, so that they wrap.
    fn psn(&self, rank: usize, message: u32, offset: u16) -> u32 {
        let before: u32 = (0..message).map(|message| u32::from(self.packets(message))).sum();
        (0x00ff_fff0 + 7 * rank as u32 + before + u32::from(offset)) & roce::NUMBER_MAX
    }

    fn on_sum(&mut self, at: (u32, u16)) {
        self.complete.insert(at, ());
        while (0..self.packets(self.done)).all(|offset| self.complete.contains_key(&(self.done, offset))) {
            self.done += 1;
            self.begin(self.done + WINDOW - 1);
        }
    }

    /// A worker's packet.
    fn frame(&mut self, rank: usize, (message, offset): (u32, u16)) -> Vec<u8> {
        let packets = self.packets(message);
        let name = u64::from(message) << 32 | u64::from(offset) << 16 | rank as u64;
        let at = PacketNumber::new(self.psn(rank, message, offset), self.draws.percent(30)).marked(self.draws.percent(5));
        let at = if self.draws.percent(1) { at.summed() } else { at };
        let number = Switch::FIRST_MESSAGE.wrapping_add(message);
        let (connection, ring) = (rank as u16, if self.draws.percent(1) { 8 } else { self.switch.ring });
        // A first packet that is believed and wrong would hold up its connection for ever.
        let is_known = !self.missing[rank].contains(&(message, offset));
        let packets = if is_known && self.draws.percent(6) { self.draws.below(6) as u16 + 1 } else { packets };
        // A packet with the number of a message's first one and the code of another.
        let is_first = offset == 0 && !self.draws.percent(3);
        let header = if is_first {
            let (length, address) = (1024 * u32::from(packets), 4096 * message + 65_536 * rank as u32);
            NetReduceHeader::First { at, message: number, length, address, connection, ring, packets }
        } else {
            NetReduceHeader::Next { at, connection, last: offset + 1 == packets }
        };
        let count = if is_first { ELEMENTS - FRONT_ELEMENTS } else { ELEMENTS };
        let service = if self.draws.percent(6) { 3 } else { 2 };
        let envelope = roce::Envelope { service, identification: self.draws.any() as u16, ..self.switch.envelope(rank) };
        NetReduceFrame { header, marked: false, elements: elements(count, name) }.emit(envelope)
    }

    /// What goes by: acknowledgements, and what has nothing to do with it.
    fn passing(&mut self) -> (usize, Vec<u8>) {
        let rank = self.draws.below(self.switch.workers.len() as u64) as usize;
        let [from, to] = [*self.switch.successor(rank), self.switch.workers[rank]];
        if self.draws.percent(40) {
            let end = |worker: Worker| Endpoint { mac: worker.mac, ip: worker.ip, udp: worker.udp };
            let unknown = Endpoint { ip: std::net::Ipv4Addr::new(10, 0, 0, 77), ..end(to) };
            let payload: Vec<u8> = (0..self.draws.below(80)).map(|byte| byte as u8).collect();
            let to = if self.draws.percent(80) { end(to) } else { unknown };
            return ((rank + 1) % self.switch.workers.len(), datagram(&end(from), &to, &payload));
        }
        let mut envelope = self.switch.envelope(rank);
        envelope.macs.reverse();
        envelope.addresses.reverse();
        let bth = Bth::new(opcode::ACKNOWLEDGE, rank as u32 + 2, self.draws.any() as u32 & roce::NUMBER_MAX);
        let aeth = Aeth { syndrome: Aeth::ACK, messages: self.done };
        let header = RoceHeader { envelope, bth, reth: None, aeth: Some(aeth), immediate: None };
        let mut frame = vec![0; header.frame_len(0)];
        header.emit(&[], &mut frame);
        ((rank + 1) % self.switch.workers.len(), frame)
    }

    /// The next frame, the port that it comes by, and which packet of which worker it is, if that is not changed.
    fn step(&mut self) -> (u16, Vec<u8>, Option<Named>) {
        if self.draws.percent(6) {
            let (rank, frame) = self.passing();
            return (self.switch.workers[rank].port, frame, None);
        }
        let rank = self.draws.below(self.missing.len() as u64) as usize;
        let missing = &self.missing[rank];
        let again = missing.is_empty() && self.draws.percent(30) || self.draws.percent(20);
        let at = if again {
            let message = (self.done + self.draws.below(4) as u32).saturating_sub(2);
            (message, self.draws.below(self.packets(message).into()) as u16)
        } else if missing.is_empty() {
            return self.step();
        } else if self.draws.percent(80) {
            missing[0]
        } else {
            *self.draws.of(missing)
        };
        let at = if self.draws.percent(2) { ((at.0 + self.draws.below(9) as u32).saturating_sub(6), 0) } else { at };
        let mut frame = self.frame(rank, at);
        let mut port = self.switch.workers[rank].port;
        if self.draws.percent(2) {
            port = self.draws.below(self.switch.ports.into()) as u16;
        }
        if self.draws.percent(7) {
            // What is sent again has the same elements: the program adds what comes first, the state machine what comes last.
            let front = if frame.get(FRONT - BTH.bytes()).is_some_and(|code| [opcode::WRITE_FIRST, opcode::WRITE_ONLY].contains(code)) {
                FRONT + RETH.bytes() + INA.bytes()
            } else {
                FRONT
            };
            damage(&mut self.draws, &mut frame, front);
            if self.draws.percent(60) && roce::RoceHeader::parse(&frame).is_err() && frame.len() > FRONT + 4 {
                roce::seal(&mut frame);
            }
            return (port, frame, None);
        }
        (port, frame, Some((rank, at)))
    }
}

/// A trace of so many packets.
pub fn trace(seed: u64, packets: usize) -> (Switch, Trace) {
    let switch = switch();
    let mut trace = Trace::new(switch.ports, 4_000);
    let (mut oracle, mut world) = (Oracle::new(&switch), World::new(&switch, seed));
    while trace.length() < packets {
        let (port, frame, what) = world.step();
        trace.comes(port, frame.clone());
        let fate = oracle.play(&mut trace, port, &frame);
        if let (Some((rank, at)), Fate::Counted(is_sum)) = (what, fate) {
            world.missing[rank].retain(|other| *other != at);
            if is_sum {
                world.on_sum(at);
            }
        }
    }
    drop((oracle, world));
    (switch, trace)
}

/// What a runner must know of a switch's case.
pub fn about(switch: &Switch) -> About {
    let defines = vec![("NETREDUCE_PACKETS", switch.packets.into())];
    About { program: "netreduce", defines, headers: &["ethernet", "ipv4", "udp", "bth"] }
}

/// The files of a case.
///
/// # Panics
/// Where the switch of the traces is one that there cannot be.
pub fn case(seed: u64, packets: usize) -> BTreeMap<String, Vec<u8>> {
    let (switch, trace) = trace(seed, packets);
    let commands = switch.commands().expect("the ring fits the switch").text();
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
            "no packet of IPv4",
            "goes by",
            "for nobody",
            "malformed",
            "first packet by number only",
            "slot taken",
            "slot free",
            "stale",
            "held already",
            "first packet missing",
            "mismatch",
            "a sum from a worker",
            "sum again",
            "sum to all",
            "sum to one",
        ] {
            assert!(trace.seen.get(what).is_some_and(|count| *count >= 5), "{what}: {:?}", trace.seen);
        }
        assert!(!trace.seen.contains_key("noted"), "{:?}", trace.seen);
    }
}
