//! The network's state: what packets wait in and go through.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fanin_core::hash::derive;
use fanin_core::{DropReason, NodeId, Wire};

use crate::adder::Adder;
use crate::channels::Channels;
use crate::faults::FaultyLink;
use crate::limits::Pace;
use crate::link::{Link, LinkConfig, link_flags};
use crate::lossless::{Lossless, SwitchModel};
use crate::metrics::{Counters, MemorySampler, SlotResult, Tallies};
use crate::network::NetworkConfig;
use crate::noise::Noise;
use crate::packet::{Arrived, Head, Label, NO_LINK, NO_PACKET, Packets, flags};
use crate::parts::mailbox::Outbox;
use crate::queue::EventQueue;
use crate::random::{Purpose, Random};
use crate::routing::apart::Apart;
use crate::routing::{Balancer, BalancerState, Routes};
use crate::scenario::Scenario;
use crate::series::Recorder;
use crate::tasks::{Handling, Task};
use crate::topology::{Cable, Topology};
use crate::trace::Tracer;
use crate::trimming::Trims;
use crate::uplinks::Uplinks;
use crate::watch::Watcher;

/// Numbers of events that are not a link's.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EventIds {
    /// Links come first: `0..timers`.
    pub timers: u32,
    pub tx_ready: u32,
    pub sources: u32,
    pub held_back: u32,
    pub timeline: u32,
    pub job_start: u32,
    pub deadlock_check: u32,
    pub programs: u32,
    /// One a link; the last ones.
    pub wakes: u32,
}

/// Whether a node at a host waits for room in its queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TxWaiting {
    /// No.
    No,
    /// Yes, and it will be called back at a known time.
    Scheduled,
    /// Yes, when the queue's packets have got credits.
    ForCredit,
    /// The host has several queues: see `uplinks`.
    Apart,
}

/// A packet that does something later than its link would.
#[derive(Debug)]
pub(crate) enum HeldBack {
    /// Arrives at the far end of the link (a reordered packet or a second copy), with its sequence number.
    Arrive(u32, u64, u32),
    /// What is left of a packet arrives by the link, ahead of what is queued before it.
    Ahead(u32, u32),
    /// Has arrived by the link, and the switch there has added what came before it.
    Add(u32, u32),
    /// Leaves its host by the link (host noise).
    Leave(u32, u32),
    /// A core of a switch is done with a packet.
    Handled(Box<Task>),
    /// These packets leave by these links: the last pass of what they follow from is over.
    Passed(Vec<(u32, u32)>),
}

