//! A worker's duties as the leader of some of its job's blocks: sums what comes, remembers which switches must be restored, and sends
//! the sum back. What it does about losses is in [`super::recovery`].

pub(super) mod recovery;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use fanin_core::{
    Address, Body, DropReason, Duration, Egress, FlowLabel, Instant, JobId, NodeId, OpError, Payload, Piece, PortId, Rank, Route, Tx,
};
use fanin_wire::canary::{CanaryHeader, CanaryId, CanaryMarks, PartialSum};

use super::config::Recovery;
use super::cut::Cut;
use super::places::Places;
use super::planted::Planted;
use super::pool::Pool;
use super::watch::Watch;
use super::{app_of, flow_of};
use crate::shared::excuses::Excuses;
use crate::shared::rtt::rebased;
use crate::shared::state::node_state;
use recovery::{Caution, Trouble};

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

/// Where a led block stands.
///
/// ```text
///   Open ---------------> Answering ----------> Kept ----------> (forgotten)
///    | ^   complete        ^    all packets sent |   nobody can
///    | |                   |                     |   lack it any more
///    +-+ its generation    +---------------------+
///        has failed          many ask for the sum
/// ```
///
/// In a network that loses nothing a block is forgotten when its packets have been sent.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) enum Stage {
    /// Contributions are missing, if only this worker's own.
    Open,
    /// The sum is complete and on its way.
    Answering,
    /// The sum was sent, and is kept for those whom it does not reach.
    Kept,
}

/// One block that this worker leads.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Record<A> {
    /// The block's number in the job.
    pub block: u32,
    /// How often the block was begun anew.
    pub generation: u8,
    pub stage: Stage,
    /// The sum of this block has no data (see [`Cut`]), ...
    empty_sum: bool,
    /// ... but for this worker, to whom it goes as an answer.
    receiver: Option<u32>,
    /// Contributions in `sum`, without this worker's own.
    pub counter: u32,
    /// Contributions to the generation before this one, whenever they came.
    pub counter_before: u32,
    /// Length in bytes of what came last; 0 where all that came was empty.
    pub bytes: u32,
    /// What its contributions have met, of any generation.
    pub marks: CanaryMarks,
    /// One a switch and shard where packets of the block have collided (`canary 4`: `got_ports`).
    restorations: Vec<Restoration>,
    /// When the leader is through with a complete sum; `ZERO` where it takes no time.
    ready_at: Instant,
    /// Packets of the answer that were sent: the broadcast, then the restorations.
    packets_sent: u32,
    /// Who has asked, and what is done about it; nothing for a block of which nothing is lost.
    pub trouble: Option<Box<Trouble>>,
    pub sum: A,
}

/// The blocks that a worker leads.
pub(super) struct Leader<P: Payload + ?Sized> {
    job: JobId,
    pub(super) rank: Rank,
    pub(super) members: Arc<[NodeId]>,
    block_bytes: u32,
    pub(super) recovery: Recovery,
    /// How long it works on a sum.
    pub(super) time: Duration,
    pub(super) records: Pool<Record<P::Acc>>,
    /// Number of the record of each block.
    pub(super) places: Places,
    /// How many records are open.
    pub(super) open: u32,
    /// Records whose sums are complete and wait to be sent.
    pub(super) answers: VecDeque<u32>,
    /// Records whose sums are kept, in the order in which they were complete.
    pub(super) kept: VecDeque<u32>,
    /// When something is to be done about a block.
    pub(super) due: BTreeSet<(Instant, u32)>,
    pub(super) watch: Watch,
    /// What those have said who were asked for a contribution.
    pub(super) excuses: Excuses<Rank>,
    /// A generation was given up of which nothing was lost.
    pub(super) was_mistaken: bool,
    /// How sure it is of losses.
    pub(super) caution: Caution,
    pub(super) planted: Planted,
}

node_state!(Leader {
    job,
    rank,
    members,
    block_bytes,
    recovery,
    time,
    records,
    places,
    open,
    answers,
    kept,
    due,
    watch,
    excuses,
    was_mistaken,
    caution,
    planted
});

impl<P: Payload + ?Sized> Leader<P> {
    /// A leader that has heard nothing yet.
    pub(super) fn new(job: JobId, rank: Rank, members: Arc<[NodeId]>, block_bytes: u32, recovery: Recovery) -> Self {
        Leader {
            job,
            rank,
            block_bytes,
            recovery,
            time: Duration::ZERO,
            records: Pool::new(),
            places: Places::new(members.len() as u32),
            open: 0,
            answers: VecDeque::new(),
            kept: VecDeque::new(),
            due: BTreeSet::new(),
            watch: Watch::default(),
            excuses: Excuses::NONE,
            was_mistaken: false,
            caution: Caution::default(),
            planted: Planted::NONE,
            members,
        }
    }

