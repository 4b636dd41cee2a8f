//! Waking whoever sleeps in a socket.

use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Ends a [`Socket::wait`](crate::Socket::wait) from another thread.
#[derive(Clone, Debug)]
pub struct Waker(pub(crate) Arc<OwnedFd>);

impl Waker {
    pub(crate) fn new(counter: OwnedFd) -> Self {
        Waker(Arc::new(counter))
    }

    /// Makes the present or the next [`Socket::wait`](crate::Socket::wait) return at once.
    pub fn wake(&self) {
        // The only failure is a counter that is full, and then the socket is awake anyway.
        let _ = rustix::io::write(&*self.0, &1u64.to_ne_bytes());
    }
}
