//! A ring whose workers are behind several switches (`netreduce 5.7`). Each switch sums what its own workers send, and what the switches below
//! it have summed; the sum goes up to the first switch that has all ranks, and what all have comes down again.
//!
//! The operator says which switch is above: that is behind the uplink. Which rings cross it nobody has to be told:
//!
//! 1. A ring crosses the uplink where a rank's sender is on this side, and its receiver is not, as the handshake of the connection has shown.
//!    Its ranks are told to the switch above.
//! 2. The switch that knows all ranks of a ring tells those below to begin, and which ranks it has of each: whoever has another one besides,
//!    as of another job with the same number, ends the ring.
//! 3. A connection is held where its receiver is. Of its segments only their headers cross the uplink, and the sums take the place of what they
//!    carried: that is the translation of connections (CTT). Acknowledgements pass as they are.
//! 4. A switch keeps what its own receivers, and those below, have not acknowledged, and takes no more of those below than there is room for.

use std::collections::BTreeMap;
use std::ops::Range;

use fanin_core::{Duration, Instant};
use fanin_net::Offload;
use fanin_protocols::shared::splice::Inserted;

use super::{Failure, Ring};
use crate::engine::key::RingKey;
use crate::engine::stream::{Held, Membership, State, Stream};
use crate::engine::{Ports, Switch, Way};
use crate::segment::{Flow, Look, look};
use crate::trunk::message::{PIECE_MAX, Said, Stub};
use crate::trunk::{GONE, Role, Trunk};

/// So long the switch above has been silent when nothing that was said to it counts any more. By then it has noticed as well that it is not heard,
/// and does not take the new identity for a restart.
const FORGOTTEN: Duration = Duration::from_ps(3 * GONE.as_ps());

/// What the switches behind each port and this one say to each other.
pub(in crate::engine) type Trunks = BTreeMap<usize, Trunk>;

/// A switch below that has some of a ring's ranks.
#[derive(Debug)]
pub(in crate::engine) struct Child {
    pub port: usize,
    /// Its number of the run.
    pub run: u64,
    pub ranks: Vec<u16>,
    /// All receivers behind it have what lies below.
    pub released: u64,
    /// Up to where it has been told that it may send.
    pub room: u64,
    /// Nobody is left behind it.
    pub is_over: bool,
}

impl Child {
    /// The rank in whose place its sum comes.
    pub fn seat(&self) -> u16 {
        self.ranks.iter().copied().min().unwrap_or(0)
    }

    /// Its ranks in their order.
    pub fn sorted(&self) -> Vec<u16> {
        let mut ranks = self.ranks.clone();
        ranks.sort_unstable();
        ranks
    }
}

/// What a switch has of a ring that others sum for, too.
#[derive(Debug, Default)]
pub(in crate::engine) struct Tree {
    pub children: Vec<Child>,
    /// Ranks behind switches below.
    pub elsewhere: BTreeMap<u16, Flow>,
    /// Ranks that the switch above knows.
    pub told: Vec<u16>,
    /// It has begun; whether the sum is that of a part.
    pub begun: Option<bool>,
    /// Ranks whose receivers are here that have ever come.
    pub given: u16,
    /// What the switch above takes, and how much of a stream it keeps.
    room: u64,
    memory: u64,
    /// Sums that it has not got, from where to where: the lowest go first, since what lies beyond its room may have been summed before them.
    pending: BTreeMap<u64, u64>,
    /// Up to where it knows that everything has been received here.
    released: u64,
    is_closing_told: bool,
}

impl Tree {
    /// Whether other switches have to do with the ring.
    pub fn is_used(&self) -> bool {
        self.begun.is_some() || !self.elsewhere.is_empty() || !self.told.is_empty()
    }

    /// The switch below whose sum comes in a rank's place.
    pub fn behind(&self, seat: u16) -> Option<&Child> {
        self.begun.and_then(|_| self.children.iter().find(|child| child.seat() == seat))
    }

    /// How many others there are.
    pub fn switches(&self) -> usize {
        self.children.len() + usize::from(!self.told.is_empty())
    }
}

/// Whether a stream's receiver is at this switch, and not behind another one.
pub(in crate::engine) fn ends_here(trunks: &Trunks, stream: &Stream) -> bool {
    stream.ports[1].is_none_or(|port| !trunks.contains_key(&port))
}

