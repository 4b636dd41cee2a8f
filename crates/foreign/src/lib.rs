//! Memory that belongs to programs in other languages, by its address: from here on, slices.
//!
//! This is the only place of what binds other languages that makes slices of addresses. What it relies on is what its callers promise, and ask
//! of theirs: the memory stays where it is, and nobody else touches it, until the call returns or its end is told.

use std::ops::Range;
use std::slice;
use std::time::Duration;

use fanin_comm::{CallOp, CollectiveKind, CommError, Communicator, ElementOp, Lent, Sparse};

/// A collective over memory at given addresses.
#[derive(Clone, Debug)]
pub struct Request {
    kind: CollectiveKind,
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
    /// No memory.
    pub const NONE: Region = Region { address: 0, bytes: 0 };

    fn range(self) -> Range<usize> {
        self.address..self.address + self.bytes
    }

    fn overlaps(self, other: Region) -> bool {
        let (mine, theirs) = (self.range(), other.range());
        self.bytes > 0 && other.bytes > 0 && mine.start < theirs.end && theirs.start < mine.end
    }

    /// Whether there can be such memory.
    ///
    /// # Errors
    /// In words, where there cannot.
    pub fn check(self, what: &str) -> Result<(), String> {
        if self.bytes > isize::MAX as usize || self.address.checked_add(self.bytes).is_none() {
            return Err(format!("the {what} of {} bytes at {:#x} is beyond the end of memory", self.bytes, self.address));
        }
        if self.address == 0 && self.bytes > 0 {
            return Err(format!("the {what} of {} bytes has no address", self.bytes));
        }
        Ok(())
    }

    /// Its bytes, after a [`Region::check`].
    ///
    /// # Safety
    /// Nobody writes to the memory while the slice lives.
    pub unsafe fn as_slice<'a>(self) -> &'a [u8] {
        if self.bytes == 0 {
            return &[];
        }
        // SAFETY: the caller keeps the memory alive and unchanged; `check` has seen to address and length.
        unsafe { slice::from_raw_parts(self.address as *const u8, self.bytes) }
    }

    /// Its bytes, to be written, after a [`Region::check`].
    ///
    /// # Safety
    /// Nobody else reads or writes the memory while the slice lives.
    pub unsafe fn as_slice_mut<'a>(self) -> &'a mut [u8] {
        if self.bytes == 0 {
            return &mut [];
        }
        // SAFETY: the caller keeps the memory alive and to itself; `check` has seen to address and length.
        unsafe { slice::from_raw_parts_mut(self.address as *mut u8, self.bytes) }
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
}

impl Request {
    /// A collective of `elements` a share, as [`Communicator::call_bytes`] has it; `place` is the rank and the number of ranks. Where each rank has
    /// a share, a rank's own may lie in its place in the whole.
    ///
    /// # Errors
    /// In words: impossible addresses, vectors that overlap where they may not.
    pub fn new(kind: CollectiveKind, elements: u64, (input, output): (Region, Region), place: (u32, u32)) -> Result<Self, String> {
        input.check("input")?;
        output.check("output")?;
        Ok(Request { kind, elements, vectors: Vectors::new(kind, input, output, place)?, timeout: None })
    }

    /// With a timeout of its own, where there is one.
    #[must_use]
    pub fn within(self, timeout: Option<Duration>) -> Self {
        Request { timeout, ..self }
    }

