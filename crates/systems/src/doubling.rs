//! Recursive doubling of lists: its parameters, and the nodes of a job, which are workers only.

use fanin_core::payload::Sparsity;
use fanin_core::{Address, FlowLabel, JobNodes, NetworkMap, NodeId, Operator, Pair, Payload, Placed, Rank};
use fanin_protocols::doubling::{DoublingWorkerConfig, WINDOW_MAX, schedule};
use fanin_wire::doubling::INDEX_BYTES;

use serde::{Deserialize, Serialize};

use crate::any::AnyNode;
use crate::build::reliability;
use crate::campaign::{Campaign, DrawnJob, JobSize, Load};
use crate::config::{BuildError, JobSpec};
use crate::draw::Draw;
use crate::facts::{Facts, Nodes};
use crate::sparse::{Picks, alike, sparsity};
use crate::system::System;

pub(crate) use fanin_protocols::doubling::DoublingWorker;
pub(crate) use fanin_wire::doubling::{DoublingHeader, LAYOUT};

/// What a pair of a list takes.
const PAIR_BYTES: f64 = size_of::<Pair>() as f64;

/// The parameters of recursive doubling of lists: sparse allreduce by the hosts alone (flare 7).
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct DoublingParameters {
    /// The share of the vector's indices at which a worker has a value, drawn independently for each index and worker; `message` is the length of
    /// the whole vector.
    ///
    /// Default: 1 %.
    pub density: f64,
    /// Share of a worker's indices at which all workers have a value; at the others they have one by chance.
    pub overlap: f64,
    /// Which indices: each by chance, or with `"buckets"` one in each bucket of 1 / density indices, as when each bucket of a gradient sends its
    /// largest element.
    pub picks: Picks,
}

impl Default for DoublingParameters {
    fn default() -> Self {
        DoublingParameters { density: 0.01, overlap: 0.0, picks: Picks::Random }
    }
}

impl System {
    /// Recursive doubling of lists at a density.
    pub fn doubling(density: f64) -> Self {
        System::Doubling(DoublingParameters { density, ..DoublingParameters::default() })
    }
}

impl Facts for DoublingParameters {
    fn goes_on_without_switches(&self) -> bool {
        true
    }

    fn divides(&self) -> bool {
        false
    }

    fn sums_at_switches(&self) -> bool {
        false
    }

    fn sparsity(&self) -> Option<Sparsity> {
        Some(sparsity(self.density, self.overlap, self.picks))
    }

    fn set_density(&mut self, share: f64) {
        self.density = share;
    }

    fn switch_slots(&self, _window: u32) -> u64 {
        0
    }

    // In the last exchange a worker has its sum of one half of the workers, which is what it sends, and what has come of the other half's,
    // in memory that grew with it; after it the result, and what it sent.
    fn list_bytes(&self, workers: u64, elements: u64) -> u64 {
        let sparsity = sparsity(self.density, self.overlap, self.picks);
        let (shared, own) = (self.density * self.overlap, sparsity.own_density());
        // Of those at which not all have something, the share at which none of 2^step workers has something.
        let (mut none, mut before) = (1.0 - own, 1.0);
        for _ in 0..u64::BITS - workers.saturating_sub(1).leading_zeros() {
            (none, before) = (none * none, none);
        }
        let pairs = |none: f64| elements as f64 * (shared + (1.0 - shared) * (1.0 - none)).clamp(0.0, 1.0);
        let (last, half) = (pairs(none), pairs(if workers > 1 { before } else { 1.0 }));
        (workers as f64 * PAIR_BYTES * (2.5 * half).max(half + last)) as u64
    }

    // All workers may send their lists over one link, step by step, and a packet takes fewer pairs than elements. Its window is for all that a
    // worker has under way; without loss recovery it has none.
    fn load(&self, job: &JobSize) -> Load {
        let steps = 2 + u64::from(job.workers.max(1).ilog2());
        let (elements, pairs) = (job.payload_bytes / job.element_bytes, job.payload_bytes / (INDEX_BYTES + job.element_bytes));
        let incast = u64::from(elements.div_ceil(pairs.max(1))) * steps * job.workers;
        let queued = if job.reliable { 2 * job.window * job.workers } else { 2 * job.packets * incast };
        Load { steps: steps * job.operations, incast, queued, ..Load::of(job, incast) }
    }
}

impl Nodes for DoublingParameters {
    const CAMPAIGNS: &[Campaign] = &[Campaign { order: 43, stream: 43, draw: campaign }];

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, _map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        nodes(spec, self)
    }
}