/// Everything but the nodes.
pub(crate) struct Net<H, O> {
    /// Shared with whoever built it: of a large network it is large.
    pub topology: Arc<Topology>,
    pub now: u64,
    /// The event that happens.
    pub event: u32,
    pub queue: EventQueue,
    pub ids: EventIds,
    pub links: Vec<Link>,
    pub packets: Packets<H, O>,
    /// Links drop nothing for lack of room.
    pub is_lossless: bool,
    pub lossless: Lossless,
    pub routes: Routes,
    balancer_state: BalancerState,
    /// For collectives and for background traffic; `None`: see `apart`.
    balancers: [Option<Balancer>; 2],
    /// What chooses where `balancers` do not.
    pub apart: Option<Box<Apart>>,
    /// Which links are channels of which cables.
    pub channels: Channels,
    /// By link; empty where no link has faults.
    pub faulty: Vec<Option<Box<FaultyLink>>>,
    pub held_back: BTreeMap<(u64, u64), HeldBack>,
    held_back_count: u64,
    /// Time of the pending look at `held_back`; `u64::MAX` without one.
    pub held_back_armed: u64,
    /// Something happened that the event loop must look at: a packet for its own host, lost background traffic, an end.
    pub attention: bool,
    /// Packets from one node to another at the same host or switch.
    pub loopback: VecDeque<u32>,
    /// Some job's hosts are noisy, or have several cables.
    pub has_special_hosts: bool,
    /// Hosts with several cables, where there are any.
    pub uplinks: Option<Box<Uplinks>>,
    /// How these choose, for collectives and for background traffic.
    pub host_balancers: [Balancer; 2],
    /// By job; `None` without noise.
    pub noise: Vec<Option<Box<Noise>>>,
    /// By host: whether a node waits for room in the host's queue.
    pub tx_waiting: Vec<TxWaiting>,
    /// By host: the room in its queue, where several jobs share it; 0 where one has it for itself.
    pub shared_room_ps: Vec<u64>,
    pub frame_overhead: u32,
    pub frame_min: u32,
    pub counters: Counters,
    /// By job.
    pub tallies: Vec<Tallies>,
    /// By node: see [`Tallies::LEVELS`].
    pub level_of: Vec<u8>,
    pub packets_marked: u64,
    pub packet_hops: u64,
    /// By switch.
    pub slots: Vec<SlotResult>,
    /// By job: what it has at all switches together.
    pub job_slots: Vec<SlotResult>,
    /// By switch and job: slots and bytes in use.
    held: Vec<(u64, u64)>,
    pub memory: MemorySampler,
    /// Jobs over time, where somebody asks for it.
    pub series: Option<Box<Recorder>>,
    /// Packets of some links, where somebody asks for them.
    pub trace: Option<Box<Tracer<H, O>>>,
    /// Blocks and queues, where somebody asks for them.
    pub watcher: Option<Box<Watcher>>,
    /// From when on changes of memory are looked at.
    pub watch_ps: u64,
    /// By link; empty where no host has a limit.
    pub paces: Vec<Pace>,
    /// By link; empty where switches add as fast as their links bring.
    pub adders: Vec<Adder>,
    /// Packets that were cut, where switches do that.
    pub trims: Option<Box<Trims>>,
    /// What a core of a switch is handling at the moment.
    pub handling: Option<Handling>,
    pub broken: Vec<&'static str>,
    /// Sources and payloads of dropped background packets, to be told.
    pub lost_background: Vec<(u32, O)>,
    /// What is for other parts of the network, where this is one of several.
    pub outbox: Option<Box<Outbox<H, O>>>,
}

impl<H: Wire, O: Clone> Net<H, O> {
    pub fn new(topology: Arc<Topology>, channels: Channels, scenario: &Scenario, ids: EventIds, queue: EventQueue) -> Self {
        Self::with_routes(topology, channels, scenario, ids, queue, None)
    }

    /// The same with ways that are known already, as another network of this topology and these balancers has them.
    pub fn with_routes(
        topology: Arc<Topology>,
        channels: Channels,
        scenario: &Scenario,
        ids: EventIds,
        queue: EventQueue,
        known: Option<&Routes>,
    ) -> Self {
        let (network, map) = (&scenario.network, &topology.map);
        let mut links = links(&topology, &channels, network);
        let faulty = faulty(&mut links, &topology, &channels, scenario);
        let balancers = [network.collective_balancer, network.background_balancer];
        // Where one of them has to see all ways, single ones have a place like several, and so the other one chooses there as well. Where hosts have
        // several cables, contributions go by the first one of their destination; see `uplinks`.
        let several = topology.hosts_with_several().next().is_some();
        let all_apart = several || !channels.is_empty() || balancers.iter().any(|balancer| balancer.sees_all());
        let is_apart = |balancer: Balancer| balancer.is_apart() || all_apart;
        let any_apart = balancers.iter().any(|balancer| is_apart(*balancer));
        // What chooses apart remembers something of each list of ways.
        let routes = known.cloned().unwrap_or_else(|| {
            let mut routes = if any_apart { Routes::listed(&topology, false) } else { Routes::new(&topology) };
            if all_apart {
                routes.choose_apart();
            }
            routes
        });
        let apart = any_apart.then(|| Box::new(Apart::new(&topology, scenario, &routes)));
        if apart.as_ref().is_some_and(|apart| apart.looks_at_links()) {
            let map = &topology.map;
            let between_switches = |link: &&mut Link| !map.is_host(link.from) && !map.is_host(NodeId(link.to));
            links.iter_mut().filter(between_switches).for_each(|link| link.flags |= link_flags::COUNTED);
        }
        let with_flowlets = balancers.iter().any(|balancer| matches!(balancer, Balancer::Flowlet { .. }));
        let random = Random::new(scenario.seed, Purpose::Routing, 0);
        let lossless = Lossless::new(network.lossless, links.len(), map.hosts(), map.nodes() - map.hosts());
        let mut net = Net {
            now: 0,
            event: 0,
            queue,
            ids,
            is_lossless: network.lossless.is_some(),
            lossless,
            links,
            packets: Packets::new(),
            routes,
            balancer_state: BalancerState::new(random, derive(scenario.seed, Purpose::Routing as u64), with_flowlets),
            balancers: balancers.map(|balancer| (!is_apart(balancer)).then_some(balancer)),
            apart,
            channels,
            faulty,
            held_back: BTreeMap::new(),
            held_back_count: 0,
            held_back_armed: u64::MAX,
            attention: false,
            loopback: VecDeque::new(),
            uplinks: None,
            host_balancers: balancers,
            has_special_hosts: scenario.jobs.iter().any(|job| job.noise_probability > 0.0),
            noise: Self::noise(scenario),
            tx_waiting: vec![TxWaiting::No; map.hosts() as usize],
            shared_room_ps: vec![0; map.hosts() as usize],
            frame_overhead: network.frame_overhead_bytes,
            frame_min: network.frame_bytes_min,
            counters: Counters::default(),
            tallies: vec![Tallies::default(); scenario.jobs.len()],
            level_of: Tallies::levels(map),
            packets_marked: 0,
            packet_hops: 0,
            slots: vec![SlotResult::default(); (map.nodes() - map.hosts()) as usize],
            job_slots: vec![SlotResult::default(); scenario.jobs.len()],
            held: vec![(0, 0); scenario.jobs.len() * (map.nodes() - map.hosts()) as usize],
            memory: MemorySampler::OFF,
            series: None,
            trace: None,
            watcher: None,
            watch_ps: u64::MAX,
            paces: Vec::new(),
            adders: Vec::new(),
            trims: None,
            handling: None,
            broken: Vec::new(),
            lost_background: Vec::new(),
            outbox: None,
            topology,
        };
        net.prepare_uplinks();
        net
    }

