//! A pool of aggregator slots in memory that the processes of a job on one host share.
//!
//! | module | what it holds |
//! |---|---|
//! | [`segment`] | [`Segment`]: how the memory is divided |
//! | `mapping` | how it is made and found; `plain` in its place when the code runs in Miri, `modelled` in loom |
//! | [`pool`] | [`Pool`]: one rank's side of it |
//!
//! This is `switchml` without packets: a vector is cut into blocks, block *r* of a job (counted over all of its operations) uses slot
//! *r* mod *S*, and a rank that has read the result of a block may contribute to the block *S* later. There is no switch process: **the
//! rank that arrives last at a slot takes the switch's step**, so a job needs no more threads than it has ranks.
//!
//! ## Why nothing is counted twice or lost
//! A rank arrives at a block once, since its rounds only count up, and memory neither loses nor repeats. The step begins when all ranks
//! have arrived (the last one sees the arrivals of all others, and with them what they wrote), and reads each rank's input once.
//!
//! ## Why no memory is overwritten that is still needed
//! A rank arrives at block *r* only after it has read the result of block *r - S* (`switchml 10`). Its input area of that slot was read
//! by the step of *r - S*, before that result was there. The result area is overwritten by the step of *r*, when all have arrived at *r*,
//! so all have read *r - S*.
//!
//! ## `unsafe`
//! Areas are handed out as slices. By the two arguments above nobody writes to an area while somebody else has a slice of it, as long as
//! all processes follow the protocol; a process that does not can spoil sums, as it could anyway by contributing nonsense, but the
//! areas never move, never shrink (the memory is sealed) and hold plain bytes. The tests of this module also run in Miri, which sees races
//! and accesses out of bounds (`make miri`). Loom runs ranks in every order of their accesses that the memory model allows (`make loom`).

mod layout;
#[cfg(all(test, loom))]
mod loomed;
#[cfg(not(any(miri, loom)))]
mod mapping;
#[cfg(loom)]
#[path = "modelled.rs"]
mod mapping;
#[cfg(all(miri, not(loom)))]
#[path = "plain.rs"]
mod mapping;
pub mod pool;
pub mod segment;

pub use layout::{Layout, SegmentError, WORLD_MAX};
pub use pool::{Inputs, Pool, Trouble, Waiting};
pub use segment::Segment;
