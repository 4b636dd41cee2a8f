//! The windows of an A2TP worker: those that the server makes for all, or its own as in the paper.

use fanin_core::{Gauge, Instant};

use super::flags::seen;
use super::rounds::{KnownRounds, Round};
use crate::shared::aggregation::{Acknowledged, Way, Windows};
use crate::shared::two_windows::{OwnRounds, TwoWindowConfig};

/// The windows of one worker.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum A2tpWindows {
    /// The server's.
    Agreed(Box<AgreedWindows>),
    /// Its own.
    Own(Box<OwnWindows>),
}

/// What a worker knows of the server's rounds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct AgreedWindows {
    rounds: KnownRounds,
    window: u32,
    /// For tests: takes a round's share of aggregators for larger or smaller than it is, in turn.
    disagrees: bool,
}

impl A2tpWindows {
    /// Windows that the server makes.
    pub fn agreed(config: TwoWindowConfig) -> Self {
        let rounds = KnownRounds::new(&config);
        A2tpWindows::Agreed(Box::new(AgreedWindows { rounds, window: config.window, disagrees: false }))
    }

    /// Windows of its own.
    pub fn own(config: TwoWindowConfig) -> Self {
        let round = Round::first(&config);
        A2tpWindows::Own(Box::new(OwnWindows { rounds: OwnRounds::new(config), round }))
    }

    /// Makes a worker send fragments another way than the server says, to show what becomes of it (P1).
    pub fn disagree(&mut self) {
        match self {
            A2tpWindows::Agreed(windows) => windows.disagrees = true,
            A2tpWindows::Own(windows) => windows.round.aggregated = 1,
        }
    }
}

impl AgreedWindows {
    #[inline]
    fn way(&mut self, seq: u32, edge: u32) -> Option<Way> {
        let (round, window) = self.rounds.of(seq)?;
        if seq.wrapping_sub(edge) >= window.min(self.window) {
            return None;
        }
        let place = seq.wrapping_sub(round.start);
        let aggregated = if self.disagrees { place % 2 == 1 } else { place < round.aggregated };
        Some(Way { aggregated, place: place % self.window })
    }
}

/// The windows of a worker that makes its own: all of them see the same acknowledgements and the same marks, but not at the same time,
/// so that workers of a job may send a fragment different ways (P1).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct OwnWindows {
    rounds: OwnRounds,
    round: Round,
}

impl OwnWindows {
    #[inline]
    fn way(&mut self, seq: u32, edge: u32) -> Option<Way> {
        let control = self.rounds.control();
        if seq.wrapping_sub(edge) >= control.length() {
            return None;
        }
        if !self.round.contains(seq) {
            self.round = Round { start: seq, length: control.length(), aggregated: control.aggregated() };
        }
        let aggregated = seq.wrapping_sub(self.round.start) < self.round.aggregated;
        Some(Way { aggregated, place: seq % control.config().window })
    }

    /// Once for a window's worth of fragments.
    fn on_ack(&mut self, now: Instant, ack: &Acknowledged) {
        let window = self.rounds.control().length();
        self.rounds.on_answer(now, 0, (ack.edge, ack.next), window, seen(ack.aggregated, ack.flags, ack.waited));
    }
}

impl Windows for A2tpWindows {
    #[inline]
    fn way(&mut self, _now: Instant, seq: u32, edge: u32) -> Option<Way> {
        match self {
            A2tpWindows::Agreed(windows) => windows.way(seq, edge),
            A2tpWindows::Own(windows) => windows.way(seq, edge),
        }
    }

    #[inline]
    fn on_ack(&mut self, now: Instant, ack: &Acknowledged) {
        match self {
            A2tpWindows::Agreed(windows) => windows.rounds.learn(ack.seq, ack.round),
            A2tpWindows::Own(windows) => windows.on_ack(now, ack),
        }
    }

    fn echoes(&self) -> bool {
        matches!(self, A2tpWindows::Agreed(_))
    }

    fn rebase(&mut self, now: Instant) {
        if let A2tpWindows::Own(windows) = self {
            windows.rounds.rebase(now);
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        match self {
            A2tpWindows::Agreed(windows) => windows.rounds.gauges(report),
            A2tpWindows::Own(windows) => windows.rounds.control().gauges(report),
        }
    }
}
