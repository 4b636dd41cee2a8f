//! Switches as programs in the kernel: XDP. The programs are in `dataplanes/xdp`; this crate makes the header that they share with it, and
//! with the feature `kernel` compiles and loads them. How they are held against the state machines is in `docs/xdp.md`.
//!
//! | module | what it holds |
//! |---|---|
//! | [`layout`] | limits, values of maps, why frames go up the stack |
//! | [`record`] | how such values are described, read and written |
//! | [`header`](mod@header) | the C header |
//! | [`neighbours`] | who is next door, and at which device |
//! | [`ops`] | what programs do with element types and operators |
//! | [`job`] | a job for the kernel, and why it may refuse it |
//! | [`taken`] | a job's counts, and its state when it leaves the kernel |
//! | [`resume`](fn@resume) | how user space goes on with it |
//! | `kernel` | the programs, loaded: with the feature `kernel` |
#![forbid(unsafe_code)]

pub mod header;
pub mod job;
#[cfg(feature = "kernel")]
pub mod kernel;
pub mod layout;
pub mod neighbours;
pub mod ops;
pub mod record;
pub mod resume;
pub mod taken;

pub use job::{Refused, XdpJob, XdpRank, XdpSystem};
#[cfg(feature = "kernel")]
pub use kernel::{Kernel, KernelError};
pub use layout::Up;
pub use resume::resume;
pub use taken::{Taken, TakenVersion, XdpCounts, kept};
