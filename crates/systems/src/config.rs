//! Job configuration: which system, with which parameters.

use fanin_core::payload::Sparsity;
use fanin_core::{Duration, JobId, NodeId};
use fanin_protocols::shared::step::StepCost;
use serde::{Deserialize, Serialize};

pub use crate::canary::{CanaryParameters, FailureRule, FanInRule, LeaderRule, Placement};
pub use crate::order::SumOrder;
pub use crate::sparse::{DoublingParameters, FlareCoding, FlareParameters, FlareStorage, Picks};

/// A job's configuration contradicts itself or the network.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BuildError {
    /// The field.
    pub field: String,
    /// Its value.
    pub value: String,
    /// What would have been right.
    pub expected: String,
}

impl BuildError {
    /// `field` has `value`, where `expected` is expected.
    pub fn new(field: impl Into<String>, value: impl ToString, expected: impl Into<String>) -> Self {
        BuildError { field: field.into(), value: value.to_string(), expected: expected.into() }
    }
}

impl std::fmt::Display for BuildError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} = {}: expected {}", self.field, self.value, self.expected)
    }
}

impl std::error::Error for BuildError {}

/// In which order the ring visits the workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RingOrder {
    /// By host number: neighbours in the network are neighbours in the ring.
    #[default]
    Host,
    /// By rank, that is in the order in which hosts were allocated.
    Placement,
}

/// What a step costs its host before its first packet goes, in rings and in allreduces of several steps (rina 5, equation 3).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct StepParameters {
    /// O: overhead of a step, in ps.
    pub step_overhead_ps: u64,
    /// Sigma: deviation of a step's time, normal, in ps; drawn by each worker for each step.
    pub step_deviation_ps: u64,
}

impl StepParameters {
    /// Steps begin at once.
    pub const NONE: StepParameters = StepParameters { step_overhead_ps: 0, step_deviation_ps: 0 };

    /// As the protocols have it; `seed` decides on the draws.
    pub(crate) fn cost(self, seed: u64) -> StepCost {
        StepCost { overhead: Duration::from_ps(self.step_overhead_ps), deviation: Duration::from_ps(self.step_deviation_ps), seed }
    }
}

/// What is done about fragments that are stuck (ATP, A2TP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SafetyNets {
    /// The server has switches flush what later fragments have overtaken; what goes to it directly flushes what it passes.
    #[default]
    All,
    /// As the papers have it: workers' gap detection and timers.
    Paper,
}

/// Who makes the windows of a job (A2TP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WindowRule {
    /// The server, for all workers alike.
    #[default]
    Agreed,
    /// Each worker its own, as in the paper: workers may differ.
    Own,
}

/// What collisions are a share of (A2TP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CollisionRule {
    /// All packets of a round: a collision weighs the same for all jobs.
    #[default]
    Round,
    /// Those that went to aggregators, as in the paper: it weighs more for jobs with few of them.
    Aggregated,
    /// Those that an aggregator has summed up; switches share collisions out among the sums of all jobs, and average them.
    Shared,
}

/// What the windows of a job take for stragglers (A2TP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SynchronyRule {
    /// How far the contributions of packets are apart where they are added up.
    #[default]
    Spread,
    /// How many acknowledgements are back within the shortest round trip, as in the paper: whatever makes rounds long counts.
    RoundTrip,
}

/// The parameters of ATP.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct AtpParameters {
    /// How many switches next to workers and the server aggregate: those with most of the job's workers; all others only forward.
    pub aggregating: u32,
    /// Aggregators of each switch, for all jobs together. The testbed of A2TP has 450 (a2tp 3).
    pub aggregators: u32,
    /// First window in packets; 0 for half of the job's window.
    pub initial: u32,
    /// By how much the window grows in a round trip, in bytes of payload.
    pub increase_bytes: u32,
    /// An aggregator that nothing was heard of for so long may be taken by whoever finds it taken, in ps.
    pub reclaim_ps: u64,
    /// What is done about fragments that are stuck.
    pub nets: SafetyNets,
    /// 32-bit floats go as integers with one scale; what is too large goes as floats by way of the server (a2tp 5.8). The simulator takes the
    /// packets' course; its payloads are not rounded.
    pub fixed_point: bool,
    /// With fixed point, in the simulator: the share of packets that are too large at one worker.
    pub overflow: f64,
}

