//! A top-of-rack switch that aggregates (`rina 1`, `3`): a slot for every packet that its agent may have under way, and the way of results.

use fanin_core::{
    Address, Body, DropReason, Egress, Event, Ingress, Instant, JobId, Node, NodeId, Payload, PortSet, RetransmitReason, Route, Tx,
};
use fanin_wire::rina::{Item, MEMBERS_MAX, RinaHeader, Way};

use super::config::{Onward, RinaSwitchConfig};
use super::planted::Planted;
use crate::shared::serial::{newer, newer16};
use crate::shared::state::node_state;
use crate::shared::window::rounded;

/// One piece under way.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Slot<A> {
    /// What it sums; `None` before the first task.
    item: Option<Item>,
    /// Whose gradients are in it, and how many ranks these have.
    arrived: u64,
    contributors: u16,
    marked: bool,
    /// The agent has no room for another piece until the next group has acknowledged this one.
    asks: bool,
    bytes: u32,
    acc: A,
}

/// What the agent's tasks say of its group.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Rack {
    epoch: u16,
    operation: u16,
    agent: NodeId,
    members: u64,
    next: NodeId,
}

/// What a worker contributes.
#[derive(Clone, Copy)]
struct Gradient {
    item: Item,
    member: u8,
    contributors: u16,
}

/// The job's node at a switch that aggregates.
pub struct RinaSwitch<P: Payload + ?Sized> {
    config: RinaSwitchConfig<P::Op>,
    slots: Box<[Slot<P::Acc>]>,
    rack: Option<Rack>,
    /// Results of an operation of which it knows nothing, since it began.
    unknown: u32,
    /// Ports that a packet goes to; kept for its memory.
    ports: PortSet,
    planted: Planted,
}

node_state!(RinaSwitch { config, slots, rack, unknown, ports, planted });

impl<P: Payload + ?Sized> RinaSwitch<P> {
    /// A switch with all its memory.
    ///
    /// # Panics
    /// Where there are more workers than [`MEMBERS_MAX`].
    pub fn new(config: RinaSwitchConfig<P::Op>) -> Self {
        assert!(config.members.len() <= MEMBERS_MAX as usize, "at most 48 workers at a switch that aggregates");
        let slot = || Slot {
            item: None,
            arrived: 0,
            contributors: 0,
            marked: false,
            asks: false,
            bytes: 0,
            acc: P::accumulator(&config.op, config.block_bytes as usize),
        };
        RinaSwitch {
            slots: (0..rounded(config.window)).map(|_| slot()).collect(),
            rack: None,
            unknown: 0,
            ports: PortSet::new(),
            planted: Planted::NONE,
            config,
        }
    }

    /// The job that the switch aggregates for.
    pub fn job(&self) -> JobId {
        self.config.job
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
    }

    /// The switch stores no times.
    pub fn rebase(&mut self, _now: Instant) {}

    #[inline]
    fn index_of(&self, number: u32) -> usize {
        number as usize & (self.slots.len() - 1)
    }

