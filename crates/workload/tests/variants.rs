//! Importers: what other versions of other tools write, and what people write by hand.

use fanin_workload::import::{Format, Imported, Input, Options, import};
use fanin_workload::network::{self, ImportedNetwork, NetworkFormat};
use fanin_workload::{Action, CollectiveKind, Peer, Summary, Workload, validate};

fn input(name: &str, bytes: &[u8]) -> Input {
    Input::new(name, bytes.to_vec()).unwrap_or_else(|error| panic!("{error}"))
}

fn taken(inputs: &[Input]) -> (Imported, Summary) {
    let format = Format::of(&inputs[0]).unwrap_or_else(|| panic!("a format of {}", inputs[0].name));
    let found = import(format, inputs, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let text = found.workload.to_toml();
    let again = Workload::from_toml("w.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    let checked = validate(&again, "w.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let summary = Summary::new(&again, &checked);
    (found, summary)
}

fn refused(name: &str, text: &str) -> String {
    let file = input(name, text.as_bytes());
    let format = Format::of(&file).unwrap_or_else(|| panic!("a format of {name}"));
    let found = import(format, &[file], &Options::default()).map(|found| found.workload);
    found.and_then(|workload| validate(&workload, name)).map(drop).unwrap_err().to_string()
}

fn network(name: &str, text: &str) -> Result<ImportedNetwork, String> {
    let file = input(name, text.as_bytes());
    let format = NetworkFormat::of(&file).unwrap_or_else(|| panic!("a network in {name}"));
    network::import(format, &file).map_err(|error| error.to_string())
}

/// A profile of a rank of two.
fn profile(rank: u32, events: &[String]) -> Input {
    let head = format!("\"distributedInfo\": {{\"backend\": \"nccl\", \"rank\": {rank}, \"world_size\": 2, \"pg_config\": []}}");
    input(&format!("r{rank}.json"), format!("{{\"schemaVersion\": 1, {head}, \"traceEvents\": [{}]}}", events.join(",\n")).as_bytes())
}

fn kernel(ts: u32, dur: u32, name: &str, args: &str) -> String {
    format!("{{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": {name:?}, \"ts\": {ts}, \"dur\": {dur}, \"args\": {{{args}}}}}")
}

/// What PyTorch says of a communication.
fn said(collective: &str, elements: u32, more: &str) -> String {
    format!(
        "\"Collective name\": {collective:?}, \"In msg nelems\": {elements}, \"Out msg nelems\": {elements}, \"Group size\": 2, \"dtype\": \"BFloat16\", \
         \"Process Group Name\": \"0\", \"Process Group Description\": \"default_pg\", \"Process Group Ranks\": \"[0, 1]\"{more}"
    )
}

const SEND_RECEIVE: &str = "ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)";

/// Rank 0 computes and sends, rank 1 receives, computes and sends back.
#[test]
fn sends_and_receives_of_profiles_meet() {
    let p2p = |ts, name: &str, more: &str| kernel(ts, 5, SEND_RECEIVE, &format!("\"stream\": 20, {}", said(name, 100, more)));
    let compute = |ts| kernel(ts, 10, "gemm", "\"stream\": 7");
    let sum = kernel(60, 5, "ncclDevKernel_AllReduce_Sum_bf16", &format!("\"stream\": 21, {}", said("allreduce", 10, "")));
    let first =
        [compute(0), p2p(10, "send", ", \"Dst Rank\": 1, \"Rank\": 1"), p2p(40, "recv", ", \"Src Rank\": 1, \"Rank\": 1"), sum.clone()];
    // Without the rank of the job the one of the group says who it is.
    let second = [p2p(10, "recv", ", \"Rank\": 0"), compute(20), p2p(40, "send", ", \"Dst Rank\": 0"), sum];
    let (found, summary) = taken(&[profile(0, &first), profile(1, &second)]);
    assert_eq!(summary.sends.map(|sends| (sends.in_all, sends.bytes)), Some((2, (200, 200))));
    assert_eq!(found.report.left_out, []);
    let node = &found.workload.programs[0].nodes[1];
    assert!(matches!(node.action, Action::Send(transfer) if transfer.peer == Peer::Rank(1)), "{node:?}");
    assert_eq!((node.after.clone(), node.stream.as_deref()), (vec![0], Some("nccl 20")));
    // One end alone, as where one profile begins later than the other: both are left out, with the collective kept.
    let (found, summary) = taken(&[profile(0, &first), profile(1, &second[1..])]);
    let left: Vec<(&str, u64, &str)> = found.report.left_out.iter().map(|one| (one.what.as_str(), one.count, one.first.as_str())).collect();
    assert_eq!(
        left,
        [("sends and receives of two ranks whose files do not have the same ones", 1, "r0.json: ncclDevKernel_SendRecv at 10 us")]
    );
    assert_eq!((summary.sends.map(|sends| sends.in_all), summary.collectives.len()), (Some(1), 1));
}

/// `batch_isend_irecv`: the host speaks of each, and one kernel does all.
#[test]
fn a_kernel_of_several_sends_and_receives_does_what_the_host_spoke_of() {
    let of = |rank: u32| {
        let other = 1 - rank;
        let host = |ts: u32, id: u32, args: &str| {
            format!(
                "{{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"record_param_comms\", \"ts\": {ts}, \"args\": {{\"External id\": {id}, {args}}}}}"
            )
        };
        let launch = |ts: u32, id: u32| {
            format!(
                "{{\"ph\": \"X\", \"cat\": \"cuda_runtime\", \"name\": \"cudaLaunchKernelExC\", \"ts\": {ts}, \"args\": {{\"correlation\": {id}}}}}"
            )
        };
        profile(
            rank,
            &[
                kernel(3, 7, "gemm", "\"stream\": 7"),
                host(5, 10, &said("send", 100, &format!(", \"Dst Rank\": {other}"))),
                host(6, 11, &said("recv", 100, &format!(", \"Src Rank\": {other}"))),
                launch(8, 1),
                host(15, 12, &said("send", 300, &format!(", \"Dst Rank\": {other}"))),
                host(16, 13, &said("recv", 300, &format!(", \"Src Rank\": {other}"))),
                launch(18, 2),
                kernel(12, 5, SEND_RECEIVE, "\"stream\": 20, \"correlation\": 1, \"External id\": 99"),
                kernel(22, 5, SEND_RECEIVE, "\"stream\": 20, \"correlation\": 2"),
                kernel(32, 5, SEND_RECEIVE, "\"stream\": 20"),
                kernel(42, 5, "ncclDevKernel_AllReduce_Sum_bf16", &format!("\"stream\": 21, {}", said("allreduce", 10, ""))),
            ],
        )
    };
    let (found, summary) = taken(&[of(0), of(1)]);
    assert_eq!(summary.sends.map(|sends| (sends.of_rank, sends.in_all, sends.bytes)), Some((2, 4, (200, 600))));
    // Those of one kernel do not wait for each other.
    let nodes: Vec<(&str, Option<&str>)> =
        found.workload.programs[0].nodes.iter().map(|node| (&*node.id, node.stream.as_deref())).collect();
    assert!(nodes.contains(&("send 0", None)) && nodes.contains(&("receive 0", None)), "{nodes:?}");
    let left: Vec<(&str, u64)> = found.report.left_out.iter().map(|one| (one.what.as_str(), one.count)).collect();
    assert!(left.contains(&("nccl kernels of sends and receives of which the host's events do not say which", 2)), "{left:?}");
}

#[test]
fn roots_and_uneven_shares_of_profiles_are_seen() {
    let sum = |ts, name: &str, more: &str| kernel(ts, 5, "ncclDevKernel_Any", &format!("\"stream\": 20, {}", said(name, 100, more)));
    let events = [sum(0, "_broadcast_oop", ", \"Rank\": 1"), sum(10, "all_to_allv", ", \"In split size\": \"[90, 10]\"")];
    let (found, _) = taken(&[profile(0, &events)]);
    let roots: Vec<u32> = found.workload.programs[0]
        .nodes
        .iter()
        .filter_map(|node| if let Action::Collective(one) = &node.action { Some(one.root) } else { None })
        .collect();
    assert_eq!(roots, [1, 0]);
    let expected =
        ["all-to-alls whose shares differ have equal ones of the same sum", "a rank has no file: expected to do what rank 0 does"];
    assert_eq!(found.report.assumed, expected);
    // Members of an all-to-all that bring different lengths, as experts do.
    let other = [sum(0, "_broadcast_oop", ", \"Rank\": 1"), sum(10, "all_to_allv", "").replace("nelems\": 100", "nelems\": 60")];
    let (found, summary) = taken(&[profile(0, &events), profile(1, &other)]);
    let row = summary.collectives.iter().find(|row| row.kind == CollectiveKind::AllToAll).expect("an all-to-all");
    assert_eq!((row.in_all, row.bytes), (1, (200, 200)));
    assert!(found.report.assumed.contains(&"all-to-alls of different lengths at their members have the longest at all of them".into()));
    let (found, _) = taken(&[profile(0, &[sum(0, "broadcast", ", \"Rank\": 7")])]);
    assert!(found.report.assumed[0].starts_with("broadcasts and reduces are from or to the first member"), "{:?}", found.report);
}

#[test]
fn heads_of_profiles_may_have_texts_and_kernels_other_names() {
    let events = [kernel(0, 5, "mscclKernel_Sum_half_Simple_LL", &format!("\"stream\": \"20\", {}", said("allreduce", 100, "")))];
    let plain = profile(0, &events);
    let text = String::from_utf8(plain.bytes.clone()).expect("a text");
    let (expected, _) = taken(&[plain]);
    let configs = ["\"[{\\\"pg_name\\\": \\\"0\\\", \\\"ranks\\\": [0, 1]}]\"", "{\"0\": {\"ranks\": [0, 1]}}", "null"];
    for config in configs {
        let text = text.replace("\"pg_config\": []", &format!("\"pg_config\": {config}")).replace("\"rank\": 0", "\"rank\": \"0\"");
        let (found, _) = taken(&[input("r0.json", text.as_bytes())]);
        assert_eq!(found.workload.to_toml(), expected.workload.to_toml(), "{config}");
        // The list of ranks is not needed where the configuration has it.
        if config != "null" {
            taken(&[input("r0.json", text.replace("\"[0, 1]\"", "\"[0, ...]\"").as_bytes())]);
        }
    }
    taken(&[input("r0.json", &[b"\xef\xbb\xbf", text.as_bytes()].concat())]);
}

#[test]
fn a_profile_without_anything_to_take_says_what_it_has() {
    let of = |args: String| {
        refused("r.json", std::str::from_utf8(&profile(0, &[kernel(4, 5, "ncclDevKernel_X(args)", &args)]).bytes).expect("a text"))
    };
    let head = "r.json: expected collectives of NCCL, with \"Collective name\" in the args of their kernels, in a trace of PyTorch 2.4 or later, of several GPUs; found 1 GPU events; ";
    assert_eq!(
        of(String::new()),
        format!("{head}1 nccl kernels without a \"Collective name\" in their args, first r.json: ncclDevKernel_X at 4 us")
    );
    let complex = said("allreduce", 8, "").replace("BFloat16", "ComplexFloat");
    assert_eq!(
        of(complex),
        format!("{head}1 communication of type \"ComplexFloat\", which is none of the known ones, first r.json: ncclDevKernel_X at 4 us")
    );
    let gloo = "{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"gloo:all_reduce\", \"ts\": 1, \"dur\": 4}".to_string();
    let error = refused("r.json", std::str::from_utf8(&profile(0, &[gloo]).bytes).expect("a text"));
    assert!(error.ends_with("found 0 GPU events; 1 operations of gloo, which processors do, first r.json"), "{error}");
}

/// Old versions, viewers and tools that pass traces on.
#[test]
fn profiles_may_be_lists_with_texts_as_times_and_other_words() {
    let sum = "{\"ph\": \"X\", \"cat\": \"Kernel\", \"name\": \"ncclDevKernel_AllReduce\", \"ts\": \"40.25\", \"dur\": \"5\", \"args\": {\"stream\": 20, \"Collective name\": \
               \"allreduce\", \"In msg nelems\": 250, \"Out msg nelems\": 250, \"Group size\": 2, \"dtype\": \"c10::BFloat16\", \"Process Group Name\": \"0\", \
               \"Process Group Ranks\": \"[0, 1]\"}}";
    let gemm = "{\"ph\": \"X\", \"cat\": \"Kernel\", \"name\": \"sgemm\", \"ts\": 0.5, \"dur\": \"30\", \"args\": {\"stream\": 7}}";
    for text in [format!("[{gemm}, {sum}]"), format!("{{\"traceEvents\": [{gemm}, {sum}]}}")] {
        let (found, summary) = taken(&[input("t.json", text.as_bytes())]);
        assert_eq!((summary.ranks, summary.collectives[0].bytes), (2, (500, 500)), "{text}");
        assert_eq!(found.report.left_out_count(), 0, "{:?}", found.report);
    }
    let wrong = refused("t.json", &format!("[{}]", gemm.replace("0.5", "\"soon\"")));
    assert!(wrong.starts_with("t.json:1: \"soon\": expected a number of microseconds"), "{wrong}");
    let gloo = "{\"traceEvents\": [{\"ph\": \"X\", \"cat\": \"user_annotation\", \"name\": \"gloo:all_reduce\", \"ts\": 1, \"dur\": 1}]}";
    assert_eq!(refused("t.json", gloo).matches("operations of gloo").count(), 1);
}

#[test]
fn aicb_is_read_with_other_line_ends_and_points() {
    let text = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 all_gpus: 4\r\n1\r\nnorm -1 100.0 ALLREDUCE 64 200 NONE 0 300 NONE 0 5\r\n";
    let (_, summary) = taken(&[input("w.txt", text.as_bytes())]);
    assert_eq!(summary.span.map(|span| span.as_ps()), Some(605_000));
    assert_eq!(refused("w.txt", &text.replace("100.0", "100.5")), "w.txt:3: \"100.5\": expected the forward time in ns, a whole number");
    let policy =
        refused("w.txt", &text.replace("HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 1 pp: 1 all_gpus: 4", "DATA"));
    assert_eq!(policy, "w.txt:1: \"DATA\": expected HYBRID_TRANSFORMER_FWD_IN_BCKWD or HYBRID_TRANSFORMER");
    let csv = "\u{feff}comm_type,comm_group,comm_group_size,msg_size,stage\r\nall_reduce,tp_group,8,1024.0,forward\r\n";
    let (_, summary) = taken(&[input("w.csv", csv.as_bytes())]);
    assert_eq!((summary.ranks, summary.collectives[0].bytes), (8, (1024, 1024)));
}

#[test]
fn tables_of_cables_are_read_as_spreadsheets_and_people_write_them() {
    let expected = network("c.csv", "from,to,rate,latency\nh0,s,100Gb/s,300ns\nh1,s,100Gb/s,300ns\n").expect("a network").network;
    for text in [
        "\u{feff}From,To,Rate,Latency\r\nh0,s,100Gbps,300ns\r\nh1,s,100G,0.3us\r\n",
        "from;to;rate;latency\nh0;s;100Gbit/s;300ns\nh1;s;100 Gb/s;300ns\n",
        "source\ttarget\tspeed\tdelay\nh0\ts\t100Gb/s\t300ns\nh1\ts\t100Gb/s\t300ns\n",
        "# a comment\n\nDevice A,Device B,Bandwidth (Gbps),Delay (us)\nh0,s,100,0.3\nh1,s,100Gb/s,300 ns\n",
        "a,b,link_speed_gbps,latency_ns\nh0,s,100,300\nh1,s,100,300\n",
        "Local Device,Remote-Device,BW,Link Delay,from type,to role\nh0,s,100GbE,300ns,gpu,ToR\nh1,s,100GE,300ns,server,leaf\n",
        "\"src\",\"dst\",\"bandwidth\",\"latency\",src_kind,dst_kind\n\"h0\",\"s\",100Gb/s,300ns,Host,Switch\nh1,s,100Gb/s,300ns,server,switch\n",
    ] {
        let found = network("c.csv", text).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(found.network, expected, "{text}");
        assert_eq!(found.report.left_out, []);
    }
    assert_eq!(network("c.csv", "from,to\nh0,s\nh1\n").unwrap_err(), "c.csv:3: to = \"\": expected the name of a host or a switch");
    assert_eq!(network("c.csv", "from,to,source\nh0,s,h1\n").unwrap_err(), "c.csv:1: column \"source\": expected one column of each kind");
    assert_eq!(network("c.csv", "from,to,to_kind\nh0,s,tap\n").unwrap_err(), "c.csv:2: to_kind = \"tap\": expected host or switch");
    let found = network("c.csv", "from,to\nh0,s,9\nh1,s\n").expect("a network");
    assert_eq!(
        (found.report.left_out[0].what.as_str(), found.report.left_out[0].first.as_str()),
        ("values beyond the last column", "c.csv:2")
    );
}

#[test]
fn graphs_have_natural_names() {
    let of = |node: &str, link: &str| {
        network(
            "g.json",
            &format!(
                "{{\"graph\": {{}}, \"nodes\": [{{\"id\": [0, 0], {node}: \"Host\"}}, {{\"id\": 1, {node}: \"host\"}}, {{\"id\": \"s\", {node}: \"switch\"}}], \
                 \"edges\": [{{\"source\": [0, 0], \"target\": \"s\", {link}: \"100Gb/s\"}}, {{\"source\": 1, \"target\": \"s\", {link}: \"100G\"}}]}}"
            ),
        )
    };
    let expected = of("\"kind\"", "\"rate\"").expect("a network");
    assert_eq!((expected.network.nodes[0].name.as_str(), expected.network.cables[0].bits_per_second), ("0_0", Some(100_000_000_000)));
    for (node, link) in [("\"type\"", "\"capacity\""), ("\"role\"", "\"bandwidth\""), ("\"kind\"", "\"speed\"")] {
        let found = of(node, link).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!((&found.network, found.report.left_out.len()), (&expected.network, 0), "{node} {link}");
    }
    // A unit in the name, numbers with an exponent, and links by the place of their ends, as networkx 1 wrote them.
    let by_links = |links: &str| {
        let nodes = "[{\"id\": \"a\", \"role\": \"server\"}, {\"id\": \"b\", \"role\": \"server\"}, {\"id\": \"s\", \"role\": \"leaf\"}]";
        network("g.json", &format!("{{\"multigraph\": true, \"nodes\": {nodes}, \"links\": [{links}]}}"))
    };
    let names = by_links(
        "{\"source\": \"a\", \"target\": \"s\", \"rate\": \"100Gb/s\"}, {\"source\": \"b\", \"target\": \"s\", \"rate\": \"100Gb/s\"}",
    )
    .expect("a network");
    for links in [
        "{\"source\": \"a\", \"target\": \"s\", \"bandwidth_gbps\": 100, \"key\": 0}, {\"source\": \"b\", \"target\": \"s\", \"capacity\": 100e9, \"key\": 0}",
        "{\"source\": 0, \"target\": 2, \"speed\": \"100 Gbps\"}, {\"source\": 1, \"target\": 2, \"Bandwidth (Gb/s)\": 100.0}",
        "{\"from\": \"a\", \"to\": \"s\", \"bw\": 100000000000}, {\"src\": \"b\", \"dst\": \"s\", \"link_rate\": \"100gbps\"}",
    ] {
        let found = by_links(links).unwrap_or_else(|error| panic!("{links}: {error}"));
        assert_eq!((&found.network, found.report.left_out.len()), (&names.network, 0), "{links}");
    }
    // What has the name itself counts, and the other word is counted as left out.
    let both = of("\"kind\"", "\"rate\": \"100Gb/s\", \"speed\"").expect("a network");
    assert_eq!((&both.network, both.report.left_out_count()), (&expected.network, 2));
    assert_eq!(of("\"kind\"", "\"rate\": 5, \"x\"").unwrap_err().split(": expected").next(), Some("g.json: links[0]: rate = 5"));
}

#[test]
fn containerlabs_long_links_groups_and_comments_are_read() {
    let text = "name: lab\ntopology: # all of it\n  groups:\n    hosts: { kind: linux }\n  nodes:\n    leaf: { kind: ceos }\n    a: { group: hosts }\n    b:\n      kind: linux\n  links:\n\
        \x20   - endpoints: [\"leaf:e1\", \"a:e1\"]\n    - type: veth\n      endpoints:\n        - node: leaf\n          interface: e2\n        - node: b\n          interface: e1\n\
        \x20   - type: host\n      endpoint: { node: a, interface: e5 }\n";
    let found = network("lab.yml", text).unwrap_or_else(|error| panic!("{error}"));
    let hosts: Vec<&str> = found.network.nodes.iter().filter(|node| node.is_host).map(|node| node.name.as_str()).collect();
    assert_eq!((hosts, found.network.cables.len()), (vec!["a", "b"], 2));
    assert_eq!((found.report.left_out[0].what.as_str(), found.report.left_out[0].count), ("links without two endpoints", 1));
    let error = network("lab.yml", &text.replace("node: b", "nodes: b")).unwrap_err();
    assert_eq!(error, "lab.yml:16: endpoints: expected \"node:interface\", or node: and interface:");
}

/// Routers in software are of kind linux, too.
#[test]
fn in_a_lab_of_linux_nodes_alone_those_with_one_cable_are_hosts() {
    let text = "topology:\n  defaults:\n    kind: linux\n  nodes:\n    router:\n      image: frrouting/frr\n    a:\n    b: {}\n  links:\n\
        \x20   - endpoints: [\"router:eth1\", \"a:eth1\"]\n    - endpoints: [router:eth2, b:eth1]\n";
    let found = network("lab.clab.yml", text).unwrap_or_else(|error| panic!("{error}"));
    let hosts: Vec<&str> = found.network.nodes.iter().filter(|node| node.is_host).map(|node| node.name.as_str()).collect();
    assert_eq!((hosts, found.network.cables.len()), (vec!["a", "b"], 2));
    assert!(found.report.assumed.iter().any(|one| one.starts_with("all nodes are of kind linux")), "{:?}", found.report);
}

/// HPCC's own files say behind their links what their lines are.
#[test]
fn text_behind_the_links_of_hpcc_is_left_out() {
    let text = "# of a paper\n3 1 2\n2\n0 2 100Gbps 1us 0.000000\n1 2 100Gbps 1us 0.000000\n\nFirst line: total node #, switch node #, link #\nsrc0 dst0 rate delay error_rate\n";
    let found = network("fat.txt", text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((found.network.nodes.len(), found.network.cables.len()), (3, 2));
    let left = &found.report.left_out[0];
    assert_eq!((left.what.as_str(), left.count, left.first.as_str()), ("lines of text behind the last link", 2, "fat.txt:7"));
    let more = network("fat.txt", &text.replace("\n\nFirst", "\n0 1 100Gbps 1us 0\nFirst")).unwrap_err();
    assert!(more.ends_with("3 links: expected the 2 that the first line says"), "{more}");
}

#[test]
fn goal_has_comments_of_three_kinds() {
    let text = "# made by hand\n/* two\nlines */ num_ranks 2 // ranks\nrank 0 { # the first\nl1: calc 100 cpu 1\nl2: send 10b to 1 tag 5 cpu 1 nic 1\nl2 requires l1 }\nrank 1 {\nl1: recv 10b from 0 tag 5\n}\n";
    let (found, summary) = taken(&[input("a.goal", text.as_bytes())]);
    assert_eq!((summary.ranks, summary.sends.map(|sends| sends.in_all)), (2, Some(1)));
    let left: Vec<_> = found.report.left_out.iter().map(|one| (one.what.as_str(), one.first.as_str())).collect();
    assert_eq!(left, [("numbers of network cards (nic)", "a.goal:6"), ("the cpu of a send or receive", "a.goal:6")]);
}

#[test]
fn htsim_is_read_with_tabs_and_bundles() {
    let text = "nodes\t8\r\ntiers\t2\r\npodsize\t8\r\ntier 0\r\ndownlink_speed_gbps 400\r\nradix_down 4\r\nradix_up 2\r\nbundle 1\r\ndownlink_latency_ns 100\r\n\
                tier 1\r\ndownlink_speed_gbps 400\r\nradix_down 2\r\ndownlink_latency_ns 100\r\n";
    let found = network("a.topo", text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!((found.network.nodes.len(), found.network.cables.len()), (8 + 2 + 2, 8 + 4));
    assert_eq!(found.report.left_out[0].first, "a.topo:8");
}

#[test]
fn what_has_a_gpu_is_one_in_nccls_files() {
    let text = "<system version=\"1\"><cpu numaid=\"0\">\n<pci busid=\"0000:01:00.0\" class=\"0x120000\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"0\" gcn=\"gfx90a\" \
                rank=\"0\"/></pci>\n<pci busid=\"0000:02:00.0\" class=\"0x120000\" link_speed=\"16.0 GT/s PCIe\" link_width=\"16\"><gpu dev=\"1\" rank=\"1\"/></pci></cpu></system>";
    let found = network("t.xml", text).unwrap_or_else(|error| panic!("{error}"));
    let hosts: Vec<&str> = found.network.nodes.iter().filter(|node| node.is_host).map(|node| node.name.as_str()).collect();
    assert_eq!((hosts, found.report.left_out.len()), (vec!["gpu0", "gpu1"], 0));
}

/// As collectors forward them: with a point, and over several lines.
#[test]
fn the_inspectors_numbers_may_have_a_point() {
    let of = |rank: u32, time: &str| {
        let text = format!(
            "{{\n\"header\": {{\"id\": \"0xa\", \"rank\": {rank}, \"n_ranks\": 2, \"nnodes\": 2}},\n\"metadata\": {{\"inspector_output_format_version\": \"v4.0\", \"git_rev\": \"\", \
             \"hostname\": \"h{rank}\", \"pid\": 48}},\n\"coll_perf\": {{\"coll\": \"AllReduce\", \"coll_sn\": 7, \"coll_msg_size_bytes\": 2360832, \"coll_exec_time_us\": {time}, \
             \"coll_timing_source\": \"kernel_gpu\"}}\n}}\n"
        );
        input(&format!("h{rank}.log"), text.as_bytes())
    };
    let (found, summary) = taken(&[of(0, "5663.0"), of(1, "5663")]);
    assert_eq!((summary.ranks, summary.hosts, summary.programs), (2, 2, 1));
    assert_eq!(found.workload.programs[0].nodes[0].measured.map(|time| time.as_ps()), Some(5_663_000_000));
    taken(&[of(0, "null"), of(1, "-1.5")]);
    taken(&[of(0, "\"5663\""), of(1, "\"5663.4\"")]);
    let error = import(Format::Inspector, &[of(0, "\"x\"")], &Options::default()).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("h0.log:4: "), "{error}");
}
