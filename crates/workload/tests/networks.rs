//! Networks of other tools: what comes out, what is refused, and that damaged files are errors.
#![allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`")]

use fanin_core::hash::mix;
use fanin_workload::import::Input;
use fanin_workload::network::{ImportedNetwork, NetworkFormat, import};

/// 64 hosts under 8 switches of 8 and 4 ports, below 2 spines.
const TWO_TIERS: &str = "# a comment\nNodes 64\nTiers 2\nPodsize 64\n\nTier 0\nDownlink_speed_Gbps 100\nRadix_Down 8\nRadix_Up 4\nDownlink_Latency_ns \
1000\nOversubscribed 2\nSwitch_Latency_ns 100\n\nTier 1\nDownlink_speed_Gbps 100\nRadix_Down 16\nDownlink_Latency_ns 1000\nSwitch_Latency_ns 300\n";

/// A k-ary fat tree of three levels, k = 4.
const THREE_TIERS: &str = "Nodes 16\nTiers 3\nPodsize 4\nTier 0\nDownlink_speed_Gbps 200\nRadix_Down 2\nRadix_Up 2\nDownlink_Latency_ns 500\n\
Tier 1\nDownlink_speed_Gbps 200\nRadix_Down 2\nRadix_Up 2\nDownlink_Latency_ns 500\nTier 2\nDownlink_speed_Gbps 400\nRadix_Down 4\nDownlink_Latency_ns 500\n";

const HPCC: &str =
    "5 2 5\n3 4\n0 3 100Gbps 1us 0\n1 3 100Gbps 1us 0\n2 4 100Gbps 1000ns 0.000000\n3 4 400Gbps 0.001ms 0\n4 3 400Gbps 1us 0.1\n";

const SIMAI: &str = "8 2 1 2 8 H100\n4 5 6\n0 4 2880Gbps 0.000025ms 0\n1 4 2880Gbps 0.000025ms 0\n2 4 2880Gbps 0.000025ms 0\n3 4 2880Gbps 0.000025ms 0\n\
0 5 400Gbps 0.0005ms 0\n1 5 400Gbps 0.0005ms 0\n2 6 400Gbps 0.0005ms 0\n3 6 400Gbps 0.0005ms 0\n";

const NCCL: &str = r#"<system version="1">
  <cpu numaid="0" affinity="ffff" arch="x86_64">
    <pci busid="ffff:ff:01.0" class="0x060400" link_speed="32.0 GT/s PCIe" link_width="16">
      <pci busid="0001:00:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
        <gpu dev="0" sm="90" rank="0"><nvlink target="0005:00:00.0" count="4" tclass="0x068000"/></gpu>
      </pci>
      <pci busid="0101:00:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
        <nic><net name="mlx5_0" dev="0" speed="400000" port="1"/></nic>
      </pci>
      <pci busid="0102:00:00.0" class="0x010802" link_speed="8.0 GT/s PCIe" link_width="4"/>
    </pci>
  </cpu>
  <cpu numaid="1" arch="x86_64">
    <pci busid="0002:00:00.0" class="0x030200" link_speed="5.0 GT/s PCIe" link_width="8"/>
  </cpu>
</system>
"#;

const NODE_LINK: &str = r#"{"directed": false, "multigraph": true, "graph": {"rate": "25Gb/s", "latency": "300ns"},
 "nodes": [{"id": 0, "kind": "host"}, {"id": 1, "kind": "host", "rack": 7}, {"id": "tor", "kind": "switch"}],
 "links": [{"source": 0, "target": "tor", "key": 0}, {"source": 1, "target": "tor", "rate": "100Gb/s", "cost": 2}]}"#;

const LAB: &str = "name: lab\ntopology:\n  defaults:\n    kind: nokia_srlinux\n  nodes:\n    leaf1:\n    spine:\n      kind: arista_ceos\n    h1:\n      kind: linux\n    \
h2: {kind: linux}\n  links:\n    - endpoints: [\"leaf1:e1\", \"h1:eth1\"]\n    - endpoints: [\"leaf1:e2\", \"spine:e1\"]\n    - endpoints:\n        - spine:e2\n        - h2:eth1\n    - \
endpoints: [\"spine:e9\", \"host:veth\"]\n";

