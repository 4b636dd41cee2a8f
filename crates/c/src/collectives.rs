//! The collectives. Where input and output are the same memory, the result takes the input's place.

use std::ffi::c_void;
use std::ptr;

use fanin_comm::{CallOp, CollectiveKind, DType, ElementOp, Rank};
use fanin_foreign::{Region, Request as Foreign};

use crate::communicator::Communicator;
use crate::errors::{Failure, Status, guarded};
use crate::requests::{End, Request};
use crate::types::{Operator, Type, dtype, element_op};

/// A collective that is to be run.
struct Call<'a> {
    comm: &'a Communicator,
    request: Foreign,
    op: CallOp,
}

/// What is only copied needs no operator; this one is there for every type.
fn copies(dtype: DType) -> ElementOp {
    ElementOp { dtype, operator: fanin_comm::Operator::Max }
}

impl<'a> Call<'a> {
    /// `elements` are those of a share.
    ///
    /// # Safety
    /// `comm` is a communicator, or NULL.
    unsafe fn new(
        comm: *const Communicator,
        kind: CollectiveKind,
        op: Result<ElementOp, Failure>,
        elements: usize,
        (input, output): (*const c_void, *const c_void),
    ) -> Result<Self, Failure> {
        // SAFETY: as this function's.
        let comm = unsafe { Communicator::of(comm)? };
        let (op, rank, world) = (op?, comm.inner.rank(), comm.inner.world());
        let all = if kind.shares(world) > 1 { world as usize } else { 1 };
        let (own_only, whole) = (1, all);
        let (of_input, of_output) = match kind {
            CollectiveKind::AllGather => (own_only, whole),
            CollectiveKind::ReduceScatter => (whole, own_only),
            _ => (1, 1),
        };
        let region = |address: *const c_void, shares: usize, is_used: bool| {
            let bytes = elements.checked_mul(op.dtype.bytes()).and_then(|bytes| bytes.checked_mul(shares));
            let bytes = bytes.ok_or_else(|| Failure::argument(format!("elements = {elements}: expected fewer, of {}", op.dtype)))?;
            Ok::<Region, Failure>(if is_used { Region { address: address as usize, bytes } } else { Region::NONE })
        };
        let gives = (0..kind.shares(world)).any(|share| kind.contributes(Rank(rank), share));
        let gets = (0..kind.shares(world)).any(|share| kind.receives(Rank(rank), share));
        let vectors = (region(input, of_input, gives)?, region(output, of_output, gets)?);
        let request = Foreign::new(kind, elements as u64, vectors, (rank, world)).map_err(Failure::argument)?;
        Ok(Call { comm, request, op: op.into() })
    }

    /// Runs it.
    ///
    /// # Safety
    /// The vectors stay where they are, and nobody else touches them, until this returns.
    unsafe fn run(self) -> Result<(), Failure> {
        // SAFETY: as this function's.
        unsafe { self.request.run(&self.comm.inner, self.op) }.map_err(Failure::from)
    }

    /// Runs it in the background.
    ///
    /// # Safety
    /// The vectors stay where they are, and nobody else touches them, until the request is done. `request` may be written to, where it is not NULL.
    unsafe fn start(self, request: *mut *mut Request) -> Result<(), Failure> {
        // SAFETY: as this function's.
        let place =
            unsafe { request.as_mut() }.ok_or_else(|| Failure::argument("there is no place for the request: the last argument is NULL"))?;
        *place = ptr::null_mut();
        let end = End::of(&self.comm.under_way);
        let told = end.clone();
        // SAFETY: as this function's.
        if let Err(error) = unsafe { self.request.start(&self.comm.inner, self.op, move |result| told.tell(result)) } {
            end.tell(Ok(()));
            return Err(error.into());
        }
        *place = Box::into_raw(Box::new(Request { end }));
        Ok(())
    }
}

fn reduce_to(root: u32) -> CollectiveKind {
    CollectiveKind::Reduce { root: Rank(root) }
}

fn broadcast_from(root: u32) -> CollectiveKind {
    CollectiveKind::Broadcast { root: Rank(root) }
}

/// Every rank gets the reduction of all vectors of so many elements.
///
/// # Safety
/// `comm` is a communicator. The vectors are that long, are the same or do not overlap, and nobody touches them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_allreduce(
    comm: *const Communicator,
    input: *const c_void,
    output: *mut c_void,
    elements: usize,
    of: Type,
    op: Operator,
) -> Status {
    // SAFETY: as this function's.
    guarded(|| unsafe { Call::new(comm, CollectiveKind::Allreduce, element_op(of, op), elements, (input, output))?.run() })
}

/// `fanin_allreduce` in the background.
///
/// # Safety
/// As there, until the request is done; `request` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_allreduce_start(
    comm: *const Communicator,
    input: *const c_void,
    output: *mut c_void,
    elements: usize,
    of: Type,
    op: Operator,
    request: *mut *mut Request,
) -> Status {
    // SAFETY: as this function's.
    guarded(|| unsafe { Call::new(comm, CollectiveKind::Allreduce, element_op(of, op), elements, (input, output))?.start(request) })
}

