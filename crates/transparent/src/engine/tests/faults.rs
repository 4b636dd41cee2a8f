//! Damage, strangers, ports that go, ranks that die, other switches: what must not get into a sum, and who is told what.

use super::*;
use crate::segment::Place;

/// A job: its workers' hosts by rank, and where they listen.
fn job(hosts: &[usize], listen: impl Fn(usize) -> u16, port: u16) -> Vec<Flow> {
    let next = |rank: usize| (rank + 1) % hosts.len();
    (0..hosts.len()).map(|rank| Flow { from: at(hosts[rank], port + rank as u16), to: at(hosts[next(rank)], listen(next(rank))) }).collect()
}

/// All of a rank's stream in one segment.
fn speak(network: &mut Network, job: &[Flow], rank: usize, ring: u32, elements: usize) -> Vec<(usize, Vec<u8>)> {
    network.data(job[rank], 0, &stream(ring, rank, job.len(), &[elements]), false)
}

/// The payloads that have left for the receivers of these flows.
fn results(left: &[(usize, Vec<u8>)], flows: &[Flow]) -> Vec<Vec<u8>> {
    let segment = |frame: &[u8]| Segment::parse(frame).filter(|segment| flows.contains(&segment.flow) && segment.payload_bytes() > 0);
    left.iter().filter_map(|(_, frame)| Some(frame[segment(frame)?.payload()].to_vec())).collect()
}

#[test]
fn no_bit_that_is_turned_over_gets_into_a_sum_or_out_with_a_right_checksum() {
    for v6 in [false, true] {
        let flow = |rank: usize| if v6 { by_ipv6(flow(rank, 2)) } else { flow(rank, 2) };
        let mut network = Network::with_flows(2, 4_096, (0..2).map(flow));
        let streams: Vec<Vec<u8>> = (0..2).map(|rank| stream(5, rank, 2, &[30])).collect();
        let expected = result(5, 2, &[30]);
        let mut receivers = [Receiver::new(expected.len()), Receiver::new(expected.len())];
        let (mut sent, mut dropped) = (0, 0);
        for part in [0..20, 20..90, 90..expected.len()] {
            for (rank, stream) in streams.iter().enumerate() {
                let set =
                    |tcp: &mut TcpHeader| (tcp.sequence_number, tcp.acknowledgment_number) = (BASE.wrapping_add(part.start as u32), 100);
                let good = frame(flow(rank), &stream[part.clone()], 1, set);
                let acknowledge =
                    |tcp: &mut TcpHeader| (tcp.sequence_number, tcp.acknowledgment_number) = (100, BASE.wrapping_add(part.start as u32));
                let answer = frame(flow(rank).reverse(), &[], 1, acknowledge);
                for (from, good) in [(host(&flow(rank).from), good), (host(&flow(rank).to), answer)] {
                    for bit in 8 * 14..8 * good.len() {
                        let mut bad = good.clone();
                        bad[bit / 8] ^= 1 << (bit % 8);
                        // What IPv6 does not protect is nothing that is read.
                        if Segment::parse(&bad).is_some_and(|segment| segment.is_whole(&bad, &Offload::default())) {
                            continue;
                        }
                        let left = network.send(from, bad.clone());
                        sent += 1;
                        dropped += u64::from(left.is_empty());
                        assert!(left.iter().all(|(_, frame)| *frame == bad), "bit {bit}: something else has left");
                    }
                }
                for (_, frame) in network.data(flow(rank), part.start, &stream[part.clone()], false) {
                    let sender = host(&Segment::parse(&frame).unwrap().flow.from);
                    receivers[sender].take(&frame);
                    let to = receivers[sender].there.reach(0);
                    network.acknowledge(flow(sender), to);
                }
            }
        }
        assert!(receivers.iter().all(|receiver| receiver.bytes == expected));
        let statistics = network.switch.statistics();
        assert_eq!(statistics.damaged.iter().sum::<u64>(), dropped);
        assert_eq!((statistics.rings, statistics.rings_failed), (1, 0));
        assert!(statistics.damaged[Damage::Tcp as usize] > 3_000 && sent > dropped, "{:?} of {sent}", statistics.damaged);
        assert_eq!(statistics.damaged[Damage::IpHeader as usize] > 0, !v6);
    }
}

#[test]
fn what_the_kernel_has_looked_at_or_not_finished_is_taken_as_it_is() {
    for flags in [Offload::NEEDS_CHECKSUM, Offload::CHECKSUM_VALID] {
        let mut network = Network::new(2, 4_096);
        let mut wire = Wire::default();
        for rank in 0..2 {
            let set = |tcp: &mut TcpHeader| (tcp.sequence_number, tcp.acknowledgment_number) = (BASE, 100);
            let mut bytes = frame(flow(rank, 2), &stream(5, rank, 2, &[10]), 1, set);
            // The checksum of a frame that is not finished is that of the addresses.
            bytes[14 + 20 + 16] ^= 0xff;
            let offload = Offload { flags, ..Offload::default() };
            network.switch.on_frame(network.instant(), rank, offload, &mut bytes, &mut wire);
        }
        assert_eq!(results(&wire.0, &[flow(0, 2), flow(1, 2)]), vec![result(5, 2, &[10]); 2]);
        assert_eq!(network.switch.statistics().damaged, [0; 3]);
    }
}

