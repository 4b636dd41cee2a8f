//! The way of the results (`rina 4.2`), and the end of an operation (`rina 4.7`).

use fanin_core::{Body, DropReason, Egress, Event, Ingress, Instant, NodeId, OperationId, Payload, RetransmitReason, Route, Tx};
use fanin_wire::rina::{Item, RinaHeader, Way};

use super::channel::Hop;
use super::worker::repair::NO_GROUP;
use super::worker::{RinaWorker, Stage};

impl<P: Payload + ?Sized> RinaWorker<P> {
    /// Sends results on, as many as the window has room for.
    pub(super) fn pump_gather<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        while let Some(&hop) = self.gather.waiting.front() {
            let by_switch = self.view.own().switch.is_some();
            let to = if by_switch { Egress::Port(self.config.uplink) } else { self.to(self.view.next().address()) };
            if !tx.room(to) {
                return;
            }
            if hop.hops == 0 {
                // The last group's switch only hands it down; who misses it asks for it.
                self.gather.waiting.pop_front();
                self.send_result(to, ((0, false), NO_GROUP), hop, self.view.own().head_node, tx);
                continue;
            }
            let step = self.view.group_count().saturating_sub(1 + u32::from(hop.hops));
            if !self.gather.gate.admits(now, step) || !self.gather.may_send() {
                return;
            }
            self.gather.waiting.pop_front();
            let number = self.gather.push(now, hop);
            self.send_hop(number, hop, by_switch, tx);
        }
    }

    /// Sends on what the own switch has only handed down, as many as the window has room for.
    pub(super) fn pump_onward<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        while let Some(&hop) = self.gather.onward.front() {
            let to = self.to(self.view.next().address());
            let step = self.view.group_count().saturating_sub(1 + u32::from(hop.hops));
            if !tx.room(to) || !self.gather.gate.admits(now, step) || !self.gather.may_send() {
                return;
            }
            self.gather.onward.pop_front();
            let number = self.gather.push(now, hop);
            self.send_hop(number, hop, false, tx);
        }
    }

    /// To the own switch, which hands it down and on; or straight to the next group.
    pub(super) fn send_hop<T: Tx<RinaHeader, P>>(&mut self, number: (u32, bool), hop: Hop, by_switch: bool, tx: &mut T) {
        let group = self.view.place() as u16;
        if by_switch && !hop.is_handed_down {
            return self.send_result(Egress::Port(self.config.uplink), (number, group), hop, self.view.own().head_node, tx);
        }
        let next = *self.view.next();
        let hop = Hop { hops: hop.hops - 1, ..hop };
        let to = match next.switch {
            Some(_) => Egress::Route(Route::by_aggregators(next.address(), self.config.flow)),
            None => self.to(next.address()),
        };
        self.send_result(to, (number, group), hop, next.head_node, tx);
    }

    fn send_result<T: Tx<RinaHeader, P>>(
        &mut self,
        to: Egress<'_>,
        (number, group): ((u32, bool), u16),
        hop: Hop,
        node: NodeId,
        tx: &mut T,
    ) {
        let item = self.item(number, hop);
        let Some(piece) = self.piece(item) else { return };
        self.run.held[piece.index as usize].is_sent = true;
        let header = RinaHeader::Result { item, way: Way::Direct, to: node, group, hops: hop.hops };
        tx.send(to, &header, Body::Acc(&self.run.buffers[piece.index as usize]));
    }

    /// Sends again what the next group has not acknowledged: past the switches, which may have forgotten the way.
    pub(super) fn resend_gather<T: Tx<RinaHeader, P>>(&mut self, now: Instant, reason: RetransmitReason, lost: (u32, Hop), tx: &mut T) {
        let (number, hop) = lost;
        let next = *self.view.next();
        let to = self.to(next.address());
        if !tx.room(to) {
            return self.gather.sent.hold_up();
        }
        self.gather.sent.renew(now, number);
        self.gather.on_loss(now, reason);
        let block = self.run.cut.piece(hop.partition.into(), hop.segment).map_or(0, |piece| piece.index);
        tx.note(Event::Retransmitted { reason, block });
        let hop = Hop { hops: hop.hops - 1, ..hop };
        self.send_result(to, ((number, true), self.view.place() as u16), hop, next.head_node, tx);
    }

    /// A result: by the own switch, from the group before, or because it was asked for.
    pub(super) fn on_result<T: Tx<RinaHeader, P>>(
        &mut self,
        now: Instant,
        from: Ingress,
        item: Item,
        (way, group, hops): (Way, u16, u16),
        payload: &P,
        tx: &mut T,
    ) {
        if let Err(reason) = self.check_current(item.epoch, item.operation) {
            return tx.note(Event::Dropped(reason));
        }
        let (own, previous) = (*self.view.own(), *self.view.previous());
        // Other switches hand on what is on its way through them, and the rack's one what is for a worker by itself, where it summed the rack in
        // an epoch before.
        let sources = [own.source(), own.address(), previous.source(), previous.address()];
        if !sources.contains(&from.source) && !self.config.layout.has_switch(from.source) {
            return tx.note(Event::Dropped(DropReason::NotAMember));
        }
        let Some(piece) = self.piece(item).filter(|piece| self.fits(*piece, payload)) else {
            return self.mismatch(previous.head, tx);
        };
        let counted =
            self.view.is_head && u32::from(group) == self.view.previous_place() && way != Way::Repair && own.head != previous.head;
        if !counted && self.repairs.tells_mark(from.ecn) {
            self.tell_mark(group, item.number(), tx);
        }
        if self.run.held[piece.index as usize].stage == Stage::Final {
            tx.note(Event::Dropped(DropReason::Duplicate));
        } else {
            if payload.assign(&mut self.run.buffers[piece.index as usize], &mut self.config.op).is_err() {
                return self.mismatch(previous.head, tx);
            }
            let contributors = self.view.count(&self.config.layout) as u16;
            self.hold_final(now, piece, way == Way::Relayed, contributors);
            self.ask_for_more(now, item, piece.index, way, tx);
            self.hand_on(item, way, hops);
        }
        if counted {
            let is_new = self.gather.received.check(item.number()).is_ok();
            if !is_new {
                self.gather.came_again(item.number());
            }
            if !is_new || self.gather.accept(now, item, from.ecn, self.config.reliability.rto_min) {
                self.send_ack(now, true, false, tx);
            }
        }
        self.finish_if_done(now, tx);
        self.pump(now, tx);
    }

    /// A new result goes on. A worker by itself stores and forwards; an agent puts what came past its switch through that. Where this head
    /// missed it, those behind it are likely to have missed it too.
    fn hand_on(&mut self, item: Item, way: Way, hops: u16) {
        if !self.view.is_head {
            return;
        }
        let hops = if way == Way::Repair { self.view.hops_left(item.partition.into()) as u16 } else { hops };
        let hop = Hop { partition: item.partition, hops, segment: item.segment(), is_handed_down: way == Way::Relayed };
        if way == Way::Relayed {
            // With hops left, which its switch has left to it.
            self.gather.onward.extend((hops > 0).then_some(hop));
        } else if self.view.own().switch.is_some() || hops > 0 {
            self.gather.waiting.push_back(hop);
        }
    }

    // ---- The end of an operation ---------------------------------------------------------------------------------------------------

    /// `rina 4.7`: all results are here; the coordinator is told, and says when all have all.
    pub(super) fn finish_if_done<T: Tx<RinaHeader, P>>(&mut self, now: Instant, tx: &mut T) {
        let Some(running) = self.ledger.running() else { return };
        if self.run.missing > 0 || self.run.done.is_some() || !self.members.goes {
            return;
        }
        let operation = running.operation;
        self.run.done = Some(self.view.epoch());
        self.timers.on_all_results();
        self.run.without.clear();
        self.run.without.extend_from_slice(self.view.excluded());
        if self.planted.skips_commit() {
            return self.commit(operation, tx);
        }
        if self.view.coordinator == self.config.rank {
            let (epoch, rank) = (self.view.epoch(), self.config.rank);
            return self.on_done(now, rank, epoch, operation, tx);
        }
        self.tell_done(now, operation, tx);
    }

    /// Tells the coordinator; again until it answers, and then others too: it may have died when it had told but some of them that the
    /// operation is over, who have nothing to do any more and so do not miss it.
    pub(super) fn tell_done<T: Tx<RinaHeader, P>>(&mut self, now: Instant, operation: OperationId, tx: &mut T) {
        self.timers.told(now, &self.config.reliability);
        let header = RinaHeader::Done { epoch: self.view.epoch(), operation: operation.0 };
        if self.timers.has_told_twice() {
            return self.tell_lower(header, tx);
        }
        tx.send(self.to(self.address_of(self.view.coordinator)), &header, Body::Empty);
    }

    /// All have all results: they are the caller's.
    pub(super) fn commit<T: Tx<RinaHeader, P>>(&mut self, operation: OperationId, tx: &mut T) {
        for &rank in &self.run.without {
            tx.note(Event::Excluded { operation, rank });
        }
        // A mean is that of the ranks that are in it (`rina 4.7`).
        let ranks = self.config.layout.workers() - self.run.without.len() as u32;
        let mut delivered = true;
        for index in 0..self.run.cut.pieces() {
            let piece = self.run.cut.place(index).and_then(|(partition, segment)| self.run.cut.piece(partition, segment));
            let Some(piece) = piece else { continue };
            P::finish(&mut self.run.buffers[index as usize], &self.config.op, ranks);
            delivered &= tx.deliver(piece, Body::Acc(&self.run.buffers[index as usize])).is_ok();
        }
        if !delivered {
            return self.mismatch(self.config.rank, tx);
        }
        self.members.committed = operation.0.wrapping_add(1);
        self.members.committed_epoch = self.run.done.unwrap_or(0);
        self.run.done = None;
        self.scatter.abandon();
        self.gather.abandon();
        self.timers.end();
        self.ledger.complete();
    }
}
