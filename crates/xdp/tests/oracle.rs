//! For random traces the packets that come out of the program in the kernel are those of the state machine, byte for byte, and so are the
//! reasons of what it drops; and where user space goes on with a job, it goes on as if it had had it from the beginning. A trace that shows a
//! difference is shrunk.
#![cfg(feature = "kernel")]

mod common;

use std::collections::BTreeSet;

use fanin_core::{DType, DropReason, ElementOp, Instant, JobId, Operator};
use fanin_wire::switchml::{CallLabel, SlotUse, SwitchMlHeader};
use fanin_xdp::layout::{FRAME_BYTES_MAX, OP_ADDS, OP_IS, Up};
use fanin_xdp::{Kernel, XdpCounts, ops, resume};
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use common::{JOB, LOOPBACK, Oracle, Shape, Word, admit, contribution, frame, seal, unframe};

/// Ethernet, IP and UDP.
const HEADERS_BYTES: usize = 42;

const DROP: u32 = 1;
const PASS: u32 = 2;
const REDIRECT: u32 = 4;

/// What happens to a packet on its way.
#[derive(Clone, Copy, Debug)]
enum Damage {
    None,
    /// A byte is changed.
    Byte(usize, u8),
    /// The same, and the checksum is right again.
    Sealed(usize, u8),
    /// The end is missing, and the checksum is right again.
    Cut(usize),
    /// It comes from a socket of nobody.
    Stranger,
}

/// One packet.
#[derive(Clone, Copy, Debug)]
struct Step {
    rank: u32,
    slot: u16,
    /// How far from the round that the trace has come to.
    drift: i8,
    attempt: u8,
    /// Another call than the others of its round have.
    odd: u8,
    /// Bytes more or less than the others have, and whether there are none.
    more: i8,
    empty: bool,
    exponent: i16,
    seed: u8,
    damage: Damage,
}

fn step() -> impl Strategy<Value = Step> {
    let damage = prop_oneof![
        12 => Just(Damage::None),
        1 => (any::<usize>(), 1u8..).prop_map(|(at, by)| Damage::Byte(at, by)),
        2 => (0usize..48, 1u8..).prop_map(|(at, by)| Damage::Sealed(at, by)),
        1 => (1usize..60).prop_map(Damage::Cut),
        1 => Just(Damage::Stranger),
    ];
    let drift = prop_oneof![12 => Just(0i8), 3 => -2i8..=2, 1 => any::<i8>()];
    let attempt = prop_oneof![4 => Just(0u8), 2 => 1u8..4, 1 => any::<u8>()];
    let odd = prop_oneof![20 => Just(0u8), 1 => any::<u8>()];
    let more = prop_oneof![20 => Just(0i8), 1 => any::<i8>()];
    (0u32..64, 0u16..5, drift, attempt, odd, more, prop::bool::weighted(0.15), any::<i16>(), any::<u8>(), damage).prop_map(
        |(rank, slot, drift, attempt, odd, more, empty, exponent, seed, damage)| Step {
            rank,
            slot,
            drift,
            attempt,
            odd,
            more,
            empty,
            exponent,
            seed,
            damage,
        },
    )
}

fn shape() -> impl Strategy<Value = Shape> {
    let ranks = prop_oneof![8 => 1u32..5, 1 => Just(33u32), 1 => Just(64u32)];
    let block_bytes = prop_oneof![Just(8u32), Just(64u32), Just(1_408u32)];
    let first = prop_oneof![3 => Just(ElementOp::I32_SUM), 1 => Just(ElementOp::F32_SUM)];
    (ranks, 1u32..4, block_bytes, any::<bool>(), first).prop_map(|(ranks, pool, block_bytes, fixed_point, first)| Shape {
        ranks,
        pool,
        block_bytes,
        fixed_point,
        first,
    })
}

