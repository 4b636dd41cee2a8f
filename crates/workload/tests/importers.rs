//! Importers: what comes out of small files of every format, what is left out and where, and that damaged ones are errors.
#![allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`")]

mod common;

use common::{attribute, file, number, part, varint};
use fanin_core::hash::mix;
use fanin_workload::import::{Format, Imported, Input, Options, import};
use fanin_workload::{Action, CollectiveKind, Element, Summary, Workload, validate};

/// Two kernels, a sum that waits for the first, and a third kernel that waits for the sum.
const KINETO: &str = r#"{
 "schemaVersion": 1,
 "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 4, "pg_config": [{"pg_name": "0", "ranks": [0, 1, 2, 3]}]},
 "traceEvents": [
  {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#3", "ts": 80.0, "dur": 90.0},
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "ts": 85.0, "dur": 6.0, "args": {"External id": 1}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 90.0, "dur": 1.0, "args": {"External id": 1, "correlation": 1}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamWaitEvent", "ts": 104.0, "dur": 1.0, "args": {"External id": 5, "correlation": 9}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 105.0, "dur": 1.0, "args": {"External id": 5, "correlation": 2}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 106.0, "dur": 1.0, "args": {"External id": 6, "correlation": 3}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaStreamWaitEvent", "ts": 115.0, "dur": 1.0, "args": {"External id": 7, "correlation": 10}},
  {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 116.0, "dur": 1.0, "args": {"External id": 8, "correlation": 4}},
  {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 100.0, "dur": 10.0, "args": {"stream": 7, "correlation": 1}},
  {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 111.0, "dur": 9.0, "args": {"stream": 7, "correlation": 3}},
  {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "ts": 112.0, "dur": 20.0,
   "args": {"External id": 5, "stream": 20, "correlation": 2, "Collective name": "allreduce", "In msg nelems": 1024, "Out msg nelems": 1024,
   "Group size": 2, "dtype": "BFloat16", "Process Group Name": "7", "Process Group Description": "tp", "Process Group Ranks": "[0, 1]"}},
  {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_SendRecv", "ts": 133.0, "dur": 1.0,
   "args": {"stream": 20, "Collective name": "gather", "In msg nelems": 1, "Out msg nelems": 1, "dtype": "Float", "Process Group Name": "0"}},
  {"ph": "X", "cat": "kernel", "name": "ncclDevKernel_Generic", "ts": 134.0, "dur": 1.0, "args": {"stream": 20}},
  {"ph": "X", "cat": "kernel", "name": "step", "ts": 140.0, "dur": 5.0, "args": {"stream": 7, "correlation": 4}}
 ]}
"#;

const GOAL: &str = "/* two ranks */ num_ranks 3\n\nrank 0 {\nl1: calc 100 cpu 1\nl2: send 8b to 1 tag 5 cpu 0 nic 0\nl2 requires l1\n// and nothing \
else\n}\nrank 1 {\nl1: recv 8b from 0 tag 5\nl2: calc 7\nl2 requires l1\nl3: calc 9\nl3 irequires l2\n}\n";

const AICB: &str = "HYBRID_TRANSFORMER_FWD_IN_BCKWD model_parallel_NPU_group: 2 ep: 2 pp: 1 vpp: 8 ga: 1 all_gpus: 8 checkpoints: 0\n2\n\
    norm -1 100 ALLREDUCE 64 200 ALLGATHER 32 300 REDUCESCATTER_DP_EP 16 5\nmoe -1 10 ALLTOALL_EP 48 20 NONE 0 30 GATHER 8 0\n";

const CSV: &str = "[rank0 ~ rank15]\ncomm_type,comm_group,comm_group_size,msg_size,stage,dst,src\n\
    CommType.all_reduce,CommGroup.dp_group,8,32,init.setup,None,None\nCommType.epoch_end,None,None,0,,None,None\n\
    CommType.all_gather,CommGroup.tp_group,2,64,forward,None,None\nCommType.isend,CommGroup.pp_group,2,64,forward,None,None\n\
    CommType.all_reduce,CommGroup.tp_group,2,0,step,None,None\nCommType.epoch_end,None,None,0,,None,None\n";

/// What a process of the Inspector writes: sums of all four, then all-gathers of pairs, with times.
fn inspector(rank: u64, verbose: bool) -> String {
    let line = |id: &str, rank: u64, size: u64, coll: &str, sn: u64, bytes: u64, start: u64, stop: u64| {
        let times = if verbose {
            format!(", \"event_trace_ts\": {{\"coll_start_ts\": {start}, \"coll_stop_ts\": {stop}, \"kernel_events\": []}}")
        } else {
            String::new()
        };
        let pid = 100 + (if id == "0xa" { rank } else { rank + 2 * (u64::from(id == "0xc")) });
        format!(
            "{{\"header\": {{\"id\": \"{id}\", \"comm_name\": \"unknown\", \"rank\": {rank}, \"n_ranks\": {size}, \"nnodes\": 1}}, \"metadata\": \
             {{\"inspector_output_format_version\": \"v4.2\", \"dump_timestamp_us\": 9, \"hostname\": \"h\", \"pid\": {pid}}}, \"coll_perf\": {{\"coll\": \"{coll}\", \
             \"coll_sn\": {sn}, \"coll_msg_size_bytes\": {bytes}, \"coll_exec_time_us\": {}, \"coll_algobw_gbs\": 1.5{times}}}}}\n",
            stop - start
        )
    };
    let pair = if rank < 2 { "0xb" } else { "0xc" };
    [
        line("0xa", rank, 4, "AllReduce", 0, 1024, 100, 110),
        line(pair, rank % 2, 2, "AllGather", 0, 64, 105, 130),
        line("0xa", rank, 4, "AllReduce", 1, 2048, 150, 170),
    ]
    .concat()
}

