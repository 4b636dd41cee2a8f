//! What is shown while the demo runs: in a terminal a bar for each worker, elsewhere a line now and then. All of it goes to standard
//! error, and none of it is left when the results are printed.

use std::io::{IsTerminal, stderr};
use std::time::{Duration, Instant};

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::DemoArgs;
use super::messages::{Ended, Live};
use super::report::Iteration;

/// How many workers get a bar of their own.
const BARS_MAX: u32 = 16;
/// Steps of a bar.
const STEPS: u64 = 1_000;
/// How often there is a line where there is no terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// What all workers are doing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    /// Vectors are made.
    Preparing,
    /// The operation runs.
    Summing,
    /// Results are compared with the sums that they must be.
    Comparing,
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Phase::Preparing => "making vectors",
            Phase::Summing => "summing",
            Phase::Comparing => "comparing every element",
        }
    }
}

/// One worker.
#[derive(Clone, Copy, Debug, Default)]
struct Row {
    /// The part of the result that is there.
    done: f64,
    /// Of the running operation, or of the last one, in 10^6 bytes a second.
    mb_per_s: f64,
    sent_again: u64,
}

/// How it is shown.
enum Screen {
    Bars(Bars),
    /// When the last line was written.
    Lines(Instant),
    Closed,
}

struct Bars {
    all: MultiProgress,
    head: ProgressBar,
    workers: Vec<ProgressBar>,
}

/// What the user sees.
pub(super) struct View {
    screen: Screen,
    title: String,
    path: String,
    iteration: u32,
    iterations: u32,
    phase: Phase,
    bytes: u64,
    rows: Vec<Row>,
    last_notice: String,
}

impl View {
    /// Shows nothing yet but what is going to run.
    pub(super) fn open(args: &DemoArgs) -> Self {
        let screen = if stderr().is_terminal() { Screen::Bars(bars(args.workers)) } else { Screen::Lines(Instant::now()) };
        let view = View {
            screen,
            title: format!(
                "{}: {} workers, {} bytes of float32",
                args.system.as_deref().unwrap_or(if args.fabric.is_some() { "fabric" } else { "switchml" }),
                args.workers,
                args.size
            ),
            path: String::new(),
            iteration: 0,
            iterations: args.iterations,
            phase: Phase::Preparing,
            bytes: args.size,
            rows: vec![Row::default(); args.workers as usize],
            last_notice: String::new(),
        };
        view.show_head();
        view
    }

    /// How vectors travel.
    pub(super) fn travels(&mut self, path: &str) {
        self.path = format!("over {path}\n");
        self.show_head();
    }

    /// An iteration begins.
    pub(super) fn begin(&mut self, iteration: u32) {
        self.iteration = iteration;
        self.rows.iter_mut().for_each(|row| row.done = 0.0);
        self.phase(Phase::Preparing);
        (0..self.rows.len()).for_each(|rank| self.show_row(rank));
    }

    /// The workers do something else.
    pub(super) fn phase(&mut self, phase: Phase) {
        self.phase = phase;
        self.show_head();
    }

    /// A worker says how far it is.
    pub(super) fn on_live(&mut self, rank: u32, live: &Live) {
        // What was under way when the operation ended.
        let Some(row) = self.rows.get_mut(rank as usize).filter(|_| self.phase == Phase::Summing) else { return };
        *row = Row { done: live.done, mb_per_s: rate(live.done * self.bytes as f64, live.seconds), sent_again: live.sent_again };
        self.show_row(rank as usize);
        self.show_line(live.seconds);
    }

    /// The operation has ended at all workers.
    pub(super) fn finished(&mut self, iteration: &Iteration) {
        for (rank, row) in self.rows.iter_mut().enumerate() {
            if iteration.ended[rank] == Some(Ended::Done) {
                (row.done, row.mb_per_s) = (1.0, rate(self.bytes as f64, iteration.seconds[rank]));
            }
        }
        (0..self.rows.len()).for_each(|rank| self.show_row(rank));
        self.phase(Phase::Comparing);
    }

    /// Something that the user should know; several workers may say the same.
    pub(super) fn on_notice(&mut self, text: &str) {
        if self.last_notice == text {
            return;
        }
        text.clone_into(&mut self.last_notice);
        match &self.screen {
            // Above the bars. A terminal that is gone shows nothing.
            Screen::Bars(bars) => drop(bars.all.println(text)),
            Screen::Lines(_) | Screen::Closed => eprintln!("{text}"),
        }
    }

    /// Makes room for the results.
    pub(super) fn close(&mut self) {
        if let Screen::Bars(bars) = std::mem::replace(&mut self.screen, Screen::Closed) {
            let _ = bars.all.clear();
        }
    }

    fn show_head(&self) {
        if let Screen::Bars(bars) = &self.screen {
            let (iteration, phase) = ((self.iteration + 1).min(self.iterations), self.phase.name());
            bars.head.set_message(format!("{}\n{}iteration {iteration} of {}: {phase}", self.title, self.path, self.iterations));
        }
    }

    fn show_row(&self, rank: usize) {
        let Screen::Bars(Bars { workers, .. }) = &self.screen else { return };
        if let (Some(bar), Some(row)) = (workers.get(rank), self.rows.get(rank)) {
            bar.set_position((row.done * STEPS as f64) as u64);
            bar.set_message(format!("{:>8.1} MB/s {:>7} packets sent again", row.mb_per_s, row.sent_again));
        }
    }

    /// A sign of life where there is no terminal.
    fn show_line(&mut self, seconds: f64) {
        let Screen::Lines(last) = &mut self.screen else { return };
        if last.elapsed() < LINE_INTERVAL {
            return;
        }
        *last = Instant::now();
        let done = self.rows.iter().map(|row| row.done).sum::<f64>() / self.rows.len() as f64;
        let rate = rate(done * self.bytes as f64, seconds);
        let sent_again: u64 = self.rows.iter().map(|row| row.sent_again).sum();
        let (iteration, of) = (self.iteration + 1, self.iterations);
        let percent = done * 100.0;
        eprintln!("iteration {iteration} of {of}: {percent:.0} % done, {rate:.1} MB/s, {sent_again} packets sent again up to now");
    }
}

/// Bytes a second, in 10^6.
fn rate(bytes: f64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes / seconds / 1e6 } else { 0.0 }
}

fn bars(workers: u32) -> Bars {
    let all = MultiProgress::with_draw_target(ProgressDrawTarget::stderr_with_hz(10));
    let style = |template: &str| ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
    let line = |template: &str| all.add(ProgressBar::new(STEPS).with_style(style(template).progress_chars("=> ")));
    let head = line("{msg}");
    let bars = (0..workers.min(BARS_MAX))
        .map(|rank| line("worker {prefix:>3} [{bar:30.cyan}] {percent:>3} %{msg}").with_prefix(rank.to_string()))
        .collect();
    if workers > BARS_MAX {
        line("{msg}").set_message(format!("... and {} workers more", workers - BARS_MAX));
    }
    Bars { all, head, workers: bars }
}
