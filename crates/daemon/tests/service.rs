//! The switch as its users meet it: jobs that run, end, fail and are refused, over real sockets on loopback.

mod common;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use common::{GUARD, Rank, allreduce, call, config, get, join, loopback, metric, run_job, run_job_with, start, until};
use fanin_control::{
    Attach, BlockRange, ClientError, ClientMessage, FailureKind, Hello, JobsConfig, Join, OperationPlan, Progress, Refusal, ResumeState,
    Segment, Source, SwitchMessage, encode,
};
use fanin_core::hash::mix;
use fanin_daemon::{Daemon, DaemonConfig};
use fanin_systems::{RingParameters, System};

/// A job whose ranks have joined and are ready, driven by nobody.
fn running(switch: SocketAddr, name: &str, world: u32) -> Vec<Rank> {
    let mut ranks: Vec<Rank> = (0..world).map(|rank| Rank::join(switch, join(name, rank, world))).collect();
    ranks.iter_mut().for_each(|rank| drop(rank.admitted().unwrap()));
    ranks.iter_mut().for_each(|rank| rank.say(ClientMessage::Ready));
    for rank in &mut ranks {
        rank.wait_for(|message| (*message == SwitchMessage::Start).then_some(())).unwrap();
    }
    ranks
}

fn text(error: &ClientError) -> String {
    error.to_string()
}

#[test]
fn jobs_of_all_sizes_and_several_systems_run_beside_each_other_and_are_exact() {
    let daemon = start();
    let switch = daemon.control_address();
    thread::scope(|scope| {
        scope.spawn(move || run_job(switch, "alone", 1, 5_000, 3));
        scope.spawn(move || run_job(switch, "two", 2, 50_000, 4));
        scope.spawn(move || run_job(switch, "four", 4, 20_000, 4));
        let tree = |rank| Join { wish: fanin_control::JobWish { system: System::tree(1), ..join("", 0, 1).wish }, ..join("tree", rank, 3) };
        scope.spawn(move || run_job_with(switch, &tree, 3, 10_000, 3));
    });
    until("all jobs have ended", || metric(&daemon, "fanin_switch_jobs_ended_total", "") == 4.0);
    assert_eq!(metric(&daemon, "fanin_switch_jobs_failed_total", ""), 0.0);
    // Of every element of every operation each rank sent one and got one; what was lost in a full buffer was sent again. A rank alone
    // needs no switch.
    let bytes = 4.0 * (2.0 * 50_000.0 * 4.0 + 4.0 * 20_000.0 * 4.0 + 3.0 * 10_000.0 * 3.0);
    until("the threads have ended", || metric(&daemon, "fanin_switch_sent_payload_bytes_total", "") >= bytes);
    assert!(metric(&daemon, "fanin_switch_received_payload_bytes_total", "") >= bytes);
    assert_eq!(metric(&daemon, "fanin_switch_broken_invariants_total", ""), 0.0);
}

#[test]
fn a_rank_that_dies_is_named_to_the_others_while_another_job_goes_on() {
    let daemon = start();
    let switch = daemon.control_address();
    let mut ranks = running(switch, "doomed", 3);
    thread::scope(|scope| {
        scope.spawn(move || run_job(switch, "healthy", 2, 40_000, 20));
        ranks.remove(1).die();
        for rank in &mut ranks {
            let ClientError::Failed(failed) = rank.end() else { panic!("not a failure") };
            assert_eq!((failed.kind, failed.suspect_rank), (FailureKind::RankLost, Some(1)));
            assert!(failed.text.contains("rank 1 (127.0.0.1:"), "{}", failed.text);
        }
    });
    assert_eq!(metric(&daemon, "fanin_switch_jobs_failed_total", "reason=\"rank_lost\""), 1.0);
    until("the healthy job has ended", || metric(&daemon, "fanin_switch_jobs_ended_total", "") == 1.0);
}

