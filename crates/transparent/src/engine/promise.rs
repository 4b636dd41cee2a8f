//! Who has lost nothing does not hear of what others have lost.
//!
//! A segment that one worker has lost is a gap at all receivers (`netreduce P1`), and each sender would take it for its own: it would send again,
//! several times, what is here already, and go slower. So where a receiver lacks a byte whose sum is missing, and its own sender's part of that is
//! here, the answer that passes acknowledges what is here of that sender without a gap. Only who has lost something hears that something is lost.
//!
//! What is acknowledged so the sender will not send again: the switch owes it to the receiver. It is kept until all receivers have it, as all sums
//! are; if the segment that brings it is lost behind the switch, the switch sends it again by itself.
//!
//! That lasts until the receiver has caught up with its sender. Otherwise nothing is answered for: where nothing was lost, and where others are only
//! late, acknowledgements are the receivers' own. A switch that is lost meanwhile takes what it owes with it. A sender is never allowed more than its
//! receiver has room for.

use std::iter::successors;
use std::ops::Range;

use fanin_core::{Duration, Instant};
use fanin_net::Offload;

use super::ring::Ring;
use super::stream::Stream;
use super::{Ports, Switch};
use crate::segment::{Flow, Place, Segment, answer, turned, word};

/// After so long without an answer what is owed is sent again, then after twice that, and so on: far more than a network in a rack needs, and less
/// than the least that kernels wait (200 ms).
const OWED: Duration = Duration::from_us(50_000);
/// How often that is doubled.
const DOUBLINGS_MAX: u32 = 6;
/// How long a receiver takes to answer as long as that is not known, and how exact that is.
const TURN: Duration = Duration::from_us(20_000);
const GRAIN: Duration = Duration::from_us(5_000);
/// The most blocks of selective acknowledgements in an answer, beside times (RFC 2018).
const SACK_MAX: usize = 3;
/// The most bytes of a segment that is made here: any network takes it (RFC 8200: 1280 bytes).
const PIECE_MAX: u64 = 1_024;

impl Stream {
    /// Whether the receiver lacks something that its sender does not send again.
    pub fn owes(&self) -> bool {
        self.debt.to.max(self.debt.selectively_to) > self.acknowledged
    }

    /// Up to where the sender has been told that everything has come.
    pub fn told_to(&self) -> u64 {
        self.acknowledged.max(self.debt.to)
    }

    /// The receiver has answered, and lacks what others have lost, if anything: what is here of its sender may be acknowledged. Says whether.
    fn promise(&mut self, now: Instant, ring: &Ring) -> bool {
        let from = self.acknowledged;
        if ring.splice.complete_to(from) > from {
            return false;
        }
        self.vouch(now);
        true
    }

    /// When something that is owed should be looked at.
    fn debt_due(&self) -> Option<Instant> {
        let wait = Duration::from_ps(OWED.as_ps() << self.debt.times.min(DOUBLINGS_MAX));
        self.owes().then(|| self.debt.since + wait)
    }

    /// A segment leaves with its sums.
    pub fn note_left(&mut self, now: Instant, range: Range<u64>) {
        if self.owes() && range.contains(&self.acknowledged) {
            self.debt.since = now;
            self.debt.left.get_or_insert(now);
        }
    }

    /// The receiver has more than before.
    fn note_more(&mut self, now: Instant) {
        if let Some(left) = self.debt.left.take().filter(|_| self.debt.times == 0) {
            let turn = now.since(left);
            self.debt.turn = Some(self.debt.turn.map_or(turn, |before| (before.times(7) + turn).divided(8)));
        }
        self.debt.since = now;
    }

    /// Whether what the receiver lacks first is lost, where it says that it has something behind it: it would have come by now.
    fn is_lost(&self, now: Instant) -> bool {
        let turn = self.debt.turn.unwrap_or(TURN);
        now.since(self.debt.since) > turn.times(2) + GRAIN
    }

    /// The next segment that is owed, if its sum is there.
    fn owed(&mut self, now: Instant, ring: &Ring) -> Option<(Offload, Vec<u8>)> {
        let from = self.acknowledged;
        let to = ring.splice.complete_to(from).min(self.debt.to.max(self.debt.selectively_to)).min(from + PIECE_MAX);
        self.debt.since = now;
        let (template, segment) = self.template.as_ref().filter(|_| to > from)?;
        let mut payload = vec![0; (to - from) as usize];
        ring.splice.read(from, &mut payload);
        self.debt.times += 1;
        let times = self.latest_time.zip(self.answers.times).map(|(time, [a, b, c, d, ..])| {
            let [e, f, g, h] = time.to_be_bytes();
            [e, f, g, h, a, b, c, d]
        });
        let (place, _) = self.places();
        Some(word(template, segment, Place { times, ..place }, segment.window, &payload))
    }

    /// All that is here without a gap is answered for.
    fn vouch(&mut self, now: Instant) {
        if !self.owes() {
            (self.debt.since, self.debt.times, self.debt.left) = (now, 0, None);
        }
        self.debt.to = self.debt.to.max(self.here.reach(self.told_to()));
    }

    /// What is here behind the first gap, the last ranges of it first, as an answer has them (RFC 2018). The sender may keep these bytes, but does
    /// not send them again as long as it hears of them: they are answered for as well.
    fn blocks(&mut self) -> Vec<[u32; 2]> {
        let told = self.told_to();
        let next = |range: &Range<u64>| self.here.next_within(&(range.end..u64::MAX));
        let mut ranges: Vec<Range<u64>> = successors(next(&(told..self.here.reach(told))), next).collect();
        self.debt.selectively_to = ranges.last().map_or(0, |last| last.end).max(self.debt.selectively_to);
        ranges.reverse();
        ranges.truncate(SACK_MAX);
        ranges.iter().map(|range| [range.start, range.end].map(|end| self.sequence_of(end))).collect()
    }

