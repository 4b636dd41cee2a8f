//! Canary's windows that follow the network, by A2TP's control law: their parameters, and what switches have to mark for them.

use fanin_protocols::canary::{MarkRule, RELIABLE_WINDOW_MAX};
use fanin_protocols::shared::real::Real;
use fanin_protocols::shared::two_windows::{CollisionsOf, Synchrony, TwoWindowConfig};

use super::parameters::{CanaryCollisions, CanaryParameters, CanaryWindows};
use crate::atp::{initial as first, share};
use crate::config::{BuildError, JobSpec, UNLIMITED};

/// Keys that mean something with such windows only.
pub(super) const KEYS: [&str; 6] = ["initial", "window_min", "threshold", "collision_weight", "mark_weight", "collisions"];

/// The windows of a job's workers; `None` where they are fixed.
pub(super) fn of<Op>(spec: &JobSpec<'_, Op>, parameters: &CanaryParameters) -> Result<Option<TwoWindowConfig>, BuildError> {
    let CanaryParameters { windows, initial, window_min, threshold, collision_weight, mark_weight, .. } = *parameters;
    if windows == CanaryWindows::Fixed {
        return Ok(None);
    }
    let window = spec.window;
    if window == UNLIMITED || window > RELIABLE_WINDOW_MAX {
        let given = if window == UNLIMITED { "unlimited".to_string() } else { window.to_string() };
        let expected = format!("1 to {RELIABLE_WINDOW_MAX} packets, the longest that windows = \"a2tp\" may become");
        return Err(BuildError::new("window", given, expected));
    }
    if initial > window {
        return Err(BuildError::new("initial", initial, format!("0 to {window}, the window")));
    }
    if window_min > window {
        return Err(BuildError::new("window_min", window_min, format!("0 to {window}, the window")));
    }
    for (field, value) in [("threshold", threshold), ("collision_weight", collision_weight), ("mark_weight", mark_weight)] {
        share(field, value)?;
    }
    let least = parameters.shortest_window(window);
    Ok(Some(TwoWindowConfig {
        window,
        initial: first(initial, window).max(least),
        threshold: Real::new(threshold),
        collision_weight: Real::new(collision_weight),
        mark_weight: Real::new(mark_weight),
        priority: Real::new(1.0),
        quiet_rounds: 0,
        aggregators_min: least,
        links_min: least,
        fair: false,
        col_only: false,
        collisions: CollisionsOf::Round,
        synchrony: Synchrony::Spread,
    }))
}

/// What switches mark a job's blocks with.
pub(super) fn marks(parameters: &CanaryParameters) -> MarkRule {
    match (parameters.windows, parameters.collisions) {
        (CanaryWindows::Fixed, _) => MarkRule::Nothing,
        (CanaryWindows::A2tp, CanaryCollisions::Places) => MarkRule::Collisions,
        (CanaryWindows::A2tp, CanaryCollisions::Stragglers) => MarkRule::Stragglers,
    }
}
