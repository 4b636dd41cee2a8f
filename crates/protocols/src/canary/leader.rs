//! A worker's duties as the leader of some of its job's blocks: sums what comes, remembers which switches must be restored, and sends
//! the sum back.

use std::collections::VecDeque;

use fanin_core::{Address, Body, DropReason, Egress, FlowLabel, NodeId, OpError, Payload, Piece, PortId, Route, Tx};
use fanin_wire::canary::{CanaryHeader, CanaryId, PartialSum};

use super::planted::Planted;
use super::pool::Pool;
use crate::shared::state::node_state;

/// A place without a record.
const EMPTY: u32 = u32::MAX;

/// Where a collision happened: the switch, and the port by which the packet came there.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct Collision {
    pub switch: u16,
    pub port: PortId,
}

/// Children that only a restoration reaches: bit i of `ports` is port 16 `shard` + i of `switch`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Restoration {
    switch: u16,
    shard: u16,
    ports: u16,
}

/// One block that this worker leads, from its first packet until its sum is sent.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Record<A> {
    /// The block's number among those that this worker leads.
    ordinal: u32,
    id: CanaryId,
    /// Contributions in `sum`, without this worker's own.
    counter: u32,
    /// One a switch and shard where packets of the block have collided (`canary 4`: `got_ports`).
    restorations: Vec<Restoration>,
    /// Packets of the answer that were sent: the broadcast, then the restorations.
    packets_sent: u32,
    sum: A,
}

/// The blocks that a worker leads.
pub(super) struct Leader<P: Payload + ?Sized> {
    hosts: u32,
    block_bytes: u32,
    flow: FlowLabel,
    records: Pool<Record<P::Acc>>,
    /// Block number n of those that this worker leads is at place n mod length, a power of two: the record's number, or [`EMPTY`].
    places: Vec<u32>,
    /// Records whose sums are complete and wait to be sent.
    complete: VecDeque<u32>,
    pub(super) planted: Planted,
}

node_state!(Leader { hosts, block_bytes, flow, records, places, complete, planted });

impl<P: Payload + ?Sized> Leader<P> {
    /// A leader that has heard nothing yet, in a job of `hosts` workers.
    pub(super) fn new(hosts: u32, block_bytes: u32, flow: FlowLabel) -> Self {
        let (records, places, complete) = (Pool::new(), vec![EMPTY; 4], VecDeque::new());
        Leader { hosts, block_bytes, flow, records, places, complete, planted: Planted::NONE }
    }

    #[inline]
    fn place_of(&self, ordinal: u32) -> usize {
        ordinal as usize & (self.places.len() - 1)
    }

    /// Whether something of a block has come that is not complete.
    pub(super) fn has_open(&self) -> bool {
        self.records.in_use() as usize > self.complete.len()
    }

    /// Whether sums wait to be sent.
    #[inline]
    pub(super) fn has_answers(&self) -> bool {
        !self.complete.is_empty()
    }

    /// The record of an open block.
    #[inline]
    fn find(&self, ordinal: u32) -> Option<u32> {
        let number = self.places[self.place_of(ordinal)];
        (number != EMPTY && self.records[number].ordinal == ordinal).then_some(number)
    }

    /// Whether all other workers have contributed to an open block.
    #[inline]
    pub(super) fn is_ready(&self, ordinal: u32) -> bool {
        self.find(ordinal).is_some_and(|number| self.records[number].counter + 1 == self.hosts)
    }

    /// `canary 5.7`: adds a packet to the block that is number `ordinal` of those led; says whether only the leader's own contribution
    /// is missing now.
    ///
    /// # Errors
    /// [`DropReason::Mismatch`] where the payload does not fit the others, [`DropReason::Duplicate`] where it holds more contributions
    /// than are missing; nothing is added.
    #[inline]
    pub(super) fn add(
        &mut self,
        ordinal: u32,
        sum: &PartialSum,
        collision: Option<Collision>,
        payload: &P,
        op: &mut P::Op,
    ) -> Result<bool, DropReason> {
        let counter = u32::from(sum.counter);
        let known = self.find(ordinal);
        let before = known.map_or(0, |number| self.records[number].counter);
        if before + counter >= self.hosts {
            return Err(DropReason::Duplicate);
        }
        let number = match known {
            Some(number) => {
                payload.reduce(&mut self.records[number].sum, op).map_err(|_| DropReason::Mismatch)?;
                number
            }
            None => self.open(ordinal, sum.id, payload, op)?,
        };
        let record = &mut self.records[number];
        record.counter += counter;
        if let Some(collision) = collision {
            record.restore(collision);
        }
        Ok(record.counter + 1 == self.hosts)
    }

