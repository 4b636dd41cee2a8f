//! Limits of a switch, and what it asks its driver to do.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use fanin_systems::{A2tpParameters, AtpParameters, FlarePackets, SumOrder, System, TreeParameters};
use fanin_trust::{PacketKeys, Protection, Quota, Secret};

use crate::call::Op;
use crate::message::{FabricFile, FailureKind, JobWish, OperatorWish, Refusal, SwitchMessage};

/// Limits and time limits of a switch.
#[derive(Clone, PartialEq, Debug)]
pub struct JobsConfig {
    /// Name and version of the program, for people.
    pub software: String,
    /// Seed of all random numbers: of instances, epochs and jobs. Two switches, and two lives of one, must have different ones.
    pub seed: u64,
    /// The fabric whose switches sum, where this is the manager of one; ranks are hosts of it.
    pub fabric: Option<FabricFile>,
    /// What is done for the packets of jobs, and what their keys are made from. Nothing where there is none.
    pub packets: Option<Packets>,
    /// Whether only connections with a pass ([`Jobs::on_pass`](super::Jobs::on_pass)) may join.
    pub wants_pass: bool,
    /// Jobs at once. Of those that wait for ranks there may be [`JobsConfig::waiting_max`] besides.
    pub jobs_max: usize,
    /// Connections at once.
    pub connections_max: usize,
    /// Memory of all jobs together, in bytes, as [`memory_bytes`] estimates it. Jobs that wait for ranks take none of it.
    pub memory_bytes_max: u64,
    /// The longest patience that a job may ask for, in ms.
    pub patience_ms_max: u64,
    /// The most bytes of elements in a packet.
    pub payload_bytes_max: u32,
    /// What a rank may have under way, in bytes, where a job does not say it.
    pub window_bytes: u32,
    /// How long a connection may take to join a job, in ms.
    pub handshake_ms: u64,
    /// How long a rank whose connection was lost may take to come back, in ms.
    pub grace_ms: u64,
    /// How long ranks may take to say what they are doing, in ms.
    pub describe_ms: u64,
    /// How long running jobs may go on when the switch drains, in ms.
    pub drain_ms: u64,
}

impl Default for JobsConfig {
    fn default() -> Self {
        JobsConfig {
            software: concat!("fanin ", env!("CARGO_PKG_VERSION")).into(),
            seed: 0,
            fabric: None,
            packets: None,
            wants_pass: false,
            // What jobs take is bounded by memory and connections; a program with groups of processes has a job for each.
            jobs_max: 1_024,
            connections_max: 4_096,
            memory_bytes_max: 1 << 30,
            patience_ms_max: 3_600_000,
            // With its headers, and filled up to whole cache lines, the longest multiple of a line that a datagram can be.
            payload_bytes_max: 65_416,
            // Measured with four workers and a switch on two cores: a quarter of it leaves processes waiting for each other, and four
            // times as much leaves the caches and makes round trips longer than the timeout. On paths of 1500 bytes it is 256 packets:
            // the slots of 512 do not fit into 1 MiB, and cost a switch of eight workers 4 to 8 % more processor time.
            window_bytes: 700 << 10,
            handshake_ms: 5_000,
            grace_ms: 1_000,
            describe_ms: 2_000,
            drain_ms: 30_000,
        }
    }
}

impl JobsConfig {
    /// How many jobs may wait for ranks at once. Half of them may have been begun from one address.
    pub fn waiting_max(&self) -> usize {
        self.jobs_max.saturating_mul(4).max(64)
    }
}

/// Whom a connection speaks for, once its token has been verified.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pass {
    /// The tenant.
    pub tenant: String,
    /// What it may have.
    pub quota: Quota,
}

/// How packets of jobs are protected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Packets {
    /// Not [`Protection::None`].
    pub protection: Protection,
    /// This life of the switch's alone: from it all keys are derived, but for those of cables.
    pub secret: Secret,
    /// At the manager of a fabric, the keys of each host's cable, by the host's name.
    pub cables: Option<Arc<BTreeMap<String, PacketKeys>>>,
}

impl Packets {
    /// The secret of a job, which no other job of this life of the switch has.
    pub(super) fn of_job(&self, drawn: u64, instance: u64) -> Secret {
        self.secret.derive("job", &[drawn, instance])
    }
}

