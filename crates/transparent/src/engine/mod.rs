//! What happens to a frame.
//!
//! | module | what it holds |
//! |---|---|
//! | `bridge` | which host is behind which port |
//! | `stream` | one connection of a ring: what is held, what has been acknowledged |
//! | `ring` | the connections that are summed with each other |
//! | `members` | a ring comes together, and segments leave with sums |
//! | `ends` | a ring ends, well or not, and its workers are told why |
//! | `promise` | whose losses a sender hears of |
//! | `window` | how much senders may send |
//! | `ports` | interfaces that come and go |
//! | `neighbours` | other transparent switches that sum by themselves |
//! | `tree` | rings whose workers are behind several switches, which sum together |
//! | `trunks` | what these switches say to each other |
//! | `notices` | what is said about frames that are dropped or pass unsummed |
//!
//! Rules that keep kernel TCP content, beside those of `netreduce 5`:
//!
//! * Offsets are counted from the SYN in 64 bits; the first copy of a byte counts; segments that are sent again, cut anew, change nothing.
//! * A stream is looked at from its SYN on and left alone at the first byte that does not begin a message.
//! * A segment leaves as soon as the sums of all its bytes are there, in the order in which segments came; one that comes once more is
//!   forwarded once more, or its receiver could not tell the sender that a repetition was needless.
//! * What one worker has lost is missing in everybody's sums, so that all receivers report the gap (`netreduce P1`). Its own sender alone hears of
//!   that: `promise`. (To let go in order on the connections of those who lost nothing, and to withhold repeated acknowledgements from them,
//!   were tried before and did not help: whoever hears nothing sends nothing. Who has lost nothing has to hear that all is well.)
//! * A segment that is sent again while its first bytes are complete and its last ones are not is cut in two: a sender whose window is one
//!   segment would wait for ever where that segment ends inside an element.
//! * The sender's time in a segment that was held is raised to the latest that has left, or the receiver would take it for an old one (PAWS).
//! * Nothing is read of a segment of which a checksum is wrong: what leaves has a new one, so damage would not be seen any more. Where the
//!   kernel or a card has looked, nobody looks again. Other connections' segments pass as they are.
//! * The receiver of each rank is the sender of the next one, by addresses: two jobs that have the same ring number do not get each other's sums.
//! * Windows are cut where they pass to what the memory holds, or what lies beyond would be sent, dropped and sent again.
//! * FIN waits until all before it is complete. A stream that ends inside a message, or differs from the others in a header, ends the ring:
//!   both ends of all its connections are reset, so that no worker waits for a sum that cannot come.

mod bridge;
mod ends;
mod key;
mod members;
mod neighbours;
mod notices;
mod ports;
mod promise;
mod ring;
mod stream;
mod trunks;
mod window;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use fanin_core::{Duration, Instant};
use fanin_net::Offload;
use fanin_wire::stream::MessageHeader;

use crate::rdma::{Emit, Rdma, RdmaRing, RdmaStatistics};
use crate::segment::{Damage, Flow, Look, Segment, Unsummed, begins_message, look, turned};
use crate::trunk::{Trunk, is_trunk};
use bridge::Bridge;
use key::RingKey;
use notices::Notice;
use ports::PortState;
use ring::Ring;
use ring::tree::Trunks;
use stream::{Anew, Held, Membership, State, Stream, Verdict};

/// Connections that are looked at, at once.
const STREAMS_MAX: usize = 65_536;
/// How long a connection may stay without a first byte before it is left alone: a worker may have much to do before its first message.
const UNDECIDED_MAX: Duration = Duration::from_us(3_600_000_000);
/// The same where the receiver has not even answered: longer than kernels try.
const HALF_OPEN_MAX: Duration = Duration::from_us(180_000_000);
/// Bytes that are held of connections of which nobody knows yet what they are.
const UNDECIDED_BYTES_MAX: usize = 64 << 20;
/// How long a connection that was reset is remembered: longer than any kernel sends again, so that nothing of it ever passes unsummed.
const RESET_MEMORY: Duration = Duration::from_us(3_600_000_000);
/// A ring in which nothing moves for so long says why.
const STALL: Duration = Duration::from_us(2_000_000);

