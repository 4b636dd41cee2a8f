//! SHARP: one static tree a job, of switches that have a limited number of operations under way, on links that lose nothing.
//!
//! | clause | item |
//! |---|---|
//! | `baselines 6`, a manager builds trees | one tree a job, laid out when its nodes are made; [`SharpJob`] is a switch's place in it |
//! | `baselines 6`, a job gets a quota of operations under way (OST) | [`Mode::LowLatency`]: the window of its tree ([`trees`](crate::shared::trees)) |
//! | `baselines 6`, larger requests are pipelined | [`SharpWorker`]: a sum lets one more operation of the vector go |
//! | `baselines 6`, streaming: one operation under way per switch, exclusive lock | [`Mode::Streaming`], taken and given back with each operation; [`Streams`]: of the switch, or of the ports of the tree |
//! | `baselines 6`, reliable links | nothing is sent again without loss recovery; with it, as static trees do |
//! | `baselines 6`, no dynamic reconfiguration | trees, quotas and the switches' operations do not change while a job lives |
//!
//! The description is short, and what it leaves open is decided here: who says that a job has its quota or the lock, and what a job does
//! that gets none.
//!
//! ## Questions
//! Before its first operation (low latency), or before each (streaming), every worker asks its leaf switch. A question climbs the tree as a
//! contribution does: a switch that has heard all its children asks its parent. On its way up it takes the job's part at each switch that
//! has one to give; where one has none, the question goes on as refused. The root answers, the answer comes down to all, and where it is
//! a refusal every switch that it passes gives back what it took. So a job has its part at all switches of its tree or at none, two jobs
//! never wait for each other's halves, and all workers of a job hear the same. What was taken is given back by another question: after
//! each operation (streaming), or when the job ends (low latency).
//!
//! Questions of a job are numbered. A worker asks number n+1 when it has the answer to n, which all had asked; so a switch keeps two, n in
//! place n mod 2, for the reason that a tree's slot is free after two windows. One that was sent again is answered from there, goes up
//! again, or is told who is missing.
//!
//! ## A job that is refused
//! It waits and asks again, after a time that doubles up to 64 times and that differs from job to job (it is drawn from the job's number and
//! the question's, the same at all workers); or its hosts reduce that operation without switches ([`InnerWorker`](crate::shared::inner::InnerWorker)), and it asks again
//! with the next one. A job that waits in vain does not fail: switches answer.
//!
//! ## Exactly once
//! Where a job has its part it is a static tree, and what holds of those holds here. Which way an operation goes is in the answer, the
//! same at all workers, so no sum has contributions from both. A switch takes data only of jobs that have their part there.

mod config;
mod planted;
mod questions;
mod switch;
mod worker;

pub use config::{Mode, SharpJob, SharpWorkerConfig, Streams};
#[cfg(feature = "planted-bugs")]
pub use planted::Planted;
pub use switch::SharpSwitch;
pub use worker::SharpWorker;
