//! The accelerator of a NetReduce job at one switch. What its slots go through, and why nothing is counted twice, is in the
//! [module's documentation](super).

mod questions;
mod recovery;

use fanin_core::{
    Body, DropReason, Duration, Egress, Event, FlowLabel, Ingress, Instant, JobId, Node, NodeId, Payload, PortId, PortSet, Rank,
    RetransmitReason, Route, Suspect, Tx,
};
use fanin_wire::netreduce::{NetReduceHeader, PacketNumber};

use super::config::{
    Deallocation, MessageShape, NetReduceChild, NetReduceParent, NetReduceSwitchConfig, Reemission, Variants, WORKERS_MAX,
};
use super::connections::{Connection, Entry, Place};
use super::halves::Halves;
use super::planted::Planted;
use crate::shared::connection::Psn;
use crate::shared::reliability::Reliability;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;
use crate::shared::slots::{SlotState, Slots};
use crate::shared::state::node_state;
use questions::Above;
use recovery::Answer;

/// Marks a port without a child, and a rank without a connection here.
pub(super) const NONE: u16 = u16::MAX;

/// What a switch knows of a child.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Seen {
    /// When it was last heard.
    pub heard_at: Instant,
    /// When it was last told who is missing.
    pub told_at: Option<Instant>,
    /// Since when it has left questions unanswered.
    pub asked_since: Option<Instant>,
    /// The message that it said it waits with, and for whom: a switch.
    pub reported: Option<(u32, Suspect)>,
}

impl Seen {
    /// Something has come from it.
    #[inline]
    pub(super) fn on_heard(&mut self, now: Instant) {
        (self.heard_at, self.asked_since) = (now, None);
    }
}

/// Who asks for a sum by its contribution.
#[derive(Clone, Copy)]
enum Asker {
    /// A worker here, over its connection; [`PacketNumber::is_marked`] says whether its packet was marked on the way.
    Worker { connection: u16, at: PacketNumber },
    /// A switch below.
    Switch,
}

/// The accelerator of one job at one switch.
pub struct NetReduceSwitch<P: Payload + ?Sized> {
    pub(super) node: NodeId,
    job: JobId,
    op: P::Op,
    workers: u32,
    block_bytes: u32,
    pub(super) shape: MessageShape,
    pub(super) parent: Option<NetReduceParent>,
    pub(super) children: Box<[NetReduceChild]>,
    /// The child at each port, or [`NONE`].
    child_at: Box<[u16]>,
    /// By rank: which child it is, or [`NONE`].
    pub(super) child_of: Box<[u16]>,
    /// The ports of all children, and of those that are switches.
    pub(super) below: PortSet,
    pub(super) switches: PortSet,
    pub(super) connections: Box<[Connection]>,
    /// By rank: where its connection stands in `connections`, or [`NONE`].
    connection_of: Box<[u16]>,
    /// Packet o of message m is in slot (m mod 2N) `MsgLen` + o; a slot's number is its message.
    pub(super) slots: Slots<P::Acc>,
    /// What each child has contributed to each slot, and whether that was marked on its way.
    held: Box<[P::Acc]>,
    marked: Box<[bool]>,
    pub(super) seen: Box<[Seen]>,
    pub(super) above: Above,
    pub(super) flow: FlowLabel,
    pub(super) patience: Duration,
    pub(super) resend_gap: Duration,
    pub(super) variants: Variants,
    /// The halves of each connection; none where cards recover alone.
    pub(super) halves: Box<[Halves]>,
    /// How receivers' answers are waited for.
    pub(super) answers: Reliability,
    /// No timer of a half runs out earlier.
    pub(super) wake_at: Option<Instant>,
    /// The job's first message.
    pub(super) first_message: u32,
    /// Sums from the parent are there of all places before this one.
    pub(super) head: Place,
    /// The job is over; who was missing.
    pub(super) aborted: Option<Suspect>,
    planted: Planted,
}

node_state!(NetReduceSwitch {
    node,
    job,
    op,
    workers,
    block_bytes,
    shape,
    parent,
    children,
    child_at,
    child_of,
    below,
    switches,
    connections,
    connection_of,
    slots,
    held,
    marked,
    seen,
    above,
    flow,
    patience,
    resend_gap,
    variants,
    halves,
    answers,
    wake_at,
    first_message,
    head,
    aborted,
    planted,
});