#[test]
fn another_version_is_an_error_that_names_both() {
    let daemon = start();
    let mut stream = TcpStream::connect(daemon.control_address()).unwrap();
    stream.write_all(&encode(&ClientMessage::Hello(Hello { version: 99, ..Hello::new("old 0.0") }))).unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let mut session = fanin_control::ClientSession::new();
    session.push(&bytes);
    let error = text(&session.next().unwrap_err());
    assert!(error.contains("version 99") && error.contains(&format!("version {} ", fanin_control::VERSION)), "{error}");
}

#[test]
fn a_rank_that_is_there_already_is_refused_with_both_addresses() {
    let daemon = start();
    let first = Rank::join(daemon.control_address(), join("a", 0, 2));
    let here = first.stream.local_addr().unwrap();
    until("it has joined", || metric(&daemon, "fanin_switch_job_ranks", "job=\"a\"") == 1.0);
    let mut again = Rank::join(daemon.control_address(), join("a", 0, 2));
    let there = again.stream.local_addr().unwrap();
    let ClientError::Refused(refused) = again.end() else { panic!("not refused") };
    assert_eq!(refused.code, Refusal::DuplicateRank);
    assert!(refused.text.contains(&here.to_string()) && refused.text.contains(&there.to_string()), "{}", refused.text);
}

#[test]
fn ranks_that_never_come_are_named_when_patience_is_over() {
    let daemon = start();
    let mut short = join("a", 1, 3);
    short.wish.patience_ms = 300;
    let mut rank = Rank::join(daemon.control_address(), short);
    assert_eq!(text(&rank.end()), "ranks 0 and 2 of job `a` (world 3) have not joined within 300 ms");
}

#[test]
fn ranks_that_wait_are_told_for_whom() {
    let daemon = start();
    let mut rank = Rank::join(daemon.control_address(), join("a", 1, 3));
    let missing = rank.wait_for(|message| if let SwitchMessage::Waiting { missing, .. } = message { Some(missing.clone()) } else { None });
    assert_eq!(missing.unwrap(), [0, 2]);
}

#[test]
fn garbage_on_every_port_harms_nobody() {
    let daemon = start();
    let (switch, http) = (daemon.control_address(), daemon.http_address().unwrap());
    let bytes = |seed: u64, count: u64| (0..count).map(|i| mix(seed, i) as u8).collect::<Vec<u8>>();
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let data = {
                let mut rank = Rank::join(switch, join("probe", 0, 1));
                rank.admitted().unwrap().data
            };
            // The probe is gone; its port is a stranger's now or nobody's. Neighbouring ones belong to the jobs.
            let stranger = UdpSocket::bind(loopback()).unwrap();
            let mut round = 0;
            while !done.load(Ordering::Relaxed) {
                round += 1;
                for port in [data.port(), data.port().wrapping_add(1).max(1_024)] {
                    let _ = stranger.send_to(&bytes(round, 100), SocketAddr::new(data.ip(), port));
                }
                for address in [switch, http] {
                    let mut stream = TcpStream::connect(address).unwrap();
                    // It may be closed by then.
                    let _ = stream.write_all(&bytes(round, 200)).and_then(|()| stream.write_all(b"GET / HTTP/1.1\r\n\r\n"));
                }
            }
        });
        for name in ["a", "b"] {
            run_job(switch, name, 2, 30_000, 10);
        }
        done.store(true, Ordering::Relaxed);
    });
    // Strangers' connections, which are of this address as well, are over soon.
    until("this address has room for one more", || common::try_get(http, "/healthz").is_ok());
    assert!(metric(&daemon, "fanin_switch_refusals_total", "reason=\"protocol\"") > 0.0);
    assert_eq!(get(http, "/healthz"), (200, "ok\n".into()));
    assert_eq!(get(http, "/").0, 404);
}

