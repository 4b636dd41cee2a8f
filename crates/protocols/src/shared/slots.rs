//! A switch's slots: a flat array sized at start-up, with a bit per child beside it. Of static trees and of SwitchML.

use fanin_core::{Instant, Payload, Suspect};

use super::rtt::rebased;
use super::trees::Marks;

/// Where a slot stands; the transitions are drawn in the systems' documentation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum SlotState {
    /// Holds nothing.
    Empty,
    /// Some children have contributed.
    Aggregating,
    /// Complete; there was no room on the way to the parent yet.
    SendingUp,
    /// The partial aggregate was sent to the parent.
    Sent,
    /// Holds the sum; there was no room on the way to the children yet.
    SendingDown,
    /// Holds the sum, which was sent to the children.
    Done,
}

/// One slot.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Slot<A> {
    /// What the slot is used for, or was last: the number of a block (trees), or of the slot's round (SwitchML).
    pub number: u32,
    /// Children that have not contributed.
    pub missing: u32,
    pub state: SlotState,
    /// How often the partial aggregate was sent again.
    pub resends: u8,
    /// The parent has said that it waits, so it is there.
    pub parent_heard: bool,
    /// What a child that has not contributed said last of who is missing below it.
    pub word: Option<(u16, Suspect)>,
    /// Congestion marks of what it holds, where packets carry them.
    pub marks: Marks,
    /// When something about it last went up.
    pub asked_at: Instant,
    /// Bit c: child c, of the first 64, has contributed.
    arrived: u64,
    pub acc: A,
}

/// Who has not contributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Missing {
    /// A child, by number, that has said nothing.
    Child(usize),
    /// Who a child has named that waits itself.
    Below(Suspect),
}

/// All slots of one job at one switch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Slots<A> {
    slots: Box<[Slot<A>]>,
    /// The bits of the children from 64 on: `words` words per slot.
    arrived: Box<[u64]>,
    words: usize,
}

impl<A> Slots<A> {
    /// `count` empty slots for at most `children` children.
    pub(crate) fn new<P: Payload<Acc = A> + ?Sized>(count: u32, children: usize, op: &P::Op, block_bytes: u32) -> Self {
        let words = children.div_ceil(64).saturating_sub(1);
        let empty = || Slot {
            number: 0,
            missing: 0,
            state: SlotState::Empty,
            resends: 0,
            parent_heard: false,
            word: None,
            marks: Marks::default(),
            asked_at: Instant::ZERO,
            arrived: 0,
            acc: P::accumulator(op, block_bytes as usize),
        };
        Slots { slots: (0..count).map(|_| empty()).collect(), arrived: vec![0; words * count as usize].into(), words }
    }

    /// Who is missing, and what is known of it: a child that has said who is missing below it is there itself.
    pub(crate) fn missing(&mut self, index: u32, children: usize) -> Option<Missing> {
        let word = self.get(index).word;
        if let Some((child, suspect)) = word
            && !self.has_arrived(index, child)
        {
            return Some(Missing::Below(suspect));
        }
        self.first_missing(index, children).map(Missing::Child)
    }

    /// The slot of a block, where blocks go round all slots; their count is a power of two.
    #[inline]
    pub(crate) fn index_of(&self, block: u32) -> u32 {
        block & (self.slots.len() as u32 - 1)
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Slot<A>> {
        self.slots.iter_mut()
    }

    #[inline]
    pub(crate) fn get(&mut self, index: u32) -> &mut Slot<A> {
        &mut self.slots[index as usize]
    }

    /// A slot, to look at.
    #[inline]
    pub(crate) fn peek(&self, index: u32) -> &Slot<A> {
        &self.slots[index as usize]
    }

    /// The bits of the first 64 children.
    pub(crate) fn arrived(&self, index: u32) -> u64 {
        self.slots[index as usize].arrived
    }

    /// Whether all that slots hold is on its way: nothing waits for room, or for a parent.
    pub(crate) fn are_at_rest(&self) -> bool {
        self.slots.iter().all(|slot| matches!(slot.state, SlotState::Empty | SlotState::Aggregating | SlotState::Done))
    }

    /// Numbers of slots that hold something.
    pub(crate) fn in_use(&self) -> impl Iterator<Item = u32> + '_ {
        (0..self.slots.len() as u32).filter(|index| self.peek(*index).state != SlotState::Empty)
    }

    /// Whether a child has contributed to the slot.
    #[inline]
    pub(crate) fn has_arrived(&self, index: u32, child: u16) -> bool {
        let word = if child < 64 { self.slots[index as usize].arrived } else { self.arrived[self.word(index, child)] };
        (word >> (child % 64)) & 1 == 1
    }

    /// A child contributes; gives the number of children that are missing now.
    #[inline]
    pub(crate) fn mark_arrived(&mut self, index: u32, child: u16) -> u32 {
        let word = self.word(index, child);
        let slot = &mut self.slots[index as usize];
        let bits = if child < 64 { &mut slot.arrived } else { &mut self.arrived[word] };
        *bits |= 1 << (child % 64);
        slot.missing -= 1;
        slot.missing
    }

    /// Where the bit of a child from 64 on is.
    #[inline]
    fn word(&self, index: u32, child: u16) -> usize {
        (index as usize * self.words + usize::from(child) / 64).wrapping_sub(1)
    }

    #[inline]
    pub(crate) fn forget_arrivals(&mut self, index: u32) {
        self.slots[index as usize].arrived = 0;
        let from = index as usize * self.words;
        self.arrived[from..from + self.words].fill(0);
    }

    /// The first of `children` children that has not contributed.
    pub(crate) fn first_missing(&self, index: u32, children: usize) -> Option<usize> {
        (0..children).find(|child| !self.has_arrived(index, *child as u16))
    }

    /// Makes times relative to `now`.
    pub(crate) fn rebase(&mut self, now: Instant) {
        for slot in &mut self.slots {
            slot.asked_at = rebased(slot.asked_at, now);
        }
    }
}