impl Switch {
    /// By which run a ring is called at a trunk.
    fn run_at(&self, ring: &Ring, key: RingKey, port: usize) -> Option<u64> {
        if self.config.uplink == Some(port) {
            return (!ring.tree.told.is_empty()).then_some(key.0);
        }
        ring.tree.children.iter().find(|child| child.port == port).map(|child| child.run)
    }

    /// A word to the switch behind a port.
    pub(in crate::engine) fn say(&mut self, port: usize, run: u64, said: &Said) {
        let Some(trunk) = self.trunks.get_mut(&port).filter(|trunk| trunk.is_up()) else { return };
        match said {
            Said::Part { bytes, .. } => self.statistics.trunk_part_bytes += bytes.len() as u64,
            Said::Whole { bytes, .. } => self.statistics.trunk_whole_bytes += bytes.len() as u64,
            Said::Segment { .. } => self.statistics.trunk_segments += 1,
            _ => {}
        }
        trunk.push(said.emit(run));
    }

    /// The same to all switches that have to do with a ring, but for the one behind `except`.
    pub(in crate::engine) fn say_to_others(&mut self, ring: &Ring, key: RingKey, except: usize, said: &Said) {
        let up = self.config.uplink.filter(|_| !ring.tree.told.is_empty()).map(|port| (port, key.0));
        for (port, run) in ring.tree.children.iter().map(|child| (child.port, child.run)).chain(up) {
            if port != except {
                self.say(port, run, said);
            }
        }
    }

    /// The same of a ring that is still there.
    pub(in crate::engine) fn spread_word(&mut self, key: RingKey, except: usize, said: &Said) {
        if let Some(ring) = self.rings.remove(&key) {
            self.say_to_others(&ring, key, except, said);
            self.rings.insert(key, ring);
        }
    }

    /// Somebody has come, here or below: the ring begins where all are known, and otherwise they are told to the switch above.
    pub(in crate::engine) fn grow(&mut self, now: Instant, key: RingKey, out: &mut impl Ports) {
        let Some(ring) = self.rings.get(&key).filter(|ring| !ring.is_closing && ring.tree.begun.is_none()) else { return };
        if ring.known() == usize::from(ring.world) {
            if ring.tree.elsewhere.is_empty() {
                // All pass here, and above nobody has anything to do with it.
                if let (Some(up), false) = (self.config.uplink, ring.tree.told.is_empty()) {
                    self.say(up, key.0, &Said::Over);
                    self.rings.get_mut(&key).into_iter().for_each(|ring| ring.tree.told.clear());
                }
                return;
            }
            if let Some(failure) = self.mixed(key) {
                return self.fail(now, key, &failure, out);
            }
            return self.begin(now, key, false, out);
        }
        let Some(up) = self.config.uplink.filter(|up| self.trunks.get(up).is_some_and(Trunk::is_up)) else { return };
        if !self.crosses(ring, up) {
            return;
        }
        let ranks: Vec<(u16, Flow)> = ring.seats().filter(|(rank, _)| !ring.tree.told.contains(rank)).collect();
        let (number, world) = (ring.number, ring.world);
        for (rank, flow) in ranks {
            self.say(up, key.0, &Said::Rank { ring: number, world, rank, flow });
            self.rings.get_mut(&key).into_iter().for_each(|ring| ring.tree.told.push(rank));
        }
    }

    /// Whether a connection of the ring leads from here over the uplink.
    fn crosses(&self, ring: &Ring, up: usize) -> bool {
        ring.seats().any(|(_, flow)| self.streams.get(&flow).is_some_and(|stream| stream.ports[1] == Some(up)))
    }

    /// All ranks are known: from here on the sum is that of those who are here, and of the switches below.
    pub(in crate::engine) fn begin(&mut self, now: Instant, key: RingKey, is_part: bool, out: &mut impl Ports) {
        let Some(ring) = self.rings.get_mut(&key) else { return };
        let mut seats: Vec<u16> = ring.ranks().map(|(rank, _)| rank).chain(ring.tree.children.iter().map(Child::seat)).collect();
        seats.sort_unstable();
        ring.tree.begun = Some(is_part);
        ring.moved = now;
        ring.tree.given =
            ring.flows().filter(|flow| self.streams.get(flow).is_some_and(|stream| ends_here(&self.trunks, stream))).count() as u16;
        // Those below release in steps of what they are told: the least that is kept on the way up counts.
        let kept = ring.splice.limit();
        let (switches, memory) = (ring.tree.switches(), if is_part { kept.min(ring.tree.memory) } else { kept });
        tracing::info!(ring = ring.number, switches, ranks = ring.joined, is_part, "the ring is summed together with other switches");
        let mut complete = std::mem::take(&mut ring.complete);
        let gathered = ring.splice.gather(&seats, is_part, &mut complete);
        let below: Vec<(usize, u64, Vec<u16>)> =
            ring.tree.children.iter().map(|child| (child.port, child.run, child.ranks.clone())).collect();
        ring.tree.children.iter_mut().for_each(|child| child.room = memory);
        for (port, run, ranks) in below {
            self.say(port, run, &Said::Begin { memory, ranks });
        }
        if let Err(error) = gathered {
            return self.fail(now, key, &Failure::Splice(error), out);
        }
        self.send_held(key);
        self.spread(now, key, None, &complete, out);
    }

