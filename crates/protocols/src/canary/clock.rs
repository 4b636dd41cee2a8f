//! How long a block's packets are collected where that is not the same for all blocks: at their root longer than elsewhere, and by timers
//! that are only looked at now and then.

use std::sync::Arc;

use fanin_core::hash::{derive, mix};
use fanin_core::{Duration, NodeId};
use fanin_wire::canary::CanaryId;

/// A scan is drawn in so many steps, each of which has its own lane among the switch's timers.
const STEPS: u8 = 32;

/// What a switch adds to a fixed timeout.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Clock {
    /// A switch without timers of its own finds by scanning its array, once in this time, that a descriptor's time is over (Canary 4.3: clock
    /// packets). So a block is collected for between nothing and this time longer. Zero for exact timers.
    pub scan: Duration,
    /// The timeout of blocks whose leader is a host of this switch: partial sums come to their root when others' time is over. `None`
    /// where it is as long as that of other blocks.
    pub root: Option<Duration>,
    /// The hosts of this switch, ascending.
    pub hosts: Arc<[NodeId]>,
    /// Where in a scan a descriptor is found, is drawn with this seed, for each block and switch anew.
    pub seed: u64,
}

impl Clock {
    /// Exact timers, the same for all blocks.
    pub(super) fn exact() -> Self {
        Clock { scan: Duration::ZERO, root: None, hosts: [].into(), seed: 0 }
    }

    /// Its draws are those of one switch.
    pub(super) fn of(mut self, node: NodeId) -> Self {
        self.seed = derive(self.seed, u64::from(node.0));
        self
    }

    fn steps(&self) -> u8 {
        if self.scan == Duration::ZERO { 1 } else { STEPS }
    }

    /// How long descriptors of each lane wait, where the switch's timeout is `timeout`.
    pub(super) fn durations(&self, timeout: Duration) -> Vec<Duration> {
        // In the middle of each step; exactly, where there is nothing to draw.
        let late = |step: u8| Duration::from_ps(self.scan.as_ps() / 64 * (2 * u64::from(step) + 1));
        let all = |timeout: Duration| (0..self.steps()).map(move |step| timeout + late(step));
        all(timeout).chain(self.root.into_iter().flat_map(all)).collect()
    }

    /// The lane of a block.
    #[inline]
    pub(super) fn lane(&self, id: CanaryId, leader: NodeId) -> u8 {
        let first = if self.root.is_some() && self.hosts.binary_search(&leader).is_ok() { self.steps() } else { 0 };
        if self.scan == Duration::ZERO { first } else { first + self.step(id) }
    }

    /// When a scan finds the block.
    #[inline(never)]
    fn step(&self, id: CanaryId) -> u8 {
        let name = u64::from(id.app()) << 32 | u64::from(id.generation()) << 24 | u64::from(id.block());
        (mix(self.seed, name) >> 32) as u8 % STEPS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clock(scan_ns: u64, root: Option<Duration>) -> Clock {
        Clock { scan: Duration::from_ns(scan_ns), root, hosts: [NodeId(3), NodeId(7)].into(), seed: 5 }.of(NodeId(9))
    }

    #[test]
    fn a_scan_finds_blocks_evenly_between_the_timeout_and_a_scan_later() {
        let timeout = Duration::from_us(1);
        let clock = clock(640, None);
        let durations = clock.durations(timeout);
        let drawn = |seed| {
            let clock = Clock { seed, ..clock.clone() };
            (0..32_000).map(|block| usize::from(clock.lane(CanaryId::new(1, 0, block), NodeId(3)))).collect::<Vec<_>>()
        };
        let lanes = drawn(1);
        assert_eq!(lanes, drawn(1), "the seed says it all");
        assert_ne!(lanes, drawn(2));
        let mut counts = vec![0; durations.len()];
        lanes.iter().for_each(|lane| counts[*lane] += 1);
        assert!(counts.iter().all(|count| (900..=1_100).contains(count)), "{counts:?}");
        assert_eq!((durations[0], durations[31]), (Duration::from_ns(1_010), Duration::from_ns(1_630)));
    }

    #[test]
    fn the_root_is_where_the_leader_is() {
        let clock = clock(0, Some(Duration::from_us(4)));
        assert_eq!(clock.durations(Duration::from_us(1)), [1, 4].map(Duration::from_us));
        let lanes = [3, 5, 7].map(|leader| clock.lane(CanaryId::new(0, 0, 11), NodeId(leader)));
        assert_eq!(lanes, [1, 0, 1]);
        let scanned = Clock { scan: Duration::from_ns(64), ..clock };
        assert!(scanned.lane(CanaryId::new(0, 0, 11), NodeId(7)) >= 32);
        assert_eq!(scanned.durations(Duration::from_us(1)).len(), 64);
    }

    #[test]
    fn exact_timers_are_all_alike() {
        let clock = Clock::exact();
        assert_eq!(clock.durations(Duration::from_us(2)), [Duration::from_us(2)]);
        assert_eq!(clock.lane(CanaryId::new(0, 0, 1), NodeId(1)), 0);
    }
}
