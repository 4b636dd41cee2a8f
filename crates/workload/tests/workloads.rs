//! Workloads in files: what is read, what is refused and with which words.
#![allow(unexpected_cfgs, reason = "a fuzzer sets the cfg `fuzzing`")]

use fanin_workload::{Workload, validate};

/// Two pipeline stages of two ranks each: everything that a file can hold.
const STEP: &str = r#"workload = 1
name = "two stages"
source = "by hand"
ranks = 4
ranks_per_host = 2
iterations = 2

[[groups]]
name = "tensor"
size = 2

[[groups]]
name = "pairs"
members = ["0, 3", "1-2"]

[[blocks]]
name = "layer"
nodes = [
  { id = "multiply", compute = "1.5us" },
  { id = "sum", collective = "all-reduce", group = "tensor", bytes = "4KiB", element = "bf16", stream = "tensor", after = ["multiply"] },
]

[[programs]]
name = "first"
ranks = "0-1"
nodes = [
  { id = "layers", call = "layer", times = 3 },
  { id = "hand over", send = "+2", bytes = 1000, tag = 7, after = ["layers"], measured = "2us" },
  { id = "all", collective = "barrier", group = "pairs", after = ["hand over"] },
]

[[programs]]
name = "second"
ranks = "2, 3"
nodes = [
  { id = "take", receive = "-2", bytes = 1000, tag = 7, stream = "" },
  { id = "layers", call = "layer", times = 3, overlap = true, after = ["take"] },
  { id = "all", collective = "barrier", group = "pairs", after = ["layers"] },
]
"#;

fn read(text: &str) -> Workload {
    Workload::from_toml("w.toml", text).unwrap_or_else(|error| panic!("{error}"))
}

