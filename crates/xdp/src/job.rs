//! A job that the kernel is to take: what it needs to know, and why it may not.

use std::net::{Ipv4Addr, SocketAddrV4};

use fanin_core::Duration;
use fanin_systems::{
    A2tpParameters, AtpParameters, CanaryParameters, CanaryWindows, CollisionRule, FanInRule, Placement, SumOrder, SwitchMlParameters,
    System, TreeParameters,
};

use crate::layout::{JOBS_MAX, LATE_LIMITS, OP_REDUCES, PAYLOAD_BYTES_MAX, RANKS_MAX, VERSIONS_MAX};
use crate::ops::OpTable;

/// A system that has a program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum XdpSystem {
    /// SwitchML: slots with two versions each.
    SwitchMl,
    /// One static tree, of one switch.
    Tree,
    /// Canary, at a job's only switch.
    Canary,
    /// ATP, at a job's only switch, whose aggregators jobs share.
    Atp,
    /// A2TP, there.
    A2tp,
}

impl XdpSystem {
    /// All of them.
    pub const ALL: [XdpSystem; 5] = [XdpSystem::SwitchMl, XdpSystem::Tree, XdpSystem::Canary, XdpSystem::Atp, XdpSystem::A2tp];

    /// The program's system, if there is one for jobs of `system` as they are.
    pub fn of(system: &System) -> Option<Self> {
        match system {
            System::SwitchMl(_) => Some(XdpSystem::SwitchMl),
            // Integers have the same sum in any order, but a switch that keeps an order has other memory.
            System::Tree(TreeParameters { trees: 1, sum_order: SumOrder::Arrival }) => Some(XdpSystem::Tree),
            System::Canary(_) => Some(XdpSystem::Canary),
            System::Atp(_) => Some(XdpSystem::Atp),
            System::A2tp(_) => Some(XdpSystem::A2tp),
            _ => None,
        }
    }

    /// The system.
    pub fn system(self) -> System {
        match self {
            XdpSystem::SwitchMl => System::SwitchMl(SwitchMlParameters { fixed_point: false }),
            XdpSystem::Tree => System::tree(1),
            XdpSystem::Canary => System::canary(),
            XdpSystem::Atp => System::atp(),
            XdpSystem::A2tp => System::a2tp(),
        }
    }

    /// Its number in packets.
    pub fn number(self) -> u8 {
        self.system().number()
    }

    /// Which of a job's versions a round of a slot, or a block, has.
    pub fn index(self, slots: u32, slot: u16, number: u32) -> u32 {
        match self {
            XdpSystem::SwitchMl => (number & 1) * slots + u32::from(slot),
            XdpSystem::Tree => number & (2 * slots - 1),
            // Descriptors and aggregators do not come back to the kernel.
            XdpSystem::Canary | XdpSystem::Atp | XdpSystem::A2tp => 0,
        }
    }

    /// Whether the program knows which numbers of links have come: what comes twice might be in a sum twice, or be passed on twice.
    pub fn checks_numbers(self) -> bool {
        matches!(self, XdpSystem::Canary | XdpSystem::Atp | XdpSystem::A2tp)
    }

    /// Slots for a window of so many packets, each of which needs two versions.
    pub fn slots(self, window: u32) -> u32 {
        match self {
            XdpSystem::SwitchMl | XdpSystem::Canary | XdpSystem::Atp | XdpSystem::A2tp => window,
            XdpSystem::Tree => window.checked_next_power_of_two().unwrap_or(u32::MAX),
        }
    }
}

/// A rank of a job, and the way to it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XdpRank {
    /// Its socket.
    pub socket: SocketAddrV4,
    /// The number of the device that it is behind.
    pub ifindex: u32,
    /// Ethernet addresses of frames to it: its own, and ours.
    pub ethernet: [[u8; 6]; 2],
    /// Our address on the way to it.
    pub from: Ipv4Addr,
}

