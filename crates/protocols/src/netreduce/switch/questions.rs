//! Who is missing, as a switch knows it; who asks for that; and how a switch learns that it has lost its memory. The rules are in the
//! [module's documentation](super).

use fanin_core::{Body, DropReason, Egress, Event, Ingress, Instant, Payload, Suspect, Tx};
use fanin_wire::netreduce::NetReduceHeader;

use super::NetReduceSwitch;
use crate::netreduce::connections::Place;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;
use crate::shared::slots::SlotState;

/// What is known of the parent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(in crate::netreduce) struct Above {
    /// Since when it has left questions unanswered.
    asked_since: Option<Instant>,
    /// The message that it said it waits with, and for whom.
    word: Option<(u32, Suspect)>,
}

impl Above {
    /// Something has come from there.
    pub(in crate::netreduce) fn on_heard(&mut self) {
        self.asked_since = None;
    }

    /// Makes times relative to `now`.
    pub(in crate::netreduce) fn rebase(&mut self, now: Instant) {
        self.asked_since = self.asked_since.map(|at| rebased(at, now));
    }
}

/// Who is missing.
impl<P: Payload + ?Sized> NetReduceSwitch<P> {
    /// A child sends again what is held already: tells it, and the parent, who is missing.
    pub(in crate::netreduce) fn tell_who_is_missing<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        child: u16,
        place: Place,
        tx: &mut T,
    ) {
        let told = &mut self.seen[usize::from(child)].told_at;
        if told.is_some_and(|at| now.since(at) < self.resend_gap) {
            return;
        }
        *told = Some(now);
        let header = waiting(place, self.missing(now, place));
        tx.send(self.to_child(child), &header, Body::Empty);
        if let Some(parent) = self.parent {
            tx.send(Egress::Port(parent.port), &header, Body::Empty);
        }
    }

    /// Which child is missing in a slot, and who behind it: whom a switch below names, or else the child that was not heard for longest. One that
    /// has everything but acknowledgements contributes nothing either, but is heard.
    fn missing_child(&self, now: Instant, place: Place) -> Option<(u16, Suspect)> {
        let index = self.index(place);
        let is_begun = self.slots.peek(index).number == place.message;
        let missing = || (0..self.children.len() as u16).filter(|child| !is_begun || !self.slots.has_arrived(index, *child));
        let report = |child: u16| self.seen[usize::from(child)].reported.filter(|(message, _)| *message == place.message);
        let named = missing().find_map(|child| report(child).map(|(_, suspect)| (child, suspect)));
        let silent = || missing().min_by_key(|child| self.seen[usize::from(*child)].heard_at);
        // A switch waits for others, until it does not answer.
        let who = |child: u16| match self.children[usize::from(child)].who {
            Suspect::Switch(_) if !self.is_silent(now, self.seen[usize::from(child)].asked_since) => Suspect::Unknown,
            who => who,
        };
        named.or_else(|| silent().map(|child| (child, who(child))))
    }

    /// Whether somebody has left questions unanswered for too long.
    fn is_silent(&self, now: Instant, asked_since: Option<Instant>) -> bool {
        asked_since.is_some_and(|at| now.since(at) >= self.patience.divided(4))
    }

    fn missing(&self, now: Instant, place: Place) -> Suspect {
        self.missing_child(now, place).map_or(Suspect::Unknown, |(_, suspect)| suspect)
    }

    /// What the state of a place's slot is; `None` where the message has not begun here.
    fn state(&self, place: Place) -> Option<SlotState> {
        let slot = self.slots.peek(self.index(place));
        // The slot of a later message was that of this one before.
        if newer(slot.number, place.message) { Some(SlotState::Empty) } else { (slot.number == place.message).then_some(slot.state) }
    }

    /// Another switch says who is missing; or whoever was asked says that it is this switch, which has lost its memory.
    pub(in crate::netreduce) fn on_waiting<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        place: Place,
        suspect: Suspect,
        tx: &mut T,
    ) {
        if self.parent.is_some_and(|parent| parent.port == from.port) {
            self.above.on_heard();
            self.above.word = Some((place.message, suspect));
            return tx.send(Egress::Ports(&self.below), &waiting(place, suspect), Body::Empty);
        }
        let child = self.child_from(from).filter(|_| place.offset < self.shape.packets);
        let Some(child) = child else { return tx.note(Event::Dropped(DropReason::NotAMember)) };
        self.seen[usize::from(child)].on_heard(now);
        if suspect == Suspect::Switch(self.node) {
            // It may have been asked before its contribution came.
            if self.lacks(child, place) {
                self.abort(suspect, None, tx);
            }
        } else if self.switches.contains(from.port) && suspect != Suspect::Unknown {
            self.seen[usize::from(child)].reported = Some((place.message, suspect));
        }
    }
}

