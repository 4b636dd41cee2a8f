//! One header and one node type for all systems, by enum dispatch.

use derive_where::derive_where;
use fanin_core::{
    BlockExponent, Body, Collective, Duration, Egress, Event, Gauge, Ingress, Instant, JobId, Malformed, Node, OpError, OperationId,
    Outcome, PacketKind, Payload, Piece, Tx, Wire, Worker,
};
use fanin_protocols::a2tp::{A2tpServer, A2tpWorker};
use fanin_protocols::atp::{AtpServer, AtpSwitch, AtpWorker};
use fanin_protocols::canary::{CanarySwitch, CanaryWorker};
use fanin_protocols::netreduce::{NetReduceSwitch, NetReduceWorker};
use fanin_protocols::panama::{PanamaSwitch, PanamaWorker};
use fanin_protocols::ring::RingWorker;
use fanin_protocols::switchml::{SwitchMlSwitch, SwitchMlWorker};
use fanin_protocols::tree::{TreeSwitch, TreeWorker};
use fanin_wire::atp::AtpHeader;
use fanin_wire::canary::CanaryHeader;
use fanin_wire::netreduce::NetReduceHeader;
use fanin_wire::panama::PanamaHeader;
use fanin_wire::ring::RingHeader;
use fanin_wire::switchml::SwitchMlHeader;
use fanin_wire::tree::TreeHeader;

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
    /// Of NetReduce.
    NetReduce(NetReduceHeader),
}

const BACKGROUND: u8 = 0;
const TREE: u8 = 1;
const RING: u8 = 2;
const CANARY: u8 = 3;
const SWITCHML: u8 = 4;
const ATP: u8 = 5;
const PANAMA: u8 = 8;
const NETREDUCE: u8 = 10;

/// The longer of two lengths.
const fn longer(a: usize, b: usize) -> usize {
    if a > b { a } else { b }
}

/// On the wire: one byte for the system, then the system's header.
impl Wire for AnyHeader {
    const MAX_LEN: usize = 1 + longer(
        longer(longer(CanaryHeader::MAX_LEN, SwitchMlHeader::MAX_LEN), longer(AtpHeader::MAX_LEN, PanamaHeader::MAX_LEN)),
        longer(longer(TreeHeader::MAX_LEN, RingHeader::MAX_LEN), NetReduceHeader::MAX_LEN),
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
            AnyHeader::NetReduce(header) => header.wire_len(),
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
            NETREDUCE => NetReduceHeader::parse(rest).map(|(header, length)| (AnyHeader::NetReduce(header), 1 + length)),
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
            AnyHeader::NetReduce(header) => (NETREDUCE, header.emit(rest)),
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
            AnyHeader::NetReduce(header) => header.kind(),
        }
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

impl From<NetReduceHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: NetReduceHeader) -> Self {
        AnyHeader::NetReduce(header)
    }
}

impl From<CanaryHeader> for AnyHeader {
    #[inline(always)]
    fn from(header: CanaryHeader) -> Self {
        AnyHeader::Canary(header)
    }
}

/// Wraps the headers of one system on their way out.
struct Wrapped<'a, T> {
    tx: &'a mut T,
}

impl<P: Payload + ?Sized, T: Tx<AnyHeader, P>, H: Wire + Into<AnyHeader>> Tx<H, P> for Wrapped<'_, T> {
    #[inline(always)]
    fn send(&mut self, to: Egress<'_>, header: &H, body: Body<'_, P>) {
        self.tx.send(to, &(*header).into(), body);
    }

    #[inline(always)]
    fn room(&mut self, to: Egress<'_>) -> bool {
        self.tx.room(to)
    }

    #[inline]
    fn note(&mut self, event: Event) {
        self.tx.note(event);
    }

    #[inline]
    fn contribute(&mut self, piece: Piece, accumulator: &mut P::Acc, first: bool) -> Result<(), OpError> {
        self.tx.contribute(piece, accumulator, first)
    }

    #[inline]
    fn fold(&mut self, piece: Piece, payload: &P) -> Result<(), OpError> {
        self.tx.fold(piece, payload)
    }

    #[inline(always)]
    fn deliver(&mut self, piece: Piece, body: Body<'_, P>) -> Result<(), OpError> {
        self.tx.deliver(piece, body)
    }

    fn exponent(&mut self, piece: Piece) -> BlockExponent {
        self.tx.exponent(piece)
    }

    #[inline]
    fn send_fixed(&mut self, to: Egress<'_>, header: &H, piece: Piece, exponent: BlockExponent) {
        self.tx.send_fixed(to, &(*header).into(), piece, exponent);
    }

    #[inline]
    fn deliver_fixed(&mut self, piece: Piece, payload: &P, exponent: BlockExponent) -> Result<(), OpError> {
        self.tx.deliver_fixed(piece, payload, exponent)
    }
}

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
    /// A worker of NetReduce.
    NetReduceWorker(NetReduceWorker<P>),
    /// An accelerator of NetReduce.
    NetReduceSwitch(NetReduceSwitch<P>),
}