impl Default for AtpParameters {
    fn default() -> Self {
        AtpParameters {
            aggregating: UNLIMITED,
            aggregators: 450,
            initial: 0,
            increase_bytes: 1_500,
            reclaim_ps: 10_000_000_000,
            nets: SafetyNets::All,
            fixed_point: false,
            overflow: 0.0,
        }
    }
}

/// The parameters of A2TP.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct A2tpParameters {
    /// As of ATP.
    pub aggregating: u32,
    /// As of ATP.
    pub aggregators: u32,
    /// First windows in packets; 0 for half of the job's window.
    pub initial: u32,
    /// As of ATP.
    pub reclaim_ps: u64,
    /// As of ATP.
    pub nets: SafetyNets,
    /// As of ATP.
    pub fixed_point: bool,
    /// As of ATP.
    pub overflow: f64,
    /// Who makes the windows.
    pub windows: WindowRule,
    /// H: the share of packets that may meet a collision before a job takes fewer aggregators.
    pub threshold: f64,
    /// w: the weight of the latest round in the average of collisions.
    pub collision_weight: f64,
    /// g: the weight of the latest round in the average of marks.
    pub mark_weight: f64,
    /// By how many packets the window for aggregators grows in a round.
    pub priority: f64,
    /// The window for aggregators never falls below this.
    pub aggregators_min: u32,
    /// Stragglers make no difference.
    pub fair: bool,
    /// Only packets whose aggregator another one wanted count as collisions, not those that found it taken.
    pub col_only: bool,
    /// What collisions are a share of.
    pub collisions: CollisionRule,
    /// What is taken for stragglers.
    pub synchrony: SynchronyRule,
}

impl Default for A2tpParameters {
    fn default() -> Self {
        let AtpParameters { aggregating, aggregators, initial, reclaim_ps, nets, fixed_point, overflow, .. } = AtpParameters::default();
        A2tpParameters {
            aggregating,
            aggregators,
            initial,
            reclaim_ps,
            nets,
            fixed_point,
            overflow,
            windows: WindowRule::Agreed,
            threshold: 0.15,
            collision_weight: 1.0 / 16.0,
            mark_weight: 1.0 / 16.0,
            priority: 1.0,
            aggregators_min: 1,
            fair: false,
            col_only: false,
            collisions: CollisionRule::Round,
            synchrony: SynchronyRule::Spread,
        }
    }
}

/// How an accelerator finds the message of a packet (NetReduce).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LookupRule {
    /// It knows the messages of a window.
    #[default]
    Window,
    /// As in the paper: it knows one, that of the first packet that came last. A loss can make the job wait for ever.
    Newest,
}

/// When a slot is free again (NetReduce).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeallocationRule {
    /// When the sum one window on is complete.
    #[default]
    Full,
    /// As in the paper: when a packet one window on comes. A lost sum can make the job wait for ever.
    Packet,
}

/// Who gets a sum again (NetReduce).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReemissionRule {
    /// The receiver of the connection on which a packet was sent again.
    #[default]
    Requester,
    /// All receivers.
    All,
}

/// Who sends again what is lost (NetReduce).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RecoveryRule {
    /// The accelerator, on the link that has lost it. Not where another rule is the paper's: those are about cards.
    #[default]
    Switch,
    /// As in the paper: network cards, from end to end.
    Cards,
}

/// The parameters of NetReduce.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct NetReduceParameters {
    /// N: into how many messages the job's window is divided (netreduce 7).
    pub window_messages: u32,
    /// The order of the ring.
    pub order: RingOrder,
    /// How a packet's message is found.
    pub lookup: LookupRule,
    /// When a slot is free again.
    pub deallocation: DeallocationRule,
    /// Who gets a sum again.
    pub reemission: ReemissionRule,
    /// Who sends again what is lost.
    pub recovery: RecoveryRule,
    /// The least time that an accelerator waits for a receiver's acknowledgement. By default three of the round trips of 6.3 us that the
    /// paper measures: cards acknowledge one packet in sixteen, behind what their links are sending. Larger where round trips are.
    pub answer_min_ps: u64,
    /// A connection breaks with one timeout in a row more than this; 0: only the job's patience ends. Network cards have 7.
    pub retries: u32,
    /// Whether rates follow marks.
    #[serde(flatten)]
    pub congestion: CongestionParameters,
}

