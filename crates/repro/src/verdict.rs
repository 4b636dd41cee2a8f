//! What becomes of a claim.

use serde::{Deserialize, Serialize};

/// What has become of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Verdict {
    /// What was measured agrees with the claim.
    #[serde(rename = "reproduced")]
    Reproduced,
    /// It does not.
    #[serde(rename = "not reproduced")]
    NotReproduced,
    /// The seeds that were run do not tell: an interval lies across an edge.
    #[serde(rename = "undecided")]
    Undecided,
    /// It was measured, and there is nothing to hold it against.
    #[serde(rename = "reported")]
    Reported,
    /// Nothing that is measured here can tell.
    #[serde(rename = "cannot be tested here")]
    CannotBeTested,
}

impl Verdict {
    /// All of them, in the order of summaries.
    pub const ALL: [Verdict; 5] =
        [Verdict::Reproduced, Verdict::NotReproduced, Verdict::Undecided, Verdict::Reported, Verdict::CannotBeTested];

    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Verdict::Reproduced => "reproduced",
            Verdict::NotReproduced => "not reproduced",
            Verdict::Undecided => "undecided",
            Verdict::Reported => "reported",
            Verdict::CannotBeTested => "cannot be tested here",
        }
    }
}