    fn noise(scenario: &Scenario) -> Vec<Option<Box<Noise>>> {
        let of_job = |(index, job): (usize, &crate::scenario::JobSchedule)| {
            (job.noise_probability > 0.0).then(|| Box::new(Noise::new(job.noise_probability, job.noise_delay, scenario.seed, index as u64)))
        };
        scenario.jobs.iter().enumerate().map(of_job).collect()
    }

    /// Memory of a switch, about to change by a slot of a job that is taken or freed.
    #[inline]
    fn slots_of(&mut self, switch: u32, job: u16, bytes: u32, taken: bool) -> &mut SlotResult {
        let index = (switch - self.topology.map.hosts()) as usize;
        if self.now >= self.watch_ps {
            self.watch(index, job, bytes, taken);
        }
        &mut self.slots[index]
    }

    /// Somebody samples memory.
    #[cold]
    fn watch(&mut self, switch: usize, job: u16, bytes: u32, taken: bool) {
        if let Some(outbox) = &mut self.outbox {
            let here = self.held[switch * self.job_slots.len() + usize::from(job)];
            outbox.note_memory((self.now, self.event), job, bytes, taken, here);
        }
        if self.now >= self.memory.next_ps {
            self.memory.sample(self.now, &self.slots);
        }
        match &mut self.series {
            // A part notes every change.
            None => self.watch_ps = if self.outbox.is_some() { 0 } else { self.memory.next_ps },
            Some(recorder) if taken => recorder.take(switch, job, bytes, self.now),
            Some(recorder) => recorder.free(switch, job, bytes, self.now),
        }
    }

    #[inline]
    pub fn slot_taken(&mut self, switch: u32, job: u16, bytes: u32) {
        let now = self.now;
        self.slots_of(switch, job, bytes, true).take(now, bytes);
        self.job_slots[usize::from(job)].take(now, bytes);
        let held = self.held_by(switch, job);
        *held = (held.0 + 1, held.1 + u64::from(bytes));
    }

    #[inline]
    pub fn slot_freed(&mut self, switch: u32, job: u16, bytes: u32) {
        let now = self.now;
        self.slots_of(switch, job, bytes, false).free(now, bytes);
        self.job_slots[usize::from(job)].free(now, bytes);
        let held = self.held_by(switch, job);
        *held = (held.0.saturating_sub(1), held.1.saturating_sub(u64::from(bytes)));
    }