/// What a transparent switch has to know.
#[derive(Clone, Copy, Debug)]
pub struct SwitchConfig {
    /// Number of ports.
    pub ports: usize,
    /// Bytes of each stream that are kept; senders are held to that.
    pub stream_bytes: usize,
    /// Rings at once; further ones are reset.
    pub rings_max: usize,
    /// A ring that waits and in which nothing moves for so long is reset.
    pub patience: Duration,
    /// Tells switches of one network apart.
    pub identity: u64,
    /// The port behind which the switch above is, with which this one sums together.
    pub uplink: Option<usize>,
}

impl Default for SwitchConfig {
    fn default() -> Self {
        SwitchConfig {
            ports: 0,
            stream_bytes: 16 << 20,
            rings_max: 64,
            patience: Duration::from_us(600_000_000),
            identity: 0,
            uplink: None,
        }
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
    /// Segments dropped for lack of memory, and headers of segments that nobody takes.
    pub dropped: u64,
    /// Frames dropped since they were damaged, in the order of [`Damage::ALL`].
    pub damaged: [u64; Damage::ALL.len()],
    /// Frames with messages, or connections, that passed unsummed, in the order of [`Unsummed::ALL`].
    pub unsummed: [u64; Unsummed::ALL.len()],
    /// Answers in which less room was announced than the receiver has.
    pub windows_cut: u64,
    /// Answers in which a sender was told that what is here of it has come, while its receiver lacks what others have lost.
    pub answered: u64,
    /// Segments that the switch has sent again by itself, since it had answered for them.
    pub owed: u64,
    /// Rings that began.
    pub rings: u64,
    /// Rings that were reset.
    pub rings_failed: u64,
    /// Workers that were refused by a ring.
    pub refused: u64,
    /// The most bytes of frames that were held at once.
    pub held_bytes_peak: u64,
    /// Switches above and below that answer.
    pub trunks: u64,
    /// Bytes of sums of a part of a ring that went to the switch above.
    pub trunk_part_bytes: u64,
    /// Bytes of sums of all that went to switches below.
    pub trunk_whole_bytes: u64,
    /// Segments, and packets of RDMA, whose headers went to the switch where their receiver is.
    pub trunk_segments: u64,
    /// Messages to other switches that were sent again.
    pub trunk_repeated: u64,
    /// Frames of other switches that were damaged.
    pub trunk_damaged: u64,
    /// What other switches said that does not fit.
    pub trunk_strange: u64,
    /// Inside RDMA connections.
    pub rdma: RdmaStatistics,
}

/// A ring as it is now.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RingView {
    /// Its number.
    pub ring: u32,
    /// How many workers it has.
    pub world: u16,
    /// How many are there.
    pub present: u16,
    /// The ranks that it waits for.
    pub waits: Vec<u16>,
    /// Other switches that sum for it, too.
    pub switches: usize,
    /// For how long nothing has moved.
    pub idle: Duration,
}

/// Takes frames that leave.
pub trait Ports {
    /// A frame leaves by a port.
    fn send(&mut self, port: usize, offload: &Offload, frame: &[u8]);
}

/// Frames that are made of held ones leave to where their addresses lead.
pub(super) struct Way<'a, P> {
    bridge: &'a Bridge,
    ports: &'a mut P,
    trunks: &'a mut Trunks,
}

impl<P: Ports> Emit for Way<'_, P> {
    fn emit(&mut self, port: usize, frame: &[u8]) {
        self.bridge.forward(port, frame, |to| self.ports.send(to, &Offload::default(), frame));
    }

    fn tell(&mut self, port: usize, body: Vec<u8>) {
        if let Some(trunk) = self.trunks.get_mut(&port).filter(|trunk| trunk.is_up()) {
            trunk.push(body);
        }
    }
}

/// Connections in the order in which they were seen, to make room where there is none. Those that have gone stay until they are met.
#[derive(Debug, Default)]
struct Order {
    half_open: VecDeque<(Flow, Instant)>,
    open: VecDeque<(Flow, Instant)>,
}

/// What is told at intervals.
#[derive(Debug, Default)]
struct Notices {
    damaged: [Notice; Damage::ALL.len()],
    unsummed: [Notice; Unsummed::ALL.len()],
    refused: Notice,
    strange: Notice,
}

