//! Allreduces over machines with several workers each: their parameters, and the nodes of a job. Who hangs on one switch is on one machine.

use std::sync::Arc;

use fanin_core::{Address, FlowLabel, JobNodes, NetworkMap, NodeId, Payload, Placed, PortId, Rank, Suspect};
use fanin_protocols::machines::{Algorithm, MachinesWorkerConfig, WORKERS_MAX};
use fanin_protocols::netreduce::{MessageShape, NetReduceChild, NetReduceConnection, NetReduceSwitchConfig, Variants};

use fanin_wire::netreduce::InaHeader;
use serde::{Deserialize, Serialize};

use crate::any::{AnyNode, resend_gap};
use crate::build::reliability;
use crate::campaign::{Campaign, DrawnJob, JobSize, Load};
use crate::config::{BuildError, JobSpec, StepParameters};
use crate::congestion::{self, CongestionParameters, drawn};
use crate::draw::Draw;
use crate::facts::{Facts, KeyUse, KeysOf, Nodes, Unit, two_windows};
use crate::layout::{self, leaf_of};
use crate::netreduce;
use crate::system::System;

pub(crate) use fanin_protocols::machines::MachinesWorker;
pub(crate) use fanin_protocols::netreduce::NetReduceRings;
pub(crate) use fanin_wire::netreduce::LAYOUT;

/// How vectors on several machines are summed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AlgorithmRule {
    /// One ring of all workers (baselines 1).
    #[default]
    FlatRing,
    /// Reduce-scatter in machines, a ring for each worker of a machine, all-gather (baselines 2).
    ParallelRing,
    /// Reduction to masters, a ring of masters, broadcast (baselines 3).
    Tencent,
    /// A ring of NetReduce for each worker of a machine (netreduce 5.9).
    #[serde(rename = "parallel-netreduce")]
    ParallelNetReduce,
}

/// The parameters of allreduces over machines: rings, Tencent's allreduce and parallel NetReduce over machines (what hangs on a switch),
/// reliably (baselines 1 to 3, netreduce 5.9).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct MachinesParameters {
    /// One ring of all hosts; `"parallel-ring"`, hierarchical allreduce: reduce-scatter in each machine, a ring for each host of a machine,
    /// all-gather; `"tencent"`: reduction to a master in each machine, a ring of masters, broadcast; `"parallel-netreduce"`: like the parallel
    /// ring, with accelerators at the switch between machines.
    pub algorithm: AlgorithmRule,
    /// The number of messages that the job's `window` is divided into; the paper has 340 packets in two messages (`netreduce 7`).
    pub window_messages: u32,
    /// A network card's connection breaks after more consecutive timeouts than this (cards have 7); 0: only `patience` ends it.
    pub retries: u32,
    /// Whether rates follow marks.
    #[serde(flatten)]
    pub congestion: CongestionParameters,
    /// What a step costs its host.
    #[serde(flatten)]
    pub steps: StepParameters,
}

impl Default for MachinesParameters {
    fn default() -> Self {
        let algorithm = AlgorithmRule::FlatRing;
        MachinesParameters {
            algorithm,
            window_messages: 2,
            retries: 0,
            congestion: CongestionParameters::default(),
            steps: StepParameters::NONE,
        }
    }
}

impl Facts for MachinesParameters {
    fn steps_mut(&mut self) -> Option<&mut StepParameters> {
        (self.algorithm != AlgorithmRule::ParallelNetReduce).then_some(&mut self.steps)
    }

    fn key_of<'a>(&self, field: &'a str) -> &'a str {
        congestion::key_of(field)
    }

    fn follow_rate(&mut self, bits_per_second: u64, is_given: &dyn Fn(&str) -> bool) {
        self.congestion.follow_rate(bits_per_second, is_given);
    }

    fn unit_of(&self, field: &str, is_float: bool) -> Unit {
        congestion::unit_of(field, is_float)
    }

    fn sums_at_switches(&self) -> bool {
        self.algorithm == AlgorithmRule::ParallelNetReduce
    }

    fn switch_slots(&self, window: u32) -> u64 {
        if self.algorithm == AlgorithmRule::ParallelNetReduce { two_windows(window) } else { 0 }
    }

    // What each child has sent is kept by itself, for each of a machine's rings.
    fn slot_bytes(&self, job: &JobSpec<'_, ()>, map: &NetworkMap, switch: NodeId) -> u64 {
        u64::from(job.payload_bytes).saturating_mul(map.neighbours(switch).len() as u64).saturating_mul(rings(job, map))
    }

    fn idle_keys(&self, _job: &KeysOf) -> Vec<KeyUse> {
        self.congestion.idle_keys()
    }

    fn load(&self, job: &JobSize) -> Load {
        Load::of_ring(job)
    }
}

