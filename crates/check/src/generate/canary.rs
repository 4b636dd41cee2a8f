//! What is drawn of Canary: timeouts, arrays of descriptors, what is done about losses.

use fanin_systems::{CanaryParameters, FailureRule, FanInRule, LeaderRule, Placement, System};

use crate::recipe::JobRecipe;
use fanin_systems::Draw;

/// A job's parameters.
pub(super) fn parameters(draw: &mut Draw) -> CanaryParameters {
    let lives_short = draw.percent(30);
    CanaryParameters {
        timeout_ps: draw.scaled(1_000, 100_000_000),
        descriptors: draw.scaled(1, 4_096) as u32,
        placement: *draw.pick(&[Placement::Hash, Placement::Static]),
        failure: *draw.pick(&[FailureRule::AllAsked, FailureRule::AllAsked, FailureRule::Hold, FailureRule::FirstRequest]),
        hold_ps: draw.scaled(1_000, 100_000_000),
        generations: draw.between(1, 4) as u8,
        // Longer than four times the longest `rto_min` of a draw, and shorter than most waits.
        lifetime_ps: if lives_short { draw.scaled(800_000_000, 4_000_000_000) } else { 0 },
        ..CanaryParameters::default()
    }
}

/// Switches of some of Canary's jobs adapt their timeouts.
pub(super) fn adaptive_timeouts(draw: &mut Draw, jobs: &mut [JobRecipe]) {
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
pub(super) fn uneven_timeouts(draw: &mut Draw, jobs: &mut [JobRecipe]) {
    for job in jobs {
        if let System::Canary(parameters) = &mut job.system {
            let mut some_ps = |percent| if draw.percent(percent) { Some(draw.scaled(10_000, 20_000_000)) } else { None };
            parameters.scan_ps = some_ps(40).unwrap_or(0);
            (parameters.timeout_spine_ps, parameters.timeout_root_ps) = (some_ps(30), some_ps(30));
        }
    }
}

/// Switches of half of Canary's jobs know their fan-in; some jobs have one leader, or leaders that are drawn, or leaders that take their time.
pub(super) fn duties(draw: &mut Draw, jobs: &mut [JobRecipe]) {
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

/// Blocks of some of Canary's jobs have two places to choose from; most jobs share the arrays of their switches with the others, which are
/// short, so that collisions among jobs are the rule.
pub(super) fn tables(draw: &mut Draw, jobs: &mut [JobRecipe]) {
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
