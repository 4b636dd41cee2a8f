//! A TCP segment inside an Ethernet frame: what is read of it, whether it came whole, and what is written when its payload has become a sum.

use std::net::{IpAddr, SocketAddr};
use std::ops::Range;

use etherparse::checksum::Sum16BitWords;
use etherparse::{IpNumber, Ipv4HeaderSlice, Ipv6HeaderSlice, TcpHeaderSlice};
use fanin_net::Offload;
use fanin_wire::stream::STREAM_MAGIC;

const ETHERNET: usize = 14;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
/// Tags of virtual LANs: 802.1Q, 802.1ad, and what there was before it.
const TAGS: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// More tags than any network has.
const TAGS_MAX: usize = 3;
/// Extension headers of IPv6 that are looked behind.
const EXTENSIONS_MAX: usize = 4;
/// Where fields stand, from the beginning of their header.
const IP_LENGTH: usize = 2;
const IP_CHECKSUM: usize = 10;
const IPV6_LENGTH: usize = 4;
const TCP_SEQUENCE: usize = 4;
const TCP_FLAGS: usize = 13;
const TCP_WINDOW: usize = 14;
const TCP_CHECKSUM: usize = 16;
const TCP_OPTIONS: usize = 20;
/// Flags of a segment that is made here.
const RST_ACK: u8 = 0x14;
const ACK: u8 = 0x10;
const PSH_ACK: u8 = 0x18;
/// An option that says nothing; selective acknowledgements, and the length of a block of them (RFC 2018).
const NOP: u8 = 1;
const SACK: u8 = 5;
const SACK_BLOCK: usize = 8;
/// The times of both ends as an option: two NOPs, kind 8, length 10 (RFC 7323).
const TIMES: [u8; 4] = [1, 1, 8, 10];

/// Flags of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Flags {
    pub syn: bool,
    pub ack: bool,
    pub fin: bool,
    pub rst: bool,
}

/// A connection in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Flow {
    /// Who sends.
    pub from: SocketAddr,
    /// Who receives.
    pub to: SocketAddr,
}

impl Flow {
    /// The same connection the other way.
    pub fn reverse(self) -> Flow {
        Flow { from: self.to, to: self.from }
    }
}

/// How a frame is damaged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Damage {
    /// The checksum of the IP header is wrong.
    IpHeader,
    /// A length says more than there is, or less than there must be.
    Length,
    /// The checksum of TCP is wrong.
    Tcp,
}

impl Damage {
    /// All, in the order of their numbers.
    pub const ALL: [Damage; 3] = [Damage::IpHeader, Damage::Length, Damage::Tcp];

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Damage::IpHeader => "ip_header",
            Damage::Length => "length",
            Damage::Tcp => "tcp_checksum",
        }
    }
}

/// Why a message passes unsummed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsummed {
    /// It is in a virtual LAN.
    Tagged,
    /// It is a fragment of an IP packet.
    Fragment,
    /// There are extension headers of IPv6 before it.
    Extension,
    /// It came with the SYN.
    WithSyn,
    /// The beginning of its connection was not seen, as where the switch was restarted.
    NoBeginning,
    /// It begins like a message, and its header is wrong.
    Malformed,
    /// There was no room to look at its connection.
    NoRoom,
    /// Another transparent switch sums for its ring.
    Elsewhere,
    /// The frame is longer than any that can be taken.
    TooLong,
}

impl Unsummed {
    /// All, in the order of their numbers.
    pub const ALL: [Unsummed; 9] = [
        Unsummed::Tagged,
        Unsummed::Fragment,
        Unsummed::Extension,
        Unsummed::WithSyn,
        Unsummed::NoBeginning,
        Unsummed::Malformed,
        Unsummed::NoRoom,
        Unsummed::Elsewhere,
        Unsummed::TooLong,
    ];

    /// A word for it.
    pub fn name(self) -> &'static str {
        match self {
            Unsummed::Tagged => "tagged",
            Unsummed::Fragment => "fragment",
            Unsummed::Extension => "ipv6_extension",
            Unsummed::WithSyn => "with_syn",
            Unsummed::NoBeginning => "no_beginning",
            Unsummed::Malformed => "malformed",
            Unsummed::NoRoom => "no_room",
            Unsummed::Elsewhere => "elsewhere",
            Unsummed::TooLong => "too_long",
        }
    }
}

