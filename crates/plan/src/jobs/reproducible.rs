//! Jobs that sum floats as integers, so that sums have the same bits whatever the order and the tree.
//!
//! A sum is what the communicator makes of it: the exponents of a chunk of elements, then their integers, then the next chunk. Each is an operation
//! of the simulated job. Its elements are cells ([`Cells`]), so what goes over the wire is exponents and integers in whole packets, and a byte in each
//! that says which. The plan's `message` and all results count floats.

use fanin_core::{Cells, CollectiveKind, OrderFree, ReproducibleBy};
use fanin_sim::metrics::OperationResult;
use fanin_sim::scenario::{CellPart, Contributions};
use fanin_sim::{JobResult, JobSchedule};
use fanin_systems::System;

use super::collective::kind_of;
use super::prepared::PreparedJob;
use crate::reading::{PlanError, Refuse};

/// Bytes of the integers of a chunk, as the communicator has it.
const CHUNK_BYTES: u64 = 2 << 20;

/// Lets a job's floats travel as cells, where its table says so.
///
/// # Errors
/// [`PlanError`] names the key: the job does not sum floats, or its system sums something else.
pub fn apply(refuse: &Refuse<'_>, job: &mut PreparedJob) -> Result<(), PlanError> {
    if job.settings.common.reproducible.is_none() {
        return Ok(());
    }
    let at = |expected: String| Err(refuse.at(&format!("jobs[{}].reproducible", job.entry), expected));
    let system = job.system;
    if system.fixed_point() {
        return at("no such key beside fixed_point, with which sums are those of integers".into());
    }
    // A message of NetReduce begins with a header that takes whole elements, and a cell is as long as a packet.
    let has_room = |system: &System| !matches!(system, System::NetReduce(_) | System::Machines(_));
    let sums_all = |system: &System| system.sparsity().is_none() && !system.fixed_point() && !system.goes_on_without_workers();
    let has_floats = |system: &System| sums_all(system) && has_room(system);
    if !has_floats(&system) {
        let known = System::names_of("or", has_floats);
        return at(format!(
            "no such key with {}, but with {known}: they sum what they are given, of all workers, in whole packets",
            system.name()
        ));
    }
    if kind_of(job) != CollectiveKind::Allreduce {
        return at("no such key with another collective than all-reduce".into());
    }
    let workers = job.hosts.len() as u32;
    let sum = match job.op.dtype.is_float().then(|| OrderFree::of(job.op, workers.max(1), ReproducibleBy::Element)) {
        Some(Ok(OrderFree::ByElement(sum))) => sum,
        _ => return at(format!("no such key with element = \"{}\": sums of integers are the same in any order", job.op.dtype)),
    };
    let payload = job.settings.common.payload.0;
    let cells = usize::try_from(payload).ok().and_then(|bytes| Cells::new(sum, bytes));
    job.cells = Some(cells.ok_or_else(|| {
        let least = Cells::bytes_min(&sum);
        refuse.at(&format!("jobs[{}].payload", job.entry), format!("at least {least} bytes: one that says what it is, and an integer"))
    })?);
    Ok(())
}

/// The operations of a job whose vectors have these lengths in elements, `most` at most, and what their elements are.
///
/// # Errors
/// [`PlanError`] where there are too many.
pub fn operations(refuse: &Refuse<'_>, job: &PreparedJob, vectors: Vec<u64>, most: u64) -> Result<(Vec<u64>, Contributions), PlanError> {
    let Some(cells) = job.cells else { return Ok((vectors, Contributions::Whole)) };
    let chunk = CHUNK_BYTES / cells.sum().integers().dtype.bytes() as u64;
    let all: u64 = vectors.iter().map(|elements| 2 * elements.div_ceil(chunk).max(1)).sum();
    if all > most {
        let (path, expected) = (format!("jobs[{}].reproducible", job.entry), format!("at most {most} operations in all"));
        return Err(refuse.say(&path, format!("{all} of exponents and integers"), expected));
    }
    let parts = CellPart::all(&vectors, chunk);
    let elements = parts.iter().map(|part| cells.count(part.kind, part.elements)).collect();
    Ok((elements, Contributions::OrderFree { dtype: job.op.dtype, cells, parts: parts.into() }))
}

/// Bytes of exponents and integers that an element of a job makes on the wire, beside what packets say of themselves.
pub fn bytes_per_element(cells: &Cells) -> u64 {
    (cells.sum().exponents().dtype.bytes() + cells.sum().integers().dtype.bytes()) as u64
}

/// Makes of the results of exponents and integers those of the sums that they are parts of, as the job's user has them.
pub fn collect(schedule: &JobSchedule, ran: &mut JobResult) {
    let Contributions::OrderFree { dtype, parts, .. } = &schedule.contributions else { return };
    let of_sums: Vec<&[CellPart]> = parts.chunk_by(|a, b| a.vector == b.vector).collect();
    for worker in &mut ran.workers {
        let mut operations = std::mem::take(&mut worker.operations).into_iter();
        for sum in &of_sums {
            let parts: Vec<OperationResult> = operations.by_ref().take(sum.len()).collect();
            let Some(first) = parts.first() else { break };
            let failure = parts.iter().find_map(|part| part.failure.clone());
            let last = parts.last().filter(|_| parts.len() == sum.len() || failure.is_some());
            let (submitted, ended) = (first.submitted, last.and_then(|last| last.ended));
            worker.operations.push(OperationResult { submitted, ended, failure, without: Vec::new() });
        }
    }
    // Every second part has the elements once more.
    let bytes = |sum: &&[CellPart]| sum.iter().step_by(2).map(|part| part.elements).sum::<u64>() * dtype.bytes() as u64;
    ran.message_bytes = of_sums.iter().map(bytes).collect();
}

/// Operations of an iteration, as the job's user has them; `None` for a job that does not train.
pub fn sums_of_iteration(schedule: &JobSchedule) -> Option<u32> {
    let operations = schedule.compute?.operations;
    let Contributions::OrderFree { parts, .. } = &schedule.contributions else { return Some(operations) };
    parts.get(operations.saturating_sub(1) as usize).map(|last| last.vector + 1)
}