/// What a switch of Canary is told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct XdpCanary {
    /// Length of the array of descriptors.
    pub descriptors: u32,
    /// Whether blocks find their places by a hash, and not in turn.
    pub is_hashed: bool,
    /// How long a block's packets are collected; in whole ns.
    pub timeout: Duration,
    /// How long a descriptor that was sent on is kept; in whole ns.
    pub lifetime: Duration,
    /// How many contributions of a block can come, where the switch knows that.
    pub fan_in: Option<u16>,
}

impl XdpCanary {
    /// Of a job with so many ranks and this patience.
    ///
    /// # Errors
    /// What the program does not have.
    pub fn new(parameters: &CanaryParameters, ranks: u32, patience: Duration) -> Result<Self, Refused> {
        let CanaryParameters { timeout_adaptive, scan_ps, timeout_ps, timeout_root_ps, shared, placement, windows, .. } = *parameters;
        let refuse = |is_so: bool, key, why| if is_so { Err(Refused::Parameter { key, why }) } else { Ok(()) };
        refuse(timeout_adaptive, "timeout = \"adaptive\"", "the program has fixed timeouts")?;
        refuse(scan_ps > 0, "scan", "the program's clock packets come when they come")?;
        refuse(timeout_root_ps.is_some(), "timeout", "a job's only switch has one timeout")?;
        refuse(windows == CanaryWindows::A2tp, "windows = \"a2tp\"", "the program marks no blocks")?;
        refuse(shared, "shared", "each job has an array of its own here")?;
        refuse(placement == Placement::TwoPlaces, "table = \"d-choice\"", "a program holds the lock of one descriptor at a time")?;
        let lifetime = match parameters.lifetime_ps {
            0 => patience.divided(2),
            lifetime_ps => Duration::from_ps(lifetime_ps),
        };
        Ok(XdpCanary {
            descriptors: parameters.descriptors,
            is_hashed: placement == Placement::Hash,
            timeout: Duration::from_ps(timeout_ps),
            lifetime,
            fan_in: (parameters.fan_in == FanInRule::Known).then_some(ranks.saturating_sub(1) as u16),
        })
    }
}

/// What a switch of ATP or A2TP is told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct XdpAtp {
    /// Aggregators, which all such jobs in the kernel share that have as many.
    pub aggregators: u32,
    /// After how long an aggregator is free that nobody has spoken of; in whole ns.
    pub reclaim: Duration,
    /// Workers: the first of the job's nodes.
    pub workers: u32,
    /// Which of its nodes each of its servers is.
    pub servers: Vec<u8>,
}

impl XdpAtp {
    /// Of a job with so many ranks, the first of which has the server.
    ///
    /// # Errors
    /// What the program does not have.
    pub fn new(system: &System, ranks: u32) -> Result<Self, Refused> {
        let (aggregators, reclaim_ps, fixed_point, collisions) = match *system {
            System::A2tp(A2tpParameters { aggregators, reclaim_ps, fixed_point, collisions, .. }) => {
                (aggregators, reclaim_ps, fixed_point, collisions)
            }
            System::Atp(AtpParameters { aggregators, reclaim_ps, fixed_point, .. }) => {
                (aggregators, reclaim_ps, fixed_point, CollisionRule::Round)
            }
            _ => return Err(Refused::System(system.name())),
        };
        let refuse = |is_so: bool, key, why| if is_so { Err(Refused::Parameter { key, why }) } else { Ok(()) };
        refuse(fixed_point, "fixed_point", "the program sums whole numbers as they are")?;
        refuse(collisions == CollisionRule::Shared, "collisions = \"shared\"", "the program tells each job of its own collisions")?;
        Ok(XdpAtp { aggregators, reclaim: Duration::from_ps(reclaim_ps), workers: ranks, servers: vec![0] })
    }
}

