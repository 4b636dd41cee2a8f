//! Messages in a byte stream that a transparent switch sums: NetReduce's INA header (`netreduce 2`), for streams instead of packets.
//!
//! A stream is a sequence of messages: 32 bytes of header, the vector, zeros up to a multiple of eight bytes, and a seal of eight bytes: zeros
//! as workers send it; in a result the CRC-32 of all of the message before it, and the same with all bits turned round. So a result of
//! which a part was not summed, as where the switch was restarted meanwhile, is known.
//!
//! A switch that resets a worker's connection says why before, against the direction of the stream ([`reason`]).
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 4 | `magic` | `0xfa`, `0x17`, `0x1e`, `0xd0`: no text begins so |
//! | 4 | 1 | `version` | 1 |
//! | 5 | 1 | `dtype` | element type, by its number |
//! | 6 | 1 | `operator` | operator, by its number |
//! | 7 | 1 | reserved | zero |
//! | 8 | 4 | `ring` | which workers belong together: a number that all of them have, and no other workers of the network |
//! | 12 | 4 | `message` | counts the messages of the stream from 0 on, and wraps |
//! | 16 | 8 | `bytes` | length of the vector in bytes, a multiple of the element's |
//! | 24 | 2 | `rank` | who made it; 0 in results |
//! | 26 | 2 | `world` | how many workers the ring has: 2 to 1024 |
//! | 28 | 2 | `summed` | 0 as workers send it, `world` in a result: a receiver sees whether a switch has summed |
//! | 30 | 2 | reserved | zero |

use fanin_core::{DType, ElementOp, Malformed, Operator};

use crate::bytes::{front, put, require, u16_at, u32_at, u64_at};

/// The first bytes of every message.
pub const STREAM_MAGIC: [u8; 4] = [0xfa, 0x17, 0x1e, 0xd0];
const VERSION: u8 = 1;
/// Length of a seal.
pub const SEAL_BYTES: usize = 8;

/// The first bytes of a switch's word to a worker, against the direction of its stream, before its connection is reset; two bytes of length
/// and the reason as text follow.
pub const REASON_MAGIC: [u8; 4] = [0xfa, 0x17, 0x1e, 0xd1];
/// The longest reason: with all headers it fits a frame of any network.
pub const REASON_BYTES_MAX: usize = 440;

/// A switch's word to a worker: why its connection is reset. What is too long is cut.
pub fn reason(text: &str) -> Vec<u8> {
    let mut end = text.len().min(REASON_BYTES_MAX);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    [&REASON_MAGIC[..], &(end as u16).to_le_bytes(), &text.as_bytes()[..end]].concat()
}

/// The reason that a switch has written, without what no terminal should get; `None` where these bytes are none.
pub fn parse_reason(bytes: &[u8]) -> Option<String> {
    let rest = bytes.strip_prefix(&REASON_MAGIC)?;
    let (length, text) = rest.split_first_chunk::<2>()?;
    let text = text.get(..usize::from(u16::from_le_bytes(*length)))?;
    Some(String::from_utf8_lossy(text).chars().filter(|letter| !letter.is_control()).collect())
}

/// The CRC-32 (IEEE 802.3) of what `crc` is the one of, followed by `bytes`; that of nothing is 0.
pub fn checksum(crc: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(crc);
    hasher.update(bytes);
    hasher.finalize()
}

/// The seal of a result with this CRC-32.
pub fn seal(crc: u32) -> [u8; SEAL_BYTES] {
    (u64::from(!crc) << 32 | u64::from(crc)).to_le_bytes()
}

/// What stands before each vector of a stream.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageHeader {
    /// Element type and operator.
    pub op: ElementOp,
    /// Which workers belong together.
    pub ring: u32,
    /// Number of the message.
    pub message: u32,
    /// Length of the vector in bytes.
    pub bytes: u64,
    /// Who made it; 0 in results.
    pub rank: u16,
    /// How many workers the ring has.
    pub world: u16,
    /// How many vectors have been summed; 0 before.
    pub summed: u16,
}

impl MessageHeader {
    /// Length of a header.
    pub const LEN: usize = 32;
    /// The most workers of a ring.
    pub const WORLD_MAX: u16 = 1024;
    /// The longest vector in bytes: 1 TiB.
    pub const BYTES_MAX: u64 = 1 << 40;

