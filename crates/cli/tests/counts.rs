//! One fabric, three ways: simulated, on the testbed, and under a program's ranks, a job sends the same packets over the same links, and where
//! nothing is lost none again. What a simulation says of a fabric's links is what the links of a real one carry.

mod common;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Barrier;
use std::thread;
use std::time::Duration;

use common::{at_free_ports, folder, good};
use fanin_comm::{Communicator, Config, Meeting, Notices, Operator, PathReport};
use fanin_control::FabricFile;
use fanin_daemon::{Daemon, DaemonConfig, FabricClient, FabricDaemon, FabricDaemonConfig};

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

const NETWORK: &str = r#"
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
reliable = true
rto_initial = "2s"
rto_min = "2s"
"#;

const WORLD: u32 = 4;
/// Elements of a vector: a multiple of the workers.
const ELEMENTS: u32 = 16_416;
/// A rank that this machine keeps from its core for longer than its timeout sends again what is not lost: another run tells.
const RUNS_MAX: u32 = 20;

/// Packets by link, each direction for itself. Spines count as one: which one a job's tree has, or a flow takes, follows from the job's number.
type Links = BTreeMap<(String, String), u64>;

fn count(links: &mut Links, from: &str, to: &str, packets: u64) {
    let name = |node: &str| if node.starts_with("spine") { "spines".to_owned() } else { node.to_owned() };
    *links.entry((name(from), name(to))).or_default() += packets;
}

/// A system, and its keys for switches that are programs, as [`Config::system_named`] has them.
struct Case {
    system: &'static str,
    keys: &'static str,
    /// Acknowledgements depend on when packets come, or on their numbers, which begin with a job: so many packets more or fewer on a link.
    acknowledgements: u64,
    /// A rank that begins later than its neighbour turns away what that has sent by then, and so many packets go again.
    turned_away: u64,
}

/// All that sum dense vectors, but for those whose number of packets depends on when they come: Canary's, which several leaders' switches send
/// on, and those of windows that marks or servers steer.
const CASES: [Case; 7] = [
    Case { system: "tree", keys: "", acknowledgements: 0, turned_away: 0 },
    Case { system: "switchml", keys: "", acknowledgements: 0, turned_away: 0 },
    Case { system: "panama", keys: "", acknowledgements: 0, turned_away: 0 },
    Case { system: "sharp", keys: "", acknowledgements: 0, turned_away: 0 },
    Case { system: "netreduce", keys: "answer_min = \"2s\"\n", acknowledgements: 1, turned_away: 0 },
    Case { system: "ring", keys: "", acknowledgements: 12, turned_away: 12 },
    Case { system: "exchange", keys: "", acknowledgements: 12, turned_away: 12 },
];

/// What a manager has chosen for a job.
#[derive(Clone, Copy, Debug)]
struct Chosen {
    payload_bytes: u32,
    window: u32,
}

impl Case {
    fn keys(&self, chosen: Chosen, bytes: u32) -> String {
        let Chosen { payload_bytes, window } = chosen;
        format!("system = \"{}\"\nmessage = {bytes}\npayload = {payload_bytes}\nwindow = {window}\n{}", self.system, self.keys)
    }

