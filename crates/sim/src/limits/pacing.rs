//! Hosts with limits at work: when what they send leaves, and when what comes is taken in.

use fanin_core::{DropReason, NodeId, Wire};

use super::{HostLimit, Pace};
use crate::credits::Credits;
use crate::link::{Link, link_flags};
use crate::net::{Net, depart};
use crate::packet::{NO_LINK, flags};

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
            return self.overflow(number, place);
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
