//! Control connections by TLS, as a user of the program has them: certificates made by one command, switches, managers, `fanin doctor`.

mod common;

use std::fs;
use std::io::{BufRead, BufReader};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{at_free_ports, folder, good, refused};
use fanin_comm::{ClientTls, Communicator, Config, Identity, Meeting, Operator, Transport, Trusted};
use fanin_daemon::FabricClient;
use serde_json::Value;

/// A process that is killed where a test ends without ending it.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts `fanin`; gives it with its first line.
fn start(folder: &Path, arguments: &[&str]) -> (Process, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanin"));
    command.current_dir(folder).args(arguments).env("RUST_LOG", "error").stdin(Stdio::null()).stdout(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    (Process(child), line.trim_end().to_owned())
}

fn address_in(line: &str) -> SocketAddr {
    line.strip_prefix("ranks join at ").unwrap_or_else(|| panic!("{line}")).parse().unwrap()
}

/// Ranks of a job that sum, and what came of each.
fn sums(meeting: &Meeting, world: u32, tls: Option<&ClientTls>) -> Vec<Result<(), String>> {
    let rank = |rank: u32| {
        let config = Config { tls: tls.cloned(), timeout: Duration::from_secs(30), ..Config::new(rank, world, meeting.clone()) };
        let config = if matches!(meeting, Meeting::Switch(_)) { Config { transport: Transport::Udp, ..config } } else { config };
        let comm = Communicator::join(config).map_err(|error| error.to_string())?;
        let mut vector = vec![rank as i32 + 1; 3_000];
        comm.allreduce(&mut vector, Operator::Sum).map_err(|error| error.to_string())?;
        let world = world as i32;
        assert!(vector.iter().all(|sum| *sum == world * (world + 1) / 2));
        Ok(())
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..world).map(|number| scope.spawn(move || rank(number))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no rank panics")).collect()
    })
}

/// `fanin doctor` with these variables: its finding of this name.
fn finding(folder: &Path, variables: &[(&str, &str)], name: &str) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanin"));
    command.current_dir(folder).args(["doctor", "--format", "json"]).env_remove("RUST_LOG").envs(variables.iter().copied());
    let found: Value = serde_json::from_slice(&command.output().unwrap().stdout).unwrap();
    found["findings"].as_array().unwrap().iter().find(|one| one["check"] == name).unwrap().clone()
}

#[test]
fn one_command_makes_what_a_switch_and_its_ranks_need() {
    let folder = folder("tls_new");
    let said = good(&folder, &["tls", "new", "tls", "--name", "agg", "--name", "127.0.0.1"]);
    assert!(said.contains("--tls-cert tls/agg.pem --tls-key tls/agg.key") && said.contains("FANIN_TLS=tls/ca.pem"), "{said}");
    for key in ["ca.key", "agg.key"] {
        assert_eq!(fs::metadata(folder.join("tls").join(key)).unwrap().permissions().mode() & 0o777, 0o600, "{key}");
    }
    let shown = good(&folder, &["tls", "show", "tls/agg.pem"]);
    assert!(shown.contains("names        agg 127.0.0.1") && shown.contains("signed by    CN=Fanin CA of agg"), "{shown}");
    let fingerprint = shown.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
    assert!(said.contains(&fingerprint), "{said}");
    // A CA is not lost by mistake.
    let again = common::fanin(&folder, &["tls", "new", "tls", "--name", "agg"]);
    assert!(again.status.code() == Some(1) && String::from_utf8_lossy(&again.stderr).contains("tls/ca.key"));

    let (switch, line) = start(&folder, &["switch", "--listen", "127.0.0.1:0", "--tls-cert", "tls/agg.pem", "--tls-key", "tls/agg.key"]);
    let at = address_in(&line);
    let meeting = Meeting::Switch(at.to_string());
    let known = |trusted: &str| ClientTls { trusted: trusted.parse().unwrap(), name: None, identity: None };
    for trusted in [folder.join("tls/ca.pem").display().to_string(), fingerprint] {
        assert_eq!(sums(&meeting, 2, Some(&known(&trusted))), [Ok(()), Ok(())], "{trusted}");
    }
    assert!(sums(&meeting, 2, None)[0].as_ref().unwrap_err().contains("go by TLS: set FANIN_TLS"));
    let (text, ca) = (at.to_string(), folder.join("tls/ca.pem").display().to_string());
    let rank = [("FANIN_RANK", "0"), ("FANIN_WORLD", "2"), ("FANIN_SWITCH", text.as_str())];
    let with = [&rank[..], &[("FANIN_TLS", &*ca)]].concat();
    let switch_found = finding(&folder, &with, "switch");
    assert!(
        switch_found["level"] == "ok" && switch_found["text"].as_str().unwrap().contains("TLS 1.3, by certificate sha256:"),
        "{switch_found}"
    );
    assert_eq!(finding(&folder, &with, "trial")["level"], "ok");
    for (variables, expected) in [(&rank[..], "go by TLS"), (&[&with[..], &[("FANIN_TLS_NAME", "leaf")]].concat(), "is not for \"leaf\"")] {
        let found = finding(&folder, variables, "switch");
        assert!(found["level"] == "problem" && found["text"].as_str().unwrap().contains(expected), "{found}");
        assert!(found["mend"].as_str().unwrap().contains("FANIN_TLS"), "{found}");
    }
    drop(switch);
}

