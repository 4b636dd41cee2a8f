//! Every collective is exact for every type, operator, length and number of ranks, by either path.

mod common;

use common::{configs, run};
use fanin_comm::{CollectiveKind, Communicator, DType, ElementOp, FaultPlan, Operator, PathReport, Rank, Transport};

/// Element `index` of rank `rank`'s vector: small enough that every type is exact with every operator.
fn element(op: ElementOp, rank: u32, index: u64) -> i64 {
    let value = ((index.wrapping_mul(2_654_435_761) >> 7) + u64::from(rank) * 3) % 7;
    match op.operator {
        Operator::Prod => 1 + i64::from(value == 1 && rank < 3),
        _ => value as i64,
    }
}

fn bytes(op: ElementOp, elements: impl Iterator<Item = i64>) -> Vec<u8> {
    let mut bytes = Vec::new();
    elements.for_each(|element| op.dtype.push_i64(element, &mut bytes));
    bytes
}

/// The reduction of all ranks' element `index`.
fn reduced(op: ElementOp, world: u32, index: u64) -> Vec<u8> {
    let values = || (0..world).map(|rank| element(op, rank, index));
    let mut out = Vec::new();
    match op.operator {
        Operator::Sum => op.dtype.push_i64(values().sum(), &mut out),
        Operator::Avg => op.dtype.push_f64(values().sum::<i64>() as f64 / f64::from(world), &mut out),
        Operator::Prod => op.dtype.push_i64(values().product(), &mut out),
        Operator::Min => op.dtype.push_i64(values().min().unwrap(), &mut out),
        Operator::Max => op.dtype.push_i64(values().max().unwrap(), &mut out),
        Operator::And => op.dtype.push_i64(values().fold(-1, |x, y| x & y), &mut out),
        Operator::Or => op.dtype.push_i64(values().fold(0, |x, y| x | y), &mut out),
        Operator::Xor => op.dtype.push_i64(values().fold(0, |x, y| x ^ y), &mut out),
    }
    out
}

/// Runs one collective of every kind and compares every byte.
fn check_all_kinds(comm: &Communicator, op: ElementOp, elements: u64) {
    let (rank, world) = (comm.rank(), comm.world());
    let whole = elements * u64::from(world);
    let mine = |count: u64| bytes(op, (0..count).map(|index| element(op, rank, index)));
    let sum = |range: std::ops::Range<u64>| range.flat_map(|index| reduced(op, world, index)).collect::<Vec<u8>>();
    let (input, width) = (mine(elements), op.dtype.bytes());

    let mut vector = input.clone();
    comm.call_bytes_in_place(CollectiveKind::Allreduce, op, elements, &mut vector).unwrap();
    assert!(vector == sum(0..elements), "allreduce {op:?} of {elements}");

    let root = elements as u32 % world;
    let mut vector = input.clone();
    comm.call_bytes_in_place(CollectiveKind::Reduce { root: Rank(root) }, op, elements, &mut vector).unwrap();
    assert!(vector == if rank == root { sum(0..elements) } else { input.clone() }, "reduce {op:?} of {elements}");

    let mut vector = input.clone();
    comm.call_bytes_in_place(CollectiveKind::Broadcast { root: Rank(root) }, op, elements, &mut vector).unwrap();
    assert!(vector == bytes(op, (0..elements).map(|index| element(op, root, index))), "broadcast {op:?} of {elements}");

    let mut part = vec![0; input.len()];
    comm.call_bytes(CollectiveKind::ReduceScatter, op, elements, &mine(whole), &mut part).unwrap();
    assert!(part == sum(u64::from(rank) * elements..u64::from(rank + 1) * elements), "reduce-scatter {op:?} of {elements}");

    let mut all = vec![0; whole as usize * width];
    comm.call_bytes(CollectiveKind::AllGather, op, elements, &input, &mut all).unwrap();
    let expected: Vec<u8> = (0..world).flat_map(|rank| bytes(op, (0..elements).map(|index| element(op, rank, index)))).collect();
    assert!(all == expected, "all-gather {op:?} of {elements}");

    comm.barrier().unwrap();
}

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
