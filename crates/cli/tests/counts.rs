//! One fabric, three ways: simulated, on the testbed, and under a program's ranks, a job sends the same packets over the same links, and where
//! nothing is lost none again. What a simulation says of a fabric's links is what the links of a real one carry.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use common::{folder, good};
use fanin_comm::{Communicator, Config, Meeting, Notices, Operator};
use fanin_control::FabricFile;
use fanin_daemon::{Daemon, DaemonConfig, FabricClient, FabricDaemon, FabricDaemonConfig};
use fanin_fabric::Fabric;

/// Slow enough for this machine to have time, so that no timeout takes a packet that is late for a lost one.
const FABRIC: &str = r#"
[defaults]
rate = "20Mb/s"
buffer = "1MiB"
delay = "200us"
hello_interval = "20ms"
hello_timeout = "2s"

[leaf_spine]
leaves = 2
spines = 2
hosts_per_leaf = 2
"#;

const PLAN: &str = r#"
[network]
shape = "fat-tree"
leaves = 2
spines = 2
hosts_per_leaf = 2
rate = "20Mb/s"
latency = "200us"
queue = "1MiB"

[[jobs]]
workers = 4
placement = "packed"
payload = 1368
window = 64
reliable = true
rto_initial = "2s"
rto_min = "2s"
"#;

const WORLD: u32 = 4;
/// What a packet over a fabric carries of a program's vector, in bytes.
const PAYLOAD: u32 = 1_368;
/// Packets of a vector, a multiple of the workers.
const BLOCKS: u32 = 48;
/// A rank that this machine keeps from its core for longer than its timeout sends again what is not lost: another run tells.
const RUNS_MAX: u32 = 10;

/// Packets by link, each direction for itself. Spines count as one: which one a job's tree has follows from the job's number.
type Links = BTreeMap<(String, String), u64>;

fn count(links: &mut Links, from: &str, to: &str, packets: u64) {
    let name = |node: &str| if node.starts_with("spine") { "spines".to_owned() } else { node.to_owned() };
    *links.entry((name(from), name(to))).or_default() += packets;
}

/// A system, and its keys for switches that are programs, as [`Config::system_named`] has them.
struct Case {
    system: &'static str,
    keys: &'static str,
}

const CASES: [Case; 6] = [
    Case { system: "tree", keys: "" },
    Case { system: "switchml", keys: "" },
    Case { system: "sharp", keys: "" },
    Case { system: "netreduce", keys: "" },
    Case { system: "ring", keys: "" },
    Case { system: "exchange", keys: "" },
];

fn simulated(case: &Case, folder: &Path) -> Links {
    let message = BLOCKS * PAYLOAD;
    fs::write(folder.join("plan.toml"), format!("{PLAN}system = \"{}\"\nmessage = {message}\n{}", case.system, case.keys)).unwrap();
    good(folder, &["sim", "plan.toml", "--out", "out", "--format", "json"]);
    let table = fs::read_to_string(folder.join("out/links.csv")).unwrap();
    let mut lines = table.lines();
    let names: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| names.iter().position(|known| *known == name).unwrap();
    let mut links = Links::new();
    for line in lines {
        let cells: Vec<&str> = line.split(',').collect();
        count(&mut links, cells[column("from")], cells[column("to")], cells[column("packets")].parse().unwrap());
    }
    links
}

/// `None` where a packet was sent again.
fn on_testbed(case: &Case, folder: &Path) -> Option<Links> {
    let message = BLOCKS * PAYLOAD;
    let job = format!(
        "[[job]]\nsystem = \"{}\"\nmessage = {message}\npayload = {PAYLOAD}\nrto_initial = \"2s\"\nrto_min = \"2s\"\n{}",
        case.system, case.keys
    );
    fs::write(folder.join("workload.toml"), job).unwrap();
    fs::write(folder.join("fabric.toml"), FABRIC).unwrap();
    let results: serde_json::Value =
        serde_json::from_str(&good(folder, &["testbed", "fabric.toml", "workload.toml", "--format", "json"])).unwrap();
    let mut links = Links::new();
    for switch in results["switches"].as_array().unwrap() {
        let name = switch["name"].as_str().unwrap();
        for port in switch["status"]["ports"].as_array().unwrap().iter().filter(|_| name.starts_with("leaf")) {
            let peer = port["peer"].as_str().unwrap();
            count(&mut links, name, peer, port["packets_sent"].as_u64().unwrap());
            count(&mut links, peer, name, port["packets_received"].as_u64().unwrap());
        }
    }
    Some(links)
}

