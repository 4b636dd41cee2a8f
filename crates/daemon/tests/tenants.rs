//! Who may join, and as whom: what a stranger, another tenant and another worker of the same job cannot do.

mod common;

use std::fs;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{Rank, config, join, loopback, run_job_with, until};
use fanin_control::{Attach, ClientError, FabricFile, Join, Refusal, SwitchMessage, Token};
use fanin_daemon::{Daemon, DaemonConfig, DaemonHandle, StartError};
use fanin_fabric::Fabric;
use fanin_trust::token::PrivateKey;
use fanin_trust::{Protection, Rights};

/// A switch with keys in a file.
struct Guarded {
    daemon: DaemonHandle,
    file: PathBuf,
    key: PrivateKey,
}

fn now_s() -> i64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_secs() as i64
}

fn table(name: &str, key: &PrivateKey) -> String {
    format!("[[key]]\nname = \"{name}\"\npublic = \"{}\"\n", key.public().unwrap())
}

impl Guarded {
    fn start(name: &str, quotas: &str) -> Guarded {
        let key = PrivateKey::random().unwrap();
        let file = std::env::temp_dir().join(format!("fanin-{}-{name}.toml", std::process::id()));
        fs::write(&file, table("one", &key) + quotas).unwrap();
        let daemon = Daemon::start(DaemonConfig { keys: Some(file.clone()), packets: Protection::Mac, ..config() }).unwrap();
        Guarded { daemon, file, key }
    }

    fn at(&self) -> SocketAddr {
        self.daemon.control_address()
    }

    fn token(&self, tenant: &str, job: &str, ranks: Option<&str>) -> Option<Token> {
        let ranks = ranks.map(|ranks| ranks.parse().unwrap());
        let rights = Rights { tenant: tenant.into(), jobs: vec![job.into()], ranks, made_s: now_s(), until_s: now_s() + 60 };
        Some(Token(self.key.sign("one", &rights).unwrap()))
    }

    /// Why a request is refused.
    fn refused(&self, join: Join) -> (Refusal, String) {
        match Rank::join(self.at(), join).end() {
            ClientError::Refused(refused) => (refused.code, refused.text),
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.file);
    }
}

#[test]
fn a_stranger_or_another_worker_takes_nobodys_rank() {
    let switch = Guarded::start("ranks", "");
    let of_rank = |rank: u32| switch.token("red", "train", Some(&rank.to_string()));
    // The stranger comes first, as rank 3 and as every other.
    for token in [None, Some(Token("v4.public.x".into())), switch.token("red", "other", None), of_rank(2)] {
        let (code, text) = switch.refused(Join { token, ..join("train", 3, 4) });
        assert_eq!(code, Refusal::Unauthorized, "{text}");
        assert!(text.contains("rank 3 of job `train`"), "{text}");
    }
    run_job_with(switch.at(), &|rank| Join { token: of_rank(rank), ..join("train", rank, 4) }, 4, 5_000, 10);
}

#[test]
fn tenants_with_jobs_of_one_name_do_not_meet_and_cannot_come_back_as_each_other() {
    let switch = Guarded::start("names", "");
    let of = |tenant: &str, rank| Join { token: switch.token(tenant, "train", None), ..join("train", rank, 2) };
    let mut red = [Rank::join(switch.at(), of("red", 0)), Rank::join(switch.at(), of("red", 1))];
    // It is not told that there is such a job: its own has one rank, which waits.
    let mut blue = Rank::join(switch.at(), of("blue", 0));
    assert!(matches!(blue.next(), Ok(SwitchMessage::Waiting { missing_count: 1, .. })));
    let instance = red.each_mut().map(|rank| rank.admitted().unwrap().instance)[0];
    let (code, _) = switch.refused(Join { attach: Some(Attach { instance }), ..of("blue", 1) });
    assert_eq!(code, Refusal::UnknownInstance);
    red.into_iter().for_each(Rank::die);
    run_job_with(switch.at(), &|rank| of("green", rank), 2, 2_000, 3);
}

#[test]
fn every_rank_is_told_its_own_keys_and_no_others() {
    let switch = Guarded::start("keys", "");
    let of = |rank| Join { token: switch.token("red", "*", None), ..join("keys", rank, 3) };
    let ranks: Vec<Rank> = (0..3).map(|rank| Rank::join(switch.at(), of(rank))).collect();
    let mut secrets: Vec<String> = ranks
        .into_iter()
        .map(|mut rank| {
            let admitted = rank.admitted().unwrap();
            assert!(!format!("{admitted:?}").contains(&String::from(admitted.keys[0].secret.clone())));
            assert_eq!((admitted.keys.len(), admitted.keys[0].protection), (1, Protection::Mac));
            String::from(admitted.keys[0].secret.clone())
        })
        .collect();
    secrets.sort();
    secrets.dedup();
    assert_eq!(secrets.len(), 3);
}

