//! What full runs gave, put beside the plans: records, and tables in READMEs.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::catalog::{Catalog, RECORD_FILE};
use super::recorded::{Recorded, digest};
use super::{tables, tasks};

/// What has to be written of a figure.
struct Change {
    folder: PathBuf,
    record: String,
    readme: Option<String>,
}

/// Takes what full runs gave, from the folders that they wrote, and puts it beside the plans of `experiments`: records, and tables in
/// READMEs. Without such folders it writes the tables of what is recorded. The figures that were written.
///
/// # Errors
/// Where something is missing, is of another plan or other claims, or cannot be written; nothing is written then but by the last.
pub fn record(experiments: &Path, paper: &str, figures: &[String], runs: &[PathBuf]) -> Result<Vec<String>> {
    let catalog = Catalog::Folder(experiments.to_path_buf());
    let known = catalog.figures(paper);
    if known.is_empty() {
        bail!("{paper:?}: expected one of {}", catalog.papers().join(", "));
    }
    if let Some(figure) = figures.iter().find(|figure| !known.contains(figure)) {
        bail!("{figure:?}: expected one of {}", known.join(", "));
    }
    let mut changes = Vec::new();
    for name in known.iter().filter(|name| figures.is_empty() || figures.contains(name)) {
        match source(experiments, paper, name, runs)? {
            Some(file) => changes.push((name.clone(), change(&catalog, experiments, paper, name, &file)?)),
            None if figures.is_empty() => {}
            None => bail!("{name}: expected a folder of this name in what --record names, or {RECORD_FILE} beside its plan"),
        }
    }
    if changes.is_empty() {
        bail!("{paper}: nothing to record, and nothing that is recorded");
    }
    for (_, Change { folder, record, readme }) in &changes {
        let put = |file: &str, text: &str| fs::write(folder.join(file), text).with_context(|| folder.join(file).display().to_string());
        put(RECORD_FILE, record)?;
        readme.as_ref().map_or(Ok(()), |text| put("README.md", text))?;
    }
    Ok(changes.into_iter().map(|(name, _)| name).collect())
}

/// The record that counts for a figure: of several runs that of the last.
fn source(experiments: &Path, paper: &str, figure: &str, runs: &[PathBuf]) -> Result<Option<PathBuf>> {
    if runs.is_empty() {
        let own = experiments.join(paper).join(figure).join(RECORD_FILE);
        return Ok(own.is_file().then_some(own));
    }
    let Some(folder) = runs.iter().rev().map(|run| run.join(figure)).find(|folder| folder.is_dir()) else { return Ok(None) };
    let file = folder.join(RECORD_FILE);
    if !file.is_file() {
        bail!(
            "{}: expected it there; only a full run writes it, with causes, without --quick and --set, and if nothing failed",
            file.display()
        );
    }
    Ok(Some(file))
}

fn change(catalog: &Catalog, experiments: &Path, paper: &str, name: &str, file: &Path) -> Result<Change> {
    let shown = file.display().to_string();
    let text = fs::read_to_string(file).with_context(|| shown.clone())?;
    let record = Recorded::parse(&shown, &text)?;
    let figure = catalog.figure(paper, name)?;
    let (_, claims) = tasks::read(&figure)?;
    let digest = digest(catalog, &figure, &claims)?;
    if !record.fits(&digest) {
        bail!("{shown}: expected what was run with the plan and the claims that are there now, {digest}: run {name} again");
    }
    let table = || tables::table(paper, name, &record.judged(&claims), &record.tried(&claims));
    let inserted = || tables::insert(&figure.readme, &table()).with_context(|| figure.file("README.md"));
    let readme = (!figure.readme.is_empty()).then(inserted).transpose()?;
    Ok(Change { folder: experiments.join(paper).join(name), record: record.text(), readme })
}