/// What a network card does about marked packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CongestionRule {
    /// Nothing: it sends as fast as its link and window let it.
    #[default]
    None,
    /// DCQCN: the rate of a connection follows its receiver's notifications (baselines 8).
    Dcqcn,
}

/// Congestion control of network cards. The defaults are DCQCN's published ones (Zhu et al., SIGCOMM 2015), and its simulators' where the text
/// has none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct CongestionParameters {
    /// Which.
    pub congestion: CongestionRule,
    /// The rate of a card's link, from which a connection begins, in bits per second.
    pub line_bps: u64,
    /// The least rate. Not in the paper: a thousandth of the link, so that a notification a gap still gets through.
    pub rate_min_bps: u64,
    /// 1/g, g = 1/256: the estimate keeps what some hundred notifications have said.
    pub gain_inverse: u32,
    /// A receiver notifies once in 50 us: faster than a card can make notifications for all its connections.
    pub notification_gap_ps: u64,
    /// Without a notification the estimate falls after 55 us: longer than the gap, or it would fall between two.
    pub estimate_timer_ps: u64,
    /// The rate grows every 55 us,
    pub rate_timer_ps: u64,
    /// and every 10 MB.
    pub rate_bytes: u64,
    /// Additive increase: 40 Mb/s.
    pub additive_bps: u64,
    /// Hyper increase, for which the paper has no number: ten times the additive one.
    pub hyper_bps: u64,
}

impl Default for CongestionParameters {
    fn default() -> Self {
        CongestionParameters {
            congestion: CongestionRule::None,
            line_bps: 100_000_000_000,
            rate_min_bps: 100_000_000,
            gain_inverse: 256,
            notification_gap_ps: 50_000_000,
            estimate_timer_ps: 55_000_000,
            rate_timer_ps: 55_000_000,
            rate_bytes: 10_000_000,
            additive_bps: 40_000_000,
            hyper_bps: 400_000_000,
        }
    }
}

/// How vectors on several machines are summed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlgorithmRule {
    /// One ring of all workers (baselines 1).
    #[default]
    FlatRing,
    /// Reduce-scatter in machines, a ring for each worker of a machine, all-gather (baselines 2).
    ParallelRing,
    /// Reduction to masters, a ring of masters, broadcast (baselines 3).
    Tencent,
    /// A ring of NetReduce for each worker of a machine (netreduce 5.9).
    #[serde(rename = "parallel-netreduce")]
    ParallelNetReduce,
}

/// The parameters of allreduces over machines.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct MachinesParameters {
    /// How vectors are summed.
    pub algorithm: AlgorithmRule,
    /// N: into how many messages the job's window is divided (netreduce 7).
    pub window_messages: u32,
    /// As of NetReduce.
    pub retries: u32,
    /// Whether rates follow marks.
    #[serde(flatten)]
    pub congestion: CongestionParameters,
    /// What a step costs its host.
    #[serde(flatten)]
    pub steps: StepParameters,
}

impl Default for MachinesParameters {
    fn default() -> Self {
        let algorithm = AlgorithmRule::FlatRing;
        MachinesParameters {
            algorithm,
            window_messages: 2,
            retries: 0,
            congestion: CongestionParameters::default(),
            steps: StepParameters::NONE,
        }
    }
}

impl Default for NetReduceParameters {
    fn default() -> Self {
        NetReduceParameters {
            window_messages: 2,
            order: RingOrder::Host,
            lookup: LookupRule::Window,
            deallocation: DeallocationRule::Full,
            reemission: ReemissionRule::Requester,
            recovery: RecoveryRule::Switch,
            answer_min_ps: 20_000_000,
            retries: 0,
            congestion: CongestionParameters::default(),
        }
    }
}

/// How a job uses its tree (SHARP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharpMode {
    /// A quota of operations under way, for as long as the job lives.
    #[default]
    LowLatency,
    /// The job's window, one job at a time at each switch.
    Streaming,
}

/// What a job does that switches have refused (SHARP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalRule {
    /// The operation is done by its hosts, as a ring, and switches are asked again with the next one.
    #[default]
    Host,
    /// It waits and asks again.
    Wait,
}

