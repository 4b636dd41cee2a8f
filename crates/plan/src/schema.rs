//! What may stand in a plan, key by key. Sizes that depend on each other are checked in `build`.

use std::collections::BTreeMap;
use std::sync::Arc;

use fanin_core::DType;
use fanin_sim::lossless::{Arbitration, MadePackets};
use fanin_systems::System;
use serde::Deserialize;

use super::beside::{Flow, Limit};
use super::choices::Places;
use super::training::Model;
use super::units::{Amount, Bytes, Count, Fraction, Rate, Time, Window};
use super::workload::{Source, WorkloadFrom};

mod faults;
mod named;
mod noise;
mod own;

pub use faults::{Faults, KindName, LinkFaults, Links, Timed, TimedKind};
pub use named::{PatternName, Routing};
pub use noise::{Noise, NoiseDelay};

/// One point of a plan: everything that a run needs except for its seed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Everything but the jobs.
    pub general: General,
    /// `[[jobs]]`, with those of files.
    pub jobs: Vec<Job>,
    /// By job: which entry of the plan's `[[jobs]]` it comes from.
    pub entries: Vec<usize>,
}

/// A plan without its jobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct General {
    /// `[network]`.
    pub network: Network,
    /// `[[traffic]]`.
    #[serde(default)]
    pub traffic: Vec<Traffic>,
    /// `[[flows]]`.
    #[serde(default)]
    pub flows: Vec<Flow>,
    /// `[[limits]]`.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// `[faults]`.
    #[serde(default)]
    pub faults: Faults,
    /// `[run]`.
    #[serde(default)]
    pub run: Run,
}

/// `[network]`: hosts, switches, links, queues and load balancing.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Network {
    /// `"star"`, `"fat-tree"` (leaves and spines), `"fat-tree-3"` (k-ary, of three levels), `"dragonfly"`, `"machines"`, or `"file"`: cable by
    /// cable.
    pub shape: ShapeName,
    /// Star: number of hosts.
    pub hosts: Option<Count>,
    /// Fat tree: switches with hosts.
    pub leaves: Option<Count>,
    /// Fat tree: hosts on each leaf.
    pub hosts_per_leaf: Option<Count>,
    /// Fat tree: switches above the leaves.
    pub spines: Option<Count>,
    /// Fat tree: cables between a leaf and a spine; 1 where it is not given.
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
    /// Machines: how many.
    pub machines: Option<Count>,
    /// Machines: hosts in each; a host is a GPU here.
    pub per_machine: Option<Count>,
    /// Machines: rate of a host's link to the others of its machine and to its network card.
    pub intra_rate: Option<Rate>,
    /// Machines: delay of such a link.
    pub intra_latency: Option<Time>,
    /// File: its name, from the plan's folder on; see [`file`](super::network::file).
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
    /// Buffers of a network that loses nothing, in place of `queue`.
    pub lossless: Option<Lossless>,
    /// What switches compute with; they add in no time where it is not given.
    pub processor: Option<Processor>,
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
    /// Cable by cable, in a file.
    File,
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
            ShapeName::File => "file",
        }
    }
}

/// Keys of `[[jobs]]` that do not belong to the system.
pub const JOB_KEYS: &[&str] = &[
    "system",
    super::jobs_file::KEY,
    "workload",
    "groups",
    "local_rate",
    "local_latency",
    "copies",
    "workers",
    "servers",
    "server_placement",
    "placement",
    "jobs_per_host",
    "message",
    "payload",
    "element",
    "operator",
    "indices",
    "operations",
    "model",
    "scale",
    "iterations",
    "tensor",
    "compute",
    "compute_spread",
    "start",
    "start_skew",
    "arrivals",
    "crash",
    "noise",
    "window",
    "reliable",
    "rto_initial",
    "rto_min",
    "patience",
];

