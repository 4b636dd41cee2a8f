//! What jobs get beside each other: means over the time in which all of them run, how evenly those share that run at the same time, and by how
//! much they slow each other down.

use std::collections::BTreeMap;

use fanin_sim::series::SeriesRow;

use super::series::Quantity;
use crate::results::{JobRecord, Percentiles, RunRecord};

/// The first part of that time is left out: windows grow from where they begin.
const SETTLING_SHARE: f64 = 0.25;

/// A job's quantities over the time in which all jobs run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Settled {
    /// Their means.
    pub mean: BTreeMap<&'static str, f64>,
    /// How far they swing: from the 5th to the 95th percentile of the intervals, over the mean. Without those whose mean is 0.
    pub swing: BTreeMap<&'static str, f64>,
}

/// By job, the mean of every quantity of the series, and how far it swings, over the intervals between the last job's beginning and the first one's end, without
/// the first quarter. A job that does not end counts as running until the last sample. Empty where there is no such interval, and
/// without the gauges that nobody has told of.
pub fn settled(jobs: &[JobRecord], series: &[SeriesRow]) -> Vec<Settled> {
    let begin = jobs.iter().map(|job| job.begun_us).fold(0.0, f64::max);
    let end = jobs.iter().map(JobRecord::end_us).fold(f64::INFINITY, f64::min);
    let last = series.last().map_or(0.0, |row| us(row.at.as_ps()));
    let end = end.min(last);
    let settled = begin + (end - begin) * SETTLING_SHARE;
    let of_job = |number: usize| {
        let rows: Vec<&SeriesRow> = series
            .iter()
            .filter(|row| row.job as usize == number && us(row.at.as_ps() - row.span.as_ps()) >= settled && us(row.at.as_ps()) <= end)
            .collect();
        let mut of_job = Settled::default();
        for quantity in Quantity::all() {
            let values: Vec<f64> = rows.iter().filter_map(|row| quantity.of(row)).collect();
            let Some(mean) = mean(&values) else { continue };
            of_job.mean.insert(quantity.name(), mean);
            if mean != 0.0 {
                of_job.swing.insert(quantity.name(), between_percentiles(values) / mean);
            }
        }
        of_job
    };
    (0..jobs.len()).map(of_job).collect()
}

/// How evenly jobs share in an interval.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sharing {
    /// From when, in us.
    pub begin_us: f64,
    /// Until when.
    pub end_us: f64,
    /// Jain's index of the goodput of the jobs that run all the time: 1 where all have the same, and one over their number where one has all.
    pub index: f64,
}

/// How evenly jobs share over time, in the intervals of the series in which at least two run from begin to end.
pub fn sharing(jobs: &[JobRecord], series: &[SeriesRow]) -> Vec<Sharing> {
    let mut intervals: BTreeMap<u64, Vec<&SeriesRow>> = BTreeMap::new();
    for row in series {
        let (begin, end) = (us(row.at.as_ps() - row.span.as_ps()), us(row.at.as_ps()));
        if jobs.get(row.job as usize).is_some_and(|job| job.begun_us <= begin && end <= job.end_us()) {
            intervals.entry(row.at.as_ps()).or_default().push(row);
        }
    }
    let of_interval = |(at, rows): (u64, Vec<&SeriesRow>)| {
        let total: f64 = rows.iter().map(|row| row.goodput_gbps).sum();
        let squares: f64 = rows.iter().map(|row| row.goodput_gbps * row.goodput_gbps).sum();
        // Where nobody gets anything, all get the same.
        let index = if squares == 0.0 { 1.0 } else { total * total / (rows.len() as f64 * squares) };
        (rows.len() > 1).then(|| Sharing { begin_us: us(at - rows[0].span.as_ps()), end_us: us(at), index })
    };
    intervals.into_iter().filter_map(of_interval).collect()
}

/// The mean over all that time, and the lowest; `None` where there is none.
pub fn fairness(sharing: &[Sharing]) -> Option<(f64, f64)> {
    let time: f64 = sharing.iter().map(|interval| interval.end_us - interval.begin_us).sum();
    let sum: f64 = sharing.iter().map(|interval| interval.index * (interval.end_us - interval.begin_us)).sum();
    let lowest = sharing.iter().map(|interval| interval.index).fold(f64::INFINITY, f64::min);
    (time > 0.0).then(|| (sum / time, lowest))
}

/// Where Jain's index is at least this, jobs share fairly: of two, one has at most 1.6 times what the other has.
const FAIR: f64 = 0.95;

