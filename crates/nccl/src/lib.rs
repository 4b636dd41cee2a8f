//! `libnccl-net-fanin.so`, which NCCL loads: collectives of its jobs are summed by switches of Fanin, messages go by TCP.
//!
//! | module | what it holds |
//! |---|---|
//! | [`abi`] | NCCL's plugin interface as it is in memory, versions 8 to 12 |
//! | `tables` | the tables that NCCL looks for by name |
//! | `messages`, `collectives`, `border` | the functions in them: of either, and of both |
//! | `group` | collectives of a group of ranks |
//! | [`windows`] | windows of a vector that consists of shares |
//! | `net`, [`stream`] | messages between two ranks |
//! | `devices` | network devices of this host |
//! | [`handle`] | where to connect to, as NCCL carries it |
//! | `log` | NCCL's log, and the border to C |
#![cfg_attr(test, allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`"))]

pub mod abi;
mod border;
mod collectives;
mod devices;
mod group;
pub mod handle;
mod log;
mod messages;
mod net;
pub mod stream;
mod tables;
pub mod windows;

pub use tables::{
    ncclCollNetPlugin_v8, ncclCollNetPlugin_v9, ncclCollNetPlugin_v10, ncclCollNetPlugin_v11, ncclCollNetPlugin_v12, ncclNetPlugin_v8,
    ncclNetPlugin_v9, ncclNetPlugin_v10, ncclNetPlugin_v11, ncclNetPlugin_v12,
};
