//! What the jobs of a run take: too much is refused before it is made.

use std::collections::BTreeMap;

use fanin_core::NodeId;
use fanin_sim::topology::Topology;
use fanin_systems::JobSpec;

use super::collective::{kind_of, vectors_in_all};
use super::prepared::PreparedJob;
use super::reproducible;
use crate::reading::size::RUN_BYTES_MAX;
use crate::reading::units::bytes_about;
use crate::reading::{PlanError, Refuse};
use crate::schema::{PayloadName, Setup};

/// The largest window, and the most slots of a switch, that any system takes.
const WINDOW_MAX: u32 = 1 << 20;
const SLOTS_MAX: u64 = 1 << 24;

/// About what a worker, its record of an operation and a slot take.
const WORKER_BYTES: u64 = 1_024;
const OPERATION_BYTES: u64 = 96;
const SLOT_BYTES: u64 = 128;
/// A job's place at each node.
const PLACE_BYTES: u64 = 40;

/// Something that takes memory, and the key that says how much.
struct Part {
    path: String,
    bytes: u64,
    what: String,
    /// Of memory that all jobs of a kind have together: the kind's key.
    shared: Option<&'static str>,
}

/// Refuses jobs that would take too much memory, before they are made.
///
/// # Errors
/// [`PlanError`] names the key to which most of it is due.
pub fn check_jobs(refuse: &Refuse<'_>, setup: &Setup, topology: &Topology, placed: &[PreparedJob]) -> Result<(), PlanError> {
    let nodes = u64::from(topology.map.nodes());
    let (mut all, mut largest): (u64, Option<Part>) = (0, None);
    // What jobs share is there once, however many they are: as much as the one needs that is at most switches.
    let mut shared: BTreeMap<&'static str, u64> = BTreeMap::new();
    let mut add = |part: Part| {
        let mut unshared = 0;
        let known = part.shared.map_or(&mut unshared, |key| shared.entry(key).or_default());
        let more = part.bytes.saturating_sub(*known);
        *known += more;
        all = all.saturating_add(more);
        if largest.as_ref().is_none_or(|known| known.bytes < part.bytes) {
            largest = Some(part);
        }
    };
    let places = (placed.len() as u64).saturating_mul(nodes).saturating_mul(PLACE_BYTES);
    let copies = setup.jobs.iter().enumerate().max_by_key(|(_, job)| job.common.copies.0).map_or(0, |(entry, _)| entry);
    let what = format!("{} jobs x {nodes} nodes", placed.len());
    add(Part { path: format!("jobs[{copies}].copies"), bytes: places, what, shared: None });
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
    let on_wire = job.cells.map_or(message, |cells| (message / element_bytes).saturating_mul(reproducible::bytes_per_element(&cells)));
    let blocks = on_wire.div_ceil(payload).saturating_mul(u64::from(common.iteration_count())).saturating_mul(common.operations.0.into());
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
    let parts_each = if job.cells.is_some() { 2 } else { 1 };
    let of_operations = operations.saturating_mul(parts_each).saturating_mul(workers.saturating_mul(OPERATION_BYTES) + 8);
    let part = |key: &str, bytes: u64, what: String| Part { path: path(key), bytes, what, shared: None };
    let mut parts = vec![
        part("workers", workers * WORKER_BYTES, format!("{workers} workers")),
        part(key, of_operations, format!("{operations} operations x {workers} workers")),
        part("window", of_window, format!("{workers} workers x {window} packets under way")),
        Part {
            shared: spec.shares_slots().then(|| spec.slots_key()),
            ..part(spec.slots_key(), of_slots, format!("{slots} slots at {passed} switches"))
        },
    ];
    let lists = spec.list_bytes(message / element_bytes.max(1));
    if lists > 0 {
        let key = if common.message.is_some() { "message" } else { "model" };
        parts.push(part(key, lists, format!("lists of {workers} workers, of vectors of {},", bytes_about(message))));
    }
    if has_elements {
        // Of sparse vectors only the sum is kept.
        let (bytes, what) = match job.system.density() {
            Some(density) => {
                let share = (density * workers as f64).min(1.0);
                ((message as f64 * share * 4.0) as u64, format!("the sum of sparse vectors of {}", bytes_about(message)))
            }
            None => {
                let in_all = vectors_in_all(kind_of(job));
                let bytes = message.saturating_mul(in_all).saturating_mul(2).saturating_mul(workers);
                (bytes, format!("real elements of {workers} workers, in and out, of {} each,", bytes_about(message)))
            }
        };
        let key = if common.message.is_some() { "message" } else { "model" };
        parts.push(part(key, bytes, what));
    }
    parts
}
