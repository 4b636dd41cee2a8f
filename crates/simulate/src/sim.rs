//! `fanin sim`: from the command line to files and exit code.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use fanin_pictures::folder::write_folder;
use fanin_pictures::paper::{self, ToPdf};
use fanin_pictures::table::as_expected;
use fanin_pictures::{report, table};
use fanin_plan::columns::write_csv;
use fanin_plan::results::{RunRecord, write_json};
use fanin_plan::run::view::Looks;
use fanin_plan::run::{self, Finished};
use fanin_plan::traced::{Traced, Wanted};
use fanin_plan::{Plan, PlanError, files};

use crate::examples::Example;
use crate::progress::{self, Where};

/// Simulate a plan: network, jobs, traffic, faults, sweep and repetitions in a TOML file.
#[derive(Args, Clone, Debug)]
#[command(after_help = SIM_HELP)]
pub struct SimArgs {
    /// The plan.
    #[arg(required_unless_present = "example")]
    pub plan: Option<PathBuf>,
    /// An example of those that are in the program, in place of a file: `fanin examples` lists them.
    #[arg(long, value_name = "NAME", conflicts_with = "plan")]
    pub example: Option<String>,
    /// Folder for results.json, results.csv, links.csv, jobs.csv where there are several jobs, communication.csv where they have workloads, memory.csv and series.csv where they are sampled, plan.toml, about.json, plots and report.html; made where it is missing.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Writes the pictures once more, as figures for papers: NAME.svg and NAME.pdf in DIR/ieee or DIR/acm, as wide as a column, in 8-point letters with serifs.
    #[arg(long, value_enum, requires = "out")]
    pub figures: Option<Journal>,
    /// Seed of the first repetition, in place of the plan's.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(..=i64::MAX as u64))]
    pub seed: Option<u64>,
    /// Threads: as many runs at the same time, and where there are fewer runs, each of a large network on several. Results do not depend on it. [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub threads: Option<u16>,
    /// Where runs are computed in place of here: a number of local processes, a Dask scheduler (tcp://HOST:8786), or Ray (ray, ray://HOST:10001). Needs Python with Fanin's package, by FANIN_PYTHON or as python3. Results do not depend on it.
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["threads", "check", "trace"])]
    pub executor: Option<String>,
    /// Changes a value of the plan. A key that the plan sweeps over is fixed. May be given several times.
    #[arg(long, value_name = "KEY=VALUE")]
    pub set: Vec<String>,
    /// Writes what each rank of a job with a workload did when, in the plan's first run, for https://ui.perfetto.dev and chrome://tracing.
    #[arg(long, value_name = "FILE.json", conflicts_with = "check")]
    pub trace: Option<PathBuf>,
    /// Adds the blocks of one collective to --trace, from a rank's first packet to its result. 0:data:3 is job 0's first group of the kind data and its collective 3, 0:data/5:3 the group with the number 5; of a job without a workload 0:3.
    #[arg(long, value_name = "JOB:GROUP:NUMBER", requires = "trace")]
    pub trace_blocks: Option<String>,
    /// Adds the queues before links to --trace, by their ends: host0-switch0 is from host 0 to the switch.
    #[arg(long, value_name = "FROM-TO,..", value_delimiter = ',', requires = "trace")]
    pub trace_links: Vec<String>,
    /// Check the plan and list its runs without running them.
    #[arg(long, conflicts_with_all = ["out", "threads", "format"])]
    pub check: bool,
    /// What to print: a summary, or one row (csv) or object of an array (json) for each run.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
}

const SIM_HELP: &str = "\
Examples:
  fanin sim examples/quickstart.toml --out out/quickstart
  fanin sim --example quickstart
  fanin sim plan.toml --out out/plan --figures ieee
  fanin sim plan.toml --set jobs.0.message=1MiB --set 'sweep.jobs.0.trees=[1, 2, 4]'
  fanin sim examples/workload.toml --trace step.json --trace-blocks 0:data:0 --trace-links leaf0-spine0
  fanin sim plan.toml --format json | jq '.[] | {series, goodput_gbps}'

Every result but wall_s depends on plan and seed only. The seed of a row with --set run.repetitions=1 repeats that row's run.";

/// Whose columns figures are for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Journal {
    /// Columns of 3.5 in; letters like Times.
    Ieee,
    /// Columns of 3.33 in; letters like Libertine.
    Acm,
}

impl Journal {
    /// Its name in `--figures`, and that of the folder.
    pub fn name(self) -> &'static str {
        match self {
            Journal::Ieee => "ieee",
            Journal::Acm => "acm",
        }
    }
}

impl From<Journal> for paper::Paper {
    fn from(journal: Journal) -> Self {
        match journal {
            Journal::Ieee => paper::IEEE,
            Journal::Acm => paper::ACM,
        }
    }
}

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// A summary for people.
    Table,
    /// A row a run.
    Csv,
    /// An array with an object a run, each on a line of its own.
    Json,
}

