//! Switches whose cores take time (`network.processor`): times and rates that can be worked out by hand, locks, packet memory, sparse sums.

use fanin_plan::Plan;
use fanin_plan::results::RunRecord;
use fanin_plan::run::run;

/// A star of four hosts, each packet of 1 KiB; `job` and `processor` are keys.
fn record(job: &str, processor: &str) -> RunRecord {
    let text = format!(
        "[network]\nshape = \"star\"\nhosts = 4\nrate = \"100Gb/s\"\nlatency = \"300ns\"\nqueue = \"4MiB\"\n{processor}\n\
         [[jobs]]\n{job}\nworkers = 4\npatience = \"9s\"\n[run]\ntime_limit = \"20s\"\n"
    );
    let plan = Plan::parse("plan.toml", &text, &[], None).unwrap_or_else(|error| panic!("{error}\n{text}"));
    let record = run(&plan, 1, || true).expect("the plan runs").remove(0).record;
    assert!(record.is_good() && record.is_exact(), "{text}\n{record:?}");
    record
}

const TREE: &str = "system = \"tree\"\nmessage = \"1MiB\"\nwindow = 64\nrto_initial = \"1s\"\nrto_min = \"1s\"";

fn processor(keys: &str) -> String {
    format!("processor = {{ {keys} }}")
}

/// One packet: it comes to its sum when the last of four has had its 5 us at the only core; they all wait for that one.
#[test]
fn a_core_takes_one_packet_after_the_other() {
    let one = |processor: &str| record(&TREE.replace("1MiB", "1KiB"), processor).completion_us.expect("complete");
    let free = one("");
    for (cores, expected) in [(1, 20.0), (2, 10.0), (4, 5.0), (8, 5.0)] {
        let more = one(&processor(&format!("cores = {cores}, packet_time = \"5us\""))) - free;
        assert!((more - expected).abs() < 0.5, "{cores} cores: {more} us more");
    }
}

/// 1,024 blocks of four packets at so much a packet: the cores are the bottleneck, and how busy they are says it.
#[test]
fn what_cores_cannot_do_limits_the_goodput() {
    let free = record(TREE, "");
    assert_eq!((free.cores_busy, free.core_wait_us), (None, None));
    let slow = record(TREE, &processor("cores = 2, packet_time = \"1us\""));
    let expected_us = 1_024.0 * 4.0 / 2.0;
    let took = slow.completion_us.expect("complete");
    assert!((took / expected_us - 1.0).abs() < 0.02, "{took} us, {expected_us} expected");
    assert!(slow.cores_busy.is_some_and(|share| share > 0.97) && slow.core_wait_us.is_some_and(|wait| wait > 10.0), "{slow:?}");
    // 1,024 bytes at 8.192 Gb/s are the same microsecond.
    let by_rate = record(TREE, &processor("cores = 2, rate = \"8.192Gb/s\""));
    assert_eq!(by_rate.completion_us, slow.completion_us);
    // Where there are enough of them, nothing but the time of one packet is to be seen.
    let many = record(TREE, &processor("cores = 512, packet_time = \"100ns\""));
    assert!(many.completion_us < free.completion_us.map(|time| time * 1.05), "{many:?} {free:?}");
}

/// Workers send in step, so the four packets of a block come at once: cores that lock it work one after the other. Where a block's packets all
/// go to one core, it is never locked (Flare 4.2).
#[test]
fn a_locked_block_costs_and_one_core_a_block_does_not() {
    let with = |more: &str| record(TREE, &processor(&format!("cores = 4, packet_time = \"1us\"{more}")));
    let (plain, locked, apart) = (with(""), with(", locks = true"), with(", cores_per_block = 1"));
    assert_eq!(plain.cores_locked, Some(0.0));
    assert!(locked.cores_locked.is_some_and(|share| share > 0.4), "{locked:?}");
    assert!(locked.completion_us > plain.completion_us.map(|time| time * 1.5), "{locked:?} {plain:?}");
    assert!(apart.completion_us < locked.completion_us.map(|time| time * 0.7), "{apart:?} {locked:?}");
}

/// What finds no room in the packet memory is dropped, counted, and sent again: the sums are right all the same.
#[test]
fn packet_memory_is_finite() {
    let job = TREE.replace("\"1s\"", "\"1ms\"");
    let tight = record(&job, &processor("cores = 1, packet_time = \"1us\", memory = \"16KiB\""));
    assert!(tight.drops.get("queue_full").is_some_and(|count| *count > 0), "{tight:?}");
}

/// Sparse sums: pairs and places take their time each, and an array of a block's range is looked at as a whole.
#[test]
fn sparse_sums_cost_by_pair_and_by_place() {
    let job = |storage: &str| {
        format!(
            "system = \"flare\"\nmessage = \"1MiB\"\npayload = \"984B\"\ndensity = 0.01\nwindow = 8\nstorage = \"{storage}\"\nstaggered = false\nrto_initial = \"1s\"\nrto_min = \"1s\""
        )
    };
    let time = |storage: &str, keys: &str| record(&job(storage), &processor(keys)).completion_us.expect("complete");
    let pairs = 4.0 * 262_144.0 * 0.01;
    let by_pair = time("array", "cores = 1, pair_time = \"1us\"");
    assert!((by_pair / pairs - 1.0).abs() < 0.05, "{by_pair} us for {pairs} pairs");
    let by_place = time("array", "cores = 1, place_time = \"100ns\"");
    assert!((by_place / 26_214.4 - 1.0).abs() < 0.05, "{by_place} us for 262144 places");
    let in_tables = time("table", "cores = 1, place_time = \"100ns\"");
    assert!(in_tables < by_place / 10.0, "{in_tables} us: a table of 256 slots a block of 14,760 indices");
}

/// What cannot be, or would do nothing, is refused by its key.
#[test]
fn wrong_processors_are_refused_by_key() {
    let refused = |job: &str, processor: &str| {
        let text = format!(
            "[network]\nshape = \"star\"\nhosts = 4\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n{processor}\n[[jobs]]\n{job}\nmessage = \"1MiB\"\nworkers = 4\n"
        );
        let plan = Plan::parse("plan.toml", &text, &[], None);
        plan.and_then(|plan| fanin_plan::run::check(&plan)).expect_err(&text).to_string()
    };
    let tree = "system = \"tree\"";
    for (job, keys, expected) in [
        (tree, "cores = 4", "packet_time, rate, pair_time or place_time"),
        (tree, "cores = 4, cores_per_block = 3, packet_time = \"1us\"", "network.processor.cores_per_block"),
        (tree, "cores = 4, cores_per_block = 1, locks = true, packet_time = \"1us\"", "network.processor.locks"),
        (tree, "cores = 5000, packet_time = \"1us\"", "1 to 4096"),
        (tree, "cores = 4, packet_time = \"0s\"", "network.processor.packet_time"),
        (tree, "cores = 4, pair_time = \"1us\"", "network.processor.pair_time"),
        ("system = \"flare\"", "cores = 4, rate = \"8Gb/s\"", "network.processor.rate"),
        ("system = \"ring\"", "cores = 4, packet_time = \"1us\"", "network.processor"),
    ] {
        let said = refused(job, &processor(keys));
        assert!(said.contains(expected), "{keys}: {said}");
    }
    let lossless = "lossless = { model = \"output-queued\", input = \"64KiB\" }\nprocessor = { cores = 4, packet_time = \"1us\" }";
    assert!(refused(tree, lossless).contains("network.processor"));
}
