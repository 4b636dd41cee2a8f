//! What files of networks say is used: every key changes something or is refused, what switches can do is a limit, and nothing in a file
//! takes more than it may.

use std::fs;
use std::path::PathBuf;

use fanin_plan::Plan;
use fanin_plan::network::file::{LinkDefaults, NetworkFile};
use fanin_plan::run::{self, Finished};
use fanin_plan::tree::Tree;

/// Two racks below two cores.
const NETWORK: &str = r#"
hosts = ["gpu[0-7]"]

[defaults]
rate = "100Gb/s"
latency = "300ns"

[[switches]]
name = "tor[0-1]"
aggregates = true

[[switches]]
name = "core[0-1]"

[[links]]
from = "tor0"
to = "gpu[0-3]"

[[links]]
from = "tor1"
to = "gpu[4-7]"

[[links]]
from = ["core0", "core1"]
to = ["tor0", "tor1"]
"#;

fn plan(name: &str, network: &str, job: &str) -> Result<Plan, String> {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let file = format!("{name}.toml");
    fs::write(folder.join(&file), network).unwrap();
    let text = format!(
        "[network]\nshape = \"file\"\nfile = \"{file}\"\naggregating = \"file\"\n[[jobs]]\nworkers = 8\nmessage = \"96KiB\"\npatience = \"20ms\"\n{job}\n"
    );
    let plan = Plan::parse(&folder.join(format!("{name}-plan.toml")).display().to_string(), &text, &[], None);
    plan.and_then(|plan| run::check(&plan).map(|()| plan)).map_err(|error| error.to_string())
}

fn outcome(name: &str, network: &str, job: &str) -> Result<Finished, String> {
    let plan = plan(name, network, job)?;
    let mut finished = run::run(&plan, 1, || true).map_err(|error| error.to_string())?;
    finished[0].record.wall_s = 0.0;
    Ok(finished.remove(0))
}

fn text(finished: &Finished) -> String {
    format!("{:?} {:?}", finished.record, finished.links)
}

/// The keys of a table of the file, as the program lists them; `at` is a line of that table.
fn known(at: &str) -> Vec<String> {
    let error = NetworkFile::from_tree(
        "n",
        &Tree::parse("n", &NETWORK.replacen(at, &format!("{at}\nqqqqqqqq = 1"), 1)).unwrap(),
        LinkDefaults::default(),
    );
    let error = error.unwrap_err().to_string();
    error.split_once("xpected one of ").unwrap_or_else(|| panic!("{error}")).1.split(", ").map(str::to_string).collect()
}

/// Keys of a line, each with what to write in its place.
type Keys = &'static [(&'static str, &'static str, &'static str)];

/// A line of the file, the keys of its table, and what to write in its place for each key.
const VARIED: &[(&str, Keys)] = &[
    (
        "hosts = [\"gpu[0-7]\"]",
        &[
            ("hosts", "hosts = [\"gpu[0-7]\"]", "hosts = [\"gpu[0-3]\", \"gpu[5-7]\", \"gpu4\"]"),
            ("switches", "name = \"core[0-1]\"", "name = [\"core1\", \"core0\"]"),
            ("links", "from = [\"core0\", \"core1\"]", "from = \"core0\""),
            ("defaults", "latency = \"300ns\"", "latency = \"900ns\""),
        ],
    ),
    (
        "latency = \"300ns\"",
        &[("rate", "rate = \"100Gb/s\"", "rate = \"50Gb/s\""), ("latency", "latency = \"300ns\"", "latency = \"1us\"")],
    ),
    (
        "aggregates = true",
        &[
            ("name", "name = \"core[0-1]\"", "name = [\"core0\", \"core2\"]"),
            ("aggregates", "aggregates = true", "aggregates = false"),
            ("aggregation_rate", "aggregates = true", "aggregates = true\naggregation_rate = \"20Gb/s\""),
            ("memory", "aggregates = true", "aggregates = true\nmemory = \"8KiB\""),
        ],
    ),
    (
        "from = \"tor0\"",
        &[
            ("from", "from = \"tor0\"", "from = \"core0\""),
            ("to", "to = \"gpu[4-7]\"", "to = [\"gpu7\", \"gpu6\", \"gpu5\", \"gpu4\"]"),
            ("rate", "from = \"tor0\"", "rate = \"10Gb/s\"\nfrom = \"tor0\""),
            ("latency", "from = \"tor0\"", "latency = \"9us\"\nfrom = \"tor0\""),
            ("cost", "to = [\"tor0\", \"tor1\"]", "to = [\"tor0\", \"tor1\"]\n[[links]]\nfrom = \"core0\"\nto = \"core1\"\ncost = 2"),
            ("count", "from = [\"core0\", \"core1\"]", "count = 2\nfrom = [\"core0\", \"core1\"]"),
        ],
    ),
];

#[test]
fn every_key_of_a_file_changes_something_or_is_refused() {
    let job = "system = \"atp\"\nservers = 0";
    let before = text(&outcome("keys-base", NETWORK, job).unwrap());
    for (line, keys) in VARIED {
        for key in known(line) {
            let (_, from, to) = keys.iter().find(|(name, ..)| *name == key).unwrap_or_else(|| panic!("{key}: nothing says what to try"));
            assert!(NETWORK.contains(from), "{from}");
            match outcome("keys-varied", &NETWORK.replacen(from, to, 1), job) {
                Ok(after) => assert_ne!(before, text(&after), "{key} changes nothing"),
                Err(error) => assert!(error.contains(&key) || error.contains("aggregators") || error.contains("links"), "{key}: {error}"),
            }
        }
    }
    for key in ["aggregation_rate = \"20Gb/s\"", "memory = \"1MiB\""] {
        let error =
            plan("keys-unused", &NETWORK.replace("name = \"core[0-1]\"", &format!("name = \"core[0-1]\"\n{key}")), job).unwrap_err();
        assert!(error.contains("expected no such key without aggregates = true"), "{error}");
    }
}

