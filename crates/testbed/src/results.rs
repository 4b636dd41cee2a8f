//! What came out of a run: everything for programs, and whether it is as the workload expects.

use std::collections::BTreeSet;

use serde::Serialize;

use super::series::SeriesRow;
use super::workload::{Outcome, Workload};
use crate::host::messages::{HostStatus, OperationReport, TrafficTotal};

/// A run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Record {
    /// The fabric's file.
    pub fabric: String,
    /// The workload's file.
    pub workload: String,
    /// What `--set` changed.
    pub sets: Vec<String>,
    /// Where it ran.
    pub place: &'static str,
    /// Of vectors, faults and random choices.
    pub seed: u64,
    /// Of this machine.
    pub processors: usize,
    /// From the first operation's beginning to the last one's end.
    pub wall_s: f64,
    /// Share of the processors' time that nobody used while operations ran; all processes of the machine count.
    pub cpu_idle_share: Option<f64>,
    /// Processor time of all processes of this run since they were started, as a share of what the processors had while operations ran: an
    /// upper bound of what operations took, as it contains making and comparing vectors.
    pub cpu_used_share: Option<f64>,
    /// By number.
    pub jobs: Vec<JobRecord>,
    /// By number.
    pub streams: Vec<StreamRecord>,
    /// In the order in which they happened.
    pub events: Vec<EventRecord>,
    /// What each switch counted; those that were dead at the end are missing.
    pub switches: Vec<SwitchRecord>,
    /// What each host counted; those that were dead at the end are missing.
    pub hosts: Vec<HostRecord>,
    /// Jobs over time, by interval and job; empty where they are not sampled.
    pub series: Vec<SeriesRow>,
    /// What is not as the workload expects; empty where all is well.
    pub problems: Vec<String>,
}

/// A job.
#[derive(Clone, Debug, Default, Serialize)]
pub struct JobRecord {
    /// Its system.
    pub system: String,
    /// Number of workers.
    pub workers: usize,
    /// The hosts of its servers, with commas, for systems that have servers.
    pub server: Option<String>,
    /// Length of a vector.
    pub message_bytes: u64,
    /// Median over the operations that all workers completed: bits of a vector / time of the slowest worker.
    pub goodput_mbit_s_median: Option<f64>,
    /// Its workers that were killed, in the order of that.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub deaths: Vec<DeathRecord>,
    /// It goes on without workers that have died.
    #[serde(skip)]
    pub goes_on: bool,
    /// All that have ended.
    pub operations: Vec<OperationRecord>,
}

/// A worker that was killed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct DeathRecord {
    /// Which.
    pub rank: u32,
    /// The name of its host.
    pub host: String,
    /// When, counted from the beginning of the first operation.
    pub at_s: f64,
    /// The operation that it was at, as it had said last.
    pub operation: u32,
    /// How far it was with that, from 0 to 1.
    pub done: f64,
}

/// An operation.
#[derive(Clone, Debug, Default, Serialize)]
pub struct OperationRecord {
    /// From 0.
    pub number: u32,
    /// When the first worker began it, counted from the beginning of the run; `None` where none has ended it.
    pub begun_s: Option<f64>,
    /// When the last of those that ended it did.
    pub ended_s: Option<f64>,
    /// Of the slowest worker; `None` where not all completed it but those that the others went on without.
    pub seconds: Option<f64>,
    /// Bits of a vector / time of the slowest worker, in 10^6 a second.
    pub goodput_mbit_s: Option<f64>,
    /// Whether every element of every worker is right: the sum of the vectors of all, or of all but those that it lacks.
    pub exact: bool,
    /// Of values whose sums are rounded: stands for all bits of the result, which are the same at all workers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bits: Option<String>,
    /// Ranks that the others went on without, as these say, in ascending order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub without: Vec<u32>,
    /// Ranks that had died before they ended it, of a job that goes on without them, and that it was completed with all the same: they had
    /// contributed everything.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub with_dead: Vec<u32>,
    /// Share of the processors' time that nobody used meanwhile.
    pub cpu_idle_share: Option<f64>,
    /// By rank; `None` for a worker that has died before it ended.
    pub workers: Vec<Option<OperationReport>>,
}

/// A stream of background traffic.
#[derive(Clone, Debug, Default, Serialize)]
pub struct StreamRecord {
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// On the wire.
    pub offered_mbit_s: f64,
    /// What has left the host.
    pub sent: TrafficTotal,
    /// What has arrived at the receiver, of all streams to it.
    pub received: TrafficTotal,
}

