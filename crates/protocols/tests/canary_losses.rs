//! What Canary's nodes do about losses (`canary 5.10` to `5.15`), packet by packet.

use crate::canary_bench::*;
use crate::common::JOB;
use fanin_core::{Address, Census, Duration, Event, FailureReason, Node, NodeId, Rank, RetransmitReason, Suspect, Worker};
use fanin_protocols::canary::{CanaryWorker, FailureRule, Recovery};
use fanin_protocols::shared::reliability::Reliability;
use fanin_wire::canary::{CanaryHeader, CanaryId, CanaryMarks, PartialSum};

const RTO: Duration = Duration::from_us(100);
const LIFETIME: Duration = Duration::from_ms(1);

fn recovery(rule: FailureRule, generations: u8) -> Recovery {
    Recovery { rule, generations, ..Recovery::new(Reliability::lossy(RTO, Duration::from_us(10), PATIENCE), LIFETIME) }
}

fn reliable(rank: u32, hosts: u32) -> Bench<CanaryWorker<Census>> {
    worker_that_recovers(rank, hosts, 8, recovery(FailureRule::AllAsked, 2))
}

fn named(block: u32, generation: u8) -> CanaryId {
    CanaryId::new(JOB.0 as u8, generation, block)
}

fn request(block: u32, generation: u8, rank: u32, attempt: u16) -> CanaryHeader {
    CanaryHeader::Request { id: named(block, generation), rank: Rank(rank), attempt }
}

fn failed(block: u32, generation: u8, host: u32) -> CanaryHeader {
    CanaryHeader::Failed { id: named(block, generation), host: NodeId(host) }
}

fn contribution(block: u32, generation: u8, counter: u16, hosts: u16) -> CanaryHeader {
    CanaryHeader::Reduce(PartialSum { id: named(block, generation), leader: NodeId(0), counter, hosts, marks: CanaryMarks::NONE })
}

fn direct(host: u32) -> To {
    To::Direct(Address::worker(NodeId(host)))
}

const NOTHING: Census = Census::new(0, 0);

#[test]
fn p13_the_timer_starts_with_the_packet_and_asks_again_more_and_more_rarely() {
    let patient = Reliability::lossy(RTO, Duration::from_us(10), PATIENCE.times(10));
    let mut h1 = worker_that_recovers(1, 3, 8, Recovery { generations: 2, ..Recovery::new(patient, LIFETIME) });
    assert_eq!(h1.submits(0, 1), [(to_leader(0), contribution(0, 0, 1, 3), sum_of(&[1], 0))]);
    assert_eq!(h1.waits(Duration::from_us(99)), []);
    assert_eq!(h1.waits(Duration::from_us(1)), [(direct(0), request(0, 0, 1, 0), NOTHING)]);
    let mut gaps = Vec::new();
    let mut before = h1.now;
    while gaps.len() < 4 {
        if !h1.waits(Duration::from_us(10)).is_empty() {
            gaps.push(h1.now.since(before));
            before = h1.now;
        }
    }
    assert!(gaps.windows(2).all(|pair| pair[0] <= pair[1]) && gaps[3] >= gaps[0].times(2), "{gaps:?}");
}

#[test]
fn a_request_has_three_answers() {
    // canary 5.13: the sum, word that the generation has failed, or nothing yet.
    let mut h0 = reliable(0, 3);
    h0.submits(0, 1);
    assert_eq!(h0.gets(0, request(0, 0, 1, 0), NOTHING), [], "it may be slow");
    // All others have asked, so all have contributed: something is lost.
    let told = h0.gets(0, request(0, 0, 2, 0), NOTHING);
    let via = |host: u32| To::Via(Address::worker(NodeId(host)));
    assert_eq!(told, [(via(1), failed(0, 1, 1), NOTHING), (via(2), failed(0, 1, 2), NOTHING)]);
    // Who has not heard of it is told again.
    assert_eq!(h0.gets(0, request(0, 0, 2, 1), NOTHING), [(via(2), failed(0, 1, 2), NOTHING)]);
    // P1, P2: what is left of the failed generation is not added.
    assert_eq!(h0.gets(0, contribution(0, 0, 1, 3), sum_of(&[1], 0)), []);
    let whole = sum_of(&[0, 1, 2], 0);
    let sum = CanaryHeader::Broadcast { id: named(0, 1), marks: CanaryMarks::NONE };
    assert_eq!(h0.gets(0, contribution(0, 1, 2, 3), sum_of(&[1, 2], 0)), [(To::Port(0), sum, whole)]);
    // P12: the sum is kept, in memory of its own, and P16: what is done does not fail.
    let answer = CanaryHeader::Answer { id: named(0, 1), marks: CanaryMarks::NONE };
    assert_eq!(h0.gets(0, request(0, 1, 2, 0), NOTHING), [(direct(2), answer, whole)]);
    assert_eq!(h0.gets(0, request(0, 0, 1, 9), NOTHING), [(direct(1), answer, whole)]);
}

