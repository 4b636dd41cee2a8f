//! Random users, sensible and otherwise: whatever they do, nothing is leaked, nobody is left without an answer, and silence ends all.
#![allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`")]

mod common;

use std::collections::BTreeMap;
use std::fmt::Debug;

use common::{PATIENCE_MS, Switch, call, join};
use fanin_control::jobs::Phase;
use fanin_control::{
    Admitted, Attach, BlockRange, ByHosts, CallDescription, ClientMessage, ConnectionId, Decoder, FabricFile, FabricReply, FabricRequest,
    Hello, JobsConfig, Join, Note, Progress, Refusal, ResumeState, SwitchMessage, encode,
};
use fanin_core::hash::mix;
use proptest::prelude::*;
use proptest::test_runner::{Config, RngAlgorithm, RngSeed};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Draws from a seed or from a fuzzer's bytes.
struct Dice<'a> {
    state: u64,
    bytes: Option<&'a [u8]>,
}

impl Dice<'_> {
    fn below(&mut self, limit: u64) -> u64 {
        if let Some(bytes) = &mut self.bytes {
            let Some((first, rest)) = bytes.split_first() else { return 0 };
            *bytes = rest;
            return u64::from(*first) % limit;
        }
        self.state = mix(self.state, 1);
        self.state % limit
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn ended(&self) -> bool {
        self.bytes.is_some_and(<[u8]>::is_empty)
    }
}

const JOBS: [&str; 3] = ["a", "b", "c"];

fn random_join(dice: &mut Dice<'_>, instances: &[u64]) -> Join {
    let world = 1 + dice.below(3) as u32;
    let world = if dice.one_in(4) { 1 + dice.below(4) as u32 } else { world.min(2) };
    let mut join = join(JOBS[dice.below(3) as usize], dice.below(u64::from(world)) as u32, world);
    join.data.set_port(20_000 + dice.below(6) as u16);
    if dice.one_in(12) {
        join.wish.window = Some(dice.below(3) as u32 * 16);
    }
    join.by_hosts = match dice.below(12) {
        0..=2 => ByHosts::WhereFull,
        3 => ByHosts::Only("the switch is gone".into()),
        _ => ByHosts::Never,
    };
    if dice.one_in(5) && !instances.is_empty() {
        join.attach = Some(Attach { instance: instances[dice.below(instances.len() as u64) as usize] });
    }
    // One of the jobs has lived before, for most of its ranks.
    if join.job == "c" && !dice.one_in(6) {
        let operation = dice.below(3) as u32;
        let finished = vec![BlockRange::new(dice.below(4), 1 + dice.below(4))];
        let held = if dice.one_in(2) { finished.clone() } else { Vec::new() };
        let progress =
            vec![Progress { call: call(operation, if dice.one_in(6) { 5 } else { 9 }), finished, held, contributions: Vec::new() }];
        let operation = operation.saturating_sub(dice.below(2) as u32);
        join.resume = Some(ResumeState { instance: 1 + dice.below(8) / 7, payload_bytes: 1_024, operation, progress });
    }
    join
}

fn random_message(dice: &mut Dice<'_>, instances: &[u64]) -> ClientMessage {
    let elements = if dice.one_in(8) { 5 } else { 9 };
    let doing = if dice.one_in(4) { CallDescription::idle(dice.below(4) as u32) } else { call(dice.below(3) as u32, elements) };
    match dice.below(13) {
        0 => ClientMessage::Hello(Hello::new("test")),
        1 => ClientMessage::Join(Box::new(random_join(dice, instances))),
        2..=4 => ClientMessage::Ready,
        5 => ClientMessage::Alive { sequence: 0 },
        6 => ClientMessage::Stalled {
            call: doing,
            idle_ms: dice.below(200) * 100,
            patience_ms: dice.one_in(2).then(|| dice.below(200) * 100),
        },
        7 | 8 => ClientMessage::Call { call: doing },
        9 => ClientMessage::Share { key: "k".into(), value: "v".repeat(dice.below(40) as usize * 128) },
        10 if dice.one_in(2) => ClientMessage::Abort { text: "a reason\n".repeat(dice.below(100) as usize) },
        _ => ClientMessage::Leave { operation: dice.below(4) as u32 },
    }
}

