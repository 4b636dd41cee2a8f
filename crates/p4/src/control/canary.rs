//! A switch of Canary. Jobs need no entries: whatever a switch must know of one is in its packets.

use std::net::Ipv4Addr;

use fanin_core::{Duration, ElementOp, JobId, NodeId};
use fanin_protocols::canary::{CanarySwitch, CanarySwitchConfig, Placement, Timeout};
use serde::{Deserialize, Serialize};

use super::Commands;
use crate::formats::canary::{DESCRIPTORS, Name};
use crate::formats::switchml::{passes, size_of};
use crate::frames::Mac;
use crate::groups::{NoShards, Shards};

/// Ports of a switch at most: a bit each in two words.
pub const PORTS_MAX: u16 = 64;

/// The way to a host or switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Way {
    /// Its address.
    pub to: Ipv4Addr,
    /// The port that leads there.
    pub port: u16,
}

/// A switch.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Switch {
    /// Its address of Ethernet.
    pub mac: Mac,
    /// Its address in restorations.
    pub ip: Ipv4Addr,
    /// Its number in collided packets.
    pub number: u16,
    /// Who is at each of its ports.
    pub neighbours: Vec<Mac>,
    /// Shards of ports (Canary 4.2).
    pub shards: u16,
    /// The port of the packet generator: clock packets are taken from there only.
    pub clock_port: u16,
    /// Elements of a packet: 32, 64, 128 or 256.
    pub elements: usize,
    /// Length of the array of descriptors.
    pub descriptors: u32,
    /// A block is sent on so many scans after its first packet; it is found up to a scan later (Canary 4.3).
    pub timeout: u32,
    /// A descriptor that was sent on is given up after so many scans (`canary 5.10`).
    pub lifetime: u32,
    /// Ways.
    pub ways: Vec<Way>,
}

/// Why a switch cannot be configured so.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// The length of packets.
    #[error("{0} elements in a packet: there are 32, 64, 128 or 256")]
    Elements(usize),
    /// Ports.
    #[error("{0} ports: there are 1 to {PORTS_MAX}")]
    Ports(usize),
    /// Shards.
    #[error(transparent)]
    Shards(#[from] NoShards),
    /// A port that there is not.
    #[error("port {0} does not exist")]
    Port(u16),
    /// Two ways to one address.
    #[error("two ways lead to {0}")]
    Way(Ipv4Addr),
    /// The array.
    #[error("{0} descriptors: there are 1 to {DESCRIPTORS}")]
    Descriptors(u32),
    /// Times.
    #[error("a timeout of {timeout} scans and a lifetime of {lifetime}: both must be at least 1")]
    Times {
        /// Of collecting.
        timeout: u32,
        /// Of what was sent on.
        lifetime: u32,
    },
}

impl Switch {
    /// Number of its ports.
    pub fn ports(&self) -> u16 {
        self.neighbours.len() as u16
    }

    /// As packets name it.
    pub fn name(&self) -> Name {
        Name { ip: self.ip, number: self.number }
    }

    /// The port that leads to an address.
    pub fn way(&self, to: Ipv4Addr) -> Option<u16> {
        self.ways.iter().find(|way| way.to == to).map(|way| way.port)
    }

    /// The state machine of one descriptor: the array is as many of them, and which one is a block's is the hash's business.
    pub fn oracle(&self) -> CanarySwitch<[u8]> {
        CanarySwitch::new(CanarySwitchConfig {
            job: JobId(0),
            node: NodeId(self.number.into()),
            ports: self.ports(),
            op: ElementOp::I32_SUM.into(),
            block_bytes: 4 * self.elements as u32,
            timeout: Timeout::Fixed(Duration::from_us(self.timeout.into())),
            descriptors: 1,
            placement: Placement::Static,
            descriptor_lifetime: Duration::from_us(self.lifetime.into()),
        })
    }

    fn shards(&self) -> Result<Shards, Refused> {
        if !(1..=usize::from(PORTS_MAX)).contains(&self.neighbours.len()) {
            return Err(Refused::Ports(self.neighbours.len()));
        }
        let shards = Shards::new(self.ports(), self.shards)?;
        shards.check()?;
        Ok(shards)
    }

