//! One header and one node type for all systems, by enum dispatch.

use derive_where::derive_where;
use fanin_core::{
    Collective, Duration, Event, Gauge, Ingress, Instant, JobId, Malformed, Node, OperationId, Outcome, PacketKind, Payload, Rank, Tx,
    Wire, Worker,
};
use fanin_protocols::a2tp::{A2tpServer, A2tpWorker};
use fanin_protocols::atp::{AtpServer, AtpSwitch, AtpWorker};
use fanin_protocols::canary::{CanarySharedSwitch, CanarySwitch, CanaryWorker};
use fanin_protocols::doubling::DoublingWorker;
use fanin_protocols::exchange::ExchangeWorker;
use fanin_protocols::flare::{FlareSwitch, FlareWorker};
use fanin_protocols::machines::MachinesWorker;
use fanin_protocols::netreduce::{NetReduceRings, NetReduceSwitch, NetReduceWorker};
use fanin_protocols::panama::{PanamaSwitch, PanamaWorker};
use fanin_protocols::ps::{PsServer, PsWorker};
use fanin_protocols::rina::{RinaSwitch, RinaWorker};
use fanin_protocols::ring::RingWorker;
use fanin_protocols::sharp::{SharpSwitch, SharpWorker};
use fanin_protocols::switchml::{SwitchMlSwitch, SwitchMlWorker};
use fanin_protocols::tree::{TreeSwitch, TreeWorker};
use fanin_wire::atp::AtpHeader;
use fanin_wire::canary::CanaryHeader;
use fanin_wire::doubling::DoublingHeader;
use fanin_wire::exchange::ExchangeHeader;
use fanin_wire::flare::FlareHeader;
use fanin_wire::netreduce::NetReduceHeader;
use fanin_wire::panama::PanamaHeader;
use fanin_wire::ps::PsHeader;
use fanin_wire::rina::RinaHeader;
use fanin_wire::ring::RingHeader;
use fanin_wire::sharp::SharpHeader;
use fanin_wire::switchml::SwitchMlHeader;
use fanin_wire::tree::TreeHeader;

use crate::System;

/// A header of any system.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum AnyHeader {
    /// Of no system: background traffic.
    #[default]
    Background,
    /// Of static trees.
    Tree(TreeHeader),
    /// Of ring allreduce.
    Ring(RingHeader),
    /// Of Canary.
    Canary(CanaryHeader),
    /// Of SwitchML.
    SwitchMl(SwitchMlHeader),
    /// Of ATP, or of A2TP.
    Atp(AtpHeader),
    /// Of PANAMA.
    Panama(PanamaHeader),
    /// Of SHARP.
    Sharp(SharpHeader),
    /// Of NetReduce.
    NetReduce(NetReduceHeader),
    /// Of Rina.
    Rina(RinaHeader),
    /// Of parameter servers.
    Ps(PsHeader),
    /// Of Flare.
    Flare(FlareHeader),
    /// Of recursive doubling.
    Doubling(DoublingHeader),
    /// Of messages between hosts.
    Exchange(ExchangeHeader),
}

pub(crate) const BACKGROUND: u8 = 0;
pub(crate) const TREE: u8 = 1;
pub(crate) const RING: u8 = 2;
pub(crate) const CANARY: u8 = 3;
pub(crate) const SWITCHML: u8 = 4;
pub(crate) const ATP: u8 = 5;
/// Its packets are ATP's; in headers that say the system themselves they have its number.
pub(crate) const A2TP: u8 = 6;
pub(crate) const PANAMA: u8 = 8;
pub(crate) const SHARP: u8 = 9;
pub(crate) const NETREDUCE: u8 = 10;
/// As A2TP: the packets are NetReduce's.
pub(crate) const MACHINES: u8 = 11;
pub(crate) const RINA: u8 = 12;
pub(crate) const PS: u8 = 13;
pub(crate) const FLARE: u8 = 14;
pub(crate) const DOUBLING: u8 = 15;
pub(crate) const EXCHANGE: u8 = 16;

