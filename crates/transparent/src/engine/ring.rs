//! The connections that are summed with each other.

pub(super) mod tree;

use std::fmt;
use std::net::SocketAddr;
use std::ops::Range;

use fanin_core::{Duration, Instant};
use fanin_protocols::shared::splice::{Splice, SpliceError};

use crate::segment::Flow;
use tree::{Child, Tree};

/// So much later than a switch below, which sees the workers, the one above gives up: more than a tick, and the way between them.
const MARGIN: Duration = Duration::from_us(3_000_000);

/// Why a ring, or one who wants to join it, cannot go on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Failure {
    /// The streams differ.
    Splice(SpliceError),
    /// A stream has ended, and others go on.
    Ended { rank: u16, at: Option<SocketAddr>, waited: Option<Waited> },
    /// Another number of workers than the ring has.
    World { ring: u16, got: u16 },
    /// There is somebody of that rank already.
    Taken { rank: u16, by: Flow },
    /// The receiver of a rank is not the sender of the next one.
    Apart { rank: u16, ends_at: SocketAddr, next: u16, sends_from: SocketAddr },
    /// A rank comes twice before anything was summed: nobody knows whose job the others are of.
    Twice { rank: u16, one: Flow, other: Box<Flow> },
    /// Beside a rank's connection there is one that fits the ring better.
    Mixed { rank: u16, member: Flow, other: Box<Flow> },
    /// A rank comes again from where it was: the run before is over.
    Again { rank: u16, at: SocketAddr },
    /// The switch has as many rings as it may.
    TooManyRings { most: usize },
    /// An interface is out of service.
    Interface { rank: u16, at: SocketAddr, name: String },
    /// A member's segments come in fragments.
    Fragments { rank: u16, at: SocketAddr },
    /// Nothing has moved for too long.
    Stalled(Waited),
    /// What another switch says.
    Told(String),
    /// A switch that is needed has gone, was restarted, or was never there.
    Beyond { interface: String, is_restart: bool },
    /// A rank has come that another switch has, too.
    Besides { rank: u16 },
    /// The switch behind an interface sends more than it may.
    TooMuch { interface: String },
    /// A rank's segments pass another switch, and its connection was never seen here.
    Unseen { rank: u16, at: SocketAddr },
    /// What a rank has sent comes from another switch as it was sent.
    Unsummed { rank: u16, at: SocketAddr, interface: String },
    /// Some connections pass only here and some only at another switch.
    Divided { here: u16, there: u16, from: SocketAddr, to: SocketAddr, interface: String },
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Splice(error) => error.fmt(f),
            Failure::Ended { rank, at, waited } => {
                let at = at.map(|at| format!(" at {at}")).unwrap_or_default();
                match waited {
                    Some(waited) => write!(f, "rank {rank}{at} has ended after {waited}"),
                    None => write!(f, "rank {rank}{at} has ended, and others wait for more of it"),
                }
            }
            Failure::World { ring, got } => write!(f, "field `world` is {got}, and the ring's other workers say {ring}"),
            Failure::Taken { rank, by } => {
                write!(f, "rank {rank} is at {} already: another job has the same ring number, or a rank was given twice", by.from)
            }
            Failure::Apart { rank, ends_at, next, sends_from } => write!(
                f,
                "rank {rank}'s connection ends at {ends_at}, and rank {next} sends from {sends_from}, where the same host is expected: two jobs \
                 have the same ring number, or workers are in another order"
            ),
            Failure::Twice { rank, one, other } => {
                write!(
                    f,
                    "rank {rank} comes by {} to {} and by {} to {}: two jobs have the same ring number",
                    one.from, one.to, other.from, other.to
                )
            }
            Failure::Mixed { rank, member, other } => write!(
                f,
                "rank {rank} comes by {} to {}, and beside it there is a connection from {} to {}, where others of the ring listen, too: two jobs \
                 have the same ring number",
                member.from, member.to, other.from, other.to
            ),
            Failure::Again { rank, at } => write!(f, "rank {rank} begins anew at {at}: the run before is over"),
            Failure::TooManyRings { most } => write!(f, "there are {most} rings, as many as this switch takes (--rings-max)"),
            Failure::Interface { rank, at, name } => {
                write!(f, "interface {name}, behind which rank {rank} at {at} is, is out of service")
            }
            Failure::Fragments { rank, at } => write!(f, "segments of rank {rank} at {at} come in fragments, which cannot be summed"),
            Failure::Stalled(waited) => waited.fmt(f),
            Failure::Told(why) => f.write_str(why),
            Failure::Beyond { interface, is_restart: true } => {
                write!(f, "the switch behind interface {interface}, which sums together with this one, was restarted")
            }
            Failure::Beyond { interface, is_restart: false } => {
                write!(f, "no transparent switch answers behind interface {interface}, where one has to sum together with this one")
            }
            Failure::Besides { rank } => {
                write!(f, "rank {rank} has come, and another switch has it, too: two jobs have the same ring number")
            }
            Failure::TooMuch { interface } => write!(f, "the switch behind interface {interface} has sent more than there is room for"),
            Failure::Unseen { rank, at } => {
                write!(f, "rank {rank} at {at} is behind another switch, and the beginning of its connection was not seen here")
            }
            Failure::Unsummed { rank, at, interface } => write!(
                f,
                "what rank {rank} at {at} has sent comes by interface {interface} as it was sent: the switch there, which has summed it, was \
                 restarted"
            ),
            Failure::Divided { here, there, from, to, interface } => write!(
                f,
                "rank {there}'s connection from {from} to {to} passes only another transparent switch, behind {interface}, and rank {here}'s only \
                 this one: one switch has to see the connections of all ranks, or the lower one of two has to know which interface leads up \
                 (--uplink)"
            ),
        }
    }
}

