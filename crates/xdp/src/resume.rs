//! User space goes on with a job that has left the kernel: a fresh state machine is told what the slots held.

use fanin_core::{
    Address, BlockExponent, Body, Egress, Event, Ingress, Instant, JobId, Node, NodeId, OpError, Payload, Piece, PortId, Tx, Wire,
};
use fanin_systems::AnyHeader;
use fanin_wire::switchml::{CallLabel, SlotUse, SwitchMlHeader};
use fanin_wire::tree::TreeHeader;

use crate::job::XdpSystem;
use crate::layout::OP_FIXED_POINT;
use crate::ops::{self, OpTable};
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
/// that had contributed, and nothing, or what changes nothing, as that of each other. Packets that come after this find the same state as in the
/// kernel, as do those that answer losses.
pub fn resume<N: Node<[u8], Header = AnyHeader>>(
    node: &mut N,
    now: Instant,
    (system, job): (XdpSystem, JobId),
    ops: &OpTable,
    taken: &Taken,
) {
    for version in &taken.versions {
        tell(node, now, (system, job), ops, version);
    }
}

fn tell<N: Node<[u8], Header = AnyHeader>>(
    node: &mut N,
    now: Instant,
    (system, job): (XdpSystem, JobId),
    ops: &OpTable,
    version: &TakenVersion,
) {
    let op = ops[usize::from(version.op)];
    let at = SlotUse { slot: version.slot, round: version.round };
    let call = CallLabel { fingerprint: version.fingerprint, receiver: version.receiver, op: version.op };
    let exponent = (op & OP_FIXED_POINT != 0).then(|| BlockExponent::from_bits(version.exponent));
    let (header, has_length) = match system {
        XdpSystem::SwitchMl => (SwitchMlHeader::Contribution { at, attempt: 0, exponent, call }.into(), call == CallLabel::NONE),
        // Descriptors are empty when a job leaves, and aggregators are left behind.
        XdpSystem::Canary | XdpSystem::Atp | XdpSystem::A2tp => return,
        XdpSystem::Tree => (TreeHeader::Contribution { block: version.round, attempt: 0 }.into(), true),
    };
    // Where a call is named, a contribution may be empty. Else all have the same length.
    let nothing = if has_length { ops::neutral(op, &version.sum) } else { Vec::new() };
    let mut payload: &[u8] = &version.sum;
    for rank in (0..u64::BITS).filter(|rank| version.arrived >> rank & 1 == 1) {
        let from = Ingress { port: PortId(rank as u16), source: Address::worker(NodeId(rank)), job, ecn: false };
        node.on_packet(now, from, &header, payload, &mut Silent);
        payload = &nothing;
    }
}
