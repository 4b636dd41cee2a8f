//! One connection between two neighbours, as it can be seen from between them: what its sender has shown, what its receiver has said, and
//! how both can be asked or told something.
//!
//! A receiver's card answers whatever carries a number that it has had before, with the number of what it has (InfiniBand Architecture 9.7.5.1.2),
//! and never looks at what that carries. So a [question](Line::question) costs its receiver nothing, and says three things: that the queue
//! pair is there, what it waits for, and the number of the queue pair at the other end. The same packet under the number that the receiver
//! waits for is one that it has to refuse: it says of itself that it is longer than it is. Then both ends go to their error states, whatever
//! their retry counts are, for the refusal is the receiver's own.
//!
//! Answers to questions go to the sender, who has not asked, and must not hear them ([`Answer::is_echo`]): Linux's RoCE puts off its
//! retransmission at any acknowledgement, new or not, so one who is told four times a second what he knows never sends again what was lost.
//! And where nothing has come yet, it answers with the number [`NOTHING_YET`] instead of the one before the first; half of all senders would
//! take that for an acknowledgement of all that they have sent.

use fanin_core::{Duration, Instant};
use fanin_protocols::shared::connection::Psn;
use fanin_wire::roce::{self, Aeth, BTH, Bth, ICRC, RETH, Reth, RoceHeader, TAGS_MAX, opcode};

/// Queue pairs at the sender's that answers went to which have nothing to do with this connection.
const FOREIGN_MAX: usize = 16;
/// How often a receiver is asked whether it begins anew before its silence is an answer.
const QUESTIONS_MAX: u32 = 12;
/// So many ticks without a word of its sender, and a connection that is over is forgotten: longer than any card waits before it sends again.
const FORGOTTEN: u32 = 20;
/// First packets of former runs by the same numbers that are remembered.
const OPENINGS_MAX: usize = 4;
/// How often both ends of a connection that is over are told without its sender having asked.
const TOLD_ROUNDS: u32 = 2;
/// As long as a run is shorter than this, questions have the number before its first one: a card that begins anew has not had that either.
const NEAR: i32 = 1 << 22;

/// What Linux's RoCE answers to a question as long as nothing has come: its `ack_psn`, 0 until then, less one.
const NOTHING_YET: Psn = Psn::new(0xff_ffff);
/// How long nothing may move in a connection that lacks something before its receiver is asked what it has, then twice that before it is asked again,
/// and so on: cards by themselves wait for half a second.
const PROD: Duration = Duration::from_ms(4);
/// How often a sender is sent back while nothing moves: each time is one of its card's retries.
const SENT_BACK_MAX: u32 = 3;
/// The most answers to questions that are still expected: those of a second.
const QUESTIONS_OPEN_MAX: u32 = 4;

/// A connection in one run of a job.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity {
    /// The queue pair that it ends at.
    pub queue_pair: u32,
    /// The number of its first packet.
    pub first: Psn,
    /// The virtual LANs that it is in.
    pub lans: [u16; TAGS_MAX],
}

impl Identity {
    pub fn of(header: &RoceHeader) -> Self {
        Identity { queue_pair: header.bth.queue_pair, first: Psn::new(header.bth.psn), lans: header.envelope.virtual_lans() }
    }

    /// Whether a packet that is not the first one belongs to it.
    pub fn has(&self, header: &RoceHeader) -> bool {
        self.queue_pair == header.bth.queue_pair && self.lans == header.envelope.virtual_lans()
    }
}

/// What its receiver has said.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Answer {
    /// It has all before this one.
    pub expected: Psn,
    /// It has ended the connection; the code.
    pub fatal: Option<u8>,
    /// Nobody but the switch has asked for it, and it tells its sender nothing: it does not go on.
    pub is_echo: bool,
}

/// What a connection whose sender's queue pair is not known may learn from an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Learns {
    /// That it goes there.
    Origin,
    /// Nothing but that somebody is there: it fits several connections between the same hosts.
    Presence,
    /// Nothing: it is another connection's.
    Nothing,
}

/// What follows from an answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outcome {
    Nothing,
    /// The receiver waits for this first packet once more, that it was asked about: a run begins.
    Anew(Vec<u8>),
    /// It waits for a first packet, and nobody can say of which run.
    Doubtful,
}

