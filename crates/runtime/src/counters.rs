//! What happened, by reason. Counted, never guessed: "why is nothing moving" is answered from here.

use fanin_core::{DropReason, Event, Histogram, RetransmitReason, Suspect, Tally};

use crate::last::Last;

/// Generations of a block that are counted apart; all later ones are counted with the last.
pub const GENERATIONS: usize = 16;

/// Counts of one node since it started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Counters {
    /// Packets handed to the node.
    pub packets_received: u64,
    /// Bytes of their payload.
    pub payload_bytes_received: u64,
    /// Packets that the node sent, copies of a multicast counted one by one.
    pub packets_sent: u64,
    /// Bytes of their payload.
    pub payload_bytes_sent: u64,
    /// Those among them that went to workers: at a switch, sums.
    pub payload_bytes_to_workers: u64,
    /// Packets for other nodes that were passed on.
    pub packets_forwarded: u64,
    /// Packets that went no further, by [`DropReason`].
    pub dropped: [u64; DropReason::ALL.len()],
    /// Packets sent again, by [`RetransmitReason`].
    pub retransmitted: [u64; RetransmitReason::ALL.len()],
    /// Blocks that this node, as their leader, had begun anew, by the new generation (Canary; the first is never counted).
    pub begun_anew: [u64; GENERATIONS],
    /// What the node has counted, by [`Tally`].
    pub tallies: [u64; Tally::ALL.len()],
    /// How long blocks took, from when the worker came to them (Canary).
    pub block_times: Histogram,
    /// Places in memory that sums have begun in.
    pub slots_taken: u64,
    /// Aggregator memory in use, in bytes.
    pub slot_bytes: u64,
    /// The most that was in use at once.
    pub slot_bytes_peak: u64,
    /// Operations that failed at this node.
    pub failed: u64,
    /// The first packet on which an operator that the job brought along failed: whose contribution it was, and the number of the block.
    pub operator_failed: Option<(Suspect, u32)>,
    /// Invariants found broken; each one is a bug.
    pub broken: u64,
    /// Packets not sent because they named a piece of an operation that is not running.
    pub not_lent: u64,
    /// Peers that came back with a new link epoch, that is, restarted.
    pub peers_restarted: u64,
    /// Turns of the loop.
    pub turns: u64,
    /// Times that the loop slept.
    pub waits: u64,
}

/// Counts of one peer of a node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PeerCounters {
    /// Packets from it that were handed to the node or passed on.
    pub packets_received: u64,
    /// Bytes of their payload.
    pub payload_bytes_received: u64,
    /// Packets from it that were dropped before the node saw them.
    pub packets_dropped: u64,
    /// Packets to it.
    pub packets_sent: u64,
    /// Bytes of their payload.
    pub payload_bytes_sent: u64,
    /// How often sums had only it to wait for, at the only switch of a job.
    pub last: Last,
}

impl Default for Counters {
    fn default() -> Self {
        Counters {
            packets_received: 0,
            payload_bytes_received: 0,
            packets_sent: 0,
            payload_bytes_sent: 0,
            payload_bytes_to_workers: 0,
            packets_forwarded: 0,
            dropped: [0; DropReason::ALL.len()],
            retransmitted: [0; RetransmitReason::ALL.len()],
            begun_anew: [0; GENERATIONS],
            tallies: [0; Tally::ALL.len()],
            block_times: Histogram::default(),
            slots_taken: 0,
            slot_bytes: 0,
            slot_bytes_peak: 0,
            failed: 0,
            operator_failed: None,
            broken: 0,
            not_lent: 0,
            peers_restarted: 0,
            turns: 0,
            waits: 0,
        }
    }
}

impl Counters {
    /// Packets dropped for this reason.
    pub fn dropped_for(&self, reason: DropReason) -> u64 {
        self.dropped[reason.index()]
    }

    /// Packets sent again, for whatever reason.
    pub fn retransmitted_total(&self) -> u64 {
        self.retransmitted.iter().sum()
    }

    /// Adds the counts of another node, or of another life of this one. Of the peaks the higher one stays.
    pub fn add(&mut self, other: &Counters) {
        self.packets_received += other.packets_received;
        self.payload_bytes_received += other.payload_bytes_received;
        self.packets_sent += other.packets_sent;
        self.payload_bytes_sent += other.payload_bytes_sent;
        self.payload_bytes_to_workers += other.payload_bytes_to_workers;
        self.packets_forwarded += other.packets_forwarded;
        self.dropped.iter_mut().zip(other.dropped).for_each(|(to, from)| *to += from);
        self.retransmitted.iter_mut().zip(other.retransmitted).for_each(|(to, from)| *to += from);
        self.begun_anew.iter_mut().zip(other.begun_anew).for_each(|(to, from)| *to += from);
        self.tallies.iter_mut().zip(other.tallies).for_each(|(to, from)| *to += from);
        self.block_times.merge(&other.block_times);
        self.slots_taken += other.slots_taken;
        self.slot_bytes += other.slot_bytes;
        self.slot_bytes_peak = self.slot_bytes_peak.max(other.slot_bytes_peak);
        self.failed += other.failed;
        self.operator_failed = self.operator_failed.or(other.operator_failed);
        self.broken += other.broken;
        self.not_lent += other.not_lent;
        self.peers_restarted += other.peers_restarted;
        self.turns += other.turns;
        self.waits += other.waits;
    }

    /// Counts a drop.
    #[inline]
    pub(crate) fn drop(&mut self, reason: DropReason) {
        self.dropped[reason.index()] += 1;
        tracing::trace!(reason = reason.name(), "dropped");
    }

    /// Counts what a node told.
    #[inline]
    pub(crate) fn note(&mut self, event: &Event) {
        match event {
            Event::Dropped(reason) => self.drop(*reason),
            Event::Retransmitted { reason, block } => {
                self.retransmitted[reason.index()] += 1;
                tracing::debug!(reason = reason.name(), block, "sent again");
            }
            Event::BegunAnew { block, generation } => {
                self.begun_anew[usize::from(*generation).min(GENERATIONS - 1)] += 1;
                tracing::debug!(block, generation, "begun anew");
            }
            Event::Counted(tally) => self.tallies[tally.index()] += 1,
            // It takes the time that it takes.
            Event::Scanned { .. } => {}
            Event::BlockTook(time) => self.block_times.add(*time),
            Event::SlotTaken { bytes } => {
                self.slots_taken += 1;
                self.slot_bytes += u64::from(*bytes);
                self.slot_bytes_peak = self.slot_bytes_peak.max(self.slot_bytes);
            }
            Event::SlotFreed { bytes } | Event::SlotReclaimed { bytes, .. } => {
                self.slot_bytes = self.slot_bytes.saturating_sub(u64::from(*bytes))
            }
            Event::Excluded { operation, rank } => {
                tracing::warn!(%operation, %rank, "the job goes on without a rank");
            }
            Event::Failed(failure) => {
                self.failed += 1;
                tracing::info!(%failure, "an operation failed");
            }
            Event::OperatorFailed { contributor, block } => {
                self.operator_failed.get_or_insert((*contributor, *block));
                tracing::debug!(?contributor, block, "the job's operator failed");
            }
            Event::Broken(invariant) => {
                debug_assert!(false, "broken invariant: {invariant}");
                self.broken += 1;
                tracing::error!(invariant, "broken invariant");
            }
        }
    }
}
