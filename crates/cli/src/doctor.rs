//! `fanin doctor`: whether collectives can run here, what is wrong, and the command that mends it.

use std::process::ExitCode;

use clap::Args;
use fanin_doctor::finding::{self, Level};
use fanin_doctor::{checks, look};

use crate::bench::BenchFormat;

/// Find out whether collectives can run here: configuration, switch, route, MTU, offloads, buffers, shared memory, limits.
///
/// Every line says `ok`, `warning` or `problem`; what is wrong is followed by a command that mends it. Reads the variables that a rank
/// would read (FANIN_*, torchrun's, mpirun's): run it where and as you would run a rank. Exit code 1 where there is a problem.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// The switch that ranks are to use, in place of the configured one.
    #[arg(long, value_name = "HOST:PORT")]
    pub switch: Option<String>,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = BenchFormat::Table)]
    pub format: BenchFormat,
}

/// Runs the command.
pub fn run(args: &DoctorArgs) -> ExitCode {
    let findings = checks::all(&look(args.switch.as_deref()));
    match args.format {
        BenchFormat::Table => print!("{}", finding::text(&findings)),
        BenchFormat::Json => println!("{}", finding::json(&findings)),
    }
    ExitCode::from(u8::from(findings.iter().any(|finding| finding.level == Level::Problem)))
}
