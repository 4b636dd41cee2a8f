//! What a core does with a packet, step by step, in each [`Design`] (flare 4.1 to 4.3). A core that waits for a lock spins: it does
//! nothing else.

use super::Switch;
use crate::blocks::{Done, Sum};
use crate::config::{Design, ticks};
use crate::cores::Packet;
use crate::sending::{Stream, random};

/// What a core is at.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Phase {
    /// It processes a packet for a fixed time.
    Fixed,
    /// It spins for the lock of a buffer since this tick.
    Spinning { since: u64 },
    /// It adds its packet to a buffer, whose lock it holds.
    Adding { buffer: u32 },
    /// It was last, and sums all buffers.
    Merging,
    /// It adds up two nodes of the tree: this one, and its sibling.
    Pairing { level: u32, place: u32, own: Done, other: Done },
    /// It sends the block's sum on.
    Emitting { sum: Sum, has_packet: bool },
}

/// A packet at a core.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Task {
    pub packet: Packet,
    pub phase: Phase,
}

impl Switch<'_> {
    /// A core begins with a packet.
    pub fn begin(&mut self, core: u32, packet: Packet) {
        self.begin_block(packet.block);
        match self.config.design {
            Design::Fixed => self.stay(core, packet, Phase::Fixed, ticks(self.config.add)),
            Design::Single => self.want_buffer(core, packet, 0),
            Design::Multiple(count) => {
                let buffers = &mut self.blocks[packet.block as usize].buffers;
                match (0..count).find(|&buffer| buffers[buffer as usize].lock.try_take()) {
                    Some(buffer) => self.hold_buffer(core, packet, buffer),
                    None => {
                        let draw = random(self.config.seed, Stream::Buffers, packet.child, u64::from(packet.block));
                        self.want_buffer(core, packet, (draw % u64::from(count)) as u32);
                    }
                }
            }
            Design::Tree => {
                let own = Done { sum: self.contribution(packet), is_packet: true };
                self.climb(core, packet, 0, packet.child, own);
            }
        }
    }

    /// What a core was at has taken its time.
    pub fn step(&mut self, core: u32) {
        let Task { packet, phase } = self.tasks[core as usize].expect("a core that works has a packet");
        match phase {
            Phase::Fixed => {
                let sum = self.contribution(packet);
                let last = self.put(packet.block, 0, sum);
                if last {
                    return self.emit(core, packet, true);
                }
                self.end(core, true);
            }
            Phase::Spinning { .. } => unreachable!("who spins goes on when it gets the lock"),
            Phase::Adding { buffer } => self.on_added(core, packet, buffer),
            Phase::Merging => self.emit(core, packet, true),
            Phase::Pairing { level, place, own, other } => self.on_paired(core, packet, level, place, own, other),
            Phase::Emitting { sum, has_packet } => {
                self.complete(packet.block, sum);
                self.end(core, has_packet);
            }
        }
    }

    fn want_buffer(&mut self, core: u32, packet: Packet, buffer: u32) {
        if self.blocks[packet.block as usize].buffers[buffer as usize].lock.take(core) {
            return self.hold_buffer(core, packet, buffer);
        }
        self.tasks[core as usize] = Some(Task { packet, phase: Phase::Spinning { since: self.now } });
    }

    /// A core has a buffer's lock. The first packet is copied, which takes as long as to add it.
    fn hold_buffer(&mut self, core: u32, packet: Packet, buffer: u32) {
        let time = self.time_of(core, packet.block, 1);
        self.stay(core, packet, Phase::Adding { buffer }, time);
    }

    fn on_added(&mut self, core: u32, packet: Packet, buffer: u32) {
        let sum = self.contribution(packet);
        let last = self.put(packet.block, buffer, sum);
        if last && self.config.design == Design::Single {
            // With the lock held, which nobody else wants: all have been here.
            return self.emit(core, packet, true);
        }
        if let Some(next) = self.blocks[packet.block as usize].buffers[buffer as usize].lock.release() {
            let Some(Task { packet, phase: Phase::Spinning { since } }) = self.tasks[next as usize] else {
                unreachable!("who waits for a lock spins")
            };
            self.spun += self.now - since;
            self.hold_buffer(next, packet, buffer);
        }
        if !last {
            return self.end(core, true);
        }
        // What was added is in a buffer before it is counted, so all of them are complete (flare 4.2).
        let used = self.blocks[packet.block as usize].buffers.iter().filter(|buffer| buffer.sum.is_some()).count() as u64;
        let time = self.time_of(core, packet.block, used - 1);
        self.stay(core, packet, Phase::Merging, time);
    }

    /// Sends the sum of all buffers on.
    fn emit(&mut self, core: u32, packet: Packet, has_packet: bool) {
        let buffers = &self.blocks[packet.block as usize].buffers;
        let sum = buffers.iter().filter_map(|buffer| buffer.sum).reduce(Sum::plus).expect("there is a packet in it");
        self.stay(core, packet, Phase::Emitting { sum, has_packet }, ticks(self.config.emit));
    }

    /// A node of the tree is done: up to where its sibling is not (flare 4.3).
    fn climb(&mut self, core: u32, packet: Packet, mut level: u32, mut place: u32, own: Done) {
        loop {
            let nodes = &mut self.blocks[packet.block as usize].tree[level as usize];
            if nodes.len() == 1 {
                if !own.is_packet {
                    self.buffers.take(self.now, 1);
                }
                let phase = Phase::Emitting { sum: own.sum, has_packet: own.is_packet };
                return self.stay(core, packet, phase, ticks(self.config.emit));
            }
            let sibling = place as usize ^ 1;
            if sibling < nodes.len() {
                match nodes[sibling].take() {
                    Some(other) => {
                        if own.is_packet && other.is_packet {
                            self.buffers.add(self.now, 1);
                        }
                        let time = self.time_of(core, packet.block, 1);
                        return self.stay(core, packet, Phase::Pairing { level, place, own, other }, time);
                    }
                    None => {
                        nodes[place as usize] = Some(own);
                        // A packet stays in packet memory until it is added to its sibling.
                        return self.end(core, false);
                    }
                }
            }
            // The last one of an odd number goes up alone (flare P7).
            (level, place) = (level + 1, place / 2);
        }
    }

    fn on_paired(&mut self, core: u32, packet: Packet, level: u32, place: u32, own: Done, other: Done) {
        let (left, right) = if place.is_multiple_of(2) { (own, other) } else { (other, own) };
        match (own.is_packet, other.is_packet) {
            (true, true) => self.packets.take(self.now, 2),
            (false, false) => self.buffers.take(self.now, 1),
            _ => self.packets.take(self.now, 1),
        }
        self.climb(core, packet, level + 1, place / 2, Done { sum: left.sum.plus(right.sum), is_packet: false });
    }

    /// So many additions at a core.
    fn time_of(&self, core: u32, block: u32, additions: u64) -> u64 {
        let factor = if self.cores.is_remote(core, block) { self.config.remote } else { 1.0 };
        additions * ticks(self.config.add * factor)
    }
}
