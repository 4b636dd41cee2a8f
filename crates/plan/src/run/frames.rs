//! Results as columns of one type each: what `results.csv` and its companions hold, for programs.

use serde_json::Value;

use fanin_sim::series::SeriesRow;

use super::Finished;
use crate::plan::Plan;
use crate::results::columns::{ColumnKind, CsvColumn, all_columns, cell, columns};
use crate::results::series::Quantity;
use crate::results::workload::{CommunicationRecord, GroupRecord};
use crate::results::{Percentiles, RunRecord};

/// A table: columns by name, all of the same length.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Frame {
    /// The columns, in order.
    pub columns: Vec<(String, Column)>,
}

/// The values of a column; `None` where a row has none.
#[derive(Clone, PartialEq, Debug)]
pub enum Column {
    /// Texts.
    Text(Vec<Option<String>>),
    /// Whole numbers from 0.
    Count(Vec<Option<u64>>),
    /// Whole numbers.
    Integer(Vec<Option<i64>>),
    /// Numbers.
    Number(Vec<Option<f64>>),
    /// Yes or no.
    Flag(Vec<Option<bool>>),
}

impl Column {
    /// Number of rows.
    pub fn len(&self) -> usize {
        match self {
            Column::Text(values) => values.len(),
            Column::Count(values) => values.len(),
            Column::Integer(values) => values.len(),
            Column::Number(values) => values.len(),
            Column::Flag(values) => values.len(),
        }
    }

    /// A value as it stands in a CSV cell.
    pub fn text(&self, row: usize) -> String {
        let shown = match self {
            Column::Text(values) => values[row].clone(),
            Column::Count(values) => values[row].map(|value| value.to_string()),
            Column::Integer(values) => values[row].map(|value| value.to_string()),
            Column::Number(values) => values[row].map(|value| value.to_string()),
            Column::Flag(values) => values[row].map(|value| value.to_string()),
        };
        shown.unwrap_or_default()
    }

    /// Whether there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A column of the type of this one.
    fn like(&self, values: &[Option<&Value>]) -> Column {
        match self {
            Column::Text(_) => Column::Text(values.iter().map(|value| value.map(cell)).collect()),
            Column::Count(_) => Column::Count(values.iter().map(|value| value.and_then(Value::as_u64)).collect()),
            Column::Integer(_) => Column::Integer(values.iter().map(|value| value.and_then(Value::as_i64)).collect()),
            Column::Number(_) => Column::Number(values.iter().map(|value| value.and_then(Value::as_f64)).collect()),
            Column::Flag(_) => Column::Flag(values.iter().map(|value| value.and_then(Value::as_bool)).collect()),
        }
    }

    /// The type that all values of a key have; texts where they have none in common.
    fn of_any(values: &[Option<&Value>]) -> Column {
        let all = |fits: fn(&Value) -> bool| values.iter().flatten().all(|value| fits(value));
        let empty = if all(Value::is_boolean) {
            Column::Flag(Vec::new())
        } else if all(Value::is_i64) {
            Column::Integer(Vec::new())
        } else if all(Value::is_number) {
            Column::Number(Vec::new())
        } else {
            Column::Text(Vec::new())
        };
        empty.like(values)
    }
}

impl Frame {
    fn push(&mut self, name: impl Into<String>, column: Column) {
        self.columns.push((name.into(), column));
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.columns.first().map_or(0, |(_, column)| column.len())
    }
}

/// One row a run, with the columns of `results.csv`.
pub fn runs(records: &[&RunRecord]) -> Frame {
    let rows = rows(records);
    let mut frame = Frame::default();
    for column in columns(records, &rows) {
        let values = values(&column, &rows);
        frame.push(column.name(), made(column.kind, &values, &values));
    }
    frame
}

fn rows(records: &[&RunRecord]) -> Vec<Value> {
    records.iter().map(|record| serde_json::to_value(record).expect("a record is plain data")).collect()
}

fn values<'r>(column: &CsvColumn, rows: &'r [Value]) -> Vec<Option<&'r Value>> {
    rows.iter().map(|row| column.value(row).filter(|value| !value.is_null())).collect()
}

