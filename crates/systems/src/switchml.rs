//! Nodes of a SwitchML job: one switch where all hosts hang on one, else a tree of switches (switchml 8).

use fanin_core::{Address, DType, ElementOp, JobNodes, NetworkMap, NodeId, Operator, Payload, PayloadOp, Placed, Rank};
use fanin_protocols::switchml::{
    POOL_MAX, SwitchMlChild, SwitchMlOffer, SwitchMlParent, SwitchMlSwitch, SwitchMlSwitchConfig, SwitchMlWorker, SwitchMlWorkerConfig,
};

use crate::any::{AnyNode, resend_gap};
use crate::build::reliability;
use crate::config::{BuildError, JobSpec};
use crate::layout::{self, Members, TreeLayout, TreePlace, leaf_of};

/// Bytes of an element in fixed point: a 32-bit integer for a binary32 float.
const FIXED_POINT_BYTES: u32 = 4;

/// The nodes of the job; the pool has as many slots as the job's window has packets.
pub(crate) fn nodes<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    fixed_point: bool,
) -> Result<JobNodes<AnyNode<P>>, BuildError> {
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
        parent: place.parent.map(|port| SwitchMlParent { port, node: map.neighbours(switch)[port.index()].node }),
        children: place
            .children
            .iter()
            .map(|&(port, node)| SwitchMlChild { port, who: members.who_below(node, |below| layout.place(below)) })
            .collect(),
        fixed_point,
        resend_gap: resend_gap(spec.rto_min),
    };
    Placed { at: Address::switch(switch), node: AnyNode::SwitchMlSwitch(SwitchMlSwitch::new(config)) }
}

/// Element types and operators of a communicator's job, for [`AnyNode::offer`]: every one that goes together, in this order after the one
/// of the job's configuration; where `fixed_point`, sums and means of binary32 once more, as block fixed point; and what the job brings
/// along.
fn offers(fixed_point: bool, at_switch: bool, custom: Vec<PayloadOp>) -> Vec<SwitchMlOffer<PayloadOp>> {
    let offer = |op: PayloadOp| SwitchMlOffer { element_bytes: op.element_bytes() as u32, op, fixed_point: false };
    let plain = ElementOp::all().map(|op| offer(op.into()));
    let scaled = FIXED_POINT_OPERATORS.map(|operator| {
        let dtype = DType::F32;
        // A switch adds the integers; workers divide where a mean is wanted.
        let op = if at_switch { ElementOp::I32_SUM } else { ElementOp { dtype, operator } };
        SwitchMlOffer { op: op.into(), element_bytes: FIXED_POINT_BYTES, fixed_point: true }
    });
    plain.chain(scaled.into_iter().filter(|_| fixed_point)).chain(custom.into_iter().map(offer)).collect()
}

/// What is summed as block fixed point.
const FIXED_POINT_OPERATORS: [Operator; 2] = [Operator::Sum, Operator::Avg];

/// The number by which packets of a job with [`AnyNode::offer`] name an element type and operator. `None` where there is no such number:
/// they do not go together, or are not done in fixed point.
pub fn offer_number(op: ElementOp, fixed_point: bool) -> Option<u8> {
    let plain = ElementOp::all().position(|other| other == op)?;
    let number = match FIXED_POINT_OPERATORS.iter().position(|operator| *operator == op.operator) {
        _ if !fixed_point => plain,
        Some(index) if op.dtype == DType::F32 => ElementOp::all().count() + index,
        _ => return None,
    };
    u8::try_from(number + 1).ok()
}

/// As [`offer_number`], for operator number `index` of those that the job brings along. `None` where numbers do not reach that far.
pub fn custom_offer_number(index: usize, fixed_point: bool) -> Option<u8> {
    let scaled = if fixed_point { FIXED_POINT_OPERATORS.len() } else { 0 };
    u8::try_from(ElementOp::all().count() + scaled + index + 1).ok()
}

impl AnyNode<[u8]> {
    /// Lets the operations of a job differ in element type and operator: see [`offer_number`]. False, and nothing is changed, where the
    /// system does not do that.
    pub fn offer(&mut self, fixed_point: bool) -> bool {
        self.offer_with(fixed_point, Vec::new())
    }

    /// As [`AnyNode::offer`], with operators that the job brings along: see [`custom_offer_number`]. A worker only needs to know the
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operator_has_a_number_of_its_own_on_both_sides() {
        let (worker, switch) = (offers(true, false, Vec::new()), offers(true, true, Vec::new()));
        for op in ElementOp::all() {
            let offer = &worker[usize::from(offer_number(op, false).unwrap()) - 1];
            assert_eq!((&offer.op, offer.fixed_point), (&op.into(), false));
            assert_eq!(&switch[usize::from(offer_number(op, false).unwrap()) - 1], offer);
        }
        let mean = ElementOp { dtype: DType::F32, operator: Operator::Avg };
        let number = usize::from(offer_number(mean, true).unwrap()) - 1;
        assert_eq!((&worker[number].op, &switch[number].op), (&mean.into(), &ElementOp::I32_SUM.into()));
        assert!(worker[number].fixed_point && switch[number].fixed_point);
        assert_eq!(offer_number(ElementOp { dtype: DType::F64, operator: Operator::Sum }, true), None);
        assert_eq!(offer_number(ElementOp { dtype: DType::F64, operator: Operator::Xor }, false), None);
        for fixed_point in [false, true] {
            let offers = offers(fixed_point, true, vec![ElementOp::I32_SUM.into(), mean.into()]);
            assert_eq!(offers[usize::from(custom_offer_number(1, fixed_point).unwrap()) - 1].op, mean.into());
            assert_eq!(offers.len(), usize::from(custom_offer_number(1, fixed_point).unwrap()));
        }
    }
}
