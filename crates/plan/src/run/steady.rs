//! Long vectors, of which only the beginning is simulated: what comes behind goes on as it was, as far as can be told.
//!
//! The beginning of the vector is simulated by itself, then twice as much, and so on, with the same seed: where vectors are summed block by block, each run
//! is the one before and goes on. Between two lengths lies the time that so much more takes. Such times for each element differ by chance, where there is any, and the less the more elements
//! they are of: so the time of the rest is a regression through them, and how far off the whole may be with 99 % follows from what they differ by.
//!
//! ```text
//! n_i elements take n_i s_i, between lengths that follow each other;  L = sum n_i
//! s = sum n_i s_i / L        v = sum n_i (s_i - s)^2 / (k - 1)
//! t(E) = t(e) + s (E - e)        |error| <= q(k - 1) sqrt(v ((E - e)^2 / L + (E - e)))
//! ```
//!
//! q is the quantile of Student's t. The first segments may be of how the operation begins: they are left out where the others say more. So the 99 % are
//! those of one regression and not of the best among some, which is looked for again at each length. Therefore nothing is said before what could have been
//! said of a length half as long has come true; how often it holds then is measured (`crates/plan/tests/steady.rs`).
//!
//! The first length is longer than what begins and ends an operation: two windows, and a few packets of each worker's share. A vector whose half would have
//! to be simulated is simulated as a whole.

use fanin_core::Duration;
use fanin_sim::RunResult;

use super::cores::OnCores;
use crate::build::Prepared;
use crate::reading::PlanError;
use crate::results::{JobRecord, RunRecord};

/// The shortest beginning has so many packets for each worker: each leads one, has a share of them, or is the first to send some.
const EACH_PACKETS_MIN: u64 = 1;
/// Where hosts sum, so many of each worker's share: steps of fewer do not overlap.
const SHARE_PACKETS_MIN: u64 = 4;
/// So many packets in all.
const PACKETS_MIN: u64 = 256;
/// And so many windows, of which no larger one counts than the next.
const WINDOWS_MIN: u64 = 2;
const WINDOW_MAX: u64 = 4096;
/// Times for an element that are compared, at least.
const SEGMENTS_MIN: usize = 3;
/// Of Student's t, 99 % two-sided, by degrees of freedom from 1 on; with more than these as with the last.
const QUANTILES: [f64; 12] = [63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055];
/// Times are read to a picosecond, and what is exact is held against that.
const EXACT: f64 = 1e-9;

/// How much of a vector was simulated, and what is said of the rest.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Steady {
    /// Of the vector, in bytes.
    simulated_bytes: u64,
    /// The vector.
    message_bytes: u64,
    /// Time of the rest, and how far off all of it may be as a share; none where not even the beginning was complete.
    rest: Option<(f64, f64)>,
    time_limit: Duration,
}

/// The operation's time by the length of what was simulated.
#[derive(Default)]
struct Times(Vec<(u64, f64)>);

impl Times {
    /// The same, where what could be said of the last length before it was simulated has come true.
    fn confirmed(&self, whole: u64) -> Option<(f64, f64)> {
        let (&(length, us), before) = self.0.split_last()?;
        let before = Times(before.to_vec());
        let (rest, error) = before.rest(length)?;
        let said = before.0.last()?.1 + rest;
        let has_held = (us - said).abs() <= (error + EXACT) * said;
        self.rest(whole).filter(|_| has_held)
    }

