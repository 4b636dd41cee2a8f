//! A switch of SHARP, for all jobs whose trees pass it: what each has of its operations, and each one's part of its tree.

use fanin_core::{Body, DropReason, Egress, Event, Ingress, Instant, JobId, Node, Payload, PortId, PortSet, RetransmitReason, Suspect, Tx};
use fanin_wire::sharp::{SharpHeader, Want};
use fanin_wire::tree::TreeHeader;

use super::config::{Mode, SharpJob, Streams};
use super::planted::Planted;
use super::questions::{Known, Questions, Standing};
use crate::shared::inner::Wrapped;
use crate::shared::jobs::JobTable;
use crate::shared::state::node_state;
use crate::shared::trees::{Reduction, TreeRole};

/// Data of a job's tree on its way out. A node that jobs share is not called back when there is room, so it does not wait for any.
type Data<'a, T> = Wrapped<'a, T, SharpHeader, false>;

/// A job at the switch.
struct Member<P: Payload + ?Sized> {
    mode: Mode,
    /// Whether it has its part here.
    holds: bool,
    role: TreeRole,
    /// The ports of all children.
    ports: PortSet,
    questions: Questions,
    resend_gap: fanin_core::Duration,
    reduction: Reduction<P>,
}

node_state!(Member { mode, holds, role, ports, questions, resend_gap, reduction });

impl<P: Payload + ?Sized> Member<P> {
    fn new(job: SharpJob<P::Op>) -> Self {
        let role = job.tree.trees.first().cloned().flatten().expect("the job's tree passes the switch");
        Member {
            mode: job.mode,
            holds: false,
            ports: role.children.iter().map(|child| child.port).collect(),
            questions: Questions::new(role.children.len()),
            resend_gap: job.tree.resend_gap,
            role,
            reduction: Reduction::new(job.tree),
        }
    }

    fn child(&self, port: PortId) -> Option<u16> {
        self.role.children.iter().position(|child| child.port == port).map(|child| child as u16)
    }

    /// How many of the switch's operations it has.
    fn operations(&self) -> u64 {
        match self.mode {
            Mode::LowLatency { quota } if self.holds => u64::from(quota),
            _ => 0,
        }
    }

    fn streams(&self) -> bool {
        self.holds && self.mode == Mode::Streaming
    }

    /// Whether its tree has a port.
    fn has_port(&self, port: PortId) -> bool {
        self.ports.contains(port) || self.role.parent.is_some_and(|parent| parent.port == port)
    }

    /// Whether its tree has a port that another one has.
    fn meets(&self, other: &Self) -> bool {
        let parent = self.role.parent.map(|parent| parent.port);
        self.role.children.iter().map(|child| child.port).chain(parent).any(|port| other.has_port(port))
    }
}

/// A switch of SHARP.
pub struct SharpSwitch<P: Payload + ?Sized> {
    /// How many operations may be under way, of all jobs together.
    operations: u32,
    /// What a job that streams has for itself.
    streams: Streams,
    jobs: JobTable<Member<P>>,
    planted: Planted,
}

node_state!(SharpSwitch { operations, streams, jobs, planted });

impl<P: Payload + ?Sized> SharpSwitch<P> {
    /// A switch that has so many operations under way at most, and jobs that stream with so much for themselves.
    pub fn new(operations: u32, streams: Streams) -> Self {
        SharpSwitch { operations, streams, jobs: JobTable::default(), planted: Planted::NONE }
    }

    /// A job comes, at any time, with nothing yet. One of the same number is replaced.
    ///
    /// # Panics
    /// As [`Reduction::new`], and where the job's tree does not pass the switch.
    pub fn admit(&mut self, job: SharpJob<P::Op>) {
        self.jobs.insert(job.job(), Member::new(job));
    }

    /// How many operations may be under way.
    pub fn operations(&self) -> u32 {
        self.operations
    }

    /// How many of them jobs have.
    pub fn operations_given(&self) -> u64 {
        self.jobs.iter().map(|(_, member)| member.operations()).sum()
    }

    /// What a job that streams has for itself.
    pub fn streams(&self) -> Streams {
        self.streams
    }

