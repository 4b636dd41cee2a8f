//! The communicator: collective operations between the processes of a job, summed by a switch or, on one host, in shared memory.
//!
//! ```no_run
//! use fanin_comm::{Communicator, Operator};
//!
//! let comm = Communicator::from_env()?;
//! let mut gradients = vec![1.0f32; 1_000];
//! comm.allreduce(&mut gradients, Operator::Avg)?;
//! # Ok::<(), fanin_comm::CommError>(())
//! ```
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | [`Config`]: who takes part, where ranks meet; the environment |
//! | `meeting` | joining: control connection, embedded switch, which path vectors take |
//! | `reach` | how control connections go: as they are, or by TLS |
//! | `link` | the control connection of a running job: liveness, reasons of failures |
//! | `communicator` | [`Communicator`]: the collectives |
//! | `core` | what a call needs, shared by callers and threads |
//! | `call` | one collective: blocks, shares, fingerprints |
//! | `reproducible` | reductions of floats as reductions of integers, whose bits do not depend on the order |
//! | `queue` | [`Handle`]: calls in the background |
//! | `turns`, `timeouts` | the order of all calls, and how long they wait |
//! | `variables` | variables of the environment that nothing reads |
//! | `within` | [`Communicator::set_timeout`], [`Within`] |
//! | `host` | [`Host`]: a switch in this process |
//! | `sparse` | [`Sparse`]: vectors as lists of indices and values |
//! | `path` | vectors by shared memory, by UDP, or not at all |
#![forbid(unsafe_code)]

mod call;
mod communicator;
pub mod config;
mod core;
mod element;
mod error;
mod host;
mod link;
mod lock;
mod meeting;
mod own_time;
mod path;
mod queue;
mod reach;
mod reproducible;
mod runner;
mod sparse;
mod standby;
mod timeouts;
mod turns;
mod variables;
mod within;

pub use call::{CallOp, Progress, RegisteredOperator};
pub use communicator::Communicator;
pub use config::{Config, ConfigError, Fallback, Interrupt, Meeting, Notices, SparsePath, Transport, VARIABLES};
pub use element::Element;
pub use error::CommError;
pub use fanin_channel::{ClientTls, Identity, Trusted};
pub use fanin_control::FailureKind;
pub use fanin_core::{CollectiveKind, DType, ElementOp, Operator, Rank, ReproducibleBy, UnknownName};
pub use fanin_net::FaultPlan;
pub use fanin_net::shm::Waiting;
pub use fanin_operator::{CustomOperator, OperatorError};
pub use fanin_runtime::Statistics;
pub use half::{bf16, f16};
pub use host::Host;
pub use path::PathReport;
pub use queue::{Handle, Lent};
pub use sparse::{NoSwitch, Sparse, SparseReport, SparseWay};
pub use variables::environment;
pub use within::Within;

/// The examples of the documentation compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/operators.md")]
struct OperatorDocumentation;

/// The examples of the documentation compile.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/communicator.md")]
struct Documentation;
