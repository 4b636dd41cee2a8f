//! What would not fit any machine is refused at once, with its line and key and an estimate: each number by itself, and products of numbers
//! that would do by themselves.

use std::fmt::Write as _;

use fanin_plan::Plan;
use fanin_plan::computed::Computed;
use fanin_plan::run;

const BASE: &str = r#"[network]
shape = "star"
hosts = 8
rate = "100Gb/s"
latency = "300ns"
[[jobs]]
system = "tree"
workers = 8
message = "64KiB"
"#;

fn refused(text: &str) -> String {
    let plan = Plan::parse("plan.toml", text, &[], None).and_then(|plan| run::check(&plan));
    plan.expect_err("refused").to_string()
}

fn taken(text: &str) {
    Plan::parse("plan.toml", text, &[], None).and_then(|plan| run::check(&plan)).unwrap();
}

/// What is written, and what is said; the line number is checked, too.
#[test]
fn single_numbers_are_bounded() {
    for (line, expected) in [
        ("[run]\nrepetitions = 1000000000", "plan.toml:11: run.repetitions = 1000000000: expected at most 1000000 runs in all"),
        ("[run]\nrepetitions = 4294967295", "plan.toml:11: run.repetitions = 4294967295: expected at most 1000000 runs"),
        ("operations = 4294967295", "plan.toml:10: jobs[0].operations = 4294967295: expected less: 4294967295 operations x 8 workers"),
        ("iterations = 4294967295", "plan.toml:10: jobs[0].iterations = 4294967295: expected less: 4294967295 operations"),
        ("copies = 4294967295", "jobs = 4294967295: expected at most 60000 jobs"),
        ("window = 1000000000", "plan.toml:10: jobs[0].window = 1000000000: expected 1 to 1048576 packets"),
        ("jobs_per_host = 4294967295\ncopies = 60000", "plan.toml:11: jobs[0].copies = 60000: expected"),
    ] {
        let said = refused(&format!("{BASE}{line}\n"));
        assert!(said.contains(expected), "{line}: {said}");
    }
    for (from, to, expected) in [
        (
            "\"64KiB\"",
            "\"4GiB\"\n[run]\npayload = \"elements\"",
            "plan.toml:9: jobs[0].message = \"4GiB\": expected less: real elements of 8 workers, in and out, of 4 GiB each, take about 64 GiB",
        ),
        ("\"64KiB\"", "\"17000000000GiB\"", "jobs[0].message"),
        ("workers = 8", "workers = 4000000000", "plan.toml:8: jobs[0].workers = 4000000000: expected at most 8, the number of hosts"),
        ("workers = 8", "workers = \"2..4000000000\"", "expected at most 8, the number of hosts that have room"),
        ("hosts = 8", "hosts = 4000000000", "plan.toml:3: network.hosts = 4000000000: expected at most"),
        (
            "\"star\"\nhosts = 8",
            "\"fat-tree\"\nleaves = 4294967295\nhosts_per_leaf = 4294967295\nspines = 4294967295\nparallel_links = 4294967295",
            "network.leaves = 4294967295: expected at most 524288 hosts",
        ),
        ("\"star\"\nhosts = 8", "\"fat-tree-3\"\nports = 4294967294", "network.ports = 4294967294: expected at most 524288 hosts"),
        (
            "\"star\"\nhosts = 8",
            "\"dragonfly\"\ngroups = 4294967295\nrouters = 4294967295\nglobal_links = 4294967295\nhosts_per_router = 4294967295",
            "network.hosts_per_router = 4294967295: expected at most 524288 hosts",
        ),
        ("\"tree\"", "\"canary\"\ndescriptors = 4294967295", "jobs[0].descriptors = 4294967295: expected"),
        ("\"tree\"", "\"tree\"\ntrees = 4294967295", "jobs[0].trees = 4294967295: expected"),
        ("\"tree\"", "\"atp\"\nservers = 0\naggregators = 4294967295", "jobs[0].aggregators = 4294967295: expected"),
        ("workers = 8", "workers = 8\nservers = 4294967295", "jobs[0].servers = 4294967295: expected"),
    ] {
        assert!(BASE.contains(from), "{from}");
        let said = refused(&BASE.replacen(from, to, 1));
        assert!(said.contains(expected), "{to}: {said}");
    }
}

