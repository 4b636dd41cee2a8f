//! Single frames: what is in them that must not matter, what must, and what must not get into a sum.

use fanin_core::{DType, ElementOp, Operator};
use fanin_wire::roce::{self, BTH, RETH};

use super::*;

const ETHERNET: usize = 14;

/// What a switch of two workers makes of rank 0's first packet, changed, and rank 1's.
fn pair(change: impl Fn(&mut RoceHeader, &mut Vec<u8>)) -> (Switch, Vec<(usize, Vec<u8>)>) {
    let mut switch = switch(2);
    learn(&mut switch, 2);
    let run = Run::new(2, 4, 30);
    let mut left = send(&mut switch, 0, changed(&run.frame(0, 0), change));
    left.extend(send(&mut switch, 1, run.frame(1, 0)));
    (switch, left)
}

fn changed(frame: &[u8], change: impl Fn(&mut RoceHeader, &mut Vec<u8>)) -> Vec<u8> {
    let (mut header, payload) = RoceHeader::parse(frame).unwrap();
    let mut payload = payload.to_vec();
    change(&mut header, &mut payload);
    let mut out = vec![0; header.frame_len(payload.len())];
    header.emit(&payload, &mut out);
    out
}

#[test]
fn what_a_receiver_ignores_is_summed_and_stays() {
    let lan = [Some([0x81, 0, 0x60, 5]), None];
    let both = [Some([0x88, 0xa8, 0, 9]), Some([0x81, 0, 0x60, 5])];
    type Change = Box<dyn Fn(&mut RoceHeader)>;
    let changes: Vec<Change> = vec![
        Box::new(|header| header.envelope.dont_fragment = false),
        Box::new(|header| header.bth.reserved = 0x7f),
        Box::new(|header| header.bth.variant = 0x3f),
        Box::new(move |header| header.envelope.tags = lan),
        Box::new(move |header| header.envelope.tags = both),
        Box::new(|header| header.envelope.hops = 3),
    ];
    let run = Run::new(2, 4, 30);
    for (number, change) in changes.iter().enumerate() {
        let (switch, left) = pair(|header, _| change(header));
        assert_eq!(left.len(), 2, "change {number}");
        let ours = left.iter().find(|(port, _)| *port == 1).unwrap();
        let (header, payload) = RoceHeader::parse(&ours.1).unwrap();
        let sent = changed(&run.frame(0, 0), |header, _| change(header));
        assert_eq!(header, RoceHeader::parse(&sent).unwrap().0, "change {number}");
        for (index, bytes) in payload[InaHeader::LEN..].chunks_exact(4).enumerate() {
            assert_eq!(bytes, run.element(0, index).wrapping_add(run.element(1, index)).to_le_bytes());
        }
        let done = switch.statistics().rdma;
        assert_eq!((done.damaged, done.refused, done.odd), (0, 0, OddFrames::default()), "change {number}");
    }
}

#[test]
fn no_flipped_bit_changes_a_sum() {
    let run = Run::new(2, 4, 30);
    let good = run.frame(0, 0);
    // What protects nothing: addresses of Ethernet, which its own checksum covers, UDP's checksum, which nobody needs, and what routers change.
    let free = |byte: usize| byte < 12 || [40, 41, ETHERNET + 32].contains(&byte);
    let (mut damaged, mut others) = (0, 0);
    for bit in 8 * 12..8 * good.len() {
        let mut switch = switch(2);
        learn(&mut switch, 2);
        let mut frame = good.clone();
        frame[bit / 8] ^= 1 << (bit % 8);
        let mut left = send(&mut switch, 0, frame.clone());
        left.retain(|(_, left)| *left != frame);
        left.extend(send(&mut switch, 1, run.frame(1, 0)));
        assert_eq!(left.len(), if free(bit / 8) { 2 } else { 0 }, "bit {bit}");
        // Its card sends it again.
        left.extend(send(&mut switch, 0, good.clone()));
        left.retain(|(_, left)| roce::glance(left).is_some());
        let sums: Vec<&[u8]> = left.iter().map(|(_, frame)| RoceHeader::parse(frame).unwrap().1).collect();
        assert!(sums.len() >= 2, "bit {bit}");
        for payload in sums {
            for (index, bytes) in payload[InaHeader::LEN..].chunks_exact(4).enumerate() {
                assert_eq!(bytes, run.element(0, index).wrapping_add(run.element(1, index)).to_le_bytes(), "bit {bit}, element {index}");
            }
        }
        let done = switch.statistics().rdma;
        damaged += done.damaged;
        others += done.odd.of(Odd::Malformed) + done.odd.of(Odd::Fragment) + done.odd.of(Odd::Options) + done.odd.of(Odd::Stranger);
        assert_eq!(done.damaged, done.odd.of(Odd::Damaged));
    }
    // All bits behind the BTH, and most of those before it.
    assert!(damaged as usize >= 8 * (good.len() - ETHERNET - 28 - BTH), "{damaged} were damaged, {others} something else");
}

