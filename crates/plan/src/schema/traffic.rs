//! `[[traffic]]`: background traffic.

use serde::Deserialize;

use super::named::PatternName;
use super::{all, no_time, payload_default, yes};
use crate::reading::units::{Amount, Bytes, Count, Fraction, Time};

/// `[[traffic]]`: background traffic.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traffic {
    /// Off without being taken out of the plan, for sweeps.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// Who sends to whom; `{ name = ..., ... }` for a pattern from elsewhere with its parameters.
    pub pattern: PatternName,
    /// Incast: number of receivers.
    pub receivers: Option<Count>,
    /// Which hosts.
    #[serde(default)]
    pub hosts: TrafficHosts,
    /// Length of a message.
    #[serde(default = "traffic_message_default")]
    pub message: Bytes,
    /// Payload of a full packet.
    #[serde(default = "payload_default")]
    pub payload: Bytes,
    /// Offered rate of each sender as a share of its link's.
    #[serde(default = "all")]
    pub load: Fraction,
    /// Whether rates follow congestion.
    #[serde(default)]
    pub congestion: CongestionName,
    /// With congestion control: the least timeout.
    pub rto_min: Option<Time>,
    /// Messages that each host sends; as many as the jobs last where it is not given.
    pub messages: Option<u64>,
    /// When it begins.
    #[serde(default = "no_time")]
    pub start: Time,
}

/// How senders of background traffic control their rates.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CongestionName {
    /// They do not: what is lost is gone.
    #[default]
    None,
    /// As DCTCP.
    Dctcp,
}

/// Which hosts send background traffic.
#[derive(Clone, PartialEq, Debug, Default)]
pub enum TrafficHosts {
    /// Those without a worker.
    #[default]
    Rest,
    /// All, also those with workers.
    All,
    /// So many of those without a worker, at random.
    Some(Amount),
    /// These.
    Hosts(Vec<u32>),
}

fn traffic_message_default() -> Bytes {
    Bytes(64 << 10)
}
