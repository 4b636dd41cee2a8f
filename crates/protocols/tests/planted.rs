//! Bugs put in on purpose are found by the comparison of every delivered piece: `cargo test -p fanin-protocols --features planted-bugs`.

use crate::common::{Faults, HasVectors, JOB, Net, Script};
use fanin_core::{Census, Duration, NodeId, PortId, Rank, Suspect};
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::tree::{Planted, TreeChild, TreeRole, TreeSwitch, TreeSwitchConfig, TreeWorker, TreeWorkerConfig};

const WORKERS: u32 = 3;

/// Three workers at one switch that has a bug, on a network that loses every tenth packet.
fn run(bug: Planted) {
    let reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), Duration::from_ms(50));
    let worker = |rank| {
        TreeWorker::<Census>::new(TreeWorkerConfig {
            job: JOB,
            rank: Rank(rank),
            workers: WORKERS,
            op: Census::OP,
            element_bytes: crate::common::ELEMENT_BYTES,
            block_elements: 4,
            window: 4,
            uplink: PortId(0),
            leaf: NodeId(WORKERS),
            reliability,
        })
    };
    let child = |rank| TreeChild { port: PortId(rank as u16), who: Suspect::Rank(Rank(rank)), carrier: None };
    let mut switch = TreeSwitch::new(TreeSwitchConfig {
        job: JOB,
        op: Census::OP,
        block_bytes: 16,
        window: 4,
        trees: vec![Some(TreeRole { parent: None, children: (0..WORKERS).map(child).collect() })],
        reliable: true,
        resend_gap: Duration::from_us(15),
        fixed_order: false,
    });
    switch.plant(bug);
    let faults = Faults { seed: 9, loss: 100, ..Faults::NONE };
    let scripts = vec![Script::of(&[400]); WORKERS as usize];
    let mut net = Net::<Census, _, _, _>::new(Census::OP, (0..WORKERS).map(worker).collect(), vec![switch], scripts, faults);
    (0..WORKERS).for_each(|rank| net.join(rank as usize, PortId(0), WORKERS as usize, PortId(rank as u16)));
    net.run(Duration::from_ms(10_000)).all_done(1);
}

#[test]
fn without_a_bug_every_sum_is_right() {
    run(Planted::None);
}

#[test]
#[should_panic(expected = "rank")]
fn a_lost_bitmap_check_is_found() {
    run(Planted::IgnoreBitmap);
}

#[test]
#[should_panic(expected = "rank")]
fn an_accumulator_that_is_not_reset_is_found() {
    run(Planted::KeepAccumulator);
}
