//! The packet of ATP and A2TP as in A2TP's published code (`a2tp 2`): 309 bytes of Ethernet and IPv4, where the paper counts 306.
//!
//! | in the paper's packet | in Fanin's message |
//! |---|---|
//! | `bitmap` | the ranks, of the first group of 64; here at most 31, since the program keeps one bit to itself |
//! | `workers` (`agtr_time`) | the fan-in. The switch knows the job's size and takes nothing else |
//! | `overflow`, `ecn`, `resend`, `collision`, `ack`, `col` | flags and the kind. There is no flag for what goes to the server directly: A2TP sets `resend` |
//! | `server` (`PSIndex`), `half` (`dataIndex`) | zero: one server a job, and no packet on its way between two passes |
//! | `app` | the job; not zero, for a tag of zero is nobody's |
//! | `seq` | the fragment. The paper's tag has these 16 bits, where Fanin's name never comes again (`a2tp 9`, P5) |
//! | `index`, `second_index` | the aggregator, in the first and the second half of the memory |
//! | data, big-endian | the payload, little-endian |
//! | `tensor` (`key`), `tensor_length` | none: the switch passes them on. In acknowledgements the published code has the next index there |
//! | none | `version`, `attempt`, `waited`, rounds, whom alone an acknowledgement is for: zero, unknown, for all |
//! | none | flushes, waiting, refusals: the server has no way to ask for what is stuck, so workers send again (`Nets::Paper`) |
//!
//! The published client writes the same IPv4 header of a wrong length into every packet, so nothing of that is checked; of its bits the switch
//! reads those of congestion.

use fanin_core::Malformed;
use fanin_wire::atp::{AggregatorName, AtpFlags, AtpHeader, FragmentId, NextRound, RankSet, Waited};

use super::{Header, field, swap_elements};
use crate::frames::{ETHERNET, IPV4};

/// Behind IPv4, in front of the elements.
pub const ATP: Header = Header {
    name: "atp",
    source: "A2TP's published code, `a2tp 2`",
    fields: &[
        field("bitmap", 32, "a bit for each worker whose contribution is in it"),
        field("workers", 8, "how many the aggregator waits for: all of the job"),
        field("overflow", 1, "the elements are no fixed point"),
        field("server", 2, "zero"),
        field("half", 1, "zero"),
        field("ecn", 1, "congestion was experienced"),
        field("resend", 1, "takes out of its aggregator what is there"),
        field("collision", 1, "found its aggregator taken"),
        field("ack", 1, "from the server"),
        field("app", 16, "job, not zero"),
        field("seq", 16, "fragment"),
        field("reserved", 7, "zero"),
        field("col", 1, "A2TP: another fragment wanted the aggregator"),
        field("index", 16, "aggregator"),
        field("second_index", 16, "the same in the second half of the memory"),
    ],
};

/// Behind the elements.
pub const ATP_TAIL: Header = Header {
    name: "atp_tail",
    source: "A2TP's published code, `a2tp 2`",
    fields: &[field("tensor", 64, "tensor (`key`)"), field("tensor_length", 32, "its length; in acknowledgements the next index")],
};

/// Ethernet's number for it, which is nobody else's.
pub const KIND_ATP: u64 = 0x0700;
/// Elements of a packet.
pub const ELEMENTS: usize = 62;
/// Workers of a job at most.
pub const WORKERS_MAX: usize = 31;
/// Aggregators of a switch (`a2tp 3`: 2 MiB are 7,936).
pub const AGGREGATORS: u16 = 7_936;

/// Bytes in front of the elements.
pub const FRONT: usize = ETHERNET.bytes() + IPV4.bytes() + ATP.bytes();
/// The whole frame.
pub const FRAME: usize = FRONT + 4 * ELEMENTS + ATP_TAIL.bytes();

/// What a frame says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AtpFrame {
    /// The job.
    pub app: u16,
    /// A gradient or an acknowledgement.
    pub header: AtpHeader,
    /// Congestion was experienced on the way, as the IPv4 header says.
    pub marked: bool,
    /// Little-endian, as the state machine has them.
    pub elements: Vec<u8>,
}

/// Flags of the packet, and the state machines' for them.
const FLAGS: [(&str, AtpFlags); 5] = [
    ("overflow", AtpFlags::FLOAT),
    ("ecn", AtpFlags::ECN),
    ("resend", AtpFlags::RESEND),
    ("collision", AtpFlags::COLLIDED),
    ("col", AtpFlags::COL),
];

impl AtpFrame {
    /// Reads a frame of a switch with so many aggregators. What stands behind it is not looked at.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(frame: &[u8], aggregators: u16) -> Result<Self, Malformed> {
        let (ethernet, rest) = ETHERNET.split(frame)?;
        ETHERNET.require(ethernet, "kind", KIND_ATP)?;
        let (ip, rest) = IPV4.split(rest)?;
        let (atp, rest) = ATP.split(rest)?;
        let needed = 4 * ELEMENTS + ATP_TAIL.bytes();
        let data = rest.get(..needed).ok_or(Malformed::Truncated { needed, got: rest.len() })?;
        let get = |name| ATP.get(atp, name);
        ["server", "half", "reserved"].into_iter().try_for_each(|name| ATP.require(atp, name, 0))?;
        if get("app") == 0 {
            return Err(Malformed::Field { name: "app", value: 0 });
        }
        let index = get("index") as u16;
        ATP.require(atp, "second_index", index.wrapping_add(aggregators).into())?;
        let flags = FLAGS.iter().fold(AtpFlags::NONE, |flags, (name, flag)| flags.with_if(*flag, get(name) == 1));
        let (at, slot) = (FragmentId { tensor: 0, seq: get("seq") as u32 }, AggregatorName { index, version: 0 });
        let header = if get("ack") == 1 {
            ATP.require(atp, "resend", 0)?;
            let (to, round) = (AtpHeader::TO_ALL, NextRound::default());
            AtpHeader::Ack { at, slot, next_version: 0, to, flags, round, waited: Waited::UNKNOWN }
        } else {
            let (ranks, workers) = (RankSet::from_bits(get("bitmap")), get("workers") as u8);
            AtpHeader::Gradient { at, slot, ranks, fan_in: [workers; 2], attempt: 0, flags, waited: Waited::UNKNOWN }
        };
        let marked = IPV4.get(ip, "service") & 3 == 3;
        Ok(AtpFrame { app: get("app") as u16, header, marked, elements: swap_elements(&data[..4 * ELEMENTS]) })
    }
}