/// The keys of the hop between a rank and its switch, of a job with this secret.
pub fn keys_at_switch(protection: Protection, job: &Secret, rank: u32) -> PacketKeys {
    PacketKeys { protection, secret: job.derive("rank", &[u64::from(rank)]) }
}

/// The keys of the hop between two ranks whose hosts sum by themselves.
pub(super) fn keys_of_pair(protection: Protection, job: &Secret, one: u32, other: u32) -> PacketKeys {
    PacketKeys { protection, secret: job.derive("pair", &[u64::from(one.min(other)), u64::from(one.max(other))]) }
}

/// What requests of ranks may keep whose jobs are not complete, in bytes: modules of operators, and what is left of operations after a
/// restart. Half of it may come from one address.
pub(super) const WAITING_BYTES_MAX: u64 = 128 << 20;

/// The most packets that a window can have.
pub const WINDOW_MAX: u32 = 65_536;

/// About how much memory a job takes at the switch, in bytes: its slots, in two versions and with room for sums that are wider than the
/// elements, a batch each way for every rank, and what a thread needs. Buffers of the kernel are not included. What makes no sense is refused
/// when the job is opened, and takes none.
pub fn memory_bytes(wish: &JobWish, world: u32, window: u32, payload_bytes: u32) -> u64 {
    let slot = match &wish.system {
        System::Flare(parameters) => {
            let packets = FlarePackets { workers: world, window, payload_bytes, element_bytes: wish.op.dtype.bytes() as u32 };
            packets.block_bytes(parameters).unwrap_or(0)
        }
        // What waits for its neighbour.
        System::Tree(TreeParameters { sum_order: SumOrder::Fixed, .. }) => {
            (1 + u64::from(world.div_ceil(2))) * 2 * u64::from(payload_bytes)
        }
        _ => 2 * u64::from(payload_bytes),
    };
    let slots = match &wish.system {
        // Descriptors hold one version each.
        System::Canary(parameters) => u64::from(parameters.descriptors.div_ceil(2)),
        // As aggregators do.
        System::Atp(AtpParameters { aggregators, .. }) | System::A2tp(A2tpParameters { aggregators, .. }) => {
            u64::from(aggregators.div_ceil(2))
        }
        // Flare's windows are powers of two.
        _ => 2 * u64::from(window.next_power_of_two()),
    };
    slots.saturating_mul(slot).saturating_add(u64::from(world) * (192 << 10) + (1 << 20))
}

/// How many packets a window of so many bytes is: a power of two, since systems number their slots so.
pub(super) fn window_packets(window_bytes: u32, payload_bytes: u32) -> u32 {
    1 << (window_bytes / payload_bytes).clamp(4, 4_096).ilog2()
}

/// One connection, as the driver numbers it. Numbers are never used again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ConnectionId(pub u64);

/// What the driver is to do, in this order.
#[derive(Clone, PartialEq, Debug)]
pub enum Action {
    /// Send a message.
    Send(ConnectionId, SwitchMessage),
    /// Close a connection, once what was sent before has left. Nothing of it needs to be told any more.
    Close(ConnectionId),
    /// Open a socket for a job and run its switch node, then call [`Jobs::on_opened`](super::Jobs::on_opened).
    OpenJob(Box<OpenJob>),
    /// A job of an earlier manager of the fabric runs at its switches, which are to be looked after from now on.
    AdoptJob(Box<OpenJob>),
    /// End a job's node and close its socket.
    CloseJob {
        /// [`OpenJob::job_id`].
        job_id: u16,
    },
    /// For logs and counters only.
    Note(Note),
}

/// What a job's switch node needs.
#[derive(Clone, PartialEq, Debug)]
pub struct OpenJob {
    /// The job's number in packets.
    pub job_id: u16,
    /// Its name.
    pub name: String,
    /// Names it among all jobs of all times.
    pub instance: u64,
    /// The system that sums.
    pub system: System,
    /// Element type and operator, for systems whose packets do not carry them.
    pub op: Op,
    /// Sum floats as block fixed point.
    pub fixed_point: bool,
    /// Operators that the job brings along, with their modules.
    pub operators: Vec<OperatorWish>,
    /// Bytes of elements in a full packet.
    pub payload_bytes: u32,
    /// Packets that a rank may have under way.
    pub window: u32,
    /// How long ranks wait for one another, in ms.
    pub patience_ms: u64,
    /// Seed of the job's random choices.
    pub seed: u64,
    /// The link epoch.
    pub epoch: u32,
    /// The local address that all ranks have come to; unspecified where they have come to different ones.
    pub bind: IpAddr,
    /// The sockets of the ranks: rank r's is number r.
    pub ranks: Vec<SocketAddr>,
    /// The hosts of the fabric that they are, by rank; empty without a fabric.
    pub nodes: Vec<String>,
    /// What is done for its packets, and its secret: [`keys_at_switch`].
    pub packets: Option<Packets>,
    /// For whom, where the switch knows tenants.
    pub pass: Option<Pass>,
}

