//! Runs a protocol node for real: one thread, one UDP socket, one [`Node`](fanin_core::Node) with elements as its payload.
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | who this node is and who its peers are |
//! | [`worker`] | [`WorkerDriver`]: allreduce, call by call |
//! | [`switch`] | [`SwitchDriver`]: serves until it is told to stop |
//! | [`fabric`] | nodes of a fabric: ports with queues, rates and delays, hellos, routes, several jobs |
//! | [`tensors`] | the vectors that a worker lends for the time of an operation |
//! | [`counters`] | what happened, by reason |
//! | [`watch`] | the same, for another thread to look at |
//! | [`blocks`] | which blocks of an operation are complete |
//! | [`clock`] | the only clock |
//!
//! Packets are written where they leave from: hop header, system header and payload go straight into the batch of the destination,
//! and the elements come straight from the caller's tensor or the node's accumulator. What comes in is checked once, dropped with a
//! reason where it does not belong here, and handed to the node where it lies in the receive buffer. In the steady state no packet
//! costs an allocation or a system call of its own, and the clock is read once per batch.
//!
//! A packet's checksum is verified before any of its fields is believed, and its epoch and number only as far as
//! [`LinkSequence`](fanin_core::LinkSequence) goes.
//!
//! This crate knows no system: any node will do.
#![forbid(unsafe_code)]

pub mod blocks;
pub mod clock;
pub mod config;
pub mod counters;
mod driver;
pub mod fabric;
mod last;
mod linger;
mod loopback;
mod member;
mod outlet;
mod peers;
mod residents;
pub mod switch;
pub mod tensors;
pub mod watch;
pub mod worker;

pub use blocks::BlockSet;
pub use clock::Clock;
pub use config::{ConfigError, NodeConfig, PeerConfig};
pub use counters::{Counters, PeerCounters};
pub use driver::{DriverConfig, Statistics};
pub use fabric::{FabricConfig, FabricRemote, FabricStatus, FabricSwitch};
pub use last::{LATE, Last};
pub use switch::{Pace, SwitchDriver};
pub use tensors::{SparseEntry, Vectors};
pub use watch::{Snapshot, Watch};
pub use worker::{CollectiveCall, RunError, WorkerDriver};
