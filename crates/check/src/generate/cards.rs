//! Machines whose switches sum and whose hosts carry the sums to their network cards, as plans have them with `nvls`.

use fanin_core::{Census, Duration, JobId, NetworkMap};
use fanin_sim::routing::Balancer;
use fanin_sim::shape::{WiredCable, WiredCarrier, Wiring};
use fanin_sim::trimming::Trimming;
use fanin_sim::{NetworkConfig, Shape};
use fanin_systems::{Draw, JobSpec, build};

use super::{PODS, link};
use crate::recipe::JobRecipe;

/// In some runs, the same network with machines in place of its shape. What a machine's switch has made has no way back to it, so nobody trims for hosts.
pub(super) fn network(draw: &mut Draw, network: &NetworkConfig, only: Option<&str>) -> Option<NetworkConfig> {
    let is_wanted = draw.percent(6) && only != Some(PODS) && network.lossless.is_none_or(|lossless| lossless.channels == 1);
    let trimming = network.trimming.filter(|whose| *whose != Trimming::Hosts);
    // What hosts with several links can have.
    let known = |balancer: Balancer| match balancer {
        Balancer::Conga(_) | Balancer::Drill { .. } | Balancer::Valiant | Balancer::Ugal => Balancer::Ecmp,
        other => other,
    };
    is_wanted.then(|| NetworkConfig {
        shape: Shape::Wired(machines(draw).into()),
        collective_balancer: known(network.collective_balancer),
        background_balancer: known(network.background_balancer),
        trimming,
        ..network.clone()
    })
}

/// Whether these jobs can be run where hosts carry what trees' switches have for each other.
pub(super) fn fit(map: &NetworkMap, jobs: &[JobRecipe]) -> bool {
    // How long they are patient is known later, and is more than what systems ask for.
    (0..).zip(jobs).all(|(id, job)| build::<Census>(&JobSpec { patience: Duration::MAX, ..job.spec(JobId(id), ()) }, map).is_ok())
}

/// Machines of some hosts, each with a cable to its machine's switch and one to each plane's leaf of its rail; leaves are joined by spines.
fn machines(draw: &mut Draw) -> Wiring {
    let (machines, rails, planes) = (draw.between(1, 4) as u32, draw.between(1, 4) as u32, draw.between(1, 2) as u32);
    let (inside, card, fabric) = (link(draw), link(draw), link(draw));
    // Without spines rails have nothing to do with each other: a single one can do without.
    let has_spines = machines > 1 && rails > 1 || draw.percent(30);
    let (spines, per_leaf) =
        if has_spines { (draw.between(1, 3) as u32, draw.between(1, u64::from(machines)) as u32) } else { (0, machines) };
    let groups = machines.div_ceil(per_leaf);
    let hosts = machines * rails;
    let named = |name: &str, count: u32| (0..count).map(|number| format!("{name}{number}")).collect::<Vec<String>>();
    let mut wiring = Wiring { hosts: named("h", hosts), switches: named("machine", machines), ..Wiring::default() };
    wiring.switches.extend(named("leaf", planes * groups * rails));
    wiring.switches.extend(named("spine", planes * spines));
    let leaf = |plane: u32, group: u32, rail: u32| hosts + machines + (plane * groups + group) * rails + rail;
    let spine = |plane: u32, spine: u32| hosts + machines + planes * groups * rails + plane * spines + spine;
    let mut join = |a: u32, b: u32, speed| wiring.cables.push(WiredCable { a, b, speed, cost: 1 });
    for host in 0..hosts {
        join(host, hosts + host / rails, inside);
        (0..planes).for_each(|plane| join(host, leaf(plane, host / rails / per_leaf, host % rails), card));
    }
    for plane in 0..planes {
        for (group, rail, number) in
            (0..groups).flat_map(|group| (0..rails).flat_map(move |rail| (0..spines).map(move |spine| (group, rail, spine))))
        {
            join(leaf(plane, group, rail), spine(plane, number), fabric);
        }
    }
    for (host, plane) in (0..hosts).flat_map(|host| (0..planes).map(move |plane| (host, plane))) {
        let joins = [hosts + host / rails, leaf(plane, host / rails / per_leaf, host % rails)];
        wiring.carriers.push(WiredCarrier { host, joins });
    }
    wiring
}
