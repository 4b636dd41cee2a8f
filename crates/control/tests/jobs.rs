//! What the switch does in each situation that its users meet.

mod common;

use common::{PATIENCE_MS, Switch, call, join};
use fanin_control::{
    Attach, BlockRange, ByHosts, CallDescription, ClientMessage, ConnectionId, FailureKind, Hello, JobsConfig, Join, Note, OperationPlan,
    Progress, ResumeState, Segment, Source, SwitchMessage, VERSION,
};
use fanin_core::ReproducibleBy;
use fanin_systems::System;

fn switch() -> Switch {
    Switch::new(JobsConfig { seed: 5, ..JobsConfig::default() })
}

fn stalled(call: CallDescription) -> ClientMessage {
    ClientMessage::Stalled { call, idle_ms: 2_000, patience_ms: None }
}

#[test]
fn a_job_lives_from_its_first_rank_to_its_last() {
    let mut switch = switch();
    let first = switch.join(join("a", 1, 2));
    switch.pass(1_500, &[first]);
    assert!(switch.told[&first].has(&SwitchMessage::Waiting { missing: vec![0], missing_count: 1 }));
    let second = switch.join(join("a", 0, 2));
    let admitted = switch.told[&first].admitted().unwrap().clone();
    assert_eq!(switch.told[&second].admitted(), Some(&admitted));
    assert_eq!(
        admitted.peers.iter().map(|peer| (peer.rank, peer.address.to_string())).collect::<Vec<_>>(),
        [(0, "127.0.0.1:20000".into()), (1, "127.0.0.1:20001".into())]
    );
    assert_eq!(admitted.data.port(), 7_000 + admitted.job_id);
    switch.say(first, ClientMessage::Ready);
    assert!(!switch.told[&first].has(&SwitchMessage::Start), "rank 0 is not ready");
    switch.say(second, ClientMessage::Ready);
    switch.pass(60_000, &[first, second]);
    switch.say(first, ClientMessage::Leave { operation: 4 });
    assert!(switch.told[&first].closed && switch.sockets.len() == 1);
    switch.say(second, ClientMessage::Leave { operation: 4 });
    assert!(switch.sockets.is_empty() && switch.jobs.status().next().is_none() && switch.jobs.next_tick_ms().is_none());
    assert!(matches!(switch.notes.last(), Some(Note::Ended { .. })));
}

#[test]
fn a_version_that_differs_is_refused_with_both_versions() {
    let mut switch = switch();
    let connection = switch.connect();
    switch.say(connection, ClientMessage::Hello(Hello { version: 99, ..Hello::new("other 3.1") }));
    let text = switch.told[&connection].refused().unwrap();
    assert!(text.contains(&format!("version {VERSION} ")) && text.contains("version 99") && text.contains("other 3.1"), "{text}");
    assert!(matches!(switch.told[&connection].messages[0], SwitchMessage::Hello(_)) && switch.told[&connection].closed);
}

#[test]
fn the_same_rank_twice_is_refused_with_both_addresses_and_the_job_goes_on() {
    let mut switch = switch();
    let first = switch.join(join("a", 0, 2));
    let again = switch.join(join("a", 0, 2));
    let text = switch.told[&again].refused().unwrap();
    assert!(text.contains("127.0.0.1:40000") && text.contains("127.0.0.1:40001") && text.contains("rank 0"), "{text}");
    let second = switch.join(join("a", 1, 2));
    switch.ready(&[first, second]);
    let late = switch.join(join("a", 1, 2));
    assert!(switch.told[&late].refused().unwrap().contains("there already"));
    let stranger = switch.join(join("a", 2, 3));
    assert!(switch.told[&stranger].refused().unwrap().contains("runs with 2 ranks"));
    assert_eq!(switch.sockets.len(), 1);
}

