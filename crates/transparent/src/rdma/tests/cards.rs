//! Workers whose cards answer: acknowledge, miss, refuse, send again; and workers who die, come late, begin again by the same numbers. In
//! two things they are as Linux's RoCE, which another card need not be: any acknowledgement puts off when they send again, and what has had
//! nothing acknowledges number 2^24 - 1.

use fanin_core::{ElementOp, Operator};
use fanin_protocols::shared::connection::Psn;

use super::*;

/// Ticks a second.
const TICKS: u64 = 4;
/// A card sends again what was not acknowledged when it has heard nothing for so many ticks.
const TIMEOUT: u64 = 2;

/// One worker: the connection that begins at it, and the end of the one from its predecessor.
#[derive(Clone, Debug, Default)]
struct Worker {
    /// Packets that its successor has acknowledged, and how many have been sent.
    acknowledged: usize,
    sent: usize,
    /// When it sends again what is not acknowledged by then.
    again_at: u64,
    /// Packets that it has received.
    received: usize,
    /// The payload of each packet that it has received.
    sums: Vec<Vec<u8>>,
    is_dead: bool,
    /// It computes until this tick.
    busy_until: u64,
    /// The queue pair that sends, and the one that receives, are in error.
    errors: [bool; 2],
}

struct Net {
    switch: Switch,
    run: Run,
    workers: Vec<Worker>,
    tick: u64,
    /// In 256ths, behind the switch and before it.
    loss: u64,
    loss_before: u64,
    lost: u64,
    /// What has come for another job's queue pairs.
    foreign: Vec<(usize, Vec<u8>)>,
}

/// The queue pair that a rank's connection begins at.
fn origin(run: &Run, rank: usize) -> u32 {
    900 + 10 * (run.numbers as u32 & 0xfff) + 100_000 * u32::from(run.ring) + rank as u32
}

impl Net {
    fn new(switch: Switch, run: Run) -> Self {
        Net { switch, run, workers: vec![Worker::default(); run.world], tick: 4, loss: 0, loss_before: 0, lost: 0, foreign: Vec::new() }
    }

    fn now(&self) -> Instant {
        Instant::from_ps(self.tick * 1_000_000_000_000 / TICKS)
    }

    fn put(&mut self, from: usize, mut frame: Vec<u8>) {
        self.lost += 1;
        if mix(self.run.seed ^ 78, self.lost) & 0xff < self.loss_before {
            return;
        }
        let mut wire = Wire::default();
        let now = self.now();
        self.switch.on_frame(now, from, Offload::default(), &mut frame, &mut wire);
        wire.0.into_iter().for_each(|(port, frame)| self.arrive(port, &frame));
    }

    /// A frame comes to a worker's card.
    fn arrive(&mut self, to: usize, frame: &[u8]) {
        self.lost += 1;
        if self.workers[to].is_dead || mix(self.run.seed ^ 77, self.lost) & 0xff < self.loss {
            return;
        }
        let (header, payload) = RoceHeader::parse(frame).expect("whatever leaves has right checks");
        let from = usize::from(header.envelope.addresses[0][3]) - 1;
        if header.bth.opcode == opcode::ACKNOWLEDGE {
            return self.acknowledge(to, &header, frame);
        }
        assert_eq!((from + 1) % self.run.world, to);
        let worker = &mut self.workers[to];
        if header.bth.queue_pair != self.run.queue_pair(from) {
            return self.foreign.push((to, frame.to_vec()));
        }
        if worker.errors[1] {
            return;
        }
        let ahead = Psn::new(header.bth.psn).since(Psn::new(self.run.psn(from)).plus(worker.received as u32));
        let declared = header.reth.map_or(0, |reth| reth.length as usize);
        let is_only = matches!(header.bth.opcode, opcode::WRITE_ONLY | opcode::WRITE_ONLY_IMMEDIATE);
        let psn = self.run.psn(from).wrapping_add(worker.received as u32) & 0xff_ffff;
        let (syndrome, psn) = match ahead {
            1.. => (Aeth::NAK_SEQUENCE, psn),
            0 if is_only && declared != payload.len() => {
                worker.errors[1] = true;
                (0x61, psn)
            }
            0 => {
                worker.received += 1;
                worker.sums.push(payload.to_vec());
                (Aeth::ACK, psn)
            }
            _ if worker.received == 0 => (Aeth::ACK, 0xff_ffff),
            _ => (Aeth::ACK, psn.wrapping_sub(1) & 0xff_ffff),
        };
        let messages = (worker.received / PACKETS) as u32;
        let bth = Bth::new(opcode::ACKNOWLEDGE, origin(&self.run, from), psn);
        let header = RoceHeader { envelope: envelope(to, from), bth, reth: None, aeth: Some(Aeth { syndrome, messages }), immediate: None };
        let mut out = vec![0; header.frame_len(0)];
        header.emit(&[], &mut out);
        self.put(to, out);
    }

