//! Background traffic with DCTCP: how it shares a link, where it keeps the queue, and what it does about losses and hosts that fail.

use fanin_core::{Census, Duration, Instant, NodeId};
use fanin_sim::faults::{FaultPlan, KindSet, LinkFault, LinkSelector, TimedFault};
use fanin_sim::metrics::{Ended, Verdict};
use fanin_sim::routing::Balancer;
use fanin_sim::scenario::Scenario;
use fanin_sim::traffic::{Congestion, Pattern, TrafficConfig};
use fanin_sim::watch::WatchConfig;
use fanin_sim::workloads::Nobody;
use fanin_sim::{LinkSpeed, NetworkConfig, RunResult, Shape, Simulation, Topology};

const PAYLOAD: u64 = 1_448;
const FRAME: u64 = PAYLOAD + 52;
/// 10 Gb/s: 1,500 bytes take 1.2 us.
const LINK: LinkSpeed = LinkSpeed { bits_per_second: 10_000_000_000, latency: Duration::from_us(5) };
/// Marks begin above 65 packets, as in the paper for 10 Gb/s (3.4).
const K: u64 = 65;
const SWITCH: u32 = 4;

/// Four hosts at a switch.
fn scenario(traffic: Vec<TrafficConfig>, queue: u64) -> Scenario {
    let network = NetworkConfig {
        shape: Shape::Star { hosts: 4, link: LINK },
        queue_bytes: queue * FRAME,
        lossless: None,
        ecn_mark_bytes: K * FRAME,
        nic_queue_bytes: 8 * FRAME,
        frame_overhead_bytes: 52,
        frame_bytes_min: 84,
        collective_balancer: Balancer::Ecmp,
        background_balancer: Balancer::Ecmp,
        trimming: None,
    };
    Scenario {
        network,
        jobs: Vec::new(),
        traffic,
        flows: Vec::new(),
        limits: Vec::new(),
        faults: FaultPlan::default(),
        seed: 3,
        time_limit: Duration::from_ms(40),
        drain: false,
    }
}

/// These hosts send one message each to host 0.
fn to_first(hosts: &[u32], packets: u64, start: Instant) -> TrafficConfig {
    TrafficConfig {
        hosts: [0].iter().chain(hosts).copied().map(NodeId).collect(),
        pattern: Pattern::Incast { receivers: 1 },
        message_bytes: packets * PAYLOAD,
        payload_bytes: PAYLOAD as u32,
        load: 1.0,
        congestion: Some(Congestion::Dctcp { rto_min: Duration::from_ms(1) }),
        messages: Some(1),
        start,
    }
}

fn simulation(scenario: Scenario) -> Simulation<Nobody, Census> {
    let topology = Topology::new(&scenario.network.shape).expect("a network");
    let simulation: Result<Simulation<Nobody, Census>, _> = Simulation::new(topology, scenario, Vec::new(), &[]);
    simulation.expect("a scenario")
}

/// Payload bytes of full packets that a host has sent.
fn sent(result: &RunResult, host: u32) -> f64 {
    let link = result.links.iter().find(|link| link.from == host && link.to == SWITCH).expect("a cable");
    link.bytes as f64
}

fn at(ms: u64) -> Instant {
    Instant::ZERO + Duration::from_ms(ms)
}

#[test]
fn two_flows_share_a_link_evenly_and_lose_nothing() {
    let result = simulation(scenario(vec![to_first(&[1, 2], 1 << 20, Instant::ZERO)], 1_000)).run();
    assert_eq!((result.ended, result.counters.dropped_total()), (Ended::TimeLimit, 0));
    let (one, two) = (sent(&result, 1), sent(&result, 2));
    assert!((one / two - 1.0).abs() < 0.1, "{one} and {two}");
    // 40 ms of 10 Gb/s are 50 MB; windows begin with ten packets.
    assert!((0.98..=1.01).contains(&((one + two) / 50e6)), "{one} and {two}");
    assert!(result.packets_marked > 100);
}

/// The paper measures 80 to 150 ms until flows share 10 Gb/s (4.1): from then on each has its half.
#[test]
fn a_late_flow_gets_its_half() {
    let sent_until = |ms: u64| {
        let traffic = vec![to_first(&[1], 1 << 20, Instant::ZERO), to_first(&[2], 1 << 20, at(10))];
        let result = simulation(Scenario { time_limit: Duration::from_ms(ms), ..scenario(traffic, 1_000) }).run();
        [1, 2].map(|host| sent(&result, host))
    };
    let ([first_at_160, late_at_160], [first, late]) = (sent_until(160), sent_until(220));
    let share = (late - late_at_160) / (late - late_at_160 + first - first_at_160);
    assert!((0.45..0.55).contains(&share), "{share}");
    assert!(late_at_160 < first_at_160, "it takes its time");
}

