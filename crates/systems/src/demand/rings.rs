//! Rings, of workers and of racks.

use fanin_core::{NetworkMap, NodeId, PortId};

use super::{Demand, Leg, Round, WindowRule};
use crate::config::{BuildError, JobSpec};
use crate::layout::{aggregating, leaf_of};
use crate::rina::{RinaOnward, RinaParameters};
use crate::ring::{RingParameters, ring_order};

/// Packets of a window that wait for an acknowledgement of several: it comes with every eighth.
const ACKNOWLEDGED_TOGETHER: f64 = 8.0;

/// 2(N-1) N-ths of the vector from each worker to the next one (`baselines 1`).
pub(super) fn ring(spec: &JobSpec<'_, ()>, parameters: &RingParameters) -> Demand {
    let (ranks, count) = (ring_order(spec.hosts, parameters.order), spec.hosts.len());
    let mut demand = Demand::new();
    let share = 2.0 * (count - 1) as f64 / count as f64;
    for place in 0..count {
        let (from, to) = (spec.hosts[ranks[place] as usize], spec.hosts[ranks[(place + 1) % count] as usize]);
        let (there, back) = (Leg::direct(from, to), Leg::direct(to, from));
        demand.send(there.clone(), share);
        if spec.reliable {
            demand.send_control(back.clone(), share / ACKNOWLEDGED_TOGETHER);
        }
        let window = (f64::from(spec.window) - ACKNOWLEDGED_TOGETHER + 1.0).max(1.0);
        demand.rounds.push(Round { legs: vec![there.clone(), back], share, window, waits_ps: 0 });
        demand.step_legs.push(there);
    }
    demand.answered_late = if spec.reliable { ACKNOWLEDGED_TOGETHER - 1.0 } else { 0.0 };
    demand.steps = 2 * (count as u32 - 1);
    demand.step_ps = parameters.steps.step_overhead_ps;
    demand
}

/// A rack that its switch sums, or a worker by itself.
struct Group {
    head: NodeId,
    switch: Option<NodeId>,
    /// Port at the switch, and host.
    members: Vec<(PortId, NodeId)>,
}

impl Group {
    fn source(&self) -> NodeId {
        self.switch.unwrap_or(self.head)
    }

    /// To the head, by way of its switch where that is to see what comes.
    fn from(&self, source: NodeId, is_taken: bool) -> Leg {
        let is_taken = is_taken && self.switch.is_some();
        Leg::Routed { from: source, to: self.head, by_first: true, without_last: is_taken }
    }
}

fn groups(spec: &JobSpec<'_, ()>, map: &NetworkMap, parameters: &RinaParameters) -> Result<Vec<Group>, BuildError> {
    let leaves: Vec<NodeId> = spec.hosts.iter().map(|&host| Ok(leaf_of(map, host)?.node)).collect::<Result<_, BuildError>>()?;
    let mut switches = leaves.clone();
    switches.sort_unstable();
    switches.dedup();
    let size = |switch: NodeId| (switch, leaves.iter().filter(|leaf| **leaf == switch).count() as u32);
    let sizes: Vec<(NodeId, u32)> = switches.into_iter().map(size).collect();
    let able = aggregating(map, &sizes, parameters.aggregating);
    let mut groups = Vec::new();
    for rank in ring_order(spec.hosts, parameters.order) {
        let (host, leaf) = (spec.hosts[rank as usize], leaves[rank as usize]);
        let rack: Vec<NodeId> = spec.hosts.iter().zip(&leaves).filter(|(_, other)| **other == leaf).map(|(host, _)| *host).collect();
        if !able.contains(&leaf) || rack.len() < 2 {
            groups.push(Group { head: host, switch: None, members: Vec::new() });
        } else if rack[0] == host {
            let port = |host: &NodeId| Ok((leaf_of(map, *host)?.their_port, *host));
            groups.push(Group { head: host, switch: Some(leaf), members: rack.iter().map(port).collect::<Result<_, BuildError>>()? });
        }
    }
    Ok(groups)
}

/// Each partition visits all groups as a sum, and all but one as a result (`rina 4.1`, `4.2`). A rack's workers all send the vector up and get
/// it back; its agent also gets the sums of the group before, and sends the results of its own partition: twice the vector by its link.
pub(super) fn rina(spec: &JobSpec<'_, ()>, map: &NetworkMap, parameters: &RinaParameters) -> Result<Demand, BuildError> {
    let groups = groups(spec, map, parameters)?;
    let count = groups.len() as f64;
    let mut demand = Demand::new();
    let window = f64::from(spec.window.max(1).next_power_of_two());
    for (place, group) in groups.iter().enumerate() {
        let next = &groups[(place + 1) % groups.len()];
        // A worker by itself that is last keeps the sum.
        let sums = if group.switch.is_some() { 1.0 } else { (count - 1.0) / count };
        let results = (count - 1.0) / count;
        let sum = next.from(group.source(), false);
        let mut step = Vec::new();
        demand.send(sum.clone(), sums);
        demand.send_control(Leg::direct(next.head, group.head), (sums + results) / f64::from(ACK_EVERY));
        if let Some(switch) = group.switch {
            let up_port = leaf_of(map, group.head)?.port;
            let head_up = Leg::Cable { from: group.head, port: up_port };
            // Tasks, and the results of its own partition.
            demand.send_control(head_up.clone(), 1.0);
            demand.send(head_up.clone(), 1.0 / count);
            for (port, host) in &group.members {
                let up = Leg::Cable { from: *host, port: leaf_of(map, *host)?.port };
                let down = Leg::Cable { from: switch, port: *port };
                demand.send_to_be_added(up.clone(), 1.0);
                demand.send_control(down.clone(), 1.0);
                demand.send(down.clone(), if *host == group.head { results } else { 1.0 });
                if step.is_empty() {
                    step = vec![head_up.clone(), down, up];
                }
            }
        }
        let onward = if parameters.onward == RinaOnward::Agent { group.head } else { group.source() };
        demand.send(next.from(onward, true), if groups.len() > 1 { results } else { 0.0 });
        step.push(sum);
        let legs = [step.clone(), vec![Leg::direct(next.head, group.head)]].concat();
        demand.rounds.push(Round { legs, share: sums, window, waits_ps: 0 });
        demand.step_legs.extend(step);
    }
    demand.steps = (2 * groups.len() as u32).saturating_sub(1);
    demand.step_ps = parameters.steps.step_overhead_ps;
    demand.rule = WindowRule::Fixed;
    demand.slots_per_window = 1.0;
    Ok(demand)
}

/// Packets that rina acknowledges together.
const ACK_EVERY: u32 = 4;
