//! Rina: its parameters, and the nodes of a job.

use std::sync::Arc;

use fanin_core::{Address, FlowLabel, Instant, JobNodes, NetworkMap, NodeId, Operator, Payload, Placed, Rank, Tx};
use fanin_protocols::rina::{Onward, Partitions, Results, RinaLayout, RinaMember, RinaRack, RinaSwitchConfig, RinaWorkerConfig};
use fanin_wire::rina::MEMBERS_MAX;

use serde::{Deserialize, Serialize};

use crate::any::{AnyHeader, AnyNode, Wrapped};
use crate::build::reliability;
use crate::campaign::{Campaign, DrawnJob, JobSize, Load};
use crate::config::{BuildError, JobSpec, RingOrder, StepParameters, UNLIMITED};
use crate::draw::Draw;
use crate::facts::{Facts, KeyUse, KeysOf, Nodes, Unit, unit_of};
use crate::layout::{aggregating, leaf_of};
use crate::ring::ring_order;
use crate::system::System;

pub(crate) use fanin_protocols::rina::{RinaSwitch, RinaWorker};
pub(crate) use fanin_wire::rina::{LAYOUT, RinaHeader};

/// How long the partitions of a vector are (Rina).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RinaPartitions {
    /// All the same (rina 1).
    #[default]
    Equal,
    /// Twice as long where they begin at a rack that its switch sums as where they begin at a worker by itself: then links to all heads carry the
    /// same, and no deployment has links that carry more than a ring's.
    Balanced,
}

/// When an agent sends the results of its partition (Rina).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RinaResults {
    /// When it has neither gradients nor tasks to send (rina 4.3).
    #[default]
    Last,
    /// Before these: its rack's workers, whose links carry nothing while there are sums, do not get all of them at the end.
    First,
}

/// Who sends results on to the next group, where a rack's switch sums (Rina).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RinaOnward {
    /// The switch, at once, as it hands them down to the rack (rina 4.2).
    #[default]
    Switch,
    /// The agent, behind its gradients: results do not overtake the rack's sums on the way to the next group.
    Agent,
}

/// The parameters of Rina: a ring of racks that their switches sum, and of workers without such a switch (rina 1 to 7).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct RinaParameters {
    /// How many of the switches next to workers, or to the server, aggregate: those with the most workers of the job first, then those with the
    /// lowest numbers; all others only forward. 0 makes Rina a ring, and leaves all sums of ATP to the server (`rina 6.5`).
    ///
    /// Default: all.
    pub aggregating: u32,
    /// The ring visits hosts by number, or in the order of `"placement"`.
    pub order: RingOrder,
    /// The rate at which a switch aggregates: agents have at most this rate times a round trip in flight; `"0Gb/s"`: no limit, as for all other
    /// systems. The paper's switch adds at about 20 Gb/s (`rina 4.3`).
    pub full_speed_bps: u64,
    /// How long the parts of the vector are that go round the ring; `"balanced"`: twice as long where they start at a rack that its switch sums as
    /// where they start at a single worker, so that no agent's link carries more than a ring's.
    pub partitions: RinaPartitions,
    /// When an agent sends the results of its part: after gradients and tasks, or `"first"`, so that the other workers of its rack, whose links
    /// carry nothing until then, do not get all of them at the end.
    pub results: RinaResults,
    /// Who sends results on to the next rack: the switch, at once, or `"agent"`, behind its gradients, so that results do not overtake sums in the
    /// queue before the next rack and no deployment has a link that is sent more than a ring's.
    pub onward: RinaOnward,
    /// What a step costs the hosts that hand partitions on.
    #[serde(flatten)]
    pub steps: StepParameters,
}

impl Default for RinaParameters {
    fn default() -> Self {
        RinaParameters {
            aggregating: UNLIMITED,
            order: RingOrder::Host,
            full_speed_bps: 0,
            partitions: RinaPartitions::default(),
            results: RinaResults::default(),
            onward: RinaOnward::default(),
            steps: StepParameters::NONE,
        }
    }
}

impl System {
    /// Rina with every top-of-rack switch aggregating.
    pub fn rina() -> Self {
        System::Rina(RinaParameters::default())
    }
}

impl<P: Payload + ?Sized> AnyNode<P> {
    /// Tells a worker that another rank is gone, before its patience is over; nothing where the system goes on without nobody (model checking).
    pub fn take_for_dead<T: Tx<AnyHeader, P>>(&mut self, now: Instant, rank: Rank, tx: &mut T) {
        if let AnyNode::RinaWorker(node) = self {
            node.take_for_dead(now, rank, &mut Wrapped::new(tx));
        }
    }
}

impl Facts for RinaParameters {
    fn steps_mut(&mut self) -> Option<&mut StepParameters> {
        Some(&mut self.steps)
    }