/// The fabric at ports that are free: ports of hosts are taken later than they are found.
fn at_free_ports() -> Fabric {
    let fabric = Fabric::parse("fabric.toml", FABRIC).unwrap();
    let pair = || {
        let udp = UdpSocket::bind((Ipv4Addr::new(127, 0, 2, 1), 0)).unwrap();
        TcpListener::bind(udp.local_addr().unwrap()).ok().map(|tcp| (udp, tcp))
    };
    let held: Vec<(UdpSocket, TcpListener)> = std::iter::repeat_with(pair).flatten().take(fabric.nodes().len()).collect();
    fabric.with_addresses(|node| held[node.index()].0.local_addr().unwrap())
}

/// `None` where a packet was sent again.
fn by_ranks(case: &Case) -> Option<Links> {
    let fabric = at_free_ports();
    let node = |name: &str| fabric.node_named(name).unwrap();
    let start = |name: &&str| FabricDaemon::start(FabricDaemonConfig::new(fabric.clone(), node(name))).unwrap();
    let _switches: Vec<_> = ["leaf0", "leaf1", "spine0", "spine1"].iter().map(start).collect();
    let file = FabricFile { name: "fabric.toml".into(), text: fabric.to_toml() };
    let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
    let manager = Daemon::start(DaemonConfig::manager(listen, fabric.clone(), file).unwrap()).unwrap();
    let meeting = Meeting::Fabric(manager.control_address().to_string());
    let done = Barrier::new(WORLD as usize + 1);
    let end = &done;
    let rank = |rank: u32| {
        let config = Config {
            fabric_host: Some(format!("host{rank}")),
            system: Config::system_named(case.system),
            timeout: Duration::from_secs(60),
            notices: Notices::to(|text| println!("{text}")),
            ..Config::new(rank, WORLD, meeting.clone())
        };
        move || {
            let comm = Communicator::join(config).unwrap();
            let mut vector: Vec<f32> = vec![rank as f32; (BLOCKS * PAYLOAD / 4) as usize];
            comm.allreduce(&mut vector, Operator::Sum).unwrap();
            assert!(vector.iter().all(|sum| *sum == 6.0));
            end.wait();
            end.wait();
            comm.statistics().counters.retransmitted.iter().sum::<u64>()
        }
    };
    thread::scope(|scope| {
        let ranks: Vec<_> = (0..WORLD).map(|number| scope.spawn(rank(number))).collect();
        done.wait();
        let mut links = Links::new();
        for leaf in ["leaf0", "leaf1"] {
            let status = FabricClient::connect(fabric.node(node(leaf)).address, Duration::from_secs(10)).unwrap().status().unwrap();
            for port in status.ports {
                count(&mut links, leaf, &port.peer, port.packets_sent);
                count(&mut links, &port.peer, leaf, port.packets_received);
            }
        }
        done.wait();
        let again: u64 = ranks.into_iter().map(|rank| rank.join().unwrap()).sum();
        (again == 0).then_some(links)
    })
}

#[test]
fn a_job_sends_the_same_packets_simulated_on_the_testbed_and_by_ranks() {
    let folder = folder("counts");
    for case in &CASES {
        println!("{}", case.system);
        let expected = simulated(case, &folder);
        println!("{expected:?}");
        println!("{:?}", on_testbed(case, &folder));
        println!("{:?}", by_ranks(case));
    }
}
