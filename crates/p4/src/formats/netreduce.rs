//! NetReduce's packets: writes of RoCEv2 with the INA header at the beginning of a message (`netreduce 2`). Fanin's own have the same layout behind
//! UDP ([`fanin_wire::netreduce`]), so there is nothing to translate; here are the tables of their fields, and what a program takes.
//!
//! Elements are little-endian, as hosts have them in memory: network cards copy bytes. The ICRC is checked and made anew.

use fanin_core::{Malformed, Wire};
use fanin_wire::netreduce::{InaHeader, NetReduceHeader};
use fanin_wire::roce::{self, RoceHeader, opcode};

use super::{Header, field};
use crate::frames::{ETHERNET, IPV4, UDP};

/// InfiniBand's base transport header.
pub const BTH: Header = Header {
    name: "bth",
    source: "InfiniBand Architecture 9.2",
    fields: &[
        field("opcode", 8, "6 first, 7 middle, 8 last, 10 only packet of a write"),
        field("events", 2, "zero"),
        field("pad", 2, "zero"),
        field("version", 4, "zero"),
        field("partition", 16, "the default one"),
        field("marked", 1, "forward congestion: the contribution met it"),
        field("notifies", 1, "backward congestion: zero"),
        field("unused", 5, "zero"),
        field("summed", 1, "reserved in InfiniBand: the payload is a sum"),
        field("queue_pair", 24, "the connection at its receiver: rank and 2"),
        field("asks", 1, "an acknowledgement is asked for"),
        field("reserved", 7, "zero"),
        field("psn", 24, "number of the packet"),
    ],
};

/// Of first and only packets of a write.
pub const RETH: Header = Header {
    name: "reth",
    source: "InfiniBand Architecture 9.3",
    fields: &[
        field("high", 32, "zero"),
        field("address", 32, "in the receiver's memory"),
        field("region", 32, "key: the ring"),
        field("length", 32, "of the message"),
    ],
};

/// What flow control puts before a message.
pub const INA: Header = Header {
    name: "ina",
    source: "NetReduce 4.1, `netreduce 2`",
    fields: &[
        field("tag", 32, "0x1ae7fa41"),
        field("ring", 16, "which aggregators"),
        field("rank", 16, "sender"),
        field("message", 32, "number of the message"),
        field("packets", 16, "of this message"),
        field("summed", 16, "zero"),
    ],
};

/// The invariant CRC, its lowest byte first.
pub const ICRC: Header =
    Header { name: "icrc", source: "InfiniBand Architecture, annex A17.3.3", fields: &[field("crc", 32, "lowest byte first")] };

/// Words of a packet (`netreduce 7`: 1 KB). Of a message's first one the INA header takes four.
pub const ELEMENTS: usize = 256;
/// Words of the INA header.
pub const FRONT_ELEMENTS: usize = INA.bytes() / 4;
/// Bytes in front of the payload, or of what the INA header stands for.
pub const FRONT: usize = ETHERNET.bytes() + IPV4.bytes() + UDP.bytes() + BTH.bytes();
/// Messages of a window; twice as many have slots (`netreduce 7`).
pub const WINDOW: u32 = 2;
/// Packets of a message at most (`netreduce 7`).
pub const MESSAGE_PACKETS: u16 = 170;

/// Whether an operation code is that of a packet that programs may add: with what behind it, in bytes.
pub const fn write_bytes(code: u8) -> Option<usize> {
    match code {
        opcode::WRITE_FIRST | opcode::WRITE_ONLY => Some(RETH.bytes() + 4 * ELEMENTS + ICRC.bytes()),
        opcode::WRITE_MIDDLE | opcode::WRITE_LAST => Some(4 * ELEMENTS + ICRC.bytes()),
        _ => None,
    }
}

/// A contribution.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct NetReduceFrame {
    /// First or other packet of a message.
    pub header: NetReduceHeader,
    /// Congestion was experienced on the way, as the IPv4 header says.
    pub marked: bool,
    /// What is added.
    pub elements: Vec<u8>,
}

