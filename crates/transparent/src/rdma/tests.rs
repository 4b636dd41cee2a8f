//! Network cards around a switch: reliable connections that go back where something is lost, several runs, restarts; and what must not be
//! touched.

use std::collections::VecDeque;

use fanin_core::hash::mix;
use fanin_net::Offload;
use fanin_wire::netreduce::InaHeader;
use fanin_wire::roce::{Aeth, Bth, Envelope, Reth, RoceHeader, opcode};

use crate::engine::{Ports, Switch, SwitchConfig};

use super::*;

mod cards;
mod frames;
mod fuzz;
mod losses;
mod racks;

const PAYLOAD: usize = 256;
const PACKETS: usize = 4;
const MESSAGE: usize = PAYLOAD * PACKETS - InaHeader::LEN;
const KEY: u32 = 0xabc;

/// Frames that have left, by port.
#[derive(Default)]
struct Wire(Vec<(usize, Vec<u8>)>);

impl Ports for Wire {
    fn send(&mut self, port: usize, _: &Offload, frame: &[u8]) {
        self.0.push((port, frame.to_vec()));
    }
}

fn address(rank: usize) -> [u8; 4] {
    [10, 0, 0, rank as u8 + 1]
}

fn envelope(from: usize, to: usize) -> Envelope {
    let mac = |rank: usize| [2, 0, 0, 0, 0, rank as u8 + 1];
    let addresses = [address(from), address(to)];
    Envelope {
        macs: [mac(to), mac(from)],
        addresses,
        service: 2,
        identification: 7,
        hops: 64,
        source_port: 50_000,
        dont_fragment: true,
        tags: [None; 2],
    }
}

fn frame(from: usize, to: usize, bth: Bth, reth: Option<Reth>, immediate: Option<[u8; 4]>, payload: &[u8]) -> Vec<u8> {
    let aeth = (bth.opcode == opcode::ACKNOWLEDGE).then_some(Aeth { syndrome: Aeth::ACK, messages: 0 });
    let header = RoceHeader { envelope: envelope(from, to), bth, reth, aeth, immediate };
    let mut out = vec![0; header.frame_len(payload.len())];
    header.emit(payload, &mut out);
    out
}

/// A run of a job: who takes part by which queue pairs, and what is summed.
#[derive(Clone, Copy)]
struct Run {
    world: usize,
    /// Of the vectors.
    seed: u64,
    /// Of queue pairs and first numbers.
    numbers: u64,
    ring: u16,
    elements: usize,
    /// Whether the last packet of a message hands its number over.
    immediate: bool,
}

impl Run {
    fn new(world: usize, seed: u64, elements: usize) -> Self {
        Run { world, seed, numbers: seed, ring: 7, elements, immediate: false }
    }

    fn queue_pair(&self, rank: usize) -> u32 {
        mix(self.numbers ^ u64::from(self.ring - 7) << 32, rank as u64) as u32 & 0xff_ffff
    }

    fn psn(&self, rank: usize) -> u32 {
        mix(self.numbers, 100 + rank as u64) as u32 & 0xff_ffff
    }

    fn element(&self, rank: usize, index: usize) -> u32 {
        mix(self.seed ^ rank as u64, index as u64) as u32
    }

    fn messages(&self) -> usize {
        (self.elements * 4).div_ceil(MESSAGE)
    }

    fn message_bytes(&self, message: usize) -> usize {
        InaHeader::LEN + (self.elements * 4 - message * MESSAGE).min(MESSAGE)
    }

    /// How many packets there are, and of which message one is the how manieth.
    fn packets(&self) -> usize {
        (0..self.messages()).map(|message| self.message_bytes(message).div_ceil(PAYLOAD)).sum()
    }

    fn place(&self, packet: usize) -> (usize, usize) {
        (packet / PACKETS, packet % PACKETS)
    }

