//! A sum by element where a job has one operator: exponents and integers in cells, which say what they hold.
//!
//! A sum by element is two reductions of integers, the largest exponents and then sums ([`ElementSum`]). Where each operation of a job may have an
//! operator of its own, these are two operations. A simulated job has one for all that it does, and so have the switches that it passes. A *cell*
//! is the element of such a job: a byte that says what it holds, as many exponents or integers as fit, and zeros. Its operator takes the maximum of
//! exponents and the sum of integers. Neither depends on the order, so neither do cells.
//!
//! | bytes of a cell | what |
//! |---|---|
//! | 0 | 0: exponents, 1: integers |
//! | 1.. | little-endian, as [`ElementSum`] has them |
//! | the rest | 0 |

use super::element_sum::ElementSum;
use crate::hash::mix;
use crate::payload::OpError;
use crate::payload::custom::{CustomKernel, CustomLayout, CustomOp, PayloadOp};
use crate::payload::dtype::ElementOp;

/// Bytes before the contents of a cell.
const HEAD_BYTES: usize = 1;

/// What a cell holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CellKind {
    /// Exponents: the first of the two reductions.
    Exponents,
    /// Integers: the second.
    Integers,
}

impl CellKind {
    const fn tag(self) -> u8 {
        match self {
            CellKind::Exponents => 0,
            CellKind::Integers => 1,
        }
    }

    const fn of_tag(tag: u8) -> Option<Self> {
        match tag {
            0 => Some(CellKind::Exponents),
            1 => Some(CellKind::Integers),
            _ => None,
        }
    }
}

/// Cells of a sum by element, all of one length.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cells {
    sum: ElementSum,
    bytes: usize,
}

impl Cells {
    /// Cells of `bytes` bytes; `None` where one does not hold an integer.
    pub const fn new(sum: ElementSum, bytes: usize) -> Option<Self> {
        if bytes < Cells::bytes_min(&sum) { None } else { Some(Cells { sum, bytes }) }
    }

    /// The shortest cell for a sum, in bytes.
    pub const fn bytes_min(sum: &ElementSum) -> usize {
        HEAD_BYTES + sum.integers().dtype.bytes()
    }

    /// The sum.
    pub const fn sum(&self) -> &ElementSum {
        &self.sum
    }

    /// Bytes of a cell.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Type and operator of what a cell holds.
    const fn holds(&self, kind: CellKind) -> ElementOp {
        match kind {
            CellKind::Exponents => self.sum.exponents(),
            CellKind::Integers => self.sum.integers(),
        }
    }

    /// How many exponents or integers a cell holds; at least 1.
    pub const fn each(&self, kind: CellKind) -> usize {
        (self.bytes - HEAD_BYTES) / self.holds(kind).dtype.bytes()
    }

    /// Cells of the exponents, or the integers, of so many elements.
    pub const fn count(&self, kind: CellKind, elements: u64) -> u64 {
        elements.div_ceil(self.each(kind) as u64)
    }

    /// Bytes of contents.
    const fn used(&self, kind: CellKind) -> usize {
        self.each(kind) * self.holds(kind).dtype.bytes()
    }

    /// Cells of exponents or integers.
    pub fn pack(&self, kind: CellKind, values: &[u8]) -> Vec<u8> {
        let used = self.used(kind);
        let mut cells = vec![0; values.len().div_ceil(used) * self.bytes];
        for (cell, values) in cells.chunks_mut(self.bytes).zip(values.chunks(used)) {
            cell[0] = kind.tag();
            cell[HEAD_BYTES..][..values.len()].copy_from_slice(values);
        }
        cells
    }

    /// What cells hold: exponents or integers of so many elements, or of as many as there are.
    pub fn unpack(&self, kind: CellKind, cells: &[u8], elements: usize) -> Vec<u8> {
        let bytes = elements * self.holds(kind).dtype.bytes();
        let contents = cells.chunks_exact(self.bytes).flat_map(|cell| &cell[HEAD_BYTES..][..self.used(kind)]);
        contents.take(bytes).copied().collect()
    }

    /// The operator of a job whose elements are cells.
    pub fn payload_op(self) -> PayloadOp {
        PayloadOp::Custom(CustomOp(Box::new(CellKernel { cells: self, broken: false })))
    }
}

/// Reduces cells.
#[derive(Debug)]
struct CellKernel {
    cells: Cells,
    /// Cells did not fit together.
    broken: bool,
}

impl CellKernel {
    /// What a cell holds, where both hold the same.
    fn kind(a: &[u8], b: &[u8]) -> Option<CellKind> {
        CellKind::of_tag(a[0]).filter(|_| a[0] == b[0])
    }
}

impl CustomKernel for CellKernel {
    fn layout(&self) -> CustomLayout {
        CustomLayout { element_bytes: self.cells.bytes, accumulator_bytes: self.cells.bytes }
    }

    fn identity(&self) -> u64 {
        let widths = [self.cells.sum.exponents(), self.cells.sum.integers()].map(|op| op.dtype.bytes() as u64);
        mix(self.cells.bytes as u64, widths[0] << 32 | widths[1])
    }

    fn begin(&mut self, accumulator: &mut [u8], input: &[u8]) -> Result<(), OpError> {
        if self.broken {
            return Err(OpError::Operator);
        }
        accumulator.copy_from_slice(input);
        Ok(())
    }

