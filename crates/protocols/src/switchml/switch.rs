//! The aggregator of a SwitchML job at one switch. The states of its slots, and why nothing is counted twice, are in the
//! [module's documentation](super).

use std::collections::VecDeque;

use fanin_core::{
    BlockExponent, Body, DropReason, Duration, Egress, Event, Ingress, Instant, JobId, Node, OpError, Payload, PortId, PortSet, Rank,
    RetransmitReason, Suspect, Tx,
};
use fanin_wire::switchml::{CallLabel, SlotUse, SwitchMlHeader};

use super::config::{POOL_MAX, SwitchMlChild, SwitchMlOffer, SwitchMlParent, SwitchMlSwitchConfig};
use super::planted::Planted;
use crate::shared::kept::KeptSlot;
use crate::shared::serial::newer;
use crate::shared::slots::{Missing, SlotState, Slots};
use crate::shared::state::node_state;

/// Marks a port that leads to no child.
const NO_CHILD: u16 = u16::MAX;

/// A contribution without its elements.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Form {
    at: SlotUse,
    exponent: Option<BlockExponent>,
    call: CallLabel,
}

/// The aggregator of one job at one switch.
pub struct SwitchMlSwitch<P: Payload + ?Sized> {
    job: JobId,
    /// What calls may be about; [`CallLabel::op`] is an index.
    ops: Box<[P::Op]>,
    /// For each of them, whether it comes as block fixed point.
    fixed_point: Box<[bool]>,
    any_fixed_point: bool,
    workers: u32,
    block_bytes: u32,
    pool: u32,
    resend_gap: Duration,
    parent: Option<SwitchMlParent>,
    children: Box<[SwitchMlChild]>,
    /// The child at each port, or [`NO_CHILD`].
    child_at: Box<[u16]>,
    /// The ports of all children.
    ports: PortSet,
    /// Version v of slot s is at v P + s; a slot's number is its round.
    slots: Slots<P::Acc>,
    /// The largest exponent that was announced, for each of `slots`; none are kept where no call is in fixed point.
    exponents: Box<[BlockExponent]>,
    /// What the first contribution said that it belongs to, for each of `slots`.
    calls: Box<[CallLabel]>,
    /// For each child, the ports of all others.
    others: Box<[PortSet]>,
    /// What waits for room on the way up, and on the way down.
    waiting_up: VecDeque<SlotUse>,
    waiting_down: VecDeque<SlotUse>,
    planted: Planted,
}

node_state!(SwitchMlSwitch {
    job,
    ops,
    fixed_point,
    any_fixed_point,
    workers,
    block_bytes,
    pool,
    resend_gap,
    parent,
    children,
    child_at,
    ports,
    slots,
    exponents,
    calls,
    others,
    waiting_up,
    waiting_down,
    planted,
});

impl<P: Payload + ?Sized> SwitchMlSwitch<P> {
    /// A switch with all its memory: two versions of every slot.
    ///
    /// # Panics
    /// Where there is no child or more than 65,534, or the pool has no slot or more than [`POOL_MAX`].
    pub fn new(config: SwitchMlSwitchConfig<P::Op>) -> Self {
        assert!((1..usize::from(NO_CHILD)).contains(&config.children.len()), "1 to 65534 children");
        assert!((1..=POOL_MAX).contains(&config.pool), "1 to 65536 slots");
        let highest = config.children.iter().map(|child| child.port.index()).max().unwrap_or(0);
        let mut child_at = vec![NO_CHILD; highest + 1];
        for (number, child) in config.children.iter().enumerate() {
            child_at[child.port.index()] = number as u16;
        }
        let count = 2 * config.pool;
        let but = |child: &SwitchMlChild| config.children.iter().map(|other| other.port).filter(|port| *port != child.port).collect();
        SwitchMlSwitch {
            job: config.job,
            workers: config.workers,
            block_bytes: config.block_bytes,
            pool: config.pool,
            fixed_point: [config.fixed_point].into(),
            any_fixed_point: config.fixed_point,
            calls: vec![CallLabel::NONE; count as usize].into(),
            others: config.children.iter().map(but).collect(),
            resend_gap: config.resend_gap,
            parent: config.parent,
            ports: config.children.iter().map(|child| child.port).collect(),
            slots: Slots::new::<P>(count, config.children.len(), &config.op, config.block_bytes),
            exponents: vec![BlockExponent::ZERO; if config.fixed_point { count as usize } else { 0 }].into(),
            children: config.children.into(),
            child_at: child_at.into(),
            ops: [config.op].into(),
            waiting_up: VecDeque::new(),
            waiting_down: VecDeque::new(),
            planted: Planted::NONE,
        }
    }

