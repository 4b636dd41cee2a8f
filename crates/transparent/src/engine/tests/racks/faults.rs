//! Workers that die, switches that are restarted, cut off, or not there, and jobs that clash: nobody gets a wrong sum, and all are told why.

use super::*;

/// What was received of whole messages that claim to be sums of all: each must be right.
fn check_claims(job: &Job, seed: u64) {
    for (rank, receiver) in job.receivers.iter().enumerate() {
        let (mut at, reach) = (0, receiver.there.reach(0) as usize);
        while let Ok(header) = MessageHeader::parse(&receiver.bytes[at..reach.max(at)]) {
            let (sealed, end) = (at + header.sealed_bytes() as usize, at + header.stream_bytes() as usize);
            if end > reach {
                break;
            }
            let holds = receiver.bytes[sealed..end] == seal(checksum(0, &receiver.bytes[at..sealed]));
            if holds && header.summed == header.world {
                assert!(
                    receiver.bytes[at..end] == job.expected[at..end],
                    "seed {seed}: rank {rank}'s successor has a wrong sum with a seal"
                );
            }
            at = end;
        }
    }
}

/// Runs a job for a while, and calls `what` once half of it is there.
pub(super) fn disturbed(racks: &mut Racks, job: &mut Job, seed: u64, what: impl FnOnce(&mut Racks, &Job)) {
    let mut what = Some(what);
    for step in 0..60_000 {
        let draw = racks.draw();
        job.speak(racks, draw);
        let reached = if what.is_none() && step % 8 == 0 { racks.pass(2_000) } else { racks.step() };
        job.take(racks, &reached);
        let half = job.receivers.iter().all(|receiver| receiver.there.reach(0) as usize > job.expected.len() / 2);
        if let (true, Some(what)) = (half, what.take_if(|_| half)) {
            what(racks, job);
        }
        check_claims(job, seed);
        if what.is_none() && (0..job.flows.len()).all(|rank| job.is_reset[rank] || job.receivers[rank].ended) {
            return;
        }
    }
    panic!("seed {seed}: somebody waits for ever: reset {:?}, told {:?}", job.is_reset, job.told);
}

#[test]
fn a_worker_that_dies_is_named_in_all_racks() {
    for seed in 0..24u64 {
        let (homes, above) = SHAPES[seed as usize % SHAPES.len()];
        let mut racks = Racks::new(seed, homes, above, 4_096);
        let hosts: Vec<usize> = (0..homes.len()).collect();
        let mut job = Job::new(5, &hosts, 8_000, &[301, 0, 7, 1_200]);
        job.open(&mut racks);
        let dead = (seed / 3) as usize % hosts.len();
        let by_fin = seed % 2 == 0;
        disturbed(&mut racks, &mut job, seed, |racks, job| {
            let at = job.receivers[dead].there.reach(0) as u32;
            let set = |tcp: &mut TcpHeader| {
                (tcp.rst, tcp.fin, tcp.sequence_number, tcp.acknowledgment_number) = (!by_fin, by_fin, BASE.wrapping_add(at), 100);
            };
            racks.send(host(&job.flows[dead].from), &frame(job.flows[dead], &[], (racks.now_us / 4) as u32, set));
            let before = (dead + hosts.len() - 1) % hosts.len();
            let set = |tcp: &mut TcpHeader| (tcp.rst, tcp.sequence_number) = (true, 100);
            racks.send(host(&job.flows[before].to), &frame(job.flows[before].reverse(), &[], 1, set));
        });
        let name = format!("rank {dead} ");
        let told: Vec<&String> = job.told.iter().flatten().collect();
        // Whoever has sent to the dead one may have heard it from its kernel.
        assert!(
            told.len() >= hosts.len() - 2 && !told.is_empty() && told.iter().all(|why| why.contains(&name)),
            "seed {seed}, dead {dead}: {told:?}"
        );
        assert!(racks.switches.iter().all(|switch| switch.rings.is_empty() && switch.runs.is_empty() && switch.held_bytes == 0));
    }
}

