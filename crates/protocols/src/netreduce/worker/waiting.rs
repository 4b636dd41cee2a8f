//! Who a worker waits for, whom it asks, and whom it names when the operation fails. The rules are in the [module's documentation](super).

use fanin_core::{Address, Body, DropReason, Egress, Event, FailureReason, Ingress, Instant, Payload, Role, Route, Suspect, Tx};
use fanin_wire::netreduce::NetReduceHeader;

use super::NetReduceWorker;
use crate::netreduce::cut::At;
use crate::shared::serial::newer;
use crate::shared::watch::{STANDSTILL_PATIENCES, Watch};

/// Somebody that a worker waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::netreduce) enum Other {
    /// It acknowledges sums.
    Successor,
    /// It contributes in the connection that ends here.
    Predecessor,
    /// It makes sums.
    Switch,
}

impl Other {
    const ALL: [Other; 3] = [Other::Successor, Other::Predecessor, Other::Switch];
}

/// Whether they are there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub(in crate::netreduce) struct Watches([Watch; 3]);

impl Watches {
    #[inline]
    pub(in crate::netreduce) fn on_heard(&mut self, other: Other, now: Instant) {
        self.0[other as usize].on_heard(now);
    }

    fn on_answer(&mut self, other: Other, now: Instant) {
        self.0[other as usize].on_answer(now);
    }

    pub(in crate::netreduce) fn rebase(&mut self, now: Instant) {
        self.0.iter_mut().for_each(|watch| watch.rebase(now));
    }
}

/// Asking.
impl<P: Payload + ?Sized> NetReduceWorker<P> {
    /// Since when somebody is waited for.
    #[inline]
    fn since(&self, other: Other) -> Option<Instant> {
        let deaf = || (self.requester.outstanding() > 0).then(|| self.requester.progress_at());
        let lacking = || (self.received < self.cut.pieces).then_some(self.progress_at);
        match other {
            Other::Successor => deaf(),
            Other::Predecessor => lacking(),
            Other::Switch => lacking().or_else(deaf),
        }
    }

    #[inline]
    fn watched(&self) -> impl Iterator<Item = (Other, Instant, &Watch)> {
        Other::ALL.into_iter().filter_map(|other| Some((other, self.since(other)?, &self.watches.0[other as usize])))
    }

    /// When somebody is asked next.
    #[inline]
    pub(in crate::netreduce) fn ask_at(&self) -> Instant {
        let patience = self.config.reliability.patience;
        self.watched().map(|(_, since, watch)| watch.ask_at(since, patience)).min().unwrap_or(Instant::FAR_FUTURE)
    }

    fn to(&self, other: Other) -> Egress<'static> {
        let direct = |address| Egress::Route(Route::direct(address, self.config.flow));
        match other {
            Other::Successor => direct(self.config.successor.address),
            Other::Predecessor => direct(self.config.predecessor.address),
            Other::Switch => Egress::Port(self.config.uplink),
        }
    }

    /// Asks those who have been silent for too long whether they are there.
    pub(in crate::netreduce) fn ask<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let patience = self.config.reliability.patience;
        for other in Other::ALL {
            let is_due = |since| self.watches.0[other as usize].ask_at(since, patience) <= now;
            if self.since(other).is_some_and(is_due) {
                self.watches.0[other as usize].on_asked(now);
                tx.send(self.to(other), &self.question(), Body::Empty);
            }
        }
    }

    /// About the packet that is to be acknowledged next, or else the sum that is to come.
    fn question(&self) -> NetReduceHeader {
        let is_deaf = self.requester.outstanding() > 0;
        let index = if is_deaf { self.acknowledged } else { self.received }.min(self.cut.pieces.saturating_sub(1));
        let At { message, offset } = self.cut.at(index);
        let passed = self.acknowledged.saturating_sub(index - u32::from(offset));
        let acknowledged = passed.min(u32::from(self.cut.packets_of(message))) as u16;
        NetReduceHeader::Ask { message: self.first_message.wrapping_add(message), offset, acknowledged }
    }

    /// Whether a packet of this worker's has come to its end.
    fn has_passed(&self, message: u32, offset: u16) -> bool {
        let before = u64::from(message.wrapping_sub(self.first_message));
        let index = before * u64::from(self.config.shape.packets) + u64::from(offset);
        newer(self.first_message, message) || self.ledger.running().is_some() && index < u64::from(self.acknowledged)
    }

    /// A neighbour asks whether this worker is there; or the switch does, which lacks its contribution. If that had come to its end before,
    /// the switch has lost it: it had been in the sum.
    pub(in crate::netreduce) fn on_ask<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        (message, offset): (u32, u16),
        tx: &mut T,
    ) {
        let is_switch = from.source.role == Role::Switch;
        if !is_switch && !self.is_neighbour(from.source) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let to = if is_switch { self.to(Other::Switch) } else { Egress::Route(Route::direct(from.source, self.config.flow)) };
        if let Some(suspect) = self.given_up {
            return tx.send(to, &NetReduceHeader::Abort { suspect }, Body::Empty);
        }
        self.on_heard_from(now, from);
        let suspect = match is_switch {
            true if self.has_passed(message, offset) => Suspect::Switch(self.config.switch),
            true => return,
            false if self.ledger.running().is_none() => Suspect::Rank(self.config.rank),
            false => Suspect::Unknown,
        };
        tx.send(to, &NetReduceHeader::Waiting { message, offset, suspect }, Body::Empty);
    }

    fn is_neighbour(&self, address: Address) -> bool {
        [self.config.successor.address, self.config.predecessor.address].contains(&address)
    }

    fn on_heard_from(&mut self, now: Instant, from: Ingress) {
        if from.source.role == Role::Switch {
            return self.watches.on_answer(Other::Switch, now);
        }
        if from.source == self.config.successor.address {
            self.watches.on_answer(Other::Successor, now);
        }
        if from.source == self.config.predecessor.address {
            self.watches.on_answer(Other::Predecessor, now);
        }
    }

    /// Who is missing, as a switch says or a neighbour that was asked. What names this worker is no news to it.
    pub(in crate::netreduce) fn on_waiting<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        suspect: Suspect,
        tx: &mut T,
    ) {
        if from.source.role != Role::Switch && !self.is_neighbour(from.source) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        self.on_heard_from(now, from);
        if suspect != Suspect::Unknown && suspect != Suspect::Rank(self.config.rank) {
            self.suspect = Some((suspect, now));
        }
    }
}

