//! A TCP segment inside an Ethernet frame: what is read of it, and what is written when its payload has become a sum.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::ops::Range;

use etherparse::{EtherType, Ethernet2HeaderSlice, IpNumber, Ipv4HeaderSlice, TcpHeaderSlice};
use fanin_net::Offload;

const ETHERNET: usize = 14;
/// Where fields stand, from the beginning of their header.
const IP_LENGTH: usize = 2;
const IP_CHECKSUM: usize = 10;
const TCP_SEQUENCE: usize = 4;
const TCP_FLAGS: usize = 13;
const TCP_CHECKSUM: usize = 16;
const TCP_OPTIONS: usize = 20;

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
    pub from: SocketAddrV4,
    /// Who receives.
    pub to: SocketAddrV4,
}

impl Flow {
    /// The same connection the other way.
    pub fn reverse(self) -> Flow {
        Flow { from: self.to, to: self.from }
    }
}

/// What a frame says that carries a segment of TCP over IPv4.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub flow: Flow,
    pub sequence: u32,
    pub acknowledged: u32,
    pub flags: Flags,
    tcp_at: usize,
    payload_at: usize,
    payload_end: usize,
    /// Where the sender's time stands, if it does.
    time_at: Option<usize>,
}

impl Segment {
    /// Reads a frame; `None` where it is anything else than a whole segment of TCP over IPv4 without a tag.
    pub fn parse(frame: &[u8]) -> Option<Segment> {
        let ethernet = Ethernet2HeaderSlice::from_slice(frame).ok()?;
        if ethernet.ether_type() != EtherType::IPV4 {
            return None;
        }
        let ip = Ipv4HeaderSlice::from_slice(&frame[ETHERNET..]).ok()?;
        let length = usize::from(ip.total_len());
        let tcp_at = ETHERNET + ip.slice().len();
        let payload_end = ETHERNET + length;
        if ip.protocol() != IpNumber::TCP || ip.is_fragmenting_payload() || payload_end > frame.len() || payload_end < tcp_at {
            return None;
        }
        let tcp = TcpHeaderSlice::from_slice(&frame[tcp_at..payload_end]).ok()?;
        let address = |ip: Ipv4Addr, port| SocketAddrV4::new(ip, port);
        Some(Segment {
            flow: Flow { from: address(ip.source_addr(), tcp.source_port()), to: address(ip.destination_addr(), tcp.destination_port()) },
            sequence: tcp.sequence_number(),
            acknowledged: tcp.acknowledgment_number(),
            flags: Flags { syn: tcp.syn(), ack: tcp.ack(), fin: tcp.fin(), rst: tcp.rst() },
            tcp_at,
            payload_at: tcp_at + tcp.slice().len(),
            payload_end,
            time_at: time_option(tcp.options()).map(|at| tcp_at + TCP_OPTIONS + at),
        })
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

    /// Writes the sender's time.
    pub fn set_time(&self, frame: &mut [u8], time: u32) {
        if let Some(at) = self.time_at {
            frame[at..at + 4].copy_from_slice(&time.to_be_bytes());
        }
    }

    /// Keeps the first `bytes` bytes of the payload, and neither FIN nor PSH. Gives the frame's new length.
    pub fn trim(&mut self, frame: &mut [u8], bytes: u32) -> usize {
        self.payload_end = self.payload_at + (bytes as usize).min(self.payload_end - self.payload_at);
        frame[self.tcp_at + TCP_FLAGS] &= !(0x01 | 0x08);
        self.flags.fin = false;
        write_length(frame, self.payload_end - ETHERNET);
        self.payload_end
    }

    /// Makes the checksum right for what the payload is now, as far as it is ours to do: the kernel adds up the rest where the frame
    /// leaves, or never where nobody looks.
    pub fn finish(&self, frame: &mut [u8], offload: &mut Offload) {
        let length = self.payload_end - self.tcp_at;
        let mut sum = pseudo_header(&self.flow, length);
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        frame[self.tcp_at + TCP_CHECKSUM..][..2].copy_from_slice(&(sum as u16).to_be_bytes());
        offload.flags = Offload::NEEDS_CHECKSUM;
        offload.checksum_start = self.tcp_at as u16;
        offload.checksum_offset = TCP_CHECKSUM as u16;
        if self.payload_bytes() <= u32::from(offload.gso_bytes) || offload.gso_type == 0 {
            (offload.gso_type, offload.gso_bytes, offload.header_bytes) = (0, 0, 0);
        }
    }
}

/// A segment that ends a connection at once, made from the headers of a frame of the same flow: it stands at `sequence`, where the
/// receiver expects the next byte.
pub(crate) fn reset(template: &[u8], segment: &Segment, sequence: u32, acknowledged: u32) -> (Offload, Vec<u8>) {
    let mut frame = template[..segment.tcp_at + TCP_OPTIONS].to_vec();
    let tcp = segment.tcp_at;
    frame[tcp + TCP_SEQUENCE..][..4].copy_from_slice(&sequence.to_be_bytes());
    frame[tcp + TCP_SEQUENCE + 4..][..4].copy_from_slice(&acknowledged.to_be_bytes());
    // 20 bytes of header; RST and ACK; no window, no urgent data.
    frame[tcp + 12..tcp + TCP_OPTIONS].copy_from_slice(&[5 << 4, 0x14, 0, 0, 0, 0, 0, 0]);
    let length = frame.len();
    write_length(&mut frame, length - ETHERNET);
    let made = Segment { payload_at: length, payload_end: length, time_at: None, ..*segment };
    let mut offload = Offload::default();
    made.finish(&mut frame, &mut offload);
    (offload, frame)
}

/// The headers of a frame of the opposite flow.
pub(crate) fn turned(template: &[u8], segment: &Segment) -> (Vec<u8>, Segment) {
    let mut frame = template[..segment.payload_at].to_vec();
    let (ip, tcp) = (ETHERNET, segment.tcp_at);
    swap(&mut frame, 0, 6, 6);
    swap(&mut frame, ip + 12, ip + 16, 4);
    swap(&mut frame, tcp, tcp + 2, 2);
    (frame, Segment { flow: segment.flow.reverse(), ..*segment })
}

fn swap(frame: &mut [u8], a: usize, b: usize, length: usize) {
    (0..length).for_each(|index| frame.swap(a + index, b + index));
}

fn write_length(frame: &mut [u8], length: usize) {
    frame[ETHERNET + IP_LENGTH..][..2].copy_from_slice(&(length as u16).to_be_bytes());
    if let Ok(ip) = Ipv4HeaderSlice::from_slice(&frame[ETHERNET..]) {
        let checksum = ip.to_header().calc_header_checksum();
        frame[ETHERNET + IP_CHECKSUM..][..2].copy_from_slice(&checksum.to_be_bytes());
    }
}

/// What the checksum covers of the addresses, not folded.
fn pseudo_header(flow: &Flow, length: usize) -> u32 {
    let halves = |address: &SocketAddrV4| {
        let bits = address.ip().to_bits();
        (bits >> 16) + (bits & 0xffff)
    };
    halves(&flow.from) + halves(&flow.to) + u32::from(IpNumber::TCP.0) + length as u32
}

/// Where the sender's time stands among a header's options (kind 8, RFC 7323).
fn time_option(options: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match (*options.get(at)?, options.get(at + 1)) {
            (0, _) => return None,
            (1, _) => at += 1,
            (8, Some(10)) if at + 10 <= options.len() => return Some(at + 2),
            (_, Some(&length)) if length >= 2 => at += usize::from(length),
            _ => return None,
        }
    }
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;
    use etherparse::PacketBuilder;