    /// What was held of connections whose receivers are behind other switches.
    fn send_held(&mut self, key: RingKey) {
        let Some(ring) = self.rings.get(&key) else { return };
        let mut all: Vec<(u16, Held)> = Vec::new();
        for (rank, flow) in ring.ranks() {
            let Some(stream) = self.streams.get_mut(&flow) else { continue };
            if !ends_here(&self.trunks, stream) {
                self.held_bytes -= std::mem::take(&mut stream.held_bytes) as u64;
                all.extend(std::mem::take(&mut stream.held).into_values().map(|held| (rank, held)));
            }
        }
        all.sort_unstable_by_key(|(_, held)| held.arrival);
        for (rank, held) in all {
            self.send_stub(key, rank, &held);
        }
    }

    /// Whether who is behind a port is at another switch that has to do with the ring: that one sees the ends of connections there, and says
    /// what they mean.
    pub(in crate::engine) fn is_far(&self, membership: Membership, port: usize) -> bool {
        self.trunks.contains_key(&port) && self.rings.get(&membership.ring).is_some_and(|ring| ring.tree.is_used())
    }

    /// Whether a stream's segments leave at another switch.
    pub(in crate::engine) fn leaves_elsewhere(&self, membership: Membership, flow: Flow) -> bool {
        self.rings.get(&membership.ring).is_some_and(|ring| ring.tree.begun.is_some())
            && self.streams.get(&flow).is_some_and(|stream| !ends_here(&self.trunks, stream))
    }

    /// A segment is to leave where its receiver is: its headers go there.
    pub(in crate::engine) fn send_stub(&mut self, key: RingKey, rank: u16, held: &Held) {
        let payload = held.segment.payload();
        let stub = Stub {
            payload_bytes: held.segment.payload_bytes() as u16,
            gso_type: held.offload.gso_type,
            gso_bytes: held.offload.gso_bytes,
            header_bytes: held.offload.header_bytes,
            heads: held.frame[..payload.start].to_vec(),
        };
        let to = self.streams.get(&held.segment.flow).and_then(|stream| stream.ports[1]);
        self.relay(key, to, rank, held.offset, stub);
    }

    fn relay(&mut self, key: RingKey, to: Option<usize>, rank: u16, offset: u64, stub: Stub) {
        let run = to.and_then(|port| Some((port, self.run_at(self.rings.get(&key)?, key, port)?)));
        match run {
            Some((port, run)) => self.say(port, run, &Said::Segment { rank, offset, stub }),
            // Nobody there has to do with the ring: its sender sends it again.
            None => self.statistics.dropped += 1,
        }
    }

