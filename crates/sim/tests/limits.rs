//! Limits of hosts, background flows and jobs that crash, to the picosecond where that can be computed by hand.

use crate::couriers::{Errand, GBIT, Run, frame_ps, limit, star};
use fanin_core::{DropReason, Duration, Instant, NodeId};
use fanin_sim::flows::{FlowConfig, FlowStep};
use fanin_sim::limits::HostLimit;
use fanin_sim::metrics::Ended;

/// A packet of 256 elements: 1081 bytes.
const FRAME_PS: u64 = 1_081 * 80;
/// Two links' propagation.
const WIRE_PS: u64 = 600_000;

fn at(us: u64) -> Instant {
    Instant::ZERO + Duration::from_us(us)
}

fn times(run: &Run) -> Vec<u64> {
    run.run().1.arrived.iter().map(|arrival| arrival.at.as_ps()).collect()
}

/// 50 packets from host 0 to host 1.
fn fifty(limits: Vec<HostLimit>) -> Run {
    Run { limits, ..Run::new(star(4)).errand(0, Errand::to(1, 50, 256)) }
}

#[test]
fn a_host_that_works_on_one_packet_in_100_ns_sends_one_in_100_ns() {
    assert_eq!(frame_ps(256), FRAME_PS);
    let run = fifty(vec![HostLimit { send_packets_per_second: Some(10_000_000), ..limit(0) }]);
    let expected: Vec<u64> = (1..=50).map(|number| number * 100_000 + 2 * FRAME_PS + WIRE_PS).collect();
    assert_eq!(times(&run), expected);
    // Its link is slower than the host: the host's work on a packet is hidden behind the one before it.
    let run = fifty(vec![HostLimit { send_packets_per_second: Some(20_000_000), ..limit(0) }]);
    let expected: Vec<u64> = (1..=50).map(|number| 50_000 + (number + 1) * FRAME_PS + WIRE_PS).collect();
    assert_eq!(times(&run), expected);
}

#[test]
fn a_host_takes_packets_in_one_after_the_other() {
    let run = fifty(vec![HostLimit { receive_packets_per_second: Some(10_000_000), ..limit(1) }]);
    let expected: Vec<u64> = (1..=50).map(|number| 2 * FRAME_PS + WIRE_PS + number * 100_000).collect();
    assert_eq!(times(&run), expected);
    // The limit is the host's, not the sender's.
    let both = Run { limits: run.limits.clone(), ..Run::new(star(4)).errand(0, Errand::to(1, 30, 256)).errand(2, Errand::to(1, 30, 256)) };
    let taken_in = times(&both);
    assert!(taken_in.windows(2).all(|pair| pair[1] - pair[0] == 100_000), "{taken_in:?}");
}

#[test]
fn what_finds_no_room_at_a_host_is_dropped_and_counted() {
    let slow = HostLimit { receive_packets_per_second: Some(1_000_000), receive_queue_packets: 4, ..limit(1) };
    let (result, log) = fifty(vec![slow]).run();
    let dropped = result.counters.dropped(DropReason::HostBusy);
    assert_eq!(log.arrived.len() as u64 + dropped, 50);
    // 50 packets come in 4.3 us, of which the host takes in 4; 4 to 5 wait.
    assert!((8..=10).contains(&log.arrived.len()), "{}", log.arrived.len());
    let down = result.links.iter().find(|link| link.to == 1).expect("the host's link");
    assert_eq!(down.packets, 50, "they have come over the link all the same");
}

/// 50 packets come in 4.3 us, the host takes in 10 a us: the last one finds about half of the others waiting.
#[test]
fn what_finds_many_waiting_at_a_host_is_marked_and_taken_in_as_before() {
    let slow = HostLimit { receive_packets_per_second: Some(6_000_000), ..limit(1) };
    let (plain, log) = fifty(vec![slow.clone()]).run();
    assert_eq!((plain.packets_marked, log.arrived.len()), (0, 50));
    let marked = |packets: u32| {
        let (result, marking) = fifty(vec![HostLimit { receive_mark_packets: packets, ..slow.clone() }]).run();
        assert_eq!(marking.arrived.len(), 50);
        result.packets_marked
    };
    let (few, some) = (marked(20), marked(10));
    assert!(few > 0 && few < some && some <= 40, "{few}, {some}");
    assert_eq!(marked(49), 0);
}

