//! What happens to a frame.
//!
//! | module | what it holds |
//! |---|---|
//! | `bridge` | which host is behind which port |
//! | `stream` | one connection of a ring: what is held, what has been acknowledged |
//! | `ring` | the connections that are summed with each other |
//!
//! Rules that keep kernel TCP content, beside those of `netreduce 5`:
//!
//! * Offsets are counted from the SYN in 64 bits; the first copy of a byte counts; segments that are sent again, cut anew, change nothing.
//! * A stream is looked at from its SYN on and left alone at the first byte that does not begin a message.
//! * A segment leaves as soon as the sums of all its bytes are there, in the order in which segments came; one that comes once more is
//!   forwarded once more, or its receiver could not tell the sender that a repetition was needless. (What one worker has lost is missing in
//!   everybody's sums, so that all receivers report the gap, `netreduce P1`. To let go in order on the connections of those who lost
//!   nothing was tried: at 1 % loss and 200 Mb/s it gave 35 in place of 57 Mb/s, and twice the repetitions. To withhold
//!   repeated acknowledgements from senders whose bytes are all here was tried as well, so that only who has lost something slows down: at 1 %
//!   loss and 100 Mb/s it gave 16 in place of 20 Mb/s, the mean of three measurements each, by a program that was not optimised.)
//! * A segment that is sent again while its first bytes are complete and its last ones are not is cut in two: a sender whose window is one
//!   segment would wait for ever where that segment ends inside an element.
//! * The sender's time in a segment that was held is raised to the latest that has left, or the receiver would take it for an old one (PAWS).
//! * FIN waits until all before it is complete. A stream that ends inside a message, or differs from the others in a header, ends the ring:
//!   both ends of all its connections are reset, so that no worker waits for a sum that cannot come.

mod bridge;
mod ring;
mod stream;

use std::collections::HashMap;
use std::ops::Range;

use fanin_core::{Duration, Instant};
use fanin_net::Offload;
use fanin_protocols::shared::splice::Inserted;
use fanin_wire::stream::MessageHeader;

use crate::rdma::{Emit, Rdma, RdmaRing, RdmaStatistics};
use crate::segment::{Flow, Segment, reset, turned};
use bridge::Bridge;
use ring::{Failure, Ring};
use stream::{Held, Membership, State, Stream, Verdict};

/// Connections that are looked at, at once; further ones are left alone.
const STREAMS_MAX: usize = 65_536;
/// How long a connection may stay without a first byte before it is left alone: a worker may have much to do before its first message.
const UNDECIDED_MAX: Duration = Duration::from_us(3_600_000_000);
/// How long a connection that was reset is remembered: longer than any kernel sends again, so that nothing of it ever passes unsummed.
const RESET_MEMORY: Duration = Duration::from_us(3_600_000_000);
/// A ring in which nothing moves for so long says why.
const STALL: Duration = Duration::from_us(2_000_000);

/// What a transparent switch has to know.
#[derive(Clone, Copy, Debug)]
pub struct SwitchConfig {
    /// Number of ports.
    pub ports: usize,
    /// Bytes of each stream that are kept: at least twice the largest TCP window.
    pub stream_bytes: usize,
    /// Rings at once; further ones are reset.
    pub rings_max: usize,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        SwitchConfig { ports: 0, stream_bytes: 16 << 20, rings_max: 64 }
    }
}

/// What a switch has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Statistics {
    /// Frames that came in.
    pub frames: u64,
    /// Frames that were forwarded as they were.
    pub forwarded: u64,
    /// Segments that left with sums in them.
    pub summed: u64,
    /// Segments whose bytes had come before, all or in part.
    pub repeated: u64,
    /// Segments that were cut in two.
    pub cut: u64,
    /// Segments dropped for lack of memory.
    pub dropped: u64,
    /// Rings that began.
    pub rings: u64,
    /// Rings that were reset.
    pub rings_failed: u64,
    /// The most bytes of frames that were held at once.
    pub held_bytes_peak: u64,
    /// Inside RDMA connections.
    pub rdma: RdmaStatistics,
}

/// Takes frames that leave.
pub trait Ports {
    /// A frame leaves by a port.
    fn send(&mut self, port: usize, offload: &Offload, frame: &[u8]);
}

/// Frames that are made of held ones leave to where their addresses lead.
struct Way<'a, P> {
    bridge: &'a Bridge,
    ports: &'a mut P,
}

impl<P: Ports> Emit for Way<'_, P> {
    fn emit(&mut self, port: usize, frame: &[u8]) {
        self.bridge.forward(port, frame, |to| self.ports.send(to, &Offload::default(), frame));
    }
}

