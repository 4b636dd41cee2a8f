//! `report.html`: results as one page that needs nothing else. Scripts and data are in it; without scripts its pictures and tables are there all
//! the same. The same results give the same bytes.

use std::path::Path;

use anyhow::{Context, Result};
use askama::Template;
use fanin_plan::Plan;
use fanin_plan::computed::Computed;
use fanin_plan::run::Finished;
use serde_json::{Value, json};

use crate::plot::Style;
use crate::plot::chart::Chart;
use crate::rows::Rows;
use crate::{plot, table};

mod data;
pub mod verdicts;
mod views;

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
    style: &'static str,
    script: &'static str,
    /// As JSON.
    data: String,
}

const STYLE: &str = concat!(include_str!("../assets/uplot/uPlot.min.css"), include_str!("../assets/report.css"));
const SCRIPT: &str = concat!(
    "/*\n",
    include_str!("../assets/uplot/LICENSE"),
    "*/\n",
    include_str!("../assets/uplot/uPlot.iife.min.js"),
    include_str!("../assets/report.js"),
    include_str!("../assets/report-network.js"),
    include_str!("../assets/report-end.js")
);

fn page(title: &str, quick: bool, verdicts: Option<Verdicts>, sections: &[Section]) -> Result<String> {
    let of_section = |section: &Section| {
        let figures: Vec<Value> = section.pictures.iter().map(|picture| picture.data.clone()).collect();
        json!({ "id": section.id, "figures": figures, "networks": section.networks, "trees": section.trees })
    };
    let data = json!({ "sections": sections.iter().map(of_section).collect::<Vec<_>>() });
    let data = data::in_page(&data);
    Page { title, version: env!("CARGO_PKG_VERSION"), quick, verdicts, sections, style: STYLE, script: SCRIPT, data }
        .render()
        .context("report")
}

/// A picture of a section.
struct Picture {
    svg: String,
    data: Value,
}

impl Picture {
    fn all(charts: &[(String, Chart)]) -> Result<Vec<Picture>> {
        let one = |(name, chart): &(String, Chart)| {
            let svg = chart.svg(&Style::PAGE).with_context(|| format!("plot {name}"))?;
            Ok(Picture { svg, data: data::figure(name, chart) })
        };
        charts.iter().map(one).collect()
    }
}

/// The results of one plan.
pub struct Section {
    id: String,
    title: String,
    heading: String,
    /// Runs that are not as they should be.
    problems: Vec<String>,
    pictures: Vec<Picture>,
    /// The network of some points over time, for the page's scripts.
    networks: Vec<Value>,
    /// How one block was added up, of some points.
    trees: Vec<Value>,
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
            pictures: Picture::all(&plot::charts(plan, finished)?)?,
            networks: views::networks(plan, finished),
            trees: views::trees(plan, finished),
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
            pictures: Picture::all(&plot::computed_charts(plan)?)?,
            networks: Vec::new(),
            trees: Vec::new(),
            header: cells.header,
            labels: rows.parameters(),
            rows: cells.rows,
            readme: String::new(),
            plan: plan.text_with_sets(),
        })
    }

    /// A table without pictures: its header, its rows, and how many columns are names.
    pub fn of_table(id: &str, title: &str, heading: &str, (header, rows, labels): (Vec<String>, Vec<Vec<String>>, usize)) -> Section {
        Section {
            id: id.into(),
            title: title.into(),
            heading: heading.into(),
            problems: Vec::new(),
            pictures: Vec::new(),
            networks: Vec::new(),
            trees: Vec::new(),
            header,
            labels,
            rows,
            readme: String::new(),
            plan: String::new(),
        }
    }

    /// The same with a plan below it.
    pub fn with_plan(self, plan: &str) -> Section {
        Section { plan: plan.into(), ..self }
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
    page(&plan.file, false, None, &[section])
}

/// A page of sections without claims.
///
/// # Errors
/// Those of the template.
pub fn of_sections(title: &str, sections: &[Section]) -> Result<String> {
    page(title, false, None, sections)
}

/// The page of a paper's figures.
///
/// # Errors
/// Those of the template.
pub fn of_paper(title: &str, quick: bool, verdicts: Verdicts, sections: &[Section]) -> Result<String> {
    page(title, quick, Some(verdicts), sections)
}
