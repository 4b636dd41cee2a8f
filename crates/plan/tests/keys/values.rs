//! What keys are varied to, and what has to be said beside that. Keys that the program knows and that are missing here are an error.

/// A value for a key, and what the plan says beside it, with and without that value.
pub struct Try {
    /// Assignments beside it, as `--set` has them; none: in the plan as it is.
    pub with: &'static [&'static str],
    /// The value, as TOML.
    pub value: &'static str,
}

/// A key by the name of its table and its own, and what to try. What is tried with nothing beside it must change something or be refused.
pub type Key = (&'static str, &'static [Try]);

const fn bare(value: &'static str) -> Try {
    Try { with: &[], value }
}

const fn with(with: &'static [&'static str], value: &'static str) -> Try {
    Try { with, value }
}

const LOSS: &str = "faults.links=[{ loss = 0.05 }]";
const DEAD: &[&str] = &["faults.timed=[{ kind = \"host-dies\", rank = 1, from = \"2us\" }]"];
const TRAFFIC: &str = "traffic=[{ pattern = \"uniform\", hosts = \"all\", messages = 4 }]";
const FULL: &[&str] = &["network.queue=\"1200B\"", TRAFFIC];
const MARKS: &str = "network.ecn=\"2KiB\"";
const DCQCN: &[&str] = &["jobs.0.congestion=dcqcn", MARKS, TRAFFIC];
const DCQCN_LONG: &[&str] = &["jobs.0.congestion=dcqcn", MARKS, TRAFFIC, "jobs.0.operations=40"];
const TRAINS: &str = "jobs.0.iterations=2";
const UNRELIABLE: &str = "jobs.0.reliable=false";
const ADAPTIVE: &str = "jobs.0.timeout=adaptive";
const WORKLOAD: &str = "jobs=[{ system = \"tree\", workload = \"tests/keys/hosts.toml\" }]";
const TWO_JOBS: &str = "jobs.0.copies=2";

