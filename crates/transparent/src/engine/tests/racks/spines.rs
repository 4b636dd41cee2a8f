//! What a switch knows of rings that it only relays, or that others sum with it: for how long, of whom, and how much.

use super::faults::disturbed;
use super::*;

const RACKS: usize = 4;

/// The long pause of a job that waits for its workers, and not for a sum.
fn be_patient(racks: &mut Racks) {
    racks.switches.iter_mut().for_each(|switch| switch.config.patience = Duration::from_us(8_000_000_000));
}

#[test]
fn a_spine_relays_a_connection_for_as_long_as_its_ring_lasts() {
    for (shape, seed) in [(RACKS, 1u64), (RACKS, 2), (6, 3)] {
        let (homes, above) = SHAPES[shape];
        let mut racks = Racks::new(seed, homes, above, 4_096);
        be_patient(&mut racks);
        let hosts: Vec<usize> = (0..homes.len()).collect();
        let mut job = Job::new(5, &hosts, 8_000, &[301, 0, 7, 1_200]);
        job.open(&mut racks);
        disturbed(&mut racks, &mut job, seed, |racks, _| {
            // An hour, and more ordinary connections than are looked at.
            racks.pass(3_601_000_000);
            for switch in &mut racks.switches {
                let flows: Vec<Flow> = switch.streams.iter().filter(|(_, stream)| stream.is_idle()).map(|(flow, _)| *flow).collect();
                while switch.make_room() {}
                assert!(flows.iter().all(|flow| !switch.streams.contains_key(flow)), "what is idle makes room");
            }
        });
        job.check(seed);
        assert!(job.told.iter().all(Option::is_none), "seed {seed}: {:?}", job.told);
        // With the ring what was kept for it goes.
        for _ in 0..3 {
            job.flows.iter().for_each(|flow| racks.acknowledge(*flow, job.expected.len() as u64 + 1));
            racks.pass(30_000);
        }
        racks.pass(3_601_000_000);
        assert!(racks.switches.iter().all(|switch| switch.rings.is_empty() && switch.streams.is_empty()), "seed {seed}");
    }
}

#[test]
fn rings_that_a_spine_relays_are_not_taken_for_each_other() {
    for seed in 0..3u64 {
        let mut racks = Racks::new(seed, &[1, 2], &[None, Some(0), Some(0)], 4_096);
        // Two rings over the same hosts, each rank with a port of its own.
        let mut jobs = [Job::new(10, &[0, 1], 8_000, &[400]), Job::new(11, &[0, 1], 8_100, &[300])];
        for (job, ports) in jobs.iter_mut().zip([[7_001, 7_000], [7_000, 7_001]]) {
            job.flows.iter_mut().zip(ports).for_each(|(flow, port)| flow.to.set_port(port));
        }
        jobs[0].open(&mut racks);
        while jobs[0].receivers[0].there.reach(0) == 0 {
            let draw = racks.draw();
            jobs[0].speak(&mut racks, draw);
            let reached = racks.step();
            jobs[0].take(&mut racks, &reached);
        }
        jobs[1].open(&mut racks);
        run(&mut racks, &mut jobs, seed);
    }
}

#[test]
fn ordinary_connections_between_other_switches_are_forgotten_with_their_first_byte() {
    let mut racks = Racks::new(1, &[1, 2], &[None, Some(0), Some(0)], 4_096);
    let flow = Flow { from: at(0, 5_000), to: at(1, 22) };
    racks.open(flow);
    assert!(racks.switches[0].streams.contains_key(&flow));
    racks.data(flow, 0, b"SSH-2.0", false);
    let reached = racks.pass(200);
    assert!(reached.iter().any(|(host, frame)| *host == 1 && frame.ends_with(b"SSH-2.0")));
    assert!(racks.switches.iter().all(|switch| switch.streams.is_empty()));
}

/// A worker of another job with the ring's number begins; whether it is reset, and what it is told.
fn intrude(racks: &mut Racks, flow: Flow, rank: usize, world: usize) -> (bool, String) {
    racks.open(flow);
    racks.data(flow, 0, &stream(5, rank, world, &[90])[..300], false);
    let (mut is_reset, mut told) = (false, String::new());
    for (_, frame) in racks.pass(3_000) {
        if let Some(segment) = Segment::parse(&frame).filter(|segment| segment.flow == flow.reverse()) {
            is_reset |= segment.flags.rst;
            told.extend(parse_reason(&frame[segment.payload()]));
        }
    }
    (is_reset, told)
}

#[test]
fn who_comes_with_a_rank_of_another_rack_is_refused_and_the_ring_goes_on() {
    // In a rack of the ring; and in one beside it, behind the switch in the middle.
    let three: (&[usize], &[Option<usize>]) = (&[2, 2, 0, 0, 0, 0, 3], &[None, Some(0), Some(1), Some(1)]);
    for (shape, intruder) in [(SHAPES[RACKS], (0, 1)), (SHAPES[RACKS], (0, 4)), (three, (6, 3))] {
        for seed in 0..4u64 {
            let mut racks = Racks::new(seed, shape.0, shape.1, 4_096);
            let mut job = Job::new(5, &[0, 1, 2, 3, 4, 5], 8_000, &[301, 0, 7, 1_200]);
            job.open(&mut racks);
            disturbed(&mut racks, &mut job, seed, |racks, _| {
                let flow = Flow { from: at(intruder.0, 9_500), to: at(intruder.1, 9_000) };
                let (is_reset, told) = intrude(racks, flow, 3, 6);
                assert!(is_reset && told.contains("rank 3 has come, and another switch has it, too"), "{intruder:?}, seed {seed}: {told}");
            });
            job.check(seed);
            assert!(job.told.iter().all(Option::is_none), "{intruder:?}, seed {seed}: {:?}", job.told);
        }
    }
}

#[test]
fn switches_above_each_other_may_keep_different_amounts() {
    for seed in 0..12u64 {
        let small = seed as usize % 3;
        let (homes, above) = SHAPES[5];
        let mut racks = Racks::new(seed, homes, above, 8_192);
        racks.restart(small, 512);
        racks.pass(700_000);
        racks.loss = seed / 6 * 20;
        let mut job = Job::new(5, &[0, 1, 2, 3, 4], 8_000, &[301, 0, 7, 1_200]);
        job.goes_back = true;
        job.open(&mut racks);
        run(&mut racks, &mut [job], seed);
    }
}