/// What must hold at any time.
fn check(switch: &Switch) {
    let status: Vec<_> = switch.jobs.status().collect();
    let opened: Vec<u16> = status.iter().filter(|job| job.phase != Phase::Waiting && !job.by_hosts).map(|job| job.job_id).collect();
    assert_eq!(opened, switch.sockets.keys().copied().collect::<Vec<_>>(), "a socket for each job that is complete and summed here");
    for job in &status {
        assert!(job.present > 0 && job.present <= job.world, "a job without ranks: {job:?}");
        assert!(job.phase != Phase::Waiting || job.present < job.world, "a complete job waits: {job:?}");
    }
    assert!(switch.jobs.next_tick_ms().is_some() || (status.is_empty() && switch.jobs.connections() == 0));
}

/// Every rank of one job that failed was told the same; every rank of a job that is gone is closed.
fn check_ends(switch: &Switch) {
    let mut texts: BTreeMap<u64, &str> = BTreeMap::new();
    for (connection, told) in &switch.told {
        let ended = told
            .messages
            .iter()
            .filter(|message| matches!(message, SwitchMessage::Failed(_) | SwitchMessage::Refused(_) | SwitchMessage::Return))
            .count();
        assert!(ended <= 1, "{connection:?} is told twice: {told:?}");
        if ended == 1 {
            assert!(told.closed, "{connection:?} was told the end and is open: {told:?}");
        }
        let Some(admitted) = told.admitted() else { continue };
        if let Some(failed) = told.failed() {
            let text = texts.entry(admitted.instance).or_insert(&failed.text);
            assert_eq!(*text, failed.text, "all ranks of a job are told the same");
        }
        let by_hosts = switch.jobs.status().any(|job| job.by_hosts && job.job_id == admitted.job_id);
        let lives = by_hosts || switch.sockets.values().any(|open| open.instance == admitted.instance);
        assert!(lives || !switch.open.contains(connection), "{connection:?} belongs to a job that is gone");
    }
}

/// Runs random users until the dice have nothing more to say, then lets all of them go silent.
fn play(mut dice: Dice<'_>, steps: usize) -> Switch {
    let mut switch = Switch::new(JobsConfig { seed: dice.state, jobs_max: 2, connections_max: 12, ..JobsConfig::default() });
    let mut instances = Vec::new();
    for _ in 0..steps {
        if dice.ended() {
            break;
        }
        step(&mut switch, &mut dice, &mut instances);
        check(&switch);
    }
    check_ends(&switch);
    // A job may wait for its ranks, then for their readiness, then for their silence, and each for as long as its patience allows.
    switch.pass(3 * PATIENCE_MS + 10_000, &[]);
    check_ends(&switch);
    assert_eq!((switch.jobs.status().count(), switch.jobs.connections(), switch.sockets.len()), (0, 0, 0));
    assert_eq!(switch.jobs.next_tick_ms(), None);
    assert!(switch.open.is_empty(), "the switch closes what nobody uses");
    assert_eq!(switch.jobs.memory_bytes(), 0);
    switch
}

