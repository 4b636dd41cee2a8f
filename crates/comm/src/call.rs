//! One collective as a rank sees it: which bytes of its vectors belong to which block, and how it is told apart from another.

use std::ops::Range;

use fanin_control::{CallDescription, CallKind, CustomCall, Op, Part, Signature};
use fanin_core::{CollectiveKind, DType, ElementOp, Operator, Rank, hash};
use fanin_net::stream::STREAMED_BYTES_MIN;
use fanin_runtime::Vectors;

/// Words in which a rank tells its call.
pub(crate) const WORDS: usize = 6;
/// Among the numbers of kinds of calls, steps of sparse ones.
const SPARSE: u64 = 7;
/// That a part of a reproducible reduction is exponents, beside the first element.
const EXPONENTS: u64 = 1 << 63;

/// One call of a communicator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Call {
    /// Counts the calls of the communicator from 0; the same at all ranks.
    pub(crate) number: u32,
    pub(crate) kind: CollectiveKind,
    pub(crate) op: ElementOp,
    /// The operator that the job has brought along, where one is meant: type and operator mean nothing then.
    pub(crate) custom: Option<CustomCall>,
    /// Elements of a share: of the whole vector, except where each rank has a share of its own.
    pub(crate) elements: u64,
    pub(crate) world: u32,
    pub(crate) rank: u32,
    /// Where it is a part of something else: which part of a reproducible reduction, if of one, and what was called. Ranks compare that: parts of
    /// different calls may be alike.
    pub(crate) part: Option<(Option<Part>, Asked)>,
    /// What it is a step of, where users have called something else.
    pub(crate) sparse: Option<SparseStep>,
}

/// What was called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub(crate) kind: CollectiveKind,
    pub(crate) op: ElementOp,
    /// As [`Call::custom`]: a part of a reduction by such an operator may only copy.
    pub(crate) custom: Option<CustomCall>,
    pub(crate) elements: u64,
}

/// What a call is a part of, and what step.
pub(crate) type Of = (Option<(Option<Part>, Asked)>, Option<SparseStep>);

/// A step of a sparse allreduce: its number, and what users have called.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SparseStep {
    pub(crate) op: ElementOp,
    pub(crate) size: u64,
    /// 0 for the counts, 1 for the lists, 2 for the dense vector, 3 for which of its elements are there, 4 for what has come of the switch's
    /// sum.
    pub(crate) number: u32,
}

impl Call {
    pub(crate) fn shares(&self) -> u32 {
        self.kind.shares(self.world)
    }

    /// Bytes of an element.
    pub(crate) fn width(&self) -> usize {
        self.custom.map_or(self.op.dtype.bytes(), |custom| custom.element_bytes as usize)
    }

    /// Whether its vectors are longer than caches, so that their results go past them.
    pub(crate) fn is_long(&self) -> bool {
        self.elements.saturating_mul(self.width() as u64) >= STREAMED_BYTES_MIN as u64
    }

    /// What must be the same at all ranks.
    pub(crate) fn signature(&self) -> Signature {
        let part = self.part.and_then(|(part, _)| part);
        if let Some(step) = self.sparse {
            return Signature { kind: CallKind::AllreduceSparse, op: step.op.into(), elements: step.size, part };
        }
        let Asked { kind, op, custom, elements } = self.asked();
        Signature { kind: kind.into(), op: Op { custom, ..op.into() }, elements, part }
    }

    /// What was called, of which this may be a part.
    pub(crate) fn asked(&self) -> Asked {
        let Call { kind, op, custom, elements, .. } = *self;
        self.part.map_or(Asked { kind, op, custom, elements }, |(_, asked)| asked)
    }

    /// The number and everything that must be the same at all ranks, as one number.
    pub(crate) fn fingerprint(&self) -> u64 {
        self.words()[..5].iter().fold(u64::from(self.world), |sum, word| hash::mix(sum, *word))
    }

    /// For the control connection.
    pub(crate) fn describe(&self, total_blocks: u64) -> CallDescription {
        CallDescription::begun(self.number, self.signature(), total_blocks)
    }

