//! Rounds that all workers of a job agree on (`a2tp 9`, P1 (a)): the server makes them, and its acknowledgements carry them.
//!
//! Round k is a stretch of fragment numbers: its length is the window (LCW), and its first ACW fragments go to aggregators. Round k+1 is made
//! when the first fragment of round k is complete, from what round k-1 has met, and every acknowledgement of a fragment of round k carries
//! it, also those that are sent again. A worker sends a fragment only when it knows its round, and it does: to send one of round k+1 it
//! must have got acknowledgements of round k. So no two workers ever send a fragment different ways, whatever was lost, and nobody
//! waits longer than its window makes it wait. The windows follow a round as late as the paper's do: when a round's end is acknowledged,
//! the next one is under way already.

use fanin_core::{Gauge, Instant};
use fanin_wire::atp::{AtpFlags, FragmentId, NextRound, Waited};

use super::flags::seen;
use crate::shared::aggregation::Rounds;
use crate::shared::serial::newer;
use crate::shared::two_windows::{Control, Tally, TwoWindowConfig};

/// A stretch of fragments.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Round {
    pub start: u32,
    pub length: u32,
    /// How many of them, from the first one on, go to aggregators.
    pub aggregated: u32,
}

impl Round {
    /// Where a job begins, as its workers and its server know without being told.
    pub fn first(config: &TwoWindowConfig) -> Self {
        let initial = config.initial.clamp(1, config.window);
        Round { start: 0, length: initial, aggregated: initial }
    }

    pub fn contains(&self, seq: u32) -> bool {
        seq.wrapping_sub(self.start) < self.length
    }

    pub fn end(&self) -> u32 {
        self.start.wrapping_add(self.length)
    }
}

/// Rounds that are remembered: fragments of two can be under way, and the one behind them is known.
const REMEMBERED: usize = 4;

/// What the server of a job says of rounds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum A2tpRounds {
    /// It makes them.
    Agreed(Box<AgreedRounds>),
    /// As in the paper, each worker makes its own; places go round the window.
    Own {
        /// The longest window.
        window: u32,
    },
}

impl A2tpRounds {
    /// Rounds that the server makes.
    pub fn agreed(config: TwoWindowConfig) -> Self {
        let first = Round::first(&config);
        let rounds = [first; REMEMBERED];
        A2tpRounds::Agreed(Box::new(AgreedRounds { control: Control::new(config), tally: Tally::new(&config), rounds, known: 1 }))
    }
}

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AgreedRounds {
    control: Control,
    tally: Tally,
    /// The latest rounds, the last one first.
    rounds: [Round; REMEMBERED],
    known: usize,
}

impl AgreedRounds {
    fn on_complete(&mut self, now: Instant, at: FragmentId, flags: AtpFlags, waited: Waited) -> (NextRound, u32) {
        if self.rounds[0].contains(at.seq) {
            // The first of the latest round: the one behind it begins to matter.
            if let Some(met) = self.tally.begin(now, at.tensor, self.rounds[0].length) {
                self.control.update(&met);
            }
            let next = Round { start: self.rounds[0].end(), length: self.control.length(), aggregated: self.control.aggregated() };
            self.rounds.rotate_right(1);
            self.rounds[0] = next;
            self.known = (self.known + 1).min(REMEMBERED);
        }
        let Some(index) = (1..self.known).find(|index| self.rounds[*index].contains(at.seq)) else {
            return (NextRound::default(), 0);
        };
        let (round, next) = (self.rounds[index], self.rounds[index - 1]);
        let place = at.seq.wrapping_sub(round.start);
        self.tally.count(now, at.tensor, seen(place < round.aggregated, flags, waited));
        let told =
            NextRound { ahead: next.start.wrapping_sub(at.seq) as u16, length: next.length as u16, aggregated: next.aggregated as u16 };
        (told, place)
    }
}

impl Rounds for A2tpRounds {
    #[inline]
    fn on_complete(&mut self, now: Instant, at: FragmentId, flags: AtpFlags, waited: Waited) -> (NextRound, u32) {
        match self {
            A2tpRounds::Agreed(rounds) => rounds.on_complete(now, at, flags, waited),
            A2tpRounds::Own { window } => (NextRound::default(), at.seq % *window),
        }
    }

    fn rebase(&mut self, now: Instant) {
        if let A2tpRounds::Agreed(rounds) = self {
            rounds.tally.rebase(now);
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        if let A2tpRounds::Agreed(rounds) = self {
            rounds.control.gauges(report);
        }
    }
}

/// The rounds that a worker has been told of.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct KnownRounds {
    /// The round of the next fragment that is sent, if it is known; and the one before.
    current: Round,
    before: Round,
    next: Option<Round>,
}

impl KnownRounds {
    pub fn new(config: &TwoWindowConfig) -> Self {
        let first = Round::first(config);
        KnownRounds { current: first, before: first, next: None }
    }

