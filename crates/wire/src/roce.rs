//! RoCEv2: the packets of reliable connections as network cards send them, from the Ethernet header to the invariant CRC.
//!
//! | offset | bytes | field | |
//! |---|---|---|---|
//! | 0 | 14 | Ethernet | destination, source, type 0x0800; up to two tags of virtual LANs, 4 bytes each, stand before the type |
//! | 14 | 20 | IPv4 | without options, not fragmented (whether it may be does not matter), protocol 17 |
//! | 34 | 8 | UDP | destination port 4791; a checksum of zero |
//! | 42 | 12 | BTH | see [`Bth`] |
//! | 54 | 16 or 4 | RETH or AETH | RETH: first and only packets of a write; AETH: acknowledgements |
//! | | 4 | immediate data | last and only packets of a write that has it |
//! | | | payload | padded with zeros to a multiple of four |
//! | | 4 | ICRC | |
//!
//! Preamble and frame check sequence are the network card's. Unlike Fanin's own formats this one is in network byte order; only the ICRC
//! goes its lowest byte first, as Ethernet's does. Routers change some fields on the way, so the ICRC is computed as if these had all bits
//! set: type of service, time to live, checksums of IPv4 and UDP, and the congestion bits of the BTH. (InfiniBand Architecture, annex A17.)

use fanin_core::Malformed;

use crate::bytes::{front, put, require};

/// The UDP port that packets of RoCEv2 go to.
pub const UDP_PORT: u16 = 4_791;
/// Connections are numbered in 24 bits, and so are packets.
pub const NUMBER_MAX: u32 = (1 << 24) - 1;

const ETHERNET: usize = 14;
const IPV4: usize = 20;
const UDP: usize = 8;
/// Length of a BTH in bytes.
pub const BTH: usize = 12;
/// Length of a RETH in bytes.
pub const RETH: usize = 16;
/// Length of an AETH in bytes.
pub const AETH: usize = 4;
/// Length of immediate data in bytes.
pub const IMMEDIATE: usize = 4;
/// Length of an ICRC in bytes.
pub const ICRC: usize = 4;
const BEFORE_BTH: usize = ETHERNET + IPV4 + UDP;
/// Length of a tag of a virtual LAN in bytes.
pub const TAG: usize = 4;
/// The most tags of a frame.
pub const TAGS_MAX: usize = 2;
const IPV4_TYPE: u16 = 0x0800;
const IPV6_TYPE: u16 = 0x86DD;
/// RoCE of the first version: a global route header, as long as that of IPv6, behind Ethernet's.
const ROCEV1_TYPE: u16 = 0x8915;
const IPV6: usize = 40;
/// Fragments: more of them follow, or where this one belongs.
const FRAGMENTED: u16 = 0x3FFF;
const DONT_FRAGMENT: u16 = 0x4000;

/// Operation codes of reliable connections.
pub mod opcode {
    /// The first of several packets of a write; a RETH follows.
    pub const WRITE_FIRST: u8 = 0x06;
    /// Neither the first nor the last packet of a write.
    pub const WRITE_MIDDLE: u8 = 0x07;
    /// The last of several packets of a write.
    pub const WRITE_LAST: u8 = 0x08;
    /// The last of several packets of a write that hands its receiver a word; that follows.
    pub const WRITE_LAST_IMMEDIATE: u8 = 0x09;
    /// The only packet of a write; a RETH follows.
    pub const WRITE_ONLY: u8 = 0x0A;
    /// The only packet of a write that hands its receiver a word; a RETH and that word follow.
    pub const WRITE_ONLY_IMMEDIATE: u8 = 0x0B;
    /// An acknowledgement, negative ones among them; an AETH follows.
    pub const ACKNOWLEDGE: u8 = 0x11;
    /// A congestion notification.
    pub const CONGESTION: u8 = 0x81;
    /// The first of the codes that are left to manufacturers.
    pub const MANUFACTURER: u8 = 0xC0;
}

#[inline]
pub(crate) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

