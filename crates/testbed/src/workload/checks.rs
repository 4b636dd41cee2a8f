//! Names, sizes and times of a workload, held against the fabric.

use fanin_core::{Duration, ElementOp, NodeId};
use fanin_fabric::Fabric;
use fanin_plan::idle::Mode;
use fanin_plan::units::bytes_about;
use fanin_plan::{PlanError, Refuse};
use fanin_systems::{System, check_collective};

use crate::memory::available_bytes;

use super::words::{Action, Load, Values};
use super::{Event, Hosts, Job, Traffic, Workload};
use crate::host::messages::{KindName, Operations};

/// With all headers this is just less than a datagram can hold.
const PAYLOAD_BYTES_MAX: u64 = 65_000;
/// A vector, its result and what lies in between have to fit into the memory of one machine, many times.
const MESSAGE_BYTES_MAX: u64 = 4 << 30;

/// Shorter than this nothing can be told apart where processes share cores.
const SERIES_INTERVAL_MIN: Duration = Duration::from_ms(10);

/// Everything that can be known before the first process is started.
///
/// # Errors
/// [`PlanError`] with file, line, key, value and what was expected.
pub(super) fn check(refuse: &Refuse<'_>, workload: &Workload, fabric: &Fabric) -> Result<(), PlanError> {
    let mut taken: Vec<(&str, usize)> = Vec::new();
    for (index, job) in workload.jobs.iter().enumerate() {
        check_hosts(refuse, job, index, fabric, &mut taken)?;
        check_sizes(refuse, job, index)?;
        check_system(refuse, job, index, fabric)?;
        check_keys(refuse, job, index)?;
        check_values(refuse, job, index)?;
    }
    check_memory(refuse, &workload.jobs)?;
    check_shared(refuse, &workload.jobs)?;
    for (index, traffic) in workload.general.traffic.iter().enumerate() {
        check_traffic(refuse, traffic, index, fabric)?;
    }
    for (index, event) in workload.general.event.iter().enumerate() {
        check_event(refuse, event, index, workload, fabric)?;
    }
    check_restarts(refuse, workload)?;
    if workload.general.run.series_interval.is_some_and(|interval| interval.0 < SERIES_INTERVAL_MIN) {
        return Err(refuse.at("run.series_interval", "at least 10ms: a switch that is asked more often does little else"));
    }
    if workload.general.run.time_limit.0 == Duration::ZERO {
        return Err(refuse.at("run.time_limit", "a time above 0"));
    }
    Ok(())
}

fn host_names(fabric: &Fabric) -> String {
    fabric.hosts().map(|host| fabric.name(host)).collect::<Vec<_>>().join(", ")
}

/// The host with this name.
fn host(refuse: &Refuse<'_>, path: &str, name: &str, fabric: &Fabric) -> Result<NodeId, PlanError> {
    let found = fabric.node_named(name).filter(|node| fabric.map.is_host(*node));
    found.ok_or_else(|| refuse.say(path, format_args!("{name:?}"), format!("one of the fabric's hosts: {}", host_names(fabric))))
}

fn check_hosts<'a>(
    refuse: &Refuse<'_>,
    job: &'a Job,
    index: usize,
    fabric: &Fabric,
    taken: &mut Vec<(&'a str, usize)>,
) -> Result<(), PlanError> {
    for (rank, name) in job.hosts.iter().enumerate() {
        let path = if job.common.hosts == Hosts::All { format!("job[{index}].hosts") } else { format!("job[{index}].hosts[{rank}]") };
        host(refuse, &path, name, fabric)?;
        match taken.iter().find(|(other, _)| *other == name.as_str()) {
            Some((_, other)) if *other == index => return Err(refuse.say(&path, format_args!("{name:?}"), "each host once")),
            Some((_, other)) => {
                return Err(refuse.say(&path, format_args!("{name:?}"), format!("a host without a worker: job[{other}] has one there")));
            }
            None => taken.push((name, index)),
        }
    }
    if job.hosts.is_empty() {
        return Err(refuse.at(&format!("job[{index}].hosts"), "at least one host"));
    }
    for (number, name) in job.common.servers.iter().enumerate() {
        let path = format!("job[{index}].servers[{number}]");
        host(refuse, &path, name, fabric)?;
        if job.hosts.contains(name) {
            let expected = "a host without a worker of the job; without servers it is at the host of rank 0";
            return Err(refuse.say(&path, format_args!("{name:?}"), expected));
        }
        if job.common.servers[..number].contains(name) {
            return Err(refuse.say(&path, format_args!("{name:?}"), "each host once"));
        }
    }
    Ok(())
}