/// A layer-2 switch that sums inside TCP connections, and inside RDMA connections where it is told to.
#[derive(Debug)]
pub struct Switch {
    config: SwitchConfig,
    bridge: Bridge,
    ports: Vec<PortState>,
    rdma: Rdma,
    /// By the flow from the one who opened the connection.
    streams: HashMap<Flow, Stream>,
    order: Order,
    rings: HashMap<RingKey, Ring>,
    /// The ring of each number that may still be joined.
    numbers: HashMap<u32, RingKey>,
    /// The ring of each run of a switch below, by its port.
    runs: HashMap<(usize, u64), RingKey>,
    /// Connections in which something may have to be sent again.
    owing: BTreeSet<Flow>,
    trunks: Trunks,
    trunks_opened: u64,
    next_ring: u64,
    next_words: Instant,
    statistics: Statistics,
    notices: Notices,
    held_bytes: u64,
    undecided_bytes: usize,
    arrivals: u64,
}

impl Switch {
    /// A switch that has seen nothing.
    pub fn new(config: SwitchConfig) -> Self {
        let mut switch = Switch {
            config,
            bridge: Bridge::new(config.ports),
            ports: (0..config.ports).map(|number| PortState::new(format!("port {number}"))).collect(),
            rdma: Rdma::default(),
            streams: HashMap::new(),
            order: Order::default(),
            rings: HashMap::new(),
            numbers: HashMap::new(),
            runs: HashMap::new(),
            owing: BTreeSet::new(),
            trunks: Trunks::new(),
            trunks_opened: 0,
            next_ring: 0,
            next_words: Instant::ZERO,
            statistics: Statistics::default(),
            notices: Notices::default(),
            held_bytes: 0,
            undecided_bytes: 0,
            arrivals: 0,
        };
        switch.open_uplink();
        switch
    }

    /// The same, which sums inside these rings of RDMA connections, too.
    ///
    /// # Errors
    /// The numbers of two rings that have a pair of neighbours in common and the same number.
    pub fn with_rdma(config: SwitchConfig, rings: Vec<RdmaRing>) -> Result<Self, (u16, u16)> {
        Ok(Switch { rdma: Rdma::new(rings, config.uplink)?, ..Switch::new(config) })
    }

    /// What it has done so far.
    pub fn statistics(&self) -> Statistics {
        let of = |value: fn(&Trunk) -> u64| self.trunks.values().map(value).sum();
        let rdma = self.rdma.statistics();
        Statistics {
            trunk_part_bytes: self.statistics.trunk_part_bytes + rdma.part_bytes,
            trunk_whole_bytes: self.statistics.trunk_whole_bytes + rdma.whole_bytes,
            trunk_segments: self.statistics.trunk_segments + rdma.heads,
            rdma,
            trunks: of(|trunk| trunk.is_up().into()),
            trunk_repeated: self.statistics.trunk_repeated + of(|trunk| trunk.counts.again),
            trunk_damaged: self.statistics.trunk_damaged + of(|trunk| trunk.counts.damaged),
            ..self.statistics
        }
    }

    /// Connections that are looked at.
    pub fn connections(&self) -> usize {
        self.streams.len()
    }

    /// Bytes of frames that are held.
    pub fn held_bytes(&self) -> u64 {
        self.held_bytes + self.undecided_bytes as u64
    }

    /// The rings of now, by their numbers.
    pub fn rings(&self, now: Instant) -> Vec<RingView> {
        let mut keys: Vec<&RingKey> = self.rings.keys().collect();
        keys.sort_unstable();
        let view = |ring: &Ring| RingView {
            ring: ring.number,
            world: ring.world,
            present: ring.known() as u16,
            switches: ring.tree.switches(),
            waits: ring.waits_for(),
            idle: now.since(ring.moved),
        };
        keys.iter().filter_map(|key| self.rings.get(key)).map(view).collect()
    }