#[inline]
pub(crate) fn be32(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[inline]
pub(crate) fn be24(bytes: &[u8], at: usize) -> u32 {
    be32(bytes, at) >> 8
}

/// Writes a number of 24 bits.
#[inline]
pub(crate) fn put24(out: &mut [u8], at: usize, value: u32) {
    let [_, high, middle, low] = value.to_be_bytes();
    put(out, at, [high, middle, low]);
}

/// The base transport header: what every packet begins with.
///
/// | offset | bytes | field |
/// |---|---|---|
/// | 0 | 1 | operation code |
/// | 1 | 1 | solicited event (bit 7), migration (6), pad count (5, 4), version of the header (3-0) |
/// | 2 | 2 | partition |
/// | 4 | 1 | forward congestion (bit 7), backward congestion (6), reserved |
/// | 5 | 3 | the connection's number at its receiver |
/// | 8 | 1 | an acknowledgement is asked for (bit 7), reserved: whoever receives it does not look at that |
/// | 9 | 3 | the packet's number |
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bth {
    /// What the packet is: [`opcode`].
    pub opcode: u8,
    /// Bit 7: solicited event; bit 6: migration. Other bits are zero.
    pub events: u8,
    /// How many bytes follow the payload to fill the last word; at most 3.
    pub pad: u8,
    /// The partition; 0xFFFF is the default one.
    pub partition: u16,
    /// Bit 7: forward congestion; bit 6: backward congestion; the lower ones are reserved, and left alone by network cards.
    pub variant: u8,
    /// The connection's number at its receiver; at most [`NUMBER_MAX`].
    pub queue_pair: u32,
    /// Whether an acknowledgement is asked for.
    pub ack_request: bool,
    /// The reserved bits beside that; at most 0x7F.
    pub reserved: u8,
    /// The packet's number; at most [`NUMBER_MAX`].
    pub psn: u32,
}

impl Bth {
    /// A packet of the default partition, without flags.
    pub const fn new(opcode: u8, queue_pair: u32, psn: u32) -> Self {
        Bth { opcode, events: 0, pad: 0, partition: 0xFFFF, variant: 0, queue_pair, ack_request: false, reserved: 0, psn }
    }

    /// Reads a header.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], or the field that is wrong: `version`.
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let head = front(bytes, BTH)?;
        require(head[1] & 0xF == 0, "version", head[1] & 0xF)?;
        Ok(Bth {
            opcode: head[0],
            events: head[1] & 0xC0,
            pad: head[1] >> 4 & 3,
            partition: be16(head, 2),
            variant: head[4],
            queue_pair: be24(head, 5),
            ack_request: head[8] & 0x80 != 0,
            reserved: head[8] & 0x7F,
            // The last three bytes are read with the one before them, which would be a fourth.
            psn: be32(head, 8) & NUMBER_MAX,
        })
    }

    /// Writes the header.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        put(out, 0, [self.opcode, self.events & 0xC0 | (self.pad & 3) << 4]);
        put(out, 2, self.partition.to_be_bytes());
        out[4] = self.variant;
        put24(out, 5, self.queue_pair & NUMBER_MAX);
        out[8] = u8::from(self.ack_request) << 7 | self.reserved & 0x7F;
        put24(out, 9, self.psn & NUMBER_MAX);
    }
}

/// The extension of a write: where it goes in the receiver's memory. Address 8 bytes, key 4, length 4.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reth {
    /// The address.
    pub address: u64,
    /// The key of the memory region.
    pub key: u32,
    /// Length of the whole message in bytes.
    pub length: u32,
}

impl Reth {
    /// Reads an extension.
    ///
    /// # Errors
    /// [`Malformed::Truncated`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let head = front(bytes, RETH)?;
        let address = u64::from(be32(head, 0)) << 32 | u64::from(be32(head, 4));
        Ok(Reth { address, key: be32(head, 8), length: be32(head, 12) })
    }

    /// Writes the extension.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        put(out, 0, self.address.to_be_bytes());
        put(out, 8, self.key.to_be_bytes());
        put(out, 12, self.length.to_be_bytes());
    }
}

/// The extension of an acknowledgement: a code, and how many messages the receiver has completed (24 bits).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Aeth {
    /// [`Aeth::ACK`], [`Aeth::NAK_SEQUENCE`] or another code.
    pub syndrome: u8,
    /// Messages that the receiver has completed; at most [`NUMBER_MAX`].
    pub messages: u32,
}

impl Aeth {
    /// All up to the packet's number has arrived; the receiver does not count credits.
    pub const ACK: u8 = 0x1F;
    /// The packet of this number is missing: all from there on must be sent again.
    pub const NAK_SEQUENCE: u8 = 0x60;
    /// The receiver could not do what the packet of this number asks for: the connection is over at both ends.
    pub const NAK_OPERATION: u8 = 0x63;
    /// The receiver has no room now; lower bits say for how long.
    pub const NOT_READY: u8 = 0x20;

    /// Whether this is no acknowledgement of the packet's number, but of all before it.
    pub const fn is_negative(&self) -> bool {
        self.syndrome & 0x60 != 0
    }

    /// Whether the connection is over at both ends: an invalid request, a wrong key or address, an operation that failed.
    pub const fn is_fatal(&self) -> bool {
        matches!(self.syndrome, 0x61..=0x64)
    }

