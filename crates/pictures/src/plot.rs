//! Pictures of results, as SVG: bars, lines over a swept key, distributions over links or jobs, memory and jobs over time.
//!
//! | module | what it holds |
//! |---|---|
//! | `look` | colours and kinds of lines |
//! | `frame` | title, legend, axes: what every picture shares |
//! | `distribution` | which share of links or jobs has up to how much of something |
//! | `time` | quantities of jobs over time |
//! | `steps` | what ranks did over time |
//! | `data` | which points belong to which bar or line, and their medians |
//! | [`chart`] | a picture before it is drawn |

pub mod chart;
pub(crate) mod data;
mod distribution;
mod frame;
mod look;
mod steps;
mod time;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::grid::{Grid, Simulated};
use chart::{Chart, Marks};
use data::{Group, Spread, groups, joined, numeric_axis, spread};
use fanin_plan::Plan;
use fanin_plan::computed::Computed;
use fanin_plan::metrics::{Field, Metric};
use fanin_plan::run::Finished;
use fanin_plan::schema::{Job, Plot, PlotKind};
use frame::Ticks;
pub use frame::{FONT, INK, MUTED, Style};
use look::Look;

/// Draws what the plan asks for; where it does not say, goodput as bars, links as a distribution, completion time over sizes where they
/// are swept, memory and jobs over time where they are sampled.
///
/// # Errors
/// Those of writing files.
pub fn write_all(folder: &Path, plan: &Plan, finished: &[Finished]) -> Result<()> {
    write(folder, pictures(plan, finished)?)
}

/// Writes pictures: name and SVG.
///
/// # Errors
/// Those of writing files.
pub fn write(folder: &Path, pictures: Vec<(String, String)>) -> Result<()> {
    for (name, svg) in pictures {
        fs::write(folder.join(format!("{name}.svg")), svg).with_context(|| format!("plot {name}"))?;
    }
    Ok(())
}

/// The same pictures as texts: name and SVG.
///
/// # Errors
/// Those of drawing.
pub fn pictures(plan: &Plan, finished: &[Finished]) -> Result<Vec<(String, String)>> {
    svgs(charts(plan, finished)?)
}

/// The same pictures before they are drawn, by their names.
///
/// # Errors
/// A plot that cannot be drawn from these results.
pub fn charts(plan: &Plan, finished: &[Finished]) -> Result<Vec<(String, Chart)>> {
    let plots = plan.plots.clone().unwrap_or_else(|| usual(plan));
    let simulated = Simulated { plan, finished };
    drawn(&plots, &simulated, Some(&simulated))
}

/// The pictures that a plan of a model asks for: name and SVG.
///
/// # Errors
/// Those of drawing.
pub fn computed_pictures(plan: &Computed) -> Result<Vec<(String, String)>> {
    svgs(computed_charts(plan)?)
}

/// The same pictures before they are drawn, by their names.
///
/// # Errors
/// A plot that cannot be drawn from these results.
pub fn computed_charts(plan: &Computed) -> Result<Vec<(String, Chart)>> {
    drawn(&plan.plots, plan, None)
}

fn svgs(charts: Vec<(String, Chart)>) -> Result<Vec<(String, String)>> {
    let one = |(name, chart): (String, Chart)| {
        let svg = chart.svg(&Style::PAGE).with_context(|| format!("plot {name}"))?;
        Ok((name, svg))
    };
    charts.into_iter().map(one).collect()
}

/// A picture of measured jobs over time, as SVG: the name of each line, and its corners, in us.
///
/// # Errors
/// Those of drawing.
pub fn measured_over_time(title: &str, note: &str, y_label: &str, lines: Vec<(String, Vec<(f64, f64)>)>) -> Result<String> {
    let groups = named(&lines);
    time::over_time(title, note, y_label, groups, lines.into_iter().map(|(_, line)| vec![line]).collect()).svg(&Style::PAGE)
}

/// A picture of values over whole numbers, as SVG: the name of each line, and its corners.
///
/// # Errors
/// Those of drawing.
pub fn over_count(title: &str, note: &str, x_label: &str, y_label: &str, lines: Vec<(String, Vec<(f64, f64)>)>) -> Result<String> {
    let groups = named(&lines);
    time::over_count((title, note), (x_label, y_label), groups, lines.into_iter().map(|(_, line)| vec![line]).collect()).svg(&Style::PAGE)
}

/// A group for each line, in a colour of its own.
fn named<T>(lines: &[(String, T)]) -> Vec<Group> {
    let group =
        |(color, (label, _)): (usize, &(String, T))| Group { label: label.clone(), look: Look { color, dash: 0 }, points: Vec::new() };
    lines.iter().enumerate().map(group).collect()
}

