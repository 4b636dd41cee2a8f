//! The link's own packets: system 0 in the hop header. Neighbours say hello, and background traffic fills links.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | `kind` | 1 hello (to the neighbour), 2 background (to its destination) |
//! | 1 | 1 | `flags` | hello: bit 0 the sender hears the receiver; else zero |
//! | 2 | 2 | `port` | hello: the sender's own port; else zero |
//! | 4 | 4 | `fabric` | hello: a number that all nodes of a fabric have from its description; else zero |
//!
//! What follows a background header is padding.

use fanin_core::{Malformed, PacketKind, PortId, Wire};

use crate::bytes::{front, put, require, u16_at, u32_at};

const HELLO: u8 = 1;
const BACKGROUND: u8 = 2;
const FLAG_HEARS: u8 = 1;

/// The number of the link's own packets among systems.
pub const LINK_SYSTEM: u8 = 0;

/// The header of one of the link's own packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkHeader {
    /// The sender is alive.
    Hello {
        /// The sender has heard of the receiver, not long ago.
        hears: bool,
        /// The sender's own port.
        port: PortId,
        /// The same number at all nodes of a fabric.
        fabric: u32,
    },
    /// Traffic that shares the network and belongs to no job.
    Background,
}

impl Wire for LinkHeader {
    const MAX_LEN: usize = 8;

    #[inline]
    fn wire_len(&self) -> usize {
        Self::MAX_LEN
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let head = front(bytes, Self::MAX_LEN)?;
        let (flags, port, fabric) = (head[1], u16_at(head, 2), u32_at(head, 4));
        let header = match head[0] {
            HELLO => {
                require(flags & !FLAG_HEARS == 0, "flags", flags)?;
                LinkHeader::Hello { hears: flags != 0, port: PortId(port), fabric }
            }
            BACKGROUND => {
                require(flags == 0, "flags", flags)?;
                require(port == 0, "port", port)?;
                require(fabric == 0, "fabric", fabric)?;
                LinkHeader::Background
            }
            kind => return Err(Malformed::Field { name: "kind", value: u64::from(kind) }),
        };
        Ok((header, Self::MAX_LEN))
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..Self::MAX_LEN];
        let (kind, flags, port, fabric) = match *self {
            LinkHeader::Hello { hears, port, fabric } => (HELLO, u8::from(hears), port.0, fabric),
            LinkHeader::Background => (BACKGROUND, 0, 0, 0),
        };
        (out[0], out[1]) = (kind, flags);
        put(out, 2, port.to_le_bytes());
        put(out, 4, fabric.to_le_bytes());
        Self::MAX_LEN
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            LinkHeader::Hello { .. } => PacketKind::Control,
            LinkHeader::Background => PacketKind::Background,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn golden_bytes() {
        let hello = LinkHeader::Hello { hears: true, port: PortId(0x0203), fabric: 0x0807_0605 };
        let packets: [(LinkHeader, [u8; 8]); 2] = [(hello, [1, 1, 3, 2, 5, 6, 7, 8]), (LinkHeader::Background, [2, 0, 0, 0, 0, 0, 0, 0])];
        for (header, golden) in packets {
            let mut out = [0xee; 9];
            assert_eq!(header.emit(&mut out), 8);
            assert_eq!((&out[..8], out[8]), (&golden[..], 0xee));
            assert_eq!(LinkHeader::parse(&golden), Ok((header, 8)));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let parse = |bytes: [u8; 8]| LinkHeader::parse(&bytes).unwrap_err();
        assert_eq!(parse([3, 0, 0, 0, 0, 0, 0, 0]), Malformed::Field { name: "kind", value: 3 });
        assert_eq!(parse([1, 2, 0, 0, 0, 0, 0, 0]), Malformed::Field { name: "flags", value: 2 });
        assert_eq!(parse([2, 0, 1, 0, 0, 0, 0, 0]), Malformed::Field { name: "port", value: 1 });
        assert_eq!(parse([2, 0, 0, 0, 0, 1, 0, 0]), Malformed::Field { name: "fabric", value: 256 });
        assert_eq!(LinkHeader::parse(&[1, 0, 0]), Err(Malformed::Truncated { needed: 8, got: 3 }));
    }
}
