//! Networks that fall into two parts for a while, and links that carry packets in one direction only.

use std::collections::{BTreeSet, VecDeque};

use fanin_core::{Duration, Instant, NetworkMap, NodeId};
use fanin_sim::faults::{FaultPlan, KindSet, LinkFault, LinkSelector, TimedFault};
use fanin_systems::Draw;

use crate::recipe::Demand;

/// In some runs in which things fail, the network is cut in two, or a link loses all that goes one way: for a short while jobs must bear the first.
pub(super) fn partitions(
    draw: &mut Draw,
    map: &NetworkMap,
    faults: &mut FaultPlan,
    (duration_ps, patience): (u64, Duration),
    demand: Demand,
) -> Demand {
    match draw.between(0, 9) {
        0 | 1 => {
            let from = Instant::from_ps(draw.between(0, duration_ps.saturating_mul(2)));
            let length = match (demand, draw.between(0, 2)) {
                // Beside what else fails in such a run.
                (Demand::MustComplete, _) => Duration::from_ps(draw.scaled(1, patience.as_ps() / 32)),
                (_, 0) => Duration::from_ps(draw.scaled(1, patience.as_ps() * 3)),
                (_, 1) => Duration::from_ps(draw.scaled(1, duration_ps)),
                _ => Duration::MAX,
            };
            let until = from + length;
            let cut = cut(draw, map).into_iter().map(|(a, b)| TimedFault::LinkDown { a, b, from, until });
            faults.timed.extend(cut);
            demand
        }
        2 => {
            let from = NodeId(draw.between(0, u64::from(map.nodes()) - 1) as u32);
            let neighbours = map.neighbours(from);
            if neighbours.is_empty() {
                return demand;
            }
            let to = draw.pick(neighbours).node;
            // The first that fits a link is what strikes it.
            let deaf = LinkFault {
                links: LinkSelector::Between { from, to },
                kinds: KindSet::ALL,
                loss: 1.0,
                corruption: 0.0,
                duplication: 0.0,
                reordering: 0.0,
                delay_max: Duration::ZERO,
            };
            faults.links.insert(0, deaf);
            Demand::MayFail
        }
        _ => demand,
    }
}

/// The cables between two parts of a network, one of which hangs together.
fn cut(draw: &mut Draw, map: &NetworkMap) -> BTreeSet<(NodeId, NodeId)> {
    let nodes = u64::from(map.nodes());
    let first = NodeId(draw.between(0, nodes - 1) as u32);
    let most = draw.between(1, nodes.max(2) - 1) as usize;
    let (mut part, mut next) = (BTreeSet::from([first]), VecDeque::from([first]));
    while let Some(node) = next.pop_front() {
        for neighbour in map.neighbours(node) {
            if part.len() < most && part.insert(neighbour.node) {
                next.push_back(neighbour.node);
            }
        }
    }
    let across = |node: &NodeId| {
        let node = *node;
        map.neighbours(node).iter().map(move |other| (node, other.node)).filter(|(_, other)| !part.contains(other)).collect::<Vec<_>>()
    };
    part.iter().flat_map(across).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_sim::{LinkSpeed, Shape, Topology};

    #[test]
    fn a_cut_leaves_no_way_from_one_part_to_the_other() {
        let link = LinkSpeed { bits_per_second: 1, latency: Duration::ZERO };
        let (host_link, fabric_link) = (link, link);
        let shape = Shape::FatTree2 { leaves: 3, hosts_per_leaf: 2, spines: 2, parallel_links: 2, host_link, fabric_link };
        let map = Topology::new(&shape).unwrap().map;
        for seed in 0..200 {
            let cut = cut(&mut Draw::new(seed, 1), &map);
            assert!(!cut.is_empty());
            let is_cut = |a: NodeId, b: NodeId| cut.contains(&(a, b)) || cut.contains(&(b, a));
            let (mut seen, mut next) = (BTreeSet::from([NodeId(0)]), vec![NodeId(0)]);
            while let Some(node) = next.pop() {
                for neighbour in map.neighbours(node) {
                    if !is_cut(node, neighbour.node) && seen.insert(neighbour.node) {
                        next.push(neighbour.node);
                    }
                }
            }
            assert!(seen.len() < map.nodes() as usize, "seed {seed}: {cut:?}");
            // Both ends of what is cut are in different parts.
            assert!(cut.iter().all(|(a, b)| a != b && !cut.contains(&(*b, *a))), "seed {seed}: {cut:?}");
        }
    }
}
