//! Static reduction trees: their parameters, and the nodes of a job.

use fanin_core::{Address, ElementOp, JobNodes, NetworkMap, NodeId, Payload, Placed};
use serde::{Deserialize, Serialize};

use crate::any::AnyNode;
use crate::campaign::First;
use crate::config::{BuildError, JobSpec};
use crate::draw::Draw;
use crate::facts::{Facts, Nodes};
use crate::order::SumOrder;
use crate::system::System;
use crate::trees::{StaticTrees, SwitchOnTrees};

pub(crate) use fanin_protocols::tree::{TreeSwitch, TreeWorker};
pub(crate) use fanin_wire::tree::{LAYOUT, TreeHeader};

/// The parameters of static reduction trees (baselines 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct TreeParameters {
    /// Static trees with random roots; block b is summed on tree b mod `trees`.
    pub trees: u32,
    /// The order in which a switch adds its children's packets; `"fixed"`: neighbours first, then neighbouring sums, as Flare's tree of buffers
    /// does (4.3), so that floats have the same bits every time; a block of `"tree"` then also needs memory for every second child, and one of
    /// `"flare"`, which has no tables then, for what each child sends.
    pub sum_order: SumOrder,
}

impl Default for TreeParameters {
    fn default() -> Self {
        TreeParameters { trees: 1, sum_order: SumOrder::Arrival }
    }
}

impl System {
    /// Static trees, so many, that add up what comes as it comes.
    pub const fn tree(trees: u32) -> Self {
        System::Tree(TreeParameters { trees, sum_order: SumOrder::Arrival })
    }
}

impl Facts for TreeParameters {
    fn is_carried(&self) -> bool {
        true
    }

    fn divides(&self) -> bool {
        false
    }

    fn is_routed(&self, partial: bool) -> bool {
        partial
    }

    fn trees(&self) -> Option<u32> {
        Some(self.trees.max(1))
    }

    fn slot_bytes(&self, job: &JobSpec<'_, ()>, map: &NetworkMap, switch: NodeId) -> u64 {
        let payload = u64::from(job.payload_bytes);
        match self.sum_order {
            SumOrder::Arrival => payload,
            // What waits for its neighbour.
            SumOrder::Fixed => payload.saturating_mul(1 + map.neighbours(switch).len().div_ceil(2) as u64),
        }
    }

    fn sum_bytes(&self, job: &JobSpec<'_, ()>, map: &NetworkMap) -> Option<u64> {
        map.switches().map(|switch| self.slot_bytes(job, map, switch)).max()
    }
}

impl Nodes for TreeParameters {
    const FIRST: Option<First> = Some(First { place: 0, draw: first });

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        nodes(spec, map, self.trees)
    }
}

/// Workers, and switches on `trees` static trees.
fn nodes<P: Payload + ?Sized>(spec: &JobSpec<'_, P::Op>, map: &NetworkMap, trees: u32) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    let trees = StaticTrees::of(spec, map, trees)?;
    let worker = |(rank, &host): (usize, &NodeId)| {
        let node = TreeWorker::new(trees.worker(spec, map, rank as u32, host)?).with_switches_above(trees.above(host));
        Ok(Placed { at: Address::worker(host), node: AnyNode::TreeWorker(node) })
    };
    let workers = spec.hosts.iter().enumerate().map(worker).collect::<Result<_, BuildError>>()?;
    let node =
        |SwitchOnTrees { at, config, first, far }| Placed { at, node: AnyNode::TreeSwitch(TreeSwitch::new(config).with_far(first, far)) };
    let others = trees.switches.into_iter().map(node).collect();
    Ok(JobNodes { workers, others })
}

fn first(draw: &mut Draw, _op: &mut ElementOp) -> System {
    let trees = draw.between(1, 4) as u32;
    // Drawn apart, so that everything else of a seed stays as it was before there was this.
    let is_fixed = Draw::new(draw.clone().bits(), 0x0d3d).percent(25);
    System::Tree(TreeParameters { trees, sum_order: if is_fixed { SumOrder::Fixed } else { SumOrder::Arrival } })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::tests::comes_back;

    #[test]
    fn packets_begin_with_the_systems_number() {
        comes_back(1, TreeHeader::Contribution { block: 77, attempt: 3 });
        comes_back(1, TreeHeader::Aggregate { block: 78 });
    }
}
