//! Nodes of a SwitchML job: one switch where all hosts hang on one, else a tree of switches (switchml 8).

use fanin_core::{Address, JobNodes, NetworkMap, NodeId, Payload, Placed, Rank, Suspect};
use fanin_protocols::switchml::{
    POOL_MAX, SwitchMlChild, SwitchMlParent, SwitchMlSwitch, SwitchMlSwitchConfig, SwitchMlWorker, SwitchMlWorkerConfig,
};

use crate::any::{AnyNode, resend_gap};
use crate::build::reliability;
use crate::config::{BuildError, JobSpec};
use crate::layout::{self, TreePlace, leaf_of};

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
    let mut rank_at = vec![None; map.hosts() as usize];
    for (rank, host) in spec.hosts.iter().enumerate() {
        rank_at[host.index()] = Some(Rank(rank as u32));
    }
    let others = layout.places.iter().map(|(node, place)| switch(spec, map, *node, place, &rank_at, fixed_point)).collect();
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
    switch: NodeId,
    place: &TreePlace,
    rank_at: &[Option<Rank>],
    fixed_point: bool,
) -> Placed<AnyNode<P>> {
    let who = |node: NodeId| {
        if map.is_host(node) { rank_at[node.index()].map_or(Suspect::Unknown, Suspect::Rank) } else { Suspect::Switch(node) }
    };
    let config = SwitchMlSwitchConfig {
        job: spec.id,
        op: spec.op.clone(),
        workers: spec.hosts.len() as u32,
        block_bytes: spec.payload_bytes,
        pool: spec.window,
        parent: place.parent.map(|port| SwitchMlParent { port, node: map.neighbours(switch)[port.index()].node }),
        children: place.children.iter().map(|&(port, node)| SwitchMlChild { port, who: who(node) }).collect(),
        fixed_point,
        resend_gap: resend_gap(spec.rto_min),
    };
    Placed { at: Address::switch(switch), node: AnyNode::SwitchMlSwitch(SwitchMlSwitch::new(config)) }
}
