//! Where nothing is lost nobody waits for a timer: a run takes the same time whatever the timeouts and the patience are. Through all systems that
//! have such a thing, long and short vectors, small and large windows.

use fanin_check::{Recipe, run, violations};
use fanin_core::{Census, Duration, Instant, NodeId};
use fanin_sim::RunResult;
use fanin_systems::{
    A2tpParameters, AlgorithmRule, AtpParameters, CanaryParameters, CongestionParameters, CongestionRule, FailureRule, MachinesParameters,
    NetReduceParameters, PanamaParameters, PsParameters, RinaOnward, RinaParameters, RinaPartitions, RinaResults, RingOrder,
    RingParameters, SharpMode, SharpParameters, StepParameters, SwitchMlParameters, System, UNLIMITED,
};

/// First and shortest timeout, and patience. The first is above every round trip here.
const TIMES: [(Duration, Duration, Duration); 6] = [
    (Duration::from_ms(2), Duration::from_us(200), Duration::from_ms(200)),
    (Duration::from_ms(2), Duration::from_ms(1), Duration::from_ms(500)),
    (Duration::from_ms(20), Duration::from_ms(20), Duration::from_ms(1_000)),
    (Duration::from_ms(500), Duration::from_ms(5), Duration::from_ms(10_000)),
    (Duration::from_ms(500), Duration::from_ms(500), Duration::from_ms(10_000)),
    (Duration::from_ms(10_000), Duration::from_ms(10_000), Duration::from_ms(300_000)),
];

/// All systems, in all the ways in which they send differently.
pub fn systems() -> Vec<System> {
    let ring = |barrier| System::Ring(RingParameters { order: RingOrder::Host, barrier, steps: StepParameters::NONE });
    let rina = |aggregating, full_speed_bps| System::Rina(RinaParameters { aggregating, full_speed_bps, ..RinaParameters::default() });
    let machines = |algorithm, congestion| {
        let congestion = CongestionParameters { congestion, ..CongestionParameters::default() };
        System::Machines(MachinesParameters { algorithm, congestion, ..MachinesParameters::default() })
    };
    let netreduce = |window_messages, congestion| {
        let congestion = CongestionParameters { congestion, ..CongestionParameters::default() };
        System::NetReduce(NetReduceParameters { window_messages, congestion, ..NetReduceParameters::default() })
    };
    let canary = |failure, timeout_adaptive| System::Canary(CanaryParameters { failure, timeout_adaptive, ..CanaryParameters::default() });
    let sharp = |mode| System::Sharp(SharpParameters { mode, ..SharpParameters::default() });
    let atp = |aggregating, aggregators, overflow| {
        System::Atp(AtpParameters { aggregating, aggregators, fixed_point: overflow > 0.0, overflow, ..AtpParameters::default() })
    };
    vec![
        ring(false),
        ring(true),
        System::tree(1),
        System::tree(3),
        canary(FailureRule::AllAsked, false),
        canary(FailureRule::AllAsked, true),
        canary(FailureRule::Hold, false),
        System::SwitchMl(SwitchMlParameters { fixed_point: false }),
        System::SwitchMl(SwitchMlParameters { fixed_point: true }),
        atp(UNLIMITED, 450, 0.0),
        atp(UNLIMITED, 8, 0.0),
        atp(1, 450, 0.2),
        atp(0, 450, 0.0),
        System::a2tp(),
        System::A2tp(A2tpParameters { aggregators: 8, ..A2tpParameters::default() }),
        System::Panama(PanamaParameters { trees: 1, window_initial: 1 }),
        System::Panama(PanamaParameters { trees: 2, window_initial: 16 }),
        sharp(SharpMode::LowLatency),
        sharp(SharpMode::Streaming),
        netreduce(1, CongestionRule::None),
        netreduce(2, CongestionRule::None),
        netreduce(2, CongestionRule::Dcqcn),
        machines(AlgorithmRule::FlatRing, CongestionRule::None),
        machines(AlgorithmRule::FlatRing, CongestionRule::Dcqcn),
        machines(AlgorithmRule::ParallelRing, CongestionRule::None),
        machines(AlgorithmRule::Tencent, CongestionRule::None),
        machines(AlgorithmRule::ParallelNetReduce, CongestionRule::None),
        rina(0, 0),
        rina(1, 0),
        rina(2, 0),
        rina(UNLIMITED, 0),
        rina(0, 20_000_000_000),
        rina(UNLIMITED, 20_000_000_000),
        rina(2, 1_000_000_000),
        System::Rina(RinaParameters {
            aggregating: 2,
            partitions: RinaPartitions::Balanced,
            results: RinaResults::First,
            onward: RinaOnward::Agent,
            ..RinaParameters::default()
        }),
        System::ps(),
        System::Ps(PsParameters { shards: 2, ..PsParameters::default() }),
    ]
    .into_iter()
    .chain(System::all().into_iter().filter(|system| system.sparsity().is_some()).map(|system| system.at_density(0.05)))
    .collect()
}

