//! Who is waited for, who is asked whether it is there, and who is named when the operation fails. The rules are in the [module's
//! documentation](super).

use fanin_core::{Address, Body, DropReason, Event, FailureReason, Ingress, Instant, Payload, Rank, Role, Suspect, Tx};
use fanin_wire::netreduce::NetReduceHeader;

use super::MachinesWorker;
use crate::machines::links::{Incoming, Outgoing};
use crate::shared::watch::STANDSTILL_PATIENCES;

/// Why the job has failed.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(in crate::machines) struct Verdict {
    /// Who is missing, as all say.
    pub said: Suspect,
    /// As this worker's caller is told: the same, unless that is this worker.
    pub named: Suspect,
}

/// Asking.
impl<P: Payload + ?Sized> MachinesWorker<P> {
    /// Since when the accelerator is waited for.
    #[inline]
    fn accelerator_since(&self) -> Option<Instant> {
        self.config.accelerator?;
        let deaf = self.links.out.iter().filter(|link| link.accelerated().is_some()).find_map(Outgoing::awaited_since);
        let lacking = |link: &Incoming| link.next().filter(|at| at.segment.accelerated).and_then(|_| link.awaited_since());
        deaf.or_else(|| self.links.into.iter().find_map(lacking)).map(|since| since.max(self.progress_at))
    }

    /// What the accelerator is asked about: the packet that is to be acknowledged next, or that is to come.
    fn question(&self) -> Option<NetReduceHeader> {
        let deaf = self.links.out.iter().filter(|link| link.awaited_since().is_some()).find_map(Outgoing::accelerated);
        let lacking = |link: &Incoming| link.next().filter(|at| at.segment.accelerated);
        let at = deaf.or_else(|| self.links.into.iter().find_map(lacking))?;
        let acknowledged = self.passing().map_or(0, |link| link.passed(&at));
        Some(NetReduceHeader::Ask { message: at.message, offset: at.offset, acknowledged })
    }

    /// The connection through the accelerator.
    fn passing(&self) -> Option<&Outgoing> {
        let to = self.steps.iter().find_map(|step| step.send.filter(|_| step.accelerated)).map(|send| send.to)?;
        self.links.out.iter().find(|link| link.peer == to)
    }

    /// When somebody is asked next.
    #[inline]
    pub(in crate::machines) fn ask_at(&self) -> Instant {
        let patience = self.config.reliability.patience;
        let out = self.links.out.iter().filter_map(|link| Some(link.other.watch.ask_at(link.awaited_since()?, patience)));
        let into = self.links.into.iter().filter_map(|link| Some(link.other.watch.ask_at(link.awaited_since()?, patience)));
        let accelerator = self.accelerator_since().map(|since| self.accelerator.ask_at(since, patience));
        out.chain(into).chain(accelerator).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// Asks those who have been silent for too long whether they are there.
    pub(in crate::machines) fn ask<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let patience = self.config.reliability.patience;
        for link in 0..self.links.out.len() {
            let out = &self.links.out[link];
            if out.awaited_since().is_some_and(|since| out.other.watch.ask_at(since, patience) <= now) {
                self.ask_worker(now, out.address, tx);
            }
        }
        for link in 0..self.links.into.len() {
            let into = &self.links.into[link];
            if into.awaited_since().is_some_and(|since| into.other.watch.ask_at(since, patience) <= now) {
                self.ask_worker(now, into.address, tx);
            }
        }
        if self.accelerator_since().is_some_and(|since| self.accelerator.ask_at(since, patience) <= now)
            && let Some((switch, question)) = self.config.accelerator.zip(self.question())
        {
            self.accelerator.on_asked(now);
            tx.send(self.to(Address::switch(switch)), &question, Body::Empty);
        }
    }

