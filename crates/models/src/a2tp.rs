//! A2TP: the steady state of the aggregator window (`a2tp 6`, the paper's section 4.4), and the decrease of the window (`a2tp 5.7`, its
//! section 4.3).
//!
//! N flows of jobs without stragglers share M aggregators. No hash collides until all are occupied; windows are synchronous, grow by one
//! fragment a round and shrink together. Then there are C(t) = N ACW(t) - M collisions (equation 7), and a flow sends
//! G(a, b) = (b^2 - a^2) / 2 fragments while its window grows from a to b (equation 8).
//!
//! The paper goes on with approximations for large windows. Beside what follows from them stands what follows from equation 10 without
//! them; quantities of that kind are called exact.

use crate::{Model, ModelError, Parameter, Quantity};

/// `fanin model a2tp`.
pub(crate) const STEADY_STATE: Model = Model {
    name: "a2tp",
    title: "A2TP in steady state: window, decrease, collisions, and the lowest threshold that leaves no aggregator idle",
    about: "A2TP, section 4.4: N flows without stragglers in step, M aggregators, no collision before all are occupied.\n\
            Quantities that end in _exact follow from equation 10 as it stands, the others from the paper's approximations for large windows.",
    parameters: &[
        Parameter { key: "flows", title: "flows (N)", usual: 2.0, whole: true, low: 1.0, high: 1e6, inclusive: true },
        Parameter { key: "aggregators", title: "aggregators (M)", usual: 450.0, whole: true, low: 1.0, high: 1e9, inclusive: true },
        Parameter { key: "threshold", title: "threshold (H)", usual: 0.15, whole: false, low: 0.0, high: 1.0, inclusive: false },
    ],
    choices: &[],
    quantities: &[
        Quantity { key: "window", title: "window at the threshold (ACW*)", equation: "before 9" },
        Quantity { key: "decrease", title: "decrease (d)", equation: "10, approximated" },
        Quantity { key: "decrease_exact", title: "decrease, exact", equation: "10" },
        Quantity { key: "amplitude", title: "amplitude (A)", equation: "12" },
        Quantity { key: "amplitude_exact", title: "amplitude, exact", equation: "11" },
        Quantity { key: "collisions_max", title: "most collisions (C_max)", equation: "13" },
        Quantity { key: "collisions_min", title: "fewest collisions (C_min)", equation: "14" },
        Quantity { key: "collisions_min_exact", title: "fewest collisions, exact", equation: "11, 13" },
        Quantity { key: "threshold_min", title: "lowest H with C_min >= 0", equation: "14" },
        Quantity { key: "threshold_min_exact", title: "lowest H with C_min >= 0, exact", equation: "10, 11, 13" },
    ],
    evaluate: |parameters| {
        let [flows, aggregators, threshold] = parameters else { unreachable!("three parameters") };
        let steady = SteadyState::new(*flows, *aggregators, *threshold)?;
        Ok(vec![
            steady.window(),
            steady.decrease(),
            steady.decrease_exact(),
            steady.amplitude(),
            steady.amplitude_exact(),
            steady.collisions_max(),
            steady.collisions_min(),
            steady.collisions_min_exact(),
            threshold_min(*flows, *aggregators),
            threshold_min_exact(*flows, *aggregators),
        ])
    },
};

/// `fanin model a2tp-decrease`.
pub(crate) const DECREASE: Model = Model {
    name: "a2tp-decrease",
    title: "A2TP's decrease d = p^gamma by congestion and straggling (Fig. 4)",
    about: "A2TP, section 4.3: p is how far the share of fragments that collided lies above the threshold, gamma the share of a window's\n\
            fragments that are acknowledged within a round: 1 without stragglers.",
    parameters: &[
        Parameter { key: "congestion", title: "congestion (p)", usual: 0.1, whole: false, low: 0.0, high: 1.0, inclusive: true },
        Parameter { key: "straggling", title: "straggling (gamma)", usual: 1.0, whole: false, low: 0.0, high: 1.0, inclusive: true },
    ],
    choices: &[],
    quantities: &[
        Quantity { key: "decrease", title: "decrease (d)", equation: "5" },
        Quantity { key: "kept", title: "share of the window that is kept", equation: "4" },
    ],
    evaluate: |parameters| {
        let [congestion, straggling] = parameters else { unreachable!("two parameters") };
        let decrease = decrease(*congestion, *straggling);
        Ok(vec![decrease, 1.0 - decrease / 2.0])
    },
};

