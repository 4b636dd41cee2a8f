//! Verdicts as a table for people and as JSON.

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table};
use serde::Serialize;

use super::claims::{Class, Selection};
use super::evaluate::{Judged, Measured, Outcome, Verdict};
use super::{Done, Ran};
use crate::table::STYLE;

/// A number with three digits that mean something.
pub fn number_text(value: f64) -> String {
    let digits = match value.abs() {
        0.0 => 0,
        magnitude if magnitude >= 100.0 => 0,
        magnitude if magnitude >= 10.0 => 1,
        magnitude if magnitude >= 0.01 => 2 + usize::from(magnitude < 1.0),
        _ => return format!("{value:.1e}"),
    };
    format!("{value:.digits$}")
}

/// What was measured, for people.
pub fn measured_text(measured: &Measured) -> String {
    match measured {
        Measured::Nothing => "-".into(),
        Measured::Number(value) => number_text(*value),
        Measured::Range([low, high]) => format!("{} to {}", number_text(*low), number_text(*high)),
        Measured::List(values) => values.iter().map(|value| number_text(*value)).collect::<Vec<_>>().join(", "),
    }
}

/// What agrees with the claim, for people: a window or an order.
pub fn window_text(judged: &Judged) -> String {
    let claim = &judged.claim;
    if let Some(order) = &claim.order {
        return order.iter().map(Selection::describe).collect::<Vec<_>>().join(" > ");
    }
    match claim.window {
        None => "-".into(),
        Some(window) if window.low == f64::NEG_INFINITY => format!("at most {}", number_text(window.high)),
        Some(window) if window.high == f64::INFINITY => format!("at least {}", number_text(window.low)),
        Some(window) => format!("{} to {}", number_text(window.low), number_text(window.high)),
    }
}

fn verdict_cell(outcome: &Outcome) -> Cell {
    let color = match outcome.verdict {
        Verdict::Reproduced => Color::Green,
        Verdict::NotReproduced => Color::Red,
        Verdict::CannotBeTested => Color::Yellow,
    };
    Cell::new(outcome.verdict.text()).fg(color)
}

/// A figure's claims: a row each, and one below it for every other reading.
pub fn table(done: &Done, quick: bool) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    table.set_header(["claim", "paper", "measured", "window", "verdict"]);
    for judged in &done.judged {
        let paper = judged.claim.paper.map_or("-".into(), number_text);
        let row = |name: String, outcome: &Outcome| {
            let cells = [Cell::new(name), Cell::new(&paper), Cell::new(measured_text(&outcome.measured)), Cell::new(window_text(judged))];
            cells.into_iter().chain([verdict_cell(outcome)]).collect::<Vec<_>>()
        };
        table.add_row(row(judged.claim.id.clone(), &judged.outcome));
        for (reading, outcome) in &judged.readings {
            table.add_row(row(format!("  {reading} reading"), outcome));
        }
    }
    for column in table.column_iter_mut().skip(1).take(2) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    let mark = if quick { ", QUICK: fewer repetitions and points than the figure has" } else { "" };
    let mut text = format!("{} {}: {}{mark}\n", done.figure.paper, done.figure.name, done.title);
    for line in table.lines() {
        text.extend([line.trim_end(), "\n"]);
    }
    for judged in &done.judged {
        let outcomes = std::iter::once((None, &judged.outcome)).chain(judged.readings.iter().map(|(name, outcome)| (Some(name), outcome)));
        for (reading, outcome) in outcomes {
            if let Some(reason) = &outcome.reason {
                let reading = reading.map_or(String::new(), |name| format!(", {name} reading"));
                text.push_str(&format!("{}{reading}: {reason}\n", judged.claim.id));
            }
        }
    }
    text.push('\n');
    text
}

/// How many claims have which verdict.
pub fn summary(all: &[Done]) -> String {
    let verdicts = || all.iter().flat_map(|done| &done.judged).map(|judged| judged.outcome.verdict);
    let count = |verdict: Verdict| format!("{} {}", verdicts().filter(|other| *other == verdict).count(), verdict.text());
    let runs: usize = all.iter().map(|done| if let Ran::Simulated { finished, .. } = &done.ran { finished.len() } else { 0 }).sum();
    let counts = [Verdict::Reproduced, Verdict::NotReproduced, Verdict::CannotBeTested].map(count).join(", ");
    format!("{} claims: {counts}; {runs} runs\n", verdicts().count())
}

/// A claim as JSON.
#[derive(Serialize)]
struct ClaimRecord<'a> {
    /// Figure and claim.
    claim: String,
    figure: &'a str,
    class: Class,
    /// What the paper says.
    paper: &'a str,
    /// Its number, where it has one.
    paper_value: Option<f64>,
    measured: &'a Measured,
    /// `[lowest, highest]` with null for an open end, or the order as a text.
    window: serde_json::Value,
    verdict: Verdict,
    reason: Option<&'a str>,
    quick: bool,
    /// The same claim in other readings of the text.
    readings: Vec<ReadingRecord<'a>>,
}

#[derive(Serialize)]
struct ReadingRecord<'a> {
    reading: &'a str,
    measured: &'a Measured,
    verdict: Verdict,
    reason: Option<&'a str>,
}

/// All claims as an array, one object a line.
pub fn json(all: &[Done], quick: bool) -> String {
    let rows = all.iter().flat_map(|done| done.judged.iter().map(move |judged| record(done, judged, quick)));
    let lines: Vec<String> = rows.map(|row| serde_json::to_string(&row).expect("claims are plain data")).collect();
    if lines.is_empty() { "[]\n".into() } else { format!("[\n{}\n]\n", lines.join(",\n")) }
}

fn record<'a>(done: &'a Done, judged: &'a Judged, quick: bool) -> ClaimRecord<'a> {
    let finite = |value: f64| value.is_finite().then_some(value);
    let window = match (judged.claim.window, &judged.claim.order) {
        (Some(window), _) => serde_json::json!([finite(window.low), finite(window.high)]),
        (None, Some(_)) => window_text(judged).into(),
        (None, None) => serde_json::Value::Null,
    };
    ClaimRecord {
        claim: format!("{}/{}", done.figure.name, judged.claim.id),
        figure: &done.figure.name,
        class: judged.claim.class,
        paper: &judged.claim.text,
        paper_value: judged.claim.paper,
        measured: &judged.outcome.measured,
        window,
        verdict: judged.outcome.verdict,
        reason: judged.outcome.reason.as_deref(),
        quick,
        readings: judged
            .readings
            .iter()
            .map(|(name, outcome)| ReadingRecord {
                reading: name,
                measured: &outcome.measured,
                verdict: outcome.verdict,
                reason: outcome.reason.as_deref(),
            })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits() {
        let shown = [0.0, 354.2, 94.73, 1.5, 0.8, 0.0123, 0.0001, -0.25].map(number_text);
        assert_eq!(shown, ["0", "354", "94.7", "1.50", "0.800", "0.012", "1.0e-4", "-0.250"]);
    }
}