/// What a frame is.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Look {
    /// A segment of TCP over IPv4 or IPv6, its IP header whole.
    Segment(Segment),
    /// The first fragment of a segment of this flow; whether a message begins in it.
    Fragment(Flow, bool),
    /// No receiver can take it.
    Damaged(Damage),
    /// A message that cannot be summed here.
    Unsummed(Unsummed),
    /// Anything else.
    Other,
}

/// What a frame says that carries a segment of TCP.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub flow: Flow,
    pub sequence: u32,
    pub acknowledged: u32,
    pub flags: Flags,
    /// As it stands in the header, not scaled.
    pub window: u16,
    tcp_at: usize,
    payload_at: usize,
    payload_end: usize,
    /// Where the sender's time stands, if it does; the one that it echoes follows.
    time_at: Option<usize>,
}

/// Looks at a frame.
pub(crate) fn look(frame: &[u8]) -> Look {
    let (mut at, mut tags) = (ETHERNET, 0);
    let Some(mut kind) = u16_at(frame, at - 2) else { return Look::Other };
    while TAGS.contains(&kind) && tags < TAGS_MAX {
        (at, tags) = (at + 4, tags + 1);
        let Some(inner) = u16_at(frame, at - 2) else { return Look::Other };
        kind = inner;
    }
    let look = match kind {
        IPV4 => look_ipv4(frame, at),
        IPV6 => look_ipv6(frame, at),
        _ => Look::Other,
    };
    match look {
        Look::Segment(segment) if tags > 0 => {
            if begins_message(&frame[segment.payload()]) {
                Look::Unsummed(Unsummed::Tagged)
            } else {
                Look::Other
            }
        }
        Look::Fragment(..) | Look::Damaged(_) if tags > 0 => Look::Other,
        look => look,
    }
}

fn look_ipv4(frame: &[u8], ip_at: usize) -> Look {
    let Ok(ip) = Ipv4HeaderSlice::from_slice(&frame[ip_at..]) else { return Look::Other };
    if ip.protocol() != IpNumber::TCP || (ip.is_fragmenting_payload() && ip.fragments_offset().value() > 0) {
        return Look::Other;
    }
    if Sum16BitWords::new().add_slice(ip.slice()).ones_complement() != 0 {
        return Look::Damaged(Damage::IpHeader);
    }
    let tcp_at = ip_at + ip.slice().len();
    let end = ip_at + usize::from(ip.total_len());
    if end > frame.len() || end < tcp_at {
        return Look::Damaged(Damage::Length);
    }
    look_tcp(frame, tcp_at..end, ip.source_addr().into(), ip.destination_addr().into(), ip.is_fragmenting_payload())
}

fn look_ipv6(frame: &[u8], ip_at: usize) -> Look {
    let Ok(ip) = Ipv6HeaderSlice::from_slice(&frame[ip_at..]) else { return Look::Other };
    let (mut at, mut next, mut extensions, mut fragment) = (ip_at + ip.slice().len(), ip.next_header(), 0, false);
    while [
        IpNumber::IPV6_HEADER_HOP_BY_HOP,
        IpNumber::IPV6_ROUTE_HEADER,
        IpNumber::IPV6_DESTINATION_OPTIONS,
        IpNumber::IPV6_FRAGMENTATION_HEADER,
    ]
    .contains(&next)
        && extensions < EXTENSIONS_MAX
    {
        let Some(head) = frame.get(at..at + 4) else { return Look::Other };
        if next == IpNumber::IPV6_FRAGMENTATION_HEADER {
            // Of the later ones nobody knows what they carry.
            if u16::from_be_bytes([head[2], head[3]]) >> 3 > 0 {
                return Look::Other;
            }
            fragment |= head[3] & 1 != 0;
        }
        let length = if next == IpNumber::IPV6_FRAGMENTATION_HEADER { 8 } else { 8 * (usize::from(head[1]) + 1) };
        (at, next, extensions) = (at + length, IpNumber(head[0]), extensions + 1);
    }
    let end = ip_at + ip.slice().len() + usize::from(ip.payload_length());
    if next != IpNumber::TCP {
        return Look::Other;
    }
    if end > frame.len() || end < at {
        return Look::Damaged(Damage::Length);
    }
    match look_tcp(frame, at..end, ip.source_addr().into(), ip.destination_addr().into(), fragment) {
        Look::Segment(segment) if extensions > 0 => {
            if begins_message(&frame[segment.payload()]) {
                Look::Unsummed(Unsummed::Extension)
            } else {
                Look::Other
            }
        }
        look => look,
    }
}

