//! The registry: the one place that knows which systems exist. A job's configuration goes in, its nodes come out; a driver runs
//! [`AnyNode`]s and needs no list of its own, so one network, or one daemon, mixes jobs of different systems.
#![forbid(unsafe_code)]

mod any;
mod atp;
mod build;
mod canary;
mod config;
pub mod layout;
mod netreduce;
mod panama;
mod switchml;

pub use any::{AnyHeader, AnyNode};
pub use atp::shared;
pub use build::build;
pub use config::{
    A2tpParameters, AtpParameters, BuildError, CanaryParameters, CollisionRule, DeallocationRule, FailureRule, JobSpec, LookupRule,
    NetReduceParameters, Placement, ReemissionRule, RingOrder, SafetyNets, SynchronyRule, System, UNLIMITED, WindowRule,
};
pub use switchml::offer_number;
