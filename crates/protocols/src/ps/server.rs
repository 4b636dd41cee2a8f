//! The server of a shard: adds what workers push, and sends every block's sum to all of them.

use std::collections::VecDeque;

use fanin_core::{
    Body, DropReason, Duration, Egress, Event, Gauge, Ingress, Instant, Node, Payload, Rank, RetransmitReason, Role, Route, Tx,
};
use fanin_wire::ps::{Awaited, PsHeader, ShardBlock};

use super::config::{PsServerConfig, WINDOW_MAX, WORKERS_MAX};
use super::planted::Planted;
use crate::shared::excuses::{Excuses, Whom};
use crate::shared::serial::newer;
use crate::shared::state::node_state;
use crate::shared::window::rounded;

/// Who asks so often is told who is missing.
const ATTEMPTS: u8 = 2;

/// Who is missing is asked so often in the patience whom it waits for.
const ASKED_EVERY: u64 = 64;

impl Whom for Awaited {
    fn worker(rank: Rank) -> Self {
        Awaited::Worker(rank.0 as u16)
    }

    fn rank(self) -> Option<Rank> {
        if let Awaited::Worker(rank) = self { Some(Rank(u32::from(rank))) } else { None }
    }
}

/// A block.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Slot<A> {
    seq: u32,
    operation: u32,
    /// How many contributions are here; all: the block is complete; 0 where it was never used.
    count: u32,
    /// A contribution met congestion.
    marked: bool,
    acc: A,
}

/// Sums that are to go out: of a block, to ranks from `next` to before `end`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Sending {
    seq: u32,
    next: u32,
    end: u32,
    again: bool,
}

/// The server of one shard of a job.
pub struct PsServer<P: Payload + ?Sized> {
    config: PsServerConfig<P::Op>,
    /// Twice the window: see the module.
    slots: Box<[Slot<P::Acc>]>,
    /// Bit r of a slot's words: rank r has contributed.
    ranks: Box<[u64]>,
    /// The first block that is not complete.
    edge: u32,
    /// What waits for room.
    sending: VecDeque<Sending>,
    /// When those who were missing were asked last, and what they have said.
    asked_at: Option<Instant>,
    excuses: Excuses<Awaited>,
    planted: Planted,
}

node_state!(PsServer { config, slots, ranks, edge, sending, asked_at, excuses, planted });

impl<P: Payload + ?Sized> PsServer<P> {
    /// A server with all its memory.
    ///
    /// # Panics
    /// Where there is no worker or more than [`WORKERS_MAX`], or the window is 0 or more than [`WINDOW_MAX`].
    pub fn new(config: PsServerConfig<P::Op>) -> Self {
        let workers = config.workers.len();
        assert!((1..=WORKERS_MAX as usize).contains(&workers), "1 to 65536 workers");
        assert!((1..=WINDOW_MAX).contains(&config.window), "a window of 1 to 32768 blocks");
        let capacity = 2 * rounded(config.window);
        let slot = |number: u32| Slot {
            seq: number.wrapping_sub(capacity),
            operation: 0,
            count: 0,
            marked: false,
            acc: P::accumulator(&config.op, config.block_bytes as usize),
        };
        PsServer {
            slots: (0..capacity).map(slot).collect(),
            ranks: vec![0; capacity as usize * workers.div_ceil(64)].into(),
            edge: 0,
            sending: VecDeque::with_capacity(2 * capacity as usize),
            asked_at: None,
            excuses: Excuses::NONE,
            config,
            planted: Planted::default(),
        }
    }

    /// Puts in a bug.
    #[cfg(feature = "planted-bugs")]
    pub fn plant(&mut self, bug: Planted) {
        self.planted = bug;
    }

    #[inline]
    fn place_of(&self, seq: u32) -> usize {
        (seq & (self.slots.len() as u32 - 1)) as usize
    }

    fn workers(&self) -> u32 {
        self.config.workers.len() as u32
    }

    /// The words of a slot's bits.
    #[inline]
    fn bits(&mut self, place: usize) -> &mut [u64] {
        let words = self.config.workers.len().div_ceil(64);
        &mut self.ranks[place * words..(place + 1) * words]
    }

    /// Notes that a rank has contributed; false where it had before.
    #[inline]
    fn take(&mut self, place: usize, rank: u16) -> bool {
        let (word, bit) = (usize::from(rank) / 64, 1 << (rank % 64));
        let bits = self.bits(place);
        let is_new = bits[word] & bit == 0;
        bits[word] |= bit;
        is_new
    }