impl NetReduceFrame {
    /// Reads a frame that fills its packet: all checks of RoCEv2, and those of Fanin's packets.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn parse(frame: &[u8]) -> Result<Self, Malformed> {
        let (roce, _) = RoceHeader::parse(frame)?;
        if roce.envelope.tags != [None; 2] {
            return Err(Malformed::Field { name: "ether_type", value: 0x8100 });
        }
        let ip = ETHERNET.split(frame)?.1;
        IPV4.require(ip, "length", ip.len() as u64)?;
        let packet = &frame[ETHERNET.bytes() + IPV4.bytes() + UDP.bytes()..frame.len() - ICRC.bytes()];
        let (header, length) = NetReduceHeader::parse(packet)?;
        let expected = write_bytes(roce.bth.opcode).map(|bytes| FRONT + bytes);
        if expected != Some(frame.len()) {
            return Err(Malformed::Truncated { needed: expected.unwrap_or(0), got: frame.len() });
        }
        Ok(NetReduceFrame { header, marked: roce.envelope.service & 3 == 3, elements: packet[length..].to_vec() })
    }

    /// The frame between these ends.
    pub fn emit(&self, envelope: roce::Envelope) -> Vec<u8> {
        let mut packet = vec![0; self.header.wire_len()];
        self.header.emit(&mut packet);
        let bth = roce::Bth::parse(&packet).expect("a header begins with a BTH");
        let reth = matches!(self.header, NetReduceHeader::First { .. })
            .then(|| roce::Reth::parse(&packet[roce::BTH..]).expect("a first packet has a RETH"));
        let payload = [&packet[roce::BTH + reth.map_or(0, |_| roce::RETH)..], &self.elements[..]].concat();
        let header = RoceHeader { envelope, bth, reth, aeth: None, immediate: None };
        let mut frame = vec![0; header.frame_len(payload.len())];
        header.emit(&payload, &mut frame);
        frame
    }
}

/// That the tables say what Fanin's formats say.
const _: () = {
    assert!(BTH.bytes() == roce::BTH && RETH.bytes() == roce::RETH && INA.bytes() == InaHeader::LEN && ICRC.bytes() == roce::ICRC);
};

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_wire::netreduce::PacketNumber;

    fn envelope() -> roce::Envelope {
        roce::Envelope {
            macs: [[2; 6], [4; 6]],
            addresses: [[10, 0, 0, 1], [10, 0, 0, 2]],
            service: 0,
            identification: 0,
            hops: 64,
            source_port: 49_152,
            dont_fragment: true,
            tags: [None; 2],
        }
    }

    fn first() -> NetReduceFrame {
        let at = PacketNumber::new(0x01_0203, true);
        let header =
            NetReduceHeader::First { at, message: 0x0405_0607, length: 9, address: 0x0809_0a0b, connection: 5, ring: 0x0c0d, packets: 3 };
        NetReduceFrame { header, marked: false, elements: (0..1008u32).map(|byte| byte as u8).collect() }
    }

    #[test]
    fn tables_find_what_the_formats_write() {
        let bytes = first().emit(envelope());
        let (bth, reth) = (&bytes[42..], &bytes[54..]);
        assert_eq!(["opcode", "queue_pair", "psn", "asks", "summed"].map(|name| BTH.get(bth, name)), [6, 7, 0x01_0203, 1, 0]);
        assert_eq!(["address", "region", "length"].map(|name| RETH.get(reth, name)), [0x0809_0a0b, 0x0c0d, 9]);
        let ina = &bytes[70..];
        assert_eq!(["tag", "ring", "rank", "message", "packets"].map(|name| INA.get(ina, name)), [0x1ae7_fa41, 0x0c0d, 5, 0x0405_0607, 3]);
        assert_eq!(bytes.len(), 54 + 16 + 1024 + 4);
        let crc = ICRC.get(&bytes[bytes.len() - 4..], "crc") as u32;
        assert_eq!(crc.swap_bytes(), roce::icrc(&bytes[14..bytes.len() - 4]));
    }

    #[test]
    fn what_is_written_is_read() {
        let next = |last| NetReduceHeader::Next { at: PacketNumber::new(5, false).marked(true), connection: 5, last };
        let of = |header| NetReduceFrame { header, marked: false, elements: vec![7; 1024] };
        for frame in [first(), of(next(false)), of(next(true))] {
            let bytes = frame.emit(envelope());
            assert_eq!(NetReduceFrame::parse(&bytes), Ok(frame));
            assert!((0..bytes.len()).all(|length| NetReduceFrame::parse(&bytes[..length]).is_err()));
            assert!(NetReduceFrame::parse(&[&bytes[..], &[0]].concat()).is_err(), "something behind it");
        }
        let marked = first().emit(roce::Envelope { service: 3, ..envelope() });
        assert!(NetReduceFrame::parse(&marked).unwrap().marked);
    }

    #[test]
    fn short_and_damaged_packets_are_refused() {
        let short = NetReduceFrame { elements: vec![0; 1004], ..first() };
        assert!(NetReduceFrame::parse(&short.emit(envelope())).is_err());
        let good = first().emit(envelope());
        for at in [20, 44, 60, 75, 500, good.len() - 1] {
            let mut wrong = good.clone();
            wrong[at] ^= 1;
            assert!(NetReduceFrame::parse(&wrong).is_err(), "{at}");
        }
    }
}
