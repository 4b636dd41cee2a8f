//! What links do to packets, what fails when, and that every packet is accounted for.

use std::collections::BTreeMap;

use crate::couriers::{Errand, Log, Run, fat_tree, frame_ps, star};
use fanin_core::{DropReason, Duration, Instant, NodeId, PacketKind};
use fanin_sim::RunResult;
use fanin_sim::faults::{KindSet, LinkFault, LinkSelector, TimedFault};
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

const NO_FAULT: LinkFault = LinkFault {
    links: LinkSelector::All,
    kinds: KindSet::ALL,
    loss: 0.0,
    corruption: 0.0,
    duplication: 0.0,
    reordering: 0.0,
    delay_max: Duration::ZERO,
};

fn us(us: u64) -> Instant {
    Instant::ZERO + Duration::from_us(us)
}

/// One host sends many letters to another one under another leaf.
fn stream(letters: u32) -> Run {
    Run::new(fat_tree()).errand(0, Errand::to(15, letters, 32))
}

fn with_link_fault(mut run: Run, fault: LinkFault) -> (RunResult, Log) {
    run.faults.links.push(fault);
    run.run()
}

/// How often each letter arrived.
fn copies(log: &Log) -> BTreeMap<(u32, u32), u32> {
    let mut copies = BTreeMap::new();
    log.arrived.iter().for_each(|arrival| *copies.entry((arrival.from.0, arrival.number)).or_default() += 1);
    copies
}

#[test]
fn every_link_loses_and_corrupts_at_its_rate() {
    let (result, log) = with_link_fault(stream(20_000), LinkFault { loss: 0.05, corruption: 0.03, ..NO_FAULT });
    let (lost, corrupted) = (result.counters.dropped(DropReason::InjectedLoss), result.counters.dropped(DropReason::Corrupted));
    assert_eq!(log.arrived.len() as u64 + lost + corrupted, 20_000);
    // Of the packets that reach the end of one of the four links, give or take 5 standard deviations.
    let crossings = result.packet_hops as f64;
    assert!((lost as f64 / crossings - 0.05).abs() < 0.0045, "{lost} of {crossings}");
    assert!((corrupted as f64 / crossings - 0.95 * 0.03).abs() < 0.0035, "{corrupted} of {crossings}");
}

#[test]
fn selectors_mean_the_links_that_they_name() {
    let between = |from, to| LinkSelector::Between { from: NodeId(from), to: NodeId(to) };
    // A letter from host 0 to host 15 crosses 0-16, 16-spine, spine-19, 19-15.
    let cases = [
        (LinkSelector::HostUp, 0),
        (LinkSelector::Fabric, 1),
        (LinkSelector::HostDown, 3),
        (between(0, 16), 0),
        (between(19, 15), 3),
        (between(15, 19), 4),
        (between(16, 0), 4),
        (LinkSelector::All, 0),
    ];
    for (links, crossed) in cases {
        let (result, log) = with_link_fault(stream(100), LinkFault { links: links.clone(), loss: 1.0, ..NO_FAULT });
        let arrived = if crossed == 4 { 100 } else { 0 };
        assert_eq!(log.arrived.len(), arrived, "{links:?}");
        // A lost packet has crossed the link that lost it.
        assert_eq!(result.packet_hops, if crossed == 4 { 400 } else { 100 * (crossed + 1) }, "{links:?}");
    }
}

#[test]
fn kinds_are_told_apart_and_the_first_rule_that_fits_applies() {
    let mut run = Run::new(star(2));
    for kind in [PacketKind::Contribution, PacketKind::Aggregate, PacketKind::Control] {
        run = run.errand(0, Errand { kind, ..Errand::to(1, 100, 8) });
    }
    let links = LinkSelector::HostUp;
    run.faults.links = vec![
        LinkFault { links: links.clone(), kinds: KindSet::of(&[PacketKind::Aggregate]), ..NO_FAULT },
        LinkFault { links: links.clone(), kinds: KindSet::of(&[PacketKind::Aggregate, PacketKind::Control]), loss: 1.0, ..NO_FAULT },
        LinkFault { links, kinds: KindSet::of(&[PacketKind::Control]), corruption: 1.0, ..NO_FAULT },
    ];
    let (result, log) = run.run();
    assert_eq!(log.arrived.len(), 200);
    assert_eq!(log.arrived.iter().filter(|arrival| arrival.number >= 200).count(), 0, "control packets come last");
    assert_eq!((result.counters.dropped(DropReason::InjectedLoss), result.counters.dropped(DropReason::Corrupted)), (100, 0));
}

