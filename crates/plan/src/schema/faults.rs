//! `[faults]`: what is injected, key by key.

use fanin_core::PacketKind;
use serde::Deserialize;

use super::{no_time, yes};
use crate::reading::units::{Fraction, Time};

/// `[faults]`.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Faults {
    /// What links do to packets; for each packet the first entry that fits its link and kind applies.
    #[serde(default)]
    pub links: Vec<LinkFaults>,
    /// What fails when.
    #[serde(default)]
    pub timed: Vec<Timed>,
    /// Repeats are dropped below the protocols. Off only to show what happens without it.
    #[serde(default = "yes")]
    pub anti_replay: bool,
}

impl Default for Faults {
    fn default() -> Self {
        Faults { links: Vec::new(), timed: Vec::new(), anti_replay: true }
    }
}

/// `[[faults.links]]`: probabilities are per packet and link.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LinkFaults {
    /// Which links.
    #[serde(default)]
    pub links: Links,
    /// Which packets; all where it is not given.
    pub kinds: Option<Vec<KindName>>,
    /// Lost.
    #[serde(default)]
    pub loss: Fraction,
    /// A checksum fails.
    #[serde(default)]
    pub corruption: Fraction,
    /// A second copy arrives.
    #[serde(default)]
    pub duplication: Fraction,
    /// Arrives late, overtaken by others.
    #[serde(default)]
    pub reordering: Fraction,
    /// Longest delay of a copy or a reordered packet.
    #[serde(default = "fault_delay_default")]
    pub delay: Time,
}

/// Which links a fault strikes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Links {
    /// All.
    #[default]
    All,
    /// From hosts to switches.
    HostUp,
    /// From switches to hosts.
    HostDown,
    /// Between switches.
    Fabric,
    /// From one node to another, by name.
    Between {
        /// The sending node.
        from: String,
        /// The receiving node.
        to: String,
    },
}

/// Kinds of packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum KindName {
    /// Towards the sum.
    Contribution,
    /// Away from the sum.
    Aggregate,
    /// Acknowledgements, requests, barriers, aborts.
    Control,
    /// Background traffic.
    Background,
}

impl KindName {
    /// The kind of the core.
    pub fn kind(self) -> PacketKind {
        match self {
            KindName::Contribution => PacketKind::Contribution,
            KindName::Aggregate => PacketKind::Aggregate,
            KindName::Control => PacketKind::Control,
            KindName::Background => PacketKind::Background,
        }
    }
}

/// `[[faults.timed]]`: something that fails at a time.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timed {
    /// What happens.
    pub kind: TimedKind,
    /// Link down: the names of both ends.
    pub between: Option<(String, String)>,
    /// Switch down: its name.
    pub switch: Option<String>,
    /// Host stall or death: its name; or else `rank` says who.
    pub host: Option<String>,
    /// Host stall or death: the host of this worker.
    pub rank: Option<u32>,
    /// The job of `rank`; the first where it is not given.
    pub job: Option<u32>,
    /// From when.
    #[serde(default = "no_time")]
    pub from: Time,
    /// Until when; for good where it is not given.
    pub until: Option<Time>,
}

/// What happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TimedKind {
    /// The cables between two nodes carry nothing.
    LinkDown,
    /// A switch loses its cables and its state.
    SwitchDown,
    /// A host does nothing for a while.
    HostStall,
    /// A host stops for good.
    HostDies,
}

fn fault_delay_default() -> Time {
    Time(fanin_core::Duration::from_us(10))
}
