//! Quantities of jobs over time, as steps: a value holds for the interval that it was taken in.

use super::chart::{Chart, Marks, Parts};
use super::data::{Group, joined};
use super::frame::Ticks;
use super::look::Look;
use super::round_steps;
use crate::grid::Simulated;
use fanin_plan::run::Finished;
use fanin_plan::schema::Plot;
use fanin_plan::series::{FAIRNESS, Quantity};
use fanin_plan::together::sharing;

/// The first repetition of each point: a line for each of the plan's jobs. Copies of a job, and the jobs of a file, are one line, their mean.
pub fn draw(plot: &Plot, simulated: &Simulated<'_>, groups: &[Group]) -> Chart {
    let &Simulated { plan, finished } = simulated;
    if plot.y.as_deref() == Some(FAIRNESS) {
        return fairness(plot, finished, groups);
    }
    let quantity = plot.y.as_deref().and_then(Quantity::named).unwrap_or(Quantity::Goodput);
    let (mut drawn, mut lines, mut means) = (Vec::new(), Vec::new(), false);
    for group in groups {
        for run in finished.iter().filter(|run| group.points.contains(&run.point) && !run.series.is_empty()) {
            let setup = &plan.points[run.point].setup;
            let entries = setup.entries.last().map_or(0, |last| last + 1);
            for entry in 0..entries {
                means |= run.record.jobs.iter().filter(|job| job.entry == entry).count() > 1;
                let name = if entries > 1 { format!("job {entry}") } else { String::new() };
                let label = [group.label.as_str(), &name].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(", ");
                // One group: jobs differ by colour. Several: groups by colour, jobs by the kind of line.
                let look = if groups.len() == 1 { Look { color: entry, dash: 0 } } else { Look { dash: entry, ..group.look } };
                drawn.push(Group { label, look, points: Vec::new() });
                lines.push(steps(run, entry, quantity));
            }
        }
    }
    let (groups, lines) = joined(&drawn, lines);
    let note = if means { "mean over copies of a job, and jobs of a file; first repetition of each" } else { "first repetition of each" };
    over_time(&plot.title, note, &quantity.title(), groups, lines)
}

/// How evenly jobs share over time, in the first repetition of each point.
fn fairness(plot: &Plot, finished: &[Finished], groups: &[Group]) -> Chart {
    let of_group = |group: &Group| {
        let mut parts: Vec<Vec<(f64, f64)>> = Vec::new();
        for run in finished.iter().filter(|run| group.points.contains(&run.point) && !run.series.is_empty()) {
            for interval in sharing(&run.record.jobs, &run.series) {
                let is_next = parts.last().and_then(|part| part.last()).is_some_and(|(end_us, _)| *end_us == interval.begin_us);
                if !is_next {
                    parts.push(Vec::new());
                }
                if let Some(part) = parts.last_mut() {
                    part.extend([(interval.begin_us, interval.index), (interval.end_us, interval.index)]);
                }
            }
        }
        parts
    };
    let (groups, lines) = joined(groups, groups.iter().map(of_group).collect());
    over_time(
        &plot.title,
        "of the jobs that run, where there are two or more; first repetition of each",
        "Jain's index of goodput",
        groups,
        lines,
    )
}

/// A picture of lines whose corners are times in us and values. A line has several parts where it is interrupted.
pub fn over_time(title: &str, note: &str, y_label: &str, groups: Vec<Group>, lines: Vec<Parts>) -> Chart {
    let last_us = lines.iter().flatten().flatten().map(|(time, _)| *time).fold(1.0, f64::max);
    let (unit, scale) = match last_us {
        10_000_000.0.. => ("time (s)", 1e-6),
        10_000.0.. => ("time (ms)", 1e-3),
        _ => ("time (us)", 1.0),
    };
    let scaled = |part: Vec<(f64, f64)>| part.into_iter().map(|(time, value)| (time * scale, value)).collect();
    let lines = lines.into_iter().map(|parts| parts.into_iter().map(scaled).collect()).collect();
    of_corners((title, note), (unit, y_label), groups, Ticks::of(round_steps(last_us * scale)), (last_us * scale, lines, false))
}

/// A picture of lines with a dot at each whole number.
pub fn over_count(heading: (&str, &str), labels: (&str, &str), groups: Vec<Group>, lines: Vec<Parts>) -> Chart {
    let last = lines.iter().flatten().flatten().map(|(count, _)| *count).fold(1.0, f64::max);
    let ticks = Ticks::of(round_steps(last).into_iter().filter(|place| place.fract() == 0.0).collect());
    of_corners(heading, labels, groups, ticks, (last, lines, true))
}

/// Lines from 0 to `last`, and from 0 to a little more than the highest value.
fn of_corners(
    (title, note): (&str, &str),
    (x_label, y_label): (&str, &str),
    groups: Vec<Group>,
    ticks: Ticks,
    (last, lines, has_dots): (f64, Vec<Parts>, bool),
) -> Chart {
    let high = lines.iter().flatten().flatten().map(|(_, value)| *value).fold(0.0, f64::max);
    Chart {
        title: title.into(),
        note: note.into(),
        x_label: x_label.into(),
        y_label: y_label.into(),
        looks: groups.iter().map(|group| group.look).collect(),
        groups,
        names: Vec::new(),
        x: 0.0..last,
        y: 0.0..if high > 0.0 { high * 1.08 } else { 1.0 },
        log: false,
        ticks,
        marks: Marks::Corners(lines, has_dots),
    }
}

/// The corners of a job's line: begin and end of each interval. Where nobody told of a gauge it is interrupted.
fn steps(run: &Finished, entry: usize, quantity: Quantity) -> Vec<Vec<(f64, f64)>> {
    let mut parts: Vec<Vec<(f64, f64)>> = Vec::new();
    let mut is_open = false;
    let of_entry = |job: u32| run.record.jobs.get(job as usize).is_some_and(|job| job.entry == entry);
    for rows in run.series.chunk_by(|a, b| a.at == b.at) {
        let values: Vec<f64> = rows.iter().filter(|row| of_entry(row.job)).filter_map(|row| quantity.of(row)).collect();
        if values.is_empty() {
            is_open = false;
            continue;
        }
        if !std::mem::replace(&mut is_open, true) {
            parts.push(Vec::new());
        }
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let end_us = rows[0].at.as_ps() as f64 / 1e6;
        if let Some(corners) = parts.last_mut() {
            corners.extend([(end_us - rows[0].span.as_ps() as f64 / 1e6, mean), (end_us, mean)]);
        }
    }
    parts
}
