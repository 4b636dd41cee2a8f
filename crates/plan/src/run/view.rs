//! What the report's page shows of a run beside its numbers: the network over time, and how one block was added up. All of it is bounded.

use std::collections::BTreeMap;

use fanin_core::{Instant, JobId, Length, NodeId, PacketKind, Wire};
use fanin_sim::Topology;
use fanin_sim::trace::{Keep, TraceConfig};
use fanin_sim::watch::{WatchConfig, Watched};
use fanin_simulation::run_traced_without;
use fanin_systems::{AnyHeader, block_of, layout_of};
use serde::{Deserialize, Serialize};

use crate::build::Prepared;
use crate::plan::Plan;
use crate::reading::PlanError;
use crate::traced::Wanted;

/// Points of a plan whose network is looked at: the first ones.
const NETWORKS_MAX: usize = 12;
/// Points of a plan of which a block is looked at: the first of each series.
const TREES_MAX: usize = 8;
/// Intervals of the network over time.
const INTERVALS_MAX: usize = 128;
/// Of networks with more links than that, those of hosts are left out; if there still are more, all.
const LINKS_MAX: usize = 4608;
/// A run of more events is not run once more to look at a block: that takes seconds.
const TREE_EVENTS_MAX: u64 = 4_000_000;
/// Packets of a block that are kept: the first ones.
const TREE_PACKETS_MAX: usize = 2_000;

/// What runs are looked at for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Looks<'a> {
    /// The first run, for a trace.
    pub wanted: Option<&'a Wanted>,
    /// Some runs, for the report's page.
    pub page: bool,
}

/// What one run is looked at for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LooksAt<'a> {
    pub wanted: Option<&'a Wanted>,
    pub network: bool,
    pub tree: bool,
}

impl<'a> Looks<'a> {
    /// What a run is looked at for.
    pub(super) fn of(self, plan: &Plan, point: usize, repetition: u32) -> LooksAt<'a> {
        let wanted = self.wanted.filter(|_| (point, repetition) == (0, 0));
        let page = self.page && repetition == 0;
        let tree = page && first_of_series(plan).iter().take(TREES_MAX).any(|first| *first == point);
        LooksAt { wanted, network: page && point < NETWORKS_MAX && wanted.is_none(), tree }
    }
}

/// The first point of each series and system.
fn first_of_series(plan: &Plan) -> Vec<usize> {
    let telling = |(_, axis): &(usize, &crate::Axis)| axis.name == "series" || axis.name.ends_with(".system");
    let axes: Vec<usize> = plan.axes.iter().enumerate().filter(telling).map(|(axis, _)| axis).collect();
    let mut first: BTreeMap<Vec<usize>, usize> = BTreeMap::new();
    for (number, point) in plan.points.iter().enumerate() {
        first.entry(axes.iter().map(|axis| point.indices[*axis]).collect()).or_insert(number);
    }
    let mut points: Vec<usize> = first.into_values().collect();
    points.sort_unstable();
    points
}

/// What the page shows of a run.
#[derive(Clone, PartialEq, Debug, Default, Serialize, Deserialize)]
pub struct View {
    /// The network over time.
    pub network: Option<NetworkView>,
    /// A block.
    pub tree: Option<TreeView>,
}

/// The network over time.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct NetworkView {
    /// Names of the nodes that are shown.
    pub nodes: Vec<String>,
    /// How far each is from the nearest host, in links.
    pub levels: Vec<usize>,
    /// Of each: its number among switches; 0 for hosts.
    pub switch_of: Vec<usize>,
    /// How many switches there are.
    pub switches: usize,
    /// Ends of links: places in `nodes`.
    pub links: Vec<(usize, usize)>,
    /// Links of hosts are left out.
    pub without_hosts: bool,
    /// Ends of the intervals, in us.
    pub times_us: Vec<f64>,
    /// By interval and link: the share of the interval for which it was sending.
    pub utilization: Vec<f64>,
    /// By interval and link: the longest queue before it, in bytes.
    pub queue_bytes: Vec<u64>,
    /// By interval and switch: memory in use at the interval's end, in bytes.
    pub slot_bytes: Vec<u64>,
}

