//! Canary: reduction trees that form anew for each block. Contributions go towards the block's leader by whatever path the load balancer
//! chooses; switches add what meets within a short time, and remember where it came from, so that the sum finds its way back.
//!
//! | clause | item |
//! |---|---|
//! | `canary 1`, leader in turn; root = the leader's leaf, without code of its own | [`CanaryWorker`], [`CanarySwitch`] |
//! | `canary 2`, packet format | [`fanin_wire::canary`] |
//! | `canary 3`, array of descriptors, by hash or statically | [`CanarySwitchConfig`], [`Placement`], `table`, `descriptors` |
//! | 3.2 and 3.4 of the paper, one array for all jobs | [`CanarySharedSwitch`] |
//! | `canary 4`, window; sum, count and ports to restore of each led block | [`CanaryWorkerConfig`], `leader` |
//! | `canary 5.1`, `5.11`, host | [`CanaryWorker`] |
//! | `canary 5.2` to `5.6`, `5.9`, switch: timeouts, stragglers, collisions, broadcast, restoration | [`CanarySwitch`] |
//! | `canary 5.7`, `5.8`, leader | `leader`, `places`, [`Duties`] |
//! | `canary 5.10`, garbage collection | [`CanarySwitchConfig::descriptor_lifetime`] |
//! | `canary 5.12`, `5.14`, workers and losses | `asking` |
//! | `canary 5.13` to `5.15`, leaders and losses | `recovery`, `watch`, [`Recovery`], [`FailureRule`] |
//! | `canary 9`, P5, names that are used again | `fence` |
//! | collectives other than allreduce | `cut` |
//! | 3.1.1, "does not know how many packets to wait for": a switch that knows | [`FanIn`] |
//! | windows that follow collisions and marks, as A2TP's do (`a2tp 5.7`) | `windows`, [`MarkRule`], [`crate::shared::two_windows`] |
//! | 5.2.5, "a possible future extension": timeouts that adapt | [`Timeout`], `timeout` |
//!
//! Without loss recovery ([`Recovery::NONE`]) nothing is sent twice, no switch gives a descriptor up, and the generation in a block's name
//! is 0: Canary for a network that loses nothing, as its paper simulates it.
//!
//! ## Descriptors of a switch
//!
//! ```text
//!         first packet              timeout, or all contributions        sum from above
//!   free -------------> Collecting ------------------------------> Sent ---------------> free
//!                           |                                       ^ |                   ^
//!                           | no room on the way up                 | | no room below     |
//!                           v                                       | v                   |
//!                         Ready ------------------------------------+ Descending ---------+
//! ```
//!
//! A packet of a block in `Collecting` or `Ready` is added. In `Sent` it is a *straggler*: its port is remembered and it goes on at once,
//! and may be added further up. If the place is another block's it is a *collision*: the packet goes straight to the leader with the
//! switch and the port in its header, and after the broadcast the leader sends the sum to that switch, once a shard of 16 ports.
//! Straggler and collided packet go out as they come in; only sums wait in a descriptor for room.
//!
//! ## Why every worker gets every sum
//! Follow a contribution up. Every switch that sees it either has a descriptor with the port it came by, or tells the leader that port
//! and nobody above touches the packet any more. What a switch sends on behalf of a descriptor is again such a packet at the next
//! switch, and the root sends to the leader. The leader answers to its leaf, which is the root, and to every switch that told a port; so by
//! going down again each descriptor gets the sum and passes it to all ports it has. When the first sum comes all contributions have been
//! counted, hence have passed, hence every port has been recorded; that is why the descriptor can be freed with the first. The sum may
//! come again: a leaf of which some packets went by another spine has two parents, and a port can be both recorded and told. Who has no
//! descriptor drops it ([`DropReason::NoSlot`](fanin_core::DropReason::NoSlot)), and a worker takes each sum once. Broadcast and
//! restorations may overtake each other: neither needs the other.
//!
//! ## Exactly once
//! Descriptors and leaders add counts and cannot see a packet that comes twice; that none does is up to the hop sequence, below. A block
//! is complete when H-1 contributions are counted. The leader's own comes last, so that it is added once, whatever happened before.
//!
//! ## Blocks
//! A job numbers its blocks with 32 bits through all operations; block b is led by worker b mod H (counted without the wrap, so that H
//! need not be a power of two) unless [`Leaders`] says otherwise. Packets carry the low 20 bits, and a receiver takes the nearest number to the first block whose sum it
//! lacks. That is right for everything that lies ahead: a worker never sends a block [`SPAN`] = 2^18 - 1 or more ahead of the first one
//! that it lacks, and has the sum of a block only when all others have sent it, so what it sends is less than 2^19 ahead of the first
//! block that any other worker lacks. What lies behind is a broadcast that comes again, late. Hence neither workers nor switches confuse
//! two blocks as long as no packet and no descriptor outlives the next 2^19 blocks of its job: half a gigabyte at 1 KiB a block.
//!
//! ## Timeouts that adapt
//! The paper has one timeout for all switches, and names its choice "based on the current network conditions" as future work. With
//! [`Timeout::Adaptive`] each switch learns which contributions to expect, sends at once when they are here, and otherwise waits as long
//! as it pays: `timeout` has the rules. They change when sums are sent, never what is in them: a switch that expects too little sends
//! stragglers on, and one that expects too much waits no longer than the upper bound.
//!
//! ## Timers that a scan finds, and timeouts of roots
//! A switch of the paper's has no timers: clock packets scan its descriptors, and find one whose time is over up to a scan later (Canary
//! 4.3). And a root's timer, which begins with the first packet from below, ends before partial sums can come that have waited for their
//! own switches' timers; its leader then gets two packets of a block even in an idle network, and in long sums ever more, as queues to leaders keep
//! workers apart. [`Clock`] makes both otherwise; plans that give no timeout have roots that wait as long as a contribution is on its way.
//!
//! ## Sums that are sent early
//! The paper's switch "does not know how many packets to wait for" (3.1.1) since it knows neither the workers nor the paths, and waits for its
//! timeout even when all are here. How many can come *at most* follows from the map alone, though paths do not: a contribution can pass a
//! switch only if that lies on a shortest way from its worker to the leader. A switch that is told those numbers ([`FanIn`]) sends a sum
//! when it has so many. With paths that meet elsewhere the number is not reached and the timeout decides, as in the paper. It is an early
//! timeout and nothing else: no count of a leader depends on it, so whatever is lost, repeated, begun anew or goes another way, a number
//! that is too low makes stragglers and one that is too high makes a wait. A leaf counts its own workers, which is exact on any network;
//! above, the number is reached where everything meets, as with a default path for each leader in an idle network.
//!
//! ## Window
//! A worker has at most W blocks under way: sent, and their sums not there. It sends blocks in order, so the first block that is missing
//! anywhere has been sent by all, or will be. Sums of led blocks, which all others wait for, leave before contributions. With loss
//! recovery those W blocks are within 8 W of the first one that the worker lacks, and it completes no block that it leads further ahead.
//!
//! ## Losses
//! ```text
//!   worker                                       leader
//!     | contribution, generation g     (lost)      |
//!     |------------------------->  x               |
//!     | timeout: request(b, g)                     |
//!     |------------------------------------------->|  the sum is there: answer(b), to this worker alone
//!     |                                            |  all others have asked as well: something is lost
//!     |<-------------------------------------------|  failed(b, g+1), to all
//!     | contribution, generation g+1               |
//!     |------------------ switches --------------->|
//! ```
//! A generation has a name of its own, so that whatever is left of an earlier one, in switches or under way, goes where it no longer
//! counts. A worker contributes to each generation once. After `generations` of them it sends its contribution to the leader past all
//! switches (`canary 5.15`), with its rank, as often as it takes.
//!
//! *When has a generation failed?* The paper gives a partial block up at the first request. But a worker that is slow, by a computation or
//! a descheduled process, makes all others ask; then every block that it has not sent is begun anew, over and over, for as long as it is
//! slow, and ends in the fallback. The specification's hold does that later. By default ([`FailureRule::AllAsked`]) a leader waits until
//! all others have asked, for who asks has contributed; after a round trip it asks those who have not, since requests get lost as well. A
//! slow worker costs its time and nothing else, and a dead one is known by rank. Eight workers of which one begins 5 ms late, 100 blocks:
//! 274 words of failure and 14 direct contributions with a hold of 400 us, 543 and 119 by the paper's rule, none by default
//! (`tests/canary_recovery.rs`). This is that storm, packet by packet, for three workers of which one comes late, and two blocks, by the
//! paper's rule (`tests/canary_storm.rs` compares it with what happens).
//! Worker 2 comes after 1 ms; others ask after 200 us, then less often.
//!
//! ```text
#![doc = include_str!("storm.txt")]
//! ```
//!
//! *How soon is a loss found?* A worker asks before its timeout where a sum has come of a block that it sent later, and this one has had as
//! long as that one took, or a smoothed round trip, and four mean deviations more ([`crate::shared::overtaking`]); where it asks in vain it
//! waits longer. A leader finds most losses without being asked (`watch`): sums of later blocks prove that all others have contributed.
//!
//! *How long is a sum kept?* A worker that sends block b lacks nothing before b - 8 W; so once there is a sum of b, nobody does.
//! That is what workers have in place of the notices of `canary 5.8`, 3, where each tells that it needs nothing any more. So at the end of
//! an operation a leader still has its sums of about the last 8 W blocks, until sums of the next operation come; after the last operation,
//! until its driver drops it. A driver drops no worker before all have ended, or who lacks a sum would ask in vain and lose its patience:
//! simulator and testbed learn of each worker's end by themselves, which is the specification's barrier. Notices would free nothing
//! sooner while a job runs, and to all leaders they are H (H-1) packets an operation, any of which may be lost.
//! [`CanaryHeader::Done`](fanin_wire::canary::CanaryHeader::Done) is their format, kept for hosts that can learn of the others' end by
//! packets only: no worker sends it, and who gets one drops it.
//!
//! *What tells who is missing?* From the third request on a leader that lives says whose request or contribution it lacks. Who is asked for
//! its own and has not come to the block answers whom it waits for itself: it may be operations behind, for a sum whose leader has died when
//! all others had it. A leader passes that name on in place of who has given it (`shared::excuses`), and where it is itself not as far, whom it
//! waits for. A worker that loses its patience names that rank, or the leader that says nothing, and tells all others, which give up with it.
//!
//! ## A worker that comes late
//! Others may be an operation ahead. What they send for a block that the late worker leads is summed in its record, which needs nothing
//! of the operation but the block's number; the own contribution is added when the operation begins.
//!
//! ## Patience, without loss recovery
//! Nothing is repeated, so a peer that dies, or whose vector has another length, leaves blocks without a sum. A worker that has got none
//! for the job's patience gives up and names the block. Sums tell little about who is missing: only where later sums prove that everybody
//! has sent the block is its leader named, and of two workers the other. A leader whose packets contradict each other gives up at once.
//! Workers do not tell each other, and switches keep the descriptors of a job that has failed. (With loss recovery they age.)
//!
//! ## Memory
//! The array of a switch is one job's own, so that the switch's memory is divided among jobs beforehand (`canary 7`, concurrent allreduces)
//! and blocks of different jobs do not collide ([`CanarySwitch`]); or it is one for all jobs, and a descriptor is whose block comes first and
//! nobody's when the sum has passed (3.2 and 3.4 of the paper; [`CanarySharedSwitch`]). In the shared one a block of another job is a
//! collision like any other: the place says whose it is beside which block, so jobs whose numbers are the same in packets (the low 8 bits)
//! are told apart as well. When a job has ended its places are free. The array has a fixed length; it holds numbers, and the descriptors lie in a
//! pool that grows to the most that were ever in use at once. A leader's records likewise: as many as blocks that are open at once.
//! [`Event::SlotTaken`](fanin_core::Event::SlotTaken) and [`Event::SlotFreed`](fanin_core::Event::SlotFreed) count a full payload from a
//! descriptor's first packet to the broadcast, as the paper's model of memory does (`canary 6`), though the sum itself is needed only until
//! it is sent on.