/// The call of a round: integers that the program adds, copies, and now and then what it leaves to user space.
fn call(shape: &Shape, number: usize) -> CallLabel {
    let op = |dtype, operator| shape.numbers().built_in(ElementOp { dtype, operator }, false).unwrap_or(250);
    let scaled = shape.numbers().built_in(ElementOp::F32_SUM, true).unwrap_or(1);
    let label = |op, receiver| CallLabel { fingerprint: 5, receiver, op };
    match number % 16 {
        0..5 => CallLabel::NONE,
        5 => label(op(DType::I32, Operator::Sum), 1),
        6 => label(op(DType::I64, Operator::Sum), CallLabel::ALL),
        7 => label(op(DType::I8, Operator::Sum), 0),
        8 => label(op(DType::U8, Operator::Sum), 700),
        9 => label(op(DType::I16, Operator::Sum), CallLabel::ALL),
        10 => label(op(DType::F32, Operator::Max), 2),
        11 | 12 => label(scaled, CallLabel::ALL),
        13 => label(200, CallLabel::ALL),
        14 => label(op(DType::I32, Operator::Sum), CallLabel::ALL),
        _ => label(op(DType::F32, Operator::Avg), CallLabel::ALL),
    }
}

/// The datagram of a step.
fn datagram(shape: &Shape, step: &Step, at: SlotUse, calls: u8) -> Vec<u8> {
    // Most traces have one call that user space need not see; what is odd may be anything.
    let number = usize::from(at.slot) + at.round as usize * 3 + usize::from(calls) + usize::from(step.odd);
    let call = call(shape, if step.odd == 0 && number % 16 == 15 { 5 } else { number });
    let table = ops::table(shape.first, shape.numbers());
    let scaled = table[usize::from(call.op)] & fanin_xdp::layout::OP_FIXED_POINT != 0;
    let full = i64::from(shape.block_bytes) - i64::from(at.round % 3 == 1) * 8 + i64::from(step.more);
    // Only one rank has something where elements are copied.
    let copies = table[usize::from(call.op)] & (OP_ADDS | OP_IS) == OP_IS && step.odd == 0 && call != CallLabel::NONE;
    let bytes = if step.empty || copies && step.rank % shape.ranks != at.round % shape.ranks { 0 } else { full.max(0) as usize };
    let payload: Vec<u8> =
        (0..bytes).map(|index| (index as u8).wrapping_mul(step.seed) ^ step.seed.rotate_left(index as u32 % 8)).collect();
    contribution(shape, at, step.attempt, (scaled ^ (step.odd % 7 == 1)).then_some(step.exponent), call, &payload)
}

/// Both sides of a trace.
struct Pair<'a> {
    kernel: &'a Kernel,
    place: u32,
    shape: Shape,
    oracle: Oracle,
    /// User space has gone on with the job.
    resumed: Option<Oracle>,
    before: XdpCounts,
    seen: &'a mut BTreeSet<String>,
}

