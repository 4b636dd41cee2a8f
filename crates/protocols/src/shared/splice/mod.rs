//! Sums inside byte streams: NetReduce's accelerator where transports cut the bytes as they like (`netreduce 5.2`).
//!
//! Each worker of a ring sends the same messages by its own connection. What arrives of a stream is cut anywhere, comes in any order and
//! more than once, cut anew each time; so everything here goes by the offset in the stream. The first copy of a byte counts (a
//! transport sends the same bytes again, `netreduce P7`), contributions are kept apart until all are there and are then reduced in the
//! order of ranks (`netreduce P6`), so that the same vectors give the same bits. A result is kept until every receiver has
//! acknowledged it: a segment that is sent again is answered at once, however late.
//!
//! Messages begin at multiples of eight bytes ([`fanin_wire::stream`]), so no element is torn where memory wraps.
//!
//! In a tree of switches a splice sums what is behind its own switch ([`Splice::gather`]): the sum is a stream as a worker's is, and takes the
//! place of its first rank one level up. What all have comes back from there ([`Splice::give`], `netreduce 5.7`).

mod intervals;

use std::collections::VecDeque;
use std::fmt;
use std::ops::Range;

use fanin_core::{ElementOp, Malformed, Operator, OrderedReduction};
use fanin_wire::stream::{MessageHeader, SEAL_BYTES, checksum, seal};

pub use intervals::Intervals;

/// Results are computed piece by piece, so that a piece stays in the processor's first cache while all contributions pass by.
const TILE_BYTES: u64 = 8 << 10;
/// What elements, headers and messages are aligned to.
const ALIGNMENT: u64 = 8;

/// Why the streams of a ring cannot be summed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpliceError {
    /// Where a message must begin there is no header.
    Malformed {
        /// Whose stream it is.
        rank: u16,
        /// Offset in the stream.
        at: u64,
        /// What is wrong.
        error: Malformed,
    },
    /// A worker's header differs from another's of the same message.
    Disagreement {
        /// Whose header it is.
        rank: u16,
        /// Number of the message.
        message: u32,
        /// In what it differs.
        field: &'static str,
    },
    /// A result is given to which this part of the tree has not contributed.
    Unasked {
        /// Where it begins.
        at: u64,
    },
}

impl fmt::Display for SpliceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SpliceError::Malformed { rank, at, error } => write!(f, "no message begins at byte {at} of rank {rank}'s stream: {error}"),
            SpliceError::Disagreement { rank, message, field } => {
                write!(f, "rank {rank}'s message {message} has another `{field}` than the other ranks'")
            }
            SpliceError::Unasked { at } => write!(f, "a result of byte {at} comes before the sums that it needs have been sent"),
        }
    }
}

impl std::error::Error for SpliceError {}

/// What became of bytes that were inserted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inserted {
    /// They are kept, or were there before.
    Taken,
    /// They lie beyond the memory: nothing was taken, and the sender has to send them again.
    TooFar,
}

/// Why nothing moves.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waits {
    /// The first byte whose result is missing.
    pub at: u64,
    /// The message that it belongs to.
    pub message: u32,
    /// The ranks that have not sent it, or what is next to be sent on where this is a part of the ring.
    pub ranks: Vec<u16>,
}

/// What a worker has sent.
#[derive(Debug)]
struct Contribution {
    bytes: Box<[u8]>,
    there: Intervals,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    start: u64,
    header: MessageHeader,
    /// Up to where its result is in the checksum.
    checked: u64,
    crc: u32,
}

impl Message {
    fn end(&self) -> u64 {
        self.start + self.header.stream_bytes()
    }

    /// Where its seal begins.
    fn seal_at(&self) -> u64 {
        self.start + self.header.sealed_bytes()
    }
}

/// The streams of one ring.
#[derive(Debug)]
pub struct Splice {
    ring: u32,
    world: u16,
    /// A power of two; byte `at` of a stream is at `at % capacity`.
    capacity: u64,
    /// All receivers have what lies below.
    base: u64,
    contributions: Vec<Contribution>,
    result: Box<[u8]>,
    complete: Intervals,
    /// Whose contributions are summed, in this order.
    summed: Box<[u16]>,
    /// Where that is a part of the ring only: which bytes of `result` hold, or have held, the sum of the part.
    part: Option<Intervals>,
    /// Messages that are known and not acknowledged by all, the first one first.
    messages: VecDeque<Message>,
    /// Where the first message begins that is not known yet, and its number.
    framed: u64,
    next_message: u32,
    reduction: OrderedReduction,
}