#[test]
fn a_switch_that_is_restarted_costs_the_ring_and_no_sum_is_wrong() {
    for seed in 0..35u64 {
        let (homes, above) = SHAPES[seed as usize % SHAPES.len()];
        let mut racks = Racks::new(seed, homes, above, 4_096);
        (racks.loss, racks.doubles) = (seed % 2 * 15, seed % 4 == 1);
        let hosts: Vec<usize> = (0..homes.len()).collect();
        let mut job = Job::new(5, &hosts, 8_000, &[301, 0, 7, 1_200]);
        job.open(&mut racks);
        job.drops_old = true;
        let restarted = (seed / 7) as usize % above.len();
        let is_needed = racks.switches[restarted].config.uplink.is_none() && above.len() == 2 || homes.contains(&restarted);
        disturbed(&mut racks, &mut job, seed, |racks, _| racks.restart(restarted, 4_096));
        if is_needed {
            let told: Vec<&String> = job.told.iter().flatten().collect();
            let words = ["was restarted", "as it was sent", "has ended"];
            assert!(!told.is_empty() && told.iter().all(|why| words.iter().any(|word| why.contains(word))), "seed {seed}: {told:?}");
        }
        // The next run is none the worse for it.
        racks.loss = 0;
        job.flows.iter().for_each(|flow| racks.acknowledge(*flow, job.expected.len() as u64 + 1));
        let mut next = Job::new(5, &hosts, 9_000, &[20, 300]);
        racks.pass(1_000_000);
        next.open(&mut racks);
        disturbed(&mut racks, &mut next, seed, |_, _| {});
        next.check(seed);
    }
}

#[test]
fn a_cable_that_is_cut_ends_the_ring_on_both_sides() {
    for (cut_at, seed) in [(0usize, 1u64), (1, 2)] {
        let mut racks = Racks::new(seed, &[0, 0, 1, 1], &[None, Some(0)], 4_096);
        let mut job = Job::new(5, &[0, 1, 2, 3], 8_000, &[301, 1_200]);
        let beside = Job::new(6, &[0, 1], 9_000, &[10]);
        job.open(&mut racks);
        beside.open(&mut racks);
        disturbed(&mut racks, &mut job, seed, |racks, _| {
            // Nothing leaves one of them any more, to the other.
            let (from, port) = if cut_at == 0 { (0, 2) } else { (1, 2) };
            racks.cables[from][port] = NOWHERE;
        });
        assert_eq!(racks.switches[0].trunks.len(), usize::from(cut_at == 0), "a switch below that is not heard is none");
        let told: Vec<&String> = job.told.iter().flatten().collect();
        assert!(!told.is_empty() && told.iter().all(|why| why.contains("no transparent switch answers behind interface")), "{told:?}");
        assert!(beside.told.iter().all(Option::is_none) && beside.is_reset == [false; 2]);
        // The cable is plugged in again.
        racks.cables[0][2] = End::Switch(1, 2);
        racks.cables[1][2] = End::Switch(0, 2);
        racks.pass(2_000_000);
        let mut next = Job::new(5, &[0, 1, 2, 3], 8_500, &[301, 200]);
        next.open(&mut racks);
        disturbed(&mut racks, &mut next, seed, |_, _| {});
        next.check(seed);
    }
}

#[test]
fn workers_are_told_where_no_switch_is_above() {
    let mut racks = Racks::new(1, &[0, 0, 1], &[None, Some(0)], 4_096);
    // What is behind the uplink only forwards.
    racks.restart(0, 4_096);
    racks.restart(1, 4_096);
    racks.deaf = Some(0);
    let mut job = Job::new(5, &[0, 1, 2], 8_000, &[30]);
    job.open(&mut racks);
    for _ in 0..500 {
        racks.data(job.flows[2], 0, &job.streams[2], false);
        let reached = racks.pass(10_000);
        job.take(&mut racks, &reached);
    }
    assert!(job.told[2].as_ref().is_some_and(|why| why.contains("no transparent switch answers behind interface s1p1")), "{:?}", job.told);
}

#[test]
fn jobs_with_one_number_in_different_racks_never_get_each_others_sums() {
    // One job each in its own rack is nobody's business; over both racks they clash.
    for (a, b, clash) in [([0, 1], [2, 3], false), ([0, 2], [1, 3], true), ([0, 2], [3, 1], true), ([0, 3], [2, 3], true)] {
        for seed in 0..6u64 {
            let mut racks = Racks::new(seed, &[0, 0, 1, 1], &[None, Some(0)], 4_096);
            let mut jobs = [Job::new(77, &a, 8_000, &[100]), Job::new(77, &b, 9_000, &[120])];
            jobs.iter().for_each(|job| job.open(&mut racks));
            for step in 0..6_000 {
                let draw = racks.draw();
                jobs[step % 2].speak(&mut racks, draw);
                let reached = racks.step();
                jobs.iter_mut().for_each(|job| job.take(&mut racks, &reached));
            }
            jobs.iter().for_each(|job| check_claims(job, seed));
            let told: Vec<String> = jobs.iter().flat_map(|job| job.told.iter().flatten().cloned()).collect();
            if clash {
                let words = ["two jobs have the same ring number", "another job has", "another `bytes`", "has ended"];
                assert!(!told.is_empty(), "{a:?} {b:?} seed {seed}: nobody was told");
                assert!(told.iter().all(|why| words.iter().any(|word| why.contains(word))), "{a:?} {b:?} seed {seed}: {told:?}");
            } else {
                assert!(told.is_empty() && jobs.iter().all(Job::is_done), "{a:?} {b:?} seed {seed}: {told:?}");
            }
        }
    }
}

