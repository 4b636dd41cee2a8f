//! `fanin repro`: runs a paper's figures and holds what comes out against what the paper says.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use fanin_pictures::report;
use fanin_plan::files;
use fanin_plan::run::view::Looks;
use fanin_repro::catalog::Catalog;
use fanin_repro::figure::Done;
use fanin_repro::folder::{write_figure, write_for_journal, write_paper};
use fanin_repro::tasks::{How, Task, tasks};
use fanin_repro::{output, recording, records};
use fanin_simulate::progress::{self, Where};
use fanin_simulate::sim::Journal;

use crate::pdf;

/// Reproduce a paper's figures: run their plans, and hold what comes out against what the paper says.
#[derive(Args, Clone, Debug)]
#[command(after_help = REPRO_HELP)]
pub struct ReproArgs {
    /// The paper; lists papers and figures where it is not given.
    pub paper: Option<String>,
    /// Its figures; all where none is given.
    pub figures: Vec<String>,
    /// Fewer repetitions and points, as each figure's claims.toml says: for a first look.
    #[arg(long, requires = "paper")]
    pub quick: bool,
    /// Folder for report.html and claims.json, and a folder with results, plots and plan for each figure.
    #[arg(long, value_name = "DIR", requires = "paper")]
    pub out: Option<PathBuf>,
    /// Writes the pictures once more, as figures for papers: NAME.svg and NAME.pdf in DIR/FIGURE/ieee or DIR/FIGURE/acm, as wide as a column, in 8-point letters with serifs.
    #[arg(long = "figures", value_enum, value_name = "JOURNAL", requires = "out")]
    pub journal: Option<Journal>,
    /// Experiments in this folder, DIR/PAPER/FIGURE/plan.toml and claims.toml, in place of those in the program.
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
    /// Does not run the changed plans by which causes are shown or refuted.
    #[arg(long, requires = "paper")]
    pub no_causes: bool,
    /// Changes a value of every plan, after what --quick changes. May be given several times.
    #[arg(long, value_name = "KEY=VALUE", requires = "paper")]
    pub set: Vec<String>,
    /// Runs at the same time; results do not depend on it. [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), requires = "paper")]
    pub threads: Option<u16>,
    /// Where runs are computed in place of here: a number of local processes, a Dask scheduler (tcp://HOST:8786), or Ray (ray, ray://HOST:10001). Needs Python with Fanin's package, by FANIN_PYTHON or as python3. Results do not depend on it.
    #[arg(long, value_name = "ADDRESS", requires = "paper", conflicts_with = "threads")]
    pub executor: Option<String>,
    /// What to print: a table, or an array with one object a claim.
    #[arg(long, value_enum, default_value_t = Format::Table, requires = "paper")]
    pub format: Format,
    /// Runs nothing: takes what full runs gave from the folders that they wrote with --out, and records it beside the plans of --dir, as
    /// verdicts.json and as the table of each README. May be given several times; of a figure the last counts.
    #[arg(long, value_name = "OUT", requires = "paper", requires = "dir")]
    #[arg(conflicts_with_all = ["quick", "out", "no_causes", "set", "threads", "executor", "format", "tables", "journal"])]
    pub record: Vec<PathBuf>,
    /// Runs nothing: writes what is recorded beside the plans of --dir as the table of each README.
    #[arg(long, requires = "paper", requires = "dir", conflicts_with_all = ["quick", "out", "no_causes", "set", "threads", "executor", "format"])]
    pub tables: bool,
}

const REPRO_HELP: &str = "\
Examples:
  fanin repro
  fanin repro canary --quick --out out/canary
  fanin repro canary fig08 --out out/fig08 --figures ieee
  fanin repro canary fig08 --format json | jq '.[] | {claim, measured, verdict}'
  fanin repro canary fig08 --dir experiments --record out/canary