/// The longer of two lengths.
const fn longer(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

impl AnyHeader {
    /// Length of the longest header of a system's packets; `fixed_point` says that some have exponents.
    pub fn max_len_of(system: &System, fixed_point: bool) -> usize {
        match system {
            System::SwitchMl { .. } if !fixed_point => 1 + SwitchMlHeader::UNSCALED_MAX_LEN,
            System::SwitchMl { .. } => 1 + SwitchMlHeader::MAX_LEN,
            _ => Self::MAX_LEN,
        }
    }
}

/// On the wire: one byte for the system, then the system's header.
impl Wire for AnyHeader {
    const MAX_LEN: usize = 1 + longer(
        longer(longer(CanaryHeader::MAX_LEN, SwitchMlHeader::MAX_LEN), longer(AtpHeader::MAX_LEN, PanamaHeader::MAX_LEN)),
        longer(
            longer(TreeHeader::MAX_LEN, RingHeader::MAX_LEN),
            longer(
                longer(SharpHeader::MAX_LEN, RinaHeader::MAX_LEN),
                longer(longer(NetReduceHeader::MAX_LEN, DoublingHeader::MAX_LEN), longer(PsHeader::MAX_LEN, FlareHeader::MAX_LEN)),
            ),
        ),
    );

    fn wire_len(&self) -> usize {
        1 + match self {
            AnyHeader::Background => 0,
            AnyHeader::Tree(header) => header.wire_len(),
            AnyHeader::Ring(header) => header.wire_len(),
            AnyHeader::Canary(header) => header.wire_len(),
            AnyHeader::SwitchMl(header) => header.wire_len(),
            AnyHeader::Atp(header) => header.wire_len(),
            AnyHeader::Panama(header) => header.wire_len(),
            AnyHeader::Sharp(header) => header.wire_len(),
            AnyHeader::NetReduce(header) => header.wire_len(),
            AnyHeader::Rina(header) => header.wire_len(),
            AnyHeader::Ps(header) => header.wire_len(),
            AnyHeader::Flare(header) => header.wire_len(),
            AnyHeader::Doubling(header) => header.wire_len(),
            AnyHeader::Exchange(header) => header.wire_len(),
        }
    }

    fn parse(bytes: &[u8]) -> Result<(Self, usize), Malformed> {
        let (&system, rest) = bytes.split_first().ok_or(Malformed::Truncated { needed: 1, got: 0 })?;
        match system {
            BACKGROUND => Ok((AnyHeader::Background, 1)),
            TREE => TreeHeader::parse(rest).map(|(header, length)| (AnyHeader::Tree(header), 1 + length)),
            RING => RingHeader::parse(rest).map(|(header, length)| (AnyHeader::Ring(header), 1 + length)),
            CANARY => CanaryHeader::parse(rest).map(|(header, length)| (AnyHeader::Canary(header), 1 + length)),
            SWITCHML => SwitchMlHeader::parse(rest).map(|(header, length)| (AnyHeader::SwitchMl(header), 1 + length)),
            ATP => AtpHeader::parse(rest).map(|(header, length)| (AnyHeader::Atp(header), 1 + length)),
            PANAMA => PanamaHeader::parse(rest).map(|(header, length)| (AnyHeader::Panama(header), 1 + length)),
            SHARP => SharpHeader::parse(rest).map(|(header, length)| (AnyHeader::Sharp(header), 1 + length)),
            NETREDUCE => NetReduceHeader::parse(rest).map(|(header, length)| (AnyHeader::NetReduce(header), 1 + length)),
            RINA => RinaHeader::parse(rest).map(|(header, length)| (AnyHeader::Rina(header), 1 + length)),
            PS => PsHeader::parse(rest).map(|(header, length)| (AnyHeader::Ps(header), 1 + length)),
            FLARE => FlareHeader::parse(rest).map(|(header, length)| (AnyHeader::Flare(header), 1 + length)),
            DOUBLING => DoublingHeader::parse(rest).map(|(header, length)| (AnyHeader::Doubling(header), 1 + length)),
            EXCHANGE => ExchangeHeader::parse(rest).map(|(header, length)| (AnyHeader::Exchange(header), 1 + length)),
            _ => Err(Malformed::Field { name: "system", value: u64::from(system) }),
        }
    }

    fn emit(&self, out: &mut [u8]) -> usize {
        let (first, rest) = out.split_first_mut().expect("room for the header");
        let (system, length) = match self {
            AnyHeader::Background => (BACKGROUND, 0),
            AnyHeader::Tree(header) => (TREE, header.emit(rest)),
            AnyHeader::Ring(header) => (RING, header.emit(rest)),
            AnyHeader::Canary(header) => (CANARY, header.emit(rest)),
            AnyHeader::SwitchMl(header) => (SWITCHML, header.emit(rest)),
            AnyHeader::Atp(header) => (ATP, header.emit(rest)),
            AnyHeader::Panama(header) => (PANAMA, header.emit(rest)),
            AnyHeader::Sharp(header) => (SHARP, header.emit(rest)),
            AnyHeader::NetReduce(header) => (NETREDUCE, header.emit(rest)),
            AnyHeader::Rina(header) => (RINA, header.emit(rest)),
            AnyHeader::Ps(header) => (PS, header.emit(rest)),
            AnyHeader::Flare(header) => (FLARE, header.emit(rest)),
            AnyHeader::Doubling(header) => (DOUBLING, header.emit(rest)),
            AnyHeader::Exchange(header) => (EXCHANGE, header.emit(rest)),
        };
        *first = system;
        1 + length
    }

    #[inline]
    fn kind(&self) -> PacketKind {
        match self {
            AnyHeader::Background => PacketKind::Background,
            AnyHeader::Tree(header) => header.kind(),
            AnyHeader::Ring(header) => header.kind(),
            AnyHeader::Canary(header) => header.kind(),
            AnyHeader::SwitchMl(header) => header.kind(),
            AnyHeader::Atp(header) => header.kind(),
            AnyHeader::Panama(header) => header.kind(),
            AnyHeader::Sharp(header) => header.kind(),
            AnyHeader::NetReduce(header) => header.kind(),
            AnyHeader::Rina(header) => header.kind(),
            AnyHeader::Ps(header) => header.kind(),
            AnyHeader::Flare(header) => header.kind(),
            AnyHeader::Doubling(header) => header.kind(),
            AnyHeader::Exchange(header) => header.kind(),
        }
    }

    fn pairs(&self) -> Option<u16> {
        if let AnyHeader::Flare(header) = self { header.pairs() } else { None }
    }
}

impl From<TreeHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: TreeHeader) -> Self {
        AnyHeader::Tree(header)
    }
}

