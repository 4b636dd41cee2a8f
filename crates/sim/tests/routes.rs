//! What balancers and routings are for: CONGA where ways differ, DRILL in bursts, ways round and virtual channels in dragonflies.

use fanin_core::{DropReason, Duration, Instant, Length, NodeId};
use fanin_sim::faults::{FaultPlan, KindSet, LinkFault, LinkSelector, TimedFault};
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
use fanin_sim::metrics::Ended;
use fanin_sim::routing::{Balancer, Conga};
use fanin_sim::scenario::Scenario;
use fanin_sim::shape::{WiredCable, Wiring};
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_sim::workloads::Nobody;
use fanin_sim::{LinkSpeed, NetworkConfig, RunResult, SetupError, Shape, Simulation, Topology};

const PAYLOAD: u32 = 1024;
const FRAME: u64 = PAYLOAD as u64 + 57;
const US: u64 = 1_000_000;
const MODELS: [SwitchModel; 2] = [SwitchModel::OutputQueued, SwitchModel::InputQueued];
const CONGA: Balancer = Balancer::Conga(Conga { gap_ps: 500 * US, rate_ps: 160 * US, aging_ps: 10_000 * US });

fn speed(gbps: u64) -> LinkSpeed {
    LinkSpeed { bits_per_second: gbps * 1_000_000_000, latency: Duration::from_ns(300) }
}

fn network(shape: Shape, balancer: Balancer) -> NetworkConfig {
    NetworkConfig {
        shape,
        queue_bytes: 64 * FRAME,
        lossless: None,
        ecn_mark_bytes: u64::MAX,
        nic_queue_bytes: 8 * FRAME,
        frame_overhead_bytes: 57,
        frame_bytes_min: 84,
        collective_balancer: balancer,
        background_balancer: balancer,
        trimming: None,
    }
}

fn traffic(hosts: impl IntoIterator<Item = u32>, pattern: Pattern, load: f64) -> TrafficConfig {
    TrafficConfig {
        hosts: hosts.into_iter().map(NodeId).collect(),
        pattern,
        message_bytes: 64 * u64::from(PAYLOAD),
        payload_bytes: PAYLOAD,
        load,
        congestion: None,
        messages: None,
        start: Instant::ZERO,
    }
}

/// Somebody who sends to somebody else all the time.
fn pair(from: u32, to: u32, load: f64) -> TrafficConfig {
    traffic([to, from], Pattern::Incast { receivers: 1 }, load)
}

fn scenario(network: NetworkConfig, traffic: Vec<TrafficConfig>, us: u64) -> Scenario {
    Scenario {
        network,
        jobs: Vec::new(),
        traffic,
        flows: Vec::new(),
        limits: Vec::new(),
        faults: FaultPlan::default(),
        seed: 5,
        time_limit: Duration::from_us(us),
        drain: false,
    }
}

fn try_run(scenario: Scenario) -> Result<RunResult, SetupError> {
    let topology = Topology::new(&scenario.network.shape)?;
    Ok(Simulation::<Nobody, Length>::new(topology, scenario, Vec::new(), &[])?.run())
}

fn run(scenario: Scenario) -> RunResult {
    let result = try_run(scenario).expect("a scenario");
    assert_eq!(result.verdict.wrong, 0);
    result
}

/// Two leaves of 16 hosts and two spines, one of which is joined to the second leaf by a quarter of the rate.
fn lopsided() -> Shape {
    let (hosts, leaves, spines) = (32, [32, 33], [34, 35]);
    let mut cables: Vec<WiredCable> =
        (0..hosts).map(|host| WiredCable { a: host, b: leaves[host as usize / 16], speed: speed(10), cost: 1 }).collect();
    for (leaf, spine, gbps) in [(0, 0, 40), (0, 1, 40), (1, 0, 40), (1, 1, 10)] {
        cables.push(WiredCable { a: leaves[leaf], b: spines[spine], speed: speed(gbps), cost: 1 });
    }
    let named = |name: &str, count: u32| (0..count).map(|number| format!("{name}{number}")).collect();
    Shape::Wired(Wiring { hosts: named("h", 32), switches: named("s", 4), cables, carriers: Vec::new() }.into())
}

