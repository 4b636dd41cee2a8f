//! `fanin testbed` as its users meet it: what `docs/testbed.md` says is what happens, and nothing is left behind, however a run ends.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

use common::{folder, refused};
use serde_json::Value;

/// Each run is a dozen processes: one at a time, so that they wait for packets and not for each other's processors.
static MACHINE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    MACHINE.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn testbed(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_fanin"));
    command.current_dir(repository()).arg("testbed").args(arguments).env_remove("RUST_LOG").env_remove("RUST_BACKTRACE");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

const FABRIC: &str = "examples/testbed/fabric.toml";

/// Runs a workload of one's own, which must end well, and gives its results.
fn results(workload: &Path, arguments: &[&str]) -> Value {
    let output = testbed(&[FABRIC, workload.to_str().unwrap(), "--format", "json"]).args(arguments).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stderr), text(&output.stdout));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn write(folder: &Path, workload: &str) -> PathBuf {
    let file = folder.join("workload.toml");
    fs::write(&file, workload).unwrap();
    file
}

fn operations(results: &Value) -> &Vec<Value> {
    results["jobs"][0]["operations"].as_array().unwrap()
}

#[test]
fn what_the_documentation_shows_runs_and_is_exact() {
    let _alone = alone();
    let documentation = fs::read_to_string(repository().join("docs/testbed.md")).unwrap();
    let commands = documentation.lines().filter_map(|line| line.strip_prefix("$ fanin testbed "));
    // Chaos is for `chaos.rs`.
    let commands: Vec<&str> = commands.filter(|line| !line.starts_with("--chaos") && !line.starts_with("--scenario")).collect();
    assert_eq!(commands.len(), 9);
    for line in commands {
        let output = testbed(&line.split(' ').collect::<Vec<_>>()).output().unwrap();
        let (out, errors) = (text(&output.stdout), text(&output.stderr));
        assert!(output.status.success() && errors.is_empty(), "{line}: {errors}{out}");
        if !line.contains("json") {
            assert_eq!(out.matches(" exact").count(), 3, "{out}");
            continue;
        }
        let results: Value = serde_json::from_str(&out).unwrap();
        let exact = operations(&results).iter().filter(|operation| operation["exact"] == true).count();
        assert_eq!(exact, if line.contains("worker_dies") { 1 } else { 3 }, "{line}: {out}");
        if line.contains("agent_dies") {
            assert_the_others_went_on_without(&results, 4);
        }
        if line.contains("two_jobs") {
            assert_two_jobs_shared_a_pool(&results);
        }
        if line.contains("congested") {
            assert!(results["streams"][0]["received"]["packets"].as_u64().unwrap() > 0, "{out}");
        }
        if line.contains("loss") {
            assert!(results["switches"].as_array().unwrap().iter().all(|switch| switch["status"]["injected"]["loss"].as_u64() > Some(0)));
        }
        if line.contains("spine_dies") {
            let events: Vec<&str> = results["events"].as_array().unwrap().iter().filter_map(|event| event["action"].as_str()).collect();
            assert_eq!(events, ["kill", "restart"]);
            assert_only_what_was_in_flight_was_begun_anew(&results);
        }
    }
}

/// `rina 4.6`, `4.7`: what was begun anew, and what comes behind it, is the sum of the others, as each of them says.
fn assert_the_others_went_on_without(results: &Value, rank: usize) {
    let lacks: Vec<bool> = operations(results).iter().map(|operation| operation["without"] == serde_json::json!([rank])).collect();
    assert_eq!(lacks, [false, true, true], "{results}");
    for operation in &operations(results)[1..] {
        let ends = operation["workers"].as_array().unwrap();
        assert!(ends[rank].is_null() && ends.len() == 8, "{operation}");
        let others = ends.iter().enumerate().filter(|(own, _)| *own != rank).map(|(_, end)| end);
        assert!(others.into_iter().all(|end| end["ok"] == true && end["without"] == operation["without"]), "{operation}");
    }
}

const RINA: &str = "[[job]]\nsystem = \"rina\"\nhosts = [\"host0\", \"host1\", \"host2\", \"host5\", \"host6\", \"host7\"]\n\
    message = \"256KiB\"\nrto_min = \"100ms\"\n";

/// `rina 4.5`, `4.7`: a worker of a rack is killed at the end of an operation, when it may have contributed everything: the others' sum is then that
/// of all, and else that of all but it. Either is a success, and what comes behind it lacks the rank.
#[test]
fn a_rack_whose_worker_was_killed_late_has_the_sum_of_all_or_of_the_others() {
    let _alone = alone();
    let folder = folder("testbed-rack-worker");
    let workload = "[[job]]\nsystem = \"rina\"\nhosts = [\"host0\", \"host1\", \"host2\", \"host3\", \"host5\", \"host6\", \"host7\", \"host8\"]\n\
        message = \"512KiB\"\noperations = 3\naggregating = 2\nrto_min = \"100ms\"\npatience = \"3s\"\n\
        [[event]]\naction = \"kill\"\nnode = \"host2\"\noperation = 1\nprogress = \"90%\"\n";
    let results = results(&write(&folder, workload), &[]);
    let operations = operations(&results);
    assert!(operations.len() == 3 && operations.iter().all(|operation| operation["exact"] == true), "{results}");
    let lacks = serde_json::json!([2]);
    // It may have ended the operation, too, before it was killed.
    let is_whole = operations[1]["without"].is_null();
    assert!(is_whole || operations[1]["without"] == lacks, "{results}");
    assert_eq!(operations[2]["without"], lacks, "{results}");
}

