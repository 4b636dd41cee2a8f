//! From a seed to a [`Recipe`]: topology, jobs, traffic and faults, all drawn from it.
//!
//! What a job must bear is fixed with the draw: its patience is chosen longer than what congestion, loss and short failures can cost, so
//! that "every worker completes" can be demanded of all runs but those in which something fails for longer or for good.

mod canary;
mod exchange;
mod limits;
mod partial;
mod shapes;
mod sparse;

use fanin_core::{CollectiveKind, DType, Duration, ElementOp, Instant, NetworkMap, NodeId, Operator, PacketKind, Rank};
use fanin_sim::faults::{FaultPlan, KindSet, LinkFault, LinkSelector, Strays, TimedFault};
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
use fanin_sim::noise::Delay;
use fanin_sim::routing::Balancer;
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_sim::{LinkSpeed, NetworkConfig, Shape, Topology};
use fanin_systems::{
    A2tpParameters, AlgorithmRule, AtpParameters, CollisionRule, CongestionParameters, CongestionRule, MachinesParameters,
    NetReduceParameters, PanamaParameters, PsParameters, RefusalRule, RinaParameters, RingOrder, RingParameters, SafetyNets, SharpMode,
    SharpParameters, StepParameters, SumOrder, SwitchMlParameters, SynchronyRule, System, TreeParameters, UNLIMITED, WindowRule,
};

use crate::draw::Draw;
use crate::recipe::{Demand, JobRecipe, Recipe};
use shapes::{lossless_dragonflies, other_shapes, other_ways};

/// Packets that all workers of a job send at most, so that a run takes milliseconds.
const JOB_PACKETS_MAX: u64 = 6_000;
/// The simulator counts no further on links that lose nothing.
const LOSSLESS_LIMIT: Duration = Duration::from_ms(280_000);
/// Packets of background traffic at most.
const BACKGROUND_PACKETS_MAX: u64 = 8_000;
/// Ethernet's headers, preamble, gap and checksum with those of IP, UDP and Fanin.
const FRAME_OVERHEAD_BYTES: u32 = 57;
const FRAME_BYTES_MIN: u32 = 84;
/// What NetReduce puts before a message.
const INA_HEADER_BYTES: u32 = 16;

/// What a run has to suffer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Weather {
    /// Nothing is lost: queues are never full and nothing fails; packets may be repeated and overtake each other.
    Calm,
    /// Links lose packets, and queues can be full.
    Lossy,
    /// Links, switches or hosts fail.
    Breaking,
}

/// The run of this seed.
pub fn generate(seed: u64) -> Recipe {
    generate_for(seed, None)
}

/// The run of this seed with jobs of one system only, one of [`System::NAMES`]; of any system where none is given.
pub fn generate_for(seed: u64, only: Option<&str>) -> Recipe {
    let mut draw = Draw::new(seed, 1);
    let weather = *draw.pick(&[Weather::Calm, Weather::Lossy, Weather::Lossy, Weather::Breaking, Weather::Breaking]);
    let mut network = network(&mut Draw::new(seed, 2), weather);
    other_shapes(&mut Draw::new(seed, 30), &mut network);
    lossless_dragonflies(&mut Draw::new(seed, 40), &mut network);
    other_ways(&mut Draw::new(seed, 41), &mut network);
    let map = Topology::new(&network.shape).expect("drawn sizes are possible").map;
    let traffic = traffic(&mut Draw::new(seed, 3), &map);
    let mut kind_draw = Draw::new(seed, 6);
    let mut jobs = jobs(&mut Draw::new(seed, 4), &map, weather, only);
    canary::adaptive_timeouts(&mut Draw::new(seed, 8), &mut jobs);
    canary::uneven_timeouts(&mut Draw::new(seed, 47), &mut jobs);
    canary::tables(&mut Draw::new(seed, 46), &mut jobs);
    canary::duties(&mut Draw::new(seed, 48), &mut jobs);
    with_servers(&mut Draw::new(seed, 9), &map, &mut jobs, only);
    panama(&mut Draw::new(seed, 10), &mut jobs, only);
    netreduce(&mut Draw::new(seed, 11), &mut jobs, only);
    sharp(&mut Draw::new(seed, 12), &mut jobs, only);
    machines(&mut Draw::new(seed, 13), &map, &mut jobs, only);
    rina(&mut Draw::new(seed, 14), &mut jobs, only);
    ps(&mut Draw::new(seed, 37), &map, &mut jobs, only);
    sparse::flare(&mut Draw::new(seed, 42), &mut jobs, only);
    sparse::doubling(&mut Draw::new(seed, 43), &mut jobs, only);
    step_costs(&mut Draw::new(seed, 38), &mut jobs);
    some_forward_only(&mut Draw::new(seed, 39), &mut jobs);
    let forwarding = partial::forwarding(&mut Draw::new(seed, 44), &map, &jobs);
    jobs.iter_mut().for_each(|job| kinds(&mut kind_draw, job));
    exchange::exchange(&mut Draw::new(seed, 51), &mut jobs, only);
    noises(&mut Draw::new(seed, 49), &mut jobs);
    inside_switches(&mut Draw::new(seed, 46), &mut network);
    let mut faults = FaultPlan::default();
    let fault_draw = &mut Draw::new(seed, 5);
    if weather == Weather::Calm {
        faults.links = harmless_link_faults(fault_draw, &network);
    } else if weather == Weather::Lossy || fault_draw.percent(40) {
        faults.links = link_faults(fault_draw, &map);
    }
    faults.strays = strays(&mut Draw::new(seed, 45));
    let loses = weather != Weather::Calm;
    let (limits, slowed) = limits::host_limits(&mut Draw::new(seed, 50), (&network, &map), &jobs, loses);
    let scale = Scale::of(&network, &jobs, &traffic, &faults).slower(slowed);
    let patience = Duration::from_ps(scale.trouble_ps.saturating_mul(draw.between(2, 4)));
    for job in &mut jobs {
        job.patience = patience;
        job.start = starts(&mut draw, job.hosts.len(), patience);
    }
    let mut demand = Demand::MustComplete;
    if weather == Weather::Breaking {
        (faults.timed, demand) = timed_faults(fault_draw, &map, &jobs, scale.duration_ps, patience);
    }
    let last_fault = faults.timed.iter().map(end_of).max().unwrap_or(Instant::ZERO);
    let mut time_limit = Duration::from_ps(last_fault.as_ps() + scale.duration_ps * 4) + patience.times(40);
    if network.lossless.is_some() {
        time_limit = time_limit.min(LOSSLESS_LIMIT);
    }
    Recipe { seed, network, forwarding, jobs, traffic, limits, faults, time_limit, drain: draw.percent(50), demand }
}