    fn simulated(&self, chosen: Chosen, (bytes, operations): (u32, u32), folder: &Path) -> Links {
        let plan = format!("{NETWORK}operations = {operations}\n{}", self.keys(chosen, bytes));
        fs::write(folder.join("plan.toml"), plan).unwrap();
        let rows: serde_json::Value =
            serde_json::from_str(&good(folder, &["sim", "plan.toml", "--out", "out", "--format", "json"])).unwrap();
        assert_eq!(rows[0]["census"], "exact", "{}", self.system);
        assert!(rows[0]["packets_retransmitted"].as_u64().unwrap() <= self.turned_away, "{}: {rows}", self.system);
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

    /// With how many packets were sent again.
    fn on_testbed(&self, chosen: Chosen, folder: &Path) -> (Links, u64) {
        let job = format!("[[job]]\nrto_initial = \"2s\"\nrto_min = \"2s\"\n{}", self.keys(chosen, ELEMENTS * 4));
        fs::write(folder.join("workload.toml"), job).unwrap();
        fs::write(folder.join("fabric.toml"), FABRIC).unwrap();
        let results: serde_json::Value =
            serde_json::from_str(&good(folder, &["testbed", "fabric.toml", "workload.toml", "--format", "json"])).unwrap();
        let number = |value: &serde_json::Value| value.as_u64().unwrap();
        let all = |counts: &serde_json::Value| counts.as_object().unwrap().values().map(number).sum::<u64>();
        let (mut links, mut again) = (Links::new(), 0);
        for switch in results["switches"].as_array().unwrap() {
            let name = switch["name"].as_str().unwrap();
            again += switch["status"]["jobs"].as_array().unwrap().iter().map(|job| all(&job["retransmitted"])).sum::<u64>();
            for port in switch["status"]["ports"].as_array().unwrap().iter().filter(|_| name.starts_with("leaf")) {
                let peer = port["peer"].as_str().unwrap();
                count(&mut links, name, peer, number(&port["packets_sent"]));
                count(&mut links, peer, name, number(&port["packets_received"]));
            }
        }
        again += results["hosts"].as_array().unwrap().iter().map(|host| all(&host["status"]["counters"]["retransmitted"])).sum::<u64>();
        (links, again)
    }

    /// With what its manager has chosen, and how many packets were sent again.
    fn by_ranks(&self) -> (Links, Chosen, u64) {
        let fabric = at_free_ports(FABRIC, Ipv4Addr::new(127, 0, 2, 1));
        let node = |name: &str| fabric.node_named(name).unwrap();
        let start = |name: &&str| FabricDaemon::start(FabricDaemonConfig::new(fabric.clone(), node(name))).unwrap();
        let _switches: Vec<_> = ["leaf0", "leaf1", "spine0", "spine1"].iter().map(start).collect();
        let file = FabricFile { name: "fabric.toml".into(), text: fabric.to_toml() };
        let listen: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let manager = Daemon::start(DaemonConfig::manager(listen, fabric.clone(), file).unwrap()).unwrap();
        let meeting = Meeting::Fabric(manager.control_address().to_string());
        let status = |leaf| FabricClient::connect(fabric.node(node(leaf)).address, Duration::from_secs(10)).unwrap().status().unwrap();
        let done = Barrier::new(WORLD as usize + 1);
        let rank = |rank: u32| {
            let config = Config {
                fabric_host: Some(format!("host{rank}")),
                system: Config::system_named(self.system),
                timeout: Duration::from_secs(60),
                notices: Notices::to(|text| println!("{text}")),
                ..Config::new(rank, WORLD, meeting.clone())
            };
            let done = &done;
            move || {
                let comm = Communicator::join(config).unwrap();
                let PathReport::Fabric { payload_bytes, window, .. } = comm.path() else { panic!("{}", comm.path()) };
                let mut vector: Vec<f32> = vec![rank as f32; ELEMENTS as usize];
                comm.allreduce(&mut vector, Operator::Sum).unwrap();
                assert!(vector.iter().all(|sum| *sum == 6.0));
                // Nobody leaves before links have been looked at.
                done.wait();
                done.wait();
                (Chosen { payload_bytes, window }, comm.statistics().counters.retransmitted.iter().sum::<u64>())
            }
        };
        thread::scope(|scope| {
            let ranks: Vec<_> = (0..WORLD).map(|number| scope.spawn(rank(number))).collect();
            done.wait();
            let (mut links, mut again) = (Links::new(), 0);
            for (leaf, status) in ["leaf0", "leaf1"].map(|leaf| (leaf, status(leaf))) {
                again += status.jobs.iter().flat_map(|job| job.retransmitted.values()).sum::<u64>();
                for port in status.ports {
                    count(&mut links, leaf, &port.peer, port.packets_sent);
                    count(&mut links, &port.peer, leaf, port.packets_received);
                }
            }
            done.wait();
            let ranks: Vec<(Chosen, u64)> = ranks.into_iter().map(|rank| rank.join().unwrap()).collect();
            (links, ranks[0].0, again + ranks.iter().map(|rank| rank.1).sum::<u64>())
        })
    }

    fn assert_alike(&self, real: &Links, simulated: &Links, what: &str) {
        for (link, expected) in simulated {
            let packets = real.get(link).copied().unwrap_or_default();
            let Case { system, acknowledgements, turned_away, .. } = *self;
            assert!(
                packets.abs_diff(*expected) <= acknowledgements + turned_away,
                "{system} {what}, {link:?}: {packets}, simulated {expected}"
            );
        }
        assert!(real.keys().eq(simulated.keys()), "{} {what}: {real:?}", self.system);
    }
}

#[test]
fn a_job_sends_the_same_packets_simulated_on_the_testbed_and_by_ranks() {
    let folder = folder("counts");
    for case in &CASES {
        let runs = (0..RUNS_MAX).map(|_| case.by_ranks());
        let (by_ranks, chosen, _) =
            runs.into_iter().find(|run| run.2 <= case.turned_away).unwrap_or_else(|| panic!("{}: always sent again", case.system));
        let mut simulated = case.simulated(chosen, (ELEMENTS * 4, 1), &folder);
        case.assert_alike(&by_ranks, &simulated, "by ranks");
        // A testbed's workers begin with the sum of an element each, so that all are there. What a job sends once, whatever it sums, is in both.
        let first = [1, 2].map(|operations| case.simulated(chosen, (4, operations), &folder));
        for (link, packets) in &mut simulated {
            *packets += first[1].get(link).unwrap_or(&0) - first[0].get(link).unwrap_or(&0);
        }
        let runs = (0..RUNS_MAX).map(|_| case.on_testbed(chosen, &folder));
        let (on_testbed, _) =
            runs.into_iter().find(|run| run.1 <= case.turned_away).unwrap_or_else(|| panic!("{}: always sent again", case.system));
        case.assert_alike(&on_testbed, &simulated, "on the testbed");
    }
}
