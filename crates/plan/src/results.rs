//! Results: one record a run, written as JSON. Every field but `wall_s` depends on plan and seed only.

use std::collections::BTreeMap;
use std::io::{self, Write};

use fanin_core::{Duration, Failure, Histogram, Instant, Suspect, Tally};
use fanin_sim::faults::TimedFault;
use fanin_sim::metrics::{Ended, Tallies};
use fanin_sim::{JobResult, RunResult, Shape, Topology};
use fanin_systems::{CanaryParameters, FanInRule, System};
use serde::{Serialize, Serializer};

use crate::by_model;
use crate::iterations::{Times, mean};
use crate::schema::PayloadName;
use crate::workload::{WorkloadRecord, record as workload_record};
use crate::{Listed, Prepared, PreparedJob};

/// One run.
#[derive(Clone, Debug, Serialize)]
pub struct RunRecord {
    /// The series that the run belongs to; null where the plan has none.
    pub series: Option<String>,
    /// The system; several are joined by `+`.
    pub system: String,
    /// Seed of this run: a plan with this seed and one repetition gives the same run.
    pub seed: u64,
    /// Number of the repetition, from 0.
    pub repetition: u32,
    /// What the point sets.
    #[serde(serialize_with = "as_map")]
    pub params: Vec<(String, serde_json::Value)>,
    /// Hosts of the network.
    pub hosts: u32,
    /// Workers of all jobs.
    pub workers: u32,
    /// Length of the first job's vector.
    pub message_bytes: u64,
    /// Background traffic is present.
    pub congested: bool,
    /// Time of an operation from the first worker's beginning to the last one's end; the mean over a job's operations, of the slowest job.
    pub completion_us: Option<f64>,
    /// Vector's length over that time; the mean over all jobs.
    pub goodput_gbps: Option<f64>,
    /// Time of an iteration, mean over a job's iterations and then over jobs that train; null without any.
    pub iteration_us: Option<f64>,
    /// The same for the part of it from the first worker's submission to the last one's end.
    pub communication_us: Option<f64>,
    /// From a job's beginning to its end, mean over jobs; null where one did not complete. Jobs that crash do not count here and above.
    pub jct_us: Option<f64>,
    /// What only runs of several jobs have.
    #[serde(flatten)]
    pub many: ManyJobs,
    /// Mean over all links of the share of time in which they were sending.
    pub link_utilization_mean: f64,
    /// The most payload memory that any switch had in use.
    pub switch_bytes_peak: u64,
    /// The share of time for which the cores of the busiest switch had a packet; null where switches compute in no time.
    pub cores_busy: Option<f64>,
    /// The share of that for which they waited for each other, of all switches.
    pub cores_locked: Option<f64>,
    /// How long a packet waits for a core, mean over all switches.
    pub core_wait_us: Option<f64>,
    /// The mean over time of payload memory in use, at the switch where that is highest.
    pub switch_bytes_mean: f64,
    /// The same at a leaf, mean over all leaves that had any in use.
    pub leaf_bytes_mean: f64,
    /// The most that any leaf had in use.
    pub leaf_bytes_peak: u64,
    /// How long a leaf holds a slot, mean over all slots, from when each was taken and freed; null where none was taken.
    pub leaf_slot_us: Option<f64>,
    /// Slots that a leaf takes for a full packet of the vector, mean over leaves that took any; null for several jobs.
    pub leaf_slots_per_packet: Option<f64>,
    /// What Canary's paper expects a leaf to have in use (`canary 6`); null for other systems, adaptive timeouts and several jobs.
    pub leaf_bytes_by_model: Option<f64>,
    /// Time of an allreduce over machines by the formulas of NetReduce's paper; `None` for all others.
    pub completion_by_model_us: Option<f64>,
    /// Share of links that were sending in less than 1 % of the time.
    pub links_idle: f64,
    /// In 80 % of the time or more.
    pub links_busy: f64,
    /// In between.
    pub links_between: f64,
    /// In 70 % of the time or more, but less than 90 %.
    pub links_70_to_90: f64,
    /// The longest queue of a switch.
    pub queue_bytes_peak: u64,
    /// `exact`, `wrong: ...`, or `off` where the payload carries nothing that could be checked.
    pub census: String,
    /// Packets that left a transmitter.
    pub packet_hops: u64,
    /// Bytes on all links together, everything that a packet occupies there.
    pub link_bytes: u64,
    /// Packets dropped anywhere for any reason.
    pub packets_dropped: u64,
    /// The same by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Packets sent again for any reason.
    pub packets_retransmitted: u64,
    /// The same by reason.
    pub retransmissions: BTreeMap<&'static str, u64>,
    /// Blocks that were begun anew for a loss (Canary).
    pub blocks_begun_anew: u64,
    /// The same by the new generation, from 1 on.
    pub begun_anew: BTreeMap<u8, u64>,
    /// What nodes have counted beside packets, of all jobs together, by what it is; zeros left out.
    pub counts: BTreeMap<&'static str, u64>,
    /// Share of packets that found their place taken, of those that switches would have added to sums; null for systems that do not count
    /// what they add.
    pub collided_share: Option<f64>,
    /// Parts in which a leader gets a block: packets that were added, per block that is complete; null for systems without leaders.
    pub leader_packets_per_block: Option<f64>,
    /// How long a worker waits for a block from when it comes to it, median of all jobs' blocks; null for systems that do not tell.
    pub block_us_p50: Option<f64>,
    /// The 99th percentile.
    pub block_us_p99: Option<f64>,
    /// The longest.
    pub block_us_max: Option<f64>,
    /// Time of an operation as in `completion_us`, median of all jobs' operations.
    pub operation_us_p50: Option<f64>,
    /// The 99th percentile.
    pub operation_us_p99: Option<f64>,
    /// The longest.
    pub operation_us_max: Option<f64>,
    /// Packets marked (ECN).
    pub packets_marked: u64,
    /// Events of the simulator.
    pub events: u64,
    /// Payload of background traffic that arrived, per sending host.
    pub background_gbps: f64,
    /// Simulated time of the whole run.
    pub simulated_us: f64,
    /// Why the run ended: `jobs_done`, `traffic_done`, `stuck`, `deadlock`, `time_limit`.
    pub ended: &'static str,
    /// Why not every job completed; null where every one did.
    pub failure: Option<String>,
    /// By job.
    pub jobs: Vec<JobRecord>,
    /// Time that the simulation took. The only field that differs from machine to machine and run to run.
    pub wall_s: f64,
}

