//! Rina: how long a ring over workers, or over groups of them, takes when each step waits for the slowest (III-A, equation 3).

use crate::{Model, ModelError, Parameter, Quantity};

/// `fanin model rina`.
pub(crate) const CHAIN: Model = Model {
    name: "rina",
    title: "Rina: time of the dependency chain of a ring over workers, and of one over groups",
    about: "Each step costs an overhead O, and a time that is normal with mean k / N and deviation sigma; all wait for the slowest (equation 3).\n\
            Rina's chain is over G groups in place of N workers: 2 G - 1 steps in all, of which G scatter and reduce, where a ring has\n\
            2 (N - 1). (The text says 2 G - 1 steps of each phase; a sum is back where it began after G of them, and is everywhere after\n\
            G - 1 more.) _exact: with the mean of the largest of N normal times in place of its bound sigma sqrt(2 ln N).",
    parameters: &[
        Parameter { key: "workers", title: "workers (N)", usual: 16.0, whole: true, low: 2.0, high: 1e6, inclusive: true },
        Parameter {
            key: "groups",
            title: "groups, workers in a rack that aggregates being one (G)",
            usual: 8.0,
            whole: true,
            low: 1.0,
            high: 1e6,
            inclusive: true,
        },
        Parameter { key: "message", title: "MB of the gradient", usual: 98.0, whole: false, low: 1e-6, high: 1e9, inclusive: true },
        Parameter { key: "rate", title: "Gb/s of a link", usual: 100.0, whole: false, low: 1e-3, high: 1e6, inclusive: true },
        Parameter {
            key: "aggregation",
            title: "Gb/s that a switch aggregates",
            usual: 20.0,
            whole: false,
            low: 1e-3,
            high: 1e6,
            inclusive: true,
        },
        Parameter { key: "overhead", title: "us of overhead a step (O)", usual: 100.0, whole: false, low: 0.0, high: 1e9, inclusive: true },
        Parameter {
            key: "sigma",
            title: "us of deviation a step (sigma)",
            usual: 50.0,
            whole: false,
            low: 0.0,
            high: 1e9,
            inclusive: true,
        },
    ],
    choices: &[],
    quantities: &[
        Quantity { key: "ring_steps", title: "steps of the ring", equation: "2 (N - 1)" },
        Quantity { key: "rina_steps", title: "steps of Rina", equation: "2 G - 1" },
        Quantity { key: "ring_scatter_us", title: "us of the ring's first half", equation: "3: N O + k + N sigma sqrt(2 ln N)" },
        Quantity { key: "ring_scatter_us_exact", title: "us of it, exact", equation: "N O + k + N E[max of N]" },
        Quantity { key: "rina_scatter_us", title: "us of Rina's first part", equation: "G O + k' + G sigma sqrt(2 ln G)" },
        Quantity { key: "ring_us", title: "us of the ring", equation: "2 (N - 1) (O + k / N + sigma sqrt(2 ln N))" },
        Quantity { key: "rina_us", title: "us of Rina", equation: "(2 G - 1) (O + k' / G + sigma sqrt(2 ln G))" },
        Quantity {
            key: "overestimate",
            title: "the bound over the mean of the largest, less 1",
            equation: "sqrt(2 ln N) / E[max of N] - 1",
        },
        Quantity { key: "rina_steps_of_hosts", title: "steps of it that cost a host, where switches hand results on", equation: "G + 1" },
    ],
    evaluate: |parameters| {
        let &[workers, groups, message, rate, aggregation, overhead, sigma] = parameters else { unreachable!("seven parameters") };
        if groups > workers {
            let expected = format!("at most as many as workers ({workers})");
            return Err(ModelError { key: "groups", value: groups, expected });
        }
        let whole = message * 8e3 / rate;
        let ring = Chain { length: workers, whole_us: whole, overhead_us: overhead, sigma_us: sigma };
        // With a rack that aggregates, nobody sends faster than its switch adds.
        let slowest = if groups < workers { rate.min(aggregation) } else { rate };
        let rina = Chain { length: groups, whole_us: message * 8e3 / slowest, ..ring };
        let exact = workers * overhead + whole + workers * sigma * largest_of(workers);
        let (ring_steps, rina_steps) = (ring_steps(workers), rina_steps(workers, groups));
        Ok(vec![
            ring_steps,
            rina_steps,
            ring.length * ring.step_us(),
            exact,
            rina.length * rina.step_us(),
            ring_steps * ring.step_us(),
            rina_steps * rina.step_us(),
            bound(workers) / largest_of(workers) - 1.0,
            rina_steps_of_hosts(workers, groups),
        ])
    },
};

