//! Which switch and host belongs to which part, and how far ahead parts know each other's packets.

use fanin_core::NodeId;

use crate::link::Link;
use crate::topology::Topology;

/// A network that is cut into parts.
#[derive(Clone, Debug)]
pub(super) struct Cutting {
    /// By node: its part.
    pub part_of: Vec<u16>,
    /// How many there are.
    pub parts: usize,
    /// What is sent from one part to another comes there so much later at least.
    pub lookahead_ps: u64,
}

/// Most parts of a network.
const PARTS_MAX: usize = 256;

impl Cutting {
    /// Cuts a network into so many parts, or fewer where it has fewer leaves. `load` is how much happens at each host; no frame is
    /// shorter than `frame_bytes_min`, and where `hosts_count`, parts tell each other also what has left for hosts.
    ///
    /// # Errors
    /// Why it cannot be cut.
    pub fn new(topology: &Topology, load: &[u64], (frame_bytes_min, hosts_count): (u32, bool), parts: usize) -> Result<Self, &'static str> {
        let (map, none) = (&topology.map, u16::MAX);
        let leaf_of = |host: u32| map.leaf_of(NodeId(host)).map(|next| next.node);
        // Leaves in the order of their first hosts, with what happens below them. What is idle costs a little all the same.
        let mut below = vec![0u64; map.nodes() as usize];
        let mut leaves = Vec::new();
        for host in 0..map.hosts() {
            let Some(leaf) = leaf_of(host) else { return Err("a host has no cable") };
            if below[leaf.index()] == 0 {
                leaves.push(leaf);
            }
            below[leaf.index()] += 1 + 64 * load[host as usize];
        }
        let parts = parts.min(leaves.len()).min(PARTS_MAX);
        if parts < 2 {
            return Err("all hosts hang on one switch");
        }
        let mut part_of = vec![none; map.nodes() as usize];
        // Neighbouring leaves come to the same part: where there are pods, their leaves have most to do with each other.
        let all: u64 = leaves.iter().map(|leaf| below[leaf.index()]).sum();
        let mut before = 0;
        for (number, leaf) in leaves.iter().enumerate() {
            let middle = before + below[leaf.index()] / 2;
            let part = (u128::from(middle) * parts as u128 / u128::from(all.max(1))) as usize;
            // No part stays empty, however uneven leaves are.
            part_of[leaf.index()] = part.max((number + parts).saturating_sub(leaves.len())).min(number).min(parts - 1) as u16;
            before += below[leaf.index()];
        }
        for host in 0..map.hosts() {
            part_of[host as usize] = leaf_of(host).map_or(none, |leaf| part_of[leaf.index()]);
        }
        assign_others(topology, &mut part_of, parts);
        let crosses = |cable: &&crate::topology::Cable| {
            part_of[cable.from.index()] != part_of[cable.to.index()] || hosts_count && map.is_host(cable.to)
        };
        let cut = || topology.links.iter().filter(crosses);
        if cut().any(|cable| cable.speed.latency.as_ps() == 0) {
            return Err("links between parts, or to hosts, have no latency");
        }
        // As links reckon it, to the picosecond.
        let ahead = |speed: crate::setup::LinkSpeed| {
            speed.latency.as_ps() + ((u64::from(frame_bytes_min) * Link::byte_time_of(speed.bits_per_second)) >> 16)
        };
        let lookahead_ps = cut().map(|cable| ahead(cable.speed)).min().ok_or("nothing joins its parts")?;
        Ok(Cutting { part_of, parts, lookahead_ps })
    }
}

/// Switches above leaves: where more than half of a switch's neighbours below are in one part, it belongs to it; others are dealt out.
fn assign_others(topology: &Topology, part_of: &mut [u16], parts: usize) {
    let (map, none) = (&topology.map, u16::MAX);
    let mut dealt = vec![0u32; parts];
    loop {
        // Level by level, from below.
        let is_next = |switch: &NodeId| {
            part_of[switch.index()] == none && map.neighbours(*switch).iter().any(|next| part_of[next.node.index()] != none)
        };
        let level: Vec<NodeId> = map.switches().filter(is_next).collect();
        if level.is_empty() {
            break;
        }
        let chosen: Vec<Option<u16>> = level.iter().map(|switch| majority(topology, part_of, *switch, parts)).collect();
        for (switch, majority) in level.into_iter().zip(chosen) {
            let least = (0..parts).min_by_key(|part| dealt[*part]).unwrap_or(0) as u16;
            let part = majority.unwrap_or(least);
            dealt[usize::from(part)] += u32::from(majority.is_none());
            part_of[switch.index()] = part;
        }
    }
    part_of.iter_mut().filter(|part| **part == none).for_each(|part| *part = 0);
}

/// The part of more than half of a switch's neighbours that have one.
fn majority(topology: &Topology, part_of: &[u16], switch: NodeId, parts: usize) -> Option<u16> {
    let mut counts = vec![0usize; parts];
    let known = topology.map.neighbours(switch).iter().map(|next| part_of[next.node.index()]).filter(|part| *part != u16::MAX);
    known.for_each(|part| counts[usize::from(part)] += 1);
    let all: usize = counts.iter().sum();
    (0..parts).find(|part| counts[*part] * 2 > all).map(|part| part as u16)
}
