//! The examples of Canary's paper (Figures 1, 3, 4 and 5) and the pitfalls of its specification, packet by packet.

use crate::canary_bench::*;
use crate::common::{ELEMENT_BYTES, JOB};
use fanin_core::{
    Address, Census, DropReason, Duration, Event, FailureReason, Instant, Node, NodeId, OperationId, Outcome, PortId, Rank, Suspect, Worker,
};
use fanin_protocols::canary::CanaryWorker;
use fanin_wire::canary::{CanaryHeader, CanaryMarks, PartialSum};

#[test]
fn figure_1_a_switch_with_one_child_waits_as_it_cannot_know() {
    // H0, H1 and H3 to H6 take part, H6 leads. A static S5 knows that H2 does not; Canary's does not, and waits (P20).
    let (mut s4, mut s5, mut s2) = (switch(14, 8), switch(15, 8), switch(12, 8));
    let (h0, h1, h3) = (sum_of(&[0], 0), sum_of(&[1], 0), sum_of(&[3], 0));
    assert_eq!(s4.gets(0, reduce(0, 6, 1, 6), h0), []);
    assert_eq!(s4.gets(1, reduce(0, 6, 1, 6), h1), []);
    assert_eq!(s5.gets(1, reduce(0, 6, 1, 6), h3), []);
    assert_eq!(s5.waits(Duration::from_ns(999)), []);
    assert_eq!(s5.waits(Duration::from_ns(1)), [(to_leader(6), reduce(0, 6, 1, 6), h3)]);
    assert_eq!(s4.waits(TIMEOUT), [(to_leader(6), reduce(0, 6, 2, 6), h0.plus(h1))]);
    s2.gets(0, reduce(0, 6, 2, 6), h0.plus(h1));
    s2.gets(1, reduce(0, 6, 1, 6), h3);
    assert_eq!(s2.waits(TIMEOUT), [(to_leader(6), reduce(0, 6, 3, 6), sum_of(&[0, 1, 3], 0))]);
}

#[test]
fn figure_3_counters_add_up_to_the_number_of_hosts() {
    // As in 3.1.4: S4 is the root and H2 leads. S3 has H0 and H1, S4 has H2 and H3; S1 joins S3 and S4.
    let (mut s1, mut s3, mut s4) = (switch(11, 8), switch(13, 8), switch(14, 8));
    let mut h2 = worker(2, 4);
    let block = 2;
    assert_eq!(h2.submits(0, 3).len(), 2, "the leader sends nothing of its own block");
    s3.gets(0, reduce(block, 2, 1, 4), sum_of(&[0], block));
    s3.gets(1, reduce(block, 2, 1, 4), sum_of(&[1], block));
    let up = s3.waits(TIMEOUT);
    assert_eq!(up, [(to_leader(2), reduce(block, 2, 2, 4), sum_of(&[0, 1], block))]);
    s4.gets(1, reduce(block, 2, 1, 4), sum_of(&[3], block));
    assert_eq!(s1.gets(0, up[0].1, up[0].2), []);
    let up = s1.waits(TIMEOUT);
    assert_eq!(up, [(to_leader(2), reduce(block, 2, 2, 4), sum_of(&[0, 1], block))]);

    // All but the leader have contributed: the root does not wait for its timeout (P6: 3 of 4, as the leader sends none).
    let up = s4.gets(2, up[0].1, up[0].2);
    assert_eq!(up, [(to_leader(2), reduce(block, 2, 3, 4), sum_of(&[0, 1, 3], block))]);
    let whole = sum_of(&[0, 1, 2, 3], block);
    let down = h2.gets(0, up[0].1, up[0].2);
    assert_eq!(down, [(To::Port(0), broadcast(block), whole)]);
    assert_eq!(h2.seen.delivered.iter().map(|(piece, sum)| (piece.index, *sum)).collect::<Vec<_>>(), [(block, whole)]);

    // Down along the recorded children (P21), never by routing tables.
    assert_eq!(s4.gets(0, broadcast(block), whole), [(To::Ports(vec![1, 2]), broadcast(block), whole)]);
    assert_eq!(s1.gets(1, broadcast(block), whole), [(To::Ports(vec![0]), broadcast(block), whole)]);
    assert_eq!(s3.gets(2, broadcast(block), whole), [(To::Ports(vec![0, 1]), broadcast(block), whole)]);
    for switch in [&s1, &s3, &s4] {
        assert_eq!((switch.node.descriptors_in_use(), switch.node.next_timeout()), (0, None));
    }
}

