//! What ranks contribute, and what they must get. Elements are so small that every operator is exact in every type, in whatever order.

use fanin_comm::{CollectiveKind, DType, Operator, bf16, f16};
use fanin_core::hash::{derive, mix};

/// Elements that come of one hash: four bits each.
const PER_HASH: u64 = 16;

/// The vectors of one call at all ranks.
#[derive(Clone, Copy, Debug)]
pub struct Vectors {
    seed: u64,
    world: u32,
    kind: CollectiveKind,
    dtype: DType,
    operator: Operator,
    /// Elements of a share.
    elements: u64,
}

/// A result that must not be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// How many elements.
    pub elements: u64,
    /// The first of them, in words.
    pub first: String,
}

impl Vectors {
    /// Of the job's call of this number.
    pub fn new(seed: u64, call: u64, world: u32, kind: CollectiveKind, (dtype, operator): (DType, Operator), elements: u64) -> Self {
        Vectors { seed: derive(seed, call), world, kind, dtype, operator, elements }
    }

    fn is_reduction(&self) -> bool {
        matches!(self.kind, CollectiveKind::Allreduce | CollectiveKind::Reduce { .. } | CollectiveKind::ReduceScatter)
    }

    /// Elements of what a rank gives and of what it gets.
    pub fn lengths(&self) -> (u64, u64) {
        let all = self.elements * u64::from(self.world);
        match self.kind {
            CollectiveKind::ReduceScatter => (all, self.elements),
            CollectiveKind::AllGather => (self.elements, all),
            CollectiveKind::Barrier => (0, 0),
            _ => (self.elements, self.elements),
        }
    }

    /// What a rank contributes at an index of its vector.
    fn value(&self, rank: u32, index: u64) -> i64 {
        let hash = mix(self.seed ^ (u64::from(rank) << 48), index / PER_HASH);
        let nibble = ((hash >> (index % PER_HASH * 4)) & 15) as i64;
        match self.operator {
            // Factors whose products stay small.
            Operator::Prod if self.is_reduction() => [1, -1, 2, 1][(nibble % 4) as usize],
            // A mean that is a whole number.
            Operator::Avg if self.is_reduction() => (nibble - 8) * i64::from(self.world),
            _ => nibble - 8,
        }
    }

    /// What reduction must give at an index of a rank's vector.
    fn reduced(&self, index: u64) -> i64 {
        let mut all = (0..self.world).map(|rank| self.value(rank, index));
        let first = all.next().unwrap_or_default();
        let unsigned = |value: i64| if self.dtype == DType::U8 { i64::from(value as u8) } else { value };
        match self.operator {
            Operator::Sum => all.fold(first, |a, b| a + b),
            Operator::Avg => all.fold(first, |a, b| a + b) / i64::from(self.world),
            Operator::Min | Operator::Minimum => all.fold(unsigned(first), |a, b| a.min(unsigned(b))),
            Operator::Max | Operator::Maximum => all.fold(unsigned(first), |a, b| a.max(unsigned(b))),
            Operator::Prod => all.fold(first, |a, b| a * b),
            Operator::And => all.fold(first, |a, b| a & b),
            Operator::Or => all.fold(first, |a, b| a | b),
            Operator::Xor => all.fold(first, |a, b| a ^ b),
        }
    }

    /// What a rank must get at an index of its result.
    fn expected(&self, rank: u32, index: u64) -> i64 {
        match self.kind {
            CollectiveKind::ReduceScatter => self.reduced(u64::from(rank) * self.elements + index),
            CollectiveKind::AllGather => self.value((index / self.elements) as u32, index % self.elements),
            CollectiveKind::Broadcast { root } => self.value(root.0, index),
            // Who is not the root keeps what it gave.
            CollectiveKind::Reduce { root } if root.0 != rank => self.value(rank, index),
            _ => self.reduced(index),
        }
    }

