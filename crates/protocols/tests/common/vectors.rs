//! The vectors of one worker, for each payload, and the sums that they must come to.

use std::cell::RefCell;
use std::collections::BTreeMap;

use fanin_core::hash::mix;
use fanin_core::payload::weight;
use fanin_core::{BlockExponent, Census, CollectiveKind, ElementOp, OpError, OperationId, Payload, PayloadOp, Piece, Rank};

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
    /// What the operations are; allreduces where nothing is said.
    fn set_kinds(&mut self, kinds: &[CollectiveKind]);
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

/// What the operations are: who contributes to a piece and who gets it.
#[derive(Clone, Default)]
struct Calls {
    rank: Rank,
    workers: u32,
    elements: Vec<u64>,
    kinds: Vec<CollectiveKind>,
}

impl Calls {
    fn new(rank: Rank, workers: u32, elements: &[u64]) -> Self {
        Calls { rank, workers, elements: elements.to_vec(), kinds: Vec::new() }
    }

    fn kind(&self, operation: OperationId) -> CollectiveKind {
        self.kinds.get(operation.index()).copied().unwrap_or_default()
    }

    fn share_elements(&self, operation: OperationId) -> u64 {
        self.elements[operation.index()] / u64::from(self.kind(operation).shares(self.workers))
    }

    /// The share that a piece lies in. Panics where it lies in two.
    fn share_of(&self, piece: Piece) -> u32 {
        let share_elements = self.share_elements(piece.operation).max(1);
        let share = piece.start / share_elements;
        assert!(piece.elements > 0 && (piece.end() - 1) / share_elements == share, "{piece:?}");
        share as u32
    }

    /// The ranks whose vectors are part of a piece's result.
    fn contributors(&self, piece: Piece) -> impl Iterator<Item = Rank> {
        let (kind, share) = (self.kind(piece.operation), self.share_of(piece));
        (0..self.workers).map(Rank).filter(move |rank| kind.contributes(*rank, share))
    }

    fn assert_contributes(&self, piece: Piece) {
        assert!(self.kind(piece.operation).contributes(self.rank, self.share_of(piece)), "rank {} sends {piece:?}", self.rank);
    }

    fn assert_receives(&self, piece: Piece) {
        assert!(self.kind(piece.operation).receives(self.rank, self.share_of(piece)), "rank {} is given {piece:?}", self.rank);
    }

    /// The elements that this rank must be given, which are one stretch for all kinds.
    fn received(&self, operation: OperationId) -> std::ops::Range<u64> {
        let (kind, share) = (self.kind(operation), self.share_elements(operation));
        let mut shares = (0..kind.shares(self.workers)).filter(|share| kind.receives(self.rank, *share)).map(u64::from);
        shares.next().map_or(0..0, |first| first * share..(shares.next_back().unwrap_or(first) + 1) * share)
    }
}

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

    fn assert_whole(&self, operation: usize, calls: &Calls) {
        let operation = OperationId(operation as u32);
        let received = calls.received(operation);
        let mut pieces = self.pieces.range((operation, 0)..=(operation, u32::MAX)).map(|(_, piece)| *piece).peekable();
        let (first, mut end) = (pieces.peek().map_or(0, |piece| piece.index), received.start);
        assert!(received.start > 0 || first == 0, "{operation} begins with piece {first}");
        for (index, piece) in pieces.enumerate() {
            assert_eq!((piece.index as usize, piece.start), (first as usize + index, end), "{operation}");
            assert!(piece.elements > 0);
            end = piece.end();
        }
        assert_eq!(end, received.end, "operation {operation} is not whole");
    }
}

/// Census weights instead of elements.
pub struct CensusVectors {
    calls: Calls,
    output: BTreeMap<(OperationId, u32), Census>,
    delivered: Delivered,
}

impl HasVectors for Census {
    type Vectors = CensusVectors;
    const OP: () = ();
}

impl CensusVectors {
    fn of(&self, rank: Rank, piece: Piece) -> Census {
        assert!(piece.end() <= self.calls.elements[piece.operation.index()], "{piece:?}");
        Census::new(piece.elements * ELEMENT_BYTES, weight(JOB, piece.operation, rank, piece.start, piece.end()))
    }
}

impl Vectors<Census> for CensusVectors {
    fn new(rank: Rank, workers: u32, operations: &[u64]) -> Self {
        CensusVectors { calls: Calls::new(rank, workers, operations), output: BTreeMap::new(), delivered: Delivered::default() }
    }

