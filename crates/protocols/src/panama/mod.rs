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

mod format;
mod pace;
mod window;

use fanin_core::Payload;
use fanin_wire::panama::PanamaHeader;

use crate::shared::trees::{TreeAggregator, TreeClient, TreeWorkerConfig};
pub use pace::MarkClocked;
pub use window::CongestionWindow;

/// A worker of a job that reduces over static trees and heeds congestion marks.
pub type PanamaWorker<P> = TreeClient<P, MarkClocked>;

/// The aggregator of a PANAMA job at one switch.
pub type PanamaSwitch<P> = TreeAggregator<P, PanamaHeader>;

impl<P: Payload + ?Sized> PanamaWorker<P> {
    /// A worker with all its memory. Its `window` is the largest; [`MarkClocked::new`] says what `window_initial` is.
    ///
    /// # Panics
    /// As [`TreeClient::with_pace`].
    pub fn new(config: TreeWorkerConfig<P::Op>, window_initial: u32) -> Self {
        let pace = MarkClocked::new(&config, window_initial);
        TreeClient::with_pace(config, pace)
    }

    /// The congestion window.
    pub fn window(&self) -> &CongestionWindow {
        self.pace().window()
    }
}
