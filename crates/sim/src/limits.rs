//! What hosts can do beside what their links can: packets a second that a processor or network card sends and takes in, and a rate at
//! which a slow worker sends.
//!
//! A host works on one packet after the other, and its link sends one while it works on the next. As on links, when a packet will be
//! through is known when it is queued, so a limit costs no events; a link without one costs nothing at all.
//!
//! What finds no room at a host is dropped, but in a lossless network: there a switch has credits for the packets that may wait at such a
//! host, and holds back what has none, so that a slow host spreads congestion backwards.

mod pacing;

use fanin_core::{Instant, NodeId};

use crate::setup::SetupError;

/// Limits of some hosts for some time. Where several hold at once, the tightest counts.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HostLimit {
    /// Which hosts; all nodes of a host share its limit, and background traffic counts too.
    pub hosts: Vec<NodeId>,
    /// Packets a second that a host sends.
    pub send_packets_per_second: Option<u64>,
    /// Packets a second that a host takes in.
    pub receive_packets_per_second: Option<u64>,
    /// Bits a second that a host sends, frame overhead included.
    pub send_bits_per_second: Option<u64>,
    /// Packets that wait at a host to be taken in; what comes then is dropped, or waits at the switch where nothing may be lost.
    pub receive_queue_packets: u32,
    /// A packet that finds more than so many waiting at a host to be taken in is marked, as at a full queue of a switch; `u32::MAX` for none.
    pub receive_mark_packets: u32,
    /// From when.
    pub from: Instant,
    /// Until when; `FAR_FUTURE` for good.
    pub until: Instant,
}

impl HostLimit {
    /// Checks rates and times.
    ///
    /// # Errors
    /// [`SetupError`] names the field.
    pub fn check(&self, index: usize) -> Result<(), SetupError> {
        let field = |name: &str| format!("limits[{index}].{name}");
        let rates =
            [("send", self.send_packets_per_second), ("receive", self.receive_packets_per_second), ("rate", self.send_bits_per_second)];
        for (name, rate) in rates {
            if rate.is_some_and(|rate| rate < 1_000) {
                return Err(SetupError::new(field(name), rate.unwrap_or(0), "at least 1000 a second"));
            }
        }
        if self.receive_queue_packets == 0 {
            return Err(SetupError::new(field("receive_queue"), 0, "at least 1 packet"));
        }
        if self.until <= self.from {
            return Err(SetupError::new(field("until"), self.until, "a time after from"));
        }
        Ok(())
    }

    fn holds_at(&self, now_ps: u64) -> bool {
        self.from.as_ps() <= now_ps && now_ps < self.until.as_ps()
    }
}

/// How fast a host works on what goes by one of its links, in one direction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Pace {
    /// Time of a packet.
    packet_ps: u64,
    /// Time of a byte in 2^-16 ps.
    byte_time: u64,
    /// Packets that may wait, as the time that they take; `u64::MAX` for any number.
    queue_ps: u64,
    /// Packets that wait before one is marked, as the time that they take; `u64::MAX` where none is.
    mark_ps: u64,
    /// When the host has worked off what is queued.
    until: u64,
}

impl Pace {
    const NONE: Pace = Pace { packet_ps: 0, byte_time: 0, queue_ps: u64::MAX, mark_ps: u64::MAX, until: 0 };

    /// How long the host works on a packet of `bytes` bytes.
    fn time_ps(&self, bytes: u32) -> u64 {
        self.packet_ps.max((u64::from(bytes) * self.byte_time) >> 16)
    }
}
