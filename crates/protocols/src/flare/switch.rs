//! A switch of Flare: keeps the sums of its children's pairs, and hands them on. The states of its slots, and why nothing is counted twice, are
//! in the [module's documentation](super).

use std::collections::VecDeque;
use std::marker::PhantomData;

use fanin_core::hash::mix;
use fanin_core::{
    Body, DropReason, Egress, ElementOp, Event, IndexCoding, Ingress, Instant, JobId, Node, Pair as CorePair, Payload, PortId, PortSet,
    RetransmitReason, Suspect, Tally, Tx,
};
use fanin_wire::flare::{FlareBlock, FlareHeader, Part};

use super::block::{SparseBlock, Taken};
use super::config::{FlareSwitchConfig, StorageKind};
use super::kept::Kept;
use super::packing::{Packet, Pair};
use super::planted::Planted;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;
use crate::shared::state::node_state;
use crate::shared::window::rounded;

/// Marks a port that leads to no child.
const NO_CHILD: u16 = u16::MAX;

/// Stands for all children.
const ALL: u16 = u16::MAX;

/// Who asks so often is told who is missing.
const ATTEMPTS: u8 = 2;

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum State {
    /// Holds nothing.
    Empty,
    /// Packets of children come.
    Gathering,
    /// All have come, and the sum has gone to the parent, or goes.
    Sent,
    /// The sum over all workers is here; some of it waits for room on the way down.
    SendingDown,
    /// It has gone to all children.
    Done,
}

/// A block.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Slot {
    at: FlareBlock,
    state: State,
    sum: SparseBlock<u64>,
    /// Which making of its packets each child's are that are in the sum.
    makings: Box<[u32]>,
    /// One more than how many packets of each child had come when it was last told what is wanted; 0 where it was not.
    told: Box<[u32]>,
    /// Which making of this switch's packets.
    making: u32,
    /// What has gone to the parent.
    up: Kept,
    /// What has come from the parent, or at the root the sum.
    down: Kept,
    /// Packets of `up`, or of `down`, that wait for room.
    unsent_up: u32,
    unsent_down: u32,
    /// Bytes of memory that were noted as taken.
    noted_bytes: u32,
    /// When something about it last went up.
    asked_at: Instant,
    /// How often `up` was sent again.
    resends: u8,
    /// The parent has said that it waits, so it is there.
    parent_heard: bool,
    /// What a child of which something is missing said last of who is missing below it.
    word: Option<(u16, Suspect)>,
}

/// A packet that waits for room.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Queued {
    block: u32,
    number: u16,
    /// The child that it is for, or [`ALL`]; of no meaning on the way up.
    to: u16,
    attempt: u8,
}

/// A switch of Flare, for one job.
pub struct FlareSwitch<P: Payload + ?Sized> {
    config: FlareSwitchConfig<P::Op>,
    op: Option<ElementOp>,
    /// The child at each port, or [`NO_CHILD`].
    child_at: Box<[u16]>,
    /// The ports of all children.
    all: PortSet,
    /// Two for every block of the window.
    slots: Box<[Slot]>,
    up: VecDeque<Queued>,
    down: VecDeque<Queued>,
    scratch: Vec<CorePair>,
    planted: Planted,
    payload: PhantomData<fn(&P)>,
}

node_state!(FlareSwitch { config, op, child_at, all, slots, up, down, scratch, planted, payload });

/// A packet of a child.
#[derive(Clone, Copy)]
struct Contribution<'a> {
    at: FlareBlock,
    part: Part,
    attempt: u8,
    bytes: &'a [u8],
}

