//! What a leader finds out about losses without being asked.
//!
//! Workers send their blocks in order. So the sum of a later block tells that all who contributed to it have contributed to every block before
//! it; and the sums of two later blocks with different leaders tell that all have, for a leader sends no contribution to its own block.
//! Where that is known of a block of which contributions are missing, and the block is late ([`crate::shared::overtaking`]), something of it
//! is lost, and all others would only ask. That spares the requests, of which one or the other would be lost as well, and the time until the
//! last one is here.

use std::collections::VecDeque;

use fanin_core::Instant;

use crate::shared::rtt::rebased;

/// Until where all other workers have contributed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct SentByAll {
    /// All others have sent every block before this one: the last of the leader's own that is complete.
    own: u32,
    /// The last block of another leader whose sum is here, and that leader.
    last: (u32, u32),
    /// The last one of yet another leader.
    other: u32,
}

impl SentByAll {
    #[inline]
    fn on_sum(&mut self, index: u32, leader: u32) {
        if leader == self.last.1 {
            self.last.0 = self.last.0.max(index);
        } else if index > self.last.0 {
            (self.last, self.other) = ((index, leader), self.last.0);
        } else {
            self.other = self.other.max(index);
        }
    }

    #[inline]
    fn before(&self) -> u32 {
        self.own.max(self.other.min(self.last.0))
    }
}

/// A leader's eye on its blocks.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Watch {
    sent_by_all: SentByAll,
    /// Blocks that this worker leads and would have sent, were it not their leader: by index, and when; in order.
    passed: VecDeque<(u32, Instant)>,
    /// Blocks that were begun anew: by number in the job, the generation, and when; in order.
    anew: VecDeque<(u32, u8, Instant)>,
}

impl Watch {
    /// The worker has come to a block that it leads.
    #[inline]
    pub(super) fn on_passed(&mut self, now: Instant, index: u32) {
        self.passed.push_back((index, now));
    }

    /// A block was begun anew.
    pub(super) fn on_anew(&mut self, now: Instant, block: u32, generation: u8) {
        self.anew.push_back((block, generation, now));
    }

    /// The sum of a block of another leader has come.
    #[inline]
    pub(super) fn on_sum(&mut self, index: u32, leader: u32) {
        self.sent_by_all.on_sum(index, leader);
    }

    /// All others have contributed to a block that this worker leads.
    #[inline]
    pub(super) fn on_complete(&mut self, index: u32) {
        self.sent_by_all.own = self.sent_by_all.own.max(index);
    }

    /// The first block that was passed, and when.
    #[inline]
    pub(super) fn first_passed(&self) -> Option<(u32, Instant)> {
        self.passed.front().copied()
    }

    /// It is looked after.
    #[inline]
    pub(super) fn drop_passed(&mut self) {
        self.passed.pop_front();
    }

    /// The block that was begun anew longest ago.
    #[inline]
    pub(super) fn first_anew(&self) -> Option<(u32, u8, Instant)> {
        self.anew.front().copied()
    }

    /// It is looked after.
    pub(super) fn drop_anew(&mut self) {
        self.anew.pop_front();
    }

    /// Whether all others have contributed to the block with this index at least once.
    #[inline]
    pub(super) fn is_sent_by_all(&self, index: u32) -> bool {
        index < self.sent_by_all.before()
    }

    /// The operation has ended: indices begin anew.
    pub(super) fn rest(&mut self) {
        self.passed.clear();
        self.sent_by_all = SentByAll::default();
    }

    pub(super) fn clear(&mut self) {
        self.rest();
        self.anew.clear();
    }

    /// Makes times relative to `now`.
    pub(super) fn rebase(&mut self, now: Instant) {
        self.passed.iter_mut().for_each(|(_, at)| *at = rebased(*at, now));
        self.anew.iter_mut().for_each(|(_, _, at)| *at = rebased(*at, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_two_leaders_or_of_the_own_block_tell_that_all_have_sent() {
        let mut watch = Watch::default();
        watch.on_sum(5, 1);
        watch.on_sum(9, 1);
        assert!(!watch.is_sent_by_all(0), "worker 1 may not have come to it");
        watch.on_sum(7, 2);
        assert!(watch.is_sent_by_all(6) && !watch.is_sent_by_all(7));
        watch.on_sum(12, 3);
        assert!(watch.is_sent_by_all(8) && !watch.is_sent_by_all(9));
        watch.on_sum(14, 3);
        assert!(watch.is_sent_by_all(8) && !watch.is_sent_by_all(9));
        watch.on_sum(13, 1);
        assert!(watch.is_sent_by_all(12) && !watch.is_sent_by_all(13));
        watch.on_complete(16);
        assert!(watch.is_sent_by_all(15) && !watch.is_sent_by_all(16));
    }

    /// Against the definition: every other worker has contributed to a later block whose sum is here.
    #[test]
    fn agrees_with_the_definition() {
        for hosts in 2..6u64 {
            for seed in 0..200u64 {
                let mut watch = Watch::default();
                let mut sums: Vec<(u32, u32)> = Vec::new();
                for step in 0..20u64 {
                    let index = (fanin_core::hash::mix(seed << 8 | hosts, step) % 40) as u32;
                    let leader = index % hosts as u32;
                    sums.push((index, leader));
                    if leader == 0 {
                        watch.on_complete(index)
                    } else {
                        watch.on_sum(index, leader)
                    }
                    for index in 0..40 {
                        let has_sent = |rank: u32| sums.iter().any(|(later, leader)| *later > index && *leader != rank);
                        assert_eq!(watch.is_sent_by_all(index), (1..hosts as u32).all(has_sent), "{hosts} {seed} {step} {index}");
                    }
                }
            }
        }
    }
}
