//! What switches say to each other about a ring over RDMA that they sum together, in messages of a [`trunk`](crate::trunk). They are told apart
//! from those about rings over TCP by their first byte.
//!
//! A body is a byte that says which kind it is, the ring's number (2), the CRC-32 of its workers' addresses (4), the epoch (8), and what the kind
//! has, big-endian. Numbers of rings are unique only among neighbours, so the addresses belong to the name. An epoch is what lies between two
//! moments at which all that is held of a ring is forgotten: what is of another one is dropped.

use fanin_core::Malformed;
use fanin_wire::roce::NUMBER_MAX;
use fanin_wire::stream::{checksum, parse_reason, reason};

use super::config::RdmaRing;
use crate::trunk::message::{Reader, bits};

/// The first kind: those of rings over TCP are below.
const FIRST_KIND: u8 = 64;
/// No payload of a packet is longer (InfiniBand Architecture 9.4.3).
const PAYLOAD_MAX: usize = 4_096;
/// In place of a rank.
const NOBODY: u16 = u16::MAX;

/// Whether a message is about a ring over RDMA.
pub(crate) fn is_told(body: &[u8]) -> bool {
    body.first().is_some_and(|kind| *kind >= FIRST_KIND)
}

/// Which ring it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Name {
    pub ring: u16,
    /// The CRC-32 of its workers' addresses.
    pub workers: u32,
}

impl Name {
    pub fn of(config: &RdmaRing) -> Self {
        let addresses: Vec<u8> = config.workers.iter().flat_map(|address| address.octets()).collect();
        Name { ring: config.ring, workers: checksum(0, &addresses) }
    }
}

/// What both ends must have been told alike.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Terms {
    pub workers: u16,
    /// Element type and operator, as [`InaHeader::declared`](fanin_wire::netreduce::InaHeader::declared) has them.
    pub declared: u16,
    pub window: u32,
    pub packets: u16,
    pub payload: u32,
}

impl Terms {
    /// The first one that differs: its name, what the other says, and what is expected.
    pub fn difference(&self, other: &Terms) -> Option<(&'static str, u64, u64)> {
        let pairs = [
            ("workers", u64::from(other.workers), u64::from(self.workers)),
            ("type and operator", u64::from(other.declared), u64::from(self.declared)),
            ("window", u64::from(other.window), u64::from(self.window)),
            ("packets", u64::from(other.packets), u64::from(self.packets)),
            ("payload", u64::from(other.payload), u64::from(self.payload)),
        ];
        pairs.into_iter().find(|(_, value, expected)| value != expected)
    }
}

/// A packet of a sum.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Sum {
    pub message: u32,
    pub offset: u16,
    pub bytes: Vec<u8>,
}

/// What stands before the elements of a packet, for the switch where its receiver is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FarHead {
    pub rank: u16,
    pub message: u32,
    pub offset: u16,
    pub psn: u32,
    /// Length of the elements.
    pub payload_bytes: u16,
    /// Of the message, and how many packets it has.
    pub length: u32,
    pub packets: u16,
    pub bytes: Vec<u8>,
}

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Told {
    /// Up: these ranks are below.
    Ranks { terms: Terms, ranks: Vec<u16> },
    /// Down: all ranks are known.
    Begin,
    /// Up: the sum of those below, and the length of its message.
    Up { sum: Sum, length: u32 },
    /// Down: the sum of all.
    Down(Sum),
    /// A packet of a rank has come where its sender is; the sum leaves in it where its receiver is.
    Head(FarHead),
    /// What is held is forgotten. With a reason, the ring cannot go on; without one, `rank` begins anew: `is_unsure` whether its receiver had
    /// what it sent before.
    Over { why: Option<String>, rank: Option<u16>, is_unsure: bool },
    /// A rank has come for the first time.
    Joined { rank: u16 },
    /// A connection of a rank was refused, and it has no other one.
    Refused { rank: u16, why: String },
    /// Down: these two switches cannot sum the ring together.
    Unfit { why: String },
}

impl Told {
    fn kind(&self) -> u8 {
        FIRST_KIND
            + match self {
                Told::Ranks { .. } => 0,
                Told::Begin => 1,
                Told::Up { .. } => 2,
                Told::Down(_) => 3,
                Told::Head(_) => 4,
                Told::Over { .. } => 5,
                Told::Joined { .. } => 6,
                Told::Refused { .. } => 7,
                Told::Unfit { .. } => 8,
            }
    }

