//! Packets in the name of a rank or of the switch, from somebody who can send with their addresses: a relay between one rank and the
//! switch sends them beside the real ones, both ways. Sums stay exact, and the job goes on.

mod common;

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{Rank, allreduce, config, join, loopback, metric};
use fanin_core::JobId;
use fanin_core::hash::mix;
use fanin_daemon::{Daemon, DaemonConfig};
use fanin_trust::Protection;
use fanin_wire::hop::{HopHeader, RestCheck};

/// What is forged: from a real packet and a random number another one, or none.
type Forge = fn(&[u8], u64) -> Vec<u8>;

/// The packet with another header, and a checksum that is right.
fn sealed(packet: &[u8], change: impl FnOnce(&mut HopHeader)) -> Vec<u8> {
    let (mut hop, length) = HopHeader::parse(packet).expect("the relay passes packets of Fanin");
    change(&mut hop);
    let mut forged = packet.to_vec();
    // Zeros are no contribution of anybody.
    forged[length..].fill(0);
    hop.emit(&mut forged);
    let rest = RestCheck::of([&forged[length..]]);
    HopHeader::seal(&mut forged, rest);
    forged
}

fn flipped(packet: &[u8], bits: std::ops::Range<usize>, random: u64) -> Vec<u8> {
    let mut forged = packet.to_vec();
    for flip in 0..1 + random % 4 {
        let bit = bits.start + (mix(random, flip) as usize) % bits.len();
        forged[bit / 8] ^= 1 << (bit % 8);
    }
    forged
}

/// Passes datagrams on between a rank and the switch, and sends a forged one before each of them.
struct Relay {
    /// What the switch takes for the rank.
    outer: UdpSocket,
    /// What the rank takes for the switch.
    inner: UdpSocket,
}

impl Relay {
    fn new() -> Relay {
        let open = || {
            let socket = UdpSocket::bind(loopback()).unwrap();
            socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
            socket
        };
        Relay { outer: open(), inner: open() }
    }

    /// One direction.
    fn pass(from: &UdpSocket, through: &UdpSocket, to: SocketAddr, forge: Forge, done: &AtomicBool) {
        let (mut buffer, mut count) = (vec![0; 1 << 16], 0);
        while !done.load(Ordering::Relaxed) {
            let Ok((bytes, _)) = from.recv_from(&mut buffer) else { continue };
            count += 1;
            let _ = through.send_to(&forge(&buffer[..bytes], mix(77, count)), to);
            let _ = through.send_to(&buffer[..bytes], to);
        }
    }
}

/// A job of three ranks, the first of which is behind a relay. Gives how many packets of each reason the switch has dropped.
fn run_behind_relay(name: &str, forge: Forge) -> impl Fn(&str) -> f64 + use<> {
    run_with(name, Protection::None, forge)
}

/// The same at a switch that does this for packets.
fn run_with(name: &str, packets: Protection, forge: Forge) -> impl Fn(&str) -> f64 + use<> {
    let daemon = Daemon::start(DaemonConfig { packets, ..config() }).unwrap();
    let switch = daemon.control_address();
    let (relay, done) = (Relay::new(), AtomicBool::new(false));
    let dropped = thread::scope(|scope| {
        let ranks: Vec<_> = (0..3)
            .map(|rank| {
                let (relay, done) = (&relay, &done);
                scope.spawn(move || {
                    let mut join = join(name, rank, 3);
                    let socket = fanin_net::Socket::bind(&fanin_net::SocketConfig::new(loopback())).unwrap();
                    let own = socket.local_address();
                    join.data = if rank == 0 { relay.outer.local_addr().unwrap() } else { own };
                    let mut rank = Rank::join(switch, join);
                    rank.socket = Some(socket);
                    let mut admitted = rank.admitted().unwrap();
                    if rank.rank == 0 {
                        let data = admitted.data;
                        scope.spawn(move || Relay::pass(&relay.inner, &relay.outer, data, forge, done));
                        scope.spawn(move || Relay::pass(&relay.outer, &relay.inner, own, forge, done));
                        admitted.data = relay.inner.local_addr().unwrap();
                    }
                    let mut driver = rank.driver(&admitted);
                    rank.start().unwrap();
                    for operation in 0..20 {
                        allreduce(&mut driver, &rank, operation, 30_000, 30_000).unwrap();
                    }
                    rank
                })
            })
            .collect();
        let ranks: Vec<Rank> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
        thread::sleep(Duration::from_millis(300));
        let reasons = ["unproven", "corrupted", "no_node", "mismatch", "malformed", "unauthenticated", "repeated"];
        let dropped =
            reasons.map(|reason| (reason, metric(&daemon, "fanin_switch_job_dropped_packets_total", &format!("reason=\"{reason}\""))));
        ranks.into_iter().for_each(|rank| rank.leave(20));
        done.store(true, Ordering::Relaxed);
        dropped
    });
    move |reason| dropped.iter().find(|(name, _)| *name == reason).map_or(0.0, |(_, count)| *count)
}