fn drawn(plots: &[Plot], grid: &dyn Grid, simulated: Option<&Simulated<'_>>) -> Result<Vec<(String, Chart)>> {
    let one = |plot: &Plot| {
        let chart = draw(plot, grid, simulated).with_context(|| format!("plot {}", plot.name))?;
        Ok((plot.name.clone(), chart))
    };
    plots.iter().map(one).collect()
}

/// The pictures of a plan that does not ask for any.
fn usual(plan: &Plan) -> Vec<Plot> {
    let make = |name: &str, title: &str, kind, x: Option<&str>, y: Option<&str>| Plot {
        name: name.into(),
        title: title.into(),
        kind,
        x: x.map(String::from),
        y: y.map(String::from),
        only: BTreeMap::new(),
    };
    let mut plots = vec![make("links", "Utilisation of links", PlotKind::Cdf, None, None)];
    let has_jobs = plan.points.iter().any(|point| !point.setup.jobs.is_empty());
    if !has_jobs {
        return plots;
    }
    let has_workload = |job: &Job| job.workload.is_some();
    let with_workloads = |all: bool| {
        let mut jobs = plan.points.iter().flat_map(|point| &point.setup.jobs);
        if all { jobs.all(has_workload) } else { jobs.any(has_workload) }
    };
    if with_workloads(false) {
        plots.push(make("steps", "What ranks do", PlotKind::Steps, None, None));
    }
    if let Some(first) = plan.axes.first().filter(|_| with_workloads(true)) {
        plots.push(make("iteration", "Time of an iteration", PlotKind::Bars, Some(&first.name), Some("iteration_us")));
    } else if let Some(first) = plan.axes.first() {
        plots.push(make("goodput", "Goodput", PlotKind::Bars, Some(&first.name), Some("goodput_gbps")));
    }
    if let Some(sizes) = plan.axes.iter().find(|axis| axis.name.ends_with(".message") && axis.choices.len() > 1) {
        plots.push(make("completion", "Completion time", PlotKind::Lines, Some(&sizes.name), Some("completion_us")));
    }
    if plan.points.iter().any(|point| point.setup.general.run.memory_interval.is_some()) {
        plots.push(make("memory", "Memory of switches", PlotKind::Memory, None, None));
    }
    let has_several = plan.points.iter().any(|point| point.setup.jobs.len() > 1);
    if has_several {
        plots.push(make("jobs_completion", "How long jobs take", PlotKind::Cdf, None, Some("jct_us")));
    }
    if plan.points.iter().any(|point| point.setup.general.run.alone) {
        plots.push(make("slowdown", "Slowdown of jobs by each other", PlotKind::Cdf, None, Some("slowdown")));
    }
    if plan.points.iter().any(|point| point.setup.general.run.series_interval.is_some()) {
        plots.push(make("jobs_goodput", "Goodput over time", PlotKind::Time, None, Some("goodput_gbps")));
        plots.push(make("jobs_slots", "Slots in use over time", PlotKind::Time, None, Some("slots")));
        if has_several {
            plots.push(make("jobs_fairness", "How evenly jobs share over time", PlotKind::Time, None, Some("fairness")));
        }
    }
    plots
}

fn draw(plot: &Plot, grid: &dyn Grid, simulated: Option<&Simulated<'_>>) -> Result<Chart> {
    let x = plot.x.as_ref().and_then(|x| grid.axis(x));
    let field = plot.y.as_deref().and_then(|key| grid.fields().named(key));
    let groups = groups(grid, x, &plot.only);
    Ok(match (plot.kind, x, &field, simulated) {
        (PlotKind::Bars, Some(x), Some(field), _) => bars(plot, grid, x, field, groups),
        (PlotKind::Lines, Some(x), Some(field), _) => lines(plot, grid, x, field, &groups),
        (PlotKind::Memory, _, _, Some(simulated)) => memory(plot, simulated.finished, &groups),
        (PlotKind::Steps, _, _, Some(simulated)) => steps::draw(plot, simulated.finished, &groups)?,
        (PlotKind::Time, _, _, Some(simulated)) => time::draw(plot, simulated, &groups),
        (PlotKind::Cdf, _, _, Some(simulated)) => match plot.y.as_deref().and_then(Metric::of_job) {
            Some((field, value)) => distribution::of_jobs(plot, simulated.finished, groups, (&field, value)),
            None => distribution::of_links(plot, simulated.finished, groups),
        },
        _ => bail!("it cannot be drawn from these results"),
    })
}

/// What the numbers are: said under the title.
fn note(grid: &dyn Grid) -> String {
    match (0..grid.points()).map(|point| grid.repetitions(point)).max() {
        Some(runs) if runs > 1 => format!("median of {runs} runs, whiskers from the lowest to the highest"),
        _ => String::new(),
    }
}

