//! One connection that is looked at: what is held of it, what its receiver has.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use fanin_core::{Duration, Instant, Malformed};
use fanin_net::Offload;
use fanin_protocols::shared::splice::{Intervals, Splice};
use fanin_wire::stream::{MessageHeader, STREAM_MAGIC};

use super::key::RingKey;
use crate::segment::{Place, Segment};

/// The longest payload of a frame.
const PAYLOAD_MAX: u64 = 65_535;
/// Frames and bytes that are held of a connection that nobody knows yet what it is.
const UNDECIDED_FRAMES: usize = 64;
const UNDECIDED_BYTES: usize = 4 << 20;

/// A frame that waits.
#[derive(Clone, Debug)]
pub(super) struct Held {
    /// The port that it came by.
    pub port: usize,
    pub offload: Offload,
    /// Offset of its first byte in the stream.
    pub offset: u64,
    pub segment: Segment,
    /// Counts the frames that were held.
    pub arrival: u64,
    pub frame: Vec<u8>,
}

impl Held {
    pub fn new(port: usize, offload: Offload, offset: u64, segment: &Segment, frame: &[u8]) -> Self {
        let frame = frame[..segment.payload().end].to_vec();
        Held { port, offload, offset, segment: *segment, arrival: 0, frame }
    }

    pub fn end(&self) -> u64 {
        self.offset + u64::from(self.segment.payload_bytes())
    }
}

/// What a connection is.
#[derive(Debug)]
pub(super) enum State {
    /// Too little has been seen of it.
    Undecided(Box<Undecided>),
    /// One of a ring.
    Member(Membership),
    /// It was ended; whoever sends on is told once more, and why.
    Reset(Arc<str>),
    /// Another switch sums in it.
    Passes,
}

/// Whose stream it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Membership {
    /// The ring's key, not its number.
    pub ring: RingKey,
    pub rank: u16,
    /// Its sender is at another switch, which tells what it has sent.
    pub is_noticed: bool,
}

/// What the first bytes say.
pub(super) enum Verdict {
    Unknown,
    NotOurs,
    /// It begins like a message and is none.
    Malformed(Malformed),
    Ours(MessageHeader),
}

/// The first bytes of a stream.
#[derive(Debug)]
pub(super) struct Undecided {
    pub first: [u8; MessageHeader::LEN],
    pub known: Intervals,
    pub held: Vec<Held>,
    pub held_bytes: usize,
    /// Something has come twice.
    pub repeated: bool,
    /// Where it ends, once that is known.
    pub end: Option<u64>,
}

impl Undecided {
    pub fn add(&mut self, held: Held) {
        let range = held.offset..held.end().min(self.first.len() as u64);
        if range.start < range.end {
            self.repeated |= self.known.contains(&range);
            let payload = &held.frame[held.segment.payload()];
            self.first[range.start as usize..range.end as usize].copy_from_slice(&payload[..(range.end - range.start) as usize]);
            self.known.insert(range);
        }
        if held.segment.flags.fin {
            self.end = Some(held.end());
        }
        self.held_bytes += held.frame.len();
        self.held.push(held);
    }

    /// What the first bytes say.
    pub fn verdict(&self) -> Verdict {
        let known = self.known.reach(0).min(MessageHeader::LEN as u64) as usize;
        let compared = known.min(STREAM_MAGIC.len());
        // Something came again that was too short to tell: whoever sent it waits for an answer.
        let impatient = self.repeated && known < STREAM_MAGIC.len() && known > 0;
        if self.first[..compared] != STREAM_MAGIC[..compared] || self.is_full() || impatient {
            return Verdict::NotOurs;
        }
        if known < MessageHeader::LEN {
            // The end may come before the beginning does.
            return if self.end.is_some_and(|end| end < MessageHeader::LEN as u64) { Verdict::NotOurs } else { Verdict::Unknown };
        }
        match MessageHeader::parse(&self.first) {
            Ok(header) if header.summed == 0 && header.message == 0 => Verdict::Ours(header),
            // A result of another switch.
            Ok(header) if header.summed != 0 => Verdict::NotOurs,
            Ok(header) => Verdict::Malformed(Malformed::Field { name: "message", value: header.message.into() }),
            Err(error) => Verdict::Malformed(error),
        }
    }