/// How long several jobs take, and what they take from each other.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize)]
pub struct ManyJobs {
    /// Of several jobs, from a job's beginning to its end: the median; null where one did not complete.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jct_us_p50: Option<f64>,
    /// The 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jct_us_p99: Option<f64>,
    /// The longest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub jct_us_max: Option<f64>,
    /// How many times as long jobs take as by themselves, mean over jobs; only where `run.alone` asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowdown_mean: Option<f64>,
    /// The 99th percentile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowdown_p99: Option<f64>,
    /// That of the job that is slowed down most.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowdown_max: Option<f64>,
    /// Jain's index of the goodput of jobs that run, mean over the intervals of the series in which at least two do.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness: Option<f64>,
    /// In the interval where it is lowest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fairness_min: Option<f64>,
}

impl ManyJobs {
    /// As far as it follows from these jobs themselves.
    fn of(jobs: &[&JobRecord]) -> Self {
        let times: Option<Vec<f64>> = jobs.iter().map(|job| job.jct_us).collect();
        match times.filter(|times| times.len() > 1).and_then(Percentiles::exactly) {
            Some(Percentiles { p50, p99, max }) => {
                ManyJobs { jct_us_p50: Some(p50), jct_us_p99: Some(p99), jct_us_max: Some(max), ..ManyJobs::default() }
            }
            None => ManyJobs::default(),
        }
    }
}