impl<P: Payload + ?Sized> FlareSwitch<P> {
    /// A switch with all its memory.
    ///
    /// # Panics
    /// Where blocks are not as their [configuration](super::Blocks) says, or the role has no child or more than 65,534.
    pub fn new(config: FlareSwitchConfig<P::Op>) -> Self {
        config.blocks.check();
        let children = &config.role.children;
        assert!((1..usize::from(NO_CHILD)).contains(&children.len()), "a role has 1 to 65534 children");
        let highest = children.iter().map(|child| child.port.index()).max().unwrap_or(0);
        let mut child_at = vec![NO_CHILD; highest + 1];
        for (number, child) in (0..).zip(children) {
            child_at[child.port.index()] = number;
        }
        let slot = || Slot {
            at: FlareBlock { number: 0, operation: 0 },
            state: State::Empty,
            sum: SparseBlock::new(
                config.storage.storage(&config.blocks, children.len() as u32),
                children.len() as u32,
                config.blocks.range,
            ),
            makings: vec![0; children.len()].into(),
            told: vec![0; children.len()].into(),
            making: 0,
            up: Kept::default(),
            down: Kept::default(),
            unsent_up: 0,
            unsent_down: 0,
            noted_bytes: 0,
            asked_at: Instant::ZERO,
            resends: 0,
            parent_heard: false,
            word: None,
        };
        FlareSwitch {
            op: P::element_op(&config.op),
            child_at: child_at.into(),
            all: children.iter().map(|child| child.port).collect(),
            slots: (0..2 * rounded(config.blocks.window)).map(|_| slot()).collect(),
            up: VecDeque::new(),
            down: VecDeque::new(),
            scratch: Vec::with_capacity(config.blocks.capacity as usize),
            planted: Planted::default(),
            payload: PhantomData,
            config,
        }
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
    }

    /// The job that the switch aggregates for.
    pub fn job(&self) -> JobId {
        self.config.job
    }

    /// What it keeps its sums in.
    pub fn storage(&self) -> StorageKind {
        self.config.storage
    }

    /// Pairs that found their slot taken, of all blocks so far.
    pub fn spilled(&self) -> u64 {
        self.slots.iter().map(|slot| slot.sum.storage().spilled()).sum()
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        for slot in &mut self.slots {
            slot.asked_at = rebased(slot.asked_at, now);
        }
    }

    #[inline]
    fn place_of(&self, block: u32) -> usize {
        (block & (self.slots.len() as u32 - 1)) as usize
    }

    fn child(&self, port: PortId) -> Option<u16> {
        self.child_at.get(port.index()).copied().filter(|child| *child != NO_CHILD)
    }

    fn is_parent(&self, port: PortId) -> bool {
        self.config.role.parent.is_some_and(|parent| parent.port == port)
    }

    fn port_of(&self, child: u16) -> Egress<'static> {
        Egress::Port(self.config.role.children[usize::from(child)].port)
    }
}

fn drop_packet<P: Payload + ?Sized, T: Tx<FlareHeader, P>>(tx: &mut T, reason: DropReason) {
    tx.note(Event::Dropped(reason));
}

/// The way up.
impl<P: Payload + ?Sized> FlareSwitch<P> {
    fn on_contribution<T: Tx<FlareHeader, P>>(&mut self, now: Instant, port: PortId, packet: Contribution<'_>, tx: &mut T) {
        let Some(child) = self.child(port) else { return drop_packet(tx, DropReason::NotAMember) };
        let place = self.place_of(packet.at.number);
        let slot = &self.slots[place];
        if slot.state != State::Empty && slot.at.number == packet.at.number {
            if slot.at.operation != packet.at.operation {
                return self.reject(port, packet.at, tx);
            }
            return match slot.state {
                State::Gathering => self.gather(now, (place, child), packet, tx),
                _ => self.on_repeat(now, (place, child), packet, tx),
            };
        }
        if slot.state != State::Empty && !newer(packet.at.number, slot.at.number) {
            return drop_packet(tx, DropReason::Stale);
        }
        if !self.makes_sense(&packet) {
            return self.reject(port, packet.at, tx);
        }
        self.begin(now, place, packet.at, tx);
        self.gather(now, (place, child), packet, tx);
    }

    /// Whether a packet can be part of any block: nothing is begun by one that cannot.
    fn makes_sense(&self, packet: &Contribution<'_>) -> bool {
        let blocks = &self.config.blocks;
        let Part { count, coding, .. } = packet.part;
        P::reduces_pairs(&self.config.op) && coding.is_within(blocks.format(), packet.bytes, usize::from(count), blocks.range)
    }

