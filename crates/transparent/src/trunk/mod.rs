//! What goes between two transparent switches that sum together: the virtual connection of `netreduce 5.7`, in frames that only such switches
//! read. No input, no output, no clock: a [`Trunk`] is one end.
//!
//! Messages ([`message`]) arrive once and in their order. What is lost is sent again between the two, as soon as the other end says that it has
//! later ones, or after a while; so a loss between switches costs no worker a retransmission. Each end has a number, its identity, that it
//! draws when it begins, and anew when it forgets what was between them: where the other end's is another one than before, that end was
//! restarted and knows nothing of the rings. Both identities together are the session, and nothing of another session is taken.
//!
//! | offset | bytes | field | big-endian |
//! |---|---|---|---|
//! | 0 | 6 | to | `03 fa 17 1e d0 03`: whoever is at the other end |
//! | 6 | 6 | from | `02` and the end of the identity |
//! | 12 | 2 | kind | `88 b5`: IEEE 802's for local experiments |
//! | 14 | 4 | magic | `fa 17 1e d3` |
//! | 18 | 1 | what | greeting 0, message 1, acknowledgement 2 |
//! | 19 | 1 | role | of the sender: the one below 0, the one above 1 |
//! | 20 | 2 | bytes | length of the body |
//! | 22 | 4 | CRC-32 | of the four bytes before it and of all behind it |
//! | 26 | 4 | session | the CRC-32 of both identities, the lower switch's first; 0 in a greeting |
//! | 30 | 8 | number | of the message, from 0 on; in acknowledgements how many have come without a gap |
//! | 38 | .. | body | greeting: the own identity and the one that was heard (8 each); message: its parts; acknowledgement: ranges that have come beyond (8, 8 each) |

pub(crate) mod message;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};

use fanin_core::hash::mix;
use fanin_core::{Duration, Instant};
use fanin_protocols::shared::splice::Intervals;
use fanin_wire::stream::checksum;

/// To whom frames go: no bridge learns the address, and a switch that is none of ours floods it.
const OTHER_END: [u8; 6] = [0x03, 0xfa, 0x17, 0x1e, 0xd0, 0x03];
const KIND: [u8; 6] = [0x88, 0xb5, 0xfa, 0x17, 0x1e, 0xd3];
const KIND_AT: usize = 12;
const WHAT_AT: usize = 18;
const ROLE_AT: usize = 19;
const LENGTH_AT: usize = 20;
const CRC_AT: usize = 22;
const SESSION_AT: usize = 26;
const NUMBER_AT: usize = 30;
/// Length of all before the body.
pub(crate) const HEAD: usize = 38;
const GREETING: u8 = 0;
const MESSAGE: u8 = 1;
const ACKNOWLEDGEMENT: u8 = 2;
/// Messages that are under way at most. The workers' own TCP decides how much that is together.
const WINDOW: usize = 512;
/// Messages that are kept of those that overtook others: as many as can be under way.
const AHEAD: u64 = WINDOW as u64;
/// Ranges that fit an acknowledgement of any network.
const RANGES_MAX: usize = 32;
/// So many messages have come that were sent later: one is lost, and not only overtaken.
const OVERTAKEN: u64 = 3;
/// Between two greetings.
const GREETS: Duration = Duration::from_us(250_000);
/// The other end is gone that has said nothing for so long. Greetings are sent all the time.
pub(crate) const GONE: Duration = Duration::from_us(3_000_000);
/// How long an answer may take before the first one was measured, and at least and at most.
const FIRST_WAIT: Duration = Duration::from_us(100_000);
const WAIT_MIN: Duration = Duration::from_us(10_000);
const WAIT_MAX: Duration = Duration::from_us(500_000);

/// Which end of a trunk a switch is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Role {
    /// Its sums go to the other one.
    Below,
    /// It has what the other one sums.
    Above,
}

/// What a frame was for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    /// Nothing to be done.
    Nothing,
    /// Something is damaged, or was not sent by the other end.
    Damaged,
    /// The other end is there.
    Up,
    /// The other end has begun anew: what was between them is over.
    Anew,
    /// These bodies, in their order.
    Messages(Vec<Vec<u8>>),
}

/// What a trunk has done.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counts {
    /// Messages that were sent again.
    pub again: u64,
    /// Frames that were damaged.
    pub damaged: u64,
}

#[derive(Clone, Debug)]
struct Sent {
    frame: Vec<u8>,
    at: Instant,
    times: u32,
    /// Later ones have come.
    is_lost: bool,
}

/// One end.
#[derive(Debug)]
pub(crate) struct Trunk {
    own: u64,
    role: Role,
    other: Option<u64>,
    /// The other end has heard this one.
    is_heard: bool,
    heard: Instant,
    /// Since when the other end says that it hears nothing.
    unheard: Option<Instant>,
    greeted: Option<Instant>,
    next: u64,
    sent: BTreeMap<u64, Sent>,
    waiting: VecDeque<Vec<u8>>,
    /// What has come beyond `expected`.
    expected: u64,
    ahead: BTreeMap<u64, Vec<u8>>,
    owes: bool,
    round_trip: Option<Duration>,
    pub counts: Counts,
}

