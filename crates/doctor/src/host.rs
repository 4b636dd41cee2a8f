//! Looks at this host.

use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, UdpSocket};
use std::time::{Duration, Instant};
use std::{fs, thread};

use fanin_comm::{Config, VARIABLES};
use fanin_net::shm::{Layout, Segment};
use fanin_net::{Receiver, Sender, SenderConfig, Socket, SocketConfig};
use rustix::process::{Resource, getrlimit};

use super::facts::{Buffers, Files, Offload};

/// Variables of launchers that a rank reads.
const LAUNCHERS: &[&str] = &[
    "RANK",
    "WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
    "TORCHELASTIC_RUN_ID",
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_RANK",
    "OMPI_COMM_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
];
const LOCAL_WORLD: [&str; 2] = ["LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"];

/// Those of all variables that have to do with Fanin, by name.
pub fn variables(all: impl Iterator<Item = (String, String)>) -> Vec<(String, String)> {
    let mut found: Vec<_> = all.filter(|(name, _)| name.starts_with("FANIN_") || LAUNCHERS.contains(&name.as_str())).collect();
    found.sort();
    found
}

/// Those that begin with `FANIN_` and that nothing reads: misspelt, most likely.
pub fn unknown_variables(variables: &[(String, String)]) -> Vec<String> {
    let names = variables.iter().map(|(name, _)| name);
    names.filter(|name| name.starts_with("FANIN_") && !VARIABLES.iter().any(|(known, _)| known == name)).cloned().collect()
}

/// How many ranks the launcher has started on this host.
pub fn local_world(variables: &[(String, String)]) -> Option<u32> {
    LOCAL_WORLD.iter().find_map(|wanted| variables.iter().find(|(name, _)| name == wanted)?.1.trim().parse().ok())
}

/// Ranks on this host: as the launcher says, or all of them where they meet on loopback.
pub fn processes(variables: &[(String, String)], config: Option<&Config>, switch: Option<SocketAddr>) -> Option<u32> {
    let all_here = switch.is_some_and(|switch| switch.ip().is_loopback());
    local_world(variables).or_else(|| config.filter(|_| all_here).map(|config| config.world))
}

/// Cores that this process may use.
pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}

/// How many files this process may open.
pub fn files() -> Files {
    let limit = getrlimit(Resource::Nofile);
    Files { soft: limit.current, hard: limit.maximum }
}

/// Whether sockets can be opened.
pub fn sockets() -> Result<(), String> {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| format!("no TCP socket can be opened on 127.0.0.1: {error}"))?;
    UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).map_err(|error| format!("no UDP socket can be opened on 127.0.0.1: {error}"))?;
    Ok(())
}

fn socket() -> Result<Socket, String> {
    Socket::bind(&SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into())).map_err(|error| error.to_string())
}

/// What the kernel grants of the buffers that every rank asks for.
pub fn buffers() -> Result<Buffers, String> {
    let wanted = SocketConfig::new((Ipv4Addr::LOCALHOST, 0).into());
    let socket = socket()?;
    let sysctl = |name: &str| fs::read_to_string(format!("/proc/sys/net/core/{name}")).ok()?.trim().parse().ok();
    Ok(Buffers {
        receive_wanted: wanted.receive_buffer_bytes,
        receive: socket.receive_buffer_bytes(),
        send_wanted: wanted.send_buffer_bytes,
        send: socket.send_buffer_bytes(),
        rmem_max: sysctl("rmem_max"),
        wmem_max: sysctl("wmem_max"),
    })
}

/// Sends a batch on loopback, to see in how many pieces it leaves and arrives.
pub fn offload() -> Result<Offload, String> {
    const DATAGRAMS: u64 = 32;
    const BYTES: usize = 1_000;
    let (from, into) = (socket()?, socket()?);
    let mut sender = Sender::new(SenderConfig::default());
    let to = sender.add(into.local_address());
    for _ in 0..DATAGRAMS {
        sender.reserve(&from, to, BYTES).ok_or("a batch has no room for 32 datagrams")?.fill(0);
        sender.commit(&from, to);
    }
    sender.flush(&from);
    let mut receiver = Receiver::new(8);
    let (mut received, mut runs) = (0, 0);
    let start = Instant::now();
    while received < DATAGRAMS && start.elapsed() < Duration::from_secs(2) {
        into.wait(Some(Duration::from_millis(100)), false).map_err(|error| error.to_string())?;
        receiver.receive(&into).map_err(|error| error.to_string())?;
        for run in receiver.runs() {
            received += run.datagrams().count() as u64;
            runs += 1;
        }
    }
    let done = sender.statistics();
    Ok(Offload { send_segments_max: from.send_segments_max(), datagrams: done.datagrams, send_calls: done.calls, received, runs })
}