fn step(switch: &mut Switch, dice: &mut Dice<'_>, instances: &mut Vec<u64>) {
    let open: Vec<ConnectionId> = switch.open.iter().copied().collect();
    let any = |dice: &mut Dice<'_>| open.get(dice.below(open.len().max(1) as u64) as usize).copied();
    switch.out_of_sockets = dice.one_in(10);
    match dice.below(20) {
        0..=4 => drop(switch.join(random_join(dice, instances))),
        5 => drop(switch.connect()),
        6..=11 => {
            if let Some(connection) = any(dice) {
                switch.say(connection, random_message(dice, instances));
            }
        }
        12 | 13 => open.iter().for_each(|connection| say_what_fits(switch, dice, *connection)),
        14 => {
            if let Some(connection) = any(dice) {
                switch.close(connection);
            }
        }
        15 => {
            if let Some(connection) = any(dice).filter(|_| dice.one_in(3)) {
                let mut decoder = Decoder::new();
                decoder.push(&[0xff; 8]);
                let error = decoder.next::<ClientMessage>().unwrap_err();
                switch.jobs.on_garbage(connection, &error);
            }
        }
        16 => {
            if let Some(job_id) = switch.sockets.keys().next().copied() {
                switch.jobs.on_mismatch(switch.now_ms, job_id);
                switch.jobs.on_traffic(job_id, &[3, 0]);
            }
        }
        18 if dice.one_in(6) => switch.jobs.send_back(),
        17 if dice.one_in(100) => switch.jobs.drain(switch.now_ms),
        _ => {
            let ms = 50 + dice.below(40) * dice.below(40);
            switch.pass(ms, &open);
        }
    }
    switch.settle();
    let admitted = switch.told.values().rev().take(4).filter_map(|told| Some(told.admitted()?.instance));
    instances.extend(admitted);
    instances.drain(..instances.len().saturating_sub(8));
}

/// What ranks of a fabric know of jobs that a manager has admitted them to: how they have joined, and as what.
type Past = Vec<(Join, Admitted)>;

/// One rank of a fabric.
fn random_host(dice: &mut Dice<'_>) -> Join {
    let world = 1 + dice.below(3) as u32;
    let mut join = join(JOBS[dice.below(3) as usize], dice.below(u64::from(world)) as u32, world);
    // One that has no host, or that of another rank.
    join.node = (!dice.one_in(40)).then(|| format!("host{}", if dice.one_in(40) { 0 } else { join.rank }));
    join.by_hosts = if dice.one_in(2) { ByHosts::WhereFull } else { ByHosts::Never };
    join
}

/// A rank that tells a manager of a job that runs: mostly as it is, and sometimes of one that cannot be.
fn random_adoption(dice: &mut Dice<'_>, past: &Past) -> Option<Join> {
    let (join, admitted) = past.get(dice.below(past.len().max(1) as u64) as usize)?;
    let mut told = admitted.clone();
    let mut join = Join { attach: Some(Attach { instance: told.instance }), by_hosts: ByHosts::Never, ..join.clone() };
    match dice.below(24) {
        0 => told.instance ^= 1,
        1 => told.job_id = dice.below(3) as u16,
        2 => told.by_hosts = Some("the switch is gone".into()),
        3 => drop(told.peers.pop()),
        4 => told.patience_ms += 1,
        5 => told.window = 0,
        6 => join.job = JOBS[dice.below(3) as usize].into(),
        7 => join.world += 1,
        _ => {}
    }
    join.adopt = Some(Box::new(told));
    Some(join)
}

