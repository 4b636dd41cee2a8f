//! From a job's configuration to its nodes.

use fanin_core::{Address, FlowLabel, JobNodes, NetworkMap, NodeId, Payload, Placed, PortId, Rank};
use fanin_protocols::ring::{RingBarrier, RingPeer, RingWorker, RingWorkerConfig};
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::tree::{TreeChild, TreeParent, TreeRole, TreeSwitch, TreeSwitchConfig, TreeWorker, TreeWorkerConfig};

use crate::any::{AnyNode, resend_gap};
use crate::atp;
use crate::canary;
use crate::config::{BuildError, JobSpec, RingOrder, System, UNLIMITED};
use crate::layout::{self, Members, TreeLayout, leaf_of};
use crate::netreduce;
use crate::panama;
use crate::switchml;

/// The nodes of a job in a network.
///
/// # Errors
/// [`BuildError`] names the field that contradicts the network or another field.
pub fn build<P: Payload + ?Sized>(spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    check(spec, map)?;
    if P::needs_finish(&spec.op) && !divides(&spec.system) {
        return Err(BuildError::new("operator", "avg", "one that needs no division at the end: ring and tree do not divide"));
    }
    match spec.system {
        System::Ring { order, barrier } => ring(spec, order, barrier),
        System::Tree { trees } => tree(spec, map, trees),
        System::Panama { trees, window_initial } => panama::nodes(spec, map, trees, window_initial),
        System::NetReduce(parameters) => netreduce::nodes(spec, map, &parameters),
        System::SwitchMl { fixed_point } => switchml::nodes(spec, map, fixed_point),
        System::Canary(parameters) => canary::nodes(spec, map, &parameters),
        System::Atp(_) | System::A2tp(_) => atp::nodes(spec, map),
    }
}

/// Whether some node of the system makes a mean of a sum.
fn divides(system: &System) -> bool {
    !matches!(system, System::Ring { .. } | System::Tree { .. })
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
    let may_be_unlimited = matches!(spec.system, System::Canary { .. });
    if spec.window == 0 || spec.window > 1 << 20 && !(spec.window == UNLIMITED && may_be_unlimited) {
        let more = if may_be_unlimited { ", or unlimited" } else { "" };
        return Err(BuildError::new("window", spec.window, format!("1 to 1048576 packets{more}")));
    }
    if !spec.servers.is_empty() && spec.system.servers() == 0 {
        let expected = format!("0: {} has no servers", spec.system.name());
        return Err(BuildError::new("servers", spec.servers.len(), expected));
    }
    let mut taken = vec![false; map.hosts() as usize];
    for &host in spec.hosts.iter().chain(spec.servers) {
        leaf_of(map, host)?;
        if std::mem::replace(&mut taken[host.index()], true) {
            return Err(BuildError::new("hosts", host, "each host once"));
        }
    }
    Ok(())
}

pub(crate) fn reliability<Op>(spec: &JobSpec<'_, Op>) -> Reliability {
    if spec.reliable { Reliability::lossy(spec.rto_initial, spec.rto_min, spec.patience) } else { Reliability::LOSSLESS }
}

/// The ranks in the order in which the ring visits them.
pub(crate) fn ring_order(hosts: &[NodeId], order: RingOrder) -> Vec<u32> {
    let mut ranks: Vec<u32> = (0..hosts.len() as u32).collect();
    if order == RingOrder::Host {
        ranks.sort_unstable_by_key(|&rank| hosts[rank as usize]);
    }
    ranks
}

fn ring<P: Payload + ?Sized>(spec: &JobSpec<'_, P::Op>, order: RingOrder, barrier: bool) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    let count = spec.hosts.len();
    let most = RingWorkerConfig::<P::Op>::WORKERS_MAX as usize;
    if count > most {
        return Err(BuildError::new("workers", count, format!("at most {most} in a ring")));
    }
    let ranks = ring_order(spec.hosts, order);
    let peer = |position: usize| {
        let rank = ranks[position % count];
        RingPeer { rank: Rank(rank), address: Address::worker(spec.hosts[rank as usize]) }
    };
    let members = || spec.hosts.iter().map(|&host| Address::worker(host)).collect();
    let mut workers: Vec<Placed<AnyNode<P>>> = Vec::with_capacity(count);
    let mut position_of = vec![0; count];
    for (position, &rank) in ranks.iter().enumerate() {
        position_of[rank as usize] = position;
    }
    for (rank, &position) in position_of.iter().enumerate() {
        let barrier = barrier
            .then(|| RingBarrier { coordinator: Address::worker(spec.hosts[0]), members: if rank == 0 { members() } else { Vec::new() } });
        let config = RingWorkerConfig {
            job: spec.id,
            rank: Rank(rank as u32),
            workers: count as u32,
            position: position as u32,
            predecessor: peer(position + count - 1),
            successor: peer(position + 1),
            op: spec.op.clone(),
            element_bytes: spec.element_bytes,
            block_elements: spec.payload_bytes / spec.element_bytes,
            window: spec.window,
            // One flow for the job's ring: hashing tells workers apart by their addresses.
            flow: FlowLabel(u32::from(spec.id.0)),
            barrier,
            reliability: reliability(spec),
        };
        workers.push(Placed { at: Address::worker(spec.hosts[rank]), node: AnyNode::RingWorker(RingWorker::new(config)) });
    }
    Ok(JobNodes { workers, others: Vec::new() })
}