/// A column of these values; `all` are those that decide about its type, where that is open.
fn made(kind: ColumnKind, values: &[Option<&Value>], all: &[Option<&Value>]) -> Column {
    match kind {
        ColumnKind::Text | ColumnKind::TextIfAny => Column::Text(values.iter().map(|value| value.map(cell)).collect()),
        ColumnKind::Count => Column::Count(values.iter().map(|value| value.and_then(Value::as_u64)).collect()),
        ColumnKind::Number | ColumnKind::IfAny => Column::Number(values.iter().map(|value| value.and_then(Value::as_f64)).collect()),
        ColumnKind::Flag => Column::Flag(values.iter().map(|value| value.and_then(Value::as_bool)).collect()),
        ColumnKind::Reasons => Column::Count(values.iter().map(|value| value.map_or(Some(0), Value::as_u64)).collect()),
        ColumnKind::Params => Column::of_any(all).like(values),
    }
}

/// The same for a part of a plan's runs, with columns that are those of every other part; `first` is the number of its first run, in a column `run`.
pub fn runs_of_part(plan: &Plan, first: usize, records: &[&RunRecord]) -> Frame {
    let rows = rows(records);
    let mut frame = Frame::default();
    frame.push("run", Column::Count((first..).take(rows.len()).map(|run| Some(run as u64)).collect()));
    for column in all_columns(plan) {
        let params = || plan.points.iter().flat_map(|point| &point.params).filter(|(key, _)| column.is("params", key));
        let all: Vec<Option<&Value>> = params().map(|(_, value)| Some(value).filter(|value| !value.is_null())).collect();
        frame.push(column.name(), made(column.kind, &values(&column, &rows), &all));
    }
    frame
}

/// All tables of a part of a plan's runs, by name: `run` is the number of the run among all of the plan's, and columns are those of every other part.
pub fn of_part(plan: &Plan, first: usize, finished: &[Finished]) -> Vec<(&'static str, Frame)> {
    let records: Vec<&RunRecord> = finished.iter().map(|run| &run.record).collect();
    let numbered = |mut frame: Frame| {
        if let Some((_, Column::Count(runs))) = frame.columns.iter_mut().find(|(name, _)| name == "run") {
            runs.iter_mut().flatten().for_each(|run| *run += first as u64);
        }
        frame
    };
    vec![
        ("runs", runs_of_part(plan, first, &records)),
        ("jobs", numbered(jobs_with(&records, Width::All))),
        ("workers", numbered(workers(&records))),
        ("links", links(plan, finished)),
        ("memory", memory(plan, finished)),
        ("series", series_with(plan, finished, Width::All)),
        ("communication", numbered(communication(&records))),
    ]
}

/// Which columns a table has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Width {
    /// Those that a row has a value for.
    AsNeeded,
    /// All.
    All,
}