/// `[[jobs]]`: one job, or several alike.
#[derive(Clone, Debug)]
pub struct Job {
    /// The system and its own keys.
    pub system: System,
    /// Everything else.
    pub common: JobKeys,
    /// With a workload: systems of its groups, by name, where they differ.
    pub groups: Vec<(String, System)>,
    /// What the job does, where a workload says it.
    pub workload: Option<Arc<Source>>,
}

/// Keys of `[[jobs]]` that every system shares.
#[derive(Clone, Debug, Deserialize)]
pub struct JobKeys {
    /// How many jobs like this one.
    #[serde(default = "one")]
    pub copies: Count,
    /// Number of workers, or their share of all hosts. Not needed where `placement` lists them.
    pub workers: Option<Workers>,
    /// Servers, for systems that have them; as many as the system has where it is not given.
    pub servers: Option<Servers>,
    /// Which hosts servers have where these are not listed; chosen as those of the workers where it is not given.
    pub server_placement: Option<ServerPlacement>,
    /// Which hosts.
    #[serde(default)]
    pub placement: Placement,
    /// How many jobs a host of this one has at most, this one included.
    #[serde(default = "one")]
    pub jobs_per_host: Count,
    /// What ranks compute and communicate, in place of one vector: a workload's file, or a model.
    pub workload: Option<WorkloadFrom>,
    /// With a workload: rate of a rank's link to the others of its host.
    #[serde(default = "local_rate_default")]
    pub local_rate: Rate,
    /// With a workload: delay of such a link.
    #[serde(default = "local_latency_default")]
    pub local_latency: Time,
    /// Length of the vector; that of `model` where it is not given.
    pub message: Option<Bytes>,
    /// Payload of a full packet.
    #[serde(default = "payload_default")]
    pub payload: Bytes,
    /// Element type.
    #[serde(default)]
    pub element: Element,
    /// Sparse vectors: what values at the same index are reduced by, a built-in operator or the file of one of the job's own (`*.wasm`), from the
    /// plan's folder on; sums where it is not given.
    pub operator: Option<String>,
    /// Sparse vectors: a file with the indices at which each rank has something, from the plan's folder on; they are drawn where it is not given.
    pub indices: Option<String>,
    /// How many allreduces, one after the other.
    #[serde(default = "one")]
    pub operations: Count,
    /// Trains this model: its length and its time to compute, unless the plan says otherwise.
    pub model: Option<Model>,
    /// Factor of the model's length and time.
    #[serde(default = "all")]
    pub scale: Fraction,
    /// Trains for so many iterations, in each of which workers compute and then reduce their vectors.
    pub iterations: Option<Count>,
    /// Training: the vector is reduced in operations of at most this length; as a whole where it is not given.
    pub tensor: Option<Bytes>,
    /// Training: how long workers compute in an iteration.
    pub compute: Option<Time>,
    /// Training: share of `compute` by which each worker's time differs at most in each iteration, at random.
    #[serde(default)]
    pub compute_spread: Fraction,
    /// When it begins.
    #[serde(default = "no_time")]
    pub start: Time,
    /// Copies begin one after the other from `start` on, at random, with this mean time between them (a Poisson process).
    pub arrivals: Option<Time>,
    /// When all its workers and servers stop at once.
    pub crash: Option<Time>,
    /// Each worker begins up to so much later, at random.
    #[serde(default = "no_time")]
    pub start_skew: Time,
    /// Host noise.
    pub noise: Option<Noise>,
    /// Packets that a worker has under way at most.
    #[serde(default = "window_default")]
    pub window: Window,
    /// Recover from losses.
    #[serde(default = "yes")]
    pub reliable: bool,
    /// First retransmission timeout, until round trips have been measured.
    #[serde(default = "rto_initial_default")]
    pub rto_initial: Time,
    /// Lower bound of the retransmission timeout.
    #[serde(default = "rto_min_default")]
    pub rto_min: Time,
    /// An operation without progress for so long has failed.
    #[serde(default = "patience_default")]
    pub patience: Time,
}

