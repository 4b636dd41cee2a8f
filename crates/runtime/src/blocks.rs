//! Which blocks of an operation are complete, for whoever has to go on where a switch was lost.

/// A set of blocks, one bit each.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct BlockSet {
    words: Vec<u64>,
    blocks: u64,
}

impl BlockSet {
    /// Forgets everything; from now on there are blocks 0 to `blocks` - 1. Memory is kept.
    pub fn reset(&mut self, blocks: u64) {
        self.blocks = blocks;
        self.words.clear();
        self.words.resize(blocks.div_ceil(64) as usize, 0);
    }

    /// Adds a block; one that is not there is left out.
    #[inline]
    pub fn insert(&mut self, block: u64) {
        if block < self.blocks {
            self.words[(block / 64) as usize] |= 1 << (block % 64);
        }
    }

    /// Whether the block is in the set.
    pub fn contains(&self, block: u64) -> bool {
        block < self.blocks && self.words[(block / 64) as usize] >> (block % 64) & 1 == 1
    }

    /// All blocks of the set as runs of neighbours: the first block and how many, ascending.
    pub fn runs(&self) -> Vec<(u64, u64)> {
        let (mut runs, mut block) = (Vec::new(), 0);
        while block < self.blocks {
            let first = block;
            while self.contains(block) {
                block += 1;
            }
            if block > first {
                runs.push((first, block - first));
            } else if block % 64 == 0 && self.words[(block / 64) as usize] == 0 {
                // Most of a long operation is often missing as a whole.
                block += 64;
            } else {
                block += 1;
            }
        }
        runs
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_what_was_inserted() {
        let mut set = BlockSet::default();
        set.reset(200);
        for block in [0, 1, 2, 63, 64, 65, 130, 199, 200, 999] {
            set.insert(block);
        }
        assert_eq!(set.runs(), [(0, 3), (63, 3), (130, 1), (199, 1)]);
        assert!(set.contains(64) && !set.contains(66) && !set.contains(200));
        set.reset(3);
        assert_eq!(set.runs(), []);
        (0..3).for_each(|block| set.insert(block));
        assert_eq!(set.runs(), [(0, 3)]);
    }
}