#[test]
fn a_leader_that_gave_up_what_was_only_late_waits_before_it_does_so_again() {
    let mut h0 = reliable(0, 3);
    h0.submits(0, 4);
    let has_failed = |sent: &[(To, CanaryHeader, Census)]| sent.iter().any(|(_, header, _)| matches!(header, CanaryHeader::Failed { .. }));
    h0.gets(0, request(0, 0, 1, 0), NOTHING);
    assert!(has_failed(&h0.gets(0, request(0, 0, 2, 0), NOTHING)), "all have asked");
    // Everything comes all the same, before the next generation's.
    h0.gets(0, contribution(0, 0, 2, 3), sum_of(&[1, 2], 0));
    h0.gets(0, contribution(0, 1, 2, 3), sum_of(&[1, 2], 0));
    // Of the next block that it leads all ask as well, and what they have sent is given a timeout more.
    for rank in [1, 2] {
        assert!(!has_failed(&h0.gets(0, request(3, 0, rank, 0), NOTHING)));
    }
    assert!(!has_failed(&h0.waits(RTO.divided(10).times(9))));
    assert!(has_failed(&h0.waits(RTO)), "now it is lost");
}

#[test]
fn a_sum_is_kept_after_an_operation_whatever_notices_of_completion_come() {
    let mut h0 = reliable(0, 3);
    h0.submits(0, 1);
    h0.gets(0, contribution(0, 0, 2, 3), sum_of(&[1, 2], 0));
    for rank in [1, 2] {
        assert_eq!(h0.gets(0, CanaryHeader::Done { id: named(1, 0), rank: Rank(rank) }, NOTHING), []);
    }
    // The format is reserved: nothing rests on packets that nobody sends.
    assert_eq!(h0.node.sums_kept(), 1);
    let answer = CanaryHeader::Answer { id: named(0, 0), marks: CanaryMarks::NONE };
    assert_eq!(h0.gets(0, request(0, 0, 2, 0), NOTHING), [(direct(2), answer, sum_of(&[0, 1, 2], 0))]);
}

#[test]
fn whoever_asks_for_a_block_of_a_leader_that_comes_late_is_remembered() {
    let mut h0 = reliable(0, 3);
    assert_eq!(h0.gets(0, request(0, 0, 1, 0), NOTHING), []);
    assert_eq!(h0.gets(0, request(0, 0, 2, 0), NOTHING).len(), 2, "it fails a generation before it has begun");
    h0.gets(0, contribution(0, 1, 2, 3), sum_of(&[1, 2], 0));
    // Everything is there but the leader's own contribution: that is waited for, and not begun anew.
    assert_eq!(h0.gets(0, request(0, 1, 1, 0), NOTHING), []);
    assert_eq!(h0.gets(0, request(0, 1, 2, 0), NOTHING), []);
    assert_eq!(
        h0.gets(0, request(0, 1, 2, 5), NOTHING),
        [(direct(2), CanaryHeader::Waiting { id: named(0, 1), missing: Some(Rank(0)) }, NOTHING)]
    );
    let sent = h0.submits(0, 1);
    assert_eq!(sent, [(To::Port(0), CanaryHeader::Broadcast { id: named(0, 1), marks: CanaryMarks::NONE }, sum_of(&[0, 1, 2], 0))]);
}