    /// Time of what is behind the last length in a vector of `whole` elements, and how far off the whole may be, as a share: by those of the last
    /// segments that say most.
    fn rest(&self, whole: u64) -> Option<(f64, f64)> {
        let &(simulated, us) = self.0.last()?;
        let left = (whole - simulated) as f64;
        let segments: Vec<(f64, f64)> = self.0.windows(2).map(|pair| ((pair[1].0 - pair[0].0) as f64, pair[1].1 - pair[0].1)).collect();
        let by = |last: &[(f64, f64)]| {
            let (elements, time) = last.iter().fold((0.0, 0.0), |sum, segment| (sum.0 + segment.0, sum.1 + segment.1));
            let each = time / elements;
            let freedom = last.len() - 1;
            let differences = last.iter().map(|(elements, time)| elements * (time / elements - each) * (time / elements - each));
            let variance = differences.sum::<f64>() / freedom as f64;
            let quantile = QUANTILES[freedom.min(QUANTILES.len()) - 1];
            let off = quantile * (variance * (left * left / elements + left)).sqrt();
            (each * left, off / (us + each * left))
        };
        let all = (SEGMENTS_MIN..=segments.len()).map(|count| by(&segments[segments.len() - count..]));
        all.filter(|(rest, _)| *rest > 0.0).min_by(|one, other| one.1.total_cmp(&other.1))
    }
}

/// The lengths in elements that are simulated of the one vector of a plan's one job: none where it is too short for that.
fn lengths(prepared: &Prepared) -> Vec<u64> {
    let (job, schedule) = (&prepared.jobs[0], &prepared.scenario.jobs[0]);
    let whole = schedule.elements[0];
    let spec = job.spec(());
    let workers = job.hosts.len() as u64;
    let per_packet = u64::from(spec.payload_bytes / spec.element_bytes.max(1)).max(1);
    let window = u64::from(spec.window).min(WINDOW_MAX);
    // Rina's racks, too, are a ring of shares.
    let by_hosts = !job.system.sums_at_switches() || job.system.goes_on_without_workers();
    let each = if by_hosts { SHARE_PACKETS_MIN } else { EACH_PACKETS_MIN };
    let first = per_packet * workers * each.max((PACKETS_MIN.max(WINDOWS_MIN * window)).div_ceil(workers));
    let doubled = std::iter::successors(Some(first), |length| length.checked_mul(2));
    let all: Vec<u64> = doubled.take_while(|length| length.saturating_mul(2) <= whole).collect();
    if all.len() <= SEGMENTS_MIN + 1 { Vec::new() } else { all }
}

/// Simulates as much of the vector as it takes to say the time of the whole within `tolerance`, as a share.
///
/// # Errors
/// Those of `simulate`.
pub(super) fn simulate(
    prepared: &mut Prepared,
    tolerance: f64,
    simulate: impl Fn(&Prepared) -> Result<(RunResult, OnCores), PlanError>,
) -> Result<(RunResult, OnCores, Steady), PlanError> {
    let whole = prepared.scenario.jobs[0].elements[0];
    let bytes = |elements: u64| elements * u64::from(prepared.scenario.jobs[0].element_bytes);
    let message_bytes = bytes(whole);
    let time_limit = prepared.scenario.time_limit;
    let mut times = Times::default();
    for length in lengths(prepared) {
        let simulated_bytes = length * u64::from(prepared.scenario.jobs[0].element_bytes);
        prepared.scenario.jobs[0].elements[0] = length;
        let (result, cores) = simulate(prepared)?;
        let steady = |rest| Steady { simulated_bytes, message_bytes, rest, time_limit };
        let Some(time) = result.jobs[0].completion(0) else { return Ok((result, cores, steady(None))) };
        times.0.push((length, time.as_us_f64()));
        if let Some(rest) = times.confirmed(whole).filter(|(_, error)| *error <= tolerance) {
            return Ok((result, cores, steady(Some(rest))));
        }
    }
    prepared.scenario.jobs[0].elements[0] = whole;
    let (result, cores) = simulate(prepared)?;
    Ok((result, cores, Steady { simulated_bytes: message_bytes, message_bytes, rest: Some((0.0, 0.0)), time_limit }))
}

