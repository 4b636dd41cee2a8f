//! `fanin operator`: what a module exports, what it may use, whether it does what a job needs, and what it costs beside the sum of floats that is
//! built in.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::{Args, Subcommand};
use fanin_core::{DType, ElementOp, Payload, PayloadOp};
use fanin_operator::{CustomOperator, Faults, Trying, examine, limits};

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
    /// Element type that the operator is for (f32, i64, ...): only values of it are tried. Else elements are taken for every type that fits
    #[arg(long, value_name = "TYPE")]
    dtype: Option<DType>,
    /// What random values are drawn from; the same seed tries the same values
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    seed: u64,
    /// How often all is tried, each time with other random values
    #[arg(long, value_name = "NUMBER", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=10_000))]
    trials: u32,
    /// By how much results of floats may differ between orders, as a part of the largest contribution or result; by default a few units of the
    /// type's precision. Integers may not differ
    #[arg(long, value_name = "RELATIVE", value_parser = tolerance)]
    tolerance: Option<f64>,
}

fn tolerance(text: &str) -> Result<f64, String> {
    let number = text.parse().ok().filter(|number: &f64| (0.0..=1.0).contains(number));
    number.ok_or_else(|| "expected a number from 0 to 1, such as 1e-6".into())
}

const AFTER: &str = "\
What a module has to export, what it may use and what is tried is in docs/operators.md.
Exit codes: 0 it is an operator, 1 it fails or breaks a rule on the vectors that the error names, 2 it is refused.";

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
    let width = operator.layout().element_bytes;
    if let Some(dtype) = args.dtype.filter(|dtype| !width.is_multiple_of(dtype.bytes())) {
        eprintln!("error: --dtype {dtype}: expected a type of which {width} bytes, the operator's element_bytes, are a whole number");
        return ExitCode::from(2);
    }
    describe(&operator);
    let trying = Trying { dtype: args.dtype, seed: args.seed, trials: args.trials, tolerance: args.tolerance };
    match examine_and_compare(&operator, &trying) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

fn examine_and_compare(operator: &CustomOperator, trying: &Trying) -> Result<()> {
    let examined = examine(operator, trying).with_context(|| format!("operator `{}`", operator.name()))?;
    println!("{:<14} {} reductions, by several instances, of zeros, random and extreme values", "tried", examined.reductions);
    println!("{:<14} {}", "order", examined.order);
    compare(operator)
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
    let own = costs(operator.payload_op(&faults)).map_err(|text| anyhow::anyhow!("{}", faults.first().unwrap_or(&text)))?;
    let built_in = costs(ElementOp::F32_SUM.into()).map_err(|text| anyhow::anyhow!(text))?;
    let bytes = packet_bytes(&operator.payload_op(&faults));
    let row = |what: &str, nanoseconds: f64| println!("{what:<14} {nanoseconds:.0} ns a packet of {bytes} bytes");
    row("first", own.first);
    row("combine", own.combine);
    if operator.finishes() {
        row("finish", own.finish);
    }
    println!("{:<14} {:.0} ns a packet of {PAYLOAD_BYTES} bytes, the sum of f32", "built in", built_in.combine);
    println!("{:<14} {:.2}", "ratio", own.combine / built_in.combine);
    Ok(())
}

/// What a packet takes, in ns.
struct Costs {
    /// The first contribution to a block.
    first: f64,
    /// A further one.
    combine: f64,
    /// The result.
    finish: f64,
}

fn packet_bytes(op: &PayloadOp) -> usize {
    PAYLOAD_BYTES / op.element_bytes() * op.element_bytes()
}

/// Measured with packets of zeros, from more memory than a cache holds.
fn costs(mut op: PayloadOp) -> Result<Costs, String> {
    let bytes = packet_bytes(&op);
    let input = vec![0u8; 16 << 20];
    let mut acc = <[u8]>::accumulator(&op, bytes);
    let text = |error: fanin_core::OpError| error.to_string();
    let mut packets = input.chunks_exact(bytes).cycle();
    let mut next = || packets.next().unwrap_or(&input[..bytes]);
    let first = fastest(|| black_box(next()).assign(&mut acc, &mut op).map_err(text))?;
    let combine = fastest(|| black_box(next()).reduce(&mut acc, &mut op).map_err(text))?;
    let finish = fastest(|| <[u8]>::conclude(black_box(&mut acc), &mut op, 1).map_err(text))?;
    Ok(Costs { first, combine, finish })
}

/// What a call takes in ns: the fastest of several rounds.
fn fastest(mut call: impl FnMut() -> Result<(), String>) -> Result<f64, String> {
    let mut fastest = f64::INFINITY;
    for _ in 0..ROUNDS {
        let (begin, mut calls) = (Instant::now(), 0u32);
        while begin.elapsed() < ROUND {
            for _ in 0..CALLS {
                call()?;
            }
            calls += CALLS;
        }
        fastest = fastest.min(begin.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    Ok(fastest)
}
