//! The census: payloads that prove that every contribution was counted exactly once.

use super::{OpError, Payload};
use crate::hash::{derive, mix};
use crate::names::{JobId, OperationId, Rank};

/// The weight of elements `[start, end)` of a rank's contribution to an operation: `F(end) - F(start)` in wrapping arithmetic, `F` a
/// keyed hash of (job, operation, rank, position). It telescopes under any split into blocks, chunks or segments; a contribution that
/// is lost, doubled, foreign or of an earlier operation shows as a wrong sum.
#[inline]
pub fn weight(job: JobId, operation: OperationId, rank: Rank, start: u64, end: u64) -> u64 {
    let key = census_key(job, operation, rank);
    mix(key, end).wrapping_sub(mix(key, start))
}

/// The key of `F` for one rank's contribution to one operation.
#[inline]
pub const fn census_key(job: JobId, operation: OperationId, rank: Rank) -> u64 {
    derive((job.0 as u64) << 32 | operation.0 as u64, rank.0 as u64)
}

/// A payload of `bytes` bytes whose contents are stood for by a census weight.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Census {
    bytes: u32,
    // In halves, so that a packet record needs an alignment of 4 only.
    weight: [u32; 2],
}

/// An accumulator of census payloads.
pub type CensusAcc = Census;

impl Census {
    /// `bytes` bytes of this weight.
    #[inline]
    pub const fn new(bytes: u32, weight: u64) -> Self {
        Census { bytes, weight: [weight as u32, (weight >> 32) as u32] }
    }

    /// The weight.
    #[inline]
    pub const fn weight(&self) -> u64 {
        self.weight[0] as u64 | (self.weight[1] as u64) << 32
    }

    /// The sum of two payloads of the same length.
    #[inline]
    pub const fn plus(self, other: Census) -> Census {
        Census::new(self.bytes, self.weight().wrapping_add(other.weight()))
    }
}

impl Payload for Census {
    type Op = ();
    type Acc = Census;
    type Owned = Census;

    #[inline]
    fn accumulator(_op: &(), _bytes: usize) -> Census {
        Census::default()
    }

    #[inline]
    fn bytes(&self) -> usize {
        self.bytes as usize
    }

    #[inline]
    fn acc_bytes(acc: &Census, _op: &()) -> usize {
        acc.bytes as usize
    }

    #[inline]
    fn assign(&self, acc: &mut Census, _op: &mut ()) -> Result<(), OpError> {
        *acc = *self;
        Ok(())
    }

    #[inline]
    fn reduce(&self, acc: &mut Census, _op: &mut ()) -> Result<(), OpError> {
        if acc.bytes != self.bytes {
            return Err(OpError::Length { expected: acc.bytes as usize, got: self.bytes as usize });
        }
        *acc = acc.plus(*self);
        Ok(())
    }

    #[inline]
    fn view(acc: &Census) -> &Census {
        acc
    }

    fn emit(acc: &Census, _op: &(), out: &mut [u8]) -> usize {
        let out = &mut out[..acc.bytes as usize];
        out.fill(0);
        let shown = out.len().min(8);
        out[..shown].copy_from_slice(&acc.weight().to_le_bytes()[..shown]);
        out.len()
    }

    #[inline]
    fn own(&self) -> Census {
        *self
    }

    #[inline]
    fn own_acc(acc: &Census, _op: &()) -> Census {
        *acc
    }

    #[inline]
    fn nothing() -> Census {
        Census::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_telescope_under_any_split() {
        let whole = weight(JobId(1), OperationId(2), Rank(3), 0, 1_000);
        for cuts in [vec![0, 1_000], vec![0, 1, 1_000], vec![0, 333, 334, 999, 1_000]] {
            let sum = cuts.windows(2).map(|cut| weight(JobId(1), OperationId(2), Rank(3), cut[0], cut[1])).fold(0u64, u64::wrapping_add);
            assert_eq!(sum, whole);
        }
    }

    #[test]
    fn every_part_of_the_name_changes_the_weight() {
        let base = weight(JobId(1), OperationId(2), Rank(3), 5, 9);
        assert_ne!(base, weight(JobId(2), OperationId(2), Rank(3), 5, 9));
        assert_ne!(base, weight(JobId(1), OperationId(3), Rank(3), 5, 9));
        assert_ne!(base, weight(JobId(1), OperationId(2), Rank(4), 5, 9));
        assert_ne!(base, weight(JobId(1), OperationId(2), Rank(3), 5, 10));
    }
}
