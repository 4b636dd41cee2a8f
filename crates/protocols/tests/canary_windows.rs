//! Canary with A2TP's two windows: what switches mark blocks with, how marks come to all hosts of a block, and what windows make of them.

use crate::canary_bench::*;

use fanin_core::{Address, Census, Gauge, Instant, Node, NodeId, PortId, Rank};
use fanin_protocols::canary::{
    CanarySharedSwitch, CanarySwitch, CanarySwitchConfig, CanaryWorker, Duties, Leaders, MarkRule, Placement, Recovery, Timeout,
};
use fanin_protocols::shared::real::Real;
use fanin_protocols::shared::two_windows::{CollisionsOf, Synchrony, TwoWindowConfig};
use fanin_wire::canary::{CanaryHeader, CanaryMarks, PartialSum};

use crate::common::JOB;

const NONE: CanaryMarks = CanaryMarks::NONE;
const COLLISION: CanaryMarks = CanaryMarks::COLLISION;
const CONGESTION: CanaryMarks = CanaryMarks::CONGESTION;

/// What a packet says that its block has met, where its kind says it.
fn marks_of(header: &CanaryHeader) -> CanaryMarks {
    match *header {
        CanaryHeader::Reduce(sum) | CanaryHeader::Collided { sum, .. } => sum.marks,
        CanaryHeader::Broadcast { marks, .. } | CanaryHeader::Restore { marks, .. } | CanaryHeader::Answer { marks, .. } => marks,
        ref other => panic!("{other:?} has no marks"),
    }
}

fn all_marks(sent: &[(To, CanaryHeader, Census)]) -> Vec<CanaryMarks> {
    sent.iter().map(|(_, header, _)| marks_of(header)).collect()
}

/// Four places, given statically, so that blocks 0 and 4 want the same one.
fn marking(rule: MarkRule) -> Bench<CanarySwitch<Census>> {
    let Bench { node, .. } = switch(11, 4);
    Bench::new(node.with_marks(rule), 0)
}

fn marked(header: CanaryHeader, marks: CanaryMarks) -> CanaryHeader {
    match header {
        CanaryHeader::Reduce(sum) => CanaryHeader::Reduce(PartialSum { marks, ..sum }),
        CanaryHeader::Broadcast { id, .. } => CanaryHeader::Broadcast { id, marks },
        other => other,
    }
}

#[test]
fn marks_of_contributions_are_those_of_their_sum_and_go_down_with_it() {
    for rule in [MarkRule::Collisions, MarkRule::Stragglers] {
        let mut switch = marking(rule);
        switch.gets(1, reduce(0, 0, 1, 9), sum_of(&[1], 0));
        switch.gets_congested(2, reduce(0, 0, 1, 9), sum_of(&[2], 0));
        switch.gets(3, marked(reduce(1, 0, 1, 9), COLLISION), sum_of(&[3], 1));
        let up = switch.waits(TIMEOUT);
        assert_eq!(all_marks(&up), [CONGESTION, COLLISION], "each block has its own");
        // What its hosts are told is what the leader knows, what the way down has met, and what the descriptor has.
        let down = switch.gets(7, broadcast(0), sum_of(&[1], 0));
        assert_eq!(all_marks(&down), [CONGESTION]);
        let down = switch.gets_congested(7, marked(broadcast(1), NONE), sum_of(&[3], 1));
        assert_eq!(all_marks(&down), [COLLISION.with(CONGESTION)]);
        // The place is free, and nothing is left of who had it.
        switch.gets(1, reduce(4, 0, 1, 9), sum_of(&[1], 4));
        assert_eq!(all_marks(&switch.waits(TIMEOUT)), [NONE]);
    }
}