/// `rina 4.4`: of two racks one is summed and the other is not; the switch that sums restarts in the middle, and packets are lost.
/// Workers divide by their number.
#[test]
fn a_ring_of_a_rack_and_workers_is_exact_though_its_switch_restarts_and_packets_are_lost() {
    let _alone = alone();
    let folder = folder("testbed-rina");
    let events = "[[event]]\naction = \"kill\"\nnode = \"leaf0\"\noperation = 1\nprogress = \"20%\"\n\
        [[event]]\naction = \"restart\"\nnode = \"leaf0\"\noperation = 1\nprogress = \"20%\"\nafter = \"100ms\"\n[faults]\nloss = \"1%\"\n";
    let workload = format!("{RINA}aggregating = 1\noperator = \"avg\"\noperations = 3\n{events}");
    let results = results(&write(&folder, &workload), &[]);
    assert!(operations(&results).len() == 3 && operations(&results).iter().all(|operation| operation["exact"] == true), "{results}");
    assert!(operations(&results).iter().all(|operation| operation["without"].is_null()), "{results}");
    let summed =
        results["switches"].as_array().unwrap().iter().filter(|switch| switch["status"]["jobs"][0]["slot_bytes_peak"].as_u64() > Some(0));
    assert_eq!(summed.map(|switch| switch["name"].as_str().unwrap()).collect::<Vec<_>>(), ["leaf0"]);
}

const FLARE: &str = "[[job]]\nsystem = \"flare\"\nhosts = [\"host0\", \"host1\", \"host2\", \"host5\", \"host6\", \"host7\"]\n\
    density = \"5%\"\nstorage = \"table\"\nslots = 50\nmessage = \"4MiB\"\nwindow = 8\nrto_min = \"100ms\"\n";

/// `flare 4.9`: small tables spill, packets are lost, doubled and overtaken, and a leaf loses its memory in the middle; every index is compared.
#[test]
fn sparse_sums_are_exact_though_tables_spill_packets_are_lost_and_a_leaf_restarts() {
    let _alone = alone();
    let folder = folder("testbed-flare");
    let events = "[[event]]\naction = \"kill\"\nnode = \"leaf0\"\noperation = 1\nprogress = \"20%\"\n\
        [[event]]\naction = \"restart\"\nnode = \"leaf0\"\noperation = 1\nprogress = \"20%\"\nafter = \"100ms\"\n\
        [faults]\nloss = \"1%\"\nduplication = \"1%\"\nreordering = \"1%\"\n";
    let workload = format!("{FLARE}operations = 3\npatience = \"20s\"\n{events}");
    let results = results(&write(&folder, &workload), &[]);
    assert!(operations(&results).len() == 3 && operations(&results).iter().all(|operation| operation["exact"] == true), "{results}");
}

/// `flare 4.3`: floats that are rounded in each order otherwise have the same bits in every run, whatever is lost and overtaken; and other bits where
/// switches add as packets come, or nothing was shown. Dense and sparse.
#[test]
fn sums_in_a_fixed_order_have_the_same_bits_in_every_run_and_under_loss() {
    let _alone = alone();
    let folder = folder("testbed-fixed");
    let faults = "[faults]\nloss = \"1%\"\nreordering = \"2%\"\nduplication = \"1%\"\n";
    let hosts = "hosts = [\"host0\", \"host1\", \"host2\", \"host5\", \"host6\", \"host7\"]\nrto_min = \"100ms\"\nvalues = \"rounded\"\noperations = 2\n";
    for system in ["\"flare\"\nmessage = \"512KiB\"\ndensity = \"40%\"\nwindow = 8\n", "\"tree\"\nmessage = \"64KiB\"\n"] {
        let bits = |order: &str, faults: &str| -> Vec<String> {
            let job = format!("[[job]]\nsystem = {system}sum_order = \"{order}\"\n{hosts}{faults}");
            let results = results(&write(&folder, &job), &[]);
            assert!(operations(&results).iter().all(|operation| operation["exact"] == true), "{results}");
            operations(&results).iter().map(|operation| operation["bits"].as_str().unwrap().to_string()).collect()
        };
        let first = bits("fixed", "");
        assert_ne!(first[0], first[1], "each operation has vectors of its own");
        assert_eq!((bits("fixed", ""), bits("fixed", faults)), (first.clone(), first.clone()), "{system}");
        assert!((0..5).any(|_| bits("arrival", faults) != first), "{system}: as packets come, bits are chance");
    }
}

