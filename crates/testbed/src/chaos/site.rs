//! Where a scenario runs on this machine: addresses, files, links that can be cut, and the commands of its processes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use fanin_core::NodeId;
use fanin_core::hash::derive;
use fanin_fabric::Fabric;

use super::relay::{Relay, Route, Wire};
use super::scenario::{Fault, Job, Meets, Noise, Party, Place, Scenario, Target};
use crate::place::free_addresses_at;

/// Links of the fabric: as fast as software switches are, with hellos that survive a busy machine.
const LINKS: &str = "[defaults]\nrate = \"400Mb/s\"\nbuffer = \"1MiB\"\necn_mark = \"128KiB\"\ndelay = \"100us\"\nhello_interval = \"50ms\"\n\
                     hello_timeout = \"1s\"\n";

/// An address of loopback for each run: ports are taken later than they are found, and whoever opens a port meanwhile does so at another address.
fn own_address() -> Ipv4Addr {
    static RUNS: AtomicU32 = AtomicU32::new(0);
    let (process, run) = (std::process::id(), RUNS.fetch_add(1, Ordering::Relaxed));
    Ipv4Addr::new(127, 1 + (process >> 8 & 0x7f) as u8, process as u8, 1 + (run % 254) as u8)
}

/// The site of a run.
pub struct Site {
    /// The address of all its processes.
    ip: Ipv4Addr,
    /// The program that all processes run.
    program: PathBuf,
    /// Its files and logs.
    folder: PathBuf,
    /// Where the switch, or the manager, listens.
    meeting: SocketAddr,
    /// Where ranks go to instead, whose control connections can be cut.
    detours: BTreeMap<Party, SocketAddr>,
    /// Each direction of each link that can be cut.
    wires: BTreeMap<(Party, Party), Wire>,
    noise: Noise,
    seed: u64,
    is_fabric: bool,
    _relay: Relay,
}

/// A link's sockets, and each direction by itself.
struct Links<'a> {
    ip: Ipv4Addr,
    relay: Relay,
    wires: BTreeMap<(Party, Party), Wire>,
    fabric: &'a Fabric,
    /// Addresses of nodes as a switch knows them, by switch and node.
    seen: BTreeMap<(NodeId, NodeId), SocketAddr>,
    /// Addresses of leaves as hosts and the manager know them.
    fronts: BTreeMap<NodeId, SocketAddr>,
}

impl Site {
    /// Finds addresses, and writes what files say of them into `folder`.
    ///
    /// # Errors
    /// Where the machine has no ports, or the folder takes no files.
    pub fn make(scenario: &Scenario, program: &Path, folder: &Path) -> Result<Self> {
        let ip = own_address();
        let mut site = Site {
            ip,
            program: program.to_owned(),
            folder: folder.to_owned(),
            meeting: free_addresses_at(ip, 1)?[0],
            detours: BTreeMap::new(),
            wires: BTreeMap::new(),
            noise: scenario.noise,
            seed: scenario.seed,
            is_fabric: scenario.place.hosts() > 0,
            _relay: Relay::default(),
        };
        let cuts: Vec<(Party, Party)> = scenario.fault.iter().filter_map(cut).collect();
        if let Place::Fabric { leaves, spines, hosts_per_leaf } = scenario.place {
            let text = format!("{LINKS}\n[leaf_spine]\nleaves = {leaves}\nspines = {spines}\nhosts_per_leaf = {hosts_per_leaf}\n");
            let fabric = Fabric::parse("the scenario's fabric", &text)?;
            let free = free_addresses_at(ip, fabric.nodes().len())?;
            let fabric = fabric.with_addresses(|node| free[node.index()]);
            let is_of_links = |(_, to): &&(Party, Party)| !matches!(to, Party::Rank { .. });
            if cuts.iter().any(|cut| is_of_links(&cut)) {
                site.write_relayed(&fabric)?;
            } else {
                site.write(&fabric, "public")?;
                fabric.switches().try_for_each(|switch| site.write(&fabric, fabric.name(switch)))?;
            }
        }
        for (from, to) in cuts.into_iter().filter(|(_, to)| matches!(to, Party::Rank { .. })) {
            site.detour(from, to)?;
        }
        Ok(site)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.toml"))
    }

    fn write(&self, fabric: &Fabric, name: &str) -> Result<()> {
        let file = self.file(name);
        fs::write(&file, fabric.to_toml()).with_context(|| format!("{} cannot be written", file.display()))
    }

