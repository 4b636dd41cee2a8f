//! Reproducible sums by element: the same bits in every order of ranks, in every packing and by every path, and how near they are to exact
//! sums.

mod common;

use common::{configs, run};
use fanin_comm::{CollectiveKind, Communicator, Config, DType, ElementOp, Operator, ReproducibleBy, Transport};
use fanin_core::hash::mix;

const WORLD: u32 = 3;
const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];
/// Which rank's contribution each rank gives.
const ORDERS: [[u32; 3]; 6] = [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]];
/// Elements of a vector: no whole number of anything.
const LENGTH: usize = 307;

/// Floats of sizes that differ by up to 2^40, some that cancel, and all edges: each with each.
fn contribution(dtype: DType, rank: u32) -> Vec<u8> {
    let largest = match dtype {
        DType::F16 => 65_504.0,
        DType::F64 => f64::MAX,
        DType::BF16 => 3.389_531_389_251_535_5e38,
        _ => f64::from(f32::MAX),
    };
    // The smallest number of each type is made of its bits below.
    let edges = [0.0, -0.0, 1.0, -1.0, largest, -largest, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-10, 0.1];
    let (mut bytes, count) = (Vec::new(), edges.len());
    for index in 0..LENGTH {
        let draw = mix(u64::from(rank), index as u64);
        let value = match index {
            0..121 => edges[[index % count, index / count, (index + 5) % count][rank as usize]],
            121..160 => [1.0, -1.0, 1e-3][rank as usize] * (index as f64),
            _ => (draw as i64 >> 11) as f64 / (1u64 << 50) as f64 / (1u64 << (draw & 31)) as f64,
        };
        dtype.push_f64(value, &mut bytes);
    }
    let smallest = (LENGTH - 3) * dtype.bytes();
    bytes[smallest..].fill(0);
    bytes[smallest] = rank as u8 + 1;
    bytes
}

/// Any bits beside the vector, others at each rank.
fn around(dtype: DType, elements: usize, seed: u64) -> Vec<u8> {
    (0..elements * dtype.bytes()).map(|index| mix(seed, index as u64) as u8).collect()
}

/// All bits that the sums of a type have at a rank, in every packing, one after another.
fn packed(comm: &Communicator, dtype: DType, mine: &[u8]) -> Vec<Vec<u8>> {
    let (op, width) = (ElementOp { dtype, operator: Operator::Sum }, dtype.bytes());
    let sum = |mut vector: Vec<u8>| {
        let elements = (vector.len() / width) as u64;
        comm.call_bytes_in_place(CollectiveKind::Allreduce, op, elements, &mut vector).unwrap();
        vector
    };
    let mut seen = vec![sum(mine.to_vec())];
    for offset in [1, 100, 256, 700] {
        let seed = u64::from(comm.rank()) << 32 | offset as u64;
        let larger = [around(dtype, offset, seed), mine.to_vec(), around(dtype, 50, seed + 1)].concat();
        seen.push(sum(larger)[offset * width..][..mine.len()].to_vec());
    }
    // In two parts, and as a share of a reduce-scatter that every rank gets.
    let (front, back) = mine.split_at(97 * width);
    seen.push([sum(front.to_vec()), sum(back.to_vec())].concat());
    let (shares, mut share) = (mine.repeat(comm.world() as usize), vec![0; mine.len()]);
    comm.call_bytes(CollectiveKind::ReduceScatter, op, LENGTH as u64, &shares, &mut share).unwrap();
    seen.push(share);
    seen
}

fn by_element(configs: Vec<Config>, payload_bytes: Option<u32>) -> Vec<Config> {
    let with = |config| Config { reproducible: Some(ReproducibleBy::Element), payload_bytes, ..config };
    configs.into_iter().map(with).collect()
}

#[test]
fn an_element_has_the_same_bits_in_every_order_of_ranks_in_every_packing_and_by_every_path() {
    let mut first: Option<Vec<Vec<u8>>> = None;
    for (transport, payload) in
        [(Transport::Memory, None), (Transport::Udp, None), (Transport::Udp, Some(64)), (Transport::Udp, Some(1_000))]
    {
        let (configs, _) = configs(WORLD, transport);
        let at_ranks = run(by_element(configs, payload), |comm| {
            let of_type = |dtype| {
                let of_order = |order: [u32; 3]| packed(&comm, dtype, &contribution(dtype, order[comm.rank() as usize]));
                ORDERS.into_iter().flat_map(of_order).collect::<Vec<_>>()
            };
            FLOATS.map(of_type)
        });
        for (rank, types) in at_ranks.into_iter().enumerate() {
            let expected = first.get_or_insert_with(|| types.iter().map(|seen| seen[0].clone()).collect());
            for ((dtype, seen), expected) in FLOATS.into_iter().zip(types).zip(expected) {
                assert_eq!(seen.len(), 6 * 7);
                for (index, bits) in seen.iter().enumerate() {
                    assert!(bits == expected, "{dtype}, rank {rank}, {transport:?}, {payload:?}: order and packing {index}");
                }
            }
        }
    }
}

/// The sum of floats as an integer, in units of 2^-160, of numbers that are multiples of that and below 2^90 or so in units.
fn in_units(x: f64) -> i128 {
    let scaled = x * (1u64 << 60) as f64;
    assert!(scaled == scaled.trunc() && scaled.abs() < 1e35, "{x:e}");
    scaled as i128
}

#[test]
fn a_sum_is_as_near_to_the_exact_one_as_is_promised_for_its_own_largest_summand() {
    for world in [2u32, 5, 8] {
        // Whole multiples of 2^-60, of 24 digits, from 2^-60 to 2^30.
        let value = |rank: u32, index: usize| {
            let draw = mix(index as u64, u64::from(rank));
            let digits = (draw as i32 >> 8) as f32;
            digits * 2f32.powi((draw >> 40) as i32 % 67 - 60)
        };
        let (configs, _) = configs(world, Transport::Memory);
        let results = run(by_element(configs, None), move |comm| {
            let mut vector: Vec<f32> = (0..20_000).map(|index| value(comm.rank(), index)).collect();
            comm.allreduce(&mut vector, Operator::Sum).unwrap();
            vector
        });
        let mut worst = 0.0f64;
        for (index, got) in results[0].iter().enumerate() {
            let summands: Vec<f64> = (0..world).map(|rank| f64::from(value(rank, index))).collect();
            let exact: i128 = summands.iter().map(|x| in_units(*x)).sum();
            let error = (in_units(f64::from(*got)) - exact).unsigned_abs() as f64 / (1u64 << 60) as f64;
            let largest = summands.iter().fold(0.0, |largest: f64, x| largest.max(x.abs()));
            let promised = f64::from(world * world.next_power_of_two()) / (1u64 << 31) as f64 * largest;
            let rounding = f64::from(*got).abs() / f64::from(1u32 << 24);
            assert!(error <= promised + rounding, "{world} ranks, element {index}: {got:e} is off by {error:e}, {promised:e} promised");
            worst = worst.max((error - rounding) / promised);
        }
        assert!(worst > 0.05 || world == 2, "{world} ranks: the bound is not far from what happens: {worst}");
    }
}
