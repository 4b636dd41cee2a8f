//! Cards behind several switches that sum together: a tree of them, and cables that lose, double and delay frames.

use fanin_protocols::shared::connection::Psn;

use super::*;
use crate::engine::tests::racks::Racks;

/// A card sends again what was not acknowledged when it has heard nothing for so long.
const TIMEOUT_US: u64 = 3_000;

/// How switches are joined: the switch of each host, and the one above each switch.
#[derive(Clone, Copy, Debug)]
struct Shape {
    homes: &'static [usize],
    above: &'static [Option<usize>],
}

/// Two racks of which one sums for both; the same, and every connection crosses; a spine between; a spine with a worker of its own; two levels.
const SHAPES: [Shape; 5] = [
    Shape { homes: &[0, 0, 1, 1], above: &[Some(1), None] },
    Shape { homes: &[0, 1, 0, 1], above: &[Some(1), None] },
    Shape { homes: &[0, 0, 1, 1], above: &[Some(2), Some(2), None] },
    Shape { homes: &[0, 2, 1, 1, 0], above: &[Some(2), Some(2), None] },
    Shape { homes: &[0, 1, 3], above: &[Some(2), Some(2), Some(3), None] },
];

impl Shape {
    /// What each switch is told: of those with one above, who is there.
    fn rings(&self, text: &str) -> Vec<Vec<RdmaRing>> {
        let world = self.homes.len();
        let tell = |number: usize, above: &Option<usize>| {
            let here: Vec<String> =
                (0..world).filter(|host| self.homes[*host] == number).map(|host| Ipv4Addr::from(address(host)).to_string()).collect();
            let here = if here.is_empty() { "none".to_owned() } else { here.join(",") };
            let here = if above.is_some() { format!(":here={here}") } else { String::new() };
            vec![format!("{text}{here}").parse().unwrap()]
        };
        self.above.iter().enumerate().map(|(number, above)| tell(number, above)).collect()
    }

    fn text(&self) -> String {
        let workers: Vec<String> = (0..self.homes.len()).map(|rank| Ipv4Addr::from(address(rank)).to_string()).collect();
        format!("7:i32:sum:{}:packets={PACKETS}:payload={PAYLOAD}", workers.join(","))
    }

    fn racks(&self, seed: u64) -> Racks {
        let mut racks = Racks::with_rdma(seed, self.homes, self.above, 1 << 16, self.rings(&self.text()));
        learn(&mut racks, self.homes.len());
        racks
    }
}

/// Each switch hears every host once.
fn learn(racks: &mut Racks, world: usize) {
    for rank in 0..world {
        racks.send(rank, &frame(rank, (rank + 1) % world, Bth::new(opcode::ACKNOWLEDGE, 9, 9), None, None, &[]));
    }
    racks.pass(2_000);
}

#[derive(Clone, Debug, Default)]
struct Worker {
    acknowledged: usize,
    sent: usize,
    again_at: u64,
    sums: Vec<Vec<u8>>,
    is_dead: bool,
    /// Until then it computes.
    busy_until: u64,
    errors: [bool; 2],
    moved_us: u64,
    /// It has gone back, and nothing was acknowledged since then: Linux's RoCE does not go back again.
    is_back: bool,
}

/// The workers of a run, and their cards.
struct Crew {
    run: Run,
    /// A card that was not acknowledged anything for so long gives up.
    patience_us: u64,
    timeout_us: u64,
    workers: Vec<Worker>,
}

impl Crew {
    fn new(run: Run) -> Self {
        Crew { run, patience_us: u64::MAX, timeout_us: TIMEOUT_US, workers: vec![Worker::default(); run.world] }
    }

    fn origin(&self, rank: usize) -> u32 {
        700 + 10 * (self.run.numbers as u32 & 0xfff) + 100_000 * u32::from(self.run.ring) + rank as u32
    }

