//! Nodes of a SwitchML job: one switch where all hosts hang on one, else a tree of switches (switchml 8).

use fanin_core::{
    Address, CollectiveKind, DType, ElementOp, JobNodes, NetworkMap, NodeId, Operator, Payload, PayloadOp, Placed, Rank, Wire,
};
use fanin_protocols::switchml::{POOL_MAX, SwitchMlChild, SwitchMlOffer, SwitchMlParent, SwitchMlSwitchConfig, SwitchMlWorkerConfig};

use serde::{Deserialize, Serialize};

use crate::any::{AnyNode, resend_gap};
use crate::build::reliability;
use crate::campaign::{First, averaging};
use crate::config::{BuildError, JobSpec};
use crate::draw::Draw;
use crate::facts::{AggregatorUse, Facts, Nodes};
use crate::layout::{self, Members, TreeLayout, TreePlace, leaf_of};
use crate::system::System;

pub(crate) use fanin_protocols::switchml::{SwitchMlSwitch, SwitchMlWorker};
pub(crate) use fanin_wire::switchml::{LAYOUT, SwitchMlHeader};

/// The parameters of SwitchML: a pool of slots at one switch, or at each of a tree of switches; the window is the size of the pool
/// (switchml 1 to 10).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct SwitchMlParameters {
    /// 32-bit floats travel as integers with an exponent per block, which is exchanged one round ahead; in simulation nothing is rounded (`switchml
    /// 6`).
    pub fixed_point: bool,
}

/// Bytes of an element in fixed point: a 32-bit integer for a binary32 float.
const FIXED_POINT_BYTES: u32 = 4;

impl Facts for SwitchMlParameters {
    fn is_carried(&self) -> bool {
        true
    }

    fn stays_next_door(&self) -> bool {
        true
    }

    fn is_routed(&self, _partial: bool) -> bool {
        false
    }

    fn fixed_point(&self) -> bool {
        self.fixed_point
    }

    // What is copied needs no exponents.
    fn offers(&self, kind: CollectiveKind) -> bool {
        let copies = matches!(kind, CollectiveKind::Broadcast { .. } | CollectiveKind::AllGather | CollectiveKind::Barrier);
        !(self.fixed_point && copies || matches!(kind, CollectiveKind::AllToAll { .. }))
    }

    fn offered(&self) -> Option<&'static str> {
        Some("allreduce, reduce or reduce-scatter, which sum, with fixed_point")
    }

    fn header_bytes_max(&self, fixed_point: bool) -> Option<usize> {
        Some(if fixed_point { SwitchMlHeader::MAX_LEN } else { SwitchMlHeader::UNSCALED_MAX_LEN })
    }

    fn aggregators(&self) -> Option<AggregatorUse> {
        Some(AggregatorUse::Pool(&["aggregators"]))
    }
}

impl Nodes for SwitchMlParameters {
    const FIRST: Option<First> = Some(First { place: 2, draw: drawn_first });

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        nodes(spec, map, self.fixed_point)
    }
}

/// The nodes of the job; the pool has as many slots as the job's window has packets.
fn nodes<P: Payload + ?Sized>(spec: &JobSpec<'_, P::Op>, map: &NetworkMap, fixed_point: bool) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    if spec.window > POOL_MAX {
        return Err(BuildError::new("window", spec.window, format!("1 to {POOL_MAX} packets: a slot of the pool for each")));
    }
    if fixed_point && spec.element_bytes != FIXED_POINT_BYTES {
        return Err(BuildError::new("fixed_point", true, "false, unless elements are 32-bit floats"));
    }
    let root = layout::random_roots(map, spec.hosts, 1, spec.seed)?[0];
    let layout = layout::tree(map, spec.hosts, root, spec.seed)?;
    let workers = spec.hosts.iter().enumerate().map(|(rank, &host)| worker(spec, map, rank as u32, host, fixed_point));
    let members = Members::new(map, spec.hosts);
    let others = layout.places.iter().map(|(node, place)| switch(spec, map, &layout, (*node, place), &members, fixed_point)).collect();
    Ok(JobNodes { workers: workers.collect::<Result<_, _>>()?, others })
}

fn worker<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    rank: u32,
    host: NodeId,
    fixed_point: bool,
) -> Result<Placed<AnyNode<P>>, BuildError> {
    let leaf = leaf_of(map, host)?;
    let config = SwitchMlWorkerConfig {
        job: spec.id,
        rank: Rank(rank),
        workers: spec.hosts.len() as u32,
        op: spec.op.clone(),
        element_bytes: spec.element_bytes,
        block_elements: spec.payload_bytes / spec.element_bytes,
        pool: spec.window,
        uplink: leaf.port,
        switch: leaf.node,
        reliability: reliability(spec),
        fixed_point,
    };
    Ok(Placed { at: Address::worker(host), node: AnyNode::SwitchMlWorker(SwitchMlWorker::new(config)) })
}

