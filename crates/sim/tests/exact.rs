//! Times to the picosecond, computed by hand.

use crate::couriers::{Errand, Run, fat_tree, frame_ps, star};
use fanin_core::{DropReason, Duration, Instant};
use fanin_sim::NetworkConfig;

fn times(run: &Run) -> Vec<u64> {
    run.run().1.arrived.iter().map(|arrival| arrival.at.as_ps()).collect()
}

#[test]
fn a_lone_packet_is_sent_and_propagated_once_a_link() {
    // 1081 bytes at 80 ps and 300 ns, twice.
    assert_eq!(times(&Run::new(star(2)).errand(0, Errand::to(1, 1, 256))), [2 * (1_081 * 80 + 300_000)]);
    // 61 bytes are sent as 84.
    assert_eq!(times(&Run::new(star(2)).errand(0, Errand::to(1, 1, 1))), [2 * (84 * 80 + 300_000)]);
    // Up a host's link at 100 Gb/s, over two at 400 Gb/s and 500 ns, and down again.
    let expected = 2 * (1_081 * 80 + 300_000) + 2 * (1_081 * 20 + 500_000);
    assert_eq!(times(&Run::new(fat_tree()).errand(0, Errand::to(15, 1, 256))), [expected]);
    // Within a leaf only the host's links.
    assert_eq!(times(&Run::new(fat_tree()).errand(0, Errand::to(3, 1, 256))), [2 * (1_081 * 80 + 300_000)]);
}

#[test]
fn packets_follow_each_other_at_the_rate_of_the_slowest_link() {
    let run = Run::new(star(2)).errand(0, Errand::to(1, 50, 256));
    let expected: Vec<u64> = (1..=50).map(|number| (number + 1) * frame_ps(256) + 600_000).collect();
    assert_eq!(times(&run), expected);
}

#[test]
fn packets_that_meet_wait_for_each_other_in_order_of_arrival() {
    let run = Run::new(star(3)).errand(0, Errand::to(2, 10, 100)).errand(1, Errand::to(2, 10, 100));
    let (_, log) = run.run();
    // Both send at full rate; the receiver's link carries one after the other from the first one's arrival at the switch on.
    let at_switch = frame_ps(100) + 300_000;
    let expected: Vec<u64> = (1..=20).map(|number| at_switch + number * frame_ps(100) + 300_000).collect();
    assert_eq!(log.arrived.iter().map(|arrival| arrival.at.as_ps()).collect::<Vec<_>>(), expected);
    let senders: Vec<u32> = log.arrived.iter().map(|arrival| arrival.from.0).collect();
    assert!(senders.chunks(2).all(|pair| pair == [0, 1]), "the switch serves them in turn, as they arrive: {senders:?}");
}

#[test]
fn a_start_and_noise_are_added_as_they_are() {
    let mut run = Run::new(star(2)).errand(0, Errand::to(1, 1, 256));
    run.start = Instant::from_ps(12_345_678);
    run.noise = (1.0, Duration::from_ns(777));
    assert_eq!(times(&run), [12_345_678 + 777_000 + 2 * (1_081 * 80 + 300_000)]);
}

/// The room of a host's own queue is what it says, and no packet is dropped there.
#[test]
fn a_host_is_told_to_wait_and_called_back() {
    let run = Run::new(star(2)).errand(0, Errand::to(1, 500, 256));
    let (result, log) = run.run();
    assert!(log.refused >= 20, "{}", log.refused);
    let own = result.links.iter().find(|link| link.from == 0).expect("the host's link");
    assert!(own.queue_bytes_peak <= run.network.nic_queue_bytes + 1_081, "{}", own.queue_bytes_peak);
    assert_eq!((log.arrived.len(), result.counters.dropped_total()), (500, 0));
    // The link was never idle in between.
    assert_eq!(log.arrived.last().unwrap().at.as_ps(), 501 * frame_ps(256) + 600_000);
}

/// Bursts that reach the switch together: exactly what the queue holds survives.
#[test]
fn a_queue_holds_its_capacity_to_the_byte() {
    for frames in [1, 2, 7, 20] {
        for spare in [0, 1, 1_080] {
            let mut run = Run::new(star(9));
            run.network.queue_bytes = frames * 1_081 + spare;
            for host in 1..9 {
                run = run.errand(host, Errand::to(0, 1, 256));
            }
            let (result, log) = run.run();
            // All eight arrive at one instant; what is being sent counts as queued.
            let kept = frames.min(8);
            assert_eq!(log.arrived.len() as u64, kept, "{frames} frames and {spare} bytes");
            assert_eq!(result.counters.dropped(DropReason::QueueFull), 8 - kept);
        }
    }
}

/// A packet is marked when it finds more than the threshold before it, not when it finds just that much.
#[test]
fn a_packet_that_finds_more_than_the_threshold_is_marked() {
    for (mark_bytes, marked) in [(0, 7), (1_080, 7), (1_081, 6), (3 * 1_081 - 1, 5), (3 * 1_081, 4), (8 * 1_081, 0), (u64::MAX, 0)] {
        let mut run = Run::new(star(9));
        run.network = NetworkConfig { ecn_mark_bytes: mark_bytes, ..run.network };
        for host in 1..9 {
            run = run.errand(host, Errand::to(0, 1, 256));
        }
        let (result, log) = run.run();
        let seen = log.arrived.iter().filter(|arrival| arrival.ecn).count() as u64;
        assert_eq!((seen, result.packets_marked), (marked, marked), "threshold {mark_bytes}");
        // Those that came first found less.
        assert!(log.arrived.iter().rev().take(marked as usize).all(|arrival| arrival.ecn));
    }
}