    /// Whoever may send sends a packet or two.
    fn speak(&mut self, racks: &mut Racks) {
        for rank in 0..self.run.world {
            let complete = self.workers[rank].sums.len() / PACKETS;
            let worker = &mut self.workers[rank];
            if worker.is_dead || worker.errors.contains(&true) || racks.now_us < worker.busy_until {
                continue;
            }
            let to = ((complete + 2) * PACKETS).min(self.run.packets());
            if worker.acknowledged == to {
                worker.moved_us = racks.now_us;
            }
            worker.errors[0] |= racks.now_us - worker.moved_us > self.patience_us;
            if worker.acknowledged < worker.sent && racks.now_us >= worker.again_at {
                (worker.sent, worker.is_back) = (worker.acknowledged, false);
                worker.again_at = racks.now_us + self.timeout_us;
            }
            if worker.sent < to && racks.draw().is_multiple_of(3) {
                worker.again_at = racks.now_us + self.timeout_us;
                racks.send(rank, &self.run.frame(rank, worker.sent));
                worker.sent += 1;
            }
        }
    }

    fn take(&mut self, racks: &mut Racks, reached: &[(usize, Vec<u8>)]) {
        for (host, bytes) in reached {
            let Ok((header, payload)) = RoceHeader::parse(bytes) else { continue };
            // A program whose queue pair is in error ends, and with it the other one.
            let is_there = !self.workers[*host].is_dead && !self.workers[*host].errors.contains(&true);
            if header.envelope.addresses[1] == address(*host) && is_there {
                self.take_packet(racks, *host, &header, payload);
            }
        }
    }

    fn take_packet(&mut self, racks: &mut Racks, to: usize, header: &RoceHeader, payload: &[u8]) {
        let (run, from) = (self.run, usize::from(header.envelope.addresses[0][3]) - 1);
        if header.bth.opcode == opcode::ACKNOWLEDGE {
            if header.bth.queue_pair == self.origin(to) {
                self.hear(racks.now_us, to, header);
            }
            return;
        }
        assert_eq!((from + 1) % run.world, to, "`netreduce 5.1`: a ring");
        let worker = &mut self.workers[to];
        if header.bth.queue_pair != run.queue_pair(from) || worker.errors[1] {
            return;
        }
        let received = worker.sums.len();
        let expected = Psn::new(run.psn(from)).plus(received as u32);
        let is_only = matches!(header.bth.opcode, opcode::WRITE_ONLY | opcode::WRITE_ONLY_IMMEDIATE);
        let is_short = is_only && header.reth.is_some_and(|reth| reth.length as usize != payload.len());
        let (syndrome, psn) = match Psn::new(header.bth.psn).since(expected) {
            1.. => (Aeth::NAK_SEQUENCE, expected),
            0 if is_short => {
                worker.errors[1] = true;
                (0x61, expected)
            }
            0 => {
                let sent = run.frame(from, received);
                let (own, _) = RoceHeader::parse(&sent).unwrap();
                assert_eq!(*header, own, "`netreduce 5.3`: the sender's own head");
                worker.sums.push(payload.to_vec());
                (Aeth::ACK, expected)
            }
            _ if received == 0 => (Aeth::ACK, Psn::new(0xff_ffff)),
            _ => (Aeth::ACK, expected.before()),
        };
        let bth = Bth::new(opcode::ACKNOWLEDGE, self.origin(from), psn.number());
        let aeth = Some(Aeth { syndrome, messages: 0 });
        let header = RoceHeader { envelope: envelope(to, from), bth, reth: None, aeth, immediate: None };
        let mut out = vec![0; header.frame_len(0)];
        header.emit(&[], &mut out);
        racks.send(to, &out);
    }

    fn hear(&mut self, now_us: u64, rank: usize, header: &RoceHeader) {
        let (run, worker) = (self.run, &mut self.workers[rank]);
        let aeth = header.aeth.unwrap();
        let at = Psn::new(header.bth.psn).since(Psn::new(run.psn(rank)));
        if aeth.is_fatal() {
            worker.errors[0] |= at >= worker.acknowledged as i32 && at < worker.sent as i32;
        } else if aeth.is_negative() {
            if at >= worker.acknowledged as i32 && at < worker.sent as i32 {
                worker.acknowledged = at as usize;
                if !std::mem::replace(&mut worker.is_back, true) {
                    worker.sent = at as usize;
                }
            }
        } else if at >= worker.acknowledged as i32 && (at as usize) < worker.sent {
            worker.acknowledged = at as usize + 1;
            (worker.moved_us, worker.is_back) = (now_us, false);
            worker.again_at = now_us + self.timeout_us;
        }
    }

