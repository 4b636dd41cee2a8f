//! One number out of several, and what is wanted of a number.

use fanin_plan::results::median;
use serde::de::{Deserialize, Deserializer, Error};

/// One number out of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Statistic {
    /// The middle one.
    #[default]
    Median,
    /// Their mean.
    Mean,
    /// The lowest.
    Lowest,
    /// The highest.
    Highest,
}

impl Statistic {
    /// In words.
    pub fn text(self) -> &'static str {
        match self {
            Statistic::Median => "median",
            Statistic::Mean => "mean",
            Statistic::Lowest => "lowest",
            Statistic::Highest => "highest",
        }
    }
}

/// Lowest and highest number that agrees with a claim.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Window {
    /// The lowest.
    pub low: f64,
    /// The highest.
    pub high: f64,
}

impl<'de> Deserialize<'de> for Window {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let [low, high] = <[f64; 2]>::deserialize(deserializer)?;
        if low.is_nan() || high.is_nan() || low > high {
            return Err(D::Error::custom("expected [lowest, highest], such as [0.7, 0.9] or [1.5, inf]"));
        }
        Ok(Window { low, high })
    }
}

impl Statistic {
    /// The statistic of some numbers; there is at least one.
    pub fn of(self, numbers: &[f64]) -> f64 {
        let mut sorted = numbers.to_vec();
        sorted.sort_by(f64::total_cmp);
        match self {
            Statistic::Median => median(&sorted).unwrap_or(f64::NAN),
            Statistic::Mean => sorted.iter().sum::<f64>() / sorted.len() as f64,
            Statistic::Lowest => sorted.first().copied().unwrap_or(f64::NAN),
            Statistic::Highest => sorted.last().copied().unwrap_or(f64::NAN),
        }
    }
}
