//! Wrong workloads: the error names file, line, key, value and what was expected.

use fanin_core::{
    Body, Collective, Egress, Event as CoreEvent, FailureReason, Instant, OpError, OperationId, Pair, Payload, Piece, Tx, Worker as _,
};
use fanin_systems::AnyHeader;

use super::*;
use crate::host::messages::{Operations, Order};

const FABRIC: &str = "[defaults]\nrate = \"100Mb/s\"\n[leaf_spine]\nleaves = 2\nspines = 2\nhosts_per_leaf = 3\n";

/// A workload whose line 7 is `job[0].message`.
const GOOD: &str = r#"[run]
seed = 7

[[job]]
system = "canary"
hosts = ["host0", "host1", "host3", "host4"]
message = "1MiB"
timeout = "5ms"
operations = 3

[[traffic]]
from = "host2"
to = "host5"
rate = "75%"
via = "spine0"

[faults]
loss = "1%"

[[event]]
action = "kill"
node = "spine0"
progress = "50%"
operation = 1

[[event]]
action = "restart"
node = "spine0"
progress = "50%"
operation = 1
after = "1s"
"#;

/// The head of the job, and that of one that has a server.
const CANARY: &str = "system = \"canary\"\nhosts = [\"host0\", \"host1\", \"host3\", \"host4\"]\nmessage = \"1MiB\"\ntimeout = \"5ms\"";
const ATP: &str = "system = \"atp\"\nhosts = [\"host0\", \"host1\", \"host3\", \"host4\"]\nmessage = \"1MiB\"";

/// Two jobs on three hosts each; what is said of the first and of the second, and of the switches.
fn two(first: &str, second: &str, rest: &str) -> Result<Workload, PlanError> {
    let text = format!(
        "[[job]]\nmessage = 4000\nhosts = [\"host0\", \"host3\"]\n{first}\n[[job]]\nmessage = 4000\nhosts = [\"host1\", \"host4\"]\n{second}\n{rest}"
    );
    Workload::parse("w.toml", &text, &[], &fabric())
}

fn fabric() -> Fabric {
    Fabric::parse("fabric.toml", FABRIC).unwrap()
}

#[test]
fn what_is_written_is_what_is_run() {
    let workload = Workload::parse("w.toml", GOOD, &[], &fabric()).unwrap();
    let [job] = workload.jobs.as_slice() else { panic!("{workload:?}") };
    assert!(matches!(job.system, System::Canary(canary) if canary.timeout_ps == 5_000_000_000), "{job:?}");
    assert_eq!((job.common.message, job.op, job.hosts.len()), (Bytes(1 << 20), ElementOp::F32_SUM, 4));
    assert_eq!(workload.general.traffic[0].rate.bits_per_second(100_000_000), 75_000_000);
    assert_eq!(workload.general.faults.loss, Fraction(0.01));
    assert_eq!(workload.general.event[1].after, Time(Duration::from_ms(1_000)));
    assert_eq!(workload.general.run.seed, 7);
}

#[test]
fn all_hosts_are_those_of_the_fabric() {
    let text = "[[job]]\nsystem = \"tree\"\nmessage = 4\n[faults]\nloss = 0.05\n";
    let workload = Workload::parse("w.toml", text, &[], &fabric()).unwrap();
    assert_eq!(workload.jobs[0].hosts, ["host0", "host1", "host2", "host3", "host4", "host5"]);
    assert_eq!(workload.general.faults.loss, Fraction(0.05));
}

#[test]
fn what_the_command_line_sets_takes_the_place_of_what_is_written() {
    let set = |text: &str| Workload::parse("w.toml", GOOD, &[text.to_string()], &fabric());
    assert_eq!(set("job.0.message=64MiB").unwrap().jobs[0].common.message, Bytes(64 << 20));
    assert!(!set("traffic.0.enabled=false").unwrap().general.traffic[0].enabled);
    let error = set("job.0.message=5").unwrap_err().to_string();
    assert_eq!(error, "w.toml: --set job.0.message=5: job[0].message = 5: expected a multiple of 4 bytes, the length of an element");
}

