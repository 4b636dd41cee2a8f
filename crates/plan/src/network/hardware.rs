//! `network.hardware`: switches that can do what a prototype's can, so that a figure can be run again as it would be there.
//!
//! | preset | limit | source |
//! |---|---|---|
//! | `tofino1` | 32 elements of 4 bytes a pass | Canary 5.1 |
//! | | 65,536 multicast groups, two of them a pass | `MulticastGroupId_t` has 16 bits, and a packet has `mcast_grp_a` and `mcast_grp_b` (Open Tofino, Tofino Native Architecture) |
//! | | 1.2 billion entries a second for clock packets | what a pipeline processes in all (Canary 4): the most that clock packets can be |
//! | | 4 MiB of vectors | 32 Ki descriptors of 128 bytes (Canary 5.1) |
//! | `tofino2` | 64 elements a pass; groups as those of `tofino1` | counted: 20 stages of 4 stateful units hold 64 words and the 7 other registers of Canary's program |
//! | `xdp` | a core, 400 ns a contribution and 9 Gb/s of vectors; 352 elements a frame | measured: docs/xdp.md |
//!
//! What presets of other switches say is in [`presets`](super::presets).
//!
//! How many ports of a Tofino lead back is up to who cables it, so there is no default: without `recirculation`, packets that need several passes are
//! refused. How long a pass takes is not public: 0 unless it is given.

use fanin_core::{Duration, NodeId};
use fanin_sim::NetworkConfig;
use fanin_sim::engine::{BlockMap, NO_CORES, NO_PASSES, Pipeline, Processing};
use fanin_sim::topology::Topology;
use fanin_systems::{AnyHeader, block_of};

use super::file::Capability;
use crate::jobs::PreparedJob;
use crate::reading::units::{Bytes, Count};
use crate::reading::{PlanError, Refuse};
use crate::schema::{HardwareKeys, HardwareName, Network};

const KEY: &str = "network.hardware";
/// Bytes of a word that a pass adds.
const WORD: u64 = 4;
/// Of a core in a kernel, docs/xdp.md: the time of a contribution without elements, and the rate at which elements make it longer.
const XDP_PACKET: Duration = Duration::from_ns(400);
const XDP_BITS_PER_SECOND: u64 = 9_000_000_000;

/// What a plan's switches can do, with the defaults of its preset; `None` where it does not say.
///
/// # Errors
/// [`PlanError`] with the key, its value and what was expected.
pub fn hardware(refuse: &Refuse<'_>, plan: &Network, network: &NetworkConfig) -> Result<Option<HardwareKeys>, PlanError> {
    let Some(given) = plan.hardware else { return Ok(None) };
    let keys = with_defaults(given.0);
    let is_given = |key: &str| refuse.has(&format!("{KEY}.{key}"));
    if network.lossless.is_some() && keys.elements.or(keys.groups).is_some() {
        return Err(refuse.at(KEY, NO_PASSES));
    }
    if keys.preset == Some(HardwareName::Xdp) {
        if network.lossless.is_some() {
            return Err(refuse.at(KEY, NO_CORES));
        }
        if plan.processor.is_some() {
            return Err(refuse.at("network.processor", "no such key beside hardware of preset \"xdp\", which has a core"));
        }
    }
    if is_given("recirculation") && keys.elements.is_none() && keys.groups.is_none() {
        return Err(refuse.at(&format!("{KEY}.recirculation"), "no such key without elements or groups: every packet passes once"));
    }
    if is_given("pass_time") && keys.recirculation.is_none() {
        return Err(refuse.at(&format!("{KEY}.pass_time"), "no such key without recirculation: every packet passes once"));
    }
    if is_given("groups_per_pass") && keys.groups.is_none() {
        return Err(refuse.at(&format!("{KEY}.groups_per_pass"), "no such key without groups"));
    }
    Ok(Some(keys))
}

