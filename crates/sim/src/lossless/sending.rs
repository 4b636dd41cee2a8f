//! Sending by lossless links: who commits, who waits, and who learns of it.

use fanin_core::{DropReason, Wire};

use super::{Arbitration, Input, MadePackets, Work};
use crate::link::{Link, NEVER, link_flags};
use crate::net::{Net, depart};
use crate::packet::{Arrived, Head, NO_LINK, NO_PACKET, flags};
use crate::queue::EventQueue;

impl<H: Wire, O: Clone> Net<H, O> {
    /// A host or a node at a switch sends a packet of `bytes` bytes by `number`.
    #[inline(always)]
    pub fn send_lossless(&mut self, number: u32, place: u32, bytes: u32) {
        let link = &self.links[number as usize];
        if link.has(link_flags::BY_INPUT) {
            self.send_by_input(link.from.0, number, place, bytes);
        } else {
            self.send_at_once(number, place, bytes);
        }
    }

    #[inline(never)]
    fn send_at_once(&mut self, number: u32, place: u32, bytes: u32) {
        self.commit_or_wait(number, place, bytes, NO_LINK);
        self.settle();
    }

    /// A node at switch `from` sends by `number`, through an input for packets that are made.
    #[inline(never)]
    fn send_by_input(&mut self, from: u32, number: u32, place: u32, bytes: u32) {
        let input = self.lossless.input_of_made(from, number);
        let packet = self.packets.at(place);
        // It comes to the switch where it is made.
        packet.arrival_ps = self.now;
        if self.lossless.made_packets == MadePackets::PerOutput {
            // Its fellow copies stand in other queues.
            packet.flags &= !flags::COPY;
        }
        if self.lossless.inputs[input as usize].is_free() {
            self.claim_first(input, NO_LINK, number, place, bytes);
        } else {
            self.packets.at(place).output = number;
            self.stand_behind(input, place);
        }
        self.settle();
    }

    /// A packet has reached switch `at` and goes on from there; the caller settles what follows.
    #[inline(always)]
    pub fn forward_lossless(&mut self, at: u32, Arrived { place, label, frame_bytes, charged_to }: Arrived) {
        // Where switches have no inputs, or the packet has come by none, there is none of this number.
        let is_free = self.lossless.inputs.get(charged_to as usize).map(Input::is_free);
        if is_free == Some(false) {
            return self.stand_behind(charged_to, place);
        }
        match self.route(at, place, label) {
            Some(link) if is_free.is_some() => self.claim_first(charged_to, charged_to, link, place, frame_bytes),
            Some(link) => self.commit_or_wait(link, place, frame_bytes, charged_to),
            None => self.drop_packet(place, DropReason::NoRoute),
        }
    }

    /// The packet is gone from where it stood: its buffer is free.
    pub fn release(&mut self, place: u32) {
        let packet = self.packets.at(place);
        let charged_to = std::mem::replace(&mut packet.charged_to, NO_LINK);
        if charged_to != NO_LINK {
            let bytes = packet.frame_bytes;
            self.give_back(charged_to, self.now, bytes);
        }
    }

    /// Takes everything that waits before a link that went down.
    pub fn drop_waiting(&mut self, number: u32) {
        let mut place = std::mem::replace(&mut self.links[number as usize].waiting.first, NO_PACKET);
        while place != NO_PACKET {
            let next = self.packets.at(place).next;
            self.drop_packet(place, DropReason::Down);
            place = next;
        }
        self.links[number as usize].waiting_ps = 0;
        self.serve_claims(number);
        self.settle();
    }

