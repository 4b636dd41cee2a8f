//! How a vector is cut: into messages, and these into packets, of which the first has the INA header at the beginning of its payload.

use fanin_core::{OperationId, Piece};

use super::config::MessageShape;

/// The messages of one operation. Piece i of the vector is packet i of the connection since the operation began, so a packet number leads to
/// its piece without a table.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Cut {
    operation: OperationId,
    elements: u64,
    block_elements: u32,
    header_elements: u32,
    packets: u32,
    /// Elements of a full message.
    message_elements: u64,
    /// Number of messages, and of all their packets.
    pub messages: u32,
    pub pieces: u32,
}

/// A piece's place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct At {
    /// The message, from the operation's first on.
    pub message: u32,
    /// The packet in it.
    pub offset: u16,
}

impl Cut {
    /// Cuts a vector; `None` where pieces could not be numbered.
    pub(super) fn new(
        operation: OperationId,
        elements: u64,
        block_elements: u32,
        header_elements: u32,
        shape: MessageShape,
    ) -> Option<Cut> {
        let packets = u32::from(shape.packets);
        let message_elements = u64::from(packets) * u64::from(block_elements) - u64::from(header_elements);
        let messages = u32::try_from(elements.div_ceil(message_elements)).ok()?;
        let mut cut = Cut { operation, elements, block_elements, header_elements, packets, message_elements, messages, pieces: 0 };
        if messages > 0 {
            let pieces = u64::from(messages - 1) * u64::from(packets) + u64::from(cut.packets_of(messages - 1));
            cut.pieces = u32::try_from(pieces).ok().filter(|pieces| *pieces < 1 << 31)?;
        }
        Some(cut)
    }

    /// Elements of a message.
    #[inline]
    fn elements_of(&self, message: u32) -> u64 {
        (self.elements - u64::from(message) * self.message_elements).min(self.message_elements)
    }

    /// Packets of a message: the last one of an operation may be shorter.
    #[inline]
    pub(super) fn packets_of(&self, message: u32) -> u16 {
        (self.elements_of(message) + u64::from(self.header_elements)).div_ceil(u64::from(self.block_elements)) as u16
    }

    /// Length of a message in elements, the INA header included.
    #[inline]
    pub(super) fn length_of(&self, message: u32) -> u64 {
        self.elements_of(message) + u64::from(self.header_elements)
    }

    /// Where a piece is.
    #[inline]
    pub(super) fn at(&self, index: u32) -> At {
        At { message: index / self.packets, offset: (index % self.packets) as u16 }
    }

    /// Whether a piece is the last one of its message.
    #[inline]
    pub(super) fn ends_message(&self, index: u32) -> bool {
        index + 1 == self.pieces || (index + 1).is_multiple_of(self.packets)
    }

    /// The piece of this number.
    #[inline]
    pub(super) fn piece(&self, index: u32) -> Piece {
        let At { message, offset } = self.at(index);
        let (block, header) = (u64::from(self.block_elements), u64::from(self.header_elements));
        let from = if offset == 0 { 0 } else { u64::from(offset) * block - header };
        let upto = ((u64::from(offset) + 1) * block - header).min(self.elements_of(message));
        let start = u64::from(message) * self.message_elements + from;
        Piece { operation: self.operation, index, start, elements: (upto - from) as u32 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pieces_are_the_vector_without_gaps() {
        for packets in [1, 2, 3, 170] {
            for elements in [0, 1, 3, 4, 5, 11, 12, 13, 19, 20, 21, 40, 1_000, 8_191] {
                let shape = MessageShape { window: 2, packets };
                let cut = Cut::new(OperationId(5), elements, 8, 4, shape).unwrap();
                let (mut end, mut in_message) = (0, 0);
                for index in 0..cut.pieces {
                    let (piece, at) = (cut.piece(index), cut.at(index));
                    assert_eq!((piece.index, piece.start, piece.operation), (index, end, OperationId(5)));
                    assert!(piece.elements > 0 && piece.elements <= if at.offset == 0 { 4 } else { 8 });
                    (end, in_message) = (piece.end(), in_message + 1);
                    let is_last = in_message == cut.packets_of(at.message);
                    assert_eq!(cut.ends_message(index), is_last, "{index} of {elements} elements in messages of {packets}");
                    if is_last {
                        in_message = 0;
                    }
                }
                assert_eq!((end, in_message), (elements, 0));
            }
        }
    }

    #[test]
    fn a_full_message_is_as_long_as_the_paper_has_it() {
        // 170 packets of 1 KiB, of which 16 bytes are the header.
        let cut = Cut::new(OperationId(0), 1 << 20, 256, 4, MessageShape { window: 2, packets: 170 }).unwrap();
        assert_eq!((cut.length_of(0) * 4, cut.packets_of(0)), (170 * 1_024, 170));
        assert_eq!((cut.messages, cut.piece(0).elements, cut.piece(1).elements), (25, 252, 256));
        assert_eq!(Cut::new(OperationId(0), u64::MAX, 8, 4, MessageShape { window: 1, packets: 1 }), None);
    }
}
