//! What systems of sparse vectors have in common.

use fanin_core::payload::Sparsity;
use serde::{Deserialize, Serialize};

use crate::draw::Draw;

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

/// The stream of how alike indices are.
const ALIKE: u64 = 0x0a1c;

/// How alike the workers' indices are. Drawn apart, so that everything else of a seed stays as it was before there was this.
pub(crate) fn alike(draw: &Draw) -> (f64, Picks) {
    let mut apart = Draw::new(draw.clone().bits(), ALIKE);
    let overlap = if apart.percent(50) { 0.0 } else { apart.between(0, 100) as f64 / 100.0 };
    (overlap, if apart.percent(30) { Picks::Buckets } else { Picks::Random })
}
