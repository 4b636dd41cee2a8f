//! Many runs, each from a seed of its own.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use fanin_core::{Census, DropReason};
use fanin_sim::RunResult;

use crate::generate::generate_for;
use crate::invariants::violations;
use crate::recipe::{Demand, Recipe};
use crate::run::{run, run_in_parts};

/// A run in which something is not as it must be.
#[derive(Clone, PartialEq, Debug)]
pub struct Finding {
    /// What it was generated from.
    pub seed: u64,
    /// What is wrong.
    pub violations: Vec<String>,
    /// The run.
    pub recipe: Recipe,
    /// The system that all jobs were to be of, if any.
    pub only: Option<&'static str>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for violation in self.violations.iter().take(8) {
            writeln!(f, "seed {}: {violation}", self.seed)?;
        }
        if self.violations.len() > 8 {
            writeln!(f, "seed {}: and {} more", self.seed, self.violations.len() - 8)?;
        }
        write!(f, "{}", self.recipe)?;
        writeln!(f, "replay: fanin check {} --first {} --seeds 1 --verbose", self.only.unwrap_or("all"), self.seed)
    }
}

/// What happened in a campaign, so that one that tries nothing can be told from one that finds nothing.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Report {
    /// Runs.
    pub runs: u64,
    /// Jobs of each system.
    pub jobs: BTreeMap<&'static str, u64>,
    /// Jobs in pods, by the systems inside of pods and between them.
    pub pods: BTreeMap<String, u64>,
    /// Jobs in pods that all ranks got through.
    pub pods_complete: u64,
    /// Operations of each kind.
    pub operations: BTreeMap<&'static str, u64>,
    /// Jobs of which every worker completed every operation.
    pub jobs_complete: u64,
    /// Jobs of which some worker failed.
    pub jobs_failed: u64,
    /// Runs in which every job had to complete.
    pub runs_must_complete: u64,
    /// Runs in which a host died.
    pub runs_with_deaths: u64,
    /// Pieces that the oracle compared.
    pub pieces_checked: u64,
    /// Packets that left a transmitter.
    pub packet_hops: u64,
    /// Packets sent again.
    pub retransmitted: u64,
    /// Packets marked.
    pub marked: u64,
    /// Packets dropped, by reason.
    pub drops: BTreeMap<&'static str, u64>,
    /// Runs in which something is not as it must be, by seed.
    pub findings: Vec<Finding>,
}

impl Report {
    fn count(&mut self, recipe: &Recipe, result: &RunResult) {
        for (index, (job, outcome)) in recipe.jobs.iter().zip(&result.jobs).enumerate() {
            *self.jobs.entry(job.system.name()).or_default() += 1;
            for number in 0..job.operations().0.len() {
                let kind = job.kinds.get(number).copied().unwrap_or_default();
                *self.operations.entry(kind.name()).or_default() += 1;
            }
            if recipe.drives(index) {
                continue;
            }
            self.jobs_complete += u64::from(outcome.is_complete());
            self.jobs_failed += u64::from(outcome.first_failure().is_some());
        }
        for (pods, ran) in recipe.pods.iter().zip(&result.programs) {
            let [inside, across] = pods.one_of_each().map(|job| recipe.jobs[job].system.name());
            *self.pods.entry(format!("{inside} and {across}")).or_default() += 1;
            self.pods_complete += u64::from(ran.ended.is_some());
        }
        self.runs_with_deaths += u64::from(recipe.deaths().next().is_some());
        self.pieces_checked += result.verdict.pieces_checked;
        self.packet_hops += result.packet_hops;
        self.retransmitted += result.counters.retransmitted_total();
        self.marked += result.packets_marked;
        for (reason, count) in result.counters.drops() {
            *self.drops.entry(reason).or_default() += count;
        }
    }

    /// Adds what other runs have given.
    pub fn merge(&mut self, other: Report) {
        self.runs += other.runs;
        for (name, count) in other.jobs {
            *self.jobs.entry(name).or_default() += count;
        }
        for (name, count) in other.operations {
            *self.operations.entry(name).or_default() += count;
        }
        for (name, count) in other.pods {
            *self.pods.entry(name).or_default() += count;
        }
        self.pods_complete += other.pods_complete;
        self.jobs_complete += other.jobs_complete;
        self.jobs_failed += other.jobs_failed;
        self.runs_must_complete += other.runs_must_complete;
        self.runs_with_deaths += other.runs_with_deaths;
        self.pieces_checked += other.pieces_checked;
        self.packet_hops += other.packet_hops;
        self.retransmitted += other.retransmitted;
        self.marked += other.marked;
        for (reason, count) in other.drops {
            *self.drops.entry(reason).or_default() += count;
        }
        self.findings.extend(other.findings);
        self.findings.sort_by_key(|finding| finding.seed);
    }

    /// Packets dropped for this reason in all runs.
    pub fn dropped(&self, reason: DropReason) -> u64 {
        self.drops.get(reason.name()).copied().unwrap_or(0)
    }