    fn ask_worker<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, address: Address, tx: &mut T) {
        self.links.others(address).for_each(|other| other.watch.on_asked(now));
        tx.send(self.to(address), &NetReduceHeader::Ask { message: 0, offset: 0, acknowledged: 0 }, Body::Empty);
    }

    /// Another worker asks whether this one is there; or the accelerator does, which lacks its contribution. If that had come to its end before,
    /// the accelerator has lost it: it had been in the sum.
    pub(in crate::machines) fn on_ask<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        (message, offset): (u32, u16),
        tx: &mut T,
    ) {
        if from.source.role == Role::Worker {
            if self.config.addresses.contains(&from.source) {
                self.links.others(from.source).for_each(|other| other.watch.on_answer(now));
                return self.say_whom(from.source, (message, offset), tx);
            }
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let Some(switch) = self.config.accelerator.filter(|switch| Address::switch(*switch) == from.source) else {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        };
        self.accelerator.on_answer(now);
        if self.passing().is_some_and(|link| link.has_passed(message, offset)) {
            let suspect = Suspect::Switch(switch);
            tx.send(self.to(from.source), &NetReduceHeader::Waiting { message, offset, suspect }, Body::Empty);
        }
    }

    /// Tells another worker that this one is there, and whom it waits for.
    pub(in crate::machines) fn say_whom<T: Tx<NetReduceHeader, P>>(&self, to: Address, (message, offset): (u32, u16), tx: &mut T) {
        let suspect = self.whom().unwrap_or(Suspect::Rank(self.config.rank));
        tx.send(self.to(to), &NetReduceHeader::Waiting { message, offset, suspect }, Body::Empty);
    }

    /// Who was asked, or has turned a packet away, says whom it waits for. What names this worker is no news to it; what is news goes on to those
    /// who may wait for this worker, so that a name goes round a ring at once.
    pub(in crate::machines) fn on_waiting<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, from: Ingress, suspect: Suspect, tx: &mut T) {
        let before = self.whom();
        let word = Some((suspect, now)).filter(|_| suspect != Suspect::Unknown && suspect != Suspect::Rank(self.config.rank));
        if self.config.accelerator.is_some_and(|switch| Address::switch(switch) == from.source) {
            self.accelerator.on_answer(now);
            self.suspect = word.or(self.suspect);
        } else if self.links.others(from.source).next().is_some() {
            for other in self.links.others(from.source) {
                other.watch.on_answer(now);
                other.word = word.or(other.word);
            }
            let out = self.links.out.iter_mut().find(|link| link.address == from.source);
            out.into_iter().for_each(|link| link.requester.on_alive());
        } else {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        // Where packets are lost somebody is always waited for, and not for long.
        let is_stalled = now >= self.moved_at() + self.config.reliability.patience.divided(4);
        if is_stalled && self.whom() != before {
            let out = self.links.out.iter().map(|link| link.address);
            let into = self.links.into.iter().map(|link| link.address).filter(|address| self.links.to(*address).is_none());
            out.chain(into).filter(|address| *address != from.source).for_each(|address| self.say_whom(address, (0, 0), tx));
        }
    }
}

/// Giving up.
impl<P: Payload + ?Sized> MachinesWorker<P> {
    /// When the operation last went on.
    fn moved_at(&self) -> Instant {
        let acknowledged = self.links.out.iter().filter_map(Outgoing::awaited_since);
        acknowledged.fold(self.progress_at, Instant::max)
    }

