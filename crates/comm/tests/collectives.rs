//! Every collective is exact for every type, operator, length and number of ranks, by either path.

mod common;

use common::every::{bytes, check_all_kinds};
use common::{configs, run};
use fanin_comm::{
    CollectiveKind, Communicator, DType, ElementOp, FaultPlan, NoSwitch, Operator, PathReport, Rank, ReproducibleBy, Sparse, SparsePath,
    SparseWay, Transport,
};
use fanin_core::{OrderFree, ScaledSum, Specials};

fn every_type_and_operator(transport: Transport) {
    let (configs, _) = configs(3, transport);
    run(configs, |comm| {
        for op in ElementOp::all() {
            for elements in [0, 1, 7, 1_000] {
                check_all_kinds(&comm, op, elements);
            }
        }
    });
}

#[test]
fn every_type_and_operator_in_shared_memory() {
    every_type_and_operator(Transport::Memory);
}

#[test]
fn every_type_and_operator_over_udp() {
    every_type_and_operator(Transport::Udp);
}

#[test]
fn every_number_of_ranks_and_every_length() {
    for transport in [Transport::Memory, Transport::Udp] {
        for world in [1, 2, 5, 16] {
            let (configs, _) = configs(world, transport);
            run(configs, move |comm| {
                for elements in [1, 351, 352, 353, 16_384, 100_003] {
                    check_all_kinds(&comm, ElementOp::F32_SUM, elements);
                }
            });
        }
    }
}

/// Results of such vectors are written past the caches, where they do not take the place of inputs.
#[test]
fn long_vectors_beside_their_results_are_exact_at_any_alignment() {
    const ELEMENTS: usize = (8 << 20) / 4 + 3;
    let op = ElementOp { dtype: DType::I32, operator: Operator::Sum };
    for transport in [Transport::Memory, Transport::Udp] {
        let (configs, _) = configs(2, transport);
        run(configs, move |comm| {
            let element = |rank: u32, index: usize| (index as i32).wrapping_mul(7) + rank as i32;
            let input: Vec<u8> = (0..ELEMENTS).flat_map(|index| element(comm.rank(), index).to_le_bytes()).collect();
            for offset in [0, 3] {
                let mut output = vec![0xEE; input.len() + 8];
                let result = &mut output[offset..offset + input.len()];
                comm.call_bytes(CollectiveKind::Allreduce, op, ELEMENTS as u64, &input, result).unwrap();
                let sums = result.chunks_exact(4).map(|bytes| i32::from_le_bytes(bytes.try_into().unwrap()));
                let wrong = sums.enumerate().find(|(index, sum)| *sum != element(0, *index).wrapping_add(element(1, *index)));
                assert_eq!(wrong, None, "{transport:?}, offset {offset}");
                assert!(output[..offset].iter().chain(&output[offset + input.len()..]).all(|&byte| byte == 0xEE), "{transport:?}");
            }
        });
    }
}

#[test]
fn sums_over_udp_are_exact_under_loss_duplicates_and_reordering() {
    let (mut configs, _) = configs(4, Transport::Udp);
    for config in &mut configs {
        let seed = u64::from(config.rank) + 1;
        config.faults = FaultPlan { seed, loss: 0.05, duplicate: 0.05, reorder: 0.05, corrupt: 0.01 };
    }
    run(configs, |comm| {
        for elements in [1, 352, 20_000] {
            check_all_kinds(&comm, ElementOp::I32_SUM, elements);
            check_all_kinds(&comm, ElementOp { dtype: DType::BF16, operator: Operator::Max }, elements);
        }
    });
}

#[test]
fn all_ranks_get_the_same_bits_and_shared_memory_gives_them_again() {
    let sums = || {
        let (configs, _) = configs(4, Transport::Memory);
        run(configs, |comm| {
            let mut vector: Vec<f32> = (0..50_000).map(|index| ((index * 37 + comm.rank() * 11) % 1_001) as f32 / 3.0).collect();
            comm.allreduce(&mut vector, Operator::Sum).unwrap();
            vector.into_iter().map(f32::to_bits).collect::<Vec<_>>()
        })
    };
    let (first, second) = (sums(), sums());
    assert!(first.iter().all(|bits| *bits == first[0]));
    assert_eq!(first, second);
}