    /// For ranks that share memory with this one.
    pub(crate) fn words(&self) -> [u64; WORDS] {
        let asked = self.asked();
        let (kind, root) = match (self.sparse, asked.kind) {
            (Some(step), _) => (SPARSE, step.number),
            (None, CollectiveKind::Allreduce) => (1, 0),
            (None, CollectiveKind::Reduce { root }) => (2, root.0),
            (None, CollectiveKind::Broadcast { root }) => (3, root.0),
            (None, CollectiveKind::Barrier) => (4, 0),
            (None, CollectiveKind::ReduceScatter) => (5, 0),
            (None, CollectiveKind::AllGather) => (6, 0),
            (None, CollectiveKind::AllToAll { .. }) => (7, 0),
        };
        // Of a sparse call, what follows from that is not told: all ranks conclude the same.
        let (op, elements) = self.sparse.map_or((asked.op, asked.elements), |step| (step.op, step.size));
        let op = u64::from(op.dtype.number()) << 8 | u64::from(op.operator.number());
        let custom = asked.custom.map_or(0, |custom| u64::from(custom.element_bytes) << 32 | (u64::from(custom.index) + 1) << 16);
        let part = match self.part.and_then(|(part, _)| part) {
            None => 0,
            Some(Part::Scales) => 1,
            Some(Part::Specials) => 2,
            Some(Part::Exponents { first }) => EXPONENTS | first,
            Some(Part::Integers { first }) => 3 + first,
        };
        [u64::from(self.number), kind << 32 | u64::from(root), custom | op, elements, part, 1]
    }

    /// What another rank told by [`Call::words`], as it was called there; `None` where that is no call.
    pub(crate) fn from_words(words: [u64; WORDS], world: u32, rank: u32) -> Option<Self> {
        let (root, is_sparse) = (Rank(words[1] as u32), words[1] >> 32 == SPARSE);
        let kind = match words[1] >> 32 {
            SPARSE => CollectiveKind::AllGather,
            1 => CollectiveKind::Allreduce,
            2 => CollectiveKind::Reduce { root },
            3 => CollectiveKind::Broadcast { root },
            4 => CollectiveKind::Barrier,
            5 => CollectiveKind::ReduceScatter,
            6 => CollectiveKind::AllGather,
            _ => return None,
        };
        let dtype = fanin_core::DType::from_number((words[2] >> 8) as u8)?;
        let operator = fanin_core::Operator::from_number(words[2] as u8)?;
        let running = words[5] == 1;
        let (op, elements) = (ElementOp { dtype, operator }, words[3]);
        let index = ((words[2] >> 16) as u8).checked_sub(1);
        let custom = index.map(|index| CustomCall { index, element_bytes: (words[2] >> 32) as u32 });
        let part = match words[4] {
            0 => None,
            1 => Some(Part::Scales),
            2 => Some(Part::Specials),
            number if number & EXPONENTS != 0 => Some(Part::Exponents { first: number & !EXPONENTS }),
            number => Some(Part::Integers { first: number - 3 }),
        };
        let part = part.map(|part| (Some(part), Asked { kind, op, custom, elements }));
        let sparse = is_sparse.then_some(SparseStep { op, size: elements, number: root.0 });
        running.then_some(Call { number: words[0] as u32, kind, op, custom, elements, world, rank, part, sparse })
    }

    /// The bytes of a block in this rank's input; of the whole vector, or of its own share where `own` (the input of an all-gather).
    fn bytes(&self, block: &Block, own: bool) -> Range<usize> {
        let share = if own { 0 } else { u64::from(block.share) };
        let width = self.width() as u64;
        let start = (share * self.elements + block.start) * width;
        start as usize..(start + u64::from(block.elements) * width) as usize
    }

    /// Whether this rank contributes to a share.
    pub(crate) fn contributes(&self, share: u32) -> bool {
        self.kind.contributes(Rank(self.rank), share)
    }

    /// Whether this rank gets the reduction of a share.
    pub(crate) fn receives(&self, share: u32) -> bool {
        self.kind.receives(Rank(self.rank), share)
    }
}

/// What a call reduces by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallOp {
    /// An operator that is built in.
    BuiltIn(ElementOp),
    /// One that the job has brought along.
    Custom(RegisteredOperator),
}