impl From<RingHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: RingHeader) -> Self {
        AnyHeader::Ring(header)
    }
}

impl From<SwitchMlHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: SwitchMlHeader) -> Self {
        AnyHeader::SwitchMl(header)
    }
}

impl From<AtpHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: AtpHeader) -> Self {
        AnyHeader::Atp(header)
    }
}

impl From<PanamaHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: PanamaHeader) -> Self {
        AnyHeader::Panama(header)
    }
}

impl From<SharpHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: SharpHeader) -> Self {
        AnyHeader::Sharp(header)
    }
}

impl From<NetReduceHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: NetReduceHeader) -> Self {
        AnyHeader::NetReduce(header)
    }
}

impl From<RinaHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: RinaHeader) -> Self {
        AnyHeader::Rina(header)
    }
}

impl From<FlareHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: FlareHeader) -> Self {
        AnyHeader::Flare(header)
    }
}

impl From<DoublingHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: DoublingHeader) -> Self {
        AnyHeader::Doubling(header)
    }
}

impl From<ExchangeHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: ExchangeHeader) -> Self {
        AnyHeader::Exchange(header)
    }
}

impl From<PsHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: PsHeader) -> Self {
        AnyHeader::Ps(header)
    }
}

impl From<CanaryHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: CanaryHeader) -> Self {
        AnyHeader::Canary(header)
    }
}

