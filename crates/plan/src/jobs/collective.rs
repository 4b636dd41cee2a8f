//! Which collective a job without a workload does, who does it, and how long its vectors are.
//!
//! The job's system does what it offers. All else its hosts do by messages ([`exchange`](fanin_systems::ExchangeParameters)), as for the groups
//! of workloads; results say which.

use fanin_core::{CollectiveKind, Rank};
use fanin_systems::pods::has_own;
use fanin_systems::{System, check_collective};
use fanin_workload::CollectiveKind as Word;

use super::prepared::PreparedJob;
use crate::reading::{PlanError, Refuse};
use crate::schema::{Job, JobKeys};

impl Job {
    /// The system that does the job's collective: its own, or messages between its hosts.
    pub fn runs(&self) -> System {
        let kind = self.common.collective.map_or(CollectiveKind::Allreduce, |word| asked_by(word, 0, 1));
        if has_own(&self.system, kind) { self.system } else { System::exchange() }
    }
}

/// What the workers of a job are asked for by a word of plans and workloads.
pub fn asked_by(word: Word, root: u32, workers: u32) -> CollectiveKind {
    match word {
        Word::AllReduce => CollectiveKind::Allreduce,
        Word::ReduceScatter => CollectiveKind::ReduceScatter,
        Word::AllGather => CollectiveKind::AllGather,
        Word::AllToAll => CollectiveKind::AllToAll { workers },
        Word::Broadcast => CollectiveKind::Broadcast { root: Rank(root) },
        Word::Reduce => CollectiveKind::Reduce { root: Rank(root) },
        Word::Barrier => CollectiveKind::Barrier,
    }
}

/// What a job's workers are asked for.
pub fn kind_of(job: &PreparedJob) -> CollectiveKind {
    let common = &job.settings.common;
    asked_by(common.collective.unwrap_or_default(), common.root_rank.unwrap_or(0), job.hosts.len() as u32)
}

/// Vectors that all workers bring together, of which the length in plans is one: that of each worker in an all-to-all.
pub fn vectors_in_all(kind: CollectiveKind) -> u64 {
    if let CollectiveKind::AllToAll { workers } = kind { u64::from(workers) } else { 1 }
}

/// Elements of an operation, of all shares together, where a vector has `elements`: shares are whole elements, so what does not divide is rounded
/// up.
pub fn elements_in_all(kind: CollectiveKind, workers: u32, elements: u64) -> u64 {
    let shares = u64::from(kind.shares(workers)).max(1);
    elements.saturating_mul(vectors_in_all(kind)).div_ceil(shares).saturating_mul(shares)
}

/// Whether the keys of a job fit its collective.
///
/// # Errors
/// [`PlanError`] names the key.
pub fn check(refuse: &Refuse<'_>, entry: usize, common: &JobKeys) -> Result<(), PlanError> {
    let path = |key: &str| format!("jobs[{entry}].{key}");
    let name = common.collective.unwrap_or_default();
    if common.root_rank.is_some() && !matches!(name, Word::Broadcast | Word::Reduce) {
        return Err(refuse.at(&path("root_rank"), "no such key without collective = \"broadcast\" or \"reduce\""));
    }
    if name == Word::Barrier
        && let Some(key) = ["message", "model", "scale", "tensor"].iter().find(|key| refuse.has(&path(key)))
    {
        return Err(refuse.at(&path(key), "no such key with collective = \"barrier\": workers only meet in it, and have no vector"));
    }
    Ok(())
}

/// Lets the job's hosts do what its system does not offer.
///
/// # Errors
/// [`PlanError`] names the key: sums of sparse vectors are allreduces only.
pub fn apply(refuse: &Refuse<'_>, job: &mut PreparedJob) -> Result<(), PlanError> {
    if job.settings.common.collective.is_none() || job.settings.workload.is_some() {
        return Ok(());
    }
    let (kind, path) = (kind_of(job), format!("jobs[{}].collective", job.entry));
    if kind != CollectiveKind::Allreduce && job.system.density().is_some() {
        return Err(refuse.at(&path, format!("\"all-reduce\", the one that {} has for sparse vectors", job.system.name())));
    }
    let runs = job.settings.runs();
    if runs != job.settings.system {
        // Hosts of servers stay taken, so that workers are where they are with other collectives.
        (job.system, job.servers) = (runs, Vec::new());
    }
    Ok(())
}

/// Whether the system takes an operation of the job with so many elements.
///
/// # Errors
/// [`PlanError`] names the key.
pub fn check_operation(refuse: &Refuse<'_>, job: &PreparedJob, elements: u64) -> Result<(), PlanError> {
    let (kind, workers, element_bytes) = (kind_of(job), job.hosts.len() as u32, job.op.dtype.bytes() as u64);
    let sizes = (elements.saturating_mul(element_bytes), element_bytes, job.settings.common.payload.0);
    check_collective(&job.system, kind, workers, sizes).map_err(|error| {
        let field = if error.field == "root" { "root_rank" } else { error.field.as_str() };
        let path = format!("jobs[{}].{field}", job.entry);
        if refuse.has(&path) { refuse.at(&path, error.expected) } else { refuse.say(&path, error.value, error.expected) }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_whole_elements() {
        let all = |word: Word, workers, elements| elements_in_all(asked_by(word, 0, workers), workers, elements);
        assert_eq!(all(Word::AllReduce, 3, 10), 10);
        assert_eq!(all(Word::Broadcast, 3, 10), 10);
        assert_eq!(all(Word::ReduceScatter, 3, 10), 12);
        assert_eq!(all(Word::AllGather, 3, 12), 12);
        // Three vectors of 10 elements, each in shares of 4 for three workers.
        assert_eq!(all(Word::AllToAll, 3, 10), 36);
        assert_eq!(all(Word::AllToAll, 1, 10), 10);
    }
}