    /// Reads an extension.
    ///
    /// # Errors
    /// [`Malformed::Truncated`].
    #[inline]
    pub fn parse(bytes: &[u8]) -> Result<Self, Malformed> {
        let head = front(bytes, AETH)?;
        Ok(Aeth { syndrome: head[0], messages: be32(head, 0) & NUMBER_MAX })
    }

    /// Writes the extension.
    #[inline]
    pub fn emit(&self, out: &mut [u8]) {
        out[0] = self.syndrome;
        put24(out, 1, self.messages & NUMBER_MAX);
    }
}

/// What surrounds a packet on its way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Envelope {
    /// Ethernet addresses: destination, source.
    pub macs: [[u8; 6]; 2],
    /// IPv4 addresses: source, destination.
    pub addresses: [[u8; 4]; 2],
    /// Type of service, ECN among it.
    pub service: u8,
    /// Identification.
    pub identification: u16,
    /// Time to live.
    pub hops: u8,
    /// UDP source port: by it switches tell flows apart.
    pub source_port: u16,
    /// IPv4 may not cut it up; nothing depends on that here.
    pub dont_fragment: bool,
    /// Tags of virtual LANs, the outer one first: type (0x8100 or 0x88A8), then priority and number.
    pub tags: [Option<[u8; TAG]>; TAGS_MAX],
}

impl Envelope {
    /// The numbers of the virtual LANs, the outer one first, each plus one; 0 where there is none.
    pub fn virtual_lans(&self) -> [u16; TAGS_MAX] {
        self.tags.map(|tag| tag.map_or(0, |tag| (be16(&tag, 2) & 0xFFF) + 1))
    }

    /// Length of all before the network's header.
    const fn link_len(&self) -> usize {
        ETHERNET + if self.tags[0].is_some() { TAG } else { 0 } + if self.tags[1].is_some() { TAG } else { 0 }
    }
}

/// A whole packet without its payload.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RoceHeader {
    /// What surrounds it.
    pub envelope: Envelope,
    /// The base transport header. Its pad count follows from the payload when it is written.
    pub bth: Bth,
    /// Of first and only packets of writes.
    pub reth: Option<Reth>,
    /// Of acknowledgements.
    pub aeth: Option<Aeth>,
    /// Of last and only packets of writes that hand their receiver a word.
    pub immediate: Option<[u8; IMMEDIATE]>,
}

/// The extensions that follow a BTH, by its operation code: RETH, AETH, immediate data.
const fn extensions(opcode: u8) -> (bool, bool, bool) {
    (
        matches!(opcode, opcode::WRITE_FIRST | opcode::WRITE_ONLY | opcode::WRITE_ONLY_IMMEDIATE),
        opcode == opcode::ACKNOWLEDGE,
        matches!(opcode, opcode::WRITE_LAST_IMMEDIATE | opcode::WRITE_ONLY_IMMEDIATE),
    )
}

/// Over what a packet of RoCE travels.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Over {
    /// IPv4: [`RoceHeader::parse`] reads it.
    V4,
    /// The first part of a packet that IPv4 has cut up.
    Fragment,
    /// IPv4 with options.
    Options,
    /// IPv6.
    V6,
    /// Ethernet itself, as in the first version.
    Ethernet,
}

/// What can be seen of a packet of RoCE at a glance: whether a frame concerns a switch. Nothing is checked that costs a look at the payload;
/// [`RoceHeader::parse`] does that.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Glance {
    /// Over what it travels.
    pub over: Over,
    /// IPv4 addresses: source, destination. Zero where there are none.
    pub addresses: [[u8; 4]; 2],
    /// What the packet is: [`opcode`].
    pub opcode: u8,
    /// The connection's number at its receiver.
    pub queue_pair: u32,
    /// Where the BTH begins.
    pub at: usize,
}

impl Glance {
    /// Whether it is a packet of a write.
    pub const fn is_write(&self) -> bool {
        matches!(self.opcode, opcode::WRITE_FIRST..=opcode::WRITE_ONLY_IMMEDIATE)
    }

    /// What stands behind the RETH of the first packet of a write; empty for other packets.
    pub fn first_payload<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        let (is_first, _, has_immediate) = extensions(self.opcode);
        let from = self.at + BTH + RETH + if has_immediate { IMMEDIATE } else { 0 };
        if is_first { frame.get(from..).unwrap_or_default() } else { &[] }
    }
}