fn tree<P: Payload + ?Sized>(spec: &JobSpec<'_, P::Op>, map: &NetworkMap, trees: u32) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    let workers = spec.hosts.iter().enumerate().map(|(rank, &host)| tree_worker(spec, map, rank as u32, host)).collect::<Result<_, _>>()?;
    let switches = tree_switches(spec, map, trees)?.into_iter();
    let others = switches.map(|(at, config)| Placed { at, node: AnyNode::TreeSwitch(TreeSwitch::new(config)) }).collect();
    Ok(JobNodes { workers, others })
}

/// What the switches are told that static trees of a job pass.
pub(crate) fn tree_switches<Op: Clone>(
    spec: &JobSpec<'_, Op>,
    map: &NetworkMap,
    trees: u32,
) -> Result<Vec<(Address, TreeSwitchConfig<Op>)>, BuildError> {
    if trees == 0 || trees > 1024 {
        return Err(BuildError::new("trees", trees, "1 to 1024"));
    }
    let roots = layout::random_roots(map, spec.hosts, trees, spec.seed)?;
    let layouts: Vec<TreeLayout> = roots
        .iter()
        .enumerate()
        .map(|(tree, &root)| layout::tree(map, spec.hosts, root, spec.seed.wrapping_add(tree as u64)))
        .collect::<Result<_, _>>()?;
    let members = Members::new(map, spec.hosts);
    Ok(map.switches().filter_map(|switch| tree_switch(spec, map, switch, &layouts, &members)).collect())
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

/// What a switch is told; `None` where no tree passes.
fn tree_switch<Op: Clone>(
    spec: &JobSpec<'_, Op>,
    map: &NetworkMap,
    switch: NodeId,
    layouts: &[TreeLayout],
    members: &Members<'_>,
) -> Option<(Address, TreeSwitchConfig<Op>)> {
    let parent = |port: PortId| TreeParent { port, node: map.neighbours(switch)[port.index()].node };
    let role = |layout: &TreeLayout| {
        let (_, place) = layout.places.iter().find(|(node, _)| *node == switch)?;
        Some(TreeRole {
            parent: place.parent.map(parent),
            children: place.children.iter().map(|&(port, node)| TreeChild { port, who: members.who(node) }).collect(),
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
    Some((Address::switch(switch), config))
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::{DType, Duration, ElementOp, JobId, Length, Operator};

    #[test]
    fn means_are_for_systems_that_divide() {
        let hosts = [0, 1].map(NodeId);
        let op = ElementOp::new(DType::F32, Operator::Avg).unwrap();
        let nodes = |system| {
            let spec = JobSpec {
                id: JobId(0),
                hosts: &hosts,
                servers: &[],
                system,
                op,
                element_bytes: 4,
                payload_bytes: 64,
                window: 4,
                reliable: true,
                rto_initial: Duration::from_ms(1),
                rto_min: Duration::from_ms(1),
                patience: Duration::from_ms(100),
                seed: 0,
            };
            build::<[u8]>(&spec, &NetworkMap::star(2))
        };
        assert!(nodes(System::SwitchMl { fixed_point: false }).is_ok() && nodes(System::canary()).is_ok());
        let refused = nodes(System::Tree { trees: 1 }).unwrap_err().to_string();
        assert_eq!(refused, "operator = avg: expected one that needs no division at the end: ring and tree do not divide");
    }

    #[test]
    fn servers_are_for_systems_that_have_them() {
        let hosts = [0, 1, 2].map(NodeId);
        let spec = JobSpec {
            id: JobId(0),
            hosts: &hosts[..2],
            servers: &hosts[2..],
            system: System::Ring { order: RingOrder::Host, barrier: false },
            op: (),
            element_bytes: 4,
            payload_bytes: 64,
            window: 4,
            reliable: true,
            rto_initial: Duration::from_ms(1),
            rto_min: Duration::from_ms(1),
            patience: Duration::from_ms(100),
            seed: 0,
        };
        let refused = build::<Length>(&spec, &NetworkMap::star(3)).unwrap_err().to_string();
        assert_eq!(refused, "servers = 1: expected 0: ring has no servers");
    }

    #[test]
    fn a_ring_goes_by_host_number_or_by_rank() {
        let hosts = [7, 2, 9, 4].map(NodeId);
        assert_eq!(ring_order(&hosts, RingOrder::Host), [1, 3, 0, 2]);
        assert_eq!(ring_order(&hosts, RingOrder::Placement), [0, 1, 2, 3]);
    }
}