    /// How many jobs stream, and whether two of them have what only one may have.
    pub fn streaming_jobs(&self) -> (usize, bool) {
        let streaming: Vec<&Member<P>> = self.jobs.iter().map(|(_, member)| member).filter(|member| member.streams()).collect();
        let clash = |(place, member): (usize, &&Member<P>)| streaming[..place].iter().any(|other| self.excludes(member, other));
        (streaming.len(), streaming.iter().enumerate().any(clash))
    }

    /// Whether one of two jobs that stream keeps the other from it.
    fn excludes(&self, one: &Member<P>, other: &Member<P>) -> bool {
        self.streams == Streams::Switch || one.meets(other)
    }

    /// Whether a job has its part here.
    pub fn is_held_by(&self, job: JobId) -> bool {
        self.jobs.get(job).is_some_and(|member| member.holds)
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
        if let Planted::Tree(bug) = bug {
            self.jobs.iter_mut().for_each(|member| member.reduction.plant(bug));
        }
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        for member in self.jobs.iter_mut() {
            member.questions.rebase(now);
            member.reduction.rebase(now);
        }
    }

    /// Takes the part of a job, which has none. False where there is none to give.
    fn take(&mut self, place: usize) -> bool {
        let has_one = match self.jobs.at(place).mode {
            Mode::LowLatency { quota } => self.operations_given() + u64::from(quota) <= u64::from(self.operations),
            Mode::Streaming => {
                let member = self.jobs.at(place);
                !self.jobs.iter().any(|(_, other)| other.streams() && self.excludes(member, other))
            }
        };
        let gives = has_one || self.planted.gives_twice();
        self.jobs.at_mut(place).holds |= gives;
        gives
    }
}

fn drop_packet<P: Payload + ?Sized, T: Tx<SharpHeader, P>>(tx: &mut T, reason: DropReason) {
    tx.note(Event::Dropped(reason));
}

/// Of a job that is not here. One that is over may still wait to hear that nothing is held for it.
#[cold]
fn on_stranger<P: Payload + ?Sized, T: Tx<SharpHeader, P>>(port: PortId, header: &SharpHeader, tx: &mut T) {
    match *header {
        SharpHeader::Ask { number, want: Want::GiveBack, .. } => {
            tx.send(Egress::Port(port), &SharpHeader::Answer { number, refused: false }, Body::Empty);
        }
        _ => drop_packet(tx, DropReason::NotAMember),
    }
}

/// A question on its way up.
#[derive(Clone, Copy)]
struct Ask {
    number: u32,
    want: Want,
    refused: bool,
    attempt: u8,
}

/// Questions and answers.
impl<P: Payload + ?Sized> SharpSwitch<P> {
    fn on_ask<T: Tx<SharpHeader, P>>(&mut self, now: Instant, place: usize, port: PortId, ask: Ask, tx: &mut T) {
        let member = self.jobs.at_mut(place);
        let Some(child) = member.child(port) else { return drop_packet(tx, DropReason::NotAMember) };
        match member.questions.find(ask.number, ask.want) {
            Known::Stale => return drop_packet(tx, DropReason::Stale),
            Known::TooNew => return drop_packet(tx, DropReason::OutsideWindow),
            Known::Same | Known::Begun => {}
        }
        let question = member.questions.at(ask.number);
        if question.want != ask.want {
            return drop_packet(tx, DropReason::Mismatch);
        }
        if question.has_asked(child) {
            return self.on_repeat(now, place, port, ask, tx);
        }
        question.refused |= ask.refused;
        if question.mark(child) == 0 {
            self.complete(now, place, ask.number, tx);
        }
    }

    /// All children have asked: takes what they want, or gives it back, and asks the parent.
    fn complete<T: Tx<SharpHeader, P>>(&mut self, now: Instant, place: usize, number: u32, tx: &mut T) {
        let member = self.jobs.at_mut(place);
        let question = member.questions.at(number);
        let (want, refused_below) = (question.want, question.refused);
        let refused = match want {
            Want::GiveBack => {
                member.holds = false;
                false
            }
            Want::Take => refused_below && !self.planted.forgets_refusal() || !self.take(place),
        };
        let member = self.jobs.at_mut(place);
        member.questions.at(number).refused = refused;
        if member.role.parent.is_some() { self.ask_parent(now, place, number, 0, tx) } else { self.answer(place, number, tx) }
    }

