//! From a fabric's file to a checked fabric. What does not fit is refused with line, key, value and what was expected.

use std::fmt::Display;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use fanin_core::{Duration, NetworkMap, NodeId};
use fanin_plan::read::read;
use fanin_plan::tree::Tree;
use fanin_plan::{PlanError, Refuse};

use crate::routes::Routes;
use crate::schema::{Defaults, File, Link, Operator};
use crate::{Fabric, FabricLink, FabricNode, FabricOperator, LinkSettings};

/// Hosts and switches of a fabric: processes of a few machines, so that more would be a mistake.
const NODES_MAX: u64 = 4_096;
/// Each is compiled by every process when that starts.
const OPERATORS_MAX: usize = 8;
/// Capacity of a port's queue, and of the line that emulates its delay.
const QUEUE_BYTES_MAX: u64 = 1 << 30;
/// A queue holds the longest datagram.
const BUFFER_BYTES_MIN: u64 = 64 << 10;
const BUFFER_BYTES_DEFAULT: u64 = 256 << 10;
const DELAY_MAX: Duration = Duration::from_ms(10_000);
const HELLO_INTERVAL_DEFAULT: Duration = Duration::from_ms(50);
const HELLO_TIMEOUT_DEFAULT: Duration = Duration::from_ms(250);
const HELLO_MIN: Duration = Duration::from_ms(1);
/// Silence as long as this is noticed by people first.
const HELLO_MAX: Duration = Duration::from_ms(60_000);

/// A node before it has its number.
struct Drawn {
    node: FabricNode,
    /// The key to blame.
    path: String,
}

/// A link before its ends have numbers.
struct Cable {
    ends: [String; 2],
    settings: LinkSettings,
    path: String,
}

/// Builds the fabric that `tree` describes.
pub(crate) fn lay_out(file: &str, tree: &Tree) -> Result<Fabric, PlanError> {
    let contents: File = read(file, tree, &[])?;
    let refuse = Refuse { file, tree };
    let (hello_interval, hello_timeout) = hellos(&refuse, &contents.defaults)?;
    let nodes = nodes(&refuse, &contents)?;
    let cables = cables(&refuse, &contents)?;
    let map = join(&refuse, &nodes, &cables)?;
    check_hosts(&refuse, &nodes, &map)?;
    let links = number_links(&map, &nodes, &cables);
    let nodes = nodes.into_iter().map(|drawn| drawn.node).collect();
    let operators = operators(&refuse, &contents.operator)?;
    Ok(Fabric { map, hello_interval, hello_timeout, nodes, links, operators })
}

/// Says what is wrong with the value at `path`, or that it is missing.
fn at(refuse: &Refuse<'_>, path: &str, expected: impl Display) -> PlanError {
    refuse.at(path, expected)
}

fn hellos(refuse: &Refuse<'_>, defaults: &Defaults) -> Result<(Duration, Duration), PlanError> {
    let interval = defaults.hello_interval.map_or(HELLO_INTERVAL_DEFAULT, |time| time.0);
    if !(HELLO_MIN..=HELLO_MAX).contains(&interval) {
        return Err(at(refuse, "defaults.hello_interval", "a time from 1ms to 60s"));
    }
    let timeout = defaults.hello_timeout.map_or(HELLO_TIMEOUT_DEFAULT.max(interval.times(5)), |time| time.0);
    if timeout < interval.times(2) || timeout > HELLO_MAX {
        let expected = format!("a time from {} (two hello_intervals) to 60 s", interval.times(2));
        return Err(at(refuse, "defaults.hello_timeout", expected));
    }
    Ok((interval, timeout))
}

/// Operators and where their modules are; these are read by whoever reduces.
fn operators(refuse: &Refuse<'_>, listed: &[Operator]) -> Result<Vec<FabricOperator>, PlanError> {
    let folder = Path::new(refuse.file).parent().unwrap_or(Path::new(""));
    let mut operators: Vec<FabricOperator> = Vec::new();
    for (index, Operator { name, file }) in listed.iter().enumerate() {
        let path = |key: &str| format!("operator[{index}].{key}");
        if operators.len() == OPERATORS_MAX {
            return Err(refuse.at(&format!("operator[{index}]"), format!("at most {OPERATORS_MAX} operators")));
        }
        check_name(refuse, &path("name"), name)?;
        if name.parse::<fanin_core::Operator>().is_ok() {
            return Err(at(refuse, &path("name"), "a name that no built-in operator has"));
        }
        if operators.iter().any(|other| other.name == *name) {
            return Err(at(refuse, &path("name"), "a name that no other operator has"));
        }
        if file.is_empty() || file.chars().any(char::is_control) {
            return Err(at(refuse, &path("file"), "the file of a module, such as \"float_sum.wasm\""));
        }
        operators.push(FabricOperator { name: name.clone(), file: folder.join(file) });
    }
    Ok(operators)
}