    fn acknowledge(&mut self, rank: usize, header: &RoceHeader, frame: &[u8]) {
        let (run, worker) = (self.run, &mut self.workers[rank]);
        if header.bth.queue_pair != origin(&run, rank) {
            return self.foreign.push((rank, frame.to_vec()));
        }
        let aeth = header.aeth.unwrap();
        let at = Psn::new(header.bth.psn).since(Psn::new(run.psn(rank)));
        let (acknowledged, end) = (worker.acknowledged as i32, worker.sent as i32);
        worker.again_at = self.tick + TIMEOUT;
        if aeth.is_fatal() {
            worker.errors[0] |= at >= acknowledged && at < end;
        } else if !aeth.is_negative() && at >= acknowledged {
            // What lies behind all that was sent acknowledges all of it.
            worker.acknowledged = (at as usize + 1).min(worker.sent);
        }
    }

    /// A quarter of a second: whoever may send sends.
    fn step(&mut self) {
        for rank in 0..self.run.world {
            let worker = &mut self.workers[rank];
            if worker.is_dead || worker.errors[0] || self.tick < worker.busy_until {
                continue;
            }
            if worker.acknowledged < worker.sent && self.tick >= worker.again_at {
                worker.sent = worker.acknowledged;
            }
            if worker.acknowledged == worker.sent {
                worker.again_at = self.tick + TIMEOUT;
            }
            let complete = worker.received / PACKETS;
            let to = ((complete + 2) * PACKETS).min(self.run.packets());
            while self.workers[rank].sent < to && !self.workers[rank].errors[0] {
                let packet = self.workers[rank].sent;
                self.workers[rank].sent += 1;
                self.put(rank, self.run.frame(rank, packet));
            }
        }
        let mut wire = Wire::default();
        let now = self.now();
        self.switch.on_rdma_tick(now, &mut wire);
        wire.0.into_iter().for_each(|(port, frame)| self.arrive(port, &frame));
        self.tick += 1;
    }

    fn is_done(&self) -> bool {
        self.workers.iter().all(|worker| worker.received == self.run.packets() && worker.acknowledged == self.run.packets())
    }

    /// Everybody has exact sums.
    fn finish(&mut self, ticks: u64) {
        let end = self.tick + ticks;
        while !self.is_done() {
            assert!(
                self.tick < end,
                "not done in time: {:?}",
                self.workers.iter().map(|worker| (worker.received, worker.acknowledged, worker.errors)).collect::<Vec<_>>()
            );
            self.step();
        }
        for worker in &self.workers {
            let mut card = Card { expected: self.run.packets(), elements: Vec::new() };
            for (packet, payload) in worker.sums.iter().enumerate() {
                let skipped = if self.run.place(packet).1 == 0 { InaHeader::LEN } else { 0 };
                card.elements.extend_from_slice(&payload[skipped..]);
            }
            card.check(&self.run);
        }
    }

    /// How many ticks pass until all who live have an error.
    fn errors(&mut self, ticks: u64) -> u64 {
        let begin = self.tick;
        while !self.workers.iter().all(|worker| worker.is_dead || worker.errors[0] || worker.errors[1]) {
            assert!(
                self.tick < begin + ticks,
                "no error in time: {:?}",
                self.workers.iter().map(|worker| worker.errors).collect::<Vec<_>>()
            );
            self.step();
        }
        self.tick - begin
    }
}

