//! A fabric of several real switches, as one file describes it: hosts, switches, links with rate, buffer, ECN mark and delay.
//!
//! | module | what it holds |
//! |---|---|
//! | `schema` | every key of the file |
//! | `layout` | from the file to a checked [`Fabric`] |
//! | `routes` | up/down routing: the ports that lead from a node to each destination |
//!
//! Nodes are numbered as the simulator numbers them (hosts, then leaves, then spines) and have their ports in the order of their links,
//! so that the registry of systems makes the same nodes for both.
#![forbid(unsafe_code)]

mod layout;
mod routes;
mod schema;

use std::fmt::Write;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use fanin_core::{Duration, NetworkMap, NodeId, PortId, hash};
use fanin_plan::PlanError;
use fanin_plan::tree::Tree;

pub use routes::Routes;

/// A checked fabric.
#[derive(Clone, Debug)]
pub struct Fabric {
    /// Who is next to whom.
    pub map: NetworkMap,
    /// How often a node says hello on each of its links.
    pub hello_interval: Duration,
    /// A neighbour that is silent for so long is dead.
    pub hello_timeout: Duration,
    /// By number.
    nodes: Vec<FabricNode>,
    /// In the order of the file.
    links: Vec<FabricLink>,
    /// In the order of the file.
    operators: Vec<FabricOperator>,
}

/// What jobs may reduce by beside built-in operators: every switch and every host loads it from its file when it starts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricOperator {
    /// Its name in workloads.
    pub name: String,
    /// The file of its module.
    pub file: PathBuf,
}

/// A host or switch.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FabricNode {
    /// Its name: `host0`, `leaf0`, `spine0` where the file does not say otherwise.
    pub name: String,
    /// 0 for a host, 1 for a switch next to hosts, and so on.
    pub level: u8,
    /// Its UDP socket. A switch takes control messages over TCP at the same address and port.
    pub address: SocketAddr,
}

/// A cable with its two ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FabricLink {
    /// The node and its port at each end.
    pub ends: [(NodeId, PortId); 2],
    /// The same in both directions.
    pub settings: LinkSettings,
}

/// What each direction of a link is like.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LinkSettings {
    /// Bits per second, of whole datagrams without IP and UDP headers.
    pub bits_per_second: u64,
    /// Capacity of the egress queue in bytes; what finds no room is dropped.
    pub buffer_bytes: u64,
    /// A packet that finds more than this many bytes queued is marked; `None` marks nothing.
    pub ecn_mark_bytes: Option<u64>,
    /// One-way delay.
    pub delay: Duration,
}

/// A port of a node, with what is behind it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FabricPort {
    /// The port.
    pub port: PortId,
    /// The node at the other end.
    pub peer: NodeId,
    /// Its port.
    pub peer_port: PortId,
    /// Its socket.
    pub peer_address: SocketAddr,
    /// The link.
    pub settings: LinkSettings,
}

impl Fabric {
    /// Reads and checks a fabric's file.
    ///
    /// # Errors
    /// [`PlanError`] with file, line, key, value and what was expected.
    pub fn load(path: &Path) -> Result<Fabric, PlanError> {
        let file = path.display().to_string();
        let text = fs::read_to_string(path).map_err(|error| PlanError::new(&file, format!("cannot be read: {error}")))?;
        Fabric::parse(&file, &text)
    }

    /// The same for a text; `file` is its name in errors.
    ///
    /// # Errors
    /// As [`Fabric::load`].
    pub fn parse(file: &str, text: &str) -> Result<Fabric, PlanError> {
        layout::lay_out(file, &Tree::parse(file, text)?)
    }

    /// All hosts, then all switches, by number.
    pub fn nodes(&self) -> &[FabricNode] {
        &self.nodes
    }

    /// All links, in the order of the file.
    pub fn links(&self) -> &[FabricLink] {
        &self.links
    }

    /// Operators that jobs may name, in the order of the file.
    pub fn operators(&self) -> &[FabricOperator] {
        &self.operators
    }

    /// A node.
    pub fn node(&self, node: NodeId) -> &FabricNode {
        &self.nodes[node.index()]
    }

    /// A node's name.
    pub fn name(&self, node: NodeId) -> &str {
        &self.nodes[node.index()].name
    }

