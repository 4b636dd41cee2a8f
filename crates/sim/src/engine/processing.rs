//! What switches compute with (Flare 4; PsPIN): cores, to which contributions come in order of arrival.
//!
//! A packet waits in the switch's packet memory until a core of its block's is free; the core hands it to the switch's node and is busy for the
//! time that the packet takes: a time of its own, that of its elements or pairs, and that of the places which the node looks at when the sum
//! of a sparse block leaves. What the node sends leaves when the core is done. Where a lock keeps a block, cores that have a packet of it wait
//! for each other (`flare 4.3`, one buffer). Packets that no node of the switch adds pass the cores by. A switch without cores costs nothing.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};

use fanin_core::hash::mix;
use fanin_core::{DropReason, Duration, NodeId, PortId, Wire, Worker};

use super::Simulation;
use crate::link::link_flags;
use crate::metrics::ProcessorResult;
use crate::net::HeldBack;
use crate::packet::flags;
use crate::setup::SetupError;
use crate::tasks::{Handling, Task};
use crate::vectors::Simulated;

/// What a lossless network expects of its switches.
pub const NO_CORES: &str = "no network.processor with network.lossless: what waits for a core would have to hold credits back";

/// The cores of every switch that adds.
#[derive(Clone, Copy, Debug)]
pub struct Processing<H> {
    /// Cores of a switch.
    pub cores: u32,
    /// Cores to which packets of one block go: a divisor of `cores` (Flare 4.2: hierarchical first come, first served; all of them: plain).
    pub cores_per_block: u32,
    /// A core's time for a packet, whatever it carries.
    pub packet: Duration,
    /// Bits of a dense vector that a core adds in a second; 0: in no time.
    pub bits_per_second: u64,
    /// A core's time for a pair of a sparse vector.
    pub pair: Duration,
    /// A core's time for a place that is looked at when the sum of a sparse block leaves.
    pub place: Duration,
    /// Whether cores that have packets of one block wait for each other.
    pub locks: bool,
    /// Bytes of payload that wait or are worked at: a packet that finds no room is dropped.
    pub memory_bytes: u64,
    /// From how many on what comes is marked.
    pub mark_bytes: u64,
    /// The block that a header is about, of systems whose packets say that.
    pub block_of: fn(&H) -> Option<u64>,
}

/// Cores of a switch to which the same blocks' packets go.
#[derive(Debug, Default)]
struct Group {
    idle: u32,
    waiting: VecDeque<Box<Task>>,
}

/// The cores of a switch.
#[derive(Debug, Default)]
struct Processor {
    groups: Vec<Group>,
    /// Blocks that a core works at, with the packets whose cores wait for it.
    locked: BTreeMap<u64, VecDeque<Box<Task>>>,
    bytes: u64,
    result: ProcessorResult,
}

/// Those of all switches.
#[derive(Debug)]
pub(super) struct Processors<H> {
    config: Processing<H>,
    /// By link: the processor of the switch at its far end; [`NO_PROCESSOR`] where there is none.
    at: Vec<u32>,
    processors: Vec<Processor>,
    /// Tasks whose memory is used again.
    #[allow(clippy::vec_box, reason = "the boxes are what is used again")]
    spare: Vec<Box<Task>>,
}

const NO_PROCESSOR: u32 = u32::MAX;

impl<H> Processors<H> {
    /// What each has done.
    pub fn results(&self) -> Vec<ProcessorResult> {
        self.processors.iter().map(|processor| processor.result.clone()).collect()
    }

