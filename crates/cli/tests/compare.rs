//! `fanin compare`, and figures of papers.

mod common;

use std::fs;

use common::{fanin, folder, good, plan, refused};

const PLAN: &str = r#"
[network]
shape = "fat-tree"
leaves = 4
hosts_per_leaf = 4
spines = 2
rate = "100Gb/s"
latency = "300ns"

[[jobs]]
system = "tree"
workers = 8
placement = "random"
message = "16KiB"

[sweep]
"jobs.0.message" = ["16KiB", "64KiB"]

[run]
repetitions = 3
"#;

#[test]
fn results_are_compared_with_each_other() {
    let folder = folder("compare");
    let plan = plan(&folder, PLAN);
    let sim = |more: &[&str]| good(&folder, &[&["sim", plan][..], more].concat());
    sim(&["--out", "a"]);
    sim(&["--out", "again", "--threads", "2"]);
    sim(&["--out", "slower", "--set", "jobs.0.window=2"]);
    // The same program, plan and seeds: the same numbers, and the same page.
    let same = good(&folder, &["compare", "a", "again", "--fail-on", "difference"]);
    assert!(same.contains("plan: the same\n") && same.contains(" 0 within noise, 0 changed\n"), "{same}");
    let read = |name: &str| fs::read(folder.join(name)).unwrap();
    assert!(read("a/report.html") == read("again/report.html"), "the same bytes");
    // What was changed is named, and more than noise.
    let arguments = ["compare", "a", "slower", "--metrics", "goodput_gbps,packets_dropped", "--out", "both"];
    let changed = good(&folder, &arguments);
    assert!(changed.contains("plan: jobs.0.window: (not set) -> 2\n"), "{changed}");
    let row = changed.lines().find(|line| line.contains("jobs.0.message 64KiB") && line.contains("goodput_gbps")).expect(&changed);
    assert!(row.trim_end().ends_with("changed") && !changed.contains("packets_dropped   "), "{changed}");
    assert!(String::from_utf8(read("both/report.html")).unwrap().contains("data-table=\"compare-results\""));
    let json: serde_json::Value = serde_json::from_slice(&read("both/compare.json")).unwrap();
    assert_eq!((&json["counts"]["same"], &json["counts"]["changed"]), (&2.into(), &2.into()), "{json}");
    assert_eq!(json["before"]["about"]["fanin"], env!("CARGO_PKG_VERSION"));
    assert_eq!(fanin(&folder, &[&arguments[..], &["--fail-on", "change"]].concat()).status.code(), Some(1));
    // Files alone do, without their plans.
    assert!(!good(&folder, &["compare", "a/results.json", "slower/results.json"]).contains("plan:"));
}

#[test]
fn figures_are_as_wide_as_a_column() {
    let folder = folder("compare-figures");
    let plan = plan(&folder, PLAN);
    let done = fanin(&folder, &["sim", plan, "--out", "a", "--figures", "ieee"]);
    if done.status.code() != Some(0) {
        // A machine without fonts is told so.
        let said = String::from_utf8_lossy(&done.stderr);
        return assert!(said.contains("expected one, such as of Debian's fonts-liberation"), "{said}");
    }
    assert!(fs::read_to_string(folder.join("a/ieee/completion.svg")).unwrap().starts_with("<svg width=\"3.5in\""));
    assert!(fs::read(folder.join("a/ieee/completion.pdf")).unwrap().starts_with(b"%PDF-1."));
    // Of a paper's figures as well, those that are computed and those that are simulated.
    good(&folder, &["repro", "canary", "arithmetic", "small", "--quick", "--no-causes", "--out", "papers", "--figures", "acm"]);
    for figure in ["arithmetic", "small"] {
        let files = fs::read_dir(folder.join("papers").join(figure).join("acm")).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<_> = files.collect();
        let is_sized = |path: &std::path::PathBuf| fs::read_to_string(path).unwrap().starts_with("<svg width=\"3.33in\"");
        let svgs: Vec<_> = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "svg")).collect();
        assert!(!svgs.is_empty() && svgs.iter().all(|path| is_sized(path)) && files.len() == 2 * svgs.len(), "{figure}: {files:?}");
    }
}

#[test]
fn points_that_one_result_lacks_are_named() {
    let folder = folder("compare-points");
    let plan = plan(&folder, PLAN);
    good(&folder, &["sim", plan, "--out", "a"]);
    good(&folder, &["sim", plan, "--out", "b", "--set", "sweep.jobs.0.message=[\"16KiB\", \"32KiB\"]"]);
    let text = good(&folder, &["compare", "a", "b"]);
    assert!(text.contains("only before: jobs.0.message 64KiB\nonly after: jobs.0.message 32KiB\n"), "{text}");
    assert_eq!(fanin(&folder, &["compare", "a", "b", "--fail-on", "change"]).status.code(), Some(1));
    let wrong = refused(&folder, &["compare", "a", "nowhere"]);
    assert!(wrong.starts_with("error: nowhere: expected a folder of `fanin sim --out`, or its results.json"), "{wrong}");
    assert!(refused(&folder, &["compare", "a", "b", "--metrics", "speed"]).starts_with("error: --metrics speed: expected numbers of a: "));
}