#[test]
fn a_damaged_reset_or_opening_changes_nothing() {
    let mut network = Network::new(2, 4_096);
    network.data(flow(0, 2), 0, &stream(5, 0, 2, &[10]), false);
    for (flow, set) in [
        (flow(0, 2), (|tcp| (tcp.rst, tcp.sequence_number) = (true, BASE)) as fn(&mut TcpHeader)),
        (flow(0, 2).reverse(), |tcp| (tcp.rst, tcp.sequence_number) = (true, 100)),
        (flow(0, 2), |tcp| (tcp.syn, tcp.ack, tcp.sequence_number) = (true, false, 7)),
        (flow(0, 2).reverse(), |tcp| (tcp.syn, tcp.acknowledgment_number) = (true, 8)),
    ] {
        let mut bad = frame(flow, &[], 1, set);
        bad[14 + 20 + 16] ^= 1;
        assert!(network.send(host(&flow.from), bad).is_empty());
    }
    let left = network.data(flow(1, 2), 0, &stream(5, 1, 2, &[10]), false);
    assert_eq!(results(&left, &[flow(0, 2), flow(1, 2)]), vec![result(5, 2, &[10]); 2]);
    assert_eq!(network.switch.statistics().damaged, [0, 0, 4]);
}

#[test]
fn two_jobs_with_one_ring_number_never_get_each_others_sums() {
    let port = |port: u16| move |_| port;
    let (a, b) = ([0, 1, 2, 3], [4, 5, 6, 7]);
    // Other hosts; the same ones in another order, reversed, and partly the same; each beginning with some ranks of both.
    for (other, first) in
        [(b, [0, 2]), (b, [1, 3]), ([3, 2, 1, 0], [0, 1]), ([1, 2, 3, 0], [0, 2]), ([0, 5, 2, 7], [0, 2]), ([0, 1, 2, 7], [0, 1])]
    {
        let (a, b) = (job(&a, port(7_000), 4_000), job(&other, port(7_100), 5_000));
        let mut network = Network::with_flows(8, 4_096, a.iter().chain(&b).copied());
        let mut left: Vec<(usize, Vec<u8>)> = Vec::new();
        first.iter().for_each(|&rank| left.extend(speak(&mut network, &a, rank, 77, 10)));
        (0..4).filter(|rank| !first.contains(rank)).for_each(|rank| left.extend(speak(&mut network, &b, rank, 77, 20)));
        (0..4).filter(|rank| !first.contains(rank)).for_each(|rank| left.extend(speak(&mut network, &a, rank, 77, 10)));
        first.iter().for_each(|&rank| left.extend(speak(&mut network, &b, rank, 77, 20)));
        let sums = |flows: &[Flow]| -> Vec<Vec<u8>> {
            results(&left, flows).into_iter().filter(|bytes| MessageHeader::parse(bytes).is_ok_and(|header| header.summed > 0)).collect()
        };
        let (of_a, of_b) = (sums(&a), sums(&b));
        assert!(of_a.iter().all(|bytes| *bytes == result(77, 4, &[10])) && of_b.iter().all(|bytes| *bytes == result(77, 4, &[20])));
        let why = reasons(&left);
        let words = ["two jobs have the same ring number", "another job has", "has another `bytes`"];
        assert!(!why.is_empty() && why.iter().all(|why| words.iter().any(|word| why.contains(word))), "{why:?}");
        // Nobody is left who waits without a word, but members of one job that still can complete.
        assert!(of_a.len() + of_b.len() + why.len() >= 4, "{other:?} {first:?}: {} {} {why:?}", of_a.len(), of_b.len());
    }
}

#[test]
fn two_jobs_on_the_same_hosts_are_told_apart_by_the_ports_at_which_they_listen() {
    let hosts = [0, 1, 2, 3];
    let (a, b) = (job(&hosts, |_| 7_000, 4_000), job(&hosts, |_| 7_100, 5_000));
    let mut network = Network::with_flows(4, 4_096, a.iter().chain(&b).copied());
    let mut left = Vec::new();
    for (rank, job) in [(0, &a), (2, &a), (1, &b), (3, &b), (1, &a), (3, &a), (0, &b), (2, &b)] {
        left.extend(speak(&mut network, job, rank, 77, 10));
    }
    assert!(results(&left, &[a.clone(), b.clone()].concat()).is_empty(), "nothing was summed");
    let why = reasons(&left);
    assert_eq!(why.len(), 8, "{why:?}");
    assert!(why.iter().all(|why| why.contains("two jobs have the same ring number")), "{why:?}");
    // A job whose workers listen at ports of their own goes on beside another one that has not spoken yet.
    let (a, b) = (job(&hosts, |rank| 7_000 + rank as u16, 4_000), job(&hosts, |rank| 7_100 + rank as u16, 5_000));
    let mut network = Network::with_flows(4, 4_096, a.iter().chain(&b).copied());
    let left: Vec<_> = (0..4).flat_map(|rank| speak(&mut network, &a, rank, 77, 10)).collect();
    assert_eq!(results(&left, &a), vec![result(77, 4, &[10]); 4]);
}

