//! Who has not contributed where sums are made, but lives: it is held up by somebody else, as it says when it is asked. A worker that is an
//! operation behind, since it lacks a sum of a leader or server that has died, is missing at all others; who is to be named is the dead one.

use fanin_core::{Duration, Instant, Rank};

use crate::shared::rtt::rebased;

/// Somebody who is waited for: a worker, or what else a protocol has.
pub(crate) trait Whom: Copy + PartialEq {
    /// A worker.
    fn worker(rank: Rank) -> Self;

    /// Which worker it is.
    fn rank(self) -> Option<Rank>;
}

impl Whom for Rank {
    fn worker(rank: Rank) -> Self {
        rank
    }

    fn rank(self) -> Option<Rank> {
        Some(self)
    }
}

/// What somebody has said of whom it waits for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Excuse<W> {
    rank: Rank,
    /// Whom it waits for; `None` where it cannot tell.
    missing: Option<W>,
    at: Instant,
}

/// The last word of each.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Excuses<W>(Vec<Excuse<W>>);

impl<W: Whom> Excuses<W> {
    /// Nobody has said anything.
    pub(crate) const NONE: Self = Excuses(Vec::new());

    /// Somebody has said whom it waits for.
    pub(crate) fn add(&mut self, now: Instant, rank: Rank, missing: Option<W>) {
        let excuse = Excuse { rank, missing, at: now };
        match self.0.iter_mut().find(|known| known.rank == rank) {
            Some(known) => *known = excuse,
            None => self.0.push(excuse),
        }
    }

    /// Whom somebody waits for that lives: a word that has not been repeated for a quarter of the patience says nothing any more.
    fn of(&self, rank: Rank, now: Instant, patience: Duration) -> Option<Option<W>> {
        let known = self.0.iter().find(|known| known.rank == rank)?;
        (now.since(known.at) < patience.divided(4)).then_some(known.missing)
    }

    /// Who keeps a block waiting, of those who have not contributed: the first that has not said that it waits itself; where all have, whom they
    /// wait for, if that is not one of those, nor `own`, who wants to know.
    pub(crate) fn missing(
        &self,
        mut absent: impl Iterator<Item = Rank> + Clone,
        own: Option<Rank>,
        (now, patience): (Instant, Duration),
    ) -> Option<W> {
        let first = absent.clone().next().map(W::worker);
        if self.0.is_empty() {
            return first;
        }
        let is_excused = |rank: Rank| self.of(rank, now, patience).is_some();
        let silent = absent.clone().find(|rank| !is_excused(*rank)).map(W::worker);
        let is_news = |named: W| named.rank().is_none_or(|rank| Some(rank) != own && !is_excused(rank));
        let named = || absent.find_map(|rank| self.of(rank, now, patience)?.filter(|named| is_news(*named)));
        silent.or_else(named).or(first)
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    /// Makes times relative to `now`.
    pub(crate) fn rebase(&mut self, now: Instant) {
        self.0.iter_mut().for_each(|excuse| excuse.at = rebased(excuse.at, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_us(400);

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    fn missing(excuses: &Excuses<Rank>, absent: &[u32], us: u64) -> Option<u32> {
        excuses.missing(absent.iter().copied().map(Rank), Some(Rank(0)), (at(us), PATIENCE)).map(|rank| rank.0)
    }

    #[test]
    fn who_waits_itself_is_not_missing_but_whom_it_waits_for() {
        let mut excuses = Excuses::NONE;
        assert_eq!((missing(&excuses, &[3, 5], 0), missing(&excuses, &[], 0)), (Some(3), None));
        excuses.add(at(10), Rank(3), Some(Rank(5)));
        assert_eq!(missing(&excuses, &[3, 5], 20), Some(5), "it has said nothing");
        assert_eq!(missing(&excuses, &[3], 20), Some(5), "it had contributed before it died");
        excuses.add(at(20), Rank(2), Some(Rank(3)));
        assert_eq!(missing(&excuses, &[2, 3], 30), Some(5), "who waits for one that waits is no help");
        excuses.add(at(30), Rank(3), Some(Rank(0)));
        assert_eq!(missing(&excuses, &[3], 40), Some(3), "nobody takes himself for missing");
        excuses.add(at(40), Rank(3), None);
        assert_eq!(missing(&excuses, &[3], 50), Some(3));
        assert_eq!(missing(&excuses, &[2, 5], 139), Some(2), "the word of rank 2 is too old, and rank 5 is behind it");
    }
}
