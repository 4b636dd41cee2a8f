//! From what a run has given to its record.

use std::collections::BTreeMap;
use std::sync::Arc;

use fanin_core::{CollectiveKind, Duration, Failure, Instant, Suspect, Tally};
use fanin_sim::faults::TimedFault;
use fanin_sim::metrics::{Ended, Tallies};
use fanin_sim::{JobResult, RunResult, Shape, Topology};
use fanin_systems::{CanaryParameters, FanInRule, System};
use fanin_workload::CollectiveKind as Word;

use super::by_model;
use super::iterations::{Times, mean};
use super::percentiles::{Percentiles, median};
use super::record::{DeathRecord, JobRecord, LinkRecord, ManyJobs, RunRecord};
use super::workload::record as workload_record;
use crate::build::{Listed, Prepared};
use crate::jobs::collective::{kind_of, vectors_in_all};
use crate::jobs::{PreparedJob, reproducible};
use crate::schema::PayloadName;

/// The records of the plan's jobs, in their order.
fn job_records(prepared: &Prepared, result: &RunResult) -> Vec<JobRecord> {
    let one = |listed: &Listed| match *listed {
        Listed::Job(number) => job_record(number, &prepared.jobs[number], result, prepared),
        Listed::Program(number) => program_record(number, result, prepared),
    };
    prepared.listed.iter().map(one).collect()
}

/// Jobs without a workload: those of the network that come first.
fn ordinary<'a>(prepared: &Prepared, result: &'a RunResult) -> impl Iterator<Item = &'a JobResult> {
    let count = prepared.listed.iter().filter(|listed| matches!(listed, Listed::Job(_))).count();
    result.jobs.iter().take(count)
}

/// The mean of what every job has; `None` where one has not.
fn mean_of_all(jobs: &[&JobRecord], value: fn(&JobRecord) -> Option<f64>) -> Option<f64> {
    let sum: Option<f64> = jobs.iter().map(|job| value(job)).sum();
    sum.filter(|_| !jobs.is_empty()).map(|sum| sum / jobs.len() as f64)
}

