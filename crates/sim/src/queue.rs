//! The event queue: a calendar of narrow buckets, with a heap for what lies beyond its horizon.
//!
//! Events are ordered by (time, id), a total order that does not depend on when they were inserted, so the bucket width is a matter of
//! speed only and never changes a result. An id has at most one live event at a time (a link's next arrival, a node's deadline), so
//! an event is eight bytes: its offset within the bucket and its id. A bucket with many events of one time, which is what most of them
//! are like where frames are equally long, is not sorted: its ids are bits of a set.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Number of buckets; a power of two.
const BUCKETS: usize = 16_384;

/// Events in a chunk: with the fields around them it fills two cache lines.
const CHUNK: usize = 15;

/// No chunk.
const NONE: u32 = u32::MAX;

/// Some events of one bucket.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(64))]
struct Chunk {
    keys: [u64; CHUNK],
    /// How many there are.
    count: u32,
    /// The bucket's next chunk, from the last one its first; or the next free chunk.
    next: u32,
}

/// The chunks of all buckets. Memory grows to the most events that were ever pending at once; what was freed last is used first, so
/// that it stays in the processor's caches however many buckets the events wander through.
#[derive(Debug)]
struct Chunks {
    all: Vec<Chunk>,
    free: u32,
}

impl Chunks {
    /// A chunk with one event, behind `last` of its bucket if there is one. Gives its number.
    #[inline]
    fn add(&mut self, last: u32, key: u64) -> u32 {
        let number = self.take();
        let next = if last == NONE { number } else { std::mem::replace(&mut self.all[last as usize].next, number) };
        let chunk = &mut self.all[number as usize];
        chunk.keys[0] = key;
        (chunk.count, chunk.next) = (1, next);
        number
    }

    #[inline]
    fn take(&mut self) -> u32 {
        let number = self.free;
        if number != NONE {
            self.free = self.all[number as usize].next;
            return number;
        }
        self.all.push(Chunk { keys: [0; CHUNK], count: 0, next: NONE });
        (self.all.len() - 1) as u32
    }

    /// Calls for the events of each chunk of the bucket whose last one this is, in the order in which they were added.
    #[inline(always)]
    fn of_bucket(&self, last: u32, mut look: impl FnMut(&[u64])) {
        let mut number = self.all[last as usize].next;
        loop {
            let chunk = &self.all[number as usize];
            look(&chunk.keys[..chunk.count as usize]);
            if number == last {
                return;
            }
            number = chunk.next;
        }
    }

    /// Frees the chunks of the bucket whose last one this is.
    #[inline]
    fn free(&mut self, last: u32) {
        let first = self.all[last as usize].next;
        self.all[last as usize].next = std::mem::replace(&mut self.free, first);
    }
}

/// A priority queue of (time in ps, id).
#[derive(Debug)]
pub struct EventQueue {
    /// Log2 of the bucket width in ps.
    shift: u32,
    /// Bucket b holds events of the absolute buckets congruent to b, at most one lap ahead; each is `time << 32 | id`, unsorted. The low
    /// half of the time tells the order within a bucket. This is the last chunk of each.
    buckets: Box<[u32; BUCKETS]>,
    chunks: Chunks,
    /// Bit b tells whether `buckets[b]` holds something.
    occupied: Box<[u64; BUCKETS / 64]>,
    /// Number of the bucket being drained, counted from time 0.
    cursor: u64,
    /// High half of the times in it.
    high: u64,
    /// That bucket's events, where they are many of one time.
    ids: IdSet,
    /// The others, sorted, and how many of them have been removed.
    current: Vec<u64>,
    removed: usize,
    /// Events a lap or more ahead.
    far: BinaryHeap<Reverse<(u64, u32)>>,
    /// Bucket number of the first event in `far`.
    far_bucket: u64,
}

impl EventQueue {
    /// A queue for a simulation in which about one event happens every `mean_gap_ps`, and ids are below `ids`.
    pub fn new(mean_gap_ps: u64, ids: u32) -> Self {
        // About four events a bucket: small enough to sort by insertion, wide enough to skip few empty buckets.
        let shift = (mean_gap_ps.max(1) * 4).next_power_of_two().trailing_zeros().clamp(6, 20);
        EventQueue {
            shift,
            buckets: vec![NONE; BUCKETS].try_into().expect("so many buckets"),
            chunks: Chunks { all: Vec::new(), free: NONE },
            occupied: Box::new([0; BUCKETS / 64]),
            cursor: 0,
            high: 0,
            current: Vec::new(),
            removed: 0,
            ids: IdSet::new(ids),
            far: BinaryHeap::new(),
            far_bucket: u64::MAX,
        }
    }