    /// A frame has arrived at a port.
    pub fn on_frame(&mut self, now: Instant, port: usize, mut offload: Offload, frame: &mut [u8], out: &mut impl Ports) {
        self.statistics.frames += 1;
        if is_trunk(frame) {
            return self.on_trunk_frame(now, port, frame, out);
        }
        self.bridge.learn(now, port, frame);
        if self.rdma.on_frame(now, port, frame, &mut Way { bridge: &self.bridge, ports: out, trunks: &mut self.trunks }) {
            return;
        }
        if neighbours::is_word(frame) {
            self.on_word(now, port, frame, out);
            return self.forward(port, &offload, frame, out);
        }
        let segment = match look(frame) {
            Look::Segment(segment) => segment,
            Look::Damaged(damage) => return self.drop_damaged(now, port, damage, None),
            Look::Fragment(flow, begins) => return self.on_fragment(now, port, flow, begins, (&offload, frame), out),
            Look::Unsummed(why) => {
                self.note_unsummed(now, port, why, None, "");
                return self.forward(port, &offload, frame, out);
            }
            Look::Other => return self.forward(port, &offload, frame, out),
        };
        let opens = segment.flags.syn && !segment.flags.ack;
        let sends = self.streams.contains_key(&segment.flow);
        let answers = !sends && self.streams.contains_key(&segment.flow.reverse());
        if !(opens || sends || answers) {
            self.look_at_stranger(now, port, &segment, frame);
            return self.forward(port, &offload, frame, out);
        }
        // From here on something is done for what it says.
        if !segment.is_whole(frame, &offload) {
            return self.drop_damaged(now, port, Damage::Tcp, Some(segment.flow));
        }
        if opens {
            self.on_syn(now, port, &segment, frame);
        } else if sends {
            return self.on_segment(now, port, offload, frame, &segment, out);
        } else {
            self.on_answer(now, port, &mut offload, frame, segment, out);
        }
        self.forward(port, &offload, frame, out);
    }

    /// Forgets what is old, says why rings do not move and ends those that never will. To be called a few times a second.
    pub fn on_tick(&mut self, now: Instant, out: &mut impl Ports) {
        self.streams.retain(|_, stream| {
            let memory = match &stream.state {
                State::Undecided(_) | State::Passes if stream.answers.opened => UNDECIDED_MAX,
                State::Undecided(_) | State::Passes => HALF_OPEN_MAX,
                State::Reset(_) => RESET_MEMORY,
                State::Member(_) => return true,
            };
            if !stream.is_idle() {
                return true;
            }
            let stays = now.since(stream.began) < memory;
            if let (false, State::Undecided(undecided)) = (stays, &stream.state) {
                self.undecided_bytes -= undecided.held_bytes;
            }
            stays
        });
        self.say_what_is_due(now);
        self.repeat_resets(now, out);
        self.end_without_ports(now, out);
        self.end_unreachable(now, out);
        let keys: Vec<RingKey> = self.rings.keys().copied().collect();
        for key in keys {
            let failure = self.rings.get_mut(&key).and_then(|ring| ring.report_stall(now, STALL, self.config.patience));
            if let Some(failure) = failure {
                self.fail(now, key, &failure, out);
            }
        }
        self.send_words(now, out);
        self.settle(now, out);
    }

    /// Asks workers with RDMA connections whether they are there, and tells them what is over. To be called a few times a second.
    pub fn on_rdma_tick(&mut self, now: Instant, out: &mut impl Ports) {
        self.rdma.on_tick(now, &mut Way { bridge: &self.bridge, ports: out, trunks: &mut self.trunks });
    }

    fn forward(&mut self, from: usize, offload: &Offload, frame: &[u8], out: &mut impl Ports) {
        self.statistics.forwarded += 1;
        self.bridge.forward(from, frame, |port| out.send(port, offload, frame));
    }

    /// A connection begins: its bytes are counted from here on.
    fn on_syn(&mut self, now: Instant, port: usize, segment: &Segment, frame: &[u8]) {
        if segment.payload_bytes() > 0 {
            // Sent before anybody has answered (RFC 7413): whether it counts is only known from the answer.
            if begins_message(&frame[segment.payload()]) {
                self.note_unsummed(now, port, Unsummed::WithSyn, Some(segment.flow), "");
            }
            return;
        }
        let base = segment.sequence.wrapping_add(1);
        let scale = segment.window_scale(frame);
        if let Some(stream) = self.streams.get_mut(&segment.flow) {
            // The same addresses once more. Whether the old connection is gone its receiver knows (RFC 5961).
            stream.anew = (stream.base != base).then_some(Anew { base, scale });
            return;
        }
        if self.streams.len() >= STREAMS_MAX && !self.make_room() {
            return self.note_unsummed(now, port, Unsummed::NoRoom, Some(segment.flow), "");
        }
        let mut stream = Stream::new(now, base, scale);
        stream.ports[0] = Some(port);
        self.streams.insert(segment.flow, stream);
        self.order.half_open.push_back((segment.flow, now));
        for queue in [&mut self.order.half_open, &mut self.order.open] {
            if queue.len() > 2 * STREAMS_MAX {
                queue.retain(|(flow, began)| self.streams.get(flow).is_some_and(|stream| stream.began == *began));
            }
        }
    }