/// Where the network's header begins, behind the tags of virtual LANs, and what it is. `None` where the frame ends before that, or has more
/// tags.
fn network(frame: &[u8]) -> Option<(usize, u16)> {
    (0..=TAGS_MAX).map(|tags| ETHERNET + tags * TAG).find_map(|at| {
        let kind = be16(frame.get(at - 2..at)?, 0);
        (!matches!(kind, 0x8100 | 0x88A8)).then_some((at, kind))
    })
}

/// See [`Glance`]. `None` where a frame is no packet of RoCE.
pub fn glance(frame: &[u8]) -> Option<Glance> {
    let (link, kind) = network(frame)?;
    let packet = &frame[link..];
    let (over, before) = match kind {
        IPV4_TYPE => {
            let ip = packet.get(..IPV4)?;
            // The later parts of a packet that was cut up have no header of UDP.
            if ip[0] >> 4 != 4 || ip[0] & 0xF < 5 || ip[9] != 17 || be16(ip, 6) & 0x1FFF != 0 {
                return None;
            }
            let over = if be16(ip, 6) & FRAGMENTED != 0 {
                Over::Fragment
            } else if ip[0] == 0x45 {
                Over::V4
            } else {
                Over::Options
            };
            (over, usize::from(ip[0] & 0xF) * 4 + UDP)
        }
        IPV6_TYPE if *packet.get(6)? == 17 => (Over::V6, IPV6 + UDP),
        ROCEV1_TYPE => (Over::Ethernet, IPV6),
        _ => return None,
    };
    let head = packet.get(..before + BTH + ICRC)?;
    if over != Over::Ethernet && be16(head, before - UDP + 2) != UDP_PORT {
        return None;
    }
    let has_addresses = kind == IPV4_TYPE;
    let address = |at: usize| if has_addresses { be32(head, at).to_be_bytes() } else { [0; 4] };
    let (opcode, queue_pair) = (head[before], be24(head, before + 5));
    Some(Glance { over, addresses: [address(12), address(16)], opcode, queue_pair, at: link + before })
}

/// Makes a frame's checks right again after its payload has become another one of the same length: the ICRC at its end; the UDP checksum goes,
/// as it may.
///
/// # Panics
/// Where the frame is shorter than the shortest of RoCEv2.
pub fn seal(frame: &mut [u8]) {
    let (link, _) = network(frame).unwrap_or((ETHERNET, 0));
    put(frame, link + IPV4 + 6, [0, 0]);
    let end = frame.len() - ICRC;
    let sum = icrc(&frame[link..end]);
    put(frame, end, sum.to_le_bytes());
}

/// The same where the length has changed, too, or what IPv4's header says: lengths and all checks are computed.
///
/// # Panics
/// Where the frame is shorter than the shortest of RoCEv2, or longer than IPv4 can say.
pub fn finish(frame: &mut [u8]) {
    let (link, _) = network(frame).unwrap_or((ETHERNET, 0));
    let length = u16::try_from(frame.len() - link).expect("a packet of IPv4 is shorter than 64 KiB");
    put(frame, link + 2, length.to_be_bytes());
    put(frame, link + 10, [0, 0]);
    let sum = ip_checksum(&frame[link..link + IPV4]);
    put(frame, link + 10, sum.to_be_bytes());
    put(frame, link + IPV4 + 4, (length - IPV4 as u16).to_be_bytes());
    seal(frame);
}

/// Turns a frame's direction round: addresses of Ethernet and of IPv4. Checks stay as they were.
///
/// # Panics
/// Where the frame is shorter than the shortest of RoCEv2.
pub fn turn(frame: &mut [u8]) {
    let (link, _) = network(frame).unwrap_or((ETHERNET, 0));
    let (destination, source) = (six(frame, 0), six(frame, 6));
    put(frame, 0, source);
    put(frame, 6, destination);
    let addresses = [be32(frame, link + 12), be32(frame, link + 16)];
    put(frame, link + 12, addresses[1].to_be_bytes());
    put(frame, link + 16, addresses[0].to_be_bytes());
}

