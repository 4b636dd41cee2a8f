//! `[[plot]]`: pictures.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::choices::Places;

/// `[[plot]]`: one picture.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Plot {
    /// Name of the file, without its ending.
    pub name: String,
    /// Above the picture.
    pub title: String,
    /// What is drawn.
    pub kind: PlotKind,
    /// The axis of the sweep along x: `"series"`, a swept key. For `"bars"` and `"lines"`.
    pub x: Option<String>,
    /// The value along y: a number of results.json; for `"time"` a column of series.csv, or `"fairness"`; for `"cdf"` a number of each job, or
    /// none. Not for `"memory"`.
    pub y: Option<String>,
    /// By axis: the places that are shown; all where it is not given.
    #[serde(default)]
    pub only: BTreeMap<String, Places>,
}

/// What is drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PlotKind {
    /// A group of bars for each value of x.
    Bars,
    /// A line over x for each of the other axes' points.
    Lines,
    /// Distribution of the utilisation of links, or of a number over jobs.
    Cdf,
    /// Memory of the switch that has most in use, over time.
    Memory,
    /// A quantity of each job over time.
    Time,
    /// What ranks of a job with a workload did over time.
    Steps,
}
