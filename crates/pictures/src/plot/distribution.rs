//! Which share of links or jobs has up to how much of something.

use anyhow::Result;
use fanin_plan::metrics::{Field, OfJob};
use fanin_plan::run::Finished;
use fanin_plan::schema::Plot;

use super::data::Group;
use super::frame::{self, Frame, Ticks};
use super::look::Look;
use super::{round_steps, with_unit};

/// How many links are used up to how much, in the first repetition of each point.
///
/// # Errors
/// Those of drawing.
pub fn of_links(plot: &Plot, finished: &[Finished], groups: &[Group]) -> Result<String> {
    let note = "all links, both directions; first repetition of each";
    let frame =
        Frame { title: &plot.title, note, x_label: "utilisation of the link (%)", y_label: "share of links (%)", groups, names: &[] };
    let places: Vec<f64> = (0..=5).map(|step| f64::from(step) * 20.0).collect();
    let of_group = |group: &Group| {
        let links = finished.iter().filter(|run| group.points.contains(&run.point)).flat_map(|run| &run.links);
        links.map(|link| link.utilization * 100.0).collect()
    };
    draw(&frame, places, 100.0, groups.iter().map(of_group).collect())
}

/// How many jobs have up to how much of a number, in all repetitions of each point. Jobs that have none, as they did not complete, are left out.
///
/// # Errors
/// Those of drawing.
pub fn of_jobs(plot: &Plot, finished: &[Finished], groups: &[Group], (field, value): (&Field, OfJob)) -> Result<String> {
    let of_group = |group: &Group| -> Vec<f64> {
        let jobs = finished.iter().filter(|run| group.points.contains(&run.point)).flat_map(|run| &run.record.jobs);
        jobs.filter_map(value).collect()
    };
    let values: Vec<Vec<f64>> = groups.iter().map(of_group).collect();
    let x_label = with_unit(field);
    let frame = Frame {
        title: &plot.title,
        note: "all jobs of all repetitions",
        x_label: &x_label,
        y_label: "share of jobs (%)",
        groups,
        names: &[],
    };
    let last = values.iter().flatten().copied().fold(0.0, f64::max);
    let last = if last > 0.0 { last } else { 1.0 };
    draw(&frame, round_steps(last), last, values)
}

/// A line for each group over values from 0 to `last`.
fn draw(frame: &Frame<'_>, places: Vec<f64>, last: f64, values: Vec<Vec<f64>>) -> Result<String> {
    let looks: Vec<Look> = frame.groups.iter().map(|group| group.look).collect();
    let ticks = Ticks { labels: places.iter().map(|place| frame::short_number(*place)).collect(), places };
    // A little more than everything, so that lines at the ends can be seen.
    frame::render(frame, &looks, (0.0..last * 1.005, 0.0..101.0), &ticks, |pen| {
        for (mut values, look) in values.into_iter().zip(&looks) {
            values.sort_by(f64::total_cmp);
            let share = |count: usize| count as f64 * 100.0 / values.len().max(1) as f64;
            let mut points = vec![(0.0, 0.0)];
            for (index, &value) in values.iter().enumerate() {
                if values.get(index + 1) != Some(&value) {
                    let before = points[points.len() - 1].1;
                    points.extend([(value, before), (value, share(index + 1))]);
                }
            }
            points.push((last, 100.0));
            pen.line(points, *look)?;
        }
        Ok(())
    })
}