/// `[network]`.
pub const NETWORK: &[Key] = &[
    ("shape", &[bare("\"star\""), with(&["network={ rate = \"100Gb/s\", latency = \"300ns\", hosts = 16 }"], "\"star\"")]),
    ("hosts", &[bare("3"), with(&["network={ shape = \"star\", rate = \"100Gb/s\", latency = \"300ns\", hosts = 16 }"], "17")]),
    ("leaves", &[bare("4")]),
    ("hosts_per_leaf", &[bare("6")]),
    ("spines", &[bare("3")]),
    ("parallel_links", &[bare("2")]),
    (
        "ports",
        &[
            bare("4"),
            with(&["network={ shape = \"fat-tree-3\", rate = \"100Gb/s\", latency = \"300ns\", ports = 4 }", "jobs.0.window=32"], "6"),
        ],
    ),
    ("groups", &[bare("4"), with(&[DRAGONFLY], "4")]),
    ("routers", &[bare("4"), with(&[DRAGONFLY], "4")]),
    ("global_links", &[bare("2"), with(&[DRAGONFLY], "3")]),
    ("hosts_per_router", &[bare("4"), with(&[DRAGONFLY], "5")]),
    ("machines", &[bare("4"), with(&[MACHINES], "4")]),
    ("per_machine", &[bare("4"), with(&[MACHINES], "6")]),
    ("machines_per_leaf", &[bare("4"), with(&[RAILS], "2")]),
    ("cards", &[bare("\"machines\""), with(&[RAILS], "\"machines\"")]),
    ("nvls", &[bare("true"), with(&[RAILS], "true")]),
    ("planes", &[bare("2")]),
    ("intra_rate", &[bare("\"50Gb/s\""), with(&[MACHINES], "\"50Gb/s\"")]),
    ("intra_latency", &[bare("\"900ns\""), with(&[MACHINES], "\"900ns\"")]),
    (
        "file",
        &[bare("\"tests/keys/a.toml\""), with(&["network={ shape = \"file\", file = \"tests/keys/a.toml\" }"], "\"tests/keys/b.toml\"")],
    ),
    ("rate", &[bare("\"50Gb/s\"")]),
    ("latency", &[bare("\"900ns\"")]),
    ("fabric_rate", &[bare("\"50Gb/s\"")]),
    ("fabric_latency", &[bare("\"900ns\"")]),
    ("global_rate", &[bare("\"50Gb/s\""), with(&[DRAGONFLY], "\"20Gb/s\"")]),
    ("global_latency", &[bare("\"900ns\""), with(&[DRAGONFLY], "\"900ns\"")]),
    ("queue", &[with(&[TRAFFIC], "\"1200B\""), with(&[LOSSLESS, UNRELIABLE], "\"64KiB\"")]),
    ("trimming", &[with(FULL, "\"all\""), with(FULL, "\"hosts\"")]),
    ("lossless", &[bare("{ model = \"output-queued\", input = \"2KiB\" }")]),
    ("processor", &[bare("{ cores = 4, packet_time = \"200ns\" }")]),
    ("hardware", &[bare("{ aggregation_rate = \"20Gb/s\" }")]),
    ("ecn", &[with(&[TRAFFIC], "\"1200B\"")]),
    ("nic_queue", &[with(&["jobs.0.message=512KiB"], "\"1200B\"")]),
    ("frame_overhead", &[bare("99")]),
    ("frame_min", &[bare("1500")]),
    ("routing", &[with(&[TRAFFIC], "\"random\""), with(&[TRAFFIC], "\"destination\"")]),
    ("background_routing", &[bare("\"random\""), with(&[TRAFFIC], "\"random\"")]),
    ("flowlet_gap", &[bare("\"1us\""), with(&["network.routing=flowlet", TRAFFIC], "\"100ns\"")]),
    ("aggregating", &[bare("[\"leaf0\", \"leaf1\"]")]),
    ("aggregators", &[bare("7")]),
    ("slot_versions", &[bare("2"), with(&["network.aggregators=20"], "2")]),
    ("adaptive_threshold", &[bare("0.01"), with(&["network.routing=adaptive", "network.queue=\"16KiB\"", TRAFFIC], "0.01")]),
    ("drill_samples", &[bare("1"), with(&["network.routing=drill", TRAFFIC], "1")]),
    ("drill_memory", &[bare("0"), with(&["network.routing=drill", "network.spines=4", TRAFFIC], "0")]),
    ("conga_time", &[bare("\"1us\""), with(&["network.routing=conga", "network.flowlet_gap=\"100ns\"", TRAFFIC], "\"1us\"")]),
    ("conga_aging", &[bare("\"1us\""), with(&["network.routing=conga", "network.flowlet_gap=\"100ns\"", TRAFFIC], "\"200ns\"")]),
];

const DRAGONFLY: &str = "network={ shape = \"dragonfly\", rate = \"100Gb/s\", latency = \"300ns\", groups = 3, routers = 3, global_links = 2, hosts_per_router = 4 }";
const RAILS: &str =
    "network={ shape = \"rail-optimised\", rate = \"100Gb/s\", latency = \"300ns\", machines = 4, per_machine = 4, spines = 2 }";
const MACHINES: &str = "network={ shape = \"machines\", rate = \"100Gb/s\", latency = \"300ns\", machines = 3, per_machine = 5 }";
const LOSSLESS: &str = "network.lossless={ model = \"input-queued\", input = \"4KiB\" }";

/// `network.lossless`.
pub const LOSSLESS_KEYS: &[Key] = &[
    ("model", &[with(&[LOSSLESS, UNRELIABLE, TRAFFIC], "\"output-queued\"")]),
    ("input", &[with(&[LOSSLESS, UNRELIABLE], "\"1200B\"")]),
    ("output", &[with(&[LOSSLESS, UNRELIABLE, TRAFFIC], "\"1200B\"")]),
    ("arbitration", &[with(&[LOSSLESS, UNRELIABLE, TRAFFIC], "\"oldest-first\"")]),
    ("made_packets", &[with(&[LOSSLESS, UNRELIABLE, TRAFFIC], "\"own-fifo\"")]),
    ("channels", &[with(&[LOSSLESS, UNRELIABLE], "2"), with(&[DRAGONFLY, LOSSLESS, UNRELIABLE, TRAFFIC, "run.time_limit=\"1ms\""], "1")]),
];

