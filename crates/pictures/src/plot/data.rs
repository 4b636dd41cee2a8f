//! Which points belong to which bar or line, and the numbers of their runs.

use std::collections::BTreeMap;

use fanin_plan::choices::Places;
use fanin_plan::metrics::Field;
use fanin_plan::results::median;
use fanin_plan::units::{bytes_of, fraction_of, microseconds_of};

use super::look::Look;
use crate::grid::Grid;

/// The points that share a colour and a kind of line: one combination of all axes but the one along x.
#[derive(Clone)]
pub struct Group {
    /// In words.
    pub label: String,
    /// How it is drawn.
    pub look: Look,
    /// Indices of its points, along x.
    pub points: Vec<usize>,
}

/// The runs of a point.
#[derive(PartialEq)]
pub struct Spread {
    pub low: f64,
    pub middle: f64,
    pub high: f64,
}

/// All groups in the order of the plan. The first axis gives the colour, the others together the kind of line; an axis of which only one
/// place is shown does not tell groups apart.
pub fn groups(grid: &dyn Grid, x: Option<usize>, only: &BTreeMap<String, Places>) -> Vec<Group> {
    let axes = grid.axes();
    let varies = |axis: usize| axes[axis].choices.len() > 1 && only.get(&axes[axis].name).is_none_or(|places| places.0.len() > 1);
    let others: Vec<usize> = (0..axes.len()).filter(|axis| Some(*axis) != x && varies(*axis)).collect();
    let mut groups: Vec<(Vec<usize>, Group)> = Vec::new();
    for number in 0..grid.points() {
        let (indices, names) = (grid.indices(number), grid.labels(number));
        let shown = |axis: usize| only.get(&axes[axis].name).is_none_or(|places| places.0.contains(&names[axis]));
        if !(0..axes.len()).all(shown) {
            continue;
        }
        let key: Vec<usize> = others.iter().map(|&axis| indices[axis]).collect();
        if let Some((_, group)) = groups.iter_mut().find(|(known, _)| *known == key) {
            group.points.push(number);
            continue;
        }
        let rest = others
            .iter()
            .skip(1)
            .rev()
            .fold((0, 1), |(index, scale), &axis| (index + indices[axis] * scale, scale * axes[axis].choices.len()));
        let look = Look { color: key.first().copied().unwrap_or(0), dash: rest.0 };
        let labels: Vec<String> = others.iter().map(|&axis| choice_label(grid, axis, indices[axis])).collect();
        groups.push((key, Group { label: labels.join(", "), look, points: vec![number] }));
    }
    groups.into_iter().map(|(_, group)| group).collect()
}

/// Groups whose lines are the same are drawn as one with all their names: on top of each other only the last would be seen.
pub fn joined<T: PartialEq>(groups: &[Group], lines: Vec<T>) -> (Vec<Group>, Vec<T>) {
    let (mut kept, mut drawn): (Vec<Group>, Vec<T>) = (Vec::new(), Vec::new());
    for (group, line) in groups.iter().zip(lines) {
        match drawn.iter().position(|other| *other == line) {
            Some(same) => kept[same].label = format!("{} = {}", kept[same].label, group.label),
            None => {
                kept.push(group.clone());
                drawn.push(line);
            }
        }
    }
    (kept, drawn)
}

/// A choice's name, with its key where the name alone says nothing.
fn choice_label(grid: &dyn Grid, axis: usize, choice: usize) -> String {
    let label = &grid.axes()[axis].choices[choice].label;
    if label.parse::<f64>().is_ok() || label == "true" || label == "false" {
        format!("{} {label}", last_part(&grid.axes()[axis].name))
    } else {
        label.clone()
    }
}

fn last_part(key: &str) -> &str {
    key.rsplit('.').next().unwrap_or(key)
}

/// What stands under the axis of a sweep.
pub fn axis_title(grid: &dyn Grid, axis: usize) -> String {
    match grid.axes()[axis].name.as_str() {
        "series" => String::new(),
        key => last_part(key).replace('_', " "),
    }
}

/// A number's unit in pictures, and what it is multiplied with.
pub fn shown_unit(field: &Field) -> (&'static str, f64) {
    if field.unit == "B" { ("KiB", 1.0 / 1024.0) } else { (field.unit, 1.0) }
}

