//! Records that come and go. Memory grows to the most that were ever there at once and is used again, what was freed last first, so that
//! in the steady state nothing is allocated and the records in use stay close together.

use std::ops::{Index, IndexMut};

/// Records by number.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Pool<T> {
    items: Vec<T>,
    free: Vec<u32>,
}

impl<T> Pool<T> {
    pub(super) fn new() -> Self {
        Pool { items: Vec::new(), free: Vec::new() }
    }

    /// Number of records in use.
    #[inline]
    pub(super) fn in_use(&self) -> u32 {
        (self.items.len() - self.free.len()) as u32
    }

    /// A record, with what its last use left in it, or a new one.
    #[inline]
    pub(super) fn take(&mut self, make: impl FnOnce() -> T) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.items.push(make());
            (self.items.len() - 1) as u32
        })
    }

    /// Frees a record that is in use.
    #[inline]
    pub(super) fn give_back(&mut self, number: u32) {
        self.free.push(number);
    }

    /// Forgets all records but `kept`, which get the numbers 0, 1, ...: states that differ only in their history are equal then.
    pub(super) fn renumber(&mut self, kept: &[u32])
    where
        T: Clone,
    {
        self.items = kept.iter().map(|number| self.items[*number as usize].clone()).collect();
        self.free.clear();
    }
}

impl<T> Index<u32> for Pool<T> {
    type Output = T;

    #[inline]
    fn index(&self, number: u32) -> &T {
        &self.items[number as usize]
    }
}

impl<T> IndexMut<u32> for Pool<T> {
    #[inline]
    fn index_mut(&mut self, number: u32) -> &mut T {
        &mut self.items[number as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_freed_is_used_again() {
        let mut pool = Pool::new();
        let numbers: Vec<u32> = (0..4).map(|item| pool.take(|| item)).collect();
        assert_eq!((numbers, pool.in_use()), (vec![0, 1, 2, 3], 4));
        pool.give_back(2);
        pool.give_back(0);
        assert_eq!(pool.in_use(), 2);
        assert_eq!((pool.take(|| 9), pool.take(|| 9), pool.take(|| 9)), (0, 2, 4));
        assert_eq!((pool[0], pool[2], pool[4]), (0, 2, 9));
        pool.renumber(&[4, 1]);
        assert_eq!((pool[0], pool[1], pool.in_use()), (9, 1, 2));
    }
}