/// From when the last job has begun, at `all_us`, to the end of the last interval in which jobs do not share fairly, in us: 0 where there is none, and
/// the whole time where they never do. `None` where no interval is after that.
pub fn unfair_us(all_us: f64, sharing: &[Sharing]) -> Option<f64> {
    let after = || sharing.iter().filter(|interval| interval.begin_us >= all_us);
    after().next()?;
    Some(after().rev().find(|interval| interval.index < FAIR).map_or(0.0, |interval| interval.end_us - all_us))
}

/// Writes down by how much jobs slow each other down, where each takes so long by itself. Jobs that crash are left out.
pub fn compare(record: &mut RunRecord, alone_us: Vec<Option<f64>>) {
    for (job, alone_us) in record.jobs.iter_mut().zip(alone_us) {
        job.alone_us = alone_us.filter(|_| job.crashed_us.is_none());
        job.slowdown = job.jct_us.zip(job.alone_us).map(|(beside, alone)| beside / alone);
    }
    let slowdowns: Vec<f64> = record.jobs.iter().filter_map(|job| job.slowdown).collect();
    let mean = slowdowns.iter().sum::<f64>() / slowdowns.len() as f64;
    if let Some(of_all) = Percentiles::exactly(slowdowns) {
        (record.many.slowdown_mean, record.many.slowdown_p99, record.many.slowdown_max) = (Some(mean), Some(of_all.p99), Some(of_all.max));
    }
}

/// When a job's quantities are first above 0 after the last job has begun, at `all_us`: the begin of that interval, in us. Without those that never
/// are.
pub fn first_us(job: usize, all_us: f64, series: &[SeriesRow]) -> BTreeMap<&'static str, f64> {
    let begin_us = |row: &SeriesRow| us(row.at.as_ps() - row.span.as_ps());
    let first = |quantity: Quantity| {
        let has =
            |row: &&SeriesRow| row.job as usize == job && begin_us(row) >= all_us && quantity.of(row).is_some_and(|value| value > 0.0);
        series.iter().find(has).map(|row| (quantity.name(), begin_us(row)))
    };
    Quantity::all().filter_map(first).collect()
}

fn mean(values: &[f64]) -> Option<f64> {
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// From the 5th to the 95th percentile (nearest rank) of some values; 0 where there are none.
fn between_percentiles(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = |percent: usize| values.get((values.len() * percent).div_ceil(100).saturating_sub(1)).copied().unwrap_or(0.0);
    at(95) - at(5)
}

fn us(ps: u64) -> f64 {
    ps as f64 / 1e6
}

#[cfg(test)]
mod tests {
    use fanin_core::{Duration, Instant};

    use super::*;

    #[test]
    fn jobs_are_unfair_until_the_last_interval_in_which_they_are() {
        let sharing = |indices: &[f64]| -> Vec<Sharing> {
            let of = |(number, index): (usize, &f64)| Sharing { begin_us: number as f64, end_us: number as f64 + 1.0, index: *index };
            indices.iter().enumerate().map(of).collect()
        };
        let intervals = sharing(&[0.5, 0.9, 1.0, 0.94, 0.95, 0.99]);
        assert_eq!((unfair_us(0.0, &intervals), unfair_us(2.5, &intervals)), (Some(4.0), Some(1.5)));
        assert_eq!((unfair_us(4.0, &intervals), unfair_us(6.0, &intervals), unfair_us(0.0, &[])), (Some(0.0), None, None));
        assert_eq!(unfair_us(1.0, &sharing(&[1.0, 0.9, 0.8])), Some(2.0), "until the end");
    }

    #[test]
    fn a_swing_leaves_out_the_extremes_and_what_is_first_is_the_begin_of_an_interval() {
        assert_eq!(between_percentiles((1..=100).rev().map(f64::from).collect()), 90.0);
        assert_eq!((between_percentiles(vec![7.0]), between_percentiles(Vec::new())), (0.0, 0.0));
        let row = |number: u64, job, marked, collisions| SeriesRow {
            at: Instant::ZERO + Duration::from_us(10 * (number + 1)),
            span: Duration::from_us(10),
            job,
            goodput_gbps: 0.0,
            packets: marked,
            marked,
            collisions,
            slots: 0.0,
            slot_bytes: 0.0,
            gauges: [None; fanin_sim::series::GAUGES],
        };
        let rows = [row(0, 0, 0, 0), row(0, 1, 9, 9), row(1, 0, 0, 3), row(2, 0, 5, 1), row(3, 0, 5, 1)];
        let first = |all_us: f64| first_us(0, all_us, &rows);
        assert_eq!((first(0.0).get("collisions"), first(0.0).get("marked"), first(0.0).get("slots")), (Some(&10.0), Some(&20.0), None));
        assert_eq!((first(10.5).get("collisions"), first(40.0).get("marked")), (Some(&20.0), None), "since the last job has begun");
    }
}
