//! What a packet costs at a node: framing it, taking it apart and adding it up, and the way through the kernel on loopback.

use std::hint::black_box;
use std::net::Ipv4Addr;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use fanin_core::{Address, ElementOp, FlowLabel, JobId, NodeId, Payload, PayloadOp, TrafficClass, Via, Wire};
use fanin_net::{Receiver, Sender, SenderConfig, Socket, SocketConfig};
use fanin_systems::AnyHeader;
use fanin_wire::hop::{HopHeader, HopPacket, RestCheck};
use fanin_wire::tree::TreeHeader;

const PAYLOADS: [usize; 2] = [1_408, 8_064];
/// With a checksum, as it is, and without.
const HOW: [(bool, &str); 2] = [(true, ""), (false, ", no checksum")];

fn hop(payload_bytes: usize) -> HopHeader {
    HopHeader {
        system: 1,
        via: Via::Direct,
        ecn: false,
        neighbour: true,
        class: TrafficClass::Collective,
        source: Address::worker(NodeId(0)),
        destination: Address::switch(NodeId(4)),
        job: JobId(1),
        flow: FlowLabel(0),
        epoch: 1,
        sequence: 0,
        payload_bytes: payload_bytes as u16,
    }
}

fn header(block: u32) -> AnyHeader {
    AnyHeader::Tree(TreeHeader::Contribution { block, attempt: 0 })
}

/// Frames a packet in `slot`, with a checksum or, to see what that costs, without.
fn frame(slot: &mut [u8], hop: &HopHeader, header: &AnyHeader, payload: &[u8], is_sealed: bool) {
    let front = hop.emit(slot);
    let front = front + header.emit(&mut slot[front..]);
    slot[front..].copy_from_slice(payload);
    if is_sealed {
        let rest = RestCheck::of([&slot[hop.wire_len()..]]);
        HopHeader::seal(slot, rest);
    }
}

/// Takes a packet apart and adds it up.
fn reduce(datagram: &[u8], accumulator: &mut <[u8] as Payload>::Acc, op: &mut PayloadOp, is_sealed: bool) {
    let packet = HopPacket::new(datagram).unwrap();
    if is_sealed {
        packet.verify().unwrap();
    }
    let (_, header_bytes) = AnyHeader::parse(packet.rest()).unwrap();
    let payload = &packet.rest()[header_bytes..][..usize::from(packet.header().payload_bytes)];
    payload.reduce(accumulator, op).unwrap();
}

fn packets(criterion: &mut Criterion) {
    let mut op = PayloadOp::from(ElementOp::F32_SUM);
    let mut group = criterion.benchmark_group("packet");
    for payload_bytes in PAYLOADS {
        let (hop, payload) = (hop(payload_bytes), vec![0u8; payload_bytes]);
        let bytes = hop.wire_len() + header(0).wire_len() + payload_bytes;
        let mut accumulator = <[u8]>::accumulator(&op, payload_bytes);
        payload[..].assign(&mut accumulator, &mut op).unwrap();
        group.throughput(Throughput::Bytes(payload_bytes as u64));
        for (is_sealed, how) in HOW {
            let mut slot = vec![0; bytes];
            group.bench_function(BenchmarkId::new(format!("frame{how}"), payload_bytes), |bench| {
                bench.iter(|| frame(black_box(&mut slot), &hop, &header(7), &payload, is_sealed));
            });
            group.bench_function(BenchmarkId::new(format!("take apart and add{how}"), payload_bytes), |bench| {
                bench.iter(|| reduce(black_box(&slot), &mut accumulator, &mut op, is_sealed));
            });
        }
    }
    group.finish();
}

/// A batch of packets from one socket to another and into the accumulator, all on one thread.
fn loopback(criterion: &mut Criterion) {
    let mut op = PayloadOp::from(ElementOp::F32_SUM);
    let mut group = criterion.benchmark_group("loopback");
    for payload_bytes in PAYLOADS {
        let (hop, payload) = (hop(payload_bytes), vec![0u8; payload_bytes]);
        let bytes = hop.wire_len() + header(0).wire_len() + payload_bytes;
        let count = fanin_net::DATAGRAM_BYTES_MAX / bytes;
        let bind = || Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap();
        let (from, into) = (bind(), bind());
        let (mut sender, mut receiver) = (Sender::new(SenderConfig::default()), Receiver::new(8));
        let to = sender.add(into.local_address());
        let mut accumulator = <[u8]>::accumulator(&op, payload_bytes);
        payload[..].assign(&mut accumulator, &mut op).unwrap();
        group.throughput(Throughput::Elements(count as u64));
        for (is_sealed, how) in HOW {
            group.bench_function(BenchmarkId::new(format!("send, receive and add a batch{how}"), payload_bytes), |bench| {
                bench.iter(|| {
                    for block in 0..count as u32 {
                        let slot = sender.reserve(&from, to, bytes).unwrap();
                        frame(slot, &hop, &header(block), &payload, is_sealed);
                        sender.commit(&from, to);
                    }
                    sender.flush(&from);
                    let mut left = count;
                    while left > 0 {
                        receiver.receive(&into).unwrap();
                        for datagram in receiver.runs().flat_map(|run| run.datagrams()) {
                            reduce(datagram, &mut accumulator, &mut op, is_sealed);
                            left -= 1;
                        }
                    }
                });
            });
        }
    }
    group.finish();
}

criterion_group!(benches, packets, loopback);
criterion_main!(benches);
