//! Bytes of a fuzzer as a play: what cards and other switches send, in any order, damaged as it likes, with checks that are right all the same,
//! and time that passes. Whatever they do, nothing panics, nothing grows without a limit, and whatever leaves for a card has right checks.
//!
//! The same plays are drawn from seeds in an ordinary test, which begins with runs that go well: a fuzzer would hardly find these by itself.

use super::*;
use crate::trunk::message::Said;

/// Two rings over the same hosts, of which the second one is summed together with a switch above and one below.
const WORLD: usize = 3;
const UPLINK: usize = WORLD;
const BELOW: usize = WORLD + 1;
/// Steps of a play at most: a fuzzer's longest inputs are no more instructive than that.
const STEPS_MAX: usize = 400;

/// The shortest frame that can be sealed: one with two tags.
const SEALED_MIN: usize = 66;

/// What has left.
#[derive(Default)]
struct Left {
    frames: Vec<Vec<u8>>,
    bodies: Vec<(usize, Vec<u8>)>,
}

impl Emit for Left {
    fn emit(&mut self, _: usize, frame: &[u8]) {
        self.frames.push(frame.to_vec());
    }

    fn tell(&mut self, port: usize, body: Vec<u8>) {
        self.bodies.push((port, body));
    }
}

/// The next bytes of a play; zeros behind its end.
struct Script<'a>(&'a [u8]);

impl Script<'_> {
    fn byte(&mut self) -> usize {
        let (first, rest) = self.0.split_first().map_or((0, self.0), |(first, rest)| (*first, rest));
        self.0 = rest;
        usize::from(first)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let (taken, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        taken.to_vec()
    }
}

struct Play {
    rdma: Rdma,
    left: Left,
    now_us: u64,
    run: Run,
    /// What this switch has said to others, to be said to it again.
    said: Vec<Vec<u8>>,
}

impl Play {
    fn new() -> Self {
        let workers: Vec<String> = (0..WORLD).map(|rank| Ipv4Addr::from(address(rank)).to_string()).collect();
        let text = |ring: u16, more: &str| {
            format!("{ring}:i32:sum:{}:packets={PACKETS}:payload={PAYLOAD}{more}", workers.join(",")).parse().unwrap()
        };
        let rdma = Rdma::new(vec![text(7, ""), text(8, ":here=10.0.0.1,10.0.0.2")], Some(UPLINK)).unwrap();
        Play { rdma, left: Left::default(), now_us: 1, run: Run { immediate: true, ..Run::new(WORLD, 4, 4_000) }, said: Vec::new() }
    }

    fn now(&self) -> Instant {
        Instant::from_ps(self.now_us * 1_000_000)
    }

    /// A frame that comes; what it makes leave has right checks. Damaged places are behind Ethernet's addresses.
    fn put(&mut self, port: usize, mut frame: Vec<u8>, script: &mut Script<'_>) {
        for _ in 0..script.byte() % 4 {
            let (at, value) = (script.byte() | script.byte() << 8, script.byte());
            let at = at % frame.len().max(1);
            if let Some(byte) = frame.get_mut(at) {
                *byte = value as u8;
            }
        }
        let how = script.byte();
        if how & 1 == 1 {
            frame.truncate(script.byte() | (how >> 4) << 8);
        }
        // Where it is not, checks are right whatever was changed.
        if how & 2 == 0 && frame.len() >= SEALED_MIN {
            if how & 4 == 0 { roce::seal(&mut frame) } else { roce::finish(&mut frame) }
        }
        self.rdma.on_frame(self.now(), port, &frame, &mut self.left);
    }

    fn tell(&mut self, script: &mut Script<'_>) {
        let (port, mut body) = match script.byte() {
            kind if kind & 1 == 0 || self.said.is_empty() => (kind >> 1, script.bytes(64)),
            kind => (kind >> 1, self.said[script.byte() % self.said.len()].clone()),
        };
        for _ in 0..script.byte() % 3 {
            let (at, value) = (script.byte() % body.len().max(1), script.byte());
            if let Some(byte) = body.get_mut(at) {
                *byte = value as u8;
            }
        }
        leads_back(&body);
        let port = [UPLINK, BELOW][port % 2];
        // What does not fit is said, and changes nothing more.
        _ = self.rdma.on_told(self.now(), (port, "p"), &body, &mut self.left);
    }

    /// The switch above, which this one has told its ranks, begins.
    fn begin_above(&mut self) {
        let known = self.said.iter().rev().filter_map(|body| Told::parse(body).ok());
        if let Some((name, epoch, _)) = known.into_iter().find(|(_, _, told)| matches!(told, Told::Ranks { .. })) {
            let body = Told::Begin.emit(name, epoch + 1);
            _ = self.rdma.on_told(self.now(), (UPLINK, "p"), &body, &mut self.left);
        }
    }

    fn answer(&mut self, script: &mut Script<'_>) {
        let rank = script.byte() % WORLD;
        let syndrome = [Aeth::ACK, Aeth::NAK_SEQUENCE, Aeth::NAK_OPERATION, Aeth::NOT_READY, script.byte() as u8][script.byte() % 5];
        let psn = self.run.psn(rank).wrapping_add(script.byte() as u32).wrapping_sub(8) & 0xff_ffff;
        let bth = Bth::new(opcode::ACKNOWLEDGE, 70 + script.byte() as u32 % 4, psn);
        let aeth = Some(Aeth { syndrome, messages: script.byte() as u32 });
        let receiver = (rank + 1) % WORLD;
        let header = RoceHeader { envelope: envelope(receiver, rank), bth, reth: None, aeth, immediate: None };
        let mut frame = vec![0; header.frame_len(0)];
        header.emit(&[], &mut frame);
        self.put(receiver, frame, script);
    }