/// A connection that is over, while its ends may not know.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Ending {
    /// Its ring has been ended, or it has been refused: both ends are told. Otherwise a later run is in its place, and only who still sends
    /// is told.
    pub is_told: bool,
    /// How often its sender may still send before it is told: it may not be of a ring at all.
    pub grace: u32,
    rounds: u32,
    /// Its sender has sent something since it was last told.
    pub nags: bool,
    /// Ticks since then.
    quiet: u32,
    /// Its receiver has refused what it had to refuse.
    is_confirmed: bool,
}

/// See the module's documentation.
#[derive(Debug)]
pub(super) struct Line {
    pub identity: Identity,
    /// The RETH and the payload of its first packet; behind it those of runs before by the same numbers.
    openings: Vec<Vec<u8>>,
    /// Ethernet to UDP, of its first packet.
    head: Vec<u8>,
    bth: Bth,
    pub port: usize,
    /// When its sender was heard last.
    pub heard: Instant,
    /// The receiver has all before this one.
    pub received: Psn,
    /// That is more than nothing; so much more that the first number may soon come again.
    pub is_received: bool,
    is_far: bool,
    /// One behind the newest packet that has come.
    sent: Psn,
    /// The first packet that has not come: one before `sent` is lost.
    pub whole: Psn,
    /// One behind the newest packet of which there was the sum.
    summed: Psn,
    /// When one of these was last another one, and how often it was helped since then.
    moved: Instant,
    prods: u32,
    /// Its receiver was asked, and has not answered since.
    is_prodded: bool,
    /// The queue pair that it begins at.
    sender: Option<u32>,
    foreign: Vec<u32>,
    /// Messages that the receiver has completed, as it said.
    messages: u32,
    /// A sum has left in it.
    pub has_sums: bool,
    /// Its first packet came again, and was answered with the sum, and it is not known that the receiver had it before.
    pub is_doubtful: bool,
    /// Its receiver begins anew: it waits for the first packet once more.
    pub is_fresh: bool,
    /// A first packet that is the same as it was before, and how often its receiver has been asked whether it waits for that.
    asked: Option<(u32, Vec<u8>)>,
    /// Questions that have no answer yet.
    questions: u32,
    pub ending: Option<Ending>,
}

fn opening(header: &RoceHeader, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; RETH];
    if let Some(reth) = header.reth {
        reth.emit(&mut bytes);
    }
    bytes.extend_from_slice(payload);
    bytes
}

impl Line {
    pub fn new(port: usize, header: &RoceHeader, payload: &[u8], frame: &[u8]) -> Self {
        let identity = Identity::of(header);
        let before = header.head_len()
            - if header.reth.is_some() { RETH } else { 0 }
            - if header.immediate.is_some() { roce::IMMEDIATE } else { 0 }
            - BTH;
        Line {
            identity,
            openings: vec![opening(header, payload)],
            head: frame[..before].to_vec(),
            bth: header.bth,
            port,
            heard: Instant::ZERO,
            received: identity.first,
            is_received: false,
            is_far: false,
            sent: identity.first,
            whole: identity.first,
            summed: identity.first,
            moved: Instant::ZERO,
            prods: 0,
            is_prodded: false,
            sender: None,
            foreign: Vec::new(),
            messages: 0,
            has_sums: false,
            is_doubtful: false,
            is_fresh: false,
            asked: None,
            questions: 0,
            ending: None,
        }
    }

    /// It is over from now on.
    pub fn end(&mut self, is_told: bool, grace: u32) {
        let rounds = if is_told { 0 } else { TOLD_ROUNDS };
        self.ending = Some(Ending { is_told, grace, rounds, nags: false, quiet: 0, is_confirmed: false });
        self.asked = None;
    }

    /// Whether a first packet is the one that it began with, byte for byte: a repetition has to be (`netreduce P7`).
    pub fn began_with(&self, header: &RoceHeader, payload: &[u8]) -> bool {
        self.openings.first() == Some(&opening(header, payload))
    }

    /// Whether a run before began with it, by the same numbers.
    pub fn once_began_with(&self, header: &RoceHeader, payload: &[u8]) -> bool {
        self.openings.iter().skip(1).any(|known| *known == opening(header, payload))
    }

    /// It is in the place of another one, which had the same numbers.
    pub fn replaces(&mut self, former: &mut Line) {
        let known = former.openings.drain(..).filter(|known| Some(known) != self.openings.first());
        let room = OPENINGS_MAX.saturating_sub(self.openings.len());
        let known: Vec<Vec<u8>> = known.take(room).collect();
        self.openings.extend(known);
    }

