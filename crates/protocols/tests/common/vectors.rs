//! The vectors of one worker, for each payload, and the sums that they must come to.

use std::collections::BTreeMap;

use fanin_core::hash::mix;
use fanin_core::payload::weight;
use fanin_core::{BlockExponent, Census, DType, ElementOp, OpError, OperationId, Operator, Payload, Piece, Rank};

use super::JOB;

/// Which vectors go with a payload.
pub type VectorsOf<P> = <P as HasVectors>::Vectors;

/// Payloads that there are vectors for.
pub trait HasVectors: Payload {
    type Vectors: Vectors<Self>;
    const OP: Self::Op;
}

/// The vectors of one worker.
pub trait Vectors<P: Payload + ?Sized> {
    fn new(rank: Rank, workers: u32, operations: &[u64]) -> Self;
    /// The rank that has these vectors, and the number of ranks.
    fn members(&self) -> (Rank, u32);
    fn input(&self, piece: Piece) -> P::Owned;
    fn output(&self, piece: Piece) -> P::Owned;
    fn fold(&mut self, piece: Piece, payload: &P) -> Result<(), OpError>;
    /// Panics where the piece is delivered twice or is not the sum.
    fn deliver(&mut self, piece: Piece, payload: &P) -> Result<(), OpError>;
    /// Panics unless the delivered pieces are the operation's vector, without gaps or overlaps, and numbered without gaps.
    fn assert_whole(&self, operation: usize);
}

/// The exponent of a rank's piece, where blocks go as fixed point: anything, also what stands for zeros and for what is not finite.
pub fn exponent(rank: u32, piece: Piece) -> BlockExponent {
    let draw = mix(u64::from(rank) << 32 | u64::from(piece.operation.0), u64::from(piece.index));
    match draw % 20 {
        0 => BlockExponent::NOT_FINITE,
        1 => BlockExponent::ZERO,
        _ => BlockExponent::from_bits((draw >> 32) as i16 % 100),
    }
}

/// The exponent that all ranks must use for a piece.
pub fn largest_exponent(workers: u32, piece: Piece) -> BlockExponent {
    (0..workers).map(|rank| exponent(rank, piece)).max().expect("there is a worker")
}

/// Length of an element in bytes.
pub const ELEMENT_BYTES: u32 = 4;

/// Pieces delivered, by number, of each operation.
#[derive(Default)]
struct Delivered {
    pieces: BTreeMap<(OperationId, u32), Piece>,
}

impl Delivered {
    fn add(&mut self, piece: Piece) {
        let before = self.pieces.insert((piece.operation, piece.index), piece);
        assert_eq!(before, None, "delivered twice");
    }

    fn assert_whole(&self, operation: usize, elements: u64) {
        let operation = OperationId(operation as u32);
        let pieces = self.pieces.range((operation, 0)..=(operation, u32::MAX)).map(|(_, piece)| *piece);
        let mut end = 0;
        for (index, piece) in pieces.enumerate() {
            assert_eq!((piece.index as usize, piece.start), (index, end), "{operation}");
            assert!(piece.elements > 0);
            end = piece.end();
        }
        assert_eq!(end, elements, "operation {operation} is not whole");
    }
}

/// Census weights instead of elements.
pub struct CensusVectors {
    rank: Rank,
    workers: u32,
    operations: Vec<u64>,
    output: BTreeMap<(OperationId, u32), Census>,
    delivered: Delivered,
}

impl HasVectors for Census {
    type Vectors = CensusVectors;
    const OP: () = ();
}

impl CensusVectors {
    fn of(&self, rank: Rank, piece: Piece) -> Census {
        assert!(piece.end() <= self.operations[piece.operation.index()], "{piece:?}");
        Census::new(piece.elements * ELEMENT_BYTES, weight(JOB, piece.operation, rank, piece.start, piece.end()))
    }
}

