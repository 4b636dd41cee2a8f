//! `fanin repro`: runs a paper's figures and holds what comes out against what the paper says.
//!
//! | module | what it holds |
//! |---|---|
//! | [`catalog`] | where experiments are: plan, claims and README of each figure |
//! | [`claims`] | the schema of claims |
//! | [`tasks`] | what is to be run: plans, and the changed plans of causes |
//! | [`interval`] | what a number of several seeds, of one, or of a plan that draws nothing is worth |
//! | [`evaluate`] | from results to verdicts |
//! | [`causes`] | from changed plans to causes that are shown or refuted |
//! | [`coverage`] | `figures.toml`: everything that a paper shows, and the claims that cover it |
//! | [`output`], [`records`] | table and JSON of verdicts |
//! | [`recorded`], [`tables`] | what full runs gave, as a file of each figure and as the table of its README |

pub mod catalog;
pub mod causes;
pub mod claims;
pub mod coverage;
pub mod evaluate;
pub mod interval;
pub mod output;
pub mod recorded;
pub mod records;
pub mod tables;
pub mod tasks;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use fanin_plan::Plan;
use fanin_plan::run::Finished;

use crate::model::Rows;
use crate::report::{self, Section, of_paper};
use crate::{plot, progress, sim};
use catalog::{Catalog, Figure};
use causes::Tried;
use coverage::Entry;
use evaluate::{Judged, Outcome, judge};
use recorded::Recorded;
use tasks::{FigurePlan, Task};

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
    /// What to print: a table, or an array with one object a claim.
    #[arg(long, value_enum, default_value_t = Format::Table, requires = "paper")]
    pub format: Format,
    /// Runs nothing: takes what full runs gave from the folders that they wrote with --out, and records it beside the plans of --dir, as
    /// verdicts.json and as the table of each README. May be given several times; of a figure the last counts.
    #[arg(long, value_name = "OUT", requires = "paper", requires = "dir")]
    #[arg(conflicts_with_all = ["quick", "out", "no_causes", "set", "threads", "format", "tables"])]
    pub record: Vec<PathBuf>,
    /// Runs nothing: writes what is recorded beside the plans of --dir as the table of each README.
    #[arg(long, requires = "paper", requires = "dir", conflicts_with_all = ["quick", "out", "no_causes", "set", "threads", "format"])]
    pub tables: bool,
}

const REPRO_HELP: &str = "\
Examples:
  fanin repro
  fanin repro canary --quick --out out/canary
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

/// A figure that has been run.
pub struct Done {
    /// Where it is from.
    pub figure: Figure,
    /// The figure's title.
    pub title: String,
    /// Other readings of the text: name, and what is read differently.
    pub readings: Vec<(String, String)>,
    /// What was run.
    pub plan: FigurePlan,
    /// What came out, of a plan that was simulated.
    pub finished: Vec<Finished>,
    /// Whether the plan draws random numbers.
    draws: bool,
    /// What has become of its claims.
    pub judged: Vec<Judged>,
    /// What has become of its causes.
    pub causes: Vec<Tried>,
    /// What the changed plans of its causes gave, by cause.
    of_causes: Vec<(String, FigurePlan, Vec<Finished>)>,
    /// Of all that its verdicts depend on.
    pub digest: String,
    /// Of a quick run, what a full one gave; it may be of another plan or other claims.
    pub recorded: Option<Recorded>,
}

impl Done {
    /// Runs that are not as they should be, in words.
    fn problems(&self) -> Vec<String> {
        let name = &self.figure.name;
        let own = std::iter::once((name.clone(), &self.plan, &self.finished));
        let of_causes = self.of_causes.iter().map(|(cause, plan, finished)| (format!("{name}, cause {cause}"), plan, finished));
        let mut all = Vec::new();
        for (what, plan, finished) in own.chain(of_causes) {
            let FigurePlan::Simulated(plan) = plan else { continue };
            all.extend(bad_runs(&what, plan, finished));
            if !self.draws {
                all.extend(drawn_after_all(&what, plan, finished));
            }
        }
        all
    }

    /// What a full run of the same plan and claims gave.
    pub fn full(&self, claim: &str, reading: Option<&str>) -> Option<Outcome> {
        self.recorded.as_ref().filter(|recorded| recorded.fits(&self.digest))?.outcome(claim, reading)
    }

    /// How many runs there were, causes' too.
    pub fn runs(&self) -> usize {
        self.finished.len() + self.of_causes.iter().map(|(_, _, finished)| finished.len()).sum::<usize>()
    }

    /// Writes results, pictures and plan, and of a full run that is as it should be what can be recorded.
    fn write(&self, folder: &Path, full: bool) -> Result<()> {
        let file = folder.join(recorded::FILE);
        if full && self.problems().is_empty() {
            fs::write(&file, Recorded::of(self).text()).context(recorded::FILE)?;
        } else if file.exists() {
            // That of a run before in the same folder, whose results are not these.
            fs::remove_file(&file).context(recorded::FILE)?;
        }
        match &self.plan {
            FigurePlan::Simulated(plan) => sim::write_folder(folder, plan, &self.finished),
            FigurePlan::Computed(plan) => {
                let rows = Rows::of_plan(plan);
                rows.write_json(&mut File::create(folder.join("results.json"))?).context("results.json")?;
                rows.write_csv(&mut File::create(folder.join("results.csv"))?).context("results.csv")?;
                fs::write(folder.join("plan.toml"), plan.text_with_sets()).context("plan.toml")?;
                plot::write(folder, plot::computed_pictures(plan)?)
            }
        }
    }
}

