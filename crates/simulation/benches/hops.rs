//! What a packet-hop costs in instructions, in cells so small that a simulator of processors counts them in seconds: no clock, so the same
//! count on a busy machine. `scripts/hops.py` runs each cell in two sizes and takes the difference, which is free of set-up.
//!
//! Usage: `hops CELL BYTES`, where `BYTES` is what each host reduces, or in `w1` sends. Prints packet-hops and events.

use std::env;

use fanin_core::{Census, DType, Duration, ElementOp, Instant, JobId, NodeId, Operator};
use fanin_sim::faults::FaultPlan;
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
use fanin_sim::noise::Delay;
use fanin_sim::random::{Purpose, Random};
use fanin_sim::routing::Balancer;
use fanin_sim::scenario::{Contributions, JobSchedule, Scenario};
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_sim::workloads::{Nobody, w1};
use fanin_sim::{JobResult, LinkSpeed, NetworkConfig, RunResult, Shape, Simulation, Topology};
use fanin_simulation::{AnySimulation, Runs};
use fanin_systems::{CanaryParameters, JobSpec, System, build};

/// Leaves, hosts of each, and spines.
const SIDE: u32 = 8;
const PAYLOAD_BYTES: u32 = 1_024;
const LINK: LinkSpeed = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };

fn network(lossless: Option<LosslessConfig>, collective: Balancer, background: Balancer) -> NetworkConfig {
    NetworkConfig {
        shape: Shape::FatTree2 { leaves: SIDE, hosts_per_leaf: SIDE, spines: SIDE, parallel_links: 1, host_link: LINK, fabric_link: LINK },
        queue_bytes: 1 << 20,
        lossless,
        ecn_mark_bytes: u64::MAX,
        nic_queue_bytes: 16 << 10,
        frame_overhead_bytes: 57,
        frame_bytes_min: 84,
        collective_balancer: collective,
        background_balancer: background,
        trimming: None,
    }
}

/// Traffic between random hosts that does not end.
fn uniform(hosts: Vec<NodeId>) -> TrafficConfig {
    TrafficConfig {
        hosts,
        pattern: Pattern::Uniform,
        message_bytes: 64 << 10,
        payload_bytes: PAYLOAD_BYTES,
        load: 1.0,
        congestion: None,
        messages: None,
        start: Instant::ZERO,
    }
}

/// A job of these hosts without loss recovery, and other hosts' traffic.
fn collective(system: System, network: NetworkConfig, hosts: &[NodeId], traffic: Vec<TrafficConfig>, bytes: u64) -> RunResult {
    let op = ElementOp { dtype: DType::F32, operator: Operator::Sum };
    let spec = JobSpec {
        id: JobId(0),
        hosts,
        servers: &[],
        system,
        op: (),
        element_bytes: 4,
        payload_bytes: PAYLOAD_BYTES,
        window: 512,
        reliable: false,
        rto_initial: Duration::ZERO,
        rto_min: Duration::ZERO,
        patience: Duration::from_ms(100),
        seed: 1,
    };
    let job = JobSchedule {
        elements: vec![bytes / 4],
        kinds: Vec::new(),
        element_bytes: 4,
        values: op.dtype,
        contributions: Contributions::Whole,
        sparsity: None,
        indices: None,
        start: vec![Instant::ZERO; hosts.len()],
        compute: None,
        crash: None,
        noise_probability: 0.0,
        noise_delay: Delay::from(Duration::ZERO),
    };
    let topology = Topology::new(&network.shape).expect("a network");
    let nodes = build::<Census>(&spec, &topology.map).expect("a job that fits");
    let simulation: AnySimulation<Census> =
        Simulation::new(topology, scenario(network, vec![job], traffic), vec![nodes], &[()]).expect("it fits");
    Census::run(simulation)
}

fn scenario(network: NetworkConfig, jobs: Vec<JobSchedule>, traffic: Vec<TrafficConfig>) -> Scenario {
    Scenario {
        network,
        jobs,
        traffic,
        flows: Vec::new(),
        limits: Vec::new(),
        faults: FaultPlan::default(),
        seed: 1,
        time_limit: Duration::from_ms(100),
        drain: false,
    }
}

/// Canary's Fig. 8, congested: half of the hosts, drawn at random, reduce, and the others send to each other; lossless.
fn fig08(bytes: u64) -> RunResult {
    let lossless = LosslessConfig {
        model: SwitchModel::InputQueued,
        input_bytes: 16 << 10,
        output_bytes: 16 << 10,
        arbitration: Arbitration::default(),
        made_packets: MadePackets::default(),
        channels: 1,
    };
    let mut hosts: Vec<NodeId> = (0..SIDE * SIDE).map(NodeId).collect();
    Random::new(1, Purpose::Placement, 0).shuffle(&mut hosts);
    let others = hosts.split_off(hosts.len() / 2);
    let network = network(Some(lossless), Balancer::Adaptive { threshold: 0.5 }, Balancer::Destination);
    collective(System::Canary(CanaryParameters::default()), network, &hosts, vec![uniform(others)], bytes)
}

/// Static trees over all hosts, alone in a network that drops what finds no room.
fn tree(bytes: u64) -> RunResult {
    let hosts: Vec<NodeId> = (0..SIDE * SIDE).map(NodeId).collect();
    collective(System::tree(4), network(None, Balancer::Random, Balancer::Random), &hosts, Vec::new(), bytes)
}

/// W1, in which hosts send to each other and no node handles anything: a permutation of 1,024 hosts over random spines.
fn permutation(bytes: u64) -> RunResult {
    let mut scenario = w1(1);
    scenario.traffic[0].message_bytes = bytes;
    let topology = Topology::new(&scenario.network.shape).expect("a network");
    Simulation::<Nobody, Census>::new(topology, scenario, Vec::new(), &[]).expect("it fits").run()
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).filter(|argument| argument != "--bench").collect();
    let (cell, bytes) = match &arguments[..] {
        [cell, bytes] => (cell.as_str(), bytes.parse().expect("a number of bytes")),
        // As `cargo bench` calls it: that it runs.
        _ => ("fig08", 64 << 10),
    };
    let result = match cell {
        "fig08" => fig08(bytes),
        "tree" => tree(bytes),
        "w1" => permutation(bytes),
        other => panic!("{other}: expected fig08, tree or w1"),
    };
    assert!(
        result.jobs.iter().all(JobResult::is_complete) && result.verdict.wrong == 0 && result.broken.is_empty(),
        "{:?}",
        result.verdict
    );
    println!("{} packet-hops, {} events", result.packet_hops, result.events);
}
