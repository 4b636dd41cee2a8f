//! The vectors of the running operation, lent by the caller for as long as it runs.

use std::ops::Range;

use fanin_core::{BlockExponent, Body, DType, ElementOp, FixedPoint, OpError, OperationId, Operator, Pair, Payload, Piece, Rank};
use fanin_net::stream::{STREAMED_BYTES_MIN, Upcoming, copy_past_caches, fetch_ahead};

use crate::blocks::BlockSet;

/// So many pieces before it is sent, a piece of a vector is read from memory: sooner than the kernel needs to take a datagram. Copies of
/// pieces that were not there yet took a tenth of the processor time of eight workers and a switch.
const FETCHED_AHEAD: usize = 2;
/// Longer pieces are found by the processor itself.
const FETCHED_BYTES_MAX: usize = 4 << 10;

/// After a piece of a vector: has a later one read.
#[inline]
fn fetch_later(vector: &[u8], piece: Range<usize>) {
    if piece.len() <= FETCHED_BYTES_MAX
        && let Some(later) = vector.get(piece.start + FETCHED_AHEAD * piece.len()..)
    {
        fetch_ahead(&later[..piece.len().min(later.len())]);
    }
}

/// A value of a sparse vector.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SparseEntry {
    /// The element's place in the vector.
    pub index: u64,
    /// The element, as [`Pair::bits`] has it.
    pub bits: u64,
}

/// The memory of an operation's vectors.
#[derive(Debug)]
pub enum Vectors<'a> {
    /// Vectors of which only some elements are there; for systems that reduce such ones.
    Sparse {
        /// Length of the whole vector in elements.
        size: u64,
        /// What the worker contributes, in ascending order of indices.
        input: &'a [SparseEntry],
        /// Where results are appended: those of a piece in ascending order, pieces as they come.
        output: &'a mut Vec<SparseEntry>,
    },
    /// The result takes the input's place.
    InPlace(&'a mut [u8]),
    /// Two vectors. Either may be a part of what the operation is about, where this worker has no more to give, or to get.
    Apart {
        /// What the worker contributes.
        input: &'a [u8],
        /// The first element of the operation's vector that is in `input`.
        input_start: u64,
        /// Where results go.
        output: &'a mut [u8],
        /// The first element of the operation's vector that is in `output`.
        output_start: u64,
    },
}

/// Input and output of one operation, or of none.
#[derive(Debug)]
pub struct Tensors<'a> {
    op: ElementOp,
    /// Bytes of an element: those of its type, unless the operator is one that the job has brought along.
    width: usize,
    operation: Option<OperationId>,
    vectors: Vectors<'a>,
    /// How binary32 elements become integers on the wire, where they do.
    fixed_point: Option<FixedPoint>,
    /// Where pieces that were delivered are written down, and the number of the first one.
    delivered: Option<(&'a mut BlockSet, u64)>,
    /// The output is so long that what is delivered is not in a cache any more when it is used. Where it takes the input's place, the
    /// input is in a cache when its result comes, and a plain copy is better.
    streamed: bool,
    /// Ranks whose contributions the result lacks, in ascending order.
    excluded: Vec<Rank>,
}

impl<'a> Tensors<'a> {
    /// No operation is running: every piece is refused.
    pub fn none(op: ElementOp) -> Self {
        let vectors = Vectors::InPlace(&mut []);
        Tensors {
            op,
            width: op.dtype.bytes(),
            operation: None,
            vectors,
            fixed_point: None,
            delivered: None,
            streamed: false,
            excluded: Vec::new(),
        }
    }

    /// The vectors of `operation`, input and output of the same length.
    ///
    /// # Errors
    /// [`OpError::Length`] where the lengths differ or are not a whole number of elements.
    pub fn lend(op: ElementOp, operation: OperationId, input: &'a [u8], output: &'a mut [u8]) -> Result<Self, OpError> {
        if input.len() != output.len() || !input.len().is_multiple_of(op.dtype.bytes()) {
            return Err(OpError::Length { expected: output.len(), got: input.len() });
        }
        Ok(Tensors::new(op, operation, Vectors::Apart { input, input_start: 0, output, output_start: 0 }))
    }

