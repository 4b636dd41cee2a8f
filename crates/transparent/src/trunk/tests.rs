//! Two ends of a trunk, and a wire that loses, doubles, delays and damages what they send.

use super::message::{PIECE_MAX, Said, Stub};
use super::*;
use crate::segment::Flow;
use fanin_core::hash::mix;

/// Frames on their way: when they arrive, at which end.
struct Wire {
    seed: u64,
    draws: u64,
    /// In 256ths.
    loss: u64,
    under_way: Vec<(u64, usize, Vec<u8>)>,
    now_us: u64,
}

impl Wire {
    fn new(seed: u64, loss: u64) -> Self {
        Wire { seed, draws: 0, loss, under_way: Vec::new(), now_us: 1 }
    }

    fn now(&self) -> Instant {
        Instant::from_ps(self.now_us * 1_000_000)
    }

    fn draw(&mut self) -> u64 {
        self.draws += 1;
        mix(self.seed, self.draws)
    }

    fn carry(&mut self, to: usize, frame: &[u8]) {
        let draw = self.draw();
        for copy in 0..1 + u64::from((draw >> 8) & 0x1f == 0) {
            if (draw >> (16 + 8 * copy)) & 0xff < self.loss {
                continue;
            }
            let mut frame = frame.to_vec();
            if (draw >> 40) & 0x3f == 0 {
                let bit = 8 * WHAT_AT + (draw >> 46) as usize % (8 * (frame.len() - WHAT_AT));
                frame[bit / 8] ^= 1 << (bit % 8);
            }
            // Some overtake others.
            let delay = 50 + if (draw >> 32) & 7 == 0 { (draw >> 33) & 0x3ff } else { 0 };
            self.under_way.push((self.now_us + delay, to, frame));
        }
    }

    /// A moment later: what both ends have got of each other.
    fn step(&mut self, ends: &mut [Trunk; 2]) -> [(Vec<Vec<u8>>, Vec<Came>); 2] {
        self.now_us += 40;
        let mut got = [(Vec::new(), Vec::new()), (Vec::new(), Vec::new())];
        let now_us = self.now_us;
        let (arrived, later): (Vec<_>, Vec<_>) = std::mem::take(&mut self.under_way).into_iter().partition(|(at, ..)| *at <= now_us);
        self.under_way = later;
        for (_, to, frame) in arrived {
            assert!(is_trunk(&frame) || frame[..WHAT_AT] != self.head(&frame)[..]);
            match ends[to].on_frame(self.now(), &frame) {
                Came::Messages(bodies) => got[to].0.extend(bodies),
                Came::Nothing | Came::Damaged => {}
                came => got[to].1.push(came),
            }
        }
        for (number, end) in ends.iter_mut().enumerate() {
            let now = self.now();
            let mut left = Vec::new();
            end.flush(now, |frame| left.push(frame.to_vec()));
            left.iter().for_each(|frame| self.carry(1 - number, frame));
        }
        got
    }

    fn head(&self, frame: &[u8]) -> Vec<u8> {
        [&OTHER_END[..], &frame[6..12], &KIND].concat()
    }
}

fn ends(seed: u64) -> [Trunk; 2] {
    [Trunk::new(Instant::ZERO, mix(seed, 1), Role::Below), Trunk::new(Instant::ZERO, mix(seed, 2), Role::Above)]
}

#[test]
fn messages_come_once_and_in_order_whatever_the_wire_does() {
    for seed in 0..24u64 {
        let mut ends = ends(seed);
        let mut wire = Wire::new(seed, seed % 4 * 12);
        let count = 1_500u64;
        let (mut sent, mut got) = ([0u64; 2], [0u64; 2]);
        let mut steps = 0;
        while got != [count; 2] {
            steps += 1;
            assert!(steps < 200_000, "seed {seed} is stuck at {got:?} of {sent:?}");
            for (end, sent) in ends.iter_mut().zip(&mut sent) {
                let more = if end.is_up() { wire.draw() % 4 } else { 0 };
                for _ in 0..more.min(count - *sent) {
                    end.push(sent.to_be_bytes().to_vec());
                    *sent += 1;
                }
            }
            for (to, (bodies, came)) in wire.step(&mut ends).into_iter().enumerate() {
                assert!(came.iter().all(|came| *came == Came::Up), "seed {seed}: {came:?}");
                for body in bodies {
                    assert_eq!(body, got[to].to_be_bytes(), "seed {seed}");
                    got[to] += 1;
                }
            }
        }
        let again: u64 = ends.iter().map(|end| end.counts.again).sum();
        assert!((again > 0) || seed % 4 == 0, "something was lost, and nothing was sent again");
        let least = steps / 250;
        assert!(again < least.max(3 * count), "seed {seed}: {again} were sent again");
    }
}

