//! Packets name blocks with 20 bits. With losses, something of a block may be left in a switch or on a link when its name is used again:
//! the fence holds the later block back until that must be gone (`canary 9`, P5).

use fanin_core::{Duration, Instant};
use fanin_wire::canary::CanaryId;

use crate::shared::rtt::rebased;

/// Blocks are fenced in groups of so many.
const GROUP_BITS: u32 = 16;
const GROUPS: usize = 1 << (CanaryId::BLOCK_BITS - GROUP_BITS);

/// When each group of names was last in use.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Fence {
    reuse_after: Duration,
    /// By group of names: from when on they may be used again.
    free_at: [Instant; GROUPS],
}

fn group_of(block: u32) -> usize {
    (block >> GROUP_BITS) as usize % GROUPS
}

impl Fence {
    /// All names are free; a name is free again `reuse_after` its last use.
    pub(super) fn new(reuse_after: Duration) -> Self {
        Fence { reuse_after, free_at: [Instant::ZERO; GROUPS] }
    }

    /// All blocks before `block` are done; `before` was told last.
    #[inline]
    pub(super) fn on_done(&mut self, now: Instant, before: u32, block: u32) {
        if before >> GROUP_BITS != block >> GROUP_BITS {
            self.close(now, before, block);
        }
    }

    #[cold]
    fn close(&mut self, now: Instant, before: u32, block: u32) {
        let groups = (block >> GROUP_BITS).wrapping_sub(before >> GROUP_BITS) & (u32::MAX >> GROUP_BITS);
        for group in 0..groups.min(GROUPS as u32) {
            self.free_at[(group_of(before) + group as usize) % GROUPS] = now + self.reuse_after;
        }
    }

    /// From when on a block may be sent, if not at once.
    #[inline]
    pub(super) fn opens_at(&self, now: Instant, block: u32) -> Option<Instant> {
        let at = self.free_at[group_of(block)];
        (at > now).then_some(at)
    }

    pub(super) fn rebase(&mut self, now: Instant) {
        self.free_at.iter_mut().for_each(|at| *at = rebased(*at, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    #[test]
    fn names_rest_before_they_are_used_again() {
        let mut fence = Fence::new(Duration::from_us(10));
        fence.on_done(at(5), 0, 65_535);
        assert_eq!(fence.opens_at(at(5), 0), None, "the group is not done");
        fence.on_done(at(7), 65_535, 65_536);
        assert_eq!(fence.opens_at(at(8), 1 << 20), Some(at(17)));
        assert_eq!(fence.opens_at(at(17), (1 << 20) + 65_535), None);
        assert_eq!(fence.opens_at(at(8), 65_536), None);
    }

    #[test]
    fn groups_are_counted_through_the_wrap() {
        let mut fence = Fence::new(Duration::from_us(10));
        let before = u32::MAX - 65_536;
        fence.on_done(at(1), before, before.wrapping_add(2 << 16));
        let closed: Vec<usize> = (0..GROUPS).filter(|group| fence.opens_at(at(1), (*group as u32) << 16).is_some()).collect();
        assert_eq!(closed, [14, 15]);
        fence.on_done(at(2), 5, 1 << 24);
        assert!((0..GROUPS).all(|group| fence.opens_at(at(2), (group as u32) << 16) == Some(at(12))));
    }
}