    /// Adds an event. `time` must not lie before the last one popped.
    #[inline(always)]
    pub fn push(&mut self, time: u64, id: u32) {
        let bucket = time >> self.shift;
        let key = time << 32 | u64::from(id);
        let ahead = bucket.wrapping_sub(self.cursor);
        if ahead.wrapping_sub(1) < BUCKETS as u64 - 1 {
            self.insert(bucket, key);
        } else {
            self.push_elsewhere(time, id, bucket, key);
        }
    }

    /// Adds an event of the bucket being drained, or one beyond the horizon.
    #[cold]
    fn push_elsewhere(&mut self, time: u64, id: u32, bucket: u64, key: u64) {
        if bucket == self.cursor {
            let at = self.removed + self.current[self.removed..].partition_point(|&other| other < key);
            self.current.insert(at, key);
        } else {
            debug_assert!(bucket > self.cursor, "event in the past");
            self.far.push(Reverse((time, id)));
            self.far_bucket = self.far_bucket.min(bucket);
        }
    }

    #[inline(always)]
    fn insert(&mut self, bucket: u64, key: u64) {
        let index = bucket as usize % BUCKETS;
        let last = self.buckets[index];
        if let Some(chunk) = self.chunks.all.get_mut(last as usize)
            && let Some(place) = chunk.keys.get_mut(chunk.count as usize)
        {
            *place = key;
            chunk.count += 1;
        } else {
            self.insert_chunk(index, key);
        }
    }

    /// The bucket's last chunk is full, or the bucket is empty.
    #[inline(never)]
    fn insert_chunk(&mut self, index: usize, key: u64) {
        self.occupied[index / 64] |= 1 << (index % 64);
        self.buckets[index] = self.chunks.add(self.buckets[index], key);
    }

    /// Removes the first event: its time and id.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<(u64, u32)> {
        loop {
            if self.ids.is_empty() {
                if let Some(&key) = self.current.get(self.removed) {
                    self.removed += 1;
                    return Some((self.high | key >> 32, key as u32));
                }
            } else if self.removed == self.current.len() {
                return Some((self.ids.time, self.ids.pop()));
            } else {
                return Some(self.pop_of_both());
            }
            if !self.advance() {
                return None;
            }
        }
    }

    /// Something was added to the bucket while it is being drained.
    #[cold]
    fn pop_of_both(&mut self) -> (u64, u32) {
        let key = self.current[self.removed];
        let event = (self.high | key >> 32, key as u32);
        if (self.ids.time, self.ids.first()) < event {
            return (self.ids.time, self.ids.pop());
        }
        self.removed += 1;
        event
    }

    /// The first event, which stays. Takes longer than to remove it.
    pub fn peek(&self) -> Option<(u64, u32)> {
        let current = self.current.get(self.removed).map(|&key| (self.high | key >> 32, key as u32));
        let of_set = (!self.ids.is_empty()).then(|| (self.ids.time, self.ids.first()));
        if let Some(first) = current.into_iter().chain(of_set).min() {
            return Some(first);
        }
        let near = self.next_occupied().map(|bucket| {
            let (mut least, high) = (u64::MAX, (bucket << self.shift) & !u64::from(u32::MAX));
            let keys = |keys: &[u64]| least = keys.iter().fold(least, |least, key| least.min(*key));
            self.chunks.of_bucket(self.buckets[bucket as usize % BUCKETS], keys);
            (high | least >> 32, least as u32)
        });
        let far = self.far.peek().map(|&Reverse(event)| event);
        near.into_iter().chain(far).min()
    }

    /// Whether no event is pending.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty() && self.removed == self.current.len() && self.far.is_empty() && self.occupied.iter().all(|&word| word == 0)
    }

    /// Moves the cursor to the next bucket that holds something.
    fn advance(&mut self) -> bool {
        let near = self.next_occupied();
        let target = near.unwrap_or(u64::MAX).min(self.far_bucket);
        if target == u64::MAX {
            return false;
        }
        self.cursor = target;
        self.high = (target << self.shift) & !u64::from(u32::MAX);
        if self.far_bucket < target + BUCKETS as u64 {
            self.bring_near();
        }
        let index = target as usize % BUCKETS;
        self.removed = 0;
        let last = std::mem::replace(&mut self.buckets[index], NONE);
        self.occupied[index / 64] &= !(1 << (index % 64));
        self.current.clear();
        if last != NONE {
            if !self.ids.fill(&self.chunks, last, self.high) {
                self.chunks.of_bucket(last, |keys| self.current.extend_from_slice(keys));
                sort(&mut self.current);
            }
            self.chunks.free(last);
        }
        true
    }

    /// The absolute number of the first occupied bucket after the cursor.
    #[inline]
    fn next_occupied(&self) -> Option<u64> {
        let start = (self.cursor as usize + 1) % BUCKETS;
        let first = self.occupied[start / 64] >> (start % 64);
        if first != 0 {
            return Some(self.cursor + 1 + u64::from(first.trailing_zeros()));
        }
        let words = BUCKETS / 64;
        let to_boundary = (64 - start % 64) as u64;
        for step in 1..=words {
            let word = self.occupied[(start / 64 + step) % words];
            if word != 0 {
                let bit = u64::from(word.trailing_zeros());
                return Some(self.cursor + 1 + to_boundary + (step as u64 - 1) * 64 + bit);
            }
        }
        None
    }

    /// Moves events from the heap that now lie within a lap.
    fn bring_near(&mut self) {
        while let Some(&Reverse((time, id))) = self.far.peek() {
            let bucket = time >> self.shift;
            if bucket >= self.cursor + BUCKETS as u64 {
                self.far_bucket = bucket;
                return;
            }
            self.far.pop();
            self.insert(bucket, time << 32 | u64::from(id));
        }
        self.far_bucket = u64::MAX;
    }
}