    /// The vectors of `operation`. A piece that is not in them is refused when the node names it.
    pub fn new(op: ElementOp, operation: OperationId, vectors: Vectors<'a>) -> Self {
        let streamed = matches!(&vectors, Vectors::Apart { output, .. } if output.len() >= STREAMED_BYTES_MIN);
        Tensors {
            op,
            width: op.dtype.bytes(),
            operation: Some(operation),
            vectors,
            fixed_point: None,
            delivered: None,
            streamed,
            excluded: Vec::new(),
        }
    }

    /// These vectors, of elements of this many bytes: for an operator that the job has brought along. Aggregators compute; here such
    /// elements are only copied.
    pub fn with_element_bytes(self, width: usize) -> Self {
        Tensors { width: width.max(1), ..self }
    }

    /// These vectors, which go on the wire as block fixed point if the node asks for that.
    pub fn with_fixed_point(self, fixed_point: Option<FixedPoint>) -> Self {
        Tensors { fixed_point, ..self }
    }

    /// These vectors; the pieces that are delivered are written down in `delivered`, the first one as number `first`.
    pub fn with_delivered(self, delivered: &'a mut BlockSet, first: u64) -> Self {
        Tensors { delivered: Some((delivered, first)), ..self }
    }

    /// The result of an operation lacks this rank's contribution.
    pub(crate) fn exclude(&mut self, operation: OperationId, rank: Rank) {
        if self.operation == Some(operation)
            && let Err(place) = self.excluded.binary_search(&rank)
        {
            self.excluded.insert(place, rank);
        }
    }

    /// Ranks whose contributions the result lacks.
    pub(crate) fn into_excluded(self) -> Vec<Rank> {
        self.excluded
    }

    #[inline]
    fn on_delivered(&mut self, piece: Piece) {
        if let Some((delivered, first)) = &mut self.delivered {
            delivered.insert(*first + u64::from(piece.index));
        }
    }

    /// Length of the input in elements.
    pub fn elements(&self) -> u64 {
        match self.vectors {
            Vectors::Sparse { size, .. } => size,
            _ => (self.memory().0.len() / self.width) as u64,
        }
    }

    /// The input and the number of its first element, then the output and the number of its first one.
    #[inline]
    fn memory(&self) -> (&[u8], u64, &[u8], u64) {
        match &self.vectors {
            Vectors::Sparse { .. } => (&[], 0, &[], 0),
            Vectors::InPlace(bytes) => (bytes, 0, bytes, 0),
            Vectors::Apart { input, input_start, output, output_start } => (input, *input_start, output, *output_start),
        }
    }

    /// The bytes of a piece in a vector of `bytes` bytes that begins with element `first`; also where the piece is nonsense, as one that
    /// came from the network may be, nothing outside the vector is named.
    #[inline]
    fn range(&self, piece: Piece, bytes: usize, first: u64) -> Result<Range<usize>, OpError> {
        Self::range_in(self.width, self.operation, piece, bytes, first)
    }

    #[inline]
    fn range_in(width: usize, running: Option<OperationId>, piece: Piece, bytes: usize, first: u64) -> Result<Range<usize>, OpError> {
        if running != Some(piece.operation) {
            return Err(OpError::NoVector);
        }
        let width = width as u64;
        let start = piece.start.checked_sub(first).ok_or(OpError::NoVector)?;
        let end = start.checked_add(u64::from(piece.elements)).and_then(|end| end.checked_mul(width));
        match end {
            Some(end) if end <= bytes as u64 => Ok((start * width) as usize..end as usize),
            _ => Err(OpError::NoVector),
        }
    }

    #[inline]
    fn output_range(&self, piece: Piece) -> Result<Range<usize>, OpError> {
        let (_, _, output, first) = self.memory();
        self.range(piece, output.len(), first)
    }

    #[inline]
    fn output_mut(&mut self) -> &mut [u8] {
        match &mut self.vectors {
            Vectors::Sparse { .. } => &mut [],
            Vectors::InPlace(bytes) => bytes,
            Vectors::Apart { output, .. } => output,
        }
    }

