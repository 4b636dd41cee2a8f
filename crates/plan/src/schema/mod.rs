//! What may stand in a plan, key by key. Sizes that depend on each other are checked in `build`.
//!
//! | module | what it holds |
//! |---|---|
//! | `network`, `hardware`, `jobs`, `traffic`, `beside`, `faults`, `run`, `plot` | the keys of each section |
//! | [`system`] | the keys of each system |
//! | `models`, `workloads`, `noise`, `named` | values of some of them |
//! | [`choices`] | values that are a word or something longer |
//! | `own`, [`registry`] | load balancers, traffic and noise from elsewhere |

use serde::Deserialize;

use crate::reading::units::{Bytes, Count, Fraction, Time};

mod beside;
pub mod choices;
mod faults;
mod hardware;
mod jobs;
mod models;
mod named;
mod network;
mod noise;
mod own;
mod plot;
pub mod registry;
mod run;
pub mod system;
mod traffic;
mod workloads;

pub use beside::{Flow, Limit, LimitHosts, Member, Place, Step};
pub use faults::{Faults, KindName, LinkFaults, Links, Timed, TimedKind};
pub use hardware::{Hardware, HardwareKeys, HardwareName};
pub use jobs::{Element, FILE_KEY, JOB_KEYS, Job, JobKeys, Placement, Reproducible, ServerPlacement, Servers, Workers};
pub use models::Model;
pub use named::{PatternName, Routing};
pub use network::{
    Aggregating, AsWired, BlockMapName, Cards, Lossless, Network, Processor, QUEUE_BYTES_DEFAULT, ShapeName, SwitchModelName, TrimmingName,
};
pub use noise::{Noise, NoiseDelay};
pub use plot::{Plot, PlotKind};
pub use run::{Expect, PayloadName, Run};
pub use traffic::{CongestionName, Traffic, TrafficHosts};
pub use workloads::{Source, WorkloadFrom};

/// One point of a plan: everything that a run needs except for its seed.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Everything but the jobs.
    pub general: General,
    /// `[[jobs]]`, with those of files.
    pub jobs: Vec<Job>,
    /// By job: which entry of the plan's `[[jobs]]` it comes from.
    pub entries: Vec<usize>,
}

/// A plan without its jobs.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct General {
    /// `[network]`.
    pub network: Network,
    /// `[[traffic]]`.
    #[serde(default)]
    pub traffic: Vec<Traffic>,
    /// `[[flows]]`.
    #[serde(default)]
    pub flows: Vec<Flow>,
    /// `[[limits]]`.
    #[serde(default)]
    pub limits: Vec<Limit>,
    /// `[faults]`.
    #[serde(default)]
    pub faults: Faults,
    /// `[run]`.
    #[serde(default)]
    pub run: Run,
}

pub(crate) fn one() -> Count {
    Count(1)
}
pub(crate) fn yes() -> bool {
    true
}
fn all() -> Fraction {
    Fraction(1.0)
}
pub(crate) fn no_time() -> Time {
    Time(fanin_core::Duration::ZERO)
}

pub(crate) fn payload_default() -> Bytes {
    Bytes(1024)
}