/// A layer-2 switch that sums inside TCP connections, and inside RDMA connections where it is told to.
#[derive(Debug)]
pub struct Switch {
    config: SwitchConfig,
    bridge: Bridge,
    rdma: Rdma,
    /// By the flow from the one who opened the connection.
    streams: HashMap<Flow, Stream>,
    rings: HashMap<u32, Ring>,
    statistics: Statistics,
    held_bytes: u64,
    arrivals: u64,
}

impl Switch {
    /// A switch that has seen nothing.
    pub fn new(config: SwitchConfig) -> Self {
        Switch {
            config,
            bridge: Bridge::new(config.ports),
            rdma: Rdma::default(),
            streams: HashMap::new(),
            rings: HashMap::new(),
            statistics: Statistics::default(),
            held_bytes: 0,
            arrivals: 0,
        }
    }

    /// The same, which sums inside these rings of RDMA connections, too.
    ///
    /// # Errors
    /// The numbers of two rings that have a pair of neighbours in common and the same number.
    pub fn with_rdma(config: SwitchConfig, rings: Vec<RdmaRing>) -> Result<Self, (u16, u16)> {
        Ok(Switch { rdma: Rdma::new(rings)?, ..Switch::new(config) })
    }

    /// What it has done so far.
    pub fn statistics(&self) -> Statistics {
        Statistics { rdma: self.rdma.statistics(), ..self.statistics }
    }

    /// A frame has arrived at a port.
    pub fn on_frame(&mut self, now: Instant, port: usize, offload: Offload, frame: &mut [u8], out: &mut impl Ports) {
        self.statistics.frames += 1;
        self.bridge.learn(now, port, frame);
        if self.rdma.on_frame(now, port, frame, &mut Way { bridge: &self.bridge, ports: out }) {
            return;
        }
        let Some(segment) = Segment::parse(frame) else { return self.forward(port, &offload, frame, out) };
        if segment.flags.syn && !segment.flags.ack {
            self.on_syn(now, &segment);
            return self.forward(port, &offload, frame, out);
        }
        if self.streams.contains_key(&segment.flow) {
            return self.on_segment(now, port, offload, frame, &segment, out);
        }
        let flow = segment.flow.reverse();
        if self.streams.contains_key(&flow) {
            self.on_answer(now, flow, &segment, out);
        }
        self.forward(port, &offload, frame, out);
    }

    /// Forgets what is old, and says why rings do not move. To be called a few times a second.
    pub fn on_tick(&mut self, now: Instant) {
        self.streams.retain(|_, stream| match &stream.state {
            State::Undecided(_) => now.since(stream.began) < UNDECIDED_MAX,
            State::Reset => now.since(stream.began) < RESET_MEMORY,
            State::Member(_) => true,
        });
        for (number, ring) in &mut self.rings {
            ring.report_stall(now, *number, STALL);
        }
    }

    /// Asks workers with RDMA connections whether they are there, and tells them what is over. To be called a few times a second.
    pub fn on_rdma_tick(&mut self, now: Instant, out: &mut impl Ports) {
        self.rdma.on_tick(now, &mut Way { bridge: &self.bridge, ports: out });
    }

    fn forward(&mut self, from: usize, offload: &Offload, frame: &[u8], out: &mut impl Ports) {
        self.statistics.forwarded += 1;
        self.bridge.forward(from, frame, |port| out.send(port, offload, frame));
    }

    /// A connection begins: its bytes are counted from here on.
    fn on_syn(&mut self, now: Instant, segment: &Segment) {
        let base = segment.sequence.wrapping_add(1);
        if let Some(stream) = self.streams.get(&segment.flow) {
            if stream.base == base {
                return;
            }
            // The same addresses once more: the old connection is gone.
            self.leave_ring(segment.flow);
        }
        if self.streams.len() < STREAMS_MAX {
            self.streams.insert(segment.flow, Stream::new(now, base));
        }
    }

    /// The receiver of a stream answers: what it acknowledges need not be kept.
    fn on_answer(&mut self, now: Instant, flow: Flow, segment: &Segment, out: &mut impl Ports) {
        let Some(stream) = self.streams.get_mut(&flow) else { return };
        stream.answered(segment);
        let membership = match &stream.state {
            State::Member(membership) => membership.clone(),
            _ if segment.flags.rst => {
                self.streams.remove(&flow);
                return;
            }
            _ => return,
        };
        let over = stream.is_over();
        if segment.flags.rst {
            return self.end_member(now, flow, &membership, out);
        }
        if over {
            let fin = stream.fin.unwrap_or(stream.highest);
            self.leave_ring(flow);
            if let Some(ring) = self.rings.get_mut(&membership.ring) {
                ring.ended = Some((membership.rank, fin));
            }
            self.check_ends(now, membership.ring, out);
        }
        self.release(membership.ring);
    }

