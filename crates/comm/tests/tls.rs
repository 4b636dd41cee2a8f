//! Control connections by TLS: at a switch, also when it is killed and started again, and at rank 0.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::Duration;

use chrono::Utc;
use common::switch::{self, Switch, at, every_collective, identity};
use common::{PATIENT, at_all, configs, run};
use fanin_channel::issue::{self, Issued, Purpose};
use fanin_comm::{ClientTls, Communicator, Config, Host, Meeting, Operator, Transport, Trusted};

/// Not a test of its own: the process that is killed.
#[test]
fn a_switch_for_the_other_tests() {
    switch::serve();
}

/// The folder of a cluster, with certificates for its switch, for a rank that may run one, and for a rank.
struct Cluster(PathBuf);

impl Cluster {
    fn new(name: &str) -> Cluster {
        let folder = std::env::temp_dir().join(format!("fanin-comm-{}-{name}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let ca = issue::authority("test", Utc::now(), 2).unwrap();
        fs::write(folder.join("ca.pem"), &ca.certificate).unwrap();
        for (name, purpose) in [("switch", Purpose::Switch), ("rank", Purpose::Rank)] {
            let names = ["agg".to_owned(), "127.0.0.1".to_owned()];
            let Issued { certificate, key } = issue::certificate(&ca, &names, purpose, Utc::now(), 2).unwrap();
            fs::write(folder.join(format!("{name}.pem")), certificate).unwrap();
            fs::write(folder.join(format!("{name}.key")), key).unwrap();
        }
        Cluster(folder)
    }

    fn tls(&self) -> ClientTls {
        ClientTls { trusted: Trusted::Ca(self.0.join("ca.pem")), name: None, identity: None }
    }

    fn tls_as(&self, name: &str) -> ClientTls {
        ClientTls { identity: Some(identity(&self.0, name)), ..self.tls() }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn with(configs: Vec<Config>, tls: &ClientTls) -> Vec<Config> {
    configs.into_iter().map(|config| Config { tls: Some(tls.clone()), ..config }).collect()
}

fn sums(comm: &Communicator) {
    let mut vector = vec![comm.rank() as i32 + 1; 5_000];
    comm.allreduce(&mut vector, Operator::Sum).unwrap();
    let world = comm.world() as i32;
    assert!(vector.iter().all(|sum| *sum == world * (world + 1) / 2));
}

#[test]
fn sums_are_exact_by_tls_and_sealed_packets_also_when_the_switch_is_killed() {
    let cluster = Cluster::new("killed");
    let mut switch = Switch::start_with("127.0.0.1:0", Some(cluster.0.clone()));
    let (configs, calls) = (with(at(&switch, 3), &cluster.tls()), Arc::new(AtomicU32::new(0)));
    let counted = calls.clone();
    let ranks = thread::spawn(move || {
        let all_done = Arc::new(std::sync::Barrier::new(3));
        run(configs, move |comm| {
            for call in 0..20 {
                every_collective(&comm, call);
                counted.fetch_add(1, Ordering::Relaxed);
            }
            all_done.wait();
        })
    });
    for restart in 0..2 {
        while !ranks.is_finished() && calls.load(Ordering::Relaxed) < 12 + 18 * restart {
            thread::sleep(Duration::from_micros(700));
        }
        assert!(!ranks.is_finished());
        switch.start_again();
    }
    ranks.join().unwrap();
}

#[test]
fn a_switch_and_a_rank_that_do_not_trust_each_other_say_so_at_once() {
    let (cluster, other) = (Cluster::new("trust"), Cluster::new("stranger"));
    let sealed = Switch::start_with("127.0.0.1:0", Some(cluster.0.clone()));
    let plain = Switch::start("127.0.0.1:0");
    let named = ClientTls { name: Some("leaf".into()), ..cluster.tls() };
    for (switch, tls, expected) in [
        (&sealed, None, "go by TLS: set FANIN_TLS"),
        (&plain, Some(cluster.tls()), "does not speak TLS"),
        (&sealed, Some(other.tls()), "is not one of the CA in"),
        (&sealed, Some(named), "is not for \"leaf\""),
    ] {
        for result in at_all(at(switch, 2).into_iter().map(|config| Config { tls: tls.clone(), ..config }).collect(), |_| ()) {
            let text = result.unwrap_err().to_string();
            assert!(text.contains(expected) && text.contains("is not admitted"), "{text}");
        }
    }
    // The switch has lost nothing by it.
    run(with(at(&sealed, 2), &cluster.tls()), |comm| sums(&comm));
}

#[test]
fn ranks_without_a_switch_know_each_other_by_their_certificates() {
    let (cluster, other) = (Cluster::new("rank-0"), Cluster::new("not-rank-0"));
    let (mut ranks, _) = configs(3, Transport::Udp);
    let intruder = Config { timeout: Duration::from_secs(20), ..ranks[2].clone() };
    ranks = with(ranks, &cluster.tls_as("switch"));
    // Who runs no switch needs no certificate of one.
    ranks[2].tls = Some(cluster.tls_as("rank"));
    let last = ranks.pop().unwrap();
    let first = thread::spawn(move || run(ranks, |comm| sums(&comm)));
    let foreign = ClientTls { trusted: cluster.tls().trusted, ..other.tls_as("switch") };
    for (tls, expected) in [(None, "go by TLS"), (Some(foreign), "does not take the certificate of this end")] {
        let text = Communicator::join(Config { tls, ..intruder.clone() }).map(drop).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
    sums(&Communicator::join(last).unwrap());
    first.join().unwrap();
}

#[test]
fn a_host_is_known_by_its_certificate_and_is_none_without_one() {
    let cluster = Cluster::new("host");
    let file = |name: &str| cluster.0.join(name).display().to_string();
    let (mut given, listen) = (BTreeMap::from([("FANIN_TLS", file("ca.pem"))]), "127.0.0.1:0".parse().unwrap());
    let error = Host::start_by(&given, listen, PATIENT).err().unwrap().to_string();
    assert!(error.contains("tls_cert = none: expected a certificate and its key"), "{error}");
    given.extend([("FANIN_TLS_CERT", file("switch.pem")), ("FANIN_TLS_KEY", file("switch.key"))]);
    let host = Host::start_by(&given, listen, PATIENT).unwrap();
    let (ranks, _) = configs(2, Transport::Udp);
    let meeting = Meeting::Rendezvous(host.address().to_string());
    let ranks = ranks.into_iter().map(|config| Config { meeting: meeting.clone(), ..config }).collect();
    run(with(ranks, &cluster.tls_as("switch")), |comm| sums(&comm));
}

#[test]
fn files_and_variables_that_make_no_sense_are_named() {
    let cluster = Cluster::new("variables");
    let ca = cluster.0.join("ca.pem").display().to_string();
    let base = [("FANIN_RANK", "0"), ("FANIN_WORLD", "2")];
    let read = |more: &[(&str, &str)]| {
        let all = [&base[..], more].concat();
        Config::from_variables(|name| all.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_string()))
    };
    let at_switch = ("FANIN_SWITCH", "agg:7700");
    let config = read(&[at_switch, ("FANIN_TLS", &ca), ("FANIN_TLS_NAME", "leaf")]).unwrap();
    assert_eq!(config.tls, Some(ClientTls { name: Some("leaf".into()), ..cluster.tls() }));
    assert_eq!(config.meeting, Meeting::Switch("agg:7700".into()));
    for (variables, expected) in [
        (&[at_switch, ("FANIN_TLS", "/nowhere/ca.pem")][..], "tls = /nowhere/ca.pem: expected files that can be read"),
        (&[at_switch, ("FANIN_TLS", "sha256:12")], "FANIN_TLS = sha256:12: expected sha256: and 64 hexadecimal digits"),
        (&[at_switch, ("FANIN_TLS", &ca), ("FANIN_TLS_CERT", "a.pem")], "FANIN_TLS_KEY is not set, but FANIN_TLS_CERT is"),
        (&[at_switch, ("FANIN_TLS", &ca), ("FANIN_TLS_NAME", "a b")], "expected a name of a host, or an IP address"),
        (&[at_switch, ("FANIN_TLS_NAME", "leaf")], "FANIN_TLS is not set, but FANIN_TLS_NAME is"),
        (&[("FANIN_RENDEZVOUS", "agg:7700"), ("FANIN_TLS", &ca)], "tls_cert = none: expected a certificate and its key"),
    ] {
        let text = read(variables).unwrap_err().to_string();
        assert!(text.contains(expected), "{text}");
    }
}
