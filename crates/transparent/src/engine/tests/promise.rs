//! Losses of one worker, of which the others' senders hear nothing; and what the switch has to do since it has acknowledged their bytes.

use super::*;

/// From a byte of a stream to another one.
type Block = (u64, u64);
/// What a sender hears: up to where all has come, what lies behind a gap, and how much further it may send.
type Heard = (u64, Vec<Block>, u64);

/// A receiver's answer: all before `to` has come, and what lies behind a gap.
fn answer(network: &mut Network, flow: Flow, to: u64, blocks: &[Block]) -> Vec<(usize, Vec<u8>)> {
    let of = |block: &Block| (BASE.wrapping_add(block.0 as u32), BASE.wrapping_add(block.1 as u32));
    let set = |tcp: &mut TcpHeader| {
        (tcp.sequence_number, tcp.acknowledgment_number, tcp.window_size) = (100, BASE.wrapping_add(to as u32), 30_000);
        let mut options = vec![TcpOptionElement::Timestamp(7, 1)];
        if let Some((first, more)) = blocks.split_first() {
            options.push(TcpOptionElement::SelectiveAcknowledgement(of(first), [more.first().map(of), more.get(1).map(of), None]));
        }
        tcp.set_options(&options).unwrap();
    };
    network.send(host(&flow.to), frame(flow.reverse(), &[], 1, set))
}

fn heard(frame: &[u8]) -> Heard {
    let segment = Segment::parse(frame).unwrap();
    assert!(segment.is_whole(frame, &Offload::default()) && segment.payload_bytes() == 0);
    let offset = |sequence: u32| u64::from(sequence.wrapping_sub(BASE));
    let tcp = etherparse::TcpHeaderSlice::from_slice(&frame[if segment.flow.from.is_ipv6() { 54 } else { 34 }..]).unwrap();
    let mut ranges = Vec::new();
    for option in tcp.options_iterator() {
        if let TcpOptionElement::SelectiveAcknowledgement(first, more) = option.unwrap() {
            ranges.extend([Some(first)].into_iter().chain(more).flatten().map(|(from, to)| (offset(from), offset(to))));
        }
    }
    ranges.sort_unstable();
    (offset(segment.acknowledged), ranges, segment.window.into())
}

fn answers(left: &[(usize, Vec<u8>)], to: Flow) -> Vec<Heard> {
    let is_answer = |frame: &&(usize, Vec<u8>)| Segment::parse(&frame.1).is_some_and(|segment| segment.flow == to.reverse());
    left.iter().filter(is_answer).map(|(_, frame)| heard(frame)).collect()
}

fn bytes(left: &[(usize, Vec<u8>)], of: Flow) -> Vec<Block> {
    let ranges = left.iter().filter_map(|(_, frame)| {
        let segment = Segment::parse(frame).filter(|segment| segment.flow == of && segment.payload_bytes() > 0)?;
        let from = u64::from(segment.sequence.wrapping_sub(BASE));
        Some((from, from + u64::from(segment.payload_bytes())))
    });
    ranges.collect()
}

/// Two workers. Both receivers have 400 bytes; of what follows rank 1's first segment is lost, and both receivers say that there is a gap: what
/// the senders hear of that.
fn gap() -> (Network, [Vec<u8>; 2], [Vec<Heard>; 2]) {
    let streams = [0, 1].map(|rank| stream(5, rank, 2, &[600]));
    let mut network = Network::new(2, 4_096);
    for (rank, stream) in streams.iter().enumerate() {
        network.data(flow(rank, 2), 0, &stream[..400], false);
    }
    (0..2).for_each(|rank| assert_eq!(answers(&answer(&mut network, flow(rank, 2), 400, &[]), flow(rank, 2)).len(), 1));
    for from in [400, 800] {
        assert!(network.data(flow(0, 2), from, &streams[0][from..from + 400], false).is_empty());
    }
    let left = network.data(flow(1, 2), 800, &streams[1][800..1_200], false);
    assert_eq!([0, 1].map(|rank| bytes(&left, flow(rank, 2))), [vec![(800, 1_200)], vec![(800, 1_200)]]);
    let said = [0, 1].map(|rank| {
        let left = answer(&mut network, flow(rank, 2), 400, &[(800, 1_200)]);
        answers(&left, flow(rank, 2))
    });
    (network, streams, said)
}

/// Up to where the memory reaches when both receivers have 400 bytes.
const REACH: u64 = 400 + 4_096;