    /// A packet that has arrived, as a task; `None` where there is no room for it.
    fn admit(&mut self, now: u64, (link, place): (u32, u32), (job, block): (u16, Option<u64>), bytes: u64) -> Option<Box<Task>> {
        let switch = self.at[link as usize];
        let processor = &mut self.processors[switch as usize];
        if processor.bytes + bytes > self.config.memory_bytes {
            processor.result.packets_dropped += 1;
            return None;
        }
        processor.bytes += bytes;
        processor.result.bytes_peak = processor.result.bytes_peak.max(processor.bytes);
        let groups = processor.groups.len() as u64;
        // Where headers name no block, each packet is one of its own.
        let block = mix(u64::from(job), block.unwrap_or(u64::from(place) | 1 << 63));
        let mut task = self.spare.pop().unwrap_or_else(|| Box::new(Task::EMPTY));
        let outputs = std::mem::take(&mut task.outputs);
        let group = (block % groups) as u32;
        *task = Task { link, place, switch, group, block, bytes, arrived_ps: now, taken_ps: now, outputs };
        Some(task)
    }

    /// Gives a task to a core, if one is free; gives it back where it can be worked at now.
    fn take(&mut self, now: u64, mut task: Box<Task>) -> Option<Box<Task>> {
        let processor = &mut self.processors[task.switch as usize];
        let group = &mut processor.groups[task.group as usize];
        if group.idle == 0 {
            group.waiting.push_back(task);
            return None;
        }
        group.idle -= 1;
        task.taken_ps = now;
        processor.result.waited_ps += u128::from(now - task.arrived_ps);
        if self.config.locks {
            if let Some(waiting) = processor.locked.get_mut(&task.block) {
                waiting.push_back(task);
                return None;
            }
            processor.locked.insert(task.block, VecDeque::new());
        }
        Some(task)
    }

    /// A core is done with a task: what goes on now, the next of its block, and the next of its group.
    fn release(&mut self, now: u64, task: &Task) -> [Option<Box<Task>>; 2] {
        let processor = &mut self.processors[task.switch as usize];
        processor.bytes -= task.bytes;
        processor.result.packets += 1;
        processor.result.busy_ps += u128::from(now - task.taken_ps);
        let mut of_block = None;
        if let Some(waiting) = processor.locked.get_mut(&task.block) {
            of_block = waiting.pop_front();
            if of_block.is_none() {
                processor.locked.remove(&task.block);
            }
        }
        if let Some(next) = &of_block {
            processor.result.locked_ps += u128::from(now - next.taken_ps);
        }
        let group = &mut processor.groups[task.group as usize];
        group.idle += 1;
        let next = group.waiting.pop_front();
        [of_block, next.and_then(|next| self.take(now, next))]
    }
}

