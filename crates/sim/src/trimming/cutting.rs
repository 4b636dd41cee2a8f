//! What a network does with a packet that finds a queue full, and with what is left of it.

use fanin_core::{DropReason, Wire};

use super::{Trimming, Whole};
use crate::link::link_flags;
use crate::net::{HeldBack, Net};
use crate::packet::{NO_LINK, flags};

/// How many of what was cut a link sends for each frame that is queued (NDP 3.1: weighted round robin, 10 to 1).
const CUT_FOR_A_FRAME: u64 = 10;

impl<H: Wire, O: Clone> Net<H, O> {
    /// A packet finds a link's queue full.
    #[cold]
    #[inline(never)]
    pub fn overflow(&mut self, number: u32, place: u32) {
        let source = self.packets.rest(place).source;
        let (hosts, least) = (self.topology.map.hosts(), self.frame_bytes(0));
        let (head, link) = (self.packets.at(place), &mut self.links[number as usize]);
        let is_kept = |whose| source < hosts || whose == Trimming::All;
        // Nothing is gained by cutting what carries nothing.
        let is_cut = !head.has(flags::BACKGROUND) && head.frame_bytes > least;
        let Some(trims) = self.trims.as_mut().filter(|trims| is_cut && is_kept(trims.whose)) else {
            link.packets_dropped += 1;
            return self.drop_packet(place, DropReason::QueueFull);
        };
        let marks = link.mark_ps != u64::MAX;
        self.packets_marked += u64::from(marks && !head.has(flags::ECN));
        let whole = Whole {
            frame_bytes: head.frame_bytes,
            destination: head.destination,
            flags: if marks { head.flags | flags::ECN } else { head.flags },
            link: if head.has(flags::NEIGHBOUR) { number } else { NO_LINK },
        };
        trims.whole.insert(place, whole);
        trims.frame_bytes_max = trims.frame_bytes_max.max(whole.frame_bytes);
        trims.count += 1;
        head.flags |= flags::TRIMMED;
        head.frame_bytes = least;
        self.send_ahead(number, place);
    }

    /// Sends what is left of a packet before all that is queued.
    pub fn send_ahead(&mut self, number: u32, place: u32) {
        let bytes = self.packets.get(place).frame_bytes;
        let link = &mut self.links[number as usize];
        if link.has(link_flags::DOWN) {
            return self.drop_packet(place, DropReason::Down);
        }
        let Some(trims) = &mut self.trims else { return self.drop_packet(place, DropReason::QueueFull) };
        let until = &mut trims.ahead_until[number as usize];
        let (send_ps, queued_ps) = (link.send_time_ps(bytes), link.busy_until.saturating_sub(self.now));
        // Where frames are queued, one of them is being sent: at most so much of it is left.
        let frame_ps = queued_ps.min(link.send_time_ps(trims.frame_bytes_max));
        // After so many a frame has its turn: else they could take all that the link carries, and all frames be cut.
        let turn_ps = send_ps + frame_ps / CUT_FOR_A_FRAME;
        let waiting = until.saturating_sub(self.now).div_ceil(turn_ps.max(1));
        if waiting.saturating_add(1).saturating_mul(send_ps) > link.limit_ps {
            link.packets_dropped += 1;
            return self.drop_packet(place, DropReason::QueueFull);
        }
        let departs = (*until).max(self.now + frame_ps) + send_ps;
        *until = departs + turn_ps - send_ps;
        link.busy_until = link.busy_until.max(self.now) + send_ps;
        link.bytes_sent += u64::from(bytes);
        link.packets_sent += 1;
        let arrives = departs + link.latency_ps;
        self.hold_back(arrives, HeldBack::Ahead(number, place));
    }

    /// A switch has lost its memory, and with it what it has made and kept.
    pub fn forget_kept(&mut self, switch: u32) {
        let packets = &self.packets;
        if let Some(trims) = &mut self.trims {
            trims.whole.retain(|place, _| packets.rest(*place).source != switch);
        }
    }
}