const CORES: &str = "network.processor={ cores = 4, packet_time = \"1us\" }";
const SPARSE_CORES: &str = "network.processor={ cores = 4, pair_time = \"100ns\" }";

/// `network.processor`.
pub const PROCESSOR_KEYS: &[Key] = &[
    ("cores", &[with(&[CORES], "1")]),
    ("cores_per_block", &[with(&[CORES], "1"), with(&[CORES, "network.processor.locks=true"], "2")]),
    ("packet_time", &[with(&[CORES], "\"2us\"")]),
    ("rate", &[with(&[CORES], "\"10Gb/s\"")]),
    ("pair_time", &[with(&[CORES], "\"100ns\""), with(&[CORES, "jobs.0.density=0.2"], "\"100ns\"")]),
    ("place_time", &[with(&[CORES], "\"100ns\""), with(&[SPARSE_CORES, "jobs.0.density=0.2"], "\"100ns\"")]),
    ("locks", &[with(&[CORES], "true")]),
    ("memory", &[with(&[CORES], "\"4KiB\"")]),
    ("l1", &[with(&[CORES], "\"4KiB\"")]),
    ("map", &[with(&[CORES, "network.processor.cores_per_block=1"], "\"modulo\""), with(&[CORES], "\"skewed\"")]),
    ("cluster", &[with(&[CORES, "network.processor.l1=\"1KiB\""], "1"), with(&[CORES], "2")]),
];

const PASSES: &str = "network.hardware={ elements = 64, recirculation = \"100Gb/s\" }";
const GROUPS: &str = "network.hardware={ groups = 14, recirculation = \"100Gb/s\" }";

/// `network.hardware`.
pub const HARDWARE_KEYS: &[Key] = &[
    ("preset", &[bare("\"xdp\"")]),
    ("elements", &[with(&[PASSES], "128")]),
    ("recirculation", &[with(&[PASSES], "\"50Gb/s\"")]),
    ("pass_time", &[with(&[PASSES], "\"1us\"")]),
    ("groups", &[with(&[PASSES], "14"), with(&[PASSES, "jobs.0.trees=2"], "1")]),
    ("groups_per_pass", &[with(&[GROUPS], "7")]),
    ("scan_rate", &[with(&[PASSES], "1000000000")]),
    ("aggregation_rate", &[with(&[PASSES], "\"20Gb/s\"")]),
    ("memory", &[with(&[PASSES], "\"1KiB\"")]),
];