impl From<ElementOp> for CallOp {
    fn from(op: ElementOp) -> Self {
        CallOp::BuiltIn(op)
    }
}

impl From<RegisteredOperator> for CallOp {
    fn from(operator: RegisteredOperator) -> Self {
        CallOp::Custom(operator)
    }
}

/// An operator that a communicator's job has brought along: see [`Communicator::operator`](crate::Communicator::operator).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegisteredOperator(pub(crate) CustomCall);

impl RegisteredOperator {
    /// Bytes of its elements.
    pub fn element_bytes(&self) -> usize {
        self.0.element_bytes as usize
    }
}

/// A run of elements of one share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Block {
    pub(crate) share: u32,
    /// The first element, from the beginning of the share.
    pub(crate) start: u64,
    pub(crate) elements: u32,
}

/// How a vector is cut into blocks. A call always has a block, if only an empty one: ranks meet in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Blocks {
    shares: u32,
    elements: u64,
    block_elements: u32,
    per_share: u64,
}

impl Blocks {
    pub(crate) fn new(call: &Call, block_elements: u32) -> Self {
        let per_share = call.elements.div_ceil(u64::from(block_elements)).max(1);
        let shares = if call.elements == 0 { 1 } else { call.shares() };
        Blocks { shares, elements: call.elements, block_elements, per_share }
    }

    pub(crate) fn count(&self) -> u64 {
        self.per_share * u64::from(self.shares)
    }

    pub(crate) fn get(&self, index: u64) -> Block {
        let start = index % self.per_share * u64::from(self.block_elements);
        let elements = (self.elements - start).min(u64::from(self.block_elements)) as u32;
        Block { share: (index / self.per_share) as u32, start, elements }
    }
}

impl Blocks {
    /// The bytes of a block in the whole vector.
    pub(crate) fn bytes(&self, call: &Call, index: u64) -> Range<usize> {
        call.bytes(&self.get(index), false)
    }

    /// The bytes of neighbouring blocks in the whole vector; they are at least one, and of one share.
    pub(crate) fn span(&self, call: &Call, first: u64, count: u64) -> Range<usize> {
        self.bytes(call, first).start..self.bytes(call, first + count - 1).end
    }

    /// The first block after `index` that is of another share.
    pub(crate) fn end_of_share(&self, index: u64) -> u64 {
        (index / self.per_share + 1) * self.per_share
    }
}

/// The vectors of a call, as bytes.
pub(crate) enum Buffers<'a> {
    /// The result takes the input's place.
    InPlace(&'a mut [u8]),
    /// Two vectors. Where each rank has a share, the shorter one holds the rank's own share only.
    Apart {
        /// What the rank contributes.
        input: &'a [u8],
        /// Where the result goes.
        output: &'a mut [u8],
    },
}