const CABLES: &str =
    "from,to,rate,latency,count,rack\ntor,h0,25Gb/s,300ns,,1\ntor,h1,25Gb/s,300ns,,1\ncore,tor,100Gb/s,,2,\ncore,h2,25Gb/s,300ns,1,\n";

fn input(text: &str) -> Input {
    Input::new("n.txt", text.as_bytes().to_vec()).unwrap_or_else(|error| panic!("{error}"))
}

fn taken(text: &str, format: NetworkFormat) -> ImportedNetwork {
    assert_eq!(NetworkFormat::of(&input(text)), Some(format));
    import(format, &input(text)).unwrap_or_else(|error| panic!("{error}"))
}

fn refused(text: &str, from: &str, to: &str) -> String {
    assert!(text.contains(from), "{from}");
    let format = NetworkFormat::of(&input(text)).expect("a known format");
    import(format, &input(&text.replacen(from, to, 1))).map(drop).unwrap_err().to_string()
}

fn name_of(found: &ImportedNetwork, number: u32) -> &str {
    &found.network.nodes[number as usize].name
}

/// Hosts, switches and cables.
fn size(found: &ImportedNetwork) -> (usize, usize, u64) {
    (found.network.hosts(), found.network.switches(), found.network.cable_count())
}

#[test]
fn tiers_of_htsim_are_wired() {
    let found = taken(TWO_TIERS, NetworkFormat::Htsim);
    assert_eq!(size(&found), (64, 10, 64 + 8 * 4));
    let expected = "# here\nhosts = [\"host[0-63]\"]\n\n[[switches]]\nname = [\"leaf[0-7]\", \"spine[0-1]\"]\n";
    let text = found.network.to_toml("here");
    assert!(text.starts_with(expected), "{text}");
    let last = "\n[[links]]\nfrom = \"spine[0-1]\"\nto = \"leaf[0-7]\"\nrate = \"100Gb/s\"\nlatency = \"1.2us\"\ncount = 2\n";
    assert!(text.ends_with(last), "{text}");
    // A host's way to one of another leaf: four cables, three switches: 4 x 1000 + 100 + 300 + 100 ns.
    let of = |from: &str| {
        found.network.cables.iter().find(|cable| found.network.nodes[cable.from as usize].name == from).and_then(|one| one.latency_ps)
    };
    assert_eq!(of("leaf0").zip(of("spine0")).map(|(low, high)| 2 * (low + high)), Some(4_500_000));
    let found = taken(THREE_TIERS, NetworkFormat::Htsim);
    assert_eq!(size(&found), (16, 8 + 8 + 4, 16 + 16 + 16));
    assert_eq!(
        refused(TWO_TIERS, "Oversubscribed 2", "Oversubscribed 4"),
        "n.txt:6: tier 0: Oversubscribed 4: expected what 8 ports down and 4 up give"
    );
    assert_eq!(refused(TWO_TIERS, "Nodes 64", "Nodes 60"), "n.txt: Nodes by Radix_Down of tier 0: expected 60 to be a multiple of 8");
    assert_eq!(refused(TWO_TIERS, "Radix_Up", "Radix_Left"), "n.txt:9: \"Radix_Left 4\": expected a key of htsim's at its place");
    assert_eq!(refused(TWO_TIERS, "Tiers 2", "Tiers 3"), "n.txt: Tiers 3, of which 2 are there: expected 2 or 3, and all of them");
}

