//! What a switch sees, for whoever wants to write it down: copies of frames, handed over in batches to another thread.
//!
//! The switch never waits: memory is fixed, and a frame for which there is none is counted instead of kept.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

/// Batches that go around between both sides.
const BATCHES: usize = 8;
/// Bytes of frames in a batch: several of the longest.
const BATCH_BYTES: usize = 1 << 20;
/// Frames in a batch.
const BATCH_FRAMES: usize = 4_096;

/// A frame at a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Seen {
    /// Since the switch began, in nanoseconds.
    pub at_ns: u64,
    /// The port.
    pub port: usize,
    /// It left there; otherwise it came.
    pub left: bool,
    start: usize,
    end: usize,
}

/// Frames in the order in which they were seen.
#[derive(Debug)]
pub struct TapBatch {
    seen: Vec<Seen>,
    bytes: Vec<u8>,
}

impl TapBatch {
    fn new() -> Self {
        TapBatch { seen: Vec::with_capacity(BATCH_FRAMES), bytes: Vec::with_capacity(BATCH_BYTES) }
    }

    /// The frames.
    pub fn frames(&self) -> impl Iterator<Item = (Seen, &[u8])> {
        self.seen.iter().map(|seen| (*seen, &self.bytes[seen.start..seen.end]))
    }

    fn has_room(&self, bytes: usize) -> bool {
        self.seen.len() < BATCH_FRAMES && self.bytes.len() + bytes <= BATCH_BYTES
    }
}

/// The switch's side.
#[derive(Debug)]
pub struct Tap {
    free: Receiver<TapBatch>,
    full: SyncSender<TapBatch>,
    batch: Option<TapBatch>,
    frames_left: u64,
    missed: u64,
}

/// The writer's side.
#[derive(Debug)]
pub struct TapReader {
    free: SyncSender<TapBatch>,
    full: Receiver<TapBatch>,
}

/// Both sides; at most `frames_max` frames are kept, the first ones.
pub fn tap(frames_max: u64) -> (Tap, TapReader) {
    let (give, free) = sync_channel(BATCHES);
    let (full, take) = sync_channel(BATCHES);
    // There is room for all of them: nobody listens yet, and nobody is needed.
    (0..BATCHES).for_each(|_| _ = give.try_send(TapBatch::new()));
    (Tap { free, full, batch: None, frames_left: frames_max, missed: 0 }, TapReader { free: give, full: take })
}

impl Tap {
    /// A frame comes to a port, or leaves there.
    pub fn note(&mut self, at_ns: u64, port: usize, left: bool, frame: &[u8]) {
        if self.frames_left == 0 {
            return;
        }
        if self.batch.as_ref().is_some_and(|batch| !batch.has_room(frame.len())) {
            self.flush();
        }
        if self.batch.is_none() {
            self.batch = self.free.try_recv().ok();
        }
        let Some(batch) = self.batch.as_mut().filter(|batch| batch.has_room(frame.len())) else {
            self.missed += 1;
            return;
        };
        let start = batch.bytes.len();
        batch.bytes.extend_from_slice(frame);
        batch.seen.push(Seen { at_ns, port, left, start, end: batch.bytes.len() });
        self.frames_left -= 1;
        if self.frames_left == 0 {
            self.flush();
        }
    }

    /// Hands over what is there.
    pub fn flush(&mut self) {
        if let Some(batch) = self.batch.take_if(|batch| !batch.seen.is_empty()) {
            // There is room for all that there are; a writer that has gone does not matter to the switch.
            if self.full.try_send(batch).is_err() {
                self.frames_left = 0;
            }
        }
    }

    /// Frames for which there was no room since the writer was too slow.
    pub fn missed(&self) -> u64 {
        self.missed
    }
}

impl TapReader {
    /// Waits for a batch and gives it to `take`; `false` once the switch has ended and all has been taken.
    ///
    /// # Errors
    /// Those of `take`.
    pub fn next<E>(&self, take: impl FnOnce(&TapBatch) -> Result<(), E>) -> Result<bool, E> {
        let Ok(mut batch) = self.full.recv() else { return Ok(false) };
        take(&batch)?;
        batch.seen.clear();
        batch.bytes.clear();
        // The switch may have ended.
        let _ = self.free.try_send(batch);
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_come_out_as_they_went_in_and_no_more_than_asked_for() {
        let (mut tap, reader) = tap(3);
        for number in 0..5u8 {
            tap.note(u64::from(number), usize::from(number), number == 1, &[number; 4]);
        }
        drop(tap);
        let mut got = Vec::new();
        let mut take = |batch: &TapBatch| {
            got.extend(batch.frames().map(|(seen, frame)| (seen.at_ns, seen.port, seen.left, frame.to_vec())));
            Ok::<(), ()>(())
        };
        assert_eq!(reader.next(&mut take), Ok(true));
        assert_eq!(reader.next(&mut take), Ok(false));
        assert_eq!(got, [(0, 0, false, vec![0; 4]), (1, 1, true, vec![1; 4]), (2, 2, false, vec![2; 4])]);
    }

    #[test]
    fn a_slow_writer_costs_frames_and_neither_time_nor_memory() {
        let (mut tap, reader) = tap(u64::MAX);
        let frame = vec![7; 60_000];
        let per_batch = BATCH_BYTES / frame.len();
        for number in 0..100 * per_batch {
            tap.note(number as u64, 0, false, &frame);
        }
        assert_eq!(tap.missed() as usize, (100 - BATCHES) * per_batch);
        let batch = reader.full.try_recv().unwrap();
        assert_eq!((batch.frames().count(), batch.bytes.capacity()), (per_batch, BATCH_BYTES));
        // Somebody reads again.
        assert_eq!(reader.next(|_| Ok::<(), ()>(())), Ok(true));
        tap.note(0, 0, false, &frame);
        assert_eq!(tap.missed() as usize, (100 - BATCHES) * per_batch);
    }
}