/// Leaves and spine combine sparse vectors by a module that the fabric's file names; what cannot be is refused before anything starts.
#[test]
#[cfg(feature = "wasm")]
fn switches_of_a_fabric_combine_by_an_operator_of_its_file() {
    let _alone = alone();
    let folder = folder("testbed-operator");
    let fabric = folder.join("fabric.toml");
    let modules = repository().join("examples/operators");
    let operators: String = ["float_sum", "log_sum_exp"]
        .iter()
        .map(|name| format!("[[operator]]\nname = \"{name}\"\nfile = \"{}\"\n", modules.join(format!("{name}.wasm")).display()))
        .collect();
    fs::write(&fabric, format!("{}{operators}", fs::read_to_string(repository().join(FABRIC)).unwrap())).unwrap();
    let run = |workload: &str| {
        let workload = write(&folder, workload);
        testbed(&[fabric.to_str().unwrap(), workload.to_str().unwrap(), "--format", "json"]).output().unwrap()
    };
    let output = run(&format!("{FLARE}operator = \"float_sum\"\noperations = 2\n[faults]\nloss = \"1%\"\n"));
    assert!(output.status.success(), "{}{}", text(&output.stderr), text(&output.stdout));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(operations(&results).len() == 2 && operations(&results).iter().all(|operation| operation["exact"] == true), "{results}");
    for (workload, expected) in [
        (format!("{FLARE}operator = \"log_sum_exp\"\n"), "accumulator_bytes = 16: expected 4, the length of an element"),
        (format!("{FLARE}operator = \"float_sum\"\nelement = \"f64\"\n"), "element_bytes = 4: expected 8"),
        (
            FLARE.replace("flare", "tree").lines().take(3).collect::<Vec<_>>().join("\n") + "\nmessage = 4000\noperator = \"float_sum\"\n",
            "run others",
        ),
        (format!("{FLARE}operator = \"floats\"\n"), "or one of the fabric's own: float_sum, log_sum_exp"),
    ] {
        let output = run(&workload);
        let errors = text(&output.stderr);
        assert!(output.status.code() == Some(2) && errors.contains(expected), "{workload}: {errors}");
    }
}

/// The worker that is missing is named by all others, in bounded time.
#[test]
fn sparse_sums_fail_at_every_worker_where_one_is_killed() {
    let _alone = alone();
    let folder = folder("testbed-flare-dies");
    let event = "[[event]]\naction = \"kill\"\nnode = \"host2\"\nprogress = \"10%\"\n[run]\nexpect = \"failure\"\n";
    let results = results(&write(&folder, &format!("{FLARE}patience = \"2s\"\n{event}")), &[]);
    for end in operations(&results)[0]["workers"].as_array().unwrap().iter().filter(|end| !end.is_null()) {
        assert!(end["suspect"] == "rank 2" && end["seconds"].as_f64().unwrap() < 20.0, "{end}");
    }
}