/// A job.
#[derive(Clone, PartialEq, Debug)]
pub struct XdpJob {
    /// Its number in packets.
    pub job: u16,
    /// Its system.
    pub system: XdpSystem,
    /// The link epoch of its packets, in both directions.
    pub epoch: u32,
    /// Packets under way: slots, of which a tree has a power of two.
    pub pool: u32,
    /// Bytes of elements in a full packet.
    pub block_bytes: u32,
    /// Of Canary, what its switch is told.
    pub canary: Option<XdpCanary>,
    /// Of ATP and A2TP.
    pub atp: Option<XdpAtp>,
    /// What its packets name by numbers.
    pub ops: OpTable,
    /// The UDP port that packets come to.
    pub port: u16,
    /// By rank.
    pub ranks: Vec<XdpRank>,
    /// The times that lateness is told apart by.
    pub late: [Duration; LATE_LIMITS],
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
    /// Too many descriptors.
    #[error("it has {needed} descriptors or aggregators, and {free} places in a row are free of {VERSIONS_MAX}")]
    Descriptors {
        /// Descriptors.
        needed: u32,
        /// What is free.
        free: u32,
    },
    /// A parameter of its system that the program does not have.
    #[error("{key}: {why}")]
    Parameter {
        /// The key.
        key: &'static str,
        /// Why not.
        why: &'static str,
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
    /// Its tenant's jobs may only go so fast.
    #[error("its tenant has a quota of bandwidth or fuel, which the kernel's program does not keep")]
    Rates,
    /// Elements that the kernel has no operator for, and a system that does nothing else.
    #[error("its only operator is one of floats that the kernel does not have")]
    Floats,
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
        if !(1..=VERSIONS_MAX).contains(&self.versions()) {
            return Err(self.too_many(VERSIONS_MAX));
        }
        if self.system != XdpSystem::SwitchMl && self.ops[0] & OP_REDUCES == 0 {
            return Err(Refused::Floats);
        }
        Ok(())
    }

    /// Slots, with two versions each.
    pub fn slots(&self) -> u32 {
        self.system.slots(self.pool)
    }

    /// Versions of slots, or descriptors.
    pub fn versions(&self) -> u32 {
        match (self.canary, &self.atp) {
            (Some(canary), _) => canary.descriptors,
            (_, Some(atp)) => atp.aggregators,
            (None, None) => self.slots().saturating_mul(2),
        }
    }

    /// Why there is no room for it, where so many versions in a row are free.
    pub(crate) fn too_many(&self, free: u32) -> Refused {
        match self.canary.is_some() || self.atp.is_some() {
            true => Refused::Descriptors { needed: self.versions(), free },
            false => Refused::Versions { window: self.pool, needed: self.versions(), free },
        }
    }

    /// How much later than a version's last round its next one may be: as at the state machine.
    pub fn rounds_ahead_max(&self) -> u32 {
        let any_fixed_point = self.ops.iter().any(|op| op & crate::layout::OP_FIXED_POINT != 0);
        if any_fixed_point { 2 * self.pool + 4 } else { 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_of_atp_does_not_do_is_refused_by_its_key() {
        let (atp, a2tp) = (AtpParameters::default(), A2tpParameters::default());
        let job = XdpAtp::new(&System::A2tp(A2tpParameters { aggregators: 9, ..a2tp }), 3).unwrap();
        assert_eq!((job.aggregators, job.workers, &job.servers[..]), (9, 3, &[0][..]));
        let refused = |system| XdpAtp::new(&system, 3).unwrap_err().to_string();
        assert!(refused(System::Atp(AtpParameters { fixed_point: true, ..atp })).starts_with("fixed_point: "));
        assert!(
            refused(System::A2tp(A2tpParameters { collisions: CollisionRule::Shared, ..a2tp })).starts_with("collisions = \"shared\": ")
        );
        assert_eq!(refused(System::tree(1)), "there is no program for the system tree");
        for (system, known) in [(System::Atp(atp), XdpSystem::Atp), (System::A2tp(a2tp), XdpSystem::A2tp)] {
            assert_eq!((XdpSystem::of(&system), known.number()), (Some(known), system.number()));
        }
    }
}