impl RoceHeader {
    /// Reads a frame; gives its header and its payload, without padding.
    ///
    /// # Errors
    /// [`Malformed::Truncated`], or the field that is wrong: `ether_type`, `ip_version`, `ip_fragment`, `ip_protocol`, `ip_checksum`,
    /// `ip_length`, `udp_port`, `udp_length`, `version`, `pad` or `icrc`.
    pub fn parse(frame: &[u8]) -> Result<(Self, &[u8]), Malformed> {
        let (link, kind) = network(frame).ok_or(Malformed::Truncated { needed: BEFORE_BTH + BTH + ICRC, got: frame.len() })?;
        require(kind == IPV4_TYPE, "ether_type", kind)?;
        let head = front(frame, link + IPV4 + UDP + BTH + ICRC)?;
        let ip = &head[link..];
        require(ip[0] == 0x45, "ip_version", ip[0])?;
        require(be16(ip, 6) & !DONT_FRAGMENT == 0, "ip_fragment", be16(ip, 6))?;
        require(ip[9] == 17, "ip_protocol", ip[9])?;
        require(ip_checksum(&ip[..IPV4]) == 0, "ip_checksum", be16(ip, 10))?;
        let length = usize::from(be16(ip, 2));
        require((IPV4 + UDP + BTH + ICRC..=frame.len() - link).contains(&length), "ip_length", length as u64)?;
        let udp = &ip[IPV4..];
        require(be16(udp, 2) == UDP_PORT, "udp_port", be16(udp, 2))?;
        require(usize::from(be16(udp, 4)) == length - IPV4, "udp_length", be16(udp, 4))?;
        // Ethernet may have padded the frame.
        let (packet, sum) = frame[link..link + length].split_at(length - ICRC);
        let stored = u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
        require(icrc(packet) == stored, "icrc", stored)?;
        let bth = Bth::parse(&packet[IPV4 + UDP..])?;
        let (has_reth, has_aeth, has_immediate) = extensions(bth.opcode);
        let mut rest = &packet[IPV4 + UDP + BTH..];
        let reth = if has_reth { Some(Reth::parse(rest)?) } else { None };
        let aeth = if has_aeth { Some(Aeth::parse(rest)?) } else { None };
        rest = &rest[if has_reth { RETH } else { 0 } + if has_aeth { AETH } else { 0 }..];
        let immediate = if has_immediate { Some(be32(front(rest, IMMEDIATE)?, 0).to_be_bytes()) } else { None };
        rest = &rest[if has_immediate { IMMEDIATE } else { 0 }..];
        let pad = usize::from(bth.pad);
        require(pad <= rest.len() && rest.len().is_multiple_of(4), "pad", pad as u64)?;
        // What a sender has filled the last word with is no business of its receiver.
        let payload = &rest[..rest.len() - pad];
        let envelope = Envelope {
            macs: [six(head, 0), six(head, 6)],
            addresses: [be32(ip, 12).to_be_bytes(), be32(ip, 16).to_be_bytes()],
            service: ip[1],
            identification: be16(ip, 4),
            hops: ip[8],
            source_port: be16(udp, 0),
            dont_fragment: be16(ip, 6) == DONT_FRAGMENT,
            tags: [0, 1].map(|number| {
                let at = ETHERNET - 2 + number * TAG;
                (at + 2 < link).then(|| be32(head, at).to_be_bytes())
            }),
        };
        Ok((RoceHeader { envelope, bth, reth, aeth, immediate }, payload))
    }

    /// Length of all before the payload, in bytes.
    pub const fn head_len(&self) -> usize {
        let address = if self.reth.is_some() { RETH } else { 0 } + if self.aeth.is_some() { AETH } else { 0 };
        self.envelope.link_len() + IPV4 + UDP + BTH + address + if self.immediate.is_some() { IMMEDIATE } else { 0 }
    }

    /// Length of the frame with so much payload, in bytes.
    pub const fn frame_len(&self, payload_bytes: usize) -> usize {
        self.head_len() + payload_bytes.next_multiple_of(4) + ICRC
    }

