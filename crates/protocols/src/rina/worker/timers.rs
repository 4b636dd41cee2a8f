//! A worker's timers.

use fanin_core::{Duration, FailureReason, Instant, Payload, RetransmitReason, Tx};
use fanin_wire::rina::RinaHeader;

use super::RinaWorker;
use crate::shared::reliability::Reliability;
use crate::shared::rtt::rebased;

/// So often in the job's patience somebody is asked whether it is there.
const PINGS: u64 = 32;
/// How many times the patience an operation may stand still while all are there; and where only the coordinator's word is missing, who knows
/// who is late and says so before.
const STANDSTILL_PATIENCES: [u64; 2] = [4, 5];
/// An interval is doubled so many times at most: what is asked for is small, and others wait for it.
const LEVEL_MAX: u8 = 3;

/// When what is due.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(in crate::rina) struct Timers {
    /// When something last went on.
    pub progress_at: Instant,
    /// When missing results are asked for, and how often they have been since the last one came.
    repair_at: Option<Instant>,
    repair_level: u8,
    /// How long nothing may come before they are.
    repair_wait: Duration,
    /// When the coordinator is told again that all results are here.
    pub done_at: Option<Instant>,
    done_level: u8,
    ping_at: Option<Instant>,
}

fn doubled(reliability: &Reliability, level: u8) -> Duration {
    let base = reliability.rto_initial.max(reliability.rto_min).as_ps().max(1);
    Duration::from_ps(base.saturating_mul(1 << level.min(LEVEL_MAX)).min(reliability.rto_max().as_ps().max(base)))
}

impl Timers {
    /// An operation begins. Without an end to patience nobody is asked.
    pub(in crate::rina) fn begin(&mut self, now: Instant, patience: Duration) {
        self.progress_at = now;
        self.ping_at = (patience != Duration::MAX).then(|| now + patience.divided(PINGS));
        (self.repair_at, self.done_at) = (None, None);
    }

    /// The operation begins, or begins anew.
    pub(in crate::rina) fn restart(&mut self, now: Instant, reliability: &Reliability) {
        self.done_at = None;
        // How long the first result takes has nothing to do with how long answers do.
        self.on_result(now, doubled(reliability, 0));
    }

    /// The epoch has ended and the next one not begun.
    pub(in crate::rina) fn pause(&mut self, now: Instant) {
        self.progress_at = now;
        (self.repair_at, self.done_at) = (None, None);
    }

    /// The epoch begins.
    pub(in crate::rina) fn resume(&mut self, now: Instant) {
        self.progress_at = now;
    }

    /// The operation is over.
    pub(in crate::rina) fn end(&mut self) {
        (self.repair_at, self.done_at, self.ping_at) = (None, None, None);
    }

    /// A result came. Where nothing more comes for so long, what is missing is asked for.
    #[inline]
    pub(in crate::rina) fn on_result(&mut self, now: Instant, wait: Duration) {
        self.progress_at = now;
        self.repair_level = 0;
        (self.repair_wait, self.repair_at) = (wait, Some(now + wait));
    }

    /// All results are here.
    pub(in crate::rina) fn on_all_results(&mut self) {
        (self.repair_at, self.done_level) = (None, 0);
    }

    /// The coordinator was told.
    pub(in crate::rina) fn told(&mut self, now: Instant, reliability: &Reliability) {
        self.done_level = self.done_level.saturating_add(1);
        self.done_at = Some(now + doubled(reliability, self.done_level - 1));
    }

    /// The coordinator was told before, and has not answered.
    pub(in crate::rina) fn has_told_twice(&self) -> bool {
        self.done_level > 1
    }

    /// Makes times relative to `now`.
    pub(in crate::rina) fn rebase(&mut self, now: Instant) {
        self.progress_at = rebased(self.progress_at, now);
        for at in [&mut self.repair_at, &mut self.done_at, &mut self.ping_at] {
            *at = at.map(|at| rebased(at, now));
        }
    }
}

impl<P: Payload + ?Sized> RinaWorker<P> {
    /// When the operation fails although all are there; `None` where patience never ends.
    fn give_up_at(&self) -> Option<Instant> {
        let patience = self.config.reliability.patience;
        let patiences = STANDSTILL_PATIENCES[usize::from(self.waits_for_word())];
        (patience != Duration::MAX).then(|| self.timers.progress_at + patience.times(patiences))
    }

    /// The next of all timers.
    #[inline]
    pub(in crate::rina) fn next_timer(&self) -> Option<Instant> {
        self.ledger.running()?;
        let timers = &self.timers;
        let all = [
            self.scatter.owed_at,
            self.gather.owed_at,
            self.scatter.sent.resend_at(),
            self.gather.sent.resend_at(),
            self.scatter.gate.opens_at(),
            self.gather.gate.opens_at(),
            timers.repair_at,
            timers.done_at,
            timers.ping_at,
            self.give_up_at(),
        ];
        all.into_iter().flatten().min()
    }

    /// Does what is due.
    pub(in crate::rina) fn on_timers<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() {
            return;
        }
        if self.give_up_at().is_some_and(|at| at <= now) {
            return self.fail(self.awaited(), FailureReason::NoProgress, tx);
        }
        let is_due = |at: Option<Instant>| at.is_some_and(|at| at <= now);
        if is_due(self.timers.ping_at) {
            self.timers.ping_at = Some(now + self.config.reliability.patience.divided(PINGS));
            self.ping(now, tx);
            self.suspect(now, tx);
        }
        self.scatter.gate.expire(now);
        self.gather.gate.expire(now);
        if self.ledger.running().is_none() || !self.members.goes {
            return;
        }
        if is_due(self.scatter.owed_at) {
            self.send_ack(now, false, true, tx);
        }
        if is_due(self.gather.owed_at) {
            self.send_ack(now, true, true, tx);
        }
        self.resend_expired(now, tx);
        if is_due(self.timers.repair_at) {
            self.timers.repair_level = self.timers.repair_level.saturating_add(1);
            let wait = Duration::from_ps(self.timers.repair_wait.as_ps().saturating_mul(1 << self.timers.repair_level.min(LEVEL_MAX)));
            self.timers.repair_at = self.holder().map(|_| now + wait.min(self.config.reliability.rto_max()));
            self.ask_what_is_missing(now, tx);
        }
        if is_due(self.timers.done_at)
            && let Some(operation) = self.ledger.running().map(|running| running.operation)
        {
            self.tell_done(now, operation, tx);
        }
        self.pump(now, tx);
    }

    /// Sends again what has not been acknowledged in time.
    fn resend_expired<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        while let Some((number, _)) = self.scatter.sent.due(now).filter(|(number, _)| self.waits_here(*number)) {
            self.scatter.sent.postpone(now, number);
        }
        while let Some(lost) = self.scatter.sent.expired(now) {
            self.resend_scatter(now, RetransmitReason::Timeout, lost, tx);
        }
        while let Some(lost) = self.gather.sent.expired(now) {
            self.resend_gather(now, RetransmitReason::Timeout, lost, tx);
        }
    }

    /// There is room again.
    pub(in crate::rina) fn go_on<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let held_up = self.scatter.sent.go_on() | self.gather.sent.go_on();
        if held_up && self.ledger.running().is_some() && self.members.goes {
            self.resend_expired(now, tx);
        }
    }
}
