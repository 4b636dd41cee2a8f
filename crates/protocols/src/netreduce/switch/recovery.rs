//! Recovery by the accelerator ([`Recovery::Switch`](super::Recovery)): what is lost goes once more on the link that lost it. The rules are in
//! the [module's documentation](super).

use fanin_core::{Body, DropReason, Duration, Egress, Event, Ingress, Instant, Payload, Rank, RetransmitReason, Role, Route, Suspect, Tx};
use fanin_wire::netreduce::{NetReduceHeader, PacketNumber};

use super::{NONE, NetReduceSwitch};
use crate::netreduce::config::Recovery;
use crate::netreduce::connections::Place;
use crate::netreduce::halves::{Halves, Incoming};
use crate::shared::connection::{Expiry, Psn, Requester, asks_for_ack};
use crate::shared::serial::newer;
use crate::shared::slots::SlotState;

/// An answer of a receiver's card.
#[derive(Clone, Copy)]
pub(in crate::netreduce) struct Answer {
    pub connection: u16,
    pub psn: Psn,
    pub messages: u32,
    pub is_nak: bool,
}

impl<P: Payload + ?Sized> NetReduceSwitch<P> {
    #[inline]
    pub(in crate::netreduce) fn recovers(&self) -> bool {
        self.variants.recovery == Recovery::Switch
    }

    /// The sum of a place, if it is held.
    #[inline]
    fn has_sum(&self, place: Place) -> bool {
        let slot = self.slots.peek(self.index(place));
        slot.number == place.message && slot.state == SlotState::Done
    }

    /// A timer may have to be looked at earlier than was planned.
    #[inline]
    fn wake(&mut self, now: Instant, number: usize) {
        let at = self.halves[number].timer_at(self.answers.rto_min).map(|at| at.max(now));
        self.wake_at = [self.wake_at, at].into_iter().flatten().min();
    }

    /// The place behind another one, where the connection's message is known.
    #[inline]
    fn after(&self, number: usize, place: Place) -> Option<Place> {
        let packets = self.connections[number].message(place.message)?.packets;
        let is_last = place.offset + 1 >= packets;
        Some(if is_last {
            Place { message: place.message.wrapping_add(1), offset: 0 }
        } else {
            Place { message: place.message, offset: place.offset + 1 }
        })
    }
}

