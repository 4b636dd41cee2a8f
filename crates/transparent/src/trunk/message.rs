//! What switches say to each other about a ring. It is named by the run that the switch below has given it, in both directions.
//!
//! A body is a byte that says which kind it is, the run (8), and what the kind has, big-endian. A connection is its family (2), the ports of its
//! ends (2, 2) and their addresses (16, 16).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use fanin_core::Malformed;
use fanin_wire::stream::{parse_reason, reason};

use crate::segment::Flow;

/// The most bytes of a vector in a message: a segment of TCP with a time brings as many, and the frame fits any network.
pub(crate) const PIECE_MAX: usize = 1_448;
/// No stream is longer: 32 times the longest vector.
const OFFSET_MAX: u64 = 1 << 45;
/// The longest headers of a segment: Ethernet, IPv6 or IPv4 with options, TCP with options.
const HEADS_MAX: usize = 14 + 60 + 60;
const FLOW: usize = 38;
/// Of the ranks of a ring, a bit each: at most 1024.
const BITS_MAX: usize = 128;

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Said {
    /// Up: a rank is behind the switch below.
    Rank { ring: u32, world: u16, rank: u16, flow: Flow },
    /// Down: all ranks are known, and these ones are below. So much of each stream is kept above.
    Begin { memory: u64, ranks: Vec<u16> },
    /// Up: the sum of those below.
    Part { offset: u64, bytes: Vec<u8> },
    /// Down: the sum of all.
    Whole { offset: u64, bytes: Vec<u8> },
    /// A segment of a rank has come where its sender is; it leaves where its receiver is.
    Segment { rank: u16, offset: u64, stub: Stub },
    /// Down: sums are taken up to here.
    Room { to: u64 },
    /// Up: all receivers below have what lies below.
    Released { to: u64 },
    /// A rank has ended, as the stream of rank `of` shows at byte `at`.
    End { rank: u16, of: u16, at: u64 },
    /// Somebody has left: whoever comes now belongs to another run.
    Closing,
    /// Up: nobody of the run is left below.
    Over,
    /// The ring cannot go on.
    Fails { why: String },
}

/// A frame of a segment without its payload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Stub {
    pub payload_bytes: u16,
    /// How the kernel is to cut it up.
    pub gso_type: u8,
    pub gso_bytes: u16,
    pub header_bytes: u16,
    /// All before the payload.
    pub heads: Vec<u8>,
}

/// Reads one field after the other.
pub(crate) struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (front, rest) = self.0.split_at_checked(count).ok_or(Malformed::Truncated { needed: count, got: self.0.len() })?;
        self.0 = rest;
        Ok(front)
    }

    pub fn number(&mut self, count: usize) -> Result<u64, Malformed> {
        Ok(self.bytes(count)?.iter().fold(0, |all, byte| all << 8 | u64::from(*byte)))
    }

    pub fn word(&mut self) -> Result<u16, Malformed> {
        Ok(self.number(2)? as u16)
    }

    /// Ranks as [`bits`] writes them, to the end.
    pub fn ranks(&mut self) -> Result<Vec<u16>, Malformed> {
        let bits = self.bytes(self.0.len().min(BITS_MAX))?;
        Ok((0..bits.len() as u16 * 8).filter(|rank| bits[usize::from(*rank) / 8] >> (rank % 8) & 1 == 1).collect())
    }

    fn offset(&mut self) -> Result<u64, Malformed> {
        let value = self.number(8)?;
        if value <= OFFSET_MAX { Ok(value) } else { Err(Malformed::Field { name: "offset", value }) }
    }

    fn piece(&mut self) -> Result<Vec<u8>, Malformed> {
        let bytes = std::mem::take(&mut self.0);
        if bytes.is_empty() || bytes.len() > PIECE_MAX {
            return Err(Malformed::Field { name: "piece", value: bytes.len() as u64 });
        }
        Ok(bytes.to_vec())
    }

    fn flow(&mut self) -> Result<Flow, Malformed> {
        let (family, from, to) = (self.word()?, self.word()?, self.word()?);
        let mut address = || -> Result<IpAddr, Malformed> {
            let mut octets = [0; 16];
            octets.copy_from_slice(self.bytes(16)?);
            let v4 = Ipv4Addr::from([octets[12], octets[13], octets[14], octets[15]]);
            match family {
                4 => Ok(v4.into()),
                6 => Ok(Ipv6Addr::from(octets).into()),
                _ => Err(Malformed::Field { name: "family", value: family.into() }),
            }
        };
        Ok(Flow { from: SocketAddr::new(address()?, from), to: SocketAddr::new(address()?, to) })
    }

    fn stub(&mut self) -> Result<Stub, Malformed> {
        let (payload_bytes, gso_type) = (self.word()?, self.number(1)? as u8);
        let (gso_bytes, header_bytes) = (self.word()?, self.word()?);
        let heads = std::mem::take(&mut self.0).to_vec();
        if heads.len() > HEADS_MAX {
            return Err(Malformed::Field { name: "heads", value: heads.len() as u64 });
        }
        Ok(Stub { payload_bytes, gso_type, gso_bytes, header_bytes, heads })
    }
}