#[test]
fn packets_of_strangers_and_damaged_packets_are_counted_by_reason_and_sums_stay_exact() {
    let daemon = start();
    let mut ranks: Vec<Rank> = (0..2).map(|rank| Rank::join(daemon.control_address(), join("a", rank, 2))).collect();
    let admitted: Vec<_> = ranks.iter_mut().map(|rank| rank.admitted().unwrap()).collect();
    // From a stranger's socket, and from a member's own.
    let stranger = UdpSocket::bind(loopback()).unwrap();
    let member = ranks[0].socket.as_ref().unwrap().local_address();
    (0..50u64).for_each(|i| drop(stranger.send_to(&mix(i, 0).to_le_bytes(), admitted[0].data)));
    let drops = |reason: &str| metric(&daemon, "fanin_switch_job_dropped_packets_total", &format!("reason=\"{reason}\""));
    until("the stranger's packets are counted", || drops("not_a_member") == 50.0);
    drop(ranks[0].socket.take());
    let forged = UdpSocket::bind(member).unwrap();
    (0..50u64).for_each(|i| drop(forged.send_to(&mix(i, 1).to_le_bytes(), admitted[0].data)));
    until("the damaged packets are counted", || drops("malformed") == 50.0);
    drop(forged);
    ranks[0].socket = Some(fanin_net::Socket::bind(&fanin_net::SocketConfig::new(member)).unwrap());
    thread::scope(|scope| {
        for (mut rank, admitted) in ranks.into_iter().zip(admitted) {
            scope.spawn(move || {
                let mut driver = rank.driver(&admitted);
                rank.start().unwrap();
                allreduce(&mut driver, &rank, 0, 10_000, 1).unwrap();
                rank.leave(1);
            });
        }
    });
}

#[test]
fn ranks_in_different_calls_are_told_so_before_anybody_stalls() {
    let daemon = start();
    let switch = daemon.control_address();
    thread::scope(|scope| {
        for (rank, elements) in [(0, 1_000), (1, 500)] {
            scope.spawn(move || {
                let mut rank = Rank::join(switch, join("a", rank, 2));
                let admitted = rank.admitted().unwrap();
                let mut driver = rank.driver(&admitted);
                rank.start().unwrap();
                let (stop, waker) = (driver.stop_flag(), driver.waker());
                let error = thread::scope(|scope| {
                    let calls = scope.spawn(|| {
                        let mut vector = common::input(0, 0, elements);
                        let call = fanin_runtime::CollectiveCall {
                            kind: fanin_core::CollectiveKind::Allreduce,
                            op: fanin_core::ElementOp::F32_SUM,
                            element_bytes: 4,
                            op_number: fanin_systems::OfferNumbers::default().built_in(fanin_core::ElementOp::F32_SUM, false).unwrap(),
                            fixed_point: None,
                            elements: elements as u64,
                            fingerprint: elements as u32,
                        };
                        let vectors = fanin_runtime::Vectors::InPlace(&mut vector);
                        assert!(driver.collective(&call, vectors, (&mut fanin_runtime::BlockSet::default(), 0), |_| true).is_err());
                    });
                    // Nobody says that it stalls: the switch sees packets that do not fit and asks.
                    let error = loop {
                        match rank.next() {
                            Ok(SwitchMessage::Describe) => rank.say(ClientMessage::Call { call: call(0, elements as u64) }),
                            Ok(_) => {}
                            Err(error) => break error,
                        }
                    };
                    stop.store(true, Ordering::Relaxed);
                    waker.wake();
                    calls.join().unwrap();
                    error
                });
                let expected = "rank 1 calls allreduce of 500 f32 (sum) as operation 0 where rank 0 calls allreduce of 1000 f32 (sum)";
                assert_eq!(text(&error), expected);
            });
        }
    });
}

#[test]
fn a_stall_is_explained_with_who_is_missing() {
    let daemon = start();
    let mut ranks = running(daemon.control_address(), "a", 2);
    ranks[0].say(ClientMessage::Stalled { call: call(4, 9), idle_ms: 3_000, patience_ms: None });
    for (rank, doing) in [(0, call(4, 9)), (1, fanin_control::CallDescription::idle(4))] {
        ranks[rank].wait_for(|message| (*message == SwitchMessage::Describe).then_some(())).unwrap();
        ranks[rank].say(ClientMessage::Call { call: doing });
    }
    let notice = ranks[1].wait_for(|message| if let SwitchMessage::Notice { text } = message { Some(text.clone()) } else { None }).unwrap();
    assert!(notice.contains("rank 1 has not called operation 4 (allreduce of 9 f32 (sum)); rank 0 has waited"), "{notice}");
}