    fn ask_parent<T: Tx<SharpHeader, P>>(&mut self, now: Instant, place: usize, number: u32, attempt: u8, tx: &mut T) {
        let member = self.jobs.at_mut(place);
        let Some(parent) = member.role.parent else { return };
        let question = member.questions.at(number);
        (question.standing, question.asked_at) = (Standing::Sent, now);
        let header = SharpHeader::Ask { number, want: question.want, refused: question.refused, attempt };
        tx.send(Egress::Port(parent.port), &header, Body::Empty);
    }

    /// The answer is known: where it is a refusal, what was taken is given back.
    fn answer<T: Tx<SharpHeader, P>>(&mut self, place: usize, number: u32, tx: &mut T) {
        let keeps = self.planted.keeps_refused();
        let member = self.jobs.at_mut(place);
        let question = member.questions.at(number);
        question.standing = Standing::Answered;
        let refused = question.refused;
        if refused && question.want == Want::Take && !keeps {
            member.holds = false;
        }
        tx.send(Egress::Ports(&member.ports), &SharpHeader::Answer { number, refused }, Body::Empty);
    }

    /// A child asks again.
    fn on_repeat<T: Tx<SharpHeader, P>>(&mut self, now: Instant, place: usize, port: PortId, ask: Ask, tx: &mut T) {
        if ask.attempt == 0 {
            return drop_packet(tx, DropReason::Duplicate);
        }
        let number = ask.number;
        let member = self.jobs.at_mut(place);
        let gap = member.resend_gap;
        let question = member.questions.at(number);
        let missing = |suspect| SharpHeader::Missing { number, suspect };
        match question.standing {
            Standing::Answered => {
                tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: number });
                tx.send(Egress::Port(port), &SharpHeader::Answer { number, refused: question.refused }, Body::Empty);
            }
            Standing::Sent => {
                if ask.attempt >= 2 && question.repeated && !question.parent_heard {
                    // The parent has been asked before and said nothing.
                    let suspect = member.role.parent.map_or(Suspect::Unknown, |parent| Suspect::Switch(parent.node));
                    tx.send(Egress::Port(port), &missing(suspect), Body::Empty);
                }
                let question = self.jobs.at_mut(place).questions.at(number);
                if now.since(question.asked_at) < gap {
                    return drop_packet(tx, DropReason::InProgress);
                }
                question.repeated = true;
                tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: number });
                self.ask_parent(now, place, number, ask.attempt, tx);
            }
            Standing::Gathering | Standing::Idle => {
                drop_packet(tx, DropReason::InProgress);
                if ask.attempt >= 2 {
                    let word = question.word.filter(|(child, _)| !question.has_asked(*child)).map(|(_, suspect)| suspect);
                    let first = question.first_missing(member.role.children.len());
                    let suspect = word.or(first.map(|child| member.role.children[child].missing())).unwrap_or(Suspect::Unknown);
                    tx.send(Egress::Port(port), &missing(suspect), Body::Empty);
                    self.tell_parent(now, place, number, suspect, tx);
                }
            }
        }
    }

    /// What the parent says of a question; `None`, and the reason, where it cannot be about one that it was asked.
    fn asked_of(&mut self, place: usize, port: PortId, number: u32) -> Result<(), DropReason> {
        let member = self.jobs.at_mut(place);
        if member.role.parent.is_none_or(|parent| parent.port != port) {
            return Err(DropReason::NotAMember);
        }
        let question = member.questions.at(number);
        match question.standing {
            Standing::Sent if question.number == number => Ok(()),
            Standing::Answered if question.number == number => Err(DropReason::Duplicate),
            _ => Err(DropReason::Stale),
        }
    }

    fn on_answer<T: Tx<SharpHeader, P>>(&mut self, place: usize, port: PortId, (number, refused): (u32, bool), tx: &mut T) {
        if let Err(reason) = self.asked_of(place, port, number) {
            return drop_packet(tx, reason);
        }
        self.jobs.at_mut(place).questions.at(number).refused = refused;
        self.answer(place, number, tx);
    }

    /// Who has not asked here, now and then, for those who wait elsewhere in the tree.
    fn tell_parent<T: Tx<SharpHeader, P>>(&mut self, now: Instant, place: usize, number: u32, suspect: Suspect, tx: &mut T) {
        let member = self.jobs.at_mut(place);
        let gap = member.resend_gap;
        let question = member.questions.at(number);
        if let Some(parent) = member.role.parent
            && (question.asked_at == Instant::ZERO || now.since(question.asked_at) >= gap)
        {
            question.asked_at = now;
            tx.send(Egress::Port(parent.port), &SharpHeader::Missing { number, suspect }, Body::Empty);
        }
    }

    /// A child says who has not asked below it: its siblings want to know, and who waits behind the parent.
    fn on_missing_below<T: Tx<SharpHeader, P>>(
        &mut self,
        now: Instant,
        place: usize,
        child: u16,
        (number, suspect): (u32, Suspect),
        tx: &mut T,
    ) {
        let member = self.jobs.at_mut(place);
        let header = SharpHeader::Missing { number, suspect };
        if let Some(parent) = member.role.parent.filter(|_| member.questions.is_to_come(number)) {
            // Nobody has asked here yet.
            return tx.send(Egress::Port(parent.port), &header, Body::Empty);
        }
        let question = member.questions.at(number);
        if question.number != number || question.standing != Standing::Gathering || question.has_asked(child) {
            return drop_packet(tx, DropReason::Stale);
        }
        question.word = Some((child, suspect));
        tx.send(Egress::Ports(&member.ports), &header, Body::Empty);
        self.tell_parent(now, place, number, suspect, tx);
    }

    fn on_missing<T: Tx<SharpHeader, P>>(
        &mut self,
        now: Instant,
        place: usize,
        port: PortId,
        (number, suspect): (u32, Suspect),
        tx: &mut T,
    ) {
        if let Some(child) = self.jobs.at_mut(place).child(port) {
            return self.on_missing_below(now, place, child, (number, suspect), tx);
        }
        if let Err(reason) = self.asked_of(place, port, number) {
            return drop_packet(tx, reason);
        }
        let member = self.jobs.at_mut(place);
        member.questions.at(number).parent_heard = true;
        tx.send(Egress::Ports(&member.ports), &SharpHeader::Missing { number, suspect }, Body::Empty);
    }

    /// Data of the job's tree; only a job that has its part here may send contributions.
    fn on_data<T: Tx<SharpHeader, P>>(
        &mut self,
        now: Instant,
        place: usize,
        (from, header): (Ingress, &TreeHeader),
        payload: &P,
        tx: &mut T,
    ) {
        let member = self.jobs.at_mut(place);
        if !member.holds && matches!(header, TreeHeader::Contribution { .. }) {
            return drop_packet(tx, DropReason::NoSlot);
        }
        member.reduction.on_packet(now, from, header, payload, &mut Data::new(tx));
    }
}