    /// Its sender has sent this one.
    pub fn note_sent(&mut self, psn: Psn) {
        let end = psn.plus(1);
        if end.since(self.sent) > 0 {
            self.sent = end;
        }
        // Who sends again lacks an acknowledgement, and gets the next one, whoever has asked for it.
        if self.is_received && !self.is_asked() {
            self.questions = 0;
        }
    }

    /// Its sender sends although it is over. Before its beginning was seen, the oldest number counts: everything before that has been received.
    pub fn nag(&mut self, psn: Psn) {
        self.note_sent(psn);
        if let Some(ending) = &mut self.ending {
            ending.nags = true;
            if self.openings.is_empty() && psn.since(self.identity.first) < 0 {
                self.identity.first = psn;
                self.received = psn;
            }
        }
    }

    /// One whose beginning was not seen.
    pub fn without_beginning(mut self) -> Self {
        self.openings.clear();
        self
    }

    /// A first packet is the same as it was before: its receiver will be asked whether it begins anew.
    pub fn ask(&mut self, frame: &[u8]) {
        if self.asked.is_none() {
            self.asked = Some((0, frame.to_vec()));
        }
    }

    pub fn is_asked(&self) -> bool {
        self.asked.is_some()
    }

    /// The queue pair that it begins at is this one.
    pub fn begins_at(&self, queue_pair: u32) -> bool {
        self.sender == Some(queue_pair)
    }

    /// The first packet that the receiver does not have, by an answer of its.
    fn expected(header: &RoceHeader) -> Option<Psn> {
        let number = Psn::new(header.bth.psn);
        Some(if header.aeth?.is_negative() { number } else { number.plus(1) })
    }

    /// Whether an answer may be to this connection, by what it says.
    fn fits(&self, header: &RoceHeader) -> bool {
        let oldest = if self.is_far { Psn::new(self.received.number().wrapping_sub(NEAR as u32)) } else { self.identity.first };
        Self::expected(header).is_some_and(|expected| expected.since(oldest) >= 0 && expected.since(self.sent) <= 0)
    }

    /// Whether an answer may be to this connection of which nobody knows where it begins.
    pub fn may_begin_at(&self, header: &RoceHeader) -> bool {
        self.sender.is_none() && !self.foreign.contains(&header.bth.queue_pair) && (self.fits(header) || self.has_nothing_yet(header))
    }

    /// Whether an answer is that of a card which has had nothing, to a question. One whose queue pair was used before may have any number.
    fn has_nothing_yet(&self, header: &RoceHeader) -> bool {
        let is_plain = header.aeth.is_some_and(|aeth| !aeth.is_negative() && aeth.messages == 0);
        is_plain && self.questions > 0 && (Psn::new(header.bth.psn) == NOTHING_YET || !self.fits(header))
    }

    /// Whether an answer that says nothing new was asked for by the switch alone.
    pub fn takes_echo(&mut self, header: &RoceHeader) -> bool {
        let is_positive = header.aeth.is_some_and(|aeth| !aeth.is_negative());
        let is_echo = self.questions > 0 && !self.is_asked() && is_positive && Self::expected(header) == Some(self.received);
        self.questions -= u32::from(is_echo);
        is_echo
    }

    /// A packet of the receiver to its sender that acknowledges something, or not. `None` where that is about another connection.
    pub fn answer(&mut self, header: &RoceHeader, learns: Learns) -> Option<Answer> {
        let (aeth, expected) = (header.aeth?, Self::expected(header)?);
        let to = header.bth.queue_pair;
        if self.foreign.contains(&to) || header.envelope.virtual_lans() != self.identity.lans {
            return None;
        }
        if self.has_nothing_yet(header) && learns != Learns::Nothing && self.sender.is_none_or(|sender| sender == to || self.is_asked()) {
            return Some(self.nothing_yet(header, learns));
        }
        if !self.fits(header) {
            if self.sender != Some(to) && self.foreign.len() < FOREIGN_MAX {
                self.foreign.push(to);
            }
            return None;
        }
        // Who begins anew may do so by another queue pair.
        let may_differ = self.sender.is_none() || self.is_first(expected) && (self.is_asked() || self.is_fresh);
        if self.sender != Some(to) && (!may_differ || learns != Learns::Origin) {
            return None;
        }
        self.sender = Some(to);
        self.messages = aeth.messages;
        if expected.since(self.received) > 0 {
            self.questions = 0;
        }
        Some(Answer { expected, fatal: aeth.is_fatal().then_some(aeth.syndrome), is_echo: self.takes_echo(header) })
    }

