//! What a rank is doing, in words that can be compared with those of the others.

use std::fmt;

use fanin_core::{CollectiveKind, DType, ElementOp, Operator, Rank};
use serde::{Deserialize, Serialize};

/// An element type and an operator, written as their names (`f32`, `sum`).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Op {
    /// The element type.
    #[serde(with = "named")]
    pub dtype: DType,
    /// The operator.
    #[serde(with = "named")]
    pub operator: Operator,
}

impl Op {
    /// Sums of binary32 floats.
    pub const F32_SUM: Op = Op { dtype: DType::F32, operator: Operator::Sum };
}

impl From<ElementOp> for Op {
    fn from(op: ElementOp) -> Self {
        Op { dtype: op.dtype, operator: op.operator }
    }
}

impl From<Op> for ElementOp {
    fn from(op: Op) -> Self {
        ElementOp { dtype: op.dtype, operator: op.operator }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.dtype, self.operator)
    }
}

/// Element types and operators travel as their names.
mod named {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<T: Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(value)
    }

    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(from: D) -> Result<T, D::Error> {
        String::deserialize(from)?.parse().map_err(serde::de::Error::custom)
    }
}

/// The kinds of call that a communicator offers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    /// Every rank gets the reduction of all vectors.
    Allreduce,
    /// One rank gets the reduction of all vectors.
    Reduce {
        /// Which one.
        root: u32,
    },
    /// Every rank gets the vector of one rank.
    Broadcast {
        /// Whose.
        root: u32,
    },
    /// Nobody leaves before all have come.
    Barrier,
    /// Every rank gets its part of the reduction of all vectors.
    ReduceScatter,
    /// Every rank gets the vectors of all ranks.
    AllGather,
}

impl From<CallKind> for CollectiveKind {
    fn from(kind: CallKind) -> Self {
        match kind {
            CallKind::Allreduce => CollectiveKind::Allreduce,
            CallKind::Reduce { root } => CollectiveKind::Reduce { root: Rank(root) },
            CallKind::Broadcast { root } => CollectiveKind::Broadcast { root: Rank(root) },
            CallKind::Barrier => CollectiveKind::Barrier,
            CallKind::ReduceScatter => CollectiveKind::ReduceScatter,
            CallKind::AllGather => CollectiveKind::AllGather,
        }
    }
}

impl From<CollectiveKind> for CallKind {
    fn from(kind: CollectiveKind) -> Self {
        match kind {
            CollectiveKind::Allreduce => CallKind::Allreduce,
            CollectiveKind::Reduce { root } => CallKind::Reduce { root: root.0 },
            CollectiveKind::Broadcast { root } => CallKind::Broadcast { root: root.0 },
            CollectiveKind::Barrier => CallKind::Barrier,
            CollectiveKind::ReduceScatter => CallKind::ReduceScatter,
            CollectiveKind::AllGather => CallKind::AllGather,
        }
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CollectiveKind::from(*self).name())?;
        match self {
            CallKind::Reduce { root } => write!(f, " to rank {root}"),
            CallKind::Broadcast { root } => write!(f, " from rank {root}"),
            _ => Ok(()),
        }
    }
}

/// What must be the same at all ranks for one operation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Signature {
    /// What is computed.
    pub kind: CallKind,
    /// Element type and operator.
    pub op: Op,
    /// Length of the vector in elements.
    pub elements: u64,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Signature { kind, op, elements } = self;
        match kind {
            CallKind::Barrier => write!(f, "{kind}"),
            // What is only copied has no operator.
            CallKind::Broadcast { .. } | CallKind::AllGather => write!(f, "{kind} of {elements} {}", op.dtype),
            _ => write!(f, "{kind} of {elements} {op}"),
        }
    }
}

/// What a rank is doing.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct CallDescription {
    /// The operation that it is in; between two calls, the number that the next one will have.
    pub operation: u32,
    /// What was called; `None` between two calls.
    pub signature: Option<Signature>,
    /// Blocks that are complete here.
    pub finished_blocks: u64,
    /// Blocks of the whole operation.
    pub total_blocks: u64,
    /// The first block that is not complete here.
    pub waiting_block: Option<u64>,
}

impl CallDescription {
    /// Between two calls; the next one will be `operation`.
    pub const fn idle(operation: u32) -> Self {
        CallDescription { operation, signature: None, finished_blocks: 0, total_blocks: 0, waiting_block: None }
    }

    /// At the beginning of a call.
    pub const fn begun(operation: u32, signature: Signature, total_blocks: u64) -> Self {
        CallDescription { operation, signature: Some(signature), finished_blocks: 0, total_blocks, waiting_block: Some(0) }
    }

    /// Whether it is between two calls.
    pub const fn is_idle(&self) -> bool {
        self.signature.is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_in_words() {
        let signature = |kind, dtype, operator| Signature { kind, op: Op { dtype, operator }, elements: 500 };
        let text = |kind| signature(kind, DType::F64, Operator::Sum).to_string();
        assert_eq!(text(CallKind::Allreduce), "allreduce of 500 f64 (sum)");
        assert_eq!(text(CallKind::Reduce { root: 3 }), "reduce to rank 3 of 500 f64 (sum)");
        assert_eq!(text(CallKind::Broadcast { root: 1 }), "broadcast from rank 1 of 500 f64");
        assert_eq!(text(CallKind::Barrier), "barrier");
    }

    #[test]
    fn types_and_operators_travel_by_name_and_unknown_ones_are_refused_by_name() {
        let op = Op { dtype: DType::BF16, operator: Operator::Max };
        let json = serde_json::to_string(&op).unwrap();
        assert_eq!(json, r#"{"dtype":"bf16","operator":"max"}"#);
        assert_eq!(serde_json::from_str::<Op>(&json).unwrap(), op);
        let error = serde_json::from_str::<Op>(r#"{"dtype":"f8","operator":"max"}"#).unwrap_err().to_string();
        assert!(error.contains("`f8`") && error.contains("bf16"), "{error}");
    }
}