    /// Lets calls be about more than the configured element type and operator, which stays number 0: these are 1, 2, ... The same at all
    /// workers and switches, before any packet.
    ///
    /// # Panics
    /// Where there are more than 255.
    pub fn offer(&mut self, offers: &[SwitchMlOffer<P::Op>]) {
        assert!(offers.len() <= 255, "a packet names operators by 8 bits");
        self.ops = self.ops.iter().take(1).cloned().chain(offers.iter().map(|offer| offer.op.clone())).collect();
        self.fixed_point = self.fixed_point.iter().take(1).copied().chain(offers.iter().map(|offer| offer.fixed_point)).collect();
        self.any_fixed_point = self.fixed_point.contains(&true);
        let count = 2 * self.pool;
        self.slots = Slots::new::<P>(count, self.children.len(), P::largest(&self.ops, self.block_bytes as usize), self.block_bytes);
        self.exponents = vec![BlockExponent::ZERO; if self.any_fixed_point { count as usize } else { 0 }].into();
    }

    /// The job that the switch aggregates for.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// What slots hold, for a program that goes on with the job; `None` where another switch is above, or something waits for room.
    pub fn kept(&self) -> Option<impl Iterator<Item = KeptSlot<'_, P::Acc>>> {
        let kept = |index: u32| {
            let (slot, call) = (self.slots.peek(index), self.calls[index as usize]);
            KeptSlot {
                slot: (index % self.pool) as u16,
                number: slot.number,
                is_done: slot.state == SlotState::Done,
                arrived: self.slots.arrived(index),
                op: call.op,
                receiver: call.receiver,
                fingerprint: call.fingerprint,
                exponent: self.exponent(index).map_or(0, |exponent| exponent.to_bits()),
                acc: &slot.acc,
            }
        };
        (self.is_root() && self.slots.are_at_rest()).then(|| self.slots.in_use().map(kept))
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.slots.rebase(now);
    }

    #[inline]
    fn child(&self, port: PortId) -> Option<u16> {
        self.child_at.get(port.index()).copied().filter(|child| *child != NO_CHILD)
    }

    #[inline]
    fn is_parent(&self, port: PortId) -> bool {
        self.parent.is_some_and(|parent| parent.port == port)
    }

    /// Where the version of a slot is that a round uses; the slot is one of the pool's.
    #[inline]
    fn index_of(&self, at: SlotUse) -> u32 {
        at.version() * self.pool + u32::from(at.slot)
    }

    /// The exponent to send with what the slot holds.
    #[inline]
    fn exponent(&self, index: u32) -> Option<BlockExponent> {
        let op = usize::from(self.calls[index as usize].op);
        if self.fixed_point[op] { self.exponents.get(index as usize).copied() } else { None }
    }

    /// Whether no switch is above this one, so that it holds what all workers have contributed.
    pub fn is_root(&self) -> bool {
        self.parent.is_none()
    }

    /// Whether there is such an operator, and its blocks are in fixed point where this one is.
    #[inline]
    fn is_our_form(&self, form: &Form) -> bool {
        self.fixed_point.get(usize::from(form.call.op)).is_some_and(|fixed| *fixed == form.exponent.is_some())
    }

    /// The child at which the only rank hangs that needs the result; `None` where all do, or where it is below another switch.
    #[inline]
    fn only_receiver(&self, index: u32) -> Option<usize> {
        match self.calls[index as usize].receiver {
            CallLabel::ALL => None,
            rank => self.children.iter().position(|child| child.who == Suspect::Rank(Rank(u32::from(rank)))),
        }
    }

    /// How much later than a version's last round its next one may be. Two, unless an operation in fixed point is shorter than the pool:
    /// it uses P numbers for its exponents, whatever its length, so a slot may be left out until numbers have gone round the pool.
    #[inline]
    fn rounds_ahead_max(&self) -> u32 {
        if self.any_fixed_point { 2 * self.pool + 4 } else { 2 }
    }
}