fn net(world: usize, seed: u64, elements: usize) -> Net {
    let mut switch = switch(world);
    learn(&mut switch, world);
    Net::new(switch, Run::new(world, seed, elements))
}

#[test]
fn a_dead_worker_ends_the_ring_within_five_seconds_and_is_named() {
    for (seed, dead) in (0..12u64).map(|seed| (seed, seed as usize % 3)) {
        let mut net = net(3, seed, 40_000);
        // At any moment, between two operations and inside one.
        (0..mix(seed, 1) % 5).for_each(|_| net.step());
        if seed % 2 == 0 {
            net.put(0, net.run.frame(0, net.workers[0].sent));
        }
        net.workers[dead].is_dead = true;
        let ticks = net.errors(5 * TICKS);
        assert!(ticks >= 3 * TICKS, "after {ticks} ticks: nobody is dead so soon");
        let done = net.switch.statistics().rdma;
        assert_eq!((done.ended, done.blamed), (1, Some((7, dead as u16))), "seed {seed}");
        // Whoever sends all the same is told again, and the ring is free for the next run.
        let next = Net::new(std::mem::replace(&mut net.switch, switch(3)), Run::new(3, 100 + seed, 3_000));
        Net { tick: net.tick, ..next }.finish(60);
    }
}

#[test]
fn whoever_is_late_is_waited_for_as_long_as_his_card_answers() {
    for (seed, seconds) in [(1, 2), (2, 10), (3, 300)] {
        let mut net = net(3, seed, 3_000);
        net.loss = if seed == 2 { 13 } else { 0 };
        net.workers[seed as usize % 3].busy_until = net.tick + seconds * TICKS;
        // Another one is as late in the middle of the job.
        net.workers[0].busy_until = net.workers[0].busy_until.max(net.tick + 3);
        net.finish(seconds * TICKS + 400);
        assert_eq!(net.switch.statistics().rdma.ended, 0);
    }
}

/// A sender who hears four times a second what it knows would never send again what was lost, or take it for acknowledged.
#[test]
fn what_was_lost_comes_again_although_cards_are_asked_meanwhile() {
    for seed in 0..24 {
        let mut net = net(2 + seed as usize % 3, seed, 20_000);
        net.loss_before = 3 + seed % 4;
        net.loss = if seed % 3 == 0 { 4 } else { 0 };
        // Some are asked before anything has come, others in the middle.
        net.workers[0].busy_until = net.tick + seed % 2 * 4 * TICKS;
        net.finish(3_000);
        assert_eq!(net.switch.statistics().rdma.ended, 0, "seed {seed}");
    }
}

#[test]
fn senders_hear_no_answers_to_questions_of_the_switch() {
    for (seed, received) in (0..16).map(|seed| (seed, seed as usize % 3)) {
        let mut net = net(2, seed, 3_000);
        // Rank 0 waits for rank 1, who has sent less.
        (0..received + 2).for_each(|packet| net.put(0, net.run.frame(0, packet)));
        net.workers[0].sent = received + 2;
        (0..received).for_each(|packet| net.put(1, net.run.frame(1, packet)));
        net.workers[1].sent = received;
        net.workers.iter_mut().for_each(|worker| worker.busy_until = u64::MAX);
        assert_eq!(net.workers[0].acknowledged, received);
        let heard = net.workers[0].again_at;
        (0..10 * TICKS).for_each(|_| net.step());
        assert_eq!((net.workers[0].acknowledged, net.workers[0].again_at), (received, heard), "seed {seed}");
        assert_eq!(net.switch.statistics().rdma.ended, 0, "seed {seed}: the answers are signs of life all the same");
        // What its card says to a packet that came again is for it.
        net.put(0, net.run.frame(0, received.saturating_sub(1)));
        net.step();
        assert_eq!(net.workers[0].again_at > heard, received > 0, "seed {seed}");
    }
}

#[test]
fn a_switch_that_was_stopped_blames_nobody() {
    let mut net = net(3, 5, 20_000);
    net.workers[1].busy_until = 40;
    (0..4).for_each(|_| net.step());
    net.tick += 100 * TICKS;
    net.finish(200);
    assert_eq!(net.switch.statistics().rdma.ended, 0);
}