/// Keys of `[[jobs]]`, those of every job and those of all systems.
pub const JOBS: &[Key] = &[
    ("file", &[bare("\"tests/keys/jobs.csv\"")]),
    ("workload", &[bare("\"tests/keys/step.toml\""), with(&[WORKLOAD], "\"tests/keys/step.toml\"")]),
    ("groups", &[bare("{ all = \"ring\" }"), with(&[WORKLOAD], "{ all = \"ring\" }")]),
    ("local_rate", &[bare("\"10Gb/s\""), with(&[WORKLOAD], "\"10Gb/s\"")]),
    ("local_latency", &[bare("\"3us\""), with(&[WORKLOAD], "\"3us\"")]),
    ("collective", &[bare("\"reduce\""), bare("\"all-to-all\""), bare("\"barrier\"")]),
    ("root_rank", &[bare("3"), with(&["jobs.0.collective=reduce"], "3"), with(&["jobs.0.density=0.2"], "3")]),
    ("copies", &[with(&["jobs.0.jobs_per_host=3"], "2")]),
    ("workers", &[with(&["jobs.0.placement=packed"], "10")]),
    ("servers", &[bare("2")]),
    (
        "server_placement",
        &[bare("\"packed\""), bare("\"spread\""), bare("\"random\""), with(&["jobs.0.system=atp", "jobs.0.workers=5"], "\"packed\"")],
    ),
    ("placement", &[bare("\"packed\"")]),
    ("jobs_per_host", &[with(&["jobs.0.placement=random", "jobs.0.workers=5", TWO_JOBS], "2")]),
    ("message", &[bare("\"64KiB\"")]),
    ("payload", &[bare("512")]),
    ("element", &[with(&["jobs.0.message=96001"], "\"i8\""), with(&["jobs.0.density=0.2"], "\"f64\"")]),
    ("across", &[bare("\"ring\"")]),
    ("chunks", &[bare("2"), with(&["jobs.0.across=ring"], "2")]),
    ("reproducible", &[bare("\"element\"")]),
    ("operator", &[bare("\"max\"")]),
    ("indices", &[with(&["jobs.0.message=8KiB"], "\"tests/keys/indices.txt\"")]),
    ("operations", &[bare("2")]),
    ("model", &[bare("\"resnet50\""), with(&[TRAINS, "jobs.0.compute=\"1us\""], "\"vgg16\"")]),
    ("scale", &[bare("0.5"), with(&["jobs.0.model=\"resnet50\"", "jobs.0.iterations=2"], "0.01")]),
    ("iterations", &[bare("3")]),
    ("tensor", &[bare("\"16KiB\""), with(&[TRAINS], "\"16KiB\"")]),
    ("compute", &[bare("\"3us\""), with(&[TRAINS], "\"3us\"")]),
    ("compute_spread", &[bare("0.5"), with(&[TRAINS], "0.5"), with(&[TRAINS, "jobs.0.compute=\"3us\""], "0.5")]),
    ("start", &[bare("\"3us\"")]),
    ("start_skew", &[bare("\"3us\"")]),
    ("arrivals", &[bare("\"3us\"")]),
    ("crash", &[bare("\"1us\"")]),
    (
        "noise",
        &[
            bare("{ probability = 0.5, delay = \"1us\" }"),
            bare("{ probability = 0.5, delay = { distribution = \"pareto\", min = \"1us\", shape = 2.0 } }"),
        ],
    ),
    (
        "window",
        &[
            with(&["jobs.0.message=\"64KiB\""], "4"),
            with(&["jobs.0.density=0.2"], "2"),
            with(&["jobs.0.mode=streaming"], "4"),
            with(&["jobs.0.refused=wait"], "16"),
        ],
    ),
    ("reliable", &[with(&[LOSS, "run.time_limit=\"5ms\""], "false")]),
    ("rto_initial", &[with(&[LOSS], "\"3us\""), with(&[LOSS, "jobs.0.message=\"1KiB\""], "\"30us\""), with(&[UNRELIABLE], "\"3us\"")]),
    ("rto_min", &[with(&["faults.links=[{ loss = 0.3 }]", "jobs.0.operations=4"], "\"3ms\""), with(&[UNRELIABLE], "\"300us\"")]),
    ("patience", &[with(DEAD, "\"3ms\""), with(&[UNRELIABLE], "\"300us\"")]),
    ("order", &[with(&["jobs.0.placement=[7, 3, 12, 0, 9, 5, 1, 14]", "jobs.0.workers=8"], "\"placement\"")]),
    ("barrier", &[bare("true")]),
    ("step_overhead", &[bare("\"1us\"")]),
    ("step_deviation", &[bare("\"1us\"")]),
    ("trees", &[bare("2")]),
    ("sum_order", &[bare("\"fixed\"")]),
    ("window_initial", &[bare("2")]),
    ("mode", &[bare("\"streaming\"")]),
    ("quota", &[bare("4"), with(&["jobs.0.mode=streaming"], "4")]),
    (
        "streams_by",
        &[with(&[TWO_JOBS, "jobs.0.workers=5", "jobs.0.jobs_per_host=2", "jobs.0.mode=streaming", "jobs.0.refused=wait"], "\"port\"")],
    ),
    ("outstanding", &[with(&[TWO_JOBS, "jobs.0.workers=5", "jobs.0.jobs_per_host=2"], "16")]),
    ("refused", &[with(&[TWO_JOBS, "jobs.0.workers=5", "jobs.0.jobs_per_host=2", "jobs.0.outstanding=16"], "\"wait\"")]),
    (
        "retry",
        &[with(&[TWO_JOBS, "jobs.0.workers=5", "jobs.0.jobs_per_host=2", "jobs.0.outstanding=16", "jobs.0.refused=wait"], "\"33us\"")],
    ),
    ("density", &[bare("0.2")]),
    ("overlap", &[bare("0.5")]),
    ("picks", &[bare("\"buckets\"")]),
    ("coding", &[with(&["jobs.0.density=0.2"], "\"pairs\"")]),
    ("range", &[bare("512")]),
    ("storage", &[bare("\"array\""), bare("\"table\"")]),
    ("slots", &[with(&["jobs.0.storage=table"], "8"), with(&["jobs.0.storage=array"], "8")]),
    ("probes", &[with(&["jobs.0.storage=table", "jobs.0.slots=64"], "true"), with(&["jobs.0.storage=array"], "true")]),
    ("staggered", &[with(&["jobs.0.density=0.2"], "true")]),
    ("algorithm", &[bare("\"parallel-ring\"")]),
    ("window_messages", &[with(&["jobs.0.window=16"], "4"), with(&["jobs.0.algorithm=\"parallel-netreduce\"", "jobs.0.window=8"], "4")]),
    ("retries", &[with(DEAD, "1")]),
    ("congestion", &[with(&[MARKS, TRAFFIC], "\"dcqcn\"")]),
    ("line_rate", &[bare("\"20Gb/s\""), with(DCQCN, "\"20Gb/s\"")]),
    ("rate_min", &[bare("\"20Gb/s\""), with(DCQCN, "\"90Gb/s\"")]),
    ("gain_inverse", &[bare("8"), with(DCQCN_LONG, "2")]),
    ("notification_gap", &[bare("\"1us\""), with(DCQCN_LONG, "\"1us\"")]),
    ("estimate_timer", &[bare("\"2us\""), with(DCQCN_LONG, "\"2us\"")]),
    ("rate_timer", &[bare("\"2us\""), with(DCQCN_LONG, "\"2us\"")]),
    ("rate_bytes", &[bare("\"2KiB\""), with(DCQCN_LONG, "\"2KiB\"")]),
    ("additive", &[bare("\"9Gb/s\""), with(SOON, "\"9Gb/s\"")]),
    ("hyper", &[bare("\"9Gb/s\""), with(SOON, "\"9Gb/s\"")]),
    (
        "lookup",
        &[with(
            &["faults.links=[{ loss = 0.1, reordering = 0.3 }]", "jobs.0.window=16", "jobs.0.patience=\"2ms\"", "run.time_limit=\"20ms\""],
            "\"newest\"",
        )],
    ),
    ("deallocation", &[with(&[LOSS, "jobs.0.window=8", "jobs.0.patience=\"2ms\"", "run.time_limit=\"20ms\""], "\"packet\"")]),
    ("reemission", &[with(&[LOSS, "jobs.0.operations=4"], "\"all\"")]),
    ("recovery", &[with(&[LOSS], "\"cards\"")]),
    ("answer_min", &[with(&[LOSS], "\"40us\"")]),
    ("shards", &[bare("2"), with(&["jobs.0.servers=0"], "2")]),
    ("aggregating", &[bare("1")]),
    ("partitions", &[with(&["jobs.0.aggregating=1"], "\"balanced\"")]),
    ("results", &[with(&["jobs.0.full_speed=\"0Gb/s\"", "jobs.0.message=1MiB"], "\"first\"")]),
    ("onward", &[with(&["jobs.0.message=1MiB"], "\"agent\"")]),
    ("full_speed", &[bare("\"5Gb/s\"")]),
    ("timeout", &[bare("\"100ns\""), bare("{ leaf = \"1us\", root = \"2us\" }"), bare("{ spine = \"2us\" }")]),
    ("fan_in", &[bare("\"known\"")]),
    ("leader", &[bare("\"random\""), bare("\"fixed:1\"")]),
    ("leader_time", &[bare("\"1us\"")]),
    ("scan", &[bare("\"1us\""), with(&[ADAPTIVE], "\"1us\"")]),
    ("timeout_min", &[bare("\"900ns\""), with(&[ADAPTIVE], "\"900ns\"")]),
    ("timeout_max", &[bare("\"2us\""), with(&[ADAPTIVE, "jobs.0.operations=40", TRAFFIC], "\"600ns\"")]),
    ("descriptors", &[bare("4")]),
    ("shared", &[with(&["jobs.0.copies=2", "jobs.0.workers=6", "jobs.0.descriptors=8"], "true")]),
    ("table", &[with(&["jobs.0.descriptors=16"], "\"hash\""), with(&["jobs.0.descriptors=64", "jobs.0.table=hash"], "\"d-choice\"")]),
    ("failure", &[with(&[LOSS], "\"first-request\""), with(&[UNRELIABLE], "\"first-request\"")]),
    ("hold", &[bare("\"2us\""), with(&[LOSS, "jobs.0.failure=hold"], "\"900us\""), with(&[UNRELIABLE], "\"2us\"")]),
    (
        "generations",
        &[
            with(&["faults.links=[{ loss = 0.2 }]", "jobs.0.rto_initial=\"50us\"", "jobs.0.rto_min=\"20us\""], "1"),
            with(&[UNRELIABLE], "1"),
        ],
    ),
    ("lifetime", &[with(&["faults.links=[{ loss = 0.2 }]"], "\"500us\""), with(&[UNRELIABLE], "\"900us\"")]),
    ("fixed_point", &[with(&["jobs.0.element=i32"], "true"), with(&["jobs.0.overflow=0.5"], "true"), with(&[LOSS], "true")]),
    ("aggregators", &[bare("3"), with(&["jobs.0.aggregating=0"], "3")]),
    ("initial", &[bare("2"), with(FOLLOWS, "2")]),
    ("window_min", &[bare("2"), with(FOLLOWS, "30")]),
    ("reclaim", &[with(&["jobs.0.aggregators=8", "jobs.0.crash=\"2us\"", SECOND], "\"1us\""), with(&["jobs.0.aggregating=0"], "\"1us\"")]),
    ("nets", &[with(&["faults.links=[{ loss = 0.1 }]", "jobs.0.operations=4"], "\"paper\"")]),
    ("overflow", &[bare("0.5"), with(&["jobs.0.fixed_point=true"], "0.5")]),
    ("increase", &[with(&["jobs.0.initial=2"], "\"60KiB\"")]),
    ("windows", &[with(&[MARKS, TRAFFIC, "jobs.0.operations=8"], "\"own\""), with(&[MARKS, TRAFFIC, "jobs.0.operations=8"], "\"a2tp\"")]),
    ("threshold", &[with(CONTENDED, "0"), with(FOLLOWS, "0.9")]),
    ("collision_weight", &[with(CONTENDED, "1"), with(FOLLOWS, "1")]),
    ("mark_weight", &[with(MARKED, "1"), with(FOLLOWS, "1")]),
    ("priority", &[with(CONTENDED, "9")]),
    ("quiet_rounds", &[with(CONTENDED, "1")]),
    ("aggregators_min", &[with(CONTENDED, "16")]),
    ("fair", &[with(CONTENDED, "true")]),
    ("col_only", &[with(CONTENDED, "true")]),
    ("collisions", &[with(CONTENDED, "\"aggregated\""), with(FOLLOWS, "\"stragglers\"")]),
    ("synchrony", &[with(CONTENDED, "\"round-trip\"")]),
];

