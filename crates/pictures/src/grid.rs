//! Numbers at places along axes: what claims and pictures need of results, whether these were simulated or computed.

use fanin_plan::computed::Computed;
use fanin_plan::metrics::{Fields, Metric};
use fanin_plan::run::Finished;
use fanin_plan::{Axis, Plan};

/// Numbers at places along axes.
pub trait Grid {
    /// What is varied, slowest first.
    fn axes(&self) -> &[Axis];
    /// How many points there are.
    fn points(&self) -> usize;
    /// A point's place on each axis.
    fn indices(&self, point: usize) -> &[usize];
    /// A point's name on each axis.
    fn labels(&self, point: usize) -> &[String];
    /// How often a point was run.
    fn repetitions(&self, point: usize) -> u32;
    /// All numbers that can be asked for.
    fn fields(&self) -> Fields;
    /// A number, or why there is none.
    fn number(&self, point: usize, repetition: u32, key: &str) -> Result<f64, String>;
}

impl dyn Grid + '_ {
    /// The axis of that name.
    pub fn axis(&self, name: &str) -> Option<usize> {
        self.axes().iter().position(|axis| axis.name == name)
    }

    /// A point in words: `model.flows 2, model.aggregators 450`.
    pub fn describe(&self, point: usize) -> String {
        self.axes().iter().zip(self.labels(point)).map(|(axis, label)| format!("{} {label}", axis.name)).collect::<Vec<_>>().join(", ")
    }

    /// The numbers of a point's repetitions, lowest first, without those that are missing.
    pub fn sorted(&self, point: usize, key: &str) -> Vec<f64> {
        let mut values: Vec<f64> = (0..self.repetitions(point)).filter_map(|repetition| self.number(point, repetition, key).ok()).collect();
        values.sort_by(f64::total_cmp);
        values
    }
}

/// Why a run that ended as it should has no such number.
pub const NOT_MEASURED: &str = "it was not measured";

/// A plan that was simulated.
pub struct Simulated<'a> {
    /// The plan.
    pub plan: &'a Plan,
    /// What came out.
    pub finished: &'a [Finished],
}

impl Grid for Simulated<'_> {
    fn axes(&self) -> &[Axis] {
        &self.plan.axes
    }

    fn points(&self) -> usize {
        self.plan.points.len()
    }

    fn indices(&self, point: usize) -> &[usize] {
        &self.plan.points[point].indices
    }

    fn labels(&self, point: usize) -> &[String] {
        &self.plan.points[point].labels
    }

    fn repetitions(&self, point: usize) -> u32 {
        self.plan.points[point].setup.general.run.repetitions.0
    }

    fn fields(&self) -> Fields {
        Fields::Simulated
    }

    fn number(&self, point: usize, repetition: u32, key: &str) -> Result<f64, String> {
        let run = self.finished.iter().find(|run| run.point == point && run.record.repetition == repetition);
        let value = run.zip(Metric::named(key)).and_then(|(run, metric)| metric.value(&run.record)).filter(|value| value.is_finite());
        value.ok_or_else(|| run.and_then(|run| run.record.failure.clone()).unwrap_or_else(|| NOT_MEASURED.into()))
    }
}

impl Grid for Computed {
    fn axes(&self) -> &[Axis] {
        &self.axes
    }

    fn points(&self) -> usize {
        self.points.len()
    }

    fn indices(&self, point: usize) -> &[usize] {
        &self.points[point].indices
    }

    fn labels(&self, point: usize) -> &[String] {
        &self.points[point].labels
    }

    fn repetitions(&self, _point: usize) -> u32 {
        1
    }

    fn fields(&self) -> Fields {
        Fields::Model(self.model)
    }

    fn number(&self, point: usize, _repetition: u32, key: &str) -> Result<f64, String> {
        let point = &self.points[point];
        let quantity = self.model.quantity(key).map(|place| point.quantities[place]);
        let parameter = || self.model.parameter(key).map(|place| point.parameters[place]);
        let value = quantity.or_else(parameter).ok_or("the model does not have it")?;
        if value.is_finite() { Ok(value) } else { Err(format!("it is {value}")) }
    }
}
