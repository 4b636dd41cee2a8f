//! The vocabulary of Fanin, without I/O.
//!
//! A *system* (ring allreduce, static trees, Canary, ...) is a set of state machines that implement [`Node`]; a *driver* (the
//! simulator, the UDP runtime, the model checker) owns clocks, links and tensors, calls the nodes and lends them a [`Tx`].
//! Neither knows the other. What they share is here:
//!
//! | module | what it holds |
//! |---|---|
//! | [`time`] | [`Instant`] and [`Duration`], in picoseconds |
//! | [`names`] | [`Rank`], [`JobId`], [`OperationId`], [`NodeId`], [`PortId`], [`PortSet`] |
//! | [`address`] | where packets go and come from: [`Address`], [`Egress`], [`Ingress`] |
//! | [`node`] | the traits [`Node`], [`Worker`], [`Tx`] |
//! | [`payload`] | what packets carry: [`Length`], [`Census`] or elements (`[u8]`) |
//! | [`collective`] | [`Collective`], [`Outcome`], [`Failure`] |
//! | [`event`] | reasons for drops, retransmissions and fallbacks |
//! | [`gauge`] | what a node holds at a moment: windows and averages |
//! | [`units`] | how durations and sizes are written |
//! | [`wire`] | the [`Wire`] trait of headers |
//! | [`replay`] | the anti-replay window of the hop sequence |
//! | [`link_sequence`] | what is believed of a link's other end: its epoch, and where its numbers are |
//! | [`map`] | the graph of a network, as far as systems need it |
#![forbid(unsafe_code)]

pub mod address;
pub mod collective;
pub mod event;
pub mod gauge;
pub mod hash;
pub mod histogram;
pub mod link_sequence;
pub mod map;
pub mod names;
pub mod node;
pub mod payload;
pub mod replay;
pub mod time;
pub mod units;
pub mod wire;

pub use address::{Address, Egress, FlowLabel, Ingress, Role, Route, TrafficClass, Via};
pub use collective::{Collective, CollectiveKind, Failure, FailureReason, Outcome, Piece, Suspect};
pub use event::{DropReason, Event, RetransmitReason, Tally};
pub use gauge::Gauge;
pub use histogram::Histogram;
pub use link_sequence::{EpochRule, LinkSequence, Restarted};
pub use map::NetworkMap;
pub use names::{JobId, NodeId, OperationId, PortId, PortSet, Rank};
pub use node::{Body, JobNodes, Node, Placed, SharedNode, Tx, Worker};
pub use payload::{
    BlockExponent, CellKind, Cells, Census, CustomKernel, CustomLayout, CustomOp, DType, ElementOp, ElementSum, Extent, FixedPoint,
    IndexCoding, Length, NotOrderFree, OpError, Operator, OrderFree, OrderedReduction, Pair, PairCut, PairFormat, Payload, PayloadOp,
    ReproducibleBy, ScaledSum, Specials, TotalOrder, UnknownName,
};
pub use replay::ReplayWindow;
pub use time::{Duration, Instant};
pub use wire::{Malformed, PacketKind, Wire};
