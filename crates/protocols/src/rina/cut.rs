//! How a vector is cut into partitions, one a group, and these into packets (`rina 1`).

use fanin_core::{OperationId, Piece};

/// A vector has fewer packets than that.
const PIECES_MAX: u64 = 1 << 30;

/// A vector in `groups` partitions of at most `block_elements` elements a packet. The first `elements mod groups` partitions are one
/// element longer than the rest.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Cut {
    operation: OperationId,
    groups: u32,
    block_elements: u32,
    short: u64,
    longer_count: u32,
    short_segments: u32,
    long_segments: u32,
    /// Where some partitions are twice as long as others: the first element and the first piece of each, and those behind the last one.
    bounds: Vec<(u64, u32)>,
}

impl Cut {
    /// Cuts a vector; `None` where packets could not be numbered.
    pub(super) fn new(operation: OperationId, elements: u64, groups: u32, block_elements: u32) -> Option<Cut> {
        let (short, longer_count) = (elements / u64::from(groups), (elements % u64::from(groups)) as u32);
        let segments = |length: u64| u32::try_from(length.div_ceil(u64::from(block_elements))).ok();
        let (short_segments, long_segments) = (segments(short)?, segments(short + u64::from(longer_count > 0))?);
        // Packets between two groups are counted in 32 bits, and their order is that of numbers that wrap.
        let fits = u64::from(long_segments) * u64::from(groups) < PIECES_MAX;
        let bounds = Vec::new();
        fits.then_some(Cut { operation, groups, block_elements, short, longer_count, short_segments, long_segments, bounds })
    }

    /// As [`Cut::new`], with partitions twice as long for these groups, which are in order.
    pub(super) fn balanced((operation, elements): (OperationId, u64), groups: u32, doubles: Vec<u32>, block_elements: u32) -> Option<Cut> {
        if doubles.is_empty() {
            return Cut::new(operation, elements, groups, block_elements);
        }
        // Of a group by itself, and as many again of each of the others.
        let units = groups + doubles.len() as u32;
        let (short, longer) = (elements / u64::from(units), elements % u64::from(units));
        let (mut bounds, mut doubles, mut unit, mut pieces) =
            (Vec::with_capacity(groups as usize + 1), doubles.into_iter().peekable(), 0u64, 0u64);
        let start = |unit: u64| unit * short + unit.min(longer);
        for place in 0..groups {
            bounds.push((start(unit), pieces as u32));
            let next = unit + 1 + u64::from(doubles.next_if_eq(&place).is_some());
            pieces += (start(next) - start(unit)).div_ceil(u64::from(block_elements));
            // Each of the job's workers may have a packet that is not full.
            if pieces >= PIECES_MAX + u64::from(u16::MAX) {
                return None;
            }
            unit = next;
        }
        bounds.push((elements, pieces as u32));
        Some(Cut { operation, groups, block_elements, bounds, ..Cut::default() })
    }

    /// Number of packets of a partition.
    #[inline]
    pub(super) fn segments(&self, partition: u32) -> u32 {
        match partition {
            _ if partition >= self.groups => 0,
            _ if !self.bounds.is_empty() => self.bounds[partition as usize + 1].1 - self.bounds[partition as usize].1,
            _ if partition < self.longer_count => self.long_segments,
            _ => self.short_segments,
        }
    }

    /// Number of pieces of the vector.
    pub(super) fn pieces(&self) -> u32 {
        self.bounds.last().map_or_else(|| self.first_piece(self.groups), |(_, pieces)| *pieces)
    }

    #[inline]
    fn first_piece(&self, partition: u32) -> u32 {
        partition * self.short_segments + partition.min(self.longer_count) * (self.long_segments - self.short_segments)
    }

    /// The first element of a partition, the one behind its last one, and its first piece.
    #[inline]
    fn bounds(&self, partition: u32) -> (u64, u64, u32) {
        if let [(start, first), (end, _), ..] = self.bounds.get(partition as usize..).unwrap_or_default() {
            return (*start, *end, *first);
        }
        let start = u64::from(partition) * self.short + u64::from(partition.min(self.longer_count));
        (start, start + self.short + u64::from(partition < self.longer_count), self.first_piece(partition))
    }