    /// A block's first packet takes the slot. Everybody has the sum of the block that it had ("Exactly once"), also where this switch does not:
    /// a late packet may have begun that one after a loss of memory, and nobody sends it again.
    fn begin<T: Tx<FlareHeader, P>>(&mut self, now: Instant, place: usize, at: FlareBlock, tx: &mut T) {
        let slot = &mut self.slots[place];
        if slot.state != State::Empty {
            tx.note(Event::SlotFreed { bytes: slot.noted_bytes });
        }
        if slot.state == State::Gathering {
            slot.sum.clear();
        }
        slot.noted_bytes = slot.sum.storage().bytes(self.config.blocks.value_bytes);
        tx.note(Event::SlotTaken { bytes: slot.noted_bytes });
        slot.at = at;
        self.make(now, place);
    }

    /// The block's packets are made, for the first time or anew. When that was tells them from what this switch may have made of the block
    /// before it lost its memory.
    fn make(&mut self, now: Instant, place: usize) {
        let slot = &mut self.slots[place];
        (slot.state, slot.asked_at) = (State::Gathering, Instant::ZERO);
        (slot.unsent_up, slot.unsent_down, slot.resends, slot.parent_heard) = (0, 0, 0, false);
        slot.word = None;
        slot.told.fill(0);
        slot.making = mix(now.as_ps(), u64::from(slot.making) << 32 | u64::from(slot.at.number)) as u32;
        slot.up.clear();
        slot.down.clear();
        let to = if self.config.role.parent.is_none() { &mut slot.down } else { &mut slot.up };
        to.begin(slot.making);
    }

    /// A child has lost its memory when some of its packets were in the sum, and makes them anew, perhaps divided in another way. What is in
    /// the sum cannot be taken out: everybody's packets are summed anew.
    #[cold]
    fn begin_anew<T: Tx<FlareHeader, P>>(&mut self, now: Instant, place: usize, tx: &mut T) {
        let at = self.slots[place].at;
        self.up.retain(|queued| queued.block != at.number);
        self.slots[place].sum.clear();
        self.make(now, place);
        self.slots[place].told.fill(1);
        tx.note(Event::BegunAnew { block: at.number, generation: 1 });
        tx.send(Egress::Ports(&self.all), &FlareHeader::Wanted { at, from: 0 }, Body::Empty);
    }

