//! Reductions of floats whose bits do not depend on the order in which they are computed: the same for every arrival order, every tree,
//! every number of switches, every transport and after every restart.
//!
//! Floats are not associative, but integers are: their sums wrap, and maxima, bit by bit or of whole numbers, have no rounding either. So floats
//! become integers before they leave a rank, and floats again when their reduction is there ([`OrderFree::of`]):
//!
//! | operator | on floats |
//! |---|---|
//! | sum, mean | integers on the block's common exponent: [`ScaledSum`] |
//! | minimum, maximum | integers in the order of the floats, of the same width: [`TotalOrder`]; for +0 and -0 are equal as floats, and NaNs differ |
//! | product | none: no common exponent bounds its partial products |
//!
//! All other reductions do not depend on the order as they are. Nothing is asked of what reduces the integers: a tree, a ring, shared memory or
//! switches that change in the middle of it (Canary). A tree of a fixed shape is the other way (`flare 4.3`), and needs one.

mod scaled;
mod special;
mod total_order;
mod wide;

#[cfg(test)]
mod tests;

pub use scaled::ScaledSum;
pub use special::Specials;
pub use total_order::TotalOrder;

/// Elements of a block, which have an exponent in common.
pub const BLOCK_ELEMENTS: usize = 256;

use super::dtype::{ElementOp, Operator};

/// What is to be done so that a reduction does not depend on the order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OrderFree {
    /// Nothing: it does not, as it is.
    AsItIs,
    /// Floats are summed as integers.
    Scaled(ScaledSum),
    /// Floats are compared as integers.
    Ordered(TotalOrder),
}

/// A reduction that depends on the order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NotOrderFree(pub ElementOp);

impl std::fmt::Display for NotOrderFree {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let ElementOp { dtype, operator } = self.0;
        write!(f, "there is no reproducible {operator} of {dtype}: how products of floats are rounded depends on their order")
    }
}

impl std::error::Error for NotOrderFree {}

impl OrderFree {
    /// What is to be done for this type and operator over the vectors of `workers` workers.
    ///
    /// # Errors
    /// [`NotOrderFree`] for products of floats.
    ///
    /// # Panics
    /// As [`FixedPoint::new`](super::FixedPoint::new), where floats are summed.
    pub fn of(op: ElementOp, workers: u32) -> Result<Self, NotOrderFree> {
        match op.operator {
            _ if !op.dtype.is_float() => Ok(OrderFree::AsItIs),
            Operator::Sum | Operator::Avg => Ok(OrderFree::Scaled(ScaledSum::new(op.dtype, workers, op.operator == Operator::Avg))),
            Operator::Min | Operator::Max | Operator::Minimum | Operator::Maximum => Ok(OrderFree::Ordered(TotalOrder::new(op))),
            Operator::Prod | Operator::And | Operator::Or | Operator::Xor => Err(NotOrderFree(op)),
        }
    }
}
