//! Memory that Python's objects own, by its address: from here on, slices.
//!
//! This is the only place of the module with `unsafe` code. What it relies on is what callers of the module promise: the memory stays where
//! it is, and nobody else touches it, until the call returns or its handle is done.

use std::ops::Range;
use std::slice;
use std::time::Duration;

use fanin_comm::{CollectiveKind, CommError, Communicator, DType, ElementOp, Lent, Operator, Rank, Sparse};

use crate::operator::{Op, Reduction};

/// A collective over memory at given addresses.
#[derive(Clone, Debug)]
pub struct Request {
    kind: CollectiveKind,
    op: Reduction,
    elements: u64,
    vectors: Vectors,
    timeout: Option<Duration>,
}

/// Where the vectors of a call lie.
#[derive(Clone, Debug)]
enum Vectors {
    /// The result takes the input's place.
    InPlace(Region),
    /// They do not overlap.
    Apart { input: Region, output: Region },
}

/// A stretch of memory, by address and length.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    /// Where it begins.
    pub address: usize,
    /// How long it is.
    pub bytes: usize,
}

impl Region {
    fn range(self) -> Range<usize> {
        self.address..self.address + self.bytes
    }

    fn overlaps(self, other: Region) -> bool {
        let (mine, theirs) = (self.range(), other.range());
        self.bytes > 0 && other.bytes > 0 && mine.start < theirs.end && theirs.start < mine.end
    }

    fn check(self, what: &str) -> Result<(), String> {
        if self.bytes > isize::MAX as usize || self.address.checked_add(self.bytes).is_none() {
            return Err(format!("the {what} of {} bytes at {:#x} is beyond the end of memory", self.bytes, self.address));
        }
        if self.address == 0 && self.bytes > 0 {
            return Err(format!("the {what} of {} bytes has no address", self.bytes));
        }
        Ok(())
    }

    /// # Safety
    /// Nobody writes to the memory while the slice lives.
    unsafe fn as_slice<'a>(self) -> &'a [u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the caller keeps the memory alive and unchanged; `check` has seen to address and length.
        unsafe { slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }

    /// Writes bytes to all of it.
    ///
    /// # Errors
    /// In words, where it is not `count` bytes long, and nothing is written.
    ///
    /// # Safety
    /// The memory is the caller's, and nobody else touches it meanwhile.
    pub unsafe fn write(self, what: &str, bytes: impl Iterator<Item = u8>, count: usize) -> Result<(), String> {
        self.check(what)?;
        if self.bytes != count {
            return Err(format!("{what}: memory of {} bytes for {count}", self.bytes));
        }
        // SAFETY: as this function's.
        unsafe { self.as_slice_mut() }.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        Ok(())
    }

    /// # Safety
    /// Nobody else reads or writes the memory while the slice lives.
    unsafe fn as_slice_mut<'a>(self) -> &'a mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: the caller keeps the memory alive and to itself; `check` has seen to address and length.
        unsafe { slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
    }
}

impl Request {
    /// What is asked for, by names.
    ///
    /// # Errors
    /// In words: unknown names, impossible addresses, vectors that overlap where they may not.
    pub fn new(
        (kind, root): (&str, u32),
        (dtype, op): (&str, &Op),
        elements: u64,
        (input, output): (Region, Region),
        place: (u32, u32),
    ) -> Result<Self, String> {
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
        input.check("input")?;
        output.check("output")?;
        let vectors = Vectors::new(kind, input, output, place)?;
        Ok(Request { kind, op: operation(kind, dtype, op)?, elements, vectors, timeout: None })
    }

    /// With a timeout of its own, in seconds, where there is one.
    ///
    /// # Errors
    /// In words, where that is no time.
    pub fn within(mut self, timeout: Option<f64>) -> Result<Self, String> {
        self.timeout = seconds(timeout)?;
        Ok(self)
    }

    /// Runs the collective.
    ///
    /// # Errors
    /// Those of the communicator.
    ///
    /// # Safety
    /// The memory of the vectors stays where it is, and nobody else touches it, until this returns.
    pub unsafe fn run(self, comm: &Communicator) -> Result<(), CommError> {
        let within = comm.within(self.timeout.unwrap_or_else(|| comm.timeout()))?;
        match self.vectors {
            Vectors::InPlace(region) => {
                // SAFETY: as this function's.
                let vector = unsafe { region.as_slice_mut() };
                within.call_bytes_in_place(self.kind, self.op.at(comm)?, self.elements, vector)
            }
            Vectors::Apart { input, output } => {
                // SAFETY: as this function's; the two do not overlap.
                let (input, output) = unsafe { (input.as_slice(), output.as_slice_mut()) };
                within.call_bytes(self.kind, self.op.at(comm)?, self.elements, input, output)
            }
        }
    }

