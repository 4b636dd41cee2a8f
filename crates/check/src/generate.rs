//! From a seed to a [`Recipe`]: topology, jobs, traffic and faults, all drawn from it.
//!
//! What a job must bear is fixed with the draw: its patience is chosen longer than what congestion, loss and short failures can cost, so
//! that "every worker completes" can be demanded of all runs but those in which something fails for longer or for good.

mod cards;
mod hardware;
mod large;
mod limits;
mod partial;
mod partitions;
mod pods;
mod shapes;

use fanin_core::{CollectiveKind, DType, Duration, ElementOp, Instant, NetworkMap, NodeId, Operator, PacketKind, Rank};
use fanin_sim::faults::{FaultPlan, KindSet, LinkFault, LinkSelector, Strays, TimedFault};
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
use fanin_sim::noise::Delay;
use fanin_sim::routing::Balancer;
use fanin_sim::traffic::{Congestion, Pattern, TrafficConfig};
use fanin_sim::trimming::Trimming;
use fanin_sim::{LinkSpeed, NetworkConfig, Shape, Topology};
use fanin_systems::{Draw, DrawnJob, JobSize, StepParameters, System, UNLIMITED};

use crate::recipe::{Demand, JobRecipe, Numbers, Recipe};
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

/// The stream of parameters of systems from elsewhere.
const OWN: u64 = 0x0e15;

/// The stream of what controls background traffic.
const CONGESTION: u64 = 60;

/// The stream of what limits switches' pipelines.
const HARDWARE: u64 = 61;

/// The stream of what switches do where a queue is full.
const TRIMMING: u64 = 62;

/// The stream of jobs in pods.
const IN_PODS: u64 = 65;

/// As the name of a system: one job of each run is in pods, by two systems that are drawn.
pub const PODS: &str = "pods";

/// The stream of what elements are.
const NUMBERS: u64 = 63;

/// The stream of networks that fall apart.
const PARTITIONS: u64 = 67;

/// The stream of machines whose switches sum.
const CARDS: u64 = 68;

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

/// The run of this seed with jobs of one system only, one of [`System::NAMES`]; of any system where none is given, or [`PODS`].
pub fn generate_for(seed: u64, only: Option<&str>) -> Recipe {
    let mut draw = Draw::new(seed, 1);
    let weather = *draw.pick(&[Weather::Calm, Weather::Lossy, Weather::Lossy, Weather::Breaking, Weather::Breaking]);
    let mut network = network(&mut Draw::new(seed, 2), weather);
    other_shapes(&mut Draw::new(seed, 30), &mut network);
    lossless_dragonflies(&mut Draw::new(seed, 40), &mut network);
    pods::network(&mut Draw::new(seed, IN_PODS), &mut network, only);
    other_ways(&mut Draw::new(seed, 41), &mut network);
    trimming(&mut Draw::new(seed, TRIMMING), &mut network);
    let of_machines = cards::network(&mut Draw::new(seed, CARDS), &network, only);
    if let Some(drawn) = of_machines.and_then(|network| on_machines(seed, weather, network, only)) {
        return finished(seed, (draw, weather), drawn, only);
    }
    let large = &mut Draw::new(seed, 51);
    let is_large = large::network(large, &mut network, only);
    let mut drawn = Drawn::on(seed, weather, network, only);
    if is_large {
        large::job(large, &drawn.map, &mut drawn.jobs);
    }
    finished(seed, (draw, weather), drawn, only)
}

/// A network, and what it carries, before what goes wrong is drawn.
struct Drawn {
    network: NetworkConfig,
    map: NetworkMap,
    traffic: Vec<TrafficConfig>,
    jobs: Vec<JobRecipe>,
}

impl Drawn {
    fn on(seed: u64, weather: Weather, network: NetworkConfig, only: Option<&str>) -> Drawn {
        let map = Topology::new(&network.shape).expect("drawn sizes are possible").map;
        let mut traffic = traffic(&mut Draw::new(seed, 3), &map);
        congestion(&mut Draw::new(seed, CONGESTION), &mut traffic);
        let mut jobs = jobs(&mut Draw::new(seed, 4), &map, weather, only);
        by_systems(seed, &map, &mut jobs, only);
        Drawn { network, map, traffic, jobs }
    }
}

/// What is drawn on a network of machines, where all jobs are of systems that it can carry.
fn on_machines(seed: u64, weather: Weather, network: NetworkConfig, only: Option<&str>) -> Option<Drawn> {
    let drawn = Drawn::on(seed, weather, network, only);
    cards::fit(&drawn.map, &drawn.jobs).then_some(drawn)
}