impl Failure {
    /// Whether it concerns only the one who comes: those who are there have done nothing wrong.
    pub fn is_newcomers(&self) -> bool {
        use Failure::{Apart, Besides, Taken, TooManyRings, World};
        matches!(self, World { .. } | Taken { .. } | Apart { .. } | Besides { .. } | TooManyRings { .. })
    }
}

/// How long nothing has moved, and whom everybody waits for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Waited {
    time: Duration,
    message: u32,
    /// For people.
    names: String,
    pub ranks: Vec<u16>,
}

impl fmt::Display for Waited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} s in which nothing has moved in message {}: waited for {}", self.time.as_s_f64(), self.message, self.names)
    }
}

/// Somebody has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct End {
    /// Who.
    pub rank: u16,
    /// Whose stream shows it: its own, or the one that it received.
    pub of: u16,
    /// Where that stream ends.
    pub at: u64,
    /// When.
    pub since: Instant,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Ring {
    pub number: u32,
    pub splice: Splice,
    pub world: u16,
    /// By rank.
    pub members: Vec<Option<Flow>>,
    /// The same, of those who have gone as well: names for the log.
    known: Vec<Option<Flow>>,
    /// How many have ever joined.
    pub joined: u16,
    /// Somebody has left: whoever comes now belongs to another run.
    pub is_closing: bool,
    /// Something was summed.
    pub has_begun: bool,
    /// Who has ended, in the order in which it was seen.
    pub ends: Vec<End>,
    /// When something was last complete, or somebody came.
    pub moved: Instant,
    reported: Instant,
    /// Memory for ranges.
    pub complete: Vec<Range<u64>>,
    /// What other switches have to do with it.
    pub tree: Tree,
}

impl Ring {
    pub fn new(now: Instant, number: u32, world: u16, stream_bytes: usize) -> Self {
        Ring {
            number,
            splice: Splice::new(number, world, stream_bytes),
            world,
            members: vec![None; usize::from(world)],
            known: vec![None; usize::from(world)],
            joined: 0,
            is_closing: false,
            has_begun: false,
            ends: Vec::new(),
            moved: now,
            reported: now,
            complete: Vec::new(),
            tree: Tree::default(),
        }
    }

    /// Where a rank's connection leads, whether it is here or behind a switch below.
    pub fn seat(&self, rank: u16) -> Option<Flow> {
        self.member(rank).or_else(|| self.tree.elsewhere.get(&rank).copied())
    }