impl<P: Payload + ?Sized> Node<P> for SharpSwitch<P> {
    type Header = SharpHeader;

    #[inline]
    fn on_packet<T: Tx<SharpHeader, P>>(&mut self, now: Instant, from: Ingress, header: &SharpHeader, payload: &P, tx: &mut T) {
        let Some(place) = self.jobs.place(from.job) else { return on_stranger(from.port, header, tx) };
        match *header {
            SharpHeader::Data(ref data) => self.on_data(now, place, (from, data), payload, tx),
            SharpHeader::Ask { number, want, refused, attempt } => {
                self.on_ask(now, place, from.port, Ask { number, want, refused, attempt }, tx);
            }
            SharpHeader::Answer { number, refused } => self.on_answer(place, from.port, (number, refused), tx),
            SharpHeader::Missing { number, suspect } => self.on_missing(now, place, from.port, (number, suspect), tx),
            SharpHeader::Host(_) => drop_packet(tx, DropReason::NotAMember),
        }
    }

    /// `baselines 5`: a switch has no timeout.
    fn on_timeout<T: Tx<SharpHeader, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_job_end<T: Tx<SharpHeader, P>>(&mut self, _now: Instant, job: JobId, tx: &mut T) {
        if let Some(mut member) = self.jobs.remove(job) {
            member.reduction.reclaim::<TreeHeader, _>(&mut Data::new(tx));
        }
    }
}
