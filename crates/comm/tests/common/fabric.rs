//! Fabrics of two leaves and two spines in this process, with a manager, for tests.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use fanin_comm::{Communicator, Config, Element, Meeting, Notices, Operator};
use fanin_control::FabricFile;
use fanin_daemon::{Daemon, DaemonConfig, DaemonHandle, FabricDaemon, FabricDaemonConfig, FabricDaemonHandle};
use fanin_fabric::Fabric;
use fanin_net::FaultPlan;
use fanin_trust::{FabricKey, Protection};

use super::{PATIENT, Told};

const FABRIC: &str = r#"
[defaults]
rate = "400Mb/s"
buffer = "1MiB"
ecn_mark = "128KiB"
delay = "100us"
hello_interval = "20ms"
hello_timeout = "1s"

[leaf_spine]
leaves = 2
spines = 2
hosts_per_leaf = 2
"#;

pub const WORLD: u32 = 4;

/// Switches, and their manager.
pub struct Running {
    pub fabric: Fabric,
    pub switches: Vec<(String, FabricDaemonHandle)>,
    pub manager: Option<DaemonHandle>,
    faults: FaultPlan,
    /// With which packets are made.
    keys: Option<(Protection, FabricKey)>,
}

/// The fabric at ports that are free, at an address of its own: ports of hosts are taken later than they are found.
fn fabric() -> Fabric {
    static FABRICS: AtomicU8 = AtomicU8::new(2);
    let fabric = Fabric::parse("fabric.toml", FABRIC).unwrap();
    let last = FABRICS.fetch_add(1, Ordering::Relaxed);
    let pair = || {
        let udp = UdpSocket::bind((Ipv4Addr::new(127, 0, 0, last), 0)).unwrap();
        TcpListener::bind(udp.local_addr().unwrap()).ok().map(|tcp| (udp, tcp))
    };
    // All are held until all are found, so that no port is found twice.
    let held: Vec<(UdpSocket, TcpListener)> = std::iter::repeat_with(pair).flatten().take(fabric.nodes().len()).collect();
    fabric.with_addresses(|node| held[node.index()].0.local_addr().unwrap())
}

impl Running {
    pub fn start(faults: FaultPlan) -> Running {
        Running::start_with(faults, None)
    }

    /// With packets that are made in this way, and with this key.
    pub fn start_with(faults: FaultPlan, keys: Option<(Protection, FabricKey)>) -> Running {
        let mut running = Running { fabric: fabric(), switches: Vec::new(), manager: None, faults, keys };
        for name in ["leaf0", "leaf1", "spine0", "spine1"] {
            running.start_switch(name);
        }
        running.start_manager("127.0.0.1:0".parse().unwrap());
        running
    }

    pub fn start_switch(&mut self, name: &str) {
        self.start_switch_with_keys(name, self.keys.clone());
    }

    /// Starts a switch that makes packets in this way.
    pub fn start_switch_with_keys(&mut self, name: &str, packets: Option<(Protection, FabricKey)>) {
        let node = self.fabric.node_named(name).unwrap();
        let config = FabricDaemonConfig { faults: self.faults, packets, ..FabricDaemonConfig::new(self.fabric.clone(), node) };
        self.switches.push((name.to_owned(), FabricDaemon::start(config).unwrap()));
    }

    /// As where its process is killed: nobody is told.
    pub fn kill_switch(&mut self, name: &str) {
        let at = self.switches.iter().position(|(known, _)| known == name).unwrap();
        drop(self.switches.remove(at));
    }

    /// Starts a switch that takes so much memory for jobs and does so much wrong.
    pub fn start_switch_with(&mut self, name: &str, memory_bytes_max: u64, faults: FaultPlan) {
        let node = self.fabric.node_named(name).unwrap();
        let config = FabricDaemonConfig {
            faults,
            memory_bytes_max,
            packets: self.keys.clone(),
            ..FabricDaemonConfig::new(self.fabric.clone(), node)
        };
        self.switches.push((name.to_owned(), FabricDaemon::start(config).unwrap()));
    }

    /// As where all links of a switch are cut: it lives, and answers its manager.
    pub fn cut_off(&mut self, name: &str) {
        self.kill_switch(name);
        let all = FaultPlan { loss: 1.0, seed: 1, ..FaultPlan::default() };
        let memory_bytes_max = FabricDaemonConfig::new(self.fabric.clone(), self.fabric.node_named(name).unwrap()).memory_bytes_max;
        self.start_switch_with(name, memory_bytes_max, all);
    }

    /// As where a switch is restarted.
    pub fn restart_switch(&mut self, name: &str) {
        self.kill_switch(name);
        self.start_switch(name);
    }

