//! A job that the kernel is to take: what it needs to know, and why it may not.

use std::net::{Ipv4Addr, SocketAddrV4};

use crate::layout::{JOBS_MAX, PAYLOAD_BYTES_MAX, RANKS_MAX, VERSIONS_MAX};
use crate::ops::OpTable;

/// A rank of a job, and the way to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XdpRank {
    /// Its socket.
    pub socket: SocketAddrV4,
    /// The number of the device that it is behind.
    pub ifindex: u32,
}

/// A job of SwitchML.
#[derive(Clone, PartialEq, Debug)]
pub struct XdpJob {
    /// Its number in packets.
    pub job: u16,
    /// Its system's number in packets.
    pub system: u8,
    /// The link epoch of its packets, in both directions.
    pub epoch: u32,
    /// Slots.
    pub pool: u32,
    /// Bytes of elements in a full packet.
    pub block_bytes: u32,
    /// What its packets name by numbers.
    pub ops: OpTable,
    /// The UDP port that packets come to.
    pub port: u16,
    /// By rank.
    pub ranks: Vec<XdpRank>,
}

/// Why the kernel does not take a job. It goes on in user space then.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Refused {
    /// Too many ranks.
    #[error("it has {0} ranks: the kernel takes at most {RANKS_MAX}, a bit each in a word")]
    Ranks(usize),
    /// Packets are too long.
    #[error("its packets carry {0} bytes of elements: the kernel takes at most {PAYLOAD_BYTES_MAX}, which fit an Ethernet frame")]
    PayloadBytes(u32),
    /// Too many slots for what is free.
    #[error("its window of {window} packets needs {needed} versions of slots, and {free} in a row are free of {VERSIONS_MAX}")]
    Versions {
        /// Packets under way.
        window: u32,
        /// Two for each.
        needed: u32,
        /// What is free.
        free: u32,
    },
    /// Too many jobs.
    #[error("{JOBS_MAX} jobs are in the kernel already")]
    Jobs,
    /// No program for it.
    #[error("there is no program for the system {0}")]
    System(&'static str),
    /// It brings operators along.
    #[error("it brings operators along, which run in user space")]
    Operators,
    /// No IPv4.
    #[error("rank {0} has no IPv4 address")]
    Family(usize),
    /// A rank is not next door.
    #[error("rank {rank} at {ip} is no neighbour at one of the devices {devices}: the kernel's program does no routing")]
    NoNeighbour {
        /// The rank.
        rank: usize,
        /// Its address.
        ip: Ipv4Addr,
        /// Names of devices.
        devices: String,
    },
    /// The kernel says no.
    #[error("the kernel refuses it: {0}")]
    Kernel(String),
}

impl XdpJob {
    /// Whether its form is one that the program takes; whether there is room is found out when it is opened.
    ///
    /// # Errors
    /// What is too large.
    pub fn check(&self) -> Result<(), Refused> {
        if !(1..=RANKS_MAX as usize).contains(&self.ranks.len()) {
            return Err(Refused::Ranks(self.ranks.len()));
        }
        if !(1..=PAYLOAD_BYTES_MAX).contains(&self.block_bytes) {
            return Err(Refused::PayloadBytes(self.block_bytes));
        }
        if !(1..=VERSIONS_MAX / 2).contains(&self.pool) {
            let needed = self.pool.saturating_mul(2);
            return Err(Refused::Versions { window: self.pool, needed, free: VERSIONS_MAX });
        }
        Ok(())
    }

    /// How much later than a version's last round its next one may be: as at the state machine.
    pub fn rounds_ahead_max(&self) -> u32 {
        let any_fixed_point = self.ops.iter().any(|op| op & crate::layout::OP_FIXED_POINT != 0);
        if any_fixed_point { 2 * self.pool + 4 } else { 2 }
    }
}