/// A leaf that is gone for good takes half of the workers with it, so there is no majority: all say so, and whom they miss.
#[test]
fn a_ring_whose_switch_is_gone_fails_at_every_worker_in_bounded_time() {
    let _alone = alone();
    let folder = folder("testbed-rina-leaf");
    let event = "[[event]]\naction = \"kill\"\nnode = \"leaf0\"\nprogress = \"20%\"\n[run]\nexpect = \"failure\"\n";
    let results = results(&write(&folder, &format!("{RINA}patience = \"1s\"\n{event}")), &[]);
    for end in operations(&results)[0]["workers"].as_array().unwrap() {
        assert!(end["suspect"].as_str().unwrap().starts_with("rank ") && end["seconds"].as_f64().unwrap() < 20.0, "{end}");
    }
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn in_namespaces_a_ring_of_racks_goes_on_without_an_agent() {
    let _alone = alone();
    let workload = repository().join("examples/testbed/rina_agent_dies.toml");
    assert_the_others_went_on_without(&results(&workload, &["--place", "namespaces"]), 4);
}

/// Both jobs are exact, the first one's server has a host of its own, and neither had more aggregators than there are.
fn assert_two_jobs_shared_a_pool(results: &Value) {
    let jobs = results["jobs"].as_array().unwrap();
    assert_eq!(jobs.iter().map(|job| job["server"].as_str().unwrap()).collect::<Vec<_>>(), ["host4", "host2"]);
    assert!(jobs[1]["operations"].as_array().unwrap().iter().all(|operation| operation["exact"] == true), "{results}");
    assert!(jobs[1]["operations"][0]["begun_s"].as_f64().unwrap() >= 0.3, "{results}");
    for switch in results["switches"].as_array().unwrap().iter().filter(|switch| switch["name"].as_str().unwrap().starts_with("leaf")) {
        let counts = switch["status"]["jobs"].as_array().unwrap();
        assert_eq!(counts.len(), 2, "{switch}");
        assert!(counts.iter().all(|job| (1..=48 * 1_408).contains(&job["slot_bytes_peak"].as_u64().unwrap())), "{switch}");
    }
    for (job, delivered_mbit) in [3.0 * 8.388_608, 4.194_304].into_iter().enumerate() {
        let rows: Vec<&Value> = results["series"].as_array().unwrap().iter().filter(|row| row["job"] == job).collect();
        let number = |row: &Value, key: &str| row[key].as_f64().unwrap();
        let seen: f64 = rows.iter().map(|row| number(row, "goodput_mbit_s") * number(row, "interval_s")).sum();
        // The last interval is not complete; sums that are sent again count.
        assert!(seen > 0.5 * delivered_mbit, "{seen} of {delivered_mbit} Mb of job {job}");
        assert!(rows.iter().all(|row| number(row, "slots") <= 2.0 * 48.0) && rows.iter().any(|row| number(row, "slots") > 0.0), "{rows:?}");
    }
    let server = results["hosts"].as_array().unwrap().iter().find(|host| host["name"] == "host4").unwrap();
    assert!(server["status"]["counters"]["packets_received"].as_u64() > Some(0), "{server}");
}

/// `canary 9`, P23: of what goes another way than by the switch that was killed nothing is begun anew.
fn assert_only_what_was_in_flight_was_begun_anew(results: &Value) {
    let lost = &results["events"][0]["lost"];
    let (held, unread) = (lost["held_blocks"].as_u64().unwrap(), lost["packets_unread"].as_u64().unwrap());
    assert!(held + unread > 0, "it was in the middle of an operation: {lost}");
    let ends = operations(results).iter().flat_map(|operation| operation["workers"].as_array().unwrap());
    let begun_anew: u64 = ends.filter_map(|end| end["counters"]["begun_anew"]["1"].as_u64()).sum();
    // On a machine with too much to do packets are lost elsewhere as well, and their blocks have nothing to do with the switch.
    let ports = |status: &Value| status["ports"].as_array().unwrap().clone();
    let went_elsewhere = results["switches"].as_array().unwrap().iter().flat_map(|switch| {
        let is_other = switch["name"] != "spine0";
        ports(&switch["status"]).into_iter().filter(move |port| is_other && port["peer"] != "spine0")
    });
    let is_disturbed =
        went_elsewhere.into_iter().any(|port| port["went_down"].as_u64() > Some(0) || port["dropped_full"].as_u64() > Some(0));
    println!("{begun_anew} blocks begun anew, {held} held and {unread} packets unread by the switch; disturbed elsewhere: {is_disturbed}");
    assert!(is_disturbed || begun_anew <= held + unread, "{begun_anew} blocks begun anew: {lost}");
}

#[test]
fn a_worker_that_stood_still_is_waited_for_and_a_static_tree_is_exact_too() {
    let _alone = alone();
    let folder = folder("testbed-paused");
    let workload = "[[job]]\nsystem = \"canary\"\ntimeout = \"10ms\"\nmessage = \"512KiB\"\nhosts = [\"host0\", \"host5\", \"host6\"]\n\
        operations = 2\n[[job]]\nsystem = \"tree\"\nmessage = \"64KiB\"\nhosts = [\"host1\", \"host7\"]\n\
        [[event]]\naction = \"pause\"\nnode = \"host5\"\nprogress = \"30%\"\n\
        [[event]]\naction = \"resume\"\nnode = \"host5\"\nprogress = \"30%\"\nafter = \"300ms\"\n";
    let results = results(&write(&folder, workload), &["--logs", folder.join("logs").to_str().unwrap()]);
    assert!(operations(&results).iter().all(|operation| operation["exact"] == true), "{results}");
    assert!(results["jobs"][1]["operations"][0]["exact"] == true, "{results}");
    assert!(operations(&results)[0]["seconds"].as_f64().unwrap() > 0.3, "{results}");
    assert!(folder.join("logs/leaf1.log").exists());
}

/// Four jobs at once, whose leaves have one pool for those that share and parts of it for those that divide; sums are exact under loss.
#[test]
fn jobs_with_servers_and_jobs_with_parts_of_a_pool_run_at_once_and_are_exact_under_loss() {
    let _alone = alone();
    let folder = folder("testbed-servers");
    let job = |system: &str, hosts: &str, more: &str| {
        format!("[[job]]\nsystem = \"{system}\"\nhosts = {hosts}\nmessage = \"96KiB\"\noperations = 2\n{more}\n")
    };
    let workload = [
        job("atp", "[\"host0\", \"host1\"]", "servers = [\"host9\", \"host5\"]"),
        job("a2tp", "[\"host2\", \"host6\"]", "element = \"i32\""),
        job("switchml", "[\"host3\", \"host7\"]", ""),
        job("switchml", "[\"host4\", \"host8\"]", "start = \"100ms\""),
        "[switches]\naggregators = 24\n[faults]\nloss = \"1%\"\nduplication = \"1%\"\nreordering = \"1%\"\n".to_string(),
    ];
    let results = results(&write(&folder, &workload.concat()), &[]);
    let jobs = results["jobs"].as_array().unwrap();
    for job in jobs {
        let operations = job["operations"].as_array().unwrap();
        assert!(operations.len() == 2 && operations.iter().all(|operation| operation["exact"] == true), "{job}");
    }
    let servers: Vec<Option<&str>> = jobs.iter().map(|job| job["server"].as_str()).collect();
    assert_eq!(servers, [Some("host5, host9"), Some("host2"), None, None]);
    let injected = |host: &Value| host["status"]["counters"]["injected"]["loss"].as_u64().unwrap_or(0);
    assert!(results["hosts"].as_array().unwrap().iter().map(injected).sum::<u64>() > 0, "{results}");
}

/// Reliable connections of the kind that network cards have, and accelerators in three switches between them.
#[test]
fn connections_of_netreduce_are_summed_exactly_under_loss() {
    let _alone = alone();
    let folder = folder("testbed-netreduce");
    let workload = "[[job]]\nsystem = \"netreduce\"\nhosts = [\"host0\", \"host1\", \"host5\"]\nmessage = \"64KiB\"\noperations = 2\n\
        rto_initial = \"200ms\"\nrto_min = \"50ms\"\n[faults]\nloss = \"1%\"\n";
    let results = results(&write(&folder, workload), &[]);
    assert!(operations(&results).len() == 2 && operations(&results).iter().all(|operation| operation["exact"] == true), "{results}");
}

/// Messages between hosts do every collective that workloads of the testbed have.
#[test]
fn every_collective_by_messages_between_hosts_is_exact_under_loss() {
    let _alone = alone();
    let folder = folder("testbed-exchange");
    for collective in ["allreduce", "reduce", "broadcast", "reduce-scatter", "all-gather"] {
        let workload = format!(
            "[[job]]\nsystem = \"exchange\"\nhosts = [\"host0\", \"host1\", \"host5\", \"host6\"]\nmessage = \"64KiB\"\noperations = 2\n\
             collective = \"{collective}\"\nrto_min = \"20ms\"\n[faults]\nloss = \"1%\"\n"
        );
        let results = results(&write(&folder, &workload), &[]);
        let all = operations(&results);
        assert!(all.len() == 2 && all.iter().all(|operation| operation["exact"] == true), "{collective}: {results}");
    }
}

/// How often workers of a job sent packets again because they were asked to.
fn asked(job: &Value) -> u64 {
    let operations = job["operations"].as_array().unwrap().iter();
    let ends = operations.flat_map(|operation| operation["workers"].as_array().unwrap());
    ends.filter_map(|end| end["counters"]["retransmitted"]["asked"].as_u64()).sum()
}

fn assert_exact(job: &Value, operations: usize) {
    let all = job["operations"].as_array().unwrap();
    assert!(all.len() == operations && all.iter().all(|operation| operation["exact"] == true), "{job}");
}

/// `a2tp 5.8` with real packets: integers are added by switches and servers, and what does not fit goes as floats from all workers. The
/// server of the second job is at its rank 0, whose integers touch no link.
#[test]
fn fixed_point_is_exact_and_what_does_not_fit_goes_as_floats() {
    let _alone = alone();
    let folder = folder("testbed-fixed-point");
    let job = |system: &str, hosts: &str, more: &str| {
        format!("[[job]]\nsystem = \"{system}\"\nfixed_point = true\nhosts = {hosts}\nmessage = \"96KiB\"\noperations = 2\n{more}\n")
    };
    let jobs = [
        job("atp", "[\"host0\", \"host1\", \"host5\"]", "servers = [\"host9\"]\noverflow = \"25%\""),
        job("a2tp", "[\"host2\", \"host6\", \"host7\"]", "overflow = \"25%\""),
        job("a2tp", "[\"host3\", \"host8\"]", "servers = [\"host4\"]"),
    ];
    let quiet = results(&write(&folder, &jobs.concat()), &[]);
    let all = quiet["jobs"].as_array().unwrap();
    all.iter().for_each(|job| assert_exact(job, 2));
    assert!(asked(&all[0]) > 0 && asked(&all[1]) > 0, "{quiet}");
    // A machine with too much to do loses packets, and then a server may be asked; without overflow nobody is asked for floats.
    assert!(asked(&all[2]) <= asked(&all[0]).min(asked(&all[1])), "{quiet}");
    let switchml = job("switchml", "[\"host3\", \"host8\"]", "operator = \"avg\"");
    let faults = "[faults]\nloss = \"1%\"\nduplication = \"1%\"\nreordering = \"1%\"\n";
    let lossy = results(&write(&folder, &[jobs[0].as_str(), &jobs[1], &switchml, faults].concat()), &[]);
    lossy["jobs"].as_array().unwrap().iter().for_each(|job| assert_exact(job, 2));
}

/// Two jobs want more operations than a switch has: the one that is refused sums by its hosts, or waits until the other is over. One streams. All
/// are exact, with losses too.
#[test]
fn jobs_of_sharp_are_exact_by_trees_and_by_hosts_under_loss() {
    let _alone = alone();
    let folder = folder("testbed-sharp");
    let job = |hosts: &str, more: &str| {
        let operations = if more.is_empty() { 8 } else { 2 };
        format!("[[job]]\nsystem = \"sharp\"\nhosts = {hosts}\nmessage = \"64KiB\"\noperations = {operations}\noutstanding = 24\n{more}\n")
    };
    // Longer than it takes until the second one asks.
    let workload = [
        job("[\"host0\", \"host1\", \"host5\"]", ""),
        job("[\"host2\", \"host6\", \"host7\"]", "element = \"i32\"\nstart = \"100ms\""),
        job("[\"host3\", \"host8\"]", "mode = \"streaming\"\nrefused = \"wait\""),
        "[faults]\nloss = \"1%\"\nduplication = \"1%\"\n".to_string(),
    ];
    let results = results(&write(&folder, &workload.concat()), &[]);
    let jobs = results["jobs"].as_array().unwrap();
    jobs.iter().zip([8, 2, 2]).for_each(|(job, operations)| assert_exact(job, operations));
    // What switches keep of a job's tree shows which of the two had the quota.
    let leaves = results["switches"].as_array().unwrap().iter().filter(|switch| switch["name"].as_str().unwrap().starts_with("leaf"));
    let peak = |switch: &Value, job: usize| {
        let jobs = switch["status"]["jobs"].as_array().unwrap();
        jobs.iter().find(|counts| counts["job"] == job as u64 + 1).map_or(0, |counts| counts["slot_bytes_peak"].as_u64().unwrap())
    };
    for leaf in leaves {
        assert!(peak(leaf, 2) > 0 && (peak(leaf, 0) > 0) != (peak(leaf, 1) > 0), "{leaf}");
    }
    // The one that is refused waits: switches are told when the other is over.
    let waits = "refused = \"wait\"\npatience = \"60s\"";
    let workload = [job("[\"host0\", \"host5\"]", waits), job("[\"host2\", \"host7\"]", waits)];
    let results = self::results(&write(&folder, &workload.concat()), &[]);
    results["jobs"].as_array().unwrap().iter().for_each(|job| assert_exact(job, 2));
    for leaf in results["switches"].as_array().unwrap().iter().filter(|switch| switch["name"].as_str().unwrap().starts_with("leaf")) {
        assert!(peak(leaf, 0) > 0 && peak(leaf, 1) > 0, "{leaf}");
    }
}

/// `a2tp 9`, P4, with real processes: a worker is killed in the middle, so its job holds aggregators that nobody will free. The other job goes
/// on, is exact, and takes them.
#[test]
fn a_job_that_crashes_leaves_its_aggregators_to_the_other_one() {
    let _alone = alone();
    let folder = folder("testbed-crash");
    let workload = "[[job]]\nsystem = \"a2tp\"\nhosts = [\"host0\", \"host1\", \"host5\"]\nservers = [\"host9\"]\nmessage = \"512KiB\"\n\
        operations = 4\nrto_min = \"100ms\"\n[[job]]\nsystem = \"a2tp\"\nhosts = [\"host2\", \"host3\", \"host7\"]\n\
        servers = [\"host4\"]\nmessage = \"4MiB\"\nrto_min = \"100ms\"\npatience = \"1s\"\nexpect = \"failure\"\n\
        [switches]\naggregators = 32\n[[event]]\naction = \"kill\"\nnode = \"host7\"\njob = 1\nprogress = \"5%\"\n\
        [run]\nseries_interval = \"50ms\"\n";
    let results = results(&write(&folder, workload), &[]);
    assert_exact(&results["jobs"][0], 4);
    let failed = results["jobs"][1]["operations"][0]["workers"].as_array().unwrap();
    assert!(failed[0]["error"].is_string() && failed[1]["error"].is_string() && failed[2].is_null(), "{results}");
    let killed_s = results["events"][0]["at_s"].as_f64().unwrap();
    let done_s = results["jobs"][0]["operations"][3]["ended_s"].as_f64().unwrap();
    assert!(killed_s < done_s, "it was in the middle");
    // Its survivors' fragments wait in the leaves for the one that was killed; the other job finds these aggregators taken and takes them.
    // How many wait when the worker dies is a matter of luck, so what the job has had at any time is what its end is compared with.
    let slots = |job: usize| {
        let rows = results["series"].as_array().unwrap().iter().filter(|row| row["job"] == job);
        rows.filter_map(|row| row["slots"].as_f64()).collect::<Vec<f64>>()
    };
    let (own, dead) = (slots(0), slots(1));
    let most = dead.iter().copied().fold(0.0, f64::max);
    assert!(own.iter().any(|slots| *slots > 0.0), "{own:?}");
    assert!(most > 0.0 && dead.last().is_some_and(|last| *last <= most / 2.0), "{dead:?}");
}

/// What two jobs got in the second half of the time in which both ran, in bits: the same intervals for both, so that it does not matter how long
/// these took.
fn got_beside_each_other(results: &Value) -> [f64; 2] {
    let number = |value: &Value, key: &str| value[key].as_f64().unwrap();
    let operations = |job: usize| results["jobs"][job]["operations"].as_array().unwrap();
    let begin = [0, 1].map(|job| number(&operations(job)[0], "begun_s")).into_iter().fold(0.0, f64::max);
    let end = [0, 1].map(|job| number(operations(job).last().unwrap(), "ended_s")).into_iter().fold(f64::INFINITY, f64::min);
    let rows = results["series"].as_array().unwrap();
    let counts = |row: &&Value| number(row, "at_s") - number(row, "interval_s") >= (begin + end) / 2.0 && number(row, "at_s") <= end;
    let bits = |row: &Value| number(row, "goodput_mbit_s") * number(row, "interval_s") * 1e6;
    [0, 1].map(|job| rows.iter().filter(|row| row["job"] == job).filter(counts).map(bits).sum())
}

/// Section 8 of A2TP's paper, with real processes: of two equal jobs the second one begins when the first has all aggregators. Where switches share
/// out what jobs are told of collisions both get as much, by Jain's index.
#[test]
fn two_equal_jobs_of_a2tp_share_where_collisions_are_shared_out() {
    let _alone = alone();
    let folder = "experiments/a2tp/fig02_real";
    let files = [format!("{folder}/fabric.toml"), format!("{folder}/equal.toml")];
    let sets = ["--set", "job.0.collisions=shared", "--set", "job.1.collisions=shared"];
    let output = testbed(&[&files[0], &files[1], "--format", "json"]).args(sets).output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stderr), text(&output.stdout));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_exact(&results["jobs"][0], 6);
    assert_exact(&results["jobs"][1], 5);
    let [a, b] = got_beside_each_other(&results);
    let packets = (a + b) / (8.0 * 1_408.0);
    assert!(packets > 2_000.0, "a window of {packets} blocks");
    let jain = (a + b).powi(2) / (2.0 * (a * a + b * b));
    println!("{a} and {b} bits: {jain:.3}");
    assert!(jain >= 0.95, "{a} and {b} bits: {jain}");
}

