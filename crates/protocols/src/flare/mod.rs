//! Flare: sums of sparse vectors, whose packets carry pairs of an index and a value, in a static tree of switches.
//!
//! | specification | item |
//! |---|---|
//! | `flare 1`, hosts, switches with parent and children | [`FlareWorker`], [`FlareSwitch`] |
//! | `flare 2`, packets | [`FlareHeader`](fanin_wire::flare::FlareHeader), [`packets`] |
//! | `flare 5`, sums that become dense: packets name indices as is shortest | [`Blocks::shortest`], [`IndexCoding`](fanin_core::IndexCoding) |
//! | `flare 4.3`, sums of dense blocks in a fixed order | [`FixedOrderTree`], [`TreeBuffers`] |
//! | `flare 4.3`, sums of sparse blocks in that order | [`Ordered`] |
//! | `flare 4.4`, array storage | [`Array`] |
//! | `flare 4.5`, hash storage and spill | [`Table`] |
//! | `flare 4.6`, a block is complete when each child's last packet has said how many there are, and all of them have come | [`Children`] |
//! | `flare 4.7`, staggered sending, inside the window | [`FlareWorkerConfig::staggered`] |
//! | `flare 4.9`, losses | below |
//! | `flare 5`, hash at the leaves, array above | [`StorageKind::fitting`] |
//! | a block at a switch | [`SparseBlock`] |
//!
//! A vector is cut into blocks of as many indices as [`Blocks::range`] says. A worker sends the pairs that it has in a block, in one packet or
//! more; a switch adds them up and sends what comes of it to its parent; the root sends the sum down, and every switch passes it on.
//!
//! ## Slots of a switch: 2W, block g in slot g mod 2W
//!
//! ```text
//!          first packet            last packet of the last child        last packet from the parent
//!   Empty -------------> Gathering -----------------> Sent (not the root) ----------> SendingDown ---> Done
//!                          ^   |                                                        ^               |
//!                          |   +----- last packet of the last child, at the root -------+               |
//!                          +---------- first packet of a newer block ------------------------------------+
//! ```
//!
//! What a table spills goes up while packets still come. Packets of the sum are passed on one by one, as they come down.
//!
//! ## Exactly once
//! Packets of a sender and a block are numbered, and a bit for each says whether it is in the sum (`flare 4.9`); the last one says how many
//! there are, and a sender is done when as many have come (P4, P5). As in [static trees](crate::shared::trees), a block is sent only by who has
//! the sum of the block a window before, so a slot is taken over only when everybody has the sum of the block that it had; an older block is
//! told by its number. The sums of a table that is spilled are parts: an index may go up several times, each time with other contributions, and
//! is whole where an array or the worker merges them.
//!
//! A switch that has lost its memory sums a block anew, and may divide the pairs among packets in another way than before, so that what its parent
//! has of both would not add up. Packets say which making they are of; a parent that has some of another one, but not all, sums the block anew
//! itself, from everybody's packets ([`Event::BegunAnew`](fanin_core::Event::BegunAnew)); one that has all of them needs none of the new ones.
//!
//! ## Operators
//! Values are combined by whatever the job reduces by, also by an operator that it brings along
//! ([`Payload::reduce_bits`](fanin_core::Payload::reduce_bits)). Where that fails, the switch rejects the block to all its children, whose workers
//! give up the operation; workers elsewhere do when nothing has come for their patience.
//!
//! Zero is a value as any other: places have valid bits, and a sum that cancels out is delivered (P1).
//!
//! ## Loss (`flare 4.9`, which the paper leaves out)
//! Only workers have timers. One that waits for a sum sends its last packet of the block again. Its switch says from which packet on it wants
//! the others (`Wanted`), and gets them; with the last of them, that goes on until it has all. Where it has them, it answers with the sum; where
//! that is not complete, it sends its own last packet up again, at most once in [`FlareSwitchConfig::resend_gap`]; where others are
//! missing, it names them. Who has some of a sum asks for the rest (`Ask`). So a burst of packets that is longer than a queue gets through: the
//! next one begins where the last one was cut off.
//!
//! A switch that names who is missing asks its parent for the sum, too: where it has lost its memory, others may have the sum already and send
//! nothing again. At the root that cannot be made good: the operation fails within its patience.
//!
//! For that a switch keeps what it has sent up until the sum comes down, and the sum until the slot is taken over: memory beside the storage,
//! which is counted. Without loss recovery there are no timers; memory is the same.

mod block;
mod children;
mod config;
mod kept;
mod ordered;
mod packing;
mod planted;
mod storage;
mod switch;
mod worker;

pub use crate::shared::arrivals::{Arrivals, PacketError};
pub use crate::shared::fixed_order::{FixedOrderTree, NotPlaced, Placed, TreeBuffers};
pub use block::{Refused, SparseBlock, Taken, packets};
pub use children::Children;
pub use config::{Blocks, FlareSwitchConfig, FlareWorkerConfig, RANGE_MAX, StorageKind, WINDOW_MAX};
pub use ordered::Ordered;
pub use packing::{Packet, Pair};
#[cfg(feature = "planted-bugs")]
pub use planted::Planted;
pub use storage::{Array, Storage, Table, union_density};
pub use switch::FlareSwitch;
pub use worker::FlareWorker;
