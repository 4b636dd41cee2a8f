//! SwitchML: a switch adds up blocks in a pool of slots with two versions each; workers clock themselves by its results.
//!
//! | clause | item |
//! |---|---|
//! | `switchml 1`, workers, one switch or a tree of them, no server | [`SwitchMlWorker`], [`SwitchMlSwitch`] |
//! | `switchml 2`, the packet | [`SwitchMlHeader`](fanin_wire::switchml::SwitchMlHeader) |
//! | `switchml 3`, bitmap, count, values and exponent of each slot and version | `shared::slots`, [`SwitchMlSwitch`] |
//! | `switchml 4`, a contribution: new, repeated, last; no timeouts | [`SwitchMlSwitch`] |
//! | `switchml 5`, self-clocked slots, a timer for each | [`SwitchMlWorker`] |
//! | `switchml 6`, block fixed point | "Block fixed point", below; [`FixedPoint`](fanin_core::FixedPoint) |
//! | `switchml 8`, switches as workers of switches | [`SwitchMlParent`] |
//! | `switchml 9`, a pool of its own for each job | one [`SwitchMlSwitch`] per job and switch |
//! | `switchml 10`, exactly once, and the pitfalls | "Exactly once", below |
//!
//! ## Blocks, slots, rounds
//! A vector is cut into blocks of `block_elements`; block numbers g go on from one operation of a job to the next, which is the `shift` of
//! `switchml 5`. With a pool of P slots, block g uses slot g mod P in round g div P, and of its two versions the one of the round's lowest
//! bit. A worker sends the first P blocks of an operation at once, and the result of block g releases block g+P: the same slot, the next
//! round, the other version. Nothing is divided on the way of a packet.
//!
//! ## A version of a slot at a switch
//!
//! ```text
//!            first contribution          last child              result from the parent
//!   Empty ---------------------> Aggregating -----> Sent (not the root) -----------> Done
//!                                     |                                               | ^
//!                                     +--- last child, at the root: the result -------|-+
//!                                     ^                                               |
//!                                     +-- first contribution of a later round --------+
//! ```
//!
//! `Done` is the shadow copy: it keeps the result for a worker that lost it, while the other version is in use.
//!
//! ## Exactly once
//! A child's second contribution is told by its bit. A version is used again, for round r+2, only when no one needs the result of round r
//! any more: a contribution to r+2 comes from a worker that has the result of r+1; that holds a contribution of *every* worker; and each
//! worker sent that one only when it had the result of r. So every worker has the result of r, and every switch on their way has passed
//! it down: the version is `Done`.
//!
//! `switchml 4` clears a worker's bit of one version when it sends for the other; a packet that is two rounds late then finds its bit
//! clear, and would be added to a sum it does not belong to. Here each version knows its round, 32 bits compared as serial numbers. The
//! first packet of a later round starts it afresh, and whatever comes late is dropped as stale, however late it is. So nothing needs to
//! be cleared for the other version, and a slot may be skipped without spoiling the parity of the slots behind it.
//!
//! ## Block fixed point
//! Before a block can be sent as integers all workers must know its exponent. So every contribution announces the exponent of the *next*
//! block of its slot, the switch takes the largest, and the result tells it to all. For the first blocks of an operation there is nothing
//! to ride on: P rounds of the pool precede the operation's T blocks, in which min(P, T) packets carry an exponent and no payload. So an
//! operation takes P + T block numbers, of which P - min(P, T) are not used. Not using them is safe: all that needs the version of a
//! skipped block's slot belongs to an operation that every worker has finished, for operations follow one another, and a worker that has
//! completed one has had a contribution to its last block of every other.
//!
//! ## Calls
//! The operations of a job may differ in element type and operator, if these were [offered](SwitchMlWorker::offer), and in kind
//! ([`CollectiveKind`](fanin_core::CollectiveKind)). Contributions then carry a [`CallLabel`](fanin_wire::switchml::CallLabel): whatever
//! differs from the first contribution to a round in its label is rejected, so that nothing is added to what it does not belong to. A
//! worker that has nothing to contribute to a block sends an empty contribution, and one that does not need the result gets an empty one;
//! both count for arrivals, for the pool and for loss as all others do. A vector with a share for each worker is cut share by share.
//!
//! ## Loss
//! Only workers have timers. A repeated contribution (`attempt` > 0) is answered with the stored result, to that child alone, where there
//! is one. Where the partial aggregate was sent up and no result came yet it goes up again, at most once per
//! [`SwitchMlSwitchConfig::resend_gap`] for all children. Where others are missing it is dropped, as it is counted already; from the
//! second repetition on the switch also says who is missing, to all levels, so that a worker whose patience ends names a rank.
//!
//! ## Means
//! For [`Operator::Avg`](fanin_core::Operator::Avg) the root divides when it has the sum of all, before it rounds a narrow float: a mean
//! does not overflow where its sum would. Partial aggregates of narrow floats are rounded on their way from switch to switch.

mod config;
mod planted;
mod switch;
mod worker;

pub use config::{POOL_MAX, SwitchMlChild, SwitchMlOffer, SwitchMlParent, SwitchMlSwitchConfig, SwitchMlWorkerConfig};
#[cfg(feature = "planted-bugs")]
pub use planted::Planted;
pub use switch::SwitchMlSwitch;
pub use worker::SwitchMlWorker;