/// Which hosts carry a job's workers.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum Placement {
    /// At random.
    #[default]
    Random,
    /// The first free ones: as few leaves as possible.
    Packed,
    /// Evenly over the leaves.
    Spread,
    /// These, by rank.
    Hosts(Vec<u32>),
}

/// How many workers a job has.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Workers {
    /// So many, or such a share of all hosts.
    Amount(Amount),
    /// Drawn anew for each job, from the first to the last, each as likely as the others.
    Between(u32, u32),
}

/// A job's servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Servers {
    /// So many, on hosts that are chosen after those of the workers and in the same way.
    Count(u32),
    /// At these hosts.
    Hosts(Vec<u32>),
}

/// Which hosts servers have.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServerPlacement {
    /// Those of the lowest numbers.
    Packed,
    /// Leaf by leaf in turn.
    Spread,
    /// Any.
    Random,
    /// Next to the switches with most of the job's workers.
    Near,
}

/// Element types.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Element {
    /// IEEE 754 binary32.
    #[default]
    F32,
    /// IEEE 754 binary64.
    F64,
    /// Signed, 32 bits.
    I32,
    /// Signed, 64 bits.
    I64,
    /// IEEE 754 binary16.
    F16,
    /// The upper half of a binary32.
    #[serde(rename = "bf16")]
    BF16,
    /// Signed, 8 bits.
    I8,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 8 bits.
    U8,
}

impl Element {
    /// The element type of the core.
    pub fn dtype(self) -> DType {
        match self {
            Element::F32 => DType::F32,
            Element::F64 => DType::F64,
            Element::I32 => DType::I32,
            Element::I64 => DType::I64,
            Element::F16 => DType::F16,
            Element::BF16 => DType::BF16,
            Element::I8 => DType::I8,
            Element::I16 => DType::I16,
            Element::U8 => DType::U8,
        }
    }
}

/// `[[traffic]]`: background traffic.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Off without being taken out of the plan, for sweeps.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Who sends to whom; `{ name = ..., ... }` for a pattern from elsewhere with its parameters.
    pub pattern: PatternName,
    /// Incast: number of receivers.
    pub receivers: Option<Count>,
    /// Which hosts.
    #[serde(default)]
    pub hosts: TrafficHosts,
    /// Length of a message.
    #[serde(default = "traffic_message_default")]
    pub message: Bytes,
    /// Payload of a full packet.
    #[serde(default = "payload_default")]
    pub payload: Bytes,
    /// Offered rate of each sender as a share of its link's.
    #[serde(default = "all")]
    pub load: Fraction,
    /// Messages that each host sends; as many as the jobs last where it is not given.
    pub messages: Option<u64>,
    /// When it begins.
    #[serde(default = "no_time")]
    pub start: Time,
}

/// Which hosts send background traffic.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum TrafficHosts {
    /// Those without a worker.
    #[default]
    Rest,
    /// All, also those with workers.
    All,
    /// So many of those without a worker, at random.
    Some(Amount),
    /// These.
    Hosts(Vec<u32>),
}

/// `[run]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Seed of the first repetition; each further one has a seed higher by one.
    #[serde(default = "seed_default")]
    pub seed: u64,
    /// How often each point is run.
    #[serde(default = "one")]
    pub repetitions: Count,
    /// What packets carry.
    #[serde(default)]
    pub payload: PayloadName,
    /// A run is given up at this simulated time.
    #[serde(default = "time_limit_default")]
    pub time_limit: Time,
    /// Go on until nothing moves after the last job has ended.
    #[serde(default)]
    pub drain: bool,
    /// Interval of samples of the switches' memory; none are taken where it is not given.
    pub memory_interval: Option<Time>,
    /// Interval of samples of jobs: goodput, memory, gauges; none are taken where it is not given.
    pub series_interval: Option<Time>,
    /// Runs every job once more by itself, to say by how much the others slow it down.
    #[serde(default)]
    pub alone: bool,
    /// How runs are meant to end.
    #[serde(default)]
    pub expect: Expect,
}