#[test]
fn a_tenant_has_no_more_than_its_quota_and_others_have_room() {
    let quotas = "[quota]\njobs_max = 3\nmemory_max = \"8MiB\"\n[tenant.busy]\njoins_per_minute = 5\n";
    let switch = Guarded::start("quotas", quotas);
    let of = |tenant: &str, job: &str, rank, world| Join { token: switch.token(tenant, "*", None), ..join(job, rank, world) };
    let waiting: Vec<Rank> = (0..3).map(|job| Rank::join(switch.at(), of("red", &format!("w{job}"), 0, 2))).collect();
    // All three are there before the fourth comes.
    let _waiting: Vec<Rank> = waiting
        .into_iter()
        .map(|mut rank| {
            assert!(matches!(rank.next(), Ok(SwitchMessage::Waiting { .. })));
            rank
        })
        .collect();
    let (code, text) = switch.refused(of("red", "w3", 0, 2));
    assert!(code == Refusal::Full && text.contains("tenant red has 3 of 3 jobs"), "{text}");
    // A window that needs more than it may have.
    let large = of("blue", "large", 0, 1);
    let wish = fanin_control::JobWish { window: Some(4_096), payload_bytes: Some(8_192), ..large.wish };
    let (code, text) = switch.refused(Join { wish, path_datagram_bytes: 9_000, ..large });
    assert!(code == Refusal::Full && text.contains("tenant blue has 0 of 8 MiB"), "{text}");
    let small = |rank| Join { wish: fanin_control::JobWish { window: Some(16), ..join("", 0, 1).wish }, ..of("blue", "small", rank, 2) };
    run_job_with(switch.at(), &small, 2, 2_000, 3);
    for round in 0..5 {
        let (code, _) = switch.refused(Join { world: 0, ..of("busy", &round.to_string(), 0, 1) });
        assert_eq!(code, Refusal::Invalid);
    }
    let (code, text) = switch.refused(of("busy", "sixth", 0, 1));
    assert!(code == Refusal::Full && text.contains("5 times in this minute"), "{text}");
}

#[test]
fn jobs_of_a_tenant_go_no_faster_together_than_it_may_and_others_do_not_wait_for_them() {
    // 10 MB a second.
    let switch = Guarded::start("rates", "[tenant.slow]\nbandwidth_max = \"80Mb/s\"\n");
    let of = |tenant: &str, job: &str, rank| Join { token: switch.token(tenant, "*", None), ..join(job, rank, 2) };
    let (begun, at, of) = (Instant::now(), switch.at(), &of);
    thread::scope(|scope| {
        // Two ranks of either send 4 MB: 16 MB.
        let slow = ["one", "other"].map(|job| scope.spawn(move || run_job_with(at, &|rank| of("slow", job, rank), 2, 200_000, 5)));
        run_job_with(at, &|rank| of("quick", "all", rank), 2, 200_000, 5);
        assert!(slow.iter().any(|job| !job.is_finished()), "nobody waits for others' quotas");
    });
    assert!(begun.elapsed() > Duration::from_millis(1_400), "{:?}", begun.elapsed());
}

#[test]
fn the_manager_of_a_fabric_refuses_rates_that_it_cannot_keep() {
    let key = PrivateKey::random().unwrap();
    let file = std::env::temp_dir().join(format!("fanin-{}-managed.toml", std::process::id()));
    fs::write(&file, table("one", &key) + "[quota]\nfuel_per_second = 1_000_000").unwrap();
    let text = "[defaults]\nrate = \"1Gb/s\"\n[leaf_spine]\nleaves = 2\nspines = 1\nhosts_per_leaf = 1\n";
    let described = FabricFile { name: "fabric.toml".into(), text: text.into() };
    let manager = DaemonConfig::manager(loopback(), Fabric::parse("fabric.toml", text).unwrap(), described).unwrap();
    let refused = Daemon::start(DaemonConfig { keys: Some(file.clone()), ..manager });
    assert!(
        matches!(refused, Err(StartError::Keys(text)) if text.contains("quota: bandwidth_max and fuel_per_second are kept by one switch"))
    );
    fs::remove_file(file).unwrap();
}

#[test]
fn keys_are_changed_while_the_switch_runs() {
    let switch = Guarded::start("rotation", "");
    let old = |rank| Join { token: switch.token("red", "*", None), ..join("old", rank, 1) };
    run_job_with(switch.at(), &old, 1, 100, 1);
    let next = PrivateKey::random().unwrap();
    let rights = Rights { tenant: "red".into(), jobs: vec!["*".into()], ranks: None, made_s: now_s(), until_s: now_s() + 60 };
    let new = |rank| Join { token: Some(Token(next.sign("two", &rights).unwrap())), ..join("new", rank, 1) };
    assert!(switch.refused(new(0)).1.contains("key \"two\""));
    // What cannot be read changes nothing.
    fs::write(&switch.file, "[[key]]\nname = 7").unwrap();
    std::thread::sleep(std::time::Duration::from_millis(1_100));
    run_job_with(switch.at(), &old, 1, 100, 1);
    fs::write(&switch.file, table("two", &next)).unwrap();
    until("the new key is read", || {
        let mut rank = Rank::join(switch.at(), new(0));
        matches!(rank.next(), Ok(SwitchMessage::Admitted(_) | SwitchMessage::Waiting { .. }))
    });
    assert!(switch.refused(old(0)).1.contains("key \"one\""));
}

#[test]
fn a_switch_does_not_start_without_keys_that_it_was_told_of() {
    let missing = Daemon::start(DaemonConfig { keys: Some("/nowhere/keys.toml".into()), ..config() });
    assert!(matches!(missing, Err(StartError::Keys(text)) if text.contains("/nowhere/keys.toml")));
    let in_kernel = Daemon::start(DaemonConfig { packets: Protection::Mac, xdp: vec!["lo".into()], ..config() });
    assert!(matches!(in_kernel, Err(StartError::NoPacketKeys(..))));
}
