//! Networks of other shapes than a star and two levels, and other ways through them.

use fanin_sim::routing::{Balancer, Conga};
use fanin_sim::shape::{WiredCable, Wiring};
use fanin_sim::{NetworkConfig, Shape};

use super::link;
use fanin_systems::Draw;

/// Some networks have three levels, or are dragonflies, or are joined at random.
pub(super) fn other_shapes(draw: &mut Draw, network: &mut NetworkConfig) {
    if draw.percent(75) {
        return;
    }
    let shape = match draw.between(0, 2) {
        0 => Shape::FatTree3 { ports: 2 * draw.between(1, 3) as u32, host_link: link(draw), fabric_link: link(draw) },
        1 => dragonfly(draw),
        _ => Shape::Wired(wiring(draw).into()),
    };
    // Ways that go up after they have gone down wait for each other in circles, where nothing is dropped.
    if network.lossless.is_none() || matches!(shape, Shape::FatTree3 { .. }) {
        network.shape = shape;
    }
}

fn dragonfly(draw: &mut Draw) -> Shape {
    let (routers, global_links) = (draw.between(1, 4) as u32, draw.between(1, 3) as u32);
    Shape::Dragonfly {
        routers,
        groups: draw.between(1, u64::from(routers * global_links + 1).min(6)) as u32,
        global_links,
        hosts_per_router: draw.between(1, 3) as u32,
        host_link: link(draw),
        local_link: link(draw),
        global_link: link(draw),
    }
}

/// Some lossless networks are dragonflies, with a virtual channel for each class of hops.
pub(super) fn lossless_dragonflies(draw: &mut Draw, network: &mut NetworkConfig) {
    if let Some(lossless) = &mut network.lossless
        && draw.percent(25)
    {
        network.shape = dragonfly(draw);
        lossless.channels = 3;
    }
}

/// Switches of some networks choose ways by DRILL or CONGA, or send packets round.
pub(super) fn other_ways(draw: &mut Draw, network: &mut NetworkConfig) {
    if draw.percent(75) {
        return;
    }
    let drill = |draw: &mut Draw| Balancer::Drill { samples: draw.between(1, 4) as u8, memory: draw.between(0, 2) as u8 };
    for background in [false, true] {
        let balancer = match network.shape {
            Shape::Dragonfly { .. } => *draw.pick(&[Balancer::Valiant, Balancer::Ugal, Balancer::Ugal]),
            Shape::Star { .. } | Shape::FatTree2 { .. } if draw.percent(50) => Balancer::Conga(Conga {
                gap_ps: draw.scaled(1_000, 100_000_000),
                rate_ps: draw.scaled(1_000_000, 200_000_000),
                aging_ps: draw.scaled(1_000_000, 1_000_000_000),
            }),
            _ => drill(draw),
        };
        if background {
            network.background_balancer = balancer;
        } else {
            network.collective_balancer = balancer;
        }
    }
}

/// Switches that hang together, as a tree with a few more cables; a host at each, and more at some.
fn wiring(draw: &mut Draw) -> Wiring {
    let (switches, more_hosts) = (draw.between(1, 7) as u32, draw.between(0, 8) as u32);
    let hosts = switches + more_hosts;
    let named = |name: &str, count: u32| (0..count).map(|number| format!("{name}{number}")).collect();
    let mut wiring = Wiring { hosts: named("h", hosts), switches: named("s", switches), cables: Vec::new(), carriers: Vec::new() };
    let mut join = |draw: &mut Draw, a: u32, b: u32| {
        let cable = WiredCable { a, b, speed: link(draw), cost: draw.between(1, 3) as u32 };
        wiring.cables.push(cable);
    };
    for host in 0..hosts {
        let switch = if host < switches { host } else { draw.between(0, u64::from(switches) - 1) as u32 };
        join(draw, host, hosts + switch);
    }
    for switch in 1..switches {
        let to = draw.between(0, u64::from(switch) - 1) as u32;
        join(draw, hosts + switch, hosts + to);
    }
    for _ in 0..draw.between(0, 4) {
        let (a, b) = (draw.between(0, u64::from(switches) - 1) as u32, draw.between(0, u64::from(switches) - 1) as u32);
        if a != b {
            join(draw, hosts + a, hosts + b);
        }
    }
    wiring
}