impl Buffers<'_> {
    /// What this rank contributes to a block, if it does.
    pub(crate) fn input(&self, call: &Call, block: &Block) -> Option<&[u8]> {
        if !call.contributes(block.share) {
            return None;
        }
        Some(match self {
            Buffers::InPlace(bytes) => &bytes[call.bytes(block, false)],
            Buffers::Apart { input, .. } => &input[call.bytes(block, call.kind == CollectiveKind::AllGather)],
        })
    }

    /// Where this rank gets the result of a block, if it does.
    pub(crate) fn output(&mut self, call: &Call, block: &Block) -> Option<&mut [u8]> {
        if !call.receives(block.share) {
            return None;
        }
        Some(match self {
            Buffers::InPlace(bytes) => &mut bytes[call.bytes(block, false)],
            Buffers::Apart { output, .. } => &mut output[call.bytes(block, call.kind == CollectiveKind::ReduceScatter)],
        })
    }

    /// A part of one share of both vectors, where this rank gives or gets something; `bytes` is its place in the whole vector.
    pub(crate) fn part(&mut self, call: &Call, share: u32, bytes: Range<usize>) -> Vectors<'_> {
        let (contributes, receives) = (call.contributes(share), call.receives(share));
        let own = call.rank as usize * call.elements as usize * call.width();
        let placed = |own_only: bool| if own_only { bytes.start - own..bytes.end - own } else { bytes.clone() };
        match self {
            Buffers::InPlace(vector) => Vectors::InPlace(&mut vector[bytes]),
            Buffers::Apart { input, output } => Vectors::Apart {
                input: if contributes { &input[placed(call.kind == CollectiveKind::AllGather)] } else { &[] },
                input_start: 0,
                output: if receives { &mut output[placed(call.kind == CollectiveKind::ReduceScatter)] } else { &mut [] },
                output_start: 0,
            },
        }
    }

    /// As [`Buffers::part`], of the output only; `None` where this rank gets nothing of the share.
    pub(crate) fn output_part(&mut self, call: &Call, share: u32, bytes: Range<usize>) -> Option<&mut [u8]> {
        if !call.receives(share) {
            return None;
        }
        match self.part(call, share, bytes) {
            Vectors::InPlace(output) | Vectors::Apart { output, .. } => Some(output),
            // Parts are of dense vectors.
            Vectors::Sparse { .. } => None,
        }
    }

    /// Whether the vectors are as long as the call needs them.
    ///
    /// # Errors
    /// Says which one is not, and how long it must be.
    pub(crate) fn check(&self, call: &Call) -> Result<(), String> {
        let width = call.width() as u64;
        let share = call.elements * width;
        let whole = share * u64::from(call.shares());
        let expect = |what: &str, got: usize, expected: u64| {
            if got as u64 == expected {
                return Ok(());
            }
            Err(format!(
                "{}: the {what} has {} elements, expected {} ({})",
                call.kind.name(),
                got as u64 / width,
                expected / width,
                call.custom.map_or(call.op.dtype.to_string(), |custom| format!("of {} bytes", custom.element_bytes))
            ))
        };
        match self {
            Buffers::InPlace(bytes) => expect("vector", bytes.len(), whole),
            Buffers::Apart { input, output } => {
                let contributes = (0..call.shares()).any(|share| call.contributes(share));
                let receives = (0..call.shares()).any(|share| call.receives(share));
                if contributes {
                    expect("input", input.len(), if call.kind == CollectiveKind::AllGather { share } else { whole })?;
                }
                if receives {
                    expect("output", output.len(), if call.kind == CollectiveKind::ReduceScatter { share } else { whole })?;
                }
                Ok(())
            }
        }
    }
}

/// How far a call is at this rank.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Counts the calls of the communicator from 0; a reproducible reduction of floats is several.
    pub call: u32,
    /// Parts of the result that are here.
    pub finished_blocks: u64,
    /// Parts that it has.
    pub blocks: u64,
}

/// Whether nothing is reduced.
pub(crate) fn is_copy(kind: CollectiveKind) -> bool {
    matches!(kind, CollectiveKind::Broadcast { .. } | CollectiveKind::AllGather | CollectiveKind::Barrier)
}

