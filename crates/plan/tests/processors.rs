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

/// Blocks of 1 KiB: a cluster with room for one works at one after the other, however many cores it has. A block is under way from its first
/// packet's 5 us, and takes four packets of two cores: 10 us. Room for two blocks, or a second cluster, halves that.
#[test]
fn a_cluster_sums_as_many_blocks_as_it_has_room_for() {
    let with = |keys: &str| record(TREE, &processor(&format!("packet_time = \"5us\", cores = 4{keys}")));
    let time = |record: &RunRecord| record.completion_us.expect("complete");
    // 1,024 blocks with four packets each, all four at once: 5 us a block.
    let one = with(", l1 = \"1KiB\"");
    assert!((time(&one) / (1_024.0 * 5.0) - 1.0).abs() < 0.02, "{one:?}");
    assert_eq!(one.cluster_bytes_peak, Some(1_024));
    assert!(one.cluster_waits.is_some_and(|share| share > 0.9), "{one:?}");
    // Two cores a block in one cluster of four: 10 us a block, one block or two at a time.
    for (l1, expected) in [("1KiB", 10.0), ("2KiB", 5.0)] {
        let pairs = with(&format!(", cores_per_block = 2, cluster = 4, l1 = \"{l1}\""));
        assert!(time(&pairs) / (1_024.0 * expected) > 0.98, "{l1} {pairs:?}");
        assert!(l1 == "2KiB" || (time(&pairs) / (1_024.0 * expected) < 1.02), "{l1} {pairs:?}");
    }
    // Two clusters of two cores: half of the blocks each, as chance has it, 10 us a block.
    let apart = with(", cores_per_block = 2, l1 = \"1KiB\"");
    assert!((0.98..1.1).contains(&(time(&apart) / (512.0 * 10.0))), "{apart:?}");
    // Room for the window is as much as none needs.
    let wide = with(", l1 = \"64KiB\"");
    assert_eq!((wide.cluster_waits, wide.completion_us), (Some(0.0), with("").completion_us));
}

