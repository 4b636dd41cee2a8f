//! A rank for `scripts/xdp.py`, which asks its switch for what `fanin bench` does not: a job on a static tree, one of Canary, or one of SwitchML that
//! sums floats before it sums integers. It sums vectors of 32-bit integers, compares every element, and prints what `fanin bench allreduce --format json` does,
//! as far as the script reads it.
//!
//! `rank SYSTEM SWITCH RANK WORLD BYTES ITERATIONS FLOATS`: FLOATS sums of floats come before ITERATIONS sums of integers. It answers others until its
//! standard input ends.

#[path = "../tests/common/mod.rs"]
mod common;

use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use common::{Rank, SWITCHML, join};
use fanin_control::{JobWish, Join, Op};
use fanin_core::{CollectiveKind, DType, ElementOp};
use fanin_runtime::{BlockSet, CollectiveCall, Vectors, WorkerDriver};
use fanin_systems::{AnyNode, CanaryParameters, OfferNumbers, Placement, System};
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

/// A job's sum of vectors.
struct Sums {
    op: ElementOp,
    call: CollectiveCall,
    expected: Vec<u8>,
    input: Vec<u8>,
}

impl Sums {
    /// Of `bytes` bytes; a float is a small integer.
    fn new(op: ElementOp, op_number: u8, (rank, world): (u32, u32), bytes: usize) -> Self {
        let elements = (bytes / op.dtype.bytes()) as u32;
        let is_float = op == ElementOp::F32_SUM;
        let value = |rank, at| if is_float { input(rank, at) & 0xffff } else { input(rank, at) };
        let bytes_of = |value: i32| if is_float { (value as f32).to_le_bytes() } else { value.to_le_bytes() };
        let sum = |at| (0..world).fold(0, |sum, rank| value(rank, at).wrapping_add(sum));
        let call = CollectiveCall {
            kind: CollectiveKind::Allreduce,
            op,
            element_bytes: op.dtype.bytes() as u32,
            op_number,
            fixed_point: None,
            elements: u64::from(elements),
            fingerprint: u32::from(op_number),
        };
        let expected = (0..elements).flat_map(|at| bytes_of(sum(at))).collect();
        Sums { op, call, expected, input: (0..elements).flat_map(|at| bytes_of(value(rank, at))).collect() }
    }

    /// Once: how long it took in µs, and how many elements are wrong.
    fn sum(&self, driver: &mut WorkerDriver<AnyNode<[u8]>>) -> (f64, usize) {
        let mut vector = self.input.clone();
        let mut delivered = BlockSet::default();
        delivered.reset(self.call.elements);
        let begin = Instant::now();
        driver.collective(&self.call, Vectors::InPlace(&mut vector), (&mut delivered, 0), |_| true).unwrap();
        let time_us = begin.elapsed().as_secs_f64() * 1e6;
        let length = self.op.dtype.bytes();
        (time_us, vector.chunks(length).zip(self.expected.chunks(length)).filter(|(found, expected)| found != expected).count())
    }
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [system, switch, numbers @ ..] = arguments.as_slice() else { panic!("rank SYSTEM SWITCH RANK WORLD BYTES ITERATIONS FLOATS") };
    let switch: SocketAddr = switch.parse().unwrap();
    let numbers: Vec<u32> = numbers.iter().map(|number| number.parse().unwrap()).collect();
    let [rank, world, bytes, iterations, floats] = numbers[..] else { panic!("five numbers") };
    let has_one_operator = system != "switchml";
    let wish = JobWish {
        system: match system.as_str() {
            "tree" => System::tree(1),
            "canary" => System::canary().for_software(),
            // Few descriptors, which blocks find by a hash: some collide.
            "canary-collides" => System::Canary(CanaryParameters {
                descriptors: 48,
                placement: Placement::Hash,
                timeout_ps: 10_000_000_000,
                ..CanaryParameters::default()
            }),
            _ => SWITCHML,
        },
        op: Op { dtype: DType::I32, ..Op::F32_SUM },
        payload_bytes: Some(PAYLOAD_BYTES),
        ..join("rank", rank, world).wish
    };
    let data = SocketAddr::new(own_address(switch), 0);
    let mut joined = Rank::join(switch, Join { data, wish, ..join("rank", rank, world) });
    let admitted = joined.admitted().unwrap();
    let mut driver = joined.driver(&admitted);
    joined.start().unwrap();
    // A tree and Canary have one operator, which needs no name.
    let number = |op| if has_one_operator { 0 } else { OfferNumbers::default().built_in(op, false).unwrap() };
    let sums = |op| Sums::new(op, number(op), (rank, world), bytes as usize);
    let (integers, of_floats) = (sums(ElementOp::I32_SUM), sums(ElementOp::F32_SUM));
    let mut wrong: usize = (0..floats).map(|_| of_floats.sum(&mut driver).1).sum();
    let before = processor_s();
    let mut times = Vec::new();
    for _ in 0..iterations {
        let (time_us, more) = integers.sum(&mut driver);
        times.push(time_us);
        wrong += more;
    }
    let processor = processor_s() - before;
    times.sort_by(f64::total_cmp);
    let time_us = times[times.len() / 2];
    let cpu = processor / (f64::from(iterations) * f64::from(bytes) / f64::from(1u32 << 30));
    println!(
        "[{{\"size_bytes\":{bytes},\"iterations\":{iterations},\"wrong\":{wrong},\"time_us\":{time_us:.1},\"cpu_s_per_gib\":{cpu:.6}}}]"
    );
    // Leaders of Canary's blocks answer for them until all ranks have what they need: until standard input ends.
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).unwrap();
            done.store(true, Ordering::Relaxed);
        });
        driver.serve_until(&done).unwrap();
    });
    joined.leave(iterations + floats);
}