/// One row for each way in which a job with a workload communicates, and behind it one for each single group that is listed of it, which has
/// a `number`; `run` is the row of the run, `job` the job's number in it.
pub fn communication(records: &[&RunRecord]) -> Frame {
    /// A row: run, job, the way, and the single group.
    type Row<'a> = (usize, usize, &'a CommunicationRecord, Option<&'a GroupRecord>);
    /// One of a row's percentiles, by name.
    type Part = (&'static str, fn(Percentiles) -> f64);
    const PARTS: [Part; 3] = [("p50", |times| times.p50), ("p99", |times| times.p99), ("max", |times| times.max)];
    let mut all: Vec<Row<'_>> = Vec::new();
    for (run, record) in records.iter().enumerate() {
        for (job, of) in record.jobs.iter().enumerate() {
            for way in of.workload.iter().flat_map(|workload| &workload.communication) {
                all.push((run, job, way, None));
                all.extend(way.by_group.iter().map(|group| (run, job, way, Some(group))));
            }
        }
    }
    let text =
        |value: fn(&CommunicationRecord) -> &str| Column::Text(all.iter().map(|(.., row, _)| Some(value(row).to_string())).collect());
    let count = |value: &dyn Fn(&Row<'_>) -> Option<u64>| Column::Count(all.iter().map(value).collect());
    let mut frame = Frame::default();
    frame.push("run", count(&|(run, ..)| Some(*run as u64)));
    frame.push("job", count(&|(_, job, ..)| Some(*job as u64)));
    frame.push("group", text(|row| &row.group));
    frame.push("collective", text(|row| row.collective));
    frame.push("ran", text(|row| row.ran));
    frame.push("groups", count(&|(.., way, group)| group.is_none().then(|| u64::from(way.groups))));
    frame.push("number", count(&|(.., group)| group.map(|group| u64::from(group.number))));
    frame.push("ranks", Column::Text(all.iter().map(|(.., group)| group.map(|group| group.ranks.clone())).collect()));
    frame.push("operations", count(&|(.., way, group)| Some(group.map_or(way.operations, |group| group.operations))));
    frame.push("bytes", count(&|(.., way, group)| Some(group.map_or(way.bytes, |group| group.bytes))));
    let operation = |(.., way, group): &Row<'_>| group.map_or(way.operation_us, |group| group.operation_us);
    let with_waiting = |(.., way, group): &Row<'_>| group.map_or(way.with_waiting_us, |group| group.with_waiting_us);
    let mut push = |name: &str, times: &dyn Fn(&Row<'_>) -> Option<Percentiles>| {
        for (part, value) in PARTS {
            frame.push(format!("{name}_us_{part}"), Column::Number(all.iter().map(|row| times(row).map(value)).collect()));
        }
    };
    push("operation", &operation);
    push("with_waiting", &with_waiting);
    let exposed = |(.., way, group): &Row<'_>| group.is_none().then_some(way.exposed_us);
    frame.push("exposed_us", Column::Number(all.iter().map(exposed).collect()));
    frame
}

/// One row a job of a run; `run` is the row of the run.
pub fn jobs(records: &[&RunRecord]) -> Frame {
    jobs_with(records, Width::AsNeeded)
}

fn jobs_with(records: &[&RunRecord], width: Width) -> Frame {
    let all: Vec<(usize, &crate::results::JobRecord)> =
        records.iter().enumerate().flat_map(|(run, record)| record.jobs.iter().map(move |job| (run, job))).collect();
    let count =
        |value: &dyn Fn(&(usize, &crate::results::JobRecord)) -> u64| Column::Count(all.iter().map(|job| Some(value(job))).collect());
    let number =
        |value: &dyn Fn(&crate::results::JobRecord) -> Option<f64>| Column::Number(all.iter().map(|(_, job)| value(job)).collect());
    let mut frame = Frame::default();
    frame.push("run", count(&|(run, _)| *run as u64));
    frame.push("entry", count(&|(_, job)| job.entry as u64));
    frame.push("system", Column::Text(all.iter().map(|(_, job)| Some(job.system.to_string())).collect()));
    if width == Width::All || all.iter().any(|(_, job)| job.ran.is_some()) {
        let text = |value: fn(&crate::results::JobRecord) -> Option<&'static str>| {
            Column::Text(all.iter().map(|(_, job)| value(job).map(str::to_string)).collect())
        };
        frame.push("collective", text(|job| job.collective));
        frame.push("ran", text(|job| job.ran));
    }
    frame.push("workers", count(&|(_, job)| u64::from(job.workers)));
    frame.push("message_bytes", count(&|(_, job)| job.message_bytes));
    frame.push("operations", count(&|(_, job)| u64::from(job.operations)));
    frame.push("completion_us", number(&|job| job.completion_us));
    frame.push("goodput_gbps", number(&|job| job.goodput_gbps));
    frame.push("servers", count(&|(_, job)| u64::from(job.servers)));
    frame.push("begun_us", number(&|job| Some(job.begun_us)));
    frame.push("jct_us", number(&|job| job.jct_us));
    if width == Width::All || all.iter().any(|(_, job)| job.alone_us.is_some()) {
        frame.push("alone_us", number(&|job| job.alone_us));
        frame.push("slowdown", number(&|job| job.slowdown));
    }
    frame.push("iteration_us", number(&|job| job.iteration_us));
    frame.push("communication_us", number(&|job| job.communication_us));
    frame.push("crashed_us", number(&|job| job.crashed_us));
    frame.push("worker_us_min", number(&|job| job.worker_us_min));
    frame.push("worker_us_median", number(&|job| job.worker_us_median));
    frame.push("worker_us_max", number(&|job| job.worker_us_max));
    frame.push("failure", Column::Text(all.iter().map(|(_, job)| job.failure.clone()).collect()));
    let ranks = |job: &crate::results::JobRecord| job.without.iter().map(u32::to_string).collect::<Vec<_>>().join(" ");
    frame.push("without", Column::Text(all.iter().map(|(_, job)| (!job.without.is_empty()).then(|| ranks(job))).collect()));
    frame
}

/// One row a worker of a run: its host, and its time from the first submission to the last end.
pub fn workers(records: &[&RunRecord]) -> Frame {
    let (mut runs, mut jobs, mut ranks, mut hosts, mut times) = (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (run, record) in records.iter().enumerate() {
        for (number, job) in record.jobs.iter().enumerate() {
            for (rank, (host, time_us)) in job.workers_us.iter().enumerate() {
                runs.push(Some(run as u64));
                jobs.push(Some(number as u64));
                ranks.push(Some(rank as u64));
                hosts.push(Some(u64::from(*host)));
                times.push(*time_us);
            }
        }
    }
    let mut frame = Frame::default();
    frame.push("run", Column::Count(runs));
    frame.push("job", Column::Count(jobs));
    frame.push("rank", Column::Count(ranks));
    frame.push("host", Column::Count(hosts));
    frame.push("time_us", Column::Number(times));
    frame
}

/// One row a link of the first repetition of each point, with the columns of `links.csv`.
pub fn links(plan: &Plan, finished: &[Finished]) -> Frame {
    let all: Vec<_> = finished.iter().flat_map(|run| run.links.iter().map(move |link| (run, link))).collect();
    let mut frame = labels(plan, all.iter().map(|(run, _)| *run));
    frame.push("from", Column::Text(all.iter().map(|(_, link)| Some(link.from.to_string())).collect()));
    frame.push("to", Column::Text(all.iter().map(|(_, link)| Some(link.to.to_string())).collect()));
    frame.push("bytes", Column::Count(all.iter().map(|(_, link)| Some(link.bytes)).collect()));
    frame.push("packets", Column::Count(all.iter().map(|(_, link)| Some(link.packets)).collect()));
    frame.push("utilization", Column::Number(all.iter().map(|(_, link)| Some(link.utilization)).collect()));
    frame.push("queue_bytes_peak", Column::Count(all.iter().map(|(_, link)| Some(link.queue_bytes_peak)).collect()));
    frame.push("packets_dropped", Column::Count(all.iter().map(|(_, link)| Some(link.packets_dropped)).collect()));
    frame
}

/// Memory of the switches over time in the first repetition of each point, with the columns of `memory.csv`.
pub fn memory(plan: &Plan, finished: &[Finished]) -> Frame {
    let all: Vec<_> = finished.iter().flat_map(|run| run.memory.iter().map(move |sample| (run, sample))).collect();
    let mut frame = labels(plan, all.iter().map(|(run, _)| *run));
    frame.push("time_us", Column::Number(all.iter().map(|(_, sample)| Some(sample.at.as_ps() as f64 / 1e6)).collect()));
    frame.push("switch_bytes_max", Column::Count(all.iter().map(|(_, sample)| Some(sample.bytes_max)).collect()));
    frame.push("bytes_total", Column::Count(all.iter().map(|(_, sample)| Some(sample.bytes_total)).collect()));
    frame
}

/// Jobs over time in the first repetition of each point, with the columns of `series.csv`. Gauges that no node has told of have no column.
pub fn series(plan: &Plan, finished: &[Finished]) -> Frame {
    series_with(plan, finished, Width::AsNeeded)
}

fn series_with(plan: &Plan, finished: &[Finished], width: Width) -> Frame {
    let all: Vec<_> = finished.iter().flat_map(|run| run.series.iter().map(move |row| (run, row))).collect();
    let mut frame = labels(plan, all.iter().map(|(run, _)| *run));
    let number = |value: &dyn Fn(&SeriesRow) -> Option<f64>| Column::Number(all.iter().map(|(_, row)| value(row)).collect());
    frame.push("time_us", number(&|row| Some(row.at.as_ps() as f64 / 1e6)));
    frame.push("interval_us", number(&|row| Some(row.span.as_ps() as f64 / 1e6)));
    frame.push("job", Column::Count(all.iter().map(|(_, row)| Some(u64::from(row.job))).collect()));
    for quantity in Quantity::all() {
        let column = number(&|row| quantity.of(row));
        let is_told = !matches!((quantity, &column), (Quantity::Gauge(_), Column::Number(values)) if values.iter().all(Option::is_none));
        if is_told || width == Width::All {
            frame.push(quantity.name(), column);
        }
    }
    frame
}

/// A column for each axis of the plan: the place of the row's point on it.
fn labels<'a>(plan: &Plan, rows: impl Iterator<Item = &'a Finished> + Clone) -> Frame {
    let mut frame = Frame::default();
    for (number, axis) in plan.axes.iter().enumerate() {
        let texts = rows.clone().map(|run| Some(plan.points[run.point].labels[number].clone())).collect();
        frame.push(axis.name.as_str(), Column::Text(texts));
    }
    frame
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::columns::write_csv;
    use crate::run::run;

    const PLAN: &str = r#"
        [network]
        shape = "star"
        rate = "100Gb/s"
        latency = "300ns"
        hosts = 8
        [[jobs]]
        system = "tree"
        workers = 4
        message = "64KiB"
        [[jobs]]
        system = "ring"
        workers = 4
        message = "4KiB"
        [faults]
        links = [{ loss = 0.01 }]
        [sweep]
        "jobs.0.message" = ["4KiB", "8KiB"]
        "jobs.0.trees" = [1, 2]
        [run]
        repetitions = 2
        memory_interval = "5us"
    "#;

    /// As the CSV writes it.
    fn cell(column: &Column, row: usize) -> String {
        let value = match column {
            Column::Text(values) => return values[row].clone().unwrap_or_default(),
            Column::Count(values) => values[row].map(Value::from),
            Column::Integer(values) => values[row].map(Value::from),
            Column::Number(values) => values[row].map(Value::from),
            Column::Flag(values) => values[row].map(Value::from),
        };
        value.map_or(String::new(), |value| value.to_string())
    }

    #[test]
    fn frames_hold_what_the_csv_holds() {
        let plan = Plan::parse("plan", PLAN, &[], None).unwrap();
        let finished = run(&plan, 1, || true).unwrap();
        let records: Vec<&RunRecord> = finished.iter().map(|run| &run.record).collect();
        let frame = runs(&records);
        let mut text = Vec::new();
        write_csv(&records, &mut text).unwrap();
        let mut reader = csv::Reader::from_reader(text.as_slice());
        let names: Vec<&str> = frame.columns.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(reader.headers().unwrap().iter().collect::<Vec<_>>(), names);
        assert!(names.contains(&"params.jobs.0.message") && names.iter().any(|name| name.starts_with("drops.")), "{names:?}");
        let mut rows = 0;
        for (row, record) in reader.records().enumerate() {
            for ((name, column), expected) in frame.columns.iter().zip(record.unwrap().iter()) {
                assert_eq!(cell(column, row), expected, "{name} of row {row}");
            }
            rows += 1;
        }
        assert_eq!((rows, frame.rows()), (8, 8));
        assert_eq!((jobs(&records).rows(), workers(&records).rows()), (16, 64));
        assert_eq!(links(&plan, &finished).rows(), 4 * 16);
        assert!(memory(&plan, &finished).rows() > 0);
        let trees = &frame.columns.iter().find(|(name, _)| name == "params.jobs.0.trees").unwrap().1;
        assert_eq!(*trees, Column::Integer([1, 1, 2, 2, 1, 1, 2, 2].map(Some).to_vec()));
    }
}
