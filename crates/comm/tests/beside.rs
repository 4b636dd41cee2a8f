//! Canary, a tree, ATP and A2TP at one switch, which a communicator asks for: reductions have jobs of their own, and all else goes as ever.

mod common;

use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use common::every::check_all_kinds;
use common::switch::{self, Switch, at, collectives, every_collective, page};
use common::{PATIENT, Told, at_all, configs, run, without_delays};
use fanin_comm::{Config, DType, ElementOp, FaultPlan, Meeting, Operator, PathReport, ReproducibleBy, Transport};
use fanin_daemon::{Daemon, DaemonConfig, DaemonHandle};

/// Not a test of its own: the process that is killed.
#[test]
fn a_switch_for_the_other_tests() {
    switch::serve();
}

/// Ranks that meet at rank 0 and ask for a system.
fn asking(world: u32, system: &str) -> (Vec<Config>, Told) {
    let (mut configs, told) = configs(world, Transport::Auto);
    configs.iter_mut().for_each(|config| config.system = Config::system_named(system));
    (configs, told)
}

/// The same at a switch in this process.
fn at_daemon(daemon: &DaemonHandle, world: u32, system: &str) -> (Vec<Config>, Told) {
    let (configs, told) = asking(world, system);
    let meeting = Meeting::Switch(daemon.control_address().to_string());
    (configs.into_iter().map(|config| Config { meeting: meeting.clone(), ..config }).collect(), told)
}

/// What differs between jobs: every type, and of a type of integers and one of floats every operator.
fn ops() -> impl Iterator<Item = ElementOp> {
    ElementOp::all().filter(|op| op.operator == Operator::Sum || matches!(op.dtype, DType::I32 | DType::F32))
}

#[test]
fn canary_reduces_every_type_and_operator_exactly_at_one_switch() {
    let config = DaemonConfig { http: Some("127.0.0.1:0".parse().unwrap()), ..DaemonConfig::new("127.0.0.1:0".parse().unwrap()) };
    let daemon = Daemon::start(config).unwrap();
    let (configs, told) = at_daemon(&daemon, 3, "canary");
    let (tell, all_have) = channel();
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            let PathReport::Datagrams { system, .. } = comm.path() else { panic!("{}", comm.path()) };
            assert_eq!(system, "canary");
            assert!(comm.path().to_string().starts_with("canary by UDP from"), "{}", comm.path());
            let before = comm.statistics().counters.packets_sent;
            for op in ops() {
                for elements in [0, 1, 7, 1_000] {
                    check_all_kinds(&comm, op, elements);
                }
            }
            assert!(comm.statistics().counters.packets_sent > before + 6 * ops().count() as u64, "its other jobs count, too");
            comm.barrier().unwrap();
            let go_on = Arc::new(Barrier::new(2));
            tell.send(go_on.clone()).unwrap();
            go_on.wait();
        })
    });
    let at_end: Vec<Arc<Barrier>> = all_have.iter().take(3).collect();
    // Counts are written down a few times a second.
    thread::sleep(Duration::from_millis(500));
    let metrics = page(daemon.http_address().unwrap());
    let of_ours = |kind: &str| metrics.lines().filter(|line| line.starts_with("fanin_switch_job_ranks{") && line.contains(kind)).count();
    let expected = ops().count();
    assert_eq!([of_ours("/allreduce/"), of_ours("/reduce/"), of_ours("/reduce-scatter/")], [expected; 3], "{metrics}");
    for rank in &at_end {
        rank.wait();
    }
    ranks.join().unwrap();
    assert_eq!(without_delays(&told), [""; 0]);
}

#[test]
fn a_tree_does_allreduces_and_leaves_what_it_does_not_offer_to_the_communicators_own_job() {
    for system in ["tree", "switchml", "a2tp"] {
        let (configs, _) = asking(3, system);
        run(configs, move |comm| {
            let PathReport::Datagrams { system: named, .. } = comm.path() else { panic!("{}", comm.path()) };
            assert_eq!(named, system);
            for (dtype, operator) in [(DType::I64, Operator::Sum), (DType::F32, Operator::Avg), (DType::U8, Operator::Xor)] {
                check_all_kinds(&comm, ElementOp { dtype, operator }, 1_000);
            }
        });
    }
}