/// What is wrong with the file after a change.
fn refused(from: &str, to: &str) -> String {
    assert!(STEP.contains(from), "{from}");
    let text = STEP.replacen(from, to, 1);
    match Workload::from_toml("w.toml", &text).and_then(|workload| validate(&workload, "w.toml")) {
        Ok(_) => panic!("{to} is taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn what_is_written_reads_as_the_same() {
    let workload = read(STEP);
    let again = read(&workload.to_toml());
    let checked = validate(&workload, "w.toml").unwrap_or_else(|error| panic!("{error}"));
    // Lines differ, and nothing else.
    assert_eq!(again.to_toml(), workload.to_toml());
    assert_eq!((again.ranks, again.iterations, again.groups.len(), again.blocks.len(), again.programs.len()), (4, 2, 2, 1, 2));
    assert_eq!(checked.flats[0].nodes.len(), 8);
    // Three layers of the first stage, then three of the second, with communication that takes no time.
    assert_eq!(checked.run.expect("small enough").finished_ps, [9_000_000; 4]);
}

/// Each layer computes for 2 us and then has 3 us of something else: one after the other three of them take 15 us. If layers overlap, only the first
/// computation is not hidden, and they take 2 + 3 * 3 us. The last node waits for all of them.
#[test]
fn repetitions_overlap_where_the_call_says_so() {
    let finished = |overlap: &str| {
        let text = format!(
            "workload = 1\nranks = 1\n[[blocks]]\nname = \"layer\"\nnodes = [\n  {{ id = \"backward\", compute = \"2us\" }},\n  \
             {{ id = \"other\", compute = \"3us\", stream = \"other\", after = [\"backward\"] }},\n]\n[[programs]]\nname = \"p\"\nranks = \"0\"\n\
             nodes = [\n  {{ id = \"layers\", call = \"layer\", times = 3{overlap} }},\n  {{ id = \"update\", compute = \"1us\", after = [\"layers\"] }},\n]\n"
        );
        validate(&read(&text), "w.toml").unwrap_or_else(|error| panic!("{error}")).run.expect("small enough").finished_ps
    };
    assert_eq!(finished(""), [16_000_000]);
    assert_eq!(finished(", overlap = false"), [16_000_000]);
    assert_eq!(finished(", overlap = true"), [12_000_000]);
}

#[test]
fn wrong_words_are_refused_with_their_lines() {
    let cases = [
        ("overlap = true", "overlap = 1", "w.toml:37: programs[1].nodes[1].overlap = 1: expected true or false"),
        ("workload = 1", "workload = 2", "w.toml:1: workload = 2: expected 1, the version of the format"),
        ("ranks = 4", "ranks = 0", "w.toml:4: ranks = 0: expected a whole number of 1 or more that fits 32 bits"),
        ("\"4KiB\"", "\"4kib\"", "w.toml:20: blocks[0].nodes[1].bytes = \"4kib\": expected bytes, such as 1024, \"100kB\" or \"4MiB\""),
        ("1.5us", "1.5", "w.toml:19: blocks[0].nodes[0].compute = \"1.5\": expected a time, such as \"300ns\""),
        ("group = \"tensor\"", "group = \"tp\"", "w.toml:20: blocks[0].nodes[1].group = \"tp\": expected the name of a group"),
        ("call = \"layer\"", "call = \"layers\"", "w.toml:27: programs[0].nodes[0].call = \"layers\": expected the name of a block"),
        (
            "after = [\"take\"]",
            "after = [\"took\"]",
            "w.toml:37: programs[1].nodes[1].after[0] = \"took\": expected the id of a node of the same list",
        ),
        ("tag = 7,", "tags = 7,", "w.toml:28: programs[0].nodes[1].tags: no such key here: expected one of id,"),
        ("send = \"+2\"", "send = \"2\"", "w.toml:28: programs[0].nodes[1].send = \"2\": expected a rank, or as a text how far it is"),
        ("ranks = \"2, 3\"", "ranks = \"2, 4\"", "w.toml:34: programs[1].ranks = \"2, 4\": expected ranks below the workload's number"),
        ("\"all-reduce\"", "\"allreduce\"", "w.toml:20: blocks[0].nodes[1].collective = \"allreduce\": expected one of all-reduce,"),
        ("element = \"bf16\"", "element = \"half\"", "w.toml:20: blocks[0].nodes[1].element = \"half\": expected one of f64,"),
        ("size = 2", "size = 2\nmembers = [\"0\"]", "w.toml:8: groups[0]: expected either members, or size and stride"),
        ("compute = \"1.5us\"", "compute = \"1us\", send = 1", "w.toml:19: blocks[0].nodes[0]: expected one of compute, collective,"),
        ("name = \"two stages\"", "name = = 2", "w.toml:2: not TOML: "),
    ];
    for (from, to, expected) in cases {
        let found = refused(from, to);
        assert!(found.starts_with(expected), "{found}\nexpected {expected}");
    }
}

#[test]
fn what_cannot_run_is_refused_with_the_node() {
    let cases = [
        ("size = 2", "size = 3", "w.toml:8: group \"tensor\": size 3 times stride 1 is 3: expected a divisor of 4 ranks"),
        ("\"1-2\"", "\"1-3\"", "w.toml:12: group \"pairs\": rank 3 is there twice"),
        ("\"4KiB\"", "1001", "w.toml:20: node \"sum\" of block \"layer\": bytes = 1001: expected a multiple of 2 for elements of bf16"),
        ("\"4KiB\"", "0", "w.toml:20: node \"sum\" of block \"layer\": bytes = 0: expected none for a barrier, and some for anything else"),
        ("ranks = \"0-1\"", "ranks = \"0\"", "w.toml: rank 1 is in no program"),
        ("ranks = \"0-1\"", "ranks = \"0-2\"", "w.toml:32: program \"second\": rank 2 is in program \"first\", too"),
        (
            "members = [\"0, 3\", \"1-2\"]",
            "members = [\"0, 3\"]",
            "w.toml:29: node \"all\" of program \"first\": rank 1 is in no group \"pairs\"",
        ),
        (
            "id = \"sum\"",
            "id = \"multiply\"",
            "w.toml:20: node \"multiply\" of block \"layer\": expected an id that no other node there has",
        ),
        (
            "{ id = \"multiply\", compute = \"1.5us\" }",
            "{ id = \"multiply\", compute = \"1.5us\", after = [\"sum\"] }",
            "w.toml:19: program \"first\": nodes wait for each other, by after or by the order of their streams: \"multiply\" after \"sum\"",
        ),
        (
            "send = \"+2\", bytes = 1000",
            "send = \"+2\", bytes = 999",
            "w.toml:28: rank 0, node \"hand over\" of program \"first\": sends 999 bytes with tag 7, of which rank 2 expects 1000",
        ),
        (
            "tag = 7, after",
            "tag = 8, after",
            "w.toml:36: rank 2, node \"take\" of program \"second\": receives with tag 7 what rank 0 does not send",
        ),
        ("send = \"+2\"", "send = \"+3\"", "w.toml:28: rank 1, node \"hand over\" of program \"first\": expected another rank below 4"),
        (
            "{ id = \"all\", collective = \"barrier\", group = \"pairs\", after = [\"layers\"] }",
            "{ id = \"all\", collective = \"reduce\", group = \"pairs\", bytes = 4, element = \"f32\", root = 1, after = [\"layers\"] }",
            "w.toml:38: members disagree about collective 0 of their group: rank 1 has barrier",
        ),
        (
            "{ id = \"all\", collective = \"barrier\", group = \"pairs\", after = [\"layers\"] }",
            "{ id = \"all\", compute = \"1us\" }",
            "w.toml:29: members disagree about collective 0 of their group: rank 1 has barrier",
        ),
        ("times = 3, overlap = true, after = [\"take\"]", "times = 2, overlap = true, after = [\"take\"]", ""),
    ];
    for (from, to, expected) in &cases[..cases.len() - 1] {
        let found = refused(from, to);
        assert!(found.starts_with(expected), "{found}\nexpected {expected}");
    }
    // The tensor group's instances are apart: another number of layers in the second stage is well.
    let text = STEP.replacen(cases[cases.len() - 1].0, cases[cases.len() - 1].1, 1);
    assert_eq!(
        validate(&read(&text), "w.toml").map(|checked| checked.run.map(|run| run.finished_ps)).ok().flatten(),
        Some(vec![7_500_000; 4])
    );
}

#[test]
fn groups_times_ranks_are_bounded() {
    let groups: String = (0..129).map(|number| format!("[[groups]]\nname = \"g{number}\"\nsize = 1\n")).collect();
    let text = format!(
        "workload = 1\nranks = 1048576\n{groups}[[programs]]\nname = \"all\"\nranks = \"0-1048575\"\nnodes = [{{ id = \"a\", compute = \"1us\" }}]\n"
    );
    let error = validate(&read(&text), "w.toml").map(drop).unwrap_err().to_string();
    assert_eq!(error, "w.toml: 129 groups of 1048576 ranks: expected a product of at most 134217728");
}

#[test]
fn ranks_that_wait_for_each_other_are_found_though_their_lists_agree() {
    let text = r#"workload = 1
ranks = 2
groups = [{ name = "a", size = 2 }, { name = "b", size = 2 }]
programs = [
  { name = "p", ranks = "0", nodes = [
    { id = "x", collective = "barrier", group = "a" },
    { id = "y", collective = "barrier", group = "b" },
  ] },
  { name = "q", ranks = "1", nodes = [
    { id = "y", collective = "barrier", group = "b" },
    { id = "x", collective = "barrier", group = "a" },
  ] },
]
"#;
    let error = validate(&read(text), "w.toml").map(|_| ()).unwrap_err().to_string();
    let expected = "w.toml:6: rank 0, node \"x\" of program \"p\": waits for ever: ranks wait for each other; so do rank 1, node \"y\" of program \"q\"";
    assert_eq!(error, expected);
    let streams = text.replace("group = \"b\" }", "group = \"b\", stream = \"b\" }");
    assert!(validate(&read(&streams), "w.toml").is_ok(), "each stream by itself");
}

/// No bytes whatever make the reader panic; what it takes, it writes and reads again.
fn leads_back(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(workload) = Workload::from_toml("w.toml", text) {
        let again = workload.to_toml();
        let second = Workload::from_toml("again.toml", &again).unwrap_or_else(|error| panic!("{error}\n{again}"));
        assert_eq!(second.to_toml(), again);
        let _ = validate(&workload, "w.toml");
    }
}

#[test]
fn damaged_files_are_errors() {
    let bytes = STEP.as_bytes();
    (0..bytes.len()).step_by(7).for_each(|end| leads_back(&bytes[..end]));
    for index in 0..3_000u64 {
        let mut damaged = bytes.to_vec();
        for more in 0..=index % 3 {
            let dice = fanin_core::hash::mix(index, more);
            let at = dice as usize % damaged.len();
            damaged[at] = b" =\"[]{}0123456789-+:,.aeinorst\n#"[(dice >> 40) as usize % 32];
        }
        leads_back(&damaged);
    }
}

#[test]
fn workloads_fuzzed() {
    bolero::check!().with_iterations(0).for_each(leads_back);
}
