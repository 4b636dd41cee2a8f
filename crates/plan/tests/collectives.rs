//! `collective`: jobs without a workload that do something else than allreduces.

use fanin_plan::Plan;
use fanin_plan::results::RunRecord;
use fanin_plan::run::{self, run};
use fanin_systems::System;

const NAMES: [&str; 7] = ["all-reduce", "reduce-scatter", "all-gather", "all-to-all", "broadcast", "reduce", "barrier"];

fn text(job: &str) -> String {
    format!(
        "[network]\nshape = \"fat-tree\"\nleaves = 2\nhosts_per_leaf = 4\nspines = 2\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n\
         [[jobs]]\nworkers = 6\nplacement = \"packed\"\n{job}\n"
    )
}

/// The records of all runs.
fn records(job: &str, sets: &[&str]) -> Vec<RunRecord> {
    let sets: Vec<String> = sets.iter().map(|set| set.to_string()).collect();
    let plan = Plan::parse("plan", &text(job), &sets, None).unwrap_or_else(|error| panic!("{job}: {error}"));
    run::check(&plan).unwrap_or_else(|error| panic!("{job}: {error}"));
    run(&plan, 1, || true).unwrap().into_iter().map(|finished| finished.record).collect()
}

fn error(job: &str) -> String {
    match Plan::parse("plan", &text(job), &[], None).and_then(|plan| run::check(&plan)) {
        Ok(()) => panic!("{job}: taken"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn every_system_does_every_collective_or_its_hosts_do_and_the_results_say_who() {
    let mut own = Vec::new();
    for system in System::all().iter().filter(|system| system.density().is_none()) {
        let system = system.name();
        for name in NAMES {
            let message = if name == "barrier" { "" } else { "message = \"60000B\"\n" };
            let job = format!("system = \"{system}\"\ncollective = \"{name}\"\noperations = 2\n{message}");
            for payload in ["census", "elements"] {
                let record = &records(&job, &[&format!("run.payload={payload}"), "faults.links=[{ loss = 0.002 }]"])[0];
                let job = &record.jobs[0];
                assert_eq!((record.census.as_str(), &record.failure), ("exact", &None), "{name} of {system}");
                assert_eq!((job.system, job.collective), (system, Some(name)));
                let ran = job.ran.unwrap();
                assert!(ran == system || ran == "exchange", "{name} of {system} by {ran}");
                if ran == system && name != "all-reduce" && payload == "census" {
                    own.push(format!("{system} {name}"));
                }
                assert_eq!(job.goodput_gbps.is_none(), name == "barrier");
                assert_eq!(job.message_bytes, if name == "barrier" { 0 } else { 60_000 }, "{name} of {system}");
            }
        }
    }
    let of = |system: &str| own.iter().filter(|one| one.starts_with(&format!("{system} "))).count();
    assert_eq!((of("canary"), of("switchml"), of("exchange"), of("ring"), of("tree")), (5, 5, 6, 0, 0), "{own:?}");
}

#[test]
fn goodput_is_the_length_of_a_workers_vector_over_the_time() {
    // Four hosts of a star: each sends and receives three quarters of the vector, in packets of 1000 bytes with 40 bytes of headers more.
    let star = "network={ shape = \"star\", hosts = 4, rate = \"8Gb/s\", latency = \"0ns\", frame_overhead = 40, frame_min = 64 }";
    let one = |name: &str| {
        let job = format!("system = \"exchange\"\ncollective = \"{name}\"\nmessage = \"4000000B\"\npayload = \"1000B\"");
        let record = records(&job, &[star, "jobs.0.workers=4"]).remove(0);
        (record.jobs[0].completion_us.unwrap(), record.jobs[0].goodput_gbps.unwrap())
    };
    for name in ["reduce-scatter", "all-gather", "all-to-all"] {
        let (time_us, goodput) = one(name);
        // 3 Mbyte at a byte a nanosecond, headers of packets and of acknowledgements beside.
        assert!((3_120.0..3_600.0).contains(&time_us), "{name}: {time_us} us");
        assert!((goodput - 4_000_000.0 * 8.0 / time_us / 1e3).abs() < 1e-9, "{name}: {goodput} Gb/s");
    }
    // All of it passes each link once, in a chain.
    let (time_us, goodput) = one("broadcast");
    assert!((4_160.0..4_800.0).contains(&time_us), "{time_us} us");
    assert!((goodput - 32_000.0 / time_us).abs() < 1e-9);
}

#[test]
fn shares_are_rounded_up_to_whole_elements() {
    let length = |name: &str, message: &str| {
        let job = format!("system = \"canary\"\ncollective = \"{name}\"\nmessage = \"{message}\"");
        let record = records(&job, &[]).remove(0);
        assert_eq!((record.census.as_str(), record.failure), ("exact", None), "{name}");
        record.message_bytes
    };
    // 25 elements in six shares: five each.
    assert_eq!(length("reduce-scatter", "100B"), 120);
    assert_eq!(length("all-gather", "100B"), 120);
    assert_eq!(length("all-to-all", "100B"), 120);
    assert_eq!(length("reduce", "100B"), 100);
}

#[test]
fn collectives_are_swept_and_trained_with() {
    let job = "system = \"tree\"\nmessage = \"60000B\"\ntrees = 2\niterations = 2\ncompute = \"5us\"\ntensor = \"24000B\"";
    let all = records(job, &["sweep={ \"jobs.0.collective\" = [\"all-reduce\", \"all-gather\", \"reduce\"] }"]);
    let said: Vec<_> = all.iter().map(|record| (record.collective.as_deref().unwrap(), record.ran.as_deref().unwrap())).collect();
    assert_eq!(said, [("all-reduce", "tree"), ("all-gather", "exchange"), ("reduce", "exchange")]);
    assert!(all.iter().all(|record| record.is_good() && record.iteration_us.unwrap() > 5.0), "{all:?}");
    assert!(all.iter().all(|record| record.jobs[0].operations == 6 && record.jobs[0].message_bytes == 60_000));
    // Without the key nothing is said.
    let plain = &records("system = \"tree\"\nmessage = \"60000B\"", &[])[0];
    assert_eq!((&plain.collective, &plain.ran), (&None, &None));
}

#[test]
fn roots_are_ranks() {
    for root in [0, 5] {
        for name in ["broadcast", "reduce"] {
            for system in ["canary", "tree"] {
                let job = format!("system = \"{system}\"\ncollective = \"{name}\"\nroot_rank = {root}\nmessage = \"60000B\"");
                assert!(records(&job, &[])[0].is_good());
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let message = "message = \"60000B\"\n";
    let cases = [
        (
            "system = \"tree\"\ncollective = \"allreduce\"",
            "jobs[0].collective = \"allreduce\": expected \"all-reduce\" or \"reduce-scatter\" or \"all-gather\" or \"all-to-all\" or \"broadcast\" or",
        ),
        ("system = \"tree\"\ncollective = \"reduce\"\nroot_rank = 6", "plan:13: jobs[0].root_rank = 6: expected a rank below 6"),
        (
            "system = \"tree\"\ncollective = \"all-gather\"\nroot_rank = 1",
            "plan:13: jobs[0].root_rank = 1: expected no such key without collective = \"broadcast\" or \"reduce\"",
        ),
        (
            "system = \"tree\"\ncollective = \"barrier\"",
            "jobs[0].message = \"60000B\": expected no such key with collective = \"barrier\": workers only meet in it, and have no vector",
        ),
        (
            "system = \"flare\"\ndensity = 0.1\ncollective = \"all-gather\"",
            "jobs[0].collective = \"all-gather\": expected \"all-reduce\", the one that flare has for sparse vectors",
        ),
        (
            "system = \"tree\"\ncollective = \"broadcast\"\ntrees = 2",
            "jobs[0].trees = 2: expected no such key beside a collective that tree has not, and that the job's hosts do by messages",
        ),
    ];
    for (keys, expected) in cases {
        let said = error(&format!("{keys}\n{message}"));
        assert!(said.contains(expected), "{said}\n{expected}");
    }
    let workload = "workload = { workload = 1, ranks = 6, groups = [{ name = \"all\", size = 6 }], programs = [{ name = \"all\", ranks = \"0-5\", \
                    nodes = [{ id = \"it\", collective = \"barrier\", group = \"all\" }] }] }";
    let said = error(&format!("system = \"tree\"\ncollective = \"barrier\"\n{workload}"));
    assert!(said.contains("expected no collective beside it"), "{said}");
}

#[test]
fn reproducible_sums_are_of_floats_and_send_exponents_and_integers() {
    let job = "system = \"canary\"\nmessage = \"60000B\"\noperations = 2\n";
    for (element, bytes_each) in [("f32", 5.0), ("f64", 10.0), ("f16", 5.0), ("bf16", 5.0)] {
        let bytes = |more: &str, payload: &str| {
            let record = records(&format!("{job}element = \"{element}\"\n{more}"), &[&format!("run.payload={payload}")]).remove(0);
            assert_eq!((record.census.as_str(), &record.failure), ("exact", &None), "{element}");
            let job = &record.jobs[0];
            assert_eq!((job.operations, job.message_bytes), (2, 60_000), "{element}");
            // Of the floats, over the time of exponents and integers.
            let goodput = 60_000.0 * 8e-3 / job.completion_us.unwrap();
            assert!((job.goodput_gbps.unwrap() - goodput).abs() < 0.02 * goodput, "{element}: {:?}", job.goodput_gbps);
            record.link_bytes as f64
        };
        let width = if element == "f64" {
            8.0
        } else if element == "f32" {
            4.0
        } else {
            2.0
        };
        let (plain, with) = (bytes("", "census"), bytes("reproducible = \"element\"", "census"));
        assert_eq!(bytes("reproducible = \"element\"", "elements"), with, "{element}");
        let ratio = with / plain / (bytes_each / width);
        assert!((0.9..1.15).contains(&ratio), "{element}: {plain} bytes on links, and {with}");
    }
}

#[test]
fn reproducible_sums_train_and_are_refused_where_there_is_nothing_to_do() {
    let job = "system = \"ring\"\nmessage = \"60000B\"\niterations = 3\ntensor = \"20000B\"\ncompute = \"5us\"\nreproducible = \"element\"";
    let record = records(job, &["run.payload=elements"]).remove(0);
    assert_eq!((record.census.as_str(), record.jobs[0].iterations_us.len(), record.jobs[0].operations), ("exact", 3, 9));
    let refused = |job: &str| error(&format!("message = \"60000B\"\nreproducible = \"element\"\n{job}"));
    let says = |job: &str, what: &str| assert!(refused(job).contains(what), "{}", refused(job));
    says("system = \"atp\"\nfixed_point = true", "expected no such key beside fixed_point, with which sums are those of integers");
    says("system = \"rina\"", "no such key with rina");
    says("system = \"ring\"\nelement = \"i32\"", "no such key with element = \"i32\": sums of integers are the same in any order");
    says("system = \"ring\"\ncollective = \"reduce-scatter\"", "no such key with another collective than all-reduce");
    says("system = \"ring\"\npayload = \"4B\"", "jobs[0].payload = \"4B\": expected at least 5 bytes");
    let block = error("system = \"ring\"\nmessage = \"60000B\"\nreproducible = \"block\"");
    assert!(block.contains("jobs[0].reproducible = \"block\": expected \"element\""), "{block}");
}

#[test]
fn pods_sum_inside_and_between_them_and_are_alike() {
    let job = "system = \"canary\"\nmessage = \"60000B\"\noperations = 2\n";
    let pods = |more: &str| records(&format!("{job}{more}"), &["jobs.0.placement=spread", "faults.links=[{ loss = 0.002 }]"]).remove(0);
    for across in ["\"ring\"", "\"rina\"", "{ system = \"canary\", timeout = \"2us\" }", "\"exchange\""] {
        let record = pods(&format!("across = {across}\nchunks = 3\n"));
        assert_eq!((record.census.as_str(), &record.failure), ("exact", &None), "{across}");
        let job = &record.jobs[0];
        assert_eq!((job.operations, job.message_bytes, job.system), (2, 60_000, "canary"), "{across}");
        let goodput = 60_000.0 * 8e-3 / job.completion_us.unwrap();
        assert!((job.goodput_gbps.unwrap() - goodput).abs() < 1e-9, "{across}");
        let steps: Vec<(String, u64)> =
            job.workload.as_ref().unwrap().communication.iter().map(|way| (way.group.clone(), way.operations)).collect();
        // Two pods of three workers: three chunks of two sums in each pod, and in each of the three groups across.
        assert_eq!(steps.iter().map(|(_, count)| *count).sum::<u64>(), 12 + 18 + 12, "{steps:?}");
    }
    let refused = |more: &str| error(&format!("message = \"60000B\"\nacross = \"ring\"\n{more}"));
    let says = |job: &str, what: &str| assert!(refused(job).contains(what), "{}", refused(job));
    says("system = \"tree\"", "no such key with tree, but with canary, switchml or exchange: they have a reduce-scatter and an all-gather");
    says("system = \"canary\"\nmodel = \"vgg16\"", "jobs[0].model = \"vgg16\": expected no such key beside across");
    // Packed: four on the first leaf, two on the second.
    says("system = \"canary\"", "as many in each and at least two: pods have 4, 2");
    assert!(
        error("system = \"canary\"\nmessage = \"60000B\"\nchunks = 2").contains("jobs[0].chunks = 2: expected no such key without across")
    );
    let servers = error("system = \"canary\"\nmessage = \"60000B\"\nacross = \"atp\"");
    assert!(servers.contains("jobs[0].across = atp: expected ring, tree, canary"), "{servers}");
}

/// What pods have no use for, and what they cannot do, with the field, the value and what was expected.
#[test]
fn what_pods_cannot_do_is_refused_with_field_value_and_what_was_expected() {
    let base = "system = \"canary\"\nmessage = \"60000B\"\nplacement = \"spread\"\n";
    let said = |more: &str| {
        let text = text("").replace("placement = \"packed\"\n", "");
        match Plan::parse("plan", &format!("{text}{base}{more}\n"), &[], None).and_then(|plan| run::check(&plan)) {
            Ok(()) => panic!("{more}: taken"),
            Err(error) => error.to_string(),
        }
    };
    let between = "ring, tree, canary, switchml, panama, sharp, netreduce, machines, rina or exchange";
    let cases = [
        ("across = \"rings\"", "jobs[0].across = \"rings\": expected a system's name: ring, tree, canary"),
        ("across = 5", "jobs[0].across = 5: expected a system's name, or a table with one and its keys"),
        ("across = { timeout = \"2us\" }", "jobs[0].across.system is missing"),
        ("across = { system = \"canary\", timeot = \"2us\" }", "jobs[0].across.timeot = \"2us\": unknown key; did you mean timeout?"),
        ("across = \"ps\"", &format!("jobs[0].across = ps: expected {between}")),
        ("across = { system = \"flare\", density = 1.0 }", &format!("jobs[0].across = flare: expected {between}")),
        (
            "across = \"ring\"\nleader = \"random\"",
            "jobs[0].leader = \"random\": expected \"rotating\" where the collective is reduce-scatter: who leads its blocks follows from its root or \
             its shares (the job has across)",
        ),
        (
            "across = { system = \"sharp\", refused = \"wait\" }",
            "jobs[0].across.refused = \"wait\": expected \"host\" with mode = \"low-latency\": groups hold their quotas",
        ),
        ("across = \"ring\"\nchunks = 0", "jobs[0].chunks = 0: expected a whole number of 1 or more"),
        ("across = \"ring\"\nchunks = 15000\noperations = 20", "jobs[0].chunks = 15000: expected at most 65536 of all operations together"),
    ];
    for (more, expected) in cases {
        assert!(said(more).contains(expected), "{}\n{expected}", said(more));
    }
    let keys = [
        ("collective", "\"all-reduce\""),
        ("root_rank", "1"),
        ("reproducible", "\"element\""),
        ("iterations", "2"),
        ("tensor", "\"8KiB\""),
        ("compute", "\"5us\""),
        ("local_rate", "\"1Gb/s\""),
        ("groups", "{ across = \"tree\" }"),
    ];
    for (key, value) in keys {
        let said = said(&format!("across = \"ring\"\n{key} = {value}"));
        let expected = format!("jobs[0].{key} = {value}: expected no such key beside across: a job in pods does allreduces of its message");
        assert!(said.contains(&expected), "{said}\n{expected}");
    }
    let of_switchml = error("system = \"switchml\"\nfixed_point = true\nmessage = \"60000B\"\nacross = \"ring\"");
    assert!(
        of_switchml.contains("jobs[0].fixed_point = true: expected false: what is gathered inside of pods has no exponents"),
        "{of_switchml}"
    );
    // An element and a quarter, and none.
    for message in ["5B", "0B"] {
        let text = text("").replace("placement = \"packed\"\n", "");
        let job = format!("{text}system = \"canary\"\nplacement = \"spread\"\nacross = \"ring\"\nmessage = \"{message}\"\n");
        let said = Plan::parse("plan", &job, &[], None).and_then(|plan| run::check(&plan)).unwrap_err().to_string();
        let expected =
            format!("jobs[0].message = \"{message}\": expected a multiple of 4 bytes, the length of an element, of one at least");
        assert!(said.contains(&expected), "{said}");
    }
}

/// A star has one switch, which is its highest: each host is a pod of its own.
#[test]
fn networks_without_pods_say_so() {
    let text = "[network]\nshape = \"star\"\nhosts = 4\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n\
                [[jobs]]\nsystem = \"canary\"\nworkers = 4\nmessage = \"1KiB\"\nacross = \"ring\"\n";
    let said = Plan::parse("plan", text, &[], None).and_then(|plan| run::check(&plan)).unwrap_err().to_string();
    assert!(
        said.contains(
            "jobs[0].across = \"ring\": expected workers in two pods or more, as many in each and at least two: pods have 1, 1, 1, 1"
        ),
        "{said}"
    );
}

/// Who cannot go on says which step of which group it is, and whom it waits for.
#[test]
fn a_pod_that_loses_a_worker_fails_and_names_it() {
    let job = "system = \"canary\"\nmessage = \"600000B\"\nacross = \"ring\"\npatience = \"2ms\"";
    let dead = "faults.timed=[{ kind = \"host-dies\", rank = 5, from = \"5us\" }]";
    let record = records(job, &["jobs.0.placement=spread", dead, "run.expect=failure"]).remove(0);
    let failure = record.failure.expect("it cannot complete");
    assert!(failure.contains("reduce") || failure.contains("across") || failure.contains("gather"), "{failure}");
    assert!(failure.contains("rank"), "{failure}");
}