#[test]
fn a_collision_is_told_to_both_blocks_and_a_straggler_where_it_is_to_be() {
    for (rule, straggles) in [(MarkRule::Collisions, NONE), (MarkRule::Stragglers, COLLISION)] {
        let mut switch = marking(rule);
        switch.gets(1, reduce(0, 0, 1, 9), sum_of(&[1], 0));
        let collided = switch.gets(2, reduce(4, 0, 1, 9), sum_of(&[2], 4));
        assert!(matches!(collided[..], [(To::Direct(_), CanaryHeader::Collided { .. }, _)]), "{collided:?}");
        assert_eq!(all_marks(&collided), [COLLISION], "the loser");
        assert_eq!(all_marks(&switch.waits(TIMEOUT)), [COLLISION], "and the owner");
        let late = switch.gets(3, reduce(0, 0, 1, 9), sum_of(&[3], 0));
        assert_eq!(all_marks(&late), [straggles]);
        // Who is wanted when its sum has gone on is told on the way down.
        switch.gets(1, reduce(1, 0, 1, 9), sum_of(&[1], 1));
        assert_eq!(all_marks(&switch.waits(TIMEOUT)), [NONE]);
        switch.gets(2, reduce(5, 0, 1, 9), sum_of(&[2], 5));
        assert_eq!(all_marks(&switch.gets(7, broadcast(1), sum_of(&[1], 1))), [COLLISION]);
    }
}

#[test]
fn a_sum_that_waits_for_room_keeps_its_marks() {
    let mut switch = marking(MarkRule::Collisions);
    switch.gets(1, reduce(0, 0, 1, 9), sum_of(&[1], 0));
    switch.waits(TIMEOUT);
    switch.seen.is_full = true;
    assert_eq!(switch.gets_congested(7, broadcast(0), sum_of(&[1], 0)), []);
    assert_eq!(all_marks(&switch.may_send()), [CONGESTION]);
}

#[test]
fn without_windows_that_follow_nothing_is_marked() {
    let mut switch = switch(11, 4);
    switch.gets_congested(1, reduce(0, 0, 1, 9), sum_of(&[1], 0));
    let collided = switch.gets_congested(2, reduce(4, 0, 1, 9), sum_of(&[2], 4));
    assert_eq!(all_marks(&collided), [NONE]);
    assert_eq!(all_marks(&switch.waits(TIMEOUT)), [NONE]);
    assert_eq!(all_marks(&switch.gets_congested(3, reduce(0, 0, 1, 9), sum_of(&[3], 0))), [NONE]);
    assert_eq!(all_marks(&switch.gets_congested(7, broadcast(0), sum_of(&[1], 0))), [NONE]);
    let mut leader = worker(0, 3);
    leader.submits(0, 1);
    let down = leader.gets_congested(0, reduce(0, 0, 2, 3), sum_of(&[1, 2], 0));
    assert_eq!(all_marks(&down), [NONE]);
}

/// A switch of two jobs that share one place: a block of ours has it, and one of the other job has just wanted it. With what the other job's packet says, which
/// went on past the switch.
fn collided(ours: MarkRule, others: MarkRule) -> (Bench<CanarySharedSwitch<Census>>, Vec<CanaryMarks>) {
    let other = fanin_core::JobId(JOB.0 + 1);
    let mut node = CanarySharedSwitch::<Census>::new(1, Placement::Hash);
    for (job, rule) in [(JOB, ours), (other, others)] {
        let config = CanarySwitchConfig {
            job,
            node: NodeId(77),
            ports: 8,
            op: (),
            block_bytes: BLOCK_BYTES,
            timeout: Timeout::Fixed(TIMEOUT),
            descriptors: 1,
            placement: Placement::Hash,
            descriptor_lifetime: fanin_core::Duration::MAX,
        };
        node.admit(config, None, None, rule);
    }
    let mut switch = Bench::new(node, 0);
    switch.gets(1, reduce(0, 0, 1, 9), sum_of(&[1], 0));
    let id = fanin_wire::canary::CanaryId::new(other.0 as u8, 0, 3);
    let header = CanaryHeader::Reduce(PartialSum { id, leader: NodeId(0), counter: 1, hosts: 9, marks: NONE });
    let from = fanin_core::Ingress { port: PortId(2), source: Address::default(), job: other, ecn: false };
    switch.node.on_packet(switch.now, from, &header, &sum_of(&[1], 0), &mut switch.seen);
    let past = all_marks(&std::mem::take(&mut switch.seen.sent));
    (switch, past)
}

