//! `fanin compare`: two results side by side: what changed, by how much, and whether that is more than noise.
//!
//! | module | what it holds |
//! |---|---|
//! | [`read`] | results and plans from files |
//! | [`differences`] | what there is to say of two numbers |

mod differences;
mod read;

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, ContentArrangement, Table};
use fanin_pictures::report::{self, Section};
use fanin_pictures::table::{STYLE, number_text};
use serde_json::{Value, json};

use differences::{Compared, Point, Verdict};
use read::Results;

/// Compare two results of `fanin sim`: what changed, by how much, within noise or not.
///
/// Runs belong together by series and swept keys. Repetitions with the same seed are compared with each other.
#[derive(Args, Clone, Debug)]
#[command(after_help = HELP)]
pub struct CompareArgs {
    /// A folder that `fanin sim --out` has written, or its results.json: before.
    pub a: PathBuf,
    /// The same: after.
    pub b: PathBuf,
    /// Only these numbers of results.json. [default: all]
    #[arg(long, value_name = "NAME,..", value_delimiter = ',')]
    pub metrics: Vec<String>,
    /// Shows numbers that have not changed, too.
    #[arg(long)]
    pub all: bool,
    /// What to print.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Folder for report.html and compare.json; made where it is missing.
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// When the exit code is 1.
    #[arg(long, value_enum, default_value_t = FailOn::Never)]
    pub fail_on: FailOn,
}

const HELP: &str = "\
Examples:
  fanin sim plan.toml --out out/before
  fanin sim plan.toml --set jobs.0.window=64 --out out/after
  fanin compare out/before out/after
  fanin compare out/before out/after --metrics goodput_gbps,completion_us --fail-on change
  fanin compare out/before out/after --format json | jq '.counts'

Intervals are at 95 %: Student's t around the mean of the differences by seed; where the seeds differ, from the lowest to the highest that
both means' intervals allow. One seed alone is taken to be off by a tenth. The same versions give the same numbers for the same plan and
seed, so two versions whose results differ at all differ in what they do: --fail-on difference.";

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// Everything.
    Json,
}

/// When the exit code is 1.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum FailOn {
    /// Whatever has changed.
    Never,
    /// A number has changed by more than noise, or runs are missing.
    Change,
    /// Any number differs, or runs are missing.
    Difference,
}

/// Runs the command: 0 if all is well, 1 as `--fail-on` says or where a file cannot be written, 2 if the input is wrong.
pub fn run(args: &CompareArgs) -> ExitCode {
    let read = |path| Results::read(path).and_then(|results| results.check(&args.metrics).map(|()| results));
    let (a, b) = match read(&args.a).and_then(|a| read(&args.b).map(|b| (a, b))) {
        Ok(both) => both,
        Err(error) => {
            eprintln!("error: {error:#}");
            return ExitCode::from(2);
        }
    };
    let compared = Compared::new(&a, &b, &args.metrics);
    match args.format {
        Format::Table => print!("{}", text(args, &a, &b, &compared)),
        Format::Json => println!("{:#}", json_of(&a, &b, &compared)),
    }
    if let Err(error) = write(args, &a, &b, &compared) {
        eprintln!("error: {error:#}");
        return ExitCode::from(1);
    }
    let fails = match args.fail_on {
        FailOn::Never => false,
        FailOn::Change => compared.is_changed(|verdict| verdict == Verdict::Changed),
        FailOn::Difference => compared.is_changed(|verdict| verdict != Verdict::Same),
    };
    ExitCode::from(u8::from(fails))
}

fn write(args: &CompareArgs, a: &Results, b: &Results, compared: &Compared) -> Result<()> {
    let Some(folder) = &args.out else { return Ok(()) };
    let wrong = || format!("--out {}", folder.display());
    std::fs::create_dir_all(folder).with_context(wrong)?;
    std::fs::write(folder.join("compare.json"), format!("{:#}\n", json_of(a, b, compared))).with_context(wrong)?;
    std::fs::write(folder.join(report::FILE), page(args, a, b, compared)?).with_context(wrong)?;
    if args.format == Format::Table {
        print!("{}", report::place(folder));
    }
    Ok(())
}

const HEADER: [&str; 8] = ["runs", "number", "before", "after", "difference", "ratio", "interval (%)", "verdict"];