    /// All receivers have what the one that is furthest behind has acknowledged.
    fn release(&mut self, number: u32) {
        let Some(ring) = self.rings.get_mut(&number) else { return };
        // Without all of its members a ring has begun just now, or some have ended with all that there was.
        if ring.joined < ring.world {
            return;
        }
        let behind = ring.flows().filter_map(|flow| self.streams.get(&flow)).map(|stream| stream.acknowledged).min();
        if let Some(to) = behind {
            ring.splice.release(to);
        }
    }

    /// A segment of a stream that is looked at, from the one who opened it.
    fn on_segment(&mut self, now: Instant, port: usize, offload: Offload, frame: &mut [u8], segment: &Segment, out: &mut impl Ports) {
        let Some(stream) = self.streams.get_mut(&segment.flow) else { return };
        stream.client_acknowledged = segment.acknowledged;
        let offset = stream.offset_of(segment.sequence);
        let membership = match &stream.state {
            State::Reset => {
                let (acknowledged, expected) = (stream.client_acknowledged, stream.sequence_of(stream.acknowledged));
                return self.send_resets(frame, segment, expected, acknowledged, out);
            }
            State::Member(membership) => Some(membership.clone()),
            State::Undecided(_) => None,
        };
        if segment.flags.rst {
            self.forward(port, &offload, frame, out);
            match membership {
                Some(membership) => self.end_member(now, segment.flow, &membership, out),
                None => self.leave_ring(segment.flow),
            }
            return;
        }
        match offset {
            Some(offset) if segment.payload_bytes() > 0 || segment.flags.fin => {
                self.on_bytes(now, Held::new(port, offload, offset, segment, frame), out);
            }
            // An answer, or a probe for life.
            _ => self.forward(port, &offload, frame, out),
        }
    }

    fn on_bytes(&mut self, now: Instant, mut held: Held, out: &mut impl Ports) {
        self.arrivals += 1;
        held.arrival = self.arrivals;
        let flow = held.segment.flow;
        let Some(stream) = self.streams.get_mut(&flow) else { return };
        if let State::Member(membership) = &stream.state {
            let membership = membership.clone();
            return self.on_member(now, &membership, held, out);
        }
        let State::Undecided(undecided) = &mut stream.state else { return };
        undecided.add(held);
        match undecided.verdict() {
            Verdict::Unknown => {}
            Verdict::NotOurs => {
                let frames = std::mem::take(&mut undecided.held);
                self.streams.remove(&flow);
                for held in frames {
                    self.forward(held.port, &held.offload, &held.frame, out);
                }
            }
            Verdict::Ours(header) => {
                let frames = std::mem::take(&mut undecided.held);
                self.join(now, flow, &header, frames, out);
            }
        }
    }

    /// A stream has shown its first header.
    fn join(&mut self, now: Instant, flow: Flow, header: &MessageHeader, frames: Vec<Held>, out: &mut impl Ports) {
        let (rings, statistics) = (self.rings.len(), &mut self.statistics);
        let config = &self.config;
        if !self.rings.contains_key(&header.ring) && rings < config.rings_max {
            statistics.rings += 1;
            tracing::info!(ring = header.ring, world = header.world, "a ring begins");
            self.rings.insert(header.ring, Ring::new(now, header.ring, header.world, config.stream_bytes));
        }
        let joined = match self.rings.get_mut(&header.ring) {
            None => Err(Failure::TooManyRings),
            Some(ring) => ring.join(flow, header),
        };
        if let Err(failure) = joined {
            // Only the one who comes is refused: those who are there have done nothing wrong.
            tracing::warn!(ring = header.ring, rank = header.rank, from = %flow.from, "refused: {failure}");
            if let (Some(stream), Some(first)) = (self.streams.get_mut(&flow), frames.first()) {
                stream.state = State::Reset;
                stream.began = now;
                let (acknowledged, expected) = (stream.client_acknowledged, stream.sequence_of(stream.acknowledged));
                self.send_resets(&first.frame, &first.segment, expected, acknowledged, out);
            }
            return;
        }
        let membership = Membership { ring: header.ring, rank: header.rank };
        if let Some(stream) = self.streams.get_mut(&flow) {
            stream.state = State::Member(membership.clone());
        }
        for held in frames {
            self.on_member(now, &membership, held, out);
        }
    }

