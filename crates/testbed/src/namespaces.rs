//! A network namespace for each node and a veth for each link, whose rate `tc tbf` bounds.
//!
//! A node has one address, which all of its interfaces share; each of them leads to one neighbour only. So the same file of addresses
//! serves as on loopback, and nothing is routed by the kernel: forwarding is the switches' work.

use std::fs::File;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, anyhow, bail, ensure};
use fanin_core::NodeId;
use fanin_fabric::Fabric;
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Begins the name of every namespace that a testbed makes; its process number follows.
const PREFIX: &str = "fanin-tb-";

/// Where the kernel keeps namespaces that have names.
const FOLDER: &str = "/run/netns";

/// The port of every node: each has an address of its own.
const PORT: u16 = 7100;

/// Super-packets of segmentation offload pass whole, and the queue holds more than a socket's send buffer: who has to wait, waits in the
/// switch's own queue, where it is counted.
const SHAPER: [&str; 4] = ["burst", "128kb", "limit", "4mb"];

/// The fabric's rates count datagrams, and `tc` counts frames, with the headers of UDP, IP and Ethernet. This much more lets packets of
/// 1000 bytes through at the fabric's rate.
const HEADROOM: f64 = 1.05;

/// The namespaces of a fabric. They, and every process in them, end with this value.
#[derive(Debug)]
pub struct Namespaces {
    /// By node.
    names: Vec<String>,
}

/// The socket of a node in its namespace.
pub fn address(node: NodeId) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 77, (node.0 / 254) as u8, (node.0 % 254 + 1) as u8)), PORT)
}

/// A namespace's name; no other process uses it.
fn name(process: u32, node: &str) -> String {
    format!("{PREFIX}{process}-{node}")
}

/// The process that has made a namespace with this name, if a testbed has.
fn maker(name: &str) -> Option<u32> {
    name.strip_prefix(PREFIX)?.split_once('-')?.0.parse().ok()
}

/// The commands that build the network, in their order.
fn commands(fabric: &Fabric, names: &[String]) -> Vec<Vec<String>> {
    let mut all: Vec<String> =
        names.iter().flat_map(|name| [format!("ip netns add {name}"), format!("ip -n {name} link set lo up")]).collect();
    for (number, link) in fabric.links().iter().enumerate() {
        let [(a, _), (b, _)] = link.ends;
        let device = format!("l{number}");
        let (first, second) = (&names[a.index()], &names[b.index()]);
        all.push(format!("ip -n {first} link add {device} mtu 65535 type veth peer name {device} mtu 65535 netns {second}"));
        for (own, other, name) in [(a, b, first), (b, a, second)] {
            let (own, other) = (address(own).ip(), address(other).ip());
            all.push(format!("ip -n {name} address add {own} peer {other} dev {device}"));
            all.push(format!("ip -n {name} link set {device} up"));
            let rate = (link.settings.bits_per_second as f64 * HEADROOM) as u64;
            all.push(format!("tc -n {name} qdisc add dev {device} root tbf rate {rate}bit {}", SHAPER.join(" ")));
        }
    }
    all.iter().map(|line| line.split(' ').map(str::to_string).collect()).collect()
}

impl Namespaces {
    /// Builds the network. What a testbed that was killed has left behind is removed first.
    ///
    /// # Errors
    /// Where this process has no right to do so or a command fails; nothing is left behind then.
    pub fn build(fabric: &Fabric) -> Result<Self> {
        ensure!(
            rustix::process::geteuid().is_root(),
            "--place namespaces needs root, to make network namespaces; --place loopback does without"
        );
        sweep()?;
        let names: Vec<String> = fabric.nodes().iter().map(|node| name(std::process::id(), &node.name)).collect();
        // Owned before the first is made: removing one that has not been made does no harm.
        let this = Namespaces { names };
        for command in commands(fabric, &this.names) {
            must(&command)?;
        }
        Ok(this)
    }

    /// A command that runs `program` as a process of this node.
    pub fn command(&self, node: NodeId, program: &Path) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.names[node.index()]]).arg(program);
        command
    }

    /// Calls `work` in a thread that lives in a node's namespace; sockets that it opens stay there.
    ///
    /// # Errors
    /// What `work` gives, or why the namespace cannot be entered.
    pub fn inside<T: Send>(&self, node: NodeId, work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
        let path = Path::new(FOLDER).join(&self.names[node.index()]);
        thread::scope(|scope| {
            let inside = scope.spawn(move || {
                let namespace = File::open(&path).with_context(|| format!("{} cannot be opened", path.display()))?;
                move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
                work()
            });
            inside.join().unwrap_or_else(|_| bail!("the thread in the namespace has panicked"))
        })
    }
}

impl Drop for Namespaces {
    fn drop(&mut self) {
        for name in self.names.iter().rev() {
            // The rest goes even if one does not.
            if let Err(error) = remove(name) {
                tracing::warn!(name, "cannot be removed: {error:#}");
            }
        }
    }
}

