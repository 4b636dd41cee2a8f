//! The vectors of the running operation, lent by the caller for as long as it runs.

use std::ops::Range;

use fanin_core::{BlockExponent, Body, DType, ElementOp, FixedPoint, OpError, OperationId, Operator, Payload, Piece};

/// Input and output of one operation, or of none.
#[derive(Debug)]
pub struct Tensors<'a> {
    op: ElementOp,
    operation: Option<OperationId>,
    input: &'a [u8],
    output: &'a mut [u8],
    /// How binary32 elements become integers on the wire, where they do.
    fixed_point: Option<FixedPoint>,
}

impl<'a> Tensors<'a> {
    /// No operation is running: every piece is refused.
    pub fn none(op: ElementOp) -> Self {
        Tensors { op, operation: None, input: &[], output: &mut [], fixed_point: None }
    }

    /// The vectors of `operation`.
    ///
    /// # Errors
    /// [`OpError::Length`] where the lengths differ or are not a whole number of elements.
    pub fn lend(op: ElementOp, operation: OperationId, input: &'a [u8], output: &'a mut [u8]) -> Result<Self, OpError> {
        if input.len() != output.len() || !input.len().is_multiple_of(op.dtype.bytes()) {
            return Err(OpError::Length { expected: output.len(), got: input.len() });
        }
        Ok(Tensors { op, operation: Some(operation), input, output, fixed_point: None })
    }

    /// These vectors, which go on the wire as block fixed point if the node asks for that.
    pub fn with_fixed_point(self, fixed_point: Option<FixedPoint>) -> Self {
        Tensors { fixed_point, ..self }
    }

    /// Length in elements.
    pub fn elements(&self) -> u64 {
        (self.input.len() / self.op.dtype.bytes()) as u64
    }

    /// The bytes of a piece; also where the piece is nonsense, as one that came from the network may be, nothing outside the vectors
    /// is named.
    #[inline]
    fn range(&self, piece: Piece) -> Result<Range<usize>, OpError> {
        if self.operation != Some(piece.operation) {
            return Err(OpError::NoVector);
        }
        let width = self.op.dtype.bytes() as u64;
        let end = piece.start.checked_add(u64::from(piece.elements)).and_then(|end| end.checked_mul(width));
        match end {
            Some(end) if end <= self.input.len() as u64 => Ok((piece.start * width) as usize..end as usize),
            _ => Err(OpError::NoVector),
        }
    }

    /// The piece of the input.
    ///
    /// # Errors
    /// [`OpError::NoVector`] where there is no such piece, or its operation is not the running one.
    #[inline]
    pub fn input(&self, piece: Piece) -> Result<&[u8], OpError> {
        Ok(&self.input[self.range(piece)?])
    }

    /// The piece of the output.
    ///
    /// # Errors
    /// As [`Tensors::input`].
    #[inline]
    pub fn output(&self, piece: Piece) -> Result<&[u8], OpError> {
        Ok(&self.output[self.range(piece)?])
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
        let range = self.range(piece)?;
        let input = &self.input[range];
        if first { input.assign(accumulator, &mut self.op) } else { input.reduce(accumulator, &mut self.op) }
    }

    /// See [`Tx::fold`](fanin_core::Tx::fold).
    ///
    /// # Errors
    /// As [`Tensors::input`], and [`OpError::Length`] where the payload does not fit the piece.
    pub fn fold(&mut self, piece: Piece, payload: &[u8]) -> Result<(), OpError> {
        let range = self.range(piece)?;
        self.op.combine(&mut self.output[range.clone()], payload, &self.input[range])
    }

    /// See [`Tx::deliver`](fanin_core::Tx::deliver).
    ///
    /// # Errors
    /// As [`Tensors::input`], [`OpError::Length`] where the body does not fit the piece, and [`OpError::Unsupported`] for means that
    /// workers would have to compute themselves.
    pub fn deliver(&mut self, piece: Piece, body: Body<'_, [u8]>) -> Result<(), OpError> {
        let range = self.range(piece)?;
        let expected = range.len();
        let (source, got) = match body {
            Body::Empty => (&[][..], 0),
            Body::Borrowed(bytes) => (bytes, bytes.len()),
            Body::Acc(acc) => (acc.as_bytes(), acc.as_bytes().len()),
            Body::Input(other) => {
                let bytes = self.input(other)?;
                if bytes.len() != expected {
                    return Err(OpError::Length { expected, got: bytes.len() });
                }
                let from = self.range(other)?;
                self.output[range].copy_from_slice(&self.input[from]);
                return Ok(());
            }
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
        if got != expected {
            return Err(OpError::Length { expected, got });
        }
        self.output[range].copy_from_slice(source);
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
        let (range, fixed_point) = (self.range(piece)?, self.fixed_point()?);
        if integers.len() != range.len() {
            return Err(OpError::Length { expected: range.len(), got: integers.len() });
        }
        fixed_point.dequantise(exponent, integers, &mut self.output[range]);
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
        assert_eq!(tensors.input(piece(3, 0)).unwrap(), []);
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
    fn vectors_of_different_lengths_are_refused() {
        assert!(Tensors::lend(ElementOp::F32_SUM, OPERATION, &[0; 8], &mut [0; 4]).is_err());
        assert!(Tensors::lend(ElementOp::F32_SUM, OPERATION, &[0; 6], &mut [0; 6]).is_err());
    }
}
