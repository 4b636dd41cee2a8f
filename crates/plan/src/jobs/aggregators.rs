//! `network.aggregators`: what each switch has for jobs. ATP, A2TP and Canary share it, SwitchML divides it, and so does Canary where its
//! blocks have static places.

use fanin_systems::{AggregatorUse, System};

use super::prepared::PreparedJob;
use crate::reading::units::Window;
use crate::reading::{PlanError, Refuse};
use crate::schema::{Network, Setup};

/// Gives every job what it has of the switches' aggregators: jobs of ATP and A2TP share them all, and so do those of Canary; each job of
/// SwitchML has an equal part, as many slots for its pool at most, whatever the others do with theirs, and each job of Canary with static
/// places as many descriptors. A slot has two versions: it counts as one aggregator, or as two.
///
/// # Errors
/// [`PlanError`] where a job says otherwise, or nothing is left for it.
pub fn divide(refuse: &Refuse<'_>, setup: &Setup, jobs: &mut [PreparedJob]) -> Result<(), PlanError> {
    let Network { aggregators, slot_versions, .. } = setup.general.network;
    let Some(aggregators) = aggregators.map(|count| count.0) else {
        return match slot_versions {
            Some(_) => Err(refuse.at("network.slot_versions", "no such key without aggregators")),
            None => Ok(()),
        };
    };
    let versions = match slot_versions.map_or(1, |count| count.0) {
        versions @ 1..=2 => versions,
        _ => return Err(refuse.at("network.slot_versions", "1 or 2")),
    };
    let parts = Parts::of(jobs.iter().map(|job| &job.system), versions);
    for job in jobs {
        let places = |key: &&str| [format!("jobs[{}].{key}", job.entry), format!("jobs[{}].across.{key}", job.entry)];
        if let Some(own) = own_keys(&job.system).iter().flat_map(places).find(|own| refuse.has(own)) {
            return Err(refuse.at(&own, "no such key beside network.aggregators"));
        }
        give(&mut job.system, &mut job.settings.common.window, aggregators, parts)
            .map_err(|expected| refuse.at("network.aggregators", expected))?;
    }
    Ok(())
}

/// Whether a system has something of a switch's aggregators.
pub fn uses(system: &System) -> bool {
    system.aggregators().is_some()
}

/// Keys of a job that say the same as the network's.
pub fn own_keys(system: &System) -> &'static [&'static str] {
    system.aggregators().map_or(&[], AggregatorUse::keys)
}

/// What must be there for the key to mean anything.
pub fn users() -> String {
    format!("a job of {}", System::names_of("or", |system| system.aggregators().is_some()))
}

/// How many jobs divide a switch's aggregators among them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Parts {
    /// Jobs of SwitchML, times the versions of their slots.
    pools: u32,
    /// Jobs of Canary whose blocks have static places.
    arrays: u32,
}

impl Parts {
    /// Those of these jobs.
    pub fn of<'a>(systems: impl Iterator<Item = &'a System>, versions: u32) -> Parts {
        systems.fold(Parts::default(), |parts, system| match system.aggregators() {
            Some(AggregatorUse::Pool(_)) => Parts { pools: parts.pools + versions, ..parts },
            Some(AggregatorUse::Array(_)) => Parts { arrays: parts.arrays + 1, ..parts },
            Some(AggregatorUse::Shares(_)) | None => parts,
        })
    }
}

/// Gives one job what it has of a switch's aggregators: all of them, or one of so many parts of equal size, where its system divides them.
///
/// # Errors
/// How many would be enough, where nothing is left for it.
pub fn give(system: &mut System, window: &mut Window, aggregators: u32, parts: Parts) -> Result<(), String> {
    match system.aggregators() {
        None => {}
        Some(AggregatorUse::Shares(_)) => system.set_aggregators(aggregators),
        Some(AggregatorUse::Pool(_)) => {
            let pool = aggregators / parts.pools.max(1);
            *window = Window(window.0.min(pool));
            if pool == 0 {
                let name = system.name();
                return Err(format!("at least {}, one for each version of a slot of each job of {name}", parts.pools));
            }
        }
        Some(AggregatorUse::Array(_)) => {
            let array = aggregators / parts.arrays.max(1);
            system.set_aggregators(array);
            if array == 0 {
                return Err(format!("at least {}, one for each job of {} with table = \"static\"", parts.arrays, system.name()));
            }
        }
    }
    Ok(())
}