impl Nodes for MachinesParameters {
    const CAMPAIGNS: &[Campaign] = &[Campaign { order: 13, stream: 13, draw: campaign }];

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        nodes(spec, map, self)
    }
}

/// Workers on machines, and for parallel NetReduce the accelerators at the switch above.
fn nodes<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    parameters: &MachinesParameters,
) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    let count = spec.hosts.len();
    if count > WORKERS_MAX as usize {
        return Err(BuildError::new("workers", count, format!("at most {WORKERS_MAX}")));
    }
    if !spec.reliable {
        return Err(BuildError::new("reliable", false, "true: network cards have reliable connections, with timers"));
    }
    let algorithm = match parameters.algorithm {
        AlgorithmRule::FlatRing => Algorithm::FlatRing,
        AlgorithmRule::ParallelRing => Algorithm::ParallelRing,
        AlgorithmRule::Tencent => Algorithm::Tencent,
        AlgorithmRule::ParallelNetReduce => Algorithm::ParallelNetReduce,
    };
    if algorithm == Algorithm::ParallelNetReduce && parameters.steps != StepParameters::NONE {
        return Err(BuildError::new("step_overhead", "given", "no such key for parallel-netreduce"));
    }
    let machines = machines(spec, map, algorithm)?;
    let shape = netreduce::shape(spec, parameters.window_messages)?;
    let accelerated = algorithm == Algorithm::ParallelNetReduce && machines.len() > 1;
    let accelerator = if accelerated { Some(layout::random_roots(map, spec.hosts, 1, spec.seed)?[0]) } else { None };
    let block_elements = spec.payload_bytes / spec.element_bytes;
    let header_elements = MessageShape::header_elements(spec.element_bytes, block_elements).filter(|_| accelerated).unwrap_or(0);
    let addresses: Arc<[Address]> = spec.hosts.iter().map(|&host| Address::worker(host)).collect();
    let worker = |rank: usize| -> Result<Placed<AnyNode<P>>, BuildError> {
        let config = MachinesWorkerConfig {
            job: spec.id,
            rank: Rank(rank as u32),
            addresses: Arc::clone(&addresses),
            machines: Arc::clone(&machines),
            algorithm,
            accelerator,
            op: spec.op.clone(),
            element_bytes: spec.element_bytes,
            block_elements,
            header_elements,
            message_packets: shape.packets,
            window_messages: shape.window,
            kept_messages: (2 * shape.window).next_power_of_two(),
            window: spec.window,
            flow: flow(spec),
            reliability: reliability(spec),
            retry_limit: (parameters.retries > 0).then_some(parameters.retries),
            congestion: netreduce::dcqcn(&parameters.congestion)?,
        };
        Ok(Placed {
            at: Address::worker(spec.hosts[rank]),
            node: AnyNode::MachinesWorker(MachinesWorker::new(config).with_step_cost(parameters.steps.cost(spec.seed))),
        })
    };
    let workers = (0..count).map(worker).collect::<Result<_, _>>()?;
    let others = match accelerator {
        Some(switch) => {
            let rings = (0..machines[0].len()).map(|own| ring(spec, map, &machines, own, switch, shape)).collect::<Result<_, _>>()?;
            vec![Placed { at: Address::switch(switch), node: AnyNode::NetReduceRings(NetReduceRings::new(rings)) }]
        }
        None => Vec::new(),
    };
    Ok(JobNodes { workers, others })
}

/// One flow for the job: hashing tells workers apart by their addresses.
/// Workers of the machine that has most of them.
fn rings(job: &JobSpec<'_, ()>, map: &NetworkMap) -> u64 {
    let mut leaves: Vec<NodeId> = job.hosts.iter().filter_map(|host| leaf_of(map, *host).ok()).map(|leaf| leaf.node).collect();
    leaves.sort_unstable();
    leaves.chunk_by(|a, b| a == b).map(<[NodeId]>::len).max().unwrap_or(1) as u64
}

fn flow<Op>(spec: &JobSpec<'_, Op>) -> FlowLabel {
    FlowLabel(u32::from(spec.id.0))
}

