//! A worker's operations: one runs at a time, in the order of their numbers; how each ended waits here for the caller.

use std::collections::VecDeque;

use fanin_core::{Collective, CollectiveKind, Failure, FailureReason, JobId, OperationId, Outcome, Suspect};

/// A worker's operations.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Ledger {
    job: JobId,
    /// The operation that the caller must submit next.
    next: OperationId,
    running: Option<Collective>,
    ended: VecDeque<Outcome>,
    /// An operation has failed: the job cannot go on.
    dead: bool,
}

impl Ledger {
    /// A job that has run nothing yet.
    pub fn new(job: JobId) -> Self {
        Ledger { job, next: OperationId(0), running: None, ended: VecDeque::with_capacity(4), dead: false }
    }

    /// The operation that is running.
    #[inline]
    pub fn running(&self) -> Option<&Collective> {
        self.running.as_ref()
    }

    /// The operation that the caller must submit next.
    #[inline]
    pub fn next(&self) -> OperationId {
        self.next
    }

    /// Whether an operation has failed, which ends the job.
    #[inline]
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Begins an allreduce. False, and the end is noted as refused, where another operation is running, one has failed, the number is not
    /// the next one, or it is no allreduce.
    pub fn begin(&mut self, collective: Collective) -> bool {
        if collective.kind != CollectiveKind::Allreduce {
            self.refuse(collective.operation);
            return false;
        }
        self.begin_any(collective)
    }

    /// As [`Ledger::begin`], for systems that offer every kind of collective.
    pub fn begin_any(&mut self, collective: Collective) -> bool {
        if self.dead || self.running.is_some() || collective.operation != self.next {
            self.refuse(collective.operation);
            return false;
        }
        self.running = Some(collective);
        self.next = OperationId(self.next.0.wrapping_add(1));
        true
    }

    /// The caller does the next operation elsewhere: the one behind it is the next here.
    pub fn pass_over(&mut self, operation: OperationId) {
        debug_assert!(self.running.is_none(), "one runs at a time");
        self.next = OperationId(operation.0.wrapping_add(1));
    }

    /// Notes that an operation cannot be done.
    pub fn refuse(&mut self, operation: OperationId) {
        let (job, reason) = (self.job, FailureReason::Refused);
        let failure = Failure { job, operation, block: None, suspect: Suspect::Unknown, reason };
        self.ended.push_back(Outcome { operation, result: Err(failure) });
    }

    /// The running operation is done.
    pub fn complete(&mut self) {
        if let Some(collective) = self.running.take() {
            self.ended.push_back(Outcome { operation: collective.operation, result: Ok(()) });
        }
    }

    /// The running operation has failed, and the job with it.
    pub fn fail(&mut self, block: Option<u32>, suspect: Suspect, reason: FailureReason) -> Option<Failure> {
        self.dead = true;
        let operation = self.running.take()?.operation;
        let failure = Failure { job: self.job, operation, block, suspect, reason };
        self.ended.push_back(Outcome { operation, result: Err(failure.clone()) });
        Some(failure)
    }

    /// An operation fails before it begins: the job was over already.
    pub fn fail_before(&mut self, operation: OperationId, suspect: Suspect, reason: FailureReason) {
        self.dead = true;
        let failure = Failure { job: self.job, operation, block: None, suspect, reason };
        self.ended.push_back(Outcome { operation, result: Err(failure) });
    }

    /// The job is over although no operation runs here: a peer's operation has failed.
    pub fn close(&mut self) {
        self.dead = true;
    }

    /// The next operation that has ended.
    #[inline(always)]
    pub fn poll(&mut self) -> Option<Outcome> {
        // Asked after every packet.
        if self.ended.is_empty() { None } else { self.ended.pop_front() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(number: u32) -> Collective {
        Collective::allreduce(OperationId(number), 1)
    }

    fn reason(outcome: Option<Outcome>) -> Option<FailureReason> {
        outcome.and_then(|outcome| outcome.result.err()).map(|failure| failure.reason)
    }

    #[test]
    fn one_at_a_time_and_in_order() {
        let mut ledger = Ledger::new(JobId(1));
        assert!(!ledger.begin(operation(1)));
        assert!(ledger.begin(operation(0)));
        assert!(!ledger.begin(operation(1)));
        ledger.complete();
        assert!(ledger.begin(operation(1)));
        assert_eq!(reason(ledger.poll()), Some(FailureReason::Refused));
        assert_eq!(reason(ledger.poll()), Some(FailureReason::Refused));
        assert_eq!(ledger.poll(), Some(Outcome { operation: OperationId(0), result: Ok(()) }));
        assert_eq!(ledger.poll(), None);
    }

    #[test]
    fn only_systems_that_offer_them_take_other_collectives() {
        let mut ledger = Ledger::new(JobId(1));
        let barrier = Collective { kind: CollectiveKind::Barrier, ..operation(0) };
        assert!(!ledger.begin(barrier));
        assert_eq!(reason(ledger.poll()), Some(FailureReason::Refused));
        assert!(ledger.begin_any(barrier));
    }

    #[test]
    fn nothing_runs_after_a_failure() {
        let mut ledger = Ledger::new(JobId(1));
        assert!(ledger.begin(operation(0)));
        let failure = ledger.fail(Some(3), Suspect::Unknown, FailureReason::NoProgress).unwrap();
        assert_eq!((failure.job, failure.block), (JobId(1), Some(3)));
        assert!(!ledger.begin(operation(1)));
        assert_eq!(reason(ledger.poll()), Some(FailureReason::NoProgress));
        assert_eq!(reason(ledger.poll()), Some(FailureReason::Refused));
    }
}