/// An operation and then a second one on two leaves of four and two spines; queues that hold everything.
pub fn recipe(mut system: System, elements: u64, window: u32, marks: bool) -> Recipe {
    // A message has a packet or more.
    match &mut system {
        System::NetReduce(parameters) => parameters.window_messages = parameters.window_messages.min(window),
        System::Machines(parameters) => parameters.window_messages = parameters.window_messages.min(window),
        _ => {}
    }
    let mut recipe = Recipe::fat_tree(system, 3, 4, elements);
    recipe.network.queue_bytes = 16 << 20;
    recipe.network.nic_queue_bytes = 1 << 20;
    if marks {
        recipe.network.ecn_mark_bytes = 4 << 10;
    }
    let job = &mut recipe.jobs[0];
    (job.elements, job.window) = (vec![elements, elements], window);
    if has_servers(system) {
        job.servers = vec![NodeId(11)];
        job.hosts.pop();
        job.start.pop();
    }
    recipe
}

/// Runs it with census weights; sparse vectors have elements.
pub fn run_once(recipe: &Recipe) -> RunResult {
    let is_sparse = recipe.jobs[0].system.sparsity().is_some();
    let result = if is_sparse { run::<[u8]>(recipe, |_| {}) } else { run::<Census>(recipe, |_| {}) };
    result.unwrap_or_else(|words| panic!("{words}\n{recipe}"))
}

/// Whether a system's servers have hosts of their own; shards are beside workers.
pub fn has_servers(system: System) -> bool {
    let is_sharded = matches!(system, System::Ps(parameters) if parameters.shards != PsParameters::default().shards);
    system.servers() > 0 && !is_sharded
}

/// When the last worker ended, for all times; what was lost or sent again is said.
fn ends(system: System, elements: u64, window: u32, marks: bool) -> Vec<(Duration, u64)> {
    let end_with = |(rto_initial, rto_min, patience): (Duration, Duration, Duration)| {
        let mut recipe = recipe(system, elements, window, marks);
        let job = &mut recipe.jobs[0];
        (job.rto_initial, job.rto_min, job.patience) = (rto_initial, rto_min, patience);
        (recipe.time_limit, recipe.drain) = (Duration::from_ms(200_000), false);
        let result = run_once(&recipe);
        assert_eq!(violations(&recipe, &result), [""; 0], "{recipe}");
        let ends = result.jobs[0].workers.iter().map(|worker| worker.operations[1].ended.unwrap_or_else(|| panic!("no end\n{recipe}")));
        let lost: u64 = result.links.iter().map(|link| link.packets_dropped).sum();
        (ends.max().expect("a worker").since(Instant::ZERO), lost + result.counters.retransmitted_total())
    };
    TIMES.into_iter().map(end_with).collect()
}

#[test]
fn a_run_without_loss_takes_the_same_time_whatever_the_timeouts_are() {
    let mut late = Vec::new();
    for system in systems() {
        for (elements, windows) in [(1, &[1, 16][..]), (100, &[1, 2, 64]), (2_000, &[1, 2, 3, 7, 16, 256]), (12_000, &[4, 64])] {
            for &window in windows {
                for marks in [false, true] {
                    let ends = ends(system, elements, window, marks);
                    let (least, most) = (ends.iter().min().unwrap().0, ends.iter().max().unwrap().0);
                    if most.as_ps() - least.as_ps() > least.as_ps() / 100 {
                        late.push(format!("{system:?}, {elements} elements, window {window}, marks {marks}: {ends:?}"));
                    }
                }
            }
        }
    }
    assert!(late.is_empty(), "{} depend on timeouts:\n{}", late.len(), late.join("\n"));
}