impl Pair<'_> {
    fn fails(&self, what: impl Into<String>) -> TestCaseError {
        TestCaseError::fail(what.into())
    }

    /// Gives a frame to both, and compares.
    fn on_frame(&mut self, from: u32, datagram: &[u8]) -> Result<(), TestCaseError> {
        let is_stranger = from >= self.shape.ranks;
        let word = if is_stranger { Word::Other } else { admit(datagram) };
        if self.resumed.is_some() {
            return self.on_frame_in_user_space(from, word);
        }
        let run = self.kernel.test(&frame(from, datagram), LOOPBACK, 1).map_err(|error| self.fails(error.to_string()))?;
        let counts = self.kernel.counts(self.place);
        let dropped: Vec<DropReason> =
            DropReason::ALL.iter().copied().filter(|reason| counts.dropped_for(*reason) > self.before.dropped_for(*reason)).collect();
        let up: Vec<Up> = Up::ALL.iter().copied().filter(|up| counts.up_for(*up) > self.before.up_for(*up)).collect();
        self.before = counts;
        self.seen.extend(dropped.iter().map(|reason| reason.name().to_owned()));
        self.seen.extend(up.iter().map(|up| format!("up {}", up.name())));
        if run.action == PASS {
            return self.on_passed(from, (word, datagram.len()), &up);
        }
        if !up.is_empty() {
            return Err(self.fails(format!("action {} and counted as gone up: {up:?}", run.action)));
        }
        let (sent, why) = match word {
            Word::Contribution(header, payload) => self.oracle.on_contribution(from, header, &payload),
            Word::Dropped(reason) => (Vec::new(), vec![reason]),
            Word::Other => return Err(self.fails(format!("action {} for what is no contribution", run.action))),
        };
        let got = self.frames_of(&run)?;
        self.seen.extend(sent.iter().map(|(_, bytes)| format!("kind {}{}", bytes[21], if bytes[6..8] == [0, 0] { " empty" } else { "" })));
        prop_assert_eq!(&got, &sent, "the kernel's packets on the left, the state machine's on the right");
        prop_assert_eq!(&dropped, &why, "reasons");
        Ok(())
    }

    /// The packets that leave, by rank.
    fn frames_of(&self, run: &fanin_xdp::kernel::TestRun) -> Result<Vec<(u32, Vec<u8>)>, TestCaseError> {
        let mut frames = match run.action {
            DROP => Vec::new(),
            REDIRECT => {
                let copy = |_| {
                    let copy = self.kernel.test_exit(&run.frame, LOOPBACK).map_err(|error| self.fails(error.to_string()))?;
                    prop_assert_eq!(copy.action, PASS, "a copy does not leave");
                    Ok(unframe(&self.shape, &copy.frame))
                };
                // The program at the exit has nobody left for what is an answer to one rank.
                let first = self.kernel.test_exit(&run.frame, LOOPBACK).map_err(|error| self.fails(error.to_string()))?;
                if first.action == DROP {
                    return Ok(vec![unframe(&self.shape, &run.frame)]);
                }
                prop_assert_eq!(first.action, PASS, "a copy does not leave");
                let frames = std::iter::once(Ok(unframe(&self.shape, &first.frame)))
                    .chain((1..self.shape.ranks).map(copy))
                    .collect::<Result<Vec<_>, _>>()?;
                let another = self.kernel.test_exit(&run.frame, LOOPBACK).map_err(|error| self.fails(error.to_string()))?;
                prop_assert_eq!(another.action, DROP, "a rank was sent a result twice");
                frames
            }
            other => return Err(self.fails(format!("action {other}"))),
        };
        frames.sort();
        Ok(frames)
    }

    /// The program has left a frame to user space.
    fn on_passed(&mut self, from: u32, (word, bytes): (Word, usize), up: &[Up]) -> Result<(), TestCaseError> {
        let [up] = *up else { return Err(self.fails(format!("passed, and counted as {up:?}"))) };
        match (up, word) {
            (Up::Stranger, _) if from >= self.shape.ranks => Ok(()),
            (Up::Foreign | Up::Kind, Word::Other) => Ok(()),
            // What is too long is not looked at: user space does.
            (Up::TooLong, Word::Dropped(_) | Word::Other) => Ok(()),
            (up @ (Up::Operator | Up::TooLong), Word::Contribution(header @ SwitchMlHeader::Contribution { call, .. }, payload)) => {
                let table = ops::table(self.shape.first, self.shape.numbers());
                let is_rightly_so = match up {
                    Up::Operator => table[usize::from(call.op)] & OP_ADDS == 0,
                    _ => bytes + HEADERS_BYTES > FRAME_BYTES_MAX,
                };
                prop_assert!(is_rightly_so, "the program adds these: {:?}", up);
                let taken = self.kernel.hand_over(self.place).map_err(|error| self.fails(error.to_string()))?;
                prop_assert!(self.before.takes_job());
                let mut resumed = Oracle::new(&self.shape);
                resume(&mut resumed.node, Instant::ZERO, JobId(JOB), &table, &taken);
                resumed.outlet.next = taken.numbers.iter().map(|numbers| numbers.next).collect();
                self.resumed = Some(resumed);
                self.on_frame_in_user_space(from, Word::Contribution(header, payload))?;
                // Whatever comes now is not the kernel's.
                let late = contribution(&self.shape, SlotUse { slot: 0, round: 1 }, 0, None, CallLabel::NONE, &[1; 8]);
                let run = self.kernel.test(&frame(0, &late), LOOPBACK, 1).map_err(|error| self.fails(error.to_string()))?;
                prop_assert_eq!(run.action, PASS);
                Ok(())
            }
            (up, word) => Err(self.fails(format!("gone up as {up:?}: {word:?}"))),
        }
    }

    /// After the job has left the kernel: the state machine that was told, and the one that has seen everything.
    fn on_frame_in_user_space(&mut self, from: u32, word: Word) -> Result<(), TestCaseError> {
        let (Word::Contribution(header, payload), Some(resumed)) = (word, &mut self.resumed) else { return Ok(()) };
        let got = resumed.on_contribution(from, header, &payload);
        prop_assert_eq!(got, self.oracle.on_contribution(from, header, &payload), "resumed on the left");
        self.seen.insert("resumed".into());
        Ok(())
    }
}

