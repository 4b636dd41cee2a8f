//! Training jobs: iterations of a phase in which workers compute and one in which they reduce. The phases do not overlap.

use fanin_core::{CollectiveKind, Duration, Instant};
use fanin_sim::random::{Purpose, Random};
use fanin_sim::scenario::Contributions;
use fanin_sim::{Compute, JobSchedule};
use fanin_workload::CollectiveKind as Word;

use super::prepared::PreparedJob;
use super::{collective, reproducible};
use crate::reading::units::Time;
use crate::reading::{PlanError, Refuse};
use crate::schema::{JobKeys, Model};

impl JobKeys {
    /// Whether the job trains.
    pub fn trains(&self) -> bool {
        self.model.is_some() || self.iterations.is_some()
    }

    /// How often a worker computes and reduces its vector.
    pub fn iteration_count(&self) -> u32 {
        self.iterations.map_or(1, |count| count.0)
    }

    /// Length of the vector in bytes, a multiple of `element_bytes` where it is a model's.
    pub fn message_bytes(&self, element_bytes: u64) -> u64 {
        let of_model = |model: Model| ((model.bytes() as f64 * self.scale.0) as u64).max(element_bytes).next_multiple_of(element_bytes);
        self.message.map(|bytes| bytes.0).or_else(|| self.model.map(of_model)).unwrap_or(0)
    }

    /// Operations in which a vector is reduced.
    pub fn tensors(&self, message_bytes: u64) -> u64 {
        let tensor_bytes = self.tensor.map_or(message_bytes, |bytes| bytes.0).clamp(1, message_bytes.max(1));
        message_bytes.div_ceil(tensor_bytes).max(1)
    }

    /// All operations of a job whose elements have this length.
    pub fn operation_count(&self, element_bytes: u64) -> u64 {
        let tensors = self.tensors(self.message_bytes(element_bytes));
        tensors.saturating_mul(u64::from(self.iteration_count())).saturating_mul(u64::from(self.operations.0))
    }

    /// The key that says how many operations there are.
    pub fn operations_key(&self) -> &'static str {
        if self.trains() { "iterations" } else { "operations" }
    }

    fn compute_mean(&self) -> Duration {
        let of_model = |model: Model| Duration::from_ps((model.compute().as_ps() as f64 * self.scale.0).round() as u64);
        self.compute.map(|time| time.0).or_else(|| self.model.map(of_model)).unwrap_or_default()
    }
}

/// Operations of a job, at most.
const OPERATIONS_MAX: u64 = 1 << 20;

/// When a job does what. `arrives` is when it comes.
///
/// # Errors
/// [`PlanError`] names the key.
pub fn schedule(refuse: &Refuse<'_>, job: &PreparedJob, seed: u64, number: u64, arrives: Duration) -> Result<JobSchedule, PlanError> {
    let common = &job.settings.common;
    let path = |key: &str| format!("jobs[{}].{key}", job.entry);
    let element_bytes = job.op.dtype.bytes() as u64;
    let message_bytes = common.message_bytes(element_bytes);
    for (key, bytes) in [("message", Some(message_bytes)), ("tensor", common.tensor.map(|bytes| bytes.0))] {
        if bytes.is_some_and(|bytes| !bytes.is_multiple_of(element_bytes)) {
            return Err(refuse.at(&path(key), format!("a multiple of {element_bytes} bytes, the length of an element")));
        }
    }
    if message_bytes / common.payload.0.max(1) > 1 << 30 {
        return Err(refuse.at(&path("message"), "at most 2^30 packets"));
    }
    let tensor_bytes = common.tensor.map_or(message_bytes, |bytes| bytes.0).clamp(1, message_bytes.max(1));
    let operations = common.tensors(message_bytes);
    let total = common.operation_count(element_bytes);
    if total > OPERATIONS_MAX {
        return Err(refuse.say(&path(common.operations_key()), total, format!("at most {OPERATIONS_MAX} operations in all")));
    }
    let tensor = |index: u64| (message_bytes - index * tensor_bytes).min(tensor_bytes) / element_bytes;
    let (kind, workers) = (collective::kind_of(job), job.hosts.len() as u32);
    let in_all = |index: u64| collective::elements_in_all(kind, workers, tensor(index));
    let kinds = if kind == CollectiveKind::Allreduce { Vec::new() } else { vec![kind; total as usize] };
    if !kinds.is_empty() {
        collective::check_operation(refuse, job, in_all(0))?;
    }
    let lengths: Vec<u64> = (0..total).map(|operation| in_all(operation % operations)).collect();
    let (elements, contributions) = reproducible::operations(refuse, job, lengths, OPERATIONS_MAX)?;
    // All parts of an iteration's sums.
    let operations = elements.len() as u64 / (total / operations).max(1);
    let compute = Compute { operations: operations as u32, mean: common.compute_mean(), spread: common.compute_spread.0 };
    Ok(JobSchedule {
        elements,
        kinds,
        element_bytes: job.wire_bytes(),
        contributions,
        values: job.op.dtype,
        sparsity: job.system.sparsity(),
        indices: job.indices.clone(),
        start: starts(job, job.hosts.len(), (seed, number), arrives),
        compute: common.trains().then_some(compute),
        crash: common.crash.map(|at| Instant::ZERO + at.0),
        noise_probability: common.noise.map_or(0.0, |noise| noise.probability.0),
        noise_delay: common.noise.map_or(Duration::ZERO.into(), |noise| noise.delay.0),
    })
}