/// The ranks by machine, in the order of hosts; a flat ring takes all for one.
fn machines<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap, algorithm: Algorithm) -> Result<Arc<[Box<[Rank]>]>, BuildError> {
    let mut ranks: Vec<u32> = (0..spec.hosts.len() as u32).collect();
    ranks.sort_unstable_by_key(|&rank| spec.hosts[rank as usize]);
    if algorithm == Algorithm::FlatRing {
        return Ok([ranks.into_iter().map(Rank).collect()].into());
    }
    let mut machines: Vec<(NodeId, Vec<Rank>)> = Vec::new();
    for rank in ranks {
        let switch = leaf_of(map, spec.hosts[rank as usize])?.node;
        // Hosts of a machine follow each other in nearly all networks.
        match machines.iter_mut().rev().find(|(known, _)| *known == switch) {
            Some((_, members)) => members.push(Rank(rank)),
            None => machines.push((switch, vec![Rank(rank)])),
        }
    }
    let size = machines[0].1.len();
    if let Some((switch, members)) = machines.iter().find(|(_, members)| members.len() != size) {
        let expected = format!("as many on each machine: there are {size} on one, and {} at switch {switch}", members.len());
        return Err(BuildError::new("workers", spec.hosts.len(), expected));
    }
    if algorithm == Algorithm::Tencent && !size.is_power_of_two() {
        return Err(BuildError::new(
            "workers",
            spec.hosts.len(),
            format!("a power of two on each machine, whose halves are exchanged; there are {size}"),
        ));
    }
    Ok(machines.into_iter().map(|(_, members)| members.into()).collect())
}

/// The accelerator of the ring of the `own`-th workers of all machines.
fn ring<Op: Clone>(
    spec: &JobSpec<'_, Op>,
    map: &NetworkMap,
    machines: &[Box<[Rank]>],
    own: usize,
    switch: NodeId,
    shape: MessageShape,
) -> Result<NetReduceSwitchConfig<Op>, BuildError> {
    let ranks: Vec<Rank> = machines.iter().map(|machine| machine[own]).collect();
    let host = |rank: Rank| spec.hosts[rank.index()];
    let port = |rank: Rank| -> Result<PortId, BuildError> {
        let machine = leaf_of(map, host(rank))?.node;
        let above = map.neighbours(machine).iter().find(|next| next.node == switch);
        above.map(|next| next.their_port).ok_or_else(|| {
            BuildError::new("workers", spec.hosts.len(), format!("machines next to switch {switch}, which has the accelerators"))
        })
    };
    let through = |rank: Rank| Some(Address::worker(host(rank)));
    let mut children = Vec::new();
    let mut connections = Vec::new();
    for (place, &rank) in ranks.iter().enumerate() {
        children.push(NetReduceChild { port: port(rank)?, who: Suspect::Rank(rank), through: through(rank) });
        let receiver = ranks[(place + 1) % ranks.len()];
        connections.push(NetReduceConnection {
            rank,
            ends_at: Some(port(receiver)?),
            through: through(receiver),
            beyond: None,
            behind: None,
        });
    }
    Ok(NetReduceSwitchConfig {
        node: switch,
        job: spec.id,
        op: spec.op.clone(),
        workers: spec.hosts.len() as u32,
        block_bytes: spec.payload_bytes,
        shape,
        parent: None,
        children,
        connections,
        flow: flow(spec),
        patience: spec.patience,
        resend_gap: resend_gap(spec.rto_min),
        answers: reliability(spec),
        variants: Variants::CARDS,
    })
}

/// Some jobs become allreduces over machines: all that were wanted, or one in ten of those without servers. Where an algorithm needs as many
/// workers on each machine, the last ones of fuller machines stay away.
fn campaign(draw: &mut Draw, map: &NetworkMap, jobs: &mut [DrawnJob], only: Option<&str>) {
    for job in jobs {
        let wanted = only.map_or_else(|| job.system.servers() == 0 && draw.percent(10), |name| name == "machines");
        if !wanted {
            continue;
        }
        const ALGORITHMS: [AlgorithmRule; 4] =
            [AlgorithmRule::FlatRing, AlgorithmRule::ParallelRing, AlgorithmRule::Tencent, AlgorithmRule::ParallelNetReduce];
        let algorithm = match *draw.pick(&ALGORITHMS) {
            // Its accelerators are at one switch, which all machines are next to.
            AlgorithmRule::ParallelNetReduce if !has_common_switches(map, &job.hosts) => AlgorithmRule::ParallelRing,
            algorithm => algorithm,
        };
        let window_messages = draw.between(1, u64::from(job.window.min(4))) as u32;
        let congestion = drawn(draw);
        job.system = System::Machines(MachinesParameters { algorithm, window_messages, congestion, ..MachinesParameters::default() });
        (job.reliable, job.payload_bytes) = (true, job.payload_bytes.max(2 * InaHeader::LEN as u32));
        if algorithm != AlgorithmRule::FlatRing {
            job.hosts = evenly(map, &job.hosts, algorithm == AlgorithmRule::Tencent);
        }
    }
}