fn link(draw: &mut Draw) -> LinkSpeed {
    let gbps = *draw.pick(&[10u64, 25, 40, 100, 200, 400]);
    LinkSpeed { bits_per_second: gbps * 1_000_000_000, latency: Duration::from_ns(draw.scaled(50, 2_000)) }
}

fn lossless(draw: &mut Draw) -> LosslessConfig {
    // A buffer holds a frame at least, or nothing would ever move.
    let bytes = |draw: &mut Draw| draw.scaled(1_600, 100_000);
    LosslessConfig {
        model: *draw.pick(&[SwitchModel::OutputQueued, SwitchModel::InputQueued]),
        input_bytes: bytes(draw),
        output_bytes: bytes(draw),
        arbitration: Arbitration::default(),
        made_packets: MadePackets::default(),
        channels: 1,
    }
}

/// Where input-queued switches differ inside.
fn inside_switches(draw: &mut Draw, network: &mut NetworkConfig) {
    if let Some(lossless) = &mut network.lossless {
        lossless.arbitration = *draw.pick(&[Arbitration::FirstCome, Arbitration::RoundRobin, Arbitration::OldestFirst]);
        lossless.made_packets = *draw.pick(&[MadePackets::PerOutput, MadePackets::OwnFifo, MadePackets::Input]);
    }
}

fn network(draw: &mut Draw, weather: Weather) -> NetworkConfig {
    let shape = if draw.percent(35) {
        Shape::Star { hosts: draw.between(1, 26) as u32, link: link(draw) }
    } else {
        Shape::FatTree2 {
            leaves: draw.between(1, 6) as u32,
            hosts_per_leaf: draw.between(1, 8) as u32,
            spines: draw.between(1, 4) as u32,
            parallel_links: draw.between(1, 3) as u32,
            host_link: link(draw),
            fabric_link: link(draw),
        }
    };
    let queue_bytes = match weather {
        Weather::Calm => 1 << 40,
        // At least a few full frames, or nothing would ever get through.
        _ => draw.scaled(3_000, 100_000),
    };
    let balancer = |draw: &mut Draw| match draw.between(0, 3) {
        0 => Balancer::Ecmp,
        1 => Balancer::Random,
        2 => Balancer::Flowlet { gap_ps: draw.scaled(1_000, 100_000_000) },
        _ => Balancer::Adaptive { threshold: draw.between(0, 100) as f64 / 100.0 },
    };
    NetworkConfig {
        shape,
        queue_bytes,
        lossless: if weather == Weather::Calm && draw.percent(50) { Some(lossless(draw)) } else { None },
        ecn_mark_bytes: if draw.percent(30) { u64::MAX } else { draw.scaled(1_000, 200_000) },
        nic_queue_bytes: draw.scaled(2_000, 100_000),
        frame_overhead_bytes: FRAME_OVERHEAD_BYTES,
        frame_bytes_min: FRAME_BYTES_MIN,
        collective_balancer: balancer(draw),
        background_balancer: balancer(draw),
    }
}

