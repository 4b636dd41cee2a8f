//! A ring comes together, and segments leave with sums.

use std::ops::Range;
use std::sync::Arc;

use fanin_core::Instant;
use fanin_protocols::shared::splice::Inserted;
use fanin_wire::stream::MessageHeader;

use super::key::RingKey;
use super::ring::tree::ends_here;
use super::ring::{End, Failure, Ring};
use super::stream::{Held, Membership, State, Stream};
use super::{Ports, Switch};
use crate::segment::Flow;
use crate::trunk::message::Said;

impl Switch {
    /// A stream has shown its first header.
    pub(super) fn join(&mut self, now: Instant, flow: Flow, header: &MessageHeader, frames: Vec<Held>, out: &mut impl Ports) {
        let key = match self.admitted(now, flow, (header.ring, header.rank, header.world), out) {
            Ok(key) => key,
            Err(failure) => {
                if let Some(&key) = self.numbers.get(&header.ring).filter(|_| !failure.is_newcomers()) {
                    self.fail(now, key, &failure, out);
                }
                return self.refuse(now, flow, header, &failure, &frames, out);
            }
        };
        let membership = Membership { ring: key, rank: header.rank, is_noticed: false };
        if let Some(stream) = self.streams.get_mut(&flow) {
            stream.state = State::Member(membership);
            frames.iter().for_each(|held| stream.remember(held));
        }
        if let Some(ring) = self.rings.get_mut(&key) {
            ring.join(now, flow, header.rank);
        }
        if let Some(failure) = self.mixed(key).filter(|_| self.rings.get(&key).is_some_and(|ring| ring.joined == ring.world)) {
            self.fail(now, key, &failure, out);
        }
        for held in frames {
            self.on_member(now, membership, held, out);
        }
        self.grow(now, key, out);
    }

    /// The ring that a rank, here or behind a switch below, can join.
    pub(super) fn admitted(
        &mut self,
        now: Instant,
        flow: Flow,
        (number, rank, world): (u32, u16, u16),
        out: &mut impl Ports,
    ) -> Result<RingKey, Failure> {
        let admitted = self.ring_for(now, number, world).and_then(|key| self.admit(key, flow, rank, world).map(|()| key));
        let Err(failure @ Failure::Again { .. }) = &admitted else { return admitted };
        if let Some(&key) = self.numbers.get(&number) {
            self.fail(now, key, failure, out);
        }
        self.ring_for(now, number, world)
    }

    /// The ring of a number that can be joined. One that somebody has left is over, whoever still sends the rest of it.
    fn ring_for(&mut self, now: Instant, number: u32, world: u16) -> Result<RingKey, Failure> {
        if let Some(key) = self.numbers.get(&number).filter(|key| self.rings.get(key).is_some_and(|ring| !ring.is_closing)) {
            return Ok(*key);
        }
        if self.rings.len() >= self.config.rings_max {
            return Err(Failure::TooManyRings { most: self.config.rings_max });
        }
        self.statistics.rings += 1;
        tracing::info!(ring = number, world, "a ring begins");
        let key = RingKey(self.next_ring);
        self.next_ring += 1;
        self.rings.insert(key, Ring::new(now, number, world, self.config.stream_bytes));
        self.numbers.insert(number, key);
        Ok(key)
    }

    pub(super) fn admit(&self, key: RingKey, flow: Flow, rank: u16, world: u16) -> Result<(), Failure> {
        self.rings.get(&key).map_or(Ok(()), |ring| ring.admit(flow, rank, world))
    }

    /// Only the one who comes is told: why, and that its connection is over.
    fn refuse(&mut self, now: Instant, flow: Flow, header: &MessageHeader, failure: &Failure, frames: &[Held], out: &mut impl Ports) {
        self.statistics.refused += 1;
        if self.notices.refused.count(now) {
            tracing::warn!(ring = header.ring, rank = header.rank, from = %flow.from, "refused: {failure}");
        }
        let (Some(stream), Some(first)) = (self.streams.get_mut(&flow), frames.first()) else { return };
        let why: Arc<str> = format!("ring {}: rank {} is refused: {failure}", header.ring, header.rank).into();
        stream.keep_template(first);
        stream.reset(now, why);
        self.reset_ends(flow, out);
    }