/// All nodes in the order of their numbers.
fn nodes(refuse: &Refuse<'_>, contents: &File) -> Result<Vec<Drawn>, PlanError> {
    let mut nodes = Vec::new();
    if let Some(shape) = &contents.leaf_spine {
        let (leaves, spines, per_leaf) = (shape.leaves.0, shape.spines.0, shape.hosts_per_leaf.0);
        let hosts = u64::from(leaves) * u64::from(per_leaf);
        let total = hosts + u64::from(leaves) + u64::from(spines);
        if total > NODES_MAX {
            return Err(at(refuse, "leaf_spine.leaves", format!("at most {NODES_MAX} hosts and switches")));
        }
        let address: IpAddr =
            shape.address.parse().map_err(|_| at(refuse, "leaf_spine.address", "an IP address, such as \"127.0.0.1\""))?;
        if shape.port == 0 || u64::from(shape.port) + total - 1 > u64::from(u16::MAX) {
            return Err(refuse.say("leaf_spine.port", shape.port, format!("1 to {}: node n has port + n", 65_536 - total)));
        }
        let names = (0..hosts).map(|host| (format!("host{host}"), 0));
        let names = names.chain((0..leaves).map(|leaf| (format!("leaf{leaf}"), 1)));
        let names = names.chain((0..spines).map(|spine| (format!("spine{spine}"), 2)));
        for (number, (name, level)) in names.enumerate() {
            let address = SocketAddr::new(address, shape.port + number as u16);
            nodes.push(Drawn { node: FabricNode { name, level, address }, path: "leaf_spine".into() });
        }
    }
    for (index, host) in contents.host.iter().enumerate() {
        nodes.push(drawn(refuse, &format!("host[{index}]"), &host.name, 0, &host.address)?);
    }
    for (index, switch) in contents.switch.iter().enumerate() {
        let path = format!("switch[{index}]");
        if !(1..=8).contains(&switch.level) {
            return Err(at(refuse, &format!("{path}.level"), "1 (next to hosts) to 8"));
        }
        nodes.push(drawn(refuse, &path, &switch.name, switch.level, &switch.address)?);
    }
    if nodes.len() as u64 > NODES_MAX {
        return Err(refuse.say("host", nodes.len(), format!("at most {NODES_MAX} hosts and switches")));
    }
    if !nodes.iter().any(|drawn| drawn.node.level == 0) {
        return Err(at(refuse, "host", "at least one [[host]], or [leaf_spine]"));
    }
    // As the simulator numbers them: hosts, then switches from the lowest level up. The sort keeps the order of the file otherwise.
    nodes.sort_by_key(|drawn| drawn.node.level);
    check_unique(refuse, &nodes)?;
    Ok(nodes)
}

fn drawn(refuse: &Refuse<'_>, path: &str, name: &str, level: u8, address: &str) -> Result<Drawn, PlanError> {
    check_name(refuse, &format!("{path}.name"), name)?;
    let address: Option<SocketAddr> = address.parse().ok().filter(|address: &SocketAddr| address.port() != 0);
    let address = address.ok_or_else(|| at(refuse, &format!("{path}.address"), "an IP address and a port, such as \"127.0.0.1:7100\""))?;
    Ok(Drawn { node: FabricNode { name: name.into(), level, address }, path: path.into() })
}

fn check_name(refuse: &Refuse<'_>, path: &str, name: &str) -> Result<(), PlanError> {
    let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '_';
    if name.is_empty() || name.len() > 32 || !name.chars().all(fits) {
        return Err(at(refuse, path, "1 to 32 of a-z, 0-9, - and _"));
    }
    Ok(())
}