#[inline]
fn drop_packet<P: Payload + ?Sized, T: Tx<SwitchMlHeader, P>>(tx: &mut T, reason: DropReason) {
    tx.note(Event::Dropped(reason));
}

/// Contributions.
impl<P: Payload + ?Sized> SwitchMlSwitch<P> {
    /// `switchml 4`, step 3: adds a child's first contribution to a round that has begun, the way of most packets; gives the number of
    /// children that are missing. `None`, and nothing is changed, where the packet is anything else.
    #[inline]
    fn add<T: Tx<SwitchMlHeader, P>>(&mut self, form: &Form, port: PortId, payload: &P, tx: &mut T) -> Option<u32> {
        let child = self.child(port)?;
        if u32::from(form.at.slot) >= self.pool || !self.is_our_form(form) {
            return None;
        }
        let index = self.index_of(form.at);
        let repeated = self.slots.has_arrived(index, child) && !self.planted.ignores_bitmap();
        let slot = self.slots.get(index);
        let same = slot.number == form.at.round && slot.state == SlotState::Aggregating && self.calls[index as usize] == form.call;
        if repeated || !same {
            return None;
        }
        let op = &mut self.ops[usize::from(form.call.op)];
        let added = if form.call == CallLabel::NONE {
            payload.reduce(&mut slot.acc, op)
        } else if payload.bytes() > 0 {
            Self::add_to(payload, &mut slot.acc, op, self.block_bytes, tx)
        } else {
            Ok(())
        };
        match added {
            Ok(()) => {}
            Err(OpError::Operator) => {
                let missing = slot.missing;
                self.on_operator_failed(form.at, Some(child), tx);
                return Some(missing);
            }
            Err(_) => return None,
        }
        if let Some(exponent) = form.exponent {
            let largest = &mut self.exponents[index as usize];
            *largest = exponent.max(*largest);
        }
        Some(self.slots.mark_arrived(index, child))
    }

    /// Adds to what others have contributed, if anybody has.
    #[inline]
    fn add_to<T: Tx<SwitchMlHeader, P>>(
        payload: &P,
        acc: &mut P::Acc,
        op: &mut P::Op,
        block_bytes: u32,
        tx: &mut T,
    ) -> Result<(), OpError> {
        if P::acc_bytes(acc, op) > 0 {
            return payload.reduce(acc, op);
        }
        if payload.bytes() > block_bytes as usize {
            return Err(OpError::Length { expected: block_bytes as usize, got: payload.bytes() });
        }
        payload.assign(acc, op)?;
        tx.note(Event::SlotTaken { bytes: payload.bytes() as u32 });
        Ok(())
    }

    /// The operator that the job brought along has failed. The packet is dropped, and so is every later one that needs the operator;
    /// nobody is told here, since the driver ends the job, with a better reason than a packet has room for.
    #[cold]
    fn on_operator_failed<T: Tx<SwitchMlHeader, P>>(&self, at: SlotUse, child: Option<u16>, tx: &mut T) {
        let contributor = child.map_or(Suspect::Unknown, |child| self.children[usize::from(child)].who);
        tx.note(Event::OperatorFailed { contributor, block: at.round.wrapping_mul(self.pool).wrapping_add(u32::from(at.slot)) });
    }