#[test]
fn block_fixed_point_is_within_its_bound() {
    let (mut configs, _) = configs(3, Transport::Udp);
    configs.iter_mut().for_each(|config| config.fixed_point = true);
    let results = run(configs, |comm| {
        let value = |rank: u32, index: u32| ((index * 37 + rank * 11) % 1_001) as f32 / 7.0 - 60.0;
        let mut vector: Vec<f32> = (0..10_000).map(|index| value(comm.rank(), index)).collect();
        comm.allreduce(&mut vector, Operator::Sum).unwrap();
        for (index, got) in vector.iter().enumerate() {
            let exact: f64 = (0..3).map(|rank| f64::from(value(rank, index as u32))).sum();
            // All elements are below 2^7; three ranks leave 29 bits.
            assert!(
                (f64::from(*got) - exact).abs() <= 3.0 * 2f64.powi(7 - 29) + exact.abs() * 2f64.powi(-24),
                "{index}: {got} for {exact}"
            );
        }
        // Integers are summed as integers, also in such a job.
        check_all_kinds(&comm, ElementOp { dtype: DType::I64, operator: Operator::Sum }, 500);
        vector.into_iter().map(f32::to_bits).collect::<Vec<_>>()
    });
    assert!(results.iter().all(|bits| *bits == results[0]));
}

/// Any bits at all in half of the blocks, and in the others numbers as in a gradient: what depends on the order of additions.
fn rounding(dtype: DType, elements: usize, seed: u64, rank: u32) -> Vec<u8> {
    let draw = |index: usize| fanin_core::hash::mix(seed << 32 | u64::from(rank), index as u64);
    let mut bytes = Vec::new();
    for index in 0..elements {
        if index / 256 % 2 == 0 {
            dtype.push_f64((draw(index) as i64 >> 11) as f64 * (draw(index) as i64 >> 40) as f64 * 2f64.powi(-86), &mut bytes);
        } else {
            bytes.extend_from_slice(&draw(index).to_le_bytes()[..dtype.bytes()]);
        }
    }
    bytes
}

/// Results of reproducible reductions of every type and kind, at a rank. Ranks come in another order to each.
fn reproduced(comm: &Communicator, order: u32) -> Vec<Vec<u8>> {
    let (rank, world) = (comm.rank(), comm.world());
    let mut results = Vec::new();
    for op in ElementOp::all().filter(|op| op.dtype.is_float() && op.operator != Operator::Prod) {
        for elements in [1, 700, 5_000] {
            std::thread::sleep(std::time::Duration::from_micros(u64::from((rank + order) * 7 % world) * 150));
            let input = rounding(op.dtype, elements, u64::from(op.operator.number()), rank);
            let mut vector = input.clone();
            comm.call_bytes_in_place(CollectiveKind::Allreduce, op, elements as u64, &mut vector).unwrap();
            let all = vector.clone();
            results.push(vector);
            let mut to_one = input.clone();
            let root = elements as u32 % world;
            comm.call_bytes_in_place(CollectiveKind::Reduce { root: Rank(root) }, op, elements as u64, &mut to_one).unwrap();
            assert!(to_one == if rank == root { all.clone() } else { input.clone() }, "reduce {op:?} of {elements}");
            let (mut part, mut apart) = (vec![0; input.len()], vec![0; input.len()]);
            let shares = input.repeat(world as usize);
            comm.call_bytes(CollectiveKind::ReduceScatter, op, elements as u64, &shares, &mut part).unwrap();
            assert!(part == all, "every share is the same vector: reduce-scatter {op:?} of {elements}");
            comm.call_bytes(CollectiveKind::Allreduce, op, elements as u64, &input, &mut apart).unwrap();
            assert!(apart == all, "into another vector: {op:?} of {elements}");
        }
    }
    results
}