#[test]
fn the_literal_rule_fails_a_block_at_the_first_request() {
    let mut h0 = worker_that_recovers(0, 3, 8, recovery(FailureRule::FirstRequest, 2));
    h0.submits(0, 1);
    assert_eq!(h0.gets(0, request(0, 0, 1, 0), NOTHING).len(), 2);
    assert_eq!(h0.gets(0, request(0, 1, 1, 0), NOTHING).len(), 2);
}

#[test]
fn a_hold_is_waited_for_unless_all_ask_before() {
    let hold = Duration::from_us(40);
    let mut h0 = worker_that_recovers(0, 4, 8, recovery(FailureRule::AfterHold(hold), 2));
    h0.submits(0, 1);
    assert_eq!(h0.gets(0, request(0, 0, 1, 0), NOTHING), []);
    assert_eq!(h0.waits(Duration::from_us(39)), []);
    assert_eq!(h0.waits(Duration::from_us(1)).len(), 3);
}

#[test]
fn who_has_not_asked_is_asked_and_answers_only_if_it_has_contributed() {
    let (mut h0, mut h2) = (reliable(0, 4), reliable(2, 4));
    h0.submits(0, 1);
    h0.gets(0, request(0, 0, 1, 0), NOTHING);
    let probe = CanaryHeader::Probe { id: named(0, 0), rank: Rank(0) };
    assert_eq!(h0.waits(RTO), [(direct(2), probe, NOTHING), (direct(3), probe, NOTHING)]);
    assert_eq!(h2.gets(0, probe, NOTHING), [], "it has not begun");
    h2.submits(0, 1);
    assert_eq!(h2.gets(0, probe, NOTHING), [(direct(0), request(0, 0, 2, 0), NOTHING)]);
    h0.gets(0, request(0, 0, 2, 0), NOTHING);
    // From the third attempt on the leader says who is missing.
    let waiting = CanaryHeader::Waiting { id: named(0, 0), missing: Some(Rank(3)) };
    assert_eq!(h0.gets(0, request(0, 0, 2, 2), NOTHING), [(direct(2), waiting, NOTHING)]);
    h2.gets(0, waiting, NOTHING);
    // It says so again for as long as that is so; an older word would be of a leader that is silent itself.
    h2.now += PATIENCE.divided(8).times(7);
    h2.gets(0, waiting, NOTHING);
    h2.now += PATIENCE.divided(8);
    let aborted = CanaryHeader::Aborted { id: named(0, 0), missing: Some(Rank(3)) };
    assert_eq!(h2.waits(Duration::ZERO), [0, 1, 3].map(|host| (direct(host), aborted, NOTHING)));
    let failure = h2.node.poll().unwrap().result.unwrap_err();
    assert_eq!((failure.suspect, failure.reason), (Suspect::Rank(Rank(3)), FailureReason::NoProgress));
    // Who was told gives up as well, and says so to who asks, but not to all again.
    assert_eq!(h0.gets(0, aborted, NOTHING), []);
    let failure = h0.node.poll().unwrap().result.unwrap_err();
    assert_eq!((failure.suspect, failure.reason), (Suspect::Rank(Rank(3)), FailureReason::PeerAborted));
    assert_eq!(h0.gets(0, request(0, 0, 1, 3), NOTHING), [(direct(1), aborted, NOTHING)]);
}

#[test]
fn a_leader_of_whose_block_nothing_is_heard_asks_for_the_patience_and_no_longer() {
    // Its worker never begins, and none of its packets arrives: the others give up, and it never hears of that.
    let mut h0 = reliable(0, 3);
    assert_eq!(h0.gets(0, request(0, 0, 1, 0), NOTHING), []);
    let probe = (direct(2), CanaryHeader::Probe { id: named(0, 0), rank: Rank(0) }, NOTHING);
    assert_eq!(h0.waits(RTO), std::slice::from_ref(&probe));
    let begun = h0.now;
    // Who asks again is there, and lacks it still: asking ends the patience after that one.
    let asked_again = begun + PATIENCE.divided(2);
    let mut asked = Vec::new();
    while h0.now < begun + PATIENCE.times(3) {
        if h0.now == asked_again {
            h0.gets(0, request(0, 0, 1, 1), NOTHING);
        }
        for packet in h0.waits(Duration::from_us(10)) {
            assert_eq!(packet, probe);
            asked.push(h0.now);
        }
    }
    let last = *asked.last().expect("it has asked");
    assert!(last > asked_again + PATIENCE.times(9).divided(10) && last <= asked_again + PATIENCE.times(11).divided(10), "{last:?}");
    assert_eq!(h0.node.next_timeout(), None, "nothing is left to do");
    // The other one asks at last, so all have: something is lost.
    assert_eq!(h0.gets(0, request(0, 0, 2, 0), NOTHING).len(), 2);
}