/// A switch that adds at a quarter of its links' rate lets vectors pass at a quarter of it: for every system whose sums it makes.
#[test]
fn a_rate_of_aggregation_is_a_limit() {
    for job in [
        "system = \"tree\"",
        "system = \"switchml\"",
        "system = \"panama\"",
        "system = \"sharp\"\nmode = \"streaming\"",
        "system = \"atp\"\nservers = 0",
        "system = \"netreduce\"",
        "system = \"rina\"\nfull_speed = \"0Gb/s\"",
        "system = \"canary\"",
    ] {
        let all = NETWORK.replace("name = \"core[0-1]\"", "name = \"core[0-1]\"\naggregates = true");
        let job = format!("{job}\noperations = 4\n");
        let fast = outcome("rate-fast", &all, &job).unwrap_or_else(|error| panic!("{job}: {error}"));
        let slow = all.replace("aggregates = true", "aggregates = true\naggregation_rate = \"5Gb/s\"");
        let slow = outcome("rate-slow", &slow, &job).unwrap_or_else(|error| panic!("{job}: {error}"));
        assert!(slow.record.is_exact() && fast.record.is_good(), "{job}: {:?}", fast.record);
        let (fast, gbps) = (fast.record.goodput_gbps.unwrap(), slow.record.goodput_gbps.unwrap_or(0.0));
        assert!(gbps <= 5.0 && fast > 8.0, "{job}: {fast} and {gbps} Gb/s");
        assert!(!job.contains("tree") || gbps > 4.0, "{gbps} Gb/s");
    }
    // Hosts that sum by themselves need no switch that does.
    let error = plan("rate-ring", NETWORK, "system = \"ring\"").unwrap_err();
    assert!(error.contains("network.aggregating = \"file\": expected no such key"), "{error}");
}

/// What a job has at a switch never exceeds what was set aside for it, and what does not fit is refused by the key that says how much it is.
#[test]
fn memory_is_a_limit() {
    let all = NETWORK.replace("name = \"core[0-1]\"", "name = \"core[0-1]\"\naggregates = true");
    for (job, key) in [
        ("system = \"tree\"\nwindow = 16", "window"),
        ("system = \"panama\"\nwindow = 16", "window"),
        ("system = \"switchml\"\nwindow = 16", "window"),
        ("system = \"sharp\"\nquota = 16", "quota"),
        ("system = \"canary\"\ndescriptors = 32", "descriptors"),
        ("system = \"atp\"\naggregators = 32\nservers = 0", "aggregators"),
        ("system = \"netreduce\"\nwindow = 16", "window"),
        ("system = \"rina\"\nwindow = 16", "window"),
        ("system = \"flare\"\nwindow = 4\ndensity = 0.2", "window"),
    ] {
        // The least that is taken, between nothing and plenty.
        let with = |bytes: u64| all.replace("aggregates = true", &format!("aggregates = true\nmemory = {bytes}"));
        let (mut low, mut high) = (1u64, 16 << 20);
        assert!(plan("memory", &with(high), job).is_ok(), "{job}: {:?}", plan("memory", &with(high), job).err());
        let refused = plan("memory", &with(low), job).unwrap_err();
        assert!(refused.contains(&format!("jobs[0].{key} = ")) && refused.contains("of memory"), "{job}: {refused}");
        while high - low > 64 {
            let middle = low + (high - low) / 2;
            if plan("memory", &with(middle), job).is_ok() { high = middle } else { low = middle }
        }
        let record = outcome("memory", &with(high), &format!("{job}\noperations = 3\n")).map(|finished| finished.record);
        let peak = match &record {
            Ok(record) => record.switch_bytes_peak,
            // More operations have more blocks.
            Err(_) => outcome("memory", &with(16 << 20), job).unwrap().record.switch_bytes_peak,
        };
        assert!(peak <= high && peak > 0, "{job}: {peak} bytes of {high}");
    }
}

#[test]
fn files_are_bounded() {
    let refused = |from: &str, to: &str| {
        let text = NETWORK.replacen(from, to, 1);
        NetworkFile::from_tree("n.toml", &Tree::parse("n.toml", &text).unwrap(), LinkDefaults::default()).unwrap_err().to_string()
    };
    let many = refused("from = [\"core0\", \"core1\"]", "count = 4000000000\nfrom = [\"core0\", \"core1\"]");
    assert!(many.contains("links[2].count = 4000000000: expected at most 4194304 cables in all: these are 16000000000"), "{many}");
    let names = vec!["\"n[0-199999]\""; 1_000].join(", ");
    let many = refused("hosts = [\"gpu[0-7]\"]", &format!("hosts = [{names}]"));
    assert!(many.contains("hosts") && many.contains("expected at most 200000 names") && many.len() < 4_000, "{many}");
    let many = refused("name = \"core[0-1]\"", "name = \"core[0-199999]\"");
    assert!(many.contains("at most 200000 switches"), "{many}");
}
