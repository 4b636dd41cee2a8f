//! A few fixed networks and what comes out of them. A change of behaviour is a change of the table; `INSTA_UPDATE=always cargo test
//! -p fanin-sim --test results` writes a new one.

use std::fmt::Write;

use fanin_core::{Duration, Instant, Length, NodeId};
use fanin_sim::faults::{FaultPlan, KindSet, LinkFault, LinkSelector, TimedFault};
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
use fanin_sim::routing::Balancer;
use fanin_sim::scenario::Scenario;
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_sim::workloads::Nobody;
use fanin_sim::{LinkSpeed, NetworkConfig, RunResult, Shape, Simulation, Topology};

const LINK: LinkSpeed = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
const FRAME: u64 = 1024 + 57;

/// Eight leaves of eight hosts, four spines: half of the hosts' rate leaves a leaf.
fn scenario(pattern: Pattern, balancer: Balancer, lossless: Option<LosslessConfig>) -> Scenario {
    let shape = Shape::FatTree2 { leaves: 8, hosts_per_leaf: 8, spines: 4, parallel_links: 1, host_link: LINK, fabric_link: LINK };
    let network = NetworkConfig {
        shape,
        queue_bytes: 64 * FRAME,
        lossless,
        ecn_mark_bytes: 32 * FRAME,
        nic_queue_bytes: 8 * FRAME,
        frame_overhead_bytes: 57,
        frame_bytes_min: 84,
        collective_balancer: balancer,
        background_balancer: balancer,
        trimming: None,
    };
    let traffic = TrafficConfig {
        hosts: (0..64).map(NodeId).collect(),
        pattern,
        message_bytes: 100_000,
        payload_bytes: 1024,
        load: 0.8,
        congestion: None,
        messages: Some(3),
        start: Instant::ZERO,
    };
    Scenario {
        network,
        jobs: Vec::new(),
        traffic: vec![traffic],
        flows: Vec::new(),
        limits: Vec::new(),
        faults: FaultPlan::default(),
        seed: 42,
        time_limit: Duration::from_ms(50),
        drain: false,
    }
}

fn faults() -> FaultPlan {
    let at = |us| Instant::ZERO + Duration::from_us(us);
    FaultPlan {
        links: vec![LinkFault {
            links: LinkSelector::Fabric,
            kinds: KindSet::ALL,
            loss: 0.01,
            corruption: 0.01,
            duplication: 0.01,
            reordering: 0.05,
            delay_max: Duration::from_us(5),
        }],
        timed: vec![
            TimedFault::LinkDown { a: NodeId(64), b: NodeId(72), from: at(5), until: at(15) },
            TimedFault::SwitchDown { switch: NodeId(75), from: at(10), until: at(20) },
            TimedFault::HostStall { host: NodeId(9), from: at(8), until: at(12) },
        ],
        ..FaultPlan::default()
    }
}

fn run(scenario: Scenario) -> RunResult {
    let topology = Topology::new(&scenario.network.shape).expect("a network");
    Simulation::<Nobody, Length>::new(topology, scenario, Vec::new(), &[]).expect("a scenario").run()
}

#[test]
fn results_stay_as_they_are() {
    let (arbitration, made_packets) = (Arbitration::default(), MadePackets::default());
    let lossless =
        |model| Some(LosslessConfig { model, input_bytes: 16 * FRAME, output_bytes: 4 * FRAME, arbitration, made_packets, channels: 1 });
    let mut broken = scenario(Pattern::Permutation, Balancer::Ecmp, None);
    broken.faults = faults();
    let scenarios = [
        ("permutation, ecmp", scenario(Pattern::Permutation, Balancer::Ecmp, None)),
        ("permutation, random", scenario(Pattern::Permutation, Balancer::Random, None)),
        ("permutation, flowlet", scenario(Pattern::Permutation, Balancer::Flowlet { gap_ps: 200_000 }, None)),
        ("permutation, adaptive", scenario(Pattern::Permutation, Balancer::Adaptive { threshold: 0.5 }, None)),
        ("uniform, random", scenario(Pattern::Uniform, Balancer::Random, None)),
        ("incast, ecmp", scenario(Pattern::Incast { receivers: 4 }, Balancer::Ecmp, None)),
        ("uniform, output-queued", scenario(Pattern::Uniform, Balancer::Random, lossless(SwitchModel::OutputQueued))),
        ("uniform, input-queued", scenario(Pattern::Uniform, Balancer::Random, lossless(SwitchModel::InputQueued))),
        ("permutation, all faults", broken),
    ];
    let mut table = format!("{:<24} {:>14} {:>8} {:>7} {:>9} {:>11}  dropped\n", "", "end_ps", "hops", "marked", "util_mean", "events");
    for (name, scenario) in scenarios {
        let result = run(scenario);
        let dropped: Vec<String> = result.counters.drops().map(|(reason, count)| format!("{reason} {count}")).collect();
        writeln!(
            table,
            "{name:<24} {:>14} {:>8} {:>7} {:>9.6} {:>11}  {}",
            result.end.as_ps(),
            result.packet_hops,
            result.packets_marked,
            result.link_utilization_mean(),
            result.events,
            dropped.join(", ")
        )
        .expect("a string takes all");
    }
    insta::assert_snapshot!(table);
}