/// Whether the switches of these hosts are next to every switch of the top level, or are the only one.
fn has_common_switches(map: &NetworkMap, hosts: &[NodeId]) -> bool {
    let leaf = |host: &NodeId| map.leaf_of(*host).map(|leaf| leaf.node);
    let is_next_to = |top: NodeId, host: &NodeId| map.neighbours(top).iter().any(|next| Some(next.node) == leaf(host));
    let tops = || map.switches().filter(|switch| map.level(*switch) == map.top_level());
    hosts.iter().all(|host| leaf(host) == leaf(&hosts[0])) || tops().all(|top| hosts.iter().all(|host| is_next_to(top, host)))
}

/// As many of these hosts on each switch that has one of them; a power of two of them, where that is asked for.
fn evenly(map: &NetworkMap, hosts: &[NodeId], power_of_two: bool) -> Vec<NodeId> {
    let leaf = |host: NodeId| map.leaf_of(host).map(|leaf| leaf.node);
    let on = |host: NodeId| hosts.iter().filter(|other| leaf(**other) == leaf(host)).count();
    let least = hosts.iter().map(|host| on(*host)).min().unwrap_or(1);
    let size = if power_of_two { 1 << least.ilog2() } else { least };
    let before = |place: usize| hosts[..place].iter().filter(|other| leaf(**other) == leaf(hosts[place])).count();
    (0..hosts.len()).filter(|place| before(*place) < size).map(|place| hosts[place]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{System, build};
    use fanin_core::{Duration, JobId, Length};

    /// Machines of these sizes below one switch.
    fn map(sizes: &[u32]) -> NetworkMap {
        let hosts: u32 = sizes.iter().sum();
        let mut levels = vec![1; sizes.len()];
        levels.push(2);
        let mut map = NetworkMap::new(hosts, &levels);
        let mut host = 0;
        for (machine, size) in (0..).zip(sizes) {
            (0..*size).for_each(|_| {
                map.join(NodeId(host), NodeId(hosts + machine));
                host += 1;
            });
        }
        (0..sizes.len() as u32).for_each(|machine| _ = map.join(NodeId(hosts + machine), NodeId(hosts + sizes.len() as u32)));
        map
    }

    fn nodes(sizes: &[u32], algorithm: AlgorithmRule) -> Result<JobNodes<AnyNode<Length>>, String> {
        let hosts: Vec<NodeId> = (0..sizes.iter().sum()).map(NodeId).collect();
        let spec = JobSpec {
            id: JobId(0),
            hosts: &hosts,
            servers: &[],
            system: System::Machines(MachinesParameters { algorithm, ..MachinesParameters::default() }),
            op: (),
            element_bytes: 4,
            payload_bytes: 1_024,
            window: 340,
            reliable: true,
            rto_initial: Duration::from_ms(1),
            rto_min: Duration::from_ms(1),
            patience: Duration::from_ms(100),
            seed: 0,
        };
        build(&spec, &map(sizes)).map_err(|error| error.to_string())
    }

    #[test]
    fn accelerators_are_at_the_switch_above_the_machines() {
        let nodes = nodes(&[4, 4], AlgorithmRule::ParallelNetReduce).unwrap();
        assert_eq!((nodes.workers.len(), nodes.others.len(), nodes.others[0].at), (8, 1, Address::switch(NodeId(10))));
        for algorithm in [AlgorithmRule::FlatRing, AlgorithmRule::ParallelRing, AlgorithmRule::Tencent] {
            assert!(self::nodes(&[4, 4], algorithm).unwrap().others.is_empty());
        }
        assert!(self::nodes(&[4], AlgorithmRule::ParallelNetReduce).unwrap().others.is_empty(), "nothing leaves one machine");
    }

    #[test]
    fn machines_that_do_not_go_together_are_refused() {
        let refused = |sizes: &[u32], algorithm| nodes(sizes, algorithm).unwrap_err();
        assert_eq!(
            refused(&[4, 3], AlgorithmRule::ParallelRing),
            "workers = 7: expected as many on each machine: there are 4 on one, and 3 at switch 8"
        );
        assert_eq!(
            refused(&[3, 3], AlgorithmRule::Tencent),
            "workers = 6: expected a power of two on each machine, whose halves are exchanged; there are 3"
        );
        assert!(nodes(&[4, 3], AlgorithmRule::FlatRing).is_ok());
    }
}
