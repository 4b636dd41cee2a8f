//! A job of one element type and operator at this rank, behind a port whose thread answers between calls: in a fabric, or at one switch beside the
//! communicator's own job.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use fanin_core::{CollectiveKind, ElementOp, JobId};
use fanin_runtime::{BlockSet, CollectiveCall, RunError, Vectors};

use super::fabric::port::HostPort;
use super::stop::Stop;
use crate::error::CommError;
use crate::link::{Link, is_of_the_switch};

/// What makes jobs of a communicator differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Key {
    pub(super) kind: &'static str,
    pub(super) dtype: &'static str,
    pub(super) operator: &'static str,
    /// The job's own operator that is meant, by its number.
    pub(super) own: Option<u8>,
}

impl Key {
    pub(super) fn of(kind: CollectiveKind, op: ElementOp) -> Self {
        Key { kind: kind.name(), dtype: op.dtype.name(), operator: op.operator.name(), own: None }
    }

    /// The job's name beside that of the communicator's own job.
    pub(super) fn name(self, job: &str, suffix: &str) -> String {
        let Key { kind, dtype, operator, own } = self;
        let number = own.map_or(String::new(), |own| own.to_string());
        format!("{job}/{kind}/{dtype}-{operator}{number}{suffix}")
    }
}

/// Why one more job was not joined.
pub(super) fn why_not(error: CommError, link: &Link) -> Stop {
    match error {
        // Other ranks may not come any more.
        _ if link.was_restarted() || link.has_failed() => Stop::Run(RunError::Stopped),
        error if is_of_the_switch(&error) => Stop::Path(error),
        error => Stop::Failed(error),
    }
}

/// A job at this rank.
pub(super) struct PortJob {
    id: JobId,
    pub(super) op: ElementOp,
    port: Arc<HostPort>,
    /// Of jobs beside the communicator's own.
    control: Option<(Arc<Link>, JoinHandle<()>)>,
}

impl PortJob {
    pub(super) fn new(port: Arc<HostPort>, id: JobId, op: ElementOp, control: Option<(Arc<Link>, JoinHandle<()>)>) -> Self {
        PortJob { id, op, port, control }
    }

    /// Why it has failed, if it has a connection of its own and has.
    fn failure(&self) -> Option<CommError> {
        self.control.as_ref().and_then(|(link, _)| link.failure())
    }

    /// Waits for it to have failed, for so long at most, where it has a connection of its own.
    pub(super) fn await_failure(&self, limit: Duration) -> Option<CommError> {
        self.control.as_ref().and_then(|(link, _)| link.await_failure(limit))
    }

    /// Runs a call of the job; `link` is that of the communicator's own job.
    ///
    /// # Errors
    /// [`Stop`].
    pub(super) fn collective(
        &self,
        what: &CollectiveCall,
        vectors: Vectors<'_>,
        link: &Link,
        goes_on: &mut dyn FnMut(u32) -> bool,
    ) -> Result<(), Stop> {
        let (result, without) = self.port.with(|driver| {
            if !driver.select(self.id) {
                return (Err(RunError::NoJob), Vec::new());
            }
            let goes_on = |remaining| self.failure().is_none() && goes_on(remaining);
            let result = driver.collective(what, vectors, (&mut BlockSet::default(), 0), goes_on);
            driver.publish();
            (result, driver.excluded().iter().map(|rank| rank.0.to_string()).collect::<Vec<String>>())
        });
        match (result, self.failure()) {
            (Ok(()), _) if without.is_empty() => Ok(()),
            // A system has gone on without these ranks.
            (Ok(()), _) => {
                let text = format!("the sum lacks the contributions of rank {}", without.join(", "));
                Err(Stop::Path(link.failed_with(text, None, None)))
            }
            // The communicator's own job knows why.
            (Err(_), Some(failure)) => Err(Stop::Path(failure)),
            (Err(error), None) => Err(Stop::Run(error)),
        }
    }
}

impl Drop for PortJob {
    fn drop(&mut self) {
        self.port.with(|driver| driver.remove_job(self.id));
        if let Some((link, thread)) = self.control.take() {
            link.close(0);
            // It ends with the connection.
            let _ = thread.join();
        }
    }
}