/// An event that happened.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct EventRecord {
    /// As the workload has it.
    pub action: &'static str,
    /// To whom.
    pub node: String,
    /// Counted from the beginning of the first operation.
    pub at_s: f64,
    /// How far each job was: its operation, and the part of the result that the slowest worker had.
    pub progress: Vec<(u32, f64)>,
    /// Of a switch that was killed: what was lost with it.
    pub lost: Option<LostRecord>,
}

/// What was in flight through a switch when it was killed. A block whose contributions are in neither of these has lost nothing by it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize)]
pub struct LostRecord {
    /// Blocks of which it held something, as it said just before: those whose sum had not come back through it.
    pub held_blocks: u64,
    /// Packets that it had taken in until then.
    pub packets_received: u64,
    /// Packets that its neighbours had sent to it until it came back, or until the end, and that it had not taken in: on a link when it
    /// died, or sent into it before they lost sight of it. `None` where not all neighbours are switches that are alive.
    pub packets_unread: Option<u64>,
}

/// A switch at the end of a run.
#[derive(Clone, Debug, Serialize)]
pub struct SwitchRecord {
    /// Its name.
    pub name: String,
    /// What it says.
    pub status: serde_json::Value,
}

/// A host at the end of a run.
#[derive(Clone, Debug, Serialize)]
pub struct HostRecord {
    /// Its name.
    pub name: String,
    /// What it says.
    pub status: HostStatus,
}

/// The value in the middle; the mean of the two where there are two.
pub fn median(values: &[f64]) -> Option<f64> {
    fanin_plan::results::median(&{
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        sorted
    })
}

impl OperationRecord {
    /// The ranks that must have completed it: neither it was completed without them, nor have they died in a job that goes on. With what they
    /// say.
    pub fn there(&self) -> impl Iterator<Item = (u32, &Option<OperationReport>)> {
        (0..).zip(&self.workers).filter(|(rank, _)| !self.without.contains(rank) && !self.with_dead.contains(rank))
    }
}

/// Ranks that an operation was completed without, as those say that completed it and are not lacked themselves. Who was left out may have
/// completed it among all before the others began anew, so the longest list counts.
fn without(workers: &[Option<OperationReport>]) -> Vec<u32> {
    let ends = (0..).zip(workers).filter_map(|(rank, worker)| Some((rank, worker.as_ref().filter(|end| end.error.is_none())?)));
    let lists = ends.filter(|(rank, end)| !end.without.contains(rank)).map(|(_, end)| &end.without);
    lists.max_by_key(|list| list.len()).cloned().unwrap_or_default()
}

impl JobRecord {
    /// Adds an operation that has ended.
    pub fn push(&mut self, mut operation: OperationRecord) {
        let seconds =
            |worker: &Option<OperationReport>| worker.as_ref().filter(|worker| worker.error.is_none()).map(|worker| worker.seconds);
        operation.without = without(&operation.workers);
        // Of those that have ended it there must be one at least, or nobody knows its sum.
        if self.goes_on && operation.workers.iter().flatten().any(|end| end.error.is_none()) {
            let dead = self.deaths.iter().map(|death| death.rank);
            let silent = |rank: &u32| operation.workers.get(*rank as usize).is_some_and(Option::is_none);
            operation.with_dead = dead.filter(|rank| silent(rank) && !operation.without.contains(rank)).collect();
            operation.with_dead.sort_unstable();
        }
        let there: Vec<_> = operation.there().map(|(_, worker)| worker).collect();
        let times = there.iter().map(|worker| seconds(worker)).collect::<Option<Vec<f64>>>();
        let agrees = |worker: &OperationReport| worker.ok && worker.without == operation.without;
        // Whatever the order of sums, all workers get the same.
        let bits: BTreeSet<String> = there.iter().filter_map(|worker| worker.as_ref()?.bits.clone()).collect();
        let exact = bits.len() <= 1 && there.iter().all(|worker| worker.as_ref().is_some_and(agrees));
        operation.exact = exact;
        operation.bits = bits.into_iter().next().filter(|_| exact);
        operation.seconds = times.and_then(|all| all.into_iter().reduce(f64::max));
        let bits = self.message_bytes as f64 * 8.0;
        operation.goodput_mbit_s = operation.seconds.filter(|seconds| *seconds > 0.0).map(|seconds| bits / seconds / 1e6);
        self.operations.push(operation);
        let goodputs: Vec<f64> = self.operations.iter().filter_map(|operation| operation.goodput_mbit_s).collect();
        self.goodput_mbit_s_median = median(&goodputs);
    }
}

impl Record {
    /// Processor time of all processes that were there at the end.
    pub fn used_share(&self) -> Option<f64> {
        let switches = self.switches.iter().filter_map(|switch| switch.status["cpu_seconds"].as_f64());
        let used: f64 = switches.chain(self.hosts.iter().map(|host| host.status.cpu_seconds)).sum();
        let there = self.wall_s * self.processors as f64;
        (there > 0.0).then(|| used / there)
    }

