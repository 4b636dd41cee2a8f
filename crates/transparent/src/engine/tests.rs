//! Hosts that speak a plain TCP through the switch: segments cut anyhow, lost on either side, sent again, late; and what must not be touched.

mod faults;
mod promise;
pub(crate) mod racks;

use std::net::{IpAddr, SocketAddr};

use etherparse::{PacketBuilder, TcpHeader, TcpOptionElement};
use fanin_core::hash::mix;
use fanin_core::{DType, ElementOp, Operator};
use fanin_protocols::shared::splice::Intervals;
use fanin_wire::stream::{SEAL_BYTES, checksum, parse_reason, seal};

use super::*;

/// Frames that have left: (port, frame).
#[derive(Default)]
struct Wire(Vec<(usize, Vec<u8>)>);

impl Ports for Wire {
    fn send(&mut self, port: usize, offload: &Offload, frame: &[u8]) {
        let mut frame = frame.to_vec();
        if offload.flags & Offload::NEEDS_CHECKSUM != 0 {
            let start = usize::from(offload.checksum_start);
            let sum = etherparse::checksum::Sum16BitWords::new().add_slice(&frame[start..]).ones_complement();
            frame[start + usize::from(offload.checksum_offset)..][..2].copy_from_slice(&sum.to_ne_bytes());
        }
        self.0.push((port, frame));
    }
}

const BASE: u32 = u32::MAX - 700;

fn flow(rank: usize, world: usize) -> Flow {
    Flow { from: at(rank, 4_000 + rank as u16), to: at((rank + 1) % world, 7_000) }
}

fn at(host: usize, port: u16) -> SocketAddr {
    SocketAddr::new([10, 0, 0, host as u8 + 1].into(), port)
}

/// The same flow between the same hosts' other addresses.
fn by_ipv6(flow: Flow) -> Flow {
    let other = |address: SocketAddr| SocketAddr::new([0xfd00, 0, 0, 0, 0, 0, 0, host(&address) as u16 + 1].into(), address.port());
    Flow { from: other(flow.from), to: other(flow.to) }
}

fn host(address: &SocketAddr) -> usize {
    match address.ip() {
        IpAddr::V4(ip) => usize::from(ip.octets()[3]) - 1,
        IpAddr::V6(ip) => usize::from(ip.octets()[15]) - 1,
    }
}

/// A frame of a flow.
fn frame(flow: Flow, payload: &[u8], time: u32, set: impl Fn(&mut TcpHeader)) -> Vec<u8> {
    let mac = |address: &SocketAddr| [2, 0, 0, 0, 0, host(address) as u8 + 1];
    let mut tcp = TcpHeader::new(flow.from.port(), flow.to.port(), 0, 60_000);
    tcp.ack = true;
    tcp.set_options(&[TcpOptionElement::Noop, TcpOptionElement::Noop, TcpOptionElement::Timestamp(time, 1)]).unwrap();
    set(&mut tcp);
    let builder = PacketBuilder::ethernet2(mac(&flow.from), mac(&flow.to));
    let builder = match (flow.from.ip(), flow.to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => builder.ipv4(from.octets(), to.octets(), 64),
        (IpAddr::V6(from), IpAddr::V6(to)) => builder.ipv6(from.octets(), to.octets(), 64),
        _ => unreachable!("both ends have one kind of address"),
    };
    let mut frame = Vec::new();
    builder.tcp_header(tcp).write(&mut frame, payload).unwrap();
    frame
}

/// Hosts around a switch.
struct Network {
    switch: Switch,
    now: u64,
}

impl Network {
    fn new(ports: usize, stream_bytes: usize) -> Self {
        Self::with_flows(ports, stream_bytes, (0..ports).map(|rank| flow(rank, ports)))
    }

    fn with_flows(ports: usize, stream_bytes: usize, flows: impl IntoIterator<Item = Flow>) -> Self {
        let config = SwitchConfig { ports, stream_bytes, rings_max: 2, ..SwitchConfig::default() };
        let mut network = Network { switch: Switch::new(config), now: 0 };
        flows.into_iter().for_each(|flow| network.open(flow));
        network
    }

    fn send(&mut self, from: usize, mut frame: Vec<u8>) -> Vec<(usize, Vec<u8>)> {
        let mut wire = Wire::default();
        self.now += 1;
        self.switch.on_frame(Instant::from_ps(self.now * 1_000_000), from, Offload::default(), &mut frame, &mut wire);
        wire.0
    }

    fn instant(&self) -> Instant {
        Instant::from_ps(self.now * 1_000_000)
    }