    /// Queues a packet, which stands in the buffer at the end of link `charged_to`, before its link: it commits its departure if it gets
    /// credits. Otherwise it is the first one that lacks them, or stands behind others.
    #[inline(always)]
    fn commit_or_wait(&mut self, number: u32, place: u32, bytes: u32, charged_to: u32) {
        let (links, heads, now) = (&mut self.links[..], self.packets.heads(), self.now);
        let link = &mut links[number as usize];
        if let Some(departure) = commit(link, number, heads, place, bytes, now, &mut self.queue) {
            if charged_to != NO_LINK {
                give_back(links, &mut self.lossless.work, charged_to, departure, bytes, now);
            }
            return;
        }
        self.wait_uncommitted(number, place, charged_to);
    }

    /// A packet that has not committed its departure, for want of credits or since its link is not one of the usual ones.
    #[inline(always)]
    fn wait_uncommitted(&mut self, number: u32, place: u32, charged_to: u32) {
        let (heads, now) = (self.packets.heads(), self.now);
        let link = &mut self.links[number as usize];
        let head = &mut heads[place as usize];
        head.charged_to = charged_to;
        head.next = NO_PACKET;
        if link.has(link_flags::DOWN | link_flags::SHARED | link_flags::LIMITED) {
            return self.commit_or_wait_shared(number, place);
        }
        wait_for_credits(link, number, heads, place, now, &mut self.queue, self.ids.wakes);
    }

    /// The same by a link that is down, one of several channels of its cable, or one of a host that has a limit.
    #[cold]
    #[inline(never)]
    fn commit_or_wait_shared(&mut self, number: u32, place: u32) {
        let (heads, now) = (self.packets.heads(), self.now);
        let link = &mut self.links[number as usize];
        if link.has(link_flags::DOWN) {
            return self.drop_packet(place, DropReason::Down);
        }
        let Head { frame_bytes: bytes, charged_to, .. } = heads[place as usize];
        if link.has(link_flags::LIMITED) {
            return self.commit_or_wait_limited(number, place, bytes, charged_to);
        }
        if !link.waiting.is_empty() || !link.credits.take(bytes, link.busy_until.max(now)) {
            return wait_for_credits(link, number, heads, place, now, &mut self.queue, self.ids.wakes);
        }
        let departure = depart(link, number, heads, place, bytes, number, now, &mut self.queue);
        self.share_transmitter(number);
        if charged_to != NO_LINK {
            self.give_back(charged_to, departure, bytes);
        }
    }

    fn commit_or_wait_limited(&mut self, number: u32, place: u32, bytes: u32, charged_to: u32) {
        self.begin_limited(number, place, bytes);
        let departure = if self.links[number as usize].waiting.is_empty() { self.leave_limited(number, place) } else { None };
        match departure {
            Some(departure) if charged_to != NO_LINK => self.give_back(charged_to, departure, bytes),
            Some(_) => {}
            None => {
                let (heads, now) = (self.packets.heads(), self.now);
                wait_for_credits(&mut self.links[number as usize], number, heads, place, now, &mut self.queue, self.ids.wakes);
            }
        }
    }

    /// Commits as many packets as have credits of those that wait before a link of a host that has a limit.
    fn advance_limited(&mut self, number: u32) {
        loop {
            let place = self.links[number as usize].waiting.first;
            let Some(Head { frame_bytes: bytes, charged_to, next, .. }) = self.packets.heads().get(place as usize).copied() else { return };
            let Some(departure) = self.leave_limited(number, place) else { return };
            let link = &mut self.links[number as usize];
            link.waiting.first = next;
            link.waiting_ps -= link.send_time_ps(bytes);
            if charged_to != NO_LINK {
                self.give_back(charged_to, departure, bytes);
            }
        }
    }

    /// `bytes` bytes of the buffer at the end of link `number` are free from `at` on.
    #[inline(always)]
    pub fn give_back(&mut self, number: u32, at: u64, bytes: u32) {
        give_back(&mut self.links, &mut self.lossless.work, number, at, bytes, self.now);
    }

    /// Looks at all links that have got credits, and at those that this concerns in turn.
    #[inline(always)]
    pub fn settle(&mut self) {
        while let Some(link) = self.lossless.work.pop() {
            self.advance_link(link);
        }
    }