    /// All of these.
    pub fn seats(&self) -> impl Iterator<Item = (u16, Flow)> {
        let below = self.tree.elsewhere.iter().filter(|(rank, _)| self.member(**rank).is_none());
        self.ranks().chain(below.map(|(rank, flow)| (*rank, *flow)))
    }

    /// How many ranks are known.
    pub fn known(&self) -> usize {
        self.seats().count()
    }

    /// Whether all have come who are summed, and all whose receivers are here.
    pub fn is_whole(&self) -> bool {
        match self.tree.begun {
            Some(_) => self.tree.given == self.joined,
            None => self.joined == self.world,
        }
    }

    /// A rank behind another switch has its receiver here.
    pub fn seat_noticed(&mut self, flow: Flow, rank: u16) {
        self.members[usize::from(rank)] = Some(flow);
        self.known[usize::from(rank)] = Some(flow);
        self.tree.given += 1;
    }

    pub fn next(&self, rank: u16) -> u16 {
        (rank + 1) % self.world
    }

    pub fn previous(&self, rank: u16) -> u16 {
        (rank + self.world - 1) % self.world
    }

    pub fn member(&self, rank: u16) -> Option<Flow> {
        self.members[usize::from(rank)]
    }

    /// Where a rank is or was, if it has ever come.
    pub fn place(&self, rank: u16) -> Option<SocketAddr> {
        self.known[usize::from(rank)].or_else(|| self.tree.elsewhere.get(&rank).copied()).map(|flow| flow.from)
    }

    /// Whether rank `rank` could have this connection: the receiver of each rank is the sender of the next one, by addresses.
    pub fn fits(&self, rank: u16, flow: Flow) -> Result<(), Failure> {
        let (previous, next) = (self.previous(rank), self.next(rank));
        if let Some(before) = self.seat(previous).filter(|before| before.to.ip() != flow.from.ip()) {
            return Err(Failure::Apart { rank: previous, ends_at: before.to, next: rank, sends_from: flow.from });
        }
        if let Some(after) = self.seat(next).filter(|after| after.from.ip() != flow.to.ip()) {
            return Err(Failure::Apart { rank, ends_at: flow.to, next, sends_from: after.from });
        }
        Ok(())
    }

    /// Whether a newcomer can be one of the ring.
    pub fn admit(&self, flow: Flow, rank: u16, world: u16) -> Result<(), Failure> {
        if world != self.world {
            return Err(Failure::World { ring: self.world, got: world });
        }
        self.fits(rank, flow)?;
        match self.seat(rank) {
            // All are known: whoever has that rank in the ring is behind another switch.
            None if self.tree.begun.is_some() => Err(Failure::Besides { rank }),
            None => Ok(()),
            Some(by) if by.from.ip() == flow.from.ip() && by.to == flow.to => Err(Failure::Again { rank, at: flow.from }),
            Some(by) if !self.has_begun => Err(Failure::Twice { rank, one: by, other: flow.into() }),
            Some(by) => Err(Failure::Taken { rank, by }),
        }
    }

    pub fn join(&mut self, now: Instant, flow: Flow, rank: u16) {
        self.members[usize::from(rank)] = Some(flow);
        self.known[usize::from(rank)] = Some(flow);
        self.joined += 1;
        self.moved = now;
    }

    /// A rank has gone.
    pub fn leave(&mut self, rank: u16) {
        self.members[usize::from(rank)] = None;
        self.is_closing = true;
    }

    pub fn flows(&self) -> impl Iterator<Item = Flow> {
        self.members.iter().flatten().copied()
    }

    /// Those who are there, with their ranks.
    pub fn ranks(&self) -> impl Iterator<Item = (u16, Flow)> {
        (0u16..).zip(&self.members).filter_map(|(rank, flow)| Some((rank, (*flow)?)))
    }

    /// Somebody has ended. What is known already stays where it is: the first sign counts.
    /// Whether it is one.
    pub fn note_end(&mut self, end: End) -> bool {
        let is_new = !self.ends.iter().any(|known| (known.rank, known.of, known.at) == (end.rank, end.of, end.at));
        if is_new {
            self.ends.push(end);
        }
        is_new
    }

