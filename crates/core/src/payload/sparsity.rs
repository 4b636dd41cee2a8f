//! Where workers of a sparse allreduce have something.

/// How sparse vectors are, and how alike.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Sparsity {
    /// The share of the indices at which a worker has something: above 0, at most 1.
    pub density: f64,
    /// The share of these at which all other workers have something, too: 0 to 1. Beside them, workers have something at the same index by chance.
    pub overlap: f64,
    /// Whether it is at one index, drawn anew for each, of every bucket of as many as one over the density, as where the largest element of each bucket is sent
    /// (Flare 7); else at each index by chance.
    pub bucketed: bool,
}

impl Sparsity {
    /// At each index by chance, and for each worker apart from the others.
    pub const fn random(density: f64) -> Self {
        Sparsity { density, overlap: 0.0, bucketed: false }
    }

    /// What is wrong with it: the name of the number, its value, and what is expected.
    pub fn fault(&self) -> Option<(&'static str, f64, &'static str)> {
        if !(self.density > 0.0 && self.density <= 1.0) {
            return Some(("density", self.density, "above 0, and at most 1"));
        }
        (!(0.0..=1.0).contains(&self.overlap)).then_some(("overlap", self.overlap, "0 to 1"))
    }

    /// Indices of a bucket.
    pub fn bucket(&self) -> u64 {
        ((1.0 / self.density) as u64).max(1)
    }

    /// With what probability a worker has something of its own at an index where not all have.
    pub fn own_density(&self) -> f64 {
        let shared = self.density * self.overlap;
        if shared >= 1.0 { 0.0 } else { (self.density - shared) / (1.0 - shared) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shared_and_what_is_not_make_the_density() {
        for (density, overlap) in [(0.1, 0.0), (0.1, 0.5), (0.7, 0.9), (0.3, 1.0), (1.0, 1.0)] {
            let sparsity = Sparsity { density, overlap, bucketed: false };
            let shared = density * overlap;
            assert!((shared + (1.0 - shared) * sparsity.own_density() - density).abs() < 1e-12, "{sparsity:?}");
        }
        assert_eq!([0.01, 0.3, 1.0, 1.0 / 512.0].map(|density| Sparsity::random(density).bucket()), [100, 3, 1, 512]);
    }
}