/// From the accelerator to a receiver.
impl<P: Payload + ?Sized> NetReduceSwitch<P> {
    /// Hands on all sums that a connection has in order, and sends what its receiver may be sent.
    #[inline]
    pub(in crate::netreduce) fn pump<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, number: usize, tx: &mut T) {
        let Some(to) = self.to_end(&self.connections[number]) else { return };
        let was_behind = self.halves[number].outgoing.behind() > 0;
        while self.has_sum(self.halves[number].outgoing.posted) {
            let place = self.halves[number].outgoing.posted;
            // Where the notice of a first packet has not come, the connection waits for it (P14).
            let Some((entry, after)) = self.connections[number].message(place.message).copied().zip(self.after(number, place)) else {
                break;
            };
            let (rank, outgoing) = (self.connections[number].config.rank, &mut self.halves[number].outgoing);
            let requester = outgoing.requester.get_or_insert_with(|| {
                outgoing.next = (place, entry.psn);
                Requester::new(rank, entry.psn, &self.answers, None).paced()
            });
            requester.post(1);
            outgoing.posted = after;
        }
        let comes_alone = !was_behind && self.halves[number].outgoing.behind() == 1;
        while let Some((psn, place)) = self.next_held(now, number) {
            let spent = if comes_alone { Some(false) } else { self.halves[number].outgoing.spend() };
            let Some(must_ask) = spent else { break };
            self.send(now, number, to, (psn, place, must_ask), tx);
        }
        if self.halves[number].outgoing.behind() == 0 {
            self.halves[number].outgoing.begin_anew();
        }
        self.wake(now, number);
    }

    /// The packet of a connection that goes next, and its place. Those whose sums are not held any more have come: who sends message m has all up
    /// to m-N.
    #[inline]
    fn next_held(&mut self, now: Instant, number: usize) -> Option<(Psn, Place)> {
        loop {
            let outgoing = &self.halves[number].outgoing;
            let psn = outgoing.requester.as_ref()?.next_to_send()?;
            let (next, at) = outgoing.next;
            let place = if at == psn { Some(next) } else { self.connections[number].find(psn, self.variants.lookup) };
            if let Some(place) = place.filter(|place| self.has_sum(*place) && self.connections[number].message(place.message).is_some()) {
                return Some((psn, place));
            }
            self.halves[number].outgoing.requester.as_mut()?.on_ack(now, psn)?;
        }
    }

    /// Sends it.
    #[inline]
    fn send<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        number: usize,
        to: Egress<'_>,
        (psn, place, must_ask): (Psn, Place, bool),
        tx: &mut T,
    ) {
        let known = self.after(number, place).zip(self.connections[number].message(place.message).copied());
        let outgoing = &mut self.halves[number].outgoing;
        let (Some((after, entry)), Some(requester)) = (known, &mut outgoing.requester) else { return };
        let sending = requester.sent(now);
        outgoing.next = (after, psn.plus(1));
        let asks = must_ask || sending.again || asks_for_ack(psn, place.offset + 1 == entry.packets);
        let (rank, index) = (self.connections[number].config.rank, self.index(place));
        let header = entry.packet(rank, self.ring(), place.offset, PacketNumber::new(psn.number(), asks).summed());
        // A mark is for the packet that took the contribution's place, not for copies.
        let header = if sending.again { header } else { self.with_mark(header, rank, index) };
        if sending.again {
            tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: place.message });
        }
        tx.send(to, &header, Body::Acc(&self.slots.peek(index).acc));
    }

    /// `netreduce 5.6`: an answer passes. What the receiver has is told its sender; what it lacks is here.
    pub(in crate::netreduce) fn on_answer<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, from: Ingress, answer: Answer, tx: &mut T) {
        let Some(number) = self.connection(answer.connection).map(usize::from).filter(|_| self.recovers()) else {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        };
        let connection = self.connections[number].config;
        let own = match (connection.ends_at, connection.through, connection.beyond) {
            (Some(_), Some(worker), _) => worker == from.source,
            (Some(port), None, _) => port == from.port,
            (None, _, Some(beyond)) => beyond.switch == from.source && from.source.role == Role::Switch && !answer.is_nak,
            (None, _, None) => false,
        };
        if !own {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        if connection.ends_at.is_none() {
            let (halves, upto) = (&mut self.halves[number], answer.psn.plus(1));
            if halves.acknowledged.is_none_or(|known| upto.since(known) > 0) {
                (halves.acknowledged, halves.messages) = (Some(upto), answer.messages);
            }
            return self.answer_sender(number, answer, tx);
        }
        if let Some(child) = self.child_from(from) {
            self.seen[usize::from(child)].on_heard(now);
        }
        let Halves { outgoing, messages, .. } = &mut self.halves[number];
        let Some(requester) = &mut outgoing.requester else { return tx.note(Event::Dropped(DropReason::OutsideWindow)) };
        let count = if answer.is_nak { requester.on_nak(now, answer.psn) } else { requester.on_ack(now, answer.psn) };
        let Some(count) = count else { return tx.note(Event::Dropped(DropReason::OutsideWindow)) };
        *messages = answer.messages;
        if answer.is_nak {
            outgoing.begin_anew();
            if count > 0 {
                self.answer_sender(number, Answer { psn: answer.psn.before(), is_nak: false, ..answer }, tx);
            }
            return self.pump(now, number, tx);
        }
        outgoing.on_acknowledged(count);
        self.answer_sender(number, answer, tx);
        if self.halves[number].outgoing.behind() > 0 {
            self.pump(now, number, tx);
        }
    }

    /// Answers the sender of a connection, or lets an answer go on to it.
    fn answer_sender<T: Tx<NetReduceHeader, P>>(&mut self, number: usize, answer: Answer, tx: &mut T) {
        let connection = self.connections[number].config;
        let to = match (connection.behind, self.child_of_rank(connection.rank)) {
            (Some(switch), _) => Egress::Route(Route::direct(switch, self.flow)),
            (None, Some(child)) => self.to_child(child),
            (None, None) => return,
        };
        let Answer { connection, psn, messages, is_nak } = answer;
        let psn = psn.number();
        let header =
            if is_nak { NetReduceHeader::Nak { psn, messages, connection } } else { NetReduceHeader::Ack { psn, messages, connection } };
        tx.send(to, &header, Body::Empty);
    }
}