#[test]
fn a_rank_that_comes_twice_or_otherwise_is_named() {
    let hosts = [0, 1, 2];
    let a = job(&hosts, |_| 7_000, 4_000);
    let beside = job(&hosts, |_| 7_100, 5_000);
    let again = job(&hosts, |_| 7_000, 6_000);
    // Before anything is summed: nobody knows whose the others are.
    let mut network = Network::with_flows(3, 4_096, a.iter().chain(&beside).copied());
    speak(&mut network, &a, 1, 77, 10);
    let left = speak(&mut network, &beside, 1, 77, 10);
    let twice = "rank 1 comes by 10.0.0.2:4001 to 10.0.0.3:7000 and by 10.0.0.2:5001 to 10.0.0.3:7100: two jobs have the same ring number";
    assert_eq!(reasons(&left), [format!("ring 77: {twice}"), format!("ring 77: rank 1 is refused: {twice}")]);
    // Afterwards only the one who comes is refused.
    let mut network = Network::with_flows(3, 4_096, a.iter().chain(&beside).chain(&again).copied());
    (0..3).for_each(|rank| drop(speak(&mut network, &a, rank, 77, 10)));
    let left = speak(&mut network, &beside, 1, 77, 10);
    assert_eq!(reasons(&left).len(), 1);
    assert!(reasons(&left)[0].starts_with("ring 77: rank 1 is refused: rank 1 is at 10.0.0.2:4001 already"), "{:?}", reasons(&left));
    let left = network.data(beside[2], 0, &stream(77, 0, 5, &[10]), false);
    assert_eq!(reasons(&left), ["ring 77: rank 0 is refused: field `world` is 5, and the ring's other workers say 3"]);
    assert_eq!(network.switch.statistics().rings_failed, 0);
    // The worker itself once more, as where its host was switched off: the run before is over, and the next one is summed.
    let mut left = speak(&mut network, &again, 1, 77, 20);
    assert_eq!(reasons(&left), vec!["ring 77: rank 1 begins anew at 10.0.0.2:6001: the run before is over"; 3]);
    left.extend([0, 2].into_iter().flat_map(|rank| speak(&mut network, &again, rank, 77, 20)));
    assert_eq!(results(&left, &again), vec![result(77, 3, &[20]); 3]);
}

#[test]
fn the_next_run_by_the_same_number_begins_while_the_last_one_still_ends() {
    let hosts = [0, 1, 2];
    let (one, two) = (job(&hosts, |_| 7_000, 4_000), job(&hosts, |_| 7_000, 5_000));
    let mut network = Network::with_flows(3, 4_096, one.iter().chain(&two).copied());
    let length = stream(77, 0, 3, &[10]).len();
    (0..3).for_each(|rank| drop(speak(&mut network, &one, rank, 77, 10)));
    for flow in &one {
        network.acknowledge(*flow, length as u64);
    }
    network.data(one[1], length, &[], true);
    network.acknowledge(one[1], length as u64 + 1);
    // Rank 1 has gone; its next run must not get sums of the old one.
    let mut left = speak(&mut network, &two, 1, 77, 20);
    left.extend([0, 2].into_iter().flat_map(|rank| speak(&mut network, &two, rank, 77, 20)));
    assert_eq!(results(&left, &two), vec![result(77, 3, &[20]); 3]);
    assert_eq!((network.switch.statistics().rings, network.switch.statistics().rings_failed), (2, 0));
}

#[test]
fn the_same_addresses_once_more_are_another_connection_once_that_is_answered() {
    let hosts = [0, 1];
    let job = job(&hosts, |_| 7_000, 4_000);
    let mut network = Network::with_flows(2, 4_096, job.iter().copied());
    speak(&mut network, &job, 0, 77, 10);
    let syn = |tcp: &mut TcpHeader| (tcp.syn, tcp.ack, tcp.sequence_number) = (true, false, 6);
    // Anybody can send that; the receiver, who knows better, answers something else.
    network.send(0, frame(job[0], &[], 1, syn));
    network.acknowledge(job[0], 0);
    let left = speak(&mut network, &job, 1, 77, 10);
    assert_eq!(results(&left, &job), vec![result(77, 2, &[10]); 2]);
    // This time the receiver takes it.
    network.send(0, frame(job[0], &[], 1, syn));
    let answer = |tcp: &mut TcpHeader| (tcp.syn, tcp.acknowledgment_number, tcp.sequence_number) = (true, 7, 99);
    let left = network.send(1, frame(job[0].reverse(), &[], 1, answer));
    assert_eq!(reasons(&left), vec!["ring 77: rank 0 at 10.0.0.1:4000 has ended, and others wait for more of it"; 2]);
    let last = Segment::parse(&left.last().unwrap().1).unwrap();
    assert!(last.flags.syn, "the answer passes");
    let set = |tcp: &mut TcpHeader| (tcp.sequence_number, tcp.acknowledgment_number) = (7, 100);
    let other = Flow { from: at(1, 4_999), to: at(0, 7_000) };
    network.open(other);
    network.send(0, frame(job[0], &stream(78, 0, 2, &[5]), 1, set));
    let left = network.data(other, 0, &stream(78, 1, 2, &[5]), false);
    assert_eq!(results(&left, &[job[0], other]), vec![result(78, 2, &[5]); 2]);
}