#[test]
fn figure_3_a_straggler_goes_on_at_once_and_is_remembered() {
    let mut s3 = switch(13, 8);
    s3.gets(0, reduce(0, 2, 1, 4), sum_of(&[0], 0));
    assert_eq!(s3.waits(TIMEOUT), [(to_leader(2), reduce(0, 2, 1, 4), sum_of(&[0], 0))]);
    // 5.2, 4: unchanged, with bypass 0, and not added to other stragglers.
    for (port, rank) in [(1, 1), (5, 3)] {
        let passed = s3.gets(port, reduce(0, 2, 1, 4), sum_of(&[rank], 0));
        assert_eq!(passed, [(to_leader(2), reduce(0, 2, 1, 4), sum_of(&[rank], 0))]);
    }
    assert_eq!(s3.waits(Duration::from_us(50)), []);
    let whole = sum_of(&[0, 1, 2, 3], 0);
    assert_eq!(s3.gets(9, broadcast(0), whole), [(To::Ports(vec![0, 1, 5]), broadcast(0), whole)]);
}

#[test]
fn figure_4_packets_of_one_block_have_one_name_and_every_host_leads_in_turn() {
    let hosts = 3;
    let sent: Vec<_> = (0..hosts).map(|rank| worker(rank, hosts).submits(0, 7)).collect();
    for (rank, packets) in sent.iter().enumerate() {
        let rank = rank as u32;
        let blocks = (0..7).filter(|block| block % hosts != rank);
        let expected: Vec<_> =
            blocks.map(|block| (to_leader(block % hosts), reduce(block, block % hosts, 1, 3), sum_of(&[rank], block))).collect();
        assert_eq!(packets, &expected);
    }
}

#[test]
fn figure_5_a_collision_is_told_to_the_leader_and_the_subtree_restored() {
    // H0 (leader), H2 and H5 reduce. S1 has H2 at port 2; S2 has H5 at port 5 and holds another block where this one belongs.
    let (mut s1, mut s2) = (switch(11, 4), switch(12, 4));
    let mut h0 = worker(0, 3);
    h0.submits(0, 1);
    s2.gets(7, reduce(4, 1, 1, 9), sum_of(&[7], 4));
    s1.gets(2, reduce(0, 0, 1, 3), sum_of(&[1], 0));
    let collided = CanaryHeader::Collided {
        sum: PartialSum { id: id(0), leader: NodeId(0), counter: 1, hosts: 3, marks: CanaryMarks::NONE },
        switch: 12,
        port: PortId(5),
    };
    let up = s2.gets(5, reduce(0, 0, 1, 3), sum_of(&[2], 0));
    assert_eq!(up, [(To::Direct(Address::worker(NodeId(0))), collided, sum_of(&[2], 0))]);
    assert_eq!(s2.node.descriptors_in_use(), 1);
    assert_eq!(h0.gets(0, up[0].1, up[0].2), []);
    let up = s1.waits(TIMEOUT);

    // The broadcast first, then one restoration to S2.
    let whole = sum_of(&[0, 1, 2], 0);
    let restore = CanaryHeader::Restore { id: id(0), switch: NodeId(12), shard: 0, ports: 1 << 5, marks: CanaryMarks::NONE };
    let down = h0.gets(0, up[0].1, up[0].2);
    assert_eq!(down, [(To::Port(0), broadcast(0), whole), (To::Direct(Address::switch(NodeId(12))), restore, whole)]);
    assert_eq!(s1.gets(0, broadcast(0), whole), [(To::Ports(vec![2]), broadcast(0), whole)]);
    // The broadcast ends at S2, which knows nothing of the block; the restoration reaches H5, in whichever order they come (P10).
    assert_eq!(s2.gets(0, broadcast(0), whole), []);
    assert_eq!(s2.dropped(), [DropReason::NoSlot]);
    assert_eq!(s2.gets(0, restore, whole), [(To::Ports(vec![5]), broadcast(0), whole)]);
    let mut h5 = worker(2, 3);
    h5.submits(0, 1);
    h5.gets(0, broadcast(0), whole);
    assert_eq!(h5.node.poll(), Some(Outcome { operation: OperationId(0), result: Ok(()) }));
    assert_eq!(s2.node.descriptors_in_use(), 1, "the other block is untouched");
}

