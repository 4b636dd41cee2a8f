//! What is lost of results, and with a switch (`rina 4.4`, P7, P8). A worker of a rack asks its agent for results that have passed it by, as soon
//! as later ones show that; for others, as the last ones, when nothing has come for a while. A switch that has restarted is told again all
//! that it may have lost.

use std::collections::VecDeque;
use std::ops::Range;

use fanin_core::{Address, Body, DropReason, Duration, Egress, Event, Ingress, Instant, Payload, RetransmitReason, Route, Tally, Tx};
use fanin_wire::rina::{Item, RinaHeader, Way};
use fanin_wire::ring::AckMask;

use super::{RinaWorker, Stage, TASK_MAX};
use crate::rina::channel::Hop;
use crate::rina::config::Onward;
use crate::shared::reliability::Reliability;
use crate::shared::rtt::{RttEstimator, rebased};

/// A result that nobody acknowledges is of no group.
pub(in crate::rina) const NO_GROUP: u16 = u16::MAX;

/// A result has passed by where one so many packets behind it has come, as packets may overtake each other.
const GAP: u32 = 3;

/// A sender hears of a mark after so many results at the soonest. It halves its window once a round trip at most, whatever it hears.
const TOLD_EVERY: u32 = 16;

/// So many questions for results at most are without an answer. Each names [`AckMask::BITS`] pieces next to each other, of which often one is lost.
const ASKED_MAX: usize = 16;

/// How far the results of a partition have come.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Passed {
    /// The first packet that is not here.
    lowest: u32,
    /// The first behind all that have been asked for, or are here.
    looked: u32,
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
    /// Takes out a piece that is here; false where it is none of these.
    fn remove(&mut self, piece: u32) -> bool {
        let bit = piece.wrapping_sub(self.base);
        let is_one = bit < AckMask::BITS && self.mask >> bit & 1 == 1;
        self.mask &= !(u64::from(is_one) << (bit % AckMask::BITS));
        is_one
    }

    /// Whether nothing behind a piece is wanted.
    fn ends_at(&self, piece: u32) -> bool {
        self.mask >> (piece.wrapping_sub(self.base) % AckMask::BITS) == 0
    }
}

/// A question without an answer, and when it was asked.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Asked {
    wanted: Wanted,
    at: Instant,
    /// It was asked once, and no answer has come.
    is_measured: bool,
    /// It was asked again.
    is_again: bool,
}

/// Results that are asked for.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(in crate::rina) struct Repairs {
    /// By partition, for results that nobody acknowledges.
    passed: Vec<Passed>,
    /// What this worker has asked for and not got yet, in the order in which it was asked; and whether that was because nothing came.
    asked: VecDeque<Asked>,
    was_idle: bool,
    /// How long answers take, and so what is waited for.
    answers: RttEstimator,
    /// Results since somebody was last told of a mark.
    untold: u32,
    /// What others have asked for and not got yet.
    owed: VecDeque<(Address, Wanted)>,
}

impl Repairs {
    pub(in crate::rina) fn new(reliability: &Reliability) -> Self {
        Repairs {
            passed: Vec::new(),
            asked: VecDeque::new(),
            was_idle: false,
            answers: RttEstimator::new(reliability),
            untold: 0,
            owed: VecDeque::new(),
        }
    }

    /// How long nothing may come before missing results are asked for.
    pub(in crate::rina) fn wait(&self) -> Duration {
        self.answers.timeout()
    }

    /// Makes times relative to `now`.
    pub(in crate::rina) fn rebase(&mut self, now: Instant) {
        self.asked.iter_mut().for_each(|asked| asked.at = rebased(asked.at, now));
        self.answers.rebase(now);
    }

    /// An operation or an epoch begins; of so many partitions results may pass by.
    pub(in crate::rina) fn begin(&mut self, partitions: u32) {
        self.passed.clear();
        self.passed.resize(partitions as usize, Passed::default());
        self.asked.clear();
        (self.was_idle, self.untold) = (false, TOLD_EVERY);
        self.owed.clear();
    }

    /// Nothing is asked for; what has passed by will be again.
    fn forget_asked(&mut self) {
        self.asked.clear();
        self.passed.iter_mut().for_each(|passed| passed.looked = passed.lowest);
    }