/// What a killed process's kernel says first: both of its connections end, by FIN or by RST, in any order, and either word may be lost.
#[test]
fn whoever_is_killed_is_named_whatever_its_kernel_says_first() {
    let world = 4;
    for case in 0..16 * world {
        let (killed, before, order, resets_it, loses) =
            (case % world, (case / world) & 1, (case / world) & 2, (case / world) & 4, (case / world) & 8);
        let job = job(&[0, 1, 2, 3], |_| 7_000, 4_000);
        let mut network = Network::with_flows(world, 4_096, job.iter().copied());
        let (length, previous) = (stream(77, 0, world, &[10]).len(), (killed + world - 1) % world);
        let mut sent = 0;
        if before == 0 {
            // Inside the second message.
            (0..world).for_each(|rank| drop(speak(&mut network, &job, rank, 77, 10)));
            (0..world).for_each(|rank| drop(network.acknowledge(job[rank], length as u64)));
            sent = length;
        }
        for rank in (0..world).filter(|&rank| rank != killed) {
            let message = if before == 0 { stream(77, rank, world, &[10, 10])[sent..].to_vec() } else { stream(77, rank, world, &[10]) };
            // The one before it is in the middle of sending.
            let end = if rank == previous { 60 } else { length };
            network.data(job[rank], sent, &message[..end], false);
        }
        let own = |network: &mut Network| match resets_it {
            0 => network.data(job[killed], sent, &[], true),
            _ => {
                let set = |tcp: &mut TcpHeader| (tcp.rst, tcp.sequence_number) = (true, BASE.wrapping_add(sent as u32));
                network.send(killed, frame(job[killed], &[], 1, set))
            }
        };
        let received = |network: &mut Network| {
            let set = |tcp: &mut TcpHeader| {
                (tcp.rst, tcp.fin, tcp.sequence_number) = (resets_it != 0, resets_it == 0, 100);
                tcp.acknowledgment_number = BASE.wrapping_add(sent as u32);
            };
            network.send(killed, frame(job[previous].reverse(), &[], 1, set))
        };
        let mut left = Vec::new();
        // A rank that has not come yet has a connection all the same.
        left.extend(if order == 0 { own(&mut network) } else { received(&mut network) });
        if loses == 0 {
            left.extend(if order == 0 { received(&mut network) } else { own(&mut network) });
        }
        // The rank before it notices that, and ends as well; then the next one.
        network.now += 50_000;
        left.extend(network.data(job[previous], sent + 60, &[], true));
        let why = reasons(&left);
        assert!(!why.is_empty(), "case {case}");
        let name = format!("rank {killed} ");
        assert!(why.iter().all(|why| why.contains(&name)), "case {case}: killed {killed}, said {why:?}");
    }
}

/// A killed process's kernel sends what it has still to send: the end of its stream comes last, and its predecessor's end may be seen before.
#[test]
fn a_killed_rank_is_named_although_its_predecessor_seems_to_end_first() {
    let job = job(&[0, 1, 2, 3], |_| 7_000, 4_000);
    let mut network = Network::with_flows(4, 4_096, job.iter().copied());
    (0..4).for_each(|rank| drop(network.data(job[rank], 0, &stream(77, rank, 4, &[200])[..100], false)));
    let answer = |rst: bool| {
        move |tcp: &mut TcpHeader| {
            (tcp.rst, tcp.fin, tcp.sequence_number, tcp.acknowledgment_number) = (rst, !rst, 100, BASE.wrapping_add(100));
        }
    };
    // Rank 2 is killed: it closes what it received from rank 1, which ends in turn, with bytes of rank 0 that it has not read.
    assert!(reasons(&network.send(2, frame(job[1].reverse(), &[], 1, answer(false)))).is_empty());
    network.now += 80_000;
    let left = network.send(1, frame(job[0].reverse(), &[], 1, answer(true)));
    assert_eq!(reasons(&left), vec!["ring 77: rank 2 at 10.0.0.3:4002 has ended, and others wait for more of it"; 4]);
}

#[test]
fn a_ring_outlives_a_port_for_a_moment_and_others_outlive_it_for_ever() {
    let (a, b) = (job(&[0, 1], |_| 7_000, 4_000), job(&[2, 3], |_| 7_000, 4_000));
    let mut network = Network::with_flows(5, 4_096, a.iter().chain(&b).copied());
    network.switch.name_ports(["p0", "p1", "p2", "p3", "p4"]);
    speak(&mut network, &a, 0, 1, 10);
    speak(&mut network, &b, 0, 2, 10);
    let now = network.instant();
    // Out for a second; another port for ever.
    network.switch.on_port_out(now, 1);
    network.switch.on_port_out(now, 4);
    assert!(network.pass(1_000).iter().all(|(_, frame)| neighbours::is_word(frame)));
    network.switch.on_port_back(1);
    network.pass(1_500);
    let left = speak(&mut network, &a, 1, 1, 10);
    assert_eq!(results(&left, &a), vec![result(1, 2, &[10]); 2]);
    // For longer than that, while the ring waits for nobody.
    network.switch.on_port_out(network.instant(), 1);
    let left = network.pass(2_100);
    // To whoever was behind it the word goes everywhere.
    let why = "ring 1: interface p1, behind which rank 1 at 10.0.0.2:4001 is, is out of service";
    assert!(reasons(&left).len() >= 2 && reasons(&left).iter().all(|said| said == why), "{:?}", reasons(&left));
    let left = speak(&mut network, &b, 1, 2, 10);
    assert_eq!(results(&left, &b), vec![result(2, 2, &[10]); 2]);
    assert_eq!(network.switch.statistics().rings_failed, 1);
}