    fn set_kinds(&mut self, kinds: &[CollectiveKind]) {
        self.calls.kinds = kinds.to_vec();
    }

    fn members(&self) -> (Rank, u32) {
        (self.calls.rank, self.calls.workers)
    }

    fn input(&self, piece: Piece) -> Census {
        self.calls.assert_contributes(piece);
        self.of(self.calls.rank, piece)
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
        let nothing = Census::new(piece.elements * ELEMENT_BYTES, 0);
        let expected = self.calls.contributors(piece).fold(nothing, |sum, rank| sum.plus(self.of(rank, piece)));
        self.calls.assert_receives(piece);
        assert_eq!(*payload, expected, "rank {}: {piece:?}", self.calls.rank);
        self.output.insert((piece.operation, piece.index), *payload);
        self.delivered.add(piece);
        Ok(())
    }

    fn assert_whole(&self, operation: usize) {
        self.delivered.assert_whole(operation, &self.calls);
    }
}

/// Real elements: 32-bit integers, whose sum wraps.
pub struct ElementVectors {
    calls: Calls,
    output: Vec<Vec<u8>>,
    delivered: Delivered,
}

impl HasVectors for [u8] {
    type Vectors = ElementVectors;
    const OP: PayloadOp = PayloadOp::BuiltIn(ElementOp::I32_SUM);
}

/// Vectors that a test lends to the workers of its network, of one operation, and what each of them was given.
struct Lent {
    inputs: Vec<Vec<i32>>,
    outputs: Vec<Vec<i32>>,
}

thread_local! {
    static LENT: RefCell<Option<Lent>> = const { RefCell::new(None) };
}

/// Until [`given`] is called workers of this thread's networks contribute these vectors, by rank.
pub fn lend(inputs: Vec<Vec<i32>>) {
    let outputs = inputs.iter().map(|input| vec![0; input.len()]).collect();
    LENT.set(Some(Lent { inputs, outputs }));
}

/// What they were given.
pub fn given() -> Vec<Vec<i32>> {
    LENT.take().expect("vectors were lent").outputs
}

/// The element of a rank's vector.
fn element(rank: u32, operation: OperationId, index: u64) -> i32 {
    LENT.with_borrow(|lent| match lent {
        Some(lent) => lent.inputs[rank as usize][index as usize],
        None => mix(u64::from(rank) << 32 | u64::from(operation.0), index) as i32,
    })
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
        ElementVectors { calls: Calls::new(rank, workers, operations), output, delivered: Delivered::default() }
    }

    fn set_kinds(&mut self, kinds: &[CollectiveKind]) {
        self.calls.kinds = kinds.to_vec();
    }

    fn members(&self) -> (Rank, u32) {
        (self.calls.rank, self.calls.workers)
    }

    fn input(&self, piece: Piece) -> Box<[u8]> {
        self.calls.assert_contributes(piece);
        bytes_of(piece, |index| element(self.calls.rank.0, piece.operation, index)).into()
    }

    fn output(&self, piece: Piece) -> Box<[u8]> {
        self.output[piece.operation.index()][range_of(piece)].into()
    }

    fn fold(&mut self, piece: Piece, payload: &[u8]) -> Result<(), OpError> {
        let input = self.input(piece);
        ElementOp::I32_SUM.combine(&mut self.output[piece.operation.index()][range_of(piece)], payload, &input)
    }

    fn deliver(&mut self, piece: Piece, payload: &[u8]) -> Result<(), OpError> {
        let ranks: Vec<u32> = self.calls.contributors(piece).map(|rank| rank.0).collect();
        let sum = |index| ranks.iter().fold(0i32, |sum, rank| sum.wrapping_add(element(*rank, piece.operation, index)));
        self.calls.assert_receives(piece);
        assert_eq!(payload, bytes_of(piece, sum), "rank {}: {piece:?}", self.calls.rank);
        self.output[piece.operation.index()][range_of(piece)].copy_from_slice(payload);
        LENT.with_borrow_mut(|lent| {
            let Some(lent) = lent else { return };
            let output = &mut lent.outputs[self.calls.rank.0 as usize][piece.start as usize..piece.end() as usize];
            output.iter_mut().zip(payload.as_chunks().0).for_each(|(to, bytes)| *to = i32::from_le_bytes(*bytes));
        });
        self.delivered.add(piece);
        Ok(())
    }

    fn assert_whole(&self, operation: usize) {
        self.delivered.assert_whole(operation, &self.calls);
    }
}
