//! Models: what papers say by formulas, evaluated. A model is a row in [`MODELS`]: its parameters, its quantities with the numbers of their
//! equations, and a function from the ones to the others. `fanin model` and figures that are computed know no more of it than that.
//!
//! | module | what it holds |
//! |---|---|
//! | [`a2tp`] | steady state of A2TP's aggregator window, and the factor by which it shrinks |
//! | [`bom`] | what workers can send to a server where some switches aggregate |
//! | [`canary`] | memory of a switch, multicast groups, share of a frame |
//! | [`flare`] | a switch of many cores: queues, latency, memory and bandwidth, by formulas and simulated; sums of sparse vectors |
//! | `memo` | results that are kept, since plans are read several times |
//! | [`netreduce`] | time of an allreduce over machines with several GPUs: flat ring, Tencent's, parallel NetReduce |
//! | [`pipeline`] | what a program's registers take of a switch of match-action stages |
//! | [`rina`] | the dependency chain of a ring over workers or groups |
//! | [`sharp`] | time of an allreduce over SHARP's trees, in its two modes |
//! | [`training`] | a small network that is trained with sums of systems: accuracy by iterations and time |
//! | [`upgrade`] | in which order to replace switches |
#![forbid(unsafe_code)]

pub mod a2tp;
pub mod bom;
pub mod canary;
pub mod flare;
mod memo;
pub mod netreduce;
pub mod pipeline;
pub mod rina;
pub mod sharp;
pub mod training;
pub mod upgrade;

use std::fmt;

use memo::Memo;

/// All models, in the order in which they are listed.
pub const MODELS: &[Model] = &[
    a2tp::STEADY_STATE,
    a2tp::DECREASE,
    netreduce::TIMES,
    sharp::MODES,
    canary::SWITCH,
    pipeline::PIPELINE,
    rina::CHAIN,
    bom::FAT_TREE,
    flare::PROCESSOR,
    flare::PROCESSOR_RUN,
    flare::sparse::SPARSE,
    training::TRAINING,
];

/// Rows of all models, by name and by the bits of parameters: a model is a pure function.
static ROWS: Memo<(&str, Vec<u64>), Row> = Memo::new(10_000);

/// Quantities of a model, or why there are none.
type Row = Result<Vec<f64>, ModelError>;

/// The model of that name.
pub fn model(name: &str) -> Option<&'static Model> {
    MODELS.iter().find(|model| model.name == name)
}

/// Formulas of a paper.
pub struct Model {
    /// Its name, as `fanin model` takes it.
    pub name: &'static str,
    /// What it says, in a line.
    pub title: &'static str,
    /// Where it stands in the paper, and what it assumes.
    pub about: &'static str,
    /// What goes in.
    pub parameters: &'static [Parameter],
    /// Parameters that have names in place of numbers.
    pub choices: &'static [Choice],
    /// What comes out.
    pub quantities: &'static [Quantity],
    /// From parameters to quantities, each in the order of its list. The parameters lie in their ranges.
    evaluate: fn(&[f64]) -> Result<Vec<f64>, ModelError>,
}

/// A number that a model takes.
pub struct Parameter {
    /// Its name.
    pub key: &'static str,
    /// What it is, with its letter in the paper.
    pub title: &'static str,
    /// The value that is taken where none is given, of the paper where that has one.
    pub usual: f64,
    /// Whether it is a whole number.
    pub whole: bool,
    /// The least that makes sense.
    pub low: f64,
    /// No value from here on makes sense, or none above it where it is [`inclusive`](Parameter::inclusive).
    pub high: f64,
    /// Whether `high` itself makes sense.
    pub inclusive: bool,
}

/// The names of a parameter's values: the first is 0, the next 1 and so on.
pub struct Choice {
    /// The parameter.
    pub key: &'static str,
    /// The names.
    pub names: &'static [&'static str],
}

/// A number that a model gives.
pub struct Quantity {
    /// Its name.
    pub key: &'static str,
    /// What it is, with its letter in the paper.
    pub title: &'static str,
    /// The equation that it follows from.
    pub equation: &'static str,
}

/// A model cannot be evaluated for what was given.
#[derive(Clone, PartialEq, Debug, thiserror::Error)]
#[error("{key} = {value}: expected {expected}")]
pub struct ModelError {
    /// The parameter.
    pub key: &'static str,
    /// What was given.
    pub value: f64,
    /// What would do.
    pub expected: String,
}