    /// Files of a fabric whose links pass this process: each switch knows its neighbours by sockets here.
    fn write_relayed(&mut self, fabric: &Fabric) -> Result<()> {
        let mut links =
            Links { ip: self.ip, relay: Relay::default(), wires: BTreeMap::new(), fabric, seen: BTreeMap::new(), fronts: BTreeMap::new() };
        let (leaves, spines): (Vec<NodeId>, Vec<NodeId>) = fabric.switches().partition(|switch| fabric.name(*switch).starts_with("leaf"));
        for &leaf in &leaves {
            links.link_hosts(leaf)?;
            spines.iter().try_for_each(|spine| links.between(leaf, *spine))?;
        }
        let Links { relay, wires, seen, fronts, .. } = links;
        let real = |node: NodeId| fabric.node(node).address;
        self.write(&fabric.clone().with_addresses(|node| fronts.get(&node).copied().unwrap_or_else(|| real(node))), "public")?;
        for switch in fabric.switches() {
            let own = fabric.clone().with_addresses(|node| seen.get(&(switch, node)).copied().unwrap_or_else(|| real(node)));
            self.write(&own, fabric.name(switch))?;
        }
        (self._relay, self.wires) = (relay, wires);
        Ok(())
    }

    /// Lets a rank's control connections pass this process.
    fn detour(&mut self, at: Party, rank: Party) -> Result<()> {
        if self.detours.contains_key(&rank) {
            return Ok(());
        }
        let listener = TcpListener::bind((self.ip, 0)).with_context(|| format!("there is no free port on {}", self.ip))?;
        self.detours.insert(rank.clone(), listener.local_addr()?);
        let (there, back) = (Wire::default(), Wire::default());
        self.wires.insert((rank.clone(), at.clone()), there.clone());
        self.wires.insert((at, rank), back.clone());
        self._relay.pass_connections(listener, self.meeting, (there, back))
    }

    /// Cuts a link in this direction, or heals it.
    pub fn set_cut(&self, from: &Party, to: &Party, is_cut: bool) {
        if let Some(wire) = self.wires.get(&(from.clone(), to.clone())) {
            wire.set_cut(is_cut);
        }
    }

    /// The command of a switch or of the manager; `start` counts how often it was started.
    pub fn service(&self, party: &Party, start: u32) -> Command {
        let mut command = Command::new(&self.program);
        let noise_seed =
            derive(self.seed, derive(u64::from(start), party.to_string().bytes().fold(7, |hash, byte| derive(hash, byte.into()))));
        match party {
            Party::Manager => {
                command.arg("manager").arg(self.file("public")).args(["--listen", &self.meeting.to_string()]);
            }
            Party::Switch(name) if self.is_fabric => {
                command.args(["switch", "--name", name]).arg("--fabric").arg(self.file(name));
            }
            _ => {
                command.args(["switch", "--listen", &self.meeting.to_string(), "--drain-timeout", "3s"]);
            }
        }
        if !matches!(party, Party::Manager) {
            for (flag, (_, share)) in ["--loss", "--duplicate", "--reorder", "--corrupt"].into_iter().zip(self.noise.all()) {
                command.arg(flag).arg(share.to_string());
            }
            command.args(["--fault-seed", &noise_seed.to_string()]);
        }
        command.args(["--http", "127.0.0.1:0", "--until-stdin-ends"]);
        command
    }

    /// Where rank 0 of a job can listen.
    ///
    /// # Errors
    /// Where the machine has no port.
    pub fn address(&self) -> Result<SocketAddr> {
        Ok(free_addresses_at(self.ip, 1)?[0])
    }

