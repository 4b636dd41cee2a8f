//! `fanin plan`: which switches of a network to replace next by ones that aggregate, and what each step is predicted to give.

use std::fs;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, ContentArrangement, Table};
use fanin_pictures::plot;
use fanin_pictures::table::STYLE;
use fanin_plan::PlanError;
use fanin_plan::upgrade::{Aggregation, Assumptions, Step, Upgrade};
use serde::Serialize;

use crate::quantities;

mod counted;

use counted::{Counted, Expected};

/// Arguments of `fanin plan`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct PlannerArgs {
    /// The network, cable by cable: TOML or GraphML; what its switches can aggregate already counts
    network: PathBuf,
    /// The jobs: a plan without a network, whose jobs name no system
    #[arg(long)]
    jobs: PathBuf,
    /// How many switches can be replaced
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..=8192))]
    budget: u32,
    /// For which kinds of aggregation
    #[arg(long, value_enum, value_delimiter = ',', default_value = "atp,rina-tor")]
    aggregation: Vec<Kind>,
    /// Overhead of each step of a ring (Rina's O), as 20us
    #[arg(long, value_name = "TIME", default_value_t = 20.0, value_parser = quantities::microseconds)]
    overhead: f64,
    /// Deviation of a step's time (Rina's sigma), as 5us
    #[arg(long, value_name = "TIME", default_value_t = 0.0, value_parser = quantities::microseconds)]
    sigma: f64,
    /// Gb/s at which a new switch aggregates; as fast as its links unless given
    #[arg(long, value_name = "GBPS", value_parser = rate)]
    aggregation_rate: Option<f64>,
    /// Simulate each step, too: one allreduce of each job, packet by packet (atp and rina-tor; the others have no system that does it)
    #[arg(long)]
    simulate: bool,
    /// Write steps.json and steps.svg to this folder
    #[arg(long)]
    out: Option<PathBuf>,
    /// What to print
    #[arg(long, value_enum, default_value = "table")]
    format: Format,
}

const AFTER: &str = "\
server: sums on the way to a server, at any switch; atp: the same next to workers and servers only. The switch that gives most is next.
rina: groups in a ring, all workers below a switch being one; rina-tor: the same next to workers only. Switches with the most workers are
next, those next to workers before the others. Predicted by the bandwidth-occupation model and the dependency chain (`fanin model bom`,
`fanin model rina`): the column formula. expected: what `fanin advise` counts, for kinds that a system here does; of these, what holds the
slowest job up is its word too. best: by the formula, of all sets of as many switches, where they are few enough to be tried.
Exit codes: 0 all is well, 2 the input is wrong.";

/// Kinds of aggregation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Kind {
    /// To a server, at any switch.
    Server,
    /// To a server, at switches next to workers and servers.
    Atp,
    /// Groups in a ring, at any switch.
    Rina,
    /// Groups in a ring, at switches next to workers.
    RinaTor,
}

impl Kind {
    fn aggregation(self) -> Aggregation {
        match self {
            Kind::Server => Aggregation::Server,
            Kind::Atp => Aggregation::ServerAtTors,
            Kind::Rina => Aggregation::Rina,
            Kind::RinaTor => Aggregation::RinaAtTors,
        }
    }
}

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Format {
    /// For people.
    Table,
    /// An array with an object a step, each on a line of its own.
    Json,
}

fn number(text: &str, expected: &str, fits: impl Fn(f64) -> bool) -> Result<f64, String> {
    text.parse::<f64>().ok().filter(|value| value.is_finite() && fits(*value)).ok_or_else(|| format!("expected {expected}"))
}

fn rate(text: &str) -> Result<f64, String> {
    number(text, "Gb/s from 0.001 to 100000", |value| (1e-3..=1e5).contains(&value))
}

