//! Which of a sender's numbered packets have come, where the last one says how many there are.

/// What has come of a block or a list from one sender.
#[derive(Clone, Default, PartialEq, Eq, Hash, Debug)]
pub struct Arrivals {
    /// Bit i: the packet with number i has come.
    seen: Vec<u64>,
    received: u32,
    /// 0 until the last packet has come (`flare P5`: no number of received packets is equal to it).
    expected: u32,
}

/// A packet that contradicts others of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PacketError {
    /// There is no such child.
    NoChild,
    /// Its number is not below the number of packets that the last one says.
    Number,
    /// The last packet says that there are fewer than have come, or two say different things.
    Packets,
}

impl Arrivals {
    /// A packet has come: `packets` is 0 unless it is the last one. False: it has come before, and changes nothing.
    ///
    /// # Errors
    /// [`PacketError`] where it contradicts what has come before; it changes nothing.
    pub fn take(&mut self, number: u32, packets: u32) -> Result<bool, PacketError> {
        let (word, bit) = (number as usize / 64, 1u64 << (number % 64));
        let expected = if packets == 0 { self.expected } else { packets };
        if packets != 0 {
            let beyond = self.seen.iter().rposition(|&word| word != 0).map(|at| at as u32 * 64 + 63 - self.seen[at].leading_zeros());
            if self.expected != 0 && self.expected != packets || beyond.is_some_and(|highest| highest >= packets) {
                return Err(PacketError::Packets);
            }
        }
        if expected != 0 && number >= expected {
            return Err(PacketError::Number);
        }
        if self.seen.get(word).is_some_and(|seen| seen & bit != 0) {
            return Ok(false);
        }
        if self.seen.len() <= word {
            self.seen.resize(word + 1, 0);
        }
        self.seen[word] |= bit;
        self.received += 1;
        self.expected = expected;
        Ok(true)
    }

    /// How many have come.
    pub fn received(&self) -> u32 {
        self.received
    }

    /// Whether any has come.
    pub fn are_some(&self) -> bool {
        self.received > 0
    }

    /// Whether this packet has come.
    pub fn has(&self, number: u32) -> bool {
        self.seen.get(number as usize / 64).is_some_and(|word| word & 1 << (number % 64) != 0)
    }

    /// The number of the first that has not come.
    pub fn first_missing(&self) -> u16 {
        let word = self.seen.iter().position(|word| *word != u64::MAX).unwrap_or(self.seen.len());
        let bit = self.seen.get(word).map_or(0, |word| word.trailing_ones());
        (word as u32 * 64 + bit).min(u32::from(u16::MAX)) as u16
    }

    /// Whether all have come.
    pub fn are_all(&self) -> bool {
        self.expected != 0 && self.received == self.expected
    }

    /// Forgets everything; memory stays.
    pub fn clear(&mut self) {
        self.seen.iter_mut().for_each(|word| *word = 0);
        (self.received, self.expected) = (0, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_have_come_when_there_are_as_many_as_the_last_one_says() {
        let mut arrivals = Arrivals::default();
        assert_eq!(arrivals.take(69, 70), Ok(true));
        for number in (0..69).rev() {
            assert!(!arrivals.are_all());
            assert_eq!(arrivals.received(), 69 - number);
            assert_eq!((arrivals.take(number, 0), arrivals.take(number, 0)), (Ok(true), Ok(false)));
        }
        assert!(arrivals.are_all());
        assert_eq!((arrivals.take(70, 0), arrivals.take(3, 4)), (Err(PacketError::Number), Err(PacketError::Packets)));
        arrivals.clear();
        assert_eq!((arrivals.received(), arrivals.are_all()), (0, false));
    }
}
