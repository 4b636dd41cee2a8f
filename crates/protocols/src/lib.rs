//! The systems of in-network aggregation as state machines without I/O: one folder per system, whose `mod.rs` maps the clauses of its
//! specification to items, and `shared` for what two of them use. They run unchanged in the simulator, over real sockets and in the
//! model checker; see [`fanin_core::node`] for the traits that join them to a driver.
//!
//! | module | system |
//! |---|---|
//! | [`tree`] | static reduction trees, one or several per job |
//! | [`ring`] | bandwidth-optimal ring allreduce |
//! | [`exchange`] | every collective by messages between hosts: rings, chains, pairwise exchange, dissemination |
//! | [`ps`] | parameter servers without switches that sum: one, several, or one at every worker |
//! | [`rina`] | Rina: a ring of racks that their switches sum, and of workers without such a switch |
//! | [`canary`] | Canary: trees that form anew for each block, around congestion |
//! | [`flare`] | Flare's sparse sums: storage of pairs of index and value at a switch, and when a block is complete |
//! | [`doubling`] | recursive doubling of lists of pairs: sparse sums by the hosts alone |
//! | [`sharp`] | SHARP: one static tree a job, of switches with a limited number of operations under way |
//! | [`panama`] | PANAMA: static reduction trees with a window that follows congestion marks |
//! | [`machines`] | rings, Tencent's allreduce and parallel NetReduce over machines with several workers, on reliable connections |
//! | [`netreduce`] | NetReduce: accelerators in the connections of a ring of network cards |
//! | [`switchml`] | SwitchML: a pool of slots with two versions each, at one switch or a tree of them |
//! | [`atp`] | ATP: aggregators that all jobs of a switch share, first come, first served, with servers behind them |
//! | [`a2tp`] | A2TP: ATP with a window for aggregators beside that for links, and fewer aggregators for jobs with stragglers |
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
