//! Background traffic: packets at a steady rate to one destination, whatever becomes of them.

use fanin_core::{Duration, Instant, NodeId};

/// A source that was kept from its core for longer than this does not make up for it: it would be a burst that nobody asked for.
const BEHIND_MAX: Duration = Duration::from_ms(20);

/// A stream of background traffic.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TrafficConfig {
    /// Names the stream.
    pub id: u32,
    /// The host that it goes to.
    pub to: NodeId,
    /// The switch above this host's leaf that it goes by, or else the leaf's choice.
    pub via: Option<NodeId>,
    /// Bits per second, of whole datagrams without IP and UDP headers.
    pub bits_per_second: u64,
    /// Bytes of a packet behind its headers.
    pub payload_bytes: u16,
}

/// Packets and their bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TrafficCount {
    /// Packets.
    pub packets: u64,
    /// Whole datagrams, without IP and UDP headers.
    pub bytes: u64,
}

/// A stream that runs.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Source {
    pub(crate) config: TrafficConfig,
    pub(crate) sent: TrafficCount,
    /// When the next packet is due.
    pub(crate) next: Instant,
    interval: Duration,
}

impl Source {
    /// A stream of datagrams of so many bytes, which begins now.
    pub(crate) fn new(config: TrafficConfig, datagram_bytes: usize, now: Instant) -> Self {
        let ps = datagram_bytes as u128 * 8 * 1_000_000_000_000 / u128::from(config.bits_per_second.max(1));
        Source { config, sent: TrafficCount::default(), next: now, interval: Duration::from_ps(ps.clamp(1, u128::from(u64::MAX)) as u64) }
    }

    /// Whether a packet is due; the next one is due an interval later.
    pub(crate) fn take(&mut self, now: Instant) -> bool {
        if self.next > now {
            return false;
        }
        if now.since(self.next) > BEHIND_MAX {
            self.next = now;
        }
        self.next += self.interval;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_keeps_its_rate_and_makes_up_for_short_delays_only() {
        let config = TrafficConfig { id: 0, to: NodeId(1), via: None, bits_per_second: 8_000_000, payload_bytes: 960 };
        let mut source = Source::new(config, 1_000, Instant::ZERO);
        let mut count = |us: u64| {
            let now = Instant::from_ps(us * 1_000_000);
            std::iter::from_fn(|| source.take(now).then_some(())).count()
        };
        assert_eq!([count(0), count(999), count(1_000), count(10_000)], [1, 0, 1, 9]);
        assert_eq!([count(100_000), count(101_000)], [1, 1], "80 of them are not sent late");
    }
}
