//! A workload on a fabric of real switch and host processes on this machine.
//!
//! The process that calls [`run::run`] starts the others, tells them what to do, does to them what the workload says, and collects what they
//! have counted. It carries no packets. The others are processes of the `fanin` program: `fanin switch` and `fanin fabric-worker`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`workload`] | `WORKLOAD.toml`: read and held against the fabric |
//! | [`place`] | where the nodes run: loopback or namespaces |
//! | `namespaces` | a network namespace for each node, a veth for each link |
//! | `process` | one node's process |
//! | `crew` | all processes |
//! | `schedule` | what is due when: events, streams |
//! | `job` | a job as it runs |
//! | `conduct` | a run from its first process to its results |
//! | [`run`] | the same with what it needs on this machine, and its files |
//! | `idle` | how much of the processors' time nobody used |
//! | [`memory`] | how much memory there is |
//! | [`series`] | jobs over time, as the switches count |
//! | [`results`] | what came out, and whether it is as the workload expects |
//! | [`report`] | the same for people |
//! | [`host`] | the process of one host |
//! | [`sums`] | vectors of whole numbers, and the sums that they must give |
//! | [`chaos`] | communicators between processes while everything fails |
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`"))]

pub mod chaos;
mod conduct;
mod crew;
pub mod host;
mod idle;
mod job;
pub mod memory;
mod namespaces;
pub mod place;
mod process;
pub mod report;
pub mod results;
pub mod run;
mod schedule;
pub mod series;
pub mod sums;
pub mod workload;
