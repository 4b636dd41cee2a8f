//! Allreduce over machines with several workers each, over reliable connections of network cards: rings, Tencent's allreduce, and parallel
//! NetReduce. What all of them are compared on is the same transport.
//!
//! | clause | item |
//! |---|---|
//! | `baselines 1`, a flat ring | [`Algorithm::FlatRing`] |
//! | `baselines 2`, parallel rings over machines (hierarchical allreduce) | [`Algorithm::ParallelRing`] |
//! | `baselines 3`, Tencent's allreduce: Rabenseifner's reduction, a ring of masters, van de Geijn's broadcast | [`Algorithm::Tencent`] |
//! | `netreduce 5.9`, parallel NetReduce: a ring of NetReduce for each worker of a machine | [`Algorithm::ParallelNetReduce`] |
//! | `baselines 8`, reliable connections, DCQCN | [`connection`](crate::shared::connection) |
//!
//! An algorithm is a list of steps for each worker: what it sends to whom, what it receives from whom, and whether it adds that to what it
//! holds. A step begins when all of the steps before are received; that is the model in which the formulas of `netreduce 6` count hops and
//! bandwidth, so that simulation and formula are about the same thing. (The `ring` of this workspace passes each packet on at once.)
//!
//! Between two workers there is one connection in each direction. Both ends know what goes over it in an operation, as packets go in order:
//! the number of a packet leads to its piece, and nothing but a packet's number is needed in its header.
//!
//! ## Exactly once
//! A connection hands each packet over once. What a worker holds of a piece is its contribution and what was added; a sum of all is put into
//! the caller's output and sent on from there. A packet may have to be sent again when what was held of its piece has changed since: but then
//! the new value contains the old packet, so its receiver has it and drops the copy unread.
//!
//! Where several peers send, one may be ahead: what comes for a step that has not begun is kept, for a sum to which an earlier step has yet to add
//! is not one of all, and a value that an earlier step brings would take its place. One packet of a piece is kept; another is turned away, and
//! asked for when the step begins.
//!
//! ## Parallel NetReduce
//! The packets of the step between machines go to the switch with the accelerators, and come back from it as sums in the connection of the
//! predecessor. They obey NetReduce's window of messages, and their messages begin with its header; so all workers cut the vector as that
//! asks. The sums are not written over contributions (`netreduce` P8): these may have to be sent again. One level of accelerators, at a switch
//! that all machines hang on.
//!
//! ## A peer that has not begun
//! has nothing to add to. It drops packets, and reports its first missing one when it begins, so that its peer goes back at once.
//!
//! ## Who is missing
//! A worker knows whom it waits for: who should acknowledge what it has sent, who should send what a step lacks, and the accelerator that
//! should make sums. Each of them is asked when it has been silent for a quarter of the job's patience. Who is not heard for all of it is missing:
//! the first that notices names it, and tells all. Who answers is there, and says whom it waits for itself; with a retry limit so does who turns
//! packets away, for one that is not taken is no sign of death. Where all answer and nothing moves for four patiences, somebody's caller is late, or memory
//! is lost: then the last word heard is the name. Nobody names itself: a worker that all others name says whom it waits for.
//!
//! Who is told passes it on once, to those that it has connections with, and answers whatever comes later with it. An accelerator that has lost
//! its memory ends the job by its own name (`netreduce`).

mod config;
mod cut;
mod links;
mod planted;
mod schedule;
mod worker;

pub use config::{MachinesWorkerConfig, WORKERS_MAX};
#[cfg(feature = "planted-bugs")]
pub use planted::Planted;
pub use schedule::Algorithm;
pub use worker::MachinesWorker;
