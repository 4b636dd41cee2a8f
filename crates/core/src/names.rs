//! The names of things: small integers with a type each, and sets of ports.

use std::fmt;

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $repr:ty) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
        pub struct $name(pub $repr);

        impl $name {
            /// The name as an index into a table.
            #[inline]
            pub const fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

name!(
    /// A worker's number within its job, from 0.
    Rank,
    u32
);
name!(
    /// A job: one group of workers that reduce together.
    JobId,
    u16
);
name!(
    /// A collective operation within a job; all workers number them alike, from 0.
    OperationId,
    u32
);
name!(
    /// A host or a switch of the network. Hosts come first: in a network of H hosts they are `0..H`, switches follow.
    NodeId,
    u32
);
name!(
    /// A port of a host or switch, from 0.
    PortId,
    u16
);

/// A set of ports of one switch, of any size. Two equal sets compare equal whatever their history.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct PortSet {
    words: Vec<u64>,
}

impl PortSet {
    /// The empty set.
    pub const fn new() -> Self {
        PortSet { words: Vec::new() }
    }

    /// Adds a port; says whether it was missing before.
    pub fn insert(&mut self, port: PortId) -> bool {
        let (word, bit) = (port.index() / 64, 1u64 << (port.index() % 64));
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let missing = self.words[word] & bit == 0;
        self.words[word] |= bit;
        missing
    }

    /// Removes a port; says whether it was there.
    pub fn remove(&mut self, port: PortId) -> bool {
        let (word, bit) = (port.index() / 64, 1u64 << (port.index() % 64));
        let Some(slot) = self.words.get_mut(word) else { return false };
        let there = *slot & bit != 0;
        *slot &= !bit;
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
        there
    }

    /// Takes out all ports; keeps the memory for others.
    #[inline]
    pub fn clear(&mut self) {
        self.words.clear();
    }

    /// Makes this the set of all ports 64 w + i for which bit i of word number w is set; keeps its memory.
    #[inline]
    pub fn assign(&mut self, words: impl IntoIterator<Item = u64>) {
        self.words.clear();
        self.words.extend(words);
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }

    /// Whether the port is in the set.
    #[inline]
    pub fn contains(&self, port: PortId) -> bool {
        self.words.get(port.index() / 64).is_some_and(|word| word >> (port.index() % 64) & 1 == 1)
    }

    /// Number of ports.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether no port is in the set.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The ports in ascending order.
    #[inline]
    pub fn iter(&self) -> impl Iterator<Item = PortId> + '_ {
        let (mut words, mut first, mut bits) = (self.words.iter(), 0u16.wrapping_sub(64), 0u64);
        std::iter::from_fn(move || {
            while bits == 0 {
                bits = *words.next()?;
                first = first.wrapping_add(64);
            }
            let port = PortId(first + bits.trailing_zeros() as u16);
            bits &= bits - 1;
            Some(port)
        })
    }
}

impl FromIterator<PortId> for PortSet {
    fn from_iter<I: IntoIterator<Item = PortId>>(ports: I) -> Self {
        let mut set = PortSet::new();
        for port in ports {
            set.insert(port);
        }
        set
    }
}

impl fmt::Debug for PortSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter().map(|port| port.0)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_set_holds_more_than_64_ports_and_iterates_in_order() {
        let set: PortSet = [130u16, 0, 63, 64].into_iter().map(PortId).collect();
        assert_eq!(set.iter().map(|port| port.0).collect::<Vec<_>>(), [0, 63, 64, 130]);
        assert_eq!(set.len(), 4);
        assert!(set.contains(PortId(64)) && !set.contains(PortId(65)) && !set.contains(PortId(900)));
    }

    #[test]
    fn a_port_set_is_made_from_words() {
        let mut set: PortSet = [9u16, 700].into_iter().map(PortId).collect();
        set.assign([0b101, 1 << 63, 0]);
        assert_eq!(set, [0u16, 2, 127].into_iter().map(PortId).collect());
        set.assign([0, 0]);
        assert_eq!(set, PortSet::new());
        set.assign([1]);
        set.clear();
        assert_eq!(set, PortSet::new());
    }

    #[test]
    fn equality_does_not_depend_on_history() {
        let mut set = PortSet::new();
        assert!(set.insert(PortId(200)));
        assert!(!set.insert(PortId(200)));
        assert!(set.remove(PortId(200)));
        assert!(!set.remove(PortId(200)));
        assert_eq!(set, PortSet::new());
        assert!(set.is_empty());
    }
}
