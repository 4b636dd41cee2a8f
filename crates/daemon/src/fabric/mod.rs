//! A switch of a fabric as a service: its loop on one thread, control connections and metrics on another.
//!
//! | module | what it holds |
//! |---|---|
//! | `nodes` | from a fabric to what the runtime needs of one node: [`node_config`] |
//! | `service` | [`FabricDaemon`]: start, stop |
//! | `control` | control connections: jobs begin and end, and how are things |
//! | `client` | the other side of one, for testbeds and managers: [`FabricClient`] |
//! | `switches` | a manager's connections to all switches |
//! | `operators` | operators of the fabric's file: [`Operators`] |
//! | `memory` | what jobs take of a switch's memory |
//! | `metrics` | what is measured, and under which names |

mod client;
mod control;
mod memory;
mod metrics;
mod nodes;
mod operators;
mod service;
mod switches;

pub use client::{FabricClient, FabricClientError};
pub(crate) use nodes::keys_of_hosts;
pub use nodes::{driver_config, node_config, port_status, reasons};
pub use operators::Operators;
pub(crate) use switches::{Observer, Seen, Switches};

pub use service::{FabricDaemon, FabricDaemonConfig, FabricDaemonHandle};