#[test]
fn atp_reduces_every_type_and_operator_exactly_with_its_server_beside_rank_0() {
    let config = DaemonConfig { http: Some("127.0.0.1:0".parse().unwrap()), ..DaemonConfig::new("127.0.0.1:0".parse().unwrap()) };
    let daemon = Daemon::start(config).unwrap();
    let (configs, told) = at_daemon(&daemon, 3, "atp");
    let has_sent = run(configs, move |comm| {
        for op in ops() {
            for elements in [1, 7, 1_000, 30_000] {
                check_all_kinds(&comm, op, elements);
            }
        }
        // A window of packets, and as many again, none of which is waited for by hand.
        let mut long: Vec<i32> = (0..400_000).collect();
        comm.allreduce(&mut long, Operator::Sum).unwrap();
        assert!(long.iter().zip(0..).all(|(sum, index)| *sum == 3 * index));
        comm.barrier().unwrap();
        let before = comm.statistics().counters.payload_bytes_sent;
        comm.allreduce(&mut long, Operator::Sum).unwrap();
        comm.barrier().unwrap();
        comm.statistics().counters.payload_bytes_sent - before
    });
    // The server tells its results once to the switch, which tells all.
    let vector = 4 * 400_000;
    assert!(has_sent[0] >= 2 * vector, "rank 0 has the server: {has_sent:?}");
    assert!(has_sent[1..].iter().all(|sent| (vector..2 * vector).contains(sent)), "{has_sent:?}");
    assert_eq!(without_delays(&told), [""; 0]);
}

#[test]
fn sums_beside_are_exact_under_loss_duplicates_and_reordering() {
    for system in ["canary", "atp", "a2tp"] {
        let (mut configs, _) = asking(4, system);
        for config in &mut configs {
            let seed = u64::from(config.rank) + 1;
            config.faults = FaultPlan { seed, loss: 0.02, duplicate: 0.05, reorder: 0.05, corrupt: 0.01 };
        }
        run(configs, |comm| {
            for call in 0..10 {
                every_collective(&comm, call);
            }
        });
    }
}

#[test]
fn reproducible_sums_and_groups_go_by_canary_too() {
    let (mut configs, _) = asking(4, "canary");
    configs.iter_mut().for_each(|config| config.reproducible = Some(ReproducibleBy::Element));
    let sums = run(configs, |comm| {
        let group = comm.split(Some(comm.rank() % 2), 0).unwrap().unwrap();
        let PathReport::Datagrams { system, .. } = group.path() else { panic!("{}", group.path()) };
        let mut sum: Vec<f32> = (0..5_000).map(|index| 1.0 / (1 + index + comm.rank()) as f32).collect();
        group.allreduce(&mut sum, Operator::Sum).unwrap();
        comm.barrier().unwrap();
        (system, sum.into_iter().map(f32::to_bits).collect::<Vec<_>>())
    });
    assert!(sums.iter().all(|(system, _)| *system == "canary"));
    assert!(sums[0].1 == sums[2].1 && sums[1].1 == sums[3].1 && sums[0].1 != sums[1].1);
}

#[test]
fn sums_beside_are_exact_whenever_the_switch_is_killed() {
    const WORLD: u32 = 3;
    const CALLS: u32 = 40;
    for system in ["canary", "atp"] {
        let mut switch = Switch::start("127.0.0.1:0");
        let mut configs = at(&switch, WORLD);
        configs.iter_mut().for_each(|config| config.system = Config::system_named(system));
        let calls = Arc::default();
        let ranks = collectives(configs, CALLS, &calls);
        let ((), restarts) = switch.killed_while(ranks, &calls, 17);
        assert!(restarts >= 3, "{restarts} restarts");
    }
}

/// Every rank does something else in a call; gives all errors, which come long before ranks' patience ends.
fn spoilt(act: impl Fn(&fanin_comm::Communicator) -> Result<(), fanin_comm::CommError> + Send + Sync + 'static) -> Vec<String> {
    let (mut configs, _) = asking(3, "canary");
    for config in &mut configs {
        (config.stall_notice, config.timeout) = (Duration::from_millis(200), PATIENT);
    }
    let begun = Instant::now();
    let errors = run(configs, move |comm| {
        let mut result = comm.allreduce(&mut [1i32; 10_000], Operator::Sum).and_then(|()| act(&comm));
        while result.is_ok() {
            result = comm.barrier();
        }
        result.unwrap_err().to_string()
    });
    assert!(begun.elapsed() < PATIENT / 2, "{:?}", begun.elapsed());
    errors
}

#[test]
fn who_calls_something_else_is_named_before_a_job_for_it_has_begun() {
    let errors = spoilt(|comm| match comm.rank() {
        2 => comm.allreduce(&mut [1i64; 50], Operator::Sum),
        _ => comm.allreduce(&mut [1i16; 100], Operator::Sum),
    });
    assert!(errors.iter().all(|error| error.contains("50 i64 (sum)") && error.contains("100 i16 (sum)")), "{errors:?}");
}

