//! How far the contributions of a fragment are apart: what its workers' stragglers cost, told from what the network costs (`a2tp 8`, gap 3).
//!
//! Only who adds contributions up can see that, and it is seen piece by piece: an aggregator keeps when its first contribution came
//! (`a2tp 3`, the timestamp) and says with its sum how long that has waited for the last one; whoever adds that sum to something takes it as
//! begun so much earlier than it came. What all contributions meet alike, such as a queue in front of the server, drops out, and no two
//! clocks are ever compared. It is unknown where something else has kept contributions apart: one was lost and sent again, or an
//! aggregator that would never fill had to be flushed.

use fanin_core::Instant;
use fanin_wire::atp::Waited;

use crate::shared::rtt::rebased;

/// When the first of the contributions that are here would have come if none had waited elsewhere.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Spread {
    first: Instant,
    known: bool,
}

impl Spread {
    /// Of nothing.
    pub const NONE: Spread = Spread { first: Instant::ZERO, known: true };
    /// Of a contribution that needed no link: it came ahead of all others, and says nothing of how far those are apart.
    pub const AHEAD: Spread = Spread { first: Instant::FAR_FUTURE, known: true };
    /// Says nothing of the workers.
    pub const UNKNOWN: Spread = Spread { first: Instant::ZERO, known: false };

    /// The first contributions are here.
    #[inline]
    pub fn begin(now: Instant, waited: Waited, attempt: u8) -> Self {
        match waited.duration() {
            Some(waited) if attempt == 0 => Spread { first: Instant::from_ps(now.as_ps().saturating_sub(waited.as_ps())), known: true },
            _ => Spread::UNKNOWN,
        }
    }

    /// More are here.
    #[inline]
    pub fn join(&mut self, now: Instant, waited: Waited, attempt: u8) {
        let other = Spread::begin(now, waited, attempt);
        *self = Spread { first: self.first.min(other.first), known: self.known && other.known };
    }

    /// How far apart they are when the last one has come now.
    #[inline]
    pub fn waited(self, now: Instant) -> Waited {
        if self.known { Waited::of(now.since(self.first)) } else { Waited::UNKNOWN }
    }

    pub fn rebase(&mut self, now: Instant) {
        if self.first != Instant::FAR_FUTURE {
            self.first = rebased(self.first, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::Duration;

    #[test]
    fn what_waited_elsewhere_counts_from_its_beginning_and_what_was_lost_does_not_count() {
        let at = |us: u64| Instant::ZERO + Duration::from_us(us);
        let waited = |us: u64| Waited::of(Duration::from_us(us));
        let mut spread = Spread::begin(at(10), Waited::NOT, 0);
        assert_eq!(spread.waited(at(10)), Waited::NOT);
        // A sum of other contributions comes 2 us later: the first of them was 5 us earlier than this one.
        spread.join(at(12), waited(7), 0);
        assert_eq!(spread.waited(at(12)), waited(7));
        spread.join(at(13), Waited::NOT, 0);
        assert_eq!(spread.waited(at(13)), waited(8));
        for (told, attempt) in [(Waited::NOT, 1), (Waited::UNKNOWN, 0)] {
            let mut spread = spread;
            spread.join(at(14), told, attempt);
            assert_eq!((spread.waited(at(14)), Spread::begin(at(14), told, attempt).waited(at(14))), (Waited::UNKNOWN, Waited::UNKNOWN));
        }
        let mut ahead = Spread::AHEAD;
        ahead.join(at(20), waited(2), 0);
        assert_eq!(ahead.waited(at(21)), waited(3), "from the first one that came by a link");
        // A clock that has just begun, and a packet that claims the impossible.
        assert_eq!(Spread::begin(at(1), waited(3), 0).waited(at(1)), waited(1));
    }
}
