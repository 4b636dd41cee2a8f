//! The connections that are summed with each other.

use std::fmt;
use std::ops::Range;

use fanin_core::{Duration, Instant};
use fanin_protocols::shared::splice::{Splice, SpliceError};
use fanin_wire::stream::MessageHeader;

use crate::segment::Flow;

/// Why a ring, or one who wants to join it, cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The streams differ.
    Splice(SpliceError),
    /// A stream has ended, and others go on.
    Ended { rank: u16 },
    /// Another number of workers than the ring has.
    World { ring: u16, got: u16 },
    /// There is somebody of that rank already.
    Taken { rank: u16, by: Flow },
    /// The switch has as many rings as it may.
    TooManyRings,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Splice(error) => error.fmt(f),
            Failure::Ended { rank } => write!(f, "rank {rank} has ended, and others wait for more of it"),
            Failure::World { ring, got } => write!(f, "field `world` is {got}, and the ring's other workers say {ring}"),
            Failure::Taken { rank, by } => write!(f, "rank {rank} is at {} already", by.from),
            Failure::TooManyRings => f.write_str("there are as many rings as this switch takes"),
        }
    }
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Ring {
    pub splice: Splice,
    pub world: u16,
    /// By rank.
    pub members: Vec<Option<Flow>>,
    /// How many have ever joined.
    pub joined: u16,
    /// A rank whose connection is gone, and up to where its receiver had everything.
    pub ended: Option<(u16, u64)>,
    /// When something was last complete.
    pub moved: Instant,
    reported: Instant,
    /// Memory for ranges.
    pub complete: Vec<Range<u64>>,
}

impl Ring {
    pub fn new(now: Instant, number: u32, world: u16, stream_bytes: usize) -> Self {
        Ring {
            splice: Splice::new(number, world, stream_bytes),
            world,
            members: vec![None; usize::from(world)],
            joined: 0,
            ended: None,
            moved: now,
            reported: now,
            complete: Vec::new(),
        }
    }

    pub fn join(&mut self, flow: Flow, header: &MessageHeader) -> Result<(), Failure> {
        if header.world != self.world {
            return Err(Failure::World { ring: self.world, got: header.world });
        }
        let member = &mut self.members[usize::from(header.rank)];
        if let Some(by) = *member {
            return Err(Failure::Taken { rank: header.rank, by });
        }
        *member = Some(flow);
        self.joined += 1;
        Ok(())
    }

    /// Whether that was the last one.
    pub fn leave(&mut self, rank: u16) -> bool {
        self.members[usize::from(rank)] = None;
        self.members.iter().all(Option::is_none)
    }

    pub fn flows(&self) -> impl Iterator<Item = Flow> {
        self.members.iter().flatten().copied()
    }

    /// Says whom a ring waits for in which nothing has moved for so long.
    pub fn report_stall(&mut self, now: Instant, number: u32, after: Duration) {
        if now.since(self.moved) < after || now.since(self.reported) < after {
            return;
        }
        if let Some(waits) = self.splice.waits() {
            self.reported = now;
            let at: Vec<String> = waits
                .ranks
                .iter()
                .map(|&rank| match self.members[usize::from(rank)] {
                    Some(flow) => format!("{rank} at {}", flow.from),
                    None => format!("{rank}, which has not come yet"),
                })
                .collect();
            let waited = now.since(self.moved).as_s_f64();
            tracing::warn!(
                ring = number,
                message = waits.message,
                "for {waited:.1} s nothing moves: waiting for rank {}",
                at.join(", rank ")
            );
        }
    }
}
