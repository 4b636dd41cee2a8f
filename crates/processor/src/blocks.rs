//! What a block has while its packets come: counts, locks, buffers, the nodes of its tree.

use std::collections::VecDeque;

use crate::sending::{Stream, random};

/// A lock; who waits is served first come, first served.
#[derive(Clone, Default, Debug)]
pub(crate) struct Lock {
    is_held: bool,
    waiting: VecDeque<u32>,
}

impl Lock {
    /// Takes it for a core, or lets the core wait.
    pub fn take(&mut self, core: u32) -> bool {
        if self.is_held {
            self.waiting.push_back(core);
            return false;
        }
        self.is_held = true;
        true
    }

    /// Takes it if it is free.
    pub fn try_take(&mut self) -> bool {
        !std::mem::replace(&mut self.is_held, true)
    }

    /// Gives it up: the core that has it now.
    pub fn release(&mut self) -> Option<u32> {
        let next = self.waiting.pop_front();
        self.is_held = next.is_some();
        next
    }
}

/// A sum on its way: its number, and the census of what is in it.
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub(crate) struct Sum {
    /// As a float, for what depends on the order of additions.
    pub value: f32,
    /// The sum of the weights of all contributions in it, modulo 2^64.
    pub census: u64,
}

impl Sum {
    /// What a child contributes to a block.
    pub fn of(seed: u64, block: u32, child: u32) -> Sum {
        let bits = random(seed, Stream::Values, child, u64::from(block));
        // Of both signs and sizes that differ by a factor of a thousand and more, so that most orders of additions round differently.
        let magnitude = (1 + (bits & 0x3ff)) as f32 * (1.0 + (bits >> 40) as f32 / (1u32 << 24) as f32);
        Sum { value: if bits & 0x400 == 0 { magnitude } else { -magnitude }, census: bits }
    }

    /// Left plus right.
    pub fn plus(self, other: Sum) -> Sum {
        Sum { value: self.value + other.value, census: self.census.wrapping_add(other.census) }
    }
}

/// A buffer of working memory.
#[derive(Clone, Default, Debug)]
pub(crate) struct Buffer {
    pub lock: Lock,
    /// `None` before the first packet.
    pub sum: Option<Sum>,
}

/// A node of a tree that is done and waits for its sibling.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Done {
    pub sum: Sum,
    /// Whether it is a packet in packet memory; else it has a buffer.
    pub is_packet: bool,
}

/// A block under way.
#[derive(Clone, Default, Debug)]
pub(crate) struct Block {
    /// Packets that are in its sums.
    pub count: u32,
    /// Those that have come.
    pub arrived: u32,
    /// When the first one came.
    pub began: u64,
    /// Its cluster's memory has room for it.
    pub has_room: bool,
    pub buffers: Vec<Buffer>,
    /// By level, from the leaves on, and place.
    pub tree: Vec<Vec<Option<Done>>>,
    /// Its sum, when it has ended.
    pub result: Option<Sum>,
}

impl Block {
    /// Makes room for a tree over so many children.
    pub fn grow_tree(&mut self, children: u32) {
        let mut width = children as usize;
        loop {
            self.tree.push(vec![None; width]);
            if width == 1 {
                return;
            }
            width = width.div_ceil(2);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_goes_to_who_waited_longest() {
        let mut lock = Lock::default();
        assert!(lock.take(1) && !lock.take(2) && !lock.take(3) && !lock.try_take());
        assert_eq!((lock.release(), lock.release(), lock.release()), (Some(2), Some(3), None));
        assert!(lock.try_take());
    }

    #[test]
    fn a_tree_has_a_root_whatever_the_number_of_children() {
        for (children, widths) in [(1, vec![1]), (2, vec![2, 1]), (5, vec![5, 3, 2, 1]), (8, vec![8, 4, 2, 1])] {
            let mut block = Block::default();
            block.grow_tree(children);
            assert_eq!(block.tree.iter().map(Vec::len).collect::<Vec<_>>(), widths);
        }
    }
}