    /// Forgets the oldest connection that may be forgotten: at first one that nobody has answered.
    fn make_room(&mut self) -> bool {
        for (queue, answered) in [(&mut self.order.half_open, false), (&mut self.order.open, true)] {
            while let Some((flow, began)) = queue.pop_front() {
                let Some(stream) = self.streams.get(&flow) else { continue };
                if stream.began == began && stream.is_idle() && stream.answers.opened == answered {
                    if let State::Undecided(undecided) = &stream.state {
                        self.undecided_bytes -= undecided.held_bytes;
                    }
                    self.streams.remove(&flow);
                    return true;
                }
            }
        }
        false
    }

    /// The receiver of a stream answers: what it acknowledges need not be kept.
    fn on_answer(
        &mut self,
        now: Instant,
        port: usize,
        offload: &mut Offload,
        frame: &mut [u8],
        mut segment: Segment,
        out: &mut impl Ports,
    ) {
        let flow = segment.flow.reverse();
        if segment.flags.syn {
            self.on_opened(now, &segment, frame, out);
        }
        let Some(stream) = self.streams.get_mut(&flow) else { return };
        let before = stream.acknowledged;
        stream.answered(&segment);
        stream.ports[1] = Some(port);
        stream.answers.times = segment.times(frame).or(stream.answers.times);
        if segment.flags.fin {
            stream.answers.ended.get_or_insert(now);
        }
        let Some(membership) = stream.membership() else {
            match &stream.state {
                // The ring was reset, and its receiver was not at the place where the reset stood, or it was lost.
                State::Reset(_) if !segment.flags.rst => {
                    let (turned, turned_segment) = turned(frame, &segment);
                    let places = stream.places_of_answer(&segment);
                    self.send_resets(&turned, &turned_segment, places, None, out);
                }
                State::Undecided(_) | State::Passes if segment.flags.rst => self.forget(flow),
                _ => {}
            }
            return;
        };
        let over = stream.is_over();
        if segment.flags.rst {
            if self.is_far(membership, port) {
                return self.leave_ring(flow);
            }
            // The receiver has gone, and that is the next rank.
            let next = self.rings.get(&membership.ring).map_or(membership.rank, |ring| ring.next(membership.rank));
            return self.end_member(now, flow, membership, next, out);
        }
        if over {
            self.leave_ring(flow);
            self.check_ends(now, membership.ring, out);
        }
        self.release(membership.ring, Some(flow), out);
        if membership.is_noticed {
            return;
        }
        self.answer_for(now, (flow, before), &mut segment, (frame, offload), out);
        let limit = self.rings.get(&membership.ring).map_or(u64::MAX, |ring| ring.splice.limit());
        if let Some(stream) = self.streams.get_mut(&flow) {
            let before = segment.window;
            stream.limit_window(&mut segment, frame, offload, limit);
            self.statistics.windows_cut += u64::from(segment.window != before);
        }
    }

    /// The receiver answers a SYN.
    fn on_opened(&mut self, now: Instant, segment: &Segment, frame: &[u8], out: &mut impl Ports) {
        let flow = segment.flow.reverse();
        let Some(stream) = self.streams.get_mut(&flow) else { return };
        let mut anew = None;
        if let Some(syn) = stream.anew.take_if(|syn| syn.base == segment.acknowledged) {
            // It has taken the new one, so the old connection is gone.
            let ports = stream.ports;
            match stream.membership() {
                Some(membership) => self.end_member(now, flow, membership, membership.rank, out),
                None => self.forget(flow),
            }
            let mut stream = Stream::new(now, syn.base, syn.scale);
            stream.ports = ports;
            anew = Some(stream);
        }
        if let Some(stream) = anew {
            self.streams.insert(flow, stream);
        }
        let Some(stream) = self.streams.get_mut(&flow).filter(|stream| stream.base == segment.acknowledged) else { return };
        stream.answers.scale[1] = segment.window_scale(frame);
        if !stream.answers.opened {
            stream.answers.opened = true;
            self.order.open.push_back((flow, stream.began));
        }
    }

