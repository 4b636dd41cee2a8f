//! `fanin repro`: runs a paper's figures and holds what comes out against what the paper says.
//!
//! | module | what it holds |
//! |---|---|
//! | [`catalog`] | where experiments are: plan, claims and README of each figure |
//! | [`claims`] | the schema of claims |
//! | [`evaluate`] | from results to verdicts |
//! | [`output`] | table and JSON of verdicts |

pub mod catalog;
pub mod claims;
pub mod evaluate;
pub mod output;

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use fanin_plan::computed::{Computed, is_computed};
use fanin_plan::metrics::Fields;
use fanin_plan::run::{self, Finished};
use fanin_plan::{Plan, PlanError};

use crate::grid::Simulated;
use crate::model::Rows;
use crate::report::{self, Section};
use crate::{plot, progress, sim};
use catalog::{Catalog, Figure};
use claims::Claims;
use evaluate::{Judged, judge};

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
    /// Changes a value of every plan, after what --quick changes. May be given several times.
    #[arg(long, value_name = "KEY=VALUE", requires = "paper")]
    pub set: Vec<String>,
    /// Runs at the same time; results do not depend on it. [default: all cores]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..), requires = "paper")]
    pub threads: Option<u16>,
    /// What to print: a table, or an array with one object a claim.
    #[arg(long, value_enum, default_value_t = Format::Table, requires = "paper")]
    pub format: Format,
}

const REPRO_HELP: &str = "\
Examples:
  fanin repro
  fanin repro canary --quick --out out/canary
  fanin repro canary fig08 --format json | jq '.[] | {claim, measured, verdict}'

A verdict is one of: reproduced, not reproduced, cannot be tested here. A claim that is not reproduced is a result, not an error.
Exit codes: 0 every run was exact, 1 a run failed or was not exact, 2 the input is wrong.";

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// One object a claim.
    Json,
}

/// A figure, read and checked.
struct Task {
    figure: Figure,
    plan: FigurePlan,
    claims: Claims,
}

/// How a figure is made.
enum FigurePlan {
    /// By simulation.
    Simulated(Plan),
    /// By a model's formulas; its numbers are there already.
    Computed(Computed),
}

/// What a figure's plan gave.
pub enum Ran {
    /// By simulation.
    Simulated {
        /// What was run.
        plan: Plan,
        /// What came out.
        finished: Vec<Finished>,
    },
    /// By a model's formulas.
    Computed(Computed),
}

/// A figure that has been run.
pub struct Done {
    /// Where it is from.
    pub figure: Figure,
    /// The figure's title.
    pub title: String,
    /// Other readings of the text: name, and what is read differently.
    pub readings: Vec<(String, String)>,
    /// What was run, and what came out.
    pub ran: Ran,
    /// What has become of its claims.
    pub judged: Vec<Judged>,
}

impl Done {
    /// Runs that are not as they should be, in words.
    fn problems(&self) -> Vec<String> {
        let Ran::Simulated { plan, finished } = &self.ran else { return Vec::new() };
        let bad = finished.iter().filter(|run| !sim::as_expected(plan, run));
        bad.map(|run| {
            let place = plan.describe(&plan.points[run.point]);
            let what = run.record.failure.as_deref().filter(|_| run.record.is_exact()).unwrap_or(&run.record.census);
            format!("{}: {place}, seed {}: {what}", self.figure.name, run.record.seed)
        })
        .collect()
    }

    /// Writes results, pictures and plan.
    fn write(&self, folder: &Path) -> Result<()> {
        match &self.ran {
            Ran::Simulated { plan, finished } => sim::write_folder(folder, plan, finished),
            Ran::Computed(plan) => {
                let rows = Rows::of_plan(plan);
                rows.write_json(&mut File::create(folder.join("results.json"))?).context("results.json")?;
                rows.write_csv(&mut File::create(folder.join("results.csv"))?).context("results.csv")?;
                fs::write(folder.join("plan.toml"), plan.text_with_sets()).context("plan.toml")?;
                plot::write(folder, plot::computed_pictures(plan)?)
            }
        }
    }
}