    /// The body of a message.
    pub fn emit(&self, name: Name, epoch: u64) -> Vec<u8> {
        let mut out = vec![self.kind()];
        out.extend_from_slice(&name.ring.to_be_bytes());
        out.extend_from_slice(&name.workers.to_be_bytes());
        out.extend_from_slice(&epoch.to_be_bytes());
        match self {
            Told::Ranks { terms, ranks } => {
                out.extend_from_slice(&terms.workers.to_be_bytes());
                out.extend_from_slice(&terms.declared.to_be_bytes());
                out.extend_from_slice(&terms.window.to_be_bytes());
                out.extend_from_slice(&terms.packets.to_be_bytes());
                out.extend_from_slice(&terms.payload.to_be_bytes());
                out.extend_from_slice(&bits(ranks));
            }
            Told::Begin => {}
            Told::Up { sum, length } => {
                out.extend_from_slice(&length.to_be_bytes());
                emit_sum(sum, &mut out);
            }
            Told::Down(sum) => emit_sum(sum, &mut out),
            Told::Head(head) => {
                out.extend_from_slice(&head.rank.to_be_bytes());
                out.extend_from_slice(&head.message.to_be_bytes());
                out.extend_from_slice(&head.offset.to_be_bytes());
                out.extend_from_slice(&head.psn.to_be_bytes());
                out.extend_from_slice(&head.payload_bytes.to_be_bytes());
                out.extend_from_slice(&head.length.to_be_bytes());
                out.extend_from_slice(&head.packets.to_be_bytes());
                out.extend_from_slice(&head.bytes);
            }
            Told::Over { why, rank, is_unsure } => {
                out.extend_from_slice(&rank.unwrap_or(NOBODY).to_be_bytes());
                out.push(u8::from(*is_unsure));
                if let Some(why) = why {
                    out.extend_from_slice(&reason(why));
                }
            }
            Told::Joined { rank } => out.extend_from_slice(&rank.to_be_bytes()),
            Told::Refused { rank, why } => {
                out.extend_from_slice(&rank.to_be_bytes());
                out.extend_from_slice(&reason(why));
            }
            Told::Unfit { why } => out.extend_from_slice(&reason(why)),
        }
        out
    }

    /// The ring and the epoch that a body names, and what it says.
    ///
    /// # Errors
    /// [`Malformed`] names the field that is wrong.
    pub fn parse(body: &[u8]) -> Result<(Name, u64, Told), Malformed> {
        let mut read = Reader(body);
        let kind = read.number(1)?;
        let name = Name { ring: read.word()?, workers: read.number(4)? as u32 };
        let epoch = read.number(8)?;
        let told = match kind.checked_sub(u64::from(FIRST_KIND)) {
            Some(0) => {
                let terms = Terms {
                    workers: read.word()?,
                    declared: read.word()?,
                    window: read.number(4)? as u32,
                    packets: read.word()?,
                    payload: read.number(4)? as u32,
                };
                Told::Ranks { terms, ranks: read.ranks()? }
            }
            Some(1) => Told::Begin,
            Some(2) => {
                let length = read.number(4)? as u32;
                Told::Up { sum: sum(&mut read)?, length }
            }
            Some(3) => Told::Down(sum(&mut read)?),
            Some(4) => Told::Head(far_head(&mut read)?),
            Some(5) => {
                let (rank, is_unsure) = (Some(read.word()?).filter(|rank| *rank != NOBODY), read.number(1)? != 0);
                let why = if read.0.is_empty() { None } else { Some(why(&read)?) };
                Told::Over { why, rank, is_unsure }
            }
            Some(6) => Told::Joined { rank: read.word()? },
            Some(7) => Told::Refused { rank: read.word()?, why: why(&read)? },
            Some(8) => Told::Unfit { why: why(&read)? },
            _ => return Err(Malformed::Field { name: "kind", value: kind }),
        };
        Ok((name, epoch, told))
    }
}

fn emit_sum(sum: &Sum, out: &mut Vec<u8>) {
    out.extend_from_slice(&sum.message.to_be_bytes());
    out.extend_from_slice(&sum.offset.to_be_bytes());
    out.extend_from_slice(&sum.bytes);
}

