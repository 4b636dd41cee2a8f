//! Chaos for real: jobs of communicators between processes, at one switch or over a fabric, while processes are killed, paused and started again,
//! links are cut and packets damaged. Every result must be exact, or an error at every rank in time; and nothing may be left behind.
//!
//! | module | what it holds |
//! |---|---|
//! | [`scenario`] | a run as data |
//! | [`draw`] | a scenario from a seed |
//! | [`conduct`] | a run, from its first process to its outcome |
//! | `site` | addresses, files and commands of a run's processes |
//! | `relay` | links that can be cut |
//! | `leaks` | what processes keep |
//! | [`outcome`] | what came out, and whether it may |
//! | [`shrink`] | a finding made smaller |
//! | [`campaign`] | runs one after the other, and their sum |
//! | [`rank`] | the process of one rank |
//! | [`messages`] | what it is told and says |
//! | [`vectors`] | what ranks contribute, and must get |

pub mod campaign;
pub mod conduct;
pub mod draw;
mod leaks;
pub mod messages;
pub mod outcome;
pub mod rank;
mod relay;
pub mod scenario;
pub mod shrink;
mod site;
pub mod vectors;