/// Places that jobs share are wanted by blocks of others: the owner is told, which lies in another job's memory.
#[test]
fn jobs_that_share_an_array_tell_each_other_of_collisions() {
    let (mut switch, past) = collided(MarkRule::Collisions, MarkRule::Collisions);
    assert_eq!(past, [COLLISION]);
    assert_eq!(all_marks(&switch.waits(TIMEOUT)), [COLLISION]);
    switch.gets(7, broadcast(0), sum_of(&[1], 0));
    switch.gets(1, reduce(1, 0, 1, 9), sum_of(&[1], 1));
    assert_eq!(all_marks(&switch.waits(TIMEOUT)), [NONE], "the next block has met nothing");
}

/// Jobs that share an array tell their own hosts only: one whose windows follow hears of a collision with one whose windows do not, and the latter's packets
/// have no marks.
#[test]
fn a_job_without_marks_marks_nothing_and_makes_others_mark() {
    let (mut switch, past) = collided(MarkRule::Collisions, MarkRule::Nothing);
    assert_eq!((past, all_marks(&switch.waits(TIMEOUT))), (vec![NONE], vec![COLLISION]));
    let (mut switch, past) = collided(MarkRule::Nothing, MarkRule::Collisions);
    assert_eq!((past, all_marks(&switch.waits(TIMEOUT))), (vec![COLLISION], vec![NONE]));
}

const WINDOWS: TwoWindowConfig = TwoWindowConfig {
    window: 1,
    initial: 8,
    threshold: Real::new(0.15),
    collision_weight: Real::new(1.0),
    mark_weight: Real::new(1.0),
    priority: Real::new(1.0),
    quiet_rounds: 0,
    aggregators_min: 2,
    links_min: 2,
    fair: false,
    col_only: false,
    collisions: CollisionsOf::Round,
    synchrony: Synchrony::Spread,
};

/// Rank 1 of two: rank 0 leads all blocks.
fn following(window: u32) -> Bench<CanaryWorker<Census>> {
    let Bench { node, .. } = worker_with(1, 2, window);
    let duties = Duties { leaders: Leaders::Fixed(Rank(0)), ..Duties::default() };
    Bench::new(node.with_duties(duties).with_windows(WINDOWS), 1)
}

fn window(worker: &CanaryWorker<Census>) -> [f64; 2] {
    let mut windows = [0.0; 2];
    worker.gauges(&mut |gauge, value| match gauge {
        Gauge::AggregatorWindow => windows[0] = value,
        Gauge::LinkWindow => windows[1] = value,
        _ => {}
    });
    windows
}

/// Answers so many blocks, `marks` with each sum.
fn run(worker: &mut Bench<CanaryWorker<Census>>, sent: &mut Vec<u32>, blocks: u32, marks: CanaryMarks) {
    for _ in 0..blocks {
        let block = sent.remove(0);
        let more = worker.gets(0, marked(broadcast(block), marks), sum_of(&[0, 1], block));
        sent.extend(more.iter().map(|(_, header, _)| header.id().block()));
    }
}

#[test]
fn the_smaller_window_counts_and_each_follows_its_own_marks() {
    let mut worker = following(64);
    let mut sent: Vec<u32> = worker.submits(0, 4_000).iter().map(|(_, header, _)| header.id().block()).collect();
    assert_eq!(sent, (0..8).collect::<Vec<u32>>(), "the first window");
    run(&mut worker, &mut sent, 9, NONE);
    assert_eq!((window(&worker.node), sent.len()), ([9.0; 2], 9), "one more after a round without marks");
    // Collisions everywhere: (4) halves the aggregator window, and the link window grows.
    run(&mut worker, &mut sent, 9, COLLISION);
    let [aggregators, links] = window(&worker.node);
    assert!(aggregators < links && (4.0..=7.0).contains(&aggregators) && links > 9.0, "{aggregators} {links}");
    // Marks everywhere: (6) halves the link window, and the other one stays within.
    run(&mut worker, &mut sent, 20, CONGESTION);
    assert_eq!(window(&worker.node), [2.0; 2], "never below the least");
    assert_eq!(sent.len(), 2);
    run(&mut worker, &mut sent, 400, NONE);
    assert!(sent.len() > 20, "{}", sent.len());
    run(&mut worker, &mut sent, 1_300, NONE);
    assert!(sent.len() <= 64, "never above the job's window");
}