#[test]
fn ranks_that_want_different_things_are_all_refused_and_told_who_wants_what() {
    type Change = fn(&mut Join);
    let cases: [(Change, &str); 8] = [
        (|join| join.world = 4, "rank 1 wants world 4 and rank 0 3"),
        (|join| join.wish.window = Some(64), "window 64 and rank 0 of the switch's choice"),
        (|join| join.wish.patience_ms = 5_000, "patience 5 s and rank 0 10 s"),
        (|join| join.wish.fixed_point = true, "fixed_point true and rank 0 false"),
        (|join| join.wish.reproducible = Some(ReproducibleBy::Element), "rank 1 wants reproducible sums by element and rank 0 none"),
        (|join| join.wish.beside = Some(System::tree(1)), "rank 1 wants reductions by tree and rank 0 none"),
        (|join| join.wish.reproducible = Some(ReproducibleBy::Block), "rank 1 wants reproducible sums by block and rank 0 none"),
        (|join| join.data = "[::1]:9".parse().unwrap(), "IPv6 and rank 0 IPv4"),
    ];
    for (change, expected) in cases {
        let mut switch = switch();
        let first = switch.join(join("a", 0, 3));
        let mut other = join("a", 1, 3);
        change(&mut other);
        let second = switch.join(other);
        let text = switch.told[&second].refused().unwrap().to_owned();
        assert!(text.contains(expected), "{text}");
        assert_eq!(switch.failure(first).0, text);
    }
}

#[test]
fn a_job_that_is_never_complete_fails_with_the_missing_ranks() {
    let mut switch = switch();
    let there: Vec<_> = [0, 2].map(|rank| switch.join(join("a", rank, 4))).to_vec();
    switch.pass(PATIENCE_MS - 100, &there);
    assert!(switch.told[&there[0]].failed().is_none());
    switch.pass(200, &there);
    for connection in there {
        assert_eq!(switch.failure(connection), ("ranks 1 and 3 of job `a` (world 4) have not joined within 10 s", Some(1)));
    }
    assert!(switch.jobs.next_tick_ms().is_none());
}

#[test]
fn a_rank_that_dies_is_named_to_all_others_and_other_jobs_go_on() {
    let mut switch = switch();
    let (a, b) = (switch.run("a", 3), switch.run("b", 2));
    switch.close(a[1]);
    switch.pass(500, &[a.clone(), b.clone()].concat());
    assert!(switch.told[&a[0]].failed().is_none(), "it may still come back");
    switch.pass(600, &[a.clone(), b.clone()].concat());
    for rank in [0, 2] {
        assert_eq!(switch.failure(a[rank]), ("rank 1 (127.0.0.1:40001) is gone: its connection was closed without a word", Some(1)));
    }
    assert!(b.iter().all(|connection| switch.told[connection].failed().is_none()) && switch.sockets.len() == 1);
}

#[test]
fn a_rank_that_says_nothing_for_too_long_is_named() {
    let mut switch = switch();
    let ranks = switch.run("a", 2);
    switch.pass(PATIENCE_MS + 100, &ranks[..1]);
    assert_eq!(switch.failure(ranks[0]), ("nothing has been heard of rank 1 (127.0.0.1:40001) for 10 s", Some(1)));
}

#[test]
fn a_rank_whose_connection_was_lost_comes_back_and_nothing_has_happened() {
    let mut switch = switch();
    let ranks = switch.run("a", 2);
    switch.say(ranks[1], ClientMessage::Share { key: "shm".into(), value: "x7".into() });
    let instance = switch.told[&ranks[0]].admitted().unwrap().instance;
    switch.close(ranks[0]);
    let attach = |instance| Join { attach: Some(Attach { instance }), ..join("a", 0, 2) };
    let back = switch.join(attach(instance));
    let told = &switch.told[&back];
    assert!(told.admitted().is_some() && told.has(&SwitchMessage::Start));
    assert!(told.has(&SwitchMessage::Shared { rank: 1, key: "shm".into(), value: "x7".into() }));
    switch.pass(5_000, &[back, ranks[1]]);
    assert!(switch.told[&back].failed().is_none());
    // The switch need not have noticed that the old connection is dead.
    let again = switch.join(attach(instance));
    assert!(switch.told[&again].admitted().is_some() && switch.told[&back].closed);
    // Somebody else's instance, and one that nobody knows.
    let stranger = switch.join(Join { attach: Some(Attach { instance: instance ^ 1 }), ..join("a", 0, 2) });
    assert!(switch.told[&stranger].refused().unwrap().contains("no job instance"));
    // Who comes back after the failure learns why.
    switch.close(again);
    switch.pass(1_100, &[ranks[1]]);
    let late = switch.join(attach(instance));
    assert_eq!(switch.failure(late), switch.failure(ranks[1]));
}

