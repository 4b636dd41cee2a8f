//! One job, from its first rank to its last.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use super::config::{ConnectionId, Packets, Pass, keys_at_switch, keys_of_pair};
use crate::call::CallDescription;
use crate::message::{Admitted, ByHosts, Join, OperationPlan, PeerInfo, WAITING_RANKS_MAX};

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Not all ranks have joined.
    Waiting,
    /// All have joined, and the driver opens what the job needs.
    Opening,
    /// Ranks have been admitted, and not all are ready.
    Starting,
    /// Operations run.
    Running,
}

impl Phase {
    /// The name in logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Phase::Waiting => "waiting",
            Phase::Opening => "opening",
            Phase::Starting => "starting",
            Phase::Running => "running",
        }
    }
}

/// A rank of a job.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) join: Join,
    /// Where its control connection comes from and where it arrives.
    pub(super) peer: SocketAddr,
    pub(super) local: IpAddr,
    pub(super) presence: Presence,
    pub(super) ready: bool,
    /// What it said last, and whether that was said in the present diagnosis.
    pub(super) call: Option<CallDescription>,
    pub(super) answered: bool,
    /// What it has told all others.
    pub(super) shares: Vec<(String, String)>,
}

/// Whether a rank is there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Presence {
    Attached(ConnectionId),
    /// Its connection was lost.
    Detached {
        since_ms: u64,
    },
    /// It has left, and has no part in this operation and later ones.
    Left {
        operation: u32,
    },
}

impl Member {
    pub(super) fn connection(&self) -> Option<ConnectionId> {
        match self.presence {
            Presence::Attached(connection) => Some(connection),
            _ => None,
        }
    }

    pub(super) fn has_left(&self) -> bool {
        matches!(self.presence, Presence::Left { .. })
    }
}

/// A diagnosis under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Describing {
    pub(super) until_ms: u64,
    /// A rank says that nothing moves; otherwise it is about a mismatch only.
    pub(super) stalled: bool,
}

/// Nothing has moved for some time.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Stall {
    pub(super) since_ms: u64,
    /// When the first rank that waits gives up, and how long it waits.
    pub(super) until_ms: u64,
    pub(super) patience_ms: u64,
    /// What the ranks did when that was last found.
    pub(super) calls: BTreeMap<u32, CallDescription>,
    pub(super) next_diagnosis_ms: u64,
    /// A rank has said it; otherwise it is only looked into, and ranks are told nothing.
    pub(super) is_reported: bool,
}

impl Stall {
    pub(super) fn new(since_ms: u64, until_ms: u64, patience_ms: u64, next_diagnosis_ms: u64) -> Self {
        Stall { since_ms, until_ms, patience_ms, calls: BTreeMap::new(), next_diagnosis_ms, is_reported: false }
    }
}

#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) id: u16,
    pub(super) name: String,
    pub(super) instance: u64,
    pub(super) world: u32,
    pub(super) patience_ms: u64,
    /// What it takes, once it does: a job that waits for ranks takes nothing.
    pub(super) memory_bytes: u64,
    /// Why its hosts sum by themselves, if they do.
    pub(super) by_hosts: Option<String>,
    /// Whose it is, where the switch knows tenants.
    pub(super) pass: Option<Pass>,
    /// What is done for its packets, and its secret.
    pub(super) packets_of: Option<Packets>,
    /// Where its first rank has come from.
    pub(super) opener: IpAddr,
    pub(super) phase: Phase,
    /// When the present phase is over at the latest, while ranks come together.
    pub(super) deadline_ms: u64,
    pub(super) members: BTreeMap<u32, Member>,
    /// Ranks that had joined and have gone again, with where they came from, while the job waits for others.
    pub(super) gone: BTreeMap<u32, SocketAddr>,
    /// When its hosts have begun to sum by themselves.
    pub(super) by_hosts_since_ms: u64,
    pub(super) plans: Option<Vec<OperationPlan>>,
    /// What was admitted, but for the address of the switch, which depends on the way that a rank has come.
    pub(super) admitted: Option<(Box<Admitted>, u16)>,
    /// Packets received from each rank, as the driver tells.
    pub(super) packets: Vec<u64>,
    pub(super) describing: Option<Describing>,
    pub(super) last_diagnosis_ms: Option<u64>,
    pub(super) stall: Option<Stall>,
    /// When the ranks were last told who is missing, and whether that has changed since.
    pub(super) waiting_told_ms: u64,
    pub(super) waiting_changed: bool,
}

