//! `noise`: packets that leave their host late.

use std::fmt;

use fanin_core::units::time_of;
use fanin_sim::noise::Delay;
use serde::de::value::MapDeserializer;
use serde::de::{Deserializer, Error, MapAccess, Unexpected, Visitor};
use serde::{Deserialize, de};
use serde_json::Value;

use super::own::{Names, Plain, entries, own};
use super::registry::NOISES;
use crate::reading::units::{Fraction, Time};

/// `noise`.
#[derive(Clone, Copy, PartialEq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Noise {
    /// Probability per packet.
    pub probability: Fraction,
    /// How much later.
    pub delay: NoiseDelay,
}

/// `delay`: a time, or a distribution of times.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct NoiseDelay(pub Delay);

/// The distributions.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Distribution {
    Constant,
    Uniform,
    Exponential,
    Lognormal,
    Pareto,
}

/// `delay` as a table.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    distribution: Distribution,
    value: Option<Time>,
    mean: Option<Time>,
    min: Option<Time>,
    max: Option<Time>,
    median: Option<Time>,
    sigma: Option<f64>,
    shape: Option<f64>,
}

impl Table {
    /// The delay, or what was expected.
    fn delay(self) -> Result<Delay, String> {
        let (name, needs): (&str, &[&str]) = match self.distribution {
            Distribution::Constant => ("constant", &["value"]),
            Distribution::Uniform => ("uniform", &["min", "max"]),
            Distribution::Exponential => ("exponential", &["mean"]),
            Distribution::Lognormal => ("lognormal", &["median", "sigma"]),
            Distribution::Pareto => ("pareto", &["min", "shape"]),
        };
        let given = [
            ("value", self.value.is_some()),
            ("mean", self.mean.is_some()),
            ("min", self.min.is_some()),
            ("max", self.max.is_some()),
            ("median", self.median.is_some()),
            ("sigma", self.sigma.is_some()),
            ("shape", self.shape.is_some()),
        ];
        if let Some((key, is_given)) = given.into_iter().find(|(key, is_given)| needs.contains(key) != *is_given) {
            let what = if is_given { format!("no {key}") } else { key.to_string() };
            return Err(format!("expected {what}: \"{name}\" has {}", needs.join(" and ")));
        }
        let time = |time: Option<Time>| time.map_or(fanin_core::Duration::ZERO, |time| time.0);
        let number = |number: Option<f64>| number.unwrap_or(0.0);
        let delay = match self.distribution {
            Distribution::Constant => Delay::Constant(time(self.value)),
            Distribution::Uniform => Delay::Uniform { least: time(self.min), most: time(self.max) },
            Distribution::Exponential => Delay::Exponential { mean: time(self.mean) },
            Distribution::Lognormal => Delay::Lognormal { median: time(self.median), sigma: number(self.sigma) },
            Distribution::Pareto => Delay::Pareto { least: time(self.min), shape: number(self.shape) },
        };
        checked(delay)
    }
}

/// The delay, or what was expected.
fn checked(delay: Delay) -> Result<Delay, String> {
    delay.check("").map(|()| delay).map_err(|error| format!("expected {} of {}", error.field.trim_start_matches('.'), error.expected))
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = NoiseDelay;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as \"1us\", or a distribution such as { distribution = \"exponential\", mean = \"1us\" }")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<NoiseDelay, E> {
        let time = time_of(text).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))?;
        Ok(NoiseDelay(Delay::Constant(time)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<NoiseDelay, A::Error> {
        let mut entries = entries(&mut map)?;
        let place = entries.iter().position(|(key, value)| key == "distribution" && value.is_string());
        let name = place.and_then(|place| entries[place].1.as_str().map(str::to_string));
        if let (Some(place), Some(name)) = (place, name)
            && !NOISES.built_in().contains(&name.as_str())
        {
            if NOISES.named(&name).is_none() {
                return Err(A::Error::invalid_value(Unexpected::Str(&name), &Names(&NOISES)));
            }
            entries.remove(place);
            let delay = Delay::Own(own(&NOISES, &name, entries)?);
            return checked(delay).map(NoiseDelay).map_err(de::Error::custom);
        }
        let entries = entries.into_iter().map(|(key, value): (String, Value)| (key, Plain::new(value)));
        let table = Table::deserialize(MapDeserializer::new(entries))?;
        table.delay().map(NoiseDelay).map_err(de::Error::custom)
    }
}

impl<'de> Deserialize<'de> for NoiseDelay {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Reader)
    }
}
