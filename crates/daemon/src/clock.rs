//! The switch's own time: without spans in which it did not run. A process that was stopped, or a machine that slept, has heard nothing of
//! anybody meanwhile; that is nobody's fault but its own, and no rank is to be blamed for it.

use std::cell::Cell;
use std::time::Duration;

use tokio::time::Instant;

/// Later than this behind what was due is stopped and not busy.
const STOPPED: Duration = Duration::from_secs(1);

/// See the module.
pub(crate) struct OwnClock {
    start: Instant,
    lost: Cell<Duration>,
    /// When something is to be done at the latest.
    due: Cell<Option<Instant>>,
}

impl OwnClock {
    pub(crate) fn new(start: Instant) -> Self {
        OwnClock { start, lost: Cell::default(), due: Cell::default() }
    }

    /// In ms since the start.
    pub(crate) fn now_ms(&self) -> u64 {
        self.read(Instant::now())
    }

    fn read(&self, now: Instant) -> u64 {
        if let Some(late) = self.due.get().map(|due| now.saturating_duration_since(due)).filter(|late| *late > STOPPED) {
            self.due.set(None);
            self.lost.set(self.lost.get() + late);
            tracing::warn!(seconds = late.as_secs_f64(), "the switch did not run: it was stopped, or the machine slept");
        }
        (now.saturating_duration_since(self.start).saturating_sub(self.lost.get())).as_millis() as u64
    }

    /// When the clock will say so many ms.
    pub(crate) fn at(&self, ms: u64) -> Instant {
        self.start + self.lost.get() + Duration::from_millis(ms)
    }

    /// The process sleeps until then at the latest, or for as long as it likes.
    pub(crate) fn sleeps_until(&self, due: Option<Instant>) {
        self.due.set(due);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_in_which_the_process_was_stopped_does_not_count() {
        let (start, seconds) = (Instant::now(), Duration::from_secs);
        let clock = OwnClock::new(start);
        assert_eq!(clock.read(start + seconds(2)), 2_000);
        clock.sleeps_until(Some(start + seconds(3)));
        // Only a little late: busy.
        assert_eq!(clock.read(start + Duration::from_millis(3_900)), 3_900);
        clock.sleeps_until(Some(start + seconds(4)));
        assert_eq!(clock.read(start + seconds(14)), 4_000, "ten seconds are missing");
        assert_eq!(clock.read(start + seconds(15)), 5_000, "from then on it goes as before");
        assert_eq!(clock.at(6_000), start + seconds(16));
        // Where nothing is due, a long sleep is no stop.
        clock.sleeps_until(None);
        assert_eq!(clock.read(start + seconds(100)), 90_000);
    }
}