fn check_unique(refuse: &Refuse<'_>, nodes: &[Drawn]) -> Result<(), PlanError> {
    let key = |drawn: &Drawn, key: &str| {
        if drawn.path == "leaf_spine" { drawn.path.clone() } else { format!("{}.{key}", drawn.path) }
    };
    for (index, drawn) in nodes.iter().enumerate() {
        let node = &drawn.node;
        // The one to blame is the one that the shorthand has not made.
        let other = |same: &dyn Fn(&FabricNode) -> bool| {
            let first = nodes[..index].iter().find(|other| same(&other.node))?;
            Some(if drawn.path == "leaf_spine" { (first, node) } else { (drawn, &first.node) })
        };
        if let Some((blamed, _)) = other(&|other| other.name == node.name) {
            return Err(refuse.say(&key(blamed, "name"), format_args!("{:?}", node.name), "a name that no other node has"));
        }
        if let Some((blamed, owner)) = other(&|other| other.address == node.address) {
            let expected = format!("an address of its own: {} has this one", owner.name);
            return Err(refuse.say(&key(blamed, "address"), format_args!("\"{}\"", node.address), expected));
        }
    }
    Ok(())
}

/// All links, in the order in which they get ports.
fn cables(refuse: &Refuse<'_>, contents: &File) -> Result<Vec<Cable>, PlanError> {
    let mut cables: Vec<Cable> = Vec::new();
    let shorthand = |a: String, b: String, settings: LinkSettings| Cable { ends: [a, b], settings, path: "leaf_spine".into() };
    if let Some(shape) = &contents.leaf_spine {
        let plain = settings(refuse, &contents.defaults, None, "defaults")?;
        let fabric = LinkSettings { bits_per_second: shape.fabric_rate.map_or(plain.bits_per_second, |rate| rate.0), ..plain };
        for host in 0..shape.leaves.0 * shape.hosts_per_leaf.0 {
            cables.push(shorthand(format!("host{host}"), format!("leaf{}", host / shape.hosts_per_leaf.0), plain));
        }
        for leaf in 0..shape.leaves.0 {
            cables.extend((0..shape.spines.0).map(|spine| shorthand(format!("leaf{leaf}"), format!("spine{spine}"), fabric)));
        }
    }
    for (index, link) in contents.link.iter().enumerate() {
        let path = format!("link[{index}]");
        let [a, b] = &link.ends;
        let same = |cable: &&mut Cable| cable.ends == [a.clone(), b.clone()] || cable.ends == [b.clone(), a.clone()];
        match cables.iter_mut().find(same) {
            Some(cable) if cable.path == "leaf_spine" => {
                let rate = link.rate.unwrap_or(fanin_plan::units::Rate(cable.settings.bits_per_second));
                cable.settings = settings(refuse, &contents.defaults, Some(&Link { rate: Some(rate), ..link.clone() }), &path)?;
                cable.path = path;
            }
            Some(_) => return Err(at(refuse, &format!("{path}.ends"), "two nodes that no other link joins")),
            None => {
                let settings = settings(refuse, &contents.defaults, Some(link), &path)?;
                cables.push(Cable { ends: link.ends.clone(), settings, path });
            }
        }
    }
    Ok(cables)
}

/// A link's settings, or else the defaults; `path` is where they stand.
fn settings(refuse: &Refuse<'_>, defaults: &Defaults, link: Option<&Link>, path: &str) -> Result<LinkSettings, PlanError> {
    let key = |name: &str, own: bool| if own { format!("{path}.{name}") } else { format!("defaults.{name}") };
    let (rate, own_rate) = (link.and_then(|link| link.rate), link.is_some_and(|link| link.rate.is_some()));
    let Some(rate) = rate.or(defaults.rate) else {
        return Err(at(refuse, &key("rate", own_rate), "a rate, here or at the link, such as \"100Mb/s\""));
    };
    let own_buffer = link.and_then(|link| link.buffer);
    let buffer_bytes = own_buffer.or(defaults.buffer).map_or(BUFFER_BYTES_DEFAULT, |bytes| bytes.0);
    if !(BUFFER_BYTES_MIN..=QUEUE_BYTES_MAX).contains(&buffer_bytes) {
        return Err(at(refuse, &key("buffer", own_buffer.is_some()), "64KiB (the longest packet) to 1GiB"));
    }
    let own_mark = link.and_then(|link| link.ecn_mark);
    let ecn_mark_bytes = own_mark.or(defaults.ecn_mark).map(|bytes| bytes.0);
    if ecn_mark_bytes.is_some_and(|mark| mark >= buffer_bytes) {
        let expected = format!("less than the buffer of {buffer_bytes} bytes");
        return Err(at(refuse, &key("ecn_mark", own_mark.is_some()), expected));
    }
    let own_delay = link.and_then(|link| link.delay);
    let delay = own_delay.or(defaults.delay).map_or(Duration::ZERO, |time| time.0);
    let in_flight = u128::from(rate.0) * u128::from(delay.as_ps()) / 8 / 1_000_000_000_000;
    if delay > DELAY_MAX || in_flight > u128::from(QUEUE_BYTES_MAX) {
        return Err(at(refuse, &key("delay", own_delay.is_some()), "at most 10s, and at most 1GiB on its way at the link's rate"));
    }
    Ok(LinkSettings { bits_per_second: rate.0, buffer_bytes, ecn_mark_bytes, delay })
}

