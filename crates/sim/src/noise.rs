//! Host noise: how late packets leave their hosts that leave late (Canary 5.2.5: "OS noise"). The paper's is one constant delay; what
//! operating systems do has tails, and a switch's timeout covers a share of them.

use fanin_core::Duration;

pub mod own;

use crate::noise::own::{Hosts, NamedNoise};
use crate::random::{Purpose, Random};
use crate::setup::SetupError;

/// How much later a packet leaves.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Delay {
    /// Always so much.
    Constant(Duration),
    /// Evenly from the one to the other.
    Uniform {
        /// At least.
        least: Duration,
        /// At most.
        most: Duration,
    },
    /// Exponential: what comes at random takes so long on average.
    Exponential {
        /// On average.
        mean: Duration,
    },
    /// Log-normal: half of the delays are below the median, and sigma is the deviation of their natural logarithms.
    Lognormal {
        /// The middle one.
        median: Duration,
        /// How far the others are from it.
        sigma: f64,
    },
    /// Pareto: delays longer than d are `(least / d) ^ shape` of all. With a shape of 1 or less there is no mean.
    Pareto {
        /// At least.
        least: Duration,
        /// How soon long delays become rare.
        shape: f64,
    },
    /// As a noise from elsewhere says.
    Own(NamedNoise),
}

impl Delay {
    /// No delay that is drawn is longer: a tail that is heavy enough would outlast any run.
    pub const MOST: Duration = Duration::from_ms(1_000);

    /// Checks the numbers.
    ///
    /// # Errors
    /// [`SetupError`] names the parameter after `field`.
    pub fn check(&self, field: &str) -> Result<(), SetupError> {
        let at = |name: &str| format!("{field}.{name}");
        let within = |name: &str, delay: Duration| {
            if delay <= Delay::MOST { Ok(()) } else { Err(SetupError::new(at(name), delay, format!("at most {}", Delay::MOST))) }
        };
        let more = |name: &str, delay: Duration| {
            let expected = format!("more than 0, and at most {}", Delay::MOST);
            if delay > Duration::ZERO { within(name, delay) } else { Err(SetupError::new(at(name), delay, expected)) }
        };
        match *self {
            Delay::Constant(_) => Ok(()),
            Delay::Uniform { least, most } if most < least => {
                Err(SetupError::new(at("max"), most, format!("{least} or more, which min is")))
            }
            Delay::Uniform { most, .. } => within("max", most),
            Delay::Exponential { mean } => more("mean", mean),
            Delay::Lognormal { sigma, .. } if !(sigma.is_finite() && (0.0..=10.0).contains(&sigma)) => {
                Err(SetupError::new(at("sigma"), sigma, "0 to 10"))
            }
            Delay::Lognormal { median, .. } => more("median", median),
            Delay::Pareto { shape, .. } if !(shape.is_finite() && (0.1..=100.0).contains(&shape)) => {
                Err(SetupError::new(at("shape"), shape, "0.1 to 100"))
            }
            Delay::Pareto { least, .. } => more("min", least),
            Delay::Own(own) => own.get().check().map_err(|error| SetupError::refused(field, error)),
        }
    }

    /// Of a million delays one is longer, or none.
    pub fn seldom_longer(&self) -> Duration {
        const SHARE: f64 = 1e-6;
        // Of a million normal deviates one is above this.
        const DEVIATIONS: f64 = 4.753_424;
        match *self {
            Delay::Constant(delay) => delay,
            Delay::Uniform { most, .. } => most,
            Delay::Exponential { mean } => scaled(mean, -libm::log(SHARE)),
            Delay::Lognormal { median, sigma } => scaled(median, libm::exp(DEVIATIONS * sigma)),
            Delay::Pareto { least, shape } => scaled(least, libm::pow(SHARE, -1.0 / shape)),
            Delay::Own(_) => Delay::MOST,
        }
    }

    /// Draws one. A constant takes nothing from the stream; noise from elsewhere has [`Hosts`].
    fn draw(&self, random: &mut Random) -> Duration {
        match *self {
            Delay::Constant(delay) => delay,
            Delay::Own(_) => Duration::ZERO,
            Delay::Uniform { least, most } => {
                let span = u128::from((most - least).as_ps()) + 1;
                least + Duration::from_ps(((u128::from(random.bits()) * span) >> 64) as u64)
            }
            Delay::Exponential { mean } => scaled(mean, -libm::log(share(random))),
            Delay::Lognormal { median, sigma } => scaled(median, libm::exp(sigma * normal(random))),
            Delay::Pareto { least, shape } => scaled(least, libm::pow(share(random), -1.0 / shape)),
        }
    }
}

impl From<Duration> for Delay {
    fn from(delay: Duration) -> Self {
        Delay::Constant(delay)
    }
}

/// A duration times a factor, at most the longest delay.
fn scaled(duration: Duration, factor: f64) -> Duration {
    let ps = (duration.as_ps() as f64 * factor).round();
    Duration::from_ps(ps.clamp(0.0, Delay::MOST.as_ps() as f64) as u64)
}

/// More than 0 and at most 1, evenly.
fn share(random: &mut Random) -> f64 {
    ((random.bits() >> 11) + 1) as f64 / (1u64 << 53) as f64
}

