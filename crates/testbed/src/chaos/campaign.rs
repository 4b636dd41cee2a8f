//! Scenarios of one seed after the other, what is wrong with them made small, and all of them in sum.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use comfy_table::Table;
use serde::Serialize;

use super::conduct::{self, Means};
use super::draw::draw;
use super::outcome::Outcome;
use super::scenario::Scenario;
use super::shrink::shrink;

/// What is not made on any machine, and why.
const NEVER_MADE: &[&str] = &[
    "clocks that jump: only the expiry of tokens and of certificates asks what time it is, and no process can be given a clock of its own",
    "no room in /dev/shm: ranks share memory by memfd, which has no folder whose size could be bounded",
    "corruption that UDP's own checksum finds: the kernel makes that checksum after the damage, and would drop such a packet as if it were lost",
];

/// What a campaign is to do.
#[derive(Clone, Debug)]
pub struct Campaign<'a> {
    /// Seed of the first scenario; the next ones have the next seeds.
    pub seed: u64,
    /// One scenario in place of drawn ones.
    pub scenario: Option<Scenario>,
    /// So many runs at most.
    pub runs: u64,
    /// No run begins later than this.
    pub time: Option<Duration>,
    /// What a rank may take beyond its timeout until it has an error.
    pub grace: Duration,
    /// So many runs at most to make a finding smaller; none keeps it as it is.
    pub shrink_runs: u32,
    /// How often a smaller scenario is tried before it counts as one that does not show it.
    pub trials: u32,
    /// The `fanin` program.
    pub program: &'a Path,
    /// Where logs are kept of runs with findings.
    pub folder: &'a Path,
    /// The user wants no more.
    pub interrupted: &'a AtomicBool,
}

/// Something that must not be.
#[derive(Clone, PartialEq, Debug, Serialize)]
pub struct Finding {
    /// The seed that shows it.
    pub seed: u64,
    /// What, in words.
    pub findings: Vec<String>,
    /// The smallest scenario that still showed it, as a file.
    pub scenario: String,
    /// How many runs making it smaller took, and how many of them showed it.
    pub shrink_runs: u32,
    /// See there.
    pub shown: u32,
    /// Where the logs of the first run are.
    pub logs: PathBuf,
}

/// Runs with one kind of fault.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize)]
pub struct Tally {
    /// Runs.
    pub runs: u64,
    /// Faults of the kind.
    pub faults: u64,
    /// Calls of ranks that were exact.
    pub exact_calls: u64,
    /// Ranks that ended with an error, by its kind.
    pub errors: BTreeMap<String, u64>,
    /// Runs with a finding.
    pub findings: u64,
}

/// All runs.
#[derive(Clone, PartialEq, Debug, Default, Serialize)]
pub struct Summary {
    /// By kind of fault; `all` are all runs.
    pub kinds: BTreeMap<String, Tally>,
    /// What must not be.
    pub findings: Vec<Finding>,
    /// Faults that were not made, and why.
    pub not_made: Vec<String>,
    /// How long it took, in s.
    pub wall_s: f64,
}

/// What happens meanwhile.
#[derive(Debug)]
pub enum Progress<'a> {
    /// A run has ended.
    Run {
        /// Its seed.
        seed: u64,
        /// Its outcome.
        outcome: &'a Outcome,
        /// All until now.
        summary: &'a Summary,
    },
    /// Something smaller was tried.
    Shrinking {
        /// How many faults, jobs and ranks it has.
        faults: usize,
        /// See there.
        jobs: usize,
        /// See there.
        ranks: usize,
        /// Whether it shows the finding.
        shows: bool,
    },
}

