//! Plans: what to simulate, as data; and what comes out.
//!
//! Each room is a folder, which uses those above it:
//!
//! | module | what it holds |
//! |---|---|
//! | `reading` | from a text to values that know their line, and errors that lead there |
//! | [`schema`] | every key |
//! | [`network`] | shapes, and networks in files |
//! | `jobs` | hosts, sizes, times and workloads of jobs; flows, limits and faults by who lives where |
//! | `build` | from a point and a seed to what the simulator needs |
//! | [`results`] | one record a run, as JSON and CSV; numbers by name; quantities over time |
//! | `plan` | a plan and its points |
//! | [`run`] | runs a plan's points on all cores; the same as columns, and elsewhere |
//! | [`traced`], [`perfetto`] | what the first run is looked at for; a file of events |
//! | [`upgrade`] | which switches to replace next |
//!
//! What others use of a room has a name here.
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`"))]

mod build;
mod jobs;
pub mod network;
pub mod perfetto;
mod plan;
mod reading;
pub mod results;
pub mod run;
pub mod schema;
pub mod traced;
pub mod upgrade;

pub use build::{Listed, Prepared};
pub use jobs::{PreparedJob, aggregators, beside, operators, training};
pub use plan::sweep::Axis;
pub use plan::{Plan, Point, apply_set, computed, idle};
pub use reading::{PlanError, Refuse, files, read, size, tree, units};
pub use results::{columns, metrics, series, together};
pub use run::{elsewhere, frames};
pub use schema::registry as own;
pub use schema::{choices, system};

/// Jobs that do what a workload says, and what comes out of them.
pub mod workload {
    pub use crate::jobs::workload::{Lanes, ModelKeys, PreparedProgram, lanes, source};
    pub use crate::results::workload::{
        CommunicationRecord, CriticalRecord, GroupRecord, Timeline, WorkloadRecord, record, timeline, trace,
    };
    pub use crate::schema::{Source, WorkloadFrom};
}
