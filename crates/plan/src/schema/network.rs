//! `[network]`: hosts, switches, links, queues and load balancing.

use fanin_core::Duration;
use fanin_sim::engine::BlockMap;
use fanin_sim::lossless::{Arbitration, MadePackets};
use serde::Deserialize;

use super::hardware::Hardware;
use super::named::Routing;
use crate::reading::units::{Bytes, Count, Fraction, Rate, Time};

/// `[network]`: hosts, switches, links, queues and load balancing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// `"star"`, `"fat-tree"` (leaves and spines), `"fat-tree-3"` (k-ary, of three levels), `"dragonfly"`, `"machines"`,
    /// `"rail-optimised"`, or `"file"`: cable by cable.
    pub shape: ShapeName,
    /// Star: number of hosts.
    pub hosts: Option<Count>,
    /// Fat tree: switches with hosts.
    pub leaves: Option<Count>,
    /// Fat tree: hosts on each leaf.
    pub hosts_per_leaf: Option<Count>,
    /// Fat tree: switches above the leaves, in each plane. Rail-optimised: the same; none where it is not given.
    pub spines: Option<Count>,
    /// Fat tree, rail-optimised: cables between a leaf and a spine; 1 where it is not given.
    pub parallel_links: Option<Count>,
    /// Fat tree of three levels: k, the ports of a switch.
    pub ports: Option<Count>,
    /// Dragonfly: g, the number of groups.
    pub groups: Option<Count>,
    /// Dragonfly: a, the routers of a group.
    pub routers: Option<Count>,
    /// Dragonfly: h, the global links of a router.
    pub global_links: Option<Count>,
    /// Dragonfly: p, the hosts of a router.
    pub hosts_per_router: Option<Count>,
    /// Machines, rail-optimised: how many.
    pub machines: Option<Count>,
    /// Machines, rail-optimised: hosts in each; a host is a GPU here. Rail-optimised: as many rails.
    pub per_machine: Option<Count>,
    /// Rail-optimised: machines below a leaf of a rail; all where it is not given.
    pub machines_per_leaf: Option<Count>,
    /// Rail-optimised: what network cards belong to; `"hosts"` where it is not given.
    pub cards: Option<Cards>,
    /// Rail-optimised, of cards that belong to hosts: machines' switches sum, and a host's card carries the sum on; no, where it is not given, but with
    /// hardware of preset `"nvl72"`.
    pub nvls: Option<bool>,
    /// Fat tree, rail-optimised: networks that are not joined, to each of which every host has a link; 1 where it is not given.
    pub planes: Option<Count>,
    /// Machines: rate of a host's link to the others of its machine and to its network card. Rail-optimised: to its machine's switch.
    pub intra_rate: Option<Rate>,
    /// Machines, rail-optimised: delay of such a link.
    pub intra_latency: Option<Time>,
    /// File: its name, from the plan's folder on; see [`file`](crate::network::file).
    pub file: Option<String>,
    /// Rate of every link; file: of those that do not say.
    pub rate: Option<Rate>,
    /// Propagation delay of every link, with the delay of the switch or host at its end; file: of those that do not say.
    pub latency: Option<Time>,
    /// Rate of links between switches, where it differs; dragonfly: within a group.
    pub fabric_rate: Option<Rate>,
    /// Delay of links between switches, where it differs; dragonfly: within a group.
    pub fabric_latency: Option<Time>,
    /// Dragonfly: rate of links between groups, where it differs.
    pub global_rate: Option<Rate>,
    /// Dragonfly: delay of links between groups, where it differs.
    pub global_latency: Option<Time>,
    /// Capacity of a switch's queue per port, where what finds no room is dropped.
    pub queue: Option<Bytes>,
    /// Whose packets are cut where a queue is full, so that they are soon sent again; all are dropped where it is not given.
    pub trimming: Option<TrimmingName>,
    /// Buffers of a network that loses nothing, in place of `queue`.
    pub lossless: Option<Lossless>,
    /// What switches compute with; they add in no time where it is not given.
    pub processor: Option<Processor>,
    /// Limits of switches that aggregate, as those of a prototype's; none where it is not given.
    pub hardware: Option<Hardware>,
    /// A packet that finds more than this queued is marked; none is where it is not given.
    pub ecn: Option<Bytes>,
    /// How much a host queues before its jobs wait.
    #[serde(default = "nic_queue_default")]
    pub nic_queue: Bytes,
    /// Bytes on the wire beside the payload: headers, preamble, gap, checksum.
    #[serde(default = "frame_overhead_default")]
    pub frame_overhead: Bytes,
    /// The shortest frame with its preamble and gap.
    #[serde(default = "frame_min_default")]
    pub frame_min: Bytes,
    /// How switches choose among equal paths; `{ name = ..., ... }` for a balancer from elsewhere with its parameters.
    #[serde(default)]
    pub routing: Routing,
    /// The same for background traffic, where it differs.
    pub background_routing: Option<Routing>,
    /// Flowlets: the pause after which a flow may change its path.
    #[serde(default = "flowlet_gap_default")]
    pub flowlet_gap: Time,
    /// Which switches aggregate, by name; all where it is not given. The others only forward.
    pub aggregating: Option<Aggregating>,
    /// Aggregators of each switch: jobs of ATP and A2TP share them, jobs of Canary share them as descriptors, jobs of SwitchML and those of
    /// Canary with static places have equal parts.
    pub aggregators: Option<Count>,
    /// How many aggregators a slot of SwitchML counts for: one, or one for each of its versions.
    pub slot_versions: Option<Count>,
    /// Adaptive: share of the default path's queue above which another path is taken.
    #[serde(default = "adaptive_threshold_default")]
    pub adaptive_threshold: Fraction,
    /// DRILL: queues that are drawn at random for each packet.
    #[serde(default = "drill_samples_default")]
    pub drill_samples: u8,
    /// DRILL: shortest queues of the last time that are looked at again.
    #[serde(default = "drill_memory_default")]
    pub drill_memory: u8,
    /// CONGA: τ, the time over which the rates of links are estimated.
    #[serde(default = "conga_time_default")]
    pub conga_time: Time,
    /// CONGA: what is known of a path falls by an eighth of the full rate for each such time without news of it.
    #[serde(default = "conga_aging_default")]
    pub conga_aging: Time,
}

