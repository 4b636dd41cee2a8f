//! `fanin advise`: which switches to buy for which system, what that gains of an iteration, and what it does not.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use comfy_table::{ContentArrangement, Table};
use fanin_advise::check::{CLOSE, Row, regrets, table, trials};
use fanin_advise::page::{gain, reduced, summary};
use fanin_advise::prices::prices;
use fanin_advise::setting::{New, SYSTEMS, Setting, known_systems};
use fanin_advise::{Advice, Question, advise, written};
use fanin_pictures::table::STYLE;
use fanin_plan::PlanError;

use crate::quantities;

/// Arguments of `fanin advise`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct AdviseArgs {
    /// The network: cable by cable (TOML or GraphML), or a `[network]` with a shape; what its switches can aggregate already counts
    #[arg(required_unless_present = "check")]
    network: Option<PathBuf>,
    /// The jobs, or workloads: a plan without a network, whose jobs name no system
    #[arg(long, required_unless_present = "check")]
    jobs: Option<PathBuf>,
    /// What may be spent, in the prices' money; in switches where there are no prices
    #[arg(long, default_value_t = 8.0, value_parser = money)]
    budget: f64,
    /// Prices of switches: a TOML file of `NAME = PRICE`, and `default = PRICE` for all others; a name that ends in `*` stands for all that begin so
    #[arg(long)]
    prices: Option<PathBuf>,
    /// Systems to compare; all that have rules unless given
    #[arg(long, value_delimiter = ',')]
    systems: Vec<String>,
    /// Replace switches in this order, in place of the best one found
    #[arg(long, value_delimiter = ',')]
    order: Option<Vec<String>>,
    /// Gb/s at which a new switch aggregates at a port; as fast as its links unless given
    #[arg(long, value_name = "GBPS", value_parser = rate)]
    aggregation_rate: Option<f64>,
    /// Memory of a new switch in KiB; without a limit unless given
    #[arg(long, value_name = "KIB", value_parser = clap::value_parser!(u64).range(1..))]
    memory: Option<u64>,
    /// Overhead of each step of a ring (Rina's O), as 20us
    #[arg(long, value_name = "TIME", default_value_t = 0.0, value_parser = quantities::microseconds)]
    overhead: f64,
    /// Draws of placement and paths over which predictions are taken
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    draws: u32,
    /// Simulate only what the rules do not know, and not all that comes near the first choice: in less time, and less sure of it
    #[arg(long)]
    by_rules: bool,
    /// Write advice.json, index.html, and for each step a network (step-N.toml) and a plan (plan-N.toml) that can be simulated
    #[arg(long)]
    out: Option<PathBuf>,
    /// What to print
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Hold predictions against simulation on random networks of this seed instead
    #[arg(long, value_name = "SEED", conflicts_with_all = ["network", "jobs", "prices", "systems", "order", "by_rules"])]
    check: Option<u64>,
    /// With --check: how many networks
    #[arg(long, default_value_t = 200, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    cases: u64,
}

const AFTER: &str = "\
Predictions count all links of all jobs at once, windows, aggregation rates and memory. What the rules do not know, what comes
near the first choice, and workloads are simulated.
A gain below 5 % is no reason to buy. Exit codes: 0 all is well, 2 the input is wrong.";

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people.
    Text,
    /// All of it, as one object.
    Json,
}

fn number(text: &str, expected: &str, fits: impl Fn(f64) -> bool) -> Result<f64, String> {
    text.parse::<f64>().ok().filter(|value| value.is_finite() && fits(*value)).ok_or_else(|| format!("expected {expected}"))
}

fn money(text: &str) -> Result<f64, String> {
    number(text, "a number from 0 on", |value| value >= 0.0)
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, "Gb/s from 0.001 to 100000", |value| (1e-3..=1e5).contains(&value))
}

/// Runs the command.
pub fn run(args: &AdviseArgs) -> ExitCode {
    let done = match (args.check, &args.network, &args.jobs) {
        (Some(seed), ..) => checked(args, seed),
        (None, Some(network), Some(jobs)) => advised(args, network, jobs),
        _ => Ok(()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<PlanError>() { 2 } else { 1 })
        }
    }
}

fn question(args: &AdviseArgs, setting: &Setting) -> Result<Question> {
    let mut question = Question::of(setting, args.budget);
    if !args.systems.is_empty() {
        question.systems = known_systems(&args.systems)?;
    }
    if let Some(file) = &args.prices {
        question.prices = prices(file, setting)?;
    }
    question.new = New {
        bits_per_second: args.aggregation_rate.map(|gbps| (gbps * 1e9) as u64),
        memory_bytes: args.memory.map(|kib| kib << 10),
        step_ps: ((args.overhead * 1e6) as u64, 0),
    };
    question.order.clone_from(&args.order);
    (question.simulate, question.draws) = (!args.by_rules, args.draws);
    Ok(question)
}