#[test]
fn tokens_go_over_a_network_as_they_are_only_where_that_is_said() {
    let folder = folder("tls_said");
    fs::write(folder.join("keys.toml"), good(&folder, &["token", "new", "--name", "one", "--private", "issuer.key"])).unwrap();
    good(&folder, &["tls", "new", "tls", "--name", "127.0.0.1"]);
    good(&folder, &["tls", "issue", "tls", "--name", "worker", "--for", "rank"]);
    let listen = ["switch", "--listen", "0.0.0.0:0", "--keys", "keys.toml"];
    let said = refused(&folder, &listen);
    assert!(said.contains("--tls-cert FILE") && said.contains("--control plain") && said.contains("fanin tls new"), "{said}");
    let tls = ["--tls-cert", "tls/127.0.0.1.pem", "--tls-key", "tls/127.0.0.1.key"];
    for (more, expected) in [
        (&["--control", "tls"][..], "--control tls without --tls-cert"),
        (&tls[..2], "--tls-cert without --tls-key"),
        (&tls[2..], "--tls-key without --tls-cert"),
        (&["--tls-clients", "tls/ca.pem"], "--tls-clients without --tls-cert"),
        (&[&tls[..], &["--control", "plain"]].concat(), "--control plain with --tls-cert"),
        (&["--control", "maybe"], "--control maybe: expected tls or plain"),
        (&[&tls[..], &["--tls-clients", "sha256:12"]].concat(), "--tls-clients sha256:12: expected a file of a CA"),
    ] {
        let said = refused(&folder, &[&listen[..], more].concat());
        assert!(said.contains(expected), "{said}");
    }
    let none = common::fanin(
        &folder,
        &[&["switch", "--listen", "127.0.0.1:0"][..], &["--tls-cert", "tls/no.pem", "--tls-key", "tls/no.key"]].concat(),
    );
    assert!(none.status.code() == Some(1) && String::from_utf8_lossy(&none.stderr).contains("tls/no.pem"), "{none:?}");
    // With a certificate it does, and asks ranks for theirs.
    let mutual = ["switch", "--listen", "0.0.0.0:0", "--open", "--control", "tls", "--tls-clients", "tls/ca.pem"];
    let (_switch, line) = start(&folder, &[&mutual[..], &tls[..]].concat());
    let meeting = Meeting::Switch(format!("127.0.0.1:{}", address_in(&line).port()));
    let stranger = ClientTls { trusted: Trusted::Ca(folder.join("tls/ca.pem")), name: None, identity: None };
    let worker = Identity { certificate: folder.join("tls/worker.pem"), key: folder.join("tls/worker.key") };
    let error = sums(&meeting, 1 + 1, Some(&stranger))[0].clone().unwrap_err();
    assert!(error.contains("asks for a certificate of this end"), "{error}");
    assert_eq!(sums(&meeting, 2, Some(&ClientTls { identity: Some(worker), ..stranger })), [Ok(()), Ok(())]);
}

