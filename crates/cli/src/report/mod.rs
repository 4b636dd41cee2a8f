//! `report.html`: results as one page that needs nothing else, neither scripts nor anything from elsewhere.

use std::path::Path;

use anyhow::{Context, Result};
use askama::Template;
use fanin_plan::Plan;
use fanin_plan::computed::Computed;
use fanin_plan::run::Finished;

use crate::model::Rows;
use crate::repro::evaluate::{Judged, Outcome, Verdict};
use crate::repro::output::{measured_text, number_text, window_text};
use crate::repro::{Done, Ran};
use crate::{plot, table};

/// The page's file.
pub const FILE: &str = "report.html";

/// Where the page is, said under a table.
pub fn place(folder: &Path) -> String {
    format!("report: {}\n", folder.join(FILE).display())
}

/// A page.
#[derive(Template)]
#[template(path = "report.html")]
struct Page<'a> {
    title: &'a str,
    version: &'static str,
    quick: bool,
    /// How many claims have which verdict; `None` where there are no claims.
    counts: Option<Vec<Count>>,
    sections: &'a [Section],
}

struct Count {
    number: usize,
    text: &'static str,
    class: String,
}

/// The results of one plan.
pub struct Section {
    id: String,
    title: String,
    heading: String,
    /// Runs that are not as they should be.
    problems: Vec<String>,
    readings: Vec<(String, String)>,
    claims: Vec<ClaimRow>,
    /// As SVG.
    pictures: Vec<String>,
    header: Vec<String>,
    /// Columns that are names, not numbers.
    labels: usize,
    rows: Vec<Vec<String>>,
    readme: String,
    plan: String,
    verdicts: Vec<Verdict>,
}

/// A claim, or the same claim in another reading.
struct ClaimRow {
    name: String,
    is_reading: bool,
    text: String,
    reason: Option<String>,
    paper: String,
    measured: String,
    window: String,
    verdict: &'static str,
    class: String,
}

/// The name of a verdict's style.
fn class(verdict: Verdict) -> String {
    verdict.text().replace(' ', "-")
}

impl Section {
    /// The results of a plan without claims.
    ///
    /// # Errors
    /// Those of drawing.
    pub fn of_plan(id: &str, title: &str, plan: &Plan, finished: &[Finished]) -> Result<Section> {
        let cells = table::cells(plan, finished);
        Ok(Section {
            id: id.into(),
            title: title.into(),
            heading: table::heading(plan, finished).trim().to_string(),
            problems: table::problems(plan, finished),
            readings: Vec::new(),
            claims: Vec::new(),
            pictures: plot::pictures(plan, finished)?.into_iter().map(|(_, svg)| svg).collect(),
            header: cells.header,
            labels: plan.axes.len().max(1),
            rows: cells.rows,
            readme: String::new(),
            plan: plan.text_with_sets(),
            verdicts: Vec::new(),
        })
    }

    /// What a model gives, without claims.
    fn of_model(id: &str, title: &str, plan: &Computed) -> Result<Section> {
        let rows = Rows::of_plan(plan);
        let cells = rows.cells();
        Ok(Section {
            id: id.into(),
            title: title.into(),
            heading: format!(
                "{}: computed, as `fanin model {}` does. {}",
                plan.file,
                plan.model.name,
                rows.legend().trim().replace('\n', "; ")
            ),
            problems: Vec::new(),
            readings: Vec::new(),
            claims: Vec::new(),
            pictures: plot::computed_pictures(plan)?.into_iter().map(|(_, svg)| svg).collect(),
            header: cells.header,
            labels: rows.parameters(),
            rows: cells.rows,
            readme: String::new(),
            plan: plan.text_with_sets(),
            verdicts: Vec::new(),
        })
    }

    /// The results of a figure, with its claims.
    ///
    /// # Errors
    /// Those of drawing.
    pub fn of_figure(done: &Done) -> Result<Section> {
        let (id, title) = (&done.figure.name, &done.title);
        let mut section = match &done.ran {
            Ran::Simulated { plan, finished } => Section::of_plan(id, title, plan, finished)?,
            Ran::Computed(plan) => Section::of_model(id, title, plan)?,
        };
        section.readings.clone_from(&done.readings);
        section.readme.clone_from(&done.figure.readme);
        for judged in &done.judged {
            section.verdicts.push(judged.outcome.verdict);
            section.claims.push(claim_row(judged, &judged.outcome, None));
            section.claims.extend(judged.readings.iter().map(|(name, outcome)| claim_row(judged, outcome, Some(name))));
        }
        Ok(section)
    }
}

fn claim_row(judged: &Judged, outcome: &Outcome, reading: Option<&str>) -> ClaimRow {
    let claim = &judged.claim;
    ClaimRow {
        name: reading.map_or_else(|| claim.id.clone(), |name| format!("{name} reading")),
        is_reading: reading.is_some(),
        text: if reading.is_some() { String::new() } else { claim.text.clone() },
        reason: outcome.reason.clone(),
        paper: claim.paper.map_or("-".into(), number_text),
        measured: measured_text(&outcome.measured),
        window: window_text(judged),
        verdict: outcome.verdict.text(),
        class: class(outcome.verdict),
    }
}

/// The page of one plan's results.
///
/// # Errors
/// Those of drawing.
pub fn of_plan(plan: &Plan, finished: &[Finished]) -> Result<String> {
    let name = Path::new(&plan.file).file_stem().map_or(plan.file.clone(), |stem| stem.to_string_lossy().into_owned());
    let section = Section::of_plan("results", &name, plan, finished)?;
    Page { title: &plan.file, version: env!("CARGO_PKG_VERSION"), quick: false, counts: None, sections: &[section] }
        .render()
        .context("report")
}

/// The page of a paper's figures.
///
/// # Errors
/// Those of the template.
pub fn of_paper(paper: &str, sections: &[Section], quick: bool) -> Result<String> {
    let count = |verdict: Verdict| Count {
        number: sections.iter().flat_map(|section| &section.verdicts).filter(|other| **other == verdict).count(),
        text: verdict.text(),
        class: class(verdict),
    };
    let counts = [Verdict::Reproduced, Verdict::NotReproduced, Verdict::CannotBeTested].map(count);
    let title = format!("{paper}, reproduced");
    Page { title: &title, version: env!("CARGO_PKG_VERSION"), quick, counts: Some(counts.into()), sections }.render().context("report")
}
