//! A switch as a packet processor of many cores (Flare; PsPIN): packets of blocks come from children, a scheduler gives each to a core,
//! and a handler adds it to what its block has. What is simulated is where time and memory go: queues before cores, locks of buffers,
//! buffers in use. It is a discrete-event simulation without I/O; time is in cycles.
//!
//! | module | what it holds |
//! |---|---|
//! | [`config`] | cores, clusters, subsets, designs of working memory, and how hosts send |
//! | `sending` | hosts: the order of their blocks, gaps between packets, the window |
//! | `cores` | which core gets which packet: hierarchical and plain first come, first served |
//! | `handlers` | what a core does with a packet: one buffer, several buffers, a tree |
//! | `blocks` | what a block has at a time: counts, locks, buffers, the tree's nodes |
//! | `memory` | what clusters keep buffers in: room for blocks, and packets that wait for it |
//! | `gauge` | numbers over time: largest and mean |
//! | [`mod@run`] | the event loop and what comes out |
//!
//! Only slides of Flare and a damaged copy of two of its pages were at hand; what is reconstructed is said where it stands.
#![forbid(unsafe_code)]

mod blocks;
pub mod config;
mod cores;
mod gauge;
mod memory;
pub mod run;
mod sending;

pub use config::{Arrivals, Config, ConfigError, Design, Map, Scheduling, Sending};
pub use run::{Outcome, run};