/// One job of a run.
#[derive(Clone, Debug, Serialize)]
pub struct JobRecord {
    /// Its place among the plan's `[[jobs]]`; copies, and jobs of a file, share it.
    pub entry: usize,
    /// Its system.
    pub system: &'static str,
    /// Its workers.
    pub workers: u32,
    /// What its plan says that values are reduced by; a module's file has its SHA-256 beside the name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub operator: Option<String>,
    /// Length of its vector.
    pub message_bytes: u64,
    /// Its operations.
    pub operations: u32,
    /// Mean time of an operation; null where one did not complete.
    pub completion_us: Option<f64>,
    /// Vector's length over the time of an operation, mean over operations.
    pub goodput_gbps: Option<f64>,
    /// Its servers.
    pub servers: u32,
    /// Slots that it had in use at all switches together, mean over the run.
    pub slots_mean: f64,
    /// The most at any time.
    pub slots_peak: u64,
    /// What its nodes have counted beside packets, by what it is and by where: `host`, `leaf`, `spine`, `core`; zeros left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub counts: BTreeMap<&'static str, BTreeMap<&'static str, u64>>,
    /// As of the run.
    pub collided_share: Option<f64>,
    /// As of the run.
    pub leader_packets_per_block: Option<f64>,
    /// How long its workers wait for blocks; null for systems that do not tell.
    pub block_us: Option<Percentiles>,
    /// Times of its operations; null where one did not complete.
    pub operation_us: Option<Percentiles>,
    /// When it began.
    pub begun_us: f64,
    /// From then to its end.
    pub jct_us: Option<f64>,
    /// The same for this job by itself, where `run.alone` asks for it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alone_us: Option<f64>,
    /// How many times as long it takes beside the others as by itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub slowdown: Option<f64>,
    /// Mean time of an iteration; null for jobs that do not train.
    pub iteration_us: Option<f64>,
    /// Mean time of its communication.
    pub communication_us: Option<f64>,
    /// When it crashed, if it did; then it did not complete and has not failed.
    pub crashed_us: Option<f64>,
    /// The fastest worker's time for all its operations.
    pub worker_us_min: Option<f64>,
    /// The median worker's.
    pub worker_us_median: Option<f64>,
    /// The slowest worker's.
    pub worker_us_max: Option<f64>,
    /// Why it did not complete.
    pub failure: Option<String>,
    /// Ranks that its last operation was completed without: they have died, or the others took them for dead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<u32>,
    /// Its workers that died, in the order of that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deaths: Vec<DeathRecord>,
    /// By rank: host, and time from the first submission to the last end. Only in files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workers_us: Vec<(u32, Option<f64>)>,
    /// Each iteration's time. Only in files.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub iterations_us: Vec<f64>,
    /// What it computed and communicated, where a workload says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadRecord>,
    /// Where jobs are sampled over time: means over the time in which all jobs run, without its first quarter. Only in files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub together: BTreeMap<&'static str, f64>,
    /// Over the same time, how far a quantity swings: from its 5th to its 95th percentile, over its mean. Without those whose mean is 0. Only in
    /// files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub swing: BTreeMap<&'static str, f64>,
    /// Where jobs are sampled over time: begin of the first interval in which a quantity is above 0, of those that begin when
    /// all jobs have begun. Only in files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub first_us: BTreeMap<&'static str, f64>,
}

/// Times, by how many are not longer.
#[derive(Clone, Copy, PartialEq, Debug, Serialize)]
pub struct Percentiles {
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Percentiles {
    /// Of times that were counted; the longest is exact, the others to within a 64th.
    fn of(times: &Histogram) -> Option<Self> {
        let us = |time: Option<Duration>| time.map(Duration::as_us_f64);
        Some(Percentiles { p50: us(times.quantile(0.5))?, p99: us(times.quantile(0.99))?, max: us(times.longest())? })
    }

    /// Of all times; `None` where there are none.
    pub(crate) fn exactly(mut times: Vec<f64>) -> Option<Self> {
        times.sort_by(f64::total_cmp);
        let at = |share: f64| times.get(((share * times.len() as f64).ceil() as usize).max(1) - 1).copied();
        Some(Percentiles { p50: at(0.5)?, p99: at(0.99)?, max: at(1.0)? })
    }
}

/// One link of a run.
#[derive(Clone, Debug)]
pub struct LinkRecord {
    /// The sending node.
    pub from: String,
    /// The receiving node.
    pub to: String,
    /// Bytes sent, frame overhead included.
    pub bytes: u64,
    /// Packets sent.
    pub packets: u64,
    /// Share of the run in which the link was sending.
    pub utilization: f64,
    /// The longest queue.
    pub queue_bytes_peak: u64,
    /// Packets that found the queue full.
    pub packets_dropped: u64,
}

fn as_map<S: Serializer>(params: &[(String, serde_json::Value)], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_map(params.iter().map(|(key, value)| (key, value)))
}

impl JobRecord {
    /// When it ended, or crashed; never where it did neither.
    pub fn end_us(&self) -> f64 {
        self.crashed_us.or(self.jct_us.map(|time| self.begun_us + time)).unwrap_or(f64::INFINITY)
    }
}

impl RunRecord {
    /// Whether every job completed with the right result.
    pub fn is_good(&self) -> bool {
        self.failure.is_none() && self.is_exact()
    }

