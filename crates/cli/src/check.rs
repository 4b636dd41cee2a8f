//! `fanin check`: random runs with faults, each from a seed that replays it.

use std::iter;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use clap::builder::PossibleValuesParser;
use fanin_check::{Checks, Report, campaign_with, generate_for};
use fanin_systems::System;
use indicatif::{ProgressBar, ProgressStyle};

/// Findings that are printed in full.
const FINDINGS_SHOWN: usize = 20;

/// Run random plans with random faults in the simulator, and check every sum, every ending and what is left behind.
///
/// Each run is drawn from its seed: network, jobs, background traffic, loss, corruption, repetition, reordering, failures of links, switches
/// and hosts. Checked are the exact sum of every block at every worker (by census weights, and by elements), that every operation ends,
/// well or with an error that names somebody, that nothing is left in switches, and that the same seed gives the same result. Exit code 1
/// where anything is not as it must be; what is printed replays it.
#[derive(Args, Clone, Debug)]
pub struct CheckArgs {
    /// The system of all jobs, or `all` to draw that too.
    #[arg(value_parser = systems(), default_value = "all")]
    pub system: String,
    /// How many seeds.
    #[arg(long, value_name = "COUNT", default_value_t = 1_000)]
    pub seeds: u64,
    /// The first seed.
    #[arg(long, value_name = "SEED", default_value_t = 0)]
    pub first: u64,
    /// Run each seed once, with census payloads only: three times as fast.
    #[arg(long)]
    pub once: bool,
    /// Print each run in words first.
    #[arg(long)]
    pub verbose: bool,
    /// Threads; as many as there are processors unless given.
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub threads: Option<u16>,
}

/// What the system may be.
fn systems() -> PossibleValuesParser {
    PossibleValuesParser::new(iter::once("all").chain(System::names()))
}

/// Runs the command.
///
/// # Errors
/// Where something is not as it must be.
pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let only = System::names().into_iter().find(|name| *name == args.system);
    if args.verbose {
        (args.first..args.first.saturating_add(args.seeds)).for_each(|seed| println!("{}", generate_for(seed, only)));
    }
    let threads = match args.threads {
        Some(threads) => usize::from(threads),
        None => std::thread::available_parallelism().context("the number of processors is not known: give --threads")?.get(),
    };
    let checks = Checks { twice: !args.once, elements: !args.once, threads, only };
    let bar = ProgressBar::new(args.seeds);
    bar.set_style(ProgressStyle::with_template("{bar:40} {pos}/{len} seeds, {eta} left").context("a progress bar")?);
    // A run that breaks an assertion is a finding; its words are in the report.
    std::panic::set_hook(Box::new(|_| {}));
    let report = campaign_with(args.first, args.seeds, checks, |_| bar.inc(1));
    drop(std::panic::take_hook());
    bar.finish_and_clear();
    print(&report);
    Ok(ExitCode::from(u8::from(!report.findings.is_empty())))
}

fn print(report: &Report) {
    report.findings.iter().take(FINDINGS_SHOWN).for_each(|finding| println!("{finding}"));
    println!("{report}");
}
