//! The inputs of operations over a fabric and the results that they must give, element by element. Values are whole numbers so small that
//! every partial result, in whatever order, is exact in the job's element type; so outputs are compared bit by bit.

use fanin_control::JobAnnouncement;
use fanin_core::hash::{derive, mix};
use fanin_core::{CollectiveKind, DType, ElementOp, Operator, Rank};
use fanin_systems::{FIXED_EXPONENT, System};

use super::rounded::{Sum, digest, rounded};
use crate::sums;

/// What a job's vectors are made from.
#[derive(Clone, Copy, Debug)]
pub(super) struct VectorConfig {
    /// The same at all workers.
    pub(super) seed: u64,
    /// For elements that go as integers with one scale for all of them.
    pub(super) scale: Option<Scale>,
    /// Elements are binary32, and of such different sizes that sums are rounded.
    pub(super) are_rounded: bool,
}

/// Elements for fixed point with one scale (`a2tp 5.8`): multiples of 1/256 that fit it, and some that do not.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scale {
    /// Length of a full packet in elements.
    block: u64,
    /// Of 65,536 packets so many have an element at one worker that does not fit.
    too_large: u64,
}

impl Scale {
    /// Values are counted in units of 2^-8: fine enough not to be whole, and sums over 64 workers stay exact in binary32.
    const UNITS: i64 = 1 << 8;
    /// Elements of this size and more do not fit.
    const BOUND: u64 = (Scale::UNITS as u64) << FIXED_EXPONENT;

    /// Of a job that has one.
    pub(super) fn of(job: &JobAnnouncement) -> Option<Scale> {
        let overflow = match job.system {
            System::Atp(parameters) => parameters.overflow,
            System::A2tp(parameters) => parameters.overflow,
            _ => return None,
        };
        job.fixed_point()?;
        Some(Scale { block: u64::from(job.payload_bytes / 4).max(1), too_large: (overflow * 65_536.0) as u64 })
    }

    /// The value in units, of the rank with this key: below the bound, but for one element at one rank of a packet that is too large.
    fn value(self, vectors: &Vectors, key: u64, index: u64) -> i64 {
        let (packet, place) = (index / self.block, index % self.block);
        let draw = mix(vectors.seed, packet);
        let rank = (draw >> 16) % u64::from(vectors.workers.max(1));
        let length = self.block.min(vectors.elements - packet * self.block);
        let hash = mix(key, index) >> 8;
        if draw % 65_536 < self.too_large && key == vectors.key(rank as u32) && place == (draw >> 32) % length {
            let size = Scale::BOUND + hash % 4_096 * Scale::UNITS as u64;
            return if hash >> 40 & 1 == 0 { size as i64 } else { -(size as i64) };
        }
        (hash % (2 * Scale::BOUND - 1)) as i64 - (Scale::BOUND as i64 - 1)
    }
}

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
    scale: Option<Scale>,
    are_rounded: bool,
}

impl Vectors {
    /// The vectors of operation number `operation`.
    pub(super) fn new(kind: CollectiveKind, op: ElementOp, workers: u32, elements: u64, config: &VectorConfig, operation: u32) -> Self {
        // Whole numbers up to this are exact; integers wrap, and are exact whatever happens.
        let exact: u64 = match op.dtype {
            DType::F64 => 1 << 53,
            DType::F32 => 1 << 24,
            DType::F16 => 1 << 11,
            DType::BF16 => 1 << 8,
            DType::I8 | DType::U8 | DType::I16 | DType::I32 | DType::I64 => 1 << 20,
        };
        let bound = (exact / u64::from(workers.max(1))).clamp(1, 1 << 20);
        let seed = derive(config.seed, u64::from(operation));
        Vectors { kind, op, workers, elements, seed, bound, scale: config.scale, are_rounded: config.are_rounded }
    }

    /// The most usual operation has vectors that are made and compared several times faster.
    fn fast(&self) -> Option<sums::Vectors> {
        let is_usual = self.kind == CollectiveKind::Allreduce && self.op == ElementOp::F32_SUM && self.scale.is_none() && !self.are_rounded;
        is_usual.then(|| sums::Vectors::new(self.seed, 0, self.workers))
    }

    fn key(&self, rank: u32) -> u64 {
        derive(self.seed, u64::from(rank))
    }