/// What the registry of systems says of a job, and of its operations.
fn check_system(refuse: &Refuse<'_>, job: &Job, index: usize, fabric: &Fabric) -> Result<(), PlanError> {
    let path = |key: &str| format!("job[{index}].{key}");
    let announcement = job.announcement(index, fabric, 0);
    let kind = Operations { kind: job.common.collective, elements: 0, count: 1, root: 0 }.call().into();
    let sizes = (job.common.message.0, job.op.dtype.bytes() as u64, job.common.payload.0);
    let checked = announcement.check(&fabric.map).and_then(|()| check_collective(&job.system, kind, job.hosts.len() as u32, sizes));
    checked.map_err(|error| {
        let path = path(&error.field);
        if refuse.has(&path) { refuse.at(&path, error.expected) } else { refuse.say(&path, error.value, error.expected) }
    })
}

/// Sums that are rounded are held against those of longer floats, and their bits against those of the other workers.
fn check_values(refuse: &Refuse<'_>, job: &Job, index: usize) -> Result<(), PlanError> {
    let path = format!("job[{index}].values");
    let is_sum = job.op == ElementOp::F32_SUM && job.operator.is_none();
    match job.common.values {
        Values::Rounded if !is_sum => Err(refuse.at(&path, "\"whole\", unless elements are \"f32\" that are summed")),
        Values::Rounded if job.common.collective != KindName::Allreduce => {
            Err(refuse.at(&path, "\"whole\", unless all workers get all of the sum"))
        }
        Values::Rounded if job.system.fixed_point() => Err(refuse.at(&path, "\"whole\": sums of fixed point are those of integers")),
        Values::Rounded if job.system.goes_on_without_workers() => {
            Err(refuse.at(&path, format!("\"whole\": which workers are in a sum of {} is not known before", job.system.name())))
        }
        Values::Rounded | Values::Whole => Ok(()),
    }
}

/// Keys that another key makes meaningless.
fn check_keys(refuse: &Refuse<'_>, job: &Job, index: usize) -> Result<(), PlanError> {
    let mode =
        Mode { system: job.system, element: job.common.element, reliable: job.common.reliable, servers: !job.common.servers.is_empty() };
    let path = |key: &str| format!("job[{index}].{key}");
    match mode.unused().find(|(key, _)| refuse.has(&path(key))) {
        Some((key, expected)) => Err(refuse.at(&path(key), format!("no such key {expected}"))),
        None => Ok(()),
    }
}

/// Vectors of all workers, their results and what they must be have to fit into this machine's memory, where that is known.
fn check_memory(refuse: &Refuse<'_>, jobs: &[Job]) -> Result<(), PlanError> {
    let bytes = |job: &Job| job.common.message.0.saturating_mul(3).saturating_mul(job.hosts.len() as u64);
    let all = jobs.iter().map(bytes).fold(0, u64::saturating_add);
    let Some(available) = available_bytes().filter(|available| all > *available) else { return Ok(()) };
    let largest = jobs.iter().enumerate().max_by_key(|(_, job)| bytes(job)).map_or(0, |(index, _)| index);
    let expected = format!(
        "less: vectors of all workers and jobs take about {}, and {} of memory are available",
        bytes_about(all),
        bytes_about(available)
    );
    Err(refuse.at(&format!("job[{largest}].message"), expected))
}

