//! Every behaviour of small networks whose packets carry real elements, and not census weights.

use crate::small::{BLOCK, assert_found, assert_holds, assert_safe, model, star, two_levels};
use fanin_check::model::{EXACT, Limits, NetworkModel};
use fanin_core::payload::Density;
use fanin_core::{
    CustomKernel, CustomLayout, CustomOp, DType, Duration, ElementOp, JobId, NetworkMap, NodeId, OpError, Operator, PayloadOp,
};
use fanin_protocols::tree::Planted;
use fanin_systems::{AnyNode, BuildError, CanaryParameters, JobSpec, Placement, System};
use stateright::{Checker, Model};

const TREE: System = System::tree(1);

/// The same as [`model`], with elements.
fn model_of(
    (map, hosts): (NetworkMap, Vec<NodeId>),
    system: System,
    (op, element_bytes): (PayloadOp, u32),
    elements: &[u64],
    limits: Limits,
) -> Result<NetworkModel<[u8]>, BuildError> {
    let spec = JobSpec {
        id: JobId(0),
        hosts: &hosts,
        servers: &[],
        system,
        op,
        element_bytes,
        payload_bytes: element_bytes * BLOCK as u32,
        window: 1,
        reliable: true,
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience: Duration::from_ms(1_000),
        seed: 0,
    };
    NetworkModel::carrying(&[(spec, elements)], map, limits)
}

fn elements_of(network: (NetworkMap, Vec<NodeId>), op: ElementOp, elements: &[u64], limits: Limits) -> NetworkModel<[u8]> {
    let op = (op.into(), op.dtype.bytes() as u32);
    model_of(network, TREE, op, elements, limits).expect("the job fits the network")
}

fn one_of_each() -> Limits {
    Limits { losses: 1, duplicates: 1, early_timeouts: 1, rounds: 4 }
}

#[test]
fn trees_sum_elements_of_every_kind() {
    let operators = [(DType::I32, Operator::Sum), (DType::F32, Operator::Max), (DType::BF16, Operator::Sum), (DType::I64, Operator::Xor)];
    for (dtype, operator) in operators {
        let op = ElementOp::new(dtype, operator).expect("they go together");
        // The last block is shorter.
        let elements = elements_of(star(2), op, &[2 * BLOCK - 1], one_of_each());
        assert_holds(&format!("star of 2, {operator} of {dtype}"), elements, 5_000);
    }
}

/// Nodes do the same whatever packets carry, so there are as many states.
#[test]
fn elements_take_the_same_ways_as_the_census() {
    for (name, network) in [("star", star as fn(u32) -> _), ("two levels", |_| two_levels())] {
        let limits = Limits { losses: 2, rounds: 4, ..Limits::default() };
        let elements = elements_of(network(2), ElementOp::I32_SUM, &[2 * BLOCK, BLOCK], limits);
        let census = model(network(2), TREE, true, &[2 * BLOCK, BLOCK], limits);
        let states = [
            elements.checker().threads(2).spawn_bfs().join().unique_state_count(),
            census.checker().threads(2).spawn_bfs().join().unique_state_count(),
        ];
        println!("{name}: {states:?} states");
        assert!(states[0] == states[1] && states[0] > 500, "{name}: {states:?}");
    }
}

/// What a sum of floats by element consists of: the largest exponents, and sums of integers.
#[test]
fn canary_reduces_exponents_and_integers_whatever_comes_first() {
    for (dtype, operator) in [(DType::U8, Operator::Max), (DType::I32, Operator::Sum)] {
        let op = ElementOp::new(dtype, operator).expect("they go together");
        let parameters = CanaryParameters { descriptors: 1, placement: Placement::Static, ..CanaryParameters::default() };
        for (name, network) in [("star of 3", star(3)), ("two levels", two_levels())] {
            let payload = (op.into(), dtype.bytes() as u32);
            let model =
                model_of(network, System::Canary(parameters), payload, &[BLOCK + 1], Limits::default()).expect("the job fits the network");
            assert_safe(&format!("canary, {name}, {operator} of {dtype}"), model, 20);
        }
    }
}

#[test]
fn wrong_sums_of_elements_are_found() {
    let plant = |node: &mut AnyNode<[u8]>| {
        if let AnyNode::TreeSwitch(switch) = node {
            switch.plant(Planted::IgnoreBitmap);
        }
    };
    let model = elements_of(star(2), ElementOp::I32_SUM, &[BLOCK], one_of_each()).without_anti_replay().altered(plant);
    assert_found("a switch that adds copies", model, EXACT);
}

/// Trees know of no pairs.
#[test]
fn elements_of_a_sparse_vector_are_not_there() {
    let model = elements_of(star(2), ElementOp::I32_SUM, &[BLOCK], Limits::default()).with_pairs(0, Density::HALF);
    assert_found("a tree and sparse vectors", model, EXACT);
}

/// Reduces nothing.
#[derive(Debug)]
struct Idle;

impl CustomKernel for Idle {
    fn layout(&self) -> CustomLayout {
        CustomLayout { element_bytes: 4, accumulator_bytes: 4 }
    }

    fn identity(&self) -> u64 {
        0
    }

    fn begin(&mut self, _accumulator: &mut [u8], _input: &[u8]) -> Result<(), OpError> {
        Ok(())
    }

    fn combine(&mut self, _accumulator: &mut [u8], _input: &[u8]) -> Result<(), OpError> {
        Ok(())
    }

    fn finish(&mut self, _beside: Option<&[u8]>, _result: &mut [u8], _workers: u32) -> Result<(), OpError> {
        Ok(())
    }

    fn finishes(&self) -> bool {
        false
    }

    fn fork(&self) -> Box<dyn CustomKernel> {
        Box::new(Idle)
    }
}

#[test]
fn jobs_without_vectors_are_refused() {
    let words = |op: PayloadOp, element_bytes| {
        model_of(star(2), TREE, (op, element_bytes), &[BLOCK], Limits::default()).err().map(|error| error.to_string())
    };
    assert_eq!(words(ElementOp::I32_SUM.into(), 4), None);
    assert_eq!(words(ElementOp::I32_SUM.into(), 2).as_deref(), Some("element_bytes = 2: expected 4, the length of i32"));
    let custom = "operator = custom: expected one that is built in, for a job whose every behaviour is looked at";
    assert_eq!(words(PayloadOp::Custom(CustomOp(Box::new(Idle))), 4).as_deref(), Some(custom));
}
