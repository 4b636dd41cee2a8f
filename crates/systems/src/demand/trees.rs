//! Static trees: each byte of the vector goes up each cable of its tree once, and down once.

use std::collections::BTreeMap;

use fanin_core::{Address, NetworkMap, NodeId};

use super::{Demand, Leg, Round, WindowRule};
use crate::config::{BuildError, JobSpec};
use crate::layout::leaf_of;
use crate::netreduce::NetReduceParameters;
use crate::panama::PanamaParameters;
use crate::sharp::{SharpMode, SharpParameters};
use crate::trees::{StaticTrees, SwitchOnTrees};

/// On so many trees, with so long a window.
pub(super) fn tree(spec: &JobSpec<'_, ()>, map: &NetworkMap, trees: u32, window: u32) -> Result<Demand, BuildError> {
    let laid_out = StaticTrees::of(spec, map, trees)?;
    on_trees(spec, map, &laid_out, trees, f64::from(window.max(1).next_power_of_two()))
}

/// What PANAMA adds is a window that begins small.
pub(super) fn panama(spec: &JobSpec<'_, ()>, map: &NetworkMap, parameters: &PanamaParameters) -> Result<Demand, BuildError> {
    let mut demand = tree(spec, map, parameters.trees, spec.window)?;
    demand.rule = WindowRule::ByShare { first: f64::from(parameters.window_initial.min(spec.window.next_power_of_two())) };
    Ok(demand)
}

/// The quota of a job is its window.
pub(super) fn sharp(spec: &JobSpec<'_, ()>, map: &NetworkMap, parameters: &SharpParameters) -> Result<Demand, BuildError> {
    let window = if parameters.mode == SharpMode::LowLatency { parameters.quota } else { spec.window.next_power_of_two() };
    let laid_out = StaticTrees::everywhere(spec, map)?;
    on_trees(spec, map, &laid_out, 1, f64::from(window))
}

/// The window is a pool of slots, of any number.
pub(super) fn switchml(spec: &JobSpec<'_, ()>, map: &NetworkMap) -> Result<Demand, BuildError> {
    let laid_out = StaticTrees::everywhere(spec, map)?;
    on_trees(spec, map, &laid_out, 1, f64::from(spec.window))
}

/// A window of messages: a message may go when the one a window before is there as a whole, so that on the average half a message less than
/// the window is under way.
pub(super) fn netreduce(spec: &JobSpec<'_, ()>, map: &NetworkMap, parameters: &NetReduceParameters) -> Result<Demand, BuildError> {
    let shape = crate::netreduce::shape(spec, parameters.window_messages)?;
    let packets = f64::from(shape.packets);
    let laid_out = StaticTrees::everywhere(spec, map)?;
    on_trees(spec, map, &laid_out, 1, packets * (f64::from(shape.window) - 0.5))
}

fn on_trees(spec: &JobSpec<'_, ()>, map: &NetworkMap, laid_out: &StaticTrees<()>, trees: u32, window: f64) -> Result<Demand, BuildError> {
    let mut demand = Demand::new();
    let share = 1.0 / f64::from(trees);
    let at: BTreeMap<NodeId, &SwitchOnTrees<()>> = laid_out.switches.iter().map(|switch| (switch.at.node, switch)).collect();
    // By tree and node: the ways to whoever sums what it sends, and back.
    let mut ups: Vec<BTreeMap<NodeId, (Leg, Leg, NodeId)>> = vec![BTreeMap::new(); trees as usize];
    for &host in spec.hosts {
        let leaf = leaf_of(map, host)?;
        let above = laid_out.above(host);
        for (tree, up) in ups.iter_mut().enumerate() {
            let legs = match above.get(tree) {
                None => (Leg::Cable { from: host, port: leaf.port }, Leg::Cable { from: leaf.node, port: leaf.their_port }, leaf.node),
                Some(&Address { node, .. }) => (far(host, node), Leg::direct(node, host), node),
            };
            up.insert(host, legs);
        }
    }
    for switch in &laid_out.switches {
        for (tree, role) in switch.config.trees.iter().enumerate() {
            let Some(parent) = role.as_ref().and_then(|role| role.parent) else { continue };
            let from = switch.at.node;
            let near = map.neighbours_in_trees(from).get(parent.port.index());
            let legs = match near {
                Some(next) => {
                    (Leg::Cable { from, port: parent.port }, Leg::Cable { from: parent.node, port: next.their_port }, parent.node)
                }
                None => (far(from, parent.node), Leg::direct(parent.node, from), parent.node),
            };
            ups[tree].insert(from, legs);
        }
    }
    for (up, down, _) in ups.iter().flat_map(BTreeMap::values) {
        demand.send_to_be_added(up.clone(), share);
        demand.send(down.clone(), share);
    }
    for up in &ups {
        for host in spec.hosts {
            let (mut node, mut legs, mut back) = (*host, Vec::new(), Vec::new());
            while let Some((there, here, next)) = up.get(&node) {
                legs.push(there.clone());
                back.push(here.clone());
                node = *next;
            }
            debug_assert!(at.contains_key(&node));
            legs.extend(back.into_iter().rev());
            demand.rounds.push(Round { legs, share: 1.0, window, waits_ps: 0 });
        }
    }
    demand.slots_per_window = 2.0;
    Ok(demand)
}

fn far(from: NodeId, to: NodeId) -> Leg {
    Leg::Routed { from, to, by_first: false, without_last: false }
}