#[test]
fn the_same_numbers_again_are_another_run() {
    for seed in 0..12u64 {
        let mut switch = switch(3);
        learn(&mut switch, 3);
        // Shorter and longer than the window; answers and none; the second run begins where the first one was at any point.
        let run = |seed: u64, elements| Run { numbers: 5, ..Run::new(3, seed, elements) };
        let lengths = [300, 5_000, 30, 3_000];
        for (number, elements) in lengths.into_iter().enumerate() {
            job(&mut switch, &run(seed * 10 + number as u64, elements), seed % 3 * 20, &[]);
        }
        // Where first packets come again and nobody acknowledges, it may be doubtful of which run they are: then a run is ended, and not wrong.
        let done = switch.statistics().rdma;
        assert!(done.runs == 4 && (done.ended == 0 || seed % 3 > 0), "seed {seed}: {done:?}");
        for packet in 0..mix(seed, 1) as usize % 6 {
            (0..3).for_each(|rank| drop(send(&mut switch, rank, run(200 + seed, 3_000).frame(rank, packet))));
        }
        job(&mut switch, &run(300 + seed, 3_000), 10, &[]);
    }
}

#[test]
fn the_same_numbers_and_contents_are_a_run_where_the_receiver_begins_anew() {
    for elements in [300usize, 5_000] {
        let mut one = net(3, 3, elements);
        one.finish(100);
        // The same program once more: rank 0 has the same vector, and so has everybody. Its cards wait for the first packets again.
        let again = Net::new(std::mem::replace(&mut one.switch, switch(3)), one.run);
        let mut again = Net { tick: one.tick, ..again };
        again.finish(100);
        assert_eq!((again.switch.statistics().rdma.runs, again.switch.statistics().rdma.ended), (2, 0));
        // In the same run a first packet that comes again gets what its sender lacks, and nothing begins.
        again.workers[0].acknowledged = 0;
        again.finish(20);
        assert_eq!((again.switch.statistics().rdma.runs, again.switch.statistics().rdma.ended), (2, 0));
    }
}

#[test]
fn a_first_packet_that_comes_again_before_it_is_acknowledged_gets_the_sum() {
    let run = Run::new(3, 8, 30);
    let mut switch = switch(3);
    learn(&mut switch, 3);
    let mut first = Vec::new();
    (0..3).for_each(|rank| first.extend(send(&mut switch, rank, run.frame(rank, 0))));
    assert_eq!(first.len(), 3);
    let again = send(&mut switch, 0, run.frame(0, 0));
    assert_eq!(again, [first.iter().find(|(port, _)| *port == 1).unwrap().clone()]);
    // If others begin anew now, rank 0 may have been given a sum of the run before: nobody is told a success.
    let other = Run { seed: 9, ..run };
    assert_eq!(send(&mut switch, 1, other.frame(1, 0)), []);
    assert_eq!((switch.statistics().rdma.ended, switch.statistics().rdma.blamed), (1, Some((7, 1))));
}

#[test]
fn one_who_begins_again_alone_ends_the_run_and_all_are_told() {
    let mut net = net(3, 6, 40_000);
    (0..3).for_each(|_| net.step());
    // Rank 1 has lost its memory: it begins at its first packet, with another vector.
    let other = Run { seed: 77, ..net.run };
    net.workers[1].is_dead = true;
    net.put(1, other.frame(1, 0));
    net.workers[1] = Worker { is_dead: true, ..Worker::default() };
    net.errors(6 * TICKS);
}

#[test]
fn after_a_restart_of_the_switch_both_ends_are_told() {
    let mut net = net(3, 6, 40_000);
    (0..3).for_each(|_| net.step());
    net.switch = switch(3);
    learn(&mut net.switch, 3);
    let ticks = net.errors(5 * TICKS);
    assert!(ticks > 1);
    assert!(net.switch.statistics().rdma.dropped > 0);
}

#[test]
fn a_window_that_is_too_large_ends_the_ring() {
    let mut net = net(3, 6, 40_000);
    (1..3).for_each(|rank| net.put(rank, net.run.frame(rank, 0)));
    (0..3 * PACKETS).for_each(|packet| net.put(0, net.run.frame(0, packet)));
    net.workers[0].sent = 3 * PACKETS;
    assert_eq!((net.switch.statistics().rdma.ended, net.switch.statistics().rdma.blamed), (1, Some((7, 0))));
    net.errors(2 * TICKS);
}

