//! Whether collectives can run here, what is wrong, and the command that mends it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`facts`] | what was found, as plain data |
//! | [`host`] | looks at this host: variables, sockets, memory, limits |
//! | [`network`] | looks at the way to the other ranks: the switch, the route, lengths that arrive, a trial |
//! | [`checks`] | from facts to findings; looks at nothing itself |
//! | [`meeting`] | the same for what has to do with where ranks meet |
//! | [`finding`] | one line of the result |
#![forbid(unsafe_code)]

pub mod checks;
pub mod facts;
pub mod finding;
pub mod host;
pub mod meeting;
pub mod network;

use fanin_comm::{Config, Meeting};

use facts::Facts;

/// Looks at everything that a rank with this process's environment would meet; takes a few seconds where somebody does not answer. `given`
/// is a switch in place of the configured one.
pub fn look(given: Option<&str>) -> Facts {
    let variables = host::variables(std::env::vars());
    let value = |name: &str| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone());
    let read = Config::from_variables(value);
    // The same where the switch that is given is the one that is configured.
    let there = |name: &str| if name == "FANIN_SWITCH" { given.map(str::to_string).or_else(|| value(name)) } else { value(name) };
    let asking = Config::from_variables(there).ok();
    let mut place = read.as_ref().map_or(Meeting::Nowhere, |config| config.meeting.clone());
    if let Some(switch) = given {
        place = Meeting::Switch(switch.to_string());
    }
    let config = read.as_ref().ok();
    let bind = config.and_then(|config| config.bind);
    let rank = config.map_or(0, |config| config.rank);
    let tls = asking.as_ref().and_then(|config| config.tls.as_ref());
    let answer = network::answer(&place, rank, tls);
    let switch = answer.as_ref().and_then(|answer| answer.address);
    // A manager sums nothing by itself, and hosts of its fabric may be taken.
    let is_fabric = matches!(place, Meeting::Fabric(_));
    let trial_at = answer.as_ref().filter(|answer| answer.is_switch() && !is_fabric).and(switch);
    Facts {
        route: switch.map(|switch| network::route(switch, bind)),
        path: switch.and_then(|switch| network::path(switch, bind)),
        trial: network::trial(trial_at, bind, asking.as_ref()),
        processes: host::processes(&variables, config, switch),
        local_world: host::local_world(&variables),
        unknown: host::unknown_variables(&variables),
        offload: host::offload(),
        buffers: host::buffers(),
        memory: host::memory(),
        sockets: host::sockets(),
        cores: host::cores(),
        files: host::files(),
        switch_given: given.is_some(),
        variables,
        config: read,
        place,
        answer,
    }
}