/// A worker on each host.
fn nodes<P: Payload + ?Sized>(spec: &JobSpec<'_, P::Op>, parameters: &DoublingParameters) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    let capacity = capacity(spec, parameters)?;
    let worker = |(rank, &host): (u32, &NodeId)| {
        let rank = Rank(rank);
        let config = DoublingWorkerConfig {
            job: spec.id,
            rank,
            turns: schedule(rank, spec.hosts.len() as u32, |rank| Address::worker(spec.hosts[rank.index()])),
            op: spec.op.clone(),
            capacity,
            value_bytes: spec.element_bytes,
            window: spec.window,
            flow: FlowLabel(u32::from(spec.id.0)),
            reliability: reliability(spec),
        };
        Placed { at: Address::worker(host), node: AnyNode::DoublingWorker(DoublingWorker::new(config)) }
    };
    Ok(JobNodes { workers: (0..).zip(spec.hosts).map(worker).collect(), others: Vec::new() })
}

/// Pairs in a packet.
fn capacity<Op>(spec: &JobSpec<'_, Op>, parameters: &DoublingParameters) -> Result<u32, BuildError> {
    if let Some((key, value, expected)) = parameters.sparsity().and_then(|sparsity| sparsity.fault()) {
        return Err(BuildError::new(key, value, expected));
    }
    if !matches!(spec.element_bytes, 1 | 2 | 4 | 8) {
        return Err(BuildError::new("element_bytes", spec.element_bytes, "1, 2, 4 or 8"));
    }
    if !(1..=WINDOW_MAX).contains(&spec.window) {
        return Err(BuildError::new("window", spec.window, format!("1 to {WINDOW_MAX} packets")));
    }
    let pair_bytes = INDEX_BYTES + spec.element_bytes;
    let capacity = spec.payload_bytes / pair_bytes;
    if capacity == 0 || capacity > u32::from(u16::MAX) {
        let expected = format!("{pair_bytes} bytes, an index and a value, to {}", u64::from(pair_bytes) * u64::from(u16::MAX));
        return Err(BuildError::new("payload", spec.payload_bytes, expected));
    }
    Ok(capacity)
}

/// Some jobs become jobs of recursive doubling: all that were wanted, or one in sixteen of those without servers.
fn campaign(draw: &mut Draw, _map: &NetworkMap, jobs: &mut [DrawnJob], only: Option<&str>) {
    for job in jobs {
        let wanted = only.map_or_else(|| job.system.servers() == 0 && draw.percent(6), |name| name == "doubling");
        if !wanted {
            continue;
        }
        let element_bytes = job.op.dtype.bytes() as u32;
        job.payload_bytes = job.payload_bytes.max(4 + element_bytes).next_multiple_of(element_bytes);
        let (overlap, picks) = alike(draw);
        job.system = System::Doubling(DoublingParameters { density: draw.scaled(1, 1_000) as f64 / 1_000.0, overlap, picks });
        if job.op.operator == Operator::Avg {
            job.op.operator = Operator::Sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::any::tests::comes_back;
    use crate::{JobSpec, System, build};
    use fanin_core::{Duration, ElementOp, JobId, NetworkMap, NodeId, PayloadOp};
    use fanin_wire::doubling::{DoublingHeader, ListName};

    fn spec(hosts: &[NodeId]) -> JobSpec<'_, PayloadOp> {
        JobSpec {
            id: JobId(3),
            hosts,
            servers: &[],
            system: System::doubling(0.01),
            op: ElementOp::I32_SUM.into(),
            element_bytes: 4,
            payload_bytes: 1_024,
            window: 16,
            reliable: true,
            rto_initial: Duration::from_ms(1),
            rto_min: Duration::from_ms(1),
            patience: Duration::from_ms(100),
            seed: 0,
        }
    }

    #[test]
    fn there_are_workers_only() {
        let hosts: Vec<NodeId> = (0..5).map(NodeId).collect();
        let nodes = build::<[u8]>(&spec(&hosts), &NetworkMap::star(5)).unwrap();
        assert_eq!((nodes.workers.len(), nodes.others.len()), (5, 0));
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        let hosts: Vec<NodeId> = (0..4).map(NodeId).collect();
        let error = |change: fn(&mut JobSpec<'_, PayloadOp>)| {
            let mut spec = spec(&hosts);
            change(&mut spec);
            build::<[u8]>(&spec, &NetworkMap::star(4)).map(|_| ()).unwrap_err().to_string()
        };
        assert_eq!(error(|spec| spec.payload_bytes = 4), "payload = 4: expected 8 bytes, an index and a value, to 524280");
        assert_eq!(error(|spec| spec.window = 40_000), "window = 40000: expected 1 to 32768 packets");
        assert_eq!(error(|spec| spec.system = System::doubling(1.5)), "density = 1.5: expected above 0, and at most 1");
    }

    #[test]
    fn packets_begin_with_the_systems_number() {
        comes_back(15, DoublingHeader::Probe { list: ListName { operation: 87, digest: 5, step: 6 } });
    }
}
