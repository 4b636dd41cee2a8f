//! `fanin check`: random runs with faults, each from a seed that replays it.

use std::process::ExitCode;
use std::thread;

use anyhow::Context;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum};
use fanin_check::generate::PODS;
use fanin_check::{Checks, Report, campaign_with, generate_for};
use fanin_simulate::executor::Executor;
use fanin_simulate::progress::bar;
use fanin_systems::System;

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
    /// The system of all jobs; `all` to draw that too; `pods` for a job in pods in each run, by two systems that are drawn.
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
    /// Where seeds are run in place of here: a number of local processes, a Dask scheduler (tcp://HOST:8786), or Ray (ray, ray://HOST:10001). Needs Python with Fanin's package, by FANIN_PYTHON or as python3. The report does not depend on it.
    #[arg(long, value_name = "ADDRESS", conflicts_with = "threads")]
    pub executor: Option<String>,
    /// What to print: a summary, or an object.
    #[arg(long, value_enum, default_value_t = Format::Text)]
    pub format: Format,
}

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// For people.
    Text,
    /// An object with counts and findings.
    Json,
}

/// What the system may be.
fn systems() -> PossibleValuesParser {
    PossibleValuesParser::new(["all", PODS].into_iter().chain(System::names()))
}

/// Runs the command.
///
/// # Errors
/// Where something is not as it must be.
pub fn run(args: &CheckArgs) -> anyhow::Result<ExitCode> {
    let only = System::names().into_iter().chain([PODS]).find(|name| *name == args.system);
    if args.verbose {
        (args.first..args.first.saturating_add(args.seeds)).for_each(|seed| println!("{}", generate_for(seed, only)));
    }
    let report = match &args.executor {
        Some(address) => elsewhere(args, only, address)?,
        None => here(args, only)?,
    };
    match args.format {
        Format::Text => print(&report),
        Format::Json => println!("{}", report.to_json()),
    }
    Ok(ExitCode::from(u8::from(!report.findings.is_empty())))
}

fn here(args: &CheckArgs, only: Option<&'static str>) -> anyhow::Result<Report> {
    let threads = match args.threads {
        Some(threads) => usize::from(threads),
        None => thread::available_parallelism().context("the number of processors is not known: give --threads")?.get(),
    };
    let checks = Checks { twice: !args.once, elements: !args.once, threads, only };
    let bar = bar(args.seeds, "seeds");
    // A run that breaks an assertion is a finding; its words are in the report.
    std::panic::set_hook(Box::new(|_| {}));
    let report = campaign_with(args.first, args.seeds, checks, |_| bar.inc(1));
    drop(std::panic::take_hook());
    bar.finish_and_clear();
    Ok(report)
}

/// The same by other processes and machines, each of which runs `fanin check` for some of the seeds.
fn elsewhere(args: &CheckArgs, only: Option<&'static str>, address: &str) -> anyhow::Result<Report> {
    let wanted = serde_json::json!({ "system": args.system, "first": args.first, "once": args.once });
    let seeds = usize::try_from(args.seeds).context("--seeds")?;
    let bar = bar(args.seeds, "seeds");
    let mut all = Report::default();
    let asked = Executor::start(address).and_then(|mut executor| {
        executor.ask("check", wanted.to_string().as_bytes(), seeds, &mut |_, json| {
            let part = Report::from_json(json, only)?;
            bar.inc(part.runs);
            all.merge(part);
            Ok(())
        })
    });
    bar.finish_and_clear();
    asked.map_err(anyhow::Error::msg)?;
    anyhow::ensure!(all.runs == args.seeds, "{} of {} seeds have come back", all.runs, args.seeds);
    Ok(all)
}

fn print(report: &Report) {
    report.findings.iter().take(FINDINGS_SHOWN).for_each(|finding| println!("{finding}"));
    println!("{report}");
}
