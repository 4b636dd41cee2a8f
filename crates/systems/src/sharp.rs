//! SHARP: its parameters, the workers of each job, and the switches that all jobs share.

use std::collections::BTreeMap;

use fanin_core::{Address, Duration, JobId, JobNodes, NetworkMap, NodeId, Payload, Placed, SharedNode};
use fanin_protocols::ring::RingWorker;
use fanin_protocols::sharp::{Mode, SharpJob, SharpWorkerConfig, Streams};

use serde::{Deserialize, Serialize};

use crate::any::AnyNode;
use crate::campaign::{Campaign, DrawnJob, JobSize, Load};
use crate::config::{BuildError, JobSpec, RingOrder};
use crate::draw::Draw;
use crate::facts::{Facts, KeyUse, KeysOf, Nodes, two_windows};
use crate::ring::ring_workers;
use crate::system::System;
use crate::trees::StaticTrees;

pub(crate) use fanin_protocols::sharp::SharpSwitch;
pub(crate) use fanin_wire::sharp::{LAYOUT, SharpHeader};

/// A worker of SHARP, whose hosts can do without switches.
pub(crate) type SharpWorker<P> = fanin_protocols::sharp::SharpWorker<P, RingWorker<P>>;

/// How a job uses its tree (SHARP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum SharpMode {
    /// A quota of operations under way, for as long as the job lives.
    #[default]
    LowLatency,
    /// The job's window, one job at a time at each switch.
    Streaming,
}

/// What a job that streams has for itself at a switch (SHARP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StreamsBy {
    /// The switch: Quantum.
    #[default]
    Switch,
    /// The ports of its tree: Quantum-2.
    Port,
}

impl StreamsBy {
    fn rule(self) -> Streams {
        match self {
            StreamsBy::Switch => Streams::Switch,
            StreamsBy::Port => Streams::Port,
        }
    }
}

/// What a job does that switches have refused (SHARP).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RefusalRule {
    /// The operation is done by its hosts, as a ring, and switches are asked again with the next one.
    #[default]
    Host,
    /// It waits and asks again.
    Wait,
}

/// The parameters of SHARP: one static tree, with a quota of a switch's operations or, streaming, all to itself (baselines 6).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct SharpParameters {
    /// The job holds a quota of concurrent operations for its lifetime, each of at most 2048 bytes; `"streaming"`: the job uses its whole window,
    /// one job at a time per switch or port.
    pub mode: SharpMode,
    /// A job that streams has the switches of its tree for itself; `"port"`: only the ports of its tree, so that jobs whose trees have no port in
    /// common stream side by side. The same for all jobs of a switch.
    pub streams_by: StreamsBy,
    /// In low-latency mode, instead of `window`; a power of two.
    pub quota: u32,
    /// Concurrent operations of a switch, for all jobs of that mode together; the same for all jobs of a switch. SHARP's description gives no
    /// number.
    pub outstanding: u32,
    /// The hosts do a refused operation themselves, as a ring; `"wait"`: it waits and asks the switches again.
    pub refused: RefusalRule,
    /// The minimum wait of such a job; it doubles each time, up to 64 times the minimum.
    pub retry_ps: u64,
}

impl Default for SharpParameters {
    fn default() -> Self {
        SharpParameters {
            mode: SharpMode::LowLatency,
            streams_by: StreamsBy::Switch,
            quota: 16,
            outstanding: 128,
            refused: RefusalRule::Host,
            retry_ps: 10_000_000,
        }
    }
}

impl System {
    /// SHARP in low-latency mode, with operations as `fanin model sharp` has them.
    pub fn sharp() -> Self {
        System::Sharp(SharpParameters::default())
    }
}

/// Quotas beyond this are not the low-latency tree's.
const QUOTA_MAX: u32 = 1 << 16;

/// The payload of an operation under way in low-latency mode: of Quantum; Switch-IB 2 takes 256 (baselines 6).
const LOW_LATENCY_BYTES_MAX: u32 = 2_048;

impl Facts for SharpParameters {
    fn is_carried(&self) -> bool {
        true
    }

    fn divides(&self) -> bool {
        false
    }

    fn is_routed(&self, _partial: bool) -> bool {
        self.refused == RefusalRule::Host
    }

    // When a job has ended its switches are told, and keep nothing of it.
    fn leaves_nothing(&self, _reliable: bool) -> bool {
        true
    }

