//! Pictures that a plan wants: whether there is what they show.

use super::sweep::Axis;
use crate::reading::PlanError;
use crate::reading::read::read;
use crate::reading::tree::{Step, Tree};
use crate::results::metrics::{Fields, Metric};
use crate::results::series::{FAIRNESS, Quantity};
use crate::schema::{Plot, PlotKind};

/// Reads what pictures there are, and checks that they show axes and numbers (`fields`) that exist. Pictures over a key that is `fixed` are left out.
///
/// # Errors
/// [`PlanError`] naming the key.
pub fn check(file: &str, tree: &Tree, axes: &[Axis], fixed: &[String], sets: &[String], fields: Fields) -> Result<Vec<Plot>, PlanError> {
    let mut plots = read::<Vec<Plot>>(file, tree, &[Step::Key("plot".into())])?;
    for (index, plot) in plots.iter().enumerate() {
        let refuse = |key: &str, value: &str, expected: String| {
            let origin = tree.closest(&[Step::Index(index), Step::Key(key.into())]).origin.clone();
            let what = format!("plot[{index}].{key} = {value:?}: expected {expected}");
            Err(PlanError::new(file, what).at(origin))
        };
        if plot.name.is_empty() || !plot.name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) {
            return refuse("name", &plot.name, "the name of a file: letters, digits, - and _".into());
        }
        if plots[..index].iter().any(|other| other.name == plot.name) {
            return refuse("name", &plot.name, "another name for each plot".into());
        }
        let names: Vec<&str> = axes.iter().map(|axis| axis.name.as_str()).collect();
        let shown = names.iter().map(|name| format!("{name:?}")).collect::<Vec<_>>().join(" or ");
        for (axis, places) in &plot.only {
            let Some(known) = axes.iter().find(|known| known.name == *axis && plot.x.as_ref() != Some(axis)) else {
                return refuse("only", axis, format!("what the plan varies, but for x: {shown}"));
            };
            // A place that --set has taken out of a sweep is not missed.
            if sets.is_empty()
                && let Some(place) = places.0.iter().find(|place| !known.choices.iter().any(|choice| choice.label == **place))
            {
                let labels: Vec<String> = known.choices.iter().map(|choice| format!("{:?}", choice.label)).collect();
                return refuse("only", place, format!("places on the axis {axis:?}: {}", labels.join(", ")));
            }
        }
        match (plot.kind, &plot.x, &plot.y) {
            (PlotKind::Cdf | PlotKind::Memory | PlotKind::Steps, None, None) => {}
            (PlotKind::Cdf | PlotKind::Memory | PlotKind::Time | PlotKind::Steps, Some(x), _) => {
                return refuse("x", x, "no x for a plot of this kind".into());
            }
            (PlotKind::Time, None, y) => {
                let y = y.as_deref().unwrap_or_default();
                if Quantity::named(y).is_none() && y != FAIRNESS {
                    let known = Quantity::all().map(Quantity::name).collect::<Vec<_>>().join(", ");
                    return refuse("y", y, format!("{FAIRNESS}, or one of {known}"));
                }
            }
            (PlotKind::Cdf, None, Some(y)) => {
                if Metric::of_job(y).is_none() {
                    return refuse("y", y, format!("one of {}, or none: the links' utilisation", Metric::known_of_jobs()));
                }
            }
            (PlotKind::Memory | PlotKind::Steps, None, Some(y)) => return refuse("y", y, "no y for a plot of this kind".into()),
            (_, x, y) => {
                let x = x.as_deref().unwrap_or_default();
                if !names.contains(&x) && !fixed.iter().any(|key| key == x) {
                    return refuse("x", x, format!("what the plan varies: {}", if shown.is_empty() { "nothing" } else { &shown }));
                }
                let y = y.as_deref().unwrap_or_default();
                if fields.named(y).is_none() {
                    return refuse("y", y, fields.known());
                }
            }
        }
    }
    plots.retain(|plot| plot.x.as_ref().is_none_or(|x| !fixed.contains(x)));
    Ok(plots)
}