/// The record of a run; what only the plan knows is left empty.
pub fn record(prepared: &Prepared, topology: &Topology, result: &RunResult, payload: PayloadName) -> RunRecord {
    let jobs = job_records(prepared, result);
    let mut systems: Vec<&str> = jobs.iter().map(|job| job.system).collect();
    systems.dedup();
    let lasting: Vec<&JobRecord> = jobs.iter().filter(|job| job.crashed_us.is_none()).collect();
    let slowest = lasting.iter().map(|job| job.completion_us).reduce(|a, b| Some(a?.max(b?))).flatten();
    let leaves = Leaves::of(topology, result);
    let share = |used| share_of_links(result, used);
    let from_switch = |link: &&fanin_sim::metrics::LinkResult| link.from >= topology.map.hosts();
    let mut all = Tallies::default();
    result.tallies.iter().for_each(|tallies| all.add(tallies));
    let blocks = Percentiles::of(&all.block_times);
    let operations = Percentiles::exactly(ordinary(prepared, result).flat_map(operation_times).collect());
    RunRecord {
        series: None,
        system: systems.join("+"),
        seed: prepared.scenario.seed,
        repetition: 0,
        params: Vec::new(),
        collective: joined(&jobs, |job| job.collective),
        ran: joined(&jobs, |job| job.ran),
        hosts: topology.map.hosts(),
        workers: jobs.iter().map(|job| job.workers).sum(),
        message_bytes: jobs.first().map_or(0, |job| job.message_bytes),
        congested: !prepared.scenario.traffic.is_empty() || !prepared.scenario.flows.is_empty(),
        completion_us: slowest,
        goodput_gbps: mean_of_all(&lasting, |job| job.goodput_gbps),
        simulated_bytes: None,
        steady_error: None,
        iteration_us: mean(lasting.iter().map(|job| job.iteration_us)),
        communication_us: mean(lasting.iter().map(|job| job.communication_us)),
        jct_us: mean_of_all(&lasting, |job| job.jct_us),
        many: ManyJobs::of(&lasting),
        link_utilization_mean: result.link_utilization_mean(),
        switch_bytes_peak: result.switch_bytes_peak(),
        cores_busy: result.cores_busy(),
        cores_locked: result.cores_locked(),
        core_wait_us: result.core_wait_us(),
        cluster_bytes_peak: result.cluster_bytes_peak(),
        cluster_waits: result.cluster_waits(),
        recirculation_busy: result.recirculation_busy(),
        switch_bytes_mean: result.slots.iter().map(|slots| slots.bytes_mean()).fold(0.0, f64::max),
        leaf_bytes_mean: leaves.bytes_mean,
        leaf_bytes_peak: leaves.bytes_peak,
        leaf_slot_us: leaves.slot_us,
        leaf_slots_per_packet: leaves.slots_per_packet(prepared),
        leaf_bytes_by_model: bytes_by_model(prepared),
        completion_by_model_us: by_model::completion_us(prepared),
        links_idle: share(0.0..0.01),
        links_busy: share(0.8..f64::INFINITY),
        links_between: share(0.01..0.8),
        links_70_to_90: share(0.7..0.9),
        queue_bytes_peak: result.links.iter().filter(from_switch).map(|link| link.queue_bytes_peak).max().unwrap_or(0),
        census: census(result, payload),
        packet_hops: result.packet_hops,
        link_bytes: result.links.iter().map(|link| link.bytes).sum(),
        packets_dropped: result.counters.dropped_total(),
        drops: result.counters.drops().collect(),
        packets_retransmitted: result.counters.retransmitted_total(),
        retransmissions: result.counters.retransmissions().collect(),
        blocks_begun_anew: result.counters.begun_anew().map(|(_, count)| count).sum(),
        begun_anew: result.counters.begun_anew().collect(),
        counts: Tally::ALL.iter().map(|tally| (tally.name(), all.total(*tally))).filter(|(_, count)| *count > 0).collect(),
        collided_share: collided_share(&all),
        leader_packets_per_block: leader_packets_per_block(&all),
        block_us_p50: blocks.map(|times| times.p50),
        block_us_p99: blocks.map(|times| times.p99),
        block_us_max: blocks.map(|times| times.max),
        operation_us_p50: operations.map(|times| times.p50),
        operation_us_p99: operations.map(|times| times.p99),
        operation_us_max: operations.map(|times| times.max),
        packets_marked: result.packets_marked,
        packets_trimmed: result.packets_trimmed,
        events: result.events,
        background_gbps: result.background_gbps,
        simulated_us: result.end.as_ps() as f64 / 1e6,
        ended: ended(result.ended),
        failure: failure(&jobs, result, prepared),
        jobs,
        wall_s: 0.0,
    }
}

/// Of all links those that were sending for such a share of the time.
fn share_of_links(result: &RunResult, used: std::ops::Range<f64>) -> f64 {
    let count = result.links.iter().filter(|link| used.contains(&link.utilization)).count();
    count as f64 / result.links.len().max(1) as f64
}

/// What jobs say, each once where several in a row say the same; nothing where none does.
fn joined(jobs: &[JobRecord], said: impl Fn(&JobRecord) -> Option<&'static str>) -> Option<String> {
    let mut all: Vec<&str> = jobs.iter().filter_map(said).collect();
    all.dedup();
    (!all.is_empty()).then(|| all.join("+"))
}

/// Why a run was over, as results have it.
fn ended(ended: Ended) -> &'static str {
    match ended {
        Ended::JobsDone => "jobs_done",
        Ended::TrafficDone => "traffic_done",
        Ended::Stuck => "stuck",
        Ended::Deadlock => "deadlock",
        Ended::TimeLimit => "time_limit",
    }
}

/// Memory of the switches that hosts hang on.
struct Leaves {
    bytes_mean: f64,
    bytes_peak: u64,
    slot_us: Option<f64>,
    /// Slots taken, mean over leaves.
    slots_taken: f64,
}