/// Jobs of ATP and A2TP share the aggregators of their switches, which the first of them brings, and those of Canary that say so the arrays of
/// descriptors.
fn check_shared(refuse: &Refuse<'_>, jobs: &[Job]) -> Result<(), PlanError> {
    check_arrays(refuse, jobs)?;
    let aggregators = |job: &Job| match job.system {
        System::Atp(parameters) => Some(parameters.aggregators),
        System::A2tp(parameters) => Some(parameters.aggregators),
        _ => None,
    };
    let mut sharing = jobs.iter().enumerate().filter_map(|(index, job)| Some((index, job, aggregators(job)?)));
    let Some((first, brought, count)) = sharing.next() else { return Ok(()) };
    for (index, job, own) in sharing {
        if own != count {
            let expected = format!("{count}, as job[{first}] has it: they share the aggregators of their switches");
            return Err(refuse.say(&format!("job[{index}].aggregators"), own, expected));
        }
        let (payload, most) = (job.common.payload.0, brought.common.payload.0);
        if payload > most {
            let expected = format!("at most {most}, the length of the aggregators that job[{first}] brings");
            return Err(refuse.say(&format!("job[{index}].payload"), payload, expected));
        }
    }
    Ok(())
}

fn check_arrays(refuse: &Refuse<'_>, jobs: &[Job]) -> Result<(), PlanError> {
    let sharing = |job: &Job| match job.system {
        System::Canary(parameters) if parameters.shared => Some(parameters),
        _ => None,
    };
    let mut sharing = jobs.iter().enumerate().filter_map(|(index, job)| Some((index, sharing(job)?)));
    let Some((first, brought)) = sharing.next() else { return Ok(()) };
    for (index, own) in sharing {
        if own.descriptors != brought.descriptors {
            let expected = format!("{}, as job[{first}] has it: they share the descriptors of their switches", brought.descriptors);
            return Err(refuse.say(&format!("job[{index}].descriptors"), own.descriptors, expected));
        }
        if own.placement != brought.placement {
            let path = format!("job[{index}].table");
            let expected = format!("as job[{first}] has it: they share the arrays of their switches");
            return Err(if refuse.has(&path) { refuse.at(&path, expected) } else { refuse.say(&path, "\"hash\"", expected) });
        }
    }
    Ok(())
}

fn check_sizes(refuse: &Refuse<'_>, job: &Job, index: usize) -> Result<(), PlanError> {
    let path = |key: &str| format!("job[{index}].{key}");
    let element_bytes = job.op.dtype.bytes() as u64;
    let expected = format!("a multiple of {element_bytes} bytes, the length of an element");
    if !job.common.message.0.is_multiple_of(element_bytes) {
        return Err(refuse.at(&path("message"), expected));
    }
    if job.common.message.0 > MESSAGE_BYTES_MAX {
        return Err(refuse.at(&path("message"), "at most 4GiB"));
    }
    check_payload(refuse, &path("payload"), job.common.payload.0)?;
    if !job.common.payload.0.is_multiple_of(element_bytes) {
        return Err(if refuse.has(&path("payload")) {
            refuse.at(&path("payload"), expected)
        } else {
            refuse.say(&path("payload"), job.common.payload.0, expected)
        });
    }
    Ok(())
}

fn check_payload(refuse: &Refuse<'_>, path: &str, bytes: u64) -> Result<(), PlanError> {
    if (1..=PAYLOAD_BYTES_MAX).contains(&bytes) { Ok(()) } else { Err(refuse.at(path, format!("1 to {PAYLOAD_BYTES_MAX} bytes"))) }
}