fn with_defaults(given: HardwareKeys) -> HardwareKeys {
    let count = |count: u32| Some(Count(count));
    let preset = match given.preset {
        None | Some(HardwareName::Unlimited) => HardwareKeys::default(),
        Some(HardwareName::Tofino1) => HardwareKeys {
            elements: count(32),
            groups: count(1 << 16),
            groups_per_pass: count(2),
            scan_rate: count(1_200_000_000),
            memory: Some(Bytes(4 << 20)),
            ..HardwareKeys::default()
        },
        // 20 stages of 4 stateful units: 64 words and the 7 other registers of Canary (`fanin model pipeline`) take 71 of 80.
        Some(HardwareName::Tofino2) => {
            HardwareKeys { elements: count(64), groups: count(1 << 16), groups_per_pass: count(2), ..HardwareKeys::default() }
        }
        // What their switches sum with is not public.
        Some(
            HardwareName::Quantum
            | HardwareName::Quantum2
            | HardwareName::QuantumX800
            | HardwareName::Nvl72
            | HardwareName::TomahawkUltra
            | HardwareName::SpectrumX,
        ) => HardwareKeys::default(),
        Some(HardwareName::Xdp) => HardwareKeys { elements: count(352), ..HardwareKeys::default() },
    };
    HardwareKeys {
        preset: given.preset,
        elements: given.elements.or(preset.elements),
        recirculation: given.recirculation.or(preset.recirculation),
        pass_time: given.pass_time.or(preset.pass_time),
        groups: given.groups.or(preset.groups),
        groups_per_pass: given.groups_per_pass.or(preset.groups_per_pass),
        scan_rate: given.scan_rate.or(preset.scan_rate),
        aggregation_rate: given.aggregation_rate.or(preset.aggregation_rate),
        memory: given.memory.or(preset.memory),
    }
}

/// The core of a switch in a kernel.
pub fn core(keys: &HardwareKeys, network: &NetworkConfig) -> Option<Processing<AnyHeader>> {
    (keys.preset == Some(HardwareName::Xdp)).then_some(Processing {
        cores: 1,
        cores_per_block: 1,
        map: BlockMap::Hash,
        packet: XDP_PACKET,
        bits_per_second: XDP_BITS_PER_SECOND,
        pair: Duration::ZERO,
        place: Duration::ZERO,
        locks: false,
        memory_bytes: network.queue_bytes,
        mark_bytes: network.ecn_mark_bytes,
        working: None,
        block_of,
    })
}

/// How fast switches add and what memory they have, but for those of which the network's file says it.
pub fn limit(keys: &HardwareKeys, topology: &Topology, capabilities: &mut Vec<(NodeId, Capability)>) {
    if keys.aggregation_rate.is_none() && keys.memory.is_none() {
        return;
    }
    for switch in topology.map.switches().filter(|switch| topology.map.can_aggregate(*switch)) {
        let own = Capability {
            aggregates: true,
            bits_per_second: keys.aggregation_rate.map(|rate| rate.0),
            memory_bytes: keys.memory.map(|bytes| bytes.0),
        };
        match capabilities.iter_mut().find(|(known, _)| *known == switch) {
            Some((_, known)) => {
                known.bits_per_second = known.bits_per_second.or(own.bits_per_second);
                known.memory_bytes = known.memory_bytes.or(own.memory_bytes);
            }
            None => capabilities.push((switch, own)),
        }
    }
    capabilities.sort_by_key(|(switch, _)| *switch);
}

/// Lets timers of these jobs be found by scans of their arrays, but for those whose tables say it themselves; jobs with a workload before they are
/// expanded, while groups have their tables, the others when their arrays have their lengths.
pub fn scan(keys: &HardwareKeys, jobs: &mut [PreparedJob], have_workloads: bool) {
    let Some(rate) = keys.scan_rate else { return };
    let jobs = jobs.iter_mut().filter(|job| job.settings.workload.is_some() == have_workloads);
    jobs.for_each(|job| job.follow_scan(rate.0));
}