    /// Who has not contributed.
    fn absent(&self, place: usize) -> impl Iterator<Item = Rank> + Clone {
        let words = self.config.workers.len().div_ceil(64);
        let bits = &self.ranks[place * words..(place + 1) * words];
        (0..self.workers()).filter(|rank| bits[*rank as usize / 64] >> (rank % 64) & 1 == 0).map(Rank)
    }

    fn is_complete(&self, seq: u32) -> bool {
        let slot = &self.slots[self.place_of(seq)];
        slot.seq == seq && slot.count == self.workers()
    }

    fn to(&self, rank: u32) -> Egress<'static> {
        Egress::Route(Route::direct(self.config.workers[rank as usize], self.config.flow))
    }
}

/// Contributions.
impl<P: Payload + ?Sized> PsServer<P> {
    /// As [`PsWorker::rebase`](super::PsWorker::rebase): it stores no times that tell situations apart.
    pub fn rebase(&mut self, _now: Instant) {}

    fn on_push<T: Tx<PsHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        at: ShardBlock,
        (rank, attempt): (u16, u8),
        payload: &P,
        tx: &mut T,
    ) {
        // What a worker sends lies in its window, which begins before the first block that is not complete or there.
        if !newer(self.edge.wrapping_add(self.config.window), at.seq) {
            return tx.note(Event::Dropped(DropReason::OutsideWindow));
        }
        let place = self.place_of(at.seq);
        let slot = &self.slots[place];
        if slot.seq != at.seq {
            if newer(slot.seq, at.seq) || newer(self.edge, at.seq) {
                return tx.note(Event::Dropped(DropReason::Stale));
            }
            return self.begin(from, place, at, rank, payload, tx);
        }
        if slot.operation != at.operation {
            return self.reject(at, tx);
        }
        if slot.count == self.workers() {
            return self.answer(at.seq, rank, tx);
        }
        if !self.take(place, rank) && !self.planted.ignores_bits() {
            return self.on_repeated(now, place, at, (rank, attempt), tx);
        }
        let slot = &mut self.slots[place];
        if payload.reduce(&mut slot.acc, &mut self.config.op).is_err() {
            return self.reject(at, tx);
        }
        slot.count += 1;
        slot.marked |= from.ecn;
        if slot.count == self.workers() {
            self.complete(place, tx);
        }
    }

    /// The first contribution to a block.
    fn begin<T: Tx<PsHeader, P>>(&mut self, from: Ingress, place: usize, at: ShardBlock, rank: u16, payload: &P, tx: &mut T) {
        if payload.bytes() > self.config.block_bytes as usize {
            return self.reject(at, tx);
        }
        let slot = &mut self.slots[place];
        if payload.assign(&mut slot.acc, &mut self.config.op).is_err() {
            return self.reject(at, tx);
        }
        (slot.seq, slot.operation, slot.count, slot.marked) = (at.seq, at.operation, 1, from.ecn);
        self.bits(place).fill(0);
        self.take(place, rank);
        if self.workers() == 1 {
            self.complete(place, tx);
        }
    }

    /// A contribution that is here already. Who asks again is told who is missing.
    #[cold]
    fn on_repeated<T: Tx<PsHeader, P>>(&mut self, now: Instant, place: usize, at: ShardBlock, (rank, attempt): (u16, u8), tx: &mut T) {
        tx.note(Event::Dropped(DropReason::Duplicate));
        if self.planted.answers_early() {
            let header = PsHeader::Sum { at, marked: false };
            return tx.send(self.to(u32::from(rank)), &header, Body::Acc(&self.slots[place].acc));
        }
        if attempt < ATTEMPTS {
            return;
        }
        if let Some(who) = self.excuses.missing(self.absent(place), None, (now, self.config.patience)) {
            tx.send(self.to(u32::from(rank)), &PsHeader::Waiting { at, who }, Body::Empty);
        }
        self.ask_absent(now, place, at, tx);
    }

    /// Asks those who have not contributed whom they wait for, now and then: one may be operations behind, for a sum that the server of another
    /// shard did not send to it before it died.
    fn ask_absent<T: Tx<PsHeader, P>>(&mut self, now: Instant, place: usize, at: ShardBlock, tx: &mut T) {
        let every = self.config.patience.divided(ASKED_EVERY);
        // Where patience has no end nobody is ever named.
        if self.config.patience == Duration::MAX || self.asked_at.is_some_and(|asked_at| now < asked_at + every) {
            return;
        }
        self.asked_at = Some(now);
        for rank in self.absent(place) {
            tx.send(self.to(rank.0), &PsHeader::Waiting { at, who: Awaited::worker(rank) }, Body::Empty);
        }
    }

    /// A worker that has not come to a block says whom it waits for.
    #[cold]
    fn on_excuse<T: Tx<PsHeader, P>>(&mut self, now: Instant, from: Ingress, who: Awaited, tx: &mut T) {
        let rank = self.config.workers.iter().position(|worker| *worker == from.source);
        match rank.filter(|_| from.source.role == Role::Worker) {
            Some(rank) => self.excuses.add(now, Rank(rank as u32), Some(who)),
            None => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    /// Contributions differ in length or operation: ranks disagree about what they do.
    #[cold]
    fn reject<T: Tx<PsHeader, P>>(&mut self, at: ShardBlock, tx: &mut T) {
        tx.note(Event::Dropped(DropReason::Mismatch));
        (0..self.workers()).for_each(|rank| tx.send(self.to(rank), &PsHeader::Rejected { at }, Body::Empty));
    }

    /// All contributions are here.
    fn complete<T: Tx<PsHeader, P>>(&mut self, place: usize, tx: &mut T) {
        let workers = self.workers();
        let slot = &mut self.slots[place];
        P::finish(&mut slot.acc, &self.config.op, workers);
        let seq = slot.seq;
        while self.is_complete(self.edge) {
            self.edge = self.edge.wrapping_add(1);
        }
        self.sending.push_back(Sending { seq, next: 0, end: workers, again: false });
        self.pump(tx);
    }
}

/// Sums.
impl<P: Payload + ?Sized> PsServer<P> {
    /// A push of a block that is complete is answered with the sum, unless that is about to go out.
    fn answer<T: Tx<PsHeader, P>>(&mut self, seq: u32, rank: u16, tx: &mut T) {
        let (rank, workers) = (u32::from(rank), self.workers());
        // Where in the order of a block's first sums the rank comes.
        let place = (rank + workers - seq % workers) % workers;
        let waits = |sending: &Sending| (sending.next..sending.end).contains(if sending.again { &rank } else { &place });
        let goes_out = self.sending.iter().any(|sending| sending.seq == seq && waits(sending));
        // What does not fit here is asked for again.
        if goes_out || self.sending.len() >= 2 * self.slots.len() {
            return tx.note(Event::Dropped(DropReason::InProgress));
        }
        self.sending.push_back(Sending { seq, next: rank, end: rank + 1, again: true });
        self.pump(tx);
    }

    /// Sends what there is room for.
    fn pump<T: Tx<PsHeader, P>>(&mut self, tx: &mut T) {
        while let Some(&Sending { seq, next, end, again }) = self.sending.front() {
            // Who asked again may have got it since, and the slot another block.
            if next == end || !self.is_complete(seq) {
                self.sending.pop_front();
                continue;
            }
            // Each block begins with another rank, so that none is always the last.
            let rank = if again { next } else { (next + seq % self.workers()) % self.workers() };
            if !tx.room(self.to(rank)) {
                return;
            }
            let slot = &self.slots[self.place_of(seq)];
            let at = ShardBlock { seq, operation: slot.operation, shard: self.config.shard };
            if again {
                tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: seq });
            }
            tx.send(self.to(rank), &PsHeader::Sum { at, marked: slot.marked }, Body::Acc(&slot.acc));
            if let Some(front) = self.sending.front_mut() {
                front.next += 1;
            }
        }
    }
}

