//! The registry: the one place that knows which systems exist. A job's configuration goes in, its nodes come out; a driver runs
//! [`AnyNode`]s and needs no list of its own, so one network, or one daemon, mixes jobs of different systems.
#![forbid(unsafe_code)]

mod any;
mod atp;
mod build;
mod canary;
mod collectives;
mod config;
mod doubling;
mod exchange;
mod flare;
mod formats;
pub mod layout;
mod machines;
mod memory;
mod netreduce;
mod order;
mod panama;
mod ps;
mod rina;
mod sharp;
mod sparse;
mod switchml;
mod trees;

pub use any::{AnyHeader, AnyNode};
pub use atp::FIXED_EXPONENT;
pub use build::{build, check_operator, ring_order, shared};
pub use collectives::check_collective;
pub use config::{
    A2tpParameters, AlgorithmRule, AtpParameters, BuildError, CanaryParameters, CollisionRule, CongestionParameters, CongestionRule,
    DeallocationRule, DoublingParameters, FailureRule, FanInRule, FlareCoding, FlareParameters, FlareStorage, JobSpec, LeaderRule,
    LookupRule, MachinesParameters, NetReduceParameters, Picks, Placement, PsParameters, RecoveryRule, ReemissionRule, RefusalRule,
    RinaParameters, RingOrder, SafetyNets, SharpMode, SharpParameters, StepParameters, SumOrder, SynchronyRule, System, UNLIMITED,
    WindowRule,
};
pub use flare::FlarePackets;
pub use formats::{LAYOUTS, block_of, layout_of};
pub use switchml::OfferNumbers;
