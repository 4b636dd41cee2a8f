//! Causes, held against the claims that they speak of.

use super::Claims;
use crate::cause::Cause;
use crate::verdict::Verdict;

/// What is wrong with a cause.
pub(super) struct Wrong {
    /// The key, within the cause.
    pub(super) keys: Vec<&'static str>,
    /// Its value.
    pub(super) value: String,
    /// What was expected.
    pub(super) expected: String,
}

/// Holds a cause against the claims that it speaks of.
///
/// # Errors
/// [`Wrong`] where it speaks of none, or does not say one change and one thing that must come of it.
pub(super) fn check<'a>(cause: &Cause, claims: &Claims, mut names: impl Iterator<Item = &'a String>) -> Result<(), Wrong> {
    let wrong = |keys: &[&'static str], value: String, expected: &str| Err(Wrong { keys: keys.into(), value, expected: expected.into() });
    if names.any(|name| *name == cause.id) {
        return wrong(&["id"], format!("{:?}", cause.id), "another name for each cause");
    }
    if cause.claims.is_empty() {
        return wrong(&["claims"], "[]".into(), "the claims that it is a cause for");
    }
    for name in &cause.claims {
        match claims.claims.iter().find(|claim| claim.id == *name) {
            None => return wrong(&["claims"], format!("{name:?}"), "a claim of this file"),
            Some(claim) if claim.selections().is_empty() => {
                return wrong(&["claims"], format!("{name:?}"), "a claim that is measured");
            }
            Some(claim) if cause.verdict.is_some() && claim.reported.is_some() => {
                return wrong(&["verdict"], "...".into(), "moves, for claims that are only reported get no other verdict");
            }
            Some(_) => {}
        }
    }
    let changes = [!cause.set.is_empty(), cause.reading.is_some(), cause.plan.is_some()];
    if changes.iter().filter(|given| **given).count() != 1 {
        return wrong(&[], format!("{:?}", cause.id), "one of set, reading and plan");
    }
    if let Some(reading) = cause.reading.as_ref().filter(|name| !claims.readings.iter().any(|reading| reading.name == **name)) {
        return wrong(&["reading"], format!("{reading:?}"), "a reading of this file");
    }
    match (cause.verdict, cause.moves) {
        (Some(Verdict::Reproduced | Verdict::NotReproduced), None) | (None, Some(_)) => {}
        (Some(other), None) => return wrong(&["verdict"], format!("{:?}", other.text()), "\"reproduced\" or \"not reproduced\""),
        _ => return wrong(&[], format!("{:?}", cause.id), "one of verdict and moves"),
    }
    if let Some(margin) = cause.margin.filter(|margin| cause.moves.is_none() || !(0.0..2.0).contains(margin)) {
        return wrong(&["margin"], margin.to_string(), "a share, 0 or more and below 2, beside moves");
    }
    Ok(())
}