const MSCCL: &str = r#"<algo name="pair" proto="LL128" nchannels="1" nchunksperloop="2" ngpus="2" coll="allreduce" inplace="1">
  <gpu id="0" i_chunks="2" o_chunks="0" s_chunks="0">
    <tb id="0" send="1" recv="1" chan="0">
      <step s="0" type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
      <step s="1" type="rrc" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="1" depid="-1" deps="-1" hasdep="1"/>
    </tb>
    <tb id="1" send="-1" recv="-1" chan="0">
      <step s="0" type="nop" srcbuf="i" srcoff="1" dstbuf="i" dstoff="1" cnt="0" depid="0" deps="1" hasdep="0"/>
    </tb>
  </gpu>
  <gpu id="1" i_chunks="2" o_chunks="0" s_chunks="0">
    <tb id="0" send="0" recv="0" chan="0">
      <step s="0" type="rcs" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" depid="-1" deps="-1" hasdep="0"/>
    </tb>
  </gpu>
</algo>
"#;

/// A trace of Chakra: a computation, then a collective or a transfer.
fn chakra(kind: u64, attributes: &[Vec<u8>]) -> Vec<u8> {
    let compute = [number(1, 7), part(2, b"multiply"), number(3, 4), number(7, 12)].concat();
    let memory = [number(1, 9), part(2, b"load"), number(3, 2), number(5, 7)].concat();
    let sent = [number(1, 8), part(2, b"exchange"), number(3, kind), part(5, &varint(9)), attributes.concat()].concat();
    file(&[part(1, b"0.0.4"), sent, memory, compute])
}

fn input(name: &str, bytes: &[u8]) -> Input {
    Input::new(name, bytes.to_vec()).unwrap_or_else(|error| panic!("{error}"))
}

fn taken(inputs: &[Input], format: Format) -> (Imported, Summary) {
    assert_eq!(Format::of(&inputs[0]), Some(format));
    let found = import(format, inputs, &Options::default()).unwrap_or_else(|error| panic!("{error}"));
    let text = found.workload.to_toml();
    let again = Workload::from_toml("w.toml", &text).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(again.to_toml(), text);
    let checked = validate(&again, "w.toml").unwrap_or_else(|error| panic!("{error}\n{text}"));
    let summary = Summary::new(&again, &checked);
    (found, summary)
}

fn left_out(found: &Imported) -> Vec<(String, u64, String)> {
    found.report.left_out.iter().map(|one| (one.what.clone(), one.count, one.first.clone())).collect()
}

#[test]
fn a_profile_is_cut_where_sums_wait_and_are_waited_for() {
    let (found, summary) = taken(&[input("r0.json", KINETO.as_bytes())], Format::Kineto);
    let expected = r#"[[programs]]
name = "rank 0"
ranks = "0-3"
nodes = [
  { id = "compute 0", compute = "10us" },
  { id = "compute 1", compute = "10us" },
  { id = "all-reduce 0", collective = "all-reduce", group = "tp", bytes = "2KiB", element = "bf16", stream = "nccl 20", after = ["compute 0"], measured = "20us" },
  { id = "compute 2", compute = "13us", after = ["all-reduce 0"] },
]
"#;
    assert!(found.workload.to_toml().ends_with(expected), "{}", found.workload.to_toml());
    assert_eq!((summary.groups[0].instances, summary.span.map(|span| span.as_ps())), (2, Some(33_000_000)));
    let expected = [
        ("events that are no work of the GPU, of which only launches and waits count".to_string(), 7, "r0.json".to_string()),
        ("collectives named \"gather\"".into(), 1, "r0.json: ncclDevKernel_SendRecv at 133 us".into()),
        ("nccl kernels without a \"Collective name\" in their args".into(), 1, "r0.json: ncclDevKernel_Generic at 134 us".into()),
    ];
    assert_eq!(left_out(&found), expected);
    assert_eq!(found.report.assumed.len(), 2, "{:?}", found.report.assumed);
}

