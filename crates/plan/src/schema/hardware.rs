//! `hardware` of `[network]`: what switches can do, as the ones that prototypes run on.

use std::fmt;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{Deserializer, Error, IntoDeserializer, MapAccess, Visitor};

use crate::reading::units::{Bytes, Count, Rate, Time};

/// Switches whose limits are known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HardwareName {
    /// No limits.
    Unlimited,
    /// Canary's prototype (Canary 4, 5.1).
    Tofino1,
    /// Its successor, with stages in proportion.
    Tofino2,
    /// The program in a Linux kernel (docs/xdp.md).
    Xdp,
    /// NVIDIA Quantum (HDR): one streaming tree a switch.
    Quantum,
    /// NVIDIA Quantum-2 (NDR): one streaming tree a port.
    #[serde(rename = "quantum-2")]
    Quantum2,
    /// NVIDIA Quantum-X800 (XDR).
    #[serde(rename = "quantum-x800")]
    QuantumX800,
    /// 72 GPUs on NVLink, whose switches sum.
    Nvl72,
    /// Broadcom Tomahawk Ultra: sums over plain RoCE.
    TomahawkUltra,
    /// NVIDIA Spectrum-X: packets are spread, nothing is summed.
    SpectrumX,
}

impl HardwareName {
    /// All of them, as plans have them.
    pub const NAMES: &[&str] =
        &["unlimited", "tofino1", "tofino2", "xdp", "quantum", "quantum-2", "quantum-x800", "nvl72", "tomahawk-ultra", "spectrum-x"];
}

/// `hardware`: limits of every switch that aggregates, `"tofino1"` or `{ preset = "tofino1", recirculation = "800Gb/s" }`. What is not given is the
/// preset's, and nothing is limited without one.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct Hardware(pub HardwareKeys);

/// The keys of the table.
#[derive(Clone, Copy, PartialEq, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardwareKeys {
    /// Where the other keys' defaults are from.
    pub preset: Option<HardwareName>,
    /// Words of 4 bytes of a vector that are added while a packet passes the pipeline once.
    pub elements: Option<Count>,
    /// Rate of the ports that lead packets back to the pipeline's beginning.
    pub recirculation: Option<Rate>,
    /// How long a further pass takes besides.
    pub pass_time: Option<Time>,
    /// Multicast groups.
    pub groups: Option<Count>,
    /// Groups to which a packet goes in one pass.
    pub groups_per_pass: Option<Count>,
    /// Entries of a switch's array at which clock packets look in a second, for expired timers.
    pub scan_rate: Option<Count>,
    /// How fast a port's packets are added.
    pub aggregation_rate: Option<Rate>,
    /// Memory for aggregation.
    pub memory: Option<Bytes>,
}

impl<'de> Deserialize<'de> for Hardware {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NameOrTable;

        impl<'de> Visitor<'de> for NameOrTable {
            type Value = Hardware;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let names: Vec<String> = HardwareName::NAMES.iter().map(|name| format!("{name:?}")).collect();
                write!(f, "{} or a table of limits", names.join(", "))
            }

            fn visit_str<E: Error>(self, name: &str) -> Result<Hardware, E> {
                let preset = HardwareName::deserialize(name.into_deserializer())?;
                Ok(Hardware(HardwareKeys { preset: Some(preset), ..HardwareKeys::default() }))
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Hardware, A::Error> {
                HardwareKeys::deserialize(MapAccessDeserializer::new(map)).map(Hardware)
            }
        }

        deserializer.deserialize_any(NameOrTable)
    }
}
