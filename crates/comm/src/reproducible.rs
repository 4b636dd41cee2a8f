//! Reproducible reductions of floats: as reductions of integers, one after another, each an operation of its own. What they are is
//! [`OrderFree`](fanin_core::OrderFree)'s; here is which elements are in which.
//!
//! A sum by element goes through the vector in chunks: the exponents of a chunk, then its integers. The result depends neither on chunks nor
//! on where an element stands.
//!
//! A sum by block begins with the scales of the whole vector; one message in 250 is for them. Then, where scales say that somebody must be
//! asked, special elements; before anything is overwritten, for input and output may be the same. Elements follow in chunks, so that what is
//! made of them stays in a cache until it is sent. The result depends on blocks, which are cut by their place in a share, and not on chunks.

use fanin_control::Part;
use fanin_core::{CollectiveKind, ElementOp, ElementSum, ScaledSum, Specials, TotalOrder, payload::BLOCK_ELEMENTS};

use crate::call::{Block, Buffers, Call};
use crate::error::CommError;

/// Bytes of the integers of a chunk, of all shares together. A chunk waits for its last block before the next one begins, so it is not small;
/// and it is made, sent, got and read again, so it should be in a cache.
const CHUNK_BYTES: u64 = 2 << 20;

/// Memory of one reduction, kept for the next one.
#[derive(Default)]
pub(crate) struct Scratch {
    scales: Vec<u8>,
    said: Vec<u8>,
    integers: Vec<u8>,
}

/// Kind, operator and length of a part.
pub(crate) type Reduction = (CollectiveKind, ElementOp, u64);

/// Runs a part as an operation of its own, in place.
pub(crate) type Run<'r> = dyn FnMut(Part, Reduction, &mut [u8]) -> Result<(), CommError> + 'r;

/// A reduction.
pub(crate) struct Reproducible<'r, 'b> {
    run: &'r mut Run<'r>,
    /// As it was called.
    whole: Call,
    buffers: &'r mut Buffers<'b>,
}

/// Elements of every share that are reduced together.
#[derive(Clone, Copy)]
struct Chunk {
    start: u64,
    elements: u32,
}

impl Chunk {
    fn of(self, share: u32) -> Block {
        Block { share, start: self.start, elements: self.elements }
    }
}

impl<'r, 'b> Reproducible<'r, 'b> {
    pub(crate) fn new(run: &'r mut Run<'r>, whole: Call, buffers: &'r mut Buffers<'b>) -> Self {
        Reproducible { run, whole, buffers }
    }

    /// A sum or a mean, of each element by itself.
    ///
    /// # Errors
    /// The job has failed.
    pub(crate) fn sum_by_element(mut self, sum: ElementSum, scratch: &mut Scratch) -> Result<(), CommError> {
        let Scratch { scales: exponents, integers, .. } = scratch;
        let width = sum.exponents().dtype.bytes();
        for chunk in self.chunks(sum.integers().dtype.bytes()) {
            self.find_exponents(sum, chunk, exponents)?;
            let of = |share: u32| &exponents[share as usize * chunk.elements as usize * width..];
            self.reduce(chunk, sum.integers(), integers, |share, input, integers| sum.quantise(of(share), input, integers))?;
            self.deliver(chunk, sum.integers(), integers, |share, integers, output| sum.dequantise(of(share), integers, output));
        }
        Ok(())
    }

    /// The largest exponents of all ranks, of a chunk of each share.
    fn find_exponents(&mut self, sum: ElementSum, chunk: Chunk, exponents: &mut Vec<u8>) -> Result<(), CommError> {
        let (op, shares) = (sum.exponents(), self.whole.shares() as usize);
        let bytes = chunk.elements as usize * op.dtype.bytes();
        exponents.clear();
        exponents.resize(bytes * shares, 0);
        for (share, exponents) in (0..).zip(exponents.chunks_mut(bytes)) {
            if let Some(input) = self.buffers.input(&self.whole, &chunk.of(share)) {
                sum.exponents_of(input, exponents);
            }
        }
        let elements = u64::from(chunk.elements) * shares as u64;
        self.run(Part::Exponents { first: chunk.start }, CollectiveKind::Allreduce, op, elements, exponents)
    }

    /// A sum or a mean, by block.
    ///
    /// # Errors
    /// The job has failed.
    pub(crate) fn sum(mut self, sum: ScaledSum, scratch: &mut Scratch) -> Result<(), CommError> {
        self.run_sum(sum, scratch)
    }

    fn run_sum(&mut self, sum: ScaledSum, scratch: &mut Scratch) -> Result<(), CommError> {
        let Scratch { scales, said, integers } = scratch;
        self.find_scales(sum, scales)?;
        let special: Vec<usize> = ScaledSum::special_blocks(scales).collect();
        if !special.is_empty() {
            self.find_specials(sum, &special, said)?;
        }
        let blocks = self.blocks();
        for chunk in self.chunks(sum.integers().dtype.bytes()) {
            let scales_of = |share: u32| &scales[(share as usize * blocks + chunk.start as usize / BLOCK_ELEMENTS) * SCALE_BYTES..];
            self.reduce(chunk, sum.integers(), integers, |share, input, integers| sum.quantise(scales_of(share), input, integers))?;
            self.deliver(chunk, sum.integers(), integers, |share, integers, output| sum.dequantise(scales_of(share), integers, output));
        }
        for (index, said) in special.into_iter().zip(said.chunks(Specials::BLOCK_BYTES)) {
            let block = self.block(index);
            if let Some(output) = self.buffers.output(&self.whole, &block) {
                sum.specials().put(said, output);
            }
        }
        Ok(())
    }

