//! The nodes of a job of Flare's sparse allreduce.

use std::collections::BTreeMap;

use fanin_core::payload::Sparsity;
use fanin_core::{Address, JobNodes, NetworkMap, NodeId, Operator, Payload, Placed, Suspect};
use fanin_protocols::flare::{Blocks, FlareSwitchConfig, FlareWorkerConfig, RANGE_MAX, StorageKind, WINDOW_MAX};
use fanin_protocols::tree::TreeRole;
use fanin_wire::flare::INDEX_BYTES;

use serde::{Deserialize, Serialize};

use crate::any::{AnyNode, resend_gap};
use crate::campaign::{Campaign, DrawnJob, JobSize, Load};
use crate::config::{BuildError, JobSpec};
use crate::draw::Draw;
use crate::facts::{Facts, KeyUse, KeysOf, Nodes};
use crate::order::SumOrder;
use crate::sparse::{Picks, alike, sparsity};
use crate::system::System;
use crate::trees::StaticTrees;

pub(crate) use fanin_protocols::flare::{FlareSwitch, FlareWorker};
pub(crate) use fanin_wire::flare::{FlareHeader, LAYOUT};

/// What switches keep sums in (Flare).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlareStorage {
    /// At each switch a table where what is in the sum is expected to fill no more than half of it, else an array (flare 5).
    #[default]
    Fitting,
    /// Tables at the switches of hosts, arrays above (flare 5, two-level approach).
    TwoLevel,
    /// Arrays everywhere.
    Array,
    /// Tables everywhere.
    Table,
}

/// How packets of pairs name the indices of their values (Flare).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FlareCoding {
    /// Each packet as takes the fewest bytes: an index for each value; a bit for each index of a range; or the first index alone, where none is
    /// left out.
    #[default]
    Shortest,
    /// An index for each value, as the paper has it (flare 2).
    Pairs,
}

/// The parameters of Flare's sparse allreduce: pairs of index and value, in a static tree (flare 1 to 9). Its dense one is a static tree to the
/// network.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct FlareParameters {
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
    /// Indices per block, at most 65536; 0: as many as fill nine tenths of a packet with pairs on average (`flare 2`).
    pub range: u32,
    /// Workers start at different positions of each window, by rank, so that a switch's cores work on different blocks (`network.processor`).
    /// Unless cores are scarce it only delays sums, by the time in which a worker goes through its window (`flare 4.7`).
    pub staggered: bool,
    /// How packets encode indices: in the fewest bytes, as an index of two bytes per value, a bit per index of a range, or only the first index if
    /// the range is complete. Sums become dense near the root, where indices would be a third of the bytes. `"pairs"`, the paper's format: always
    /// an index per value.
    pub coding: FlareCoding,
    /// What switches keep sums in: a hash table if the sum is expected to fill at most half of it, otherwise an array with a value per index;
    /// `"two-level"`: tables at the workers' switches, arrays above; `"array"` or `"table"` everywhere.
    pub storage: FlareStorage,
    /// Slots of a table, 0 for 1 KiB of values (`flare 4.5`).
    pub slots: u32,
    /// A table tries the next slot if one is taken, before it spills.
    pub probes: bool,
    /// The order in which a switch adds its children's packets; `"fixed"`: neighbours first, then neighbouring sums, as Flare's tree of buffers
    /// does (4.3), so that floats have the same bits every time; a block of `"tree"` then also needs memory for every second child, and one of
    /// `"flare"`, which has no tables then, for what each child sends (`flare 4.3`).
    pub sum_order: SumOrder,
}

impl Default for FlareParameters {
    fn default() -> Self {
        FlareParameters {
            density: 0.01,
            overlap: 0.0,
            picks: Picks::Random,
            range: 0,
            staggered: false,
            coding: FlareCoding::Shortest,
            storage: FlareStorage::Fitting,
            slots: 0,
            probes: false,
            sum_order: SumOrder::Arrival,
        }
    }
}

impl System {
    /// Flare at a density, with what follows from it.
    pub fn flare(density: f64) -> Self {
        System::Flare(FlareParameters { density, ..FlareParameters::default() })
    }
}

/// Bytes of a table's values, where the plan does not say how many slots it has (`flare 4.5`: 256 of 32 bits).
const TABLE_BYTES: u32 = 1_024;

/// The most slots of a table: one for each index of the largest block.
const SLOTS_MAX: u32 = RANGE_MAX;

impl Facts for FlareParameters {
    fn is_carried(&self) -> bool {
        true
    }

    fn divides(&self) -> bool {
        false
    }

