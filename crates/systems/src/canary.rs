//! The nodes of a Canary job.

use std::sync::Arc;

use fanin_core::{Address, Duration, JobNodes, NetworkMap, NodeId, Payload, Placed, Rank};
use fanin_protocols::canary::{self, CanarySwitch, CanarySwitchConfig, CanaryWorker, CanaryWorkerConfig, Clock, Recovery, Timeout};

use crate::any::AnyNode;
use crate::build::reliability;
use crate::config::{BuildError, CanaryParameters, FailureRule, JobSpec, Placement, UNLIMITED};
use crate::layout::leaf_of;

impl CanaryParameters {
    /// The longest that a switch waits, in ps.
    pub fn timeout_longest_ps(&self) -> u64 {
        if self.timeout_adaptive {
            return self.timeout_max_ps;
        }
        let others = [self.timeout_spine_ps, self.timeout_root_ps].into_iter().flatten();
        others.fold(self.timeout_ps, u64::max).saturating_add(self.scan_ps)
    }
}

pub(crate) fn nodes<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    parameters: &CanaryParameters,
) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    if spec.patience == Duration::ZERO {
        return Err(BuildError::new("patience", spec.patience, "more than 0"));
    }
    let (workers, nodes) = (spec.hosts.len(), map.nodes());
    if workers > usize::from(u16::MAX) {
        return Err(BuildError::new("workers", workers, "at most 65535, which packets count with 16 bits"));
    }
    if nodes > 1 << 16 {
        return Err(BuildError::new("network", nodes, "at most 65536 hosts and switches, which packets name with 16 bits"));
    }
    if parameters.descriptors == 0 || parameters.descriptors > 1 << 24 {
        return Err(BuildError::new("descriptors", parameters.descriptors, "1 to 16777216"));
    }
    let timeout = timeout(parameters)?;
    let (lifetime, recovery) = recovery(spec, parameters)?;
    let members: Arc<[NodeId]> = spec.hosts.into();
    let worker = |(rank, &host): (usize, &NodeId)| {
        let leaf = leaf_of(map, host)?;
        let config = CanaryWorkerConfig {
            job: spec.id,
            rank: Rank(rank as u32),
            members: Arc::clone(&members),
            op: spec.op.clone(),
            element_bytes: spec.element_bytes,
            block_elements: spec.payload_bytes / spec.element_bytes,
            window: if spec.window == UNLIMITED { canary::WINDOW_UNLIMITED } else { spec.window },
            patience: spec.patience,
            recovery,
            uplink: leaf.port,
            leaf: leaf.node,
        };
        Ok(Placed { at: Address::worker(host), node: AnyNode::CanaryWorker(CanaryWorker::new(config)) })
    };
    let workers: Vec<Placed<AnyNode<P>>> = spec.hosts.iter().enumerate().map(worker).collect::<Result<_, BuildError>>()?;
    // A lone worker needs no network; otherwise packets may pass any switch, since balancers choose the paths.
    let others = if workers.len() == 1 {
        Vec::new()
    } else {
        map.switches().map(|switch| switch_node(spec, map, switch, parameters, timeout, lifetime)).collect()
    };
    Ok(JobNodes { workers, others })
}

/// How long descriptors live, and what workers do about losses.
fn recovery<Op>(spec: &JobSpec<'_, Op>, parameters: &CanaryParameters) -> Result<(Duration, Recovery), BuildError> {
    if !spec.reliable {
        return Ok((Duration::MAX, Recovery::NONE));
    }
    if spec.window > canary::RELIABLE_WINDOW_MAX {
        let expected = format!("1 to {} packets, each of which is remembered until its sum has come", canary::RELIABLE_WINDOW_MAX);
        return Err(BuildError::new("window", spec.window, expected));
    }
    if !(1..=canary::GENERATIONS_MAX).contains(&parameters.generations) {
        return Err(BuildError::new("generations", parameters.generations, format!("1 to {}", canary::GENERATIONS_MAX)));
    }
    let reliability = reliability(spec);
    let lifetime = match parameters.lifetime_ps {
        0 => spec.patience.divided(2),
        lifetime_ps => Duration::from_ps(lifetime_ps),
    };
    // `canary 5.10`: a descriptor that is given up too early costs its workers a request each.
    let shortest = spec.rto_min.times(4);
    if lifetime < shortest {
        return Err(BuildError::new("lifetime", lifetime, format!("{shortest} at least, four times rto_min")));
    }
    let rule = match parameters.failure {
        FailureRule::FirstRequest => canary::FailureRule::FirstRequest,
        FailureRule::Hold => canary::FailureRule::AfterHold(Duration::from_ps(parameters.hold_ps)),
        FailureRule::AllAsked => canary::FailureRule::AllAsked,
    };
    Ok((lifetime, Recovery { rule, generations: parameters.generations, ..Recovery::new(reliability, lifetime) }))
}

/// The timeout of a job's switches.
fn timeout(parameters: &CanaryParameters) -> Result<Timeout, BuildError> {
    let CanaryParameters { timeout_adaptive, timeout_ps, timeout_min_ps, timeout_max_ps, .. } = *parameters;
    let [fixed, min, max] = [timeout_ps, timeout_min_ps, timeout_max_ps].map(Duration::from_ps);
    match timeout_adaptive {
        false => Ok(Timeout::Fixed(fixed)),
        true if min == Duration::ZERO || min > max => {
            Err(BuildError::new("timeout_min", min, format!("more than 0, and not more than timeout_max, {max}")))
        }
        true => Ok(Timeout::Adaptive { min, max }),
    }
}

