//! What ranks of a job with a workload did over time: a row a rank, computing above and communication below.

use anyhow::{Result, bail};
use fanin_plan::run::Finished;
use fanin_plan::schema::Plot;
use fanin_plan::workload::timeline::Bar;

use super::chart::{Block, Chart, Marks};
use super::data::Group;
use super::frame::Ticks;
use super::look::Look;
use super::round_steps;

/// The first job with a workload of the first run of the first group that has one.
///
/// # Errors
/// There is no such job.
pub fn draw(plot: &Plot, finished: &[Finished], groups: &[Group]) -> Result<Chart> {
    let of_group = |group: &&Group| {
        let run = finished.iter().find(|run| group.points.contains(&run.point) && !run.timelines.is_empty())?;
        Some((group.label.clone(), &run.timelines[0]))
    };
    let Some((label, timeline)) = groups.iter().find_map(|group| of_group(&group)) else {
        bail!("there is no job with a workload");
    };
    let (unit, scale) = match timeline.end_us {
        10_000_000.0.. => ("time (s)", 1e-6),
        10_000.0.. => ("time (ms)", 1e-3),
        _ => ("time (us)", 1.0),
    };
    let note = ["some ranks, first run; computing above, communication below", &label].join(if label.is_empty() { "" } else { ": " });
    // Computing in grey: it is not what differs.
    let look = |what: usize| if what == 0 { Look { color: 6, dash: 0 } } else { Look { color: color(what - 1), dash: 0 } };
    let named = |(what, label): (usize, &String)| Group { label: label.clone(), look: look(what), points: Vec::new() };
    let kinds: Vec<Group> = timeline.what.iter().enumerate().map(named).collect();
    let looks: Vec<Look> = kinds.iter().map(|group| group.look).collect();
    let rows = timeline.ranks.len();
    let names: Vec<String> = timeline.ranks.iter().rev().map(|rank| format!("rank {}", rank.rank)).collect();
    let last = (timeline.end_us * scale).max(f64::MIN_POSITIVE);
    let mut blocks = Vec::new();
    for (row, rank) in timeline.ranks.iter().rev().enumerate() {
        // Who receives waits for long: what else goes on meanwhile is drawn over it.
        let is_send = |bar: &&Bar| timeline.what[bar.what] == "send";
        for bar in rank.bars.iter().filter(is_send).chain(rank.bars.iter().filter(|bar| !is_send(bar))) {
            let (low, high) = if bar.what == 0 { (0.5, 0.92) } else { (0.08, 0.5) };
            let (row, end) = (row as f64, (bar.ended_us * scale).min(last));
            blocks.push(Block { x: bar.begun_us * scale..end, y: row + low..row + high, group: bar.what });
        }
    }
    Ok(Chart {
        title: plot.title.clone(),
        note,
        x_label: unit.into(),
        y_label: String::new(),
        groups: kinds,
        looks,
        names,
        x: 0.0..last,
        y: 0.0..rows.max(1) as f64,
        log: false,
        ticks: Ticks::of(round_steps(last)),
        marks: Marks::Blocks(blocks),
    })
}

/// The colour of a kind of communication: all but grey, which is for computing.
fn color(kind: usize) -> usize {
    const COLORS: [usize; 7] = [0, 1, 2, 3, 4, 5, 7];
    COLORS[kind % COLORS.len()]
}
