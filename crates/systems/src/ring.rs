//! Ring allreduce: its parameters, and the nodes of a job, which are workers only.

use fanin_core::{Address, ElementOp, FlowLabel, JobNodes, NetworkMap, NodeId, Payload, Placed, Rank};
use fanin_protocols::ring::{RingBarrier, RingPeer, RingWorkerConfig};
use serde::{Deserialize, Serialize};

use crate::any::AnyNode;
use crate::build::reliability;
use crate::campaign::{First, JobSize, Load};
use crate::config::{BuildError, JobSpec, RingOrder, StepParameters};
use crate::draw::Draw;
use crate::facts::{Facts, Nodes};
use crate::system::System;

pub(crate) use fanin_protocols::ring::RingWorker;
pub(crate) use fanin_wire::ring::{LAYOUT, RingHeader};

/// The parameters of bandwidth-optimal ring allreduce (baselines 1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct RingParameters {
    /// The ring visits hosts by number, or in the order of `"placement"`.
    pub order: RingOrder,
    /// All workers finish a step before any worker begins the next.
    pub barrier: bool,
    /// What a step costs its host.
    #[serde(flatten)]
    pub steps: StepParameters,
}

impl Facts for RingParameters {
    fn goes_on_without_switches(&self) -> bool {
        true
    }

    fn steps_mut(&mut self) -> Option<&mut StepParameters> {
        Some(&mut self.steps)
    }

    fn divides(&self) -> bool {
        false
    }

    fn sums_at_switches(&self) -> bool {
        false
    }

    fn switch_slots(&self, _window: u32) -> u64 {
        0
    }

    fn load(&self, job: &JobSize) -> Load {
        Load::of_ring(job)
    }
}

impl Nodes for RingParameters {
    const FIRST: Option<First> = Some(First { place: 1, draw: first });

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, _map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        ring(spec, self.order, self.barrier, self.steps)
    }
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

fn first(draw: &mut Draw, _op: &mut ElementOp) -> System {
    System::Ring(RingParameters {
        order: *draw.pick(&[RingOrder::Host, RingOrder::Placement]),
        barrier: draw.percent(35),
        steps: StepParameters::NONE,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::tests::comes_back;

    #[test]
    fn a_ring_goes_by_host_number_or_by_rank() {
        let hosts = [7, 2, 9, 4].map(NodeId);
        assert_eq!(ring_order(&hosts, RingOrder::Host), [1, 3, 0, 2]);
        assert_eq!(ring_order(&hosts, RingOrder::Placement), [0, 1, 2, 3]);
    }

    #[test]
    fn packets_begin_with_the_systems_number() {
        comes_back(2, RingHeader::Probe { operation: 79 });
    }
}
