//! User space goes on with a job that has left the kernel: a fresh state machine is told what the slots held.

use fanin_core::{
    Address, BlockExponent, Body, Egress, Event, Ingress, Instant, JobId, Node, NodeId, OpError, Payload, Piece, PortId, Tx, Wire,
};
use fanin_wire::switchml::{CallLabel, SlotUse, SwitchMlHeader};

use crate::layout::OP_FIXED_POINT;
use crate::ops::OpTable;
use crate::taken::{Taken, TakenVersion};

/// Where nothing leaves: what the state machine says while it is told was said long ago, by the kernel.
struct Silent;

impl<H: Wire> Tx<H, [u8]> for Silent {
    fn send(&mut self, _to: Egress<'_>, _header: &H, _body: Body<'_, [u8]>) {}

    fn room(&mut self, _to: Egress<'_>) -> bool {
        true
    }

    fn note(&mut self, _event: Event) {}

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

/// Tells a switch's fresh node what the slots of its job held in the kernel: for each version, the sum as the contribution of the first rank
/// that had contributed, and nothing, or zeros, as that of each other. Packets that come after this find the same state as in the kernel, as
/// do those that answer losses.
pub fn resume<N: Node<[u8]>>(node: &mut N, now: Instant, job: JobId, ops: &OpTable, taken: &Taken)
where
    N::Header: From<SwitchMlHeader>,
{
    for version in &taken.versions {
        tell(node, now, job, ops, version);
    }
}

fn tell<N: Node<[u8]>>(node: &mut N, now: Instant, job: JobId, ops: &OpTable, version: &TakenVersion)
where
    N::Header: From<SwitchMlHeader>,
{
    let at = SlotUse { slot: version.slot, round: version.round };
    let call = CallLabel { fingerprint: version.fingerprint, receiver: version.receiver, op: version.op };
    let exponent = (ops[usize::from(version.op)] & OP_FIXED_POINT != 0).then(|| BlockExponent::from_bits(version.exponent));
    let header = N::Header::from(SwitchMlHeader::Contribution { at, attempt: 0, exponent, call });
    // Without a label all contributions have the same length; the program has only added integers, whose sum zeros leave as it is.
    let nothing = if call == CallLabel::NONE { vec![0; version.sum.len()] } else { Vec::new() };
    let mut payload: &[u8] = &version.sum;
    for rank in (0..u64::BITS).filter(|rank| version.arrived >> rank & 1 == 1) {
        let from = Ingress { port: PortId(rank as u16), source: Address::worker(NodeId(rank)), job, ecn: false };
        node.on_packet(now, from, &header, payload, &mut Silent);
        payload = &nothing;
    }
}