    /// Packet number `packet` of a rank's connection.
    fn frame(&self, rank: usize, packet: usize) -> Vec<u8> {
        let (message, offset) = self.place(packet);
        let bytes = self.message_bytes(message);
        let count = bytes.div_ceil(PAYLOAD);
        let ina = InaHeader { ring: self.ring, rank: rank as u16, message: message as u32, packets: count as u16, summed: 0 };
        let mut whole = vec![0; InaHeader::LEN];
        ina.emit(&mut whole);
        let first = message * MESSAGE / 4;
        (first..first + (bytes - InaHeader::LEN) / 4).for_each(|index| whole.extend(self.element(rank, index).to_le_bytes()));
        let (is_first, is_last) = (offset == 0, offset + 1 == count);
        let opcode = match (is_first, is_last, self.immediate) {
            (true, true, true) => opcode::WRITE_ONLY_IMMEDIATE,
            (true, true, false) => opcode::WRITE_ONLY,
            (false, true, true) => opcode::WRITE_LAST_IMMEDIATE,
            (false, true, false) => opcode::WRITE_LAST,
            (true, false, _) => opcode::WRITE_FIRST,
            (false, false, _) => opcode::WRITE_MIDDLE,
        };
        let bth = Bth { ack_request: is_last, ..Bth::new(opcode, self.queue_pair(rank), (self.psn(rank) + packet as u32) & 0xff_ffff) };
        let reth =
            is_first.then_some(Reth { address: 0x7f00_0000_1000 + (message * (MESSAGE + 16)) as u64, key: KEY, length: bytes as u32 });
        let immediate = (is_last && self.immediate).then_some((message as u32).to_be_bytes());
        let payload = &whole[offset * PAYLOAD..bytes.min((offset + 1) * PAYLOAD)];
        frame(rank, (rank + 1) % self.world, bth, reth, immediate, payload)
    }
}

/// What a card does with the packets of one connection: in order, or not at all.
struct Card {
    expected: usize,
    elements: Vec<u8>,
}

fn ring(world: usize) -> RdmaRing {
    let workers: Vec<String> = (0..world).map(|rank| Ipv4Addr::from(address(rank)).to_string()).collect();
    format!("7:i32:sum:{}:packets={PACKETS}:payload={PAYLOAD}", workers.join(",")).parse().unwrap()
}

fn switch(world: usize) -> Switch {
    Switch::with_rdma(SwitchConfig { ports: world, ..SwitchConfig::default() }, vec![ring(world)]).unwrap()
}

fn send(switch: &mut Switch, from: usize, mut frame: Vec<u8>) -> Vec<(usize, Vec<u8>)> {
    let mut wire = Wire::default();
    switch.on_frame(Instant::from_ps(1), from, Offload::default(), &mut frame, &mut wire);
    wire.0
}

/// The switch hears every host once.
fn learn(switch: &mut Switch, world: usize) {
    for rank in 0..world {
        let bth = Bth::new(opcode::ACKNOWLEDGE, 9, 9);
        let left = send(switch, rank, frame(rank, (rank + 1) % world, bth, None, None, &[]));
        assert!(!left.is_empty(), "`netreduce 5.6`: acknowledgements pass");
    }
}

impl Card {
    /// Takes a frame if it is the next one: then all of it must be what the sender said, but for the elements.
    fn take(&mut self, run: &Run, sender: usize, bytes: &[u8]) {
        let (header, payload) = RoceHeader::parse(bytes).expect("a frame whose checks are right");
        let sent = run.frame(sender, self.expected.min(run.packets() - 1));
        let (own, contribution) = RoceHeader::parse(&sent).unwrap();
        if header.bth.psn != own.bth.psn || header.bth.queue_pair != own.bth.queue_pair {
            return;
        }
        assert_eq!((header, payload.len()), (own, contribution.len()));
        let skipped = if header.reth.is_some() {
            let (ina, before) = (InaHeader::parse(payload).unwrap(), InaHeader::parse(contribution).unwrap());
            assert_eq!(ina, InaHeader { summed: run.world as u16, ..before });
            InaHeader::LEN
        } else {
            0
        };
        self.elements.extend_from_slice(&payload[skipped..]);
        self.expected += 1;
    }

    fn check(&self, run: &Run) {
        assert_eq!(self.elements.len(), run.elements * 4);
        for (index, bytes) in self.elements.chunks_exact(4).enumerate() {
            let sum = (0..run.world).fold(0u32, |sum, rank| sum.wrapping_add(run.element(rank, index)));
            assert_eq!(bytes, sum.to_le_bytes(), "element {index}, seed {}", run.seed);
        }
    }
}

/// A receiver acknowledges a packet.
fn acknowledge(switch: &mut Switch, run: &Run, sender: usize, packet: usize) {
    let (to, number) = (run.queue_pair(sender) ^ 1, (run.psn(sender) + packet as u32) & 0xff_ffff);
    let receiver = (sender + 1) % run.world;
    let answer = frame(receiver, sender, Bth::new(opcode::ACKNOWLEDGE, to, number), None, None, &[]);
    assert_eq!(send(switch, receiver, answer.clone()), [(sender, answer)], "`netreduce 5.6`: acknowledgements pass");
}

