//! The worker of a sparse allreduce: sends its pairs block by block, and takes the sums.

use std::marker::PhantomData;

use fanin_core::hash::mix;
use fanin_core::{
    Body, Collective, DropReason, Egress, Event, FailureReason, Gauge, IndexCoding, Ingress, Instant, Node, OperationId, Outcome, Pair,
    Payload, Piece, RetransmitReason, Suspect, Tx, Worker,
};
use fanin_wire::flare::{FlareBlock, FlareHeader, Part};

use super::config::FlareWorkerConfig;
use crate::shared::arrivals::Arrivals;
use crate::shared::ledger::Ledger;
use crate::shared::repetition::Repetition;
use crate::shared::rtt::rebased;
use crate::shared::serial::newer;
use crate::shared::state::node_state;
use crate::shared::window::rounded;

/// A block under way, or the last one that was, of one place in the window.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Flight {
    /// The number of the block that it takes next in the running operation, and of that which it has.
    next: u32,
    index: u32,
    /// The same in the job.
    block: u32,
    under_way: bool,
    /// How often it was sent again; stays at 255.
    attempts: u8,
    first_at: Instant,
    sent_at: Instant,
    /// Packets of the sum, all of one making, and their pairs.
    making: u32,
    arrivals: Arrivals,
    pairs: Vec<Pair>,
}

/// A worker of a sparse allreduce.
pub struct FlareWorker<P: Payload + ?Sized> {
    config: FlareWorkerConfig<P::Op>,
    ledger: Ledger,
    /// What packets of the running operation carry.
    digest: u32,
    /// Number in the job of the running operation's first block.
    base: u32,
    /// Number of blocks of the running operation.
    blocks: u32,
    /// How many of them have no sum yet.
    remaining: u32,
    /// Bit p: the place p has a block to begin, and none under way.
    free: Box<[u64]>,
    /// The place from which on one is looked for.
    cursor: u32,
    /// The place of a block of which the packets from this one on wait for room; its pairs are in `pairs`.
    sending: Option<(u32, u32)>,
    flights: Box<[Flight]>,
    repetition: Repetition,
    pairs: Vec<Pair>,
    /// The first of them in each of their packets, and how that names their indices; at least one packet, also where there are no pairs (`flare 4.6`).
    packets: Vec<(u32, IndexCoding)>,
    /// Those of the packet that has come; empty between packets.
    unpacked: Vec<Pair>,
    bytes: Vec<u8>,
    payload: PhantomData<fn(&P)>,
}

node_state!(FlareWorker {
    config,
    ledger,
    digest,
    base,
    blocks,
    remaining,
    free,
    cursor,
    sending,
    flights,
    repetition,
    pairs,
    packets,
    unpacked,
    bytes,
    payload
});

impl<P: Payload + ?Sized> FlareWorker<P> {
    /// A worker.
    ///
    /// # Panics
    /// Where blocks are not as their [configuration](super::Blocks) says.
    pub fn new(config: FlareWorkerConfig<P::Op>) -> Self {
        config.blocks.check();
        let window = rounded(config.blocks.window);
        let idle = || Flight {
            next: 0,
            index: 0,
            block: 0,
            under_way: false,
            attempts: 0,
            first_at: Instant::ZERO,
            sent_at: Instant::ZERO,
            making: 0,
            arrivals: Arrivals::default(),
            pairs: Vec::new(),
        };
        FlareWorker {
            ledger: Ledger::new(config.job),
            digest: 0,
            base: 0,
            blocks: 0,
            remaining: 0,
            free: vec![0; (window as usize).div_ceil(64)].into(),
            cursor: 0,
            sending: None,
            flights: (0..window).map(|_| idle()).collect(),
            repetition: Repetition::new(&config.reliability, window).of(config.job, config.rank),
            pairs: Vec::new(),
            packets: Vec::new(),
            unpacked: Vec::new(),
            bytes: Vec::new(),
            payload: PhantomData,
            config,
        }
    }

    /// Numbers the job's blocks from `block` on instead of from 0; the same at all workers, before anything is submitted. To test what
    /// happens when the numbers wrap.
    pub fn first_block(&mut self, block: u32) {
        self.base = block;
    }

    /// Makes all stored times relative to `now`, so that states that differ only in when they were reached are equal.
    pub fn rebase(&mut self, now: Instant) {
        for flight in &mut self.flights {
            flight.first_at = rebased(flight.first_at, now);
            flight.sent_at = rebased(flight.sent_at, now);
        }
        self.repetition.rebase(now);
    }

