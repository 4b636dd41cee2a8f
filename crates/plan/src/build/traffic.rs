//! Background traffic of a run, and whether what is sent fits the queues.

use fanin_core::{Duration, Instant, NodeId};
use fanin_sim::scenario::NetworkConfig;
use fanin_sim::topology::Topology;
use fanin_sim::traffic::{Congestion, Pattern, TrafficConfig};

use crate::jobs::placement::Free;
use crate::reading::units::Amount;
use crate::reading::{PlanError, Refuse};
use crate::schema::{CongestionName, PatternName, Placement, Setup, Traffic, TrafficHosts};

/// The least timeout of connections, where none is given.
const RTO_MIN: Duration = Duration::from_ms(1);

/// Queues must hold at least one full frame of everybody who sends.
pub fn check_frames(refuse: &Refuse<'_>, network: &NetworkConfig, setup: &Setup) -> Result<(), PlanError> {
    let jobs = setup.jobs.iter().enumerate().map(|(index, job)| (format!("jobs[{index}]"), job.common.payload.0));
    let traffic = setup.general.traffic.iter().enumerate().map(|(index, traffic)| (format!("traffic[{index}]"), traffic.payload.0));
    let flows = setup.general.flows.iter().enumerate().map(|(index, flow)| (format!("flows[{index}]"), flow.payload.0));
    for (name, payload) in jobs.chain(traffic).chain(flows) {
        if payload == 0 || payload > 65_000 {
            return Err(refuse.at(&format!("{name}.payload"), "1 to 65000 bytes"));
        }
        let frame = (payload + u64::from(network.frame_overhead_bytes)).max(u64::from(network.frame_bytes_min));
        let mut buffers = vec![("network.queue", network.queue_bytes), ("network.nic_queue", network.nic_queue_bytes)];
        if let Some(lossless) = &network.lossless {
            buffers.extend([("network.lossless.input", lossless.input_bytes), ("network.lossless.output", lossless.output_bytes)]);
        }
        for (key, bytes) in buffers {
            if bytes < frame {
                let expected = format!("at least {frame} bytes, a full frame of {name}");
                return Err(if refuse.has(key) { refuse.at(key, expected) } else { refuse.say(key, bytes, expected) });
            }
        }
    }
    Ok(())
}

/// All traffic that is on, on hosts that are free.
pub fn traffic(
    refuse: &Refuse<'_>,
    setup: &Setup,
    (topology, network): (&Topology, &NetworkConfig),
    free: &mut Free,
) -> Result<Vec<TrafficConfig>, PlanError> {
    let mut traffic = Vec::new();
    for (index, config) in setup.general.traffic.iter().enumerate() {
        if config.enabled {
            let config = background(refuse, config, index, topology, free)?;
            config.check(index).map_err(|error| refuse.setup(&error))?;
            config.check_pattern(index, topology, network).map_err(|error| refuse.setup(&error))?;
            traffic.push(config);
        }
    }
    Ok(traffic)
}

fn background(
    refuse: &Refuse<'_>,
    config: &Traffic,
    index: usize,
    topology: &Topology,
    free: &mut Free,
) -> Result<TrafficConfig, PlanError> {
    let path = |key: &str| format!("traffic[{index}].{key}");
    let hosts = topology.map.hosts();
    let left = free.left();
    let hosts = match &config.hosts {
        TrafficHosts::All => (0..hosts).map(NodeId).collect(),
        TrafficHosts::Rest => free.take(&Placement::Packed, left),
        TrafficHosts::Some(amount) => {
            let count = match amount {
                Amount::Count(count) => *count,
                Amount::Share(share) => (f64::from(hosts) * share).round() as u32,
            };
            if count > left {
                return Err(refuse.at(&path("hosts"), format!("at most {left}, the number of hosts without a worker")));
            }
            free.take(&Placement::Random, count)
        }
        TrafficHosts::Hosts(listed) => {
            for (place, &host) in listed.iter().enumerate() {
                if host >= hosts {
                    return Err(refuse.say(&path(&format!("hosts[{place}]")), host, format!("hosts from 0 to {}", hosts - 1)));
                }
                if listed[..place].contains(&host) {
                    return Err(refuse.say(&path(&format!("hosts[{place}]")), host, "each host once"));
                }
            }
            listed.iter().copied().map(NodeId).collect()
        }
    };
    let pattern = match (config.pattern, config.receivers) {
        (PatternName::Uniform, None) => Pattern::Uniform,
        (PatternName::Derangement, None) => Pattern::Derangement,
        (PatternName::Permutation, None) => Pattern::Permutation,
        (PatternName::Own(own), None) => {
            // Its own keys say these.
            if let Some(key) = ["message", "messages", "load", "congestion"].into_iter().find(|key| refuse.has(&path(key))) {
                let expected = format!("no such key with pattern = \"{}\", which has keys of its own", own.name());
                return Err(refuse.at(&path(key), expected));
            }
            Pattern::Own(own)
        }
        (PatternName::Incast, receivers) => Pattern::Incast { receivers: receivers.map_or(1, |count| count.0) },
        (_, Some(_)) => return Err(refuse.at(&path("receivers"), "no such key without pattern = \"incast\"")),
    };
    if config.load.0 <= 0.0 {
        return Err(refuse.at(&path("load"), "a share of the link's rate above 0 and at most 1"));
    }
    let congestion = congestion(refuse, config, &path)?;
    Ok(TrafficConfig {
        hosts,
        pattern,
        message_bytes: config.message.0,
        payload_bytes: config.payload.0 as u32,
        load: config.load.0,
        congestion,
        messages: config.messages,
        start: Instant::ZERO + config.start.0,
    })
}

/// How rates follow congestion; what says a rate beside it is refused.
fn congestion(refuse: &Refuse<'_>, config: &Traffic, path: &dyn Fn(&str) -> String) -> Result<Option<Congestion>, PlanError> {
    match (config.congestion, config.rto_min) {
        (CongestionName::None, Some(_)) => Err(refuse.at(&path("rto_min"), "no such key without congestion = \"dctcp\"")),
        (CongestionName::None, None) => Ok(None),
        (CongestionName::Dctcp, _) if refuse.has(&path("load")) => {
            Err(refuse.at(&path("load"), "no such key with congestion = \"dctcp\", which finds its rate itself"))
        }
        (CongestionName::Dctcp, rto_min) => Ok(Some(Congestion::Dctcp { rto_min: rto_min.map_or(RTO_MIN, |time| time.0) })),
    }
}