/// Runs a job; `loss` in 256ths, before the switch and behind it. `stale` frames come in between.
fn job(switch: &mut Switch, run: &Run, loss: u64, stale: &[(usize, Vec<u8>)]) {
    let mut cards: Vec<Card> = (0..run.world).map(|_| Card { expected: 0, elements: Vec::new() }).collect();
    let mut step = 0;
    while cards.iter().any(|card| card.expected < run.packets()) {
        step += 1;
        assert!(step < 200_000, "seed {}: stuck at {:?}", run.seed, cards.iter().map(|card| card.expected).collect::<Vec<_>>());
        let draw = mix(run.seed, 1_000 + step);
        let rank = draw as usize % run.world;
        // The successor has acknowledged so much; the window is counted from what this worker has of its own predecessor (`netreduce 5.1`).
        let (acknowledged, received) = (cards[rank].expected, cards[(rank + run.world - 1) % run.world].expected);
        let mut to = (run.place(received).0 + 2) * PACKETS;
        to = to.min(run.packets()).min(acknowledged + 12);
        // Go back, or somewhere in the window, as a card that has sent part of it does.
        for packet in acknowledged..to {
            let draw = mix(draw, packet as u64);
            if draw & 0xff < loss {
                continue;
            }
            for (port, left) in send(switch, rank, run.frame(rank, packet)) {
                let (header, _) = RoceHeader::parse(&left).unwrap();
                let sender = usize::from(header.envelope.addresses[0][3]) - 1;
                assert_eq!(port, (sender + 1) % run.world);
                let before = cards[sender].expected;
                if mix(draw, port as u64) & 0xff >= loss {
                    cards[sender].take(run, sender, &left);
                }
                if cards[sender].expected > before {
                    acknowledge(switch, run, sender, before);
                }
            }
            if let Some((from, frame)) = stale.get(draw as usize >> 8 & 0xff) {
                assert_eq!(send(switch, *from, frame.clone()), [], "what is of a former run neither passes nor counts");
            }
        }
    }
    cards.iter().for_each(|card| card.check(run));
}

#[test]
fn sums_are_exact_in_the_frames_of_their_senders_whatever_is_lost() {
    for seed in 0..24u64 {
        let world = 2 + seed as usize % 3;
        let mut switch = switch(world);
        learn(&mut switch, world);
        let run = Run { immediate: seed % 2 == 0, ..Run::new(world, seed, 1 + (mix(seed, 5) as usize % 3_000)) };
        job(&mut switch, &run, seed % 4 * 20, &[]);
        let done = switch.statistics().rdma;
        assert_eq!((done.runs, done.refused, done.damaged), (1, 0, 0), "seed {seed}");
        assert!(done.summed >= (run.packets() * world) as u64);
    }
}

#[test]
fn a_run_that_begins_ends_the_one_before_and_nothing_of_that_counts() {
    let mut switch = switch(3);
    learn(&mut switch, 3);
    let run = |seed| Run { immediate: true, ..Run::new(3, seed, 2_000) };
    // The first one never ends: rank 2 is missing.
    let old: Vec<(usize, Vec<u8>)> = (0..2).flat_map(|rank| (0..8).map(move |packet| (rank, run(1).frame(rank, packet)))).collect();
    for (rank, frame) in &old {
        assert_eq!(send(&mut switch, *rank, frame.clone()), []);
    }
    // Both of its workers are known before their cards, which still send, may disturb.
    for rank in 0..3 {
        send(&mut switch, rank, run(2).frame(rank, 0));
    }
    job(&mut switch, &run(2), 10, &old);
    job(&mut switch, &run(3), 10, &[]);
    assert_eq!(switch.statistics().rdma.runs, 3);
}

#[test]
fn after_a_restart_nothing_of_a_run_passes_unsummed() {
    let run = Run::new(2, 9, 2_000);
    let mut switch = switch(2);
    learn(&mut switch, 2);
    for packet in 1..run.packets() {
        for rank in 0..2 {
            assert_eq!(send(&mut switch, rank, run.frame(rank, packet)), [], "packet {packet}");
        }
    }
    assert!(switch.statistics().rdma.dropped > 0);
}