    /// Runs the collective.
    ///
    /// # Errors
    /// Those of the communicator.
    ///
    /// # Safety
    /// The memory of the vectors stays where it is, and nobody else touches it, until this returns.
    pub unsafe fn run(self, comm: &Communicator, op: CallOp) -> Result<(), CommError> {
        let within = comm.within(self.timeout.unwrap_or_else(|| comm.timeout()))?;
        match self.vectors {
            Vectors::InPlace(region) => {
                // SAFETY: as this function's.
                let vector = unsafe { region.as_slice_mut() };
                within.call_bytes_in_place(self.kind, op, self.elements, vector)
            }
            Vectors::Apart { input, output } => {
                // SAFETY: as this function's; the two do not overlap.
                let (input, output) = unsafe { (input.as_slice(), output.as_slice_mut()) };
                within.call_bytes(self.kind, op, self.elements, input, output)
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
    pub unsafe fn start(
        self,
        comm: &Communicator,
        op: CallOp,
        done: impl FnOnce(Result<(), CommError>) + Send + 'static,
    ) -> Result<(), CommError> {
        let within = comm.within(self.timeout.unwrap_or_else(|| comm.timeout()))?;
        within.call_async_then(self.kind, op, self.elements, self.vectors, |_, result| done(result))
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
    /// Entries of vectors of `size` elements.
    ///
    /// # Errors
    /// In words: impossible addresses.
    pub fn new(op: ElementOp, size: u64, (indices, values): (Region, Region), timeout: Option<Duration>) -> Result<Self, String> {
        indices.check("indices")?;
        values.check("values")?;
        Ok(SparseRequest { op, size, indices, values, timeout })
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

impl Vectors {
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

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_comm::{Config, DType, Meeting, Operator, Rank};

    const SUM: ElementOp = ElementOp { dtype: DType::I32, operator: Operator::Sum };

    fn region(memory: &mut [i32]) -> Region {
        Region { address: memory.as_mut_ptr() as usize, bytes: size_of_val(memory) }
    }

    #[test]
    fn memory_that_cannot_be_is_refused_and_what_may_overlap_is_known() {
        let of = |kind, input, output| Request::new(kind, 1, (input, output), (1, 2)).map(|request| request.vectors);
        let at = |address, bytes| Region { address, bytes };
        let reduce = CollectiveKind::Reduce { root: Rank(0) };
        assert!(of(CollectiveKind::Allreduce, at(0, 4), at(0, 4)).unwrap_err().contains("has no address"));
        assert!(of(CollectiveKind::Allreduce, at(usize::MAX - 2, 4), at(8, 4)).unwrap_err().contains("beyond the end of memory"));
        assert!(matches!(of(CollectiveKind::Allreduce, at(64, 8), at(64, 8)), Ok(Vectors::InPlace(_))));
        assert!(matches!(of(CollectiveKind::Allreduce, at(64, 8), at(72, 8)), Ok(Vectors::Apart { .. })));
        assert!(of(CollectiveKind::Allreduce, at(64, 8), at(68, 8)).unwrap_err().contains("overlap"));
        assert!(matches!(of(CollectiveKind::AllGather, at(72, 8), at(64, 16)), Ok(Vectors::InPlace(whole)) if whole == at(64, 16)));
        assert!(of(CollectiveKind::AllGather, at(64, 8), at(64, 16)).unwrap_err().contains("overlap"), "rank 0's place");
        assert!(matches!(of(CollectiveKind::ReduceScatter, at(64, 16), at(72, 8)), Ok(Vectors::InPlace(whole)) if whole == at(64, 16)));
        assert!(matches!(of(reduce, at(64, 8), Region::NONE), Ok(Vectors::Apart { .. })));
    }

    #[test]
    fn a_lone_rank_gets_its_own_vector_now_and_in_the_background() {
        let comm = Communicator::join(Config::new(0, 1, Meeting::Nowhere)).unwrap();
        let (mut input, mut output, mut gathered) = (vec![3, -4, 5], vec![0; 3], vec![0; 3]);
        let regions = (region(&mut input), region(&mut output));
        // SAFETY: the vectors are here until the end, and nobody touches them meanwhile.
        unsafe { Request::new(CollectiveKind::Allreduce, 3, regions, (0, 1)).unwrap().run(&comm, SUM.into()).unwrap() };
        assert_eq!(output, [3, -4, 5]);
        let (told, end) = std::sync::mpsc::channel();
        let regions = (region(&mut output), region(&mut gathered));
        let request = Request::new(CollectiveKind::AllGather, 3, regions, (0, 1)).unwrap();
        // SAFETY: as above, until the end is told.
        unsafe { request.start(&comm, SUM.into(), move |result| told.send(result).unwrap()).unwrap() };
        end.recv().unwrap().unwrap();
        assert_eq!(gathered, [3, -4, 5]);
    }
}
