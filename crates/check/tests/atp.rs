//! ATP and A2TP: random runs.

use fanin_check::{Checks, campaign};

#[test]
fn one() {
    let first: u64 = std::env::var("FIRST").unwrap().parse().unwrap();
    let count: u64 = std::env::var("COUNT").unwrap().parse().unwrap();
    let only = if std::env::var("SYS").unwrap() == "atp" { "atp" } else { "a2tp" };
    let checks = Checks { twice: false, elements: false, only: Some(only), threads: 1 };
    let mut all = 0;
    for seed in first..first + count {
        eprintln!("seed {seed}");
        let report = campaign(seed, 1, checks);
        for finding in &report.findings {
            println!("{finding}");
        }
        all += report.findings.len();
    }
    println!("{all} findings");
}

#[test]
fn show() {
    let first: u64 = std::env::var("FIRST").unwrap().parse().unwrap();
    let only = if std::env::var("SYS").unwrap() == "atp" { "atp" } else { "a2tp" };
    println!("{}", fanin_check::generate_for(first, Some(only)));
}