/// A worker of recursive doubling has its sum, what it sends and what comes: of vectors that get dense nearly three times the vector, in pairs.
#[test]
fn lists_are_counted() {
    let of = |message: &str| BASE.replace("\"tree\"", "\"doubling\"\ndensity = 0.5").replace("64KiB", message);
    let said = refused(&of("256MiB"));
    assert!(
        said.contains("jobs[0].message = \"256MiB\": expected less: lists of 8 workers, of vectors of 256 MiB, take about 19 GiB"),
        "{said}"
    );
    taken(&of("16MiB"));
}

/// What computes its ways has room for a quarter of a million hosts; a table of them would take the square of 13,005 switches.
#[test]
fn a_quarter_of_a_million_hosts_are_taken() {
    let network = "[network]\nshape = \"fat-tree-3\"\nports = 102\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n";
    let job = "[[jobs]]\nsystem = \"tree\"\nworkers = 4\nmessage = \"4KiB\"\n";
    taken(&format!("{network}{job}"));
    let said = refused(&format!("{network}routing = \"conga\"\n{job}"));
    assert!(said.contains("network.ports = 102: expected at most 8192 switches in all, not 13005"), "{said}");
}

fn numbers(count: usize) -> String {
    (1..=count).map(|number| number.to_string()).collect::<Vec<_>>().join(",")
}

#[test]
fn products_are_bounded() {
    // 2000 x 2000 x 2000 points.
    let list = numbers(2_000);
    let said = refused(&format!("{BASE}[sweep]\n\"jobs.0.window\" = [{list}]\n\"jobs.0.payload\" = [{list}]\n\"run.seed\" = [{list}]\n"));
    assert!(
        said.starts_with("plan.toml:11: sweep.jobs.0.window = 2000 values: expected at most 100000 points in all")
            || said.contains("8000000000 (2000 x 2000 x 2000)"),
        "{said}"
    );
    let said = refused(&format!("{BASE}[sweep]\n\"run.seed\" = [{}]\n", numbers(200_000)));
    assert!(said.starts_with("plan.toml:11: sweep.run.seed = 200000 values: expected at most 100000 points"), "{said}");
    let mut series = String::new();
    for number in 0..101_000 {
        writeln!(series, "[[series]]\nname = \"{number}\"\nset = {{}}").unwrap();
    }
    let said = refused(&format!("{BASE}{series}"));
    assert!(said.contains("series = 101000 values: expected at most 100000 points"), "{said}");
    // Points times repetitions.
    let said = refused(&format!("{BASE}[run]\nrepetitions = 200\n[sweep]\n\"run.seed\" = [{}]\n", numbers(6_000)));
    assert!(said.contains("run.repetitions = 200: expected at most 1000000 runs in all: 1200000 of 6000 points give about"), "{said}");
    // Hosts times switches, workers times operations, windows times workers, jobs times nodes.
    let large =
        "[network]\nshape = \"fat-tree\"\nleaves = 4000\nhosts_per_leaf = 30\nspines = 500\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n";
    // What computes its ways needs no table of them; DRILL remembers something of each list.
    let said = refused(&format!("{large}routing = \"drill\"\n[[jobs]]\nsystem = \"ring\"\nworkers = 8\nmessage = \"64KiB\"\n"));
    assert!(said.contains("network.leaves = 4000: expected less: ways from 4500 switches to 120000 hosts take about"), "{said}");
    let middle =
        "[network]\nshape = \"fat-tree\"\nleaves = 32\nhosts_per_leaf = 32\nspines = 32\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n";
    // What jobs share is there once: 280 jobs with 7,568 aggregators at each switch take 60 MiB and not 16 GiB.
    let job = "system = \"atp\"\nworkers = 4\nservers = 1\njobs_per_host = 8\nmessage = \"64KiB\"\ncopies = 280\naggregators = 7568";
    taken(&format!("{middle}[[jobs]]\n{job}\n"));
    for (job, expected) in [
        (
            "system = \"tree\"\nworkers = 1024\nmessage = \"4KiB\"\noperations = 1000000",
            "jobs[0].operations = 1000000: expected less: 1000000 operations x 1024 workers take about",
        ),
        (
            "system = \"tree\"\nworkers = 1024\nmessage = \"4GiB\"\nwindow = 1048576",
            "jobs[0].window = 1048576: expected less: 1024 workers x 1048576 packets under way take about",
        ),
        ("system = \"atp\"\nworkers = 60\nmessage = \"4MiB\"\naggregators = 16777216", "jobs[0].aggregators = 16777216: expected"),
        (
            "system = \"canary\"\nworkers = 1024\nmessage = \"4MiB\"\ndescriptors = 16777216",
            "jobs[0].descriptors = 16777216: expected less: ",
        ),
    ] {
        let said = refused(&format!("{middle}[[jobs]]\n{job}\n"));
        assert!(said.contains(expected), "{job}: {said}");
    }
    // Workers of all jobs.
    let said = refused(&format!(
        "{middle}[[jobs]]\nsystem = \"ring\"\nworkers = 1024\nmessage = \"4KiB\"\njobs_per_host = 60000\ncopies = 60000\n"
    ));
    assert!(said.contains("jobs[0].copies = 60000: expected at most 4194304 workers of all jobs together"), "{said}");
}

