//! The order in which switches add up.

use serde::{Deserialize, Serialize};

/// In which order a switch of static trees adds up what its children send.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SumOrder {
    /// As it comes.
    #[default]
    Arrival,
    /// Neighbours first, then neighbours of these sums (flare 4.3): floats have the same bits every time, on the same trees. A block takes memory
    /// for every second child, too.
    Fixed,
}
