//! A ring comes together, and segments leave with sums.

use std::ops::Range;
use std::sync::Arc;

use fanin_core::Instant;
use fanin_protocols::shared::splice::Inserted;
use fanin_wire::stream::MessageHeader;

use super::ring::{End, Failure, Ring, RingKey};
use super::stream::{Held, Membership, State, Stream};
use super::{Ports, Switch};
use crate::segment::Flow;

impl Switch {
    /// A stream has shown its first header.
    pub(super) fn join(&mut self, now: Instant, flow: Flow, header: &MessageHeader, frames: Vec<Held>, out: &mut impl Ports) {
        let mut admitted = self.ring_for(now, header).and_then(|key| self.admit(key, flow, header).map(|()| key));
        if let Err(failure @ Failure::Again { .. }) = &admitted {
            let failure = failure.clone();
            if let Some(&key) = self.numbers.get(&header.ring) {
                self.fail(now, key, &failure, out);
            }
            admitted = self.ring_for(now, header);
        }
        let key = match admitted {
            Ok(key) => key,
            Err(failure) => {
                if let Some(&key) = self.numbers.get(&header.ring).filter(|_| !failure.is_newcomers()) {
                    self.fail(now, key, &failure, out);
                }
                return self.refuse(now, flow, header, &failure, &frames, out);
            }
        };
        let membership = Membership { ring: key, rank: header.rank };
        if let Some(stream) = self.streams.get_mut(&flow) {
            stream.state = State::Member(membership);
            frames.iter().for_each(|held| stream.remember(held));
        }
        if let Some(ring) = self.rings.get_mut(&key) {
            ring.join(now, flow, header.rank);
        }
        if let Some(failure) = self.mixed(key) {
            self.fail(now, key, &failure, out);
        }
        for held in frames {
            self.on_member(now, membership, held, out);
        }
    }

    /// The ring of a number that can be joined. One that somebody has left is over, whoever still sends the rest of it.
    fn ring_for(&mut self, now: Instant, header: &MessageHeader) -> Result<RingKey, Failure> {
        if let Some(key) = self.numbers.get(&header.ring).filter(|key| self.rings.get(key).is_some_and(|ring| !ring.is_closing)) {
            return Ok(*key);
        }
        if self.rings.len() >= self.config.rings_max {
            return Err(Failure::TooManyRings { most: self.config.rings_max });
        }
        self.statistics.rings += 1;
        tracing::info!(ring = header.ring, world = header.world, "a ring begins");
        let key = RingKey(self.next_ring);
        self.next_ring += 1;
        self.rings.insert(key, Ring::new(now, header.ring, header.world, self.config.stream_bytes));
        self.numbers.insert(header.ring, key);
        Ok(key)
    }

    fn admit(&self, key: RingKey, flow: Flow, header: &MessageHeader) -> Result<(), Failure> {
        self.rings.get(&key).map_or(Ok(()), |ring| ring.admit(flow, header))
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
    fn mixed(&self, key: RingKey) -> Option<Failure> {
        let ring = self.rings.get(&key).filter(|ring| ring.joined == ring.world && !ring.has_begun)?;
        let first = ring.flows().next()?.to.port();
        if ring.flows().all(|flow| flow.to.port() == first) {
            return None;
        }
        let undecided = |stream: &Stream| stream.answers.opened && matches!(stream.state, State::Undecided(_) | State::Reset(_));
        self.streams.iter().filter(|(_, stream)| undecided(stream)).find_map(|(&other, _)| {
            let beside =
                |flow: Flow| flow.from.ip() == other.from.ip() && flow.to.ip() == other.to.ip() && flow.to.port() != other.to.port();
            let (rank, member) = ring.ranks().find(|&(_, flow)| beside(flow))?;
            let known_port = ring.flows().any(|flow| flow.to.port() == other.to.port());
            known_port.then_some(Failure::Mixed { rank, member, other: other.into() })
        })
    }

    /// All receivers have what the one that is furthest behind has acknowledged. Senders that have waited for room are told that there is
    /// some, but for `answered`, whose answer is about to pass.
    pub(super) fn release(&mut self, key: RingKey, answered: Flow, out: &mut impl Ports) {
        let Some(ring) = self.rings.get_mut(&key) else { return };
        // Without all of its members a ring has begun just now, or some have ended with all that there was.
        if ring.joined < ring.world {
            return;
        }
        let behind = ring.flows().filter_map(|flow| self.streams.get(&flow)).map(|stream| stream.acknowledged).min();
        let before = ring.splice.limit();
        if let Some(to) = behind {
            ring.splice.release(to);
        }
        let limit = ring.splice.limit();
        if limit == before {
            return;
        }
        for flow in ring.flows().filter(|flow| *flow != answered) {
            let update = self.streams.get_mut(&flow).and_then(|stream| stream.more_room(limit, self.config.stream_bytes as u64));
            if let Some((offload, frame)) = update {
                self.bridge.forward(usize::MAX, &frame, |port| out.send(port, &offload, &frame));
            }
        }
    }

    /// A segment of a ring's connection (`netreduce 5.2`).
    pub(super) fn on_member(&mut self, now: Instant, membership: Membership, mut held: Held, out: &mut impl Ports) {
        let flow = held.segment.flow;
        let (Some(stream), Some(ring)) = (self.streams.get_mut(&flow), self.rings.get_mut(&membership.ring)) else { return };
        stream.remember(&held);
        if held.end() <= stream.acknowledged && !held.segment.flags.fin {
            // Its receiver has all of it, and says so once more.
            self.statistics.repeated += 1;
            return self.forward(held.port, &held.offload, &held.frame, out);
        }
        let repeated = held.offset < stream.highest;
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
                if held.segment.flags.fin {
                    stream.fin = Some(held.end());
                    ring.note_end(End { rank: membership.rank, of: membership.rank, at: held.end(), since: now });
                }
                self.statistics.repeated += u64::from(repeated);
                if repeated {
                    self.answer_first_part(membership.ring, &mut held, out);
                }
                self.hold(held);
            }
        }
        self.let_go(now, membership.ring, flow, &complete, out);
        complete.clear();
        if let Some(ring) = self.rings.get_mut(&membership.ring) {
            ring.complete = complete;
        }
        self.check_ends(now, membership.ring, out);
    }

    fn hold(&mut self, held: Held) {
        let Some(stream) = self.streams.get_mut(&held.segment.flow) else { return };
        if stream.held_bytes + held.frame.len() > 2 * self.config.stream_bytes {
            // Its bytes are kept; when it is sent again, it is answered at once.
            self.statistics.dropped += 1;
            return;
        }
        stream.held_bytes += held.frame.len();
        self.held_bytes += held.frame.len() as u64;
        self.statistics.held_bytes_peak = self.statistics.held_bytes_peak.max(self.held_bytes);
        stream.held.insert((held.offset, held.arrival), held);
    }

    /// Lets those segments go whose sums are complete now, and the one that `flow` has just sent.
    fn let_go(&mut self, now: Instant, key: RingKey, flow: Flow, complete: &[Range<u64>], out: &mut impl Ports) {
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
            if *member == flow {
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