    /// A contribution that [`SwitchMlSwitch::add`] leaves: it begins a round, or it was counted before, or it does not fit.
    fn on_contribution<T: Tx<SwitchMlHeader, P>>(
        &mut self,
        now: Instant,
        port: PortId,
        (form, attempt): (Form, u8),
        payload: &P,
        tx: &mut T,
    ) {
        let at = form.at;
        let Some(child) = self.child(port) else { return drop_packet(tx, DropReason::NotAMember) };
        let index = self.index_of(at);
        let slot = self.slots.get(index);
        let (number, state) = (slot.number, slot.state);
        let looks_new = state == SlotState::Done && self.looks_new(index, child);
        if state != SlotState::Empty && number == at.round && !looks_new {
            if state == SlotState::Aggregating && !self.slots.has_arrived(index, child) {
                // `SwitchMlSwitch::add` could not add it.
                return self.reject(at, port, tx);
            }
            return self.on_repeat(now, port, at, attempt, tx);
        }
        if state != SlotState::Empty && !newer(at.round, number) && !looks_new {
            return drop_packet(tx, DropReason::Stale);
        }
        let in_use = !matches!(state, SlotState::Empty | SlotState::Done);
        let ahead = state == SlotState::Done && at.round.wrapping_sub(number) > self.rounds_ahead_max();
        if in_use || ahead && !self.planted.sees_version_bit_only() {
            // No worker may be that far ahead ("Exactly once"), so this is not of our job's making.
            return drop_packet(tx, DropReason::OutsideWindow);
        }
        let begun = if self.is_our_form(&form) { self.begin(&form, payload, tx) } else { Err(OpError::Unsupported) };
        match begun {
            Ok(()) => {}
            Err(OpError::Operator) => return self.on_operator_failed(at, Some(child), tx),
            Err(_) => return self.reject(at, port, tx),
        }
        if self.slots.mark_arrived(index, child) == 0 {
            self.complete(now, at, tx);
        }
    }

    /// With the planted bug: whether the child's bit would be clear again, for it has contributed to the other version since.
    fn looks_new(&mut self, index: u32, child: u16) -> bool {
        if !self.planted.sees_version_bit_only() {
            return false;
        }
        let other = (index + self.pool) % (2 * self.pool);
        let (this, that) = (self.slots.get(index).number, self.slots.get(other).number);
        newer(that, this) && self.slots.has_arrived(other, child)
    }

    /// A round's first contribution takes the version. An error, and nothing is changed, where it does not fit or the operator fails.
    fn begin<T: Tx<SwitchMlHeader, P>>(&mut self, form: &Form, payload: &P, tx: &mut T) -> Result<(), OpError> {
        let (bytes, at) = (payload.bytes(), form.at);
        // What only announces exponents has no payload, nor has a worker's share in a call where it has nothing to give.
        let may_be_empty = form.exponent.is_some() || form.call != CallLabel::NONE;
        if bytes > self.block_bytes as usize || bytes == 0 && !may_be_empty {
            return Err(OpError::Length { expected: self.block_bytes as usize, got: bytes });
        }
        let index = self.index_of(at);
        let op_before = &self.ops[usize::from(self.calls[index as usize].op)];
        let freed = P::acc_bytes(&self.slots.get(index).acc, op_before) as u32;
        let slot = self.slots.get(index);
        let op = &mut self.ops[usize::from(form.call.op)];
        if self.planted.keeps_accumulator() && slot.state == SlotState::Done {
            payload.reduce(&mut slot.acc, op)?;
        } else {
            payload.assign(&mut slot.acc, op)?;
        }
        if slot.state != SlotState::Empty {
            tx.note(Event::SlotFreed { bytes: freed });
        }
        tx.note(Event::SlotTaken { bytes: bytes as u32 });
        // A late packet that the planted bug takes for a new one counts as one of the next round, as its version bit says.
        let late = self.planted.sees_version_bit_only() && slot.state != SlotState::Empty && !newer(at.round, slot.number);
        slot.number = if late { slot.number.wrapping_add(2) } else { at.round };
        slot.state = SlotState::Aggregating;
        slot.missing = self.children.len() as u32;
        slot.resends = 0;
        (slot.parent_heard, slot.word) = (false, None);
        slot.asked_at = Instant::ZERO;
        self.slots.forget_arrivals(index);
        self.calls[index as usize] = form.call;
        if let Some(exponent) = form.exponent {
            self.exponents[index as usize] = exponent;
        }
        Ok(())
    }