/// Windows of Canary that follow collisions in short arrays, and marks.
const FOLLOWS: &[&str] =
    &["jobs.0.windows=a2tp", "jobs.0.descriptors=8", "jobs.0.window=64", "jobs.0.message=512KiB", "jobs.0.operations=4", MARKS, TRAFFIC];
/// Two jobs over the same switches, which have far fewer aggregators than the jobs have packets under way.
const CONTENDED: &[&str] =
    &["jobs.0.workers=6", TWO_JOBS, "jobs.0.aggregators=8", "jobs.0.window=64", "jobs.0.message=512KiB", "jobs.0.operations=8"];
/// The same, at ports that mark.
const MARKED: &[&str] =
    &["jobs.0.workers=6", TWO_JOBS, "jobs.0.aggregators=8", "jobs.0.window=64", "jobs.0.message=512KiB", "jobs.0.operations=8", MARKS];
const SECOND: &str = "flows=[]";
/// Rates that recover within the run.
const SOON: &[&str] = &[
    "jobs.0.congestion=dcqcn",
    MARKS,
    TRAFFIC,
    "jobs.0.operations=40",
    "jobs.0.rate_timer=\"1us\"",
    "jobs.0.rate_bytes=\"4KiB\"",
    "jobs.0.notification_gap=\"5us\"",
];

