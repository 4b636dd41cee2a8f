//! The hop sequence: every hop between two Fanin nodes numbers its packets, and the receiver drops repeats.
//!
//! Counters cannot see a duplicated packet (Canary adds counts, SwitchML's bit is clear again two rounds later), so duplicates are
//! dropped here, below every protocol. The idea is that of the anti-replay window of RFC 4303, 3.4.3, with one difference: that window
//! ends at the highest number that was seen, so one packet with a forged or damaged number ahead makes all real ones too old. This one
//! is longer than what may be late, and slides by a word when [`ReplayWindow::EVIDENCE`] numbers of its upper part are there, but by no
//! more than four numbers for each packet that came there. What is beyond its end is not decided here, see
//! [`LinkSequence`](crate::LinkSequence).

use crate::event::DropReason;

const WORDS: usize = ReplayWindow::WORDS;
const WORD_BITS: u64 = 64;

/// Remembers which of [`ReplayWindow::LENGTH`] sequence numbers have been seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReplayWindow {
    /// The lowest number that can still be accepted, a multiple of the bits of a word.
    base: u64,
    /// How many numbers from `base + SPAN` on have been seen.
    upper: u32,
    /// By how many numbers the window may slide.
    credit: u32,
    /// Bit `s % LENGTH` tells whether `s` was seen, for `base <= s < base + LENGTH`.
    seen: [u64; WORDS],
}

impl ReplayWindow {
    /// How far a packet may be behind the others and still be accepted.
    pub const SPAN: u64 = 1_024;
    /// How many numbers the window has.
    pub const LENGTH: u64 = WORDS as u64 * WORD_BITS;
    /// So many numbers of the window's upper part must be there before it slides.
    pub const EVIDENCE: u32 = 128;
    /// Words of 64 numbers.
    pub const WORDS: usize = 64;
    /// A packet in the window's upper part lets the window slide by so many numbers: where more than three of four packets are lost, numbers
    /// are soon beyond its end.
    pub const CREDIT: u32 = 4;
    /// So much of that is kept. Less than the span, so that the real packets do not fall out where others have come far ahead of them.
    pub const CREDIT_MAX: u32 = 512;

    /// Nothing seen yet; sequence numbers begin at 0.
    pub const fn new() -> Self {
        ReplayWindow::from(0)
    }

    /// Nothing seen yet; numbers below `first`, rounded down to a whole word, are too old.
    pub const fn from(first: u64) -> Self {
        ReplayWindow { base: first - first % WORD_BITS, upper: 0, credit: 0, seen: [0; WORDS] }
    }

    /// The number of which only the low half travelled: of those that end in it, the one nearest to the window, as QUIC does it
    /// (RFC 9000, appendix A.3). Right for packets that are up to 2^31 late, four minutes at 100 Gbit/s, where the Internet's protocols
    /// give a datagram two to live.
    #[inline]
    pub fn whole(&self, low: u32) -> u64 {
        let near = self.middle();
        let ahead = low.wrapping_sub(near as u32);
        // Nothing is before the first.
        near.checked_add_signed(i64::from(ahead as i32)).unwrap_or(u64::from(low))
    }

    /// A number near the newest ones: what is later is in the window's upper part, or beyond it.
    #[inline]
    pub const fn middle(&self) -> u64 {
        self.base + Self::SPAN
    }

    /// One past the last number of the window.
    #[inline]
    pub const fn end(&self) -> u64 {
        self.base + Self::LENGTH
    }

    /// One past the last number that was seen; where none of the window's was, its first.
    pub fn past(&self) -> u64 {
        let words = (0..WORDS as u64).rev().map(|word| self.base + word * WORD_BITS);
        let last = words.map(|first| (first, self.seen[(first / WORD_BITS) as usize % WORDS])).find(|(_, bits)| *bits != 0);
        last.map_or(self.base, |(first, bits)| first + WORD_BITS - u64::from(bits.leading_zeros()))
    }

    /// Whether the packet with this number is new; remembers it if so.
    ///
    /// # Errors
    /// [`DropReason::Repeated`] for a number seen before, [`DropReason::TooOld`] for one that has left the window, and
    /// [`DropReason::Unproven`] for one from [`ReplayWindow::end`] on.
    #[inline]
    pub fn accept(&mut self, sequence: u64) -> Result<(), DropReason> {
        let Some(at) = sequence.checked_sub(self.base) else { return Err(DropReason::TooOld) };
        if at >= Self::LENGTH {
            return Err(DropReason::Unproven);
        }
        let bit = 1u64 << (sequence % WORD_BITS);
        let word = &mut self.seen[(sequence / WORD_BITS) as usize % WORDS];
        if *word & bit != 0 {
            return Err(DropReason::Repeated);
        }
        *word |= bit;
        if at >= Self::SPAN {
            self.upper += 1;
            self.credit = (self.credit + Self::CREDIT).min(Self::CREDIT_MAX);
            while self.upper >= Self::EVIDENCE && self.credit >= WORD_BITS as u32 {
                self.slide();
            }
        }
        Ok(())
    }

    /// Moves the window by a word.
    #[inline]
    fn slide(&mut self) {
        self.seen[(self.base / WORD_BITS) as usize % WORDS] = 0;
        self.upper -= self.seen[((self.base + Self::SPAN) / WORD_BITS) as usize % WORDS].count_ones();
        self.base += WORD_BITS;
        self.credit -= WORD_BITS as u32;
    }
}

