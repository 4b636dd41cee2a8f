//! What a link of the overlay does for every protocol: packets arrive once, from members only, and nothing that a stranger sends does
//! any harm. The node is a toy that counts.

mod keys;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use fanin_core::{
    Address, Body, DropReason, Egress, ElementOp, FlowLabel, Ingress, Instant, JobId, LinkSequence, Malformed, Node, NodeId, PacketKind,
    PortId, Route, TrafficClass, Tx, Via, Wire,
};
use fanin_net::{FaultPlan, SenderConfig, Socket, SocketConfig, Waker};
use fanin_runtime::fabric::{FabricConfig, FabricPortConfig, FabricSwitch, HelloConfig, LinkShape, LinkState};
use fanin_runtime::{DriverConfig, NodeConfig, PeerConfig, SwitchDriver};
use fanin_trust::PacketKeys;
use fanin_wire::hop::{HopHeader, HopPacket, RestCheck};
use fanin_wire::link::{LINK_SYSTEM, LinkHeader};

const JOB: JobId = JobId(7);
const SYSTEM: u8 = 200;
/// The number of the packet that ends a test.
const LAST: u32 = u32::MAX;

/// A number, in four bytes.
#[derive(Clone, Copy, Debug)]
struct Number(u32);

impl Wire for Number {
    const MAX_LEN: usize = 4;

    fn wire_len(&self) -> usize {
        4
    }

    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let front = bytes.first_chunk().ok_or(Malformed::Truncated { needed: 4, got: bytes.len() })?;
        Ok((Number(u32::from_le_bytes(*front)), 4))
    }

    fn emit(&self, out: &mut [u8]) -> usize {
        out[..4].copy_from_slice(&self.0.to_le_bytes());
        4
    }

    fn kind(&self) -> PacketKind {
        PacketKind::Control
    }
}

/// Sends the numbers `0..total` with at most `window` of them unanswered, and answers each number that it gets with the same one.
struct Toy {
    to: Egress<'static>,
    total: u32,
    sent: u32,
    answered: u32,
    window: u32,
    seen: Vec<u32>,
    sources: Vec<Ingress>,
    stop: Arc<AtomicBool>,
}

impl Toy {
    fn new(to: Egress<'static>, total: u32, stop: &Arc<AtomicBool>) -> Self {
        Toy { to, total, sent: 0, answered: 0, window: 32, seen: Vec::new(), sources: Vec::new(), stop: stop.clone() }
    }

    fn fill(&mut self, tx: &mut impl Tx<Number, [u8]>) {
        while self.sent < self.total && self.sent < self.answered + self.window && tx.room(self.to) {
            tx.send(self.to, &Number(self.sent), Body::Borrowed(&payload(self.sent)));
            self.sent += 1;
        }
    }
}

fn payload(number: u32) -> Vec<u8> {
    vec![number as u8; 100]
}

impl Node<[u8]> for Toy {
    type Header = Number;

    fn on_packet<T: Tx<Number, [u8]>>(&mut self, _now: Instant, from: Ingress, header: &Number, bytes: &[u8], tx: &mut T) {
        if header.0 == LAST {
            self.stop.store(true, Ordering::Relaxed);
            return;
        }
        assert_eq!(bytes, payload(header.0));
        self.seen.push(header.0);
        self.sources.push(from);
        if self.total == 0 {
            tx.send(self.to, header, Body::Borrowed(bytes));
        } else {
            self.answered += 1;
            self.fill(tx);
            if self.answered == self.total {
                self.stop.store(true, Ordering::Relaxed);
            }
        }
    }

    fn on_timeout<T: Tx<Number, [u8]>>(&mut self, _now: Instant, tx: &mut T) {
        self.fill(tx);
    }

    fn next_timeout(&self) -> Option<Instant> {
        (self.sent == 0 && self.total > 0).then_some(Instant::ZERO)
    }
}

fn socket() -> Socket {
    Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap()
}

fn config(address: Address, peers: &[(Address, SocketAddr)], routes: &[(NodeId, NodeId)]) -> NodeConfig {
    let peers = peers.iter().zip(0..).map(|(&(address, socket), port)| PeerConfig { address, socket, port: Some(PortId(port)) }).collect();
    NodeConfig { address, job: JOB, system: SYSTEM, op: ElementOp::F32_SUM, peers, routes: routes.to_vec() }
}

