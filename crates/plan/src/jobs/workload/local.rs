//! What members of a group do among themselves where several are on one host: rings over links of one rate, which nobody shares.
//!
//! A host with several members is one worker to the network, so a vector that all of them have passes its network card once: they sum it
//! before, and hand it out after, as hierarchical collectives of NCCL do.

use fanin_core::Duration;
use fanin_workload::CollectiveKind as Kind;

/// The links within a host.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Links {
    /// Of each rank, in bits per second.
    pub rate: u64,
    /// Before the first byte.
    pub latency: Duration,
}

impl Links {
    /// How long a rank sends so many bytes; nothing takes no time.
    fn time(self, bytes: u64) -> Duration {
        if bytes == 0 {
            return Duration::ZERO;
        }
        let ps = u128::from(bytes) * 8 * 1_000_000_000_000 / u128::from(self.rate);
        self.latency + Duration::from_ps(u64::try_from(ps).unwrap_or(u64::MAX / 4))
    }

    /// What `members` of `all` on a host do before a collective of `bytes` bytes between hosts, and after it; all of it before where there is only
    /// one host.
    pub fn around(self, kind: Kind, bytes: u64, members: u32, all: u32) -> (Duration, Duration) {
        if members <= 1 {
            return (Duration::ZERO, Duration::ZERO);
        }
        let (members, all, alone) = (u64::from(members), u64::from(all.max(1)), members == all);
        // A ring's half.
        let half = self.time((u128::from(bytes) * u128::from(members - 1) / u128::from(members)) as u64);
        let nothing = Duration::ZERO;
        let (before, after) = match kind {
            Kind::AllReduce => (half, half),
            Kind::ReduceScatter | Kind::Reduce => (half, nothing),
            Kind::AllGather => (nothing, half),
            Kind::Broadcast => (nothing, self.time(bytes)),
            Kind::AllToAll => (self.time(bytes / all * (members - 1)), nothing),
            Kind::Barrier => (self.latency, self.latency),
        };
        if alone { (before + after, nothing) } else { (before, after) }
    }

    /// A transfer between ranks of one host.
    pub fn transfer(self, bytes: u64) -> Duration {
        self.time(bytes.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 8 Gb/s: a byte a nanosecond.
    const LINKS: Links = Links { rate: 8_000_000_000, latency: Duration::from_ns(5) };

    #[test]
    fn a_ring_within_a_host_takes_its_time() {
        let ns = |(before, after): (Duration, Duration)| (before.as_ps() / 1_000, after.as_ps() / 1_000);
        // 4 of 8 members: three quarters of 800 bytes, twice.
        assert_eq!(ns(LINKS.around(Kind::AllReduce, 800, 4, 8)), (605, 605));
        assert_eq!(ns(LINKS.around(Kind::AllReduce, 800, 4, 4)), (1_210, 0));
        assert_eq!(ns(LINKS.around(Kind::AllGather, 800, 4, 8)), (0, 605));
        assert_eq!(ns(LINKS.around(Kind::ReduceScatter, 800, 4, 8)), (605, 0));
        // To the three others on the host, a hundred bytes each.
        assert_eq!(ns(LINKS.around(Kind::AllToAll, 800, 4, 8)), (305, 0));
        assert_eq!(ns(LINKS.around(Kind::Broadcast, 800, 4, 8)), (0, 805));
        assert_eq!(ns(LINKS.around(Kind::Barrier, 0, 4, 4)), (10, 0));
        assert_eq!(ns(LINKS.around(Kind::AllReduce, 800, 1, 8)), (0, 0));
        assert_eq!(LINKS.transfer(95).as_ps(), 100_000);
    }
}