    /// Panics with all findings, if there are any.
    ///
    /// # Panics
    /// Where a run was not as it must be.
    pub fn assert_clean(&self) {
        let words: Vec<String> = self.findings.iter().take(5).map(Finding::to_string).collect();
        assert!(self.findings.is_empty(), "{} of {} runs are not as they must be\n{}", self.findings.len(), self.runs, words.join("\n"));
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} runs, {} of them must complete, {} with dead hosts", self.runs, self.runs_must_complete, self.runs_with_deaths)?;
        writeln!(f, "jobs {:?}: {} complete, {} with failures", self.jobs, self.jobs_complete, self.jobs_failed)?;
        if !self.pods.is_empty() {
            writeln!(f, "pods {:?}: {} complete", self.pods, self.pods_complete)?;
        }
        writeln!(f, "operations {:?}", self.operations)?;
        writeln!(
            f,
            "{} packet-hops, {} pieces checked, {} packets sent again, {} marked",
            self.packet_hops, self.pieces_checked, self.retransmitted, self.marked
        )?;
        writeln!(f, "dropped {:?}", self.drops)?;
        write!(f, "{} findings", self.findings.len())
    }
}

/// Which checks a campaign makes of each seed, beside running it once with census payloads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Checks {
    /// Run it again, in parts where it has some: the result must be the same.
    pub twice: bool,
    /// Run it with elements: the sums must be right, and times and counts those of the census.
    pub elements: bool,
    /// Threads.
    pub threads: usize,
    /// Jobs of this system only, one of [`fanin_systems::System::NAMES`]; with [`PODS`](crate::generate::PODS) one of each run is in pods.
    pub only: Option<&'static str>,
}

impl Default for Checks {
    fn default() -> Self {
        Checks { twice: true, elements: true, threads: 2, only: None }
    }
}

/// Runs one recipe and says what is wrong with it.
pub fn examine(recipe: &Recipe, checks: Checks) -> (Option<RunResult>, Vec<String>) {
    if recipe.jobs.iter().any(|job| job.system.density().is_some()) {
        return examine_sparse(recipe, checks);
    }
    let result = match run::<Census>(recipe, |_| {}) {
        Ok(result) => result,
        Err(words) => return (None, vec![words]),
    };
    let mut found = violations(recipe, &result);
    // In parts, where it has some: so it is seen as well that these change nothing.
    let parts = 2 + (recipe.seed % 3) as usize;
    if checks.twice && run_in_parts::<Census>(recipe, parts).as_ref() != Ok(&result) {
        found.push(format!("the same seed gave another result in {parts} parts"));
    }
    if checks.elements {
        match run::<[u8]>(recipe, |_| {}) {
            Ok(elements) => {
                found.extend(violations(recipe, &elements).into_iter().map(|what| format!("with elements: {what}")));
                if elements.jobs != result.jobs || elements.programs != result.programs || elements.counters != result.counters {
                    found.push("elements took another course than the census".into());
                }
            }
            Err(words) => found.push(format!("with elements: {words}")),
        }
    }
    (Some(result), found)
}

/// As [`examine`], where a job has sparse vectors: its packets have elements, which are census weights, one for each index.
fn examine_sparse(recipe: &Recipe, checks: Checks) -> (Option<RunResult>, Vec<String>) {
    let result = match run::<[u8]>(recipe, |_| {}) {
        Ok(result) => result,
        Err(words) => return (None, vec![words]),
    };
    let mut found = violations(recipe, &result);
    if checks.twice && run::<[u8]>(recipe, |_| {}).as_ref() != Ok(&result) {
        found.push("the same seed gave another result".into());
    }
    (Some(result), found)
}

/// Runs the seeds `first..first + count`.
pub fn campaign(first: u64, count: u64, checks: Checks) -> Report {
    campaign_with(first, count, checks, |_| {})
}

/// The same, and calls `on_seed` after each seed, in the threads that run them.
pub fn campaign_with(first: u64, count: u64, checks: Checks, on_seed: impl Fn(u64) + Sync) -> Report {
    let next = AtomicU64::new(first);
    let (sender, receiver) = mpsc::channel();
    std::thread::scope(|scope| {
        for _ in 0..checks.threads.max(1) {
            let (sender, next, on_seed) = (sender.clone(), &next, &on_seed);
            scope.spawn(move || {
                let mut report = Report::default();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        break;
                    }
                    examine_seed(seed, checks, &mut report);
                    on_seed(seed);
                }
                sender.send(report).expect("the campaign waits for its threads");
            });
        }
        drop(sender);
        receiver.iter().fold(Report::default(), |mut all, part| {
            all.merge(part);
            all
        })
    })
}

fn examine_seed(seed: u64, checks: Checks, report: &mut Report) {
    let recipe = generate_for(seed, checks.only);
    let (result, violations) = examine(&recipe, checks);
    report.runs += 1;
    report.runs_must_complete += u64::from(recipe.demand == Demand::MustComplete);
    if let Some(result) = &result {
        report.count(&recipe, result);
    }
    if !violations.is_empty() {
        report.findings.push(Finding { seed, violations, recipe, only: checks.only });
    }
}
