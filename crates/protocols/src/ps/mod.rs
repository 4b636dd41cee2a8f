//! Parameter servers without in-network aggregation: what sums in switches are compared with.
//!
//! | clause | item |
//! |---|---|
//! | `baselines 4`, workers push, servers sum and push back | [`PsWorker`], [`PsServer`] |
//! | `baselines 4`, one server, several, or one beside every worker | [`PsWorkerConfig::servers`]: a shard of the vector for each |
//! | `baselines 4`, once per worker, key and version | the bits of a block at [`PsServer`] |
//! | `baselines 4`, bulk synchronous | a block's sum goes out when all have contributed |
//! | `a2tp 5.7`, a window that grows by a step a round and is halved by marks | [`PsWindow`] |
//! | the packet | [`PsHeader`](fanin_wire::ps::PsHeader) |
//!
//! A vector is cut into blocks, and these into shards of nearly as many blocks, one for each server. A worker has a window for each server
//! and begins with the server behind its own place, so that not all send to the same one. A block's sum is its acknowledgement.
//!
//! ## Exactly once
//! Blocks of a shard are numbered through all operations of the job. The server has twice as many slots as the longest window: who sends
//! block n + 2 W has the sum of n + W, in which there is a contribution of everybody, who sent it with the sum of n; so a slot that is used
//! again is one that nobody can still ask for. In a slot a bit for each rank says who has contributed: a contribution that comes again is
//! dropped, or answered with the sum. Whatever is older or newer than a window is told by its number.
//!
//! ## Nothing waits for ever
//! A worker sends again what is not answered; who asks a second time is told who is missing. Who is missing is asked as well: it may be
//! operations behind, for a sum that the server of another shard did not send to it before it died, and says so; then that server is who is
//! missing. Without an answer for the job's patience the operation fails, and names who is missing, or a server that has said nothing at all.

mod config;
mod planted;
mod server;
mod window;
mod worker;

pub use config::{PsPeer, PsServerConfig, PsWorkerConfig, WINDOW_MAX, WORKERS_MAX};
#[cfg(feature = "planted-bugs")]
pub use planted::Planted;
pub use server::PsServer;
pub use window::{PsWindow, PsWindowConfig};
pub use worker::PsWorker;
