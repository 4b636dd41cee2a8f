//! Before a loop sleeps, it lets others run: with more processes than cores, what it waits for comes from them.
//!
//! A sleeper is woken by the first packet, at once, often in the middle of what its peer is doing, and sleeps again after that packet: a
//! switch of contexts for each, and where the core was idle in between, an interrupt from another core. Who has let others run instead finds
//! all that they had for it. Four workers and a switch on two cores carry a fifth more that way.
//!
//! Where nobody else wants the core, that costs a microsecond. Where somebody has it who is none of a job's processes, and computes, it would
//! cost a time slice, while a sleeper would be woken in the middle of that: then loops sleep at once, for a while.

use std::thread;
use std::time::{Duration, Instant};

/// How often others are let run before a sleep.
const TURNS: u32 = 2;
/// Whoever has the core for longer than that computes.
const TURN_MAX: Duration = Duration::from_millis(1);
/// How many sleeps follow at once then.
const SLEEPS: u32 = 256;

/// Whether and how often others are let run.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Linger {
    /// How often that was done since something was found.
    turns: u32,
    /// How many sleeps come at once.
    sleeps: u32,
}

impl Linger {
    /// Lets others run, and says that it is time to look whether there is something now; or that it is time to sleep, for as long as
    /// `limit`.
    pub(crate) fn before_sleep(&mut self, limit: Duration) -> bool {
        if limit.is_zero() {
            return false;
        }
        if self.sleeps > 0 {
            self.sleeps -= 1;
            return false;
        }
        if self.turns == TURNS {
            self.turns = 0;
            return false;
        }
        self.turns += 1;
        let before = Instant::now();
        thread::yield_now();
        self.after(before.elapsed());
        true
    }

    /// Others have had the core for so long.
    fn after(&mut self, turn: Duration) {
        if turn > TURN_MAX {
            (self.turns, self.sleeps) = (0, SLEEPS);
        }
    }

    /// There was something.
    pub(crate) fn on_found(&mut self) {
        self.turns = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(86_400);

    /// How often a fresh look is taken before a sleep; a busy machine may end that early.
    fn looks(linger: &mut Linger) -> u32 {
        (0..).find(|_| !linger.before_sleep(LONG)).unwrap()
    }

    #[test]
    fn others_are_let_run_a_few_times_before_each_sleep() {
        let mut linger = Linger::default();
        assert!(!linger.before_sleep(Duration::ZERO), "who is not to sleep does not wait for others either");
        assert!((1..=TURNS).contains(&looks(&mut linger)));
        linger = Linger { turns: TURNS, sleeps: 0 };
        linger.on_found();
        assert!(linger.before_sleep(LONG), "something was found: it begins anew");
        linger = Linger { turns: TURNS, sleeps: 0 };
        assert_eq!(looks(&mut linger), 0);
    }

    #[test]
    fn where_somebody_computes_sleeps_come_at_once_for_a_while() {
        let mut linger = Linger::default();
        linger.after(TURN_MAX);
        assert_eq!(linger.sleeps, 0);
        linger.after(TURN_MAX * 2);
        for _ in 0..SLEEPS {
            assert_eq!(looks(&mut linger), 0);
        }
        assert!(linger.before_sleep(LONG), "then it is tried again");
    }
}