#[test]
fn p6_the_own_contribution_is_added_once_and_last() {
    let mut leader = worker(0, 4);
    leader.submits(0, 1);
    assert_eq!(leader.gets(0, reduce(0, 0, 1, 4), sum_of(&[1], 0)), []);
    assert_eq!(leader.seen.delivered, []);
    let down = leader.gets(0, reduce(0, 0, 2, 4), sum_of(&[2, 3], 0));
    assert_eq!(down, [(To::Port(0), broadcast(0), sum_of(&[0, 1, 2, 3], 0))]);
    // What comes now has been counted; a packet that holds more than is missing has too.
    leader.gets(0, reduce(0, 0, 1, 4), sum_of(&[1], 0));
    leader.gets(0, reduce(4, 0, 4, 4), sum_of(&[1], 4));
    assert_eq!(leader.dropped(), [DropReason::Stale, DropReason::Duplicate]);
}

#[test]
fn p6_contributions_that_come_before_the_leader_begins_wait_for_it() {
    let mut leader = worker(1, 3);
    for block in [1, 4] {
        assert_eq!(leader.gets(0, reduce(block, 1, 2, 3), sum_of(&[0, 2], block)), []);
    }
    let sent = leader.submits(0, 5);
    let expected = [
        (To::Port(0), broadcast(1), sum_of(&[0, 1, 2], 1)),
        (To::Port(0), broadcast(4), sum_of(&[0, 1, 2], 4)),
        (to_leader(0), reduce(0, 0, 1, 3), sum_of(&[1], 0)),
        (to_leader(2), reduce(2, 2, 1, 3), sum_of(&[1], 2)),
        (to_leader(0), reduce(3, 0, 1, 3), sum_of(&[1], 3)),
    ];
    assert_eq!(sent, expected, "sums leave before contributions");
}

#[test]
fn p7_one_host_needs_no_network_and_of_two_one_sends() {
    let mut alone = worker(0, 1);
    assert_eq!(alone.submits(0, 3), []);
    assert_eq!(alone.seen.delivered.len(), 3);
    assert!(alone.node.poll().is_some_and(|outcome| outcome.result.is_ok()));

    let (mut h0, mut h1, mut leaf) = (worker(0, 2), worker(1, 2), switch(5, 8));
    assert_eq!(h0.submits(0, 1), []);
    let up = h1.submits(0, 1);
    let up = leaf.gets(1, up[0].1, up[0].2);
    assert_eq!(up, [(to_leader(0), reduce(0, 0, 1, 2), sum_of(&[1], 0))], "there is nothing to wait for");
    let down = h0.gets(0, up[0].1, up[0].2);
    let down = leaf.gets(0, down[0].1, down[0].2);
    assert_eq!(down, [(To::Ports(vec![1]), broadcast(0), sum_of(&[0, 1], 0))]);
    h1.gets(0, down[0].1, down[0].2);
    for host in [&mut h0, &mut h1] {
        assert!(host.node.poll().is_some_and(|outcome| outcome.result.is_ok()));
    }
}