    #[inline]
    pub(super) fn hosts(&self) -> u32 {
        self.members.len() as u32
    }

    #[inline]
    pub(super) fn flow(&self) -> FlowLabel {
        flow_of(self.job)
    }

    /// The way to a worker, past all switches.
    #[inline]
    pub(super) fn to(&self, rank: u32) -> Egress<'static> {
        Egress::Route(Route::direct(Address::worker(self.members[rank as usize]), self.flow()))
    }

    /// The name of a block in packets.
    #[inline]
    pub(super) fn id(&self, block: u32, generation: u8) -> CanaryId {
        CanaryId::new(app_of(self.job), generation, block)
    }

    /// Whether something of a block has come that is not complete.
    #[inline]
    pub(super) fn has_open(&self) -> bool {
        self.open > 0
    }

    /// Whether sums wait to be sent.
    #[inline]
    pub(super) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// When the first one of them may be, where the leader still works on it.
    #[inline]
    pub(super) fn answers_at(&self) -> Option<Instant> {
        if self.time == Duration::ZERO {
            return None;
        }
        self.answers.front().map(|number| self.records[*number].ready_at).filter(|at| *at != Instant::ZERO)
    }

    /// Whether the leader still works on a complete sum.
    #[inline]
    pub(super) fn is_at_work(&self, number: u32, now: Instant) -> bool {
        self.records[number].ready_at > now
    }

    /// The record of a block.
    #[inline]
    pub(super) fn find(&self, block: u32) -> Option<u32> {
        self.places.get(block).filter(|number| self.records[*number].block == block)
    }

    /// Whether all other workers have contributed to an open block.
    #[inline]
    pub(super) fn is_ready(&self, block: u32) -> bool {
        self.find(block).is_some_and(|number| {
            let record = &self.records[number];
            record.stage == Stage::Open && record.counter + 1 == self.hosts()
        })
    }

    /// `canary 5.7`: adds a packet to a block; says whether only the leader's own contribution is missing now.
    ///
    /// # Errors
    /// [`DropReason::Mismatch`] where the payload does not fit the others, [`DropReason::Duplicate`] where it holds more contributions
    /// than are missing or the sum is complete, [`DropReason::Stale`] where it is of another generation; nothing is added.
    #[inline]
    pub(super) fn add(
        &mut self,
        block: u32,
        sum: &PartialSum,
        collision: Option<Collision>,
        payload: &P,
        op: &mut P::Op,
    ) -> Result<bool, DropReason> {
        let (counter, hosts) = (u32::from(sum.counter), self.hosts());
        let number = match self.find(block) {
            Some(number) => number,
            None if counter >= hosts => return Err(DropReason::Duplicate),
            None if sum.id.generation() != 0 => return Err(DropReason::Stale),
            None => self.open(block, op),
        };
        let record = &mut self.records[number];
        if record.stage != Stage::Open || record.counter + counter >= hosts {
            return Err(DropReason::Duplicate);
        }
        let is_current = record.generation == sum.id.generation() || self.planted.mixes_generations();
        if !is_current || record.generation == self.recovery.generations {
            self.was_mistaken |= record.add_late(sum.id.generation(), counter) == hosts;
            return Err(DropReason::Stale);
        }
        if let Err(reason) = record.take_in(payload, op, self.block_bytes) {
            if record.counter == 0 && record.trouble.is_none() {
                self.close(number);
            }
            return Err(reason);
        }
        record.counter += counter;
        record.marks = record.marks.with(sum.marks);
        if let Some(collision) = collision {
            record.restore(collision);
        }
        Ok(record.counter + 1 == hosts)
    }

    /// What a packet of a block has met, if the block is known.
    #[cold]
    pub(super) fn mark(&mut self, block: u32, marks: CanaryMarks) {
        if let Some(number) = self.find(block) {
            self.records[number].marks = self.records[number].marks.with(marks);
        }
    }

    /// A record of a block of which nothing has come yet.
    #[inline]
    pub(super) fn open(&mut self, block: u32, op: &P::Op) -> u32 {
        let block_bytes = self.block_bytes as usize;
        let make = || Record {
            block,
            generation: 0,
            stage: Stage::Open,
            empty_sum: false,
            receiver: None,
            counter: 0,
            counter_before: 0,
            bytes: 0,
            marks: CanaryMarks::NONE,
            restorations: Vec::new(),
            ready_at: Instant::ZERO,
            packets_sent: 0,
            trouble: None,
            sum: P::accumulator(op, block_bytes),
        };
        let number = self.records.take(make);
        let record = &mut self.records[number];
        (record.block, record.generation, record.stage) = (block, 0, Stage::Open);
        (record.empty_sum, record.counter, record.bytes, record.packets_sent) = (false, 0, 0, 0);
        (record.counter_before, record.receiver, record.ready_at, record.marks) = (0, None, Instant::ZERO, CanaryMarks::NONE);
        record.restorations.clear();
        record.trouble = None;
        let records = &self.records;
        self.places.insert(block, number, |number| records[number].block);
        self.open += 1;
        number
    }

    /// Forgets an open record.
    #[cold]
    fn close(&mut self, number: u32) {
        self.places.remove(self.records[number].block);
        self.records.give_back(number);
        self.open -= 1;
    }

    /// `canary 5.7`, 4 and 5.8: adds the own contribution, delivers the sum unless it is for another worker alone, and has it sent by
    /// [`Leader::send_answers`].
    ///
    /// # Errors
    /// Where the own vector has another length than what came.
    #[inline]
    pub(super) fn finish<T: Tx<CanaryHeader, P>>(
        &mut self,
        now: Instant,
        block: u32,
        piece: Piece,
        cut: &Cut,
        (element_bytes, op): (u32, &P::Op),
        tx: &mut T,
    ) -> Result<(), OpError> {
        let Some(number) = self.find(block) else { return Ok(()) };
        let hosts = self.hosts();
        let record = &mut self.records[number];
        let expected = if cut.fills_contributions() { piece.elements * element_bytes } else { 0 };
        if record.bytes != expected {
            return Err(OpError::Length { expected: expected as usize, got: record.bytes as usize });
        }
        if cut.has_vector() {
            tx.contribute(piece, &mut record.sum, expected == 0)?;
            if cut.fills_contributions() {
                P::finish(&mut record.sum, op, hosts);
            }
            if cut.receiver().is_none() {
                tx.deliver(piece, Body::Acc(&record.sum))?;
            }
        }
        if record.generation > 0 && record.counter_before + 1 < hosts {
            self.caution.on_found();
        }
        (record.empty_sum, record.receiver) = (!cut.fills_sums(), cut.receiver());
        record.stage = Stage::Answering;
        record.ready_at = if self.time == Duration::ZERO { Instant::ZERO } else { now + self.time };
        self.open -= 1;
        self.answers.push_back(number);
        if self.recovery.reliability.reliable {
            self.keep(number);
        } else {
            self.places.remove(block);
        }
        Ok(())
    }

    /// `canary 5.8`: sends the broadcast and then the restorations of each complete block, before them the sum itself where it is for one
    /// worker, as far as there is room; false where there is none for what is left. Those that it still works on wait, and who stands behind.
    #[inline]
    pub(super) fn send_answers<T: Tx<CanaryHeader, P>>(&mut self, now: Instant, uplink: PortId, tx: &mut T) -> bool {
        while let Some(&number) = self.answers.front() {
            if self.is_at_work(number, now) {
                return true;
            }
            self.records[number].ready_at = Instant::ZERO;
            let is_direct = self.records[number].generation == self.recovery.generations;
            let was_sent = if is_direct { self.answer_all(number, uplink, tx) } else { self.broadcast(number, uplink, tx) };
            if !was_sent {
                return false;
            }
            self.answers.pop_front();
            if self.recovery.reliability.reliable {
                self.records[number].stage = Stage::Kept;
            } else {
                self.records.give_back(number);
            }
        }
        true
    }

    #[inline]
    fn broadcast<T: Tx<CanaryHeader, P>>(&mut self, number: u32, uplink: PortId, tx: &mut T) -> bool {
        let (job, flow) = (self.job, flow_of(self.job));
        let record = &mut self.records[number];
        let restorations: &[Restoration] = if self.planted.skips_restoration() { &[] } else { &record.restorations };
        let answers = u32::from(record.receiver.is_some());
        let packets = answers + 1 + restorations.len() as u32;
        let (id, marks, body) = (CanaryId::new(app_of(job), record.generation, record.block), record.marks, record.body());
        let mut sent = record.packets_sent;
        while sent < packets && tx.room(Egress::Port(uplink)) {
            match (sent + 1 - answers, record.receiver) {
                (0, Some(rank)) => {
                    let to = Egress::Route(Route::direct(Address::worker(self.members[rank as usize]), flow));
                    tx.send(to, &CanaryHeader::Answer { id, marks }, Body::Acc(&record.sum));
                }
                (0 | 1, _) => tx.send(Egress::Port(uplink), &CanaryHeader::Broadcast { id, marks }, body),
                (packet, _) => {
                    let Restoration { switch, shard, ports } = restorations[packet as usize - 2];
                    let switch = NodeId(u32::from(switch));
                    let header = CanaryHeader::Restore { id, switch, shard, ports, marks };
                    tx.send(Egress::Route(Route::direct(Address::switch(switch), flow)), &header, body);
                }
            }
            sent += 1;
        }
        record.packets_sent = sent;
        sent == packets
    }

    /// `canary 5.15`: no tree is left of a block that switches were passed by with, so each worker gets the sum by itself.
    #[cold]
    fn answer_all<T: Tx<CanaryHeader, P>>(&mut self, number: u32, uplink: PortId, tx: &mut T) -> bool {
        let hosts = self.hosts();
        while self.records[number].packets_sent < hosts {
            if !tx.room(Egress::Port(uplink)) {
                return false;
            }
            let rank = self.records[number].packets_sent;
            if rank != self.rank.0 {
                self.answer(number, rank, tx);
            }
            self.records[number].packets_sent += 1;
        }
        true
    }

    /// Sends a complete sum to one worker.
    #[cold]
    pub(super) fn answer<T: Tx<CanaryHeader, P>>(&self, number: u32, rank: u32, tx: &mut T) {
        let record = &self.records[number];
        let body = if self.is_receiver(number, rank) { Body::Acc(&record.sum) } else { record.body() };
        let header = CanaryHeader::Answer { id: self.id(record.block, record.generation), marks: record.marks };
        tx.send(self.to(rank), &header, body);
    }

    /// Whether a complete sum is for this worker alone.
    #[inline]
    pub(super) fn is_receiver(&self, number: u32, rank: u32) -> bool {
        self.records[number].receiver == Some(rank)
    }

    /// Has a complete sum sent once more along its tree: whom it is for alone has its own answer.
    pub(super) fn answer_again(&mut self, number: u32) {
        let record = &mut self.records[number];
        (record.stage, record.packets_sent) = (Stage::Answering, u32::from(record.receiver.is_some()));
        self.answers.push_back(number);
    }

    /// Forgets all blocks: the job has failed.
    pub(super) fn clear(&mut self) {
        self.records = Pool::new();
        self.places.clear();
        self.open = 0;
        self.answers.clear();
        self.kept.clear();
        self.due.clear();
        self.watch.clear();
        self.excuses.clear();
    }

    /// Forgets how the present state was reached, and makes times relative to `now`, so that states that behave alike are equal.
    pub(super) fn rebase(&mut self, now: Instant) {
        let mut kept = self.places.numbers();
        let placeless: Vec<u32> = self.answers.iter().copied().filter(|number| !kept.contains(number)).collect();
        kept.extend(placeless);
        self.records.renumber(&kept);
        let renumber = |number: &mut u32| {
            let new = kept.iter().position(|old| old == number);
            *number = new.expect("who is listed is in use") as u32;
        };
        self.answers.iter_mut().chain(&mut self.kept).for_each(renumber);
        self.places.renumber(renumber);
        self.due.clear();
        self.watch.rebase(now);
        self.caution.rebase(now);
        self.excuses.rebase(now);
        for number in 0..kept.len() as u32 {
            self.records[number].ready_at = rebased(self.records[number].ready_at, now);
            let Some(trouble) = &mut self.records[number].trouble else { continue };
            trouble.rebase(now);
            let due = trouble.due;
            let block = self.records[number].block;
            self.due.extend(due.map(|at| (at, block)));
        }
    }
}

