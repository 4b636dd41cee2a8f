//! From a job's configuration to its nodes.

use fanin_core::{Address, JobNodes, NetworkMap, NodeId, Payload, Role, SharedNode};
use fanin_protocols::shared::reliability::Reliability;

use crate::any::AnyNode;
use crate::config::{BuildError, JobSpec, UNLIMITED};
use crate::layout::leaf_of;
use crate::system::System;

/// The nodes that jobs share: at each switch one, for all jobs that use its aggregators (ATP, A2TP), one for all whose trees pass it (SHARP),
/// and one for all that share its descriptors (Canary, where a job says so). Jobs of other systems have none.
///
/// # Errors
/// The job's place in `specs` and what is wrong with it: jobs that share switches must agree about what these have.
pub fn shared<P: Payload + ?Sized>(
    specs: &[JobSpec<'_, P::Op>],
    map: &NetworkMap,
) -> Result<Vec<SharedNode<AnyNode<P>>>, (usize, BuildError)> {
    for (index, spec) in specs.iter().enumerate() {
        check_carriers(spec, map).map_err(|error| (index, error))?;
    }
    let nodes = System::shared(specs, map)?;
    for (index, spec) in specs.iter().enumerate() {
        let at = nodes.iter().filter(|node| node.jobs.contains(&spec.id)).map(|node| node.placed.at);
        only_where_sums_are_made(spec, map, at).map_err(|error| (index, error))?;
    }
    Ok(nodes)
}

impl<P: Payload + ?Sized> AnyNode<P> {
    /// A job comes to a switch that it shares with those that are there; it goes by [`fanin_core::Node::on_job_end`]. False, and nothing is
    /// changed, where the node is no such switch or the job has nothing there.
    ///
    /// # Errors
    /// [`BuildError`] where the job does not fit the network, or the switch as those that are there have it.
    pub fn admit(&mut self, switch: NodeId, spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<bool, BuildError> {
        spec.system.admit(self, switch, spec, map)
    }
}

/// The nodes of a job in a network.
///
/// # Errors
/// [`BuildError`] names the field that contradicts the network or another field.
pub fn build<P: Payload + ?Sized>(spec: &JobSpec<'_, P::Op>, map: &NetworkMap) -> Result<JobNodes<AnyNode<P>>, BuildError> {
    check(spec, map)?;
    check_carriers(spec, map)?;
    check_operator::<P>(&spec.system, &spec.op)?;
    let nodes = spec.system.nodes(spec, map)?;
    only_where_sums_are_made(spec, map, nodes.others.iter().map(|placed| placed.at))?;
    Ok(nodes)
}

/// Whether the system's nodes can do what the operator needs.
///
/// # Errors
/// [`BuildError`] of the field `operator`.
pub fn check_operator<P: Payload + ?Sized>(system: &System, op: &P::Op) -> Result<(), BuildError> {
    if !P::needs_finish(op) || system.divides() {
        return Ok(());
    }
    let others = System::names_of("and", |other| !other.divides());
    let expected = format!("one that needs no division at the end: {others} do not divide");
    Err(BuildError::new("operator", "avg", expected))
}

/// Some systems can do with a part of the switches; of the others every switch must aggregate that they use.
fn only_where_sums_are_made<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap, mut at: impl Iterator<Item = Address>) -> Result<(), BuildError> {
    match at.find(|at| at.role == Role::Switch && !map.can_aggregate(at.node)) {
        None => Ok(()),
        Some(at) => {
            let expected = format!("a system that can do without switch {}, which only forwards: atp, a2tp, rina, tree or panama", at.node);
            Err(BuildError::new("system", spec.system.name(), expected))
        }
    }
}

/// Where hosts join switches, packets that are summed have no other way between these.
fn check_carriers<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap) -> Result<(), BuildError> {
    let facts = spec.system.facts();
    if !map.has_carriers() || facts.is_carried() || !facts.sums_at_switches() {
        return Ok(());
    }
    let trees = System::names_of("or", |system| system.facts().is_carried());
    let hosts = System::names_of("or", |system| !system.facts().sums_at_switches());
    let expected =
        format!("one whose trees go through cards, {trees}, or that hosts do alone, {hosts}: machines' switches sum here (nvls)");
    Err(BuildError::new("system", spec.system.name(), expected))
}

