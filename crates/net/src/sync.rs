//! What threads and processes share memory by: the standard library's, or, with the cfg `loom`, that of loom, which runs a test in every order that
//! the memory model allows (`make loom`).

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(loom)]
pub(crate) use loom::sync::{Mutex, MutexGuard};
#[cfg(loom)]
pub(crate) use loom::{hint, thread};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
#[cfg(not(loom))]
pub(crate) use std::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
pub(crate) use std::time::Instant;
#[cfg(not(loom))]
pub(crate) use std::{hint, thread};

#[cfg(loom)]
pub(crate) use modelled::{Instant, PLANTED};

/// Where an order of accesses matters. Tests in loom put a mistake there, one at a time, to see that it is found.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Place {
    /// A rank's arrival at a block publishes its input, and the last arrival sees those of all others.
    Arrive,
    /// The last rank looks whether all others have arrived before it does.
    Look,
    /// Whoever computed a result publishes it.
    Done,
    /// Who waits sees the result.
    Ready,
    /// Whoever computed a result looks for sleepers only after it has published.
    DoneThenSleepers,
    /// Who is about to sleep looks for the result only after it has said so.
    SleeperThenDone,
}

/// The order of accesses that `place` needs.
#[inline]
pub(crate) fn order(right: Ordering, place: Place) -> Ordering {
    if is_planted(place) { Ordering::Relaxed } else { right }
}

/// What is before it in one thread is seen by whoever sees what is behind its like in another one.
#[inline]
pub(crate) fn full_fence(place: Place) {
    if !is_planted(place) {
        fence(Ordering::SeqCst);
    }
}

/// Whether a test has put a mistake here.
#[cfg(not(loom))]
#[inline]
const fn is_planted(_: Place) -> bool {
    false
}

/// Whether a test has put a mistake here.
#[cfg(loom)]
fn is_planted(place: Place) -> bool {
    PLANTED.with(|planted| planted.get() == Some(place))
}

#[cfg(loom)]
mod modelled {
    use std::cell::Cell;
    use std::time::Duration;

    use super::Place;

    std::thread_local! {
        /// The mistake that the model which runs on this thread is tried with.
        pub(crate) static PLANTED: Cell<Option<Place>> = const { Cell::new(None) };
    }

    /// A clock by which whoever waits has always yielded long enough to sleep and never waited too long.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Instant;

    impl Instant {
        pub(crate) fn now() -> Self {
            Instant
        }

        pub(crate) fn elapsed(self) -> Duration {
            Duration::from_millis(1)
        }
    }
}
