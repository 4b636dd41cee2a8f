//! What hosts can do beside what their links can: packets a second that a processor or network card sends and takes in, and a rate at
//! which a slow worker sends.
//!
//! A host works on one packet after the other, and its link sends one while it works on the next. As on links, when a packet will be
//! through is known when it is queued, so a limit costs no events; a link without one costs nothing at all.
//!
//! What finds no room at a host is dropped, but in a lossless network: there a switch has credits for the packets that may wait at such a
//! host, and holds back what has none, so that a slow host spreads congestion backwards.

use fanin_core::{DropReason, Instant, NodeId, Wire};

use crate::credits::Credits;
use crate::link::{Link, link_flags};
use crate::lossless::NO_LINK;
use crate::net::{Net, depart};
use crate::packet::flags;
use crate::scenario::SetupError;

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

/// How many packets may wait at a host in a lossless network, at any time: its memory does not change with the time. `None` for a host
/// that takes in what comes.
fn places(limits: &[HostLimit], host: NodeId) -> Option<u32> {
    let receiving = limits.iter().filter(|limit| limit.receive_packets_per_second.is_some() && limit.hosts.contains(&host));
    receiving.map(|limit| limit.receive_queue_packets).min()
}

impl<H: Wire, O: Clone> Net<H, O> {
    /// Marks the links that limits strike, before the run.
    pub fn limit(&mut self, limits: &[HostLimit]) {
        if limits.is_empty() {
            return;
        }
        self.paces = vec![Pace::NONE; self.links.len()];
        for link in &mut self.links {
            let (is_from, is_to) = (link.has(link_flags::FROM_HOST), link.has(link_flags::TO_HOST));
            let host = if is_from { link.from } else { NodeId(link.to) };
            if !(is_from || is_to) || !limits.iter().any(|limit| limit.hosts.contains(&host)) {
                continue;
            }
            if is_to && link.has(link_flags::LOSSLESS) {
                let Some(places) = places(limits, host) else { continue };
                // In packets, each of which takes one of them.
                link.credits = Credits::new(u64::from(places));
            }
            link.flags |= link_flags::LIMITED;
        }
        self.set_limits(limits);
    }

    /// Takes over the limits that hold now. What is queued keeps its time.
    pub fn set_limits(&mut self, limits: &[HostLimit]) {
        for (link, pace) in self.links.iter().zip(&mut self.paces).filter(|(link, _)| link.has(link_flags::LIMITED)) {
            let from_host = link.has(link_flags::FROM_HOST);
            let host = if from_host { link.from } else { NodeId(link.to) };
            *pace = Pace { until: pace.until, ..Pace::NONE };
            for limit in limits.iter().filter(|limit| limit.holds_at(self.now) && limit.hosts.contains(&host)) {
                let packets = if from_host { limit.send_packets_per_second } else { limit.receive_packets_per_second };
                let packet_ps = packets.map_or(0, |packets| 1_000_000_000_000 / packets.max(1));
                pace.packet_ps = pace.packet_ps.max(packet_ps);
                if from_host {
                    pace.byte_time = pace.byte_time.max(limit.send_bits_per_second.map_or(0, Link::byte_time_of));
                } else if packet_ps > 0 {
                    pace.queue_ps = pace.queue_ps.min(packet_ps * u64::from(limit.receive_queue_packets));
                    let mark_ps = packet_ps * u64::from(limit.receive_mark_packets);
                    pace.mark_ps = pace.mark_ps.min(if limit.receive_mark_packets == u32::MAX { u64::MAX } else { mark_ps });
                }
            }
        }
    }

    /// In a lossless network: a packet is handed to a link of a host that has a limit. A host that sends begins its work on it now.
    #[inline(never)]
    pub fn begin_limited(&mut self, number: u32, place: u32, bytes: u32) {
        if self.links[number as usize].has(link_flags::FROM_HOST) {
            let pace = &mut self.paces[number as usize];
            pace.until = pace.until.max(self.now) + pace.time_ps(bytes);
            // When its link may have it; it has no arrival yet.
            self.packets.at(place).arrival_ps = pace.until;
        }
    }