    /// Some time later, in milliseconds.
    fn pass(&mut self, milliseconds: u64) -> Vec<(usize, Vec<u8>)> {
        self.now += milliseconds * 1_000;
        self.tick()
    }

    fn tick(&mut self) -> Vec<(usize, Vec<u8>)> {
        let mut wire = Wire::default();
        self.switch.on_tick(self.instant(), &mut wire);
        wire.0
    }

    /// The three segments that open a connection.
    fn open(&mut self, flow: Flow) {
        let syn = |tcp: &mut TcpHeader| (tcp.syn, tcp.ack, tcp.sequence_number) = (true, false, BASE.wrapping_sub(1));
        self.send(host(&flow.from), frame(flow, &[], 1, syn));
        let answer = |tcp: &mut TcpHeader| (tcp.syn, tcp.acknowledgment_number, tcp.sequence_number) = (true, BASE, 99);
        self.send(host(&flow.to), frame(flow.reverse(), &[], 1, answer));
        let last = |tcp: &mut TcpHeader| (tcp.sequence_number, tcp.acknowledgment_number) = (BASE, 100);
        self.send(host(&flow.from), frame(flow, &[], 1, last));
    }

    fn data(&mut self, flow: Flow, offset: usize, payload: &[u8], fin: bool) -> Vec<(usize, Vec<u8>)> {
        let time = self.now as u32;
        let set = |tcp: &mut TcpHeader| {
            (tcp.sequence_number, tcp.acknowledgment_number, tcp.fin) = (BASE.wrapping_add(offset as u32), 100, fin);
        };
        self.send(host(&flow.from), frame(flow, payload, time, set))
    }

    fn acknowledge(&mut self, flow: Flow, to: u64) -> Vec<(usize, Vec<u8>)> {
        let set = |tcp: &mut TcpHeader| (tcp.sequence_number, tcp.acknowledgment_number) = (100, BASE.wrapping_add(to as u32));
        self.send(host(&flow.to), frame(flow.reverse(), &[], 1, set))
    }
}

/// What a worker's application has received.
struct Receiver {
    bytes: Vec<u8>,
    there: Intervals,
    time: u32,
    ended: bool,
}

impl Receiver {
    fn new(length: usize) -> Self {
        Receiver { bytes: vec![0; length], there: Intervals::default(), time: 0, ended: false }
    }

    fn take(&mut self, frame: &[u8]) {
        let segment = Segment::parse(frame).unwrap();
        assert!(!segment.flags.rst, "reset");
        assert!(segment.is_whole(frame, &Offload::default()), "a wrong checksum");
        if segment.payload_bytes() == 0 && !segment.flags.fin {
            return;
        }
        let time = segment.time(frame).unwrap();
        let at = u64::from(segment.sequence.wrapping_sub(BASE));
        let end = at + u64::from(segment.payload_bytes());
        if end > self.there.reach(0) {
            assert!(time.wrapping_sub(self.time) as i32 >= 0, "PAWS: the receiver drops a segment that is too old");
            self.time = time;
        }
        // The first copy counts, as in any kernel.
        while let Some(missing) = self.there.next_missing(&(at..end)) {
            let payload = &frame[segment.payload()];
            let from = &payload[(missing.start - at) as usize..(missing.end - at) as usize];
            self.bytes[missing.start as usize..missing.end as usize].copy_from_slice(from);
            self.there.insert(missing);
        }
        self.ended |= segment.flags.fin && self.there.reach(0) == end;
    }
}

fn stream(ring: u32, rank: usize, world: usize, message_elements: &[usize]) -> Vec<u8> {
    let op = ElementOp::new(DType::I32, Operator::Sum).unwrap();
    let mut stream = Vec::new();
    for (message, &elements) in (0..).zip(message_elements) {
        let header = MessageHeader { op, ring, message, bytes: elements as u64 * 4, rank: rank as u16, world: world as u16, summed: 0 };
        let start = stream.len();
        stream.resize(start + MessageHeader::LEN, 0);
        header.emit(&mut stream[start..]);
        (0..elements).for_each(|index| stream.extend_from_slice(&(mix(rank as u64, index as u64) as u32 >> 4).to_le_bytes()));
        stream.resize(start + header.stream_bytes() as usize, 0);
    }
    stream
}

