//! Lossy links: drop-tail queues in bytes with an ECN threshold.
//!
//! A drop-tail link needs no dequeue event. When a packet is queued its departure is already known: it begins when the transmitter
//! falls idle (`busy_until`) and lasts its length. What is queued is the time until then, so buffer limits are kept in picoseconds and
//! nothing is divided. A link has at most one pending event, the arrival of the packet at the front, however many packets it holds.

use fanin_core::NodeId;

use crate::credits::Credits;
use crate::packet::NO_PACKET;
use crate::setup::LinkSpeed;

/// Bits of [`Link::flags`].
pub(crate) mod link_flags {
    /// The far end is a host.
    pub const TO_HOST: u16 = 1;
    /// Down: everything sent is lost.
    pub const DOWN: u16 = 2;
    /// Faults are injected on this link.
    pub const FAULTY: u16 = 4;
    /// Nothing is dropped for lack of room; see `lossless`.
    pub const LOSSLESS: u16 = 8;
    /// What the switch at the near end makes goes through one of its inputs first; see `lossless`.
    pub const BY_INPUT: u16 = 16;
    /// The near end is a host.
    pub const FROM_HOST: u16 = 32;
    /// The host at one end has a limit; see `limits`.
    pub const LIMITED: u16 = 64;
    /// Packets that arrive are counted by job, or kept; see `series` and `trace`.
    pub const COUNTED: u16 = 128;
    /// One of several channels of its cable; see `channels`.
    pub const SHARED: u16 = 256;
    /// The switch at the far end adds what comes by this link at a rate of its own; see `engine::adding`.
    pub const ADDED: u16 = 512;
    /// The switch at one end has cores that handle what it adds; see `engine::processing`.
    pub const HANDLED: u16 = 1024;
    /// It leads to another part of the network; see `parts`.
    pub const CUT: u16 = 2048;
    /// A host is at one end that hands on what switches of trees have for each other; see `engine::carrying`.
    pub const CARRIES: u16 = 4096;
}

/// No time.
pub(crate) const NEVER: u64 = u64::MAX;

/// First and last of packets that hang on each other by `next`. The last one means nothing where there is no first one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chain {
    pub first: u32,
    pub last: u32,
}

impl Chain {
    pub const EMPTY: Chain = Chain { first: NO_PACKET, last: NO_PACKET };

    #[inline]
    pub fn is_empty(&self) -> bool {
        self.first == NO_PACKET
    }
}

/// One direction of a cable: transmitter, queue before it, and the wire. What a hop touches stands together.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Link {
    /// Packets queued or on the wire, in order of arrival.
    pub on_wire: Chain,
    /// When the transmitter falls idle.
    pub busy_until: u64,
    /// Time of one byte in 2^-16 ps.
    byte_time: u64,
    /// Propagation delay.
    pub latency_ps: u64,
    /// The queue's capacity, as the time that it takes to send it.
    pub limit_ps: u64,
    /// The node at the far end.
    pub to: u32,
    /// The port there.
    pub to_port: u16,
    /// See [`link_flags`].
    pub flags: u16,
    /// The longest queue seen, in ps.
    pub peak_ps: u64,
    /// Bytes that have been queued for sending, frame overhead included.
    pub bytes_sent: u64,
    /// A packet up to whose end no more is queued than this is neither marked nor lost.
    pub calm_ps: u64,
    /// Packets that have been queued for sending. Not beside the bytes: compilers add the two in one vector then, which takes longer.
    pub packets_sent: u64,
    /// Lossless: packets that lack credits.
    pub waiting: Chain,
    /// Lossless: the same as the time that it takes to send them.
    pub waiting_ps: u64,
    /// Lossless: room in the buffer at the far end.
    pub credits: Credits,
    /// Lossless: time of the pending wake-up.
    pub wake_at: u64,
    /// Lossless, input-queued: first packets of inputs that wait for room in this output's buffer.
    pub claims: Chain,
    /// From hosts: how much is queued before the host's nodes are told to wait.
    pub room_ps: u64,
    /// Packets that find more queued than this are marked.
    pub mark_ps: u64,
    /// Packets that found the queue full.
    pub packets_dropped: u64,
    /// The node at the near end.
    pub from: NodeId,
    /// Lossless, input-queued: the input that was served last.
    pub served: u32,
}