/// The parameters of SHARP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct SharpParameters {
    /// How the job uses its tree.
    pub mode: SharpMode,
    /// In low-latency mode: operations that the job has under way, in place of its window; a power of two.
    pub quota: u32,
    /// Operations that a switch has under way, of all jobs in low-latency mode together. The description gives no number.
    pub outstanding: u32,
    /// What the job does that is refused.
    pub refused: RefusalRule,
    /// How long a job that was refused waits at least before it asks again, in ps.
    pub retry_ps: u64,
}

impl Default for SharpParameters {
    fn default() -> Self {
        SharpParameters { mode: SharpMode::LowLatency, quota: 16, outstanding: 128, refused: RefusalRule::Host, retry_ps: 10_000_000 }
    }
}

/// The parameters of Rina.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct RinaParameters {
    /// How many top-of-rack switches aggregate: those with most of the job's workers (`rina 6.5`).
    pub aggregating: u32,
    /// The order of the ring.
    pub order: RingOrder,
    /// The rate of the switches' aggregation in bits per second: agents have no more under way than that brings in a round trip
    /// (`rina 4.3`). 0: no such limit. The paper's switch does about 20 Gb/s.
    pub full_speed_bps: u64,
    /// What a step costs the hosts that hand partitions on.
    #[serde(flatten)]
    pub steps: StepParameters,
}

impl Default for RinaParameters {
    fn default() -> Self {
        RinaParameters { aggregating: UNLIMITED, order: RingOrder::Host, full_speed_bps: 20_000_000_000, steps: StepParameters::NONE }
    }
}

/// The parameters of parameter servers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct PsParameters {
    /// Where a job has no servers of its own: how many of its workers have a shard beside them, those of the lowest ranks; 0 for all.
    pub shards: u32,
    /// First window in packets, of a worker at all servers together; 0 for half of the job's window.
    pub initial: u32,
    /// By how much the window at a server grows in a round trip, in bytes of payload.
    pub increase_bytes: u32,
}

impl Default for PsParameters {
    fn default() -> Self {
        PsParameters { shards: 0, initial: 0, increase_bytes: AtpParameters::default().increase_bytes }
    }
}

/// A system and its parameters.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(tag = "system", rename_all = "kebab-case")]
pub enum System {
    /// Bandwidth-optimal ring allreduce (baselines 1).
    Ring {
        /// The order of the ring.
        #[serde(default)]
        order: RingOrder,
        /// All workers finish a step before anybody begins the next.
        #[serde(default)]
        barrier: bool,
        /// What a step costs its host.
        #[serde(flatten)]
        steps: StepParameters,
    },
    /// Static reduction trees (baselines 5).
    Tree {
        /// How many; block b is reduced on tree b mod `trees`.
        #[serde(default = "one")]
        trees: u32,
        /// In which order a switch adds up what its children send.
        #[serde(default)]
        sum_order: SumOrder,
    },
    /// Canary: trees that form anew for each block (canary 1 to 9).
    Canary(CanaryParameters),
    /// SwitchML: a pool of slots at one switch, or at each of a tree of switches; the window is the size of the pool (switchml 1 to 10).
    #[serde(rename = "switchml")]
    SwitchMl {
        /// 32-bit floats go as integers with an exponent per block (switchml 6). The simulator takes the packets' course, with an
        /// exchange of exponents ahead; its payloads are not rounded.
        #[serde(default)]
        fixed_point: bool,
    },
    /// ATP: aggregators that jobs share, with a server for each job behind them (a2tp 1 to 9).
    Atp(AtpParameters),
    /// A2TP: ATP with a window for aggregators of its own (a2tp 1 to 9).
    A2tp(A2tpParameters),
    /// PANAMA: static reduction trees with a window that follows congestion marks; all workers have the same (baselines 5 and 8).
    Panama {
        /// How many; block b is reduced on tree b mod `trees`.
        #[serde(default = "one")]
        trees: u32,
        /// The congestion window at the beginning of the job, in packets; the job's window is the largest.
        #[serde(default = "window_initial")]
        window_initial: u32,
    },
    /// SHARP: one static tree, with a quota of a switch's operations or, streaming, all to itself (baselines 6).
    Sharp(SharpParameters),
    /// NetReduce: accelerators in the connections of a ring of network cards (netreduce 1 to 10).
    #[serde(rename = "netreduce")]
    NetReduce(NetReduceParameters),
    /// Rings, Tencent's allreduce and parallel NetReduce over machines (what hangs on a switch), reliably (baselines 1 to 3, netreduce 5.9).
    Machines(MachinesParameters),
    /// Rina: a ring of racks that their switches sum, and of workers without such a switch (rina 1 to 7).
    Rina(RinaParameters),
    /// Parameter servers, and switches that only forward (baselines 4).
    Ps(PsParameters),
    /// Flare's sparse allreduce: pairs of index and value, in a static tree (flare 1 to 9). Its dense one is a static tree to the network.
    Flare(FlareParameters),
    /// Sparse allreduce by the hosts alone: recursive doubling of lists of index and value (flare 7).
    Doubling(DoublingParameters),
    /// Every collective by messages between hosts: rings, chains, pairwise exchange.
    Exchange,
}

