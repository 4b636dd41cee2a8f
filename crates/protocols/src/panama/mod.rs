//! PANAMA: static reduction trees, several for a job, with a window that follows congestion marks.
//!
//! | clause | item |
//! |---|---|
//! | `baselines 5`, several trees per job chosen statically, round robin by block | [`tree_of_block`](crate::shared::trees::tree_of_block) |
//! | `baselines 5`, results act as implicit ACK | [`PanamaWorker`]: a sum lets further blocks go |
//! | `baselines 5`, ECN bits of the aggregated packets are ORed | [`PanamaSwitch`], [`Marks`](crate::shared::trees::Marks) |
//! | `baselines 5`, DCTCP-like window, `baselines 8` | [`CongestionWindow`] |
//! | `baselines 5`, lost packet: timeout and resend, dedupe as in SwitchML | [`trees`](crate::shared::trees), [`repetition`](crate::shared::repetition) |
//!
//! The description is short, and from memory of the paper; what it leaves open is decided here.
//!
//! ## Window
//! Two limits hold. Of the job's window W: block g is sent only when the sums of all blocks up to g-W are here, as the switch's slots ask
//! ([`trees`](crate::shared::trees)). Of the congestion window, at most W: so many blocks are under way. It begins small: it changes once
//! a round, and a round that begins with more than queues hold is as long as its losses take to be made good.
//!
//! ## All workers agree
//! The congestion window changes once a round, and a round is a run of blocks by their numbers: as many as the window held when the round
//! began (`baselines 8`: once per round trip). It ends when the sums of all its blocks are here. Whether a block is marked is in its sum,
//! which is the same at all workers, also when it is sent again; so every worker has the same window at the same block, whatever was lost
//! or came late, and no word between them is needed. A loss therefore does not change the window: it is one worker's, and the queue that
//! dropped a packet has marked others.
//!
//! ## Marks on the way down
//! A mark that a sum meets on its way down is seen by those below that link only. A worker that sees one sets the mark in its next
//! contribution, and thereby in a sum that all see, a round trip later; one mark for each.

mod config;
mod switch;
mod window;
mod worker;

pub use config::PanamaWorkerConfig;
pub use switch::PanamaSwitch;
pub use window::CongestionWindow;
pub use worker::PanamaWorker;
