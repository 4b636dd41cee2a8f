//! SwitchML with bugs put in on purpose, found by the comparison of every delivered piece:
//! `cargo test -p fanin-protocols --features planted-bugs`.

use crate::common::{Faults, HasVectors, JOB, Net, Script};
use fanin_core::{Census, Duration, NodeId, PortId, Rank, Suspect};
use fanin_protocols::shared::reliability::Reliability;
use fanin_protocols::switchml::{Planted, SwitchMlChild, SwitchMlSwitch, SwitchMlSwitchConfig, SwitchMlWorker, SwitchMlWorkerConfig};

const WORKERS: u32 = 3;

/// Three workers at one switch that has a bug.
fn run(bug: Planted, faults: Faults) {
    let reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), Duration::from_ms(50));
    let worker = |rank| {
        SwitchMlWorker::<Census>::new(SwitchMlWorkerConfig {
            job: JOB,
            rank: Rank(rank),
            workers: WORKERS,
            op: Census::OP,
            element_bytes: crate::common::ELEMENT_BYTES,
            block_elements: 4,
            pool: 1,
            uplink: PortId(0),
            switch: NodeId(WORKERS),
            reliability,
            fixed_point: false,
        })
    };
    let child = |rank| SwitchMlChild { port: PortId(rank as u16), who: Suspect::Rank(Rank(rank)), carrier: None };
    let mut switch = SwitchMlSwitch::new(SwitchMlSwitchConfig {
        job: JOB,
        op: Census::OP,
        workers: WORKERS,
        block_bytes: 16,
        pool: 1,
        parent: None,
        children: (0..WORKERS).map(child).collect(),
        fixed_point: false,
        resend_gap: Duration::from_us(15),
    });
    switch.plant(bug);
    let scripts = vec![Script::of(&[400]); WORKERS as usize];
    let mut net = Net::<Census, _, _, _>::new(Census::OP, (0..WORKERS).map(worker).collect(), vec![switch], scripts, faults);
    (0..WORKERS).for_each(|rank| net.join(rank as usize, PortId(0), WORKERS as usize, PortId(rank as u16)));
    net.run(Duration::from_ms(10_000)).all_done(1);
}

/// Every tenth packet is lost.
const LOSS: Faults = Faults { seed: 9, loss: 100, ..Faults::NONE };
/// Packets are repeated, and come late.
const LATE: Faults = Faults { seed: 9, duplication: 300, jitter_us: 200, ..Faults::NONE };

#[test]
fn without_a_bug_every_sum_is_right() {
    run(Planted::None, LOSS);
    run(Planted::None, LATE);
}

#[test]
#[should_panic(expected = "rank")]
fn a_lost_bitmap_check_is_found() {
    run(Planted::IgnoreBitmap, LOSS);
}

#[test]
#[should_panic(expected = "rank")]
fn an_accumulator_that_is_not_reset_is_found() {
    run(Planted::KeepAccumulator, LOSS);
}

/// What comes several rounds late is another matter: that needs no loss recovery, but time, and is shown by the model checker.
#[test]
fn a_version_bit_is_enough_where_nothing_is_late() {
    run(Planted::VersionBitOnly, LOSS);
}