#[test]
fn repeats_arrive_only_without_the_anti_replay_window() {
    let fault = LinkFault { links: LinkSelector::HostDown, duplication: 1.0, delay_max: Duration::from_us(1), ..NO_FAULT };
    let (result, log) = with_link_fault(stream(500), fault.clone());
    assert!(copies(&log).values().all(|count| *count == 1) && log.arrived.len() == 500);
    assert_eq!(result.counters.dropped(DropReason::Repeated), 500);
    let mut run = stream(500);
    run.faults.anti_replay = false;
    let (result, log) = with_link_fault(run, fault);
    assert!(copies(&log).values().all(|count| *count == 2) && log.arrived.len() == 1_000);
    assert_eq!(result.counters.dropped_total(), 0);
}

#[test]
fn a_second_copy_outlives_the_loss_of_the_first() {
    let fault = LinkFault { links: LinkSelector::HostUp, loss: 1.0, duplication: 1.0, delay_max: Duration::from_us(1), ..NO_FAULT };
    let (result, log) = with_link_fault(stream(100), fault);
    assert_eq!((log.arrived.len(), result.counters.dropped(DropReason::InjectedLoss)), (100, 100));
}

#[test]
fn reordered_packets_are_late_by_no_more_than_the_longest_delay() {
    let on_time = |number: u32| 2 * (u64::from(number) + 2) * frame_ps(32) / 2 + 600_000;
    let fault = LinkFault { links: LinkSelector::HostDown, reordering: 0.2, delay_max: Duration::from_us(2), ..NO_FAULT };
    let (_, log) = with_link_fault(Run::new(star(2)).errand(0, Errand::to(1, 2_000, 32)), fault);
    assert_eq!(log.arrived.len(), 2_000);
    let late = |arrival: &crate::couriers::Arrival| arrival.at.as_ps() - on_time(arrival.number);
    assert!(log.arrived.iter().all(|arrival| late(arrival) <= 2_000_000));
    let count = log.arrived.iter().filter(|arrival| late(arrival) > 0).count();
    assert!((300..500).contains(&count), "{count} of 2000 were late");
    assert!(log.arrived.windows(2).any(|pair| pair[0].number > pair[1].number), "some were overtaken");
}

/// A packet that comes more than the window behind is lost, and counted as that.
#[test]
fn what_is_too_old_for_the_window_is_lost() {
    let fault = LinkFault { links: LinkSelector::HostDown, reordering: 0.001, delay_max: Duration::from_ms(10), ..NO_FAULT };
    let (result, log) = with_link_fault(Run::new(star(2)).errand(0, Errand::to(1, 20_000, 1)), fault);
    let lost = result.counters.dropped(DropReason::TooOld);
    assert!(lost > 0 && lost == result.counters.dropped_total());
    assert_eq!(log.arrived.len() as u64 + lost, 20_000);
}

#[test]
fn a_link_that_is_down_carries_nothing_and_loses_what_is_on_it() {
    let mut run = Run::new(star(2)).errand(0, Errand::to(1, 3_000, 256));
    run.faults.timed = vec![TimedFault::LinkDown { a: NodeId(1), b: NodeId(2), from: us(50), until: us(100) }];
    let (result, log) = run.run();
    let down = result.counters.dropped(DropReason::Down);
    assert_eq!(log.arrived.len() as u64 + down, 3_000);
    assert_eq!(down, result.counters.dropped_total());
    assert!(log.arrived.iter().all(|arrival| arrival.at <= us(50) || arrival.at > us(100)));
    // 50 us at one packet in 86.48 ns, and what was on the wire.
    assert!((575..590).contains(&down), "{down}");
    let lost_link = result.links.iter().find(|link| link.to == 1).expect("the link");
    assert!(lost_link.packets < 3_000 - 570, "{} packets were sent", lost_link.packets);
}