    fn is_done(&self) -> bool {
        let packets = self.run.packets();
        self.workers.iter().all(|worker| worker.sums.len() == packets && worker.acknowledged == packets)
    }

    fn check(&self) {
        for worker in &self.workers {
            let mut card = Card { expected: self.run.packets(), elements: Vec::new() };
            for (packet, payload) in worker.sums.iter().enumerate() {
                let skipped = if self.run.place(packet).1 == 0 { InaHeader::LEN } else { 0 };
                if skipped > 0 {
                    assert_eq!(InaHeader::parse(payload).unwrap().summed, self.run.world as u16);
                }
                card.elements.extend_from_slice(&payload[skipped..]);
            }
            card.check(&self.run);
        }
    }

    /// All who live have an error.
    fn is_over(&self) -> bool {
        self.workers.iter().all(|worker| worker.is_dead || worker.errors[0] || worker.errors[1])
    }
}

/// All of these at once, for so long at most.
fn pass(racks: &mut Racks, crews: &mut [Crew], seconds: u64, mut is_done: impl FnMut(&[Crew]) -> bool) {
    let end = racks.now_us + seconds * 1_000_000;
    while !is_done(crews) {
        assert!(
            racks.now_us < end,
            "not in time: {:?}, {:?}",
            crews
                .iter()
                .flat_map(|crew| &crew.workers)
                .map(|worker| (worker.sums.len(), worker.acknowledged, worker.errors))
                .collect::<Vec<_>>(),
            racks.switches.iter().map(|switch| switch.statistics().rdma).collect::<Vec<_>>()
        );
        crews.iter_mut().for_each(|crew| crew.speak(racks));
        // Cards that wait look at their clocks rarely.
        let reached =
            racks.pass(if crews.iter().any(|crew| crew.workers.iter().any(|worker| worker.sent > worker.acknowledged)) { 10 } else { 100 });
        crews.iter_mut().for_each(|crew| crew.take(racks, &reached));
    }
}

fn finish(racks: &mut Racks, run: Run, seconds: u64) {
    let mut crews = [Crew::new(run)];
    pass(racks, &mut crews, seconds, |crews| crews[0].is_done());
    crews[0].check();
}

#[test]
fn sums_are_exact_over_racks_whatever_is_lost_doubled_or_overtaken() {
    for seed in 0..25u64 {
        let shape = SHAPES[seed as usize % SHAPES.len()];
        let mut racks = shape.racks(seed);
        (racks.loss, racks.doubles) = (seed / 5 * 8, seed % 2 == 1);
        let world = shape.homes.len();
        let run = Run { immediate: seed % 3 == 0, ..Run::new(world, seed, 1 + mix(seed, 5) as usize % 4_000) };
        finish(&mut racks, run, 60);
        // The next one by the same switches, and one by the same numbers.
        finish(&mut racks, Run::new(world, 100 + seed, 2_000), 60);
        finish(&mut racks, Run { numbers: 100 + seed, ..Run::new(world, 200 + seed, 500) }, 60);
        for switch in &racks.switches {
            let done = switch.statistics();
            assert_eq!((done.rdma.ended, done.rdma.refused, done.trunk_strange), (0, 0, 0), "seed {seed}");
        }
    }
}

#[test]
fn one_sum_goes_up_and_one_comes_down_whoever_sends_again() {
    for (number, shape) in SHAPES.into_iter().enumerate() {
        let mut racks = shape.racks(7);
        racks.pass(1_000_000);
        racks.between.clear();
        racks.loss = if number % 2 == 0 { 0 } else { 20 };
        let run = Run::new(shape.homes.len(), 3, 20_000);
        finish(&mut racks, run, 60);
        let vector = (run.elements * 4) as u64;
        for (below, above) in shape.above.iter().enumerate().filter_map(|(below, above)| Some((below, (*above)?))) {
            let done = racks.switches[below].statistics();
            assert_eq!(done.trunk_part_bytes, vector, "{shape:?}: each byte of the sum of those below goes up once");
            let (up, down) = (racks.between[&(below, above)], racks.between[&(above, below)]);
            // Of 256 bytes in a packet; a head is about 120, of one connection or two. What is lost goes again.
            let most = if racks.loss == 0 { 5 * vector / 2 } else { 6 * vector };
            assert!(up < most && down < most, "{shape:?}: {up} and {down} bytes for {vector}");
        }
    }
}