fn advised(args: &AdviseArgs, network: &Path, jobs: &Path) -> Result<()> {
    let setting = Setting::load(network, jobs)?;
    let question = question(args, &setting)?;
    let advice = advise(&setting, &question)?;
    let mut out = io::stdout().lock();
    match args.format {
        Format::Text => writeln!(out, "{}", text(&advice))?,
        Format::Json => writeln!(out, "{}", serde_json::to_string_pretty(&advice)?)?,
    }
    if let Some(folder) = &args.out {
        written::all(folder, &setting, &question, &advice, &format!("{} on {}", jobs.display(), network.display()))
            .with_context(|| format!("{}", folder.display()))?;
    }
    Ok(())
}

fn text(advice: &Advice) -> String {
    let mut parts = vec![summary(advice)];
    let base = &advice.today.steps[0].value;
    let kept = advice.offers.iter().find(|offer| offer.system == advice.system).unwrap_or(&advice.today);
    let rows = kept.steps.iter().enumerate().map(|(place, step)| {
        let names = if step.switches.is_empty() { "as it is".to_string() } else { step.switches.join(", ") };
        let gained = gain(step.value.gain_over(base));
        vec![place.to_string(), names, step.price.to_string(), reduced(&step.value), gained, step.value.bound.clone()]
    });
    parts.push(aligned(&["step", advice.system, "price", "all jobs", "gain", "held up by"], rows));
    let rows = advice.offers.iter().map(|offer| {
        let step = &offer.steps[offer.best];
        let count: usize = offer.steps[..=offer.best].iter().map(|step| step.switches.len()).sum();
        let why = step.value.unknown.clone().unwrap_or_default();
        vec![offer.system.to_string(), count.to_string(), step.price.to_string(), reduced(&step.value), step.value.bound.clone(), why]
    });
    parts.push(aligned(&["system", "switches", "price", "all jobs", "held up by", "not known by rules"], rows));
    if !advice.failures.is_empty() {
        let rows = advice.failures.iter().map(|failure| {
            vec![failure.switch.clone(), failure.system.to_string(), reduced(&failure.value), gain(failure.value.gain_over(base))]
        });
        parts.push(aligned(&["without the sums of", "system", "all jobs", "gain over today"], rows));
    }
    parts.join("\n\n")
}

fn aligned(header: &[&str], rows: impl Iterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled).set_header(header.to_vec());
    rows.for_each(|row| _ = table.add_row(row));
    table.lines().map(|line| line.trim_end().to_string()).collect::<Vec<_>>().join("\n")
}

/// Predictions against simulation.
fn checked(args: &AdviseArgs, seed: u64) -> Result<()> {
    let folder = args.out.clone().unwrap_or_else(|| std::env::temp_dir().join(format!("fanin-advise-{}", std::process::id())));
    let mut all = Vec::new();
    for number in 0..args.cases {
        all.extend(trials(&folder, seed, number, SYSTEMS)?);
    }
    if args.out.is_none() {
        fs::remove_dir_all(&folder).with_context(|| format!("{}", folder.display()))?;
    } else {
        fs::write(folder.join("trials.json"), serde_json::to_string_pretty(&all)?).context("trials.json")?;
    }
    let mut out = io::stdout().lock();
    if args.format == Format::Json {
        return Ok(writeln!(out, "{}", serde_json::to_string_pretty(&all)?)?);
    }
    writeln!(
        out,
        "| system | predictions | within 20 % | rules know | of these within 20 % | with simulation | median error | 90 % of errors below |"
    )?;
    writeln!(out, "|---|---|---|---|---|---|---|---|")?;
    for row in table(&all) {
        writeln!(out, "{}", line(&row))?;
    }
    for (simulates, what) in [(false, "by rules alone"), (true, "with simulation of what is near or not known")] {
        let regrets = regrets(&all, simulates);
        let good = regrets.iter().filter(|regret| **regret <= 0.05).count();
        writeln!(out, "\nFirst choice {what}: within 5 % of the best simulated system in {good} of {} networks.", regrets.len())?;
    }
    writeln!(out, "\nNear: predicted to be {:.0} % of the first choice or more.", CLOSE * 100.0)?;
    Ok(())
}

fn line(row: &Row) -> String {
    let share = |part: usize, all: usize| if all == 0 { "-".to_string() } else { format!("{:.1} %", 100.0 * part as f64 / all as f64) };
    let with = row.known_within + (row.trials - row.known);
    let percent = |value: f64| if value.is_finite() { format!("{:.1} %", value * 100.0) } else { "did not end".to_string() };
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} |",
        row.system,
        row.trials,
        share(row.within, row.trials),
        row.known,
        share(row.known_within, row.known),
        share(with, row.trials),
        percent(row.median),
        percent(row.p90)
    )
}
