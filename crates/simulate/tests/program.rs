//! The small program has the words and the exit codes of `fanin sim` and `fanin examples`.

use std::process::{Command, Output};

fn program(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fanin-simulate")).args(arguments).output().expect("the program runs")
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

#[test]
fn examples_are_listed_checked_and_simulated() {
    let listed = program(&["examples"]);
    assert!(listed.status.success());
    assert!(text(&listed.stdout).lines().any(|line| line.starts_with("quickstart: ")), "{}", text(&listed.stdout));
    let checked = program(&["sim", "--example", "quickstart", "--check"]);
    assert!(checked.status.success() && text(&checked.stdout).contains("Canary"), "{}", text(&checked.stdout));
    let short = ["sim", "--example", "loss", "--set", "run.repetitions=1", "--set", "jobs.0.message=64KiB", "--format", "csv"];
    let simulated = program(&short);
    assert!(simulated.status.success(), "{}", text(&simulated.stderr));
    assert!(text(&simulated.stdout).lines().count() > 1 && text(&simulated.stdout).contains(",exact,"), "{}", text(&simulated.stdout));
}

#[test]
fn wrong_input_is_named_and_ends_with_two() {
    let missing = program(&["sim", "none.toml"]);
    assert_eq!((missing.status.code(), text(&missing.stdout)), (Some(2), ""));
    assert!(text(&missing.stderr).contains("none.toml"), "{}", text(&missing.stderr));
    let unknown = program(&["sim", "--example", "nothing"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(text(&unknown.stderr).contains("--example") && text(&unknown.stderr).contains("quickstart"), "{}", text(&unknown.stderr));
}