/// Questions.
impl<P: Payload + ?Sized> NetReduceSwitch<P> {
    /// A child asks, or the parent does, which lacks the sum of what is below.
    pub(in crate::netreduce) fn on_ask<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        place: Place,
        acknowledged: u16,
        tx: &mut T,
    ) {
        if place.offset >= self.shape.packets {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        if self.parent.is_some_and(|parent| parent.port == from.port) {
            return self.on_asked_from_above(now, place, tx);
        }
        let Some(child) = self.child_from(from) else { return tx.note(Event::Dropped(DropReason::NotAMember)) };
        self.seen[usize::from(child)].on_heard(now);
        if self.has_lost(child, place, acknowledged) {
            return self.abort(Suspect::Switch(self.node), None, tx);
        }
        let suspect = match (self.state(place), self.parent) {
            (Some(SlotState::Aggregating), _) => self.missing(now, place),
            (Some(SlotState::Sent), Some(parent)) if self.is_silent(now, self.above.asked_since) => Suspect::Switch(parent.node),
            (Some(SlotState::Sent), _) => {
                self.above.word.filter(|(message, _)| *message == place.message).map_or(Suspect::Unknown, |(_, suspect)| suspect)
            }
            _ => Suspect::Unknown,
        };
        tx.send(self.to_child(child), &waiting(place, suspect), Body::Empty);
        self.ask_on(now, place, tx);
    }

    /// Whether this switch has lost what it had of a child: packets of a message have come to their end, so their sums have passed here and their
    /// contributions before that, and nothing is known of them.
    fn has_lost(&self, child: u16, place: Place, acknowledged: u16) -> bool {
        let Suspect::Rank(rank) = self.children[usize::from(child)].who else { return false };
        let Some(connection) = u16::try_from(rank.0).ok().and_then(|rank| self.connection(rank)) else { return false };
        let is_unknown = self.connections[usize::from(connection)].has_never_known(place.message);
        acknowledged > 0 && is_unknown || place.offset < acknowledged && self.lacks(child, place)
    }

    /// Whether a child has contributed nothing to a place that is still waited for.
    fn lacks(&self, child: u16, place: Place) -> bool {
        match self.state(place) {
            None => true,
            Some(state) => state == SlotState::Aggregating && !self.slots.has_arrived(self.index(place), child),
        }
    }

    /// Somebody waits for a sum: asks whoever is missing here, or the parent.
    fn ask_on<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, place: Place, tx: &mut T) {
        let (index, state) = (self.index(place), self.state(place));
        let slot = self.slots.get(index);
        let is_due = now.since(slot.asked_at) >= self.resend_gap;
        match (state, self.parent) {
            (Some(SlotState::Aggregating), _) if is_due => {
                slot.asked_at = now;
                if let Some((child, _)) = self.missing_child(now, place) {
                    self.ask_child(now, child, place, tx);
                }
            }
            // Contributions that come again may let the sum go up just before each question.
            (Some(SlotState::Sent), Some(parent)) => {
                if is_due {
                    self.send_up_again(now, place, index, self.resend_gap, tx);
                }
                self.above.asked_since.get_or_insert(now);
                tx.send(Egress::Port(parent.port), &question(place), Body::Empty);
            }
            _ => {}
        }
    }

    /// The parent lacks the sum of what is below this switch. If there is the sum of all, the parent has lost it.
    fn on_asked_from_above<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, place: Place, tx: &mut T) {
        let Some(parent) = self.parent else { return };
        self.above.on_heard();
        let up = Egress::Port(parent.port);
        match self.state(place) {
            Some(SlotState::Done | SlotState::Empty) => {
                tx.send(up, &waiting(place, Suspect::Switch(parent.node)), Body::Empty);
            }
            Some(SlotState::Aggregating) => {
                tx.send(up, &waiting(place, self.missing(now, place)), Body::Empty);
                self.ask_on(now, place, tx);
            }
            Some(_) => {
                let index = self.index(place);
                self.send_up_again(now, place, index, self.resend_gap, tx);
            }
            None => {
                let Some((child, suspect)) = self.missing_child(now, place) else { return };
                tx.send(up, &waiting(place, suspect), Body::Empty);
                self.ask_child(now, child, place, tx);
            }
        }
    }

    fn ask_child<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, child: u16, place: Place, tx: &mut T) {
        self.seen[usize::from(child)].asked_since.get_or_insert(now);
        tx.send(self.to_child(child), &question(place), Body::Empty);
    }
}

fn waiting(place: Place, suspect: Suspect) -> NetReduceHeader {
    NetReduceHeader::Waiting { message: place.message, offset: place.offset, suspect }
}

/// Of a switch, which has sent nothing of its own.
fn question(place: Place) -> NetReduceHeader {
    NetReduceHeader::Ask { message: place.message, offset: place.offset, acknowledged: 0 }
}
