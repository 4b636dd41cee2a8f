//! The inputs of operations over a fabric and the results that they must give, element by element. Values are whole numbers so small that
//! every partial result, in whatever order, is exact in the job's element type; so outputs are compared bit by bit.

use fanin_core::hash::{derive, mix};
use fanin_core::{CollectiveKind, DType, ElementOp, Operator, Rank};

use crate::demo::vectors as demo;

/// The vectors of one operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vectors {
    pub(super) kind: CollectiveKind,
    pub(super) op: ElementOp,
    pub(super) workers: u32,
    /// Length of the whole vector.
    pub(super) elements: u64,
    seed: u64,
    /// Values of sums are below this in size.
    bound: u64,
}

impl Vectors {
    /// The vectors that `seed` gives for operation number `operation`.
    pub(super) fn new(kind: CollectiveKind, op: ElementOp, workers: u32, elements: u64, seed: u64, operation: u32) -> Self {
        // Whole numbers up to this are exact; integers wrap, and are exact whatever happens.
        let exact: u64 = match op.dtype {
            DType::F64 => 1 << 53,
            DType::F32 => 1 << 24,
            DType::F16 => 1 << 11,
            DType::BF16 => 1 << 8,
            DType::I8 | DType::U8 | DType::I16 | DType::I32 | DType::I64 => 1 << 20,
        };
        let bound = (exact / u64::from(workers.max(1))).clamp(1, 1 << 20);
        Vectors { kind, op, workers, elements, seed: derive(seed, u64::from(operation)), bound }
    }

    /// The most usual operation has vectors that are made and compared several times faster.
    fn fast(&self) -> Option<demo::Vectors> {
        let is_usual = self.kind == CollectiveKind::Allreduce && self.op == ElementOp::F32_SUM;
        is_usual.then(|| demo::Vectors::new(self.seed, 0, self.workers))
    }

    fn key(&self, rank: u32) -> u64 {
        derive(self.seed, u64::from(rank))
    }

    /// Element `index` of the vector with this key.
    #[inline]
    fn value(&self, key: u64, index: u64) -> i64 {
        let hash = mix(key, index) >> 8;
        match self.op.operator {
            // Products of 1 and -1 are exact.
            Operator::Prod => 1 - 2 * (hash & 1) as i64,
            _ if self.op.dtype == DType::U8 => (hash % self.bound) as i64,
            _ => (hash % (2 * self.bound)) as i64 - self.bound as i64,
        }
    }

    /// Writes the vector of `rank`; it is as long as the whole vector, also where the rank contributes to a share only.
    pub(super) fn fill(&self, rank: u32, out: &mut Vec<u8>) {
        out.clear();
        if let Some(fast) = self.fast() {
            out.resize(self.elements as usize * self.op.dtype.bytes(), 0);
            return fast.fill(rank, out);
        }
        let key = self.key(rank);
        (0..self.elements).for_each(|index| self.op.dtype.push_i64(self.value(key, index), out));
    }

    /// Compares what `rank` has got with what it must get; gives the number of wrong elements and the first one.
    pub(super) fn compare(&self, rank: u32, output: &[u8]) -> (u64, Option<u64>) {
        if let Some(fast) = self.fast() {
            return fast.compare(output);
        }
        let width = self.op.dtype.bytes();
        let share = self.elements / u64::from(self.kind.shares(self.workers)).max(1);
        let keys: Vec<u64> = (0..self.workers).map(|rank| self.key(rank)).collect();
        let (mut wrong, mut first_wrong) = (0, None);
        let mut expected = Vec::with_capacity(width);
        for index in 0..self.elements {
            let part = (index / share.max(1)) as u32;
            if !self.kind.receives(Rank(rank), part) {
                continue;
            }
            let ranks = (0..self.workers).filter(|&rank| self.kind.contributes(Rank(rank), part));
            let result = self.reduce(ranks.map(|rank| self.value(keys[rank as usize], index)));
            expected.clear();
            self.op.dtype.push_i64(result, &mut expected);
            let at = index as usize * width;
            if output.get(at..at + width) != Some(&expected[..]) {
                wrong += 1;
                first_wrong.get_or_insert(index);
            }
        }
        (wrong, first_wrong)
    }

    #[inline]
    fn reduce(&self, values: impl Iterator<Item = i64>) -> i64 {
        let result = match self.op.operator {
            Operator::Sum | Operator::Avg => values.reduce(i64::wrapping_add),
            Operator::Prod => values.reduce(i64::wrapping_mul),
            // What the type keeps of a number is what is compared.
            Operator::Min => values.map(|value| self.kept(value)).min(),
            Operator::Max => values.map(|value| self.kept(value)).max(),
            Operator::And => values.reduce(|a, b| a & b),
            Operator::Or => values.reduce(|a, b| a | b),
            Operator::Xor => values.reduce(|a, b| a ^ b),
        };
        result.unwrap_or(0)
    }

    /// A value as the element type has it.
    fn kept(&self, value: i64) -> i64 {
        match self.op.dtype {
            DType::I8 => i64::from(value as i8),
            DType::U8 => i64::from(value as u8),
            DType::I16 => i64::from(value as i16),
            _ => value,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every type, operator and kind: what the registry's own reduction gives is what is expected, and a changed bit is found.
    #[test]
    fn results_of_all_types_operators_and_kinds_are_known_exactly() {
        let kinds = [
            CollectiveKind::Allreduce,
            CollectiveKind::Reduce { root: Rank(1) },
            CollectiveKind::Broadcast { root: Rank(2) },
            CollectiveKind::ReduceScatter,
            CollectiveKind::AllGather,
        ];
        for op in ElementOp::all().filter(|op| op.operator != Operator::Avg) {
            for kind in kinds {
                let vectors = Vectors::new(kind, op, 3, 300, 11, 4);
                let width = op.dtype.bytes();
                let inputs: Vec<Vec<u8>> = (0..3)
                    .map(|rank| {
                        let mut input = Vec::new();
                        vectors.fill(rank, &mut input);
                        input
                    })
                    .collect();
                for rank in 0..3 {
                    let mut output = vec![0xff; 300 * width];
                    for part in (0..kind.shares(3)).filter(|&part| kind.receives(Rank(rank), part)) {
                        let length = 300 * width / kind.shares(3) as usize;
                        let range = part as usize * length..(part as usize + 1) * length;
                        let mut members = (0..3).filter(|&rank| kind.contributes(Rank(rank), part)).map(|rank| &inputs[rank as usize]);
                        output[range.clone()].copy_from_slice(&members.next().unwrap()[range.clone()]);
                        for input in members {
                            op.reduce(&mut output[range.clone()], &input[range.clone()]).unwrap();
                        }
                    }
                    assert_eq!(vectors.compare(rank, &output), (0, None), "{op:?} {kind:?} rank {rank}");
                    let first = (0..300).find(|index| kind.receives(Rank(rank), *index as u32 / (300 / kind.shares(3)))).unwrap_or(300);
                    if first < 300 {
                        output[first * width] ^= 1;
                        assert_eq!(vectors.compare(rank, &output), (1, Some(first as u64)), "{op:?} {kind:?} rank {rank}");
                    }
                }
            }
        }
    }

    #[test]
    fn another_operation_has_other_vectors() {
        let vectors = |operation| Vectors::new(CollectiveKind::Allreduce, ElementOp::F32_SUM, 1, 100, 1, operation);
        let mut output = Vec::new();
        vectors(0).fill(0, &mut output);
        assert!(vectors(1).compare(0, &output).0 > 95);
    }
}
