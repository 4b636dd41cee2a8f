//! Streams that are cut, repeated and reordered at random: what comes out is what the vectors add up to.

use fanin_core::hash::mix;
use fanin_core::{DType, ElementOp, Operator};

use super::*;

/// The stream of one worker: messages of these operators and numbers of elements.
fn stream(ring: u32, rank: u16, world: u16, messages: &[(ElementOp, usize)]) -> Vec<u8> {
    let mut stream = Vec::new();
    for (number, &(op, elements)) in messages.iter().enumerate() {
        let bytes = (elements * op.dtype.bytes()) as u64;
        let header = MessageHeader { op, ring, message: number as u32, bytes, rank, world, summed: 0 };
        let start = stream.len();
        stream.resize(start + MessageHeader::LEN, 0);
        header.emit(&mut stream[start..]);
        for index in 0..elements {
            op.dtype.push_i64((mix(u64::from(rank) + 1, (number * 1_000 + index) as u64) % 5) as i64, &mut stream);
        }
        stream.resize(start + header.stream_bytes() as usize, 0);
    }
    stream
}

/// What every receiver must get.
fn expected(streams: &[Vec<u8>], messages: &[(ElementOp, usize)]) -> Vec<u8> {
    let mut result = streams[0].clone();
    let mut at = 0;
    for &(op, elements) in messages {
        let header = MessageHeader::parse(&streams[0][at..]).unwrap();
        MessageHeader { summed: header.world, ..header }.emit(&mut result[at..]);
        let data = at + MessageHeader::LEN..at + MessageHeader::LEN + elements * op.dtype.bytes();
        let inputs = streams.iter().map(|stream| &stream[data.clone()]);
        OrderedReduction::default().reduce(op, u32::from(header.world), inputs, &mut result[data.clone()]).unwrap();
        let sealed = at + header.sealed_bytes() as usize;
        let crc = checksum(0, &result[at..sealed]);
        result[sealed..sealed + SEAL_BYTES].copy_from_slice(&seal(crc));
        at += header.stream_bytes() as usize;
    }
    result
}

fn op(dtype: DType, operator: Operator) -> ElementOp {
    ElementOp::new(dtype, operator).unwrap()
}

fn messages() -> [(ElementOp, usize); 6] {
    [
        (op(DType::F32, Operator::Sum), 101),
        (op(DType::I8, Operator::Max), 3),
        (op(DType::BF16, Operator::Avg), 77),
        (op(DType::F64, Operator::Sum), 0),
        (op(DType::I64, Operator::Xor), 40),
        (op(DType::F32, Operator::Sum), 500),
    ]
}

#[test]
fn streams_cut_anyhow_add_up() {
    let messages = messages();
    for seed in 0..60u64 {
        let world = 2 + (seed % 4) as u16;
        let streams: Vec<Vec<u8>> = (0..world).map(|rank| stream(9, rank, world, &messages)).collect();
        let expected = expected(&streams, &messages);
        let length = expected.len() as u64;
        // Smaller than the streams: receivers must acknowledge before they can go on.
        let mut splice = Splice::new(9, world, 1024);
        let (mut received, mut there) = (vec![0u8; expected.len()], Intervals::default());
        let mut announced = Intervals::default();
        let mut step = 0;
        while there.reach(0) < length {
            step += 1;
            assert!(step < 400_000, "seed {seed} is stuck: {:?}", splice.waits());
            let draw = mix(seed, step);
            let rank = (draw % u64::from(world)) as u16;
            let acknowledged = there.reach(0);
            let start = (acknowledged + (draw >> 8) % 900).min(length);
            let end = (start + (draw >> 24) % 130).min(length);
            let mut complete = Vec::new();
            let bytes = &streams[usize::from(rank)][start as usize..end as usize];
            let inserted = splice.insert(rank, start, bytes, &mut complete).unwrap();
            assert_eq!(inserted == Inserted::TooFar, end > splice.base + 1024);
            for range in complete {
                assert!(announced.next_within(&range).is_none(), "announced twice");
                announced.insert(range.clone());
            }
            let range = start..end;
            if splice.is_complete(&range) {
                splice.read(start, &mut received[start as usize..end as usize]);
                // What lies below the base was received before.
                there.insert(range);
                if draw >> 60 < 8 {
                    splice.release(there.reach(0));
                }
            }
        }
        assert!(received == expected, "seed {seed}: other results");
        splice.release(length);
        assert!(splice.messages.is_empty() && splice.waits().is_none() && !splice.ends_inside(0, length));
    }
}

