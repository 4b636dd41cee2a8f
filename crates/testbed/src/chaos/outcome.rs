//! What came out of a run, and whether that may be.

use std::collections::BTreeMap;

use serde::Serialize;

use super::scenario::{Fault, FaultKind, Meets, Party, Scenario, Target};

/// How one rank has ended.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[serde(tag = "how", rename_all = "snake_case")]
pub enum RankEnd {
    /// All its calls are done, and exact.
    Exact,
    /// With an error.
    Failed {
        /// In which call; `None` where it was joining.
        call: Option<u64>,
        /// The error's kind.
        kind: String,
        /// Its text.
        text: String,
        /// Who is to blame, by the error.
        suspect: Option<u32>,
    },
    /// A fault has killed it.
    Killed,
    /// With a wrong result.
    Wrong {
        /// In which call.
        call: u64,
        /// How many elements are wrong, and the first of them.
        text: String,
    },
    /// Neither a result nor an error came in time.
    Hung {
        /// For how long, in s, and what it did last.
        text: String,
    },
    /// Its process has ended by itself.
    Died {
        /// With these words.
        text: String,
    },
}

/// One rank's outcome.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct RankOutcome {
    /// How it has ended.
    pub end: RankEnd,
    /// Calls that are done, and exact.
    pub calls: u64,
    /// When all ranks had joined, in ms since the place was ready.
    pub joined_ms: Option<u64>,
    /// What the library told.
    pub notices: Vec<String>,
}

/// One job's outcome.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub struct JobOutcome {
    /// Its ranks.
    pub ranks: Vec<RankOutcome>,
    /// When its ranks started, in ms since the place was ready.
    pub started_ms: u64,
}

/// What came out of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Outcome {
    /// By number.
    pub jobs: Vec<JobOutcome>,
    /// Faults that were made before all jobs were over.
    pub faults: Vec<Fault>,
    /// What must not be; empty where all is well.
    pub findings: Vec<String>,
    /// Faults that this machine does not let be made, by name.
    pub not_made: Vec<String>,
    /// How long it took, in s.
    pub wall_s: f64,
}

impl Outcome {
    /// Calls that were exact, over all ranks.
    pub fn exact_calls(&self) -> u64 {
        self.jobs.iter().flat_map(|job| &job.ranks).map(|rank| rank.calls).sum()
    }

    /// Errors of ranks, by kind.
    pub fn errors(&self) -> BTreeMap<&str, u64> {
        let mut errors = BTreeMap::new();
        for rank in self.jobs.iter().flat_map(|job| &job.ranks) {
            if let RankEnd::Failed { kind, .. } = &rank.end {
                *errors.entry(kind.as_str()).or_default() += 1;
            }
        }
        errors
    }
}

/// What each job of a scenario must not have been, in words.
pub fn judge(scenario: &Scenario, jobs: &[JobOutcome]) -> Vec<String> {
    let mut findings = Vec::new();
    for (number, outcome) in jobs.iter().enumerate() {
        judge_job(scenario, number, outcome, &mut findings);
    }
    findings
}

fn judge_job(scenario: &Scenario, number: usize, outcome: &JobOutcome, findings: &mut Vec<String>) {
    let excuse = excuse(scenario, number, outcome);
    let only_victim = only_victim(scenario, number);
    // The first call that has failed at a rank.
    let failed_at = |rank: &RankOutcome| match &rank.end {
        RankEnd::Failed { call, .. } => Some(call.unwrap_or(0)),
        _ => None,
    };
    let first_failed = outcome.ranks.iter().filter_map(failed_at).min();
    for (rank, its) in outcome.ranks.iter().enumerate() {
        let who = format!("job{number}.rank{rank}");
        match &its.end {
            RankEnd::Wrong { call, text } => findings.push(format!("wrong: {who}, call {call}: {text}")),
            RankEnd::Hung { text } => findings.push(format!("hung: {who}: {text}")),
            RankEnd::Died { text } => findings.push(format!("died: {who} {text}")),
            // What is wrong with a call or a configuration is no fault's doing.
            RankEnd::Failed { kind, text, call, .. } if excuse.is_none() || ["configuration", "arguments"].contains(&kind.as_str()) => {
                let when = call.map_or("joining".to_owned(), |call| format!("call {call}"));
                findings.push(format!("error without a cause: {who}, {when}: {kind}: {text}"));
            }
            RankEnd::Failed { suspect, text, kind, .. } => {
                if let Some(victim) = only_victim.filter(|victim| *suspect != Some(*victim)) {
                    findings.push(format!("wrong suspect: {who} does not name rank {victim}, which was killed: {kind}: {text}"));
                }
            }
            RankEnd::Exact | RankEnd::Killed => {}
        }
        // A rank may be a call ahead of another one, and the others' last call may have been good.
        if let Some(failed) = first_failed.filter(|failed| its.calls > failed + 2) {
            findings.push(format!("went on: {who} has done {} calls, and another rank has failed in call {failed}", its.calls));
        }
    }
}

/// The rank that was killed, where that is all that was done to anybody.
fn only_victim(scenario: &Scenario, number: usize) -> Option<u32> {
    match scenario.fault.as_slice() {
        [Fault { kind: FaultKind::Kill, .. }] => match scenario.fault[0].target().ok()? {
            Target::One(Party::Rank { job, rank }) if job == number => Some(rank),
            _ => None,
        },
        _ => None,
    }
}