/// CONGA (Alizadeh et al., SIGCOMM 2014, 2.4): where ways differ behind the next switch, equal parts overload the narrow one.
#[test]
fn conga_sees_that_a_way_is_narrow_behind_the_spine() {
    // 28 Gb/s go from one leaf to the other; equal parts are 14 for the link of 10. Something comes back, with feedback on it.
    let pairs = || (0..16).flat_map(|host| [pair(host, 16 + host, 0.175), pair(16 + host, host, 0.1)]).collect();
    let lost = |balancer: Balancer| {
        let result = run(scenario(network(lopsided(), balancer), pairs(), 20_000));
        let sent = result.links.iter().filter(|link| link.from < 16).map(|link| link.packets).sum::<u64>();
        result.counters.dropped_total() as f64 / sent as f64
    };
    let (ecmp, letflow, conga) = (lost(Balancer::Ecmp), lost(Balancer::Flowlet { gap_ps: 500 * US }), lost(CONGA));
    assert!(ecmp > 0.05 && letflow > 0.05, "ECMP loses {ecmp}, LetFlow {letflow}");
    assert!(conga < ecmp / 20.0, "CONGA loses {conga}, ECMP {ecmp}");
}

#[test]
fn balancers_are_refused_where_they_mean_nothing() {
    let said =
        |shape: Shape, balancer: Balancer| try_run(scenario(network(shape, balancer), Vec::new(), 1)).expect_err("a refusal").to_string();
    let tree = || Shape::FatTree3 { ports: 4, host_link: speed(100), fabric_link: speed(100) };
    assert_eq!(
        said(tree(), CONGA),
        "network.routing = conga: expected leaves, which have hosts, and spines, each joined only to the others; aggregation0 and core0 are joined"
    );
    assert_eq!(said(tree(), Balancer::Ugal), "network.routing = ugal: expected a dragonfly, which has groups to go by way of");
    assert_eq!(
        said(tree(), Balancer::Drill { samples: 0, memory: 9 }),
        "network.routing = DRILL(0, 9): expected 1 to 8 samples and at most 8 remembered"
    );
    let channels = |shape: Shape, channels: u8| {
        let network = NetworkConfig { shape, ..lossless(Balancer::Ecmp, SwitchModel::OutputQueued, 1, channels) };
        try_run(scenario(network, Vec::new(), 1)).expect_err("a refusal").to_string()
    };
    assert_eq!(channels(tree(), 2), "network.lossless.channels = 2: expected 1: only dragonflies have virtual channels");
    assert_eq!(channels(dragonfly(), 0), "network.lossless.channels = 0: expected 1 to 8");
}

/// DRILL (Ghorbani et al., SIGCOMM 2017, 3.2.2): a second choice and a memory keep queues short.
#[test]
fn drill_keeps_queues_before_spines_shorter_than_random_ways_do() {
    let shape =
        || Shape::FatTree2 { leaves: 4, hosts_per_leaf: 8, spines: 8, parallel_links: 1, host_link: speed(100), fabric_link: speed(100) };
    let longest = |balancer: Balancer| {
        let mut network = network(shape(), balancer);
        network.queue_bytes = 1 << 30;
        // Everybody sends at four fifths of his rate to hosts of other leaves, mostly, which changes with each message.
        let result = run(scenario(network, vec![traffic(0..32, Pattern::Derangement, 0.8)], 400));
        assert_eq!(result.counters.dropped_total(), 0);
        let up = result.links.iter().filter(|link| (32..36).contains(&link.from) && link.to >= 36);
        let peaks: Vec<u64> = up.map(|link| link.queue_bytes_peak / FRAME).collect();
        peaks.iter().sum::<u64>() as f64 / peaks.len() as f64
    };
    let (random, one_and_one, two_and_one) =
        (longest(Balancer::Random), longest(Balancer::Drill { samples: 1, memory: 1 }), longest(Balancer::Drill { samples: 2, memory: 1 }));
    assert!(two_and_one < random / 2.0, "the longest queues are {two_and_one} packets with DRILL(2, 1), {random} by random ways");
    assert!(two_and_one <= one_and_one, "{two_and_one} with two samples, {one_and_one} with one");
}

const ROUTERS: u32 = 4;
const GROUPS: u32 = 9;
const PER_ROUTER: u32 = 2;
const HOSTS: u32 = GROUPS * ROUTERS * PER_ROUTER;