fn number(nodes: &[Drawn], name: &str) -> Option<NodeId> {
    nodes.iter().position(|drawn| drawn.node.name == name).map(|at| NodeId(at as u32))
}

/// Joins the nodes; links lead from one level to the next.
fn join(refuse: &Refuse<'_>, nodes: &[Drawn], cables: &[Cable]) -> Result<NetworkMap, PlanError> {
    let hosts = nodes.iter().filter(|drawn| drawn.node.level == 0).count() as u32;
    let levels: Vec<u8> = nodes[hosts as usize..].iter().map(|drawn| drawn.node.level).collect();
    let mut map = NetworkMap::new(hosts, &levels);
    for cable in cables {
        let mut ends = [NodeId(0); 2];
        for (index, name) in cable.ends.iter().enumerate() {
            ends[index] = number(nodes, name).ok_or_else(|| {
                refuse.say(&format!("{}.ends[{index}]", cable.path), format_args!("{name:?}"), "the name of a host or switch")
            })?;
        }
        let [a, b] = ends;
        if map.level(a).abs_diff(map.level(b)) != 1 {
            let expected = format!(
                "nodes of neighbouring levels, and these are of level {} and {} (hosts are of level 0)",
                map.level(a),
                map.level(b)
            );
            return Err(at(refuse, &format!("{}.ends", cable.path), expected));
        }
        map.join(a, b);
    }
    // A queue that does not mark may be the one that is full.
    map.set_marks(cables.iter().all(|cable| cable.settings.ecn_mark_bytes.is_some()));
    Ok(map)
}

/// Every host has one link, and reaches all others.
fn check_hosts(refuse: &Refuse<'_>, nodes: &[Drawn], map: &NetworkMap) -> Result<(), PlanError> {
    let quoted = |node: NodeId| format!("{:?}", nodes[node.index()].node.name);
    for host in (0..map.hosts()).map(NodeId) {
        let count = map.neighbours(host).len();
        if count != 1 {
            let expected = format!("one link to a switch of level 1, and it has {count}");
            return Err(refuse.say(&format!("{}.name", nodes[host.index()].path), quoted(host), expected));
        }
    }
    let mut leaves: Vec<NodeId> = (0..map.hosts()).filter_map(|host| map.leaf_of(NodeId(host))).map(|leaf| leaf.node).collect();
    leaves.dedup();
    for leaf in leaves {
        let routes = Routes::new(map, leaf);
        if let Some(lost) = (0..map.hosts()).map(NodeId).find(|&host| routes.to(host).is_empty()) {
            let expected = format!("a way up and down to it from {}", nodes[leaf.index()].node.name);
            return Err(refuse.say(&format!("{}.name", nodes[lost.index()].path), quoted(lost), expected));
        }
    }
    Ok(())
}

/// The links with the ports that [`join`] has given them: each node's next one.
fn number_links(map: &NetworkMap, nodes: &[Drawn], cables: &[Cable]) -> Vec<FabricLink> {
    let end = |cable: &Cable, own: usize, other: usize| {
        let node = number(nodes, &cable.ends[own]).expect("the ends were found when they were joined");
        let peer = number(nodes, &cable.ends[other]).expect("the ends were found when they were joined");
        let next = map.neighbours(node).iter().find(|next| next.node == peer).expect("the ends are joined");
        (node, next.port)
    };
    cables.iter().map(|cable| FabricLink { ends: [end(cable, 0, 1), end(cable, 1, 0)], settings: cable.settings }).collect()
}
