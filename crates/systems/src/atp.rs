//! ATP: its parameters, and what A2TP has of it: how workers and servers of a job are laid on a network, and the switches that jobs of both
//! share.

use std::collections::{BTreeMap, BTreeSet};

use fanin_core::{
    Address, Duration, ElementOp, FlowLabel, JobId, JobNodes, NetworkMap, NodeId, Payload, Placed, Rank, SharedNode, Suspect,
};
use fanin_protocols::atp::{AtpRounds, AtpWindow, AtpWindowConfig};
use fanin_protocols::shared::aggregation::{
    AGGREGATORS_MAX, FixedScale, JobAtSwitch, Nets, ServerAtSwitch, ServerConfig, SwitchConfig, WINDOW_MAX, WORKERS_MAX, WorkerConfig,
};
use fanin_protocols::shared::real::Real;
use serde::{Deserialize, Serialize};

use crate::aggregation::{Aggregation, FIXED_EXPONENT, SafetyNets};
use crate::any::AnyNode;
use crate::build::reliability;
use crate::campaign::{JobSize, Load};
use crate::config::{BuildError, JobSpec, UNLIMITED};
use crate::facts::{AggregatorUse, Facts, KeyUse, KeysOf, Nodes};
use crate::layout::leaf_of;
use crate::places::Places;
use crate::system::System;

pub(crate) use fanin_protocols::atp::{AtpServer, AtpSwitch, AtpWorker};
pub(crate) use fanin_wire::atp::{AtpHeader, LAYOUT};

/// The parameters of ATP: aggregators that jobs share, with a server for each job behind them (a2tp 1 to 9).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct AtpParameters {
    /// How many of the switches next to workers, or to the server, aggregate: those with the most workers of the job first, then those with the
    /// lowest numbers; all others only forward. 0 makes Rina a ring, and leaves all sums of ATP to the server.
    ///
    /// Default: all.
    pub aggregating: u32,
    /// Aggregators of each switch next to hosts, for all jobs of both systems together; or `network.aggregators` (`a2tp 3`).
    pub aggregators: u32,
    /// The initial window in packets; 0 for the default.
    ///
    /// Default: half of `window`.
    pub initial: u32,
    /// How much the window (ps: at each server) grows per round trip; marks (the network's `ecn`) and timeouts halve it.
    pub increase_bytes: u32,
    /// Another job may take an aggregator after this time of silence.
    pub reclaim_ps: u64,
    /// How stuck fragments in a switch are released: the server has them flushed; `"paper"`: workers retransmit them.
    pub nets: SafetyNets,
    /// 32-bit floats travel as integers with one scale; packets with larger values go as floats through the server (`a2tp 5.8`).
    pub fixed_point: bool,
    /// With `fixed_point`: the share of packets whose values are too large at one worker.
    pub overflow: f64,
}

impl Default for AtpParameters {
    fn default() -> Self {
        AtpParameters {
            aggregating: UNLIMITED,
            aggregators: 450,
            initial: 0,
            increase_bytes: 1_500,
            reclaim_ps: 10_000_000_000,
            nets: SafetyNets::All,
            fixed_point: false,
            overflow: 0.0,
        }
    }
}

impl System {
    /// ATP with the aggregators of A2TP's testbed.
    pub fn atp() -> Self {
        System::Atp(AtpParameters::default())
    }
}

impl Facts for AtpParameters {
    fn limit_aggregating(&mut self, count: u32) {
        self.aggregating = count;
    }

    fn servers(&self) -> u32 {
        1
    }

    fn obeys_marks(&self) -> bool {
        true
    }

    fn fixed_point(&self) -> bool {
        self.fixed_point
    }

    fn expect_real_elements(&mut self) {
        self.overflow = 0.0;
    }

    fn overflow(&self) -> f64 {
        self.overflow
    }

    // When a job has ended its switches are told, and keep nothing of it.
    fn leaves_nothing(&self, _reliable: bool) -> bool {
        true
    }

