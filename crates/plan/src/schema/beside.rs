//! `[[flows]]` and `[[limits]]`: background flows at given rates, and limits of hosts.

use std::fmt;

use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Unexpected, Visitor};

use super::{no_time, payload_default, yes};
use crate::reading::units::{Bytes, Count, PacketRate, Rate, RateOrNone, Time};

/// `[[flows]]`: one host sends to another at a given rate.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flow {
    /// Off without being taken out of the plan, for sweeps.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// The sending host.
    pub from: Place,
    /// The receiving host.
    pub to: Place,
    /// Payload of a packet.
    #[serde(default = "payload_default")]
    pub payload: Bytes,
    /// Its rate on the wire, frame overhead included, where that does not change.
    pub rate: Option<Rate>,
    /// When it begins; with `rate`.
    pub start: Option<Time>,
    /// When it ends; with `rate`. Where it is not given it goes on as long as the jobs.
    pub until: Option<Time>,
    /// Rates over time, in place of `rate`.
    pub steps: Option<Vec<Step>>,
}

/// `steps`: the rate of a flow from a time on.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// From when.
    pub at: Time,
    /// The rate; 0: it pauses, and ends if this is the last step.
    pub rate: RateOrNone,
}

/// `[[limits]]`: what hosts can do beside what their links can.
#[derive(Clone, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Off without being taken out of the plan, for sweeps.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Which hosts.
    #[serde(default)]
    pub hosts: LimitHosts,
    /// Packets that a host sends.
    pub send: Option<PacketRate>,
    /// Packets that a host takes in.
    pub receive: Option<PacketRate>,
    /// Bits that a host sends, frame overhead included.
    pub rate: Option<Rate>,
    /// Packets that wait at a host to be taken in; what comes then is dropped.
    #[serde(default = "receive_queue_default")]
    pub receive_queue: Count,
    /// A packet that finds more than so many waiting there is marked, as by a switch; none where it is not given.
    pub receive_mark: Option<Count>,
    /// From when.
    #[serde(default = "no_time")]
    pub from: Time,
    /// Until when; for good where it is not given.
    pub until: Option<Time>,
}

/// As long as the rings of common network cards.
fn receive_queue_default() -> Count {
    Count(4_096)
}

/// A host: by name, or by who lives there.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Place {
    /// By its name.
    Named(String),
    /// By a worker or server.
    Of(Member),
}

/// Somebody of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Member {
    /// The job's number; copies are jobs of their own.
    #[serde(default)]
    pub job: u32,
    /// The worker.
    pub rank: Option<u32>,
    /// The server.
    pub server: Option<u32>,
}

/// Which hosts a limit is for.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum LimitHosts {
    /// All.
    #[default]
    All,
    /// Those with a worker.
    Workers,
    /// Those with a server.
    Servers,
    /// These.
    Hosts(Vec<u32>),
    /// The one where somebody lives.
    Of(Member),
}

const PLACE: &str = "the name of a host, such as \"host3\", or who lives there, such as { job = 0, rank = 3 } or { job = 0, server = 0 }";
const LIMIT_HOSTS: &str =
    "\"all\", \"workers\", \"servers\", a list of hosts, such as [0, 3], or who lives there, such as { job = 0, rank = 3 }";

impl<'de> Deserialize<'de> for Place {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct PlaceVisitor;
        impl<'de> Visitor<'de> for PlaceVisitor {
            type Value = Place;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(PLACE)
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Place, E> {
                Ok(Place::Named(name.to_string()))
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<Place, A::Error> {
                Member::deserialize(MapAccessDeserializer::new(entries)).map(Place::Of)
            }
        }
        deserializer.deserialize_any(PlaceVisitor)
    }
}

impl<'de> Deserialize<'de> for LimitHosts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct HostsVisitor;
        impl<'de> Visitor<'de> for HostsVisitor {
            type Value = LimitHosts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(LIMIT_HOSTS)
            }

            fn visit_str<E: Error>(self, word: &str) -> Result<LimitHosts, E> {
                match word {
                    "all" => Ok(LimitHosts::All),
                    "workers" => Ok(LimitHosts::Workers),
                    "servers" => Ok(LimitHosts::Servers),
                    _ => Err(E::invalid_value(Unexpected::Str(word), &self)),
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<LimitHosts, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(items)).map(LimitHosts::Hosts)
            }

            fn visit_map<A: MapAccess<'de>>(self, entries: A) -> Result<LimitHosts, A::Error> {
                Member::deserialize(MapAccessDeserializer::new(entries)).map(LimitHosts::Of)
            }
        }
        deserializer.deserialize_any(HostsVisitor)
    }
}
