//! Where all threads of a run meet at the end of a window.

use std::hint;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread;

/// So often a thread looks whether the others have come before it sleeps: about a hundred microseconds, as long as a window of a small network
/// lasts.
const LOOKS: u32 = 2_000;

/// A barrier. Threads that come shortly after each other do not sleep; a thread that panics lets nobody wait.
#[derive(Debug)]
pub(super) struct Meeting {
    threads: usize,
    looks: u32,
    arrived: AtomicUsize,
    round: AtomicUsize,
    broken: AtomicBool,
    lock: Mutex<()>,
    over: Condvar,
}

/// Another thread has panicked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Broken;

impl Meeting {
    /// For so many threads.
    pub fn new(threads: usize) -> Self {
        // Who looks on takes the core of who is awaited, where there are not enough.
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let looks = if threads <= cores { LOOKS } else { 0 };
        Meeting {
            threads,
            looks,
            arrived: AtomicUsize::new(0),
            round: AtomicUsize::new(0),
            broken: AtomicBool::new(false),
            lock: Mutex::new(()),
            over: Condvar::new(),
        }
    }

    /// Waits for all the others.
    ///
    /// # Errors
    /// [`Broken`].
    pub fn wait(&self) -> Result<(), Broken> {
        let round = self.round.load(Ordering::Acquire);
        if self.arrived.fetch_add(1, Ordering::AcqRel) + 1 == self.threads {
            self.arrived.store(0, Ordering::Relaxed);
            self.open();
        } else {
            self.look(round);
        }
        if self.broken.load(Ordering::Acquire) { Err(Broken) } else { Ok(()) }
    }

    fn is_over(&self, round: usize) -> bool {
        self.round.load(Ordering::Acquire) != round || self.broken.load(Ordering::Acquire)
    }

    fn look(&self, round: usize) {
        for _ in 0..self.looks {
            if self.is_over(round) {
                return;
            }
            hint::spin_loop();
        }
        let mut guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !self.is_over(round) {
            guard = self.over.wait(guard).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn open(&self) {
        // Under the lock, so that nobody falls asleep between the look and the call.
        let _guard = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        self.round.fetch_add(1, Ordering::Release);
        self.over.notify_all();
    }
}

/// Breaks the meeting if its thread panics.
pub(super) struct Attends<'a>(pub &'a Meeting);

impl Drop for Attends<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.broken.store(true, Ordering::Release);
            self.0.open();
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "threads are what is tested")]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn nobody_leaves_before_all_have_come() {
        for threads in [1, 2, 3, 8] {
            let (meeting, count) = (Meeting::new(threads), AtomicU64::new(0));
            let work = || {
                let _attends = Attends(&meeting);
                for round in 1..=2_000u64 {
                    count.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(meeting.wait(), Ok(()));
                    assert_eq!(count.load(Ordering::Relaxed), round * threads as u64, "{threads} threads");
                    assert_eq!(meeting.wait(), Ok(()));
                }
            };
            thread::scope(|scope| (0..threads).for_each(|_| drop(scope.spawn(work))));
            assert_eq!(count.load(Ordering::Relaxed), 2_000 * threads as u64);
        }
    }

    #[test]
    fn who_panics_lets_nobody_wait() {
        let meeting = Meeting::new(3);
        let attend = |panics: bool| {
            let _attends = Attends(&meeting);
            assert!(!panics, "as it should");
            meeting.wait()
        };
        thread::scope(|scope| {
            let bad = scope.spawn(|| attend(true));
            let good = [scope.spawn(|| attend(false)), scope.spawn(|| attend(false))];
            assert!(bad.join().is_err());
            assert!(good.into_iter().all(|thread| thread.join().unwrap() == Err(Broken)));
        });
    }
}
