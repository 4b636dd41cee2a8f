//! What workers and switches of a NetReduce job are told when they are made.

use fanin_core::{Address, Duration, FlowLabel, JobId, NodeId, PortId, Rank, Suspect};
use fanin_wire::netreduce::InaHeader;

use crate::shared::connection::Dcqcn;
use crate::shared::reliability::Reliability;

/// The largest ring: connections are named by 16 bits, and a switch marks with the last number what is none.
pub const WORKERS_MAX: u32 = 65_535;

/// How messages are cut, and how many of them may be under way. The same at all workers and switches of a job.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct MessageShape {
    /// N: messages that a worker has under way at most, beyond those whose sums it has.
    pub window: u32,
    /// `MsgLen`: packets of a full message.
    pub packets: u16,
}

impl MessageShape {
    /// The longest window: twice as many messages have room in the number space of packets many times over (`netreduce` P10).
    pub const WINDOW_MAX: u32 = 64;

    /// How many messages switches have slots for: 2N, or the next power of two, so that places are the same when numbers wrap.
    pub(super) const fn kept(self) -> u32 {
        (2 * self.window).next_power_of_two()
    }

    /// Whether a job can have it.
    pub fn is_possible(self) -> bool {
        (1..=Self::WINDOW_MAX).contains(&self.window) && self.packets > 0 && self.kept() * u32::from(self.packets) <= 1 << 22
    }

    /// How many elements the INA header takes in the first packet of a message; `None` where it is not a whole number of them, or leaves
    /// nothing of a packet.
    pub const fn header_elements(element_bytes: u32, block_elements: u32) -> Option<u32> {
        let bytes = InaHeader::LEN as u32;
        if element_bytes == 0 || !bytes.is_multiple_of(element_bytes) || bytes / element_bytes >= block_elements {
            return None;
        }
        Some(bytes / element_bytes)
    }
}

/// What a worker is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NetReduceWorkerConfig<O> {
    /// The job; its number is that of the ring.
    pub job: JobId,
    /// This worker.
    pub rank: Rank,
    /// Number of workers in the job; at most [`WORKERS_MAX`].
    pub workers: u32,
    /// Element type and operator.
    pub op: O,
    /// Length of an element in bytes.
    pub element_bytes: u32,
    /// Length of a full packet's payload in elements.
    pub block_elements: u32,
    /// How messages are cut.
    pub shape: MessageShape,
    /// Whose packets come.
    pub predecessor: NetReducePeer,
    /// Where this worker's packets go.
    pub successor: NetReducePeer,
    /// The port that leads to the worker's switch.
    pub uplink: PortId,
    /// The switch there.
    pub switch: NodeId,
    /// Label of what is sent to other workers, for flow hashing.
    pub flow: FlowLabel,
    /// Loss recovery and patience.
    pub reliability: Reliability,
    /// After how many timeouts in a row a network card gives up its connection; without it only the job's patience ends.
    pub retry_limit: Option<u32>,
    /// The rate of the connection follows congestion marks.
    pub congestion: Option<Dcqcn>,
    /// As at the switch, which sees answers where it recovers what is lost.
    pub recovery: Recovery,
}

/// A neighbour in the ring.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NetReducePeer {
    /// Where it lives.
    pub address: Address,
    /// Who it is.
    pub rank: Rank,
}