/// Whether a frame is one of a trunk.
pub(crate) fn is_trunk(frame: &[u8]) -> bool {
    frame.len() >= HEAD && frame[..6] == OTHER_END && frame[KIND_AT..WHAT_AT] == KIND
}

/// Whether it greets the one above: only a switch below does that.
pub(crate) fn greets_above(frame: &[u8]) -> bool {
    is_trunk(frame) && frame[WHAT_AT] == GREETING && frame[ROLE_AT] == 0
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    bytes[at..at + 8].iter().fold(0, |all, byte| all << 8 | u64::from(*byte))
}

impl Trunk {
    pub fn new(now: Instant, own: u64, role: Role) -> Self {
        Trunk {
            own,
            role,
            other: None,
            is_heard: false,
            heard: now,
            unheard: None,
            greeted: None,
            next: 0,
            sent: BTreeMap::new(),
            waiting: VecDeque::new(),
            expected: 0,
            ahead: BTreeMap::new(),
            owes: false,
            round_trip: None,
            counts: Counts::default(),
        }
    }

    /// Whether both ends know each other.
    pub fn is_up(&self) -> bool {
        self.is_heard
    }

    /// For how long nothing has been heard, or the other end has heard nothing.
    pub fn silent(&self, now: Instant) -> Duration {
        now.since(self.unheard.map_or(self.heard, |unheard| unheard.min(self.heard)))
    }

    /// A message is to be sent.
    pub fn push(&mut self, body: Vec<u8>) {
        self.waiting.push_back(body);
    }

    fn session(&self) -> u32 {
        let other = self.other.unwrap_or(0);
        let (below, above) = if self.role == Role::Below { (self.own, other) } else { (other, self.own) };
        checksum(0, &[below.to_be_bytes(), above.to_be_bytes()].concat())
    }

    fn frame(&self, what: u8, number: u64, body: &[u8]) -> Vec<u8> {
        let identity = self.own.to_be_bytes();
        let role = u8::from(self.role == Role::Above);
        let session = if what == GREETING { 0 } else { self.session() };
        let length = (body.len() as u16).to_be_bytes();
        let front = [what, role, length[0], length[1]];
        let rest = [&session.to_be_bytes()[..], &number.to_be_bytes(), body].concat();
        let crc = checksum(checksum(0, &front), &rest).to_be_bytes();
        [&OTHER_END[..], &[2], &identity[3..], &KIND, &front, &crc, &rest].concat()
    }

    /// A frame of a trunk has come.
    pub fn on_frame(&mut self, now: Instant, frame: &[u8]) -> Came {
        let length = usize::from(u16::from_be_bytes([frame[LENGTH_AT], frame[LENGTH_AT + 1]]));
        let crc = frame[CRC_AT..SESSION_AT].iter().fold(0u32, |all, byte| all << 8 | u32::from(*byte));
        let is_mine = frame[ROLE_AT] == u8::from(self.role == Role::Below);
        let is_whole =
            frame.len() >= HEAD + length && checksum(checksum(0, &frame[WHAT_AT..CRC_AT]), &frame[SESSION_AT..HEAD + length]) == crc;
        if !is_whole {
            self.counts.damaged += 1;
            return Came::Damaged;
        }
        if !is_mine {
            return Came::Nothing;
        }
        let (body, number) = (&frame[HEAD..HEAD + length], u64_at(frame, NUMBER_AT));
        if frame[WHAT_AT] == GREETING {
            return self.on_greeting(now, body);
        }
        // Of a session that is over: whoever sends it will hear that.
        if frame[SESSION_AT..NUMBER_AT] != self.session().to_be_bytes() || !self.is_heard {
            return Came::Nothing;
        }
        self.heard = now;
        match frame[WHAT_AT] {
            MESSAGE => self.on_message(number, body),
            ACKNOWLEDGEMENT => {
                self.on_acknowledgement(now, number, body);
                Came::Nothing
            }
            _ => Came::Damaged,
        }
    }

    fn on_greeting(&mut self, now: Instant, body: &[u8]) -> Came {
        if body.len() < 16 {
            return Came::Damaged;
        }
        let (other, heard) = (u64_at(body, 0), u64_at(body, 8));
        if other == self.own {
            return Came::Nothing;
        }
        self.heard = now;
        let was_up = self.is_heard;
        let is_another = self.other != Some(other);
        if is_another {
            self.adopt(other);
        }
        self.unheard = if heard == self.own || !self.is_heard { None } else { Some(self.unheard.unwrap_or(now)) };
        // One that has not heard this end yet may have been overtaken by one that has.
        if heard == self.own && !self.is_heard {
            self.is_heard = true;
            self.greeted = None;
            return if was_up { Came::Anew } else { Came::Up };
        }
        if is_another && was_up { Came::Anew } else { Came::Nothing }
    }

