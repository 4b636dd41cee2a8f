//! Sparse allreduce: vectors of which most elements are not there, as lists of indices and values.
//!
//! Ranks first tell each other how many entries each has (which is also where it shows that they call different things). From these counts
//! all of them conclude the same: their lists are gathered and merged in the order of ranks, or, where that would be more bytes, the vector
//! is reduced as a dense one, together with a bit for each element that says whether anybody has given it.

mod dense;
mod lists;

use std::fmt;

use fanin_core::{CollectiveKind, DType, ElementOp, Operator};

use crate::call::{Buffers, SparseStep};
use crate::communicator::Core;
use crate::element::Element;
use crate::error::CommError;
pub(crate) use lists::Entries;
use lists::{Collection, Packed};

/// What a sparse allreduce gives: the same at all ranks.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Sparse<T> {
    /// Every index that any rank has given, once, in ascending order.
    pub indices: Vec<u64>,
    /// The reduction of what ranks have given for it; also where that is zero.
    pub values: Vec<T>,
    /// How it was computed.
    pub report: SparseReport,
}

/// How a sparse allreduce was computed, and why so.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SparseReport {
    /// Which way was taken.
    pub way: SparseWay,
    /// Entries that all ranks have given together.
    pub entries: u64,
    /// Entries of the rank with the most.
    pub longest: u64,
    /// What a rank sends and receives with lists, in bytes.
    pub lists_bytes: u64,
    /// What it sends and receives with a dense vector, in bytes.
    pub dense_bytes: u64,
}

/// Ways in which a sparse allreduce is computed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum SparseWay {
    /// There is only one rank.
    Alone,
    /// Every rank gets the lists of all ranks and merges them: switches of this job reduce dense vectors only.
    Lists,
    /// A dense allreduce, since lists would be more bytes.
    Dense,
}

impl SparseWay {
    /// Its name: `alone`, `lists` or `dense`.
    pub const fn name(self) -> &'static str {
        match self {
            SparseWay::Alone => "alone",
            SparseWay::Lists => "lists",
            SparseWay::Dense => "dense",
        }
    }
}

impl fmt::Display for SparseReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let SparseReport { way, entries, longest, lists_bytes, dense_bytes } = self;
        match way {
            SparseWay::Alone => return f.write_str("alone: one rank, nothing travels"),
            SparseWay::Lists => f.write_str("lists: gathered, and merged by every rank, as the job's switch reduces dense vectors only")?,
            SparseWay::Dense => f.write_str("dense: a dense allreduce, as lists would be more bytes")?,
        }
        write!(f, " ({entries} entries, {longest} at most at a rank; {lists_bytes} bytes at each rank with lists, {dense_bytes} dense)")
    }
}

impl SparseReport {
    /// Which way the same counts lead to at all ranks: to the one with fewer bytes that a rank sends and receives. The longest list counts
    /// for all, since parts of a gathering are equally long.
    fn choose(counts: &[u64], size: u64, op: ElementOp, may_be_dense: bool) -> Self {
        let longest = counts.iter().copied().max().unwrap_or_default();
        let share = Packed::new(size, longest, op).bytes();
        let lists_bytes = share.saturating_mul(counts.len() as u64 + 1);
        let dense_bytes = size.saturating_mul(op.dtype.bytes() as u64).saturating_add(size.div_ceil(8)).saturating_mul(2);
        let way = match counts.len() {
            1 => SparseWay::Alone,
            _ if may_be_dense && dense_bytes < lists_bytes => SparseWay::Dense,
            _ => SparseWay::Lists,
        };
        SparseReport { way, entries: counts.iter().fold(0, |sum, count| sum.saturating_add(*count)), longest, lists_bytes, dense_bytes }
    }
}

/// A rank's part in a sparse allreduce, checked and sorted.
#[derive(Debug)]
pub(crate) struct Given {
    pub(crate) op: ElementOp,
    pub(crate) size: u64,
    pub(crate) entries: Entries,
}

impl Given {
    /// # Errors
    /// [`CommError::Arguments`]: names the operator, the lengths, or the first index that is out of range.
    pub(crate) fn new(op: ElementOp, indices: &[u64], values: &[u8], size: u64) -> Result<Self, CommError> {
        let wrong = |text: String| Err(CommError::Arguments(format!("sparse allreduce: {text}")));
        if !matches!(op.operator, Operator::Sum | Operator::Min | Operator::Max) {
            let hint = if op.operator == Operator::Avg { "; divide a sum by the number of ranks" } else { "" };
            return wrong(format!("operator = {}: expected sum, min or max{hint}", op.operator));
        }
        let count = values.len() / op.dtype.bytes();
        if indices.len() != count || !values.len().is_multiple_of(op.dtype.bytes()) {
            return wrong(format!("{} indices and {count} values ({}): expected as many", indices.len(), op.dtype));
        }
        if size.checked_mul(op.dtype.bytes() as u64).is_none_or(|bytes| bytes > i64::MAX as u64) {
            return wrong(format!("size = {size}: expected a vector of {} that has fewer than 2^63 bytes", op.dtype));
        }
        if let Some(at) = indices.iter().position(|index| *index >= size) {
            return wrong(format!("indices[{at}] = {}: expected below the size of the vector, {size}", indices[at]));
        }
        // A single list: no operator here depends on the number of ranks.
        Ok(Given { op, size, entries: Collection::of(indices, values).merge(op, 1) })
    }
}