impl<P: Payload + ?Sized> NetReduceSwitch<P> {
    /// A switch with all its memory: slots for the messages of two windows, each with a buffer for every child.
    ///
    /// # Panics
    /// Where there is no child or more than 65,534, the shape is impossible, or a rank is too large.
    pub fn new(config: NetReduceSwitchConfig<P::Op>) -> Self {
        assert!((1..usize::from(NONE)).contains(&config.children.len()), "1 to 65534 children");
        assert!(config.shape.is_possible() && config.workers <= WORKERS_MAX, "numbers have room");
        let highest = config.children.iter().map(|child| child.port.index()).max().unwrap_or(0);
        let mut child_at = vec![NONE; highest + 1];
        for (number, child) in config.children.iter().enumerate() {
            child_at[child.port.index()] = number as u16;
        }
        let mut child_of = vec![NONE; config.workers as usize];
        for (number, child) in config.children.iter().enumerate() {
            if let Suspect::Rank(rank) = child.who {
                child_of[rank.index()] = number as u16;
            }
        }
        let mut connection_of = vec![NONE; config.workers as usize];
        for (number, connection) in config.connections.iter().enumerate() {
            connection_of[connection.rank.index()] = number as u16;
        }
        let kept = config.shape.kept();
        let count = kept * u32::from(config.shape.packets);
        let buffer = |_| P::accumulator(&config.op, config.block_bytes as usize);
        let slots = Slots::new::<P>(count, config.children.len(), &config.op, config.block_bytes);
        let is_switch = |child: &&NetReduceChild| !matches!(child.who, Suspect::Rank(_));
        let mut switch = NetReduceSwitch {
            node: config.node,
            above: Above::default(),
            job: config.job,
            workers: config.workers,
            block_bytes: config.block_bytes,
            shape: config.shape,
            parent: config.parent,
            child_at: child_at.into(),
            child_of: child_of.into(),
            below: config.children.iter().map(|child| child.port).collect(),
            switches: config.children.iter().filter(is_switch).map(|child| child.port).collect(),
            halves: Box::default(),
            answers: config.answers,
            wake_at: None,
            first_message: 0,
            head: Place { message: 0, offset: 0 },
            connections: config.connections.iter().map(|connection| Connection::new(*connection, kept)).collect(),
            connection_of: connection_of.into(),
            slots,
            held: (0..count as usize * config.children.len()).map(buffer).collect(),
            marked: vec![false; count as usize * config.children.len()].into(),
            seen: vec![Seen { heard_at: Instant::ZERO, told_at: None, asked_since: None, reported: None }; config.children.len()].into(),
            children: config.children.into(),
            op: config.op,
            flow: config.flow,
            patience: config.patience,
            resend_gap: config.resend_gap,
            variants: config.variants,
            aborted: None,
            planted: Planted::NONE,
        };
        switch.first_message(0);
        switch
    }

    /// Takes messages from this number on instead of from 0: all slots are of older ones. The same at all workers and switches of a job,
    /// before anything is sent.
    pub fn first_message(&mut self, message: u32) {
        for index in 0..self.shape.kept() * u32::from(self.shape.packets) {
            self.slots.get(index).number = message.wrapping_sub(1 << 30);
        }
        self.first_message = message;
        self.head = Place { message, offset: 0 };
        let count = if self.recovers() { self.connections.len() } else { 0 };
        self.halves = (0..count).map(|_| Halves::new(message)).collect();
    }

    /// The job that the switch aggregates for.
    pub fn job(&self) -> JobId {
        self.job
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        self.slots.rebase(now);
        self.above.rebase(now);
        for seen in &mut self.seen {
            seen.heard_at = rebased(seen.heard_at, now);
            seen.told_at = seen.told_at.map(|at| rebased(at, now));
            seen.asked_since = seen.asked_since.map(|at| rebased(at, now));
        }
        self.halves.iter_mut().for_each(|halves| halves.rebase(now));
        self.plan_wake();
    }

    #[inline]
    pub(super) fn child(&self, port: PortId) -> Option<u16> {
        self.child_at.get(port.index()).copied().filter(|child| *child != NONE)
    }

