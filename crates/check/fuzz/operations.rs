//! Operations under packets that a fuzzer delivers, loses, repeats and delays as its bytes say, in networks that are too large for
//! every behaviour to be looked at. An ordinary test runs what a fuzzer has found (`make fuzz`).
#![allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`")]

use fanin_check::model::{Action, EXACT, Limits, NEVER_STUCK, NetworkModel};
use fanin_core::{Duration, JobId, NetworkMap, NodeId};
use fanin_systems::{JobSpec, System};
use stateright::Model;

/// Elements of a packet.
const BLOCK: u64 = 4;
/// Steps of a walk at most.
const STEPS_MAX: usize = 400;

/// Hosts on leaves under one root, or around one switch.
fn network(shape: u8) -> (NetworkMap, Vec<NodeId>) {
    let workers = 2 + u32::from(shape >> 1 & 3);
    if shape & 1 == 0 {
        return (NetworkMap::star(workers), (0..workers).map(NodeId).collect());
    }
    let (mut map, leaves) = (NetworkMap::new(workers, &[1, 1, 2]), [NodeId(workers), NodeId(workers + 1)]);
    for host in 0..workers {
        map.join(NodeId(host), leaves[host as usize % 2]);
    }
    for leaf in leaves {
        map.join(leaf, NodeId(workers + 2));
    }
    (map, (0..workers).map(NodeId).collect())
}

/// What a fuzzer's first four bytes stand for: a system, a network, a window, operations; none where the system is not for such a network.
fn model(system: System, [shape, window, size]: [u8; 3]) -> Option<NetworkModel> {
    let (map, hosts) = network(shape);
    let elements: Vec<u64> = match size >> 6 {
        0 => vec![u64::from(size & 31)],
        _ => vec![1 + u64::from(size & 15), 1 + u64::from(size >> 4 & 3)],
    };
    let servers: Vec<NodeId> = hosts[..1].to_vec();
    let spec = JobSpec {
        id: JobId(0),
        hosts: &hosts,
        servers: if system.servers() > 0 { &servers } else { &[] },
        system,
        op: (),
        element_bytes: 4,
        payload_bytes: 4 * BLOCK as u32,
        window: 1 + u32::from(window % 4),
        reliable: true,
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience: Duration::from_ms(1_000),
        seed: 0,
    };
    let limits = Limits { losses: 12, duplicates: 12, early_timeouts: 12, rounds: 100 };
    NetworkModel::new(&spec, map, &elements, limits).ok()
}

/// Takes a step for each byte; what has to hold in every state does: results are exact, and somebody can go on. A worker that says that it has given up
/// ends the walk, since timers run out so often here that patience does. Gives the steps.
fn walk(name: &str, model: &NetworkModel, bytes: &[u8]) -> Vec<Action> {
    let properties: Vec<_> = model.properties().into_iter().filter(|property| [EXACT, NEVER_STUCK].contains(&property.name)).collect();
    assert_eq!(properties.len(), 2);
    let mut state = model.init_states().remove(0);
    let (mut steps, mut actions) = (Vec::new(), Vec::new());
    for byte in bytes.iter().take(STEPS_MAX) {
        actions.clear();
        model.actions(&state, &mut actions);
        if actions.is_empty() {
            break;
        }
        let action = actions.swap_remove(usize::from(*byte) % actions.len());
        steps.push(action.clone());
        state = model.next_state(&state, action).expect("an action of this state");
        if state.wrong.as_ref().is_some_and(|wrong| wrong.starts_with("worker ") && wrong.contains(" failed: ")) {
            break;
        }
        for property in &properties {
            assert!((property.condition)(model, &state), "{name}: {}: not so, {:?}, after {steps:?}", property.name, state.wrong);
        }
    }
    steps
}

#[test]
fn operations_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
        let [system, shape, window, size, rest @ ..] = bytes else { return };
        let systems = System::all();
        let system = systems[usize::from(*system) % systems.len()];
        if let Some(model) = model(system, [*shape, *window, *size]) {
            walk(system.name(), &model, rest);
        }
    });
}

/// A walk means something: in networks of these kinds eight systems make many steps, of every kind that a walk may take.
#[test]
fn walks_go_far() {
    let mut walked = Vec::new();
    for system in System::all() {
        let bytes: Vec<u8> = (0..STEPS_MAX as u64).map(|at| fanin_core::hash::mix(7, at) as u8).collect();
        let steps =
            (0..8).filter_map(|shape| model(system, [shape, 1, 9])).map(|model| walk(system.name(), &model, &bytes)).max_by_key(Vec::len);
        walked.extend(steps.filter(|steps| steps.len() > 20).map(|steps| (system.name(), steps)));
    }
    // The others ask for networks or parameters of their own, which their models have (`crates/check/tests`).
    let names: Vec<_> = walked.iter().map(|(name, _)| *name).collect();
    for name in ["ring", "tree", "canary", "switchml", "panama", "sharp", "rina", "exchange"] {
        assert!(names.contains(&name), "{name} does not walk: {names:?}");
    }
    let all: Vec<&Action> = walked.iter().flat_map(|(_, steps)| steps).collect();
    assert!(all.iter().any(|action| matches!(action, Action::Lose(_))) && all.iter().any(|action| matches!(action, Action::Repeat(_))));
    assert!(all.iter().any(|action| matches!(action, Action::EarlyTimeout(_))));
}
