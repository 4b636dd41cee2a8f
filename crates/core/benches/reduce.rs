//! How fast payloads are summed: a kibibyte at a time into a hot accumulator, as a switch does it.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fanin_core::{DType, ElementOp, Operator, Payload};

fn reduce(criterion: &mut Criterion) {
    const BYTES: usize = 1024;
    let mut group = criterion.benchmark_group("reduce_1KiB");
    group.throughput(Throughput::Bytes(BYTES as u64));
    // Streamed from a buffer larger than the second-level cache.
    let input = vec![1u8; 16 << 20];
    for dtype in [DType::F32, DType::I32, DType::F64, DType::F16, DType::BF16, DType::U8] {
        let mut op = ElementOp { dtype, operator: Operator::Sum };
        let mut acc = <[u8]>::accumulator(&op, BYTES);
        input[..BYTES].assign(&mut acc, &mut op).expect("it fits");
        let mut chunks = input.chunks_exact(BYTES).cycle();
        group.bench_function(format!("{dtype:?}"), |bencher| {
            bencher.iter(|| black_box(chunks.next().expect("a cycle")).reduce(&mut acc, &mut op));
        });
    }
    group.finish();
}

criterion_group!(benches, reduce);
criterion_main!(benches);
