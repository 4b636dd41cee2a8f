//! What a switch knows of rings that it only relays, or that others sum with it: for how long, of whom, and how much.

use super::faults::disturbed;
use super::*;

const RACKS: usize = 4;

/// How long rings may wait.
fn be_patient(racks: &mut Racks, seconds: u64) {
    racks.switches.iter_mut().for_each(|switch| switch.config.patience = Duration::from_us(seconds * 1_000_000));
}

#[test]
fn a_spine_relays_a_connection_for_as_long_as_its_ring_lasts() {
    for (shape, seed) in [(RACKS, 1u64), (RACKS, 2), (6, 3)] {
        let (homes, above) = SHAPES[shape];
        let mut racks = Racks::new(seed, homes, above, 4_096);
        be_patient(&mut racks, 8_000);
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

/// Runs a job to its half, lets a rank be silent while all others send, and gives what they are told.
fn stalled(racks: &mut Racks, job: &mut Job, seed: u64, silent: usize) -> Vec<String> {
    be_patient(racks, 5);
    job.is_even = true;
    job.open(racks);
    let half = job.expected.len() / 2;
    for step in 0..30_000 {
        let draw = racks.draw();
        let is_half = job.receivers.iter().all(|receiver| receiver.there.reach(0) as usize > half);
        if !is_half || silent != (draw >> 8) as usize % job.flows.len() {
            job.speak(racks, draw);
        }
        let reached = if is_half && step % 4 == 0 { racks.pass(50_000) } else { racks.step() };
        job.take(racks, &reached);
        if job.is_reset.iter().all(|is_reset| *is_reset) {
            return job.told.iter().flatten().cloned().collect();
        }
    }
    panic!("seed {seed}: somebody waits for ever: {:?}", job.told);
}

#[test]
fn the_rank_that_is_waited_for_is_named_and_not_the_first_of_its_rack() {
    for seed in 0..6u64 {
        for (shape, silent) in [(0, 3), (0, 2), (0, 0), (RACKS, 3), (5, 1), (6, 3)] {
            let (homes, above) = SHAPES[shape];
            let mut racks = Racks::new(seed, homes, above, 4_096);
            let hosts: Vec<usize> = (0..homes.len()).collect();
            let mut job = Job::new(5, &hosts, 8_000, &[301, 1_200]);
            let told = stalled(&mut racks, &mut job, seed, silent);
            let name = format!("waited for rank {silent} at");
            assert!(!told.is_empty() && told.iter().all(|why| why.contains(&name)), "seed {seed}, {shape}, {silent}: {told:?}");
        }
        // Where a whole rack is silent, the switch there does not know that others wait: the one above names all of it.
        let mut racks = Racks::new(seed, SHAPES[0].0, SHAPES[0].1, 4_096);
        let mut job = Job::new(5, &[0, 1, 2, 3], 8_000, &[301, 1_200]);
        be_patient(&mut racks, 5);
        job.open(&mut racks);
        for (ranks, range) in [(0..4, 0..200), (0..2, 200..400)] {
            ranks.for_each(|rank| racks.data(job.flows[rank], range.start, &job.streams[rank][range.clone()], false));
            let reached = racks.pass(1_000);
            job.take(&mut racks, &reached);
        }
        let reached = racks.pass(9_000_000);
        job.take(&mut racks, &reached);
        let told: Vec<&String> = job.told.iter().flatten().collect();
        let name = "one of rank 2 at 10.0.0.3:8002, 3 at 10.0.0.4:8003, behind another switch";
        assert!(!told.is_empty() && told.iter().all(|why| why.contains(name)), "seed {seed}: {told:?}");
    }
}

#[test]
fn a_switch_that_has_gone_counts_as_none_and_its_counters_stay() {
    for seed in 0..4u64 {
        let mut racks = Racks::new(seed, &[0, 0, 1, 1], &[None, Some(0)], 4_096);
        let mut job = Job::new(5, &[0, 1, 2, 3], 8_000, &[301, 1_200]);
        racks.loss = 100;
        job.open(&mut racks);
        disturbed(&mut racks, &mut job, seed, |racks, _| {
            racks.loss = 0;
            let before: Vec<u64> = racks.switches.iter().map(|switch| switch.statistics().trunk_repeated).collect();
            assert!(before.iter().all(|repeated| *repeated > 0));
            (racks.cables[0][2], racks.cables[1][2]) = (NOWHERE, NOWHERE);
            racks.pass(10_000_000);
            for (switch, before) in racks.switches.iter().zip(before) {
                let statistics = switch.statistics();
                assert!(statistics.trunks == 0 && statistics.trunk_repeated >= before, "seed {seed}: {statistics:?}");
                assert!(switch.due().is_none() && switch.rings.is_empty(), "nothing waits for who is not there");
            }
        });
        (racks.cables[0][2], racks.cables[1][2]) = (End::Switch(1, 2), End::Switch(0, 2));
        racks.pass(2_000_000);
        assert!(racks.switches.iter().all(|switch| switch.statistics().trunks == 1));
        let mut next = Job::new(5, &[0, 1, 2, 3], 9_000, &[301, 200]);
        next.open(&mut racks);
        disturbed(&mut racks, &mut next, seed, |_, _| {});
        next.check(seed);
    }
}

#[test]
fn a_last_acknowledgement_that_is_lost_between_switches_is_asked_for_again() {
    for seed in 0..4u64 {
        let mut racks = Racks::new(seed, &[0, 1], &[None, Some(0)], 4_096);
        let mut job = Job::new(5, &[0, 1], 8_000, &[40]);
        job.open(&mut racks);
        let end = job.expected.len();
        for step in 0..20_000 {
            assert!(step < 19_999, "seed {seed} is stuck");
            let draw = racks.draw();
            job.speak(&mut racks, draw);
            let reached = racks.step();
            job.take(&mut racks, &reached);
            if job.is_done() {
                break;
            }
        }
        job.check(seed);
        racks.pass(30_000);
        // Both acknowledge all; what the switch above sends to the one below is lost, or the other direction's.
        let (cable, lost) = if seed % 2 == 0 { ((0, 1), 1) } else { ((1, 1), 0) };
        let to = std::mem::replace(&mut racks.cables[cable.0][cable.1], NOWHERE);
        for flow in &job.flows {
            racks.acknowledge(*flow, end as u64 + 1);
        }
        racks.pass(50);
        racks.cables[cable.0][cable.1] = to;
        racks.pass(30_000);
        assert!(racks.switches[lost].streams.contains_key(&job.flows[lost]), "seed {seed}: its sender has heard nothing");
        racks.data(job.flows[lost], end - 20, &job.streams[lost][end - 20..], true);
        let asked = |(host, frame): &(usize, Vec<u8>)| {
            let segment = Segment::parse(frame).filter(|segment| segment.flow == job.flows[lost])?;
            assert!(segment.is_whole(frame, &Offload::default()) && *host == 1 - lost, "seed {seed}");
            Some(segment.payload_bytes())
        };
        let reached: Vec<u32> = racks.pass(30_000).iter().filter_map(asked).collect();
        assert_eq!(reached, [0], "seed {seed}: nothing but headers");
        racks.acknowledge(job.flows[lost], end as u64 + 1);
        racks.pass(30_000);
        assert!(
            racks.switches.iter().all(|switch| switch.rings.is_empty() && switch.held_bytes == 0 && switch.runs.is_empty()),
            "seed {seed}"
        );
    }
}
