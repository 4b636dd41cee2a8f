//! A job as it runs: which worker is how far, and what has ended how.

use std::time::{Duration, Instant};

use fanin_control::JobAnnouncement;
use fanin_core::NodeId;
use fanin_fabric::Fabric;

use super::idle::Samples;
use super::results::{DeathRecord, JobRecord, OperationRecord};
use super::schedule::{Progress, plain};
use super::workload::{Job, Values, Workload};
use crate::host::messages::{OperationReport, Operations, Order};

/// One operation, while it is gathered from the workers.
#[derive(Clone, Debug, Default)]
struct Gathered {
    workers: Vec<Option<OperationReport>>,
    /// When the first worker began and the last one ended.
    span: Option<(Instant, Instant)>,
}

/// A job that runs or has run.
#[derive(Debug)]
pub struct JobRun {
    announcement: JobAnnouncement,
    operations: Operations,
    vector_seed: u64,
    are_rounded: bool,
    /// When it begins, counted from the beginning of the run.
    start: Duration,
    is_started: bool,
    hosts: Vec<NodeId>,
    /// The hosts of its servers, if it has any.
    servers: Vec<NodeId>,
    server_names: Vec<String>,
    system: String,
    message_bytes: u64,
    /// By rank.
    progress: Vec<Progress>,
    /// By rank: nothing more comes from it.
    over: Vec<bool>,
    /// Workers that were killed.
    deaths: Vec<DeathRecord>,
    /// By number.
    gathered: Vec<Gathered>,
}

/// All jobs of a workload, by number.
pub fn jobs(workload: &Workload, fabric: &Fabric, seed: u64) -> Vec<JobRun> {
    workload.jobs.iter().enumerate().map(|(number, job)| JobRun::new(job, number, fabric, seed)).collect()
}

impl JobRun {
    fn new(job: &Job, number: usize, fabric: &Fabric, seed: u64) -> Self {
        let common = &job.common;
        let announcement = job.announcement(number, fabric, seed);
        let hosts: Vec<NodeId> = announcement.hosts.iter().copied().map(NodeId).collect();
        let servers: Vec<NodeId> = fabric.hosts().filter(|host| announcement.server_at(*host).is_some()).collect();
        let elements = common.message.0 / job.op.dtype.bytes() as u64;
        let operations = Operations { kind: common.collective, elements, count: common.operations.0, root: 0 };
        JobRun {
            announcement,
            operations,
            vector_seed: fanin_core::hash::derive(seed, number as u64),
            are_rounded: common.values == Values::Rounded,
            start: plain(common.start.0),
            is_started: false,
            server_names: servers.iter().map(|host| fabric.name(*host).to_string()).collect(),
            servers,
            progress: vec![Progress { operation: 0, done: 0.0 }; hosts.len()],
            over: vec![false; hosts.len()],
            deaths: Vec::new(),
            hosts,
            system: job.system.name().to_string(),
            message_bytes: common.message.0,
            gathered: Vec::new(),
        }
    }

    /// What switches and workers are told of it.
    pub fn announcement(&self) -> &JobAnnouncement {
        &self.announcement
    }

    /// The hosts of its workers, by rank.
    pub fn hosts(&self) -> &[NodeId] {
        &self.hosts
    }

    /// The hosts that have something of it: its workers, by rank, and its servers where these are at none of them.
    pub fn members(&self) -> Vec<NodeId> {
        let apart = self.servers.iter().filter(|server| !self.hosts.contains(server));
        self.hosts.iter().chain(apart).copied().collect()
    }

    /// Its workers to which sums come through a switch: all but one whose host is a server's.
    pub fn served(&self) -> usize {
        self.hosts.iter().filter(|host| !self.servers.contains(host)).count()
    }

    /// Whether it is to begin now; says so once. `begun` is when the run did.
    pub fn is_due(&mut self, now: Instant, begun: Instant) -> bool {
        let is_due = !self.is_started && now.saturating_duration_since(begun) >= self.start;
        self.is_started |= is_due;
        is_due
    }

    /// The order that makes a host a worker of it, its server or both.
    pub fn order(&self) -> Order {
        Order::Job {
            job: Box::new(self.announcement.clone()),
            operations: vec![self.operations],
            vector_seed: self.vector_seed,
            are_rounded: self.are_rounded,
        }
    }

    fn rank(&self, host: NodeId) -> Option<usize> {
        self.hosts.iter().position(|own| *own == host)
    }

    /// A worker says how far it is.
    pub fn on_progress(&mut self, host: NodeId, operation: u32, done: f64) {
        if let Some(rank) = self.rank(host) {
            self.progress[rank] = Progress { operation, done };
        }
    }

    /// An operation has ended at a worker just now; the result is compared later.
    pub fn on_finished(&mut self, host: NodeId, operation: u32, seconds: f64, now: Instant) {
        if let Some(rank) = self.rank(host) {
            self.progress[rank] = Progress { operation: operation + 1, done: 0.0 };
            let begun = now.checked_sub(Duration::from_secs_f64(seconds)).unwrap_or(now);
            let gathered = self.gathered(operation);
            let (first, last) = gathered.span.unwrap_or((begun, now));
            gathered.span = Some((first.min(begun), last.max(now)));
        }
    }

    /// An operation has ended at a worker, and its result is compared.
    pub fn on_end(&mut self, host: NodeId, end: &OperationReport) {
        if let Some(rank) = self.rank(host) {
            let next = Progress { operation: end.operation + 1, done: 0.0 };
            if self.progress[rank].operation < next.operation {
                self.progress[rank] = next;
            }
            self.gathered(end.operation).workers[rank] = Some(end.clone());
        }
    }

