//! What nodes tell their driver: the reason of every drop, retransmission and fallback, and what memory they hold. Metrics, traces
//! and the answer to "why is nothing moving" are built on these.

use crate::collective::{Failure, Suspect};
use crate::names::{JobId, OperationId, Rank};
use crate::time::Duration;

macro_rules! reasons {
    ($(#[$doc:meta])* $name:ident { $($(#[$variant_doc:meta])* $variant:ident = $text:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        #[repr(u8)]
        pub enum $name { $($(#[$variant_doc])* $variant,)* }

        impl $name {
            /// Every reason, in the order of their indices.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];

            /// The reason's name in metrics and results.
            pub const fn name(self) -> &'static str {
                match self { $($name::$variant => $text,)* }
            }

            /// The reason as an index into an array of counters.
            #[inline]
            pub const fn index(self) -> usize {
                self as usize
            }
        }
    };
}

reasons! {
    /// Why a packet went no further.
    DropReason {
        /// The queue of a lossy link had no room.
        QueueFull = "queue_full",
        /// The host could not take packets in as fast as they came.
        HostBusy = "host_busy",
        /// Injected loss.
        InjectedLoss = "injected_loss",
        /// A checksum failed.
        Corrupted = "corrupted",
        /// A link or switch on the way is down.
        Down = "down",
        /// The hop sequence saw this packet before.
        Repeated = "repeated",
        /// The packet is older than the anti-replay window.
        TooOld = "too_old",
        /// No path leads to the destination.
        NoRoute = "no_route",
        /// No node of the job lives where the packet arrived.
        NoNode = "no_node",
        /// The bytes are not a packet of this system.
        Malformed = "malformed",
        /// The protocol has seen this contribution before.
        Duplicate = "duplicate",
        /// The block or operation is already finished.
        Stale = "stale",
        /// The switch holds no slot for this block: what it needs from here comes, or came, another way (Canary).
        NoSlot = "no_slot",
        /// The receiver has not begun this operation yet.
        NotReady = "not_ready",
        /// The packet is outside the agreed window.
        OutsideWindow = "outside_window",
        /// Length or type do not fit the job.
        Mismatch = "mismatch",
        /// The sender is not a member of the job or not a child in the tree.
        NotAMember = "not_a_member",
        /// The host has stopped.
        HostDead = "host_dead",
        /// The answer is still being made; asking again will do.
        InProgress = "in_progress",
        /// Its link epoch or number is not what is believed of the sender, and nothing shows yet that it is right.
        Unproven = "unproven",
        /// The packet was not made with the key of the hop that it is said to come by, or a bit of it has changed.
        Unauthenticated = "unauthenticated",
    }
}

reasons! {
    /// Why a packet was sent again.
    RetransmitReason {
        /// No answer within the retransmission timeout.
        Timeout = "timeout",
        /// Later packets were acknowledged first.
        Gap = "gap",
        /// The receiver was not ready and now is.
        Ready = "ready",
        /// A child asked again for something that is already complete.
        Asked = "asked",
        /// The block's generation has failed: it is contributed anew, under the next one (Canary).
        Reissued = "reissued",
        /// Several generations have failed: switches are passed by (Canary).
        Fallback = "fallback",
    }
}

reasons! {
    /// What the papers' authors count and readers ask for, beside packets: how often what makes a system slow or fast has happened. Drivers
    /// count by job and by where the node is.
    Tally {
        /// Switch: a packet that was added to a block's sum, the first one too (Canary).
        Summed = "summed",
        /// Switch: a packet came for a block whose sum had been sent on already (Canary).
        Straggler = "stragglers",
        /// Switch: a packet passed on because the place in memory that it wants is another block's (Canary, ATP, A2TP).
        Collision = "collisions",
        /// Switch: a sum brought by a restoration, to children that a collision kept from being remembered (Canary).
        Restoration = "restorations",
        /// Switch: a sum sent on towards the leader (Canary).
        Sum = "sums",
        /// Those among them that were sent because their time was over, not because everything had come (Canary).
        TimedOut = "timed_out",
        /// Leader: a packet that was added to a block it leads (Canary).
        LeaderPacket = "leader_packets",
        /// Leader: a block that is complete (Canary).
        LeaderBlock = "leader_blocks",
        /// Leader: a block begun anew because all others have asked for it, or the first one by the paper's rule (Canary).
        AnewAsked = "anew_asked",
        /// Leader: a block begun anew because sums of later blocks show that all have contributed, and something of it has not come (Canary).
        AnewOvertaken = "anew_overtaken",
        /// Leader: a block begun anew because the time that a first request is held was over (Canary).
        AnewHeld = "anew_held",
        /// Switch: a packet of elements that found no room in a block's table and go on by themselves (Flare).
        Spill = "spills",
        /// Worker: a question for results that have passed by (Rina).
        Repair = "repairs",
    }
}

/// Something a driver may want to count or write down. Making one costs nothing; a driver that does not care compiles it away.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// The node dropped the packet that it was given.
    Dropped(DropReason),
    /// The node sent block or step `block` again.
    Retransmitted {
        /// Why.
        reason: RetransmitReason,
        /// Which block (tree) or piece (ring).
        block: u32,
    },
    /// Something of a block is lost: a leader has it begun anew by all (Canary). Once a generation, whatever number of packets that takes.
    BegunAnew {
        /// The block, by its number in the job.
        block: u32,
        /// The new generation, from 1 on.
        generation: u8,
    },
    /// An aggregator slot of this many bytes is in use from now on.
    SlotTaken {
        /// Payload memory of the slot.
        bytes: u32,
    },
    /// An aggregator slot of this many bytes is free again.
    SlotFreed {
        /// Payload memory of the slot.
        bytes: u32,
    },
    /// A slot of this many bytes that job `job` had is free again, on behalf of another job: its time was over, or its job has ended.
    SlotReclaimed {
        /// The job that had it.
        job: JobId,
        /// Payload memory of the slot.
        bytes: u32,
    },
    /// Worker only: what is delivered of an operation lacks this rank's contribution. The job goes on without it (Rina). Told before
    /// the operation ends.
    Excluded {
        /// The operation.
        operation: OperationId,
        /// Who.
        rank: Rank,
    },
    /// Switch only: an operator that the job brought along failed, and the packet was dropped. The job cannot go on.
    OperatorFailed {
        /// On whose contribution.
        contributor: Suspect,
        /// The block's number, as the system counts.
        block: u32,
    },
    /// Something worth counting happened.
    Counted(Tally),
    /// Worker only: a block's sum is here, so long after the worker came to the block: by sending its contribution, or by passing a block that
    /// it leads (Canary).
    BlockTook(Duration),
    /// Switch only: all contributions to a block are in its sum, which leaves. For a sparse one, so many places of an array or a table were
    /// looked at (Flare 5); what that costs is for the driver to say. Told by static trees and by Flare.
    Scanned {
        /// Places, whether something was there or not; 0 of a dense sum.
        places: u32,
    },
    /// An operation failed at this node.
    Failed(Failure),
    /// Something that must never happen did; the text names the invariant. Drivers panic in tests and count it in production.
    Broken(&'static str),
}
