//! The aggregator of one job at one switch of static trees. The states of its slots, and why nothing is counted twice, are in the
//! [module's documentation](super).

use std::collections::VecDeque;

use fanin_core::{Address, Body, DropReason, Duration, Event, Ingress, Instant, JobId, Payload, PortId, RetransmitReason, Suspect, Tx};

use super::config::{TreeChild, TreeParent, TreeRole, TreeSwitchConfig, tree_of_block, window_blocks};
use super::far::{Children, Far};
use super::format::{Marks, TreeFormat, TreePacket};
use super::ordered::Ordered;
use super::planted::Planted;
use crate::shared::kept::KeptSlot;
use crate::shared::serial::newer;
use crate::shared::slots::{Missing, SlotState, Slots};
use crate::shared::state::node_state;

/// Marks a port that leads to no child.
const NO_CHILD: u16 = u16::MAX;

/// The switch's place in one tree, prepared for fast look-up.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Place {
    parent: Option<TreeParent>,
    children: Box<[TreeChild]>,
    /// The child at each port, or [`NO_CHILD`].
    child_at: Box<[u16]>,
    /// The ports of all children.
    all: Children,
    /// Slots that wait for room on the way up, and on the way down.
    waiting_up: VecDeque<u32>,
    waiting_down: VecDeque<u32>,
}

impl Place {
    #[inline]
    fn child(&self, port: PortId) -> Option<u16> {
        self.child_at.get(port.index()).copied().filter(|child| *child != NO_CHILD)
    }

    #[inline]
    fn is_parent(&self, port: PortId) -> bool {
        self.parent.is_some_and(|parent| parent.port == port)
    }
}

/// The aggregator of one job at one switch, with its role in each of the job's trees.
pub struct Reduction<P: Payload + ?Sized> {
    job: JobId,
    op: P::Op,
    block_bytes: u32,
    reliable: bool,
    resend_gap: Duration,
    places: Box<[Option<Place>]>,
    far: Far,
    slots: Slots<P::Acc>,
    /// Where sums have a fixed order.
    ordered: Option<Ordered<P>>,
    /// Accumulators of a slot.
    accumulators: u32,
    /// Number of slots in all `waiting_up` and `waiting_down`.
    waiting_count: u32,
    planted: Planted,
}

node_state!(Reduction { job, op, block_bytes, reliable, resend_gap, places, far, slots, ordered, accumulators, waiting_count, planted });

/// What a handler works on: the slots, and the switch's place in the block's tree.
struct At<'a, P: Payload + ?Sized> {
    op: &'a mut P::Op,
    slots: &'a mut Slots<P::Acc>,
    ordered: &'a mut Option<Ordered<P>>,
    accumulators: u32,
    place: &'a mut Place,
    far: &'a Far,
    waiting_count: &'a mut u32,
    reliable: bool,
    block_bytes: u32,
    resend_gap: Duration,
    planted: Planted,
    /// The block and its slot.
    block: u32,
    index: u32,
}

impl<P: Payload + ?Sized> Reduction<P> {
    /// A switch with all its memory: two slots for every block of the window.
    ///
    /// # Panics
    /// Where there is no tree, or a role has no child or more than 65,534.
    pub fn new(config: TreeSwitchConfig<P::Op>) -> Self {
        assert!(!config.trees.is_empty(), "a job has at least one tree");
        let slot_count = 2 * window_blocks(config.window);
        let children_max = config.trees.iter().flatten().map(|role| role.children.len()).max().unwrap_or(0);
        let far = Far::none(config.job);
        let ordered = config.fixed_order.then(|| Ordered::new(slot_count, children_max as u32, &config.op, config.block_bytes));
        let more = if config.fixed_order { Ordered::<P>::accumulators(children_max as u32) } else { 0 };
        let place = |role: TreeRole| {
            assert!((1..usize::from(NO_CHILD)).contains(&role.children.len()), "a role has 1 to 65534 children");
            let all = Children::new(role.children.iter().map(|child| child.port), &far);
            let highest = role.children.iter().map(|child| child.port.index()).max().unwrap_or(0);
            let mut child_at = vec![NO_CHILD; highest + 1];
            for (number, child) in role.children.iter().enumerate() {
                child_at[child.port.index()] = number as u16;
            }
            Place {
                parent: role.parent,
                children: role.children.into(),
                child_at: child_at.into(),
                all,
                waiting_up: VecDeque::new(),
                waiting_down: VecDeque::new(),
            }
        };
        Reduction {
            job: config.job,
            slots: Slots::new::<P>(slot_count, children_max, &config.op, config.block_bytes),
            ordered,
            accumulators: 1 + more,
            op: config.op,
            block_bytes: config.block_bytes,
            reliable: config.reliable,
            resend_gap: config.resend_gap,
            places: config.trees.into_iter().map(|role| role.map(place)).collect(),
            far,
            waiting_count: 0,
            planted: Planted::NONE,
        }
    }