/// A chain of steps each of which all wait for.
#[derive(Clone, Copy, Debug)]
pub struct Chain {
    /// Workers or groups.
    pub length: f64,
    /// Time of the whole vector, of which a step takes one part of `length`.
    pub whole_us: f64,
    /// Overhead of a step.
    pub overhead_us: f64,
    /// Deviation of a step's time.
    pub sigma_us: f64,
}

impl Chain {
    /// Time of a step, with the bound of equation 3 for the slowest.
    pub fn step_us(&self) -> f64 {
        self.overhead_us + self.whole_us / self.length + self.sigma_us * bound(self.length)
    }
}

/// Steps of a ring allreduce.
pub fn ring_steps(workers: f64) -> f64 {
    2.0 * (workers - 1.0)
}

/// Steps of Rina: with as many groups as workers it is a ring.
pub fn rina_steps(workers: f64, groups: f64) -> f64 {
    if groups < workers { 2.0 * groups - 1.0 } else { ring_steps(workers) }
}

/// Those in which a host hands on where all groups are racks: a sum takes one for each group, and a result the first, from where its partition
/// began; then switches hand it on at once (IV-B4). No step cost makes Rina faster than a ring by more than the ratio of this to the ring's steps.
pub fn rina_steps_of_hosts(workers: f64, groups: f64) -> f64 {
    if groups < workers { groups + 1.0 } else { ring_steps(workers) }
}

/// sqrt(2 ln n), which the mean of the largest of n standard normal numbers does not exceed.
fn bound(count: f64) -> f64 {
    libm::sqrt(2.0 * libm::log(count))
}

/// The mean of the largest of `count` standard normal numbers: the integral of x d(Phi(x)^n).
fn largest_of(count: f64) -> f64 {
    let phi = |x: f64| 0.5 * libm::erfc(-x / core::f64::consts::SQRT_2);
    let density = |x: f64| libm::exp(-x * x / 2.0) / libm::sqrt(2.0 * core::f64::consts::PI);
    let (low, high, steps) = (-9.0, 9.0, 4_000);
    let width = (high - low) / f64::from(steps);
    let at = |step: i32| low + width * (f64::from(step) + 0.5);
    (0..steps).map(|step| at(step) * count * libm::pow(phi(at(step)), count - 1.0) * density(at(step)) * width).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn evaluate(workers: f64, groups: f64, overhead: f64, sigma: f64) -> Vec<f64> {
        CHAIN.evaluate(&[workers, groups, 98.0, 100.0, 100.0, overhead, sigma]).expect("in range")
    }

    #[test]
    fn steps_are_those_that_the_fat_tree_and_the_dragonfly_have() {
        // `rina 6.1`: 16 workers, r of 8 racks replaced; 72 workers, 36 racks.
        for (replaced, steps) in [(0.0, 30.0), (1.0, 29.0), (4.0, 23.0), (8.0, 15.0)] {
            assert_eq!(evaluate(16.0, 16.0 - replaced, 0.0, 0.0)[1], steps);
        }
        assert_eq!((evaluate(72.0, 72.0, 0.0, 0.0)[1], evaluate(72.0, 36.0, 0.0, 0.0)[1]), (142.0, 71.0));
        // What hosts are in of these: no step cost makes Rina faster than its ring by more.
        let most = |workers: f64, groups: f64| evaluate(workers, groups, 1.0, 0.0)[0] / evaluate(workers, groups, 1.0, 0.0)[8];
        assert!((most(16.0, 8.0) - 30.0 / 9.0).abs() < 1e-9 && (most(64.0, 32.0) - 126.0 / 33.0).abs() < 1e-9 && most(16.0, 16.0) == 1.0);
    }

    #[test]
    fn the_bound_exceeds_the_mean_of_the_largest_by_less_the_more_there_are() {
        let over = |workers: f64| evaluate(workers, 1.0, 0.0, 1.0)[7];
        // `targets.md`, Rina Fig. 3.
        for (workers, expected) in [(8.0, 0.43), (16.0, 0.34), (72.0, 0.23), (128.0, 0.20)] {
            assert!((over(workers) - expected).abs() < 0.01, "{workers}: {}", over(workers));
        }
    }

    #[test]
    fn without_deviation_and_overhead_time_is_bandwidth() {
        let row = evaluate(16.0, 16.0, 0.0, 0.0);
        // 98 MB at 100 Gb/s last 7.84 ms.
        assert!((row[2] - 7_840.0).abs() < 1e-6 && (row[5] - 7_840.0 * 2.0 * 15.0 / 16.0).abs() < 1e-6);
        assert_eq!(row[5], row[6]);
        let refused = CHAIN.evaluate(&[4.0, 5.0, 98.0, 100.0, 100.0, 0.0, 0.0]).expect_err("refused");
        assert_eq!(refused.to_string(), "groups = 5: expected at most as many as workers (4)");
    }
}
