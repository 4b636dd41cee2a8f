//! The nodes of a Rina job.

use std::sync::Arc;

use fanin_core::{Address, FlowLabel, JobNodes, NetworkMap, NodeId, Payload, Placed, Rank};
use fanin_protocols::rina::{RinaLayout, RinaMember, RinaRack, RinaSwitch, RinaSwitchConfig, RinaWorker, RinaWorkerConfig};
use fanin_wire::rina::MEMBERS_MAX;

use crate::any::AnyNode;
use crate::build::{reliability, ring_order};
use crate::config::{BuildError, JobSpec, RinaParameters};
use crate::layout::{aggregating, leaf_of};

/// Workers in a ring of racks, and a node at each switch that aggregates.
pub(crate) fn nodes<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    parameters: &RinaParameters,
) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    if spec.hosts.len() > RinaLayout::WORKERS_MAX as usize {
        return Err(BuildError::new("workers", spec.hosts.len(), format!("at most {} in a ring of rina", RinaLayout::WORKERS_MAX)));
    }
    if !spec.reliable {
        return Err(BuildError::new("reliable", false, "true: agents of rina have timers"));
    }
    let layout = Arc::new(layout(spec, map, parameters)?);
    let flow = FlowLabel(u32::from(spec.id.0));
    let mut workers = Vec::with_capacity(spec.hosts.len());
    for (rank, &host) in spec.hosts.iter().enumerate() {
        let config = RinaWorkerConfig {
            job: spec.id,
            rank: Rank(rank as u32),
            layout: layout.clone(),
            op: spec.op.clone(),
            element_bytes: spec.element_bytes,
            block_elements: spec.payload_bytes / spec.element_bytes,
            window: spec.window,
            uplink: leaf_of(map, host)?.port,
            flow,
            full_speed: (parameters.full_speed_bps > 0).then_some(parameters.full_speed_bps),
            reliability: reliability(spec),
        };
        workers.push(Placed {
            at: Address::worker(host),
            node: AnyNode::RinaWorker(RinaWorker::new(config).with_step_cost(parameters.steps.cost(spec.seed))),
        });
    }
    let mut others = Vec::new();
    for rack in layout.racks.iter().filter(|rack| rack.aggregates && rack.ranks.len() >= 2) {
        let mut members = Vec::with_capacity(rack.ranks.len());
        for rank in &rack.ranks {
            let host = spec.hosts[rank.index()];
            members.push((leaf_of(map, host)?.their_port, host));
        }
        let config = RinaSwitchConfig {
            job: spec.id,
            op: spec.op.clone(),
            block_bytes: spec.payload_bytes,
            window: spec.window,
            layout: layout.clone(),
            members,
            flow,
        };
        others.push(Placed { at: Address::switch(rack.switch), node: AnyNode::RinaSwitch(RinaSwitch::new(config)) });
    }
    others.sort_by_key(|placed| placed.at);
    Ok(JobNodes { workers, others })
}

/// Racks in the order of their switches; those with most workers have switches that aggregate (`rina 6.5`).
fn layout<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap, parameters: &RinaParameters) -> Result<RinaLayout, BuildError> {
    let leaves: Vec<NodeId> = spec.hosts.iter().map(|&host| Ok(leaf_of(map, host)?.node)).collect::<Result<_, BuildError>>()?;
    let mut switches = leaves.clone();
    switches.sort_unstable();
    switches.dedup();
    let mut racks: Vec<RinaRack> = switches.iter().map(|&switch| RinaRack { switch, aggregates: false, ranks: Vec::new() }).collect();
    let mut members = Vec::with_capacity(leaves.len());
    for (rank, (&node, leaf)) in spec.hosts.iter().zip(&leaves).enumerate() {
        let rack = switches.binary_search(leaf).unwrap_or(0);
        racks[rack].ranks.push(Rank(rank as u32));
        members.push(RinaMember { node, rack: rack as u32 });
    }
    let sizes: Vec<(NodeId, u32)> = racks.iter().map(|rack| (rack.switch, rack.ranks.len() as u32)).collect();
    for switch in aggregating(map, &sizes, parameters.aggregating) {
        let rack = &mut racks[switches.binary_search(&switch).unwrap_or(0)];
        if rack.ranks.len() > MEMBERS_MAX as usize {
            let expected = format!("at most {MEMBERS_MAX} at a switch that aggregates; switch {switch} has so many");
            return Err(BuildError::new("workers", rack.ranks.len(), expected));
        }
        rack.aggregates = true;
    }
    let order = ring_order(spec.hosts, parameters.order).into_iter().map(Rank).collect();
    Ok(RinaLayout::new(members, racks, order))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::UNLIMITED;
    use crate::{System, build};
    use fanin_core::{Duration, JobId, Length};

    /// Racks of so many hosts under one root.
    fn racks(sizes: &[u32]) -> (NetworkMap, Vec<NodeId>) {
        let hosts: u32 = sizes.iter().sum();
        let levels: Vec<u8> = sizes.iter().map(|_| 1).chain([2]).collect();
        let mut map = NetworkMap::new(hosts, &levels);
        let mut host = 0;
        for (leaf, size) in (hosts..).zip(sizes) {
            for _ in 0..*size {
                map.join(NodeId(host), NodeId(leaf));
                host += 1;
            }
            map.join(NodeId(leaf), NodeId(hosts + sizes.len() as u32));
        }
        (map, (0..hosts).map(NodeId).collect())
    }

    fn spec(hosts: &[NodeId], parameters: RinaParameters) -> JobSpec<'_, ()> {
        JobSpec {
            id: JobId(3),
            hosts,
            servers: &[],
            system: System::Rina(parameters),
            op: (),
            element_bytes: 4,
            payload_bytes: 1_024,
            window: 64,
            reliable: true,
            rto_initial: Duration::from_ms(1),
            rto_min: Duration::from_ms(1),
            patience: Duration::from_ms(100),
            seed: 0,
        }
    }

    /// `rina 6.5`: the switches with most workers first; one with a single worker is no group.
    #[test]
    fn racks_with_most_workers_are_summed_first() {
        let (map, hosts) = racks(&[2, 4, 1, 3]);
        for (aggregating, groups, switches) in
            [(0, 10, &[][..]), (1, 7, &[11]), (2, 5, &[11, 13]), (3, 4, &[10, 11, 13]), (UNLIMITED, 4, &[10, 11, 13])]
        {
            let nodes = build::<Length>(&spec(&hosts, RinaParameters { aggregating, ..RinaParameters::default() }), &map).unwrap();
            assert_eq!(nodes.others.iter().map(|placed| placed.at.node.0).collect::<Vec<_>>(), switches);
            let AnyNode::RinaWorker(worker) = &nodes.workers[0].node else { panic!("a worker of rina") };
            assert_eq!(worker.groups(), groups);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        let (map, hosts) = racks(&[49, 2]);
        let error = |parameters, reliable| {
            let spec = JobSpec { reliable, ..spec(&hosts, parameters) };
            build::<Length>(&spec, &map).unwrap_err().to_string()
        };
        let default = RinaParameters::default();
        assert_eq!(error(default, true), "workers = 49: expected at most 48 at a switch that aggregates; switch 51 has so many");
        assert_eq!(error(default, false), "reliable = false: expected true: agents of rina have timers");
    }
}