fn one() -> u32 {
    1
}

/// About the ten packets that TCP begins with (RFC 6928): all workers' first windows meet in the same queues.
fn window_initial() -> u32 {
    16
}

impl System {
    /// Names of all systems.
    pub const NAMES: &'static [&'static str] = &[
        "ring",
        "tree",
        "canary",
        "switchml",
        "atp",
        "a2tp",
        "panama",
        "sharp",
        "netreduce",
        "machines",
        "rina",
        "ps",
        "flare",
        "doubling",
        "exchange",
    ];

    /// Canary as its paper has it: 1 us, 32 Ki descriptors, hashed.
    pub fn canary() -> Self {
        System::Canary(CanaryParameters::default())
    }

    /// ATP with the aggregators of A2TP's testbed.
    pub fn atp() -> Self {
        System::Atp(AtpParameters::default())
    }

    /// A2TP as its paper has it: H = 0.15, w = g = 1/16, 450 aggregators.
    pub fn a2tp() -> Self {
        System::A2tp(A2tpParameters::default())
    }

    /// SHARP in low-latency mode, with operations as `fanin model sharp` has them.
    pub fn sharp() -> Self {
        System::Sharp(SharpParameters::default())
    }

    /// NetReduce with a window of two messages, and what its text leaves open chosen to be safe.
    pub fn netreduce() -> Self {
        System::NetReduce(NetReduceParameters::default())
    }

    /// Rina with every top-of-rack switch aggregating.
    pub fn rina() -> Self {
        System::Rina(RinaParameters::default())
    }

    /// One parameter server, or as many as the job has.
    pub fn ps() -> Self {
        System::Ps(PsParameters::default())
    }

    /// Flare at a density, with what follows from it.
    pub fn flare(density: f64) -> Self {
        System::Flare(FlareParameters { density, ..FlareParameters::default() })
    }

    /// Recursive doubling of lists at a density.
    pub fn doubling(density: f64) -> Self {
        System::Doubling(DoublingParameters { density, ..DoublingParameters::default() })
    }

    /// Where vectors are sparse, at which indices workers have something.
    pub fn sparsity(&self) -> Option<Sparsity> {
        let (density, overlap, picks) = match self {
            System::Flare(FlareParameters { density, overlap, picks, .. }) => (*density, *overlap, *picks),
            System::Doubling(DoublingParameters { density, overlap, picks }) => (*density, *overlap, *picks),
            _ => return None,
        };
        Some(Sparsity { density, overlap, bucketed: picks == Picks::Buckets })
    }

    /// The same at another density; nothing changes where vectors are not sparse.
    pub fn at_density(mut self, share: f64) -> Self {
        if let System::Flare(FlareParameters { density, .. }) | System::Doubling(DoublingParameters { density, .. }) = &mut self {
            *density = share;
        }
        self
    }

    /// The share of these indices.
    pub fn density(&self) -> Option<f64> {
        self.sparsity().map(|sparsity| sparsity.density)
    }

    /// Static trees, so many, that add up what comes as it comes.
    pub const fn tree(trees: u32) -> Self {
        System::Tree { trees, sum_order: SumOrder::Arrival }
    }

    /// The system's name.
    pub fn name(&self) -> &'static str {
        match self {
            System::Ring { .. } => "ring",
            System::Tree { .. } => "tree",
            System::Canary { .. } => "canary",
            System::SwitchMl { .. } => "switchml",
            System::Atp(_) => "atp",
            System::A2tp(_) => "a2tp",
            System::Panama { .. } => "panama",
            System::Sharp(_) => "sharp",
            System::NetReduce(_) => "netreduce",
            System::Machines(_) => "machines",
            System::Rina(_) => "rina",
            System::Ps(_) => "ps",
            System::Flare(_) => "flare",
            System::Doubling(_) => "doubling",
            System::Exchange => "exchange",
        }
    }

    /// Whether its windows shrink where packets come marked (ECN), and by nothing else.
    pub fn obeys_marks(&self) -> bool {
        matches!(self, System::Atp(_) | System::A2tp(_) | System::Panama { .. } | System::Ps(_))
    }

    /// Whether its nodes send to their neighbours only, so that no packet needs a way.
    pub fn stays_next_door(&self) -> bool {
        matches!(self, System::SwitchMl { .. })
    }

    /// Whether 32-bit floats go on the wire as integers.
    pub fn fixed_point(&self) -> bool {
        match *self {
            System::SwitchMl { fixed_point } => fixed_point,
            System::Atp(AtpParameters { fixed_point, .. }) | System::A2tp(A2tpParameters { fixed_point, .. }) => fixed_point,
            _ => false,
        }
    }

    /// The same system for drivers whose elements are real: which do not fit fixed point is found out, not drawn (`a2tp 5.8`).
    #[must_use]
    pub fn with_real_elements(self) -> Self {
        match self {
            System::Atp(parameters) => System::Atp(AtpParameters { overflow: 0.0, ..parameters }),
            System::A2tp(parameters) => System::A2tp(A2tpParameters { overflow: 0.0, ..parameters }),
            other => other,
        }
    }

    /// How many servers a job has where its configuration does not say; 0 for systems that have none.
    pub fn servers(&self) -> u32 {
        match self {
            System::Ring { .. } | System::Tree { .. } | System::Canary { .. } | System::SwitchMl { .. } | System::Panama { .. } => 0,
            System::NetReduce(_) | System::Sharp(_) | System::Machines(_) | System::Rina(_) | System::Flare(_) => 0,
            System::Doubling(_) | System::Exchange => 0,
            System::Atp(_) | System::A2tp(_) | System::Ps(_) => 1,
        }
    }

    /// The system's number in hop headers; 0 is not a system.
    pub fn number(&self) -> u8 {
        match self {
            System::Tree { .. } => 1,
            System::Ring { .. } => 2,
            System::Canary { .. } => 3,
            System::SwitchMl { .. } => 4,
            System::Atp(_) => 5,
            System::A2tp(_) => 6,
            System::Panama { .. } => 8,
            System::Sharp(_) => 9,
            System::NetReduce(_) => 10,
            System::Machines(_) => 11,
            System::Rina(_) => 12,
            System::Ps(_) => 13,
            System::Flare(_) => 14,
            System::Doubling(_) => 15,
            System::Exchange => 16,
        }
    }
}