#[test]
fn whoever_disagrees_with_the_ring_or_the_others_ends_it_and_is_named() {
    // Of rank 1's first packet, when rank 0 has sent its own: what is wrong is named, and all are told soon.
    type Change = fn(&mut RoceHeader, &mut Vec<u8>);
    let changes: [Change; 5] = [
        |_, payload| payload[13] = 3,
        |header, payload| {
            payload.truncate(PAYLOAD - 4);
            header.bth.pad = 0;
        },
        |header, _| header.reth.as_mut().unwrap().length += 4,
        |_, payload| {
            payload[14..16].copy_from_slice(
                &InaHeader::declared("f32".parse().map(|dtype| ElementOp::new(dtype, Operator::Sum).unwrap()).unwrap()).to_be_bytes(),
            )
        },
        |header, _| header.reth.as_mut().unwrap().length -= 2,
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let mut net = net(3, 6, 400);
        net.put(0, net.run.frame(0, 0));
        net.workers[0].sent = 1;
        net.put(2, net.run.frame(2, 0));
        net.workers[2].sent = 1;
        let sent = net.run.frame(1, 0);
        let (mut header, payload) = RoceHeader::parse(&sent).unwrap();
        let mut payload = payload.to_vec();
        change(&mut header, &mut payload);
        let mut frame = vec![0; header.frame_len(payload.len())];
        header.emit(&payload, &mut frame);
        net.workers[1].sent = 1;
        net.put(1, frame);
        net.workers[1].busy_until = u64::MAX;
        net.errors(3 * TICKS);
        let done = net.switch.statistics().rdma;
        assert_eq!((done.ended, done.blamed, done.summed), (1, Some((7, 1)), 0), "change {number}");
    }
}

#[test]
fn a_packet_that_comes_again_with_other_contents_ends_the_ring() {
    let mut net = net(3, 6, 400);
    (0..2).for_each(|packet| net.put(0, net.run.frame(0, packet)));
    net.workers[0].sent = 2;
    let other = Run { seed: 7, ..net.run };
    net.put(0, other.frame(0, 1));
    assert_eq!((net.switch.statistics().rdma.ended, net.switch.statistics().rdma.blamed), (1, Some((7, 0))));
}

#[test]
fn two_jobs_with_one_number_on_the_same_hosts_have_an_error_soon() {
    let mut one = net(3, 6, 40_000);
    (0..2).for_each(|_| one.step());
    // The other job's cards are others at the same hosts: what leaves is for both, and each looks at its own queue pairs only.
    let mut two = Net::new(switch(3), Run { numbers: 60, ..Run::new(3, 60, 40_000) });
    two.tick = one.tick;
    for _ in 0..10 * TICKS {
        together(&mut one, &mut two);
        let over = |net: &Net| net.workers.iter().all(|worker| worker.errors[0] || worker.errors[1]);
        if over(&one) || over(&two) {
            return;
        }
    }
    panic!("both jobs go on: {:?}, {:?}", one.workers.iter().map(|worker| worker.errors).collect::<Vec<_>>(), two.switch.statistics().rdma);
}

/// The first worker of a run may be one who never came to the run before.
#[test]
fn what_is_held_of_a_run_that_was_given_up_is_in_no_sum() {
    for numbers in [6, 66] {
        for (ticks, comes_again) in [(8, false), (1, false), (0, false), (1, true)] {
            let mut one = net(3, 6, 3_000);
            (0..2).for_each(|rank| one.put(rank, one.run.frame(rank, 0)));
            let again = Net::new(std::mem::replace(&mut one.switch, switch(3)), Run { numbers, ..Run::new(3, 7, 3_000) });
            let mut again = Net { tick: one.tick + ticks, ..again };
            again.put(2, again.run.frame(2, 0));
            again.workers[2].sent = 1;
            if comes_again {
                // A card of the run that was given up still sends.
                again.put(0, one.run.frame(0, 0));
            }
            if ticks == 8 {
                assert_eq!(again.workers.iter().map(|worker| worker.received).sum::<usize>(), 0);
                again.finish(100);
                assert_eq!(again.switch.statistics().rdma.ended, 0);
            } else if numbers == 66 {
                // Too soon to know, and what rank 2 got is none of its run's: all are told.
                again.errors(4 * TICKS);
                assert_eq!(again.switch.statistics().rdma.ended, 1);
            }
        }
    }
}

