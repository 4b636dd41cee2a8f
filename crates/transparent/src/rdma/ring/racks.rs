//! A ring whose workers are behind several switches (`netreduce 5.7`): what this one has to do with the others.
//!
//! Each switch sums what its own workers and the switches below it send; the first one that has all ranks has the result, which comes down from
//! there. The data of a packet ends where its sender is. What stands before its elements goes to the switch where its receiver is, and leaves
//! there with the sum: the paper's translation of connections (CTT), for each packet, since cards choose flags and numbers of their own.
//! Questions to cards, and acknowledgements, pass from end to end, so that all that is known of a connection is known where its sender is.
//!
//! Switches go on together: an epoch is what lies between two moments at which all forget what they hold. Whoever forgets begins another one and
//! says so; the others follow, and what is of another epoch is dropped. Between two switches messages arrive once and in order, so a head is there
//! before the sum that leaves in it, and the end of an epoch before anything of the next one.

use fanin_core::{Address, Ingress, Instant, JobId, Node, NodeId, PortId, Role};
use fanin_wire::netreduce::{InaHeader, NetReduceHeader, PacketNumber};
use fanin_wire::roce::{self, ICRC, Over};

use super::tree::{Child, SWITCHES};
use super::way::{HEAD_MAX, Head, Way};
use super::{Failure, Packet, Psn, Ring};
use crate::rdma::Emit;
use crate::rdma::config::RdmaRing;
use crate::rdma::told::{FarHead, Sum, Terms, Told};
use crate::trunk::GONE;

fn terms(config: &RdmaRing) -> Terms {
    Terms {
        workers: config.workers.len() as u16,
        declared: InaHeader::declared(config.op),
        window: config.shape.window,
        packets: config.shape.packets,
        payload: config.payload_bytes,
    }
}

/// Epochs, and who is where.
impl Ring {
    /// A switch answers behind a port.
    pub fn on_trunk(&mut self, port: usize) {
        if self.tree.parent() == Some(port) {
            self.declare();
        }
    }

    /// Says above which ranks are below it.
    fn declare(&mut self) {
        let Some(port) = self.tree.parent() else { return };
        let below = self.tree.children.iter().flat_map(|child| child.ranks.iter().copied());
        let mut ranks: Vec<u16> = self.tree.own.iter().copied().chain(below).collect();
        ranks.sort_unstable();
        if !ranks.is_empty() {
            self.tree.say(port, &Told::Ranks { terms: terms(&self.config), ranks });
        }
    }

    /// The switch behind a port is gone, or was restarted.
    pub fn on_trunk_gone(&mut self, port: usize, interface: &str, is_restart: bool) {
        let below = self.tree.children.iter_mut().find(|child| child.port == port);
        let is_needed = match below {
            Some(child) => std::mem::take(&mut child.is_up),
            None => self.tree.parent() == Some(port),
        };
        if !is_needed || !self.tree.is_ready {
            return;
        }
        let is_running = self.members.iter().any(|member| member.line.is_some()) || self.tree.outstanding > 0;
        if is_running {
            self.fail(Failure::Beyond { interface: interface.to_owned(), is_restart });
        }
        self.tree.is_ready = false;
    }

    /// A switch below says which ranks it has.
    fn on_ranks(&mut self, port: usize, epoch: u64, theirs: Terms, ranks: Vec<u16>, interface: &str) {
        if let Err(why) = self.admit(port, theirs, &ranks) {
            tracing::error!(ring = self.config.ring, interface, "the switch below cannot sum the ring together with this one: {why}");
            return self.tree.say(port, &Told::Unfit { why });
        }
        self.tree.children.retain(|child| child.port != port);
        self.tree.children.push(Child { port, ranks, is_up: true });
        self.tree.children.sort_unstable_by_key(|child| child.ranks[0]);
        if !self.tree.is_told {
            let below = |rank: &u16| self.tree.children.iter().any(|child| child.ranks.contains(rank));
            self.tree.own = (0..self.tree.world).filter(|rank| !below(rank)).collect();
        }
        self.tree.epoch = self.tree.epoch.max(epoch) + 1;
        let is_top = self.tree.known() == usize::from(self.tree.world);
        self.tree.is_ready = is_top && self.tree.children.iter().all(|child| child.is_up);
        self.clear(false);
        if self.tree.is_ready {
            tracing::info!(ring = self.config.ring, switches = self.tree.children.len(), "all ranks of the ring are known");
            self.tree.held_off = None;
            self.tree.spread(None, &Told::Begin);
        } else if !is_top {
            self.declare();
        }
    }

