//! Which peer is the last one to contribute to sums, and how long these wait for it. A switch sees that for nothing.
//!
//! What a sum waits for its last contribution is counted from when any contribution came before that. Windows of ranks are full by then: of a
//! rank that comes late to a call, the first block waits for as long as the rank is late, and those that follow hardly do. Added up, it is the
//! time that ranks lose to it.

use fanin_core::{Duration, Instant, PortId};

/// The times that lateness is told apart by.
pub const LATE: [Duration; 4] = [Duration::from_ms(1), Duration::from_ms(10), Duration::from_ms(100), Duration::from_ms(1_000)];

/// How often a peer was last.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Last {
    /// Sums that it completed, as the last of all.
    pub completed: u64,
    /// How long these had nothing but it to wait for, together, in ps.
    pub awaited_ps: u64,
    /// Those among them that waited longer than each of [`LATE`].
    pub late: [u64; LATE.len()],
}

impl Last {
    /// What has been added since an earlier moment.
    #[must_use]
    pub fn since(&self, earlier: &Last) -> Last {
        let mut late = self.late;
        late.iter_mut().zip(earlier.late).for_each(|(now, before)| *now = now.saturating_sub(before));
        Last {
            completed: self.completed.saturating_sub(earlier.completed),
            awaited_ps: self.awaited_ps.saturating_sub(earlier.awaited_ps),
            late,
        }
    }

    /// A sum was complete with it; `waited` since the last contribution of anybody else, if there was one.
    pub(crate) fn completed(&mut self, waited: Option<Duration>) {
        self.completed += 1;
        self.awaited(waited);
    }

    /// Something has waited so long for nothing but it, and is no sum of its own.
    pub(crate) fn awaited(&mut self, waited: Option<Duration>) {
        let Some(waited) = waited else { return };
        self.awaited_ps = self.awaited_ps.saturating_add(waited.as_ps());
        self.late.iter_mut().zip(LATE).for_each(|(count, limit)| *count += u64::from(waited > limit));
    }
}

/// When contributions came.
#[derive(Debug, Default)]
pub(crate) struct Arrivals(Option<Instant>);

impl Arrivals {
    /// Somebody has contributed; gives how long before that anybody did last.
    #[inline]
    pub(crate) fn arrived(&mut self, now: Instant) -> Option<Duration> {
        self.0.replace(now).map(|before| now.since(before))
    }
}

/// Who contributes to a job at a switch of a fabric: hosts, or switches below with the sums of theirs.
#[derive(Debug, Default)]
pub(crate) struct Contributors {
    /// By port; `None` of those that have contributed nothing yet.
    ports: Vec<Option<Last>>,
    arrivals: Arrivals,
}

impl Contributors {
    /// A contribution has come through a port; `completes`: a sum has left since. Where nobody else contributes, nobody is waited for.
    #[inline]
    pub(crate) fn contributed(&mut self, port: usize, now: Instant, completes: bool) {
        if self.ports.len() <= port {
            self.ports.resize(port + 1, None);
        }
        self.ports[port].get_or_insert_default();
        let waited = self.arrivals.arrived(now);
        let has_others = self.ports.iter().flatten().count() > 1;
        if let Some(last) = self.ports[port].as_mut().filter(|_| completes && has_others) {
            last.completed(waited);
        }
    }

    /// How often each was the last one, by port; none where there is only one contributor.
    pub(crate) fn last(&self) -> Vec<(PortId, Last)> {
        let all: Vec<_> = (0..).zip(&self.ports).filter_map(|(port, last)| Some((PortId(port), (*last)?))).collect();
        if all.len() > 1 { all } else { Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_contributor_of_a_switch_keeps_nobody_waiting() {
        let at = |ms: u64| Instant::ZERO + Duration::from_ms(ms);
        let mut contributors = Contributors::default();
        contributors.contributed(3, at(1), true);
        contributors.contributed(3, at(50), true);
        assert_eq!(contributors.last(), []);
        contributors.contributed(1, at(60), false);
        contributors.contributed(3, at(80), true);
        let waited = Last { completed: 1, awaited_ps: 20_000_000_000, late: [1, 1, 0, 0] };
        assert_eq!(contributors.last(), [(PortId(1), Last::default()), (PortId(3), waited)]);
    }

    #[test]
    fn sums_wait_for_who_comes_after_all_others() {
        let at = |ms: u64| Instant::ZERO + Duration::from_ms(ms);
        let (mut arrivals, mut last) = (Arrivals::default(), Last::default());
        assert_eq!(arrivals.arrived(at(5)), None);
        assert_eq!(arrivals.arrived(at(6)), Some(Duration::from_ms(1)));
        // The first block of who is late, and the one after it.
        for (time, waited) in [(26, 20), (28, 2)] {
            let gap = arrivals.arrived(at(time));
            assert_eq!(gap, Some(Duration::from_ms(waited)));
            last.completed(gap);
        }
        assert_eq!(last, Last { completed: 2, awaited_ps: 22_000_000_000, late: [2, 1, 0, 0] });
        let before = last;
        last.completed(None);
        assert_eq!(last.since(&before), Last { completed: 1, ..Last::default() });
    }
}
