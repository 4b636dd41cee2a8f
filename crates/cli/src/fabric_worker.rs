//! `fanin fabric-worker`: the process of one host of a fabric.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use fanin_core::NodeId;
use fanin_fabric::Fabric;
use fanin_net::FaultPlan;
use fanin_testbed::host;

use crate::demo::parse_probability;
use fanin_terminal::output;

/// The process of one host of a fabric; takes its orders on standard input.
#[derive(Args, Clone, Debug)]
pub struct FabricWorkerArgs {
    /// The fabric's file.
    #[arg(long, value_name = "FABRIC.toml")]
    pub fabric: PathBuf,
    /// The host's name in it.
    #[arg(long)]
    pub name: String,
    #[command(flatten)]
    pub faults: FaultArgs,
}

/// Faults injected into everything that a process sends, hellos too.
#[derive(Args, Clone, Copy, Debug)]
pub struct FaultArgs {
    /// Probability that an outgoing packet is lost.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    pub loss: f64,
    /// Probability that an outgoing packet is sent twice.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    pub duplicate: f64,
    /// Probability that an outgoing packet is held back and overtaken.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    pub reorder: f64,
    /// Probability that an outgoing packet is damaged, and so discarded at the receiver.
    #[arg(long, default_value_t = 0.0, value_parser = parse_probability)]
    pub corrupt: f64,
    /// Seed of the injected faults.
    #[arg(long, default_value_t = 1)]
    pub fault_seed: u64,
}

impl FaultArgs {
    /// The faults.
    pub fn plan(&self) -> FaultPlan {
        FaultPlan { seed: self.fault_seed, loss: self.loss, duplicate: self.duplicate, reorder: self.reorder, corrupt: self.corrupt }
    }
}

/// Reads a fabric's file and finds a node of it.
///
/// # Errors
/// What is wrong with the file, or which names there are.
pub fn find_node(path: &std::path::Path, name: &str, is_host: bool) -> Result<(Fabric, NodeId), String> {
    let fabric = Fabric::load(path).map_err(|error| error.to_string())?;
    let fits = |node: &NodeId| fabric.map.is_host(*node) == is_host;
    let found = fabric.node_named(name).filter(fits);
    match found {
        Some(node) => Ok((fabric, node)),
        None => {
            let what = if is_host { "host" } else { "switch" };
            let known: Vec<&str> = (0..fabric.map.nodes()).map(NodeId).filter(fits).map(|node| fabric.name(node)).collect();
            Err(format!("--name {name}: {} has no such {what}; there are {}", path.display(), known.join(", ")))
        }
    }
}

/// Runs until the orders end. The exit code is 2 where the file or the name is wrong.
pub fn run(args: &FabricWorkerArgs) -> ExitCode {
    let (fabric, node) = match find_node(&args.fabric, &args.name, true) {
        Ok(found) => found,
        Err(text) => {
            eprintln!("error: {text}");
            return ExitCode::from(2);
        }
    };
    match host::serve(fabric, node, args.faults.plan(), || output::leave(0)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {}: {error:#}", args.name);
            ExitCode::from(1)
        }
    }
}
