//! A switch that has no room, or is gone, costs no job: hosts go on by themselves, say why, and go back when the switch can take the job. Every
//! sum is exact meanwhile.

mod common;

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use common::switch::{self, Switch, at, every_collective};
use common::{PATIENT, Told, at_all, configs, run};
use fanin_comm::{Communicator, Config, Fallback, FaultPlan, Meeting, Operator, PathReport, Transport};
use fanin_control::{ClientSession, Refusal, Refused, SwitchMessage, encode};
use fanin_daemon::{Daemon, DaemonConfig, DaemonHandle};
use rustix::process::Signal;

/// Not a test of its own: the process that is killed.
#[test]
fn a_switch_for_the_other_tests() {
    switch::serve();
}

/// A switch that has room for one job of `world` ranks with a window of 64 packets, and not for two.
fn small_switch() -> DaemonHandle {
    let mut config = DaemonConfig::new("127.0.0.1:0".parse().unwrap());
    config.jobs.jobs_max = 1;
    Daemon::start(config).unwrap()
}

fn at_daemon(daemon: &DaemonHandle, world: u32) -> (Vec<Config>, Told) {
    let (configs, told) = configs(world, Transport::Udp);
    let meeting = Meeting::Switch(daemon.control_address().to_string());
    (configs.into_iter().map(|config| Config { meeting: meeting.clone(), ..config }).collect(), told)
}

/// Why hosts sum by themselves, if they do.
fn by_hosts(comm: &Communicator) -> Option<String> {
    let PathReport::Datagrams { by_hosts, .. } = comm.path() else { panic!("{}", comm.path()) };
    by_hosts
}

/// A job that has all of a switch's room until it is told to end.
struct Holder {
    ends: Arc<Barrier>,
    ranks: thread::JoinHandle<()>,
}

impl Holder {
    fn at(daemon: &DaemonHandle) -> Holder {
        let (configs, _) = at_daemon(daemon, 2);
        let (ends, begun) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
        let (end, begin) = (ends.clone(), begun.clone());
        let ranks = thread::spawn(move || {
            run(configs, move |comm| {
                assert_eq!(by_hosts(&comm), None);
                begin.wait();
                end.wait();
            });
        });
        begun.wait();
        Holder { ends, ranks }
    }

    fn end(self) {
        self.ends.wait();
        self.ranks.join().unwrap();
    }
}

#[test]
fn a_second_job_on_a_full_switch_runs_by_hosts_and_says_why() {
    let daemon = small_switch();
    let holder = Holder::at(&daemon);
    let (configs, told) = at_daemon(&daemon, 3);
    run(configs, |comm| {
        for call in 0..10 {
            every_collective(&comm, call);
        }
        let why = by_hosts(&comm).expect("by hosts");
        assert!(why.starts_with("no room for job") && why.contains("there are 1 jobs already"), "{why}");
        assert!(comm.path().to_string().contains("to the other hosts, which sum by themselves"), "{}", comm.path());
    });
    let told = told.lock().unwrap();
    assert_eq!(told.iter().filter(|text| text.contains("goes on by hosts alone, since no room for job")).count(), 3, "{told:?}");
    assert_eq!(told.len(), 3, "{told:?}");
    holder.end();
}