    fn window(&self) -> u32 {
        self.flights.len() as u32
    }

    fn way_up(&self) -> Egress<'static> {
        Egress::Port(self.config.uplink)
    }

    #[inline]
    fn place_of(&self, block: u32) -> u32 {
        block & (self.window() - 1)
    }

    /// `flare 4.7`: staggered workers begin evenly spread over the window, and go round it: over the vector they would be further apart than
    /// switches have slots (P8).
    fn spread_out(&mut self) {
        let span = self.window().min(self.blocks);
        for index in 0..span {
            let place = self.place_of(self.base.wrapping_add(index));
            self.flights[place as usize].next = index;
            self.set_free(place);
        }
        let offset = u64::from(self.config.rank.0) * u64::from(span) / u64::from(self.config.workers);
        let offset = if self.config.staggered { offset as u32 } else { 0 };
        self.cursor = self.place_of(self.base.wrapping_add(offset));
    }

    fn set_free(&mut self, place: u32) {
        self.free[place as usize / 64] |= 1 << (place % 64);
    }

    /// The first place that can begin a block, from the cursor on and round the window.
    fn next_place(&self) -> Option<u32> {
        let (words, first) = (self.free.len(), self.cursor as usize / 64);
        let behind = u64::MAX << (self.cursor % 64);
        let masks =
            [(first, behind)].into_iter().chain((1..words).map(|step| ((first + step) % words, u64::MAX))).chain([(first, !behind)]);
        let mut found = masks.map(|(word, mask)| (word, self.free[word] & mask)).filter(|(_, bits)| *bits != 0);
        found.next().map(|(word, bits)| word as u32 * 64 + bits.trailing_zeros())
    }

    fn piece(&self, collective: &Collective, index: u32) -> Piece {
        let range = u64::from(self.config.blocks.range);
        let start = u64::from(index) * range;
        Piece { operation: collective.operation, index, start, elements: (collective.elements - start).min(range) as u32 }
    }

    /// How many packets the pairs of a block take.
    fn packets(&self) -> u32 {
        self.packets.len() as u32
    }

    /// Sends one packet of the pairs that were read.
    fn send_part<T: Tx<FlareHeader, P>>(&mut self, block: u32, (number, packets): (u32, u32), attempt: u8, tx: &mut T) {
        let (first, coding) = self.packets[number as usize];
        let end = self.packets.get(number as usize + 1).map_or(self.pairs.len(), |(next, _)| *next as usize);
        let pairs = &self.pairs[first as usize..end];
        self.bytes.clear();
        coding.pack(self.config.blocks.format(), pairs.iter().copied(), &mut self.bytes);
        let last = if number + 1 == packets { packets as u16 } else { 0 };
        let part = Part { number: number as u16, count: pairs.len() as u16, packets: last, making: 0, coding };
        let at = FlareBlock { number: block, operation: self.digest };
        let header = FlareHeader::Contribution { at, part, attempt };
        tx.send(self.way_up(), &header, P::of_contents(&self.bytes).map_or(Body::Empty, Body::Borrowed));
    }
}