    /// Writes the frame to the front of `out`, which holds at least [`RoceHeader::frame_len`] bytes; gives the length. Pad count, lengths
    /// and checks are computed.
    ///
    /// # Panics
    /// Where extensions and operation code do not go together, or the frame is longer than IPv4 can say.
    pub fn emit(&self, payload: &[u8], out: &mut [u8]) -> usize {
        let there = (self.reth.is_some(), self.aeth.is_some(), self.immediate.is_some());
        assert_eq!(there, extensions(self.bth.opcode), "extensions go with the operation code");
        let length = self.frame_len(payload.len());
        let out = &mut out[..length];
        let Envelope { macs, addresses, service, identification, hops, source_port, dont_fragment, tags } = self.envelope;
        put(out, 0, macs[0]);
        put(out, 6, macs[1]);
        let mut link = ETHERNET - 2;
        for tag in tags.into_iter().flatten() {
            put(out, link, tag);
            link += TAG;
        }
        put(out, link, IPV4_TYPE.to_be_bytes());
        link += 2;
        let packet = &mut out[link..];
        put(packet, 0, [0x45, service]);
        let ip_length = u16::try_from(length - link).expect("a packet of IPv4 is shorter than 64 KiB");
        put(packet, 2, ip_length.to_be_bytes());
        put(packet, 4, identification.to_be_bytes());
        put(packet, 6, if dont_fragment { DONT_FRAGMENT } else { 0 }.to_be_bytes());
        put(packet, 8, [hops, 17, 0, 0]);
        put(packet, 12, addresses[0]);
        put(packet, 16, addresses[1]);
        let sum = ip_checksum(&packet[..IPV4]);
        put(packet, 10, sum.to_be_bytes());
        put(packet, IPV4, source_port.to_be_bytes());
        put(packet, IPV4 + 2, UDP_PORT.to_be_bytes());
        put(packet, IPV4 + 4, (ip_length - IPV4 as u16).to_be_bytes());
        put(packet, IPV4 + 6, [0, 0]);
        let pad = payload.len().next_multiple_of(4) - payload.len();
        let mut at = link + IPV4 + UDP;
        Bth { pad: pad as u8, ..self.bth }.emit(&mut out[at..]);
        at += BTH;
        if let Some(reth) = self.reth {
            reth.emit(&mut out[at..]);
            at += RETH;
        }
        if let Some(aeth) = self.aeth {
            aeth.emit(&mut out[at..]);
            at += AETH;
        }
        if let Some(immediate) = self.immediate {
            put(out, at, immediate);
            at += IMMEDIATE;
        }
        out[at..at + payload.len()].copy_from_slice(payload);
        out[at + payload.len()..length - ICRC].fill(0);
        let sum = icrc(&out[link..length - ICRC]);
        put(out, length - ICRC, sum.to_le_bytes());
        length
    }
}

fn six(bytes: &[u8], at: usize) -> [u8; 6] {
    let mut six = [0; 6];
    six.copy_from_slice(&bytes[at..at + 6]);
    six
}

/// The checksum of an IPv4 header (RFC 791): zero for one that holds the right sum.
fn ip_checksum(header: &[u8]) -> u16 {
    let mut sum: u32 = (0..IPV4 / 2).map(|word| u32::from(be16(header, 2 * word))).sum();
    while sum > 0xFFFF {
        sum = (sum & 0xFFFF) + (sum >> 16);
    }
    !(sum as u16)
}

