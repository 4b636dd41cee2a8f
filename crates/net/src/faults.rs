//! Seeded faults: outgoing datagrams are lost, doubled, held back or corrupted before the kernel sees them, so every protocol and
//! the hop sequence run above a link that misbehaves in the same way each time.

use rand_core::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::DATAGRAM_BYTES_MAX;

/// How often an outgoing datagram suffers what. Each is a probability between 0 and 1, drawn per datagram and kind.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct FaultPlan {
    /// Seed; the faults of a destination depend on it and on how many datagrams went there before.
    pub seed: u64,
    /// The datagram vanishes.
    pub loss: f64,
    /// A second copy follows a few datagrams later.
    pub duplicate: f64,
    /// The datagram is held back and overtaken by a few others.
    pub reorder: f64,
    /// Bits flip, or two 16-bit words change places, before UDP's checksum is computed: the receiver gets the damaged datagram.
    pub corrupt: f64,
}

impl FaultPlan {
    /// Whether nothing ever happens.
    pub fn is_quiet(&self) -> bool {
        self.loss <= 0.0 && self.duplicate <= 0.0 && self.reorder <= 0.0 && self.corrupt <= 0.0
    }
}

/// What was done to a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum FaultKind {
    /// It vanished.
    Loss = 0,
    /// It was sent twice.
    Duplicate = 1,
    /// It was overtaken.
    Reorder = 2,
    /// It was damaged.
    Corrupt = 3,
}

impl FaultKind {
    /// Every kind, in the order of their indices.
    pub const ALL: [FaultKind; 4] = [FaultKind::Loss, FaultKind::Duplicate, FaultKind::Reorder, FaultKind::Corrupt];

    /// The kind's name in metrics and results.
    pub const fn name(self) -> &'static str {
        match self {
            FaultKind::Loss => "loss",
            FaultKind::Duplicate => "duplicate",
            FaultKind::Reorder => "reorder",
            FaultKind::Corrupt => "corrupt",
        }
    }

    /// The kind as an index into an array of counters.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// How many datagrams of one destination are held back at once, at most.
const HELD_MAX: usize = 8;
/// A datagram that is held back is overtaken by at most this many others: well inside every anti-replay window.
const OVERTAKEN_BY_MAX: u32 = 16;
/// A datagram leaves at the latest with this flush after it was held back, so that the last one of a run is not kept for ever.
const FLUSHES_MAX: u32 = 2;

#[derive(Debug)]
struct Held {
    bytes: Box<[u8]>,
    used: usize,
    datagrams_left: u32,
    flushes_left: u32,
}

/// The faults of one destination: what is to happen, and the datagrams that are held back.
#[derive(Debug)]
pub(crate) struct Injector {
    random: Xoshiro256PlusPlus,
    thresholds: [u64; 4],
    held: Vec<Held>,
    spare: Vec<Held>,
}

/// What becomes of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Verdict {
    /// It is sent (and perhaps once more later).
    Send,
    /// It is not sent (now).
    Withhold,
}

