//! Fabrics' files: what they mean, and what is said about those that cannot be.
#![allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`")]

use fanin_core::{Duration, NodeId, PortId};
use fanin_fabric::Fabric;
use fanin_sim::topology::Topology;
use fanin_sim::{LinkSpeed, Shape};

const SMALL: &str = r#"
[defaults]
rate = "100Mb/s"
buffer = "256KiB"
ecn_mark = "64KiB"
delay = "5ms"
hello_interval = "20ms"
hello_timeout = "100ms"

[leaf_spine]
leaves = 2
spines = 2
hosts_per_leaf = 3

[[link]]
ends = ["spine1", "leaf0"]
rate = "50Mb/s"
"#;

fn error(text: &str) -> String {
    Fabric::parse("f.toml", text).unwrap_err().to_string()
}

#[test]
fn the_shorthand_has_the_simulators_numbers_and_ports() {
    let fabric = Fabric::parse("f.toml", SMALL).unwrap();
    let link = LinkSpeed { bits_per_second: 1_000, latency: Duration::ZERO };
    let shape = Shape::FatTree2 { leaves: 2, hosts_per_leaf: 3, spines: 2, parallel_links: 1, host_link: link, fabric_link: link };
    let mut simulated = Topology::new(&shape).unwrap();
    // As a plan with `ecn` has it.
    simulated.map.set_marks(true);
    assert_eq!(fabric.map, simulated.map);
    for (number, node) in fabric.nodes().iter().enumerate() {
        assert_eq!(node.name, simulated.name(NodeId(number as u32)));
        assert_eq!(node.address.to_string(), format!("127.0.0.1:{}", 7100 + number));
    }
}