impl Splice {
    /// Streams of `world` workers that have not begun; `capacity` bytes of each are kept, a power of two of at least 64. Memory is
    /// touched only where streams need it.
    pub fn new(ring: u32, world: u16, capacity: usize) -> Self {
        let capacity = capacity.next_power_of_two().max(64);
        let zeros = |bytes: usize| vec![0u8; bytes].into_boxed_slice();
        Splice {
            ring,
            world,
            capacity: capacity as u64,
            base: 0,
            contributions: (0..world).map(|_| Contribution { bytes: zeros(0), there: Intervals::default() }).collect(),
            result: zeros(capacity),
            complete: Intervals::default(),
            summed: (0..world).collect(),
            part: None,
            messages: VecDeque::new(),
            framed: 0,
            next_message: 0,
            reduction: OrderedReduction::default(),
        }
    }

    /// Bytes of a rank's stream from `offset` on. Ranges whose results are complete now are added to `complete`.
    ///
    /// # Errors
    /// [`SpliceError`]: the ring cannot go on.
    pub fn insert(&mut self, rank: u16, offset: u64, bytes: &[u8], complete: &mut Vec<Range<u64>>) -> Result<Inserted, SpliceError> {
        let end = offset + bytes.len() as u64;
        if end > self.base + self.capacity {
            return Ok(Inserted::TooFar);
        }
        let range = offset.max(self.base)..end;
        let contribution = &mut self.contributions[usize::from(rank)];
        // Not before: a header may claim workers that never come.
        if contribution.bytes.is_empty() {
            contribution.bytes = vec![0; self.capacity as usize].into_boxed_slice();
        }
        while let Some(missing) = contribution.there.next_missing(&range) {
            let from = &bytes[(missing.start - offset) as usize..(missing.end - offset) as usize];
            write(&mut contribution.bytes, missing.start, from);
            contribution.there.insert(missing);
        }
        let known = self.framed;
        self.compare_header(rank, &range)?;
        self.find_messages(rank)?;
        // What was there already of messages that are found now counts, too.
        let from = if self.framed > known { range.start.min(known) } else { range.start };
        let to = if self.framed > known { self.base + self.capacity } else { range.end };
        self.reduce(from / ALIGNMENT * ALIGNMENT..to.next_multiple_of(ALIGNMENT), complete)?;
        Ok(Inserted::Taken)
    }

    /// From now on the contributions of these ranks, in this order, make the sum: where a switch behind another one sums what it has itself, its
    /// sum comes as the contribution of its first rank. `is_part`: it is not the sum of all; [`Splice::insert`] then gives those ranges
    /// whose sums are to be sent on ([`Splice::part`]), and results are given ([`Splice::give`]). Ranges that are there already are added to
    /// `complete`. Only before anything is complete.
    ///
    /// # Errors
    /// As of [`Splice::insert`].
    pub fn gather(&mut self, ranks: &[u16], is_part: bool, complete: &mut Vec<Range<u64>>) -> Result<(), SpliceError> {
        self.summed = ranks.iter().copied().filter(|rank| *rank < self.world).collect();
        self.part = is_part.then(Intervals::default);
        self.reduce(self.base..self.base + self.capacity, complete)
    }

    /// The sum of a part of the ring, of a range that [`Splice::insert`] or [`Splice::gather`] has just named: until its result is given.
    pub fn part(&self, offset: u64, out: &mut [u8]) {
        self.read(offset, out);
    }

    /// Up to where the sum of a part of the ring is there, which is to be sent on; `None` where all are summed here.
    pub fn part_to(&self) -> Option<u64> {
        self.part.as_ref().map(|part| part.reach(self.base))
    }

