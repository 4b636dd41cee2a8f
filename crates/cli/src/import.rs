//! `fanin import`: traces and workloads of other tools, as a workload of Fanin's.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Args;
use fanin_workload::import::{Format, Input, Options, import};
use fanin_workload::{Element, Summary, Workload, WorkloadError, validate};

use crate::workload;

/// Arguments of `fanin import`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct ImportArgs {
    /// Files of one format, gzip or not; of traces, one for each rank
    #[arg(required = true)]
    files: Vec<PathBuf>,
    /// Write the workload here
    #[arg(long, required_unless_present = "summary")]
    out: Option<PathBuf>,
    /// Say what is in it
    #[arg(long)]
    summary: bool,
    /// How many ranks there are, where the files do not say
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=i64::from(fanin_workload::RANKS_MAX)))]
    ranks: Option<u32>,
    /// The type of elements, where the files do not say
    #[arg(long, value_parser = element)]
    element: Option<Element>,
}

const AFTER: &str = "\
Workloads: PyTorch profiler (Kineto) JSON, AICB and SimAI (text and CSV), Chakra execution traces (NAME.RANK.et, and process groups as JSON),
GOAL text. The format is told by the content. What cannot be taken over is counted, with the place of the first, and what was assumed is said.
docs/workloads.md describes what is written.
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
    let mut inputs = Vec::new();
    for path in &args.files {
        let name = path.display().to_string();
        let bytes = fs::read(path).map_err(|error| WorkloadError::new(&name, format!("cannot be read: {error}")))?;
        inputs.push(Input::new(&name, bytes)?);
    }
    let format = format_of(&inputs)?;
    let options = Options { ranks: args.ranks, element: args.element };
    let mut found = import(format, &inputs, &options)?;
    let name = args.files[0].file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    found.workload.name = name;
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

/// Writes a workload.
pub fn written(workload: &Workload, out: &std::path::Path) -> Result<()> {
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
            let all = Format::ALL.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
            let what = match (one, format) {
                (Some(one), Some(format)) => format!("is {}: expected {}, as another of the files", one.name(), format.name()),
                _ => format!("not known: expected {all}"),
            };
            return Err(WorkloadError::new(&input.name, what));
        }
    }
    let all = || Format::ALL.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ");
    format.ok_or_else(|| WorkloadError::new(&inputs[0].name, format!("not known: expected {}", all())))
}
