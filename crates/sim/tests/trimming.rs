//! Packets that are cut where a queue is full: when they are there again, which are, and that each comes once or is counted as lost.

use crate::couriers::{Errand, Log, Run, fat_tree, frame_ps, star};
use fanin_core::{DropReason, Duration, Instant, NodeId};
use fanin_sim::RunResult;
use fanin_sim::faults::{KindSet, LinkFault, LinkSelector, TimedFault};
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
use fanin_sim::trimming::Trimming;

/// What is left of a packet, at 100 Gb/s.
const CUT_PS: u64 = 84 * 8_000 / 100;
const LATENCY_PS: u64 = 300_000;

fn incast(shape: fanin_sim::Shape, senders: u32, letters: u32, anew: bool, whose: Option<Trimming>) -> Run {
    let mut run = Run::new(shape);
    run.network.trimming = whose;
    run.network.queue_bytes = 32 * 1_081;
    let errand = |anew: bool| if anew { Errand::anew(0, letters, 256) } else { Errand::to(0, letters, 256) };
    (1..=senders).fold(run, |run, host| run.errand(host, errand(anew)))
}

/// How many have come, each of them once.
fn distinct(log: &Log) -> usize {
    let mut letters: Vec<(u32, u32)> = log.arrived.iter().map(|letter| (letter.from.0, letter.number)).collect();
    letters.sort_unstable();
    let all = letters.len();
    letters.dedup();
    assert_eq!(letters.len(), all, "a letter has come twice");
    all
}

fn lost(result: &RunResult) -> u64 {
    result.counters.dropped_total()
}

#[test]
fn a_packet_that_was_cut_is_there_again_a_round_trip_later() {
    let mut run = incast(star(3), 2, 1, false, Some(Trimming::Hosts));
    run.network.queue_bytes = 1_081;
    let (result, log) = run.run();
    let at_switch = frame_ps(256) + LATENCY_PS;
    let first = at_switch + frame_ps(256) + LATENCY_PS;
    // What is left of the other one waits for the first, then goes to the receiver, to the switch, and to its sender, who sends it again.
    let told = at_switch + frame_ps(256) + 3 * (CUT_PS + LATENCY_PS);
    let second = told + 2 * (frame_ps(256) + LATENCY_PS);
    assert_eq!(log.arrived.iter().map(|letter| letter.at.as_ps()).collect::<Vec<_>>(), [first, second]);
    assert_eq!((result.packets_trimmed, lost(&result)), (1, 0));
    assert!(log.arrived.iter().all(|letter| !letter.ecn), "nothing is marked here");
    // Where packets are marked, it met congestion.
    run.network.ecn_mark_bytes = 1 << 20;
    let (result, log) = run.run();
    assert_eq!(log.arrived.iter().map(|letter| letter.ecn).collect::<Vec<_>>(), [false, true]);
    assert_eq!(result.packets_marked, 1);
}

#[test]
fn an_incast_that_loses_most_without_it_loses_nothing() {
    let (result, log) = incast(star(9), 8, 50, false, None).run();
    assert!(lost(&result) > 200 && log.arrived.len() as u64 + lost(&result) == 400, "{} of 400 lost", lost(&result));
    assert_eq!(result.packets_trimmed, 0);
    for whose in [Trimming::Hosts, Trimming::All] {
        let (result, log) = incast(star(9), 8, 50, false, Some(whose)).run();
        assert_eq!((distinct(&log), lost(&result)), (400, 0));
        assert!(result.packets_trimmed > 200, "{}", result.packets_trimmed);
    }
}

#[test]
fn what_switches_have_made_is_kept_only_where_a_plan_says_so() {
    // Leaf 0 makes each letter anew, and its queue to host 0 overflows.
    let run = |whose| incast(fat_tree(), 15, 20, true, Some(whose));
    let (result, log) = run(Trimming::Hosts).run();
    let (all, of_hosts) = (300, distinct(&log) as u64);
    assert!(of_hosts < all && of_hosts + lost(&result) == all, "{of_hosts} came, {} lost", lost(&result));
    let (result, log) = run(Trimming::All).run();
    assert_eq!((distinct(&log) as u64, lost(&result)), (all, 0));
    assert!(result.packets_trimmed > 0);
}

#[test]
fn each_comes_once_or_is_counted_as_lost() {
    for seed in 0..40 {
        for anew in [false, true] {
            let mut run = incast(fat_tree(), 15, 20, anew, Some(Trimming::All));
            run.network.queue_bytes = 4 * 1_081;
            run.seed = seed;
            run.faults.links = vec![LinkFault {
                links: LinkSelector::All,
                kinds: KindSet::ALL,
                loss: 0.02,
                corruption: 0.01,
                duplication: 0.05,
                reordering: 0.1,
                delay_max: Duration::from_us(2),
            }];
            let at = |us: u64| Instant::ZERO + Duration::from_us(us);
            let spine = TimedFault::SwitchDown { switch: NodeId(20 + seed as u32 % 2), from: at(2 + seed / 8), until: at(9) };
            let host = TimedFault::HostDies { host: NodeId(1 + seed as u32 % 15), at: at(3 + seed / 5) };
            run.faults.timed = vec![spine, host];
            let (result, log) = run.run();
            let repeats: u64 = [DropReason::Duplicate, DropReason::TooOld].into_iter().map(|reason| result.counters.dropped(reason)).sum();
            let came = distinct(&log) as u64;
            assert!(result.packets_trimmed > 0, "seed {seed}");
            assert!(came < 300 && lost(&result) > 0, "seed {seed}: {came} came");
            // A copy that a link makes is another packet, of which one is dropped as a repeat or gone with its cause.
            assert!(came + lost(&result) >= log.sent.len() as u64, "seed {seed}: {came} came, {} lost, {repeats} repeats", lost(&result));
        }
    }
}

#[test]
fn a_network_that_loses_nothing_has_nothing_to_cut() {
    let mut run = incast(star(3), 2, 1, false, Some(Trimming::All));
    let lossless = LosslessConfig {
        model: SwitchModel::OutputQueued,
        input_bytes: 10_000,
        output_bytes: 10_000,
        arbitration: Arbitration::default(),
        made_packets: MadePackets::default(),
        channels: 1,
    };
    run.network.lossless = Some(lossless);
    let topology = fanin_sim::Topology::new(&run.network.shape).expect("a network");
    let refused = run.network.check_ways(&topology).expect_err("it is refused");
    assert!(refused.to_string().contains("network.trimming = all: expected nothing with network.lossless"), "{refused}");
}
