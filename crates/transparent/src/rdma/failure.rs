//! Why a ring is ended, or a connection refused.

use std::fmt;
use std::net::Ipv4Addr;

/// See the module's documentation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// A header says something else than the ring's description.
    Field { rank: u16, field: &'static str, value: u64, expected: u64 },
    /// A worker declares another element type or operator than the switch was told.
    Declared { rank: u16, value: u16, expected: u16, told: String },
    /// Two workers' messages have different lengths.
    Lengths { rank: u16, message: u32, length: u32, other: u16, expected: u32 },
    /// A worker has more messages under way than it may.
    Window { rank: u16, message: u32, window: u32 },
    /// A message does not follow the one before.
    Gap { rank: u16, message: u32, psn: u32, expected: u32 },
    /// A packet comes again and is another one.
    Changed { rank: u16, psn: u32 },
    /// Something else is written by a ring's connection.
    Headless { rank: u16, queue_pair: u32 },
    /// Packets of one number have different lengths.
    Differ { who: String },
    /// The card of a worker has ended a connection.
    Refused { rank: u16, by: u16, syndrome: u8 },
    /// Workers do not answer.
    Silent { ranks: Vec<u16>, for_ms: u64 },
    /// A run begins while it is not certain that another connection is not of it.
    Doubtful { rank: u16, other: u16 },
    /// What another switch says.
    Told { why: String },
    /// A switch that is needed is gone, or was restarted.
    Beyond { interface: String, is_restart: bool },
    /// A worker sends here, and another switch should have him.
    Elsewhere { rank: u16, address: Ipv4Addr },
    /// Not all ranks are known, since another switch does not answer.
    Unready,
    /// A connection has shown no beginning: the switch was restarted in between, or the run is over.
    NoBeginning { rank: u16, queue_pair: u32 },
}

impl Failure {
    /// Whom the ring is ended because of.
    pub fn rank(&self) -> Option<u16> {
        match self {
            Failure::Field { rank, .. }
            | Failure::Declared { rank, .. }
            | Failure::Lengths { rank, .. }
            | Failure::Window { rank, .. }
            | Failure::Gap { rank, .. }
            | Failure::Changed { rank, .. }
            | Failure::Headless { rank, .. }
            | Failure::Refused { by: rank, .. }
            | Failure::Doubtful { rank, .. }
            | Failure::Elsewhere { rank, .. }
            | Failure::NoBeginning { rank, .. } => Some(*rank),
            Failure::Silent { ranks, .. } => ranks.first().copied(),
            Failure::Differ { .. } | Failure::Told { .. } | Failure::Beyond { .. } | Failure::Unready => None,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Field { rank, field, value, expected } => write!(f, "rank {rank} says `{field}` {value} where {expected} is expected"),
            Failure::Declared { rank, value, expected, told } => {
                write!(f, "rank {rank} declares element type and operator {value:#06x} where {expected:#06x}, for {told}, or 0 is expected")
            }
            Failure::Lengths { rank, message, length, other, expected } => {
                write!(f, "message {message} of rank {rank} has {length} bytes where {expected}, as with rank {other}, are expected")
            }
            Failure::Window { rank, message, window } => write!(
                f,
                "rank {rank} sends message {message} before there are all sums of message {}, where at most {window} under way are expected (`window`)",
                message.wrapping_sub(*window)
            ),
            Failure::Gap { rank, message, psn, expected } => {
                write!(
                    f,
                    "message {message} of rank {rank} begins with packet {psn} where {expected} is expected, behind the message before"
                )
            }
            Failure::Changed { rank, psn } => write!(f, "packet {psn} of rank {rank} comes again with other contents"),
            Failure::Headless { rank, queue_pair } => {
                write!(f, "rank {rank} writes something without a header by its connection of the ring, to queue pair {queue_pair}")
            }
            Failure::Differ { who } => write!(f, "packets differ in length, that of {who} first"),
            Failure::Refused { rank, by, syndrome } => {
                write!(f, "the card of rank {by} has refused a packet of rank {rank} and ended their connection (code {syndrome:#04x})")
            }
            Failure::Silent { ranks, for_ms } => {
                let names: Vec<String> = ranks.iter().map(u16::to_string).collect();
                let (word, verb) = if ranks.len() == 1 { ("rank", "does") } else { ("ranks", "do") };
                write!(
                    f,
                    "{word} {} {verb} not answer: silent for {}.{} s, asked again and again, while others wait",
                    names.join(", "),
                    for_ms / 1_000,
                    for_ms / 100 % 10
                )
            }
            Failure::Doubtful { rank, other } => write!(
                f,
                "rank {rank} begins again after rank {other}'s first packet was answered with the sum of the run before, which it may not be of"
            ),
            Failure::Told { why } => f.write_str(why),
            Failure::Beyond { interface, is_restart: true } => {
                write!(f, "the switch behind interface {interface}, which sums together with this one, was restarted")
            }
            Failure::Beyond { interface, is_restart: false } => {
                write!(f, "no transparent switch answers behind interface {interface}, where one has to sum together with this one")
            }
            Failure::Elsewhere { rank, address } => write!(
                f,
                "what rank {rank} at {address} sends comes here unsummed where another switch is to sum it: `here` of one of them is wrong, or that \
                 one was started without the ring"
            ),
            Failure::Unready => f.write_str(
                "not all of the ring's workers are known: `here` leaves some to other switches, and none of those has said that it has them",
            ),
            Failure::NoBeginning { rank, queue_pair } => {
                write!(
                    f,
                    "the beginning of rank {rank}'s connection to queue pair {queue_pair} was not seen, or its run is over; its writes are dropped"
                )
            }
        }
    }
}