#[test]
fn the_first_copy_of_a_byte_counts_and_no_copy_counts_twice() {
    let messages = [(op(DType::I32, Operator::Sum), 8)];
    let streams: Vec<Vec<u8>> = (0..2).map(|rank| stream(1, rank, 2, &messages)).collect();
    let mut splice = Splice::new(1, 2, 128);
    let mut complete = Vec::new();
    for _ in 0..3 {
        splice.insert(0, 0, &streams[0], &mut complete).unwrap();
    }
    assert_eq!(complete, []);
    assert_eq!(splice.waits(), Some(Waits { at: 0, message: 0, ranks: vec![1] }));
    splice.insert(1, 0, &streams[1], &mut complete).unwrap();
    let mut other = streams[0].clone();
    other[MessageHeader::LEN..].fill(0xff);
    splice.insert(0, 0, &other, &mut complete).unwrap();
    let mut received = vec![0; 72];
    splice.read(0, &mut received);
    assert_eq!(received, expected(&streams, &messages));
    assert_eq!(complete, [0..32, 32..64, 64..72]);
}

#[test]
fn rings_that_disagree_say_who_and_in_what() {
    let good = stream(1, 0, 2, &[(op(DType::I32, Operator::Sum), 8)]);
    let against = |other: &[u8], rank: u16| {
        let mut splice = Splice::new(1, 2, 256);
        let mut complete = Vec::new();
        splice.insert(0, 0, &good, &mut complete).unwrap();
        splice.insert(rank, 0, other, &mut complete).unwrap_err()
    };
    let disagreement = |field| SpliceError::Disagreement { rank: 1, message: 0, field };
    assert_eq!(against(&stream(1, 1, 2, &[(op(DType::I32, Operator::Sum), 6)]), 1), disagreement("bytes"));
    assert_eq!(against(&stream(1, 1, 2, &[(op(DType::I32, Operator::Max), 8)]), 1), disagreement("operator"));
    assert_eq!(against(&stream(2, 1, 2, &[(op(DType::I32, Operator::Sum), 8)]), 1), disagreement("ring"));
    assert_eq!(against(&stream(1, 0, 2, &[(op(DType::I32, Operator::Sum), 8)]), 1), disagreement("rank"));
    // At once, not when all have come: what a longer message of the first one says would be read by the wrong lengths.
    let mut splice = Splice::new(1, 3, 256);
    splice.insert(0, 0, &stream(1, 0, 3, &[(op(DType::I32, Operator::Sum), 2)]), &mut Vec::new()).unwrap();
    let other = stream(1, 1, 3, &[(op(DType::F32, Operator::Sum), 20)]);
    assert_eq!(splice.insert(1, 0, &other, &mut Vec::new()), Err(disagreement("bytes")));
    let mut splice = Splice::new(1, 2, 256);
    let error = splice.insert(1, 0, &[7; 40], &mut Vec::new()).unwrap_err();
    assert!(error.to_string().starts_with("no message begins at byte 0 of rank 1's stream: field `magic`"), "{error}");
}

#[test]
fn acknowledgements_of_what_was_never_sent_are_not_believed() {
    let messages = [(op(DType::I32, Operator::Sum), 8)];
    let streams: Vec<Vec<u8>> = (0..2).map(|rank| stream(1, rank, 2, &messages)).collect();
    let mut splice = Splice::new(1, 2, 128);
    let mut complete = Vec::new();
    splice.insert(0, 0, &streams[0], &mut complete).unwrap();
    splice.release(1 << 40);
    assert_eq!(splice.base, 0);
    splice.insert(1, 0, &streams[1], &mut complete).unwrap();
    splice.release(1 << 40);
    assert_eq!(splice.base, 72);
}