#[test]
fn wrong_files_are_refused_before_anything_is_started() {
    let folder = folder("testbed-wrong");
    fs::write(folder.join("fabric.toml"), "[leaf_spine]\nleaves = 1\nspines = 1\nhosts_per_leaf = 2\n[defaults]\nrate = \"1Mb/s\"\n")
        .unwrap();
    fs::write(folder.join("workload.toml"), "[[job]]\nsystem = \"tree\"\nmessage = 4\nhosts = [\"host7\"]\n").unwrap();
    let error = refused(&folder, &["testbed", "fabric.toml", "workload.toml"]);
    assert_eq!(error, "error: workload.toml:4: job[0].hosts[0] = \"host7\": expected one of the fabric's hosts: host0, host1");
    fs::write(folder.join("fabric.toml"), "[leaf_spine]\nleaves = 0\nspines = 1\nhosts_per_leaf = 2\n").unwrap();
    assert!(refused(&folder, &["testbed", "fabric.toml", "workload.toml"]).starts_with("error: fabric.toml:2: leaf_spine.leaves = 0"));
}

/// Processes that are children of `parent`.
fn children_of(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().flatten().map(|entry| entry.path());
    // Behind the name in parentheses come the state and the parent.
    let parent_of = |process: &Path| {
        let stat = fs::read_to_string(process.join("stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    processes
        .filter(|process| parent_of(process) == Some(parent))
        .filter_map(|process| process.file_name()?.to_str()?.parse().ok())
        .collect()
}

fn is_running(process: u32) -> bool {
    // A zombie has ended; its parent has only not noticed yet.
    fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// A run that takes very long, when all of its processes have been started.
fn endless(place: &str, folder: &Path) -> (Child, Vec<u32>) {
    let workload = write(folder, "[[job]]\nsystem = \"tree\"\nmessage = \"1MiB\"\noperations = 100000\n");
    let child = testbed(&[FABRIC, workload.to_str().unwrap(), "--place", place]).spawn().unwrap();
    let mut children = Vec::new();
    // Ten hosts, four switches.
    while children.len() < 14 {
        thread::sleep(Duration::from_millis(10));
        children = children_of(child.id());
    }
    children.sort_unstable();
    (child, children)
}

fn signal(process: u32, name: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), &process.to_string()]).status().unwrap().success());
}

