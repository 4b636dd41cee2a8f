//! Records of a run: its own, and those of its jobs and links. Every field but `wall_s` depends on plan and seed only.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::{Deserialize, Serialize, Serializer};

use super::names::{self, Static};
use super::percentiles::Percentiles;
use super::workload::WorkloadRecord;

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
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
    #[serde(serialize_with = "as_map", deserialize_with = "names::in_order")]
    pub params: Vec<(String, serde_json::Value)>,
    /// The jobs' collectives, where the plan says them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub collective: Option<String>,
    /// Which systems did these: `exchange` where hosts did by messages what the job's system does not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ran: Option<String>,
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
    /// How much of the vector was simulated, where that was not all of it (`run.steady`): the times are of the whole, and all else is of this part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated_bytes: Option<u64>,
    /// How far off the times may be then, as a share.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady_error: Option<f64>,
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
    /// The most working memory that a cluster of cores had in use; null where it has no end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_bytes_peak: Option<u64>,
    /// The share of contributions that waited for working memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_waits: Option<f64>,
    /// The share of time for which the ports that lead packets back were busy, at the switch where they were most; null where none pass again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recirculation_busy: Option<f64>,
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
    #[serde(default, deserialize_with = "names::table")]
    pub drops: BTreeMap<&'static str, u64>,
    /// Packets sent again for any reason.
    pub packets_retransmitted: u64,
    /// The same by reason.
    #[serde(default, deserialize_with = "names::table")]
    pub retransmissions: BTreeMap<&'static str, u64>,
    /// Blocks that were begun anew for a loss (Canary).
    pub blocks_begun_anew: u64,
    /// The same by the new generation, from 1 on.
    pub begun_anew: BTreeMap<u8, u64>,
    /// What nodes have counted beside packets, of all jobs together, by what it is; zeros left out.
    #[serde(default, deserialize_with = "names::table")]
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
    /// Packets that were cut where a queue was full; see `network.trimming`.
    #[serde(default)]
    pub packets_trimmed: u64,
    /// Events of the simulator.
    pub events: u64,
    /// Payload of background traffic that arrived, per sending host.
    pub background_gbps: f64,
    /// Simulated time of the whole run.
    pub simulated_us: f64,
    /// Why the run ended: `jobs_done`, `traffic_done`, `stuck`, `deadlock`, `time_limit`.
    #[serde(deserialize_with = "names::name")]
    pub ended: Static,
    /// Why not every job completed; null where every one did.
    pub failure: Option<String>,
    /// By job.
    pub jobs: Vec<JobRecord>,
    /// Time that the simulation took. The only field that differs from machine to machine and run to run.
    pub wall_s: f64,
}

/// How long several jobs take, and what they take from each other.
#[derive(Clone, Copy, PartialEq, Debug, Default, Serialize, Deserialize)]
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
    /// From when the last job begins to the end of the last interval in which it is below 0.95, in us: 0 where there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unfair_us: Option<f64>,
}

impl ManyJobs {
    /// As far as it follows from these jobs themselves.
    pub(crate) fn of(jobs: &[&JobRecord]) -> Self {
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
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobRecord {
    /// Its place among the plan's `[[jobs]]`; copies, and jobs of a file, share it.
    pub entry: usize,
    /// Its system.
    #[serde(deserialize_with = "names::name")]
    pub system: Static,
    /// Its collective, where the plan says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(default, deserialize_with = "names::optional")]
    pub collective: Option<Static>,
    /// Which system did that: `exchange` where the job's hosts did by messages what its system does not have.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[serde(default, deserialize_with = "names::optional")]
    pub ran: Option<Static>,
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
    /// Vector's length over the time of an operation, mean over operations; null for barriers, which have no vector.
    pub goodput_gbps: Option<f64>,
    /// Its servers.
    pub servers: u32,
    /// Slots that it had in use at all switches together, mean over the run.
    pub slots_mean: f64,
    /// The most at any time.
    pub slots_peak: u64,
    /// What its nodes have counted beside packets, by what it is and by where: `host`, `leaf`, `spine`, `core`; zeros left out.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(default, deserialize_with = "names::tables")]
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
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<u32>,
    /// Its workers that died, in the order of that.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deaths: Vec<DeathRecord>,
    /// By rank: host, and time from the first submission to the last end. Only in files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers_us: Vec<(u32, Option<f64>)>,
    /// Each iteration's time. Only in files.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub iterations_us: Vec<f64>,
    /// What it computed and communicated, where a workload says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<WorkloadRecord>,
    /// Where jobs are sampled over time: means over the time in which all jobs run, without its first quarter. Only in files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(default, deserialize_with = "names::table")]
    pub together: BTreeMap<&'static str, f64>,
    /// Over the same time, how far a quantity swings: from its 5th to its 95th percentile, over its mean. Without those whose mean is 0. Only in
    /// files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(default, deserialize_with = "names::table")]
    pub swing: BTreeMap<&'static str, f64>,
    /// Where jobs are sampled over time: begin of the first interval in which a quantity is above 0, of those that begin when
    /// all jobs have begun. Only in files.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[serde(default, deserialize_with = "names::table")]
    pub first_us: BTreeMap<&'static str, f64>,
}

/// One link of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkRecord {
    /// The sending node. All links of a node share its name: large networks have millions of them.
    pub from: Arc<str>,
    /// The receiving node.
    pub to: Arc<str>,
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

/// A worker that died.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct DeathRecord {
    /// Which.
    pub rank: u32,
    /// The name of its host.
    pub host: String,
    /// When.
    pub at_us: f64,
}
