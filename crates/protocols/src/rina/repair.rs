//! What is lost of results, and with a switch (`rina 4.4`, P7, P8). A worker of a rack asks its agent for results that have passed it by, as soon
//! as later ones show that; for others, as the last ones, when nothing has come for a while. A switch that has restarted is told again all
//! that it may have lost.

use std::collections::VecDeque;
use std::ops::Range;

use fanin_core::{Address, Body, DropReason, Egress, Event, Ingress, Instant, Payload, RetransmitReason, Route, Tally, Tx};
use fanin_wire::rina::{Item, RinaHeader, Way};
use fanin_wire::ring::AckMask;

use super::channel::Hop;
use super::worker::{RinaWorker, Stage, TASK_MAX};

/// A result that nobody acknowledges is of no group.
pub(super) const NO_GROUP: u16 = u16::MAX;

/// A result has passed by where one so many packets behind it has come, as packets may overtake each other.
const GAP: u32 = 3;

/// An agent hears of a mark after so many results at the soonest. It halves its window once a round trip at most, whatever it hears.
const TOLD_EVERY: u32 = 16;

/// How far the results of a partition have come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Passed {
    /// The first packet that is not here.
    lowest: u32,
    /// The first behind all that have come.
    until: u32,
}

/// Results that somebody wants.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Wanted {
    base: u32,
    /// Bit i: piece `base` + i.
    mask: u64,
}

impl Wanted {
    /// Takes out a piece that is here.
    fn remove(&mut self, piece: u32) {
        let bit = piece.wrapping_sub(self.base);
        if bit < AckMask::BITS {
            self.mask &= !(1 << bit);
        }
    }
}

/// Results that are asked for.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Repairs {
    /// At a worker of a rack that is not its agent, by partition.
    passed: Vec<Passed>,
    /// What this worker has asked for and not got yet; and whether that was because nothing came.
    asked: Wanted,
    was_idle: bool,
    /// Results since the agent was last told of a mark.
    untold: u32,
    /// What others have asked for and not got yet, one entry each.
    owed: VecDeque<(Address, Wanted)>,
}

impl Repairs {
    /// An operation or an epoch begins; of so many partitions results may pass by.
    pub(super) fn begin(&mut self, partitions: u32) {
        self.passed.clear();
        self.passed.resize(partitions as usize, Passed::default());
        (self.asked, self.was_idle, self.untold) = (Wanted::default(), false, TOLD_EVERY);
        self.owed.clear();
    }

    /// A result has come. Whether the agent is to be told that it was marked: at once, but of one in so many at most.
    #[inline]
    pub(super) fn tells_mark(&mut self, marked: bool) -> bool {
        self.untold = self.untold.saturating_add(1);
        let tells = marked && self.untold > TOLD_EVERY;
        if tells {
            self.untold = 0;
        }
        tells
    }
}

impl<P: Payload + ?Sized> RinaWorker<P> {
    // ---- At who misses results -----------------------------------------------------------------------------------------------------

    /// Who may have what is missing here: the rack's agent, or the group before.
    pub(super) fn holder(&self) -> Option<Address> {
        let head = if self.view.is_head { self.view.previous() } else { self.view.own() };
        (head.head != self.config.rank).then(|| head.address())
    }

    /// Asks for the pieces of a mask; without any it says that a result was marked.
    pub(super) fn ask<T: Tx<RinaHeader, P>>(&self, base: u32, mask: u64, tx: &mut T) {
        let Some(holder) = self.holder() else { return };
        let (epoch, operation) = (self.view.epoch(), self.run.operation);
        tx.send(self.to(holder), &RinaHeader::Repair { epoch, operation, mask: AckMask::new(mask), base }, Body::Empty);
    }

    /// Asks for those of some pieces that are not here, from the first of them on; as many as a packet names.
    fn ask_for<T: Tx<RinaHeader, P>>(&mut self, pieces: Range<u32>, tx: &mut T) {
        let end = pieces.end.min(pieces.start.saturating_add(AckMask::BITS));
        let held = self.run.held.get(pieces.start as usize..end as usize).unwrap_or_default();
        let missing = held.iter().enumerate().filter(|(_, held)| held.stage != Stage::Final);
        self.repairs.asked = Wanted { base: pieces.start, mask: missing.fold(0, |mask, (bit, _)| mask | 1 << bit) };
        if self.repairs.asked.mask != 0 {
            tx.note(Event::Counted(Tally::Repair));
            self.ask(self.repairs.asked.base, self.repairs.asked.mask, tx);
        }
    }

