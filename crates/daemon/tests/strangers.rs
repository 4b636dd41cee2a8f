//! Whoever can reach the port may ask for what there is; what a switch then has is bounded, and others find room. Alone in its process, since
//! it counts threads.

mod common;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;

use common::{GUARD, Rank, config, join, metric, run_job, until};
use fanin_control::{ClientMessage, Hello, OperatorWish, encode};
use fanin_daemon::{Daemon, DaemonConfig};
use fanin_operator::Digest;

fn threads(name: &str) -> usize {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|found| found.starts_with(name)).count()
}

#[test]
fn what_strangers_ask_for_is_bounded_and_newcomers_find_room() {
    let mut config = config();
    (config.jobs.jobs_max, config.jobs.connections_max) = (8, 400);
    let daemon = Daemon::start(config).unwrap();
    let switch = daemon.control_address();

    // All the memory, by a rank whose others never come.
    let mut greedy = join("greedy", 0, 2);
    (greedy.wish.window, greedy.wish.payload_bytes) = (Some(65_536), Some(3_904));
    let greedy = Rank::join(switch, greedy);
    until("it waits", || metric(&daemon, "fanin_switch_jobs", "phase=\"waiting\"") == 1.0);
    assert_eq!(metric(&daemon, "fanin_switch_memory_bytes", ""), 0.0);

    // Modules by the hundred.
    let module = include_bytes!("../../../examples/operators/extremes.wasm");
    let wish = OperatorWish { name: "o".into(), digest: Digest::of(module).to_string(), module: Some(OperatorWish::digits(module)) };
    let mut many = Vec::new();
    for number in 0..100 {
        let mut join = join(&format!("compile-{number}"), 0, 1);
        join.operators = vec![wish.clone()];
        many.push(Rank::join(switch, join));
        assert!(threads("fanin-compile") <= 1 && threads("fanin-job") <= 9, "{} {}", threads("fanin-compile"), threads("fanin-job"));
    }
    until("all have their answer", || {
        let refused =
            metric(&daemon, "fanin_switch_refusals_total", "reason=\"full\"") + metric(&daemon, "fanin_switch_jobs_failed_total", "");
        assert!(threads("fanin-compile") <= 1 && threads("fanin-job") <= 9);
        refused >= 92.0
    });
    drop(many);
    until("they are gone", || threads("fanin-compile") + threads("fanin-job") == 0);

    // As many connections as there may be, and more.
    let idle: Vec<TcpStream> = (0..500).map(|_| TcpStream::connect(switch).unwrap()).collect();
    run_job(switch, "newcomer", 2, 1_000, 3);
    drop((idle, greedy));

    // A message that never becomes whole, from many sides: what is over is refused, and the switch lives on.
    let parts: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut stream = TcpStream::connect(switch).unwrap();
            stream.set_read_timeout(Some(GUARD)).unwrap();
            // Who has not said hello has no word as long as that.
            stream.write_all(&encode(&ClientMessage::Hello(Hello::new("stranger")))).unwrap();
            stream.write_all(&(1_000_000u32).to_le_bytes()).unwrap();
            // It may be refused in the middle of it.
            let _ = stream.write_all(&vec![b' '; 900_000]);
            stream
        })
        .collect();
    run_job(switch, "late", 2, 1_000, 3);
    let mut refused = 0;
    for mut stream in parts {
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        refused += usize::from(String::from_utf8_lossy(&said).contains("of a message that is not whole"));
    }
    assert!(refused > 0);
}

#[test]
fn a_member_that_does_not_read_what_it_makes_the_switch_say_is_cut_off() {
    let daemon = Daemon::start(DaemonConfig { http: Some(common::loopback()), ..DaemonConfig::new(common::loopback()) }).unwrap();
    let mut rank = Rank::join(daemon.control_address(), join("echo", 0, 1));
    rank.admitted().unwrap();
    let value = "x".repeat(4_000);
    let share = encode(&ClientMessage::Share { key: "k".into(), value });
    rank.stream.set_write_timeout(Some(GUARD)).unwrap();
    // Far more than the kernel's buffers and the switch's own hold.
    let mut sent = 0u64;
    while sent < 1 << 30 && rank.stream.write_all(&share).is_ok() {
        sent += share.len() as u64;
    }
    assert!(sent < 1 << 30, "the switch has taken all of it");
    until("the job is over", || metric(&daemon, "fanin_switch_jobs_failed_total", "reason=\"rank_lost\"") == 1.0);
}