/// Rank `root` gets the reduction of all vectors of so many elements; of other ranks `output` is not looked at, and may be NULL.
///
/// # Safety
/// As `fanin_allreduce`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_reduce(
    comm: *const Communicator,
    input: *const c_void,
    output: *mut c_void,
    elements: usize,
    of: Type,
    op: Operator,
    root: u32,
) -> Status {
    // SAFETY: as this function's.
    guarded(|| unsafe { Call::new(comm, reduce_to(root), element_op(of, op), elements, (input, output))?.run() })
}

/// `fanin_reduce` in the background.
///
/// # Safety
/// As there, until the request is done; `request` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_reduce_start(
    comm: *const Communicator,
    input: *const c_void,
    output: *mut c_void,
    elements: usize,
    of: Type,
    op: Operator,
    root: u32,
    request: *mut *mut Request,
) -> Status {
    // SAFETY: as this function's.
    guarded(|| unsafe { Call::new(comm, reduce_to(root), element_op(of, op), elements, (input, output))?.start(request) })
}

/// Every rank gets rank `root`'s vector of so many elements.
///
/// # Safety
/// `comm` is a communicator. The vector is that long, and nobody touches it meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_broadcast(comm: *const Communicator, vector: *mut c_void, elements: usize, of: Type, root: u32) -> Status {
    // SAFETY: as this function's.
    guarded(|| unsafe { Call::new(comm, broadcast_from(root), dtype(of).map(copies), elements, (vector, vector))?.run() })
}

/// `fanin_broadcast` in the background.
///
/// # Safety
/// As there, until the request is done; `request` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_broadcast_start(
    comm: *const Communicator,
    vector: *mut c_void,
    elements: usize,
    of: Type,
    root: u32,
    request: *mut *mut Request,
) -> Status {
    // SAFETY: as this function's.
    guarded(|| unsafe { Call::new(comm, broadcast_from(root), dtype(of).map(copies), elements, (vector, vector))?.start(request) })
}

/// Every rank gets its part of the reduction of all vectors: `output` has so many elements, `input` as many for each rank, in the order of ranks. The
/// output may be the rank's own part of the input; what is in the other parts afterwards is not said.
///
/// # Safety
/// `comm` is a communicator. The vectors are that long, do not overlap otherwise, and nobody touches them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_reduce_scatter(
    comm: *const Communicator,
    input: *const c_void,
    output: *mut c_void,
    elements: usize,
    of: Type,
    op: Operator,
) -> Status {
    // SAFETY: as this function's.
    guarded(|| unsafe { Call::new(comm, CollectiveKind::ReduceScatter, element_op(of, op), elements, (input, output))?.run() })
}

/// `fanin_reduce_scatter` in the background.
///
/// # Safety
/// As there, until the request is done; `request` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_reduce_scatter_start(
    comm: *const Communicator,
    input: *const c_void,
    output: *mut c_void,
    elements: usize,
    of: Type,
    op: Operator,
    request: *mut *mut Request,
) -> Status {
    // SAFETY: as this function's.
    guarded(|| unsafe { Call::new(comm, CollectiveKind::ReduceScatter, element_op(of, op), elements, (input, output))?.start(request) })
}

/// Every rank gets the vectors of all ranks, in the order of ranks: `input` has so many elements, `output` as many for each rank. The input may be
/// the rank's own part of the output.
///
/// # Safety
/// `comm` is a communicator. The vectors are that long, do not overlap otherwise, and nobody touches them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_all_gather(
    comm: *const Communicator,
    input: *const c_void,
    output: *mut c_void,
    elements: usize,
    of: Type,
) -> Status {
    // SAFETY: as this function's.
    guarded(|| unsafe { Call::new(comm, CollectiveKind::AllGather, dtype(of).map(copies), elements, (input, output))?.run() })
}

/// `fanin_all_gather` in the background.
///
/// # Safety
/// As there, until the request is done; `request` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_all_gather_start(
    comm: *const Communicator,
    input: *const c_void,
    output: *mut c_void,
    elements: usize,
    of: Type,
    request: *mut *mut Request,
) -> Status {
    // SAFETY: as this function's.
    guarded(|| unsafe { Call::new(comm, CollectiveKind::AllGather, dtype(of).map(copies), elements, (input, output))?.start(request) })
}

/// Returns once all ranks have called it.
///
/// # Safety
/// `comm` is a communicator.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_barrier(comm: *const Communicator) -> Status {
    // SAFETY: as this function's; there are no vectors.
    guarded(|| unsafe { Call::new(comm, CollectiveKind::Barrier, Ok(copies(DType::U8)), 0, (ptr::null(), ptr::null()))?.run() })
}

/// `fanin_barrier` in the background.
///
/// # Safety
/// `comm` is a communicator; `request` may be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn fanin_barrier_start(comm: *const Communicator, request: *mut *mut Request) -> Status {
    // SAFETY: as this function's; there are no vectors.
    guarded(|| unsafe { Call::new(comm, CollectiveKind::Barrier, Ok(copies(DType::U8)), 0, (ptr::null(), ptr::null()))?.start(request) })
}