#[test]
fn a_worker_contributes_anew_once_a_generation_and_in_the_end_directly() {
    let mut h1 = reliable(1, 3);
    h1.submits(0, 1);
    assert_eq!(h1.gets(0, failed(0, 1, 1), NOTHING), [(to_leader(0), contribution(0, 1, 1, 3), sum_of(&[1], 0))]);
    assert_eq!(h1.gets(0, failed(0, 1, 1), NOTHING), [], "P2: no name is used twice");
    let fallback = (direct(0), CanaryHeader::Direct { id: named(0, 2), rank: Rank(1) }, sum_of(&[1], 0));
    assert_eq!(h1.gets(0, failed(0, 2, 1), NOTHING), std::slice::from_ref(&fallback));
    // There it repeats what it has sent, for the leader knows who has contributed.
    assert_eq!(h1.waits(RTO), [fallback]);
    // Told that the leader has it, it only asks.
    h1.gets(0, CanaryHeader::Waiting { id: named(0, 2), missing: Some(Rank(2)) }, NOTHING);
    assert_eq!(h1.waits(RTO.times(4)), [(direct(0), request(0, 2, 1, 1), NOTHING)]);
    let reasons: Vec<RetransmitReason> =
        h1.seen.notes.iter().filter_map(|note| if let Event::Retransmitted { reason, .. } = note { Some(*reason) } else { None }).collect();
    assert_eq!(reasons, [RetransmitReason::Reissued, RetransmitReason::Fallback, RetransmitReason::Fallback, RetransmitReason::Timeout]);
    h1.gets(0, CanaryHeader::Answer { id: named(0, 2), marks: CanaryMarks::NONE }, sum_of(&[0, 1, 2], 0));
    assert_eq!(h1.node.poll().unwrap().result, Ok(()));
}

#[test]
fn in_the_fallback_each_worker_counts_once_and_is_answered_by_itself() {
    let mut h0 = reliable(0, 3);
    h0.submits(0, 1);
    for generation in 0..2 {
        h0.gets(0, request(0, generation, 1, 0), NOTHING);
        h0.gets(0, request(0, generation, 2, 0), NOTHING);
    }
    let from = |rank: u32| CanaryHeader::Direct { id: named(0, 2), rank: Rank(rank) };
    let waiting = (direct(1), CanaryHeader::Waiting { id: named(0, 2), missing: Some(Rank(2)) }, NOTHING);
    assert_eq!(h0.gets(0, from(1), sum_of(&[1], 0)), std::slice::from_ref(&waiting));
    assert_eq!(h0.gets(0, from(1), sum_of(&[1], 0)), [waiting], "again, as its answer is late");
    let (answer, whole) = (CanaryHeader::Answer { id: named(0, 2), marks: CanaryMarks::NONE }, sum_of(&[0, 1, 2], 0));
    assert_eq!(h0.gets(0, from(2), sum_of(&[2], 0)), [(direct(1), answer, whole), (direct(2), answer, whole)]);
    assert_eq!(h0.gets(0, from(1), sum_of(&[1], 0)), [(direct(1), answer, whole)], "P11: its answer was lost");
}