    fn gathered(&mut self, operation: u32) -> &mut Gathered {
        let workers = self.hosts.len();
        let length = self.gathered.len().max(operation as usize + 1);
        self.gathered.resize_with(length, || Gathered { workers: vec![None; workers], span: None });
        &mut self.gathered[operation as usize]
    }

    /// Nothing more comes from this host: all is done, or it has died.
    pub fn on_over(&mut self, host: NodeId) {
        if let Some(rank) = self.rank(host) {
            self.over[rank] = true;
        }
    }

    /// A host was killed, so long after the run's beginning.
    pub fn on_death(&mut self, host: NodeId, name: &str, at_s: f64) {
        if let Some(rank) = self.rank(host) {
            let Progress { operation, done } = self.progress[rank];
            self.deaths.push(DeathRecord { rank: rank as u32, host: name.to_string(), at_s, operation, done });
            self.over[rank] = true;
        }
    }

    /// Nothing more comes.
    pub fn is_over(&self) -> bool {
        self.over.iter().all(|over| *over)
    }

    /// Nothing more comes, and every worker has done all that it had to do.
    pub fn is_complete(&self) -> bool {
        let done = |gathered: &Gathered| gathered.workers.iter().all(|end| end.as_ref().is_some_and(|end| end.ok));
        self.is_over() && self.gathered.len() == self.operations.count as usize && self.gathered.iter().all(done)
    }

    /// How far the slowest worker is that is still there.
    pub fn progress(&self) -> Progress {
        let left = self.progress.iter().zip(&self.over).filter(|(_, over)| !**over).map(|(progress, _)| *progress);
        let end = Progress { operation: self.operations.count, done: 0.0 };
        left.min_by(|a, b| a.operation.cmp(&b.operation).then(a.done.total_cmp(&b.done))).unwrap_or(end)
    }

    /// What came out. `begun` is when the run began.
    pub fn record(&self, samples: &Samples, begun: Instant) -> JobRecord {
        let mut record =
            JobRecord { system: self.system.clone(), workers: self.hosts.len(), message_bytes: self.message_bytes, ..JobRecord::default() };
        record.server = (!self.server_names.is_empty()).then(|| self.server_names.join(", "));
        record.goes_on = self.announcement.system.goes_on_without_workers();
        record.deaths.clone_from(&self.deaths);
        for (number, Gathered { workers, span }) in self.gathered.iter().enumerate() {
            let cpu_idle_share = span.and_then(|(from, until)| samples.idle_share(from, until));
            let since = |time: Instant| time.saturating_duration_since(begun).as_secs_f64();
            let (begun_s, ended_s) = (span.map(|(from, _)| since(from)), span.map(|(_, until)| since(until)));
            let workers = workers.clone();
            let number = number as u32;
            record.push(OperationRecord { number, workers, cpu_idle_share, begun_s, ended_s, ..OperationRecord::default() });
        }
        record
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job() -> JobRun {
        let fabric = "[defaults]\nrate = \"1Mb/s\"\n[leaf_spine]\nleaves = 1\nspines = 1\nhosts_per_leaf = 3\n";
        let fabric = Fabric::parse("f.toml", fabric).unwrap();
        let text = "[[job]]\nsystem = \"tree\"\nmessage = 4000\noperations = 2\nhosts = [\"host2\", \"host0\"]\n";
        let workload = Workload::parse("w.toml", text, &[], &fabric).unwrap();
        jobs(&workload, &fabric, 1).remove(0)
    }

    #[test]
    fn a_job_is_as_far_as_its_slowest_worker_and_over_when_all_are() {
        let mut job = job();
        assert_eq!(job.announcement().hosts, [2, 0]);
        assert_eq!(job.progress(), Progress { operation: 0, done: 0.0 });
        job.on_progress(NodeId(2), 0, 0.7);
        job.on_progress(NodeId(0), 0, 0.3);
        job.on_progress(NodeId(1), 1, 0.9);
        assert_eq!(job.progress(), Progress { operation: 0, done: 0.3 }, "a host without a worker of the job says nothing of it");
        let now = Instant::now();
        job.on_finished(NodeId(0), 0, 0.01, now);
        assert_eq!(job.progress(), Progress { operation: 0, done: 0.7 });
        job.on_over(NodeId(2));
        assert_eq!(job.progress(), Progress { operation: 1, done: 0.0 }, "who has died keeps nobody waiting");
        assert!(!job.is_over());
        job.on_over(NodeId(0));
        assert!(job.is_over());
        assert_eq!(job.progress(), Progress { operation: 2, done: 0.0 });
    }

    #[test]
    fn operations_are_put_together_by_rank() {
        let mut job = job();
        let end = |operation: u32, seconds: f64| OperationReport { operation, seconds, ok: true, ..OperationReport::default() };
        job.on_end(NodeId(0), &end(0, 0.25));
        job.on_end(NodeId(2), &end(0, 0.5));
        job.on_end(NodeId(0), &end(1, 0.5));
        for host in [2, 0] {
            job.on_over(NodeId(host));
        }
        assert!(job.is_over() && !job.is_complete(), "a worker has not done its second operation");
        let record = job.record(&Samples::default(), Instant::now());
        assert_eq!((record.operations[0].seconds, record.operations[0].exact), (Some(0.5), true));
        assert_eq!(record.operations[0].goodput_mbit_s, Some(0.064));
        assert!(record.operations[1].workers[0].is_none() && !record.operations[1].exact);
        job.on_end(NodeId(2), &OperationReport { ok: false, ..end(1, 0.5) });
        assert!(!job.is_complete(), "it has failed");
        job.on_end(NodeId(2), &end(1, 0.5));
        assert!(job.is_complete());
    }
}