/// What ranks get, computed in one place and in the order of ranks.
fn reference(world: u32, by: ReproducibleBy) -> Vec<Vec<u8>> {
    let mut results = Vec::new();
    for op in ElementOp::all().filter(|op| op.dtype.is_float() && op.operator != Operator::Prod) {
        for elements in [1, 700, 5_000] {
            let inputs: Vec<Vec<u8>> = (0..world).map(|rank| rounding(op.dtype, elements, u64::from(op.operator.number()), rank)).collect();
            let fold = |op: ElementOp, parts: Vec<Vec<u8>>| {
                parts.into_iter().reduce(|mut sum, part| op.reduce(&mut sum, &part).map(|()| sum).unwrap()).unwrap()
            };
            let made = |width: usize, make: &dyn Fn(&[u8], &mut [u8])| {
                let each = |input: &Vec<u8>| {
                    let mut out = vec![0; width];
                    make(input, &mut out);
                    out
                };
                inputs.iter().map(each).collect::<Vec<_>>()
            };
            results.push(match OrderFree::of(op, world, by).unwrap() {
                OrderFree::ByElement(sum) => {
                    let [thin, wide] = [sum.exponents(), sum.integers()].map(|op| op.dtype.bytes() * elements);
                    let exponents = fold(sum.exponents(), made(thin, &|input, out| sum.exponents_of(input, out)));
                    let sums = fold(sum.integers(), made(wide, &|input, out| sum.quantise(&exponents, input, out)));
                    let mut result = vec![0; inputs[0].len()];
                    sum.dequantise(&exponents, &sums, &mut result);
                    result
                }
                OrderFree::Scaled(sum) => {
                    let blocks = elements.div_ceil(256);
                    let scales = fold(ScaledSum::SCALES, made(blocks * 4, &|input, out| sum.scales(input, out)));
                    let wide = elements * sum.integers().dtype.bytes();
                    let sums = fold(sum.integers(), made(wide, &|input, out| sum.quantise(&scales, input, out)));
                    let mut result = vec![0; inputs[0].len()];
                    sum.dequantise(&scales, &sums, &mut result);
                    let width = 256 * op.dtype.bytes();
                    for block in ScaledSum::special_blocks(&scales) {
                        let range = block * width..((block + 1) * width).min(result.len());
                        let said = made(Specials::BLOCK_BYTES, &|input, out| sum.specials().say(&input[range.clone()], out));
                        sum.specials().put(&fold(ScaledSum::SPECIALS, said), &mut result[range]);
                    }
                    result
                }
                OrderFree::Ordered(order) => {
                    let mut integers = inputs.clone();
                    integers.iter_mut().for_each(|input| order.to_integers(input));
                    let mut result = fold(order.integers(), integers);
                    order.to_floats(&mut result);
                    result
                }
                OrderFree::AsItIs => panic!("floats are never left as they are"),
            });
        }
    }
    results
}

#[test]
fn reproducible_reductions_have_the_same_bits_on_every_path_in_every_order_and_under_faults() {
    for by in [ReproducibleBy::Element, ReproducibleBy::Block] {
        let expected = reference(4, by);
        for order in 0..4 {
            for (transport, faults) in [(Transport::Memory, false), (Transport::Udp, false), (Transport::Udp, true)] {
                let (mut configs, _) = configs(4, transport);
                for config in &mut configs {
                    config.reproducible = Some(by);
                    config.payload_bytes = (transport == Transport::Udp).then_some([1_408, 512, 1_024, 256][order as usize]);
                    let seed = u64::from(config.rank * 4 + order) + 1;
                    if faults {
                        config.faults = FaultPlan { seed, loss: 0.01, duplicate: 0.02, reorder: 0.05, corrupt: 0.0 };
                    }
                }
                for (rank, got) in run(configs, move |comm| reproduced(&comm, order)).into_iter().enumerate() {
                    assert!(got == expected, "rank {rank}, by {by}, {transport:?}, order {order}, faults {faults}");
                }
            }
        }
    }
}

