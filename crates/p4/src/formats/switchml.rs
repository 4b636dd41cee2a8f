//! SwitchML's packet over UDP (`switchml 2`): a header of 10 bytes, exponents included, and 32 to 256 integers.
//!
//! | in the paper's packet | in Fanin's message |
//! |---|---|
//! | `msg_type`, `unused` | none: zero |
//! | `size` | the payload's length |
//! | `job` | the job; here its low 8 bits |
//! | `tsi` | the round of the slot, of which `version` is the lowest bit. The paper's switch echoes the field and does not look at it; a packet that is two uses of its slot late then looks like a new one (`switchml 10`) |
//! | `version`, `slot` | `pool_index`, whose highest bit is the version as in the published client |
//! | `e0`, `e1` | the exponent of the slot's next block. Two in the paper's packet, one in Fanin's message: both are the same here. -128 is a block of zeros, 127 one that is not finite, or larger than 2^126 |
//! | data, big-endian | the payload, little-endian |
//! | none | `attempt`: the paper's switch answers whatever it has counted before, so contributions are read as if they had been sent before |
//! | none | calls, words about who is missing, refusals: a job has one operator and one length, and whatever does not fit is dropped |

use std::net::Ipv4Addr;

use fanin_core::{BlockExponent, Malformed};
use fanin_wire::switchml::{CallLabel, SlotUse, SwitchMlHeader};

use super::{ELEMENTS_MAX, Header, PASS_ELEMENTS, field, swap_elements};
use crate::frames::{Endpoint, datagram, parse_datagram};

/// Behind UDP.
pub const SWITCHML: Header = Header {
    name: "switchml",
    source: "SwitchML, `switchml 2`",
    fields: &[
        field("msg_type", 4, "zero"),
        field("unused", 1, "zero"),
        field("size", 3, "0 to 3: 32, 64, 128, 256 elements"),
        field("job", 8, "job"),
        field("tsi", 32, "how often the slot was used before"),
        field("version", 1, "which of the slot's two versions: the lowest bit of `tsi`"),
        field("slot", 15, "slot of the job's pool"),
        field("e0", 8, "exponent of the slot's next block, signed"),
        field("e1", 8, "as `e0`"),
    ],
};

/// The first of sixteen UDP ports (`switchml 2`).
pub const PORT: u16 = 0xbee0;
/// The bits of a port that are those of [`PORT`].
pub const PORT_MASK: u16 = 0xfff0;
/// A bit for each worker in a word (`switchml 3`).
pub const WORKERS_MAX: usize = 32;
/// Slots of a job at most: their numbers have 15 bits.
pub const SLOTS_MAX: u16 = 1 << 15;
/// Versions of slots that a switch has (`switchml 3`: 16,384 cells of a register).
pub const CELLS: u32 = 16_384;

/// A packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SwitchMlFrame {
    /// Sender's address.
    pub src: Ipv4Addr,
    /// Receiver's address.
    pub dst: Ipv4Addr,
    /// Receiver's port.
    pub port: u16,
    /// The job.
    pub job: u8,
    /// Slot and round.
    pub at: SlotUse,
    /// Of the slot's next block.
    pub exponent: BlockExponent,
    /// Little-endian, as the state machine has them.
    pub elements: Vec<u8>,
}

/// The number of a packet's length; `None` for other lengths.
pub const fn size_of(elements: usize) -> Option<u8> {
    match elements {
        32 => Some(0),
        64 => Some(1),
        128 => Some(2),
        256 => Some(3),
        _ => None,
    }
}

fn exponent_from(byte: u64) -> BlockExponent {
    match byte as u8 as i8 {
        i8::MIN => BlockExponent::ZERO,
        i8::MAX => BlockExponent::NOT_FINITE,
        other => BlockExponent::from_bits(other.into()),
    }
}

fn exponent_to(exponent: BlockExponent) -> u64 {
    let byte = exponent.to_bits().clamp(i8::MIN.into(), i8::MAX.into()) as i8;
    u64::from(byte as u8)
}