    fn switch_slots(&self, _window: u32) -> u64 {
        u64::from(self.aggregators)
    }

    fn shares_slots(&self) -> bool {
        true
    }

    fn slots_key(&self) -> &'static str {
        "aggregators"
    }

    fn aggregators(&self) -> Option<AggregatorUse> {
        Some(AggregatorUse::Shares(&["aggregators"]))
    }

    fn set_aggregators(&mut self, count: u32) {
        self.aggregators = count;
    }

    fn idle_keys(&self, _job: &KeysOf) -> Vec<KeyUse> {
        idle_keys(self.aggregating, self.fixed_point)
    }

    fn aggregation(&self) -> Option<Aggregation> {
        let AtpParameters { aggregating, aggregators, initial, reclaim_ps, nets, fixed_point, overflow, .. } = *self;
        let shares_collisions = false;
        Some(Aggregation { aggregating, aggregators, initial, reclaim_ps, nets, fixed_point, overflow, shares_collisions })
    }

    // All contributions to a fragment may meet at the link of the server.
    fn load(&self, job: &JobSize) -> Load {
        Load::of(job, job.workers)
    }
}

// A2TP's campaign draws both.
impl Nodes for AtpParameters {
    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        let placed = places(spec, map)?;
        let (window, servers) = (window_of_server(spec), placed.all.len());
        let increase = f64::from(self.increase_bytes) / f64::from(spec.payload_bytes);
        let first = initial(self.initial.div_ceil(servers as u32), window);
        let windows = AtpWindowConfig { window, initial: first, increase: Real::new(increase / servers as f64) };
        let worker = |configs: Vec<WorkerConfig<P::Op>>| {
            AnyNode::AtpWorker(AtpWorker::to_servers(configs.into_iter().map(|config| (config, AtpWindow::new(windows)))))
        };
        let server = |config| AnyNode::AtpServer(AtpServer::new(config, AtpRounds::new(window)));
        nodes::<P>(spec, map, &placed, worker, server)
    }

    fn shared<P: Payload + ?Sized>(
        specs: &[JobSpec<'_, P::Op>],
        map: &NetworkMap,
    ) -> Result<Vec<SharedNode<AnyNode<P>>>, (usize, BuildError)> {
        shared(specs, map)
    }

    fn admit<P: Payload + ?Sized>(
        node: &mut AnyNode<P>,
        switch: NodeId,
        spec: &JobSpec<'_, P::Op>,
        map: &NetworkMap,
    ) -> Result<bool, BuildError> {
        match node {
            AnyNode::AtpSwitch(node) => admit(node, switch, spec, map),
            _ => Ok(false),
        }
    }

    fn has_of<P: Payload + ?Sized>(node: &AnyNode<P>, job: JobId) -> bool {
        matches!(node, AnyNode::AtpSwitch(switch) if switch.in_use_by(job) > 0)
    }

    fn adds_integers(node: &mut AnyNode<[u8]>) {
        if let AnyNode::AtpServer(server) = node {
            server.set_fixed_op(ElementOp::I32_SUM.into());
        }
    }
}

/// Keys that some values of others make meaningless, of both systems.
pub(crate) fn idle_keys(aggregating: u32, fixed_point: bool) -> Vec<KeyUse> {
    let none = "with aggregating = 0";
    vec![
        ("overflow", fixed_point, "without fixed_point = true"),
        ("aggregators", aggregating > 0, none),
        ("reclaim", aggregating > 0, none),
    ]
}

fn flow(job: JobId) -> FlowLabel {
    FlowLabel(u32::from(job.0))
}

