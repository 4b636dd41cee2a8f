//! The event loop, and what comes out of a run.

mod handlers;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::blocks::{Block, Buffer, Sum};
use crate::config::{Config, ConfigError, Design, TICKS, ticks};
use crate::cores::{Cores, Packet};
use crate::gauge::Gauge;
use crate::memory::Memory;
use crate::sending::Hosts;
use handlers::{Phase, Task};

/// What happens at one time happens in this order: cores that end take no place in a queue that a packet of the same time joins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Happening {
    /// What a core was at has taken its time.
    Step(u32),
    /// Hosts know that a block has ended.
    Ended(u32),
    /// A host may send.
    Send(u32),
}

/// What comes out. Times are in cycles.
#[derive(Clone, PartialEq, Debug)]
pub struct Outcome {
    /// From the first packet until the last block's end.
    pub cycles: f64,
    /// Blocks that have ended: all, unless hosts wait for each other for ever (flare P8).
    pub completed: u32,
    /// The contributions of all children, once each, are in the sum of every block that has ended.
    pub exact: bool,
    /// Packets a cycle (Bw).
    pub bandwidth: f64,
    /// The most packets that waited for one core, where they are spread evenly over the cores that share a queue (Q).
    pub queue: f64,
    /// The most packets in packet memory, those at cores and those that a tree keeps among them.
    pub packets: u64,
    /// Their mean over time.
    pub packets_mean: f64,
    /// The longest time from a block's first packet to its end (L).
    pub latency: f64,
    /// Its mean over blocks.
    pub latency_mean: f64,
    /// The most buffers of working memory in use (R).
    pub buffers: u64,
    /// Their mean over time.
    pub buffers_mean: f64,
    /// The most that one cluster has reserved ([`Design::reserved`] for each of its blocks).
    pub reserved: u32,
    /// Packets whose cluster had no room for their block when a core was to begin with them.
    pub waited: u64,
    /// Share of the time of cores with packets in which they wait for locks.
    pub contention: f64,
    /// Share of the time of all cores in which they have packets.
    pub busy: f64,
    /// By block: its sum as a 32-bit float, of numbers that differ by a factor of a thousand; `None` where it has not ended.
    pub results: Vec<Option<f32>>,
}

/// The switch, and the hosts before it.
pub(crate) struct Switch<'a> {
    pub config: &'a Config,
    pub now: u64,
    pub blocks: Vec<Block>,
    pub cores: Cores,
    memory: Memory,
    reserved: u32,
    /// By core.
    pub tasks: Vec<Option<Task>>,
    /// Packets in packet memory.
    pub packets: Gauge,
    /// Buffers of working memory in use.
    pub buffers: Gauge,
    /// Ticks that cores have waited for locks.
    pub spun: u64,
    busy: Gauge,
    hosts: Hosts,
    events: BinaryHeap<Reverse<(u64, Happening, u64)>>,
    scheduled: u64,
    /// By block: hosts know that it has ended.
    known: Vec<bool>,
    completed: u32,
    inexact: u32,
    latency_sum: u128,
    latency_max: u64,
    first: u64,
    last: u64,
}

/// Simulates an allreduce of a vector at one switch.
///
/// # Errors
/// [`ConfigError`] for the first field that makes no sense.
pub fn run(config: &Config) -> Result<Outcome, ConfigError> {
    config.check()?;
    let mut switch = Switch {
        config,
        now: 0,
        blocks: vec![Block::default(); config.blocks as usize],
        cores: Cores::new(config),
        memory: Memory::new(config),
        reserved: 0,
        tasks: vec![None; config.cores as usize],
        packets: Gauge::default(),
        buffers: Gauge::default(),
        spun: 0,
        busy: Gauge::default(),
        hosts: Hosts::new(config),
        events: BinaryHeap::new(),
        scheduled: 0,
        known: vec![false; config.blocks as usize],
        completed: 0,
        inexact: 0,
        latency_sum: 0,
        latency_max: 0,
        first: u64::MAX,
        last: 0,
    };
    for host in 0..config.children {
        switch.schedule(switch.hosts.free_at(host), Happening::Send(host));
    }
    while let Some(Reverse((time, what, _))) = switch.events.pop() {
        switch.now = time;
        match what {
            Happening::Step(core) => switch.step(core),
            Happening::Ended(block) => switch.on_ended(block),
            Happening::Send(host) => switch.on_send(host),
        }
    }
    Ok(switch.outcome())
}