impl<A> Record<A> {
    /// Adds a payload, which is the first where `bytes` and `counter` are 0.
    #[inline]
    pub(super) fn take_in<P: Payload<Acc = A> + ?Sized>(
        &mut self,
        payload: &P,
        op: &mut P::Op,
        block_bytes: u32,
    ) -> Result<(), DropReason> {
        let bytes = payload.bytes() as u32;
        if self.counter > 0 && bytes != self.bytes || bytes > block_bytes {
            return Err(DropReason::Mismatch);
        }
        if bytes > 0 {
            let taken = if self.counter == 0 { payload.assign(&mut self.sum, op) } else { payload.reduce(&mut self.sum, op) };
            taken.map_err(|_| DropReason::Mismatch)?;
        }
        self.bytes = bytes;
        Ok(())
    }

    /// What the answer carries.
    #[inline]
    fn body<P: Payload<Acc = A> + ?Sized>(&self) -> Body<'_, P> {
        if self.empty_sum { Body::Empty } else { Body::Acc(&self.sum) }
    }

    /// Everything that came is forgotten: the block is begun anew.
    pub(super) fn begin_anew(&mut self) {
        self.generation += 1;
        self.counter_before = self.counter;
        (self.counter, self.bytes, self.packets_sent) = (0, 0, 0);
        self.restorations.clear();
    }

    /// Contributions to a generation that has been given up; gives how many there are of it now with the leader's own, if it is the last one
    /// that was.
    #[cold]
    fn add_late(&mut self, generation: u8, counter: u32) -> u32 {
        if generation + 1 != self.generation {
            return 0;
        }
        self.counter_before += counter;
        self.counter_before + 1
    }

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