    fn is_routed(&self, _partial: bool) -> bool {
        false
    }

    fn sparsity(&self) -> Option<Sparsity> {
        Some(sparsity(self.density, self.overlap, self.picks))
    }

    fn takes_operators(&self) -> bool {
        true
    }

    fn set_density(&mut self, share: f64) {
        self.density = share;
    }

    fn slot_bytes(&self, job: &JobSpec<'_, ()>, _map: &NetworkMap, _switch: NodeId) -> u64 {
        FlarePackets::of(job).block_bytes(self).unwrap_or(u64::from(job.payload_bytes))
    }

    fn sum_bytes(&self, job: &JobSpec<'_, ()>, map: &NetworkMap) -> Option<u64> {
        let blocks = blocks(&FlarePackets::of(job), self).ok()?;
        let children = map.switches().map(|switch| map.neighbours(switch).len()).max().unwrap_or(1) as u32;
        let of = |storage: StorageKind| u64::from(storage.bytes(&blocks, children));
        let at_root = star_storage(self, &blocks, job.hosts.len() as u32);
        // Below it there may be tables.
        let below = match at_root {
            StorageKind::Array if self.storage != FlareStorage::Array => {
                of(StorageKind::Table { slots: slots(self, &blocks), probes: self.probes })
            }
            _ => 0,
        };
        Some(of(at_root).max(below))
    }

    fn idle_keys(&self, _job: &KeysOf) -> Vec<KeyUse> {
        let (tables, is_fixed) = (self.storage != FlareStorage::Array, self.sum_order == SumOrder::Fixed);
        let why =
            if is_fixed { "with sum_order = \"fixed\", which has no tables" } else { "with storage = \"array\", which has no tables" };
        ["slots", "probes"].map(|key| (key, tables && !is_fixed, why)).into()
    }

    // A block has several packets.
    fn load(&self, job: &JobSize) -> Load {
        Load::of(job, PACKETS_MAX)
    }
}

impl Nodes for FlareParameters {
    const CAMPAIGNS: &[Campaign] = &[Campaign { order: 42, stream: 42, draw: campaign }];

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        nodes(spec, map, self)
    }
}

/// Workers, and switches on one static tree.
fn nodes<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    parameters: &FlareParameters,
) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    let blocks = blocks(&FlarePackets::of(spec), parameters)?;
    let trees = StaticTrees::everywhere(spec, map)?;
    let worker = |(rank, &host): (usize, &NodeId)| {
        let tree = trees.worker(spec, map, rank as u32, host)?;
        let config = FlareWorkerConfig {
            job: tree.job,
            rank: tree.rank,
            workers: tree.workers,
            op: tree.op,
            blocks,
            staggered: parameters.staggered,
            uplink: tree.uplink,
            leaf: tree.leaf,
            reliability: tree.reliability,
        };
        Ok(Placed { at: Address::worker(host), node: AnyNode::FlareWorker(FlareWorker::new(config)) })
    };
    let workers = spec.hosts.iter().enumerate().map(worker).collect::<Result<_, BuildError>>()?;
    let roles: BTreeMap<NodeId, TreeRole> =
        trees.switches.into_iter().filter_map(|switch| Some((switch.at.node, switch.config.trees.into_iter().next()??))).collect();
    let switch = |(&node, role): (&NodeId, &TreeRole)| {
        let config = FlareSwitchConfig {
            job: spec.id,
            op: spec.op.clone(),
            blocks,
            storage: storage(parameters, &blocks, role, &roles),
            role: role.clone(),
            resend_gap: resend_gap(spec.rto_min),
        };
        Placed { at: Address::switch(node), node: AnyNode::FlareSwitch(FlareSwitch::new(config)) }
    };
    Ok(JobNodes { workers, others: roles.iter().map(switch).collect() })
}

/// What packets carry, and for how many workers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FlarePackets {
    /// Workers of the job.
    pub workers: u32,
    /// Blocks that a worker has under way at most.
    pub window: u32,
    /// Bytes of pairs in a packet.
    pub payload_bytes: u32,
    /// Bytes of a value.
    pub element_bytes: u32,
}

impl FlarePackets {
    fn of<Op>(spec: &JobSpec<'_, Op>) -> Self {
        let JobSpec { window, payload_bytes, element_bytes, .. } = *spec;
        FlarePackets { workers: spec.hosts.len() as u32, window, payload_bytes, element_bytes }
    }

