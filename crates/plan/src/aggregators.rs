//! `network.aggregators`: what each switch has for jobs, which ATP and A2TP share and SwitchML divides.

use fanin_systems::System;

use super::errors::{PlanError, Refuse};
use super::placement::PreparedJob;
use super::schema::{Network, Setup};
use super::units::Window;

/// Gives every job what it has of the switches' aggregators: jobs of ATP and A2TP share them all; each job of SwitchML has an equal part, as
/// many slots for its pool at most, whatever the others do with theirs. A slot has two versions: it counts as one aggregator, or as two.
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
    let parts = jobs.iter().filter(|job| matches!(job.system, System::SwitchMl { .. })).count() as u32;
    for job in jobs {
        let own = format!("jobs[{}].aggregators", job.entry);
        if refuse.has(&own) {
            return Err(refuse.at(&own, "no such key beside network.aggregators"));
        }
        if !give(&mut job.system, &mut job.settings.common.window, aggregators, parts * versions) {
            return Err(refuse.at("network.aggregators", enough(parts * versions)));
        }
    }
    Ok(())
}

/// Gives one job what it has of a switch's aggregators: all of them, or one of so many parts of equal size, where its system divides them.
/// False where nothing is left for it.
pub fn give(system: &mut System, window: &mut Window, aggregators: u32, parts: u32) -> bool {
    match system {
        System::Atp(parameters) => parameters.aggregators = aggregators,
        System::A2tp(parameters) => parameters.aggregators = aggregators,
        System::SwitchMl { .. } => {
            let pool = aggregators / parts.max(1);
            *window = Window(window.0.min(pool));
            return pool > 0;
        }
        System::Ring { .. } | System::Tree { .. } | System::Canary(_) | System::Panama { .. } => {}
        System::NetReduce(_) | System::Sharp(_) | System::Machines(_) | System::Rina(_) | System::Ps(_) => {}
        System::Flare(_) | System::Doubling(_) => {}
    }
    true
}

/// How many aggregators are enough for so many parts.
pub fn enough(parts: u32) -> String {
    format!("at least {parts}, one for each version of a slot of each job of switchml")
}