    fn combine(&mut self, accumulator: &mut [u8], input: &[u8]) -> Result<(), OpError> {
        let bytes = self.cells.bytes;
        // What came from elsewhere may be anything, and the accumulator stays as it is then.
        let agree = accumulator.chunks_exact(bytes).zip(input.chunks_exact(bytes)).all(|(a, b)| CellKernel::kind(a, b).is_some());
        if self.broken || !agree {
            self.broken = true;
            return Err(OpError::Operator);
        }
        for (target, source) in accumulator.chunks_exact_mut(bytes).zip(input.chunks_exact(bytes)) {
            let Some(kind) = CellKernel::kind(target, source) else { continue };
            let contents = HEAD_BYTES..HEAD_BYTES + self.cells.used(kind);
            self.cells.holds(kind).reduce(&mut target[contents.clone()], &source[contents])?;
        }
        Ok(())
    }

    fn finish(&mut self, _beside: Option<&[u8]>, _result: &mut [u8], _workers: u32) -> Result<(), OpError> {
        Ok(())
    }

    fn finishes(&self) -> bool {
        false
    }

    fn fork(&self) -> Box<dyn CustomKernel> {
        Box::new(CellKernel { cells: self.cells, broken: self.broken })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::payload::{OrderFree, Payload, ReproducibleBy};

    fn cells(workers: u32, bytes: usize) -> Cells {
        let Ok(OrderFree::ByElement(sum)) = OrderFree::of(ElementOp::F32_SUM, workers, ReproducibleBy::Element) else {
            panic!("a sum of floats")
        };
        Cells::new(sum, bytes).unwrap()
    }

    fn floats(values: &[f32]) -> Vec<u8> {
        values.iter().flat_map(|value| value.to_le_bytes()).collect()
    }

    /// The reduction of what each worker gives, in this order.
    fn reduce(cells: Cells, given: &[Vec<u8>], order: &[usize]) -> Vec<u8> {
        let mut op = cells.payload_op();
        let mut acc = <[u8]>::accumulator(&op, given[0].len());
        for (place, worker) in order.iter().enumerate() {
            let step = if place == 0 { <[u8]>::assign } else { <[u8]>::reduce };
            step(&given[*worker], &mut acc, &mut op).unwrap();
        }
        acc.as_bytes().to_vec()
    }

    #[test]
    fn a_sum_in_cells_is_the_sum_by_element_in_every_order() {
        let vectors: [Vec<f32>; 3] =
            [vec![1.0, -0.0, 1e30, 3.5, 1e-3], vec![1e-8, -0.0, 1.0, -3.5, 1e3], vec![-1.0, -0.0, -1e30, 7.0, 2.0]];
        for bytes in [5, 6, 16, 64] {
            let cells = cells(3, bytes);
            let sum = *cells.sum();
            let mut first = None;
            for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
                let exponents: Vec<Vec<u8>> = vectors
                    .iter()
                    .map(|vector| {
                        let mut exponents = vec![0; vector.len()];
                        sum.exponents_of(&floats(vector), &mut exponents);
                        cells.pack(CellKind::Exponents, &exponents)
                    })
                    .collect();
                assert_eq!(exponents[0].len() as u64, cells.count(CellKind::Exponents, 5) * bytes as u64);
                let largest = cells.unpack(CellKind::Exponents, &reduce(cells, &exponents, &order), 5);
                let integers: Vec<Vec<u8>> = vectors
                    .iter()
                    .map(|vector| {
                        let mut integers = vec![0; 4 * vector.len()];
                        sum.quantise(&largest, &floats(vector), &mut integers);
                        cells.pack(CellKind::Integers, &integers)
                    })
                    .collect();
                let sums = cells.unpack(CellKind::Integers, &reduce(cells, &integers, &order), 5);
                let mut result = vec![0; 20];
                sum.dequantise(&largest, &sums, &mut result);
                assert_eq!(*first.get_or_insert_with(|| result.clone()), result);
            }
            // -0 alone is -0; what cancels leaves what is left, on the grid of the largest: of 1 it is 2^-28.
            let left = 3.0 / (1u32 << 28) as f32;
            assert_eq!(first.unwrap(), floats(&[left, -0.0, 0.0, 7.0, 1002.001]), "cells of {bytes} bytes");
        }
    }

    #[test]
    fn cells_of_128_workers_have_longer_integers_and_short_ones_are_refused() {
        assert_eq!([128, 129].map(|workers| cells(workers, 1_024).each(CellKind::Integers)), [255, 127]);
        assert_eq!(cells(8, 1_024).each(CellKind::Exponents), 1_023);
        assert_eq!(Cells::new(*cells(8, 64).sum(), 4), None);
    }

    #[test]
    fn cells_that_hold_something_else_are_an_error_that_stays() {
        let cells = cells(3, 9);
        let (exponents, integers) = (cells.pack(CellKind::Exponents, &[1; 8]), cells.pack(CellKind::Integers, &[1; 8]));
        let mut op = cells.payload_op();
        let mut acc = <[u8]>::accumulator(&op, 9);
        exponents.assign(&mut acc, &mut op).unwrap();
        assert_eq!(integers.reduce(&mut acc, &mut op), Err(OpError::Operator));
        assert_eq!(acc.as_bytes(), exponents);
        assert_eq!(exponents.reduce(&mut acc, &mut op), Err(OpError::Operator));
        assert_eq!(exponents.assign(&mut acc, &mut op), Err(OpError::Operator));
        // Of a kind that there is not.
        let mut op = cells.payload_op();
        let strange = [7u8; 9];
        strange.assign(&mut acc, &mut op).unwrap();
        assert_eq!(strange.reduce(&mut acc, &mut op), Err(OpError::Operator));
    }
}