fn traffic(draw: &mut Draw, map: &NetworkMap) -> Vec<TrafficConfig> {
    if map.hosts() < 2 || draw.percent(50) {
        return Vec::new();
    }
    let count = draw.between(2, u64::from(map.hosts())) as usize;
    let hosts: Vec<NodeId> = draw.sample(map.hosts(), count).into_iter().map(NodeId).collect();
    let pattern = match draw.between(0, 2) {
        0 => Pattern::Uniform,
        1 => Pattern::Permutation,
        _ => Pattern::Incast { receivers: draw.between(1, count as u64 - 1) as u32 },
    };
    let payload_bytes = draw.scaled(64, 1_500) as u32;
    let packets_per_host = draw.scaled(1, BACKGROUND_PACKETS_MAX / count as u64);
    let messages = draw.scaled(1, packets_per_host);
    vec![TrafficConfig {
        hosts,
        pattern,
        message_bytes: (packets_per_host / messages).max(1) * u64::from(payload_bytes) - draw.between(0, u64::from(payload_bytes) - 1),
        payload_bytes,
        load: draw.between(1, 10) as f64 / 10.0,
        messages: Some(messages),
        start: Instant::from_ps(draw.between(0, 100_000_000)),
    }]
}

fn jobs(draw: &mut Draw, map: &NetworkMap, weather: Weather, only: Option<&str>) -> Vec<JobRecipe> {
    let count = *draw.pick(&[1, 1, 1, 2, 3]);
    (0..count).map(|_| job(draw, map, weather, only)).collect()
}

fn operator(draw: &mut Draw) -> ElementOp {
    const TYPES: [DType; 12] = [
        DType::F32,
        DType::F32,
        DType::F32,
        DType::F64,
        DType::I32,
        DType::I32,
        DType::I64,
        DType::F16,
        DType::BF16,
        DType::I8,
        DType::I16,
        DType::U8,
    ];
    let dtype = *draw.pick(&TYPES);
    // Products of floats depend on the order of operands, so they have no single right answer.
    let operators: &[Operator] = if dtype.is_float() {
        &[Operator::Sum, Operator::Sum, Operator::Min, Operator::Max]
    } else {
        &[Operator::Sum, Operator::Prod, Operator::Min, Operator::Max, Operator::And, Operator::Or, Operator::Xor]
    };
    ElementOp { dtype, operator: *draw.pick(operators) }
}

/// Drawn apart, so that everything else of a seed stays as it was before there was this.
fn sum_order(draw: &Draw) -> SumOrder {
    if Draw::new(draw.clone().bits(), 0x0d3d).percent(25) { SumOrder::Fixed } else { SumOrder::Arrival }
}

fn system(draw: &mut Draw, op: ElementOp, only: Option<&str>) -> System {
    let drawn = draw.between(0, 3);
    // In the order of the numbers below.
    // PANAMA and SHARP are drawn as trees, of which they are made below.
    let only = only.map(|name| if matches!(name, "panama" | "sharp") { "tree" } else { name });
    let wanted = only.and_then(|name| ["tree", "ring", "switchml", "canary"].iter().position(|known| *known == name));
    match wanted.map_or(drawn, |wanted| wanted as u64) {
        0 => System::Tree(TreeParameters { trees: draw.between(1, 4) as u32, sum_order: sum_order(draw) }),
        1 => System::Ring(RingParameters {
            order: *draw.pick(&[RingOrder::Host, RingOrder::Placement]),
            barrier: draw.percent(35),
            steps: fanin_systems::StepParameters::NONE,
        }),
        2 => System::SwitchMl(SwitchMlParameters { fixed_point: op == ElementOp::F32_SUM && draw.percent(50) }),
        _ => System::Canary(canary::parameters(draw)),
    }
}
/// Some jobs become jobs of ATP or A2TP: all that were wanted, or one in six of all. Their switches have few aggregators, so that collisions
/// are the rule.
fn with_servers(draw: &mut Draw, map: &NetworkMap, jobs: &mut [JobRecipe], only: Option<&str>) {
    let aggregators = draw.scaled(1, 200) as u32;
    for job in jobs {
        let wanted = match only {
            Some("atp") => Some(false),
            Some("a2tp") => Some(true),
            Some(_) => None,
            None => draw.percent(17).then(|| draw.percent(60)),
        };
        let Some(is_a2tp) = wanted else { continue };
        job.system = system_with_server(draw, aggregators, is_a2tp, job.op);
        (job.reliable, job.kinds) = (true, Vec::new());
        let others: Vec<NodeId> = (0..map.hosts()).map(NodeId).filter(|host| !job.hosts.contains(host)).collect();
        if !others.is_empty() && draw.percent(75) {
            job.servers = vec![*draw.pick(&others)];
        }
    }
}