    /// The child that has sent a packet: by the port, or where other switches forward what comes from it.
    pub(super) fn child_from(&self, from: Ingress) -> Option<u16> {
        let sender = |child: &u16| self.children[usize::from(*child)].through.is_none_or(|worker| worker == from.source);
        let beyond = || (0..self.children.len() as u16).find(|child| self.children[usize::from(*child)].through == Some(from.source));
        self.child(from.port).filter(sender).or_else(beyond)
    }

    /// The way to a child.
    #[inline]
    pub(super) fn to_child(&self, child: u16) -> Egress<'static> {
        let NetReduceChild { port, through, .. } = self.children[usize::from(child)];
        through.map_or(Egress::Port(port), |worker| Egress::Route(Route::direct(worker, self.flow)))
    }

    /// The way to the worker that a connection ends at, where that is below this switch.
    #[inline]
    pub(super) fn to_end(&self, connection: &Connection) -> Option<Egress<'static>> {
        let port = connection.config.ends_at?;
        Some(connection.config.through.map_or(Egress::Port(port), |worker| Egress::Route(Route::direct(worker, self.flow))))
    }

    /// Where a child's contribution to a slot is held.
    #[inline]
    fn place_of(&self, index: u32, child: u16) -> usize {
        index as usize * self.children.len() + usize::from(child)
    }

    #[inline]
    pub(super) fn connection(&self, rank: u16) -> Option<u16> {
        self.connection_of.get(usize::from(rank)).copied().filter(|number| *number != NONE)
    }

    #[inline]
    pub(super) fn index(&self, place: Place) -> u32 {
        (place.message & (self.shape.kept() - 1)) * u32::from(self.shape.packets) + u32::from(place.offset)
    }

    /// Payload memory of a slot: a buffer for each child.
    fn slot_bytes(&self) -> u32 {
        self.block_bytes.saturating_mul(self.children.len() as u32)
    }

    /// The ring's number on the wire.
    #[inline]
    pub(super) fn ring(&self) -> u16 {
        self.job.0
    }
}

/// What whoever runs an accelerator between real network cards asks it.
impl<P: Payload + ?Sized> NetReduceSwitch<P> {
    /// Whether anybody waits for somebody's contribution.
    pub fn is_waiting(&self) -> bool {
        (0..self.shape.kept() * u32::from(self.shape.packets)).any(|index| self.slots.peek(index).state == SlotState::Aggregating)
    }

    /// What the first packet of a rank's message said: its number, how many packets the message has, and how many bytes. `None` where it
    /// has not come, or long ago.
    pub fn message(&self, rank: u16, message: u32) -> Option<(Psn, u16, u32)> {
        let connection = &self.connections[usize::from(self.connection(rank)?)];
        connection.message(message).map(|entry| (entry.psn, entry.packets, entry.length))
    }

    /// The newest of a rank's messages that has shown its first packet.
    pub fn newest(&self, rank: u16) -> Option<u32> {
        self.connections[usize::from(self.connection(rank)?)].newest()
    }

    /// Whether there are, or have been, the sums of all packets of a rank's message.
    pub fn has_summed(&self, rank: u16, message: u32) -> bool {
        let Some((_, packets, _)) = self.message(rank, message) else { return false };
        (0..packets).all(|offset| {
            let slot = self.slots.peek(self.index(Place { message, offset }));
            // One that is empty has been let go.
            let is_done = slot.number == message && matches!(slot.state, SlotState::Done | SlotState::Empty);
            is_done || newer(slot.number, message)
        })
    }
}

/// Contributions.
impl<P: Payload + ?Sized> NetReduceSwitch<P> {
    /// The child and the connection of a worker's packet: it may send on its own only, and no sums.
    #[inline]
    fn sender(&self, from: Ingress, rank: u16, at: PacketNumber) -> Option<(u16, u16)> {
        let child = self.child_of.get(usize::from(rank)).copied().filter(|child| *child != NONE)?;
        let NetReduceChild { port, through, .. } = self.children[usize::from(child)];
        // What other switches forward may come by any of several cables.
        let own = through.map_or(port == from.port, |worker| worker == from.source);
        self.connection(rank).filter(|_| own && !at.is_summed()).map(|connection| (child, connection))
    }