    /// Element `index` of the vector with this key.
    #[inline]
    fn value(&self, key: u64, index: u64) -> i64 {
        if let Some(scale) = self.scale {
            return scale.value(self, key, index);
        }
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
        if self.are_rounded {
            return (0..self.elements).for_each(|index| out.extend(self.rounded(key, index).to_le_bytes()));
        }
        (0..self.elements).for_each(|index| self.push(self.value(key, index), out));
    }

    fn rounded(&self, key: u64, index: u64) -> f32 {
        rounded(self.value(key, index) as f32, key, index)
    }

    /// Compares sums that are rounded with those of longer floats.
    fn compare_rounded(&self, output: &[u8]) -> (u64, Option<u64>) {
        let keys: Vec<u64> = (0..self.workers).map(|rank| self.key(rank)).collect();
        let is_wrong = |(element, index): (&[u8; 4], u64)| {
            let mut sum = Sum::default();
            keys.iter().for_each(|key| sum.add(self.rounded(*key, index)));
            (!sum.is_near(f32::from_le_bytes(*element))).then_some(index)
        };
        let mut wrong = output.as_chunks().0.iter().zip(0..).filter_map(is_wrong);
        let first = wrong.next();
        (u64::from(first.is_some()) + wrong.count() as u64, first)
    }

    /// Stands for all bits of a result, where sums are rounded.
    pub(super) fn digest(&self, output: &[u8]) -> Option<String> {
        self.are_rounded.then(|| digest(output.as_chunks().0.iter().map(|element| u64::from(u32::from_le_bytes(*element)))))
    }

    /// Writes a value as an element.
    fn push(&self, value: i64, out: &mut Vec<u8>) {
        match self.scale {
            Some(_) => self.op.dtype.push_f64(value as f64 / self.units(), out),
            None => self.op.dtype.push_i64(value, out),
        }
    }

    /// How many units of values make one.
    fn units(&self) -> f64 {
        if self.scale.is_some() { Scale::UNITS as f64 } else { 1.0 }
    }

    /// Compares what `rank` has got with what it must get, where the contributions of the ranks in `without` are missing; gives the number of
    /// wrong elements and the first one.
    pub(super) fn compare(&self, rank: u32, without: &[u32], output: &[u8]) -> (u64, Option<u64>) {
        if let Some(fast) = self.fast() {
            return if without.is_empty() { fast.compare(output) } else { self.compare_some(without, output) };
        }
        if self.are_rounded {
            return self.compare_rounded(output);
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
            let ranks = (0..self.workers).filter(|&rank| self.kind.contributes(Rank(rank), part) && !without.contains(&rank));
            let count = ranks.clone().count();
            let result = self.reduce(ranks.map(|rank| self.value(keys[rank as usize], index)));
            expected.clear();
            match self.op.operator {
                Operator::Avg => self.op.dtype.push_f64(result as f64 / self.units() / count as f64, &mut expected),
                _ => self.push(result, &mut expected),
            }
            let at = index as usize * width;
            if output.get(at..at + width) != Some(&expected[..]) {
                wrong += 1;
                first_wrong.get_or_insert(index);
            }
        }
        (wrong, first_wrong)
    }

    /// As [`Vectors::compare`], for sums of binary32 elements of whole numbers that lack some ranks.
    fn compare_some(&self, without: &[u32], output: &[u8]) -> (u64, Option<u64>) {
        let (mut expected, mut input) = (vec![0; output.len()], Vec::new());
        for rank in (0..self.workers).filter(|rank| !without.contains(rank)) {
            self.fill(rank, &mut input);
            let added = self.op.reduce(&mut expected, &input);
            debug_assert!(added.is_ok(), "vectors of one length and type: {added:?}");
        }
        let width = self.op.dtype.bytes();
        let wrong = expected.chunks(width).zip(output.chunks(width)).zip(0u64..).filter(|((one, other), _)| one != other);
        let mut places = wrong.map(|(_, index)| index);
        let first = places.next();
        (u64::from(first.is_some()) + places.count() as u64, first)
    }

