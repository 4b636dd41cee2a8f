//! Parameter servers: their parameters, and the nodes of a job.

use fanin_core::{Address, FlowLabel, JobNodes, NetworkMap, NodeId, Payload, Placed, Rank, Role, Suspect};
use fanin_protocols::ps::{PsPeer, PsServerConfig, PsWindowConfig, PsWorkerConfig, WINDOW_MAX, WORKERS_MAX};
use fanin_protocols::shared::real::Real;

use serde::{Deserialize, Serialize};

use crate::any::AnyNode;
use crate::build::reliability;
use crate::campaign::{Campaign, DrawnJob, JobSize, Load};
use crate::config::{BuildError, JobSpec};
use crate::draw::Draw;
use crate::facts::{Facts, KeyUse, KeysOf, Nodes};
use crate::layout::leaf_of;
use crate::system::System;

pub(crate) use fanin_protocols::ps::{PsServer, PsWorker};
pub(crate) use fanin_wire::ps::{LAYOUT, PsHeader};

/// The parameters of parameter servers, with switches that only forward (baselines 4).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(default)]
pub struct PsParameters {
    /// With `servers = 0`: how many workers, from rank 0 on, host a shard; 0 for all.
    ///
    /// Default: all.
    pub shards: u32,
    /// The initial window in packets; 0 for the default.
    ///
    /// Default: half of `window`.
    pub initial: u32,
    /// How much the window (ps: at each server) grows per round trip; marks (the network's `ecn`) and timeouts halve it.
    pub increase_bytes: u32,
}

impl Default for PsParameters {
    fn default() -> Self {
        PsParameters { shards: 0, initial: 0, increase_bytes: 1_500 }
    }
}

impl System {
    /// One parameter server, or as many as the job has.
    pub fn ps() -> Self {
        System::Ps(PsParameters::default())
    }
}

impl Facts for PsParameters {
    fn servers(&self) -> u32 {
        1
    }

    fn obeys_marks(&self) -> bool {
        true
    }

    fn sums_at_switches(&self) -> bool {
        false
    }

    fn switch_slots(&self, _window: u32) -> u64 {
        0
    }

    fn idle_keys(&self, job: &KeysOf) -> Vec<KeyUse> {
        vec![("shards", !job.servers, "without servers = 0: shards are beside workers where there are no servers")]
    }

    // All contributions to a block may meet at the link of one server.
    fn load(&self, job: &JobSize) -> Load {
        Load::of(job, job.workers)
    }
}

impl Nodes for PsParameters {
    const CAMPAIGNS: &[Campaign] = &[Campaign { order: 37, stream: 37, draw: campaign }];

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
        nodes(spec, map, self)
    }
}

/// Workers, and a server for each shard: on hosts of their own, or beside workers.
fn nodes<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    parameters: &PsParameters,
) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    let count = spec.hosts.len();
    if count > WORKERS_MAX as usize {
        return Err(BuildError::new("workers", count, format!("at most {WORKERS_MAX}")));
    }
    let servers = servers(spec, map, parameters)?;
    let window = window(spec, parameters, servers.len() as u32)?;
    let addresses: Vec<Address> = spec.hosts.iter().map(|&host| Address::worker(host)).collect();
    let flow = FlowLabel(u32::from(spec.id.0));
    let worker = |(rank, &host): (usize, &NodeId)| {
        // All shards in turn, and no two workers the same one first, as far as there are enough.
        let first_shard = (rank as u32 + 1) % servers.len() as u32;
        let config = PsWorkerConfig {
            job: spec.id,
            rank: Rank(rank as u32),
            workers: count as u32,
            servers: servers.clone(),
            first_shard,
            op: spec.op.clone(),
            element_bytes: spec.element_bytes,
            block_elements: spec.payload_bytes / spec.element_bytes,
            window,
            reliability: reliability(spec),
            flow,
        };
        Placed { at: Address::worker(host), node: AnyNode::PsWorker(PsWorker::new(config)) }
    };
    let workers = spec.hosts.iter().enumerate().map(worker).collect();
    let server = |(shard, peer): (usize, &PsPeer)| {
        let config = PsServerConfig {
            job: spec.id,
            shard: shard as u16,
            workers: addresses.clone(),
            op: spec.op.clone(),
            block_bytes: spec.payload_bytes,
            window: window.longest,
            patience: reliability(spec).patience,
            flow,
        };
        Placed { at: peer.address, node: AnyNode::PsServer(PsServer::new(config)) }
    };
    // A lone worker's sum is its own vector.
    let others = if count > 1 { servers.iter().enumerate().map(server).collect() } else { Vec::new() };
    Ok(JobNodes { workers, others })
}

