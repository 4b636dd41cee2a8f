//! How long a call waits: first silently, then the switch is asked why nothing moves, and at last the call fails.

use std::time::{Duration, Instant};

use crate::config::{INTERRUPT_LOOK, INTERRUPTED, Interrupt};
use crate::error::CommError;
use crate::link::Link;
use crate::own_time;

/// The switch ends a job after its patience, in the same words for all ranks; a rank that hears nothing of that by so much later ends by
/// itself.
const GRACE: Duration = Duration::from_secs(3);

/// The patience of one call.
pub(crate) struct Patience<'a> {
    link: &'a Link,
    interrupt: &'a Interrupt,
    notice: Duration,
    timeout: Duration,
    moved: Instant,
    asked: Instant,
    /// When the user was last asked whether to go on.
    looked: Instant,
    /// When it was last looked whether anything has moved.
    checked: Instant,
}

impl<'a> Patience<'a> {
    /// A call begins.
    pub(crate) fn new(link: &'a Link, interrupt: &'a Interrupt, notice: Duration, timeout: Duration) -> Self {
        let now = Instant::now();
        Patience { link, interrupt, notice, timeout, moved: now, asked: now, looked: now, checked: now }
    }

    /// Something moved, and the call goes on.
    ///
    /// # Errors
    /// The user has had enough.
    pub(crate) fn go_on(&mut self) -> Result<(), CommError> {
        self.moved();
        self.look(self.moved)
    }

    fn look(&mut self, now: Instant) -> Result<(), CommError> {
        if now.saturating_duration_since(self.looked) < INTERRUPT_LOOK {
            return Ok(());
        }
        self.looked = now;
        if self.interrupt.is_wanted() { Err(self.link.abort(INTERRUPTED)) } else { Ok(()) }
    }

    /// Something moved.
    pub(crate) fn moved(&mut self) {
        self.moved = Instant::now();
        self.asked = self.moved;
        self.checked = self.moved;
    }

    /// Nothing moved for a while; `late` is a rank that the others wait for, where that can be seen from here.
    ///
    /// # Errors
    /// The job has failed, or the time is over.
    pub(crate) fn check(&mut self, late: impl FnOnce() -> Option<u32>) -> Result<(), CommError> {
        if let Some(failure) = self.link.failure() {
            return Err(failure);
        }
        let now = Instant::now();
        self.look(now)?;
        // While this process did not run it has waited for nobody.
        if let Some(length) = own_time::stop(self.checked, Duration::ZERO) {
            self.moved += length;
            self.asked += length;
        }
        self.checked = now;
        let still = now.saturating_duration_since(self.moved);
        if still >= self.timeout + GRACE {
            let late = late();
            let whom = late.map_or(String::new(), |rank| format!("; waiting for rank {rank}"));
            let seconds = still.as_secs_f64();
            let text = match self.link.lost() {
                Some(lost) => format!("no progress for {seconds:.1} s{whom}; {lost}"),
                None => format!("no progress for {seconds:.1} s, and no word of {} why{whom}", self.link.runner()),
            };
            return Err(self.link.fail(self.link.failed_with(text, late, None)));
        }
        // The switch believes half of the timeout of what a rank says about the past: whoever asks later waits longer than it.
        if self.asked.elapsed() >= self.notice.min(self.timeout / 2) {
            self.ask();
        }
        Ok(())
    }

    /// Asks the switch why nothing moves.
    pub(crate) fn ask(&mut self) {
        self.asked = Instant::now();
        self.link.report_stall(self.moved.elapsed(), self.timeout);
    }
}