fn look_tcp(frame: &[u8], range: Range<usize>, from: IpAddr, to: IpAddr, fragment: bool) -> Look {
    // Of a fragment there may be less than a header: no sender makes such ones, and no flow is known for it.
    let Ok(tcp) = TcpHeaderSlice::from_slice(&frame[range.clone()]) else {
        return if fragment { Look::Other } else { Look::Damaged(Damage::Length) };
    };
    let flow = Flow { from: SocketAddr::new(from, tcp.source_port()), to: SocketAddr::new(to, tcp.destination_port()) };
    let payload_at = range.start + tcp.slice().len();
    if fragment {
        return Look::Fragment(flow, begins_message(&frame[payload_at..range.end]));
    }
    Look::Segment(Segment {
        flow,
        sequence: tcp.sequence_number(),
        acknowledged: tcp.acknowledgment_number(),
        flags: Flags { syn: tcp.syn(), ack: tcp.ack(), fin: tcp.fin(), rst: tcp.rst() },
        window: tcp.window_size(),
        tcp_at: range.start,
        payload_at,
        payload_end: range.end,
        time_at: option(tcp.options(), 8, 10).map(|at| range.start + TCP_OPTIONS + at),
    })
}

/// Whether bytes begin as a message does.
pub(crate) fn begins_message(payload: &[u8]) -> bool {
    payload.starts_with(&STREAM_MAGIC)
}

impl Segment {
    /// The segment in a frame, if there is one.
    #[cfg(test)]
    pub fn parse(frame: &[u8]) -> Option<Segment> {
        match look(frame) {
            Look::Segment(segment) => Some(segment),
            _ => None,
        }
    }

    /// Whether it came as it was sent, as far as its checksum tells. Where the kernel has looked, or made the segment itself and not yet a
    /// checksum, nobody has to. That of the IP header is looked at for every segment ([`look`]).
    pub fn is_whole(&self, frame: &[u8], offload: &Offload) -> bool {
        if offload.flags & (Offload::NEEDS_CHECKSUM | Offload::CHECKSUM_VALID) != 0 {
            return true;
        }
        let tcp = &frame[self.tcp_at..self.payload_end];
        pseudo_header(&self.flow, tcp.len()).add_slice(tcp).ones_complement() == 0
    }

    /// Where the payload stands in the frame.
    pub fn payload(&self) -> Range<usize> {
        self.payload_at..self.payload_end
    }

    pub fn payload_bytes(&self) -> u32 {
        (self.payload_end - self.payload_at) as u32
    }

    /// The sender's time, if the segment has one.
    pub fn time(&self, frame: &[u8]) -> Option<u32> {
        self.time_at.map(|at| u32_at(frame, at))
    }

    /// The sender's time and the one that it echoes.
    pub fn times(&self, frame: &[u8]) -> Option<[u8; 8]> {
        frame.get(self.time_at?..)?.first_chunk().copied()
    }

    /// Writes the sender's time.
    pub fn set_time(&self, frame: &mut [u8], time: u32) {
        if let Some(at) = self.time_at {
            frame[at..at + 4].copy_from_slice(&time.to_be_bytes());
        }
    }

    /// By how many bits the windows of later segments are to be shifted, as a SYN says (RFC 7323); `None` where it does not.
    pub fn window_scale(&self, frame: &[u8]) -> Option<u8> {
        let options = &frame[self.tcp_at + TCP_OPTIONS..self.payload_at];
        // More than 14 counts as 14.
        option(options, 3, 3).map(|at| options[at].min(14))
    }

    /// Writes another window. The checksum changes by the difference (RFC 1624): what is wrong stays wrong.
    pub fn set_window(&mut self, frame: &mut [u8], offload: &Offload, window: u16) {
        let at = self.tcp_at + TCP_WINDOW;
        frame[at..at + 2].copy_from_slice(&window.to_be_bytes());
        // The kernel has not added up the window yet where it still has to finish.
        if offload.flags & Offload::NEEDS_CHECKSUM == 0 {
            let at = self.tcp_at + TCP_CHECKSUM;
            let mut sum = u32::from(!u16::from_be_bytes([frame[at], frame[at + 1]])) + u32::from(!self.window) + u32::from(window);
            while sum > 0xffff {
                sum = (sum & 0xffff) + (sum >> 16);
            }
            frame[at..at + 2].copy_from_slice(&(!(sum as u16)).to_be_bytes());
        }
        self.window = window;
    }