impl Steady {
    /// Says in a run's record of the beginning how long the whole takes.
    pub(super) fn complete(&self, record: &mut RunRecord) {
        (record.simulated_bytes, record.steady_error) = (Some(self.simulated_bytes), self.rest.map(|(_, error)| error));
        record.message_bytes = self.message_bytes;
        let job = &mut record.jobs[0];
        job.message_bytes = self.message_bytes;
        let Some((rest_us, _)) = self.rest.filter(|_| self.simulated_bytes < self.message_bytes) else { return };
        let later = |us: &mut Option<f64>| *us = us.map(|us| us + rest_us);
        [&mut job.completion_us, &mut job.jct_us, &mut job.worker_us_min, &mut job.worker_us_median, &mut job.worker_us_max]
            .into_iter()
            .for_each(later);
        job.workers_us.iter_mut().for_each(|(_, us)| later(us));
        job.operation_us = job.operation_us.map(|times| times.later(rest_us));
        job.goodput_gbps = job.completion_us.map(|us| self.message_bytes as f64 * 8.0 / us / 1e3);
        let limit_us = self.time_limit.as_us_f64();
        if let Some(us) = job.jct_us.map(|us| us + job.begun_us).filter(|us| *us > limit_us) {
            let why = format!("job 0: its vector takes until {us:.1} us, and the run is given up at {limit_us:.1} us (run.time_limit)");
            give_up(job, why);
            record.ended = "time_limit";
        }
        let job = &record.jobs[0];
        (record.completion_us, record.jct_us, record.goodput_gbps) = (job.completion_us, job.jct_us, job.goodput_gbps);
        let times = job.operation_us;
        record.operation_us_p50 = times.map(|times| times.p50);
        record.operation_us_p99 = times.map(|times| times.p99);
        record.operation_us_max = times.map(|times| times.max);
        record.failure.clone_from(&job.failure);
    }
}

/// The whole would not have been complete.
fn give_up(job: &mut JobRecord, why: String) {
    (job.completion_us, job.jct_us, job.goodput_gbps, job.operation_us) = (None, None, None, None);
    (job.worker_us_min, job.worker_us_median, job.worker_us_max) = (None, None, None);
    job.workers_us.iter_mut().for_each(|(_, us)| *us = None);
    job.failure = Some(why);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_takes_as_long_for_each_element_as_what_was_simulated() {
        let line = Times([1, 2, 4, 8].map(|length| (length * 100, 7.0 + length as f64)).to_vec());
        let (rest, error) = line.rest(10_000).unwrap();
        assert!((rest - 92.0).abs() < 1e-9 && error < 1e-9, "{rest} {error}");
        // 100, 200 and 400 elements at 0.02, 0.01 and 0.011 us: 0.012 each, whose squares differ by (100 8^2 + 200 2^2 + 400 1^2) / 2 = 3,800 millionths.
        let times = Times(vec![(100, 5.0), (200, 7.0), (400, 9.0), (800, 13.4)]);
        let (rest, error) = times.rest(1_500).unwrap();
        assert!((rest - 8.4).abs() < 1e-9, "{rest}");
        let off = 9.925 * (3.8e-3_f64 * (700.0 * 700.0 / 700.0 + 700.0)).sqrt();
        assert!((error - off / 21.8).abs() < 1e-9, "{error} {off}");
        assert_eq!(Times(times.0[..3].to_vec()).rest(1_800), None, "two differences say nothing");
        // Of the next one is said 13.4 + 0.012 * 800 us.
        let next = |us: f64| Times([&times.0[..], &[(1_600, us)]].concat()).confirmed(3_200).is_some();
        assert!(times.confirmed(1_600).is_none() && next(23.0) && !next(13.4 + 9.6 * 6.0));
    }

    /// How an operation begins is of no use for how it goes on.
    #[test]
    fn what_begins_an_operation_is_left_out_where_the_others_say_more() {
        let times = Times(vec![(1, 9.0), (2, 9.5), (4, 11.5), (8, 15.5), (16, 23.5)]);
        let (rest, error) = times.rest(160).unwrap();
        assert!((rest - 144.0).abs() < 1e-9 && error < 1e-9, "{rest} {error}");
    }

    #[test]
    fn nothing_is_said_of_what_takes_no_time() {
        assert_eq!(Times(vec![(1, 5.0), (2, 5.0), (4, 5.0), (8, 5.0)]).rest(100), None);
    }
}