/// A step, as JSON.
#[derive(Serialize)]
struct Row<'a> {
    aggregation: &'static str,
    replaced: usize,
    switch: Option<&'a str>,
    predicted_gbps: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    simulated_gbps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_gbps: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_by: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expected_bottleneck: Option<&'a str>,
    groups: Option<u32>,
    bottleneck: &'a str,
    best_gbps: Option<f64>,
    best_switches: Option<&'a [String]>,
}

/// Runs the command.
pub fn run(args: &PlannerArgs) -> ExitCode {
    match planned(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<PlanError>() { 2 } else { 1 })
        }
    }
}

fn planned(args: &PlannerArgs) -> Result<()> {
    let assumptions = Assumptions {
        overhead_us: args.overhead,
        sigma_us: args.sigma,
        new_bits_per_second: args.aggregation_rate.map(|gbps| (gbps * 1e9) as u64),
    };
    let upgrade = Upgrade::load(&args.network, &args.jobs, assumptions)?;
    let simulated = |kind: &Kind| matches!(kind, Kind::Atp | Kind::RinaTor);
    if args.simulate && !args.aggregation.iter().any(simulated) {
        return Err(PlanError::new("--simulate", "expected atp or rina-tor among --aggregation: no system does the others").into());
    }
    if !args.simulate
        && let Some(section) = upgrade.only_simulated()
    {
        let what = format!("{section}: expected none without --simulate: what is predicted depends on jobs and network only");
        return Err(PlanError::new(&args.jobs.display().to_string(), what).into());
    }
    // Rules see no traffic, flows, limits or faults: with these, only simulations say what is to be expected.
    let counted = match upgrade.only_simulated() {
        None => Some(Counted::load(args, assumptions)?),
        Some(_) => None,
    };
    let mut orders = Vec::new();
    for kind in args.aggregation.iter().map(|kind| kind.aggregation()) {
        let mut steps = upgrade.order(kind, args.budget as usize);
        if args.simulate {
            upgrade.simulate(kind, &mut steps)?;
        }
        let expected = counted.as_ref().map(|counted| counted.steps(kind, &steps)).transpose()?;
        orders.push(Order { aggregation: kind, expected: expected.unwrap_or_else(|| vec![None; steps.len()]), steps });
    }
    let ring = counted.as_ref().map(Counted::ring).transpose()?;
    let mut out = io::stdout().lock();
    match args.format {
        Format::Table => {
            writeln!(out, "{} on {}: Gb/s of all jobs together", args.jobs.display(), args.network.display())?;
            write!(out, "rings without switches: {:.2} by the formula", upgrade.ring_gbps())?;
            writeln!(out, "{}", ring.map_or_else(String::new, |ring| format!(", {} expected", gbps(&ring))))?;
            for order in &orders {
                write!(out, "\n{}\n", table(order))?;
            }
            if orders.iter().any(|order| order.expected.iter().flatten().any(|expected| expected.is_simulated)) {
                writeln!(out, "\n* simulated, a part of each vector: rules do not know")?;
            }
        }
        Format::Json => writeln!(out, "{}", json(&orders)?)?,
    }
    if let Some(folder) = &args.out {
        fs::create_dir_all(folder).with_context(|| format!("{}", folder.display()))?;
        fs::write(folder.join("steps.json"), json(&orders)? + "\n").context("steps.json")?;
        fs::write(folder.join("steps.svg"), picture(&orders, upgrade.ring_gbps())?).context("steps.svg")?;
    }
    Ok(())
}

/// Steps of a replacement, for one kind of aggregation.
struct Order {
    aggregation: Aggregation,
    steps: Vec<Step>,
    /// Of each step, where a system here does it.
    expected: Vec<Option<Expected>>,
}

fn gbps(expected: &Expected) -> String {
    format!("{:.2}{}", expected.gbps, if expected.is_simulated { "*" } else { "" })
}