    /// Whether its sender says that it has something behind a gap (selective acknowledgements, RFC 2018).
    pub fn lacks_something(&self, frame: &[u8]) -> bool {
        let options = &frame[self.tcp_at + TCP_OPTIONS..self.payload_at];
        // What has come twice is reported in the same way, and lies before that (RFC 2883).
        let is_behind = |block: &[u8]| u32_at(block, 0).wrapping_sub(self.acknowledged) as i32 > 0;
        sack(options).is_some_and(|blocks| options[blocks].chunks_exact(SACK_BLOCK).any(is_behind))
    }

    /// Writes another acknowledgement and another window, and other blocks of what is acknowledged selectively: the first
    /// ones, as many as there were before.
    pub fn acknowledge(&mut self, frame: &mut [u8], offload: &mut Offload, acknowledged: u32, window: u16, blocks: &[[u32; 2]]) {
        let tcp = self.tcp_at;
        frame[tcp + TCP_SEQUENCE + 4..][..4].copy_from_slice(&acknowledged.to_be_bytes());
        frame[tcp + TCP_WINDOW..][..2].copy_from_slice(&window.to_be_bytes());
        let options = &mut frame[tcp + TCP_OPTIONS..self.payload_at];
        if let Some(place) = sack(options) {
            let room = place.len() / SACK_BLOCK;
            let bytes: Vec<u8> = blocks.iter().take(room).flatten().flat_map(|end| end.to_be_bytes()).collect();
            options[place.start - 2..place.end].fill(NOP);
            if !bytes.is_empty() {
                options[place.start - 2..place.start].copy_from_slice(&[SACK, 2 + bytes.len() as u8]);
                options[place.start..place.start + bytes.len()].copy_from_slice(&bytes);
            }
        }
        (self.acknowledged, self.window) = (acknowledged, window);
        self.finish(frame, offload);
    }

    /// Keeps the first `bytes` bytes of the payload, and neither FIN nor PSH. Gives the frame's new length.
    pub fn trim(&mut self, frame: &mut [u8], bytes: u32) -> usize {
        self.payload_end = self.payload_at + (bytes as usize).min(self.payload_end - self.payload_at);
        frame[self.tcp_at + TCP_FLAGS] &= !(0x01 | 0x08);
        self.flags.fin = false;
        self.write_length(frame);
        self.payload_end
    }

    /// Makes the checksum right for what the payload is now, as far as it is ours to do: the kernel adds up the rest where the frame
    /// leaves, or never where nobody looks.
    pub fn finish(&self, frame: &mut [u8], offload: &mut Offload) {
        // Not turned round, unlike a finished one.
        let sum = !pseudo_header(&self.flow, self.payload_end - self.tcp_at).ones_complement();
        frame[self.tcp_at + TCP_CHECKSUM..][..2].copy_from_slice(&sum.to_ne_bytes());
        offload.flags = Offload::NEEDS_CHECKSUM;
        offload.checksum_start = self.tcp_at as u16;
        offload.checksum_offset = TCP_CHECKSUM as u16;
        if self.payload_bytes() <= u32::from(offload.gso_bytes) || offload.gso_type == 0 {
            (offload.gso_type, offload.gso_bytes, offload.header_bytes) = (0, 0, 0);
        }
    }

    fn write_length(&self, frame: &mut [u8]) {
        if self.flow.from.is_ipv6() {
            let length = (self.payload_end - self.tcp_at) as u16;
            frame[ETHERNET + IPV6_LENGTH..][..2].copy_from_slice(&length.to_be_bytes());
            return;
        }
        let length = (self.payload_end - ETHERNET) as u16;
        frame[ETHERNET + IP_LENGTH..][..2].copy_from_slice(&length.to_be_bytes());
        frame[ETHERNET + IP_CHECKSUM..][..2].fill(0);
        let checksum = Sum16BitWords::new().add_slice(&frame[ETHERNET..self.tcp_at]).ones_complement();
        frame[ETHERNET + IP_CHECKSUM..][..2].copy_from_slice(&checksum.to_ne_bytes());
    }
}

/// Where a segment stands that is made here.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    /// What its receiver expects next, or it would not believe it (RFC 5961).
    pub sequence: u32,
    pub acknowledged: u32,
    /// The sender's time and its echo, as the option has them.
    pub times: Option<[u8; 8]>,
}

/// A segment that ends a connection at once, made from the headers of a frame of the same flow.
pub(crate) fn reset(template: &[u8], segment: &Segment, place: Place) -> (Offload, Vec<u8>) {
    made(template, segment, Place { times: None, ..place }, RST_ACK, 0, &[])
}

