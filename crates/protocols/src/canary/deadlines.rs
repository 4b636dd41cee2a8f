//! Which of many is the first to want to be called: a tree in which each node has the earlier one of those below it, so that a change costs a
//! few comparisons however many there are.

use fanin_core::Instant;

/// Deadlines by place.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Deadlines {
    /// Node 1 is the root, and below node n are 2n and 2n + 1; the leaves are the second half. Who has no deadline has
    /// [`Instant::FAR_FUTURE`].
    nodes: Vec<Instant>,
}

impl Deadlines {
    /// Other deadlines, by place.
    pub(super) fn reset(&mut self, deadlines: impl Iterator<Item = Option<Instant>>) {
        let leaves: Vec<Instant> = deadlines.map(|at| at.unwrap_or(Instant::FAR_FUTURE)).collect();
        let half = leaves.len().next_power_of_two();
        self.nodes.clear();
        self.nodes.resize(2 * half, Instant::FAR_FUTURE);
        self.nodes[half..][..leaves.len()].copy_from_slice(&leaves);
        for node in (1..half).rev() {
            self.nodes[node] = self.nodes[2 * node].min(self.nodes[2 * node + 1]);
        }
    }

    /// One has changed, or not.
    #[inline]
    pub(super) fn set(&mut self, place: usize, at: Option<Instant>) {
        let at = at.unwrap_or(Instant::FAR_FUTURE);
        let mut node = self.nodes.len() / 2 + place;
        if std::mem::replace(&mut self.nodes[node], at) == at {
            return;
        }
        while node > 1 {
            node /= 2;
            let first = self.nodes[2 * node].min(self.nodes[2 * node + 1]);
            if std::mem::replace(&mut self.nodes[node], first) == first {
                return;
            }
        }
    }

    /// The first of all.
    #[inline]
    pub(super) fn first(&self) -> Option<Instant> {
        self.nodes.get(1).copied().filter(|at| *at != Instant::FAR_FUTURE)
    }

    /// Whose deadline has come: of the first one, or of one of those that have it.
    #[inline]
    pub(super) fn due(&self, now: Instant) -> Option<usize> {
        let first = self.first().filter(|at| *at <= now)?;
        let half = self.nodes.len() / 2;
        let mut node = 1;
        while node < half {
            node *= 2;
            node += usize::from(self.nodes[node] != first);
        }
        Some(node - half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_one_is_found_whatever_changes() {
        for count in [1usize, 2, 3, 8, 13] {
            let mut known: Vec<Option<Instant>> = vec![None; count];
            let mut deadlines = Deadlines::default();
            assert_eq!((deadlines.first(), deadlines.due(Instant::FAR_FUTURE)), (None, None));
            deadlines.reset(known.iter().copied());
            for step in 0..2_000u64 {
                let random = fanin_core::hash::mix(5, step);
                let place = random as usize % count;
                known[place] = (random >> 32 & 3 != 0).then(|| Instant::from_ps(random >> 40 & 1_023));
                deadlines.set(place, known[place]);
                let first = known.iter().flatten().min().copied();
                assert_eq!(deadlines.first(), first);
                let due = deadlines.due(first.unwrap_or_default());
                assert_eq!(due.and_then(|place| known[place]), first);
                if let Some(first) = first.filter(|first| first.as_ps() > 0) {
                    assert_eq!(deadlines.due(Instant::from_ps(first.as_ps() - 1)), None);
                }
                if step % 100 == 0 {
                    deadlines.reset(known.iter().copied());
                    assert_eq!(deadlines.first(), first);
                }
            }
        }
    }
}