/// What a switch is told.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct NetReduceSwitchConfig<O> {
    /// This switch.
    pub node: NodeId,
    /// The job; its number is that of the ring.
    pub job: JobId,
    /// Element type and operator.
    pub op: O,
    /// Number of workers in the job, below this switch or not.
    pub workers: u32,
    /// Length of a full packet's payload in bytes.
    pub block_bytes: u32,
    /// As at the workers.
    pub shape: MessageShape,
    /// Where sums of what is below go; `None` at the only switch of a job and at the root of a tree of switches.
    pub parent: Option<NetReduceParent>,
    /// Who contributes; at least one. Sums are made in this order.
    pub children: Vec<NetReduceChild>,
    /// The connections that begin or end at a worker of this switch.
    pub connections: Vec<NetReduceConnection>,
    /// Label of what is sent beyond the next switch, for flow hashing.
    pub flow: FlowLabel,
    /// How long an operation of the job may make no progress: a switch that leaves questions unanswered for a quarter of it is said to be missing.
    pub patience: Duration,
    /// Something about one slot goes up, and a worker is told who is missing, at most once in this time.
    pub resend_gap: Duration,
    /// How long answers of the cards below are waited for, where the switch recovers what is lost. They come as soon as links and cards let
    /// them: nothing is held on that way, so the shortest timeout may be much shorter than the workers'.
    pub answers: Reliability,
    /// Where the paper is taken at its word.
    pub variants: Variants,
}

/// The switch that this one sends sums to.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NetReduceParent {
    /// The port that leads there.
    pub port: PortId,
    /// The switch there.
    pub node: NodeId,
}

/// A worker of the job at this switch, or a switch below it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NetReduceChild {
    /// The port that leads there.
    pub port: PortId,
    /// Who is there: a rank or a switch.
    pub who: Suspect,
    /// Where the worker lives, where it is not next to this switch: other switches forward what is for it.
    pub through: Option<Address>,
}

/// A connection of the ring as a switch sees it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct NetReduceConnection {
    /// Whose packets it carries.
    pub rank: Rank,
    /// The port of the worker that it ends at, where that is at this switch.
    pub ends_at: Option<PortId>,
    /// Where that worker lives, where it is not next to this switch.
    pub through: Option<Address>,
    /// Where it ends, where it begins here and ends elsewhere.
    pub beyond: Option<Beyond>,
    /// The switch where it begins, where that is another one.
    pub behind: Option<Address>,
}

/// The other end of a connection that leaves a switch's rack.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Beyond {
    /// The switch of the receiver.
    pub switch: Address,
    /// The receiver.
    pub worker: Address,
}

/// Choices that the paper's text leaves open or makes otherwise; the defaults are what is safe. `crates/protocols/tests/netreduce_literal.rs`
/// shows what the others break.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Variants {
    /// How a packet that is not the first of its message finds its place.
    pub lookup: Lookup,
    /// When a slot is free again.
    pub deallocation: Deallocation,
    /// Who gets a sum again.
    pub reemission: Reemission,
    /// Who sends again what is lost.
    pub recovery: Recovery,
}

impl Variants {
    /// What the paper's text has, or what it leaves to network cards: the choices but for recovery are safe.
    pub const CARDS: Variants =
        Variants { lookup: Lookup::Window, deallocation: Deallocation::Full, reemission: Reemission::Requester, recovery: Recovery::Cards };
}

/// Who sends again what is lost (`netreduce 8.5`, P1).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Recovery {
    /// The accelerator, on the link that has lost it: sums go to each receiver in order and again from their slots, and a sender's card is sent
    /// back as soon as a packet of its is seen to be missing.
    #[default]
    Switch,
    /// The paper's text: network cards alone, from end to end. Sums go as they are complete.
    Cards,
}

/// How a packet that is not the first of its message finds its place (`netreduce 5.2`, step 2).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Lookup {
    /// The lookup table has the messages of a whole window, and only newer ones take the place of others.
    #[default]
    Window,
    /// The paper's text: it has one message, that of the first packet that came last (`netreduce` P2).
    Newest,
}

/// When a slot is free again (`netreduce 5.2`, step 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Deallocation {
    /// When the sum one window on is complete.
    #[default]
    Full,
    /// The paper's text: when a packet one window on comes (`netreduce` P3).
    Packet,
}

/// Who gets a sum again (`netreduce 5.2`, step 5).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Reemission {
    /// The connection whose packet was sent again.
    #[default]
    Requester,
    /// All connections (`netreduce` P1).
    All,
}