#[test]
fn a_straggler_sends_at_its_rate_for_a_time() {
    // 12.5 Gb/s are 640 ps a byte, from 2 us to 10 us.
    let slow = HostLimit { send_bits_per_second: Some(12_500_000_000), from: at(2), until: at(10), ..limit(0) };
    let taken_in = times(&fifty(vec![slow.clone()]));
    let gaps: Vec<u64> = taken_in.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let (fast, slowed) = (gaps.iter().filter(|gap| **gap == FRAME_PS).count(), gaps.iter().filter(|gap| **gap == 1_081 * 640).count());
    assert!(fast >= 30 && (10..=12).contains(&slowed) && fast + slowed >= 47, "{gaps:?}");
    // The tightest of several counts.
    let always = HostLimit { send_bits_per_second: Some(50 * GBIT), ..limit(0) };
    assert_eq!(times(&fifty(vec![always.clone(), HostLimit { from: at(500), until: at(501), ..slow }])), times(&fifty(vec![always])));
}

fn flow(steps: &[(u64, u64)]) -> FlowConfig {
    let step = |&(us, gbps): &(u64, u64)| FlowStep { at: at(us), bits_per_second: gbps * GBIT };
    FlowConfig { from: NodeId(0), to: NodeId(2), payload_bytes: 1_024, steps: steps.iter().map(step).collect() }
}

#[test]
fn a_flow_takes_its_rate_from_the_jobs_of_its_host_and_no_more() {
    let last = |flows: Vec<FlowConfig>| {
        let run = Run { flows, ..Run::new(star(4)).errand(0, Errand::to(1, 2_000, 256)) };
        let (result, log) = run.run();
        assert_eq!((result.ended, log.arrived.len()), (Ended::JobsDone, 2_000));
        (log.arrived[1_999].at.as_ps() as f64, result)
    };
    let (alone, _) = last(Vec::new());
    for gbps in [20, 60] {
        let (shared, result) = last(vec![flow(&[(0, gbps)])]);
        let left = alone / shared;
        let expected = 1.0 - gbps as f64 / 100.0;
        assert!((left - expected).abs() < 0.01, "{gbps} Gb/s leave {left}");
        let sent = result.background_bytes as f64 / 1_024.0 * 1_081.0 * 8e3 / result.end.as_ps() as f64;
        assert!((sent - gbps as f64).abs() < 0.03 * gbps as f64, "{sent} Gb/s");
    }
}

#[test]
fn a_flow_follows_its_steps_and_ends_with_the_last() {
    // The job has nothing to do, and begins when the flow is over.
    let run = Run { flows: vec![flow(&[(10, 20), (30, 0), (50, 60), (60, 0)])], start: at(70), ..Run::new(star(4)) };
    let (result, _) = run.run();
    // 20 us at 20 Gb/s and 10 us at 60 Gb/s are 125 000 bytes.
    let packets = result.background_bytes / 1_024;
    assert!((115..=118).contains(&packets), "{packets}");
    // The oracle misses what the four couriers never deliver, and nothing of the flow.
    assert_eq!(result.verdict.wrong, 4);
    let again = run.run().0;
    assert_eq!(result, again);
}

#[test]
fn nobody_queues_a_flow_without_bounds() {
    let limits = vec![HostLimit { send_bits_per_second: Some(10 * GBIT), ..limit(0) }];
    let run = Run { limits, flows: vec![flow(&[(0, 90), (100, 0)])], ..Run::new(star(4)).errand(0, Errand::to(1, 10, 256)) };
    let (result, log) = run.run();
    assert!(result.counters.dropped(DropReason::QueueFull) > 500, "{:?}", result.counters);
    assert!(log.arrived.len() <= 10);
    let own = result.links.iter().find(|link| link.from == 0).expect("the host's link");
    assert!(own.queue_bytes_peak <= 8 * run.network.nic_queue_bytes + 10 * 1_081, "{}", own.queue_bytes_peak);
}

#[test]
fn a_job_that_crashes_is_heard_no_more() {
    let mut run = Run::new(star(4)).errand(0, Errand::to(1, 2_000, 256));
    run.crash = Some(at(50));
    let (result, log) = run.run();
    assert_eq!((result.ended, result.jobs[0].crashed), (Ended::JobsDone, Some(at(50))));
    assert!(!log.arrived.is_empty() && log.arrived.iter().all(|arrival| arrival.at <= at(50)));
    assert!(result.counters.dropped(DropReason::NoNode) > 0, "what is under way finds nobody");
    // What is through before has not crashed.
    run.crash = Some(at(5_000));
    assert_eq!(run.run().0.jobs[0].crashed, None);
}