mod clock;
mod come_to;
mod config;
mod cut;
mod deadlines;
mod descriptors;
mod fan_in;
mod fence;
mod leader;
mod places;
mod planted;
mod pool;
mod shared;
mod switch;
mod table;
mod timeout;
mod timers;
mod watch;
mod windows;
mod worker;

use fanin_core::{FlowLabel, JobId};

pub use clock::Clock;
pub use config::{
    CanarySwitchConfig, CanaryWorkerConfig, Duties, FailureRule, GENERATIONS_MAX, Leaders, MarkRule, Placement, RELIABLE_WINDOW_MAX,
    Recovery, SPAN, Timeout, WINDOW_UNLIMITED,
};
pub use fan_in::FanIn;
#[cfg(feature = "planted-bugs")]
pub use planted::Planted;
pub use shared::CanarySharedSwitch;
pub use switch::CanarySwitch;
pub use table::HASH_KEY;
pub use worker::CanaryWorker;

/// A job's name in packets. Whoever carries packets of more than 256 jobs names the job beside the header, as Fanin's drivers do.
#[inline]
const fn app_of(job: JobId) -> u8 {
    job.0 as u8
}

/// One flow for a job: hashing tells its packets apart by their ends.
#[inline]
const fn flow_of(job: JobId) -> FlowLabel {
    FlowLabel(job.0 as u32)
}