    /// What a job has at a switch: slots and their bytes.
    fn held_by(&mut self, switch: u32, job: u16) -> &mut (u64, u64) {
        let jobs = self.job_slots.len();
        &mut self.held[(switch - self.topology.map.hosts()) as usize * jobs + usize::from(job)]
    }

    /// A switch loses its memory.
    pub fn lose_slots(&mut self, switch: u32) {
        let now = self.now;
        self.slots[(switch - self.topology.map.hosts()) as usize].lose_all(now);
        for job in 0..self.job_slots.len() as u16 {
            let (slots, bytes) = std::mem::take(self.held_by(switch, job));
            self.job_slots[usize::from(job)].lose(now, slots, bytes);
        }
    }

    /// Length on the wire of a packet with this payload.
    #[inline]
    pub fn frame_bytes(&self, payload_bytes: usize) -> u32 {
        (payload_bytes as u32 + self.frame_overhead).max(self.frame_min)
    }

    /// Counts a dropped packet and frees its place.
    #[cold]
    pub fn drop_packet(&mut self, place: u32, reason: DropReason) {
        self.counters.drop(reason);
        if self.is_lossless {
            self.release(place);
            self.attention = true;
        }
        if let Some(trims) = &mut self.trims {
            trims.forget(place);
        }
        if self.packets.get(place).has(flags::BACKGROUND) {
            let rest = self.packets.rest(place);
            self.lost_background.push((rest.flow, rest.payload.clone()));
            self.attention = true;
        }
        self.packets.free(place);
    }

    /// Puts a packet into a link's queue.
    #[inline(always)]
    pub fn transmit(&mut self, number: u32, place: u32, bytes: u32) {
        let link = &mut self.links[number as usize];
        if link.has(link_flags::DOWN | link_flags::LOSSLESS | link_flags::LIMITED | link_flags::HANDLED | link_flags::CUT) {
            if link.has(link_flags::HANDLED) {
                return self.transmit_handled(number, place, bytes);
            }
            if link.has(link_flags::LOSSLESS) {
                return self.send_lossless(number, place, bytes);
            }
            if link.has(link_flags::LIMITED) {
                return self.transmit_limited(number, place, bytes);
            }
            if link.has(link_flags::CUT) {
                return self.queue_up_across(number, place, bytes);
            }
            return self.drop_packet(place, DropReason::Down);
        }
        self.queue_up(number, place, bytes);
    }

    /// The same by a link at a switch with cores: what a core makes leaves when it is done.
    #[cold]
    #[inline(never)]
    fn transmit_handled(&mut self, number: u32, place: u32, bytes: u32) {
        if let Some(handling) = &mut self.handling {
            return handling.outputs.push((number, place));
        }
        let link = &self.links[number as usize];
        if link.has(link_flags::LIMITED) {
            self.transmit_limited(number, place, bytes);
        } else if link.has(link_flags::DOWN) {
            self.drop_packet(place, DropReason::Down);
        } else {
            self.queue_up(number, place, bytes);
        }
    }

    /// The same by a link for which nothing is to be looked at.
    #[inline(always)]
    fn queue_up(&mut self, number: u32, place: u32, bytes: u32) {
        let link = &mut self.links[number as usize];
        if link.busy_until.saturating_sub(self.now) + link.send_time_ps(bytes) > link.calm_ps {
            return self.queue_up_behind_many(number, place, bytes);
        }
        depart(link, number, self.packets.heads(), place, bytes, NO_LINK, self.now, &mut self.queue);
    }

    /// The same where so much is queued that the packet is marked, or finds no room.
    #[inline(never)]
    fn queue_up_behind_many(&mut self, number: u32, place: u32, bytes: u32) {
        if self.finds_room(number, place, bytes) {
            let link = &mut self.links[number as usize];
            depart(link, number, self.packets.heads(), place, bytes, NO_LINK, self.now, &mut self.queue);
        }
    }

    /// Whether a packet finds room before a link. It is marked where many are queued, and dropped where there is none.
    pub fn finds_room(&mut self, number: u32, place: u32, bytes: u32) -> bool {
        let link = &self.links[number as usize];
        let queued = link.busy_until.saturating_sub(self.now);
        if queued + link.send_time_ps(bytes) > link.limit_ps {
            self.overflow(number, place);
            return false;
        }
        if queued > link.mark_ps {
            self.packets.at(place).flags |= flags::ECN;
            self.packets_marked += 1;
        }
        true
    }

