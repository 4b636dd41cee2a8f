//! From a job's configuration to its nodes.

use fanin_core::{Address, FlowLabel, JobNodes, NetworkMap, NodeId, Payload, Placed, Rank, Role, SharedNode};
use fanin_protocols::ring::{RingBarrier, RingPeer, RingWorker, RingWorkerConfig};
use fanin_protocols::shared::reliability::Reliability;

use crate::any::AnyNode;
use crate::atp;
use crate::canary;
use crate::config::{BuildError, JobSpec, RingOrder, StepParameters, System, UNLIMITED};
use crate::doubling;
use crate::exchange;
use crate::flare;
use crate::layout::leaf_of;
use crate::machines;
use crate::netreduce;
use crate::panama;
use crate::ps;
use crate::rina;
use crate::sharp;
use crate::switchml;
use crate::trees;

/// The nodes that jobs share: at each switch one, for all jobs that use its aggregators (ATP, A2TP), one for all whose trees pass it (SHARP),
/// and one for all that share its descriptors (Canary, where a job says so). Jobs of other systems have none.
///
/// # Errors
/// The job's place in `specs` and what is wrong with it: jobs that share switches must agree about what these have.
pub fn shared<P: Payload + ?Sized>(
    specs: &[JobSpec<'_, P::Op>],
    map: &NetworkMap,
) -> Result<Vec<SharedNode<AnyNode<P>>>, (usize, BuildError)> {
    let mut nodes = atp::shared(specs, map)?;
    nodes.extend(sharp::shared(specs, map)?);
    nodes.extend(canary::shared(specs, map)?);
    for (index, spec) in specs.iter().enumerate() {
        let at = nodes.iter().filter(|node| node.jobs.contains(&spec.id)).map(|node| node.placed.at);
        only_where_sums_are_made(spec, map, at).map_err(|error| (index, error))?;
    }
    Ok(nodes)
}

impl<P: Payload + ?Sized> AnyNode<P> {
    /// A job comes to a switch that it shares with those that are there; it goes by [`fanin_core::Node::on_job_end`]. False, and nothing is
    /// changed, where the node is no such switch or the job has nothing there.
    ///
    /// # Errors
    /// [`BuildError`] where the job does not fit the network, or the switch as those that are there have it.
    pub fn admit(&mut self, switch: NodeId, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<bool, BuildError> {
        match self {
            AnyNode::AtpSwitch(node) => atp::admit(node, switch, spec, map),
            AnyNode::SharpSwitch(node) => sharp::admit(node, switch, spec, map),
            AnyNode::CanarySharedSwitch(node) => canary::admit(node, switch, spec, map),
            _ => Ok(false),
        }
    }
}

/// The nodes of a job in a network.
///
/// # Errors
/// [`BuildError`] names the field that contradicts the network or another field.
pub fn build<P: Payload + ?Sized>(spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    check(spec, map)?;
    check_operator::<P>(&spec.system, &spec.op)?;
    let nodes = nodes(spec, map)?;
    only_where_sums_are_made(spec, map, nodes.others.iter().map(|placed| placed.at))?;
    Ok(nodes)
}

/// Whether the system's nodes can do what the operator needs.
///
/// # Errors
/// [`BuildError`] of the field `operator`.
pub fn check_operator<P: Payload + ?Sized>(system: &System, op: &P::Op) -> Result<(), BuildError> {
    if !P::needs_finish(op) || divides(system) {
        return Ok(());
    }
    let expected = "one that needs no division at the end: ring, tree, sharp, flare, doubling and exchange do not divide";
    Err(BuildError::new("operator", "avg", expected))
}

fn nodes<P: Payload + ?Sized>(spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    match spec.system {
        System::Ring { order, barrier, steps } => ring(spec, order, barrier, steps),
        System::Tree { trees, .. } => trees::nodes(spec, map, trees),
        System::Panama { trees, window_initial } => panama::nodes(spec, map, trees, window_initial),
        System::Sharp(parameters) => sharp::nodes(spec, map, &parameters),
        System::NetReduce(parameters) => netreduce::nodes(spec, map, &parameters),
        System::Machines(parameters) => machines::nodes(spec, map, &parameters),
        System::Rina(parameters) => rina::nodes(spec, map, &parameters),
        System::Ps(parameters) => ps::nodes(spec, map, &parameters),
        System::Flare(parameters) => flare::nodes(spec, map, &parameters),
        System::Doubling(parameters) => doubling::nodes(spec, &parameters),
        System::Exchange => exchange::nodes(spec),
        System::SwitchMl { fixed_point } => switchml::nodes(spec, map, fixed_point),
        System::Canary(parameters) => canary::nodes(spec, map, &parameters),
        System::Atp(_) | System::A2tp(_) => atp::nodes(spec, map),
    }
}

/// Some systems can do with a part of the switches; of the others every switch must aggregate that they use.
fn only_where_sums_are_made<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap, mut at: impl Iterator<Item = Address>) -> Result<(), BuildError> {
    match at.find(|at| at.role == Role::Switch && !map.can_aggregate(at.node)) {
        None => Ok(()),
        Some(at) => {
            let expected = format!("a system that can do without switch {}, which only forwards: atp, a2tp, rina, tree or panama", at.node);
            Err(BuildError::new("system", spec.system.name(), expected))
        }
    }
}

/// Whether some node of the system makes a mean of a sum.
fn divides(system: &System) -> bool {
    !matches!(system, System::Ring { .. } | System::Tree { .. } | System::Sharp(_) | System::Flare(_) | System::Doubling(_) | System::Exchange)
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
pub fn ring_order(hosts: &[NodeId], order: RingOrder) -> Vec<u32> {
    let mut ranks: Vec<u32> = (0..hosts.len() as u32).collect();
    if order == RingOrder::Host {
        ranks.sort_unstable_by_key(|&rank| hosts[rank as usize]);
    }
    ranks
}

fn ring<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    order: RingOrder,
    barrier: bool,
    steps: StepParameters,
) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    let placed = |(worker, &host): (RingWorker<P>, &NodeId)| Placed {
        at: Address::worker(host),
        node: AnyNode::RingWorker(worker.with_step_cost(steps.cost(spec.seed))),
    };
    let workers = ring_workers(spec, order, barrier)?.into_iter().zip(spec.hosts).map(placed).collect();
    Ok(JobNodes { workers, others: Vec::new() })
}

/// The workers of a ring, by rank.
pub(crate) fn ring_workers<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    order: RingOrder,
    barrier: bool,
) -> Result<Vec<RingWorker<P>>, BuildError> {
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
    let mut workers = Vec::with_capacity(count);
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
        workers.push(RingWorker::new(config));
    }
    Ok(workers)
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
                op: op.into(),
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
        assert!(nodes(System::SwitchMl { fixed_point: false }).is_ok() && nodes(System::canary()).is_ok() && nodes(System::rina()).is_ok());
        let refused = nodes(System::tree(1)).unwrap_err().to_string();
        assert_eq!(
            refused,
            "operator = avg: expected one that needs no division at the end: ring, tree, sharp, flare, doubling and exchange do not divide"
        );
    }

    #[test]
    fn servers_are_for_systems_that_have_them() {
        let hosts = [0, 1, 2].map(NodeId);
        let spec = JobSpec {
            id: JobId(0),
            hosts: &hosts[..2],
            servers: &hosts[2..],
            system: System::Ring { order: RingOrder::Host, barrier: false, steps: StepParameters::NONE },
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