/// Sending.
impl<P: Payload + ?Sized> FlareWorker<P> {
    /// Sends what window and network have room for.
    fn pump<T: Tx<FlareHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        while self.ledger.running().is_some() {
            let Some((place, number)) = self.sending.or_else(|| self.next_place().map(|place| (place, 0))) else { return };
            if !tx.room(self.way_up()) {
                return;
            }
            if number == 0 && self.begin(now, place, tx).is_err() {
                return;
            }
            let packets = self.packets();
            let flight = &mut self.flights[place as usize];
            flight.sent_at = now;
            let block = flight.block;
            self.send_part(block, (number, packets), 0, tx);
            if number + 1 < packets {
                self.sending = Some((place, number + 1));
            } else {
                self.sending = None;
                self.repetition.on_sent(place);
            }
        }
    }

    /// A block is begun: its pairs are read.
    fn begin<T: Tx<FlareHeader, P>>(&mut self, now: Instant, place: u32, tx: &mut T) -> Result<(), ()> {
        let Some(&collective) = self.ledger.running() else { return Err(()) };
        let index = self.flights[place as usize].next;
        self.read(&collective, index, tx)?;
        self.free[place as usize / 64] &= !(1 << (place % 64));
        self.cursor = (place + 1) & (self.window() - 1);
        let block = self.base.wrapping_add(index);
        let flight = &mut self.flights[place as usize];
        (flight.index, flight.block, flight.under_way, flight.attempts) = (index, block, true, 0);
        (flight.first_at, flight.sent_at) = (now, now);
        Ok(())
    }

    /// Reads the pairs of a block; where that cannot be, the operation has failed.
    fn read<T: Tx<FlareHeader, P>>(&mut self, collective: &Collective, index: u32, tx: &mut T) -> Result<(), ()> {
        let piece = self.piece(collective, index);
        self.pairs.clear();
        let read = tx.read_pairs(piece, &mut self.pairs);
        self.config.blocks.cut().split(self.pairs.iter().map(|pair| pair.index), &mut self.packets);
        if read.is_ok() && self.packets() <= u32::from(u16::MAX) && self.pairs.iter().all(|pair| pair.index < piece.elements) {
            return Ok(());
        }
        self.fail(Some(index), Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
        Err(())
    }

    /// Sends again what is due, as far as there is room.
    fn resend_due<T: Tx<FlareHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        // The block that is being sent has its pairs where another one's would be read.
        if self.sending.is_some() {
            return;
        }
        self.repetition.retry();
        let way = self.way_up();
        while let Some(place) = self.repetition.next_due(now, |place| self.flights[place as usize].sent_at, || tx.room(way)) {
            if self.resend(now, place, tx).is_err() {
                return;
            }
        }
    }

    /// `flare 4.9`: asks for the rest of a sum of which something has come, else sends the last packet of the block again: the switch says what it
    /// lacks.
    fn resend<T: Tx<FlareHeader, P>>(&mut self, now: Instant, place: u32, tx: &mut T) -> Result<(), ()> {
        let flight = &mut self.flights[place as usize];
        self.repetition.on_repeated(now, place, &mut flight.attempts, &mut flight.sent_at);
        let (block, attempt) = (flight.block, flight.attempts);
        tx.note(Event::Retransmitted { reason: RetransmitReason::Timeout, block });
        if flight.arrivals.are_some() {
            let at = FlareBlock { number: block, operation: self.digest };
            let header = FlareHeader::Ask { at, from: flight.arrivals.first_missing(), attempt };
            tx.send(self.way_up(), &header, Body::Empty);
            return Ok(());
        }
        self.send_again(place as usize, None, tx)
    }

    /// Packets of a block again: from one on where they are wanted, or only the last one, which asks what is.
    fn send_again<T: Tx<FlareHeader, P>>(&mut self, place: usize, from: Option<u16>, tx: &mut T) -> Result<(), ()> {
        let Some(&collective) = self.ledger.running() else { return Err(()) };
        let Flight { index, block, attempts, .. } = self.flights[place];
        self.read(&collective, index, tx)?;
        let packets = self.packets();
        let (first, attempt) = from.map_or((packets - 1, attempts.max(1)), |from| (u32::from(from), 0));
        (first..packets).for_each(|number| self.send_part(block, (number, packets), attempt, tx));
        Ok(())
    }

    /// The switch lacks packets of a block, from this one on.
    fn on_wanted<T: Tx<FlareHeader, P>>(&mut self, at: FlareBlock, from: u16, tx: &mut T) {
        match self.under_way(at) {
            // The pairs of another block wait there for room; this one is asked for again.
            Ok(_) if self.sending.is_some() => tx.note(Event::Dropped(DropReason::InProgress)),
            Ok(place) => {
                tx.note(Event::Retransmitted { reason: RetransmitReason::Gap, block: at.number });
                // Where its pairs cannot be read the operation has failed, and been told.
                _ = self.send_again(place, Some(from), tx);
            }
            Err(reason) => tx.note(Event::Dropped(reason)),
        }
    }
}

/// Sums, and what becomes of the operation.
impl<P: Payload + ?Sized> FlareWorker<P> {
    /// The place of a block that is under way; else why a packet about it is of no use.
    fn under_way(&self, at: FlareBlock) -> Result<usize, DropReason> {
        let place = self.place_of(at.number) as usize;
        let flight = &self.flights[place];
        if self.ledger.running().is_none() {
            return Err(DropReason::Stale);
        }
        match flight.block {
            known if known == at.number && flight.under_way => Ok(place),
            known if known == at.number => Err(DropReason::Duplicate),
            known if newer(at.number, known) => Err(DropReason::OutsideWindow),
            _ => Err(DropReason::Stale),
        }
    }