/// A window that does not limit: a worker sends as much as its way out takes.
pub const UNLIMITED: u32 = u32::MAX;

/// One job: who takes part and how.
#[derive(Clone, Debug)]
pub struct JobSpec<'a, Op> {
    /// The job's number.
    pub id: JobId,
    /// The hosts of its workers, by rank.
    pub hosts: &'a [NodeId],
    /// The hosts of its servers, for systems that have servers; none of them has a worker of the job.
    pub servers: &'a [NodeId],
    /// The system.
    pub system: System,
    /// Element type and operator.
    pub op: Op,
    /// Bytes of an element on the wire.
    pub element_bytes: u32,
    /// Payload of a full packet in bytes; a whole number of elements.
    pub payload_bytes: u32,
    /// Packets that a worker has under way at most; [`UNLIMITED`] where the system can do without a limit (Canary).
    pub window: u32,
    /// Recover from losses; without it the network must lose nothing.
    pub reliable: bool,
    /// First retransmission timeout, until round trips have been measured.
    pub rto_initial: Duration,
    /// Lower bound of the retransmission timeout.
    pub rto_min: Duration,
    /// An operation without progress for so long has failed.
    pub patience: Duration,
    /// Seed of the job's random choices (roots of trees, costs of steps).
    pub seed: u64,
}
