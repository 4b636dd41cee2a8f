//! Causes: why a claim comes out as it does, as experiments and not as prose.
//!
//! ```toml
//! [[causes]]
//! id = "window-of-512"
//! text = "with 512 packets under way hosts drift apart"
//! claims = ["canary-almost-unaffected"]
//! set = ["jobs.0.window=64"]
//! verdict = "reproduced"
//! ```
//!
//! A cause says what is changed and what must come out then: a verdict, or which way the measured number moves. Only the points that its
//! claims look at are run again, with the same seeds.

use fanin_pictures::grid::Grid;
use serde::{Deserialize, Serialize};

pub use super::cause::{Cause, Direction};
use super::claims::{Claim, Claims, MARGIN, Reading};
use super::evaluate::{Judged, Missing, Outcome, Place, Results, Verdict};
use super::interval::{CONFIDENCE, Interval, Region, Sample, Side, relative_difference};

/// What has become of a cause.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Finding {
    /// The change brings what it must.
    #[serde(rename = "cause shown")]
    Shown,
    /// It does not.
    #[serde(rename = "cause refuted")]
    Refuted,
    /// It was not run, or does not tell.
    #[serde(rename = "cause not tested")]
    NotTested,
}

impl Finding {
    /// All of them, in the order of summaries.
    pub const ALL: [Finding; 3] = [Finding::Shown, Finding::Refuted, Finding::NotTested];

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Finding::Shown => "cause shown",
            Finding::Refuted => "cause refuted",
            Finding::NotTested => "cause not tested",
        }
    }
}

/// A claim before and after the change.
#[derive(Clone, Debug)]
pub struct Changed {
    /// The claim.
    pub claim: Claim,
    /// As the plan has it.
    pub before: Outcome,
    /// With the change; `None` where it was not run.
    pub after: Option<Outcome>,
    /// What follows.
    pub finding: Finding,
    /// Why it tells nothing, where it does not.
    pub reason: Option<String>,
}

/// A cause that was held against results.
#[derive(Clone, Debug)]
pub struct Tried {
    /// The cause.
    pub cause: Cause,
    /// Its claims.
    pub claims: Vec<Changed>,
}

impl Tried {
    /// What has become of it: refuted by one claim, shown by all.
    pub fn finding(&self) -> Finding {
        let has = |finding: Finding| self.claims.iter().any(|changed| changed.finding == finding);
        match (has(Finding::Refuted), has(Finding::NotTested)) {
            (true, _) => Finding::Refuted,
            (false, true) => Finding::NotTested,
            (false, false) => Finding::Shown,
        }
    }

    /// A cause that was not run.
    pub fn skipped(cause: &Cause, judged: &[Judged], why: &str) -> Tried {
        let one = |judged: &Judged| Changed {
            claim: judged.claim.clone(),
            before: judged.outcome.clone(),
            after: None,
            finding: Finding::NotTested,
            reason: Some(why.into()),
        };
        Tried { cause: cause.clone(), claims: judged.iter().filter(|judged| cause.claims.contains(&judged.claim.id)).map(one).collect() }
    }
}

/// Holds a cause against the results of the plan, and those of the changed one; of a reading the two are one.
pub fn hold(claims: &Claims, cause: &Cause, judged: &[Judged], base: &dyn Grid, changed: &dyn Grid) -> Tried {
    let (base, changed) = (Results::new(base, claims), Results::new(changed, claims));
    let reading = cause.reading.as_ref().and_then(|name| claims.readings.iter().find(|reading| reading.name == *name));
    let one = |judged: &Judged| {
        let after = changed.evaluate(&judged.claim, reading);
        let (finding, reason) = match cause.moves {
            None => by_verdict(cause, &judged.outcome, &after),
            Some(direction) => by_move(cause, &judged.claim, direction, reading, &base, &changed),
        };
        Changed { claim: judged.claim.clone(), before: judged.outcome.clone(), after: Some(after), finding, reason }
    };
    Tried { cause: cause.clone(), claims: judged.iter().filter(|judged| cause.claims.contains(&judged.claim.id)).map(one).collect() }
}

fn by_verdict(cause: &Cause, before: &Outcome, after: &Outcome) -> (Finding, Option<String>) {
    let not_tested = |why: String| (Finding::NotTested, Some(why));
    let decided = |verdict: Verdict| matches!(verdict, Verdict::Reproduced | Verdict::NotReproduced);
    match after.verdict {
        Verdict::CannotBeTested => not_tested(after.reason.clone().unwrap_or_default()),
        _ if after.seeds.is_none() => not_tested(after.reason.clone().unwrap_or_default()),
        verdict if !decided(verdict) => not_tested("the changed plan leaves it undecided".into()),
        verdict if Some(verdict) != cause.verdict => (Finding::Refuted, None),
        verdict if verdict == before.verdict => not_tested(format!("{} without the change, too", verdict.text())),
        _ if !decided(before.verdict) => not_tested("undecided without the change".into()),
        _ => (Finding::Shown, None),
    }
}

/// Whether what a claim measures moves as it must, at all of its places, by differences of the same seeds.
fn by_move(
    cause: &Cause,
    claim: &Claim,
    direction: Direction,
    reading: Option<&Reading>,
    base: &Results<'_>,
    changed: &Results<'_>,
) -> (Finding, Option<String>) {
    let not_tested = |why: &str| (Finding::NotTested, Some(why.to_string()));
    let (before, after) = match (base.measure(claim, None), changed.measure(claim, reading)) {
        (Ok(before), Ok(after)) if before.len() == after.len() => (before, after),
        (Err(Missing::LeftOut(what)), _) | (_, Err(Missing::LeftOut(what))) => return not_tested(&format!("--quick leaves out {what}")),
        (Err(Missing::NotMeasured(what) | Missing::NoNumber(what)), _) | (_, Err(Missing::NotMeasured(what) | Missing::NoNumber(what))) => {
            return not_tested(&what);
        }
        _ => return not_tested("the changed plan has other places"),
    };
    let region = Region::Above(cause.margin.unwrap_or(MARGIN));
    let moved: Vec<Interval> = before.iter().zip(&after).flat_map(|(before, after)| moves(before, after, direction)).collect();
    let sides: Vec<Side> = moved.iter().map(|interval| region.side(*interval)).collect();
    if sides.contains(&Side::Outside) {
        (Finding::Refuted, None)
    } else if sides.contains(&Side::Across) {
        not_tested("the seeds that were run do not tell")
    } else {
        (Finding::Shown, None)
    }
}

/// By how much each number of a place moves in this direction.
fn moves(before: &Place, after: &Place, direction: Direction) -> Vec<Interval> {
    let is_order = before.samples.len() > 1 || matches!(before.measured, super::evaluate::Measured::List(_));
    let one = |(before, after): (&Sample, &Sample)| {
        let difference = |(before, after): (&f64, &f64)| {
            // What an order compares is a share already.
            let up = if is_order { after - before } else { relative_difference(*after, *before) };
            if direction == Direction::Up { up } else { -up }
        };
        let numbers = before.numbers.iter().zip(&after.numbers).map(difference).collect();
        Sample { numbers, scale: 1.0, statistic: before.statistic, draws: before.draws }.interval(CONFIDENCE)
    };
    before.samples.iter().zip(&after.samples).map(one).collect()
}