    fn unit_of(&self, field: &str, is_float: bool) -> Unit {
        if field == "full_speed_bps" { Unit::RateOrNone } else { unit_of(field, is_float) }
    }

    fn goes_on_without_workers(&self) -> bool {
        true
    }

    fn load(&self, job: &JobSize) -> Load {
        Load::of_ring(job)
    }

    fn idle_keys(&self, _job: &KeysOf) -> Vec<KeyUse> {
        ["partitions", "results", "onward"]
            .map(|key| (key, self.aggregating > 0, "with aggregating = 0, where no rack is summed by its switch"))
            .into()
    }
}

impl Nodes for RinaParameters {
    const CAMPAIGNS: &[Campaign] = &[Campaign { order: 14, stream: 14, draw: campaign }];

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        nodes(spec, map, self)
    }
}

/// Workers in a ring of racks, and a node at each switch that aggregates.
fn nodes<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    parameters: &RinaParameters,
) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    if spec.hosts.len() > RinaLayout::WORKERS_MAX as usize {
        return Err(BuildError::new("workers", spec.hosts.len(), format!("at most {} in a ring of rina", RinaLayout::WORKERS_MAX)));
    }
    if !spec.reliable {
        return Err(BuildError::new("reliable", false, "true: agents of rina have timers"));
    }
    let layout = Arc::new(layout(spec, map, parameters)?);
    let flow = FlowLabel(u32::from(spec.id.0));
    let mut workers = Vec::with_capacity(spec.hosts.len());
    for (rank, &host) in spec.hosts.iter().enumerate() {
        let config = RinaWorkerConfig {
            job: spec.id,
            rank: Rank(rank as u32),
            layout: layout.clone(),
            op: spec.op.clone(),
            element_bytes: spec.element_bytes,
            block_elements: spec.payload_bytes / spec.element_bytes,
            window: spec.window,
            uplink: leaf_of(map, host)?.port,
            flow,
            marks: map.marks(),
            full_speed: (parameters.full_speed_bps > 0).then_some(parameters.full_speed_bps),
            reliability: reliability(spec),
        };
        workers.push(Placed {
            at: Address::worker(host),
            node: AnyNode::RinaWorker(RinaWorker::new(config).with_step_cost(parameters.steps.cost(spec.seed))),
        });
    }
    let mut others = Vec::new();
    for rack in layout.racks.iter().filter(|rack| rack.aggregates && rack.ranks.len() >= 2) {
        let mut members = Vec::with_capacity(rack.ranks.len());
        for rank in &rack.ranks {
            let host = spec.hosts[rank.index()];
            members.push((leaf_of(map, host)?.their_port, host));
        }
        let config = RinaSwitchConfig {
            job: spec.id,
            op: spec.op.clone(),
            block_bytes: spec.payload_bytes,
            window: spec.window,
            layout: layout.clone(),
            members,
            flow,
        };
        others.push(Placed { at: Address::switch(rack.switch), node: AnyNode::RinaSwitch(RinaSwitch::new(config)) });
    }
    others.sort_by_key(|placed| placed.at);
    Ok(JobNodes { workers, others })
}

/// Racks in the order of their switches; those with most workers have switches that aggregate (`rina 6.5`).
fn layout<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap, parameters: &RinaParameters) -> Result<RinaLayout, BuildError> {
    let leaves: Vec<NodeId> = spec.hosts.iter().map(|&host| Ok(leaf_of(map, host)?.node)).collect::<Result<_, BuildError>>()?;
    let mut switches = leaves.clone();
    switches.sort_unstable();
    switches.dedup();
    let mut racks: Vec<RinaRack> = switches.iter().map(|&switch| RinaRack { switch, aggregates: false, ranks: Vec::new() }).collect();
    let mut members = Vec::with_capacity(leaves.len());
    for (rank, (&node, leaf)) in spec.hosts.iter().zip(&leaves).enumerate() {
        let rack = switches.binary_search(leaf).unwrap_or(0);
        racks[rack].ranks.push(Rank(rank as u32));
        members.push(RinaMember { node, rack: rack as u32 });
    }
    let sizes: Vec<(NodeId, u32)> = racks.iter().map(|rack| (rack.switch, rack.ranks.len() as u32)).collect();
    for switch in aggregating(map, &sizes, parameters.aggregating) {
        let rack = &mut racks[switches.binary_search(&switch).unwrap_or(0)];
        if rack.ranks.len() > MEMBERS_MAX as usize {
            let expected = format!("at most {MEMBERS_MAX} at a switch that aggregates; switch {switch} has so many");
            return Err(BuildError::new("workers", rack.ranks.len(), expected));
        }
        rack.aggregates = true;
    }
    let order = ring_order(spec.hosts, parameters.order).into_iter().map(Rank).collect();
    let partitions = match parameters.partitions {
        RinaPartitions::Equal => Partitions::Equal,
        RinaPartitions::Balanced => Partitions::Balanced,
    };
    let results = match parameters.results {
        RinaResults::Last => Results::Last,
        RinaResults::First => Results::First,
    };
    let onward = match parameters.onward {
        RinaOnward::Switch => Onward::Switch,
        RinaOnward::Agent => Onward::Agent,
    };
    Ok(RinaLayout::new(members, racks, order).with(partitions, results).sent_on_by(onward))
}

