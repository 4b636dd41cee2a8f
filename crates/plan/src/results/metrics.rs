//! Numbers of runs by name, for tables, plots and claims.

use fanin_core::Tally;

use fanin_models::Model;

use super::series::Quantity;
use crate::results::{JobRecord, RunRecord};

/// What a number is called.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Field {
    /// Its name: a field of a run's record, or of one of its jobs; a parameter or quantity of a model.
    pub key: String,
    /// For people.
    pub title: String,
    /// Its unit; empty for a count or share.
    pub unit: &'static str,
}

impl Field {
    fn new(key: &str, title: impl Into<String>, unit: &'static str) -> Self {
        Field { key: key.into(), title: title.into(), unit }
    }
}

/// Which numbers results have.
#[derive(Clone, Copy)]
pub enum Fields {
    /// Those of runs and their jobs.
    Simulated,
    /// What a model gives, and what goes into it.
    Model(&'static Model),
}

impl Fields {
    /// The number of this name.
    pub fn named(self, key: &str) -> Option<Field> {
        match self {
            Fields::Simulated => Metric::named(key).map(|metric| metric.field),
            Fields::Model(model) => Self::of_model(model).find(|(known, _)| *known == key).map(|(_, title)| Field::new(key, title, "")),
        }
    }

    /// What [`Fields::named`] knows, in words.
    pub fn known(self) -> String {
        match self {
            Fields::Simulated => Metric::known(),
            Fields::Model(model) => format!("one of {}", Self::of_model(model).map(|(key, _)| key).collect::<Vec<_>>().join(", ")),
        }
    }

    fn of_model(model: &'static Model) -> impl Iterator<Item = (&'static str, &'static str)> {
        let quantities = model.quantities.iter().map(|quantity| (quantity.key, quantity.title));
        quantities.chain(model.parameters.iter().map(|parameter| (parameter.key, parameter.title)))
    }
}

/// A number of a run that tables, plots and claims can show.
#[derive(Clone, Debug)]
pub struct Metric {
    /// What it is called.
    pub field: Field,
    of: Of,
}

/// How a number of a job is read; `None` where it has none.
pub type OfJob = fn(&JobRecord) -> Option<f64>;

/// Where a number stands.
#[derive(Clone, Copy, Debug)]
enum Of {
    Run(fn(&RunRecord) -> Option<f64>),
    Job(usize, fn(&JobRecord) -> Option<f64>),
    /// What all nodes have counted.
    Counts(Tally),
    /// Job and iteration.
    Iteration(usize, usize),
    /// Job, and a quantity of its series.
    Together(usize, Quantity),
    /// The same, and how far it swings.
    Swing(usize, Quantity),
    /// The same, and when it is first above 0.
    First(usize, Quantity),
}

/// A number of each run or job.
struct Known<R> {
    key: &'static str,
    title: &'static str,
    unit: &'static str,
    value: fn(&R) -> Option<f64>,
}

impl Metric {
    /// The number of this name: a field of the run, `jobs.0.jct_us` for one of a job, `jobs.0.iterations_us.2` for an iteration's time.
    pub fn named(key: &str) -> Option<Metric> {
        if let Some(field) = RUN.iter().find(|field| field.key == key) {
            return Some(Metric { field: Field::new(key, field.title, field.unit), of: Of::Run(field.value) });
        }
        if let Some(name) = key.strip_prefix("counts.") {
            let tally = Tally::ALL.iter().find(|tally| tally.name() == name)?;
            return Some(Metric { field: Field::new(key, name.replace('_', " "), ""), of: Of::Counts(*tally) });
        }
        let (number, field) = key.strip_prefix("jobs.")?.split_once('.')?;
        let job = number.parse().ok()?;
        if let Some(iteration) = field.strip_prefix("iterations_us.") {
            let iteration = iteration.parse().ok()?;
            let title = format!("time of iteration {iteration} of job {job}");
            return Some(Metric { field: Field::new(key, title, "us"), of: Of::Iteration(job, iteration) });
        }
        if let Some(quantity) = field.strip_prefix("together.") {
            let quantity = Quantity::named(quantity)?;
            let title = format!("{} of job {job} while all run", quantity.title());
            return Some(Metric { field: Field::new(key, title, ""), of: Of::Together(job, quantity) });
        }
        if let Some(quantity) = field.strip_prefix("swing.") {
            let quantity = Quantity::named(quantity)?;
            let title = format!("how far {} of job {job} swings while all run, over its mean", quantity.name().replace('_', " "));
            return Some(Metric { field: Field::new(key, title, ""), of: Of::Swing(job, quantity) });
        }
        if let Some(quantity) = field.strip_prefix("first_us.") {
            let quantity = Quantity::named(quantity)?;
            let title = format!("when {} of job {job} is first above 0 once all jobs run", quantity.name().replace('_', " "));
            return Some(Metric { field: Field::new(key, title, "us"), of: Of::First(job, quantity) });
        }
        let field = JOB.iter().find(|known| known.key == field)?;
        let title = format!("{} of job {job}", field.title);
        Some(Metric { field: Field::new(key, title, field.unit), of: Of::Job(job, field.value) })
    }