#[test]
fn every_type_and_operator_is_exact_by_hosts() {
    let daemon = small_switch();
    let holder = Holder::at(&daemon);
    let (configs, _) = at_daemon(&daemon, 3);
    run(configs, |comm| {
        let rank = comm.rank();
        macro_rules! types {
            ($($dtype:ty),*) => {$(
                let values: Vec<$dtype> = (0..2_003u32).map(|index| ((index + rank) % 5 + 1) as $dtype).collect();
                let at = |index: u32, rank: u32| (index + rank) % 5 + 1;
                let of = |index| [at(index, 0), at(index, 1), at(index, 2)];
                for (operator, expected) in [
                    (Operator::Sum, Box::new(|all: [u32; 3]| all.iter().sum()) as Box<dyn Fn([u32; 3]) -> u32>),
                    (Operator::Prod, Box::new(|all| all.iter().product())),
                    (Operator::Min, Box::new(|all| *all.iter().min().unwrap())),
                    (Operator::Max, Box::new(|all| *all.iter().max().unwrap())),
                ] {
                    let mut result = values.clone();
                    comm.allreduce(&mut result, operator).unwrap();
                    let expected: Vec<$dtype> = (0..2_003).map(|index| expected(of(index)) as $dtype).collect();
                    assert_eq!(result, expected, "{operator:?}");
                }
            )*};
        }
        types!(i8, u8, i16, i32, i64, f32, f64);
        // Means, where others' vectors stay as they are.
        let input: Vec<f32> = (0..1_001).map(|index| (index * 3 * (rank as i32 + 1)) as f32).collect();
        let mut mean = input.clone();
        comm.reduce(&mut mean, Operator::Avg, 1).unwrap();
        let expected: Vec<f32> = (0..1_001).map(|index| (index * 6) as f32).collect();
        assert_eq!(mean, if rank == 1 { expected } else { input });
        let indices: Vec<u64> = (0..300).map(|index| index * 3 + u64::from(rank)).collect();
        let sum = comm.allreduce_sparse(&indices, &vec![1.5f64; 300], 1_000, Operator::Sum).unwrap();
        assert_eq!((sum.indices.len(), sum.values), (900, vec![1.5; 900]));
    });
    holder.end();
}

#[test]
fn lost_packets_cost_no_sum_by_hosts() {
    let daemon = small_switch();
    let holder = Holder::at(&daemon);
    let (mut configs, _) = at_daemon(&daemon, 3);
    for config in &mut configs {
        let faults = FaultPlan { seed: 7 + u64::from(config.rank), loss: 0.02, duplicate: 0.02, reorder: 0.02, ..FaultPlan::default() };
        config.faults = faults;
    }
    run(configs, |comm| {
        for call in 0..5 {
            every_collective(&comm, call);
        }
        assert!(by_hosts(&comm).is_some());
    });
    holder.end();
}

#[test]
fn a_job_goes_to_the_switch_when_that_has_room() {
    let daemon = small_switch();
    let mut holder = Some(Holder::at(&daemon));
    let (configs, told) = at_daemon(&daemon, 3);
    let calls = Arc::new(AtomicU32::new(0));
    let (counted, all_done) = (calls.clone(), Arc::new(Barrier::new(3)));
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            let mut call = 0;
            // All ranks see the same, one call later: the sum of what they have seen before it.
            loop {
                every_collective(&comm, call);
                let mut seen = [i64::from(by_hosts(&comm).is_none())];
                comm.allreduce(&mut seen, Operator::Sum).unwrap();
                counted.fetch_add(1, Ordering::Relaxed);
                call += 1;
                if seen == [3] {
                    break;
                }
            }
            every_collective(&comm, call);
            all_done.wait();
            call
        })
    });
    let started = Instant::now();
    while !ranks.is_finished() && started.elapsed() < PATIENT {
        if calls.load(Ordering::Relaxed) >= 12
            && let Some(holder) = holder.take()
        {
            holder.end();
        }
        thread::sleep(Duration::from_millis(1));
    }
    let calls = ranks.join().unwrap();
    assert!(calls[0] >= 4 && calls.iter().all(|count| *count == calls[0]), "{calls:?}");
    let told = told.lock().unwrap();
    assert_eq!(told.iter().filter(|text| text.contains("goes on by the switch at")).count(), 3, "{told:?}");
}