/// The largest plans of the experiments are far below what is refused.
#[test]
fn what_fits_is_taken() {
    taken(BASE);
    let large = "[network]\nshape = \"fat-tree\"\nleaves = 32\nhosts_per_leaf = 32\nspines = 32\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n";
    taken(&format!("{large}[[jobs]]\nsystem = \"canary\"\nworkers = 1024\nmessage = \"64MiB\"\n"));
    taken(&format!("{large}[[jobs]]\nsystem = \"tree\"\ntrees = 4\nworkers = 32\nmessage = \"4MiB\"\ncopies = 20\n"));
}

#[test]
fn depth_and_length_are_bounded() {
    let deep = "[".repeat(100_000);
    for text in [format!("x = {deep}"), format!("x = {}", "{ a = ".repeat(100_000)), format!("x.{} = 1", vec!["a"; 100_000].join("."))] {
        let said = Plan::parse("plan.toml", &text, &[], None).expect_err("refused").to_string();
        assert!(said.starts_with("plan.toml:1: ") && said.len() < 4_000, "{said}");
    }
    for set in [format!("jobs.0.{}=1", vec!["a"; 100_000].join(".")), format!("jobs.0.noise={deep}")] {
        let said = Plan::parse("plan.toml", BASE, std::slice::from_ref(&set), None).expect_err("refused").to_string();
        assert!(said.starts_with("plan.toml: --set "), "{}", &said[..200.min(said.len())]);
    }
    // Keys that nobody knows, by the thousand, and a list that is longer than any network.
    let mut text = String::from(BASE);
    (0..50_000).for_each(|number| writeln!(text, "k{number} = 1").unwrap());
    let said = refused(&text);
    assert!(said.starts_with("plan.toml:10: jobs[0].k0 = 1: unknown key") && said.len() < 4_000, "{said}");
    let hosts = vec!["0"; 100_000].join(",");
    let said = refused(&BASE.replace("workers = 8", &format!("placement = [{hosts}]")));
    assert!(said.contains("jobs[0].placement[1] = 0") && said.len() < 4_000, "{said}");
}

#[test]
fn figures_of_models_are_bounded() {
    let list = numbers(2_000);
    let text = format!("[model]\nname = \"a2tp\"\n[sweep]\n\"model.flows\" = [{list}]\n\"model.aggregators\" = [{list}]\n");
    let said = Computed::parse("plan.toml", &text, &[]).err().expect("refused").to_string();
    assert!(said.contains("2000 values: expected at most 100000 points in all"), "{said}");
}
