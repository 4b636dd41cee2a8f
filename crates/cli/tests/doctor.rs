//! `fanin doctor` as a user sees it: every line has a verdict, what is wrong has a command, and the exit code agrees.

mod common;

use std::net::TcpListener;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// `fanin doctor` with these arguments and only these of the variables that it reads.
fn doctor(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanin"));
    command.arg("doctor").args(arguments).env_clear().envs(variables.iter().copied());
    command.output().expect("the program starts")
}

/// The findings, after a look at what must hold for any.
fn findings(arguments: &[&str], variables: &[(&str, &str)]) -> Vec<Value> {
    let output = doctor(&[arguments, &["--format", "json"]].concat(), variables);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let result: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let findings = result["findings"].as_array().unwrap().clone();
    let problems = findings.iter().filter(|finding| finding["level"] == "problem").count();
    assert_eq!(output.status.code(), Some(i32::from(problems > 0)), "{text}");
    assert_eq!(result["ok"], problems == 0, "{text}");
    for finding in &findings {
        assert_eq!(finding["level"] == "ok", finding["mend"].is_null(), "{finding}");
        assert!(finding["text"].as_str().is_some_and(|text| !text.is_empty()), "{finding}");
    }
    findings
}

fn one<'a>(findings: &'a [Value], check: &str) -> &'a Value {
    let mut all = findings.iter().filter(|finding| finding["check"] == check);
    let found = all.next().unwrap_or_else(|| panic!("no {check} in {findings:?}"));
    assert!(all.next().is_none(), "{check} twice");
    found
}

/// A port at which nobody listens.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

#[test]
fn without_any_variable_ranks_of_this_host_can_sum() {
    let findings = findings(&[], &[]);
    assert_eq!(one(&findings, "configuration")["level"], "ok");
    assert_eq!(one(&findings, "trial")["level"], "ok", "{findings:?}");
    for check in ["permissions", "offload", "socket buffers", "shared memory", "cores", "open files"] {
        one(&findings, check);
    }
}

#[test]
fn a_wrong_variable_is_a_problem_in_plain_words() {
    let output = doctor(&[], &[("FANIN_RANK", "first"), ("FANIN_WORLD", "2"), ("FANIN_SWTCH", "h:1")]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains("FANIN_RANK = first: expected a rank") && text.contains("mend it: export FANIN_RANK="), "{text}");
    assert!(text.contains("is FANIN_SWITCH meant?"), "{text}");
}

#[test]
fn a_switch_that_is_not_there_is_a_problem_with_the_command_that_starts_it() {
    let address = format!("127.0.0.1:{}", free_port());
    let found = findings(&["--switch", &address], &[]);
    let switch = one(&found, "switch");
    assert_eq!(switch["level"], "problem");
    assert!(switch["mend"].as_str().unwrap().contains("fanin switch --listen"), "{switch}");
}

/// A running switch; ended with the test.
struct Switch(Child);

impl Drop for Switch {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What is found out of a switch that listens at `address`, once it does.
fn findings_of(switch: &mut Switch, address: &str, variables: &[(&str, &str)]) -> Vec<Value> {
    loop {
        let found = findings(&["--switch", address], variables);
        if one(&found, "switch")["level"] == "ok" {
            return found;
        }
        assert!(matches!(switch.0.try_wait(), Ok(None)), "the switch has ended");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The trial joins as the configured job may, whatever ranks its token is for; the token is not in the report.
#[test]
fn a_switch_that_asks_for_tokens_is_tried_with_the_configured_one() {
    let folder = common::folder("doctor_tokens");
    let keys = common::good(&folder, &["token", "new", "--name", "one", "--private", "issuer.key"]);
    std::fs::write(folder.join("keys.toml"), keys).unwrap();
    let issue = ["token", "issue", "--private", "issuer.key", "--name", "one", "--tenant", "red", "--job", "train-*", "--ranks", "1"];
    let token = common::good(&folder, &issue);
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanin"));
    let arguments = ["switch", "--listen", &address, "--keys", "keys.toml", "--packets", "seal"];
    let child = command.current_dir(&folder).args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut switch = Switch(child.expect("the switch starts"));
    let rank = [("FANIN_RANK", "1"), ("FANIN_WORLD", "2"), ("FANIN_TOKEN", token.trim())];
    let found = findings_of(&mut switch, &address, &[&rank[..], &[("FANIN_JOB", "train-1")]].concat());
    assert_eq!(one(&found, "trial")["level"], "ok", "{found:?}");
    assert!(one(&found, "switch")["text"].as_str().unwrap().contains("packets have keys: seal"), "{found:?}");
    assert!(!format!("{found:?}").contains(token.trim()), "the token is in the report");
    for variables in [&rank[..], &rank[..2]] {
        let found = findings_of(&mut switch, &address, variables);
        let trial = one(&found, "trial");
        assert!(trial["level"] == "problem" && trial["mend"].as_str().unwrap().contains("fanin token issue"), "{trial}");
    }
}

#[test]
fn a_switch_that_is_there_is_greeted_and_tried() {
    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanin"));
    let child = command.args(["switch", "--listen", &address]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut switch = Switch(child.expect("the switch starts"));
    // The switch takes a moment to listen.
    let found = findings_of(&mut switch, &address, &[("FANIN_RANK", "1"), ("FANIN_WORLD", "2")]);
    for check in ["configuration", "local address", "path MTU", "trial"] {
        assert_eq!(one(&found, check)["level"], "ok", "{found:?}");
    }
    assert!(one(&found, "trial")["text"].as_str().unwrap().contains(&address), "{found:?}");
}