#[test]
fn a_random_epoch_or_the_one_before_is_not_believed() {
    let dropped = run_behind_relay("random epochs", |packet, random| {
        sealed(packet, |hop| (hop.epoch, hop.sequence) = (random as u32 ^ hop.epoch | 1, (random >> 32) as u32))
    });
    assert!(dropped("unproven") > 200.0, "{}", dropped("unproven"));
    let dropped = run_behind_relay("the epoch before", |packet, _| sealed(packet, |hop| hop.epoch = hop.epoch.wrapping_sub(1)));
    assert!(dropped("unproven") > 200.0, "{}", dropped("unproven"));
}

/// They agree with each other, but what is real comes in between.
#[test]
fn numbers_a_million_ahead_do_not_end_the_real_ones() {
    let dropped = run_behind_relay("far ahead", |packet, _| sealed(packet, |hop| hop.sequence = hop.sequence.wrapping_add(1_000_000)));
    assert!(dropped("unproven") > 100.0, "{}", dropped("unproven"));
    let dropped = run_behind_relay("anywhere", |packet, random| sealed(packet, |hop| hop.sequence = random as u32 | 1 << 20));
    assert!(dropped("unproven") > 100.0, "{}", dropped("unproven"));
}

#[test]
fn flipped_bits_of_headers_and_payloads_are_counted_and_dropped() {
    let dropped = run_behind_relay("headers", |packet, random| flipped(packet, 0..48 * 8, random));
    assert!(dropped("corrupted") + dropped("malformed") > 200.0 && dropped("corrupted") > 100.0, "{}", dropped("corrupted"));
    let dropped = run_behind_relay("payloads", |packet, random| flipped(packet, 20 * 8..packet.len() * 8, random));
    assert!(dropped("corrupted") > 200.0, "{}", dropped("corrupted"));
}

#[test]
fn packets_of_other_jobs_and_systems_are_counted_and_dropped() {
    let dropped = run_behind_relay("another job", |packet, random| sealed(packet, |hop| hop.job = JobId(hop.job.0 ^ (random as u16 | 1))));
    assert!(dropped("no_node") > 200.0, "{}", dropped("no_node"));
    let dropped = run_behind_relay("another system", |packet, random| sealed(packet, |hop| hop.system ^= random as u8 | 1));
    assert!(dropped("mismatch") > 200.0, "{}", dropped("mismatch"));
}

/// The packet that the rank would send next, or one of the next, with another payload and a checksum that is right: without keys, a sum would be wrong
/// and nobody would know.
fn altered(packet: &[u8], random: u64) -> Vec<u8> {
    let (hop, length) = HopHeader::parse(packet).expect("the relay passes packets of Fanin");
    let mut forged = packet.to_vec();
    HopHeader { sequence: hop.sequence.wrapping_add(random as u32 % 30), ..hop }.emit(&mut forged);
    forged.iter_mut().skip(length + 24).for_each(|byte| *byte ^= 0x55);
    let rest = RestCheck::of([&forged[length..]]);
    HopHeader::seal(&mut forged, rest);
    forged
}

#[test]
fn with_keys_who_is_on_the_way_and_alters_packets_changes_no_sum() {
    for packets in [Protection::Mac, Protection::Seal] {
        let forges: [(&str, Forge); 4] = [
            ("altered", altered),
            ("flipped", |packet, random| flipped(packet, 0..packet.len() * 8, random)),
            ("far ahead", |packet, _| sealed(packet, |hop| hop.sequence = hop.sequence.wrapping_add(1_000_000))),
            ("another epoch", |packet, random| sealed(packet, |hop| hop.epoch ^= random as u32 | 1)),
        ];
        for (name, forge) in forges {
            let dropped = run_with(name, packets, forge);
            let (forged, malformed) = (dropped("unauthenticated"), dropped("malformed"));
            assert!(forged > 200.0 && forged + malformed > 250.0, "{packets} {name}: {forged} {malformed}");
            assert_eq!(["unproven", "corrupted"].map(&dropped), [0.0; 2], "{packets} {name}");
        }
        // What is recorded and sent again is right, and comes once.
        let dropped = run_with("replayed", packets, |packet, _| packet.to_vec());
        assert!(dropped("repeated") > 250.0 && dropped("unauthenticated") == 0.0, "{packets}: {}", dropped("repeated"));
    }
}
