//! What more than one system uses. Nothing here knows a packet format, except for [`aggregation`], whose systems
//! have one in common, [`trees`], of which that without marks is used by itself and inside of another, and [`splice`], which must find the
//! messages of a stream.
//!
//! | module | what it holds |
//! |---|---|
//! | [`aggregation`] | aggregators that jobs share, servers and their workers: of ATP and A2TP |
//! | [`arrivals`] | which of a sender's numbered packets have come |
//! | [`blocks`] | a worker that pushes blocks, again if need be, and gets their sums |
//! | [`sums`] | sums to which each contributes once, and slots for them |
//! | [`serial`] | comparison of numbers that wrap |
//! | [`real`] | a floating-point number in a node's state |
//! | [`reliability`] | what a job expects of its network, and how long it waits |
//! | [`rtt`] | the retransmission timeout |
//! | [`order`] | which of a window's packets was sent longest ago |
//! | [`overtaking`] | losses that the answers to later packets show |
//! | [`repetition`] | when a worker sends again what is under way at a switch, and when it gives up |
//! | [`chunks`] | a vector cut into chunks of about equal length, and these into pieces |
//! | [`shares`] | how a vector is cut into pieces, where it has a share for each worker |
//! | [`window`] | the size of windows |
//! | [`sender`], [`receiver`] | the ends of a reliable channel |
//! | [`connection`] | the ends of a reliable connection of network cards: in order, go-back-N |
//! | [`ledger`] | operations: accepted, running, ended |
//! | [`splice`] | sums inside byte streams that are cut anyhow |
//! | [`step`] | what a step costs its host before its first packet |
//! | [`watch`] | whether somebody who is waited for is there |
//! | [`trees`] | workers and switches of static trees, for any packet format |
//! | [`jobs`] | what a node that several jobs share knows of each |
//! | [`inner`] | a worker inside of another one, and its packets inside of those |
//! | [`two_windows`] | a window for the memory of switches beside that for links: of A2TP and of Canary |
//! | [`kept`] | what a slot holds, for who goes on with a job |
//! | `congestion` | a window that follows the network |
//! | `excuses` | who has not contributed, but lives and waits itself |
//! | `slots` | the slots of a switch, with a bit per child |
//! | `state` | `Clone`, `Eq` and `Hash` for nodes that are generic over the payload |

pub mod aggregation;
pub mod arrivals;
pub mod blocks;
pub mod chunks;
pub(crate) mod congestion;
pub mod connection;
pub(crate) mod excuses;
pub mod fixed_order;
pub mod inner;
pub mod jobs;
pub mod kept;
pub mod ledger;
pub mod order;
pub mod overtaking;
pub mod real;
pub mod receiver;
pub mod reliability;
pub mod repetition;
pub mod rtt;
pub mod sender;
pub mod serial;
pub mod shares;
pub(crate) mod slots;
pub mod splice;
pub(crate) mod state;
pub mod step;
pub mod sums;
pub mod trees;
pub mod two_windows;
pub mod watch;
pub mod window;