    /// Ports from `first` on are numbers that no cable has: of children and parents at these addresses, behind switches that only forward.
    #[must_use]
    pub fn with_far(mut self, first: PortId, at: Vec<Address>) -> Self {
        self.far = Far::new(self.job, first, at);
        for place in self.places.iter_mut().flatten() {
            place.all = Children::new(place.children.iter().map(|child| child.port), &self.far);
        }
        self
    }

    /// The job that the switch aggregates for.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// What slots hold, for a program that goes on with the job; `None` where the switch is not the root of the only tree, its sums have an
    /// order, or something waits for room.
    pub fn kept(&self) -> Option<impl Iterator<Item = KeptSlot<'_, P::Acc>>> {
        let is_root = matches!(&*self.places, [Some(Place { parent: None, .. })]);
        let kept = |index: u32| {
            let slot = self.slots.peek(index);
            KeptSlot {
                slot: 0,
                number: slot.number,
                is_done: slot.state == SlotState::Done,
                arrived: self.slots.arrived(index),
                op: 0,
                receiver: u16::MAX,
                fingerprint: 0,
                exponent: 0,
                acc: &slot.acc,
            }
        };
        (is_root && self.reliable && self.ordered.is_none() && self.slots.are_at_rest()).then(|| self.slots.in_use().map(kept))
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
    }

    /// The job is over: nothing is kept of it.
    pub fn reclaim<F: TreeFormat, T: Tx<F, P>>(&mut self, tx: &mut T) {
        for slot in self.slots.iter_mut().filter(|slot| slot.state != SlotState::Empty) {
            slot.state = SlotState::Empty;
            tx.note(Event::SlotReclaimed { job: self.job, bytes: P::acc_bytes(&slot.acc, &self.op) as u32 * self.accumulators });
        }
        if let Some(ordered) = &mut self.ordered {
            ordered.clear();
        }
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.slots.rebase(now);
    }

    /// The switch's place in a block's tree, if it has one.
    #[inline]
    fn at(&mut self, block: u32) -> Option<At<'_, P>> {
        let tree = tree_of_block(block, self.places.len() as u32);
        let index = self.slots.index_of(block);
        Some(At {
            place: self.places[tree as usize].as_mut()?,
            far: &self.far,
            op: &mut self.op,
            slots: &mut self.slots,
            ordered: &mut self.ordered,
            accumulators: self.accumulators,
            waiting_count: &mut self.waiting_count,
            reliable: self.reliable,
            block_bytes: self.block_bytes,
            resend_gap: self.resend_gap,
            planted: self.planted,
            block,
            index,
        })
    }
}

impl<P: Payload + ?Sized> Reduction<P> {
    /// `baselines 5`, `switchml 4`: adds a child's first contribution to a block that has begun, the way of most packets. `None`, and nothing is changed, where the
    /// packet is anything else.
    #[inline]
    fn add(&mut self, block: u32, port: PortId, marked: bool, payload: &P) -> Option<u32> {
        let tree = tree_of_block(block, self.places.len() as u32);
        let child = self.places[tree as usize].as_ref()?.child(port)?;
        let index = self.slots.index_of(block);
        let repeated = self.slots.has_arrived(index, child) && !self.planted.ignores_bitmap();
        let slot = self.slots.get(index);
        if repeated || slot.number != block || slot.state != SlotState::Aggregating {
            return None;
        }
        match &mut self.ordered {
            None => payload.reduce(&mut slot.acc, &mut self.op).ok()?,
            Some(ordered) => ordered.add(index, child, payload, &mut slot.acc, &mut self.op)?,
        }
        slot.marks.up |= marked;
        Some(self.slots.mark_arrived(index, child))
    }
}