    /// Results of all ranks for a part of the ring. Ranges that are complete now are added to `complete`.
    ///
    /// # Errors
    /// [`SpliceError::Unasked`]: nobody can have summed these bytes.
    pub fn give(&mut self, offset: u64, bytes: &[u8], complete: &mut Vec<Range<u64>>) -> Result<(), SpliceError> {
        let end = offset.checked_add(bytes.len() as u64).ok_or(SpliceError::Unasked { at: offset })?;
        let mut range = offset.max(self.base)..end;
        if range.start >= range.end {
            return Ok(());
        }
        if !self.part.as_ref().is_some_and(|part| part.contains(&range)) {
            return Err(SpliceError::Unasked { at: offset });
        }
        while let Some(missing) = self.complete.next_missing(&range) {
            write(&mut self.result, missing.start, &bytes[(missing.start - offset) as usize..(missing.end - offset) as usize]);
            range.start = missing.end;
            self.complete.insert(missing.clone());
            complete.push(missing);
        }
        Ok(())
    }

    /// Whether the results of all these bytes are there.
    pub fn is_complete(&self, range: &Range<u64>) -> bool {
        self.complete.contains(&(range.start.max(self.base)..range.end))
    }

    /// Up to where results are complete from `from` on.
    pub fn complete_to(&self, from: u64) -> u64 {
        self.complete.reach(from.max(self.base)).max(from)
    }

    /// The results of `out.len()` bytes from `offset` on. What lies below the oldest byte that is kept stays as it is in `out`: all
    /// receivers have it.
    pub fn read(&self, offset: u64, out: &mut [u8]) {
        let gone = (self.base.saturating_sub(offset) as usize).min(out.len());
        let mut at = offset + gone as u64;
        let mut rest = &mut out[gone..];
        while !rest.is_empty() {
            let place = (at % self.capacity) as usize;
            let length = rest.len().min(self.result.len() - place);
            let (now, later) = rest.split_at_mut(length);
            now.copy_from_slice(&self.result[place..place + length]);
            (at, rest) = (at + length as u64, later);
        }
    }

    /// All receivers have acknowledged what lies below `to`. More than what is complete is not believed.
    pub fn release(&mut self, to: u64) {
        self.base = self.base.max(to.min(self.complete.reach(self.base)));
        let base = self.base;
        self.complete.forget(base);
        if let Some(part) = &mut self.part {
            part.forget(base);
        }
        self.contributions.iter_mut().for_each(|contribution| contribution.there.forget(base));
        while self.messages.front().is_some_and(|message| message.end() <= base) {
            self.messages.pop_front();
        }
    }

    /// All receivers have what lies below.
    pub fn released(&self) -> u64 {
        self.base
    }

    /// What lies beyond is not taken yet.
    pub fn limit(&self) -> u64 {
        self.base + self.capacity
    }

    /// Up to where messages are known: beyond it none of the ranks has begun one.
    pub fn framed_to(&self) -> u64 {
        self.framed
    }

    /// Whether a rank's stream, which ends at `at`, has left a message unfinished.
    pub fn ends_inside(&self, rank: u16, at: u64) -> bool {
        let boundary = at == self.framed || at <= self.base || self.messages.iter().any(|message| message.start == at);
        !boundary && self.contributions[usize::from(rank)].there.reach(self.base) >= at
    }

    /// What is waited for; `None` where every byte that any worker has sent is summed.
    pub fn waits(&self) -> Option<Waits> {
        let at = self.complete.reach(self.base);
        let last = self.contributions.iter().map(|contribution| contribution.there.reach(at)).max()?;
        if last <= at
            && !self.contributions.iter().any(|contribution| contribution.there.next_within(&(at..self.base + self.capacity)).is_some())
        {
            return None;
        }
        // What this part has summed is waited for elsewhere.
        let from = self.part_to().unwrap_or(at);
        let beyond = from..self.base + self.capacity;
        let waits = self.contributions.iter().any(|contribution| contribution.there.next_within(&beyond).is_some());
        let lacks = |rank: &u16| waits && self.contributions[usize::from(*rank)].there.reach(from) == from;
        let ranks = self.summed.iter().copied().filter(lacks).collect();
        let message = self.messages.iter().find(|message| message.end() > at).map_or(self.next_message, |message| message.header.message);
        Some(Waits { at, message, ranks })
    }

