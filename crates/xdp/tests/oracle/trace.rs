//! Random packets, and what happens to them on their way.

use std::cell::RefCell;
use std::collections::BTreeSet;

use fanin_xdp::Kernel;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestRng, TestRunner};

use crate::common::{Oracle, Shape, seal};
use crate::pair::Pair;

/// What happens to a packet on its way.
#[derive(Clone, Copy, Debug)]
pub enum Damage {
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
pub struct Step {
    pub rank: u32,
    pub slot: u16,
    /// How far from the round that the trace has come to.
    pub drift: i8,
    pub attempt: u8,
    /// Another call than the others of its round have.
    pub odd: u8,
    /// Bytes more or less than the others have, and whether there are none.
    pub more: i8,
    pub empty: bool,
    pub exponent: i16,
    pub seed: u8,
    pub damage: Damage,
    /// A job that has left the kernel comes back before this packet.
    pub back: bool,
}

/// Zeros, infinities, NaNs, the smallest and the largest numbers, of elements of all lengths.
const SPECIAL: [u64; 16] = [
    0,
    0x8000_0000_0000_0000,
    0x8000_0000_8000_0000,
    0x8000_8000_8000_8000,
    0x7ff0_0000_0000_0000,
    0xfff0_0000_0000_0000,
    0xfff0_0000_0000_0001,
    0x7f80_0000_ff80_0000,
    0x7f80_0001_ffc0_0002,
    0x7c00_fc00_7e00_fc01,
    0x7f80_ff80_7fc0_ff81,
    0x7f7f_ffff_ff7f_ffff,
    0x0000_0001_8000_0001,
    0x0001_8001_7fff_ffff,
    0x7f80_ff01_8000_01fe,
    u64::MAX,
];

impl Step {
    /// What it contributes.
    pub fn elements(&self, bytes: usize) -> Vec<u8> {
        let seed = self.seed;
        if seed.is_multiple_of(4) {
            let word = |at: usize| SPECIAL[(at + usize::from(seed / 4)) % SPECIAL.len()].to_le_bytes();
            return (0..bytes).map(|index| word(index / 8)[index % 8]).collect();
        }
        (0..bytes).map(|index| (index as u8).wrapping_mul(seed) ^ seed.rotate_left(index as u32 % 8)).collect()
    }
}

pub fn step() -> impl Strategy<Value = Step> {
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
    (
        0u32..64,
        0u16..5,
        drift,
        attempt,
        odd,
        more,
        prop::bool::weighted(0.15),
        any::<i16>(),
        (any::<u8>(), prop::bool::weighted(0.1)),
        damage,
    )
        .prop_map(|(rank, slot, drift, attempt, odd, more, empty, exponent, (seed, back), damage)| Step {
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
            back,
        })
}

/// A trace's packets: what a step is in a system, by how many rounds of packets have gone before.
pub trait Steps: Fn(&Shape, &Step, u32, u8) -> Vec<u8> {}

impl<F: Fn(&Shape, &Step, u32, u8) -> Vec<u8>> Steps for F {}

fn run(
    (kernel, datagram): (&Kernel, &impl Steps),
    seen: &mut BTreeSet<String>,
    (shape, calls): (Shape, u8),
    steps: &[Step],
) -> Result<(), TestCaseError> {
    let place = kernel.open(&shape.job()).map_err(|error| TestCaseError::fail(error.to_string()))?;
    let before = kernel.counts(place);
    let mut pair =
        Pair { kernel, place, shape, oracle: Oracle::new(&shape), resumed: None, before: before.clone(), at_first: before, seen };
    let a_round = 3 * (shape.ranks * shape.pool) as usize / 2 + 1;
    let mut result = Ok(());
    for (number, step) in steps.iter().enumerate() {
        let mut packet = datagram(&shape, step, (number / a_round) as u32, calls);
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
        let back = if step.back { pair.come_back() } else { Ok(()) };
        result = back.and_then(|()| pair.on_frame(from, &packet));
        if result.is_err() {
            break;
        }
    }
    kernel.close(place);
    result
}

/// What so many traces, each of fewer than `steps` packets, show, shrunk so many times at most; `None` where the program does what the state machine does.
pub fn difference(
    (kernel, seen): (&Kernel, &mut BTreeSet<String>),
    (cases, steps, max_shrink_iters): (u32, usize, u32),
    shapes: impl Strategy<Value = Shape>,
    datagram: impl Steps,
) -> Option<String> {
    let seen = RefCell::new(seen);
    let config = Config { cases, failure_persistence: None, max_shrink_iters, ..Config::default() };
    let mut runner = TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha));
    let strategy = (shapes, any::<u8>(), prop::collection::vec(step(), 1..steps));
    let result = runner.run(&strategy, |(shape, calls, steps)| run((kernel, &datagram), &mut seen.borrow_mut(), (shape, calls), &steps));
    result.err().map(|error| error.to_string())
}

/// So many traces, each of fewer than `steps` packets, of which some must meet each of `expected`: a campaign that has not met it shows nothing
/// about it.
pub fn campaign((cases, steps): (u32, usize), shapes: impl Strategy<Value = Shape>, datagram: impl Steps, expected: &[&str]) {
    let kernel = Kernel::load().unwrap_or_else(|error| panic!("{error}"));
    let mut seen = BTreeSet::new();
    if let Some(difference) = difference((&kernel, &mut seen), (cases, steps, 2_000), shapes, datagram) {
        panic!("{difference}");
    }
    println!("{seen:?}");
    for what in expected {
        assert!(seen.contains(*what), "no trace had {what}");
    }
}
