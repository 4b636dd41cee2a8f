//! The order of all calls.

use std::sync::{Condvar, Mutex, PoisonError};

use crate::config::INTERRUPT_LOOK;
use crate::lock::locked;

/// Whose turn it is: calls run in the order in which tickets were taken.
#[derive(Debug, Default)]
pub(crate) struct Turns {
    state: Mutex<(u64, u64)>,
    changed: Condvar,
}

impl Turns {
    /// A ticket for the next call.
    pub(crate) fn take(&self) -> u64 {
        let mut state = locked(&self.state);
        state.0 += 1;
        state.0 - 1
    }

    /// Waits until it is the turn of `ticket`, which ends when what is returned is dropped: also where a caller panics.
    /// `look` is called now and then as long as it is not.
    pub(crate) fn wait(&self, ticket: u64, mut look: impl FnMut()) -> Turn<'_> {
        let mut state = locked(&self.state);
        while state.1 != ticket {
            let (again, waited) = self.changed.wait_timeout(state, INTERRUPT_LOOK).unwrap_or_else(PoisonError::into_inner);
            state = again;
            if waited.timed_out() {
                drop(state);
                look();
                state = locked(&self.state);
            }
        }
        Turn(self)
    }
}

/// A call's turn, for as long as it lives.
#[must_use]
pub(crate) struct Turn<'t>(&'t Turns);

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let mut state = locked(&self.0.state);
        state.1 += 1;
        if state.0 > state.1 {
            self.0.changed.notify_all();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;

    use super::*;

    #[test]
    fn turns_come_in_the_order_of_tickets() {
        let turns = Arc::new(Turns::default());
        let order = Arc::new(Mutex::new(Vec::new()));
        let tickets: Vec<u64> = (0..8).map(|_| turns.take()).collect();
        let threads: Vec<_> = tickets
            .into_iter()
            .rev()
            .map(|ticket| {
                let (turns, order) = (turns.clone(), order.clone());
                thread::spawn(move || {
                    let _turn = turns.wait(ticket, || ());
                    locked(&order).push(ticket);
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        assert_eq!(*locked(&order), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