#[inline]
fn drop_packet<P: Payload + ?Sized, F: TreeFormat, T: Tx<F, P>>(tx: &mut T, reason: DropReason) {
    tx.note(Event::Dropped(reason));
}

impl<P: Payload + ?Sized> At<'_, P> {
    /// A contribution that [`Reduction::add`] leaves: it begins a block, or it was counted before, or it does not fit.
    fn on_contribution<F: TreeFormat, T: Tx<F, P>>(
        &mut self,
        now: Instant,
        port: PortId,
        (attempt, marked): (u8, bool),
        payload: &P,
        tx: &mut T,
    ) {
        let Some(child) = self.place.child(port) else { return drop_packet(tx, DropReason::NotAMember) };
        let slot = self.slots.get(self.index);
        if slot.state != SlotState::Empty && slot.number == self.block {
            if slot.state == SlotState::Aggregating && !self.slots.has_arrived(self.index, child) {
                // `Reduction::add` could not add it.
                return self.reject(port, tx);
            }
            return self.on_repeat(now, port, attempt, tx);
        }
        if slot.state != SlotState::Empty && !newer(self.block, slot.number) {
            return drop_packet(tx, DropReason::Stale);
        }
        let is_over = match slot.state {
            SlotState::Empty | SlotState::Done => true,
            // "Exactly once": a late packet has begun the block after this switch lost its memory.
            SlotState::Aggregating | SlotState::Sent => self.reliable,
            SlotState::SendingUp | SlotState::SendingDown => false,
        };
        if !is_over {
            // No worker may be that far ahead, or, where this switch has lost its memory, its packet comes again.
            return drop_packet(tx, DropReason::OutsideWindow);
        }
        if !self.begin(child, marked, payload, tx) {
            return self.reject(port, tx);
        }
        if self.slots.mark_arrived(self.index, child) == 0 {
            self.complete(now, tx);
        }
    }

    /// All children have contributed.
    #[inline]
    fn complete<F: TreeFormat, T: Tx<F, P>>(&mut self, now: Instant, tx: &mut T) {
        tx.note(Event::Scanned { places: 0 });
        if self.place.parent.is_some() { self.complete_up(now, tx) } else { self.complete_down(tx) }
    }

    /// A block's first contribution takes the slot. False where it does not fit.
    fn begin<F: TreeFormat, T: Tx<F, P>>(&mut self, child: u16, marked: bool, payload: &P, tx: &mut T) -> bool {
        let bytes = payload.bytes();
        if bytes == 0 || bytes > self.block_bytes as usize {
            return false;
        }
        let slot = self.slots.get(self.index);
        let freed = P::acc_bytes(&slot.acc, self.op) as u32 * self.accumulators;
        let stored = if self.planted.keeps_accumulator() && slot.state == SlotState::Done {
            payload.reduce(&mut slot.acc, self.op)
        } else {
            payload.assign(&mut slot.acc, self.op)
        };
        if stored.is_err() {
            return false;
        }
        if let Some(ordered) = self.ordered {
            ordered.begin(self.index, self.place.children.len() as u32);
            if ordered.add(self.index, child, payload, &mut slot.acc, self.op).is_none() {
                return false;
            }
        }
        if slot.state != SlotState::Empty {
            tx.note(Event::SlotFreed { bytes: freed });
        }
        tx.note(Event::SlotTaken { bytes: bytes as u32 * self.accumulators });
        slot.number = self.block;
        slot.state = SlotState::Aggregating;
        slot.missing = self.place.children.len() as u32;
        slot.resends = 0;
        (slot.parent_heard, slot.word) = (false, None);
        slot.asked_at = Instant::ZERO;
        slot.marks = Marks { up: marked, down: false };
        self.slots.forget_arrivals(self.index);
        true
    }

    /// The contribution differs in length from the one that came first: ranks disagree about the operation.
    #[cold]
    fn reject<F: TreeFormat, T: Tx<F, P>>(&mut self, port: PortId, tx: &mut T) {
        drop_packet(tx, DropReason::Mismatch);
        tx.send(self.far.way(port), &F::pack(TreePacket::Rejected { block: self.block }), Body::Empty);
    }

    /// All children have contributed: the partial aggregate goes up.
    fn complete_up<F: TreeFormat, T: Tx<F, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(parent) = self.place.parent else { return };
        if !self.place.waiting_up.is_empty() || !tx.room(self.far.way(parent.port)) {
            self.slots.get(self.index).state = SlotState::SendingUp;
            self.place.waiting_up.push_back(self.index);
            *self.waiting_count += 1;
            return;
        }
        self.send_up(now, 0, tx);
    }

    fn send_up<F: TreeFormat, T: Tx<F, P>>(&mut self, now: Instant, attempt: u8, tx: &mut T) {
        let Some(parent) = self.place.parent else { return };
        let slot = self.slots.get(self.index);
        tx.send(
            self.far.way(parent.port),
            &F::pack(TreePacket::Contribution { block: self.block, attempt, marked: slot.marks.up }),
            Body::Acc(&slot.acc),
        );
        slot.asked_at = now;
        if self.reliable {
            slot.state = SlotState::Sent;
        } else {
            // `baselines 5`: nothing needs to be remembered, since children are static and nothing is lost.
            slot.state = SlotState::Empty;
            tx.note(Event::SlotFreed { bytes: P::acc_bytes(&slot.acc, self.op) as u32 * self.accumulators });
        }
    }

    /// The slot holds the sum: it goes to all children.
    fn complete_down<F: TreeFormat, T: Tx<F, P>>(&mut self, tx: &mut T) {
        if !self.place.waiting_down.is_empty() || !self.place.all.have_room(self.far, tx) {
            self.slots.get(self.index).state = SlotState::SendingDown;
            self.place.waiting_down.push_back(self.index);
            *self.waiting_count += 1;
            return;
        }
        self.send_down(tx);
    }

    fn send_down<F: TreeFormat, T: Tx<F, P>>(&mut self, tx: &mut T) {
        let slot = self.slots.get(self.index);
        self.place.all.send(self.far, &F::pack(TreePacket::Aggregate { block: self.block, marks: slot.marks }), Body::Acc(&slot.acc), tx);
        if self.reliable {
            slot.state = SlotState::Done;
        } else {
            slot.state = SlotState::Empty;
            tx.note(Event::SlotFreed { bytes: P::acc_bytes(&slot.acc, self.op) as u32 * self.accumulators });
        }
    }

    /// `switchml 4, 8`: a contribution that is counted already. One that was not sent again on purpose is a duplicate of the network.
    #[cold]
    fn on_repeat<F: TreeFormat, T: Tx<F, P>>(&mut self, now: Instant, port: PortId, attempt: u8, tx: &mut T) {
        if attempt == 0 {
            return drop_packet(tx, DropReason::Duplicate);
        }
        let slot = self.slots.get(self.index);
        match slot.state {
            SlotState::Done => {
                tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: self.block });
                tx.send(self.far.way(port), &F::pack(TreePacket::Aggregate { block: self.block, marks: slot.marks }), Body::Acc(&slot.acc));
            }
            SlotState::Sent => self.ask_parent(now, port, attempt, tx),
            SlotState::Aggregating => self.name_missing(now, port, attempt, tx),
            SlotState::Empty | SlotState::SendingUp | SlotState::SendingDown => drop_packet(tx, DropReason::InProgress),
        }
    }

    /// The partial aggregate, or the sum on its way down, was lost above this switch: sends it up again, but not for every child.
    fn ask_parent<F: TreeFormat, T: Tx<F, P>>(&mut self, now: Instant, port: PortId, attempt: u8, tx: &mut T) {
        let slot = self.slots.get(self.index);
        if attempt >= 2 && slot.resends > 0 && !slot.parent_heard {
            // The parent has been asked before and said nothing.
            let suspect = self.place.parent.map_or(Suspect::Unknown, |parent| Suspect::Switch(parent.node));
            tx.send(self.far.way(port), &F::pack(TreePacket::Waiting { block: self.block, suspect }), Body::Empty);
        }
        if now.since(slot.asked_at) < self.resend_gap {
            return drop_packet(tx, DropReason::InProgress);
        }
        slot.resends = slot.resends.saturating_add(1);
        tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: self.block });
        self.send_up(now, attempt, tx);
    }

    /// Some child is missing: says which one, to who asked and, now and then, to the parent, for those who wait elsewhere in the tree.
    fn name_missing<F: TreeFormat, T: Tx<F, P>>(&mut self, now: Instant, port: PortId, attempt: u8, tx: &mut T) {
        drop_packet(tx, DropReason::InProgress);
        if attempt < 2 {
            return;
        }
        let suspect = match self.slots.missing(self.index, self.place.children.len()) {
            Some(Missing::Below(suspect)) => suspect,
            Some(Missing::Child(child)) => self.place.children[child].missing(),
            None => Suspect::Unknown,
        };
        let waiting = F::pack(TreePacket::Waiting { block: self.block, suspect });
        tx.send(self.far.way(port), &waiting, Body::Empty);
        self.tell_parent(now, &waiting, tx);
    }

    fn tell_parent<F: TreeFormat, T: Tx<F, P>>(&mut self, now: Instant, waiting: &F, tx: &mut T) {
        let slot = self.slots.get(self.index);
        if let Some(parent) = self.place.parent
            && (slot.asked_at == Instant::ZERO || now.since(slot.asked_at) >= self.resend_gap)
        {
            slot.asked_at = now;
            tx.send(self.far.way(parent.port), waiting, Body::Empty);
        }
    }

    /// `baselines 5`: the sum comes down; children get it, and the slot keeps it for those who lose it.
    fn on_aggregate<F: TreeFormat, T: Tx<F, P>>(&mut self, port: PortId, marks: Marks, payload: &P, tx: &mut T) {
        if !self.place.is_parent(port) {
            return drop_packet(tx, DropReason::NotAMember);
        }
        if !self.reliable {
            return self.pass_down(marks, payload, tx);
        }
        let slot = self.slots.get(self.index);
        if slot.number != self.block || slot.state != SlotState::Sent {
            let reason = match slot.state {
                SlotState::Done | SlotState::SendingDown if slot.number == self.block => DropReason::Duplicate,
                _ if newer(slot.number, self.block) => DropReason::Stale,
                _ => DropReason::OutsideWindow,
            };
            return drop_packet(tx, reason);
        }
        if payload.bytes() != P::acc_bytes(&slot.acc, self.op) || payload.assign(&mut slot.acc, self.op).is_err() {
            return drop_packet(tx, DropReason::Mismatch);
        }
        slot.marks = marks;
        self.complete_down(tx);
    }

    /// Without loss recovery the sum takes no slot, unless there is no room on the way down.
    fn pass_down<F: TreeFormat, T: Tx<F, P>>(&mut self, marks: Marks, payload: &P, tx: &mut T) {
        if self.place.waiting_down.is_empty() && self.place.all.have_room(self.far, tx) {
            let header = F::pack(TreePacket::Aggregate { block: self.block, marks });
            return self.place.all.send(self.far, &header, Body::Borrowed(payload), tx);
        }
        let slot = self.slots.get(self.index);
        if slot.state != SlotState::Empty {
            return drop_packet(tx, DropReason::OutsideWindow);
        }
        if payload.bytes() > self.block_bytes as usize || payload.assign(&mut slot.acc, self.op).is_err() {
            return drop_packet(tx, DropReason::Mismatch);
        }
        (slot.number, slot.marks) = (self.block, marks);
        tx.note(Event::SlotTaken { bytes: payload.bytes() as u32 * self.accumulators });
        self.complete_down(tx);
    }

    /// Somebody waits. From the parent: children who asked want to know. From a child: its siblings want to know, and who waits behind the
    /// parent, also where nobody else here has come to the block: of switches in a line each would else only know that the next is silent.
    fn on_waiting<F: TreeFormat, T: Tx<F, P>>(&mut self, now: Instant, port: PortId, suspect: Suspect, tx: &mut T) {
        let header = F::pack(TreePacket::Waiting { block: self.block, suspect });
        let slot = self.slots.get(self.index);
        if self.place.is_parent(port) {
            if slot.number != self.block || slot.state != SlotState::Sent {
                return drop_packet(tx, DropReason::Stale);
            }
            slot.parent_heard = true;
            return self.place.all.send(self.far, &header, Body::Empty, tx);
        }
        let Some(child) = self.place.child(port) else { return drop_packet(tx, DropReason::NotAMember) };
        let has_begun = slot.state != SlotState::Empty && !newer(self.block, slot.number);
        let is_free = matches!(slot.state, SlotState::Empty | SlotState::Done);
        if let Some(parent) = self.place.parent.filter(|_| !has_begun && is_free) {
            return tx.send(self.far.way(parent.port), &header, Body::Empty);
        }
        if slot.number != self.block || slot.state != SlotState::Aggregating || self.slots.has_arrived(self.index, child) {
            return drop_packet(tx, DropReason::Stale);
        }
        self.slots.get(self.index).word = Some((child, suspect));
        self.place.all.send(self.far, &header, Body::Empty, tx);
        self.tell_parent(now, &header, tx);
    }

    /// The parent does not take what this switch sent: nobody below can go on.
    fn on_rejected<F: TreeFormat, T: Tx<F, P>>(&mut self, port: PortId, tx: &mut T) {
        if !self.place.is_parent(port) {
            return drop_packet(tx, DropReason::NotAMember);
        }
        let slot = self.slots.get(self.index);
        if self.reliable && (slot.number != self.block || slot.state != SlotState::Sent) {
            return drop_packet(tx, DropReason::Stale);
        }
        self.place.all.send(self.far, &F::pack(TreePacket::Rejected { block: self.block }), Body::Empty, tx);
    }

    /// Sends what waits for room, in the order in which it was made.
    fn flush<F: TreeFormat, T: Tx<F, P>>(&mut self, now: Instant, tx: &mut T) {
        while let (Some(parent), Some(&index)) = (self.place.parent, self.place.waiting_up.front()) {
            if !tx.room(self.far.way(parent.port)) {
                break;
            }
            self.place.waiting_up.pop_front();
            *self.waiting_count -= 1;
            (self.index, self.block) = (index, self.slots.get(index).number);
            self.send_up(now, 0, tx);
        }
        while let Some(&index) = self.place.waiting_down.front() {
            if !self.place.all.have_room(self.far, tx) {
                break;
            }
            self.place.waiting_down.pop_front();
            *self.waiting_count -= 1;
            (self.index, self.block) = (index, self.slots.get(index).number);
            self.send_down(tx);
        }
    }
}