#[test]
fn only_who_has_lost_something_hears_of_it() {
    let (mut network, streams, said) = gap();
    // Both may send up to the same byte as before.
    assert_eq!(said[0], [(1_200, vec![], REACH - 1_200)]);
    assert_eq!(said[1], [(400, vec![(800, 1_200)], REACH - 400)]);
    // Whoever has a gap hears at once what comes behind it, and so does who waits for him.
    let left = network.data(flow(1, 2), 1_300, &streams[1][1_300..1_400], false);
    assert_eq!(answers(&left, flow(1, 2)), [(400, vec![(800, 1_200), (1_300, 1_400)], REACH - 400)]);
    let left = network.data(flow(0, 2), 1_200, &streams[0][1_200..1_300], false);
    assert_eq!(answers(&left, flow(0, 2)), [(1_300, vec![], REACH - 1_300)]);
    // An answer of before does not take anything back.
    let left = answer(&mut network, flow(0, 2), 400, &[(800, 1_200)]);
    assert_eq!(answers(&left, flow(0, 2)), [(1_300, vec![], REACH - 1_300)]);
    // The gap is closed: both have their sums, and acknowledgements are the receivers' own.
    let left = network.data(flow(1, 2), 400, &streams[1][400..800], false);
    assert_eq!([0, 1].map(|rank| bytes(&left, flow(rank, 2))), [vec![(400, 800)], vec![(400, 800)]]);
    for (rank, stream) in streams.iter().enumerate() {
        network.data(flow(rank, 2), 1_200, &stream[1_200..1_600], false);
    }
    for rank in 0..2 {
        let left = answer(&mut network, flow(rank, 2), 1_600, &[]);
        assert_eq!(answers(&left, flow(rank, 2))[0].0, 1_600);
    }
    assert_eq!((network.pass(10_000).len(), network.switch.statistics().owed), (0, 0));
}

#[test]
fn what_the_switch_has_acknowledged_it_sends_again() {
    let (mut network, streams, _) = gap();
    let expected = result(5, 2, &[600]);
    // As long as the sum is missing there is nothing to send.
    assert!(network.pass(1_000).is_empty());
    let left = network.data(flow(1, 2), 400, &streams[1][400..800], false);
    assert_eq!(bytes(&left, flow(0, 2)), [(400, 800)]);
    // That is lost behind the switch, and its sender, who knows that it has come, never sends it again.
    let mut left = Vec::new();
    for _ in 0..4 {
        left.extend(network.pass(50));
    }
    let again = bytes(&left, flow(0, 2));
    assert!(!again.is_empty() && again.iter().all(|block| *block == (400, 1_200)), "{again:?}");
    let mut receiver = Receiver::new(expected.len());
    receiver.bytes[..400].copy_from_slice(&expected[..400]);
    receiver.there.insert(0..400);
    for (port, frame) in left.iter().filter(|(_, frame)| Segment::parse(frame).unwrap().flow == flow(0, 2)) {
        assert_eq!(*port, 1);
        receiver.take(frame);
    }
    assert_eq!(receiver.bytes[..1_200], expected[..1_200]);
    // The other receiver was owed nothing: its sender has not been told anything else than what it has said.
    assert!(bytes(&left, flow(1, 2)).iter().all(|block| block.0 == 400), "what its sender has heard of selectively");
    for rank in 0..2 {
        let left = answer(&mut network, flow(rank, 2), 1_200, &[]);
        assert_eq!(answers(&left, flow(rank, 2))[0].0, 1_200);
    }
    let owed = network.switch.statistics().owed;
    assert!(network.pass(10_000).is_empty() && network.switch.statistics().owed == owed);
}

#[test]
fn what_is_lost_behind_the_switch_is_sent_again_as_soon_as_the_receiver_has_something_behind_it() {
    let (mut network, streams, _) = gap();
    network.data(flow(1, 2), 400, &streams[1][400..800], false);
    // What left before has reached the receiver, which says so before the lost segment could have come.
    let left = answer(&mut network, flow(0, 2), 400, &[(800, 1_200)]);
    assert!(bytes(&left, flow(0, 2)).is_empty());
    assert!(network.pass(46).is_empty());
    let left = answer(&mut network, flow(0, 2), 400, &[(800, 1_200)]);
    assert_eq!(bytes(&left, flow(0, 2)), [(400, 1_200)]);
    // How long a receiver takes is known when it has answered once.
    network.pass(2);
    answer(&mut network, flow(0, 2), 1_200, &[]);
    assert_eq!((network.switch.streams[&flow(0, 2)].debt.turn, network.switch.statistics().owed), (None, 1), "it was sent twice");
    let mut network = gap().0;
    network.data(flow(1, 2), 400, &streams[1][400..800], false);
    network.pass(2);
    answer(&mut network, flow(0, 2), 1_200, &[]);
    let turn = network.switch.streams[&flow(0, 2)].debt.turn.unwrap();
    assert!((Duration::from_ms(2)..Duration::from_ms(3)).contains(&turn), "{turn:?}");
}