#[test]
fn reproducible_jobs_do_every_collective_and_long_vectors_in_chunks() {
    let both = [Transport::Memory, Transport::Udp].into_iter();
    for (transport, by) in both.flat_map(|transport| [(transport, ReproducibleBy::Element), (transport, ReproducibleBy::Block)]) {
        let (mut configs, _) = configs(3, transport);
        configs.iter_mut().for_each(|config| config.reproducible = Some(by));
        run(configs, |comm| {
            for op in ElementOp::all().filter(|op| !(op.dtype.is_float() && op.operator == Operator::Prod)) {
                for elements in [0, 1, 1_000] {
                    check_all_kinds(&comm, op, elements);
                }
            }
            // More than a chunk of each share, with a rest.
            for dtype in [DType::F32, DType::F64, DType::BF16] {
                check_all_kinds(&comm, ElementOp { dtype, operator: Operator::Sum }, 600_001);
            }
            let product = comm.allreduce(&mut [1f32; 3], Operator::Prod).unwrap_err().to_string();
            assert!(product.contains("there is no reproducible prod of f32"), "{product}");
            comm.barrier().unwrap();
        });
    }
}

#[test]
fn the_path_is_chosen_visibly() {
    let (shared, _) = configs(2, Transport::Auto);
    for report in run(shared, |comm| comm.path().clone()) {
        assert!(matches!(report, PathReport::Memory { .. }), "{report}");
    }
    let (mut mixed, _) = configs(2, Transport::Auto);
    mixed[1].transport = Transport::Udp;
    for report in run(mixed, |comm| comm.path().clone()) {
        let PathReport::Datagrams { reason, .. } = &report else { panic!("{report}") };
        assert_eq!(reason, "rank 1: UDP was asked for");
    }
}

#[test]
fn only_the_rank_that_runs_the_switch_reaches_it_through_memory() {
    let (configs, _) = configs(3, Transport::Udp);
    let sent = run(configs, |comm| {
        for elements in [100, 300_000] {
            check_all_kinds(&comm, ElementOp::F32_SUM, elements);
        }
        let PathReport::Datagrams { nearby, .. } = comm.path() else { panic!("{}", comm.path()) };
        assert_eq!((nearby, comm.path().to_string().contains("in this process")), (comm.rank() == 0, comm.rank() == 0));
        comm.statistics().sent
    });
    let (first, others) = sent.split_first().unwrap();
    assert!(first.datagrams > 0 && first.nearby == first.datagrams, "{first:?}");
    assert!(others.iter().all(|sent| sent.datagrams > 0 && sent.nearby == 0), "{others:?}");
}

#[test]
fn calls_in_the_background_run_in_their_order() {
    let (configs, _) = configs(3, Transport::Auto);
    run(configs, |comm| {
        let handles: Vec<_> =
            (0..20).map(|call| comm.allreduce_async(vec![call + comm.rank() as i32; 3_000], Operator::Sum).unwrap()).collect();
        let mut last = [1i64];
        comm.allreduce(&mut last, Operator::Sum).unwrap();
        assert_eq!(last, [3]);
        for (call, mut handle) in handles.into_iter().enumerate() {
            assert!(handle.is_done(), "a later call has ended");
            assert_eq!(handle.wait().unwrap(), vec![3 * call as i32 + 3; 3_000]);
        }
    });
}

#[test]
fn groups_are_independent_and_outlive_their_parent() {
    let (configs, _) = configs(5, Transport::Auto);
    run(configs, |comm| {
        let rank = comm.rank();
        // Ranks 0, 2, 4 in descending order; 1 and 3 alone or not at all.
        let color = match rank {
            1 => Some(9),
            3 => None,
            _ => Some(4),
        };
        let group = comm.split(color, -i64::from(rank)).unwrap();
        drop(comm);
        let Some(group) = group else { return assert_eq!(rank, 3) };
        let expected = match rank {
            1 => (0, 1),
            _ => ((4 - rank) / 2, 3),
        };
        assert_eq!((group.rank(), group.world()), expected);
        let mut sum = [rank as i32, 1];
        group.allreduce(&mut sum, Operator::Sum).unwrap();
        assert_eq!(sum, if rank == 1 { [1, 1] } else { [6, 3] });
    });
}