#[test]
fn a_ring_that_waits_for_too_long_ends_with_the_names_of_the_missing() {
    let job = job(&[0, 1, 2, 3], |_| 7_000, 4_000);
    let mut network = Network::with_flows(4, 4_096, job.iter().copied());
    network.switch.config.patience = Duration::from_us(60_000_000);
    [0, 1].into_iter().for_each(|rank| drop(speak(&mut network, &job, rank, 77, 10)));
    for _ in 0..59 {
        assert!(reasons(&network.pass(1_000)).is_empty());
    }
    let why = "ring 77: 60 s in which nothing has moved in message 0: waited for rank 2, which has not come yet: a connection from 10.0.0.3, \
               rank 3, which has not come yet: a connection to 10.0.0.1";
    assert_eq!(reasons(&network.pass(1_100)), [why; 2]);
    // Between messages nobody waits, however long that takes; and whoever gives up waiting is not the cause.
    let job = self::job(&[0, 1], |_| 7_000, 4_000);
    let mut network = Network::with_flows(2, 4_096, job.iter().copied());
    network.switch.config.patience = Duration::from_us(60_000_000);
    let length = stream(77, 0, 2, &[10]).len();
    (0..2).for_each(|rank| drop(speak(&mut network, &job, rank, 77, 10)));
    (0..2).for_each(|rank| drop(network.acknowledge(job[rank], length as u64)));
    (0..500).for_each(|_| assert!(network.pass(250).is_empty()));
    network.data(job[0], length, &stream(77, 0, 2, &[10, 10])[length..], false);
    (0..30).for_each(|_| assert!(reasons(&network.pass(1_000)).is_empty()));
    let rst = |tcp: &mut TcpHeader| (tcp.rst, tcp.sequence_number) = (true, BASE.wrapping_add(2 * length as u32));
    let left = network.send(0, frame(job[0], &[], 1, rst));
    let why =
        "ring 77: rank 0 at 10.0.0.1:4000 has ended after 30 s in which nothing has moved in message 1: waited for rank 1 at 10.0.0.2:4001";
    assert_eq!(reasons(&left), [why; 2]);
}

/// Senders that send only what they are allowed to never lose anything, however small the memory is, and never wait for ever.
#[test]
fn senders_are_held_to_the_memory_that_there_is() {
    for (memory, scale) in [(4_096, 0), (16_384, 3), (65_536, 7)] {
        let world = 3;
        let elements = [memory / 2, memory];
        let (expected, streams): (_, Vec<_>) =
            (result(5, world, &elements), (0..world).map(|rank| stream(5, rank, world, &elements)).collect());
        let mut network = Network::with_flows(world, memory, []);
        for rank in 0..world {
            let scaled = move |tcp: &mut TcpHeader| tcp.set_options(&[TcpOptionElement::WindowScale(scale)]).unwrap();
            let set =
                move |tcp: &mut TcpHeader| ((tcp.syn, tcp.ack, tcp.sequence_number) = (true, false, BASE.wrapping_sub(1)), scaled(tcp)).1;
            network.send(rank, frame(flow(rank, world), &[], 1, set));
            let set = move |tcp: &mut TcpHeader| {
                (tcp.syn, tcp.acknowledgment_number, tcp.sequence_number, tcp.window_size) = (true, BASE, 99, 4_096);
                scaled(tcp);
            };
            network.send(host(&flow(rank, world).to), frame(flow(rank, world).reverse(), &[], 1, set));
        }
        let (mut allowed, mut sent) = (vec![4_096; world], vec![0; world]);
        let mut receivers: Vec<Receiver> = (0..world).map(|_| Receiver::new(expected.len())).collect();
        let mut acknowledged = vec![0; world];
        let mut round = 0;
        while receivers.iter().any(|receiver| receiver.there.reach(0) < expected.len() as u64) {
            round += 1;
            assert!(round < 40 * expected.len() / 1_000, "stuck: sent {sent:?}, allowed {allowed:?}");
            for rank in 0..world {
                let mut left = Vec::new();
                let end = (sent[rank] + 1_000).min(allowed[rank]).min(expected.len());
                if end > sent[rank] {
                    left.extend(network.data(flow(rank, world), sent[rank], &streams[rank][sent[rank]..end], false));
                    sent[rank] = end;
                }
                // Receivers are not equally quick to acknowledge.
                let there = receivers[rank].there.reach(0);
                if round % (rank + 1) == 0 && there > acknowledged[rank] {
                    acknowledged[rank] = there;
                    let set = move |tcp: &mut TcpHeader| {
                        (tcp.sequence_number, tcp.acknowledgment_number, tcp.window_size) = (100, BASE.wrapping_add(there as u32), 40_000);
                    };
                    left.extend(network.send(host(&flow(rank, world).to), frame(flow(rank, world).reverse(), &[], 1, set)));
                }
                for (_, frame) in left {
                    let segment = Segment::parse(&frame).unwrap();
                    let offload = Offload { flags: 0, ..Offload::default() };
                    if segment.payload_bytes() > 0 {
                        receivers[host(&segment.flow.from)].take(&frame);
                    } else if segment.flow.to.port() >= 4_000 && segment.flow.to.port() < 5_000 {
                        let sender = host(&segment.flow.to);
                        let edge = segment.acknowledged.wrapping_sub(BASE) as usize + (usize::from(segment.window) << scale);
                        allowed[sender] = allowed[sender].max(edge);
                        assert!(sent[sender] <= edge + (1 << scale), "a window never goes back by more than its grain");
                        let _ = segment.is_whole(&frame, &offload);
                    }
                }
            }
        }
        assert!(receivers.iter().all(|receiver| receiver.bytes == expected));
        let statistics = network.switch.statistics();
        assert_eq!(statistics.dropped, 0, "memory {memory}");
        assert!(statistics.windows_cut > 0);
    }
}