impl<P: Payload + ?Sized> Reduction<P> {
    /// A packet arrived.
    #[inline]
    pub fn on_packet<F: TreeFormat, T: Tx<F, P>>(&mut self, now: Instant, from: Ingress, header: &F, payload: &P, tx: &mut T) {
        let packet = header.unpack();
        let met_congestion = F::MARKS && from.ecn;
        let port = self.far.port(&from);
        if let TreePacket::Contribution { block, marked, .. } = packet
            && let Some(missing) = self.add(block, port, marked | met_congestion, payload)
        {
            if missing == 0
                && let Some(mut at) = self.at(block)
            {
                at.complete(now, tx);
            }
            return;
        }
        let (TreePacket::Contribution { block, .. }
        | TreePacket::Aggregate { block, .. }
        | TreePacket::Waiting { block, .. }
        | TreePacket::Rejected { block }) = packet;
        let Some(mut at) = self.at(block) else { return drop_packet(tx, DropReason::NotAMember) };
        match packet {
            TreePacket::Contribution { attempt, marked, .. } => {
                at.on_contribution(now, port, (attempt, marked | met_congestion), payload, tx);
            }
            TreePacket::Aggregate { marks, .. } => {
                at.on_aggregate(port, Marks { down: marks.down | met_congestion, ..marks }, payload, tx);
            }
            TreePacket::Waiting { suspect, .. } => at.on_waiting(now, port, suspect, tx),
            TreePacket::Rejected { .. } => at.on_rejected(port, tx),
        }
    }

    /// There is room again.
    pub fn on_tx_ready<F: TreeFormat, T: Tx<F, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.waiting_count == 0 {
            return;
        }
        // Block t is on tree t, for every t less than the number of trees.
        for tree in 0..self.places.len() as u32 {
            if let Some(mut at) = self.at(tree) {
                at.flush(now, tx);
            }
        }
    }
}
