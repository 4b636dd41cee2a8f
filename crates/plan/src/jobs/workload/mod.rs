//! Jobs that do what a workload says: ranks with programs, in several groups.
//!
//! | module | what it holds |
//! |---|---|
//! | [`keys`] | which keys go with a workload |
//! | [`source`] | where workloads come from: a file, or a model's sizes |
//! | [`lanes`] | from a workload on hosts to what the simulator runs |
//! | `local` | what members of one host do among themselves |

pub mod keys;
pub mod lanes;
mod local;
pub mod source;

pub use lanes::{Lanes, PreparedProgram};
pub use source::ModelKeys;