#[test]
fn a_card_of_a_run_that_was_given_up_counts_in_no_other_one() {
    for seed in 0..8 {
        let mut one = net(3, seed, 3_000);
        (0..2).for_each(|rank| one.put(rank, one.run.frame(rank, 0)));
        let again = Net::new(std::mem::replace(&mut one.switch, switch(3)), Run { numbers: 100 + seed, ..Run::new(3, 50 + seed, 3_000) });
        let mut again = Net { tick: one.tick + 8, ..again };
        again.workers[0].busy_until = again.tick + 10;
        // Rank 0's process is still there and sends again; the one that it sends to is not.
        for _ in 0..8 {
            again.step();
            again.put(0, one.run.frame(0, 0));
        }
        assert_eq!(again.workers.iter().map(|worker| worker.received).sum::<usize>(), 0, "seed {seed}");
        again.finish(100);
        assert_eq!(again.switch.statistics().rdma.ended, 0, "seed {seed}");
    }
}

#[test]
fn whoever_was_silent_for_long_before_the_last_one_came_is_of_the_run_when_he_comes_again() {
    for seed in 0..8 {
        let mut net = net(3, seed, 3_000);
        let begin = net.tick;
        (0..2).for_each(|rank| {
            net.put(rank, net.run.frame(rank, 0));
            (net.workers[rank].sent, net.workers[rank].busy_until) = (1, begin + 9 + seed % 3 * rank as u64);
        });
        net.workers[2].busy_until = begin + 6;
        net.finish(100);
        assert_eq!(net.switch.statistics().rdma.ended, 0, "seed {seed}");
    }
}

/// A step of two jobs at the first one's switch.
fn together(one: &mut Net, two: &mut Net) {
    one.step();
    let others = std::mem::take(&mut one.foreign);
    std::mem::swap(&mut one.switch, &mut two.switch);
    others.iter().for_each(|(to, frame)| two.arrive(*to, frame));
    two.step();
    let others = std::mem::take(&mut two.foreign);
    std::mem::swap(&mut one.switch, &mut two.switch);
    others.iter().for_each(|(to, frame)| one.arrive(*to, frame));
    two.foreign.clear();
}

#[test]
fn rings_over_the_same_hosts_with_the_same_first_numbers_do_not_take_each_others_answers() {
    let mut other = ring(3);
    other.ring = 8;
    let both = || Switch::with_rdma(SwitchConfig { ports: 3, ..SwitchConfig::default() }, vec![ring(3), other.clone()]).unwrap();
    let run = Run::new(3, 6, 20_000);
    let mut one = Net::new(both(), run);
    learn(&mut one.switch, 3);
    // Packet numbers begin at the same one, and workers are late in one of them.
    let mut two = Net::new(both(), Run { ring: 8, seed: 9, ..run });
    two.workers[1].busy_until = 40;
    for _ in 0..200 {
        together(&mut one, &mut two);
    }
    one.finish(1);
    two.finish(1);
    assert_eq!((one.switch.statistics().rdma.runs, one.switch.statistics().rdma.ended), (2, 0));
    // Later somebody dies in one of them.
    let mut one = Net { tick: one.tick, ..Net::new(one.switch, Run { seed: 10, numbers: 10, elements: 40_000, ..run }) };
    let mut two = Net { tick: one.tick, ..Net::new(both(), Run { ring: 8, seed: 11, numbers: 11, elements: 40_000, ..run }) };
    together(&mut one, &mut two);
    two.workers[2].is_dead = true;
    for _ in 0..200 {
        together(&mut one, &mut two);
    }
    one.finish(1);
    assert!(two.workers[..2].iter().all(|worker| worker.errors[0] || worker.errors[1]));
    assert_eq!((one.switch.statistics().rdma.ended, one.switch.statistics().rdma.blamed), (1, Some((8, 2))));
}