#[test]
fn rings_and_jobs_over_the_same_racks_do_not_mix() {
    let shape = SHAPES[0];
    let other = |text: String| text.replacen("7:", "8:", 1);
    let mut rings = shape.rings(&shape.text());
    for (all, more) in rings.iter_mut().zip(shape.rings(&other(shape.text()))) {
        all.extend(more);
    }
    let mut racks = Racks::with_rdma(5, shape.homes, shape.above, 1 << 16, rings);
    learn(&mut racks, 4);
    (racks.loss, racks.doubles) = (10, true);
    let run = Run::new(4, 6, 6_000);
    let mut crews = [Crew::new(run), Crew::new(Run { ring: 8, seed: 9, ..run })];
    pass(&mut racks, &mut crews, 60, |crews| crews.iter().all(Crew::is_done));
    crews.iter().for_each(Crew::check);
    assert_eq!(racks.switches.iter().map(|switch| switch.statistics().rdma.ended).sum::<u64>(), 0);
}

#[test]
fn a_worker_that_is_dead_in_another_rack_is_named_everywhere() {
    for (seed, dead) in [(1u64, 0usize), (2, 1), (3, 2), (4, 3)] {
        let shape = SHAPES[if seed % 2 == 0 { 0 } else { 2 }];
        let mut racks = shape.racks(seed);
        let mut crews = [Crew::new(Run::new(4, seed, 40_000))];
        pass(&mut racks, &mut crews, 20, |crews| crews[0].workers[0].sums.len() > 20);
        crews[0].workers[dead].is_dead = true;
        let begin = racks.now_us;
        pass(&mut racks, &mut crews, 6, |crews| crews[0].is_over());
        assert!(racks.now_us - begin > 3_000_000, "seed {seed}: nobody is dead so soon");
        for switch in &racks.switches {
            let done = switch.statistics().rdma;
            assert_eq!((done.ended, done.blamed), (1, Some((7, dead as u16))), "seed {seed}");
        }
        finish(&mut racks, Run::new(4, 50 + seed, 3_000), 30);
    }
}

#[test]
fn whoever_is_late_in_another_rack_is_waited_for() {
    for shape in [SHAPES[0], SHAPES[2]] {
        let mut racks = shape.racks(9);
        let mut crews = [Crew::new(Run::new(4, 9, 3_000))];
        crews[0].workers[2].busy_until = racks.now_us + 8_000_000;
        crews[0].workers[3].busy_until = racks.now_us + 2_000_000;
        pass(&mut racks, &mut crews, 30, |crews| crews[0].is_done());
        crews[0].check();
        assert_eq!(racks.switches.iter().map(|switch| switch.statistics().rdma.ended).sum::<u64>(), 0);
    }
}

#[test]
fn a_switch_that_is_restarted_ends_the_run_and_the_next_one_is_exact() {
    for seed in 0..6u64 {
        let shape = SHAPES[if seed % 2 == 0 { 0 } else { 2 }];
        let which = seed as usize / 2 % shape.above.len();
        let mut racks = shape.racks(seed);
        let mut crews = [Crew { patience_us: 8_000_000, ..Crew::new(Run::new(4, seed, 40_000)) }];
        pass(&mut racks, &mut crews, 20, |crews| crews[0].workers[0].sums.len() > 20);
        racks.restart(which, 1 << 16);
        // None of those gets what is no sum; all hear that it is over.
        pass(&mut racks, &mut crews, 12, |crews| crews[0].is_over());
        let partly = &crews[0];
        for worker in &partly.workers {
            for (packet, payload) in worker.sums.iter().enumerate().filter(|(packet, _)| partly.run.place(*packet).1 > 0) {
                let first = (partly.run.place(packet).0 * MESSAGE + partly.run.place(packet).1 * PAYLOAD - InaHeader::LEN) / 4;
                let sum = (0..4).fold(0u32, |sum, rank| sum.wrapping_add(partly.run.element(rank, first)));
                assert_eq!(payload[..4], sum.to_le_bytes(), "seed {seed}, packet {packet}");
            }
        }
        racks.pass(2_000_000);
        finish(&mut racks, Run::new(4, 50 + seed, 3_000), 30);
    }
}

