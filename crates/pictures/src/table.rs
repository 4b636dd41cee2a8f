//! The summary for people: one row a point, medians over its repetitions.

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, LineStyle, Table, TableStyle};
use fanin_plan::Plan;
use fanin_plan::results::{DeathRecord, Percentiles, RunRecord, median};
use fanin_plan::run::Finished;
use fanin_plan::schema::Expect;
use fanin_plan::units::{bytes_about, bytes_text};
use fanin_plan::workload::CommunicationRecord;

/// The table, what is alike in all runs above it, and below it every run that is not as it should be.
pub fn summary(plan: &Plan, finished: &[Finished]) -> String {
    let mut text = heading(plan, finished);
    for line in table(plan, finished).lines() {
        text.extend([line.trim_end(), "\n"]);
    }
    for line in
        deaths(plan, finished).iter().chain(&incomplete(plan, finished)).chain(&unmarked(plan, finished)).chain(&problems(plan, finished))
    {
        text.extend([line.as_str(), "\n"]);
    }
    text + &workloads(plan, finished)
}

/// What jobs with a workload communicate, where the plan has one run.
fn workloads(plan: &Plan, finished: &[Finished]) -> String {
    let [run] = finished else { return String::new() };
    let mut text = String::new();
    for (number, job) in run.record.jobs.iter().enumerate() {
        let Some(workload) = &job.workload else { continue };
        let name =
            plan.points[run.point].setup.jobs.get(job.entry).and_then(|job| job.workload.as_ref()).map(|of| of.workload.name.clone());
        let name = name.filter(|name| !name.is_empty()).unwrap_or_else(|| format!("job {number}"));
        let ranks = workload.ranks;
        text.push_str(&format!("\n{name}: {ranks} ranks, a rank computes {} us an iteration", number_text(workload.compute_us)));
        if let (Some(exposed), Some(share)) = (workload.exposed_us, workload.exposed_share) {
            let percent = number_text(share * 100.0);
            text.push_str(&format!(" and waits {} us for communication that nothing hides ({percent} %)", number_text(exposed)));
        }
        text.push('\n');
        for line in communication(&workload.communication).lines() {
            text.extend([line.trim_end(), "\n"]);
        }
        let critical = workload.critical.iter().map(|part| format!("{} {} %", part.what, number_text(part.share * 100.0)));
        let critical: Vec<String> = critical.collect();
        if !critical.is_empty() {
            text.push_str(&format!("critical path: {}\n", critical.join(", ")));
        }
    }
    text
}

fn communication(rows: &[CommunicationRecord]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["group", "collective", "ran", "operations", "bytes", "median (us)", "longest (us)", "exposed a rank (us)"]);
    for column in table.column_iter_mut().skip(3) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for row in rows {
        let time = |of: fn(Percentiles) -> f64| row.operation_us.map_or("-".into(), |times| number_text(of(times)));
        table.add_row([
            row.group.clone(),
            row.collective.into(),
            row.ran.into(),
            row.operations.to_string(),
            bytes_about(row.bytes),
            time(|times| times.p50),
            time(|times| times.max),
            number_text(row.exposed_us),
        ]);
    }
    table
}

/// Where a run stands in the plan, for the beginning of a line.
fn place(plan: &Plan, run: &Finished) -> String {
    let point = plan.describe(&plan.points[run.point]);
    if point.is_empty() { String::new() } else { format!("{point}, ") }
}

/// Every job that was completed without some of its ranks, in words.
fn incomplete(plan: &Plan, finished: &[Finished]) -> Vec<String> {
    let mut all = Vec::new();
    for run in finished {
        for (number, job) in run.record.jobs.iter().enumerate().filter(|(_, job)| !job.without.is_empty()) {
            let ranks: Vec<String> = job.without.iter().map(u32::to_string).collect();
            let (ranks, s) = (ranks.join(", "), if job.without.len() == 1 { "" } else { "s" });
            let (place, seed) = (place(plan, run), run.record.seed);
            all.push(format!("{place}seed {seed}: job {number} completed without rank{s} {ranks}; its results are the others' sums"));
        }
    }
    all
}

/// Every worker that died, in words.
fn deaths(plan: &Plan, finished: &[Finished]) -> Vec<String> {
    let mut all = Vec::new();
    for run in finished {
        for (number, job) in run.record.jobs.iter().enumerate() {
            for DeathRecord { rank, host, at_us } in &job.deaths {
                all.push(format!(
                    "{}seed {}: rank {rank} of job {number}, on {host}, died at {at_us:.1} us",
                    place(plan, run),
                    run.record.seed
                ));
            }
        }
    }
    all
}

