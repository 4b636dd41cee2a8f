//! What holds for every format: any header survives a round trip, and no bytes whatever make a parser panic or give a header that does
//! not lead back to the same bytes.
#![allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`")]

mod common;

use common::{reads_back, seeded, survives, suspects};
use fanin_core::{
    Address, BlockExponent, FlowLabel, IndexCoding, JobId, Malformed, NodeId, PairFormat, PortId, Rank, Role, TrafficClass, Via,
};
use fanin_wire::atp::{AggregatorName, AtpFlags, AtpHeader, FragmentId, NextRound, RankSet, Waited};
use fanin_wire::canary::{CanaryHeader, CanaryId, CanaryMarks, PartialSum};
use fanin_wire::doubling::DoublingHeader;
use fanin_wire::exchange::{Data, ExchangeHeader, Sender};
use fanin_wire::flare::{FlareBlock, FlareHeader, Part};
use fanin_wire::hop::HopHeader;
use fanin_wire::link::LinkHeader;
use fanin_wire::netreduce::{NetReduceHeader, PacketNumber};
use fanin_wire::panama::PanamaHeader;
use fanin_wire::ps::{Awaited, PsHeader, ShardBlock};
use fanin_wire::rina::{Item, Members, RinaHeader, Way};
use fanin_wire::ring::{AckMask, RingHeader, Segment};
use fanin_wire::roce::{Aeth, Bth, Envelope, NUMBER_MAX, Reth, RoceHeader, glance, opcode, seal};
use fanin_wire::sharp::{SharpHeader, Want};
use fanin_wire::stream::{MessageHeader, REASON_BYTES_MAX, parse_reason, reason};
use fanin_wire::switchml::{CallLabel, SlotUse, SwitchMlHeader};
use fanin_wire::tree::TreeHeader;
use proptest::prelude::*;

fn tree_headers() -> impl Strategy<Value = TreeHeader> {
    prop_oneof![
        any::<(u32, u8)>().prop_map(|(block, attempt)| TreeHeader::Contribution { block, attempt }),
        any::<u32>().prop_map(|block| TreeHeader::Aggregate { block }),
        (any::<u32>(), suspects()).prop_map(|(block, suspect)| TreeHeader::Waiting { block, suspect }),
        any::<u32>().prop_map(|block| TreeHeader::Rejected { block }),
    ]
}

fn panama_headers() -> impl Strategy<Value = PanamaHeader> {
    prop_oneof![
        any::<(u32, u8, bool)>().prop_map(|(block, attempt, marked_up)| PanamaHeader::Contribution { block, attempt, marked_up }),
        any::<(u32, bool, bool)>().prop_map(|(block, marked_up, marked_down)| PanamaHeader::Aggregate { block, marked_up, marked_down }),
        (any::<u32>(), suspects()).prop_map(|(block, suspect)| PanamaHeader::Waiting { block, suspect }),
        any::<u32>().prop_map(|block| PanamaHeader::Rejected { block }),
    ]
}

fn flare_headers() -> impl Strategy<Value = FlareHeader> {
    let at = || any::<(u32, u32)>().prop_map(|(number, operation)| FlareBlock { number, operation });
    let part = || {
        let coding = prop_oneof![Just(IndexCoding::Pairs), Just(IndexCoding::Bitmap), Just(IndexCoding::Run)];
        (any::<(u16, u16, u16, u32)>(), coding).prop_map(|((number, count, packets, making), coding)| {
            let packets = if packets > number { packets } else { 0 };
            let coding = if count > 0 { coding } else { IndexCoding::Pairs };
            Part { number, count, packets, making, coding }
        })
    };
    prop_oneof![
        (at(), part(), any::<u8>()).prop_map(|(at, part, attempt)| FlareHeader::Contribution { at, part, attempt }),
        (at(), part()).prop_map(|(at, part)| FlareHeader::Aggregate { at, part }),
        (at(), suspects()).prop_map(|(at, suspect)| FlareHeader::Waiting { at, suspect }),
        at().prop_map(|at| FlareHeader::Rejected { at }),
        (at(), any::<(u16, u8)>()).prop_map(|(at, (from, attempt))| FlareHeader::Ask { at, from, attempt }),
        (at(), any::<u16>()).prop_map(|(at, from)| FlareHeader::Wanted { at, from }),
    ]
}