    /// A segment of a stream that is looked at, from the one who opened it.
    fn on_segment(&mut self, now: Instant, port: usize, offload: Offload, frame: &mut [u8], segment: &Segment, out: &mut impl Ports) {
        let Some(stream) = self.streams.get_mut(&segment.flow) else { return };
        stream.answers.acknowledged = segment.acknowledged;
        stream.ports[0] = Some(port);
        let offset = stream.offset_of(segment.sequence);
        let membership = match &stream.state {
            State::Reset(why) => {
                // To a reset nobody answers, or two would answer each other for ever; it stands where the other end expects it. And a word is
                // for who still has something to send.
                if segment.flags.rst {
                    return self.forward(port, &offload, frame, out);
                }
                let speaks = segment.payload_bytes() > 0 || segment.flags.fin;
                let (why, places) = (speaks.then(|| Arc::clone(why)), stream.places());
                return self.send_resets(frame, segment, places, why.as_deref(), out);
            }
            State::Member(membership) if membership.is_noticed && !segment.flags.rst => {
                let membership = *membership;
                return self.on_far_segment(now, port, (&offload, frame), segment, membership, out);
            }
            State::Member(membership) => Some(*membership),
            State::Undecided(_) => None,
            State::Passes => return self.forward(port, &offload, frame, out),
        };
        if segment.flags.rst {
            self.forward(port, &offload, frame, out);
            match membership {
                Some(membership) if self.is_far(membership, port) => self.leave_ring(segment.flow),
                Some(membership) => self.end_member(now, segment.flow, membership, membership.rank, out),
                None => {
                    self.forget(segment.flow);
                    self.end_unspoken(now, segment.flow, out);
                }
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

    /// A segment of a sender at another switch, which tells what it has sent: bytes pass only where the receiver has them.
    fn on_far_segment(
        &mut self,
        now: Instant,
        port: usize,
        frame: (&Offload, &[u8]),
        segment: &Segment,
        membership: Membership,
        out: &mut impl Ports,
    ) {
        let Some(stream) = self.streams.get(&segment.flow) else { return };
        let end = stream.offset_of(segment.sequence).map(|offset| offset + u64::from(segment.payload_bytes()));
        if segment.payload_bytes() > 0 && end.is_none_or(|end| end > stream.acknowledged) {
            let interface = self.ports[port].name().to_owned();
            let failure = ring::Failure::Unsummed { rank: membership.rank, at: segment.flow.from, interface };
            return self.fail(now, membership.ring, &failure, out);
        }
        self.forward(port, frame.0, frame.1, out);
    }

    fn on_bytes(&mut self, now: Instant, mut held: Held, out: &mut impl Ports) {
        self.arrivals += 1;
        held.arrival = self.arrivals;
        let (flow, port) = (held.segment.flow, held.port);
        let Some(stream) = self.streams.get_mut(&flow) else { return };
        if let State::Member(membership) = stream.state {
            return self.on_member(now, membership, held, out);
        }
        if self.trunks.contains_key(&port) && !ring::tree::ends_here(&self.trunks, stream) {
            // Between two other switches: what passes as it is they know about, and nobody sums in it where none of them has said so.
            if stream.far_ring.is_none() {
                self.forget(flow);
            }
            return self.forward(port, &held.offload, &held.frame, out);
        }
        let State::Undecided(undecided) = &mut stream.state else { return };
        self.undecided_bytes += held.frame.len();
        undecided.add(held);
        let verdict = undecided.verdict();
        let no_room = self.undecided_bytes > UNDECIDED_BYTES_MAX;
        if matches!(verdict, Verdict::Unknown) && !no_room {
            return;
        }
        let frames = std::mem::take(&mut undecided.held);
        self.undecided_bytes -= std::mem::take(&mut undecided.held_bytes);
        if let Verdict::Ours(header) = verdict {
            return self.join(now, flow, &header, frames, out);
        }
        if let Verdict::Malformed(error) = verdict {
            self.note_unsummed(now, port, Unsummed::Malformed, Some(flow), &error.to_string());
        } else if matches!(verdict, Verdict::Unknown) {
            self.note_unsummed(now, port, Unsummed::NoRoom, Some(flow), "");
        }
        let unspoken = frames.iter().all(|held| held.segment.payload_bytes() == 0);
        self.streams.remove(&flow);
        for held in frames {
            self.forward(held.port, &held.offload, &held.frame, out);
        }
        if unspoken {
            self.end_unspoken(now, flow, out);
        }
    }

    /// A stream that is nobody's goes, and what is held of it.
    fn forget(&mut self, flow: Flow) {
        if let Some(Stream { state: State::Undecided(undecided), .. }) = self.streams.remove(&flow) {
            self.undecided_bytes -= undecided.held_bytes;
        }
    }

    /// The first fragment of an IP packet: sums have no place in it, and no fragment of a ring's may pass in place of a sum.
    fn on_fragment(&mut self, now: Instant, port: usize, flow: Flow, begins: bool, frame: (&Offload, &[u8]), out: &mut impl Ports) {
        let membership = self.streams.get(&flow).and_then(Stream::membership);
        if begins || membership.is_some() {
            self.note_unsummed(now, port, Unsummed::Fragment, Some(flow), "");
        }
        if let Some(membership) = membership {
            return self.fail(now, membership.ring, &ring::Failure::Fragments { rank: membership.rank, at: flow.from }, out);
        }
        self.forward(port, frame.0, frame.1, out);
    }

    /// A segment of a connection whose beginning was not seen.
    fn look_at_stranger(&mut self, now: Instant, port: usize, segment: &Segment, frame: &[u8]) {
        let payload = &frame[segment.payload()];
        // Results have passed another switch.
        if begins_message(payload) && MessageHeader::parse(payload).is_ok_and(|header| header.summed == 0) {
            self.note_unsummed(now, port, Unsummed::NoBeginning, Some(segment.flow), "");
        }
    }

    fn drop_damaged(&mut self, now: Instant, port: usize, damage: Damage, flow: Option<Flow>) {
        self.statistics.damaged[damage as usize] += 1;
        if self.notices.damaged[damage as usize].count(now) {
            let (interface, reason) = (self.ports[port].name(), damage.name());
            match flow {
                Some(Flow { from, to }) => {
                    tracing::warn!(interface, reason, %from, %to, "a damaged frame is dropped; its sender sends it again")
                }
                None => tracing::warn!(interface, reason, "a damaged frame is dropped; its sender sends it again"),
            }
        }
    }

    fn note_unsummed(&mut self, now: Instant, port: usize, why: Unsummed, flow: Option<Flow>, error: &str) {
        self.statistics.unsummed[why as usize] += 1;
        if self.notices.unsummed[why as usize].count(now) {
            let (interface, reason) = (self.ports[port].name(), why.name());
            match flow {
                Some(Flow { from, to }) => tracing::warn!(interface, reason, error, %from, %to, "a message passes unsummed"),
                None => tracing::warn!(interface, reason, error, "a message passes unsummed"),
            }
        }
    }

    /// A frame was longer than any that can be taken, and is lost.
    pub fn on_too_long(&mut self, now: Instant, port: usize) {
        self.note_unsummed(now, port, Unsummed::TooLong, None, "");
    }

    fn say_what_is_due(&mut self, now: Instant) {
        for (damage, notice) in Damage::ALL.iter().zip(&mut self.notices.damaged) {
            if let Some(frames) = notice.due(now) {
                tracing::warn!(reason = damage.name(), frames, "more damaged frames were dropped");
            }
        }
        for (why, notice) in Unsummed::ALL.iter().zip(&mut self.notices.unsummed) {
            if let Some(frames) = notice.due(now) {
                tracing::warn!(reason = why.name(), frames, "more messages have passed unsummed");
            }
        }
        if let Some(workers) = self.notices.refused.due(now) {
            tracing::warn!(workers, "more workers were refused");
        }
        if let Some(words) = self.notices.strange.due(now) {
            tracing::warn!(words, "other transparent switches have said more that does not fit");
        }
    }
}

#[cfg(test)]
pub(crate) mod tests;