impl<N, P> Simulation<N, P>
where
    N: Worker<P> + Clone,
    N::Header: Wire + Default,
    P: Simulated + ?Sized,
{
    /// These switches compute with cores like that; those that only forward have none.
    ///
    /// # Errors
    /// [`SetupError`] in a lossless network, or where `cores_per_block` does not divide `cores`.
    pub fn process(&mut self, config: Processing<N::Header>) -> Result<(), SetupError> {
        if self.net.is_lossless {
            return Err(SetupError::new("network.processor.cores", config.cores, NO_CORES));
        }
        if config.cores == 0 {
            return Err(SetupError::new("network.processor.cores", config.cores, "1 or more"));
        }
        if config.cores_per_block == 0 || !config.cores.is_multiple_of(config.cores_per_block) {
            let expected = format!("a divisor of the {} cores", config.cores);
            return Err(SetupError::new("network.processor.cores_per_block", config.cores_per_block, &expected));
        }
        let map = &self.net.topology.map;
        let switches: Vec<NodeId> = (map.hosts()..map.nodes()).map(NodeId).filter(|switch| map.can_aggregate(*switch)).collect();
        let group = || Group { idle: config.cores_per_block, waiting: VecDeque::new() };
        let processor = |switch: &NodeId| Processor {
            groups: std::iter::repeat_with(group).take((config.cores / config.cores_per_block) as usize).collect(),
            result: ProcessorResult { switch: *switch, cores: config.cores, ..ProcessorResult::default() },
            ..Processor::default()
        };
        let processors = switches.iter().map(processor).collect();
        let number = |node: u32| switches.binary_search(&NodeId(node)).map_or(NO_PROCESSOR, |number| number as u32);
        let at: Vec<u32> = self.net.links.iter().map(|link| number(link.to)).collect();
        for (link, at) in self.net.links.iter_mut().zip(&at) {
            if *at != NO_PROCESSOR || number(link.from.0) != NO_PROCESSOR {
                link.flags |= link_flags::HANDLED;
            }
        }
        self.processors = Some(Box::new(Processors { config, at, processors, spare: Vec::new() }));
        Ok(())
    }

    /// Whether a packet that has arrived by a link is for a core of the switch, or is dropped since there is no room for it.
    #[cold]
    pub(super) fn waits_to_be_handled(&mut self, number: u32, place: u32) -> bool {
        let has_cores = self.processors.as_ref().is_some_and(|known| known.at[number as usize] != NO_PROCESSOR);
        if !has_cores || !self.is_to_be_added(number, place) {
            return false;
        }
        let Some(known) = &mut self.processors else { return false };
        let (job, rest) = (self.net.packets.get(place).job, self.net.packets.rest(place));
        let (block, bytes) = ((known.config.block_of)(&rest.header), rest.payload.borrow().bytes() as u64);
        let Some(task) = known.admit(self.net.now, (number, place), (job, block), bytes) else {
            self.net.links[number as usize].packets_dropped += 1;
            self.net.drop_packet(place, DropReason::QueueFull);
            return true;
        };
        if known.processors[task.switch as usize].bytes > known.config.mark_bytes {
            self.net.packets.at(place).flags |= flags::ECN;
            self.net.packets_marked += 1;
        }
        if let Some(task) = known.take(self.net.now, task) {
            self.handle(task);
        }
        true
    }

    /// A core begins with a packet: the switch's node gets it, and what it sends leaves when the core is done.
    fn handle(&mut self, mut task: Box<Task>) {
        let (place, link) = (task.place, &self.net.links[task.link as usize]);
        let (to, port, link_flags) = (link.to, PortId(link.to_port), link.flags);
        let mut took_ps = 0;
        if link_flags & link_flags::DOWN != 0 {
            self.net.drop_packet(place, DropReason::Down);
        } else {
            took_ps = self.time_of(place, task.bytes);
            let outputs = std::mem::take(&mut task.outputs);
            self.net.handling = Some(Handling { places_scanned: 0, outputs });
            self.arrive_apart(to, port, link_flags, place);
            let handled = self.net.handling.take().unwrap_or_default();
            let each = self.processors.as_ref().map_or(0, |known| known.config.place.as_ps());
            took_ps += u64::from(handled.places_scanned) * each;
            task.outputs = handled.outputs;
        }
        self.net.hold_back(self.net.now + took_ps, HeldBack::Handled(task));
    }

    /// How long a core works at a packet before anything is to be sent, in ps.
    fn time_of(&self, place: u32, bytes: u64) -> u64 {
        let Some(known) = &self.processors else { return 0 };
        let config = &known.config;
        let job = &self.scenario.jobs[self.net.packets.get(place).job as usize];
        let of_payload = match job.sparsity {
            Some(_) => u64::from(self.net.packets.rest(place).header.pairs().unwrap_or(0)) * config.pair.as_ps(),
            None if config.bits_per_second == 0 => 0,
            None => (u128::from(bytes) * 8_000_000_000_000 / u128::from(config.bits_per_second)) as u64,
        };
        config.packet.as_ps() + of_payload
    }

    /// A core is done with a packet.
    pub(super) fn on_handled(&mut self, mut task: Box<Task>) {
        for (link, place) in task.outputs.drain(..) {
            let bytes = self.net.packets.get(place).frame_bytes;
            self.net.transmit(link, place, bytes);
        }
        let Some(known) = &mut self.processors else { return };
        let next = known.release(self.net.now, &task);
        known.spare.push(task);
        next.into_iter().flatten().for_each(|task| self.handle(task));
    }
}
