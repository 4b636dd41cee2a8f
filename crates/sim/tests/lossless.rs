//! Lossless networks: nothing is lost, congestion spreads backwards, capacity is used, and a deadlock is named.

use fanin_core::{Duration, Instant, Length, NetworkMap, NodeId};
use fanin_sim::faults::FaultPlan;
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
use fanin_sim::metrics::Ended;
use fanin_sim::routing::Balancer;
use fanin_sim::scenario::Scenario;
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_sim::workloads::Nobody;
use fanin_sim::{LinkSpeed, NetworkConfig, RunResult, Shape, Simulation, Topology};

const FRAME: u64 = 1024 + 57;
const LINK: LinkSpeed = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
const ARBITRATIONS: [Arbitration; 3] = [Arbitration::FirstCome, Arbitration::RoundRobin, Arbitration::OldestFirst];
const MODELS: [SwitchModel; 2] = [SwitchModel::OutputQueued, SwitchModel::InputQueued];

fn network(shape: Shape, model: SwitchModel, buffer_bytes: u64) -> NetworkConfig {
    NetworkConfig {
        shape,
        queue_bytes: 0,
        lossless: Some(LosslessConfig {
            model,
            input_bytes: buffer_bytes,
            output_bytes: buffer_bytes,
            arbitration: Arbitration::default(),
            made_packets: MadePackets::default(),
            channels: 1,
        }),
        ecn_mark_bytes: u64::MAX,
        nic_queue_bytes: 8 * FRAME,
        frame_overhead_bytes: 57,
        frame_bytes_min: 84,
        collective_balancer: Balancer::Ecmp,
        background_balancer: Balancer::Ecmp,
        trimming: None,
    }
}

fn traffic(hosts: impl IntoIterator<Item = u32>, pattern: Pattern, messages: u64) -> TrafficConfig {
    TrafficConfig {
        hosts: hosts.into_iter().map(NodeId).collect(),
        pattern,
        message_bytes: 64 * 1024,
        payload_bytes: 1024,
        load: 1.0,
        congestion: None,
        messages: Some(messages),
        start: Instant::ZERO,
    }
}

fn scenario(network: NetworkConfig, traffic: Vec<TrafficConfig>) -> Scenario {
    let time_limit = Duration::from_ms(20);
    Scenario {
        network,
        jobs: Vec::new(),
        traffic,
        flows: Vec::new(),
        limits: Vec::new(),
        faults: FaultPlan::default(),
        seed: 7,
        time_limit,
        drain: false,
    }
}

fn run(topology: Topology, scenario: Scenario) -> RunResult {
    Simulation::<Nobody, Length>::new(topology, scenario, Vec::new(), &[]).expect("a scenario").run()
}

fn run_shape(network: NetworkConfig, traffic: Vec<TrafficConfig>) -> RunResult {
    run(Topology::new(&network.shape).expect("a network"), scenario(network, traffic))
}

fn fat_tree() -> Shape {
    Shape::FatTree2 { leaves: 4, hosts_per_leaf: 4, spines: 2, parallel_links: 1, host_link: LINK, fabric_link: LINK }
}

#[test]
fn an_incast_loses_nothing_and_fills_the_receivers_link() {
    for model in MODELS {
        let network = network(Shape::Star { hosts: 9, link: LINK }, model, 4 * FRAME);
        let result = run_shape(network, vec![traffic(0..9, Pattern::Incast { receivers: 1 }, 4)]);
        assert_eq!(result.ended, Ended::TrafficDone, "{model:?}");
        assert_eq!(result.counters.dropped_total(), 0, "{model:?}");
        assert_eq!(result.background_bytes, 8 * 4 * 64 * 1024, "{model:?}");
        let down = result.links.iter().find(|link| link.to == 0).expect("the receiver's link");
        assert!(down.utilization > 0.98, "{model:?}: {}", down.utilization);
    }
}

#[test]
fn senders_of_an_incast_get_equal_shares() {
    for model in MODELS {
        let mut config = traffic(0..5, Pattern::Incast { receivers: 1 }, u64::MAX);
        config.messages = None;
        let network = network(Shape::Star { hosts: 5, link: LINK }, model, 8 * FRAME);
        let mut scenario = scenario(network, vec![config]);
        scenario.time_limit = Duration::from_us(500);
        let topology = Topology::new(&scenario.network.shape).expect("a network");
        let result = run(topology, scenario);
        let sent: Vec<u64> = result.links.iter().filter(|link| link.from > 0 && link.from < 5).map(|link| link.bytes).collect();
        let (least, most) = (sent.iter().min().unwrap(), sent.iter().max().unwrap());
        assert!(*most as f64 <= *least as f64 * 1.1, "{model:?}: {sent:?}");
    }
}

/// Bytes that each of the hosts from 1 on has sent to host 0 in 500 us without a pause, in packets of so many bytes.
fn shares(arbitration: Arbitration, buffer_bytes: u64, payload_bytes: &[u32]) -> Vec<f64> {
    let hosts = payload_bytes.len() as u32 + 1;
    let mut network = network(Shape::Star { hosts, link: LINK }, SwitchModel::InputQueued, buffer_bytes);
    let lossless = network.lossless.as_mut().expect("a lossless network");
    (lossless.arbitration, lossless.output_bytes) = (arbitration, FRAME);
    let flood = |(sender, &payload_bytes): (u32, &u32)| {
        let config = traffic([0, sender], Pattern::Incast { receivers: 1 }, 1);
        TrafficConfig { message_bytes: 1 << 40, payload_bytes, messages: None, ..config }
    };
    let mut scenario = scenario(network, (1..).zip(payload_bytes).map(flood).collect());
    scenario.time_limit = Duration::from_us(500);
    let result = run(Topology::new(&scenario.network.shape).expect("a network"), scenario);
    assert_eq!(result.counters.dropped_total(), 0, "{arbitration:?}");
    let down = result.links.iter().find(|link| link.to == 0).expect("the receiver's link");
    assert!(down.utilization > 0.98, "{arbitration:?}: {}", down.utilization);
    result.links.iter().filter(|link| (1..hosts).contains(&link.from)).map(|link| link.bytes as f64).collect()
}

