//! Where a leader finds a block's record: a table that grows until no two blocks in it want the same place. As blocks come one after the
//! other that is soon the case.

/// A place without a record.
const EMPTY: u32 = u32::MAX;

/// Record numbers by block.
///
/// A job of H workers has this worker lead every H-th block, or blocks one after the other ([`super::cut`]). With H = 2^e o, o odd, block b
/// goes to place (b / 2^e) / o + (b mod 2^e) M / 2^e modulo M, the table's length, a power of two; the division by o is one in the ring of
/// 32-bit numbers, where every odd number has an inverse. So every H-th block goes one place further, and M blocks in a row all go to
/// places of their own.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Places {
    numbers: Vec<u32>,
    /// e, and the inverse of o.
    shift: u32,
    inverse: u32,
}

impl Places {
    /// An empty table for a job of `hosts` workers.
    pub(super) fn new(hosts: u32) -> Self {
        let shift = hosts.trailing_zeros().min(u32::BITS - 1);
        let odd = hosts.max(1) >> shift;
        // Newton's method: every step doubles the number of right bits, and an odd number is its own inverse in the lowest three.
        let inverse = (0..4).fold(odd, |inverse, _| inverse.wrapping_mul(2u32.wrapping_sub(odd.wrapping_mul(inverse))));
        Places { numbers: vec![EMPTY; 4], shift, inverse }
    }

    #[inline]
    fn place_of(&self, block: u32) -> usize {
        let (length, low) = (self.numbers.len() as u32, block & ((1 << self.shift) - 1));
        let place = (block >> self.shift).wrapping_mul(self.inverse).wrapping_add(low.wrapping_mul(length >> self.shift));
        (place & (length - 1)) as usize
    }

    /// The number at the place of a block, be it that of this block or of another.
    #[inline]
    pub(super) fn get(&self, block: u32) -> Option<u32> {
        let number = self.numbers[self.place_of(block)];
        (number != EMPTY).then_some(number)
    }

    /// Enters a block that is not there; `block_of` gives the block of a number that is.
    #[inline]
    pub(super) fn insert(&mut self, block: u32, number: u32, block_of: impl Fn(u32) -> u32) {
        while self.numbers[self.place_of(block)] != EMPTY {
            self.widen(&block_of);
        }
        let place = self.place_of(block);
        self.numbers[place] = number;
    }

    /// Two blocks want one place: doubles their number, until all have one of their own.
    #[cold]
    fn widen(&mut self, block_of: impl Fn(u32) -> u32) {
        let old = std::mem::take(&mut self.numbers);
        let mut length = old.len();
        loop {
            length *= 2;
            self.numbers = vec![EMPTY; length];
            let mut fits = true;
            for &number in old.iter().filter(|number| **number != EMPTY) {
                let place = self.place_of(block_of(number));
                fits &= std::mem::replace(&mut self.numbers[place], number) == EMPTY;
            }
            if fits {
                return;
            }
        }
    }

    /// Takes a block out that is there.
    #[inline]
    pub(super) fn remove(&mut self, block: u32) {
        let place = self.place_of(block);
        self.numbers[place] = EMPTY;
    }

    /// Takes all out.
    pub(super) fn clear(&mut self) {
        self.numbers.fill(EMPTY);
    }

    /// All numbers, in the order of their places.
    pub(super) fn numbers(&self) -> Vec<u32> {
        self.numbers.iter().copied().filter(|number| *number != EMPTY).collect()
    }

    /// Changes all numbers.
    pub(super) fn renumber(&mut self, renumber: impl FnMut(&mut u32)) {
        self.numbers.iter_mut().filter(|number| **number != EMPTY).for_each(renumber);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The length of a table that holds these blocks.
    fn length(hosts: u32, blocks: impl Iterator<Item = u32> + Clone) -> usize {
        let known: Vec<u32> = blocks.clone().collect();
        let mut places = Places::new(hosts);
        for (number, block) in blocks.enumerate() {
            places.insert(block, number as u32, |number| known[number as usize]);
        }
        for (number, block) in known.iter().enumerate() {
            assert_eq!(places.get(*block), Some(number as u32), "{hosts} {block}");
        }
        places.numbers.len()
    }

    #[test]
    fn a_table_is_as_long_as_it_must_be() {
        for hosts in [1, 2, 3, 7, 12, 64, 1000, 1024, 65_535] {
            for first in [0, 5, 1 << 20, u32::MAX - 300 * 65_535] {
                let turns = (0..256).map(|turn| first + turn * hosts);
                assert_eq!(length(hosts, turns), 256, "every {hosts}th from {first}");
                let row = (0..256).map(|block| first + block);
                assert!(
                    length(hosts, row) <= 512.max(hosts.next_power_of_two() as usize),
                    "one after the other from {first}, {hosts} workers"
                );
            }
        }
    }

    #[test]
    fn blocks_on_both_sides_of_the_wrap_have_places() {
        assert!(length(6, (0..64).map(|block| (u32::MAX - 30).wrapping_add(block))) <= 256);
    }

    #[test]
    fn what_was_taken_out_leaves_its_place() {
        let mut places = Places::new(4);
        places.insert(3, 9, |_| 3);
        assert_eq!((places.get(3), places.numbers()), (Some(9), vec![9]));
        places.renumber(|number| *number = 0);
        assert_eq!(places.get(3), Some(0));
        places.remove(3);
        assert_eq!(places.get(3), None);
    }
}