    /// A minimum or a maximum.
    ///
    /// # Errors
    /// The job has failed.
    pub(crate) fn extremum(mut self, order: TotalOrder, scratch: &mut Scratch) -> Result<(), CommError> {
        self.run_extremum(order, &mut scratch.integers)
    }

    fn run_extremum(&mut self, order: TotalOrder, integers: &mut Vec<u8>) -> Result<(), CommError> {
        for chunk in self.chunks(order.integers().dtype.bytes()) {
            self.reduce(chunk, order.integers(), integers, |_, input, integers| {
                integers.copy_from_slice(input);
                order.to_integers(integers);
            })?;
            self.deliver(chunk, order.integers(), integers, |_, integers, output| {
                output.copy_from_slice(integers);
                order.to_floats(output);
            });
        }
        Ok(())
    }

    /// Blocks of a share.
    fn blocks(&self) -> usize {
        ScaledSum::blocks(self.whole.elements) as usize
    }

    /// A block of all shares, which are one after another.
    fn block(&self, index: usize) -> Block {
        let (share, start) = (index / self.blocks(), (index % self.blocks() * BLOCK_ELEMENTS) as u64);
        let elements = (self.whole.elements - start).min(BLOCK_ELEMENTS as u64) as u32;
        Block { share: share as u32, start, elements }
    }

    /// The chunks of all shares; they begin with a block.
    fn chunks(&self, integer_bytes: usize) -> impl Iterator<Item = Chunk> + use<> {
        let (elements, block) = (self.whole.elements, BLOCK_ELEMENTS as u64);
        let most = (CHUNK_BYTES / (integer_bytes as u64 * u64::from(self.whole.shares())) / block).max(1) * block;
        (0..elements.div_ceil(most)).map(move |number| {
            let start = number * most;
            Chunk { start, elements: (elements - start).min(most) as u32 }
        })
    }

    /// The scales of all blocks of all shares, of all ranks.
    fn find_scales(&mut self, sum: ScaledSum, scales: &mut Vec<u8>) -> Result<(), CommError> {
        let (shares, blocks) = (self.whole.shares(), self.blocks());
        scales.clear();
        scales.resize(shares as usize * blocks * SCALE_BYTES, 0);
        for chunk in self.chunks(self.whole.op.dtype.bytes()) {
            for share in 0..shares {
                let first = share as usize * blocks + chunk.start as usize / BLOCK_ELEMENTS;
                if let Some(input) = self.buffers.input(&self.whole, &chunk.of(share)) {
                    sum.scales(input, &mut scales[first * SCALE_BYTES..]);
                }
            }
        }
        let elements = (scales.len() / ScaledSum::SCALES.dtype.bytes()) as u64;
        self.run(Part::Scales, CollectiveKind::Allreduce, ScaledSum::SCALES, elements, scales)
    }

    /// What all ranks say of the elements of these blocks.
    fn find_specials(&mut self, sum: ScaledSum, special: &[usize], said: &mut Vec<u8>) -> Result<(), CommError> {
        said.clear();
        said.resize(special.len() * Specials::BLOCK_BYTES, 0);
        for (index, said) in special.iter().zip(said.chunks_mut(Specials::BLOCK_BYTES)) {
            if let Some(input) = self.buffers.input(&self.whole, &self.block(*index)) {
                sum.specials().say(input, said);
            }
        }
        let elements = said.len() as u64;
        self.run(Part::Specials, CollectiveKind::Allreduce, ScaledSum::SPECIALS, elements, said)
    }

    /// Makes integers of a chunk of each share, and reduces them.
    fn reduce(
        &mut self,
        chunk: Chunk,
        op: ElementOp,
        integers: &mut Vec<u8>,
        mut make: impl FnMut(u32, &[u8], &mut [u8]),
    ) -> Result<(), CommError> {
        let bytes = chunk.elements as usize * op.dtype.bytes();
        integers.resize(bytes * self.whole.shares() as usize, 0);
        for (share, integers) in (0..).zip(integers.chunks_mut(bytes)) {
            if let Some(input) = self.buffers.input(&self.whole, &chunk.of(share)) {
                make(share, input, integers);
            }
        }
        self.run(Part::Integers { first: chunk.start }, self.whole.kind, op, u64::from(chunk.elements), integers)
    }

    /// Makes of the integers what this rank gets of a chunk.
    fn deliver(&mut self, chunk: Chunk, op: ElementOp, integers: &[u8], mut make: impl FnMut(u32, &[u8], &mut [u8])) {
        for (share, integers) in (0..).zip(integers.chunks(chunk.elements as usize * op.dtype.bytes())) {
            if let Some(output) = self.buffers.output(&self.whole, &chunk.of(share)) {
                make(share, integers, output);
            }
        }
    }

    fn run(&mut self, part: Part, kind: CollectiveKind, op: ElementOp, elements: u64, vector: &mut [u8]) -> Result<(), CommError> {
        (self.run)(part, (kind, op, elements), vector)
    }
}

/// Bytes of a block's scale.
const SCALE_BYTES: usize = ScaledSum::SCALE_ELEMENTS * ScaledSum::SCALES.dtype.bytes();
