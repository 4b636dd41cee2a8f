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
//! | `baselines 5`, else the SwitchML protocol; `switchml 4, 5, 8` | `reliable: true`; [`trees`](crate::shared::trees) |
//! | `switchml 10`, exactly once; round number against late duplicates | "Exactly once" in [`trees`](crate::shared::trees) |
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
//! Workers, slots of a switch, why nothing is counted twice, and who is named where somebody is missing: [`trees`](crate::shared::trees),
//! which other systems with static trees share. What is this system's own is its packets and its pace ([`SelfClocked`]).

use fanin_wire::tree::TreeHeader;

#[cfg(feature = "planted-bugs")]
pub use crate::shared::trees::Planted;
pub use crate::shared::trees::{
    SelfClocked, TreeChild, TreeParent, TreeRole, TreeSwitchConfig, TreeWorkerConfig, tree_of_block, window_blocks,
};
use crate::shared::trees::{TreeAggregator, TreeClient};

/// A worker of a job that reduces over static trees.
pub type TreeWorker<P> = TreeClient<P, SelfClocked>;

/// The aggregator of a tree job at one switch.
pub type TreeSwitch<P> = TreeAggregator<P, TreeHeader>;