    /// A manager at this address.
    pub fn start_manager(&mut self, listen: SocketAddr) {
        let file = FabricFile { name: "fabric.toml".into(), text: self.fabric.to_toml() };
        let config = DaemonConfig::manager(listen, self.fabric.clone(), file).unwrap();
        let (packets, fabric_key) = self.keys.clone().unzip();
        let config = DaemonConfig { packets: packets.unwrap_or_default(), fabric_key, ..config };
        self.manager = Some(Daemon::start(config).unwrap());
    }

    pub fn meeting(&self) -> Meeting {
        Meeting::Fabric(self.manager.as_ref().unwrap().control_address().to_string())
    }

    pub fn configs(&self, job: &str, system: Option<&str>) -> (Vec<Config>, Told) {
        let hosts: Vec<u32> = (0..WORLD).collect();
        self.configs_at(job, system, &hosts)
    }

    /// Of ranks on these hosts, by rank.
    pub fn configs_at(&self, job: &str, system: Option<&str>, hosts: &[u32]) -> (Vec<Config>, Told) {
        let told = Told::default();
        let configs = (0..)
            .zip(hosts)
            .map(|(rank, host): (u32, &u32)| {
                let told = told.clone();
                let mut variables = vec![("FANIN_RANK", rank.to_string()), ("FANIN_WORLD", hosts.len().to_string())];
                if let Meeting::Fabric(address) = self.meeting() {
                    variables.push(("FANIN_FABRIC", address));
                    variables.push(("FANIN_FABRIC_HOST", format!("host{host}")));
                }
                variables.extend(system.map(|system| ("FANIN_SYSTEM", system.to_owned())));
                let get = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
                Config {
                    job: job.into(),
                    timeout: PATIENT,
                    faults: FaultPlan { seed: u64::from(rank) + 1, ..self.faults },
                    notices: Notices::to(move |text| told.lock().unwrap().push(text.to_string())),
                    ..Config::from_variables(get).unwrap()
                }
            })
            .collect();
        (configs, told)
    }
}

/// Numbers whose sums and means are exact in every type.
fn value(rank: u32, index: usize) -> u8 {
    (rank as usize * 4 + index % 4) as u8
}

pub fn vector<T: From<u8>>(rank: u32, length: usize) -> Vec<T> {
    (0..length).map(|index| T::from(value(rank, index))).collect()
}

pub fn sum<T: From<u8>>(index: usize) -> T {
    T::from((0..WORLD).map(|rank| value(rank, index)).sum())
}

/// Every collective, on vectors of a length that leaves a part of a packet.
pub fn all_collectives<T: Element + From<u8> + PartialEq + std::fmt::Debug>(comm: &Communicator, share: usize) {
    let (rank, length) = (comm.rank(), share * WORLD as usize);
    let mut reduced: Vec<T> = vector(rank, length);
    comm.allreduce(&mut reduced, Operator::Sum).unwrap();
    assert!((0..length).all(|index| reduced[index] == sum(index)), "allreduce");
    let mut largest: Vec<T> = vector(rank, length);
    comm.allreduce(&mut largest, Operator::Max).unwrap();
    assert!((0..length).all(|index| largest[index] == T::from(value(WORLD - 1, index))), "max");
    let mut at_root: Vec<T> = vector(rank, length);
    comm.reduce(&mut at_root, Operator::Sum, 1).unwrap();
    assert!(rank != 1 || (0..length).all(|index| at_root[index] == sum(index)), "reduce");
    let mut told: Vec<T> = vector(rank, length);
    comm.broadcast(&mut told, 2).unwrap();
    assert!((0..length).all(|index| told[index] == T::from(value(2, index))), "broadcast");
    let mut own: Vec<T> = vector(0, share);
    comm.reduce_scatter(&vector::<T>(rank, length), &mut own, Operator::Sum).unwrap();
    assert!((0..share).all(|index| own[index] == sum(rank as usize * share + index)), "reduce-scatter");
    let mut all: Vec<T> = vector(0, length);
    comm.all_gather(&vector::<T>(rank, share), &mut all).unwrap();
    assert!((0..length).all(|index| all[index] == T::from(value((index / share) as u32, index % share))), "all-gather");
    comm.barrier().unwrap();
}

/// Sums until told to stop; gives how many sums there were.
pub fn sum_until(comm: &Communicator, stop: &AtomicBool, length: usize) -> u32 {
    let mut rounds = 0;
    loop {
        let mut vector: Vec<f32> = vector(comm.rank(), length);
        // All ranks stop after the same sum.
        vector[0] = if stop.load(Ordering::Relaxed) { 1.0 } else { 0.0 };
        comm.allreduce(&mut vector, Operator::Sum).unwrap();
        assert!((1..length).all(|index| vector[index] == sum::<f32>(index)), "sum {rounds}");
        rounds += 1;
        if vector[0] > 0.0 {
            return rounds;
        }
    }
}