    /// The round that a fragment is in, and how long the window is there: no longer than the round before it, so that the fragment of the
    /// same place there is acknowledged before, and its aggregator free.
    pub fn of(&mut self, seq: u32) -> Option<(Round, u32)> {
        if seq == self.current.end()
            && let Some(next) = self.next.take()
        {
            (self.before, self.current) = (self.current, next);
        }
        self.current.contains(seq).then(|| (self.current, self.current.length.min(self.before.length)))
    }

    /// An acknowledgement tells the round behind its own.
    pub fn learn(&mut self, seq: u32, told: NextRound) {
        let start = seq.wrapping_add(u32::from(told.ahead));
        let (length, aggregated) = (u32::from(told.length), u32::from(told.aggregated));
        let fits = start == self.current.end() && length > 0 && aggregated <= length && newer(start, seq);
        if self.next.is_none() && fits {
            self.next = Some(Round { start, length, aggregated });
        }
    }

    pub fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        report(Gauge::AggregatorWindow, f64::from(self.current.aggregated));
        report(Gauge::LinkWindow, f64::from(self.current.length));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shared::real::Real;
    use crate::shared::two_windows::{CollisionsOf, Synchrony};

    const CONFIG: TwoWindowConfig = TwoWindowConfig {
        window: 64,
        initial: 5,
        threshold: Real::new(0.15),
        collision_weight: Real::new(0.5),
        mark_weight: Real::new(0.5),
        priority: Real::new(1.0),
        quiet_rounds: 0,
        aggregators_min: 1,
        links_min: 1,
        fair: false,
        col_only: false,
        collisions: CollisionsOf::Round,
        synchrony: Synchrony::Spread,
    };

    /// Workers that get acknowledgements more than once, and late, send each fragment the same way, and are never stuck.
    #[test]
    fn workers_agree_whatever_acknowledgements_they_get() {
        let draw = |worker: u64, seq: u32| fanin_core::hash::mix(worker, u64::from(seq));
        let mut server = AgreedRounds {
            control: Control::new(CONFIG),
            tally: Tally::new(&CONFIG),
            rounds: [Round::first(&CONFIG); REMEMBERED],
            known: 1,
        };
        let mut workers = [KnownRounds::new(&CONFIG), KnownRounds::new(&CONFIG)];
        let mut sent: [Vec<Round>; 2] = Default::default();
        let mut told: Vec<NextRound> = Vec::new();
        let mut places = std::collections::BTreeSet::new();
        for seq in 0..20_000u32 {
            for (number, worker) in workers.iter_mut().enumerate() {
                // Whatever is acknowledged within the window may or may not have been heard; in order, all was.
                let edge = u32::try_from(sent[number].len()).unwrap();
                while let Some((round, window)) = worker.of(sent[number].len() as u32) {
                    if sent[number].len() as u32 >= seq + window {
                        break;
                    }
                    sent[number].push(round);
                }
                assert!(sent[number].len() as u32 > seq, "worker {number} is stuck at {edge}");
            }
            let flags = match draw(9, seq) % 8 {
                0 => AtpFlags::COL,
                1 => AtpFlags::ECN,
                _ => AtpFlags::NONE,
            };
            let (next, place) =
                server.on_complete(Instant::from_ps(u64::from(seq) * 1_000), FragmentId { tensor: 0, seq }, flags, Waited::NOT);
            told.push(next);
            places.insert(place);
            for (number, worker) in workers.iter_mut().enumerate() {
                // The edge moves when each was heard, be it as the answer to a question; some come once more, late.
                let late = seq.checked_sub(3).filter(|old| draw(number as u64, *old) % 2 == 0);
                for heard in late.into_iter().chain([seq]) {
                    worker.learn(heard, told[heard as usize]);
                }
            }
        }
        let common = sent[0].len().min(sent[1].len());
        assert!(common >= 20_000);
        assert_eq!(sent[0][..common], sent[1][..common]);
        assert!(places.len() > 5 && *places.last().unwrap() < 64);
    }

    #[test]
    fn rounds_follow_each_other_without_gaps_and_a_worker_waits_for_what_it_does_not_know() {
        let mut known = KnownRounds::new(&CONFIG);
        assert_eq!(known.of(4).map(|(round, window)| (round.start, window)), Some((0, 5)));
        assert_eq!(known.of(5), None);
        known.learn(2, NextRound { ahead: 9, length: 4, aggregated: 2 });
        assert_eq!(known.of(5), None, "not the round behind this one");
        known.learn(2, NextRound { ahead: 3, length: 4, aggregated: 5 });
        assert_eq!(known.of(5), None, "more to aggregators than there are");
        known.learn(2, NextRound { ahead: 3, length: 7, aggregated: 2 });
        let (round, window) = known.of(5).unwrap();
        assert_eq!((round.start, round.length, round.aggregated, window), (5, 7, 2, 5));
    }
}