/// A line of the workload, what takes its place, and the error.
const WRONG: &[(&str, &str, &str)] = &[
    ("message = \"1MiB\"", "message = \"1mb\"", "w.toml:7: job[0].message = \"1mb\": expected bytes, such as 1024, \"100kB\" or \"4MiB\""),
    ("message = \"1MiB\"", "message = 6", "w.toml:7: job[0].message = 6: expected a multiple of 4 bytes, the length of an element"),
    ("message = \"1MiB\"", "", "w.toml:4: job[0].message is missing: it has no default"),
    ("message = \"1MiB\"", "message = \"8GiB\"", "w.toml:7: job[0].message = \"8GiB\": expected at most 4GiB"),
    ("operations = 3", "payload = 70000", "w.toml:9: job[0].payload = 70000: expected 1 to 65000 bytes"),
    ("operations = 3", "operator = \"mean\"", "w.toml:9: job[0].operator = \"mean\": expected an operator (no operator is called `mean`"),
    ("operations = 3", "servers = [\"host2\"]", "w.toml:9: job[0].servers = [\"host2\"]: expected 0: canary has no servers"),
    (
        "operations = 3",
        "servers = [\"leaf0\"]",
        "w.toml:9: job[0].servers[0] = \"leaf0\": expected one of the fabric's hosts: host0, host1",
    ),
    ("operations = 3", "servers = \"host2\"", "w.toml:9: job[0].servers = \"host2\": expected a list"),
    (
        "operations = 3",
        "servers = [\"host1\"]",
        "w.toml:9: job[0].servers[0] = \"host1\": expected a host without a worker of the job; without servers it is at the host of rank 0",
    ),
    ("operations = 3", "window = 0", "w.toml:9: job[0].window = 0: expected a whole number of 1 or more"),
    ("operations = 3", "start = \"soon\"", "w.toml:9: job[0].start = \"soon\": expected a time"),
    ("operations = 3", "operator = \"xor\"", "w.toml:9: job[0].operator = \"xor\": expected "),
    (
        "system = \"canary\"",
        "system = \"canari\"",
        "w.toml:5: job[0].system = \"canari\": expected \"ring\" or \"tree\" or \"canary\" or \"switchml\"",
    ),
    ("timeout = \"5ms\"", "timout = \"5ms\"", "w.toml:8: job[0].timout = \"5ms\": unknown key; did you mean timeout?"),
    ("\"host4\"]", "\"host9\"]", "w.toml:6: job[0].hosts[3] = \"host9\": expected one of the fabric's hosts: host0, host1"),
    ("\"host4\"]", "\"leaf0\"]", "w.toml:6: job[0].hosts[3] = \"leaf0\": expected one of the fabric's hosts: host0, host1"),
    ("\"host4\"]", "\"host1\"]", "w.toml:6: job[0].hosts[3] = \"host1\": expected each host once"),
    (
        "hosts = [\"host0\", \"host1\", \"host3\", \"host4\"]",
        "hosts = \"some\"",
        "w.toml:6: job[0].hosts = \"some\": expected \"all\" or a list",
    ),
    (
        "operations = 3",
        "[[job]]\nsystem = \"ring\"\nmessage = 4\nhosts = [\"host3\"]",
        "w.toml:12: job[1].hosts[0] = \"host3\": expected a host without a worker: job[0] has one there",
    ),
    ("from = \"host2\"", "from = \"spine0\"", "w.toml:12: traffic[0].from = \"spine0\": expected one of the fabric's hosts"),
    ("to = \"host5\"", "to = \"host2\"", "w.toml:13: traffic[0].to = \"host2\": expected another host than the one that sends"),
    ("to = \"host5\"", "to = \"host1\"", "w.toml:15: traffic[0].via = \"spine0\": expected no such key: host2 and host1 are on one leaf"),
    (
        "rate = \"75%\"",
        "rate = \"2Gb/s\"",
        "w.toml:14: traffic[0].rate = \"2Gb/s\": expected at most the rate of host2's link, 100000000 b/s",
    ),
    ("rate = \"75%\"", "rate = \"0%\"", "w.toml:14: traffic[0].rate = \"0%\": expected bits per second or a share of the sender's link"),
    ("rate = \"75%\"", "rate = 75", "w.toml:14: traffic[0].rate = 75: expected bits per second or a share of the sender's link"),
    ("via = \"spine0\"", "via = \"leaf1\"", "w.toml:15: traffic[0].via = \"leaf1\": expected a switch above leaf0: spine0, spine1"),
    ("via = \"spine0\"", "start = \"2s\"\nstop = \"1s\"", "w.toml:16: traffic[0].stop = \"1s\": expected a time after start"),
    ("loss = \"1%\"", "loss = \"101%\"", "w.toml:18: faults.loss = \"101%\": expected a number from 0 to 1 or a percentage"),
    ("action = \"kill\"", "action = \"slap\"", "w.toml:21: event[0].action = \"slap\": expected \"kill\" or \"restart\""),
    (
        "action = \"kill\"",
        "action = \"pause\"",
        "w.toml:27: event[1].action = \"restart\": expected a kill of spine0 in an event above this one",
    ),
    ("node = \"spine0\"", "node = \"spine7\"", "w.toml:22: event[0].node = \"spine7\": expected one of the fabric's nodes: host0"),
    ("operation = 1", "operation = 3", "w.toml:24: event[0].operation = 3: expected an operation from 0 to 2"),
    ("operation = 1", "job = 1", "w.toml:24: event[0].job = 1: expected a job from 0 to 0"),
    ("operation = 1", "at = \"1s\"", "w.toml:23: event[0].progress = \"50%\": expected either at, a time, or progress"),
    (
        "progress = \"50%\"\noperation = 1\n\n",
        "at = \"1s\"\noperation = 1\n\n",
        "w.toml:24: event[0].operation = 1: expected no such key without",
    ),
    (
        "system = \"canary\"\nhosts = [\"host0\", \"host1\", \"host3\", \"host4\"]\nmessage = \"1MiB\"\ntimeout = \"5ms\"",
        "system = \"tree\"\nmessage = 4",
        "w.toml:21: event[0].progress = \"50%\": expected at, a time: workers of tree do not say how far they are",
    ),
    ("seed = 7", "sead = 7", "w.toml:2: run.sead = 7: unknown key; did you mean seed?"),
    ("seed = 7", "time_limit = \"0s\"", "w.toml:2: run.time_limit = \"0s\": expected a time above 0"),
    ("seed = 7", "series_interval = \"1ms\"", "w.toml:2: run.series_interval = \"1ms\": expected at least 10ms"),
    ("[faults]", "[fault]", "w.toml:17: fault = { loss = \"1%\" }: unknown key; did you mean faults?"),
    ("[[job]]", "[[jobs]]", "did you mean job?"),
];