impl Campaign<'_> {
    /// Runs until all is done, the time is over or the user wants no more; what a run has found is kept in any case.
    ///
    /// # Errors
    /// Where this machine does not let it.
    pub fn run(&self, mut tell: impl FnMut(Progress<'_>)) -> Result<Summary> {
        let begun = Instant::now();
        let mut summary = Summary { not_made: NEVER_MADE.iter().map(ToString::to_string).collect(), ..Summary::default() };
        for number in 0..self.runs {
            if self.interrupted.load(Ordering::Relaxed) || self.time.is_some_and(|time| begun.elapsed() >= time) {
                break;
            }
            let seed = self.seed.wrapping_add(number);
            let scenario = self.scenario.clone().unwrap_or_else(|| draw(seed));
            let folder = self.folder.join(format!("run-{number}"));
            let outcome = match self.one(&scenario, &folder) {
                Err(_) if self.interrupted.load(Ordering::Relaxed) => break,
                outcome => outcome.with_context(|| format!("seed {seed}"))?,
            };
            summary.add(&scenario, &outcome);
            tell(Progress::Run { seed, outcome: &outcome, summary: &summary });
            if outcome.findings.is_empty() {
                let _ = fs::remove_dir_all(&folder);
            } else {
                summary.findings.push(self.make_smaller(seed, &scenario, outcome, folder, &mut tell)?);
            }
        }
        summary.wall_s = begun.elapsed().as_secs_f64();
        Ok(summary)
    }

    fn one(&self, scenario: &Scenario, folder: &Path) -> Result<Outcome> {
        fs::create_dir_all(folder).with_context(|| format!("{} cannot be made", folder.display()))?;
        conduct::run(scenario, Means { program: self.program, folder, grace: self.grace, interrupted: self.interrupted })
    }

    fn make_smaller(
        &self,
        seed: u64,
        scenario: &Scenario,
        outcome: Outcome,
        logs: PathBuf,
        tell: &mut impl FnMut(Progress<'_>),
    ) -> Result<Finding> {
        let classes: Vec<&str> = outcome.findings.iter().map(|finding| class(finding)).collect();
        let (mut runs, mut shown) = (0, 0);
        let smallest = shrink(scenario, |less| {
            for _ in 0..self.trials {
                if runs >= self.shrink_runs || self.interrupted.load(Ordering::Relaxed) {
                    return None;
                }
                runs += 1;
                let folder = self.folder.join("smaller");
                let _ = fs::remove_dir_all(&folder);
                let shows = self.one(less, &folder).ok()?.findings.iter().any(|finding| classes.contains(&class(finding)));
                let ranks = less.job.iter().map(|job| job.hosts.len()).sum();
                tell(Progress::Shrinking { faults: less.fault.len(), jobs: less.job.len(), ranks, shows });
                let _ = fs::remove_dir_all(&folder);
                if shows {
                    shown += 1;
                    return Some(true);
                }
            }
            Some(false)
        });
        let scenario = smallest.to_toml()?;
        fs::write(logs.join("scenario.txt"), &scenario).context("the scenario cannot be written")?;
        Ok(Finding { seed, findings: outcome.findings, scenario, shrink_runs: runs, shown, logs })
    }
}

/// What a finding is, without who and when.
fn class(finding: &str) -> &str {
    finding.split_once(':').map_or(finding, |(class, _)| class)
}

impl Summary {
    fn add(&mut self, scenario: &Scenario, outcome: &Outcome) {
        let mut labels: BTreeMap<String, u64> = BTreeMap::from([("all".to_owned(), outcome.faults.len() as u64)]);
        for fault in &outcome.faults {
            *labels.entry(fault.label()).or_default() += 1;
        }
        labels.extend(scenario.noise.all().into_iter().filter(|(_, share)| *share > 0.0).map(|(name, _)| (name.to_owned(), 0)));
        if scenario.logs_full {
            labels.insert("logs on a full disk".to_owned(), 0);
        }
        for (label, faults) in labels {
            let tally = self.kinds.entry(label).or_default();
            tally.runs += 1;
            tally.faults += faults;
            tally.exact_calls += outcome.exact_calls();
            tally.findings += u64::from(!outcome.findings.is_empty());
            for (kind, count) in outcome.errors() {
                *tally.errors.entry(kind.to_owned()).or_default() += count;
            }
        }
        for not_made in &outcome.not_made {
            if !self.not_made.contains(not_made) {
                self.not_made.push(not_made.clone());
            }
        }
    }

    /// The tally of all runs.
    pub fn all(&self) -> Tally {
        self.kinds.get("all").cloned().unwrap_or_default()
    }

    /// A table, and every finding, for people.
    pub fn text(&self) -> String {
        let mut table = Table::new();
        table.load_style(fanin_pictures::table::STYLE).set_content_arrangement(comfy_table::ContentArrangement::Disabled);
        table.set_header(["fault", "runs", "faults", "exact calls", "ranks with errors", "findings"]);
        for (label, tally) in self.kinds.iter().filter(|(label, _)| *label != "all").chain(self.kinds.get_key_value("all")) {
            let errors: Vec<String> = tally.errors.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
            let errors = if errors.is_empty() { "0".to_owned() } else { errors.join(", ") };
            table.add_row([
                label.clone(),
                tally.runs.to_string(),
                tally.faults.to_string(),
                tally.exact_calls.to_string(),
                errors,
                tally.findings.to_string(),
            ]);
        }
        let mut text = format!("{table}\n");
        for not_made in &self.not_made {
            text.push_str(&format!("not made: {not_made}\n"));
        }
        for finding in &self.findings {
            text.push_str(&format!("\nfinding of seed {} (`fanin testbed --chaos {} --runs 1`):\n", finding.seed, finding.seed));
            finding.findings.iter().for_each(|what| text.push_str(&format!("  {what}\n")));
            let Finding { shrink_runs, shown, logs, scenario, .. } = finding;
            text.push_str(&format!(
                "logs: {}; made smaller in {shrink_runs} runs, of which {shown} showed it:\n\n{scenario}",
                logs.display()
            ));
        }
        text
    }
}