fn ps_headers() -> impl Strategy<Value = PsHeader> {
    let at = || any::<(u16, u32, u32)>().prop_map(|(shard, seq, operation)| ShardBlock { seq, operation, shard });
    prop_oneof![
        (at(), any::<(u16, u8)>()).prop_map(|(at, (rank, attempt))| PsHeader::Push { at, rank, attempt }),
        (at(), any::<bool>()).prop_map(|(at, marked)| PsHeader::Sum { at, marked }),
        (at(), any::<u16>()).prop_map(|(at, rank)| PsHeader::Waiting { at, who: Awaited::Worker(rank) }),
        (at(), any::<u16>()).prop_map(|(at, shard)| PsHeader::Waiting { at, who: Awaited::Server(shard) }),
        at().prop_map(|at| PsHeader::Rejected { at }),
    ]
}

fn sharp_headers() -> impl Strategy<Value = SharpHeader> {
    let ask = any::<(u32, bool, bool, u8)>().prop_map(|(number, takes, refused, attempt)| {
        let want = if takes { Want::Take } else { Want::GiveBack };
        SharpHeader::Ask { number, want, refused, attempt }
    });
    prop_oneof![
        tree_headers().prop_map(SharpHeader::Data),
        ring_headers().prop_map(SharpHeader::Host),
        ask,
        any::<(u32, bool)>().prop_map(|(number, refused)| SharpHeader::Answer { number, refused }),
        (any::<u32>(), suspects()).prop_map(|(number, suspect)| SharpHeader::Missing { number, suspect }),
    ]
}

fn rina_headers() -> impl Strategy<Value = RinaHeader> {
    let item = || {
        any::<(u16, u16, u16, u32, u32, bool)>().prop_map(|(epoch, operation, partition, number, segment, asks)| {
            Item::new(epoch, operation, partition, number, segment).asking(asks)
        })
    };
    let ways = prop_oneof![Just(Way::Direct), Just(Way::Relayed), Just(Way::Repair)];
    prop_oneof![
        (item(), any::<(u8, u64, u16)>()).prop_map(|(item, (count, members, next))| RinaHeader::Task {
            item,
            count,
            members: Members::new(members),
            next
        }),
        (item(), 1..=127u8, any::<bool>()).prop_map(|(item, count, fresh)| RinaHeader::Pull { item, count, fresh }),
        (item(), 0u8..48, any::<u16>()).prop_map(|(item, member, contributors)| RinaHeader::Gradient { item, member, contributors }),
        (item(), any::<(bool, u16)>()).prop_map(|(item, (marked, contributors))| RinaHeader::Sum { item, marked, contributors }),
        (item(), ways, any::<(u32, u16, u16)>()).prop_map(|(item, way, (to, group, hops))| RinaHeader::Result {
            item,
            way,
            to: NodeId(to),
            group,
            hops
        }),
        (any::<(u16, u16, [bool; 3], u64, u32)>(), 0u8..32).prop_map(|((epoch, operation, [gather, marked, late], mask, next), skip)| {
            RinaHeader::Ack { epoch, operation, gather, marked, late, skip, mask: AckMask::new(mask), next }
        }),
        any::<(u16, u16, u64, u32)>()
            .prop_map(|(epoch, operation, mask, base)| { RinaHeader::Repair { epoch, operation, mask: AckMask::new(mask), base } }),
        any::<(u16, u32)>().prop_map(|(epoch, operation)| RinaHeader::Done { epoch, operation }),
        any::<(u16, u32)>().prop_map(|(epoch, operation)| RinaHeader::Commit { epoch, operation }),
        any::<(u16, bool, u32)>().prop_map(|(epoch, goes, digest)| RinaHeader::Ping { epoch, goes, digest }),
        any::<u16>().prop_map(|epoch| RinaHeader::Pong { epoch }),
        any::<(u16, u32, u32)>().prop_map(|(epoch, digest, rank)| RinaHeader::Exclude { epoch, digest, rank: Rank(rank) }),
        any::<(u16, u32, u32, bool)>().prop_map(|(epoch, digest, committed, holds)| RinaHeader::Ready { epoch, digest, committed, holds }),
        any::<(u16, u32, u32)>().prop_map(|(epoch, digest, committed)| RinaHeader::Go { epoch, digest, committed }),
        (any::<u16>(), suspects()).prop_map(|(epoch, suspect)| RinaHeader::Abort { epoch, suspect }),
        any::<(u16, u16)>().prop_map(|(epoch, operation)| RinaHeader::Unknown { epoch, operation }),
    ]
}