impl Leaves {
    fn of(topology: &Topology, result: &RunResult) -> Leaves {
        let hosts = topology.map.hosts();
        let mut is_leaf = vec![false; result.slots.len()];
        for host in 0..hosts {
            if let Some(leaf) = topology.map.leaf_of(fanin_core::NodeId(host)) {
                is_leaf[(leaf.node.0 - hosts) as usize] = true;
            }
        }
        let used: Vec<_> =
            result.slots.iter().zip(is_leaf).filter(|(slots, leaf)| *leaf && slots.taken > 0).map(|(slots, _)| slots).collect();
        let taken: u64 = used.iter().map(|slots| slots.taken).sum();
        let held_ps: u128 = used.iter().map(|slots| slots.held_ps()).sum();
        Leaves {
            bytes_mean: used.iter().map(|slots| slots.bytes_mean()).sum::<f64>() / used.len().max(1) as f64,
            bytes_peak: used.iter().map(|slots| slots.bytes_peak).max().unwrap_or(0),
            slot_us: (taken > 0).then(|| held_ps as f64 / taken as f64 / 1e6),
            slots_taken: taken as f64 / used.len().max(1) as f64,
        }
    }

    fn slots_per_packet(&self, prepared: &Prepared) -> Option<f64> {
        let ([job], [schedule]) = (prepared.jobs.as_slice(), prepared.scenario.jobs.as_slice()) else { return None };
        let packet_elements = job.settings.common.payload.0 / u64::from(schedule.element_bytes);
        let packets: u64 = schedule.elements.iter().map(|elements| elements.div_ceil(packet_elements)).sum();
        (packets > 0 && self.slots_taken > 0.0).then(|| self.slots_taken / packets as f64)
    }
}

/// `canary 6`: b (2d (l + t) + r), the rate of a host times the longest time to the leader and back, where each switch waits for its
/// timeout, and r is the leader's time.
fn bytes_by_model(prepared: &Prepared) -> Option<f64> {
    let [job] = prepared.jobs.as_slice() else { return None };
    if kind_of(job) != CollectiveKind::Allreduce {
        return None;
    }
    // The model has one timeout for all, exactly; a root that sends as soon as all is here may wait longer for the last contribution, but no longer
    // than the model has that on its way.
    let System::Canary(CanaryParameters {
        timeout_ps,
        timeout_adaptive: false,
        timeout_spine_ps: None,
        timeout_root_ps,
        scan_ps: 0,
        fan_in: FanInRule::Unknown,
        leader_time_ps,
        ..
    }) = job.system
    else {
        return None;
    };
    let (rate, hops, path_ps) = match prepared.scenario.network.shape {
        Shape::Star { link, .. } => (link.bits_per_second, 2, 2 * link.latency.as_ps()),
        Shape::FatTree2 { host_link, fabric_link, .. } => {
            (host_link.bits_per_second, 4, 2 * (host_link.latency.as_ps() + fabric_link.latency.as_ps()))
        }
        Shape::FatTree3 { host_link, fabric_link, .. } => {
            (host_link.bits_per_second, 6, 2 * host_link.latency.as_ps() + 4 * fabric_link.latency.as_ps())
        }
        // Ways differ in length.
        Shape::Dragonfly { .. } | Shape::Wired(_) => return None,
    };
    let up_ps = path_ps + hops * timeout_ps;
    let is_one = timeout_root_ps.is_none_or(|root_ps| root_ps <= up_ps);
    is_one.then(|| rate as f64 / 8.0 * (2 * up_ps + leader_time_ps) as f64 / 1e12)
}

/// Of the packets that came to a switch to be added, those that were not since another block had their place.
fn collided_share(tallies: &Tallies) -> Option<f64> {
    let [summed, stragglers, collided] = [Tally::Summed, Tally::Straggler, Tally::Collision].map(|tally| tallies.total(tally));
    (summed > 0).then(|| collided as f64 / (summed + stragglers + collided) as f64)
}

fn leader_packets_per_block(tallies: &Tallies) -> Option<f64> {
    let [packets, blocks] = [Tally::LeaderPacket, Tally::LeaderBlock].map(|tally| tallies.total(tally));
    (blocks > 0).then(|| packets as f64 / blocks as f64)
}