#[test]
fn one_run_after_the_other_by_the_same_number_is_exact() {
    for seed in 0..6u64 {
        let mut racks = Racks::new(seed, &[1, 1, 2, 2], &[None, Some(0), Some(0)], 4_096);
        (racks.loss, racks.doubles) = (seed % 3 * 15, seed % 2 == 1);
        for round in 0..4u16 {
            let mut job = Job::new(5, &[0, 2, 1, 3], 8_000 + 10 * round, &[100 + usize::from(round), 50]);
            let loss = racks.loss;
            job.open(&mut racks);
            run(&mut racks, std::slice::from_mut(&mut job), seed);
            racks.loss = loss;
        }
    }
}

#[test]
fn frames_of_other_switches_never_panic_whatever_they_say() {
    use crate::trunk::message::Said;
    let mut racks = Racks::new(5, &[0, 0, 1, 1], &[None, Some(0)], 4_096);
    let mut job = Job::new(5, &[0, 1, 2, 3], 8_000, &[301, 1_200]);
    job.open(&mut racks);
    for step in 0..30_000u64 {
        let draw = racks.draw();
        job.speak(&mut racks, draw);
        if step % 50 == 49 {
            // A switch says something that it should not, about a run that there is, in the right session.
            let number = (draw >> 20) as usize & 1;
            let port = 2;
            let (small, byte) = (draw >> 40 & 0xfff, (draw >> 30) as u8);
            let run = draw >> 55 & 1;
            let said = match draw >> 24 & 0xf {
                0 => Said::Begin { memory: small, ranks: vec![0, 1] },
                1 => Said::Part { offset: small, bytes: vec![byte; 1 + small as usize % 900] },
                2 => Said::Whole { offset: small, bytes: vec![byte; 1 + small as usize % 900] },
                3 => Said::Room { to: small * 100 },
                4 => Said::Released { to: small * 100 },
                5 => Said::End { rank: byte.into(), of: byte.into(), at: small },
                6 => Said::Rank { ring: 5, world: 4, rank: u16::from(byte % 6), flow: job.flows[byte as usize % 4] },
                7 => Said::Over,
                8 => Said::Closing,
                _ => {
                    let heads = frame(job.flows[byte as usize % 4], &[1; 40], 1, |_| {});
                    let payload_bytes = if byte & 1 == 0 { 40 } else { small as u16 };
                    let heads = heads[..heads.len() - 40].to_vec();
                    let stub = crate::trunk::message::Stub { payload_bytes, gso_type: byte, gso_bytes: 9, header_bytes: 7, heads };
                    Said::Segment { rank: u16::from(byte % 6), offset: small, stub }
                }
            };
            racks.switches[number].say(port, run, &said);
        }
        let reached = racks.step();
        // Sums may be wrong where a switch lies; this one is about all others.
        for (_, frame) in &reached {
            if Segment::parse(frame).is_some_and(|segment| segment.flags.rst) {
                let mut again = Job::new(5, &[0, 1, 2, 3], 8_000 + (step as u16 / 4 % 5_000), &[301, 1_200]);
                again.open(&mut racks);
                std::mem::swap(&mut job, &mut again);
                break;
            }
        }
        for (to, frame) in &reached {
            let Some(segment) = Segment::parse(frame) else { continue };
            if let Some(rank) = job.flows.iter().position(|flow| *flow == segment.flow && host(&flow.to) == *to) {
                let at = u64::from(segment.sequence.wrapping_sub(BASE)).min(1 << 20);
                job.receivers[rank].there.insert(at..at + u64::from(segment.payload_bytes()));
                let reach = job.receivers[rank].there.reach(0).min(job.expected.len() as u64);
                racks.acknowledge(job.flows[rank], reach);
            }
        }
    }
}

#[test]
fn a_worker_that_claims_to_be_a_switch_disturbs_no_ring() {
    let mut racks = Racks::new(4, &[0, 0, 0], &[None], 4_096);
    let mut job = Job::new(5, &[0, 1, 2], 8_000, &[301, 200]);
    job.open(&mut racks);
    let mut other = crate::trunk::Trunk::new(Instant::ZERO, 77, crate::trunk::Role::Below);
    for rank in 0..3 {
        racks.data(job.flows[rank], 0, &job.streams[rank][..200], false);
    }
    let reached = racks.pass(200);
    job.take(&mut racks, &reached);
    let mut greeting = Vec::new();
    other.flush(Instant::ZERO, |frame| greeting = frame.to_vec());
    racks.send(1, &greeting);
    racks.pass(200);
    let statistics = racks.switches[0].statistics();
    assert_eq!((statistics.trunk_strange, racks.switches[0].trunks.len()), (1, 0));
    disturbed(&mut racks, &mut job, 4, |_, _| {});
    job.check(4);
}