/// What a network carries and what goes wrong, put together.
fn finished(seed: u64, (mut draw, weather): (Draw, Weather), drawn: Drawn, only: Option<&str>) -> Recipe {
    let Drawn { mut network, map, traffic, mut jobs } = drawn;
    let mut kind_draw = Draw::new(seed, 6);
    let in_pods = pods::divide(&mut Draw::new(seed, IN_PODS + 1), (&map, weather), &mut jobs, only);
    step_costs(&mut Draw::new(seed, 38), &mut jobs);
    some_forward_only(&mut Draw::new(seed, 39), &mut jobs);
    let forwarding = partial::forwarding(&mut Draw::new(seed, 44), &map, &jobs);
    jobs.iter_mut().for_each(|job| kinds(&mut kind_draw, job));
    noises(&mut Draw::new(seed, 49), &mut jobs);
    numbers(&mut Draw::new(seed, NUMBERS), &mut jobs);
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
    let (pipeline, led_back) = hardware::pipeline(&mut Draw::new(seed, HARDWARE), &network, &map, &jobs);
    let scale = Scale::of(&network, &jobs, &traffic, &faults).slower(slowed * led_back);
    let patience = Duration::from_ps(scale.trouble_ps.saturating_mul(draw.between(2, 4)).saturating_mul(pods::turns(&in_pods)));
    for job in &mut jobs {
        job.patience = patience;
        job.start = starts(&mut draw, job.hosts.len(), patience);
    }
    let in_pods = pods::started(&mut draw, in_pods, &mut jobs, patience);
    let mut demand = Demand::MustComplete;
    if weather == Weather::Breaking {
        (faults.timed, demand) = timed_faults(fault_draw, &map, &jobs, scale.duration_ps, patience);
        let times = (scale.duration_ps, patience);
        demand = partitions::partitions(&mut Draw::new(seed, PARTITIONS), &map, &mut faults, times, demand);
    }
    let last_fault = faults.timed.iter().map(end_of).max().unwrap_or(Instant::ZERO);
    let mut time_limit = Duration::from_ps(last_fault.as_ps() + scale.duration_ps * 4) + patience.times(40);
    if network.lossless.is_some() {
        time_limit = time_limit.min(LOSSLESS_LIMIT);
    }
    Recipe {
        seed,
        network,
        forwarding,
        pipeline,
        jobs,
        pods: in_pods,
        traffic,
        limits,
        faults,
        time_limit,
        drain: draw.percent(50),
        demand,
    }
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

/// Some switches cut what finds a queue full.
fn trimming(draw: &mut Draw, network: &mut NetworkConfig) {
    if network.lossless.is_none() && draw.percent(10) {
        network.trimming = Some(*draw.pick(&[Trimming::Hosts, Trimming::All]));
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
        trimming: None,
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
        congestion: None,
        messages: Some(messages),
        start: Instant::from_ps(draw.between(0, 100_000_000)),
    }]
}