fn system_with_server(draw: &mut Draw, aggregators: u32, is_a2tp: bool, op: ElementOp) -> System {
    let nets = *draw.pick(&[SafetyNets::All, SafetyNets::All, SafetyNets::Paper]);
    let initial = draw.between(0, 40) as u32;
    let reclaim_ps = draw.scaled(100_000_000, 20_000_000_000);
    let fixed_point = op == ElementOp::F32_SUM && draw.percent(50);
    let overflow = if fixed_point && draw.percent(50) { draw.between(0, 100) as f64 / 1_000.0 } else { 0.0 };
    let increase_bytes = draw.scaled(1, 10_000) as u32;
    if !is_a2tp {
        return System::Atp(AtpParameters {
            aggregators,
            initial,
            increase_bytes,
            reclaim_ps,
            nets,
            fixed_point,
            overflow,
            ..AtpParameters::default()
        });
    }
    System::A2tp(A2tpParameters {
        aggregators,
        initial,
        reclaim_ps,
        nets,
        fixed_point,
        overflow,
        windows: *draw.pick(&[WindowRule::Agreed, WindowRule::Agreed, WindowRule::Own]),
        threshold: draw.between(0, 50) as f64 / 100.0,
        priority: draw.between(1, 4) as f64,
        fair: draw.percent(20),
        col_only: draw.percent(20),
        collisions: *draw.pick(&[CollisionRule::Round, CollisionRule::Shared, CollisionRule::Aggregated]),
        synchrony: *draw.pick(&[SynchronyRule::Spread, SynchronyRule::Spread, SynchronyRule::RoundTrip]),
        ..A2tpParameters::default()
    })
}

/// Some of the jobs on static trees heed congestion marks; all, where there are only such.
fn panama(draw: &mut Draw, jobs: &mut [JobRecipe], only: Option<&str>) {
    for job in jobs {
        if let System::Tree(TreeParameters { trees, .. }) = job.system
            && (only == Some("panama") || only.is_none() && draw.percent(30))
        {
            job.system = System::Panama(PanamaParameters { trees, window_initial: draw.between(1, u64::from(job.window)) as u32 });
        }
    }
}

/// Some of the jobs on static trees are of SHARP; all, where there are only such. Their switches have few operations, so that refusals are
/// the rule.
fn sharp(draw: &mut Draw, jobs: &mut [JobRecipe], only: Option<&str>) {
    let outstanding = draw.scaled(1, 64) as u32;
    for job in jobs {
        let is_tree = matches!(job.system, System::Tree(_));
        if !is_tree || !(only == Some("sharp") || only.is_none() && draw.percent(30)) {
            continue;
        }
        job.system = System::Sharp(SharpParameters {
            mode: *draw.pick(&[SharpMode::LowLatency, SharpMode::LowLatency, SharpMode::Streaming]),
            quota: 1 << draw.between(0, u64::from(outstanding.ilog2())),
            outstanding,
            refused: *draw.pick(&[RefusalRule::Host, RefusalRule::Wait]),
            retry_ps: draw.scaled(100_000, 2_000_000),
        });
    }
}

/// Some jobs become jobs of NetReduce: all that were wanted, or one in eight of those without servers.
fn netreduce(draw: &mut Draw, jobs: &mut [JobRecipe], only: Option<&str>) {
    for job in jobs {
        let wanted = only.map_or_else(|| job.system.servers() == 0 && draw.percent(12), |name| name == "netreduce");
        if !wanted {
            continue;
        }
        let order = *draw.pick(&[RingOrder::Host, RingOrder::Placement]);
        let window_messages = draw.between(1, u64::from(job.window.min(4))) as u32;
        let congestion = congestion(draw);
        job.system = System::NetReduce(NetReduceParameters { window_messages, order, congestion, ..NetReduceParameters::default() });
        job.reliable = true;
        if job.payload_bytes <= INA_HEADER_BYTES {
            job.payload_bytes += INA_HEADER_BYTES;
        }
    }
}

/// Congestion control of some jobs on network cards. Its times are shortened, as these runs are.
fn congestion(draw: &mut Draw) -> CongestionParameters {
    let usual = CongestionParameters::default();
    if draw.percent(50) {
        return usual;
    }
    CongestionParameters {
        congestion: CongestionRule::Dcqcn,
        line_bps: draw.scaled(1_000_000_000, 400_000_000_000),
        rate_min_bps: 1_000_000_000,
        notification_gap_ps: draw.scaled(100_000, 50_000_000),
        estimate_timer_ps: draw.scaled(100_000, 55_000_000),
        rate_timer_ps: draw.scaled(100_000, 55_000_000),
        rate_bytes: draw.scaled(10_000, 10_000_000),
        ..usual
    }
}

/// Some jobs become allreduces over machines: all that were wanted, or one in ten of those without servers. Where an algorithm needs as many
/// workers on each machine, the last ones of fuller machines stay away.
fn machines(draw: &mut Draw, map: &NetworkMap, jobs: &mut [JobRecipe], only: Option<&str>) {
    for job in jobs {
        let wanted = only.map_or_else(|| job.system.servers() == 0 && draw.percent(10), |name| name == "machines");
        if !wanted {
            continue;
        }
        const ALGORITHMS: [AlgorithmRule; 4] =
            [AlgorithmRule::FlatRing, AlgorithmRule::ParallelRing, AlgorithmRule::Tencent, AlgorithmRule::ParallelNetReduce];
        let algorithm = match *draw.pick(&ALGORITHMS) {
            // Its accelerators are at one switch, which all machines are next to.
            AlgorithmRule::ParallelNetReduce if !has_common_switches(map, &job.hosts) => AlgorithmRule::ParallelRing,
            algorithm => algorithm,
        };
        let window_messages = draw.between(1, u64::from(job.window.min(4))) as u32;
        let congestion = congestion(draw);
        job.system = System::Machines(MachinesParameters { algorithm, window_messages, congestion, ..MachinesParameters::default() });
        (job.reliable, job.payload_bytes) = (true, job.payload_bytes.max(2 * INA_HEADER_BYTES));
        if algorithm != AlgorithmRule::FlatRing {
            job.hosts = evenly(map, &job.hosts, algorithm == AlgorithmRule::Tencent);
        }
    }
}