#[test]
fn cables_of_ns3_are_taken() {
    let found = taken(HPCC, NetworkFormat::Ns3);
    assert_eq!(size(&found), (3, 2, 5));
    assert_eq!(found.report.left_out.iter().map(|one| (one.count, one.first.as_str())).collect::<Vec<_>>(), [(1, "n.txt:7")]);
    let found = taken(SIMAI, NetworkFormat::Ns3);
    // Four GPUs at one NVSwitch and at two switches; a GPU's first cable is the one to the network.
    assert_eq!(size(&found), (4, 3, 8));
    let ends: Vec<(&str, &str)> =
        found.network.cables.iter().map(|cable| (name_of(&found, cable.from), name_of(&found, cable.to))).collect();
    assert_eq!(ends[..4], [("switch5", "gpu0"), ("switch5", "gpu1"), ("switch6", "gpu2"), ("switch6", "gpu3")]);
    assert!(ends[4..].iter().all(|(from, _)| *from == "nvswitch4"), "{ends:?}");
    assert_eq!(found.report.left_out.iter().map(|one| one.first.as_str()).collect::<Vec<_>>(), ["gpu7"], "it has no cable");
    assert_eq!(
        refused(HPCC, "1 3 100Gbps", "1 3 100Gigs"),
        "n.txt:4: \"100Gigs\": expected bits per second from 1kb/s to 100Tb/s, such as \"100Gb/s\" or \"100Gbps\""
    );
    assert_eq!(refused(HPCC, "5 2 5", "5 2 6"), "n.txt:1: 5 links: expected the 6 that the first line says");
    assert_eq!(refused(HPCC, "0 3 100", "9 3 100"), "n.txt:3: 9: expected a node below 5");
}

#[test]
fn a_machine_of_nccl_has_its_gpus_and_cards() {
    let found = taken(NCCL, NetworkFormat::Nccl);
    let names: Vec<&str> = found.network.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["cpu0", "pcie ffff:ff:01.0", "gpu0", "nvswitch 0005:00:00.0", "mlx5_0", "cpu1", "gpu1"]);
    assert_eq!(found.network.hosts(), 2);
    let rate = |name: &str| {
        let is = |number: u32| found.network.nodes[number as usize].name == name;
        found.network.cables.iter().filter(|cable| is(cable.to)).filter_map(|cable| cable.bits_per_second).collect::<Vec<_>>()
    };
    // 32 GT/s, 16 lanes, 128 of 130 bits; the older one 8 of 10.
    // Four NVLinks of 164.8 Gb/s are one cable.
    assert_eq!((rate("gpu0"), rate("gpu1")), (vec![504_123_076_923, 4 * 164_800_000_000], vec![32_000_000_000]));
    assert_eq!(rate("mlx5_0"), [252_061_538_461]);
    assert!(found.report.left_out.iter().any(|one| one.what == "PCIe devices of class \"0x010802\""), "{:?}", found.report);
}

#[test]
fn graphs_labs_and_tables_are_taken() {
    let found = taken(NODE_LINK, NetworkFormat::NodeLink);
    let text = found.network.to_toml("x");
    assert_eq!(size(&found), (2, 1, 2));
    assert!(text.contains("from = \"tor\"\nto = \"1\"\nrate = \"100Gb/s\"\nlatency = \"300ns\"\ncost = 2\n"), "{text}");
    assert_eq!(refused(NODE_LINK, "\"target\": \"tor\"", "\"target\": 9"), "n.txt: links[0]: target = 9: expected the id of a node");
    assert_eq!(
        refused(NODE_LINK, "\"directed\": false", "\"directed\": true"),
        "n.txt: directed = true: expected a graph whose links go both ways, as networkx's to_undirected() makes it"
    );
    let found = taken(LAB, NetworkFormat::Containerlab);
    assert_eq!(size(&found), (2, 2, 3));
    assert_eq!(found.report.left_out[0].what, "links to the machine that runs the lab");
    assert_eq!(refused(LAB, "\"spine:e1\"", "\"core:e1\""), "n.txt:14: \"core:e1\": expected a node of nodes:");
    assert_eq!(
        refused(LAB, "leaf1:\n    spine:\n      kind: arista_ceos", "leaf1: &all {}\n    spine: *all"),
        "n.txt:7: an alias (*name): expected the value itself"
    );
    let found = taken(CABLES, NetworkFormat::Cables);
    assert_eq!(size(&found), (3, 2, 5));
    assert_eq!(refused(CABLES, "core,h2,25Gb/s", "core,core,25Gb/s"), "n.txt:5: a cable from \"core\" to itself");
    let many: String = (0..17).map(|number| format!("core,tor{number},,,65536,\n")).collect();
    assert_eq!(
        refused(CABLES, "core,h2,", &format!("{many}core,h2,")),
        "n.txt:20: expected at most 1048576 cables, parallel ones each counted"
    );
    assert_eq!(refused(CABLES, ",,2,", ",,0,"), "n.txt:4: count = \"0\": expected 1 to 65536");
}

