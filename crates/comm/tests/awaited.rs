//! The switch sees which rank the others wait for: it is named by one look at the metrics, and by a notice.

mod common;

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Duration;

use common::switch::page;
use common::{configs, run, steps_until_named};
use fanin_comm::{Communicator, Config, Meeting, Operator, Transport};
use fanin_daemon::{Daemon, DaemonConfig};

const WORLD: u32 = 3;

/// A value by rank.
fn by_rank(page: &str, name: &str, more: &str) -> Vec<f64> {
    let of = |rank: u32| {
        let wanted = format!("rank=\"{rank}\"");
        let line = page.lines().find(|line| line.starts_with(&format!("{name}{{")) && line.contains(&wanted) && line.contains(more));
        let line = line.unwrap_or_else(|| panic!("{name} of rank {rank} {more} in {page}"));
        line.rsplit(' ').next().unwrap().parse().unwrap()
    };
    (0..WORLD).map(of).collect()
}

/// Steps in which rank 1 is late by [`LATE`]: 6.5 s in all.
const STEPS: u32 = 130;
const LATE: Duration = Duration::from_millis(50);

fn step(comm: &Communicator) {
    if comm.rank() == 1 {
        thread::sleep(LATE);
    }
    let mut gradient = vec![1.0f32; 5_000];
    comm.allreduce(&mut gradient, Operator::Sum).unwrap();
    assert!(gradient.iter().all(|value| *value == WORLD as f32));
}

/// Rank 1 comes late to every step, and the switch names it; gives its metrics.
fn named(system: Option<&str>) -> String {
    let daemon =
        Daemon::start(DaemonConfig { http: Some("127.0.0.1:0".parse().unwrap()), ..DaemonConfig::new("127.0.0.1:0".parse().unwrap()) });
    let daemon = daemon.unwrap();
    let (configs, told) = configs(WORLD, Transport::Udp);
    let (meeting, system) = (Meeting::Switch(daemon.control_address().to_string()), system.and_then(Config::system_named));
    let configs: Vec<Config> = configs.into_iter().map(|config| Config { meeting: meeting.clone(), system, ..config }).collect();
    let is_beside = system.is_some();
    let (heard, gate) = (told.clone(), Arc::new(Barrier::new(WORLD as usize + 1)));
    let end = gate.clone();
    let ranks = thread::spawn(move || {
        run(configs, move |comm| {
            if is_beside {
                (0..STEPS).for_each(|_| step(&comm));
            } else {
                steps_until_named(&comm, 1, &heard);
            }
            end.wait();
            end.wait();
        })
    });
    gate.wait();
    // The counts are written down a few times a second.
    thread::sleep(Duration::from_millis(500));
    let page = page(daemon.http_address().unwrap());
    gate.wait();
    ranks.join().unwrap();
    let told = told.lock().unwrap();
    // Of jobs beside the communicator's own, metrics say it; nobody is told.
    let expected = if is_beside { 0 } else { 3 };
    assert_eq!(told.iter().filter(|text| text.contains("rank 1 is the one that others wait for")).count(), expected, "{told:?}");
    page
}

#[test]
fn the_rank_that_sleeps_every_step_is_named() {
    let page = named(None);
    let awaited = by_rank(&page, "fanin_switch_rank_awaited_seconds_total", "");
    assert!(awaited[1] > 4.0 * awaited[0].max(awaited[2]) && awaited[1] > 5.0, "{awaited:?}");
    let late = by_rank(&page, "fanin_switch_rank_late_sums_total", "over=\"10ms\"");
    assert!(late[1] > 200.0 && late[1] > 4.0 * late[0].max(late[2]), "{late:?}");
    let completed = by_rank(&page, "fanin_switch_rank_completed_sums_total", "");
    assert!(completed[1] > completed[0].max(completed[2]), "{completed:?}");
}

#[test]
fn the_rank_that_sleeps_every_step_is_named_in_canary_too() {
    let page = named(Some("canary"));
    // A switch of Canary waits no longer than its timeout, so it counts less than the rank sleeps.
    let awaited = by_rank(&page, "fanin_switch_rank_awaited_seconds_total", "/allreduce/");
    assert!(awaited[1] > 4.0 * awaited[0].max(awaited[2]) && awaited[1] > 1.0, "{awaited:?}");
}
