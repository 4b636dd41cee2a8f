//! Static reduction trees: every block of a job's vectors climbs one of N fixed trees of switches, which add what comes from their
//! children, and the sum comes down the same tree.
//!
//! | clause | item |
//! |---|---|
//! | `baselines 5`, setup: every switch knows its children and its parent | [`TreeRole`], [`TreeSwitchConfig`] |
//! | `baselines 5`, accumulate per (tree, block), forward at count = children, root multicasts | [`TreeSwitch`] |
//! | `baselines 5`, block b on tree b mod N; hosts send all blocks to their leaf | [`tree_of_block`], [`TreeWorker`] |
//! | `baselines 5`, one participant at a leaf: forwarded at once; all at one leaf: the leaf is the root | [`TreeRole`] |
//! | `baselines 5`, lossless: the buffer is free once forwarded | [`Reliability::LOSSLESS`](crate::shared::reliability::Reliability::LOSSLESS) |
//! | `baselines 5`, else the SwitchML protocol; `switchml 4, 5, 8` | `reliable: true`, below |
//! | `switchml 10`, exactly once; round number against late duplicates | "Exactly once", below |
//!
//! ## Blocks
//! A vector is cut into blocks of `block_elements`. Blocks are numbered through all operations of a job: operation k+1 goes on where k
//! ended, as `switchml 5` asks with its shift. The number is 32 bits, compared as a serial number, and is in every packet.
//!
//! ## Window
//! A worker has at most W blocks under way ([`window_blocks`]: the window asked for, rounded up to a power of two). It sends block g
//! only when it has the sum of block g-W, so every sum releases one more block: the window clocks itself. A block that is lost holds up
//! only the blocks W, 2W, ... behind it.
//!
//! ## Slots of a switch: 2W, block g in slot g mod 2W
//!
//! ```text
//!            first contribution          last child              sum from the parent
//!   Empty ---------------------> Aggregating -----> Sent (not the root) -----------> Done
//!                                     |                                               | ^
//!                                     +--- last child, at the root: the sum ----------|-+
//!                                     ^                                               |
//!                                     +-- first contribution of a newer block --------+
//! ```
//!
//! `Done` keeps the sum, for a child that lost it. Without loss recovery a slot is `Empty` again as soon as its contents are sent.
//!
//! ## Exactly once
//! A child's second contribution to a block is told by its bit. A slot is taken over by block g+2W only when no one needs block g any
//! more: a contribution to g+2W comes from a worker that has the sum of g+W; that sum holds a contribution of *every* worker; and each
//! worker sent that one only when it had the sum of g. So every worker has the sum of g, hence every switch on their way has passed it
//! down: the slot is `Done`. A packet of g that comes later than that is recognised by its number, which is older than the slot's,
//! however late it is: SwitchML's single version bit cannot do that (`switchml 10`). The argument does not depend on the tree, so W
//! need not be a multiple of N.
//!
//! ## Loss
//! Only workers have timers. A repeated contribution (`attempt` > 0) finds the switch in one of three states. `Done`: the child gets
//! the sum again. `Sent`: the partial aggregate goes up again, at most once per [`TreeSwitchConfig::resend_gap`], for all children may
//! ask at once. `Aggregating`: it is dropped, as it is counted already.
//!
//! ## Who is missing
//! From the second repetition on, the switch also answers `Waiting` with the first child whose contribution is missing, and tells its
//! parent, which tells its other children; so that in the end all workers know the rank that is missing, not only the switch it hangs
//! on. A switch whose parent stays silent names the parent. A worker that has made no progress for the job's patience gives up and
//! names the suspect; one that has heard nothing at all names its leaf. Workers do not tell each other: each has its own patience.
//!
//! ## Occupancy
//! [`Event::SlotTaken`](fanin_core::Event::SlotTaken) is noted at a block's first contribution,
//! [`Event::SlotFreed`](fanin_core::Event::SlotFreed) when its memory is given up: with loss recovery when a newer block takes the slot
//! over (so at the end up to 2W slots stay taken: that is their true cost, `switchml 10`), without it when the contents are sent.

mod config;
mod planted;
mod switch;
mod worker;

pub use config::{TreeChild, TreeParent, TreeRole, TreeSwitchConfig, TreeWorkerConfig, tree_of_block, window_blocks};
#[cfg(feature = "planted-bugs")]
pub use planted::Planted;
pub use switch::TreeSwitch;
pub use worker::TreeWorker;