    /// `flare 4.4`, `4.5`, `4.6`: adds a packet's pairs, sends what they spill, and the sum where it was the last one.
    fn gather<T: Tx<FlareHeader, P>>(&mut self, now: Instant, (place, child): (usize, u16), packet: Contribution<'_>, tx: &mut T) {
        let port = self.config.role.children[usize::from(child)].port;
        let slot = &self.slots[place];
        if slot.sum.has_some(u32::from(child)) && slot.makings[usize::from(child)] != packet.part.making && !self.planted.mixes_makings() {
            if slot.sum.has(u32::from(child)) {
                // All that it has to give is in the sum already.
                drop_packet(tx, DropReason::Duplicate);
                return self.say_what_is_missing(now, (place, child), packet, tx);
            }
            self.begin_anew(now, place, tx);
        }
        self.slots[place].makings[usize::from(child)] = packet.part.making;
        let (planted, format, is_root) = (self.planted, self.config.blocks.format(), self.config.role.parent.is_none());
        let mut part = packet.part;
        if planted.counts_one_packet() {
            part.packets = part.number + 1;
        }
        let mut unpacked = std::mem::take(&mut self.scratch);
        // Those of a run or a bitmap count on from their first one, perhaps beyond 16 bits; the last one is the highest.
        let below = |pair: &CorePair| pair.index < self.config.blocks.range;
        let fits = part.coding.unpack(format, packet.bytes, usize::from(part.count), &mut unpacked) && unpacked.last().is_none_or(below);
        if !fits {
            return self.reject(port, packet.at, tx);
        }
        // Indices have 16 bits.
        let pairs = unpacked.iter().map(|pair| Pair { index: pair.index as u16, value: pair.bits });
        let Slot { sum, up, down, .. } = &mut self.slots[place];
        let to = if is_root { down } else { up };
        let before = to.len();
        let (built_in, op, mut failed) = (self.op.and_then(ElementOp::of_bits), &mut self.config.op, false);
        let mut combine = |sum: &mut u64, value: u64| match built_in {
            Some(reduce) => *sum = reduce(*sum, value),
            None => P::reduce_bits(op, *sum, value).map_or_else(|_| failed = true, |bits| *sum = bits),
        };
        let mut spilled = 0;
        let send = |packet: Packet<'_, u64>| {
            spilled += u32::from(packet.packets == 0);
            let lost = Packet { pairs: &[], coding: IndexCoding::Pairs, ..packet };
            to.push(if planted.loses_spill() && packet.packets == 0 { &lost } else { &packet }, format);
        };
        let taken = sum.on_packet(u32::from(child), part, pairs.clone(), &mut combine, send);
        if planted.ignores_numbers() && taken == Ok(Taken::Repeated) {
            sum.add_anyway(u32::from(child), pairs, combine);
        }
        (0..spilled).for_each(|_| tx.note(Event::Counted(Tally::Spill)));
        // Only its memory is kept.
        unpacked.clear();
        self.scratch = unpacked;
        if failed {
            return self.on_operator_failed(packet.at, tx);
        }
        match taken {
            Ok(Taken::Completed) => {
                tx.note(Event::Scanned { places: self.slots[place].sum.storage().places() });
                return self.complete(now, place, before, tx);
            }
            Ok(Taken::Added) if !is_root => self.queue_up(now, place, before, tx),
            Ok(Taken::Added) => {}
            Ok(Taken::Repeated) => drop_packet(tx, if packet.attempt == 0 { DropReason::Duplicate } else { DropReason::InProgress }),
            Err(_) => return self.reject(port, packet.at, tx),
        }
        self.say_what_is_missing(now, (place, child), packet, tx);
    }

    /// The job's own operator has failed, and always will from now on: nobody below can go on.
    #[cold]
    fn on_operator_failed<T: Tx<FlareHeader, P>>(&mut self, at: FlareBlock, tx: &mut T) {
        drop_packet(tx, DropReason::Mismatch);
        tx.send(Egress::Ports(&self.all), &FlareHeader::Rejected { at }, Body::Empty);
    }

    /// All packets of all children are in the sum.
    fn complete<T: Tx<FlareHeader, P>>(&mut self, now: Instant, place: usize, before: u16, tx: &mut T) {
        let is_root = self.config.role.parent.is_none();
        let slot = &mut self.slots[place];
        let bytes = slot.noted_bytes + if is_root { &slot.down } else { &slot.up }.total_bytes();
        Self::note_memory(slot, bytes, tx);
        if !is_root {
            slot.state = State::Sent;
            return self.queue_up(now, place, before, tx);
        }
        slot.state = State::SendingDown;
        for number in 0..slot.down.len() {
            self.queue_down(place, number);
        }
        self.pump_down(tx);
    }

    /// What is kept beside the storage counts as memory, too.
    fn note_memory<T: Tx<FlareHeader, P>>(slot: &mut Slot, bytes: u32, tx: &mut T) {
        tx.note(Event::SlotFreed { bytes: slot.noted_bytes });
        tx.note(Event::SlotTaken { bytes });
        slot.noted_bytes = bytes;
    }

    /// What was made from packet `first` on goes to the parent.
    fn queue_up<T: Tx<FlareHeader, P>>(&mut self, now: Instant, place: usize, first: u16, tx: &mut T) {
        let slot = &mut self.slots[place];
        let block = slot.at.number;
        for number in first..slot.up.len() {
            slot.unsent_up += 1;
            self.up.push_back(Queued { block, number, to: ALL, attempt: 0 });
        }
        self.pump_up(now, tx);
    }

    /// Sends to the parent what there is room for.
    fn pump_up<T: Tx<FlareHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(parent) = self.config.role.parent else { return };
        let way = Egress::Port(parent.port);
        while let Some(&Queued { block, number, attempt, .. }) = self.up.front() {
            let place = self.place_of(block);
            let slot = &mut self.slots[place];
            // The sum may have come down since what went up was asked for again.
            if slot.at.number != block || !matches!(slot.state, State::Gathering | State::Sent) {
                self.up.pop_front();
                continue;
            }
            if !tx.room(way) {
                return;
            }
            self.up.pop_front();
            let (part, bytes) = slot.up.packet(number);
            send(tx, way, FlareHeader::Contribution { at: slot.at, part, attempt }, bytes);
            slot.unsent_up -= 1;
            slot.asked_at = now;
        }
    }
}