/// From a sender to the accelerator.
impl<P: Payload + ?Sized> NetReduceSwitch<P> {
    /// A packet of a connection that begins here has come, and been taken, or not: sends its card back where it shows that one is lost.
    pub(in crate::netreduce) fn watch_sender<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        (child, number): (u16, u16),
        psn: Psn,
        tx: &mut T,
    ) {
        let number = usize::from(number);
        if self.halves[number].incoming.is_none() && !self.meet(number, psn) {
            return;
        }
        let Some(incoming) = &mut self.halves[number].incoming else { return };
        let shows_gap = incoming.on_packet(now, psn);
        self.advance(child, number);
        if shows_gap {
            self.send_back(number, tx);
        }
        if self.halves[number].incoming.as_ref().is_some_and(Incoming::has_gap) {
            self.wake(now, number);
        }
    }

    /// The first packet of the job's first message: a connection begins with it. `false` where it is not that.
    fn meet(&mut self, number: usize, psn: Psn) -> bool {
        let begins = self.connections[number].message(self.first_message).is_some_and(|entry| entry.psn == psn);
        if begins {
            let halves = &mut self.halves[number];
            (halves.incoming, halves.acknowledged) = (Some(Incoming::new(psn)), halves.acknowledged.or(Some(psn)));
        }
        begins
    }

    /// Goes over what has come.
    fn advance(&mut self, child: u16, number: usize) {
        while let Some(expected) =
            self.halves[number].incoming.as_ref().filter(|incoming| incoming.has_gap()).map(|incoming| incoming.expected)
            && self.has_contributed(child, number, expected)
            && let Some(incoming) = &mut self.halves[number].incoming
        {
            incoming.advance();
        }
    }

    /// Whether a packet is held, or was when there was a sum of it.
    fn has_contributed(&self, child: u16, number: usize, psn: Psn) -> bool {
        let Some(place) = self.connections[number].find(psn, self.variants.lookup) else { return false };
        let index = self.index(place);
        let slot = self.slots.peek(index);
        if slot.number != place.message {
            return newer(slot.number, place.message);
        }
        slot.state != SlotState::Aggregating || self.slots.has_arrived(index, child)
    }

    /// Tells the sender's card what its receiver lacks. Never more than the receiver has acknowledged: a card takes a report of a gap as an
    /// acknowledgement of all before it.
    fn send_back<T: Tx<NetReduceHeader, P>>(&mut self, number: usize, tx: &mut T) {
        let Some(psn) = self.halves[number].unacknowledged() else { return };
        let (connection, messages) = (self.connections[number].config.rank.0 as u16, self.halves[number].messages);
        self.answer_sender(number, Answer { connection, psn, messages, is_nak: true }, tx);
    }

    /// A packet came again whose sum is here. If its receiver has acknowledged it, its sender has not heard of that; otherwise it is under way.
    /// Where that is another switch's business, it is reminded of the first packet that is not acknowledged, by a notice.
    pub(in crate::netreduce) fn on_repeated<T: Tx<NetReduceHeader, P>>(
        &mut self,
        connection: u16,
        at: PacketNumber,
        place: Place,
        tx: &mut T,
    ) {
        tx.note(Event::Dropped(DropReason::Duplicate));
        let number = usize::from(connection);
        let (config, messages) = (self.connections[number].config, self.halves[number].messages);
        let Some(first) = self.halves[number].unacknowledged() else { return };
        let behind_first = Psn::new(at.psn()).since(first);
        if behind_first < 0 && at.asks_for_ack() {
            let answer = Answer { connection: config.rank.0 as u16, psn: first.before(), messages, is_nak: false };
            self.answer_sender(number, answer, tx);
        } else if let (Some(beyond), Some(entry), 0) = (config.beyond, self.connections[number].message(place.message), behind_first) {
            let to = Egress::Route(Route::direct(beyond.switch, self.flow));
            tx.send(to, &entry.notice(config.rank, self.ring()), Body::Empty);
        }
    }
}

