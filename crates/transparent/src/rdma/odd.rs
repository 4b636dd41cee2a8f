//! Frames that cannot be summed, by reason: the first one is said, and then how many more there were, at intervals.

use std::net::Ipv4Addr;

use fanin_core::{Duration, Instant};

/// How often the log says how many more there were.
const INTERVAL: Duration = Duration::from_ms(10_000);

/// Why a frame cannot be summed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Odd {
    /// Its checks are wrong.
    Damaged,
    /// Its checks are right and something else is not: a length, or a version.
    Malformed,
    /// IPv4 has cut it up.
    Fragment,
    /// Its header of IPv4 has options.
    Options,
    /// A message over IPv6: rings are of addresses of IPv4.
    V6,
    /// A message over Ethernet itself, as in the first version of RoCE.
    Ethernet,
    /// A message between hosts that are no neighbours of any ring.
    Stranger,
}

impl Odd {
    /// All of them.
    pub const ALL: [Odd; 7] = [Odd::Damaged, Odd::Malformed, Odd::Fragment, Odd::Options, Odd::V6, Odd::Ethernet, Odd::Stranger];

    /// Its name in the switch's last words.
    pub const fn name(self) -> &'static str {
        match self {
            Odd::Damaged => "damaged",
            Odd::Malformed => "malformed",
            Odd::Fragment => "fragments",
            Odd::Options => "ip_options",
            Odd::V6 => "ipv6",
            Odd::Ethernet => "rocev1",
            Odd::Stranger => "no_neighbours",
        }
    }

    /// Whether such a frame goes on as it is. Others would be taken for sums, or get into them.
    const fn passes(self) -> bool {
        matches!(self, Odd::V6 | Odd::Ethernet | Odd::Stranger)
    }

    /// What is said of it.
    const fn words(self) -> &'static str {
        match self {
            Odd::Damaged => {
                "a write between workers of a ring was damaged on its way: its ICRC or checksum is wrong; it is dropped, and its sender sends it again"
            }
            Odd::Malformed => "a write between workers of a ring has a wrong length or version; it is dropped",
            Odd::Fragment => "a write between workers of a ring was cut up by IPv4 where whole packets are expected; it is dropped",
            Odd::Options => "a write between workers of a ring has options of IPv4 where none are expected; it is dropped",
            Odd::V6 => "a message over IPv6 passes unsummed: rings are of addresses of IPv4",
            Odd::Ethernet => "a message of RoCE's first version passes unsummed: rings are of addresses of IPv4",
            Odd::Stranger => {
                "a message between hosts that are no neighbours of a ring passes unsummed: addresses stand by rank in `rdma-ring`"
            }
        }
    }
}

/// How many there were of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OddFrames([u64; Odd::ALL.len()]);

impl OddFrames {
    /// How many there were for a reason.
    pub const fn of(&self, odd: Odd) -> u64 {
        self.0[odd as usize]
    }
}

/// See the module's documentation.
#[derive(Debug, Default)]
pub(super) struct Counted {
    frames: OddFrames,
    said: OddFrames,
    said_at: Instant,
}

impl Counted {
    pub fn frames(&self) -> OddFrames {
        self.frames
    }

    /// One more. Says whether it has been dealt with: otherwise it goes on as it is.
    pub fn count(&mut self, odd: Odd, addresses: [[u8; 4]; 2]) -> bool {
        let number = odd as usize;
        self.frames.0[number] += 1;
        if self.frames.0[number] == 1 {
            self.said.0[number] = 1;
            let [from, to] = addresses.map(Ipv4Addr::from);
            tracing::warn!(reason = odd.name(), %from, %to, "{}", odd.words());
        }
        !odd.passes()
    }

    /// Says how many more there were.
    pub fn on_tick(&mut self, now: Instant) {
        if now.since(self.said_at) < INTERVAL {
            return;
        }
        self.said_at = now;
        for odd in Odd::ALL {
            let more = self.frames.of(odd) - self.said.of(odd);
            if more > 0 {
                tracing::warn!(reason = odd.name(), more, "{}", odd.words());
            }
        }
        self.said = self.frames;
    }
}
