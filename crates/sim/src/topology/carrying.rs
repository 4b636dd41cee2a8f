//! Ways from one switch to another through a host, as trees take them.

use fanin_core::{NetworkMap, NodeId, PortId};

/// A way from one switch to another through a host that has a cable to both.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Carried {
    /// The links to the host, and from there on.
    pub links: [u32; 2],
    /// The switch at the end.
    pub to: u32,
    /// The number that the way back has there, as if it were a port.
    pub to_port: u16,
}

/// All of them, each in both directions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carrying {
    ways: Vec<Carried>,
    /// By node: its first way; one more at the end. Empty where no host carries.
    first: Vec<u32>,
}

impl Carrying {
    /// Of a map whose nodes have these first links, by port.
    pub fn new(map: &NetworkMap, first_link: &[u32]) -> Self {
        if !map.has_carriers() {
            return Carrying::default();
        }
        let link = |from: NodeId, to: NodeId| {
            let cable = map.neighbours(from).iter().find(|next| next.node == to).expect("a host has a cable to what it joins");
            first_link[from.index()] + u32::from(cable.port.0)
        };
        let (mut ways, mut first) = (Vec::new(), Vec::with_capacity(map.nodes() as usize + 1));
        for from in (0..map.nodes()).map(NodeId) {
            first.push(ways.len() as u32);
            for next in &map.neighbours_in_trees(from)[map.neighbours(from).len()..] {
                let host = map.carrier(from, next.port).expect("it is behind the ports");
                ways.push(Carried { links: [link(from, host), link(host, next.node)], to: next.node.0, to_port: next.their_port.0 });
            }
        }
        first.push(ways.len() as u32);
        Carrying { ways, first }
    }

    /// The way behind the ports of a node, of which there are `ports`, and its number.
    pub fn by_port(&self, node: u32, port: PortId, ports: u16) -> Option<(u32, Carried)> {
        let behind = u32::from(port.0.checked_sub(ports)?);
        let [first, end] = [0, 1].map(|next| self.first.get(node as usize + next).copied());
        let number = first? + behind;
        (number < end?).then(|| (number, self.ways[number as usize]))
    }

    /// The way of a number.
    pub fn way(&self, number: u32) -> Option<Carried> {
        self.ways.get(number as usize).copied()
    }
}