    /// The command of a rank.
    pub fn rank(&self) -> Command {
        let mut command = Command::new(&self.program);
        command.arg("chaos-rank");
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("FANIN_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Where a rank joins, as variables; `at_rank_0` is where rank 0 of its job listens.
    pub fn variables(&self, job: &Job, name: &str, party: &Party, at_rank_0: SocketAddr) -> BTreeMap<String, String> {
        let Party::Rank { rank, .. } = party else { return BTreeMap::new() };
        let place = self.detours.get(party).copied().unwrap_or(self.meeting);
        let mut variables: BTreeMap<String, String> = [
            ("FANIN_RANK", rank.to_string()),
            ("FANIN_WORLD", job.hosts.len().to_string()),
            ("FANIN_JOB", name.to_owned()),
            ("FANIN_SYSTEM", job.system.clone()),
            ("FANIN_TRANSPORT", job.transport.clone()),
            ("FANIN_TIMEOUT", format!("{}ms", job.timeout_ms)),
            // Soon, so that a run is short.
            ("FANIN_STALL_NOTICE", "1s".to_owned()),
        ]
        .map(|(name, value)| (name.to_owned(), value))
        .into();
        match job.meets {
            Meets::Rank0 => drop(variables.insert("FANIN_RENDEZVOUS".into(), at_rank_0.to_string())),
            Meets::Place if self.is_fabric => {
                variables.insert("FANIN_FABRIC".into(), place.to_string());
                variables.insert("FANIN_FABRIC_HOST".into(), format!("host{}", job.hosts[*rank as usize]));
                variables.insert("FANIN_FALLBACK".into(), job.fallback.clone());
            }
            Meets::Place => {
                variables.insert("FANIN_SWITCH".into(), place.to_string());
                variables.insert("FANIN_FALLBACK".into(), job.fallback.clone());
            }
        }
        variables
    }
}

/// The ends of the link that a fault cuts; a switch or the manager first, where the other one is a rank.
fn cut(fault: &Fault) -> Option<(Party, Party)> {
    match fault.target() {
        Ok(Target::Link(from, to, _)) => Some((from, to)),
        _ => None,
    }
}

impl Links<'_> {
    fn socket(&self) -> Result<Arc<UdpSocket>> {
        Ok(Arc::new(UdpSocket::bind((self.ip, 0)).with_context(|| format!("there is no free port on {}", self.ip))?))
    }

    fn real(&self, node: NodeId) -> SocketAddr {
        self.fabric.node(node).address
    }

    fn party(&self, node: NodeId) -> Party {
        if self.fabric.map.is_host(node) { Party::Host(node.0) } else { Party::Switch(self.fabric.name(node).to_owned()) }
    }

    /// Both directions of a link.
    fn wires(&mut self, a: NodeId, b: NodeId) -> (Wire, Wire) {
        let (there, back) = (Wire::default(), Wire::default());
        self.wires.insert((self.party(a), self.party(b)), there.clone());
        self.wires.insert((self.party(b), self.party(a)), back.clone());
        (there, back)
    }

    /// The link between two switches.
    fn between(&mut self, a: NodeId, b: NodeId) -> Result<()> {
        let (at_a, at_b) = (self.socket()?, self.socket()?);
        self.seen.insert((a, b), at_a.local_addr()?);
        self.seen.insert((b, a), at_b.local_addr()?);
        let (there, back) = self.wires(a, b);
        let (real_a, real_b) = (self.real(a), self.real(b));
        self.relay.pass_datagrams(at_a.clone(), vec![Route { from: real_a, by: at_b.clone(), to: real_b, wire: there }])?;
        self.relay.pass_datagrams(at_b, vec![Route { from: real_b, by: at_a, to: real_a, wire: back }])
    }

    /// A leaf's links to its hosts, which know it by one address; the manager calls it there, too.
    fn link_hosts(&mut self, leaf: NodeId) -> Result<()> {
        let address = free_addresses_at(self.ip, 1)?[0];
        let front = Arc::new(UdpSocket::bind(address).context("a leaf's socket")?);
        let calls = TcpListener::bind(address).context("a leaf's listener")?;
        self.fronts.insert(leaf, address);
        let real = self.real(leaf);
        let hosts: BTreeSet<NodeId> = self.fabric.hosts().filter(|host| self.is_below(*host, leaf)).collect();
        let mut up = Vec::new();
        for host in hosts {
            let (back, at) = (self.socket()?, self.real(host));
            self.seen.insert((leaf, host), back.local_addr()?);
            let (down_wire, up_wire) = self.wires(leaf, host);
            up.push(Route { from: at, by: back.clone(), to: real, wire: up_wire });
            self.relay.pass_datagrams(back, vec![Route { from: real, by: front.clone(), to: at, wire: down_wire }])?;
        }
        self.relay.pass_datagrams(front, up)?;
        self.relay.pass_connections(calls, real, (Wire::default(), Wire::default()))
    }

    fn is_below(&self, host: NodeId, leaf: NodeId) -> bool {
        let leaves = self.fabric.switches().filter(|switch| self.fabric.name(*switch).starts_with("leaf")).count();
        let per_leaf = self.fabric.hosts().count() / leaves.max(1);
        format!("leaf{}", host.index() / per_leaf.max(1)) == self.fabric.name(leaf)
    }
}