    /// What is not as the workload expects.
    pub fn judge(&self, workload: &Workload) -> Vec<String> {
        let mut problems = Vec::new();
        for (number, (job, wanted)) in self.jobs.iter().zip(&workload.jobs).enumerate() {
            match wanted.common.expect.unwrap_or(workload.general.run.expect) {
                Outcome::Success => {
                    problems.extend(job.operations.iter().filter_map(|operation| unsuccessful(number, operation)));
                    let (ran, wanted) = (job.operations.len(), wanted.common.operations.0);
                    if ran < wanted as usize {
                        problems.push(format!("job {number}: {ran} of {wanted} operations ran"));
                    }
                }
                Outcome::Failure => {
                    if job.operations.iter().all(|operation| operation.seconds.is_some()) {
                        problems.push(format!("job {number}: every operation completed, where a failure is expected"));
                    }
                    problems.extend(job.operations.iter().filter_map(|operation| not_exact(number, operation)));
                }
            }
        }
        let (happened, wanted) = (self.events.len(), workload.general.event.len());
        if happened < wanted {
            problems.push(format!("{happened} of {wanted} events happened before the last operation had ended"));
        }
        problems
    }
}

/// Why an operation is no success, if it is none.
fn unsuccessful(job: usize, operation: &OperationRecord) -> Option<String> {
    let missing = || {
        operation.there().find_map(|(rank, worker)| {
            let what = match worker {
                None => "has died".to_string(),
                Some(end) if end.ok && end.without != operation.without => {
                    format!("its result lacks {:?} and that of others {:?}", end.without, operation.without)
                }
                Some(end) if end.ok => return None,
                Some(OperationReport { error, suspect, .. }) => {
                    let suspect = suspect.as_ref().map_or(String::new(), |suspect| format!(" (missing: {suspect})"));
                    format!("{}{suspect}", error.as_deref().unwrap_or("its result was not compared"))
                }
            };
            Some(format!("job {job}, operation {}: worker {rank}: {what}", operation.number))
        })
    };
    not_exact(job, operation).or_else(missing)
}

/// The first worker with a wrong element, in words.
fn not_exact(job: usize, operation: &OperationRecord) -> Option<String> {
    operation.workers.iter().enumerate().find_map(|(rank, worker)| {
        let OperationReport { wrong_elements, first_wrong, .. } =
            worker.as_ref().filter(|end| end.error.is_none() && end.wrong_elements > 0)?;
        let first = first_wrong.map_or(String::new(), |first| format!(", the first is element {first}"));
        Some(format!("job {job}, operation {}: NOT EXACT: {wrong_elements} elements at worker {rank}{first}", operation.number))
    })
}

#[cfg(test)]
mod tests {
    use fanin_fabric::Fabric;

    use super::*;

    fn workload(expect: &str, operations: u32) -> Workload {
        let fabric = "[defaults]\nrate = \"1Mb/s\"\n[leaf_spine]\nleaves = 1\nspines = 1\nhosts_per_leaf = 2\n";
        let fabric = Fabric::parse("f.toml", fabric).unwrap();
        let text = format!("[[job]]\nsystem = \"tree\"\nmessage = 1000\noperations = {operations}\n[run]\nexpect = \"{expect}\"\n");
        Workload::parse("w.toml", &text, &[], &fabric).unwrap()
    }

    /// So many wrong elements, or else a failure.
    fn worker(seconds: f64, wrong: Option<u64>) -> Option<OperationReport> {
        let error = if wrong.is_none() { Some("nothing moves".to_string()) } else { None };
        Some(OperationReport {
            seconds,
            ok: wrong == Some(0),
            wrong_elements: wrong.unwrap_or(0),
            first_wrong: wrong.filter(|wrong| *wrong > 0).map(|_| 3),
            suspect: error.as_ref().map(|_| "rank 1".into()),
            error,
            ..OperationReport::default()
        })
    }

    fn record(operations: &[[Option<OperationReport>; 2]]) -> Record {
        let mut job = JobRecord { message_bytes: 1_000, ..JobRecord::default() };
        for (number, workers) in operations.iter().enumerate() {
            job.push(OperationRecord { number: number as u32, workers: workers.to_vec(), ..OperationRecord::default() });
        }
        Record { jobs: vec![job], ..Record::default() }
    }