    /// Another switch is at the other end. Where anything has been numbered for the one before, it begins anew itself, so that nothing of what
    /// was between them is taken for something that is between these.
    fn adopt(&mut self, other: u64) {
        let is_fresh = self.next == 0 && self.expected == 0 && self.ahead.is_empty();
        let own = if is_fresh { self.own } else { mix(self.own, other) };
        let before = Trunk::new(self.heard, own, self.role);
        *self = Trunk { counts: self.counts, other: Some(other), ..before };
    }

    fn on_message(&mut self, number: u64, body: &[u8]) -> Came {
        self.owes = true;
        if number < self.expected || number - self.expected >= AHEAD {
            return Came::Nothing;
        }
        self.ahead.entry(number).or_insert_with(|| body.to_vec());
        let mut bodies = Vec::new();
        while let Some(body) = self.ahead.remove(&self.expected) {
            self.expected += 1;
            bodies.push(body);
        }
        if bodies.is_empty() { Came::Nothing } else { Came::Messages(bodies) }
    }

    fn on_acknowledgement(&mut self, now: Instant, to: u64, ranges: &[u8]) {
        let mut there = Intervals::default();
        let mut furthest = to.min(self.next);
        there.insert(0..furthest);
        let (pairs, _) = ranges.as_chunks::<16>();
        for pair in pairs.iter().take(RANGES_MAX) {
            let range = u64_at(pair, 0)..u64_at(pair, 8).min(self.next);
            if range.start < range.end {
                furthest = furthest.max(range.end);
                there.insert(range);
            }
        }
        let mut latest = None;
        self.sent.retain(|number, sent| {
            let is_there = there.contains(&(*number..*number + 1));
            if is_there && sent.times == 1 {
                latest = latest.max(Some(sent.at));
            }
            !is_there
        });
        if let Some(at) = latest {
            let took = now.since(at);
            let smooth = |before: Duration| Duration::from_ps(before.as_ps() / 8 * 7 + took.as_ps() / 8);
            self.round_trip = Some(self.round_trip.map_or(took, smooth));
        }
        // What was overtaken by messages that were sent after it is lost.
        for (number, sent) in &mut self.sent {
            sent.is_lost |= *number + OVERTAKEN < furthest && latest.is_some_and(|latest| sent.at < latest);
        }
    }

    /// How long nothing may be heard of a message that was sent so often.
    fn patience(&self, times: u32) -> Duration {
        let once = self.round_trip.map_or(FIRST_WAIT, |trip| Duration::from_ps(trip.as_ps().saturating_mul(3)).max(WAIT_MIN));
        Duration::from_ps(once.as_ps() << times.saturating_sub(1).min(6)).min(WAIT_MAX)
    }

    /// When [`Trunk::flush`] has something to do again at the latest, where something is under way.
    pub fn due(&self) -> Option<Instant> {
        self.sent.values().map(|sent| sent.at + self.patience(sent.times)).min()
    }

    /// Sends what is due: to be called when something has come or is to go, and in time.
    pub fn flush(&mut self, now: Instant, mut send: impl FnMut(&[u8])) {
        if self.greeted.is_none_or(|greeted| now.since(greeted) >= GREETS) {
            self.greeted = Some(now);
            let heard = self.other.filter(|_| now.since(self.heard) < GONE).unwrap_or(0);
            let body = [self.own.to_be_bytes(), heard.to_be_bytes()].concat();
            send(&self.frame(GREETING, 0, &body));
        }
        if !self.is_heard {
            return;
        }
        if std::mem::take(&mut self.owes) {
            send(&self.frame(ACKNOWLEDGEMENT, self.expected, &self.ranges()));
        }
        let is_late = |sent: &Sent| sent.is_lost || now >= sent.at + self.patience(sent.times);
        let late: Vec<u64> = self.sent.iter().filter(|(_, sent)| is_late(sent)).map(|(number, _)| *number).collect();
        for number in late {
            let Some(sent) = self.sent.get_mut(&number) else { continue };
            sent.times += 1;
            (sent.at, sent.is_lost) = (now, false);
            self.counts.again += 1;
            send(&sent.frame);
        }
        while self.sent.len() < WINDOW && self.sent.first_key_value().is_none_or(|(first, _)| self.next - first < AHEAD) {
            let Some(body) = self.waiting.pop_front() else { break };
            let frame = self.frame(MESSAGE, self.next, &body);
            send(&frame);
            self.sent.insert(self.next, Sent { frame, at: now, times: 1, is_lost: false });
            self.next += 1;
        }
    }

    fn ranges(&self) -> Vec<u8> {
        let mut there = Intervals::default();
        self.ahead.keys().for_each(|number| there.insert(*number..*number + 1));
        let mut out = Vec::new();
        let mut at = self.expected;
        while let Some(range) = there.next_within(&(at..u64::MAX)) {
            if out.len() >= RANGES_MAX * 16 {
                break;
            }
            out.extend_from_slice(&range.start.to_be_bytes());
            out.extend_from_slice(&range.end.to_be_bytes());
            at = range.end;
        }
        out
    }
}