/// As [`play`], of a manager of a fabric that ends now and then: its ranks tell the next one of their jobs.
fn play_in_fabric(mut dice: Dice<'_>, steps: usize) -> Vec<Note> {
    let (mut past, mut notes, mut joins) = (Past::new(), Vec::new(), BTreeMap::new());
    let file = FabricFile { name: "fabric.toml".into(), text: String::new() };
    let manager = |seed| {
        let config = JobsConfig { seed, jobs_max: 3, connections_max: 12, fabric: Some(file.clone()), ..JobsConfig::default() };
        Switch::new(config)
    };
    let mut switch = manager(dice.state);
    for _ in 0..steps {
        if dice.ended() {
            break;
        }
        let open: Vec<ConnectionId> = switch.open.iter().copied().collect();
        let some_job = switch.sockets.keys().next_back().copied();
        match dice.below(24) {
            0..=5 => {
                let join = random_host(&mut dice);
                joins.insert(switch.join(join.clone()), join);
            }
            6..=9 => {
                if let Some(join) = random_adoption(&mut dice, &past) {
                    joins.insert(switch.join(join.clone()), join);
                }
            }
            10..=14 => open.iter().for_each(|connection| say_what_fits(&mut switch, &mut dice, *connection)),
            15 if dice.one_in(2) => {
                check_ends(&switch);
                notes.append(&mut switch.notes);
                switch = manager(dice.below(u64::from(u32::MAX)));
                joins.clear();
            }
            16 => switch.jobs.on_fabric_switch(switch.now_ms, "leaf0", dice.one_in(2)),
            17 => switch.jobs.on_fabric_jobs("leaf0", (0..dice.below(4) as u16).collect()),
            18 if dice.one_in(4) => some_job.into_iter().for_each(|job| switch.jobs.on_fabric_refusal(job, "no room".into())),
            19 if dice.one_in(4) => {
                some_job.into_iter().for_each(|job| switch.jobs.on_operator_failed(job, "leaf0: it divides by zero", None))
            }
            20 => some_job.into_iter().for_each(|job| switch.jobs.on_awaited(job, "rank 1 is late".into())),
            21 => {
                if let Some(connection) = open.get(dice.below(open.len().max(1) as u64) as usize) {
                    switch.close(*connection);
                }
            }
            _ => switch.pass(50 + dice.below(40) * dice.below(40), &open),
        }
        switch.settle();
        check(&switch);
        for (connection, join) in &joins {
            let admitted = switch.told[connection].admitted().filter(|admitted| admitted.by_hosts.is_none());
            if let Some(admitted) = admitted.filter(|admitted| past.iter().all(|(_, known)| known.instance != admitted.instance)) {
                past.push((Join { adopt: None, attach: None, ..join.clone() }, admitted.clone()));
            }
        }
        past.drain(..past.len().saturating_sub(6));
    }
    check_ends(&switch);
    switch.pass(3 * PATIENCE_MS + 30_000, &[]);
    check_ends(&switch);
    assert_eq!((switch.jobs.status().count(), switch.jobs.connections(), switch.sockets.len()), (0, 0, 0));
    assert!(switch.open.is_empty(), "the manager closes what nobody uses");
    notes.append(&mut switch.notes);
    notes
}

#[test]
fn whatever_happens_to_managers_of_a_fabric_nothing_is_left_behind() {
    let (mut adopted, mut not_adopted, mut started, mut failed) = (0, 0, 0, BTreeMap::<&str, usize>::new());
    for seed in 0..400 {
        for note in play_in_fabric(Dice { state: seed, bytes: None }, 200) {
            match note {
                Note::Admitted { resumed: true, .. } => adopted += 1,
                Note::Refused { code: Refusal::UnknownInstance, .. } => not_adopted += 1,
                Note::Started { .. } => started += 1,
                Note::Failed { kind, .. } => *failed.entry(kind.name()).or_default() += 1,
                _ => {}
            }
        }
    }
    // The walk is worth nothing where it never comes by.
    assert!(adopted > 100 && not_adopted > 100 && started > 100, "{adopted} {not_adopted} {started} {failed:?}");
    assert!(["rank_lost", "operator", "switch"].iter().all(|kind| failed.get(kind).is_some_and(|count| *count > 3)), "{failed:?}");
}

/// What a sensible rank would say now.
fn say_what_fits(switch: &mut Switch, dice: &mut Dice<'_>, connection: ConnectionId) {
    let said = switch.told[&connection].messages.iter().rev().find(|message| !matches!(message, SwitchMessage::Alive { .. }));
    let message = match said {
        Some(SwitchMessage::Admitted(_) | SwitchMessage::Resume { .. } | SwitchMessage::Shared { .. }) => ClientMessage::Ready,
        Some(SwitchMessage::Describe) => ClientMessage::Call { call: call(1, if dice.one_in(3) { 5 } else { 9 }) },
        Some(SwitchMessage::Start) if dice.one_in(2) => ClientMessage::Stalled { call: call(1, 9), idle_ms: 3_000, patience_ms: None },
        Some(SwitchMessage::Hello(_)) | None => return,
        _ => ClientMessage::Alive { sequence: 1 },
    };
    switch.say(connection, message);
}

