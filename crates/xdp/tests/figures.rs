//! What a packet costs in the program, without devices around it: for docs/xdp.md. Prints, and asserts only that the packets did what is timed.
#![cfg(feature = "kernel")]

mod common;

use std::time::Duration;

use fanin_core::ElementOp;
use fanin_wire::switchml::{CallLabel, SlotUse};
use fanin_xdp::{Kernel, XdpSystem};

use common::{LOOPBACK, Shape, contribution, frame};

const RANKS: u32 = 4;
const ROUNDS: u32 = 5_000;

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn what_a_packet_costs() {
    let kernel = Kernel::load().unwrap_or_else(|error| panic!("{error}"));
    for block_bytes in [256, 1_024, 1_408] {
        let shape =
            Shape { system: XdpSystem::SwitchMl, ranks: RANKS, pool: 1, block_bytes, fixed_point: false, first: ElementOp::I32_SUM };
        let place = kernel.open(&shape.job()).unwrap();
        let payload: Vec<u8> = (0..block_bytes).map(|index| index as u8).collect();
        // By rank: the first contribution begins the round, the last completes it.
        let mut times: Vec<Vec<Duration>> = vec![Vec::new(); RANKS as usize];
        let (mut repeats, mut exits) = (Vec::new(), Vec::new());
        for round in 0..ROUNDS {
            for rank in 0..RANKS {
                let packet = contribution(SlotUse { slot: 0, round }, 0, None, CallLabel::NONE, &payload);
                let run = kernel.test(&frame(rank, &packet), LOOPBACK, 1).unwrap();
                times[rank as usize].push(run.duration);
                assert_eq!(run.action, if rank == RANKS - 1 { 4 } else { 1 });
                if run.action == 4 {
                    exits.push(kernel.test_exit(&run.frame, LOOPBACK).unwrap().duration);
                    repeats.push(kernel.test(&frame(rank, &packet), LOOPBACK, 1).unwrap().duration);
                }
            }
        }
        kernel.close(place);
        let median = |times: &mut Vec<Duration>| {
            times.sort_unstable();
            times[times.len() / 2].as_nanos()
        };
        let [begin, add, _, complete] = times.as_mut_slice() else { unreachable!() };
        println!(
            "{block_bytes} B: begins {} ns, adds {} ns, completes {} ns, repeats {} ns; a copy at its exit {} ns",
            median(begin),
            median(add),
            median(complete),
            median(&mut repeats),
            median(&mut exits)
        );
    }
}
