//! A rack's switch: sums of its workers, and of all racks where it is a block's home.
//!
//! There are twice as many slots as a window has blocks: who sends block n + 2 W has the sum of n + W, to which everybody has contributed, with
//! the sum of n. So nobody can still ask for what is in a slot that is used again. What is lost is asked for by the workers, who push again.

use derive_where::derive_where;
use fanin_core::{Address, Body, DropReason, Egress, Event, FlowLabel, Ingress, Instant, Node, Payload, RetransmitReason, Route, Tx};

use crate::header::Header;

/// What a switch is told.
#[derive(Clone, Debug)]
pub struct SwitchConfig<Op> {
    /// Its place among the racks.
    pub place: usize,
    /// Its workers.
    pub members: Vec<Address>,
    /// All racks.
    pub racks: Vec<Address>,
    /// Whether blocks have homes at all racks in turn.
    pub spread: bool,
    /// Workers of the job.
    pub workers: u32,
    /// Element type and operator.
    pub op: Op,
    /// Bytes of a full block.
    pub block_bytes: u32,
    /// Blocks that a worker has under way at most.
    pub window: u32,
    /// Label of the job's packets.
    pub flow: FlowLabel,
}

/// A block: who has contributed, and the sums of the rack and of all.
#[derive(Clone, Debug)]
struct Slot<A> {
    block: Option<u32>,
    members: u64,
    racks: u64,
    done: bool,
    rack: A,
    total: A,
}

/// A rack's switch.
#[derive_where(Clone, Debug)]
pub struct RackSwitch<P: Payload + ?Sized> {
    config: SwitchConfig<P::Op>,
    slots: Vec<Slot<P::Acc>>,
}

/// As many bits.
fn all(count: usize) -> u64 {
    u64::MAX >> (64 - count)
}

impl<P: Payload + ?Sized> RackSwitch<P> {
    /// With all its memory.
    pub fn new(config: SwitchConfig<P::Op>) -> Self {
        let acc = || P::accumulator(&config.op, config.block_bytes as usize);
        let slot = || Slot { block: None, members: 0, racks: 0, done: false, rack: acc(), total: acc() };
        RackSwitch { slots: (0..2 * config.window.next_power_of_two()).map(|_| slot()).collect(), config }
    }

    fn home(&self, block: u32) -> usize {
        if self.config.spread { block as usize % self.config.racks.len() } else { 0 }
    }

    /// Where a block is kept, from now on; nothing where a later one is there.
    fn slot(&mut self, block: u32, tx: &mut impl Tx<Header, P>) -> Option<usize> {
        let place = block as usize % self.slots.len();
        let slot = &mut self.slots[place];
        if slot.block.is_some_and(|known| known > block) {
            tx.note(Event::Dropped(DropReason::Stale));
            return None;
        }
        if slot.block != Some(block) {
            (slot.block, slot.members, slot.racks, slot.done) = (Some(block), 0, 0, false);
            tx.note(Event::SlotTaken { bytes: 2 * self.config.block_bytes });
        }
        Some(place)
    }

    fn send(&self, to: Address, header: Header, acc: &P::Acc, tx: &mut impl Tx<Header, P>) {
        tx.send(Egress::Route(Route::direct(to, self.config.flow)), &header, Body::Acc(acc));
    }

    /// A worker's part, or its question for what it has not got.
    fn on_push(&mut self, block: u32, from: usize, payload: &P, tx: &mut impl Tx<Header, P>) {
        let Some(place) = self.slot(block, tx) else { return };
        let slot = &mut self.slots[place];
        let again = slot.members & 1 << from != 0;
        if !again {
            let added = if slot.members == 0 {
                payload.assign(&mut slot.rack, &mut self.config.op)
            } else {
                payload.reduce(&mut slot.rack, &mut self.config.op)
            };
            if added.is_err() {
                return tx.note(Event::Dropped(DropReason::Mismatch));
            }
            slot.members |= 1 << from;
        } else {
            tx.note(Event::Dropped(DropReason::Duplicate));
        }
        let (done, complete, home) = (slot.done, slot.members == all(self.config.members.len()), self.home(block));
        if again && (done || complete && home != self.config.place) {
            tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block });
        }
        if done {
            self.send(self.config.members[from], Header::Sum { block }, &self.slots[place].total, tx);
        } else if complete && home == self.config.place {
            if !again {
                let own = self.slots[place].rack.clone();
                self.add_rack(block, self.config.place, P::view(&own), tx);
            }
        } else if complete {
            let header = Header::RackSum { block, place: self.config.place as u16 };
            self.send(self.config.racks[home], header, &self.slots[place].rack, tx);
        }
    }

    /// At a block's home: a rack's sum.
    fn add_rack(&mut self, block: u32, rack: usize, payload: &P, tx: &mut impl Tx<Header, P>) {
        let Some(place) = self.slot(block, tx) else { return };
        let slot = &mut self.slots[place];
        if slot.done {
            return self.send(self.config.racks[rack], Header::Sum { block }, &self.slots[place].total, tx);
        }
        if slot.racks & 1 << rack != 0 {
            return tx.note(Event::Dropped(DropReason::Duplicate));
        }
        let added = if slot.racks == 0 {
            payload.assign(&mut slot.total, &mut self.config.op)
        } else {
            payload.reduce(&mut slot.total, &mut self.config.op)
        };
        if added.is_err() {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        slot.racks |= 1 << rack;
        if slot.racks == all(self.config.racks.len()) {
            P::finish(&mut slot.total, &self.config.op, self.config.workers);
            self.give(block, place, true, tx);
        }
    }

    /// The sum of all is here: to the workers, and from the home to the other racks.
    fn give(&mut self, block: u32, place: usize, is_home: bool, tx: &mut impl Tx<Header, P>) {
        self.slots[place].done = true;
        tx.note(Event::SlotFreed { bytes: 2 * self.config.block_bytes });
        let total = &self.slots[place].total;
        for (rack, address) in self.config.racks.iter().enumerate().filter(|_| is_home) {
            if rack != self.config.place {
                self.send(*address, Header::Sum { block }, total, tx);
            }
        }
        self.config.members.iter().for_each(|worker| self.send(*worker, Header::Sum { block }, total, tx));
    }
}

impl<P: Payload + ?Sized> Node<P> for RackSwitch<P> {
    type Header = Header;

    fn on_packet<T: Tx<Header, P>>(&mut self, _now: Instant, from: Ingress, header: &Header, payload: &P, tx: &mut T) {
        let is = |list: &[Address], place: u16| list.get(usize::from(place)) == Some(&from.source);
        match *header {
            Header::Push { block, place } if is(&self.config.members, place) => self.on_push(block, place.into(), payload, tx),
            Header::RackSum { block, place } if is(&self.config.racks, place) && self.home(block) == self.config.place => {
                self.add_rack(block, place.into(), payload, tx);
            }
            Header::Sum { block } if self.config.racks[self.home(block)] == from.source => {
                let Some(place) = self.slot(block, tx) else { return };
                let slot = &mut self.slots[place];
                if slot.done || payload.assign(&mut slot.total, &mut self.config.op).is_err() {
                    return tx.note(Event::Dropped(DropReason::Duplicate));
                }
                self.give(block, place, false, tx);
            }
            _ => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    fn on_timeout<T: Tx<Header, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }
}
