//! Joins and leaves leave nothing behind: no thread, no descriptor, no memory. Alone in its process, since it counts what the process has.

mod common;

use std::fs;

use common::{Rank, join, metric, run_job, start, until};
use fanin_daemon::DaemonHandle;

fn entries(folder: &str) -> usize {
    fs::read_dir(folder).unwrap().count()
}

fn resident_bytes() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<u64>().unwrap() << 10
}

/// One job that ends well, one that fails, one that never begins, and somebody who only connects.
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

#[test]
fn two_hundred_joins_and_leaves_leave_no_thread_no_descriptor_and_no_memory() {
    let daemon = start();
    (0..20).for_each(|round| come_and_go(&daemon, round));
    settle(&daemon);
    let (threads, descriptors) = (entries("/proc/self/task"), entries("/proc/self/fd"));
    let before = resident_bytes();
    (0..200).for_each(|round| come_and_go(&daemon, round));
    settle(&daemon);
    until("threads are as before", || entries("/proc/self/task") <= threads);
    until("descriptors are as before", || entries("/proc/self/fd") <= descriptors);
    // A job has a megabyte of buffers: were they kept, it would be hundreds. What allocators keep for next time differs a little.
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 16 << 20, "{grown} bytes more than after the first 20 rounds");
    assert_eq!(metric(&daemon, "fanin_switch_memory_bytes", ""), 0.0);

    let (threads, descriptors) = (entries("/proc/self/task"), entries("/proc/self/fd"));
    for _ in 0..100 {
        drop(start());
    }
    until("threads are as before", || entries("/proc/self/task") <= threads);
    until("descriptors are as before", || entries("/proc/self/fd") <= descriptors);
}
