//! Packets with keys: what somebody sends in a member's name, who can read all that the member sends, changes nothing.

use fanin_trust::{CableKeys, FabricKey, LinkKeys, Protection, Secret, TAG_BYTES, TURNS_BYTES};

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

/// A neighbour in a fabric that has keys.
struct Keyed {
    socket: UdpSocket,
    switch: SocketAddr,
    sequence: u32,
}

impl Keyed {
    fn hello(&mut self, keys: Option<&mut CableKeys>, epoch: u32, hears: Option<u32>, told: Option<u32>) -> Vec<u8> {
        let hello = LinkHeader::Hello { hears, told, port: PortId(0), fabric: Greeter::FABRIC };
        let hop = HopHeader { system: LINK_SYSTEM, job: JobId(0), epoch, sequence: self.sequence, payload_bytes: 0, ..Puppet::hop() };
        self.sequence += 1;
        let tag_bytes = if keys.is_some() { TURNS_BYTES + TAG_BYTES } else { 0 };
        let mut packet = vec![0; hop.wire_len() + hello.wire_len() + tag_bytes];
        let front = hop.emit(&mut packet);
        hello.emit(&mut packet[front..]);
        match keys {
            None => Puppet::seal(&mut packet),
            Some(keys) => keys.seal_hello(hop.sequence, &mut packet),
        }
        packet
    }

    fn send(&self, packet: &[u8]) {
        self.socket.send_to(packet, self.switch).unwrap();
    }

    /// Waits for a hello of the switch that hears and was told this, made with these keys; gives its epoch.
    fn hear(&self, keys: &mut CableKeys, hears: Option<u32>, told: Option<u32>) -> u32 {
        let (mut buffer, mut scratch) = ([0; 2_048], Vec::new());
        for _ in 0..1_000 {
            let bytes = self.socket.recv(&mut buffer).expect("the switch says hello");
            let hop = HopPacket::new(&buffer[..bytes]).unwrap().header();
            let opened = keys.open_hello(hop.epoch, hop.sequence, &buffer[..bytes], &mut scratch).expect("with the cable's keys");
            let rest = HopPacket::new(opened).unwrap().rest();
            if let Ok((LinkHeader::Hello { hears: heard, told: said, .. }, _)) = LinkHeader::parse(rest)
                && (heard, said) == (hears, told)
            {
                return hop.epoch;
            }
        }
        panic!("no hello that hears {hears:?} and was told {told:?}");
    }
}

/// Whoever has no keys, reads all and sends in a neighbour's name begins no link, ends none, and gets nothing through.
#[test]
fn a_cable_with_keys_hears_its_neighbour_alone_through_restarts_and_replays() {
    for protection in PROTECTIONS {
        let of_cable = |byte: u8| FabricKey::new(Secret::new([byte; 32])).cable(protection, 1, 9);
        let (mut switch, neighbour, states) = switch_with_a_neighbour(vec![of_cable(1)]);
        let mut keyed = Keyed { socket: neighbour, switch: switch.local_address(), sequence: 0 };
        let (stop, waker) = (AtomicBool::new(false), switch.waker());
        thread::scope(|scope| {
            let running = scope.spawn(|| switch.run(&stop).unwrap());
            let mut first = CableKeys::new(of_cable(1), true, 5);
            let mut wrong = CableKeys::new(of_cable(2), true, 5);
            // Without keys, and with those of another fabric.
            for _ in 0..20 {
                let (plain, other) = (keyed.hello(None, 5, None, None), keyed.hello(Some(&mut wrong), 5, None, None));
                keyed.send(&plain);
                keyed.send(&other);
            }
            let begin = keyed.hello(Some(&mut first), 5, None, None);
            keyed.send(&begin);
            let own = keyed.hear(&mut first, None, Some(5));
            // It knows what only the neighbour can know, since it reads everything, and cannot say it.
            for _ in 0..20 {
                let (plain, other) = (keyed.hello(None, 5, Some(own), Some(own)), keyed.hello(Some(&mut wrong), 5, Some(own), Some(own)));
                keyed.send(&plain);
                keyed.send(&other);
            }
            let shown = keyed.hello(Some(&mut first), 5, None, Some(own));
            keyed.send(&shown);
            keyed.hear(&mut first, Some(5), None);
            let up = keyed.hello(Some(&mut first), 5, Some(own), None);
            keyed.send(&up);
            // A second life; what the first one has said is over, however often it is said again.
            let mut second = CableKeys::new(of_cable(1), true, 6);
            keyed.sequence = 0;
            for told in [None, Some(own)] {
                let packet = keyed.hello(Some(&mut second), 6, None, told);
                keyed.send(&packet);
                let (hears, told) = if told.is_none() { (Some(5), Some(6)) } else { (Some(6), None) };
                keyed.hear(&mut second, hears, told);
            }
            for _ in 0..20 {
                [&begin, &shown, &up].into_iter().for_each(|packet| keyed.send(packet));
            }
            // Once this is answered all of that has been read.
            let mut third = CableKeys::new(of_cable(1), true, 7);
            keyed.sequence = 0;
            let packet = keyed.hello(Some(&mut third), 7, None, None);
            keyed.send(&packet);
            keyed.hear(&mut third, Some(6), Some(7));
            stop.store(true, Ordering::Relaxed);
            waker.wake();
            running.join().unwrap();
        });
        let counters = switch.status().counters;
        let states = states.lock().unwrap();
        assert_eq!(states[..3], [LinkState::Down, LinkState::OneWay, LinkState::Up], "{protection}: {states:?}");
        assert_eq!(counters.peers_restarted, 1, "{protection}");
        assert!(counters.dropped_for(DropReason::Unauthenticated) >= 80, "{protection}");
        assert!(counters.dropped_for(DropReason::TooOld) + counters.dropped_for(DropReason::Unproven) >= 40, "{protection}");
    }
}