/// Some jobs get parameter servers: all that were wanted, or one in ten of those without servers. A server of its own, several, or some or all
/// workers have one beside them.
fn ps(draw: &mut Draw, map: &NetworkMap, jobs: &mut [JobRecipe], only: Option<&str>) {
    for job in jobs {
        let wanted = only.map_or_else(|| job.system.servers() == 0 && draw.percent(10), |name| name == "ps");
        if !wanted {
            continue;
        }
        let others: Vec<NodeId> = (0..map.hosts()).map(NodeId).filter(|host| !job.hosts.contains(host)).collect();
        let own = draw.between(0, 4.min(others.len() as u64)) as usize;
        let beside = if draw.percent(50) { 0 } else { draw.between(1, job.hosts.len() as u64) as u32 };
        job.servers = draw.sample(others.len() as u32, own).into_iter().map(|place| others[place as usize]).collect();
        job.system = System::Ps(PsParameters {
            shards: if own > 0 { 0 } else { beside },
            initial: draw.between(0, 40) as u32,
            increase_bytes: draw.scaled(1, 10_000) as u32,
        });
        job.kinds = Vec::new();
    }
}

/// Steps of some jobs cost their hosts some time, short beside any patience: a run has a few hundred steps at most.
fn step_costs(draw: &mut Draw, jobs: &mut [JobRecipe]) {
    for job in jobs {
        let costs = draw.percent(20);
        let drawn = StepParameters { step_overhead_ps: draw.scaled(1_000, 1_000_000), step_deviation_ps: draw.between(0, 300_000) };
        match &mut job.system {
            System::Ring(RingParameters { steps, .. }) if costs => *steps = drawn,
            System::Rina(parameters) if costs => parameters.steps = drawn,
            System::Machines(parameters) if costs && parameters.algorithm != AlgorithmRule::ParallelNetReduce => parameters.steps = drawn,
            _ => {}
        }
    }
}

/// In some jobs of ATP and A2TP not all switches aggregate, or none.
fn some_forward_only(draw: &mut Draw, jobs: &mut [JobRecipe]) {
    for job in jobs {
        let count = if draw.percent(50) { UNLIMITED } else { draw.between(0, 4) as u32 };
        match &mut job.system {
            System::Atp(parameters) => parameters.aggregating = count,
            System::A2tp(parameters) => parameters.aggregating = count,
            _ => {}
        }
    }
}

/// Whether the switches of these hosts are next to every switch of the top level, or are the only one.
fn has_common_switches(map: &NetworkMap, hosts: &[NodeId]) -> bool {
    let leaf = |host: &NodeId| map.leaf_of(*host).map(|leaf| leaf.node);
    let is_next_to = |top: NodeId, host: &NodeId| map.neighbours(top).iter().any(|next| Some(next.node) == leaf(host));
    let tops = || map.switches().filter(|switch| map.level(*switch) == map.top_level());
    hosts.iter().all(|host| leaf(host) == leaf(&hosts[0])) || tops().all(|top| hosts.iter().all(|host| is_next_to(top, host)))
}

/// As many of these hosts on each switch that has one of them; a power of two of them, where that is asked for.
fn evenly(map: &NetworkMap, hosts: &[NodeId], power_of_two: bool) -> Vec<NodeId> {
    let leaf = |host: NodeId| map.leaf_of(host).map(|leaf| leaf.node);
    let on = |host: NodeId| hosts.iter().filter(|other| leaf(**other) == leaf(host)).count();
    let least = hosts.iter().map(|host| on(*host)).min().unwrap_or(1);
    let size = if power_of_two { 1 << least.ilog2() } else { least };
    let before = |place: usize| hosts[..place].iter().filter(|other| leaf(**other) == leaf(hosts[place])).count();
    (0..hosts.len()).filter(|place| before(*place) < size).map(|place| hosts[place]).collect()
}

/// Some jobs become jobs of Rina: all that were wanted, or one in eight of those without servers. All, some or none of their switches
/// aggregate.
fn rina(draw: &mut Draw, jobs: &mut [JobRecipe], only: Option<&str>) {
    for job in jobs {
        let wanted = only.map_or_else(|| job.system.servers() == 0 && draw.percent(12), |name| name == "rina");
        if !wanted {
            continue;
        }
        let order = *draw.pick(&[RingOrder::Host, RingOrder::Placement]);
        let aggregating = if draw.percent(50) { UNLIMITED } else { draw.between(0, 4) as u32 };
        let full_speed_bps = if draw.percent(50) { 0 } else { draw.scaled(1_000_000_000, 100_000_000_000) };
        job.system = System::Rina(RinaParameters { aggregating, order, full_speed_bps, ..RinaParameters::default() });
        job.reliable = true;
        if job.op.operator == Operator::Avg {
            job.op.operator = Operator::Sum;
        }
    }
}