fn table(Order { aggregation, steps, expected }: &Order) -> String {
    let is_grouped = steps.iter().any(|step| step.groups > 0);
    let mut header = vec!["replaced", aggregation.name(), "formula", "best", "held up by"];
    if is_grouped {
        header.insert(3, "groups");
    }
    let is_simulated = steps.iter().any(|step| step.simulated.is_some());
    if is_simulated {
        header.insert(3, "simulated");
    }
    let is_expected = expected.iter().any(Option::is_some);
    if is_expected {
        header.insert(3, "expected");
    }
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled).set_header(header);
    for (place, (step, expected)) in steps.iter().zip(expected).enumerate() {
        let name = step.switch.clone().unwrap_or_else(|| "as it is".into());
        let best = match &step.best {
            Some((_, gbps)) if *gbps > step.gbps * (1.0 + 1e-9) => format!("{gbps:.2}"),
            Some(_) => "this".into(),
            None => "-".into(),
        };
        let bound = expected.as_ref().map_or(&step.bottleneck, |expected| &expected.bound);
        let mut cells = vec![place.to_string(), name, format!("{:.2}", step.gbps), best, bound.clone()];
        if is_grouped {
            cells.insert(3, step.groups.to_string());
        }
        if is_simulated {
            cells.insert(3, step.simulated.map_or_else(|| "-".into(), |gbps| format!("{gbps:.2}")));
        }
        if is_expected {
            cells.insert(3, expected.as_ref().map_or_else(|| "-".into(), gbps));
        }
        table.add_row(cells);
    }
    for column in [0, 2] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table.lines().map(|line| line.trim_end().to_string()).collect::<Vec<_>>().join("\n")
}

fn json(orders: &[Order]) -> Result<String> {
    let mut rows = Vec::new();
    for Order { aggregation, steps, expected } in orders {
        for (replaced, (step, expected)) in steps.iter().zip(expected).enumerate() {
            rows.push(serde_json::to_string(&Row {
                aggregation: aggregation.name(),
                replaced,
                switch: step.switch.as_deref(),
                predicted_gbps: step.gbps,
                simulated_gbps: step.simulated,
                expected_gbps: expected.as_ref().map(|expected| expected.gbps),
                expected_by: expected.as_ref().map(|expected| if expected.is_simulated { "simulation" } else { "rules" }),
                expected_bottleneck: expected.as_ref().map(|expected| expected.bound.as_str()),
                groups: (step.groups > 0).then_some(step.groups),
                bottleneck: &step.bottleneck,
                best_gbps: step.best.as_ref().map(|(_, gbps)| *gbps),
                best_switches: step.best.as_ref().map(|(switches, _)| switches.as_slice()),
            })?);
        }
    }
    Ok(format!("[\n{}\n]", rows.join(",\n")))
}

/// Throughput over replaced switches, as the paper's Fig. 5 and 11 have it.
fn picture(orders: &[Order], ring_gbps: f64) -> Result<String> {
    let most = orders.iter().map(|order| order.steps.len()).max().unwrap_or(1);
    let mut lines: Vec<(String, Vec<(f64, f64)>)> = Vec::new();
    for Order { aggregation, steps, expected } in orders {
        let name = aggregation.name();
        let mut add = |name: String, values: Vec<Option<f64>>| {
            let corners: Vec<_> = values.iter().enumerate().filter_map(|(replaced, gbps)| Some((replaced as f64, (*gbps)?))).collect();
            if !corners.is_empty() {
                lines.push((name, corners));
            }
        };
        add(format!("{name}, formula"), steps.iter().map(|step| Some(step.gbps)).collect());
        add(format!("{name}, expected"), expected.iter().map(|expected| Some(expected.as_ref()?.gbps)).collect());
        add(format!("{name}, simulated"), steps.iter().map(|step| step.simulated).collect());
    }
    lines.push(("ring, formula".into(), vec![(0.0, ring_gbps), (most.saturating_sub(1) as f64, ring_gbps)]));
    plot::over_count("Throughput by replaced switches", "by what each says", "replaced switches", "all jobs (Gb/s)", lines)
}
