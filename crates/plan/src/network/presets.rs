//! Hardware of today: what a preset of `network.hardware` says of other keys, where the plan does not.
//!
//! | preset | key | source |
//! |---|---|---|
//! | `quantum` | `rate` 200 Gb/s, `routing` adaptive, SHARP streams by switch | Quantum (HDR): SHARP 3.13, general information: one active streaming tree a switch |
//! | `quantum-2` | `rate` 400 Gb/s, `routing` adaptive, SHARP streams by port | Quantum-2 (NDR) data sheet; SHARP 3.13: several streaming operations a switch, one active tree a port |
//! | `quantum-x800` | `rate` 800 Gb/s, the same | Quantum-X800 (XDR) data sheet; SHARP 3.13 names no other rule for it |
//! | `nvl72` | `per_machine` 72, `cards` machines, or with hosts' `nvls`, `intra_rate` 7.2 Tb/s, `rate` 400 Gb/s | GB200 NVL72: 72 GPUs with 1.8 TB/s of NVLink each, both ways together, and a ConnectX-7 each |
//! | `tomahawk-ultra` | `rate` 800 Gb/s, `latency` 250 ns | Broadcom, July 2025: 51.2 Tb/s, 64 ports of 800 Gb/s, 250 ns, sums over RoCE without headers of their own |
//! | `spectrum-x` | `rate` 800 Gb/s, `routing` adaptive; switches only forward | SN5600 data sheet: 64 ports of 800 Gb/s, adaptive routing packet by packet |
//!
//! A Quantum has 63 trees for jobs of SHARP of each mode, a Quantum-2 511. Delays of the others and all buffers are not public: the plan says them.

use fanin_core::Duration;
use fanin_systems::{SharpMode, StreamsBy, System};

use crate::reading::units::{Count, Rate, Time};
use crate::reading::{PlanError, Refuse};
use crate::schema::{Aggregating, Cards, HardwareName, Network, Routing, Setup, ShapeName};

const GBPS: u64 = 1_000_000_000;

/// What a preset says of the links and ways of its network.
struct Links {
    gbps: u64,
    latency: Option<Duration>,
    routing: Option<Routing>,
    /// What a job of SHARP that streams has for itself.
    streams_by: Option<StreamsBy>,
    /// Whether its switches sum.
    sums: bool,
}

fn links(name: HardwareName) -> Option<Links> {
    let (gbps, latency, routing, streams_by, sums) = match name {
        HardwareName::Unlimited | HardwareName::Tofino1 | HardwareName::Tofino2 | HardwareName::Xdp => return None,
        HardwareName::Quantum => (200, None, Some(Routing::Adaptive), Some(StreamsBy::Switch), true),
        HardwareName::Quantum2 => (400, None, Some(Routing::Adaptive), Some(StreamsBy::Port), true),
        HardwareName::QuantumX800 => (800, None, Some(Routing::Adaptive), Some(StreamsBy::Port), true),
        HardwareName::Nvl72 => (400, None, None, None, true),
        HardwareName::TomahawkUltra => (800, Some(Duration::from_ns(250)), None, None, true),
        HardwareName::SpectrumX => (800, None, Some(Routing::Adaptive), None, false),
    };
    Some(Links { gbps, latency, routing, streams_by, sums })
}

/// How many trees a subnet has for jobs of SHARP of each mode: 126 and 1023 in all (SHARP 3.13, general information). Of X800 it says nothing.
fn trees_of_a_mode(name: HardwareName) -> Option<u64> {
    match name {
        HardwareName::Quantum => Some(63),
        HardwareName::Quantum2 => Some(511),
        _ => None,
    }
}

/// Refuses more jobs of a mode than there are trees, one a job. Those that come later may have trees of others that have ended.
fn check_trees(refuse: &Refuse<'_>, setup: &Setup, name: HardwareName) -> Result<(), PlanError> {
    let Some(most) = trees_of_a_mode(name) else { return Ok(()) };
    for (mode, words) in [(SharpMode::Streaming, "that stream"), (SharpMode::LowLatency, "with low latency")] {
        let of_mode = |system: &System| matches!(system, System::Sharp(parameters) if parameters.mode == mode);
        let together = setup.jobs.iter().enumerate().filter(|(_, job)| of_mode(&job.system) && job.common.start.0 == Duration::ZERO);
        let mut jobs = 0u64;
        for (index, job) in together {
            jobs = jobs.saturating_add(job.common.copies.0.into());
            if jobs > most {
                let copies = format!("jobs[{index}].copies");
                let path = if refuse.has(&copies) { copies } else { format!("jobs[{index}].system") };
                let expected = format!("at most {most} jobs of sharp {words} and begin together, one for each such tree of the network");
                return Err(refuse.at(&path, expected));
            }
        }
    }
    Ok(())
}

/// Fills in what the plan does not say.
///
/// # Errors
/// [`PlanError`] where the shape is not the preset's, or jobs are more than its trees.
pub fn complete(refuse: &Refuse<'_>, setup: &mut Setup) -> Result<(), PlanError> {
    let network = &mut setup.general.network;
    let Some(name) = network.hardware.and_then(|hardware| hardware.0.preset) else { return Ok(()) };
    let Some(links) = links(name) else { return Ok(()) };
    if name == HardwareName::Nvl72 {
        machines_of_72(refuse, network)?;
    }
    // A file says its links' rates itself, or has them here as others do.
    network.rate = network.rate.or(Some(Rate(links.gbps * GBPS)));
    network.latency = network.latency.or(links.latency.map(Time));
    if let Some(routing) = links.routing.filter(|_| !refuse.has("network.routing")) {
        network.routing = routing;
    }
    if !links.sums && network.aggregating.is_none() {
        network.aggregating = Some(Aggregating::Named(Vec::new()));
    }
    let Some(streams_by) = links.streams_by else { return Ok(()) };
    check_trees(refuse, setup, name)?;
    for (index, job) in setup.jobs.iter_mut().enumerate() {
        let entry = format!("jobs[{index}]");
        let named = job.groups.iter_mut().map(|(group, system)| (format!("{entry}.groups.{group}"), system));
        for (path, system) in named.chain([(entry.clone(), &mut job.system)]) {
            if let System::Sharp(parameters) = system
                && !refuse.has(&format!("{path}.streams_by"))
            {
                parameters.streams_by = streams_by;
            }
        }
    }
    Ok(())
}

/// NVLink's domain as a machine of 72 GPUs, whose switch sums (NVLS) and has the cards of all, unless the plan says that GPUs have them.
fn machines_of_72(refuse: &Refuse<'_>, network: &mut Network) -> Result<(), PlanError> {
    if network.shape != ShapeName::RailOptimised {
        return Err(refuse.at("network.shape", "\"rail-optimised\" with hardware of preset \"nvl72\""));
    }
    network.per_machine = network.per_machine.or(Some(Count(72)));
    network.cards = network.cards.or(Some(Cards::Machines));
    network.nvls = network.nvls.or((network.cards == Some(Cards::Hosts)).then_some(true));
    network.intra_rate = network.intra_rate.or(Some(Rate(7_200 * GBPS)));
    Ok(())
}
