//! The way out of a port: a queue of bytes that empties at the link's rate, and a line that holds what has left it for the link's delay.
//!
//! Nothing happens at the moment at which a packet leaves the queue: when it will have left follows from when the one before it does, so
//! occupancy at any time is arithmetic, as in the simulator. A packet is touched when it is written and when it is sent.

use std::collections::VecDeque;

use fanin_core::{Duration, Instant};

use super::config::LinkShape;

/// Room beyond queue and line: for what is due and not yet sent, and for the end of the memory that a packet does not fit into.
const SLACK_BYTES: u64 = 256 << 10;
const PS_PER_SECOND: u128 = 1_000_000_000_000;

/// A port's queue and delay line. All memory is set aside when it is made.
#[derive(Debug)]
pub(crate) struct EgressQueue {
    shape: LinkShape,
    memory: Box<[u8]>,
    /// First those that have left the queue, then those in it.
    packets: VecDeque<Waiting>,
    /// How many have left it.
    left: usize,
    /// Bytes of the others.
    queued_bytes: u64,
    queued_bytes_peak: u64,
    /// When the last one will have left.
    busy_until: Instant,
    /// What rounding to whole picoseconds has lost, in bits times ps per second over the rate.
    remainder: u128,
    /// Where the next packet goes.
    tail: usize,
}

/// A packet.
#[derive(Clone, Copy, Debug)]
struct Waiting {
    at: usize,
    bytes: usize,
    leaves: Instant,
}

/// Memory for a packet.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    /// As long as the packet.
    pub(crate) bytes: &'a mut [u8],
    /// The packet has found a long queue.
    pub(crate) is_marked: bool,
}

impl EgressQueue {
    pub(crate) fn new(shape: LinkShape) -> Self {
        let on_the_way = u128::from(shape.bits_per_second) * u128::from(shape.delay.as_ps()) / (8 * PS_PER_SECOND);
        let bytes = shape.buffer_bytes + on_the_way as u64 + SLACK_BYTES;
        EgressQueue {
            shape,
            memory: vec![0; bytes as usize].into(),
            // Most packets are full; where many are not, the queue of descriptions grows once.
            packets: VecDeque::with_capacity((bytes / 512) as usize),
            left: 0,
            queued_bytes: 0,
            queued_bytes_peak: 0,
            busy_until: Instant::ZERO,
            remainder: 0,
            tail: 0,
        }
    }

