use fanin_core::{Duration, JobId, NetworkMap, NodeId};

use crate::{JobSpec, RinaParameters, RingParameters, System};

/// Two racks of three under a spine.
fn map() -> NetworkMap {
    let mut map = NetworkMap::new(6, &[1, 1, 2]);
    for host in 0..6 {
        map.join(NodeId(host), NodeId(6 + host / 3));
    }
    map.join(NodeId(6), NodeId(8));
    map.join(NodeId(7), NodeId(8));
    map
}

fn spec(hosts: &[NodeId], system: System) -> JobSpec<'_, ()> {
    JobSpec {
        id: JobId(0),
        hosts,
        servers: &[],
        system,
        op: (),
        element_bytes: 4,
        payload_bytes: 1_024,
        window: 64,
        reliable: true,
        rto_initial: Duration::from_ms(1),
        rto_min: Duration::from_us(100),
        patience: Duration::from_ms(100),
        seed: 0,
    }
}

/// Bytes that leave a node for each byte of the vector.
fn leaves(system: System, hosts: &[NodeId], node: NodeId) -> f64 {
    let demand = spec(hosts, system).demand(&map()).unwrap().unwrap();
    let from = |leg: &super::Leg| match leg {
        super::Leg::Cable { from, .. } | super::Leg::Routed { from, .. } => *from,
    };
    demand.streams.iter().filter(|stream| from(&stream.leg) == node).map(|stream| stream.share).sum()
}

#[test]
fn a_worker_of_a_ring_sends_twice_the_vector_and_one_of_a_tree_once() {
    let hosts: Vec<NodeId> = (0..6).map(NodeId).collect();
    let ring = leaves(System::Ring(RingParameters::default()), &hosts, NodeId(2));
    assert!((ring - 10.0 / 6.0).abs() < 1e-9, "{ring}");
    for system in [System::tree(1), System::netreduce(), System::sharp()] {
        assert_eq!(leaves(system, &hosts, NodeId(2)), 1.0, "{}", system.name());
        assert_eq!(leaves(system, &hosts, NodeId(8)), 2.0, "the spine sends both racks the sum");
    }
}

#[test]
fn the_agent_of_a_lone_rack_sends_twice_the_vector() {
    let hosts: Vec<NodeId> = (0..3).map(NodeId).collect();
    assert_eq!(leaves(System::rina(), &hosts, NodeId(0)), 2.0, "gradients, and the results of all");
    assert_eq!(leaves(System::rina(), &hosts, NodeId(1)), 1.0);
    let none = System::Rina(RinaParameters { aggregating: 0, ..RinaParameters::default() });
    let alone = leaves(none, &hosts, NodeId(1));
    assert!((alone - 4.0 / 3.0).abs() < 1e-9, "a ring: {alone}");
}

#[test]
fn a_server_has_the_sum_once_where_its_switch_adds_and_one_of_each_rack_where_it_does_not() {
    let hosts: Vec<NodeId> = (0..6).map(NodeId).collect();
    let into = |map: &NetworkMap| {
        let demand = spec(&hosts, System::atp()).demand(map).unwrap().unwrap();
        let ends = demand.streams.iter().filter(|stream| match &stream.leg {
            super::Leg::Cable { from, port } => map.neighbours(*from)[port.index()].node == NodeId(0),
            super::Leg::Routed { to, without_last, .. } => *to == NodeId(0) && !without_last,
        });
        ends.map(|stream| stream.share).sum::<f64>()
    };
    let mut map = map();
    assert_eq!(into(&map), 1.0);
    map.forward_only(NodeId(6));
    assert_eq!(into(&map), 3.0, "the other rack's sum, and two workers next to the server");
}