    /// Commits as many waiting packets as have credits, lets inputs move up, and arms the next wake-up.
    fn advance_link(&mut self, number: u32) {
        let (links, heads, now) = (&mut self.links[..], self.packets.heads(), self.now);
        let mut link = &mut links[number as usize];
        if link.has(link_flags::LIMITED) {
            self.advance_limited(number);
            return self.after_advance(number);
        }
        while let Some(head) = heads.get(link.waiting.first as usize) {
            let (place, bytes, charged_to) = (link.waiting.first, head.frame_bytes, head.charged_to);
            if !link.credits.take(bytes, link.busy_until.max(now)) {
                break;
            }
            link.waiting.first = head.next;
            link.waiting_ps -= link.send_time_ps(bytes);
            let departure = depart(link, number, heads, place, bytes, number, now, &mut self.queue);
            if charged_to != NO_LINK {
                give_back(links, &mut self.lossless.work, charged_to, departure, bytes, now);
                link = &mut links[number as usize];
            }
        }
        self.after_advance(number);
    }

    /// After departures, if there were any: who waits for room learns of it, and the next wake-up is armed.
    #[inline(always)]
    fn after_advance(&mut self, number: u32) {
        if self.links[number as usize].has(link_flags::FROM_HOST | link_flags::SHARED) {
            self.after_departures(number);
        }
        if !self.links[number as usize].claims.is_empty() {
            self.serve_claims(number);
        }
        let link = &mut self.links[number as usize];
        if !link.claims.is_empty() || !link.waiting.is_empty() && link.credits.next_ps() < link.wake_at {
            arm(link, number, self.packets.heads(), self.now, &mut self.queue, self.ids.wakes);
        }
    }

    /// Those concerned by departures from a host, or by one of several channels, learn of them.
    #[inline]
    fn after_departures(&mut self, number: u32) {
        let link = &self.links[number as usize];
        if link.has(link_flags::SHARED) {
            self.share_transmitter(number);
        } else if link.waiting_ps == 0 {
            self.host_may_send(number);
        }
    }

    /// The link's wake-up: it is looked at.
    #[inline(always)]
    pub fn on_wake(&mut self, number: u32) {
        let link = &mut self.links[number as usize];
        if link.wake_at != self.now {
            return;
        }
        link.wake_at = NEVER;
        self.lossless.work.push(number);
    }

    /// A packet stands at an input behind others.
    #[inline]
    fn stand_behind(&mut self, input: u32, place: u32) {
        let behind = &mut self.lossless.inputs[input as usize].behind;
        self.packets.at(place).next = NO_PACKET;
        let last = std::mem::replace(&mut behind.last, place);
        if behind.is_empty() {
            behind.first = place;
        } else {
            self.packets.at(last).next = place;
        }
    }

    /// A packet that nobody is before at its input wants to go on by `number`.
    #[inline(always)]
    fn claim_first(&mut self, input: u32, charged_to: u32, number: u32, place: u32, bytes: u32) {
        if !self.claim(input, charged_to, number, place, bytes) {
            self.lossless.inputs[input as usize].pending = 1;
        }
    }

    /// Moves first packets of an input to their outputs until one is blocked. The copies of one multicast stand behind each other and
    /// move independently; the input goes on when all have moved.
    fn advance_input(&mut self, input: u32) {
        let mut place = self.lossless.inputs[input as usize].behind.first;
        let mut pending = 0;
        while place != NO_PACKET && pending == 0 {
            loop {
                let next = self.packets.at(place).next;
                pending += u32::from(!self.claim_next(input, place));
                place = next;
                if place == NO_PACKET || !self.packets.get(place).has(flags::COPY) {
                    break;
                }
            }
        }
        let queue = &mut self.lossless.inputs[input as usize];
        (queue.behind.first, queue.pending) = (place, pending);
    }