/// Giving up.
impl<P: Payload + ?Sized> NetReduceWorker<P> {
    /// When the operation last went on.
    fn moved_at(&self) -> Instant {
        if self.requester.is_idle() { self.progress_at } else { self.progress_at.max(self.requester.progress_at()) }
    }

    /// When the operation fails: when somebody is missing; when a switch is, as others say, a quarter later, so that who knows best is first; or
    /// when all who are there have stood still for too long.
    #[inline]
    pub(in crate::netreduce) fn give_up_at(&self) -> Instant {
        let patience = self.config.reliability.patience;
        let is_switch = matches!(self.word(), Some(Suspect::Switch(_)));
        let waits = if is_switch { patience + patience.divided(4) } else { patience.times(STANDSTILL_PATIENCES) };
        let standstill = self.moved_at() + waits;
        self.watched().fold(standstill, |first, (_, since, watch)| first.min(watch.missing_at(since, patience)))
    }

    /// Who is named when the operation fails now. Where a neighbour is missing and a switch is as well, it is the switch; the own one may be cut
    /// off.
    pub(in crate::netreduce) fn culprit(&self, now: Instant) -> Suspect {
        let patience = self.config.reliability.patience;
        let missing = self.watched().find(|(_, since, watch)| watch.missing_at(*since, patience) <= now);
        let Some((other, ..)) = missing else { return self.whom() };
        let is_cut_off = self.watched().any(|(other, since, watch)| other == Other::Switch && watch.is_silent(now, since, patience));
        match other {
            _ if is_cut_off => Suspect::Switch(self.config.switch),
            _ if matches!(self.word(), Some(Suspect::Switch(_))) => self.whom(),
            Other::Successor => Suspect::Rank(self.config.successor.rank),
            Other::Predecessor => Suspect::Rank(self.config.predecessor.rank),
            Other::Switch => Suspect::Switch(self.config.switch),
        }
    }

    /// Who is said to be missing; or the switch, of which the sum is waited for. Never itself.
    fn whom(&self) -> Suspect {
        self.word().unwrap_or(Suspect::Switch(self.config.switch))
    }

    /// Who was last said to be missing, since the operation last went on.
    #[inline]
    fn word(&self) -> Option<Suspect> {
        let moved_at = self.moved_at();
        self.suspect.filter(|(_, at)| *at > moved_at).map(|(suspect, _)| suspect)
    }

    /// Whom the others wait for waits for something itself, and that is what its caller wants to know.
    pub(in crate::netreduce) fn as_told_here(&self, suspect: Suspect) -> Suspect {
        if suspect == Suspect::Rank(self.config.rank) { self.whom() } else { suspect }
    }

    /// Ends the job, here and everywhere.
    pub(in crate::netreduce) fn fail<T: Tx<NetReduceHeader, P>>(&mut self, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        self.end_job(suspect, reason, tx);
        tx.send(Egress::Port(self.config.uplink), &NetReduceHeader::Abort { suspect }, Body::Empty);
    }

    /// Ends the job. The running operation fails; but where only acknowledgements are missing, the caller has what it asked for.
    pub(in crate::netreduce) fn end_job<T: Tx<NetReduceHeader, P>>(&mut self, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        let whole = self.received == self.cut.pieces && matches!(reason, FailureReason::NoProgress | FailureReason::PeerAborted);
        let named = if reason == FailureReason::PeerAborted { self.as_told_here(suspect) } else { suspect };
        self.given_up = Some(suspect);
        self.requester.abandon();
        if self.ledger.running().is_none() {
            self.inherited = true;
        } else if whole {
            self.ledger.complete();
            self.inherited = true;
        } else if let Some(failure) = self.ledger.fail(Some(self.received), named, reason) {
            tx.note(Event::Failed(failure));
        }
    }

    pub(in crate::netreduce) fn on_abort<T: Tx<NetReduceHeader, P>>(&mut self, suspect: Suspect, tx: &mut T) {
        if self.given_up.is_some() {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        self.end_job(suspect, FailureReason::PeerAborted, tx);
    }
}