/// Sends a packet of pairs.
fn send<P: Payload + ?Sized, T: Tx<FlareHeader, P>>(tx: &mut T, to: Egress<'_>, header: FlareHeader, bytes: &[u8]) {
    tx.send(to, &header, P::of_contents(bytes).map_or(Body::Empty, Body::Borrowed));
}

/// What was sent again, and who is missing.
impl<P: Payload + ?Sized> FlareSwitch<P> {
    /// A packet that makes no sense, or is of another operation: ranks disagree about what they do.
    #[cold]
    fn reject<T: Tx<FlareHeader, P>>(&mut self, port: PortId, at: FlareBlock, tx: &mut T) {
        drop_packet(tx, DropReason::Mismatch);
        tx.send(Egress::Port(port), &FlareHeader::Rejected { at }, Body::Empty);
    }

    /// A packet of a block whose sum has left this switch. Only the last one that a child sends again is answered: one answer a repetition.
    #[cold]
    fn on_repeat<T: Tx<FlareHeader, P>>(&mut self, now: Instant, (place, child): (usize, u16), packet: Contribution<'_>, tx: &mut T) {
        if packet.attempt == 0 {
            return drop_packet(tx, DropReason::Duplicate);
        }
        if packet.part.packets == 0 {
            return drop_packet(tx, DropReason::InProgress);
        }
        self.help(now, (place, child), (0, packet.attempt), tx);
    }

    /// A child has some of the sum and asks for the rest.
    fn on_ask<T: Tx<FlareHeader, P>>(&mut self, now: Instant, port: PortId, at: FlareBlock, asked: (u16, u8), tx: &mut T) {
        let Some(child) = self.child(port) else { return drop_packet(tx, DropReason::NotAMember) };
        let place = self.place_of(at.number);
        let slot = &self.slots[place];
        if slot.at != at || slot.state == State::Empty {
            if slot.state != State::Empty && !newer(at.number, slot.at.number) {
                return drop_packet(tx, DropReason::Stale);
            }
            // This switch has lost its memory, or it would have what it has sent down.
            self.begin(now, place, at, tx);
        }
        self.help(now, (place, child), asked, tx);
    }

    /// A child lacks packets of the sum, from this one on.
    fn help<T: Tx<FlareHeader, P>>(&mut self, now: Instant, (place, child): (usize, u16), (from, attempt): (u16, u8), tx: &mut T) {
        match self.slots[place].state {
            State::Done => self.answer(place, child, from, tx),
            State::Sent => self.ask_parent(now, (place, child), attempt, tx),
            State::Gathering => self.gather_again(now, (place, child), attempt, tx),
            State::Empty | State::SendingDown => drop_packet(tx, DropReason::InProgress),
        }
    }

    /// A child has some of a sum that this switch knows nothing of any more: what the child has sent is wanted again, and the parent is asked.
    fn gather_again<T: Tx<FlareHeader, P>>(&mut self, now: Instant, (place, child): (usize, u16), attempt: u8, tx: &mut T) {
        if !self.slots[place].sum.has(u32::from(child)) {
            self.tell_what_is_wanted(place, child, tx);
        }
        let waiting = FlareHeader::Waiting { at: self.slots[place].at, suspect: self.missing(place) };
        self.tell_parent(now, place, &waiting, attempt, tx);
    }

    /// Who keeps a block from being complete: who a child has named that waits itself, or the first child of which something is missing.
    fn missing(&self, place: usize) -> Suspect {
        let slot = &self.slots[place];
        let word = slot.word.filter(|(child, _)| !slot.sum.has(u32::from(*child))).map(|(_, suspect)| suspect);
        let first = || slot.sum.missing().map(|child| self.config.role.children[child as usize].missing());
        word.or_else(first).unwrap_or(Suspect::Unknown)
    }