/// What a job's nodes have counted, by what and where.
fn counts(tallies: &Tallies) -> BTreeMap<&'static str, BTreeMap<&'static str, u64>> {
    let at = |tally: Tally| Tallies::LEVELS.iter().enumerate().map(move |(level, name)| (*name, tallies.at(level, tally)));
    let of = |tally: &Tally| (tally.name(), at(*tally).filter(|(_, count)| *count > 0).collect::<BTreeMap<_, _>>());
    Tally::ALL.iter().map(of).filter(|(_, levels)| !levels.is_empty()).collect()
}

/// Times of the operations of a job that have completed.
fn operation_times(job: &JobResult) -> impl Iterator<Item = f64> + '_ {
    (0..job.message_bytes.len()).filter_map(|operation| job.completion(operation)).map(Duration::as_us_f64)
}

fn census(result: &RunResult, payload: PayloadName) -> String {
    if let Some(what) = result.broken.first() {
        return format!("wrong: broken invariant: {what}");
    }
    let verdict = &result.verdict;
    match &verdict.first_wrong {
        Some(first) => format!("wrong: {} pieces; {first}", verdict.wrong),
        None if payload == PayloadName::Length => "off".into(),
        None => "exact".into(),
    }
}

/// Why not every job completed.
fn failure(jobs: &[JobRecord], result: &RunResult, prepared: &Prepared) -> Option<String> {
    if result.ended == Ended::Deadlock {
        let circle = result.deadlock.iter().map(|(from, to)| format!("{from} to {to}")).collect::<Vec<_>>().join(", ");
        return Some(format!("deadlock: each of these links waits for the next: {circle}"));
    }
    if let Some(text) = jobs.iter().find_map(|job| job.failure.clone()) {
        return Some(match result.ended {
            Ended::Stuck => format!("stuck, nothing moves any more: {text}"),
            Ended::TimeLimit => format!("time limit of {} reached: {text}", prepared.scenario.time_limit),
            Ended::JobsDone | Ended::TrafficDone | Ended::Deadlock => text,
        });
    }
    (jobs.is_empty() && result.ended == Ended::TimeLimit)
        .then(|| format!("time limit of {} reached before the traffic was through", prepared.scenario.time_limit))
}

/// Length of the vector that each worker brings, or ends with: of one operation, or of those of an iteration together, with what rounding up
/// shares adds.
fn message_bytes(job: &PreparedJob, ran: &JobResult) -> u64 {
    let common = &job.settings.common;
    let planned = common.message_bytes(job.op.dtype.bytes() as u64);
    if kind_of(job) == CollectiveKind::Allreduce {
        return planned;
    }
    let operations = common.tensors(planned) as usize;
    ran.message_bytes.iter().take(operations).sum::<u64>() / vectors_in_all(kind_of(job))
}

/// The vector's length over the time of an operation; a barrier has none.
fn goodput_gbps(job: &PreparedJob, ran: &JobResult, operation: usize) -> Option<f64> {
    match kind_of(job) {
        CollectiveKind::Barrier => None,
        kind => ran.goodput_gbps(operation).map(|in_all| in_all / vectors_in_all(kind) as f64),
    }
}