/// Either end begins anew in the middle of everything, and frames of before are still on their way: nothing of before arrives after.
#[test]
fn an_end_that_was_restarted_is_noticed_and_nothing_of_before_is_taken() {
    for seed in 0..40u64 {
        let mut ends = ends(seed);
        let mut wire = Wire::new(seed, 12);
        let restarted = seed as usize % 2;
        let (mut age, mut next) = (0u64, [0u64; 2]);
        let mut expected = [0u64; 2];
        let mut noticed = 0;
        for step in 0..60_000u64 {
            if step == 300 + seed * 7 {
                let role = if restarted == 0 { Role::Below } else { Role::Above };
                ends[restarted] = Trunk::new(wire.now(), mix(seed, 77), role);
                (age, next[restarted], expected[restarted]) = (1, 0, 0);
            }
            for (number, end) in ends.iter_mut().enumerate() {
                // The one that stays goes on with what was before until it hears of it.
                let own_age = if number == restarted { age } else { noticed };
                if end.is_up() && next[number] < 400 {
                    end.push([own_age.to_be_bytes(), next[number].to_be_bytes()].concat());
                    next[number] += 1;
                }
            }
            for (to, (bodies, came)) in wire.step(&mut ends).into_iter().enumerate() {
                if came.contains(&Came::Anew) && to != restarted && noticed == 0 {
                    (noticed, next[to], expected[to]) = (1, 0, 0);
                }
                for body in bodies {
                    let (of_age, number) = (u64_at(&body, 0), u64_at(&body, 8));
                    let own_age = if to == restarted { age } else { noticed };
                    assert_eq!(of_age, own_age, "seed {seed}: a message of before has come");
                    assert_eq!(number, expected[to], "seed {seed}");
                    expected[to] += 1;
                }
            }
            if age == 1 && expected == [400; 2] {
                break;
            }
        }
        assert!(age == 1 && noticed == 1 && expected == [400; 2], "seed {seed}: {expected:?}");
    }
}

#[test]
fn what_is_said_leads_back_and_any_bytes_are_read() {
    let flow = |from: &str, to: &str| Flow { from: from.parse().unwrap(), to: to.parse().unwrap() };
    let stub = Stub { payload_bytes: 65_000, gso_type: 1, gso_bytes: 1_448, header_bytes: 66, heads: vec![7; 66] };
    let all = [
        Said::Rank { ring: 77, world: 4, rank: 3, flow: flow("10.0.0.1:5", "10.0.0.2:7") },
        Said::Rank { ring: u32::MAX, world: 1_024, rank: 9, flow: flow("[fd00::1]:5", "[fd00::2]:7") },
        Said::Begin { memory: 1 << 20, ranks: vec![0, 7, 8, 1_023] },
        Said::Part { offset: 9, bytes: vec![1; PIECE_MAX] },
        Said::Whole { offset: 1 << 40, bytes: vec![1] },
        Said::Segment { rank: 2, offset: 8, stub },
        Said::Room { to: 5 },
        Said::Released { to: 6 },
        Said::End { rank: 1, of: 0, at: 3 },
        Said::Closing,
        Said::Over,
        Said::Fails { why: "rank 3 has ended".to_owned() },
    ];
    for said in &all {
        let body = said.emit(1 << 50 | 3);
        assert_eq!(Said::parse(&body), Ok((1 << 50 | 3, said.clone())));
        assert!(14 + 24 + body.len() <= 1_514, "no network's frame is too short for {said:?}");
        (0..body.len()).for_each(|length| drop(Said::parse(&body[..length])));
        for seed in 0..300u64 {
            let mut other = body.clone();
            let draw = mix(seed, body.len() as u64);
            other[draw as usize % body.len()] = (draw >> 32) as u8;
            drop(Said::parse(&other));
        }
    }
    // Frames of anybody.
    let mut end = ends(1);
    let mut greeting = Vec::new();
    end[0].flush(Instant::ZERO, |frame| greeting = frame.to_vec());
    assert!(greets_above(&greeting) && end[1].on_frame(Instant::ZERO, &greeting) == Came::Nothing);
    for length in HEAD..greeting.len() {
        assert_eq!(end[1].on_frame(Instant::ZERO, &greeting[..length]), Came::Damaged);
    }
}
