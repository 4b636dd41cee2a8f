//! How far a plan has been run.

use std::io::IsTerminal;
use std::thread;

use fanin_plan::Plan;
use fanin_plan::elsewhere::run_elsewhere;
use fanin_plan::run::view::Looks;
use fanin_plan::run::{self, Finished, RunError};
use fanin_plan::traced::Traced;
use indicatif::{ProgressBar, ProgressStyle};

use crate::executor::Executor;

/// Where runs are computed.
pub enum Where {
    /// Here, by so many threads.
    Here(usize),
    /// By others.
    Elsewhere(Executor),
}

impl Where {
    /// As the arguments say. What plans have read goes along with them only if it was [kept](fanin_plan::files::keep).
    ///
    /// # Errors
    /// An executor cannot be started.
    pub fn new(threads: Option<u16>, executor: Option<&str>) -> anyhow::Result<Where> {
        match executor {
            Some(address) => Ok(Where::Elsewhere(Executor::start(address).map_err(anyhow::Error::msg)?)),
            None => Ok(Where::Here(threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from))),
        }
    }
}

/// A bar for so many parts of work, on a terminal; nothing in a pipe.
///
/// # Panics
/// Never: the template is valid.
pub fn bar(parts: u64, what: &str) -> ProgressBar {
    let template = format!("{{bar:40}} {{pos}}/{{len}} {what}, {{per_sec}}, {{elapsed}} (about {{eta}} left)");
    let bar = ProgressBar::new(parts).with_style(ProgressStyle::with_template(&template).expect("a valid template"));
    bar.tick();
    bar
}

/// Runs all points of a plan, with a bar on a terminal and nothing in a pipe; runs are looked at for what is wanted, the first one in detail
/// here only.
///
/// # Errors
/// As [`run::run`].
pub fn run(plan: &Plan, place: &mut Where, looks: Looks<'_>) -> Result<(Vec<Finished>, Option<Traced>), RunError> {
    let bar = bar(run::runs(plan).len() as u64, "runs");
    let step = |runs: usize| {
        bar.inc(runs as u64);
        true
    };
    let finished = match place {
        Where::Here(threads) => run::run_and_look(plan, *threads, looks, || step(1)),
        Where::Elsewhere(executor) => run_elsewhere(plan, executor, looks.page, step).map(|finished| (finished, None)),
    };
    bar.finish_and_clear();
    finished
}

/// Says on standard error why runs had one core where more were free for them, and somebody may want to know: there is a terminal, or a number of
/// threads was `asked` for.
pub fn say_cores(finished: &[Finished], asked: bool) {
    if !asked && !std::io::stderr().is_terminal() {
        return;
    }
    let mut whys: Vec<(&str, usize)> = Vec::new();
    for why in finished.iter().filter_map(|run| run.cores.one_core) {
        match whys.iter_mut().find(|(known, _)| *known == why) {
            Some((_, count)) => *count += 1,
            None => whys.push((why, 1)),
        }
    }
    for (why, count) in whys {
        eprintln!("note: {count} of {} runs used one core only: {why}", finished.len());
    }
}