    /// A segment of a ring's connection (`netreduce 5.2`).
    fn on_member(&mut self, now: Instant, membership: &Membership, mut held: Held, out: &mut impl Ports) {
        let flow = held.segment.flow;
        let (Some(stream), Some(ring)) = (self.streams.get_mut(&flow), self.rings.get_mut(&membership.ring)) else { return };
        stream.remember(&held);
        if held.end() <= stream.acknowledged && !held.segment.flags.fin {
            // Its receiver has all of it, and says so once more.
            self.statistics.repeated += 1;
            return self.forward(held.port, &held.offload, &held.frame, out);
        }
        let repeated = held.offset < stream.highest;
        stream.highest = stream.highest.max(held.end());
        if held.segment.flags.fin {
            stream.fin = Some(held.end());
        }
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
    fn let_go(&mut self, now: Instant, number: u32, flow: Flow, complete: &[Range<u64>], out: &mut impl Ports) {
        let Some(ring) = self.rings.get_mut(&number) else { return };
        if !complete.is_empty() {
            ring.moved = now;
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
            self.emit(number, &mut held, out);
        }
    }

    /// A segment leaves with sums in it.
    fn emit(&mut self, number: u32, held: &mut Held, out: &mut impl Ports) {
        let (Some(ring), Some(stream)) = (self.rings.get(&number), self.streams.get_mut(&held.segment.flow)) else { return };
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
    fn answer_first_part(&mut self, number: u32, held: &mut Held, out: &mut impl Ports) {
        let (Some(ring), Some(stream)) = (self.rings.get(&number), self.streams.get(&held.segment.flow)) else { return };
        let complete = ring.splice.complete_to(held.offset.max(stream.acknowledged));
        if complete <= held.offset.max(stream.acknowledged) || complete >= held.end() {
            return;
        }
        let mut first = held.clone();
        let length = first.segment.trim(&mut first.frame, (complete - held.offset) as u32);
        first.frame.truncate(length);
        self.statistics.cut += 1;
        self.emit(number, &mut first, out);
    }

    /// Whether a stream has ended where others cannot go on.
    fn check_ends(&mut self, now: Instant, number: u32, out: &mut impl Ports) {
        let Some(ring) = self.rings.get(&number) else { return };
        let goes_on = |&(rank, at): &(u16, u64)| ring.splice.framed_to() > at || ring.splice.ends_inside(rank, at);
        let ends = (0u16..).zip(&ring.members).filter_map(|(rank, flow)| Some((rank, self.streams.get(flow.as_ref()?)?.fin?)));
        let ended = ring.ended.into_iter().chain(ends).find(goes_on);
        if let Some((rank, _)) = ended {
            self.fail(now, number, &Failure::Ended { rank }, out);
        }
    }

    /// A connection of a ring is gone: whatever is not complete never will be.
    fn end_member(&mut self, now: Instant, flow: Flow, membership: &Membership, out: &mut impl Ports) {
        let acknowledged = self.streams.get(&flow).map_or(0, |stream| stream.acknowledged);
        self.leave_ring(flow);
        if let Some(ring) = self.rings.get_mut(&membership.ring) {
            ring.ended = Some((membership.rank, acknowledged));
        }
        self.check_ends(now, membership.ring, out);
    }

    /// Forgets a stream; its ring with the last one.
    fn leave_ring(&mut self, flow: Flow) {
        let Some(stream) = self.streams.remove(&flow) else { return };
        self.held_bytes -= stream.held_bytes as u64;
        if let State::Member(membership) = stream.state
            && let Some(ring) = self.rings.get_mut(&membership.ring)
            && ring.leave(membership.rank)
        {
            tracing::info!(ring = membership.ring, "the ring has ended");
            self.rings.remove(&membership.ring);
        }
    }

    /// A ring cannot go on: both ends of all its connections are told at once.
    fn fail(&mut self, now: Instant, number: u32, failure: &Failure, out: &mut impl Ports) {
        let Some(ring) = self.rings.remove(&number) else { return };
        tracing::error!(ring = number, "{failure}: all its connections are reset");
        self.statistics.rings_failed += 1;
        for flow in ring.members.iter().flatten() {
            let Some(stream) = self.streams.get_mut(flow) else { continue };
            self.held_bytes -= stream.held_bytes as u64;
            stream.held.clear();
            stream.held_bytes = 0;
            stream.state = State::Reset;
            stream.began = now;
            let (acknowledged, expected) = (stream.client_acknowledged, stream.sequence_of(stream.acknowledged));
            if let Some((frame, segment)) = stream.template.take() {
                self.send_resets(&frame, &segment, expected, acknowledged, out);
            }
        }
    }

    /// Ends a connection for both ends: `expected` is what its receiver waits for, `acknowledged` what its sender does.
    fn send_resets(&mut self, frame: &[u8], segment: &Segment, expected: u32, acknowledged: u32, out: &mut impl Ports) {
        let (turned, turned_segment) = turned(frame, segment);
        for (template, segment, sequence, answer) in
            [(frame, segment, expected, acknowledged), (&turned[..], &turned_segment, acknowledged, expected)]
        {
            let (offload, frame) = reset(template, segment, sequence, answer);
            self.bridge.forward(usize::MAX, &frame, |port| out.send(port, &offload, &frame));
        }
    }
}

#[cfg(test)]
mod tests;