/// The factor d = p^gamma, of which half is taken off the window (equations 4 and 5). 0 without congestion, whatever gamma is: equation 4
/// is for p > 0 (`a2tp 9`, P9).
pub fn decrease(congestion: f64, straggling: f64) -> f64 {
    if congestion > 0.0 { libm::pow(congestion, straggling) } else { 0.0 }
}

/// Flows that share aggregators, in steady state.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct SteadyState {
    flows: f64,
    aggregators: f64,
    threshold: f64,
}

impl SteadyState {
    /// N flows, M aggregators, threshold H.
    ///
    /// # Errors
    /// Where there are more flows than aggregators: windows would be of less than one fragment, for which equation 10 gives a decrease of
    /// more than 1.
    pub fn new(flows: f64, aggregators: f64, threshold: f64) -> Result<Self, ModelError> {
        if flows > aggregators {
            let expected = format!("at most as many as aggregators ({aggregators}): a window holds one fragment or more");
            return Err(ModelError { key: "flows", value: flows, expected });
        }
        Ok(SteadyState { flows, aggregators, threshold })
    }

    /// ACW* = M / ((1-H) N): the window from which on collisions are more than the threshold allows.
    pub fn window(&self) -> f64 {
        self.aggregators / ((1.0 - self.threshold) * self.flows)
    }

    /// d ~ sqrt(2 / ACW*) (equation 10, for large windows).
    pub fn decrease(&self) -> f64 {
        (2.0 / self.window()).sqrt()
    }

    /// d of d^2 (1 - d/4) = (2 ACW* + 1) / (ACW* + 1)^2 (equation 10).
    pub fn decrease_exact(&self) -> f64 {
        decrease_at(self.window())
    }

    /// A = 1/2 sqrt(2MN / (1-H)): by how much the collisions of all flows swing (equation 12).
    pub fn amplitude(&self) -> f64 {
        (2.0 * self.aggregators * self.flows / (1.0 - self.threshold)).sqrt() / 2.0
    }

    /// A = N (ACW* + 1) d/2 (equations 11 and 12, not approximated).
    pub fn amplitude_exact(&self) -> f64 {
        self.flows * (self.window() + 1.0) * self.decrease_exact() / 2.0
    }

    /// C_max = N (ACW* + 1) - M = MH / (1-H) + N (equation 13).
    pub fn collisions_max(&self) -> f64 {
        self.aggregators * self.threshold / (1.0 - self.threshold) + self.flows
    }

    /// C_min = C_max - A (equation 14).
    pub fn collisions_min(&self) -> f64 {
        self.collisions_max() - self.amplitude()
    }

    /// C_max - A with the amplitude that is not approximated.
    pub fn collisions_min_exact(&self) -> f64 {
        self.collisions_max() - self.amplitude_exact()
    }
}

/// The d in (0, 1] with d^2 (1 - d/4) = (2a + 1) / (a + 1)^2 for a window a >= 1. At a = 1 both sides are 3/4, and d is 1.
fn decrease_at(window: f64) -> f64 {
    let right = (2.0 * window + 1.0) / ((window + 1.0) * (window + 1.0));
    // The left side grows and is convex up to d = 4/3: Newton's steps from 1 come down to the root and never pass it.
    let mut d = 1.0;
    for _ in 0..64 {
        let next = d - (d * d * (1.0 - d / 4.0) - right) / (2.0 * d - 0.75 * d * d);
        if next >= d {
            break;
        }
        d = next;
    }
    d
}

/// The lowest H from 0 on with C_min >= 0 (equation 14); 0 where that holds without a threshold, from N = M/2 on.
pub fn threshold_min(flows: f64, aggregators: f64) -> f64 {
    // With y = 1 / sqrt(1-H), equation 14 is M y^2 - sqrt(MN/2) y + N - M >= 0.
    let half = (aggregators * flows / 2.0).sqrt() / 2.0;
    let y = (half + (half * half + aggregators * (aggregators - flows)).sqrt()) / aggregators;
    (1.0 - 1.0 / (y * y)).max(0.0)
}