/// What packets have to pass several times, if any do; refuses those that would have to and cannot.
///
/// # Errors
/// [`PlanError`] names the job's payload, or the limit.
pub fn pipeline(
    refuse: &Refuse<'_>,
    keys: &HardwareKeys,
    (topology, network): (&Topology, &NetworkConfig),
    jobs: &[PreparedJob],
) -> Result<Option<Pipeline>, PlanError> {
    let sums = |job: &&PreparedJob| job.system.sums_at_switches();
    let pass_bytes = keys.elements.map_or(u64::MAX, |count| u64::from(count.0) * WORD);
    let longest = jobs.iter().filter(sums).map(|job| u64::from(job.spec(()).payload_bytes)).max().unwrap_or(0);
    let passes = longest.div_ceil(pass_bytes);
    if passes > 1 && keys.recirculation.is_none() {
        let expected =
            format!("more, a payload of at most {pass_bytes} B, or {KEY}.recirculation: {longest} B a packet take {passes} passes");
        return Err(match keys.preset {
            Some(HardwareName::Xdp) => refuse.at(KEY, format!("a payload of at most {pass_bytes} B, which a frame has room for")),
            _ if refuse.has(&format!("{KEY}.elements")) => refuse.at(&format!("{KEY}.elements"), expected),
            _ => refuse.at(KEY, format!("elements of {expected}")),
        });
    }
    let by_ports: Vec<bool> = jobs.iter().map(|job| job.system.multicasts_by_ports()).collect();
    let shard_ports = shards(refuse, keys, topology, jobs, by_ports.contains(&true))?;
    let groups_per_pass = keys.groups_per_pass.map_or(1, |count| u16::try_from(count.0).unwrap_or(u16::MAX));
    let several = shard_ports.is_some_and(|ports| most_ports(topology).div_ceil(ports) > groups_per_pass);
    if several && keys.recirculation.is_none() {
        let shards = shard_ports.map_or(0, |ports| most_ports(topology).div_ceil(ports));
        let expected = format!(
            "{KEY}.recirculation as well: a multicast goes to up to {shards} groups of {} ports each, and to {groups_per_pass} of them a pass",
            shard_ports.unwrap_or(0)
        );
        return Err(refuse.at(KEY, expected));
    }
    if passes <= 1 && !several {
        return Ok(None);
    }
    Ok(Some(Pipeline {
        pass_bytes,
        bits_per_second: keys.recirculation.map_or(0, |rate| rate.0),
        pass: keys.pass_time.map_or(Duration::ZERO, |time| time.0),
        queue_bytes: network.queue_bytes,
        mark_bytes: network.ecn_mark_bytes,
        shard_ports,
        groups_per_pass,
        by_ports,
    }))
}

fn most_ports(topology: &Topology) -> u16 {
    let switches = topology.map.switches().filter(|switch| topology.map.can_aggregate(*switch));
    switches.map(|switch| topology.map.neighbours(switch).len() as u16).max().unwrap_or(0)
}

/// Neighbouring ports of which every subset has a group: as many as there are groups for (Canary 4.2: s shards of p ports take 2^(p/s) s groups).
/// `None` where no job needs that, or groups have no limit.
fn shards(
    refuse: &Refuse<'_>,
    keys: &HardwareKeys,
    topology: &Topology,
    jobs: &[PreparedJob],
    by_ports: bool,
) -> Result<Option<u16>, PlanError> {
    let Some(groups) = keys.groups.map(|count| u64::from(count.0)) else { return Ok(None) };
    // A group for each tree of a job whose trees are known.
    let fixed = jobs.iter().filter(|job| job.system.sums_at_switches() && !job.system.multicasts_by_ports());
    let fixed: u64 = fixed.map(|job| u64::from(job.system.trees().unwrap_or(1))).sum();
    let key = if refuse.has(&format!("{KEY}.groups")) { format!("{KEY}.groups") } else { KEY.to_string() };
    if fixed > groups {
        return Err(refuse.at(&key, format!("multicast groups for {fixed} trees of jobs")));
    }
    if !by_ports {
        return Ok(None);
    }
    let ports = most_ports(topology);
    let needed = |of_shard: u16| u64::from(ports.div_ceil(of_shard)).saturating_mul(1u64.checked_shl(of_shard.into()).unwrap_or(u64::MAX));
    let fits = (1..=ports.min(63)).rev().find(|of_shard| needed(*of_shard) <= groups - fixed);
    fits.map(Some).ok_or_else(|| refuse.at(&key, format!("{} multicast groups or more: two for each of {ports} ports", needed(1) + fixed)))
}
