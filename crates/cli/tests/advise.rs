//! `fanin advise`: what it says, what it writes, and what is refused.

mod common;

use std::fs;
use std::path::Path;

use common::{folder, good, refused, rows};

/// Two racks of four hosts; what is between them has a quarter of their rate.
const NETWORK: &str = r#"
hosts = ["a[0-3]", "b[0-3]"]
defaults = { rate = "100Gb/s", latency = "500ns" }
switches = [{ name = ["tor-a", "tor-b", "core"] }]
links = [
    { from = "tor-a", to = "a[0-3]" },
    { from = "tor-b", to = "b[0-3]" },
    { from = "core", to = ["tor-a", "tor-b"], rate = "25Gb/s" },
]
"#;

const JOBS: &str = "[[jobs]]\nworkers = 8\nplacement = \"packed\"\nmessage = \"2MB\"\n";

fn files(folder: &Path, network: &str, jobs: &str) {
    fs::write(folder.join("net.toml"), network).expect("a file");
    fs::write(folder.join("jobs.toml"), jobs).expect("a file");
}

fn advised(folder: &Path, more: &[&str]) -> serde_json::Value {
    let text = good(folder, &[&["advise", "net.toml", "--jobs", "jobs.toml", "--format", "json"], more].concat());
    serde_json::from_str(&text).expect("an object")
}

#[test]
fn what_it_advises_is_what_its_plans_simulate() {
    let folder = folder("advise");
    files(&folder, NETWORK, JOBS);
    let advice = advised(&folder, &["--budget", "3", "--systems", "ring,tree,rina", "--out", "out"]);
    assert_eq!((advice["system"].as_str(), advice["buys_nothing"].as_bool()), (Some("tree"), Some(false)));
    let steps = advice["offers"][0]["steps"].as_array().expect("steps");
    let said = steps.last().expect("a step")["value"]["gbps"].as_f64().expect("Gb/s");
    let last = steps.len() - 1;
    let text = good(&folder, &["sim", &format!("out/plan-{last}.toml"), "--format", "json"]);
    let simulated = rows(&text)[0]["goodput_gbps"].as_f64().expect("Gb/s");
    assert!((said / simulated - 1.0).abs() < 0.1, "said {said}, simulated {simulated}");
    let page = fs::read_to_string(folder.join("out/index.html")).expect("a page");
    assert!(page.contains("<svg") && page.contains("tor-a") && page.contains("Not gained"));
}

#[test]
fn money_decides_and_nothing_is_an_answer() {
    let folder = folder("advise-money");
    files(&folder, NETWORK, JOBS);
    fs::write(folder.join("prices.toml"), "default = 5000\n\"tor-*\" = 2000\n").expect("a file");
    let none = good(
        &folder,
        &["advise", "net.toml", "--jobs", "jobs.toml", "--prices", "prices.toml", "--budget", "1000", "--systems", "ring,tree"],
    );
    assert!(none.starts_with("Buy nothing: ring does "), "{none}");
    let all = advised(&folder, &["--prices", "prices.toml", "--budget", "9000", "--systems", "ring,tree,switchml"]);
    let price = all["price"].as_f64().expect("money");
    assert!(price > 0.0 && price <= 9_000.0, "{price}");
    let failures = all["failures"].as_array().expect("failures");
    assert_eq!(failures.len(), all["switches"].as_array().expect("switches").len());
}

#[test]
fn what_is_wrong_is_named() {
    let folder = folder("advise-wrong");
    files(&folder, NETWORK, JOBS);
    let error = |more: &[&str]| refused(&folder, &[&["advise", "net.toml", "--jobs", "jobs.toml"], more].concat());
    assert!(error(&["--systems", "flare"]).contains("flare: expected ring, ps, tree"), "{}", error(&["--systems", "flare"]));
    assert!(error(&["--order", "nobody"]).contains("nobody: expected the name of a switch"));
    files(&folder, NETWORK, &JOBS.replace("[[jobs]]", "[[jobs]]\nsystem = \"ring\""));
    assert!(error(&[]).contains("jobs.system: expected none"));
}

#[test]
fn predictions_are_checked_on_drawn_networks() {
    let folder = folder("advise-check");
    let table = good(&folder, &["advise", "--check", "5", "--cases", "2"]);
    assert!(table.starts_with("| system | predictions | within 20 %") && table.contains("| all | "), "{table}");
    assert!(table.contains("of 2 networks"), "{table}");
}
