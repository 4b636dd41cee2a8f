//! What Python asks for by names and addresses, as requests for memory that its objects own.

use std::time::Duration;

use fanin_comm::{CollectiveKind, DType, ElementOp, Operator, Rank, UnknownName};
pub use fanin_foreign::Region;
use fanin_foreign::{Request, SparseRequest};

use crate::operator::{Op, Reduction};

/// A collective over memory at given addresses, by names; `place` is the rank and the number of ranks.
///
/// # Errors
/// In words: unknown names, impossible addresses, vectors that overlap where they may not.
pub fn request(
    (kind, root): (&str, u32),
    (dtype, op): (&str, &Op),
    elements: u64,
    vectors: (Region, Region),
    place: (u32, u32),
    timeout: Option<f64>,
) -> Result<(Request, Reduction), String> {
    let root = Rank(root);
    let kind = match kind {
        "allreduce" => CollectiveKind::Allreduce,
        "reduce" => CollectiveKind::Reduce { root },
        "broadcast" => CollectiveKind::Broadcast { root },
        "barrier" => CollectiveKind::Barrier,
        "reduce_scatter" => CollectiveKind::ReduceScatter,
        "all_gather" => CollectiveKind::AllGather,
        other => {
            return Err(format!("kind = {other:?}: expected allreduce, reduce, broadcast, barrier, reduce_scatter or all_gather"));
        }
    };
    let request = Request::new(kind, elements, vectors, place)?.within(seconds(timeout)?);
    Ok((request, operation(kind, dtype, op)?))
}

/// A sparse allreduce of entries at given addresses, by names.
///
/// # Errors
/// In words: unknown names, impossible addresses.
pub fn sparse_request(
    (dtype, op): (&str, &str),
    size: u64,
    regions: (Region, Region),
    timeout: Option<f64>,
) -> Result<SparseRequest, String> {
    SparseRequest::new(element_op(dtype, op)?, size, regions, seconds(timeout)?)
}

/// A time as Python has it.
///
/// # Errors
/// In words, where it is none.
pub fn seconds(timeout: Option<f64>) -> Result<Option<Duration>, String> {
    let time = |seconds| Duration::try_from_secs_f64(seconds).map_err(|_| format!("timeout = {seconds}: expected seconds"));
    timeout.map(time).transpose()
}

fn element_op(dtype: &str, op: &str) -> Result<ElementOp, String> {
    let dtype: DType = dtype.parse().map_err(|error: UnknownName| error.to_string())?;
    let operator: Operator = op.parse().map_err(|error: UnknownName| error.to_string())?;
    Ok(ElementOp { dtype, operator })
}

/// The operator; what is only copied has one that every type has. Of one that the job has brought along, the type says nothing.
fn operation(kind: CollectiveKind, dtype: &str, op: &Op) -> Result<Reduction, String> {
    let name = match op {
        Op::Named(name) => name,
        Op::Custom(operator) => return Ok(Reduction::Of(operator.get().0.clone())),
    };
    let ElementOp { dtype, operator } = element_op(dtype, name)?;
    let is_copy = matches!(kind, CollectiveKind::Broadcast { .. } | CollectiveKind::AllGather | CollectiveKind::Barrier);
    Ok(Reduction::Known(ElementOp { dtype, operator: if is_copy { Operator::Max } else { operator } }.into()))
}