#[test]
fn links_have_the_defaults_and_what_is_said_of_them() {
    let fabric = Fabric::parse("f.toml", SMALL).unwrap();
    let node = |name| fabric.node_named(name).unwrap();
    let ports = fabric.ports(node("leaf0"));
    assert_eq!(ports.iter().map(|port| fabric.name(port.peer)).collect::<Vec<_>>(), ["host0", "host1", "host2", "spine0", "spine1"]);
    assert_eq!(ports.iter().map(|port| port.port.0).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
    assert_eq!(ports[4].settings.bits_per_second, 50_000_000);
    assert_eq!((ports[4].settings.buffer_bytes, ports[4].settings.ecn_mark_bytes), (256 << 10, Some(64 << 10)));
    assert_eq!(ports[3].settings.bits_per_second, 100_000_000);
    assert_eq!(ports[3].settings.delay, Duration::from_ms(5));
    assert_eq!((ports[4].peer_port, ports[4].peer_address.port()), (PortId(0), 7109));
    assert_eq!(fabric.link(node("leaf0"), node("spine1")).unwrap().settings, ports[4].settings);
    assert_eq!(fabric.link(node("leaf0"), node("leaf1")), None);
    assert_eq!((fabric.hello_interval, fabric.hello_timeout), (Duration::from_ms(20), Duration::from_ms(100)));
}

#[test]
fn nodes_and_links_by_name_give_the_same_fabric() {
    let fabric = Fabric::parse("f.toml", SMALL).unwrap();
    let moved = fabric.clone().with_addresses(|node| ([10, 0, 0, node.0 as u8 + 1], 7000).into());
    let again = Fabric::parse("g.toml", &moved.to_toml()).unwrap();
    assert_eq!(again.map, fabric.map);
    assert_eq!(again.nodes(), moved.nodes());
    assert_eq!(again.links(), fabric.links());
    assert_eq!(again.node(NodeId(8)).address.to_string(), "10.0.0.9:7000");
    assert_eq!(again.fingerprint(), fabric.fingerprint());
    let other = Fabric::parse("h.toml", &SMALL.replace("spines = 2", "spines = 3")).unwrap();
    assert_ne!(other.fingerprint(), fabric.fingerprint());
}

#[test]
fn fields_that_cannot_be_are_named_with_their_line() {
    let with = |from: &str, to: &str| error(&SMALL.replace(from, to));
    assert_eq!(
        with("\"100Mb/s\"", "\"100Mbps\""),
        "f.toml:3: defaults.rate = \"100Mbps\": expected bits per second from 1kb/s to 100Tb/s, such as \"100Gb/s\""
    );
    assert_eq!(
        with("buffer =", "bufer ="),
        "f.toml:4: defaults.bufer = \"256KiB\": unknown key; did you mean buffer? Expected one of rate, buffer, ecn_mark, delay, \
         hello_interval, hello_timeout"
    );
    assert_eq!(with("\"256KiB\"", "\"10KiB\""), "f.toml:4: defaults.buffer = \"10KiB\": expected 64KiB (the longest packet) to 1GiB");
    assert_eq!(with("\"64KiB\"", "\"1MiB\""), "f.toml:5: defaults.ecn_mark = \"1MiB\": expected less than the buffer of 262144 bytes");
    assert_eq!(
        with("\"5ms\"", "\"11s\""),
        "f.toml:6: defaults.delay = \"11s\": expected at most 10s, and at most 1GiB on its way at the link's rate"
    );
    assert_eq!(with("\"20ms\"", "\"0s\""), "f.toml:7: defaults.hello_interval = \"0s\": expected a time from 1ms to 60s");
    assert_eq!(
        with("\"100ms\"", "\"30ms\""),
        "f.toml:8: defaults.hello_timeout = \"30ms\": expected a time from 40 ms (two hello_intervals) to 60 s"
    );
    assert_eq!(with("leaves = 2", "leaves = 4000"), "f.toml:11: leaf_spine.leaves = 4000: expected at most 4096 hosts and switches");
    assert_eq!(
        with("hosts_per_leaf = 3", "hosts_per_leaf = 3\naddress = \"here\""),
        "f.toml:14: leaf_spine.address = \"here\": expected an IP address, such as \"127.0.0.1\""
    );
    assert_eq!(
        with("hosts_per_leaf = 3", "hosts_per_leaf = 3\nport = 65530"),
        "f.toml:14: leaf_spine.port = 65530: expected 1 to 65526: node n has port + n"
    );
    assert_eq!(with("\"spine1\"", "\"spine7\""), "f.toml:16: link[0].ends[0] = \"spine7\": expected the name of a host or switch");
    assert_eq!(
        with("rate = \"100Mb/s\"\n", ""),
        "f.toml:2: defaults.rate is missing: expected a rate, here or at the link, such as \"100Mb/s\""
    );
    assert_eq!(error("[defaults]\nrate = \"1Mb/s\"\n"), "f.toml:1: host is missing: expected at least one [[host]], or [leaf_spine]");
}

#[test]
fn links_that_cannot_be_are_named() {
    let with = |more: &str| error(&format!("{SMALL}{more}"));
    assert_eq!(
        with("[[link]]\nends = [\"leaf0\", \"leaf1\"]"),
        "f.toml:19: link[1].ends = [\"leaf0\", \"leaf1\"]: expected nodes of neighbouring levels, and these are of level 1 and 1 (hosts are \
         of level 0)"
    );
    assert_eq!(
        with("[[link]]\nends = [\"leaf0\", \"spine1\"]"),
        "f.toml:19: link[1].ends = [\"leaf0\", \"spine1\"]: expected two nodes that no other link joins"
    );
    assert_eq!(
        with("[[link]]\nends = [\"host0\", \"leaf1\"]"),
        "f.toml:10: leaf_spine.name = \"host0\": expected one link to a switch of level 1, and it has 2"
    );
    assert_eq!(with("[[link]]\nends = [\"host0\"]"), "f.toml:19: link[1].ends = [\"host0\"]: expected an array of length 2");
}

#[test]
fn nodes_that_cannot_be_are_named() {
    let with = |more: &str| error(&format!("{SMALL}{more}"));
    assert_eq!(
        with("[[host]]\nname = \"host0\"\naddress = \"127.0.0.1:1\""),
        "f.toml:19: host[0].name = \"host0\": expected a name that no other node has"
    );
    assert_eq!(
        with("[[host]]\nname = \"extra\"\naddress = \"127.0.0.1:7103\""),
        "f.toml:20: host[0].address = \"127.0.0.1:7103\": expected an address of its own: host3 has this one"
    );
    assert_eq!(
        with("[[host]]\nname = \"Extra!\"\naddress = \"127.0.0.1:1\""),
        "f.toml:19: host[0].name = \"Extra!\": expected 1 to 32 of a-z, 0-9, - and _"
    );
    assert_eq!(
        with("[[host]]\nname = \"extra\"\naddress = \"127.0.0.1\""),
        "f.toml:20: host[0].address = \"127.0.0.1\": expected an IP address and a port, such as \"127.0.0.1:7100\""
    );
    assert_eq!(
        with("[[host]]\nname = \"extra\"\naddress = \"127.0.0.1:1\""),
        "f.toml:19: host[0].name = \"extra\": expected one link to a switch of level 1, and it has 0"
    );
    assert_eq!(
        with("[[switch]]\nname = \"extra\"\nlevel = 0\naddress = \"127.0.0.1:1\""),
        "f.toml:20: switch[0].level = 0: expected 1 (next to hosts) to 8"
    );
    let island = "[[host]]\nname = \"far\"\naddress = \"127.0.0.1:1\"\n[[switch]]\nname = \"island\"\nlevel = 1\naddress = \
                  \"127.0.0.1:2\"\n[[link]]\nends = [\"far\", \"island\"]";
    assert_eq!(with(island), "f.toml:19: host[0].name = \"far\": expected a way up and down to it from leaf0");
}

/// Whatever a file says, it is a fabric or refused with words. An ordinary test runs what a fuzzer has found (`make fuzz`).
#[test]
fn fabrics_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
        if let Some(Err(error)) = std::str::from_utf8(bytes).ok().map(|text| Fabric::parse("f.toml", text)) {
            assert!(!error.to_string().is_empty());
        }
    });
}