#[test]
fn every_wrong_workload_is_refused_in_words_that_lead_to_the_place() {
    for (line, replacement, expected) in WRONG {
        assert!(GOOD.contains(line), "{line}");
        let text = GOOD.replacen(line, replacement, 1);
        let error = Workload::parse("w.toml", &text, &[], &fabric()).expect_err(replacement).to_string();
        assert!(error.contains(expected), "{replacement}\n  is     {error}\n  not    {expected}");
    }
    let error = Workload::parse("w.toml", "[run]\nseed = 1\n", &[], &fabric()).unwrap_err().to_string();
    assert!(error.contains("job is missing"), "{error}");
    let error = Workload::load(Path::new("/nowhere/w.toml"), &[], &fabric()).unwrap_err().to_string();
    assert!(error.starts_with("/nowhere/w.toml: cannot be read"), "{error}");
}

#[test]
fn jobs_with_servers_are_what_the_registry_makes_of_them() {
    let read = |job: &str| Workload::parse("w.toml", &GOOD.replacen(CANARY, job, 1), &[], &fabric());
    let apart = read(&format!("{ATP}\nservers = [\"host5\"]")).unwrap();
    let announced = apart.jobs[0].announcement(0, &fabric(), 1);
    assert_eq!((announced.hosts.as_slice(), announced.servers.as_slice()), ([0, 1, 3, 4].as_slice(), [5].as_slice()));
    let within = read(ATP).unwrap().jobs[0].announcement(0, &fabric(), 1);
    assert!(within.servers.is_empty() && within.server_at(fanin_core::NodeId(0)).is_some());
    let refused = |more: &str| read(&format!("{ATP}\n{more}")).unwrap_err().to_string();
    let several = read(&format!("{ATP}\nservers = [\"host2\", \"host5\"]")).unwrap().jobs[0].announcement(0, &fabric(), 1);
    assert!([2, 5].into_iter().all(|host| several.server_at(fanin_core::NodeId(host)).is_some()));
    let twice = refused("servers = [\"host2\", \"host2\"]");
    assert!(twice.ends_with("job[0].servers[1] = \"host2\": expected each host once"), "{twice}");
    let expected = "w.toml:8: job[0].fixed_point = true: expected false, unless elements are 32-bit floats that are summed or averaged";
    assert_eq!(refused("fixed_point = true\nelement = \"i32\""), expected);
    assert_eq!(refused("fixed_point = true\noperator = \"max\""), expected);
    assert!(read(&format!("{ATP}\nfixed_point = true\noverflow = \"5%\"")).is_ok());
    assert_eq!(refused("overflow = 0.5"), "w.toml:8: job[0].overflow = 0.5: expected 0 without fixed_point");
    let expected = "w.toml:8: job[0].reliable = false: expected true: without timers atp can wait for ever after a collision";
    assert_eq!(refused("reliable = false"), expected);
}