fn check<Op>(spec: &JobSpec<'_, Op>, parameters: &Aggregation) -> Result<(), BuildError> {
    if spec.hosts.len() > WORKERS_MAX as usize {
        return Err(BuildError::new("workers", spec.hosts.len(), format!("at most {WORKERS_MAX}, which packets can name")));
    }
    if spec.window > WINDOW_MAX {
        return Err(BuildError::new("window", spec.window, format!("1 to {WINDOW_MAX} packets")));
    }
    if !(1..=AGGREGATORS_MAX).contains(&parameters.aggregators) {
        return Err(BuildError::new("aggregators", parameters.aggregators, format!("1 to {AGGREGATORS_MAX}")));
    }
    if !spec.reliable {
        let name = spec.system.name();
        return Err(BuildError::new("reliable", false, format!("true: without timers {name} can wait for ever after a collision")));
    }
    if parameters.fixed_point && spec.element_bytes != 4 {
        return Err(BuildError::new("fixed_point", true, "false, unless elements are 32-bit floats"));
    }
    share("overflow", parameters.overflow)?;
    if parameters.overflow > 0.0 && !parameters.fixed_point {
        return Err(BuildError::new("overflow", parameters.overflow, "0 without fixed_point"));
    }
    Ok(())
}

pub(crate) fn share(field: &str, value: f64) -> Result<(), BuildError> {
    if (0.0..=1.0).contains(&value) { Ok(()) } else { Err(BuildError::new(field, value, "a share from 0 to 1")) }
}

/// The job's window, divided among its servers: a packet at each at least.
pub(crate) fn window_of_server<Op>(spec: &JobSpec<'_, Op>) -> u32 {
    spec.window.div_ceil(spec.servers.len().max(1) as u32)
}

/// The first window: half of the longest where none is given, as if that were twice what the network holds (gap 7).
pub(crate) fn initial(given: u32, window: u32) -> u32 {
    if given == 0 { window.div_ceil(2) } else { given.min(window) }
}

/// Where a job of these systems aggregates.
pub(crate) struct Servers {
    aggregation: Aggregation,
    /// By number.
    all: Vec<Places>,
}

/// Where a job aggregates, once it is known to be one that can.
pub(crate) fn places<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap) -> Result<Servers, BuildError> {
    let Some(aggregation) = spec.system.facts().aggregation() else {
        return Err(BuildError::new("system", spec.system.name(), "atp or a2tp"));
    };
    check(spec, &aggregation)?;
    Ok(Servers { all: Places::all(spec, map, aggregation.aggregating)?, aggregation })
}

/// Workers and servers of a job, as its system makes them; its switches are [`shared`].
pub(crate) fn nodes<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    Servers { all: servers, aggregation }: &Servers,
    worker: impl Fn(Vec<WorkerConfig<P::Op>>) -> AnyNode<P>,
    server: impl Fn(ServerConfig<P::Op>) -> AnyNode<P>,
) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    let mut workers = Vec::with_capacity(spec.hosts.len());
    for (rank, &host) in spec.hosts.iter().enumerate() {
        let config = |number: u8| worker_config(spec, map, aggregation, servers, (Rank(rank as u32), host, number));
        let configs = (0..servers.len() as u8).map(config).collect::<Result<_, _>>()?;
        workers.push(Placed { at: Address::worker(host), node: worker(configs) });
    }
    if workers.len() == 1 {
        return Ok(JobNodes { workers, others: Vec::new() });
    }
    let server = |(number, places): (usize, &Places)| {
        let config = server_config(spec, aggregation, places, number as u8);
        Placed { at: places.server, node: server(config) }
    };
    Ok(JobNodes { workers, others: servers.iter().enumerate().map(server).collect() })
}

fn server_config<Op: Clone>(spec: &JobSpec<'_, Op>, parameters: &Aggregation, places: &Places, number: u8) -> ServerConfig<Op> {
    ServerConfig {
        job: spec.id,
        workers: spec.hosts.iter().map(|&host| Address::worker(host)).collect(),
        bits: places.bits.clone(),
        switches: places.by_number(),
        number,
        at: places.server,
        below: match places.has_second_level() {
            true => vec![(Address::switch(places.server_switch), places.bits.iter().copied().collect())],
            false => places.below(),
        },
        op: spec.op.clone(),
        fixed_op: spec.op.clone(),
        block_bytes: spec.payload_bytes,
        window: window_of_server(spec),
        aggregators: parameters.aggregators,
        nets: nets(parameters.nets),
        reliability: reliability(spec),
        flow: flow(spec.id),
    }
}

