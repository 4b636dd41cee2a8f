//! What ATP and A2TP share (`a2tp 1` to `5`): aggregators of a switch that all jobs use, first come, first served; a server that merges
//! whatever reaches it; workers that send each fragment to one or the other. What windows and rounds are is the systems' ([`Windows`],
//! [`Rounds`]).
//!
//! ## An aggregator
//!
//! ```text
//!            first contribution              the last one: the sum goes on
//!   Empty ------------------------> Open -----------------------------------> Complete
//!     ^                              |                                            |
//!     |                              | a fragment sent again, one that lost at    |
//!     |                              | the first level, or a request to flush:    |
//!     |                              v what is there goes on                      |
//!     +--- acknowledgement ------ Flushed                                         |
//!     +--- acknowledgement -------------------------------------------------------+
//! ```
//!
//! Whose it is says its owner: job, tensor and number of the fragment (P5). A fragment that finds another owner has lost: it goes on to the
//! server with the mark `collided`, the owner gets the mark `Col`, and the second level does not take it (gap 8), since a sum there would
//! wait for what has gone by. An aggregator that nobody has spoken of for long is a zombie and goes to whoever finds it taken (P4);
//! one of a job that has ended is free at once.
//!
//! ## Exactly once
//! Nothing is believed to have come but what a mask of ranks says. A switch adds what is disjoint with what it has. The server takes a packet
//! iff its mask is disjoint with what is there; one that holds all replaces all (P6); what overlaps is dropped as a whole (P3), and whoever
//! is not counted sends again, for only the acknowledgement stops a timer. So it does not matter what switches do with a fragment as long as
//! each packet's mask is true, and a fragment may well lie in two aggregators at once (P14).
//!
//! ## More than 64 workers
//! Nodes keep a bit for each rank, but a packet has room for one word ([`RankSet`](fanin_wire::atp::RankSet)). A worker's own contribution,
//! a sum of ranks of one group of 64, and the complete sum of a switch have a name; with the ranks of a switch in one group, as
//! [`WorkerConfig::bit`] lays them, that is all that a rack of 64 ever has. A sum of some ranks of more than one group is never sent. Where
//! it would have to be, the switch takes it apart: it asks those below whose contributions are in it to send these again, workers their
//! own, other switches their sums, and lets them pass as they come. So every mask is exact; the price is that of packets in place of one.
//! A fragment that is sent again for the first time is added if it is new: of many workers one has often lost a packet, and that
//! completes the sum. Only a second repetition, or what shows that others went another way, takes a sum apart.
//!
//! ## Nothing waits for long
//! A contribution that goes one way while the others go the other leaves an aggregator that never fills. Workers agree (P2, and what A2TP
//! says of rounds), but collisions have the same effect: one loses, the aggregator becomes free, the rest take it. So the server looks:
//! when three later fragments are complete, every worker has sent this one, for packets of a worker come in order; the server asks
//! switches to flush it, at the cost of one packet and half a round trip. Only where something was lost does a worker's own gap
//! detection or timer come first. Without these nets ([`Nets::Paper`]) that is all there is.
//! The last three fragments of a tensor have none behind them to show that one is stuck or lost: there it takes a timeout.
//!
//! ## Several servers
//! A job's fragments are dealt out to its servers in turn. What goes to one server is a stream of its own, with its own numbers, windows, rounds
//! and timers, so that a server whose link is full holds back nothing but its own fragments: a worker is a node for each
//! ([`Streams`]), a switch knows the way to each, and the tensor in a packet says which one is meant.
//!
//! ## Several jobs, one node
//! [`AggregationSwitch`] is a [`SharedNode`](fanin_core::SharedNode): the registry makes one for each switch, its driver hands it the packets
//! of all jobs, and [`AggregationSwitch::admit`] and [`Node::on_job_end`](fanin_core::Node::on_job_end) let jobs come and go.

mod account;
mod config;
mod members;
mod places;
mod planted;
mod server;
mod spread;
mod streams;
mod switch;
mod worker;

pub use config::{
    AGGREGATORS_MAX, FixedScale, JobAtSwitch, Nets, SERVERS_MAX, ServerAtSwitch, ServerConfig, SwitchConfig, WINDOW_MAX, WORKERS_MAX,
    WorkerConfig,
};
pub use members::Members;
pub use places::{Assignment, Places};
#[cfg(feature = "planted-bugs")]
pub use planted::Planted;
pub use server::{AggregationServer, Rounds};
pub use streams::Streams;
pub use switch::AggregationSwitch;
pub use worker::{Acknowledged, AggregationWorker, Way, Windows};