    /// Reads the headers that this rank's stream has shown.
    fn find_messages(&mut self, rank: u16) -> Result<(), SpliceError> {
        loop {
            let contribution = &self.contributions[usize::from(rank)];
            let at = self.framed..self.framed + MessageHeader::LEN as u64;
            if at.start < self.base || !contribution.there.contains(&at) {
                return Ok(());
            }
            let header = self.header_of(rank, at.start)?;
            self.messages.push_back(Message { start: at.start, header, checked: at.start, crc: 0 });
            self.framed += header.stream_bytes();
            self.next_message = self.next_message.wrapping_add(1);
        }
    }

    /// As soon as a rank's header is there, it must agree with that of the first who came: what follows is read by that one.
    fn compare_header(&self, rank: u16, inserted: &Range<u64>) -> Result<(), SpliceError> {
        let header = |message: &Message| message.start..message.start + MessageHeader::LEN as u64;
        let there = &self.contributions[usize::from(rank)].there;
        let first = self.messages.partition_point(|message| header(message).end <= inserted.start);
        for message in self.messages.range(first..).take_while(|message| message.start < inserted.end) {
            if message.start >= self.base && there.contains(&header(message)) {
                let own = self.header_of(rank, message.start)?;
                if let Some(field) = message.header.disagreement(&own) {
                    return Err(SpliceError::Disagreement { rank, message: message.header.message, field });
                }
            }
        }
        Ok(())
    }

    /// A rank's header, checked as far as the ring itself says what must stand there.
    fn header_of(&self, rank: u16, at: u64) -> Result<MessageHeader, SpliceError> {
        let mut bytes = [0; MessageHeader::LEN];
        read(&self.contributions[usize::from(rank)].bytes, at, &mut bytes);
        let header = MessageHeader::parse(&bytes).map_err(|error| SpliceError::Malformed { rank, at, error })?;
        let message = self.messages.iter().find(|message| message.start == at).map_or(self.next_message, |message| message.header.message);
        let expected = MessageHeader { ring: self.ring, world: self.world, message, summed: 0, ..header };
        let field = expected.disagreement(&header).or((header.rank != rank).then_some("rank"));
        field.map_or(Ok(header), |field| Err(SpliceError::Disagreement { rank, message, field }))
    }

    /// Reduces what is there from all ranks, within `range`.
    fn reduce(&mut self, range: Range<u64>, complete: &mut Vec<Range<u64>>) -> Result<(), SpliceError> {
        let first = self.messages.partition_point(|message| message.end() <= range.start);
        for index in first..self.messages.len() {
            let message = self.messages[index];
            if message.start >= range.end {
                break;
            }
            let data = message.start + MessageHeader::LEN as u64;
            if range.start < data {
                self.compare_headers(&message, complete)?;
            }
            let mut part = range.start.max(data)..range.end.min(message.seal_at());
            while let Some(there) = self.there_from_all(&part) {
                part.start = there.end.max(part.start + 1);
                let mut whole = there.start.next_multiple_of(ALIGNMENT)..there.end / ALIGNMENT * ALIGNMENT;
                while let Some(missing) = self.done().next_missing(&whole) {
                    self.sum(&message.header, missing.clone());
                    whole.start = missing.end;
                    self.finish(missing, complete);
                }
            }
            self.seal(index, complete);
        }
        Ok(())
    }

    /// Takes what is complete of a message into its checksum; the last byte of it is followed by the seal.
    fn seal(&mut self, index: usize, complete: &mut Vec<Range<u64>>) {
        if self.part.is_some() {
            return self.end_part(index, complete);
        }
        let message = &mut self.messages[index];
        let to = self.complete.reach(message.checked).min(message.seal_at());
        while message.checked < to {
            let place = message.checked % self.capacity;
            let length = (to - message.checked).min(self.capacity - place);
            message.crc = checksum(message.crc, &self.result[place as usize..(place + length) as usize]);
            message.checked += length;
        }
        let range = message.seal_at()..message.end();
        let all = message.checked == range.start && is_there(&self.contributions, &self.summed, &range);
        if all && !self.complete.contains(&range) && range.start >= self.base {
            debug_assert_eq!(range.end - range.start, SEAL_BYTES as u64);
            write(&mut self.result, range.start, &seal(message.crc));
            self.complete.insert(range.clone());
            complete.push(range);
        }
    }

