//! Nodes of a fabric of several switches: numbered ports with a queue, a rate, a mark and a delay each; neighbours that say hello; routes
//! that avoid dead links and long queues; the nodes of several jobs behind one socket.
//!
//! | module | what it holds |
//! |---|---|
//! | `config` | [`FabricConfig`]: a node's ports and routes |
//! | `egress` | a port's queue and delay line |
//! | `hello` | whether a neighbour is alive: [`LinkState`] |
//! | `ways` | which port a packet leaves by |
//! | `source` | background traffic |
//! | `links` | all ports together |
//! | `attend` | what the driver does for other threads |
//! | `inbox` | what other threads may ask: [`FabricRemote`], [`FabricStatus`] |
//! | `switch` | [`FabricSwitch`]: serves until it is told to stop |
//!
//! A worker of a fabric is a [`WorkerDriver`](crate::WorkerDriver) with one port. Everything else is that of a driver without a fabric: the
//! way out is longer.

mod attend;
mod config;
mod egress;
mod hello;
mod inbox;
pub(crate) mod links;
mod source;
mod switch;
mod ways;

pub use config::{FabricConfig, FabricPortConfig, HelloConfig, LinkShape};
pub use hello::LinkState;
pub(crate) use inbox::Inbox;
pub use inbox::{FabricRemote, FabricStatus, Join, PortStatus, Reply};
pub use links::{LinkObserver, PortCounters};
pub use source::{TrafficConfig, TrafficCount};
pub use switch::FabricSwitch;