#[test]
fn other_rdma_of_the_same_hosts_passes_and_what_contradicts_the_ring_does_not() {
    let mut switch = switch(2);
    learn(&mut switch, 2);
    let reth = Some(Reth { address: 1, key: 2, length: 2_000 });
    let write = |opcode, reth, payload: &[u8]| frame(0, 1, Bth::new(opcode, 77, 5), reth, None, payload);
    // A middle of which the beginning was not seen may be one of a message; with its beginning it is none.
    assert_eq!(send(&mut switch, 0, write(opcode::WRITE_MIDDLE, None, &[1; 256])), []);
    for (opcode, reth) in [(opcode::WRITE_FIRST, reth), (opcode::WRITE_MIDDLE, None), (opcode::WRITE_LAST, None), (0x04, None)] {
        let sent = write(opcode, reth, &[1; 256]);
        assert_eq!(send(&mut switch, 0, sent.clone()), [(1, sent)], "opcode {opcode}");
    }
    // Between hosts that are no neighbours nothing is looked at.
    let run = Run::new(2, 4, 300);
    let (good, before) = (run.frame(0, 0), switch.statistics().rdma);
    let (header, payload) = RoceHeader::parse(&good).unwrap();
    let stranger = RoceHeader { envelope: Envelope { addresses: [[10, 0, 9, 9], address(1)], ..header.envelope }, ..header };
    let mut foreign = vec![0; good.len()];
    stranger.emit(payload, &mut foreign);
    assert_eq!(send(&mut switch, 0, foreign.clone()), [(1, foreign)]);
    // Another ring, another rank, a wrong length; and a bit that was turned on the way.
    for (at, value) in [(5usize, 8u8), (7, 1), (13, 9), (15, 2)] {
        let mut other = payload.to_vec();
        other[at] = value;
        let mut bytes = vec![0; good.len()];
        header.emit(&other, &mut bytes);
        assert_eq!(send(&mut switch, 0, bytes), []);
    }
    let mut damaged = good;
    damaged[100] ^= 1;
    assert_eq!(send(&mut switch, 0, damaged), []);
    let after = switch.statistics().rdma;
    assert_eq!((after.refused - before.refused, after.damaged - before.damaged, after.runs), (4, 1, 0));
}

#[test]
fn workers_whose_messages_differ_in_length_get_no_sums() {
    let mut switch = switch(2);
    learn(&mut switch, 2);
    let run = |elements| Run::new(2, 4, elements);
    assert_eq!(send(&mut switch, 0, run(30).frame(0, 0)), []);
    assert_eq!(send(&mut switch, 1, run(31).frame(1, 0)), []);
    assert_eq!(send(&mut switch, 1, run(30).frame(1, 0)), []);
    assert!(switch.statistics().rdma.refused > 0);
    // The next run is none the worse for it.
    job(&mut switch, &Run::new(2, 5, 3_000), 0, &[]);
}

#[test]
fn rings_of_one_number_that_share_neighbours_are_refused() {
    assert_eq!(Rdma::new(vec![ring(3), ring(3)], None).err(), Some((7, 7)));
    let apart = "7:i32:sum:10.0.1.1,10.0.1.2".parse().unwrap();
    assert!(Rdma::new(vec![ring(3), apart], None).is_ok());
}

#[test]
fn frames_from_anybody_never_panic() {
    let mut switch = switch(2);
    let run = Run { immediate: true, ..Run::new(2, 4, 3_000) };
    let mut queue: VecDeque<Vec<u8>> = (0..run.packets()).map(|packet| run.frame(0, packet)).collect();
    for seed in 0..20_000u64 {
        let mut bytes = queue[seed as usize % queue.len()].clone();
        for change in 0..mix(seed, 0) % 4 {
            let draw = mix(seed, 1 + change);
            let at = draw as usize % bytes.len();
            bytes[at] = (draw >> 32) as u8;
        }
        bytes.truncate((mix(seed, 99) as usize % (bytes.len() * 3)).max(14));
        // Damaged heads whose checks are right all the same.
        if seed % 3 == 0 && bytes.len() >= 58 {
            fanin_wire::roce::seal(&mut bytes);
        }
        send(&mut switch, seed as usize % 2, bytes.clone());
        if seed % 64 == 0 {
            let now = Instant::from_ps(seed / 64 * 250_000_000_000);
            switch.on_rdma_tick(now, &mut Wire::default());
        }
        if seed % 16 == 0 {
            queue.pop_front();
            queue.push_back(run.frame(seed as usize / 16 % 2, seed as usize / 32 % run.packets()));
        }
    }
}