impl Default for Run {
    fn default() -> Self {
        Run {
            seed: seed_default(),
            repetitions: one(),
            payload: PayloadName::default(),
            time_limit: time_limit_default(),
            drain: false,
            memory_interval: None,
            series_interval: None,
            alone: false,
            expect: Expect::default(),
        }
    }
}

/// What packets carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadName {
    /// Weights that show every lost, doubled or foreign contribution.
    #[default]
    Census,
    /// Lengths only: the fastest.
    Length,
    /// Real elements, compared with sums that are computed apart: for small networks.
    Elements,
}

/// How runs are meant to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    /// Every job completes.
    #[default]
    Success,
    /// Every run has a job that fails and says why.
    Failure,
}

/// `[[plot]]`: one picture.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Name of the file, without its ending.
    pub name: String,
    /// Above the picture.
    pub title: String,
    /// What is drawn.
    pub kind: PlotKind,
    /// The axis of the sweep along x: `"series"`, a swept key. For `"bars"` and `"lines"`.
    pub x: Option<String>,
    /// The value along y: a number of results.json; for `"time"` a column of series.csv, or `"fairness"`; for `"cdf"` a number of each job, or
    /// none. Not for `"memory"`.
    pub y: Option<String>,
    /// By axis: the places that are shown; all where it is not given.
    #[serde(default)]
    pub only: BTreeMap<String, Places>,
}

/// What is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotKind {
    /// A group of bars for each value of x.
    Bars,
    /// A line over x for each of the other axes' points.
    Lines,
    /// Distribution of the utilisation of links, or of a number over jobs.
    Cdf,
    /// Memory of the switch that has most in use, over time.
    Memory,
    /// A quantity of each job over time.
    Time,
    /// What ranks of a job with a workload did over time.
    Steps,
}

pub(crate) fn one() -> Count {
    Count(1)
}
pub(crate) fn yes() -> bool {
    true
}
fn all() -> Fraction {
    Fraction(1.0)
}
pub(crate) fn no_time() -> Time {
    Time(fanin_core::Duration::ZERO)
}
/// Capacity of a switch's queue per port, where the plan does not say.
pub const QUEUE_BYTES_DEFAULT: u64 = 1 << 20;

fn nic_queue_default() -> Bytes {
    Bytes(16 << 10)
}
/// NVLink of the fourth generation (H100): 900 GB/s, half of it each way (NVIDIA H100 Tensor Core GPU datasheet).
fn local_rate_default() -> Rate {
    Rate(3_600_000_000_000)
}
fn local_latency_default() -> Time {
    Time(fanin_core::Duration::from_us(1))
}
/// 19 bytes of header, 14 of Ethernet, 24 of preamble, gap and checksum.
fn frame_overhead_default() -> Bytes {
    Bytes(57)
}
fn frame_min_default() -> Bytes {
    Bytes(84)
}
fn flowlet_gap_default() -> Time {
    Time(fanin_core::Duration::from_us(50))
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
    Time(fanin_core::Duration::from_us(160))
}
fn conga_aging_default() -> Time {
    Time(fanin_core::Duration::from_ms(10))
}
pub(crate) fn payload_default() -> Bytes {
    Bytes(1024)
}
fn traffic_message_default() -> Bytes {
    Bytes(64 << 10)
}
/// Fills an idle network of 100 Gb/s and a few microseconds several times over; what more would gain under congestion stands in queues.
fn window_default() -> Window {
    Window(512)
}
fn rto_initial_default() -> Time {
    Time(fanin_core::Duration::from_ms(1))
}
fn rto_min_default() -> Time {
    Time(fanin_core::Duration::from_us(100))
}
fn patience_default() -> Time {
    Time(fanin_core::Duration::from_ms(100))
}
fn time_limit_default() -> Time {
    Time(fanin_core::Duration::from_ms(1_000))
}
fn seed_default() -> u64 {
    1
}