#[test]
fn what_looks_like_a_message_and_passes_unsummed_is_counted() {
    let mut network = Network::new(2, 4_096);
    let message = stream(5, 0, 2, &[3]);
    let stranger = Flow { from: at(0, 9_000), to: at(1, 7_000) };
    let set = |tcp: &mut TcpHeader| tcp.sequence_number = BASE;
    let plain = frame(stranger, &message, 1, set);
    let tagged = [&plain[..12], &[0x81, 0, 0, 5], &plain[12..]].concat();
    let mut fragment = plain.clone();
    fragment[20] |= 0x20;
    let sum = etherparse::checksum::Sum16BitWords::new().add_slice(&fragment[14..24]).add_slice(&fragment[26..34]).ones_complement();
    fragment[24..26].copy_from_slice(&sum.to_ne_bytes());
    let fast = frame(stranger, &message, 1, |tcp| (tcp.syn, tcp.ack) = (true, false));
    for (sent, why) in
        [(plain, Unsummed::NoBeginning), (tagged, Unsummed::Tagged), (fragment, Unsummed::Fragment), (fast, Unsummed::WithSyn)]
    {
        assert_eq!(network.send(0, sent.clone()), [(1, sent)], "{why:?}");
        assert_eq!(network.switch.statistics().unsummed[why as usize], 1, "{why:?}");
    }
    let mut wrong = message.clone();
    wrong[4] = 9;
    assert_eq!(network.data(flow(0, 2), 0, &wrong, false).len(), 1);
    assert_eq!(network.switch.statistics().unsummed[Unsummed::Malformed as usize], 1);
    network.switch.on_too_long(network.instant(), 0);
    assert_eq!(network.switch.statistics().unsummed.iter().sum::<u64>(), 6);
    // Of a ring's connection a fragment would be taken for a part of the result.
    let job = job(&[0, 1], |_| 7_000, 4_500);
    job.iter().for_each(|flow| network.open(*flow));
    speak(&mut network, &job, 0, 9, 10);
    let mut fragment = frame(job[0], &[1; 64], 1, |tcp| tcp.sequence_number = BASE.wrapping_add(200));
    fragment[20] |= 0x20;
    let sum = etherparse::checksum::Sum16BitWords::new().add_slice(&fragment[14..24]).add_slice(&fragment[26..34]).ones_complement();
    fragment[24..26].copy_from_slice(&sum.to_ne_bytes());
    let left = network.send(0, fragment);
    assert_eq!(reasons(&left), ["ring 9: segments of rank 0 at 10.0.0.1:4500 come in fragments, which cannot be summed"]);
}

#[test]
fn a_flood_of_openings_does_not_keep_workers_out() {
    let mut network = Network::new(2, 4_096);
    let syn = |tcp: &mut TcpHeader| (tcp.syn, tcp.ack, tcp.sequence_number) = (true, false, 5);
    for number in 0..STREAMS_MAX as u32 + 5_000 {
        let flow =
            Flow { from: SocketAddr::new([11, 0, (number >> 8) as u8, number as u8].into(), (number >> 16) as u16 + 1), to: at(1, 7_000) };
        let mut segment = Segment::parse(&frame(Flow { from: at(0, 1), ..flow }, &[], 1, syn)).unwrap();
        segment.flow = flow;
        network.now += 1;
        let now = network.instant();
        network.switch.on_syn(now, 0, &segment, &[0; 128]);
    }
    assert!(network.switch.streams.len() <= STREAMS_MAX);
    let left: Vec<_> = (0..2).flat_map(|rank| network.data(flow(rank, 2), 0, &stream(5, rank, 2, &[10]), false)).collect();
    assert_eq!(results(&left, &[flow(0, 2), flow(1, 2)]), vec![result(5, 2, &[10]); 2]);
    // What is held of connections of which nobody knows what they are has an end.
    let mut network = Network::with_flows(2, 4_096, (0..100).map(|number| Flow { from: at(0, 1_000 + number), to: at(1, 7_000) }));
    for number in 0..100 {
        for part in 1..40 {
            network.data(Flow { from: at(0, 1_000 + number), to: at(1, 7_000) }, part * 60_000, &vec![1; 60_000], false);
        }
    }
    assert!(network.switch.held_bytes() <= UNDECIDED_BYTES_MAX as u64);
    assert!(network.switch.statistics().unsummed[Unsummed::NoRoom as usize] > 0);
}