    /// Finds a packet's output and moves it there; false where it has to wait for its turn.
    #[inline]
    fn claim_next(&mut self, input: u32, place: u32) -> bool {
        let packet = self.packets.at(place);
        let output = std::mem::replace(&mut packet.output, NO_LINK);
        let (bytes, charged_to, label) = (packet.frame_bytes, packet.charged_to, packet.label());
        let number = match output {
            NO_LINK => match self.route(self.links[input as usize].to, place, label) {
                Some(number) => number,
                None => {
                    self.drop_packet(place, DropReason::NoRoute);
                    return true;
                }
            },
            fixed => fixed,
        };
        self.claim(input, charged_to, number, place, bytes)
    }

    /// Moves a packet to its output's buffer; false where it has to wait for its turn. It stands at `input`, in the buffer at the end of
    /// link `charged_to` if it came by one.
    #[inline(always)]
    fn claim(&mut self, input: u32, charged_to: u32, number: u32, place: u32, bytes: u32) -> bool {
        let (heads, now) = (self.packets.heads(), self.now);
        let link = &mut self.links[number as usize];
        if !link.claims.is_empty() || !link.has_room(bytes, now) {
            self.wait_for_output(input, number, place);
            return false;
        }
        link.served = input;
        let departure = commit(link, number, heads, place, bytes, now, &mut self.queue);
        self.after_move(departure, charged_to, number, place, bytes);
        true
    }

    /// The output's buffer has no room, or others wait for it.
    fn wait_for_output(&mut self, input: u32, number: u32, place: u32) {
        let before = self.before_in_turn(input, number, place);
        let link = &mut self.links[number as usize];
        let next = if before == NO_PACKET { &mut link.claims.first } else { &mut self.packets.at(before).next };
        let behind = std::mem::replace(next, place);
        if behind == NO_PACKET {
            link.claims.last = place;
        }
        let head = self.packets.at(place);
        (head.next, head.output) = (behind, input);
        arm(link, number, self.packets.heads(), self.now, &mut self.queue, self.ids.wakes);
    }

    /// The packet behind which one from `input` waits for output `number`, so that the first one is always the next one to be served.
    #[inline(always)]
    fn before_in_turn(&self, input: u32, number: u32, place: u32) -> u32 {
        let link = &self.links[number as usize];
        match self.lossless.arbitration {
            Arbitration::FirstCome if link.claims.is_empty() => NO_PACKET,
            Arbitration::FirstCome => link.claims.last,
            // Who is served becomes the last one of the order, which leaves the order of the others as it is.
            Arbitration::RoundRobin => {
                let turn = |input: u32| u64::from(input.wrapping_sub(link.served).wrapping_sub(1));
                self.last_before(link, turn(input), |other| turn(self.packets.get(other).output))
            }
            Arbitration::OldestFirst => {
                self.last_before(link, self.packets.get(place).arrival_ps, |other| self.packets.get(other).arrival_ps)
            }
        }
    }

    /// The last one of those that wait for an output whose key is at most `key`.
    fn last_before(&self, link: &Link, key: u64, key_of: impl Fn(u32) -> u64) -> u32 {
        let (mut before, mut place) = (NO_PACKET, link.claims.first);
        while place != NO_PACKET && key_of(place) <= key {
            (before, place) = (place, self.packets.get(place).next);
        }
        before
    }

    /// The packet has left its input for the output's buffer, perhaps with its departure committed: the input's buffer is free now.
    #[inline(always)]
    fn after_move(&mut self, departure: Option<u64>, charged_to: u32, number: u32, place: u32, bytes: u32) {
        if departure.is_none() {
            self.wait_uncommitted(number, place, NO_LINK);
        }
        if charged_to != NO_LINK {
            self.give_back(charged_to, self.now, bytes);
        }
    }