    /// Nothing has come for a while: asks for what has passed by, or else for what is missing. What an answer did not come for is asked for
    /// in its turn, as the holder may have only what follows.
    pub(super) fn ask_what_is_missing<T: Tx<RinaHeader, P>>(&mut self, tx: &mut T) {
        self.repairs.was_idle = true;
        let asked = self.repairs.asked;
        let behind = if asked.mask == 0 { 0 } else { asked.base.saturating_add(AckMask::BITS) };
        let is_missing = |from: u32| {
            let rest = self.run.held.iter().enumerate().skip(from as usize);
            rest.filter(|(_, held)| held.stage != Stage::Final).map(|(index, _)| index as u32).next()
        };
        let Some(first) = is_missing(behind.max(self.run.first_missing)).or(is_missing(self.run.first_missing)) else { return };
        self.ask_for(first..self.run.held.len() as u32, tx);
    }

    /// A result was new: asks for those that it shows to be lost, or for more where all is here that was asked for.
    #[inline]
    pub(super) fn ask_for_more<T: Tx<RinaHeader, P>>(&mut self, item: Item, piece: u32, way: Way, tx: &mut T) {
        if way != Way::Repair && std::mem::take(&mut self.repairs.was_idle) {
            // Results come on their own again: they were late, not lost. Those that were lost, these show.
            self.repairs.asked = Wanted::default();
        }
        let was_asked = self.repairs.asked.mask != 0;
        if was_asked {
            self.repairs.asked.remove(piece);
        }
        let partition = usize::from(item.partition);
        if let Some(passed) = self.repairs.passed.get_mut(partition) {
            if way != Way::Repair {
                passed.until = passed.until.max(item.segment() + 1);
            }
            if passed.lowest == item.segment() {
                let first = piece - item.segment();
                let is_final = |segment: u32| self.run.held.get((first + segment) as usize).is_some_and(|held| held.stage == Stage::Final);
                let segments = self.run.cut.segments(item.partition.into());
                while passed.lowest < segments && is_final(passed.lowest) {
                    passed.lowest += 1;
                }
            }
        }
        if self.repairs.asked.mask == 0 && self.run.missing > 0 {
            self.ask_next(partition, was_asked, tx);
        }
    }

    /// Nothing is asked for. Looks at one partition, or at all where something was asked for before.
    #[inline]
    fn ask_next<T: Tx<RinaHeader, P>>(&mut self, partition: usize, was_asked: bool, tx: &mut T) {
        let has_hole = |passed: &Passed| passed.lowest + GAP < passed.until;
        let mut partitions = if was_asked { 0..self.repairs.passed.len() } else { partition..partition + 1 };
        let hole = partitions.find_map(|place| Some((place, *self.repairs.passed.get(place).filter(|passed| has_hole(passed))?)));
        if let Some((place, passed)) = hole
            && let Some(first) = self.run.cut.piece(place as u32, passed.lowest)
        {
            return self.ask_for(first.index..first.index + (passed.until - passed.lowest), tx);
        }
        if was_asked && std::mem::take(&mut self.repairs.was_idle) {
            self.ask_what_is_missing(tx);
        }
    }

    // ---- At who has them -----------------------------------------------------------------------------------------------------------