impl Injector {
    /// The faults of destination number `destination`; `None` if there are none.
    pub(crate) fn new(plan: &FaultPlan, destination: usize) -> Option<Self> {
        if plan.is_quiet() {
            return None;
        }
        let seed = plan.seed ^ (destination as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let holds = if plan.duplicate > 0.0 || plan.reorder > 0.0 { HELD_MAX } else { 0 };
        let room = || Held { bytes: vec![0; DATAGRAM_BYTES_MAX].into(), used: 0, datagrams_left: 0, flushes_left: 0 };
        Some(Injector {
            random: Xoshiro256PlusPlus::seed_from_u64(seed),
            thresholds: [plan.loss, plan.duplicate, plan.reorder, plan.corrupt].map(threshold),
            held: Vec::with_capacity(holds),
            spare: (0..holds).map(|_| room()).collect(),
        })
    }

    /// Decides about the next datagram, and counts what is done to it.
    pub(crate) fn judge(&mut self, datagram: &mut [u8], counts: &mut [u64; 4]) -> Verdict {
        // All kinds are drawn for each datagram, so that switching one on does not shift the others.
        let hits = self.thresholds.map(|threshold| self.random.next_u64() < threshold);
        let random = self.random.next_u64();
        let delay = 1 + random as u32 % OVERTAKEN_BY_MAX;
        if hits[FaultKind::Corrupt.index()] {
            counts[FaultKind::Corrupt.index()] += 1;
            damage(datagram, (random >> 32) as usize);
            return Verdict::Send;
        }
        if hits[FaultKind::Loss.index()] {
            counts[FaultKind::Loss.index()] += 1;
            return Verdict::Withhold;
        }
        if hits[FaultKind::Duplicate.index()] && self.hold(datagram, delay) {
            counts[FaultKind::Duplicate.index()] += 1;
            return Verdict::Send;
        }
        if hits[FaultKind::Reorder.index()] && self.hold(datagram, delay) {
            counts[FaultKind::Reorder.index()] += 1;
            return Verdict::Withhold;
        }
        Verdict::Send
    }

    /// Keeps a copy for later; says whether there was room.
    fn hold(&mut self, datagram: &[u8], delay: u32) -> bool {
        let Some(mut held) = self.spare.pop() else { return false };
        held.bytes[..datagram.len()].copy_from_slice(datagram);
        (held.used, held.datagrams_left, held.flushes_left) = (datagram.len(), delay, FLUSHES_MAX);
        self.held.push(held);
        true
    }

    /// Whether a datagram is held back.
    pub(crate) fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// Another datagram has passed.
    pub(crate) fn on_passed(&mut self) {
        for held in &mut self.held {
            held.datagrams_left = held.datagrams_left.saturating_sub(1);
        }
    }

    /// The destination is being flushed.
    pub(crate) fn on_flush(&mut self) {
        for held in &mut self.held {
            held.flushes_left = held.flushes_left.saturating_sub(1);
        }
    }

    /// Gives the datagrams that have waited long enough to `send`.
    pub(crate) fn release(&mut self, mut send: impl FnMut(&[u8])) {
        let mut index = 0;
        while index < self.held.len() {
            let held = &self.held[index];
            if held.datagrams_left == 0 || held.flushes_left == 0 {
                let held = self.held.remove(index);
                send(&held.bytes[..held.used]);
                self.spare.push(held);
            } else {
                index += 1;
            }
        }
    }
}

/// Damages a datagram: in one of four cases two neighbouring 16-bit words change places, which no sum of words sees, else a bit flips.
fn damage(datagram: &mut [u8], random: usize) {
    let (kind, at) = (random % 4, random / 4);
    if kind == 0 && datagram.len() >= 4 {
        let word = at % (datagram.len() / 2 - 1) * 2;
        let before: [u8; 4] = std::array::from_fn(|byte| datagram[word + byte]);
        datagram[word..word + 4].rotate_left(2);
        if datagram[word..word + 4] != before {
            return;
        }
    }
    let bit = at % (datagram.len() * 8).max(1);
    if let Some(byte) = datagram.get_mut(bit / 8) {
        *byte ^= 1 << (bit % 8);
    }
}

/// The probability as a bound on a uniform 64-bit number.
fn threshold(probability: f64) -> u64 {
    // The conversion saturates: 1.0 gives u64::MAX, which misses one number in 2^64.
    (probability.clamp(0.0, 1.0) * 18_446_744_073_709_551_616.0) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(plan: FaultPlan) -> (Vec<u32>, [u64; 4]) {
        let (mut injector, mut counts, mut out) = (Injector::new(&plan, 3).unwrap(), [0; 4], Vec::new());
        let mut deliver = |bytes: &[u8]| out.push(u32::from_le_bytes(bytes.try_into().unwrap()));
        for number in 0..10_000u32 {
            let mut datagram = number.to_le_bytes();
            if injector.judge(&mut datagram, &mut counts) == Verdict::Send {
                deliver(&datagram);
            }
            injector.on_passed();
            injector.release(&mut deliver);
        }
        for _ in 0..FLUSHES_MAX {
            injector.on_flush();
            injector.release(&mut deliver);
        }
        assert!(!injector.holds());
        (out, counts)
    }

    #[test]
    fn the_same_seed_gives_the_same_faults_and_another_seed_others() {
        let plan = FaultPlan { seed: 5, loss: 0.1, duplicate: 0.05, reorder: 0.05, corrupt: 0.02 };
        assert_eq!(run(plan), run(plan));
        assert_ne!(run(plan).0, run(FaultPlan { seed: 6, ..plan }).0);
    }

    #[test]
    fn each_kind_does_what_its_name_says_as_often_as_asked() {
        let (out, counts) = run(FaultPlan { seed: 1, loss: 0.1, ..FaultPlan::default() });
        assert_eq!(out.len() as u64, 10_000 - counts[0]);
        assert!((900..1_100).contains(&counts[0]), "{counts:?}");
        assert!(out.is_sorted());

        let (out, counts) = run(FaultPlan { seed: 1, duplicate: 0.1, ..FaultPlan::default() });
        assert_eq!(out.len() as u64, 10_000 + counts[1]);
        assert!((800..1_100).contains(&counts[1]), "{counts:?}");

        let (mut out, counts) = run(FaultPlan { seed: 1, reorder: 0.1, ..FaultPlan::default() });
        assert!((800..1_100).contains(&counts[2]), "{counts:?}");
        assert!(!out.is_sorted());
        let farthest = out.iter().enumerate().map(|(at, &number)| at as i64 - i64::from(number)).max();
        assert!(farthest.is_some_and(|behind| (1..=i64::from(OVERTAKEN_BY_MAX)).contains(&behind)), "{farthest:?}");
        out.sort_unstable();
        assert_eq!(out, (0..10_000).collect::<Vec<_>>());

        let (out, counts) = run(FaultPlan { seed: 1, corrupt: 0.1, ..FaultPlan::default() });
        assert_eq!(out.len(), 10_000);
        let damaged = out.iter().zip(0..).filter(|&(&got, sent)| got != sent).count() as u64;
        assert!((900..1_100).contains(&counts[3]) && damaged == counts[3], "{damaged} of {counts:?}");
    }

    #[test]
    fn a_quiet_plan_costs_nothing() {
        assert!(Injector::new(&FaultPlan { seed: 9, ..FaultPlan::default() }, 0).is_none());
    }
}
