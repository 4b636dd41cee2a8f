//! How the vectors of a communicator travel.

pub(crate) mod alone;
pub(crate) mod beside;
pub(crate) mod datagrams;
pub(crate) mod fabric;
pub(crate) mod hierarchy;
pub(crate) mod hosts;
pub(crate) mod job;
pub(crate) mod layout;
pub(crate) mod mean;
pub(crate) mod memory;
pub(crate) mod operators;
pub(crate) mod patience;
pub(crate) mod star;
pub(crate) mod stop;
pub(crate) mod traffic;
pub(crate) mod whole;

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use crate::meeting::Joined;

/// The system at one switch that has one job for all calls.
pub(crate) const ONE_FOR_ALL: &str = "switchml";

/// How long a rank that sees that something is wrong waits for the switch to say what.
const VERDICT_WAIT: Duration = Duration::from_secs(5);

pub(crate) enum Path {
    Alone(Box<operators::Operators>),
    Memory(Box<memory::MemoryPath>),
    Datagrams(Box<datagrams::DatagramPath>),
    Fabric(Box<datagrams::DatagramPath>),
    Hierarchy(Box<hierarchy::HierarchyPath>),
}

/// How vectors travel, and why so.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PathReport {
    /// There is only one rank.
    Alone,
    /// Through shared memory.
    Memory {
        /// The switch that keeps the job.
        switch: SocketAddr,
    },
    /// By UDP to the switch.
    Datagrams {
        /// The system that reduces.
        system: &'static str,
        /// The switch's socket for this job.
        switch: SocketAddr,
        /// This rank's socket.
        local: SocketAddr,
        /// Bytes of elements in a packet.
        payload_bytes: u32,
        /// Packets under way.
        window: u32,
        /// The kernel's buffer for packets that have come, in bytes.
        receive_buffer_bytes: u64,
        /// This rank runs the switch: what it sends there goes through the memory of its process.
        nearby: bool,
        /// Why not through shared memory.
        reason: String,
        /// Why hosts sum by themselves, if they do: then vectors travel between them, and not to the switch.
        by_hosts: Option<String>,
    },
    /// Over a fabric of several switches.
    Fabric {
        /// Where its manager is.
        manager: SocketAddr,
        /// The name of its file, at the manager.
        file: String,
        /// The host that this rank is.
        host: String,
        /// The system that sums.
        system: &'static str,
        /// Bytes of elements in a packet.
        payload_bytes: u32,
        /// Packets under way.
        window: u32,
        /// The rate of the host's link, in bits per second, by the fabric's file.
        link_bits_per_second: u64,
        /// Why hosts sum by themselves, if they do: then vectors travel between them, and not over the fabric.
        by_hosts: Option<String>,
    },
    /// Ranks that share hosts: through shared memory in each host, and from one rank of each between hosts.
    Hierarchy {
        /// The host that this rank is on.
        host: String,
        /// How many ranks are on it.
        ranks: u32,
        /// The one that goes between hosts for all.
        first: u32,
        /// How many hosts there are.
        hosts: u32,
        /// How vectors travel between hosts, where this rank goes there.
        between: Option<Box<PathReport>>,
    },
}

impl PathReport {
    pub(crate) fn alone() -> Self {
        PathReport::Alone
    }

    /// `system`: what reduces where ranks do not share memory.
    pub(crate) fn of(joined: &Joined, system: &'static str) -> Self {
        match &joined.memory {
            Ok(_) => PathReport::Memory { switch: joined.switch },
            Err(reason) => PathReport::Datagrams {
                system,
                switch: joined.admitted.data,
                local: joined.socket.local_address(),
                payload_bytes: joined.admitted.payload_bytes,
                window: joined.admitted.window,
                receive_buffer_bytes: joined.socket.receive_buffer_bytes() as u64,
                nearby: joined.embedded.is_some(),
                reason: reason.clone(),
                by_hosts: joined.admitted.by_hosts.clone(),
            },
        }
    }
}

impl fmt::Display for PathReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathReport::Alone => f.write_str("one rank, nothing travels"),
            PathReport::Memory { .. } => f.write_str("shared memory (all ranks are on this host)"),
            PathReport::Fabric { file, host, by_hosts: Some(why), .. } => {
                write!(f, "UDP from {host} of {file} to the other hosts, which sum by themselves, without the fabric: {why}")
            }
            PathReport::Fabric { manager, file, host, system, payload_bytes, window, .. } => write!(
                f,
                "{system} over the fabric {file}, as {host}, {payload_bytes} bytes a packet, {window} packets under way (its manager: {manager})"
            ),
            PathReport::Hierarchy { host, ranks, first, hosts, between } => {
                write!(f, "memory among the {ranks} ranks of {host}, one of {hosts} hosts, and from there ")?;
                match between {
                    Some(path) => write!(f, "{path}"),
                    None if *hosts == 1 => f.write_str("nowhere"),
                    None => write!(f, "by rank {first}"),
                }
            }
            PathReport::Datagrams { local, by_hosts: Some(why), .. } => {
                write!(f, "UDP from {local} to the other hosts, which sum by themselves, without the switch: {why}")
            }
            PathReport::Datagrams { system, switch, local, payload_bytes, window, nearby, reason, .. } => write!(
                f,
                "{}UDP from {local} to the switch at {switch}{}, {payload_bytes} bytes a packet, {window} packets under way \
                 (no shared memory: {reason})",
                if *system == ONE_FOR_ALL { String::new() } else { format!("{system} by ") },
                if *nearby { " in this process, which others reach so" } else { "" }
            ),
        }
    }
}
