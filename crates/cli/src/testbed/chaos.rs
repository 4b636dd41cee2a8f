//! `fanin testbed --chaos` and `--scenario`, and the process of one of its ranks.

use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, Result};
use fanin_terminal::output;
use fanin_testbed::chaos::campaign::{Campaign, Progress, Summary};
use fanin_testbed::chaos::draw::draw;
use fanin_testbed::chaos::rank;
use fanin_testbed::chaos::scenario::Scenario;

use super::args::{ChaosArgs, Format, TestbedArgs};

/// How often a smaller scenario is tried: how processes run differs from one time to the next.
const TRIALS: u32 = 3;

/// As many as anybody has time for.
const ENDLESS: u64 = u64::MAX;

/// The scenario that is asked for, or the first one.
///
/// # Errors
/// What is wrong with the file.
pub(super) fn scenario(args: &ChaosArgs) -> Result<(u64, Option<Scenario>)> {
    match &args.scenario {
        Some(path) => Scenario::load(path).map(|scenario| (scenario.seed, Some(scenario))),
        None => Ok((args.chaos.unwrap_or(1), None)),
    }
}

/// Prints the scenario, and runs nothing.
///
/// # Errors
/// Where it cannot be written.
pub(super) fn print_scenario((seed, scenario): (u64, Option<Scenario>)) -> Result<()> {
    print!("{}", scenario.unwrap_or_else(|| draw(seed)).to_toml()?);
    Ok(())
}

/// Runs what is asked for; logs of runs with findings go to `folder`.
///
/// # Errors
/// Where this machine does not let it.
pub(super) fn perform(
    args: &TestbedArgs,
    (seed, scenario): (u64, Option<Scenario>),
    folder: &Path,
    interrupted: &AtomicBool,
) -> Result<Summary> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let chaos = &args.chaos;
    let time = match (chaos.hours, chaos.minutes) {
        (Some(hours), _) => Some(hours * 3_600.0),
        (None, Some(minutes)) => Some(minutes * 60.0),
        (None, None) => None,
    };
    let campaign = Campaign {
        seed,
        scenario,
        runs: chaos.runs.unwrap_or(if time.is_some() { ENDLESS } else { 1 }),
        time: time.map(Duration::from_secs_f64),
        grace: Duration::from_secs_f64(chaos.grace),
        shrink_runs: chaos.shrink_runs,
        trials: TRIALS,
        program: &program,
        folder,
        interrupted,
    };
    let summary = campaign.run(|progress| tell(&progress))?;
    if let Some(out) = &args.out {
        std::fs::write(out, serde_json::to_string_pretty(&summary)?).with_context(|| format!("{} cannot be written", out.display()))?;
    }
    match args.format {
        Format::Table => print!("{}", summary.text()),
        Format::Json => println!("{}", serde_json::to_string_pretty(&summary)?),
    }
    Ok(summary)
}

/// A line for each run, to standard error: results are on standard output.
fn tell(progress: &Progress<'_>) {
    match progress {
        Progress::Run { seed, outcome, summary } => {
            let (all, errors) = (summary.all(), outcome.errors().values().sum::<u64>());
            let found = if outcome.findings.is_empty() { String::new() } else { format!(", FOUND: {}", outcome.findings.join("; ")) };
            eprintln!(
                "run {}, seed {seed}: {:.1} s, {} exact calls, {errors} ranks with errors{found}; all: {} exact calls, {} runs with findings",
                all.runs,
                outcome.wall_s,
                outcome.exact_calls(),
                all.exact_calls,
                all.findings
            );
        }
        Progress::Shrinking { faults, jobs, ranks, shows } => {
            let shows = if *shows { "shows it, too" } else { "does not show it" };
            eprintln!("  with {faults} faults, {jobs} jobs and {ranks} ranks: {shows}");
        }
    }
}

/// The process of one rank, which takes its orders on standard input.
pub fn run_rank() -> ExitCode {
    match rank::serve(|| output::leave(0)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}
