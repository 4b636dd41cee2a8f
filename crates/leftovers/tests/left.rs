//! A program that leaves something behind says what, and has failed; one that leaves nothing has not.

use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

/// Runs a program that leaves `what`: its exit code, and what it said.
fn run(what: &str, limit: Duration) -> (Option<i32>, String) {
    let mut program = Command::new(env!("CARGO_BIN_EXE_fanin-leaves"));
    let done = program.arg(what).env(fanin_leftovers::GRACE_MS, limit.as_millis().to_string()).output().expect("it starts");
    (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
}

fn assert_left(what: &str, name: &str) {
    let (code, said) = run(what, Duration::from_millis(300));
    assert_eq!(code, Some(fanin_leftovers::EXIT_CODE), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.len() == 2 && lines[0] == "left behind by this test program:", "{said}");
    assert!(lines[1].starts_with(what) && lines[1].ends_with(name), "{said}");
}

#[test]
fn what_is_left_is_told_and_makes_a_program_that_has_failed() {
    thread::scope(|scope| {
        scope.spawn(|| assert_left("thread", ": forgotten"));
        scope.spawn(|| assert_left("descriptor", ": /dev/null"));
        scope.spawn(|| assert_left("process", ": sleep"));
    });
}

#[test]
fn what_ends_by_itself_and_what_may_last_is_not_left() {
    let begin = Instant::now();
    assert_eq!(run("nothing", Duration::from_secs(60)), (Some(0), String::new()));
    assert!(begin.elapsed() < Duration::from_secs(59), "it is not waited for in vain");
}
