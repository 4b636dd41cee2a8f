//! NetReduce for transports that know nothing of it: a layer-2 switch that joins hosts and sums inside their own TCP and RDMA connections.
//!
//! Workers on a ring open a plain TCP connection each to their successor and stream messages ([`fanin_wire::stream`]). The switch finds
//! such streams by their first bytes, holds each segment until the sums of all its bytes are there, and lets it go with the sums in place
//! of what it carried: the same length, the same sequence numbers, so both kernels notice nothing. Acknowledgements pass by, and tell
//! what need not be kept. Everything else is forwarded as by any switch.
//!
//! | module | what it holds |
//! |---|---|
//! | [`engine`] | [`Switch`]: what happens to a frame; no input, no output, no clock |
//! | [`service`] | [`serve`]: the same between network interfaces |
//! | [`mod@watch`] | what a running switch does, for another thread |
//! | `links` | interfaces that come and go |
//! | [`mod@tap`] | copies of frames for another thread |
//! | [`worker`] | [`RingStream`]: a worker's end, and the ring allreduce over the same connections that it is measured against |
//! | [`rdma`] | the same inside RDMA connections: NetReduce as in its paper |
//! | `segment` | TCP segments inside frames, read and rewritten |
//!
//! What the literal reading of the paper leaves to go wrong over kernel TCP, and what is done about it, is told in [`engine`].
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`"))]

pub mod engine;
mod links;
pub mod rdma;
mod segment;
pub mod service;
pub mod tap;
mod trunk;
pub mod watch;
pub mod worker;

pub use engine::{RingView, Statistics, Switch, SwitchConfig};
pub use links::LinkCounts;
pub use rdma::{Odd, OddFrames, RdmaRing, RdmaStatistics, RingError};
pub use segment::{Damage, Flow, Unsummed};
pub use service::{Ended, ServiceConfig, ServiceError, serve};
pub use tap::{Seen, Tap, TapBatch, TapReader, tap};
pub use watch::{PortView, Report, Watch};
pub use worker::{RingStream, StreamError};
