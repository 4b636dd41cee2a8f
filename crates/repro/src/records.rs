//! Verdicts as JSON.

use serde::Serialize;
use serde_json::{Value, json};

use super::causes::{Changed, Finding, Tried};
use super::claims::Class;
use super::evaluate::{Judged, Measured, Outcome, Spread, Verdict};
use super::figure::Done;
use super::interval::Seeds;
use super::output::window_text;

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
    /// `[lowest, highest]` with null for an open end, or the order as a text.
    window: Value,
    /// By how much each of an order must be more than the next.
    margin: Option<f64>,
    #[serde(flatten)]
    outcome: OutcomeRecord<'a>,
    quick: bool,
    /// Of a quick run, what is recorded of a full one.
    full: Value,
    /// The same claim in other readings of the text.
    readings: Vec<ReadingRecord<'a>>,
    /// The causes that are given for it.
    causes: Vec<CauseRecord<'a>>,
}

/// What was measured, and what follows.
#[derive(Serialize)]
struct OutcomeRecord<'a> {
    measured: &'a Measured,
    /// At 95 %: `[lowest, highest]`, or for an order one for each neighbouring pair, of the differences by seed as shares.
    interval: &'a Spread,
    /// How many seeds; null where the plan draws nothing, or nothing was measured.
    seeds: Option<usize>,
    /// Whether the plan draws random numbers; null where nothing was measured.
    draws: Option<bool>,
    verdict: Verdict,
    reason: Option<&'a str>,
}

impl<'a> OutcomeRecord<'a> {
    fn of(outcome: &'a Outcome) -> OutcomeRecord<'a> {
        OutcomeRecord {
            measured: &outcome.measured,
            interval: &outcome.spread,
            seeds: outcome.seeds.and_then(|seeds| if let Seeds::Drawn(count) = seeds { Some(count) } else { None }),
            draws: outcome.seeds.map(|seeds| seeds != Seeds::Any),
            verdict: outcome.verdict,
            reason: outcome.reason.as_deref(),
        }
    }
}

#[derive(Serialize)]
struct ReadingRecord<'a> {
    reading: &'a str,
    #[serde(flatten)]
    outcome: OutcomeRecord<'a>,
    full: Value,
}

/// A cause, as far as it is about one claim.
#[derive(Serialize)]
struct CauseRecord<'a> {
    cause: &'a str,
    text: &'a str,
    /// What is changed.
    change: String,
    /// What must come out: a verdict, `up` or `down`.
    expected: String,
    /// Of this claim.
    finding: Finding,
    /// Of all claims that it is about.
    of_all: Finding,
    /// Why it does not tell.
    why: Option<&'a str>,
    /// What came out with the change.
    changed: Option<OutcomeRecord<'a>>,
}

/// All claims as an array, one object a line.
pub fn text(all: &[Done], quick: bool) -> String {
    let rows = all.iter().flat_map(|done| done.judged.iter().map(move |judged| record(done, judged, quick)));
    let lines: Vec<String> = rows.map(|row| serde_json::to_string(&row).expect("claims are plain data")).collect();
    if lines.is_empty() { "[]\n".into() } else { format!("[\n{}\n]\n", lines.join(",\n")) }
}

fn record<'a>(done: &'a Done, judged: &'a Judged, quick: bool) -> ClaimRecord<'a> {
    let finite = |value: f64| value.is_finite().then_some(value);
    let claim = &judged.claim;
    let window = match (claim.window, &claim.order) {
        (Some(window), _) => json!([finite(window.low), finite(window.high)]),
        (None, Some(_)) => window_text(judged).into(),
        (None, None) => Value::Null,
    };
    let of_reading = |(name, outcome): &'a (String, Outcome)| ReadingRecord {
        reading: name,
        outcome: OutcomeRecord::of(outcome),
        full: full(done, &claim.id, Some(name)),
    };
    let causes = done.causes.iter().flat_map(|tried| {
        let own = tried.claims.iter().filter(|changed| changed.claim.id == claim.id);
        own.map(move |changed| cause_record(tried, changed))
    });
    ClaimRecord {
        claim: format!("{}/{}", done.figure.name, claim.id),
        figure: &done.figure.name,
        class: claim.class,
        paper: &claim.text,
        paper_value: claim.paper,
        window,
        margin: claim.order.as_ref().map(|_| claim.margin.unwrap_or(super::claims::MARGIN)),
        outcome: OutcomeRecord::of(&judged.outcome),
        quick,
        full: full(done, &claim.id, None),
        readings: judged.readings.iter().map(of_reading).collect(),
        causes: causes.collect(),
    }
}

/// What is recorded of a full run, and whether it is of this plan and these claims; null where nothing is.
fn full(done: &Done, claim: &str, reading: Option<&str>) -> Value {
    let Some(recorded) = &done.recorded else { return Value::Null };
    let outcome = recorded.outcome(claim, reading);
    let mut full = outcome.map_or(json!({}), |outcome| json!(OutcomeRecord::of(&outcome)));
    full["fits"] = recorded.fits(&done.digest).into();
    full
}

fn cause_record<'a>(tried: &'a Tried, changed: &'a Changed) -> CauseRecord<'a> {
    CauseRecord {
        cause: &tried.cause.id,
        text: &tried.cause.text,
        change: tried.cause.change(),
        expected: tried.cause.wanted(),
        finding: changed.finding,
        of_all: tried.finding(),
        why: changed.reason.as_deref(),
        changed: changed.after.as_ref().map(OutcomeRecord::of),
    }
}