#[test]
fn several_communicators_of_a_process_run_at_once() {
    let (first, _) = configs(2, Transport::Auto);
    let second: Vec<_> = first.iter().cloned().map(|config| fanin_comm::Config { job: format!("{}-b", config.job), ..config }).collect();
    let one = std::thread::spawn(move || {
        run(first, |comm| {
            for _ in 0..200 {
                check_all_kinds(&comm, ElementOp::F32_SUM, 100);
            }
        })
    });
    run(second, |comm| {
        for _ in 0..200 {
            check_all_kinds(&comm, ElementOp::I32_SUM, 99);
        }
    });
    one.join().unwrap();
}

/// What a rank gives: indices in no order, some twice, values with zeros and cancelling sums.
fn sparse_input(op: ElementOp, rank: u32, size: u64, count: u64) -> (Vec<u64>, Vec<i64>) {
    let draw = |number: u64| (number + 1).wrapping_mul(0x9E37_79B9_7F4A_7C15 ^ (u64::from(rank) << 17)) >> 20;
    let signed = op.dtype != DType::U8;
    let indices = (0..count).map(|number| draw(number) % size).collect();
    (indices, (0..count).map(|number| (draw(number + count) % 7) as i64 - if signed { 3 } else { 0 }).collect())
}

/// The same by a map from indices to values.
fn sparse_expected(op: ElementOp, world: u32, size: u64, count: u64) -> (Vec<u64>, Vec<u8>) {
    let mut sums = std::collections::BTreeMap::<u64, i64>::new();
    for rank in 0..world {
        let (indices, values) = sparse_input(op, rank, size, count);
        for (index, value) in indices.into_iter().zip(values) {
            let combine = |sum: &mut i64| match op.operator {
                Operator::Min => *sum = value.min(*sum),
                Operator::Max => *sum = value.max(*sum),
                _ => *sum += value,
            };
            sums.entry(index).and_modify(combine).or_insert(value);
        }
    }
    (sums.keys().copied().collect(), bytes(op, sums.into_values()))
}

/// Sparse allreduces of any type by their bytes, as callers in other languages make them.
fn check_sparse(comm: &Communicator, op: ElementOp, size: u64, count: u64, way: SparseWay) {
    let (indices, values) = sparse_input(op, comm.rank(), size, count);
    let (done, result) = std::sync::mpsc::channel();
    let tell = move |result| done.send(result).unwrap();
    comm.call_sparse_async_then(op, &indices, &bytes(op, values.into_iter()), size, tell).unwrap();
    let Sparse { indices, values, report } = result.recv().unwrap().unwrap();
    assert_eq!((indices, values), sparse_expected(op, comm.world(), size, count), "{op:?} {size} {count}");
    assert_eq!(report.way, way, "{report}");
}

#[test]
fn sparse_reductions_are_those_of_maps_whichever_way_they_go() {
    for transport in [Transport::Memory, Transport::Udp] {
        for world in [1, 2, 5] {
            let (configs, _) = configs(world, transport);
            run(configs, move |comm| {
                let way = |way| if world == 1 { SparseWay::Alone } else { way };
                for op in ElementOp::all().filter(|op| matches!(op.operator, Operator::Sum | Operator::Min | Operator::Max)) {
                    check_sparse(&comm, op, 20_000, 150, way(SparseWay::Lists));
                    check_sparse(&comm, op, 1_001, 900, way(SparseWay::Dense));
                }
                check_sparse(&comm, ElementOp::I32_SUM, 1 << 40, 3_000, way(SparseWay::Lists));
                check_sparse(&comm, ElementOp::I32_SUM, 1, 0, way(SparseWay::Lists));
            });
        }
    }
}

