//! Predictions against simulation, on drawn cases.

use std::path::Path;

use fanin_core::Duration;
use fanin_plan::PlanError;
use serde::Serialize;

use crate::draw::{Case, case};
use crate::setting::{New, SYSTEMS, Setting, gbps_of, simulated};

/// A simulation is given up after so many times what was predicted.
const GIVEN_UP: f64 = 6.0;

/// A prediction and what it is a prediction of.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Trial {
    /// Number of the case.
    pub case: u64,
    /// What the case is.
    pub network: String,
    /// The system.
    pub system: &'static str,
    /// How many jobs.
    pub jobs: usize,
    /// Workers of all jobs.
    pub workers: usize,
    /// Gb/s of all jobs together.
    pub predicted: f64,
    /// The same, simulated; null where a job did not complete.
    pub simulated: Option<f64>,
    /// By job: predicted and simulated.
    pub by_job: Vec<(f64, Option<f64>)>,
    /// What the prediction names as what binds the first job.
    pub bound: String,
    /// Why the rules do not know, where they say so.
    pub unknown: Option<String>,
}

impl Trial {
    /// How far the prediction is off, as a share of what was simulated.
    pub fn error(&self) -> Option<f64> {
        self.simulated.map(|simulated| self.predicted / simulated - 1.0)
    }

    /// Within a fifth of the simulation.
    pub fn is_within(&self) -> bool {
        self.error().is_some_and(|error| error.abs() <= 0.2)
    }
}

/// All trials of a case; systems that cannot do its jobs on its network have none.
///
/// # Errors
/// [`PlanError`] where the case cannot be read, which is a fault of the generator.
pub fn trials(folder: &Path, seed: u64, number: u64, systems: &[&'static str]) -> Result<Vec<Trial>, PlanError> {
    let Case { name, network, jobs } = case(seed, number);
    let path = folder.join(format!("network-{number}.toml"));
    let failed = |error: std::io::Error| PlanError::new(&path.display().to_string(), error.to_string());
    std::fs::create_dir_all(folder).map_err(failed)?;
    std::fs::write(&path, &network).map_err(failed)?;
    std::fs::write(folder.join(format!("jobs-{number}.toml")), &jobs).map_err(failed)?;
    let setting = Setting::of(&path, &format!("jobs-{number}.toml"), &jobs)?;
    // Shapes say nothing of switches: all of them aggregate in two cases of three.
    let able = if network.contains("[network]") { vec![!number.is_multiple_of(3); setting.switches.len()] } else { setting.today() };
    let mut found = Vec::new();
    for &system in systems {
        let Ok(mut prepared) = setting.prepare(system, &able, New::default(), 0) else { continue };
        let Some(prediction) = setting.predict(&prepared) else { continue };
        // Who takes that much longer has not been predicted, and it need not be known by how much.
        let slowest = prediction.jobs.iter().map(|job| job.seconds).fold(0.0, f64::max);
        prepared.scenario.time_limit = Duration::from_ps((slowest * GIVEN_UP * 1e12) as u64);
        let Ok(record) = simulated(&prepared) else { continue };
        found.push(Trial {
            case: number,
            network: name.clone(),
            system,
            jobs: prepared.jobs.len(),
            workers: prepared.jobs.iter().map(|job| job.hosts.len()).sum(),
            predicted: prediction.gbps(),
            simulated: gbps_of(&record),
            by_job: prediction.jobs.iter().zip(&record.jobs).map(|(job, record)| (job.gbps, record.goodput_gbps)).collect(),
            bound: prediction.jobs[0].bound.clone(),
            unknown: prediction.unknown.clone(),
        });
    }
    Ok(found)
}

/// A row of the table.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Row {
    /// The system, or `all`.
    pub system: String,
    /// How many predictions.
    pub trials: usize,
    /// Of those of which the rules say that they know, how many.
    pub known: usize,
    /// How many of all are within a fifth.
    pub within: usize,
    /// How many of the known ones are.
    pub known_within: usize,
    /// The median error, as a share, with its sign.
    pub median: f64,
    /// Nine of ten errors are smaller than this.
    pub p90: f64,
}

/// The table of these trials: a row a system, and one of all.
pub fn table(trials: &[Trial]) -> Vec<Row> {
    let mut names: Vec<&str> = SYSTEMS.iter().copied().filter(|name| trials.iter().any(|trial| trial.system == *name)).collect();
    names.push("all");
    let row = |name: &&str| {
        let of: Vec<&Trial> = trials.iter().filter(|trial| *name == "all" || trial.system == *name).collect();
        let known: Vec<&&Trial> = of.iter().filter(|trial| trial.unknown.is_none()).collect();
        let mut errors: Vec<f64> = of.iter().map(|trial| trial.error().unwrap_or(f64::INFINITY)).collect();
        errors.sort_by(f64::total_cmp);
        let median = errors.get(errors.len() / 2).copied().unwrap_or(0.0);
        let mut sizes: Vec<f64> = errors.iter().map(|error| error.abs()).collect();
        sizes.sort_by(f64::total_cmp);
        Row {
            system: (*name).to_string(),
            trials: of.len(),
            known: known.len(),
            within: of.iter().filter(|trial| trial.is_within()).count(),
            known_within: known.iter().filter(|trial| trial.is_within()).count(),
            median,
            p90: sizes.get(sizes.len() * 9 / 10).copied().unwrap_or(0.0),
        }
    };
    names.iter().map(row).collect()
}

/// What the first choice costs against the best one, by case: 1 - simulated of the first choice over the best simulated. Where the rules do not
/// know of a system, or it is near the first ([`CLOSE`]), it is simulated before the choice, as advice does it.
pub fn regrets(trials: &[Trial], simulates: bool) -> Vec<f64> {
    let mut cases: Vec<u64> = trials.iter().map(|trial| trial.case).collect();
    cases.dedup();
    let of = |case: &u64| {
        let of: Vec<&Trial> = trials.iter().filter(|trial| trial.case == *case).collect();
        let best = of.iter().filter_map(|trial| trial.simulated).fold(0.0, f64::max);
        let first = of.iter().map(|trial| trial.predicted).fold(0.0, f64::max);
        let value = |trial: &&Trial| {
            let is_simulated = simulates && (trial.unknown.is_some() || trial.predicted >= first * CLOSE);
            if is_simulated { trial.simulated.unwrap_or(0.0) } else { trial.predicted }
        };
        let chosen = match simulates {
            // Nothing is chosen that was not simulated.
            true => of
                .iter()
                .filter(|trial| trial.unknown.is_some() || trial.predicted >= first * CLOSE)
                .max_by(|a, b| value(a).total_cmp(&value(b))),
            false => of.iter().max_by(|a, b| a.predicted.total_cmp(&b.predicted)),
        };
        let got = chosen.and_then(|trial| trial.simulated).unwrap_or(0.0);
        if best > 0.0 { 1.0 - got / best } else { 0.0 }
    };
    cases.iter().map(of).collect()
}

/// What is predicted to be at least this share of the first choice is simulated before a choice.
pub const CLOSE: f64 = 0.75;