/// By the switch, by hosts, by the switch, by hosts: `lose` and `find` say how the switch comes and goes.
fn there_and_back(timeout: Duration, lose: impl Fn(&mut Switch), find: impl Fn(&mut Switch)) {
    const WORLD: u32 = 3;
    let mut switch = Switch::start("127.0.0.1:0");
    let (address, told) = (switch.address, Told::default());
    let mut configs = at(&switch, WORLD);
    for config in &mut configs {
        let told = told.clone();
        config.timeout = timeout;
        config.notices = fanin_comm::Notices::to(move |text| told.lock().unwrap().push(text.to_owned()));
    }
    let phase = Arc::new(AtomicU32::new(0));
    let (seen, all_done) = (phase.clone(), Arc::new(Barrier::new(WORLD as usize)));
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            let mut call = 0;
            for turn in 0..4 {
                loop {
                    every_collective(&comm, call);
                    call += 1;
                    let mut there = [i64::from(by_hosts(&comm).is_some() == (turn % 2 == 1))];
                    comm.allreduce(&mut there, Operator::Sum).unwrap();
                    if there == [i64::from(WORLD)] {
                        break;
                    }
                }
                seen.fetch_max(turn + 1, Ordering::Relaxed);
            }
            all_done.wait();
        });
    });
    let reached = |turn: u32| {
        while phase.load(Ordering::Relaxed) < turn && !ranks.is_finished() {
            thread::sleep(Duration::from_millis(1));
        }
    };
    reached(1);
    lose(&mut switch);
    reached(2);
    find(&mut switch);
    reached(3);
    lose(&mut switch);
    ranks.join().unwrap();
    let told = told.lock().unwrap();
    let count = |part: &str| told.iter().filter(|text| text.contains(part)).count();
    assert_eq!(count("goes on by hosts alone, since the switch at"), 6, "{told:?}");
    assert_eq!(count(&format!("goes on by the switch at {address} again")), 3, "{told:?}");
}

#[test]
fn a_killed_switch_costs_no_sum_and_is_used_again() {
    there_and_back(PATIENT, Switch::kill, Switch::start_again);
}

#[test]
fn a_switch_that_is_stopped_costs_no_sum_and_is_used_again() {
    let signal = |signal| move |switch: &mut Switch| switch.signal(signal);
    there_and_back(Duration::from_secs(15), signal(Signal::STOP), signal(Signal::CONT));
}

#[test]
fn a_job_of_which_all_ranks_are_idle_goes_on_by_hosts() {
    let mut switch = Switch::start("127.0.0.1:0");
    let configs = at(&switch, 2);
    let (first, second) = (Arc::new(Barrier::new(3)), Arc::new(Barrier::new(3)));
    let (reached, go) = (first.clone(), second.clone());
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            every_collective(&comm, 1);
            reached.wait();
            go.wait();
            every_collective(&comm, 2);
            assert!(by_hosts(&comm).is_some());
            // Groups go on as well.
            let group = comm.split(Some(0), -i64::from(comm.rank())).unwrap().unwrap();
            every_collective(&group, 3);
        })
    });
    first.wait();
    switch.kill();
    second.wait();
    ranks.join().unwrap();
}

#[test]
fn a_switch_that_is_shut_down_costs_no_sum() {
    let daemon = Daemon::start(DaemonConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let (configs, _) = at_daemon(&daemon, 3);
    let gate = Arc::new(Barrier::new(4));
    let (reached, all_done) = (gate.clone(), Arc::new(Barrier::new(3)));
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            every_collective(&comm, 0);
            reached.wait();
            for call in 0..200 {
                every_collective(&comm, call);
                if by_hosts(&comm).is_some() {
                    break;
                }
            }
            all_done.wait();
        })
    });
    gate.wait();
    drop(daemon);
    ranks.join().unwrap();
}

/// Stands between a rank and its switch: passes its control connection on, cuts it when told to, and says to who comes back that the switch shuts
/// down, in the switch's name.
struct Between {
    listener: TcpListener,
    switch: SocketAddr,
}

impl Between {
    fn serve(&self, cut: &Barrier, refusals: u32) {
        let (rank, switch) = (self.listener.accept().unwrap().0, TcpStream::connect(self.switch).unwrap());
        let greeting = thread::scope(|scope| {
            let (mut from, mut to) = (rank.try_clone().unwrap(), switch.try_clone().unwrap());
            scope.spawn(move || io::copy(&mut from, &mut to));
            let (mut from, mut to) = (switch.try_clone().unwrap(), rank.try_clone().unwrap());
            let down = scope.spawn(move || {
                let (mut session, mut bytes) = (ClientSession::new(), [0; 1 << 12]);
                while let Ok(count @ 1..) = from.read(&mut bytes) {
                    session.push(&bytes[..count]);
                    while session.next().unwrap().is_some() {}
                    to.write_all(&bytes[..count]).unwrap();
                }
                session.switch().unwrap().clone()
            });
            cut.wait();
            for stream in [&rank, &switch] {
                stream.shutdown(Shutdown::Both).unwrap();
            }
            down.join().unwrap()
        });
        let refused = Refused { code: Refusal::Draining, text: "the switch shuts down".into() };
        for _ in 0..refusals {
            let mut rank = self.listener.accept().unwrap().0;
            for message in [SwitchMessage::Hello(greeting.clone()), SwitchMessage::Refused(refused.clone())] {
                rank.write_all(&encode(&message)).unwrap();
            }
            // Until the rank has gone.
            let _ = io::copy(&mut rank, &mut io::sink());
        }
    }
}