    fn admit(&self, port: usize, theirs: Terms, ranks: &[u16]) -> Result<(), String> {
        if let Some((field, value, expected)) = terms(&self.config).difference(&theirs) {
            return Err(format!("`{field}` is {value} there where {expected} is expected, as in `rdma-ring` of the switch above"));
        }
        let Some(last) = ranks.last() else { return Err("`here` names no worker there".to_owned()) };
        if *last >= self.tree.world {
            return Err(format!("`here` names rank {last} there where ranks below {} are expected", self.tree.world));
        }
        for rank in ranks {
            let address = self.config.workers[usize::from(*rank)];
            if self.tree.children.iter().any(|child| child.port != port && child.ranks.contains(rank)) {
                return Err(format!("`here` names {address} there, and another switch has it, too"));
            }
            let line = self.members[usize::from(*rank)].line.as_ref();
            if self.tree.is_told && self.tree.has(*rank) || line.is_some_and(|line| line.port != port) {
                return Err(format!("`here` names {address} there, and it is behind the switch above itself"));
            }
        }
        Ok(())
    }

    /// The switch above knows all ranks.
    fn on_begin(&mut self, epoch: u64) {
        if self.tree.is_ready && epoch <= self.tree.epoch {
            return;
        }
        self.clear(false);
        self.tree.epoch = epoch.max(self.tree.epoch);
        (self.tree.is_ready, self.tree.unfit, self.tree.held_off) = (true, None, None);
        let above = self.tree.parent();
        tracing::info!(ring = self.config.ring, "the ring is summed together with other switches");
        self.tree.spread(above, &Told::Begin);
    }

    /// What is held is forgotten, here and at all other switches.
    pub(super) fn over(&mut self, why: Option<String>, rank: Option<u16>, is_unsure: bool) {
        self.clear(why.is_some());
        if self.tree.spans() {
            self.tree.epoch += 1;
            self.tree.spread(None, &Told::Over { why, rank, is_unsure });
        }
    }

    /// Another switch has forgotten what it held.
    fn on_over(&mut self, port: usize, epoch: u64, why: Option<String>, rank: Option<u16>, is_unsure: bool) {
        if epoch <= self.tree.epoch {
            return;
        }
        self.tree.epoch = epoch;
        self.tree.spread(Some(port), &Told::Over { why: why.clone(), rank, is_unsure });
        if let Some(why) = why {
            tracing::error!(ring = self.config.ring, "another switch says: {why}: the ring is ended, and so are its queue pairs");
            self.statistics.ended += 1;
            self.statistics.blamed = rank.map(|rank| (self.config.ring, rank)).or(self.statistics.blamed);
            return self.clear(true);
        }
        // What the one who begins anew sent before may be in these sums.
        let is_doubtful = |line: &super::Line| line.is_doubtful || is_unsure && line.has_sums;
        let other = (0u16..).zip(&self.members).find(|(_, member)| member.line.as_ref().is_some_and(is_doubtful));
        match (other, rank) {
            (Some((other, _)), Some(rank)) => self.fail(Failure::Doubtful { rank, other }),
            _ => self.clear(false),
        }
    }

    /// A rank has come for the first time elsewhere: those here who were silent for long may be of a run that was given up.
    fn on_joined(&mut self, now: Instant, port: usize, rank: u16) {
        self.members[usize::from(rank)].refused = None;
        if self.is_any_stale(now) {
            self.say_stale(rank);
            return self.over(None, None, false);
        }
        self.tree.spread(Some(port), &Told::Joined { rank });
    }

    /// Whether a worker's packet cannot be taken, because it should not come here, or not yet.
    pub(super) fn is_held_off(&mut self, now: Instant, packet: &Packet<'_>) -> bool {
        let rank = packet.rank;
        if !self.tree.has(rank) {
            self.refuse(packet, Failure::Elsewhere { rank, address: self.config.workers[usize::from(rank)] });
            return true;
        }
        if self.tree.is_ready {
            return false;
        }
        let since = *self.tree.held_off.get_or_insert(now);
        if let Some(why) = self.tree.unfit.clone() {
            self.refuse(packet, Failure::Told { why });
        } else if now.since(since) >= GONE {
            self.refuse(packet, Failure::Unready);
        } else {
            self.statistics.dropped += 1;
        }
        true
    }
}

