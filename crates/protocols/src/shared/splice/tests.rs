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