    /// In a lossless network: sends a packet by a link of a host that has a limit, if it gets credits; gives the time when its last byte
    /// leaves.
    #[inline(never)]
    pub fn leave_limited(&mut self, number: u32, place: u32) -> Option<u64> {
        let (bytes, ready_ps) = (self.packets.get(place).frame_bytes, self.packets.get(place).arrival_ps);
        let (link, now) = (&mut self.links[number as usize], self.now);
        if link.has(link_flags::FROM_HOST) {
            let begins = link.busy_until.max(now).max(ready_ps);
            if !link.credits.take(bytes, begins) {
                return None;
            }
            link.busy_until = begins;
            return Some(depart(link, number, self.packets.heads(), place, bytes, number, now, &mut self.queue));
        }
        let begins = link.busy_until.max(now);
        if !link.credits.take(1, begins) {
            return None;
        }
        let pace = &mut self.paces[number as usize];
        let leaves = begins + link.send_time_ps(bytes);
        let arrives = leaves + link.latency_ps;
        let marks = pace.until.saturating_sub(arrives) > pace.mark_ps;
        pace.until = pace.until.max(arrives) + pace.time_ps(bytes);
        if marks {
            self.packets.at(place).flags |= flags::ECN;
            self.packets_marked += 1;
        }
        let latency_ps = std::mem::replace(&mut link.latency_ps, pace.until - leaves);
        let departure = depart(link, number, self.packets.heads(), place, bytes, NO_LINK, now, &mut self.queue);
        let link = &mut self.links[number as usize];
        link.latency_ps = latency_ps;
        link.credits.give(pace.until + latency_ps, 1);
        Some(departure)
    }

    /// [`Net::transmit`] by a link of a host that has a limit.
    #[cold]
    pub fn transmit_limited(&mut self, number: u32, place: u32, bytes: u32) {
        let link = &mut self.links[number as usize];
        if link.has(link_flags::DOWN) {
            return self.drop_packet(place, DropReason::Down);
        }
        if !link.has_room(bytes, self.now) {
            link.packets_dropped += 1;
            return self.drop_packet(place, DropReason::QueueFull);
        }
        if link.queued_ps(self.now) > link.mark_ps {
            self.packets.at(place).flags |= flags::ECN;
            self.packets_marked += 1;
        }
        let pace = &mut self.paces[number as usize];
        let work_ps = pace.time_ps(bytes);
        if link.has(link_flags::FROM_HOST) {
            // The host hands packets to its link one by one.
            pace.until = pace.until.max(self.now) + work_ps;
            link.busy_until = link.busy_until.max(pace.until);
            depart(link, number, self.packets.heads(), place, bytes, NO_LINK, self.now, &mut self.queue);
            return;
        }
        let leaves = link.busy_until.max(self.now) + link.send_time_ps(bytes);
        let arrives = leaves + link.latency_ps;
        if pace.until.saturating_sub(arrives) > pace.queue_ps {
            // It comes over the link and finds no room behind it.
            link.busy_until = leaves;
            link.bytes_sent += u64::from(bytes);
            link.packets_sent += 1;
            return self.drop_packet(place, DropReason::HostBusy);
        }
        if pace.until.saturating_sub(arrives) > pace.mark_ps {
            self.packets.at(place).flags |= flags::ECN;
            self.packets_marked += 1;
        }
        pace.until = pace.until.max(arrives) + work_ps;
        let taken_in = pace.until;
        let latency_ps = std::mem::replace(&mut link.latency_ps, taken_in - leaves);
        depart(link, number, self.packets.heads(), place, bytes, NO_LINK, self.now, &mut self.queue);
        self.links[number as usize].latency_ps = latency_ps;
    }
}
