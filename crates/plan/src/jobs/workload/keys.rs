//! Which keys of a job go with a workload, and which do not.

use fanin_core::Duration;

use crate::reading::{PlanError, Refuse};
use crate::schema::Job;

/// Keys of a job that does without a workload.
const NEITHER: &[&str] =
    &["message", "model", "iterations", "operations", "tensor", "compute", "element", "reproducible", "indices", "collective", "root_rank"];
/// Keys of a job that does a workload only.
const ONLY: &[&str] = &["groups", "local_rate", "local_latency"];

/// Whether the keys of a job fit its having a workload, or none.
///
/// # Errors
/// [`PlanError`] names the key.
pub fn check_keys(refuse: &Refuse<'_>, entry: usize, job: &Job) -> Result<(), PlanError> {
    let path = |key: &str| format!("jobs[{entry}].{key}");
    if job.across.is_some() {
        return Ok(());
    }
    if refuse.has(&path("chunks")) {
        return Err(refuse.at(&path("chunks"), "no such key without across"));
    }
    let Some(source) = &job.workload else {
        return match ONLY.iter().find(|key| refuse.has(&path(key))) {
            Some(key) => Err(refuse.at(&path(key), "no such key without workload")),
            None => Ok(()),
        };
    };
    if let Some(key) = NEITHER.iter().find(|key| refuse.has(&path(key))) {
        return Err(refuse.at(&path("workload"), format!("no {key} beside it: a workload says what is computed and communicated")));
    }
    if job.system.density().is_some() {
        return Err(refuse.at(&path("system"), "a system whose vectors are dense beside workload"));
    }
    let systems = job.groups.iter().map(|(_, system)| system).chain([&job.system]);
    if refuse.has(&path("servers")) && systems.map(|system| system.servers()).sum::<u32>() == 0 {
        return Err(refuse.at(&path("servers"), "no such key without a system that has servers"));
    }
    for (name, system) in &job.groups {
        let key = path(&format!("groups.{name}"));
        if source.workload.group(name).is_none() {
            let known: Vec<String> = source.workload.groups.iter().map(|group| group.name.to_string()).collect();
            let known = if known.is_empty() { "no groups: the workload has none".into() } else { known.join(", ") };
            return Err(refuse.say(&key, system.name(), format!("a group of the workload: {known}")));
        }
        if system.density().is_some() {
            return Err(refuse.say(&key, system.name(), "a system whose vectors are dense"));
        }
    }
    if job.common.local_rate.0 == 0 {
        return Err(refuse.at(&path("local_rate"), "a rate above 0"));
    }
    if job.common.patience.0 == Duration::ZERO {
        return Err(refuse.at(&path("patience"), "a time above 0"));
    }
    Ok(())
}