#[test]
fn failures_of_one_link_may_overlap() {
    let mut run = Run::new(fat_tree()).errand(0, Errand::to(15, 3_000, 256));
    let down = |from, until| TimedFault::LinkDown { a: NodeId(19), b: NodeId(15), from: us(from), until: us(until) };
    run.faults.timed = vec![down(20, 60), down(40, 90), TimedFault::SwitchDown { switch: NodeId(19), from: us(50), until: us(70) }];
    let (_, log) = run.run();
    assert!(log.arrived.iter().any(|arrival| arrival.at <= us(20)) && log.arrived.iter().any(|arrival| arrival.at > us(91)));
    assert!(log.arrived.iter().all(|arrival| arrival.at <= us(20) || arrival.at > us(90)));
}

#[test]
fn packets_go_round_a_spine_that_is_down() {
    let mut run = stream(2_000);
    run.faults.timed = vec![TimedFault::SwitchDown { switch: NodeId(20), from: us(5), until: Instant::FAR_FUTURE }];
    let (result, log) = run.run();
    let down = result.counters.dropped(DropReason::Down);
    assert_eq!(log.arrived.len() as u64 + down, 2_000);
    assert!(down > 0 && down < 80, "only what was on its way to the spine is lost: {down}");
    let spine = |node| result.links.iter().filter(|link| link.to == node).map(|link| link.packets).sum::<u64>();
    assert!(spine(21) > 1_700, "{}", spine(21));
}

#[test]
fn a_stalled_host_gets_everything_when_it_wakes() {
    let mut run = Run::new(star(2)).errand(0, Errand::to(1, 1_000, 256));
    let stall = |from, until| TimedFault::HostStall { host: NodeId(1), from: us(from), until: us(until) };
    run.faults.timed = vec![stall(20, 40), stall(30, 55)];
    let (result, log) = run.run();
    assert_eq!((log.arrived.len(), result.counters.dropped_total()), (1_000, 0));
    let at_waking = log.arrived.iter().filter(|arrival| arrival.at == us(55)).count();
    assert!((400..410).contains(&at_waking), "{at_waking} waited for 35 us");
    assert!(log.arrived.iter().all(|arrival| arrival.at <= us(20) || arrival.at >= us(55)));
    assert!(log.arrived.windows(2).all(|pair| pair[0].number < pair[1].number), "in order of arrival");
}

#[test]
fn a_stalled_sender_goes_on_where_it_was() {
    let mut run = Run::new(star(2)).errand(0, Errand::to(1, 1_000, 256));
    run.faults.timed = vec![TimedFault::HostStall { host: NodeId(0), from: us(20), until: us(40) }];
    let (_, log) = run.run();
    assert_eq!(log.arrived.len(), 1_000);
    let end = log.arrived.last().unwrap().at;
    let unhindered = 1_001 * frame_ps(256) + 600_000;
    // Its queue was sent in the meantime, which saves up to 16 packets of the 20 us.
    assert!(end.as_ps() > unhindered + 18_000_000 && end.as_ps() <= unhindered + 20_000_000, "{end}");
}

#[test]
fn a_stall_at_the_start_delays_the_start() {
    let mut run = Run::new(star(2)).errand(0, Errand::to(1, 1, 256));
    run.start = us(5);
    run.faults.timed = vec![TimedFault::HostStall { host: NodeId(0), from: us(1), until: us(30) }];
    let (_, log) = run.run();
    assert_eq!(log.arrived[0].at, us(30) + Duration::from_ps(2 * frame_ps(256) + 600_000));
}