/// The job's node at a switch.
fn switch<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    layout: &TreeLayout,
    (switch, place): (NodeId, &TreePlace),
    members: &Members<'_>,
    fixed_point: bool,
) -> Placed<AnyNode<P>> {
    let config = SwitchMlSwitchConfig {
        job: spec.id,
        op: spec.op.clone(),
        workers: spec.hosts.len() as u32,
        block_bytes: spec.payload_bytes,
        pool: spec.window,
        parent: place.parent.map(|port| SwitchMlParent { port, node: map.neighbours_in_trees(switch)[port.index()].node }),
        children: place
            .children
            .iter()
            .map(|&(port, node)| SwitchMlChild {
                port,
                who: members.who_below(node, |below| layout.place(below)),
                carrier: members.carrier_below((switch, port), node, |below| layout.place(below)),
            })
            .collect(),
        fixed_point,
        resend_gap: resend_gap(spec.rto_min),
    };
    Placed { at: Address::switch(switch), node: AnyNode::SwitchMlSwitch(SwitchMlSwitch::new(config)) }
}

/// Element types and operators of a communicator's job, for [`AnyNode::offer`], in the order of [`OfferNumbers`] after the one of the job's
/// configuration.
fn offers(fixed_point: bool, at_switch: bool, custom: Vec<PayloadOp>) -> Vec<SwitchMlOffer<PayloadOp>> {
    let offer = |op: PayloadOp| SwitchMlOffer { element_bytes: op.element_bytes() as u32, op, fixed_point: false };
    let scaled = FIXED_POINT_OPERATORS.map(|operator| {
        let dtype = DType::F32;
        // A switch adds the integers; workers divide where a mean is wanted.
        let op = if at_switch { ElementOp::I32_SUM } else { ElementOp { dtype, operator } };
        SwitchMlOffer { op: op.into(), element_bytes: FIXED_POINT_BYTES, fixed_point: true }
    });
    first()
        .map(|op| offer(op.into()))
        .chain(scaled.into_iter().filter(|_| fixed_point))
        .chain(custom.into_iter().map(offer))
        .chain(last().map(|op| offer(op.into())))
        .collect()
}

/// What is summed as block fixed point.
const FIXED_POINT_OPERATORS: [Operator; 2] = [Operator::Sum, Operator::Avg];

/// Whether an operator's numbers come after those that a job brings along. Numbers that packets have carried never change their meaning: a
/// switch and a rank that were not built together would reduce by different operators, and neither would know.
const fn comes_last(op: ElementOp) -> bool {
    matches!(op.operator, Operator::Minimum | Operator::Maximum)
}

fn first() -> impl Iterator<Item = ElementOp> {
    ElementOp::all().filter(|op| !comes_last(*op))
}

fn last() -> impl Iterator<Item = ElementOp> {
    ElementOp::all().filter(|op| comes_last(*op))
}

/// The numbers by which packets of a job with [`AnyNode::offer`] name an element type and operator: every one that goes together; where the job
/// has block fixed point, sums and means of binary32 once more; what the job brings along; and operators that came later.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OfferNumbers {
    /// Whether the job sums floats as block fixed point.
    pub fixed_point: bool,
    /// How many operators the job brings along.
    pub customs: usize,
}

impl OfferNumbers {
    /// Of a built-in operator; where `scaled`, as block fixed point. `None` where there is no such number: type and operator do not go
    /// together, or are not done in fixed point.
    pub fn built_in(self, op: ElementOp, scaled: bool) -> Option<u8> {
        let place = |mut ops: Box<dyn Iterator<Item = ElementOp>>| ops.position(|other| other == op);
        let index = if scaled {
            let index = FIXED_POINT_OPERATORS.iter().position(|operator| *operator == op.operator)?;
            (op.dtype == DType::F32).then(|| first().count() + index)?
        } else if comes_last(op) {
            self.customs_from() + self.customs + place(Box::new(last()))?
        } else {
            place(Box::new(first()))?
        };
        u8::try_from(index + 1).ok()
    }

    /// Of operator `index` of those that the job brings along. `None` where numbers do not reach that far.
    pub fn custom(self, index: usize) -> Option<u8> {
        u8::try_from(self.customs_from() + index + 1).ok()
    }

    fn customs_from(self) -> usize {
        first().count() + if self.fixed_point { FIXED_POINT_OPERATORS.len() } else { 0 }
    }
}

