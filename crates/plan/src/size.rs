//! How large plans, runs and results may be: what would not fit a machine is refused before anything of it is made, with the key that makes
//! it so large and an estimate. Estimates are of the order of what is needed; they are not exact.

use fanin_core::NodeId;
use fanin_sim::topology::Topology;
use fanin_systems::JobSpec;

use super::errors::{PlanError, Refuse};
use super::placement::PreparedJob;
use super::schema::{PayloadName, Setup};
use super::sweep::Axis;
use super::tree::{Kind, Step, Tree};
use super::units::bytes_about;
use super::{Plan, Prepared};

/// Points of a plan at most.
pub const POINTS_MAX: u64 = 100_000;
/// Runs of a plan at most.
pub const RUNS_MAX: u64 = 1_000_000;
/// Memory of one run at most, as estimated.
pub const RUN_BYTES_MAX: u64 = 4 << 30;
/// What all points say, and what all runs give, at most.
const PLAN_BYTES_MAX: u64 = 2 << 30;
/// Workers of all jobs together at most.
pub const WORKERS_MAX: u64 = 1 << 22;
/// Parts of a path, and tables and lists in each other, at most.
pub const DEPTH_MAX: usize = 32;

/// The largest window, and the most slots of a switch, that any system takes.
const WINDOW_MAX: u32 = 1 << 20;
const SLOTS_MAX: u64 = 1 << 24;

/// About what a value of a plan, an entry of a table of ways, a cable, a worker, its record of an operation and a slot take.
const VALUE_BYTES: u64 = 160;
const WAY_BYTES: u64 = 8;
const CABLE_BYTES: u64 = 600;
const WORKER_BYTES: u64 = 1_024;
const OPERATION_BYTES: u64 = 96;
const SLOT_BYTES: u64 = 128;
/// A job's place at each node, and what a run says of itself, of a job, of a worker and of a link.
const PLACE_BYTES: u64 = 40;
const RECORD_BYTES: u64 = 2_048;
const JOB_RECORD_BYTES: u64 = 640;
const WORKER_RECORD_BYTES: u64 = 16;
const LINK_RECORD_BYTES: u64 = 160;

/// Values in a tree.
fn values(tree: &Tree) -> u64 {
    1 + match &tree.kind {
        Kind::List(items) => items.iter().map(values).sum::<u64>(),
        Kind::Table(entries) => entries.iter().map(|(_, value)| values(value)).sum(),
        _ => 0,
    }
}

/// Refuses axes that make too many points.
///
/// # Errors
/// [`PlanError`] names the longest.
pub fn check_points(file: &str, tree: &Tree, axes: &[Axis]) -> Result<(), PlanError> {
    let count = axes.iter().fold(1u64, |count, axis| count.saturating_mul(axis.choices.len() as u64));
    let bytes = count.saturating_mul(values(tree).saturating_mul(VALUE_BYTES) + RECORD_BYTES);
    if count <= POINTS_MAX && bytes <= PLAN_BYTES_MAX {
        return Ok(());
    }
    let Some(longest) = axes.iter().max_by_key(|axis| axis.choices.len()) else {
        let expected = format!("expected at most {}", bytes_about(PLAN_BYTES_MAX));
        return Err(PlanError::new(file, format!("the plan takes about {}: {expected}", bytes_about(bytes))));
    };
    let lengths: Vec<String> = axes.iter().map(|axis| axis.choices.len().to_string()).collect();
    let what = format!(
        "{} = {} values: expected at most {POINTS_MAX} points in all, and {} of them; there are {count} ({}), about {}",
        longest.path(),
        longest.choices.len(),
        bytes_about(PLAN_BYTES_MAX),
        lengths.join(" x "),
        bytes_about(bytes)
    );
    let error = PlanError::new(file, what);
    let first = longest.choices.first().and_then(|choice| choice.assignments.first());
    Err(match first {
        Some((_, value)) => error.at(value.origin.clone()),
        None => error,
    })
}

/// Counts what points take with the jobs of their files.
#[derive(Default)]
pub struct Expanded {
    bytes: u64,
    points: u64,
}