    /// About how many bytes a block takes at a switch that all workers hang on: its storage, and its sum where that is dense, which is kept
    /// until the block a window later begins.
    ///
    /// # Errors
    /// [`BuildError`] names the parameter that makes no sense.
    pub fn block_bytes(&self, parameters: &FlareParameters) -> Result<u64, BuildError> {
        let blocks = blocks(self, parameters)?;
        let kept = u64::from(blocks.range) * u64::from(INDEX_BYTES + blocks.value_bytes);
        let place = size_of::<u64>() as u64;
        let stored = match star_storage(parameters, &blocks, self.workers) {
            StorageKind::Array => u64::from(blocks.range) * place,
            // An index beside each value.
            StorageKind::Table { slots, .. } => u64::from(slots) * 2 * place,
            // Pairs of all workers, and of sums while they are made; as many as vectors are expected to have.
            StorageKind::Ordered => {
                let pairs = (f64::from(blocks.range) * parameters.density).ceil() as u64;
                u64::from(self.workers) * pairs * 2 * (2 * place)
            }
        };
        Ok(stored + kept + u64::from(blocks.capacity) * 2 * place)
    }
}

/// What the only switch of a star keeps its sums in.
fn star_storage(parameters: &FlareParameters, blocks: &Blocks, workers: u32) -> StorageKind {
    let slots = slots(parameters, blocks);
    match parameters.storage {
        _ if parameters.sum_order == SumOrder::Fixed => StorageKind::Ordered,
        FlareStorage::Fitting => StorageKind::fitting(blocks, parameters.density, workers, slots, parameters.probes),
        FlareStorage::TwoLevel | FlareStorage::Array => StorageKind::Array,
        FlareStorage::Table => StorageKind::Table { slots, probes: parameters.probes },
    }
}

/// How blocks are cut and packed.
fn blocks(spec: &FlarePackets, parameters: &FlareParameters) -> Result<Blocks, BuildError> {
    if let Some((key, value, expected)) = parameters.sparsity().and_then(|sparsity| sparsity.fault()) {
        return Err(BuildError::new(key, value, expected));
    }
    if !matches!(spec.element_bytes, 1 | 2 | 4 | 8) {
        return Err(BuildError::new("element_bytes", spec.element_bytes, "1, 2, 4 or 8"));
    }
    if spec.window > WINDOW_MAX {
        return Err(BuildError::new("window", spec.window, format!("at most {WINDOW_MAX} blocks")));
    }
    if parameters.slots > SLOTS_MAX {
        return Err(BuildError::new("slots", parameters.slots, format!("at most {SLOTS_MAX}")));
    }
    if parameters.sum_order == SumOrder::Fixed && matches!(parameters.storage, FlareStorage::TwoLevel | FlareStorage::Table) {
        let storage = if parameters.storage == FlareStorage::Table { "table" } else { "two-level" };
        let expected = "fitting or array with sum_order = \"fixed\": what a table spills is summed in the order in which it comes";
        return Err(BuildError::new("storage", storage, expected));
    }
    if parameters.range > RANGE_MAX {
        return Err(BuildError::new("range", parameters.range, format!("at most {RANGE_MAX} indices")));
    }
    let pair_bytes = INDEX_BYTES + spec.element_bytes;
    let capacity = spec.payload_bytes / pair_bytes;
    if capacity == 0 || capacity > u32::from(u16::MAX) {
        let expected = format!("{pair_bytes} bytes, an index and a value, to {}", u64::from(pair_bytes) * u64::from(u16::MAX));
        return Err(BuildError::new("payload", spec.payload_bytes, expected));
    }
    // As the authors leave 16 of 164 pairs free: most blocks of a worker fit into one packet.
    let derived = (f64::from(capacity) * 0.9 / parameters.density).clamp(1.0, f64::from(RANGE_MAX)) as u32;
    let range = if parameters.range == 0 { derived } else { parameters.range };
    if range.div_ceil(capacity).saturating_mul(spec.workers) > u32::from(u16::MAX) {
        let expected =
            format!("a packet that takes more than {capacity} of the {range} pairs of a block: its packets are numbered by 16 bits");
        return Err(BuildError::new("payload", spec.payload_bytes, expected));
    }
    let shortest = parameters.coding == FlareCoding::Shortest;
    Ok(Blocks { range, capacity, shortest, value_bytes: spec.element_bytes, window: spec.window })
}