/// Returns as soon as all have ended; a test that hangs here has found a process left behind.
fn none_is_left(children: &[u32]) {
    while children.iter().any(|&child| is_running(child)) {
        thread::sleep(Duration::from_millis(10));
    }
}

fn temporary_folder(process: u32) -> PathBuf {
    std::env::temp_dir().join(format!("fanin-testbed-{process}"))
}

#[test]
fn an_interrupted_run_ends_all_processes_and_removes_its_folder() {
    let _alone = alone();
    for (name, code) in [("INT", 130), ("TERM", 143)] {
        let (child, children) = endless("loopback", &folder("testbed-interrupted"));
        let process = child.id();
        signal(process, name);
        // Said twice it tidies up as well.
        signal(process, name);
        let Output { status, stderr, .. } = child.wait_with_output().unwrap();
        assert_eq!(status.code(), Some(code), "{}", text(&stderr));
        assert!(text(&stderr).contains("interrupted"), "{}", text(&stderr));
        assert!(children.iter().all(|&child| !is_running(child)), "processes end before the testbed does");
        assert!(!temporary_folder(process).exists());
    }
}

#[test]
fn a_process_that_dies_by_itself_is_named_with_its_last_words_and_ends_the_run() {
    let _alone = alone();
    let (child, children) = endless("loopback", &folder("testbed-failed"));
    // The first one that is started is leaf0.
    signal(children[0], "KILL");
    let process = child.id();
    let Output { status, stderr, .. } = child.wait_with_output().unwrap();
    let errors = text(&stderr);
    assert_eq!(status.code(), Some(1), "{errors}");
    assert!(errors.contains("leaf0 was ended by signal 9") && errors.contains("the logs of all processes are in"), "{errors}");
    assert!(children.iter().all(|&child| !is_running(child)), "processes end before the testbed does");
    assert!(temporary_folder(process).join("leaf0.log").exists());
    fs::remove_dir_all(temporary_folder(process)).unwrap();
}