    #[inline]
    fn reduce(&self, values: impl Iterator<Item = i64>) -> i64 {
        let result = match self.op.operator {
            Operator::Sum | Operator::Avg => values.reduce(i64::wrapping_add),
            Operator::Prod => values.reduce(i64::wrapping_mul),
            // What the type keeps of a number is what is compared.
            Operator::Min | Operator::Minimum => values.map(|value| self.kept(value)).min(),
            Operator::Max | Operator::Maximum => values.map(|value| self.kept(value)).max(),
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
    use fanin_core::{BlockExponent, FixedPoint};

    fn plain(seed: u64) -> VectorConfig {
        VectorConfig { seed, scale: None, are_rounded: false }
    }

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
                let vectors = Vectors::new(kind, op, 3, 300, &plain(11), 4);
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
                    assert_eq!(vectors.compare(rank, &[], &output), (0, None), "{op:?} {kind:?} rank {rank}");
                    let first = (0..300).find(|index| kind.receives(Rank(rank), *index as u32 / (300 / kind.shares(3)))).unwrap_or(300);
                    if first < 300 {
                        output[first * width] ^= 1;
                        assert_eq!(vectors.compare(rank, &[], &output), (1, Some(first as u64)), "{op:?} {kind:?} rank {rank}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_sum_that_lacks_a_rank_is_known_and_lacks_no_other() {
        for op in [ElementOp::F32_SUM, ElementOp::new(DType::I32, Operator::Sum).unwrap()] {
            let vectors = Vectors::new(CollectiveKind::Allreduce, op, 3, 50, &plain(11), 4);
            let (mut sum, mut input) = (Vec::new(), Vec::new());
            vectors.fill(0, &mut sum);
            vectors.fill(2, &mut input);
            op.reduce(&mut sum, &input).unwrap();
            assert_eq!(vectors.compare(0, &[1], &sum), (0, None), "{op:?}");
            for without in [&[][..], &[2], &[1, 2]] {
                assert!(vectors.compare(0, without, &sum).0 > 40, "{op:?} without {without:?}");
            }
        }
    }

    #[test]
    fn another_operation_has_other_vectors() {
        let vectors = |operation| Vectors::new(CollectiveKind::Allreduce, ElementOp::F32_SUM, 1, 100, &plain(1), operation);
        let mut output = Vec::new();
        vectors(0).fill(0, &mut output);
        assert!(vectors(1).compare(0, &[], &output).0 > 95);
    }

    /// Sums are the same as integers and as floats, and as many packets as are wanted have an element at one worker that does not fit.
    #[test]
    fn vectors_for_fixed_point_are_exact_both_ways_and_some_packets_do_not_fit() {
        let bound = BlockExponent::from_bits(FIXED_EXPONENT);
        for (workers, too_large) in [(2, 0), (3, 16_384), (64, 65_536)] {
            let config = VectorConfig { seed: 5, scale: Some(Scale { block: 16, too_large }), are_rounded: false };
            let vectors = Vectors::new(CollectiveKind::Allreduce, ElementOp::F32_SUM, workers, 1_601, &config, 1);
            let inputs: Vec<Vec<u8>> = (0..workers)
                .map(|rank| {
                    let mut input = Vec::new();
                    vectors.fill(rank, &mut input);
                    input
                })
                .collect();
            let point = FixedPoint::new(workers, false);
            let (mut output, mut large) = (Vec::new(), 0);
            for packet in (0..inputs[0].len()).step_by(64) {
                let blocks: Vec<&[u8]> = inputs.iter().map(|input| &input[packet..input.len().min(packet + 64)]).collect();
                let fits = |block: &&&[u8]| BlockExponent::of(block) <= bound;
                let mut sum = blocks[0].to_vec();
                if blocks.iter().all(|block| fits(&block)) {
                    let mut integers = sum.clone();
                    point.quantise(bound, blocks[0], &mut sum);
                    for block in &blocks[1..] {
                        point.quantise(bound, block, &mut integers);
                        ElementOp::I32_SUM.reduce(&mut sum, &integers).unwrap();
                    }
                    point.dequantise(bound, &sum.clone(), &mut sum);
                } else {
                    large += 1;
                    assert_eq!(blocks.iter().filter(fits).count(), workers as usize - 1, "at one worker");
                    blocks[1..].iter().for_each(|block| ElementOp::F32_SUM.reduce(&mut sum, block).unwrap());
                }
                output.extend_from_slice(&sum);
            }
            assert_eq!(vectors.compare(0, &[], &output), (0, None), "{workers} workers");
            assert!((too_large * 80 / 65_536..=too_large * 120 / 65_536 + 1).contains(&(large * 100 / 101)), "{large} of 101 packets");
            output[4 * 77] ^= 4;
            assert_eq!(vectors.compare(0, &[], &output), (1, Some(77)));
        }
    }
}
