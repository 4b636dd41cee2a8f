//! What a packet's tag costs at one end: `cargo bench -p fanin-trust --bench packet`.

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use fanin_trust::{LinkKeys, PacketKeys, Protection, Secret, TAG_BYTES};

/// Payloads of an Ethernet frame and of a longer datagram, in bytes.
const PAYLOADS: [usize; 4] = [64, 1_408, 8_064, 65_400];

fn packets(criterion: &mut Criterion) {
    for protection in [Protection::Mac, Protection::Seal] {
        let keys = PacketKeys { protection, secret: Secret::new([3; 32]) };
        let mut group = criterion.benchmark_group(protection.name());
        for payload in PAYLOADS {
            let mut packet = vec![1; 30 + payload + TAG_BYTES];
            let (mut rank, mut switch) = (LinkKeys::of_rank(&keys), LinkKeys::of_switch(&keys));
            let mut number = 0u32;
            group.throughput(Throughput::Bytes(payload as u64));
            group.bench_function(format!("make/{payload}"), |bencher| {
                bencher.iter(|| {
                    number = number.wrapping_add(1);
                    rank.sealer.seal(number, 20, &mut packet);
                });
            });
            packet.fill(1);
            LinkKeys::of_rank(&keys).sealer.seal(9, 20, &mut packet);
            let mut scratch = Vec::new();
            group.bench_function(format!("take/{payload}"), |bencher| {
                bencher.iter(|| switch.opener.open(9, 20, &packet, &mut scratch).map(<[u8]>::len).expect("it is right"));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, packets);
criterion_main!(benches);