    fn frame(payload: &[u8]) -> Vec<u8> {
        let builder = PacketBuilder::ethernet2([1; 6], [2; 6])
            .ipv4([10, 0, 0, 1], [10, 0, 0, 2], 64)
            .tcp(4_000, 5_000, 1_000, 60_000)
            .ack(77)
            .options(&[etherparse::TcpOptionElement::Noop, etherparse::TcpOptionElement::Timestamp(123, 456)])
            .unwrap();
        let mut frame = Vec::new();
        builder.write(&mut frame, payload).unwrap();
        frame
    }

    /// The checksum as the kernel finishes it.
    fn finished(frame: &[u8], offload: &Offload) -> bool {
        let tcp = &frame[usize::from(offload.checksum_start)..];
        let mut sum = tcp.chunks(2).map(|pair| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0))).sum::<u32>();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        let checksum = !(sum as u16);
        let mut whole = frame.to_vec();
        let at = usize::from(offload.checksum_start + offload.checksum_offset);
        whole[at..at + 2].copy_from_slice(&checksum.to_be_bytes());
        let ip = Ipv4HeaderSlice::from_slice(&whole[ETHERNET..]).unwrap();
        let tcp = TcpHeaderSlice::from_slice(&whole[usize::from(offload.checksum_start)..]).unwrap();
        let payload = &whole[usize::from(offload.checksum_start) + tcp.slice().len()..];
        tcp.calc_checksum_ipv4(&ip, payload).unwrap() == checksum && ip.to_header().calc_header_checksum() == ip.header_checksum()
    }

    #[test]
    fn a_segment_is_read_trimmed_and_finished() {
        let mut bytes = frame(b"0123456789");
        let mut segment = Segment::parse(&bytes).unwrap();
        assert_eq!((segment.sequence, segment.acknowledged, segment.payload_bytes()), (1_000, 77, 10));
        assert_eq!(segment.time(&bytes), Some(123));
        assert_eq!(segment.flow.to_string_pair(), ("10.0.0.1:4000".to_owned(), "10.0.0.2:5000".to_owned()));
        segment.set_time(&mut bytes, 124);
        let length = segment.trim(&mut bytes, 4);
        bytes.truncate(length);
        bytes[segment.payload()].copy_from_slice(b"abcd");
        let mut offload = Offload::default();
        segment.finish(&mut bytes, &mut offload);
        assert!(finished(&bytes, &offload));
        let again = Segment::parse(&bytes).unwrap();
        assert_eq!((again.payload_bytes(), again.time(&bytes)), (4, Some(124)));
    }

    #[test]
    fn a_reset_is_made_for_both_ends() {
        let bytes = frame(b"x");
        let segment = Segment::parse(&bytes).unwrap();
        let (offload, there) = reset(&bytes, &segment, 5, 6);
        assert!(finished(&there, &offload));
        let read = Segment::parse(&there).unwrap();
        assert!(read.flags.rst && read.sequence == 5 && read.acknowledged == 6 && read.payload_bytes() == 0);
        let (template, turned_segment) = turned(&bytes, &segment);
        let (offload, back) = reset(&template, &turned_segment, 7, 8);
        assert!(finished(&back, &offload));
        let read = Segment::parse(&back).unwrap();
        assert_eq!((read.flow, read.sequence), (segment.flow.reverse(), 7));
        assert_eq!((&back[..6], &back[6..12]), (&bytes[6..12], &bytes[..6]));
    }

    #[test]
    fn other_frames_and_cut_ones_are_left_alone() {
        let good = frame(b"payload");
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

    impl Flow {
        fn to_string_pair(self) -> (String, String) {
            (self.from.to_string(), self.to.to_string())
        }
    }
}