    /// Reads a header from the front of `bytes`.
    ///
    /// # Errors
    /// [`Malformed`] names the field that is wrong.
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let head = front(bytes, Self::LEN)?;
        require(head[..4] == STREAM_MAGIC, "magic", u32_at(head, 0))?;
        require(head[4] == VERSION, "version", head[4])?;
        let dtype = DType::from_number(head[5]).ok_or(Malformed::Field { name: "dtype", value: u64::from(head[5]) })?;
        let operator = Operator::from_number(head[6]).ok_or(Malformed::Field { name: "operator", value: u64::from(head[6]) })?;
        let op = ElementOp::new(dtype, operator).map_err(|_| Malformed::Field { name: "operator", value: u64::from(head[6]) })?;
        require(head[7] == 0 && u16_at(head, 30) == 0, "reserved", head[7] | head[30] | head[31])?;
        let header = MessageHeader {
            op,
            ring: u32_at(head, 8),
            message: u32_at(head, 12),
            bytes: u64_at(head, 16),
            rank: u16_at(head, 24),
            world: u16_at(head, 26),
            summed: u16_at(head, 28),
        };
        require(header.bytes <= Self::BYTES_MAX && header.bytes.is_multiple_of(dtype.bytes() as u64), "bytes", header.bytes)?;
        require((2..=Self::WORLD_MAX).contains(&header.world), "world", header.world)?;
        require(header.rank < header.world, "rank", header.rank)?;
        require(header.summed == 0 || header.summed == header.world, "summed", header.summed)?;
        Ok(header)
    }

    /// Writes the header to the front of `out`, which holds at least [`MessageHeader::LEN`] bytes.
    pub fn emit(&self, out: &mut [u8]) {
        out[..Self::LEN].fill(0);
        put(out, 0, STREAM_MAGIC);
        put(out, 4, [VERSION, self.op.dtype.number(), self.op.operator.number()]);
        put(out, 8, self.ring.to_le_bytes());
        put(out, 12, self.message.to_le_bytes());
        put(out, 16, self.bytes.to_le_bytes());
        put(out, 24, self.rank.to_le_bytes());
        put(out, 26, self.world.to_le_bytes());
        put(out, 28, self.summed.to_le_bytes());
    }

    /// Bytes of the stream that the message takes: header, vector, zeros and seal.
    pub fn stream_bytes(&self) -> u64 {
        self.sealed_bytes() + SEAL_BYTES as u64
    }

    /// The same without the seal.
    pub fn sealed_bytes(&self) -> u64 {
        Self::LEN as u64 + self.bytes.next_multiple_of(8)
    }

    /// The field in which two workers' headers of one message differ that must be the same; `None` where they agree.
    pub fn disagreement(&self, other: &MessageHeader) -> Option<&'static str> {
        let pairs = [
            ("ring", self.ring != other.ring),
            ("world", self.world != other.world),
            ("message", self.message != other.message),
            ("bytes", self.bytes != other.bytes),
            ("dtype", self.op.dtype != other.op.dtype),
            ("operator", self.op.operator != other.op.operator),
            ("summed", self.summed != other.summed),
        ];
        pairs.iter().find(|(_, differs)| *differs).map(|(name, _)| *name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const HEADER: MessageHeader = MessageHeader {
        op: ElementOp { dtype: DType::F32, operator: Operator::Sum },
        ring: 0x0102_0304,
        message: 7,
        bytes: 1 << 20,
        rank: 2,
        world: 4,
        summed: 0,
    };

    #[test]
    fn golden_bytes() {
        let mut bytes = [0xff; MessageHeader::LEN];
        HEADER.emit(&mut bytes);
        let expected = [
            0xfa,
            0x17,
            0x1e,
            0xd0,
            1,
            DType::F32.number(),
            Operator::Sum.number(),
            0, // magic, version, dtype, operator
            4,
            3,
            2,
            1,
            7,
            0,
            0,
            0, // ring, message
            0,
            0,
            0x10,
            0,
            0,
            0,
            0,
            0, // bytes
            2,
            0,
            4,
            0,
            0,
            0,
            0,
            0, // rank, world, summed
        ];
        assert_eq!(bytes, expected);
        assert_eq!(MessageHeader::parse(&bytes), Ok(HEADER));
        assert_eq!(MessageHeader { bytes: 12, ..HEADER }.stream_bytes(), 56);
    }

    #[test]
    fn a_wrong_field_is_named() {
        let mut good = [0; MessageHeader::LEN];
        HEADER.emit(&mut good);
        for (at, value, name) in [
            (0, 0, "magic"),
            (4, 2, "version"),
            (5, 99, "dtype"),
            (6, 99, "operator"),
            (6, Operator::Xor.number(), "operator"),
            (7, 1, "reserved"),
            (31, 1, "reserved"),
            (16, 2, "bytes"),
            (22, 1, "bytes"),
            (24, 4, "rank"),
            (26, 1, "world"),
            (27, 9, "world"),
            (28, 3, "summed"),
        ] {
            let mut bytes = good;
            bytes[at] = value;
            let error = MessageHeader::parse(&bytes).unwrap_err();
            assert!(matches!(error, Malformed::Field { name: field, .. } if field == name), "{name}: {error}");
        }
        assert_eq!(MessageHeader::parse(&good[..31]), Err(Malformed::Truncated { needed: 32, got: 31 }));
    }

    #[test]
    fn headers_that_disagree_say_in_what() {
        assert_eq!(HEADER.disagreement(&MessageHeader { rank: 3, ..HEADER }), None);
        assert_eq!(HEADER.disagreement(&MessageHeader { bytes: 4, ..HEADER }), Some("bytes"));
        let op = ElementOp { dtype: DType::F32, operator: Operator::Max };
        assert_eq!(HEADER.disagreement(&MessageHeader { op, ..HEADER }), Some("operator"));
    }

    #[test]
    fn a_reason_comes_as_it_was_said() {
        assert_eq!(parse_reason(&reason("rank 2 has ended")).as_deref(), Some("rank 2 has ended"));
        let long = parse_reason(&reason(&"ä".repeat(400))).unwrap();
        assert_eq!(long, "ä".repeat(REASON_BYTES_MAX / 2));
        assert_eq!(parse_reason(&reason("a\x1b[31m\nb")).as_deref(), Some("a[31mb"));
        let whole = reason("why");
        assert!((0..whole.len()).all(|length| parse_reason(&whole[..length]).is_none()));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_survive(bytes in prop::collection::vec(any::<u8>(), 0..40), magic in any::<bool>()) {
            let mut bytes = bytes;
            if magic && bytes.len() >= 5 {
                bytes[..5].copy_from_slice(&[0xfa, 0x17, 0x1e, 0xd0, 1]);
            }
            if let Ok(header) = MessageHeader::parse(&bytes) {
                let mut again = [0; MessageHeader::LEN];
                header.emit(&mut again);
                prop_assert_eq!(&again[..], &bytes[..MessageHeader::LEN]);
            }
        }
    }
}