/// Two switches, joined by their last ports; hosts are behind the one that is named for them.
struct Joined {
    switches: [Network; 2],
    behind: Vec<usize>,
}

impl Joined {
    fn new(behind: &[usize], job: &[Flow]) -> Self {
        // Hosts have other addresses than the switches' words come from.
        let mut switches = [0xf1_0000_0001, 0xf1_0000_0002].map(|identity| {
            let config = SwitchConfig { ports: behind.len() + 1, stream_bytes: 4_096, identity, ..SwitchConfig::default() };
            let mut switch = Switch::new(config);
            let names = (0..behind.len()).map(|host| format!("p{host}")).chain(["trunk".to_owned()]).collect::<Vec<_>>();
            switch.name_ports(names.iter().map(String::as_str));
            Network { switch, now: 0 }
        });
        switches.iter_mut().for_each(|network| network.now = 1);
        let mut joined = Joined { switches, behind: behind.to_vec() };
        for &flow in job {
            let syn = |tcp: &mut TcpHeader| (tcp.syn, tcp.ack, tcp.sequence_number) = (true, false, BASE.wrapping_sub(1));
            joined.send(host(&flow.from), frame(flow, &[], 1, syn));
            let answer = |tcp: &mut TcpHeader| (tcp.syn, tcp.acknowledgment_number, tcp.sequence_number) = (true, BASE, 99);
            joined.send(host(&flow.to), frame(flow.reverse(), &[], 1, answer));
        }
        joined
    }

    /// A frame of a host, through one switch or both; gives what reaches hosts.
    fn send(&mut self, from: usize, frame: Vec<u8>) -> Vec<(usize, Vec<u8>)> {
        let at = self.behind[from];
        let left = self.switches[at].send(from, frame);
        self.carry(at, left)
    }

    fn carry(&mut self, at: usize, left: Vec<(usize, Vec<u8>)>) -> Vec<(usize, Vec<u8>)> {
        let trunk = self.behind.len();
        let (over, mut reached): (Vec<_>, Vec<_>) = left.into_iter().partition(|(port, _)| *port == trunk);
        reached.retain(|(port, _)| self.behind[*port] == at);
        for (_, frame) in over {
            let left = self.switches[1 - at].send(trunk, frame);
            reached.extend(self.carry(1 - at, left));
        }
        reached
    }

    fn pass(&mut self, milliseconds: u64) -> Vec<(usize, Vec<u8>)> {
        (0..2)
            .flat_map(|at| {
                let left = self.switches[at].pass(milliseconds);
                self.carry(at, left)
            })
            .collect()
    }
}

#[test]
fn of_two_switches_in_a_row_one_sums_or_both_say_why_none_can() {
    // Where hosts are, and whether one switch sees all connections of a ring in their order.
    for (behind, possible) in [
        (&[0, 0, 1][..], true),
        (&[0, 1], true),
        (&[0, 1, 0, 1], true),
        (&[1, 0, 1], true),
        (&[0, 0, 1, 1], false),
        (&[0, 0, 0, 1, 1], false),
    ] {
        let world = behind.len();
        let hosts: Vec<usize> = (0..world).collect();
        let job = job(&hosts, |_| 7_000, 4_000);
        let mut joined = Joined::new(behind, &job);
        let mut left = Vec::new();
        for rank in 0..world {
            let set = |tcp: &mut TcpHeader| (tcp.sequence_number, tcp.acknowledgment_number) = (BASE, 100);
            left.extend(joined.send(hosts[rank], frame(job[rank], &stream(77, rank, world, &[10]), 1, set)));
        }
        (0..4).for_each(|_| left.extend(joined.pass(1_000)));
        if possible {
            let (got, expected) = (results(&left, &job), vec![result(77, world, &[10]); world]);
            assert!(got == expected, "{behind:?}: {} results, {:?}", got.len(), reasons(&left));
        } else {
            assert!(results(&left, &job).is_empty());
            let why = reasons(&left);
            assert!(
                why.len() >= world && why.iter().all(|why| why.contains("passes only another transparent switch, behind trunk")),
                "{why:?}"
            );
        }
    }
    // Another job of the same number at the other switch is none of this one's business.
    let (a, b) = (job(&[0, 1], |_| 7_000, 4_000), job(&[2, 3], |_| 7_000, 4_000));
    let mut joined = Joined::new(&[0, 0, 1, 1], &[a.clone(), b.clone()].concat());
    let set = |tcp: &mut TcpHeader| (tcp.sequence_number, tcp.acknowledgment_number) = (BASE, 100);
    joined.send(0, frame(a[0], &stream(77, 0, 2, &[10]), 1, set));
    joined.send(2, frame(b[0], &stream(77, 0, 2, &[10]), 1, set));
    (0..4).for_each(|_| assert!(reasons(&joined.pass(1_000)).is_empty()));
    let left = joined.send(1, frame(a[1], &stream(77, 1, 2, &[10]), 1, set));
    assert_eq!(results(&left, &a), vec![result(77, 2, &[10]); 2]);
}

