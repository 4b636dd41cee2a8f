//! Jobs with a workload against arithmetic that can be done by hand, and what is said where something cannot be.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use fanin_plan::results::{JobRecord, RunRecord};
use fanin_plan::run::view::Looks;
use fanin_plan::traced::Wanted;
use fanin_plan::workload::WorkloadRecord;
use fanin_plan::{Plan, PlanError, run};

/// A folder with a workload of this text, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str, workload: &str) -> Self {
        // Tests run beside each other, and two may choose one name: the number keeps their files apart.
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("fanin-workloads-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        fs::write(path.join("step.toml"), workload).unwrap();
        Folder(path)
    }

    fn plan(&self, text: &str) -> Result<Plan, PlanError> {
        let plan = Plan::parse(&self.0.join("plan.toml").display().to_string(), text, &[], None)?;
        run::check(&plan)?;
        Ok(plan)
    }

    fn run(&self, text: &str) -> RunRecord {
        let plan = self.plan(text).unwrap_or_else(|error| panic!("{error}"));
        run::run(&plan, 1, || true).unwrap().remove(0).record
    }

    fn refused(&self, text: &str) -> String {
        let error = self.plan(text).expect_err("it is refused").to_string();
        error.replace(&self.0.display().to_string(), "")
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn star(hosts: u32) -> String {
    format!("[network]\nshape = \"star\"\nhosts = {hosts}\nrate = \"100Gb/s\"\nlatency = \"1us\"\n")
}

fn job(record: &RunRecord) -> (&JobRecord, &WorkloadRecord) {
    assert_eq!((record.census.as_str(), &record.failure), ("exact", &None));
    (&record.jobs[0], record.jobs[0].workload.as_ref().expect("the job has a workload"))
}

/// A frame of 1024 bytes of payload and 57 of headers on a link of 100 Gb/s, in microseconds.
const FRAME_US: f64 = 1_081.0 * 8.0 / 100e3;
/// One of 16 bytes of header only, the shortest: 84 bytes.
const SHORT_US: f64 = 84.0 * 8.0 / 100e3;

fn assert_close(got: Option<f64>, expected: f64, what: &str) {
    let got = got.unwrap_or_else(|| panic!("{what}: not complete"));
    assert!((got - expected).abs() < 2e-5, "{what}: {got} us, expected {expected}");
}

/// Time of a sum of 1 MiB over two hosts at a star by a ring, as a job of its own takes it.
fn plain_sum_us() -> f64 {
    let plan = format!("{}[[jobs]]\nsystem = \"ring\"\nworkers = 2\nplacement = \"packed\"\nmessage = \"1MiB\"\n", star(2));
    Folder::new("plain", "").run(&plan).completion_us.unwrap()
}

const TWO: &str = r#"
workload = 1
ranks = 2
groups = [{ name = "all", size = 2 }]
programs = [{ name = "all", ranks = "0-1", nodes = [
  { id = "a", compute = "100us" },
  { id = "sum a", collective = "all-reduce", group = "all", bytes = "1MiB", element = "f32", after = ["a"] },
  { id = "b", compute = "100us", after = [AFTER] },
  { id = "sum b", collective = "all-reduce", group = "all", bytes = "1MiB", element = "f32", after = ["b"] },
  { id = "update", compute = "10us", after = ["sum a", "sum b"] },
] }]
"#;

const RING: &str = "[[jobs]]\nsystem = \"ring\"\nplacement = \"packed\"\nworkload = \"step.toml\"\n";

#[test]
fn a_step_of_two_ranks_with_and_without_overlap() {
    let sum_us = plain_sum_us();
    // By hand: 512 of 1024 packets each way, twice; a packet crosses two links and is acknowledged over two. The sum is over when the last
    // acknowledgement has come.
    let by_hand = 1_024.0 * FRAME_US + FRAME_US + 2.0 + 2.0 * SHORT_US + 2.0;
    assert!((sum_us - by_hand).abs() < 3.0 && sum_us < 100.0, "{sum_us} us, by hand {by_hand}");
    let overlapped = Folder::new("overlap", &TWO.replace("AFTER", ""));
    let record = overlapped.run(&(star(2) + RING));
    let (job, workload) = job(&record);
    // The first sum hides behind b, the second behind nothing.
    assert_close(job.iteration_us, 200.0 + sum_us + 10.0, "with overlap");
    assert_eq!(workload.compute_us, 210.0);
    assert_close(workload.exposed_us, sum_us, "exposed");
    assert_eq!(job.communication_us, workload.exposed_us);
    assert_eq!(workload.communication.len(), 1);
    let row = &workload.communication[0];
    assert_eq!((row.group.as_str(), row.collective, row.ran, row.operations, row.bytes), ("all", "all-reduce", "ring", 2, 2 << 20));
    assert_close(row.operation_us.map(|times| times.max), sum_us, "a sum");
    let critical: Vec<(&str, f64)> = workload.critical.iter().map(|part| (part.what.as_str(), part.time_us)).collect();
    assert_eq!(critical[0], ("compute", 210.0));
    assert_close(Some(critical[1].1), sum_us, "the critical path's sum");
    let serial = Folder::new("serial", &TWO.replace("AFTER", "\"sum a\""));
    let record = serial.run(&(star(2) + RING));
    assert_close(self::job(&record).0.iteration_us, 2.0 * (100.0 + sum_us) + 10.0, "without overlap");
    assert_close(self::job(&record).1.exposed_us, 2.0 * sum_us, "all is exposed");
}

/// Two groups of two, of which one sums a vector that is twice as long, and twice; a third kind has one group only.
#[test]
fn single_groups_have_their_own_percentiles() {
    let program = |ranks: &str, bytes: &str, second: &str| {
        format!(
            r#"{{ name = "{ranks}", ranks = "{ranks}", nodes = [
  {{ id = "a", collective = "all-reduce", group = "pair", bytes = "{bytes}", element = "f32" }}, {second}
  {{ id = "all", collective = "barrier", group = "all" }},
] }},"#
        )
    };
    let again = r#"{ id = "b", collective = "all-reduce", group = "pair", bytes = "256KiB", element = "f32" },"#;
    let programs = program("0-1", "512KiB", "") + &program("2-3", "1MiB", again);
    let text = format!(
        "workload = 1\nranks = 4\ngroups = [{{ name = \"pair\", size = 2 }}, {{ name = \"all\", size = 4 }}]\nprograms = [{programs}]\n"
    );
    let folder = Folder::new("single-groups", &text);
    let record = folder.run(&(star(4) + RING));
    let workload = job(&record).1;
    let [barrier, pair] = &workload.communication[..] else { panic!("{:?}", workload.communication) };
    assert_eq!((barrier.groups, barrier.by_group.len(), barrier.group.as_str()), (1, 0, "all"), "one group is its kind");
    assert_eq!((pair.groups, pair.operations, pair.bytes), (2, 3, (512 + 1024 + 256) << 10));
    let told: Vec<_> = pair.by_group.iter().map(|group| (group.number, group.ranks.as_str(), group.operations, group.bytes)).collect();
    assert_eq!(told, [(0, "0-1", 1, 512 << 10), (1, "2-3", 2, 1280 << 10)]);
    // A ring of two sends its vector once, each way: as many packets as KiB, one more link, both delays and what acknowledges them.
    let sum_us = |kib: f64| kib * FRAME_US + FRAME_US + 2.0 + 2.0 * SHORT_US + 2.0;
    let [first, second] = [0, 1].map(|number| pair.by_group[number].operation_us.unwrap());
    assert!((first.max - sum_us(512.0)).abs() < 3.0 && first.p50 == first.max, "{first:?}");
    assert!((second.p50 - sum_us(256.0)).abs() < 3.0 && (second.max - sum_us(1024.0)).abs() < 3.0, "{second:?}");
    assert_eq!(pair.operation_us.unwrap().max, second.max);
    let frame = fanin_plan::frames::communication(&[&record]);
    let column = |name: &str| {
        let column = &frame.columns.iter().find(|(other, _)| other == name).unwrap_or_else(|| panic!("{name}")).1;
        (0..frame.rows()).map(|row| column.text(row)).collect::<Vec<_>>()
    };
    assert_eq!(column("groups"), ["1", "2", "", ""]);
    assert_eq!(column("number"), ["", "", "0", "1"]);
    assert_eq!(column("ranks"), ["", "", "0-1", "2-3"]);
    assert_eq!(column("operations"), ["1", "3", "1", "2"]);
    assert_eq!(column("operation_us_max")[3], second.max.to_string());
    assert_eq!(column("exposed_us")[2..], ["", ""]);
}

