//! ATP: workers send every fragment to an aggregator, which any job of the switch may have; what finds its aggregator taken is added at the
//! job's server, and so is what switches send on.
//!
//! | clause | item |
//! |---|---|
//! | `a2tp 1`, workers, a server for each job, switches next to hosts | [`AtpWorker`], [`AtpServer`], [`AtpSwitch`] |
//! | `a2tp 2`, the packet | [`AtpHeader`](fanin_wire::atp::AtpHeader) |
//! | `a2tp 3`, state of an aggregator, of a worker, of a server | [`shared::aggregation`](crate::shared::aggregation) |
//! | `a2tp 4`, which aggregator; dynamic hashing | [`Places`](crate::shared::aggregation::Places), [`Assignment`](crate::shared::aggregation::Assignment) |
//! | `a2tp 5.1`, a gradient at a switch; `5.2`, an acknowledgement | [`AtpSwitch`] |
//! | `a2tp 5.3`, the server | [`AtpServer`] |
//! | `a2tp 5.4` to `5.6`, the worker | [`AtpWorker`] |
//! | `a2tp 5.7`, windows as ATP has them: one for both, + 1500 B a round, halved by ECN | [`AtpWindow`] |
//! | `a2tp 5.8`, what does not fit fixed point | [`FixedScale`](crate::shared::aggregation::FixedScale) |
//! | `a2tp 7`, two levels: workers' switches and the server's (gap 8) | [`AtpSwitch`] |
//! | `a2tp 9`, pitfalls | [`shared::aggregation`](crate::shared::aggregation) |
//!
//! What ATP and A2TP have in common is in [`shared::aggregation`](crate::shared::aggregation), with the reasons why nothing is counted
//! twice; here is what makes it ATP: one window, the same for aggregators and for links.

mod window;

use crate::shared::aggregation::{AggregationServer, AggregationSwitch, Streams};

pub use window::{AtpRounds, AtpWindow, AtpWindowConfig};

/// A worker of an ATP job.
pub type AtpWorker<P> = Streams<P, AtpWindow>;
/// The server of an ATP job.
pub type AtpServer<P> = AggregationServer<P, AtpRounds>;
/// The aggregators of a switch. They can be those of jobs of A2TP, too: ATP's workers look at one mark less.
pub type AtpSwitch<P> = AggregationSwitch<P>;