impl Core {
    /// Runs a sparse allreduce whose turn it is.
    pub(crate) fn run_sparse(&self, given: Given) -> Result<(Entries, SparseReport), CommError> {
        let Given { op, size, entries } = given;
        let counts = self.gather_counts(op, size, entries.indices.len() as u64)?;
        let report = SparseReport::choose(&counts, size, op, !self.rounds(op));
        let result = match report.way {
            SparseWay::Alone => entries,
            SparseWay::Lists => self.gather_lists(op, size, &entries, &counts, report.longest)?,
            SparseWay::Dense => self.reduce_dense(op, size, &entries)?,
        };
        Ok((result, report))
    }

    /// How many entries each rank has. Ranks that differ in size, type or operator do not get beyond it.
    fn gather_counts(&self, op: ElementOp, size: u64, mine: u64) -> Result<Vec<u64>, CommError> {
        let (step, mut counts) = (SparseStep { op, size, number: 0 }, vec![0u64; self.world() as usize]);
        let mut buffers = Buffers::Apart { input: &mine.to_le_bytes(), output: bytemuck::cast_slice_mut(&mut counts) };
        self.run_step(CollectiveKind::AllGather, copied(DType::I64), 1, &mut buffers, Some(step))?;
        match counts.iter().position(|count| *count > size) {
            Some(rank) => Err(self.broken(format!("rank {rank} has {} entries in a vector of {size}", counts[rank]), rank as u32)),
            None => Ok(counts),
        }
    }

    fn gather_lists(&self, op: ElementOp, size: u64, entries: &Entries, counts: &[u64], longest: u64) -> Result<Entries, CommError> {
        if longest == 0 {
            return Ok(Entries::default());
        }
        let packed = Packed::new(size, longest, op);
        let (input, share) = (packed.pack(entries), packed.bytes() as usize);
        let mut all = vec![0; share * counts.len()];
        let step = SparseStep { op, size, number: 1 };
        let mut buffers = Buffers::Apart { input: &input, output: &mut all };
        self.run_step(CollectiveKind::AllGather, copied(DType::U8), share as u64, &mut buffers, Some(step))?;
        let mut collection = Collection::default();
        all.chunks_exact(share).zip(counts).for_each(|(list, count)| packed.unpack(list, *count, &mut collection));
        Ok(collection.merge(op, self.world()))
    }

    fn reduce_dense(&self, op: ElementOp, size: u64, entries: &Entries) -> Result<Entries, CommError> {
        let (mut vector, mut presence) = (dense::spread(op, size, entries), dense::presence(size, entries));
        let step = SparseStep { op, size, number: 2 };
        self.run_step(CollectiveKind::Allreduce, op, size, &mut Buffers::InPlace(&mut vector), Some(step))?;
        let or = ElementOp { dtype: DType::U8, operator: Operator::Or };
        let (step, bytes) = (SparseStep { number: 3, ..step }, presence.len() as u64);
        self.run_step(CollectiveKind::Allreduce, or, bytes, &mut Buffers::InPlace(&mut presence), Some(step))?;
        Ok(dense::collect(op, &vector, &presence))
    }
}

impl<T: Element> Sparse<T> {
    pub(crate) fn of((entries, report): (Entries, SparseReport)) -> Self {
        let mut values = vec![T::zeroed(); entries.values.len() / size_of::<T>()];
        // Whole elements, or bytes where the caller knows what they are.
        bytemuck::cast_slice_mut(&mut values).copy_from_slice(&entries.values);
        Sparse { indices: entries.indices, values, report }
    }
}

/// What is only gathered.
fn copied(dtype: DType) -> ElementOp {
    ElementOp { dtype, operator: Operator::Max }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_with_fewer_bytes_is_taken() {
        // f32: a list of n entries is 8 n bytes, sent once and received from each of two; dense, 1000 elements are 4125 bytes both ways.
        let of = |longest: u64, may: bool| SparseReport::choose(&[longest, 1], 1_000, ElementOp::F32_SUM, may);
        let report = of(343, true);
        assert_eq!((report.way, report.lists_bytes, report.dense_bytes, report.entries), (SparseWay::Lists, 8_232, 8_250, 344));
        assert_eq!(of(344, true).way, SparseWay::Dense);
        assert_eq!(of(344, false).way, SparseWay::Lists);
        assert_eq!(SparseReport::choose(&[9], 9, ElementOp::F32_SUM, true).way, SparseWay::Alone);
        assert!(of(344, true).to_string().starts_with("dense: a dense allreduce, as lists would be more bytes (345 entries, 344 at most"));
    }

    #[test]
    fn arguments_that_do_not_fit_are_named() {
        let given = |operator, indices: &[u64], values: &[f32], size| {
            let op = ElementOp { dtype: DType::F32, operator };
            Given::new(op, indices, bytemuck::cast_slice(values), size).unwrap_err().to_string()
        };
        assert_eq!(
            given(Operator::Sum, &[0, 10, 3], &[1.0; 3], 10),
            "sparse allreduce: indices[1] = 10: expected below the size of the vector, 10"
        );
        assert_eq!(given(Operator::Sum, &[0], &[1.0; 3], 10), "sparse allreduce: 1 indices and 3 values (f32): expected as many");
        assert!(given(Operator::Avg, &[], &[], 10).contains("operator = avg: expected sum, min or max; divide a sum"));
        assert!(given(Operator::Sum, &[], &[], u64::MAX).contains("size = 18446744073709551615: expected a vector of f32"));
    }
}
