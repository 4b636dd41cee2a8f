//! Every behaviour of small jobs of Flare's sparse allreduce, and bugs put in on purpose.

use crate::small::{assert_found, assert_holds, star, two_levels};
use fanin_check::model::{EXACT, Limits, NetworkModel};
use fanin_core::payload::{CensusPairs, Density};
use fanin_core::{Duration, ElementOp, JobId, NetworkMap, NodeId, OperationId, Pair, PayloadOp, Piece, Rank};
use fanin_protocols::flare::Planted;
use fanin_systems::{AnyNode, FlareParameters, FlareStorage, JobSpec, System};

fn flare(
    (map, hosts): (NetworkMap, Vec<NodeId>),
    id: u16,
    (range, payload_bytes, storage): (u32, u32, FlareStorage),
    elements: &[u64],
    limits: Limits,
) -> NetworkModel<[u8]> {
    let parameters = FlareParameters { density: 0.5, range, storage, slots: 1, staggered: false, ..FlareParameters::default() };
    let spec = JobSpec {
        id: JobId(id),
        hosts: &hosts,
        servers: &[],
        system: System::Flare(parameters),
        op: PayloadOp::from(ElementOp::I32_SUM),
        element_bytes: 4,
        payload_bytes,
        window: 1,
        reliable: true,
        rto_initial: Duration::from_ps(16),
        rto_min: Duration::from_ps(1),
        patience: Duration::from_ms(1_000),
        seed: 0,
    };
    NetworkModel::carrying(&[(spec, elements)], map, limits).expect("the job fits").with_pairs(0, Density::HALF)
}

/// A job in whose first operation, with blocks of 4, sums cancel out, a rank has nothing, and both have something.
fn job() -> u16 {
    let read = |id, rank, index: u32| {
        let of = CensusPairs { job: JobId(id), op: ElementOp::I32_SUM, density: Density::HALF };
        let mut pairs: Vec<Pair> = Vec::new();
        of.read(Rank(rank), Piece { operation: OperationId(0), index, start: 4 * u64::from(index), elements: 4 }, &mut pairs);
        pairs
    };
    (0..1_000)
        .find(|&id| {
            let blocks = [0, 1].map(|index| [read(id, 0, index), read(id, 1, index)]);
            let shared = |cancels: bool| {
                blocks.iter().any(|[a, b]| {
                    a.iter().any(|x| b.iter().any(|y| x.index == y.index && ((x.bits as i32).wrapping_add(y.bits as i32) == 0) == cancels))
                })
            };
            shared(true) && shared(false) && blocks.iter().flatten().any(Vec::is_empty) && blocks[0].iter().any(|of| of.len() > 2)
        })
        .expect("there is one")
}

#[test]
fn every_behaviour_of_small_jobs_is_right() {
    let limits = Limits { losses: 1, duplicates: 1, early_timeouts: 1, rounds: 4 };
    for storage in [FlareStorage::Array, FlareStorage::Table] {
        assert_holds(&format!("star, {storage:?}"), flare(star(2), job(), (4, 24, storage), &[8], limits), 1_000);
        let limits = Limits { losses: 1, rounds: 3, ..Limits::default() };
        assert_holds(&format!("two levels, {storage:?}"), flare(two_levels(), job(), (4, 24, storage), &[8], limits), 1_000);
    }
}

#[test]
fn planted_bugs_have_counterexamples() {
    let limits = Limits { losses: 1, duplicates: 1, early_timeouts: 1, rounds: 4 };
    for bug in [Planted::IgnoreNumbers, Planted::CountOnePacket, Planted::LoseSpill] {
        let plant = |node: &mut AnyNode<[u8]>| {
            if let AnyNode::FlareSwitch(switch) = node {
                switch.plant(bug);
            }
        };
        let model = flare(star(2), job(), (4, 12, FlareStorage::Table), &[8], limits).without_anti_replay().altered(plant);
        assert_found(&format!("{bug:?}"), model, EXACT);
    }
}