/// The stream of how long partitions are, and when results are sent.
const WAYS: u64 = 0x9a57;

/// Some jobs become jobs of Rina: all that were wanted, or one in eight of those without servers. All, some or none of their switches
/// aggregate.
fn campaign(draw: &mut Draw, _map: &NetworkMap, jobs: &mut [DrawnJob], only: Option<&str>) {
    for job in jobs {
        let wanted = only.map_or_else(|| job.system.servers() == 0 && draw.percent(12), |name| name == "rina");
        if !wanted {
            continue;
        }
        let order = *draw.pick(&[RingOrder::Host, RingOrder::Placement]);
        let aggregating = if draw.percent(50) { UNLIMITED } else { draw.between(0, 4) as u32 };
        let full_speed_bps = if draw.percent(50) { 0 } else { draw.scaled(1_000_000_000, 100_000_000_000) };
        // Drawn apart, so that everything else of a seed stays as it was before there was this.
        let mut apart = Draw::new(draw.clone().bits(), WAYS);
        let partitions = if apart.percent(50) { RinaPartitions::Balanced } else { RinaPartitions::Equal };
        let results = if apart.percent(50) { RinaResults::First } else { RinaResults::Last };
        let onward = if apart.percent(50) { RinaOnward::Agent } else { RinaOnward::Switch };
        let steps = StepParameters::NONE;
        job.system = System::Rina(RinaParameters { aggregating, order, full_speed_bps, partitions, results, onward, steps });
        job.reliable = true;
        if job.op.operator == Operator::Avg {
            job.op.operator = Operator::Sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::tests::comes_back;
    use crate::build;
    use fanin_core::{Duration, JobId, Length};

    /// Racks of so many hosts under one root.
    fn racks(sizes: &[u32]) -> (NetworkMap, Vec<NodeId>) {
        let hosts: u32 = sizes.iter().sum();
        let levels: Vec<u8> = sizes.iter().map(|_| 1).chain([2]).collect();
        let mut map = NetworkMap::new(hosts, &levels);
        let mut host = 0;
        for (leaf, size) in (hosts..).zip(sizes) {
            for _ in 0..*size {
                map.join(NodeId(host), NodeId(leaf));
                host += 1;
            }
            map.join(NodeId(leaf), NodeId(hosts + sizes.len() as u32));
        }
        (map, (0..hosts).map(NodeId).collect())
    }

    fn spec(hosts: &[NodeId], parameters: RinaParameters) -> JobSpec<'_, ()> {
        JobSpec {
            id: JobId(3),
            hosts,
            servers: &[],
            system: System::Rina(parameters),
            op: (),
            element_bytes: 4,
            payload_bytes: 1_024,
            window: 64,
            reliable: true,
            rto_initial: Duration::from_ms(1),
            rto_min: Duration::from_ms(1),
            patience: Duration::from_ms(100),
            seed: 0,
        }
    }

    /// `rina 6.5`: the switches with most workers first; one with a single worker is no group.
    #[test]
    fn racks_with_most_workers_are_summed_first() {
        let (map, hosts) = racks(&[2, 4, 1, 3]);
        for (aggregating, groups, switches) in
            [(0, 10, &[][..]), (1, 7, &[11]), (2, 5, &[11, 13]), (3, 4, &[10, 11, 13]), (UNLIMITED, 4, &[10, 11, 13])]
        {
            let nodes = build::<Length>(&spec(&hosts, RinaParameters { aggregating, ..RinaParameters::default() }), &map).unwrap();
            assert_eq!(nodes.others.iter().map(|placed| placed.at.node.0).collect::<Vec<_>>(), switches);
            let AnyNode::RinaWorker(worker) = &nodes.workers[0].node else { panic!("a worker of rina") };
            assert_eq!(worker.groups(), groups);
        }
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        let (map, hosts) = racks(&[49, 2]);
        let error = |parameters, reliable| {
            let spec = JobSpec { reliable, ..spec(&hosts, parameters) };
            build::<Length>(&spec, &map).unwrap_err().to_string()
        };
        let default = RinaParameters::default();
        assert_eq!(error(default, true), "workers = 49: expected at most 48 at a switch that aggregates; switch 51 has so many");
        assert_eq!(error(default, false), "reliable = false: expected true: agents of rina have timers");
    }

    #[test]
    fn packets_begin_with_the_systems_number() {
        comes_back(12, RinaHeader::Done { epoch: 1, operation: 84 });
    }
}
