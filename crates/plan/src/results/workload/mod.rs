//! What comes out of jobs that do what a workload says.
//!
//! | module | what it holds |
//! |---|---|
//! | [`record`] | what comes out: by group, hidden and not |
//! | `exposed` | what of a rank's communication its computations do not hide |
//! | `critical` | what the end of the last rank waited for |
//! | [`timeline`] | what some ranks did when, for a picture |
//! | [`trace`] | what each rank did when, for Perfetto |

mod critical;
mod exposed;
pub mod record;
pub mod timeline;
pub mod trace;

pub use record::{CommunicationRecord, CriticalRecord, GroupRecord, WorkloadRecord};
pub use timeline::Timeline;