#[test]
fn a_process_that_was_started_anew_takes_the_place_of_its_dead_predecessor() {
    let mut switch = switch();
    let ranks = switch.run("a", 2);
    switch.close(ranks[0]);
    let fresh = switch.join(join("a", 0, 2));
    assert!(switch.failure(ranks[1]).0.contains("rank 0 has been started anew"));
    let other = switch.join(join("a", 1, 2));
    switch.ready(&[fresh, other]);
}

#[test]
fn a_job_of_the_same_name_can_follow_while_slow_ranks_still_leave() {
    let mut switch = switch();
    let old = switch.run("a", 2);
    switch.say(old[0], ClientMessage::Leave { operation: 1 });
    let new = switch.join(join("a", 0, 2));
    assert!(switch.told[&new].refused().is_none());
    switch.say(old[1], ClientMessage::Leave { operation: 1 });
    let other = switch.join(join("a", 1, 2));
    switch.ready(&[new, other]);
    assert_eq!(switch.sockets.len(), 1);
}

#[test]
fn a_rank_that_ends_the_job_is_named_with_its_reason() {
    let mut switch = switch();
    let ranks = switch.run("a", 3);
    let reason = format!("no disk\n\u{7}{}", "é".repeat(600));
    switch.say(ranks[1], ClientMessage::Abort { text: reason });
    let expected = format!("rank 1 has ended the job: no disk{}", "é".repeat(493));
    assert!(ranks.iter().all(|rank| switch.failure(*rank) == (expected.as_str(), Some(1))), "{:?}", switch.told);
}

#[test]
fn ranks_in_different_calls_fail_with_both_calls() {
    let mut switch = switch();
    let ranks = switch.run("a", 2);
    switch.say(ranks[0], stalled(call(3, 1_000)));
    assert!(ranks.iter().all(|rank| switch.told[rank].has(&SwitchMessage::Describe)));
    switch.say(ranks[0], ClientMessage::Call { call: call(3, 1_000) });
    switch.say(ranks[1], ClientMessage::Call { call: call(3, 500) });
    let text = "rank 1 calls allreduce of 500 f32 (sum) as operation 3 where rank 0 calls allreduce of 1000 f32 (sum)";
    assert_eq!([switch.failure(ranks[0]), switch.failure(ranks[1])], [(text, Some(1)); 2]);
}

#[test]
fn a_mismatch_seen_in_packets_is_looked_into_at_once_and_is_nothing_where_calls_agree() {
    let mut switch = switch();
    let ranks = switch.run("a", 2);
    let job_id = *switch.sockets.keys().next().unwrap();
    let answer = |switch: &mut Switch, elements: [u64; 2]| {
        switch.jobs.on_mismatch(switch.now_ms, job_id);
        switch.settle();
        for (rank, elements) in ranks.iter().zip(elements) {
            switch.say(*rank, ClientMessage::Call { call: call(3, elements) });
        }
    };
    answer(&mut switch, [7, 7]);
    assert!(switch.told[&ranks[0]].notices().is_empty() && switch.told[&ranks[0]].failed().is_none());
    answer(&mut switch, [7, 8]);
    assert!(switch.told[&ranks[0]].failed().is_none(), "not asked more than once a second");
    switch.pass(1_000, &ranks);
    answer(&mut switch, [7, 8]);
    assert!(switch.failure(ranks[0]).0.contains("allreduce of 8"));
}

/// For so long, ranks say that they are in operation 17 when they are asked, but for the last one, which has not called it. Gives when the
/// job has failed.
fn answer(switch: &mut Switch, ranks: &[ConnectionId], span_ms: u64) -> Option<u64> {
    let mut asked = vec![0; ranks.len()];
    (0..span_ms / 50).find_map(|step| {
        for (rank, connection) in ranks.iter().enumerate() {
            let describes = switch.told[connection].messages.iter().filter(|message| **message == SwitchMessage::Describe).count();
            if describes > asked[rank] && switch.open.contains(connection) {
                asked[rank] = describes;
                let doing = if rank + 1 == ranks.len() { CallDescription::idle(17) } else { call(17, 9) };
                switch.say(*connection, ClientMessage::Call { call: doing });
            }
        }
        switch.pass(50, ranks);
        switch.told[&ranks[0]].failed().is_some().then_some(step * 50)
    })
}