    fn switch_slots(&self, window: u32) -> u64 {
        two_windows(if self.mode == SharpMode::LowLatency { self.quota } else { window })
    }

    fn slots_key(&self) -> &'static str {
        if self.mode == SharpMode::LowLatency { "quota" } else { "window" }
    }

    fn idle_keys(&self, _job: &KeysOf) -> Vec<KeyUse> {
        let quota = self.mode == SharpMode::LowLatency;
        let waits = "with mode = \"low-latency\" and refused = \"wait\": quota takes its place";
        // `outstanding` is the switches', which jobs of both modes share.
        let streams = ("streams_by", !quota, "with mode = \"low-latency\"");
        vec![streams, ("quota", quota, "with mode = \"streaming\""), ("window", !quota || self.refused == RefusalRule::Host, waits)]
    }

    fn load(&self, job: &JobSize) -> Load {
        let window = u64::from(self.quota);
        // Hosts may do it all, as a ring.
        Load { window, queued: window * job.workers, ..Load::of_ring(job) }
    }
}

impl Nodes for SharpParameters {
    const MADE_OF: Option<&'static str> = Some("tree");
    const CAMPAIGNS: &[Campaign] = &[Campaign { order: 12, stream: 12, draw: campaign }];

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        nodes(spec, map, self)
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
            AnyNode::SharpSwitch(node) => admit(node, switch, spec, map),
            _ => Ok(false),
        }
    }

    fn contradiction<P: Payload + ?Sized>(node: &AnyNode<P>) -> Option<String> {
        let AnyNode::SharpSwitch(switch) = node else { return None };
        let (given, (streaming, clash)) = (switch.operations_given(), switch.streaming_jobs());
        let is_wrong = given > u64::from(switch.operations()) || clash;
        is_wrong.then(|| format!("a switch has given {given} operations, and streams for {streaming} jobs"))
    }

    fn has_of<P: Payload + ?Sized>(node: &AnyNode<P>, job: JobId) -> bool {
        Self::is_reserved_for(node, job)
    }

    fn is_reserved_for<P: Payload + ?Sized>(node: &AnyNode<P>, job: JobId) -> bool {
        matches!(node, AnyNode::SharpSwitch(switch) if switch.is_held_by(job))
    }

    fn has_reserved<P: Payload + ?Sized>(node: &AnyNode<P>) -> bool {
        matches!(node, AnyNode::SharpWorker(worker) if worker.holds())
    }
}

fn parameters(system: &System) -> Option<&SharpParameters> {
    if let System::Sharp(parameters) = system { Some(parameters) } else { None }
}

fn check<Op>(spec: &JobSpec<'_, Op>, parameters: &SharpParameters) -> Result<Mode, BuildError> {
    let SharpParameters { mode, streams_by: _, quota, outstanding, refused: _, retry_ps } = *parameters;
    if retry_ps == 0 {
        return Err(BuildError::new("retry", 0, "more than 0"));
    }
    if mode == SharpMode::Streaming {
        return Ok(Mode::Streaming);
    }
    if !quota.is_power_of_two() || quota > QUOTA_MAX {
        return Err(BuildError::new("quota", quota, format!("a power of two from 1 to {QUOTA_MAX}")));
    }
    if quota > outstanding {
        return Err(BuildError::new("quota", quota, format!("at most {outstanding}, the operations of a switch")));
    }
    if spec.payload_bytes > LOW_LATENCY_BYTES_MAX {
        let expected = format!("at most {LOW_LATENCY_BYTES_MAX} bytes for an operation in low-latency mode");
        return Err(BuildError::new("payload", spec.payload_bytes, expected));
    }
    Ok(Mode::LowLatency { quota })
}

/// The job as its tree sees it: the quota is the window.
fn on_tree<'a, Op: Clone>(spec: &JobSpec<'a, Op>, mode: Mode) -> JobSpec<'a, Op> {
    let window = if let Mode::LowLatency { quota } = mode { quota } else { spec.window };
    JobSpec { window, ..spec.clone() }
}