fn switch_node<P: Payload + ?Sized>(
    spec: &JobSpec<'_, P::Op>,
    map: &NetworkMap,
    switch: NodeId,
    parameters: &CanaryParameters,
    timeout: Timeout,
    descriptor_lifetime: Duration,
) -> Placed<AnyNode<P>> {
    let ends = map.neighbours(switch).iter().map(|neighbour| neighbour.node);
    let mut hosts: Vec<NodeId> = ends.filter(|end| map.is_host(*end)).collect();
    hosts.sort_unstable();
    let timeout = match (timeout, parameters.timeout_spine_ps) {
        (Timeout::Fixed(_), Some(spine_ps)) if hosts.is_empty() => Timeout::Fixed(Duration::from_ps(spine_ps)),
        _ => timeout,
    };
    let config = CanarySwitchConfig {
        job: spec.id,
        node: switch,
        ports: map.neighbours(switch).len() as u16,
        op: spec.op.clone(),
        block_bytes: spec.payload_bytes,
        timeout,
        descriptors: parameters.descriptors,
        placement: match parameters.placement {
            Placement::Hash => canary::Placement::Hash,
            Placement::Static => canary::Placement::Static,
        },
        descriptor_lifetime,
    };
    let mut node = CanarySwitch::new(config);
    let root = parameters.timeout_root_ps.map(Duration::from_ps);
    if let (Timeout::Fixed(fixed), true) = (timeout, root.is_some() || parameters.scan_ps > 0) {
        node = node.with_clock(fixed, Clock { scan: Duration::from_ps(parameters.scan_ps), root, hosts: hosts.into(), seed: spec.seed });
    }
    Placed { at: Address::switch(switch), node: AnyNode::CanarySwitch(node) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::System;
    use fanin_core::{JobId, Length};

    fn built(hosts: &[u32], change: impl FnOnce(&mut JobSpec<'_, ()>)) -> Result<JobNodes<AnyNode<Length>>, String> {
        let hosts: Vec<NodeId> = hosts.iter().copied().map(NodeId).collect();
        let mut spec = JobSpec {
            id: JobId(1),
            hosts: &hosts,
            servers: &[],
            system: System::canary(),
            op: (),
            element_bytes: 4,
            payload_bytes: 1024,
            window: UNLIMITED,
            reliable: false,
            rto_initial: Duration::ZERO,
            rto_min: Duration::ZERO,
            patience: Duration::from_ms(100),
            seed: 0,
        };
        change(&mut spec);
        let mut map = NetworkMap::new(4, &[1, 1, 2]);
        for (a, b) in [(0, 4), (1, 4), (2, 5), (3, 5), (4, 6), (5, 6)] {
            map.join(NodeId(a), NodeId(b));
        }
        crate::build(&spec, &map).map_err(|error| error.to_string())
    }

    #[test]
    fn every_switch_takes_part() {
        let nodes = built(&[3, 0], |_| {}).unwrap();
        let at = |placed: &[Placed<AnyNode<Length>>]| placed.iter().map(|placed| placed.at.node.0).collect::<Vec<_>>();
        assert_eq!((at(&nodes.workers), at(&nodes.others)), (vec![3, 0], vec![4, 5, 6]));
        assert_eq!(built(&[3], |_| {}).unwrap().others, []);
    }

    #[test]
    fn what_it_cannot_do_is_named() {
        let error = |change: fn(&mut JobSpec<'_, ()>)| built(&[0, 1], change).unwrap_err();
        let unlimited = "window = 4294967295: expected 1 to 65536 packets, each of which is remembered until its sum has come";
        assert_eq!(error(|spec| spec.reliable = true), unlimited);
        let reliable = |change: fn(&mut CanaryParameters)| {
            let mut parameters = CanaryParameters::default();
            change(&mut parameters);
            built(&[0, 1], |spec| {
                (spec.reliable, spec.window, spec.rto_min) = (true, 64, Duration::from_us(10));
                spec.system = System::Canary(parameters);
            })
        };
        assert!(reliable(|_| {}).is_ok());
        assert_eq!(reliable(|parameters| parameters.generations = 16).unwrap_err(), "generations = 16: expected 1 to 15");
        let short = reliable(|parameters| parameters.lifetime_ps = 39_000_000).unwrap_err();
        assert_eq!(short, "lifetime = 39 us: expected 40 us at least, four times rto_min");
        assert_eq!(error(|spec| spec.patience = Duration::ZERO), "patience = 0 ps: expected more than 0");
        assert_eq!(error(|spec| spec.window = 0), "window = 0: expected 1 to 1048576 packets, or unlimited");
        let without_places = |spec: &mut JobSpec<'_, ()>| {
            spec.system = System::Canary(CanaryParameters { descriptors: 0, ..CanaryParameters::default() });
        };
        assert_eq!(error(without_places), "descriptors = 0: expected 1 to 16777216");
        assert_eq!(error(|spec| spec.system = System::Tree { trees: 1 }), "window = 4294967295: expected 1 to 1048576 packets");
    }
}
