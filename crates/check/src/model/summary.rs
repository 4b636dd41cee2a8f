//! What a model looks at, in words and numbers, for the table of all models (`docs/models.md`).

use serde::Serialize;

use super::driver::Modelled;
use super::{Losing, NetworkModel};

/// What a model looks at.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct Summary {
    /// The system of each job.
    pub systems: Vec<&'static str>,
    /// Workers of all jobs.
    pub workers: usize,
    /// Hosts of the network.
    pub hosts: usize,
    /// Switches of the network.
    pub switches: usize,
    /// Elements of each operation, by job.
    pub elements: Vec<Vec<u64>>,
    /// What may go wrong on a path, and what happens at any time.
    pub may_happen: Vec<String>,
}

impl<P: Modelled + ?Sized> NetworkModel<P> {
    /// What it looks at.
    pub fn summary(&self) -> Summary {
        Summary {
            systems: self.layout.jobs.iter().map(|job| job.system).collect(),
            workers: self.layout.workers(),
            hosts: self.layout.map.hosts() as usize,
            switches: self.layout.map.switches().count(),
            elements: self.layout.jobs.iter().map(|job| job.elements.clone()).collect(),
            may_happen: self.may_happen(),
        }
    }

    fn may_happen(&self) -> Vec<String> {
        let counted = |count: u8, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            _ => Some(format!("{count} {many}")),
        };
        let said = |given: bool, what: &str| given.then(|| what.to_string());
        let early = if self.timeouts_at_any_time { 0 } else { self.limits.early_timeouts };
        let losing = self.losing.map(|losing| match losing {
            Losing::Dies => "a worker dies",
            Losing::DiesUnnoticed => "a worker dies, found by silence",
            Losing::IsTakenForDead => "a worker is taken for dead",
        });
        let all = [
            counted(self.limits.losses, "loss", "losses"),
            counted(self.limits.duplicates, "repeat", "repeats"),
            said(!self.anti_replay && self.limits.duplicates > 0, "repeats are seen"),
            counted(early, "early timeout", "early timeouts"),
            said(self.timeouts_at_any_time, "timeouts at any time"),
            said(self.late_worker, "a late worker"),
            said(self.may_crash.is_some(), "a job crashes"),
            losing.map(String::from),
            said(self.jobs_end, "jobs end at switches"),
            said(self.layout.clock.is_some(), "timers in order"),
        ];
        all.into_iter().flatten().collect()
    }
}
