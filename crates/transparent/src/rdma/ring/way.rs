//! The accelerator of a run, and its way out: packets of sums in the frames that the contributions came in.

use fanin_core::{Body, DropReason, Duration, Egress, Event, JobId, NodeId, OpError, Payload, Piece, PortId, Rank, Suspect, Tx};
use fanin_protocols::netreduce::{NetReduceChild, NetReduceConnection, NetReduceParent, NetReduceSwitch, NetReduceSwitchConfig, Variants};
use fanin_protocols::shared::connection::Psn;
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::netreduce::{InaHeader, NetReduceHeader, PacketNumber};
use fanin_wire::roce::{self, ICRC};

use super::tree::{SWITCHES, Tree};
use super::{Member, RESEND_GAP};
use crate::rdma::config::RdmaRing;
use crate::rdma::told::Sum;
use crate::rdma::{Emit, RdmaStatistics};

/// The longest head: Ethernet, tags, IPv4, UDP, BTH, RETH, immediate data, INA header.
pub(in crate::rdma) const HEAD_MAX: usize =
    14 + roce::TAGS_MAX * roce::TAG + 20 + 8 + roce::BTH + roce::RETH + roce::IMMEDIATE + InaHeader::LEN;

/// All before the elements of a packet that is held, as it came (`netreduce 3`, `header[n]`).
#[derive(Clone, Copy, Debug)]
pub(in crate::rdma) struct Head {
    pub psn: Psn,
    pub bytes: [u8; HEAD_MAX],
    /// 0 where nothing is known.
    pub length: u8,
    /// Length of the elements.
    pub payload_bytes: u16,
    /// The CRC-32 of the payload.
    pub digest: u32,
    /// The port that it came by.
    pub port: u32,
}

pub(in crate::rdma) const NO_HEAD: Head = Head { psn: Psn::new(0), bytes: [0; HEAD_MAX], length: 0, payload_bytes: 0, digest: 0, port: 0 };

/// The accelerator of a run. A worker is at the port that has the number of its rank: where that is, a bridge knows. Behind those of all ranks
/// are that of the switch above, and those of the switches below.
pub(in crate::rdma) fn accelerator(config: &RdmaRing, tree: &Tree) -> NetReduceSwitch<[u8]> {
    let workers = config.workers.len() as u16;
    let port = |rank: u16| PortId(rank);
    let own = |rank: &u16| (*rank, NetReduceChild { port: port(*rank), who: Suspect::Rank(Rank(u32::from(*rank))), through: None });
    let below = (1u16..).zip(&tree.children).map(|(number, child)| {
        let who = Suspect::Switch(NodeId(SWITCHES + u32::from(number)));
        (child.ranks[0], NetReduceChild { port: PortId(workers + number), who, through: None })
    });
    let mut children: Vec<(u16, NetReduceChild)> = tree.own.iter().map(own).chain(below).collect();
    if children.is_empty() {
        // Nothing comes before it is known who is below.
        children.extend((0..workers).map(|rank| own(&rank)));
    }
    children.sort_unstable_by_key(|(lowest, _)| *lowest);
    let connection = |rank: u16| {
        let next = (rank + 1) % workers;
        let ends_at = tree.has(next).then(|| port(next));
        NetReduceConnection { rank: Rank(u32::from(rank)), ends_at, through: None, beyond: None, behind: None }
    };
    NetReduceSwitch::new(NetReduceSwitchConfig {
        // Cards do not ask, so it never names itself.
        node: NodeId(u32::from(workers)),
        job: JobId(config.ring),
        op: config.op.into(),
        workers: config.workers.len() as u32,
        block_bytes: config.payload_bytes,
        shape: config.shape,
        parent: tree.parent().map(|_| NetReduceParent { port: PortId(workers), node: NodeId(SWITCHES) }),
        children: children.into_iter().map(|(_, child)| child).collect(),
        connections: (0..workers).map(connection).collect(),
        flow: Default::default(),
        patience: Duration::MAX,
        resend_gap: RESEND_GAP,
        answers: Reliability::LOSSLESS,
        // Its own timers and reports would need frames of their own; cards recover from end to end.
        variants: Variants::CARDS,
    })
}

