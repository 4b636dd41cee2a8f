//! What the nodes of a job are told when they are made.

use std::sync::Arc;

use fanin_core::{Address, Duration, FlowLabel, JobId, NodeId, PortId, Rank};
use fanin_wire::rina::MEMBERS_MAX;

use crate::shared::reliability::Reliability;

/// A worker, as all workers of the job know it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RinaMember {
    /// Its host.
    pub node: NodeId,
    /// Which rack.
    pub rack: u32,
}

/// The workers of one switch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RinaRack {
    /// The switch.
    pub switch: NodeId,
    /// Whether it aggregates.
    pub aggregates: bool,
    /// The job's workers there, by rank; bit i of a task's members is the i-th of them.
    pub ranks: Vec<Rank>,
}

/// How long the partitions of a vector are.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Partitions {
    /// All the same (`rina 1`).
    #[default]
    Equal,
    /// Those that begin at a rack that its switch sums are twice as long as those that begin at a worker by itself. A head gets all of a vector twice, but
    /// for its own partition once, and a worker by itself for the next one once, too: so all heads get the same.
    Balanced,
}

/// When an agent sends the results of its partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Results {
    /// When no gradient and no sum waits (`rina 4.3`: "AllGather starts from zero", P11).
    #[default]
    Last,
    /// Before these. Links to its rack's other workers carry nothing while there are sums, and each needs all of the vector's results afterwards: so
    /// they are what is waited for where most racks are summed by their switches.
    First,
}

/// Who sends results on to the next group, where the own rack's switch sums.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Onward {
    /// The switch, at once, as it hands them down (`rina 4.2`, 2).
    #[default]
    Switch,
    /// The agent, behind its gradients, as a worker by itself does. What leaves a rack is then what its agent sends, sums and results together, and no
    /// more than a link carries: results do not overtake sums in the queue before the next group, where all wait for sums.
    Agent,
}

/// Who takes part and where; the same at all workers.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RinaLayout {
    /// The workers, by rank.
    pub members: Vec<RinaMember>,
    /// Their racks.
    pub racks: Vec<RinaRack>,
    /// The ranks in the order in which the ring visits them.
    pub order: Vec<Rank>,
    /// How long partitions are.
    pub partitions: Partitions,
    /// When agents send results.
    pub results: Results,
    /// Who sends results on.
    pub onward: Onward,
    /// Ranks by their hosts, in ascending order of these.
    by_node: Vec<(NodeId, Rank)>,
}

impl RinaLayout {
    /// The most workers: groups, partitions and contributors are numbered in 16 bits.
    pub const WORKERS_MAX: u32 = 1 << 15;

    /// # Panics
    /// Where there is no worker or more than [`RinaLayout::WORKERS_MAX`], or an aggregating rack has more than 48.
    pub fn new(members: Vec<RinaMember>, racks: Vec<RinaRack>, order: Vec<Rank>) -> Self {
        assert!((1..=Self::WORKERS_MAX as usize).contains(&members.len()), "a job has 1 to 32768 workers");
        assert!(order.len() == members.len(), "the ring visits every worker");
        let fits = |rack: &RinaRack| !rack.aggregates || rack.ranks.len() <= MEMBERS_MAX as usize;
        assert!(racks.iter().all(fits), "at most 48 workers at a switch that aggregates");
        let mut by_node: Vec<(NodeId, Rank)> = members.iter().zip(0..).map(|(member, rank)| (member.node, Rank(rank))).collect();
        by_node.sort_unstable();
        RinaLayout {
            members,
            racks,
            order,
            partitions: Partitions::default(),
            results: Results::default(),
            onward: Onward::default(),
            by_node,
        }
    }

    /// With partitions of these lengths, and results sent then.
    pub fn with(mut self, partitions: Partitions, results: Results) -> Self {
        (self.partitions, self.results) = (partitions, results);
        self
    }

    /// With results sent on by these.
    pub fn sent_on_by(mut self, onward: Onward) -> Self {
        self.onward = onward;
        self
    }

    /// Number of workers.
    pub fn workers(&self) -> u32 {
        self.members.len() as u32
    }

    /// The worker at a host.
    #[inline]
    pub(super) fn rank_at(&self, node: NodeId) -> Option<Rank> {
        let place = self.by_node.binary_search_by_key(&node, |(node, _)| *node).ok()?;
        Some(self.by_node[place].1)
    }

    /// Whether this is the address of a switch that sums a rack.
    pub(super) fn has_switch(&self, address: Address) -> bool {
        self.racks.iter().any(|rack| rack.aggregates && address == Address::switch(rack.switch))
    }

    /// A worker's rack.
    pub(super) fn rack_of(&self, rank: Rank) -> &RinaRack {
        &self.racks[self.members[rank.index()].rack as usize]
    }
}

/// What a worker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RinaWorkerConfig<O> {
    /// The job.
    pub job: JobId,
    /// This worker.
    pub rank: Rank,
    /// Who takes part and where.
    pub layout: Arc<RinaLayout>,
    /// Element type and operator.
    pub op: O,
    /// Length of an element in bytes.
    pub element_bytes: u32,
    /// What one packet carries, in elements.
    pub block_elements: u32,
    /// Packets under way to the next group at most; rounded up to a power of two. A switch has as many slots.
    pub window: u32,
    /// The port towards the rack's switch.
    pub uplink: PortId,
    /// Label of the job's packets for flow hashing.
    pub flow: FlowLabel,
    /// Whether the network's queues mark packets. Where they do not, windows shrink when round trips are long (`rina 4.3` has marks only).
    pub marks: bool,
    /// The rate of the switches' aggregation in bits per second (`rina 4.3`, "full speed"): the window does not grow beyond what that
    /// brings in a round trip. `None`: no such limit.
    pub full_speed: Option<u64>,
    /// Loss recovery and patience.
    pub reliability: Reliability,
}

impl<O> RinaWorkerConfig<O> {
    /// Packets that full speed brings in a round trip; at least 1.
    pub(super) fn full_speed_packets(&self, round_trip: Duration) -> u32 {
        let Some(rate) = self.full_speed else { return u32::MAX };
        let packet_bits = u128::from(self.block_elements) * u128::from(self.element_bytes) * 8;
        let packets = u128::from(rate) * u128::from(round_trip.as_ps()) / 1_000_000_000_000 / packet_bits.max(1);
        packets.clamp(1, u128::from(u32::MAX)) as u32
    }
}

/// What a switch that aggregates is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct RinaSwitchConfig<O> {
    /// The job.
    pub job: JobId,
    /// Element type and operator.
    pub op: O,
    /// Payload of a full packet in bytes.
    pub block_bytes: u32,
    /// As the workers' window: one slot for each packet.
    pub window: u32,
    /// Who takes part and where.
    pub layout: Arc<RinaLayout>,
    /// The port and the host of each of the job's workers there, in the order of [`RinaRack::ranks`].
    pub members: Vec<(PortId, NodeId)>,
    /// Label of the job's packets for flow hashing.
    pub flow: FlowLabel,
}
