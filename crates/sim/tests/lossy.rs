//! Networks that drop: how balancers spread packets over equal paths, what full queues lose and mark, and what a link carries at most.

use fanin_core::{DropReason, Duration, Instant, Length, NodeId};
use fanin_sim::faults::FaultPlan;
use fanin_sim::metrics::Ended;
use fanin_sim::routing::Balancer;
use fanin_sim::scenario::Scenario;
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_sim::workloads::Nobody;
use fanin_sim::{LinkSpeed, NetworkConfig, RunResult, Shape, Simulation, Topology};

const PAYLOAD: u64 = 1024;
const FRAME: u64 = PAYLOAD + 57;
const LINK: LinkSpeed = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
const SPINES: usize = 4;
/// The first leaf of [`fat_tree`]; hosts 4 to 7 hang on the second.
const FIRST_SWITCH: u32 = 16;

fn fat_tree() -> Shape {
    let spines = SPINES as u32;
    Shape::FatTree2 { leaves: 4, hosts_per_leaf: 4, spines, parallel_links: 1, host_link: LINK, fabric_link: LINK }
}

fn network(shape: Shape, balancer: Balancer, queue_frames: u64) -> NetworkConfig {
    NetworkConfig {
        shape,
        queue_bytes: queue_frames * FRAME,
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

/// Everybody among `hosts` but the first sends one message of `packets` packets to the first.
fn to_first(hosts: &[u32], packets: u64) -> TrafficConfig {
    traffic(hosts.iter().copied(), Pattern::Incast { receivers: 1 }, packets)
}

fn traffic(hosts: impl IntoIterator<Item = u32>, pattern: Pattern, packets: u64) -> TrafficConfig {
    TrafficConfig {
        hosts: hosts.into_iter().map(NodeId).collect(),
        pattern,
        message_bytes: packets * PAYLOAD,
        payload_bytes: PAYLOAD as u32,
        load: 1.0,
        congestion: None,
        messages: Some(1),
        start: Instant::ZERO,
    }
}

fn run(network: NetworkConfig, traffic: Vec<TrafficConfig>) -> RunResult {
    let topology = Topology::new(&network.shape).expect("a network");
    let time_limit = Duration::from_ms(20);
    let scenario = Scenario {
        network,
        jobs: Vec::new(),
        traffic,
        flows: Vec::new(),
        limits: Vec::new(),
        faults: FaultPlan::default(),
        seed: 11,
        time_limit,
        drain: false,
    };
    let result = Simulation::<Nobody, Length>::new(topology, scenario, Vec::new(), &[]).expect("a scenario").run();
    assert_eq!(result.ended, Ended::TrafficDone);
    result
}

/// Packets that leaf number `leaf` sent to each spine.
fn packets_up(result: &RunResult, leaf: u32) -> Vec<u64> {
    let from_leaf = |link: &&fanin_sim::metrics::LinkResult| link.from == FIRST_SWITCH + leaf && link.to >= FIRST_SWITCH;
    let packets: Vec<u64> = result.links.iter().filter(from_leaf).map(|link| link.packets).collect();
    assert_eq!(packets.len(), SPINES);
    packets
}

#[test]
fn ecmp_keeps_a_flow_on_one_path_and_gives_flows_different_ones() {
    let one = run(network(fat_tree(), Balancer::Ecmp, 256), vec![to_first(&[0, 4], 200)]);
    let mut packets = packets_up(&one, 1);
    packets.sort_unstable();
    assert_eq!(packets, [0, 0, 0, 200]);
    // 16 flows, each of them on its path.
    let many = run(network(fat_tree(), Balancer::Ecmp, 4_096), vec![traffic(0..16, Pattern::Permutation, 200)]);
    let packets: Vec<u64> = (0..4).flat_map(|leaf| packets_up(&many, leaf)).collect();
    assert!(packets.iter().all(|packets| packets % 200 == 0), "{packets:?}");
    assert!(packets.iter().filter(|packets| **packets > 0).count() >= 4, "{packets:?}");
}

#[test]
fn a_random_path_for_each_packet_spreads_them_evenly() {
    let result = run(network(fat_tree(), Balancer::Random, 256), vec![to_first(&[0, 4], 1_000)]);
    let packets = packets_up(&result, 1);
    assert_eq!(packets.iter().sum::<u64>(), 1_000);
    // 250 each, give or take 5 standard deviations.
    assert!(packets.iter().all(|packets| packets.abs_diff(250) < 70), "{packets:?}");
}

#[test]
fn flowlets_stay_while_packets_follow_each_other_and_move_after_a_pause() {
    let used = |gap_ps: u64, load: f64| {
        let flow = TrafficConfig { load, ..to_first(&[0, 4], 400) };
        let result = run(network(fat_tree(), Balancer::Flowlet { gap_ps }, 256), vec![flow]);
        packets_up(&result, 1).into_iter().filter(|packets| *packets > 0).count()
    };
    // A packet every 86.48 ns at full load, every 865 ns at a tenth of it.
    assert_eq!(used(500_000, 1.0), 1);
    assert_eq!(used(500_000, 0.1), SPINES);
}

#[test]
fn adaptive_routing_leaves_the_default_path_only_when_its_queue_is_long() {
    let adaptive = Balancer::Adaptive { threshold: 0.5 };
    let alone = run(network(fat_tree(), adaptive, 64), vec![to_first(&[0, 4], 400)]);
    assert_eq!(packets_up(&alone, 1), [400, 0, 0, 0], "destination 0 goes by spine 0");
    // Two flows from leaf 1 whose destinations have the same default path, at twice its rate.
    let flows = vec![to_first(&[0, 4], 400), to_first(&[8, 5], 400)];
    let both = run(network(fat_tree(), adaptive, 64), flows.clone());
    let packets = packets_up(&both, 1);
    assert_eq!(packets.iter().sum::<u64>(), 800);
    assert!(packets[0] > 400 && packets[1..].iter().sum::<u64>() > 200, "{packets:?}");
    assert_eq!(both.counters.dropped_total(), 0);
    let uplinks = both.links.iter().filter(|link| link.from == FIRST_SWITCH + 1 && link.to >= FIRST_SWITCH);
    // The threshold, and the packet that found the queue just below it.
    assert!(uplinks.map(|link| link.queue_bytes_peak).max().unwrap() <= 34 * FRAME);
}

#[test]
fn by_destination_a_packet_takes_the_default_path_whatever_its_queue() {
    let flows = vec![to_first(&[0, 4], 100), to_first(&[8, 5], 100), to_first(&[1, 6], 100)];
    let result = run(network(fat_tree(), Balancer::Destination, 256), flows);
    assert_eq!(packets_up(&result, 1), [200, 100, 0, 0], "destinations 0 and 8 go by spine 0, destination 1 by spine 1");
}

#[test]
fn a_full_queue_drops_and_a_long_one_marks() {
    let flows = || vec![to_first(&[0, 1, 2, 3], 300)];
    let star = Shape::Star { hosts: 4, link: LINK };
    let short = run(network(star.clone(), Balancer::Ecmp, 20), flows());
    let lost = short.counters.dropped(DropReason::QueueFull);
    assert!(lost > 0 && lost == short.counters.dropped_total());
    assert_eq!(short.background_bytes, (900 - lost) * PAYLOAD);
    let receiver = short.links.iter().find(|link| link.to == 0).expect("the receiver's link");
    assert!(receiver.queue_bytes_peak <= 20 * FRAME && receiver.packets_dropped == lost);
    assert_eq!(short.packets_marked, 0);
    let marking = NetworkConfig { ecn_mark_bytes: 100 * FRAME, ..network(star, Balancer::Ecmp, 1_000) };
    let long = run(marking, flows());
    assert_eq!(long.counters.dropped_total(), 0);
    // Three senders at full rate leave two packets in the queue for every one that departs; those beyond the first 100 are marked,
    // except for the last 100 at most.
    assert!((400..800).contains(&long.packets_marked), "{}", long.packets_marked);
}

/// `baselines 12`: both directions of a link carry its full rate at once, and headers take their part of it.
#[test]
fn links_are_full_duplex_and_goodput_is_below_the_rate_by_the_overhead() {
    let packets = 2_000;
    let result = run(network(Shape::Star { hosts: 6, link: LINK }, Balancer::Ecmp, 64), vec![traffic(0..6, Pattern::Permutation, packets)]);
    let seconds = result.end.since(Instant::ZERO).as_ps() as f64 * 1e-12;
    let goodput_gbps = (packets * PAYLOAD * 8) as f64 / seconds / 1e9;
    // 1024 of 1081 bytes are payload; the last packet takes two links more than the first.
    assert!((94.0..94.73).contains(&goodput_gbps), "{goodput_gbps}");
    for link in &result.links {
        assert_eq!(link.bytes, packets * FRAME, "every direction of every link");
        assert!(link.utilization > 0.99, "{}", link.utilization);
    }
}
