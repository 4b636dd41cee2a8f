//! Every collective of every type and operator, whose results are compared byte by byte.

use fanin_comm::{CollectiveKind, Communicator, ElementOp, Operator, Rank};

/// Element `index` of rank `rank`'s vector: small enough that every type is exact with every operator.
fn element(op: ElementOp, rank: u32, index: u64) -> i64 {
    let value = ((index.wrapping_mul(2_654_435_761) >> 7) + u64::from(rank) * 3) % 7;
    match op.operator {
        Operator::Prod => 1 + i64::from(value == 1 && rank < 3),
        _ => value as i64,
    }
}

/// The bytes of elements.
pub fn bytes(op: ElementOp, elements: impl Iterator<Item = i64>) -> Vec<u8> {
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
        Operator::Min | Operator::Minimum => op.dtype.push_i64(values().min().unwrap(), &mut out),
        Operator::Max | Operator::Maximum => op.dtype.push_i64(values().max().unwrap(), &mut out),
        Operator::And => op.dtype.push_i64(values().fold(-1, |x, y| x & y), &mut out),
        Operator::Or => op.dtype.push_i64(values().fold(0, |x, y| x | y), &mut out),
        Operator::Xor => op.dtype.push_i64(values().fold(0, |x, y| x ^ y), &mut out),
    }
    out
}

/// Runs one collective of every kind and compares every byte.
pub fn check_all_kinds(comm: &Communicator, op: ElementOp, elements: u64) {
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
