//! What may stand in a fabric's file, key by key. How the parts fit together is checked in `layout`.

use fanin_plan::units::{Bytes, Count, Rate, Time};
use serde::Deserialize;

/// A fabric's file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct File {
    /// `[defaults]`.
    #[serde(default)]
    pub defaults: Defaults,
    /// `[leaf_spine]`.
    pub leaf_spine: Option<LeafSpine>,
    /// `[[switch]]`.
    #[serde(default)]
    pub switch: Vec<Switch>,
    /// `[[host]]`.
    #[serde(default)]
    pub host: Vec<Host>,
    /// `[[link]]`.
    #[serde(default)]
    pub link: Vec<Link>,
    /// `[[operator]]`.
    #[serde(default)]
    pub operator: Vec<Operator>,
}

/// `[[operator]]`: what jobs may reduce by beside built-in operators.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Operator {
    /// Its name in workloads.
    pub name: String,
    /// The file of its module, from the folder of the fabric's file on.
    pub file: String,
}

/// `[defaults]`: of all links.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Defaults {
    /// Rate of each direction.
    pub rate: Option<Rate>,
    /// Capacity of a port's egress queue.
    pub buffer: Option<Bytes>,
    /// A packet that finds more than this queued is marked.
    pub ecn_mark: Option<Bytes>,
    /// One-way delay.
    pub delay: Option<Time>,
    /// How often a node says hello on each of its links.
    pub hello_interval: Option<Time>,
    /// A neighbour that is silent for so long is dead.
    pub hello_timeout: Option<Time>,
}

/// `[leaf_spine]`: every leaf has a link to every spine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LeafSpine {
    /// Switches with hosts.
    pub leaves: Count,
    /// Switches above the leaves.
    pub spines: Count,
    /// Hosts on each leaf.
    pub hosts_per_leaf: Count,
    /// The IP address of all nodes.
    #[serde(default = "loopback")]
    pub address: String,
    /// The UDP port of node 0; node n has `port` + n.
    #[serde(default = "first_port")]
    pub port: u16,
    /// Rate of the links between leaves and spines, where it differs from that of the others.
    pub fabric_rate: Option<Rate>,
}

fn loopback() -> String {
    "127.0.0.1".into()
}

fn first_port() -> u16 {
    7100
}

/// `[[switch]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Switch {
    /// Its name.
    pub name: String,
    /// 1 next to hosts, 2 above those, and so on.
    pub level: u8,
    /// IP address and port.
    pub address: String,
}

/// `[[host]]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Host {
    /// Its name.
    pub name: String,
    /// IP address and port.
    pub address: String,
}

/// `[[link]]`: a new link, or settings of one that `[leaf_spine]` has made.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Link {
    /// Names of the two nodes.
    pub ends: [String; 2],
    /// Rate of each direction.
    pub rate: Option<Rate>,
    /// Capacity of the egress queue at each end.
    pub buffer: Option<Bytes>,
    /// A packet that finds more than this queued is marked.
    pub ecn_mark: Option<Bytes>,
    /// One-way delay.
    pub delay: Option<Time>,
}
