//! Where the nodes of a fabric run: on this machine's loopback, or each in a network namespace of its own.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use fanin_core::NodeId;
use fanin_daemon::FabricClient;
use fanin_fabric::Fabric;

use super::namespaces::{self, Namespaces};

/// How long a switch may take to answer a call.
const CALL_LIMIT: Duration = Duration::from_secs(3);

/// How often a free port is looked for: one that is free for UDP may be taken for TCP.
const PORT_TRIALS: u32 = 64;

/// What the user can choose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlaceName {
    /// Ports on 127.0.0.1; needs no privilege.
    Loopback,
    /// A network namespace for each node and a veth for each link, whose rate `tc` bounds; needs root.
    Namespaces,
}

/// Where the nodes run.
#[derive(Debug)]
pub enum Place {
    /// On 127.0.0.1.
    Loopback,
    /// Each in a namespace of its own.
    Namespaces(Namespaces),
}

impl Place {
    /// Makes the place, and gives the fabric with the addresses that its nodes have there.
    ///
    /// # Errors
    /// Where this machine does not let it.
    pub fn make(name: PlaceName, fabric: Fabric) -> Result<(Self, Fabric)> {
        match name {
            PlaceName::Loopback => {
                let free = free_addresses(fabric.nodes().len())?;
                Ok((Place::Loopback, fabric.with_addresses(|node| free[node.index()])))
            }
            PlaceName::Namespaces => {
                let namespaces = Namespaces::build(&fabric)?;
                Ok((Place::Namespaces(namespaces), fabric.with_addresses(namespaces::address)))
            }
        }
    }

    /// Its name: `loopback` or `namespaces`.
    pub const fn name(&self) -> &'static str {
        match self {
            Place::Loopback => "loopback",
            Place::Namespaces(_) => "namespaces",
        }
    }

    /// A command that runs `program` as a process of this node.
    pub fn command(&self, node: NodeId, program: &Path) -> Command {
        match self {
            Place::Loopback => Command::new(program),
            Place::Namespaces(namespaces) => namespaces.command(node, program),
        }
    }

    /// Calls a switch, from where it lives.
    ///
    /// # Errors
    /// Where it does not answer.
    pub fn client(&self, switch: NodeId, fabric: &Fabric) -> Result<FabricClient> {
        let address = fabric.node(switch).address;
        let connect = || Ok(FabricClient::connect(address, CALL_LIMIT)?);
        let client = match self {
            Place::Loopback => connect(),
            Place::Namespaces(namespaces) => namespaces.inside(switch, connect),
        };
        client.with_context(|| format!("{} does not answer at {address}", fabric.name(switch)))
    }
}

/// Addresses on 127.0.0.1 whose ports nobody uses, neither for UDP nor for TCP.
fn free_addresses(count: usize) -> Result<Vec<SocketAddr>> {
    free_addresses_at(Ipv4Addr::LOCALHOST, count)
}

/// Addresses at this IP address of the machine whose ports nobody uses, neither for UDP nor for TCP.
pub(crate) fn free_addresses_at(ip: Ipv4Addr, count: usize) -> Result<Vec<SocketAddr>> {
    // All are held until the last is found, so that none is found twice.
    let mut held = Vec::new();
    for _ in 0..count + PORT_TRIALS as usize {
        if held.len() == count {
            return Ok(held.into_iter().map(|(address, _, _): (SocketAddr, UdpSocket, TcpListener)| address).collect());
        }
        let datagrams = UdpSocket::bind((ip, 0)).with_context(|| format!("there is no free port on {ip}"))?;
        let address = datagrams.local_addr()?;
        if let Ok(listener) = TcpListener::bind(address) {
            held.push((address, datagrams, listener));
        }
    }
    bail!("there are no {count} ports on {ip} that are free for both UDP and TCP")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_addresses_differ_and_are_free() {
        let all = free_addresses(20).unwrap();
        for (index, address) in all.iter().enumerate() {
            assert!(!all[..index].contains(address));
            assert!(UdpSocket::bind(address).is_ok() && TcpListener::bind(address).is_ok(), "{address}");
        }
    }
}