impl SwitchMlFrame {
    /// Reads a frame.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let datagram = parse_datagram(frame)?;
        if datagram.port & PORT_MASK != PORT {
            return Err(Malformed::Field { name: "port", value: datagram.port.into() });
        }
        let (header, data) = SWITCHML.split(datagram.payload)?;
        let get = |name| SWITCHML.get(header, name);
        SWITCHML.require(header, "msg_type", 0)?;
        SWITCHML.require(header, "unused", 0)?;
        if size_of(data.len() / 4).map(u64::from) != Some(get("size")) || !data.len().is_multiple_of(4) {
            return Err(Malformed::Field { name: "size", value: get("size") });
        }
        SWITCHML.require(header, "version", get("tsi") & 1)?;
        SWITCHML.require(header, "e1", get("e0"))?;
        Ok(SwitchMlFrame {
            src: datagram.src,
            dst: datagram.dst,
            port: datagram.port,
            job: get("job") as u8,
            at: SlotUse { slot: get("slot") as u16, round: get("tsi") as u32 },
            exponent: exponent_from(get("e0")),
            elements: swap_elements(data),
        })
    }

    /// The frame between these ends, whose addresses stand for those of the packet.
    ///
    /// # Panics
    /// Where there are not 32, 64, 128 or 256 elements, or the slot's number has more than 15 bits.
    pub fn emit(&self, src: &Endpoint, dst: &Endpoint) -> Vec<u8> {
        assert!(self.at.slot < SLOTS_MAX, "a slot has 15 bits");
        let size = size_of(self.elements.len() / 4).expect("a packet has 32, 64, 128 or 256 elements");
        let header = SWITCHML.with(&[
            ("size", size.into()),
            ("job", self.job.into()),
            ("tsi", self.at.round.into()),
            ("version", self.at.version().into()),
            ("slot", self.at.slot.into()),
            ("e0", exponent_to(self.exponent)),
            ("e1", exponent_to(self.exponent)),
        ]);
        datagram(src, dst, &[header, swap_elements(&self.elements)].concat())
    }

    /// As the state machine reads a contribution.
    pub fn contribution(&self) -> SwitchMlHeader {
        SwitchMlHeader::Contribution { at: self.at, attempt: 1, exponent: Some(self.exponent), call: CallLabel::NONE }
    }
}

/// Passes that a packet of so many elements takes.
pub const fn passes(elements: usize) -> usize {
    elements.div_ceil(PASS_ELEMENTS)
}

const _: () = assert!(passes(ELEMENTS_MAX) == 8);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frames::Mac;

    fn end(number: u8, udp: u16) -> Endpoint {
        Endpoint { mac: Mac(0x0200_0000_0000 | u64::from(number)), ip: Ipv4Addr::new(10, 0, 0, number), udp }
    }

    fn packet(elements: usize) -> SwitchMlFrame {
        SwitchMlFrame {
            src: Ipv4Addr::new(10, 0, 0, 1),
            dst: Ipv4Addr::new(10, 0, 0, 254),
            port: PORT,
            job: 7,
            at: SlotUse { slot: 0x1234, round: 0x0102_0305 },
            exponent: BlockExponent::from_bits(-3),
            elements: (0..elements as u32).flat_map(|number| (number * 0x0101_0101).to_le_bytes()).collect(),
        }
    }

    #[test]
    fn golden_bytes() {
        let frame = packet(64).emit(&end(1, 4_000), &end(254, PORT));
        assert_eq!(frame[42..52], [0x01, 7, 1, 2, 3, 5, 0x92, 0x34, 0xfd, 0xfd]);
        assert_eq!((frame[52..60].to_vec(), frame.len()), (vec![0, 0, 0, 0, 1, 1, 1, 1], 14 + 20 + 8 + 10 + 256));
        // `switchml 2` counts 82 bytes around the data, with preamble, check sequence and gap.
        assert_eq!(frame.len() - 256 + 8 + 4 + 12, 76, "its header counts 16 bytes where the published one has 10");
    }

    #[test]
    fn what_is_written_is_read() {
        for elements in [32, 64, 128, 256] {
            let packet = packet(elements);
            assert_eq!(SwitchMlFrame::parse(&packet.emit(&end(1, 4_000), &end(254, PORT))), Ok(packet));
        }
    }

    #[test]
    fn a_wrong_field_is_named() {
        let good = packet(32).emit(&end(1, 4_000), &end(254, PORT));
        for (at, bit, name) in
            [(37, 0x10, "port"), (42, 0x10, "msg_type"), (42, 8, "unused"), (42, 1, "size"), (48, 0x80, "version"), (51, 1, "e1")]
        {
            let mut frame = good.clone();
            frame[at] ^= bit;
            let Err(Malformed::Field { name: got, .. }) = SwitchMlFrame::parse(&frame) else { panic!("{name} is taken") };
            assert_eq!(got, name);
        }
        assert!((0..good.len()).all(|length| SwitchMlFrame::parse(&good[..length]).is_err()));
    }

    #[test]
    fn exponents_keep_their_order() {
        let bytes: Vec<u8> = (0..=255u8).map(|byte| byte ^ 0x80).collect();
        let exponents: Vec<BlockExponent> = bytes.iter().map(|byte| exponent_from((*byte).into())).collect();
        assert!(exponents.is_sorted());
        assert!(bytes.iter().zip(&exponents).all(|(byte, exponent)| exponent_to(*exponent) == u64::from(*byte)));
        assert_eq!(exponent_to(BlockExponent::from_bits(128)), 127, "too large for a byte");
    }
}
