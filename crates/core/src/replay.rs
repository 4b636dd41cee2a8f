//! The hop sequence: every hop between two Fanin nodes numbers its packets, and the receiver drops repeats.
//!
//! Counters cannot see a duplicated packet (Canary adds counts, SwitchML's bit is clear again two rounds later), so duplicates are
//! dropped here, below every protocol. Same idea as the anti-replay window of RFC 4303, 3.4.3.

use crate::event::DropReason;

const WORDS: usize = 16;

/// Remembers which of the last [`ReplayWindow::SPAN`] sequence numbers of one link epoch have been seen.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ReplayWindow {
    /// One past the highest sequence number seen.
    next: u64,
    /// Bit `s % SPAN` tells whether `s` was seen, for `next - SPAN <= s < next`.
    seen: [u64; WORDS],
}

impl ReplayWindow {
    /// How far a packet may be behind the newest one and still be accepted.
    pub const SPAN: u64 = (WORDS * 64) as u64;

    /// Nothing seen yet; sequence numbers begin at 0.
    pub const fn new() -> Self {
        ReplayWindow { next: 0, seen: [0; WORDS] }
    }

    /// The number of which only the low half travelled: of those that end in it, the one nearest to the newest that was seen, as QUIC
    /// does it (RFC 9000, appendix A.3). Right for packets that are up to 2^31 late, four minutes at 100 Gbit/s, where the Internet's
    /// protocols give a datagram two to live.
    #[inline]
    pub fn whole(&self, low: u32) -> u64 {
        let ahead = low.wrapping_sub(self.next as u32);
        // Nothing is before the first.
        self.next.checked_add_signed(i64::from(ahead as i32)).unwrap_or_else(|| self.next.saturating_add(u64::from(ahead)))
    }

    /// Whether the packet with this number is new; remembers it if so.
    ///
    /// # Errors
    /// [`DropReason::Repeated`] for a number seen before, [`DropReason::TooOld`] for one that has left the window.
    #[inline]
    pub fn accept(&mut self, sequence: u64) -> Result<(), DropReason> {
        if sequence >= self.next {
            self.advance(sequence);
            return Ok(());
        }
        if self.next - sequence > Self::SPAN {
            return Err(DropReason::TooOld);
        }
        let bit = 1u64 << (sequence % 64);
        let word = &mut self.seen[(sequence / 64) as usize % WORDS];
        if *word & bit != 0 {
            return Err(DropReason::Repeated);
        }
        *word |= bit;
        Ok(())
    }

    /// Moves the window so that `sequence` is its newest member, and marks it.
    #[inline]
    fn advance(&mut self, sequence: u64) {
        if sequence - self.next >= Self::SPAN {
            self.seen = [0; WORDS];
        } else {
            let mut skipped = self.next;
            while skipped < sequence {
                if skipped.is_multiple_of(64) && sequence - skipped >= 64 {
                    self.seen[(skipped / 64) as usize % WORDS] = 0;
                    skipped += 64;
                } else {
                    self.seen[(skipped / 64) as usize % WORDS] &= !(1 << (skipped % 64));
                    skipped += 1;
                }
            }
        }
        self.seen[(sequence / 64) as usize % WORDS] |= 1 << (sequence % 64);
        self.next = sequence + 1;
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

    #[test]
    fn a_repeat_is_dropped_and_a_late_first_copy_is_not() {
        let mut window = ReplayWindow::new();
        assert_eq!(window.accept(0), Ok(()));
        assert_eq!(window.accept(0), Err(DropReason::Repeated));
        assert_eq!(window.accept(5), Ok(()));
        assert_eq!(window.accept(3), Ok(()));
        assert_eq!(window.accept(3), Err(DropReason::Repeated));
        assert_eq!(window.accept(5 + ReplayWindow::SPAN), Ok(()));
        assert_eq!(window.accept(5), Err(DropReason::TooOld));
        assert_eq!(window.accept(6), Ok(()));
    }

    #[test]
    fn half_a_number_is_made_whole() {
        let mut window = ReplayWindow::new();
        assert_eq!((window.whole(0), window.whole(7), window.whole(u32::MAX)), (0, 7, u64::from(u32::MAX)));
        // All along, over several turns of the half that travels, with packets that are late or went ahead.
        let step = (1u64 << 31) - 3_000;
        for newest in (0..12).map(|turn| turn * step) {
            assert_eq!(window.accept(window.whole(newest as u32)), Ok(()), "{newest}");
            for number in (newest.saturating_sub(1_000)..newest + 1_000).chain([newest + step]) {
                assert_eq!(window.whole(number as u32), number);
            }
            assert_eq!(window.accept(window.whole(newest as u32)), Err(DropReason::Repeated), "{newest}");
        }
    }

    #[test]
    fn agrees_with_a_set_of_all_numbers_seen() {
        let (mut window, mut seen, mut newest) = (ReplayWindow::new(), BTreeSet::new(), 0u64);
        for round in 0..200_000u64 {
            let draw = crate::hash::mix(7, round);
            let sequence = match draw % 100 {
                0 => newest + draw / 100 % 3_000,
                1..=40 => newest + draw / 100 % 4,
                _ => newest.saturating_sub(draw / 100 % 1_500),
            };
            let expected = if newest >= ReplayWindow::SPAN && sequence < newest + 1 - ReplayWindow::SPAN && !seen.is_empty() {
                Err(DropReason::TooOld)
            } else if seen.insert(sequence) {
                Ok(())
            } else {
                Err(DropReason::Repeated)
            };
            assert_eq!(window.accept(sequence), expected, "sequence {sequence}, newest {newest}, round {round}");
            if expected.is_ok() {
                newest = newest.max(sequence);
            }
        }
    }
}