    /// The headers of a segment have come from another switch: they go on, or wait here for the sums.
    pub(in crate::engine) fn on_stub(
        &mut self,
        now: Instant,
        port: usize,
        key: RingKey,
        (rank, offset): (u16, u64),
        stub: Stub,
        out: &mut impl Ports,
    ) {
        let mut frame = stub.heads.clone();
        frame.resize(stub.heads.len() + usize::from(stub.payload_bytes), 0);
        let Look::Segment(segment) = look(&frame) else { return self.note_strange(now, port, "the headers of a segment") };
        if segment.payload().start != stub.heads.len() || segment.payload().end != frame.len() {
            return self.note_strange(now, port, "the length of a segment");
        }
        let flow = segment.flow;
        let Some(ring) = self.rings.get_mut(&key) else { return };
        let Some(stream) = self.streams.get_mut(&flow) else {
            // It is over, and its sender does not know yet.
            let was_seen = ring.is_closing;
            return if was_seen {
                self.statistics.repeated += 1;
                self.ask_again(port, &stub, out);
            } else {
                self.fail(now, key, &Failure::Unseen { rank, at: flow.from }, out)
            };
        };
        if let Some(to) = stream.ports[1].filter(|to| self.trunks.contains_key(to)) {
            stream.far_ring = Some(key);
            return if to == port { self.statistics.dropped += 1 } else { self.relay(key, Some(to), rank, offset, stub) };
        }
        let membership = Membership { ring: key, rank, is_noticed: true };
        match &mut stream.state {
            State::Undecided(undecided) => {
                if rank >= ring.world || ring.tree.begun.is_none() || ring.member(rank).is_some() {
                    return self.note_strange(now, port, "the rank of a segment");
                }
                self.undecided_bytes -= std::mem::take(&mut undecided.held_bytes);
                stream.state = State::Member(membership);
                ring.seat_noticed(flow, rank);
            }
            State::Member(known) if *known == membership => {}
            // It has ended; who sends in it is told so.
            _ => return,
        }
        (stream.ports[0], stream.answers.acknowledged) = (Some(port), segment.acknowledged);
        let Stub { gso_type, gso_bytes, header_bytes, .. } = stub;
        let offload = Offload { gso_type, gso_bytes, header_bytes, ..Offload::default() };
        self.arrivals += 1;
        let mut held = Held::new(port, offload, offset, &segment, &frame);
        held.arrival = self.arrivals;
        self.on_noticed(now, membership, held, out);
    }

    /// A connection is over here, and its last segment comes again: its receiver's last acknowledgement was lost. To a segment without bytes, where
    /// it has everything, the receiver answers once more (RFC 9293, 3.10.7.4).
    pub(in crate::engine) fn ask_again(&mut self, port: usize, stub: &Stub, out: &mut impl Ports) {
        let mut frame = stub.heads.clone();
        frame.resize(stub.heads.len() + usize::from(stub.payload_bytes), 0);
        let Look::Segment(mut segment) = look(&frame) else { return };
        let is_whole = segment.payload().start == stub.heads.len() && segment.payload().end == frame.len();
        if !is_whole || !segment.flags.fin || self.streams.contains_key(&segment.flow) {
            return;
        }
        let length = segment.trim(&mut frame, 0);
        frame.truncate(length);
        let mut offload = Offload::default();
        segment.finish(&mut frame, &mut offload);
        self.forward(port, &offload, &frame, out);
    }

    /// Ranges are summed now, of all or of a part.
    pub(in crate::engine) fn spread(
        &mut self,
        now: Instant,
        key: RingKey,
        flow: Option<Flow>,
        complete: &[Range<u64>],
        out: &mut impl Ports,
    ) {
        let Some(ring) = self.rings.get_mut(&key) else { return };
        if ring.tree.begun == Some(true) {
            if !complete.is_empty() {
                ring.moved = now;
                ring.tree.pending.extend(complete.iter().map(|range| (range.start, range.end)));
                self.send_parts(key);
            }
            return self.let_go(now, key, flow, &[], out);
        }
        self.let_go(now, key, flow, complete, out);
        self.send_wholes(key, complete);
    }

    /// Sums of a part go up as far as there is room.
    fn send_parts(&mut self, key: RingKey) {
        let Some(up) = self.config.uplink else { return };
        while let Some(ring) = self.rings.get_mut(&key) {
            let Some((&offset, &last)) = ring.tree.pending.first_key_value() else { return };
            let end = last.min(offset + PIECE_MAX as u64).min(ring.tree.room);
            if end <= offset {
                return;
            }
            let mut bytes = vec![0; (end - offset) as usize];
            ring.tree.pending.remove(&offset);
            if end < last {
                ring.tree.pending.insert(end, last);
            }
            ring.splice.part(offset, &mut bytes);
            self.say(up, key.0, &Said::Part { offset, bytes });
        }
    }

    /// What all have goes down.
    fn send_wholes(&mut self, key: RingKey, complete: &[Range<u64>]) {
        let Some(ring) = self.rings.get(&key).filter(|ring| !ring.tree.children.is_empty()) else { return };
        let below: Vec<(usize, u64)> =
            ring.tree.children.iter().filter(|child| !child.is_over).map(|child| (child.port, child.run)).collect();
        for range in complete {
            let mut offset = range.start;
            while offset < range.end {
                let Some(ring) = self.rings.get(&key) else { return };
                let mut bytes = vec![0; (range.end - offset).min(PIECE_MAX as u64) as usize];
                ring.splice.read(offset, &mut bytes);
                let (next, said) = (offset + bytes.len() as u64, Said::Whole { offset, bytes });
                below.iter().for_each(|(port, run)| self.say(*port, *run, &said));
                offset = next;
            }
        }
    }

