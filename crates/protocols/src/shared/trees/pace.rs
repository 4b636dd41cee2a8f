//! Which block a worker of static trees sends next. Of the window W every system keeps: block g is sent only by who has the sum of block
//! g-W, as the switch's slots ask.

use std::fmt::Debug;
use std::hash::Hash;

use fanin_core::Gauge;

use super::format::{Marks, TreeFormat};

/// A system's rule for what goes next, and its packet format. Blocks are named by their index in the running operation.
pub trait Pace: Clone + Eq + Hash + Debug {
    /// The system's packets.
    type Format: TreeFormat;

    /// The job's blocks are numbered from this one on; before anything is sent.
    fn begin_at(&mut self, _block: u32) {}

    /// An operation of so many blocks begins, with nothing under way.
    fn begin(&mut self, blocks: u32);

    /// The block that may be sent now; `None` where all must wait for a sum.
    fn next(&self) -> Option<u32>;

    /// That block was sent, for the first time. Whether with a mark.
    fn on_sent(&mut self, index: u32) -> bool;

    /// The sum of a block has come, for the first time; `block` is its number in the job. `under_way` says of blocks that were sent which
    /// have none. Whether that lets something go.
    fn on_sum(&mut self, index: u32, block: u32, marks: Marks, under_way: impl Fn(u32) -> bool) -> bool;

    /// The operation was given up.
    fn clear(&mut self);

    /// How many blocks are under way.
    fn outstanding(&self) -> u32;

    /// Tells what it holds, as [`fanin_core::Node::gauges`] does.
    fn gauges(&self, _report: &mut dyn FnMut(Gauge, f64)) {}
}