    /// The place of the seal in the sum of a part is as empty as in a worker's stream.
    fn end_part(&mut self, index: usize, complete: &mut Vec<Range<u64>>) {
        let message = &self.messages[index];
        let range = message.seal_at()..message.end();
        if range.start >= self.base && !self.done().contains(&range) && is_there(&self.contributions, &self.summed, &range) {
            write(&mut self.result, range.start, &[0; SEAL_BYTES]);
            self.finish(range, complete);
        }
    }

    /// What is summed as far as it is here.
    fn done(&self) -> &Intervals {
        self.part.as_ref().unwrap_or(&self.complete)
    }

    fn finish(&mut self, range: Range<u64>, complete: &mut Vec<Range<u64>>) {
        self.part.as_mut().unwrap_or(&mut self.complete).insert(range.clone());
        complete.push(range);
    }

    /// Once all ranks' headers of a message are there: they must agree.
    fn compare_headers(&mut self, message: &Message, complete: &mut Vec<Range<u64>>) -> Result<(), SpliceError> {
        let range = message.start..message.start + MessageHeader::LEN as u64;
        if range.start < self.base || self.done().contains(&range) || !is_there(&self.contributions, &self.summed, &range) {
            return Ok(());
        }
        for &rank in &self.summed {
            if let Some(field) = message.header.disagreement(&self.header_of(rank, message.start)?) {
                return Err(SpliceError::Disagreement { rank, message: message.header.message, field });
            }
        }
        let mut bytes = [0; MessageHeader::LEN];
        let (summed, rank) = if self.part.is_some() { (0, self.summed.first().copied().unwrap_or(0)) } else { (self.world, 0) };
        MessageHeader { summed, rank, ..message.header }.emit(&mut bytes);
        write(&mut self.result, range.start, &bytes);
        self.finish(range, complete);
        Ok(())
    }

    /// The first part of `range` that all ranks have sent.
    fn there_from_all(&self, range: &Range<u64>) -> Option<Range<u64>> {
        let mut start = range.start;
        'again: loop {
            let mut end = range.end;
            for &rank in &self.summed {
                let part = self.contributions[usize::from(rank)].there.next_within(&(start..range.end))?;
                if part.start > start {
                    start = part.start;
                    continue 'again;
                }
                end = end.min(part.end);
            }
            return Some(start..end);
        }
    }

    fn sum(&mut self, header: &MessageHeader, range: Range<u64>) {
        // Who has all divides.
        let is_part = self.part.is_some() && header.op.operator == Operator::Avg;
        let op = if is_part { ElementOp { operator: Operator::Sum, ..header.op } } else { header.op };
        let mut at = range.start;
        while at < range.end {
            let place = at % self.capacity;
            let length = (range.end - at).min(self.capacity - place).min(TILE_BYTES);
            let piece = place as usize..(place + length) as usize;
            let inputs = self.summed.iter().map(|&rank| &self.contributions[usize::from(rank)].bytes[piece.clone()]);
            let done = self.reduction.reduce(op, u32::from(self.world), inputs, &mut self.result[piece.clone()]);
            // All are equally long and whole elements, and the header was checked.
            debug_assert_eq!(done, Ok(()));
            at += length;
        }
    }
}

/// Whether these ranks have all sent these bytes.
fn is_there(contributions: &[Contribution], ranks: &[u16], range: &Range<u64>) -> bool {
    ranks.iter().all(|&rank| contributions[usize::from(rank)].there.contains(range))
}

/// Writes bytes of a stream to the memory that it goes round in.
fn write(memory: &mut [u8], at: u64, bytes: &[u8]) {
    let place = at as usize & (memory.len() - 1);
    let first = bytes.len().min(memory.len() - place);
    memory[place..place + first].copy_from_slice(&bytes[..first]);
    memory[..bytes.len() - first].copy_from_slice(&bytes[first..]);
}

fn read(memory: &[u8], at: u64, bytes: &mut [u8]) {
    let place = at as usize & (memory.len() - 1);
    let first = bytes.len().min(memory.len() - place);
    let (front, back) = bytes.split_at_mut(first);
    front.copy_from_slice(&memory[place..place + first]);
    back.copy_from_slice(&memory[..back.len()]);
}

#[cfg(test)]
mod tests;