/// a = 2p = 2h, as the paper balances it, all links alike.
fn dragonfly() -> Shape {
    let (host_link, local_link, global_link) = (speed(100), speed(100), speed(100));
    let (routers, groups, global_links, hosts_per_router) = (ROUTERS, GROUPS, 2, PER_ROUTER);
    Shape::Dragonfly { routers, groups, global_links, hosts_per_router, host_link, local_link, global_link }
}

fn lossless(balancer: Balancer, model: SwitchModel, buffer_frames: u64, channels: u8) -> NetworkConfig {
    let (input_bytes, output_bytes) = (buffer_frames * FRAME, buffer_frames * FRAME);
    let lossless = LosslessConfig {
        model,
        input_bytes,
        output_bytes,
        arbitration: Arbitration::default(),
        made_packets: MadePackets::default(),
        channels,
    };
    NetworkConfig { lossless: Some(lossless), ..network(dragonfly(), balancer) }
}

/// Each host sends to the one of its number in the next group: p a hosts want one link.
fn to_next_group() -> Vec<TrafficConfig> {
    let each = ROUTERS * PER_ROUTER;
    let forever = |host| TrafficConfig { message_bytes: 1 << 40, ..pair(host, (host + each) % HOSTS, 1.0) };
    (0..HOSTS).map(forever).collect()
}

/// Each host sends to everybody in turn at random, several messages at a time.
fn to_anybody(load: f64) -> Vec<TrafficConfig> {
    (0..4).map(|_| traffic(0..HOSTS, Pattern::Uniform, load / 4.0)).collect()
}

/// What has arrived, as a share of what hosts can send.
fn accepted(result: &RunResult) -> f64 {
    let bytes = result.background_bytes / u64::from(PAYLOAD) * FRAME;
    bytes as f64 * 80.0 / result.end.as_ps() as f64 / f64::from(HOSTS)
}

/// Links that a packet crosses, on average.
fn hops(result: &RunResult) -> f64 {
    result.packet_hops as f64 / (result.background_bytes / u64::from(PAYLOAD)) as f64
}

/// Kim et al., ISCA 2008, 4.1: a channel for each hop class, 2 for ways of least cost and 3 for ways by another group. With one fewer the
/// detector names a circle.
#[test]
fn with_a_channel_for_each_class_a_dragonfly_does_not_deadlock() {
    for model in MODELS {
        for (balancer, enough) in [(Balancer::Random, 2), (Balancer::Ecmp, 2), (Balancer::Valiant, 3), (Balancer::Ugal, 3)] {
            let with = |channels| run(scenario(lossless(balancer, model, 2, channels), to_next_group(), 200));
            for channels in 1..enough {
                let few = with(channels);
                assert_eq!(few.ended, Ended::Deadlock, "{model:?} {balancer:?}, {channels} channels");
                let circle = &few.deadlock;
                assert!(circle.len() >= 3, "{circle:?}");
                for (place, (_, to)) in circle.iter().enumerate() {
                    assert_eq!(*to, circle[(place + 1) % circle.len()].0, "the circle is closed: {circle:?}");
                }
            }
            let several = with(enough);
            assert_eq!(several.ended, Ended::TimeLimit, "{model:?} {balancer:?}: {:?}", several.deadlock);
            assert_eq!(several.counters.dropped_total(), 0);
        }
    }
}

#[test]
fn channels_share_their_cable_and_no_more() {
    for model in MODELS {
        let result = run(scenario(lossless(Balancer::Valiant, model, 16, 3), to_next_group(), 200));
        assert_eq!(result.links.len(), Topology::new(&dragonfly()).expect("a network").links.len());
        let most = result.end.as_ps() / 80;
        for link in &result.links {
            assert!(link.bytes <= most + FRAME, "{model:?}: {} to {} has sent {} of {most} bytes", link.from, link.to, link.bytes);
        }
        let busy = |link: &&fanin_sim::metrics::LinkResult| link.from >= HOSTS && link.to >= HOSTS && link.utilization > 0.7;
        assert!(result.links.iter().filter(busy).count() > 40, "{model:?}");
    }
}