    fn write(&self, value: i64, out: &mut Vec<u8>) {
        match self.dtype {
            DType::F64 => out.extend((value as f64).to_le_bytes()),
            DType::F32 => out.extend((value as f32).to_le_bytes()),
            DType::F16 => out.extend(f16::from_f64(value as f64).to_le_bytes()),
            DType::BF16 => out.extend(bf16::from_f64(value as f64).to_le_bytes()),
            DType::I8 | DType::U8 => out.push(value as u8),
            DType::I16 => out.extend((value as i16).to_le_bytes()),
            DType::I32 => out.extend((value as i32).to_le_bytes()),
            DType::I64 => out.extend(value.to_le_bytes()),
        }
    }

    /// The bytes that a rank contributes.
    pub fn input(&self, rank: u32) -> Vec<u8> {
        let mut out = Vec::new();
        for index in 0..self.lengths().0 {
            self.write(self.value(rank, index), &mut out);
        }
        out
    }

    /// Holds what a rank got against what it must have.
    ///
    /// # Errors
    /// How many elements are wrong, and the first of them.
    pub fn check(&self, rank: u32, output: &[u8]) -> Result<(), Wrong> {
        let (bytes, length) = (self.dtype.bytes(), self.lengths().1);
        let mut expected = Vec::new();
        for index in 0..length {
            self.write(self.expected(rank, index), &mut expected);
        }
        if expected == output {
            return Ok(());
        }
        let pairs = output.chunks(bytes).zip(expected.chunks(bytes)).zip(0u64..);
        // A zero may have either sign.
        let differ = |a: &[u8], b: &[u8]| a != b && !(self.is_zero(a) && self.is_zero(b));
        let wrong: Vec<_> = pairs.filter(|((got, want), _)| differ(got, want)).collect();
        let Some(((got, want), index)) = wrong.first() else { return Ok(()) };
        let first = format!("element {index} has the bytes {got:02x?}, expected {want:02x?}");
        Err(Wrong { elements: wrong.len() as u64, first })
    }

    fn is_zero(&self, bytes: &[u8]) -> bool {
        let Some((last, rest)) = bytes.split_last() else { return true };
        let is_float = matches!(self.dtype, DType::F64 | DType::F32 | DType::F16 | DType::BF16);
        rest.iter().all(|byte| *byte == 0) && (*last == 0 || (is_float && *last == 0x80))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_comm::{ElementOp, Rank};

    #[test]
    fn results_are_what_the_operators_of_switches_make_of_the_inputs_in_any_order() {
        for &dtype in DType::ALL {
            for &operator in Operator::ALL {
                let Ok(op) = ElementOp::new(dtype, operator) else { continue };
                if operator == Operator::Avg {
                    continue;
                }
                for world in [1, 2, 5, 8] {
                    let vectors = Vectors::new(1, 2, world, CollectiveKind::Allreduce, (dtype, operator), 333);
                    let mut inputs: Vec<Vec<u8>> = (0..world).map(|rank| vectors.input(rank)).collect();
                    for turn in 0..2 {
                        let mut result = inputs[0].clone();
                        inputs[1..].iter().for_each(|other| op.reduce(&mut result, other).unwrap());
                        assert_eq!(vectors.check(0, &result), Ok(()), "{dtype} {operator} {world} turn {turn}");
                        inputs.reverse();
                    }
                }
            }
        }
    }

    #[test]
    fn a_mean_is_a_whole_number() {
        let vectors = Vectors::new(1, 2, 3, CollectiveKind::Allreduce, (DType::F32, Operator::Avg), 100);
        assert!((0..100).all(|index| (0..3).map(|rank| vectors.value(rank, index)).sum::<i64>() == 3 * vectors.reduced(index)));
    }

    #[test]
    fn an_exact_result_is_taken_and_any_other_one_is_not() {
        for &dtype in DType::ALL {
            for kind in [CollectiveKind::Allreduce, CollectiveKind::AllGather, CollectiveKind::Broadcast { root: Rank(1) }] {
                let vectors = Vectors::new(7, 3, 3, kind, (dtype, Operator::Max), 41);
                let mut result = Vec::new();
                for index in 0..vectors.lengths().1 {
                    vectors.write(vectors.expected(2, index), &mut result);
                }
                assert_eq!(vectors.check(2, &result), Ok(()));
                let at = result.len() - 1;
                result[at] ^= 1;
                assert_eq!(vectors.check(2, &result).unwrap_err().elements, 1, "{dtype:?} {kind:?}");
            }
        }
    }
}
