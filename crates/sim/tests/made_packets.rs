//! Where packets that a switch makes itself enter an input-queued switch, and whom they hold up there.

use crate::couriers::{Errand, Run, frame_ps, star};
use fanin_core::Duration;
use fanin_sim::lossless::{Arbitration, LosslessConfig, MadePackets, SwitchModel};
use fanin_sim::metrics::Ended;

const FRAME: u64 = 1024 + 57;
const CHOICES: [MadePackets; 3] = [MadePackets::OwnFifo, MadePackets::Input, MadePackets::PerOutput];
const ARBITRATIONS: [Arbitration; 3] = [Arbitration::FirstCome, Arbitration::RoundRobin, Arbitration::OldestFirst];

/// A switch of so many hosts, with outputs of one frame.
fn network(hosts: u32, made_packets: MadePackets, arbitration: Arbitration) -> Run {
    let mut run = Run::new(star(hosts));
    let (model, input_bytes, output_bytes) = (SwitchModel::InputQueued, 16 * FRAME, FRAME);
    run.network.lossless = Some(LosslessConfig { model, input_bytes, output_bytes, arbitration, made_packets, channels: 1 });
    run
}

/// When the last letter from a host arrives, in ps.
fn last_from(run: &Run, from: u32) -> u64 {
    let (result, log) = run.run();
    assert_eq!((result.ended, result.counters.dropped_total()), (Ended::JobsDone, 0));
    let arrived = log.arrived.iter().filter(|arrival| arrival.from.0 == from);
    arrived.map(|arrival| arrival.at.as_ps()).max().expect("letters arrive")
}

/// Hosts 1 to 3 flood host 0; host 4 sends to host 5, whose link is free.
#[test]
fn one_fifo_holds_up_what_goes_elsewhere_and_the_others_do_not() {
    let until = CHOICES.map(|made_packets| {
        let mut run = network(6, made_packets, Arbitration::FirstCome).errand(4, Errand::anew(5, 200, 256));
        for host in 1..=3 {
            run = run.errand(host, Errand::anew(0, 200, 256));
        }
        last_from(&run, 4)
    });
    let alone = (200 + 1) * frame_ps(256) + 600_000;
    let [own_fifo, input, per_output] = until;
    assert!(own_fifo > 2 * alone, "{until:?}, alone {alone}");
    assert_eq!((input, per_output), (alone, alone), "{until:?}");
}

/// Host 1 sends to host 0, which host 2 floods, and then to host 3, whose link is free.
#[test]
fn an_input_holds_up_what_came_by_it_and_a_queue_an_output_does_not() {
    let until = CHOICES.map(|made_packets| {
        let run = network(4, made_packets, Arbitration::FirstCome).errand(2, Errand::anew(0, 100, 256));
        let run = run.errand(1, Errand::anew(0, 50, 256)).errand(1, Errand::anew(3, 1, 256));
        let (_, log) = run.run();
        log.arrived.iter().find(|arrival| arrival.to.0 == 3).expect("it arrives").at.as_ps()
    });
    let alone = (51 + 1) * frame_ps(256) + 600_000;
    let [own_fifo, input, per_output] = until;
    assert!(2 * own_fifo > 3 * alone && 2 * input > 3 * alone, "{until:?}, alone {alone}");
    assert_eq!(per_output, alone, "{until:?}");
}

/// Long letters of host 1 and short ones of host 2 to host 0. Where both stand in one queue before the output, there is nothing to arbitrate.
#[test]
fn arbitrations_differ_where_made_packets_come_by_several_inputs() {
    let ended = |made_packets, direct: bool| {
        ARBITRATIONS.map(|arbitration| {
            let short = if direct { Errand::to(0, 400, 32) } else { Errand::anew(0, 400, 32) };
            let run = network(3, made_packets, arbitration).errand(1, Errand::anew(0, 200, 256)).errand(2, short);
            [1, 2].map(|host| last_from(&run, host))
        })
    };
    let alike = |times: &[[u64; 2]; 3]| times.iter().all(|time| *time == times[0]);
    let [own_fifo, input, per_output] = CHOICES.map(|made_packets| ended(made_packets, false));
    assert!(alike(&own_fifo) && alike(&per_output), "{own_fifo:?} {per_output:?}");
    assert!(!alike(&input), "{input:?}");
    // Beside what comes by an input of its own, what is made is one more.
    for made_packets in CHOICES {
        let times = ended(made_packets, true);
        assert!(!alike(&times), "{made_packets:?}: {times:?}");
    }
}

#[test]
fn everything_arrives_with_outputs_of_one_frame_whatever_the_choice() {
    for made_packets in CHOICES {
        for arbitration in ARBITRATIONS {
            let mut run = network(9, made_packets, arbitration);
            for host in 0..9 {
                for step in 1..9 {
                    run = run.errand(host, Errand::anew((host + step) % 9, 10, 256));
                }
            }
            run.start = fanin_core::Instant::ZERO + Duration::from_us(1);
            let (result, log) = run.run();
            assert_eq!((result.ended, log.arrived.len()), (Ended::JobsDone, 9 * 8 * 10), "{made_packets:?}, {arbitration:?}");
        }
    }
}
