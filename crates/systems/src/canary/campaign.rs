//! What campaigns draw of Canary: timeouts, arrays of descriptors, what is done about losses.

use fanin_core::{ElementOp, NetworkMap};

use super::parameters::{CanaryCollisions, CanaryParameters, CanaryWindows, FailureRule, FanInRule, LeaderRule, Placement};
use crate::campaign::{Campaign, DrawnJob, averaging};
use crate::config::UNLIMITED;
use crate::draw::Draw;
use crate::system::System;

/// Each from a stream of its own, in this order, and before jobs become others'.
pub(super) const CAMPAIGNS: &[Campaign] = &[
    Campaign { order: 0, stream: 8, draw: adaptive_timeouts },
    Campaign { order: 1, stream: 47, draw: uneven_timeouts },
    Campaign { order: 2, stream: 46, draw: tables },
    Campaign { order: 3, stream: 48, draw: duties },
    Campaign { order: 4, stream: 64, draw: windows },
];

/// A job's parameters, and whether it averages.
pub(super) fn first(draw: &mut Draw, op: &mut ElementOp) -> System {
    let lives_short = draw.percent(30);
    let system = System::Canary(CanaryParameters {
        timeout_ps: draw.scaled(1_000, 100_000_000),
        descriptors: draw.scaled(1, 4_096) as u32,
        placement: *draw.pick(&[Placement::Hash, Placement::Static]),
        failure: *draw.pick(&[FailureRule::AllAsked, FailureRule::AllAsked, FailureRule::Hold, FailureRule::FirstRequest]),
        hold_ps: draw.scaled(1_000, 100_000_000),
        generations: draw.between(1, 4) as u8,
        // Longer than four times the longest `rto_min` of a draw, and shorter than most waits.
        lifetime_ps: if lives_short { draw.scaled(800_000_000, 4_000_000_000) } else { 0 },
        ..CanaryParameters::default()
    });
    averaging(draw, op);
    system
}

/// Switches of some of Canary's jobs adapt their timeouts.
fn adaptive_timeouts(draw: &mut Draw, _map: &NetworkMap, jobs: &mut [DrawnJob], _only: Option<&str>) {
    for job in jobs {
        if let System::Canary(parameters) = &mut job.system
            && draw.percent(40)
        {
            let min_ps = draw.scaled(100_000, 20_000_000);
            (parameters.timeout_adaptive, parameters.timeout_min_ps) = (true, min_ps);
            parameters.timeout_max_ps = min_ps + draw.scaled(1_000, 100_000_000);
        }
    }
}

/// Timers of some of Canary's jobs are found by scans, or are not the same everywhere.
fn uneven_timeouts(draw: &mut Draw, _map: &NetworkMap, jobs: &mut [DrawnJob], _only: Option<&str>) {
    for job in jobs {
        if let System::Canary(parameters) = &mut job.system {
            let mut some_ps = |percent| if draw.percent(percent) { Some(draw.scaled(10_000, 20_000_000)) } else { None };
            parameters.scan_ps = some_ps(40).unwrap_or(0);
            (parameters.timeout_spine_ps, parameters.timeout_root_ps) = (some_ps(30), some_ps(30));
        }
    }
}

/// Switches of half of Canary's jobs know their fan-in; some jobs have one leader, or leaders that are drawn, or leaders that take their time.
fn duties(draw: &mut Draw, _map: &NetworkMap, jobs: &mut [DrawnJob], _only: Option<&str>) {
    for job in jobs {
        let workers = job.hosts.len() as u64;
        if let System::Canary(parameters) = &mut job.system {
            parameters.fan_in = *draw.pick(&[FanInRule::Unknown, FanInRule::Known]);
            parameters.leader = match draw.between(0, 5) {
                0 => LeaderRule::Fixed(draw.between(0, workers.max(1) - 1) as u32),
                1 | 2 => LeaderRule::Random,
                _ => LeaderRule::Rotating,
            };
            parameters.leader_time_ps = if draw.percent(30) { draw.scaled(1_000, 20_000_000) } else { 0 };
        }
    }
}

/// Windows of some of Canary's jobs that have an end follow what blocks meet.
fn windows(draw: &mut Draw, _map: &NetworkMap, jobs: &mut [DrawnJob], _only: Option<&str>) {
    for job in jobs {
        if let System::Canary(parameters) = &mut job.system
            && draw.percent(35)
            && job.window != UNLIMITED
        {
            parameters.windows = CanaryWindows::A2tp;
            parameters.initial = draw.between(0, u64::from(job.window)) as u32;
            parameters.window_min = draw.between(0, u64::from(job.window.min(64))) as u32;
            parameters.threshold = draw.between(0, 50) as f64 / 100.0;
            parameters.collision_weight = draw.between(1, 100) as f64 / 100.0;
            parameters.mark_weight = draw.between(1, 100) as f64 / 100.0;
            parameters.collisions = *draw.pick(&[CanaryCollisions::Places, CanaryCollisions::Stragglers]);
        }
    }
}

/// Blocks of some of Canary's jobs have two places to choose from; most jobs share the arrays of their switches with the others, which are
/// short, so that collisions among jobs are the rule.
fn tables(draw: &mut Draw, _map: &NetworkMap, jobs: &mut [DrawnJob], _only: Option<&str>) {
    let (descriptors, placement) = (draw.scaled(1, 300) as u32, *draw.pick(&[Placement::Hash, Placement::TwoPlaces]));
    for job in jobs {
        if let System::Canary(parameters) = &mut job.system {
            if draw.percent(60) {
                (parameters.shared, parameters.descriptors, parameters.placement) = (true, descriptors, placement);
            } else if parameters.placement == Placement::Hash && draw.percent(40) {
                parameters.placement = Placement::TwoPlaces;
            }
        }
    }
}