    #[test]
    fn goodput_is_that_of_the_slowest_worker_and_the_median_is_taken_over_complete_operations() {
        let good = |seconds: f64| [worker(seconds, Some(0)), worker(seconds / 2.0, Some(0))];
        let record = record(&[good(0.004), good(0.002), [worker(0.001, Some(0)), worker(9.0, None)], good(0.001)]);
        let goodputs: Vec<Option<f64>> = record.jobs[0].operations.iter().map(|operation| operation.goodput_mbit_s).collect();
        assert_eq!(goodputs, [Some(2.0), Some(4.0), None, Some(8.0)]);
        assert_eq!(record.jobs[0].goodput_mbit_s_median, Some(4.0));
        assert_eq!(record.jobs[0].operations.iter().map(|operation| operation.exact).collect::<Vec<_>>(), [true, true, false, true]);
    }

    #[test]
    fn only_complete_and_exact_operations_are_a_success() {
        let good = [worker(1.0, Some(0)), worker(1.0, Some(0))];
        let cases = [
            (vec![good.clone(), good.clone()], None),
            (vec![good.clone()], Some("job 0: 1 of 2 operations ran")),
            (
                vec![good.clone(), [worker(1.0, Some(0)), worker(1.0, Some(2))]],
                Some("job 0, operation 1: NOT EXACT: 2 elements at worker 1, the first is element 3"),
            ),
            (
                vec![good.clone(), [worker(1.0, None), worker(1.0, Some(0))]],
                Some("job 0, operation 1: worker 0: nothing moves (missing: rank 1)"),
            ),
            (vec![good, [worker(1.0, Some(0)), None]], Some("job 0, operation 1: worker 1: has died")),
        ];
        for (operations, expected) in cases {
            let problems = record(&operations).judge(&workload("success", 2));
            assert_eq!(problems.first().map(String::as_str), expected, "{problems:?}");
        }
    }

    #[test]
    fn an_operation_that_lacks_a_rank_is_exact_where_it_is_for_those_that_are_left() {
        let mut left = worker(1.0, Some(0));
        left.iter_mut().for_each(|end| end.without = vec![1]);
        // The one that was left out has died, or it had ended the operation before the other began anew.
        for gone in [None, worker(2.0, Some(0))] {
            let record = record(&[[left.clone(), gone]]);
            let operation = &record.jobs[0].operations[0];
            assert_eq!((operation.exact, operation.seconds, operation.without.as_slice()), (true, Some(1.0), [1].as_slice()));
            assert_eq!(record.judge(&workload("success", 1)), Vec::<String>::new());
        }
        let wrong = record(&[[left, worker(2.0, Some(3))]]).judge(&workload("success", 1));
        assert!(wrong[0].contains("NOT EXACT"), "{wrong:?}");
    }

    /// Of a job that goes on: who has died may have contributed everything before, and then all others have the sum of all.
    #[test]
    fn an_operation_with_all_of_a_rank_that_has_died_is_exact() {
        let judged = |goes_on: bool, others: Option<OperationReport>| {
            let death = DeathRecord { rank: 1, host: "host1".into(), at_s: 1.0, operation: 0, done: 0.5 };
            let mut job = JobRecord { message_bytes: 1_000, goes_on, deaths: vec![death], ..JobRecord::default() };
            job.push(OperationRecord { workers: vec![others, None], ..OperationRecord::default() });
            let operation = job.operations[0].clone();
            let problems = Record { jobs: vec![job], ..Record::default() }.judge(&workload("success", 1));
            (operation.exact, operation.with_dead, problems.first().cloned())
        };
        assert_eq!(judged(true, worker(1.0, Some(0))), (true, vec![1], None));
        let (exact, _, problem) = judged(true, worker(1.0, Some(2)));
        assert!(!exact && problem.is_some_and(|problem| problem.contains("NOT EXACT: 2 elements at worker 0")));
        // Where nobody has ended it nobody knows its sum, and a job that does not go on must have all.
        for (goes_on, others) in [(true, worker(1.0, None)), (false, worker(1.0, Some(0)))] {
            let (exact, with_dead, problem) = judged(goes_on, others);
            assert!(!exact && with_dead.is_empty() && problem.is_some(), "{problem:?}");
        }
    }

    #[test]
    fn an_expected_failure_must_happen_and_excuses_no_wrong_element() {
        let failed = [worker(1.0, None), None];
        let good = [worker(1.0, Some(0)), worker(1.0, Some(0))];
        let wrong = [worker(1.0, Some(1)), None];
        let judge = |operations: &[[Option<OperationReport>; 2]]| record(operations).judge(&workload("failure", 2));
        assert_eq!(judge(&[good.clone(), failed]), Vec::<String>::new());
        assert_eq!(judge(&[good.clone(), good]), ["job 0: every operation completed, where a failure is expected"]);
        assert!(judge(&[wrong])[0].contains("NOT EXACT"));
    }
}
