//! What there is beside the jobs: background flows at given rates, and limits of hosts.

use fanin_core::{Duration, Instant, NodeId};
use fanin_sim::Topology;
use fanin_sim::flows::{FlowConfig, FlowStep};
use fanin_sim::limits::HostLimit;

use super::prepared::PreparedJob;
use crate::reading::{PlanError, Refuse};
use crate::schema::{Flow, Limit, LimitHosts, Member, Place};

/// The host of somebody of a job; `path` leads to the table that says who.
fn member(refuse: &Refuse<'_>, path: &str, member: Member, jobs: &[PreparedJob]) -> Result<NodeId, PlanError> {
    let Some(job) = jobs.get(member.job as usize) else {
        return Err(refuse.say(&format!("{path}.job"), member.job, format!("a job below {}", jobs.len())));
    };
    let (key, number, hosts, who) = match (member.rank, member.server) {
        (Some(rank), None) => ("rank", rank, &job.hosts, "a rank below"),
        (None, Some(server)) => ("server", server, &job.servers, "a server below"),
        _ => return Err(refuse.at(path, "either rank or server")),
    };
    let found = hosts.get(number as usize).copied();
    found.ok_or_else(|| refuse.say(&format!("{path}.{key}"), number, format!("{who} {}, the number that the job has", hosts.len())))
}

fn place(refuse: &Refuse<'_>, path: &str, place: &Place, topology: &Topology, jobs: &[PreparedJob]) -> Result<NodeId, PlanError> {
    match place {
        Place::Of(who) => member(refuse, path, *who, jobs),
        Place::Named(name) => topology.node_named(name).filter(|node| topology.map.is_host(*node)).ok_or_else(|| {
            let last = topology.map.hosts() - 1;
            refuse.say(path, format!("{name:?}"), format!("a host of the network, host0 to host{last}, or who lives there"))
        }),
    }
}

/// All flows that are on.
///
/// # Errors
/// [`PlanError`] where one names something that does not exist, or contradicts itself.
pub fn flows(refuse: &Refuse<'_>, flows: &[Flow], topology: &Topology, jobs: &[PreparedJob]) -> Result<Vec<FlowConfig>, PlanError> {
    let mut made = Vec::new();
    for (index, flow) in flows.iter().enumerate().filter(|(_, flow)| flow.enabled) {
        let path = |key: &str| format!("flows[{index}].{key}");
        let config = FlowConfig {
            from: place(refuse, &path("from"), &flow.from, topology, jobs)?,
            to: place(refuse, &path("to"), &flow.to, topology, jobs)?,
            payload_bytes: flow.payload.0.min(u64::from(u32::MAX)) as u32,
            steps: steps(refuse, flow, index)?,
        };
        let rates = topology.links_out(config.from).iter().map(|link| topology.links[*link as usize].speed.bits_per_second);
        config.check(index, rates.max().unwrap_or(0)).map_err(|error| match &flow.steps {
            Some(_) => refuse.setup(&error),
            None => refuse.say(&error.field.replace("steps[0].", ""), &error.value, &error.expected),
        })?;
        made.push(config);
    }
    Ok(made)
}

fn steps(refuse: &Refuse<'_>, flow: &Flow, index: usize) -> Result<Vec<FlowStep>, PlanError> {
    let path = |key: &str| format!("flows[{index}].{key}");
    let step = |at: Duration, bits_per_second: u64| FlowStep { at: Instant::ZERO + at, bits_per_second };
    let Some(steps) = &flow.steps else {
        let Some(rate) = flow.rate else { return Err(refuse.at(&path("rate"), "a rate, such as \"20Gb/s\", or else steps")) };
        let start = flow.start.map_or(Duration::ZERO, |start| start.0);
        let mut made = vec![step(start, rate.0)];
        if let Some(until) = flow.until {
            if until.0 <= start {
                return Err(refuse.at(&path("until"), "a time after start"));
            }
            made.push(step(until.0, 0));
        }
        return Ok(made);
    };
    let other = [("rate", flow.rate.is_some()), ("start", flow.start.is_some()), ("until", flow.until.is_some())];
    if let Some((key, _)) = other.iter().find(|(_, given)| *given) {
        return Err(refuse.at(&path(key), "no such key beside steps"));
    }
    Ok(steps.iter().map(|given| step(given.at.0, given.rate.0)).collect())
}

/// All limits that are on.
///
/// # Errors
/// [`PlanError`] where one names something that does not exist, or contradicts itself.
pub fn limits(refuse: &Refuse<'_>, limits: &[Limit], topology: &Topology, jobs: &[PreparedJob]) -> Result<Vec<HostLimit>, PlanError> {
    let mut made = Vec::new();
    for (index, limit) in limits.iter().enumerate().filter(|(_, limit)| limit.enabled) {
        let path = |key: &str| format!("limits[{index}].{key}");
        if limit.send.is_none() && limit.receive.is_none() && limit.rate.is_none() {
            return Err(refuse.say(&format!("limits[{index}]"), "nothing", "at least one of send, receive and rate"));
        }
        let config = HostLimit {
            hosts: limit_hosts(refuse, &path("hosts"), &limit.hosts, topology, jobs)?,
            send_packets_per_second: limit.send.map(|rate| rate.0),
            receive_packets_per_second: limit.receive.map(|rate| rate.0),
            send_bits_per_second: limit.rate.map(|rate| rate.0),
            receive_queue_packets: limit.receive_queue.0,
            receive_mark_packets: limit.receive_mark.map_or(u32::MAX, |packets| packets.0),
            from: Instant::ZERO + limit.from.0,
            until: limit.until.map_or(Instant::FAR_FUTURE, |until| Instant::ZERO + until.0),
        };
        config.check(index).map_err(|error| refuse.setup(&error))?;
        made.push(config);
    }
    Ok(made)
}

fn limit_hosts(
    refuse: &Refuse<'_>,
    path: &str,
    hosts: &LimitHosts,
    topology: &Topology,
    jobs: &[PreparedJob],
) -> Result<Vec<NodeId>, PlanError> {
    let count = topology.map.hosts();
    let mut chosen: Vec<NodeId> = match hosts {
        LimitHosts::All => (0..count).map(NodeId).collect(),
        LimitHosts::Workers => jobs.iter().flat_map(|job| job.hosts.iter().copied()).collect(),
        LimitHosts::Servers => jobs.iter().flat_map(|job| job.servers.iter().copied()).collect(),
        LimitHosts::Of(who) => vec![member(refuse, path, *who, jobs)?],
        LimitHosts::Hosts(listed) => {
            if let Some((place, host)) = listed.iter().enumerate().find(|(_, host)| **host >= count) {
                return Err(refuse.say(&format!("{path}[{place}]"), host, format!("hosts from 0 to {}", count - 1)));
            }
            listed.iter().copied().map(NodeId).collect()
        }
    };
    chosen.sort_unstable();
    chosen.dedup();
    Ok(chosen)
}