/// Every run in which queues overflowed though its systems would have slowed down, had they been told.
fn unmarked(plan: &Plan, finished: &[Finished]) -> Vec<String> {
    let mut all = Vec::new();
    for run in finished {
        let setup = &plan.points[run.point].setup;
        let lost = run.record.drops.get("queue_full").copied().unwrap_or(0);
        let deaf = setup.jobs.iter().find(|job| job.system.obeys_marks()).filter(|_| setup.general.network.ecn.is_none());
        if let Some(job) = deaf.filter(|_| lost > 0) {
            let (place, seed, system) = (place(plan, run), run.record.seed, job.system.name());
            all.push(format!(
                "{place}seed {seed}: full queues lost {lost} packets; windows of {system} shrink by ECN marks only, and network.ecn is not given"
            ));
        }
    }
    all
}

/// The runs of a plan that has not run: a line a point.
pub fn runs(plan: &Plan) -> String {
    let count = |point: &fanin_plan::Point| u64::from(point.setup.general.run.repetitions.0);
    let total: u64 = plan.points.iter().map(count).sum();
    let mut text = format!("{}: {} points, {total} runs\n", plan.file, plan.points.len());
    for point in plan.points.iter().filter(|_| !plan.axes.is_empty()) {
        text.push_str(&format!("  {} x {}\n", plan.describe(point), count(point)));
    }
    text
}

/// Every run that is not as it should be, in words.
pub fn problems(plan: &Plan, finished: &[Finished]) -> Vec<String> {
    let mut all = Vec::new();
    for run in finished.iter().filter(|run| !run.record.is_good()) {
        let place = place(plan, run);
        let seed = run.record.seed;
        if !run.record.is_exact() {
            all.push(format!("NOT EXACT: {place}seed {seed}: {}", run.record.census));
        }
        if let Some(failure) = &run.record.failure {
            all.push(format!("FAILED: {place}seed {seed}: {failure}"));
        }
    }
    all
}

/// Whether a run ended as the plan expects, and exact in any case.
pub fn as_expected(plan: &Plan, run: &Finished) -> bool {
    match plan.points[run.point].setup.general.run.expect {
        Expect::Success => run.record.is_good(),
        Expect::Failure => run.record.is_exact() && run.record.failure.is_some(),
    }
}

/// The cells of the table, as texts.
pub struct Cells {
    /// Titles of the columns.
    pub header: Vec<String>,
    /// A row a point.
    pub rows: Vec<Vec<String>>,
}

/// The table without its form.
pub fn cells(plan: &Plan, finished: &[Finished]) -> Cells {
    let table = table(plan, finished);
    let texts = |row: &comfy_table::Row| row.cell_iter().map(Cell::content).collect();
    Cells { header: table.header().map(texts).unwrap_or_default(), rows: table.row_iter().map(texts).collect() }
}

/// What is alike in all runs: network, workers, length.
pub fn heading(plan: &Plan, finished: &[Finished]) -> String {
    let Some(first) = finished.first().map(|run| &run.record) else { return String::new() };
    let alike = |value: fn(&RunRecord) -> u64| finished.iter().all(|run| value(&run.record) == value(first));
    let mut parts = Vec::new();
    if alike(|run| u64::from(run.hosts)) {
        parts.push(format!("{} hosts", first.hosts));
    }
    if alike(|run| u64::from(run.workers)) && first.workers > 0 {
        parts.push(format!("{} workers", first.workers));
    }
    if alike(|run| run.message_bytes) && first.workers > 0 && first.message_bytes > 0 {
        parts.push(bytes_text(first.message_bytes));
    }
    let repetitions = plan.points.first().map_or(1, |point| point.setup.general.run.repetitions.0);
    parts.push(match repetitions {
        1 => format!("1 run a row, seed {}", first.seed),
        _ => format!("{repetitions} runs a row, seeds from {}: median (lowest..highest)", first.seed),
    });
    parts.extend(in_part(finished));
    format!("{}: {}\n", plan.file, parts.join(", "))
}

/// What is said of runs that have simulated a part of their vector only, if there are some.
fn in_part(finished: &[Finished]) -> Option<String> {
    let records = finished.iter().map(|run| &run.record);
    let parts: Vec<f64> = records
        .filter(|run| run.simulated_bytes.is_some_and(|bytes| bytes < run.message_bytes))
        .filter_map(|run| run.steady_error)
        .collect();
    let most = parts.iter().copied().reduce(f64::max)?;
    let (count, all, percent) = (parts.len(), finished.len(), number_text((most * 100.0).max(0.01)));
    Some(format!("{count} of {all} simulated a part of the vector, and say the time of the whole to within {percent} %"))
}

/// A number with three digits that mean something.
pub fn number_text(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        magnitude if magnitude >= 100.0 => 0,
        magnitude if magnitude >= 10.0 => 1,
        magnitude if magnitude >= 0.01 => 2 + usize::from(magnitude < 1.0),
        _ => return format!("{value:.1e}"),
    };
    format!("{value:.digits$}")
}