/// Ranks that take the switch wherever it can sum.
fn by_switch(world: u32) -> Vec<fanin_comm::Config> {
    let (mut configs, _) = configs(world, Transport::Udp);
    configs.iter_mut().for_each(|config| config.sparse = SparsePath::Switch);
    configs
}

#[test]
fn sparse_reductions_by_the_switch_are_those_of_maps() {
    for world in [2, 5] {
        run(by_switch(world), move |comm| {
            for op in ElementOp::all().filter(|op| matches!(op.operator, Operator::Sum | Operator::Min | Operator::Max)) {
                check_sparse(&comm, op, 20_000, 150, SparseWay::Switch);
            }
            // Other densities, with the same job or with another one: tables and arrays, one packet of a block or many.
            for (size, count) in [(1_001, 900), (1 << 26, 3_000), (300_000, 40_000), (300_000, 25_000), (1, 1), (70_000, 5)] {
                check_sparse(&comm, ElementOp::I32_SUM, size, count, SparseWay::Switch);
            }
            check_sparse(&comm, ElementOp::I32_SUM, 100, 0, SparseWay::Lists);
            let before = comm.statistics();
            check_sparse(&comm, ElementOp::I32_SUM, 70_000, 5, SparseWay::Switch);
            let sent = comm.statistics().sent.datagrams - before.sent.datagrams;
            assert!((3..100).contains(&sent), "{sent} datagrams");
        });
    }
}

#[test]
fn the_switch_sums_by_itself_where_that_saves_bytes() {
    let (configs, _) = configs(3, Transport::Udp);
    run(configs, |comm| {
        check_sparse(&comm, ElementOp::I32_SUM, 3_000_000, 60_000, SparseWay::Switch);
        let (indices, values) = ((0..60_000).map(|index| index * 40).collect::<Vec<u64>>(), vec![1f32; 60_000]);
        let report = comm.allreduce_sparse(&indices, &values, 3_000_000, Operator::Sum).unwrap().report;
        assert!(report.switch_bytes.unwrap() < report.lists_bytes && report.no_switch.is_none(), "{report}");
        check_sparse(&comm, ElementOp::I32_SUM, 3_000_000, 60, SparseWay::Lists);
    });
}

#[test]
fn what_nobody_gives_has_no_part_and_what_is_given_stays_whatever_it_is() {
    let (configs, _) = configs(3, Transport::Auto);
    run(configs, |comm| {
        let rank = comm.rank();
        // Ranks 0 and 1 cancel at 4; only rank 2 has 9; rank 1 gives no entry of its own.
        let (indices, values): (&[u64], &[f64]) =
            [(&[4, 7][..], &[1.5, 0.0][..]), (&[4], &[-1.5]), (&[9, 9], &[-2.0, -3.0])][rank as usize];
        let sum = comm.allreduce_sparse(indices, values, 1_000, Operator::Sum).unwrap();
        assert_eq!((sum.indices, sum.values), (vec![4, 7, 9], vec![0.0, 0.0, -5.0]));
        let max = comm.allreduce_sparse(indices, values, 1_000, Operator::Max).unwrap();
        assert_eq!((max.indices, max.values), (vec![4, 7, 9], vec![1.5, 0.0, -2.0]));
        assert_eq!((max.report.way, max.report.entries, max.report.longest), (SparseWay::Lists, 4, 2), "{}", max.report);
        assert!(max.report.to_string().starts_with("lists: gathered, and merged by every rank"), "{}", max.report);
        // A wrong argument leaves the communicator as it was.
        let error = comm.allreduce_sparse(&[3, 1_000], &[1f32, 1.0], 1_000, Operator::Sum).unwrap_err().to_string();
        assert!(error.contains("indices[1] = 1000: expected below the size of the vector, 1000"), "{error}");
        let nothing = comm.allreduce_sparse::<i64>(&[], &[], 0, Operator::Min).unwrap();
        assert!(nothing.indices.is_empty() && nothing.values.is_empty());
    });
}

