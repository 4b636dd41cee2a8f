//! PANAMA: its parameters, and the nodes of a job.

use fanin_core::{Address, JobNodes, NetworkMap, NodeId, Payload, Placed};
use serde::{Deserialize, Serialize};

use crate::any::AnyNode;
use crate::campaign::{Campaign, DrawnJob};
use crate::config::{BuildError, JobSpec};
use crate::draw::Draw;
use crate::facts::{Facts, Nodes};
use crate::system::System;
use crate::tree::TreeParameters;
use crate::trees::{StaticTrees, SwitchOnTrees};

pub(crate) use fanin_protocols::panama::{PanamaSwitch, PanamaWorker};
pub(crate) use fanin_wire::panama::{LAYOUT, PanamaHeader};

/// The parameters of PANAMA: static reduction trees with a window that follows congestion marks; all workers have the same (baselines 5 and 8).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct PanamaParameters {
    /// Static trees with random roots; block b is summed on tree b mod `trees`.
    pub trees: u32,
    /// The initial congestion window in packets; `window` is its maximum. It grows by one per round and shrinks with the share of marked packets
    /// (the network's `ecn`).
    pub window_initial: u32,
}

impl Default for PanamaParameters {
    fn default() -> Self {
        PanamaParameters { trees: 1, window_initial: 16 }
    }
}

impl Facts for PanamaParameters {
    fn is_carried(&self) -> bool {
        true
    }

    fn obeys_marks(&self) -> bool {
        true
    }

    fn is_routed(&self, partial: bool) -> bool {
        partial
    }

    fn trees(&self) -> Option<u32> {
        Some(self.trees.max(1))
    }
}

impl Nodes for PanamaParameters {
    const MADE_OF: Option<&'static str> = Some("tree");
    const CAMPAIGNS: &[Campaign] = &[Campaign { order: 10, stream: 10, draw: campaign }];

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        nodes(spec, map, self.trees, self.window_initial)
    }
}

/// Workers, and switches on `trees` static trees.
fn nodes<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    trees: u32,
    window_initial: u32,
) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    if window_initial == 0 {
        return Err(BuildError::new("window_initial", window_initial, "at least 1 packet"));
    }
    let trees = StaticTrees::of(spec, map, trees)?;
    let worker = |(rank, &host): (usize, &NodeId)| {
        let node = PanamaWorker::new(trees.worker(spec, map, rank as u32, host)?, window_initial).with_switches_above(trees.above(host));
        Ok(Placed { at: Address::worker(host), node: AnyNode::PanamaWorker(node) })
    };
    let workers = spec.hosts.iter().enumerate().map(worker).collect::<Result<_, BuildError>>()?;
    let node = |SwitchOnTrees { at, config, first, far }| Placed {
        at,
        node: AnyNode::PanamaSwitch(PanamaSwitch::new(config).with_far(first, far)),
    };
    let others = trees.switches.into_iter().map(node).collect();
    Ok(JobNodes { workers, others })
}

/// Some of the jobs on static trees heed congestion marks; all, where there are only such.
fn campaign(draw: &mut Draw, _map: &NetworkMap, jobs: &mut [DrawnJob], only: Option<&str>) {
    for job in jobs {
        if let System::Tree(TreeParameters { trees, .. }) = job.system
            && (only == Some("panama") || only.is_none() && draw.percent(30))
        {
            job.system = System::Panama(PanamaParameters { trees, window_initial: draw.between(1, u64::from(job.window)) as u32 });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::PanamaHeader;
    use crate::any::tests::comes_back;

    #[test]
    fn packets_begin_with_the_systems_number() {
        comes_back(8, PanamaHeader::Aggregate { block: 82, marked_up: true, marked_down: false });
    }
}