    /// An answer to a segment that has just come, while something is missing at its receiver: who hears nothing does not find out that what he has
    /// sent again is lost, too.
    fn own_answer(&mut self, now: Instant, ring: &Ring, time: Option<u32>) -> Option<(Offload, Vec<u8>)> {
        // Whoever was answered for hears on until his receiver has caught up, or what he sends meanwhile would not be answered for as long as that
        // takes, and his kernel's timer would send all of it again.
        let is_gap = self.highest > self.here.reach(self.told_to());
        if !is_gap && self.debt.to <= self.acknowledged {
            return None;
        }
        self.vouch(now);
        let (told, shift) = (self.told_to(), self.shift());
        let edge = self.answers.takes.min(ring.splice.limit()).max(self.answers.told);
        let window = (edge.checked_sub(told)? >> shift).min(u64::from(u16::MAX));
        self.answers.told = self.answers.told.max(told + (window << shift));
        let blocks = self.blocks();
        let (template, segment) = self.template.as_ref()?;
        let (turned, turned_segment) = turned(template, segment);
        let times = self.answers.times.zip(time).map(|([a, b, c, d, ..], time)| {
            let [e, f, g, h] = time.to_be_bytes();
            [a, b, c, d, e, f, g, h]
        });
        let (_, place) = self.places();
        Some(answer(&turned, &turned_segment, Place { times, ..place }, window as u16, &blocks))
    }

    /// Writes into an answer what is here of its sender; of what is here behind a gap only where the receiver lacks what others have lost.
    fn answer(&mut self, segment: &mut Segment, frame: &mut [u8], offload: &mut Offload, at: u64, is_selective: bool) {
        let (told, shift) = (self.told_to(), self.shift());
        let window = (u64::from(segment.window) << shift).saturating_sub(told - at) >> shift;
        let blocks = if is_selective { self.blocks() } else { Vec::new() };
        segment.acknowledge(frame, offload, self.sequence_of(told), window as u16, &blocks);
    }
}

impl Switch {
    /// A receiver's answer passes: its sender is told what it has to know.
    pub(super) fn answer_for(
        &mut self,
        now: Instant,
        (flow, before): (Flow, u64),
        segment: &mut Segment,
        (frame, offload): (&mut [u8], &mut Offload),
        out: &mut impl Ports,
    ) {
        let Some(stream) = self.streams.get_mut(&flow) else { return };
        let Some(ring) = stream.membership().and_then(|membership| self.rings.get(&membership.ring)) else { return };
        if ring.tree.begun.is_some() || !ring.is_whole() || !segment.flags.ack {
            return;
        }
        let lacks = segment.lacks_something(frame);
        stream.takes_selective |= lacks;
        let is_more = stream.acknowledged > before;
        // What was sent again has come, and something behind it: what is lacking next was lost, too.
        let is_next = is_more && stream.debt.times > 0;
        if is_more {
            stream.note_more(now);
            stream.debt.times = 0;
        }
        if lacks
            && stream.owes()
            && (is_next || stream.is_lost(now))
            && let Some((offload, frame)) = stream.owed(now, ring)
        {
            self.statistics.owed += 1;
            self.bridge.forward(usize::MAX, &frame, |port| out.send(port, &offload, &frame));
        }
        let answers = lacks && stream.promise(now, ring);
        if stream.debt.to > stream.acknowledged {
            stream.vouch(now);
        }
        let Some(at) = stream.offset_of(segment.acknowledged).filter(|at| *at <= stream.acknowledged) else { return };
        if answers || stream.debt.to > at {
            stream.answer(segment, frame, offload, at, answers);
            self.statistics.answered += 1;
        }
        if stream.owes() {
            self.owing.insert(flow);
        }
    }

    /// A segment of a ring's connection has come.
    pub(super) fn answer_at_once(&mut self, now: Instant, flow: Flow, time: Option<u32>, out: &mut impl Ports) {
        let Some(stream) = self.streams.get_mut(&flow) else { return };
        let Some(ring) = stream.membership().and_then(|membership| self.rings.get(&membership.ring)) else { return };
        if ring.tree.begun.is_some() || !ring.is_whole() || !stream.takes_selective {
            return;
        }
        if let Some((offload, frame)) = stream.own_answer(now, ring, time) {
            self.owing.insert(flow);
            self.statistics.answered += 1;
            self.bridge.forward(usize::MAX, &frame, |port| out.send(port, &offload, &frame));
        }
    }

    /// Sends again what is owed.
    pub(super) fn pay(&mut self, now: Instant, out: &mut impl Ports) {
        if self.owing.is_empty() {
            return;
        }
        let flows: Vec<Flow> = self.owing.iter().copied().collect();
        for flow in flows {
            let stream = self.streams.get_mut(&flow).filter(|stream| stream.owes());
            let ring = stream.as_ref().and_then(|stream| stream.membership()).and_then(|membership| self.rings.get(&membership.ring));
            let (Some(stream), Some(ring)) = (stream, ring) else {
                self.owing.remove(&flow);
                continue;
            };
            if stream.debt_due().is_some_and(|due| now >= due)
                && let Some((offload, frame)) = stream.owed(now, ring)
            {
                self.statistics.owed += 1;
                self.bridge.forward(usize::MAX, &frame, |port| out.send(port, &offload, &frame));
            }
        }
    }

    /// When something is to be sent again.
    pub(super) fn debts_due(&self) -> Option<Instant> {
        self.owing.iter().filter_map(|flow| self.streams.get(flow)?.debt_due()).min()
    }
}