A verdict comes from the seeds that a plan is run with: reproduced or not reproduced where the 95 % interval of what is measured
(Student's t around the mean) lies wholly inside or outside of the window, undecided where it lies across an edge. An order needs a
margin: 1 % where a claim does not say its own, of differences by seed. One seed of a plan that draws random numbers has no interval:
it is taken to be off by a tenth to either side, and marked (1 seed). Reported: measured, and nothing to hold it against. Cannot be
tested here: not measured. Claims of the class consistency could not fail, and are counted apart.
--quick shows beside its own verdict that of the full run which is recorded, where it is another.
A cause is run as a changed plan: cause shown, cause refuted, or cause not tested; --no-causes saves its time.
A claim that is not reproduced is a result, not an error.
Exit codes: 0 every run was exact, 1 a run failed or was not exact, 2 the input is wrong.";

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One object a claim.
    Json,
}

/// Runs the command: 0 if every run was exact, 1 if one failed or was not exact, 2 if the input is wrong.
pub fn run(args: &ReproArgs) -> ExitCode {
    let catalog = args.dir.clone().map_or(Catalog::Embedded, Catalog::Folder);
    let Some(paper) = &args.paper else {
        print!("{}", list(&catalog));
        return ExitCode::SUCCESS;
    };
    if let Some(experiments) = args.dir.as_ref().filter(|_| args.tables || !args.record.is_empty()) {
        return record(args, experiments, paper);
    }
    if args.executor.is_some() {
        // What plans read has to go along with them.
        files::keep();
    }
    let tasks = match tasks(&how(args), &catalog, paper, &args.figures) {
        Ok(tasks) => tasks,
        Err(error) => {
            eprintln!("error: {error}");
            return ExitCode::from(2);
        }
    };
    if let Some(folder) = &args.out
        && let Err(error) = fs::create_dir_all(folder)
    {
        eprintln!("error: --out {}: expected a folder that can be written to: {error}", folder.display());
        return ExitCode::from(2);
    }
    match reproduce(args, &catalog, paper, tasks) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
        }
    }
}

/// What of the arguments says how a figure is run.
fn how(args: &ReproArgs) -> How<'_> {
    How { quick: args.quick, sets: &args.set, causes: !args.no_causes }
}

/// `--record` and `--tables`.
fn record(args: &ReproArgs, experiments: &Path, paper: &str) -> ExitCode {
    match recording::record(experiments, paper, &args.figures, &args.record) {
        Ok(figures) => {
            let _ = put(&format!("{paper}: {}\n", figures.join(", ")));
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

/// Papers and their figures.
fn list(catalog: &Catalog) -> String {
    let mut text = String::new();
    for paper in catalog.papers() {
        text.push_str(&format!("{paper}: {}\n", catalog.figures(&paper).join(", ")));
    }
    if text.is_empty() { "no experiments\n".into() } else { text }
}

/// Runs all figures; whether all runs ended as they should.
fn reproduce(args: &ReproArgs, catalog: &Catalog, paper: &str, tasks: Vec<Task>) -> Result<bool> {
    let mut place = Where::new(args.threads, args.executor.as_deref())?;
    let how = how(args);
    let mut all = Vec::new();
    for task in tasks {
        let done = Done::run(task, &how, &mut |plan| progress::run(plan, &mut place, Looks::default()).map(|(finished, _)| finished))?;
        if let Some(folder) = &args.out {
            write_figure(folder, &done, &how)?;
            if let Some(journal) = args.journal {
                write_for_journal(folder, &done, journal.name(), journal.into(), Some(pdf::of))?;
            }
        }
        if args.format == Format::Table {
            put(&output::table(&done, args.quick))?;
        }
        all.push(done);
    }
    if args.format == Format::Json {
        put(&records::text(&all, args.quick))?;
    } else {
        put(&output::summary(&all))?;
    }
    if let Some(folder) = &args.out {
        let entries = catalog.coverage(paper)?;
        write_paper(folder, paper, &all, &entries, args.quick).with_context(|| format!("--out {}", folder.display()))?;
        if args.format == Format::Table {
            put(&report::place(folder))?;
        }
    }
    let problems: Vec<String> = all.iter().flat_map(Done::problems).collect();
    problems.iter().for_each(|problem| eprintln!("error: {problem}"));
    Ok(problems.is_empty())
}

/// Writes to standard output; whoever reads may have seen enough, as in `fanin repro ... | head`.
fn put(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("standard output"),
    }
}