fn nets(nets: SafetyNets) -> Nets {
    match nets {
        SafetyNets::All => Nets::All,
        SafetyNets::Paper => Nets::Paper,
    }
}

fn worker_config<Op: Clone>(
    spec: &JobSpec<'_, Op>,
    map: &NetworkMap,
    parameters: &Aggregation,
    servers: &[Places],
    (rank, host, number): (Rank, NodeId, u8),
) -> Result<WorkerConfig<Op>, BuildError> {
    let (leaf, places) = (leaf_of(map, host)?.node, &servers[usize::from(number)]);
    // Nothing is heard when the server's host is dead: the worker there is suspected, or what a server of its own hangs on, as of
    // parameter servers.
    let suspect = match spec.servers.get(usize::from(number)) {
        None if rank.0 != 0 => Suspect::Rank(Rank(0)),
        None => Suspect::Switch(leaf),
        Some(&server) => Suspect::Switch(leaf_of(map, server)?.node),
    };
    Ok(WorkerConfig {
        job: spec.id,
        rank,
        bit: places.bit(rank),
        workers: spec.hosts.len() as u32,
        op: spec.op.clone(),
        element_bytes: spec.element_bytes,
        block_elements: spec.payload_bytes / spec.element_bytes,
        window: window_of_server(spec),
        number,
        servers: servers.len() as u8,
        aggregators: parameters.aggregators,
        fan_in: places.fan_in(leaf),
        server: places.server,
        suspect,
        nets: nets(parameters.nets),
        reliability: reliability(spec),
        flow: flow(spec.id),
        fixed_point: parameters
            .fixed_point
            .then_some(FixedScale { exponent: FIXED_EXPONENT, too_large: (parameters.overflow * 65_536.0) as u32 }),
    })
}

/// What a job tells the switches that it shares with others: with each of them, what it needs there.
fn at_switches<Op: Clone>(spec: &JobSpec<'_, Op>, map: &NetworkMap) -> Result<Vec<(NodeId, JobAtSwitch<Op>)>, BuildError> {
    if spec.hosts.len() < 2 {
        return Ok(Vec::new());
    }
    let aggregation = spec.system.facts().aggregation();
    let servers = Places::all(spec, map, aggregation.map_or(UNLIMITED, |aggregation| aggregation.aggregating))?;
    let switches: BTreeSet<NodeId> = servers.iter().flat_map(|places| places.switches.keys().copied()).collect();
    let entry = |switch: NodeId| JobAtSwitch {
        job: spec.id,
        op: spec.op.clone(),
        block_bytes: spec.payload_bytes,
        size: spec.hosts.len() as u32,
        flow: flow(spec.id),
        shares_collisions: aggregation.is_some_and(|aggregation| aggregation.shares_collisions),
        servers: servers.iter().map(|places| at_switch(places, switch)).collect(),
    };
    Ok(switches.into_iter().map(|switch| (switch, entry(switch))).collect())
}

/// What a switch must know of one server. Where the switch aggregates for others only, all that comes for this one passes.
fn at_switch(places: &Places, switch: NodeId) -> ServerAtSwitch {
    let is_servers = switch == places.server_switch;
    let Some(workers) = places.switches.get(&switch) else {
        return ServerAtSwitch {
            number: 0,
            workers: Vec::new(),
            elsewhere: Vec::new(),
            server: places.server,
            server_switch: NodeId(u32::MAX),
            above: places.server,
        };
    };
    ServerAtSwitch {
        number: places.number(switch),
        workers: workers.iter().map(|(port, rank)| (*port, places.bit(*rank))).collect(),
        elsewhere: if is_servers { places.below() } else { Vec::new() },
        server: places.server,
        server_switch: places.server_switch,
        above: if is_servers || !places.has_second_level() { places.server } else { Address::switch(places.server_switch) },
    }
}