    /// The link by which switch `at` sends a packet towards its destination; `None` where none leads there.
    #[inline(always)]
    pub fn route(&mut self, at: u32, place: u32, label: Label) -> Option<u32> {
        match self.routes.ways(at, label.destination) {
            (_, 0) => None,
            (link, 1) => Some(link),
            (first, count) => Some(self.choose(at, place, label, first, count)),
        }
    }

    /// Sends a packet that has reached switch `at` on towards its destination.
    #[inline(always)]
    pub fn forward(&mut self, at: u32, arrived: Arrived) {
        if self.is_lossless {
            return self.forward_lossless(at, arrived);
        }
        let place = arrived.place;
        match self.route(at, place, arrived.label) {
            Some(link) => self.transmit(link, place, arrived.frame_bytes),
            None => self.drop_packet(place, DropReason::NoRoute),
        }
    }

    /// The balancer's choice among several links; a link that is down is avoided where another is up.
    #[inline(always)]
    fn choose(&mut self, at: u32, place: u32, label: Label, first: u32, count: u32) -> u32 {
        let balancer = self.balancers[usize::from(label.has(flags::BACKGROUND))];
        let Some(index) = balancer.and_then(|balancer| self.index_by(balancer, at, place, label, first, count)) else {
            return self.choose_apart(at, place);
        };
        self.up_from(first, count, index)
    }

    /// The choice of a balancer that needs nothing but the queues; `None` for the others.
    #[inline(always)]
    pub fn index_by(&mut self, balancer: Balancer, at: u32, place: u32, label: Label, first: u32, count: u32) -> Option<u32> {
        Some(match balancer {
            Balancer::Destination => label.destination % count,
            Balancer::Random => self.balancer_state.random.below(count),
            Balancer::Ecmp => {
                let hash = self.flow_hash(at, place, label);
                (((hash >> 32) * u64::from(count)) >> 32) as u32
            }
            Balancer::Flowlet { gap_ps } => {
                let hash = self.flow_hash(at, place, label);
                self.balancer_state.flowlet(hash, self.now, gap_ps, count)
            }
            Balancer::Adaptive { threshold } => self.adaptive(first, count, label.destination % count, threshold),
            _ => return None,
        })
    }

    /// A hash of a flow at a node: node, source and destination; label and job.
    pub fn hash_of(&self, (at, source, destination): (u32, u32, u32), flow: u32, job: u16) -> u64 {
        self.balancer_state.hash_of((at, source, destination), flow, job)
    }

    /// The choice of a flowlet.
    pub fn flowlet(&mut self, hash: u64, gap_ps: u64, count: u32) -> u32 {
        // The table knows no time 0; here it is asked twice at a time, for room and for a packet.
        self.balancer_state.flowlet(hash, self.now.max(1), gap_ps, count)
    }

    /// A hash of a packet's flow that differs from switch to switch.
    #[inline(always)]
    pub fn flow_hash(&self, at: u32, place: u32, label: Label) -> u64 {
        self.balancer_state.flow_hash(at, label, self.packets.rest(place))
    }

    /// The link with this index, or the next one that is up.
    #[inline(always)]
    pub fn up_from(&self, first: u32, count: u32, index: u32) -> u32 {
        let link = self.routes.link(first + index);
        if !self.links[link as usize].has(link_flags::DOWN) {
            return link;
        }
        let mut rotated = (1..count).map(|step| self.routes.link(first + (index + step) % count));
        rotated.find(|&other| !self.links[other as usize].has(link_flags::DOWN)).unwrap_or(link)
    }

    /// Canary 3.1: the destination's default port; above the threshold, the port with the fewest queued bytes.
    fn adaptive(&self, first: u32, count: u32, default: u32, threshold: f64) -> u32 {
        let link = &self.links[self.routes.link(first + default) as usize];
        let acceptable = if link.limit_ps == u64::MAX { 0 } else { (link.limit_ps as f64 * threshold) as u64 };
        if link.queued_ps(self.now) <= acceptable && !link.has(link_flags::DOWN) {
            return default;
        }
        let mut best = (u64::MAX, default);
        // The default port first, so that it wins ties.
        for index in (default..count).chain(0..default) {
            let link = &self.links[self.routes.link(first + index) as usize];
            let queued_ps = link.queued_ps(self.now);
            if queued_ps < best.0 && !link.has(link_flags::DOWN) {
                best = (queued_ps, index);
            }
        }
        best.1
    }