    /// Whether the ranks that have come are of two jobs on the same hosts, which addresses do not tell apart. Where all of a job listen at
    /// one port, there is another connection beside a member's, between the same hosts, to a port at which other members' receivers listen.
    pub(super) fn mixed(&self, key: RingKey) -> Option<Failure> {
        let ring = self.rings.get(&key).filter(|ring| ring.known() == usize::from(ring.world) && !ring.has_begun)?;
        let first = ring.seats().next()?.1.to.port();
        if ring.seats().all(|(_, flow)| flow.to.port() == first) {
            return None;
        }
        // Of one that is relayed, or whose first segment is still to come from another switch, it is known of which ring it is.
        let undecided = |stream: &Stream| {
            stream.answers.opened && stream.far_ring.is_none() && matches!(stream.state, State::Undecided(_) | State::Reset(_))
        };
        self.streams.iter().filter(|(_, stream)| undecided(stream)).find_map(|(&other, _)| {
            let beside =
                |flow: Flow| flow.from.ip() == other.from.ip() && flow.to.ip() == other.to.ip() && flow.to.port() != other.to.port();
            let (rank, member) = ring.seats().find(|&(_, flow)| beside(flow))?;
            let known_port = ring.seats().any(|(_, flow)| flow.to.port() == other.to.port());
            known_port.then_some(Failure::Mixed { rank, member, other: other.into() })
        })
    }

    /// All receivers have what the one that is furthest behind has acknowledged. Senders that have waited for room are told that there is
    /// some, but for `answered`, whose answer is about to pass.
    pub(super) fn release(&mut self, key: RingKey, answered: Option<Flow>, out: &mut impl Ports) {
        let Some(ring) = self.rings.get_mut(&key) else { return };
        // Without all of its members a ring has begun just now, or some have ended with all that there was.
        if !ring.is_whole() {
            return;
        }
        // Where others sum, too, what is sent on for other switches' receivers is kept there.
        let is_alone = ring.tree.begun.is_none();
        let here = ring.flows().filter_map(|flow| self.streams.get(&flow)).filter(|stream| is_alone || ends_here(&self.trunks, stream));
        let below = ring.tree.children.iter().filter(|child| !child.is_over).map(|child| child.released);
        let behind = here.map(|stream| stream.acknowledged).chain(below).min();
        let before = ring.splice.limit();
        if let Some(to) = behind {
            ring.splice.release(to);
        }
        let limit = ring.splice.limit();
        if limit == before {
            return;
        }
        for flow in ring.flows().filter(|flow| Some(*flow) != answered) {
            let stream = self.streams.get_mut(&flow).filter(|stream| stream.membership().is_some_and(|membership| !membership.is_noticed));
            let update = stream.and_then(|stream| stream.more_room(limit, self.config.stream_bytes as u64));
            if let Some((offload, frame)) = update {
                self.bridge.forward(usize::MAX, &frame, |port| out.send(port, &offload, &frame));
            }
        }
        self.tell_room(key);
    }

    /// A segment of a ring's connection (`netreduce 5.2`).
    pub(super) fn on_member(&mut self, now: Instant, membership: Membership, mut held: Held, out: &mut impl Ports) {
        let flow = held.segment.flow;
        let leaves_elsewhere = self.leaves_elsewhere(membership, flow);
        let (Some(stream), Some(ring)) = (self.streams.get_mut(&flow), self.rings.get_mut(&membership.ring)) else { return };
        stream.remember(&held);
        if held.end() <= stream.acknowledged && !held.segment.flags.fin {
            // Its receiver has all of it, and says so once more.
            self.statistics.repeated += 1;
            return self.forward(held.port, &held.offload, &held.frame, out);
        }
        let repeated = held.offset < stream.highest;
        let time = held.segment.time(&held.frame);
        let payload = &held.frame[held.segment.payload()];
        let mut complete = std::mem::take(&mut ring.complete);
        let inserted = ring.splice.insert(membership.rank, held.offset, payload, &mut complete);
        match inserted {
            Err(error) => {
                ring.complete = complete;
                return self.fail(now, membership.ring, &Failure::Splice(error), out);
            }
            Ok(Inserted::TooFar) => self.statistics.dropped += 1,
            Ok(Inserted::Taken) => {
                stream.highest = stream.highest.max(held.end());
                stream.here.insert(held.offset.max(stream.acknowledged)..held.end());
                let rank = membership.rank;
                if held.segment.flags.fin {
                    stream.fin = Some(held.end());
                    let at = held.end();
                    if ring.note_end(End { rank, of: rank, at, since: now }) && ring.tree.is_used() {
                        self.spread_word(membership.ring, usize::MAX, &Said::End { rank, of: rank, at });
                    }
                }
                self.statistics.repeated += u64::from(repeated);
                if leaves_elsewhere {
                    self.send_stub(membership.ring, rank, &held);
                } else {
                    if repeated {
                        self.answer_first_part(membership.ring, &mut held, out);
                    }
                    self.hold(held);
                }
            }
        }
        self.spread(now, membership.ring, Some(flow), &complete, out);
        self.answer_at_once(now, flow, time, out);
        self.keep_ranges(membership.ring, complete);
        self.check_ends(now, membership.ring, out);
    }

