//! Networks and jobs that are small enough for every behaviour to be looked at.

use std::time::Instant;

use fanin_check::model::{COMPLETE, EXACT, Limits, Modelled, NEVER_STUCK, NOTHING_LEFT, NetworkModel, PROGRESS};
use fanin_core::{Duration, JobId, NetworkMap, NodeId};
use fanin_systems::{JobSpec, System};
use stateright::{Checker, HasDiscoveries, Model};

mod record;

pub use record::Literal;
use record::Record;

/// Elements of a packet.
pub const BLOCK: u64 = 4;

pub fn star(workers: u32) -> (NetworkMap, Vec<NodeId>) {
    (NetworkMap::star(workers), (0..workers).map(NodeId).collect())
}

/// Two leaves with a host each under one root.
pub fn two_levels() -> (NetworkMap, Vec<NodeId>) {
    let mut map = NetworkMap::new(2, &[1, 1, 2]);
    map.join(NodeId(0), NodeId(2));
    map.join(NodeId(1), NodeId(3));
    map.join(NodeId(2), NodeId(4));
    map.join(NodeId(3), NodeId(4));
    (map, vec![NodeId(0), NodeId(1)])
}

/// A job with a window of one packet, so that every block uses the same slots again.
pub fn model((map, hosts): (NetworkMap, Vec<NodeId>), system: System, reliable: bool, elements: &[u64], limits: Limits) -> NetworkModel {
    let spec = JobSpec {
        id: JobId(0),
        hosts: &hosts,
        servers: &[],
        system,
        op: (),
        element_bytes: 4,
        payload_bytes: 4 * BLOCK as u32,
        window: 1,
        reliable,
        // Times mean little here; but what a node may do again after some time, it may do at once.
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience: Duration::from_ms(1_000),
        seed: 0,
    };
    NetworkModel::new(&spec, map, elements, limits).expect("the job fits the network")
}

/// Looks at all states, of which there must be at least so many, and finds nothing wrong.
pub fn assert_holds<P: Modelled + ?Sized>(name: &str, model: NetworkModel<P>, states_min: usize) {
    assert_all(name, model, &[EXACT, NEVER_STUCK, PROGRESS, NOTHING_LEFT], states_min);
}

/// The same where jobs wait for each other in turns that the model does not know of: not that it comes to an end soon.
pub fn assert_safe<P: Modelled + ?Sized>(name: &str, model: NetworkModel<P>, states_min: usize) {
    assert_all(name, model, &[EXACT, NEVER_STUCK, NOTHING_LEFT], states_min);
}

fn assert_all<P: Modelled + ?Sized>(name: &str, model: NetworkModel<P>, properties: &[&'static str], states_min: usize) {
    let (summary, begin) = (model.summary(), Instant::now());
    let checker = model.checker().threads(2).spawn_bfs().join();
    let found = (checker.unique_state_count(), checker.max_depth(), begin.elapsed());
    assert!(checker.is_done());
    for &property in properties {
        if let Some(path) = checker.discovery(property) {
            panic!("{name}: {property}: not so after {:?}, {:?}", path.clone().into_actions(), path.last_state());
        }
    }
    assert!(checker.discovery(COMPLETE).is_some(), "{name}: no way to the end");
    assert!(found.0 >= states_min, "{name}: only {} states", found.0);
    Record::new(name, summary, properties, found).write();
}

/// Looks for a state in which the property does not hold, and finds one.
pub fn assert_found<P: Modelled + ?Sized>(name: &str, model: NetworkModel<P>, property: &'static str) {
    assert_breaks(name, model, property, None);
}

/// The same for a rule that a paper has word by word, and not for a bug put in: its clause, and why it breaks.
pub fn assert_literal_breaks<P: Modelled + ?Sized>(name: &str, model: NetworkModel<P>, property: &'static str, rule: Literal) {
    assert_breaks(name, model, property, Some(rule));
}

fn assert_breaks<P: Modelled + ?Sized>(name: &str, model: NetworkModel<P>, property: &'static str, literal: Option<Literal>) {
    let (summary, begin) = (model.summary(), Instant::now());
    let checker = model.checker().threads(2).finish_when(HasDiscoveries::AnyFailures).spawn_bfs().join();
    let found = (checker.unique_state_count(), checker.max_depth(), begin.elapsed());
    let path = checker.discovery(property).unwrap_or_else(|| panic!("{name}: {property}: no counterexample"));
    let steps = path.into_actions().iter().map(|action| format!("{action:?}")).collect();
    Record::new(name, summary, &[property], found).broken_by(steps, literal).write();
}