/// A bit for each rank: any network takes that many.
pub(crate) fn bits(ranks: &[u16]) -> Vec<u8> {
    let mut bits = vec![0u8; ranks.iter().max().map_or(0, |last| usize::from(*last) / 8 + 1)];
    ranks.iter().for_each(|rank| bits[usize::from(*rank) / 8] |= 1 << (rank % 8));
    bits
}

fn emit_flow(flow: Flow, out: &mut Vec<u8>) {
    let octets = |address: SocketAddr| match address.ip() {
        IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
        IpAddr::V6(ip) => ip.octets(),
    };
    out.reserve(FLOW);
    for word in [if flow.from.is_ipv6() { 6 } else { 4 }, flow.from.port(), flow.to.port()] {
        out.extend_from_slice(&word.to_be_bytes());
    }
    out.extend_from_slice(&octets(flow.from));
    out.extend_from_slice(&octets(flow.to));
}

impl Said {
    fn kind(&self) -> u8 {
        match self {
            Said::Rank { .. } => 0,
            Said::Begin { .. } => 1,
            Said::Part { .. } => 2,
            Said::Whole { .. } => 3,
            Said::Segment { .. } => 4,
            Said::Room { .. } => 5,
            Said::Released { .. } => 6,
            Said::End { .. } => 7,
            Said::Closing => 8,
            Said::Over => 9,
            Said::Fails { .. } => 10,
        }
    }

    /// The body of a message.
    pub fn emit(&self, run: u64) -> Vec<u8> {
        let mut out = vec![self.kind()];
        out.extend_from_slice(&run.to_be_bytes());
        match self {
            Said::Rank { ring, world, rank, flow } => {
                out.extend_from_slice(&ring.to_be_bytes());
                out.extend_from_slice(&world.to_be_bytes());
                out.extend_from_slice(&rank.to_be_bytes());
                emit_flow(*flow, &mut out);
            }
            Said::Begin { memory, ranks } => {
                out.extend_from_slice(&memory.to_be_bytes());
                out.extend_from_slice(&bits(ranks));
            }
            Said::Part { offset, bytes } | Said::Whole { offset, bytes } => {
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(bytes);
            }
            Said::Segment { rank, offset, stub } => {
                out.extend_from_slice(&rank.to_be_bytes());
                out.extend_from_slice(&offset.to_be_bytes());
                out.extend_from_slice(&stub.payload_bytes.to_be_bytes());
                out.push(stub.gso_type);
                out.extend_from_slice(&stub.gso_bytes.to_be_bytes());
                out.extend_from_slice(&stub.header_bytes.to_be_bytes());
                out.extend_from_slice(&stub.heads);
            }
            Said::Room { to } | Said::Released { to } => out.extend_from_slice(&to.to_be_bytes()),
            Said::End { rank, of, at } => {
                out.extend_from_slice(&rank.to_be_bytes());
                out.extend_from_slice(&of.to_be_bytes());
                out.extend_from_slice(&at.to_be_bytes());
            }
            Said::Closing | Said::Over => {}
            Said::Fails { why } => out.extend_from_slice(&reason(why)),
        }
        out
    }

    /// The run that a body names, and what it says of it.
    ///
    /// # Errors
    /// [`Malformed`] names the field that is wrong.
    pub fn parse(body: &[u8]) -> Result<(u64, Said), Malformed> {
        let mut read = Reader(body);
        let (kind, run) = (read.number(1)?, read.number(8)?);
        let said = match kind {
            0 => Said::Rank { ring: read.number(4)? as u32, world: read.word()?, rank: read.word()?, flow: read.flow()? },
            1 => {
                let memory = read.number(8)?;
                Said::Begin { memory, ranks: read.ranks()? }
            }
            2 => Said::Part { offset: read.offset()?, bytes: read.piece()? },
            3 => Said::Whole { offset: read.offset()?, bytes: read.piece()? },
            4 => Said::Segment { rank: read.word()?, offset: read.offset()?, stub: read.stub()? },
            5 => Said::Room { to: read.offset()? },
            6 => Said::Released { to: read.offset()? },
            7 => Said::End { rank: read.word()?, of: read.word()?, at: read.offset()? },
            8 => Said::Closing,
            9 => Said::Over,
            10 => Said::Fails { why: parse_reason(read.0).ok_or(Malformed::Field { name: "reason", value: read.0.len() as u64 })? },
            _ => return Err(Malformed::Field { name: "kind", value: kind }),
        };
        Ok((run, said))
    }
}
