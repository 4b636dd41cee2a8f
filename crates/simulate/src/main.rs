//! The part of the `fanin` program that simulates. It takes half of the time to build.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use fanin_simulate::{examples, sim};
use fanin_terminal::log::{self, LogFormat};
use fanin_terminal::output;

/// The part of Fanin that simulates: as `fanin sim`, and built in half of the time.
#[derive(Parser, Debug)]
#[command(name = "fanin-simulate", version, max_term_width = 110)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    /// Simulate a plan.
    Sim(sim::SimArgs),
    /// List the examples that are in the program, or write them into a folder.
    Examples(examples::ExamplesArgs),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    // Nobody else handles signals of that kind here.
    fanin_operator::find_traps_by_signals();
    log::begin("warn", LogFormat::Text, true);
    output::finish(match &arguments.command {
        Command::Sim(args) => sim::run(args, None),
        Command::Examples(args) => examples::run(args),
    })
}