fn with_faults(faults: FaultPlan, epoch: u32) -> DriverConfig {
    DriverConfig { sender: SenderConfig { faults, ..SenderConfig::default() }, epoch: Some(epoch), ..DriverConfig::default() }
}

/// Runs all drivers, each on a thread, until one sets `stop`.
fn run(drivers: &mut [SwitchDriver<Toy>], stop: &AtomicBool) {
    let wakers: Vec<Waker> = drivers.iter().map(SwitchDriver::waker).collect();
    thread::scope(|scope| {
        for driver in drivers {
            scope.spawn(|| {
                driver.run(stop).unwrap();
                wakers.iter().for_each(Waker::wake);
            });
        }
    });
}

#[test]
fn duplicates_and_reordering_below_the_hop_sequence_are_not_seen_above_it() {
    let stop = Arc::new(AtomicBool::new(false));
    let (a, b) = (Address::worker(NodeId(0)), Address::worker(NodeId(1)));
    let (socket_a, socket_b) = (socket(), socket());
    let (at_a, at_b) = (socket_a.local_address(), socket_b.local_address());
    let faults = FaultPlan { seed: 3, duplicate: 0.1, reorder: 0.1, ..FaultPlan::default() };
    let port = Egress::Port(PortId(0));
    let mut drivers = [
        SwitchDriver::new(socket_a, Toy::new(port, 5_000, &stop), config(a, &[(b, at_b)], &[]), &with_faults(faults, 1)).unwrap(),
        SwitchDriver::new(socket_b, Toy::new(port, 0, &stop), config(b, &[(a, at_a)], &[]), &with_faults(faults, 2)).unwrap(),
    ];
    run(&mut drivers, &stop);
    for (driver, other) in [(0, 1), (1, 0)] {
        let mut seen = drivers[driver].node().seen.clone();
        assert!(!seen.is_sorted(), "reordering reaches the protocol");
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..5_000), "each number once");
        let repeated = drivers[driver].statistics().counters.dropped_for(DropReason::Repeated);
        let injected = drivers[other].statistics().sent.injected[1];
        assert!((200..=injected).contains(&repeated), "{repeated} of {injected} duplicates dropped");
    }
}

#[test]
fn a_routed_packet_crosses_a_switch_and_keeps_its_source() {
    let stop = Arc::new(AtomicBool::new(false));
    let (a, b, switch) = (Address::worker(NodeId(0)), Address::worker(NodeId(1)), Address::switch(NodeId(2)));
    let (socket_a, socket_b, socket_s) = (socket(), socket(), socket());
    let (at_a, at_b, at_s) = (socket_a.local_address(), socket_b.local_address(), socket_s.local_address());
    let to = |address| Egress::Route(Route::direct(address, FlowLabel(0)));
    let how = with_faults(FaultPlan { seed: 4, duplicate: 0.05, ..FaultPlan::default() }, 1);
    let mut drivers = [
        SwitchDriver::new(socket_a, Toy::new(to(b), 500, &stop), config(a, &[(switch, at_s)], &[(b.node, switch.node)]), &how).unwrap(),
        SwitchDriver::new(socket_b, Toy::new(to(a), 0, &stop), config(b, &[(switch, at_s)], &[(a.node, switch.node)]), &how).unwrap(),
        SwitchDriver::new(socket_s, Toy::new(to(a), 0, &stop), config(switch, &[(a, at_a), (b, at_b)], &[]), &how).unwrap(),
    ];
    run(&mut drivers, &stop);
    for (driver, other) in [(0, b), (1, a)] {
        let mut seen = drivers[driver].node().seen.clone();
        seen.sort_unstable();
        assert!(seen.into_iter().eq(0..500));
        assert!(drivers[driver].node().sources.iter().all(|from| from.source == other && from.port == PortId(0)));
    }
    assert_eq!(drivers[2].statistics().counters.packets_forwarded, 1_000);
    assert!(drivers[2].node().seen.is_empty());
}

/// A socket that speaks for a member, byte by byte.
struct Puppet {
    socket: UdpSocket,
    to: SocketAddr,
}

impl Puppet {
    fn hop() -> HopHeader {
        HopHeader {
            system: SYSTEM,
            via: Via::Direct,
            ecn: false,
            neighbour: true,
            class: TrafficClass::Collective,
            source: Address::worker(NodeId(1)),
            destination: Address::default(),
            job: JOB,
            flow: FlowLabel(0),
            epoch: 1,
            sequence: 0,
            payload_bytes: 100,
        }
    }