#[test]
fn a_rank_that_comes_back_while_the_switch_shuts_down_goes_on_by_hosts_with_the_others() {
    let daemon = Daemon::start(DaemonConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let (mut configs, _) = at_daemon(&daemon, 3);
    let between = Between { listener: TcpListener::bind("127.0.0.1:0").unwrap(), switch: daemon.control_address() };
    configs[1].meeting = Meeting::Switch(between.listener.local_addr().unwrap().to_string());
    let (gate, cut) = (Arc::new(Barrier::new(4)), Arc::new(Barrier::new(2)));
    let (reached, told) = (gate.clone(), cut.clone());
    thread::spawn(move || between.serve(&told, 3));
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            every_collective(&comm, 0);
            reached.wait();
            every_collective(&comm, 1);
            assert!(by_hosts(&comm).is_some());
        })
    });
    gate.wait();
    cut.wait();
    drop(daemon);
    ranks.join().unwrap();
}

#[test]
fn a_rank_that_ends_is_named_also_by_hosts() {
    let daemon = small_switch();
    let holder = Holder::at(&daemon);
    let (configs, _) = at_daemon(&daemon, 3);
    let errors = run(configs, |comm| {
        comm.barrier().unwrap();
        if comm.rank() == 1 {
            return None;
        }
        Some(comm.allreduce(&mut [1.0f32; 100], Operator::Sum).unwrap_err())
    });
    for error in [&errors[0], &errors[2]] {
        let error = error.as_ref().unwrap();
        assert_eq!(error.suspect_rank(), Some(1), "{error}");
    }
    holder.end();
}

#[test]
fn ranks_that_call_different_things_are_told_so_by_hosts() {
    let daemon = small_switch();
    let holder = Holder::at(&daemon);
    let (mut configs, _) = at_daemon(&daemon, 2);
    configs.iter_mut().for_each(|config| config.timeout = Duration::from_secs(3));
    let errors = run(configs, |comm| {
        let called = if comm.rank() == 0 { comm.allreduce(&mut [1i32; 10], Operator::Sum) } else { comm.barrier() };
        called.unwrap_err().to_string()
    });
    for error in errors {
        assert!(error.contains("different") || error.contains("allreduce of 10 i32"), "{error}");
    }
    holder.end();
}

#[test]
fn who_wants_no_fallback_gets_an_error() {
    let strict = |configs: Vec<Config>| -> Vec<Config> {
        configs.into_iter().map(|config| Config { fallback: Some(Fallback::Error), timeout: Duration::from_secs(4), ..config }).collect()
    };
    let daemon = small_switch();
    let holder = Holder::at(&daemon);
    for result in at_all(strict(at_daemon(&daemon, 2).0), |_| ()) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("no room for job"), "{error}");
    }
    holder.end();
    // Ranks that want different things.
    let mut mixed = at_daemon(&daemon, 2).0;
    mixed[1].fallback = Some(Fallback::Error);
    for result in at_all(mixed, |_| ()) {
        let error = result.unwrap_err().to_string();
        assert!(error.contains("by hosts where the switch is full") && error.contains("by the switch alone"), "{error}");
    }
    let mut switch = Switch::start("127.0.0.1:0");
    let (configs, gate) = (strict(at(&switch, 2)), Arc::new(Barrier::new(3)));
    let reached = gate.clone();
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            comm.barrier().unwrap();
            reached.wait();
            reached.wait();
            comm.barrier().unwrap_err()
        })
    });
    gate.wait();
    switch.kill();
    gate.wait();
    for error in ranks.join().unwrap() {
        assert!(error.to_string().contains(&switch.address.to_string()), "{error}");
    }
}