#[test]
fn whatever_users_do_nothing_is_left_behind() {
    let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
    for seed in 0..400 {
        let switch = play(Dice { state: seed, bytes: None }, 150);
        for note in &switch.notes {
            let name = match note {
                Note::Refused { code, .. } => code.name(),
                Note::Failed { kind, .. } => kind.name(),
                Note::Started { .. } => "started",
                Note::Ended { .. } => "ended",
                Note::Attached { .. } => "attached",
                Note::Notice { .. } => "notice",
                Note::SentBack { .. } => "sent back",
                Note::Admitted { by_hosts: Some(_), .. } => "by hosts",
                _ => continue,
            };
            *seen.entry(name).or_default() += 1;
        }
    }
    // The walk is worth nothing where it never comes by.
    for name in [
        "by hosts",
        "sent back",
        "protocol",
        "invalid",
        "duplicate_rank",
        "disagreement",
        "full",
        "draining",
        "unknown_instance",
        "too_slow",
        "incomplete",
        "rank_lost",
        "rank_silent",
        "rank_left",
        "aborted",
        "mismatch",
        "result_lost",
        "switch",
        "shutdown",
        "started",
        "ended",
        "attached",
        "notice",
    ] {
        assert!(seen.get(name).is_some_and(|count| *count >= 3), "{name}: {seen:?}");
    }
}

#[test]
fn sequences_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| drop(play(Dice { state: 1, bytes: Some(bytes) }, 300)));
}

/// Whatever the bytes are: no panic, no more memory than what came, and after an error nothing but the error.
fn decodes<Message: Serialize + DeserializeOwned + PartialEq + Debug>(bytes: &[u8], cut: usize) {
    let mut decoder = Decoder::new();
    let mut failed = false;
    for piece in bytes.chunks(cut.max(1)) {
        decoder.push(piece);
        loop {
            match decoder.next::<Message>() {
                Ok(Some(message)) => {
                    assert!(!failed);
                    // What was understood can be said again in the same way.
                    let mut again = Decoder::new();
                    again.push(&encode(&message));
                    assert_eq!(again.next(), Ok(Some(message)));
                }
                Ok(None) => break,
                Err(_) => {
                    failed = true;
                    assert_eq!(decoder.pending_bytes(), 0);
                    break;
                }
            }
        }
        assert!(decoder.pending_bytes() <= bytes.len());
    }
}

#[test]
fn arbitrary_bytes_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| decodes::<ClientMessage>(bytes, 7));
}

/// What each end of a control connection is told, by its first byte: a switch by a rank, a rank by a switch, a fabric's switch by its manager, and
/// the manager by it. The length in front is put right, since a fuzzer would hardly guess it.
#[test]
fn messages_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
        let Some((kind, body)) = bytes.split_first() else { return };
        let framed = [&(body.len() as u32).to_le_bytes()[..], body].concat();
        match kind % 4 {
            0 => decodes::<ClientMessage>(&framed, 11),
            1 => decodes::<SwitchMessage>(&framed, 11),
            2 => decodes::<FabricRequest>(&framed, 11),
            _ => decodes::<FabricReply>(&framed, 11),
        }
    });
}

fn seeded(cases: u32) -> Config {
    Config { cases, rng_algorithm: RngAlgorithm::ChaCha, rng_seed: RngSeed::Fixed(17), failure_persistence: None, ..Config::default() }
}

proptest! {
    #![proptest_config(seeded(4_000))]

    #[test]
    fn arbitrary_bytes_are_harmless(bytes in prop::collection::vec(any::<u8>(), 0..200), length in 0u32..300, cut in 1usize..50) {
        decodes::<ClientMessage>(&bytes, cut);
        let framed: Vec<u8> = length.to_le_bytes().into_iter().chain(bytes).collect();
        decodes::<ClientMessage>(&framed, cut);
    }

    #[test]
    fn messages_with_damage_are_harmless(seed in any::<u64>(), at in any::<prop::sample::Index>(), byte in any::<u8>(), cut in 1usize..50) {
        let mut dice = Dice { state: seed, bytes: None };
        let mut bytes: Vec<u8> = (0..4).flat_map(|_| encode(&random_message(&mut dice, &[1, 2]))).collect();
        decodes::<ClientMessage>(&bytes, cut);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        decodes::<ClientMessage>(&bytes, cut);
    }
}