#[test]
fn a_way_down_that_is_congested_counts_and_a_sum_counts_once() {
    let mut worker = following(64);
    let mut sent: Vec<u32> = worker.submits(0, 400).iter().map(|(_, header, _)| header.id().block()).collect();
    for _ in 0..30 {
        let block = sent.remove(0);
        let more = worker.gets_congested(0, broadcast(block), sum_of(&[0, 1], block));
        sent.extend(more.iter().map(|(_, header, _)| header.id().block()));
        assert_eq!(worker.gets_congested(0, broadcast(block), sum_of(&[0, 1], block)), []);
    }
    assert_eq!(window(&worker.node), [2.0; 2]);
}

#[test]
fn a_leader_tells_all_hosts_what_contributions_have_met() {
    let leader = || {
        let Bench { node, .. } = worker_with(0, 3, 8);
        let mut leader = Bench::new(node.with_windows(WINDOWS), 0);
        leader.submits(0, 1);
        leader
    };
    let mut h0 = leader();
    assert_eq!(h0.gets_congested(0, reduce(0, 0, 1, 3), sum_of(&[1], 0)), []);
    assert_eq!(all_marks(&h0.gets(0, reduce(0, 0, 1, 3), sum_of(&[2], 0))), [CONGESTION]);
    let mut h0 = leader();
    let collided = PartialSum { id: id(0), leader: NodeId(0), counter: 1, hosts: 3, marks: COLLISION };
    h0.gets(0, CanaryHeader::Collided { sum: collided, switch: 12, port: PortId(5) }, sum_of(&[1], 0));
    let down = h0.gets(0, reduce(0, 0, 1, 3), sum_of(&[2], 0));
    assert_eq!(all_marks(&down), [COLLISION; 2], "the broadcast and the restoration");
    let mut h0 = leader();
    assert_eq!(all_marks(&h0.gets(0, reduce(0, 0, 2, 3), sum_of(&[1, 2], 0))), [NONE]);
}

/// What is left of a failed generation is dropped, and what it met is not forgotten.
#[test]
fn a_block_that_is_begun_anew_keeps_its_marks() {
    use fanin_core::Duration;
    use fanin_protocols::shared::reliability::Reliability;
    let reliability = Reliability::lossy(Duration::from_us(100), Duration::from_us(20), Duration::from_ms(20));
    let Bench { node, .. } = worker_that_recovers(0, 3, 8, Recovery::new(reliability, Duration::from_ms(10)));
    let mut h0 = Bench::new(node.with_windows(WINDOWS), 0);
    h0.submits(0, 1);
    h0.gets_congested(0, reduce(0, 0, 1, 3), sum_of(&[1], 0));
    for rank in [1, 2] {
        h0.gets(0, CanaryHeader::Request { id: id(0), rank: Rank(rank), attempt: 0 }, Census::default());
    }
    let anew = fanin_wire::canary::CanaryId::new(JOB.0 as u8, 1, 0);
    let sum = CanaryHeader::Reduce(PartialSum { id: anew, leader: NodeId(0), counter: 2, hosts: 3, marks: NONE });
    assert_eq!(all_marks(&h0.gets(0, sum, sum_of(&[1, 2], 0))), [CONGESTION]);
    let answer = h0.gets(0, CanaryHeader::Request { id: anew, rank: Rank(2), attempt: 0 }, Census::default());
    assert_eq!(all_marks(&answer), [CONGESTION]);
}

#[test]
#[should_panic(expected = "a window that follows has an end")]
fn a_window_that_does_not_limit_follows_nothing() {
    let Bench { node, .. } = worker(0, 3);
    let _ = node.with_windows(WINDOWS);
}

/// States that differ in their history only are equal, so that models end.
#[test]
fn rebased_windows_are_equal_whenever_they_began() {
    let state = |began_us: u64| {
        let mut worker = following(8);
        worker.now = Instant::ZERO + fanin_core::Duration::from_us(began_us);
        worker.submits(0, 40);
        for block in [0, 1, 2] {
            worker.gets(0, broadcast(block), sum_of(&[0, 1], block));
        }
        worker.node.rebase(worker.now);
        worker.node
    };
    assert!(state(5) == state(77));
}