#[test]
fn p8_ports_that_collided_at_one_switch_are_restored_together_a_shard_at_a_time() {
    let mut leader = worker(0, 7);
    leader.submits(0, 1);
    let collided = |switch, port, counter| CanaryHeader::Collided {
        sum: PartialSum { id: id(0), leader: NodeId(0), counter, hosts: 7, marks: CanaryMarks::NONE },
        switch,
        port: PortId(port),
    };
    // P9: a partial sum may collide as well; its port alone is told, for the descriptors below it are whole.
    for (rank, port) in [(1, 3), (2, 15), (3, 16), (4, 3)] {
        assert_eq!(leader.gets(0, collided(20, port, 1), sum_of(&[rank], 0)), []);
    }
    let whole = sum_of(&[0, 1, 2, 3, 4, 5, 6], 0);
    let down = leader.gets(0, collided(21, 3, 2), sum_of(&[5, 6], 0));
    let restore = |switch, shard, ports| {
        let header = CanaryHeader::Restore { id: id(0), switch: NodeId(switch), shard, ports, marks: CanaryMarks::NONE };
        (To::Direct(Address::switch(NodeId(switch))), header, whole)
    };
    let expected = [(To::Port(0), broadcast(0), whole), restore(20, 0, 1 << 3 | 1 << 15), restore(20, 1, 1), restore(21, 0, 1 << 3)];
    assert_eq!(down, expected);

    let mut s20 = switch(20, 1);
    assert_eq!(s20.gets(40, expected[1].1, whole), [(To::Ports(vec![3, 15]), broadcast(0), whole)]);
    assert_eq!(s20.gets(40, expected[2].1, whole), [(To::Ports(vec![16]), broadcast(0), whole)]);
    s20.gets(40, expected[3].1, whole);
    assert_eq!(s20.dropped(), [DropReason::NotAMember]);
}

#[test]
fn p8_a_port_that_collided_and_was_recorded_gets_two_sums_and_takes_one() {
    // The place becomes free between two packets of the same child.
    let (mut s2, whole) = (switch(12, 1), sum_of(&[0, 1, 2], 1));
    s2.gets(7, reduce(0, 3, 1, 9), sum_of(&[7], 0));
    assert!(matches!(s2.gets(5, reduce(1, 1, 1, 3), sum_of(&[0], 1))[0].1, CanaryHeader::Collided { .. }));
    s2.waits(TIMEOUT);
    s2.gets(0, broadcast(0), sum_of(&[7], 0));
    assert_eq!(s2.gets(5, reduce(1, 1, 1, 3), sum_of(&[2], 1)), []);
    s2.waits(TIMEOUT);
    // P10: the restoration comes first. It does not free the descriptor.
    let restore = CanaryHeader::Restore { id: id(1), switch: NodeId(12), shard: 0, ports: 1 << 5, marks: CanaryMarks::NONE };
    assert_eq!(s2.gets(0, restore, whole), [(To::Ports(vec![5]), broadcast(1), whole)]);
    assert_eq!(s2.node.descriptors_in_use(), 1);
    assert_eq!(s2.gets(0, broadcast(1), whole), [(To::Ports(vec![5]), broadcast(1), whole)]);
    assert_eq!(s2.node.descriptors_in_use(), 0);

    let mut host = worker(0, 3);
    host.submits(0, 3);
    host.gets(0, broadcast(1), whole);
    host.gets(0, broadcast(1), whole);
    assert_eq!(host.dropped(), [DropReason::Duplicate]);
    assert_eq!(host.seen.delivered.len(), 1);
}

#[test]
fn p9_a_partial_sum_that_collides_above_leaves_its_subtree_whole() {
    let (mut lower, mut upper) = (switch(10, 8), switch(20, 1));
    upper.gets(9, reduce(7, 3, 1, 9), sum_of(&[5], 7));
    lower.gets(0, reduce(0, 4, 1, 9), sum_of(&[0], 0));
    lower.gets(1, reduce(0, 4, 1, 9), sum_of(&[1], 0));
    let up = lower.waits(TIMEOUT);
    let up = upper.gets(2, up[0].1, up[0].2);
    let CanaryHeader::Collided { sum, switch, port } = up[0].1 else { panic!("{up:?}") };
    assert_eq!((sum.counter, switch, port, up[0].2), (2, 20, PortId(2), sum_of(&[0, 1], 0)));
    let whole = sum_of(&[0, 1, 2, 3, 4, 5, 6, 7, 8], 0);
    let restore = CanaryHeader::Restore { id: id(0), switch: NodeId(20), shard: 0, ports: 1 << 2, marks: CanaryMarks::NONE };
    let down = upper.gets(9, restore, whole);
    assert_eq!(down, [(To::Ports(vec![2]), broadcast(0), whole)]);
    assert_eq!(lower.gets(5, down[0].1, down[0].2), [(To::Ports(vec![0, 1]), broadcast(0), whole)]);
}