/// Calls a handler of the node inside, with a [`Tx`] that wraps its headers.
macro_rules! dispatch {
    ($self:expr, $tx:expr, $node:ident, $inner:ident => $call:expr) => {
        match $self {
            AnyNode::TreeWorker($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::TreeSwitch($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::RingWorker($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::CanaryWorker($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::CanarySwitch($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::SwitchMlWorker($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::SwitchMlSwitch($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::AtpWorker($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::AtpServer($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::A2tpWorker($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::A2tpServer($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::AtpSwitch($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::PanamaWorker($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::PanamaSwitch($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::NetReduceWorker($node) => {
                let $inner = &mut Wrapped { tx: $tx };
                $call
            }
            AnyNode::NetReduceSwitch($node) => {
                let $inner = &mut Wrapped { tx: $tx };
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
            (AnyNode::TreeWorker(node), AnyHeader::Tree(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::TreeSwitch(node), AnyHeader::Tree(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::RingWorker(node), AnyHeader::Ring(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::CanarySwitch(node), AnyHeader::Canary(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::CanaryWorker(node), AnyHeader::Canary(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::SwitchMlSwitch(node), AnyHeader::SwitchMl(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::SwitchMlWorker(node), AnyHeader::SwitchMl(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::AtpSwitch(node), AnyHeader::Atp(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::AtpServer(node), AnyHeader::Atp(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::AtpWorker(node), AnyHeader::Atp(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::A2tpServer(node), AnyHeader::Atp(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::A2tpWorker(node), AnyHeader::Atp(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::PanamaSwitch(node), AnyHeader::Panama(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::PanamaWorker(node), AnyHeader::Panama(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::NetReduceSwitch(node), AnyHeader::NetReduce(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
            (AnyNode::NetReduceWorker(node), AnyHeader::NetReduce(header)) => node.receive(now, from, header, payload, &mut Wrapped { tx }),
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
            AnyNode::SwitchMlWorker(node) => node.next_timeout(),
            AnyNode::SwitchMlSwitch(node) => node.next_timeout(),
            AnyNode::AtpWorker(node) => node.next_timeout(),
            AnyNode::AtpServer(node) => node.next_timeout(),
            AnyNode::A2tpWorker(node) => node.next_timeout(),
            AnyNode::A2tpServer(node) => node.next_timeout(),
            AnyNode::AtpSwitch(node) => node.next_timeout(),
            AnyNode::PanamaWorker(node) => node.next_timeout(),
            AnyNode::PanamaSwitch(node) => node.next_timeout(),
            AnyNode::NetReduceWorker(node) => node.next_timeout(),
            AnyNode::NetReduceSwitch(node) => node.next_timeout(),
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
            AnyNode::SwitchMlWorker(node) => node.gauges(report),
            AnyNode::SwitchMlSwitch(node) => node.gauges(report),
            AnyNode::AtpWorker(node) => node.gauges(report),
            AnyNode::AtpServer(node) => node.gauges(report),
            AnyNode::A2tpWorker(node) => node.gauges(report),
            AnyNode::A2tpServer(node) => node.gauges(report),
            AnyNode::AtpSwitch(node) => node.gauges(report),
            AnyNode::PanamaWorker(node) => node.gauges(report),
            AnyNode::PanamaSwitch(node) => node.gauges(report),
            AnyNode::NetReduceWorker(node) => node.gauges(report),
            AnyNode::NetReduceSwitch(node) => node.gauges(report),
        }
    }
}

impl<P: Payload + ?Sized> Worker<P> for AnyNode<P> {
    fn submit<T: Tx<AnyHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        match self {
            AnyNode::TreeWorker(node) => node.submit(now, collective, &mut Wrapped { tx }),
            AnyNode::RingWorker(node) => node.submit(now, collective, &mut Wrapped { tx }),
            AnyNode::CanaryWorker(node) => node.submit(now, collective, &mut Wrapped { tx }),
            AnyNode::SwitchMlWorker(node) => node.submit(now, collective, &mut Wrapped { tx }),
            AnyNode::AtpWorker(node) => node.submit(now, collective, &mut Wrapped { tx }),
            AnyNode::A2tpWorker(node) => node.submit(now, collective, &mut Wrapped { tx }),
            AnyNode::PanamaWorker(node) => node.submit(now, collective, &mut Wrapped { tx }),
            AnyNode::NetReduceWorker(node) => node.submit(now, collective, &mut Wrapped { tx }),
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
            AnyNode::NetReduceWorker(node) => node.poll(),
            _ => None,
        }
    }

    fn cancel<T: Tx<AnyHeader, P>>(&mut self, now: Instant, operation: OperationId, tx: &mut T) {
        match self {
            AnyNode::TreeWorker(node) => node.cancel(now, operation, &mut Wrapped { tx }),
            AnyNode::RingWorker(node) => node.cancel(now, operation, &mut Wrapped { tx }),
            AnyNode::CanaryWorker(node) => node.cancel(now, operation, &mut Wrapped { tx }),
            AnyNode::SwitchMlWorker(node) => node.cancel(now, operation, &mut Wrapped { tx }),
            AnyNode::AtpWorker(node) => node.cancel(now, operation, &mut Wrapped { tx }),
            AnyNode::A2tpWorker(node) => node.cancel(now, operation, &mut Wrapped { tx }),
            AnyNode::PanamaWorker(node) => node.cancel(now, operation, &mut Wrapped { tx }),
            AnyNode::NetReduceWorker(node) => node.cancel(now, operation, &mut Wrapped { tx }),
            _ => tx.note(Event::Broken("a node without a vector was asked to cancel")),
        }
    }
}

impl<P: Payload + ?Sized> AnyNode<P> {
    /// Makes stored times relative to `now`, so that equal situations at different times are equal states (model checking).
    pub fn rebase(&mut self, now: Instant) {
        match self {
            AnyNode::TreeWorker(node) => node.rebase(now),
            AnyNode::TreeSwitch(node) => node.rebase(now),
            AnyNode::RingWorker(node) => node.rebase(now),
            AnyNode::CanaryWorker(node) => node.rebase(now),
            AnyNode::CanarySwitch(node) => node.rebase(now),
            AnyNode::SwitchMlWorker(node) => node.rebase(now),
            AnyNode::SwitchMlSwitch(node) => node.rebase(now),
            AnyNode::AtpWorker(node) => node.rebase(now),
            AnyNode::AtpServer(node) => node.rebase(now),
            AnyNode::A2tpWorker(node) => node.rebase(now),
            AnyNode::A2tpServer(node) => node.rebase(now),
            AnyNode::AtpSwitch(node) => node.rebase(now),
            AnyNode::PanamaWorker(node) => node.rebase(now),
            AnyNode::PanamaSwitch(node) => node.rebase(now),
            AnyNode::NetReduceWorker(node) => node.rebase(now),
            AnyNode::NetReduceSwitch(node) => node.rebase(now),
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
            AnyHeader::NetReduce(NetReduceHeader::Down { message: 83, offset: 1 }),
        ];
        for header in headers {
            let mut bytes = [0; AnyHeader::MAX_LEN];
            let length = header.emit(&mut bytes);
            assert_eq!(length, header.wire_len());
            assert_eq!(AnyHeader::parse(&bytes[..length]), Ok((header, length)));
        }
        assert_eq!(AnyHeader::parse(&[9, 0, 0]), Err(Malformed::Field { name: "system", value: 9 }));
        assert_eq!(AnyHeader::parse(&[]), Err(Malformed::Truncated { needed: 1, got: 0 }));
    }

    #[test]
    fn a_header_is_small_enough_for_a_packet_record() {
        assert!(size_of::<AnyHeader>() <= 28, "{}", size_of::<AnyHeader>());
    }
}