    /// The first one that has ended where others cannot go on.
    pub fn first_end(&self) -> Option<End> {
        self.ends.iter().find(|end| self.splice.framed_to() > end.at || self.splice.ends_inside(end.of, end.at)).copied()
    }

    /// What the ring waits for; `None` where it waits for nothing.
    pub fn waited(&self, now: Instant) -> Option<Waited> {
        let waits = self.splice.waits()?;
        let far = |rank: &u16| {
            let at = self.tree.elsewhere.get(rank).map(|flow| format!(" at {}", flow.from));
            format!("{rank}{}", at.unwrap_or_default())
        };
        let name = |&rank: &u16| match self.tree.behind(rank) {
            Some(child) => {
                let all: Vec<String> = child.sorted().iter().map(far).collect();
                let which = if all.len() > 1 { "one of rank " } else { "rank " };
                format!("{which}{}, behind another switch", all.join(", "))
            }
            None => format!("rank {}", self.name(rank)),
        };
        let mut names = waits.ranks.iter().map(name).collect::<Vec<_>>().join(", ");
        if names.is_empty() {
            names.push_str("a rank of other switches");
        }
        Some(Waited { time: now.since(self.moved), message: waits.message, names, ranks: self.waits_for() })
    }

    /// The ranks that the ring waits for; of a switch below, whose sum is missing, all that are behind it.
    pub fn waits_for(&self) -> Vec<u16> {
        let ranks = self.splice.waits().map(|waits| waits.ranks).unwrap_or_default();
        let all = |rank: u16| self.tree.behind(rank).map_or_else(|| vec![rank], Child::sorted);
        let mut ranks: Vec<u16> = ranks.into_iter().flat_map(all).collect();
        ranks.sort_unstable();
        ranks
    }

    /// How long nothing may move: a switch below that sees the workers it waits for is left the time to say which one it is.
    fn patience(&self, own: Duration) -> Duration {
        let is_far = self.splice.waits().is_some_and(|waits| {
            !waits.ranks.is_empty() && waits.ranks.iter().all(|rank| self.tree.behind(*rank).is_some_and(|child| child.ranks.len() > 1))
        });
        if is_far { own + MARGIN } else { own }
    }

    /// A rank as the log calls it.
    fn name(&self, rank: u16) -> String {
        match (self.member(rank), self.place(rank)) {
            (Some(flow), _) => format!("{rank} at {}", flow.from),
            (None, Some(at)) => format!("{rank} at {at}, which has gone"),
            (None, None) => {
                let (before, after) = (self.seat(self.previous(rank)), self.seat(self.next(rank)));
                let from = before.map(|flow| format!(" from {}", flow.to.ip())).unwrap_or_default();
                let to = after.map(|flow| format!(" to {}", flow.from.ip())).unwrap_or_default();
                format!("{rank}, which has not come yet{}{from}{to}", if from.is_empty() && to.is_empty() { "" } else { ": a connection" })
            }
        }
    }

    /// Says whom a ring waits for in which nothing has moved for so long, and gives why it is to end where that was too long. To be called
    /// a few times a second: who waits for nobody does not wait.
    pub fn report_stall(&mut self, now: Instant, after: Duration, patience: Duration) -> Option<Failure> {
        if self.splice.waits().is_none() {
            self.moved = now;
            return None;
        }
        let patience = self.patience(patience);
        // Whoever has all of its own sent on leaves it to the switch above to say for whom all wait.
        let is_above = self.tree.begun == Some(true) && self.splice.waits().is_some_and(|waits| waits.ranks.is_empty());
        let ends = now.since(self.moved) >= patience && !is_above;
        if now.since(self.moved) < after || (now.since(self.reported) < after && !ends) {
            return None;
        }
        let waited = self.waited(now)?;
        self.reported = now;
        if ends {
            return Some(Failure::Stalled(waited));
        }
        let (seconds, left) = (waited.time.as_s_f64(), patience.as_s_f64() - waited.time.as_s_f64());
        tracing::warn!(
            ring = self.number,
            message = waited.message,
            "for {seconds:.1} s nothing moves: waiting for {}; in {left:.0} s the ring is reset",
            waited.names
        );
        None
    }
}