    /// The piece that is packet `segment` of a partition, where there is one.
    #[inline]
    pub(super) fn piece(&self, partition: u32, segment: u32) -> Option<Piece> {
        if segment >= self.segments(partition) {
            return None;
        }
        let (start, end, first) = self.bounds(partition);
        let start = start + u64::from(segment) * u64::from(self.block_elements);
        Some(Piece {
            operation: self.operation,
            index: first + segment,
            start,
            elements: (end - start).min(u64::from(self.block_elements)) as u32,
        })
    }

    /// Partition and packet of piece `index`.
    pub(super) fn place(&self, index: u32) -> Option<(u32, u32)> {
        if !self.bounds.is_empty() {
            // Partitions without a piece begin at the same one as those behind them.
            let partition = self.bounds.partition_point(|(_, first)| *first <= index).checked_sub(1)?;
            return (index < self.pieces()).then(|| (partition as u32, index - self.bounds[partition].1));
        }
        let longer = self.longer_count * self.long_segments;
        if index < longer {
            return Some((index / self.long_segments, index % self.long_segments));
        }
        let rest = index - longer;
        let partition = self.longer_count + rest.checked_div(self.short_segments)?;
        (partition < self.groups).then(|| (partition, rest % self.short_segments))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_are_the_vector_without_gaps() {
        for (elements, groups, block) in [(0, 3, 4), (1, 3, 4), (2, 3, 4), (10, 3, 4), (100, 7, 4), (12, 4, 3), (13, 4, 3), (1_000, 1, 7)] {
            let cut = Cut::new(OperationId(5), elements, groups, block).unwrap();
            let (mut index, mut end) = (0, 0);
            for partition in 0..groups {
                for segment in 0..cut.segments(partition) {
                    let piece = cut.piece(partition, segment).unwrap();
                    assert_eq!((piece.index, piece.start, piece.operation), (index, end, OperationId(5)));
                    assert!(piece.elements > 0 && piece.elements <= block);
                    assert_eq!(cut.place(index), Some((partition, segment)));
                    (index, end) = (index + 1, piece.end());
                }
                assert_eq!(cut.piece(partition, cut.segments(partition)), None);
            }
            assert_eq!((end, index), (elements, cut.pieces()), "{elements} elements, {groups} groups");
            assert_eq!((cut.place(index), cut.piece(groups, 0)), (None, None));
        }
        assert_eq!(Cut::new(OperationId(0), u64::MAX, 2, 1), None);
    }

    #[test]
    fn some_partitions_are_twice_as_long() {
        for (elements, groups, doubles, block) in [
            (0, 3, vec![0], 4),
            (1, 3, vec![1], 4),
            (2, 3, vec![0, 2], 4),
            (100, 7, vec![2, 3], 4),
            (12, 4, vec![0, 1, 2, 3], 3),
            (1_000, 10, vec![0, 1], 7),
        ] {
            let cut = Cut::balanced((OperationId(5), elements), groups, doubles.clone(), block).unwrap();
            let (mut index, mut end, mut lengths) = (0, 0, Vec::new());
            for partition in 0..groups {
                let begin = end;
                for segment in 0..cut.segments(partition) {
                    let piece = cut.piece(partition, segment).unwrap();
                    assert_eq!((piece.index, piece.start, piece.operation), (index, end, OperationId(5)));
                    assert!(piece.elements > 0 && piece.elements <= block);
                    assert_eq!(cut.place(index), Some((partition, segment)));
                    (index, end) = (index + 1, piece.end());
                }
                assert_eq!(cut.piece(partition, cut.segments(partition)), None);
                lengths.push(end - begin);
            }
            assert_eq!((end, index), (elements, cut.pieces()), "{elements} elements, {groups} groups");
            assert_eq!((cut.place(index), cut.piece(groups, 0)), (None, None));
            let unit = elements / (u64::from(groups) + doubles.len() as u64);
            for (place, length) in (0..).zip(lengths) {
                let units = 1 + u64::from(doubles.contains(&place));
                assert!((units * unit..=units * (unit + 1)).contains(&length), "partition {place} of {elements}: {length}");
            }
        }
        assert_eq!(Cut::balanced((OperationId(0), u64::MAX), 2, vec![0], 1), None);
    }
}
