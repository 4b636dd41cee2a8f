//! The window of an ATP worker: additive increase, halved where congestion was experienced (`a2tp 5.7`, `a2tp 9` P12).

use fanin_core::{Gauge, Instant};
use fanin_wire::atp::{AtpFlags, NextRound, Waited};

use crate::shared::aggregation::{Acknowledged, Rounds, Way, Windows};
use crate::shared::real::Real;
use crate::shared::serial::newer;

/// How a window begins and grows.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct AtpWindowConfig {
    /// The longest window in fragments; also the number of places.
    pub window: u32,
    /// The first one.
    pub initial: u32,
    /// By how much it grows in a round trip, in fragments: 1500 bytes of them (`a2tp 5.7`).
    pub increase: Real,
}

/// The window of one worker. All workers of a job see the same acknowledgements, so theirs are much alike; where they differ, nothing but
/// time is lost, for every fragment goes to an aggregator.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AtpWindow {
    config: AtpWindowConfig,
    size: Real,
    /// One past the last fragment of the round.
    round_end: u32,
    /// The window was halved in this round.
    halved: bool,
}

impl AtpWindow {
    /// The window that a worker begins with.
    pub fn new(config: AtpWindowConfig) -> Self {
        let initial = config.initial.clamp(1, config.window);
        AtpWindow { config, size: Real::new(f64::from(initial)), round_end: initial, halved: false }
    }

    /// The window in fragments.
    pub fn size(&self) -> u32 {
        self.size.whole(self.config.window)
    }
}

impl Windows for AtpWindow {
    #[inline]
    fn way(&mut self, _now: Instant, seq: u32, edge: u32) -> Option<Way> {
        (seq.wrapping_sub(edge) < self.size()).then_some(Way { aggregated: true, place: seq % self.config.window })
    }

    /// Halves once a round; a round is a window's worth of fragments.
    #[inline]
    fn on_ack(&mut self, _now: Instant, ack: &Acknowledged) {
        if ack.flags.has(AtpFlags::ECN) && !self.halved {
            self.halved = true;
            self.size = Real::new((self.size.get() / 2.0).max(1.0));
        }
        if newer(self.round_end, ack.edge) {
            return;
        }
        if !self.halved {
            self.size = Real::new((self.size.get() + self.config.increase.get()).min(f64::from(self.config.window)));
        }
        (self.round_end, self.halved) = (ack.next, false);
        if self.round_end == ack.edge {
            // All that was sent is here: what comes next is a round.
            self.round_end = ack.edge.wrapping_add(self.size());
        }
    }

    fn echoes(&self) -> bool {
        false
    }

    fn rebase(&mut self, _now: Instant) {}

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        report(Gauge::AggregatorWindow, self.size.get());
        report(Gauge::LinkWindow, self.size.get());
    }
}

/// An ATP server says nothing of rounds: each worker makes its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AtpRounds {
    window: u32,
}

impl AtpRounds {
    /// For workers with so long a window at most.
    pub const fn new(window: u32) -> Self {
        AtpRounds { window }
    }
}

impl Rounds for AtpRounds {
    #[inline]
    fn on_complete(&mut self, _now: Instant, at: fanin_wire::atp::FragmentId, _flags: AtpFlags, _waited: Waited) -> (NextRound, u32) {
        (NextRound::default(), at.seq % self.window)
    }

    fn rebase(&mut self, _now: Instant) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ack(seq: u32, next: u32, flags: AtpFlags) -> Acknowledged {
        Acknowledged { seq, aggregated: true, edge: seq + 1, next, flags, round: NextRound::default(), waited: Waited::NOT }
    }

    /// Acknowledges a round of fragments as they were sent; marks one of them, if any.
    fn round(window: &mut AtpWindow, edge: &mut u32, mark: bool) -> u32 {
        let size = window.size();
        for step in 0..size {
            let flags = if mark && step == 0 { AtpFlags::ECN } else { AtpFlags::NONE };
            window.on_ack(Instant::ZERO, &ack(*edge, *edge + size, flags));
            *edge += 1;
        }
        window.size()
    }

    #[test]
    fn the_window_grows_by_a_step_a_round_and_is_halved_once_where_marks_come() {
        let config = AtpWindowConfig { window: 100, initial: 20, increase: Real::new(5.0) };
        let (mut window, mut edge) = (AtpWindow::new(config), 0);
        assert_eq!(window.way(Instant::ZERO, 19, 0), Some(Way { aggregated: true, place: 19 }));
        assert_eq!(window.way(Instant::ZERO, 20, 0), None);
        assert_eq!(round(&mut window, &mut edge, false), 25);
        for _ in 0..40 {
            round(&mut window, &mut edge, false);
        }
        assert_eq!(window.size(), 100, "never longer than it may be");
        let config = AtpWindowConfig { window: 100, initial: 40, increase: Real::new(5.0) };
        let mut window = AtpWindow::new(config);
        for seq in 0..20 {
            window.on_ack(Instant::ZERO, &ack(seq, seq + 40, AtpFlags::ECN));
        }
        assert_eq!(window.size(), 20, "once, however many marks a round has");
    }

    #[test]
    fn a_window_never_closes() {
        let config = AtpWindowConfig { window: 8, initial: 4, increase: Real::new(0.25) };
        let (mut window, mut edge) = (AtpWindow::new(config), 0);
        for _ in 0..50 {
            round(&mut window, &mut edge, true);
        }
        assert_eq!(window.size(), 1);
    }
}