impl Job {
    pub(super) fn connections(&self) -> impl Iterator<Item = ConnectionId> + '_ {
        self.members.values().filter_map(Member::connection)
    }

    pub(super) fn missing(&self) -> (Vec<u32>, u32) {
        let missing = (0..self.world).filter(|rank| !self.members.contains_key(rank));
        (missing.take(WAITING_RANKS_MAX).collect(), self.world - self.members.len() as u32)
    }

    /// Where one of its ranks comes from, for logs.
    pub(super) fn peer(&self) -> IpAddr {
        self.members.values().next().map_or(self.opener, |member| member.peer.ip())
    }

    pub(super) fn is_complete(&self) -> bool {
        self.members.len() as u32 == self.world
    }

    /// Whether its hosts may go on by themselves where the fabric does not carry it any more.
    pub(super) fn may_go_by_hosts(&self) -> bool {
        let may = |member: &Member| member.join.node.is_some() && member.join.by_hosts == ByHosts::WhereFull;
        self.by_hosts.is_none() && self.members.values().all(may)
    }

    pub(super) fn all_left(&self) -> bool {
        self.members.values().all(Member::has_left)
    }

    pub(super) fn somebody_left(&self) -> bool {
        self.members.values().any(Member::has_left)
    }

    /// The socket of a rank, with the IP address that the switch sees where the rank does not know its own.
    pub(super) fn data_of(join: &Join, peer: SocketAddr) -> SocketAddr {
        let ip = join.data.ip().to_canonical();
        SocketAddr::new(if ip.is_unspecified() { peer.ip() } else { ip }, join.data.port())
    }

    pub(super) fn peers(&self) -> Vec<PeerInfo> {
        let peer = |(&rank, member): (&u32, &Member)| PeerInfo {
            rank,
            host: member.join.host.clone(),
            address: Job::data_of(&member.join, member.peer),
            node: member.join.node.clone(),
        };
        self.members.iter().map(peer).collect()
    }

    /// What a rank is told on admission.
    pub(super) fn admitted_at(&self, member: &Member) -> Option<Box<Admitted>> {
        let (admitted, port) = self.admitted.as_ref()?;
        let (data, keys) = (SocketAddr::new(member.local, *port), self.keys_of(member.join.rank));
        Some(Box::new(Admitted { data, keys, ..(**admitted).clone() }))
    }

    /// The keys that a rank is told.
    fn keys_of(&self, rank: u32) -> Vec<fanin_trust::PacketKeys> {
        match &self.packets_of {
            None => Vec::new(),
            Some(Packets { cables: Some(cables), .. }) if self.by_hosts.is_none() => {
                let host = self.members.get(&rank).and_then(|member| member.join.node.as_ref());
                host.and_then(|host| cables.get(host)).cloned().into_iter().collect()
            }
            Some(Packets { protection, secret, .. }) if self.by_hosts.is_none() => vec![keys_at_switch(*protection, secret, rank)],
            Some(Packets { protection, secret, .. }) => {
                (0..self.world).filter(|other| *other != rank).map(|other| keys_of_pair(*protection, secret, rank, other)).collect()
            }
        }
    }

    /// The local address that all ranks have come to, or an unspecified one.
    pub(super) fn bind(&self) -> IpAddr {
        let mut locals = self.members.values().map(|member| member.local);
        let first = locals.next().unwrap_or(IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED));
        match (locals.all(|local| local == first), first) {
            (true, _) => first,
            (false, IpAddr::V4(_)) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
            (false, IpAddr::V6(_)) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
        }
    }
}