    fn packet(hop: HopHeader, number: u32) -> Vec<u8> {
        let mut bytes = vec![0; hop.wire_len()];
        hop.emit(&mut bytes);
        bytes.extend_from_slice(&number.to_le_bytes());
        bytes.extend_from_slice(&payload(number));
        Puppet::seal(&mut bytes);
        bytes
    }

    fn seal(packet: &mut [u8]) {
        let rest = RestCheck::of([HopHeader::parse(packet).map_or(&[][..], |(_, length)| &packet[length..])]);
        HopHeader::seal(packet, rest);
    }

    fn send(&self, bytes: &[u8]) {
        self.socket.send_to(bytes, self.to).unwrap();
    }
}

/// A driver under test with one member, which is a puppet.
fn puppet() -> (SwitchDriver<Toy>, Puppet, Arc<AtomicBool>) {
    puppet_in(None)
}

/// The same, whose epoch was agreed or not.
fn puppet_in(peers_epoch: Option<u32>) -> (SwitchDriver<Toy>, Puppet, Arc<AtomicBool>) {
    let stop = Arc::new(AtomicBool::new(false));
    let (socket, puppet) = (socket(), UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    let to = socket.local_address();
    let config = config(Address::worker(NodeId(0)), &[(Address::worker(NodeId(1)), puppet.local_addr().unwrap())], &[]);
    let node = Toy::new(Egress::Port(PortId(0)), 0, &stop);
    let how = DriverConfig { peers_epoch, ..DriverConfig::default() };
    (SwitchDriver::new(socket, node, config, &how).unwrap(), Puppet { socket: puppet, to }, stop)
}

#[test]
fn what_does_not_belong_here_is_dropped_with_its_reason() {
    let (mut driver, member, stop) = puppet();
    let stranger = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let hop = Puppet::hop();
    let good = Puppet::packet(hop, 5);
    stranger.send_to(&good, member.to).unwrap();
    member.send(&[]);
    member.send(b"GET / HTTP/1.1\r\n\r\n");
    member.send(&good[..12]);
    // A byte is missing: at the end of a sealed packet, and in one that was sealed without it.
    member.send(&good[..good.len() - 1]);
    let mut short = Puppet::packet(HopHeader { sequence: 5, ..hop }, 5);
    short.pop();
    Puppet::seal(&mut short);
    member.send(&short);
    member.send(&Puppet::packet(HopHeader { sequence: 1, payload_bytes: 101, ..hop }, 5));
    member.send(&Puppet::packet(HopHeader { job: JobId(8), ..hop }, 5));
    member.send(&Puppet::packet(HopHeader { system: 9, ..hop }, 5));
    let routed = HopHeader { neighbour: false, destination: Address::worker(NodeId(0)), ..hop };
    member.send(&Puppet::packet(HopHeader { source: Address::worker(NodeId(3)), ..routed }, 5));
    member.send(&Puppet::packet(HopHeader { neighbour: false, destination: Address::worker(NodeId(3)), sequence: 2, ..hop }, 5));
    member.send(&Puppet::packet(HopHeader { sequence: 3, ..hop }, 6));
    member.send(&Puppet::packet(HopHeader { sequence: 3, ..hop }, 6));
    member.send(&Puppet::packet(HopHeader { sequence: 4, ..hop }, LAST));
    driver.run(&stop).unwrap();

    assert_eq!(driver.node().seen, [6]);
    let counters = driver.statistics().counters;
    let dropped: Vec<(&str, u64)> =
        DropReason::ALL.iter().map(|&reason| (reason.name(), counters.dropped_for(reason))).filter(|(_, count)| *count > 0).collect();
    assert_eq!(dropped, [("corrupted", 1), ("repeated", 1), ("no_node", 2), ("malformed", 5), ("mismatch", 1), ("not_a_member", 2)]);
}

#[test]
fn no_bit_of_a_packet_flips_unseen_and_random_bytes_do_no_harm() {
    let (mut driver, member, stop) = puppet_in(Some(1));
    let packet = Puppet::packet(Puppet::hop(), 9);
    let bits = packet.len() * 8;
    let flipper = thread::spawn(move || {
        let pause = |round: usize| {
            if round.is_multiple_of(100) {
                // Small receive buffers overflow otherwise, and the last packet must not be lost.
                thread::sleep(Duration::from_millis(1));
            }
        };
        for bit in 0..bits {
            let mut bytes = packet.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            member.send(&bytes);
            pause(bit);
        }
        for round in 0..2_000 {
            let random = |at: u64| fanin_core::hash::mix(round as u64, at);
            let mut bytes: Vec<u8> = packet.iter().zip(1..).map(|(_, at)| random(at) as u8).collect();
            bytes.truncate(random(0) as usize % 200);
            // Half of them begin as a packet does.
            if round % 2 == 0 {
                bytes.iter_mut().zip(&packet[..4]).for_each(|(byte, good)| *byte = *good);
            }
            member.send(&bytes);
            pause(round);
        }
        member.send(&packet);
        member.send(&Puppet::packet(HopHeader { sequence: 1, ..Puppet::hop() }, LAST));
    });
    driver.run(&stop).unwrap();
    flipper.join().unwrap();
    assert_eq!(driver.node().seen, [9], "the packet itself, once");
    let counters = driver.statistics().counters;
    let (corrupted, malformed) = (counters.dropped_for(DropReason::Corrupted), counters.dropped_for(DropReason::Malformed));
    assert_eq!(corrupted + malformed, bits as u64 + 2_000, "{counters:?}");
    assert!(corrupted >= bits as u64 - 4 * 8 && malformed >= 1_000, "{counters:?}");
}

/// What somebody can send who knows the member's address, with right checksums: none of it ends the member's link.
#[test]
fn strays_in_a_members_name_change_nothing() {
    for agreed in [None, Some(1)] {
        let (mut driver, member, stop) = puppet_in(agreed);
        let sender = thread::spawn(move || {
            for number in 0..3_000u32 {
                let draw = fanin_core::hash::mix(5, u64::from(number));
                let hop = HopHeader { sequence: number, ..Puppet::hop() };
                member.send(&Puppet::packet(hop, number));
                let stray = match number % 4 {
                    0 => HopHeader { epoch: draw as u32 | 2, sequence: (draw >> 32) as u32, ..hop },
                    1 => HopHeader { epoch: 0, ..hop },
                    2 => HopHeader { sequence: number + 1_000_000, ..hop },
                    _ => HopHeader { sequence: number + 5_000 + (draw as u32 & 0x3fff_ffff), ..hop },
                };
                member.send(&Puppet::packet(stray, 7));
                if number % 50 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            member.send(&Puppet::packet(HopHeader { sequence: 3_000, ..Puppet::hop() }, LAST));
        });
        driver.run(&stop).unwrap();
        sender.join().unwrap();
        assert!(driver.node().seen.iter().copied().eq(0..3_000), "all that the member sent, in order, and nothing else");
        let counters = driver.statistics().counters;
        assert_eq!((counters.dropped_for(DropReason::Unproven), counters.peers_restarted), (3_000, 0));
    }
}

#[test]
fn a_peer_that_restarts_is_heard_again_and_its_earlier_life_is_not() {
    let (mut driver, member, stop) = puppet();
    let say = |epoch, sequence, number| member.send(&Puppet::packet(HopHeader { epoch, sequence, ..Puppet::hop() }, number));
    say(50, 0, 0);
    say(50, 1, 1);
    for sequence in 0..LinkSequence::EVIDENCE {
        say(51, sequence, 100 + sequence);
    }
    say(50, 2, 3);
    say(51, LinkSequence::EVIDENCE - 1, 4);
    say(51, LinkSequence::EVIDENCE, 5);
    say(51, LinkSequence::EVIDENCE + 1, LAST);
    driver.run(&stop).unwrap();
    assert_eq!(driver.node().seen, [0, 1, 107, 5]);
    let dropped = |reason| driver.statistics().counters.dropped_for(reason);
    assert_eq!([DropReason::Unproven, DropReason::TooOld, DropReason::Repeated].map(dropped), [7, 1, 1]);
    assert_eq!(driver.statistics().counters.peers_restarted, 1);
}

/// A neighbour in a fabric, hello by hello.
struct Greeter {
    socket: UdpSocket,
    switch: SocketAddr,
    sequence: u32,
}

impl Greeter {
    const FABRIC: u32 = 77;

    fn say(&mut self, epoch: u32, hears: Option<u32>, told: Option<u32>) {
        let hello = LinkHeader::Hello { hears, told, port: PortId(0), fabric: Greeter::FABRIC };
        let hop = HopHeader { system: LINK_SYSTEM, job: JobId(0), epoch, sequence: self.sequence, payload_bytes: 0, ..Puppet::hop() };
        self.sequence += 1;
        let mut packet = vec![0; hop.wire_len() + hello.wire_len()];
        let front = hop.emit(&mut packet);
        hello.emit(&mut packet[front..]);
        Puppet::seal(&mut packet);
        self.socket.send_to(&packet, self.switch).unwrap();
    }

    /// Waits for a hello of the switch that hears and was told this; gives its epoch.
    fn hear(&self, hears: Option<u32>, told: Option<u32>) -> u32 {
        let mut buffer = [0; 2_048];
        for _ in 0..1_000 {
            let bytes = self.socket.recv(&mut buffer).expect("the switch says hello");
            let packet = HopPacket::new(&buffer[..bytes]).unwrap();
            packet.verify().unwrap();
            if let Ok((LinkHeader::Hello { hears: heard, told: said, .. }, _)) = LinkHeader::parse(packet.rest())
                && (heard, said) == (hears, told)
            {
                return packet.header().epoch;
            }
        }
        panic!("no hello that hears {hears:?} and was told {told:?}");
    }
}

/// A switch, node 9 of a fabric, its neighbour's socket, node 1, and what its link's states have been. Nothing waits for the link to be silent.
fn switch_with_a_neighbour(keys: Vec<PacketKeys>) -> (FabricSwitch<Toy>, UdpSocket, Arc<Mutex<Vec<LinkState>>>) {
    let (socket, neighbour) = (socket(), UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
    neighbour.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let shape =
        LinkShape { bits_per_second: 1_000_000_000, buffer_bytes: 100_000, ecn_mark_bytes: None, delay: fanin_core::Duration::ZERO };
    let port = FabricPortConfig { peer: Address::worker(NodeId(1)), is_below: true, socket: neighbour.local_addr().unwrap(), shape };
    let hello = HelloConfig { interval: fanin_core::Duration::from_ms(10), timeout: fanin_core::Duration::from_ms(600_000) };
    let (address, ways, fingerprint) = (Address::switch(NodeId(9)), Vec::new(), Greeter::FABRIC);
    let config = FabricConfig { address, ports: vec![port], ways, hello, fingerprint, keys };
    let mut switch: FabricSwitch<Toy> = FabricSwitch::new(socket, &config, &DriverConfig::default()).unwrap();
    let states = Arc::new(Mutex::new(Vec::new()));
    let seen = states.clone();
    switch.observe_links(Box::new(move |_, state| seen.lock().unwrap().push(state)));
    (switch, neighbour, states)
}

/// Epochs of a fabric are agreed by hellos that repeat what only the other end can know.
#[test]
fn a_stray_hello_does_not_end_a_link_and_a_restart_takes_one_round_trip() {
    let (mut switch, neighbour, states) = switch_with_a_neighbour(Vec::new());
    let mut greeter = Greeter { socket: neighbour, switch: switch.local_address(), sequence: 0 };
    let (stop, waker) = (AtomicBool::new(false), switch.waker());
    thread::scope(|scope| {
        let running = scope.spawn(|| switch.run(&stop).unwrap());
        greeter.say(5, None, None);
        let own = greeter.hear(None, Some(5));
        // A guess is not an answer.
        greeter.say(5, Some(own ^ 1), Some(own ^ 2));
        greeter.hear(None, Some(5));
        greeter.say(5, None, Some(own));
        greeter.hear(Some(5), None);
        greeter.say(5, Some(own), None);
        // Strays in the neighbour's name: it is still the one of epoch 5 that is heard.
        for stray in 1_000..1_100 {
            greeter.say(stray, None, None);
        }
        greeter.hear(Some(5), Some(1_099));
        greeter.say(5, Some(own), None);
        // It restarts, and the one before is over, though it knew the answer.
        greeter.say(6, None, None);
        greeter.hear(Some(5), Some(6));
        greeter.say(6, Some(own), None);
        greeter.hear(Some(6), None);
        greeter.say(5, Some(own), None);
        // Once this one is answered the one before has been read.
        greeter.say(7, None, None);
        greeter.hear(Some(6), Some(7));
        stop.store(true, Ordering::Relaxed);
        waker.wake();
        running.join().unwrap();
    });
    let counters = switch.status().counters;
    assert_eq!(*states.lock().unwrap(), [LinkState::Down, LinkState::OneWay, LinkState::Up], "up once, and never down again");
    assert_eq!((counters.peers_restarted, counters.dropped_for(DropReason::TooOld)), (1, 1));
    assert!(counters.dropped_for(DropReason::Unproven) >= 100);
}