    /// Whether a switch can be so.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self) -> Result<(), Refused> {
        self.shards()?;
        size_of(self.elements).ok_or(Refused::Elements(self.elements))?;
        let ports = self.ways.iter().map(|way| way.port).chain([self.clock_port]);
        if let Some(port) = ports.into_iter().find(|port| *port >= self.ports()) {
            return Err(Refused::Port(port));
        }
        let is_double = |(number, way): &(usize, &Way)| self.ways[..*number].iter().any(|other| other.to == way.to);
        if let Some((_, way)) = self.ways.iter().enumerate().find(is_double) {
            return Err(Refused::Way(way.to));
        }
        if !(1..=DESCRIPTORS).contains(&self.descriptors) {
            return Err(Refused::Descriptors(self.descriptors));
        }
        let times = Refused::Times { timeout: self.timeout, lifetime: self.lifetime };
        if self.timeout == 0 || self.lifetime == 0 { Err(times) } else { Ok(()) }
    }

    /// Entries and groups: each set of a shard's ports has a group, which but for the last shard's also has the packet by again for the
    /// next shard.
    ///
    /// # Errors
    /// What does not fit.
    pub fn commands(&self) -> Result<Commands, Refused> {
        self.check()?;
        let shards = self.shards()?;
        let mut commands = Commands::new();
        let all = u64::MAX >> (u64::BITS - u32::from(self.ports()));
        let last = passes(self.elements) - 1;
        commands.default_action(
            "own",
            "set_own",
            &[&self.ip, &self.number, &self.descriptors, &self.timeout, &self.lifetime, &last, &all, &shards.width()],
        );
        commands.add("generator", "tick", &[&self.clock_port], &[]);
        for (port, mac) in self.neighbours.iter().enumerate() {
            commands.add("one_hot", "set_port_bit", &[&port], &[&(1u64 << port)]);
            commands.add("neighbour", "set_neighbour", &[&port], &[&self.mac, mac]);
        }
        for way in &self.ways {
            commands.add("route", "to_port", &[&way.to], &[&way.port]);
        }
        for number in shards.numbers() {
            let (shard, _) = shards.shard(number);
            commands.group(number, shards.ports(number), shard + 1 < shards.count());
        }
        Ok(commands)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch() -> Switch {
        Switch {
            mac: Mac(0x0200_0000_00fe),
            ip: Ipv4Addr::new(10, 0, 255, 7),
            number: 7,
            neighbours: (1..=4).map(|number| Mac(0x0200_0000_0000 | number)).collect(),
            shards: 2,
            clock_port: 3,
            elements: 64,
            descriptors: 16,
            timeout: 2,
            lifetime: 20,
            ways: vec![Way { to: Ipv4Addr::new(10, 0, 0, 1), port: 0 }],
        }
    }

    #[test]
    fn every_set_of_a_shard_has_a_group() {
        let text = switch().commands().unwrap().text();
        assert_eq!(text.matches("mc_mgrp_create").count() as u64, Shards::new(4, 2).unwrap().groups());
        assert!(text.starts_with("table_set_default own set_own 10.0.255.7 7 16 2 20 1 15 2\ntable_add generator tick 3 =>\n"), "{text}");
        // Ports 0 and 1, and by again for the second shard; that one's, and no more; nobody of the first; nobody at all.
        assert!(text.contains("mc_mgrp_create 4\nmc_node_create 0 0 1 510\nmc_node_associate 4 3\n"), "{text}");
        assert!(text.contains("mc_mgrp_create 8\nmc_node_create 0 2 3\nmc_node_associate 8 6\n"), "{text}");
        assert!(text.contains("mc_mgrp_create 1\nmc_node_create 0 510\nmc_node_associate 1 0\n"), "{text}");
        assert!(text.contains("mc_mgrp_create 5\nmc_mgrp_create 6\n"), "{text}");
        assert!(text.contains("table_add one_hot set_port_bit 3 => 8\n"), "{text}");
        assert!(text.contains("table_add route to_port 10.0.0.1 => 0\n"), "{text}");
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let refused = |change: fn(&mut Switch)| {
            let mut switch = switch();
            change(&mut switch);
            switch.commands().unwrap_err()
        };
        assert_eq!(refused(|switch| switch.elements = 33), Refused::Elements(33));
        assert_eq!(refused(|switch| switch.neighbours.clear()), Refused::Ports(0));
        assert_eq!(refused(|switch| switch.neighbours = vec![Mac(1); 65]), Refused::Ports(65));
        assert_eq!(refused(|switch| switch.shards = 3), Refused::Shards(NoShards::Uneven { ports: 4, shards: 3 }));
        assert_eq!(refused(|switch| switch.clock_port = 4), Refused::Port(4));
        assert_eq!(refused(|switch| switch.ways.push(switch.ways[0])), Refused::Way(Ipv4Addr::new(10, 0, 0, 1)));
        assert_eq!(refused(|switch| switch.descriptors = 0), Refused::Descriptors(0));
        assert_eq!(refused(|switch| switch.timeout = 0), Refused::Times { timeout: 0, lifetime: 20 });
        // 64 ports in 4 shards, the paper's example.
        let many = |switch: &mut Switch| (switch.neighbours, switch.shards) = (vec![Mac(1); 64], 4);
        assert_eq!(refused(many), Refused::Shards(NoShards::TooMany { groups: 262_144 }));
    }
}
