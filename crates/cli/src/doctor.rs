//! `fanin doctor`: whether collectives can run here, what is wrong, and the command that mends it.
//!
//! | module | what it holds |
//! |---|---|
//! | [`facts`] | what was found, as plain data |
//! | [`host`] | looks at this host: variables, sockets, memory, limits |
//! | [`network`] | looks at the way to the other ranks: the switch, the route, lengths that arrive, a trial |
//! | [`checks`] | from facts to findings; looks at nothing itself |
//! | [`meeting`] | the same for what has to do with where ranks meet |
//! | [`finding`] | one line of the result |

mod checks;
mod facts;
mod finding;
mod host;
mod meeting;
mod network;

use std::process::ExitCode;

use clap::Args;
use fanin_comm::{Config, Meeting};

use crate::bench::BenchFormat;
use facts::Facts;
use finding::Level;

/// Find out whether collectives can run here: configuration, switch, route, MTU, offloads, buffers, shared memory, limits.
///
/// Every line says `ok`, `warning` or `problem`; what is wrong is followed by a command that mends it. Reads the variables that a rank
/// would read (FANIN_*, torchrun's, mpirun's): run it where and as you would run a rank. Exit code 1 where there is a problem.
#[derive(Args, Clone, Debug)]
pub struct DoctorArgs {
    /// The switch that ranks are to use, in place of the configured one.
    #[arg(long, value_name = "HOST:PORT")]
    pub switch: Option<String>,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = BenchFormat::Table)]
    pub format: BenchFormat,
}

/// Runs the command.
pub fn run(args: &DoctorArgs) -> ExitCode {
    let findings = checks::all(&look(args));
    match args.format {
        BenchFormat::Table => print!("{}", finding::text(&findings)),
        BenchFormat::Json => println!("{}", finding::json(&findings)),
    }
    ExitCode::from(u8::from(findings.iter().any(|finding| finding.level == Level::Problem)))
}

/// Looks at everything; takes a few seconds where somebody does not answer.
fn look(args: &DoctorArgs) -> Facts {
    let variables = host::variables(std::env::vars());
    let read = Config::from_variables(|name| variables.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()));
    let mut place = read.as_ref().map_or(Meeting::Nowhere, |config| config.meeting.clone());
    if let Some(switch) = &args.switch {
        place = Meeting::Switch(switch.clone());
    }
    let config = read.as_ref().ok();
    let bind = config.and_then(|config| config.bind);
    let rank = config.map_or(0, |config| config.rank);
    let answer = network::answer(&place, rank);
    let switch = answer.as_ref().and_then(|answer| answer.address);
    let trial_at = answer.as_ref().filter(|answer| answer.is_switch()).and(switch);
    Facts {
        route: switch.map(|switch| network::route(switch, bind)),
        path: switch.and_then(|switch| network::path(switch, bind)),
        trial: network::trial(trial_at, bind),
        processes: host::processes(&variables, config, switch),
        local_world: host::local_world(&variables),
        unknown: host::unknown_variables(&variables),
        offload: host::offload(),
        buffers: host::buffers(),
        memory: host::memory(),
        sockets: host::sockets(),
        cores: host::cores(),
        files: host::files(),
        switch_given: args.switch.is_some(),
        variables,
        config: read,
        place,
        answer,
    }
}
