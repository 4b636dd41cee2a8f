//! From a job's configuration to its nodes.

use fanin_core::{Address, JobNodes, NetworkMap, NodeId, Payload, Placed, PortId, Rank, Suspect};
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::tree::{TreeChild, TreeParent, TreeRole, TreeSwitch, TreeSwitchConfig, TreeWorker, TreeWorkerConfig};

use crate::any::{AnyNode, resend_gap};
use crate::config::{BuildError, JobSpec, System};
use crate::layout::{self, TreeLayout, leaf_of};

/// The nodes of a job in a network.
///
/// # Errors
/// [`BuildError`] names the field that contradicts the network or another field.
pub fn build<P: Payload + ?Sized>(spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    check(spec, map)?;
    match spec.system {
        System::Ring { .. } => Err(BuildError::new("system", "ring", "tree, for the moment")),
        System::Tree { trees } => tree(spec, map, trees),
    }
}

fn check<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap) -> Result<(), BuildError> {
    if spec.hosts.is_empty() {
        return Err(BuildError::new("workers", 0, "at least 1"));
    }
    if spec.element_bytes == 0 {
        return Err(BuildError::new("element_bytes", 0, "at least 1"));
    }
    if spec.payload_bytes == 0 || !spec.payload_bytes.is_multiple_of(spec.element_bytes) {
        let expected = format!("a multiple of {}, the length of an element", spec.element_bytes);
        return Err(BuildError::new("payload", spec.payload_bytes, expected));
    }
    if spec.window == 0 || spec.window > 1 << 20 {
        return Err(BuildError::new("window", spec.window, "1 to 1048576 packets"));
    }
    let mut taken = vec![false; map.hosts() as usize];
    for &host in spec.hosts {
        leaf_of(map, host)?;
        if std::mem::replace(&mut taken[host.index()], true) {
            return Err(BuildError::new("hosts", host, "each host once"));
        }
    }
    Ok(())
}

fn reliability<Op>(spec: &JobSpec<'_, Op>) -> Reliability {
    if spec.reliable { Reliability::lossy(spec.rto_initial, spec.rto_min, spec.patience) } else { Reliability::LOSSLESS }
}

fn tree<P: Payload + ?Sized>(spec: &JobSpec<'_, P::Op>, map: &NetworkMap, trees: u32) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    if trees == 0 || trees > 1024 {
        return Err(BuildError::new("trees", trees, "1 to 1024"));
    }
    let roots = layout::random_roots(map, spec.hosts, trees, spec.seed)?;
    let layouts: Vec<TreeLayout> = roots
        .iter()
        .enumerate()
        .map(|(tree, &root)| layout::tree(map, spec.hosts, root, spec.seed.wrapping_add(tree as u64)))
        .collect::<Result<_, _>>()?;
    let workers = spec.hosts.iter().enumerate().map(|(rank, &host)| tree_worker(spec, map, rank as u32, host)).collect::<Result<_, _>>()?;
    let mut rank_at = vec![None; map.hosts() as usize];
    for (rank, host) in spec.hosts.iter().enumerate() {
        rank_at[host.index()] = Some(Rank(rank as u32));
    }
    let others = map.switches().filter_map(|switch| tree_switch(spec, map, switch, &layouts, &rank_at)).collect();
    Ok(JobNodes { workers, others })
}

fn tree_worker<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    rank: u32,
    host: NodeId,
) -> Result<Placed<AnyNode<P>>, BuildError> {
    let leaf = leaf_of(map, host)?;
    let config = TreeWorkerConfig {
        job: spec.id,
        rank: Rank(rank),
        workers: spec.hosts.len() as u32,
        op: spec.op.clone(),
        element_bytes: spec.element_bytes,
        block_elements: spec.payload_bytes / spec.element_bytes,
        window: spec.window,
        uplink: leaf.port,
        leaf: leaf.node,
        reliability: reliability(spec),
    };
    Ok(Placed { at: Address::worker(host), node: AnyNode::TreeWorker(TreeWorker::new(config)) })
}

/// The job's node at a switch; `None` where no tree passes.
fn tree_switch<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    switch: NodeId,
    layouts: &[TreeLayout],
    rank_at: &[Option<Rank>],
) -> Option<Placed<AnyNode<P>>> {
    let who = |node: NodeId| {
        if map.is_host(node) { rank_at[node.index()].map_or(Suspect::Unknown, Suspect::Rank) } else { Suspect::Switch(node) }
    };
    let parent = |port: PortId| TreeParent { port, node: map.neighbours(switch)[port.index()].node };
    let role = |layout: &TreeLayout| {
        let (_, place) = layout.places.iter().find(|(node, _)| *node == switch)?;
        Some(TreeRole {
            parent: place.parent.map(parent),
            children: place.children.iter().map(|&(port, node)| TreeChild { port, who: who(node) }).collect(),
        })
    };
    let trees: Vec<Option<TreeRole>> = layouts.iter().map(role).collect();
    if trees.iter().all(Option::is_none) {
        return None;
    }
    let config = TreeSwitchConfig {
        job: spec.id,
        op: spec.op.clone(),
        block_bytes: spec.payload_bytes,
        window: spec.window,
        trees,
        reliable: spec.reliable,
        resend_gap: resend_gap(spec.rto_min),
    };
    Some(Placed { at: Address::switch(switch), node: AnyNode::TreeSwitch(TreeSwitch::new(config)) })
}
