//! From a workload on hosts to what the simulator runs: a lane for each group and each way in which it communicates, and one for each pair of
//! ranks of which one sends to the other.
//!
//! A group's system does what it offers. All else its hosts do by messages ([`exchange`](fanin_systems::ExchangeParameters)); results say which. Lengths are those of
//! vectors: where a share of one for each host is not a whole number of elements, it is rounded up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use fanin_core::{DType, Duration, ElementOp, Instant, NodeId, Operator};
use fanin_sim::programs::{Call, Lane, LaneKind, LaneOperation, Program, ProgramJob, ProgramRank, Step};
use fanin_systems::pods::has_own;
use fanin_systems::{System, check_collective};
use fanin_workload::flat::{Flat, Step as Node, node_name};
use fanin_workload::{Collective, CollectiveKind as Kind, Transfer};

use super::local::Links;

use crate::jobs::PreparedJob;
use crate::jobs::collective::asked_by;
use crate::reading::{PlanError, Refuse};
use crate::schema::Source;

/// Steps of all ranks together at most.
const STEPS_MAX: usize = 1 << 25;
/// Bytes of an element of a transfer.
const TRANSFER_ELEMENT: DType = DType::U8;

/// A job with a workload, as the simulator runs it.
#[derive(Clone, Debug)]
pub struct PreparedProgram {
    /// As the plan has it.
    pub head: PreparedJob,
    /// The workload.
    pub source: Arc<Source>,
    /// What is run.
    pub job: ProgramJob,
    /// Of each lane: what it is.
    pub lanes: Vec<LaneName>,
    /// By rank: its program.
    pub program_of: Vec<u32>,
    /// When it comes.
    pub arrives: Duration,
}

/// What a lane is.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LaneName {
    /// Index of the kind of groups, and which of them; `None` for transfers.
    pub group: Option<(u32, u32)>,
    /// Of transfers: the sender and the receiver, as ranks.
    pub pair: Option<(u32, u32)>,
    /// The name of the system that does it; `local` inside of a host.
    pub ran: &'static str,
}

/// What becomes of a job with a workload.
pub struct Lanes {
    /// The job.
    pub program: PreparedProgram,
    /// The jobs of the network that do its lanes.
    pub jobs: Vec<PreparedJob>,
}

/// Which lane does a collective: kind of groups, which of them, and whether it is the group's own system.
type Key = (u32, u32, bool);

struct Builder<'a> {
    refuse: &'a Refuse<'a>,
    head: &'a PreparedJob,
    source: &'a Source,
    links: Links,
    scale: f64,
    /// Bytes of an element of each kind of groups.
    element_bytes: Vec<u64>,
    lanes: Vec<Lane>,
    names: Vec<LaneName>,
    of_group: BTreeMap<Key, u32>,
    of_pair: BTreeMap<(u32, u32), u32>,
    jobs: Vec<PreparedJob>,
    /// By sender, receiver and tag: transfers that were sent, in order.
    sent: BTreeMap<(u32, u32, u32), VecDeque<(u32, u32)>>,
    first_job: usize,
}

