//! The link's own packets: system 0 in the hop header. Neighbours say hello, and background traffic fills links.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 1 | `kind` | 1 hello (to the neighbour), 2 background (to its destination) |
//! | 1 | 1 | `flags` | hello: bit 0 `hears` holds, bit 1 `told` holds; else zero |
//! | 2 | 2 | `port` | hello: the sender's own port; else zero |
//! | 4 | 4 | `fabric` | hello: a number that all nodes of a fabric have from its description; else zero |
//! | 8 | 4 | `hears` | hello only: the epoch in which the sender hears the receiver, not long ago |
//! | 12 | 4 | `told` | hello only: an epoch that is not the one that the sender hears, and in which a hello has come in the receiver's name |
//!
//! Epochs are random. A hello that gives the receiver's own comes from somebody who gets the receiver's hellos: its word about its own
//! epoch is believed.
//!
//! What follows a background header is padding.

use fanin_core::{Malformed, PacketKind, PortId, Wire};

use crate::bytes::{front, put, require, u16_at, u32_at};

const HELLO: u8 = 1;
const BACKGROUND: u8 = 2;
const FLAG_HEARS: u8 = 1;
const FLAG_TOLD: u8 = 2;
const HELLO_LEN: usize = 16;
const BACKGROUND_LEN: usize = 8;

/// The number of the link's own packets among systems.
pub const LINK_SYSTEM: u8 = 0;

/// The header of one of the link's own packets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum LinkHeader {
    /// The sender is alive.
    Hello {
        /// The epoch in which the sender has heard of the receiver, not long ago.
        hears: Option<u32>,
        /// Another epoch, in which a hello has come to the sender in the receiver's name.
        told: Option<u32>,
        /// The sender's own port.
        port: PortId,
        /// The same number at all nodes of a fabric.
        fabric: u32,
    },
    /// Traffic that shares the network and belongs to no job.
    Background,
}

impl Wire for LinkHeader {
    const MAX_LEN: usize = HELLO_LEN;

    #[inline]
    fn wire_len(&self) -> usize {
        match self {
            LinkHeader::Hello { .. } => HELLO_LEN,
            LinkHeader::Background => BACKGROUND_LEN,
        }
    }

    #[inline]
    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let head = front(bytes, BACKGROUND_LEN)?;
        let (flags, port, fabric) = (head[1], u16_at(head, 2), u32_at(head, 4));
        let header = match head[0] {
            HELLO => {
                require(flags & !(FLAG_HEARS | FLAG_TOLD) == 0, "flags", flags)?;
                let head = front(bytes, HELLO_LEN)?;
                let epoch = |flag: u8, name, at: usize| {
                    let value = u32_at(head, at);
                    require(flags & flag != 0 || value == 0, name, value)?;
                    Ok((flags & flag != 0).then_some(value))
                };
                let (hears, told) = (epoch(FLAG_HEARS, "hears", 8)?, epoch(FLAG_TOLD, "told", 12)?);
                LinkHeader::Hello { hears, told, port: PortId(port), fabric }
            }
            BACKGROUND => {
                require(flags == 0, "flags", flags)?;
                require(port == 0, "port", port)?;
                require(fabric == 0, "fabric", fabric)?;
                LinkHeader::Background
            }
            kind => return Err(Malformed::Field { name: "kind", value: u64::from(kind) }),
        };
        Ok((header, header.wire_len()))
    }

    #[inline]
    fn emit(&self, out: &mut [u8]) -> usize {
        let out = &mut out[..self.wire_len()];
        match *self {
            LinkHeader::Hello { hears, told, port, fabric } => {
                let flag = |epoch: Option<u32>, bit: u8| if epoch.is_some() { bit } else { 0 };
                (out[0], out[1]) = (HELLO, flag(hears, FLAG_HEARS) | flag(told, FLAG_TOLD));
                put(out, 2, port.0.to_le_bytes());
                put(out, 4, fabric.to_le_bytes());
                put(out, 8, hears.unwrap_or(0).to_le_bytes());
                put(out, 12, told.unwrap_or(0).to_le_bytes());
            }
            LinkHeader::Background => {
                out.fill(0);
                out[0] = BACKGROUND;
            }
        }
        out.len()
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

    const HELLO: LinkHeader = LinkHeader::Hello { hears: Some(0x0c0b_0a09), told: None, port: PortId(0x0203), fabric: 0x0807_0605 };
    const HELLO_GOLDEN: [u8; 16] = [1, 1, 3, 2, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 0];

    #[test]
    fn golden_bytes() {
        let told = LinkHeader::Hello { hears: None, told: Some(0x100f_0e0d), port: PortId(0), fabric: 1 };
        let packets: [(LinkHeader, &[u8]); 3] = [
            (HELLO, &HELLO_GOLDEN),
            (told, &[1, 2, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 13, 14, 15, 16]),
            (LinkHeader::Background, &[2, 0, 0, 0, 0, 0, 0, 0]),
        ];
        for (header, golden) in packets {
            let mut out = [0xee; 17];
            assert_eq!(header.emit(&mut out), golden.len());
            assert_eq!((&out[..golden.len()], out[golden.len()]), (golden, 0xee));
            assert_eq!(LinkHeader::parse(golden), Ok((header, golden.len())));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        let parse = |bytes: &[u8]| LinkHeader::parse(bytes).unwrap_err();
        let hello = |at: usize, value: u8| {
            let mut bytes = HELLO_GOLDEN;
            bytes[at] = value;
            parse(&bytes)
        };
        assert_eq!(hello(0, 3), Malformed::Field { name: "kind", value: 3 });
        assert_eq!(hello(1, 4), Malformed::Field { name: "flags", value: 4 });
        assert_eq!(hello(1, 2), Malformed::Field { name: "hears", value: 0x0c0b_0a09 });
        assert_eq!(hello(12, 1), Malformed::Field { name: "told", value: 1 });
        assert_eq!(parse(&[2, 0, 1, 0, 0, 0, 0, 0]), Malformed::Field { name: "port", value: 1 });
        assert_eq!(parse(&[2, 0, 0, 0, 0, 1, 0, 0]), Malformed::Field { name: "fabric", value: 256 });
        assert_eq!(parse(&[1, 0, 0]), Malformed::Truncated { needed: 8, got: 3 });
        assert_eq!(parse(&HELLO_GOLDEN[..15]), Malformed::Truncated { needed: 16, got: 15 });
    }
}