impl Model {
    /// The quantities for these parameters, each in the order of its list: computed once in a process, and kept.
    ///
    /// # Errors
    /// [`ModelError`] where a parameter is outside of its range, or those given do not fit together.
    ///
    /// # Panics
    /// Where there are not as many numbers as the model has parameters.
    pub fn evaluate(&self, parameters: &[f64]) -> Result<Vec<f64>, ModelError> {
        assert_eq!(parameters.len(), self.parameters.len(), "{} has {} parameters", self.name, self.parameters.len());
        for (parameter, &value) in self.parameters.iter().zip(parameters) {
            let range = || ModelError { key: parameter.key, value, expected: self.expected(parameter) };
            parameter.allows(value).then_some(()).ok_or_else(range)?;
        }
        let bits = parameters.iter().map(|value| value.to_bits()).collect();
        ROWS.get((self.name, bits), || (self.evaluate)(parameters))
    }

    /// The place of a parameter in the list.
    pub fn parameter(&self, key: &str) -> Option<usize> {
        self.parameters.iter().position(|parameter| parameter.key == key)
    }

    /// The names of a parameter's values, where it has some.
    pub fn names(&self, key: &str) -> Option<&'static [&'static str]> {
        self.choices.iter().find(|choice| choice.key == key).map(|choice| choice.names)
    }

    /// A parameter's value for people: its name where it has one.
    pub fn text(&self, parameter: &Parameter, value: f64) -> String {
        match self.names(parameter.key).and_then(|names| names.get(value as usize)) {
            Some(name) => (*name).to_string(),
            None => value.to_string(),
        }
    }

    /// What a parameter's values are: `a whole number from 1 to 100`, or `one of single, tree`.
    pub fn expected(&self, parameter: &Parameter) -> String {
        match self.names(parameter.key) {
            Some(names) => format!("one of {}", names.join(", ")),
            None => parameter.to_string(),
        }
    }

    /// The place of a quantity in the list.
    pub fn quantity(&self, key: &str) -> Option<usize> {
        self.quantities.iter().position(|quantity| quantity.key == key)
    }
}

impl Parameter {
    fn allows(&self, value: f64) -> bool {
        let below = if self.inclusive { value <= self.high } else { value < self.high };
        value >= self.low && below && !(self.whole && value.fract() != 0.0)
    }
}

/// The range, in words: `a whole number from 1 to 100`.
impl fmt::Display for Parameter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.whole { "a whole number" } else { "a number" };
        let end = if self.inclusive { "to" } else { "to below" };
        write!(f, "{kind} from {} {end} {}", self.low, self.high)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn models_parameters_and_quantities_have_names_of_their_own() {
        let names: BTreeSet<&str> = MODELS.iter().map(|model| model.name).collect();
        assert_eq!(names.len(), MODELS.len());
        for model in MODELS {
            let parameters = model.parameters.iter().map(|parameter| parameter.key);
            let keys: BTreeSet<&str> = parameters.chain(model.quantities.iter().map(|quantity| quantity.key)).collect();
            assert_eq!(keys.len(), model.parameters.len() + model.quantities.len(), "{}", model.name);
        }
    }

    #[test]
    fn named_values_are_whole_numbers_from_0_on() {
        for model in MODELS {
            for choice in model.choices {
                let parameter = &model.parameters[model.parameter(choice.key).expect("a parameter")];
                assert!(parameter.whole && parameter.inclusive && parameter.low == 0.0, "{}", choice.key);
                assert_eq!(parameter.high, (choice.names.len() - 1) as f64, "{}", choice.key);
            }
        }
    }

    #[test]
    fn what_is_usual_can_be_evaluated() {
        for model in MODELS {
            let usual: Vec<f64> = model.parameters.iter().map(|parameter| parameter.usual).collect();
            let quantities = model.evaluate(&usual).expect("what is usual");
            assert_eq!(quantities.len(), model.quantities.len(), "{}", model.name);
            assert!(quantities.iter().all(|value| value.is_finite()), "{}: {quantities:?}", model.name);
        }
    }

    #[test]
    fn a_value_outside_of_its_range_is_named() {
        let steady = model("a2tp").expect("a model");
        let refused = |parameters: [f64; 3]| steady.evaluate(&parameters).expect_err("refused").to_string();
        assert_eq!(refused([0.0, 450.0, 0.15]), "flows = 0: expected a whole number from 1 to 1000000");
        assert_eq!(refused([2.5, 450.0, 0.15]), "flows = 2.5: expected a whole number from 1 to 1000000");
        assert_eq!(refused([2.0, 450.0, 1.0]), "threshold = 1: expected a number from 0 to below 1");
        assert_eq!(refused([2.0, 450.0, f64::NAN]), "threshold = NaN: expected a number from 0 to below 1");
        assert_eq!(refused([9.0, 8.0, 0.0]), "flows = 9: expected at most as many as aggregators (8): a window holds one fragment or more");
    }
}
