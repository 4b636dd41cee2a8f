//! Criterion benches of the simulator's parts and of workload W1. Rates of whole workloads: `fanin bench sim`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fanin_core::hash::mix;
use fanin_core::{Census, Length};
use fanin_sim::queue::EventQueue;
use fanin_sim::vectors::Simulated;
use fanin_sim::workloads::{Nobody, w1};
use fanin_sim::{RunResult, Simulation, Topology};

/// Hold model: pop the first event, push another one a random time later; 4096 pending.
fn event_queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("event_queue");
    group.throughput(Throughput::Elements(1));
    group.bench_function("hold_4096", |bencher| {
        let mut queue = EventQueue::new(20);
        for id in 0..4096 {
            queue.push(mix(1, u64::from(id)) % 400_000, id);
        }
        bencher.iter(|| {
            let (time, id) = queue.pop().expect("never empty");
            queue.push(time + 80_000 + mix(time, u64::from(id)) % 320_000, id);
            black_box(time)
        });
    });
    group.finish();
}

fn run<P: Simulated + ?Sized>() -> RunResult {
    let scenario = w1(1);
    let topology = Topology::new(&scenario.network.shape).expect("a network");
    Simulation::<Nobody, P>::new(topology, scenario, Vec::new(), &[]).expect("a scenario").run()
}

fn workload_w1(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("w1");
    group.sample_size(10);
    group.throughput(Throughput::Elements(run::<Length>().packet_hops));
    group.bench_function("length", |bencher| bencher.iter(run::<Length>));
    group.bench_function("census", |bencher| bencher.iter(run::<Census>));
    group.finish();
}

criterion_group!(benches, event_queue, workload_w1);
criterion_main!(benches);
