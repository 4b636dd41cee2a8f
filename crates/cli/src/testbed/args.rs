//! What the user can ask for.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fanin_testbed::place;

/// Run a workload on a fabric of real switch and host processes on this machine, and check every element of every result.
///
/// Starts a process for each switch and each host of the fabric, waits until all neighbours have heard of each other, runs the workload's
/// jobs, injects what it says (background traffic, losses, killed switches), prints what came out, and removes everything that it has
/// made, also after a failure or a signal.
///
/// With --chaos or --scenario, jobs of communicators run while their processes are killed, paused and started again, links are cut and packets damaged:
/// every result must be exact, or an error at every rank in time.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TestbedArgs {
    /// Hosts, switches and links: a TOML file.
    #[arg(value_name = "FABRIC.toml", required_unless_present_any = ["chaos", "scenario"])]
    pub fabric: Option<PathBuf>,
    /// Jobs, traffic, faults and events: a TOML file.
    #[arg(value_name = "WORKLOAD.toml", required_unless_present_any = ["chaos", "scenario"])]
    pub workload: Option<PathBuf>,
    /// Where the processes run.
    #[arg(long, value_enum, default_value_t = PlaceName::Loopback)]
    pub place: PlaceName,
    /// Change a value of the workload: `job.0.message=64MiB`. May be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Seed of vectors, faults and random choices, in place of the workload's.
    #[arg(long)]
    pub seed: Option<u64>,
    /// Write the results into this file too, as JSON, and beside it jobs over time where the workload has them sampled.
    #[arg(long, value_name = "FILE")]
    pub out: Option<PathBuf>,
    /// Keep the logs of all processes in this folder. They are kept in a temporary one where the run fails.
    #[arg(long, value_name = "FOLDER")]
    pub logs: Option<PathBuf>,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Only read both files, and print the fabric with every node and link by name.
    #[arg(long, conflicts_with_all = ["out", "logs", "format"])]
    pub check: bool,
    /// Chaos.
    #[command(flatten, next_help_heading = "Chaos")]
    pub chaos: ChaosArgs,
}

/// What of chaos.
#[derive(Args, Clone, Debug)]
pub struct ChaosArgs {
    /// Draw a scenario from this seed, in place of files: the place, its jobs, and what is done to them; further runs have the next seeds. With --check it is
    /// printed, and nothing runs.
    #[arg(long, value_name = "SEED", conflicts_with_all = ["fabric", "workload", "scenario", "set", "seed", "place"])]
    pub chaos: Option<u64>,
    /// Replay the scenario in this file, TOML or JSON.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["fabric", "workload", "set", "seed", "place"])]
    pub scenario: Option<PathBuf>,
    /// So many runs; one, unless there is a time.
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
    pub runs: Option<u64>,
    /// Runs begin for so long.
    #[arg(long, value_parser = parse_time, conflicts_with = "hours")]
    pub minutes: Option<f64>,
    /// Runs begin for so long.
    #[arg(long, value_parser = parse_time)]
    pub hours: Option<f64>,
    /// How long a rank may take beyond its timeout until it has a result or an error, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 10.0, value_parser = parse_time)]
    pub grace: f64,
    /// So many runs at most to make a scenario smaller that shows a finding; 0 leaves it as it is.
    #[arg(long, value_name = "RUNS", default_value_t = 40)]
    pub shrink_runs: u32,
}

/// A time that a campaign can last.
fn parse_time(text: &str) -> Result<f64, String> {
    let is_time = |number: &f64| number.is_finite() && (0.0..1e6).contains(number);
    text.parse().ok().filter(is_time).ok_or_else(|| "expected a number from 0 to a million".into())
}

/// Where the processes run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum PlaceName {
    /// Ports on 127.0.0.1; needs no privilege.
    Loopback,
    /// A network namespace for each node and a veth for each link, whose rate `tc` bounds; needs root.
    Namespaces,
}

impl From<PlaceName> for place::PlaceName {
    fn from(name: PlaceName) -> Self {
        match name {
            PlaceName::Loopback => place::PlaceName::Loopback,
            PlaceName::Namespaces => place::PlaceName::Namespaces,
        }
    }
}

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// An object with everything.
    Json,
}

const EXAMPLES: &str = "\
Examples:
  fanin testbed examples/testbed/fabric.toml examples/testbed/workload.toml
  fanin testbed examples/testbed/fabric.toml examples/testbed/congested.toml --place namespaces --out result.json
  fanin testbed examples/testbed/fabric.toml examples/testbed/workload.toml --set job.0.message=64MiB
  fanin testbed examples/testbed/fabric.toml examples/testbed/workload.toml --check
  fanin testbed --chaos 1 --runs 20
  fanin testbed --chaos 1 --hours 8 --format json
  fanin testbed --scenario found.toml --runs 10

Exit codes: 0 all came out as the workload expects, or chaos found nothing; 1 it did not, or a process failed; 2 a file is wrong or the place cannot be had;
128 + the signal's number after a signal. More in docs/testbed.md.";