#[test]
fn where_nothing_is_lost_acknowledgements_are_the_receivers_own() {
    let streams = [0, 1].map(|rank| stream(5, rank, 2, &[600]));
    let mut network = Network::new(2, 4_096);
    for (rank, to) in [(0, 1_200), (1, 400)] {
        network.data(flow(rank, 2), 0, &streams[rank][..to], false);
    }
    // Rank 1 is late; and what came twice is reported in the same way as a gap (RFC 2883).
    for blocks in [vec![], vec![(0, 300)]] {
        let left = answer(&mut network, flow(0, 2), 400, &blocks);
        assert_eq!(answers(&left, flow(0, 2)), [(400, blocks, 4_096 - 400)]);
    }
    let left = network.data(flow(0, 2), 1_200, &streams[0][1_200..1_300], false);
    assert!(left.is_empty() && network.pass(1_000).is_empty());
    assert_eq!(network.switch.statistics().answered, 0);
}

/// Senders that take every acknowledgement for what it says, and never send again what is below it; losses on both sides of the switch.
#[test]
fn sums_are_exact_where_senders_rely_on_what_the_switch_has_acknowledged() {
    let (mut answered, mut owed) = (0, 0);
    for seed in 0..30u64 {
        let (world, messages) = (2 + (seed % 3) as usize, [301, 0, 7, 1_200]);
        let flow = |rank: usize, world: usize| if seed % 4 == 0 { by_ipv6(flow(rank, world)) } else { flow(rank, world) };
        let expected = result(5, world, &messages);
        let streams: Vec<Vec<u8>> = (0..world).map(|rank| stream(5, rank, world, &messages)).collect();
        let mut network = Network::with_flows(world, 4_096, (0..world).map(|rank| flow(rank, world)));
        let mut receivers: Vec<Receiver> = (0..world).map(|_| Receiver::new(expected.len())).collect();
        let mut told = vec![0u64; world];
        let mut step = 0;
        while !receivers.iter().all(|receiver| receiver.ended) {
            step += 1;
            assert!(
                step < 60_000,
                "seed {seed} is stuck at {told:?}, {:?}",
                receivers.iter().map(|r| r.there.reach(0)).collect::<Vec<_>>()
            );
            let draw = mix(seed, step);
            let rank = (draw >> 8) as usize % world;
            let mut left: VecDeque<(usize, Vec<u8>)> = if draw.is_multiple_of(16) {
                network.pass(60).into()
            } else {
                let start = (told[rank] as usize + if draw & 3 == 1 { 0 } else { (draw >> 16) as usize % 900 }).min(expected.len());
                let end = (start + 1 + (draw >> 32) as usize % 400).min(expected.len());
                if (draw >> 50).is_multiple_of(8) {
                    continue;
                }
                network.data(flow(rank, world), start, &streams[rank][start..end], end == expected.len()).into()
            };
            let mut number = 0;
            while let Some((_, frame)) = left.pop_front() {
                number += 1;
                let segment = Segment::parse(&frame).unwrap();
                // Behind the switch, too, one in eight is lost, whether it goes to a receiver or back.
                if mix(draw, number).is_multiple_of(8) {
                    continue;
                }
                if segment.flow.to.port() != 7_000 {
                    let sender = host(&segment.flow.to);
                    told[sender] = told[sender].max(heard(&frame).0.min(expected.len() as u64));
                    continue;
                }
                let sender = host(&segment.flow.from);
                receivers[sender].take(&frame);
                let there = &receivers[sender].there;
                let (to, behind) = (there.reach(0), there.next_within(&(there.reach(0)..u64::MAX)));
                let blocks: Vec<Block> = behind.map(|range| (range.start, range.end)).into_iter().collect();
                if !mix(draw, 100 + number).is_multiple_of(8) {
                    left.extend(answer(&mut network, flow(sender, world), to, &blocks));
                }
            }
        }
        assert!(receivers.iter().all(|receiver| receiver.bytes == expected), "seed {seed}: other results");
        let done = network.switch.statistics();
        assert_eq!((done.rings, done.rings_failed), (1, 0));
        (answered, owed) = (answered + done.answered, owed + done.owed);
    }
    assert!(answered > 1_000 && owed > 50, "{answered} were answered, {owed} sent again");
}