#[test]
fn a_leaf_with_two_parents_drops_the_second_sum() {
    // Its aggregate went by one spine, its straggler by another: both have it as a child.
    let mut leaf = switch(10, 8);
    leaf.gets(0, reduce(0, 4, 1, 5), sum_of(&[0], 0));
    leaf.waits(TIMEOUT);
    leaf.gets(1, reduce(0, 4, 1, 5), sum_of(&[1], 0));
    let whole = sum_of(&[0, 1, 2, 3, 4], 0);
    assert_eq!(leaf.gets(32, broadcast(0), whole), [(To::Ports(vec![0, 1]), broadcast(0), whole)]);
    assert_eq!(leaf.gets(33, broadcast(0), whole), []);
    assert_eq!(leaf.dropped(), [DropReason::NoSlot]);
}

#[test]
fn p18_a_timer_of_a_descriptor_that_is_gone_does_nothing() {
    // The first block is complete and answered at once; its timer is still set when the place is another block's.
    let mut leaf = switch(10, 1);
    leaf.gets(0, reduce(0, 2, 1, 3), sum_of(&[0], 0));
    let waits_until = leaf.node.next_timeout();
    assert_eq!(waits_until, Some(Instant::ZERO + TIMEOUT));
    assert_eq!(leaf.gets(1, reduce(0, 2, 1, 3), sum_of(&[1], 0)).len(), 1);
    assert_eq!(leaf.node.next_timeout(), None, "the node is not woken for it");
    leaf.gets(2, broadcast(0), sum_of(&[0, 1, 2], 0));
    leaf.waits(Duration::from_ns(400));
    leaf.gets(0, reduce(1, 2, 1, 3), sum_of(&[0], 1));
    assert_eq!(leaf.waits(Duration::from_ns(600)), [], "the first block's time is over, the second one's is not");
    assert_eq!(leaf.waits(Duration::from_ns(400)), [(to_leader(2), reduce(1, 2, 1, 3), sum_of(&[0], 1))]);
    assert_eq!(leaf.node.next_timeout(), None);
}

#[test]
fn what_finds_no_room_waits_in_its_descriptor() {
    let mut leaf = switch(10, 4);
    leaf.gets(0, reduce(0, 4, 1, 5), sum_of(&[0], 0));
    leaf.seen.is_full = true;
    assert_eq!(leaf.waits(TIMEOUT), []);
    // Meanwhile it is no straggler: what comes is added.
    assert_eq!(leaf.gets(1, reduce(0, 4, 1, 5), sum_of(&[1], 0)), []);
    assert_eq!(leaf.may_send(), [(to_leader(4), reduce(0, 4, 2, 5), sum_of(&[0, 1], 0))]);
    leaf.seen.is_full = true;
    let whole = sum_of(&[0, 1, 2, 3, 4], 0);
    assert_eq!(leaf.gets(9, broadcast(0), whole), []);
    assert_eq!(leaf.node.descriptors_in_use(), 1);
    assert_eq!(leaf.may_send(), [(To::Ports(vec![0, 1]), broadcast(0), whole)]);
    assert_eq!((leaf.may_send(), leaf.node.descriptors_in_use()), (vec![], 0));
    assert_eq!(leaf.dropped(), []);
}