const ONE_TRAFFIC: &[&str] = &[TRAFFIC];
const FLOW: &[&str] = &["flows=[{ from = \"host0\", to = \"host7\", rate = \"20Gb/s\" }]"];
const STEPS: &[&str] = &["flows=[{ from = \"host0\", to = \"host7\" }]"];
const LIMIT: &[&str] = &["limits=[{ receive = \"20Mp/s\" }]"];
const SLOW: &[&str] = &["limits=[{ receive = \"2Mp/s\" }]"];
const LINKS: &[&str] = &[LOSS];
const REORDER: &[&str] = &["faults.links=[{ reordering = 0.2 }]"];
const REPEATS: &[&str] = &["faults.links=[{ duplication = 0.2 }]"];
const DEAD_OF_TWO: &[&str] =
    &["faults.timed=[{ kind = \"host-dies\", rank = 1, from = \"2us\" }]", "jobs.0.jobs_per_host=2", "jobs.0.placement=random", TWO_JOBS];
const STALL: &[&str] = &["faults.timed=[{ kind = \"host-stall\", rank = 1, from = \"2us\", until = \"5us\" }]", "jobs.0.operations=8"];

/// Keys of other tables: the path of the table, its keys.
pub const OTHERS: &[(&str, &[Key])] = &[
    (
        "jobs.0.noise",
        &[
            ("probability", &[with(&["jobs.0.noise={ probability = 0.5, delay = \"1us\" }"], "0.9")]),
            ("delay", &[with(&["jobs.0.noise={ probability = 0.5, delay = \"1us\" }"], "\"2us\"")]),
        ],
    ),
    (
        "traffic.0",
        &[
            ("enabled", &[with(ONE_TRAFFIC, "false")]),
            ("pattern", &[with(ONE_TRAFFIC, "\"permutation\"")]),
            ("receivers", &[with(ONE_TRAFFIC, "2"), with(&["traffic=[{ pattern = \"incast\", hosts = \"all\", messages = 4 }]"], "2")]),
            ("hosts", &[with(ONE_TRAFFIC, "\"rest\"")]),
            ("message", &[with(ONE_TRAFFIC, "\"16KiB\"")]),
            ("payload", &[with(ONE_TRAFFIC, "512")]),
            ("load", &[with(ONE_TRAFFIC, "0.5")]),
            ("congestion", &[with(ONE_TRAFFIC, "\"dctcp\"")]),
            // A first timeout that is shorter than a round trip.
            (
                "rto_min",
                &[with(&["traffic=[{ pattern = \"uniform\", hosts = \"all\", messages = 4, congestion = \"dctcp\" }]"], "\"1us\"")],
            ),
            ("messages", &[with(&["traffic=[{ pattern = \"uniform\", hosts = \"all\", message = \"1KiB\" }]"], "1")]),
            ("start", &[with(ONE_TRAFFIC, "\"1us\"")]),
        ],
    ),
    (
        "flows.0",
        &[
            ("enabled", &[with(FLOW, "false")]),
            ("from", &[with(FLOW, "\"host1\"")]),
            ("to", &[with(FLOW, "\"host12\"")]),
            ("payload", &[with(FLOW, "300")]),
            ("rate", &[with(FLOW, "\"50Gb/s\"")]),
            ("start", &[with(FLOW, "\"1us\"")]),
            ("until", &[with(FLOW, "\"3us\""), with(FLOW, "\"1us\"")]),
            ("steps", &[with(FLOW, "[{ at = \"0us\", rate = \"9Gb/s\" }]"), with(STEPS, "[{ at = \"0us\", rate = \"9Gb/s\" }]")]),
        ],
    ),
    (
        "limits.0",
        &[
            ("enabled", &[with(LIMIT, "false")]),
            ("hosts", &[with(SLOW, "[0]")]),
            ("send", &[with(LIMIT, "\"2Mp/s\"")]),
            ("receive", &[with(LIMIT, "\"2Mp/s\"")]),
            ("receive_mark", &[with(&["limits=[{ send = \"2Mp/s\" }]"], "2"), with(SLOW, "1")]),
            ("receive_queue", &[with(&["limits=[{ send = \"2Mp/s\" }]"], "2"), with(SLOW, "1")]),
            ("rate", &[with(LIMIT, "\"9Gb/s\"")]),
            ("from", &[with(SLOW, "\"4us\"")]),
            ("until", &[with(SLOW, "\"4us\"")]),
        ],
    ),
    (
        "faults",
        &[
            ("links", &[bare("[{ loss = 0.1 }]")]),
            ("timed", &[bare("[{ kind = \"host-dies\", rank = 1, from = \"2us\" }]")]),
            ("anti_replay", &[bare("false"), with(REPEATS, "false")]),
        ],
    ),
    (
        "faults.links.0",
        &[
            ("links", &[with(LINKS, "\"host-up\"")]),
            ("kinds", &[with(LINKS, "[\"background\"]")]),
            ("loss", &[with(LINKS, "0.1")]),
            ("corruption", &[with(LINKS, "0.1")]),
            ("duplication", &[with(LINKS, "0.1")]),
            ("reordering", &[with(LINKS, "0.1")]),
            ("delay", &[with(LINKS, "\"1us\""), with(REORDER, "\"1us\"")]),
        ],
    ),
    (
        "faults.timed.0",
        &[
            ("kind", &[with(DEAD, "\"switch-down\""), with(&["faults.timed=[{ rank = 1 }]"], "\"host-dies\"")]),
            (
                "between",
                &[with(DEAD, "[\"leaf0\", \"spine0\"]"), with(&["faults.timed=[{ kind = \"link-down\" }]"], "[\"leaf0\", \"spine0\"]")],
            ),
            ("switch", &[with(DEAD, "\"leaf0\""), with(&["faults.timed=[{ kind = \"switch-down\" }]"], "\"leaf0\"")]),
            ("host", &[with(DEAD, "\"host3\""), with(&["faults.timed=[{ kind = \"host-dies\" }]"], "\"host3\"")]),
            ("rank", &[with(DEAD, "3")]),
            ("job", &[with(DEAD_OF_TWO, "1")]),
            ("from", &[with(STALL, "\"3us\""), with(STALL, "\"4500ns\"")]),
            ("until", &[with(STALL, "\"9us\"")]),
        ],
    ),
    (
        "run",
        &[
            ("seed", &[bare("7")]),
            ("repetitions", &[bare("2")]),
            ("payload", &[bare("\"length\"")]),
            ("time_limit", &[bare("\"1us\"")]),
            ("drain", &[with(&["traffic=[{ pattern = \"uniform\", hosts = \"all\" }]"], "true")]),
            ("steady", &[bare("\"1%\"")]),
            ("memory_interval", &[bare("\"1us\"")]),
            ("series_interval", &[bare("\"1us\"")]),
            ("alone", &[bare("true")]),
            ("expect", &[bare("\"failure\"")]),
        ],
    ),
];
