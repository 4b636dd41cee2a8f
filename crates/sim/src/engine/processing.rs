//! What switches compute with (Flare 4; PsPIN): cores, to which contributions come in order of arrival.
//!
//! A packet waits in the switch's packet memory until a core of its block's is free; the core hands it to the switch's node and is busy for the
//! time that the packet takes: a time of its own, that of its elements or pairs, and that of the places which the node looks at when the sum
//! of a sparse block leaves. What the node sends leaves when the core is done. Where a lock keeps a block, cores that have a packet of it wait
//! for each other (`flare 4.3`, one buffer). Where clusters of cores have a working memory with an end, a block has its sum there until that leaves,
//! and contributions to blocks that find no room wait in packet memory, of which they take half at most (`clusters`). Packets that no node of the switch adds pass the cores by. A switch without cores costs nothing.

use std::borrow::Borrow;
use std::collections::{BTreeMap, VecDeque};

use fanin_core::hash::mix;
use fanin_core::{DropReason, Duration, NodeId, PortId, Wire, Worker};

use super::Simulation;
pub use crate::clusters::WorkingMemory;
use crate::clusters::{Clusters, Room};
use crate::link::link_flags;
use crate::metrics::ProcessorResult;
use crate::net::HeldBack;
use crate::packet::flags;
use crate::setup::SetupError;
use crate::tasks::{Handling, Task};
use crate::vectors::Simulated;

/// What a lossless network expects of its switches.
pub const NO_CORES: &str = "no network.processor with network.lossless: what waits for a core would have to hold credits back";

/// Which cores a block's packets go to, of several groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum BlockMap {
    /// A hash of job and block: blocks fall on groups by chance.
    #[default]
    Hash,
    /// In turns, by the block's number.
    Modulo,
    /// The same, moved by one each time round (flare P8b: staggered hosts would meet at one group).
    Skewed,
}

/// The cores of every switch that adds.
#[derive(Clone, Copy, Debug)]
pub struct Processing<H> {
    /// Cores of a switch.
    pub cores: u32,
    /// Cores to which packets of one block go: a divisor of `cores` (Flare 4.2: hierarchical first come, first served; all of them: plain).
    pub cores_per_block: u32,
    /// How blocks are dealt out to groups of so many cores.
    pub map: BlockMap,
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
    /// What blocks that are summed up have their memory of; `None`: as much as they take. Only for nodes that tell when a sum leaves
    /// ([`Event::Scanned`](fanin_core::Event::Scanned)).
    pub working: Option<WorkingMemory>,
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
    working: Clusters,
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
    /// Cores have these, and begin with them now.
    ready: VecDeque<Box<Task>>,
    /// Those that are dropped, since too much waits for working memory.
    #[allow(clippy::vec_box, reason = "the boxes are what is used again")]
    refused: Vec<Box<Task>>,
}

const NO_PROCESSOR: u32 = u32::MAX;

impl<H> Processors<H> {
    /// What each has done.
    pub fn results(&self) -> Vec<ProcessorResult> {
        let result = |processor: &Processor| {
            let working = processor.working.is_finite().then_some((processor.working.bytes_peak, processor.working.waited));
            ProcessorResult { working, ..processor.result.clone() }
        };
        self.processors.iter().map(result).collect()
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
        let (groups, of_block) = (processor.groups.len() as u64, self.config.cores_per_block);
        // Where headers name no block, each packet is one of its own.
        let number = block.unwrap_or(u64::from(place) | 1 << 63);
        let block = mix(u64::from(job), number);
        let deal = |among: u64, hash: u64, number: u64| match self.config.map {
            BlockMap::Hash => hash % among,
            BlockMap::Modulo => number % among,
            BlockMap::Skewed => number.wrapping_add(number / among) % among,
        };
        let mut task = self.spare.pop().unwrap_or_else(|| Box::new(Task::EMPTY));
        let outputs = std::mem::take(&mut task.outputs);
        let group = deal(groups, block, number) as u32;
        let cluster = self.config.working.map_or(0, |memory| match of_block / memory.cores {
            // Several groups of cores are in one cluster, or one is spread over several.
            0 => group / (memory.cores / of_block),
            spread => group * spread + deal(u64::from(spread), block / groups, number / groups) as u32,
        });
        let empty = Task::EMPTY;
        *task = Task { link, place, switch, group, cluster, job, block, bytes, arrived_ps: now, taken_ps: now, outputs, ..empty };
        Some(task)
    }

    /// A task waits for a core of its group, if none is free.
    fn take(&mut self, now: u64, task: Box<Task>) {
        let (switch, group) = (task.switch, task.group);
        self.processors[switch as usize].groups[group as usize].waiting.push_back(task);
        self.pump(now, switch, group);
    }