    /// Takes a packet in; `None` where there is no room.
    pub(crate) fn push(&mut self, now: Instant, bytes: usize) -> Option<Place<'_>> {
        let queued = self.queued_bytes(now);
        if queued + bytes as u64 > self.shape.buffer_bytes {
            return None;
        }
        let at = self.find(bytes)?;
        let start = self.busy_until.max(now);
        if start == now {
            self.remainder = 0;
        }
        self.busy_until = start + self.time_of(bytes as u64);
        self.packets.push_back(Waiting { at, bytes, leaves: self.busy_until });
        self.tail = at + bytes;
        self.queued_bytes += bytes as u64;
        self.queued_bytes_peak = self.queued_bytes_peak.max(self.queued_bytes);
        let is_marked = self.shape.ecn_mark_bytes.is_some_and(|mark| queued > mark);
        Some(Place { bytes: &mut self.memory[at..at + bytes], is_marked })
    }

    /// How long so many bytes take, with what was lost to rounding before.
    fn time_of(&mut self, bytes: u64) -> Duration {
        let exact = u128::from(bytes) * 8 * PS_PER_SECOND + self.remainder;
        let rate = u128::from(self.shape.bits_per_second);
        self.remainder = exact % rate;
        Duration::from_ps((exact / rate) as u64)
    }

    /// Where a packet of so many bytes fits in one piece: a ring whose end is left empty where it is too short.
    fn find(&self, bytes: usize) -> Option<usize> {
        let Some(first) = self.packets.front() else { return (bytes <= self.memory.len()).then_some(0) };
        if self.tail > first.at {
            if self.memory.len() - self.tail >= bytes {
                return Some(self.tail);
            }
            return (bytes < first.at).then_some(0);
        }
        (bytes < first.at - self.tail).then_some(self.tail)
    }

    /// Bytes in the queue. Time never goes back.
    pub(crate) fn queued_bytes(&mut self, now: Instant) -> u64 {
        while let Some(packet) = self.packets.get(self.left)
            && packet.leaves <= now
        {
            self.queued_bytes -= packet.bytes as u64;
            self.left += 1;
        }
        self.queued_bytes
    }

    /// The most bytes that were in the queue at once.
    pub(crate) fn queued_bytes_peak(&self) -> u64 {
        self.queued_bytes_peak
    }

    /// The capacity of the queue.
    pub(crate) fn buffer_bytes(&self) -> u64 {
        self.shape.buffer_bytes
    }

    /// The first packet, if it has been on its way for long enough.
    pub(crate) fn due(&mut self, now: Instant) -> Option<&mut [u8]> {
        let packet = *self.packets.front().filter(|packet| packet.leaves + self.shape.delay <= now)?;
        Some(&mut self.memory[packet.at..packet.at + packet.bytes])
    }

    /// The first packet has been sent.
    pub(crate) fn pop(&mut self) {
        let Some(packet) = self.packets.pop_front() else { return };
        match self.left.checked_sub(1) {
            Some(left) => self.left = left,
            None => self.queued_bytes -= packet.bytes as u64,
        }
    }

    /// When the first packet is due.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        self.packets.front().map(|packet| packet.leaves + self.shape.delay)
    }

    /// When no more than so many bytes will be queued.
    pub(crate) fn falls_to(&self, bytes: u64) -> Instant {
        let ps = u128::from(bytes) * 8 * PS_PER_SECOND / u128::from(self.shape.bits_per_second);
        Instant::from_ps(self.busy_until.as_ps().saturating_sub(ps.min(u128::from(u64::MAX)) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::hash::mix;

    const MS: u64 = 1_000_000_000;

    /// 8 Mb/s: a byte lasts 1 us.
    fn queue(delay: Duration) -> EgressQueue {
        EgressQueue::new(LinkShape { bits_per_second: 8_000_000, buffer_bytes: 10_000, ecn_mark_bytes: Some(4_000), delay })
    }

    fn at(us: u64) -> Instant {
        Instant::from_ps(us * 1_000_000)
    }

    fn push(queue: &mut EgressQueue, us: u64, bytes: usize) -> Option<bool> {
        queue.push(at(us), bytes).map(|place| place.is_marked)
    }

    #[test]
    fn packets_leave_at_the_rate_and_arrive_after_the_delay() {
        let mut queue = queue(Duration::from_ms(5));
        assert_eq!([push(&mut queue, 0, 1_000), push(&mut queue, 0, 500)], [Some(false); 2]);
        assert_eq!((queue.queued_bytes(at(999)), queue.queued_bytes(at(1_000)), queue.queued_bytes(at(1_500))), (1_500, 500, 0));
        assert_eq!(queue.next_due(), Some(at(6_000)));
        assert!(queue.due(at(5_999)).is_none());
        assert_eq!(queue.due(at(6_000)).map(|bytes| bytes.len()), Some(1_000));
        queue.pop();
        assert_eq!(queue.next_due(), Some(at(6_500)));
        queue.pop();
        assert_eq!(queue.next_due(), None);
        // An idle link does not save up.
        push(&mut queue, 50_000, 1_000).unwrap();
        assert_eq!(queue.next_due(), Some(at(56_000)));
    }

    #[test]
    fn what_finds_no_room_is_refused_and_what_finds_a_long_queue_is_marked() {
        let mut queue = queue(Duration::ZERO);
        let marks: Vec<Option<bool>> = (0..11).map(|_| push(&mut queue, 0, 1_000)).collect();
        assert_eq!(marks[..5], [Some(false); 5], "the fifth finds 4000 bytes, which is not more than 4000");
        assert_eq!(marks[5..10], [Some(true); 5]);
        assert_eq!(marks[10], None);
        assert_eq!(push(&mut queue, 1_000, 1_000), Some(true), "one has left by now, though it has not been sent");
        assert_eq!(queue.queued_bytes_peak(), 10_000);
        assert_eq!(queue.falls_to(5_000), at(6_000));
    }

    #[test]
    fn rounding_loses_nothing_in_the_long_run() {
        let shape = LinkShape { bits_per_second: 7_000_003, buffer_bytes: 1 << 20, ecn_mark_bytes: None, delay: Duration::ZERO };
        let mut queue = EgressQueue::new(shape);
        let mut bytes = 0;
        for packet in 0..100_000u64 {
            let length = 1 + (mix(3, packet) % 1_000) as usize;
            bytes += length as u64;
            let now = Instant::from_ps(queue.busy_until.as_ps().saturating_sub(MS));
            queue.push(now, length).unwrap();
            while queue.due(now).is_some() {
                queue.pop();
            }
        }
        let exact = u128::from(bytes) * 8 * PS_PER_SECOND / 7_000_003;
        assert_eq!(u128::from(queue.busy_until.as_ps()), exact);
    }

    #[test]
    fn every_packet_comes_out_as_it_went_in() {
        let mut queue = queue(Duration::from_ms(20));
        let (mut sent, mut got, mut refused) = (0u64, 0u64, 0);
        let mut now = Instant::ZERO;
        for step in 0..200_000u64 {
            let draw = mix(11, step);
            now += Duration::from_us(draw % 400);
            if queue.due(now).is_some() && draw >> 32 & 3 == 0 {
                let first = queue.due(now).unwrap();
                assert!(first.iter().all(|byte| *byte == got as u8), "packet {got}");
                queue.pop();
                got += 1;
            }
            match queue.push(now, 1 + (draw >> 16) as usize % 1_500) {
                Some(place) => {
                    place.bytes.fill(sent as u8);
                    sent += 1;
                }
                None => refused += 1,
            }
        }
        assert!(sent > 10_000 && refused > 10_000 && sent - got < 1_000, "{sent} sent, {got} got, {refused} refused");
    }
}
