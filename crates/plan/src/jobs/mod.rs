//! Jobs: where their workers are, what they reduce, and when; with what is said by who of a job lives where.
//!
//! | module | what it holds |
//! |---|---|
//! | `prepared` | a job on its hosts |
//! | [`collective`] | which collective a job does, and who does it |
//! | [`placement`] | which hosts carry which workers |
//! | [`rows`] | jobs from a file, a row each |
//! | [`training`] | jobs that compute and reduce in turn |
//! | [`workload`] | jobs whose ranks do what a workload says |
//! | [`aggregators`] | what jobs have of the switches' memory |
//! | [`operators`] | operators that jobs bring along, tried before a plan is run |
//! | [`pods`] | one system inside of pods, and another between them |
//! | [`reproducible`] | floats that are summed as integers |
//! | [`indices`] | indices of sparse vectors from a file |
//! | [`beside`] | what there is beside the jobs: background flows, limits of hosts |
//! | [`faults`] | names in fault plans become nodes |
//! | [`size`] | what is refused since it would not fit a machine |

pub mod aggregators;
pub mod beside;
pub mod collective;
pub mod faults;
pub mod indices;
pub mod operators;
pub mod placement;
pub mod pods;
mod prepared;
pub mod reproducible;
pub mod rows;
pub mod size;
pub mod training;
pub mod workload;

pub use prepared::PreparedJob;
