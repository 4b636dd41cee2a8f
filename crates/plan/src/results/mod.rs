//! Results: one record a run, as JSON and CSV; numbers by name; quantities over time.
//!
//! | module | what it holds |
//! |---|---|
//! | `record` | the records of a run, its jobs and its links |
//! | `of_run` | from what a run has given to its record |
//! | `percentiles` | times, by how many are not longer |
//! | `json`, [`columns`] | records as JSON, and as CSV |
//! | `names` | names in records that come back from elsewhere |
//! | [`metrics`] | numbers of a run by name |
//! | [`series`] | quantities of jobs over time |
//! | [`together`] | what jobs take from each other |
//! | `iterations` | times of a job's iterations |
//! | `by_model` | what closed forms say of the same run |
//! | [`workload`] | what comes out of jobs with a workload |

mod by_model;
pub mod columns;
mod iterations;
mod json;
pub mod metrics;
mod names;
mod of_run;
mod percentiles;
mod record;
pub mod series;
pub mod together;
pub mod workload;

pub use json::write_json;
pub use of_run::{link_records, record};
pub use percentiles::{Percentiles, median};
pub use record::{DeathRecord, JobRecord, LinkRecord, ManyJobs, RunRecord};
