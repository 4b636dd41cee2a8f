//! Sums of sparse vectors over two levels of switches: exact, whatever the storage, the order and the copies of packets.

use std::collections::BTreeMap;

use fanin_core::hash::mix;
use fanin_core::{Extent, IndexCoding, PairCut, PairFormat};
use fanin_protocols::flare::{Array, Packet, Pair, SparseBlock, Storage, Table, Taken, packets, union_density};
use fanin_wire::flare::Part;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A packet on its way.
#[derive(Clone, Debug)]
struct OnWay {
    part: Part,
    pairs: Vec<Pair<i64>>,
}

fn on_way(packet: Packet<'_, i64>) -> OnWay {
    let number = u16::try_from(packet.number).expect("few packets");
    let packets = u16::try_from(packet.packets).expect("few packets");
    let part = Part { number, count: packet.pairs.len() as u16, packets, making: 0, coding: packet.coding };
    OnWay { part, pairs: packet.pairs.to_vec() }
}

/// All packets, some of them twice, in a random order of all children.
fn shuffled(from: Vec<Vec<OnWay>>, seed: u64) -> Vec<(u32, OnWay)> {
    let mut all: Vec<(u32, OnWay)> =
        from.into_iter().zip(0..).flat_map(|(sent, child)| sent.into_iter().map(move |one| (child, one))).collect();
    let copies: Vec<(u32, OnWay)> =
        all.iter().enumerate().filter(|(at, _)| mix(seed, *at as u64).is_multiple_of(4)).map(|(_, one)| one.clone()).collect();
    all.extend(copies);
    for last in (1..all.len()).rev() {
        all.swap(last, (mix(seed ^ 0xabc, last as u64) % (last as u64 + 1)) as usize);
    }
    all
}

/// What a switch sends for these packets of its children, until the block is complete.
fn through(storage: Storage<i64>, from: Vec<Vec<OnWay>>, range: u32, seed: u64, combine: fn(&mut i64, i64)) -> Vec<OnWay> {
    let mut block = SparseBlock::new(storage, from.len() as u32, range);
    let mut sent = Vec::new();
    let mut ended = false;
    for (child, packet) in shuffled(from, seed) {
        // Copies that come later belong to a block that the node knows has ended.
        if ended {
            continue;
        }
        let taken = block.on_packet(child, packet.part, packet.pairs.iter().copied(), combine, |packet| sent.push(on_way(packet)));
        ended = taken.expect("nothing is wrong with it") == Taken::Completed;
    }
    assert!(ended && block.storage().is_empty());
    sent
}

/// Sparse contributions of a worker: some of them zero, some cancel each other.
fn contribution(range: u32, pairs: u32, seed: u64) -> Vec<Pair<i64>> {
    let chosen: BTreeMap<u16, i64> = (0..u64::from(pairs))
        .map(|draw| {
            let bits = mix(seed, draw);
            ((bits % u64::from(range)) as u16, (bits >> 32) as i64 % 5 - 2)
        })
        .collect();
    chosen.into_iter().map(|(index, value)| Pair { index, value }).collect()
}

#[derive(Clone, Debug)]
struct Case {
    leaves: Vec<u32>,
    range: u32,
    pairs: u32,
    capacity: usize,
    slots: u32,
    probes: bool,
    shortest: bool,
    table_at_root: bool,
    is_maximum: bool,
    seed: u64,
}

impl Case {
    fn cut(&self) -> PairCut {
        PairCut { format: PairFormat { index_bytes: 2, value_bytes: 8 }, capacity: self.capacity as u32, shortest: self.shortest }
    }
}

fn cases() -> impl Strategy<Value = Case> {
    let leaves = prop::collection::vec(1..5u32, 1..5);
    (leaves, 1..400u32, 0..120u32, 1..20usize, 1..64u32, any::<(bool, bool)>(), any::<bool>(), any::<bool>(), any::<u64>()).prop_map(
        |(leaves, range, pairs, capacity, slots, (probes, shortest), table_at_root, is_maximum, seed)| Case {
            leaves,
            range,
            pairs,
            capacity,
            slots,
            probes,
            shortest,
            table_at_root,
            is_maximum,
            seed,
        },
    )
}