/// Between switches, and timers.
impl<P: Payload + ?Sized> NetReduceSwitch<P> {
    /// A sender that lives elsewhere waits for the acknowledgement of what it sends again: its switch is told what has been acknowledged, and the
    /// parent is asked for the sum that is missing here.
    pub(in crate::netreduce) fn on_reminded<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, number: usize, tx: &mut T) {
        let Halves { outgoing, messages, .. } = &self.halves[number];
        let place = outgoing.posted;
        if let Some(requester) = &outgoing.requester {
            let connection = self.connections[number].config.rank.0 as u16;
            let answer = Answer { connection, psn: requester.first().before(), messages: *messages, is_nak: false };
            self.answer_sender(number, answer, tx);
        }
        let index = self.index(place);
        let slot = self.slots.peek(index);
        let is_overdue = slot.number == place.message && slot.state == SlotState::Sent && now.since(slot.asked_at) >= self.gap_of_repairs();
        if is_overdue {
            self.repeat_up(now, place, index, tx);
        }
    }

    /// A sum has come from the parent for what went up later than what is waited for first: that, or its sum, is lost, or somebody is late. It goes
    /// up again, once in a round trip: the answer to what went up behind it must be there again.
    pub(in crate::netreduce) fn ask_for_gap<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, answered: Place, tx: &mut T) {
        let (answered_at, mut head) = (self.slots.peek(self.index(answered)).asked_at, self.head);
        while self.has_sum(head) || newer(self.slots.peek(self.index(head)).number, head.message) {
            let known = (0..self.connections.len()).find_map(|number| self.after(number, head));
            let Some(after) = known else { break };
            head = after;
        }
        self.head = head;
        let index = self.index(head);
        let slot = self.slots.peek(index);
        let is_overdue = slot.number == head.message && slot.state == SlotState::Sent && slot.asked_at < answered_at;
        if is_overdue {
            self.repeat_up(now, head, index, tx);
        }
    }

    /// Does what is due. An answer may have made a timeout shorter, so that what was not due is.
    pub(in crate::netreduce) fn on_timers<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        while self.aborted.is_none() && self.wake_at.is_some_and(|at| at <= now) {
            self.do_what_is_due(now, tx);
        }
    }

    fn do_what_is_due<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        for number in 0..self.halves.len() {
            if self.halves[number].timer_at(self.answers.rto_min).is_none_or(|at| now < at) {
                continue;
            }
            let timeout = self.halves[number].outgoing.requester.as_ref().map_or(self.answers.rto_min, Requester::timeout);
            let halves = &mut self.halves[number];
            if let Some(incoming) = halves.incoming.as_mut().filter(|incoming| incoming.report_at(timeout).is_some_and(|at| at <= now)) {
                incoming.on_reported(now);
                self.send_back(number, tx);
            }
            self.repeat_down(now, number, tx);
        }
        self.plan_wake();
    }

    /// The oldest packet to a receiver was not acknowledged in time. Whoever has not moved for the job's patience is given up, here as elsewhere.
    fn repeat_down<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, number: usize, tx: &mut T) {
        let Some(requester) = &mut self.halves[number].outgoing.requester else { return };
        match requester.on_timeout(now) {
            Expiry::Early | Expiry::Broken { .. } => {}
            Expiry::Again if now.since(requester.progress_at()) > self.patience => {}
            Expiry::Again => {
                self.halves[number].outgoing.begin_anew();
                self.pump(now, number, tx);
            }
        }
    }

    /// When timers are to be looked at next.
    pub(in crate::netreduce) fn plan_wake(&mut self) {
        let least = self.answers.rto_min;
        self.wake_at = self.halves.iter().filter_map(|halves| halves.timer_at(least)).min();
    }

    /// What is known to be missing is asked for at most once in this time: a switch knows sooner than a worker could.
    #[inline]
    pub(in crate::netreduce) fn gap_of_repairs(&self) -> Duration {
        self.resend_gap.min(self.answers.rto_min)
    }

    fn child_of_rank(&self, rank: Rank) -> Option<u16> {
        let child = self.child_of.get(rank.index()).copied().filter(|child| *child != NONE);
        child.filter(|child| matches!(self.children[usize::from(*child)].who, Suspect::Rank(_)))
    }
}