/// Events of one time in the order of their ids, without comparing them: where frames are equally long, as most are, many things happen at
/// once.
#[derive(Debug)]
struct IdSet {
    time: u64,
    /// Bits of the word that is being emptied, whose first one is id `base`; 0 only where nothing is left.
    bits: u64,
    base: u32,
    /// Number of the part that is being emptied, and what is left of it.
    part: usize,
    part_bits: u64,
    /// Bit i of word w: id 64 w + i.
    words: Box<[u64; IdSet::WORDS]>,
    /// Bit i of part p: word 64 p + i is not 0.
    parts: [u64; IdSet::PARTS],
    /// How many parts there can be something in; none where there are ids that find no place.
    parts_used: usize,
}

impl IdSet {
    /// So many words cover a quarter of a million ids, more than the largest networks here have.
    const WORDS: usize = 4096;
    const PARTS: usize = Self::WORDS / 64;

    /// A set of ids below `ids`.
    fn new(ids: u32) -> Self {
        let parts = (ids as usize).div_ceil(64 * 64);
        IdSet {
            time: 0,
            bits: 0,
            base: 0,
            part: 0,
            part_bits: 0,
            words: vec![0; Self::WORDS].try_into().expect("so many words"),
            parts: [0; Self::PARTS],
            parts_used: if parts <= Self::PARTS { parts } else { 0 },
        }
    }

    #[inline(always)]
    fn is_empty(&self) -> bool {
        self.bits == 0
    }

    /// The first id.
    #[inline(always)]
    fn first(&self) -> u32 {
        self.base + self.bits.trailing_zeros()
    }

    /// Removes the first id.
    #[inline(always)]
    fn pop(&mut self) -> u32 {
        let first = self.first();
        self.bits &= self.bits - 1;
        if self.bits == 0 {
            self.next_word();
        }
        first
    }

    #[inline(always)]
    fn next_word(&mut self) {
        while self.part_bits == 0 {
            self.part += 1;
            if self.part >= self.parts_used {
                return;
            }
            self.part_bits = std::mem::take(&mut self.parts[self.part % Self::PARTS]);
        }
        let word = self.part * 64 + self.part_bits.trailing_zeros() as usize;
        self.part_bits &= self.part_bits - 1;
        self.base = word as u32 * 64;
        self.bits = std::mem::take(&mut self.words[word % Self::WORDS]);
    }