    /// Whether nothing wrong was delivered.
    pub fn is_exact(&self) -> bool {
        !self.census.starts_with("wrong")
    }
}

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

/// The record of a run; what only the plan knows is left empty.
pub fn record(prepared: &Prepared, topology: &Topology, result: &RunResult, payload: PayloadName) -> RunRecord {
    let jobs = job_records(prepared, result);
    let mut systems: Vec<&str> = jobs.iter().map(|job| job.system).collect();
    systems.dedup();
    let lasting: Vec<&JobRecord> = jobs.iter().filter(|job| job.crashed_us.is_none()).collect();
    let slowest = lasting.iter().map(|job| job.completion_us).reduce(|a, b| Some(a?.max(b?))).flatten();
    let mean_of_all = |value: fn(&JobRecord) -> Option<f64>| {
        let sum: Option<f64> = lasting.iter().map(|job| value(job)).sum();
        sum.filter(|_| !lasting.is_empty()).map(|sum| sum / lasting.len() as f64)
    };
    let (goodput, jct) = (mean_of_all(|job| job.goodput_gbps), mean_of_all(|job| job.jct_us));
    let leaves = Leaves::of(topology, result);
    let share = |used: std::ops::Range<f64>| {
        let count = result.links.iter().filter(|link| used.contains(&link.utilization)).count();
        count as f64 / result.links.len().max(1) as f64
    };
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
        hosts: topology.map.hosts(),
        workers: jobs.iter().map(|job| job.workers).sum(),
        message_bytes: jobs.first().map_or(0, |job| job.message_bytes),
        congested: !prepared.scenario.traffic.is_empty() || !prepared.scenario.flows.is_empty(),
        completion_us: slowest,
        goodput_gbps: goodput,
        iteration_us: mean(lasting.iter().map(|job| job.iteration_us)),
        communication_us: mean(lasting.iter().map(|job| job.communication_us)),
        jct_us: jct,
        many: ManyJobs::of(&lasting),
        link_utilization_mean: result.link_utilization_mean(),
        switch_bytes_peak: result.switch_bytes_peak(),
        cores_busy: result.cores_busy(),
        cores_locked: result.cores_locked(),
        core_wait_us: result.core_wait_us(),
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
        events: result.events,
        background_gbps: result.background_gbps,
        simulated_us: result.end.as_ps() as f64 / 1e6,
        ended: ended(result.ended),
        failure: failure(&jobs, result, prepared),
        jobs,
        wall_s: 0.0,
    }
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
    let phases = Times::of(ran, prepared.scenario.jobs[number].compute.map(|compute| compute.operations));
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
        system: job.system.name(),
        workers: job.hosts.len() as u32,
        operator: job.operator_name(),
        message_bytes: job.settings.common.message_bytes(job.op.dtype.bytes() as u64),
        operations: operations as u32,
        completion_us: over_operations(&|operation| ran.completion(operation).map(Duration::as_us_f64)),
        goodput_gbps: over_operations(&|operation| ran.goodput_gbps(operation)),
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
    JobRecord {
        entry: head.listed,
        system: head.system.name(),
        workers: head.hosts.len() as u32,
        operator: None,
        message_bytes: 0,
        operations: program.job.lanes.iter().map(|lane| lane.operations.len() as u32).sum(),
        completion_us: None,
        goodput_gbps: None,
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
        iteration_us: workload_record::step_us(program, ran),
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

/// A worker that died.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct DeathRecord {
    /// Which.
    pub rank: u32,
    /// The name of its host.
    pub host: String,
    /// When.
    pub at_us: f64,
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
    let name = |node: u32| topology.name(fanin_core::NodeId(node));
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

/// The middle of sorted numbers.
pub fn median(sorted: &[f64]) -> Option<f64> {
    let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
    Some((low + high) / 2.0)
}

/// Writes records as a JSON array, one object a line. `in_full` adds every worker's time.
///
/// # Errors
/// Those of `out`.
pub fn write_json(records: &[&RunRecord], in_full: bool, out: &mut dyn Write) -> io::Result<()> {
    for (index, record) in records.iter().enumerate() {
        write!(out, "{}", if index == 0 { "[\n" } else { ",\n" })?;
        if in_full {
            serde_json::to_writer(&mut *out, record)?;
        } else {
            let mut brief = (*record).clone();
            for job in &mut brief.jobs {
                job.workers_us.clear();
                job.iterations_us.clear();
            }
            serde_json::to_writer(&mut *out, &brief)?;
        }
    }
    writeln!(out, "{}", if records.is_empty() { "[]" } else { "\n]" })
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