/// Data.
impl Ring {
    /// The receiver of a packet is behind another switch, which gets what stands before the elements.
    pub(super) fn pass_head(&mut self, packet: &Packet<'_>) {
        let (rank, psn) = (packet.rank, packet.psn());
        let successor = self.successor(rank);
        if self.tree.has(successor) {
            return;
        }
        let Some((message, offset, length, packets)) = self.place_of(rank, packet) else { return };
        let (Some(port), Some(head)) = (self.tree.way_to(successor), self.members[usize::from(rank)].head(psn)) else { return };
        let bytes = head.bytes[..usize::from(head.length)].to_vec();
        let payload_bytes = head.payload_bytes;
        self.statistics.heads += 1;
        self.tree.say(port, &Told::Head(FarHead { rank, message, offset, psn: psn.number(), payload_bytes, length, packets, bytes }));
    }

    /// Message, offset, length of the message and its number of packets.
    fn place_of(&self, rank: u16, packet: &Packet<'_>) -> Option<(u32, u16, u32, u16)> {
        if let Some(reth) = packet.header.reth {
            let ina = InaHeader::parse(packet.payload).ok()?;
            return Some((ina.message, 0, reth.length, ina.packets));
        }
        let newest = self.switch.newest(rank)?;
        (0..self.config.shape.window * 2).find_map(|back| {
            let message = newest.wrapping_sub(back);
            let (first, packets, length) = self.switch.message(rank, message)?;
            let offset = u16::try_from(packet.psn().since(first)).ok().filter(|offset| *offset < packets)?;
            Some((message, offset, length, packets))
        })
    }