#[test]
fn sums_wait_for_room_before_contributions_do() {
    let mut leader = worker_with(0, 3, 1);
    assert_eq!(leader.submits(0, 9).len(), 1);
    leader.seen.is_full = true;
    let collided = CanaryHeader::Collided {
        sum: PartialSum { id: id(3), leader: NodeId(0), counter: 1, hosts: 3, marks: CanaryMarks::NONE },
        switch: 9,
        port: PortId(4),
    };
    leader.gets(0, collided, sum_of(&[1], 3));
    assert_eq!(leader.gets(0, reduce(3, 0, 1, 3), sum_of(&[2], 3)), []);
    assert_eq!(leader.gets(0, broadcast(1), sum_of(&[0, 1, 2], 1)), []);
    let sent = leader.may_send();
    let whole = sum_of(&[0, 1, 2], 3);
    assert_eq!(sent[0], (To::Port(0), broadcast(3), whole));
    assert!(matches!(sent[1], (To::Direct(_), CanaryHeader::Restore { ports: 16, .. }, sum) if sum == whole));
    assert_eq!(sent[2..], [(to_leader(2), reduce(2, 2, 1, 3), sum_of(&[0], 2))]);
}

#[test]
fn sums_that_are_not_sent_yet_outlive_the_operation() {
    let mut leader = worker(0, 2);
    leader.submits(0, 1);
    leader.seen.is_full = true;
    assert_eq!(leader.gets(0, reduce(0, 0, 1, 2), sum_of(&[1], 0)), []);
    assert!(leader.node.poll().is_some_and(|outcome| outcome.result.is_ok()));
    assert_eq!(leader.submits(1, 0), []);
    assert_eq!(leader.may_send(), [(To::Port(0), broadcast(0), sum_of(&[0, 1], 0))]);
}

#[test]
fn a_window_counts_blocks_under_way() {
    let mut worker = worker_with(0, 4, 2);
    let blocks = |sent: Vec<(To, CanaryHeader, Census)>| sent.iter().map(|(_, header, _)| header.id().block()).collect::<Vec<_>>();
    // Block 0 is its own, so 1 and 2 fill the window.
    assert_eq!(blocks(worker.submits(0, 9)), [1, 2]);
    assert_eq!(blocks(worker.gets(0, broadcast(2), sum_of(&[0, 1, 2, 3], 2))), [3]);
    assert_eq!(blocks(worker.gets(0, broadcast(1), sum_of(&[0, 1, 2, 3], 1))), [5]);
    worker.gets(0, broadcast(6), sum_of(&[0, 1, 2, 3], 6));
    worker.gets(0, broadcast(0), sum_of(&[0, 1, 2, 3], 0));
    assert_eq!(worker.dropped(), [DropReason::OutsideWindow, DropReason::NotAMember]);
}

#[test]
fn numbers_go_on_from_operation_to_operation() {
    let mut worker = worker(1, 2);
    let names = |sent: &[(To, CanaryHeader, Census)]| sent.iter().map(|(_, header, _)| header.id().block()).collect::<Vec<_>>();
    let sent = worker.submits(0, 1);
    assert_eq!(names(&sent), [0]);
    worker.gets(0, broadcast(0), sum_of(&[0, 1], 0));
    let sent = worker.submits(1, 3);
    assert_eq!(names(&sent), [2], "blocks 1 and 3 are its own");
    // A late second copy of the former operation's sum.
    worker.gets(0, broadcast(0), sum_of(&[0, 1], 0));
    assert_eq!(worker.dropped(), [DropReason::Stale]);
}

#[test]
fn vectors_of_different_lengths_are_an_error_at_the_leader() {
    let mut leader = worker(0, 3);
    leader.submits(0, 1);
    leader.gets(0, reduce(0, 0, 1, 3), sum_of(&[1], 0));
    leader.gets(0, reduce(0, 0, 1, 3), Census::new(BLOCK_BYTES - ELEMENT_BYTES, 5));
    assert_eq!(leader.dropped(), [DropReason::Mismatch]);
    let failure = leader.node.poll().unwrap().result.unwrap_err();
    assert_eq!((failure.reason, failure.block), (FailureReason::Mismatch, Some(0)));

    let mut leaf = switch(10, 4);
    leaf.gets(0, reduce(0, 0, 1, 3), sum_of(&[1], 0));
    leaf.gets(0, reduce(0, 0, 1, 3), Census::new(BLOCK_BYTES - ELEMENT_BYTES, 5));
    leaf.gets(0, reduce(1, 0, 1, 3), Census::new(BLOCK_BYTES + ELEMENT_BYTES, 5));
    assert_eq!(leaf.dropped(), [DropReason::Mismatch, DropReason::Mismatch]);
}

