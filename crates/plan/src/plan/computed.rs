//! Plans of figures that are computed from a model, not simulated: `[model]` with the model's name and parameters stands in place of
//! network and jobs; series, sweeps and pictures are as in every plan.
//!
//! ```toml
//! [model]
//! name = "a2tp"
//!
//! [sweep]
//! "model.aggregators" = [450, 900]
//! "model.flows" = [2, 4, 8, 16, 32]
//! ```

use fanin_models::{MODELS, Model, model};

use super::plots;
use super::size::check_points;
use super::sweep::{self, Axis};
use super::{apply_set, check_sections, text_with_sets};
use crate::reading::PlanError;
use crate::reading::read::suggestion;
use crate::reading::tree::{Kind, Origin, Tree, parse_path};
use crate::results::metrics::Fields;
use crate::schema::{Plot, PlotKind};

/// What such a plan consists of.
const SECTIONS: &[&str] = &["model", "series", "sweep", "plot"];

/// A plan that is computed, read and checked, with its numbers: they cost nothing.
#[derive(Clone)]
pub struct Computed {
    /// The file as it was named.
    pub file: String,
    /// Its text.
    text: String,
    /// What `--set` changed.
    sets: Vec<String>,
    /// The model.
    pub model: &'static Model,
    /// What is varied, slowest first.
    pub axes: Vec<Axis>,
    /// All points, in the order of their axes; never empty.
    pub points: Vec<ComputedPoint>,
    /// Pictures.
    pub plots: Vec<Plot>,
}

/// One combination of what is varied, and what comes out.
#[derive(Clone, PartialEq, Debug)]
pub struct ComputedPoint {
    /// Its place on each axis.
    pub indices: Vec<usize>,
    /// Its name on each axis, in the order of the axes.
    pub labels: Vec<String>,
    /// What goes into the model, in the order of its parameters.
    pub parameters: Vec<f64>,
    /// What comes out, in the order of its quantities.
    pub quantities: Vec<f64>,
}

/// Whether a plan is one of a model.
///
/// # Errors
/// [`PlanError`] where it is not TOML.
pub fn is_computed(file: &str, text: &str) -> Result<bool, PlanError> {
    Ok(Tree::parse(file, text)?.get("model").is_some())
}

impl Computed {
    /// Reads, checks and computes a plan; `file` is its name in errors.
    ///
    /// # Errors
    /// [`PlanError`] with file, line, key, value and what was expected.
    pub fn parse(file: &str, text: &str, sets: &[String]) -> Result<Computed, PlanError> {
        let mut tree = Tree::parse(file, text)?;
        for set in sets {
            apply_set(file, &mut tree, set)?;
        }
        check_sections(file, &tree, SECTIONS)?;
        let plots = tree.take("plot");
        let (axes, fixed) = sweep::take_axes(file, &mut tree, sets)?;
        check_points(file, &tree, &axes)?;
        let model = named(file, &tree)?;
        let plots = match plots {
            Some((_, plots)) => {
                let read = plots::check(file, &plots, &axes, &fixed, sets, Fields::Model(model))?;
                if let Some(plot) = read.iter().find(|plot| !matches!(plot.kind, PlotKind::Bars | PlotKind::Lines)) {
                    let what =
                        format!("the plot {:?}: expected kind = \"lines\" or \"bars\": a model has neither links nor time", plot.name);
                    return Err(PlanError::new(file, what).at(plots.origin));
                }
                read
            }
            None => Vec::new(),
        };
        let points = sweep::combinations(&axes).into_iter().map(|indices| point(file, model, &tree, &axes, indices));
        let points = points.collect::<Result<_, _>>()?;
        Ok(Computed { file: file.to_string(), text: text.to_string(), sets: sets.to_vec(), model, axes, points, plots })
    }

    /// Its text, with what `--set` changed as comments above it.
    pub fn text_with_sets(&self) -> String {
        text_with_sets(&self.text, &self.sets)
    }
}

/// The model that the plan names.
fn named(file: &str, tree: &Tree) -> Result<&'static Model, PlanError> {
    let known = MODELS.iter().map(|model| format!("{:?}", model.name)).collect::<Vec<_>>().join(" or ");
    let table = tree.get("model");
    match table.and_then(|table| table.get("name")) {
        Some(Tree { kind: Kind::Text(name), .. }) if model(name).is_some() => Ok(model(name).expect("just found")),
        Some(other) => Err(PlanError::new(file, format!("model.name = {other}: expected {known}")).at(other.origin.clone())),
        None => {
            let origin = table.map_or(Origin::Given, |table| table.origin.clone());
            Err(PlanError::new(file, format!("model.name is missing: expected {known}")).at(origin))
        }
    }
}

/// Computes the point at these indices of the axes.
fn point(file: &str, model: &'static Model, base: &Tree, axes: &[Axis], indices: Vec<usize>) -> Result<ComputedPoint, PlanError> {
    let mut tree = base.clone();
    let choices: Vec<&sweep::Choice> = axes.iter().zip(&indices).map(|(axis, &index)| &axis.choices[index]).collect();
    for (path, value) in choices.iter().flat_map(|choice| &choice.assignments) {
        let refuse = |what: String| Err(PlanError::new(file, format!("{path}: {what}")).at(value.origin.clone()));
        if parse_path(path) == parse_path("model.name") {
            return refuse("cannot be varied; expected a parameter of the model".into());
        }
        if let Err(what) = tree.put(&parse_path(path), value.clone()) {
            return refuse(what);
        }
    }
    let parameters = parameters(file, model, &tree)?;
    let quantities = model.evaluate(&parameters).map_err(|error| {
        let origin = tree.closest(&parse_path(&format!("model.{}", error.key))).origin.clone();
        PlanError::new(file, format!("model.{error}")).at(origin)
    })?;
    Ok(ComputedPoint { indices, labels: choices.iter().map(|choice| choice.label.clone()).collect(), parameters, quantities })
}