    /// Takes in the events of the bucket whose last chunk this is; false, and nothing is taken in, where they are few, not all of one time,
    /// or one is there twice. `high` is the high half of their times.
    fn fill(&mut self, chunks: &Chunks, last: u32, high: u64) -> bool {
        let first = chunks.all[last as usize].next;
        if first == last || self.parts_used == 0 {
            return false;
        }
        let key = chunks.all[first as usize].keys[0];
        let (mut differences, mut twice) = (0, false);
        let IdSet { words, parts, .. } = self;
        chunks.of_bucket(last, |keys| {
            for &other in keys {
                differences |= other ^ key;
                let id = other as u32 as usize;
                let word = &mut words[id / 64 % Self::WORDS];
                let with = *word | 1 << (id % 64);
                twice |= with == *word;
                *word = with;
                parts[id / (64 * 64) % Self::PARTS] |= 1 << (id / 64 % 64);
            }
        });
        if differences >> 32 != 0 || twice {
            self.empty();
            return false;
        }
        self.time = high | key >> 32;
        (self.part, self.part_bits) = (0, std::mem::take(&mut self.parts[0]));
        self.next_word();
        true
    }

    /// Empties it at once.
    fn empty(&mut self) {
        self.words[..self.parts_used * 64].fill(0);
        self.parts.fill(0);
    }
}

/// So many events are sorted by insertion.
const FEW: usize = 32;

#[inline]
fn sort(events: &mut [u64]) {
    if events.len() <= FEW { sort_by_insertion(events) } else { events.sort_unstable() }
}

#[inline]
fn sort_by_insertion(events: &mut [u64]) {
    for end in 1..events.len() {
        let event = events[end];
        let mut place = end;
        while place > 0 && events[place - 1] > event {
            events[place] = events[place - 1];
            place -= 1;
        }
        events[place] = event;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::hash::mix;
    use std::collections::BTreeSet;

    #[test]
    fn many_events_of_one_time_come_by_id_also_those_that_are_there_twice() {
        // The last one has more ids than there are places in the set; in the last but one buckets hold events of several times.
        for (ids, step) in [(300u32, 1_000u64), (20_000, 1_000), (20_000, 20), (1 << 20, 1_000)] {
            let (mut queue, mut model) = (EventQueue::new(20, ids), BTreeSet::new());
            let (mut now, mut pops) = (0, 0u64);
            for round in 0..300_000u64 {
                let draw = mix(u64::from(ids), round);
                // A third of the events are of the present time, and some of those before what was popped last.
                let ahead = [0, 1, 3][(draw % 3) as usize];
                let event = (now + ahead * step, (draw >> 32) as u32 % ids);
                let doubled = 1 + u64::from(draw.is_multiple_of(97));
                for copy in 0..doubled {
                    model.insert((event, round * 2 + copy));
                    queue.push(event.0, event.1);
                }
                // Two are added for each that is removed, until there are many.
                for _ in 0..if model.len() > 2_000 { 3 } else { (draw >> 16) % 2 } {
                    let expected = model.pop_first().map(|(event, _)| event);
                    assert_eq!(queue.peek(), expected, "{ids} ids, round {round}");
                    assert_eq!(queue.pop(), expected, "{ids} ids, round {round}");
                    now = expected.map_or(now, |event| event.0);
                    pops += 1;
                }
            }
            assert!(pops > 200_000, "{pops}");
            while let Some((expected, _)) = model.pop_first() {
                assert!(!queue.is_empty());
                assert_eq!(queue.pop(), Some(expected));
            }
            assert!(queue.is_empty() && queue.pop().is_none());
        }
    }

    #[test]
    fn agrees_with_a_sorted_set_whatever_the_bucket_width() {
        for gap in [1, 100, 5_000, 1 << 30] {
            let (mut queue, mut model) = (EventQueue::new(gap, 1 << 16), BTreeSet::new());
            let mut now = 0;
            for round in 0..200_000u64 {
                let draw = mix(gap, round);
                if draw % 5 < 3 {
                    let ahead = match draw >> 8 & 15 {
                        0 => 0,
                        1 => draw >> 16 & 0xffff_ffff,
                        2 => draw >> 16 & 0xff,
                        _ => draw >> 16 & 0xf_ffff,
                    };
                    let event = (now + ahead, (draw >> 40) as u32 & 0xffff);
                    if model.insert(event) {
                        queue.push(event.0, event.1);
                    }
                } else {
                    let expected = model.pop_first();
                    assert_eq!(queue.peek(), expected, "gap {gap}, round {round}");
                    assert_eq!(queue.pop(), expected, "gap {gap}, round {round}");
                    now = expected.map_or(now, |event| event.0);
                }
            }
            while let Some(expected) = model.pop_first() {
                assert_eq!(queue.pop(), Some(expected));
            }
            assert_eq!(queue.pop(), None);
        }
    }
}
