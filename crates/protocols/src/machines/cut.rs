//! How a vector is cut: into units of nearly equal length, and these into pieces, one a packet.

use fanin_core::{OperationId, Piece};

use super::schedule::Units;

/// A vector's pieces, in order.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Cut {
    pub pieces: Vec<Piece>,
    /// By unit: its first piece; and the number of all.
    first: Vec<u32>,
}

/// What pieces are cut by.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Measure {
    pub units: u32,
    pub block_elements: u32,
    /// Every so many pieces of a unit a message begins, whose first piece is shorter by its header.
    pub message_packets: u32,
    pub header_elements: u32,
}

impl Cut {
    /// Cuts a vector; `None` where pieces could not be numbered.
    pub(super) fn new(operation: OperationId, elements: u64, measure: Measure) -> Option<Cut> {
        let Measure { units, block_elements, message_packets, header_elements } = measure;
        if elements / u64::from(block_elements - header_elements) + u64::from(units) >= 1 << 30 {
            return None;
        }
        let (short, longer) = (elements / u64::from(units), elements % u64::from(units));
        let mut cut = Cut::default();
        let mut start = 0;
        for unit in 0..units {
            cut.first.push(cut.pieces.len() as u32);
            let end = start + short + u64::from(u64::from(unit) < longer);
            let mut offset = 0;
            while start < end {
                let header = if offset % message_packets == 0 { header_elements } else { 0 };
                let length = (end - start).min(u64::from(block_elements - header)) as u32;
                cut.pieces.push(Piece { operation, index: cut.pieces.len() as u32, start, elements: length });
                (start, offset) = (start + u64::from(length), offset + 1);
            }
        }
        cut.first.push(cut.pieces.len() as u32);
        Some(cut)
    }

    /// The first piece of some units, and how many they have.
    pub(super) fn range(&self, units: Units) -> (u32, u32) {
        let first = self.first[units.from as usize];
        (first, self.first[units.to as usize] - first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_are_the_vector_without_gaps() {
        for (elements, units, header) in [(0, 3, 0), (2, 3, 0), (100, 4, 4), (101, 4, 0), (1_000, 7, 4)] {
            let measure = Measure { units, block_elements: 10, message_packets: 3, header_elements: header };
            let cut = Cut::new(OperationId(2), elements, measure).unwrap();
            let mut end = 0;
            for (index, piece) in cut.pieces.iter().enumerate() {
                assert_eq!((piece.index as usize, piece.start, piece.operation), (index, end, OperationId(2)));
                assert!((1..=10).contains(&piece.elements));
                end = piece.end();
            }
            assert_eq!(end, elements);
            assert_eq!(cut.range(Units { from: 0, to: units }), (0, cut.pieces.len() as u32));
        }
    }

    #[test]
    fn messages_begin_anew_in_each_unit() {
        let measure = Measure { units: 2, block_elements: 10, message_packets: 2, header_elements: 4 };
        let cut = Cut::new(OperationId(0), 60, measure).unwrap();
        let lengths: Vec<u32> = cut.pieces.iter().map(|piece| piece.elements).collect();
        assert_eq!(lengths, [6, 10, 6, 8, 6, 10, 6, 8]);
        assert_eq!(cut.range(Units { from: 1, to: 2 }), (4, 4));
        assert!(Cut::new(OperationId(0), 1 << 40, measure).is_none());
    }
}
