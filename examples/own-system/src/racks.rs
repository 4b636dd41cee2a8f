//! Hierarchical parameter servers at racks, as in PHub (Luo et al., "Parameter Hub: a Rack-Scale Parameter Server for Distributed Deep Neural
//! Network Training", SoCC 2018, 3.4): every rack sums what its workers push, and only sums of racks cross the network's core. Each block has a
//! home among the racks, which adds up the racks' sums and gives the result back the same way.

use fanin_core::{Address, FlowLabel, JobNodes, NetworkMap, NodeId, Payload, Placed};
use fanin_systems::{BuildError, Facts, JobSize, JobSpec, Load, OwnNode, OwnSystem};
use serde::{Deserialize, Serialize};

use crate::switch::{RackSwitch, SwitchConfig};
use crate::worker::{RackWorker, WorkerConfig};

/// Racks, and workers of a rack, at most: a bit for each.
const PLACES_MAX: usize = 64;
/// Packets that a worker has under way at most.
const WINDOW_MAX: u32 = 1 << 15;

/// At which racks blocks have their homes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Home {
    /// At all of them in turn.
    #[default]
    Spread,
    /// At that of rank 0.
    First,
}

/// The parameters: keys of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Racks {
    /// Where blocks have their homes.
    pub home: Home,
}

impl Facts for Racks {
    // A block's sum of the rack, and that of all.
    fn slot_bytes(&self, job: &JobSpec<'_, ()>, _map: &NetworkMap, _switch: NodeId) -> u64 {
        2 * u64::from(job.payload_bytes)
    }

    // A worker suspects its rack, whoever is missing.
    fn finds_the_dead(&self) -> bool {
        false
    }

    // All racks' sums of a block meet at its home.
    fn load(&self, job: &JobSize) -> Load {
        Load::of(job, job.workers)
    }
}

impl OwnSystem for Racks {
    const NAME: &'static str = "racks";

    fn nodes<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<OwnNode<P>>, BuildError> {
        if spec.window > WINDOW_MAX {
            return Err(BuildError::new("window", spec.window, format!("1 to {WINDOW_MAX} packets")));
        }
        let mut racks: Vec<(NodeId, Vec<Address>)> = Vec::new();
        let mut workers = Vec::new();
        for &host in spec.hosts {
            let leaf = map.leaf_of(host).ok_or_else(|| BuildError::new("hosts", host, "hosts with a cable"))?.node;
            if !racks.iter().any(|(rack, _)| *rack == leaf) {
                racks.push((leaf, Vec::new()));
            }
            let at = Address::worker(host);
            let Some((_, members)) = racks.iter_mut().find(|(rack, _)| *rack == leaf) else { continue };
            members.push(at);
            workers.push(Placed { at, node: OwnNode::worker(RackWorker::<P>::new(self.worker::<P>(spec, leaf, members.len() - 1))) });
        }
        let most = racks.iter().map(|(_, members)| members.len()).max().unwrap_or(0).max(racks.len());
        if most > PLACES_MAX {
            return Err(BuildError::new("workers", spec.hosts.len(), format!("at most {PLACES_MAX} racks, and workers of a rack")));
        }
        // A lone worker's sum is its own vector.
        if spec.hosts.len() == 1 {
            racks.clear();
        }
        let homes: Vec<Address> = racks.iter().map(|(rack, _)| Address::switch(*rack)).collect();
        let others = racks.into_iter().enumerate().map(|(place, (rack, members))| {
            let config = SwitchConfig {
                place,
                members,
                racks: homes.clone(),
                spread: self.home == Home::Spread,
                workers: spec.hosts.len() as u32,
                op: spec.op.clone(),
                block_bytes: spec.payload_bytes,
                window: spec.window,
                flow: FlowLabel(u32::from(spec.id.0)),
            };
            Placed { at: Address::switch(rack), node: OwnNode::other(RackSwitch::<P>::new(config)) }
        });
        Ok(JobNodes { workers, others: others.collect() })
    }
}

impl Racks {
    fn worker<P: Payload + ?Sized>(&self, spec: &JobSpec<'_, P::Op>, rack: NodeId, place: usize) -> WorkerConfig<P::Op> {
        WorkerConfig {
            job: spec.id,
            rack: Address::switch(rack),
            place: place as u16,
            workers: spec.hosts.len() as u32,
            op: spec.op.clone(),
            element_bytes: spec.element_bytes,
            block_elements: spec.payload_bytes / spec.element_bytes,
            window: spec.window,
            timers: spec.reliable.then_some((spec.rto_initial.max(spec.rto_min), spec.patience)),
            flow: FlowLabel(u32::from(spec.id.0)),
        }
    }
}