/// Runs the command: 0 if every run was exact, 1 if one failed or was not exact, 2 if the input is wrong.
pub fn run(args: &ReproArgs) -> ExitCode {
    let catalog = args.dir.clone().map_or(Catalog::Embedded, Catalog::Folder);
    let Some(paper) = &args.paper else {
        print!("{}", list(&catalog));
        return ExitCode::SUCCESS;
    };
    let tasks = match tasks(args, &catalog, paper) {
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
    match reproduce(args, paper, tasks) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(1)
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

/// Reads everything before anything is run.
fn tasks(args: &ReproArgs, catalog: &Catalog, paper: &str) -> Result<Vec<Task>, PlanError> {
    let known = catalog.figures(paper);
    if known.is_empty() {
        let what = format!("{paper:?}: expected one of {}", catalog.papers().join(", "));
        return Err(PlanError::new("fanin repro", what));
    }
    if let Some(figure) = args.figures.iter().find(|figure| !known.contains(figure)) {
        return Err(PlanError::new("fanin repro", format!("{figure:?}: expected one of {}", known.join(", "))));
    }
    let chosen = if args.figures.is_empty() { &known } else { &args.figures };
    chosen.iter().map(|name| task(args, catalog.figure(paper, name)?)).collect()
}

fn task(args: &ReproArgs, figure: Figure) -> Result<Task, PlanError> {
    let (file, claims_file) = (figure.file("plan.toml"), figure.file("claims.toml"));
    let sets = |claims: &Claims| -> Vec<String> {
        let quick = if args.quick { claims.quick.set.as_slice() } else { &[] };
        quick.iter().chain(&args.set).cloned().collect()
    };
    if is_computed(&file, &figure.plan)? {
        let whole = Computed::parse(&file, &figure.plan, &[])?;
        let claims = Claims::parse(&claims_file, &figure.claims, &whole.axes, Fields::Model(whole.model))?;
        let plan = Computed::parse(&file, &figure.plan, &sets(&claims))?;
        return Ok(Task { figure, plan: FigurePlan::Computed(plan), claims });
    }
    let whole = Plan::parse(&file, &figure.plan, &[], None)?;
    let claims = Claims::parse(&claims_file, &figure.claims, &whole.axes, Fields::Simulated)?;
    let sets = sets(&claims);
    let plan = if sets.is_empty() { whole } else { Plan::parse(&file, &figure.plan, &sets, None)? };
    run::check(&plan)?;
    Ok(Task { figure, plan: FigurePlan::Simulated(plan), claims })
}

/// Runs all figures; whether all runs ended as they should.
fn reproduce(args: &ReproArgs, paper: &str, tasks: Vec<Task>) -> Result<bool> {
    let threads = args.threads.map_or_else(|| thread::available_parallelism().map_or(1, usize::from), usize::from);
    let mut all = Vec::new();
    for task in tasks {
        let done = one(task, threads)?;
        if let Some(folder) = &args.out {
            let folder = folder.join(&done.figure.name);
            fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
            done.write(&folder).with_context(|| format!("--out {}", folder.display()))?;
        }
        if args.format == Format::Table {
            put(&output::table(&done, args.quick))?;
        }
        all.push(done);
    }
    if args.format == Format::Json {
        put(&output::json(&all, args.quick))?;
    } else {
        put(&output::summary(&all))?;
    }
    if let Some(folder) = &args.out {
        write_all(folder, paper, &all, args.quick).with_context(|| format!("--out {}", folder.display()))?;
        if args.format == Format::Table {
            put(&report::place(folder))?;
        }
    }
    let problems: Vec<String> = all.iter().flat_map(Done::problems).collect();
    problems.iter().for_each(|problem| eprintln!("error: {problem}"));
    Ok(problems.is_empty())
}

fn one(task: Task, threads: usize) -> Result<Done> {
    let Task { figure, plan, claims } = task;
    let ran = match plan {
        FigurePlan::Simulated(plan) => {
            let finished = progress::run(&plan, threads).with_context(|| figure.name.clone())?;
            Ran::Simulated { plan, finished }
        }
        FigurePlan::Computed(plan) => Ran::Computed(plan),
    };
    let judged = match &ran {
        Ran::Simulated { plan, finished } => judge(&claims, &Simulated { plan, finished }),
        Ran::Computed(plan) => judge(&claims, plan),
    };
    let readings = claims.readings.iter().map(|reading| (reading.name.clone(), reading.text.clone())).collect();
    Ok(Done { title: claims.title, readings, figure, ran, judged })
}

/// Writes to standard output; whoever reads may have seen enough, as in `fanin repro ... | head`.
fn put(text: &str) -> Result<()> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.context("standard output"),
    }
}

fn write_all(folder: &Path, paper: &str, all: &[Done], quick: bool) -> Result<()> {
    fs::write(folder.join("claims.json"), output::json(all, quick)).context("claims.json")?;
    let sections = all.iter().map(Section::of_figure).collect::<Result<Vec<_>>>()?;
    let page = report::of_paper(paper, &sections, quick)?;
    fs::write(folder.join(report::FILE), page).context(report::FILE)
}
