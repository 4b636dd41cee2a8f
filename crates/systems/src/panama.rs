//! The nodes of a PANAMA job.

use fanin_core::{Address, JobNodes, NetworkMap, NodeId, Payload, Placed, Rank};
use fanin_protocols::panama::{PanamaSwitch, PanamaWorker, PanamaWorkerConfig};

use crate::any::AnyNode;
use crate::build::{reliability, tree_switches};
use crate::config::{BuildError, JobSpec};
use crate::layout::leaf_of;

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
    let worker = |(rank, &host): (usize, &NodeId)| {
        let leaf = leaf_of(map, host)?;
        let config = PanamaWorkerConfig {
            job: spec.id,
            rank: Rank(rank as u32),
            workers: spec.hosts.len() as u32,
            op: spec.op.clone(),
            element_bytes: spec.element_bytes,
            block_elements: spec.payload_bytes / spec.element_bytes,
            window: spec.window,
            window_initial,
            uplink: leaf.port,
            leaf: leaf.node,
            reliability: reliability(spec),
        };
        Ok(Placed { at: Address::worker(host), node: AnyNode::PanamaWorker(PanamaWorker::new(config)) })
    };
    let workers = spec.hosts.iter().enumerate().map(worker).collect::<Result<_, BuildError>>()?;
    let switches = tree_switches(spec, map, trees)?.into_iter();
    let others = switches.map(|(at, config)| Placed { at, node: AnyNode::PanamaSwitch(PanamaSwitch::new(config)) }).collect();
    Ok(JobNodes { workers, others })
}