fn bad_runs(what: &str, plan: &Plan, finished: &[Finished]) -> Vec<String> {
    let bad = finished.iter().filter(|run| !sim::as_expected(plan, run));
    bad.map(|run| {
        let place = plan.describe(&plan.points[run.point]);
        let why = run.record.failure.as_deref().filter(|_| run.record.is_exact()).unwrap_or(&run.record.census);
        format!("{what}: {place}, seed {}: {why}", run.record.seed)
    })
    .collect()
}

/// Runs of a plan that is said to draw nothing, and yet differ by seed.
fn drawn_after_all(what: &str, plan: &Plan, finished: &[Finished]) -> Vec<String> {
    let numbers = |run: &Finished| (run.record.completion_us, run.record.goodput_gbps, run.record.iteration_us);
    let first = |point: usize| finished.iter().find(|run| run.point == point).map(numbers);
    let differing = finished.iter().filter(|run| first(run.point) != Some(numbers(run)));
    differing
        .map(|run| {
            let place = plan.describe(&plan.points[run.point]);
            format!("{what}: {place}, seed {}: its numbers are not those of other seeds; expected so by draws = false", run.record.seed)
        })
        .collect()
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
    let tasks = match tasks::tasks(args, &catalog, paper) {
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

/// `--record` and `--tables`.
fn record(args: &ReproArgs, experiments: &Path, paper: &str) -> ExitCode {
    match recorded::record(experiments, paper, &args.figures, &args.record) {
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
    let threads = args.threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let mut all = Vec::new();
    for task in tasks {
        let mut done = one(task, threads, !args.no_causes)?;
        if !args.quick || !args.set.is_empty() {
            done.recorded = None;
        }
        if let Some(folder) = &args.out {
            let folder = folder.join(&done.figure.name);
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            let full = !args.quick && args.set.is_empty() && !args.no_causes;
            done.write(&folder, full).with_context(|| format!("--out {}", folder.display()))?;
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
        write_all(folder, paper, &all, &entries, args.quick).with_context(|| format!("--out {}", folder.display()))?;
        if args.format == Format::Table {
            put(&report::place(folder))?;
        }
    }
    let problems: Vec<String> = all.iter().flat_map(Done::problems).collect();
    problems.iter().for_each(|problem| eprintln!("error: {problem}"));
    Ok(problems.is_empty())
}

fn simulate(plan: &FigurePlan, threads: usize) -> Result<Vec<Finished>> {
    match plan {
        FigurePlan::Simulated(plan) => Ok(progress::run(plan, threads)?),
        FigurePlan::Computed(_) => Ok(Vec::new()),
    }
}

fn one(task: Task, threads: usize, causes: bool) -> Result<Done> {
    let Task { figure, plan, claims, changed, digest, recorded } = task;
    let finished = simulate(&plan, threads).with_context(|| figure.name.clone())?;
    let judged = plan.with_grid(&finished, |grid| judge(&claims, grid));
    let (mut tried, mut of_causes) = (Vec::new(), Vec::new());
    for (cause, changed) in claims.causes.iter().zip(changed) {
        if !causes {
            tried.push(Tried::skipped(cause, &judged, "--no-causes"));
            continue;
        }
        let Some(changed) = changed else {
            tried.push(plan.with_grid(&finished, |grid| causes::hold(&claims, cause, &judged, grid, grid)));
            continue;
        };
        let after = simulate(&changed, threads).with_context(|| format!("{}, cause {}", figure.name, cause.id))?;
        tried.push(
            plan.with_grid(&finished, |base| changed.with_grid(&after, |changed| causes::hold(&claims, cause, &judged, base, changed))),
        );
        of_causes.push((cause.id.clone(), changed, after));
    }
    let readings = claims.readings.iter().map(|reading| (reading.name.clone(), reading.text.clone())).collect();
    let (title, draws) = (claims.title, claims.draws);
    Ok(Done { title, readings, figure, plan, finished, draws, judged, causes: tried, of_causes, digest, recorded })
}

/// Writes to standard output; whoever reads may have seen enough, as in `fanin repro ... | head`.
fn put(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("standard output"),
    }
}

fn write_all(folder: &Path, paper: &str, all: &[Done], entries: &[Entry], quick: bool) -> Result<()> {
    fs::write(folder.join("claims.json"), records::text(all, quick)).context("claims.json")?;
    let sections = all.iter().map(Section::of_figure).collect::<Result<Vec<_>>>()?;
    let page = of_paper::page(paper, all, &sections, entries, quick)?;
    fs::write(folder.join(report::FILE), page).context(report::FILE)
}
