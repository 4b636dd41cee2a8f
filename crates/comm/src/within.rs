//! How long calls wait: as the communicator does, or in a time of their own.

use std::time::Duration;

use fanin_core::{CollectiveKind, ElementOp};

use crate::call::{Buffers, CallOp};
use crate::communicator::Communicator;
use crate::config::Config;
use crate::error::CommError;
use crate::queue::Lent;
use crate::sparse::Sparse;

impl Communicator {
    /// How long calls that are made from now on wait for other ranks or the switch.
    pub fn timeout(&self) -> Duration {
        self.core().timeouts.next()
    }

    /// Sets how long calls of this rank that are made from now on wait for other ranks or the switch; ranks may differ. The first rank that
    /// does not want to wait any longer ends the job.
    ///
    /// # Errors
    /// [`CommError::Config`] for a time that is too short or too long.
    pub fn set_timeout(&self, timeout: Duration) -> Result<(), CommError> {
        Config::check_timeout("timeout", timeout)?;
        self.core().timeouts.set_next(timeout);
        Ok(())
    }

    /// Calls that wait so long, whatever others do.
    ///
    /// # Errors
    /// [`CommError::Config`] for a time that is too short or too long.
    pub fn within(&self, timeout: Duration) -> Result<Within<'_>, CommError> {
        Config::check_timeout("timeout", timeout)?;
        Ok(Within { comm: self, timeout })
    }
}

/// Calls of a communicator with a timeout of their own: [`Communicator::within`].
#[derive(Clone, Copy, Debug)]
pub struct Within<'c> {
    comm: &'c Communicator,
    timeout: Duration,
}

impl Within<'_> {
    /// As [`Communicator::call_bytes`].
    ///
    /// # Errors
    /// As there.
    pub fn call_bytes(
        &self,
        kind: CollectiveKind,
        op: impl Into<CallOp>,
        elements: u64,
        input: &[u8],
        output: &mut [u8],
    ) -> Result<(), CommError> {
        self.comm.call(self.timeout, kind, op, elements, &mut Buffers::Apart { input, output })
    }

    /// As [`Communicator::call_bytes_in_place`].
    ///
    /// # Errors
    /// As there.
    pub fn call_bytes_in_place(
        &self,
        kind: CollectiveKind,
        op: impl Into<CallOp>,
        elements: u64,
        vector: &mut [u8],
    ) -> Result<(), CommError> {
        self.comm.call(self.timeout, kind, op, elements, &mut Buffers::InPlace(vector))
    }

    /// As [`Communicator::call_async_then`].
    ///
    /// # Errors
    /// As there.
    pub fn call_async_then<B: Lent>(
        &self,
        kind: CollectiveKind,
        op: impl Into<CallOp>,
        elements: u64,
        vector: B,
        done: impl FnOnce(B, Result<(), CommError>) + Send + 'static,
    ) -> Result<(), CommError> {
        self.comm.start(self.timeout, kind, op, elements, vector, done)
    }

    /// As [`Communicator::call_sparse_async_then`].
    ///
    /// # Errors
    /// As there.
    pub fn call_sparse_async_then(
        &self,
        op: ElementOp,
        indices: &[u64],
        values: &[u8],
        size: u64,
        done: impl FnOnce(Result<Sparse<u8>, CommError>) + Send + 'static,
    ) -> Result<(), CommError> {
        self.comm.start_sparse(self.timeout, op, indices, values, size, done)
    }
}
