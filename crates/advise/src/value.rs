//! What a system does with a set of switches: predicted over several draws, or simulated.

use fanin_plan::{PlanError, Prepared};
use serde::Serialize;

use crate::setting::{New, Setting, simulated};

/// What jobs do.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Value {
    /// Gb/s that all jobs together reduce, mean over draws of placement and paths; 0 for workloads.
    pub gbps: f64,
    /// The least and the most of these draws, as simulated where they are simulated.
    pub range: (f64, f64),
    /// The mean, simulated.
    pub simulated: Option<f64>,
    /// How long an iteration takes, in us, mean over jobs and draws; of jobs that train or have a workload.
    pub iteration_us: Option<f64>,
    /// The least and the most of these draws, mean over jobs; of a workload there is one draw.
    pub iteration_range_us: Option<(f64, f64)>,
    /// What holds the slowest job up, by name, as rules have it; where a simulation gives something else, that it is not known.
    pub bound: String,
    /// Why the rules do not know, where they say so.
    pub unknown: Option<String>,
}

impl Value {
    /// More is better: iterations a second where there are some, else Gb/s.
    pub fn score(&self) -> f64 {
        self.iteration_us.map_or_else(|| self.simulated.unwrap_or(self.gbps), |us| 1e6 / us)
    }

    /// How much more this is than another one, as a share: mean, least and most.
    pub fn gain_over(&self, base: &Value) -> (f64, f64, f64) {
        let (mine, others) = (self.scores(), base.scores());
        let over = |one: f64, other: f64| one / other.max(1e-9) - 1.0;
        (over(self.score(), base.score()), over(mine.0, others.1), over(mine.1, others.0))
    }

    /// The least and the most of scores over draws.
    fn scores(&self) -> (f64, f64) {
        match self.iteration_us {
            Some(us) => self.iteration_range_us.map_or((1e6 / us, 1e6 / us), |(least, most)| (1e6 / most, 1e6 / least)),
            None => self.range,
        }
    }

    /// It was simulated, and some job did not complete.
    pub fn failed(&self) -> Value {
        let bound = "a job did not complete".into();
        Value { range: (0.0, 0.0), simulated: Some(0.0), iteration_us: None, iteration_range_us: None, bound, ..self.clone() }
    }
}

/// How far, as a share, rules may be from a simulation for their word on what holds a job up to count.
const RULES_HOLD: f64 = 0.2;

/// Packets of all vectors that a simulation has at most; longer vectors are simulated in part.
const PACKETS_MAX: f64 = 8_192.0;

/// What a system does; nothing where it cannot do these jobs.
pub fn value(setting: &Setting, system: &str, able: &[bool], new: New, (draws, simulates): (u32, bool)) -> Option<Value> {
    let first = setting.prepare(system, able, new, 0).ok()?;
    if !first.programs.is_empty() {
        return of_workload(&first);
    }
    let mut drawn = vec![first];
    for draw in 1..draws.max(1) {
        drawn.push(setting.prepare(system, able, new, draw).ok()?);
    }
    let found = predicted(setting, &drawn)?;
    if simulates { confirmed(found, &drawn) } else { Some(found) }
}

/// What rules say of these draws of placement and paths.
fn predicted(setting: &Setting, drawn: &[Prepared]) -> Option<Value> {
    let (mut all, mut iterations) = (Vec::new(), Vec::new());
    let (mut bound, mut unknown) = (String::new(), None);
    for (draw, prepared) in drawn.iter().enumerate() {
        let prediction = setting.predict(prepared)?;
        all.push(prediction.gbps());
        let slowest = prediction.jobs.iter().min_by(|a, b| a.gbps.total_cmp(&b.gbps));
        if draw == 0 {
            bound = slowest.map(|job| job.bound.clone()).unwrap_or_default();
            unknown.clone_from(&prediction.unknown);
        }
        let seconds: Vec<f64> = prediction.jobs.iter().map(|job| job.seconds).collect();
        iterations.extend(iteration_us(prepared, &seconds));
    }
    Some(Value {
        gbps: mean(&all),
        range: range(&all),
        simulated: None,
        iteration_us: (!iterations.is_empty()).then(|| mean(&iterations)),
        iteration_range_us: (!iterations.is_empty()).then(|| range(&iterations)),
        bound,
        unknown,
    })
}

/// The same draws simulated, each on a thread of its own; nothing where a job does not complete.
fn confirmed(mut found: Value, drawn: &[Prepared]) -> Option<Value> {
    let seconds: Vec<Option<Vec<f64>>> = std::thread::scope(|scope| {
        let begun: Vec<_> = drawn.iter().map(|prepared| scope.spawn(|| seconds_of(prepared).ok().flatten())).collect();
        begun.into_iter().map(|one| one.join().ok().flatten()).collect()
    });
    let seconds: Vec<Vec<f64>> = seconds.into_iter().collect::<Option<_>>()?;
    let all: Vec<f64> = drawn.iter().zip(&seconds).map(|(prepared, seconds)| gbps(prepared, seconds)).collect();
    let simulated = mean(&all);
    (found.simulated, found.range) = (Some(simulated), range(&all));
    if (found.gbps / simulated - 1.0).abs() > RULES_HOLD {
        found.bound = format!("not known: rules give {:.2} Gb/s", found.gbps);
    }
    let iterations: Vec<f64> = drawn.iter().zip(&seconds).filter_map(|(prepared, seconds)| iteration_us(prepared, seconds)).collect();
    if !iterations.is_empty() {
        (found.iteration_us, found.iteration_range_us) = (Some(mean(&iterations)), Some(range(&iterations)));
    }
    Some(found)
}

