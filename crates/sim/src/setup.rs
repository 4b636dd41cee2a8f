//! What setups are made of: what is wrong with one, and how fast a link is.

use fanin_core::Duration;
use serde::Serialize;

use crate::own::Refusal;

/// A field of a scenario has a value that cannot be.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} = {value}: expected {expected}")]
pub struct SetupError {
    /// The field's name in a plan.
    pub field: String,
    /// Its value.
    pub value: String,
    /// What would have been right.
    pub expected: String,
}

impl SetupError {
    /// `field` has `value`, where `expected` is expected.
    pub fn new(field: impl Into<String>, value: impl ToString, expected: impl Into<String>) -> Self {
        SetupError { field: field.into(), value: value.to_string(), expected: expected.into() }
    }

    /// What is from elsewhere, and stands at `field`, refuses a parameter.
    pub(crate) fn refused(field: &str, refusal: Refusal) -> Self {
        SetupError { field: format!("{field}.{}", refusal.key), value: refusal.value, expected: refusal.expected }
    }
}

/// Rate and propagation delay of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
pub struct LinkSpeed {
    /// Bits per second on the wire, frame overhead included.
    pub bits_per_second: u64,
    /// Propagation delay, with the delay of the switch or host at its end.
    #[serde(skip)]
    pub latency: Duration,
}