fn run(case: &Case) -> (BTreeMap<u16, i64>, BTreeMap<u16, i64>) {
    let combine: fn(&mut i64, i64) = if case.is_maximum { |sum, value| *sum = (*sum).max(value) } else { |sum, value| *sum += value };
    let mut expected = BTreeMap::new();
    let mut to_root = Vec::new();
    let mut worker = 0;
    for (leaf, &count) in case.leaves.iter().enumerate() {
        let mut sent = Vec::new();
        for _ in 0..count {
            let pairs = contribution(case.range, case.pairs, mix(case.seed, worker));
            worker += 1;
            for pair in &pairs {
                expected.entry(pair.index).and_modify(|sum| combine(sum, pair.value)).or_insert(pair.value);
            }
            sent.push(packets(&pairs, case.capacity).map(on_way).collect());
        }
        let table = Storage::Table(Table::cut(case.slots, case.probes, case.cut()));
        to_root.push(through(table, sent, case.range, mix(case.seed, 1_000 + leaf as u64), combine));
    }
    let storage = if case.table_at_root {
        Storage::Table(Table::cut(case.slots, case.probes, case.cut()))
    } else {
        Storage::Array(Array::cut(case.range, case.cut()))
    };
    let mut result = BTreeMap::new();
    // What a table at the root has spilled is merged where it is delivered.
    for packet in through(storage, to_root, case.range, mix(case.seed, 2_000), combine) {
        for pair in packet.pairs {
            result.entry(pair.index).and_modify(|sum| combine(sum, pair.value)).or_insert(pair.value);
        }
    }
    (result, expected)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, rng_seed: RngSeed::Fixed(0xf1a7e), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn two_levels_give_what_a_dense_sum_gives(case in cases()) {
        let (result, expected) = run(&case);
        prop_assert_eq!(result, expected);
    }
}

/// As `flare 5` has it, sums become dense near the root; with an index for each value they would be half as long again as dense ones.
#[test]
fn a_dense_sum_takes_few_more_bytes_than_its_values() {
    let format = PairFormat { index_bytes: 2, value_bytes: 4 };
    let bytes = |shortest: bool, every: u16| {
        let mut array = Storage::Array(Array::cut(10_000, PairCut { format, capacity: 164, shortest }));
        let mut sent = (0, 0);
        for index in (0..10_000).filter(|index| index % every != 1) {
            array.add(0, Pair { index, value: 1i64 }, &mut |_, _| {}, &mut |_: Packet<'_, i64>| {});
        }
        array.flush(&mut |packet| {
            let extent = packet.pairs.iter().fold(Extent::default(), |extent, pair| extent.with(u32::from(pair.index)));
            let bytes = if shortest { extent.shortest(format).1 } else { packet.pairs.len() as u64 * 6 };
            assert!(bytes <= 984 && (packet.coding != IndexCoding::Pairs) == shortest, "{bytes} bytes, {:?}", packet.coding);
            sent = (sent.0 + 1, sent.1 + bytes);
        });
        sent
    };
    // 61 packets of 164 pairs; 41 of a first index and 245 values; 39 of 4 bytes, a bit an index, and a value for nine tenths of them.
    assert_eq!(bytes(false, u16::MAX), (61, 6 * 9_999));
    let (packets, all) = bytes(true, u16::MAX);
    assert!(packets == 41 && all <= 4 * 9_999 + 41 * 36, "{packets} packets, {all} bytes");
    let (packets, most) = bytes(true, 10);
    assert!(packets <= 39 && most <= 4 * 9_000 + 10_000 / 8 + 39 * 6, "{packets} packets, {most} bytes");
}

#[test]
fn the_root_sees_the_density_that_is_derived() {
    // `flare 5`: eight leaves of eight workers at 0.2 %.
    let (range, workers) = (60_000u32, 64u64);
    let mut array = Storage::Array(Array::new(range, 164));
    for worker in 0..workers {
        for pair in contribution(range, range / 500, mix(9, worker)) {
            array.add(0, pair, &mut |sum, value| *sum += value, &mut |_: Packet<'_, i64>| {});
        }
    }
    let (measured, derived) = (f64::from(array.len()) / f64::from(range), union_density(0.002, 64));
    assert!((measured / derived - 1.0).abs() < 0.03, "{measured} is not {derived}");
}

#[test]
fn what_is_wrong_is_refused_and_changes_nothing() {
    use fanin_protocols::flare::Refused;
    let mut block = SparseBlock::new(Storage::<i64>::Array(Array::new(10, 4)), 1, 10);
    let part = Part { number: 0, count: 2, packets: 1, making: 0, coding: IndexCoding::Pairs };
    let good = Pair { index: 9, value: 1 };
    let before = block.clone();
    let mut give = |pairs: &[Pair<i64>]| block.on_packet(0, part, pairs.iter().copied(), |sum, value| *sum += value, |_| panic!("not yet"));
    assert_eq!(give(&[good]), Err(Refused::Count));
    assert_eq!(give(&[good, Pair { index: 10, value: 1 }]), Err(Refused::Index));
    assert_eq!(block, before);
}