impl Expanded {
    /// Counts one of `all` points.
    ///
    /// # Errors
    /// [`PlanError`] where all take too much, those that are still to come being like this one.
    pub fn count(&mut self, file: &str, point: &super::Point, all: usize) -> Result<(), PlanError> {
        let one = values(&point.tree).saturating_mul(VALUE_BYTES);
        (self.bytes, self.points) = (self.bytes.saturating_add(one), self.points + 1);
        let bytes = self.bytes.saturating_add(one.saturating_mul((all as u64).saturating_sub(self.points)));
        if bytes <= PLAN_BYTES_MAX {
            return Ok(());
        }
        let (jobs, most) = (point.setup.jobs.len(), bytes_about(PLAN_BYTES_MAX));
        let what =
            format!("jobs = {all} points x {jobs} jobs, with those of files, take about {}: expected at most {most}", bytes_about(bytes));
        Err(PlanError::new(file, what))
    }
}

/// Refuses more runs than results can be kept of.
///
/// # Errors
/// [`PlanError`] names the repetitions of the point that has most.
pub fn check_runs(plan: &Plan) -> Result<(), PlanError> {
    let repetitions = |point: &super::Point| u64::from(point.setup.general.run.repetitions.0);
    let runs = plan.points.iter().map(repetitions).fold(0u64, u64::saturating_add);
    let Some(most) = plan.points.iter().max_by_key(|point| repetitions(point)).filter(|_| runs > RUNS_MAX) else { return Ok(()) };
    let refuse = Refuse { file: &plan.file, tree: &most.tree };
    let bytes = bytes_about(runs.saturating_mul(RECORD_BYTES + JOB_RECORD_BYTES));
    let points = plan.points.len();
    Err(refuse.at("run.repetitions", format!("at most {RUNS_MAX} runs in all: {runs} of {points} points give about {bytes} of results")))
}

/// Refuses points whose results together would be too large; `prepared` is each point's first run.
#[derive(Default)]
pub struct Results {
    bytes: u64,
}

impl Results {
    /// Counts the results of a point.
    ///
    /// # Errors
    /// [`PlanError`] where there are too many.
    pub fn count(&mut self, plan: &Plan, point: &super::Point, prepared: &Prepared) -> Result<(), PlanError> {
        let workers: u64 = prepared.jobs.iter().map(|job| job.hosts.len() as u64).sum();
        let iterations: u64 = prepared.scenario.jobs.iter().map(|job| job.elements.len() as u64).sum();
        let of_run = RECORD_BYTES + JOB_RECORD_BYTES * prepared.jobs.len() as u64 + WORKER_RECORD_BYTES * workers + 8 * iterations;
        let links = LINK_RECORD_BYTES * prepared.topology.links.len() as u64;
        let repetitions = point.setup.general.run.repetitions.0;
        self.bytes = self.bytes.saturating_add(of_run.saturating_mul(u64::from(repetitions))).saturating_add(links);
        if self.bytes <= PLAN_BYTES_MAX {
            return Ok(());
        }
        let refuse = Refuse { file: &plan.file, tree: &point.tree };
        let expected = format!(
            "less: {} points x repetitions x {workers} workers give more than {} of results",
            plan.points.len(),
            bytes_about(PLAN_BYTES_MAX)
        );
        Err(match refuse.has("run.repetitions") {
            true => refuse.at("run.repetitions", expected),
            false => refuse.say("run.repetitions", repetitions, expected),
        })
    }
}

/// What tables of ways and cables take.
pub fn network_bytes(hosts: u64, switches: u64, cables: u64) -> u64 {
    hosts.saturating_mul(switches).saturating_mul(WAY_BYTES).saturating_add(cables.saturating_mul(CABLE_BYTES))
}

/// Something that takes memory, and the key that says how much.
struct Part {
    path: String,
    bytes: u64,
    what: String,
}