fn with_unit(field: &Field) -> String {
    match data::shown_unit(field) {
        ("", _) => field.title.clone(),
        (unit, _) => format!("{} ({unit})", field.title),
    }
}

fn spreads(grid: &dyn Grid, field: &Field, groups: &[Group]) -> Vec<Vec<Option<Spread>>> {
    groups.iter().map(|group| group.points.iter().map(|&point| spread(grid, point, field)).collect()).collect()
}

/// A group of bars for each value of the axis `x`.
fn bars(plot: &Plot, grid: &dyn Grid, x: usize, field: &Field, groups: Vec<Group>) -> Chart {
    let categories: Vec<String> = grid.axes()[x].choices.iter().map(|choice| choice.label.clone()).collect();
    let spreads = spreads(grid, field, &groups);
    let top = spreads.iter().flatten().flatten().map(|spread| spread.high).fold(0.0, f64::max);
    let ticks = Ticks { places: (0..categories.len()).map(|index| index as f64 + 0.5).collect(), labels: categories };
    Chart {
        title: plot.title.clone(),
        note: note(grid),
        x_label: data::axis_title(grid, x),
        y_label: with_unit(field),
        // Bars differ by colour alone: there is no line to be dashed.
        looks: (0..groups.len()).map(|index| Look { color: index, dash: 0 }).collect(),
        groups,
        names: Vec::new(),
        x: 0.0..ticks.places.len() as f64,
        y: 0.0..if top > 0.0 { top * 1.12 } else { 1.0 },
        log: false,
        ticks,
        marks: Marks::Bars(spreads),
    }
}

/// A line over the axis `x` for each combination of the others.
fn lines(plot: &Plot, grid: &dyn Grid, x: usize, field: &Field, groups: &[Group]) -> Chart {
    let scale = numeric_axis(grid, x);
    let (groups, spreads) = joined(groups, spreads(grid, field, groups));
    let all: Vec<&Spread> = spreads.iter().flatten().flatten().collect();
    let low = all.iter().map(|spread| spread.low).fold(f64::INFINITY, f64::min);
    let high = all.iter().map(|spread| spread.high).fold(0.0, f64::max);
    let (first, last) = (scale.places[0], scale.places[scale.places.len() - 1]);
    let margin = if first == last { 0.5 } else { (last - first).abs() * 0.04 };
    let log = low > 0.0 && high / low >= 20.0;
    Chart {
        title: plot.title.clone(),
        note: note(grid),
        x_label: data::axis_title(grid, x),
        y_label: with_unit(field),
        looks: groups.iter().map(|group| group.look).collect(),
        groups,
        names: Vec::new(),
        x: first.min(last) - margin..first.max(last) + margin,
        y: if log { low * 0.8..high * 1.25 } else { 0.0..if high > 0.0 { high * 1.08 } else { 1.0 } },
        log,
        ticks: Ticks { places: scale.places, labels: scale.labels },
        marks: Marks::Points(spreads),
    }
}

/// Memory of the switch that has most in use, over time, in the first repetition of each point.
fn memory(plot: &Plot, finished: &[Finished], groups: &[Group]) -> Chart {
    let lines: Vec<Vec<(f64, f64)>> = groups
        .iter()
        .map(|group| {
            let samples = finished.iter().filter(|run| group.points.contains(&run.point)).flat_map(|run| &run.memory);
            samples.map(|sample| (sample.at.as_ps() as f64 / 1e6, sample.bytes_max as f64 / 1024.0)).collect()
        })
        .collect();
    let (groups, lines) = joined(groups, lines);
    let last = lines.iter().flatten().map(|(time, _)| *time).fold(1.0, f64::max);
    let high = lines.iter().flatten().map(|(_, used)| *used).fold(1.0, f64::max);
    Chart {
        title: plot.title.clone(),
        note: "at the switch that has most in use; first repetition of each".into(),
        x_label: "time (us)".into(),
        y_label: "memory in use (KiB)".into(),
        looks: groups.iter().map(|group| group.look).collect(),
        groups,
        names: Vec::new(),
        x: 0.0..last,
        y: 0.0..high * 1.05,
        log: false,
        ticks: Ticks::of(round_steps(last)),
        marks: Marks::Corners(lines.into_iter().map(|line| vec![line]).collect(), false),
    }
}

/// From 0 to at most `last` in at most 10 steps of 1, 2 or 5 times a power of ten.
pub fn round_steps(last: f64) -> Vec<f64> {
    let mut step = 1.0;
    for factor in [2.0, 2.5, 2.0].into_iter().cycle() {
        if last / step <= 10.0 {
            break;
        }
        step *= factor;
    }
    (0..=(last / step) as u32).map(|index| f64::from(index) * step).collect()
}
