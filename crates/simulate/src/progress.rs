//! How far a plan has been run.

use fanin_plan::Plan;
use fanin_plan::run::view::Looks;
use fanin_plan::run::{self, Finished, RunError};
use fanin_plan::traced::Traced;
use indicatif::{ProgressBar, ProgressStyle};

/// Runs all points of a plan, with a bar on a terminal and nothing in a pipe; runs are looked at for what is wanted.
///
/// # Errors
/// As [`run::run`].
pub fn run(plan: &Plan, threads: usize, looks: Looks<'_>) -> Result<(Vec<Finished>, Option<Traced>), RunError> {
    let style = ProgressStyle::with_template("{bar:40} {pos}/{len} runs, {elapsed} (about {eta} left)").expect("a valid template");
    let bar = ProgressBar::new(run::runs(plan).len() as u64).with_style(style);
    bar.tick();
    let finished = run::run_and_look(plan, threads, looks, || {
        bar.inc(1);
        true
    });
    bar.finish_and_clear();
    finished
}