/// A segment that brings some bytes.
pub(crate) fn word(template: &[u8], segment: &Segment, place: Place, window: u16, payload: &[u8]) -> (Offload, Vec<u8>) {
    made(template, segment, place, PSH_ACK, window, payload)
}

/// A segment that says how much more may be sent.
pub(crate) fn window_update(template: &[u8], segment: &Segment, place: Place, window: u16) -> (Offload, Vec<u8>) {
    made(template, segment, place, ACK, window, &[])
}

/// The same, with blocks of what has come selectively: three at most where there are times.
pub(crate) fn answer(template: &[u8], segment: &Segment, place: Place, window: u16, blocks: &[[u32; 2]]) -> (Offload, Vec<u8>) {
    let mut options = Vec::new();
    if !blocks.is_empty() {
        options.extend_from_slice(&[NOP, NOP, SACK, 2 + (blocks.len() * SACK_BLOCK) as u8]);
        blocks.iter().flatten().for_each(|end| options.extend_from_slice(&end.to_be_bytes()));
    }
    made_with(template, segment, place, (ACK, window), &options, &[])
}

fn made(template: &[u8], segment: &Segment, place: Place, flags: u8, window: u16, payload: &[u8]) -> (Offload, Vec<u8>) {
    made_with(template, segment, place, (flags, window), &[], payload)
}

fn made_with(
    template: &[u8],
    segment: &Segment,
    place: Place,
    (flags, window): (u8, u16),
    options: &[u8],
    payload: &[u8],
) -> (Offload, Vec<u8>) {
    let mut frame = template[..segment.tcp_at + TCP_OPTIONS].to_vec();
    let tcp = segment.tcp_at;
    frame[tcp + TCP_SEQUENCE..][..4].copy_from_slice(&place.sequence.to_be_bytes());
    frame[tcp + TCP_SEQUENCE + 4..][..4].copy_from_slice(&place.acknowledged.to_be_bytes());
    // No urgent data.
    frame[tcp + TCP_WINDOW..tcp + TCP_OPTIONS].fill(0);
    frame[tcp + TCP_WINDOW..][..2].copy_from_slice(&window.to_be_bytes());
    if let Some(times) = place.times {
        frame.extend_from_slice(&TIMES);
        frame.extend_from_slice(&times);
    }
    frame.extend_from_slice(options);
    let payload_at = frame.len();
    let words = (payload_at - tcp) / 4;
    frame[tcp + 12..tcp + TCP_WINDOW].copy_from_slice(&[(words as u8) << 4, flags]);
    frame.extend_from_slice(payload);
    let made = Segment { payload_at, payload_end: frame.len(), time_at: None, window, ..*segment };
    made.write_length(&mut frame);
    let mut offload = Offload::default();
    made.finish(&mut frame, &mut offload);
    (offload, frame)
}

/// The headers of a frame of the opposite flow.
pub(crate) fn turned(template: &[u8], segment: &Segment) -> (Vec<u8>, Segment) {
    let mut frame = template[..segment.payload_at].to_vec();
    let (ip, tcp) = (ETHERNET, segment.tcp_at);
    swap(&mut frame, 0, 6, 6);
    if segment.flow.from.is_ipv6() {
        swap(&mut frame, ip + 8, ip + 24, 16);
    } else {
        swap(&mut frame, ip + 12, ip + 16, 4);
    }
    swap(&mut frame, tcp, tcp + 2, 2);
    (frame, Segment { flow: segment.flow.reverse(), ..*segment })
}

fn swap(frame: &mut [u8], a: usize, b: usize, length: usize) {
    (0..length).for_each(|index| frame.swap(a + index, b + index));
}

/// What the checksum covers of the addresses.
fn pseudo_header(flow: &Flow, length: usize) -> Sum16BitWords {
    let add = |sum: Sum16BitWords, address: &SocketAddr| match address.ip() {
        IpAddr::V4(ip) => sum.add_slice(&ip.octets()),
        IpAddr::V6(ip) => sum.add_slice(&ip.octets()),
    };
    let sum = add(add(Sum16BitWords::new(), &flow.from), &flow.to);
    sum.add_2bytes([0, IpNumber::TCP.0]).add_slice(&(length as u32).to_be_bytes())
}

/// Where the value of an option of a kind and length stands among a header's options.
fn option(options: &[u8], kind: u8, length: u8) -> Option<usize> {
    let mut at = 0;
    loop {
        match (*options.get(at)?, options.get(at + 1)) {
            (0, _) => return None,
            (1, _) => at += 1,
            (found, Some(&bytes)) if found == kind && bytes == length && at + usize::from(length) <= options.len() => return Some(at + 2),
            (_, Some(&bytes)) if bytes >= 2 => at += usize::from(bytes),
            _ => return None,
        }
    }
}

