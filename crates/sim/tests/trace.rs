//! Packets of links, as they arrive: all of them, no others, and without a difference to the run.

use fanin_core::{Duration, Instant, Length, NodeId};
use fanin_sim::faults::{FaultPlan, KindSet, LinkFault, LinkSelector};
use fanin_sim::lossless::LosslessConfig;
use fanin_sim::lossless::{Arbitration, MadePackets, SwitchModel};
use fanin_sim::routing::Balancer;
use fanin_sim::scenario::Scenario;
use fanin_sim::trace::{Keep, TraceConfig, TracedPacket};
use fanin_sim::traffic::{Pattern, TrafficConfig};
use fanin_sim::workloads::{NoHeader, Nobody};
use fanin_sim::{LinkSpeed, NetworkConfig, Shape, Simulation, Topology};

fn scenario(lossless: Option<LosslessConfig>, loss: f64) -> Scenario {
    let link = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
    let shape = Shape::FatTree2 { leaves: 2, hosts_per_leaf: 4, spines: 2, parallel_links: 1, host_link: link, fabric_link: link };
    let network = NetworkConfig {
        shape,
        queue_bytes: 64 * 1_081,
        lossless,
        ecn_mark_bytes: 4 * 1_081,
        nic_queue_bytes: 8 * 1_081,
        frame_overhead_bytes: 57,
        frame_bytes_min: 84,
        collective_balancer: Balancer::Ecmp,
        background_balancer: Balancer::Ecmp,
        trimming: None,
    };
    let traffic = TrafficConfig {
        hosts: (0..8).map(NodeId).collect(),
        pattern: Pattern::Uniform,
        message_bytes: 50_000,
        payload_bytes: 1_024,
        load: 0.9,
        congestion: None,
        messages: Some(3),
        start: Instant::ZERO,
    };
    let losses = LinkFault {
        links: LinkSelector::All,
        kinds: KindSet::ALL,
        loss,
        corruption: 0.0,
        duplication: 0.01,
        reordering: 0.01,
        delay_max: Duration::from_us(1),
    };
    Scenario {
        network,
        jobs: Vec::new(),
        traffic: vec![traffic],
        flows: Vec::new(),
        limits: Vec::new(),
        faults: FaultPlan { links: if loss > 0.0 { vec![losses] } else { Vec::new() }, anti_replay: true, ..FaultPlan::default() },
        seed: 7,
        time_limit: Duration::from_ms(50),
        drain: false,
    }
}

fn simulation(scenario: &Scenario) -> Simulation<Nobody, Length> {
    Simulation::new(Topology::new(&scenario.network.shape).unwrap(), scenario.clone(), Vec::new(), &[]).unwrap()
}

fn all() -> TraceConfig {
    TraceConfig { links: None, packets_max: usize::MAX, from: Instant::ZERO, until: Instant::from_ps(u64::MAX) }
}

#[test]
fn a_run_is_the_same_and_every_packet_of_every_link_is_there() {
    let buffers = LosslessConfig {
        model: SwitchModel::InputQueued,
        input_bytes: 16_384,
        output_bytes: 16_384,
        arbitration: Arbitration::default(),
        made_packets: MadePackets::default(),
        channels: 1,
    };
    for (lossless, loss) in [(None, 0.0), (None, 0.02), (Some(buffers), 0.0)] {
        let scenario = scenario(lossless, loss);
        let plain = simulation(&scenario).run();
        let (result, trace) = simulation(&scenario).run_traced(all(), Keep::all());
        assert_eq!(result, plain);
        assert!(!trace.is_full && trace.packets.is_sorted_by_key(|packet| packet.at));
        let arrived: Vec<u64> =
            (0..plain.links.len()).map(|link| trace.packets.iter().filter(|packet| packet.link as usize == link).count() as u64).collect();
        let sent: u64 = plain.links.iter().map(|link| link.packets).sum();
        if loss == 0.0 {
            assert_eq!(arrived.iter().sum::<u64>(), plain.packet_hops);
        } else {
            assert!(arrived.iter().sum::<u64>() < sent);
        }
        assert!(trace.packets.iter().all(|packet| packet.background && packet.frame_bytes > 57));
    }
}

/// What tells packets apart.
fn key(packet: &TracedPacket<NoHeader, Length>) -> (Instant, u32, NodeId, NodeId, u32) {
    (packet.at, packet.link, packet.source.node, packet.destination.node, packet.frame_bytes)
}

fn keys<'a>(packets: impl IntoIterator<Item = &'a TracedPacket<NoHeader, Length>>) -> Vec<(Instant, u32, NodeId, NodeId, u32)> {
    packets.into_iter().map(key).collect()
}

#[test]
fn what_is_kept_is_bounded_by_links_number_and_time() {
    let scenario = scenario(None, 0.0);
    let (_, whole) = simulation(&scenario).run_traced(all(), Keep::all());
    let (result, first) = simulation(&scenario).run_traced(TraceConfig { packets_max: 100, ..all() }, Keep::all());
    assert_eq!((keys(&first.packets), first.is_full), (keys(&whole.packets[..100]), true));
    assert!(result.end <= whole.packets[100].at, "there is nothing more to wait for");
    let (_, some) = simulation(&scenario).run_traced(TraceConfig { links: Some(vec![3, 9]), ..all() }, Keep::all());
    assert_eq!(keys(&some.packets), keys(whole.packets.iter().filter(|packet| [3, 9].contains(&packet.link))));
    let (from, until) = (Instant::ZERO + Duration::from_us(3), Instant::ZERO + Duration::from_us(6));
    let (_, between) = simulation(&scenario).run_traced(TraceConfig { from, until, ..all() }, Keep::all());
    assert_eq!(keys(&between.packets), keys(whole.packets.iter().filter(|packet| packet.at >= from && packet.at <= until)));
    assert!(!between.packets.is_empty() && between.packets.len() < whole.packets.len());
}