/// Normal, of mean 0 and deviation 1 (Box and Muller).
fn normal(random: &mut Random) -> f64 {
    let radius = libm::sqrt(-2.0 * libm::log(share(random)));
    radius * libm::cos(2.0 * core::f64::consts::PI * share(random))
}

/// Noise of a job's hosts.
#[derive(Debug)]
pub(crate) struct Noise {
    probability: f64,
    delay: Delay,
    random: Random,
    /// With noise from elsewhere.
    hosts: Option<Hosts>,
}

impl Noise {
    /// Of job number `job`.
    pub fn new(probability: f64, delay: Delay, seed: u64, job: u64) -> Self {
        let hosts = if let Delay::Own(own) = delay { Some(Hosts::new(own, seed)) } else { None };
        Noise { probability, delay, random: Random::new(seed, Purpose::Noise, job), hosts }
    }

    /// How much later a packet leaves `host`, if it does.
    #[inline]
    pub fn draw(&mut self, host: u32, now_ps: u64) -> Option<u64> {
        if !self.random.chance(self.probability) {
            return None;
        }
        let Some(hosts) = &mut self.hosts else { return Some(self.delay.draw(&mut self.random).as_ps()) };
        let late = hosts.late(host, now_ps, |seed, number| Random::new(seed, Purpose::Noise, number)).min(Delay::MOST);
        (late > Duration::ZERO).then_some(late.as_ps())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: Duration = Duration::from_us(1);

    fn drawn(delay: Delay, seed: u64) -> Vec<f64> {
        let mut noise = Noise::new(1.0, delay, seed, 0);
        let mut drawn: Vec<f64> = (0..100_000).map(|_| noise.draw(0, 0).expect("each is late") as f64 / 1e6).collect();
        drawn.sort_unstable_by(f64::total_cmp);
        drawn
    }

    #[test]
    fn delays_are_distributed_as_they_say() {
        let [even, random, normal, heavy] = [
            Delay::Uniform { least: US, most: Duration::from_us(3) },
            Delay::Exponential { mean: US },
            Delay::Lognormal { median: US, sigma: 0.5 },
            Delay::Pareto { least: US, shape: 2.0 },
        ]
        .map(|delay| drawn(delay, 3));
        let mean = |drawn: &[f64]| drawn.iter().sum::<f64>() / drawn.len() as f64;
        let near = |value: f64, expected: f64| assert!((value / expected - 1.0).abs() < 0.03, "{value}, not {expected}");
        near(mean(&even), 2.0);
        assert!(even[0] >= 1.0 && even[99_999] <= 3.0);
        near(mean(&random), 1.0);
        // Quantiles: of one in ten, and one in a hundred, that are longer.
        near(random[90_000], core::f64::consts::LN_10);
        near(normal[50_000], 1.0);
        near(mean(&normal), 1.133_148);
        near(normal[90_000], 1.897_9);
        near(mean(&heavy), 2.0);
        near(heavy[99_000], 10.0);
        assert!(heavy[0] >= 1.0);
    }

    #[test]
    fn the_seed_says_it_all_and_a_constant_draws_nothing() {
        let delay = Delay::Exponential { mean: US };
        assert_eq!(drawn(delay, 5), drawn(delay, 5));
        assert_ne!(drawn(delay, 5), drawn(delay, 6));
        let mut random = Random::new(1, Purpose::Noise, 0);
        let before = random.clone().bits();
        assert_eq!(Delay::from(US).draw(&mut random), US);
        assert_eq!(random.bits(), before);
    }

    #[test]
    fn no_tail_is_longer_than_the_longest_delay() {
        let heavy = drawn(Delay::Pareto { least: US, shape: 0.1 }, 1);
        assert!(heavy.iter().all(|us| *us <= 1e6) && heavy[90_000] == 1e6);
        let seldom =
            [Delay::Pareto { least: US, shape: 3.0 }, Delay::Exponential { mean: US }, Delay::Lognormal { median: US, sigma: 1.0 }];
        for delay in seldom {
            let longest = delay.seldom_longer().as_ps() as f64 / 1e6;
            let longer = drawn(delay, 9).into_iter().filter(|us| *us > longest).count();
            assert!(longer <= 1, "{longer} of 100,000 take longer than {longest} us");
        }
    }

    #[test]
    fn what_makes_no_sense_is_named() {
        let said = |delay: Delay| delay.check("noise.delay").map_err(|error| error.to_string());
        assert_eq!(said(Delay::Uniform { least: Duration::ZERO, most: Duration::ZERO }), Ok(()));
        for (delay, named) in [
            (Delay::Uniform { least: US, most: Duration::ZERO }, "noise.delay.max"),
            (Delay::Exponential { mean: Duration::ZERO }, "noise.delay.mean"),
            (Delay::Lognormal { median: US, sigma: -0.1 }, "noise.delay.sigma"),
            (Delay::Lognormal { median: Duration::ZERO, sigma: 1.0 }, "noise.delay.median"),
            (Delay::Pareto { least: US, shape: f64::NAN }, "noise.delay.shape"),
            (Delay::Pareto { least: Duration::ZERO, shape: 1.0 }, "noise.delay.min"),
        ] {
            let words = said(delay).unwrap_err();
            assert!(words.starts_with(&format!("{named} = ")), "{words}");
        }
    }
}