    /// Runs the collective in the background, and then `done`.
    ///
    /// # Errors
    /// Those of the communicator; `done` is not called then.
    ///
    /// # Safety
    /// The memory of the vectors stays where it is, and nobody else touches it, until `done` is called.
    pub unsafe fn start(self, comm: &Communicator, done: impl FnOnce(Result<(), CommError>) + Send + 'static) -> Result<(), CommError> {
        let within = comm.within(self.timeout.unwrap_or_else(|| comm.timeout()))?;
        within.call_async_then(self.kind, self.op.at(comm)?, self.elements, self.vectors, |_, result| done(result))
    }
}

/// A sparse allreduce of entries at given addresses.
#[derive(Clone, Debug)]
pub struct SparseRequest {
    op: ElementOp,
    size: u64,
    /// 64-bit numbers, not negative, at any alignment.
    indices: Region,
    values: Region,
    timeout: Option<Duration>,
}

impl SparseRequest {
    /// What is asked for, by names.
    ///
    /// # Errors
    /// In words: unknown names, impossible addresses.
    pub fn new((dtype, op): (&str, &str), size: u64, (indices, values): (Region, Region), timeout: Option<f64>) -> Result<Self, String> {
        let dtype: DType = dtype.parse().map_err(|error: fanin_comm::UnknownName| error.to_string())?;
        let operator: Operator = op.parse().map_err(|error: fanin_comm::UnknownName| error.to_string())?;
        indices.check("indices")?;
        values.check("values")?;
        Ok(SparseRequest { op: ElementOp { dtype, operator }, size, indices, values, timeout: seconds(timeout)? })
    }

    /// Runs it in the background, and then `done`.
    ///
    /// # Errors
    /// Those of the communicator; `done` is not called then.
    ///
    /// # Safety
    /// Nobody writes to the memory until this returns; the call goes on with copies.
    pub unsafe fn start(
        self,
        comm: &Communicator,
        done: impl FnOnce(Result<Sparse<u8>, CommError>) + Send + 'static,
    ) -> Result<(), CommError> {
        // SAFETY: as this function's.
        let (indices, values) = unsafe { (self.indices.as_slice(), self.values.as_slice()) };
        let indices: Vec<u64> = indices.as_chunks().0.iter().map(|index| u64::from_le_bytes(*index)).collect();
        let within = comm.within(self.timeout.unwrap_or_else(|| comm.timeout()))?;
        within.call_sparse_async_then(self.op, &indices, values, self.size, done)
    }
}

/// A time as Python has it.
///
/// # Errors
/// In words, where it is none.
pub fn seconds(timeout: Option<f64>) -> Result<Option<Duration>, String> {
    let time = |seconds| Duration::try_from_secs_f64(seconds).map_err(|_| format!("timeout = {seconds}: expected seconds"));
    timeout.map(time).transpose()
}

/// The operator; what is only copied has one that every type has. Of one that the job has brought along, the type says nothing.
fn operation(kind: CollectiveKind, dtype: &str, op: &Op) -> Result<Reduction, String> {
    let name = match op {
        Op::Named(name) => name,
        Op::Custom(operator) => return Ok(Reduction::Of(operator.get().0.clone())),
    };
    let dtype: DType = dtype.parse().map_err(|error: fanin_comm::UnknownName| error.to_string())?;
    let operator: Operator = name.parse().map_err(|error: fanin_comm::UnknownName| error.to_string())?;
    let is_copy = matches!(kind, CollectiveKind::Broadcast { .. } | CollectiveKind::AllGather | CollectiveKind::Barrier);
    Ok(Reduction::Known(ElementOp { dtype, operator: if is_copy { Operator::Max } else { operator } }.into()))
}

impl Vectors {
    /// `place` is rank and number of ranks: where each has a share, a rank's own share may lie in its place in the whole.
    fn new(kind: CollectiveKind, input: Region, output: Region, (rank, world): (u32, u32)) -> Result<Self, String> {
        let own_part = |share: Region, whole: Region| {
            share.bytes.checked_mul(world as usize) == Some(whole.bytes) && share.address == whole.address + share.bytes * rank as usize
        };
        let in_place = match kind {
            CollectiveKind::AllGather if own_part(input, output) => Some(output),
            CollectiveKind::ReduceScatter if own_part(output, input) => Some(input),
            // Nobody but the root gets a result, and nobody but the root of a broadcast gives one.
            CollectiveKind::Broadcast { .. } | CollectiveKind::Reduce { .. } if input.bytes == 0 || output.bytes == 0 => None,
            _ => (input == output).then_some(input),
        };
        match in_place {
            Some(region) => Ok(Vectors::InPlace(region)),
            None if input.overlaps(output) => Err(format!(
                "{}: input and output overlap: {} bytes at {:#x} and {} bytes at {:#x}",
                kind.name(),
                input.bytes,
                input.address,
                output.bytes,
                output.address
            )),
            None => Ok(Vectors::Apart { input, output }),
        }
    }
}

impl Lent for Vectors {
    fn bytes(&mut self) -> &mut [u8] {
        match self {
            // SAFETY: whoever starts a call in the background promises that the memory is its own until that ends: `Request::start`.
            Vectors::InPlace(region) => unsafe { region.as_slice_mut() },
            Vectors::Apart { .. } => &mut [],
        }
    }

    fn apart(&mut self) -> Option<(&[u8], &mut [u8])> {
        match self {
            Vectors::InPlace(_) => None,
            // SAFETY: as above, and the two do not overlap.
            Vectors::Apart { input, output } => Some(unsafe { (input.as_slice(), output.as_slice_mut()) }),
        }
    }
}
