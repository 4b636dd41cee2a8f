//! What the user can ask for.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fanin_testbed::place;

/// Run a workload on a fabric of real switch and host processes on this machine, and check every element of every result.
///
/// Starts a process for each switch and each host of the fabric, waits until all neighbours have heard of each other, runs the workload's
/// jobs, injects what it says (background traffic, losses, killed switches), prints what came out, and removes everything that it has
/// made, also after a failure or a signal.
#[derive(Args, Clone, Debug)]
#[command(after_help = EXAMPLES)]
pub struct TestbedArgs {
    /// Hosts, switches and links: a TOML file.
    #[arg(value_name = "FABRIC.toml")]
    pub fabric: PathBuf,
    /// Jobs, traffic, faults and events: a TOML file.
    #[arg(value_name = "WORKLOAD.toml")]
    pub workload: PathBuf,
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

Exit codes: 0 all came out as the workload expects, 1 it did not or a process failed, 2 a file is wrong or the place cannot be had;
128 + the signal's number after a signal. More in docs/testbed.md.";