#[test]
fn what_cannot_be_summed_is_counted_by_reason() {
    let mut switch = switch(2);
    learn(&mut switch, 2);
    let run = Run::new(2, 4, 30);
    let good = run.frame(0, 0);
    let mut fragment = good.clone();
    fragment[20] = 0x20;
    let mut options = good.clone();
    options[14] = 0x46;
    options.splice(34..34, [1, 1, 1, 1]);
    let mut six = good[..12].to_vec();
    six.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 0, 17, 64]);
    six.extend([0xfd; 32]);
    six.extend(&good[34..]);
    let mut ethernet = good[..12].to_vec();
    ethernet.extend([0x89, 0x15]);
    ethernet.extend([0; 40]);
    ethernet.extend(&good[42..]);
    let stranger = changed(&good, |header, _| header.envelope.addresses[0] = [10, 0, 0, 77]);
    let mut version = good.clone();
    version[43] |= 1;
    roce::seal(&mut version);
    let mut damaged = good.clone();
    damaged[90] ^= 4;
    let cases = [
        (fragment, Odd::Fragment, false),
        (options, Odd::Options, false),
        (six, Odd::V6, true),
        (ethernet, Odd::Ethernet, true),
        (stranger, Odd::Stranger, true),
        (version, Odd::Malformed, false),
        (damaged, Odd::Damaged, false),
    ];
    for (frame, odd, passes) in cases {
        for times in 1..=3 {
            let left = send(&mut switch, 0, frame.clone());
            let expected = if passes { vec![(1, frame.clone())] } else { vec![] };
            assert_eq!((left, switch.statistics().rdma.odd.of(odd)), (expected, times), "{odd:?}");
        }
        switch.on_rdma_tick(Instant::from_ps(20_000_000_000_000), &mut Wire::default());
    }
    assert_eq!(Odd::ALL.map(|odd| switch.statistics().rdma.odd.of(odd)), [3; 7]);
    assert_eq!(switch.statistics().rdma.runs, 0);
}

#[test]
fn a_worker_may_declare_what_it_sends_and_a_contradiction_is_refused() {
    let declare = |op: ElementOp| {
        move |_: &mut RoceHeader, payload: &mut Vec<u8>| payload[14..16].copy_from_slice(&InaHeader::declared(op).to_be_bytes())
    };
    let (switch, left) = pair(declare(ElementOp::new(DType::I32, Operator::Sum).unwrap()));
    assert_eq!((left.len(), switch.statistics().rdma.refused), (2, 0));
    let (_, payload) = RoceHeader::parse(&left[0].1).unwrap();
    assert_eq!(InaHeader::parse(payload).unwrap().summed, 2, "what it declared is not taken for a sum");
    for (dtype, operator) in [(DType::F32, Operator::Sum), (DType::I32, Operator::Max)] {
        let (switch, left) = pair(declare(ElementOp::new(dtype, operator).unwrap()));
        assert_eq!((left, switch.statistics().rdma.refused), (vec![], 1));
    }
}