/// The invariant CRC of a packet, from the IPv4 header to the end of the padding.
pub fn icrc(packet: &[u8]) -> u32 {
    const MASKED: usize = IPV4 + UDP + BTH;
    let mut head = [0; MASKED];
    let length = packet.len().min(MASKED);
    head[..length].copy_from_slice(&packet[..length]);
    // Type of service, time to live, checksum, UDP's checksum, congestion bits.
    for at in [1, 8, 10, 11, IPV4 + 6, IPV4 + 7, IPV4 + UDP + 4] {
        head[at] = 0xFF;
    }
    let mut sum = crc32fast::Hasher::new();
    // In place of the local route header of InfiniBand.
    sum.update(&[0xFF; 8]);
    sum.update(&head[..length]);
    sum.update(&packet[length..]);
    sum.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ENVELOPE: Envelope = Envelope {
        macs: [[0xe4, 0x1d, 0x2d, 0xab, 0x2b, 0xc2], [0x7c, 0xfe, 0x90, 0x64, 0x3b, 0x32]],
        addresses: [[10, 0, 17, 1], [10, 0, 18, 1]],
        service: 0xc2,
        identification: 0x718c,
        hops: 64,
        source_port: 0,
        dont_fragment: true,
        tags: [None; TAGS_MAX],
    };

    /// A congestion notification as a ConnectX-4 Lx sends it, checksums and all (captured; published with the tests of scapy).
    #[test]
    fn the_frame_of_a_network_card_is_reproduced_byte_by_byte() {
        let bth = Bth { events: 0, variant: 0x40, ..Bth::new(opcode::CONGESTION, 0x118, 0) };
        let header = RoceHeader { envelope: ENVELOPE, bth, reth: None, aeth: None, immediate: None };
        let mut out = [0xee; 80];
        assert_eq!(header.emit(&[0; 16], &mut out), 74);
        #[rustfmt::skip]
        let captured = [
            0xe4, 0x1d, 0x2d, 0xab, 0x2b, 0xc2, 0x7c, 0xfe, 0x90, 0x64, 0x3b, 0x32, 0x08, 0x00, 0x45, 0xc2,
            0x00, 0x3c, 0x71, 0x8c, 0x40, 0x00, 0x40, 0x11, 0x91, 0x61, 0x0a, 0x00, 0x11, 0x01, 0x0a, 0x00,
            0x12, 0x01, 0x00, 0x00, 0x12, 0xb7, 0x00, 0x28, 0x00, 0x00, 0x81, 0x00, 0xff, 0xff, 0x40, 0x00,
            0x01, 0x18, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,
            0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x82, 0xfd, 0x00, 0x2a,
        ];
        assert_eq!(out[..74], captured);
        assert_eq!(RoceHeader::parse(&out[..74]), Ok((header, &[0; 16][..])));
        assert_eq!(out[74..], [0xee; 6], "nothing behind the frame is touched");
    }

    /// The ICRC of an unreliable send of 18 bytes with two of padding (published with the tests of scapy), whose UDP checksum is not zero.
    #[test]
    fn what_routers_change_is_not_in_the_crc() {
        let envelope = Envelope { addresses: [[192, 168, 0, 7]; 2], service: 1, identification: 1144, source_port: 49_152, ..ENVELOPE };
        let bth = Bth { events: 0x40, ..Bth::new(0x24, 211, 13_571_856) };
        let payload = *b"F0\x81\x8b\xe2\x895\xd9\x0e\x9a\x95PT\x01\xbe\x88^P";
        let mut out = [0; 100];
        let length = RoceHeader { envelope, bth, reth: None, aeth: None, immediate: None }.emit(&payload, &mut out);
        assert_eq!(out[length - 4..length], [0x78, 0xf3, 0x53, 0xf3]);
        // A router counts down the time to live, and marks congestion.
        (out[15], out[22]) = (out[15] | 3, 63);
        let sum = ip_checksum(
            &{
                let mut header = out;
                header[24..26].fill(0);
                header
            }[14..34],
        );
        put(&mut out, 24, sum.to_be_bytes());
        out[BEFORE_BTH + 4] = 0x80;
        let (header, given) = RoceHeader::parse(&out[..length]).unwrap();
        assert_eq!((header.envelope.hops, header.envelope.service, header.bth.pad, given), (63, 3, 2, &payload[..]));
    }

    fn write() -> ([u8; 128], usize) {
        let mut out = [0; 128];
        let bth = Bth { ack_request: true, ..Bth::new(opcode::WRITE_ONLY, 0x0a0b0c, 0xfffffe) };
        let reth = Some(Reth { address: 0x0102_0304_0506_0708, key: 0x1112_1314, length: 5 });
        let length = RoceHeader { envelope: ENVELOPE, bth, reth, aeth: None, immediate: None }.emit(b"fanin", &mut out);
        (out, length)
    }

    #[test]
    fn a_write_has_its_extension_and_its_padding() {
        let (out, length) = write();
        assert_eq!(length, 42 + 12 + 16 + 8 + 4);
        #[rustfmt::skip]
        let golden = [
            0x0a, 0x30, 0xff, 0xff, 0x00, 0x0a, 0x0b, 0x0c, 0x80, 0xff, 0xff, 0xfe,
            0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x11, 0x12, 0x13, 0x14, 0x00, 0x00, 0x00, 0x05,
            b'f', b'a', b'n', b'i', b'n', 0x00, 0x00, 0x00,
        ];
        assert_eq!(out[42..length - 4], golden);
        let (header, payload) = RoceHeader::parse(&out[..length]).unwrap();
        assert_eq!((payload, header.reth.unwrap().length, header.bth.pad), (&b"fanin"[..], 5, 3));
        let mut acknowledged = [0; 64];
        let aeth = Some(Aeth { syndrome: Aeth::NAK_SEQUENCE, messages: 0x0a0b0c });
        let length = RoceHeader { envelope: ENVELOPE, bth: Bth::new(opcode::ACKNOWLEDGE, 2, 9), reth: None, aeth, immediate: None }
            .emit(&[], &mut acknowledged);
        assert_eq!(acknowledged[42..length - 4], [0x11, 0, 0xff, 0xff, 0, 0, 0, 2, 0, 0, 0, 9, 0x60, 0x0a, 0x0b, 0x0c]);
        assert_eq!(RoceHeader::parse(&acknowledged[..length]).unwrap().0.aeth, aeth);
    }

    #[test]
    fn a_write_may_hand_over_a_word() {
        let reth = Some(Reth { address: 1 << 40, key: 7, length: 8 });
        for (opcode, reth, head) in [(opcode::WRITE_ONLY_IMMEDIATE, reth, 74), (opcode::WRITE_LAST_IMMEDIATE, None, 58)] {
            let header = RoceHeader { envelope: ENVELOPE, bth: Bth::new(opcode, 5, 6), reth, aeth: None, immediate: Some([1, 2, 3, 4]) };
            let mut out = [0; 100];
            let length = header.emit(b"8 bytes.", &mut out);
            assert_eq!((header.head_len(), length, &out[head - 4..head]), (head, head + 12, &[1, 2, 3, 4][..]));
            assert_eq!(RoceHeader::parse(&out[..length]), Ok((header, &b"8 bytes."[..])));
            let seen = Glance { over: Over::V4, addresses: ENVELOPE.addresses, opcode, queue_pair: 5, at: BEFORE_BTH };
            assert_eq!(glance(&out[..length]), Some(seen));
            // Another payload in the same frame, and a UDP checksum that was right before.
            out[40] = 9;
            out[head..head + 8].copy_from_slice(b"the sum.");
            seal(&mut out[..length]);
            assert_eq!(RoceHeader::parse(&out[..length]), Ok((header, &b"the sum."[..])));
        }
        assert_eq!(glance(&[0; 80]), None);
    }

    #[test]
    fn every_bit_that_is_wrong_is_found() {
        let (out, length) = write();
        for bit in 8 * 12..8 * length {
            let mut broken = out;
            broken[bit / 8] ^= 1 << (bit % 8);
            let variant = [15, 40, 41, BEFORE_BTH + 4].contains(&(bit / 8));
            let parsed = RoceHeader::parse(&broken[..length]);
            // A router may change the type of service, but then the header's checksum with it.
            assert_eq!(parsed.is_ok(), variant && bit / 8 != 15, "bit {bit}: {parsed:?}");
        }
        let error = |change: fn(&mut [u8])| {
            let mut broken = out;
            change(&mut broken);
            RoceHeader::parse(&broken[..length]).unwrap_err()
        };
        assert_eq!(error(|bytes| bytes[12] = 0x86), Malformed::Field { name: "ether_type", value: 0x8600 });
        assert_eq!(error(|bytes| bytes[36] = 0), Malformed::Field { name: "udp_port", value: 0xb7 });
        assert_eq!(RoceHeader::parse(&out[..50]), Err(Malformed::Truncated { needed: 58, got: 50 }));
        let Err(Malformed::Field { name: "icrc", .. }) = RoceHeader::parse(
            &{
                let mut out = out;
                out[75] ^= 1;
                out
            }[..length],
        ) else {
            panic!("the CRC covers the payload");
        };
    }

    #[test]
    fn tags_stay_and_what_is_no_plain_packet_of_ipv4_is_known() {
        let tags = [Some([0x88, 0xa8, 0x60, 5]), Some([0x81, 0, 0x00, 6])];
        for tags in [[None; 2], [tags[1], None], tags] {
            let envelope = Envelope { tags, dont_fragment: false, ..ENVELOPE };
            let bth = Bth { reserved: 0x55, ..Bth::new(opcode::WRITE_MIDDLE, 5, 6) };
            let header = RoceHeader { envelope, bth, reth: None, aeth: None, immediate: None };
            let mut out = [0; 128];
            let length = header.emit(b"8 bytes.", &mut out);
            assert_eq!(RoceHeader::parse(&out[..length]), Ok((header, &b"8 bytes."[..])));
            let count = tags.iter().flatten().count();
            let seen = glance(&out[..length]).unwrap();
            assert_eq!((seen.over, seen.addresses, seen.queue_pair, seen.at), (Over::V4, ENVELOPE.addresses, 5, BEFORE_BTH + TAG * count));
            // Another payload, of another length, in a frame that is turned round.
            let mut longer = out[..length].to_vec();
            longer.splice(header.head_len()..length, *b"the sum of all, padded..");
            longer.extend([0; ICRC]);
            turn(&mut longer);
            finish(&mut longer);
            let turned = Envelope {
                macs: [ENVELOPE.macs[1], ENVELOPE.macs[0]],
                addresses: [ENVELOPE.addresses[1], ENVELOPE.addresses[0]],
                ..envelope
            };
            assert_eq!(RoceHeader::parse(&longer), Ok((RoceHeader { envelope: turned, ..header }, &b"the sum of all, padded.."[..])));
            let mut other = out[..length].to_vec();
            let ip = seen.at - IPV4 - UDP;
            other[ip + 6] = 0x20;
            assert_eq!(glance(&other).map(|seen| seen.over), Some(Over::Fragment));
            (other[ip + 6], other[ip + 7]) = (0, 1);
            assert_eq!(glance(&other), None, "a later part of a packet");
        }
        let envelope = Envelope { tags, ..ENVELOPE };
        assert_eq!(envelope.virtual_lans(), [6, 7]);
        assert_eq!(ENVELOPE.virtual_lans(), [0, 0]);
    }
}