    /// `flare 4.9`: the sum goes once more to a child that has lost some of it, unless it is about to.
    fn answer<T: Tx<FlareHeader, P>>(&mut self, place: usize, child: u16, from: u16, tx: &mut T) {
        let slot = &self.slots[place];
        let block = slot.at.number;
        if self.down.iter().any(|queued| queued.block == block && queued.to == child) {
            return drop_packet(tx, DropReason::InProgress);
        }
        tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block });
        for number in from..slot.down.len() {
            self.down.push_back(Queued { block, number, to: child, attempt: 0 });
        }
        self.pump_down(tx);
    }

    /// What went up, or what comes down, was lost above this switch: asks the parent for what is missing, or sends the last packet up again, but
    /// not for every child.
    fn ask_parent<T: Tx<FlareHeader, P>>(&mut self, now: Instant, (place, child): (usize, u16), attempt: u8, tx: &mut T) {
        let to = self.port_of(child);
        let slot = &mut self.slots[place];
        let Some(parent) = self.config.role.parent else { return };
        if attempt >= ATTEMPTS && slot.resends > 0 && !slot.parent_heard {
            // The parent has been asked before and said nothing.
            tx.send(to, &FlareHeader::Waiting { at: slot.at, suspect: Suspect::Switch(parent.node) }, Body::Empty);
        }
        if slot.unsent_up > 0 || now.since(slot.asked_at) < self.config.resend_gap {
            return drop_packet(tx, DropReason::InProgress);
        }
        slot.resends = slot.resends.saturating_add(1);
        slot.asked_at = now;
        let (at, last) = (slot.at, slot.up.len().saturating_sub(1));
        tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: at.number });
        match slot.down.gap() {
            Some(from) => tx.send(Egress::Port(parent.port), &FlareHeader::Ask { at, from, attempt }, Body::Empty),
            None => self.send_again(now, place, (last, attempt), tx),
        }
    }

    /// What went up goes up again, from a packet on.
    fn send_again<T: Tx<FlareHeader, P>>(&mut self, now: Instant, place: usize, (from, attempt): (u16, u8), tx: &mut T) {
        let slot = &mut self.slots[place];
        let (block, end) = (slot.at.number, slot.up.len());
        slot.unsent_up = u32::from(end.saturating_sub(from));
        self.up.extend((from..end).map(|number| Queued { block, number, to: ALL, attempt }));
        self.pump_up(now, tx);
    }

    /// The parent lacks packets of what went up, from this one on.
    fn on_wanted<T: Tx<FlareHeader, P>>(&mut self, now: Instant, port: PortId, at: FlareBlock, from: u16, tx: &mut T) {
        if !self.is_parent(port) {
            return drop_packet(tx, DropReason::NotAMember);
        }
        let place = self.place_of(at.number);
        let slot = &mut self.slots[place];
        // A block of which not all is here may have gone up in part, as spill.
        if slot.at != at || !matches!(slot.state, State::Gathering | State::Sent) {
            return drop_packet(tx, DropReason::Stale);
        }
        slot.parent_heard = true;
        if slot.unsent_up > 0 {
            return drop_packet(tx, DropReason::InProgress);
        }
        tx.note(Event::Retransmitted { reason: RetransmitReason::Gap, block: at.number });
        self.send_again(now, place, (from, 0), tx);
    }

    /// A child is told from which packet on others of it are wanted.
    fn tell_what_is_wanted<T: Tx<FlareHeader, P>>(&mut self, place: usize, child: u16, tx: &mut T) {
        let to = self.port_of(child);
        let slot = &mut self.slots[place];
        slot.told[usize::from(child)] = slot.sum.received(u32::from(child)) + 1;
        tx.send(to, &FlareHeader::Wanted { at: slot.at, from: slot.sum.first_missing(u32::from(child)) }, Body::Empty);
    }

    /// Whether the last packet of what a child was told to send has come, and some before it have not, but more than before it was told. Where none
    /// has, it is not told again before it asks by its timer: a queue that has room for the last packets of several blocks only, which are short,
    /// would see the same ones go round without end.
    fn got_some_of_what_is_wanted(&self, place: usize, child: u16) -> bool {
        let slot = &self.slots[place];
        let told = slot.told[usize::from(child)];
        told != 0 && slot.sum.received(u32::from(child)) >= told
    }

    /// Where a child has sent its last packet again: if it has not sent everything, it is told from where on; if others are missing, who, and
    /// now and then the parent, for those who wait elsewhere in the tree.
    fn say_what_is_missing<T: Tx<FlareHeader, P>>(
        &mut self,
        now: Instant,
        (place, child): (usize, u16),
        packet: Contribution<'_>,
        tx: &mut T,
    ) {
        if packet.part.packets == 0 {
            return;
        }
        if !self.slots[place].sum.has(u32::from(child)) {
            if packet.attempt > 0 || self.got_some_of_what_is_wanted(place, child) {
                self.tell_what_is_wanted(place, child, tx);
            }
            return;
        }
        if packet.attempt < ATTEMPTS {
            return;
        }
        let waiting = FlareHeader::Waiting { at: self.slots[place].at, suspect: self.missing(place) };
        tx.send(self.port_of(child), &waiting, Body::Empty);
        self.tell_parent(now, place, &waiting, packet.attempt, tx);
    }

    /// Says who is missing, and asks for the sum: where this switch has lost its memory others may have that already, and send nothing again.
    fn tell_parent<T: Tx<FlareHeader, P>>(&mut self, now: Instant, place: usize, waiting: &FlareHeader, attempt: u8, tx: &mut T) {
        let slot = &mut self.slots[place];
        if let Some(parent) = self.config.role.parent
            && (slot.asked_at == Instant::ZERO || now.since(slot.asked_at) >= self.config.resend_gap)
        {
            slot.asked_at = now;
            let (to, from) = (Egress::Port(parent.port), slot.down.gap().unwrap_or(0));
            tx.send(to, waiting, Body::Empty);
            tx.send(to, &FlareHeader::Ask { at: slot.at, from, attempt }, Body::Empty);
        }
    }

    /// Somebody waits. From the parent: children who asked want to know. From a child: its siblings want to know, and who waits behind the
    /// parent, also where nobody else here has come to the block.
    fn on_waiting<T: Tx<FlareHeader, P>>(&mut self, now: Instant, port: PortId, at: FlareBlock, suspect: Suspect, tx: &mut T) {
        let place = self.place_of(at.number);
        let header = FlareHeader::Waiting { at, suspect };
        let is_here = self.slots[place].at == at;
        if self.is_parent(port) {
            if !is_here || self.slots[place].state != State::Sent {
                return drop_packet(tx, DropReason::Stale);
            }
            self.slots[place].parent_heard = true;
            return tx.send(Egress::Ports(&self.all), &header, Body::Empty);
        }
        let Some(child) = self.child(port) else { return drop_packet(tx, DropReason::NotAMember) };
        let slot = &self.slots[place];
        let has_begun = slot.state != State::Empty && !newer(at.number, slot.at.number);
        let is_free = matches!(slot.state, State::Empty | State::Done);
        if let Some(parent) = self.config.role.parent.filter(|_| !has_begun && is_free) {
            return tx.send(Egress::Port(parent.port), &header, Body::Empty);
        }
        if !is_here || slot.state != State::Gathering || slot.sum.has(u32::from(child)) {
            return drop_packet(tx, DropReason::Stale);
        }
        self.slots[place].word = Some((child, suspect));
        tx.send(Egress::Ports(&self.all), &header, Body::Empty);
        self.tell_parent(now, place, &header, ATTEMPTS, tx);
    }

    /// The parent does not take what this switch sent: nobody below can go on.
    fn on_rejected<T: Tx<FlareHeader, P>>(&mut self, port: PortId, at: FlareBlock, tx: &mut T) {
        if !self.is_parent(port) {
            return drop_packet(tx, DropReason::NotAMember);
        }
        let slot = &self.slots[self.place_of(at.number)];
        if slot.at != at || !matches!(slot.state, State::Gathering | State::Sent) {
            return drop_packet(tx, DropReason::Stale);
        }
        tx.send(Egress::Ports(&self.all), &FlareHeader::Rejected { at }, Body::Empty);
    }
}