fn ring_headers() -> impl Strategy<Value = RingHeader> {
    let data = || (0..=Segment::MAX, any::<(u16, u16, u32)>());
    prop_oneof![
        data().prop_map(|(segment, (operation, step, sequence))| {
            RingHeader::Scatter { segment: Segment::new(segment), operation, step, sequence }
        }),
        data().prop_map(|(segment, (operation, step, sequence))| {
            RingHeader::Gather { segment: Segment::new(segment), operation, step, sequence }
        }),
        any::<(u64, u32)>().prop_map(|(mask, next)| RingHeader::Ack { mask: AckMask::new(mask), next }),
        (any::<u16>(), any::<u32>()).prop_map(|(operation, until)| RingHeader::Ready { operation, until }),
        any::<u16>().prop_map(|operation| RingHeader::Probe { operation }),
        (any::<u16>(), suspects()).prop_map(|(operation, suspect)| RingHeader::Alive { operation, suspect }),
        any::<(u16, u16, u32)>().prop_map(|(operation, step, rank)| RingHeader::StepDone { operation, step, rank: Rank(rank) }),
        any::<(u16, u16)>().prop_map(|(operation, step)| RingHeader::Go { operation, step }),
        (any::<u16>(), suspects()).prop_map(|(operation, suspect)| RingHeader::Abort { operation, suspect }),
    ]
}

fn exchange_headers() -> impl Strategy<Value = ExchangeHeader> {
    let sender = || any::<(u16, u16)>().prop_map(|(operation, rank)| Sender { operation, rank });
    let data = || any::<(u8, u16, u32, u32)>().prop_map(|(digest, message, packet, sequence)| Data { digest, message, packet, sequence });
    prop_oneof![
        (sender(), data()).prop_map(|(sender, data)| ExchangeHeader::Partial(sender, data)),
        (sender(), data()).prop_map(|(sender, data)| ExchangeHeader::Copy(sender, data)),
        (sender(), any::<(u64, u32)>()).prop_map(|(sender, (mask, next))| ExchangeHeader::Ack { sender, mask: AckMask::new(mask), next }),
        sender().prop_map(ExchangeHeader::Done),
        (sender(), any::<u8>(), any::<u32>()).prop_map(|(sender, digest, until)| ExchangeHeader::Ready { sender, digest, until }),
        (sender(), any::<u8>()).prop_map(|(sender, digest)| ExchangeHeader::Probe(sender, digest)),
        (sender(), any::<bool>()).prop_map(|(sender, begun)| ExchangeHeader::Alive { sender, begun }),
        (sender(), suspects()).prop_map(|(sender, suspect)| ExchangeHeader::Abort { sender, suspect }),
    ]
}

fn link_headers() -> impl Strategy<Value = LinkHeader> {
    let hello = any::<(Option<u32>, Option<u32>, u16, u32)>().prop_map(|(hears, told, port, fabric)| LinkHeader::Hello {
        hears,
        told,
        port: PortId(port),
        fabric,
    });
    prop_oneof![4 => hello, 1 => Just(LinkHeader::Background)]
}