/// A block: the packets that were added up, and those that brought the sum.
#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
pub struct TreeView {
    /// Its number, as packets name it.
    pub block: u64,
    /// Names of the nodes that its packets came by.
    pub nodes: Vec<String>,
    /// How far each is from the nearest host, in links.
    pub levels: Vec<usize>,
    /// Packets in the order in which they arrived at the ends of links.
    pub packets: Vec<TreePacket>,
    /// There are more.
    pub is_full: bool,
}

/// A packet of a block at the end of a link.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub struct TreePacket {
    /// When it arrived, in us.
    pub at_us: f64,
    /// Ends of the link: places in the nodes.
    pub link: (usize, usize),
    /// It carries the sum, and no contribution.
    pub is_sum: bool,
}

/// How far nodes are from the nearest host, in links.
pub fn levels(topology: &Topology) -> BTreeMap<NodeId, usize> {
    let mut levels: BTreeMap<NodeId, usize> =
        topology.links.iter().map(|cable| cable.from).filter(|node| topology.map.is_host(*node)).map(|node| (node, 0)).collect();
    loop {
        let beside = |cable: &&fanin_sim::topology::Cable| levels.contains_key(&cable.from) && !levels.contains_key(&cable.to);
        let next: Vec<(NodeId, usize)> = topology.links.iter().filter(beside).map(|cable| (cable.to, levels[&cable.from] + 1)).collect();
        if next.is_empty() {
            return levels;
        }
        for (node, level) in next {
            levels.entry(node).and_modify(|known| *known = level.min(*known)).or_insert(level);
        }
    }
}

/// The links that are shown, by their numbers; whether those of hosts are not among them.
fn shown(topology: &Topology) -> (Vec<u32>, bool) {
    let all = || (0u32..).zip(&topology.links);
    if topology.links.len() <= LINKS_MAX {
        return (all().map(|(number, _)| number).collect(), false);
    }
    let between = |(_, cable): &(u32, &fanin_sim::topology::Cable)| !topology.map.is_host(cable.from) && !topology.map.is_host(cable.to);
    (all().filter(between).map(|(number, _)| number).collect(), true)
}

/// What the simulator is told for [`network`]; `None` where there are too many links.
pub(super) fn config(topology: &Topology) -> Option<WatchConfig> {
    let (links, _) = shown(topology);
    (!links.is_empty() && links.len() <= LINKS_MAX).then_some(WatchConfig { blocks: None, links, intervals_max: Some(INTERVALS_MAX) })
}

/// Numbers for nodes, in the order in which they are asked for.
#[derive(Default)]
struct Numbers {
    of: BTreeMap<NodeId, usize>,
    nodes: Vec<NodeId>,
}

impl Numbers {
    fn all(mut nodes: Vec<NodeId>) -> Numbers {
        nodes.sort_unstable();
        nodes.dedup();
        Numbers { of: nodes.iter().copied().zip(0..).collect(), nodes }
    }

    fn names(&self, topology: &Topology) -> Vec<String> {
        self.nodes.iter().map(|node| topology.name(*node)).collect()
    }

    fn levels(&self, topology: &Topology) -> Vec<usize> {
        let levels = levels(topology);
        self.nodes.iter().map(|node| levels.get(node).copied().unwrap_or(0)).collect()
    }
}

