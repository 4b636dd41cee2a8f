//! Datagrams of one size for one destination, gathered so that one system call sends them all.

use std::collections::VecDeque;

use crate::DATAGRAM_BYTES_MAX;

/// One batch: every datagram is as long as the first, except that a shorter one ends the batch (the kernel cuts it that way).
#[derive(Debug)]
pub(crate) struct Batch {
    buffer: Box<[u8]>,
    used: usize,
    /// Length of every datagram but the last; 0 while the batch is empty.
    segment: usize,
    count: usize,
    /// Bytes at the front that have been sent; only where the kernel cannot cut, or could not take everything.
    pub(crate) sent: usize,
    finished: bool,
}

impl Batch {
    fn new(capacity: usize) -> Self {
        Batch { buffer: vec![0; capacity].into(), used: 0, segment: 0, count: 0, sent: 0, finished: false }
    }

    /// Forgets all datagrams.
    fn clear(&mut self) {
        (self.used, self.segment, self.count, self.sent, self.finished) = (0, 0, 0, 0, false);
    }

    fn fits(&self, bytes: usize) -> bool {
        self.count == 0 || (!self.finished && bytes <= self.segment && self.used + bytes <= self.buffer.len())
    }

    /// Where the next datagram of `bytes` bytes goes; it counts once it is [committed](Batch::commit).
    fn slot(&mut self, bytes: usize) -> &mut [u8] {
        &mut self.buffer[self.used..self.used + bytes]
    }

    /// Adds the datagram that was written to the slot.
    fn commit(&mut self, bytes: usize, segments_max: usize) {
        if self.count == 0 {
            self.segment = bytes;
        }
        self.used += bytes;
        self.count += 1;
        self.finished = bytes < self.segment || self.count >= segments_max || self.used + self.segment > self.buffer.len();
    }

    /// What is still to be sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.buffer[self.sent..self.used]
    }

    /// Length of the datagrams.
    pub(crate) fn segment(&self) -> usize {
        self.segment
    }
}

/// Batches for one destination in the order in which they leave: the last one is being filled, the ones before it wait for room in
/// the kernel's send buffer. Memory is fixed.
#[derive(Debug)]
pub(crate) struct Lane {
    waiting: VecDeque<Batch>,
    /// Empty batches; the one used last is on top, since its memory is in the cache.
    spare: Vec<Batch>,
    bytes: usize,
}

impl Lane {
    /// A lane of `batches` batches of `capacity` bytes each.
    pub(crate) fn new(batches: usize, capacity: usize) -> Self {
        let capacity = capacity.min(DATAGRAM_BYTES_MAX);
        Lane { waiting: VecDeque::with_capacity(batches), spare: (0..batches).map(|_| Batch::new(capacity)).collect(), bytes: 0 }
    }

    /// Bytes that wait to be sent.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Whether nothing waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Whether a datagram of `bytes` bytes can be taken without sending anything first.
    pub(crate) fn has_room(&self, bytes: usize) -> bool {
        self.waiting.back().is_some_and(|batch| batch.fits(bytes)) || !self.spare.is_empty()
    }

    /// Whether the batch that is being filled takes a datagram of `bytes` bytes.
    pub(crate) fn joins(&self, bytes: usize) -> bool {
        self.waiting.back().is_some_and(|batch| batch.fits(bytes))
    }

    /// Where the next datagram of `bytes` bytes goes; `None` where every batch is full.
    pub(crate) fn slot(&mut self, bytes: usize) -> Option<&mut [u8]> {
        if !self.joins(bytes) {
            let batch = self.spare.pop()?;
            self.waiting.push_back(batch);
        }
        self.waiting.back_mut().map(|batch| batch.slot(bytes))
    }

    /// Adds the datagram that was written to the slot. Says whether its batch is finished: no other datagram joins it.
    pub(crate) fn commit(&mut self, bytes: usize, segments_max: usize) -> bool {
        let Some(batch) = self.waiting.back_mut() else { return false };
        batch.commit(bytes, segments_max);
        self.bytes += bytes;
        batch.finished
    }

    /// Gives the slot back without a datagram.
    pub(crate) fn retract(&mut self) {
        if self.waiting.back().is_some_and(|batch| batch.count == 0)
            && let Some(batch) = self.waiting.pop_back()
        {
            self.spare.push(batch);
        }
    }

    /// The batch that leaves next.
    pub(crate) fn first_mut(&mut self) -> Option<&mut Batch> {
        self.waiting.front_mut()
    }

    /// The first batch is done with.
    pub(crate) fn pop(&mut self) {
        if let Some(mut batch) = self.waiting.pop_front() {
            self.bytes -= batch.used;
            batch.clear();
            self.spare.push(batch);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn push(lane: &mut Lane, bytes: usize) -> bool {
        lane.slot(bytes).unwrap().fill(bytes as u8);
        lane.commit(bytes, 4)
    }

    #[test]
    fn a_shorter_datagram_ends_a_batch_and_a_longer_one_begins_another() {
        let mut lane = Lane::new(3, 1_000);
        assert!(!push(&mut lane, 100));
        assert!(!push(&mut lane, 100));
        assert!(push(&mut lane, 40));
        assert!(!push(&mut lane, 100));
        assert!(!lane.joins(101));
        assert!(!push(&mut lane, 101));
        assert_eq!(lane.bytes(), 441);
        assert!(lane.slot(102).is_none(), "three batches hold three sizes");
        let lengths: Vec<(usize, usize)> = std::iter::from_fn(|| {
            let seen = lane.first_mut().map(|batch| (batch.segment(), batch.unsent().len()));
            lane.pop();
            seen
        })
        .collect();
        assert_eq!(lengths, [(100, 240), (100, 100), (101, 101)]);
        assert_eq!(lane.bytes(), 0);
    }

    #[test]
    fn a_batch_ends_at_the_segment_limit_and_at_its_capacity() {
        let mut lane = Lane::new(2, 1_000);
        assert_eq!([10, 10, 10, 10].map(|bytes| push(&mut lane, bytes)), [false, false, false, true]);
        assert_eq!([400, 400].map(|bytes| push(&mut lane, bytes)), [false, true]);
    }

    #[test]
    fn a_retracted_slot_leaves_nothing_behind() {
        let mut lane = Lane::new(1, 1_000);
        lane.slot(10).unwrap();
        lane.retract();
        assert!(lane.is_empty());
        push(&mut lane, 20);
        lane.slot(20).unwrap();
        lane.retract();
        assert_eq!(lane.first_mut().unwrap().unsent(), [20; 20]);
    }
}