/// Makes lanes of a job. `first_job` is the number of the first job of the network that it may have, `start` when each rank begins.
///
/// # Errors
/// [`PlanError`] where groups and hosts do not fit together, or a system refuses.
pub fn lanes(
    refuse: &Refuse<'_>,
    (head, source): (&PreparedJob, &Arc<Source>),
    first_job: usize,
    start: &[Instant],
    arrives: Duration,
) -> Result<Lanes, PlanError> {
    let (workload, flats) = (&source.workload, &source.checked.flats);
    let program_of: Vec<u32> = workload.program_of_ranks().into_iter().map(|program| program.unwrap_or(0)).collect();
    let steps = program_of.iter().fold(0usize, |sum, program| sum.saturating_add(flats[*program as usize].nodes.len()));
    let path = format!("jobs[{}].workload", head.entry);
    if steps > STEPS_MAX {
        return Err(refuse.at(&path, format!("at most {STEPS_MAX} nodes of all ranks together; it has {steps}")));
    }
    let common = &head.settings.common;
    let mut builder = Builder {
        refuse,
        head,
        source,
        links: Links { rate: common.local_rate.0, latency: common.local_latency.0 },
        scale: common.scale.0,
        element_bytes: element_bytes(source),
        lanes: Vec::new(),
        names: Vec::new(),
        of_group: BTreeMap::new(),
        of_pair: BTreeMap::new(),
        jobs: Vec::new(),
        sent: BTreeMap::new(),
        first_job,
    };
    let mut calls: Vec<Vec<Option<Call>>> = Vec::with_capacity(program_of.len());
    for (rank, program) in (0..).zip(&program_of) {
        calls.push(builder.calls(rank, &flats[*program as usize])?);
    }
    builder.receive(&mut calls, &program_of)?;
    let programs = flats.iter().enumerate().map(|(number, flat)| builder.program(number, flat)).collect::<Result<_, _>>()?;
    let ranks = program_of.iter().zip(calls).zip(start).enumerate();
    let ranks = ranks.map(|(rank, ((program, calls), start))| ProgramRank {
        program: *program,
        host: builder.host(rank as u32).0,
        start: *start,
        calls: calls.into_iter().flatten().collect(),
    });
    let job = ProgramJob {
        programs,
        ranks: ranks.collect(),
        lanes: builder.lanes,
        compute_spread: common.compute_spread.0,
        crash: common.crash.map(|at| Instant::ZERO + at.0),
        seed: first_job as u64,
    };
    let (lanes, jobs) = (builder.names, builder.jobs);
    let program = PreparedProgram { head: head.clone(), source: source.clone(), job, lanes, program_of, arrives };
    Ok(Lanes { program, jobs })
}

/// The shortest element of each kind of groups: vectors of all types are counted in it.
fn element_bytes(source: &Source) -> Vec<u64> {
    let mut bytes = vec![8; source.workload.groups.len()];
    for node in source.checked.flats.iter().flat_map(|flat| &flat.nodes) {
        if let Node::Collective(Collective { group, element, kind, .. }, _) = &node.step
            && *kind != Kind::Barrier
        {
            let shortest = &mut bytes[*group as usize];
            *shortest = (*shortest).min(element.bytes());
        }
    }
    bytes
}

/// Bytes of a vector where all are scaled: one at least.
pub(crate) fn scaled(bytes: u64, scale: f64) -> u64 {
    if scale == 1.0 || bytes == 0 { bytes } else { ((bytes as f64 * scale).round() as u64).max(1) }
}

fn dtype_of(element_bytes: u64) -> DType {
    match element_bytes {
        1 => DType::U8,
        2 => DType::BF16,
        4 => DType::F32,
        _ => DType::F64,
    }
}

