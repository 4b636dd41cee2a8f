//! Runs seeds and prints what is not as it must be: `campaign [--first S] [--seeds N] [--threads T] [--once] [--verbose]`.

use std::process::ExitCode;

use fanin_check::{Checks, campaign, generate};

const USAGE: &str = "usage: campaign [--first SEED] [--seeds COUNT] [--threads COUNT] [--once] [--verbose]";

struct Arguments {
    first: u64,
    seeds: u64,
    checks: Checks,
    verbose: bool,
}

fn arguments() -> Result<Arguments, String> {
    let mut arguments = Arguments { first: 0, seeds: 1_000, checks: Checks::default(), verbose: false };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            let value = words.next().ok_or_else(|| format!("{word} needs a number"))?;
            value.parse::<u64>().map_err(|error| format!("{word} {value}: {error}"))
        };
        match word.as_str() {
            "--first" => arguments.first = number()?,
            "--seeds" => arguments.seeds = number()?,
            "--threads" => arguments.checks.threads = number()? as usize,
            "--once" => (arguments.checks.twice, arguments.checks.elements) = (false, false),
            "--verbose" => arguments.verbose = true,
            _ => return Err(format!("unknown argument {word}")),
        }
    }
    Ok(arguments)
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(what) => {
            eprintln!("{what}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    if arguments.verbose {
        (arguments.first..arguments.first + arguments.seeds).for_each(|seed| println!("{}", generate(seed)));
    }
    let report = campaign(arguments.first, arguments.seeds, arguments.checks);
    report.findings.iter().take(20).for_each(|finding| println!("{finding}"));
    println!("{report}");
    if report.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
