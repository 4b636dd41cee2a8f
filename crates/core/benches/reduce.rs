//! How fast payloads are summed: a kibibyte at a time into a hot accumulator, as a switch does it.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fanin_core::{BlockExponent, DType, ElementOp, FixedPoint, Operator, OrderFree, Payload, ReproducibleBy, ScaledSum};

/// A packet that is in the first cache, and packets of a buffer that no cache holds; what `memcpy` does with the same stands beside.
fn reduce(criterion: &mut Criterion) {
    const BYTES: usize = 1024;
    for (name, bytes) in [("reduce_1KiB", BYTES), ("reduce_1KiB_of_64MiB", 64 << 20)] {
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Bytes(BYTES as u64));
        let input: Vec<u8> = (0..bytes).map(|index| (index * 37 % 101) as u8).collect();
        let (mut chunks, mut target) = (input.chunks_exact(BYTES).cycle(), vec![0u8; BYTES]);
        group.bench_function("memcpy", |bencher| {
            bencher.iter(|| black_box(&mut target).copy_from_slice(black_box(chunks.next().expect("a cycle"))));
        });
        for &dtype in DType::ALL {
            // As many elements as bytes above, of both signs: sums stay where they are.
            let mut input = Vec::with_capacity(bytes);
            (0..bytes / dtype.bytes()).for_each(|index| dtype.push_f64((index * 37 % 101) as f64 - 50.0, &mut input));
            for operator in [Operator::Sum, Operator::Max, Operator::Minimum] {
                let mut op = ElementOp { dtype, operator }.into();
                let mut acc = <[u8]>::accumulator(&op, BYTES);
                input[..BYTES].assign(&mut acc, &mut op).expect("it fits");
                let mut chunks = input.chunks_exact(BYTES).cycle();
                group.bench_function(format!("{dtype:?}_{operator:?}"), |bencher| {
                    bencher.iter(|| black_box(chunks.next().expect("a cycle")).reduce(&mut acc, &mut op));
                });
            }
        }
        group.finish();
    }
}

/// What a worker does to a block in fixed point: its exponent, the integers, and back.
fn fixed_point(criterion: &mut Criterion) {
    const BYTES: usize = 1024;
    let mut group = criterion.benchmark_group("fixed_point_1KiB");
    group.throughput(Throughput::Bytes(BYTES as u64));
    let floats: Vec<u8> = (0..BYTES / 4).flat_map(|index| (index as f32 - 100.5).to_le_bytes()).collect();
    let (point, exponent) = (FixedPoint::new(8, false), BlockExponent::of(&floats));
    let (mut integers, mut back) = (vec![0; BYTES], vec![0; BYTES]);
    group.bench_function("exponent", |bencher| bencher.iter(|| BlockExponent::of(black_box(&floats))));
    group.bench_function("quantise", |bencher| bencher.iter(|| point.quantise(exponent, black_box(&floats), &mut integers)));
    point.quantise(exponent, &floats, &mut integers);
    group.bench_function("dequantise", |bencher| bencher.iter(|| point.dequantise(exponent, black_box(&integers), &mut back)));
    group.finish();
}

/// What a rank does to a vector of a reproducible sum: scales, integers, and back.
fn order_free(criterion: &mut Criterion) {
    const ELEMENTS: usize = 4_096;
    for dtype in [DType::F32, DType::F64, DType::BF16] {
        let mut group = criterion.benchmark_group(format!("order_free_{dtype}"));
        group.throughput(Throughput::Bytes((ELEMENTS * dtype.bytes()) as u64));
        let op = ElementOp { dtype, operator: Operator::Sum };
        let Ok(OrderFree::Scaled(sum)) = OrderFree::of(op, 8, ReproducibleBy::Block) else { continue };
        let mut floats = Vec::new();
        (0..ELEMENTS).for_each(|index| dtype.push_f64(index as f64 - 100.5, &mut floats));
        let mut scales = vec![0; ScaledSum::blocks(ELEMENTS as u64) as usize * ScaledSum::SCALE_ELEMENTS * 2];
        let (mut integers, mut back) = (vec![0; ELEMENTS * sum.integers().dtype.bytes()], floats.clone());
        group.bench_function("scales", |bencher| bencher.iter(|| sum.scales(black_box(&floats), &mut scales)));
        group.bench_function("quantise", |bencher| bencher.iter(|| sum.quantise(&scales, black_box(&floats), &mut integers)));
        group.bench_function("dequantise", |bencher| bencher.iter(|| sum.dequantise(&scales, black_box(&integers), &mut back)));
        let Ok(OrderFree::ByElement(sum)) = OrderFree::of(op, 8, ReproducibleBy::Element) else { continue };
        let mut exponents = vec![0; ELEMENTS * sum.exponents().dtype.bytes()];
        group.bench_function("exponents", |bencher| bencher.iter(|| sum.exponents_of(black_box(&floats), &mut exponents)));
        group.bench_function("quantise_by_element", |bencher| {
            bencher.iter(|| sum.quantise(&exponents, black_box(&floats), &mut integers));
        });
        group.bench_function("dequantise_by_element", |bencher| {
            bencher.iter(|| sum.dequantise(&exponents, black_box(&integers), &mut back));
        });
        let (mut largest, op) = (exponents.clone(), sum.exponents());
        group.bench_function("largest_exponents", |bencher| bencher.iter(|| op.reduce(&mut largest, black_box(&exponents))));
        group.finish();
    }
}

criterion_group!(benches, reduce, fixed_point, order_free);
criterion_main!(benches);