/// What is only copied needs no operator; this one is there for every type.
pub(crate) fn copies(dtype: DType) -> ElementOp {
    ElementOp { dtype, operator: Operator::Max }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::{DType, Operator};

    fn call(kind: CollectiveKind, elements: u64, rank: u32) -> Call {
        Call {
            number: 7,
            kind,
            op: ElementOp { dtype: DType::I16, operator: Operator::Sum },
            custom: None,
            elements,
            world: 3,
            rank,
            part: None,
            sparse: None,
        }
    }

    #[test]
    fn blocks_cover_every_share_once_and_never_cross_its_end() {
        for elements in [0, 1, 4, 5, 11] {
            for kind in [CollectiveKind::Allreduce, CollectiveKind::AllGather, CollectiveKind::Barrier] {
                let call = call(kind, elements, 0);
                let blocks = Blocks::new(&call, 4);
                assert!(blocks.count() >= 1);
                let mut covered = vec![0; (elements * u64::from(call.shares())) as usize];
                for index in 0..blocks.count() {
                    let bytes = call.bytes(&blocks.get(index), false);
                    covered[bytes.start / 2..bytes.end / 2].iter_mut().for_each(|count| *count += 1);
                }
                assert!(covered.iter().all(|&count| count == 1), "{kind:?} {elements}: {covered:?}");
            }
        }
    }

    #[test]
    fn calls_that_differ_in_anything_have_different_fingerprints() {
        let first = call(CollectiveKind::Allreduce, 10, 0);
        // As it is told: what a rank does in it is not.
        let sparse = |op, size, number| {
            let sparse = Some(SparseStep { op, size, number });
            Call { kind: CollectiveKind::AllGather, op, elements: size, sparse, ..first }
        };
        assert_eq!(sparse(first.op, 10, 0).signature().to_string(), "sparse allreduce of 10 i16 (sum)");
        let others = [
            Call { number: 8, ..first },
            Call { elements: 11, ..first },
            Call { kind: CollectiveKind::Reduce { root: Rank(0) }, ..first },
            Call { kind: CollectiveKind::Reduce { root: Rank(1) }, ..first },
            Call { op: ElementOp { dtype: DType::BF16, operator: Operator::Sum }, ..first },
            Call { op: ElementOp { dtype: DType::I16, operator: Operator::Max }, ..first },
            Call { part: Some((Some(Part::Scales), first.asked())), ..first },
            Call { part: Some((Some(Part::Specials), first.asked())), ..first },
            Call { part: Some((Some(Part::Exponents { first: 0 }), first.asked())), ..first },
            Call { part: Some((Some(Part::Exponents { first: 256 }), first.asked())), ..first },
            Call { part: Some((Some(Part::Integers { first: 0 }), first.asked())), ..first },
            Call { part: Some((Some(Part::Integers { first: 256 }), first.asked())), ..first },
            Call { custom: Some(CustomCall { index: 0, element_bytes: 2 }), ..first },
            Call { custom: Some(CustomCall { index: 3, element_bytes: 1_024 }), ..first },
            Call {
                part: Some((Some(Part::Scales), Asked { custom: Some(CustomCall { index: 0, element_bytes: 2 }), ..first.asked() })),
                custom: Some(CustomCall { index: 0, element_bytes: 2 }),
                ..first
            },
            sparse(first.op, 10, 0),
            sparse(first.op, 10, 1),
            sparse(first.op, 11, 0),
            sparse(ElementOp { dtype: DType::I16, operator: Operator::Max }, 10, 0),
        ];
        assert!(others.iter().all(|other| other.fingerprint() != first.fingerprint()));
        assert_eq!(Call { rank: 2, ..first }.fingerprint(), first.fingerprint());
        for other in others {
            assert_eq!(Call::from_words(other.words(), 3, 0), Some(other));
        }
        assert_eq!(Call::from_words([0; WORDS], 3, 0), None);
    }

    #[test]
    fn vectors_of_the_wrong_length_are_refused_in_words() {
        let gather = call(CollectiveKind::AllGather, 5, 1);
        let (input, mut output) = ([0; 10], [0; 28]);
        let error = Buffers::Apart { input: &input, output: &mut output }.check(&gather).unwrap_err();
        assert_eq!(error, "all-gather: the output has 14 elements, expected 15 (i16)");
        let reduce = call(CollectiveKind::Reduce { root: Rank(0) }, 5, 1);
        assert_eq!(Buffers::Apart { input: &input, output: &mut [] }.check(&reduce), Ok(()), "only the root needs an output");
    }

    #[test]
    fn shares_lie_where_the_caller_expects_them() {
        let scatter = call(CollectiveKind::ReduceScatter, 2, 1);
        let (input, mut output) = ([0, 0, 1, 0, 2, 0, 3, 0, 4, 0, 5, 0], [0; 4]);
        let mut buffers = Buffers::Apart { input: &input, output: &mut output };
        let block = Block { share: 1, start: 1, elements: 1 };
        assert_eq!(buffers.input(&scatter, &block).unwrap(), [3, 0]);
        buffers.output(&scatter, &block).unwrap().copy_from_slice(&[9, 9]);
        assert!(buffers.output(&scatter, &Block { share: 0, ..block }).is_none());
        assert_eq!(output, [0, 0, 9, 9]);
        let gather = call(CollectiveKind::AllGather, 2, 1);
        let buffers = Buffers::Apart { input: &input[..4], output: &mut [] };
        assert_eq!(buffers.input(&gather, &block).unwrap(), [1, 0]);
        assert!(buffers.input(&gather, &Block { share: 2, ..block }).is_none());
    }
}