#[test]
fn a_run_that_begins_ends_the_one_before_in_all_racks() {
    for seed in 0..8u64 {
        let shape = SHAPES[if seed % 2 == 0 { 0 } else { 2 }];
        let mut racks = shape.racks(seed);
        // It is given up at any point; the next one has other numbers, or the same ones.
        let mut crews = [Crew::new(Run::new(4, seed, 10_000))];
        let to = 1 + seed as usize * 3;
        pass(&mut racks, &mut crews, 20, |crews| crews[0].workers[1].sums.len() >= to);
        racks.pass(3_000);
        let next = Run { numbers: if seed % 4 < 2 { seed } else { 70 + seed }, ..Run::new(4, 90 + seed, 5_000) };
        finish(&mut racks, next, 60);
    }
}

#[test]
fn workers_that_come_before_the_switches_know_each_other_are_taken_later() {
    let shape = SHAPES[0];
    let mut racks = shape.racks(4);
    // The one above is away for a while.
    racks.deaf = Some(1);
    racks.restart(1, 1 << 16);
    let mut crews = [Crew::new(Run::new(4, 5, 2_000))];
    for _ in 0..10_000 {
        crews[0].speak(&mut racks);
        let reached = racks.pass(100);
        crews[0].take(&mut racks, &reached);
    }
    assert_eq!(crews[0].workers.iter().map(|worker| worker.sums.len()).sum::<usize>(), 0, "nothing passes unsummed");
    racks.deaf = None;
    pass(&mut racks, &mut crews, 30, |crews| crews[0].is_done() || crews[0].is_over());
    if crews[0].is_done() {
        crews[0].check();
    }
    racks.pass(2_000_000);
    finish(&mut racks, Run::new(4, 6, 2_000), 30);
}

/// What is said to other switches.
#[derive(Default)]
struct Words(Vec<(usize, Vec<u8>)>);

impl Emit for Words {
    fn emit(&mut self, _: usize, _: &[u8]) {}

    fn tell(&mut self, port: usize, body: Vec<u8>) {
        self.0.push((port, body));
    }
}

/// What the switch above, which was told `above`, answers to the one below with `below`.
fn answer(above: &[&str], below: &str) -> Told {
    let mut lower = Rdma::new(vec![below.parse().unwrap()], Some(5)).unwrap();
    let mut words = Words::default();
    lower.on_trunk(5, &mut words);
    let (_, body) = words.0.pop().expect("it says which ranks it has");
    let mut upper = Rdma::new(above.iter().map(|text| text.parse().unwrap()).collect(), None).unwrap();
    _ = upper.on_told(Instant::ZERO, (3, "p3"), &body, &mut words);
    let (port, body) = words.0.pop().expect("an answer");
    assert_eq!(port, 3);
    Told::parse(&body).unwrap().2
}

#[test]
fn switches_that_were_told_different_things_refuse_each_other_by_name() {
    let ring = |more: &str| format!("7:i32:sum:10.0.0.1,10.0.0.2,10.0.0.3{more}");
    let here = |more: &str| ring(&format!(":here=10.0.0.1{more}"));
    assert_eq!(answer(&[&ring("")], &here("")), Told::Begin);
    let refused = |above: &str, below: &str| match answer(&[above], below) {
        Told::Unfit { why } => why,
        other => panic!("{other:?}"),
    };
    let said = |field: &str, value: u32, expected: u32| {
        format!("`{field}` is {value} there where {expected} is expected, as in `rdma-ring` of the switch above")
    };
    assert_eq!(refused(&ring(""), &here(":window=4")), said("window", 4, 2));
    assert_eq!(refused(&ring(":packets=9"), &here("")), said("packets", 170, 9));
    assert_eq!(refused(&ring(":payload=4096"), &here("")), said("payload", 1_024, 4_096));
    assert!(refused(&ring("").replace("i32", "f32"), &here("")).starts_with("`type and operator` is "));
    assert_eq!(refused("8:i32:sum:10.0.0.1,10.0.0.2", &here("")), "the switch above was not told of ring 7 (`rdma-ring`)");
    assert_eq!(refused("7:i32:sum:10.0.0.1,10.0.0.2", &here("")), "ring 7 has other workers in `rdma-ring` of the switch above");
    assert_eq!(refused(&here(""), &here("")), "`here` names 10.0.0.1 there, and it is behind the switch above itself");
}