#[test]
fn words_from_anybody_never_panic() {
    let mut network = Network::new(3, 4_096);
    network.data(flow(0, 3), 0, &stream(5, 0, 3, &[10]), false);
    let word = network.pass(1_500).into_iter().find(|(_, frame)| neighbours::is_word(frame)).unwrap().1;
    network.switch.config.identity = 7;
    for seed in 0..5_000u64 {
        let mut bytes = word.clone();
        for change in 0..1 + mix(seed, 0) % 4 {
            let draw = mix(seed, 1 + change);
            let at = 18 + draw as usize % (bytes.len() - 18);
            bytes[at] = (draw >> 32) as u8;
        }
        bytes.truncate(18 + mix(seed, 99) as usize % bytes.len());
        network.send(1, bytes);
    }
}

#[test]
fn a_reason_stands_where_the_sender_expects_the_next_byte() {
    let stream = Stream::new(Instant::ZERO, 5, None);
    let (to_receiver, to_sender) = stream.places();
    assert!(matches!(to_receiver, Place { sequence: 5, acknowledged: 0, times: None }));
    assert!(matches!(to_sender, Place { sequence: 0, acknowledged: 5, .. }));
}

/// A ring ends, and the resets stand nowhere: a receiver had more than its acknowledgements had said, or they were lost.
#[test]
fn who_was_not_reset_in_place_is_reset_once_it_says_where_it_stands_or_is_asked() {
    let job = job(&[0, 1, 2], |_| 7_000, 4_000);
    let length = stream(77, 0, 3, &[10]).len();
    let rst = |frames: &[(usize, Vec<u8>)], to: Flow| -> Vec<u32> {
        let resets = frames.iter().filter_map(|(_, frame)| match look(frame) {
            Look::Segment(segment) if segment.flags.rst && segment.flow == to => Some(segment.sequence),
            _ => None,
        });
        resets.collect()
    };
    let fails = || {
        let mut network = Network::with_flows(3, 4_096, job.iter().copied());
        (0..3).for_each(|rank| drop(speak(&mut network, &job, rank, 77, 10)));
        let left = network.data(job[2], length, &[], true);
        let left =
            if rst(&left, job[0]).is_empty() { network.send(2, frame(job[1].reverse(), &[], 1, |tcp| tcp.rst = true)) } else { left };
        // Rank 1 has received the result, and had not said so.
        assert_eq!(rst(&left, job[0]), [BASE]);
        network
    };
    let stands = BASE.wrapping_add(length as u32);
    // The acknowledgement comes late.
    let mut network = fails();
    let left = network.acknowledge(job[0], length as u64);
    assert_eq!(rst(&left, job[0]), [stands]);
    assert!(network.acknowledge(job[0], length as u64).iter().all(|(_, frame)| frame.len() < 200), "no word against the stream");
    // A reset of the sender's own kernel passes.
    let own = frame(job[0], &[], 1, |tcp| (tcp.rst, tcp.sequence_number) = (true, stands));
    assert_eq!(rst(&network.send(0, own), job[0]), [stands]);
    // It was lost: the resets come again for some seconds, with a question that is answered by anybody who is still there.
    let mut network = fails();
    let mut told = 0;
    for _ in 0..40 {
        let left = network.pass(250);
        if left.is_empty() {
            continue;
        }
        let at = if told == 0 { BASE } else { stands };
        told += 1;
        assert_eq!(rst(&left, job[0]), [at]);
        let asks = left.iter().any(|(port, frame)| {
            *port == 1 && matches!(look(frame), Look::Segment(segment) if segment.flow == job[0] && segment.sequence == at.wrapping_sub(1))
        });
        assert!(asks);
        let answered = network.acknowledge(job[0], length as u64);
        assert_eq!(rst(&answered, job[0]), [stands]);
    }
    assert_eq!(told, 4);
}

/// The first segment of a short stream is lost, and what comes is its end.
#[test]
fn a_stream_of_which_the_end_comes_first_is_summed() {
    let mut network = Network::new(2, 4_096);
    let streams: Vec<Vec<u8>> = (0..2).map(|rank| stream(5, rank, 2, &[10])).collect();
    for (rank, stream) in streams.iter().enumerate() {
        assert!(network.data(flow(rank, 2), 40, &stream[40..], true).is_empty());
    }
    assert!(network.data(flow(0, 2), 0, &streams[0][..40], false).is_empty());
    let left = network.data(flow(1, 2), 0, &streams[1][..40], false);
    let expected = result(5, 2, &[10]);
    let parts = results(&left, &[flow(0, 2), flow(1, 2)]);
    assert!(parts.len() == 4 && parts.iter().all(|part| *part == expected[..40] || *part == expected[40..]), "{parts:?}");
    // One that is too short for a message is none, whatever it begins with.
    let short = Flow { from: at(0, 4_444), to: at(1, 7_777) };
    network.open(short);
    assert_eq!(network.data(short, 0, &stream(5, 0, 2, &[10])[..20], true).len(), 1);
}
