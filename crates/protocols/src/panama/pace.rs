//! The pace of a PANAMA job: the congestion window, and the job's window in order.

use fanin_core::Gauge;
use fanin_wire::panama::PanamaHeader;

use super::window::CongestionWindow;
use crate::shared::trees::{Marks, Pace, TreeWorkerConfig, window_blocks};

/// Blocks in order, as both windows allow.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct MarkClocked {
    /// The largest window.
    largest: u32,
    /// Number of blocks of the running operation.
    blocks: u32,
    /// Index of the next block to be sent.
    next: u32,
    /// Index of the first block without a sum.
    first: u32,
    /// Blocks that were sent and have no sum.
    under_way: u32,
    window: CongestionWindow,
    /// Sums that were marked on their way down, and not told of yet.
    untold_marks: u32,
}

impl MarkClocked {
    /// Of a worker with this configuration, whose largest window is `window`; with the congestion window that the job begins with, the same
    /// at all workers. That is taken as 1 at least, and as the largest at most.
    pub fn new<O>(config: &TreeWorkerConfig<O>, window_initial: u32) -> Self {
        let largest = window_blocks(config.window);
        let window = CongestionWindow::new(largest, window_initial);
        MarkClocked { largest, blocks: 0, next: 0, first: 0, under_way: 0, window, untold_marks: 0 }
    }

    /// The congestion window.
    pub fn window(&self) -> &CongestionWindow {
        &self.window
    }
}

impl Pace for MarkClocked {
    type Format = PanamaHeader;

    fn begin_at(&mut self, block: u32) {
        self.window.begin_at(block);
    }

    fn begin(&mut self, blocks: u32) {
        (self.blocks, self.next, self.first, self.under_way) = (blocks, 0, 0, 0);
    }

    #[inline]
    fn next(&self) -> Option<u32> {
        let may = self.next < self.blocks && self.next - self.first < self.largest && self.under_way < self.window.blocks();
        may.then_some(self.next)
    }

    /// A mark that a sum met on its way down is told of in the next contribution.
    #[inline]
    fn on_sent(&mut self, _index: u32) -> bool {
        let marked = self.untold_marks > 0;
        self.untold_marks -= u32::from(marked);
        self.next += 1;
        self.under_way += 1;
        marked
    }

    #[inline]
    fn on_sum(&mut self, _index: u32, block: u32, marks: Marks, under_way: impl Fn(u32) -> bool) -> bool {
        self.window.on_sum(block, marks.up);
        self.untold_marks = self.untold_marks.saturating_add(u32::from(marks.down));
        self.under_way -= 1;
        while self.first < self.next && !under_way(self.first) {
            self.first += 1;
        }
        true
    }

    fn clear(&mut self) {
        self.under_way = 0;
    }

    fn outstanding(&self) -> u32 {
        self.under_way
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        report(Gauge::LinkWindow, f64::from(self.window.blocks()));
        report(Gauge::MarkShare, self.window.marked_share());
    }
}