/// Refuses jobs that would take too much memory, before they are made.
///
/// # Errors
/// [`PlanError`] names the key to which most of it is due.
pub fn check_jobs(refuse: &Refuse<'_>, setup: &Setup, topology: &Topology, placed: &[PreparedJob]) -> Result<(), PlanError> {
    let nodes = u64::from(topology.map.nodes());
    let (mut all, mut largest): (u64, Option<Part>) = (0, None);
    let mut add = |part: Part| {
        all = all.saturating_add(part.bytes);
        if largest.as_ref().is_none_or(|known| known.bytes < part.bytes) {
            largest = Some(part);
        }
    };
    let places = (placed.len() as u64).saturating_mul(nodes).saturating_mul(PLACE_BYTES);
    let copies = setup.jobs.iter().enumerate().max_by_key(|(_, job)| job.common.copies.0).map_or(0, |(entry, _)| entry);
    let what = format!("{} jobs x {nodes} nodes", placed.len());
    add(Part { path: format!("jobs[{copies}].copies"), bytes: places, what });
    for job in placed {
        let has_elements = setup.general.run.payload == PayloadName::Elements || job.system.density().is_some();
        parts(job, has_elements, topology).into_iter().for_each(&mut add);
    }
    let Some(largest) = largest.filter(|_| all > RUN_BYTES_MAX) else { return Ok(()) };
    let expected = format!(
        "less: {} take about {}, all jobs of a run {}, and at most {} are taken",
        largest.what,
        bytes_about(largest.bytes),
        bytes_about(all),
        bytes_about(RUN_BYTES_MAX)
    );
    Err(match refuse.has(&largest.path) {
        true => refuse.at(&largest.path, expected),
        false => refuse.say(&largest.path, "its default", expected),
    })
}

/// What one job takes.
fn parts(job: &PreparedJob, has_elements: bool, topology: &Topology) -> Vec<Part> {
    let common = &job.settings.common;
    let path = |key: &str| format!("jobs[{}].{key}", job.entry);
    let element_bytes = job.op.dtype.bytes() as u64;
    let (workers, payload) = (job.hosts.len() as u64, common.payload.0.max(1));
    let (message, operations) = (common.message_bytes(element_bytes), common.operation_count(element_bytes));
    let blocks = message.div_ceil(payload).saturating_mul(u64::from(common.iteration_count())).saturating_mul(common.operations.0.into());
    // What is beyond all bounds by itself is refused for that.
    let spec = JobSpec { window: job.settings.common.window.0.min(WINDOW_MAX), ..job.spec(()) };
    let window = u64::from(spec.window).min(blocks.max(1)).next_power_of_two();
    let map = &topology.map;
    let kept = if has_elements { spec.slot_bytes(map, NodeId(map.hosts())) } else { 0 };
    let switches = u64::from(map.nodes() - map.hosts());
    // A tree passes a few switches for each of its workers; other jobs have something at all of them.
    let trees = job.system.trees().map_or(switches, u64::from);
    let passed = switches.min(workers.saturating_mul(3).saturating_mul(trees));
    let slots = spec.switch_slots(u64::MAX).min(SLOTS_MAX).saturating_mul(passed);
    let of_window = workers.saturating_mul(window).saturating_mul(SLOT_BYTES);
    let of_slots = slots.saturating_mul(SLOT_BYTES + kept);
    let key = common.operations_key();
    let mut parts = vec![
        Part { path: path("workers"), bytes: workers * WORKER_BYTES, what: format!("{workers} workers") },
        Part {
            path: path(key),
            bytes: operations.saturating_mul(workers.saturating_mul(OPERATION_BYTES) + 8),
            what: format!("{operations} operations x {workers} workers"),
        },
        Part { path: path("window"), bytes: of_window, what: format!("{workers} workers x {window} packets under way") },
        Part { path: path(spec.slots_key()), bytes: of_slots, what: format!("{slots} slots at {passed} switches") },
    ];
    if has_elements {
        // Of sparse vectors only the sum is kept.
        let (bytes, what) = match job.system.density() {
            Some(density) => {
                let share = (density * workers as f64).min(1.0);
                ((message as f64 * share * 4.0) as u64, format!("the sum of sparse vectors of {}", bytes_about(message)))
            }
            None => {
                let bytes = message.saturating_mul(2).saturating_mul(workers);
                (bytes, format!("real elements of {workers} workers, in and out, of {} each,", bytes_about(message)))
            }
        };
        let key = if common.message.is_some() { "message" } else { "model" };
        parts.push(Part { path: path(key), bytes, what });
    }
    parts
}

/// Refuses what is too deep to be walked through.
///
/// # Errors
/// What is too deep.
pub fn check_depth(path: &[Step]) -> Result<(), String> {
    match path.len() > DEPTH_MAX {
        true => Err(format!("{} keys in each other: expected at most {DEPTH_MAX}", path.len())),
        false => Ok(()),
    }
}