impl AnyNode<[u8]> {
    /// Lets the operations of a job differ in element type and operator: see [`OfferNumbers`]. False, and nothing is changed, where the
    /// system does not do that.
    pub fn offer(&mut self, fixed_point: bool) -> bool {
        self.offer_with(fixed_point, Vec::new())
    }

    /// As [`AnyNode::offer`], with operators that the job brings along: see [`OfferNumbers::custom`]. A worker only needs to know the
    /// lengths of their elements, which are at most as long as a block. False, too, at a switch below another one: its partial aggregates
    /// would have to travel, and only elements do.
    ///
    /// # Panics
    /// Where numbers do not reach that far, or an element is longer than a block.
    pub fn offer_with(&mut self, fixed_point: bool, custom: Vec<PayloadOp>) -> bool {
        match self {
            AnyNode::SwitchMlWorker(worker) => worker.offer(&offers(fixed_point, false, custom)),
            AnyNode::SwitchMlSwitch(switch) if custom.is_empty() || switch.is_root() => switch.offer(&offers(fixed_point, true, custom)),
            _ => return false,
        }
        true
    }
}

fn drawn_first(draw: &mut Draw, op: &mut ElementOp) -> System {
    let system = System::SwitchMl(SwitchMlParameters { fixed_point: *op == ElementOp::F32_SUM && draw.percent(50) });
    averaging(draw, op);
    system
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::tests::comes_back;
    use fanin_wire::switchml::{SlotUse, SwitchMlHeader};

    #[test]
    fn every_operator_has_a_number_of_its_own_on_both_sides() {
        let brought: Vec<PayloadOp> = vec![ElementOp::I32_SUM.into(), ElementOp { dtype: DType::F32, operator: Operator::Avg }.into()];
        for (fixed_point, customs) in [(false, 0), (false, 2), (true, 0), (true, 2)] {
            let numbers = OfferNumbers { fixed_point, customs };
            let table = |at_switch| offers(fixed_point, at_switch, brought[..customs].to_vec());
            let (worker, switch) = (table(false), table(true));
            for op in ElementOp::all() {
                let at = usize::from(numbers.built_in(op, false).unwrap()) - 1;
                assert_eq!((&worker[at].op, worker[at].fixed_point), (&op.into(), false));
                assert_eq!(switch[at], worker[at]);
            }
            for (index, op) in brought[..customs].iter().enumerate() {
                assert_eq!(&switch[usize::from(numbers.custom(index).unwrap()) - 1].op, op);
            }
            let scaled = if fixed_point { FIXED_POINT_OPERATORS.len() } else { 0 };
            assert_eq!(switch.len(), ElementOp::all().count() + scaled + customs, "no number is nobody's");
        }
    }

    #[test]
    fn floats_are_done_in_fixed_point_where_they_are_summed() {
        let numbers = OfferNumbers { fixed_point: true, customs: 0 };
        let mean = ElementOp { dtype: DType::F32, operator: Operator::Avg };
        let number = usize::from(numbers.built_in(mean, true).unwrap()) - 1;
        let (worker, switch) = (offers(true, false, Vec::new()), offers(true, true, Vec::new()));
        assert_eq!((&worker[number].op, &switch[number].op), (&mean.into(), &ElementOp::I32_SUM.into()));
        assert!(worker[number].fixed_point && switch[number].fixed_point);
        assert_eq!(numbers.built_in(ElementOp { dtype: DType::F64, operator: Operator::Sum }, true), None);
        assert_eq!(numbers.built_in(ElementOp { dtype: DType::F32, operator: Operator::Maximum }, true), None);
        assert_eq!(numbers.built_in(ElementOp { dtype: DType::F64, operator: Operator::Xor }, false), None);
    }

    /// What packets of earlier builds mean.
    #[test]
    fn numbers_never_change() {
        let numbers = OfferNumbers { fixed_point: true, customs: 4 };
        let of = |dtype, operator| numbers.built_in(ElementOp { dtype, operator }, false).unwrap();
        let known =
            [of(DType::F32, Operator::Sum), of(DType::F32, Operator::Avg), of(DType::F64, Operator::Sum), of(DType::U8, Operator::Xor)];
        assert_eq!(known, [1, 5, 6, 55]);
        assert_eq!((numbers.built_in(ElementOp::F32_SUM, true), numbers.custom(0), numbers.custom(3)), (Some(56), Some(58), Some(61)));
        assert_eq!(of(DType::F32, Operator::Minimum), 62);
    }

    #[test]
    fn packets_begin_with_the_systems_number() {
        comes_back(4, SwitchMlHeader::Rejected { at: SlotUse { slot: 2, round: 81 } });
    }
}