    /// The first packet of a block.
    fn open(&mut self, ordinal: u32, id: CanaryId, payload: &P, op: &mut P::Op) -> Result<u32, DropReason> {
        let bytes = payload.bytes();
        if bytes == 0 || bytes > self.block_bytes as usize {
            return Err(DropReason::Mismatch);
        }
        while self.places[self.place_of(ordinal)] != EMPTY {
            self.widen();
        }
        let sum = || P::accumulator(op, self.block_bytes as usize);
        let make = || Record { ordinal, id, counter: 0, restorations: Vec::new(), packets_sent: 0, sum: sum() };
        let number = self.records.take(make);
        let record = &mut self.records[number];
        if payload.assign(&mut record.sum, op).is_err() {
            self.records.give_back(number);
            return Err(DropReason::Mismatch);
        }
        (record.ordinal, record.id, record.counter, record.packets_sent) = (ordinal, id, 0, 0);
        record.restorations.clear();
        let place = self.place_of(ordinal);
        self.places[place] = number;
        Ok(number)
    }

    /// Two open blocks are further apart than there are places: doubles them. This ends when the job's workers are as far apart as they
    /// ever are.
    #[cold]
    fn widen(&mut self) {
        let old = std::mem::take(&mut self.places);
        self.places = vec![EMPTY; old.len() * 2];
        for number in old.into_iter().filter(|number| *number != EMPTY) {
            let place = self.place_of(self.records[number].ordinal);
            self.places[place] = number;
        }
    }

    /// `canary 5.7`, 4 and 5.8: adds the own contribution, delivers the sum, and has it sent by [`Leader::send_answers`].
    ///
    /// # Errors
    /// Where the own vector has another length than what came.
    #[inline]
    pub(super) fn finish<T: Tx<CanaryHeader, P>>(&mut self, ordinal: u32, piece: Piece, tx: &mut T) -> Result<(), OpError> {
        let Some(number) = self.find(ordinal) else { return Ok(()) };
        let record = &mut self.records[number];
        tx.contribute(piece, &mut record.sum, false)?;
        tx.deliver(piece, Body::Acc(&record.sum))?;
        let place = self.place_of(ordinal);
        self.places[place] = EMPTY;
        self.complete.push_back(number);
        Ok(())
    }

    /// `canary 5.8`: sends the broadcast and then the restorations of each complete block, as far as there is room; false where some are
    /// left.
    #[inline]
    pub(super) fn send_answers<T: Tx<CanaryHeader, P>>(&mut self, uplink: PortId, tx: &mut T) -> bool {
        while let Some(&number) = self.complete.front() {
            let record = &mut self.records[number];
            let restorations: &[Restoration] = if self.planted.skips_restoration() { &[] } else { &record.restorations };
            let packets = 1 + restorations.len() as u32;
            while record.packets_sent < packets {
                if !tx.room(Egress::Port(uplink)) {
                    return false;
                }
                let body = Body::Acc(&record.sum);
                match record.packets_sent.checked_sub(1) {
                    None => tx.send(Egress::Port(uplink), &CanaryHeader::Broadcast { id: record.id }, body),
                    Some(index) => {
                        let Restoration { switch, shard, ports } = restorations[index as usize];
                        let switch = NodeId(u32::from(switch));
                        let header = CanaryHeader::Restore { id: record.id, switch, shard, ports };
                        tx.send(Egress::Route(Route::direct(Address::switch(switch), self.flow)), &header, body);
                    }
                }
                record.packets_sent += 1;
            }
            self.complete.pop_front();
            self.records.give_back(number);
        }
        true
    }

    /// Forgets all blocks: the job has failed.
    pub(super) fn clear(&mut self) {
        self.records = Pool::new();
        self.places.fill(EMPTY);
        self.complete.clear();
    }

    /// Forgets how the present state was reached, so that states that behave alike are equal.
    pub(super) fn rebase(&mut self) {
        let open = self.places.iter().copied().filter(|number| *number != EMPTY);
        let kept: Vec<u32> = open.chain(self.complete.iter().copied()).collect();
        self.records.renumber(&kept);
        let users = self.places.iter_mut().filter(|number| **number != EMPTY).chain(&mut self.complete);
        users.enumerate().for_each(|(new, number)| *number = new as u32);
    }
}

impl<A> Record<A> {
    /// A port may be told twice, or have a descriptor as well by now (`canary 9`, P8): who gets the sum twice drops it once.
    #[inline]
    fn restore(&mut self, Collision { switch, port }: Collision) {
        let (shard, bit) = (port.0 / CanaryHeader::SHARD_PORTS, 1 << (port.0 % CanaryHeader::SHARD_PORTS));
        match self.restorations.iter_mut().find(|known| known.switch == switch && known.shard == shard) {
            Some(known) => known.ports |= bit,
            None => self.restorations.push(Restoration { switch, shard, ports: bit }),
        }
    }
}