/// Equations 6 to 8 of the paper: N = 2 flows in step fill the queue to K + N packets at most, and it swings by
/// 1/2 sqrt(2 N (C RTT + K)): with 20 us and 1.2 us a packet C RTT is 17 packets, and that is 9. Flows that are not in step swing less.
#[test]
fn marks_keep_the_queue_where_they_begin() {
    let mut simulation = simulation(scenario(vec![to_first(&[1, 2], 1 << 20, Instant::ZERO)], 1_000));
    let topology = Topology::new(&Shape::Star { hosts: 4, link: LINK }).expect("a network");
    let down = topology.link_out(NodeId(SWITCH), topology.map.leaf_of(NodeId(0)).expect("the switch").their_port).expect("a cable");
    simulation.watch(WatchConfig { blocks: None, links: vec![down], intervals_max: None }).expect("a link of the network");
    let watched = simulation.run().watched.expect("it was asked for");
    let settled: Vec<u64> = watched.queues.iter().filter(|sample| sample.until > at(10)).map(|sample| sample.bytes[0] / FRAME).collect();
    let (low, high) = (settled.iter().min().copied(), settled.iter().max().copied());
    assert!(settled.len() > 100 && low >= Some(K - 20) && high <= Some(K + 12), "{low:?} to {high:?} packets");
}

#[test]
fn what_a_full_queue_loses_is_sent_again() {
    // Marks would begin above what the queue holds.
    let result = simulation(scenario(vec![to_first(&[1, 2, 3], 2_000, Instant::ZERO)], 16)).run();
    assert!(result.ended == Ended::TrafficDone && result.verdict == Verdict::default(), "{:?}", result.ended);
    assert!(result.counters.dropped_total() > 0 && result.packets_marked == 0);
    assert_eq!(result.background_bytes, 3 * 2_000 * PAYLOAD);
}

#[test]
fn what_links_lose_is_sent_again_and_hosts_that_stall_go_on() {
    let mut run = scenario(vec![to_first(&[1, 2], 1_000, Instant::ZERO)], 1_000);
    let nothing = LinkFault {
        links: LinkSelector::All,
        kinds: KindSet::ALL,
        loss: 0.0,
        corruption: 0.0,
        duplication: 0.0,
        reordering: 0.0,
        delay_max: Duration::ZERO,
    };
    run.faults.links = vec![LinkFault { loss: 0.02, ..nothing }];
    let stall = |host, from, until| TimedFault::HostStall { host: NodeId(host), from: at(from), until: at(until) };
    run.faults.timed = vec![stall(1, 0, 2), stall(0, 3, 6), stall(2, 5, 9)];
    run.time_limit = Duration::from_ms(2_000);
    let result = simulation(run).run();
    assert!(result.ended == Ended::TrafficDone && result.verdict == Verdict::default(), "{:?} after {}", result.ended, result.end);
    assert_eq!(result.background_bytes, 2 * 1_000 * PAYLOAD);
}

/// 1 + 2 + 4 ... + 256 ms, the first timeout of at least 1 ms.
#[test]
fn who_gets_no_answer_gives_up_and_a_dead_sender_ends() {
    let mut run = scenario(vec![to_first(&[1, 2], 100_000, Instant::ZERO)], 1_000);
    run.faults.timed = vec![TimedFault::HostDies { host: NodeId(0), at: at(1) }, TimedFault::HostDies { host: NodeId(2), at: at(2) }];
    run.time_limit = Duration::from_ms(2_000);
    let result = simulation(run).run();
    assert_eq!(result.ended, Ended::TrafficDone);
    assert!((at(512)..at(530)).contains(&result.end), "{}", result.end);
}

/// A message begins when the one before it has been acknowledged, each with a new connection.
#[test]
fn messages_follow_each_other() {
    let mut traffic = to_first(&[1], 7, Instant::ZERO);
    (traffic.messages, traffic.message_bytes) = (Some(3), 6 * PAYLOAD + 1);
    let result = simulation(scenario(vec![traffic], 1_000)).run();
    assert_eq!((result.ended, result.background_bytes), (Ended::TrafficDone, 3 * (6 * PAYLOAD + 1)));
    // Six frames and one of 84 bytes, 4 x 5 us, and an acknowledgement of 84 bytes each way.
    let one_us = (6.0 * FRAME as f64 + 84.0 + FRAME as f64) * 8.0 / 1e4 + 20.0;
    let took_us = result.end.as_ps() as f64 / 1e6;
    assert!((took_us / (3.0 * one_us) - 1.0).abs() < 0.06, "{took_us} us, {one_us} each");
}