    /// The answer of a card that has had nothing. By another number than Linux's it may be one in another connection, and says only that
    /// somebody is there.
    fn nothing_yet(&mut self, header: &RoceHeader, learns: Learns) -> Answer {
        let to = header.bth.queue_pair;
        let is_certain = Psn::new(header.bth.psn) == NOTHING_YET && (self.sender == Some(to) || learns == Learns::Origin);
        self.questions -= 1;
        if is_certain {
            (self.sender, self.messages) = (Some(to), 0);
        }
        Answer { expected: if is_certain { self.identity.first } else { self.received }, fatal: None, is_echo: true }
    }

    fn is_first(&self, expected: Psn) -> bool {
        expected == self.identity.first && !self.is_far
    }

    /// Takes an answer in. `alone`: no other connection is in its place.
    pub fn take(&mut self, answer: Answer, alone: bool) -> Outcome {
        let was_received = self.is_received;
        if answer.expected.since(self.received) > 0 {
            self.received = answer.expected;
            self.is_received = true;
            self.is_doubtful = false;
            self.is_far |= self.received.since(self.identity.first) >= NEAR;
        }
        if let Some(ending) = &mut self.ending {
            ending.is_confirmed |= answer.fatal.is_some();
        }
        let is_first = self.is_first(answer.expected) && answer.fatal.is_none();
        // The receiver of a connection that was over before it had anything waits for the first packet as one does that begins anew. With
        // others' in its place it stays over, or two jobs with one number would end each other for ever.
        let begins = is_first && (was_received || self.ending.is_some_and(|ending| ending.is_confirmed || !ending.is_told && alone));
        self.is_fresh |= begins;
        match self.asked.take() {
            Some((_, frame)) if is_first && self.is_fresh => Outcome::Anew(frame),
            Some(_) if is_first && self.ending.is_none() => Outcome::Doubtful,
            _ => Outcome::Nothing,
        }
    }

    /// The sum of a packet is there.
    pub fn note_summed(&mut self, psn: Psn) {
        self.has_sums = true;
        if psn.plus(1).since(self.summed) > 0 {
            self.summed = psn.plus(1);
        }
    }

    /// Something has moved.
    pub fn on_moved(&mut self, now: Instant) {
        (self.moved, self.prods, self.is_prodded) = (now, 0, false);
    }

    /// Whether its sender has sent what has not come, or its receiver has not acknowledged what it was sent. Whoever only waits for others lacks
    /// nothing, so that his card's patience stays what it is.
    fn lacks(&self) -> bool {
        self.ending.is_none() && !self.is_asked() && (self.whole.since(self.sent) < 0 || self.received.since(self.summed) < 0)
    }

    /// When its receiver should be asked what it has.
    pub fn due(&self) -> Option<Instant> {
        let may_be = self.lacks() && self.prods < SENT_BACK_MAX;
        may_be.then(|| self.moved + Duration::from_ps(PROD.as_ps() << self.prods))
    }

    /// Whether its receiver is to be asked now.
    pub fn prod(&mut self, now: Instant) -> bool {
        let is_due = self.due().is_some_and(|due| now >= due);
        self.prods += u32::from(is_due);
        self.is_prodded |= is_due;
        is_due
    }

    /// Its receiver has answered what it already had, behind all that it was sent: whether its sender is to be sent back. A card that is only slow
    /// has not answered yet.
    pub fn is_stuck(&mut self) -> bool {
        std::mem::take(&mut self.is_prodded) && self.lacks()
    }

    /// Sends the sender back, in the receiver's name, to what that waits for. `false` where nobody knows its queue pair.
    pub fn send_back(&self, out: &mut Vec<u8>) -> bool {
        self.respond(Aeth::NAK_SEQUENCE, self.received, out)
    }

    /// Acknowledges, in the receiver's name, what it has. Linux's RoCE does not go back twice unless something was acknowledged in between; that
    /// it is asked to go back to a later packet does not count.
    pub fn acknowledge(&self, out: &mut Vec<u8>) -> bool {
        self.respond(Aeth::ACK, self.received.before(), out)
    }