/// The way down.
impl<P: Payload + ?Sized> FlareSwitch<P> {
    /// A packet of the sum over all workers: children get it, and the slot keeps it for those who lose it.
    fn on_aggregate<T: Tx<FlareHeader, P>>(&mut self, port: PortId, at: FlareBlock, part: Part, bytes: &[u8], tx: &mut T) {
        if !self.is_parent(port) {
            return drop_packet(tx, DropReason::NotAMember);
        }
        let place = self.place_of(at.number);
        let slot = &mut self.slots[place];
        // Where this switch has lost its memory, the sum may be complete although not all have come here again.
        if slot.at != at || !matches!(slot.state, State::Gathering | State::Sent) {
            let reason = match slot.state {
                State::Done | State::SendingDown if slot.at == at => DropReason::Duplicate,
                _ if newer(slot.at.number, at.number) => DropReason::Stale,
                _ => DropReason::OutsideWindow,
            };
            return drop_packet(tx, reason);
        }
        let blocks = &self.config.blocks;
        if !part.coding.is_within(blocks.format(), bytes, usize::from(part.count), blocks.range) {
            return drop_packet(tx, DropReason::Mismatch);
        }
        if slot.down.differs(part.making) {
            // Whoever has made the sum has lost its memory, and made it anew.
            slot.down.clear();
            slot.unsent_down = 0;
            self.down.retain(|queued| queued.block != at.number);
        }
        match slot.down.take(part, bytes) {
            Ok(true) => {}
            Ok(false) => return drop_packet(tx, DropReason::Duplicate),
            Err(_) => return drop_packet(tx, DropReason::Mismatch),
        }
        if slot.down.are_all() {
            if slot.state == State::Gathering {
                slot.sum.clear();
            }
            slot.state = State::SendingDown;
            // What went up is not asked for any more.
            let bytes = slot.sum.storage().bytes(self.config.blocks.value_bytes) + slot.down.total_bytes();
            slot.up.clear();
            Self::note_memory(slot, bytes, tx);
        }
        self.queue_down(place, part.number);
        self.pump_down(tx);
    }