/// What a block may have met.
fn marks() -> impl Strategy<Value = CanaryMarks> {
    any::<(bool, bool)>()
        .prop_map(|(collided, congested)| CanaryMarks::COLLISION.only_if(collided).with(CanaryMarks::CONGESTION.only_if(congested)))
}

fn canary_headers() -> impl Strategy<Value = CanaryHeader> {
    let id = || any::<(u8, u8, u32)>().prop_map(|(app, generation, block)| CanaryId::new(app, generation, block));
    let sum = move || {
        (id(), any::<u32>(), 2..=u16::MAX, any::<u16>(), marks()).prop_map(|(id, leader, hosts, counter, marks)| {
            let counter = 1 + counter % (hosts - 1);
            PartialSum { id, leader: NodeId(leader), counter, hosts, marks }
        })
    };
    prop_oneof![
        sum().prop_map(CanaryHeader::Reduce),
        (sum(), any::<u16>(), any::<u16>()).prop_map(|(sum, switch, port)| CanaryHeader::Collided { sum, switch, port: PortId(port) }),
        (id(), marks()).prop_map(|(id, marks)| CanaryHeader::Broadcast { id, marks }),
        (id(), any::<u32>(), any::<u16>(), any::<u16>(), marks()).prop_map(|(id, switch, shard, ports, marks)| CanaryHeader::Restore {
            id,
            switch: NodeId(switch),
            shard,
            ports,
            marks,
        }),
        (id(), 0..u16::MAX, any::<(u16, u32, u8)>(), marks()).prop_map(|(id, rank, (attempt, host, kind), marks)| {
            let (rank, missing) = (Rank(u32::from(rank)), (kind < 128).then_some(Rank(u32::from(rank))));
            match kind % 8 {
                0 => CanaryHeader::Request { id, rank, attempt },
                1 => CanaryHeader::Answer { id, marks },
                2 => CanaryHeader::Failed { id, host: NodeId(host) },
                3 => CanaryHeader::Done { id, rank },
                4 => CanaryHeader::Direct { id, rank },
                5 => CanaryHeader::Waiting { id, missing },
                6 => CanaryHeader::Aborted { id, missing },
                _ => CanaryHeader::Probe { id, rank },
            }
        }),
    ]
}

fn calls() -> impl Strategy<Value = CallLabel> {
    let any_call = (any::<u32>(), any::<u16>(), any::<u8>());
    prop_oneof![Just(CallLabel::NONE), any_call.prop_map(|(fingerprint, receiver, op)| CallLabel { fingerprint, receiver, op })]
}

fn switchml_headers() -> impl Strategy<Value = SwitchMlHeader> {
    let at = || any::<(u16, u32)>().prop_map(|(slot, round)| SlotUse { slot, round });
    let exponents = || any::<Option<i16>>().prop_map(|exponent| exponent.map(BlockExponent::from_bits));
    prop_oneof![
        (at(), any::<u8>(), exponents(), calls()).prop_map(|(at, attempt, exponent, call)| SwitchMlHeader::Contribution {
            at,
            attempt,
            exponent,
            call
        }),
        (at(), exponents()).prop_map(|(at, exponent)| SwitchMlHeader::Result { at, exponent }),
        (at(), suspects()).prop_map(|(at, suspect)| SwitchMlHeader::Waiting { at, suspect }),
        at().prop_map(|at| SwitchMlHeader::Rejected { at }),
    ]
}

fn rank_sets() -> impl Strategy<Value = RankSet> {
    prop_oneof![(0u8..255, 1u64..).prop_map(|(group, bits)| RankSet::of_group(group, bits)), any::<u16>().prop_map(RankSet::all_of_switch)]
}