impl Default for ReplayWindow {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    const SPAN: u64 = ReplayWindow::SPAN;
    const END: u64 = ReplayWindow::LENGTH;

    #[test]
    fn a_repeat_is_dropped_and_a_late_first_copy_is_not() {
        let mut window = ReplayWindow::new();
        assert_eq!(window.accept(0), Ok(()));
        assert_eq!(window.accept(0), Err(DropReason::Repeated));
        assert_eq!(window.accept(5), Ok(()));
        assert_eq!(window.accept(3), Ok(()));
        assert_eq!(window.accept(3), Err(DropReason::Repeated));
        // A run of packets: the last may be a span behind.
        for number in 6..6 + 2 * END {
            assert_eq!(window.accept(number), Ok(()), "{number}");
            if number >= 6 + SPAN {
                assert_eq!(window.accept(number - SPAN), Err(DropReason::Repeated), "{number}");
            }
        }
        assert_eq!(window.accept(4), Err(DropReason::TooOld));
    }

    #[test]
    fn what_is_past_the_last_number_is_known_wherever_the_window_is() {
        let mut window = ReplayWindow::new();
        assert_eq!(window.past(), 0);
        let mut past = 0;
        for number in (0..3 * END).chain([3 * END + 70, 3 * END + 4, 2 * END + 500 + SPAN]) {
            let _ = window.accept(number);
            past = past.max(number + 1);
            assert_eq!(window.past(), past, "{number}");
        }
        let _ = window.accept(window.end());
        assert_eq!(window.past(), past, "what is not accepted has not come");
        assert_eq!(ReplayWindow::from(130).past(), 128);
    }

    #[test]
    fn a_number_far_ahead_moves_nothing() {
        let mut window = ReplayWindow::new();
        for number in 0..10_000 {
            assert_eq!(window.accept(number), Ok(()));
            // As far ahead as the window goes, and beyond it.
            assert_eq!(window.clone().accept(window.end() - 1), Ok(()));
            assert_eq!(window.accept(window.end()), Err(DropReason::Unproven));
        }
        // A hundred of them in the window do not take it away from those behind them, which still come, once each.
        let end = window.end();
        for ahead in 1..100 {
            assert_eq!(window.accept(end - ahead), Ok(()));
        }
        for number in 10_000..10_100 {
            assert_eq!(window.accept(number), Ok(()));
            assert_eq!(window.accept(number), Err(DropReason::Repeated));
        }
        // The window moves with what comes.
        (10_100..end - 100).for_each(|number| assert_eq!(window.accept(number), Ok(()), "{number}"));
        assert!(window.end() > end + 1_000);
    }

    #[test]
    fn half_a_number_is_made_whole() {
        let window = ReplayWindow::new();
        assert_eq!((window.whole(0), window.whole(7), window.whole(u32::MAX)), (0, 7, u64::from(u32::MAX)));
        // All along, over several turns of the half that travels, with packets that are late or went ahead.
        let step = (1u64 << 31) - 3_000;
        for newest in (0..12).map(|turn| turn * step) {
            let mut window = ReplayWindow::from(newest);
            assert_eq!(window.accept(window.whole(newest as u32)), Ok(()), "{newest}");
            for number in (newest.saturating_sub(1_000)..newest + 1_000).chain([newest + step]) {
                assert_eq!(window.whole(number as u32), number);
            }
            assert_eq!(window.accept(window.whole(newest as u32)), Err(DropReason::Repeated), "{newest}");
        }
    }

    /// The rule, with all numbers ever seen.
    struct Oracle {
        base: u64,
        credit: u64,
        seen: BTreeSet<u64>,
    }

    impl Oracle {
        fn accept(&mut self, sequence: u64) -> Result<(), DropReason> {
            if sequence < self.base {
                return Err(DropReason::TooOld);
            } else if sequence >= self.base + END {
                return Err(DropReason::Unproven);
            } else if !self.seen.insert(sequence) {
                return Err(DropReason::Repeated);
            }
            if sequence >= self.base + SPAN {
                self.credit = (self.credit + 4).min(512);
            }
            while self.seen.range(self.base + SPAN..).count() >= ReplayWindow::EVIDENCE as usize && self.credit >= 64 {
                self.base += 64;
                self.credit -= 64;
            }
            Ok(())
        }
    }

    #[test]
    fn agrees_with_a_set_of_all_numbers_seen() {
        for seed in 0..8 {
            let (mut window, mut oracle, mut newest) = (ReplayWindow::new(), Oracle { base: 0, credit: 0, seen: BTreeSet::new() }, 0u64);
            for round in 0..20_000u64 {
                let draw = crate::hash::mix(seed, round);
                let sequence = match draw % 100 {
                    0 => newest + draw / 100 % 6_000,
                    1..=40 => newest + draw / 100 % 4,
                    _ => newest.saturating_sub(draw / 100 % 1_500),
                };
                let expected = oracle.accept(sequence);
                assert_eq!(window.accept(sequence), expected, "sequence {sequence}, newest {newest}, round {round}, seed {seed}");
                if expected.is_ok() && sequence < newest + 10 {
                    newest = newest.max(sequence);
                }
            }
            assert!(oracle.base > 10_000, "{}", oracle.base);
        }
    }
}