    /// Asks the receiver what it waits for.
    pub fn question(&mut self, out: &mut Vec<u8>) {
        self.questions = (self.questions + 1).min(QUESTIONS_OPEN_MAX);
        let psn = if self.is_far { self.received } else { self.identity.first };
        self.write(psn.before(), out);
    }

    /// A write of four bytes that has none of them.
    fn write(&self, psn: Psn, out: &mut Vec<u8>) {
        let bth = Bth { opcode: opcode::WRITE_ONLY, ack_request: true, pad: 0, variant: 0, psn: psn.number(), ..self.bth };
        let reth = Reth { address: 0, key: 0, length: 4 };
        let at = self.head.len();
        out.clear();
        out.extend_from_slice(&self.head);
        out.resize(at + BTH + RETH + ICRC, 0);
        bth.emit(&mut out[at..]);
        reth.emit(&mut out[at + BTH..]);
        roce::finish(out);
    }

    /// Tells the receiver that it is over: it has to refuse this one, and says so to the sender.
    fn end_receiver(&self, out: &mut Vec<u8>) {
        self.write(self.received, out);
    }

    /// Tells the sender that it is over, in the receiver's name; it has all before the number that is refused. `false` where nobody has
    /// said yet at which queue pair the sender is.
    fn end_sender(&self, out: &mut Vec<u8>) -> bool {
        self.respond(Aeth::NAK_OPERATION, self.received, out)
    }

    /// An answer of the receiver.
    fn respond(&self, syndrome: u8, psn: Psn, out: &mut Vec<u8>) -> bool {
        let Some(sender) = self.sender else { return false };
        let psn = psn.number();
        let bth = Bth {
            opcode: opcode::ACKNOWLEDGE,
            queue_pair: sender,
            ack_request: false,
            pad: 0,
            variant: 0,
            events: self.bth.events & 0x40,
            psn,
            ..self.bth
        };
        let at = self.head.len();
        out.clear();
        out.extend_from_slice(&self.head);
        out.resize(at + BTH + roce::AETH + ICRC, 0);
        bth.emit(&mut out[at..]);
        Aeth { syndrome, messages: self.messages }.emit(&mut out[at + BTH..]);
        roce::turn(out);
        roce::finish(out);
        true
    }

    /// What is to be sent on a line that is over or of which the receiver is asked: to be called a few times a second.
    pub fn on_tick(&mut self, buffer: &mut Vec<u8>, mut emit: impl FnMut(usize, &[u8])) {
        if let Some((times, _)) = &mut self.asked {
            *times += 1;
            if *times > QUESTIONS_MAX {
                self.asked = None;
            } else {
                self.question(buffer);
                emit(self.port, buffer);
            }
        }
        let Some(ending) = &mut self.ending else { return };
        ending.quiet += 1;
        if !ending.nags && ending.rounds >= TOLD_ROUNDS {
            return;
        }
        let is_due = ending.grace == 0;
        ending.grace -= u32::from(!is_due && ending.nags);
        ending.quiet = if ending.nags { 0 } else { ending.quiet };
        ending.nags = false;
        if !is_due || !ending.is_told && self.asked.is_some() {
            return;
        }
        ending.rounds += 1;
        self.tell(buffer, &mut emit);
    }

    /// Whether its sender is gone, or knows. What was only followed by another run is remembered longer.
    pub fn is_forgotten(&self) -> bool {
        self.ending.is_some_and(|ending| ending.is_told && ending.quiet >= FORGOTTEN)
    }

    /// Both ends are told that it is over.
    pub fn tell(&self, buffer: &mut Vec<u8>, emit: &mut impl FnMut(usize, &[u8])) {
        if self.ending.is_none_or(|ending| !ending.is_confirmed) {
            self.end_receiver(buffer);
            emit(self.port, buffer);
        }
        if self.end_sender(buffer) {
            // It goes by the way that the receiver's own would go.
            emit(usize::MAX, buffer);
        }
    }

    /// An answer says what the receiver waits for, while it is being told that it is over: it is told once more, by the right number.
    pub fn tell_again(&self, buffer: &mut Vec<u8>, emit: &mut impl FnMut(usize, &[u8])) {
        let is_told =
            self.ending.is_some_and(|ending| ending.rounds > 0 && ending.grace == 0 && (ending.is_told || ending.rounds > TOLD_ROUNDS));
        if is_told {
            self.tell(buffer, emit);
        }
    }
}