/// Where the blocks of selective acknowledgements stand among a header's options.
fn sack(options: &[u8]) -> Option<Range<usize>> {
    let mut at = 0;
    loop {
        match (*options.get(at)?, options.get(at + 1)) {
            (0, _) => return None,
            (NOP, _) => at += 1,
            (SACK, Some(&bytes)) if bytes > 2 && at + usize::from(bytes) <= options.len() => return Some(at + 2..at + usize::from(bytes)),
            (_, Some(&bytes)) if bytes >= 2 => at += usize::from(bytes),
            _ => return None,
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|pair| u16::from_be_bytes([pair[0], pair[1]]))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::{PacketBuilder, PacketBuilderStep, TcpOptionElement, TcpSlice};

    fn tcp(ip: PacketBuilderStep<etherparse::IpHeaders>, payload: &[u8]) -> Vec<u8> {
        let options = [TcpOptionElement::Noop, TcpOptionElement::WindowScale(7), TcpOptionElement::Timestamp(123, 456)];
        let builder = ip.tcp(4_000, 5_000, 1_000, 60_000).ack(77).options(&options).unwrap();
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).unwrap();
        frame
    }

    fn frame(payload: &[u8]) -> Vec<u8> {
        tcp(PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64), payload)
    }

    fn frame_v6(payload: &[u8]) -> Vec<u8> {
        tcp(PacketBuilder::ethernet2([1; 6], [2; 6]).ipv6([0xfd; 16], [0xfc; 16], 64), payload)
    }

    /// Four bytes of options in the IP header.
    fn frame_with_options(payload: &[u8]) -> Vec<u8> {
        let ip = etherparse::Ipv4Header {
            options: [148, 4, 0, 0].into(),
            ..etherparse::Ipv4Header::new(0, 64, IpNumber::TCP, [10, 0, 0, 1], [10, 0, 0, 2]).unwrap()
        };
        tcp(PacketBuilder::ethernet2([1; 6], [2; 6]).ip(etherparse::IpHeaders::Ipv4(ip, Default::default())), payload)
    }

    fn kinds(payload: &[u8]) -> [Vec<u8>; 3] {
        [frame(payload), frame_v6(payload), frame_with_options(payload)]
    }

    /// The frame with its checksum as the kernel finishes it, judged by somebody else's reading.
    fn finished(frame: &[u8], offload: &Offload) -> Vec<u8> {
        let tcp = &frame[usize::from(offload.checksum_start)..];
        let mut sum = tcp.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum::<u32>();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let checksum = !(sum as u16);
        let mut whole = frame.to_vec();
        let at = usize::from(offload.checksum_start + offload.checksum_offset);
        whole[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        let tcp = TcpSlice::from_slice(&whole[usize::from(offload.checksum_start)..]).unwrap();
        match Segment::parse(&whole).unwrap().flow.from.ip() {
            IpAddr::V4(_) => {
                let ip = Ipv4HeaderSlice::from_slice(&whole[ETHERNET..]).unwrap();
                assert_eq!(tcp.calc_checksum_ipv4(ip.source(), ip.destination()).unwrap(), checksum);
                assert_eq!(ip.to_header().calc_header_checksum(), ip.header_checksum());
            }
            IpAddr::V6(_) => {
                let ip = Ipv6HeaderSlice::from_slice(&whole[ETHERNET..]).unwrap();
                assert_eq!(tcp.calc_checksum_ipv6(ip.source(), ip.destination()).unwrap(), checksum);
            }
        }
        whole
    }

    #[test]
    fn a_segment_is_read_trimmed_and_finished() {
        for mut bytes in kinds(b"0123456789") {
            let mut segment = Segment::parse(&bytes).unwrap();
            assert!(segment.is_whole(&bytes, &Offload::default()));
            assert_eq!((segment.sequence, segment.acknowledged, segment.payload_bytes()), (1_000, 77, 10));
            assert_eq!((segment.time(&bytes), segment.window_scale(&bytes)), (Some(123), Some(7)));
            assert_eq!(segment.times(&bytes), Some([0, 0, 0, 123, 0, 0, 1, 200]));
            assert_eq!((segment.flow.from.port(), segment.flow.to.port()), (4_000, 5_000));
            segment.set_time(&mut bytes, 124);
            let length = segment.trim(&mut bytes, 4);
            bytes.truncate(length);
            bytes[segment.payload()].copy_from_slice(b"abcd");
            let mut offload = Offload::default();
            segment.finish(&mut bytes, &mut offload);
            let whole = finished(&bytes, &offload);
            let again = Segment::parse(&whole).unwrap();
            assert_eq!((again.payload_bytes(), again.time(&whole)), (4, Some(124)));
            assert!(again.is_whole(&whole, &Offload::default()));
        }
    }

    #[test]
    fn another_window_leaves_the_checksum_as_right_or_wrong_as_it_was() {
        for (bytes, window) in kinds(b"abc").iter().flat_map(|bytes| [0, 1, 60_000, 65_535].map(|window| (bytes, window))) {
            let mut right = bytes.clone();
            Segment::parse(bytes).unwrap().set_window(&mut right, &Offload::default(), window);
            let segment = Segment::parse(&right).unwrap();
            assert_eq!(segment.window, window);
            assert!(segment.is_whole(&right, &Offload::default()));
            let mut wrong = bytes.clone();
            *wrong.last_mut().unwrap() ^= 1;
            Segment::parse(&wrong).unwrap().set_window(&mut wrong, &Offload::default(), window);
            assert!(!Segment::parse(&wrong).unwrap().is_whole(&wrong, &Offload::default()));
            // Where the kernel finishes it, it holds the addresses only.
            let mut unfinished = bytes.clone();
            let mut offload = Offload::default();
            Segment::parse(bytes).unwrap().finish(&mut unfinished, &mut offload);
            Segment::parse(bytes).unwrap().set_window(&mut unfinished, &offload, window);
            let whole = finished(&unfinished, &offload);
            assert_eq!(Segment::parse(&whole).unwrap().window, window);
        }
    }

    /// Whatever bit is turned over behind the Ethernet header, the frame is damaged, or no segment any more.
    #[test]
    fn every_bit_that_is_turned_over_is_noticed() {
        for good in kinds(b"some payload of odd length") {
            for bit in 8 * ETHERNET..8 * good.len() {
                let mut bad = good.clone();
                bad[bit / 8] ^= 1 << (bit % 8);
                if let Look::Segment(segment) = look(&bad) {
                    // IPv6 has no checksum of its header: these bits are of the traffic class, the flow label and the hop limit.
                    let place = bit - 8 * ETHERNET;
                    let unprotected = good[ETHERNET] >> 4 == 6 && ((0..4).contains(&place) || (8..32).contains(&place) || place / 8 == 7);
                    assert_eq!(segment.is_whole(&bad, &Offload::default()), unprotected, "bit {bit}");
                    assert!(segment.is_whole(&bad, &Offload { flags: Offload::CHECKSUM_VALID, ..Offload::default() }));
                }
            }
        }
    }

    #[test]
    fn a_reset_a_word_and_a_window_are_made_for_both_ends() {
        for bytes in kinds(b"x") {
            let segment = Segment::parse(&bytes).unwrap();
            let place = Place { sequence: 5, acknowledged: 6, times: segment.times(&bytes) };
            let (offload, there) = reset(&bytes, &segment, place);
            let there = finished(&there, &offload);
            let read = Segment::parse(&there).unwrap();
            assert!(read.flags.rst && read.sequence == 5 && read.acknowledged == 6 && read.payload_bytes() == 0);
            let (template, turned_segment) = turned(&bytes, &segment);
            let (offload, back) = word(&template, &turned_segment, place, 9, b"why");
            let back = finished(&back, &offload);
            let read = Segment::parse(&back).unwrap();
            assert_eq!((read.flow, read.sequence, read.window, read.time(&back)), (segment.flow.reverse(), 5, 9, Some(123)));
            assert_eq!(&back[read.payload()], b"why");
            assert_eq!((&back[..6], &back[6..12]), (&bytes[6..12], &bytes[..6]));
            let (offload, update) = window_update(&template, &turned_segment, Place { times: None, ..place }, 11);
            let read = Segment::parse(&finished(&update, &offload)).unwrap();
            assert!(read.window == 11 && read.flags.ack && !read.flags.rst && read.payload_bytes() == 0);
        }
    }

    #[test]
    fn another_acknowledgement_has_a_right_checksum_and_other_blocks() {
        let options = |blocks: &[(u32, u32)]| {
            let more = [1, 2, 3].map(|at| blocks.get(at).copied());
            [TcpOptionElement::Timestamp(123, 456), TcpOptionElement::SelectiveAcknowledgement(blocks[0], more)]
        };
        let ip = || PacketBuilder::ethernet2([1; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64);
        let frame = |blocks: &[(u32, u32)]| {
            let mut frame = Vec::new();
            ip().tcp(4_000, 5_000, 1_000, 60_000).ack(77).options(&options(blocks)).unwrap().write(&mut frame, &[]).unwrap();
            frame
        };
        let said = |frame: &[u8]| {
            let segment = Segment::parse(frame).unwrap();
            let options = &frame[segment.tcp_at + TCP_OPTIONS..segment.payload_at];
            sack(options).map_or(Vec::new(), |blocks| options[blocks].to_vec())
        };
        assert!(Segment::parse(&frame(&[(78, 90)])).unwrap().lacks_something(&frame(&[(78, 90)])));
        assert!(!Segment::parse(&frame(&[(70, 77)])).unwrap().lacks_something(&frame(&[(70, 77)])), "it has come twice");
        for (before, blocks, expected) in [(1, 0, 0), (1, 2, 1), (2, 2, 2), (3, 1, 1)] {
            let mut bytes = frame(&[(100, 110), (120, 130), (140, 150)][..before]);
            let (mut segment, mut offload) = (Segment::parse(&bytes).unwrap(), Offload::default());
            let given = [[200, 210], [220, 230]];
            segment.acknowledge(&mut bytes, &mut offload, 99, 7, &given[..blocks]);
            let whole = finished(&bytes, &offload);
            let read = Segment::parse(&whole).unwrap();
            assert_eq!((read.acknowledged, read.window, read.time(&whole)), (99, 7, Some(123)));
            let expected: Vec<u8> = given[..expected].iter().flatten().flat_map(|end: &u32| end.to_be_bytes()).collect();
            assert_eq!(said(&whole), expected);
        }
        let bytes = frame(&[(100, 110)]);
        let segment = Segment::parse(&bytes).unwrap();
        let place = Place { sequence: 5, acknowledged: 6, times: Some([1; 8]) };
        let (offload, made) = answer(&bytes, &segment, place, 9, &[[8, 9], [11, 12], [14, 15]]);
        let made = finished(&made, &offload);
        assert_eq!((said(&made).len(), Segment::parse(&made).unwrap().acknowledged), (3 * SACK_BLOCK, 6));
    }

    #[test]
    fn messages_that_cannot_be_summed_are_told_from_the_rest() {
        let message = [&STREAM_MAGIC[..], &[0; 40]].concat();
        let tagged = |frame: &[u8]| [&frame[..12], &[0x81, 0, 0, 5], &frame[12..]].concat();
        for (payload, ours) in [(&message[..], true), (&[1; 44], false)] {
            for frame in [frame(payload), frame_v6(payload)] {
                let looks = [look(&tagged(&frame)), look(&tagged(&tagged(&frame)))];
                assert!(looks.iter().all(|look| matches!(look, Look::Unsummed(Unsummed::Tagged)) == ours), "{looks:?}");
            }
            let v6 = frame_v6(payload);
            let mut extended = [&v6[..54], &[6, 0, 1, 4, 0, 0, 0, 0], &v6[54..]].concat();
            extended[20] = 60;
            extended[18..20].copy_from_slice(&((v6.len() - 54 + 8) as u16).to_be_bytes());
            assert_eq!(matches!(look(&extended), Look::Unsummed(Unsummed::Extension)), ours);
            // The same place taken by a fragment's header.
            (extended[20], extended[55], extended[56], extended[57]) = (44, 0, 0, 1);
            assert!(matches!(look(&extended), Look::Fragment(_, begins) if begins == ours), "{:?}", look(&extended));
            extended[57] = 9;
            assert!(matches!(look(&extended), Look::Other));
            let mut fragment = frame(payload);
            fragment[20] |= 0x20;
            Segment { payload_end: fragment.len(), ..Segment::parse(&frame(payload)).unwrap() }.write_length(&mut fragment);
            assert!(matches!(look(&fragment), Look::Fragment(flow, begins) if begins == ours && flow.to.port() == 5_000));
        }
    }

    #[test]
    fn other_frames_and_cut_ones_are_left_alone() {
        for good in kinds(b"payload") {
            for length in 0..good.len() {
                assert!(Segment::parse(&good[..length]).is_none());
            }
            for at in 12..good.len() {
                for value in 0..=255 {
                    let mut bad = good.clone();
                    bad[at] = value;
                    if let Some(segment) = Segment::parse(&bad) {
                        assert!(segment.payload().end <= bad.len() && segment.payload().start <= segment.payload().end);
                    }
                }
            }
        }
    }
}