/// Median and range of a number over a point's runs, in the unit of pictures; `None` where no run has it.
pub fn spread(grid: &dyn Grid, point: usize, field: &Field) -> Option<Spread> {
    let (_, factor) = shown_unit(field);
    let values: Vec<f64> = grid.sorted(point, &field.key).into_iter().map(|value| value * factor).collect();
    Some(Spread { low: *values.first()?, middle: median(&values)?, high: *values.last()? })
}

/// Where the choices of an axis lie along x.
pub struct Scale {
    pub places: Vec<f64>,
    pub labels: Vec<String>,
}

/// By value where all choices are numbers, in steps of a factor of two where they span much; evenly spaced where that leaves some on top of
/// each other (zero and small numbers beside large ones) or they are no numbers.
pub fn numeric_axis(grid: &dyn Grid, axis: usize) -> Scale {
    let labels: Vec<String> = grid.axes()[axis].choices.iter().map(|choice| choice.label.clone()).collect();
    let values: Option<Vec<f64>> = labels.iter().map(|label| number(label)).collect();
    let even = (0..labels.len()).map(|index| index as f64).collect();
    let places = match values {
        Some(values) => {
            let smallest = values.iter().copied().filter(|value| *value > 0.0).fold(f64::INFINITY, f64::min);
            let wide = values.iter().copied().fold(0.0, f64::max) / smallest >= 8.0;
            match values.iter().all(|value| *value > 0.0) {
                true if wide => values.iter().map(|value| value.log2()).collect(),
                false if wide => even,
                _ => values,
            }
        }
        None => even,
    };
    Scale { places, labels }
}

/// The number that a label stands for, in any of the units of plans.
fn number(label: &str) -> Option<f64> {
    label
        .parse()
        .ok()
        .or_else(|| bytes_of(label).map(|bytes| bytes as f64))
        .or_else(|| fraction_of(label))
        .or_else(|| microseconds_of(label))
}

#[cfg(test)]
mod tests {
    use fanin_plan::Plan;

    use super::*;
    use crate::grid::Simulated;

    const PLAN: &str = r#"
[network]
shape = "star"
hosts = 8
rate = "100Gb/s"
latency = "300ns"
[[jobs]]
system = "ring"
workers = 4
message = "1KiB"
[[series]]
name = "ring"
set = { "jobs.0.system" = "ring" }
[[series]]
name = "tree"
set = { "jobs.0.system" = "tree" }
[sweep]
"jobs.0.message" = ["1KiB", "2KiB"]
"jobs.0.workers" = [2, 4]
"#;

    fn drawn(only: &[(&str, &[&str])]) -> Vec<(String, usize, usize)> {
        let plan = Plan::parse("plan.toml", PLAN, &[], None).expect("a plan");
        let places = |places: &[&str]| Places(places.iter().map(|place| place.to_string()).collect());
        let only = only.iter().map(|(axis, shown)| (axis.to_string(), places(shown))).collect();
        let x = plan.axes.iter().position(|axis| axis.name == "jobs.0.workers");
        groups(&Simulated { plan: &plan, finished: &[] }, x, &only)
            .into_iter()
            .map(|group| (group.label, group.look.color, group.look.dash))
            .collect()
    }

    #[test]
    fn lines_on_top_of_each_other_are_one() {
        let group = |label: &str, color| Group { label: label.into(), look: Look { color, dash: 0 }, points: Vec::new() };
        let groups = [group("a", 0), group("b", 1), group("c", 2)];
        let (kept, drawn) = joined(&groups, vec![[1, 2], [1, 3], [1, 2]]);
        let named: Vec<(&str, usize)> = kept.iter().map(|group| (group.label.as_str(), group.look.color)).collect();
        assert_eq!((named, drawn), (vec![("a = c", 0), ("b", 1)], vec![[1, 2], [1, 3]]));
    }

    #[test]
    fn what_is_the_same_for_all_does_not_tell_them_apart() {
        let named = |label: &str, color, dash| (label.to_string(), color, dash);
        let of_all = [named("ring, 1KiB", 0, 0), named("ring, 2KiB", 0, 1), named("tree, 1KiB", 1, 0), named("tree, 2KiB", 1, 1)];
        assert_eq!(drawn(&[]), of_all);
        assert_eq!(drawn(&[("jobs.0.message", &["2KiB"])]), [named("ring", 0, 0), named("tree", 1, 0)]);
        assert_eq!(drawn(&[("jobs.0.message", &["2KiB"]), ("series", &["tree"])]), [named("", 0, 0)]);
    }
}
