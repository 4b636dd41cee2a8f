//! Virtual channels: several buffers, with credits of their own, at the end of one cable.
//!
//! A packet's *class* is the number of links between groups that it has crossed; it takes the channel of its class (Kim et al., ISCA 2008,
//! 4.1: a virtual channel for each hop class). A packet waits for room in a buffer of its own class or a higher one only, so buffers
//! cannot wait for each other in a circle.
//!
//! The channel of class 0 is the cable's link. The others are links of their own behind those of the topology: each has a queue, credits and
//! packets on the wire. What they share is the transmitter: whenever one of them has committed a departure, `busy_until` of all of them
//! is the same. Networks without channels have none of this.

mod sharing;

use crate::network::NetworkConfig;
use crate::packet::NO_LINK;
use crate::shape::Shape;
use crate::topology::Topology;

/// Which links are channels of which cables.
#[derive(Clone, Debug)]
pub(crate) struct Channels {
    /// How many links the topology has.
    cables: u32,
    /// By link behind those of the topology: its cable.
    cable_of: Vec<u32>,
    /// By cable: the first of its further channels, and how many channels it has. Empty where no cable has more than one.
    first: Vec<(u32, u8)>,
    /// By link: the class of what has come by it.
    class_after: Vec<u8>,
}

impl Channels {
    /// Those of a lossless dragonfly that has several: links within groups have them all, those between groups one fewer, for nobody
    /// crosses the last of those with the last class.
    pub fn new(topology: &Topology, network: &NetworkConfig) -> Self {
        let cables = topology.links.len() as u32;
        let mut channels = Channels { cables, cable_of: Vec::new(), first: Vec::new(), class_after: Vec::new() };
        let (Some(lossless), Shape::Dragonfly { routers, .. }) = (network.lossless, &network.shape) else { return channels };
        if lossless.channels < 2 {
            return channels;
        }
        let map = &topology.map;
        let group = |node: fanin_core::NodeId| (node.0 - map.hosts()) / routers;
        let is_fabric: Vec<bool> = topology.links.iter().map(|cable| !map.is_host(cable.from) && !map.is_host(cable.to)).collect();
        channels.class_after = vec![0; cables as usize];
        for (number, cable) in (0..).zip(&topology.links) {
            let is_global = is_fabric[number as usize] && group(cable.from) != group(cable.to);
            let count = if is_fabric[number as usize] { lossless.channels - u8::from(is_global) } else { 1 };
            channels.first.push((cables + channels.cable_of.len() as u32, count));
            channels.class_after[number as usize] = u8::from(is_global);
            for class in 1..count {
                channels.cable_of.push(number);
                channels.class_after.push(class + u8::from(is_global));
            }
        }
        channels
    }

    /// Whether no cable has more than one.
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// How many links there are, all channels counted.
    pub fn links(&self) -> usize {
        self.cables as usize + self.cable_of.len()
    }

    /// The cable that a link is a channel of.
    pub fn cable(&self, link: u32) -> u32 {
        link.checked_sub(self.cables).map_or(link, |further| self.cable_of[further as usize])
    }

    /// All channels of a cable.
    pub fn of_cable(&self, cable: u32) -> impl Iterator<Item = u32> + use<> {
        let (first, count) = self.first.get(cable as usize).copied().unwrap_or((0, 1));
        std::iter::once(cable).chain(first..first + u32::from(count) - 1)
    }

    /// The channel of a cable that a packet takes which has come by link `came_by`, or was made by the switch.
    pub fn next(&self, cable: u32, came_by: u32) -> u32 {
        let Some(&(first, count)) = self.first.get(cable as usize) else { return cable };
        let class = if came_by == NO_LINK { 0 } else { self.class_after[came_by as usize] };
        match class.min(count - 1) {
            0 => cable,
            class => first + u32::from(class) - 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
    use crate::routing::Balancer;
    use crate::setup::LinkSpeed;
    use fanin_core::{Duration, NodeId};

    #[test]
    fn a_packet_moves_up_by_a_class_where_it_crosses_between_groups() {
        let link = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
        let network = NetworkConfig {
            shape: Shape::Dragonfly {
                routers: 2,
                groups: 3,
                global_links: 1,
                hosts_per_router: 1,
                host_link: link,
                local_link: link,
                global_link: link,
            },
            queue_bytes: 0,
            lossless: Some(LosslessConfig {
                model: SwitchModel::OutputQueued,
                input_bytes: 10_000,
                output_bytes: 10_000,
                arbitration: Arbitration::default(),
                made_packets: MadePackets::default(),
                channels: 3,
            }),
            ecn_mark_bytes: u64::MAX,
            nic_queue_bytes: 10_000,
            frame_overhead_bytes: 57,
            frame_bytes_min: 84,
            collective_balancer: Balancer::Ecmp,
            background_balancer: Balancer::Ecmp,
            trimming: None,
        };
        let topology = Topology::new(&network.shape).unwrap();
        let channels = Channels::new(&topology, &network);
        // Six directed links within groups and six between them: two and one further channels each.
        assert_eq!(channels.links(), topology.links.len() + 6 * 2 + 6);
        let between =
            |a: u32, b: u32| topology.links.iter().position(|cable| (cable.from, cable.to) == (NodeId(a), NodeId(b))).unwrap() as u32;
        let (host, local) = (between(0, 6), between(6, 7));
        let global = topology.links.iter().position(|cable| cable.from == NodeId(7) && cable.to.0 > 7).unwrap() as u32;
        assert_eq!((channels.next(local, NO_LINK), channels.next(local, host), channels.next(global, local)), (local, local, global));
        let second = channels.next(local, global);
        assert!(second as usize >= topology.links.len() && channels.cable(second) == local);
        let again = channels.next(global, second);
        assert_ne!(again, global);
        assert_eq!(channels.cable(channels.next(local, again)), local);
        assert_eq!(channels.of_cable(local).collect::<Vec<_>>(), [local, second, channels.next(local, again)]);
        // Nobody has crossed three links between groups; where somebody had, he would stay in the last class.
        assert_eq!(channels.next(global, channels.next(local, again)), again);
    }
}
