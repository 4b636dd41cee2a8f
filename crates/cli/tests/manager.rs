//! `fanin manager` with the switches of a fabric and ranks as processes: what is killed costs no sum, or is named by all that are left.

mod common;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::Duration;

use common::{at_free_ports, folder, refused};
use fanin_comm::{CommError, Communicator, Config, Meeting, Notices, Operator};
use fanin_daemon::FabricClient;
use fanin_fabric::Fabric;

const FABRIC: &str = r#"
[defaults]
rate = "400Mb/s"
buffer = "1MiB"
delay = "100us"
hello_interval = "20ms"
hello_timeout = "1s"

[leaf_spine]
leaves = 2
spines = 2
hosts_per_leaf = 2
"#;

const WORLD: u32 = 4;

/// A process that is killed where a test ends without ending it.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Process {
    /// Starts `fanin`, and waits for its first line.
    fn start(folder: &Path, arguments: &[&str]) -> (Process, String) {
        let (process, lines) = Process::start_with(folder, arguments, 1);
        (process, lines[0].clone())
    }

    /// Starts `fanin`, and waits for so many lines.
    fn start_with(folder: &Path, arguments: &[&str], lines: usize) -> (Process, Vec<String>) {
        let mut child = Command::new(env!("CARGO_BIN_EXE_fanin"))
            .current_dir(folder)
            .args(arguments)
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let said = BufReader::new(child.stdout.take().unwrap()).lines().take(lines).collect::<Result<_, _>>().unwrap();
        (Process(child), said)
    }

    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

struct Running {
    folder: PathBuf,
    manager: Option<Process>,
    address: String,
    _switches: Vec<Process>,
}

/// The fabric, at the address of this test alone.
fn start(test: &str, last: u8) -> Running {
    start_with(test, last, &[])
}

/// The same with more arguments for the switches and the manager.
fn start_with(test: &str, last: u8, more: &[&str]) -> Running {
    let folder = folder(test);
    fs::write(folder.join("fabric.key"), common::fanin(&folder, &["token", "secret"]).stdout).unwrap();
    let fabric = at_free_ports(FABRIC, Ipv4Addr::new(127, 0, 1, last));
    fs::write(folder.join("fabric.toml"), fabric.to_toml()).unwrap();
    let switch = |name: &&str| Process::start(&folder, &[&["switch", "--fabric", "fabric.toml", "--name", name][..], more].concat()).0;
    let switches = ["leaf0", "leaf1", "spine0", "spine1"].iter().map(switch).collect();
    let (manager, line) = Process::start(&folder, &[&["manager", "fabric.toml", "--listen", "127.0.0.1:0"][..], more].concat());
    let address = line.strip_prefix("ranks join at ").unwrap().to_owned();
    Running { folder, manager: Some(manager), address, _switches: switches }
}

impl Running {
    fn rank(&self, rank: u32, more: &[&str]) -> Child {
        Command::new(env!("CARGO_BIN_EXE_fanin"))
            .current_dir(&self.folder)
            .args(["bench", "allreduce", "--world", "4", "--fabric", &self.address, "--format", "json", "--rank", &rank.to_string()])
            .args(more)
            .env("FANIN_FABRIC_HOST", format!("host{rank}"))
            .env("RUST_LOG", "error")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    }