    fn on_aggregate<T: Tx<FlareHeader, P>>(&mut self, now: Instant, at: FlareBlock, part: Part, payload: &P, tx: &mut T) {
        let place = match self.under_way(at) {
            Ok(place) => place,
            Err(reason) => return tx.note(Event::Dropped(reason)),
        };
        let Some(&collective) = self.ledger.running() else { return };
        let piece = self.piece(&collective, self.flights[place].index);
        let format = self.config.blocks.format();
        let count = usize::from(part.count);
        let is_within = |bytes: &&[u8]| part.coding.is_within(format, bytes, count, piece.elements);
        let bytes = payload.contents().filter(|bytes| at.operation == self.digest && is_within(bytes));
        let Some(bytes) = bytes else { return self.refuse(piece.index, tx) };
        let flight = &mut self.flights[place];
        if flight.arrivals.are_some() && flight.making != part.making {
            // Whoever has made the sum has lost its memory, and made it anew.
            flight.arrivals.clear();
            flight.pairs.clear();
        }
        flight.making = part.making;
        match flight.arrivals.take(u32::from(part.number), u32::from(part.packets)) {
            Ok(true) => {}
            Ok(false) => return tx.note(Event::Dropped(DropReason::Duplicate)),
            Err(_) => return self.refuse(piece.index, tx),
        }
        let mut pairs = std::mem::take(&mut self.unpacked);
        // Its length was looked at.
        let _ = part.coding.unpack(format, bytes, count, &mut pairs);
        flight.pairs.append(&mut pairs);
        self.unpacked = pairs;
        if flight.arrivals.are_all() {
            self.take_sum(now, place, piece, tx);
        } else {
            self.repetition.on_progress(now);
        }
    }

    /// All packets of a block's sum are here.
    fn take_sum<T: Tx<FlareHeader, P>>(&mut self, now: Instant, place: usize, piece: Piece, tx: &mut T) {
        let flight = &mut self.flights[place];
        // Packets may have come in any order, and what a table at the root has spilled comes apart from its slot.
        let merged = P::merge_pairs(&mut self.config.op, &mut flight.pairs).is_ok();
        if !merged || tx.deliver_pairs(piece, &flight.pairs).is_err() {
            return self.refuse(piece.index, tx);
        }
        flight.under_way = false;
        flight.arrivals.clear();
        flight.pairs.clear();
        self.repetition.on_answer(now, place as u32, flight.first_at, flight.sent_at);
        let next = piece.index.saturating_add(self.window());
        self.flights[place].next = next;
        if next < self.blocks {
            self.set_free(place as u32);
        }
        self.remaining -= 1;
        if self.remaining == 0 {
            return self.finish();
        }
        self.pump(now, tx);
    }

    /// What came from the network does not fit the operation.
    #[cold]
    fn refuse<T: Tx<FlareHeader, P>>(&mut self, index: u32, tx: &mut T) {
        tx.note(Event::Dropped(DropReason::Mismatch));
        self.fail(Some(index), Suspect::Unknown, FailureReason::Mismatch, tx);
    }

    fn on_waiting<T: Tx<FlareHeader, P>>(&mut self, now: Instant, at: FlareBlock, suspect: Suspect, tx: &mut T) {
        match self.under_way(at) {
            Ok(place) => self.repetition.on_waiting(now, self.flights[place].index, suspect),
            Err(reason) => tx.note(Event::Dropped(reason)),
        }
    }

    fn on_rejected<T: Tx<FlareHeader, P>>(&mut self, at: FlareBlock, tx: &mut T) {
        match self.under_way(at) {
            Ok(place) => self.fail(Some(self.flights[place].index), Suspect::Unknown, FailureReason::Mismatch, tx),
            Err(reason) => tx.note(Event::Dropped(reason)),
        }
    }

    fn finish(&mut self) {
        self.ledger.complete();
        self.base = self.base.wrapping_add(self.blocks);
    }

    /// Gives up the operation, and the job with it.
    fn fail<T: Tx<FlareHeader, P>>(&mut self, block: Option<u32>, suspect: Suspect, reason: FailureReason, tx: &mut T) {
        if let Some(failure) = self.ledger.fail(block, suspect, reason) {
            tx.note(Event::Failed(failure));
        }
        for flight in &mut self.flights {
            flight.under_way = false;
            flight.arrivals.clear();
            flight.pairs.clear();
        }
        self.free.fill(0);
        self.sending = None;
        self.repetition.clear();
    }