#[test]
fn who_ends_the_job_is_named() {
    let errors = spoilt(|comm| {
        if comm.rank() == 1 {
            comm.abort("no more of this");
        }
        comm.allreduce(&mut vec![1i32; 100_000], Operator::Sum)
    });
    assert!(errors.iter().all(|error| error.contains("rank 1 has ended the job: no more of this")), "{errors:?}");
}

#[test]
fn a_job_that_the_switch_has_no_room_for_ends_the_communicator_with_the_reason_at_all_ranks() {
    let mut config = DaemonConfig::new("127.0.0.1:0".parse().unwrap());
    config.jobs.jobs_max = 2;
    let daemon = Daemon::start(config).unwrap();
    let (configs, _) = at_daemon(&daemon, 3, "canary");
    let errors = run(configs, |comm| {
        comm.allreduce(&mut [1i32; 10], Operator::Sum).unwrap();
        let mut result = comm.allreduce(&mut [1i64; 10], Operator::Sum);
        while result.is_ok() {
            result = comm.barrier();
        }
        result.unwrap_err().to_string()
    });
    assert!(errors.iter().all(|error| error.contains("has ended the job") && error.contains("there are 2 jobs already")), "{errors:?}");
}

#[test]
fn a_reduction_that_a_switch_takes_no_new_job_for_since_it_ends_is_summed_by_hosts() {
    let mut config = DaemonConfig::new("127.0.0.1:0".parse().unwrap());
    config.jobs.drain_ms = 700;
    let daemon = Daemon::start(config).unwrap();
    let (configs, told) = at_daemon(&daemon, 3, "canary");
    let gate = Arc::new(Barrier::new(4));
    let reached = gate.clone();
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            comm.allreduce(&mut [1i32; 10], Operator::Sum).unwrap();
            reached.wait();
            reached.wait();
            // A job of its own, which the switch does not take any more.
            let mut greatest = [comm.rank() as i32; 10];
            comm.allreduce(&mut greatest, Operator::Max).unwrap();
            assert_eq!(greatest, [2; 10]);
            let PathReport::Datagrams { by_hosts, .. } = comm.path() else { panic!("{}", comm.path()) };
            assert!(by_hosts.is_some(), "{}", comm.path());
            comm.barrier().unwrap();
        })
    });
    gate.wait();
    daemon.drain();
    let drains = || told.lock().unwrap().iter().any(|text| text.contains("shuts down"));
    while !drains() {
        thread::sleep(Duration::from_millis(5));
    }
    gate.wait();
    ranks.join().unwrap();
}

#[test]
fn what_one_switch_does_not_do_is_refused_by_name() {
    let read = |variables: &[(&'static str, &'static str)]| {
        let all = [&[("FANIN_RANK", "0"), ("FANIN_WORLD", "2"), ("FANIN_SWITCH", "s:1")][..], variables].concat();
        Config::from_variables(|name| all.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_string()))
    };
    for (variables, expected) in [
        (
            &[("FANIN_SYSTEM", "rina")][..],
            "system = rina: expected auto, tree, canary, switchml, atp or a2tp without a fabric (FANIN_FABRIC)",
        ),
        (
            &[("FANIN_SYSTEM", "canary"), ("FANIN_TRANSPORT", "shm")],
            "transport = shm: expected auto or udp where a switch reduces by canary",
        ),
        (&[("FANIN_SYSTEM", "canary"), ("FANIN_FIXED_POINT", "1")], "fixed_point = true: expected false with canary"),
        (
            &[
                ("FANIN_SYSTEM", "tree"),
                ("FANIN_JOB", "a job with a name that leaves no room for what comes behind it, which is long enough"),
            ],
            "job = ",
        ),
    ] {
        let error = read(variables).unwrap_err().to_string();
        assert!(error.starts_with(expected), "{error}");
    }
    assert!(read(&[("FANIN_SYSTEM", "switchml"), ("FANIN_FIXED_POINT", "1")]).is_ok());
}

#[test]
fn ranks_that_ask_for_different_systems_are_told_so_when_they_join() {
    let (mut configs, _) = asking(2, "canary");
    configs[1].system = None;
    configs[1].transport = Transport::Udp;
    let results = at_all(configs, drop);
    let errors: Vec<String> = results.into_iter().map(|result| result.unwrap_err().to_string()).collect();
    assert!(
        errors.iter().any(|error| error.contains("wants reductions by none and rank 0 canary")
            || error.contains("wants reductions by canary and rank 1 none")),
        "{errors:?}"
    );
}
