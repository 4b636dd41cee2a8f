//! Static trees as they are without more: packets without marks, and a window that clocks itself. Of `tree`, and inside of SHARP.

use std::collections::VecDeque;

use fanin_core::Payload;
use fanin_wire::tree::TreeHeader;

use super::config::{TreeWorkerConfig, window_blocks};
use super::format::{Marks, TreeFormat, TreePacket};
use super::pace::Pace;
use super::worker::TreeClient;

/// These packets carry no marks.
impl TreeFormat for TreeHeader {
    const MARKS: bool = false;

    #[inline]
    fn pack(packet: TreePacket) -> Self {
        match packet {
            TreePacket::Contribution { block, attempt, .. } => TreeHeader::Contribution { block, attempt },
            TreePacket::Aggregate { block, .. } => TreeHeader::Aggregate { block },
            TreePacket::Waiting { block, suspect } => TreeHeader::Waiting { block, suspect },
            TreePacket::Rejected { block } => TreeHeader::Rejected { block },
        }
    }

    #[inline]
    fn unpack(&self) -> TreePacket {
        match *self {
            TreeHeader::Contribution { block, attempt } => TreePacket::Contribution { block, attempt, marked: false },
            TreeHeader::Aggregate { block } => TreePacket::Aggregate { block, marks: Marks::default() },
            TreeHeader::Waiting { block, suspect } => TreePacket::Waiting { block, suspect },
            TreeHeader::Rejected { block } => TreePacket::Rejected { block },
        }
    }
}

/// First the window's first blocks, then for every sum the block one window on.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct SelfClocked {
    window: u32,
    /// Number of blocks of the running operation.
    blocks: u32,
    /// Index of the first block of the first window that has not been sent.
    fresh: u32,
    /// Indices of blocks that may be sent but had no room yet.
    released: VecDeque<u32>,
    /// Blocks that were sent and have no sum.
    outstanding: u32,
}

impl SelfClocked {
    /// Of a worker with this configuration.
    pub fn new<O>(config: &TreeWorkerConfig<O>) -> Self {
        let window = window_blocks(config.window);
        SelfClocked { window, blocks: 0, fresh: 0, released: VecDeque::with_capacity(window as usize), outstanding: 0 }
    }

    /// Whether some of the window's first blocks have not been sent.
    #[inline]
    fn has_fresh(&self) -> bool {
        self.fresh < self.blocks.min(self.window)
    }
}

impl Pace for SelfClocked {
    type Format = TreeHeader;

    fn begin(&mut self, blocks: u32) {
        (self.blocks, self.fresh, self.outstanding) = (blocks, 0, 0);
    }

    #[inline]
    fn next(&self) -> Option<u32> {
        if self.has_fresh() { Some(self.fresh) } else { self.released.front().copied() }
    }

    #[inline]
    fn on_sent(&mut self, _index: u32) -> bool {
        if self.has_fresh() {
            self.fresh += 1;
        } else {
            self.released.pop_front();
        }
        self.outstanding += 1;
        false
    }

    #[inline]
    fn on_sum(&mut self, index: u32, _block: u32, _marks: Marks, _under_way: impl Fn(u32) -> bool) -> bool {
        self.outstanding -= 1;
        let next = u64::from(index) + u64::from(self.window);
        let lets_go = next < u64::from(self.blocks);
        if lets_go {
            self.released.push_back(next as u32);
        }
        lets_go
    }

    fn clear(&mut self) {
        self.released.clear();
        self.outstanding = 0;
    }

    fn outstanding(&self) -> u32 {
        self.outstanding
    }
}

impl<P: Payload + ?Sized> TreeClient<P, SelfClocked> {
    /// A worker with all its memory.
    ///
    /// # Panics
    /// As [`TreeClient::with_pace`].
    pub fn new(config: TreeWorkerConfig<P::Op>) -> Self {
        let pace = SelfClocked::new(&config);
        TreeClient::with_pace(config, pace)
    }
}