fn atp_headers() -> impl Strategy<Value = AtpHeader> {
    let at = || any::<(u32, u32)>().prop_map(|(tensor, seq)| FragmentId { tensor, seq });
    let slot = || any::<(u16, u8)>().prop_map(|(index, version)| AggregatorName { index, version });
    prop_oneof![
        (at(), slot(), rank_sets(), any::<([u8; 2], u8, u8, u32)>()).prop_map(|(at, slot, ranks, (fan_in, attempt, flags, waited))| {
            let waited = Waited::from_bits(waited);
            AtpHeader::Gradient { at, slot, ranks, fan_in, attempt, flags: AtpFlags::of_gradient(flags), waited }
        }),
        (at(), slot(), any::<(u8, u16, u8, u32)>(), any::<(u16, u16, u16)>()).prop_map(
            |(at, slot, (next_version, to, flags, waited), (ahead, length, aggregated))| {
                let waited = Waited::from_bits(waited);
                let round = NextRound { ahead, length, aggregated };
                AtpHeader::Ack { at, slot, next_version, to, flags: AtpFlags::of_ack(flags), round, waited }
            }
        ),
        (at(), slot()).prop_map(|(at, slot)| AtpHeader::Flush { at, slot }),
        (at(), any::<u16>()).prop_map(|(at, rank)| AtpHeader::Waiting { at, rank }),
        at().prop_map(|at| AtpHeader::Rejected { at }),
    ]
}

fn netreduce_headers() -> impl Strategy<Value = NetReduceHeader> {
    let at = || {
        any::<(u32, bool, bool, bool)>().prop_map(|(psn, ack_request, summed, marked)| {
            let at = PacketNumber::new(psn, ack_request).marked(marked);
            if summed { at.summed() } else { at }
        })
    };
    let place = any::<(u32, u16)>;
    let message = || (any::<(u32, u32, u32)>(), any::<(u16, u16)>(), 1..=u16::MAX);
    prop_oneof![
        (at(), message()).prop_map(|(at, ((message, length, address), (connection, ring), packets))| NetReduceHeader::First {
            at,
            message,
            length,
            address,
            connection,
            ring,
            packets
        }),
        (0..=NUMBER_MAX, message()).prop_map(|(psn, ((message, length, address), (connection, ring), packets))| NetReduceHeader::Notice {
            psn,
            message,
            length,
            address,
            connection,
            ring,
            packets
        }),
        (at(), any::<(u16, bool)>()).prop_map(|(at, (connection, last))| NetReduceHeader::Next { at, connection, last }),
        (0..=NUMBER_MAX, 0..=NUMBER_MAX, any::<(u16, bool)>()).prop_map(|(psn, messages, (connection, is_nak))| match is_nak {
            true => NetReduceHeader::Nak { psn, messages, connection },
            false => NetReduceHeader::Ack { psn, messages, connection },
        }),
        any::<u16>().prop_map(|connection| NetReduceHeader::Congested { connection }),
        place().prop_map(|(message, offset)| NetReduceHeader::Up { message, offset }),
        place().prop_map(|(message, offset)| NetReduceHeader::Down { message, offset }),
        (place(), suspects()).prop_map(|((message, offset), suspect)| NetReduceHeader::Waiting { message, offset, suspect }),
        suspects().prop_map(|suspect| NetReduceHeader::Abort { suspect }),
        (place(), any::<u16>()).prop_map(|((message, offset), acknowledged)| NetReduceHeader::Ask { message, offset, acknowledged }),
    ]
}