/// PyTorch 2.3 has what it says of a collective at the host's event, and the group as its first rank and a distance.
#[test]
fn a_profile_whose_kernels_say_nothing_is_read_by_the_events_of_the_host() {
    let at = KINETO.find("\"Collective name\": \"allreduce\"").expect("the sum");
    let end = at + KINETO[at..].find('}').expect("its end");
    let said = KINETO[at..end].replace(
        "\"Process Group Ranks\": \"[0, 1]\"",
        "\"Process Group Ranks\": \"[0, 1, ...]\", \"Global rank start\": 1, \"Global rank stride\": 2",
    );
    let event = format!(
        "  {{\"ph\": \"X\", \"cat\": \"cpu_op\", \"name\": \"record_param_comms\", \"ts\": 104.0, \"args\": {{\"External id\": 5, {said}}}}},\n"
    );
    let text =
        format!("{}\"grid\": 1{}", &KINETO[..at], &KINETO[end..]).replace("\"traceEvents\": [\n", &format!("\"traceEvents\": [\n{event}"));
    let (found, _) = taken(&[input("r0.json", text.as_bytes())], Format::Kineto);
    assert!(
        found.report.left_out.iter().any(|one| one.what == "collectives of groups that the rank itself is not in"),
        "{:?}",
        found.report
    );
    let (found, _) = taken(&[input("r0.json", text.replace("rank start\": 1", "rank start\": 0").as_bytes())], Format::Kineto);
    assert!(found.workload.to_toml().contains("size = 2\nstride = 2\n"), "{}", found.workload.to_toml());
}

#[test]
fn without_waits_what_begins_after_a_pause_with_the_end_of_a_sum_waits_for_it() {
    let text: String = KINETO.lines().filter(|line| !line.contains("WaitEvent")).map(|line| format!("{line}\n")).collect();
    let (found, _) = taken(&[input("r0.json", text.as_bytes())], Format::Kineto);
    assert!(found.workload.to_toml().contains("{ id = \"compute 2\", compute = \"13us\", after = [\"all-reduce 0\"] }"));
    // Other files must agree, and be of other ranks.
    let one = input("r0.json", KINETO.as_bytes());
    let error = import(Format::Kineto, &[one.clone(), one.clone()], &Options::default()).map(drop).unwrap_err();
    assert_eq!(error.to_string(), "r0.json: rank 0: another file has it, too");
    let other = KINETO.replace("\"rank\": 0", "\"rank\": 1").replace("\"In msg nelems\": 1024", "\"In msg nelems\": 512");
    let both = import(Format::Kineto, &[one, input("r1.json", other.as_bytes())], &Options::default()).map(|found| found.workload);
    let error = both.and_then(|workload| validate(&workload, "w")).map(drop).unwrap_err().to_string();
    assert!(
        error.starts_with("w: members disagree about collective 0 of their group: rank 0 has all-reduce of 2048 bytes of bf16"),
        "{error}"
    );
}

#[test]
fn goal_is_taken_with_its_dependencies() {
    let (found, summary) = taken(&[input("t.goal", GOAL.as_bytes())], Format::Goal);
    assert_eq!((summary.ranks, summary.sends.map(|sends| (sends.in_all, sends.bytes))), (3, Some((1, (8, 8)))));
    // Rank 0 computes 100 ns, then rank 1 its 7 and 9, one after the other on one cpu.
    assert_eq!(summary.span.map(|span| span.as_ps()), Some(116_000));
    let last = &found.workload.programs[1].nodes[2];
    assert_eq!((&*last.id, last.after.clone(), last.stream.as_deref()), ("l3", vec![0], Some("cpu 0")));
    let refused = |from: &str, to: &str| {
        let text = GOAL.replacen(from, to, 1);
        let error = import(Format::Goal, &[input("t.goal", text.as_bytes())], &Options::default()).map(|found| found.workload);
        error.and_then(|workload| validate(&workload, "t.goal")).map(drop).unwrap_err().to_string()
    };
    assert_eq!(refused("from 0", "from -1"), "t.goal:10: recv from -1: expected a rank below 3; receiving from any is not supported");
    assert_eq!(refused("l2 requires l1", "l2 requires l9"), "t.goal:6: \"l9\": expected a label of the same rank");
    assert_eq!(refused("8b to", "8 to"), "t.goal:5: \"to\": expected \"b\"");
    assert_eq!(refused("rank 1 {", "rank 0 {"), "t.goal:9: rank 0: expected each rank below 3 once");
    assert_eq!(
        refused("tag 5\n", "tag 6\n"),
        "t.goal: rank 0, node \"l2\" of program \"rank 0\": sends with tag 5 what rank 1 does not receive"
    );
    assert_eq!(refused("l3: calc", "l2: calc"), "t.goal:13: label \"l2\": expected each label of a rank once");
}