    /// The piece of the input.
    ///
    /// # Errors
    /// [`OpError::NoVector`] where there is no such piece, or its operation is not the running one.
    #[inline]
    pub fn input(&self, piece: Piece) -> Result<&[u8], OpError> {
        let (input, first, _, _) = self.memory();
        Ok(&input[self.range(piece, input.len(), first)?])
    }

    /// After a piece of the input was sent: has the one that will be sent [`FETCHED_AHEAD`] pieces later read from memory meanwhile.
    #[inline]
    pub(crate) fn fetch_after(&self, sent: Piece) {
        let (input, first, _, _) = self.memory();
        if let Ok(range) = self.range(sent, input.len(), first) {
            fetch_later(input, range);
        }
    }

    /// The piece of the output.
    ///
    /// # Errors
    /// As [`Tensors::input`].
    #[inline]
    pub fn output(&self, piece: Piece) -> Result<&[u8], OpError> {
        let (_, _, output, first) = self.memory();
        Ok(&output[self.range(piece, output.len(), first)?])
    }

    /// The bytes that `body` stands for.
    ///
    /// # Errors
    /// As [`Tensors::input`].
    #[inline]
    pub fn bytes_of<'b>(&'b self, body: Body<'b, [u8]>) -> Result<&'b [u8], OpError> {
        match body {
            Body::Empty => Ok(&[]),
            Body::Borrowed(bytes) => Ok(bytes),
            Body::Acc(acc) => Ok(acc.as_bytes()),
            Body::Input(piece) => self.input(piece),
            Body::Output(piece) => self.output(piece),
        }
    }

    /// See [`Tx::contribute`](fanin_core::Tx::contribute).
    ///
    /// # Errors
    /// As [`Tensors::input`], and where the accumulator does not fit.
    pub fn contribute(&mut self, piece: Piece, accumulator: &mut <[u8] as Payload>::Acc, first: bool) -> Result<(), OpError> {
        let mut op = self.op.into();
        let input = self.input(piece)?;
        if first { input.assign(accumulator, &mut op) } else { input.reduce(accumulator, &mut op) }
    }

    /// See [`Tx::fold`](fanin_core::Tx::fold).
    ///
    /// # Errors
    /// As [`Tensors::input`], and [`OpError::Length`] where the payload does not fit the piece.
    pub fn fold(&mut self, piece: Piece, payload: &[u8]) -> Result<(), OpError> {
        let (op, width, to) = (self.op, self.width, self.output_range(piece)?);
        match &mut self.vectors {
            Vectors::Sparse { .. } => Err(OpError::NoVector),
            Vectors::InPlace(bytes) => op.reduce(&mut bytes[to], payload),
            Vectors::Apart { input, input_start, output, .. } => {
                let (bytes, first) = (input.len(), *input_start);
                let input: &[u8] = input;
                let output: &mut [u8] = &mut output[to];
                let from = Self::range_in(width, self.operation, piece, bytes, first)?;
                op.combine(output, payload, &input[from])
            }
        }
    }

    /// See [`Tx::deliver`](fanin_core::Tx::deliver).
    ///
    /// # Errors
    /// As [`Tensors::input`], [`OpError::Length`] where the body does not fit the piece, and [`OpError::Unsupported`] for means that
    /// workers would have to compute themselves.
    pub fn deliver(&mut self, piece: Piece, body: Body<'_, [u8]>) -> Result<(), OpError> {
        let range = self.output_range(piece)?;
        let source = match body {
            Body::Empty => &[],
            Body::Borrowed(bytes) => bytes,
            Body::Acc(acc) => acc.as_bytes(),
            Body::Input(other) => return self.deliver_input(range, other),
            Body::Output(other) => {
                // The output already holds it, unless it is another piece's, which no system asks for.
                return match self.op.operator {
                    _ if other != piece => Err(OpError::NoVector),
                    // A worker that adds up by itself does not divide; better no result than a wrong one.
                    Operator::Avg => Err(OpError::Unsupported),
                    _ => Ok(()),
                };
            }
        };
        if source.len() != range.len() {
            return Err(OpError::Length { expected: range.len(), got: source.len() });
        }
        let streamed = self.streamed;
        let output = &mut self.output_mut()[range.clone()];
        if streamed {
            copy_past_caches(output, source, Upcoming::NONE);
        } else {
            output.copy_from_slice(source);
            fetch_later(self.output_mut(), range);
        }
        self.on_delivered(piece);
        Ok(())
    }