    fn step(&mut self, script: &mut Script<'_>) {
        match script.byte() % 8 {
            0..=2 => {
                let (rank, packet) = (script.byte() % WORLD, script.byte() % self.run.packets());
                self.put(rank, self.run.frame(rank, packet), script);
            }
            3 => self.answer(script),
            4 => self.tell(script),
            5 => {
                // A microsecond to nine seconds.
                self.now_us += 1 << (script.byte() % 24);
                self.rdma.on_due(self.now(), &mut self.left);
                self.rdma.on_tick(self.now(), &mut self.left);
            }
            6 => match script.byte() % 8 {
                0 => self.run.numbers += 1,
                1 => self.run.seed += 1,
                2 => self.run.ring ^= 15,
                3 => self.rdma.on_trunk(UPLINK, &mut self.left),
                4 => self.rdma.on_trunk_gone(UPLINK, "up", script.byte().is_multiple_of(2), &mut self.left),
                5 => self.rdma.on_trunk_gone(BELOW, "below", script.byte().is_multiple_of(2), &mut self.left),
                6 => self.run.immediate ^= true,
                _ => self.begin_above(),
            },
            _ => {
                let (port, count) = (script.byte() % WORLD, script.byte());
                let frame = script.bytes(count);
                self.put(port, frame, script);
            }
        }
        self.check();
    }

    fn check(&mut self) {
        for frame in self.left.frames.drain(..) {
            assert!(RoceHeader::parse(&frame).is_ok(), "what leaves has right checks: {frame:x?}");
        }
        for (_, body) in self.left.bodies.drain(..) {
            assert!(Told::parse(&body).is_ok(), "what is said is understood: {body:x?}");
            if self.said.len() < 64 {
                self.said.push(body);
            }
        }
    }
}

/// What a switch says to another one, of RDMA or of TCP: refused, or it leads back.
fn leads_back(body: &[u8]) {
    if let Ok((name, epoch, told)) = Told::parse(body) {
        assert_eq!(Told::parse(&told.emit(name, epoch)), Ok((name, epoch, told)));
    }
    if let Ok((run, said)) = Said::parse(body) {
        assert_eq!(Said::parse(&said.emit(run)), Ok((run, said)));
    }
}

/// Plays bytes; gives what was counted.
fn play(bytes: &[u8]) -> RdmaStatistics {
    let (mut play, mut script) = (Play::new(), Script(bytes));
    for _ in 0..STEPS_MAX {
        if script.0.is_empty() {
            break;
        }
        play.step(&mut script);
    }
    play.rdma.statistics()
}

/// The beginning of a run without losses, as a play: the first `packets` packets of all workers, in turns, with acknowledgements.
fn good(packets: usize) -> Vec<u8> {
    // Kind, rank, packet; no place is damaged, nothing is cut off.
    let packet = |rank: usize, packet: usize| [0, rank as u8, packet as u8, 0, 0];
    // Kind, rank, no syndrome of its own, the first of them, the number (from eight before the first one), queue pair, messages; undamaged.
    let answer = |rank: usize, packet: usize| [3, rank as u8, 0, 0, packet as u8 + 8, rank as u8, 0, 0, 0];
    let step = |number: usize| {
        let all = (0..WORLD).flat_map(move |rank| packet(rank, number));
        all.chain((0..WORLD).flat_map(move |rank| answer(rank, number))).collect::<Vec<u8>>()
    };
    (0..packets).flat_map(step).collect()
}

/// The same where a switch above sums, too: it is there, it begins, and then it is the other ring's turn.
fn good_above(packets: usize) -> Vec<u8> {
    [&[6, 3, 6, 7, 6, 2], &good(packets)[..]].concat()
}

#[test]
fn a_run_that_goes_well_is_a_play() {
    let above = play(&good_above(8));
    assert!(above.part_bytes > 0 && above.heads > 0 && (above.refused, above.ended) == (8, 0), "rank 2 is not here: {above:?}");
    let done = play(&good(9));
    assert_eq!((done.runs, done.summed, done.refused, done.ended, done.odd), (1, 27, 0, 0, OddFrames::default()));
}

#[test]
fn drawn_plays_are_harmless() {
    let mut all = RdmaStatistics::default();
    for seed in 0..1_500u64 {
        let packets = mix(seed, 1) as usize % 9;
        let mut bytes = if seed % 3 == 0 { good_above(packets) } else { good(packets) };
        let at = mix(seed, 2) as usize % (bytes.len() + 1);
        let drawn: Vec<u8> = (0..mix(seed, 3) % 1_200).map(|byte| mix(seed, 10 + byte) as u8).collect();
        // In front of what goes well, or in the middle, in place of some of it.
        bytes.splice(at..bytes.len().min(at + (mix(seed, 4) % 40) as usize), drawn);
        let done = play(&bytes);
        all.summed += done.summed;
        all.refused += done.refused;
        all.ended += done.ended;
        all.damaged += done.damaged;
        all.heads += done.heads;
        all.part_bytes += done.part_bytes;
    }
    let counts = [all.summed, all.refused, all.ended, all.damaged, all.heads, all.part_bytes];
    assert!(counts.iter().all(|count| *count > 100), "plays go everywhere: {all:?}");
}

/// The same property for a fuzzer (`make fuzz`); an ordinary test runs what it has found.
#[test]
fn plays_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
        play(bytes);
        for begin in [good(bytes.len() % 9), good_above(bytes.len() % 9)] {
            play(&[&begin, bytes].concat());
        }
    });
}

/// The words of switches to each other.
#[test]
fn words_of_switches_fuzzed() {
    bolero::check!().with_iterations(0).for_each(leads_back);
}