fn sum(read: &mut Reader<'_>) -> Result<Sum, Malformed> {
    let (message, offset) = (read.number(4)? as u32, read.word()?);
    let bytes = std::mem::take(&mut read.0);
    if bytes.is_empty() || bytes.len() > PAYLOAD_MAX {
        return Err(Malformed::Field { name: "sum", value: bytes.len() as u64 });
    }
    Ok(Sum { message, offset, bytes: bytes.to_vec() })
}

fn far_head(read: &mut Reader<'_>) -> Result<FarHead, Malformed> {
    let (rank, message, offset) = (read.word()?, read.number(4)? as u32, read.word()?);
    let psn = read.number(4)?;
    if psn > u64::from(NUMBER_MAX) {
        return Err(Malformed::Field { name: "psn", value: psn });
    }
    let (payload_bytes, length, packets) = (read.word()?, read.number(4)? as u32, read.word()?);
    let bytes = std::mem::take(&mut read.0).to_vec();
    Ok(FarHead { rank, message, offset, psn: psn as u32, payload_bytes, length, packets, bytes })
}

fn why(read: &Reader<'_>) -> Result<String, Malformed> {
    parse_reason(read.0).ok_or(Malformed::Field { name: "reason", value: read.0.len() as u64 })
}

#[cfg(test)]
mod tests {
    use fanin_core::hash::mix;

    use super::*;

    fn all() -> Vec<Told> {
        let terms = Terms { workers: 4, declared: 0x8200, window: 2, packets: 170, payload: 1_024 };
        let sum = || Sum { message: 5, offset: 3, bytes: vec![1, 2, 3, 4] };
        let head = FarHead { rank: 1, message: 5, offset: 3, psn: 0xff_fffe, payload_bytes: 4, length: 99, packets: 9, bytes: vec![7; 60] };
        vec![
            Told::Ranks { terms, ranks: vec![0, 1, 9] },
            Told::Begin,
            Told::Up { sum: sum(), length: 700 },
            Told::Down(sum()),
            Told::Head(head),
            Told::Over { why: None, rank: Some(3), is_unsure: true },
            Told::Over { why: Some("rank 3 is dead".to_owned()), rank: None, is_unsure: false },
            Told::Joined { rank: 2 },
            Told::Refused { rank: 2, why: "it says so".to_owned() },
            Told::Unfit { why: "`window` differs".to_owned() },
        ]
    }

    #[test]
    fn what_is_told_is_understood_and_what_is_cut_short_is_not() {
        let name = Name { ring: 7, workers: 0xdead_beef };
        for told in all() {
            let body = told.emit(name, 11);
            assert!(is_told(&body));
            assert_eq!(Told::parse(&body), Ok((name, 11, told.clone())));
            for length in 0..15 {
                assert!(Told::parse(&body[..length]).is_err(), "{told:?} of {length} bytes");
            }
        }
        let wrong = |at: usize, value: u8, told: &Told| {
            let mut body = told.emit(name, 11);
            body[at] = value;
            Told::parse(&body).map(|_| ()).map_err(|error| error.to_string())
        };
        assert!(wrong(0, 99, &Told::Begin).unwrap_err().contains("kind"));
        assert!(wrong(23, 1, &all()[4]).unwrap_err().contains("psn"), "it has 24 bits");
        assert!(Told::parse(&Told::Down(Sum { message: 0, offset: 0, bytes: vec![0; 4_097] }).emit(name, 0)).is_err());
    }

    #[test]
    fn any_bytes_are_refused_or_survive() {
        for seed in 0..20_000u64 {
            let all = all();
            let mut body = all[seed as usize % all.len()].emit(Name { ring: 7, workers: 1 }, seed);
            for change in 0..1 + mix(seed, 0) % 4 {
                let draw = mix(seed, 1 + change);
                let at = draw as usize % body.len();
                body[at] = (draw >> 32) as u8;
            }
            body.truncate(1 + mix(seed, 9) as usize % (2 * body.len()));
            if let Ok((name, epoch, told)) = Told::parse(&body) {
                let again = told.emit(name, epoch);
                assert_eq!(Told::parse(&again), Ok((name, epoch, told)), "seed {seed}");
            }
        }
    }
}