/// Some background traffic has congestion control; the shortest timeouts are shorter than a round trip.
fn congestion(draw: &mut Draw, traffic: &mut [TrafficConfig]) {
    for config in traffic {
        if draw.percent(40) {
            config.congestion = Some(Congestion::Dctcp { rto_min: Duration::from_ps(draw.scaled(1_000_000, 2_000_000_000)) });
        }
    }
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

/// A system that is drawn for itself, with what it makes of the operator.
fn first_system(draw: &mut Draw, op: &mut ElementOp, only: Option<&str>) -> System {
    let firsts = System::firsts();
    let drawn = draw.between(0, firsts.len() as u64 - 1) as usize;
    // Jobs of the one that is wanted may be made of others' below.
    let wanted = only.and_then(System::made_of).and_then(|name| firsts.iter().position(|(known, _)| *known == name));
    let (_, first) = firsts[wanted.unwrap_or(drawn)];
    (first.draw)(draw, op)
}

/// Jobs become jobs of other systems, as these have it.
fn by_systems(seed: u64, map: &NetworkMap, jobs: &mut [JobRecipe], only: Option<&str>) {
    let drawn = |job: &JobRecipe| DrawnJob {
        hosts: job.hosts.clone(),
        servers: job.servers.clone(),
        system: job.system,
        op: job.op,
        payload_bytes: job.payload_bytes,
        window: job.window,
        reliable: job.reliable,
    };
    let mut all: Vec<DrawnJob> = jobs.iter().map(drawn).collect();
    System::campaigns().iter().for_each(|campaign| (campaign.draw)(&mut Draw::new(seed, campaign.stream), map, &mut all, only));
    let own = &mut Draw::new(seed, OWN);
    for job in &mut all {
        if let Some(system) = only.and_then(|name| System::drawn_own(name, own)) {
            job.system = system;
            job.op.operator = if job.op.operator == Operator::Avg { Operator::Sum } else { job.op.operator };
        }
    }
    for (job, drawn) in jobs.iter_mut().zip(all) {
        let DrawnJob { hosts, servers, system, op, payload_bytes, window, reliable } = drawn;
        (job.hosts, job.servers, job.system, job.op) = (hosts, servers, system, op);
        (job.payload_bytes, job.window, job.reliable) = (payload_bytes, window, reliable);
    }
}

/// Steps of some jobs cost their hosts some time, short beside any patience: a run has a few hundred steps at most.
fn step_costs(draw: &mut Draw, jobs: &mut [JobRecipe]) {
    for job in jobs {
        let costs = draw.percent(20);
        let drawn = StepParameters { step_overhead_ps: draw.scaled(1_000, 1_000_000), step_deviation_ps: draw.between(0, 300_000) };
        if let Some(steps) = job.system.steps_mut().filter(|_| costs) {
            *steps = drawn;
        }
    }
}

/// In some jobs of systems that choose which switches aggregate (ATP, A2TP) not all do, or none.
fn some_forward_only(draw: &mut Draw, jobs: &mut [JobRecipe]) {
    for job in jobs {
        let count = if draw.percent(50) { UNLIMITED } else { draw.between(0, 4) as u32 };
        job.system = job.system.limit_aggregating(count);
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
    let system = first_system(draw, &mut op, only);
    JobRecipe {
        hosts: draw.sample(map.hosts(), workers as usize).into_iter().map(NodeId).collect(),
        servers: Vec::new(),
        system,
        op,
        numbers: Numbers::Whole,
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

/// Some jobs that sum floats do so as integers. What a packet of theirs does not hold is drawn in vain.
fn numbers(draw: &mut Draw, jobs: &mut [JobRecipe]) {
    for job in jobs {
        let is_wanted = draw.percent(35);
        let system = &job.system;
        let sums = job.op.dtype.is_float() && job.op.operator == Operator::Sum && job.kinds.is_empty();
        // Headers of NetReduce's messages take whole elements, and a cell is as long as a packet.
        let has_room = !matches!(system, System::NetReduce(_) | System::Machines(_));
        let sums_all = system.sparsity().is_none() && !system.fixed_point() && !system.goes_on_without_workers();
        if is_wanted && sums && sums_all && has_room {
            job.numbers = Numbers::OrderFree;
            if job.cells().is_none() {
                job.numbers = Numbers::Whole;
            }
        }
    }
}

/// What the operations of a job are, where its system does more than allreduces.
fn kinds(draw: &mut Draw, job: &mut JobRecipe) {
    // Groups of pods have theirs.
    if !job.system.offers(CollectiveKind::ReduceScatter) || !job.kinds.is_empty() {
        return;
    }
    // A job of a recipe has one operator: a mean would divide what is only copied, and fixed point is for what is added up.
    let may_copy = job.system.offers(CollectiveKind::AllGather) && job.op.operator != Operator::Avg;
    if draw.percent(40) {
        return;
    }
    let workers = job.hosts.len() as u64;
    let most = match may_copy {
        true if job.system.offers(CollectiveKind::AllToAll { workers: workers as u32 }) => 6,
        true => 5,
        false => 2,
    };
    let mut kind = || {
        let root = Rank(draw.between(0, workers - 1) as u32);
        match draw.between(0, most) {
            0 => CollectiveKind::Allreduce,
            1 => CollectiveKind::Reduce { root },
            2 => CollectiveKind::ReduceScatter,
            3 => CollectiveKind::Broadcast { root },
            4 => CollectiveKind::AllGather,
            5 => CollectiveKind::Barrier,
            _ => CollectiveKind::AllToAll { workers: workers as u32 },
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
            let operations = job.operations().0.len() as u64;
            let load = job.system.load(&JobSize {
                workers: job.hosts.len() as u64,
                packets: job.packets(),
                operations,
                window: u64::from(job.window.next_power_of_two()),
                payload_bytes: job.payload_bytes,
                element_bytes: job.element_bytes(),
                reliable: job.reliable,
            });
            // With fixed point, exponents take a round of each operation.
            let rounds = job.packets().div_ceil(load.window) + 2 * operations;
            let noise_ps = if job.noise_probability > 0.0 { job.noise_delay.seldom_longer().as_ps() } else { 0 };
            scale.duration_ps =
                scale.duration_ps.max(time(2 * job.packets() * load.incast, job.payload_bytes) + (rounds + load.steps) * round_trip);
            queued_ps += time(load.queued, job.payload_bytes) + noise_ps * 4 + load.held_ps;
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
