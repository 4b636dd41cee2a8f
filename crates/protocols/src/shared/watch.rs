//! Whether somebody who is waited for is there. Who has sent nothing for a quarter of the patience is asked, and again and again until it does;
//! who leaves that unanswered for all of the patience is missing. Who answers is not, whatever it waits for itself: so nobody who lives is named
//! for another. It is asked all the same, as what it says of whom it waits for may change.

use fanin_core::{Duration, Instant};

use crate::shared::rtt::rebased;

/// How many times the patience an operation may stand still while all who are waited for are there.
pub const STANDSTILL_PATIENCES: u64 = 4;
/// The first question comes after this part of the patience.
const ASKED_AFTER: u64 = 4;
/// The next ones come so often in the patience.
const ASKED_EVERY: u64 = 32;

/// What is known of somebody's being there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Watch {
    /// When anything last came from it.
    heard_at: Instant,
    /// When it was last asked, since it last sent anything but answers.
    asked_at: Option<Instant>,
}

impl Watch {
    /// Something has come from it.
    #[inline]
    pub fn on_heard(&mut self, now: Instant) {
        *self = Watch { heard_at: now, asked_at: None };
    }

    /// It has answered, or asks itself.
    pub fn on_answer(&mut self, now: Instant) {
        self.heard_at = now;
    }

    /// It is asked now.
    pub fn on_asked(&mut self, now: Instant) {
        self.asked_at = Some(now);
    }

    /// When it is asked next, where it has been waited for since `since`. Whose patience never ends does not ask.
    pub fn ask_at(&self, since: Instant, patience: Duration) -> Instant {
        if patience == Duration::MAX {
            return Instant::FAR_FUTURE;
        }
        match self.asked_at.filter(|at| *at >= since) {
            Some(at) => at + patience.divided(ASKED_EVERY),
            None => self.heard_at.max(since) + patience.divided(ASKED_AFTER),
        }
    }

    /// When it is missing, where it has been waited for since `since`.
    pub fn missing_at(&self, since: Instant, patience: Duration) -> Instant {
        self.heard_at.max(since) + patience
    }

    /// Whether it has left questions unanswered for half the patience, which is longer than some of them are lost for.
    pub fn is_silent(&self, now: Instant, since: Instant, patience: Duration) -> bool {
        now >= self.heard_at.max(since) + patience.divided(4).times(3)
    }

    /// Makes times relative to `now`.
    pub fn rebase(&mut self, now: Instant) {
        self.heard_at = rebased(self.heard_at, now);
        self.asked_at = self.asked_at.map(|at| rebased(at, now));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_us(1_600);

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    #[test]
    fn who_is_silent_is_asked_and_missing_when_it_never_answers() {
        let mut watch = Watch::default();
        watch.on_heard(at(50));
        assert_eq!((watch.ask_at(at(100), PATIENCE), watch.missing_at(at(100), PATIENCE)), (at(500), at(1_700)));
        watch.on_asked(at(500));
        assert_eq!((watch.ask_at(at(100), PATIENCE), watch.missing_at(at(100), PATIENCE)), (at(550), at(1_700)));
        assert!(!watch.is_silent(at(1_299), at(100), PATIENCE) && watch.is_silent(at(1_300), at(100), PATIENCE));
        watch.on_answer(at(510));
        assert_eq!((watch.ask_at(at(100), PATIENCE), watch.missing_at(at(100), PATIENCE)), (at(550), at(2_110)));
        watch.on_heard(at(650));
        assert_eq!((watch.ask_at(at(100), PATIENCE), watch.missing_at(at(100), PATIENCE)), (at(1_050), at(2_250)));
    }

    #[test]
    fn a_question_of_an_earlier_wait_is_forgotten_and_without_an_end_of_patience_there_is_none() {
        let mut watch = Watch::default();
        watch.on_asked(at(500));
        assert_eq!(watch.ask_at(at(10_000), PATIENCE), at(10_400));
        let never = Instant::FAR_FUTURE;
        assert_eq!((watch.ask_at(at(0), Duration::MAX), watch.missing_at(at(1), Duration::MAX)), (never, never));
    }
}