    /// The switch above has all ranks.
    pub(in crate::engine) fn on_begin(&mut self, now: Instant, key: RingKey, memory: u64, mut ranks: Vec<u16>, out: &mut impl Ports) {
        let Some(ring) = self.rings.get_mut(&key).filter(|ring| ring.tree.begun.is_none()) else { return };
        let mut own: Vec<u16> = ring.seats().map(|(rank, _)| rank).collect();
        own.sort_unstable();
        ranks.sort_unstable();
        if own != ranks {
            let rank = own.iter().copied().find(|rank| !ranks.contains(rank)).unwrap_or(0);
            return self.fail(now, key, &Failure::Besides { rank }, out);
        }
        (ring.tree.room, ring.tree.memory) = (memory, memory);
        self.begin(now, key, true, out);
    }

    /// The sum of the ranks behind a switch below.
    pub(in crate::engine) fn on_part(&mut self, now: Instant, port: usize, key: RingKey, offset: u64, bytes: &[u8], out: &mut impl Ports) {
        let Some(ring) = self.rings.get_mut(&key).filter(|ring| ring.tree.begun.is_some()) else { return };
        let Some(seat) = ring.tree.children.iter().find(|child| child.port == port).map(Child::seat) else { return };
        let mut complete = std::mem::take(&mut ring.complete);
        match ring.splice.insert(seat, offset, bytes, &mut complete) {
            Err(error) => return self.fail(now, key, &Failure::Splice(error), out),
            Ok(Inserted::TooFar) => {
                let interface = self.ports[port].name().to_owned();
                return self.fail(now, key, &Failure::TooMuch { interface }, out);
            }
            Ok(Inserted::Taken) => {}
        }
        self.spread(now, key, None, &complete, out);
        self.keep_ranges(key, complete);
        self.check_ends(now, key, out);
    }

    /// The sum of all ranks.
    pub(in crate::engine) fn on_whole(&mut self, now: Instant, key: RingKey, offset: u64, bytes: &[u8], out: &mut impl Ports) {
        let Some(ring) = self.rings.get_mut(&key) else { return };
        let mut complete = std::mem::take(&mut ring.complete);
        if let Err(error) = ring.splice.give(offset, bytes, &mut complete) {
            return self.fail(now, key, &Failure::Splice(error), out);
        }
        self.let_go(now, key, None, &complete, out);
        self.send_wholes(key, &complete);
        self.keep_ranges(key, complete);
    }

    /// The memory for ranges goes back.
    pub(in crate::engine) fn keep_ranges(&mut self, key: RingKey, mut complete: Vec<Range<u64>>) {
        complete.clear();
        if let Some(ring) = self.rings.get_mut(&key) {
            ring.complete = complete;
        }
    }

    /// The switch above takes more.
    pub(in crate::engine) fn on_room(&mut self, key: RingKey, to: u64) {
        if let Some(ring) = self.rings.get_mut(&key) {
            ring.tree.room = ring.tree.room.max(to);
        }
        self.send_parts(key);
    }

    /// Receivers below have what lies below.
    pub(in crate::engine) fn on_released(&mut self, port: usize, key: RingKey, to: u64, out: &mut impl Ports) {
        let Some(ring) = self.rings.get_mut(&key) else { return };
        ring.tree.children.iter_mut().filter(|child| child.port == port).for_each(|child| child.released = child.released.max(to));
        self.release(key, None, out);
    }

    /// All receivers here and below have what lies below: the other switches are told, where it is worth a word.
    pub(in crate::engine) fn tell_room(&mut self, key: RingKey) {
        let Some(ring) = self.rings.get_mut(&key).filter(|ring| ring.tree.begun.is_some()) else { return };
        let (limit, base, memory) = (ring.splice.limit(), ring.splice.released(), self.config.stream_bytes as u64);
        let (step_below, step_above) = (memory / 8, memory.min(ring.tree.memory) / 8);
        let tells_above = ring.tree.begun == Some(true) && base >= ring.tree.released + step_above.max(1);
        if tells_above {
            ring.tree.released = base;
        }
        let mut below = Vec::new();
        for child in ring.tree.children.iter_mut().filter(|child| limit >= child.room + step_below.max(1)) {
            child.room = limit;
            below.push((child.port, child.run));
        }
        if let Some(up) = self.config.uplink.filter(|_| tells_above) {
            self.say(up, key.0, &Said::Released { to: base });
        }
        below.into_iter().for_each(|(port, run)| self.say(port, run, &Said::Room { to: limit }));
    }

