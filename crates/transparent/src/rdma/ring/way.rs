//! The accelerator of a run, and its way out: packets of sums in the frames that the contributions came in.

use fanin_core::{Body, DropReason, Duration, Egress, Event, JobId, NodeId, OpError, Payload, Piece, PortId, Rank, Suspect, Tx};
use fanin_protocols::netreduce::{NetReduceChild, NetReduceConnection, NetReduceSwitch, NetReduceSwitchConfig, Variants};
use fanin_protocols::shared::connection::Psn;
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::netreduce::{InaHeader, NetReduceHeader, PacketNumber};
use fanin_wire::roce::{self, ICRC};

use super::{Member, RESEND_GAP};
use crate::rdma::config::RdmaRing;
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

/// The accelerator of a run. A worker is at the port that has the number of its rank: where that is, a bridge knows.
pub(in crate::rdma) fn accelerator(config: &RdmaRing) -> NetReduceSwitch<[u8]> {
    let ranks = 0..config.workers.len() as u16;
    let port = |rank: u16| PortId(rank);
    let child = |rank: u16| NetReduceChild { port: port(rank), who: Suspect::Rank(Rank(u32::from(rank))), through: None };
    let workers = config.workers.len() as u16;
    let connection = |rank: u16| NetReduceConnection {
        rank: Rank(u32::from(rank)),
        ends_at: Some(port((rank + 1) % workers)),
        through: None,
        beyond: None,
        behind: None,
    };
    NetReduceSwitch::new(NetReduceSwitchConfig {
        // Cards do not ask, so it never names itself.
        node: NodeId(u32::from(workers)),
        job: JobId(config.ring),
        op: config.op.into(),
        workers: config.workers.len() as u32,
        block_bytes: config.payload_bytes,
        shape: config.shape,
        parent: None,
        children: ranks.clone().map(child).collect(),
        connections: ranks.map(connection).collect(),
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
    pub out: &'a mut E,
}

impl<E: Emit> Way<'_, E> {
    fn sum(&mut self, rank: u16, at: PacketNumber, body: Body<'_, [u8]>) {
        let (Some(member), Body::Acc(acc)) = (self.members.get_mut(usize::from(rank)), body) else { return };
        let Some(head) = member.head(Psn::new(at.psn())) else { return };
        let (length, bytes) = (usize::from(head.length), acc.as_bytes().len());
        if bytes != usize::from(head.payload_bytes) {
            return;
        }
        self.buffer.clear();
        self.buffer.extend_from_slice(&head.bytes[..length]);
        self.buffer.resize(length + bytes.next_multiple_of(4) + ICRC, 0);
        self.buffer[length..length + bytes].copy_from_slice(acc.as_bytes());
        roce::seal(self.buffer);
        self.statistics.summed += 1;
        self.out.emit(head.port as usize, self.buffer);
        if let Some(line) = &mut member.line {
            line.has_sums = true;
        }
    }
}

impl<E: Emit> Tx<NetReduceHeader, [u8]> for Way<'_, E> {
    fn send(&mut self, _to: Egress<'_>, header: &NetReduceHeader, body: Body<'_, [u8]>) {
        match *header {
            NetReduceHeader::First { at, connection, .. } | NetReduceHeader::Next { at, connection, .. } => self.sum(connection, at, body),
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
                self.is_repeated = true;
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