    /// Configurations of ranks that are threads of this test.
    fn configs(&self, notices: &Notices) -> Vec<Config> {
        let config = |rank| Config {
            fabric_host: Some(format!("host{rank}")),
            timeout: Duration::from_secs(3),
            notices: notices.clone(),
            ..Config::new(rank, WORLD, Meeting::Fabric(self.address.clone()))
        };
        (0..WORLD).map(config).collect()
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn ranks_of_other_processes_sum_over_the_fabric() {
    let running = start("manager-sums", 1);
    for system in ["canary", "rina"] {
        let ranks: Vec<Child> =
            (0..WORLD).map(|rank| running.rank(rank, &["--sizes", "4B,256KiB", "--iterations", "3", "--system", system])).collect();
        for rank in ranks {
            let output = rank.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", text(&output));
            let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(rows.as_array().unwrap().iter().all(|row| row["wrong"] == 0), "{rows}");
            assert!(rows[0]["path"].as_str().unwrap().starts_with(&format!("{system} over the fabric fabric.toml, as host")), "{rows}");
        }
    }
}

#[test]
fn with_one_key_for_all_ranks_need_no_setting() {
    for (last, more) in [(11, &["--fabric-key", "fabric.key"][..]), (12, &["--fabric-key", "fabric.key", "--packets", "mac"])] {
        let running = start_with(&format!("manager-keys-{last}"), last, more);
        let ranks: Vec<Child> = (0..WORLD).map(|rank| running.rank(rank, &["--sizes", "256KiB", "--iterations", "3"])).collect();
        for rank in ranks {
            let output = rank.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", text(&output));
            let rows: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            assert!(rows.as_array().unwrap().iter().all(|row| row["wrong"] == 0), "{rows}");
        }
    }
}

#[test]
fn a_rank_that_is_killed_is_named_by_all_others() {
    let running = start("manager-rank", 2);
    let mut ranks: Vec<Child> =
        (0..WORLD).map(|rank| running.rank(rank, &["--sizes", "1MiB", "--iterations", "100000", "--timeout", "5s"])).collect();
    thread::sleep(Duration::from_secs(2));
    let mut killed = ranks.remove(1);
    killed.kill().unwrap();
    killed.wait().unwrap();
    for rank in ranks {
        let output = rank.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        assert!(text(&output).contains("rank 1"), "{}", text(&output));
    }
}

#[test]
fn a_job_survives_the_end_of_its_manager() {
    let mut running = start("manager-gone", 3);
    let told = Arc::new(Mutex::new(Vec::new()));
    let tell = told.clone();
    let notices = Notices::to(move |text| tell.lock().unwrap().push(text.to_owned()));
    let (ready, gone) = (Arc::new(Barrier::new(WORLD as usize + 1)), Arc::new(AtomicBool::new(false)));
    let ranks: Vec<_> = running
        .configs(&notices)
        .into_iter()
        .map(|config| {
            let (ready, gone) = (ready.clone(), gone.clone());
            thread::spawn(move || {
                let comm = Communicator::join(config).unwrap();
                let sum = |comm: &Communicator| {
                    let mut vector = vec![comm.rank() as f32; 100_000];
                    comm.allreduce(&mut vector, Operator::Sum).unwrap();
                    assert!(vector.iter().all(|sum| *sum == 6.0));
                };
                sum(&comm);
                ready.wait();
                while !gone.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(1));
                }
                // Also when it has not been found again.
                for _ in 0..5 {
                    sum(&comm);
                    thread::sleep(Duration::from_secs(1));
                }
            })
        })
        .collect();
    ready.wait();
    running.manager.take().unwrap().kill();
    gone.store(true, Ordering::Relaxed);
    ranks.into_iter().for_each(|rank| rank.join().unwrap());
    let told = told.lock().unwrap();
    assert!(told.iter().any(|text| text.contains("the manager of the fabric at") && text.contains("is lost")), "{told:?}");
    assert!(told.iter().any(|text| text.contains("goes on in the fabric without its manager")), "{told:?}");
}