/// Something that happened, for logs and counters.
#[derive(Clone, PartialEq, Debug)]
pub enum Note {
    /// Somebody was not admitted.
    Refused {
        /// Its address.
        peer: SocketAddr,
        /// Why, as a kind.
        code: Refusal,
        /// Why, in words.
        text: String,
    },
    /// All ranks have joined, and the job has its socket.
    Admitted {
        /// The job.
        job_id: u16,
        /// Its name.
        name: String,
        /// Where one of its ranks comes from.
        peer: IpAddr,
        /// How many ranks.
        world: u32,
        /// How many of them go on with what they did before a restart.
        resumed: bool,
        /// Why its hosts sum by themselves, if they do.
        by_hosts: Option<String>,
    },
    /// All ranks are ready.
    Started {
        /// The job.
        job_id: u16,
        /// Its name.
        name: String,
        /// Where one of its ranks comes from.
        peer: IpAddr,
    },
    /// A rank's connection was lost; it may come back.
    Detached {
        /// The job's name.
        name: String,
        /// Where the rank comes from.
        peer: IpAddr,
        /// The rank.
        rank: u32,
    },
    /// It came back.
    Attached {
        /// The job's name.
        name: String,
        /// Where the rank comes from.
        peer: IpAddr,
        /// The rank.
        rank: u32,
    },
    /// A diagnosis, as told to the ranks.
    Notice {
        /// The job's name.
        name: String,
        /// Where one of its ranks comes from.
        peer: IpAddr,
        /// In words.
        text: String,
    },
    /// Its hosts need not sum by themselves any more: they join it again.
    SentBack {
        /// The job.
        job_id: u16,
        /// Its name.
        name: String,
        /// Where one of its ranks comes from.
        peer: IpAddr,
    },
    /// Who keeps others waiting, as told to the ranks.
    Awaited {
        /// The job's name.
        name: String,
        /// Where one of its ranks comes from.
        peer: IpAddr,
        /// In words.
        text: String,
    },
    /// All ranks have left.
    Ended {
        /// The job.
        job_id: u16,
        /// Its name.
        name: String,
        /// Where one of its ranks comes from.
        peer: IpAddr,
    },
    /// It has failed.
    Failed {
        /// The job.
        job_id: u16,
        /// Its name.
        name: String,
        /// Where one of its ranks comes from, or has come from.
        peer: IpAddr,
        /// Why, as a kind.
        kind: FailureKind,
        /// Why, in words.
        text: String,
    },
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_systems::{FlareParameters, FlareStorage, SwitchMlParameters};

    #[test]
    fn what_a_job_keeps_at_the_switch_is_counted() {
        let wish = |system| JobWish {
            system,
            payload_bytes: None,
            window: None,
            patience_ms: 1,
            fixed_point: false,
            reproducible: None,
            beside: None,
            op: Op::F32_SUM,
        };
        let dense = memory_bytes(&wish(System::SwitchMl(SwitchMlParameters { fixed_point: false })), 4, 512, 1_024);
        assert_eq!(dense, 2 * 512 * 2 * 1_024 + 4 * (192 << 10) + (1 << 20));
        let sparse = |storage| wish(System::Flare(FlareParameters { range: 60_000, storage, ..FlareParameters::default() }));
        let (array, table) =
            (memory_bytes(&sparse(FlareStorage::Array), 4, 64, 1_024), memory_bytes(&sparse(FlareStorage::Table), 4, 64, 1_024));
        assert!(array > 128 * 60_000 * 8 && table < array * 6 / 10, "{array} {table}");
        let nonsense = wish(System::Flare(FlareParameters { density: f64::NAN, ..FlareParameters::default() }));
        assert_eq!(memory_bytes(&nonsense, 4, 64, 1_024), 4 * (192 << 10) + (1 << 20));
    }
}
