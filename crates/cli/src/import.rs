//! `fanin import`: traces and workloads of other tools as a workload of Fanin's, and networks as a network of Fanin's.

use std::fs;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use fanin_workload::import::{BYTES_MAX, Format, Input, Options, import};
use fanin_workload::network::{self, NetworkFormat};
use fanin_workload::{Element, Hosts, Summary, Workload, WorkloadError, validate};

use crate::{quantities, workload};

/// Arguments of `fanin import`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct ImportArgs {
    /// Files of one format, gzip or not; of traces, one for each rank
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Write the workload, or the network, here
    #[arg(long, required_unless_present = "summary")]
    out: Option<PathBuf>,
    /// Say what is in it
    #[arg(long)]
    summary: bool,
    /// How many ranks there are, where the files do not say
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(fanin_workload::RANKS_MAX)))]
    ranks: Option<u32>,
    /// Ranks of a host; one unless the files say more
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(fanin_workload::RANKS_MAX)))]
    ranks_per_host: Option<u32>,
    /// The type of elements, where the files do not say
    #[arg(long, value_parser = element)]
    element: Option<Element>,
    /// The length of the vector, for algorithms of MSCCL
    #[arg(long, value_parser = quantities::bytes)]
    bytes: Option<u64>,
}

const AFTER: &str = "\
Workloads: PyTorch profiler (Kineto) JSON, NCCL Inspector JSON, AICB and SimAI (text and CSV), Chakra execution traces (NAME.RANK.et, and
process groups as JSON), GOAL text, MSCCL algorithms.
Networks: htsim .topo, topologies of SimAI and HPCC, NCCL topology XML, networkx node-link JSON, containerlab YAML, a CSV of cables.
The format is told by the content. What cannot be taken over is counted, with the place of the first, and what was assumed is said.
docs/workloads.md describes what is written; plans take networks by network.shape = \"file\".
Exit codes: 0 all is well, 2 the input is wrong.";

/// A type of elements.
pub fn element(text: &str) -> Result<Element, String> {
    Element::of_name(text).ok_or_else(|| format!("expected one of {}", Element::names()))
}

/// Runs the command.
pub fn run(args: &ImportArgs) -> ExitCode {
    match imported(args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(if error.is::<WorkloadError>() { 2 } else { 1 })
        }
    }
}

fn imported(args: &ImportArgs) -> Result<()> {
    let inputs = inputs(&args.files)?;
    if Format::of(&inputs[0]).is_none()
        && let Some(format) = NetworkFormat::of(&inputs[0])
    {
        return imported_network(args, format, &inputs);
    }
    let format = format_of(&inputs)?;
    let options = Options { ranks: args.ranks, element: args.element, bytes: args.bytes };
    let mut found = import(format, &inputs, &options)?;
    let name = args.files[0].file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    found.workload.name = name;
    if let Some(count) = args.ranks_per_host {
        found.workload.hosts = Hosts::Each(count);
    }
    let checked = validate(&found.workload, &inputs[0].name)?;
    if let Some(out) = &args.out {
        written(&found.workload, out)?;
    }
    print!("{}", workload::report(&found.report, inputs.len()));
    if args.summary {
        print!("\n{}", workload::summary(&Summary::new(&found.workload, &checked)));
    }
    Ok(())
}

/// What is in files.
pub fn inputs(files: &[PathBuf]) -> Result<Vec<Input>, WorkloadError> {
    let read = |path: &PathBuf| {
        let name = path.display().to_string();
        Input::new(&name, bytes_of(path, &name)?)
    };
    files.iter().map(read).collect()
}

/// A file's bytes, of which there may be as many as come out of gzip.
fn bytes_of(path: &Path, name: &str) -> Result<Vec<u8>, WorkloadError> {
    let mut bytes = Vec::new();
    fs::File::open(path)
        .and_then(|file| file.take(BYTES_MAX + 1).read_to_end(&mut bytes))
        .map_err(|error| WorkloadError::new(name, format!("cannot be read: {error}")))?;
    if bytes.len() as u64 > BYTES_MAX {
        return Err(WorkloadError::new(name, format!("expected at most {BYTES_MAX} bytes")));
    }
    Ok(bytes)
}

fn imported_network(args: &ImportArgs, format: NetworkFormat, inputs: &[Input]) -> Result<()> {
    if let [_, second, ..] = inputs {
        return Err(WorkloadError::new(&second.name, format!("expected one file of {}", format.name())).into());
    }
    let per_host = args.ranks_per_host.is_some();
    let unused = [
        ("--ranks", args.ranks.is_some()),
        ("--ranks-per-host", per_host),
        ("--element", args.element.is_some()),
        ("--bytes", args.bytes.is_some()),
    ];
    if let Some((name, _)) = unused.iter().find(|(_, given)| *given) {
        return Err(WorkloadError::new(&inputs[0].name, format!("{name}: expected none for a network")).into());
    }
    let found = network::import(format, &inputs[0])?;
    let name = args.files[0].file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    if let Some(out) = &args.out {
        let text = found.network.to_toml(&format!("From {name}, {}.", format.name()));
        fs::write(out, text).with_context(|| format!("{}", out.display()))?;
        println!("wrote {}", out.display());
    }
    print!("{}", workload::report(&found.report, 1));
    if args.summary {
        print!("\n{}", workload::network(&found.network));
    }
    Ok(())
}

/// Writes a workload.
pub fn written(workload: &Workload, out: &Path) -> Result<()> {
    fs::write(out, workload.to_toml()).with_context(|| format!("{}", out.display()))?;
    println!("wrote {}", out.display());
    Ok(())
}

/// The format of all files; process groups beside traces of Chakra are no format of their own.
fn format_of(inputs: &[Input]) -> Result<Format, WorkloadError> {
    let found: Vec<Option<Format>> = inputs.iter().map(Format::of).collect();
    let format = found.iter().flatten().next().copied();
    for (input, one) in inputs.iter().zip(&found) {
        let is_beside = format == Some(Format::Chakra) && input.bytes.first() == Some(&b'{');
        if *one != format && !is_beside {
            let what = match (one, format) {
                (Some(one), Some(format)) => format!("is {}: expected {}, as another of the files", one.name(), format.name()),
                _ => format!("not known: expected {}", known()),
            };
            return Err(WorkloadError::new(&input.name, what));
        }
    }
    format.ok_or_else(|| WorkloadError::new(&inputs[0].name, format!("not known: expected {}", known())))
}

/// The formats that are known.
fn known() -> String {
    let networks = NetworkFormat::ALL.iter().map(|(_, name)| *name);
    Format::ALL.iter().map(|(_, name)| *name).chain(networks).collect::<Vec<_>>().join(", ")
}