    /// Nothing has come for the job's patience.
    fn give_up<T: Tx<FlareHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let first = self.flights.iter().filter(|flight| flight.under_way).map(|flight| flight.index).min();
        let (block, suspect) = match self.repetition.culprit(now) {
            Some((block, suspect)) => (Some(block), suspect),
            None => (first, Suspect::Switch(self.config.leaf)),
        };
        self.fail(block, suspect, FailureReason::NoProgress, tx);
    }

    /// A lone worker's sum is its own vector.
    fn finish_alone<T: Tx<FlareHeader, P>>(&mut self, collective: &Collective, tx: &mut T) {
        for index in 0..self.blocks {
            if self.read(collective, index, tx).is_err() {
                return;
            }
            if tx.deliver_pairs(self.piece(collective, index), &self.pairs).is_err() {
                return self.fail(Some(index), Suspect::Rank(self.config.rank), FailureReason::Mismatch, tx);
            }
        }
        self.finish();
    }
}

impl<P: Payload + ?Sized> Node<P> for FlareWorker<P> {
    type Header = FlareHeader;

    fn on_packet<T: Tx<FlareHeader, P>>(&mut self, now: Instant, _from: Ingress, header: &FlareHeader, payload: &P, tx: &mut T) {
        match *header {
            FlareHeader::Aggregate { at, part } => self.on_aggregate(now, at, part, payload, tx),
            FlareHeader::Waiting { at, suspect } => self.on_waiting(now, at, suspect, tx),
            FlareHeader::Rejected { at } => self.on_rejected(at, tx),
            FlareHeader::Wanted { at, from } => self.on_wanted(at, from, tx),
            FlareHeader::Contribution { .. } | FlareHeader::Ask { .. } => tx.note(Event::Dropped(DropReason::NotAMember)),
        }
    }

    fn on_timeout<T: Tx<FlareHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() || !self.repetition.is_reliable() {
            return;
        }
        if self.repetition.has_lost_patience(now) {
            return self.give_up(now, tx);
        }
        if self.sending.is_some() {
            // What is due goes behind the block that waits for room.
            self.repetition.hold_up();
            return;
        }
        self.resend_due(now, tx);
    }

    fn next_timeout(&self) -> Option<Instant> {
        self.ledger.running()?;
        self.repetition.next_timeout(|place| self.flights[place as usize].sent_at)
    }

    fn on_tx_ready<T: Tx<FlareHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        if self.ledger.running().is_none() {
            return;
        }
        self.pump(now, tx);
        if self.repetition.is_held_up() {
            self.resend_due(now, tx);
        }
    }

    fn gauges(&self, report: &mut dyn FnMut(Gauge, f64)) {
        if self.ledger.running().is_some() {
            report(Gauge::Outstanding, self.flights.iter().filter(|flight| flight.under_way).count() as f64);
        }
        if let Some(round_trip_us) = self.repetition.round_trip_us() {
            report(Gauge::RoundTrip, round_trip_us);
        }
    }
}

impl<P: Payload + ?Sized> Worker<P> for FlareWorker<P> {
    fn submit<T: Tx<FlareHeader, P>>(&mut self, now: Instant, collective: Collective, tx: &mut T) {
        let blocks = u32::try_from(collective.elements.div_ceil(u64::from(self.config.blocks.range)));
        let Some(blocks) = blocks.ok().filter(|_| P::reduces_pairs(&self.config.op)) else {
            return self.ledger.refuse(collective.operation);
        };
        if !self.ledger.begin(collective) {
            return;
        }
        self.digest = mix(u64::from(collective.operation.0) << 32 | u64::from(collective.fingerprint), collective.elements) as u32;
        (self.blocks, self.remaining) = (blocks, blocks);
        self.repetition.begin(now);
        if self.config.workers <= 1 || blocks == 0 {
            return self.finish_alone(&collective, tx);
        }
        self.spread_out();
        self.pump(now, tx);
    }

    fn poll(&mut self) -> Option<Outcome> {
        self.ledger.poll()
    }

    fn remaining(&self) -> Option<u32> {
        self.ledger.running().map(|_| self.remaining)
    }

    fn cancel<T: Tx<FlareHeader, P>>(&mut self, _now: Instant, operation: OperationId, tx: &mut T) {
        if self.ledger.running().is_some_and(|running| running.operation == operation) {
            self.fail(None, Suspect::Unknown, FailureReason::Cancelled, tx);
        }
    }
}
