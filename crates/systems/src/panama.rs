//! The nodes of a PANAMA job.

use fanin_core::{Address, JobNodes, NetworkMap, NodeId, Payload, Placed};
use fanin_protocols::panama::{PanamaSwitch, PanamaWorker};

use crate::any::AnyNode;
use crate::config::{BuildError, JobSpec};
use crate::trees::{StaticTrees, SwitchOnTrees};

/// Workers, and switches on `trees` static trees.
pub(crate) fn nodes<P: Payload + ?Sized>(
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