    #[inline]
    fn to(&self, node: NodeId) -> Egress<'static> {
        Egress::Route(Route::direct(Address::worker(node), self.config.flow))
    }

    /// Fills `ports` with those of these members.
    fn select(&mut self, members: u64) {
        self.ports.clear();
        let chosen = self.config.members.iter().enumerate().filter(|(bit, _)| members >> bit & 1 == 1);
        for (_, (port, _)) in chosen {
            self.ports.insert(*port);
        }
    }

    /// `rina 4.1`, 2, and `4.4`: the agent wants pieces summed. What has not begun, begins; of what has, only who is missing is asked
    /// again; what is complete goes out again.
    fn on_task<T: Tx<RinaHeader, P>>(&mut self, from: Ingress, rack: Rack, item: Item, count: u8, tx: &mut T) {
        let known = self
            .config
            .members
            .iter()
            .enumerate()
            .any(|(bit, (port, node))| *node == rack.agent && *port == from.port && rack.members >> bit & 1 == 1);
        let too_many = self.config.members.len() < MEMBERS_MAX as usize && rack.members >> self.config.members.len() != 0;
        if !known || too_many || from.source != Address::worker(rack.agent) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        if let Some(current) = self.rack {
            let older = newer16(current.epoch, rack.epoch) || current.epoch == rack.epoch && newer16(current.operation, rack.operation);
            if older {
                return tx.note(Event::Dropped(DropReason::Stale));
            }
            if (current.epoch, current.operation) != (rack.epoch, rack.operation) {
                self.clear(tx);
            }
        }
        let known = self.rack.map(|known| (known.epoch, known.operation));
        let mut fresh = known != Some((rack.epoch, rack.operation));
        (self.rack, self.unknown) = (Some(rack), 0);
        // Pieces next to each other that begin now are asked for together.
        let count = count.min(self.slots.len().min(127) as u8);
        let (first, asks) = (item.asking(false), item.asks());
        let mut begun = 0u8;
        for ahead in 0..count {
            let item = first.ahead(ahead.into());
            if self.begin(item, asks && ahead + 1 == count, tx) {
                begun += 1;
                continue;
            }
            self.pull(item.ahead(u32::from(begun).wrapping_neg()), std::mem::take(&mut begun), rack.members, &mut fresh, tx);
            self.ask_again(item, rack, tx);
        }
        self.pull(first.ahead(u32::from(count - begun)), begun, rack.members, &mut fresh, tx);
    }

    /// `rina` P5: nothing of another epoch or operation is left.
    fn clear<T: Tx<RinaHeader, P>>(&mut self, tx: &mut T) {
        if self.planted.keeps_epoch() {
            return;
        }
        for slot in &mut self.slots {
            if slot.arrived != 0 {
                tx.note(Event::SlotFreed { bytes: slot.bytes });
            }
            (slot.item, slot.arrived) = (None, 0);
        }
    }

    /// Takes the slot for a piece, unless it has it, or a later one. The agent sends no task for a slot whose piece the next group has
    /// not acknowledged (`rina` P9).
    fn begin<T: Tx<RinaHeader, P>>(&mut self, item: Item, asks: bool, tx: &mut T) -> bool {
        let index = self.index_of(item.number());
        let slot = &mut self.slots[index];
        if slot.item.is_some_and(|current| !newer(item.number(), current.number())) {
            slot.asks |= asks && slot.item == Some(item);
            return false;
        }
        if slot.arrived != 0 {
            tx.note(Event::SlotFreed { bytes: slot.bytes });
        }
        (slot.item, slot.arrived, slot.contributors, slot.marked, slot.asks) = (Some(item), 0, 0, false, asks);
        true
    }

    /// Asks members for pieces; the first time after it began or an operation did, it says so.
    fn pull<T: Tx<RinaHeader, P>>(&mut self, item: Item, count: u8, members: u64, fresh: &mut bool, tx: &mut T) {
        if count > 0 {
            self.select(members);
            tx.send(Egress::Ports(&self.ports), &RinaHeader::Pull { item, count, fresh: std::mem::take(fresh) }, Body::Empty);
        }
    }

    fn ask_again<T: Tx<RinaHeader, P>>(&mut self, item: Item, rack: Rack, tx: &mut T) {
        let index = self.index_of(item.number());
        let slot = &self.slots[index];
        if slot.item != Some(item) {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        let missing = rack.members & !slot.arrived;
        if missing == 0 {
            tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: item.segment() });
            return self.send_sum(index, item, rack.next, tx);
        }
        self.pull(item, 1, missing, &mut false, tx);
    }

    /// `rina 4.1`, 3.
    #[inline]
    fn on_gradient<T: Tx<RinaHeader, P>>(&mut self, from: Ingress, gradient: Gradient, payload: &P, tx: &mut T) {
        let Gradient { item, member, contributors } = gradient;
        let Some(rack) = self.rack else { return tx.note(Event::Dropped(DropReason::NoSlot)) };
        let bit = 1u64 << member;
        let known = self.config.members.get(usize::from(member)).is_some_and(|(port, _)| *port == from.port);
        if !known || rack.members & bit == 0 {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let index = self.index_of(item.number());
        let slot = &mut self.slots[index];
        if slot.item != Some(item) {
            return tx.note(Event::Dropped(DropReason::Stale));
        }
        if slot.arrived & bit != 0 && !self.planted.ignores_bitmap() {
            return tx.note(Event::Dropped(DropReason::Duplicate));
        }
        if payload.bytes() == 0 || payload.bytes() > self.config.block_bytes as usize {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        let first = slot.arrived == 0;
        let op = &mut self.config.op;
        let added = if first { payload.assign(&mut slot.acc, op) } else { payload.reduce(&mut slot.acc, op) };
        if added.is_err() {
            return tx.note(Event::Dropped(DropReason::Mismatch));
        }
        if first {
            slot.bytes = payload.bytes() as u32;
            tx.note(Event::SlotTaken { bytes: slot.bytes });
        }
        slot.arrived |= bit;
        slot.contributors = slot.contributors.wrapping_add(contributors);
        slot.marked |= from.ecn;
        if slot.arrived == rack.members {
            self.send_sum(index, item, rack.next, tx);
        }
    }

    /// The sum goes to the next group's agent, or to the next worker.
    fn send_sum<T: Tx<RinaHeader, P>>(&self, index: usize, item: Item, next: NodeId, tx: &mut T) {
        let slot = &self.slots[index];
        let header = RinaHeader::Sum { item: item.asking(slot.asks), marked: slot.marked, contributors: slot.contributors };
        tx.send(self.to(next), &header, Body::Acc(&slot.acc));
    }

    /// A result of an operation of which this switch has not heard, for the agent of a rack of its own: it has restarted, and says so. With
    /// the 1st such result, the 2nd, the 4th and so on, as what it says may be lost, and a worker by itself has no answer.
    fn say_unknown<T: Tx<RinaHeader, P>>(&mut self, item: Item, to: NodeId, tx: &mut T) {
        if self.rack.is_some() || self.config.members.iter().all(|(_, node)| *node != to) {
            return;
        }
        self.unknown = self.unknown.saturating_add(1);
        if self.unknown.is_power_of_two() {
            tx.send(self.to(to), &RinaHeader::Unknown { epoch: item.epoch, operation: item.operation }, Body::Empty);
        }
    }

    /// `rina 4.2`, 2: a result goes down to all workers and on to the next group at once. One that is for somebody else, or for a group
    /// that the switch does not know (yet), goes its way.
    fn on_result<T: Tx<RinaHeader, P>>(
        &mut self,
        from: Ingress,
        (item, way): (Item, Way),
        (to, group, hops): (NodeId, u16, u16),
        payload: &P,
        tx: &mut T,
    ) {
        let rack = self.rack.filter(|rack| rack.epoch == item.epoch && rack.operation == item.operation && rack.agent == to);
        let Some(rack) = rack.filter(|_| way == Way::Direct) else {
            self.say_unknown(item, to, tx);
            if from.source.node == to || self.config.layout.rank_at(to).is_none() {
                // Its agent waits for an acknowledgement, and will try another way.
                return tx.note(Event::Dropped(DropReason::NoSlot));
            }
            // On its way through this switch to another rack, whose switch hands it down to all; to this rack's agent, who must see to it.
            let is_on_its_way = way == Way::Direct && self.config.members.iter().all(|(_, node)| *node != to);
            let onwards = Egress::Route(Route::by_aggregators(Address::worker(to), self.config.flow));
            let egress = if is_on_its_way { onwards } else { self.to(to) };
            return tx.send(egress, &RinaHeader::Result { item, way, to, group, hops }, Body::Borrowed(payload));
        };
        let own = self.config.members.iter().position(|(_, node)| *node == from.source.node);
        let down = own.map_or(rack.members, |bit| rack.members & !(1 << bit));
        self.select(down);
        // The agent's own go on by the switch in any case: they come at the rate of its link.
        let by_agent = own.is_none() && self.config.layout.onward == Onward::Agent;
        let relayed = RinaHeader::Result { item, way: Way::Relayed, to, group, hops: if by_agent { hops } else { 0 } };
        tx.send(Egress::Ports(&self.ports), &relayed, Body::Borrowed(payload));
        if hops > 0 && !by_agent {
            let onwards = RinaHeader::Result { item, way: Way::Direct, to: rack.next, group, hops: hops - 1 };
            let route = Route::by_aggregators(Address::worker(rack.next), self.config.flow);
            tx.send(Egress::Route(route), &onwards, Body::Borrowed(payload));
        }
    }
}

impl<P: Payload + ?Sized> Node<P> for RinaSwitch<P> {
    type Header = RinaHeader;

    #[inline]
    fn on_packet<T: Tx<RinaHeader, P>>(&mut self, _now: Instant, from: Ingress, header: &RinaHeader, payload: &P, tx: &mut T) {
        match *header {
            RinaHeader::Gradient { item, member, contributors } => {
                self.on_gradient(from, Gradient { item, member, contributors }, payload, tx);
            }
            RinaHeader::Result { item, way, to, group, hops } => self.on_result(from, (item, way), (to, group, hops), payload, tx),
            RinaHeader::Task { item, count, members, next } => {
                let Some(next) = self.config.layout.members.get(usize::from(next)).map(|member| member.node) else {
                    return tx.note(Event::Dropped(DropReason::NotAMember));
                };
                let rack = Rack { epoch: item.epoch, operation: item.operation, agent: from.source.node, members: members.bits(), next };
                self.on_task(from, rack, item, count, tx);
            }
            _ => tx.note(Event::Dropped(DropReason::Mismatch)),
        }
    }

    fn on_timeout<T: Tx<RinaHeader, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_job_end<T: Tx<RinaHeader, P>>(&mut self, _now: Instant, _job: JobId, tx: &mut T) {
        self.clear(tx);
        (self.rack, self.unknown) = (None, 0);
    }
}