/// Workers of a job; its switches are [`shared`].
fn nodes<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    parameters: &SharpParameters,
) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    let mode = check(spec, parameters)?;
    let on_tree = on_tree(spec, mode);
    let hosts: Vec<Option<RingWorker<P>>> = match parameters.refused {
        RefusalRule::Host => ring_workers(spec, RingOrder::Host, false)?.into_iter().map(Some).collect(),
        RefusalRule::Wait => spec.hosts.iter().map(|_| None).collect(),
    };
    let trees = StaticTrees::everywhere(&on_tree, map)?;
    let worker = |((rank, &host), by_hosts): ((usize, &NodeId), Option<RingWorker<P>>)| {
        let tree = trees.worker(&on_tree, map, rank as u32, host)?;
        let config = SharpWorkerConfig { tree, mode, retry_after: Duration::from_ps(parameters.retry_ps) };
        Ok(Placed { at: Address::worker(host), node: AnyNode::SharpWorker(SharpWorker::new(config, by_hosts)) })
    };
    let workers = spec.hosts.iter().enumerate().zip(hosts).map(worker).collect::<Result<_, BuildError>>()?;
    Ok(JobNodes { workers, others: Vec::new() })
}

/// What a job tells each switch of its tree.
fn at_switches<Op: Clone>(
    spec: &JobSpec<'_, Op>,
    map: &NetworkMap,
    parameters: &SharpParameters,
) -> Result<Vec<(NodeId, SharpJob<Op>)>, BuildError> {
    if spec.hosts.len() < 2 {
        return Ok(Vec::new());
    }
    let mode = check(spec, parameters)?;
    let trees = StaticTrees::everywhere(&on_tree(spec, mode), map)?;
    Ok(trees.switches.into_iter().map(|switch| (switch.at.node, SharpJob { tree: switch.config, mode })).collect())
}