/// The lowest H from 0 on with C_max - A >= 0, where the amplitude is not approximated. `flows` is at most `aggregators`.
pub fn threshold_min_exact(flows: f64, aggregators: f64) -> f64 {
    let share = aggregators / flows;
    // All aggregators stay occupied where the window after the decrease is a flow's share of them; that window grows with ACW*.
    let suffices = |window: f64| (window + 1.0) * (1.0 - decrease_at(window) / 2.0) >= share;
    let (mut low, mut high) = (share, 2.0 * share);
    if suffices(low) {
        return 0.0;
    }
    // A window of twice the share is at least the share when it is halved. 64 halvings leave no digit open.
    for _ in 0..64 {
        let middle = low.midpoint(high);
        if suffices(middle) {
            high = middle;
        } else {
            low = middle;
        }
    }
    1.0 - share / high
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `a2tp 6`: flows, aggregators, the lowest H by equation 14 and with exact d.
    const BOUNDS: &[(f64, f64, f64, f64)] = &[
        (2.0, 450.0, 0.042, 0.043),
        (4.0, 450.0, 0.056, 0.058),
        (8.0, 450.0, 0.074, 0.077),
        (16.0, 450.0, 0.095, 0.100),
        (32.0, 450.0, 0.115, 0.125),
        (2.0, 900.0, 0.031, 0.031),
        (32.0, 900.0, 0.095, 0.100),
        (1.0, 450.0, 0.031, 0.031),
    ];

    #[test]
    fn the_lowest_threshold_has_the_values_of_the_spec() {
        for &(flows, aggregators, by_formula, exact) in BOUNDS {
            let found = (threshold_min(flows, aggregators), threshold_min_exact(flows, aggregators));
            let close = |found: f64, expected: f64| (found - expected).abs() < 0.000_6;
            assert!(close(found.0, by_formula) && close(found.1, exact), "N = {flows}, M = {aggregators}: {found:?}");
        }
    }

    #[test]
    fn figure_4_has_the_values_of_the_formula() {
        let found: Vec<f64> = (0..=5).map(|step| decrease(0.1, f64::from(step) / 5.0)).collect();
        for (found, expected) in found.iter().zip([1.0, 0.631, 0.398, 0.251, 0.158, 0.1]) {
            assert!((found - expected).abs() < 0.000_5, "{found} is not {expected}");
        }
    }

    #[test]
    fn without_congestion_the_window_is_not_cut_whatever_the_straggling() {
        assert_eq!(decrease(0.0, 0.0), 0.0);
        assert_eq!(decrease(0.0, 0.5), 0.0);
        assert_eq!(decrease(1.0, 0.3), 1.0);
    }

    #[test]
    fn a_window_of_one_fragment_is_halved() {
        assert_eq!(decrease_at(1.0), 1.0);
    }

    #[test]
    fn small_shares_of_aggregators_need_no_threshold() {
        assert_eq!((threshold_min(4.0, 8.0), threshold_min(5.0, 8.0)), (0.0, 0.0));
        assert!(threshold_min(3.0, 8.0) > 0.0);
        assert_eq!(threshold_min_exact(8.0, 8.0), 0.0);
        assert!(threshold_min_exact(4.0, 8.0) > 0.0);
    }

    proptest! {
        #[test]
        fn equation_10_holds_and_its_approximation_is_close_for_large_windows(window in 1.0..1e7_f64) {
            let d = decrease_at(window);
            let right = (2.0 * window + 1.0) / ((window + 1.0) * (window + 1.0));
            prop_assert!(d > 0.0 && d <= 1.0);
            prop_assert!((d * d * (1.0 - d / 4.0) - right).abs() <= 1e-12 * right.max(1e-3));
            if window > 100.0 {
                prop_assert!((d / (2.0 / window).sqrt() - 1.0).abs() < 0.02);
            }
        }

        #[test]
        fn no_collision_is_missing_from_the_lowest_threshold_on(flows in 1..200u32, share in 1.0..500.0_f64, above in 0.0..0.5_f64) {
            let (flows, aggregators) = (f64::from(flows), (f64::from(flows) * share).round());
            let tolerance = aggregators * 1e-12;
            for exact in [false, true] {
                let lowest = if exact { threshold_min_exact(flows, aggregators) } else { threshold_min(flows, aggregators) };
                let at = |threshold| {
                    let steady = SteadyState::new(flows, aggregators, threshold).unwrap();
                    if exact { steady.collisions_min_exact() } else { steady.collisions_min() }
                };
                prop_assert!(at(lowest) >= -tolerance, "{} at {}", at(lowest), lowest);
                prop_assert!(at(lowest + above * (1.0 - lowest)) >= -tolerance);
                if lowest > 1e-6 {
                    prop_assert!(at(lowest * 0.999) < tolerance, "{} just below {}", at(lowest * 0.999), lowest);
                }
            }
        }

        #[test]
        fn the_lowest_threshold_grows_with_flows_and_falls_with_aggregators(flows in 1..60u32, aggregators in 450..5000u32) {
            let (flows, aggregators) = (f64::from(flows), f64::from(aggregators));
            for bound in [threshold_min, threshold_min_exact] {
                prop_assert!(bound(flows + 1.0, aggregators) > bound(flows, aggregators));
                prop_assert!(bound(flows, aggregators + 1.0) < bound(flows, aggregators));
            }
        }
    }
}