#[test]
fn a_fabrics_switches_believe_its_manager_alone_and_ranks_know_the_manager() {
    let folder = folder("tls_fabric");
    let text = "[defaults]\nrate = \"400Mb/s\"\nbuffer = \"1MiB\"\n\n[leaf_spine]\nleaves = 1\nspines = 1\nhosts_per_leaf = 2\n";
    let fabric = at_free_ports(text, Ipv4Addr::LOCALHOST);
    fs::write(folder.join("fabric.toml"), fabric.to_toml()).unwrap();
    good(&folder, &["tls", "new", "tls", "--name", "127.0.0.1"]);
    good(&folder, &["tls", "issue", "tls", "--name", "manager", "--name", "127.0.0.1"]);
    let manager = good(&folder, &["tls", "show", "tls/manager.pem"]);
    let manager = manager.lines().next().unwrap().rsplit(' ').next().unwrap().to_owned();
    let own = ["--tls-cert", "tls/127.0.0.1.pem", "--tls-key", "tls/127.0.0.1.key"];
    let switch = |name| ["switch", "--fabric", "fabric.toml", "--name", name];
    let said = refused(&folder, &[&switch("leaf0")[..], &own].concat());
    assert!(said.contains("expected --tls-clients too"), "{said}");
    for packets in ["mac", "seal"] {
        let said = refused(&folder, &[&switch("leaf0")[..], &["--packets", packets]].concat());
        assert!(said.contains(&format!("--packets {packets}: expected --fabric-key FILE too")), "{said}");
        let said = refused(&folder, &["manager", "fabric.toml", "--packets", packets]);
        assert!(said.contains(&format!("--packets {packets}: expected --fabric-key FILE too")), "{said}");
    }
    assert!(refused(&folder, &["manager", "fabric.toml", "--listen", "0.0.0.0:0"]).contains("--open"));
    let _switches = ["leaf0", "spine0"].map(|name| start(&folder, &[&switch(name)[..], &own, &["--tls-clients", &manager]].concat()));
    // Whoever is not the manager begins and ends nothing: neither plainly, nor with another certificate of the CA.
    let leaf = fabric.node(fabric.node_named("leaf0").unwrap()).address;
    let plain = FabricClient::connect(leaf, Duration::from_secs(10)).err().unwrap().to_string();
    assert!(plain.contains("go by TLS"), "{plain}");
    let ca = Trusted::Ca(folder.join("tls/ca.pem"));
    let as_switch = Identity { certificate: folder.join("tls/127.0.0.1.pem"), key: folder.join("tls/127.0.0.1.key") };
    let other = ClientTls { trusted: ca.clone(), name: None, identity: Some(as_switch) };
    let refused = FabricClient::connect_by(Some(&other), leaf, Duration::from_secs(10)).err().unwrap().to_string();
    assert!(refused.contains("does not take the certificate of this end"), "{refused}");
    let at = ["--listen", "127.0.0.1:0", "--tls-cert", "tls/manager.pem", "--tls-key", "tls/manager.key", "--tls-switches", "tls/ca.pem"];
    let (_manager, line) = start(&folder, &[&["manager", "fabric.toml"][..], &at].concat());
    let meeting = Meeting::Fabric(address_in(&line).to_string());
    let rank = ClientTls { trusted: ca, name: None, identity: None };
    assert_eq!(sums(&meeting, 2, Some(&rank)), [Ok(()), Ok(())]);
    assert!(sums(&meeting, 2, None)[0].as_ref().unwrap_err().contains("go by TLS"));
}