#[test]
fn jobs_divide_or_share_the_aggregators_of_a_switch() {
    let windows = |workload: Workload| workload.jobs.iter().map(|job| job.common.window.0).collect::<Vec<u32>>();
    let (switchml, atp, a2tp) = ("system = \"switchml\"", "system = \"atp\"", "system = \"a2tp\"");
    let pool = "[switches]\naggregators = 40";
    assert_eq!(windows(two(switchml, switchml, pool).unwrap()), [20, 20]);
    assert_eq!(windows(two(switchml, switchml, &format!("{pool}\nslot_versions = 2")).unwrap()), [10, 10]);
    assert_eq!(windows(two(switchml, "system = \"tree\"", pool).unwrap()), [40, 64]);
    let shared = two(atp, a2tp, pool).unwrap();
    assert!(matches!(shared.jobs[0].system, System::Atp(parameters) if parameters.aggregators == 40));
    assert!(matches!(shared.jobs[1].system, System::A2tp(parameters) if parameters.aggregators == 40));
    let refused = |first: &str, second: &str, rest: &str| two(first, second, rest).unwrap_err().to_string();
    let few = refused(switchml, switchml, "[switches]\naggregators = 1");
    assert_eq!(few, "w.toml:10: switches.aggregators = 1: expected at least 2, one for each version of a slot of each job of switchml");
    let versions = |text: &str| refused(switchml, switchml, &format!("[switches]\n{text}"));
    assert_eq!(versions("slot_versions = 2"), "w.toml:10: switches.slot_versions = 2: expected no such key without aggregators");
    assert_eq!(versions("aggregators = 40\nslot_versions = 3"), "w.toml:11: switches.slot_versions = 3: expected 1 or 2");
    assert_eq!(versions("aggregators = 0"), "w.toml:10: switches.aggregators = 0: expected a whole number of 1 or more");
    let twice = refused(atp, "system = \"a2tp\"\naggregators = 9", pool);
    assert_eq!(twice, "w.toml:9: job[1].aggregators = 9: expected no such key beside switches.aggregators");
    let others = refused(atp, "system = \"a2tp\"\naggregators = 9", "");
    assert_eq!(others, "w.toml:9: job[1].aggregators = 9: expected 450, as job[0] has it: they share the aggregators of their switches");
    let none = refused("system = \"tree\"", "system = \"ring\"", pool);
    assert_eq!(none, "w.toml:10: switches.aggregators = 40: expected no such key without a job of canary, switchml, atp or a2tp");
    let canary = "system = \"canary\"";
    let arrays = |workload: Workload| -> Vec<(u32, bool)> {
        let array = |job: &Job| if let System::Canary(own) = job.system { (own.descriptors, own.shared) } else { (0, false) };
        workload.jobs.iter().map(array).collect()
    };
    assert_eq!(arrays(two(canary, canary, pool).unwrap()), [(40, true); 2]);
    let statically = "system = \"canary\"\ntable = \"static\"";
    assert_eq!(arrays(two(statically, statically, pool).unwrap()), [(20, false); 2]);
    let twice = refused(canary, "system = \"canary\"\ndescriptors = 9", pool);
    assert_eq!(twice, "w.toml:9: job[1].descriptors = 9: expected no such key beside switches.aggregators");
    let unlike = refused("system = \"canary\"\nshared = true", "system = \"canary\"\nshared = true\ndescriptors = 9", "");
    assert!(
        unlike.ends_with("job[1].descriptors = 9: expected 32768, as job[0] has it: they share the descriptors of their switches"),
        "{unlike}"
    );
    let longer = refused("system = \"atp\"\npayload = 400", a2tp, "");
    assert_eq!(longer, "w.toml:6: job[1].payload = 1408: expected at most 400, the length of the aggregators that job[0] brings");
    let fixed = refused(switchml, "system = \"switchml\"\nfixed_point = true\nelement = \"f16\"", "");
    assert!(fixed.starts_with("w.toml:9: job[1].fixed_point = true: expected false"), "{fixed}");
}