/// Of 100 pairs, the 64 with the longest transfers are listed.
#[test]
fn of_many_groups_the_slowest_are_listed() {
    let program = |pair: u32| {
        let (from, bytes) = (2 * pair, 1_000 * (1 + (pair * 37) % 100));
        format!(
            "{{ name = \"from {from}\", ranks = \"{from}\", nodes = [{{ id = \"s\", send = \"+1\", bytes = \"{bytes}B\" }}] }},
             {{ name = \"to {from}\", ranks = \"{}\", nodes = [{{ id = \"r\", receive = \"-1\", bytes = \"{bytes}B\" }}] }},\n",
            from + 1
        )
    };
    let programs: String = (0..100).map(program).collect();
    let folder = Folder::new("many-groups", &format!("workload = 1\nranks = 200\nprograms = [{programs}]\n"));
    let record = folder.run(&(star(200) + RING));
    let row = &job(&record).1.communication[0];
    assert_eq!((row.groups, row.by_group.len(), row.operations), (100, 64, 100));
    assert!(row.by_group.iter().all(|pair| pair.bytes > 36_000 && pair.ranks == format!("{}, {}", pair.number, pair.number + 1)));
    assert!(row.by_group.windows(2).all(|two| two[0].number < two[1].number));
}

/// A stage takes what comes, computes 50 us, and hands 256 KiB on; two micro-batches.
const PIPELINE: &str = r#"
workload = 1
ranks = 4
programs = [
  { name = "first", ranks = "0", nodes = [
    { id = "f0", compute = "50us" }, { id = "s0", send = "+1", bytes = "256KiB", after = ["f0"] },
    { id = "f1", compute = "50us" }, { id = "s1", send = "+1", bytes = "256KiB", after = ["f1"] },
  ] },
  { name = "middle", ranks = "1-2", nodes = [
    { id = "r0", receive = "-1", bytes = "256KiB", stream = "in" }, { id = "f0", compute = "50us", after = ["r0"] },
    { id = "s0", send = "+1", bytes = "256KiB", after = ["f0"] },
    { id = "r1", receive = "-1", bytes = "256KiB", stream = "in" }, { id = "f1", compute = "50us", after = ["r1"] },
    { id = "s1", send = "+1", bytes = "256KiB", after = ["f1"] },
  ] },
  { name = "last", ranks = "3", nodes = [
    { id = "r0", receive = "-1", bytes = "256KiB" }, { id = "f0", compute = "50us", after = ["r0"] },
    { id = "r1", receive = "-1", bytes = "256KiB" }, { id = "f1", compute = "50us", after = ["r1"] },
  ] },
]
"#;

#[test]
fn a_pipeline_of_four_stages_takes_five_computations_and_three_transfers() {
    let folder = Folder::new("pipeline", PIPELINE);
    let record = folder.run(&(star(4) + RING));
    let (job, workload) = job(&record);
    // 256 packets one after the other, then one more link and both delays.
    let transfer_us = 256.0 * FRAME_US + FRAME_US + 2.0;
    assert!(transfer_us < 50.0, "it hides behind a computation");
    // An acknowledgement may be before the last packet.
    let by_hand = 5.0 * 50.0 + 3.0 * transfer_us;
    let time_us = job.iteration_us.unwrap();
    assert!((by_hand - 2e-5..by_hand + 3.0 * SHORT_US).contains(&time_us), "{time_us} us, by hand {by_hand}");
    assert_eq!((workload.communication.len(), workload.communication[0].collective, workload.communication[0].operations), (1, "send", 6));
    let sends: f64 = workload.critical.iter().filter(|part| part.what == "send").map(|part| part.time_us).sum();
    assert_close(Some(sends), time_us - 250.0, "transfers of the critical path");
}

#[test]
fn an_all_to_all_on_a_star_takes_what_a_rank_sends_to_others() {
    let folder = Folder::new(
        "all-to-all",
        r#"
workload = 1
ranks = 4
groups = [{ name = "experts", size = 4 }]
programs = [{ name = "all", ranks = "0-3", nodes = [
  { id = "tokens", collective = "all-to-all", group = "experts", bytes = "1MiB", element = "bf16" },
] }]
"#,
    );
    let record = folder.run(&(star(4) + RING));
    let (job, workload) = job(&record);
    assert_eq!((workload.communication[0].ran, workload.communication[0].bytes), ("exchange", 1 << 20));
    // Three quarters of 1024 packets, the last over two links, and its acknowledgement back over two; in between, acknowledgements take their
    // part of each link: one for every eight packets.
    let least = 768.0 * FRAME_US + FRAME_US + 2.0 + 2.0 * SHORT_US + 2.0;
    let most = least + 768.0 / 8.0 * SHORT_US + 3.0 * FRAME_US;
    let time_us = job.iteration_us.unwrap();
    assert!(least - 2e-5 <= time_us && time_us <= most, "{least} <= {time_us} <= {most}");
}

/// Parameters of three layers are gathered one ahead of the layer that computes.
#[test]
fn fsdp_of_three_layers_waits_for_the_first_gather_only() {
    let folder = Folder::new(
        "fsdp",
        r#"
workload = 1
ranks = 4
groups = [{ name = "data", size = 4 }]
programs = [{ name = "all", ranks = "0-3", nodes = [
  { id = "gather 1", collective = "all-gather", group = "data", bytes = "1MiB", element = "bf16" },
  { id = "layer 1", compute = "200us", after = ["gather 1"] },
  { id = "gather 2", collective = "all-gather", group = "data", bytes = "1MiB", element = "bf16" },
  { id = "layer 2", compute = "200us", after = ["gather 2"] },
  { id = "gather 3", collective = "all-gather", group = "data", bytes = "1MiB", element = "bf16", after = ["layer 1"] },
  { id = "layer 3", compute = "200us", after = ["gather 3"] },
] }]
"#,
    );
    let record = folder.run(&(star(4) + RING));
    let (job, workload) = job(&record);
    let gather_us = workload.communication[0].operation_us.unwrap();
    assert_eq!((workload.communication[0].ran, workload.communication[0].operations), ("exchange", 3));
    assert_close(job.iteration_us, 600.0 + gather_us.max, "the first gather, and three layers");
    assert_close(workload.exposed_us, gather_us.max, "the first gather");
    // Three steps of 256 packets, pipelined: what is under way in a step is on its way round while the next one is sent.
    let least = 768.0 * FRAME_US + 3.0 * 2.0;
    assert!((least..least + 12.0).contains(&gather_us.max), "{least} us and a little: {}", gather_us.max);
}

#[test]
fn ranks_of_a_host_sum_among_themselves_first() {
    let text = |hosts: &str| {
        format!(
            r#"
workload = 1
ranks = 4
{hosts}
groups = [{{ name = "all", size = 4 }}]
programs = [{{ name = "all", ranks = "0-3", nodes = [
  {{ id = "sum", collective = "all-reduce", group = "all", bytes = "1MiB", element = "f32" }},
] }}]
"#
        )
    };
    let local = "local_rate = \"800Gb/s\"\nlocal_latency = \"2us\"\n";
    // A ring's half of two members within a host: 512 KiB at 100 GB/s, after 2 us.
    let half_us = 2.0 + f64::from(512 << 10) / 100e3;
    let two_hosts = Folder::new("two-hosts", &text("ranks_per_host = 2")).run(&(star(2) + RING + local));
    let (job_of_two, workload) = job(&two_hosts);
    assert_close(job_of_two.iteration_us, 2.0 * half_us + plain_sum_us(), "between two hosts, and in each");
    assert_eq!(workload.communication[0].ran, "ring");
    let one_host = Folder::new("one-host", &text("ranks_per_host = 4")).run(&(star(2) + RING + local));
    let (job_of_one, workload) = job(&one_host);
    let ring_us = 2.0 * (2.0 + f64::from(768 << 10) / 100e3);
    assert_close(job_of_one.iteration_us, ring_us, "in one host");
    assert_eq!(workload.communication[0].ran, "local");
}

#[test]
fn every_collective_is_exact_by_the_groups_system_or_by_hosts_whatever_is_lost() {
    let folder = Folder::new(
        "all-kinds",
        r#"
workload = 1
ranks = 6
groups = [{ name = "all", size = 6 }, { name = "pairs", size = 2 }]
programs = [{ name = "all", ranks = "0-5", nodes = [
  { id = "a", collective = "all-reduce", group = "all", bytes = "60KiB", element = "f32" },
  { id = "b", collective = "reduce-scatter", group = "all", bytes = "60KiB", element = "f32" },
  { id = "c", collective = "all-gather", group = "all", bytes = "60KiB", element = "bf16" },
  { id = "d", collective = "all-to-all", group = "all", bytes = "36000B", element = "u8" },
  { id = "e", collective = "broadcast", group = "all", bytes = "10001B", element = "u8", root = 4 },
  { id = "f", collective = "reduce", group = "all", bytes = "10000B", element = "f32", root = 2 },
  { id = "g", collective = "barrier", group = "all" },
  { id = "h", collective = "all-reduce", group = "pairs", bytes = "100KiB", element = "f64", stream = "other" },
  { id = "i", collective = "reduce-scatter", group = "pairs", bytes = "7B", element = "u8", stream = "other" },
] }]
"#,
    );
    let network = "[network]\nshape = \"fat-tree\"\nleaves = 2\nhosts_per_leaf = 3\nspines = 2\nrate = \"100Gb/s\"\nlatency = \"1us\"\n";
    let faults = "[faults]\nlinks = [{ loss = \"1%\", duplication = \"1%\", reordering = \"1%\", delay = \"2us\" }]\n";
    for system in ["ring", "canary", "switchml", "tree", "sharp", "netreduce", "rina", "exchange", "panama"] {
        let plan = format!("{network}{faults}[[jobs]]\nsystem = {system:?}\nworkload = \"step.toml\"\ngroups = {{ pairs = \"ring\" }}\n");
        let record = folder.run(&plan);
        let (_, workload) = job(&record);
        assert_eq!(workload.communication.len(), 9, "{system}");
        let ran = |group: &str, collective: &str| {
            workload.communication.iter().find(|row| row.group == group && row.collective == collective).map(|row| row.ran)
        };
        assert_eq!((ran("all", "all-reduce"), ran("pairs", "all-reduce")), (Some(system), Some("ring")));
        let has_all = ["canary", "switchml", "exchange"].contains(&system);
        assert_eq!(ran("all", "reduce-scatter"), Some(if has_all { system } else { "exchange" }));
        assert_eq!(ran("all", "all-to-all"), Some("exchange"));
        assert!(record.packets_dropped > 0 && record.packets_retransmitted > 0, "{system}");
    }
}

/// Who leads the last block has ended its operation before the block's sum is sent: where its queue is full of another sum, that goes when there
/// is room, without anybody asking for it.
#[test]
fn a_leader_that_has_ended_sends_its_last_sum_when_there_is_room() {
    let folder = Folder::new(
        "owes",
        r#"
workload = 1
ranks = 4
groups = [{ name = "small", size = 4 }, { name = "big", size = 4 }]
blocks = [{ name = "one", nodes = [
  { id = "think", compute = "1us", stream = "think" },
  { id = "sum", collective = "all-reduce", group = "small", bytes = "512B", element = "f32", after = ["think"] },
] }]
programs = [{ name = "all", ranks = "0-3", nodes = [
  { id = "other", collective = "all-reduce", group = "big", bytes = "4MiB", element = "f32", stream = "other" },
  { id = "sums", call = "one", times = 20 },
] }]
"#,
    );
    let lossless = "lossless = { model = \"output-queued\", input = \"64KiB\" }\n";
    let canary = "[[jobs]]\nsystem = \"canary\"\nworkload = \"step.toml\"\nreliable = false\ngroups = { big = \"ring\" }\n";
    let record = folder.run(&format!("{}{lossless}{canary}", star(4)));
    let small = job(&record).1.communication.iter().find(|row| row.group == "small").expect("it communicates");
    // Two ways over the star are 4 us; what was put into a queue before takes less than 6.
    assert!(small.operation_us.as_ref().is_some_and(|us| us.max < 30.0), "{:?}", small.operation_us);
}

#[test]
fn a_rank_whose_host_dies_is_named_with_its_group() {
    let folder = Folder::new("death", &TWO.replace("AFTER", ""));
    let plan = star(2)
        + RING
        + "patience = \"2ms\"\n[[faults.timed]]\nkind = \"host-dies\"\nhost = \"host1\"\nfrom = \"150us\"\n[run]\nexpect = \"failure\"\n";
    let record = folder.run(&plan);
    let failure = record.failure.expect("it cannot end");
    assert!(failure.contains("operation 0 of group all number 0 by ring: host0 says"), "{failure}");
    assert!(failure.contains("rank 1") && failure.contains("on host1"), "{failure}");
    assert!(record.simulated_us < 20_000.0, "in bounded time: {} us", record.simulated_us);
}

#[test]
fn a_host_that_stalls_goes_on_where_it_was() {
    let folder = Folder::new("stall", &TWO.replace("AFTER", ""));
    let undisturbed = folder.run(&(star(2) + RING));
    let stalled =
        folder.run(&(star(2) + RING + "[[faults.timed]]\nkind = \"host-stall\"\nhost = \"host1\"\nfrom = \"50us\"\nuntil = \"450us\"\n"));
    let (before, after) = (job(&undisturbed).0.iteration_us.unwrap(), job(&stalled).0.iteration_us.unwrap());
    // What it computes is over when it wakes, at 450 us.
    assert!(after > before + 200.0 && after < before + 500.0, "{before} us, then {after} us");
}

#[test]
fn jobs_come_and_go_beside_each_other() {
    let folder = Folder::new("beside", &TWO.replace("AFTER", ""));
    let network = "[network]\nshape = \"fat-tree\"\nleaves = 2\nhosts_per_leaf = 2\nspines = 1\nrate = \"100Gb/s\"\nlatency = \"1us\"\n";
    let plan = format!(
        "{network}[[jobs]]\nsystem = \"tree\"\nworkload = \"step.toml\"\nplacement = [0, 2]\n\
         [[jobs]]\nsystem = \"ring\"\nworkers = 2\nplacement = [1, 3]\nmessage = \"4MiB\"\n\
         [[jobs]]\nsystem = \"tree\"\nworkload = \"step.toml\"\nplacement = [0, 2]\njobs_per_host = 2\nstart = \"300us\"\n[run]\nalone = true\n"
    )
    .replacen("placement = [0, 2]\n", "placement = [0, 2]\njobs_per_host = 2\n", 1);
    let record = folder.run(&plan);
    assert_eq!((record.census.as_str(), &record.failure, record.jobs.len()), ("exact", &None, 3));
    let of = |job: usize| &record.jobs[job];
    assert_eq!([of(0).system, of(1).system, of(2).system], ["tree", "ring", "tree"]);
    assert!(of(0).workload.is_some() && of(1).workload.is_none() && of(2).workload.is_some());
    assert_eq!((of(0).begun_us, of(2).begun_us), (0.0, 300.0));
    // They share links between leaf and spine with the ring.
    let slowdowns: Vec<f64> = record.jobs.iter().map(|job| job.slowdown.expect("each was run by itself")).collect();
    assert!(slowdowns.iter().all(|slowdown| (0.999..3.0).contains(slowdown)), "{slowdowns:?}");
    assert!(slowdowns[1] > 1.1, "{slowdowns:?}");
}

#[test]
fn a_job_that_crashes_leaves_the_others_alone() {
    let folder = Folder::new("crash", &TWO.replace("AFTER", ""));
    let plan = star(4)
        + "[[jobs]]\nsystem = \"tree\"\nworkload = \"step.toml\"\ncrash = \"150us\"\n"
        + "[[jobs]]\nsystem = \"tree\"\nworkload = \"step.toml\"\n";
    let record = folder.run(&plan);
    assert_eq!((record.census.as_str(), &record.failure), ("exact", &None));
    assert_eq!((record.jobs[0].crashed_us, record.jobs[0].jct_us), (Some(150.0), None));
    assert!(record.jobs[1].jct_us.is_some());
}

#[test]
fn computations_are_spread_where_the_plan_says_so() {
    let folder = Folder::new("spread", &TWO.replace("AFTER", ""));
    let spread = folder.run(&(star(2) + RING + "compute_spread = \"20%\"\n"));
    let (_, workload) = job(&spread);
    assert!((workload.compute_us - 210.0).abs() > 0.1 && (168.0..252.0).contains(&workload.compute_us), "{}", workload.compute_us);
}

#[test]
fn a_model_is_a_workload_and_scales() {
    let folder = Folder::new("model", "");
    let model = "workload = { model = \"resnet50\", dp = 4, ranks_per_host = 1, gpu = \"v100\" }\n";
    let plan = |scale: &str| format!("{}[[jobs]]\nsystem = \"tree\"\n{model}{scale}", star(4));
    let record = folder.run(&plan("scale = 0.01\n"));
    let (tenth, workload) = job(&record);
    assert_eq!((workload.ranks, workload.communication[0].collective), (4, "all-reduce"));
    let record = folder.run(&plan("scale = 0.02\n"));
    let ratio = job(&record).0.iteration_us.unwrap() / tenth.iteration_us.unwrap();
    assert!((1.8..2.2).contains(&ratio), "twice as long: {ratio}");
}

/// The plan in `docs/workloads.md`.
#[test]
fn the_plan_of_the_documentation_runs() {
    let document = include_str!("../../../docs/workloads.md");
    let (_, rest) = document.split_once("```toml\n[network]\n").expect("a plan");
    let (text, _) = rest.split_once("```").expect("its end");
    let record = Folder::new("document", "").run(&format!("[network]\n{text}"));
    let (_, workload) = job(&record);
    assert!(workload.communication.iter().all(|row| row.group == "data" && row.ran == "ring"), "{:?}", workload.communication);
}

#[test]
fn a_trace_names_ranks_streams_and_groups_and_what_was_critical() {
    let folder = Folder::new("trace", &TWO.replace("AFTER", ""));
    let plan = folder.plan(&(star(2) + RING)).unwrap();
    let events = traced(&plan, None, &[]);
    let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).collect::<Vec<_>>();
    let names: Vec<&str> = of("M").iter().map(|event| event["args"]["name"].as_str().unwrap()).collect();
    let own = ["compute", "communication"];
    for (rank, part) in names.chunks(3).take(2).enumerate() {
        assert!(part[0].starts_with(&format!("rank {rank} on host")) && part[1..] == own, "{names:?}");
    }
    assert_eq!(names[6..], ["groups all"]);
    // Five steps of each rank, and two sums of the group.
    assert_eq!(of("X").len(), 12);
    let critical: Vec<&str> =
        of("X").iter().filter(|event| event["args"]["critical"] == true).map(|event| event["name"].as_str().unwrap()).collect();
    assert_eq!(critical, ["a", "b", "sum b", "update"]);
    assert_eq!(of("X")[0]["dur"], 100.0);
    // A plan without a workload has nothing to write.
    let plain = folder.plan(&format!("{}[[jobs]]\nsystem = \"ring\"\nworkers = 2\nmessage = \"1KiB\"\n", star(2))).unwrap();
    let refused = Wanted::new(&plain, None, &[]).unwrap_err().to_string();
    assert_eq!(refused, "--trace: expected a plan with a job that has a workload, or --trace-blocks or --trace-links");
}

/// Events of a plan's first run; results are those without.
fn traced(plan: &Plan, blocks: Option<&str>, links: &[&str]) -> Vec<serde_json::Value> {
    let links: Vec<String> = links.iter().map(|link| link.to_string()).collect();
    let wanted = Wanted::new(plan, blocks, &links).unwrap_or_else(|error| panic!("{error}"));
    let (finished, traced) = run::run_and_look(plan, 1, Looks { wanted: Some(&wanted), page: false }, || true).unwrap();
    let mut plain = run::run(plan, 1, || true).unwrap();
    for (with, without) in finished.into_iter().zip(&mut plain) {
        without.record.wall_s = with.record.wall_s;
        assert_eq!(format!("{:?}", with.record), format!("{:?}", without.record));
        assert_eq!(format!("{:?}", with.links), format!("{:?}", without.links));
    }
    let mut text = Vec::new();
    let traced = traced.expect("the first run was looked at");
    assert_eq!(traced.blocks_left_out().0, 0);
    traced.write(&mut text).unwrap();
    let trace: serde_json::Value = serde_json::from_slice(&text).unwrap();
    trace["traceEvents"].as_array().unwrap().clone()
}

/// Four blocks of a sum over two hosts by a tree's one switch.
#[test]
fn blocks_and_queues_of_a_trace_are_those_of_arithmetic() {
    let folder = Folder::new("trace-blocks", "");
    let text = "[[jobs]]\nsystem = \"tree\"\nworkers = 2\nplacement = \"packed\"\nmessage = \"4KiB\"\noperations = 2\n";
    let plan = folder.plan(&(star(2) + text)).unwrap();
    let events = traced(&plan, Some("0:0"), &["host0-switch0", "switch0-host1"]);
    let of = |kind: &str| events.iter().filter(|event| event["ph"] == kind).collect::<Vec<_>>();
    let names: Vec<&str> = of("M").iter().map(|event| event["args"]["name"].as_str().unwrap()).collect();
    let about = "blocks of job 0, operation 0: rank";
    assert_eq!(names, [&format!("{about} 0 on host0"), &format!("{about} 1 on host1"), "queues before links (bytes)"]);
    let spans = of("X");
    assert_eq!(spans.len(), 8, "four blocks at each of two ranks");
    for (index, span) in spans.iter().enumerate() {
        // All are sent at once. Block 0 crosses two links; each further one is a frame later.
        let (block, ends_us) = (index % 4, (index % 4) as f64 * FRAME_US + 2.0 * FRAME_US + 2.0);
        assert_eq!((span["name"].as_str(), span["pid"].as_u64()), (Some(&*format!("block {block}")), Some(1 + index as u64 / 4)));
        assert_eq!((span["ts"].as_f64(), span["tid"].as_u64()), (Some(0.0), Some(1 + block as u64)));
        assert_close(span["dur"].as_f64(), ends_us, "a block");
    }
    let queue = |name: &str| {
        let own = of("C").into_iter().filter(|event| event["name"] == name);
        own.map(|event| (event["ts"].as_f64().unwrap(), event["args"]["bytes"].as_u64().unwrap())).collect::<Vec<_>>()
    };
    // Four frames at once, of which 1,250 bytes are sent in each 100 ns.
    let host = queue("host0-switch0");
    assert_eq!(host[..5], [(0.0, 4 * 1_081), (0.1, 4_324 - 1_250), (0.2, 4_324 - 2_500), (0.3, 4_324 - 3_750), (0.4, 0)]);
    // Results leave as they come: one frame at a time, the first when a frame and a link's delay are over. A peak of each interval is shown.
    let switch = queue("switch0-host1");
    assert_eq!(switch[..2], [(0.0, 0), (1.0, 1_081)]);
    assert!(switch.iter().all(|(_, bytes)| *bytes <= 1_081), "{switch:?}");
}

#[test]
fn blocks_of_a_groups_collective_are_within_it() {
    let folder = Folder::new("trace-group", &TWO.replace("AFTER", "\"sum a\""));
    let plan = folder.plan(&(star(2) + RING)).unwrap();
    let sum_us = plain_sum_us();
    for (number, begins_us) in [(0, 100.0), (1, 200.0 + sum_us)] {
        let events = traced(&plan, Some(&format!("0:all:{number}")), &[]);
        let name = |event: &serde_json::Value| event["name"].as_str().unwrap_or_default().to_string();
        let blocks: Vec<_> = events.iter().filter(|event| name(event).starts_with("block ")).collect();
        assert_eq!(blocks.len(), 2 * 1_024, "1 MiB in packets of 1 KiB, at two ranks");
        for block in blocks {
            let (ts, dur) = (block["ts"].as_f64().unwrap(), block["dur"].as_f64().unwrap_or(0.0));
            assert!(ts >= begins_us - 2e-5 && ts + dur <= begins_us + sum_us + 2e-5, "{number}: {block}");
        }
    }
}

/// A block of an all-to-all is one packet from one rank to another: a span at who gets it, from when it was sent on.
#[test]
fn blocks_of_an_all_to_all_are_spans_from_sender_to_receiver() {
    let folder = Folder::new(
        "trace-all-to-all",
        "workload = 1\nranks = 2\ngroups = [{ name = \"all\", size = 2 }]\nprograms = [{ name = \"all\", ranks = \"0-1\", nodes = [\n\
         { id = \"x\", collective = \"all-to-all\", group = \"all\", bytes = \"4KiB\", element = \"u8\" },\n] }]\n",
    );
    let plan = folder.plan(&(star(2) + "[[jobs]]\nsystem = \"exchange\"\nworkload = \"step.toml\"\nplacement = \"packed\"\n")).unwrap();
    let events = traced(&plan, Some("0:all:0"), &[]);
    let who = |rank: u32| format!("rank {rank} on host{rank}");
    let process = |rank: u32| {
        let name = format!("blocks of job 0, all, collective 0: {}", who(rank));
        events.iter().find(|event| event["args"]["name"] == *name).unwrap_or_else(|| panic!("{name}: {events:?}"))["pid"].clone()
    };
    for (rank, other) in [(0, 1), (1, 0)] {
        let own: Vec<_> = events.iter().filter(|event| event["ph"] == "X" && event["pid"] == process(rank)).collect();
        // Half of the vector is the other's: two packets. The other half stays.
        assert_eq!(own.len(), 2, "{own:?}");
        for (index, span) in (0..).zip(&own) {
            assert_eq!(span["args"]["from"], *who(other));
            // Both are sent at once: the second one waits for the first.
            assert_close(span["dur"].as_f64(), f64::from(index) * FRAME_US + 2.0 * FRAME_US + 2.0, "a block");
        }
    }
}

#[test]
fn what_a_trace_cannot_have_is_refused_with_what_it_can() {
    let folder = Folder::new("trace-refused", &TWO.replace("AFTER", ""));
    let text = "[[jobs]]\nsystem = \"tree\"\nworkers = 2\nmessage = \"4KiB\"\n";
    let plan = folder.plan(&(star(5) + RING + text)).unwrap();
    let refused = |blocks: &str| Wanted::new(&plan, Some(blocks), &[]).expect_err(blocks).to_string();
    for (blocks, expected) in [
        ("0", "JOB:GROUP:NUMBER for a job with a workload, JOB:NUMBER for another one"),
        ("2:0", "a job from 0 to 1 first, as JOB:GROUP:NUMBER for a job with a workload, JOB:NUMBER for another one"),
        ("x:0", "a job from 0 to 1 first, as JOB:GROUP:NUMBER for a job with a workload, JOB:NUMBER for another one"),
        ("0:0", "JOB:GROUP:NUMBER, since job 0 has a workload"),
        ("0:data:0", "one of the job's groups: all"),
        ("0:all/1:0", "a group from all/0 to all/0"),
        ("0:all:2", "a collective of the group from 0 to 1"),
        ("0:all:-1", "a collective of the group from 0 to 1"),
        ("1:all:0", "an operation from 0 to 0 of job 1, as JOB:NUMBER: it has no workload"),
        ("1:1", "an operation from 0 to 0 of job 1, as JOB:NUMBER: it has no workload"),
    ] {
        assert_eq!(refused(blocks), format!("--trace-blocks {blocks}: expected {expected}"));
    }
    let link = Wanted::new(&plan, None, &["host0-leaf0".into()]).unwrap_err().to_string();
    let expected = "host0-switch0, host1-switch0, host2-switch0, host3-switch0";
    assert_eq!(link, format!("--trace-links host0-leaf0: expected the two ends of a link, as {expected}"));
}

#[test]
fn a_workload_may_stand_in_the_plan_itself() {
    let plan = format!(
        "{}[[jobs]]\nsystem = \"tree\"\n[jobs.workload]\nworkload = 1\nranks = 2\ngroups = [{{ name = \"all\", size = 2 }}]\n\
         programs = [{{ name = \"all\", ranks = \"0-1\", nodes = [{{ id = \"sum\", collective = \"all-reduce\", group = \"all\", \
         bytes = \"1KiB\", element = \"f32\" }}] }}]\n",
        star(2)
    );
    let record = Folder::new("inline", "").run(&plan);
    assert_eq!(job(&record).1.communication[0].ran, "tree");
}

#[test]
fn what_does_not_fit_is_refused_by_its_key() {
    let folder = Folder::new("refused", &TWO.replace("AFTER", ""));
    let job = |keys: &str| format!("{}[[jobs]]\nsystem = \"ring\"\n{keys}", star(4));
    let with = |keys: &str| folder.refused(&job(&format!("workload = \"step.toml\"\n{keys}")));
    assert!(with("message = \"1MiB\"\n").contains("jobs[0].workload = \"step.toml\": expected no message beside it"));
    assert!(with("workers = 3\n").contains("jobs[0].workers = 3: expected 2, the hosts of the workload"));
    assert!(with("placement = [0, 1, 2]\n").contains("jobs[0].placement = [0, 1, 2]: expected 2 hosts"));
    assert!(with("groups = { al = \"tree\" }\n").contains("jobs[0].groups.al = tree: expected a group of the workload: all"));
    assert!(with("groups = { all = \"flare\" }\n").contains("jobs[0].groups.all = flare: expected a system whose vectors are dense"));
    assert!(with("groups = { all = \"tre\" }\n").contains("jobs[0].groups.all"));
    assert!(with("servers = 1\n").contains("jobs[0].servers = 1: expected no such key without a system that has servers"));
    assert!(with("local_rate = \"1Gb/s\"\n").contains("jobs[0].local_rate = \"1Gb/s\": expected no such key where every rank has a host"));
    assert!(with("[run]\nseries_interval = \"1us\"\n").contains("run.series_interval = \"1us\": expected no such key"));
    assert!(folder.refused(&job("workers = 2\nmessage = \"1MiB\"\nlocal_rate = \"1Gb/s\"\n")).contains("jobs[0].local_rate"));
    let missing = folder.refused(&job("workload = \"none.toml\"\n"));
    assert!(missing.contains("jobs[0].workload = \"none.toml\": expected a file that can be read"), "{missing}");
    let model = folder.refused(&job("workload = { model = \"resnet\" }\n"));
    assert!(model.contains("jobs[0].workload") && model.contains("resnet"), "{model}");
    fs::write(folder.0.join("step.toml"), TWO.replace("AFTER", "\"nobody\"")).unwrap();
    let damaged = with("");
    assert!(damaged.contains("/plan.toml:8: jobs[0].workload") && damaged.contains("step.toml:8"), "{damaged}");
    let uneven = r#"
workload = 1
ranks = 3
hosts = "0, 0, 1"
groups = [{ name = "all", size = 3 }]
programs = [{ name = "all", ranks = "0-2", nodes = [
  { id = "x", collective = "reduce-scatter", group = "all", bytes = "12B", element = "f32" },
] }]
"#;
    fs::write(folder.0.join("step.toml"), uneven).unwrap();
    assert!(with("").contains("jobs[0].groups.all = \"ring\": expected as many members on each host for reduce-scatter"), "{}", with(""));
    let crossed = r#"
workload = 1
ranks = 2
groups = [{ name = "all", size = 2 }]
programs = [{ name = "all", ranks = "0-1", nodes = [
  { id = "x", collective = "all-reduce", group = "all", bytes = "12B", element = "f32", stream = "", after = ["y"] },
  { id = "y", collective = "all-reduce", group = "all", bytes = "12B", element = "f32", stream = "" },
] }]
"#;
    fs::write(folder.0.join("step.toml"), crossed).unwrap();
    let refused = with("");
    assert!(refused.contains("collectives of a group in an order in which they can run"), "{refused}");
}

/// Each host sends to all others, in turn to the next one and the one behind it: what comes to a host fills its link, and no queue overflows,
/// though nobody marks packets and the window alone is as long as half of a queue.
#[test]
fn an_all_to_all_fills_the_network_and_no_queue() {
    let step = "workload = 1\nranks = 32\ngroups = [{ name = \"all\", size = 32 }]\nprograms = [{ name = \"all\", ranks = \"0-31\", nodes = [\n  \
                { id = \"x\", collective = \"all-to-all\", group = \"all\", bytes = \"4MiB\", element = \"f32\" },\n] }]\n";
    // 31 of 32 parts leave each host; with half as many uplinks as hosts, 24 of 32 parts pass them at half of the rate.
    let bytes = f64::from(4 << 20) / 1_024.0 * 1_081.0;
    let fat_tree = "[network]\nshape = \"fat-tree\"\nleaves = 4\nhosts_per_leaf = 8\nspines = 4\nrate = \"RATE\"\nlatency = \"300ns\"\n";
    let star = "[network]\nshape = \"star\"\nhosts = 32\nrate = \"RATE\"\nlatency = \"300ns\"\n";
    // Of eight messages at a time some meet on an uplink, and others have one to themselves: flows are hashed.
    let cases = [(star, 31.0 / 32.0, 100.0, 1.15), (star, 31.0 / 32.0, 10.0, 1.15), (fat_tree, 2.0 * 24.0 / 32.0, 100.0, 2.5)];
    for (network, share, rate, most) in cases {
        let network = network.replace("RATE", &format!("{rate}Gb/s"));
        let plan = format!("{network}[[jobs]]\nsystem = \"exchange\"\nworkload = \"step.toml\"\n");
        let record = Folder::new("all-to-all", step).run(&plan);
        let (job, _) = job(&record);
        let ideal_us = bytes * share * 8.0 / (rate * 1e3);
        let ratio = job.iteration_us.unwrap() / ideal_us;
        assert!((1.0..most).contains(&ratio), "{rate} Gb/s: {ratio} times as long as the links need");
        assert_eq!(record.drops.get("queue_full"), None, "{rate} Gb/s");
    }
}