impl<P: Payload + ?Sized> Node<P> for PsServer<P> {
    type Header = PsHeader;

    #[inline]
    fn on_packet<T: Tx<PsHeader, P>>(&mut self, now: Instant, from: Ingress, header: &PsHeader, payload: &P, tx: &mut T) {
        let (at, rank, attempt) = match *header {
            PsHeader::Push { at, rank, attempt } => (at, rank, attempt),
            PsHeader::Waiting { at, who } if at.shard == self.config.shard => return self.on_excuse(now, from, who, tx),
            _ => return tx.note(Event::Dropped(DropReason::NotAMember)),
        };
        if at.shard != self.config.shard || self.config.workers.get(usize::from(rank)) != Some(&from.source) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        self.on_push(now, from, at, (rank, attempt), payload, tx);
    }

    /// A server has no timers: whoever misses something asks.
    fn on_timeout<T: Tx<PsHeader, P>>(&mut self, _now: Instant, _tx: &mut T) {}

    fn next_timeout(&self) -> Option<Instant> {
        None
    }

    fn on_tx_ready<T: Tx<PsHeader, P>>(&mut self, _now: Instant, tx: &mut T) {
        self.pump(tx);
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        let partial = self.slots.iter().filter(|slot| slot.count > 0 && slot.count < self.workers()).count();
        report(Gauge::Outstanding, partial as f64);
    }
}