    /// Whom this worker waits for, and when they are missing.
    fn awaited(&self) -> impl Iterator<Item = (Instant, Suspect)> + '_ {
        let patience = self.config.reliability.patience;
        let out = self.links.out.iter().filter_map(move |link| {
            let since = link.awaited_since()?;
            Some((link.other.watch.missing_at(since, patience), Suspect::Rank(link.peer)))
        });
        let into = self.links.into.iter().filter_map(move |link| {
            let since = link.awaited_since()?;
            Some((link.other.watch.missing_at(since, patience), Suspect::Rank(link.peer)))
        });
        let accelerator = self.config.accelerator.zip(self.accelerator_since());
        let accelerator = accelerator.map(|(switch, since)| (self.accelerator.missing_at(since, patience), Suspect::Switch(switch)));
        out.chain(into).chain(accelerator)
    }

    /// When the operation fails: when somebody is missing, or all who are there have stood still for too long.
    #[inline]
    pub(in crate::machines) fn give_up_at(&self) -> Instant {
        let standstill = self.moved_at() + self.config.reliability.patience.times(STANDSTILL_PATIENCES);
        self.awaited().fold(standstill, |first, (at, _)| first.min(at))
    }

    /// Who is named when the operation fails now.
    pub(in crate::machines) fn culprit(&self, now: Instant) -> Suspect {
        let silent = self.awaited().filter(|(at, _)| *at <= now).min_by_key(|(at, _)| *at).map(|(_, suspect)| suspect);
        silent.or_else(|| self.whom()).unwrap_or(Suspect::Unknown)
    }

    /// Whom this worker waits for, or who is said to keep that one waiting; never itself. `None` where it waits for nobody, as it has not
    /// begun.
    fn whom(&self) -> Option<Suspect> {
        self.ledger.running()?;
        let moved_at = self.moved_at();
        let fresh = |word: Option<(Suspect, Instant)>| word.filter(|(_, at)| *at > moved_at).map(|(suspect, _)| suspect);
        if self.accelerator_since().is_some()
            && let Some(suspect) = fresh(self.suspect)
        {
            return Some(suspect);
        }
        // The next packet of the earliest step that is not complete.
        let lacking = self.links.into.iter().filter(|link| link.awaited_since().is_some());
        let lacking = lacking.min_by_key(|link| link.next().map(|at| at.segment.step)).map(|link| (link.peer, link.other.word));
        let deaf = || self.links.out.iter().find(|link| link.awaited_since().is_some()).map(|link| (link.peer, link.other.word));
        lacking.or_else(deaf).map(|(peer, word)| fresh(word).unwrap_or(Suspect::Rank(peer)))
    }

    /// Ends the job, here and everywhere.
    pub(in crate::machines) fn fail<T: Tx<NetReduceHeader, P>>(&mut self, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        self.end_job(Verdict { said: suspect, named: suspect }, reason, tx);
        for address in self.config.addresses.iter().filter(|address| **address != self.config.addresses[self.config.rank.index()]) {
            tx.send(self.to(*address), &NetReduceHeader::Abort { suspect }, Body::Empty);
        }
    }

    /// Ends the job. The running operation fails; but where only acknowledgements are missing, the caller has what it asked for.
    fn end_job<T: Tx<NetReduceHeader, P>>(&mut self, verdict: Verdict, reason: FailureReason, tx: &mut T) {
        let ended = self.begun == self.steps.len() && self.links.all_received();
        let whole = ended && matches!(reason, FailureReason::NoProgress | FailureReason::PeerAborted);
        self.given_up = Some(verdict);
        self.links.out.iter_mut().for_each(|link| link.requester.abandon());
        self.gate.clear();
        if self.ledger.running().is_none() {
            self.inherited = true;
        } else if whole {
            self.ledger.complete();
            self.inherited = true;
        } else if let Some(failure) = self.ledger.fail(Some(self.begun as u32), verdict.named, reason) {
            tx.note(Event::Failed(failure));
        }
    }

    /// Another worker has given up. What it said may have been lost on its way to others: those that this one has connections with hear it again.
    pub(in crate::machines) fn on_abort<T: Tx<NetReduceHeader, P>>(&mut self, from: Ingress, suspect: Suspect, tx: &mut T) {
        // Whom the others wait for waits for something itself, or has lost them, and that is what its caller wants to know.
        let named = if suspect == Suspect::Rank(self.config.rank) { self.whom().unwrap_or_else(|| self.at(from)) } else { suspect };
        self.end_job(Verdict { said: suspect, named }, FailureReason::PeerAborted, tx);
        let peers = self.links.out.iter().map(|link| link.address).chain(self.links.into.iter().map(|link| link.address));
        for address in peers.filter(|address| *address != from.source) {
            tx.send(self.to(address), &NetReduceHeader::Abort { suspect }, Body::Empty);
        }
    }

    /// Who has sent a packet.
    fn at(&self, from: Ingress) -> Suspect {
        let rank = self.config.addresses.iter().position(|address| *address == from.source);
        rank.map_or(Suspect::Switch(from.source.node), |rank| Suspect::Rank(Rank(rank as u32)))
    }

    /// Who has given up says so to whoever still sends.
    #[cold]
    pub(in crate::machines) fn answer_that_it_is_over<T: Tx<NetReduceHeader, P>>(
        &self,
        from: Ingress,
        header: &NetReduceHeader,
        suspect: Suspect,
        tx: &mut T,
    ) {
        tx.note(Event::Dropped(DropReason::Stale));
        if !matches!(header, NetReduceHeader::Abort { .. }) && from.source.role == Role::Worker {
            tx.send(self.to(from.source), &NetReduceHeader::Abort { suspect }, Body::Empty);
        }
    }
}