    /// Free cores of a group begin with what waits.
    fn pump(&mut self, now: u64, switch: u32, group: u32) {
        let processor = &mut self.processors[switch as usize];
        while processor.groups[group as usize].idle > 0 {
            let Some(mut task) = processor.groups[group as usize].waiting.pop_front() else { return };
            let room = processor.working.ask(&task);
            if room == Room::Full {
                self.refused.extend(processor.working.wait(task, self.config.memory_bytes / 2));
                continue;
            }
            task.is_given |= room == Room::Given;
            processor.groups[group as usize].idle -= 1;
            task.taken_ps = now;
            processor.result.waited_ps += u128::from(now - task.arrived_ps);
            if self.config.locks {
                if let Some(waiting) = processor.locked.get_mut(&task.block) {
                    waiting.push_back(task);
                    continue;
                }
                processor.locked.insert(task.block, VecDeque::new());
            }
            self.ready.push_back(task);
        }
    }

    /// Memory of a cluster is free again: blocks that waited for it go before all that have come since.
    fn give(&mut self, now: u64, switch: u32, cluster: u32) {
        while let Some(tasks) = self.processors[switch as usize].working.next(cluster) {
            let group = tasks[0].group;
            for task in tasks.into_iter().rev() {
                self.processors[switch as usize].groups[group as usize].waiting.push_front(task);
            }
            self.pump(now, switch, group);
        }
    }

    /// A core is done with a task, and goes on with the next of its block, or of its group.
    fn release(&mut self, now: u64, task: &Task) {
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
        if let Some(next) = of_block {
            processor.result.locked_ps += u128::from(now - next.taken_ps);
            self.ready.push_back(next);
        }
        processor.groups[task.group as usize].idle += 1;
        if task.has_left {
            processor.working.free(task);
            self.give(now, task.switch, task.cluster);
        }
        self.pump(now, task.switch, task.group);
    }

    /// What a node has done with a contribution, as far as it is about working memory.
    fn on_node(&mut self, now: u64, task: &mut Task, handled: &Handling) {
        let working = &mut self.processors[task.switch as usize].working;
        if !working.is_finite() {
            return;
        }
        if task.is_given {
            match handled.taken_bytes {
                Some(bytes) => working.on_taken(task, u64::from(bytes)),
                // A copy of what has left already.
                None => working.free(task),
            }
            // A first block may take less than was set aside for it.
            self.give(now, task.switch, task.cluster);
        }
        task.has_left = handled.has_left;
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
        if let Some(WorkingMemory { cores, .. }) = config.working {
            let is_apart = |a: u32, b: u32| !a.is_multiple_of(b) && !b.is_multiple_of(a);
            if cores == 0 || !config.cores.is_multiple_of(cores) || is_apart(cores, config.cores_per_block) {
                let expected = format!("a divisor of the {} cores that divides cores_per_block or is divided by it", config.cores);
                return Err(SetupError::new("network.processor.cluster", cores, &expected));
            }
        }
        let map = &self.net.topology.map;
        let switches: Vec<NodeId> = (map.hosts()..map.nodes()).map(NodeId).filter(|switch| map.can_aggregate(*switch)).collect();
        let group = || Group { idle: config.cores_per_block, waiting: VecDeque::new() };
        let processor = |switch: &NodeId| Processor {
            working: config.working.map_or_else(Clusters::default, |memory| Clusters::new(memory, config.cores)),
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
        self.processors =
            Some(Box::new(Processors { config, at, processors, spare: Vec::new(), ready: VecDeque::new(), refused: Vec::new() }));
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
        known.take(self.net.now, task);
        self.begin_ready();
        true
    }

    /// Cores begin with what they have been given, and what cannot wait for working memory is dropped.
    fn begin_ready(&mut self) {
        while let Some(task) = self.processors.as_mut().and_then(|known| known.ready.pop_front()) {
            self.handle(task);
        }
        while let Some(task) = self.processors.as_mut().and_then(|known| known.refused.pop()) {
            self.net.links[task.link as usize].packets_dropped += 1;
            self.net.drop_packet(task.place, DropReason::QueueFull);
            let Some(known) = &mut self.processors else { return };
            let processor = &mut known.processors[task.switch as usize];
            processor.bytes -= task.bytes;
            processor.result.packets_dropped += 1;
            known.spare.push(task);
        }
    }

    /// A core begins with a packet: the switch's node gets it, and what it sends leaves when the core is done.
    fn handle(&mut self, mut task: Box<Task>) {
        let (place, link) = (task.place, &self.net.links[task.link as usize]);
        let (to, port, link_flags) = (link.to, PortId(link.to_port), link.flags);
        let mut took_ps = 0;
        let mut handled = Handling::default();
        if link_flags & link_flags::DOWN != 0 {
            self.net.drop_packet(place, DropReason::Down);
        } else {
            took_ps = self.time_of(place, task.bytes);
            let outputs = std::mem::take(&mut task.outputs);
            self.net.handling = Some(Handling { outputs, ..Handling::default() });
            self.arrive_apart(to, port, link_flags, place);
            handled = self.net.handling.take().unwrap_or_default();
            let each = self.processors.as_ref().map_or(0, |known| known.config.place.as_ps());
            took_ps += u64::from(handled.places_scanned) * each;
            task.outputs = std::mem::take(&mut handled.outputs);
        }
        if let Some(known) = &mut self.processors {
            known.on_node(self.net.now, &mut task, &handled);
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
        known.release(self.net.now, &task);
        known.spare.push(task);
        self.begin_ready();
    }
}