fn check<Op>(spec: &JobSpec<'_, Op>, map: &NetworkMap) -> Result<(), BuildError> {
    if spec.hosts.is_empty() {
        return Err(BuildError::new("workers", 0, "at least 1"));
    }
    if spec.element_bytes == 0 {
        return Err(BuildError::new("element_bytes", 0, "at least 1"));
    }
    if spec.payload_bytes == 0 || !spec.payload_bytes.is_multiple_of(spec.element_bytes) {
        let expected = format!("a multiple of {}, the length of an element", spec.element_bytes);
        return Err(BuildError::new("payload", spec.payload_bytes, expected));
    }
    let may_be_unlimited = spec.system.facts().takes_unlimited_windows();
    if spec.window == 0 || spec.window > 1 << 20 && !(spec.window == UNLIMITED && may_be_unlimited) {
        let more = if may_be_unlimited { ", or unlimited" } else { "" };
        return Err(BuildError::new("window", spec.window, format!("1 to 1048576 packets{more}")));
    }
    if !spec.servers.is_empty() && spec.system.servers() == 0 {
        let expected = format!("0: {} has no servers", spec.system.name());
        return Err(BuildError::new("servers", spec.servers.len(), expected));
    }
    let mut taken = vec![false; map.hosts() as usize];
    for &host in spec.hosts.iter().chain(spec.servers) {
        leaf_of(map, host)?;
        if std::mem::replace(&mut taken[host.index()], true) {
            return Err(BuildError::new("hosts", host, "each host once"));
        }
    }
    Ok(())
}

pub(crate) fn reliability<Op>(spec: &JobSpec<'_, Op>) -> Reliability {
    if spec.reliable { Reliability::lossy(spec.rto_initial, spec.rto_min, spec.patience) } else { Reliability::LOSSLESS }
}

#[cfg(test)]
mod tests {
    use super::*;
    use fanin_core::{DType, Duration, ElementOp, JobId, Length, Operator};

    #[test]
    fn means_are_for_systems_that_divide() {
        let hosts = [0, 1].map(NodeId);
        let op = ElementOp::new(DType::F32, Operator::Avg).unwrap();
        let nodes = |system| {
            let spec = JobSpec {
                id: JobId(0),
                hosts: &hosts,
                servers: &[],
                system,
                op: op.into(),
                element_bytes: 4,
                payload_bytes: 64,
                window: 4,
                reliable: true,
                rto_initial: Duration::from_ms(1),
                rto_min: Duration::from_ms(1),
                patience: Duration::from_ms(100),
                seed: 0,
            };
            build::<[u8]>(&spec, &NetworkMap::star(2))
        };
        assert!(
            nodes(System::SwitchMl(crate::SwitchMlParameters { fixed_point: false })).is_ok()
                && nodes(System::canary()).is_ok()
                && nodes(System::rina()).is_ok()
        );
        let refused = nodes(System::tree(1)).unwrap_err().to_string();
        let expected = "operator = avg: expected one that needs no division at the end: ring, tree, sharp, flare";
        assert!(refused.starts_with(expected) && refused.ends_with(" do not divide"), "{refused}");
    }

    #[test]
    fn servers_are_for_systems_that_have_them() {
        let hosts = [0, 1, 2].map(NodeId);
        let spec = JobSpec {
            id: JobId(0),
            hosts: &hosts[..2],
            servers: &hosts[2..],
            system: System::Ring(crate::RingParameters::default()),
            op: (),
            element_bytes: 4,
            payload_bytes: 64,
            window: 4,
            reliable: true,
            rto_initial: Duration::from_ms(1),
            rto_min: Duration::from_ms(1),
            patience: Duration::from_ms(100),
            seed: 0,
        };
        let refused = build::<Length>(&spec, &NetworkMap::star(3)).unwrap_err().to_string();
        assert_eq!(refused, "servers = 1: expected 0: ring has no servers");
    }
}