/// A link's ends and sizes.
pub(crate) struct LinkConfig {
    pub from: NodeId,
    pub to: NodeId,
    pub to_port: u16,
    pub speed: LinkSpeed,
    /// See [`link_flags`].
    pub flags: u16,
    /// Capacity of the queue.
    pub queue_bytes: u64,
    /// Packets that find more queued than this are marked.
    pub mark_bytes: u64,
    /// From hosts: how much is queued before the host's nodes are told to wait.
    pub room_bytes: u64,
    /// Lossless: size of the buffer at the far end.
    pub buffer_bytes: u64,
}

impl Link {
    /// An idle link.
    pub fn new(config: &LinkConfig) -> Self {
        let byte_time = Link::byte_time_of(config.speed.bits_per_second);
        let in_time = |bytes: u64| if bytes == u64::MAX { u64::MAX } else { ((u128::from(bytes) * u128::from(byte_time)) >> 16) as u64 };
        Link {
            on_wire: Chain::EMPTY,
            busy_until: 0,
            byte_time,
            latency_ps: config.speed.latency.as_ps(),
            limit_ps: in_time(config.queue_bytes),
            calm_ps: in_time(config.queue_bytes.min(config.mark_bytes)),
            mark_ps: in_time(config.mark_bytes),
            to: config.to.0,
            to_port: config.to_port,
            flags: config.flags,
            from: config.from,
            bytes_sent: 0,
            packets_sent: 0,
            peak_ps: 0,
            packets_dropped: 0,
            waiting: Chain::EMPTY,
            waiting_ps: 0,
            credits: Credits::new(config.buffer_bytes),
            wake_at: NEVER,
            claims: Chain::EMPTY,
            served: 0,
            room_ps: in_time(config.room_bytes),
        }
    }

    /// Time of a byte at a rate, in 2^-16 ps.
    pub fn byte_time_of(bits_per_second: u64) -> u64 {
        // 8e12 ps*bits/byte over bits/s, with 16 fractional bits.
        ((8e12 * 65536.0) / bits_per_second as f64).round() as u64
    }

    #[inline]
    pub fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }

    /// How long `bytes` bytes occupy the transmitter.
    #[inline]
    pub fn send_time_ps(&self, bytes: u32) -> u64 {
        (u64::from(bytes) * self.byte_time) >> 16
    }

    /// Sends so many bytes behind what is there; gives the time when the last one leaves.
    #[inline(always)]
    pub fn send(&mut self, bytes: u32, now_ps: u64) -> u64 {
        let departure = self.busy_until.max(now_ps) + self.send_time_ps(bytes);
        self.busy_until = departure;
        self.peak_ps = self.peak_ps.max(departure - now_ps);
        self.bytes_sent += u64::from(bytes);
        self.packets_sent += 1;
        departure
    }

    /// What is queued, as the time that it takes to send it.
    #[inline]
    pub fn queued_ps(&self, now_ps: u64) -> u64 {
        self.busy_until.saturating_sub(now_ps) + self.waiting_ps
    }

    /// Whether the queue has room for `bytes` more bytes. Bytes leave one by one, so what is queued is the time until the link falls idle.
    #[inline]
    pub fn has_room(&self, bytes: u32, now_ps: u64) -> bool {
        self.queued_ps(now_ps) + self.send_time_ps(bytes) <= self.limit_ps
    }

    /// How many bytes are sent in `ps`.
    pub fn bytes_in(&self, ps: u64) -> u64 {
        ((u128::from(ps) << 16) / u128::from(self.byte_time)) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::Duration;

    #[test]
    fn a_byte_at_100_gbit_lasts_80_ps_and_bytes_come_back() {
        let link = Link::new(&LinkConfig {
            from: NodeId(0),
            to: NodeId(1),
            to_port: 0,
            speed: LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) },
            flags: 0,
            queue_bytes: 100_000,
            mark_bytes: u64::MAX,
            room_bytes: 0,
            buffer_bytes: 0,
        });
        assert_eq!(link.send_time_ps(1081), 86_480);
        assert_eq!(link.bytes_in(link.limit_ps), 100_000);
        assert_eq!(link.mark_ps, u64::MAX);
    }

    #[test]
    fn what_a_lossy_hop_touches_fits_into_little_more_than_a_cache_line() {
        assert!(std::mem::offset_of!(Link, waiting) <= 80);
        assert_eq!((align_of::<Link>(), size_of::<Link>()), (64, 192));
    }
}
