//! The page of a paper: all of its claims in one table, with verdicts, readings and causes, and what of the paper has no claim.

use anyhow::Result;
use fanin_pictures::report::verdicts::{CauseRow, ClaimRow, Count, EntryRow, FigureRows, Verdicts};
use fanin_pictures::report::{Section, of_paper};
use fanin_pictures::table::number_text;

use super::causes::{Finding, Tried};
use super::coverage::Entry;
use super::evaluate::{Judged, Outcome, Verdict};
use super::figure::Done;
use super::output::{changed_text, counts, full_text, measured_text, seeds_text, spread_text, verdict_text, window_text};
use super::tasks::FigurePlan;

/// The name of a verdict's style.
fn style(text: &str) -> String {
    text.replace(' ', "-")
}

/// The page of a paper's figures.
///
/// # Errors
/// Those of the template.
pub fn page(paper: &str, all: &[Done], sections: &[Section], entries: &[Entry], quick: bool) -> Result<String> {
    let counted = counts(all);
    let of_verdicts = |counts: &[(Verdict, usize)], always: bool| -> Vec<Count> {
        let kept = counts.iter().filter(|(_, number)| always || *number > 0);
        kept.map(|(verdict, number)| Count { number: *number, text: verdict.text(), style: style(verdict.text()) }).collect()
    };
    let causes = counted.causes.iter().filter(|(_, number)| *number > 0);
    let causes = causes.map(|(finding, number)| Count { number: *number, text: finding.text(), style: style(finding.text()) });
    let verdicts = Verdicts {
        claims: of_verdicts(&counted.claims, true),
        consistency: of_verdicts(&counted.consistency, false),
        causes: causes.collect(),
        by_one_seed: counted.by_one_seed,
        figures: all.iter().map(figure_rows).collect(),
        entries: entries.iter().map(|entry| entry_row(entry, all)).collect(),
    };
    let title = format!("{paper}, reproduced");
    of_paper(&title, quick, verdicts, sections)
}

/// The results of a figure.
///
/// # Errors
/// Those of drawing.
pub fn section(done: &Done) -> Result<Section> {
    let (id, title) = (&done.figure.name, &done.title);
    let section = match &done.plan {
        FigurePlan::Simulated(plan) => Section::of_plan(id, title, plan, &done.finished)?,
        FigurePlan::Computed(plan) => Section::of_model(id, title, plan)?,
    };
    Ok(section.with_readme(&done.figure.readme))
}

fn figure_rows(done: &Done) -> FigureRows {
    let mut claims = Vec::new();
    for judged in &done.judged {
        claims.push(claim_row(done, judged, &judged.outcome, None));
        claims.extend(judged.readings.iter().map(|(name, outcome)| claim_row(done, judged, outcome, Some(name))));
    }
    FigureRows { id: done.figure.name.clone(), title: done.title.clone(), readings: done.readings.clone(), claims }
}

fn claim_row(done: &Done, judged: &Judged, outcome: &Outcome, reading: Option<&str>) -> ClaimRow {
    let claim = &judged.claim;
    let causes = if reading.is_some() { &[][..] } else { &done.causes };
    ClaimRow {
        name: reading.map_or_else(|| claim.id.clone(), |name| format!("{name} reading")),
        is_reading: reading.is_some(),
        class: claim.class.text(),
        text: if reading.is_some() { String::new() } else { claim.text.clone() },
        reason: outcome.reason.clone(),
        paper: claim.paper.map_or("-".into(), number_text),
        measured: measured_text(&outcome.measured),
        interval: spread_text(&outcome.spread),
        seeds: seeds_text(outcome),
        window: window_text(judged),
        verdict: verdict_text(outcome),
        style: style(outcome.verdict.text()),
        full: full_text(outcome, done.full(&claim.id, reading)),
        causes: causes.iter().filter_map(|tried| cause_row(tried, &claim.id)).collect(),
    }
}

fn cause_row(tried: &Tried, claim: &str) -> Option<CauseRow> {
    let changed = tried.claims.iter().find(|changed| changed.claim.id == claim)?;
    let finding: Finding = changed.finding;
    Some(CauseRow {
        finding: finding.text(),
        style: style(finding.text()),
        text: tried.cause.text.clone(),
        change: format!("{}; expected {}", tried.cause.change(), tried.cause.wanted()),
        came: changed_text(changed),
    })
}

/// Claims of the figures that were run, with how many have which verdict.
fn entry_row(entry: &Entry, all: &[Done]) -> EntryRow {
    let judged = all.iter().flat_map(|done| done.judged.iter().filter(|judged| entry.covers(&done.figure.name, &judged.claim.id)));
    let verdicts: Vec<Verdict> = judged.map(|judged| judged.outcome.verdict).collect();
    let count = |verdict: &Verdict| verdicts.iter().filter(|other| *other == verdict).count();
    let said = Verdict::ALL.iter().filter(|verdict| count(verdict) > 0).map(|verdict| format!("{} {}", count(verdict), verdict.text()));
    let mut claims: Vec<String> = said.collect();
    if claims.is_empty() && !entry.claims.is_empty() {
        claims.push(format!("not run: {}", entry.claims.join(", ")));
    }
    claims.extend(entry.files.iter().cloned());
    EntryRow { name: entry.name.clone(), what: entry.what.clone(), claims: claims.join(", "), why: entry.why.clone().unwrap_or_default() }
}