    /// The headers of a segment whose sender is at another switch: it waits for the sums that are to stand in it.
    pub(super) fn on_noticed(&mut self, now: Instant, membership: Membership, mut held: Held, out: &mut impl Ports) {
        let (key, flow) = (membership.ring, held.segment.flow);
        let (Some(stream), Some(ring)) = (self.streams.get_mut(&flow), self.rings.get_mut(&key)) else { return };
        stream.remember(&held);
        if held.end() <= stream.acknowledged && !held.segment.flags.fin {
            self.statistics.repeated += 1;
            return self.emit(key, &mut held, out);
        }
        let repeated = held.offset < stream.highest;
        stream.highest = stream.highest.max(held.end());
        if held.segment.flags.fin {
            stream.fin = Some(held.end());
            ring.note_end(End { rank: membership.rank, of: membership.rank, at: held.end(), since: now });
        }
        self.statistics.repeated += u64::from(repeated);
        if repeated {
            self.answer_first_part(key, &mut held, out);
        }
        self.hold(held);
        self.let_go(now, key, Some(flow), &[], out);
        self.check_ends(now, key, out);
    }

    fn hold(&mut self, held: Held) {
        let Some(stream) = self.streams.get_mut(&held.segment.flow) else { return };
        // The bytes of what is dropped are kept; when it is sent again, it is answered at once. The furthest goes first: a sender at another
        // switch may be far ahead of what can be summed, and all may wait for what it sends now.
        while stream.held_bytes + held.frame.len() > 2 * self.config.stream_bytes {
            let Some(last) = stream.held.last_entry() else { break };
            self.statistics.dropped += 1;
            if last.key().0 <= held.offset {
                return;
            }
            let bytes = last.remove().frame.len();
            stream.held_bytes -= bytes;
            self.held_bytes -= bytes as u64;
        }
        stream.held_bytes += held.frame.len();
        self.held_bytes += held.frame.len() as u64;
        self.statistics.held_bytes_peak = self.statistics.held_bytes_peak.max(self.held_bytes);
        stream.held.insert((held.offset, held.arrival), held);
    }

    /// Lets those segments go whose sums are complete now, and the one that `flow` has just sent.
    pub(super) fn let_go(&mut self, now: Instant, key: RingKey, flow: Option<Flow>, complete: &[Range<u64>], out: &mut impl Ports) {
        let Some(ring) = self.rings.get_mut(&key) else { return };
        if !complete.is_empty() {
            ring.moved = now;
            ring.has_begun = true;
        }
        let mut ready: Vec<Held> = Vec::new();
        for member in ring.members.iter().flatten() {
            let Some(stream) = self.streams.get_mut(member) else { continue };
            for range in complete {
                stream.take_ready(&ring.splice, range.clone(), &mut ready);
            }
            if Some(*member) == flow {
                let end = stream.highest;
                stream.take_ready(&ring.splice, end.saturating_sub(1)..end, &mut ready);
                if let Some(last) = stream.newest {
                    stream.take_ready(&ring.splice, last..last + 1, &mut ready);
                }
            }
        }
        ready.sort_unstable_by_key(|held| held.arrival);
        for mut held in ready {
            self.held_bytes -= held.frame.len() as u64;
            if let Some(stream) = self.streams.get_mut(&held.segment.flow) {
                stream.note_left(now, held.offset..held.end());
            }
            self.emit(key, &mut held, out);
        }
    }

    /// A segment leaves with sums in it.
    fn emit(&mut self, key: RingKey, held: &mut Held, out: &mut impl Ports) {
        let (Some(ring), Some(stream)) = (self.rings.get(&key), self.streams.get_mut(&held.segment.flow)) else { return };
        ring.splice.read(held.offset, &mut held.frame[held.segment.payload()]);
        if let Some(time) = held.segment.time(&held.frame) {
            let latest = stream.latest_time.filter(|latest| latest.wrapping_sub(time) as i32 > 0).unwrap_or(time);
            stream.latest_time = Some(latest);
            held.segment.set_time(&mut held.frame, latest);
        }
        held.segment.finish(&mut held.frame, &mut held.offload);
        self.statistics.summed += 1;
        self.bridge.forward(held.port, &held.frame, |port| out.send(port, &held.offload, &held.frame));
    }

    /// A segment comes again, and its first bytes are complete while its last ones are not: the first ones leave by themselves.
    fn answer_first_part(&mut self, key: RingKey, held: &mut Held, out: &mut impl Ports) {
        let (Some(ring), Some(stream)) = (self.rings.get(&key), self.streams.get(&held.segment.flow)) else { return };
        let complete = ring.splice.complete_to(held.offset.max(stream.acknowledged));
        if complete <= held.offset.max(stream.acknowledged) || complete >= held.end() {
            return;
        }
        let mut first = held.clone();
        let length = first.segment.trim(&mut first.frame, (complete - held.offset) as u32);
        first.frame.truncate(length);
        self.statistics.cut += 1;
        self.emit(key, &mut first, out);
    }
}