fn job(draw: &mut Draw, map: &NetworkMap, weather: Weather, only: Option<&str>) -> JobRecipe {
    let workers = draw.between(1, u64::from(map.hosts().min(24)));
    let mut op = operator(draw);
    let element_bytes = op.dtype.bytes() as u64;
    let payload_bytes = draw.scaled(4, 1_024).max(element_bytes) / element_bytes * element_bytes;
    let elements_per_packet = payload_bytes / element_bytes;
    let operations = *draw.pick(&[1u64, 1, 1, 2, 3, 5]);
    let packets_max = (JOB_PACKETS_MAX / workers / operations).max(1);
    let elements = (0..operations)
        .map(|_| match draw.between(0, 9) {
            0 => 0,
            1 => 1,
            2 => draw.between(1, 3 * elements_per_packet),
            _ => draw.scaled(1, packets_max * elements_per_packet),
        })
        .collect();
    let rto_min = Duration::from_ns(draw.scaled(2_000, 200_000));
    let reliable = weather != Weather::Calm || draw.percent(30);
    let system = system(draw, op, only);
    if matches!(system, System::SwitchMl(_) | System::Canary(_)) && op.dtype.is_float() && op.operator == Operator::Sum && draw.percent(25)
    {
        // The switch divides, or the leader.
        op.operator = Operator::Avg;
    }
    JobRecipe {
        hosts: draw.sample(map.hosts(), workers as usize).into_iter().map(NodeId).collect(),
        servers: Vec::new(),
        system,
        op,
        payload_bytes: payload_bytes as u32,
        window: draw.scaled(1, 64) as u32,
        reliable,
        rto_initial: rto_min.times(draw.scaled(1, 16)),
        rto_min,
        patience: Duration::ZERO,
        elements,
        kinds: Vec::new(),
        start: Vec::new(),
        noise_probability: if draw.percent(70) { 0.0 } else { draw.between(1, 100) as f64 / 1_000.0 },
        noise_delay: Duration::from_ns(draw.scaled(100, 50_000)).into(),
        seed: draw.bits(),
    }
}

/// Noise of some jobs that have it has a tail.
fn noises(draw: &mut Draw, jobs: &mut [JobRecipe]) {
    for job in jobs {
        let scale = Duration::from_ns(draw.scaled(100, 20_000));
        let tail = match draw.between(0, 7) {
            0 => Delay::Uniform { least: Duration::ZERO, most: scale.times(2) },
            1 => Delay::Exponential { mean: scale },
            2 => Delay::Lognormal { median: scale, sigma: 0.5 },
            3 => Delay::Pareto { least: scale, shape: 3.0 },
            _ => continue,
        };
        if job.noise_probability > 0.0 {
            job.noise_delay = tail;
        }
    }
}

/// What the operations of a job are, where its system does more than allreduces.
fn kinds(draw: &mut Draw, job: &mut JobRecipe) {
    let fixed_point = match job.system {
        System::SwitchMl(SwitchMlParameters { fixed_point }) => fixed_point,
        System::Canary(_) => false,
        _ => return,
    };
    // A job of a recipe has one operator: a mean would divide what is only copied, and fixed point is for what is added up.
    let may_copy = !fixed_point && job.op.operator != Operator::Avg;
    if draw.percent(40) {
        return;
    }
    let workers = job.hosts.len() as u64;
    let mut kind = || {
        let root = Rank(draw.between(0, workers - 1) as u32);
        match draw.between(0, if may_copy { 5 } else { 2 }) {
            0 => CollectiveKind::Allreduce,
            1 => CollectiveKind::Reduce { root },
            2 => CollectiveKind::ReduceScatter,
            3 => CollectiveKind::Broadcast { root },
            4 => CollectiveKind::AllGather,
            _ => CollectiveKind::Barrier,
        }
    };
    let kinds = job.elements.iter().map(|_| kind()).collect();
    job.set_kinds(kinds);
}

/// Ranks start together, or up to an eighth of the patience apart.
fn starts(draw: &mut Draw, workers: usize, patience: Duration) -> Vec<Instant> {
    let spread = if draw.percent(50) { 0 } else { draw.scaled(1_000, patience.as_ps() / 8) };
    (0..workers).map(|_| Instant::from_ps(draw.between(0, spread))).collect()
}

/// Orders of magnitude of a run.
struct Scale {
    /// About how long the jobs last where nothing goes wrong, in ps.
    duration_ps: u64,
    /// More than congestion, noise and a few losses in a row can hold up one packet, in ps.
    trouble_ps: u64,
}

impl Scale {
    fn slower(self, by: u64) -> Self {
        Scale { duration_ps: self.duration_ps.saturating_mul(by), trouble_ps: self.trouble_ps.saturating_mul(by) }
    }

