//! Sums of slots in an order that does not depend on which child comes first, so that floats have the same bits every time (`flare 4.3`).

use fanin_core::Payload;

use crate::shared::fixed_order::{FixedOrderTree, Placed, TreeBuffers};
use crate::shared::state::node_state;

/// What the slots of a switch hold beside their sums: contributions, and parts of sums, that wait for their neighbours.
pub(super) struct Ordered<P: Payload + ?Sized> {
    /// By slot.
    trees: Box<[FixedOrderTree<P>]>,
    buffers: TreeBuffers<P>,
}

node_state!(Ordered { trees, buffers });

impl<P: Payload + ?Sized> Ordered<P> {
    /// For so many slots of blocks of at most `block_bytes` bytes, with at most `children` children.
    pub fn new(slots: u32, children: u32, op: &P::Op, block_bytes: u32) -> Self {
        Ordered {
            trees: (0..slots).map(|_| FixedOrderTree::new(children)).collect(),
            buffers: TreeBuffers::new(TreeBuffers::<P>::needed(slots as usize, children), op, block_bytes as usize),
        }
    }

    /// Accumulators that a block takes at most beside its slot's own: every other child waits.
    pub const fn accumulators(children: u32) -> u32 {
        children.div_ceil(2)
    }

    /// A slot takes another block, of so many children.
    pub fn begin(&mut self, slot: u32, children: u32) {
        self.trees[slot as usize].begin(children, &mut self.buffers);
    }

    /// A child's contribution. With the last one the sum is in `acc`. `None`, and nothing is changed, where it does not fit, or has come before.
    pub fn add(&mut self, slot: u32, child: u16, payload: &P, acc: &mut P::Acc, op: &mut P::Op) -> Option<()> {
        let tree = &mut self.trees[slot as usize];
        match tree.on_contribution(child.into(), payload, &mut self.buffers, op) {
            Ok(Placed::Waiting) => Some(()),
            Ok(Placed::Completed) => {
                P::view(tree.sum()?).assign(acc, op).ok()?;
                tree.clear(&mut self.buffers);
                Some(())
            }
            Ok(Placed::Repeated) | Err(_) => None,
        }
    }

    /// Nothing is kept.
    pub fn clear(&mut self) {
        self.trees.iter_mut().for_each(|tree| tree.clear(&mut self.buffers));
    }
}
