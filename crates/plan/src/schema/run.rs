//! `[run]`: how often, with what payload, until when.

use fanin_core::Duration;
use serde::Deserialize;

use super::one;
use crate::reading::units::{Count, Fraction, Time};

/// `[run]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Run {
    /// Seed of the first repetition; each further one has a seed higher by one.
    #[serde(default = "seed_default")]
    pub seed: u64,
    /// How often each point is run.
    #[serde(default = "one")]
    pub repetitions: Count,
    /// What packets carry.
    #[serde(default)]
    pub payload: PayloadName,
    /// A run is given up at this simulated time.
    #[serde(default = "time_limit_default")]
    pub time_limit: Time,
    /// Go on until nothing moves after the last job has ended.
    #[serde(default)]
    pub drain: bool,
    /// Where given, of a long vector only as much is simulated as it takes to say its time within this share.
    pub steady: Option<Fraction>,
    /// Interval of samples of the switches' memory; none are taken where it is not given.
    pub memory_interval: Option<Time>,
    /// Interval of samples of jobs: goodput, memory, gauges; none are taken where it is not given.
    pub series_interval: Option<Time>,
    /// Runs every job once more by itself, to say by how much the others slow it down.
    #[serde(default)]
    pub alone: bool,
    /// How runs are meant to end.
    #[serde(default)]
    pub expect: Expect,
}

impl Default for Run {
    fn default() -> Self {
        Run {
            seed: seed_default(),
            repetitions: one(),
            payload: PayloadName::default(),
            time_limit: time_limit_default(),
            drain: false,
            steady: None,
            memory_interval: None,
            series_interval: None,
            alone: false,
            expect: Expect::default(),
        }
    }
}

/// What packets carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PayloadName {
    /// Weights that show every lost, doubled or foreign contribution.
    #[default]
    Census,
    /// Lengths only: the fastest.
    Length,
    /// Real elements, compared with sums that are computed apart: for small networks.
    Elements,
}

/// How runs are meant to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Expect {
    /// Every job completes.
    #[default]
    Success,
    /// Every run has a job that fails and says why.
    Failure,
}

fn time_limit_default() -> Time {
    Time(Duration::from_ms(1_000))
}

fn seed_default() -> u64 {
    1
}