fn check_traffic(refuse: &Refuse<'_>, traffic: &Traffic, index: usize, fabric: &Fabric) -> Result<(), PlanError> {
    let path = |key: &str| format!("traffic[{index}].{key}");
    let from = host(refuse, &path("from"), &traffic.from, fabric)?;
    let to = host(refuse, &path("to"), &traffic.to, fabric)?;
    if from == to {
        return Err(refuse.at(&path("to"), "another host than the one that sends"));
    }
    check_payload(refuse, &path("payload"), traffic.payload.0)?;
    let (leaf, other_leaf) = (fabric.map.leaf_of(from), fabric.map.leaf_of(to));
    if let (Load::Rate(rate), Some(leaf)) = (traffic.rate, leaf)
        && let Some(link) = fabric.link(from, leaf.node)
        && rate > link.settings.bits_per_second
    {
        return Err(refuse.at(&path("rate"), format!("at most the rate of {}'s link, {} b/s", traffic.from, link.settings.bits_per_second)));
    }
    if let (Some(name), Some(leaf), Some(other_leaf)) = (&traffic.via, leaf, other_leaf) {
        let (leaf, other_leaf) = (leaf.node, other_leaf.node);
        if leaf == other_leaf {
            return Err(refuse.at(&path("via"), format!("no such key: {} and {} are on one leaf", traffic.from, traffic.to)));
        }
        let above =
            fabric.map.neighbours(leaf).iter().map(|next| next.node).filter(|node| fabric.map.level(*node) > fabric.map.level(leaf));
        let names: Vec<&str> = above.map(|node| fabric.name(node)).collect();
        if !names.contains(&name.as_str()) {
            let expected = format!("a switch above {}: {}", fabric.name(leaf), names.join(", "));
            return Err(refuse.say(&path("via"), format_args!("{name:?}"), expected));
        }
    }
    match traffic.stop {
        Some(stop) if stop.0 <= traffic.start.0 => Err(refuse.at(&path("stop"), "a time after start")),
        _ => Ok(()),
    }
}

fn check_event(refuse: &Refuse<'_>, event: &Event, index: usize, workload: &Workload, fabric: &Fabric) -> Result<(), PlanError> {
    let path = |key: &str| format!("event[{index}].{key}");
    let Some(node) = fabric.node_named(&event.node) else {
        let all: Vec<&str> = fabric.nodes().iter().map(|node| node.name.as_str()).collect();
        return Err(refuse.say(&path("node"), format_args!("{:?}", event.node), format!("one of the fabric's nodes: {}", all.join(", "))));
    };
    if event.action == Action::Restart && fabric.map.is_host(node) {
        return Err(refuse.at(&path("node"), "a switch: a worker that has died cannot join its job again"));
    }
    if event.at.is_some() == event.progress.is_some() {
        let key = if event.at.is_some() { "progress" } else { "at" };
        return Err(refuse.at(&path(key), "either at, a time, or progress, a share of an operation"));
    }
    if event.progress.is_none() {
        let given = [("operation", event.operation.is_some()), ("job", event.job.is_some())];
        return match given.iter().find(|(_, given)| *given) {
            Some((key, _)) => Err(refuse.at(&path(key), "no such key without progress")),
            None => Ok(()),
        };
    }
    let Some(job) = workload.jobs.get(event.job.unwrap_or(0) as usize) else {
        return Err(refuse.at(&path("job"), format!("a job from 0 to {}", workload.jobs.len() - 1)));
    };
    let tell = |system| {
        matches!(system, System::Canary(_) | System::SwitchMl(_) | System::Atp(_) | System::A2tp(_) | System::Rina(_) | System::Flare(_))
    };
    if !tell(job.system) {
        let expected = format!("at, a time: workers of {} do not say how far they are", job.system.name());
        return Err(refuse.at(&path("progress"), expected));
    }
    let operations = job.common.operations.0;
    if event.operation.unwrap_or(0) >= operations {
        return Err(refuse.at(&path("operation"), format!("an operation from 0 to {}", operations - 1)));
    }
    Ok(())
}

/// Who is started again has been killed before, and who goes on has been stopped: by an earlier event of the file.
fn check_restarts(refuse: &Refuse<'_>, workload: &Workload) -> Result<(), PlanError> {
    let events = &workload.general.event;
    for (index, event) in events.iter().enumerate() {
        let needed = match event.action {
            Action::Restart => Action::Kill,
            Action::Resume => Action::Pause,
            Action::Kill | Action::Pause => continue,
        };
        if !events[..index].iter().any(|earlier| earlier.action == needed && earlier.node == event.node) {
            let expected = format!("a {} of {} in an event above this one", needed.name(), event.node);
            return Err(refuse.at(&format!("event[{index}].action"), expected));
        }
    }
    Ok(())
}