/// A frame with what a switch says in place of what the packet said that made it do so: its headers, tail, and what is behind it stay.
///
/// # Panics
/// Where the frame is none of this format, the header one that it has no place for, or the elements are not 62.
pub fn rewrite(frame: &[u8], header: &AtpHeader, elements: &[u8]) -> Vec<u8> {
    assert_eq!(elements.len(), 4 * ELEMENTS, "a packet has 62 elements");
    let mut frame = frame.to_vec();
    let atp = &mut frame[ETHERNET.bytes() + IPV4.bytes()..];
    let flags = match header {
        AtpHeader::Gradient { ranks, flags, .. } => {
            ATP.put(atp, "bitmap", ranks.bits());
            flags
        }
        AtpHeader::Ack { flags, .. } => flags,
        other => panic!("{other:?} has no place in the paper's packet"),
    };
    FLAGS.iter().for_each(|(name, flag)| ATP.put(atp, name, flags.has(*flag).into()));
    frame[FRONT..][..4 * ELEMENTS].copy_from_slice(&swap_elements(elements));
    frame
}

/// A frame of these fields of ATP's header, of 62 little-endian elements, and of a tail. Its IPv4 header has the published client's shape,
/// with `service` for congestion.
///
/// # Panics
/// Where there is no such field, or the elements are not 62.
pub fn frame(ethernet: (u64, u64), service: u64, fields: &[(&str, u64)], elements: &[u8], key: u64) -> Vec<u8> {
    assert_eq!(elements.len(), 4 * ELEMENTS, "a packet has 62 elements");
    let (src, dst) = ethernet;
    let ip =
        IPV4.with(&[("version", 4), ("words", 5), ("service", service), ("length", 0x54), ("whole", 1), ("hops", 64), ("protocol", 1)]);
    let tail = ATP_TAIL.with(&[("tensor", key), ("tensor_length", 4 * ELEMENTS as u64)]);
    let ethernet = ETHERNET.with(&[("dst", dst), ("src", src), ("kind", KIND_ATP)]);
    [ethernet, ip, ATP.with(fields), swap_elements(elements), tail].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: [(&str, u64); 9] = [
        ("bitmap", 0x0102_0304),
        ("workers", 9),
        ("ecn", 1),
        ("collision", 1),
        ("app", 0x0506),
        ("seq", 0x0708),
        ("col", 1),
        ("index", 0x0a0b),
        ("second_index", 0x0a0b + 16),
    ];

    fn good(changes: &[(&'static str, u64)]) -> Vec<u8> {
        let elements: Vec<u8> = (0..4 * ELEMENTS).map(|byte| byte as u8).collect();
        frame((1, 2), 0, &[&FIELDS[..], changes].concat(), &elements, 0x1122)
    }

    #[test]
    fn golden_bytes() {
        let frame = good(&[]);
        assert_eq!((frame.len(), FRAME), (309, 309), "`a2tp 2`: 34 + 27 + 248 bytes");
        assert_eq!(frame[34..49], [1, 2, 3, 4, 9, 0b0000_1010, 5, 6, 7, 8, 1, 0x0a, 0x0b, 0x0a, 0x1b]);
        assert_eq!(frame[49..57], [3, 2, 1, 0, 7, 6, 5, 4]);
        assert_eq!(frame[297..], [0, 0, 0, 0, 0, 0, 0x11, 0x22, 0, 0, 0, 248]);
    }

    #[test]
    fn what_is_written_back_is_what_was_read() {
        for changes in [&[][..], &[("ack", 1)], &[("resend", 1), ("overflow", 1)]] {
            let mut frame = good(changes);
            frame.extend([7, 8, 9]);
            let read = AtpFrame::parse(&frame, 16).unwrap();
            assert_eq!(read.app, 0x0506);
            assert_eq!(rewrite(&frame, &read.header, &read.elements), frame, "{changes:?}");
        }
        let marked = frame((1, 2), 3, &FIELDS, &[0; 248], 0);
        assert!(AtpFrame::parse(&marked, 16).unwrap().marked && !AtpFrame::parse(&good(&[]), 16).unwrap().marked);
    }

    #[test]
    fn a_wrong_field_is_named() {
        let error = |changes: &[(&'static str, u64)]| match AtpFrame::parse(&good(changes), 16) {
            Err(Malformed::Field { name, .. }) => name,
            other => panic!("{other:?}"),
        };
        for name in ["server", "half", "reserved"] {
            assert_eq!(error(&[(name, 1)]), name);
        }
        assert_eq!(error(&[("app", 0)]), "app");
        assert_eq!(error(&[("second_index", 0x0a0b)]), "second_index");
        assert_eq!(error(&[("ack", 1), ("resend", 1)]), "resend");
        assert!((0..FRAME).all(|length| AtpFrame::parse(&good(&[])[..length], 16).is_err()));
    }
}
