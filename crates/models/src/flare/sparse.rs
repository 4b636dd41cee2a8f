//! Sparse vectors at Flare's switches: how dense sums are, and how much a hash table does not hold (flare 5).

use crate::{Model, Quantity};

use super::{number, quantity, whole};

/// `fanin model flare-sparse`.
pub(crate) const SPARSE: Model = Model {
    name: "flare-sparse",
    title: "Flare: density of the sum of sparse vectors, and what a hash table of a switch spills",
    about: "Indices of different vectors have nothing to do with each other, and those of one are random. A pair whose slot has another index\n\
            goes to the parent at once (hash storage without probing), so that the more a table is filled, the more is sent; with one slot\n\
            for each index of the block (array storage) nothing is. The slides show both, and data that get denser towards the root.",
    parameters: &[
        number("density", "share of a vector's elements that are not zero", 0.002, 1e-9, 1.0),
        whole("vectors", "vectors in the sum", 8.0, 1.0, 1e6),
        whole("range", "indices of a block", 65_536.0, 1.0, 65_536.0),
        whole("slots", "slots of the table", 1024.0, 1.0, 65_536.0),
    ],
    choices: &[],
    quantities: QUANTITIES,
    evaluate: |parameters| {
        let &[density, vectors, range, slots] = parameters else { unreachable!("four parameters") };
        let union = 1.0 - libm::pow(1.0 - density, vectors);
        let distinct = union * range;
        // The expected number of slots that at least one of them hits.
        let held = slots * (1.0 - libm::pow(1.0 - 1.0 / slots, distinct));
        Ok(vec![density * range, union, distinct, distinct / slots, 1.0 - held / distinct])
    },
};

const QUANTITIES: &[Quantity] = &[
    quantity("pairs", "pairs that a vector has in a block", "density x range"),
    quantity("union_density", "density of the sum", "1 - (1 - density)^vectors"),
    quantity("distinct", "different indices in the sum (n)", "union_density x range"),
    quantity("load", "different indices for each slot (n / m)", "distinct / slots"),
    quantity("spilled", "share of different indices that find their slot taken", "1 - m / n (1 - (1 - 1 / m)^n)"),
];

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate(parameters: [f64; 4]) -> Vec<f64> {
        SPARSE.evaluate(&parameters).expect("in range")
    }

    #[test]
    fn sums_are_as_dense_as_derived() {
        assert!((evaluate([0.002, 8.0, 65_536.0, 1024.0])[1] - 0.0159).abs() < 5e-5);
        assert!((evaluate([0.002, 64.0, 65_536.0, 1024.0])[1] - 0.1203).abs() < 5e-5);
    }

    #[test]
    fn a_table_spills_as_much_as_derived() {
        // All elements of one vector, so that there are as many different indices as the block has.
        for (distinct, share) in [(512.0, 0.21), (655.0, 0.26), (1_024.0, 0.37), (2_048.0, 0.57)] {
            assert!((evaluate([1.0, 1.0, distinct, 1_024.0])[4] - share).abs() < 0.005, "{distinct}");
        }
    }
}
