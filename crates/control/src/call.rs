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
    /// The operator that the job has brought along, where that is meant; type and operator mean nothing then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub custom: Option<CustomCall>,
}

/// An operator that the job has brought along.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct CustomCall {
    /// Its number in [`Join::operators`](crate::Join::operators).
    pub index: u8,
    /// Bytes of its elements.
    pub element_bytes: u32,
}

impl Op {
    /// Sums of binary32 floats.
    pub const F32_SUM: Op = Op { dtype: DType::F32, operator: Operator::Sum, custom: None };
}

impl From<ElementOp> for Op {
    fn from(op: ElementOp) -> Self {
        Op { dtype: op.dtype, operator: op.operator, custom: None }
    }
}

impl From<Op> for ElementOp {
    fn from(op: Op) -> Self {
        ElementOp { dtype: op.dtype, operator: op.operator }
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.custom {
            Some(CustomCall { index, element_bytes }) => write!(f, "elements of {element_bytes} bytes (custom operator {index})"),
            None => write!(f, "{} ({})", self.dtype, self.operator),
        }
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

/// The same of what may be missing.
pub(crate) mod named_if_any {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::{Deserialize, Deserializer, Serializer};

    pub fn serialize<T: Display, S: Serializer>(value: &Option<T>, to: S) -> Result<S::Ok, S::Error> {
        match value {
            Some(value) => to.collect_str(value),
            None => to.serialize_none(),
        }
    }

    pub fn deserialize<'de, T: FromStr<Err: Display>, D: Deserializer<'de>>(from: D) -> Result<Option<T>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        text.map(|text| text.parse().map_err(serde::de::Error::custom)).transpose()
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
    /// Every rank gets its part of each rank's vector.
    AllToAll {
        /// How many ranks there are.
        ranks: u32,
    },
    /// Every rank gets the reduction of all vectors, of which only some elements are there.
    AllreduceSparse,
}

impl From<CallKind> for CollectiveKind {
    fn from(kind: CallKind) -> Self {
        match kind {
            CallKind::Allreduce | CallKind::AllreduceSparse => CollectiveKind::Allreduce,
            CallKind::Reduce { root } => CollectiveKind::Reduce { root: Rank(root) },
            CallKind::Broadcast { root } => CollectiveKind::Broadcast { root: Rank(root) },
            CallKind::Barrier => CollectiveKind::Barrier,
            CallKind::ReduceScatter => CollectiveKind::ReduceScatter,
            CallKind::AllGather => CollectiveKind::AllGather,
            CallKind::AllToAll { ranks } => CollectiveKind::AllToAll { workers: ranks },
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
            CollectiveKind::AllToAll { workers } => CallKind::AllToAll { ranks: workers },
        }
    }
}

impl fmt::Display for CallKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == CallKind::AllreduceSparse {
            f.write_str("sparse ")?;
        }
        f.write_str(CollectiveKind::from(*self).name())?;
        match self {
            CallKind::Reduce { root } => write!(f, " to rank {root}"),
            CallKind::Broadcast { root } => write!(f, " from rank {root}"),
            _ => Ok(()),
        }
    }
}

/// One of the operations that a reproducible reduction of floats consists of: each is a reduction of integers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The scales of all blocks.
    Scales,
    /// What is special in some elements.
    Specials,
    /// The exponents of elements.
    Exponents {
        /// From this one of a share on.
        first: u64,
    },
    /// The integers of elements.
    Integers {
        /// From this one of a share on.
        first: u64,
    },
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Part::Scales => f.write_str("scales"),
            Part::Specials => f.write_str("special elements"),
            Part::Exponents { first } => write!(f, "exponents from {first} on"),
            Part::Integers { first } => write!(f, "elements from {first} on"),
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
    /// Of a reproducible reduction: which part of it the operation is. All else is of the whole reduction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
}

impl fmt::Display for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Signature { kind, op, elements, part } = self;
        match kind {
            CallKind::Barrier => write!(f, "{kind}"),
            // What is only copied has no operator.
            CallKind::Broadcast { .. } | CallKind::AllGather | CallKind::AllToAll { .. } => write!(f, "{kind} of {elements} {}", op.dtype),
            _ => write!(f, "{kind} of {elements} {op}"),
        }?;
        part.map_or(Ok(()), |part| write!(f, ", reproducible: {part}"))
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
        let signature = |kind, dtype, operator| Signature { kind, op: Op { dtype, operator, custom: None }, elements: 500, part: None };
        let text = |kind| signature(kind, DType::F64, Operator::Sum).to_string();
        assert_eq!(text(CallKind::Allreduce), "allreduce of 500 f64 (sum)");
        assert_eq!(text(CallKind::Reduce { root: 3 }), "reduce to rank 3 of 500 f64 (sum)");
        assert_eq!(text(CallKind::Broadcast { root: 1 }), "broadcast from rank 1 of 500 f64");
        assert_eq!(text(CallKind::Barrier), "barrier");
        assert_eq!(text(CallKind::AllreduceSparse), "sparse allreduce of 500 f64 (sum)");
        let whole = signature(CallKind::Allreduce, DType::F32, Operator::Avg);
        let text = |part| Signature { part: Some(part), ..whole }.to_string();
        assert_eq!(text(Part::Scales), "allreduce of 500 f32 (avg), reproducible: scales");
        assert_eq!(text(Part::Exponents { first: 256 }), "allreduce of 500 f32 (avg), reproducible: exponents from 256 on");
        assert_eq!(text(Part::Integers { first: 256 }), "allreduce of 500 f32 (avg), reproducible: elements from 256 on");
        // Of other reductions nothing is said of parts, as before there were any.
        let json = serde_json::to_string(&whole).unwrap();
        assert!(!json.contains("part"), "{json}");
        assert_eq!(serde_json::from_str::<Signature>(&json).unwrap(), whole);
    }

    #[test]
    fn types_and_operators_travel_by_name_and_unknown_ones_are_refused_by_name() {
        let op = Op { dtype: DType::BF16, operator: Operator::Max, custom: None };
        let json = serde_json::to_string(&op).unwrap();
        assert_eq!(json, r#"{"dtype":"bf16","operator":"max"}"#);
        assert_eq!(serde_json::from_str::<Op>(&json).unwrap(), op);
        let custom = Op { custom: Some(CustomCall { index: 1, element_bytes: 12 }), ..op };
        assert_eq!(serde_json::from_str::<Op>(&serde_json::to_string(&custom).unwrap()).unwrap(), custom);
        assert_eq!(custom.to_string(), "elements of 12 bytes (custom operator 1)");
        let error = serde_json::from_str::<Op>(r#"{"dtype":"f8","operator":"max"}"#).unwrap_err().to_string();
        assert!(error.contains("`f8`") && error.contains("bf16"), "{error}");
    }
}
