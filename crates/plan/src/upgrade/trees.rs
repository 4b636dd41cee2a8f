//! The trees that the workers of jobs make.

use std::collections::BTreeMap;

use fanin_core::{NetworkMap, NodeId, PortId};
use fanin_models::bom::{AggregationTree, TreeSwitch};
use fanin_sim::topology::Topology;
use fanin_systems::{BuildError, layout};

use super::{Aggregation, Assumptions};
use crate::jobs::PreparedJob;
use crate::network::file::Capability;

/// A job, and the trees that its workers make.
#[derive(Clone, Debug)]
pub(super) struct PlannedJob {
    /// To the switch of its server.
    pub to_server: JobTree,
    /// To a switch of the top level, for groups of workers below a switch.
    pub to_top: JobTree,
    pub workers: u32,
    pub message_bytes: f64,
    /// Bits per second of its slowest worker's link.
    pub slowest_host: f64,
}

/// A tree of switches that several jobs may have in common.
#[derive(Clone, Debug)]
pub(super) struct JobTree {
    /// By switch of the tree: its number in the network.
    pub switches: Vec<usize>,
    /// By switch of the tree: the number of its uplink; of the root's, of that to the server.
    pub uplinks: Vec<u32>,
    /// By switch of the tree: whether it is next to hosts.
    pub tors: Vec<bool>,
    /// Bits per second of the links, and of aggregation where a switch does.
    pub tree: AggregationTree,
}

impl PlannedJob {
    /// The server is at rank 0's host where the plan gives none.
    pub fn new(
        topology: &Topology,
        capabilities: &[Capability],
        assumptions: Assumptions,
        job: &PreparedJob,
        message_bytes: f64,
    ) -> Result<Self, BuildError> {
        let server = job.servers.first().copied().unwrap_or(job.hosts[0]);
        let down = topology.map.leaf_of(server).ok_or_else(|| BuildError::new("servers", server, "a host with a cable"))?;
        // What the server's own worker has to give needs no link.
        let senders: Vec<NodeId> = job.hosts.iter().copied().filter(|&host| host != server || job.hosts.len() == 1).collect();
        let trees = Trees { topology, capabilities, assumptions };
        let to_server = trees.to(down.node, down.their_port, &senders)?;
        let top = layout::random_roots(&topology.map, &job.hosts, 1, 0)?[0];
        let to_top = trees.to(top, PortId(0), &job.hosts)?;
        let rate = |host: &NodeId| topology.links[topology.links_out(*host)[0] as usize].speed.bits_per_second as f64;
        let slowest_host = job.hosts.iter().map(rate).fold(f64::INFINITY, f64::min);
        Ok(PlannedJob { to_server, to_top, workers: job.hosts.len() as u32, message_bytes, slowest_host })
    }

    pub fn tree(&self, aggregation: Aggregation) -> &JobTree {
        if aggregation.is_rina() { &self.to_top } else { &self.to_server }
    }
}

/// Makes trees.
struct Trees<'a> {
    topology: &'a Topology,
    capabilities: &'a [Capability],
    assumptions: Assumptions,
}

impl Trees<'_> {
    /// The tree of shortest paths from these hosts to `root`, which sends on by `port`.
    fn to(&self, root: NodeId, port: PortId, hosts: &[NodeId]) -> Result<JobTree, BuildError> {
        let (topology, map) = (self.topology, &self.topology.map);
        let laid_out = layout::tree(map, hosts, root, 0)?;
        let distances = map.distances(root);
        let mut places: Vec<&(NodeId, layout::TreePlace)> = laid_out.places.iter().collect();
        places.sort_by_key(|(node, _)| (distances[node.index()], *node));
        let mut number = BTreeMap::new();
        let (mut switches, mut uplinks, mut tors, mut nodes) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let rate = |link: u32| topology.links[link as usize].speed.bits_per_second as f64;
        for (node, place) in places {
            number.insert(*node, nodes.len());
            let up = place.parent.unwrap_or(port);
            let uplink = topology.link_out(*node, up).ok_or_else(|| BuildError::new("hosts", node, "switches with cables"))?;
            let parent = place.parent.and_then(|port| number.get(&map.neighbours_in_trees(*node)[port.index()].node).copied());
            let workers = place.children.iter().filter(|(_, child)| map.is_host(*child));
            nodes.push(TreeSwitch {
                parent,
                uplink: rate(uplink),
                workers: workers.map(|(_, host)| rate(topology.links_out(*host)[0])).collect(),
                aggregation: self.aggregation(switch_index(map, *node)),
            });
            switches.push(switch_index(map, *node));
            uplinks.push(uplink);
            tors.push(map.level(*node) == 1);
        }
        Ok(JobTree { switches, uplinks, tors, tree: AggregationTree::new(nodes) })
    }

    /// How fast a switch aggregates, or would: bits per second.
    fn aggregation(&self, switch: usize) -> f64 {
        let rate = match self.capabilities[switch] {
            Capability { aggregates: true, bits_per_second, .. } => bits_per_second,
            _ => self.assumptions.new_bits_per_second,
        };
        rate.map_or(f64::INFINITY, |rate| rate as f64)
    }
}

impl JobTree {
    pub fn working(&self, works: impl Fn(usize) -> bool) -> Vec<bool> {
        self.switches.iter().map(|&switch| works(switch)).collect()
    }
}

fn switch_index(map: &NetworkMap, switch: NodeId) -> usize {
    (switch.0 - map.hosts()) as usize
}
