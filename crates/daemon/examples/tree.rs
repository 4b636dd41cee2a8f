//! A rank that asks its switch for a job on a static tree, which communicators do not: for `scripts/xdp.py`. It sums vectors of 32-bit integers,
//! compares every element, and prints what `fanin bench allreduce --format json` does, as far as the script reads it.
//!
//! `tree SWITCH RANK WORLD BYTES ITERATIONS`

#[path = "../tests/common/mod.rs"]
mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::time::Instant;

use common::{Rank, join};
use fanin_control::{JobWish, Join, Op};
use fanin_core::{CollectiveKind, DType, ElementOp};
use fanin_runtime::{BlockSet, CollectiveCall, Vectors};
use fanin_systems::System;
use rustix::time::{ClockId, clock_gettime};

/// What fits an Ethernet frame: see docs/xdp.md.
const PAYLOAD_BYTES: u32 = 1_408;

/// Processor time of this process in seconds.
fn processor_s() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

/// The address of this host on its way to the switch.
fn own_address(switch: SocketAddr) -> IpAddr {
    let probe = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    probe.connect(switch).unwrap();
    probe.local_addr().unwrap().ip()
}

fn input(rank: u32, element: u32) -> i32 {
    element.wrapping_mul(0x9E37_79B9).wrapping_add(rank << 20) as i32
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [switch, rank, world, bytes, iterations] = arguments.as_slice() else { panic!("tree SWITCH RANK WORLD BYTES ITERATIONS") };
    let switch: SocketAddr = switch.parse().unwrap();
    let (rank, world): (u32, u32) = (rank.parse().unwrap(), world.parse().unwrap());
    let (bytes, iterations): (usize, u32) = (bytes.parse().unwrap(), iterations.parse().unwrap());
    let wish = JobWish {
        system: System::tree(1),
        op: Op { dtype: DType::I32, ..Op::F32_SUM },
        payload_bytes: Some(PAYLOAD_BYTES),
        ..join("tree", rank, world).wish
    };
    let data = SocketAddr::new(own_address(switch), 0);
    let mut joined = Rank::join(switch, Join { data, path_datagram_bytes: 1_472, wish, ..join("tree", rank, world) });
    let admitted = joined.admitted().unwrap();
    let mut driver = joined.driver(&admitted);
    joined.start().unwrap();
    let op = ElementOp::I32_SUM;
    let elements = bytes / op.dtype.bytes();
    let call = CollectiveCall {
        kind: CollectiveKind::Allreduce,
        op,
        element_bytes: op.dtype.bytes() as u32,
        op_number: 0,
        fixed_point: None,
        elements: elements as u64,
        fingerprint: 0,
    };
    let expected: Vec<i32> = (0..elements as u32).map(|at| (0..world).fold(0, |sum, rank| input(rank, at).wrapping_add(sum))).collect();
    let (mut times, mut wrong, mut processor) = (Vec::new(), 0, 0.0);
    for _ in 0..iterations {
        let mut vector: Vec<u8> = (0..elements as u32).flat_map(|at| input(rank, at).to_le_bytes()).collect();
        let mut delivered = BlockSet::default();
        delivered.reset(elements as u64);
        let (begin, before) = (Instant::now(), processor_s());
        driver.collective(&call, Vectors::InPlace(&mut vector), (&mut delivered, 0), |_| true).unwrap();
        times.push(begin.elapsed().as_secs_f64() * 1e6);
        processor += processor_s() - before;
        let found = vector.as_chunks::<4>().0.iter().map(|bytes| i32::from_le_bytes(*bytes));
        wrong += found.zip(&expected).filter(|(found, expected)| found != *expected).count();
    }
    joined.leave(iterations);
    times.sort_by(f64::total_cmp);
    let time_us = times[times.len() / 2];
    let cpu = processor / (f64::from(iterations) * bytes as f64 / (1u64 << 30) as f64);
    println!(
        "[{{\"size_bytes\":{bytes},\"iterations\":{iterations},\"wrong\":{wrong},\"time_us\":{time_us:.1},\"cpu_s_per_gib\":{cpu:.6}}}]"
    );
}