fn roce_headers() -> impl Strategy<Value = RoceHeader> {
    let tags = prop_oneof![
        3 => Just([None; 2]),
        1 => any::<u16>().prop_map(|lan| [Some([0x81, 0, (lan >> 8) as u8, lan as u8]), None]),
        1 => any::<u16>().prop_map(|lan| [Some([0x88, 0xa8, 0, 7]), Some([0x81, 0, (lan >> 8) as u8, lan as u8])]),
    ];
    let envelope = (any::<([[u8; 6]; 2], [[u8; 4]; 2], u8, u16, u8, u16, bool)>(), tags).prop_map(
        |((macs, addresses, service, identification, hops, source_port, dont_fragment), tags)| Envelope {
            macs,
            addresses,
            service,
            identification,
            hops,
            source_port,
            dont_fragment,
            tags,
        },
    );
    let codes = [opcode::WRITE_FIRST, opcode::WRITE_MIDDLE, opcode::WRITE_LAST, opcode::WRITE_ONLY, opcode::ACKNOWLEDGE, 0xC7]
        .into_iter()
        .chain([opcode::WRITE_LAST_IMMEDIATE, opcode::WRITE_ONLY_IMMEDIATE]);
    let bth = (proptest::sample::select(codes.collect::<Vec<_>>()), any::<(u8, u16, u8, bool, u8)>(), 0..=NUMBER_MAX, 0..=NUMBER_MAX);
    (envelope, bth, any::<(u64, u32, u32)>(), any::<u8>(), 0..=NUMBER_MAX).prop_map(
        |(
            envelope,
            (code, (events, partition, variant, ack_request, reserved), queue_pair, psn),
            (address, key, length),
            syndrome,
            messages,
        )| {
            let bth = Bth {
                events: events & 0xC0,
                partition,
                variant,
                ack_request,
                reserved: reserved & 0x7F,
                ..Bth::new(code, queue_pair, psn)
            };
            RoceHeader {
                envelope,
                bth,
                reth: matches!(code, opcode::WRITE_FIRST | opcode::WRITE_ONLY | opcode::WRITE_ONLY_IMMEDIATE).then_some(Reth {
                    address,
                    key,
                    length,
                }),
                aeth: (code == opcode::ACKNOWLEDGE).then_some(Aeth { syndrome, messages }),
                immediate: matches!(code, opcode::WRITE_LAST_IMMEDIATE | opcode::WRITE_ONLY_IMMEDIATE).then_some(length.to_be_bytes()),
            }
        },
    )
}

/// From the BTH on to the payload.
fn header_tail(header: &RoceHeader) -> usize {
    let extension = if header.reth.is_some() { 16 } else { 0 } + if header.aeth.is_some() { 4 } else { 0 };
    12 + extension + if header.immediate.is_some() { 4 } else { 0 }
}

fn addresses() -> impl Strategy<Value = Address> {
    (any::<u32>(), 0u8..5).prop_map(|(node, role)| Address { node: NodeId(node), role: Role::from_number(role).unwrap() })
}

fn hop_headers() -> impl Strategy<Value = HopHeader> {
    (addresses(), addresses(), any::<(u8, u16, u32, u32, u32, u16)>(), any::<[bool; 4]>()).prop_map(
        |(source, destination, (system, job, flow, epoch, sequence, payload_bytes), [via, ecn, neighbour, class])| HopHeader {
            system,
            via: if via { Via::Aggregators } else { Via::Direct },
            ecn,
            neighbour,
            class: if class { TrafficClass::Background } else { TrafficClass::Collective },
            source,
            destination,
            job: JobId(job),
            flow: FlowLabel(flow),
            epoch,
            sequence,
            payload_bytes,
        },
    )
}

/// What can be read from any bytes is exactly what would be written for it.
fn leads_back(bytes: &[u8]) {
    reads_back::<TreeHeader>(bytes);
    reads_back::<PanamaHeader>(bytes);
    reads_back::<SharpHeader>(bytes);
    reads_back::<RingHeader>(bytes);
    reads_back::<PsHeader>(bytes);
    reads_back::<RinaHeader>(bytes);
    reads_back::<CanaryHeader>(bytes);
    reads_back::<FlareHeader>(bytes);
    reads_back::<SwitchMlHeader>(bytes);
    reads_back::<AtpHeader>(bytes);
    reads_back::<NetReduceHeader>(bytes);
    reads_back::<LinkHeader>(bytes);
    reads_back::<ExchangeHeader>(bytes);
    reads_back::<DoublingHeader>(bytes);
    if let Ok((header, length)) = HopHeader::parse(bytes) {
        let mut out = [0; HopHeader::MAX_LEN];
        assert_eq!(header.emit(&mut out), length);
        // The checksum is written once the packet is complete.
        assert_eq!((&out[..16], &out[20..length]), (&bytes[..16], &bytes[20..length]));
    }
    if let Some(seen) = glance(bytes) {
        assert!(seen.at + 12 <= bytes.len() && seen.first_payload(bytes).len() <= bytes.len());
    }
    if let Ok((header, payload)) = RoceHeader::parse(bytes) {
        let mut out = vec![0; header.frame_len(payload.len())];
        assert_eq!(header.emit(payload, &mut out), out.len());
        // Zero is a checksum of UDP that nobody checks, and zeros are padding that nobody reads; whatever else stands there is as good.
        let (checksum, padding) = (header.head_len() - header_tail(&header) - 2, header.head_len() + payload.len());
        let same = |from: usize, to: usize| out[from..to] == bytes[from..to];
        assert!(same(0, checksum) && same(checksum + 2, padding), "{header:?}");
        let padded = &bytes[padding..out.len() - 4];
        assert!(padded.iter().any(|byte| *byte != 0) || same(padding, out.len()), "{header:?}");
    }
}

