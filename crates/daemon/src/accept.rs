//! What to do where a connection cannot be accepted.

use std::time::Duration;

/// How long to wait where the kernel has no descriptor for a new connection.
pub(crate) const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The kernel's numbers for "no descriptor is left", of this process and of the machine.
pub(crate) const EMFILE: i32 = 24;
pub(crate) const ENFILE: i32 = 23;