impl Vectors<Census> for CensusVectors {
    fn new(rank: Rank, workers: u32, operations: &[u64]) -> Self {
        CensusVectors { rank, workers, operations: operations.to_vec(), output: BTreeMap::new(), delivered: Delivered::default() }
    }

    fn members(&self) -> (Rank, u32) {
        (self.rank, self.workers)
    }

    fn input(&self, piece: Piece) -> Census {
        self.of(self.rank, piece)
    }

    fn output(&self, piece: Piece) -> Census {
        self.output[&(piece.operation, piece.index)]
    }

    fn fold(&mut self, piece: Piece, payload: &Census) -> Result<(), OpError> {
        let mut sum = self.input(piece);
        payload.reduce(&mut sum, &mut ())?;
        self.output.insert((piece.operation, piece.index), sum);
        Ok(())
    }

    fn deliver(&mut self, piece: Piece, payload: &Census) -> Result<(), OpError> {
        let expected = (1..self.workers).fold(self.of(Rank(0), piece), |sum, rank| sum.plus(self.of(Rank(rank), piece)));
        assert_eq!(*payload, expected, "rank {}: {piece:?}", self.rank);
        self.output.insert((piece.operation, piece.index), *payload);
        self.delivered.add(piece);
        Ok(())
    }

    fn assert_whole(&self, operation: usize) {
        self.delivered.assert_whole(operation, self.operations[operation]);
    }
}

/// Real elements: 32-bit integers, whose sum wraps.
pub struct ElementVectors {
    rank: Rank,
    workers: u32,
    output: Vec<Vec<u8>>,
    delivered: Delivered,
}

impl HasVectors for [u8] {
    type Vectors = ElementVectors;
    const OP: ElementOp = ElementOp { dtype: DType::I32, operator: Operator::Sum };
}

/// The element of a rank's vector.
fn element(rank: u32, operation: OperationId, index: u64) -> i32 {
    mix(u64::from(rank) << 32 | u64::from(operation.0), index) as i32
}

fn bytes_of(piece: Piece, value: impl Fn(u64) -> i32) -> Vec<u8> {
    (piece.start..piece.end()).flat_map(|index| value(index).to_le_bytes()).collect()
}

fn range_of(piece: Piece) -> std::ops::Range<usize> {
    piece.start as usize * ELEMENT_BYTES as usize..piece.end() as usize * ELEMENT_BYTES as usize
}

impl Vectors<[u8]> for ElementVectors {
    fn new(rank: Rank, workers: u32, operations: &[u64]) -> Self {
        let output = operations.iter().map(|elements| vec![0; *elements as usize * ELEMENT_BYTES as usize]).collect();
        ElementVectors { rank, workers, output, delivered: Delivered::default() }
    }

    fn members(&self) -> (Rank, u32) {
        (self.rank, self.workers)
    }

    fn input(&self, piece: Piece) -> Box<[u8]> {
        bytes_of(piece, |index| element(self.rank.0, piece.operation, index)).into()
    }

    fn output(&self, piece: Piece) -> Box<[u8]> {
        self.output[piece.operation.index()][range_of(piece)].into()
    }

    fn fold(&mut self, piece: Piece, payload: &[u8]) -> Result<(), OpError> {
        let input = self.input(piece);
        <[u8] as HasVectors>::OP.combine(&mut self.output[piece.operation.index()][range_of(piece)], payload, &input)
    }

    fn deliver(&mut self, piece: Piece, payload: &[u8]) -> Result<(), OpError> {
        let sum = |index| (0..self.workers).fold(0i32, |sum, rank| sum.wrapping_add(element(rank, piece.operation, index)));
        assert_eq!(payload, bytes_of(piece, sum), "rank {}: {piece:?}", self.rank);
        self.output[piece.operation.index()][range_of(piece)].copy_from_slice(payload);
        self.delivered.add(piece);
        Ok(())
    }

    fn assert_whole(&self, operation: usize) {
        self.delivered.assert_whole(operation, self.output[operation].len() as u64 / u64::from(ELEMENT_BYTES));
    }
}