    /// Lets waiting inputs move up, in turn, while the output's buffer has room.
    #[inline(always)]
    fn serve_claims(&mut self, number: u32) {
        loop {
            let (heads, now) = (self.packets.heads(), self.now);
            let link = &mut self.links[number as usize];
            let place = link.claims.first;
            let Some(head) = heads.get_mut(place as usize) else { return };
            let (bytes, charged_to) = (head.frame_bytes, head.charged_to);
            if !link.has_room(bytes, now) {
                return;
            }
            link.claims.first = head.next;
            let input = std::mem::replace(&mut head.output, NO_LINK);
            link.served = input;
            let departure = commit(link, number, heads, place, bytes, now, &mut self.queue);
            self.after_move(departure, charged_to, number, place, bytes);
            let queue = &mut self.lossless.inputs[input as usize];
            queue.pending -= 1;
            if queue.pending == 0 && !queue.behind.is_empty() {
                self.advance_input(input);
            }
        }
    }
}

/// `bytes` bytes of the buffer at the end of link `number` are free from `at` on.
#[inline(always)]
fn give_back(links: &mut [Link], work: &mut Work, number: u32, at: u64, bytes: u32, now_ps: u64) {
    let link = &mut links[number as usize];
    link.credits.give(at + link.latency_ps, bytes);
    if !link.waiting.is_empty() {
        // Where the credit comes too late to change anything now, and a look at it is due in time, there is nothing to do.
        let next_ps = link.credits.next_ps();
        if next_ps <= link.busy_until.max(now_ps) || next_ps < link.wake_at || !link.claims.is_empty() {
            work.push(number);
        }
    }
}

/// If the packet gets credits, its departure is certain: it follows what is committed already. Gives the time when its last byte leaves.
#[inline(always)]
fn commit(link: &mut Link, number: u32, heads: &mut [Head], place: u32, bytes: u32, now_ps: u64, queue: &mut EventQueue) -> Option<u64> {
    let (gets, holds) = match link.flags & (link_flags::TO_HOST | link_flags::DOWN | link_flags::SHARED | link_flags::LIMITED) {
        0 => (link.waiting.is_empty() && link.credits.take(bytes, link.busy_until.max(now_ps)), number),
        // A host without a limit takes what comes: nobody needs to be told when it has.
        link_flags::TO_HOST => (true, NO_LINK),
        _ => (false, NO_LINK),
    };
    if gets { Some(depart(link, number, heads, place, bytes, holds, now_ps, queue)) } else { None }
}

/// A packet without credits waits before its link, perhaps behind others.
#[inline(always)]
fn wait_for_credits(link: &mut Link, number: u32, heads: &mut [Head], place: u32, now_ps: u64, queue: &mut EventQueue, wakes: u32) {
    link.waiting_ps += link.send_time_ps(heads[place as usize].frame_bytes);
    link.peak_ps = link.peak_ps.max(link.queued_ps(now_ps));
    let last = std::mem::replace(&mut link.waiting.last, place);
    if link.waiting.is_empty() {
        link.waiting.first = place;
        arm(link, number, heads, now_ps, queue, wakes);
    } else {
        heads[last as usize].next = place;
    }
}

/// Schedules a link's wake-up, if it needs one: its next credit, or room in its buffer for the next claim.
#[inline(always)]
fn arm(link: &mut Link, number: u32, heads: &[Head], now_ps: u64, queue: &mut EventQueue, wakes: u32) {
    let mut at = NEVER;
    if !link.waiting.is_empty() {
        at = link.credits.next_ps();
    }
    if let Some(first) = heads.get(link.claims.first as usize) {
        // The output's buffer will have room for the first claim; nobody knows when while what it holds lacks credits.
        let held = link.send_time_ps(first.frame_bytes) + link.waiting_ps;
        if let Some(allowed) = link.limit_ps.checked_sub(held) {
            at = at.min(link.busy_until.saturating_sub(allowed));
        }
    }
    let at = at.max(now_ps);
    if at < link.wake_at {
        link.wake_at = at;
        wake(queue, at, wakes + number);
    }
}

#[inline(never)]
fn wake(queue: &mut EventQueue, at: u64, id: u32) {
    queue.push(at, id);
}