/// What all jobs together reduce, in Gb/s, where an operation of each takes so many seconds.
fn gbps(prepared: &Prepared, seconds: &[f64]) -> f64 {
    let of = |(job, seconds): (&fanin_sim::JobSchedule, &f64)| {
        let bytes = job.elements.iter().sum::<u64>() as f64 * f64::from(job.element_bytes);
        bytes * 8e-9 / job.elements.len().max(1) as f64 / seconds
    };
    prepared.scenario.jobs.iter().zip(seconds).map(of).sum()
}

/// The least and the most.
fn range(values: &[f64]) -> (f64, f64) {
    values.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(least, most), value| (least.min(*value), most.max(*value)))
}

/// The mean. Sums of equal numbers are off by their last bits, which a mean of theirs must not be.
fn mean(values: &[f64]) -> f64 {
    let (least, most) = range(values);
    (values.iter().sum::<f64>() / values.len() as f64).max(least).min(most)
}

/// Time of an operation of each job, simulated. Of long vectors a part and twice that part are, and the rest takes as long as the second part:
/// what a vector takes beside its bytes does not depend on its length.
fn seconds_of(prepared: &Prepared) -> Result<Option<Vec<f64>>, PlanError> {
    let packets = |prepared: &Prepared| {
        let one = |(job, schedule): (&fanin_plan::PreparedJob, &fanin_sim::JobSchedule)| {
            let bytes = schedule.elements.iter().sum::<u64>() as f64 * f64::from(schedule.element_bytes);
            bytes / job.settings.common.payload.0 as f64 * job.hosts.len() as f64
        };
        prepared.jobs.iter().zip(&prepared.scenario.jobs).map(one).sum::<f64>()
    };
    let share = PACKETS_MAX * prepared.jobs.iter().map(|job| job.hosts.len() as f64).fold(1.0, f64::max) / packets(prepared);
    let run = |share: f64| -> Result<Option<Vec<f64>>, PlanError> {
        let mut prepared = prepared.clone();
        for schedule in &mut prepared.scenario.jobs {
            // One operation stands for all.
            let mean = schedule.elements.iter().sum::<u64>() as f64 / schedule.elements.len().max(1) as f64;
            schedule.elements = vec![((mean * share) as u64).max(1)];
            schedule.kinds.truncate(1);
            schedule.compute = None;
        }
        let record = simulated(&prepared)?;
        Ok(record.jobs.iter().map(|job| job.completion_us.map(|us| us * 1e-6)).collect())
    };
    if share >= 0.5 {
        return run(1.0);
    }
    let (Some(one), Some(two)) = (run(share / 2.0)?, run(share)?) else { return Ok(None) };
    let rest = (1.0 - share) / (share / 2.0);
    Ok(Some(one.iter().zip(two).map(|(one, two)| two + (two - one).max(0.0) * rest).collect()))
}

/// Of jobs that compute between operations: an iteration is one computation, and then its operations.
fn iteration_us(prepared: &Prepared, seconds: &[f64]) -> Option<f64> {
    let mut all = Vec::new();
    for (schedule, seconds) in prepared.scenario.jobs.iter().zip(seconds) {
        let Some(compute) = &schedule.compute else { continue };
        all.push(compute.mean.as_ps() as f64 * 1e-6 + seconds * f64::from(compute.operations) * 1e6);
    }
    (!all.is_empty()).then(|| all.iter().sum::<f64>() / all.len() as f64)
}

/// A workload's overlap of computing and communication is no matter of rules: it is simulated.
fn of_workload(prepared: &Prepared) -> Option<Value> {
    let record = simulated(prepared).ok()?;
    let mut all = Vec::new();
    let mut bound = String::new();
    for job in &record.jobs {
        let iterations = job.workload.as_ref().map_or(1.0, |workload| f64::from(workload.iterations.max(1)));
        all.push(job.jct_us? / iterations);
        if let Some(workload) = &job.workload {
            let critical = workload.critical.iter().max_by(|a, b| a.time_us.total_cmp(&b.time_us));
            bound = critical.map_or_else(String::new, |part| format!("{} on the critical path", part.what));
        }
    }
    let mean = all.iter().sum::<f64>() / all.len().max(1) as f64;
    Some(Value {
        gbps: 0.0,
        range: (0.0, 0.0),
        simulated: Some(0.0),
        iteration_us: Some(mean),
        iteration_range_us: None,
        bound,
        unknown: None,
    })
}