/// `aggregating`: which switches aggregate.
#[derive(Clone, PartialEq, Debug, Deserialize)]
#[serde(untagged, expecting = "names of switches, or \"file\" for those of which the network's file says so")]
pub enum Aggregating {
    /// These.
    Named(Vec<String>),
    /// As the network's file says.
    AsWired(AsWired),
}

/// `"file"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AsWired {
    /// The network's file says it.
    File,
}

/// `trimming`: see [`fanin_sim::trimming`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TrimmingName {
    /// What hosts have made.
    Hosts,
    /// What switches have made as well.
    All,
}

/// `lossless`: links with credits for finite buffers.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lossless {
    /// How a switch is built inside.
    pub model: SwitchModelName,
    /// Buffer of each input port.
    pub input: Bytes,
    /// Input-queued: buffer of each output port; as large as that of an input where it is not given.
    pub output: Option<Bytes>,
    /// Input-queued: which of the inputs that wait for an output is next.
    pub arbitration: Option<Arbitration>,
    /// Input-queued: where packets enter that a switch makes itself.
    pub made_packets: Option<MadePackets>,
    /// Dragonfly: virtual channels of a link between routers, each with buffers of these sizes; as many as keep its routing from deadlock
    /// where it is not given.
    pub channels: Option<Count>,
}