    /// Copies a piece of the input to the output.
    fn deliver_input(&mut self, to: Range<usize>, piece: Piece) -> Result<(), OpError> {
        let (input, first, _, _) = self.memory();
        let from = self.range(piece, input.len(), first)?;
        if from.len() != to.len() {
            return Err(OpError::Length { expected: to.len(), got: from.len() });
        }
        match &mut self.vectors {
            Vectors::Sparse { .. } => return Err(OpError::NoVector),
            Vectors::InPlace(bytes) => bytes.copy_within(from, to.start),
            Vectors::Apart { input, output, .. } => output[to].copy_from_slice(&input[from]),
        }
        Ok(())
    }
}

/// Sparse vectors.
impl Tensors<'_> {
    /// The first and one past the last index of a piece of a sparse vector.
    fn indices(&self, piece: Piece) -> Result<Range<u64>, OpError> {
        let Vectors::Sparse { size, .. } = self.vectors else { return Err(OpError::NoVector) };
        let end = piece.start.checked_add(u64::from(piece.elements)).filter(|end| *end <= size);
        match end {
            Some(end) if self.operation == Some(piece.operation) => Ok(piece.start..end),
            _ => Err(OpError::NoVector),
        }
    }

    /// See [`Tx::read_pairs`](fanin_core::Tx::read_pairs).
    ///
    /// # Errors
    /// [`OpError::NoVector`] where vectors are not sparse, there is no such piece, or its operation is not the running one.
    pub fn read_pairs(&self, piece: Piece, pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        let indices = self.indices(piece)?;
        let Vectors::Sparse { input, .. } = &self.vectors else { return Err(OpError::NoVector) };
        let first = input.partition_point(|entry| entry.index < indices.start);
        let there = input[first..].iter().take_while(|entry| entry.index < indices.end);
        pairs.clear();
        pairs.extend(there.map(|entry| Pair { index: (entry.index - indices.start) as u32, bits: entry.bits }));
        Ok(())
    }

    /// See [`Tx::deliver_pairs`](fanin_core::Tx::deliver_pairs).
    ///
    /// # Errors
    /// As [`Tensors::read_pairs`].
    pub fn deliver_pairs(&mut self, piece: Piece, pairs: &[Pair]) -> Result<(), OpError> {
        let indices = self.indices(piece)?;
        if pairs.iter().any(|pair| pair.index >= piece.elements) {
            return Err(OpError::NoVector);
        }
        let Vectors::Sparse { output, .. } = &mut self.vectors else { return Err(OpError::NoVector) };
        output.extend(pairs.iter().map(|pair| SparseEntry { index: indices.start + u64::from(pair.index), bits: pair.bits }));
        self.on_delivered(piece);
        Ok(())
    }
}