/// Removes what testbeds have left behind that were killed.
fn sweep() -> Result<()> {
    let listed = must(&["ip", "netns", "list"].map(String::from))?;
    let names = listed.lines().filter_map(|line| line.split_whitespace().next());
    for name in names.filter(|name| maker(name).is_some_and(|process| !Path::new(&format!("/proc/{process}")).exists())) {
        remove(name)?;
    }
    Ok(())
}

/// Removes a namespace and ends the processes in it, which nobody else has started; none is no error.
fn remove(name: &str) -> Result<()> {
    if !Path::new(FOLDER).join(name).exists() {
        return Ok(());
    }
    for process in must(&["ip", "netns", "pids", name].map(String::from))?.split_whitespace() {
        let process = process.parse().ok().and_then(rustix::process::Pid::from_raw);
        // It may have ended since.
        let _ = process.map(|process| rustix::process::kill_process(process, rustix::process::Signal::KILL));
    }
    must(&["ip", "netns", "del", name].map(String::from)).map(drop)
}

/// Runs a command that must succeed, and gives its output. Ctrl-C does not reach it: half a network helps nobody.
fn must(command: &[String]) -> Result<String> {
    let text = command.join(" ");
    let (program, arguments) = command.split_first().ok_or_else(|| anyhow!("no command"))?;
    let done = Command::new(program).args(arguments).stdin(Stdio::null()).process_group(0).output();
    let done = done.with_context(|| format!("`{program}` cannot be run: is the package iproute2 installed?"))?;
    if !done.status.success() {
        bail!("`{text}` failed: {}", String::from_utf8_lossy(&done.stderr).trim());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_link_becomes_a_veth_with_both_ends_addressed_and_bounded() {
        let text = "[defaults]\nrate = \"20Mb/s\"\n[leaf_spine]\nleaves = 1\nspines = 1\nhosts_per_leaf = 1\n";
        let fabric = Fabric::parse("f.toml", text).unwrap();
        let names: Vec<String> = fabric.nodes().iter().map(|node| name(42, &node.name)).collect();
        let lines: Vec<String> = commands(&fabric, &names).iter().map(|command| command.join(" ")).collect();
        let expected = "\
ip netns add fanin-tb-42-host0
ip -n fanin-tb-42-host0 link set lo up
ip netns add fanin-tb-42-leaf0
ip -n fanin-tb-42-leaf0 link set lo up
ip netns add fanin-tb-42-spine0
ip -n fanin-tb-42-spine0 link set lo up
ip -n fanin-tb-42-host0 link add l0 mtu 65535 type veth peer name l0 mtu 65535 netns fanin-tb-42-leaf0
ip -n fanin-tb-42-host0 address add 10.77.0.1 peer 10.77.0.2 dev l0
ip -n fanin-tb-42-host0 link set l0 up
tc -n fanin-tb-42-host0 qdisc add dev l0 root tbf rate 21000000bit burst 128kb limit 4mb
ip -n fanin-tb-42-leaf0 address add 10.77.0.2 peer 10.77.0.1 dev l0
ip -n fanin-tb-42-leaf0 link set l0 up
tc -n fanin-tb-42-leaf0 qdisc add dev l0 root tbf rate 21000000bit burst 128kb limit 4mb
ip -n fanin-tb-42-leaf0 link add l1 mtu 65535 type veth peer name l1 mtu 65535 netns fanin-tb-42-spine0
ip -n fanin-tb-42-leaf0 address add 10.77.0.2 peer 10.77.0.3 dev l1
ip -n fanin-tb-42-leaf0 link set l1 up
tc -n fanin-tb-42-leaf0 qdisc add dev l1 root tbf rate 21000000bit burst 128kb limit 4mb
ip -n fanin-tb-42-spine0 address add 10.77.0.3 peer 10.77.0.2 dev l1
ip -n fanin-tb-42-spine0 link set l1 up
tc -n fanin-tb-42-spine0 qdisc add dev l1 root tbf rate 21000000bit burst 128kb limit 4mb";
        assert_eq!(lines.join("\n"), expected);
    }

    #[test]
    fn addresses_of_many_nodes_differ_and_end_in_neither_0_nor_255() {
        let all: std::collections::BTreeSet<SocketAddr> = (0..4_096).map(|node| address(NodeId(node))).collect();
        assert_eq!(all.len(), 4_096);
        assert!(all.iter().all(|address| matches!(address.ip(), IpAddr::V4(ip) if ![0, 255].contains(&ip.octets()[3]))));
    }

    #[test]
    fn only_a_testbeds_own_names_are_recognised() {
        assert_eq!(maker("fanin-tb-42-host0"), Some(42));
        assert_eq!(maker(&name(7, "leaf-3_a")), Some(7));
        for other in ["fanin-42-bridge", "fanin-tb-42", "fanin-tb--host0", "fanin-tb-x-host0", "blue"] {
            assert_eq!(maker(other), None, "{other}");
        }
    }
}
