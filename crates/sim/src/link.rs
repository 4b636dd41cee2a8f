//! Lossy links: drop-tail queues in bytes with an ECN threshold.
//!
//! A drop-tail link needs no dequeue event. When a packet is queued its departure is already known: it begins when the transmitter
//! falls idle (`busy_until`) and lasts its length. What is queued is the time until then, so buffer limits are kept in picoseconds and
//! nothing is divided. A link has at most one pending event, the arrival of the packet at the front, however many packets it holds.

use fanin_core::NodeId;

use crate::packet::NO_PACKET;
use crate::scenario::LinkSpeed;

/// Bits of [`Link::flags`].
pub(crate) mod link_flags {
    /// The far end is a host.
    pub const TO_HOST: u8 = 1;
    /// Down: everything sent is lost.
    pub const DOWN: u8 = 2;
    /// Faults are injected on this link.
    pub const FAULTY: u8 = 4;
    /// Nothing is dropped for lack of room; see `lossless`.
    pub const LOSSLESS: u8 = 8;
}

/// One direction of a cable: transmitter, queue before it, and the wire.
#[derive(Debug)]
pub(crate) struct Link {
    /// The packet that arrives next; the others queued or on the wire hang on it in order of arrival.
    pub first: u32,
    /// The packet that arrives last.
    pub last: u32,
    /// Time of one byte in 2^-16 ps.
    byte_time: u64,
    /// Propagation delay.
    pub latency_ps: u64,
    /// The queue's capacity, as the time that it takes to send it.
    pub limit_ps: u64,
    /// Packets that find more queued than this are marked.
    pub mark_ps: u64,
    /// The node at the far end.
    pub to: u32,
    /// The port there.
    pub to_port: u16,
    /// See [`link_flags`].
    pub flags: u8,
    /// The node at the near end.
    pub from: NodeId,
    /// Bytes that have been queued for sending, frame overhead included.
    pub bytes_sent: u64,
    /// Packets that have been queued for sending.
    pub packets_sent: u64,
    /// The longest queue seen, in ps.
    pub peak_ps: u64,
    /// Packets that found the queue full.
    pub packets_dropped: u64,
}

impl Link {
    /// An idle link.
    pub fn new(from: NodeId, to: NodeId, to_port: u16, to_host: bool, speed: LinkSpeed, queue_bytes: u64, mark_bytes: u64) -> Self {
        // 8e12 ps*bits/byte over bits/s, with 16 fractional bits.
        let byte_time = ((8e12 * 65536.0) / speed.bits_per_second as f64).round() as u64;
        let in_time = |bytes: u64| if bytes == u64::MAX { u64::MAX } else { ((u128::from(bytes) * u128::from(byte_time)) >> 16) as u64 };
        Link {
            first: NO_PACKET,
            last: NO_PACKET,
            byte_time,
            latency_ps: speed.latency.as_ps(),
            limit_ps: in_time(queue_bytes),
            mark_ps: in_time(mark_bytes),
            to: to.0,
            to_port,
            flags: if to_host { link_flags::TO_HOST } else { 0 },
            from,
            bytes_sent: 0,
            packets_sent: 0,
            peak_ps: 0,
            packets_dropped: 0,
        }
    }

    #[inline]
    pub fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// How long `bytes` bytes occupy the transmitter.
    #[inline]
    pub fn send_time_ps(&self, bytes: u32) -> u64 {
        (u64::from(bytes) * self.byte_time) >> 16
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
        let speed = LinkSpeed { bits_per_second: 100_000_000_000, latency: Duration::from_ns(300) };
        let link = Link::new(NodeId(0), NodeId(1), 0, false, speed, 100_000, u64::MAX);
        assert_eq!(link.send_time_ps(1081), 86_480);
        assert_eq!(link.bytes_in(link.limit_ps), 100_000);
        assert_eq!(link.mark_ps, u64::MAX);
    }
}