/// What begins with another operation waits for all that this one waits for, whichever line says it first.
#[test]
fn what_begins_with_others_waits_for_what_they_wait_for() {
    let lines = ["d irequires c\n", "c irequires b\n", "b requires a\n", "c requires e\n"];
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [1, 3, 0, 2]] {
        let text: String = order.iter().map(|line| lines[*line]).collect();
        let text =
            format!("num_ranks 1\nrank 0 {{\na: calc 1\nb: calc 2 cpu 1\nc: calc 3 cpu 2\nd: calc 4 cpu 3\ne: calc 5 cpu 4\n{text}}}\n");
        let (found, _) = taken(&[input("t.goal", text.as_bytes())], Format::Goal);
        let after: Vec<&[u32]> = found.workload.programs[0].nodes.iter().map(|node| node.after.as_slice()).collect();
        let expected: [&[u32]; 5] = [&[], &[0], &[0, 4], &[0, 4], &[]];
        assert_eq!(after, expected, "{order:?}");
    }
    let refused = |lines: &str| {
        let text = format!("num_ranks 1\nrank 0 {{\na: calc 1\nb: calc 2\n{lines}}}\n");
        import(Format::Goal, &[input("t.goal", text.as_bytes())], &Options::default()).map(drop).unwrap_err().to_string()
    };
    assert_eq!(refused("a irequires b\nb irequires a\n"), "t.goal:5: \"a\" irequires what begins with itself, by way of others");
    // Requirements that grow with the square of the operations.
    let count = 6_000;
    let many: String = (0..count).map(|n| format!("r{n}: calc 1\nf{n}: calc 1\nf{n} requires r{n}\n")).collect();
    let chain: String = (1..count).map(|n| format!("f{n} irequires f{}\n", n - 1)).collect();
    assert!(refused(&(many + &chain)).ends_with("expected at most 16777216 requirements in all"));
}

#[test]
fn the_cpu_of_a_send_is_said_to_be_left_out() {
    let text = GOAL.replace("tag 5 cpu 0 nic 0", "tag 5 cpu 2 nic 0");
    let (found, _) = taken(&[input("t.goal", text.as_bytes())], Format::Goal);
    assert_eq!(left_out(&found), [("the cpu of a send or receive".to_string(), 1, "t.goal:5".to_string())]);
}

#[test]
fn layers_of_aicb_run_forward_then_backward() {
    let (found, summary) = taken(&[input("w.txt", AICB.as_bytes())], Format::AicbText);
    let names: Vec<&str> = found.workload.programs[0].nodes.iter().map(|node| &*node.id).collect();
    let expected = [
        "forward norm",
        "forward norm allreduce",
        "forward moe",
        "forward moe alltoall_ep",
        "backward moe",
        "weights moe",
        "backward norm",
        "backward norm allgather",
        "weights norm",
        "weights norm reducescatter_dp_ep",
        "update norm",
    ];
    assert_eq!(names, expected);
    assert_eq!(left_out(&found), [("communication \"GATHER\"".to_string(), 1, "w.txt:4".to_string())]);
    let groups: Vec<(&str, u32, u32)> = summary.groups.iter().map(|row| (row.name.as_str(), row.instances, row.members.0)).collect();
    assert_eq!(groups, [("tp", 4, 2), ("ep", 4, 2), ("dp_ep", 4, 2)]);
    assert_eq!(summary.span.map(|span| span.as_ps()), Some((100 + 10 + 20 + 30 + 200 + 300 + 5) * 1_000));
    let refused = |from: &str, to: &str| {
        let text = AICB.replacen(from, to, 1);
        import(Format::AicbText, &[input("w.txt", text.as_bytes())], &Options::default()).map(drop).unwrap_err().to_string()
    };
    assert_eq!(refused("\n2\n", "\n3\n"), "w.txt: 2 layers: expected the 3 that the second line says");
    assert_eq!(refused(" 16 5", " 16"), "w.txt:3: 11 words: expected the 12 of a layer");
    assert_eq!(refused("ALLREDUCE 64", "ALLREDUCE x"), "w.txt:3: \"x\": expected bytes, a whole number");
    assert_eq!(refused("group: 2", "group: 3"), "w.txt:1: 8 ranks, tensor 3, expert 2, pipeline 1: expected groups that divide the ranks");
}

#[test]
fn calls_of_aicb_come_one_after_the_other() {
    let (found, summary) = taken(&[input("w.csv", CSV.as_bytes())], Format::AicbCsv);
    assert_eq!((summary.ranks, summary.iterations, found.workload.programs[0].nodes.len()), (16, 1, 2));
    let expected = [("calls of \"isend\"".to_string(), 1, "w.csv:6".to_string()), ("calls of 0 bytes".into(), 1, "w.csv:7".into())];
    assert_eq!(left_out(&found), expected);
    assert_eq!(found.workload.programs[0].nodes[1].after, [0]);
}

