//! Credits for the buffer at the far end of a lossless link: bytes at hand, and bytes that come at known times.

/// Bytes from a time on, in one word: a network has many credits under way, and caches are small.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
struct Credit(u64);

impl Credit {
    /// A longer frame gives several credits.
    const BYTES_MAX: u32 = u16::MAX as u32;
    /// None: later than any.
    const NONE: Credit = Credit(u64::MAX);

    #[inline]
    fn new(from_ps: u64, bytes: u32) -> Self {
        Credit(from_ps << 16 | u64::from(bytes))
    }

    #[inline]
    fn time_ps(self) -> u64 {
        self.0 >> 16
    }

    #[inline]
    fn is_later_than(self, other: Credit) -> bool {
        self.0 > other.0 | u64::from(Self::BYTES_MAX)
    }

    #[inline]
    fn bytes(self) -> u64 {
        self.0 & u64::from(Self::BYTES_MAX)
    }
}

/// Credits have times below this, 281 s.
pub(crate) const TIME_MAX_PS: u64 = 1 << 48;

/// Credits in the order of their times. Memory grows to the most that were ever under way at once.
#[derive(Clone, Debug)]
pub(crate) struct Credits {
    /// Bytes at hand.
    at_hand: u64,
    /// The next credit, or [`Credit::NONE`].
    next: Credit,
    /// The last one, or one that was there and came later.
    latest: Credit,
    /// A ring of those behind the next one: a power of two of places, or none yet.
    coming: Box<[Credit]>,
    /// The first one's place is this modulo the ring's length.
    head: u32,
    count: u32,
}

impl Credits {
    /// A buffer of `bytes` bytes that is empty.
    pub fn new(bytes: u64) -> Self {
        // Links whose credits never wait behind others need no ring: most links of a large network.
        Credits { at_hand: bytes, next: Credit::NONE, latest: Credit::default(), coming: Box::default(), head: 0, count: 0 }
    }

    #[inline]
    fn mask(&self) -> usize {
        self.coming.len().wrapping_sub(1)
    }

    /// When the next credit comes; `u64::MAX` where none is on its way.
    #[inline(always)]
    pub fn next_ps(&self) -> u64 {
        if self.next == Credit::NONE { u64::MAX } else { self.next.time_ps() }
    }

    /// Adds a credit for `bytes` bytes from `from_ps` on.
    #[inline(always)]
    pub fn give(&mut self, from_ps: u64, bytes: u32) {
        let credit = Credit::new(from_ps, bytes);
        // Departures of different outputs may commit out of order, which is rare.
        if bytes > Credit::BYTES_MAX || self.latest.is_later_than(credit) {
            return self.give_apart(from_ps, bytes);
        }
        self.latest = credit;
        if self.next == Credit::NONE {
            self.next = credit;
            return;
        }
        let count = self.count as usize;
        if count == self.coming.len() {
            self.grow();
        }
        let mask = self.mask();
        self.count += 1;
        self.coming[(self.head as usize + count) & mask] = credit;
    }

    /// A credit that takes several words, or comes before others.
    #[cold]
    fn give_apart(&mut self, from_ps: u64, bytes: u32) {
        let mut left = bytes;
        while left > 0 {
            let part = left.min(Credit::BYTES_MAX);
            self.insert(Credit::new(from_ps, part));
            left -= part;
        }
    }

    #[cold]
    fn grow(&mut self) {
        self.coming.rotate_left(self.head as usize & self.mask());
        self.head = 0;
        let longer = (self.coming.len() * 2).max(4);
        let mut coming = std::mem::take(&mut self.coming).into_vec();
        coming.resize(longer, Credit::default());
        self.coming = coming.into();
    }

    /// Puts a credit before those that come later.
    fn insert(&mut self, mut credit: Credit) {
        self.latest = self.latest.max(credit);
        if self.next == Credit::NONE || self.next.is_later_than(credit) {
            std::mem::swap(&mut self.next, &mut credit);
        }
        if credit == Credit::NONE {
            return;
        }
        if self.count as usize == self.coming.len() {
            self.grow();
        }
        let mask = self.mask();
        let mut place = self.head as usize + self.count as usize;
        while place > self.head as usize && self.coming[(place - 1) & mask].is_later_than(credit) {
            self.coming[place & mask] = self.coming[(place - 1) & mask];
            place -= 1;
        }
        self.coming[place & mask] = credit;
        self.count += 1;
    }

    /// Takes `bytes` bytes out of what is there by `limit_ps`; false, and nothing is taken, where that is not enough.
    #[inline(always)]
    pub fn take(&mut self, bytes: u32, limit_ps: u64) -> bool {
        while self.at_hand < u64::from(bytes) {
            if self.next.time_ps() > limit_ps {
                return false;
            }
            self.at_hand += self.next.bytes();
            self.next = Credit::NONE;
            if self.count > 0 {
                self.next = self.coming[self.head as usize & self.mask()];
                self.head = self.head.wrapping_add(1);
                self.count -= 1;
            }
        }
        self.at_hand -= u64::from(bytes);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::hash::mix;

    #[test]
    fn agrees_with_a_sorted_list() {
        let (mut credits, mut model, mut at_hand) = (Credits::new(1_000), Vec::<(u64, u32)>::new(), 1_000u64);
        for round in 0..200_000u64 {
            let draw = mix(3, round);
            // Now and then one that takes several words.
            let most = if round % 97 == 0 { 200_000 } else { 700 };
            let (bytes, limit) = ((draw >> 8) as u32 % most + 1, round + (draw >> 40) % 50);
            if draw.is_multiple_of(2) {
                let from = round + (draw >> 50) % 40;
                credits.give(from, bytes);
                let mut left = bytes;
                while left > 0 {
                    let part = left.min(Credit::BYTES_MAX);
                    let place = model.partition_point(|&(other, _)| other <= from);
                    model.insert(place, (from, part));
                    left -= part;
                }
            } else {
                while at_hand < u64::from(bytes) && model.first().is_some_and(|&(from, _)| from <= limit) {
                    at_hand += u64::from(model.remove(0).1);
                }
                let enough = at_hand >= u64::from(bytes);
                assert_eq!(credits.take(bytes, limit), enough, "round {round}");
                at_hand -= if enough { u64::from(bytes) } else { 0 };
            }
            assert_eq!(credits.next_ps(), model.first().map_or(u64::MAX, |&(from, _)| from), "round {round}");
        }
    }
}
