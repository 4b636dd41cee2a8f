//! Of which plans a part of the vector says how long the whole takes: see [`run::steady`](crate::run::steady).

use fanin_core::Instant;

use super::Prepared;
use crate::reading::{PlanError, Refuse};
use crate::schema::Run;

/// Times that are further off than this are of no use.
const ERROR_MAX: f64 = 0.2;

/// Refuses `run.steady` where later parts of the vector need not go as the first ones.
///
/// # Errors
/// [`PlanError`] says what it expects of the plan.
pub(super) fn check(refuse: &Refuse<'_>, run: &Run, prepared: &Prepared) -> Result<(), PlanError> {
    let Some(error) = run.steady else { return Ok(()) };
    if error.0 <= 0.0 || error.0 > ERROR_MAX {
        return Err(refuse.at("run.steady", "a share above 0 and at most 20%, by which times may be off"));
    }
    if run.alone {
        return Err(refuse.at("run.steady", "a plan without alone: of its one job nothing is to be compared"));
    }
    obstacle(prepared).map_or(Ok(()), |expected| Err(refuse.at("run.steady", expected)))
}

/// Why the time of a whole vector cannot be told from its beginning; `None` where it can.
fn obstacle(prepared: &Prepared) -> Option<&'static str> {
    let (scenario, jobs) = (&prepared.scenario, &prepared.jobs);
    let ([job], [schedule], true) = (jobs.as_slice(), scenario.jobs.as_slice(), prepared.programs.is_empty()) else {
        return Some("a plan with one job and without a workload or across: when others come and go, nothing goes on as it was");
    };
    if schedule.elements.len() != 1 || schedule.compute.is_some() || schedule.elements[0] == 0 {
        return Some("a job of one operation with a vector, and without reproducible or phases of computing");
    }
    if schedule.sparsity.is_some() || job.cells.is_some() {
        return Some("a dense vector: how full later parts of a sparse one are is not known");
    }
    if !scenario.faults.timed.is_empty() || schedule.crash.is_some() {
        return Some("a plan whose faults last as long as the run: what fails at a time need not be in the part that is simulated");
    }
    if scenario.limits.iter().any(|limit| limit.from != Instant::ZERO || limit.until != Instant::FAR_FUTURE) {
        return Some("a plan whose limits last as long as the run");
    }
    if !scenario.flows.is_empty() || scenario.traffic.iter().any(|traffic| traffic.messages.is_some()) {
        return Some("a plan whose other traffic lasts as long as the run");
    }
    if prepared.series_interval.is_some() {
        return Some("a plan without series_interval, which shows a part of the run only");
    }
    None
}