#[test]
fn each_arbitration_is_fair_to_saturated_inputs() {
    for arbitration in ARBITRATIONS {
        for buffer_bytes in [2 * FRAME, 8 * FRAME, 32 * FRAME] {
            let sent = shares(arbitration, buffer_bytes, &[1024; 5]);
            let (least, most) = sent.iter().fold((f64::MAX, 0f64), |(least, most), &bytes| (least.min(bytes), most.max(bytes)));
            assert!(most <= least * 1.03, "{arbitration:?}, {buffer_bytes} bytes: {sent:?}");
        }
    }
}

#[test]
fn inputs_take_turns_by_packets_and_the_oldest_packet_first_makes_bytes_equal() {
    // By age all packets wait equally long, so of equal buffers equal numbers of bytes leave in that time, whatever the packets' length.
    let buffer_bytes = 128 * FRAME;
    let ratio = |arbitration| {
        let sent = shares(arbitration, buffer_bytes, &[1024, 128]);
        // What still stands in the buffers, which are full, has not been served.
        let served = [0, 1].map(|sender: usize| sent[sender] - buffer_bytes as f64);
        served[0] / served[1]
    };
    let by_packets = FRAME as f64 / (128 + 57) as f64;
    let [first_come, round_robin, oldest_first] = ARBITRATIONS.map(ratio);
    assert!((first_come / by_packets - 1.0).abs() < 0.05, "{first_come}");
    assert!((round_robin / by_packets - 1.0).abs() < 0.05, "{round_robin}");
    assert!((oldest_first - 1.0).abs() < 0.15, "{oldest_first}");
}

#[test]
fn congestion_spreads_to_a_flow_that_shares_no_bottleneck() {
    // Hosts 4, 8 and 12 flood host 0 through four spines, none of whose links is full; host 9 sends to host 1, whose link is free, too.
    let share = |lossless: bool| {
        let shape = Shape::FatTree2 { leaves: 4, hosts_per_leaf: 4, spines: 4, parallel_links: 1, host_link: LINK, fabric_link: LINK };
        let mut network = network(shape, SwitchModel::InputQueued, 4 * FRAME);
        network.background_balancer = Balancer::Random;
        if !lossless {
            (network.lossless, network.queue_bytes) = (None, 4 * FRAME);
        }
        let mut flood = traffic([0, 4, 8, 12], Pattern::Incast { receivers: 1 }, 1);
        flood.messages = None;
        let mut victim = traffic([1, 9], Pattern::Incast { receivers: 1 }, 1);
        victim.messages = None;
        let mut scenario = scenario(network, vec![flood, victim]);
        scenario.time_limit = Duration::from_us(400);
        let topology = Topology::new(&scenario.network.shape).expect("a network");
        let result = run(topology, scenario);
        let received = result.links.iter().find(|link| link.to == 1).expect("the victim's link");
        received.utilization
    };
    let (lossy, lossless) = (share(false), share(true));
    assert!(lossless < 0.6 * lossy, "the victim gets {lossless} of its link, {lossy} where queues drop");
}

#[test]
fn uniform_traffic_is_delivered_whole_with_buffers_of_one_frame() {
    for model in MODELS {
        let network = network(fat_tree(), model, FRAME);
        let result = run_shape(network, vec![traffic(0..16, Pattern::Uniform, 10)]);
        assert_eq!(result.ended, Ended::TrafficDone, "{model:?}");
        assert_eq!(result.background_bytes, 16 * 10 * 64 * 1024, "{model:?}");
        assert_eq!(result.counters.dropped_total(), 0, "{model:?}");
        assert_eq!(result.verdict.wrong, 0, "{model:?}");
    }
}

/// Five switches in a circle, a host on each: shortest paths of two hops run both ways round, so buffers can wait for each other.
fn circle() -> Topology {
    let mut map = NetworkMap::new(5, &[1; 5]);
    for host in 0..5 {
        map.join(NodeId(host), NodeId(5 + host));
    }
    for switch in 0..5 {
        map.join(NodeId(5 + switch), NodeId(5 + (switch + 1) % 5));
    }
    Topology::from_map(map, (0..5).map(|switch| format!("switch{switch}")).collect(), |_, _| LINK)
}

#[test]
fn a_deadlock_is_found_and_its_circle_named() {
    for model in MODELS {
        let network = network(Shape::Star { hosts: 5, link: LINK }, model, FRAME);
        let mut config = traffic(0..5, Pattern::Uniform, 1);
        config.messages = None;
        let result = run(circle(), scenario(network, vec![config]));
        assert_eq!(result.ended, Ended::Deadlock, "{model:?}");
        assert_eq!(result.deadlock.len(), 5, "{model:?}: {:?}", result.deadlock);
        let mut at = result.deadlock[0].0.clone();
        for (from, to) in &result.deadlock {
            assert_eq!(*from, at, "{model:?}: {:?}", result.deadlock);
            at.clone_from(to);
        }
        assert_eq!(at, result.deadlock[0].0, "the circle is closed");
    }
}

#[test]
fn the_same_seed_gives_the_same_run() {
    for model in MODELS {
        let once = || run_shape(network(fat_tree(), model, 2 * FRAME), vec![traffic(0..16, Pattern::Uniform, 5)]);
        assert_eq!(once(), once(), "{model:?}");
    }
}