    fn of(network: &NetworkConfig, jobs: &[JobRecipe], traffic: &[TrafficConfig], faults: &FaultPlan) -> Self {
        let (slowest, _) = network.shape.slowest_and_fastest();
        // One of each kind, as from a host to the root of a tree.
        let each = network.shape.speeds().into_iter().map(|speed| speed.latency);
        let latency = match network.shape {
            // The longest way has as many links as there are switches at most; with this, it counts four times.
            Shape::Wired(_) => each.max().unwrap_or(Duration::ZERO).times(4),
            Shape::Dragonfly { .. } if network.collective_balancer.goes_round() => {
                each.fold(Duration::ZERO, |sum, latency| sum + latency).times(2)
            }
            _ => each.fold(Duration::ZERO, |sum, latency| sum + latency),
        };
        // Without loss a link has no more under way than the buffer behind it takes, so that a short one makes a long link slow.
        let credited = network.lossless.map(|lossless| {
            let longest = network.shape.speeds().into_iter().map(|speed| speed.latency).max().unwrap_or(Duration::ZERO);
            (longest.as_ps() * 2, lossless.input_bytes)
        });
        let time = |packets: u64, payload: u32| {
            let frame = u64::from((payload + FRAME_OVERHEAD_BYTES).max(FRAME_BYTES_MIN));
            let line_ps = (u128::from(frame * 8) * 1_000_000_000_000 / u128::from(slowest)) as u64;
            let buffer_ps = credited.map_or(0, |(round_trip, buffer)| line_ps + round_trip / (buffer / frame).max(1));
            packets * line_ps.max(buffer_ps)
        };
        let round_trip = latency.as_ps() * 4;
        let mut scale = Scale { duration_ps: 0, trouble_ps: 0 };
        // All that can stand before a packet in queues: every window once, and all background traffic.
        let mut queued_ps = 0;
        let mut slowest_timeout_ps = 0;
        for job in jobs {
            let window = u64::from(job.window.next_power_of_two());
            // With fixed point, exponents take a round of each operation.
            let window = if let System::Sharp(parameters) = job.system { u64::from(parameters.quota) } else { window };
            let rounds = job.packets().div_ceil(window) + 2 * job.elements.len() as u64;
            // A ring takes as many steps as it has workers, twice.
            let steps =
                if matches!(job.system, System::Ring(_) | System::Sharp(_) | System::Machines(_) | System::Rina(_) | System::Exchange(_)) {
                    2 * job.hosts.len() as u64 * job.elements.len() as u64
                } else if matches!(job.system, System::Doubling(_)) {
                    sparse::doubling_steps(job) * job.elements.len() as u64
                } else {
                    1
                };
            // All contributions to a fragment may meet at the link of one server.
            let incast = match job.system {
                System::Atp(_) | System::A2tp(_) | System::Ps(_) => job.hosts.len() as u64,
                // A block has several packets.
                System::Flare(_) => sparse::PACKETS_MAX,
                System::Doubling(_) => sparse::doubling_load(job),
                _ => 1,
            };
            // On both ways, a switch may hold a packet at each level for its timeout.
            let held_ps = if let System::Canary(parameters) = job.system {
                8 * (parameters.timeout_longest_ps() + parameters.leader_time_ps)
            } else {
                0
            };
            let noise_ps = if job.noise_probability > 0.0 { job.noise_delay.seldom_longer().as_ps() } else { 0 };
            scale.duration_ps = scale.duration_ps.max(time(2 * job.packets() * incast, job.payload_bytes) + (rounds + steps) * round_trip);
            let queued = match job.system {
                // Its window is for all that a worker has under way; without loss recovery it has none.
                System::Doubling(_) if job.reliable => 2 * window * job.hosts.len() as u64,
                System::Doubling(_) => 2 * job.packets() * incast,
                _ => window * job.hosts.len() as u64 * incast,
            };
            queued_ps += time(queued, job.payload_bytes) + noise_ps * 4 + held_ps;
            slowest_timeout_ps = slowest_timeout_ps.max(job.rto_initial.as_ps().max(job.rto_min.as_ps()));
        }
        for config in traffic {
            let packets = config.messages.unwrap_or(0) * config.message_bytes.div_ceil(u64::from(config.payload_bytes));
            let stretched = time(packets * config.hosts.len() as u64, config.payload_bytes) as f64 / config.load;
            queued_ps += stretched as u64 + config.start.as_ps();
        }
        let delay_ps = faults.links.iter().map(|fault| fault.delay_max.as_ps()).max().unwrap_or(0);
        // Timeouts double up to four times, and never fall below a round trip.
        let attempt_ps = 16 * (slowest_timeout_ps.max(2 * round_trip) + 4 * delay_ps);
        scale.trouble_ps = 8 * queued_ps + attempts(faults) * attempt_ps;
        scale
    }
}

/// After so many attempts a packet and its answer, which cross eight links at most, have got through all but surely.
fn attempts(faults: &FaultPlan) -> u64 {
    let worst = faults.links.iter().map(|fault| fault.loss + fault.corruption).fold(0.0, f64::max);
    let through: f64 = (0..8).fold(1.0, |through, _| through * (1.0 - worst));
    let (mut lost, mut count) = (1.0, 0);
    while lost > 1e-10 && count < 64 {
        lost *= 1.0 - through;
        count += 1;
    }
    count.max(6)
}

