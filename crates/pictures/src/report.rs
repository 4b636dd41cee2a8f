//! `report.html`: results as one page that needs nothing else, neither scripts nor anything from elsewhere.

use std::path::Path;

use anyhow::{Context, Result};
use askama::Template;
use fanin_plan::Plan;
use fanin_plan::computed::Computed;
use fanin_plan::run::Finished;

use crate::rows::Rows;
use crate::{plot, table};

pub mod verdicts;

use verdicts::Verdicts;

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
    /// The paper's claims; `None` where there are none.
    verdicts: Option<Verdicts>,
    sections: &'a [Section],
}

/// The results of one plan.
pub struct Section {
    id: String,
    title: String,
    heading: String,
    /// Runs that are not as they should be.
    problems: Vec<String>,
    /// As SVG.
    pictures: Vec<String>,
    header: Vec<String>,
    /// Columns that are names, not numbers.
    labels: usize,
    rows: Vec<Vec<String>>,
    readme: String,
    plan: String,
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
            pictures: plot::pictures(plan, finished)?.into_iter().map(|(_, svg)| svg).collect(),
            header: cells.header,
            labels: plan.axes.len().max(1),
            rows: cells.rows,
            readme: String::new(),
            plan: plan.text_with_sets(),
        })
    }

    /// What a model gives, without claims.
    ///
    /// # Errors
    /// Those of drawing.
    pub fn of_model(id: &str, title: &str, plan: &Computed) -> Result<Section> {
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
            pictures: plot::computed_pictures(plan)?.into_iter().map(|(_, svg)| svg).collect(),
            header: cells.header,
            labels: rows.parameters(),
            rows: cells.rows,
            readme: String::new(),
            plan: plan.text_with_sets(),
        })
    }

    /// The same with a text above it.
    pub fn with_readme(self, readme: &str) -> Section {
        Section { readme: readme.into(), ..self }
    }
}

/// The page of one plan's results.
///
/// # Errors
/// Those of drawing.
pub fn of_plan(plan: &Plan, finished: &[Finished]) -> Result<String> {
    let name = Path::new(&plan.file).file_stem().map_or(plan.file.clone(), |stem| stem.to_string_lossy().into_owned());
    let section = Section::of_plan("results", &name, plan, finished)?;
    Page { title: &plan.file, version: env!("CARGO_PKG_VERSION"), quick: false, verdicts: None, sections: &[section] }
        .render()
        .context("report")
}

/// The page of a paper's figures.
///
/// # Errors
/// Those of the template.
pub fn of_paper(title: &str, quick: bool, verdicts: Verdicts, sections: &[Section]) -> Result<String> {
    Page { title, version: env!("CARGO_PKG_VERSION"), quick, verdicts: Some(verdicts), sections }.render().context("report")
}
