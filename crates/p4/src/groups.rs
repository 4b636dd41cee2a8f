//! Multicast groups by shards of ports (Canary 4.2). A switch copies a sum to the ports that its parts came by, which are not known
//! beforehand, and a group must be known beforehand: one for each of the 2^p sets of p ports would be too many. The bitmap is cut into s
//! shards, each set of ports within a shard has a group, and a sum takes s groups, one after the other: s 2^(p/s) groups.

use std::ops::RangeInclusive;

/// A group's number has so many bits, in v1model (`bit<16> mcast_grp`) as in TNA.
pub const GROUP_BITS: u32 = 16;

/// How a switch's ports are cut.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shards {
    ports: u16,
    shards: u16,
}

/// Why ports cannot be cut so.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum NoShards {
    /// Not whole.
    #[error("{ports} ports in {shards} shards: every shard must have the same number of ports, 1 to 32")]
    Uneven {
        /// Ports of the switch.
        ports: u16,
        /// Shards.
        shards: u16,
    },
    /// Their numbers do not fit.
    #[error("{groups} multicast groups: their numbers have {GROUP_BITS} bits, so that there are at most {}; more shards need fewer", (1 << GROUP_BITS) - 1)]
    TooMany {
        /// How many there would be.
        groups: u64,
    },
}

impl Shards {
    /// So many ports in so many shards.
    ///
    /// # Errors
    /// Where a shard is not whole, or has none or more than 32 ports.
    pub fn new(ports: u16, shards: u16) -> Result<Self, NoShards> {
        let is_whole = shards > 0 && ports > 0 && ports.is_multiple_of(shards) && ports / shards <= 32;
        if is_whole { Ok(Shards { ports, shards }) } else { Err(NoShards::Uneven { ports, shards }) }
    }

    /// Ports of a shard.
    pub const fn width(self) -> u32 {
        (self.ports / self.shards) as u32
    }

    /// Number of shards.
    pub const fn count(self) -> u16 {
        self.shards
    }

    /// Number of groups: s 2^(p/s).
    pub const fn groups(self) -> u64 {
        (self.shards as u64) << self.width()
    }

    /// Whether their numbers, from 1 on, have few enough bits for a switch.
    ///
    /// # Errors
    /// [`NoShards::TooMany`].
    pub fn check(self) -> Result<(), NoShards> {
        if self.groups() < 1 << GROUP_BITS { Ok(()) } else { Err(NoShards::TooMany { groups: self.groups() }) }
    }

    /// The number of the group of a set of a shard's ports, whose lowest bit is the shard's first port.
    pub const fn number(self, shard: u16, set: u64) -> u64 {
        1 + ((shard as u64) << self.width() | set)
    }

    /// All numbers.
    pub const fn numbers(self) -> RangeInclusive<u64> {
        1..=self.groups()
    }

    /// The ports of a group.
    pub fn ports(self, number: u64) -> impl Iterator<Item = u16> {
        let (shard, set) = self.shard(number);
        let first = shard * self.width() as u16;
        (0..self.width() as u16).filter(move |port| set >> port & 1 == 1).map(move |port| first + port)
    }

    /// A group's shard and set.
    pub const fn shard(self, number: u64) -> (u16, u64) {
        let index = number - 1;
        ((index >> self.width()) as u16, index & ((1 << self.width()) - 1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// "On a 64 port switch with four shards, this requires using 256 thousand entries": counted, not only computed.
    #[test]
    fn groups_of_64_ports_in_4_shards_are_262144() {
        let shards = Shards::new(64, 4).unwrap();
        assert_eq!(shards.groups(), 262_144);
        let mut sets = std::collections::BTreeSet::new();
        for number in shards.numbers() {
            let (shard, set) = shards.shard(number);
            assert_eq!(shards.number(shard, set), number);
            let bits = shards.ports(number).fold(0u64, |bits, port| bits | 1 << port);
            assert_eq!(bits, set << (16 * shard));
            sets.insert((shard, bits));
        }
        assert_eq!(sets.len(), 262_144);
    }

    /// 00101101 in two shards of four ports: 1 0010 and 0 1101, which stand for ports 5 and 0, 2, 3; there are 2 x 2^4 of them.
    #[test]
    fn the_papers_example() {
        let shards = Shards::new(8, 2).unwrap();
        assert_eq!(shards.groups(), 32);
        let ports = |shard, set| shards.ports(shards.number(shard, set)).collect::<Vec<_>>();
        assert_eq!((ports(1, 0b0010), ports(0, 0b1101)), (vec![5], vec![0, 2, 3]));
    }

    /// The paper's example does not fit the numbers that groups have in TNA and v1model.
    #[test]
    fn numbers_of_groups_have_16_bits() {
        assert_eq!(Shards::new(64, 4).unwrap().check(), Err(NoShards::TooMany { groups: 262_144 }));
        assert_eq!(Shards::new(64, 8).unwrap().check(), Ok(()));
        assert_eq!(Shards::new(32, 2).unwrap().check(), Err(NoShards::TooMany { groups: 131_072 }));
        assert_eq!(Shards::new(32, 4).unwrap().groups(), 1_024);
        for (ports, shards) in [(64, 0), (0, 1), (64, 5), (64, 1)] {
            assert_eq!(Shards::new(ports, shards), Err(NoShards::Uneven { ports, shards }));
        }
    }
}
