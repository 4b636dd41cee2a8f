//! Values of a workload that are a word or something longer.

use std::fmt;

use fanin_plan::units::{Rate, fraction_of};
use serde::Deserialize;
use serde::de::value::{SeqAccessDeserializer, StrDeserializer};
use serde::de::{Deserializer, Error, SeqAccess, Unexpected, Visitor};

/// The hosts of a job's workers, by rank: `"all"` or a list of names.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Hosts {
    /// All hosts, in the order of the fabric.
    #[default]
    All,
    /// These.
    Named(Vec<String>),
}

/// How much a stream sends: `"15Mb/s"` or `"75%"` of the sender's link.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Load {
    /// Bits per second on the wire.
    Rate(u64),
    /// Share of the rate of the sender's link.
    Share(f64),
}

impl Load {
    /// In bits per second, at a link of this rate.
    pub fn bits_per_second(self, link: u64) -> u64 {
        match self {
            Load::Rate(rate) => rate,
            Load::Share(share) => (link as f64 * share).round() as u64,
        }
    }
}

/// What happens to a process.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Action {
    /// It ends at once, without a word (SIGKILL).
    Kill,
    /// It starts anew, knowing nothing.
    Restart,
    /// It stands still (SIGSTOP).
    Pause,
    /// It goes on (SIGCONT).
    Resume,
}

impl Action {
    /// As workloads write it.
    pub fn name(self) -> &'static str {
        match self {
            Action::Kill => "kill",
            Action::Restart => "restart",
            Action::Pause => "pause",
            Action::Resume => "resume",
        }
    }
}

/// What elements are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Values {
    /// Whole numbers so small that sums are exact in any order.
    #[default]
    Whole,
    /// Floats of such different sizes that sums are rounded, in another order in another way: for systems that add in a fixed order.
    Rounded,
}

/// How the jobs are meant to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// Every operation completes at every worker, with every element right.
    #[default]
    Success,
    /// In every job an operation fails, and every worker that is left says so or has exact sums.
    Failure,
}

impl<'de> Deserialize<'de> for Hosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HostsVisitor;
        impl<'de> Visitor<'de> for HostsVisitor {
            type Value = Hosts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"all\" or a list of names, such as [\"host0\", \"host5\"]")
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<Hosts, E> {
                if word == "all" { Ok(Hosts::All) } else { Err(E::invalid_value(Unexpected::Str(word), &self)) }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Hosts, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(Hosts::Named)
            }
        }
        deserializer.deserialize_any(HostsVisitor)
    }
}

impl<'de> Deserialize<'de> for Load {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct LoadVisitor;
        impl Visitor<'_> for LoadVisitor {
            type Value = Load;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bits per second or a share of the sender's link, such as \"15Mb/s\" or \"75%\"")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Load, E> {
                let share = fraction_of(text).filter(|share| *share > 0.0).map(Load::Share);
                let rate = || Rate::deserialize(StrDeserializer::<E>::new(text)).ok().map(|rate| Load::Rate(rate.0));
                share.or_else(rate).ok_or_else(|| E::invalid_value(Unexpected::Str(text), &self))
            }
        }
        deserializer.deserialize_any(LoadVisitor)
    }
}