    /// The contribution differs from the one that came first in its call, length or form: ranks disagree about the operation.
    #[cold]
    fn reject<T: Tx<SwitchMlHeader, P>>(&mut self, at: SlotUse, port: PortId, tx: &mut T) {
        drop_packet(tx, DropReason::Mismatch);
        tx.send(Egress::Port(port), &SwitchMlHeader::Rejected { at }, Body::Empty);
    }

    /// `switchml 4`, step 3, last: all children have contributed.
    #[inline]
    fn complete<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, at: SlotUse, tx: &mut T) {
        if self.parent.is_some() {
            return self.complete_up(now, at, tx);
        }
        let index = self.index_of(at);
        let op = &mut self.ops[usize::from(self.calls[index as usize].op)];
        if P::conclude(&mut self.slots.get(index).acc, op, self.workers).is_err() {
            return self.on_operator_failed(at, None, tx);
        }
        self.complete_down(at, tx);
    }

    /// `switchml 8`: the partial aggregate goes up.
    fn complete_up<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, at: SlotUse, tx: &mut T) {
        let Some(parent) = self.parent else { return };
        if !self.waiting_up.is_empty() || !tx.room(Egress::Port(parent.port)) {
            let index = self.index_of(at);
            self.slots.get(index).state = SlotState::SendingUp;
            return self.waiting_up.push_back(at);
        }
        self.send_up(now, at, 0, tx);
    }

    fn send_up<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, at: SlotUse, attempt: u8, tx: &mut T) {
        let Some(parent) = self.parent else { return };
        let index = self.index_of(at);
        let header = SwitchMlHeader::Contribution { at, attempt, exponent: self.exponent(index), call: self.calls[index as usize] };
        let slot = self.slots.get(index);
        tx.send(Egress::Port(parent.port), &header, Body::Acc(&slot.acc));
        (slot.asked_at, slot.state) = (now, SlotState::Sent);
    }

    /// The slot holds the result: it goes to all children.
    fn complete_down<T: Tx<SwitchMlHeader, P>>(&mut self, at: SlotUse, tx: &mut T) {
        if !self.waiting_down.is_empty() || !tx.room(Egress::Ports(&self.ports)) {
            let index = self.index_of(at);
            self.slots.get(index).state = SlotState::SendingDown;
            return self.waiting_down.push_back(at);
        }
        self.send_down(at, tx);
    }

    fn send_down<T: Tx<SwitchMlHeader, P>>(&mut self, at: SlotUse, tx: &mut T) {
        let index = self.index_of(at);
        let header = SwitchMlHeader::Result { at, exponent: self.exponent(index) };
        let receiver = self.only_receiver(index);
        let slot = self.slots.get(index);
        match receiver {
            None => tx.send(Egress::Ports(&self.ports), &header, Body::Acc(&slot.acc)),
            Some(child) => {
                tx.send(Egress::Port(self.children[child].port), &header, Body::Acc(&slot.acc));
                tx.send(Egress::Ports(&self.others[child]), &header, Body::Empty);
            }
        }
        slot.state = SlotState::Done;
    }
}

