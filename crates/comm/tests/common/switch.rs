//! A switch in a process of its own, which can be killed, and collectives that are compared while that happens.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use fanin_channel::{Identity, ServerTls};
use fanin_comm::{Communicator, Config, Meeting, Operator, Transport};
use fanin_daemon::{Daemon, DaemonConfig};
use fanin_trust::Protection;
use rustix::process::{Pid, Signal, kill_process};

use super::{configs, run};

const SWITCH: &str = "FANIN_TEST_SWITCH";
/// The folder of certificates of a switch that speaks TLS.
const FOLDER: &str = "FANIN_TEST_TLS";

/// What the process does; it ends when its standard input ends, so that none outlives the tests. Returns at once in any other process.
pub fn serve() {
    let Ok(address) = std::env::var(SWITCH) else { return };
    let tls = std::env::var(FOLDER).ok().map(|folder| ServerTls { identity: identity(Path::new(&folder), "switch"), clients: None });
    let packets = if tls.is_some() { Protection::Seal } else { Protection::None };
    let daemon = Daemon::start(DaemonConfig { tls, packets, ..DaemonConfig::new(address.parse().unwrap()) }).unwrap();
    println!("\nlistening at {}", daemon.control_address());
    let mut line = String::new();
    let _ = std::io::stdin().read_line(&mut line);
}

/// The files of who is called so.
pub fn identity(folder: &Path, name: &str) -> Identity {
    Identity { certificate: folder.join(format!("{name}.pem")), key: folder.join(format!("{name}.key")) }
}

/// A switch in a process of its own.
pub struct Switch {
    process: Option<Child>,
    folder: Option<PathBuf>,
    pub address: SocketAddr,
}

impl Switch {
    pub fn start(address: &str) -> Switch {
        Switch::start_with(address, None)
    }

    /// With certificates of this folder.
    pub fn start_with(address: &str, folder: Option<PathBuf>) -> Switch {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_switch_for_the_other_tests", "--nocapture"])
            .env(SWITCH, address)
            .envs(folder.iter().map(|folder| (FOLDER, folder)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let address = lines.map_while(Result::ok).find_map(|line| line.strip_prefix("listening at ")?.parse().ok());
        Switch { process: Some(process), folder, address: address.expect("the switch says where it listens") }
    }

    /// Kills it, without a word.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            let _ = process.kill();
            let _ = process.wait();
        }
    }

    /// Stops it, or lets it go on.
    pub fn signal(&self, signal: Signal) {
        let process = self.process.as_ref().expect("it runs");
        kill_process(Pid::from_raw(process.id() as i32).unwrap(), signal).unwrap();
    }

    /// Starts another one at the same address.
    pub fn start_again(&mut self) {
        self.kill();
        self.process = Switch::start_with(&self.address.to_string(), self.folder.clone()).process.take();
    }

    /// Kills it, whatever ranks do just now, and starts it again, each time that they have counted so many calls more; until they are done. Gives what
    /// they give, and how often that was.
    pub fn killed_while<R>(&mut self, ranks: JoinHandle<R>, calls: &AtomicU32, between: u32) -> (R, u32) {
        let mut restarts = 0;
        while !ranks.is_finished() {
            let before = calls.load(Ordering::Relaxed);
            while !ranks.is_finished() && calls.load(Ordering::Relaxed) < before + between {
                thread::sleep(Duration::from_micros(700));
            }
            if !ranks.is_finished() {
                self.start_again();
                restarts += 1;
            }
        }
        (ranks.join().unwrap(), restarts)
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Configurations of ranks that meet there, and do not share memory.
pub fn at(switch: &Switch, world: u32) -> Vec<Config> {
    let (configs, _) = configs(world, Transport::Udp);
    let meeting = Meeting::Switch(switch.address.to_string());
    configs.into_iter().map(|config| Config { meeting: meeting.clone(), ..config }).collect()
}

/// Ranks that do every collective so many times, and count that. Who has left cannot help after a restart, so nobody leaves while another rank lacks a
/// result.
pub fn collectives(configs: Vec<Config>, times: u32, counted: &Arc<AtomicU32>) -> JoinHandle<()> {
    let (counted, all_done) = (counted.clone(), Barrier::new(configs.len()));
    thread::spawn(move || {
        run(configs, move |comm| {
            for call in 0..times {
                every_collective(&comm, call);
                counted.fetch_add(1, Ordering::Relaxed);
            }
            all_done.wait();
        });
    })
}

/// The metrics of a switch.
pub fn page(address: SocketAddr) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

/// Every collective, with results that are compared; vectors of one block and of several windows.
pub fn every_collective(comm: &Communicator, call: u32) {
    let (rank, world) = (comm.rank(), comm.world());
    // From one block to several windows; every length leaves another rest.
    let elements = [5, 100_003, 352, 400_001, 30_000][call as usize % 5];
    let input: Vec<i32> = (0..elements).map(|index| index * 3 + (rank * 7 + call) as i32).collect();
    let mut sum = vec![0; input.len()];
    match call % 3 {
        0 => comm.allreduce_into(&input, &mut sum, Operator::Sum).unwrap(),
        _ => {
            sum.copy_from_slice(&input);
            comm.allreduce(&mut sum, Operator::Sum).unwrap();
        }
    }
    let constant = (7 * (world * (world - 1) / 2) + world * call) as i32;
    assert!((0..elements).zip(&sum).all(|(index, sum)| *sum == index * 3 * world as i32 + constant), "call {call}");
    if call % 4 == rank {
        // Between two calls while others are in one.
        thread::sleep(Duration::from_millis(3));
    }
    let mut root = vec![(call * 10 + rank) as i64; 1_000];
    comm.broadcast(&mut root, call % world).unwrap();
    assert!(root.iter().all(|value| *value == i64::from(call * 10 + call % world)));
    let mut all = vec![0u8; world as usize];
    comm.all_gather(&[rank as u8 + 1], &mut all).unwrap();
    assert!(all.iter().copied().eq(1..=world as u8), "all-gather {call}");
    // Who gets nothing returns early, and may be in a later call, or have changed its vector, when the switch dies.
    let mut to_one: Vec<i32> = (0..2_000).map(|index| index + (rank + call) as i32).collect();
    comm.reduce(&mut to_one, Operator::Sum, call % world).unwrap();
    let sum_at = |index: i32| index * world as i32 + (world * (world - 1) / 2 + world * call) as i32;
    assert!(rank != call % world || to_one.iter().zip(0..).all(|(sum, index)| *sum == sum_at(index)), "reduce {call}");
    to_one.fill(-1);
    let parts: Vec<i32> = (0..1_000 * world as i32).map(|index| index + (rank + call) as i32).collect();
    let mut part = vec![0; 1_000];
    comm.reduce_scatter(&parts, &mut part, Operator::Sum).unwrap();
    let first = 1_000 * rank as i32;
    assert!(part.iter().zip(first..).all(|(sum, index)| *sum == sum_at(index)), "reduce-scatter {call}");
}