/// What a switch keeps sums in.
fn storage(parameters: &FlareParameters, blocks: &Blocks, role: &TreeRole, roles: &BTreeMap<NodeId, TreeRole>) -> StorageKind {
    let slots = slots(parameters, blocks);
    let table = StorageKind::Table { slots, probes: parameters.probes };
    let has_workers = role.children.iter().any(|child| matches!(child.who, Suspect::Rank(_)));
    match parameters.storage {
        _ if parameters.sum_order == SumOrder::Fixed => StorageKind::Ordered,
        FlareStorage::Fitting => StorageKind::fitting(blocks, parameters.density, workers_below(role, roles), slots, parameters.probes),
        FlareStorage::TwoLevel if has_workers && role.parent.is_some() => table,
        FlareStorage::TwoLevel | FlareStorage::Array => StorageKind::Array,
        FlareStorage::Table => table,
    }
}

/// Slots of a table.
fn slots(parameters: &FlareParameters, blocks: &Blocks) -> u32 {
    if parameters.slots == 0 { TABLE_BYTES / blocks.value_bytes } else { parameters.slots }
}

/// How many workers' vectors are in a switch's sum.
fn workers_below(role: &TreeRole, roles: &BTreeMap<NodeId, TreeRole>) -> u32 {
    let of = |who: &Suspect| match who {
        Suspect::Switch(node) => roles.get(node).map_or(0, |role| workers_below(role, roles)),
        Suspect::Rank(_) | Suspect::Unknown => 1,
    };
    role.children.iter().map(|child| of(&child.who)).sum()
}

/// Packets of a block of a drawn job, at most.
const PACKETS_MAX: u64 = 10;

/// The stream of how packets name indices; apart, so that everything else of a seed stays as it was before there was this.
const CODING: u64 = 0xc0d1;

/// The same of the order of sums.
const SUM_ORDER: u64 = 0x0d3d;

