//! Reductions of floats whose bits do not depend on the order in which they are computed: the same for every arrival order, every tree,
//! every number of switches, every transport and after every restart.
//!
//! Floats are not associative, but integers are: their sums wrap, and maxima, bit by bit or of whole numbers, have no rounding either. So floats
//! become integers before they leave a rank, and floats again when their reduction is there ([`OrderFree::of`]):
//!
//! | operator | on floats |
//! |---|---|
//! | sum, mean | integers on a grid of each element's own, [`ElementSum`], or on the block's common exponent, [`ScaledSum`] |
//! | minimum, maximum | integers in the order of the floats, of the same width: [`TotalOrder`]; for +0 and -0 are equal as floats, and NaNs differ |
//! | product | none: no common exponent bounds its partial products |
//!
//! All other reductions do not depend on the order as they are. Nothing is asked of what reduces the integers: a tree, a ring, shared memory or
//! switches that change in the middle of it (Canary). A tree of a fixed shape is the other way (`flare 4.3`), and needs one.

mod cells;
mod element_sum;
mod scaled;
mod special;
mod total_order;
mod wide;

#[cfg(test)]
mod element_tests;
#[cfg(test)]
mod tests;

pub use cells::{CellKind, Cells};
pub use element_sum::ElementSum;
pub use scaled::ScaledSum;
pub use special::Specials;
pub use total_order::TotalOrder;

/// Elements of a block, which have an exponent in common.
pub const BLOCK_ELEMENTS: usize = 256;

use std::fmt;
use std::str::FromStr;

use super::dtype::{ElementOp, Operator};

/// What a reproducible sum of floats depends on, beside the number of workers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ReproducibleBy {
    /// On the element itself, at all workers: [`ElementSum`].
    Element,
    /// On the block of [`BLOCK_ELEMENTS`] elements where it stands: [`ScaledSum`]. Fewer bytes and less exact.
    Block,
    /// On the order of workers in the trees of switches, which add floats up as they are, neighbours first (`flare 4.3`). Only where switches do
    /// that: what a job has to do is nothing.
    Tree,
}

impl ReproducibleBy {
    /// As users write it.
    pub const fn name(self) -> &'static str {
        match self {
            ReproducibleBy::Element => "element",
            ReproducibleBy::Block => "block",
            ReproducibleBy::Tree => "tree",
        }
    }
}

impl fmt::Display for ReproducibleBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for ReproducibleBy {
    type Err = String;

    /// Reads what [`ReproducibleBy::name`] writes.
    fn from_str(text: &str) -> Result<Self, String> {
        let all = [ReproducibleBy::Element, ReproducibleBy::Block, ReproducibleBy::Tree];
        all.into_iter().find(|by| by.name() == text).ok_or_else(|| format!("`{text}`: expected element, block or tree"))
    }
}

/// What is to be done so that a reduction does not depend on the order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum OrderFree {
    /// Nothing: it does not, as it is.
    AsItIs,
    /// Floats are summed as integers, each on a grid of its own.
    ByElement(ElementSum),
    /// Floats are summed as integers on a common exponent.
    Scaled(ScaledSum),
    /// Floats are compared as integers.
    Ordered(TotalOrder),
}

/// A reduction that depends on the order.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NotOrderFree(pub ElementOp);

impl fmt::Display for NotOrderFree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
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
    /// As [`FixedPoint::new`](super::FixedPoint::new), where floats are summed: without workers, or with more than 65,536.
    pub fn of(op: ElementOp, workers: u32, by: ReproducibleBy) -> Result<Self, NotOrderFree> {
        let average = op.operator == Operator::Avg;
        match op.operator {
            _ if !op.dtype.is_float() || by == ReproducibleBy::Tree => Ok(OrderFree::AsItIs),
            Operator::Sum | Operator::Avg if by == ReproducibleBy::Element => {
                Ok(OrderFree::ByElement(ElementSum::new(op.dtype, workers, average)))
            }
            Operator::Sum | Operator::Avg => Ok(OrderFree::Scaled(ScaledSum::new(op.dtype, workers, average))),
            Operator::Min | Operator::Max | Operator::Minimum | Operator::Maximum => Ok(OrderFree::Ordered(TotalOrder::new(op))),
            Operator::Prod | Operator::And | Operator::Or | Operator::Xor => Err(NotOrderFree(op)),
        }
    }
}