#[test]
fn p14_a_broadcast_that_many_lack_is_sent_again_in_place_of_more_answers() {
    let hosts = 24;
    let mut h0 = reliable(0, hosts);
    h0.submits(0, 1);
    let others: Vec<u32> = (1..hosts).collect();
    assert_eq!(h0.gets(0, contribution(0, 0, 23, 24), sum_of(&others, 0)).len(), 1);
    let (answer, sum) = (
        CanaryHeader::Answer { id: named(0, 0), marks: CanaryMarks::NONE },
        CanaryHeader::Broadcast { id: named(0, 0), marks: CanaryMarks::NONE },
    );
    let whole = sum_of(&(0..hosts).collect::<Vec<_>>(), 0);
    // A quarter of 24: a loss behind the root concerns fewer.
    for rank in 1..6 {
        assert_eq!(h0.gets(0, request(0, 0, rank, 0), NOTHING), [(direct(rank), answer, whole)]);
    }
    // Where it was lost behind the root, no tree is left: who has brought it about is answered all the same.
    assert_eq!(h0.gets(0, request(0, 0, 6, 0), NOTHING), [(direct(6), answer, whole), (To::Port(0), sum, whole)]);
    assert_eq!(h0.gets(0, request(0, 0, 7, 0), NOTHING), [], "it will get the broadcast");
    h0.waits(RTO);
    assert_eq!(h0.gets(0, request(0, 0, 7, 1), NOTHING), [(direct(7), answer, whole)], "it has not got it");
}

#[test]
fn p4_a_descriptor_whose_sum_does_not_come_is_given_up() {
    let mut s4 = switch_that_forgets(14, 1, LIFETIME);
    s4.gets(0, contribution(0, 0, 1, 6), sum_of(&[1], 0));
    assert_eq!(s4.waits(TIMEOUT).len(), 1);
    assert_eq!(s4.node.descriptors_in_use(), 1);
    s4.waits(Duration::from_us(999));
    assert_eq!(s4.node.descriptors_in_use(), 1);
    s4.waits(Duration::from_us(1));
    assert_eq!((s4.node.descriptors_in_use(), s4.node.next_timeout()), (0, None));
    // Its sum finds nobody, and the next block does not collide.
    assert_eq!(s4.gets(1, broadcast(0), sum_of(&[1], 0)), []);
    s4.gets(0, contribution(1, 0, 1, 6), sum_of(&[1], 1));
    assert_eq!(s4.waits(TIMEOUT), [(to_leader(0), contribution(1, 0, 1, 6), sum_of(&[1], 1))]);
}

#[test]
fn word_of_a_failed_generation_frees_its_descriptor_on_the_way() {
    let mut s4 = switch_that_forgets(14, 8, LIFETIME);
    s4.gets(0, contribution(3, 0, 1, 6), sum_of(&[1], 3));
    let passed = |host: u32| [(To::Via(Address::worker(NodeId(host))), failed(3, 1, host), NOTHING)];
    assert_eq!(s4.gets(1, failed(3, 1, 2), NOTHING), passed(2));
    assert_eq!(s4.node.descriptors_in_use(), 1, "what it holds was not sent on yet");
    s4.waits(TIMEOUT);
    assert_eq!(s4.gets(1, failed(3, 1, 2), NOTHING), passed(2));
    assert_eq!((s4.node.descriptors_in_use(), s4.node.next_timeout()), (0, None));
}

#[test]
fn p1_a_straggler_of_a_failed_generation_leaves_a_zombie_that_ends_by_itself() {
    let (mut s4, mut h0) = (switch_that_forgets(14, 8, LIFETIME), reliable(0, 3));
    h0.submits(0, 1);
    h0.gets(0, request(0, 0, 1, 0), NOTHING);
    h0.gets(0, request(0, 0, 2, 0), NOTHING);
    s4.gets(0, contribution(0, 0, 1, 3), sum_of(&[1], 0));
    let zombie = s4.waits(TIMEOUT);
    assert_eq!(h0.gets(0, zombie[0].1, zombie[0].2), []);
    assert_eq!(h0.seen.delivered, []);
    s4.waits(LIFETIME);
    assert_eq!(s4.node.descriptors_in_use(), 0);
}

#[test]
fn a_switch_has_no_business_with_packets_for_workers() {
    let mut s4 = switch_that_forgets(14, 8, LIFETIME);
    for header in [
        request(0, 0, 1, 0),
        CanaryHeader::Answer { id: named(0, 0), marks: CanaryMarks::NONE },
        CanaryHeader::Done { id: named(0, 0), rank: Rank(1) },
    ] {
        assert_eq!(s4.gets(0, header, NOTHING), []);
    }
    assert_eq!(s4.dropped().len(), 3);
}
