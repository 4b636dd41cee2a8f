//! Reports as JSON: what other processes and machines have found becomes one report.

use std::collections::BTreeMap;

use fanin_core::{CollectiveKind, DropReason};
use fanin_systems::System;
use serde::{Deserialize, Serialize};

use crate::campaign::{Finding, Report};
use crate::generate::generate_for;

/// A report in JSON. Its runs are not in it: they follow from their seeds.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Written {
    runs: u64,
    jobs: BTreeMap<String, u64>,
    pods: BTreeMap<String, u64>,
    pods_complete: u64,
    operations: BTreeMap<String, u64>,
    jobs_complete: u64,
    jobs_failed: u64,
    runs_must_complete: u64,
    runs_with_deaths: u64,
    pieces_checked: u64,
    packet_hops: u64,
    retransmitted: u64,
    marked: u64,
    drops: BTreeMap<String, u64>,
    findings: Vec<WrittenFinding>,
}

/// A finding in JSON.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenFinding {
    seed: u64,
    violations: Vec<String>,
    /// The run in words.
    run: String,
}

fn owned(table: &BTreeMap<&'static str, u64>) -> BTreeMap<String, u64> {
    table.iter().map(|(name, count)| (name.to_string(), *count)).collect()
}

/// The program's own names in place of those that were read.
fn named(table: BTreeMap<String, u64>, known: &[&'static str]) -> Result<BTreeMap<&'static str, u64>, String> {
    let own = |(name, count): (String, u64)| match known.iter().find(|own| **own == name) {
        Some(own) => Ok((*own, count)),
        None => Err(format!("{name:?}: expected one of {}", known.join(", "))),
    };
    table.into_iter().map(own).collect()
}

impl Report {
    /// As a JSON object.
    pub fn to_json(&self) -> String {
        let finding = |finding: &Finding| {
            let (seed, violations, run) = (finding.seed, finding.violations.clone(), finding.recipe.to_string());
            WrittenFinding { seed, violations, run }
        };
        let written = Written {
            runs: self.runs,
            jobs: owned(&self.jobs),
            pods: self.pods.clone(),
            pods_complete: self.pods_complete,
            operations: owned(&self.operations),
            jobs_complete: self.jobs_complete,
            jobs_failed: self.jobs_failed,
            runs_must_complete: self.runs_must_complete,
            runs_with_deaths: self.runs_with_deaths,
            pieces_checked: self.pieces_checked,
            packet_hops: self.packet_hops,
            retransmitted: self.retransmitted,
            marked: self.marked,
            drops: owned(&self.drops),
            findings: self.findings.iter().map(finding).collect(),
        };
        serde_json::to_string(&written).expect("plain data")
    }

    /// From such an object; `only` is the system of its jobs, if all were of one.
    ///
    /// # Errors
    /// In words, where it is no report of this version.
    pub fn from_json(json: &[u8], only: Option<&'static str>) -> Result<Report, String> {
        let written: Written = serde_json::from_slice(json).map_err(|error| format!("a report in JSON: {error}"))?;
        let kinds: Vec<&'static str> = CollectiveKind::ONE_OF_EACH.iter().map(|kind| kind.name()).collect();
        let reasons: Vec<&'static str> = DropReason::ALL.iter().map(|reason| reason.name()).collect();
        let finding = |WrittenFinding { seed, violations, .. }: WrittenFinding| {
            let recipe = generate_for(seed, only);
            Finding { seed, violations, recipe, only }
        };
        Ok(Report {
            runs: written.runs,
            jobs: named(written.jobs, &System::names())?,
            pods: written.pods,
            pods_complete: written.pods_complete,
            operations: named(written.operations, &kinds)?,
            jobs_complete: written.jobs_complete,
            jobs_failed: written.jobs_failed,
            runs_must_complete: written.runs_must_complete,
            runs_with_deaths: written.runs_with_deaths,
            pieces_checked: written.pieces_checked,
            packet_hops: written.packet_hops,
            retransmitted: written.retransmitted,
            marked: written.marked,
            drops: named(written.drops, &reasons)?,
            findings: written.findings.into_iter().map(finding).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::campaign::{Checks, campaign};

    #[test]
    fn parts_of_a_campaign_become_the_whole() {
        let checks = Checks { twice: false, elements: false, threads: 1, only: None };
        let whole = campaign(40, 24, checks);
        let mut all = Report::default();
        for first in (40..64).step_by(8) {
            let mut part = campaign(first, 8, checks);
            if first == 48 {
                part.findings.push(Finding { seed: 49, violations: vec!["made up".into()], recipe: generate_for(49, None), only: None });
            }
            all.merge(Report::from_json(part.to_json().as_bytes(), None).unwrap());
        }
        assert_eq!(all.findings.len(), whole.findings.len() + 1);
        assert_eq!(all.findings[0].recipe, generate_for(49, None));
        all.findings.remove(0);
        assert_eq!(all, whole);
    }

    #[test]
    fn what_is_no_report_is_refused() {
        let json = campaign(40, 1, Checks { threads: 1, ..Checks::default() }).to_json();
        let words = |json: &str| Report::from_json(json.as_bytes(), None).unwrap_err();
        assert!(words(&json.replacen("\"runs\":1", "\"runs\":-1", 1)).contains("invalid value"));
        assert!(words(&json[..json.len() - 1]).contains("EOF"));
        let (before, after) = json.split_once("\"operations\":{").unwrap();
        let words = words(&format!("{before}\"operations\":{{\"sunk\":1{}{after}", if after.starts_with('}') { "" } else { "," }));
        assert!(words.starts_with("\"sunk\": expected one of allreduce"), "{words}");
    }
}
