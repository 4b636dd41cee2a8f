//! Packets with keys: what somebody sends in a member's name, who can read all that the member sends, changes nothing.

use fanin_trust::{LinkKeys, PacketKeys, Protection, Secret, TAG_BYTES};

use super::*;

const PROTECTIONS: [Protection; 2] = [Protection::Mac, Protection::Seal];

fn keys(protection: Protection) -> PacketKeys {
    PacketKeys { protection, secret: Secret::new([9; 32]) }
}

/// The member's packet of this number, as it makes it.
fn sealed(member: &mut LinkKeys, hop: HopHeader, number: u32) -> Vec<u8> {
    let mut packet = Puppet::packet(hop, number);
    packet.extend([0; TAG_BYTES]);
    member.sealer.seal(hop.sequence, hop.wire_len(), &mut packet);
    packet
}

/// What the attacker makes of it. It can compute a checksum, and has no key.
fn forged(attack: u32, packet: &[u8], hop: HopHeader, earlier: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    let draw = fanin_core::hash::mix(u64::from(hop.sequence), u64::from(attack));
    let renumbered = |by: u32| {
        let mut bytes = packet.to_vec();
        bytes[12..16].copy_from_slice(&hop.sequence.wrapping_add(by).to_le_bytes());
        bytes
    };
    match attack {
        // Altered payload with the number that the member uses next, and the same behind it.
        0 => {
            bytes = renumbered(1 + draw as u32 % 30);
            bytes[40..60].iter_mut().for_each(|byte| *byte ^= 0x55);
        }
        // Far ahead: eight of these in a row were a jump without keys.
        1 => bytes = renumbered(1_000_000),
        2 => bytes[8..12].copy_from_slice(&(draw as u32 | 2).to_le_bytes()),
        3 => bytes[draw as usize % packet.len()] ^= 1 << (draw >> 61),
        4 => bytes = earlier.to_vec(),
        // As packets are made without keys.
        5 => bytes = Puppet::packet(HopHeader { sequence: hop.sequence + 1, ..hop }, 7),
        6 => bytes.truncate(draw as usize % packet.len()),
        _ => bytes.iter_mut().enumerate().for_each(|(at, byte)| *byte = (draw >> (at % 57)) as u8),
    }
    bytes
}

#[test]
fn who_reads_a_members_packets_and_sends_in_its_name_changes_nothing() {
    const PACKETS: u32 = 4_000;
    for protection in PROTECTIONS {
        let (mut driver, member, stop) = puppet_in(Some(1));
        driver.protect(vec![LinkKeys::of_switch(&keys(protection))]);
        let sender = thread::spawn(move || {
            let mut own = LinkKeys::of_rank(&keys(protection));
            let mut earlier = Vec::new();
            for number in 0..PACKETS {
                let hop = HopHeader { sequence: number, ..Puppet::hop() };
                let packet = sealed(&mut own, hop, number);
                if number == 0 {
                    earlier = packet.clone();
                }
                let forged = forged(number % 8, &packet, hop, &earlier);
                // Before the member's own, and behind it.
                if number % 3 == 0 && number > 0 {
                    member.send(&forged);
                    member.send(&packet);
                } else {
                    member.send(&packet);
                    member.send(&forged);
                }
                if number % 50 == 0 {
                    thread::sleep(Duration::from_millis(1));
                }
            }
            member.send(&sealed(&mut own, HopHeader { sequence: PACKETS, ..Puppet::hop() }, LAST));
        });
        driver.run(&stop).unwrap();
        sender.join().unwrap();
        assert!(driver.node().seen.iter().copied().eq(0..PACKETS), "{protection}: all that the member sent, in order, and nothing else");
        let counters = driver.statistics().counters;
        let dropped = |reason| counters.dropped_for(reason);
        let (forged, again) = (dropped(DropReason::Unauthenticated), dropped(DropReason::Repeated) + dropped(DropReason::TooOld));
        assert_eq!((dropped(DropReason::Unproven), dropped(DropReason::Corrupted), counters.peers_restarted), (0, 0, 0));
        assert_eq!(again, u64::from(PACKETS) / 8, "those that were sent once more");
        assert_eq!(forged + dropped(DropReason::Malformed), u64::from(PACKETS) * 7 / 8);
        assert!(forged > u64::from(PACKETS) * 5 / 8, "{counters:?}");
    }
}

#[test]
fn two_nodes_with_keys_hear_each_other_whatever_happens_on_the_way() {
    for protection in PROTECTIONS {
        let stop = Arc::new(AtomicBool::new(false));
        let (socket_a, socket_b) = (socket(), socket());
        let (at_a, at_b) = (socket_a.local_address(), socket_b.local_address());
        let (a, b) = (Address::worker(NodeId(0)), Address::worker(NodeId(1)));
        let port = Egress::Port(PortId(0));
        let faults = FaultPlan { seed: 4, duplicate: 0.05, reorder: 0.05, ..FaultPlan::default() };
        let mut drivers = [
            SwitchDriver::new(socket_a, Toy::new(port, 3_000, &stop), config(a, &[(b, at_b)], &[]), &with_faults(faults, 1)).unwrap(),
            SwitchDriver::new(socket_b, Toy::new(port, 0, &stop), config(b, &[(a, at_a)], &[]), &with_faults(faults, 2)).unwrap(),
        ];
        drivers[0].protect(vec![LinkKeys::of_rank(&keys(protection))]);
        drivers[1].protect(vec![LinkKeys::of_switch(&keys(protection))]);
        run(&mut drivers, &stop);
        let seen = &drivers[1].node().seen;
        let mut once = seen.clone();
        once.sort_unstable();
        assert!(once.into_iter().eq(0..3_000), "each once");
        let counters = drivers[1].statistics().counters;
        assert_eq!((counters.dropped_for(DropReason::Unauthenticated), counters.dropped_for(DropReason::Repeated) > 50), (0, true));
    }
}