/// Every parameter: the plan's or else the usual one.
fn parameters(file: &str, model: &'static Model, tree: &Tree) -> Result<Vec<f64>, PlanError> {
    let mut values: Vec<f64> = model.parameters.iter().map(|parameter| parameter.usual).collect();
    let Some(Tree { kind: Kind::Table(entries), .. }) = tree.get("model") else { return Ok(values) };
    for (key, value) in entries.iter().filter(|(key, _)| key.name != "name") {
        let Some(place) = model.parameter(&key.name) else {
            let known: Vec<String> = model.parameters.iter().map(|parameter| parameter.key.to_string()).collect();
            let what = format!("model.{} = {value}: unknown key; {}", key.name, suggestion(&key.name, &known));
            return Err(PlanError::new(file, what).at(key.origin.clone()));
        };
        let names = model.names(&key.name);
        let named = |text: &str| names.and_then(|names| names.iter().position(|name| *name == text));
        values[place] = match &value.kind {
            Kind::Integer(number) if names.is_none() => *number as f64,
            Kind::Float(number) if names.is_none() => *number,
            Kind::Text(text) if named(text).is_some() => named(text).expect("just found") as f64,
            _ => {
                let what = format!("model.{} = {value}: expected {}", key.name, model.expected(&model.parameters[place]));
                return Err(PlanError::new(file, what).at(value.origin.clone()));
            }
        };
    }
    Ok(values)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: &str = "[model]\nname = \"a2tp\"\nthreshold = 0\n[sweep]\n\"model.aggregators\" = [450, 900]\n\"model.flows\" = [2, 32]\n";

    fn refused(plan: &str, sets: &[&str]) -> String {
        let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
        Computed::parse("plan.toml", plan, &sets).err().expect("refused").to_string()
    }

    #[test]
    fn every_combination_is_computed_in_the_order_of_the_axes() {
        let plan = Computed::parse("plan.toml", PLAN, &[]).expect("a plan");
        let parameters: Vec<&[f64]> = plan.points.iter().map(|point| point.parameters.as_slice()).collect();
        assert_eq!(parameters, [[2.0, 450.0, 0.0], [32.0, 450.0, 0.0], [2.0, 900.0, 0.0], [32.0, 900.0, 0.0]]);
        assert_eq!(plan.points[1].labels, ["450", "32"]);
        for point in &plan.points {
            assert_eq!(point.quantities, plan.model.evaluate(&point.parameters).expect("in range"));
        }
    }

    #[test]
    fn a_plan_of_a_model_is_told_from_one_of_a_network() {
        assert_eq!(is_computed("plan.toml", PLAN), Ok(true));
        assert_eq!(is_computed("plan.toml", "[network]\nshape = \"star\"\n"), Ok(false));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        assert_eq!(
            refused(&PLAN.replace("450, 900", "450, 8"), &[]),
            "plan.toml:6: model.flows = 32: expected at most as many as aggregators (8): a window holds one fragment or more"
        );
        assert_eq!(
            refused(&PLAN.replace("threshold", "treshold"), &[]),
            "plan.toml:3: model.treshold = 0: unknown key; did you mean threshold? Expected one of flows, aggregators, threshold"
        );
        assert_eq!(
            refused(&PLAN.replace("\"a2tp\"", "\"atp\""), &[]),
            "plan.toml:2: model.name = \"atp\": expected \"a2tp\" or \"a2tp-decrease\" or \"netreduce\" or \"sharp\" or \"canary\" or \"pipeline\" or \"rina\" or \"bom\" or \"flare\" or \"flare-run\" or \"flare-sparse\" or \"training\""
        );
        let named = "[model]\nname = \"flare-run\"\ndesign = \"tree\"\n";
        assert!(Computed::parse("plan.toml", named, &[]).is_ok());
        assert_eq!(
            refused(&named.replace("tree", "trie"), &[]),
            "plan.toml:3: model.design = \"trie\": expected one of fixed, single, multiple, tree"
        );
        assert_eq!(
            refused(&named.replace("\"tree\"", "3"), &[]),
            "plan.toml:3: model.design = 3: expected one of fixed, single, multiple, tree"
        );
        assert_eq!(
            refused(PLAN, &["model.threshold=1.5"]),
            "plan.toml: --set model.threshold=1.5: model.threshold = 1.5: expected a number from 0 to below 1"
        );
        assert_eq!(
            refused(PLAN, &["run.seed=3"]),
            "plan.toml: --set run.seed=3: run = { seed = 3 }: unknown key; expected one of model, series, sweep, plot"
        );
        assert!(
            refused("[model]\nname = \"a2tp\"\n[[plot]]\nname = \"a\"\ntitle = \"b\"\nkind = \"cdf\"\n", &[])
                .contains("expected kind = \"lines\"")
        );
    }

    #[test]
    fn computed_plans_fuzzed() {
        bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            if let Err(error) = Computed::parse("plan.toml", text, &[]) {
                assert!(!error.to_string().is_empty());
            }
        });
    }
}
