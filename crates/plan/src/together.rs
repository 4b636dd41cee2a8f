//! What jobs get beside each other: means over the time in which all of them run.

use std::collections::BTreeMap;

use fanin_sim::series::SeriesRow;

use crate::results::JobRecord;
use crate::series::Quantity;

/// The first part of that time is left out: windows grow from where they begin.
const SETTLING_SHARE: f64 = 0.25;

/// By job, the mean of every quantity of the series over the intervals between the last job's beginning and the first one's end, without
/// the first quarter. A job that does not end counts as running until the last sample. Empty where there is no such interval, and
/// without the gauges that nobody has told of.
pub fn means(jobs: &[JobRecord], series: &[SeriesRow]) -> Vec<BTreeMap<&'static str, f64>> {
    let begin = jobs.iter().map(|job| job.begun_us).fold(0.0, f64::max);
    let end = jobs.iter().map(end_us).fold(f64::INFINITY, f64::min);
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

fn end_us(job: &JobRecord) -> f64 {
    job.crashed_us.or(job.jct_us.map(|time| job.begun_us + time)).unwrap_or(f64::INFINITY)
}

fn mean(rows: &[&SeriesRow], quantity: Quantity) -> Option<f64> {
    let values: Vec<f64> = rows.iter().filter_map(|row| quantity.of(row)).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

fn us(ps: u64) -> f64 {
    ps as f64 / 1e6
}