#[test]
fn a_manager_that_is_restarted_finds_its_jobs_again() {
    // The manager is another process, and cables have the keys that they had.
    let mut running = start_with("manager-again", 4, &["--fabric-key", "fabric.key"]);
    // Who tells several things at once is told by one of them only.
    let told: Vec<Arc<Mutex<Vec<String>>>> = (0..WORLD).map(|_| Arc::default()).collect();
    let notices = |rank: u32| {
        let tell = told[rank as usize].clone();
        Notices::to(move |text| tell.lock().unwrap().push(text.to_owned()))
    };
    let (ready, found) = (Arc::new(Barrier::new(WORLD as usize + 1)), Arc::new(AtomicBool::new(false)));
    let sum = |comm: &Communicator| -> Result<(), CommError> {
        let mut vector = vec![comm.rank() as f32; 10_000];
        comm.allreduce(&mut vector, Operator::Sum)?;
        assert!(vector.iter().all(|sum| *sum == 6.0));
        comm.barrier()
    };
    let config = |config: Config| Config { timeout: Duration::from_secs(30), notices: notices(config.rank), ..config };
    let ranks: Vec<_> = running
        .configs(&Notices::default())
        .into_iter()
        .map(config)
        .map(|config| {
            let (ready, found) = (ready.clone(), found.clone());
            thread::spawn(move || {
                let comm = Communicator::join(config).unwrap();
                sum(&comm).unwrap();
                ready.wait();
                while !found.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(10));
                }
                sum(&comm).unwrap();
                ready.wait();
                if comm.rank() == 2 {
                    comm.abort("its user has had enough");
                    return None;
                }
                Some((0..100).find_map(|_| sum(&comm).err()).expect("rank 2 is gone"))
            })
        })
        .collect();
    ready.wait();
    running.manager.take().unwrap().kill();
    let arguments = ["manager", "fabric.toml", "--listen", &running.address, "--http", "127.0.0.1:0", "--fabric-key", "fabric.key"];
    let (manager, lines) = Process::start_with(&running.folder, &arguments, 2);
    let http = lines[1].split_once("http://").unwrap().1.split_once("/metrics").unwrap().0.to_owned();
    let has_found = |told: &Arc<Mutex<Vec<String>>>| told.lock().unwrap().iter().any(|text| text.contains("has found the job again"));
    for _ in 0..2_000 {
        if told.iter().all(has_found) {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert!(told.iter().all(has_found), "{told:?}");
    let metrics = get(&http);
    assert!(metrics.contains("job=\"default\"") && metrics.contains("job=\"default/barrier/u8-max\""), "{metrics}");
    // A job of the new manager beside it.
    let others = running.configs(&Notices::default()).into_iter().map(config).map(|config| {
        thread::spawn(move || {
            let comm = Communicator::join(Config { job: "second".into(), ..config }).unwrap();
            sum(&comm).unwrap();
        })
    });
    others.collect::<Vec<_>>().into_iter().for_each(|rank| rank.join().unwrap());
    found.store(true, Ordering::Relaxed);
    ready.wait();
    for error in ranks.into_iter().filter_map(|rank| rank.join().unwrap()) {
        assert_eq!(error.suspect_rank(), Some(2), "{error}");
    }
    // What the first manager has begun, the second one ends.
    let fabric = Fabric::parse("test", &fs::read_to_string(running.folder.join("fabric.toml")).unwrap()).unwrap();
    let jobs = || -> usize {
        let of = |name| FabricClient::connect(fabric.node(fabric.node_named(name).unwrap()).address, Duration::from_secs(30)).unwrap();
        ["leaf0", "leaf1", "spine0", "spine1"].map(|name| of(name).status().unwrap().jobs.len()).iter().sum()
    };
    for _ in 0..2_000 {
        if jobs() == 0 {
            break;
        }
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(jobs(), 0);
    drop(manager);
}

/// What is served there.
fn get(address: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: manager\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn wrong_files_and_places_are_named() {
    let folder = folder("manager-wrong");
    fs::write(folder.join("fabric.toml"), "[defaults]\nrate = \"fast\"\n").unwrap();
    assert!(refused(&folder, &["manager", "fabric.toml"]).contains("fabric.toml:2: defaults.rate = \"fast\""));
    assert!(refused(&folder, &["manager", "none.toml"]).contains("none.toml: cannot be read"));
    fs::write(folder.join("fabric.toml"), FABRIC).unwrap();
    // Of a key and what is done with it one alone makes no sense, at the manager and at switches.
    fs::write(folder.join("short.key"), "abc\n").unwrap();
    fs::write(folder.join("fabric.key"), "ab".repeat(32)).unwrap();
    for command in [&["manager", "fabric.toml"][..], &["switch", "--fabric", "fabric.toml", "--name", "leaf0"]] {
        for (more, said) in [
            (&["--packets", "mac"][..], "--packets mac: expected --fabric-key FILE too"),
            (&["--packets", "none", "--fabric-key", "fabric.key"], "--fabric-key fabric.key with --packets none: expected mac or seal"),
            (&["--fabric-key", "short.key"], "--fabric-key short.key: expected 64 hexadecimal digits"),
            (&["--fabric-key", "none.key"], "--fabric-key none.key: cannot be read"),
        ] {
            let error = refused(&folder, &[command, more].concat());
            assert!(error.contains(said), "{more:?}: {error}");
        }
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let output = common::fanin(&folder, &["manager", "fabric.toml", "--listen", &address]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains(&format!("cannot listen for control connections at {address}")), "{}", text(&output));
}
