//! Memory that Python's objects own, by its address: from here on, slices.
//!
//! This is the only place of the module with `unsafe` code. What it relies on is what callers of the module promise: the memory stays where
//! it is, and nobody else touches it, until the call returns or its handle is done.

use std::ops::Range;
use std::slice;

use fanin_comm::{CollectiveKind, CommError, Communicator, DType, ElementOp, Lent, Operator, Rank};

/// A collective over memory at given addresses.
#[derive(Clone, Debug)]
pub struct Request {
    kind: CollectiveKind,
    op: ElementOp,
    elements: u64,
    vectors: Vectors,
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
        (dtype, op): (&str, &str),
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
        let dtype: DType = dtype.parse().map_err(|error: fanin_comm::UnknownName| error.to_string())?;
        let operator: Operator = op.parse().map_err(|error: fanin_comm::UnknownName| error.to_string())?;
        input.check("input")?;
        output.check("output")?;
        let vectors = Vectors::new(kind, input, output, place)?;
        Ok(Request { kind, op: operation(kind, dtype, operator), elements, vectors })
    }

    /// Runs the collective.
    ///
    /// # Errors
    /// Those of the communicator.
    ///
    /// # Safety
    /// The memory of the vectors stays where it is, and nobody else touches it, until this returns.
    pub unsafe fn run(self, comm: &Communicator) -> Result<(), CommError> {
        match self.vectors {
            Vectors::InPlace(region) => {
                // SAFETY: as this function's.
                let vector = unsafe { region.as_slice_mut() };
                comm.call_bytes_in_place(self.kind, self.op, self.elements, vector)
            }
            Vectors::Apart { input, output } => {
                // SAFETY: as this function's; the two do not overlap.
                let (input, output) = unsafe { (input.as_slice(), output.as_slice_mut()) };
                comm.call_bytes(self.kind, self.op, self.elements, input, output)
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
        comm.call_async_then(self.kind, self.op, self.elements, self.vectors, |_, result| done(result))
    }
}

/// The operator; what is only copied has one that every type has.
fn operation(kind: CollectiveKind, dtype: DType, operator: Operator) -> ElementOp {
    let is_copy = matches!(kind, CollectiveKind::Broadcast { .. } | CollectiveKind::AllGather | CollectiveKind::Barrier);
    ElementOp { dtype, operator: if is_copy { Operator::Max } else { operator } }
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