proptest! {
    #![proptest_config(seeded(2_000))]

    #[test]
    fn tree_headers_survive(header in tree_headers()) {
        survives(header);
    }

    #[test]
    fn sharp_headers_survive(header in sharp_headers()) {
        survives(header);
    }

    #[test]
    fn exchange_headers_survive(header in exchange_headers()) {
        survives(header);
    }

    #[test]
    fn flare_headers_survive(header in flare_headers()) {
        survives(header);
    }

    #[test]
    fn panama_headers_survive(header in panama_headers()) {
        survives(header);
    }

    #[test]
    fn ring_headers_survive(header in ring_headers()) {
        survives(header);
    }

    #[test]
    fn ps_headers_survive(header in ps_headers()) {
        survives(header);
    }

    #[test]
    fn rina_headers_survive(header in rina_headers()) {
        survives(header);
    }

    #[test]
    fn canary_headers_survive(header in canary_headers()) {
        survives(header);
    }

    #[test]
    fn switchml_headers_survive(header in switchml_headers()) {
        survives(header);
    }

    #[test]
    fn atp_headers_survive(header in atp_headers()) {
        survives(header);
    }

    #[test]
    fn netreduce_headers_survive(header in netreduce_headers()) {
        survives(header);
    }

    #[test]
    fn frames_of_rocev2_survive(header in roce_headers(), payload in proptest::collection::vec(any::<u8>(), 0..80), flip in any::<u16>()) {
        let mut out = [0xa5; 200];
        let length = header.emit(&payload, &mut out);
        prop_assert_eq!(length, header.frame_len(payload.len()));
        prop_assert!(out[length..].iter().all(|byte| *byte == 0xa5));
        let (parsed, carried) = RoceHeader::parse(&out[..length]).unwrap();
        let pad = parsed.bth.pad;
        prop_assert_eq!((RoceHeader { bth: Bth { pad: 0, ..parsed.bth }, ..parsed }, carried), (header, &payload[..]));
        prop_assert_eq!((payload.len() + usize::from(pad)) % 4, 0);
        leads_back(&out[..length]);
        // Padding that is not zero is padding all the same.
        if pad > 0 {
            out[length - 5] = 7;
            seal(&mut out[..length]);
            let (again, carried) = RoceHeader::parse(&out[..length]).unwrap();
            prop_assert_eq!((again, carried), (parsed, &payload[..]));
            leads_back(&out[..length]);
        }
        // A frame of which something is wrong, or missing.
        out[usize::from(flip) / 8 % length] ^= 1 << (flip % 8);
        leads_back(&out[..length]);
        leads_back(&out[..usize::from(flip) % length]);
    }

    #[test]
    fn link_headers_survive(header in link_headers()) {
        survives(header);
    }

    #[test]
    fn hop_headers_survive(header in hop_headers()) {
        let mut out = [0xa5; 40];
        let length = header.emit(&mut out);
        prop_assert_eq!(length, header.wire_len());
        prop_assert!(out[length..].iter().all(|byte| *byte == 0xa5));
        let node = |address: Address| Address { node: if header.neighbour { NodeId(0) } else { address.node }, ..address };
        let flow = if header.neighbour { FlowLabel(0) } else { header.flow };
        let expected = HopHeader { source: node(header.source), destination: node(header.destination), flow, ..header };
        prop_assert_eq!(HopHeader::parse(&out), Ok((expected, length)));
        for short in 0..length {
            prop_assert!(matches!(HopHeader::parse(&out[..short]), Err(Malformed::Truncated { .. })), "{} of {} bytes", short, length);
        }
    }
}