    /// Keeps a packet back until `at_ps`.
    pub fn hold_back(&mut self, at_ps: u64, what: HeldBack) {
        self.held_back.insert((at_ps, self.held_back_count), what);
        self.held_back_count += 1;
        self.arm_held_back();
    }

    /// Schedules the first packet that is held back, unless an earlier look is pending.
    pub fn arm_held_back(&mut self) {
        if let Some((&(time, _), _)) = self.held_back.first_key_value()
            && time < self.held_back_armed
        {
            self.held_back_armed = time;
            self.queue.push(time, self.ids.held_back);
        }
    }
}

/// Sends a packet of `bytes` bytes behind what the link has to send already; gives the time when its last byte leaves. `holds` is the
/// link whose far buffer it is charged to.
#[inline(always)]
#[allow(clippy::too_many_arguments, reason = "what the caller has at hand is not looked up again")]
pub(crate) fn depart(
    link: &mut Link,
    number: u32,
    heads: &mut [Head],
    place: u32,
    bytes: u32,
    holds: u32,
    now_ps: u64,
    queue: &mut EventQueue,
) -> u64 {
    let departure = link.send(bytes, now_ps);
    let arrival_ps = departure + link.latency_ps;
    let head = &mut heads[place as usize];
    head.arrival_ps = arrival_ps;
    head.next = NO_PACKET;
    head.charged_to = holds;
    let last = std::mem::replace(&mut link.on_wire.last, place);
    if link.on_wire.is_empty() {
        link.on_wire.first = place;
        queue.push(arrival_ps, number);
    } else {
        heads[last as usize].next = place;
    }
    departure
}

/// What is wrong with links, by link; nothing where none has faults. Marks those that have.
fn faulty(links: &mut [Link], topology: &Topology, channels: &Channels, scenario: &Scenario) -> Vec<Option<Box<FaultyLink>>> {
    if scenario.faults.links.is_empty() && scenario.faults.strays.probability <= 0.0 {
        return Vec::new();
    }
    let state = |(index, link): (usize, &mut Link)| {
        let cable = channels.cable(index as u32);
        let state = FaultyLink::new(&scenario.faults, topology, cable, index as u32, scenario.seed).map(Box::new);
        link.flags |= if state.is_some() { link_flags::FAULTY } else { 0 };
        state
    };
    links.iter_mut().enumerate().map(state).collect()
}

/// All links of a network with their channels, idle.
fn links(topology: &Topology, channels: &Channels, network: &NetworkConfig) -> Vec<Link> {
    let map = &topology.map;
    let kind = network.lossless.map(|config| config.model);
    let link = |number: u32| {
        let cable: &Cable = &topology.links[channels.cable(number) as usize];
        let from_host = map.is_host(cable.from);
        let (queue_bytes, mark_bytes) = if from_host { (u64::MAX, u64::MAX) } else { (network.queue_capacity(), network.ecn_mark_bytes) };
        let mut flags = 0;
        for (flag, has) in [
            (link_flags::FROM_HOST, from_host),
            (link_flags::TO_HOST, map.is_host(cable.to)),
            (link_flags::LOSSLESS, kind.is_some()),
            (link_flags::CARRIES, map.has_carriers() && (from_host || map.is_host(cable.to))),
            (link_flags::BY_INPUT, !from_host && kind == Some(SwitchModel::InputQueued)),
            (link_flags::SHARED, channels.of_cable(channels.cable(number)).count() > 1),
        ] {
            flags |= if has { flag } else { 0 };
        }
        Link::new(&LinkConfig {
            from: cable.from,
            to: cable.to,
            to_port: cable.to_port.0,
            speed: cable.speed,
            flags,
            queue_bytes,
            mark_bytes,
            room_bytes: network.nic_queue_bytes.min(u64::from(u32::MAX)),
            buffer_bytes: network.lossless.map_or(0, |config| config.input_bytes),
        })
    };
    (0..channels.links() as u32).map(link).collect()
}