/// The servers by shard. Where nothing is heard of one, the worker beside it is suspected, or the switch that its host hangs on.
fn servers<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap, parameters: &PsParameters) -> Result<Vec<PsPeer>, BuildError> {
    let address = |node| Address { node, role: Role::Server };
    if !spec.servers.is_empty() {
        if parameters.shards != 0 {
            return Err(BuildError::new("shards", parameters.shards, "no such key where the job has servers of its own"));
        }
        let peer = |&host| Ok(PsPeer { address: address(host), suspect: Suspect::Switch(leaf_of(map, host)?.node) });
        return spec.servers.iter().map(peer).collect();
    }
    let shards = if parameters.shards == 0 { spec.hosts.len() } else { parameters.shards as usize };
    if shards > spec.hosts.len() {
        return Err(BuildError::new("shards", shards, format!("at most {}, the number of workers", spec.hosts.len())));
    }
    let beside = (0..).zip(&spec.hosts[..shards]);
    Ok(beside.map(|(rank, &host)| PsPeer { address: address(host), suspect: Suspect::Rank(Rank(rank)) }).collect())
}

/// The job's window, divided among the servers: a packet at each at least.
fn window<Op>(spec: &JobSpec<'_, Op>, parameters: &PsParameters, servers: u32) -> Result<PsWindowConfig, BuildError> {
    let longest = spec.window.div_ceil(servers);
    if longest > WINDOW_MAX {
        return Err(BuildError::new("window", spec.window, format!("1 to {WINDOW_MAX} packets for each server")));
    }
    let initial = if parameters.initial == 0 { longest.div_ceil(2) } else { parameters.initial.div_ceil(servers).min(longest) };
    let increase = f64::from(parameters.increase_bytes) / f64::from(spec.payload_bytes);
    Ok(PsWindowConfig { longest, initial, increase: Real::new(increase) })
}

/// Some jobs get parameter servers: all that were wanted, or one in ten of those without servers. A server of its own, several, or some or all
/// workers have one beside them.
fn campaign(draw: &mut Draw, map: &NetworkMap, jobs: &mut [DrawnJob], only: Option<&str>) {
    for job in jobs {
        let wanted = only.map_or_else(|| job.system.servers() == 0 && draw.percent(10), |name| name == "ps");
        if !wanted {
            continue;
        }
        let others: Vec<NodeId> = (0..map.hosts()).map(NodeId).filter(|host| !job.hosts.contains(host)).collect();
        let own = draw.between(0, 4.min(others.len() as u64)) as usize;
        let beside = if draw.percent(50) { 0 } else { draw.between(1, job.hosts.len() as u64) as u32 };
        job.servers = draw.sample(others.len() as u32, own).into_iter().map(|place| others[place as usize]).collect();
        job.system = System::Ps(PsParameters {
            shards: if own > 0 { 0 } else { beside },
            initial: draw.between(0, 40) as u32,
            increase_bytes: draw.scaled(1, 10_000) as u32,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::any::tests::comes_back;
    use crate::build;
    use fanin_core::{Duration, JobId, Length};
    use fanin_wire::ps::ShardBlock;

    fn spec<'a>(hosts: &'a [NodeId], servers: &'a [NodeId], parameters: PsParameters) -> JobSpec<'a, ()> {
        JobSpec {
            id: JobId(3),
            hosts,
            servers,
            system: System::Ps(parameters),
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

    #[test]
    fn servers_have_hosts_of_their_own_or_live_beside_workers() {
        let hosts: Vec<NodeId> = (0..6).map(NodeId).collect();
        let places = |workers: usize, servers: &[NodeId], shards| {
            let parameters = PsParameters { shards, ..PsParameters::default() };
            let nodes = build::<Length>(&spec(&hosts[..workers], servers, parameters), &NetworkMap::star(6)).unwrap();
            let role = |placed: &Placed<_>| (placed.at.role == Role::Server).then_some(placed.at.node.0);
            nodes.others.iter().map(|placed| role(placed).expect("servers only")).collect::<Vec<_>>()
        };
        assert_eq!(places(4, &hosts[5..], 0), [5]);
        assert_eq!(places(4, &hosts[4..], 0), [4, 5]);
        assert_eq!(places(4, &[], 0), [0, 1, 2, 3]);
        assert_eq!(places(4, &[], 1), [0]);
        assert_eq!(places(1, &[], 0), [0; 0], "a lone worker needs no server");
    }

    #[test]
    fn what_cannot_be_is_refused_by_its_name() {
        let hosts: Vec<NodeId> = (0..6).map(NodeId).collect();
        let error = |servers, shards, window| {
            let parameters = PsParameters { shards, ..PsParameters::default() };
            let spec = JobSpec { window, ..spec(&hosts[..4], servers, parameters) };
            build::<Length>(&spec, &NetworkMap::star(6)).map(|_| ()).unwrap_err().to_string()
        };
        assert_eq!(error(&[], 5, 64), "shards = 5: expected at most 4, the number of workers");
        assert_eq!(error(&hosts[5..], 2, 64), "shards = 2: expected no such key where the job has servers of its own");
        assert_eq!(error(&hosts[5..], 0, 40_000), "window = 40000: expected 1 to 32768 packets for each server");
    }

    #[test]
    fn packets_begin_with_the_systems_number() {
        comes_back(13, PsHeader::Rejected { at: ShardBlock { seq: 85, operation: 2, shard: 3 } });
    }
}