#[test]
fn a_dead_host_neither_sends_nor_receives() {
    let mut run = Run::new(star(3)).errand(0, Errand::to(1, 1_000, 256)).errand(1, Errand::to(2, 1_000, 256));
    run.noise = (0.1, Duration::from_us(1));
    run.faults.timed = vec![TimedFault::HostDies { host: NodeId(1), at: us(30) }];
    let (result, log) = run.run();
    let got = log.arrived.iter().filter(|arrival| arrival.to == NodeId(1)).count() as u64;
    let dead = result.counters.dropped(DropReason::HostDead);
    assert!(log.arrived.iter().all(|arrival| arrival.to != NodeId(1) || arrival.at <= us(30)));
    assert!(got > 300 && dead > 650 && got + dead >= 1_000, "{got} and {dead}");
    assert_eq!(log.arrived.len() as u64 + dead, log.sent.len() as u64);
    assert!(result.jobs[0].workers[1].operations[0].ended.is_none());
}

/// A network with everything that can go wrong in it but repetition.
fn hostile(seed: u64, loss: f64, reordering: f64, queue_frames: u64, failures: &[(u8, u32, u64, u64)]) -> Run {
    let mut run = Run::new(fat_tree());
    for host in 0..16 {
        for step in 1..4 {
            run = run.errand(host, Errand::to((host * 5 + step * 3 + 1) % 16, 20, 1 + (host + step) * 15));
        }
    }
    run.seed = seed;
    run.network.queue_bytes = queue_frames * 1_100;
    run.noise = (0.05, Duration::from_us(2));
    run.faults.links = vec![LinkFault { loss, corruption: loss / 2.0, reordering, delay_max: Duration::from_us(3), ..NO_FAULT }];
    run.faults.timed = failures
        .iter()
        .map(|&(kind, node, from, length)| {
            let (from, until) = (us(from), us(from + length));
            match kind {
                0 => TimedFault::LinkDown { a: NodeId(16 + node % 4), b: NodeId(20 + node % 2), from, until },
                1 => TimedFault::SwitchDown { switch: NodeId(16 + node % 6), from, until },
                2 => TimedFault::HostStall { host: NodeId(node % 16), from, until },
                _ => TimedFault::HostDies { host: NodeId(node % 16), at: from },
            }
        })
        .collect();
    run
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, rng_seed: RngSeed::Fixed(3), failure_persistence: None, ..ProptestConfig::default() })]

    /// Conservation: every letter that was sent arrived once or was dropped for a reason, whatever went wrong on its way.
    #[test]
    fn every_packet_is_accounted_for(
        seed in any::<u64>(),
        loss in 0.0..0.2f64,
        reordering in 0.0..0.3f64,
        queue_frames in 2..40u64,
        failures in proptest::collection::vec((0..4u8, any::<u32>(), 0..12u64, 1..10u64), 0..6),
    ) {
        let run = hostile(seed, loss, reordering, queue_frames, &failures);
        let (result, log) = run.run();
        prop_assert_eq!(log.arrived.len() as u64 + result.counters.dropped_total(), log.sent.len() as u64);
        prop_assert!(copies(&log).values().all(|count| *count == 1));
        // Each link: what it was given it sent, or lost as it failed, or dropped for want of room.
        let full: u64 = result.links.iter().map(|link| link.packets_dropped).sum();
        prop_assert_eq!(full, result.counters.dropped(DropReason::QueueFull));
        let sent: u64 = result.links.iter().map(|link| link.packets).sum();
        prop_assert!(sent >= result.packet_hops && sent - result.packet_hops <= result.counters.dropped(DropReason::Down));
        for link in &result.links {
            let rate = if link.from < 16 || link.to < 16 { 80 } else { 20 };
            prop_assert!(link.bytes * rate <= result.end.as_ps(), "link {} to {}: {} bytes", link.from, link.to, link.bytes);
            prop_assert!((0.0..=1.0).contains(&link.utilization));
            prop_assert!(link.from < 16 || link.queue_bytes_peak <= run.network.queue_bytes);
        }
        prop_assert_eq!(run.run(), (result, log), "the same seed gives the same run");
    }
}