/// A switch for each that a tree of one of these jobs passes.
///
/// # Errors
/// The job's place in `specs` and what is wrong with it: all must agree about how many operations a switch has under way.
fn shared<P: Payload + ?Sized>(specs: &[JobSpec<'_, P::Op>], map: &NetworkMap) -> Result<Vec<SharedNode<AnyNode<P>>>, (usize, BuildError)> {
    let mut switches: BTreeMap<NodeId, Vec<SharpJob<P::Op>>> = BTreeMap::new();
    let mut shares = None;
    for (index, spec) in specs.iter().enumerate() {
        let Some(parameters) = parameters(&spec.system) else { continue };
        let known = *shares.get_or_insert((parameters.outstanding, parameters.streams_by));
        agrees(parameters, known, "in the jobs before it").map_err(|error| (index, error))?;
        for (switch, job) in at_switches(spec, map, parameters).map_err(|error| (index, error))? {
            switches.entry(switch).or_default().push(job);
        }
    }
    let node = |(switch, jobs): (NodeId, Vec<SharpJob<P::Op>>)| {
        let (outstanding, streams_by) = shares.unwrap_or_default();
        let mut node = SharpSwitch::new(outstanding, streams_by.rule());
        let numbers = jobs.iter().map(SharpJob::job).collect();
        jobs.into_iter().for_each(|job| node.admit(job));
        SharedNode { placed: Placed { at: Address::switch(switch), node: AnyNode::SharpSwitch(node) }, jobs: numbers }
    };
    Ok(switches.into_iter().map(node).collect())
}

/// Whether a job has its switches as other jobs have them: operations, and what a job that streams has for itself.
fn agrees(parameters: &SharpParameters, (outstanding, streams_by): (u32, StreamsBy), as_in: &str) -> Result<(), BuildError> {
    if parameters.outstanding != outstanding {
        let expected = format!("{outstanding}, as {as_in}: they share the operations of their switches");
        return Err(BuildError::new("outstanding", parameters.outstanding, expected));
    }
    if parameters.streams_by != streams_by {
        let name = |rule: StreamsBy| if rule == StreamsBy::Port { "port" } else { "switch" };
        let expected = format!("{:?}, as {as_in}: they share their switches", name(streams_by));
        return Err(BuildError::new("streams_by", name(parameters.streams_by), expected));
    }
    Ok(())
}

/// As [`AnyNode::admit`], at a switch of SHARP.
fn admit<P: Payload + ?Sized>(
    node: &mut SharpSwitch<P>,
    switch: NodeId,
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
) -> Result<bool, BuildError> {
    let Some(parameters) = parameters(&spec.system) else { return Ok(false) };
    let Some((_, job)) = at_switches(spec, map, parameters)?.into_iter().find(|(at, _)| *at == switch) else { return Ok(false) };
    let streams_by = if node.streams() == Streams::Port { StreamsBy::Port } else { StreamsBy::Switch };
    agrees(parameters, (node.operations(), streams_by), "in the jobs that run")?;
    node.admit(job);
    Ok(true)
}

/// Some of the jobs on static trees are of SHARP; all, where there are only such. Their switches have few operations, so that refusals are
/// the rule.
fn campaign(draw: &mut Draw, _map: &NetworkMap, jobs: &mut [DrawnJob], only: Option<&str>) {
    let outstanding = draw.scaled(1, 64) as u32;
    let streams_by = *draw.pick(&[StreamsBy::Switch, StreamsBy::Port]);
    for job in jobs {
        let is_tree = matches!(job.system, System::Tree(_));
        if !is_tree || !(only == Some("sharp") || only.is_none() && draw.percent(30)) {
            continue;
        }
        job.system = System::Sharp(SharpParameters {
            mode: *draw.pick(&[SharpMode::LowLatency, SharpMode::LowLatency, SharpMode::Streaming]),
            streams_by,
            quota: 1 << draw.between(0, u64::from(outstanding.ilog2())),
            outstanding,
            refused: *draw.pick(&[RefusalRule::Host, RefusalRule::Wait]),
            retry_ps: draw.scaled(100_000, 2_000_000),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::tests::comes_back;
    use crate::build;
    use fanin_core::{JobId, Length};

    const HOSTS: [NodeId; 4] = [NodeId(0), NodeId(1), NodeId(2), NodeId(3)];

    fn spec(id: u16, hosts: &[NodeId], parameters: SharpParameters) -> JobSpec<'_, ()> {
        JobSpec {
            id: JobId(id),
            hosts,
            servers: &[],
            system: System::Sharp(parameters),
            op: (),
            element_bytes: 4,
            payload_bytes: 256,
            window: 64,
            reliable: false,
            rto_initial: Duration::from_ms(1),
            rto_min: Duration::from_ms(1),
            patience: Duration::from_ms(100),
            seed: 0,
        }
    }

    #[test]
    fn jobs_share_the_switches_that_their_trees_pass() {
        let map = NetworkMap::star(4);
        let specs = [spec(0, &HOSTS[..2], SharpParameters::default()), spec(1, &HOSTS[2..], SharpParameters::default())];
        let nodes = shared::<Length>(&specs, &map).unwrap();
        assert_eq!(nodes.len(), 1);
        assert_eq!((nodes[0].placed.at, &nodes[0].jobs[..]), (Address::switch(NodeId(4)), &[JobId(0), JobId(1)][..]));
        assert!(build::<Length>(&specs[0], &map).unwrap().others.is_empty());
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        let map = NetworkMap::star(4);
        let error = |change: fn(&mut SharpParameters), payload_bytes| {
            let mut parameters = SharpParameters::default();
            change(&mut parameters);
            build::<Length>(&JobSpec { payload_bytes, ..spec(0, &HOSTS, parameters) }, &map).unwrap_err().to_string()
        };
        assert_eq!(error(|one| one.quota = 12, 256), "quota = 12: expected a power of two from 1 to 65536");
        assert_eq!(error(|one| one.outstanding = 8, 256), "quota = 16: expected at most 8, the operations of a switch");
        assert_eq!(error(|one| one.retry_ps = 0, 256), "retry = 0: expected more than 0");
        assert_eq!(error(|_| {}, 4_096), "payload = 4096: expected at most 2048 bytes for an operation in low-latency mode");
        let fewer = SharpParameters { outstanding: 64, ..SharpParameters::default() };
        let specs = [spec(0, &HOSTS[..2], SharpParameters::default()), spec(1, &HOSTS[2..], fewer)];
        let (index, differs) = shared::<Length>(&specs, &map).map(drop).unwrap_err();
        let expected = "outstanding = 64: expected 128, as in the jobs before it: they share the operations of their switches";
        assert_eq!((index, differs.to_string()), (1, expected.to_string()));
        let by_port = SharpParameters { streams_by: StreamsBy::Port, ..SharpParameters::default() };
        let specs = [spec(0, &HOSTS[..2], SharpParameters::default()), spec(1, &HOSTS[2..], by_port)];
        let (index, differs) = shared::<Length>(&specs, &map).map(drop).unwrap_err();
        let expected = "streams_by = port: expected \"switch\", as in the jobs before it: they share their switches";
        assert_eq!((index, differs.to_string()), (1, expected.to_string()));
    }

    #[test]
    fn packets_begin_with_the_systems_number() {
        comes_back(9, SharpHeader::Answer { number: 83, refused: true });
    }
}