/// What was seen of the network.
pub(super) fn network(prepared: &Prepared, watched: &Watched) -> NetworkView {
    let topology = &prepared.topology;
    let (shown, without_hosts) = shown(topology);
    let cables: Vec<_> = shown.iter().map(|link| &topology.links[*link as usize]).collect();
    let numbers = Numbers::all(cables.iter().flat_map(|cable| [cable.from, cable.to]).collect());
    let hosts = topology.map.hosts();
    let mut utilization = Vec::new();
    let (mut before_ps, mut before) = (0, vec![0; cables.len()]);
    for sample in &watched.queues {
        let span_s = (sample.until.as_ps() - before_ps) as f64 / 1e12;
        let share = |((sent, before), cable): ((&u64, &u64), &&fanin_sim::topology::Cable)| {
            let bits = sent.saturating_sub(*before) as f64 * 8.0;
            (bits / (cable.speed.bits_per_second as f64 * span_s)).clamp(0.0, 1.0)
        };
        utilization.extend(sample.sent.iter().zip(&before).zip(&cables).map(share));
        (before_ps, before) = (sample.until.as_ps(), sample.sent.clone());
    }
    NetworkView {
        nodes: numbers.names(topology),
        levels: numbers.levels(topology),
        switch_of: numbers.nodes.iter().map(|node| node.0.saturating_sub(hosts) as usize).collect(),
        switches: (topology.map.nodes() - hosts) as usize,
        links: cables.iter().map(|cable| (numbers.of[&cable.from], numbers.of[&cable.to])).collect(),
        without_hosts,
        times_us: watched.queues.iter().map(|sample| sample.until.as_ps() as f64 / 1e6).collect(),
        utilization,
        queue_bytes: watched.queues.iter().flat_map(|sample| sample.bytes.iter().copied()).collect(),
        slot_bytes: watched.queues.iter().flat_map(|sample| sample.slots.iter().copied()).collect(),
    }
}

/// Runs once more, without elements, to see how a block of the first job whose packets name blocks was added up: the one in the middle of its vector,
/// or else the first. `None` where there is none, or the run is too long for that.
///
/// # Errors
/// [`PlanError`] where a system refuses its configuration.
pub(super) fn tree(prepared: &Prepared, events: u64) -> Result<Option<TreeView>, PlanError> {
    let names = |number: u8| layout_of(number).is_some_and(|layout| layout.block.is_some());
    let mut schedules = (0u16..).zip(prepared.jobs.iter().zip(&prepared.scenario.jobs));
    let Some((number, (job, schedule))) = schedules.find(|(_, (job, _))| names(job.system.number())) else { return Ok(None) };
    let is_sparse = prepared.scenario.jobs.iter().any(|job| job.sparsity.is_some());
    if events > TREE_EVENTS_MAX || is_sparse || !prepared.programs.is_empty() {
        return Ok(None);
    }
    let bytes = schedule.elements.first().copied().unwrap_or(0) * u64::from(schedule.element_bytes);
    let middle = bytes / job.settings.common.payload.0.max(1) / 2;
    let keep = Keep::only(move |of_job: JobId, header: &AnyHeader| {
        of_job == JobId(number) && block_of(header).is_some_and(|block| block == middle || block == 0)
    });
    let config = TraceConfig { links: None, packets_max: TREE_PACKETS_MAX, from: Instant::ZERO, until: Instant::FAR_FUTURE };
    let (_, trace) = run_traced_without(super::simulation::<Length>(prepared, |_| ())?, config, keep);
    let of_block = |wanted: u64| -> Vec<(NodeId, NodeId, f64, bool)> {
        let packets = trace.packets.iter().filter(|packet| block_of(&packet.header) == Some(wanted));
        let seen = |packet: &fanin_sim::trace::TracedPacket<AnyHeader, _>| {
            let is_sum = match packet.header.kind() {
                PacketKind::Contribution => false,
                PacketKind::Aggregate => true,
                _ => return None,
            };
            let cable = &prepared.topology.links[packet.link as usize];
            Some((cable.from, cable.to, packet.at.as_ps() as f64 / 1e6, is_sum))
        };
        packets.filter_map(seen).collect()
    };
    let (block, packets) = match of_block(middle) {
        packets if packets.is_empty() => (0, of_block(0)),
        packets => (middle, packets),
    };
    if packets.is_empty() {
        return Ok(None);
    }
    let numbers = Numbers::all(packets.iter().flat_map(|(from, to, ..)| [*from, *to]).collect());
    let packet = |(from, to, at_us, is_sum): &(NodeId, NodeId, f64, bool)| TreePacket {
        at_us: *at_us,
        link: (numbers.of[from], numbers.of[to]),
        is_sum: *is_sum,
    };
    Ok(Some(TreeView {
        block,
        nodes: numbers.names(&prepared.topology),
        levels: numbers.levels(&prepared.topology),
        packets: packets.iter().map(packet).collect(),
        is_full: trace.is_full,
    }))
}