    /// A result has come. Whether its sender is to be told that it was marked: at once, but of one in so many at most.
    #[inline]
    pub(in crate::rina) fn tells_mark(&mut self, marked: bool) -> bool {
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
    pub(in crate::rina) fn holder(&self) -> Option<Address> {
        let head = if self.view.is_head { self.view.previous() } else { self.view.own() };
        (head.head != self.config.rank).then(|| head.address())
    }

    /// A result was marked here, where nobody acknowledges it: whoever sent it hears of it, whose window follows the way to the next head only
    /// (`rina 4.3`).
    #[cold]
    pub(in crate::rina) fn tell_mark<T: Tx<RinaHeader, P>>(&self, group: u16, number: u32, tx: &mut T) {
        let sender = self.view.group(group.into()).filter(|sender| sender.head != self.config.rank);
        let Some(sender) = sender else { return };
        let (epoch, operation) = (self.view.epoch(), self.run.operation);
        let header = RinaHeader::Repair { epoch, operation, mask: AckMask::default(), base: number };
        tx.send(self.to(sender.address()), &header, Body::Empty);
    }

    /// Asks for the pieces of a mask.
    fn ask<T: Tx<RinaHeader, P>>(&self, base: u32, mask: u64, tx: &mut T) {
        let Some(holder) = self.holder() else { return };
        let (epoch, operation) = (self.view.epoch(), self.run.operation);
        tx.send(self.to(holder), &RinaHeader::Repair { epoch, operation, mask: AckMask::new(mask), base }, Body::Empty);
    }

    /// Asks for those of some pieces that are not here, from the first of them on; as many as a packet names.
    fn ask_for<T: Tx<RinaHeader, P>>(&mut self, now: Instant, pieces: Range<u32>, tx: &mut T) {
        let end = pieces.end.min(pieces.start.saturating_add(AckMask::BITS));
        let held = self.run.held.get(pieces.start as usize..end as usize).unwrap_or_default();
        let missing = held.iter().enumerate().filter(|(_, held)| held.stage != Stage::Final);
        let wanted = Wanted { base: pieces.start, mask: missing.fold(0, |mask, (bit, _)| mask | 1 << bit) };
        if wanted.mask != 0 {
            self.ask_anew(now, wanted, false, tx);
        }
    }

    fn ask_anew<T: Tx<RinaHeader, P>>(&mut self, now: Instant, wanted: Wanted, is_again: bool, tx: &mut T) {
        self.repairs.asked.push_back(Asked { wanted, at: now, is_measured: !is_again, is_again });
        tx.note(Event::Counted(Tally::Repair));
        self.ask(wanted.base, wanted.mask, tx);
    }

    /// Nothing has come for a while: asks for what has passed by, or else for what is missing. What an answer did not come for is asked for
    /// in its turn, as the holder may have only what follows.
    pub(in crate::rina) fn ask_what_is_missing<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let was_idle = std::mem::replace(&mut self.repairs.was_idle, true);
        let asked = self.repairs.asked.back().map(|asked| asked.wanted);
        if !was_idle && asked.is_some() {
            // These are known to have passed by.
            for _ in 0..self.repairs.asked.len() {
                let Some(Asked { wanted, .. }) = self.repairs.asked.pop_front() else { break };
                self.ask_anew(now, wanted, true, tx);
            }
            return;
        }
        let behind = asked.map_or(0, |wanted| wanted.base.saturating_add(AckMask::BITS));
        self.repairs.forget_asked();
        let is_missing = |from: u32| {
            let rest = self.run.held.iter().enumerate().skip(from as usize);
            rest.filter(|(_, held)| held.stage != Stage::Final).map(|(index, _)| index as u32).next()
        };
        let Some(first) = is_missing(behind.max(self.run.first_missing)).or(is_missing(self.run.first_missing)) else { return };
        self.ask_for(now, first..self.run.held.len() as u32, tx);
    }

    /// A result was new: asks for those that it shows to be lost, or for more where all is here that was asked for.
    #[inline]
    pub(in crate::rina) fn ask_for_more<T: Tx<RinaHeader, P>>(&mut self, now: Instant, item: Item, piece: u32, way: Way, tx: &mut T) {
        if way != Way::Repair && std::mem::take(&mut self.repairs.was_idle) {
            // Results come on their own again: they were late, not lost. Those that were lost, these show.
            self.repairs.forget_asked();
        }
        let is_answered = !self.repairs.asked.is_empty() && self.on_answer(now, piece, way, tx);
        let partition = usize::from(item.partition);
        if !self.is_acknowledged(item.partition.into())
            && let Some(passed) = self.repairs.passed.get_mut(partition)
        {
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
            self.ask_in(now, partition, tx);
        }
        if is_answered {
            (0..self.repairs.passed.len()).for_each(|place| self.ask_in(now, place, tx));
            if self.repairs.asked.is_empty() && self.run.missing > 0 && std::mem::take(&mut self.repairs.was_idle) {
                self.ask_what_is_missing(now, tx);
            }
        }
    }

    /// Whether the head before sees what is lost of a partition's results here: it sends it by its number. It does that with its own partition's
    /// where its switch hands on all others, and with all where it does.
    fn is_acknowledged(&self, partition: u32) -> bool {
        let by_heads = self.view.previous().switch.is_none() || self.config.layout.onward == Onward::Agent;
        self.view.is_head && (by_heads || partition == self.view.previous_place())
    }