#[test]
fn chakra_is_read_in_the_order_of_its_dependencies() {
    let sum = chakra(7, &[attribute("comm_type", 9, 0), attribute("comm_size", 9, 1 << 20)]);
    let files: Vec<Input> = (0..4).map(|rank| input(&format!("sum.{rank}.et"), &sum)).collect();
    let (found, summary) = taken(&files, Format::Chakra);
    assert_eq!((summary.ranks, summary.programs, summary.nodes), (4, 1, 8));
    assert_eq!(summary.span.map(|span| span.as_ps()), Some(12_000_000));
    let row = &summary.collectives[0];
    assert_eq!((row.kind, row.of_rank, row.in_all, row.bytes_of_rank), (CollectiveKind::AllReduce, 1, 1, 1 << 20));
    // The load between the computation and the sum is left out, and the sum still waits for the computation.
    assert_eq!(left_out(&found), [("nodes of type MEM_LOAD".to_string(), 4, "sum.0.et: node 9 \"load\"".to_string())]);
    assert_eq!(found.workload.programs[0].nodes[1].after, [0]);

    let pairs = input("groups.json", br#"{"2": [0, 1], "3": [2, 3]}"#);
    let with = |group: &str| {
        chakra(
            7,
            &[
                attribute("comm_type", 9, 2),
                attribute("comm_size", 13, 64),
                part(10, &[part(1, b"pg_name"), part(29, group.as_bytes())].concat()),
            ],
        )
    };
    let mut files: Vec<Input> = (0..4).map(|rank| input(&format!("g.{rank}.et"), &with(if rank < 2 { "2" } else { "3" }))).collect();
    files.push(pairs);
    let (found, summary) = taken(&files, Format::Chakra);
    assert_eq!(summary.collectives.iter().map(|row| (row.in_all, row.bytes.0)).collect::<Vec<_>>(), [(1, 128), (1, 128)]);
    assert_eq!(found.workload.programs.len(), 2);
}

/// As converters of PyTorch's traces write process groups: Python's text of a list with a text of JSON, and no ranks of the group of all.
#[test]
fn process_groups_within_chakra_are_read() {
    let with = |groups: &str, group: &str| {
        let inputs = part(8, &part(1, groups.as_bytes()));
        let init = [number(1, 1), part(2, b"## process_group:init ##"), number(3, 1), inputs].concat();
        let name = part(10, &[part(1, b"pg_name"), part(29, group.as_bytes())].concat());
        let mut file = chakra(7, &[attribute("comm_type", 9, 0), attribute("comm_size", 9, 64), name]);
        file.extend([varint(init.len() as u64), init].concat());
        file
    };
    let python = r#"['[{"pg_name": "0", "pg_desc": "it\'s \\"all\\"", "backend_id": 1, "ranks": [], "group_size": 4}, {"pg_name": "1", "ranks": [0, 1, 2, 3]}]']"#;
    let double = r#"["[{\"pg_name\": \"0\", \"ranks\": [], \"group_size\": 4}, {\"pg_name\": \"1\", \"ranks\": [0, 1, 2, 3]}]"]"#;
    for (groups, group) in [(python, "0"), (python, "1"), (double, "0"), (double, "1")] {
        let (found, summary) = taken(&[input("p.0.et", &with(groups, group))], Format::Chakra);
        assert_eq!(summary.ranks, 4, "{groups}");
        let rows: Vec<_> = summary.collectives.iter().map(|row| (row.kind, row.group.as_str(), row.in_all)).collect();
        assert_eq!(rows, [(CollectiveKind::AllReduce, group, 1)]);
        assert!(left_out(&found).iter().all(|(what, ..)| !what.contains("process group")), "{:?}", found.report);
    }
    for (groups, what) in [
        ("['[{\"pg_name\": \"0\"", "process groups that are no JSON"),
        (r#"[{"pg_name": "0", "ranks": [], "group_size": 9999999}]"#, "process groups without a list of ranks or a size"),
    ] {
        let found =
            import(Format::Chakra, &[input("p.0.et", &with(groups, "0"))], &Options::default()).unwrap_or_else(|error| panic!("{error}"));
        assert!(left_out(&found).contains(&(what.to_string(), 1, "p.0.et: node 1".to_string())), "{:?}", found.report);
    }
}

/// A replay of a CUDA graph launches all of its kernels at once.
#[test]
fn a_sum_within_a_graph_waits_for_what_had_ended_and_is_waited_for() {
    let (whole, _) = taken(&[input("r0.json", KINETO.as_bytes())], Format::Kineto);
    let mut text = KINETO.to_string();
    for number in [2, 3] {
        let of_kernel = |number: u32| format!("\"stream\": {}, \"correlation\": {number}", if number == 2 { 20 } else { 7 });
        let changed = of_kernel(number).replace(&format!("correlation\": {number}"), "correlation\": 1");
        assert!(text.contains(&of_kernel(number)));
        text = text.replace(&of_kernel(number), &changed);
    }
    let (found, _) = taken(&[input("r0.json", text.as_bytes())], Format::Kineto);
    assert_eq!(found.workload.programs, whole.workload.programs);
}

#[test]
fn a_group_without_a_name_has_its_size_as_one() {
    for name in ["\"\"", "null"] {
        let text = KINETO
            .replace("\"Process Group Name\": \"7\", \"Process Group Description\": \"tp\"", &format!("\"Process Group Name\": {name}"));
        let (found, _) = taken(&[input("r0.json", text.as_bytes())], Format::Kineto);
        assert_eq!(&*found.workload.groups[0].name, "2 ranks", "{name}");
    }
}

#[test]
fn an_empty_list_of_ranks_in_a_profile_is_the_group_of_its_configuration() {
    let text = KINETO.replace("\"[0, 1]\"", "\"[]\"").replace("\"Process Group Name\": \"7\"", "\"Process Group Name\": \"0\"");
    let (_, summary) = taken(&[input("r0.json", text.as_bytes())], Format::Kineto);
    assert_eq!((summary.groups[0].instances, summary.groups[0].members), (1, (4, 4)));
    // Without a configuration the size says that it is the group of all.
    let text = text.replace("\"pg_config\"", "\"other\"").replace("\"Group size\": 2", "\"Group size\": 4");
    let (_, summary) = taken(&[input("r0.json", text.as_bytes())], Format::Kineto);
    assert_eq!((summary.groups[0].instances, summary.groups[0].members), (1, (4, 4)));
}

#[test]
fn transfers_of_chakra_meet() {
    let send = chakra(5, &[attribute("comm_dst", 9, 1), attribute("comm_size", 9, 100), attribute("comm_tag", 9, 3)]);
    let receive = chakra(6, &[attribute("comm_src", 7, 0), attribute("comm_size", 9, 100), attribute("comm_tag", 9, 3)]);
    let (found, summary) = taken(&[input("p.0.et", &send), input("p.1.et", &receive)], Format::Chakra);
    assert_eq!(summary.sends.map(|sends| sends.bytes_of_rank), Some(100));
    assert!(matches!(found.workload.programs[1].nodes[1].action, Action::Receive(_)));
    let refused = |bytes: &[u8]| import(Format::Chakra, &[input("p.0.et", bytes)], &Options::default()).map(drop).unwrap_err().to_string();
    assert_eq!(refused(&send[..send.len() - 3]), "p.0.et: at byte 82: a message of 16 bytes, of which there are 13");
    assert_eq!(refused(&[&send[..], &[0]].concat()), format!("p.0.et: at byte {}: a node of 0 bytes: expected 1 to 67108864", send.len()));
    assert!(refused(&[7, 10, 5, 48]).starts_with("p.0.et: at byte 0: a message of 7 bytes"));
    // A caller that waits for what it calls, as traces of PyTorch have it: only data_deps count.
    let caller = [number(1, 7), part(2, b"call"), number(3, 4), part(4, &varint(8)), number(7, 3)].concat();
    let called = [number(1, 8), part(2, b"kernel"), number(3, 4), part(5, &varint(7)), part(4, &varint(1)), number(7, 5)].concat();
    let (found, summary) = taken(&[input("c.0.et", &file(&[part(1, b"0.0.4"), caller, called]))], Format::Chakra);
    assert_eq!(summary.span.map(|span| span.as_ps()), Some(8_000_000));
    assert!(found.report.assumed[0].starts_with("ctrl_deps, with which nodes would wait for each other"), "{:?}", found.report);
    assert_eq!(refused(&[send.clone(), send[8..].to_vec()].concat()), "p.0.et: node 8 \"exchange\": another node has the same id");
}

#[test]
fn the_inspector_is_read_with_its_communicators() {
    let files: Vec<Input> = (0..4).map(|rank| input(&format!("p{rank}.log"), inspector(rank, true).as_bytes())).collect();
    let (found, summary) = taken(&files, Format::Inspector);
    assert_eq!((summary.ranks, summary.hosts, summary.programs), (4, 1, 1));
    let rows: Vec<(CollectiveKind, u64, u64, u64)> =
        summary.collectives.iter().map(|row| (row.kind, row.of_rank, row.in_all, row.bytes_of_rank)).collect();
    // An all-gather's bytes are of all members.
    assert_eq!(rows, [(CollectiveKind::AllReduce, 2, 2, 3072), (CollectiveKind::AllGather, 1, 2, 128)]);
    // The gather overlaps with the first sum; 20 us after it the second one begins.
    assert_eq!(summary.span.map(|span| span.as_ps()), Some(20_000_000));
    assert_eq!(found.workload.programs[0].nodes[2].after, [0, 1]);
    // Without times operations come one after the other; what a rank has not written is left out everywhere.
    let mut files: Vec<Input> = (0..4).map(|rank| input(&format!("p{rank}.log"), inspector(rank, false).as_bytes())).collect();
    let lines = inspector(2, false);
    files[2] = input("p2.log", lines.split_inclusive('\n').take(2).collect::<String>().as_bytes());
    let (found, summary) = taken(&files, Format::Inspector);
    assert_eq!(left_out(&found), [("collectives that not all files have".to_string(), 3, "p0.log: operation 3".to_string())]);
    assert_eq!(summary.nodes, 8);
    // Of one process alone nobody knows the pairs.
    let (found, _) = taken(&files[..1], Format::Inspector);
    assert_eq!(
        found.report.left_out[0].what,
        "operations of communicators of which not all ranks are known: expected the files of all ranks"
    );
    let error = import(Format::Inspector, &[files[0].clone(), input("x.log", &inspector(1, true).as_bytes()[..500])], &Options::default());
    assert!(error.map(drop).unwrap_err().to_string().starts_with("x.log:2: EOF while parsing"));
}

#[test]
fn algorithms_of_msccl_are_sends_and_receives() {
    let (found, summary) = taken(&[input("a.xml", MSCCL.as_bytes())], Format::Msccl);
    assert_eq!((summary.ranks, summary.sends.map(|sends| (sends.in_all, sends.bytes))), (2, Some((2, (1 << 19, 1 << 19)))));
    assert_eq!(found.report.assumed, ["a vector of 1048576 bytes: --bytes says it"]);
    let refused = |from: &str, to: &str| {
        let text = MSCCL.replacen(from, to, 1);
        import(Format::Msccl, &[input("a.xml", text.as_bytes())], &Options::default()).map(drop).unwrap_err().to_string()
    };
    assert_eq!(refused("\"rrc\"", "\"rx\""), "a.xml:5: step: type = \"rx\": expected s, r, rcs, rrs, rrc, rrcs, cpy, re or nop");
    assert_eq!(refused("send=\"1\"", "send=\"7\""), "a.xml:4: a step of type \"s\" in a tb with send = 7: expected a GPU below 2");
    assert_eq!(refused("depid=\"0\" deps=\"1\"", "depid=\"0\" deps=\"9\""), "a.xml:8: step 9 of tb 0: expected one that is there");
    assert_eq!(refused("ngpus=\"2\"", "ngpus=\"3\""), "a.xml:1: 2 gpus: expected 3");
}

#[test]
fn gzip_is_opened_and_damage_in_it_is_said() {
    use std::io::Write;
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    packed.write_all(GOAL.as_bytes()).expect("memory");
    let bytes = packed.finish().expect("memory");
    assert_eq!(input("t.goal.gz", &bytes).bytes, GOAL.as_bytes());
    let error = Input::new("t.goal.gz", bytes[..bytes.len() - 12].to_vec()).map(drop).unwrap_err().to_string();
    assert!(error.starts_with("t.goal.gz: gzip: "), "{error}");
}

#[test]
fn nothing_known_is_no_format() {
    for text in ["", "{}", "[1, 2]", "hello", "\u{0}\u{1}"] {
        assert_eq!(Format::of(&input("x", text.as_bytes())), None, "{text:?}");
    }
    assert_eq!(Element::of_name("f32"), Some(Element::F32));
}

/// The same profile with a send, and a kernel of several of which the host speaks.
fn kineto_with_transfers() -> String {
    let said = "\"Collective name\": \"recv\", \"In msg nelems\": 3, \"dtype\": \"Half\", \"Process Group Ranks\": \"[0, 1]\", \"Rank\": 1";
    let host =
        format!("{{\"cat\": \"cpu_op\", \"name\": \"record_param_comms\", \"ts\": 107.0, \"args\": {{\"External id\": 77, {said}}}}},");
    KINETO
        .replace("\"Collective name\": \"gather\"", "\"Dst Rank\": 1, \"Collective name\": \"send\"")
        .replace("ncclDevKernel_Generic", "ncclDevKernel_SendRecv")
        .replace("\"traceEvents\": [", &format!("\"traceEvents\": [{host}"))
}

fn all() -> Vec<(Format, Vec<u8>)> {
    vec![
        (Format::Kineto, KINETO.as_bytes().to_vec()),
        (Format::Kineto, kineto_with_transfers().into_bytes()),
        (Format::Goal, GOAL.as_bytes().to_vec()),
        (Format::AicbText, AICB.as_bytes().to_vec()),
        (Format::AicbCsv, CSV.as_bytes().to_vec()),
        (Format::Inspector, inspector(1, true).into_bytes()),
        (Format::Msccl, MSCCL.as_bytes().to_vec()),
        (Format::Chakra, chakra(7, &[attribute("comm_type", 9, 0), attribute("comm_size", 9, 1 << 20)])),
    ]
}

/// Whatever the bytes are: an error or a workload that is written and read again; no panic.
fn holds(format: Format, bytes: &[u8]) {
    let Ok(file) = Input::new("f.0.et", bytes.to_vec()) else { return };
    let _ = Format::of(&file);
    if let Ok(found) = import(format, &[file], &Options::default()) {
        let text = found.workload.to_toml();
        let again = Workload::from_toml("w.toml", &text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(again.to_toml(), text);
        let _ = validate(&again, "w.toml");
    }
}

#[test]
fn truncated_and_damaged_files_are_errors_and_no_panics() {
    for (number, (format, bytes)) in all().into_iter().enumerate() {
        (0..bytes.len()).for_each(|end| holds(format, &bytes[..end]));
        for index in 0..4_000 {
            let mut damaged = bytes.clone();
            for more in 0..=index % 4 {
                let dice = mix(number as u64 * 1_000_003 + index, more);
                let at = dice as usize % damaged.len();
                damaged[at] = if dice >> 63 == 0 { damaged[at] ^ (1 << (dice >> 40 & 7)) } else { (dice >> 32) as u8 };
            }
            holds(format, &damaged);
        }
    }
}

macro_rules! fuzzed {
    ($($name:ident, $format:ident;)*) => { $(
        #[test]
        fn $name() {
            bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| holds(Format::$format, bytes));
        }
    )* };
}

fuzzed! {
    kineto_fuzzed, Kineto;
    goal_fuzzed, Goal;
    aicb_text_fuzzed, AicbText;
    aicb_csv_fuzzed, AicbCsv;
    chakra_fuzzed, Chakra;
    inspector_fuzzed, Inspector;
    msccl_fuzzed, Msccl;
}

/// What the profiler writes of a program that trains on a processor over Fanin's own backend.
const HOST: &str = r#"{"distributedInfo": {"rank": 0, "world_size": 2}, "traceEvents": [
  {"ph": "X", "cat": "cpu_op", "name": "aten::linear", "tid": 7, "ts": 100.0, "dur": 50.0, "args": {}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::addmm", "tid": 7, "ts": 110.0, "dur": 30.0, "args": {}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::loader", "tid": 8, "ts": 100.0, "dur": 900.0, "args": {}},
  {"ph": "X", "cat": "cpu_op", "name": "fanin:all_reduce", "tid": 7, "ts": 151.0, "dur": 1.0, "args": {"Collective name": "allreduce", "In msg nelems": 1000, "Out msg nelems": 1000, "dtype": "Float", "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Group size": 2}},
  {"ph": "X", "cat": "user_annotation", "name": "fanin:all_reduce", "tid": 7, "ts": 152.0, "dur": 60.0, "args": {}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::mm", "tid": 7, "ts": 160.0, "dur": 20.0, "args": {}},
  {"ph": "X", "cat": "cpu_op", "name": "fanin:all_reduce", "tid": 7, "ts": 181.0, "dur": 1.0, "args": {"Collective name": "allreduce", "In msg nelems": 8, "Out msg nelems": 8, "dtype": "Half", "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Group size": 2}},
  {"ph": "X", "cat": "user_annotation", "name": "fanin:all_reduce", "tid": 7, "ts": 183.0, "dur": 17.0, "args": {}},
  {"ph": "X", "cat": "cpu_op", "name": "aten::sgd", "tid": 7, "ts": 220.0, "dur": 5.0, "args": {}},
  {"ph": "X", "cat": "cpu_op", "name": "fanin:broadcast", "tid": 7, "ts": 230.0, "dur": 1.5, "args": {"Collective name": "broadcast", "In msg nelems": 3, "Out msg nelems": 3, "dtype": "Long", "Rank": 1, "Process Group Name": "0", "Process Group Ranks": "[0, 1]", "Group size": 2}}
]}
"#;

#[test]
fn a_profile_without_a_gpu_has_the_collectives_that_the_host_describes() {
    let (found, _) = taken(&[input("r0.json", HOST.as_bytes())], Format::Kineto);
    let text = found.workload.to_toml();
    // The sums take as long as their spans; what begins after their end waits for them; the broadcast has no span, and its event's time. Computing
    // goes on until a collective begins.
    for line in [
        "{ id = \"compute 0\", compute = \"52us\" }",
        "{ id = \"all-reduce 0\", collective = \"all-reduce\", group = \"0\", bytes = 4000, element = \"f32\", stream = \"fanin\", after = [\"compute 0\"], measured = \"60us\" }",
        "{ id = \"compute 1\", compute = \"31us\" }",
        "{ id = \"compute 2\", compute = \"18us\", after = [\"all-reduce 0\", \"all-reduce 1\"] }",
        "{ id = \"all-reduce 1\", collective = \"all-reduce\", group = \"0\", bytes = 16, element = \"f16\", stream = \"fanin\", after = [\"compute 1\"], measured = \"17us\" }",
        "{ id = \"broadcast 2\", collective = \"broadcast\", group = \"0\", bytes = 24, element = \"i64\", root = 1, stream = \"fanin\", after = [\"compute 2\"], measured = \"1.5us\" }",
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    assert!(found.report.assumed.iter().any(|words| words.starts_with("traces without a GPU")), "{:?}", found.report);
    // Where a GPU has worked, the host's collectives are none of its own.
    let (with_gpu, _) = taken(&[input("r0.json", KINETO.as_bytes())], Format::Kineto);
    let event = HOST.lines().find(|line| line.contains("\"fanin:all_reduce\", \"tid\": 7, \"ts\": 151.0")).expect("one");
    let both = KINETO.replace("\"traceEvents\": [\n", &format!("\"traceEvents\": [\n{event}\n"));
    let (beside, _) = taken(&[input("r0.json", both.as_bytes())], Format::Kineto);
    assert_eq!(with_gpu.workload.to_toml(), beside.workload.to_toml());
}