    /// What another switch says of the ring.
    pub fn on_told(
        &mut self,
        now: Instant,
        (port, interface): (usize, &str),
        epoch: u64,
        told: Told,
        out: &mut impl Emit,
    ) -> Result<(), &'static str> {
        let is_above = self.tree.uplink == Some(port);
        match told {
            Told::Ranks { terms, ranks } if !is_above => self.on_ranks(port, epoch, terms, ranks, interface),
            Told::Begin if is_above => self.on_begin(epoch),
            Told::Unfit { why } if is_above => {
                tracing::error!(ring = self.config.ring, interface, "the switch above does not sum the ring together with this one: {why}");
                self.tree.unfit = Some(why);
            }
            _ if !is_above && !self.tree.children.iter().any(|child| child.port == port) => {
                return Err("of a ring of which it has no rank");
            }
            Told::Over { why, rank, is_unsure } => self.on_over(port, epoch, why, rank.filter(|rank| *rank < self.tree.world), is_unsure),
            // Of what was forgotten.
            _ if epoch != self.tree.epoch || !self.tree.is_ready => {}
            Told::Up { sum, length } if !is_above => return self.on_up(now, port, &sum, length, out),
            Told::Down(sum) if is_above => self.on_down(now, &sum, out),
            Told::Head(head) => return self.on_head(now, port, head, out),
            Told::Joined { rank } if rank < self.tree.world => self.on_joined(now, port, rank),
            Told::Refused { rank, why } if rank < self.tree.world => {
                self.tree.spread(Some(port), &Told::Refused { rank, why: why.clone() });
                self.members[usize::from(rank)].refused = Some((now, Failure::Told { why }));
            }
            _ => return Err("the other direction's, or of a rank that there is not"),
        }
        Ok(())
    }

    fn ingress_of(&self, number: usize) -> Ingress {
        let source = Address { node: NodeId(SWITCHES + number as u32), role: Role::Worker };
        Ingress { port: PortId(self.tree.world + number as u16), source, job: JobId(self.config.ring), ecn: false }
    }

    /// The sum of what is below a switch.
    fn on_up(&mut self, now: Instant, port: usize, sum: &Sum, length: u32, out: &mut impl Emit) -> Result<(), &'static str> {
        let Some(number) = self.tree.children.iter().position(|child| child.port == port) else { return Ok(()) };
        // Who sends message m has the sums of m-N, which have come from here.
        let window = self.config.shape.window;
        let most = self.tree.newest.map_or(window - 1, |newest| newest.wrapping_add(window));
        if sum.offset >= self.config.shape.packets || sum.message.wrapping_sub(most) as i32 > 0 {
            return Err("a sum of which nobody can have the place");
        }
        if let Err(failure) = self.tree.note_length(self.tree.children[number].ranks[0], sum.message, length) {
            self.fail(failure);
            return Ok(());
        }
        let header = NetReduceHeader::Up { message: sum.message, offset: sum.offset };
        self.on_switch_packet(now, self.ingress_of(1 + number), &header, &sum.bytes, out);
        Ok(())
    }

    /// The sum of all.
    fn on_down(&mut self, now: Instant, sum: &Sum, out: &mut impl Emit) {
        let header = NetReduceHeader::Down { message: sum.message, offset: sum.offset };
        self.on_switch_packet(now, self.ingress_of(0), &header, &sum.bytes, out);
        self.tree.note_sum(sum.message);
        self.tree.outstanding = self.tree.outstanding.saturating_sub(1);
        self.mark_crossing();
    }

    /// Sums leave elsewhere in connections that begin here.
    pub(super) fn mark_crossing(&mut self) {
        if !std::mem::take(&mut self.tree.has_summed) {
            return;
        }
        for rank in 0..self.members.len() as u16 {
            if !self.tree.has(self.successor(rank))
                && let Some(line) = &mut self.members[usize::from(rank)].line
            {
                // Which of them has left is known there.
                line.note_summed(line.whole.before());
            }
        }
    }

    /// What stands before the elements of a packet whose receiver may be here.
    fn on_head(&mut self, now: Instant, port: usize, head: FarHead, out: &mut impl Emit) -> Result<(), &'static str> {
        if head.rank >= self.tree.world {
            return Err("the head of a packet of a rank that there is not");
        }
        let successor = self.successor(head.rank);
        if !self.tree.has(successor) {
            let to = self.tree.way_to(successor).filter(|to| *to != port).ok_or("the head of a packet whose receiver is not here")?;
            self.tree.say(to, &Told::Head(head));
            return Ok(());
        }
        if self.tree.has(head.rank) || !self.is_head(&head, successor) {
            return Err("the head of a packet that no worker can have sent");
        }
        let psn = Psn::new(head.psn);
        let mut bytes = [0; HEAD_MAX];
        bytes[..head.bytes.len()].copy_from_slice(&head.bytes);
        let kept = Head { psn, bytes, length: head.bytes.len() as u8, payload_bytes: head.payload_bytes, digest: 0, port: port as u32 };
        let member = &mut self.members[usize::from(head.rank)];
        let is_known = member.head(psn).is_some();
        if !member.keep(kept) {
            self.fail(Failure::Changed { rank: head.rank, psn: head.psn });
            return Ok(());
        }
        let FarHead { rank, message, offset, length, packets, .. } = head;
        if offset == 0 && !is_known {
            let ring = self.config.ring;
            let notice = NetReduceHeader::Notice { psn: head.psn, message, length, address: 0, connection: rank, ring, packets };
            self.on_switch_packet(now, self.ingress_of(0), &notice, &[], out);
        }
        match self.tree.sum(rank, psn).map(<[u8]>::to_vec) {
            Some(sum) => self.way(out).emit_sum(rank, PacketNumber::new(head.psn, false), &sum),
            None if is_known => self.has_repeated = true,
            None => self.moved = now,
        }
        Ok(())
    }

    /// Whether a frame can be made of it.
    fn is_head(&self, head: &FarHead, successor: u16) -> bool {
        let shape = self.config.shape;
        if head.bytes.len() > HEAD_MAX || head.packets > shape.packets || head.offset >= head.packets.max(1) {
            return false;
        }
        if u32::from(head.payload_bytes) > self.config.payload_bytes {
            return false;
        }
        let mut frame = head.bytes.clone();
        frame.resize(frame.len() + ICRC, 0);
        let addresses = [head.rank, successor].map(|rank| self.config.workers[usize::from(rank)].octets());
        roce::glance(&frame).is_some_and(|glance| glance.is_write() && glance.over == Over::V4 && glance.addresses == addresses)
    }

    fn on_switch_packet(&mut self, now: Instant, from: Ingress, header: &NetReduceHeader, payload: &[u8], out: &mut impl Emit) {
        let mut way = Way {
            members: &mut self.members,
            buffer: &mut self.buffer,
            statistics: &mut self.statistics,
            waits: &mut self.waits,
            failed: None,
            is_repeated: false,
            is_again: false,
            tree: &mut self.tree,
            out,
        };
        self.switch.on_packet(now, from, header, payload, &mut way);
        let failed = way.failed;
        self.moved = now;
        self.mark_crossing();
        if let Some(who) = failed {
            self.statistics.refused += 1;
            self.fail(Failure::Differ { who: super::name(who) });
        }
    }

    fn way<'a, E: Emit>(&'a mut self, out: &'a mut E) -> Way<'a, E> {
        Way {
            members: &mut self.members,
            buffer: &mut self.buffer,
            statistics: &mut self.statistics,
            waits: &mut self.waits,
            failed: None,
            is_repeated: false,
            is_again: false,
            tree: &mut self.tree,
            out,
        }
    }
}