    /// Takes a piece out of what is asked for. Whether a question has all its answers. Answers come in the order of questions, so what was to come
    /// before this one is lost.
    #[cold]
    fn on_answer<T: Tx<RinaHeader, P>>(&mut self, now: Instant, piece: u32, way: Way, tx: &mut T) -> bool {
        let asked = &mut self.repairs.asked;
        let Some(place) = asked.iter_mut().position(|asked| asked.wanted.remove(piece)) else { return false };
        let answered = &mut asked[place];
        let (at, base, is_last) = (answered.at, answered.wanted.base, answered.wanted.ends_at(piece));
        if way == Way::Repair && std::mem::take(&mut answered.is_measured) {
            self.repairs.answers.on_answer(now, at, at);
        }
        let mut is_answered = false;
        for _ in 0..self.repairs.asked.len() {
            let Some(asked) = self.repairs.asked.pop_front() else { break };
            let is_over = asked.at < at || is_last && (asked.at, asked.wanted.base) == (at, base);
            match asked.wanted.mask {
                0 => is_answered = true,
                // Once: the holder may miss it, too, and then hands it to all when it comes.
                _ if way == Way::Repair && is_over && !asked.is_again => self.ask_anew(now, asked.wanted, true, tx),
                _ => self.repairs.asked.push_back(asked),
            }
        }
        is_answered
    }

    /// Asks for what has passed by of a partition, as far as that is not asked for yet.
    fn ask_in<T: Tx<RinaHeader, P>>(&mut self, now: Instant, place: usize, tx: &mut T) {
        while let Some(passed) = self.repairs.passed.get_mut(place) {
            // Behind the last one of a partition nothing comes that would show more.
            let behind = if passed.until == self.run.cut.segments(place as u32) { 0 } else { GAP };
            let end = passed.until.saturating_sub(behind);
            passed.looked = passed.looked.max(passed.lowest);
            if passed.looked >= end || self.repairs.asked.len() >= ASKED_MAX {
                return;
            }
            let Some(first) = self.run.cut.piece(place as u32, passed.looked) else { return };
            let held = self.run.held.get(first.index as usize..(first.index + (end - passed.looked)) as usize).unwrap_or_default();
            let Some(hole) = held.iter().position(|held| held.stage != Stage::Final) else {
                passed.looked = end;
                return;
            };
            let hole = passed.looked + hole as u32;
            let until = end.min(hole + AckMask::BITS);
            let index = first.index + (hole - passed.looked);
            passed.looked = until;
            self.ask_for(now, index..index + (until - hole), tx);
        }
    }

    // ---- At who has them -----------------------------------------------------------------------------------------------------------

    /// `rina` P8, `4.4`: a worker of the rack, or the next group's head, misses results. Or it misses none, and one was marked: results of all
    /// groups together are too many for the way to it, which only it sees (`rina 4.3`).
    pub(in crate::rina) fn on_repair<T: Tx<RinaHeader, P>>(
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
        let asker = self.config.layout.rank_at(from.source.node).filter(|rank| self.view.is_head && self.view.has(*rank));
        let Some(asker) = asker else { return tx.note(Event::Dropped(DropReason::NotAMember)) };
        let is_of_rack = self.config.layout.rack_of(asker) == self.config.layout.rack_of(self.config.rank);
        // What waits for its turn comes to all.
        let is_there = |bit: u32| {
            let held = self.run.held.get(base.wrapping_add(bit) as usize);
            held.is_some_and(|held| held.stage == Stage::Final && (held.is_sent || is_of_rack && held.is_handed_down))
        };
        let has = (0..AckMask::BITS).filter(|bit| mask >> bit & 1 == 1 && is_there(*bit)).fold(0u64, |has, bit| has | 1 << bit);
        if mask == 0 {
            self.gather.on_told_mark(base);
        } else if has != 0 {
            self.gather.shrink_by_loss(now);
        }
        if has != 0 {
            let wanted = Wanted { base, mask: has };
            let owed = &mut self.repairs.owed;
            let others = owed.iter().filter(|(to, _)| *to == from.source).count();
            match owed.iter_mut().find(|(to, owed)| *to == from.source && owed.base == base) {
                Some((_, owed)) => *owed = wanted,
                // Whoever asks for more than it may asks again.
                None if others >= ASKED_MAX => {}
                None => owed.push_back((from.source, wanted)),
            }
            self.pump_repairs(tx);
        }
    }

    /// Sends what others have asked for, while there is room.
    pub(in crate::rina) fn pump_repairs<T: Tx<RinaHeader, P>>(&mut self, tx: &mut T) {
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
    pub(in crate::rina) fn on_unknown<T: Tx<RinaHeader, P>>(&mut self, now: Instant, from: Ingress, run: (u16, u16), tx: &mut T) {
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
    pub(in crate::rina) fn send_all_again<T: Tx<RinaHeader, P>>(&mut self, now: Instant, known: Range<u32>, tx: &mut T) {
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
