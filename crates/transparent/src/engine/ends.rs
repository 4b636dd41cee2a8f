//! A ring ends, well or not, and its workers are told why.

use std::sync::Arc;

use fanin_core::{Duration, Instant};
use fanin_wire::stream::reason;

use super::key::RingKey;
use super::ring::{End, Failure, Ring};
use super::stream::{Membership, State};
use super::{Ports, STALL, Switch};
use crate::segment::{Flow, Place, Segment, reset, turned, window_update, word};
use crate::trunk::message::Said;

/// A worker that ends closes both of its connections within that time; one whose successor has closed ends soon after it.
const TOGETHER: Duration = Duration::from_us(3_000_000);
/// After which time, from the first, resets are sent once more: a reset that is lost, or that does not stand where the other end waits (one that
/// has not said yet how much it has), is asked for by nobody, and whoever waits for bytes sends none.
const AGAIN: [Duration; 4] =
    [Duration::from_us(200_000), Duration::from_us(700_000), Duration::from_us(1_700_000), Duration::from_us(3_700_000)];
/// The window in a segment that is made here and brings bytes: nobody is to answer it.
const NO_MATTER: u16 = 1_000;

impl Switch {
    /// Whether somebody has ended where others cannot go on.
    pub(super) fn check_ends(&mut self, now: Instant, key: RingKey, out: &mut impl Ports) {
        let Some(ring) = self.rings.get(&key).filter(|ring| !ring.ends.is_empty()) else { return };
        let Some(end) = ring.first_end() else { return };
        let rank = self.who_ended(ring, end);
        let at = ring.place(rank);
        // Whoever waits in vain ends at some time: it is not the cause.
        let waited = if now.since(ring.moved) >= STALL { ring.waited(now).filter(|waited| !waited.ranks.contains(&rank)) } else { None };
        self.fail(now, key, &Failure::Ended { rank, at, waited }, out);
    }

    /// Who has ended first: the one who was seen to, or its successor, where that had closed its end of their connection just before. What a
    /// killed worker has not sent yet its kernel still sends, so that the end of its own stream may be seen last.
    fn who_ended(&self, ring: &Ring, end: End) -> u16 {
        let mut rank = end.rank;
        let mut seen = end.since;
        for _ in 1..ring.world {
            let closed = ring.member(rank).and_then(|flow| self.streams.get(&flow)).and_then(|stream| stream.answers.ended);
            match closed.filter(|&closed| closed <= seen && seen.since(closed) < TOGETHER) {
                Some(closed) => (rank, seen) = (ring.next(rank), closed),
                None => break,
            }
        }
        rank
    }

    /// A connection of a ring is gone, by rank `who`: whatever is not complete never will be.
    pub(super) fn end_member(&mut self, now: Instant, flow: Flow, membership: Membership, who: u16, out: &mut impl Ports) {
        let at = self.streams.get(&flow).map_or(0, |stream| stream.acknowledged);
        let of = membership.rank;
        if let Some(ring) = self.rings.get_mut(&membership.ring)
            && ring.note_end(End { rank: who, of, at, since: now })
            && ring.tree.is_used()
        {
            self.spread_word(membership.ring, usize::MAX, &Said::End { rank: who, of, at });
        }
        self.check_ends(now, membership.ring, out);
        // Where the ring was reset, its connections are remembered for a while.
        if self.streams.get(&flow).is_some_and(|stream| stream.membership().is_some()) {
            self.leave_ring(flow);
        }
    }

    /// A connection ends by which nothing was ever sent. Where a ring waits for a rank that would have just this one, by its addresses and
    /// the port at which all others' successors listen, that rank is gone before it came.
    pub(super) fn end_unspoken(&mut self, now: Instant, flow: Flow, out: &mut impl Ports) {
        let waits_for = |ring: &Ring| {
            if ring.joined >= ring.world || ring.tree.begun.is_some() {
                return None;
            }
            let rank = (0..ring.world).find(|&rank| {
                let beside = [ring.previous(rank), ring.next(rank)].iter().any(|&beside| ring.member(beside).is_some());
                ring.seat(rank).is_none() && beside && ring.fits(rank, flow).is_ok()
            })?;
            (!ring.is_closing && ring.flows().all(|member| member.to.port() == flow.to.port())).then_some(rank)
        };
        let found = self.rings.iter().find_map(|(key, ring)| Some((*key, waits_for(ring)?)));
        if let Some((key, rank)) = found {
            self.fail(now, key, &Failure::Ended { rank, at: Some(flow.from), waited: None }, out);
        }
    }

    /// Forgets a stream; its ring with the last one.
    pub(super) fn leave_ring(&mut self, flow: Flow) {
        let Some(stream) = self.streams.remove(&flow) else { return };
        self.held_bytes -= stream.held_bytes as u64;
        if let Some(membership) = stream.membership()
            && let Some(ring) = self.rings.get_mut(&membership.ring)
        {
            ring.leave(membership.rank);
            if self.after_leaving(membership.ring) {
                self.end_quietly(membership.ring);
            }
        }
    }

    /// Nobody is left.
    pub(super) fn end_quietly(&mut self, key: RingKey) {
        if let Some(ring) = self.remove_ring(key) {
            tracing::info!(ring = ring.number, "the ring has ended");
        }
    }

