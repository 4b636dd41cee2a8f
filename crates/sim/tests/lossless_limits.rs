//! Limits of hosts in a network that loses nothing: what they cannot take in waits at the switch, and nothing is dropped.

use crate::couriers::{Errand, Run, frame_ps, limit, star};
use fanin_core::{DropReason, Duration, Instant, NodeId};
use fanin_sim::limits::HostLimit;
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};

/// Two links' propagation.
const WIRE_PS: u64 = 600_000;

fn lossless(model: SwitchModel, limits: Vec<HostLimit>) -> Run {
    let mut run = Run { limits, ..Run::new(star(4)) };
    run.network.lossless = Some(LosslessConfig {
        model,
        input_bytes: 16_000,
        output_bytes: 16_000,
        arbitration: Arbitration::default(),
        made_packets: MadePackets::default(),
        channels: 1,
    });
    run
}

const MODELS: [SwitchModel; 2] = [SwitchModel::OutputQueued, SwitchModel::InputQueued];

fn times(run: &Run) -> Vec<u64> {
    let (result, log) = run.run();
    assert_eq!(result.counters.dropped_total(), 0);
    log.arrived.iter().map(|arrival| arrival.at.as_ps()).collect()
}

#[test]
fn a_slow_sender_sends_at_its_pace() {
    let frame = frame_ps(256);
    for model in MODELS {
        let run = |limit| lossless(model, vec![limit]).errand(0, Errand::to(1, 50, 256));
        let expected: Vec<u64> = (1..=50).map(|number| number * 100_000 + 2 * frame + WIRE_PS).collect();
        assert_eq!(times(&run(HostLimit { send_packets_per_second: Some(10_000_000), ..limit(0) })), expected);
        // 12.5 Gb/s are 640 ps a byte.
        let taken_in = times(&run(HostLimit { send_bits_per_second: Some(12_500_000_000), ..limit(0) }));
        assert!(taken_in.windows(2).all(|pair| pair[1] - pair[0] == 1_081 * 640), "{taken_in:?}");
    }
}

#[test]
fn a_slow_receiver_holds_back_what_it_has_no_place_for_and_drops_nothing() {
    let frame = frame_ps(256);
    for model in MODELS {
        for places in [1, 2, 4, 4_096] {
            let slow = HostLimit { receive_packets_per_second: Some(1_000_000), receive_queue_packets: places, ..limit(1) };
            let taken_in = times(&lossless(model, vec![slow]).errand(0, Errand::to(1, 50, 256)).errand(2, Errand::to(1, 20, 256)));
            assert_eq!((taken_in.len(), taken_in[0]), (70, 2 * frame + WIRE_PS + 1_000_000));
            let gaps: Vec<u64> = taken_in.windows(2).map(|pair| pair[1] - pair[0]).collect();
            if places == 1 {
                // The next one sets out when its place is free and the word of it has come.
                assert!(gaps.iter().all(|gap| *gap == 1_000_000 + WIRE_PS + frame), "{gaps:?}");
            } else {
                assert!(gaps.iter().all(|gap| *gap == 1_000_000), "{places} places: {gaps:?}");
            }
        }
    }
}

#[test]
fn a_slow_receiver_spreads_congestion_to_who_shares_an_input_with_it() {
    // Host 0 sends to the slow host and then to another one: what is for this one waits behind what has no place.
    let through = |model| {
        let slow = HostLimit { receive_packets_per_second: Some(1_000_000), receive_queue_packets: 2, ..limit(1) };
        let (result, log) = lossless(model, vec![slow]).errand(0, Errand::to(1, 60, 256)).errand(0, Errand::to(2, 40, 256)).run();
        assert_eq!((result.counters.dropped(DropReason::HostBusy), log.arrived.len()), (0, 100));
        log.arrived.iter().filter(|arrival| arrival.to == NodeId(2)).map(|arrival| arrival.at.as_ps()).max().expect("it gets all")
    };
    let alone = {
        let (_, log) = lossless(SwitchModel::OutputQueued, Vec::new()).errand(0, Errand::to(2, 40, 256)).run();
        log.arrived.iter().map(|arrival| arrival.at.as_ps()).max().expect("it gets all")
    };
    assert!(MODELS.map(through).iter().all(|last| *last > 2 * alone), "{alone}");
}

#[test]
fn a_limit_holds_for_its_time() {
    let (from, until) = (Instant::ZERO + Duration::from_us(2), Instant::ZERO + Duration::from_us(10));
    let slow = HostLimit { send_packets_per_second: Some(1_000_000), from, until, ..limit(0) };
    let taken_in = times(&lossless(SwitchModel::OutputQueued, vec![slow]).errand(0, Errand::to(1, 100, 256)));
    let unlimited = times(&lossless(SwitchModel::OutputQueued, Vec::new()).errand(0, Errand::to(1, 100, 256)));
    assert_eq!(taken_in[..5], unlimited[..5]);
    let late = taken_in[99] - unlimited[99];
    assert!((6_000_000..=12_000_000).contains(&late), "{late}");
}