#[test]
fn the_processes_of_a_testbed_that_is_killed_end_by_themselves() {
    let _alone = alone();
    let (mut child, children) = endless("loopback", &folder("testbed-killed"));
    child.kill().unwrap();
    child.wait().unwrap();
    none_is_left(&children);
    fs::remove_dir_all(temporary_folder(child.id())).unwrap();
}

/// Names of the namespaces that a process has made.
fn namespaces_of(process: u32) -> Vec<String> {
    let listed = Command::new("ip").args(["netns", "list"]).output().unwrap();
    let prefix = format!("fanin-tb-{process}-");
    text(&listed.stdout).lines().filter(|line| line.starts_with(&prefix)).map(str::to_owned).collect()
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn in_namespaces_sums_are_exact_and_nothing_is_left() {
    let _alone = alone();
    let workload = repository().join("examples/testbed/workload.toml");
    let mut command = testbed(&[FABRIC, workload.to_str().unwrap(), "--place", "namespaces", "--format", "json"]);
    let child = command.spawn().unwrap();
    let process = child.id();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}{}", text(&output.stderr), text(&output.stdout));
    let results: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(results["place"] == "namespaces" && operations(&results).iter().all(|operation| operation["exact"] == true), "{results}");
    assert_eq!(namespaces_of(process), [""; 0]);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn in_namespaces_jobs_share_a_pool_and_a_server_has_a_host_of_its_own() {
    let _alone = alone();
    let workload = repository().join("examples/testbed/two_jobs.toml");
    let results = results(&workload, &["--place", "namespaces"]);
    assert!(operations(&results).iter().all(|operation| operation["exact"] == true), "{results}");
    assert_two_jobs_shared_a_pool(&results);
}

#[test]
#[ignore = "needs root: makes network namespaces"]
fn no_namespace_is_left_after_a_signal_a_failure_or_the_next_run_after_a_kill() {
    let _alone = alone();
    let folder = folder("testbed-namespaces");
    let (interrupted, children) = endless("namespaces", &folder);
    let process = interrupted.id();
    assert_eq!(namespaces_of(process).len(), 14);
    signal(process, "INT");
    assert_eq!(interrupted.wait_with_output().unwrap().status.code(), Some(130));
    assert!(namespaces_of(process).is_empty() && children.iter().all(|&child| !is_running(child)));

    let (failed, children) = endless("namespaces", &folder);
    let process = failed.id();
    signal(children[0], "KILL");
    assert_eq!(failed.wait_with_output().unwrap().status.code(), Some(1));
    assert!(namespaces_of(process).is_empty() && children.iter().all(|&child| !is_running(child)));
    fs::remove_dir_all(temporary_folder(process)).unwrap();

    let (mut killed, children) = endless("namespaces", &folder);
    let process = killed.id();
    killed.kill().unwrap();
    killed.wait().unwrap();
    none_is_left(&children);
    assert_eq!(namespaces_of(process).len(), 14, "nobody was there to remove them");
    let (next, _) = endless("namespaces", &folder);
    assert_eq!(namespaces_of(process), [""; 0], "the next run removes them");
    signal(next.id(), "TERM");
    assert_eq!(next.wait_with_output().unwrap().status.code(), Some(143));
    fs::remove_dir_all(temporary_folder(process)).unwrap();
}

#[test]
#[ignore = "needs root: gives it up for one command"]
fn without_root_namespaces_are_refused_in_words() {
    let mut command = Command::new("setpriv");
    command.current_dir(repository()).args(["--reuid", "65534", "--clear-groups", env!("CARGO_BIN_EXE_fanin"), "testbed", FABRIC]);
    let output = command.args(["examples/testbed/workload.toml", "--place", "namespaces"]).output().unwrap();
    let errors = text(&output.stderr);
    assert!(output.status.code() == Some(2) && errors.contains("needs root"), "{errors}");
}
