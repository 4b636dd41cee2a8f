//! What jobs get beside each other: means over the time in which all of them run, how evenly those share that run at the same time, and by how
//! much they slow each other down.

use std::collections::BTreeMap;

use fanin_sim::series::SeriesRow;

use crate::results::{JobRecord, Percentiles, RunRecord};
use crate::series::Quantity;

/// The first part of that time is left out: windows grow from where they begin.
const SETTLING_SHARE: f64 = 0.25;

/// By job, the mean of every quantity of the series over the intervals between the last job's beginning and the first one's end, without
/// the first quarter. A job that does not end counts as running until the last sample. Empty where there is no such interval, and
/// without the gauges that nobody has told of.
pub fn means(jobs: &[JobRecord], series: &[SeriesRow]) -> Vec<BTreeMap<&'static str, f64>> {
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
        Quantity::all().filter_map(|quantity| mean(&rows, quantity).map(|mean| (quantity.name(), mean))).collect()
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

fn mean(rows: &[&SeriesRow], quantity: Quantity) -> Option<f64> {
    let values: Vec<f64> = rows.iter().filter_map(|row| quantity.of(row)).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn us(ps: u64) -> f64 {
    ps as f64 / 1e6
}