/// Wraps the headers of one system on their way out.
type Wrapped<'a, T> = fanin_protocols::shared::inner::Wrapped<'a, T, AnyHeader>;

/// A node of any system.
#[derive_where(Clone, PartialEq, Eq, Hash, Debug)]
#[allow(clippy::large_enum_variant, reason = "nodes are made once and live in place; a box would cost a cache miss per packet")]
pub enum AnyNode<P: Payload + ?Sized> {
    /// A worker of static trees.
    TreeWorker(TreeWorker<P>),
    /// A switch of static trees.
    TreeSwitch(TreeSwitch<P>),
    /// A worker of ring allreduce.
    RingWorker(RingWorker<P>),
    /// A worker of Canary.
    CanaryWorker(CanaryWorker<P>),
    /// A switch of Canary.
    CanarySwitch(CanarySwitch<P>),
    /// A switch of Canary with an array of descriptors that jobs share.
    CanarySharedSwitch(CanarySharedSwitch<P>),
    /// A worker of SwitchML.
    SwitchMlWorker(SwitchMlWorker<P>),
    /// A switch of SwitchML.
    SwitchMlSwitch(SwitchMlSwitch<P>),
    /// A worker of ATP.
    AtpWorker(AtpWorker<P>),
    /// A server of ATP.
    AtpServer(AtpServer<P>),
    /// A worker of A2TP.
    A2tpWorker(A2tpWorker<P>),
    /// A server of A2TP.
    A2tpServer(A2tpServer<P>),
    /// A switch that jobs of ATP and A2TP share.
    AtpSwitch(AtpSwitch<P>),
    /// A worker of PANAMA.
    PanamaWorker(PanamaWorker<P>),
    /// A switch of PANAMA.
    PanamaSwitch(PanamaSwitch<P>),
    /// A worker of SHARP, whose hosts can do without switches.
    SharpWorker(SharpWorker<P, RingWorker<P>>),
    /// A switch that jobs of SHARP share.
    SharpSwitch(SharpSwitch<P>),
    /// A worker of NetReduce.
    NetReduceWorker(NetReduceWorker<P>),
    /// An accelerator of NetReduce.
    NetReduceSwitch(NetReduceSwitch<P>),
    /// Accelerators of several rings of NetReduce.
    NetReduceRings(NetReduceRings<P>),
    /// A worker on one of several machines.
    MachinesWorker(MachinesWorker<P>),
    /// A worker of Rina.
    RinaWorker(RinaWorker<P>),
    /// A switch of Rina.
    RinaSwitch(RinaSwitch<P>),
    /// A worker with parameter servers.
    PsWorker(PsWorker<P>),
    /// A parameter server.
    PsServer(PsServer<P>),
    /// A worker of Flare.
    FlareWorker(FlareWorker<P>),
    /// A switch of Flare.
    FlareSwitch(FlareSwitch<P>),
    /// A worker of recursive doubling.
    DoublingWorker(DoublingWorker<P>),
    /// A worker of messages between hosts.
    ExchangeWorker(ExchangeWorker<P>),
}

