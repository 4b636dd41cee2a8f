//! Networks and jobs that are small enough for every behaviour to be looked at.

use fanin_check::model::{Limits, NetworkModel};
use fanin_core::{Duration, JobId, NetworkMap, NodeId};
use fanin_systems::{JobSpec, System};

/// Elements of a packet.
pub const BLOCK: u64 = 4;

pub fn star(workers: u32) -> (NetworkMap, Vec<NodeId>) {
    (NetworkMap::star(workers), (0..workers).map(NodeId).collect())
}

/// Two leaves with a host each under one root.
pub fn two_levels() -> (NetworkMap, Vec<NodeId>) {
    let mut map = NetworkMap::new(2, &[1, 1, 2]);
    map.join(NodeId(0), NodeId(2));
    map.join(NodeId(1), NodeId(3));
    map.join(NodeId(2), NodeId(4));
    map.join(NodeId(3), NodeId(4));
    (map, vec![NodeId(0), NodeId(1)])
}

/// A job with a window of one packet, so that every block uses the same slots again.
pub fn model((map, hosts): (NetworkMap, Vec<NodeId>), system: System, reliable: bool, elements: &[u64], limits: Limits) -> NetworkModel {
    let spec = JobSpec {
        id: JobId(0),
        hosts: &hosts,
        servers: &[],
        system,
        op: (),
        element_bytes: 4,
        payload_bytes: 4 * BLOCK as u32,
        window: 1,
        reliable,
        // Times mean little here; but what a node may do again after some time, it may do at once.
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience: Duration::from_ms(1_000),
        seed: 0,
    };
    NetworkModel::new(&spec, map, elements, limits).expect("the job fits the network")
}