/// At each switch a node for all jobs that use its aggregators.
///
/// # Errors
/// The job's place in `specs` and what is wrong with it: jobs that share switches must agree about how many aggregators these have.
fn shared<P: Payload + ?Sized>(specs: &[JobSpec<'_, P::Op>], map: &NetworkMap) -> Result<Vec<SharedNode<AnyNode<P>>>, (usize, BuildError)> {
    let mut switches: BTreeMap<NodeId, Vec<JobAtSwitch<P::Op>>> = BTreeMap::new();
    let (mut aggregators, mut reclaim_ps) = (None, 0);
    for (index, spec) in specs.iter().enumerate() {
        let Some(parameters) = spec.system.facts().aggregation() else { continue };
        let known = *aggregators.get_or_insert(parameters.aggregators);
        if known != parameters.aggregators {
            let expected = format!("{known}, as in the jobs before it: they share the aggregators of their switches");
            return Err((index, BuildError::new("aggregators", parameters.aggregators, expected)));
        }
        reclaim_ps = reclaim_ps.max(parameters.reclaim_ps);
        for (switch, entry) in at_switches(spec, map).map_err(|error| (index, error))? {
            switches.entry(switch).or_default().push(entry);
        }
    }
    let node = |(switch, jobs): (NodeId, Vec<JobAtSwitch<P::Op>>)| {
        let ops: Vec<P::Op> = jobs.iter().map(|job| job.op.clone()).collect();
        let block_bytes = jobs.iter().map(|job| job.block_bytes).max().unwrap_or(0);
        let config = SwitchConfig {
            node: switch,
            aggregators: aggregators.unwrap_or(1),
            reclaim_after: Duration::from_ps(reclaim_ps),
            largest: P::largest(&ops, block_bytes as usize).clone(),
            block_bytes,
            jobs,
        };
        let jobs = config.jobs.iter().map(|job| job.job).collect();
        SharedNode { placed: Placed { at: Address::switch(switch), node: AnyNode::AtpSwitch(AtpSwitch::new(config)) }, jobs }
    };
    Ok(switches.into_iter().map(node).collect())
}

/// As [`AnyNode::admit`], at a switch of ATP and A2TP.
pub(crate) fn admit<P: Payload + ?Sized>(
    node: &mut AtpSwitch<P>,
    switch: NodeId,
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
) -> Result<bool, BuildError> {
    let Some(parameters) = spec.system.facts().aggregation() else { return Ok(false) };
    let entry = at_switches(spec, map)?.into_iter().find(|(at, _)| *at == switch);
    let Some((_, entry)) = entry else { return Ok(false) };
    let known = node.aggregators();
    if parameters.aggregators as usize != known {
        return Err(BuildError::new("aggregators", parameters.aggregators, format!("{known}, as in the jobs that run: they share them")));
    }
    if entry.block_bytes > node.block_bytes() {
        let expected = format!("at most {}, the length of the aggregators that the first job has brought", node.block_bytes());
        return Err(BuildError::new("payload", entry.block_bytes, expected));
    }
    node.admit(entry);
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::a2tp::A2tpParameters;
    use crate::any::tests::comes_back;
    use fanin_core::{Length, Role};
    use fanin_wire::atp::FragmentId;

    const HOSTS: [NodeId; 4] = [NodeId(0), NodeId(1), NodeId(2), NodeId(3)];

    fn spec<'a>(id: u16, hosts: &'a [NodeId], servers: &'a [NodeId], system: System) -> JobSpec<'a, ()> {
        JobSpec {
            id: JobId(id),
            hosts,
            servers,
            system,
            op: (),
            element_bytes: 4,
            payload_bytes: 248,
            window: 64,
            reliable: true,
            rto_initial: Duration::from_ms(1),
            rto_min: Duration::from_us(100),
            patience: Duration::from_ms(100),
            seed: 0,
        }
    }

    /// Two leaves of three hosts under a spine.
    fn map() -> NetworkMap {
        let mut map = NetworkMap::new(6, &[1, 1, 2]);
        for host in 0..6 {
            map.join(NodeId(host), NodeId(6 + host / 3));
        }
        map.join(NodeId(6), NodeId(8));
        map.join(NodeId(7), NodeId(8));
        map
    }

    #[test]
    fn switches_are_shared_by_the_jobs_that_pass_them() {
        let (here, there) = ([NodeId(0), NodeId(1)], [NodeId(2), NodeId(4)]);
        let specs =
            [spec(0, &here, &[NodeId(5)], System::atp()), spec(1, &there, &[], System::a2tp()), spec(2, &here[..1], &[], System::atp())];
        let shared = shared::<Length>(&specs, &map()).unwrap();
        let found: Vec<(u32, Vec<u16>)> =
            shared.iter().map(|node| (node.placed.at.node.0, node.jobs.iter().map(|job| job.0).collect())).collect();
        assert_eq!(found, [(6, vec![0, 1]), (7, vec![0, 1])], "a lone worker needs no switch, and spines do not aggregate");
        let nodes = specs[1].system.nodes::<Length>(&specs[1], &map()).unwrap();
        assert_eq!(nodes.others[0].at, Address { node: NodeId(2), role: Role::Server }, "at the host of rank 0");
    }

    /// Those with most workers aggregate; the server's switch counts those whose packets pass it.
    #[test]
    fn switches_beyond_those_that_aggregate_only_forward() {
        let hosts: Vec<NodeId> = (0..6).filter(|host| *host != 3).map(NodeId).collect();
        for (aggregating, expected) in [(0, &[][..]), (1, &[6]), (2, &[6, 7]), (UNLIMITED, &[6, 7])] {
            for a2tp in [false, true] {
                let system = match a2tp {
                    true => System::A2tp(A2tpParameters { aggregating, ..A2tpParameters::default() }),
                    false => System::Atp(AtpParameters { aggregating, ..AtpParameters::default() }),
                };
                let shared = shared::<Length>(&[spec(0, &hosts, &[NodeId(3)], system)], &map()).unwrap();
                assert_eq!(shared.iter().map(|node| node.placed.at.node.0).collect::<Vec<_>>(), expected);
            }
        }
    }

    #[test]
    fn a_job_may_come_to_a_switch_later() {
        let (here, there) = ([NodeId(0), NodeId(1)], [NodeId(2), NodeId(4)]);
        let first = spec(0, &here, &[NodeId(5)], System::atp());
        let mut node = shared::<Length>(&[first], &map()).unwrap().remove(0).placed.node;
        let late = spec(7, &there, &[], System::a2tp());
        assert_eq!(node.admit(NodeId(6), &late, &map()), Ok(true));
        let AnyNode::AtpSwitch(switch) = &node else { panic!("a shared switch") };
        assert_eq!(switch.jobs().collect::<Vec<_>>(), [JobId(0), JobId(7)]);
        let ring = spec(8, &there, &[], System::Ring(crate::RingParameters::default()));
        assert_eq!(node.admit(NodeId(6), &ring, &map()), Ok(false));
        let long = JobSpec { payload_bytes: 252, ..spec(9, &there, &[], System::atp()) };
        let refused = node.admit(NodeId(6), &long, &map()).unwrap_err().to_string();
        assert!(refused.starts_with("payload = "), "its fragments do not fit: {refused}");
    }

    #[test]
    fn what_it_cannot_do_is_named() {
        let error = |change: fn(&mut JobSpec<'_, ()>)| {
            let mut spec = spec(0, &HOSTS, &[NodeId(5)], System::atp());
            change(&mut spec);
            crate::build::<Length>(&spec, &map()).map(|_| ()).unwrap_err().to_string()
        };
        let lossless = "reliable = false: expected true: without timers atp can wait for ever after a collision";
        assert_eq!(error(|spec| spec.reliable = false), lossless);
        assert_eq!(error(|spec| spec.window = 40_000), "window = 40000: expected 1 to 32768 packets");
        let atp = |parameters: AtpParameters| System::Atp(parameters);
        let mut bad = spec(0, &HOSTS, &[NodeId(5)], atp(AtpParameters { aggregators: 0, ..AtpParameters::default() }));
        let words = |spec: &JobSpec<'_, ()>| crate::build::<Length>(spec, &map()).map(|_| ()).unwrap_err().to_string();
        assert_eq!(words(&bad), "aggregators = 0: expected 1 to 65536");
        bad.system = atp(AtpParameters { overflow: 0.5, ..AtpParameters::default() });
        assert_eq!(words(&bad), "overflow = 0.5: expected 0 without fixed_point");
        bad.system = System::A2tp(A2tpParameters { threshold: 1.5, ..A2tpParameters::default() });
        assert_eq!(words(&bad), "threshold = 1.5: expected a share from 0 to 1");
        bad.system = System::A2tp(A2tpParameters { priority: 0.0, ..A2tpParameters::default() });
        assert_eq!(words(&bad), "priority = 0: expected more than 0, and at most 1000");
        bad.system = System::A2tp(A2tpParameters { aggregators_min: 65, ..A2tpParameters::default() });
        assert_eq!(words(&bad), "aggregators_min = 65: expected 1 to 64, the window");
        let other = System::Atp(AtpParameters { aggregators: 9, ..AtpParameters::default() });
        let specs = [spec(0, &HOSTS, &[NodeId(5)], System::a2tp()), spec(1, &HOSTS, &[NodeId(5)], other)];
        let (index, error) = shared::<Length>(&specs, &map()).unwrap_err();
        let expected = "aggregators = 9: expected 450, as in the jobs before it: they share the aggregators of their switches";
        assert_eq!((index, error.to_string().as_str()), (1, expected));
    }

    /// Each server has a stream of its own; a switch that is only the server's of one lets pass what goes to the other.
    #[test]
    fn a_job_may_have_several_servers() {
        let (hosts, servers) = ([NodeId(0), NodeId(1)], [NodeId(2), NodeId(5)]);
        let spec = JobSpec { window: 9, ..spec(3, &hosts, &servers, System::a2tp()) };
        let nodes = spec.system.nodes::<Length>(&spec, &map()).unwrap();
        assert_eq!(nodes.others.iter().map(|server| server.at.node.0).collect::<Vec<_>>(), [2, 5]);
        let at: Vec<(NodeId, JobAtSwitch<()>)> = at_switches(&spec, &map()).unwrap();
        let known = |number: usize| -> Vec<(u32, usize, u32)> {
            let way = |(switch, job): &(NodeId, JobAtSwitch<()>)| {
                let server = &job.servers[number];
                (switch.0, server.workers.len(), server.server.node.0)
            };
            at.iter().map(way).collect()
        };
        assert_eq!((known(0), known(1)), (vec![(6, 2, 2), (7, 0, 2)], vec![(6, 2, 5), (7, 0, 5)]));
        assert_eq!(window_of_server(&spec), 5);
        let error = check_servers(&JobSpec { servers: &[NodeId(5), NodeId(2), NodeId(5)], ..spec.clone() });
        assert!(error.starts_with("servers = ") && error.ends_with("expected each host once"), "{error}");
        let many: Vec<NodeId> = (2..19).map(NodeId).collect();
        let error = check_servers(&JobSpec { servers: &many, ..spec });
        assert_eq!(error, "servers = 17: expected at most 16, or 0 for one at the host of rank 0");
    }

    fn check_servers(spec: &JobSpec<'_, ()>) -> String {
        spec.system.nodes::<Length>(spec, &map()).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn packets_begin_with_the_systems_number() {
        comes_back(5, AtpHeader::Rejected { at: FragmentId { tensor: 1, seq: 82 } });
    }
}