fn result(ring: u32, world: usize, message_elements: &[usize]) -> Vec<u8> {
    let streams: Vec<Vec<u8>> = (0..world).map(|rank| stream(ring, rank, world, message_elements)).collect();
    let mut result = streams[0].clone();
    let mut at = 0;
    for &elements in message_elements {
        let header = MessageHeader::parse(&result[at..]).unwrap();
        MessageHeader { summed: world as u16, ..header }.emit(&mut result[at..]);
        for element in (at + 32..at + 32 + elements * 4).step_by(4) {
            let read = |stream: &[u8]| u32::from_le_bytes(stream[element..element + 4].try_into().unwrap());
            let sum = streams.iter().fold(0u32, |sum, stream| sum.wrapping_add(read(stream)));
            result[element..element + 4].copy_from_slice(&sum.to_le_bytes());
        }
        let sealed = at + header.sealed_bytes() as usize;
        let crc = checksum(0, &result[at..sealed]);
        result[sealed..sealed + SEAL_BYTES].copy_from_slice(&seal(crc));
        at += header.stream_bytes() as usize;
    }
    result
}

#[test]
fn sums_are_exact_whatever_is_lost_and_however_segments_are_cut() {
    let messages = [301, 0, 7, 1_200];
    for seed in 0..40u64 {
        let world = 2 + (seed % 3) as usize;
        let flow = |rank: usize, world: usize| if seed % 4 == 0 { by_ipv6(flow(rank, world)) } else { flow(rank, world) };
        let expected = result(5, world, &messages);
        let streams: Vec<Vec<u8>> = (0..world).map(|rank| stream(5, rank, world, &messages)).collect();
        let mut network = Network::with_flows(world, 4_096, (0..world).map(|rank| flow(rank, world)));
        let mut receivers: Vec<Receiver> = (0..world).map(|_| Receiver::new(expected.len())).collect();
        let mut step = 0;
        while !receivers.iter().all(|receiver| receiver.ended) {
            step += 1;
            assert!(step < 100_000, "seed {seed} is stuck at {:?}", receivers.iter().map(|r| r.there.reach(0)).collect::<Vec<_>>());
            let draw = mix(seed, step);
            let rank = (draw >> 8) as usize % world;
            let own = flow(rank, world);
            let acknowledged = receivers[rank].there.reach(0);
            // The sender's window: sometimes one segment only, sometimes twelve.
            let start = acknowledged as usize + if draw & 3 == 0 { 0 } else { (draw >> 16) as usize % 1_500 };
            let start = start.min(expected.len());
            let end = (start + 1 + (draw >> 32) as usize % 400).min(expected.len());
            let fin = end == expected.len();
            // One frame in ten is lost before the switch, one in ten behind it.
            if draw >> 60 == 0 && (draw >> 56) & 1 == 0 {
                continue;
            }
            let left = network.data(own, start, &streams[rank][start..end], fin);
            for (number, (port, frame)) in left.into_iter().enumerate() {
                let to = Segment::parse(&frame).unwrap().flow;
                assert_eq!(port, host(&to.to));
                if mix(draw, number as u64).is_multiple_of(10) {
                    continue;
                }
                let sender = host(&to.from);
                receivers[sender].take(&frame);
                let to = receivers[sender].there.reach(0);
                if !mix(draw, 100 + number as u64).is_multiple_of(5) {
                    network.acknowledge(flow(sender, world), to);
                }
            }
        }
        for receiver in &receivers {
            assert!(receiver.bytes == expected, "seed {seed}: other results");
        }
        let statistics = network.switch.statistics();
        assert_eq!((statistics.rings, statistics.rings_failed), (1, 0));
        for rank in 0..world {
            network.acknowledge(flow(rank, world), expected.len() as u64 + 1);
        }
        assert!(network.switch.streams.is_empty() && network.switch.rings.is_empty() && network.switch.held_bytes == 0, "seed {seed}");
    }
}

#[test]
fn a_window_of_one_segment_that_ends_inside_an_element_goes_on() {
    let expected = result(5, 2, &[10]);
    let streams: Vec<Vec<u8>> = (0..2).map(|rank| stream(5, rank, 2, &[10])).collect();
    let mut network = Network::new(2, 4_096);
    let mut receivers = [Receiver::new(expected.len()), Receiver::new(expected.len())];
    // 37 bytes: five of them are elements, four of which are whole.
    for round in 0..20 {
        for rank in 0..2 {
            let at = receivers[rank].there.reach(0) as usize;
            let end = (at + 37).min(expected.len());
            for (_, frame) in network.data(flow(rank, 2), at, &streams[rank][at..end], end == expected.len()) {
                let sender = host(&Segment::parse(&frame).unwrap().flow.from);
                receivers[sender].take(&frame);
                let to = receivers[sender].there.reach(0);
                network.acknowledge(flow(sender, 2), to);
            }
        }
        if receivers.iter().all(|receiver| receiver.ended) {
            assert!(network.switch.statistics().cut > 0);
            assert!(receivers.iter().all(|receiver| receiver.bytes == expected));
            return;
        }
        assert!(round < 19, "stuck");
    }
}

