//! The files of a paper's results: a folder for each figure, and the page of them all.

use std::fs::{self, File};
use std::path::Path;

use anyhow::{Context, Result};
use fanin_pictures::folder::write_folder;
use fanin_pictures::paper::{self, Paper, ToPdf};
use fanin_pictures::rows::Rows;
use fanin_pictures::{plot, report};

use super::catalog::RECORD_FILE;
use super::coverage::Entry;
use super::figure::Done;
use super::recorded::Recorded;
use super::tasks::{FigurePlan, How};
use super::{page, records};

/// Writes results, pictures and plan into the figure's folder below `folder`, and of a full run that is as it should be what can be recorded.
///
/// # Errors
/// Those of drawing and of writing files, with the folder's name.
pub fn write_figure(folder: &Path, done: &Done, how: &How<'_>) -> Result<()> {
    let folder = folder.join(&done.figure.name);
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let full = !how.quick && how.sets.is_empty() && how.causes;
    write_files(done, &folder, full).with_context(|| format!("--out {}", folder.display()))
}

/// Writes the figure's pictures once more, as those of a journal, into a folder of this name in the figure's.
///
/// # Errors
/// Those of drawing and of writing files, with the folder's name.
pub fn write_for_journal(folder: &Path, done: &Done, name: &str, paper: Paper, to_pdf: Option<ToPdf>) -> Result<()> {
    let folder = folder.join(&done.figure.name).join(name);
    match &done.plan {
        FigurePlan::Simulated(plan) => paper::write(&folder, plan, &done.finished, paper, to_pdf),
        FigurePlan::Computed(plan) => paper::write_computed(&folder, plan, paper, to_pdf),
    }
    .with_context(|| format!("--figures {name}"))
}

fn write_files(done: &Done, folder: &Path, full: bool) -> Result<()> {
    let file = folder.join(RECORD_FILE);
    if full && done.problems().is_empty() {
        fs::write(&file, Recorded::of(&done.digest, &done.judged, &done.causes).text()).context(RECORD_FILE)?;
    } else if file.exists() {
        // That of a run before in the same folder, whose results are not these.
        fs::remove_file(&file).context(RECORD_FILE)?;
    }
    match &done.plan {
        FigurePlan::Simulated(plan) => write_folder(folder, plan, &done.finished),
        FigurePlan::Computed(plan) => {
            let rows = Rows::of_plan(plan);
            rows.write_json(&mut File::create(folder.join("results.json"))?).context("results.json")?;
            rows.write_csv(&mut File::create(folder.join("results.csv"))?).context("results.csv")?;
            fs::write(folder.join("plan.toml"), plan.text_with_sets()).context("plan.toml")?;
            plot::write(folder, plot::computed_pictures(plan)?)
        }
    }
}

/// Writes claims and the page of all figures that were run into `folder`; `entries` is what the paper shows.
///
/// # Errors
/// Those of drawing and of writing files.
pub fn write_paper(folder: &Path, paper: &str, all: &[Done], entries: &[Entry], quick: bool) -> Result<()> {
    fs::write(folder.join("claims.json"), records::text(all, quick)).context("claims.json")?;
    let sections = all.iter().map(page::section).collect::<Result<Vec<_>>>()?;
    let page = page::page(paper, all, &sections, entries, quick)?;
    fs::write(folder.join(report::FILE), page).context(report::FILE)
}