#[test]
fn hosts_with_cables_to_hosts_have_a_switch_of_their_own() {
    let text = "from,to,rate,from_kind\nh0,a,100Gb/s,host\nh0,b,100Gb/s,host\nh1,a,100Gb/s,host\nh2,h3,10Gb/s,host\na,b,100Gb/s,switch\n";
    let found = taken(text, NetworkFormat::Cables);
    let text = found.network.to_toml("x");
    assert!(text.contains("from = \"a\"\nto = [\"h[0-1]\", \"b\"]\nrate = \"100Gb/s\"\n") && !text.contains("h0-ports"), "{text}");
    assert!(text.contains("from = \"h2-ports\"\nto = \"h3\"\nrate = \"10Gb/s\"\n"), "{text}");
    assert!(text.contains("from = \"h2-ports\"\nto = \"h2\"\nrate = \"10Gb/s\"\nlatency = \"1ns\"\n"), "{text}");
    assert_eq!(found.report.assumed[1..], ["a host with a cable to another host has all of its cables at a switch of its own, NAME-ports"]);
}

fn all() -> Vec<(NetworkFormat, &'static str)> {
    vec![
        (NetworkFormat::Htsim, TWO_TIERS),
        (NetworkFormat::Htsim, THREE_TIERS),
        (NetworkFormat::Ns3, HPCC),
        (NetworkFormat::Ns3, SIMAI),
        (NetworkFormat::Nccl, NCCL),
        (NetworkFormat::NodeLink, NODE_LINK),
        (NetworkFormat::Containerlab, LAB),
        (NetworkFormat::Cables, CABLES),
    ]
}

/// Whatever the bytes are: an error, or a network in which each host has a cable, and cables to switches only; no panic.
fn holds(format: NetworkFormat, bytes: &[u8]) {
    let Ok(file) = Input::new("n.txt", bytes.to_vec()) else { return };
    let _ = NetworkFormat::of(&file);
    if let Ok(found) = import(format, &file) {
        let mut counts = vec![0u64; found.network.nodes.len()];
        for cable in &found.network.cables {
            counts[cable.from as usize] += u64::from(cable.count);
            counts[cable.to as usize] += u64::from(cable.count);
        }
        assert!(found.network.nodes.iter().zip(&counts).all(|(node, count)| !node.is_host || *count >= 1));
        let is_host = |number: u32| found.network.nodes[number as usize].is_host;
        assert!(found.network.cables.iter().all(|cable| !(is_host(cable.from) && is_host(cable.to))));
        let text = found.network.to_toml("n.txt");
        assert!(text.parse::<toml::Table>().is_ok(), "{text}");
    }
}

#[test]
fn truncated_and_damaged_files_are_errors_and_no_panics() {
    for (number, (format, text)) in all().into_iter().enumerate() {
        let bytes = text.as_bytes();
        (0..bytes.len()).for_each(|end| holds(format, &bytes[..end]));
        for index in 0..2_000 {
            let mut damaged = bytes.to_vec();
            for more in 0..=index % 4 {
                let dice = mix(number as u64 * 1_000_003 + index, more);
                let at = dice as usize % damaged.len();
                damaged[at] = if dice >> 63 == 0 { b"0123456789 ,\n:-<>\"[]{}gG"[(dice >> 32) as usize % 24] } else { (dice >> 32) as u8 };
            }
            holds(format, &damaged);
        }
    }
}

macro_rules! fuzzed {
    ($($name:ident, $format:ident;)*) => { $(
        #[test]
        fn $name() {
            bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| holds(NetworkFormat::$format, bytes));
        }
    )* };
}

fuzzed! {
    htsim_fuzzed, Htsim;
    ns3_fuzzed, Ns3;
    nccl_fuzzed, Nccl;
    node_link_fuzzed, NodeLink;
    containerlab_fuzzed, Containerlab;
    cables_fuzzed, Cables;
}
