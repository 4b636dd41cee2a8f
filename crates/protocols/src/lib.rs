//! The systems of in-network aggregation as state machines without I/O: one folder per system, whose `mod.rs` maps the clauses of its
//! specification to items, and `shared` for what two of them use. They run unchanged in the simulator, over real sockets and in the
//! model checker; see [`fanin_core::node`] for the traits that join them to a driver.
//!
//! All nodes implement `Clone`, `Eq` and `Hash`, and have a `rebase` that makes their stored times relative to the present, so that a
//! model checker can tell two states apart or not.
#![forbid(unsafe_code)]

pub mod a2tp;
pub mod atp;
pub mod canary;
pub mod doubling;
pub mod exchange;
pub mod flare;
pub mod machines;
pub mod netreduce;
pub mod panama;
pub mod ps;
pub mod rina;
pub mod ring;
pub mod shared;
pub mod sharp;
pub mod switchml;
pub mod tree;