/// Repetition and reordering that the hop sequence makes good without loss: no packet comes so late that it has left the window.
fn harmless_link_faults(draw: &mut Draw, network: &NetworkConfig) -> Vec<LinkFault> {
    if draw.percent(50) {
        return Vec::new();
    }
    let (_, fastest) = network.shape.slowest_and_fastest();
    let frame_ps = u64::from(FRAME_BYTES_MIN) * 8_000_000_000_000 / fastest;
    vec![LinkFault {
        links: LinkSelector::All,
        kinds: KindSet::ALL,
        loss: 0.0,
        corruption: 0.0,
        duplication: draw.between(0, 10) as f64 / 100.0,
        reordering: draw.between(0, 10) as f64 / 100.0,
        delay_max: Duration::from_ps(draw.between(0, frame_ps * 512)),
    }]
}

/// Packets that nobody on the link has sent, in every fourth run. They cost nothing of what the job must bear.
fn strays(draw: &mut Draw) -> Strays {
    let probability = if draw.percent(25) { draw.scaled(1, 500) as f64 / 1_000.0 } else { 0.0 };
    Strays { probability, believed: false }
}

fn link_faults(draw: &mut Draw, map: &NetworkMap) -> Vec<LinkFault> {
    (0..draw.between(1, 3)).map(|_| link_fault(draw, map)).collect()
}

fn link_fault(draw: &mut Draw, map: &NetworkMap) -> LinkFault {
    let links = match draw.between(0, 6) {
        0 => LinkSelector::HostUp,
        1 => LinkSelector::HostDown,
        2 => LinkSelector::Fabric,
        3 => {
            let from = NodeId(draw.between(0, u64::from(map.nodes()) - 1) as u32);
            match map.neighbours(from) {
                [] => LinkSelector::All,
                neighbours => LinkSelector::Between { from, to: draw.pick(neighbours).node },
            }
        }
        _ => LinkSelector::All,
    };
    const KINDS: [PacketKind; 4] = [PacketKind::Contribution, PacketKind::Aggregate, PacketKind::Control, PacketKind::Background];
    let kinds = match draw.between(0, 2) {
        0 => KindSet::of(&KINDS.into_iter().filter(|_| draw.percent(50)).collect::<Vec<_>>()),
        _ => KindSet::ALL,
    };
    let loss_percent = draw.between(0, 10);
    let rate = |draw: &mut Draw, max: u64| if draw.percent(40) { 0.0 } else { draw.between(0, max * 10) as f64 / 1_000.0 };
    LinkFault {
        links,
        kinds,
        loss: rate(draw, loss_percent),
        // A packet whose checksum fails is lost as well: a tenth of all packets together.
        corruption: rate(draw, 10 - loss_percent),
        duplication: rate(draw, 10),
        reordering: rate(draw, 10),
        delay_max: Duration::from_ns(draw.scaled(1, 20_000)),
    }
}

/// What fails, and whether jobs must bear it: short silence they must, lost state and lost hosts not.
fn timed_faults(draw: &mut Draw, map: &NetworkMap, jobs: &[JobRecipe], duration_ps: u64, patience: Duration) -> (Vec<TimedFault>, Demand) {
    let mild = draw.percent(35);
    let count = draw.between(1, 3);
    let mut faults = Vec::new();
    for _ in 0..count {
        let from = Instant::from_ps(draw.between(0, duration_ps.saturating_mul(2)));
        let length = match draw.between(0, 2) {
            _ if mild => Duration::from_ps(draw.scaled(1, patience.as_ps() / 8 / count)),
            0 => Duration::from_ps(draw.scaled(1, patience.as_ps() * 3)),
            1 => Duration::from_ps(draw.scaled(1, duration_ps)),
            _ => Duration::MAX,
        };
        let until = from + length;
        let job = draw.pick(jobs);
        let member = *draw.pick(&job.hosts);
        faults.push(match draw.between(0, if mild { 1 } else { 4 }) {
            0 if length != Duration::MAX => TimedFault::HostStall { host: member, from, until },
            1 => {
                let a = if draw.percent(50) { member } else { NodeId(draw.between(0, u64::from(map.nodes()) - 1) as u32) };
                match map.neighbours(a) {
                    [] => continue,
                    neighbours => TimedFault::LinkDown { a, b: draw.pick(neighbours).node, from, until },
                }
            }
            2 => TimedFault::SwitchDown { switch: *draw.pick(&map.switches().collect::<Vec<_>>()), from, until },
            _ => TimedFault::HostDies { host: member, at: from },
        });
    }
    (faults, if mild { Demand::MustComplete } else { Demand::MayFail })
}

/// When a fault has begun and, unless it is for good, ended.
fn end_of(fault: &TimedFault) -> Instant {
    match *fault {
        TimedFault::LinkDown { from, until, .. }
        | TimedFault::SwitchDown { from, until, .. }
        | TimedFault::HostStall { from, until, .. } => {
            if until == Instant::FAR_FUTURE {
                from
            } else {
                until
            }
        }
        TimedFault::HostDies { at, .. } => at,
    }
}