impl Builder<'_> {
    fn host(&self, rank: u32) -> NodeId {
        self.head.hosts[self.source.workload.hosts.of(rank) as usize]
    }

    fn scaled(&self, bytes: u64) -> u64 {
        scaled(bytes, self.scale)
    }

    fn system_of(&self, group: u32) -> System {
        let name = &*self.source.workload.groups[group as usize].name;
        self.head.settings.groups.iter().find(|(of, _)| of == name).map_or(self.head.system, |(_, system)| *system)
    }

    fn error(&self, group: u32, expected: String) -> PlanError {
        let name = &*self.source.workload.groups[group as usize].name;
        let path = format!("jobs[{}].groups.{name}", self.head.entry);
        let what = format!("{path} = {:?}: expected {expected}", self.system_of(group).name());
        PlanError::new(self.refuse.file, what).at(self.refuse.origin(&path))
    }

    /// The calls of a rank's program, in the order of its nodes; receives are put in later, when all sends are known.
    fn calls(&mut self, rank: u32, flat: &Flat) -> Result<Vec<Option<Call>>, PlanError> {
        let mut calls = Vec::new();
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        // By kind of groups, and whether it is the group's own system.
        let mut known: BTreeMap<(u32, bool), (u32, u32)> = BTreeMap::new();
        for node in &flat.nodes {
            match &node.step {
                Node::Compute(_) => {}
                Node::Collective(collective, _) => {
                    let key = (collective.group, self.is_own(collective.group, collective));
                    let (lane, host) = match known.get(&key) {
                        Some(found) => *found,
                        None => *known.entry(key).or_insert(self.lane_of(rank, key)?),
                    };
                    let count = counts.entry(lane).or_default();
                    if *count as usize == self.lanes[lane as usize].operations.len() {
                        let operation = self.group_operation(lane, collective)?;
                        self.lanes[lane as usize].operations.push(operation);
                    }
                    calls.push(Some(Call { lane, host, operation: *count, sends: false }));
                    *count += 1;
                }
                Node::Send(transfer) => calls.push(Some(self.send(rank, transfer))),
                Node::Receive(_) => calls.push(None),
            }
        }
        Ok(calls)
    }

    /// The lane of a collective, which is made where there is none, and the rank's host in it.
    fn lane_of(&mut self, rank: u32, (group, own): (u32, bool)) -> Result<(u32, u32), PlanError> {
        let place = self.source.checked.places[group as usize][rank as usize];
        let instance = place.map_or(0, |place| place.instance);
        let lane = match self.of_group.get(&(group, instance, own)) {
            Some(lane) => *lane,
            None => self.add_group((group, instance, own))?,
        };
        let hosts = self.hosts_of(group, instance);
        let host = self.host(rank);
        let at = hosts.iter().position(|(other, _)| *other == host).unwrap_or(0);
        Ok((lane, at as u32))
    }

    /// Whether a group's system has a way of its own for a collective.
    fn is_own(&self, group: u32, collective: &Collective) -> bool {
        has_own(&self.system_of(group), asked_by(collective.kind, 0, 1))
    }

    /// The hosts of a group with how many members each has, in the order of their numbers, in which neighbours are close to each other: so NCCL
    /// orders its rings.
    fn hosts_of(&self, group: u32, instance: u32) -> Vec<(NodeId, u32)> {
        let members = self.source.workload.groups[group as usize].members.of(instance);
        let mut hosts: Vec<(NodeId, u32)> = Vec::new();
        for host in members.into_iter().map(|rank| self.host(rank)) {
            match hosts.iter_mut().find(|(other, _)| *other == host) {
                Some((_, count)) => *count += 1,
                None => hosts.push((host, 1)),
            }
        }
        hosts.sort_unstable();
        hosts
    }

    fn add_group(&mut self, (group, instance, own): Key) -> Result<u32, PlanError> {
        let hosts = self.hosts_of(group, instance);
        let system = if own { self.system_of(group) } else { System::exchange() };
        let (job, ran) = match &hosts[..] {
            [_] => (None, "local"),
            _ => {
                let nodes = hosts.iter().map(|(host, _)| *host).collect();
                (Some(self.add_job(system, nodes, dtype_of(self.element_bytes[group as usize]))?), system.name())
            }
        };
        let lane = self.lanes.len() as u32;
        let counts = hosts.iter().map(|(_, count)| *count).collect();
        self.lanes.push(Lane { kind: LaneKind::Group, job, hosts: counts, operations: Vec::new() });
        self.names.push(LaneName { group: Some((group, instance)), pair: None, ran });
        self.of_group.insert((group, instance, own), lane);
        Ok(lane)
    }

    fn add_job(&mut self, system: System, hosts: Vec<NodeId>, dtype: DType) -> Result<u16, PlanError> {
        let number = self.first_job + self.jobs.len();
        let path = format!("jobs[{}].workload", self.head.entry);
        let number = u16::try_from(number).ok().filter(|number| *number < 60_000);
        let number = number.ok_or_else(|| self.refuse.at(&path, "at most 60000 groups and pairs of ranks, of all jobs together"))?;
        let servers = if system.servers() > 0 { self.head.servers.clone() } else { Vec::new() };
        let op = ElementOp { dtype, operator: Operator::Sum };
        self.jobs.push(PreparedJob { system, hosts, servers, op, indices: None, ..self.head.clone() });
        Ok(number)
    }

    /// An operation of a group's lane.
    fn group_operation(&self, lane: u32, collective: &Collective) -> Result<LaneOperation, PlanError> {
        let Lane { hosts, .. } = &self.lanes[lane as usize];
        let (count, group) = (hosts.len() as u32, collective.group);
        let (members, all) = (hosts[0], hosts.iter().sum::<u32>());
        let kind = collective.kind;
        if count > 1
            && matches!(kind, Kind::ReduceScatter | Kind::AllGather | Kind::AllToAll)
            && hosts.iter().any(|other| *other != members)
        {
            let expected = format!("as many members on each host for {kind}, whose shares are equal: they are {hosts:?}");
            return Err(self.error(group, expected));
        }
        let most = hosts.iter().copied().max().unwrap_or(1);
        let bytes = if kind == Kind::Barrier { 0 } else { self.scaled(collective.bytes) };
        let element_bytes = self.element_bytes[group as usize];
        let (before, after) = self.links.around(kind, bytes, most, all);
        let root = self.root_host(collective, lane);
        let asked = asked_by(kind, root, count);
        let brought = if kind == Kind::AllToAll { bytes.saturating_mul(u64::from(members)) } else { bytes };
        let share = |parts: u32| brought.div_ceil(element_bytes).div_ceil(u64::from(parts));
        let elements = match kind {
            Kind::Barrier => 0,
            Kind::AllReduce | Kind::Broadcast | Kind::Reduce => share(1),
            Kind::ReduceScatter | Kind::AllGather => share(count) * u64::from(count),
            Kind::AllToAll => share(count).saturating_mul(u64::from(count) * u64::from(count)),
        };
        if count > 1 {
            let system =
                if self.names[lane as usize].ran == System::exchange().name() { System::exchange() } else { self.system_of(group) };
            let payload = self.head.settings.common.payload.0;
            check_collective(&system, asked, count, (elements.saturating_mul(element_bytes), element_bytes, payload)).map_err(|error| {
                self.error(group, format!("{} of {bytes} bytes, where {} is {}", error.expected, error.field, error.value))
            })?;
        }
        Ok(LaneOperation { kind: asked, elements, before, after })
    }

    /// Which host of a lane has the root of a collective.
    fn root_host(&self, collective: &Collective, lane: u32) -> u32 {
        let Some((group, instance)) = self.names[lane as usize].group else { return 0 };
        let members = self.source.workload.groups[group as usize].members.of(instance);
        let Some(root) = members.get(collective.root as usize).map(|rank| self.host(*rank)) else { return 0 };
        self.hosts_of(group, instance).iter().position(|(host, _)| *host == root).unwrap_or(0) as u32
    }

    fn send(&mut self, rank: u32, transfer: &Transfer) -> Call {
        let peer = transfer.peer.of(rank, self.source.workload.ranks).unwrap_or(rank);
        let lane = match self.of_pair.get(&(rank, peer)) {
            Some(lane) => *lane,
            None => {
                let lane = self.lanes.len() as u32;
                let hosts = if self.host(rank) == self.host(peer) { vec![2] } else { vec![1, 1] };
                // The job is made when all is known to fit.
                self.lanes.push(Lane { kind: LaneKind::Transfers, job: None, hosts, operations: Vec::new() });
                self.names.push(LaneName { group: None, pair: Some((rank, peer)), ran: "local" });
                self.of_pair.insert((rank, peer), lane);
                lane
            }
        };
        let (bytes, links) = (self.scaled(transfer.bytes).max(1), self.links);
        let operations = &mut self.lanes[lane as usize];
        let before = if operations.hosts.len() == 1 { links.transfer(bytes) } else { Duration::ZERO };
        let operation = operations.operations.len() as u32;
        let kind = asked_by(Kind::Broadcast, 0, 2);
        operations.operations.push(LaneOperation { kind, elements: bytes, before, after: Duration::ZERO });
        self.sent.entry((rank, peer, transfer.tag)).or_default().push_back((lane, operation));
        Call { lane, host: 0, operation, sends: true }
    }

    /// Puts receives in, and makes the jobs of transfers.
    fn receive(&mut self, calls: &mut [Vec<Option<Call>>], program_of: &[u32]) -> Result<(), PlanError> {
        let workload = &self.source.workload;
        for (rank, program) in (0..).zip(program_of) {
            let nodes = self.source.checked.flats[*program as usize].nodes.iter();
            let own = nodes.filter(|node| !matches!(node.step, Node::Compute(_)));
            for (node, call) in own.zip(&mut calls[rank as usize]) {
                let Node::Receive(transfer) = &node.step else { continue };
                let peer = transfer.peer.of(rank, workload.ranks).unwrap_or(rank);
                let sent = self.sent.get_mut(&(peer, rank, transfer.tag)).and_then(VecDeque::pop_front);
                let Some((lane, operation)) = sent else {
                    let path = format!("jobs[{}].workload", self.head.entry);
                    let name = node_name(workload, &workload.programs[*program as usize], node.written);
                    return Err(self.refuse.at(&path, format!("a send of rank {peer} for what rank {rank} receives at {name}")));
                };
                let host = self.lanes[lane as usize].hosts.len() as u32 - 1;
                *call = Some(Call { lane, host, operation, sends: false });
            }
        }
        for ((from, to), lane) in std::mem::take(&mut self.of_pair) {
            if self.lanes[lane as usize].hosts.len() == 2 {
                let hosts = vec![self.host(from), self.host(to)];
                self.lanes[lane as usize].job = Some(self.add_job(System::exchange(), hosts, TRANSFER_ELEMENT)?);
                self.names[lane as usize].ran = System::exchange().name();
            }
        }
        Ok(())
    }

    /// A program as the simulator runs it. Collectives of one lane go in the order of the list, whatever else they wait for.
    fn program(&self, number: usize, flat: &Flat) -> Result<Arc<Program>, PlanError> {
        let mut call = 0;
        let mut last: BTreeMap<(u32, bool), u32> = BTreeMap::new();
        let mut before = vec![None; flat.nodes.len()];
        let mut steps = Vec::with_capacity(flat.nodes.len());
        for (index, node) in (0..).zip(&flat.nodes) {
            steps.push(match &node.step {
                Node::Compute(time) => Step::Compute(Duration::from_ps((time.as_ps() as f64 * self.scale).round() as u64)),
                _ => {
                    call += 1;
                    Step::Call(call - 1)
                }
            });
            if let Node::Collective(collective, _) = &node.step {
                before[index as usize] = last.insert((collective.group, self.is_own(collective.group, collective)), index);
            }
        }
        self.check_order(number, flat, &before)?;
        Ok(Arc::new(Program::new(steps, &|step| flat.after(step).to_vec())))
    }

    /// Whether a collective waits for one of its lane that comes behind it: they would wait for each other for ever.
    fn check_order(&self, number: usize, flat: &Flat, before: &[Option<u32>]) -> Result<(), PlanError> {
        let mut waits: Vec<u32> =
            (0..flat.nodes.len()).map(|node| flat.after(node).len() as u32 + u32::from(before[node].is_some())).collect();
        let mut behind: Vec<Option<u32>> = vec![None; flat.nodes.len()];
        (0..).zip(before).for_each(|(node, before)| before.iter().for_each(|before| behind[*before as usize] = Some(node)));
        let successors = flat.successors();
        let mut ready: Vec<u32> = (0..flat.nodes.len() as u32).filter(|node| waits[*node as usize] == 0).collect();
        let mut done = 0;
        while let Some(node) = ready.pop() {
            done += 1;
            for next in successors.of(node as usize).iter().copied().chain(behind[node as usize]) {
                waits[next as usize] -= 1;
                if waits[next as usize] == 0 {
                    ready.push(next);
                }
            }
        }
        if done == flat.nodes.len() {
            return Ok(());
        }
        let stuck = (0..flat.nodes.len()).find(|node| waits[*node] > 0 && before[*node].is_some()).unwrap_or(0);
        let workload = &self.source.workload;
        let name = node_name(workload, &workload.programs[number], flat.nodes[stuck].written);
        let path = format!("jobs[{}].workload", self.head.entry);
        let expected =
            format!("collectives of a group in an order in which they can run: {name} waits for one of its group that comes behind it");
        Err(self.refuse.at(&path, expected))
    }
}
