//! Whatever goes wrong, every rank gets an error that says what and who, and nobody hangs.

mod common;

use std::io::{self, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use common::{PATIENT, at_all, configs, run};
use fanin_comm::{
    CommError, Communicator, FaultPlan, Interrupt, Meeting, NoSwitch, Operator, ReproducibleBy, SparsePath, SparseWay, Transport,
};
use fanin_control::{Refusal, Refused, SwitchMessage, encode};
use fanin_daemon::{Daemon, DaemonConfig};

const BOTH: [Transport; 2] = [Transport::Memory, Transport::Udp];

fn text(error: &CommError) -> String {
    error.to_string()
}

/// Meets the others, before one of them spoils the job. A rank may learn that another has ended the job before it learns that all have
/// met: then the error is this call's, and says the same.
fn together(comm: &Communicator) -> Result<(), CommError> {
    comm.barrier()
}

/// Every rank calls something else, as `call` says; gives all errors.
fn disagree(transport: Transport, call: impl Fn(&Communicator) -> Result<(), CommError> + Send + Sync + 'static) -> Vec<CommError> {
    let (mut configs, _) = configs(3, transport);
    configs.iter_mut().for_each(|config| config.stall_notice = Duration::from_millis(200));
    run(configs, move |comm| {
        // Who is done with what the others do not call learns of it in the next call.
        let mut result = together(&comm).and_then(|()| call(&comm));
        while result.is_ok() {
            result = comm.barrier();
        }
        let error = result.unwrap_err();
        assert_eq!(text(&comm.barrier().unwrap_err()), text(&error), "a failed communicator says the same for ever");
        error
    })
}

#[test]
fn ranks_that_differ_in_length_type_operator_or_collective_all_get_an_error_that_says_so() {
    for transport in BOTH {
        let length = disagree(transport, |comm| comm.allreduce(&mut vec![1f32; 1_000 + 24 * comm.rank() as usize], Operator::Sum));
        for error in &length {
            // Whoever comes first is what others are compared with.
            let named =
                ["1000", "1024", "1048"].into_iter().filter(|length| text(error).contains(&format!("allreduce of {length} f32 (sum)")));
            assert_eq!(named.count(), 2, "{error}");
            assert!(error.suspect_rank().is_some(), "{error}");
        }
        let kinds = disagree(transport, |comm| match comm.rank() {
            2 => comm.allreduce(&mut [1f64; 50], Operator::Sum),
            _ => comm.allreduce(&mut [1f32; 100], Operator::Sum),
        });
        for error in &kinds {
            assert!(text(error).contains("50 f64 (sum)") && text(error).contains("100 f32 (sum)"), "{error}");
            assert!(text(error).contains("rank 2 ") && error.suspect_rank().is_some(), "{error}");
        }
        let order = disagree(transport, |comm| match comm.rank() {
            0 => comm.broadcast(&mut [1i32; 5], 0),
            _ => comm.reduce(&mut [1i32; 5], Operator::Max, 1),
        });
        for error in &order {
            assert!(text(error).contains("broadcast from rank 0") && text(error).contains("reduce to rank 1"), "{error}");
        }
    }
}

type Called = fn(&Communicator) -> Result<(), CommError>;

#[test]
fn ranks_that_differ_in_a_reproducible_reduction_are_told_what_each_has_called() {
    let by_element = ["300 f32 (avg), reproducible: exponents from 0 on", "300 f32 (sum), reproducible: exponents from 0 on"];
    let by_block = ["300 f32 (avg), reproducible: scales", "300 f32 (sum), reproducible: scales"];
    let both = [(ReproducibleBy::Element, by_element), (ReproducibleBy::Block, by_block)];
    for (transport, (by, sums)) in BOTH.into_iter().flat_map(|transport| both.map(|by| (transport, by))) {
        let cases: [(Called, [&str; 2]); 3] = [
            // Their integers are alike, and so is what is found before.
            (|comm| comm.allreduce(&mut [1f32; 300], if comm.rank() == 2 { Operator::Avg } else { Operator::Sum }), sums),
            (|comm| comm.allreduce(&mut vec![1f32; 300 + comm.rank() as usize / 2], Operator::Sum), ["301 f32", "300 f32"]),
            (
                |comm| match comm.rank() {
                    2 => comm.allreduce(&mut [1i32; 300], Operator::Max),
                    _ => comm.allreduce(&mut [1f32; 300], Operator::Max),
                },
                ["300 i32 (max)", "300 f32 (max), reproducible: elements from 0 on"],
            ),
        ];
        for (call, expected) in cases {
            let (mut configs, _) = configs(3, transport);
            configs.iter_mut().for_each(|config| (config.stall_notice, config.reproducible) = (Duration::from_millis(200), Some(by)));
            let errors = run(configs, move |comm| {
                let mut result = together(&comm).and_then(|()| call(&comm));
                while result.is_ok() {
                    result = comm.barrier();
                }
                result.unwrap_err()
            });
            for error in errors {
                assert!(expected.iter().all(|part| text(&error).contains(part)), "{transport:?}: {error}");
                assert_eq!(error.suspect_rank(), Some(2), "{error}");
            }
        }
    }
}

#[test]
fn a_rank_that_does_not_ask_for_reproducible_sums_is_refused_by_name() {
    let (mut configs, _) = configs(2, Transport::Auto);
    configs[1].reproducible = Some(ReproducibleBy::Element);
    for result in at_all(configs, |_| ()) {
        let error = text(&result.unwrap_err());
        // Whoever asks first is what others are compared with.
        assert!(["rank 0", "wants reproducible sums", "by element", "none", "rank 1"].iter().all(|part| error.contains(part)), "{error}");
    }
}

#[test]
fn ranks_that_differ_in_a_sparse_call_all_get_an_error_that_says_so() {
    let sparse = |comm: &Communicator, size, operator| comm.allreduce_sparse(&[1, 5], &[1f32, 2.0], size, operator).map(drop);
    for transport in BOTH {
        let sizes = disagree(transport, move |comm| sparse(comm, if comm.rank() == 1 { 2_000 } else { 1_000 }, Operator::Sum));
        for error in &sizes {
            let text = text(error);
            assert!(text.contains("sparse allreduce of 1000 f32 (sum)") && text.contains("sparse allreduce of 2000 f32 (sum)"), "{error}");
            assert!(text.contains("rank 1 ") && error.suspect_rank().is_some(), "{error}");
        }
        let operators = disagree(transport, move |comm| {
            let operator = if comm.rank() == 2 { Operator::Max } else { Operator::Min };
            sparse(comm, 1_000, operator)
        });
        for error in &operators {
            assert!(text(error).contains("1000 f32 (max)") && text(error).contains("1000 f32 (min)"), "{error}");
            assert!(text(error).contains("rank 2 ") && error.suspect_rank().is_some(), "{error}");
        }
        // The first step gathers numbers, and is not taken for a call that does the same.
        let dense = disagree(transport, move |comm| match comm.rank() {
            1 => comm.all_gather(&[1i64], &mut [0; 3]),
            _ => sparse(comm, 1_000, Operator::Sum),
        });
        for error in &dense {
            assert!(text(error).contains("sparse allreduce of 1000") && text(error).contains("all-gather of 1 i64"), "{error}");
        }
    }
}

#[test]
fn ranks_that_want_sparse_sums_in_different_ways_are_told() {
    let (mut configs, _) = configs(3, Transport::Udp);
    configs[1].sparse = SparsePath::Lists;
    let errors = run(configs, |comm| comm.allreduce_sparse(&[1], &[1f32], 10, Operator::Sum).unwrap_err());
    for error in errors {
        assert!(text(&error).contains("differ in how sparse vectors are reduced (FANIN_SPARSE, FANIN_SYSTEM)"), "{error}");
    }
}

#[test]
fn where_the_switch_has_no_room_for_another_job_lists_are_gathered_and_it_is_said_why() {
    // The communicator's own job has its only port.
    let port = std::net::UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let config = DaemonConfig { data_ports: Some(port..=port), ..DaemonConfig::new("127.0.0.1:0".parse().unwrap()) };
    let daemon = Daemon::start(config).unwrap();
    let (mut configs, told) = configs(2, Transport::Udp);
    for config in &mut configs {
        (config.meeting, config.sparse) = (Meeting::Switch(daemon.control_address().to_string()), SparsePath::Switch);
    }
    run(configs, |comm| {
        for _ in 0..5 {
            let sum = comm.allreduce_sparse(&[1], &[4i32], 10, Operator::Sum).unwrap();
            assert_eq!((sum.indices, sum.values), (vec![1], vec![8]));
            assert_eq!((sum.report.way, sum.report.no_switch), (SparseWay::Lists, Some(NoSwitch::Failed)), "{}", sum.report);
        }
    });
    // After three times it is not tried again.
    let told = told.lock().unwrap();
    let said: Vec<_> = told.iter().filter(|text| text.contains("sparse vectors are gathered as lists this time")).collect();
    assert!(said.len() == 6 && said.iter().all(|text| text.contains("no UDP port is free")), "{told:?}");
}

#[test]
fn a_sparse_sum_by_the_switch_may_be_ended_in_the_middle_by_any_rank() {
    let (mut configs, _) = configs(3, Transport::Udp);
    for config in &mut configs {
        (config.sparse, config.payload_bytes) = (SparsePath::Switch, Some(256));
        // Long enough to be in the middle of it.
        config.faults = FaultPlan { seed: u64::from(config.rank), loss: 0.2, ..FaultPlan::default() };
    }
    let errors = run(configs, |comm| {
        let comm = Arc::new(comm);
        let indices: Vec<u64> = (0..200_000).map(|number| number * 3 + u64::from(comm.rank())).collect();
        let values = vec![1i32; indices.len()];
        together(&comm).unwrap();
        let ender = (comm.rank() == 1).then(|| {
            let comm = comm.clone();
            thread::spawn(move || {
                while comm.progress().is_none_or(|progress| progress.blocks < 100 || progress.finished_blocks == 0) {
                    thread::sleep(Duration::from_millis(1));
                }
                comm.abort("it takes too long");
            })
        });
        let error = comm.allreduce_sparse(&indices, &values, 1_000_000, Operator::Sum).unwrap_err();
        ender.into_iter().for_each(|thread| thread.join().unwrap());
        error
    });
    for error in errors {
        assert_eq!(error.suspect_rank(), Some(1), "{error}");
        assert!(text(&error).contains("it takes too long"), "{error}");
    }
}

#[test]
fn a_rank_that_does_not_come_is_named_first_in_a_notice_and_then_in_an_error() {
    for transport in BOTH {
        let (mut configs, told) = configs(3, transport);
        for config in &mut configs {
            (config.timeout, config.stall_notice) = (Duration::from_secs(2), Duration::from_millis(300));
        }
        let errors = run(configs, |comm| {
            comm.barrier().unwrap();
            if comm.rank() == 1 {
                // Alive, but busy with something else.
                thread::sleep(Duration::from_secs(8));
            }
            comm.allreduce(&mut [1i32; 9], Operator::Sum).unwrap_err()
        });
        for error in &errors {
            assert_eq!(error.suspect_rank(), Some(1), "{error}");
        }
        let told = told.lock().unwrap().join("\n");
        assert!(told.contains("rank 1"), "{told}");
    }
}

/// Rank 1 does not call before the others have an error; gives how long these have waited, and what they were told.
fn late(timeout: Duration, set: impl Fn(&Communicator) + Send + Sync + 'static) -> Vec<(Duration, CommError)> {
    let mut all = Vec::new();
    for transport in BOTH {
        let (mut configs, _) = configs(3, transport);
        configs.iter_mut().for_each(|config| config.timeout = timeout);
        let (set, told) = (Arc::new(&set), Arc::new(AtomicUsize::new(0)));
        thread::scope(|scope| {
            let threads: Vec<_> = configs
                .into_iter()
                .map(|config| {
                    let (set, told) = (set.clone(), told.clone());
                    scope.spawn(move || {
                        let comm = Communicator::join(config).unwrap();
                        comm.barrier().unwrap();
                        set(&comm);
                        let start = Instant::now();
                        if comm.rank() == 1 {
                            while told.load(Ordering::Relaxed) < 2 && start.elapsed() < PATIENT {
                                thread::sleep(Duration::from_millis(10));
                            }
                            return None;
                        }
                        let error = comm.allreduce(&mut [1f32; 10], Operator::Sum).unwrap_err();
                        told.fetch_add(1, Ordering::Relaxed);
                        Some((start.elapsed(), error))
                    })
                })
                .collect();
            all.extend(threads.into_iter().filter_map(|thread| thread.join().unwrap()));
        });
    }
    all
}

#[test]
fn a_call_waits_as_long_as_its_timeout_and_not_half_as_long_again() {
    for (waited, error) in late(Duration::from_secs(2), |_| ()) {
        assert!(waited >= Duration::from_millis(1_900), "{waited:?}: {error}");
        assert!(text(&error).contains("longer than the 2 s that ranks wait") && error.suspect_rank() == Some(1), "{error}");
    }
}

#[test]
fn a_timeout_that_is_set_later_counts_and_the_first_rank_that_gives_up_is_not_the_one_that_is_blamed() {
    let set = |comm: &Communicator| {
        assert!(comm.set_timeout(Duration::ZERO).unwrap_err().to_string().contains("timeout = 0: expected seconds, 0.01 to"));
        comm.set_timeout(Duration::from_secs(if comm.rank() == 2 { 1 } else { 500 })).unwrap();
    };
    for (_, error) in late(PATIENT, set) {
        assert!(text(&error).contains("longer than the 1 s that ranks wait") && error.suspect_rank() == Some(1), "{error}");
    }
    // Longer than the job was opened with.
    for (waited, error) in late(Duration::from_secs(2), |comm| comm.set_timeout(Duration::from_secs(4)).unwrap()) {
        assert!(waited >= Duration::from_millis(3_900), "{waited:?}: {error}");
        assert!(text(&error).contains("longer than the 4 s") && error.suspect_rank() == Some(1), "{error}");
    }
}

#[test]
fn a_rank_that_leaves_while_others_need_it_is_named() {
    for transport in BOTH {
        let (mut configs, _) = configs(3, transport);
        configs.iter_mut().for_each(|config| config.stall_notice = Duration::from_millis(200));
        let errors = run(configs, |comm| {
            let met = together(&comm);
            if comm.rank() == 2 { None } else { Some(met.and_then(|()| comm.barrier()).unwrap_err()) }
        });
        for error in errors.iter().flatten() {
            assert_eq!(error.suspect_rank(), Some(2), "{error}");
            assert!(text(error).contains("left"), "{error}");
        }
    }
}

#[test]
fn ranks_that_never_join_are_named_by_those_that_wait() {
    let (mut configs, _) = configs(4, Transport::Auto);
    configs.iter_mut().for_each(|config| config.timeout = Duration::from_secs(1));
    configs.remove(2);
    for result in at_all(configs, |_| ()) {
        let error = result.unwrap_err();
        assert!(text(&error).contains("rank 2"), "{error}");
    }
}

#[test]
fn where_nobody_listens_the_error_says_where() {
    let (mut configs, _) = configs(2, Transport::Auto);
    let mut second = configs.remove(1);
    second.timeout = Duration::from_millis(300);
    let error = Communicator::join(second).unwrap_err();
    assert!(matches!(error, CommError::Unreachable { rank: 1, whom: "rank 0", .. }), "{error}");
}

/// On a machine where hundreds of processes begin at once, seconds may pass between a rank's connection and its first word.
#[test]
fn a_rank_that_was_too_slow_to_be_heard_tries_again() {
    let switch = Daemon::start(DaemonConfig::new("127.0.0.1:0".parse().unwrap())).unwrap();
    let (front, behind) = (TcpListener::bind("127.0.0.1:0").unwrap(), switch.control_address());
    let at = Meeting::Switch(front.local_addr().unwrap().to_string());
    thread::spawn(move || {
        let (mut first, _) = front.accept().unwrap();
        let refused = Refused { code: Refusal::TooSlow, text: "no job was joined within 5 s".into() };
        first.write_all(&encode(&SwitchMessage::Refused(refused))).unwrap();
        // Until it has read that, and goes.
        io::copy(&mut first, &mut io::sink()).unwrap();
        for rank in front.incoming() {
            let (rank, switch) = (rank.unwrap(), TcpStream::connect(behind).unwrap());
            for (mut from, mut to) in [(rank.try_clone().unwrap(), switch.try_clone().unwrap()), (switch, rank)] {
                thread::spawn(move || {
                    let _ = io::copy(&mut from, &mut to);
                    let _ = to.shutdown(Shutdown::Both);
                });
            }
        }
    });
    let (mut configs, _) = configs(2, Transport::Udp);
    configs.iter_mut().for_each(|config| config.meeting = at.clone());
    let sums = run(configs, |comm| {
        let mut vector = [comm.rank() as f32 + 1.0; 100];
        comm.allreduce(&mut vector, Operator::Sum).unwrap();
        vector
    });
    assert_eq!(sums, [[3.0; 100]; 2]);
}

#[test]
fn two_of_the_same_rank_are_refused_by_name() {
    let (mut configs, _) = configs(3, Transport::Auto);
    configs[2].rank = 1;
    configs.iter_mut().for_each(|config| config.timeout = Duration::from_secs(2));
    let results = at_all(configs, |_| ());
    assert!(results.iter().all(Result::is_err));
    assert!(results.iter().any(|result| matches!(result, Err(CommError::Refused { rank: 1, .. }))), "{results:?}");
}

#[test]
fn a_rank_that_ends_the_job_is_named_with_its_reason() {
    for transport in BOTH {
        let (configs, _) = configs(3, transport);
        let errors = run(configs, |comm| {
            let mut result = together(&comm);
            if comm.rank() == 1 {
                comm.abort("the disk is full");
            }
            while result.is_ok() {
                result = comm.allreduce(&mut [1f32; 100], Operator::Sum);
            }
            let error = result.unwrap_err();
            assert_eq!(text(&comm.barrier().unwrap_err()), text(&error), "a failed communicator says the same for ever");
            error
        });
        for error in &errors {
            assert_eq!(error.suspect_rank(), Some(1), "{error}");
            assert!(text(error).ends_with("rank 1 has ended the job: the disk is full"), "{error}");
        }
    }
}

#[test]
fn a_user_who_has_had_enough_ends_the_wait_in_calls_and_before() {
    for transport in BOTH {
        for in_background in [false, true] {
            let (mut configs, _) = configs(2, transport);
            let [enough, asked, ended] = [(); 3].map(|()| Arc::new(AtomicBool::new(false)));
            let (its_enough, its_asked) = (enough.clone(), asked.clone());
            configs[0].interrupt = Interrupt::when(move || {
                its_asked.store(true, Ordering::Relaxed);
                its_enough.load(Ordering::Relaxed)
            });
            let errors = run(configs, move |comm| {
                if comm.rank() == 1 {
                    // Rank 0 waits for this one by now, and is asked whether to go on.
                    comm.barrier().unwrap();
                    asked.store(false, Ordering::Relaxed);
                    while !asked.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    enough.store(true, Ordering::Relaxed);
                    while !ended.load(Ordering::Relaxed) {
                        thread::sleep(Duration::from_millis(1));
                    }
                    loop {
                        if let Err(error) = comm.barrier() {
                            return error;
                        }
                    }
                }
                let met = together(&comm);
                let _handle = (met.is_ok() && in_background).then(|| comm.allreduce_async(vec![0i32; 10], Operator::Sum).unwrap());
                let error = met.and_then(|()| comm.reduce(&mut [0f32; 1_000], Operator::Sum, 1)).unwrap_err();
                ended.store(true, Ordering::Relaxed);
                error
            });
            for error in &errors {
                assert_eq!(error.suspect_rank(), Some(0), "{error}");
                assert!(text(error).contains("rank 0 has ended the job: interrupted by its user"), "{error}");
            }
        }
    }
    let (mut configs, _) = configs(2, Transport::Auto);
    let mut alone = configs.remove(0);
    alone.interrupt = Interrupt::when(|| true);
    let error = Communicator::join(alone).unwrap_err();
    assert!(text(&error).contains("rank 0 has not joined: interrupted by its user"), "{error}");
}

#[test]
fn wrong_arguments_change_nothing() {
    let (configs, _) = configs(2, Transport::Auto);
    run(configs, |comm| {
        let mut bits = [1f32; 4];
        let error = comm.allreduce(&mut bits, Operator::Xor).unwrap_err();
        assert!(matches!(&error, CommError::Arguments(text) if text.contains("no xor of f32")), "{error}");
        let error = comm.broadcast(&mut bits, 2).unwrap_err();
        assert_eq!(text(&error), "root = 2: there are only ranks 0 to 1");
        let error = comm.all_gather(&[1i8; 3], &mut [0i8; 5]).unwrap_err();
        assert_eq!(text(&error), "all-gather: the output has 5 elements, expected 6 (i8)");
        comm.allreduce(&mut bits, Operator::Sum).unwrap();
        assert_eq!(bits, [2.0; 4]);
    });
}

#[test]
fn a_caller_that_panics_in_the_background_is_an_error_and_no_hang() {
    struct Broken;
    impl fanin_comm::Lent for Broken {
        fn bytes(&mut self) -> &mut [u8] {
            panic!("the caller's own bug");
        }
    }
    let (mut configs, _) = configs(2, Transport::Auto);
    configs.iter_mut().for_each(|config| (config.timeout, config.stall_notice) = (Duration::from_secs(2), Duration::from_millis(200)));
    run(configs, |comm| {
        let op = fanin_comm::ElementOp { dtype: fanin_comm::DType::I8, operator: Operator::Sum };
        if comm.rank() == 1 {
            let handle = comm.call_async(fanin_comm::CollectiveKind::Allreduce, op, 4, Broken).unwrap();
            assert!(handle.wait().is_err());
            assert!(text(&comm.barrier().unwrap_err()).contains("panicked"));
        } else {
            assert_eq!(comm.allreduce(&mut [1i8; 4], Operator::Sum).unwrap_err().suspect_rank(), Some(1));
        }
    });
}

#[test]
fn nothing_is_left_behind_by_a_hundred_communicators() {
    fn open_files() -> usize {
        std::fs::read_dir("/proc/self/fd").unwrap().count()
    }
    fn threads() -> Vec<String> {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|name| name.starts_with("fanin")).collect()
    }
    if std::env::var_os("FANIN_TEST_ALONE").is_none() {
        // Other tests of this process open files and start threads, so this one has a process of its own.
        let me = std::env::current_exe().unwrap();
        let status = std::process::Command::new(me)
            .args(["--exact", "nothing_is_left_behind_by_a_hundred_communicators", "--nocapture"])
            .env("FANIN_TEST_ALONE", "1")
            .status()
            .unwrap();
        return assert!(status.success());
    }
    let mut before = None;
    for round in 0..100 {
        for transport in BOTH {
            let (mut configs, _) = configs(2, transport);
            configs.iter_mut().for_each(|config| config.sparse = SparsePath::Switch);
            run(configs, |comm| {
                let handle = comm.allreduce_async(vec![1i32; 10], Operator::Sum).unwrap();
                comm.barrier().unwrap();
                assert_eq!(handle.wait().unwrap(), [2; 10]);
                // By UDP, that is a job more.
                let sparse = comm.allreduce_sparse(&[7, 100], &[1i16, 2], 1_000, Operator::Max).unwrap();
                assert_eq!((sparse.indices, sparse.values), (vec![7, 100], vec![1, 2]));
            });
        }
        // The last thread to be joined may still be on the kernel's list for a moment.
        let mut tries = 0;
        while !threads().is_empty() && tries < PATIENT.as_millis() {
            thread::sleep(Duration::from_millis(1));
            tries += 1;
        }
        assert!(threads().is_empty(), "round {round}: {:?}", threads());
        let files = *before.get_or_insert_with(open_files);
        assert_eq!(open_files(), files, "round {round}");
    }
}