#[test]
fn two_rings_over_the_same_hosts_are_summed_apart() {
    let mut other = ring(3);
    (other.ring, other.op) = (8, ElementOp::new(DType::I32, Operator::Max).unwrap());
    let mut switch = Switch::with_rdma(SwitchConfig { ports: 3, ..SwitchConfig::default() }, vec![ring(3), other]).unwrap();
    learn(&mut switch, 3);
    let (one, two) = (Run::new(3, 1, 100), Run { ring: 8, ..Run::new(3, 2, 100) });
    let mut left = Vec::new();
    for rank in 0..3 {
        left.extend(send(&mut switch, rank, one.frame(rank, 0)));
        left.extend(send(&mut switch, rank, two.frame(rank, 0)));
    }
    for rank in (0..3).rev() {
        left.extend(send(&mut switch, rank, two.frame(rank, 1)));
        left.extend(send(&mut switch, rank, one.frame(rank, 1)));
    }
    assert_eq!(left.len(), 12);
    for (_, frame) in &left {
        let (header, payload) = RoceHeader::parse(frame).unwrap();
        let sender = usize::from(header.envelope.addresses[0][3]) - 1;
        let is_one = header.bth.queue_pair == one.queue_pair(sender);
        let run = if is_one { &one } else { &two };
        let (skipped, first) = if header.reth.is_some() { (InaHeader::LEN, 0) } else { (0, (PAYLOAD - InaHeader::LEN) / 4) };
        for (index, bytes) in payload[skipped..].chunks_exact(4).enumerate() {
            let elements = (0..3).map(|rank| run.element(rank, first + index));
            let expected =
                if is_one { elements.fold(0u32, u32::wrapping_add) } else { elements.map(|element| element as i32).max().unwrap() as u32 };
            assert_eq!(bytes, expected.to_le_bytes());
        }
    }
    assert_eq!((switch.statistics().rdma.runs, switch.statistics().rdma.ended), (2, 0));
}

/// Frames between the ring's hosts of which every field is drawn, with right checks: strangers' RDMA, and nonsense.
#[test]
fn drawn_frames_neither_end_a_ring_nor_get_into_its_sums() {
    for seed in 0..6u64 {
        let world = 3;
        let mut switch = switch(world);
        learn(&mut switch, world);
        let run = Run::new(world, seed, 4_000);
        for rank in 0..world {
            send(&mut switch, rank, run.frame(rank, 0));
        }
        for step in 0..2_000u64 {
            let draw = |what: u64| mix(seed << 32 | step, what);
            let from = draw(0) as usize % world;
            let to = (from + 1 + draw(1) as usize % 2) % world;
            let mut bytes: Vec<u8> = (0..58 + draw(2) as usize % 300).map(|at| draw(100 + at as u64) as u8).collect();
            bytes.truncate(bytes.len() / 4 * 4 + 2);
            let mut head = vec![0; 128];
            let bth = Bth::new(opcode::WRITE_MIDDLE, 1, 1);
            let length = RoceHeader { envelope: envelope(from, to), bth, reth: None, aeth: None, immediate: None }.emit(&[], &mut head);
            assert_eq!(length, 58);
            // The drawn bytes are those from the BTH on; its opcode is one of those that the switch looks at, and half of them claim a message.
            bytes[..42].copy_from_slice(&head[..42]);
            bytes[42] = [6, 7, 8, 9, 10, 11, 0x11][draw(3) as usize % 7];
            bytes[43] &= 0xf0;
            if draw(4) % 2 == 0 && bytes.len() > 42 + BTH + RETH + 24 {
                bytes[42 + BTH + RETH..][..4].copy_from_slice(&InaHeader::TAG.to_be_bytes());
                bytes[42 + BTH + RETH + 4..][..2].copy_from_slice(&7u16.to_be_bytes());
            }
            roce::finish(&mut bytes);
            send(&mut switch, from, bytes);
            if step % 100 == 0 {
                switch.on_rdma_tick(Instant::from_ps(1 + step), &mut Wire::default());
            }
        }
        job(&mut switch, &run, 10, &[]);
        let done = switch.statistics().rdma;
        assert_eq!((done.runs, done.ended), (1, 0), "seed {seed}");
    }
}