    /// Somebody has left the ring; whether nobody is left, here and below.
    pub(in crate::engine) fn after_leaving(&mut self, key: RingKey) -> bool {
        let Some(ring) = self.rings.get_mut(&key) else { return false };
        if ring.tree.is_used() && !std::mem::replace(&mut ring.tree.is_closing_told, true) {
            self.spread_word(key, usize::MAX, &Said::Closing);
        }
        self.release_all_but_over(key)
    }

    fn release_all_but_over(&mut self, key: RingKey) -> bool {
        let Some(ring) = self.rings.get(&key) else { return false };
        let is_empty = ring.flows().next().is_none() && ring.tree.children.iter().all(|child| child.is_over);
        if let (true, Some(up), false) = (is_empty, self.config.uplink, ring.tree.told.is_empty()) {
            self.say(up, key.0, &Said::Over);
        }
        is_empty
    }

    /// Nobody is left behind a switch below.
    pub(in crate::engine) fn on_over(&mut self, port: usize, key: RingKey, out: &mut impl Ports) {
        let Some(ring) = self.rings.get_mut(&key) else { return };
        ring.tree.children.iter_mut().filter(|child| child.port == port).for_each(|child| child.is_over = true);
        if self.release_all_but_over(key) {
            return self.end_quietly(key);
        }
        self.release(key, None, out);
    }

    /// Ends the rings that need a switch which has gone or was restarted.
    pub(in crate::engine) fn end_beyond(&mut self, now: Instant, port: usize, is_restart: bool, out: &mut impl Ports) {
        let is_up = self.config.uplink == Some(port);
        let needs = |ring: &Ring| {
            let below = ring.tree.children.iter().any(|child| child.port == port && !child.is_over);
            let crosses = || ring.tree.begun.is_none() && ring.known() < usize::from(ring.world) && self.crosses(ring, port);
            // What was said above is lost. Where there never was anybody, the ring may still find all of its ranks here.
            let waits = |ring: &Ring| is_restart || now.since(ring.moved) >= GONE;
            below || is_up && (!ring.tree.told.is_empty() || crosses() && waits(ring))
        };
        let keys: Vec<RingKey> = self.rings.iter().filter(|(_, ring)| needs(ring)).map(|(key, _)| *key).collect();
        for key in keys {
            let interface = self.ports[port].name().to_owned();
            self.fail(now, key, &Failure::Beyond { interface, is_restart }, out);
        }
        let way = &mut Way { bridge: &self.bridge, ports: out, trunks: &mut self.trunks };
        self.rdma.on_trunk_gone(port, self.ports[port].name(), is_restart, way);
    }

    /// Sends what is due between switches, and what helps RDMA connections in which something was lost. To be called after frames have come, and
    /// when [`Switch::due`] says so.
    pub fn settle(&mut self, now: Instant, out: &mut impl Ports) {
        self.rdma.on_due(now, &mut Way { bridge: &self.bridge, ports: out, trunks: &mut self.trunks });
        for (port, trunk) in &mut self.trunks {
            trunk.flush(now, |frame| out.send(*port, &Offload::default(), frame));
        }
        self.pay(now, out);
    }

    /// When [`Switch::settle`] has something to do at the latest, where something is under way between switches.
    pub fn due(&self) -> Option<Instant> {
        self.trunks.values().filter_map(Trunk::due).chain(self.rdma.due()).chain(self.debts_due()).min()
    }

    /// Rings end whose other switches are silent.
    pub(in crate::engine) fn end_unreachable(&mut self, now: Instant, out: &mut impl Ports) {
        let silent: Vec<usize> = self.trunks.iter().filter(|(_, trunk)| trunk.silent(now) >= GONE).map(|(port, _)| *port).collect();
        for port in silent {
            self.end_beyond(now, port, false, out);
            // Somebody else may be plugged in there, if only a worker.
            if self.config.uplink != Some(port) {
                tracing::warn!(interface = self.ports[port].name(), "the transparent switch below has gone");
                self.close_trunk(port);
            } else if self.trunks.get(&port).is_some_and(|trunk| trunk.is_up() && trunk.silent(now) >= FORGOTTEN) {
                tracing::warn!(interface = self.ports[port].name(), "the transparent switch above has gone");
                self.open_trunk(now, port, Role::Below);
            }
        }
    }
}