    fn is_full(&self) -> bool {
        self.held.len() > UNDECIDED_FRAMES || self.held_bytes > UNDECIDED_BYTES
    }
}

/// The other direction of a connection: what the sender of the stream hears.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Answers {
    /// The receiver has answered the SYN.
    pub opened: bool,
    /// What the sender has acknowledged last: where the receiver's next byte stands.
    pub acknowledged: u32,
    /// The receiver's time and its echo, as the last answer had them.
    pub times: Option<[u8; 8]>,
    /// By how many bits the receiver's windows are shifted; both ends have to say so.
    pub scale: [Option<u8>; 2],
    /// Up to where the receiver takes bytes, and up to where the sender has been told so.
    pub takes: u64,
    pub told: u64,
    /// When the receiver has ended its direction, of which nobody expects anything.
    pub ended: Option<Instant>,
}

/// A SYN of the same addresses, which counts once it is answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Anew {
    pub base: u32,
    pub scale: Option<u8>,
}

/// What the switch owes to a receiver: its sender was told that it has come, and it has not.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Debt {
    /// The sender has been told that everything below has come, and that the last of what has come selectively ends here.
    pub to: u64,
    pub selectively_to: u64,
    /// When the receiver last had more, or what it lacks first has last left; and how often the switch has sent that by itself.
    pub since: Instant,
    pub times: u32,
    /// When what the receiver lacks first has left with its sum.
    pub left: Option<Instant>,
    /// How long it takes until a receiver answers.
    pub turn: Option<Duration>,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Stream {
    pub state: State,
    /// The ring of which it is, as another switch has said: it is not forgotten before that ring is over, however long nothing is sent.
    pub far_ring: Option<RingKey>,
    pub began: Instant,
    /// Sequence number of the first byte.
    pub base: u32,
    /// End of the furthest byte that was taken.
    pub highest: u64,
    /// What has come of it and is not known to be at the receiver.
    pub here: Intervals,
    /// The receiver has everything below.
    pub acknowledged: u64,
    pub debt: Debt,
    /// Its ends use selective acknowledgements.
    pub takes_selective: bool,
    pub answers: Answers,
    pub anew: Option<Anew>,
    /// The ports behind which the sender and the receiver are, as far as anything came from them.
    pub ports: [Option<usize>; 2],
    pub held: BTreeMap<(u64, u64), Held>,
    pub held_bytes: usize,
    /// Where the stream ends, once that is known.
    pub fin: Option<u64>,
    fin_acknowledged: bool,
    /// The latest of the sender's times that has left.
    pub latest_time: Option<u32>,
    /// Offset of the segment that came last.
    pub newest: Option<u64>,
    /// Headers of a frame, to make others from.
    pub template: Option<(Vec<u8>, Segment)>,
    /// How often its ends were told once more that it is over.
    pub resets_repeated: usize,
}

impl Stream {
    pub fn new(now: Instant, base: u32, scale: Option<u8>) -> Self {
        let undecided = Undecided {
            first: [0; MessageHeader::LEN],
            known: Intervals::default(),
            held: Vec::new(),
            held_bytes: 0,
            repeated: false,
            end: None,
        };
        Stream {
            state: State::Undecided(Box::new(undecided)),
            far_ring: None,
            began: now,
            base,
            highest: 0,
            here: Intervals::default(),
            acknowledged: 0,
            debt: Debt::default(),
            takes_selective: false,
            answers: Answers { scale: [scale, None], ..Answers::default() },
            anew: None,
            ports: [None; 2],
            held: BTreeMap::new(),
            held_bytes: 0,
            fin: None,
            fin_acknowledged: false,
            latest_time: None,
            newest: None,
            template: None,
            resets_repeated: 0,
        }
    }

