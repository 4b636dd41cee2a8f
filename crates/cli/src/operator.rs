//! `fanin operator`: what a module exports, what it may use, and what it costs beside the sum of floats that is built in.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::{Args, Subcommand};
use fanin_core::{ElementOp, Payload, PayloadOp};
use fanin_operator::{CustomOperator, Faults, limits};

/// Bytes of elements in a packet, about.
const PAYLOAD_BYTES: usize = 1 << 10;
/// How long one round of a measurement takes, and how many there are: the fastest round counts, which others have disturbed least.
const ROUND: Duration = Duration::from_millis(20);
const ROUNDS: u32 = 9;
/// How often it is looked at the clock.
const CALLS: u32 = 256;

/// What to do with a module.
#[derive(Subcommand, Debug)]
pub enum OperatorCommand {
    /// Check a module, say what it is, and measure what it costs beside the built-in sum of floats.
    Check(CheckArgs),
}

/// Arguments of `fanin operator check`.
#[derive(Args, Debug)]
#[command(after_help = AFTER)]
pub struct CheckArgs {
    /// The module, in WebAssembly's binary format
    file: PathBuf,
}

const AFTER: &str = "\
What a module has to export, and what it may use, is in docs/operators.md.
Exit codes: 0 it is an operator, 1 it fails when it is given zeros, 2 it is refused.";

/// Runs the command.
pub fn run(command: &OperatorCommand) -> ExitCode {
    let OperatorCommand::Check(args) = command;
    let operator = match read(&args.file) {
        Ok(operator) => operator,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(2);
        }
    };
    describe(&operator);
    match compare(&operator) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn read(file: &Path) -> Result<CustomOperator> {
    let module = fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
    let name = file.file_stem().map_or_else(|| "operator".into(), |stem| stem.to_string_lossy().into_owned());
    CustomOperator::from_wasm(&name, &module).with_context(|| file.display().to_string())
}

fn describe(operator: &CustomOperator) {
    let (layout, row) = (operator.layout(), |what: &str, value: String| println!("{what:<14} {value}"));
    row("operator", operator.name().into());
    row("module", format!("{} bytes of at most {}, sha256 {}", operator.module().len(), limits::MODULE_BYTES_MAX, operator.digest()));
    row("element", format!("{} bytes", layout.element_bytes));
    let place = if layout.is_beside() { "" } else { ", the element itself" };
    row("accumulator", format!("{} bytes{place}", layout.accumulator_bytes));
    row("finish", if operator.finishes() { "yes" } else { "none: a result is what has accumulated" }.into());
    let fuel = limits::fuel(PAYLOAD_BYTES);
    row("limits", format!("{fuel} units of fuel a call of {PAYLOAD_BYTES} bytes, {} MiB of memory", limits::MEMORY_BYTES_MAX >> 20));
}

/// Measures the operator, and beside it what is built in.
fn compare(operator: &CustomOperator) -> Result<()> {
    let faults = Faults::default();
    let own = nanoseconds(operator.payload_op(&faults)).map_err(|text| anyhow::anyhow!("{}", faults.first().unwrap_or(&text)))?;
    let built_in = match nanoseconds(ElementOp::F32_SUM.into()) {
        Ok(built_in) => built_in,
        Err(error) => bail!(error),
    };
    let bytes = PAYLOAD_BYTES / operator.layout().element_bytes * operator.layout().element_bytes;
    println!("{:<14} {own:.0} ns a packet of {bytes} bytes", "combine");
    println!("{:<14} {built_in:.0} ns a packet of {PAYLOAD_BYTES} bytes, the sum of f32", "built in");
    println!("{:<14} {:.2}", "ratio", own / built_in);
    Ok(())
}

/// What adding a packet to an accumulator takes: the fastest of several rounds. Packets of zeros, from more memory than a cache holds.
fn nanoseconds(mut op: PayloadOp) -> Result<f64, String> {
    let bytes = PAYLOAD_BYTES / op.element_bytes() * op.element_bytes();
    let input = vec![0u8; 16 << 20];
    let mut acc = <[u8]>::accumulator(&op, bytes);
    let text = |error: fanin_core::OpError| error.to_string();
    input[..bytes].assign(&mut acc, &mut op).map_err(text)?;
    let mut packets = input.chunks_exact(bytes).cycle();
    let mut fastest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (begin, mut calls) = (Instant::now(), 0u32);
        while begin.elapsed() < ROUND {
            for _ in 0..CALLS {
                let packet = packets.next().unwrap_or(&input[..bytes]);
                black_box(packet).reduce(&mut acc, &mut op).map_err(text)?;
            }
            calls += CALLS;
        }
        fastest = fastest.min(begin.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    Ok(fastest)
}
