//! Trees that form anew for each block: what meets at a switch on its way to the block's leader goes on as one packet.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use fanin_core::{NetworkMap, NodeId};

use super::{Demand, Leg, Round};
use crate::canary::{CanaryParameters, LeaderRule};
use crate::config::{BuildError, JobSpec, UNLIMITED};
use crate::layout::leaf_of;

/// A packet under way without a limit that matters.
const WINDOW_UNLIMITED: f64 = 1e6;

/// What meets is one packet; which of several links a switch takes is taken to be even among leaders. Each link has its sum back.
pub(super) fn canary(spec: &JobSpec<'_, ()>, map: &NetworkMap, parameters: &CanaryParameters) -> Result<Demand, BuildError> {
    let mut demand = Demand::new();
    let count = spec.hosts.len() as f64;
    let leaders: Vec<NodeId> = match parameters.leader {
        LeaderRule::Fixed(rank) => vec![spec.hosts[(rank as usize).min(spec.hosts.len() - 1)]],
        LeaderRule::Rotating | LeaderRule::Random => spec.hosts.to_vec(),
    };
    let of_leader = 1.0 / leaders.len() as f64;
    let mut leaf_leads: BTreeMap<NodeId, f64> = BTreeMap::new();
    for &leader in &leaders {
        *leaf_leads.entry(leaf_of(map, leader)?.node).or_default() += of_leader;
    }
    let window = if spec.window == UNLIMITED { WINDOW_UNLIMITED } else { f64::from(spec.window) };
    for &host in spec.hosts {
        let leaf = leaf_of(map, host)?;
        let (up, down) = (Leg::Cable { from: host, port: leaf.port }, Leg::Cable { from: leaf.node, port: leaf.their_port });
        // A contribution to all that others lead; of what it leads itself it sends the sum, which no switch adds. A sum, or what it leads, comes.
        demand.send_to_be_added(up.clone(), (count - 1.0) / count);
        demand.send(up, 1.0 / count);
        demand.send(down, 1.0);
    }
    let mut farthest: (u32, NodeId) = (0, spec.hosts[0]);
    for (&root, &leads) in &leaf_leads {
        let distance = map.distances(root);
        let mut at: BTreeMap<NodeId, f64> = BTreeMap::new();
        for &host in spec.hosts {
            at.insert(leaf_of(map, host)?.node, 1.0);
        }
        let mut order: Vec<NodeId> = map.switches().filter(|switch| distance[switch.index()] != u32::MAX).collect();
        order.sort_by_key(|switch| Reverse(distance[switch.index()]));
        for switch in order.into_iter().filter(|switch| *switch != root) {
            let Some(&has) = at.get(&switch) else { continue };
            farthest = farthest.max((distance[switch.index()], switch));
            let nearer =
                |next: &&fanin_core::map::Neighbour| !map.is_host(next.node) && distance[next.node.index()] + 1 == distance[switch.index()];
            let links: Vec<_> = map.neighbours(switch).iter().filter(nearer).collect();
            let part = has / links.len() as f64;
            for next in links {
                demand.send_to_be_added(Leg::Cable { from: switch, port: next.port }, part * leads);
                demand.send(Leg::Cable { from: next.node, port: next.their_port }, part * leads);
                let known = at.entry(next.node).or_default();
                *known = 1.0 - (1.0 - *known) * (1.0 - part);
            }
        }
    }
    rounds(spec, map, parameters, window, &mut demand)?;
    demand.slots_per_window = 0.0;
    Ok(demand)
}

/// To a leader and back: what is added waits at each switch for its timeout, where nothing tells that all is here.
fn rounds(
    spec: &JobSpec<'_, ()>,
    map: &NetworkMap,
    parameters: &CanaryParameters,
    window: f64,
    demand: &mut Demand,
) -> Result<(), BuildError> {
    let first = spec.hosts[0];
    for &host in &spec.hosts[1..] {
        let links = map.distances(leaf_of(map, first)?.node)[leaf_of(map, host)?.node.index()];
        let spine = parameters.timeout_spine_ps.unwrap_or(parameters.timeout_ps);
        let waits_ps = match links {
            0 => 0,
            links => parameters.timeout_ps + u64::from(links - 1) * spine,
        };
        let legs = vec![Leg::direct(host, first), Leg::direct(first, host)];
        demand.rounds.push(Round { legs, share: 1.0, window, waits_ps });
    }
    Ok(())
}
