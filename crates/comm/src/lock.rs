//! Locks that a panic of another thread does not close.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The data behind a lock; also where a thread has panicked with it, since every value in here is whole at all times.
pub(crate) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
