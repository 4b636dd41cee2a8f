//! Switches of a fabric see which rank the others wait for: a leaf names it among its hosts, in counts and in a notice to all.

mod common;

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use common::fabric::{Running, WORLD};
use common::{PATIENT, run, steps_until_named};
use fanin_control::fabric::LastStatus;
use fanin_daemon::FabricClient;
use fanin_net::FaultPlan;

/// Of all jobs at a switch, by contributor.
fn last_at(running: &Running, switch: &str) -> Vec<LastStatus> {
    let node = running.fabric.node_named(switch).unwrap();
    let mut client = FabricClient::connect(running.fabric.node(node).address, PATIENT).unwrap();
    client.status().unwrap().jobs.into_iter().flat_map(|job| job.last).collect()
}

fn awaited(last: &[LastStatus], contributor: &str) -> Duration {
    Duration::from_micros(last.iter().filter(|last| last.contributor == contributor).map(|last| last.awaited_us).sum())
}

#[test]
fn the_rank_that_sleeps_every_step_is_named_by_its_leaf() {
    for system in ["tree", "canary"] {
        let running = Running::start(FaultPlan::default());
        let (configs, told) = running.configs(system, Some(system));
        let (heard, gate) = (told.clone(), Arc::new(Barrier::new(WORLD as usize + 1)));
        let end = gate.clone();
        let ranks = thread::spawn(move || {
            run(configs, move |comm| {
                steps_until_named(&comm, 3, &heard);
                end.wait();
                end.wait();
            })
        });
        gate.wait();
        let (leaf0, leaf1) = (last_at(&running, "leaf0"), last_at(&running, "leaf1"));
        gate.wait();
        ranks.join().unwrap();
        let told = told.lock().unwrap();
        let of_rank = told.iter().filter(|text| text.contains("rank 3 (host3, at leaf1) is the one that others wait for")).count();
        assert_eq!(of_rank, WORLD as usize, "{system}: {told:?}");
        let late = awaited(&leaf1, "host3");
        let others = [awaited(&leaf1, "host2"), awaited(&leaf0, "host0"), awaited(&leaf0, "host1")];
        // By Canary who is late fills others' windows, each with blocks of its own, as leaders send nothing of theirs: they keep each other waiting.
        let times = if system == "canary" { 1 } else { 2 };
        assert!(late > times * *others.iter().max().unwrap() && late > Duration::from_secs(2), "{system}: {leaf0:?} {leaf1:?}");
    }
}
