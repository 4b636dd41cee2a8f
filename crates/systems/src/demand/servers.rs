//! Sums at servers, and at switches on the way to them.

use fanin_core::{Address, NetworkMap, NodeId, Role};

use super::{Demand, Leg, Round, WindowRule};
use crate::atp::{initial, window_of_server};
use crate::config::{BuildError, JobSpec, UNLIMITED};
use crate::layout::leaf_of;
use crate::places::Places;
use crate::ps::PsParameters;

/// Each worker sends its shards to all servers, and each server a sum to every worker.
pub(super) fn ps(spec: &JobSpec<'_, ()>, parameters: &PsParameters) -> Demand {
    let shards = if parameters.shards == 0 { spec.hosts.len() } else { parameters.shards as usize };
    let servers = if spec.servers.is_empty() { &spec.hosts[..shards.min(spec.hosts.len())] } else { spec.servers };
    let count = servers.len() as f64;
    let mut demand = Demand::new();
    let longest = f64::from(spec.window.div_ceil(servers.len() as u32));
    for &host in spec.hosts {
        for &server in servers.iter().filter(|server| **server != host) {
            let (there, back) = (Leg::direct(host, server), Leg::direct(server, host));
            demand.send(there.clone(), 1.0 / count);
            demand.send(back.clone(), 1.0 / count);
            demand.rounds.push(Round { legs: vec![there, back], share: 1.0 / count, window: longest, waits_ps: 0 });
        }
    }
    let first = if parameters.initial == 0 { (longest / 2.0).ceil() } else { f64::from(parameters.initial) / count };
    demand.rule = WindowRule::Halved { first, increase: f64::from(parameters.increase_bytes) / f64::from(spec.payload_bytes) };
    demand
}

/// Switches next to workers sum, the one next to the server sums their sums, and the server sends the result the same way back.
pub(super) fn aggregation(spec: &JobSpec<'_, ()>, map: &NetworkMap) -> Result<Demand, BuildError> {
    let aggregating = spec.system.facts().aggregation().map_or(UNLIMITED, |aggregation| aggregation.aggregating);
    let places = Places::all(spec, map, aggregating)?;
    let share = 1.0 / places.len() as f64;
    let mut demand = Demand::new();
    let window = f64::from(window_of_server(spec));
    for at in &places {
        to_server(spec, map, at, share, window, &mut demand)?;
    }
    let first = spec.system.facts().aggregation().map_or(0, |aggregation| aggregation.initial);
    let first = f64::from(initial(first.div_ceil(places.len() as u32), window_of_server(spec)));
    demand.rule = WindowRule::Halved { first, increase: 1_500.0 / f64::from(spec.payload_bytes) * share };
    demand.slots_per_window = 1.0;
    Ok(demand)
}

fn to_server(
    spec: &JobSpec<'_, ()>,
    map: &NetworkMap,
    at: &Places,
    share: f64,
    window: f64,
    demand: &mut Demand,
) -> Result<(), BuildError> {
    let host = at.server.node;
    let last = leaf_of(map, host)?;
    let server_up = Leg::Cable { from: host, port: last.port };
    let server_down = Leg::Cable { from: at.server_switch, port: last.their_port };
    let meets = at.has_second_level();
    // What goes up to the server's switch, or past it to the server, and comes back.
    let beyond = |from: NodeId, is_alone: bool, demand: &mut Demand| -> (Vec<Leg>, Vec<Leg>) {
        if meets {
            // What a worker sends names the server; what a switch sends, the switch there.
            let up = match is_alone {
                true => Leg::Routed { from, to: host, by_first: true, without_last: true },
                false => Leg::direct(from, at.server_switch),
            };
            let back = Leg::direct(at.server_switch, from);
            demand.send_to_be_added(up.clone(), share);
            demand.send(back.clone(), share);
            return (vec![up, server_down.clone()], vec![server_up.clone(), back]);
        }
        let (up, back) = (Leg::Routed { from, to: host, by_first: is_alone, without_last: false }, Leg::direct(host, from));
        demand.send(up.clone(), share);
        demand.send(back.clone(), share);
        (vec![up], vec![back])
    };
    let mut rounds = Vec::new();
    for (&switch, members) in &at.switches {
        let to_server = match switch == at.server_switch {
            true => (vec![server_down.clone()], vec![server_up.clone()]),
            false => beyond(switch, false, demand),
        };
        for (port, rank) in members {
            let worker = spec.hosts[rank.index()];
            let up = Leg::Cable { from: worker, port: leaf_of(map, worker)?.port };
            let down = Leg::Cable { from: switch, port: *port };
            demand.send_to_be_added(up.clone(), share);
            demand.send(down.clone(), share);
            rounds.push([vec![up], to_server.0.clone(), to_server.1.clone(), vec![down]].concat());
        }
    }
    for (Address { node, .. }, _) in at.alone.iter().filter(|(address, _)| address.role == Role::Worker) {
        let (up, back) = beyond(*node, true, demand);
        rounds.push([up, back].concat());
    }
    if meets {
        demand.send(server_down, share);
        demand.send(server_up, share);
    }
    demand.rounds.extend(rounds.into_iter().map(|legs| Round { legs, share, window, waits_ps: 0 }));
    Ok(())
}