/// What is left of a message when a switch comes back passes as it was sent: the seal shows that.
#[test]
fn a_result_that_was_summed_in_part_has_no_seal() {
    let streams: Vec<Vec<u8>> = (0..2).map(|rank| stream(5, rank, 2, &[100])).collect();
    let sealed = streams[0].len() - SEAL_BYTES;
    let mut receiver = Receiver::new(streams[0].len());
    let mut network = Network::new(2, 4_096);
    for part in [0..200, 200..streams[0].len()] {
        for (rank, stream) in streams.iter().enumerate() {
            for (_, frame) in network.data(flow(rank, 2), part.start, &stream[part.clone()], false) {
                if Segment::parse(&frame).unwrap().flow == flow(0, 2) {
                    receiver.take(&frame);
                }
            }
        }
        network.switch = Switch::new(SwitchConfig { ports: 2, stream_bytes: 4_096, ..SwitchConfig::default() });
    }
    assert_eq!(receiver.there.reach(0), streams[0].len() as u64);
    assert_eq!(MessageHeader::parse(&receiver.bytes).unwrap().summed, 2);
    assert_ne!(receiver.bytes[sealed..], seal(checksum(0, &receiver.bytes[..sealed])));
}

#[test]
fn everything_else_passes_unchanged() {
    let mut network = Network::new(3, 4_096);
    // Learnt from the openings: each frame has one way.
    let other = flow(1, 3);
    let text = b"GET / HTTP/1.1";
    for (at, byte) in text.iter().enumerate() {
        let left = network.data(other, at, &[*byte], false);
        assert_eq!(left.len(), 1, "byte {at} waits");
        assert_eq!(left[0].0, 2);
        assert_eq!(&left[0].1[Segment::parse(&left[0].1).unwrap().payload()], &[*byte]);
    }
    // A stream whose later bytes come first is known when its first ones come.
    let late = flow(0, 3);
    assert!(network.data(late, 50, b"later", false).is_empty());
    let left = network.data(late, 0, b"hello", false);
    assert_eq!(left.len(), 2);
    // One that begins as a message does and is none; and a single byte that could be the beginning of one, sent again.
    let third = flow(2, 3);
    assert!(network.data(third, 0, &[0xfa], false).is_empty());
    assert_eq!(network.data(third, 0, &[0xfa], false).len(), 2);
    network.open(third);
    let arp = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1], &[8, 6], &[0; 28]].concat();
    assert_eq!(network.send(0, arp.clone()), [(1, arp.clone()), (2, arp)]);
    assert_eq!(network.switch.statistics().summed, 0);
}

fn resets(left: &[(usize, Vec<u8>)]) -> usize {
    left.iter().filter(|(_, frame)| Segment::parse(frame).is_some_and(|segment| segment.flags.rst)).count()
}

/// What senders were told.
fn reasons(left: &[(usize, Vec<u8>)]) -> Vec<String> {
    left.iter().filter_map(|(_, frame)| parse_reason(&frame[Segment::parse(frame)?.payload()])).collect()
}

#[test]
fn workers_that_disagree_are_all_told() {
    let mut network = Network::new(3, 4_096);
    for rank in 0..2 {
        assert!(network.data(flow(rank, 3), 0, &stream(5, rank, 3, &[10]), false).is_empty());
    }
    let left = network.data(flow(2, 3), 0, &stream(5, 2, 3, &[12]), false);
    assert_eq!(resets(&left), 6, "both ends of three connections");
    let why = "ring 5: rank 2's message 0 has another `bytes` than the other ranks'";
    assert_eq!(reasons(&left), [why; 3], "each sender has been told");
    let mut said = 0;
    for (port, frame) in &left {
        let segment = Segment::parse(frame).unwrap();
        assert_eq!(*port, host(&segment.flow.to));
        // Exactly where the receiver waits, or it would not believe it (RFC 5961).
        let opened = (0..3).any(|rank| flow(rank, 3) == segment.flow);
        assert_eq!(segment.sequence, if opened { BASE } else { 100 + said });
        said = segment.payload_bytes();
    }
    // Whoever has not heard it is told again, and nothing of it passes.
    let left = network.data(flow(0, 3), 0, &stream(5, 0, 3, &[10]), false);
    assert_eq!((left.len(), resets(&left), reasons(&left)), (3, 2, vec![why.to_owned()]));
    // A kernel that knows the connection no more answers the word with a reset, which stands where the receiver waits, and is the end of it.
    let set = |tcp: &mut TcpHeader| (tcp.rst, tcp.sequence_number) = (true, BASE);
    let left = network.send(0, frame(flow(0, 3), &[], 1, set));
    assert_eq!((left.len(), left[0].0, resets(&left)), (1, 1, 1));
    assert_eq!(resets(&network.data(flow(0, 3), 0, &[], false)), 2, "without a word");
    assert_eq!(network.switch.statistics().rings_failed, 1);
}