#[test]
fn sparse_sums_over_udp_are_exact_under_loss_duplicates_and_reordering() {
    let (mut configs, _) = configs(4, Transport::Udp);
    for config in &mut configs {
        config.faults = FaultPlan { seed: u64::from(config.rank) + 1, loss: 0.05, duplicate: 0.05, reorder: 0.05, corrupt: 0.01 };
    }
    run(configs, |comm| {
        check_sparse(&comm, ElementOp::I32_SUM, 100_000, 2_000, SparseWay::Lists);
        check_sparse(&comm, ElementOp { dtype: DType::BF16, operator: Operator::Max }, 5_000, 4_000, SparseWay::Dense);
    });
    let mut configs = by_switch(4);
    for config in &mut configs {
        config.faults = FaultPlan { seed: u64::from(config.rank) + 1, loss: 0.05, duplicate: 0.05, reorder: 0.05, corrupt: 0.01 };
        // Blocks of many packets.
        config.payload_bytes = Some(256);
    }
    run(configs, |comm| {
        for number in 0..4 {
            check_sparse(&comm, ElementOp::I32_SUM, 100_000 + number, 2_000, SparseWay::Switch);
            check_sparse(&comm, ElementOp { dtype: DType::BF16, operator: Operator::Max }, 5_000, 4_000, SparseWay::Switch);
        }
    });
}

#[test]
fn where_the_switch_does_not_sum_the_report_says_why() {
    let of = |change: fn(&mut fanin_comm::Config)| {
        let mut configs = by_switch(2);
        configs.iter_mut().for_each(change);
        run(configs, |comm| comm.allreduce_sparse(&[3, 7], &[1f32, 2.0], 1_000, Operator::Sum).unwrap().report)[0]
    };
    assert_eq!(of(|config| config.transport = Transport::Memory).no_switch, Some(NoSwitch::SharedMemory));
    assert_eq!(of(|config| config.sparse = SparsePath::Lists).no_switch, Some(NoSwitch::NotWanted));
    assert_eq!(of(|config| config.fixed_point = true).no_switch, Some(NoSwitch::FixedPoint));
    let reproducible = of(|config| config.reproducible = Some(ReproducibleBy::Block));
    assert_eq!(reproducible.no_switch, Some(NoSwitch::Reproducible));
    assert!(reproducible.to_string().contains("not by the switch: floats must be reproducible"), "{reproducible}");
}

#[test]
fn the_same_lists_give_the_same_bits_at_all_ranks_and_every_time() {
    let (configs, _) = configs(4, Transport::Udp);
    let results = run(configs, |comm| {
        let indices: Vec<u64> = (0..400).map(|number| number * (u64::from(comm.rank()) + 1)).collect();
        let values: Vec<f32> = indices.iter().map(|index| ((index * 37 + u64::from(comm.rank()) * 11) % 1_001) as f32 / 3.0).collect();
        let sums = || {
            let sums = comm.allreduce_sparse(&indices, &values, 40_000, Operator::Sum).unwrap();
            assert_eq!(sums.report.way, SparseWay::Lists);
            (sums.indices, sums.values.into_iter().map(f32::to_bits).collect::<Vec<_>>())
        };
        let first = sums();
        (0..5).for_each(|_| assert_eq!(sums(), first));
        first
    });
    assert!(results.iter().all(|result| *result == results[0]));
}

#[test]
fn block_fixed_point_does_not_touch_sparse_sums() {
    let (mut configs, _) = configs(2, Transport::Udp);
    configs.iter_mut().for_each(|config| config.fixed_point = true);
    run(configs, |comm| {
        let values: Vec<f32> = (0..64).map(|index| if index == 0 { 1e30 } else { 1e-3 * index as f32 }).collect();
        let sum = comm.allreduce_sparse(&(0..64).collect::<Vec<_>>(), &values, 64, Operator::Sum).unwrap();
        assert_eq!((sum.report.way, sum.values), (SparseWay::Lists, values.iter().map(|value| 2.0 * value).collect()));
    });
}