    /// `netreduce 5.2`, step 1: the first packet of a message.
    fn on_first<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        first: (u16, u16, PacketNumber),
        entry: Entry,
        payload: &P,
        tx: &mut T,
    ) {
        let (rank, ring, at) = first;
        let Some((child, connection)) = self.sender(from, rank, at) else { return tx.note(Event::Dropped(DropReason::NotAMember)) };
        if ring != self.ring() || entry.packets > self.shape.packets {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        let known = &mut self.connections[usize::from(connection)];
        if let Err(reason) = known.learn(entry, self.variants.lookup) {
            return tx.note(Event::Dropped(reason));
        }
        if let Some(beyond) = known.config.beyond {
            let to = Egress::Route(Route::direct(beyond.switch, self.flow));
            tx.send(to, &entry.notice(known.config.rank, ring), Body::Empty);
        }
        let place = Place { message: entry.message, offset: 0 };
        self.on_contribution(now, child, Asker::Worker { connection, at }, place, payload, tx);
        if self.recovers() {
            self.watch_sender(now, (child, connection), entry.psn, tx);
        }
    }

    /// `netreduce 5.2`, step 2: any other packet.
    #[inline]
    fn on_next<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, from: Ingress, rank: u16, at: PacketNumber, payload: &P, tx: &mut T) {
        let Some((child, connection)) = self.sender(from, rank, at) else { return tx.note(Event::Dropped(DropReason::NotAMember)) };
        let psn = Psn::new(at.psn());
        match self.connections[usize::from(connection)].find(psn, self.variants.lookup) {
            Some(place) => self.on_contribution(now, child, Asker::Worker { connection, at }, place, payload, tx),
            // The first packet was lost: it will come again, and this one behind it.
            None => tx.note(Event::Dropped(DropReason::NotReady)),
        }
        if self.recovers() {
            self.watch_sender(now, (child, connection), psn, tx);
        }
    }

    /// `netreduce 5.2`, steps 3 to 6.
    #[inline]
    fn on_contribution<T: Tx<NetReduceHeader, P>>(
        &mut self,
        now: Instant,
        child: u16,
        asker: Asker,
        place: Place,
        payload: &P,
        tx: &mut T,
    ) {
        self.seen[usize::from(child)].on_heard(now);
        let index = self.index(place);
        let slot = self.slots.get(index);
        if slot.state == SlotState::Empty || slot.number != place.message {
            let is_newer = newer(place.message, slot.number);
            if !(is_newer || self.planted.ignores_owner() && slot.state == SlotState::Aggregating) {
                return tx.note(Event::Dropped(DropReason::Stale));
            }
            if is_newer {
                self.take(place.message, index, tx);
            }
        }
        match self.slots.get(index).state {
            SlotState::Aggregating => {
                let held_at = self.place_of(index, child);
                self.marked[held_at] = matches!(asker, Asker::Worker { at, .. } if at.is_marked());
                self.hold(now, child, place, index, payload, tx);
            }
            SlotState::Done => self.emit_again(asker, child, place, index, tx),
            _ => {
                // A switch that recovers what is lost asks once in a round trip at most; but others ask for the same.
                let asks_rarely = self.recovers() && matches!(asker, Asker::Switch);
                let gap = if asks_rarely { self.gap_of_repairs() } else { self.resend_gap };
                self.send_up_again(now, place, index, gap, tx);
            }
        }
    }

    /// The slot is for this message from now on. What it held before is needed by nobody: whoever sends message m has the sums of all up to
    /// m-N, so everybody has sent m-N, and has the sum of m-2N.
    fn take<T: Tx<NetReduceHeader, P>>(&mut self, message: u32, index: u32, tx: &mut T) {
        let (bytes, missing) = (self.slot_bytes(), self.children.len() as u32);
        self.slots.forget_arrivals(index);
        let slot = self.slots.get(index);
        if slot.state == SlotState::Empty {
            tx.note(Event::SlotTaken { bytes });
        }
        (slot.number, slot.missing, slot.state) = (message, missing, SlotState::Aggregating);
    }

    /// Steps 4 to 6: keeps the packet; where it is the last one, adds all up.
    #[inline]
    fn hold<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, child: u16, place: Place, index: u32, payload: &P, tx: &mut T) {
        let repeated = self.slots.has_arrived(index, child);
        let buffer = &mut self.held[index as usize * self.children.len() + usize::from(child)];
        let kept = if repeated && self.planted.accumulates() {
            payload.reduce(buffer, &mut self.op)
        } else {
            payload.assign(buffer, &mut self.op)
        };
        if kept.is_err() || payload.bytes() == 0 {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        if self.variants.deallocation == Deallocation::Packet {
            self.free_one_window_away(place, tx);
        }
        if repeated {
            tx.note(Event::Dropped(DropReason::Duplicate));
            return self.tell_who_is_missing(now, child, place, tx);
        }
        if self.slots.mark_arrived(index, child) == 0 {
            self.complete(now, place, index, tx);
        }
    }

    /// Step 5: all are here.
    fn complete<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, place: Place, index: u32, tx: &mut T) {
        let (slot, count) = (self.slots.get(index), self.children.len());
        let held = &self.held[index as usize * count..][..count];
        let mut added = P::view(&held[0]).assign(&mut slot.acc, &mut self.op);
        let mut differs = 0;
        for (child, buffer) in held.iter().enumerate().skip(1) {
            added = added.and_then(|()| P::view(buffer).reduce(&mut slot.acc, &mut self.op));
            if added.is_err() {
                differs = child;
                break;
            }
        }
        if added.is_err() {
            // Workers disagree about the operation: there will never be a sum.
            tx.note(Event::Dropped(DropReason::Mismatch));
            return self.abort(self.children[differs].who, None, tx);
        }
        let Some(parent) = self.parent else {
            P::finish(&mut slot.acc, &self.op, self.workers);
            return self.on_sum(now, place, index, tx);
        };
        (slot.state, slot.asked_at) = (SlotState::Sent, now);
        let Place { message, offset } = place;
        tx.send(Egress::Port(parent.port), &NetReduceHeader::Up { message, offset }, Body::Acc(&slot.acc));
    }

    /// The sum of all is here: gives it to all connections that end here and to all switches below, and frees the slot one window back.
    fn on_sum<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, place: Place, index: u32, tx: &mut T) {
        self.slots.get(index).state = SlotState::Done;
        self.emit(place, index, tx);
        // By a recovering accelerator in the order of each connection; the sums behind a gap wait in their slots.
        for number in 0..self.halves.len() {
            self.pump(now, number, tx);
        }
        if self.variants.deallocation == Deallocation::Full {
            self.free_one_window_away(place, tx);
        }
    }

    fn emit<T: Tx<NetReduceHeader, P>>(&mut self, place: Place, index: u32, tx: &mut T) {
        let ring = self.ring();
        let acc = &self.slots.peek(index).acc;
        let Place { message, offset } = place;
        if !self.switches.is_empty() {
            tx.send(Egress::Ports(&self.switches), &NetReduceHeader::Down { message, offset }, Body::Acc(acc));
        }
        if self.recovers() {
            return;
        }
        for connection in &self.connections {
            // Where the notice of a first packet has not come, the receiver misses the packet and its sender sends it again (P14).
            if let (Some(to), Some(header)) = (self.to_end(connection), connection.header(place, ring)) {
                tx.send(to, &self.with_mark(header, connection.config.rank, index), Body::Acc(acc));
            }
        }
    }

    /// `netreduce 8.7`: a mark stays in the connection whose contribution had it. Those of other racks are not known here.
    #[inline]
    pub(super) fn with_mark(&self, header: NetReduceHeader, rank: Rank, index: u32) -> NetReduceHeader {
        let child = self.child_of.get(rank.index()).copied().filter(|child| *child != NONE);
        match (child, header) {
            (Some(child), NetReduceHeader::First { at, message, length, address, connection, ring, packets }) => {
                let at = at.marked(self.marked[self.place_of(index, child)]);
                NetReduceHeader::First { at, message, length, address, connection, ring, packets }
            }
            (Some(child), NetReduceHeader::Next { at, connection, last }) => {
                NetReduceHeader::Next { at: at.marked(self.marked[self.place_of(index, child)]), connection, last }
            }
            (_, header) => header,
        }
    }

    /// Whoever sends message m has the sum of m-N, and so have all, once there is a sum of m: they all sent it.
    fn free_one_window_away<T: Tx<NetReduceHeader, P>>(&mut self, place: Place, tx: &mut T) {
        let message = place.message.wrapping_sub(self.shape.window);
        let index = self.index(Place { message, offset: place.offset });
        let slot = self.slots.get(index);
        if slot.number == message && slot.state != SlotState::Empty {
            slot.state = SlotState::Empty;
            tx.note(Event::SlotFreed { bytes: self.slot_bytes() });
        }
    }

    /// A contribution came again although there is a sum: its receiver has lost that.
    fn emit_again<T: Tx<NetReduceHeader, P>>(&mut self, asker: Asker, child: u16, place: Place, index: u32, tx: &mut T) {
        let Place { message, offset } = place;
        if let (true, Asker::Worker { connection, at }) = (self.recovers(), asker) {
            return self.on_repeated(connection, at, place, tx);
        }
        tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: message });
        if self.variants.reemission == Reemission::All {
            return self.emit(place, index, tx);
        }
        let acc = &self.slots.peek(index).acc;
        let Asker::Worker { connection, at } = asker else {
            return tx.send(self.to_child(child), &NetReduceHeader::Down { message, offset }, Body::Acc(acc));
        };
        let connection = &self.connections[usize::from(connection)];
        let Some(entry) = connection.message(message) else { return };
        // Its own header, which may ask for an acknowledgement where the first one did not.
        let header = entry.packet(connection.config.rank, self.job.0, offset, at.marked(false).summed());
        let to = match (self.to_end(connection), connection.config.beyond) {
            (Some(to), _) => to,
            (None, Some(beyond)) => Egress::Route(Route::direct(beyond.worker, self.flow)),
            (None, None) => return,
        };
        tx.send(to, &header, Body::Acc(acc));
    }

    /// A contribution came again although all from below were sent up: that, or the sum, may be lost.
    pub(super) fn send_up_again<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, place: Place, index: u32, gap: Duration, tx: &mut T) {
        let asked_at = self.slots.peek(index).asked_at;
        if self.parent.is_none() || now.since(asked_at) < gap {
            return tx.note(Event::Dropped(DropReason::InProgress));
        }
        self.repeat_up(now, place, index, tx);
    }

    pub(super) fn repeat_up<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, place: Place, index: u32, tx: &mut T) {
        let Some(parent) = self.parent else { return };
        let slot = self.slots.get(index);
        slot.asked_at = now;
        let Place { message, offset } = place;
        tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: message });
        tx.send(Egress::Port(parent.port), &NetReduceHeader::Up { message, offset }, Body::Acc(&slot.acc));
    }
}