    /// The node with this name.
    pub fn node_named(&self, name: &str) -> Option<NodeId> {
        self.nodes.iter().position(|node| node.name == name).map(|at| NodeId(at as u32))
    }

    /// Numbers of all hosts.
    pub fn hosts(&self) -> impl Iterator<Item = NodeId> + '_ {
        (0..self.map.hosts()).map(NodeId)
    }

    /// Numbers of all switches.
    pub fn switches(&self) -> impl Iterator<Item = NodeId> + '_ {
        self.map.switches()
    }

    /// The ports of a node, by number.
    pub fn ports(&self, node: NodeId) -> Vec<FabricPort> {
        let mut ports: Vec<FabricPort> = self
            .links
            .iter()
            .filter_map(|link| {
                let (own, other) = match link.ends {
                    [own, other] if own.0 == node => (own, other),
                    [other, own] if own.0 == node => (own, other),
                    _ => return None,
                };
                let peer_address = self.nodes[other.0.index()].address;
                Some(FabricPort { port: own.1, peer: other.0, peer_port: other.1, peer_address, settings: link.settings })
            })
            .collect();
        ports.sort_unstable_by_key(|port| port.port);
        ports
    }

    /// The link between two nodes.
    pub fn link(&self, a: NodeId, b: NodeId) -> Option<&FabricLink> {
        self.links.iter().find(|link| {
            let ends = (link.ends[0].0, link.ends[1].0);
            ends == (a, b) || ends == (b, a)
        })
    }

    /// A number that all who have read the same description get: names, levels and links, not addresses and rates.
    pub fn fingerprint(&self) -> u32 {
        let name = |node: &FabricNode| node.name.bytes().fold(u64::from(node.level), |sum, byte| hash::mix(sum, u64::from(byte)));
        let nodes = self.nodes.iter().fold(0, |sum, node| hash::mix(sum, name(node)));
        let end = |(node, port): (NodeId, PortId)| u64::from(node.0) << 16 | u64::from(port.0);
        let links = self.links.iter().fold(nodes, |sum, link| hash::mix(hash::mix(sum, end(link.ends[0])), end(link.ends[1])));
        (links >> 32) as u32
    }

    /// The same fabric with other sockets: for namespaces, where each node has an address of its own, or for ports that are free.
    pub fn with_addresses(mut self, address: impl Fn(NodeId) -> SocketAddr) -> Fabric {
        for (number, node) in self.nodes.iter_mut().enumerate() {
            node.address = address(NodeId(number as u32));
        }
        self
    }

    /// Another file for the same fabric, with every node and link by name: reading it gives this fabric again.
    pub fn to_toml(&self) -> String {
        let mut text = String::from("[defaults]\n");
        // Writing to a string cannot fail.
        let _ = writeln!(text, "hello_interval = \"{}ps\"", self.hello_interval.as_ps());
        let _ = writeln!(text, "hello_timeout = \"{}ps\"", self.hello_timeout.as_ps());
        for node in &self.nodes {
            let kind = if node.level == 0 { "host" } else { "switch" };
            let _ = write!(text, "\n[[{kind}]]\nname = \"{}\"\naddress = \"{}\"\n", node.name, node.address);
            if node.level > 0 {
                let _ = writeln!(text, "level = {}", node.level);
            }
        }
        for FabricLink { ends, settings } in &self.links {
            let (a, b) = (self.name(ends[0].0), self.name(ends[1].0));
            let _ = write!(text, "\n[[link]]\nends = [\"{a}\", \"{b}\"]\nrate = \"{}b/s\"\n", settings.bits_per_second);
            let _ = writeln!(text, "buffer = {}\ndelay = \"{}ps\"", settings.buffer_bytes, settings.delay.as_ps());
            if let Some(mark) = settings.ecn_mark_bytes {
                let _ = writeln!(text, "ecn_mark = {mark}");
            }
        }
        for FabricOperator { name, file } in &self.operators {
            // The copy may lie in another folder.
            let file = std::path::absolute(file).unwrap_or_else(|_| file.clone());
            let file = file.display().to_string().replace('\\', "\\\\").replace('"', "\\\"");
            let _ = write!(text, "\n[[operator]]\nname = \"{name}\"\nfile = \"{file}\"\n");
        }
        text
    }
}
