//! Two sockets on loopback: what is written into batches arrives, whole and in as few system calls as promised.

use std::net::Ipv4Addr;
use std::time::Duration;

use fanin_net::{DestinationId, FaultPlan, Receiver, Sender, SenderConfig, Socket, SocketConfig};

fanin_leftovers::watched!();

fn socket() -> Socket {
    Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).unwrap()
}

fn put(sender: &mut Sender, socket: &Socket, to: DestinationId, bytes: &[u8]) {
    sender.reserve(socket, to, bytes.len()).unwrap().copy_from_slice(bytes);
    sender.commit(socket, to);
}

/// Reads until nothing has come for a while; gives the datagrams in order of arrival.
fn drain(receiver: &mut Receiver, socket: &Socket) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        if receiver.receive(socket).unwrap() == 0 {
            if !socket.wait(Some(Duration::from_millis(100)), false).unwrap().readable {
                return out;
            }
            continue;
        }
        out.extend(receiver.runs().flat_map(|run| run.datagrams().map(<[u8]>::to_vec)));
    }
}

/// A datagram that tells its number and can be checked to the last byte.
fn numbered(number: u32, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| if at < 4 { number.to_le_bytes()[at] } else { (number as usize * 31 + at) as u8 }).collect()
}

#[test]
fn datagrams_of_any_mix_of_lengths_arrive_whole() {
    let (from, into) = (socket(), socket());
    let (mut sender, mut receiver) = (Sender::new(SenderConfig::default()), Receiver::new(8));
    let to = sender.add(into.local_address());
    // Around the boundary between small and other datagrams, equal runs, descending and ascending lengths, very long ones.
    let lengths: Vec<usize> = (0..400)
        .map(|n| [1_400, 1_400, 1_400, 255, 256, 257, 4, 1_400, 9_000, 40_000][n % 10])
        .chain(4..100)
        .chain((500..600).rev())
        .collect();
    let sent: Vec<Vec<u8>> = lengths.iter().enumerate().map(|(number, &bytes)| numbered(number as u32, bytes)).collect();
    let mut got = Vec::new();
    for chunk in sent.chunks(20) {
        chunk.iter().for_each(|datagram| put(&mut sender, &from, to, datagram));
        sender.flush(&from);
        got.extend(drain(&mut receiver, &into));
    }
    assert_eq!(sender.pending_bytes(to), 0);
    let (mut sent, mut got) = (sent, got);
    sent.sort_unstable();
    got.sort_unstable();
    assert_eq!(sent.len(), got.len());
    assert!(sent == got);
}

#[test]
fn equal_datagrams_share_system_calls_and_keep_their_order() {
    let (from, into) = (socket(), socket());
    let (mut sender, mut receiver) = (Sender::new(SenderConfig::default()), Receiver::new(8));
    let to = sender.add(into.local_address());
    for number in 0..88 {
        put(&mut sender, &from, to, &numbered(number, 1_464));
    }
    sender.flush(&from);
    assert_eq!(sender.statistics().datagrams, 88);
    if from.send_segments_max() > 1 {
        assert_eq!(sender.statistics().calls, 2, "44 datagrams of 1464 bytes fit into a call");
    }
    let got = drain(&mut receiver, &into);
    assert!(got == (0..88).map(|number| numbered(number, 1_464)).collect::<Vec<_>>());
    assert_eq!(receiver.runs().count(), 0);
}

#[test]
fn acknowledgements_among_data_do_not_break_up_its_batches() {
    let (from, into) = (socket(), socket());
    let mut sender = Sender::new(SenderConfig::default());
    let to = sender.add(into.local_address());
    for number in 0..44 {
        put(&mut sender, &from, to, &numbered(number, 1_464));
        put(&mut sender, &from, to, &numbered(number, 40));
    }
    sender.flush(&from);
    if from.send_segments_max() > 1 {
        assert_eq!(sender.statistics().calls, 2);
    }
    assert_eq!(sender.statistics().datagrams, 88);
}

#[test]
fn short_data_does_not_overtake_longer_data() {
    let (from, into) = (socket(), socket());
    let (mut sender, mut receiver) = (Sender::new(SenderConfig::default()), Receiver::new(8));
    let to = sender.add(into.local_address());
    let lengths = [1_464, 1_464, 40, 1_464, 1_480, 100, 60, 1_464];
    for (number, length) in (0..).zip(lengths) {
        sender.reserve_in_order(&from, to, length).unwrap().copy_from_slice(&numbered(number, length));
        sender.commit(&from, to);
    }
    sender.flush(&from);
    let got = drain(&mut receiver, &into);
    assert!(got == (0..).zip(lengths).map(|(number, length)| numbered(number, length)).collect::<Vec<_>>());
}

#[test]
fn what_is_too_long_is_refused_and_counted() {
    let from = socket();
    let mut sender = Sender::new(SenderConfig { batch_bytes_max: 8_000, ..SenderConfig::default() });
    let to = sender.add(from.local_address());
    assert!(sender.reserve(&from, to, 8_001).is_none());
    assert!(sender.reserve(&from, to, 0).is_none());
    assert!(sender.reserve(&from, to, 8_000).is_some());
    assert_eq!(sender.statistics().refused, 2);
}

#[test]
fn faults_happen_below_and_only_to_datagrams() {
    let (from, into) = (socket(), socket());
    let faults = FaultPlan { seed: 11, loss: 0.1, duplicate: 0.1, reorder: 0.1, corrupt: 0.0 };
    let (mut sender, mut receiver) = (Sender::new(SenderConfig { faults, ..SenderConfig::default() }), Receiver::new(8));
    let to = sender.add(into.local_address());
    let mut got = Vec::new();
    for number in 0..1_000 {
        put(&mut sender, &from, to, &numbered(number, 1_000));
        if number % 100 == 99 {
            sender.flush(&from);
            got.extend(drain(&mut receiver, &into));
        }
    }
    while sender.holds() {
        sender.flush(&from);
    }
    got.extend(drain(&mut receiver, &into));
    let injected = sender.statistics().injected;
    assert!(injected[..3].iter().all(|&count| (60..140).contains(&count)), "{injected:?}");
    assert_eq!(got.len() as u64, 1_000 - injected[0] + injected[1]);
    assert!(got.iter().all(|datagram| *datagram == numbered(u32::from_le_bytes(datagram[..4].try_into().unwrap()), 1_000)));
    assert!(!got.is_sorted_by_key(|datagram| u32::from_le_bytes(datagram[..4].try_into().unwrap())));
}