/// See the module's documentation.
pub(in crate::rdma) struct Way<'a, E: Emit> {
    pub members: &'a mut [Member],
    pub buffer: &'a mut Vec<u8>,
    pub statistics: &'a mut RdmaStatistics,
    pub waits: &'a mut Option<Suspect>,
    pub failed: Option<Suspect>,
    /// Something came again.
    pub is_repeated: bool,
    /// What is sent next was sent before.
    pub is_again: bool,
    pub tree: &'a mut Tree,
    pub out: &'a mut E,
}

impl<E: Emit> Way<'_, E> {
    fn sum(&mut self, rank: u16, at: PacketNumber, body: Body<'_, [u8]>) {
        let Body::Acc(acc) = body else { return };
        self.tree.keep_sum(rank, Psn::new(at.psn()), acc.as_bytes());
        self.emit_sum(rank, at, acc.as_bytes());
    }

    /// A sum leaves in the head of a rank's packet, if that is known.
    pub fn emit_sum(&mut self, rank: u16, at: PacketNumber, sum: &[u8]) {
        let Some(member) = self.members.get_mut(usize::from(rank)) else { return };
        let Some(head) = member.head(Psn::new(at.psn())) else { return };
        let (length, bytes) = (usize::from(head.length), sum.len());
        if bytes != usize::from(head.payload_bytes) {
            return;
        }
        self.buffer.clear();
        self.buffer.extend_from_slice(&head.bytes[..length]);
        self.buffer.resize(length + bytes.next_multiple_of(4) + ICRC, 0);
        self.buffer[length..length + bytes].copy_from_slice(sum);
        roce::seal(self.buffer);
        self.statistics.summed += 1;
        self.out.emit(head.port as usize, self.buffer);
        if let Some(line) = &mut member.line {
            line.note_summed(Psn::new(at.psn()));
        }
    }

    /// A sum for another switch. Between switches nothing is lost, so nothing goes again.
    fn send_on(&mut self, message: u32, offset: u16, body: Body<'_, [u8]>, is_up: bool) {
        let Body::Acc(acc) = body else { return };
        if std::mem::take(&mut self.is_again) {
            return;
        }
        let sum = Sum { message, offset, bytes: acc.as_bytes().to_vec() };
        if is_up {
            self.statistics.part_bytes += sum.bytes.len() as u64;
            self.tree.say_up(sum);
        } else {
            self.statistics.whole_bytes += (sum.bytes.len() * self.tree.children.len()) as u64;
            self.tree.note_sum(message);
            self.tree.say_down(&sum);
        }
    }
}

impl<E: Emit> Tx<NetReduceHeader, [u8]> for Way<'_, E> {
    fn send(&mut self, _to: Egress<'_>, header: &NetReduceHeader, body: Body<'_, [u8]>) {
        match *header {
            NetReduceHeader::First { at, connection, .. } | NetReduceHeader::Next { at, connection, .. } => self.sum(connection, at, body),
            NetReduceHeader::Up { message, offset } => self.send_on(message, offset, body, true),
            NetReduceHeader::Down { message, offset } => self.send_on(message, offset, body, false),
            // Network cards would not know what to do with it.
            NetReduceHeader::Waiting { suspect, .. } => *self.waits = Some(suspect),
            NetReduceHeader::Abort { suspect } => self.failed = Some(suspect),
            _ => {}
        }
    }

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, event: Event) {
        match event {
            Event::Dropped(DropReason::Duplicate) | Event::Retransmitted { .. } => {
                self.statistics.repeated += 1;
                (self.is_repeated, self.is_again) = (true, matches!(event, Event::Retransmitted { .. }));
            }
            Event::Dropped(_) => {
                self.statistics.dropped += 1;
                self.is_repeated = true;
            }
            _ => {}
        }
    }

    fn contribute(&mut self, _piece: Piece, _accumulator: &mut <[u8] as Payload>::Acc, _first: bool) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn fold(&mut self, _piece: Piece, _payload: &[u8]) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }

    fn deliver(&mut self, _piece: Piece, _body: Body<'_, [u8]>) -> Result<(), OpError> {
        Err(OpError::NoVector)
    }
}