    /// The number of every job that goes by this name, such as `slowdown`, and how it is read.
    pub fn of_job(key: &str) -> Option<(Field, OfJob)> {
        let known = JOB.iter().find(|known| known.key == key)?;
        Some((Field::new(key, known.title, known.unit), known.value))
    }

    /// What [`Metric::of_job`] knows, in words.
    pub fn known_of_jobs() -> String {
        JOB.iter().map(|field| field.key).collect::<Vec<_>>().join(", ")
    }

    /// What [`Metric::named`] knows, in words.
    pub fn known() -> String {
        let run: Vec<&str> = RUN.iter().map(|field| field.key).collect();
        let job: Vec<&str> = JOB.iter().map(|field| field.key).collect();
        let counts: Vec<&str> = Tally::ALL.iter().map(|tally| tally.name()).collect();
        format!(
            "one of {}, counts of {} such as counts.collisions, or of a job, such as jobs.0.jct_us: {}, iterations_us.0, together.slots, \
             swing.slots, first_us.collisions",
            run.join(", "),
            counts.join(", "),
            job.join(", ")
        )
    }

    /// Its value; `None` where the run has none.
    pub fn value(&self, run: &RunRecord) -> Option<f64> {
        match self.of {
            Of::Run(value) => value(run),
            Of::Counts(tally) => Some(run.counts.get(tally.name()).copied().unwrap_or(0) as f64),
            Of::Job(job, value) => run.jobs.get(job).and_then(value),
            Of::Together(job, quantity) => run.jobs.get(job)?.together.get(quantity.name()).copied(),
            Of::Swing(job, quantity) => run.jobs.get(job)?.swing.get(quantity.name()).copied(),
            Of::First(job, quantity) => run.jobs.get(job)?.first_us.get(quantity.name()).copied(),
            Of::Iteration(job, iteration) => run.jobs.get(job)?.iterations_us.get(iteration).copied(),
        }
    }
}

const JOB: &[Known<JobRecord>] = &[
    Known { key: "completion_us", title: "completion time", unit: "us", value: |job| job.completion_us },
    Known { key: "goodput_gbps", title: "goodput", unit: "Gb/s", value: |job| job.goodput_gbps },
    Known { key: "iteration_us", title: "time of an iteration", unit: "us", value: |job| job.iteration_us },
    Known { key: "communication_us", title: "communication of an iteration", unit: "us", value: |job| job.communication_us },
    Known { key: "jct_us", title: "completion time", unit: "us", value: |job| job.jct_us },
    Known { key: "alone_us", title: "completion time by itself", unit: "us", value: |job| job.alone_us },
    Known { key: "slowdown", title: "slowdown by the other jobs", unit: "", value: |job| job.slowdown },
    Known { key: "slots_mean", title: "slots in use", unit: "", value: |job| Some(job.slots_mean) },
    Known { key: "collided_share", title: "share of packets that found their place taken", unit: "", value: |job| job.collided_share },
    Known { key: "leader_packets_per_block", title: "packets a block at its leader", unit: "", value: |job| job.leader_packets_per_block },
];

const RUN: &[Known<RunRecord>] = &[
    Known { key: "completion_us", title: "completion time", unit: "us", value: |run| run.completion_us },
    Known { key: "goodput_gbps", title: "goodput", unit: "Gb/s", value: |run| run.goodput_gbps },
    Known { key: "together_gbps", title: "goodput of all jobs together while all run", unit: "Gb/s", value: together_gbps },
    Known { key: "iteration_us", title: "time of an iteration", unit: "us", value: |run| run.iteration_us },
    Known { key: "communication_us", title: "communication of an iteration", unit: "us", value: |run| run.communication_us },
    Known { key: "iterations_per_s", title: "iterations per second", unit: "1/s", value: |run| run.iteration_us.map(|time| 1e6 / time) },
    Known {
        key: "reductions_per_s",
        title: "iterations per second if computing took no time",
        unit: "1/s",
        value: |run| run.communication_us.map(|time| 1e6 / time),
    },
    Known { key: "jct_us", title: "job completion time", unit: "us", value: |run| run.jct_us },
    Known { key: "jct_us_p50", title: "job completion time, median", unit: "us", value: |run| run.many.jct_us_p50 },
    Known { key: "jct_us_p99", title: "job completion time, 99th percentile", unit: "us", value: |run| run.many.jct_us_p99 },
    Known { key: "jct_us_max", title: "completion time of the slowest job", unit: "us", value: |run| run.many.jct_us_max },
    Known { key: "slowdown_mean", title: "slowdown of jobs by each other, mean", unit: "", value: |run| run.many.slowdown_mean },
    Known { key: "slowdown_p99", title: "slowdown of jobs by each other, 99th percentile", unit: "", value: |run| run.many.slowdown_p99 },
    Known { key: "slowdown_max", title: "slowdown of the job that suffers most", unit: "", value: |run| run.many.slowdown_max },
    Known { key: "fairness", title: "Jain's index of the jobs' goodput", unit: "", value: |run| run.many.fairness },
    Known { key: "fairness_min", title: "lowest Jain's index of the jobs' goodput", unit: "", value: |run| run.many.fairness_min },
    Known {
        key: "unfair_us",
        title: "time until Jain's index of the jobs' goodput stays at 0.95",
        unit: "us",
        value: |run| run.many.unfair_us,
    },
    Known { key: "link_utilization_mean", title: "mean link utilisation", unit: "", value: |run| Some(run.link_utilization_mean) },
    Known { key: "switch_bytes_peak", title: "peak memory of a switch", unit: "B", value: |run| Some(run.switch_bytes_peak as f64) },
    Known {
        key: "simulated_bytes",
        title: "bytes of the vector that were simulated",
        unit: "B",
        value: |run| run.simulated_bytes.map(|bytes| bytes as f64),
    },
    Known { key: "steady_error", title: "how far off the time of the whole vector may be", unit: "", value: |run| run.steady_error },
    Known { key: "cores_busy", title: "time that the busiest switch's cores have a packet", unit: "", value: |run| run.cores_busy },
    Known { key: "cores_locked", title: "of that, waiting for each other", unit: "", value: |run| run.cores_locked },
    Known {
        key: "cluster_bytes_peak",
        title: "peak working memory of a cluster of cores",
        unit: "B",
        value: |run| run.cluster_bytes_peak.map(|bytes| bytes as f64),
    },
    Known { key: "cluster_waits", title: "contributions that waited for working memory", unit: "", value: |run| run.cluster_waits },
    Known { key: "core_wait_us", title: "time that a packet waits for a core", unit: "us", value: |run| run.core_wait_us },
    Known {
        key: "recirculation_busy",
        title: "time that the busiest switch's ports for further passes send",
        unit: "",
        value: |run| run.recirculation_busy,
    },
    Known { key: "switch_bytes_mean", title: "mean memory of the fullest switch", unit: "B", value: |run| Some(run.switch_bytes_mean) },
    Known { key: "leaf_bytes_mean", title: "mean memory of a leaf", unit: "B", value: |run| Some(run.leaf_bytes_mean) },
    Known { key: "leaf_bytes_peak", title: "peak memory of a leaf", unit: "B", value: |run| Some(run.leaf_bytes_peak as f64) },
    Known { key: "leaf_slot_us", title: "time that a leaf holds a slot", unit: "us", value: |run| run.leaf_slot_us },
    Known {
        key: "leaf_slots_per_packet",
        title: "slots of a leaf per packet of the vector",
        unit: "",
        value: |run| run.leaf_slots_per_packet,
    },
    Known { key: "leaf_bytes_by_model", title: "memory of a leaf by the paper's model", unit: "B", value: |run| run.leaf_bytes_by_model },
    Known {
        key: "completion_by_model_us",
        title: "completion time by the paper's model",
        unit: "us",
        value: |run| run.completion_by_model_us,
    },
    Known { key: "leaf_bytes_by_rate", title: "goodput times the time that a leaf holds a slot", unit: "B", value: bytes_by_rate },
    Known { key: "links_idle", title: "links used less than 1 %", unit: "", value: |run| Some(run.links_idle) },
    Known { key: "links_busy", title: "links used 80 % or more", unit: "", value: |run| Some(run.links_busy) },
    Known { key: "links_between", title: "links used 1 to 80 %", unit: "", value: |run| Some(run.links_between) },
    Known { key: "links_70_to_90", title: "links used 70 to 90 %", unit: "", value: |run| Some(run.links_70_to_90) },
    Known { key: "queue_bytes_peak", title: "longest queue", unit: "B", value: |run| Some(run.queue_bytes_peak as f64) },
    Known { key: "packets_dropped", title: "packets dropped", unit: "", value: |run| Some(run.packets_dropped as f64) },
    Known { key: "packets_retransmitted", title: "packets sent again", unit: "", value: |run| Some(run.packets_retransmitted as f64) },
    Known { key: "blocks_begun_anew", title: "blocks begun anew", unit: "", value: |run| Some(run.blocks_begun_anew as f64) },
    Known { key: "collided_share", title: "share of packets that found their place taken", unit: "", value: |run| run.collided_share },
    Known { key: "leader_packets_per_block", title: "packets a block at its leader", unit: "", value: |run| run.leader_packets_per_block },
    Known { key: "block_us_p50", title: "time of a block, median", unit: "us", value: |run| run.block_us_p50 },
    Known { key: "block_us_p99", title: "time of a block, 99th percentile", unit: "us", value: |run| run.block_us_p99 },
    Known { key: "block_us_max", title: "time of the slowest block", unit: "us", value: |run| run.block_us_max },
    Known { key: "operation_us_p50", title: "time of an operation, median", unit: "us", value: |run| run.operation_us_p50 },
    Known { key: "operation_us_p99", title: "time of an operation, 99th percentile", unit: "us", value: |run| run.operation_us_p99 },
    Known { key: "operation_us_max", title: "time of the slowest operation", unit: "us", value: |run| run.operation_us_max },
    Known { key: "packets_marked", title: "packets marked", unit: "", value: |run| Some(run.packets_marked as f64) },
    Known { key: "packets_trimmed", title: "packets cut", unit: "", value: |run| Some(run.packets_trimmed as f64) },
    Known { key: "packet_hops", title: "packet-hops", unit: "", value: |run| Some(run.packet_hops as f64) },
    Known { key: "link_bytes", title: "bytes on all links", unit: "B", value: |run| Some(run.link_bytes as f64) },
    Known { key: "background_gbps", title: "background goodput per host", unit: "Gb/s", value: |run| Some(run.background_gbps) },
    Known { key: "simulated_us", title: "simulated time", unit: "us", value: |run| Some(run.simulated_us) },
    Known { key: "wall_s", title: "wall time", unit: "s", value: |run| Some(run.wall_s) },
];

/// Added up over jobs; needs a series.
fn together_gbps(run: &RunRecord) -> Option<f64> {
    run.jobs.iter().map(|job| job.together.get(Quantity::Goodput.name()).copied()).sum()
}

/// Little's law: what a leaf should have in use where every piece of the vector takes one slot there. For one job.
fn bytes_by_rate(run: &RunRecord) -> Option<f64> {
    let bytes_per_us = run.goodput_gbps? / 8.0 * 1e3;
    (run.jobs.len() == 1).then_some(bytes_per_us * run.leaf_slot_us?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_jobs_are_found_by_their_path() {
        for key in [
            "goodput_gbps",
            "jobs.0.jct_us",
            "jobs.12.iteration_us",
            "jobs.0.iterations_us.3",
            "jobs.1.together.synchrony",
            "jobs.0.swing.slots",
            "jobs.1.first_us.marked",
        ] {
            assert_eq!(Metric::named(key).map(|metric| metric.field.key).as_deref(), Some(key));
        }
        assert_eq!(Metric::named("jobs.3.goodput_gbps").unwrap().field.title, "goodput of job 3");
        for key in [
            "goodput",
            "jobs.0",
            "jobs.x.jct_us",
            "jobs.0.events",
            "jobs.0.iterations_us.",
            "jobs.0.iterations_us",
            "jobs.0.together.speed",
        ] {
            assert!(Metric::named(key).is_none(), "{key}");
        }
    }
}
