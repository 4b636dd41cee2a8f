//! Networks of three levels with as many hosts as are taken: how long set-up takes and how much memory. Prints it; by hand, since other programs on the
//! machine change the times:
//! `cargo test --release -p fanin-plan --test large -- --ignored --nocapture`, with `FANIN_PORTS` for one size and `FANIN_TIME` for how long is simulated.

use std::env;
use std::fs;
use std::time::Instant;

use fanin_plan::Plan;
use fanin_plan::results::RunRecord;
use fanin_plan::run::{self, run};

/// All hosts of a fat tree of switches with so many ports reduce a vector that fills their windows.
fn text(ports: u32, limit: &str) -> String {
    format!(
        "[network]\nshape = \"fat-tree-3\"\nports = {ports}\nrate = \"100Gb/s\"\nlatency = \"300ns\"\n\
         [[jobs]]\nsystem = \"tree\"\nworkers = \"100%\"\nplacement = \"packed\"\nmessage = \"64KiB\"\npayload = \"1KiB\"\nwindow = 64\n\
         [run]\nseed = 1\ntime_limit = \"{limit}\"\n"
    )
}

/// The most memory that this process has had, in MiB; nothing where the system does not say.
fn peak_mib() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok().map(|kib| kib >> 10)
}

/// Reads the plan, checks it, sets the network up and simulates that long; seconds of checking and of the rest.
fn simulated(ports: u32, limit: &str) -> (RunRecord, f64, f64) {
    let begin = Instant::now();
    let plan = Plan::parse("large", &text(ports, limit), &[], None).unwrap();
    run::check(&plan).unwrap();
    let checked = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let record = run(&plan, 1, || true).unwrap().remove(0).record;
    (record, checked, begin.elapsed().as_secs_f64())
}

#[test]
fn a_fat_tree_of_1024_hosts_reduces() {
    let (record, ..) = simulated(16, "10ms");
    assert_eq!((record.hosts, record.census.as_str()), (1_024, "exact"));
    assert!(record.completion_us.is_some_and(|time| time > 6.0), "{:?}", record.completion_us);
}

#[test]
#[ignore = "minutes of large networks, and gigabytes"]
fn minutes_of_large_networks() {
    let ports = env::var("FANIN_PORTS").map_or_else(|_| vec![32, 64, 102], |ports| vec![ports.parse().expect("a number of ports")]);
    let limit = env::var("FANIN_TIME").unwrap_or_else(|_| "1ns".to_string());
    for ports in ports {
        let (record, checked, ran) = simulated(ports, &limit);
        let hosts = record.hosts;
        println!(
            "{hosts} hosts, {limit}: checked in {checked:.2} s, set up and run in {ran:.2} s, {} hops, peak {:?} MiB",
            record.packet_hops,
            peak_mib()
        );
        assert_eq!(u64::from(hosts), u64::from(ports).pow(3) / 4);
    }
}