/// A row of the table: the first two cells are names.
fn row(point: &Point, metric: &differences::Metric) -> [String; 8] {
    let percent = |value: f64| format!("{:+.2}", value * 100.0);
    let interval = metric.relative.map_or("-".into(), |(low, high)| format!("{}..{}", percent(low), percent(high)));
    let ratio = metric.ratio().map_or("-".into(), |ratio| format!("{ratio:.4}"));
    let seeds = if metric.seeds == 1 && metric.verdict != Verdict::Same { " (1 seed)" } else { "" };
    [
        point.label.clone(),
        metric.name.clone(),
        number_text(metric.a),
        number_text(metric.b),
        format!("{}{}", if metric.b > metric.a { "+" } else { "" }, number_text(metric.b - metric.a)),
        ratio,
        interval,
        format!("{}{seeds}", metric.verdict.text()),
    ]
}

fn rows(compared: &Compared, all: bool) -> Vec<[String; 8]> {
    let of_point = |point: &Point| -> Vec<[String; 8]> {
        point.metrics.iter().filter(|metric| all || metric.verdict != Verdict::Same).map(|metric| row(point, metric)).collect()
    };
    compared.points.iter().flat_map(of_point).collect()
}

/// What the results are, and what differs between their plans.
fn heading(a: &Results, b: &Results, compared: &Compared) -> Vec<String> {
    let mut lines: Vec<String> = [("before", a), ("after", b)].map(|(what, results)| format!("{what}: {}", results.describe())).into();
    if let (Some(plan), Some(other)) = (&a.plan, &b.plan) {
        let changes = read::plan_changes(plan, other);
        lines.extend(changes.iter().map(|(key, a, b)| format!("plan: {key}: {a} -> {b}")));
        if changes.is_empty() {
            lines.push("plan: the same".into());
        }
    }
    for (what, points) in [("before", &compared.only_a), ("after", &compared.only_b)] {
        lines.extend(points.iter().map(|point| format!("only {what}: {point}")));
    }
    let [same, noise, changed] = compared.counts();
    lines.push(format!(
        "{} numbers of {} points: {same} the same, {noise} within noise, {changed} changed",
        same + noise + changed,
        compared.points.len()
    ));
    if changed + noise > 20 {
        lines.push("Of numbers that only chance tells apart, about one in twenty seems changed.".into());
    }
    lines
}

fn text(args: &CompareArgs, a: &Results, b: &Results, compared: &Compared) -> String {
    let mut text = String::new();
    for line in heading(a, b, compared) {
        let _ = writeln!(text, "{line}");
    }
    let rows = rows(compared, args.all);
    if rows.is_empty() {
        return text;
    }
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled).set_header(HEADER);
    for column in table.column_iter_mut().skip(2).take(5) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    table.add_rows(rows);
    for line in table.lines() {
        let _ = writeln!(text, "{}", line.trim_end());
    }
    text
}

fn json_of(a: &Results, b: &Results, compared: &Compared) -> Value {
    let metric = |metric: &differences::Metric| {
        json!({
            "name": metric.name, "before": metric.a, "after": metric.b, "difference": metric.b - metric.a, "ratio": metric.ratio(),
            "interval": metric.relative.map(|(low, high)| [low, high]), "seeds": metric.seeds, "paired": metric.paired,
            "verdict": metric.verdict.text(),
        })
    };
    let points: Vec<Value> = compared
        .points
        .iter()
        .map(|point| json!({ "runs": point.label, "numbers": point.metrics.iter().map(metric).collect::<Vec<_>>() }))
        .collect();
    let changes = a.plan.as_ref().zip(b.plan.as_ref()).map(|(a, b)| read::plan_changes(a, b));
    let changes =
        changes.map(|changes| changes.into_iter().map(|(key, a, b)| json!({ "key": key, "before": a, "after": b })).collect::<Vec<_>>());
    let [same, noise, changed] = compared.counts();
    json!({
        "before": a.json(), "after": b.json(), "plan": changes, "only_before": compared.only_a, "only_after": compared.only_b,
        "counts": { "same": same, "noise": noise, "changed": changed }, "points": points,
    })
}

fn page(args: &CompareArgs, a: &Results, b: &Results, compared: &Compared) -> Result<String> {
    let title = format!("{} and {}", args.a.display(), args.b.display());
    let header = HEADER.map(String::from).to_vec();
    let rows = rows(compared, true).into_iter().map(|row| row.to_vec()).collect();
    let section = Section::of_table("compare", "before and after", &heading(a, b, compared).join("; "), (header, rows, 2))
        .with_plan(b.text.as_deref().or(a.text.as_deref()).unwrap_or_default());
    report::of_sections(&title, &[section])
}