/// What is asked and answered when packets were lost.
impl<P: Payload + ?Sized> SwitchMlSwitch<P> {
    /// `switchml 4`, step 4, and `switchml 8`: a contribution that is counted already. One that was not sent again on purpose is a
    /// duplicate of the network.
    #[cold]
    fn on_repeat<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, port: PortId, at: SlotUse, attempt: u8, tx: &mut T) {
        if attempt == 0 {
            return drop_packet(tx, DropReason::Duplicate);
        }
        let index = self.index_of(at);
        match self.slots.get(index).state {
            SlotState::Done => {
                tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: at.round });
                let header = SwitchMlHeader::Result { at, exponent: self.exponent(index) };
                let needs = self.only_receiver(index).is_none_or(|child| self.children[child].port == port);
                let body = if needs { Body::Acc(&self.slots.get(index).acc) } else { Body::Empty };
                tx.send(Egress::Port(port), &header, body);
            }
            SlotState::Sent => self.ask_parent(now, port, at, attempt, tx),
            SlotState::Aggregating => self.name_missing(now, port, at, attempt, tx),
            SlotState::Empty | SlotState::SendingUp | SlotState::SendingDown => drop_packet(tx, DropReason::InProgress),
        }
    }

    /// `switchml 8`: the partial aggregate, or the result on its way down, was lost above this switch: sends it up again, but not for
    /// every child.
    fn ask_parent<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, port: PortId, at: SlotUse, attempt: u8, tx: &mut T) {
        let (index, gap) = (self.index_of(at), self.resend_gap);
        let slot = self.slots.get(index);
        if attempt >= 2 && slot.resends > 0 && !slot.parent_heard {
            // The parent has been asked before and said nothing.
            let suspect = self.parent.map_or(Suspect::Unknown, |parent| Suspect::Switch(parent.node));
            tx.send(Egress::Port(port), &SwitchMlHeader::Waiting { at, suspect }, Body::Empty);
        }
        if now.since(slot.asked_at) < gap {
            return drop_packet(tx, DropReason::InProgress);
        }
        slot.resends = slot.resends.saturating_add(1);
        tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: at.round });
        self.send_up(now, at, attempt, tx);
    }

    /// Some child is missing: says which one, to who asked and, now and then, to the parent, for those who wait elsewhere.
    fn name_missing<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, port: PortId, at: SlotUse, attempt: u8, tx: &mut T) {
        drop_packet(tx, DropReason::InProgress);
        if attempt < 2 {
            return;
        }
        let suspect = match self.slots.missing(self.index_of(at), self.children.len()) {
            Some(Missing::Below(suspect)) => suspect,
            Some(Missing::Child(child)) => self.children[child].missing(),
            None => Suspect::Unknown,
        };
        let waiting = SwitchMlHeader::Waiting { at, suspect };
        tx.send(Egress::Port(port), &waiting, Body::Empty);
        self.tell_parent(now, &waiting, tx);
    }

    fn tell_parent<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, waiting: &SwitchMlHeader, tx: &mut T) {
        let (index, gap) = (self.index_of(waiting.at()), self.resend_gap);
        let slot = self.slots.get(index);
        if let Some(parent) = self.parent
            && (slot.asked_at == Instant::ZERO || now.since(slot.asked_at) >= gap)
        {
            slot.asked_at = now;
            tx.send(Egress::Port(parent.port), waiting, Body::Empty);
        }
    }

    /// `switchml 8`: the result comes down; children get it, and the slot keeps it for those who lose it.
    fn on_result<T: Tx<SwitchMlHeader, P>>(
        &mut self,
        port: PortId,
        (at, exponent): (SlotUse, Option<BlockExponent>),
        payload: &P,
        tx: &mut T,
    ) {
        if !self.is_parent(port) {
            return drop_packet(tx, DropReason::NotAMember);
        }
        let index = self.index_of(at);
        let slot = self.slots.get(index);
        if slot.number != at.round || slot.state != SlotState::Sent {
            let reason = match slot.state {
                SlotState::Done | SlotState::SendingDown if slot.number == at.round => DropReason::Duplicate,
                _ if newer(slot.number, at.round) => DropReason::Stale,
                _ => DropReason::OutsideWindow,
            };
            return drop_packet(tx, reason);
        }
        let op = usize::from(self.calls[index as usize].op);
        let (before, bytes) = (P::acc_bytes(&slot.acc, &self.ops[op]), payload.bytes());
        // Where nobody below has contributed, the result is all that others have; where it is for one rank that hangs on a switch above,
        // nobody below needs it.
        let needed = self.calls[index as usize].receiver == CallLabel::ALL || self.only_receiver(index).is_some();
        let as_long = bytes == before || before == 0 && bytes <= self.block_bytes as usize || bytes == 0 && !needed;
        let fits = exponent.is_some() == self.fixed_point[op] && as_long;
        if !fits || payload.assign(&mut self.slots.get(index).acc, &mut self.ops[op]).is_err() {
            return drop_packet(tx, DropReason::Mismatch);
        }
        if bytes != before {
            tx.note(Event::SlotFreed { bytes: before as u32 });
            tx.note(Event::SlotTaken { bytes: bytes as u32 });
        }
        if let Some(exponent) = exponent {
            self.exponents[index as usize] = exponent;
        }
        self.complete_down(at, tx);
    }

    /// Somebody waits. From the parent: children who asked want to know. From a child: its siblings want to know, and who waits behind the
    /// parent, also where nobody else here has come to the block: of switches in a line each would else only know that the next is silent.
    fn on_waiting<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, port: PortId, at: SlotUse, suspect: Suspect, tx: &mut T) {
        let header = SwitchMlHeader::Waiting { at, suspect };
        let (index, from_parent, child) = (self.index_of(at), self.is_parent(port), self.child(port));
        let slot = self.slots.get(index);
        if from_parent {
            if slot.number != at.round || slot.state != SlotState::Sent {
                return drop_packet(tx, DropReason::Stale);
            }
            slot.parent_heard = true;
            return tx.send(Egress::Ports(&self.ports), &header, Body::Empty);
        }
        let Some(child) = child else { return drop_packet(tx, DropReason::NotAMember) };
        let has_begun = slot.state != SlotState::Empty && !newer(at.round, slot.number);
        if let Some(parent) = self.parent.filter(|_| !has_begun && matches!(slot.state, SlotState::Empty | SlotState::Done)) {
            return tx.send(Egress::Port(parent.port), &header, Body::Empty);
        }
        if slot.number != at.round || slot.state != SlotState::Aggregating || self.slots.has_arrived(index, child) {
            return drop_packet(tx, DropReason::Stale);
        }
        self.slots.get(index).word = Some((child, suspect));
        tx.send(Egress::Ports(&self.ports), &header, Body::Empty);
        self.tell_parent(now, &header, tx);
    }

    /// The parent does not take what this switch sent: nobody below can go on.
    fn on_rejected<T: Tx<SwitchMlHeader, P>>(&mut self, port: PortId, at: SlotUse, tx: &mut T) {
        if !self.is_parent(port) {
            return drop_packet(tx, DropReason::NotAMember);
        }
        let index = self.index_of(at);
        let slot = self.slots.get(index);
        if slot.number != at.round || slot.state != SlotState::Sent {
            return drop_packet(tx, DropReason::Stale);
        }
        tx.send(Egress::Ports(&self.ports), &SwitchMlHeader::Rejected { at }, Body::Empty);
    }
}