impl Switch<'_> {
    fn schedule(&mut self, at: u64, what: Happening) {
        self.events.push(Reverse((at, what, self.scheduled)));
        self.scheduled += 1;
    }

    /// A core is at this for so many ticks.
    pub fn stay(&mut self, core: u32, packet: Packet, phase: Phase, time: u64) {
        self.tasks[core as usize] = Some(Task { packet, phase });
        self.schedule(self.now + time, Happening::Step(core));
    }

    /// A core has ended with its packet, which leaves packet memory if nothing else needs it.
    pub fn end(&mut self, core: u32, frees_packet: bool) {
        if frees_packet {
            self.packets.take(self.now, 1);
        }
        self.tasks[core as usize] = None;
        self.go_on(core);
    }

    /// A core is free: it begins with the first packet whose block has room.
    fn go_on(&mut self, core: u32) {
        while let Some(packet) = self.cores.next(core) {
            if self.has_room(packet) {
                return self.begin(core, packet);
            }
        }
        self.busy.take(self.now, 1);
    }

    /// Whether a packet's block has room in its cluster's memory; else the packet waits there.
    fn has_room(&mut self, packet: Packet) -> bool {
        let cluster = self.config.cluster_of(self.cores.share(packet.block));
        let block = &mut self.blocks[packet.block as usize];
        if !block.has_room {
            block.has_room = self.memory.reserve(cluster);
            if !block.has_room {
                self.memory.wait(cluster, packet);
                return false;
            }
            self.reserved = self.reserved.max(self.memory.most_reserved());
        }
        true
    }

    /// A block's memory is free: those that wait for it have it, and their packets go before all that have come since.
    fn release(&mut self, block: u32) {
        let granted = self.memory.release(self.config.cluster_of(self.cores.share(block)));
        for (block, _) in &granted {
            self.blocks[*block as usize].has_room = true;
        }
        let packets: Vec<Packet> = granted.into_iter().flat_map(|(_, packets)| packets).collect();
        for (core, packet) in self.cores.give_back(packets.into_iter()) {
            self.busy.add(self.now, 1);
            self.begin(core, packet);
        }
    }

    /// A host may send its next block, unless the window holds it back.
    fn on_send(&mut self, host: u32) {
        let Some(block) = self.hosts.next_block(host) else { return };
        if block >= self.config.window && !self.known[(block - self.config.window) as usize] {
            return self.hosts.wait(host);
        }
        self.hosts.send(host, self.now);
        self.schedule(self.hosts.free_at(host), Happening::Send(host));
        self.on_packet(Packet { block, child: host });
    }

    fn on_packet(&mut self, packet: Packet) {
        self.packets.add(self.now, 1);
        self.first = self.first.min(self.now);
        let block = &mut self.blocks[packet.block as usize];
        if block.arrived == 0 {
            block.began = self.now;
        }
        block.arrived += 1;
        if let Some(core) = self.cores.give(packet) {
            self.busy.add(self.now, 1);
            if self.has_room(packet) { self.begin(core, packet) } else { self.go_on(core) }
        }
    }

    /// A core begins with a packet of a block: its first one makes room.
    pub fn begin_block(&mut self, block: u32) {
        let state = &mut self.blocks[block as usize];
        if !state.buffers.is_empty() || !state.tree.is_empty() {
            return;
        }
        let count = match self.config.design {
            Design::Tree => return state.grow_tree(self.config.children),
            Design::Fixed | Design::Single => 1,
            Design::Multiple(count) => count,
        };
        state.buffers = vec![Buffer::default(); count as usize];
        self.buffers.add(self.now, u64::from(count));
    }

    /// What a packet carries.
    pub fn contribution(&self, packet: Packet) -> Sum {
        Sum::of(self.config.seed, packet.block, packet.child)
    }

    /// Adds to a buffer and counts; whether it was the block's last packet.
    pub fn put(&mut self, block: u32, buffer: u32, sum: Sum) -> bool {
        let block = &mut self.blocks[block as usize];
        let place = &mut block.buffers[buffer as usize].sum;
        *place = Some(place.map_or(sum, |old| old.plus(sum)));
        block.count += 1;
        block.count == self.config.children
    }

    /// A block's sum has been sent on.
    pub fn complete(&mut self, block: u32, sum: Sum) {
        let expected =
            (0..self.config.children).fold(0u64, |census, child| census.wrapping_add(self.contribution(Packet { block, child }).census));
        self.inexact += u32::from(sum.census != expected);
        let state = &mut self.blocks[block as usize];
        let (buffers, latency) = (state.buffers.len() as u64, self.now - state.began);
        state.buffers = Vec::new();
        state.tree = Vec::new();
        self.inexact += u32::from(state.result.replace(sum).is_some());
        self.buffers.take(self.now, buffers);
        self.completed += 1;
        self.latency_sum += u128::from(latency);
        self.latency_max = self.latency_max.max(latency);
        self.last = self.now;
        self.release(block);
        self.schedule(self.now + ticks(self.config.round_trip), Happening::Ended(block));
    }

    /// Hosts that have waited for this block's slot send on.
    fn on_ended(&mut self, block: u32) {
        self.known[block as usize] = true;
        let Some(next) = block.checked_add(self.config.window) else { return };
        for host in 0..self.config.children {
            if self.hosts.next_block(host) == Some(next) && self.hosts.wake(host) {
                self.schedule(self.now.max(self.hosts.free_at(host)), Happening::Send(host));
            }
        }
    }

    fn outcome(&self) -> Outcome {
        let cycles = |ticks: u64| ticks as f64 / TICKS;
        let time = self.last.saturating_sub(self.first);
        // Where hosts wait for ever, packets have come after the last block's end.
        let end = self.now;
        let packets = f64::from(self.completed) * f64::from(self.config.children);
        let busy = self.busy.mean(end) * end as f64;
        let share = |part: f64, whole: f64| if whole > 0.0 { part / whole } else { 0.0 };
        Outcome {
            cycles: cycles(time),
            completed: self.completed,
            exact: self.inexact == 0,
            bandwidth: share(packets, cycles(time)),
            queue: self.cores.longest_queue(),
            packets: self.packets.largest(),
            packets_mean: self.packets.mean(end),
            latency: cycles(self.latency_max),
            latency_mean: share(self.latency_sum as f64 / TICKS, f64::from(self.completed)),
            buffers: self.buffers.largest(),
            buffers_mean: self.buffers.mean(end),
            reserved: self.reserved,
            waited: self.memory.waited(),
            contention: share(self.spun as f64, busy),
            busy: share(busy, end as f64 * f64::from(self.config.cores)),
            results: self.blocks.iter().map(|block| block.result.map(|sum| sum.value)).collect(),
        }
    }
}