#[test]
fn a_worker_behind_the_wrong_switch_is_refused_and_so_is_a_ring_that_the_switch_above_does_not_know() {
    // Host 1 is at switch 0, and `here` has it at the other one.
    let shape = Shape { homes: &[0, 0, 1, 1], above: &[Some(1), None] };
    let told = Shape { homes: &[0, 1, 1, 1], ..shape };
    let unknown = {
        let mut rings = shape.rings(&shape.text());
        rings[1].clear();
        rings
    };
    for (number, rings) in [told.rings(&shape.text()), unknown].into_iter().enumerate() {
        let mut racks = Racks::with_rdma(5, shape.homes, shape.above, 1 << 16, rings);
        learn(&mut racks, 4);
        let mut crews = [Crew::new(Run::new(4, 5, 2_000))];
        let is_told = |crews: &[Crew]| (0..if number == 0 { 4 } else { 2 }).all(|rank| crews[0].workers[rank].errors.contains(&true));
        pass(&mut racks, &mut crews, 12, is_told);
        assert!(racks.switches[0].statistics().rdma.refused > 0);
        assert_eq!(crews[0].workers[..2].iter().map(|worker| worker.sums.len()).sum::<usize>(), 0);
    }
}

#[test]
fn whatever_a_switch_says_nothing_panics() {
    let text = "7:i32:sum:10.0.0.1,10.0.0.2,10.0.0.3,10.0.0.4:packets=4:payload=256";
    let (mut lower, mut upper) = (
        Rdma::new(vec![format!("{text}:here=10.0.0.1,10.0.0.2").parse().unwrap()], Some(5)).unwrap(),
        Rdma::new(vec![text.parse().unwrap()], None).unwrap(),
    );
    let (mut words, run) = (Words::default(), Run::new(4, 1, 4_000));
    let mut said: Vec<(bool, Vec<u8>)> = Vec::new();
    lower.on_trunk(5, &mut words);
    // What two switches say to each other in a run.
    for step in 0..200usize {
        for (is_up, port) in [(true, 5), (false, 3)] {
            for (to, body) in std::mem::take(&mut words.0) {
                said.push((is_up, body.clone()));
                let (other, from) = if to == 5 { (&mut upper, 3) } else { (&mut lower, 5) };
                _ = (port, other.on_told(Instant::ZERO, (from, "p"), &body, &mut words));
            }
        }
        let (rank, packet) = (step % 4, step / 4 % 8);
        let at = if rank < 2 { &mut lower } else { &mut upper };
        at.on_frame(Instant::ZERO, rank, &run.frame(rank, packet), &mut words);
    }
    assert!(said.len() > 40 && lower.statistics().part_bytes > 0);
    for seed in 0..60_000u64 {
        let draw = mix(seed, 0);
        let (_, mut body) = said[draw as usize % said.len()].clone();
        for change in 0..(draw >> 20) % 4 {
            let draw = mix(seed, 1 + change);
            let at = draw as usize % body.len();
            // Ring and workers stay, so that most are of the ring.
            if !(1..7).contains(&at) {
                body[at] = (draw >> 32) as u8;
            }
        }
        if draw >> 60 == 0 {
            body.truncate(1 + (draw >> 30) as usize % body.len());
        }
        let (other, from) = if draw >> 40 & 1 == 0 { (&mut upper, 3) } else { (&mut lower, 5) };
        if body[0] >= 64 {
            _ = other.on_told(Instant::ZERO, (from, "p"), &body, &mut words);
        }
        words.0.clear();
    }
}
