//! Workers and switches of static trees. A worker ([`TreeClient`]) sends blocks to its leaf switch and takes their sums. A switch
//! ([`Reduction`]) sums what comes from its children in a tree, sends the partial aggregate to its parent, and passes the sum down.
//! Systems with static trees share them; each has a packet format ([`TreeFormat`]) and a [`Pace`] of its own: what a worker may send next.
//! What the switch asks of it: block g is sent only by who has the sum of block g-W.
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
//! need not be a multiple of N. In a switch that has lost its memory a late packet of g may have begun a slot again, which nobody completes:
//! the slot is taken over all the same.
//!
//! ## Some switches only forward
//! Who has no switch that sums at the other end of its cable sends to the next one above in the tree, by address, and is known to it by its own;
//! sums come back the same way, to each by itself.
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
//!
//! ## Marks
//! A format may carry congestion marks ([`TreeFormat::MARKS`]). A mark on the way up, of a packet or set by a worker, is kept in the slot
//! and goes on with the partial aggregate, so that the sum says whether any packet of any worker was marked: the same to all. Marks on
//! the way down are passed on beside that.

mod config;
mod far;
mod format;
mod node;
mod ordered;
mod pace;
mod plain;
mod planted;
mod switch;
mod worker;

pub use config::{TreeChild, TreeParent, TreeRole, TreeSwitchConfig, TreeWorkerConfig, tree_of_block, window_blocks};
pub use format::{Marks, TreeFormat, TreePacket};
pub use node::TreeAggregator;
pub use pace::Pace;
pub use plain::SelfClocked;
#[cfg(feature = "planted-bugs")]
pub use planted::Planted;
pub use switch::Reduction;
pub use worker::TreeClient;