/// A line under the header and one below everything.
pub const STYLE: TableStyle =
    TableStyle::new().header_separator(LineStyle::none().fill('─').junction('─')).bottom_border(LineStyle::none().fill('─').junction('─'));

/// The axes' names without the parts of their keys that nobody needs to tell them apart.
fn axis_names(plan: &Plan) -> Vec<String> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or(name).to_string();
    let all: Vec<String> = plan.axes.iter().map(|axis| last(&axis.name)).collect();
    let unique = |short: &String| all.iter().filter(|other| *other == short).count() == 1;
    plan.axes.iter().zip(&all).map(|(axis, short)| if unique(short) { short.clone() } else { axis.name.clone() }).collect()
}

/// A number that a column is there for where a run has it.
struct Extra {
    title: &'static str,
    value: fn(&RunRecord) -> Option<f64>,
    digits: usize,
}

/// Communication that no computation hides, mean over jobs with a workload.
fn exposed_us(run: &RunRecord) -> Option<f64> {
    let all: Option<Vec<f64>> = run.jobs.iter().filter_map(|job| job.workload.as_ref()).map(|workload| workload.exposed_us).collect();
    all.filter(|all| !all.is_empty()).map(|all| all.iter().sum::<f64>() / all.len() as f64)
}

const EXTRAS: [Extra; 6] = [
    Extra { title: "iteration (us)", value: |run| run.iteration_us, digits: 1 },
    Extra { title: "exposed (us)", value: exposed_us, digits: 1 },
    Extra { title: "slowdown", value: |run| run.many.slowdown_mean, digits: 2 },
    Extra { title: "at most", value: |run| run.many.slowdown_max, digits: 2 },
    Extra { title: "fairness", value: |run| run.many.fairness.filter(|_| run.many.slowdown_mean.is_some()), digits: 3 },
    Extra { title: "background (Gb/s)", value: |run| run.congested.then_some(run.background_gbps), digits: 1 },
];

/// What workers do, as a column.
const COLLECTIVE: &str = "collective";

/// Whether an axis says what the column of collectives would say. One of this name that says something else, of one job among others, gets the whole
/// key for its name.
fn name_collectives(plan: &Plan, finished: &[Finished], axes: &mut [String]) -> bool {
    let Some(axis) = axes.iter().position(|axis| axis == COLLECTIVE) else { return false };
    let says = |run: &Finished| run.record.collective.as_ref() == plan.points[run.point].labels.get(axis);
    let is_swept = finished.iter().all(says);
    if !is_swept {
        axes[axis].clone_from(&plan.axes[axis].name);
    }
    is_swept
}

fn table(plan: &Plan, finished: &[Finished]) -> Table {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    let mut axes = axis_names(plan);
    let is_swept = name_collectives(plan, finished, &mut axes);
    let mut header = axes.clone();
    if axes.is_empty() {
        header.push("system".into());
    }
    // What ran is never left unsaid: hosts do by messages what a job's system does not have.
    let with_collectives = finished.iter().any(|run| run.record.ran.is_some());
    if with_collectives {
        header.extend((!is_swept).then(|| COLLECTIVE.to_string()));
        header.push("ran".into());
    }
    let texts = header.len();
    let with_jobs = finished.iter().any(|run| run.record.workers > 0);
    let extras: Vec<&Extra> = EXTRAS.iter().filter(|extra| finished.iter().any(|run| (extra.value)(&run.record).is_some())).collect();
    // Jobs with a workload have iterations in their place; those in pods have both.
    let with_vectors =
        with_jobs && !finished.iter().all(|run| run.record.jobs.iter().all(|job| job.workload.is_some() && job.completion_us.is_none()));
    if with_vectors {
        header.extend(["completion (us)".into(), "goodput (Gb/s)".into()]);
    }
    if with_jobs {
        header.push("switch memory".into());
    }
    header.extend(extras.iter().map(|extra| extra.title.to_string()));
    header.extend(["link use".into(), "dropped".into(), "sent again".into(), "census".into()]);
    let numbers = header.len() - texts;
    table.set_header(header);
    for column in table.column_iter_mut().rev().take(numbers) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    for (index, point) in plan.points.iter().enumerate() {
        let runs: Vec<&RunRecord> = finished.iter().filter(|run| run.point == index).map(|run| &run.record).collect();
        let mut row: Vec<Cell> = point.labels.iter().map(Cell::new).collect();
        if axes.is_empty() {
            row.push(Cell::new(runs.first().map_or("", |run| run.system.as_str())));
        }
        if with_collectives {
            let text =
                |value: fn(&RunRecord) -> Option<&String>| Cell::new(runs.first().and_then(|run| value(run)).map_or("", String::as_str));
            row.extend((!is_swept).then(|| text(|run| run.collective.as_ref())));
            row.push(text(|run| run.ran.as_ref()));
        }
        if with_vectors {
            row.push(spread(&runs, |run| run.completion_us, 1));
            row.push(spread(&runs, |run| run.goodput_gbps, 2));
        }
        if with_jobs {
            row.push(middle(&runs, |run| run.switch_bytes_peak as f64, bytes_short));
        }
        row.extend(extras.iter().map(|extra| spread(&runs, extra.value, extra.digits)));
        row.push(middle(&runs, |run| run.link_utilization_mean, |share| format!("{:.1} %", share * 100.0)));
        row.push(middle(&runs, |run| run.packets_dropped as f64, |count| format!("{count:.0}")));
        row.push(middle(&runs, |run| run.packets_retransmitted as f64, |count| format!("{count:.0}")));
        row.push(verdict(&runs));
        table.add_row(row);
    }
    table
}