/// Makes shared memory and opens it the way that other processes do.
pub fn memory() -> Result<(), String> {
    let layout = Layout { world: 2, slots: 2, block_bytes: 4_096 };
    let nonce = 7;
    let mine = Segment::create(layout, nonce).map_err(|error| error.to_string())?;
    Segment::open(&mine.path(), layout, nonce).map_err(|error| error.to_string())?;
    Ok(())
}

/// The interface that has this address, or that leads to `to`, with its MTU in bytes.
pub fn interface(local: IpAddr, to: IpAddr) -> Option<(String, u32)> {
    let name = if local == to || to.is_loopback() {
        "lo".to_string()
    } else {
        match (local, to) {
            (IpAddr::V6(local), _) => interface_v6(&fs::read_to_string("/proc/net/if_inet6").ok()?, local.octets())?,
            (_, IpAddr::V4(to)) => interface_v4(&fs::read_to_string("/proc/net/route").ok()?, to)?,
            _ => return None,
        }
    };
    let mtu = fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?.trim().parse().ok()?;
    Some((name, mtu))
}

/// The interface of the most specific route, from the text of `/proc/net/route`: name, destination, gateway, flags, ..., mask at 7.
fn interface_v4(routes: &str, to: Ipv4Addr) -> Option<String> {
    // Words in the order of this machine, of addresses in that of the network.
    let parse = |text: &str| u32::from_str_radix(text, 16).ok().map(|word| u32::from_be_bytes(word.to_ne_bytes()));
    let routes = routes.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        let (destination, mask) = (parse(fields.get(1)?)?, parse(fields.get(7)?)?);
        (u32::from(to) & mask == destination).then(|| (mask, fields[0].to_string()))
    });
    routes.max_by_key(|(mask, _)| *mask).map(|(_, name)| name)
}

/// The interface that has an address, from the text of `/proc/net/if_inet6`: address, index, prefix, scope, flags, name.
fn interface_v6(addresses: &str, local: [u8; 16]) -> Option<String> {
    let wanted: String = local.iter().map(|byte| format!("{byte:02x}")).collect();
    let line = addresses.lines().find(|line| line.starts_with(&wanted))?;
    line.split_ascii_whitespace().last().map(str::to_string)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
        list.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
    }

    #[test]
    fn misspelt_variables_are_found_and_those_of_others_are_not_looked_at() {
        let all = pairs(&[("PATH", "/bin"), ("FANIN_SWTCH", "h:1"), ("FANIN_SWITCH", "h:2"), ("RANK", "1")]);
        let ours = variables(all.into_iter());
        assert_eq!(ours, pairs(&[("FANIN_SWITCH", "h:2"), ("FANIN_SWTCH", "h:1"), ("RANK", "1")]));
        assert_eq!(unknown_variables(&ours), ["FANIN_SWTCH"]);
    }

    #[test]
    fn ranks_of_this_host_are_what_the_launcher_says_or_all_on_loopback() {
        let config = Config::new(0, 6, fanin_comm::Meeting::Switch("h:1".into()));
        let (here, there) = ("127.0.0.1:1".parse().unwrap(), "10.0.0.1:1".parse().unwrap());
        assert_eq!(processes(&pairs(&[("LOCAL_WORLD_SIZE", "3")]), Some(&config), Some(there)), Some(3));
        assert_eq!(processes(&[], Some(&config), Some(here)), Some(6));
        assert_eq!(processes(&[], Some(&config), Some(there)), None);
        assert_eq!(processes(&[], None, Some(here)), None);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn the_most_specific_route_leads() {
        let routes = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
            eth0\t00000000\t0102000A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
            ib0\t0000010A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n";
        assert_eq!(interface_v4(routes, Ipv4Addr::new(10, 1, 7, 7)).as_deref(), Some("ib0"));
        assert_eq!(interface_v4(routes, Ipv4Addr::new(10, 2, 7, 7)).as_deref(), Some("eth0"));
        assert_eq!(interface_v4("", Ipv4Addr::new(10, 2, 7, 7)), None);
    }

    #[test]
    fn an_address_leads_to_its_interface() {
        let text = "fe80000000000000a8aabbfffeccddee 02 40 20 80     eth1\n00000000000000000000000000000001 01 80 10 80       lo\n";
        let mut octets = [0; 16];
        octets[15] = 1;
        assert_eq!(interface_v6(text, octets).as_deref(), Some("lo"));
        octets[15] = 2;
        assert_eq!(interface_v6(text, octets), None);
    }
}