    fn remove_ring(&mut self, key: RingKey) -> Option<Ring> {
        let ring = self.rings.remove(&key)?;
        self.runs.retain(|_, known| *known != key);
        self.streams.values_mut().filter(|stream| stream.far_ring == Some(key)).for_each(|stream| stream.far_ring = None);
        if self.numbers.get(&ring.number) == Some(&key) {
            self.numbers.remove(&ring.number);
        }
        Some(ring)
    }

    /// A ring cannot go on: both ends of all its connections are told at once.
    pub(super) fn fail(&mut self, now: Instant, key: RingKey, failure: &Failure, out: &mut impl Ports) {
        let Some(ring) = self.remove_ring(key) else { return };
        tracing::error!(ring = ring.number, "{failure}: all its connections are reset");
        let why: Arc<str> = format!("ring {}: {failure}", ring.number).into();
        self.statistics.rings_failed += 1;
        self.say_to_others(&ring, key, usize::MAX, &Said::Fails { why: failure.to_string() });
        // Before the resets come there.
        self.settle(now, out);
        for flow in ring.flows() {
            let Some(stream) = self.streams.get_mut(&flow) else { continue };
            self.held_bytes -= stream.held_bytes as u64;
            stream.held.clear();
            stream.held_bytes = 0;
            stream.reset(now, Arc::clone(&why));
            self.reset_ends(flow, out);
        }
    }

    /// Both ends of a connection that is over are told, by frames that are made after one that came before.
    pub(super) fn reset_ends(&mut self, flow: Flow, out: &mut impl Ports) {
        let Some(stream) = self.streams.get(&flow) else { return };
        let (State::Reset(why), Some((frame, segment))) = (&stream.state, stream.template.clone()) else { return };
        let (why, places) = (Arc::clone(why), stream.places());
        self.send_resets(&frame, &segment, places, Some(&why), out);
    }

    /// A receiver whose last acknowledgement was lost has more than is known here, and drops a reset below that. To what it has had already it
    /// answers where it stands (RFC 9293, 3.10.7.4), and that is answered.
    fn ask_receiver(&self, flow: Flow, out: &mut impl Ports) {
        let Some(stream) = self.streams.get(&flow) else { return };
        let Some((template, segment)) = &stream.template else { return };
        let (to_receiver, _) = stream.places();
        let before = Place { sequence: to_receiver.sequence.wrapping_sub(1), ..to_receiver };
        let (offload, frame) = window_update(template, segment, before, NO_MATTER);
        self.bridge.forward(usize::MAX, &frame, |port| out.send(port, &offload, &frame));
    }

    /// Tells those ends again that may not have heard it.
    pub(super) fn repeat_resets(&mut self, now: Instant, out: &mut impl Ports) {
        let mut due: Vec<Flow> = Vec::new();
        for (flow, stream) in &mut self.streams {
            if matches!(stream.state, State::Reset(_)) && stream.template.is_some() {
                let since = now.since(stream.began);
                let again = AGAIN.iter().filter(|&&after| after <= since).count();
                if again > std::mem::replace(&mut stream.resets_repeated, again) {
                    due.push(*flow);
                }
            }
        }
        due.sort_unstable();
        for flow in due {
            self.reset_ends(flow, out);
            self.ask_receiver(flow, out);
            if let Some(stream) = self.streams.get_mut(&flow).filter(|stream| stream.resets_repeated == AGAIN.len()) {
                stream.template = None;
            }
        }
    }

    /// A ring is left to another switch: what is held of it goes on as it came.
    pub(super) fn pass_on(&mut self, key: RingKey, out: &mut impl Ports) {
        let Some(ring) = self.remove_ring(key) else { return };
        let mut held = Vec::new();
        for flow in ring.flows() {
            let Some(stream) = self.streams.get_mut(&flow) else { continue };
            self.held_bytes -= std::mem::take(&mut stream.held_bytes) as u64;
            held.extend(std::mem::take(&mut stream.held).into_values());
            stream.state = State::Passes;
        }
        held.sort_unstable_by_key(|held| held.arrival);
        for held in held {
            self.forward(held.port, &held.offload, &held.frame, out);
        }
    }

    /// Ends a connection for both ends, each at the place where it waits for the next byte. The sender of the stream, of which nobody else
    /// sends anything against its direction, is told why at first.
    pub(super) fn send_resets(&mut self, frame: &[u8], segment: &Segment, places: (Place, Place), why: Option<&str>, out: &mut impl Ports) {
        let (turned, turned_segment) = turned(frame, segment);
        let (to_receiver, to_sender) = places;
        let text = why.map(reason).unwrap_or_default();
        let after = Place { sequence: to_sender.sequence.wrapping_add(text.len() as u32), ..to_sender };
        let said = (!text.is_empty()).then(|| word(&turned, &turned_segment, to_sender, NO_MATTER, &text));
        let resets = [reset(&turned, &turned_segment, after), reset(frame, segment, to_receiver)];
        for (offload, frame) in said.into_iter().chain(resets) {
            self.bridge.forward(usize::MAX, &frame, |port| out.send(port, &offload, &frame));
        }
    }
}
