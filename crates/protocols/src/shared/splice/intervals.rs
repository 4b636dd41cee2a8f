//! Which bytes of a stream are there.

use std::collections::VecDeque;
use std::ops::Range;

/// Ranges of bytes that do not touch each other, in order. There are few: a stream that loses nothing has one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Intervals {
    ranges: VecDeque<Range<u64>>,
}

impl Intervals {
    /// Adds what of `range` is missing.
    pub fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // Streams grow at their end.
        if let Some(last) = self.ranges.back_mut()
            && last.start <= range.start
        {
            if range.start <= last.end {
                last.end = last.end.max(range.end);
            } else {
                self.ranges.push_back(range);
            }
            return;
        }
        let first = self.ranges.partition_point(|other| other.end < range.start);
        let end = self.ranges.partition_point(|other| other.start <= range.end);
        let mut merged = range;
        if first < end {
            merged.start = merged.start.min(self.ranges[first].start);
            merged.end = merged.end.max(self.ranges[end - 1].end);
            self.ranges.drain(first..end);
        }
        self.ranges.insert(first, merged);
    }

    /// Forgets everything below `to`.
    pub fn forget(&mut self, to: u64) {
        while let Some(first) = self.ranges.front_mut() {
            if first.end > to {
                first.start = first.start.max(to);
                return;
            }
            self.ranges.pop_front();
        }
    }

    /// Up to where everything from `from` on is there; `from` where that byte is missing.
    pub fn reach(&self, from: u64) -> u64 {
        self.containing(from).map_or(from, |range| range.end)
    }

    /// Whether all of `range` is there.
    pub fn contains(&self, range: &Range<u64>) -> bool {
        range.is_empty() || self.reach(range.start) >= range.end
    }

    /// The first part of `range` that is there.
    pub fn next_within(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let index = self.ranges.partition_point(|other| other.end <= range.start);
        let other = self.ranges.get(index)?;
        let (start, end) = (other.start.max(range.start), other.end.min(range.end));
        (start < end).then_some(start..end)
    }

    /// The first part of `range` that is missing.
    pub fn next_missing(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let from = self.reach(range.start);
        let index = self.ranges.partition_point(|other| other.start <= from);
        let to = self.ranges.get(index).map_or(range.end, |other| other.start.min(range.end));
        (from < to).then_some(from..to)
    }

    fn containing(&self, at: u64) -> Option<&Range<u64>> {
        let index = self.ranges.partition_point(|other| other.end <= at);
        self.ranges.get(index).filter(|other| other.start <= at)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::hash::mix;

    /// A bit a byte.
    #[test]
    fn agree_with_a_set_of_bytes() {
        for seed in 0..200u64 {
            let (mut intervals, mut bytes) = (Intervals::default(), [false; 64]);
            let mut forgotten = 0;
            for step in 0..60 {
                let draw = mix(seed, step);
                let start = draw % 64;
                let end = (start + (draw >> 8) % 12).min(64);
                if draw >> 60 == 0 {
                    forgotten = forgotten.max(start / 4);
                    intervals.forget(forgotten);
                    bytes[..forgotten as usize].fill(false);
                } else {
                    intervals.insert(start.max(forgotten)..end.max(forgotten));
                    (start.max(forgotten)..end.max(forgotten)).for_each(|at| bytes[at as usize] = true);
                }
                let reach = (start..64).find(|&at| !bytes[at as usize]).unwrap_or(64);
                assert_eq!(intervals.reach(start), reach, "seed {seed} step {step}");
                assert_eq!(intervals.contains(&(start..end)), reach >= end || start >= end);
                let run = |wanted: bool| {
                    let first = (start..end).find(|&at| bytes[at as usize] == wanted)?;
                    Some(first..(first..end).find(|&at| bytes[at as usize] != wanted).unwrap_or(end))
                };
                assert_eq!(intervals.next_missing(&(start..end)), run(false), "seed {seed} step {step}");
                assert_eq!(intervals.next_within(&(start..end)), run(true), "seed {seed} step {step}");
            }
        }
    }
}