impl<P: Payload + ?Sized> Node<P> for SwitchMlSwitch<P> {
    type Header = SwitchMlHeader;

    #[inline]
    fn on_packet<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, from: Ingress, header: &SwitchMlHeader, payload: &P, tx: &mut T) {
        if let SwitchMlHeader::Contribution { at, exponent, call, .. } = *header
            && let Some(missing) = self.add(&Form { at, exponent, call }, from.port, payload, tx)
        {
            if missing == 0 {
                self.complete(now, at, tx);
            }
            return;
        }
        if u32::from(header.at().slot) >= self.pool {
            return drop_packet(tx, DropReason::OutsideWindow);
        }
        match *header {
            SwitchMlHeader::Contribution { at, attempt, exponent, call } => {
                self.on_contribution(now, from.port, (Form { at, exponent, call }, attempt), payload, tx);
            }
            SwitchMlHeader::Result { at, exponent } => self.on_result(from.port, (at, exponent), payload, tx),
            SwitchMlHeader::Waiting { at, suspect } => self.on_waiting(now, from.port, at, suspect, tx),
            SwitchMlHeader::Rejected { at } => self.on_rejected(from.port, at, tx),
        }
    }

    /// `switchml 10`: a switch has no timeouts.
    fn on_timeout<T: Tx<SwitchMlHeader, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    /// Sends what waits for room, in the order in which it was made.
    fn on_tx_ready<T: Tx<SwitchMlHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        while let (Some(parent), Some(&at)) = (self.parent, self.waiting_up.front()) {
            if !tx.room(Egress::Port(parent.port)) {
                break;
            }
            self.waiting_up.pop_front();
            self.send_up(now, at, 0, tx);
        }
        while let Some(&at) = self.waiting_down.front() {
            if !tx.room(Egress::Ports(&self.ports)) {
                break;
            }
            self.waiting_down.pop_front();
            self.send_down(at, tx);
        }
    }
}