#[test]
fn a_worker_that_dies_ends_the_ring() {
    for by_fin in [false, true] {
        let mut network = Network::new(2, 4_096);
        let streams: Vec<Vec<u8>> = (0..2).map(|rank| stream(5, rank, 2, &[100])).collect();
        network.data(flow(0, 2), 0, &streams[0], false);
        network.data(flow(1, 2), 0, &streams[1][..60], false);
        let left = if by_fin {
            network.data(flow(1, 2), 60, &[], true)
        } else {
            let set = |tcp: &mut TcpHeader| (tcp.rst, tcp.sequence_number) = (true, BASE.wrapping_add(60));
            network.send(1, frame(flow(1, 2), &[], 1, set))
        };
        assert!(resets(&left) >= 2, "by_fin {by_fin}: {}", resets(&left));
        assert!(network.switch.rings.is_empty());
    }
}

#[test]
fn rings_that_cannot_be_taken_are_refused_and_others_go_on() {
    let mut network = Network::new(4, 4_096);
    for rank in 0..2 {
        network.data(flow(rank, 4), 0, &stream(5, rank, 4, &[10])[..40], false);
    }
    // Rank 1 once more, by another connection.
    let left = network.data(flow(2, 4), 0, &stream(5, 1, 4, &[10]), false);
    assert_eq!(resets(&left), 2);
    // A third ring, where two are allowed.
    network.data(flow(3, 4), 0, &stream(6, 0, 2, &[10]), false);
    let fifth = Flow { from: at(0, 9_999), to: flow(0, 4).to };
    network.open(fifth);
    let left = network.data(fifth, 0, &stream(7, 0, 2, &[10]), false);
    assert_eq!(resets(&left), 2);
    assert_eq!(network.switch.statistics().rings_failed, 0);
}

#[test]
fn frames_from_anybody_never_panic() {
    let mut network = Network::new(2, 1_024);
    let good = frame(flow(0, 2), &stream(5, 0, 2, &[30]), 1, |tcp| tcp.sequence_number = BASE);
    for seed in 0..20_000u64 {
        let mut bytes = good.clone();
        for change in 0..mix(seed, 0) % 6 {
            let draw = mix(seed, 1 + change);
            let at = draw as usize % bytes.len();
            bytes[at] = (draw >> 32) as u8;
        }
        bytes.truncate(mix(seed, 99) as usize % (good.len() * 2));
        network.send((seed % 2) as usize, bytes);
        if seed.is_multiple_of(64) {
            network.tick();
        }
    }
}

/// The same for a fuzzer (`make fuzz`), from whose bytes segments of the two streams, damaged frames and time come in any order; an ordinary test runs
/// what it has found.
#[test]
fn frames_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|mut bytes: &[u8]| {
        let mut network = Network::new(2, 1_024);
        let streams = [0, 1].map(|rank| stream(5, rank, 2, &[30, 7]));
        while let [kind, first, second, rest @ ..] = bytes {
            bytes = rest;
            let (rank, first, second) = (usize::from(kind & 1), usize::from(*first), usize::from(*second));
            let from = first % streams[rank].len();
            let to = (from + second).min(streams[rank].len());
            match kind >> 1 & 7 {
                0..=2 => drop(network.data(flow(rank, 2), from, &streams[rank][from..to], kind & 0x80 != 0)),
                3 => drop(network.acknowledge(flow(rank, 2), first as u64 * 2)),
                4 => drop(network.pass(second as u64)),
                5 => drop(network.send(rank, rest.to_vec())),
                _ => {
                    // A segment with some of its bytes changed: those that follow say which, and to what.
                    let set =
                        |tcp: &mut TcpHeader| (tcp.sequence_number, tcp.acknowledgment_number) = (BASE.wrapping_add(from as u32), 100);
                    let mut damaged = frame(flow(rank, 2), &streams[rank][from..to], 1, set);
                    for change in rest.chunks_exact(2).take(usize::from(kind >> 4)) {
                        let at = usize::from(change[0]) % damaged.len();
                        damaged[at] = change[1];
                    }
                    network.send(rank, damaged);
                }
            }
        }
    });
}