fn sorted(runs: &[&RunRecord], value: impl Fn(&RunRecord) -> Option<f64>) -> Vec<f64> {
    let mut values: Vec<f64> = runs.iter().filter_map(|run| value(run)).collect();
    values.sort_by(f64::total_cmp);
    values
}

/// Median and range.
fn spread(runs: &[&RunRecord], value: impl Fn(&RunRecord) -> Option<f64>, digits: usize) -> Cell {
    let values = sorted(runs, value);
    let text = match (median(&values), values.as_slice()) {
        (None, _) => "-".to_string(),
        (Some(middle), [_]) => format!("{middle:.digits$}"),
        (Some(middle), values) => {
            let [middle, low, high] = [middle, values[0], values[values.len() - 1]].map(|value| format!("{value:.digits$}"));
            if low == high { middle } else { format!("{middle} ({low}..{high})") }
        }
    };
    Cell::new(text)
}

/// Median alone.
fn middle(runs: &[&RunRecord], value: impl Fn(&RunRecord) -> f64, text: impl Fn(f64) -> String) -> Cell {
    Cell::new(median(&sorted(runs, |run| Some(value(run)))).map_or("-".into(), text))
}

fn bytes_short(bytes: f64) -> String {
    match bytes {
        bytes if bytes >= 10.0 * 1024.0 * 1024.0 => format!("{:.1} MiB", bytes / 1024.0 / 1024.0),
        bytes if bytes >= 10.0 * 1024.0 => format!("{:.0} KiB", bytes / 1024.0),
        bytes => format!("{bytes:.0} B"),
    }
}

/// Whether the point's runs are right; loud where not.
fn verdict(runs: &[&RunRecord]) -> Cell {
    let wrong = runs.iter().filter(|run| !run.is_exact()).count();
    let failed = runs.iter().filter(|run| run.failure.is_some()).count();
    match (wrong, failed) {
        (0, 0) => Cell::new(runs.first().map_or("-", |run| run.census.as_str())),
        (0, failed) => Cell::new(format!("{failed} FAILED")).fg(Color::Red),
        (wrong, _) => Cell::new(format!("{wrong} NOT EXACT")).fg(Color::Red),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(jobs: &str, sweep: &str) -> Vec<String> {
        let text = format!("[network]\nshape = \"star\"\nhosts = 4\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n{jobs}\n[sweep]\n{sweep}\n");
        let plan = Plan::parse("plan.toml", &text, &[], None).unwrap();
        let finished = fanin_plan::run::run(&plan, 1, || true).unwrap();
        let lines = table(&plan, &finished).to_string();
        lines.lines().next().unwrap().split("  ").map(str::trim).filter(|title| !title.is_empty()).map(str::to_string).collect()
    }

    const JOB: &str = "[[jobs]]\nsystem = \"ring\"\ncollective = \"all-reduce\"\nmessage = \"4KB\"\nworkers = 2\n";

    #[test]
    fn no_two_columns_have_one_title() {
        for (jobs, sweep, titles) in [
            (JOB.to_string(), "\"jobs.0.collective\" = [\"all-reduce\", \"all-gather\"]", &["collective", "ran"][..]),
            (JOB.to_string(), "\"jobs.0.workers\" = [2, 4]", &["workers", "collective", "ran"]),
            // One job's of two is not what both do.
            (JOB.repeat(2), "\"jobs.1.collective\" = [\"all-gather\"]", &["jobs.1.collective", "collective", "ran"]),
            (
                JOB.repeat(2),
                "\"jobs.0.collective\" = [\"all-gather\"]\n\"jobs.1.collective\" = [\"all-gather\"]",
                &["jobs.0.collective", "jobs.1.collective", "collective", "ran"],
            ),
        ] {
            let header = header(&jobs, sweep);
            assert_eq!(header[..titles.len()], *titles, "{header:?}");
            assert!(header.iter().all(|title| header.iter().filter(|other| *other == title).count() == 1), "{header:?}");
        }
    }
}