fn run(kernel: &Kernel, seen: &mut BTreeSet<String>, shape: Shape, calls: u8, steps: &[Step]) -> Result<(), TestCaseError> {
    let place = kernel.open(&shape.job()).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let before = kernel.counts(place);
    let mut pair = Pair { kernel, place, shape, oracle: Oracle::new(&shape), resumed: None, before, seen };
    let a_round = 3 * (shape.ranks * shape.pool) as usize / 2 + 1;
    let mut result = Ok(());
    for (number, step) in steps.iter().enumerate() {
        // Rounds begin near the end of the numbers, so that they wrap.
        let round = (u32::MAX - 3).wrapping_add((number / a_round) as u32).wrapping_add_signed(i32::from(step.drift));
        // Few packets name a slot that there is not.
        let slot = if u32::from(step.slot) == shape.pool { step.slot } else { step.slot % shape.pool as u16 };
        let mut packet = datagram(&shape, step, SlotUse { slot, round }, calls);
        let mut from = step.rank % shape.ranks;
        match step.damage {
            Damage::None => {}
            Damage::Byte(at, by) => {
                let at = at % packet.len();
                packet[at] ^= by;
            }
            Damage::Sealed(at, by) => {
                let at = at % packet.len();
                packet[at] ^= by;
                if fanin_wire::hop::HopPacket::new(&packet).is_ok() && packet[2] & 4 != 0 {
                    seal(&mut packet);
                }
            }
            Damage::Cut(bytes) => {
                packet.truncate(packet.len().saturating_sub(bytes).max(20));
                seal(&mut packet);
            }
            Damage::Stranger => from = shape.ranks,
        }
        result = pair.on_frame(from, &packet);
        if result.is_err() {
            break;
        }
    }
    kernel.close(place);
    result
}

fn campaign(cases: u32, steps: usize) {
    let kernel = Kernel::load().unwrap_or_else(|error| panic!("{error}"));
    let seen = std::cell::RefCell::new(BTreeSet::new());
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 2_000, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let strategy = (shape(), any::<u8>(), prop::collection::vec(step(), 1..steps));
    let result = runner.run(&strategy, |(shape, calls, steps)| run(&kernel, &mut seen.borrow_mut(), shape, calls, &steps));
    if let Err(error) = result {
        panic!("{error}");
    }
    let seen = seen.into_inner();
    println!("{seen:?}");
    // A campaign that has not met all of this shows nothing about it.
    for what in [
        "corrupted",
        "duplicate",
        "in_progress",
        "malformed",
        "mismatch",
        "outside_window",
        "stale",
        "unproven",
        "kind 2",
        "kind 3 empty",
        "kind 4 empty",
        "kind 6",
        "kind 2 empty",
        "up foreign",
        "up kind",
        "up operator",
        "up stranger",
        "resumed",
    ] {
        assert!(seen.contains(what), "no trace had {what}");
    }
}

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn the_kernel_says_what_the_state_machine_says() {
    campaign(400, 200);
}

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn minutes_of_traces_in_the_kernel() {
    campaign(10_000, 400);
}
