//! The software switch as a service: admits jobs over control connections, gives each a socket, a thread and a switch node of its own,
//! watches over its ranks, and says what it does.
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | [`DaemonConfig`]: addresses, ports and limits |
//! | `daemon` | [`Daemon`], [`DaemonHandle`]: start, drain, stop |
//! | `service` | the loop that joins connections, jobs and time |
//! | `clock` | the switch's own time |
//! | `compile` | operators that jobs bring along |
//! | `connection` | one control connection |
//! | `worker` | one job: its socket, its thread, its node |
//! | `entrance` | how connections come in: as they are, or by TLS |
//! | `gate` | who may join |
//! | `http` | `/metrics` and `/healthz` |
//! | `metrics` | what is measured, and under which names |
//! | [`page`] | the same two pages for a switch of another kind: [`PageServer`] |
//! | [`fabric`] | a switch of a fabric of several, as a service of its own: [`FabricDaemon`] |
//! | `xdp` | jobs that a program in the kernel sums for |
//! | `process` | what the operating system says about this process |
//!
//! What a switch decides is decided in [`fanin_control::Jobs`], which does no I/O; this crate carries it out. Packets never pass through
//! the control thread. Jobs are kept apart by the kernel: each has its own UDP socket, from which only members are heard.
#![forbid(unsafe_code)]

/// Helpers of the tests use this crate by its name.
#[cfg(test)]
extern crate self as fanin_daemon;

mod accept;
mod awaited;
mod clock;
mod compile;
pub mod config;
mod connection;
mod daemon;
mod entrance;
pub mod fabric;
mod gate;
mod http;
mod metrics;
mod pace;
pub mod page;
mod process;
mod service;
mod worker;
mod xdp;

pub use config::DaemonConfig;
pub use daemon::{Daemon, DaemonHandle, DaemonRemote, StartError};
pub use fabric::{FabricClient, FabricClientError, FabricDaemon, FabricDaemonConfig, FabricDaemonHandle};
pub use page::{Page, PageServer};
pub use worker::{RTO_INITIAL, RTO_MIN};