/// Some jobs become jobs of Flare: all that were wanted, or one in sixteen of those without servers. Blocks have one packet or several; tables
/// are small, so that spill is the rule.
fn campaign(draw: &mut Draw, _map: &NetworkMap, jobs: &mut [DrawnJob], only: Option<&str>) {
    const STORAGES: [FlareStorage; 4] = [FlareStorage::Fitting, FlareStorage::TwoLevel, FlareStorage::Array, FlareStorage::Table];
    for job in jobs {
        let wanted = only.map_or_else(|| job.system.servers() == 0 && draw.percent(6), |name| name == "flare");
        if !wanted {
            continue;
        }
        let pair_bytes = 2 + job.op.dtype.bytes() as u32;
        job.payload_bytes = job.payload_bytes.max(pair_bytes).next_multiple_of(job.op.dtype.bytes() as u32);
        let capacity = job.payload_bytes / pair_bytes;
        let range = if draw.percent(30) { 0 } else { draw.between(1, u64::from(capacity) * (PACKETS_MAX - 2)).min(65_536) as u32 };
        let (overlap, picks) = alike(draw);
        let coding = if Draw::new(draw.clone().bits(), CODING).percent(70) { FlareCoding::Shortest } else { FlareCoding::Pairs };
        let sum_order = if Draw::new(draw.clone().bits(), SUM_ORDER).percent(20) { SumOrder::Fixed } else { SumOrder::Arrival };
        let mut parameters = FlareParameters {
            density: draw.scaled(1, 1_000) as f64 / 1_000.0,
            overlap,
            picks,
            range,
            staggered: draw.percent(50),
            coding,
            storage: *draw.pick(&STORAGES),
            slots: draw.scaled(1, 2 * u64::from(capacity)) as u32,
            probes: draw.percent(50),
            sum_order,
        };
        if sum_order == SumOrder::Fixed {
            parameters.storage = FlareStorage::Array;
        }
        job.system = System::Flare(parameters);
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
    use fanin_core::{Duration, JobId};
    use fanin_wire::flare::FlareBlock;

    fn spec(hosts: &[NodeId], parameters: FlareParameters) -> JobSpec<'_, fanin_core::PayloadOp> {
        JobSpec {
            id: JobId(3),
            hosts,
            servers: &[],
            system: System::Flare(parameters),
            op: fanin_core::ElementOp::I32_SUM.into(),
            element_bytes: 4,
            payload_bytes: 984,
            window: 16,
            reliable: true,
            rto_initial: Duration::from_ms(1),
            rto_min: Duration::from_ms(1),
            patience: Duration::from_ms(100),
            seed: 0,
        }
    }

    #[test]
    fn blocks_are_cut_so_that_most_fit_into_a_packet() {
        let hosts: Vec<NodeId> = (0..4).map(NodeId).collect();
        let of = |density, range| {
            let parameters = FlareParameters { density, range, ..FlareParameters::default() };
            let blocks = blocks(&FlarePackets::of(&spec(&hosts, parameters)), &parameters);
            blocks.map(|blocks| (blocks.capacity, blocks.range)).map_err(|error| error.to_string())
        };
        // `flare 2`: 164 pairs of 32 bits in 984 bytes.
        assert_eq!(of(0.01, 0), Ok((164, 14_760)));
        assert_eq!(of(1.0, 0), Ok((164, 147)));
        assert_eq!(of(0.0001, 0), Ok((164, 65_536)));
        assert_eq!(of(0.01, 1_000), Ok((164, 1_000)));
        assert_eq!(of(0.0, 0).unwrap_err(), "density = 0: expected above 0, and at most 1");
        assert_eq!(of(f64::NAN, 0).unwrap_err(), "density = NaN: expected above 0, and at most 1");
        assert_eq!(of(0.5, 65_537).unwrap_err(), "range = 65537: expected at most 65536 indices");
    }

    #[test]
    fn leaves_get_tables_and_roots_arrays() {
        let mut map = NetworkMap::new(8, &[1, 1, 2]);
        for host in 0..8 {
            map.join(NodeId(host), NodeId(8 + host / 4));
        }
        for leaf in 8..10 {
            map.join(NodeId(leaf), NodeId(10));
        }
        let hosts: Vec<NodeId> = (0..8).map(NodeId).collect();
        let kinds = |storage, slots| {
            let spec = spec(&hosts, FlareParameters { density: 0.001, range: 50_000, storage, slots, ..FlareParameters::default() });
            let nodes = build::<[u8]>(&spec, &map).unwrap();
            let is_table = |placed: &Placed<AnyNode<[u8]>>| match &placed.node {
                AnyNode::FlareSwitch(switch) => matches!(switch.storage(), StorageKind::Table { .. }),
                _ => unreachable!("switches only"),
            };
            nodes.others.iter().map(is_table).collect::<Vec<_>>()
        };
        // 50 pairs of a worker, 200 below a leaf, 400 at the root.
        assert_eq!(kinds(FlareStorage::Fitting, 450), [true, true, false]);
        assert_eq!(kinds(FlareStorage::Fitting, 0), [false, false, false]);
        assert_eq!(kinds(FlareStorage::TwoLevel, 0), [true, true, false]);
        assert_eq!(kinds(FlareStorage::Table, 0), [true, true, true]);
        assert_eq!(kinds(FlareStorage::Array, 450), [false, false, false]);
    }

    #[test]
    fn a_blocks_memory_is_that_of_its_storage_and_of_its_sum() {
        let bytes = |range, slots| {
            let packets = FlarePackets { workers: 4, window: 8, payload_bytes: 984, element_bytes: 4 };
            packets.block_bytes(&FlareParameters { density: 0.001, range, slots, ..FlareParameters::default() }).unwrap()
        };
        // Pairs of 6 bytes, 164 in a packet: an array of 512 places; a table where 40 of 10,000 indices are expected.
        assert_eq!(bytes(512, 512), 512 * (8 + 6) + 164 * 16);
        assert_eq!(bytes(10_000, 128), 128 * 16 + 10_000 * 6 + 164 * 16);
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        let hosts: Vec<NodeId> = (0..4).map(NodeId).collect();
        let error = |change: fn(&mut JobSpec<'_, fanin_core::PayloadOp>)| {
            let mut spec = spec(&hosts, FlareParameters::default());
            change(&mut spec);
            build::<[u8]>(&spec, &NetworkMap::star(4)).map(|_| ()).unwrap_err().to_string()
        };
        assert_eq!(error(|spec| spec.payload_bytes = 4), "payload = 4: expected 6 bytes, an index and a value, to 393210");
        let slots = error(|spec| spec.system = System::Flare(FlareParameters { slots: 1 << 20, ..FlareParameters::default() }));
        assert_eq!(slots, "slots = 1048576: expected at most 65536");
        assert_eq!(error(|spec| spec.window = 40_000), "window = 40000: expected at most 32768 blocks");
        let few = error(|spec| {
            (spec.payload_bytes, spec.system) = (8, System::Flare(FlareParameters { range: 60_000, ..FlareParameters::default() }))
        });
        assert!(few.starts_with("payload = 8: expected a packet that takes more than 1 of the 60000 pairs"), "{few}");
    }

    #[test]
    fn packets_begin_with_the_systems_number() {
        comes_back(14, FlareHeader::Rejected { at: FlareBlock { number: 86, operation: 4 } });
    }
}
