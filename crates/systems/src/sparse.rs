//! What systems of sparse vectors have in common.

use fanin_core::payload::Sparsity;
use serde::{Deserialize, Serialize};

/// At which indices a worker of a sparse job has something.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Picks {
    /// At each by chance.
    #[default]
    Random,
    /// At one of every bucket of as many as one over the density, as where the largest element of each is sent (flare 7).
    Buckets,
}

/// Which indices such vectors have.
pub(crate) fn sparsity(density: f64, overlap: f64, picks: Picks) -> Sparsity {
    Sparsity { density, overlap, bucketed: picks == Picks::Buckets }
}