/// Block fixed point; see [`fanin_core::FixedPoint`].
impl Tensors<'_> {
    /// The exponent of a piece of the input. Where there is no such piece, nothing can be sent of it either.
    pub fn exponent(&self, piece: Piece) -> BlockExponent {
        self.input(piece).map_or(BlockExponent::NOT_FINITE, BlockExponent::of)
    }

    /// How the elements of this operation become integers.
    ///
    /// # Errors
    /// [`OpError::Unsupported`] where they do not.
    pub fn fixed_point(&self) -> Result<FixedPoint, OpError> {
        self.fixed_point.filter(|_| self.op.dtype == DType::F32).ok_or(OpError::Unsupported)
    }

    /// See [`Tx::deliver_fixed`](fanin_core::Tx::deliver_fixed).
    ///
    /// # Errors
    /// As [`Tensors::deliver`], and [`OpError::Unsupported`] where this operation's elements are not sent as integers.
    pub fn deliver_fixed(&mut self, piece: Piece, integers: &[u8], exponent: BlockExponent) -> Result<(), OpError> {
        let (range, fixed_point) = (self.output_range(piece)?, self.fixed_point()?);
        if integers.len() != range.len() {
            return Err(OpError::Length { expected: range.len(), got: integers.len() });
        }
        fixed_point.dequantise(exponent, integers, &mut self.output_mut()[range]);
        self.on_delivered(piece);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPERATION: OperationId = OperationId(4);

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    fn piece(start: u64, elements: u32) -> Piece {
        Piece { operation: OPERATION, index: 0, start, elements }
    }

    #[test]
    fn elements_go_as_integers_and_come_back() {
        let (input, mut output) = (floats(&[1.5, -2.0, 3.0]), vec![0; 12]);
        let point = FixedPoint::new(2, false);
        let mut tensors = Tensors::lend(ElementOp::F32_SUM, OPERATION, &input, &mut output).unwrap().with_fixed_point(Some(point));
        let exponent = tensors.exponent(piece(0, 2));
        assert_eq!(exponent.value(), Some(2));
        let mut integers = [0; 8];
        tensors.fixed_point().unwrap().quantise(exponent, tensors.input(piece(0, 2)).unwrap(), &mut integers);
        tensors.deliver_fixed(piece(0, 2), &integers, exponent).unwrap();
        assert_eq!(tensors.output(piece(0, 2)).unwrap(), floats(&[1.5, -2.0]));
        assert_eq!(tensors.deliver_fixed(piece(0, 1), &integers, exponent), Err(OpError::Length { expected: 4, got: 8 }));
        let mut floats_only = tensors.with_fixed_point(None);
        assert_eq!(floats_only.deliver_fixed(piece(0, 2), &integers, exponent), Err(OpError::Unsupported));
    }

    #[test]
    fn a_piece_outside_of_the_vectors_is_refused_whatever_its_numbers_are() {
        let (input, mut output) = (floats(&[1.0, 2.0, 3.0]), vec![0; 12]);
        let tensors = Tensors::lend(ElementOp::F32_SUM, OPERATION, &input, &mut output).unwrap();
        assert_eq!(tensors.input(piece(1, 2)).unwrap(), floats(&[2.0, 3.0]));
        assert!(tensors.input(piece(3, 0)).unwrap().is_empty());
        for (start, elements) in [(1, 3), (4, 0), (u64::MAX, 1), (u64::MAX / 4, 4), (0, u32::MAX)] {
            assert_eq!(tensors.input(piece(start, elements)), Err(OpError::NoVector), "{start} {elements}");
        }
        let other = Piece { operation: OperationId(5), ..piece(0, 1) };
        assert_eq!(tensors.output(other), Err(OpError::NoVector));
    }

    #[test]
    fn without_an_operation_there_is_no_piece() {
        let mut tensors = Tensors::none(ElementOp::F32_SUM);
        assert_eq!(tensors.deliver(piece(0, 0), Body::Empty), Err(OpError::NoVector));
    }

    #[test]
    fn fold_adds_the_input_and_deliver_replaces() {
        let (input, mut output) = (floats(&[1.0, 2.0, 3.0]), vec![0; 12]);
        let mut tensors = Tensors::lend(ElementOp::F32_SUM, OPERATION, &input, &mut output).unwrap();
        tensors.fold(piece(1, 2), &floats(&[10.0, 20.0])).unwrap();
        assert_eq!(tensors.fold(piece(1, 2), &floats(&[10.0])), Err(OpError::Length { expected: 8, got: 4 }));
        tensors.deliver(piece(0, 1), Body::Borrowed(&floats(&[7.0]))).unwrap();
        tensors.deliver(piece(1, 2), Body::Output(piece(1, 2))).unwrap();
        assert_eq!(tensors.deliver(piece(0, 1), Body::Empty), Err(OpError::Length { expected: 4, got: 0 }));
        assert_eq!(output, floats(&[7.0, 12.0, 23.0]));
    }

    #[test]
    fn in_place_the_result_takes_the_inputs_place() {
        let mut bytes = floats(&[1.0, 2.0, 3.0]);
        let mut tensors = Tensors::new(ElementOp::F32_SUM, OPERATION, Vectors::InPlace(&mut bytes));
        tensors.fold(piece(1, 1), &floats(&[10.0])).unwrap();
        tensors.deliver(piece(1, 1), Body::Output(piece(1, 1))).unwrap();
        tensors.deliver(piece(2, 1), Body::Input(piece(0, 1))).unwrap();
        assert_eq!(bytes, floats(&[1.0, 12.0, 1.0]));
    }

    #[test]
    fn a_part_of_a_vector_lies_where_its_first_element_says() {
        let (input, mut output) = (floats(&[1.0, 2.0, 3.0, 4.0]), vec![0; 8]);
        let vectors = Vectors::Apart { input: &input, input_start: 0, output: &mut output, output_start: 2 };
        let mut tensors = Tensors::new(ElementOp::F32_SUM, OPERATION, vectors);
        assert_eq!(tensors.input(piece(2, 2)).unwrap(), floats(&[3.0, 4.0]));
        tensors.deliver(piece(3, 1), Body::Borrowed(&floats(&[9.0]))).unwrap();
        for outside in [piece(1, 1), piece(3, 2), piece(u64::MAX, 1)] {
            assert_eq!(tensors.deliver(outside, Body::Borrowed(&floats(&[9.0]))), Err(OpError::NoVector), "{outside:?}");
        }
        assert_eq!(output, floats(&[0.0, 9.0]));
    }

    #[test]
    fn nothing_is_fetched_beyond_a_vector_and_vectors_stay_as_they_are() {
        let mut bytes = floats(&[1.0, 2.0, 3.0]);
        let tensors = Tensors::new(ElementOp::F32_SUM, OPERATION, Vectors::InPlace(&mut bytes));
        for sent in [piece(0, 1), piece(0, 2), piece(2, 1), piece(0, 3), piece(3, 1), piece(u64::MAX, 1), piece(0, u32::MAX)] {
            tensors.fetch_after(sent);
        }
        assert_eq!(bytes, floats(&[1.0, 2.0, 3.0]));
    }

    #[test]
    fn vectors_of_different_lengths_are_refused() {
        assert!(Tensors::lend(ElementOp::F32_SUM, OPERATION, &[0; 8], &mut [0; 4]).is_err());
        assert!(Tensors::lend(ElementOp::F32_SUM, OPERATION, &[0; 6], &mut [0; 6]).is_err());
    }

    #[test]
    fn sparse_vectors_are_read_and_written_piece_by_piece() {
        let entry = |index, bits| SparseEntry { index, bits };
        let (input, mut output) = ([entry(1, 7), entry(5, 8), entry(6, 9)], Vec::new());
        let op = ElementOp::I32_SUM;
        let mut tensors = Tensors::new(op, OPERATION, Vectors::Sparse { size: 8, input: &input, output: &mut output });
        assert_eq!(tensors.elements(), 8);
        let mut pairs = vec![Pair { index: 9, bits: 9 }];
        tensors.read_pairs(piece(4, 4), &mut pairs).unwrap();
        assert_eq!(pairs, [Pair { index: 1, bits: 8 }, Pair { index: 2, bits: 9 }]);
        tensors.deliver_pairs(piece(4, 4), &pairs).unwrap();
        tensors.read_pairs(piece(0, 1), &mut pairs).unwrap();
        assert_eq!(pairs, []);
        tensors.deliver_pairs(piece(0, 1), &pairs).unwrap();
        // What a packet may say, and what is not there.
        assert_eq!(tensors.deliver_pairs(piece(0, 4), &[Pair { index: 4, bits: 0 }]), Err(OpError::NoVector));
        assert_eq!(tensors.read_pairs(piece(6, 3), &mut pairs), Err(OpError::NoVector));
        assert_eq!(tensors.read_pairs(Piece { operation: OperationId(9), ..piece(0, 1) }, &mut pairs), Err(OpError::NoVector));
        assert_eq!(tensors.input(piece(0, 1)), Err(OpError::NoVector));
        assert_eq!(tensors.deliver(piece(0, 1), Body::Borrowed(&[0; 4])), Err(OpError::NoVector));
        assert_eq!(output, [entry(5, 8), entry(6, 9)]);
        let mut dense = [0; 32];
        let mut tensors = Tensors::new(op, OPERATION, Vectors::InPlace(&mut dense));
        assert_eq!(tensors.read_pairs(piece(0, 1), &mut pairs), Err(OpError::NoVector));
        assert_eq!(tensors.deliver_pairs(piece(0, 1), &[]), Err(OpError::NoVector));
    }
}