/// When each rank begins, where the job comes at `arrives`.
pub fn starts(job: &PreparedJob, ranks: usize, (seed, number): (u64, u64), arrives: Duration) -> Vec<Instant> {
    let mut random = Random::new(seed, Purpose::Placement, 1 << 32 | number);
    let skew_ps = job.settings.common.start_skew.0.as_ps();
    let late = |random: &mut Random| Duration::from_ps(if skew_ps == 0 { 0 } else { random.bits() % (skew_ps + 1) });
    (0..ranks).map(|_| Instant::ZERO + arrives + late(&mut random)).collect()
}

/// The schedule of a job that does what programs say.
pub fn driven(job: &PreparedJob) -> JobSchedule {
    let common = &job.settings.common;
    JobSchedule {
        elements: Vec::new(),
        kinds: Vec::new(),
        element_bytes: job.op.dtype.bytes() as u32,
        contributions: Contributions::Whole,
        values: job.op.dtype,
        sparsity: None,
        indices: None,
        start: vec![Instant::ZERO; job.hosts.len()],
        compute: None,
        crash: common.crash.map(|at| Instant::ZERO + at.0),
        noise_probability: common.noise.map_or(0.0, |noise| noise.probability.0),
        noise_delay: common.noise.map_or(Duration::ZERO.into(), |noise| noise.delay.0),
    }
}

/// Whether the keys that say what a job does and when fit together.
///
/// # Errors
/// [`PlanError`] names the key.
pub fn check(refuse: &Refuse<'_>, entry: usize, common: &JobKeys) -> Result<(), PlanError> {
    let path = |key: &str| format!("jobs[{entry}].{key}");
    let keys = ["tensor", "compute", "compute_spread"];
    let keys = if common.workload.is_some() { &keys[..2] } else { &keys[..] };
    if !common.trains()
        && let Some(key) = keys.iter().find(|key| refuse.has(&path(key)))
    {
        return Err(refuse.at(&path(key), "no such key without iterations or a model"));
    }
    if common.trains() && refuse.has(&path("operations")) {
        return Err(refuse.at(&path("operations"), "no such key for a job that trains: iterations says how often it reduces its vector"));
    }
    if common.model.is_none() && common.workload.is_none() && refuse.has(&path("scale")) {
        return Err(refuse.at(&path("scale"), "no such key without a model or a workload"));
    }
    collective::check(refuse, entry, common)?;
    let is_barrier = common.collective == Some(Word::Barrier);
    if common.message.is_none() && common.model.is_none() && common.workload.is_none() && !is_barrier {
        return Err(refuse.at(&path("message"), "a length, such as \"4MiB\", or else a model or a workload"));
    }
    if common.tensor.is_some_and(|bytes| bytes.0 == 0) {
        return Err(refuse.at(&path("tensor"), "at least one element"));
    }
    if common.scale.0 <= 0.0 {
        return Err(refuse.at(&path("scale"), "a share above 0 and at most 1"));
    }
    if common.arrivals == Some(Time(Duration::ZERO)) {
        return Err(refuse.at(&path("arrivals"), "a time above 0"));
    }
    Ok(())
}

