//! What more than one system uses. Nothing here knows a packet format.
//!
//! | module | what it holds |
//! |---|---|
//! | [`serial`] | comparison of numbers that wrap |
//! | [`reliability`] | what a job expects of its network, and how long it waits |
//! | [`rtt`] | the retransmission timeout |
//! | [`order`] | which of a window's packets was sent longest ago |
//! | [`repetition`] | when a worker sends again what is under way at a switch, and when it gives up |
//! | [`shares`] | how a vector is cut into pieces, where it has a share for each worker |
//! | [`window`] | the size of windows |
//! | [`sender`], [`receiver`] | the ends of a reliable channel |
//! | [`ledger`] | operations: accepted, running, ended |
//! | [`trees`] | the switch of static trees, for any packet format |
//! | `slots` | the slots of a switch, with a bit per child |
//! | `state` | `Clone`, `Eq` and `Hash` for nodes that are generic over the payload |

pub mod ledger;
pub mod order;
pub mod receiver;
pub mod reliability;
pub mod repetition;
pub mod rtt;
pub mod sender;
pub mod serial;
pub mod shares;
pub(crate) mod slots;
pub(crate) mod state;
pub mod trees;
pub mod window;