/// Calls a handler of the node inside, with a [`Tx`] that wraps its headers.
macro_rules! dispatch {
    ($self:expr, $tx:expr, $node:ident, $inner:ident => $call:expr) => {
        match $self {
            AnyNode::TreeWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::TreeSwitch($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::RingWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::CanaryWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::CanarySwitch($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::CanarySharedSwitch($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::SwitchMlWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::SwitchMlSwitch($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::AtpWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::AtpServer($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::A2tpWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::A2tpServer($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::AtpSwitch($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::PanamaWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::PanamaSwitch($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::SharpWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::SharpSwitch($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::NetReduceWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::RinaWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::NetReduceSwitch($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::NetReduceRings($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::MachinesWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::RinaSwitch($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::PsWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::PsServer($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::FlareWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::FlareSwitch($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::DoublingWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
            AnyNode::ExchangeWorker($node) => {
                let $inner = &mut Wrapped::new($tx);
                $call
            }
        }
    };
}

impl<P: Payload + ?Sized> Node<P> for AnyNode<P> {
    type Header = AnyHeader;

    #[inline]
    fn on_packet<T: Tx<AnyHeader, P>>(&mut self, now: Instant, from: Ingress, header: &AnyHeader, payload: &P, tx: &mut T) {
        self.receive(now, from, header, payload, tx);
    }

    #[inline(always)]
    fn receive<T: Tx<AnyHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        header: &AnyHeader,
        payload: &P,
        tx: &mut T,
    ) -> Option<Instant> {
        match (self, header) {
            (AnyNode::TreeWorker(node), AnyHeader::Tree(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::TreeSwitch(node), AnyHeader::Tree(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::RingWorker(node), AnyHeader::Ring(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::CanarySwitch(node), AnyHeader::Canary(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::CanarySharedSwitch(node), AnyHeader::Canary(header)) => {
                node.receive(now, from, header, payload, &mut Wrapped::new(tx))
            }
            (AnyNode::CanaryWorker(node), AnyHeader::Canary(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::SwitchMlSwitch(node), AnyHeader::SwitchMl(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::SwitchMlWorker(node), AnyHeader::SwitchMl(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::AtpSwitch(node), AnyHeader::Atp(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::AtpServer(node), AnyHeader::Atp(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::AtpWorker(node), AnyHeader::Atp(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::A2tpServer(node), AnyHeader::Atp(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::A2tpWorker(node), AnyHeader::Atp(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::PanamaSwitch(node), AnyHeader::Panama(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::PanamaWorker(node), AnyHeader::Panama(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::SharpSwitch(node), AnyHeader::Sharp(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::SharpWorker(node), AnyHeader::Sharp(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::NetReduceSwitch(node), AnyHeader::NetReduce(header)) => {
                node.receive(now, from, header, payload, &mut Wrapped::new(tx))
            }
            (AnyNode::NetReduceWorker(node), AnyHeader::NetReduce(header)) => {
                node.receive(now, from, header, payload, &mut Wrapped::new(tx))
            }
            (AnyNode::NetReduceRings(node), AnyHeader::NetReduce(header)) => {
                node.receive(now, from, header, payload, &mut Wrapped::new(tx))
            }
            (AnyNode::MachinesWorker(node), AnyHeader::NetReduce(header)) => {
                node.receive(now, from, header, payload, &mut Wrapped::new(tx))
            }
            (AnyNode::RinaSwitch(node), AnyHeader::Rina(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::RinaWorker(node), AnyHeader::Rina(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::PsServer(node), AnyHeader::Ps(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::PsWorker(node), AnyHeader::Ps(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::FlareSwitch(node), AnyHeader::Flare(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::FlareWorker(node), AnyHeader::Flare(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::DoublingWorker(node), AnyHeader::Doubling(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            (AnyNode::ExchangeWorker(node), AnyHeader::Exchange(header)) => node.receive(now, from, header, payload, &mut Wrapped::new(tx)),
            // A packet of another system is not of this job.
            (node, _) => {
                tx.note(Event::Dropped(fanin_core::DropReason::Mismatch));
                node.next_timeout()
            }
        }
    }

    fn on_timeout<T: Tx<AnyHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        dispatch!(self, tx, node, inner => node.on_timeout(now, inner));
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        match self {
            AnyNode::TreeWorker(node) => node.next_timeout(),
            AnyNode::TreeSwitch(node) => node.next_timeout(),
            AnyNode::RingWorker(node) => node.next_timeout(),
            AnyNode::CanaryWorker(node) => node.next_timeout(),
            AnyNode::CanarySwitch(node) => node.next_timeout(),
            AnyNode::CanarySharedSwitch(node) => node.next_timeout(),
            AnyNode::SwitchMlWorker(node) => node.next_timeout(),
            AnyNode::SwitchMlSwitch(node) => node.next_timeout(),
            AnyNode::AtpWorker(node) => node.next_timeout(),
            AnyNode::AtpServer(node) => node.next_timeout(),
            AnyNode::A2tpWorker(node) => node.next_timeout(),
            AnyNode::A2tpServer(node) => node.next_timeout(),
            AnyNode::AtpSwitch(node) => node.next_timeout(),
            AnyNode::PanamaWorker(node) => node.next_timeout(),
            AnyNode::PanamaSwitch(node) => node.next_timeout(),
            AnyNode::SharpWorker(node) => node.next_timeout(),
            AnyNode::SharpSwitch(node) => node.next_timeout(),
            AnyNode::NetReduceWorker(node) => node.next_timeout(),
            AnyNode::RinaWorker(node) => node.next_timeout(),
            AnyNode::NetReduceSwitch(node) => node.next_timeout(),
            AnyNode::NetReduceRings(node) => node.next_timeout(),
            AnyNode::MachinesWorker(node) => node.next_timeout(),
            AnyNode::RinaSwitch(node) => node.next_timeout(),
            AnyNode::PsWorker(node) => node.next_timeout(),
            AnyNode::PsServer(node) => node.next_timeout(),
            AnyNode::FlareWorker(node) => node.next_timeout(),
            AnyNode::FlareSwitch(node) => node.next_timeout(),
            AnyNode::DoublingWorker(node) => node.next_timeout(),
            AnyNode::ExchangeWorker(node) => node.next_timeout(),
        }
    }

    fn on_tx_ready<T: Tx<AnyHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        dispatch!(self, tx, node, inner => node.on_tx_ready(now, inner));
    }

    fn on_job_end<T: Tx<AnyHeader, P>>(&mut self, now: Instant, job: JobId, tx: &mut T) {
        dispatch!(self, tx, node, inner => node.on_job_end(now, job, inner));
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        match self {
            AnyNode::TreeWorker(node) => node.gauges(report),
            AnyNode::TreeSwitch(node) => node.gauges(report),
            AnyNode::RingWorker(node) => node.gauges(report),
            AnyNode::CanaryWorker(node) => node.gauges(report),
            AnyNode::CanarySwitch(node) => node.gauges(report),
            AnyNode::CanarySharedSwitch(node) => node.gauges(report),
            AnyNode::SwitchMlWorker(node) => node.gauges(report),
            AnyNode::SwitchMlSwitch(node) => node.gauges(report),
            AnyNode::AtpWorker(node) => node.gauges(report),
            AnyNode::AtpServer(node) => node.gauges(report),
            AnyNode::A2tpWorker(node) => node.gauges(report),
            AnyNode::A2tpServer(node) => node.gauges(report),
            AnyNode::AtpSwitch(node) => node.gauges(report),
            AnyNode::PanamaWorker(node) => node.gauges(report),
            AnyNode::PanamaSwitch(node) => node.gauges(report),
            AnyNode::SharpWorker(node) => node.gauges(report),
            AnyNode::SharpSwitch(node) => node.gauges(report),
            AnyNode::NetReduceWorker(node) => node.gauges(report),
            AnyNode::RinaWorker(node) => node.gauges(report),
            AnyNode::NetReduceSwitch(node) => node.gauges(report),
            AnyNode::NetReduceRings(node) => node.gauges(report),
            AnyNode::MachinesWorker(node) => node.gauges(report),
            AnyNode::RinaSwitch(node) => node.gauges(report),
            AnyNode::PsWorker(node) => node.gauges(report),
            AnyNode::PsServer(node) => node.gauges(report),
            AnyNode::FlareWorker(node) => node.gauges(report),
            AnyNode::FlareSwitch(node) => node.gauges(report),
            AnyNode::DoublingWorker(node) => node.gauges(report),
            AnyNode::ExchangeWorker(node) => node.gauges(report),
        }
    }
}

impl<P: Payload + ?Sized> Worker<P> for AnyNode<P> {
    fn submit<T: Tx<AnyHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        match self {
            AnyNode::TreeWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::RingWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::CanaryWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::SwitchMlWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::AtpWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::A2tpWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::PanamaWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::SharpWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::NetReduceWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::MachinesWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::RinaWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::PsWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::FlareWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::DoublingWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            AnyNode::ExchangeWorker(node) => node.submit(now, collective, &mut Wrapped::new(tx)),
            _ => tx.note(Event::Broken("a node without a vector was asked to submit")),
        }
    }

    #[inline]
    fn remaining(&self) -> Option<u32> {
        match self {
            AnyNode::CanaryWorker(node) => node.remaining(),
            AnyNode::SwitchMlWorker(node) => node.remaining(),
            AnyNode::AtpWorker(node) => node.remaining(),
            AnyNode::A2tpWorker(node) => node.remaining(),
            AnyNode::NetReduceWorker(node) => node.remaining(),
            AnyNode::MachinesWorker(node) => node.remaining(),
            AnyNode::RinaWorker(node) => node.remaining(),
            AnyNode::PsWorker(node) => node.remaining(),
            AnyNode::FlareWorker(node) => node.remaining(),
            AnyNode::DoublingWorker(node) => node.remaining(),
            AnyNode::ExchangeWorker(node) => node.remaining(),
            _ => None,
        }
    }

    #[inline(always)]
    fn poll(&mut self) -> Option<Outcome> {
        match self {
            AnyNode::TreeWorker(node) => node.poll(),
            AnyNode::RingWorker(node) => node.poll(),
            AnyNode::CanaryWorker(node) => node.poll(),
            AnyNode::SwitchMlWorker(node) => node.poll(),
            AnyNode::AtpWorker(node) => node.poll(),
            AnyNode::A2tpWorker(node) => node.poll(),
            AnyNode::PanamaWorker(node) => node.poll(),
            AnyNode::SharpWorker(node) => node.poll(),
            AnyNode::NetReduceWorker(node) => node.poll(),
            AnyNode::MachinesWorker(node) => node.poll(),
            AnyNode::RinaWorker(node) => node.poll(),
            AnyNode::PsWorker(node) => node.poll(),
            AnyNode::FlareWorker(node) => node.poll(),
            AnyNode::DoublingWorker(node) => node.poll(),
            AnyNode::ExchangeWorker(node) => node.poll(),
            _ => None,
        }
    }

    fn cancel<T: Tx<AnyHeader, P>>(&mut self, now: Instant, operation: OperationId, tx: &mut T) {
        match self {
            AnyNode::TreeWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::RingWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::CanaryWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::SwitchMlWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::AtpWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::A2tpWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::PanamaWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::SharpWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::NetReduceWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::MachinesWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::RinaWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::PsWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::FlareWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::DoublingWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            AnyNode::ExchangeWorker(node) => node.cancel(now, operation, &mut Wrapped::new(tx)),
            _ => tx.note(Event::Broken("a node without a vector was asked to cancel")),
        }
    }
}

impl<P: Payload + ?Sized> AnyNode<P> {
    /// Tells a worker that another rank is gone, before its patience is over; nothing where the system goes on without nobody (model checking).
    pub fn take_for_dead<T: Tx<AnyHeader, P>>(&mut self, now: Instant, rank: Rank, tx: &mut T) {
        if let AnyNode::RinaWorker(node) = self {
            node.take_for_dead(now, rank, &mut Wrapped::new(tx));
        }
    }

    /// Makes stored times relative to `now`, so that equal situations at different times are equal states (model checking).
    pub fn rebase(&mut self, now: Instant) {
        match self {
            AnyNode::TreeWorker(node) => node.rebase(now),
            AnyNode::TreeSwitch(node) => node.rebase(now),
            AnyNode::RingWorker(node) => node.rebase(now),
            AnyNode::CanaryWorker(node) => node.rebase(now),
            AnyNode::CanarySwitch(node) => node.rebase(now),
            AnyNode::CanarySharedSwitch(node) => node.rebase(now),
            AnyNode::SwitchMlWorker(node) => node.rebase(now),
            AnyNode::SwitchMlSwitch(node) => node.rebase(now),
            AnyNode::AtpWorker(node) => node.rebase(now),
            AnyNode::AtpServer(node) => node.rebase(now),
            AnyNode::A2tpWorker(node) => node.rebase(now),
            AnyNode::A2tpServer(node) => node.rebase(now),
            AnyNode::AtpSwitch(node) => node.rebase(now),
            AnyNode::PanamaWorker(node) => node.rebase(now),
            AnyNode::PanamaSwitch(node) => node.rebase(now),
            AnyNode::SharpWorker(node) => node.rebase(now),
            AnyNode::SharpSwitch(node) => node.rebase(now),
            AnyNode::NetReduceWorker(node) => node.rebase(now),
            AnyNode::RinaWorker(node) => node.rebase(now),
            AnyNode::NetReduceSwitch(node) => node.rebase(now),
            AnyNode::NetReduceRings(node) => node.rebase(now),
            AnyNode::MachinesWorker(node) => node.rebase(now),
            AnyNode::RinaSwitch(node) => node.rebase(now),
            AnyNode::PsWorker(node) => node.rebase(now),
            AnyNode::FlareWorker(node) => node.rebase(now),
            AnyNode::FlareSwitch(node) => node.rebase(now),
            AnyNode::DoublingWorker(node) => node.rebase(now),
            AnyNode::ExchangeWorker(node) => node.rebase(now),
            // It stores no times.
            AnyNode::PsServer(_) => {}
        }
    }
}

/// Less than the workers' shortest retransmission timeout, so that each round of repetitions goes up once.
pub(crate) const fn resend_gap(rto_min: Duration) -> Duration {
    rto_min.divided(2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_wire::atp::FragmentId;
    use fanin_wire::canary::CanaryId;
    use fanin_wire::doubling::ListName;
    use fanin_wire::flare::FlareBlock;
    use fanin_wire::ps::ShardBlock;
    use fanin_wire::switchml::SlotUse;

    #[test]
    fn headers_of_all_systems_come_back_from_the_wire() {
        let headers = [
            AnyHeader::Background,
            AnyHeader::Tree(TreeHeader::Contribution { block: 77, attempt: 3 }),
            AnyHeader::Tree(TreeHeader::Aggregate { block: 78 }),
            AnyHeader::Ring(RingHeader::Probe { operation: 79 }),
            AnyHeader::Canary(CanaryHeader::Broadcast { id: CanaryId::new(1, 0, 80) }),
            AnyHeader::SwitchMl(SwitchMlHeader::Rejected { at: SlotUse { slot: 2, round: 81 } }),
            AnyHeader::Atp(AtpHeader::Rejected { at: FragmentId { tensor: 1, seq: 82 } }),
            AnyHeader::Panama(PanamaHeader::Aggregate { block: 82, marked_up: true, marked_down: false }),
            AnyHeader::Sharp(SharpHeader::Answer { number: 83, refused: true }),
            AnyHeader::NetReduce(NetReduceHeader::Down { message: 83, offset: 1 }),
            AnyHeader::Rina(RinaHeader::Done { epoch: 1, operation: 84 }),
            AnyHeader::Ps(PsHeader::Rejected { at: ShardBlock { seq: 85, operation: 2, shard: 3 } }),
            AnyHeader::Flare(FlareHeader::Rejected { at: FlareBlock { number: 86, operation: 4 } }),
            AnyHeader::Doubling(DoublingHeader::Probe { list: ListName { operation: 87, digest: 5, step: 6 } }),
        ];
        for header in headers {
            let mut bytes = [0; AnyHeader::MAX_LEN];
            let length = header.emit(&mut bytes);
            assert_eq!(length, header.wire_len());
            assert_eq!(AnyHeader::parse(&bytes[..length]), Ok((header, length)));
        }
        assert_eq!(AnyHeader::parse(&[7, 0, 0]), Err(Malformed::Field { name: "system", value: 7 }));
        assert_eq!(AnyHeader::parse(&[]), Err(Malformed::Truncated { needed: 1, got: 0 }));
    }

    #[test]
    fn a_header_is_small_enough_for_a_packet_record() {
        assert!(size_of::<AnyHeader>() <= 28, "{}", size_of::<AnyHeader>());
    }
}
