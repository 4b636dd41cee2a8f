//! Results that are kept: a plan is read several times in a process, as it stands, with what `--quick` changes and for each of its causes, and a
//! simulated switch or a training takes longer than all else that reading does.

#![allow(clippy::disallowed_types, reason = "no node: threads that read plans share what is computed")]

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

/// Results of a function by what it was given. It must be pure: what is kept can then not be stale, and who asks cannot tell kept from computed.
pub(crate) struct Memo<K, V> {
    kept: Mutex<BTreeMap<K, V>>,
    /// So many results are kept; where there is one more, those before it are forgotten.
    most: usize,
}

impl<K: Ord, V: Clone> Memo<K, V> {
    /// Keeps so many results at most.
    pub const fn new(most: usize) -> Self {
        Memo { kept: Mutex::new(BTreeMap::new()), most }
    }

    /// The result for `key`, computed where it is not kept. Nobody waits meanwhile: two that ask at once may both compute it.
    pub fn get(&self, key: K, compute: impl FnOnce() -> V) -> V {
        // Nothing panics between a change of the map and its end.
        let lock = || self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        let found = lock().get(&key).cloned();
        found.unwrap_or_else(|| {
            let value = compute();
            let mut kept = lock();
            if kept.len() >= self.most {
                kept.clear();
            }
            kept.insert(key, value.clone());
            value
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_result_is_computed_once_and_few_are_kept() {
        let memo = Memo::new(2);
        let computed = Cell::new(0);
        let square = |number: u64| {
            memo.get(number, || {
                computed.set(computed.get() + 1);
                number * number
            })
        };
        assert_eq!([square(2), square(3), square(2), square(3)], [4, 9, 4, 9]);
        assert_eq!(computed.get(), 2);
        assert_eq!(square(4), 16, "the two before it are forgotten");
        assert_eq!((square(4), square(2), computed.get()), (16, 4, 4));
        assert!(memo.kept.lock().expect("nothing panicked").len() <= 2);
    }
}