/// Why ranks of a job may get errors: what the documentation does not promise to be survived.
pub fn excuse(scenario: &Scenario, number: usize, outcome: &JobOutcome) -> Option<String> {
    let job = &scenario.job[number];
    let at_place = job.meets == Meets::Place;
    let joined = outcome.ranks.iter().map(|rank| rank.joined_ms).collect::<Option<Vec<_>>>().and_then(|all| all.into_iter().max());
    let mut paused = vec![0; job.hosts.len()];
    for fault in &scenario.fault {
        let span = fault.for_ms.unwrap_or(u64::MAX / 2);
        // A rank that is joining finds what was there then; what comes back is found a little later.
        let while_joining =
            at_place && joined.is_none_or(|joined| fault.at_ms <= joined) && outcome.started_ms <= fault.at_ms.saturating_add(span) + 2_000;
        let why = |text: &str| Some(format!("{} of {} {text}", fault.kind.name(), fault.target));
        match fault.target() {
            Ok(Target::One(Party::Rank { job: of, rank })) if of == number => match fault.kind {
                FaultKind::Pause => paused[rank as usize] += span,
                _ => return why("in the job"),
            },
            Ok(Target::One(Party::Rank { .. })) | Err(_) => {}
            Ok(Target::Link(_, Party::Rank { job: of, rank }, _)) => {
                if of == number {
                    paused[rank as usize] += span;
                    if while_joining {
                        return why("while it joins");
                    }
                }
            }
            Ok(_) if !at_place => {}
            Ok(_) if fault.kind == FaultKind::NoDescriptors => return why("at its place"),
            Ok(_) if job.fallback == "error" => return why("with fallback = error"),
            Ok(_) if while_joining => return why("while it joins"),
            Ok(_) => {}
        }
    }
    // What lasts for less than half of what ranks wait must cost nothing.
    paused.iter().any(|paused| paused * 2 >= job.timeout_ms).then(|| "a rank stood still for half of the timeout".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chaos::scenario::{Call, Job, Noise, Place};

    fn scenario(fault: Vec<Fault>) -> Scenario {
        let call = Call { collective: "barrier".into(), element: "f32".into(), operator: "sum".into(), elements: 1, root: 0 };
        let job = Job {
            system: "auto".into(),
            meets: Meets::Place,
            transport: "udp".into(),
            fallback: "ring".into(),
            timeout_ms: 10_000,
            hosts: vec![0, 1, 2],
            start_ms: 0,
            run_ms: 1,
            pause_ms: 0,
            call: vec![call],
        };
        Scenario { seed: 1, logs_full: false, place: Place::Switch, noise: Noise::default(), job: vec![job], fault }
    }

    fn fault(kind: FaultKind, target: &str, for_ms: Option<u64>) -> Fault {
        Fault { kind, target: target.into(), at_ms: 1_000, for_ms }
    }

    fn findings(fault: Vec<Fault>, ends: [RankEnd; 3], calls: [u64; 3]) -> Vec<String> {
        let rank = |(end, calls): (RankEnd, u64)| RankOutcome { end, calls, joined_ms: Some(200), notices: Vec::new() };
        let ranks = ends.into_iter().zip(calls).map(rank).collect();
        judge(&scenario(fault), &[JobOutcome { ranks, started_ms: 0 }])
    }

    fn failed(suspect: Option<u32>) -> RankEnd {
        RankEnd::Failed { call: Some(5), kind: "rank_lost".into(), text: "gone".into(), suspect }
    }

    #[test]
    fn errors_need_a_cause_and_name_who_was_killed() {
        let ends = || [failed(Some(2)), failed(Some(2)), RankEnd::Killed];
        let killed = || vec![fault(FaultKind::Kill, "job0.rank2", None)];
        assert_eq!(findings(killed(), ends(), [5, 5, 5]), [""; 0]);
        let wrong = findings(killed(), [failed(Some(1)), failed(Some(2)), RankEnd::Killed], [5, 5, 5]);
        assert!(wrong.len() == 1 && wrong[0].starts_with("wrong suspect: job0.rank0"), "{wrong:?}");
        for harmless in [fault(FaultKind::Pause, "job0.rank2", Some(300)), fault(FaultKind::Kill, "switch", Some(200))] {
            let found = findings(vec![harmless], [failed(None), failed(None), failed(None)], [5, 5, 5]);
            assert!(found.len() == 3 && found[0].starts_with("error without a cause: job0.rank0, call 5"), "{found:?}");
        }
        let long = fault(FaultKind::Pause, "job0.rank2", Some(5_000));
        assert_eq!(findings(vec![long], [failed(None), failed(None), failed(None)], [5, 5, 5]), [""; 0]);
    }

    #[test]
    fn wrong_results_silence_and_ranks_that_go_on_are_findings_whatever_was_done() {
        let killed = || vec![fault(FaultKind::Kill, "job0.rank2", None)];
        let bad = [
            (RankEnd::Wrong { call: 3, text: String::new() }, "wrong: job0.rank0"),
            (RankEnd::Hung { text: String::new() }, "hung: job0.rank0"),
            (RankEnd::Died { text: String::new() }, "died: job0.rank0"),
        ];
        for (end, words) in bad {
            let found = findings(killed(), [end, failed(Some(2)), RankEnd::Killed], [5, 5, 5]);
            assert!(found.len() == 1 && found[0].starts_with(words), "{found:?}");
        }
        let found = findings(killed(), [RankEnd::Exact, failed(Some(2)), RankEnd::Killed], [9, 5, 5]);
        assert_eq!(found, ["went on: job0.rank0 has done 9 calls, and another rank has failed in call 5"]);
    }
}
