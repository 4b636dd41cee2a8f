//! Which share of links or jobs has up to how much of something.

use fanin_plan::metrics::{Field, OfJob};
use fanin_plan::run::Finished;
use fanin_plan::schema::Plot;

use super::chart::{Chart, Marks};
use super::data::Group;
use super::frame::Ticks;
use super::{round_steps, with_unit};

/// How many links are used up to how much, in the first repetition of each point.
pub fn of_links(plot: &Plot, finished: &[Finished], groups: Vec<Group>) -> Chart {
    let places: Vec<f64> = (0..=5).map(|step| f64::from(step) * 20.0).collect();
    let of_group = |group: &Group| {
        let links = finished.iter().filter(|run| group.points.contains(&run.point)).flat_map(|run| &run.links);
        links.map(|link| link.utilization * 100.0).collect()
    };
    let values = groups.iter().map(of_group).collect();
    let note = "all links, both directions; first repetition of each";
    of_values((&plot.title, note), ("utilisation of the link (%)", "share of links (%)"), groups, places, 100.0, values)
}

/// How many jobs have up to how much of a number, in all repetitions of each point. Jobs that have none, as they did not complete, are left out.
pub fn of_jobs(plot: &Plot, finished: &[Finished], groups: Vec<Group>, (field, value): (&Field, OfJob)) -> Chart {
    let of_group = |group: &Group| -> Vec<f64> {
        let jobs = finished.iter().filter(|run| group.points.contains(&run.point)).flat_map(|run| &run.record.jobs);
        jobs.filter_map(value).collect()
    };
    let values: Vec<Vec<f64>> = groups.iter().map(of_group).collect();
    let last = values.iter().flatten().copied().fold(0.0, f64::max);
    let last = if last > 0.0 { last } else { 1.0 };
    let labels = (with_unit(field), "share of jobs (%)");
    of_values((&plot.title, "all jobs of all repetitions"), (&labels.0, labels.1), groups, round_steps(last), last, values)
}

/// A line for each group over values from 0 to `last`.
fn of_values(
    (title, note): (&str, &str),
    (x_label, y_label): (&str, &str),
    groups: Vec<Group>,
    places: Vec<f64>,
    last: f64,
    values: Vec<Vec<f64>>,
) -> Chart {
    Chart {
        title: title.into(),
        note: note.into(),
        x_label: x_label.into(),
        y_label: y_label.into(),
        looks: groups.iter().map(|group| group.look).collect(),
        groups,
        names: Vec::new(),
        // A little more than everything, so that lines at the ends can be seen.
        x: 0.0..last * 1.005,
        y: 0.0..101.0,
        log: false,
        ticks: Ticks::of(places),
        marks: Marks::Corners(values.into_iter().map(|values| vec![corners(values, last)]).collect(), false),
    }
}

/// The corners of a distribution.
fn corners(mut values: Vec<f64>, last: f64) -> Vec<(f64, f64)> {
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
    points
}