#[test]
fn a_rank_waits_as_long_in_a_call_as_it_says_and_the_first_that_gives_up_ends_the_waiting() {
    let stalled = |idle_ms, patience_ms| ClientMessage::Stalled { call: call(17, 9), idle_ms, patience_ms };
    // The job's patience is 10 s. Half of the call's own is believed, of what was before.
    for (said, expected_ms) in [
        (vec![stalled(1_000, Some(3_000))], 2_000..=2_200),
        (vec![stalled(9_000, Some(3_000))], 1_500..=1_700),
        (vec![stalled(2_000, Some(30_000))], 28_000..=28_200),
        (vec![stalled(2_000, Some(30_000)), stalled(0, Some(4_000))], 4_000..=4_200),
        (vec![stalled(0, Some(4_000)), stalled(2_000, Some(30_000))], 4_000..=4_200),
        (vec![stalled(2_000, None)], 8_000..=8_200),
        // Nobody waits longer than the switch allows, or not at all.
        (vec![stalled(0, Some(u64::MAX))], 40_000..=40_200),
        (vec![stalled(0, Some(0))], 0..=200),
    ] {
        let mut switch = Switch::new(JobsConfig { seed: 5, patience_ms_max: 40_000, ..JobsConfig::default() });
        let ranks = switch.run("a", 3);
        said.iter().zip(&ranks).for_each(|(message, rank)| switch.say(*rank, message.clone()));
        let failed = answer(&mut switch, &ranks, *expected_ms.end() + 1_000).unwrap();
        assert!(expected_ms.contains(&failed), "{said:?}: {failed}");
        let (text, suspect) = switch.failure(ranks[1]);
        assert!(text.contains("rank 2 has not called operation 17") && suspect == Some(2), "{text}");
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_at_once_and_fails_the_job_when_patience_is_over() {
    let mut switch = switch();
    let ranks = switch.run("a", 3);
    switch.say(ranks[0], stalled(call(17, 9)));
    answer(&mut switch, &ranks, 20_000);
    let notice = switch.told[&ranks[2]].notices()[0];
    assert_eq!(notice, "rank 2 has not called operation 17 (allreduce of 9 f32 (sum)); ranks 0 and 1 have waited for 2 s");
    let (text, suspect) = switch.failure(ranks[1]);
    assert!(text.contains("rank 2 has not called operation 17") && text.contains("10 s") && suspect == Some(2), "{text}");
    assert_eq!(switch.told[&ranks[0]].failed().unwrap().kind, FailureKind::RankLate);
}

#[test]
fn a_rank_that_comes_late_but_in_time_harms_nobody() {
    let mut switch = switch();
    let ranks = switch.run("a", 2);
    switch.say(ranks[0], stalled(call(1, 9)));
    switch.say(ranks[0], ClientMessage::Call { call: call(1, 9) });
    switch.say(ranks[1], ClientMessage::Call { call: CallDescription::idle(1) });
    assert_eq!(switch.told[&ranks[0]].notices().len(), 1);
    // It comes; the next time that they are asked both are somewhere else, and the matter is forgotten.
    switch.pass(3_000, &ranks);
    ranks.iter().for_each(|rank| switch.say(*rank, ClientMessage::Call { call: CallDescription::idle(2) }));
    switch.pass(60_000, &ranks);
    assert_eq!(switch.told[&ranks[0]].notices().len(), 1);
    assert!(switch.told[&ranks[0]].failed().is_none());
}

#[test]
fn a_rank_that_has_left_is_named_to_who_waits_for_it() {
    let mut switch = switch();
    let ranks = switch.run("a", 3);
    switch.say(ranks[2], ClientMessage::Leave { operation: 5 });
    switch.say(ranks[0], stalled(call(5, 9)));
    ranks[..2].iter().for_each(|rank| switch.say(*rank, ClientMessage::Call { call: call(5, 9) }));
    assert_eq!(
        switch.failure(ranks[1]),
        ("rank 2 has left the job, and ranks 0 and 1 wait in operation 5 (allreduce of 9 f32 (sum))", Some(2))
    );
}

#[test]
fn a_standstill_with_no_packet_from_somebody_names_it() {
    let mut switch = switch();
    let ranks = switch.run("a", 2);
    switch.jobs.on_traffic(*switch.sockets.keys().next().unwrap(), &[12, 0]);
    switch.say(ranks[0], stalled(call(0, 9)));
    ranks.iter().for_each(|rank| switch.say(*rank, ClientMessage::Call { call: call(0, 9) }));
    let notices = switch.told[&ranks[1]].notices();
    assert!(notices[0].contains("no packet from rank 1: is UDP blocked"), "{notices:?}");
}

#[test]
fn draining_lets_running_jobs_end_and_takes_no_others() {
    let mut switch = switch();
    let (running, waiting) = (switch.run("a", 1), switch.join(join("b", 0, 2)));
    switch.jobs.drain(switch.now_ms);
    switch.settle();
    assert!(switch.told[&running[0]].has(&SwitchMessage::Draining { after_ms: 30_000 }));
    assert_eq!(switch.failure(waiting).0, "the switch shuts down");
    let late = switch.join(join("c", 0, 1));
    assert!(switch.told[&late].refused().unwrap().contains("about to end"));
    assert!(!switch.jobs.is_drained());
    switch.pass(29_900, &running);
    assert!(switch.told[&running[0]].failed().is_none());
    switch.pass(200, &running);
    assert_eq!(switch.failure(running[0]).0, "the switch shuts down");
    assert!(switch.jobs.is_drained() && switch.sockets.is_empty());
}

#[test]
fn limits_are_kept_and_named() {
    let mut switch = Switch::new(JobsConfig { jobs_max: 1, connections_max: 3, memory_bytes_max: 64 << 20, ..JobsConfig::default() });
    let mut big = join("big", 0, 2);
    (big.wish.window, big.wish.payload_bytes) = (Some(65_536), Some(1_024));
    let big = switch.join(big);
    let text = switch.told[&big].refused().unwrap().to_owned();
    for part in [
        "no room for job `big`: it needs 258 MiB of memory, for a window of 65536 packets of 1024 bytes and 2 ranks",
        "64 MiB of the 64 MiB that this switch allows are free",
        "`fanin switch --memory-max`",
        "a window of at most 8192 packets (FANIN_WINDOW)",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains("wait until"), "waiting is of no use: {text}");
    switch.run("a", 1);
    let other = switch.join(join("b", 0, 1));
    let text = switch.told[&other].refused().unwrap();
    assert!(text.contains("there are 1 jobs already") && text.contains("job `a` (1 ranks, from "), "{text}");
    assert!(text.contains("`fanin switch --jobs-max`") && text.contains("wait until a job has ended"), "{text}");
    // Who has joined no job makes room for others, the oldest first; who has keeps its place.
    let many: Vec<_> = (0..3).map(|_| switch.connect()).collect();
    assert!(switch.told[&many[0]].refused().unwrap().contains("closed to make room for others"));
    assert!(switch.told[&many[2]].refused().is_none());
    switch.pass(5_100, &[]);
    assert!(switch.told[&many[1]].refused().unwrap().contains("within 5 s"));
}

/// A job whose hosts sum by themselves where there is no room.
fn join_by_hosts(name: &str, rank: u32) -> Join {
    Join { by_hosts: ByHosts::WhereFull, ..join(name, rank, 2) }
}

#[test]
fn a_job_without_room_runs_by_hosts_until_there_is_room() {
    let mut switch = Switch::new(JobsConfig { jobs_max: 1, ..JobsConfig::default() });
    let first = switch.run("a", 2);
    let second = [0, 1].map(|rank| switch.join(join_by_hosts("b", rank)));
    switch.ready(&second);
    let why = switch.told[&second[0]].admitted().unwrap().by_hosts.clone().unwrap();
    assert!(why.starts_with("no room for job `b`: there are 1 jobs already"), "{why}");
    assert_eq!((switch.sockets.len(), switch.jobs.status().filter(|job| job.by_hosts).count()), (1, 1));
    // It takes no room itself.
    let third = [0, 1].map(|rank| switch.join(join_by_hosts("c", rank)));
    switch.ready(&third);
    let all: Vec<ConnectionId> = [&first[..], &second, &third].concat();
    switch.pass(5_000, &all);
    assert!(!switch.told[&second[0]].has(&SwitchMessage::Return));
    first.iter().for_each(|connection| switch.say(*connection, ClientMessage::Leave { operation: 3 }));
    switch.pass(100, &all);
    for connection in second.iter().chain(&third) {
        assert!(switch.told[connection].has(&SwitchMessage::Return) && switch.told[connection].closed);
    }
    // Who comes back first has the room, and the other goes on by hosts.
    let back = |switch: &mut Switch, name: &str| {
        let again = [0, 1].map(|rank| {
            let resume = ResumeState { instance: 7, payload_bytes: 1_024, operation: 3, progress: Vec::new() };
            switch.join(Join { resume: Some(resume), ..join_by_hosts(name, rank) })
        });
        switch.ready(&again);
        switch.told[&again[0]].admitted().unwrap().by_hosts.is_some()
    };
    assert!(!back(&mut switch, "c"));
    assert!(back(&mut switch, "b"));
}

#[test]
fn hosts_that_cannot_reach_each_other_do_not_sum_by_themselves() {
    let mut switch = Switch::new(JobsConfig { jobs_max: 1, ..JobsConfig::default() });
    switch.run("a", 2);
    let near = switch.join(join_by_hosts("b", 0));
    let far = switch.join(Join { data: ([10, 0, 0, 9], 5_000).into(), ..join_by_hosts("b", 1) });
    for connection in [near, far] {
        let failed = switch.told[&connection].failed().unwrap();
        assert_eq!(failed.kind, FailureKind::Full);
        let expected = "hosts cannot sum by themselves instead, since rank 0 is at 127.0.0.1, where rank 1 at 10.0.0.9 does not reach it";
        assert!(failed.text.contains("no room for job `b`") && failed.text.contains(expected), "{}", failed.text);
    }
}

#[test]
fn ranks_that_want_hosts_to_sum_in_any_case_are_sent_back_when_told_so() {
    let mut switch = switch();
    let only = |rank| Join { by_hosts: ByHosts::Only("the switch at s:1 is lost".into()), ..join("a", rank, 2) };
    let ranks = [0, 1].map(|rank| switch.join(only(rank)));
    switch.ready(&ranks);
    assert_eq!(switch.told[&ranks[1]].admitted().unwrap().by_hosts.as_deref(), Some("the switch at s:1 is lost"));
    switch.pass(3_000, &ranks);
    assert!(!switch.told[&ranks[0]].has(&SwitchMessage::Return), "room is not what it waits for");
    // One that still waits for others is sent back as well; a job that is summed here stays.
    let waits = switch.join(Join { job: "b".into(), ..only(0) });
    let stays = switch.run("c", 2);
    switch.jobs.send_back();
    switch.settle();
    assert!(ranks.iter().chain([&waits]).all(|connection| switch.told[connection].has(&SwitchMessage::Return)));
    assert!(stays.iter().all(|connection| !switch.told[connection].closed));
}

#[test]
fn where_all_connections_are_ranks_the_refusal_says_whose_they_are() {
    let mut switch = Switch::new(JobsConfig { connections_max: 2, ..JobsConfig::default() });
    switch.run("a", 2);
    let third = switch.connect();
    let text = switch.told[&third].refused().unwrap();
    assert!(text.contains("there are 2 control connections already, as many as this switch allows (2 from "), "{text}");
    assert!(text.contains("`fanin switch --connections-max`"), "{text}");
}

#[test]
fn whoever_brings_one_rank_keeps_nobody_out() {
    let mut switch = Switch::new(JobsConfig { memory_bytes_max: 64 << 20, ..JobsConfig::default() });
    let large = |name: &str, rank| {
        let mut large = join(name, rank, 2);
        // A bit more than half of the memory, so that two of these have no room.
        (large.wish.window, large.wish.payload_bytes) = (Some(8_192), Some(1_024));
        large
    };
    // A stranger's job is never complete, and so takes no memory.
    let stranger = switch.join(large("stranger", 0));
    assert_eq!(switch.jobs.memory_bytes(), 0);
    let first = [switch.join(large("first", 0)), switch.join(large("first", 1))];
    switch.ready(&first);
    assert!(switch.jobs.memory_bytes() > 32 << 20);
    // Where there is no room any more, the first rank is told at once, and others that have waited are told when they are complete.
    let late = switch.join(large("late", 0));
    let text = switch.told[&late].refused().unwrap();
    assert!(text.contains("job `first` (2 ranks, from ") && text.contains("wait until a job has ended"), "{text}");
    let second = switch.join(large("stranger", 1));
    for connection in [stranger, second] {
        let failed = switch.told[&connection].failed().unwrap();
        assert_eq!(failed.kind, FailureKind::Full);
        assert!(failed.text.contains("no room for job `stranger`") && failed.text.contains("job `first`"), "{}", failed.text);
    }
}

#[test]
fn jobs_that_wait_for_ranks_are_bounded_by_address_and_in_all() {
    let config = JobsConfig::default();
    let most = config.waiting_max();
    let mut switch = Switch::new(config);
    let waits = |switch: &mut Switch, number: usize| switch.join(join(&format!("job-{number}"), 0, 2));
    for number in 0..most / 2 {
        let rank = waits(&mut switch, number);
        assert!(switch.told[&rank].refused().is_none());
    }
    let rank = waits(&mut switch, most);
    let text = switch.told[&rank].refused().unwrap();
    assert!(
        text.contains(&format!("{} jobs that were begun from ", most / 2)) && text.contains("as many as this switch allows an address"),
        "{text}"
    );
    // A job that is there already gets its ranks, and begins.
    let other = switch.join(join("job-0", 1, 2));
    assert!(switch.told[&other].admitted().is_some());
}

#[test]
fn a_short_patience_blames_nobody_whose_sign_of_life_is_a_little_late() {
    let mut switch = switch();
    let impatient = |rank| {
        let mut join = join("a", rank, 2);
        join.wish.patience_ms = 300;
        join
    };
    let ranks = [switch.join(impatient(0)), switch.join(impatient(1))];
    switch.ready(&ranks);
    switch.pass(1_500, &[]);
    assert!(switch.told[&ranks[0]].failed().is_none());
    switch.pass(1_000, &ranks[..1]);
    assert_eq!(switch.told[&ranks[0]].failed().unwrap().kind, FailureKind::RankSilent);
    assert!(switch.failure(ranks[0]).0.contains("for 2 s") && switch.failure(ranks[0]).1 == Some(1));
}

#[test]
fn a_rank_that_came_and_went_is_told_from_one_that_never_came() {
    let mut switch = switch();
    let (first, second) = (switch.join(join("a", 0, 4)), switch.join(join("a", 1, 4)));
    switch.jobs.on_closed(switch.now_ms, second);
    switch.settle();
    switch.pass(PATIENCE_MS + 100, &[first]);
    let (text, suspect) = switch.failure(first);
    assert!(text.contains("ranks 1, 2 and 3 of job `a` (world 4) have not joined within 10 s: rank 1 had joined from "), "{text}");
    assert_eq!(suspect, Some(1));
}

#[test]
fn a_patience_above_the_limit_is_refused_with_the_setting() {
    let mut switch = switch();
    let mut patient = join("a", 0, 1);
    patient.wish.patience_ms = 7_200_000;
    let patient = switch.join(patient);
    let text = switch.told[&patient].refused().unwrap();
    assert!(text.contains("patience = 7200 s") && text.contains("at most 3600 s") && text.contains("--patience-max"), "{text}");
    let mut endless = Switch::new(JobsConfig { patience_ms_max: u64::MAX, ..JobsConfig::default() });
    let mut patient = join("a", 0, 1);
    patient.wish.patience_ms = u64::MAX;
    let patient = endless.join(patient);
    endless.pass(1_000, &[patient]);
    assert!(endless.told[&patient].admitted().is_some());
}

#[test]
fn a_switch_without_sockets_says_so() {
    let mut switch = switch();
    switch.out_of_sockets = true;
    let rank = switch.join(join("a", 0, 1));
    assert_eq!(switch.failure(rank).0, "the switch cannot open the job: too many open files");
    assert!(switch.sockets.is_empty());
}

#[test]
fn a_job_whose_node_breaks_fails_alone() {
    let mut switch = switch();
    let (broken, healthy) = (switch.run("a", 2), switch.run("b", 1));
    let job_id = *switch.sockets.keys().next().unwrap();
    switch.jobs.on_broken(job_id, "its socket failed: no buffer space");
    switch.settle();
    let text = "the switch cannot go on with the job: its socket failed: no buffer space";
    assert_eq!([switch.failure(broken[0]), switch.failure(broken[1])], [(text, None); 2]);
    assert!(switch.told[&healthy[0]].failed().is_none() && switch.sockets.len() == 1);
    // A second word about it, and one about a job that is long gone, change nothing.
    switch.jobs.on_broken(job_id, "again");
    switch.settle();
    assert_eq!(switch.sockets.len(), 1);
}

#[test]
fn a_rank_that_waits_long_for_the_greeting_may_say_meanwhile_that_it_is_there() {
    let mut switch = switch();
    let ranks = [0, 1].map(|rank| {
        let connection = switch.connect();
        switch.say(connection, ClientMessage::Hello(Hello::new("test")));
        switch.say(connection, ClientMessage::Alive { sequence: 0 });
        switch.say(connection, ClientMessage::Join(Box::new(join("a", rank, 2))));
        connection
    });
    assert!(ranks.iter().all(|connection| switch.told[connection].refused().is_none()));
    switch.ready(&ranks);
}

#[test]
fn ranks_that_come_to_different_addresses_get_the_one_that_they_came_to() {
    let mut switch = switch();
    let joins = [(0, "127.0.0.1"), (1, "10.0.0.1")].map(|(rank, local)| {
        let connection = switch.connect_to(local.parse().unwrap());
        switch.say(connection, ClientMessage::Hello(Hello::new("test")));
        switch.say(connection, ClientMessage::Join(Box::new(join("a", rank, 2))));
        connection
    });
    let data = joins.map(|connection| switch.told[&connection].admitted().unwrap().data.ip().to_string());
    assert_eq!(data, ["127.0.0.1", "10.0.0.1"]);
    assert!(switch.sockets.values().next().unwrap().bind.is_unspecified());
}

#[test]
fn a_job_goes_on_at_a_restarted_switch_with_what_is_left_of_it() {
    let mut before = switch();
    let ranks = before.run("a", 2);
    let admitted = before.told[&ranks[0]].admitted().unwrap().clone();
    let state = |finished: u64| ResumeState {
        instance: admitted.instance,
        payload_bytes: admitted.payload_bytes,
        operation: 3,
        progress: vec![Progress {
            call: call(3, 9),
            finished: vec![BlockRange::new(0, finished)],
            held: vec![BlockRange::new(0, finished)],
            contributions: Vec::new(),
        }],
    };
    let rejoin =
        |rank, finished| Join { attach: Some(Attach { instance: admitted.instance }), resume: Some(state(finished)), ..join("a", rank, 2) };
    let mut after = Switch::new(JobsConfig { seed: 6, ..JobsConfig::default() });
    let back = [after.join(rejoin(0, 2)), after.join(rejoin(1, 5))];
    let segment = |first_block, blocks, source| Segment { first_block, blocks, source };
    let segments = vec![segment(2, 3, Source::Holder(1)), segment(5, 3, Source::Sum)];
    let resume = SwitchMessage::Resume { plans: vec![OperationPlan { operation: 3, segments }] };
    for connection in back {
        let told = &after.told[&connection];
        assert!(told.has(&resume) && told.admitted().unwrap().instance != admitted.instance);
        assert_eq!(told.admitted().unwrap().payload_bytes, admitted.payload_bytes);
    }
    after.ready(&back);

    // A rank that starts from the beginning does not fit ranks that go on.
    let mut after = switch();
    let old = after.join(rejoin(0, 2));
    let new = after.join(join("a", 1, 2));
    assert!(after.told[&new].refused().unwrap().contains("rank 1 wants to go on from the beginning"));
    assert!(after.failure(old).0.contains("rank 0 with job instance"));

    // A result that is lost is an error and never another sum.
    let mut lost = rejoin(1, 5);
    lost.resume.as_mut().unwrap().progress[0].held.clear();
    let mut after = switch();
    let ranks = [after.join(rejoin(0, 2)), after.join(lost)];
    assert!(after.failure(ranks[0]).0.contains("rank 0 needs block 2 of operation 3, which rank 1 has had"));
    assert!(after.sockets.is_empty());
}