/// When each job comes, in the order of the jobs: copies of an entry one after the other.
pub fn arrivals(jobs: &[PreparedJob], seed: u64) -> Vec<Duration> {
    let mut arrives = Vec::with_capacity(jobs.len());
    let mut process: Option<(usize, Random, Duration)> = None;
    for job in jobs {
        let common = &job.settings.common;
        let Some(mean) = common.arrivals else {
            arrives.push(common.start.0);
            continue;
        };
        let (mut random, last) = match process.take() {
            Some((entry, random, last)) if entry == job.entry => (random, last),
            _ => (Random::new(seed, Purpose::Compute, 1 << 32 | job.entry as u64), common.start.0),
        };
        // Above 0 and at most 1, so that its logarithm is finite.
        let share = ((random.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64;
        let gap = Duration::from_ps((mean.0.as_ps() as f64 * -libm::log(share)).round() as u64);
        arrives.push(last + gap);
        process = Some((job.entry, random, last + gap));
    }
    arrives
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Plan, Prepared};

    const NETWORK: &str = "[network]\nshape = \"star\"\nhosts = 16\nrate = \"100Gb/s\"\nlatency = \"1us\"\n";

    fn prepared(jobs: &str, seed: u64) -> Prepared {
        let plan = Plan::parse("plan", &format!("{NETWORK}{jobs}"), &[], Some(seed)).unwrap();
        plan.prepare(&plan.points[0], 0).unwrap()
    }

    #[test]
    fn a_model_is_cut_into_tensors_and_scaled() {
        let job = "[[jobs]]\nsystem = \"tree\"\nworkers = 2\nmodel = \"vgg16\"\nscale = 0.01\ntensor = \"2MB\"\niterations = 2\n";
        let schedule = &prepared(job, 1).scenario.jobs[0];
        // 5.28 MB of 4-byte elements.
        assert_eq!(schedule.elements, [500_000, 500_000, 320_000, 500_000, 500_000, 320_000]);
        assert_eq!(schedule.compute, Some(Compute { operations: 3, mean: Duration::from_us(731), spread: 0.0 }));
        let job = "[[jobs]]\nsystem = \"tree\"\nworkers = 2\nmessage = \"1KiB\"\noperations = 3\n";
        let schedule = &prepared(job, 1).scenario.jobs[0];
        assert_eq!((schedule.elements.as_slice(), schedule.compute), (&[256, 256, 256][..], None));
    }

    #[test]
    fn copies_arrive_as_a_poisson_process() {
        let job = "[[jobs]]\nsystem = \"ring\"\nworkers = 1\njobs_per_host = 4000\nmessage = \"1KiB\"\ncopies = 4000\narrivals = \"10us\"\nstart = \"1ms\"\n";
        let begins = |seed| prepared(job, seed).scenario.jobs.iter().map(|job| job.start[0].as_ps() as f64 / 1e6).collect::<Vec<f64>>();
        let all = begins(3);
        let gaps: Vec<f64> = std::iter::once(all[0] - 1_000.0).chain(all.windows(2).map(|pair| pair[1] - pair[0])).collect();
        assert!(gaps.iter().all(|gap| *gap >= 0.0));
        let mean = gaps.iter().sum::<f64>() / 4_000.0;
        let variance = gaps.iter().map(|gap| (gap - mean).powi(2)).sum::<f64>() / 4_000.0;
        // Exponential: the deviation is the mean; give or take 5 standard deviations of each.
        assert!((mean - 10.0).abs() < 0.8 && (variance.sqrt() - 10.0).abs() < 1.2, "{mean} {variance}");
        let longer_than_mean = gaps.iter().filter(|gap| **gap > 10.0).count();
        assert!((1_320..1_620).contains(&longer_than_mean), "{longer_than_mean} of 4000, of which 1/e are expected");
        assert_eq!(all, begins(3));
        assert_ne!(all, begins(4));
    }
}