/// `processor`: the cores of every switch that aggregates; see [`fanin_sim::engine::processing`](fanin_sim::engine::Processing).
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Processor {
    /// Cores of a switch.
    pub cores: Count,
    /// Cores to which packets of one block go, a divisor of `cores`; all of them where it is not given.
    pub cores_per_block: Option<Count>,
    /// A core's time for a contribution, whatever it carries.
    pub packet_time: Option<Time>,
    /// What a core adds of a dense vector.
    pub rate: Option<Rate>,
    /// A core's time for a pair of a sparse vector.
    pub pair_time: Option<Time>,
    /// A core's time for a place of an array or a table that is looked at when a block's sum leaves.
    pub place_time: Option<Time>,
    /// Whether cores that have packets of one block wait for each other.
    #[serde(default)]
    pub locks: bool,
    /// Payload that waits or is worked at, where what finds no room is dropped; as much as `queue` where it is not given.
    pub memory: Option<Bytes>,
    /// Memory of a cluster of cores for sums of blocks until they leave; what blocks take where it is not given.
    pub l1: Option<Bytes>,
    /// Cores of a cluster; `cores_per_block` where it is not given.
    pub cluster: Option<Count>,
    /// Which `cores_per_block` cores a block's packets go to.
    pub map: Option<BlockMapName>,
}

/// How blocks are dealt out to cores.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BlockMapName {
    /// By chance.
    Hash,
    /// In turns.
    Modulo,
    /// In turns, moved by one each time round.
    Skewed,
}

impl BlockMapName {
    /// The simulator's.
    pub fn map(self) -> BlockMap {
        match self {
            BlockMapName::Hash => BlockMap::Hash,
            BlockMapName::Modulo => BlockMap::Modulo,
            BlockMapName::Skewed => BlockMap::Skewed,
        }
    }
}

/// How a lossless switch is built inside.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SwitchModelName {
    /// A queue for each output; nobody is blocked by packets for another output.
    OutputQueued,
    /// A queue for each input, blocked by its first packet.
    InputQueued,
}

/// The shapes of networks.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShapeName {
    /// One switch.
    Star,
    /// Leaves and spines.
    FatTree,
    /// A k-ary fat tree: edge, aggregation and core switches.
    #[serde(rename = "fat-tree-3")]
    FatTree3,
    /// Groups of routers.
    Dragonfly,
    /// Machines with several hosts, whose links meet in the machine, and one link from each machine to a switch.
    Machines,
    /// Machines with several hosts and a switch, and a leaf for each place in a machine.
    RailOptimised,
    /// Cable by cable, in a file.
    File,
}

/// `cards`: what network cards belong to, in a rail-optimised network.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cards {
    /// Hosts, which have a link to their machine's switch besides. With `nvls` that one sums, and hosts carry its sums to their cards.
    Hosts,
    /// Machines, whose switches have them: sums of a machine are made there and leave by any card.
    Machines,
}

impl ShapeName {
    /// As a plan has it.
    pub fn text(self) -> &'static str {
        match self {
            ShapeName::Star => "star",
            ShapeName::FatTree => "fat-tree",
            ShapeName::FatTree3 => "fat-tree-3",
            ShapeName::Dragonfly => "dragonfly",
            ShapeName::Machines => "machines",
            ShapeName::RailOptimised => "rail-optimised",
            ShapeName::File => "file",
        }
    }
}

/// Capacity of a switch's queue per port, where the plan does not say.
pub const QUEUE_BYTES_DEFAULT: u64 = 1 << 20;

fn nic_queue_default() -> Bytes {
    Bytes(16 << 10)
}

/// 19 bytes of header, 14 of Ethernet, 24 of preamble, gap and checksum.
fn frame_overhead_default() -> Bytes {
    Bytes(57)
}

fn frame_min_default() -> Bytes {
    Bytes(84)
}

fn flowlet_gap_default() -> Time {
    Time(Duration::from_us(50))
}

fn adaptive_threshold_default() -> Fraction {
    Fraction(0.5)
}

/// What the paper recommends: DRILL(2, 1).
fn drill_samples_default() -> u8 {
    2
}

fn drill_memory_default() -> u8 {
    1
}

/// The paper's, 3.6.
fn conga_time_default() -> Time {
    Time(Duration::from_us(160))
}

fn conga_aging_default() -> Time {
    Time(Duration::from_ms(10))
}