proptest! {
    #![proptest_config(seeded(20_000))]

    #[test]
    fn arbitrary_bytes_lead_back(first in 0u8..16, rest in proptest::collection::vec(prop_oneof![3 => Just(0u8), 2 => any::<u8>()], 0..64)) {
        leads_back(&rest);
        let mut bytes = vec![if first == 11 { 0xf2 } else { first }];
        bytes.extend(rest);
        leads_back(&bytes);
        // As NetReduce's begin.
        bytes.splice(..bytes.len().min(4), [[6, 7, 8, 10, 0x11, 0xc0, 0xc1, 0xc2, 0xc3, 0xc4, 0xc5, 9][usize::from(first % 12)], 0, 0xff, 0xff]);
        leads_back(&bytes);
    }
}

/// The same property for a fuzzer (`make fuzz`); an ordinary test runs what it has found.
#[test]
fn arbitrary_bytes_fuzzed() {
    bolero::check!().with_iterations(0).for_each(leads_back);
}

/// Headers of messages in streams, and reasons against their direction: refused, or they lead back.
#[test]
fn stream_headers_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
        if let Ok(header) = MessageHeader::parse(bytes) {
            let mut again = [0; MessageHeader::LEN];
            header.emit(&mut again);
            assert_eq!(again, bytes[..MessageHeader::LEN]);
        }
        if let Some(why) = parse_reason(bytes) {
            // What is written by us is short, and read as it was written.
            assert!(!why.chars().any(char::is_control));
            let again = parse_reason(&reason(&why)).expect("a reason");
            assert!(again == why || why.len() > REASON_BYTES_MAX && why.starts_with(&again));
        }
    });
}

/// Packets of sparse vectors, under any of the ways to say indices: refused, or pairs as many as were said, within the range that was asked for,
/// which lead back to the same pairs.
#[test]
fn pairs_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
        let [kind, count, range, packet @ ..] = bytes else { return };
        let format = PairFormat { index_bytes: 2 << (kind & 1), value_bytes: 1 << (kind >> 1 & 3) };
        let coding = [IndexCoding::Pairs, IndexCoding::Bitmap, IndexCoding::Run][usize::from(kind >> 3) % 3];
        let (count, range, mut pairs) = (usize::from(*count), 1 << (range % 32), Vec::new());
        let within = coding.is_within(format, packet, count, range);
        if !coding.unpack(format, packet, count, &mut pairs) {
            assert!(!within, "{coding:?} {format:?}");
            return;
        }
        assert_eq!(pairs.len(), count);
        assert!(!within || pairs.iter().all(|pair| pair.index < range), "{coding:?} {format:?} {pairs:?}");
        if count > 0 && pairs.windows(2).all(|two| two[0].index < two[1].index) {
            let (mut written, mut again) = (Vec::new(), Vec::new());
            coding.pack(format, pairs.iter().copied(), &mut written);
            assert!(coding.unpack(format, &written, count, &mut again));
            assert_eq!(again, pairs);
        }
    });
}

/// Frames of RoCEv2, whose checks a fuzzer would hardly guess: they are put right before each is read.
#[test]
fn frames_of_rocev2_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
        leads_back(bytes);
        if bytes.len() >= 66 && glance(bytes).is_some() {
            let mut frame = bytes.to_vec();
            seal(&mut frame);
            leads_back(&frame);
        }
    });
}
