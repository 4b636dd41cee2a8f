//! `fanin top`: switches, jobs, ranks and links at a glance, from the metrics of switches.

mod scrape;
mod tables;

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::thread;
use std::time::Duration;

use clap::Args;

use crate::quantities;
use scrape::Scrape;

/// Watch switches: jobs, ranks, links, and which rank the others wait for.
///
/// Reads /metrics of `fanin switch --http` and `fanin manager --http`, twice, and shows what has changed in between as rates.
#[derive(Args, Clone, Debug)]
#[command(after_help = AFTER)]
pub struct TopArgs {
    /// Where switches serve their metrics.
    #[arg(value_name = "HOST:PORT", required = true)]
    pub switches: Vec<String>,
    /// How often to look, as 1s.
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = quantities::seconds)]
    pub interval: f64,
    /// Show it once and end.
    #[arg(long)]
    pub once: bool,
}

const AFTER: &str = "\
goodput: bytes of results a second. last: the share of the job's sums that waited for this rank at the end. waited: how much of each second these
sums had nothing else to wait for; the rank with most of it slows the job down.

Exit codes: 0 all is well (with --once), 2 an argument is wrong or no switch answers.";

/// Shows it until a signal ends the program, or once.
pub fn run(args: &TopArgs) -> ExitCode {
    if !(0.05..=3_600.0).contains(&args.interval) {
        eprintln!("error: --interval {}s: expected 50ms to 1h", args.interval);
        return ExitCode::from(2);
    }
    let scrape = || -> Vec<Result<Scrape, String>> { args.switches.iter().map(|address| Scrape::fetch(address)).collect() };
    let mut before = scrape();
    if before.iter().all(Result::is_err) {
        before.iter().filter_map(|scrape| scrape.as_ref().err()).for_each(|error| eprintln!("error: {error}"));
        return ExitCode::from(2);
    }
    loop {
        thread::sleep(Duration::from_secs_f64(args.interval));
        let now = scrape();
        let text = tables::render(&args.switches, &before, &now);
        let is_live = !args.once && io::stdout().is_terminal();
        // To the top left, and what is below is gone.
        let clear = if is_live { "\x1b[H\x1b[J" } else { "" };
        if let Err(error) = write!(io::stdout(), "{clear}{text}").and_then(|()| io::stdout().flush()) {
            // Whoever reads has gone.
            let is_closed = error.kind() == io::ErrorKind::BrokenPipe;
            return if is_closed { ExitCode::SUCCESS } else { ExitCode::from(2) };
        }
        if args.once {
            return ExitCode::SUCCESS;
        }
        before = now;
    }
}
