//! A training step as data: who computes for how long, and which collectives of which groups of ranks come after what.
//!
//! | module | what it holds |
//! |---|---|
//! | [`mod@model`] | a [`Workload`]: ranks, groups, programs, nodes |
//! | [`kinds`] | kinds of collectives, types of elements |
//! | [`ranks`] | lists of ranks as text |
//! | [`mod@error`] | what is wrong with an input |
//! | [`mod@file`] | workloads as TOML |
//! | [`flat`] | a program without calls, with all that its nodes wait for |
//! | [`mod@validate`] | what must hold |
//! | [`mod@summary`] | what is in a workload |
//! | [`import`] | traces and workloads of other tools |
//! | [`generate`] | workloads from published sizes of models |
//! | [`mod@report`] | what importers left out and assumed |
//! | [`network`] | networks of other tools |
//! | [`run`] | a workload run through with communication that takes no time |
#![forbid(unsafe_code)]

pub mod error;
pub mod file;
pub mod flat;
pub mod generate;
pub mod import;
pub mod kinds;
pub mod model;
pub mod network;
pub mod ranks;
mod read;
pub mod report;
pub mod run;
pub mod summary;
pub mod validate;

pub use error::WorkloadError;
pub use kinds::{CollectiveKind, Element};
pub use model::{Action, Block, Collective, Group, Hosts, Members, Node, Peer, Program, Transfer, Workload};
pub use ranks::RANKS_MAX;
pub use report::Report;
pub use summary::Summary;
pub use validate::{Checked, validate};