#[test]
fn draining_lets_jobs_end_and_then_the_switch_ends() {
    let daemon = start();
    let (switch, http) = (daemon.control_address(), daemon.http_address().unwrap());
    let mut rank = running(switch, "a", 1).remove(0);
    daemon.drain();
    rank.wait_for(|message| matches!(message, SwitchMessage::Draining { .. }).then_some(())).unwrap();
    assert_eq!(get(http, "/healthz"), (503, "draining\n".into()));
    let ClientError::Refused(refused) = Rank::join(switch, join("b", 0, 1)).end() else { panic!("not refused") };
    assert_eq!(refused.code, Refusal::Draining);
    assert!(!daemon.has_ended());
    rank.leave(0);
    daemon.wait().unwrap();
    assert!(TcpListener::bind(switch).is_ok(), "the port is free again");
}

#[test]
fn a_drain_has_a_limit_and_a_stop_has_none() {
    let drain = |daemon: &fanin_daemon::DaemonHandle| daemon.drain();
    let stop = |daemon: &fanin_daemon::DaemonHandle| daemon.stop();
    for (end, drain_ms) in [(&drain as &dyn Fn(&fanin_daemon::DaemonHandle), 100), (&stop, 3_600_000)] {
        let mut config = config();
        config.jobs.drain_ms = drain_ms;
        let daemon = Daemon::start(config).unwrap();
        let mut rank = running(daemon.control_address(), "a", 1).remove(0);
        end(&daemon);
        let ClientError::Failed(failed) = rank.end() else { panic!("not a failure") };
        assert_eq!((failed.kind, failed.text.as_str()), (FailureKind::Shutdown, "the switch shuts down"));
        drop(rank);
        daemon.wait().unwrap();
    }
}

#[test]
fn ports_for_jobs_are_the_ones_that_were_given_and_their_end_is_told() {
    // Two neighbouring ports that are free now.
    let (first, _guard) = (30_000u16..60_000)
        .step_by(7)
        .find_map(|port| {
            let bind = |port| UdpSocket::bind(SocketAddr::new(loopback().ip(), port));
            bind(port).and_then(|_| bind(port + 1)).ok().map(|guard| (port, guard))
        })
        .unwrap();
    // The guard keeps the second port: only the first is left for jobs.
    let daemon = Daemon::start(DaemonConfig { data_ports: Some(first..=first + 1), ..config() }).unwrap();
    let mut one = Rank::join(daemon.control_address(), join("a", 0, 1));
    assert_eq!(one.admitted().unwrap().data.port(), first);
    let mut two = Rank::join(daemon.control_address(), join("b", 0, 1));
    let error = text(&two.end());
    assert!(error.contains(&format!("no UDP port is free at 127.0.0.1 from {first} to {}", first + 1)), "{error}");
}

#[test]
fn a_system_that_needs_no_switch_and_windows_that_no_pool_has_are_refused_in_words() {
    let daemon = start();
    let mut ring = join("a", 0, 1);
    ring.wish.system =
        System::Ring(RingParameters { order: fanin_systems::RingOrder::Host, barrier: false, steps: fanin_systems::StepParameters::NONE });
    let error = text(&Rank::join(daemon.control_address(), ring).end());
    assert!(error.contains("the system ring has nothing to do at a switch"), "{error}");
}

#[test]
fn one_switch_serves_ipv4_and_ipv6() {
    let Ok(daemon) = Daemon::start(DaemonConfig { listen: "[::]:0".parse().unwrap(), ..config() }) else {
        return eprintln!("skipped: there is no IPv6 here");
    };
    let port = daemon.control_address().port();
    for ip in ["127.0.0.1", "::1"] {
        let ip = ip.parse().unwrap();
        let join = |rank| Join { data: SocketAddr::new(ip, 0), ..join(&ip.to_string(), rank, 2) };
        run_job_with(SocketAddr::new(ip, port), &join, 2, 5_000, 2);
    }
    until("both have ended", || metric(&daemon, "fanin_switch_jobs_ended_total", "") == 2.0);
}

#[test]
fn an_address_that_is_taken_is_named() {
    let daemon = start();
    let error = Daemon::start(DaemonConfig::new(daemon.control_address())).unwrap_err().to_string();
    assert!(error.contains(&daemon.control_address().to_string()), "{error}");
}