/// The end of the operation that runs: why, at which block, and who is missing.
fn failure_of(bench: &mut Bench<CanaryWorker<Census>>) -> Option<(FailureReason, Option<u32>, Suspect)> {
    let failure = bench.node.poll()?.result.err()?;
    assert_eq!((failure.job, failure.operation), (JOB, OperationId(0)));
    Some((failure.reason, failure.block, failure.suspect))
}

#[test]
fn a_worker_that_gets_no_sum_gives_up() {
    let mut bench = worker(1, 4);
    bench.submits(0, 8);
    bench.waits(Duration::from_ms(4));
    // A sum begins the time anew.
    bench.gets(0, broadcast(0), sum_of(&[0, 1, 2, 3], 0));
    bench.waits(PATIENCE - Duration::from_ps(1));
    assert_eq!(failure_of(&mut bench), None);
    bench.waits(Duration::from_ps(1));
    assert_eq!(failure_of(&mut bench), Some((FailureReason::NoProgress, Some(1), Suspect::Unknown)));
    assert!(matches!(bench.seen.notes.as_slice(), [Event::Failed(_)]));
    assert_eq!(bench.node.next_timeout(), None);
}

#[test]
fn who_is_silent_is_named_where_sums_prove_it() {
    let all = [0, 1, 2, 3];
    let outcome = |done: &[u32]| {
        let mut bench = worker(1, 4);
        bench.submits(0, 12);
        for &block in done {
            bench.gets(0, broadcast(block), sum_of(&all, block));
        }
        // Of blocks 1, 5 and 9, which it leads, all others' contributions come.
        for block in [1, 5, 9].into_iter().filter(|_| done.contains(&0)) {
            bench.gets(0, reduce(block, 1, 3, 4), sum_of(&[0, 2, 3], block));
        }
        bench.waits(PATIENCE);
        failure_of(&mut bench).map(|(_, block, suspect)| (block, suspect))
    };
    let silent = |rank| Suspect::Rank(Rank(rank));
    assert_eq!(outcome(&[]), Some((Some(0), Suspect::Unknown)));
    // Rank 2 may not have sent block 0.
    assert_eq!(outcome(&[2]), Some((Some(0), Suspect::Unknown)));
    assert_eq!(outcome(&[2, 6]), Some((Some(0), Suspect::Unknown)));
    // All have: rank 2 for block 3, rank 3 for block 2.
    assert_eq!(outcome(&[2, 3]), Some((Some(0), silent(0))));
    // All have sent block 2: the others for block 5, this worker itself.
    assert_eq!(outcome(&[0]), Some((Some(2), silent(2))));
    // Of two, it is the other.
    let mut bench = worker(0, 2);
    bench.submits(0, 2);
    bench.waits(PATIENCE);
    assert_eq!(failure_of(&mut bench), Some((FailureReason::NoProgress, Some(0), silent(1))));
}

#[test]
fn whoever_has_the_longer_vector_does_not_wait_for_ever() {
    // Two blocks at ranks 0 and 2, three at rank 1: nobody else has a third one.
    let mut longer = worker(1, 3);
    longer.submits(0, 3);
    longer.gets(0, broadcast(0), sum_of(&[0, 1, 2], 0));
    longer.gets(0, reduce(1, 1, 2, 3), sum_of(&[0, 2], 1));
    longer.waits(PATIENCE);
    assert_eq!(failure_of(&mut longer), Some((FailureReason::NoProgress, Some(2), Suspect::Unknown)));
}

#[test]
fn whoever_waits_for_a_leader_that_found_a_mismatch_does_not_wait_for_ever() {
    let mut bench = worker(2, 3);
    bench.submits(0, 1);
    assert_eq!(bench.node.next_timeout(), Some(bench.now + PATIENCE));
    bench.waits(PATIENCE);
    assert_eq!(failure_of(&mut bench), Some((FailureReason::NoProgress, Some(0), Suspect::Unknown)));
}
