//! Barrier mode (`baselines 12`, Rina's model): nobody begins a step before all have received the step before it. Each worker tells the
//! worker of rank 0, which tells all of them to go on. Both messages mean the same however often they come, so loss is mended by
//! repeating the first one.

use fanin_core::{Duration, Instant, Rank};

use crate::shared::reliability::Reliability;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer16;

/// The rank of the worker that all others tell.
pub(super) const COORDINATOR: Rank = Rank(0);

/// Where one worker stands in the running operation.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Barrier {
    /// The newest step that may be sent.
    pub step: u32,
    /// Packets received of step s, in element s mod 2: packets of the next step may come before the word that it has begun.
    received: [u32; 2],
    /// When the coordinator was last told that `step` is received, and how often.
    pub told_at: Instant,
    pub told_count: u32,
}

impl Barrier {
    /// An operation begins.
    pub(super) fn begin(&mut self) {
        *self = Barrier::default();
    }

    /// A packet of a step was received.
    #[inline]
    pub(super) fn count(&mut self, step: u32) {
        self.received[step as usize % 2] += 1;
    }

    /// Whether all of the current step's packets are here, and nobody has been told.
    #[inline]
    pub(super) fn is_news(&self, expected: u32) -> bool {
        self.told_count == 0 && self.received[self.step as usize % 2] == expected
    }

    /// The coordinator is told now.
    pub(super) fn tell(&mut self, now: Instant) {
        (self.told_at, self.told_count) = (now, self.told_count.saturating_add(1));
    }

    /// When the coordinator is told again; `None` where it need not be.
    #[inline]
    pub(super) fn tell_again_at(&self, reliability: &Reliability) -> Option<Instant> {
        if self.told_count == 0 || !reliability.reliable {
            return None;
        }
        let doubled = reliability.rto_initial.times(1 << (self.told_count - 1).min(4));
        Some(self.told_at + Duration::from_ps(doubled.as_ps().min(reliability.rto_max().as_ps()).max(1)))
    }

    /// Whether this worker waits for the word that the next step may begin.
    #[inline]
    pub(super) fn is_waiting(&self) -> bool {
        self.told_count > 0
    }

    /// `step` may begin. False where it has begun already.
    pub(super) fn go(&mut self, step: u32) -> bool {
        if step != self.step + 1 {
            return false;
        }
        self.received[self.step as usize % 2] = 0;
        (self.step, self.told_count) = (step, 0);
        true
    }

    /// Makes times relative to `now`.
    pub(super) fn rebase(&mut self, now: Instant) {
        self.told_at = rebased(self.told_at, now);
    }
}

/// What the worker of rank 0 knows about all workers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Coordinator {
    /// Low 16 bits of the operation's number.
    operation: u16,
    step: u16,
    missing: u32,
    workers: u32,
    /// Bit r: rank r has received `step`.
    arrived: Box<[u64]>,
}

/// What a worker's message calls for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Verdict {
    /// Others are missing.
    Wait,
    /// All are there: all may begin this step.
    AllGo(u16),
    /// The sender has missed the word: it may begin this step.
    Go(u16),
}

impl Coordinator {
    pub(super) fn new(workers: u32) -> Self {
        Coordinator { operation: 0, step: 0, missing: workers, workers, arrived: vec![0; workers.div_ceil(64) as usize].into() }
    }

    /// The first rank but the coordinator's own that the current step waits for.
    pub(super) fn first_missing(&self) -> Option<Rank> {
        (1..self.workers).find(|rank| self.arrived[*rank as usize / 64] >> (rank % 64) & 1 == 0).map(Rank)
    }

    /// How many ranks the current step waits for.
    #[inline]
    pub(super) fn missing(&self) -> u32 {
        self.missing
    }

    fn clear(&mut self) {
        self.arrived.fill(0);
        self.missing = self.workers;
    }

    /// A rank (less than N) has received a step of an operation.
    ///
    /// An operation that is newer than the one at hand is the next one: its sender has completed the one at hand, so all barriers of
    /// that are behind us.
    pub(super) fn on_step_done(&mut self, operation: u16, step: u16, rank: Rank) -> Verdict {
        if newer16(operation, self.operation) {
            (self.operation, self.step) = (operation, 0);
            self.clear();
        }
        if operation != self.operation || step < self.step {
            return Verdict::Go(step + 1);
        }
        if step > self.step {
            return Verdict::Wait;
        }
        let (word, bit) = (rank.index() / 64, 1u64 << (rank.0 % 64));
        if self.arrived[word] & bit == 0 {
            self.arrived[word] |= bit;
            self.missing -= 1;
        }
        if self.missing > 0 {
            return Verdict::Wait;
        }
        self.step += 1;
        self.clear();
        Verdict::AllGo(self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_begins_when_all_have_told_whatever_is_repeated() {
        let mut all = Coordinator::new(3);
        for step in 0..4 {
            assert_eq!(all.on_step_done(0, step, Rank(2)), Verdict::Wait);
            assert_eq!(all.on_step_done(0, step, Rank(2)), Verdict::Wait);
            assert_eq!(all.on_step_done(0, step, Rank(0)), Verdict::Wait);
            assert_eq!(all.first_missing(), Some(Rank(1)));
            assert_eq!(all.on_step_done(0, step, Rank(1)), Verdict::AllGo(step + 1));
            assert_eq!(all.on_step_done(0, step, Rank(1)), Verdict::Go(step + 1), "the word was lost");
        }
        assert_eq!(all.on_step_done(1, 0, Rank(0)), Verdict::Wait, "the next operation");
        assert_eq!(all.on_step_done(0, 3, Rank(1)), Verdict::Go(4), "the word was lost, and the others went on");
        assert_eq!(all.on_step_done(1, 0, Rank(1)), Verdict::Wait);
        assert_eq!(all.on_step_done(1, 0, Rank(2)), Verdict::AllGo(1));
    }

    #[test]
    fn packets_of_the_next_step_may_come_first() {
        let mut barrier = Barrier::default();
        barrier.count(1);
        assert!(!barrier.is_news(1));
        barrier.count(0);
        assert!(barrier.is_news(1));
        barrier.tell(Instant::ZERO);
        assert!(!barrier.is_news(1));
        assert!(!barrier.go(2) && barrier.go(1) && !barrier.go(1));
        assert!(barrier.is_news(1));
    }
}