#[test]
fn after_a_restart_at_the_same_address_the_job_goes_on_with_what_is_left() {
    let before = start();
    let switch = before.control_address();
    let mut ranks = running(switch, "a", 2);
    let admitted = ranks[0].heard.iter().find_map(|message| if let SwitchMessage::Admitted(a) = message { Some(a.clone()) } else { None });
    assert!(admitted.is_none(), "it was waited for");
    // Killed: no word is said to anybody that would matter after a restart.
    drop(before);
    assert!(ranks.iter_mut().all(|rank| matches!(rank.end(), ClientError::Failed(_))));
    drop(ranks);
    let after = Daemon::start(DaemonConfig { listen: switch, ..config() }).unwrap();
    let state = |finished: u64| ResumeState {
        instance: 77,
        payload_bytes: 1_024,
        operation: 2,
        progress: vec![Progress {
            call: fanin_control::CallDescription { total_blocks: 10, ..call(2, 2_560) },
            finished: vec![BlockRange::new(0, finished)],
            held: vec![BlockRange::new(0, finished)],
            contributions: Vec::new(),
        }],
    };
    let rejoin = |rank, finished| Join { attach: Some(Attach { instance: 77 }), resume: Some(state(finished)), ..join("a", rank, 2) };
    let mut ranks = [Rank::join(switch, rejoin(0, 4)), Rank::join(switch, rejoin(1, 7))];
    let segment = |first_block, blocks, source| Segment { first_block, blocks, source };
    let expected = vec![OperationPlan { operation: 2, segments: vec![segment(4, 3, Source::Holder(1)), segment(7, 3, Source::Sum)] }];
    for rank in &mut ranks {
        assert_eq!(rank.admitted().unwrap().payload_bytes, 1_024);
        let plans = rank.wait_for(|message| if let SwitchMessage::Resume { plans } = message { Some(plans.clone()) } else { None });
        assert_eq!(plans.unwrap(), expected);
    }
    ranks.iter_mut().for_each(|rank| rank.say(ClientMessage::Ready));
    for rank in &mut ranks {
        rank.wait_for(|message| (*message == SwitchMessage::Start).then_some(())).unwrap();
    }
    assert_eq!(metric(&after, "fanin_switch_jobs_resumed_total", ""), 1.0);
}

#[test]
fn a_rank_whose_connection_breaks_comes_back_to_the_running_job() {
    let daemon =
        Daemon::start(DaemonConfig { jobs: JobsConfig { grace_ms: GUARD.as_millis() as u64, ..config().jobs }, ..config() }).unwrap();
    let switch = daemon.control_address();
    let mut ranks: Vec<Rank> = (0..2).map(|rank| Rank::join(switch, join("a", rank, 2))).collect();
    let admitted: Vec<_> = ranks.iter_mut().map(|rank| rank.admitted().unwrap()).collect();
    let mut drivers: Vec<_> = ranks.iter_mut().zip(&admitted).map(|(rank, admitted)| rank.driver(admitted)).collect();
    ranks.iter_mut().for_each(|rank| rank.say(ClientMessage::Ready));
    ranks.iter_mut().for_each(|rank| rank.wait_for(|message| (*message == SwitchMessage::Start).then_some(())).unwrap());
    let _ = ranks[0].stream.shutdown(std::net::Shutdown::Both);
    until("the loss is noticed", || metric(&daemon, "fanin_switch_control_connections", "") == 1.0);
    let attach = Some(Attach { instance: admitted[0].instance });
    let back = Rank::join(switch, Join { attach, data: drivers[0].local_address(), ..join("a", 0, 2) });
    ranks[0] = back;
    ranks[0].wait_for(|message| (*message == SwitchMessage::Start).then_some(())).unwrap();
    thread::scope(|scope| {
        for (driver, rank) in drivers.iter_mut().zip(&ranks) {
            scope.spawn(move || allreduce(driver, rank, 0, 5_000, 1).unwrap());
        }
    });
    assert_eq!(metric(&daemon, "fanin_switch_reattached_total", ""), 1.0);
}
