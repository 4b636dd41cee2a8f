//! How many blocks a worker has under way: as many as it is told, or as many as the network bears.
//!
//! The paper has no window (`canary 8`, gap 3). With a long one, what holds one worker back keeps all apart: sums leave switches without
//! its contributions, which then go to leaders by themselves, and fill queues and arrays of descriptors. How long is too long depends on
//! paths, tables and others' traffic. A2TP has the two signals that tell, and a law for each (`a2tp 5.7`): the share of packets that met a
//! collision in a switch, and the share that met a long queue. Here both come with a block's sum, as [`CanaryMarks`].
//!
//! A2TP has a window for each and sends what is beyond the one for aggregators to the server, past them. Canary's leader has one link, as
//! all hosts have, and no room for contributions that nobody has summed; so the smaller window counts ([`Control::aggregated`]). In A2TP
//! all workers of a job must agree about a fragment's way, or an aggregator waits for who does not come (`a2tp 9`, P1). Canary's switches wait
//! for nobody, so each worker has windows of its own, and what one of them has missed, or was told alone, does no harm.

use fanin_core::{Gauge, Instant};
use fanin_wire::canary::CanaryMarks;

use super::worker::asking::SPREAD;
#[cfg(doc)]
use crate::shared::two_windows::Control;
use crate::shared::two_windows::{OwnRounds, Seen, TwoWindowConfig};

/// A worker's window.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Windows {
    /// What it is made from; nothing where it is fixed.
    rounds: Option<Box<OwnRounds>>,
    length: u32,
    reach: u32,
    reach_max: u32,
}

impl Windows {
    /// Always so many blocks, none of them so far ahead of the first one whose sum is missing.
    pub(super) fn fixed(length: u32, reach: u32) -> Self {
        Windows { rounds: None, length, reach, reach_max: reach }
    }

    /// As many as these windows say.
    pub(super) fn two(config: TwoWindowConfig, reach: u32) -> Self {
        let mut windows = Windows { rounds: Some(Box::new(OwnRounds::new(config))), ..Windows::fixed(1, reach) };
        windows.look();
        windows
    }

    /// Whether it follows what blocks have met.
    #[inline]
    pub(super) fn follows(&self) -> bool {
        self.rounds.is_some()
    }

    /// So many blocks may be under way.
    #[inline]
    pub(super) fn length(&self) -> u32 {
        self.length
    }

    /// A block may be sent less than this ahead of the first one whose sum is missing: as far as with a fixed window of the same length.
    #[inline]
    pub(super) fn reach(&self) -> u32 {
        self.reach
    }

    /// The sum of a block is here, and what the block has met; `edge` is now the first block without a sum, and `next` the first that has not
    /// been sent, by numbers in the job.
    pub(super) fn on_sum(&mut self, now: Instant, operation: u32, (edge, next): (u32, u32), marks: CanaryMarks) {
        let Some(rounds) = &mut self.rounds else { return };
        let seen = Seen {
            aggregated: true,
            wanted: marks.has(CanaryMarks::COLLISION),
            refused: false,
            marked: marks.has(CanaryMarks::CONGESTION),
            waited: None,
        };
        if rounds.on_answer(now, operation, (edge, next), self.length, seen) {
            self.look();
        }
    }

    fn look(&mut self) {
        if let Some(rounds) = &self.rounds {
            self.length = rounds.control().aggregated();
            self.reach = self.length.saturating_mul(SPREAD).min(self.reach_max);
        }
    }

    /// Makes times relative to `now`.
    pub(super) fn rebase(&mut self, now: Instant) {
        if let Some(rounds) = &mut self.rounds {
            rounds.rebase(now);
        }
    }

    pub(super) fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        if let Some(rounds) = &self.rounds {
            rounds.control().gauges(report);
        }
    }
}