    /// A packet of the sum is to go to all children.
    fn queue_down(&mut self, place: usize, number: u16) {
        let slot = &mut self.slots[place];
        slot.unsent_down += 1;
        self.down.push_back(Queued { block: slot.at.number, number, to: ALL, attempt: 0 });
    }

    /// Sends to children what there is room for.
    fn pump_down<T: Tx<FlareHeader, P>>(&mut self, tx: &mut T) {
        while let Some(&Queued { block, number, to, .. }) = self.down.front() {
            let place = self.place_of(block);
            // Who asked again may have got it since, and the slot another block.
            if self.slots[place].at.number != block {
                self.down.pop_front();
                continue;
            }
            let has_room = match to {
                ALL => self.all.iter().all(|port| tx.room(Egress::Port(port))),
                child => tx.room(self.port_of(child)),
            };
            if !has_room {
                return;
            }
            self.down.pop_front();
            let ways = if to == ALL { Egress::Ports(&self.all) } else { self.port_of(to) };
            let slot = &mut self.slots[place];
            let (part, bytes) = slot.down.packet(number);
            send(tx, ways, FlareHeader::Aggregate { at: slot.at, part }, bytes);
            if to == ALL {
                slot.unsent_down -= 1;
                if slot.state == State::SendingDown && slot.unsent_down == 0 {
                    slot.state = State::Done;
                }
            }
        }
    }
}

impl<P: Payload + ?Sized> Node<P> for FlareSwitch<P> {
    type Header = FlareHeader;

    fn on_packet<T: Tx<FlareHeader, P>>(&mut self, now: Instant, from: Ingress, header: &FlareHeader, payload: &P, tx: &mut T) {
        let Some(bytes) = payload.contents() else { return drop_packet(tx, DropReason::Mismatch) };
        match *header {
            FlareHeader::Contribution { at, part, attempt } => {
                self.on_contribution(now, from.port, Contribution { at, part, attempt, bytes }, tx);
            }
            FlareHeader::Aggregate { at, part } => self.on_aggregate(from.port, at, part, bytes, tx),
            FlareHeader::Waiting { at, suspect } => self.on_waiting(now, from.port, at, suspect, tx),
            FlareHeader::Rejected { at } => self.on_rejected(from.port, at, tx),
            FlareHeader::Ask { at, from: first, attempt } => self.on_ask(now, from.port, at, (first, attempt), tx),
            FlareHeader::Wanted { at, from: first } => self.on_wanted(now, from.port, at, first, tx),
        }
    }

    /// Only workers have timers.
    fn on_timeout<T: Tx<FlareHeader, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_tx_ready<T: Tx<FlareHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        self.pump_up(now, tx);
        self.pump_down(tx);
    }
}