    /// `rina` P8, `4.4`: a worker of the rack, or the next group's head, misses results. Or it misses none, and one was marked: results of all
    /// groups together are too many for the way to it, which only it sees (`rina 4.3`).
    pub(super) fn on_repair<T: Tx<RinaHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        run: (u16, u16),
        base: u32,
        mask: u64,
        tx: &mut T,
    ) {
        if let Err(reason) = self.check_current(run.0, run.1) {
            return tx.note(Event::Dropped(reason));
        }
        if !self.view.is_head || self.config.layout.rank_at(from.source.node).is_none_or(|rank| !self.view.has(rank)) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        // What waits for its turn comes to all.
        let is_there = |bit: u32| {
            let held = self.run.held.get(base.wrapping_add(bit) as usize);
            held.is_some_and(|held| held.stage == Stage::Final && held.is_sent)
        };
        let has = (0..AckMask::BITS).filter(|bit| mask >> bit & 1 == 1 && is_there(*bit)).fold(0u64, |has, bit| has | 1 << bit);
        if mask == 0 || has != 0 {
            self.gather.shrink(now);
        }
        if has != 0 {
            let wanted = Wanted { base, mask: has };
            match self.repairs.owed.iter_mut().find(|(to, _)| *to == from.source) {
                Some((_, owed)) => *owed = wanted,
                None => self.repairs.owed.push_back((from.source, wanted)),
            }
            self.pump_repairs(tx);
        }
    }

    /// Sends what others have asked for, while there is room.
    pub(super) fn pump_repairs<T: Tx<RinaHeader, P>>(&mut self, tx: &mut T) {
        while let Some((source, wanted)) = self.repairs.owed.front_mut() {
            let (source, bit) = (*source, wanted.mask.trailing_zeros());
            let to = Egress::Route(Route::direct(source, self.config.flow));
            if bit >= AckMask::BITS {
                self.repairs.owed.pop_front();
                continue;
            }
            if !tx.room(to) {
                return;
            }
            wanted.mask &= wanted.mask - 1;
            let index = wanted.base.wrapping_add(bit);
            let Some((partition, segment)) = self.run.cut.place(index) else { continue };
            tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: index });
            let item = Item::new(self.view.epoch(), self.run.operation, partition as u16, 0, segment);
            let header = RinaHeader::Result { item, way: Way::Repair, to: source.node, group: NO_GROUP, hops: 0 };
            tx.send(to, &header, Body::Acc(&self.run.buffers[index as usize]));
        }
    }

    // ---- A switch that has restarted -----------------------------------------------------------------------------------------------

    /// The own switch knows nothing of the operation. It hears who the rack is, then all that it may have lost.
    pub(super) fn on_unknown<T: Tx<RinaHeader, P>>(&mut self, now: Instant, from: Ingress, run: (u16, u16), tx: &mut T) {
        if let Err(reason) = self.check_current(run.0, run.1) {
            return tx.note(Event::Dropped(reason));
        }
        if !self.view.is_head || self.view.own().switch.map(Address::switch) != Some(from.source) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        // What it says again may be on its way since before it heard.
        if now < self.known_again_at {
            return tx.note(Event::Dropped(DropReason::Duplicate));
        }
        self.is_known = true;
        self.send_task((0, false), Hop::default(), 0, tx);
        self.send_all_again(now, 0..0, tx);
        self.pump(now, tx);
    }

    /// The own switch has restarted: all that the next group has not acknowledged goes to it again, at once, but for pieces that it has just
    /// asked for. That is as much as there may be under way.
    pub(super) fn send_all_again<T: Tx<RinaHeader, P>>(&mut self, now: Instant, known: Range<u32>, tx: &mut T) {
        let round_trip = self.scatter.round_trip().or(self.gather.round_trip());
        self.known_again_at = now + round_trip.unwrap_or(self.config.reliability.rto_min);
        self.send_tasks_again(now, known, tx);
        let (uplink, mut from) = (Egress::Port(self.config.uplink), self.gather.sent.first());
        while let Some((number, hop)) = self.gather.sent.unacknowledged(from) {
            if !tx.room(uplink) {
                return self.gather.sent.hold_up();
            }
            from = number.wrapping_add(1);
            self.gather.sent.renew(now, number);
            let block = self.run.cut.piece(hop.partition.into(), hop.segment).map_or(0, |piece| piece.index);
            tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block });
            self.send_hop((number, true), hop, true, tx);
        }
    }

    fn send_tasks_again<T: Tx<RinaHeader, P>>(&mut self, now: Instant, known: Range<u32>, tx: &mut T) {
        let (uplink, mut from) = (Egress::Port(self.config.uplink), self.scatter.sent.first());
        // Pieces next to each other go as one task.
        let mut task: Option<(u32, Hop, u8)> = None;
        while let Some((number, hop)) = self.scatter.sent.unacknowledged(from) {
            from = number.wrapping_add(1);
            let Some(piece) = self.run.cut.piece(hop.partition.into(), hop.segment) else { continue };
            let is_final = self.run.held[piece.index as usize].stage == Stage::Final;
            if known.contains(&number) || is_final && self.scatter.settle(now, number) {
                continue;
            }
            if !tx.room(uplink) {
                self.scatter.sent.hold_up();
                break;
            }
            self.scatter.sent.renew(now, number);
            tx.note(Event::Retransmitted { reason: RetransmitReason::Asked, block: piece.index });
            task = match task {
                Some((first, begin, count))
                    if count < TASK_MAX
                        && number == first.wrapping_add(count.into())
                        && hop.partition == begin.partition
                        && hop.segment == begin.segment + u32::from(count) =>
                {
                    Some((first, begin, count + 1))
                }
                other => {
                    if let Some((first, begin, count)) = other {
                        self.send_task((first, true), begin, count, tx);
                    }
                    Some((number, hop, 1))
                }
            };
        }
        if let Some((first, begin, count)) = task {
            self.send_task((first, true), begin, count, tx);
        }
    }
}