/// Parts of a ring, each summed by itself, and a splice that has all of them: what it gives back is what one splice would have.
#[test]
fn parts_of_a_ring_add_up_to_what_one_switch_sums() {
    // Of whole numbers: a mean of 16 bits is rounded at each switch.
    let messages = messages();
    for seed in 0..30u64 {
        let world = 3 + (seed % 4) as u16;
        let streams: Vec<Vec<u8>> = (0..world).map(|rank| stream(5, rank, world, &messages)).collect();
        let expected = expected(&streams, &messages);
        let end = expected.len() as u64;
        let is_far = |rank: u16| mix(seed, u64::from(rank) + 900).is_multiple_of(2) && rank > 0;
        let (near, far): (Vec<u16>, Vec<u16>) = (0..world).partition(|rank| !is_far(*rank));
        if far.is_empty() {
            continue;
        }
        let (mut root, mut leaf) = (Splice::new(5, world, 1 << 14), Splice::new(5, world, 1 << 14));
        let (mut up, mut whole) = (Vec::new(), Vec::new());
        let early = seed % 3 == 0;
        let gather = |root: &mut Splice, leaf: &mut Splice, up: &mut Vec<Range<u64>>, whole: &mut Vec<Range<u64>>| {
            leaf.gather(&far, true, up).unwrap();
            let all = [&near[..], &far[..1]].concat();
            root.gather(&all, false, whole).unwrap();
        };
        if early {
            gather(&mut root, &mut leaf, &mut up, &mut whole);
        }
        let mut step = 0;
        while leaf.complete_to(0) < end || root.complete_to(0) < end {
            step += 1;
            assert!(step < 40_000, "seed {seed}: {} and {}", root.complete_to(0), leaf.complete_to(0));
            let draw = mix(seed, 2_000 + step);
            let rank = (draw % u64::from(world)) as u16;
            let from = ((draw >> 8) % (end + 200)).saturating_sub(200);
            let to = (from + 1 + (draw >> 32) % 300).min(end);
            let bytes = &streams[usize::from(rank)][from as usize..to as usize];
            if is_far(rank) {
                leaf.insert(rank, from, bytes, &mut up).unwrap();
            } else {
                root.insert(rank, from, bytes, &mut whole).unwrap();
            }
            if !early && step == 50 {
                assert!(up.is_empty() && whole.is_empty());
                gather(&mut root, &mut leaf, &mut up, &mut whole);
            }
            for range in std::mem::take(&mut up) {
                let mut sum = vec![0; (range.end - range.start) as usize];
                leaf.part(range.start, &mut sum);
                root.insert(far[0], range.start, &sum, &mut whole).unwrap();
                // A copy changes nothing.
                root.insert(far[0], range.start, &sum, &mut whole).unwrap();
            }
            let mut given = Vec::new();
            for range in std::mem::take(&mut whole) {
                let mut result = vec![0; (range.end - range.start) as usize];
                root.read(range.start, &mut result);
                leaf.give(range.start, &result, &mut given).unwrap();
                leaf.give(range.start, &vec![9; result.len()], &mut given).unwrap();
            }
            assert!(given.iter().all(|range| leaf.is_complete(range)));
        }
        let mut at_leaf = vec![0; expected.len()];
        leaf.read(0, &mut at_leaf);
        assert!(at_leaf == expected, "seed {seed}");
        assert_eq!((leaf.part_to(), leaf.waits(), root.waits()), (Some(end), None, None));
    }
}

#[test]
fn a_result_to_which_nobody_has_contributed_is_refused() {
    let mut leaf = Splice::new(5, 4, 4_096);
    let bytes = stream(5, 2, 4, &[(op(DType::I32, Operator::Sum), 10)]);
    let mut up = Vec::new();
    leaf.insert(2, 0, &bytes[..64], &mut up).unwrap();
    leaf.gather(&[2], true, &mut up).unwrap();
    assert_eq!(up, [0..32, 32..64]);
    assert_eq!(leaf.give(32, &[1; 40], &mut Vec::new()), Err(SpliceError::Unasked { at: 32 }));
    assert_eq!(leaf.give(u64::MAX, &[1; 8], &mut Vec::new()), Err(SpliceError::Unasked { at: u64::MAX }));
    assert_eq!(leaf.give(32, &[1; 32], &mut up), Ok(()));
    // What its own ranks have sent is summed: the rest is waited for elsewhere.
    assert_eq!(leaf.waits(), Some(Waits { at: 0, message: 0, ranks: vec![] }));
    leaf.insert(2, 64, &bytes[64..], &mut up).unwrap();
    assert_eq!(leaf.waits(), Some(Waits { at: 0, message: 0, ranks: vec![] }));
    let mut whole = Splice::new(5, 4, 4_096);
    whole.insert(2, 0, &bytes, &mut up).unwrap();
    assert_eq!(whole.give(0, &[1; 8], &mut up), Err(SpliceError::Unasked { at: 0 }), "all are summed here");
}
