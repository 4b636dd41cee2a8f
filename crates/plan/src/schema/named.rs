//! Load balancers and patterns of traffic: those that are built in, and those from elsewhere.

use fanin_sim::routing::own::NamedBalancer;
use fanin_sim::traffic::own::NamedPattern;
use serde::{Deserialize, Deserializer};

use super::own::NamedOr;
use super::registry::{BALANCERS, PATTERNS};

/// Load balancers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Routing {
    /// By a hash of the flow.
    #[default]
    Ecmp,
    /// By the destination, always.
    Destination,
    /// At random for each packet.
    Random,
    /// At random for each flowlet.
    Flowlet,
    /// By queue lengths.
    Adaptive,
    /// By a few queues for each packet: DRILL(d, m).
    Drill,
    /// By congestion from leaf to leaf, for each flowlet.
    Conga,
    /// Dragonfly: any way of least cost for each packet.
    Minimal,
    /// Dragonfly: by way of a group drawn at random for each packet.
    Valiant,
    /// Dragonfly: minimal or Valiant's, by the queues at the first router: UGAL-L.
    Ugal,
    /// One from elsewhere.
    Own(NamedBalancer),
}

impl<'de> Deserialize<'de> for Routing {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const BUILT_IN: &[(&str, Routing)] = &[
            ("ecmp", Routing::Ecmp),
            ("destination", Routing::Destination),
            ("random", Routing::Random),
            ("flowlet", Routing::Flowlet),
            ("adaptive", Routing::Adaptive),
            ("drill", Routing::Drill),
            ("conga", Routing::Conga),
            ("minimal", Routing::Minimal),
            ("valiant", Routing::Valiant),
            ("ugal", Routing::Ugal),
        ];
        deserializer.deserialize_any(NamedOr { built_in: BUILT_IN, registry: &BALANCERS, own: Routing::Own })
    }
}

/// Patterns of background traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PatternName {
    /// To a host drawn anew for each message.
    Uniform,
    /// The same, but nobody receives from two.
    Derangement,
    /// Always to the same host; nobody receives from two.
    Permutation,
    /// All to a few.
    Incast,
    /// One from elsewhere.
    Own(NamedPattern),
}

impl<'de> Deserialize<'de> for PatternName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        const BUILT_IN: &[(&str, PatternName)] = &[
            ("uniform", PatternName::Uniform),
            ("derangement", PatternName::Derangement),
            ("permutation", PatternName::Permutation),
            ("incast", PatternName::Incast),
        ];
        deserializer.deserialize_any(NamedOr { built_in: BUILT_IN, registry: &PATTERNS, own: PatternName::Own })
    }
}