/// Kim et al., ISCA 2008, 4.2 and Fig. 8: a p hosts share one link by ways of least cost, which is 1/8 here; Valiant's ways cross two links
/// between groups, of which there is one a host, which is 1/2 at most; UGAL adds what can go directly.
#[test]
fn ways_round_carry_what_all_wants_one_link() {
    for model in MODELS {
        let [direct, valiant, ugal] = [Balancer::Random, Balancer::Valiant, Balancer::Ugal]
            .map(|way| accepted(&run(scenario(lossless(way, model, 32, 3), to_next_group(), 300))));
        assert!((0.12..=0.1251).contains(&direct), "{model:?}: {direct}");
        assert!((0.35..=0.5).contains(&valiant), "{model:?}: {valiant}");
        assert!((valiant..=0.625).contains(&ugal), "{model:?}: {ugal} by UGAL, {valiant} by Valiant");
    }
}

/// The same, 5.1: where traffic is even, ways round are a detour.
#[test]
fn for_even_traffic_direct_ways_are_better() {
    let with = |way, load| run(scenario(lossless(way, SwitchModel::OutputQueued, 32, 3), to_anybody(load), 300));
    let ways = [Balancer::Random, Balancer::Valiant, Balancer::Ugal];
    let [direct, valiant, ugal] = ways.map(|way| accepted(&with(way, 1.0)));
    assert!(valiant < 0.55 && direct > 1.1 * valiant && ugal > 1.1 * valiant, "{direct} directly, {valiant} by Valiant, {ugal} by UGAL");
    // Two links of hosts, and one or two between groups.
    let [direct, valiant, ugal] = ways.map(|way| hops(&with(way, 0.3)));
    assert!(direct < 4.5 && valiant > direct + 1.3 && ugal < direct + 0.5, "{direct} directly, {valiant} by Valiant, {ugal} by UGAL");
}

/// Without credits a full link pushes nothing back; that of the first router is full often enough for UGAL-L to go round.
#[test]
fn ways_round_carry_it_where_queues_drop_as_well() {
    let at_load = || to_next_group().into_iter().map(|traffic| TrafficConfig { load: 0.3, ..traffic }).collect();
    let with = |way| accepted(&run(scenario(network(dragonfly(), way), at_load(), 200)));
    let [direct, valiant, ugal] = [Balancer::Random, Balancer::Valiant, Balancer::Ugal].map(with);
    assert!(direct < 0.126 && valiant > 0.27 && ugal > 0.27, "{direct} directly, {valiant} by Valiant, {ugal} by UGAL");
}

/// Cables and a router fail while packets of all classes wait, and packets are repeated on links: all that is not lost arrives, once the
/// links are back.
#[test]
fn channels_fail_and_come_back_with_their_cable() {
    let at = |us| Instant::ZERO + Duration::from_us(us);
    for model in MODELS {
        let mut scenario = scenario(lossless(Balancer::Ugal, model, 2, 3), to_anybody(1.0), 20_000);
        scenario.traffic.iter_mut().for_each(|traffic| traffic.messages = Some(8));
        let (a, b) = (NodeId(HOSTS), NodeId(HOSTS + 1));
        scenario.faults.timed = vec![
            TimedFault::LinkDown { a, b, from: at(10), until: at(30) },
            TimedFault::SwitchDown { switch: NodeId(HOSTS + 9), from: at(15), until: at(40) },
        ];
        let (links, kinds, delay_max) = (LinkSelector::Fabric, KindSet::ALL, Duration::from_us(2));
        scenario.faults.links =
            vec![LinkFault { links, kinds, loss: 0.0, corruption: 0.0, duplication: 0.01, reordering: 0.05, delay_max }];
        let result = run(scenario);
        assert_eq!(result.ended, Ended::TrafficDone, "{model:?}: {:?}", result.deadlock);
        let lost = result.counters.dropped(DropReason::Down);
        assert!(lost > 0 && lost == result.counters.dropped_total(), "{model:?}: {lost} of {}", result.counters.dropped_total());
        let sent = u64::from(HOSTS) * 4 * 8 * 64;
        assert_eq!(result.background_bytes / u64::from(PAYLOAD), sent - lost, "{model:?}");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for balancer in [Balancer::Valiant, Balancer::Ugal, Balancer::Drill { samples: 2, memory: 1 }] {
        let once = || run(scenario(lossless(balancer, SwitchModel::InputQueued, 4, 3), to_anybody(0.6), 60));
        assert_eq!(once(), once(), "{balancer:?}");
    }
}