fn job_record(number: usize, job: &PreparedJob, result: &RunResult, prepared: &Prepared) -> JobRecord {
    let (ran, slots, tallies) = (&result.jobs[number], &result.job_slots[number], &result.tallies[number]);
    let operations = ran.message_bytes.len();
    let over_operations = |value: &dyn Fn(usize) -> Option<f64>| -> Option<f64> {
        let sum: Option<f64> = (0..operations).map(value).sum();
        sum.map(|sum| sum / operations as f64)
    };
    let workers_us: Vec<(u32, Option<f64>)> = ran
        .workers
        .iter()
        .map(|worker| {
            let done = worker.operations.len() == operations && worker.operations.iter().all(|operation| operation.failure.is_none());
            let begin = worker.operations.first().map_or(Instant::ZERO, |first| first.submitted);
            let end = worker.operations.last().and_then(|last| last.ended).filter(|_| done);
            (worker.host, end.map(|end| end.since(begin).as_us_f64()))
        })
        .collect();
    let mut times: Vec<f64> = workers_us.iter().filter_map(|(_, time)| *time).collect();
    times.sort_by(f64::total_cmp);
    let phases = Times::of(ran, reproducible::sums_of_iteration(&prepared.scenario.jobs[number]));
    JobRecord {
        servers: job.servers.len() as u32,
        slots_mean: slots.slots_mean(),
        slots_peak: slots.slots_peak,
        counts: counts(tallies),
        collided_share: collided_share(tallies),
        leader_packets_per_block: leader_packets_per_block(tallies),
        block_us: Percentiles::of(&tallies.block_times),
        operation_us: if ran.is_complete() { Percentiles::exactly(operation_times(ran).collect()) } else { None },
        begun_us: ran.begun.since(Instant::ZERO).as_us_f64(),
        jct_us: phases.jct_us,
        alone_us: None,
        slowdown: None,
        iteration_us: phases.iteration_us,
        communication_us: phases.communication_us,
        crashed_us: ran.crashed.map(|at| at.since(Instant::ZERO).as_us_f64()),
        iterations_us: phases.iterations_us,
        entry: job.listed,
        system: job.settings.system.name(),
        collective: job.settings.common.collective.map(Word::name),
        ran: job.settings.common.collective.map(|_| job.system.name()),
        workers: job.hosts.len() as u32,
        operator: job.operator_name(),
        message_bytes: message_bytes(job, ran),
        operations: operations as u32,
        completion_us: over_operations(&|operation| ran.completion(operation).map(Duration::as_us_f64)),
        goodput_gbps: over_operations(&|operation| goodput_gbps(job, ran, operation)),
        worker_us_min: times.first().copied(),
        worker_us_median: median(&times),
        worker_us_max: times.last().copied(),
        failure: (!ran.is_complete() && ran.crashed.is_none()).then(|| job_failure(number, job, ran, prepared)),
        without: ran.without(operations.saturating_sub(1)).iter().map(|rank| rank.0).collect(),
        deaths: deaths(job, prepared),
        workers_us,
        workload: None,
        together: BTreeMap::new(),
        swing: BTreeMap::new(),
        first_us: BTreeMap::new(),
    }
}

/// A job with a workload.
fn program_record(number: usize, result: &RunResult, prepared: &Prepared) -> JobRecord {
    let (program, ran) = (&prepared.programs[number], &result.programs[number]);
    let lanes = || program.job.lanes.iter().filter_map(|lane| lane.job).map(usize::from);
    let mut tallies = Tallies::default();
    lanes().for_each(|lane| tallies.add(&result.tallies[lane]));
    let workload = workload_record::record(program, ran);
    let (head, us) = (&program.head, |at: Instant| at.since(Instant::ZERO).as_us_f64());
    // What pods do are allreduces, one after the other.
    let sums = head.settings.across.map(|_| head.settings.common.operations.0);
    let message_bytes = sums.map_or(0, |_| head.settings.common.message_bytes(head.op.dtype.bytes() as u64));
    let operations = sums.unwrap_or_else(|| program.job.lanes.iter().map(|lane| lane.operations.len() as u32).sum());
    let completion_us = sums.and_then(|sums| Some(workload_record::total_us(program, ran)? / f64::from(sums)));
    JobRecord {
        entry: head.listed,
        system: head.system.name(),
        collective: None,
        ran: None,
        workers: head.hosts.len() as u32,
        operator: None,
        message_bytes,
        operations,
        completion_us,
        goodput_gbps: completion_us.map(|us| message_bytes as f64 * 8.0 / us / 1e3).filter(|_| message_bytes > 0),
        servers: head.servers.len() as u32,
        slots_mean: lanes().map(|lane| result.job_slots[lane].slots_mean()).sum(),
        slots_peak: lanes().map(|lane| result.job_slots[lane].slots_peak).sum(),
        counts: counts(&tallies),
        collided_share: collided_share(&tallies),
        leader_packets_per_block: leader_packets_per_block(&tallies),
        block_us: Percentiles::of(&tallies.block_times),
        operation_us: None,
        begun_us: program.arrives.as_us_f64(),
        jct_us: workload_record::total_us(program, ran),
        alone_us: None,
        slowdown: None,
        // Pods have operations, and no iterations.
        iteration_us: if sums.is_some() { None } else { workload_record::step_us(program, ran) },
        communication_us: workload.exposed_us,
        crashed_us: ran.crashed.map(us),
        worker_us_min: None,
        worker_us_median: None,
        worker_us_max: None,
        failure: (ran.ended.is_none() && ran.crashed.is_none()).then(|| workload_record::failure(program, ran, prepared)),
        without: Vec::new(),
        deaths: deaths(head, prepared),
        workers_us: Vec::new(),
        iterations_us: Vec::new(),
        workload: Some(workload),
        together: BTreeMap::new(),
        swing: BTreeMap::new(),
        first_us: BTreeMap::new(),
    }
}