/// Every key that the program knows is in the documentation; the program itself says which it knows.
#[test]
fn every_key_is_documented() {
    let documentation = include_str!("../../../../docs/testbed.md");
    for (line, replacement) in [
        ("seed = 7", "zzz = 1"),
        ("rate = \"75%\"", "zzz = 1"),
        ("loss = \"1%\"", "zzz = 1"),
        ("action = \"kill\"", "zzz = 1"),
        ("after = \"1s\"", "[switches]\nzzz = 1"),
    ] {
        let error = Workload::parse("w.toml", &GOOD.replacen(line, replacement, 1), &[], &fabric()).unwrap_err().to_string();
        let (_, keys) = error.split_once("expected one of ").or_else(|| error.split_once("Expected one of ")).expect(&error);
        for key in keys.split(", ") {
            assert!(documentation.contains(&format!("`{key}`")), "{key} is not documented");
        }
    }
    for key in JOB_KEYS {
        assert!(documentation.contains(&format!("`{key}`")), "{key} is not documented");
    }
}

/// Sends nothing, and has no vectors.
struct Nowhere;

impl Tx<AnyHeader, [u8]> for Nowhere {
    fn send(&mut self, _to: Egress<'_>, _header: &AnyHeader, _body: Body<'_, [u8]>) {}
    fn room(&mut self, _to: Egress<'_>) -> bool {
        false
    }
    fn note(&mut self, _event: CoreEvent) {}
    fn contribute(&mut self, _piece: Piece, _accumulator: &mut <[u8] as Payload>::Acc, _first: bool) -> Result<(), OpError> {
        Ok(())
    }
    fn fold(&mut self, _piece: Piece, _payload: &[u8]) -> Result<(), OpError> {
        Ok(())
    }
    fn deliver(&mut self, _piece: Piece, _body: Body<'_, [u8]>) -> Result<(), OpError> {
        Ok(())
    }
    fn read_pairs(&mut self, _piece: Piece, _pairs: &mut Vec<Pair>) -> Result<(), OpError> {
        Ok(())
    }
}

/// Why a job's nodes or its workers refuse an operation that was found right.
fn refusal(job: &Job, fabric: &Fabric) -> Option<String> {
    let mut nodes = match job.announcement(0, fabric, 1).nodes(&fabric.map) {
        Ok(nodes) => nodes,
        Err(error) => return Some(error.to_string()),
    };
    let call = Operations { kind: job.common.collective, elements: 0, count: 1, root: 0 }.call();
    let elements = job.common.message.0 / job.op.dtype.bytes() as u64;
    nodes.workers.iter_mut().find_map(|worker| {
        let collective = Collective { kind: call.into(), ..Collective::allreduce(OperationId(0), elements) };
        worker.node.submit(Instant::ZERO, collective, &mut Nowhere);
        let failure = worker.node.poll()?.result.err()?;
        (failure.reason == FailureReason::Refused).then(|| failure.to_string())
    })
}

