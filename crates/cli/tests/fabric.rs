//! `fanin switch --fabric` and the processes of hosts: what `docs/fabric.md` says is what happens, and collectives over real processes are
//! exact, also after a spine was killed.

mod common;

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::thread;
use std::time::Duration;

use common::{at_free_ports, folder, refused};
use fanin_daemon::FabricClient;
use fanin_fabric::Fabric;
use serde_json::{Value, json};

fn documentation() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/fabric.md")).expect("the page about fabrics")
}

const FABRIC: &str = r#"
[defaults]
rate = "1Gb/s"
buffer = "8MiB"
delay = "100us"
hello_interval = "20ms"
hello_timeout = "1s"

[leaf_spine]
leaves = 2
spines = 2
hosts_per_leaf = 2
"#;

/// The fabric at ports that are free, written to `fabric.toml`.
fn fabric(folder: &Path) -> Fabric {
    let fabric = at_free_ports(FABRIC, Ipv4Addr::LOCALHOST);
    fs::write(folder.join("fabric.toml"), fabric.to_toml()).unwrap();
    fabric
}

/// A process that is killed where a test ends without ending it.
struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    fn start(folder: &Path, arguments: &[&str]) -> Process {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fanin"))
            .current_dir(folder)
            .args(arguments)
            .env("RUST_LOG", "warn")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        Process { child, input, output }
    }

    fn switch(folder: &Path, name: &str, more: &[&str]) -> Process {
        let mut arguments = vec!["switch", "--fabric", "fabric.toml", "--name", name];
        arguments.extend(more);
        let mut process = Process::start(folder, &arguments);
        assert!(process.line().starts_with(&format!("{name} at 127.0.0.1:")));
        process
    }

    fn host(folder: &Path, name: &str) -> Process {
        Process::start(folder, &["fabric-worker", "--fabric", "fabric.toml", "--name", name])
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the process has ended");
        line.trim_end().to_owned()
    }

    fn order(&mut self, order: &Value) {
        writeln!(self.input.as_mut().unwrap(), "{order}").unwrap();
    }

    /// The next event of this name.
    fn event(&mut self, name: &str) -> Value {
        loop {
            let event: Value = serde_json::from_str(&self.line()).unwrap();
            assert_ne!(event["event"], if name == "refused" { "" } else { "refused" }, "{event}");
            if event["event"] == name {
                return event;
            }
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn client(fabric: &Fabric, name: &str) -> FabricClient {
    FabricClient::connect(fabric.node(fabric.node_named(name).unwrap()).address, Duration::from_secs(60)).unwrap()
}

/// Asks again and again, until each port is up or not, as wanted.
fn until(fabric: &Fabric, name: &str, is_up: impl Fn(&str) -> bool) {
    let mut client = client(fabric, name);
    while !client.status().unwrap().ports.iter().all(|port| port.is_up() == is_up(&port.peer)) {
        thread::sleep(Duration::from_millis(10));
    }
}

fn job(number: u16) -> Value {
    json!({"job": number, "system": {"system": "canary", "timeout_ps": 2_000_000_000u64, "descriptors": 4096},
        "op": {"dtype": "i32", "operator": "sum"}, "payload_bytes": 1024, "window": 64, "reliable": true, "rto_initial_us": 200_000,
        "rto_min_us": 50_000, "patience_ms": 60_000, "seed": 1, "hosts": [0, 1, 2, 3]})
}

/// Runs operations of a job at all hosts; gives what became of them.
fn run(fabric: &Fabric, hosts: &mut [Process], switches: &[&str], number: u16, operations: &Value) -> Vec<Value> {
    for name in switches {
        let announcement = serde_json::from_value(job(number)).unwrap();
        assert!(client(fabric, name).announce(&announcement).unwrap());
    }
    for host in &mut *hosts {
        host.order(&json!({"order": "job", "job": job(number), "operations": operations, "vector_seed": 5}));
    }
    for (rank, host) in hosts.iter_mut().enumerate() {
        assert_eq!(host.event("job_ready")["rank"], rank);
    }
    hosts.iter_mut().for_each(|host| host.order(&json!({"order": "start", "job": number})));
    let mut reports = Vec::new();
    for host in hosts {
        for _ in 0..operations.as_array().unwrap().len() {
            reports.push(host.event("operation"));
        }
        assert_eq!(host.event("job_done")["failed"], 0);
    }
    reports
}

#[test]
fn processes_of_a_fabric_sum_exactly_also_after_a_spine_was_killed() {
    let folder = folder("fabric_processes");
    let fabric = fabric(&folder);
    let mut switches: Vec<Process> = ["leaf0", "leaf1", "spine0", "spine1"].map(|name| Process::switch(&folder, name, &[])).into();
    let mut hosts: Vec<Process> = ["host0", "host1", "host2", "host3"].map(|name| Process::host(&folder, name)).into();
    for leaf in ["leaf0", "leaf1"] {
        until(&fabric, leaf, |_| true);
    }
    let operations = json!([{"kind": "allreduce", "elements": 50_000}, {"kind": "allreduce", "elements": 3}]);
    for report in run(&fabric, &mut hosts, &["leaf0", "leaf1", "spine0", "spine1"], 1, &operations) {
        assert!(report["ok"] == true && report["wrong_elements"] == 0 && report["error"].is_null(), "{report}");
        assert!(report["goodput_bits_per_second"].as_f64().unwrap() > 0.0);
    }
    hosts[0]
        .order(&json!({"order": "traffic", "id": 3, "to": "host2", "bits_per_second": 1_000_000, "payload_bytes": 500, "via": "spine1"}));

    // SIGKILL: it says nothing to anybody.
    switches.remove(2).child.kill().unwrap();
    for leaf in ["leaf0", "leaf1"] {
        until(&fabric, leaf, |peer| peer != "spine0");
    }
    let left = ["leaf0", "leaf1", "spine1"];
    assert!(run(&fabric, &mut hosts, &left, 2, &operations).iter().all(|report| report["ok"] == true));

    hosts[0].order(&json!({"order": "stop_traffic", "id": 3}));
    assert!(hosts[0].event("traffic_stopped")["packets"].as_u64().unwrap() > 0);
    hosts[0].order(&json!({"order": "traffic", "id": 4, "to": "host0", "bits_per_second": 1, "payload_bytes": 1, "via": null}));
    assert_eq!(hosts[0].event("refused")["text"], "to = \"host0\": expected another host");
    for host in &mut hosts {
        host.order(&json!({"order": "end"}));
        let status = host.event("status");
        assert_eq!(status["link"], "up");
        assert!(status["counters"]["packets_received"].as_u64().unwrap() > 0, "{status}");
        assert!(host.child.wait().unwrap().success());
    }
}

#[test]
fn a_host_and_a_switch_end_with_their_input() {
    let folder = folder("fabric_orphans");
    let _ = fabric(&folder);
    let mut switch = Process::switch(&folder, "spine0", &["--until-stdin-ends"]);
    let mut host = Process::host(&folder, "host1");
    host.event("ready");
    for process in [&mut switch, &mut host] {
        drop(process.input.take());
        assert!(process.child.wait().unwrap().success());
    }
}

#[test]
fn what_is_wrong_is_said() {
    let folder = folder("fabric_refused");
    let _ = fabric(&folder);
    let said = refused(&folder, &["switch", "--fabric", "fabric.toml", "--name", "leaf7"]);
    assert_eq!(said, "error: --name leaf7: fabric.toml has no such switch; there are leaf0, leaf1, spine0, spine1");
    let said = refused(&folder, &["fabric-worker", "--fabric", "fabric.toml", "--name", "leaf0"]);
    assert_eq!(said, "error: --name leaf0: fabric.toml has no such host; there are host0, host1, host2, host3");
    fs::write(folder.join("bad.toml"), "[leaf_spine]\nleaves = 0\n").unwrap();
    let said = refused(&folder, &["switch", "--fabric", "bad.toml", "--name", "leaf0"]);
    assert_eq!(said, "error: bad.toml:2: leaf_spine.leaves = 0: expected a whole number of 1 or more");
    assert!(refused(&folder, &["switch", "--fabric", "fabric.toml"]).contains("--name <NAME>"));
    assert!(refused(&folder, &["switch", "--fabric", "fabric.toml", "--name", "leaf0", "--listen", "127.0.0.1:0"]).contains("--listen"));
    assert!(refused(&folder, &["switch", "--loss", "1.1"]).contains("--loss"));
}

/// Rows of the tables: what stands in backquotes at their beginning.
fn rows(documentation: &str) -> BTreeSet<&str> {
    let first = documentation.lines().filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    first.flat_map(|cell| cell.split("`, `")).map(|name| name.trim_matches('`')).collect()
}

#[test]
fn every_key_and_option_is_documented_and_the_file_in_the_documentation_is_one() {
    let documentation = documentation();
    let example = documentation.split("```toml\n").nth(1).unwrap().split("```").next().unwrap();
    let fabric = Fabric::parse("docs", example).unwrap();
    assert_eq!((fabric.hosts().count(), fabric.switches().count()), (16, 4));
    assert_eq!(fabric.node(fabric.node_named("leaf0").unwrap()).address, SocketAddr::from(([127, 0, 0, 1], 7116)));

    let rows = rows(&documentation);
    for (section, table) in
        [("defaults", "[defaults]"), ("leaf_spine", "[leaf_spine]"), ("switch", "[[switch]]"), ("host", "[[host]]"), ("link", "[[link]]")]
    {
        let error = Fabric::parse("f", &format!("{table}\nunknown_to_all = 1\n")).unwrap_err().to_string();
        let known = error.split("expected one of ").nth(1).unwrap_or_else(|| panic!("{section}: {error}"));
        for key in known.split(", ") {
            assert!(rows.contains(key), "{key} of {table} is not documented");
        }
    }
    for option in ["--fabric", "--name", "--http", "--log-format", "--loss", "--duplicate", "--reorder", "--corrupt", "--fault-seed"] {
        assert!(rows.contains(option), "{option}");
    }
}

fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text.split_once("\r\n\r\n").unwrap().1.to_owned()
}

#[test]
fn every_metric_is_documented_and_every_documented_metric_is_there() {
    let folder = folder("fabric_metrics");
    let fabric = fabric(&folder);
    let mut switch = Process::switch(&folder, "leaf0", &["--http", "127.0.0.1:0"]);
    let http = switch.line();
    let http: SocketAddr = http.strip_prefix("metrics at http://").unwrap().split('/').next().unwrap().parse().unwrap();
    let announcement = serde_json::from_value(job(1)).unwrap();
    client(&fabric, "leaf0").announce(&announcement).unwrap();
    let metrics = get(http, "/metrics");
    let found: BTreeSet<&str> =
        metrics.lines().filter(|line| !line.starts_with('#')).map(|line| line.split(['{', ' ']).next().unwrap()).collect();
    let documentation = documentation();
    let documented: BTreeSet<&str> =
        rows(&documentation).into_iter().filter(|name| name.starts_with("fanin_") || name.starts_with("process_")).collect();
    let absent: Vec<_> = documented.difference(&found).collect();
    // The node has dropped and counted nothing, and nobody has contributed.
    let of_contributors = ["awaited_seconds", "completed_sums", "dropped_packets", "events", "late_sums"];
    assert_eq!(absent.into_iter().copied().collect::<Vec<_>>(), of_contributors.map(|name| format!("fanin_fabric_job_{name}_total")));
    let unknown: Vec<_> = found.difference(&documented).collect();
    assert!(unknown.is_empty(), "{unknown:?} are not documented");
    assert!(metrics.contains("fanin_fabric_link_up{port=\"2\",peer=\"spine0\"} 0\n"), "{metrics}");
    assert_eq!(get(http, "/healthz"), "ok\n");
}