/// Runs the command: 0 if all is well, 1 if a run failed or was not exact, 2 if the input is wrong. Without `to_pdf` figures are SVG alone.
pub fn run(args: &SimArgs, to_pdf: Option<ToPdf>) -> ExitCode {
    // Before an example's folder may become the one that paths begin at.
    let absolute = |path: &PathBuf| std::path::absolute(path).unwrap_or_else(|_| path.clone());
    let (out, trace) = (args.out.as_ref().map(absolute), args.trace.as_ref().map(absolute));
    if args.executor.is_some() {
        // What plans read has to go along with them.
        files::keep();
    }
    let loaded = match load(args) {
        Ok(loaded) => loaded,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    let plan = loaded.plan();
    if args.check {
        print!("{}", table::runs(plan));
        return ExitCode::SUCCESS;
    }
    if let (Some(named), Some(folder)) = (&args.out, &out)
        && let Err(error) = fs::create_dir_all(folder)
    {
        eprintln!("error: --out {}: expected a folder that can be written to: {error}", named.display());
        return ExitCode::from(2);
    }
    let wanted = args.trace.as_ref().map(|_| Wanted::new(plan, args.trace_blocks.as_deref(), &args.trace_links)).transpose();
    let wanted = match wanted {
        Ok(wanted) => wanted,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    match simulate(args, (plan, wanted.as_ref()), (out.as_deref(), trace.as_deref()), to_pdf) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// What is to be simulated.
enum Loaded {
    File(Plan),
    Example(Example),
}

impl Loaded {
    fn plan(&self) -> &Plan {
        match self {
            Loaded::File(plan) | Loaded::Example(Example { plan, .. }) => plan,
        }
    }
}

/// Reads and checks the plan, or the example.
fn load(args: &SimArgs) -> Result<Loaded, PlanError> {
    let Some(path) = &args.plan else {
        return Example::load(args.example.as_deref().unwrap_or_default(), &args.set, args.seed).map(Loaded::Example);
    };
    Plan::load(path, &args.set, args.seed).and_then(|plan| run::check(&plan).map(|()| Loaded::File(plan)))
}

/// Whether all runs ended as they should; `out` and `trace` are where `--out` and `--trace` are.
fn simulate(
    args: &SimArgs,
    (plan, wanted): (&Plan, Option<&Wanted>),
    (out, trace): (Option<&Path>, Option<&Path>),
    to_pdf: Option<ToPdf>,
) -> Result<bool> {
    let mut place = Where::new(args.threads, args.executor.as_deref())?;
    let (finished, traced) = progress::run(plan, &mut place, Looks { wanted, page: out.is_some() })?;
    progress::say_cores(&finished, args.threads.is_some());
    if let (Some(named), Some(folder)) = (&args.out, out) {
        let page = report::of_plan(plan, &finished)?;
        fs::write(folder.join(report::FILE), page).context(report::FILE)?;
        write_folder(folder, plan, &finished).with_context(|| format!("--out {}", named.display()))?;
        if let Some(journal) = args.figures {
            paper::write(&folder.join(journal.name()), plan, &finished, journal.into(), to_pdf)
                .with_context(|| format!("--figures {}", journal.name()))?;
        }
    }
    if let (Some(named), Some(file), Some(traced)) = (&args.trace, trace, traced) {
        write_trace(&traced, file).with_context(|| format!("--trace {}", named.display()))?;
    }
    print(args, plan, &finished).context("standard output")?;
    Ok(finished.iter().all(|run| as_expected(plan, run)))
}

fn write_trace(traced: &Traced, file: &Path) -> Result<()> {
    let mut out = BufWriter::new(File::create(file)?);
    traced.write(&mut out)?;
    out.flush().context("cannot be written")?;
    let (left_out, kept) = traced.blocks_left_out();
    if left_out > 0 {
        eprintln!("note: --trace-blocks: the trace has the first {kept} blocks, each counted at each rank; {left_out} are left out");
    }
    Ok(())
}

fn print(args: &SimArgs, plan: &Plan, finished: &[Finished]) -> io::Result<()> {
    let records: Vec<&RunRecord> = finished.iter().map(|run| &run.record).collect();
    let mut out = BufWriter::new(io::stdout().lock());
    let written = match args.format {
        Format::Table => {
            let report = args.out.as_ref().map_or(String::new(), |folder| report::place(folder));
            out.write_all(table::summary(plan, finished).as_bytes()).and_then(|()| out.write_all(report.as_bytes()))
        }
        Format::Csv => write_csv(&records, &mut out).map_err(io::Error::other),
        Format::Json => write_json(&records, false, &mut out),
    };
    if args.format != Format::Table {
        let bad = finished.iter().filter(|run| !as_expected(plan, run)).count();
        if bad > 0 {
            eprintln!("{bad} of {} runs did not end as they should", records.len());
        }
    }
    match written.and_then(|()| out.flush()) {
        // Whoever reads has seen enough, as in `fanin sim ... | head`.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other,
    }
}