fn deaths(job: &PreparedJob, prepared: &Prepared) -> Vec<DeathRecord> {
    let mut all: Vec<(Instant, DeathRecord)> = Vec::new();
    for fault in &prepared.scenario.faults.timed {
        let TimedFault::HostDies { host, at } = *fault else { continue };
        let Some(rank) = job.hosts.iter().position(|own| *own == host) else { continue };
        let at_us = at.since(Instant::ZERO).as_us_f64();
        all.push((at, DeathRecord { rank: rank as u32, host: prepared.topology.name(host), at_us }));
    }
    all.sort_by_key(|(at, death)| (*at, death.rank));
    all.into_iter().map(|(_, death)| death).collect()
}

/// The failure that leads closest to the cause, with the hosts of the ranks that it names.
fn job_failure(number: usize, job: &PreparedJob, ran: &JobResult, prepared: &Prepared) -> String {
    let failures = ran.workers.iter().enumerate().flat_map(|(rank, worker)| {
        worker.operations.iter().filter_map(move |operation| operation.failure.as_ref()).map(move |failure| (rank, failure))
    });
    let clarity = |failure: &Failure| match failure.suspect {
        Suspect::Rank(_) => 0,
        Suspect::Switch(_) => 1,
        Suspect::Unknown => 2,
    };
    match failures.min_by_key(|(rank, failure)| (clarity(failure), *rank)) {
        Some((rank, failure)) => {
            let suspect = match failure.suspect {
                Suspect::Rank(suspect) => {
                    job.hosts.get(suspect.index()).map_or(String::new(), |host| format!(" on {}", prepared.topology.name(*host)))
                }
                Suspect::Switch(switch) => format!(" ({})", prepared.topology.name(switch)),
                Suspect::Unknown => String::new(),
            };
            format!("rank {rank} on host{} says: {failure}{suspect}", ran.workers[rank].host)
        }
        None => {
            let unfinished = |worker: &fanin_sim::WorkerResult| {
                worker.operations.len() < ran.message_bytes.len() || worker.operations.iter().any(|operation| operation.ended.is_none())
            };
            let count = ran.workers.iter().filter(|worker| unfinished(worker)).count();
            let first = ran.workers.iter().position(unfinished).unwrap_or(0);
            let host = ran.workers.get(first).map_or(0, |worker| worker.host);
            format!("job {number}: {count} of {} workers have not finished, the first is rank {first} on host{host}", ran.workers.len())
        }
    }
}

/// The links of a run.
pub fn link_records(topology: &Topology, result: &RunResult) -> Vec<LinkRecord> {
    let names: Vec<Arc<str>> = (0..topology.map.nodes()).map(|node| topology.name(fanin_core::NodeId(node)).into()).collect();
    let name = |node: u32| Arc::clone(&names[node as usize]);
    let of_link = |link: &fanin_sim::metrics::LinkResult| LinkRecord {
        from: name(link.from),
        to: name(link.to),
        bytes: link.bytes,
        packets: link.packets,
        utilization: link.utilization,
        queue_bytes_peak: link.queue_bytes_peak,
        packets_dropped: link.packets_dropped,
    };
    result.links.iter().map(of_link).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_number_is_between_the_middle_two() {
        assert_eq!(median(&[]), None);
        assert_eq!(median(&[3.0]), Some(3.0));
        assert_eq!(median(&[1.0, 2.0, 4.0, 9.0]), Some(3.0));
    }
}
