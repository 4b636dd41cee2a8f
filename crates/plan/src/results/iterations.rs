//! Times of a job: its iterations, their communication, and all of it from its arrival to its end.

use fanin_core::{Duration, Instant};
use fanin_sim::JobResult;

/// Times of a job, in microseconds.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Times {
    /// Of each iteration that all workers have completed: from the end of the one before, or the job's beginning, to the last worker's
    /// end. Empty for jobs that do not train.
    pub iterations_us: Vec<f64>,
    /// Mean of these.
    pub iteration_us: Option<f64>,
    /// From the first worker's submission in an iteration to the last one's end, mean over the same iterations.
    pub communication_us: Option<f64>,
    /// From the job's beginning to its last worker's end; `None` where it did not complete.
    pub jct_us: Option<f64>,
}

impl Times {
    /// The times of a job; `operations` make an iteration, and are `None` for a job that does not train.
    pub fn of(ran: &JobResult, operations: Option<u32>) -> Times {
        let mut times = Times {
            jct_us: ran
                .is_complete()
                .then(|| last_end(ran, ran.message_bytes.len().saturating_sub(1)))
                .flatten()
                .map(|end| us(ran.begun, end)),
            ..Times::default()
        };
        let Some(operations) = operations else { return times };
        let operations = operations.max(1) as usize;
        let (mut begin, mut communication) = (ran.begun, 0.0);
        for first in (0..ran.message_bytes.len()).step_by(operations) {
            let ends = last_end(ran, first + operations - 1);
            let (Some(submitted), Some(end)) = (first_submission(ran, first), ends) else { break };
            times.iterations_us.push(us(begin, end));
            communication += us(submitted, end);
            begin = end;
        }
        let count = times.iterations_us.len();
        if count > 0 {
            times.iteration_us = Some(times.iterations_us.iter().sum::<f64>() / count as f64);
            times.communication_us = Some(communication / count as f64);
        }
        times
    }
}

fn us(begin: Instant, end: Instant) -> f64 {
    if end < begin { 0.0 } else { Duration::as_us_f64(end.since(begin)) }
}

/// When the last worker ended an operation; `None` unless all completed it but those that the others went on without.
fn last_end(ran: &JobResult, operation: usize) -> Option<Instant> {
    let ends = ran.there(operation).map(|worker| {
        let result = worker.operations.get(operation)?;
        if result.failure.is_some() { None } else { result.ended }
    });
    ends.reduce(|a, b| Some(a?.max(b?))).flatten()
}

fn first_submission(ran: &JobResult, operation: usize) -> Option<Instant> {
    ran.workers.iter().filter_map(|worker| worker.operations.get(operation)).map(|result| result.submitted).min()
}

/// Mean of the values that there are.
pub fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let (sum, count) = values.flatten().fold((0.0, 0u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_sim::WorkerResult;
    use fanin_sim::metrics::OperationResult;

    fn at(us: u64) -> Instant {
        Instant::ZERO + Duration::from_us(us)
    }

    /// Operations as (submitted, ended) in microseconds.
    fn worker(operations: &[(u64, Option<u64>)]) -> WorkerResult {
        let result = |&(submitted, ended): &(u64, Option<u64>)| OperationResult {
            submitted: at(submitted),
            ended: ended.map(at),
            failure: None,
            without: Vec::new(),
        };
        WorkerResult { host: 0, operations: operations.iter().map(result).collect() }
    }

    #[test]
    fn an_iteration_goes_from_the_slowest_workers_end_to_the_next() {
        let mut ran = JobResult {
            workers: vec![
                worker(&[(15, Some(20)), (20, Some(30)), (42, Some(50)), (50, Some(60))]),
                worker(&[(12, Some(22)), (22, Some(32)), (45, Some(52)), (52, Some(64))]),
            ],
            message_bytes: vec![4; 4],
            begun: at(2),
            crashed: None,
            gone: Vec::new(),
        };
        let times = Times::of(&ran, Some(2));
        assert_eq!(times.iterations_us, [30.0, 32.0]);
        assert_eq!((times.iteration_us, times.communication_us, times.jct_us), (Some(31.0), Some((20.0 + 22.0) / 2.0), Some(62.0)));
        assert_eq!(Times::of(&ran, None), Times { jct_us: Some(62.0), ..Times::default() });
        // What is not complete does not count.
        ran.workers[1] = worker(&[(12, Some(22)), (22, Some(32)), (45, None)]);
        let times = Times::of(&ran, Some(2));
        assert_eq!((times.iterations_us, times.jct_us), (vec![30.0], None));
        assert_eq!(mean([Some(1.0), None, Some(4.0)].into_iter()), Some(2.5));
    }
}