/// An array of a block is in its cluster until its sum leaves, of all sizes of jobs; nothing is lost where packet memory is too small for all that waits.
#[test]
fn sums_of_all_kinds_wait_for_working_memory() {
    let job = |storage: &str, more: &str| {
        format!(
            "system = \"flare\"\nmessage = \"1MiB\"\npayload = \"984B\"\ndensity = 0.01\nwindow = 16\nstorage = \"{storage}\"\nrto_initial = \"1ms\"\nrto_min = \"1ms\"{more}"
        )
    };
    let cores = |l1: u32, memory: &str| processor(&format!("cores = 4, pair_time = \"50ns\", l1 = \"{l1}B\", memory = \"{memory}\""));
    // 14,760 indices of 4 bytes, and a packet of 164 pairs of 6.
    let array = 14_760 * 4 + 164 * 6;
    for (blocks, room) in [(1, 1), (2, 2), (20, 16)] {
        let wide = record(&job("array", ""), &cores(blocks * array + array / 2, "4MiB"));
        assert!(wide.cluster_bytes_peak.is_some_and(|bytes| bytes <= u64::from(room * array) && bytes % u64::from(array) == 0), "{wide:?}");
        // Four cores have packets of four workers, who send in step: of two blocks at a time at most.
        assert_eq!(wide.cluster_waits == Some(0.0), blocks > 1, "{wide:?}");
    }
    for (storage, more, l1) in [("array", "", array), ("table", "", 2_520), ("array", "\nsum_order = \"fixed\"", 355_224)] {
        let tight = record(&job(storage, more), &cores(l1, "16KiB"));
        assert!(tight.cluster_waits.is_some_and(|share| share > 0.0), "{storage} {tight:?}");
    }
    // Two jobs whose blocks differ in size share the memory.
    let shared = "\njobs_per_host = 2";
    let sparse = format!("{}{shared}\nworkers = 4\npatience = \"9s\"", job("array", ""));
    let two = format!("{sparse}\n[[jobs]]\n{}{shared}", TREE.replace("\"1s\"", "\"1ms\""));
    let both = record(&two, &cores(array + 5_000, "64KiB"));
    assert!(both.cluster_bytes_peak.is_some_and(|bytes| bytes > u64::from(array) && bytes <= u64::from(array + 5_000)), "{both:?}");
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

/// Flare's sparse sums of 64 hosts on two levels beside an event model by others, of 100 lines: eight leaves and a spine, each with clusters of eight
/// cores and one lock a block for which cores spin; 50 cycles a packet, so many a pair, so many a place that is looked at when a sum leaves; 32
/// blocks of 65,536 indices under way; densities and spill by their expectations, and links by the time that their bytes take. Its numbers, in us, are
/// for 6,125,000 elements at 0.2 %, hosts in step, blocks dealt out to clusters in turns that move by one each time round, and no time for pairs
/// that leave. Agreement is within a twentieth. (Where blocks fall on clusters by chance, both take longer: the spine's pairs of 8 cycles
/// 1,726 us there and 1,737 here, for 28 of 94 blocks are one cluster's.)
#[test]
fn another_event_model_of_sparse_sums_takes_as_long() {
    let completion = |storage: &str, keys: &str| {
        let text = format!(
            "[network]\nshape = \"fat-tree\"\nleaves = 8\nhosts_per_leaf = 8\nspines = 8\nrate = \"100Gb/s\"\nlatency = \"300ns\"\nqueue = \"4MiB\"\n{keys}\n\
             [[jobs]]\nsystem = \"flare\"\nplacement = \"packed\"\nworkers = 64\nmessage = \"24.5MB\"\npayload = \"984B\"\ncoding = \"pairs\"\n\
             density = 0.002\nwindow = 32\npatience = \"1s\"\nrto_initial = \"100ms\"\nrto_min = \"100ms\"\n{storage}\n[run]\ntime_limit = \"10s\"\n"
        );
        let plan = Plan::parse("plan.toml", &text, &[], None).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let record = run(&plan, 1, || true).expect("the plan runs").remove(0).record;
        assert!(record.is_exact(), "{record:?}");
        record.completion_us.expect("complete")
    };
    let cores = |cores: u32, more: &str| {
        processor(&format!("cores = {cores}, cores_per_block = 8, map = \"skewed\", locks = true, packet_time = \"50ns\", {more}"))
    };
    let two_levels = "storage = \"two-level\"\nslots = 1024";
    for (name, storage, keys, expected_us) in [
        ("switches that take no time", "", String::new(), 385.4),
        ("pairs of 8 cycles", "", cores(32, "pair_time = \"8ns\""), 1_485.2),
        ("pairs of 15 cycles", "", cores(32, "pair_time = \"15ns\""), 2_724.4),
        ("arrays, 4 cycles a place", "", cores(32, "pair_time = \"8ns\", place_time = \"4ns\""), 2_287.5),
        ("512 cores", "", cores(512, "pair_time = \"8ns\", place_time = \"4ns\""), 1_942.2),
        ("tables at the leaves", two_levels, cores(32, "pair_time = \"8ns\", place_time = \"4ns\""), 1_857.1),
    ] {
        let us = completion(storage, &keys);
        assert!((us / expected_us - 1.0).abs() < 0.05, "{name}: {us} us, {expected_us} us there");
    }
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
        (tree, "cores = 4, packet_time = \"1us\", map = \"modulo\"", "network.processor.map"),
        (tree, "cores = 4, packet_time = \"1us\", cluster = 2", "network.processor.cluster"),
        (tree, "cores = 4, cores_per_block = 2, packet_time = \"1us\", l1 = \"4KiB\", cluster = 3", "divides cores_per_block (2)"),
        (tree, "cores = 4, packet_time = \"1us\", l1 = \"100B\"", "at least the 1024 B of one block of tree"),
        ("system = \"flare\"", "cores = 4, packet_time = \"1us\", l1 = \"4KiB\"", "B of one block of flare"),
        ("system = \"switchml\"", "cores = 4, packet_time = \"1us\", l1 = \"4KiB\"", "none of switchml"),
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
