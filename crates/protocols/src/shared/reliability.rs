//! What a job expects of its network, and how long it waits.

use fanin_core::Duration;

/// What a job expects of its network, and how long it waits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Reliability {
    /// Whether the protocol recovers from loss. Without it, on a lossless network, a node has no timers at all, so it never gives up
    /// either.
    pub reliable: bool,
    /// Retransmission timeout before the first round trip has been measured.
    pub rto_initial: Duration,
    /// The shortest retransmission timeout.
    pub rto_min: Duration,
    /// How long an operation may make no progress before it fails.
    pub patience: Duration,
}

impl Reliability {
    /// For networks that lose nothing (`baselines 5`): no timers, no acknowledgements.
    pub const LOSSLESS: Reliability =
        Reliability { reliable: false, rto_initial: Duration::MAX, rto_min: Duration::MAX, patience: Duration::MAX };

    /// For networks that lose packets.
    pub const fn lossy(rto_initial: Duration, rto_min: Duration, patience: Duration) -> Self {
        Reliability { reliable: true, rto_initial, rto_min, patience }
    }

    /// The longest retransmission timeout: an eighth of the patience, so that a packet is sent several times before its operation is
    /// given up, and the answers can name who is missing.
    pub const fn rto_max(&self) -> Duration {
        let eighth = self.patience.divided(8);
        if eighth.as_ps() > self.rto_min.as_ps() { eighth } else { self.rto_min }
    }
}
