//! Joins and leaves leave nothing behind: no thread, no descriptor, no memory. Alone in its process, since it counts what the process has.

mod common;

use std::fs;
use std::net::UdpSocket;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use common::{Rank, allreduce, join, loopback, metric, run_job, start, until};
use fanin_core::hash::mix;
use fanin_daemon::DaemonHandle;

fn entries(folder: &str) -> usize {
    fs::read_dir(folder).unwrap().count()
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// One job that ends well, one that fails, one that never begins: 5 ranks; and somebody who only connects.
fn come_and_go(daemon: &DaemonHandle, round: u32) {
    let switch = daemon.control_address();
    run_job(switch, "short", 2, 1_000, 1);
    let mut ranks: Vec<Rank> = (0..2).map(|rank| Rank::join(switch, join("failing", rank, 2))).collect();
    ranks.iter_mut().for_each(|rank| drop(rank.admitted().unwrap()));
    ranks.pop().unwrap().die();
    if round.is_multiple_of(20) {
        // That takes the time which the switch gives a rank to come back.
        let _ = ranks[0].end();
    }
    drop(ranks);
    drop(Rank::join(switch, join("waiting", 0, 2)));
    drop(std::net::TcpStream::connect(switch).unwrap());
}

/// What is there once all is quiet.
fn settle(daemon: &DaemonHandle) {
    until("no job is left", || {
        metric(daemon, "fanin_switch_job_ranks", "") == 0.0 && metric(daemon, "fanin_switch_control_connections", "") == 0.0
    });
}

/// A job that goes on while others come and go and a stranger sends it garbage: all its sums are exact. Gives how many operations it did.
fn run_beside(daemon: &DaemonHandle, body: impl FnOnce()) -> u32 {
    let mut ranks: Vec<Rank> = (0..2).map(|rank| Rank::join(daemon.control_address(), join("beside", rank, 2))).collect();
    let admitted: Vec<_> = ranks.iter_mut().map(|rank| rank.admitted().unwrap()).collect();
    let (mut second, mut first) = (ranks.pop().unwrap(), ranks.pop().unwrap());
    let mut drivers = [first.driver(&admitted[0]), second.driver(&admitted[1])];
    first.say(fanin_control::ClientMessage::Ready);
    second.start().unwrap();
    let (done, (tell, told)) = (AtomicBool::new(false), mpsc::channel());
    let data = admitted[0].data;
    let operations = thread::scope(|scope| {
        let [one, two] = &mut drivers;
        let (first, second, done) = (&first, &second, &done);
        scope.spawn(move || {
            let stranger = UdpSocket::bind(loopback()).unwrap();
            for i in 0u64.. {
                if done.load(Ordering::Relaxed) {
                    break;
                }
                let garbage: Vec<u8> = (0..40).flat_map(|j| mix(i, j).to_le_bytes()).collect();
                // A full buffer is the network's way to refuse it.
                let _ = stranger.send_to(&garbage, data);
                thread::sleep(Duration::from_micros(200));
            }
        });
        // Both make the same calls: the first says each time that there is one more.
        let leading = scope.spawn(move || {
            let mut operation = 0;
            while !done.load(Ordering::Relaxed) {
                tell.send(operation).unwrap();
                allreduce(one, first, operation, 2_000, 1).unwrap();
                operation += 1;
            }
            operation
        });
        scope.spawn(move || told.iter().for_each(|operation| allreduce(two, second, operation, 2_000, 1).unwrap()));
        body();
        done.store(true, Ordering::Relaxed);
        leading.join().unwrap()
    });
    let strangers = metric(daemon, "fanin_switch_job_dropped_packets_total", "reason=\"not_a_member\"");
    assert!(strangers > 0.0, "no garbage has come");
    first.leave(operations);
    second.leave(operations);
    operations
}

#[test]
fn a_thousand_joins_and_leaves_leave_no_thread_no_descriptor_and_no_memory() {
    let daemon = start();
    // As later, so that allocators have by then what they keep: each thread that comes may take another arena of glibc's, of which there are eight
    // a core.
    run_beside(&daemon, || (0..20).for_each(|round| come_and_go(&daemon, round)));
    settle(&daemon);
    let (threads, descriptors) = (entries("/proc/self/task"), entries("/proc/self/fd"));
    let before = resident_bytes();
    // Rounds of 5 ranks.
    let operations = run_beside(&daemon, || (0..1_000 / 5).for_each(|round| come_and_go(&daemon, round)));
    assert!(operations > 0);
    settle(&daemon);
    until("threads are as before", || entries("/proc/self/task") <= threads);
    until("descriptors are as before", || entries("/proc/self/fd") <= descriptors);
    // A job has a megabyte of buffers: were they kept, it would be a thousand. What arenas keep for next time differs by some each.
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 64 << 20, "{grown} bytes more than after the first 20 rounds");
    assert_eq!(metric(&daemon, "fanin_switch_memory_bytes", ""), 0.0);

    let (threads, descriptors) = (entries("/proc/self/task"), entries("/proc/self/fd"));
    for _ in 0..100 {
        drop(start());
    }
    until("threads are as before", || entries("/proc/self/task") <= threads);
    until("descriptors are as before", || entries("/proc/self/fd") <= descriptors);
}