    /// Its ring's key and its rank, if it has them.
    pub fn membership(&self) -> Option<Membership> {
        if let State::Member(membership) = self.state { Some(membership) } else { None }
    }

    /// Whether it may be forgotten where room is needed.
    pub fn is_idle(&self) -> bool {
        !matches!(self.state, State::Member(_)) && self.far_ring.is_none()
    }

    /// Where the receiver, and where the sender, expects a segment that is made here.
    pub fn places(&self) -> (Place, Place) {
        let acknowledged = self.answers.acknowledged;
        let to_receiver = Place { sequence: self.sequence_of(self.acknowledged), acknowledged, times: None };
        let told = self.sequence_of(self.told_to());
        (to_receiver, Place { sequence: acknowledged, acknowledged: told, times: self.answers.times })
    }

    /// The same, where the receiver has just said it.
    pub fn places_of_answer(&self, answer: &Segment) -> (Place, Place) {
        let (to_receiver, to_sender) = self.places();
        (Place { sequence: answer.acknowledged, acknowledged: answer.sequence, ..to_receiver }, to_sender)
    }

    /// It is over: nothing of it goes on, and whoever sends in it hears why.
    pub fn reset(&mut self, now: Instant, why: Arc<str>) {
        self.state = State::Reset(why);
        self.began = now;
        self.resets_repeated = 0;
    }

    /// Offset of a sequence number, which is near what was seen last; `None` before the first byte.
    pub fn offset_of(&self, sequence: u32) -> Option<u64> {
        let near = self.highest.max(self.acknowledged);
        let ahead = sequence.wrapping_sub(self.sequence_of(near)) as i32;
        near.checked_add_signed(i64::from(ahead))
    }

    /// Sequence number of an offset.
    pub fn sequence_of(&self, offset: u64) -> u32 {
        self.base.wrapping_add(offset as u32)
    }

    /// The receiver has sent something.
    pub fn answered(&mut self, segment: &Segment) {
        let Some(to) = self.offset_of(segment.acknowledged).filter(|_| segment.flags.ack) else { return };
        // What was never sent is not acknowledged either; FIN counts as a byte.
        if to <= self.highest {
            self.acknowledged = self.acknowledged.max(to);
        } else if self.fin.is_some_and(|fin| to == fin + 1) {
            self.acknowledged = self.highest;
            self.fin_acknowledged = true;
        }
        self.here.forget(self.acknowledged);
    }

    /// Whether the receiver has all that there ever will be.
    pub fn is_over(&self) -> bool {
        self.fin_acknowledged
    }

    pub fn remember(&mut self, held: &Held) {
        self.newest = Some(held.offset);
        self.ports[0] = Some(held.port);
        self.keep_template(held);
    }

    pub fn keep_template(&mut self, held: &Held) {
        if self.template.is_none() {
            self.template = Some((held.frame[..held.segment.payload().start].to_vec(), held.segment));
        }
    }

    /// Takes out those segments that overlap or touch `complete` and can leave.
    pub fn take_ready(&mut self, splice: &Splice, complete: Range<u64>, ready: &mut Vec<Held>) {
        let from = (complete.start.saturating_sub(PAYLOAD_MAX), 0);
        let to = (complete.end, u64::MAX);
        let acknowledged = self.acknowledged;
        let can_leave = |held: &Held| {
            let before = if held.segment.flags.fin { acknowledged.min(held.offset) } else { held.offset };
            splice.is_complete(&(before..held.end()))
        };
        let keys: Vec<(u64, u64)> = self.held.range(from..=to).filter(|(_, held)| can_leave(held)).map(|(key, _)| *key).collect();
        for held in keys.iter().filter_map(|key| self.held.remove(key)) {
            self.held_bytes -= held.frame.len();
            ready.push(held);
        }
    }
}