/// What `--check` finds right no worker refuses: all systems, with all collectives, operators, types, lengths and what changes what they take.
#[test]
fn what_is_found_right_is_not_refused_when_it_runs() {
    let (fabric, mut right, mut wrong) = (fabric(), 0, std::collections::BTreeMap::<String, u32>::new());
    let extras = ["", "fixed_point = true", "density = 0.1", "barrier = true", "mode = \"streaming\"", "reliable = false"];
    let kinds = ["allreduce", "reduce", "broadcast", "barrier", "reduce-scatter", "all-gather"];
    let operations = [("f32", "sum"), ("f32", "avg"), ("i32", "max"), ("f64", "prod")];
    let mut texts = Vec::new();
    for (system, extra) in System::NAMES.iter().flat_map(|system| extras.map(|extra| (system, extra))) {
        for (kind, (element, operator)) in kinds.iter().flat_map(|kind| operations.map(|operation| (kind, operation))) {
            for (message, hosts) in
                [(0, "\"all\""), (4_000, "\"all\""), (4_800, "\"all\""), (4_800, "[\"host0\"]"), (8, "[\"host0\", \"host3\"]")]
            {
                let sizes = format!("hosts = {hosts}\nmessage = {message}\nelement = \"{element}\"\noperator = \"{operator}\"");
                texts.push(format!("[[job]]\nsystem = \"{system}\"\ncollective = \"{kind}\"\n{sizes}\n{extra}\n"));
            }
        }
    }
    for text in texts {
        match Workload::parse("w.toml", &text, &[], &fabric) {
            Ok(workload) => {
                right += 1;
                assert_eq!(refusal(&workload.jobs[0], &fabric), None, "{text}");
            }
            Err(error) => *wrong.entry(error.to_string().split(" = ").next().unwrap_or_default().to_string()).or_default() += 1,
        }
    }
    assert!(right > 300, "{right} are right, {wrong:?}");
    for key in ["job[0].collective", "job[0].message", "job[0].operator"] {
        assert!(wrong.keys().any(|words| words.contains(key)), "{key}: {wrong:?}");
    }
}

#[test]
fn a_collective_that_a_system_has_not_is_refused_by_key_value_and_what_it_has() {
    let words = |job: &str| Workload::parse("w.toml", &format!("[[job]]\n{job}\n"), &[], &fabric()).unwrap_err().to_string();
    let error = words("system = \"flare\"\ndensity = 0.1\nmessage = 4000\ncollective = \"reduce\"");
    assert!(error.contains("job[0].collective = \"reduce\": expected allreduce, the one that flare has"), "{error}");
    let error = words("system = \"canary\"\nmessage = \"64KiB\"\ncollective = \"barrier\"");
    assert!(error.contains("job[0].message = \"64KiB\": expected 0 with collective = \"barrier\""), "{error}");
    let error = words("system = \"switchml\"\nmessage = 4000\ncollective = \"all-gather\"");
    assert!(error.contains("job[0].message = 4000: expected a multiple of 24 bytes"), "{error}");
    let error = words("system = \"ring\"\nmessage = 4000\noperator = \"avg\"");
    assert!(error.contains("job[0].operator = \"avg\": expected one that needs no division"), "{error}");
}

/// Whatever a workload says, it is taken or refused with words. An ordinary test runs what a fuzzer has found (`make fuzz`).
#[test]
fn workloads_fuzzed() {
    let fabric = fabric();
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        if let Err(error) = Workload::parse("/no/such/folder/w.toml", text, &[], &fabric) {
            assert!(!error.to_string().is_empty());
        }
    });
}

/// What a host is told by whoever conducts: an order, which leads back to the same, or words.
#[test]
fn orders_fuzzed() {
    bolero::check!().with_iterations(0).for_each(|bytes: &[u8]| {
        if let Ok(order) = serde_json::from_slice::<Order>(bytes) {
            let again = serde_json::to_vec(&order).expect("numbers and text");
            assert_eq!(serde_json::from_slice::<Order>(&again).ok(), Some(order));
        }
    });
}