/// What comes from other switches, and the end.
impl<P: Payload + ?Sized> NetReduceSwitch<P> {
    /// `netreduce 5.7`: the sum of what is below a switch.
    fn on_up<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, port: PortId, place: Place, payload: &P, tx: &mut T) {
        let child = self.child(port).filter(|_| self.switches.contains(port));
        let Some(child) = child else { return tx.note(Event::Dropped(DropReason::NotAMember)) };
        if place.offset >= self.shape.packets {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        self.on_contribution(now, child, Asker::Switch, place, payload, tx);
    }

    /// `netreduce 5.7`: the sum of all.
    fn on_down<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, port: PortId, place: Place, payload: &P, tx: &mut T) {
        if self.parent.is_none_or(|parent| parent.port != port) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        self.above.on_heard();
        if place.offset >= self.shape.packets {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        let index = self.index(place);
        let slot = self.slots.get(index);
        if slot.number != place.message || slot.state != SlotState::Sent {
            let known = slot.number == place.message && slot.state == SlotState::Done;
            return tx.note(Event::Dropped(if known { DropReason::Duplicate } else { DropReason::Stale }));
        }
        if payload.bytes() != P::acc_bytes(&slot.acc, &self.op) || payload.assign(&mut slot.acc, &mut self.op).is_err() {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        self.on_sum(now, place, index, tx);
        if self.recovers() {
            self.ask_for_gap(now, place, tx);
        }
    }

    /// `netreduce 5.7`: the first packet of a connection that ends here and begins elsewhere has passed its own switch. Sums that were
    /// here before that go on now.
    fn on_notice<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, rank: u16, ring: u16, entry: Entry, tx: &mut T) {
        let Some(number) = self.connection(rank).map(usize::from) else { return tx.note(Event::Dropped(DropReason::NotAMember)) };
        let Some(to) = self.to_end(&self.connections[number]) else { return tx.note(Event::Dropped(DropReason::NotAMember)) };
        if ring != self.ring() || entry.packets > self.shape.packets {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        match self.connections[number].learn(entry, self.variants.lookup) {
            Ok(true) if self.recovers() => return self.pump(now, number, tx),
            Ok(false) if self.recovers() => return self.on_reminded(now, number, tx),
            Ok(true) => {}
            Ok(false) => return tx.note(Event::Dropped(DropReason::Duplicate)),
            Err(reason) => return tx.note(Event::Dropped(reason)),
        }
        for offset in 0..entry.packets {
            let place = Place { message: entry.message, offset };
            let index = self.index(place);
            let slot = self.slots.get(index);
            if slot.number != place.message || slot.state != SlotState::Done {
                continue;
            }
            if let Some(header) = self.connections[number].header(place, ring) {
                tx.send(to, &header, Body::Acc(&slot.acc));
            }
        }
    }

    /// The job is over: all are told, but who said so.
    pub(super) fn abort<T: Tx<NetReduceHeader, P>>(&mut self, suspect: Suspect, from: Option<PortId>, tx: &mut T) {
        self.aborted = Some(suspect);
        for child in (0..self.children.len() as u16).filter(|child| Some(self.children[usize::from(*child)].port) != from) {
            tx.send(self.to_child(child), &NetReduceHeader::Abort { suspect }, Body::Empty);
        }
        if let Some(parent) = self.parent.filter(|parent| Some(parent.port) != from) {
            tx.send(Egress::Port(parent.port), &NetReduceHeader::Abort { suspect }, Body::Empty);
        }
    }

    fn on_abort<T: Tx<NetReduceHeader, P>>(&mut self, port: PortId, suspect: Suspect, tx: &mut T) {
        let known = self.child(port).is_some() || self.parent.is_some_and(|parent| parent.port == port);
        match self.aborted {
            _ if !known => tx.note(Event::Dropped(DropReason::NotAMember)),
            Some(_) => tx.note(Event::Dropped(DropReason::Stale)),
            None => self.abort(suspect, Some(port), tx),
        }
    }
}

impl<P: Payload + ?Sized> Node<P> for NetReduceSwitch<P> {
    type Header = NetReduceHeader;

    #[inline]
    fn on_packet<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, from: Ingress, header: &NetReduceHeader, payload: &P, tx: &mut T) {
        if let Some(suspect) = self.aborted.filter(|_| !matches!(header, NetReduceHeader::Abort { .. })) {
            // Who sends has not heard that the job is over.
            tx.note(Event::Dropped(DropReason::Stale));
            if let Some(child) = self.child_from(from) {
                tx.send(self.to_child(child), &NetReduceHeader::Abort { suspect }, Body::Empty);
            }
            return;
        }
        match *header {
            NetReduceHeader::Next { at, connection, .. } => self.on_next(now, from, connection, at.marked(from.ecn), payload, tx),
            NetReduceHeader::First { at, message, length, address, connection, ring, packets } => {
                let entry = Entry { message, psn: Psn::new(at.psn()), length, address, packets };
                self.on_first(now, from, (connection, ring, at.marked(from.ecn)), entry, payload, tx);
            }
            NetReduceHeader::Up { message, offset } => self.on_up(now, from.port, Place { message, offset }, payload, tx),
            NetReduceHeader::Down { message, offset } => self.on_down(now, from.port, Place { message, offset }, payload, tx),
            NetReduceHeader::Notice { psn, message, length, address, connection, ring, packets } => {
                self.on_notice(now, connection, ring, Entry { message, psn: Psn::new(psn), length, address, packets }, tx);
            }
            NetReduceHeader::Waiting { message, offset, suspect } => self.on_waiting(now, from, Place { message, offset }, suspect, tx),
            NetReduceHeader::Ask { message, offset, acknowledged } => self.on_ask(now, from, Place { message, offset }, acknowledged, tx),
            NetReduceHeader::Abort { suspect } => self.on_abort(from.port, suspect, tx),
            // `netreduce 5.6`: they go by.
            NetReduceHeader::Ack { psn, messages, connection } => {
                self.on_answer(now, from, Answer { connection, psn: Psn::new(psn), messages, is_nak: false }, tx);
            }
            NetReduceHeader::Nak { psn, messages, connection } => {
                self.on_answer(now, from, Answer { connection, psn: Psn::new(psn), messages, is_nak: true }, tx);
            }
            NetReduceHeader::Congested { .. } => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    fn on_timeout<T: Tx<NetReduceHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.on_timers(now, tx);
    }

    #[inline]
    fn next_timeout(&self) -> Option<Instant> {
        self.wake_at.filter(|_| self.aborted.is_none())
    }
}
