//! What a packet costs in the program, without devices around it: for docs/xdp.md. Prints, and asserts only that the packets did what is timed.
#![cfg(feature = "kernel")]

mod common;
#[allow(dead_code, reason = "traces need more of it")]
#[path = "oracle/routed.rs"]
mod routed;

use std::time::Duration;

use fanin_core::{Address, ElementOp, NodeId, Role, Via};
use fanin_systems::{CanaryParameters, FanInRule, Placement};
use fanin_wire::canary::{CanaryHeader, CanaryId, CanaryMarks, PartialSum};
use fanin_wire::hop::HopHeader;
use fanin_wire::switchml::{CallLabel, SlotUse};
use fanin_xdp::job::{XdpCanary, XdpJob};
use fanin_xdp::{Kernel, XdpSystem};

use common::{LOOPBACK, Shape, contribution, frame, hop, packet};
use routed::long_packet;

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

fn median(times: &mut [Duration]) -> u128 {
    times.sort_unstable();
    times[times.len() / 2].as_nanos()
}

#[test]
#[ignore = "needs CAP_BPF and CAP_NET_ADMIN"]
fn what_a_packet_of_canary_costs() {
    let kernel = Kernel::load().unwrap_or_else(|error| panic!("{error}"));
    for block_bytes in [256, 1_024, 1_408] {
        let shape = Shape { system: XdpSystem::Canary, ranks: RANKS, pool: 1, block_bytes, fixed_point: false, first: ElementOp::I32_SUM };
        let parameters =
            CanaryParameters { descriptors: 1_024, fan_in: FanInRule::Known, placement: Placement::Hash, ..CanaryParameters::default() };
        let canary = XdpCanary::new(&parameters, RANKS, fanin_core::Duration::from_ms(1_000)).unwrap();
        let place = kernel.open(&XdpJob { canary: Some(canary), ..shape.job() }).unwrap();
        let payload: Vec<u8> = (0..block_bytes).map(|index| index as u8).collect();
        let mut numbers = [0u32; RANKS as usize];
        let mut times: [Vec<Duration>; 7] = Default::default();
        let mut run = |what: usize, rank: u32, header: CanaryHeader, to: Address, via, action| {
            let sequence = numbers[rank as usize];
            numbers[rank as usize] += 1;
            let base = hop(Role::Worker, to.role, sequence);
            let datagram = if matches!(header, CanaryHeader::Broadcast { .. }) {
                packet(&base, &header.into(), &payload)
            } else {
                let source = Address::worker(NodeId(rank));
                long_packet(&HopHeader { neighbour: false, via, source, destination: to, ..base }, &header.into(), &payload)
            };
            let run = kernel.test(&frame(rank, &datagram), LOOPBACK, 1).unwrap();
            assert_eq!(run.action, action);
            times[what].push(run.duration);
            if action == 4 {
                times[5].push(kernel.test_exit(&run.frame, LOOPBACK).unwrap().duration);
            }
        };
        for block in 0..ROUNDS {
            let id = CanaryId::new(77, 0, block);
            let leader = Address::worker(NodeId(0));
            let sum = PartialSum { id, leader: NodeId(0), counter: 1, hosts: RANKS as u16, marks: CanaryMarks::NONE };
            for rank in 1..RANKS {
                let completes = rank == RANKS - 1;
                run(rank as usize - 1, rank, CanaryHeader::Reduce(sum), leader, Via::Aggregators, if completes { 4 } else { 1 });
            }
            run(3, 0, CanaryHeader::Broadcast { id, marks: CanaryMarks::NONE }, Address::switch(NodeId(0)), Via::Direct, 4);
            run(4, 0, CanaryHeader::Answer { id, marks: CanaryMarks::NONE }, Address::worker(NodeId(1)), Via::Direct, 4);
        }
        // A scan that finds nothing: 64 descriptors a frame.
        for now in 1..=u64::from(ROUNDS) {
            times[6].push(kernel.test_clock(place, now).unwrap().duration);
        }
        kernel.close(place);
        let [begins, adds, sums, broadcasts, passes, exits, clocks] = times.each_mut().map(|times| median(times));
        println!(
            "Canary, {block_bytes} B: begins {begins} ns, adds {adds} ns, makes a sum {sums} ns, broadcasts {broadcasts} ns, passes on {passes} ns, a \
             copy at its exit {exits} ns; a clock packet {clocks} ns"
        );
    }
}
