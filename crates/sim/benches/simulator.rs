//! Criterion benches of the simulator's parts, of workload W1 and of congestion without loss. Rates of whole workloads, Canary's Fig. 8
//! among them: `fanin bench sim`.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fanin_core::hash::mix;
use fanin_core::{Census, Length};
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
use fanin_sim::queue::EventQueue;
use fanin_sim::routing::Balancer;
use fanin_sim::scenario::Scenario;
use fanin_sim::traffic::Pattern;
use fanin_sim::vectors::Simulated;
use fanin_sim::workloads::{Nobody, w1};
use fanin_sim::{RunResult, Simulation, Topology};

/// Hold model: pop the first event, push another one a random time later; 4096 pending.
fn event_queue(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("event_queue");
    group.throughput(Throughput::Elements(1));
    group.bench_function("hold_4096", |bencher| {
        let mut queue = EventQueue::new(20, 1 << 16);
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
    run_scenario::<P>(w1(1))
}

fn run_scenario<P: Simulated + ?Sized>(scenario: Scenario) -> RunResult {
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

/// W1's hosts send four messages of 64 KiB to others at random, by buffers of 16 KiB and default paths: as in Canary's Fig. 8, without
/// a job.
fn congested(model: SwitchModel) -> Scenario {
    let mut scenario = w1(1);
    let (input_bytes, output_bytes) = (16 << 10, 16 << 10);
    scenario.network.lossless = Some(LosslessConfig {
        model,
        input_bytes,
        output_bytes,
        arbitration: Arbitration::FirstCome,
        made_packets: MadePackets::default(),
        channels: 1,
    });
    scenario.network.background_balancer = Balancer::Destination;
    for traffic in &mut scenario.traffic {
        (traffic.pattern, traffic.message_bytes, traffic.messages) = (Pattern::Uniform, 64 << 10, Some(4));
    }
    scenario
}

fn lossless(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("lossless");
    group.sample_size(10);
    for (name, model) in [("input_queued", SwitchModel::InputQueued), ("output_queued", SwitchModel::OutputQueued)] {
        group.throughput(Throughput::Elements(run_scenario::<Census>(congested(model)).packet_hops));
        group.bench_function(name, |bencher| bencher.iter(|| run_scenario::<Census>(congested(model))));
    }
    group.finish();
}

criterion_group!(benches, event_queue, workload_w1, lossless);
criterion_main!(benches);
