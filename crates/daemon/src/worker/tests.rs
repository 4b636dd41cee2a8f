//! A bug in one job's thread is that job's end, and nobody else's.

#[path = "../../tests/common/mod.rs"]
mod common;

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use common::{Rank, allreduce, join, metric, run_job, start, until};
use fanin_control::{ClientError, FailureKind};
use fanin_runtime::SwitchDriver;
use fanin_systems::AnyNode;

/// The job that has a bug.
const DOOMED: &str = "doomed";

/// Put into the thread of every job when this crate is tested: in the one that has a bug it panics, once vectors are on their way.
pub(super) fn panic_if_doomed(name: &str, driver: &mut SwitchDriver<AnyNode<[u8]>>) {
    if name != DOOMED {
        return;
    }
    let (watch, waker, seen) = (driver.watch(), driver.waker(), AtomicBool::new(false));
    let result = thread::scope(|scope| {
        scope.spawn(|| {
            while watch.read().counters.packets_received == 0 {
                thread::sleep(Duration::from_millis(5));
            }
            seen.store(true, Ordering::Relaxed);
            waker.wake();
        });
        driver.run(&seen)
    });
    panic!("a bug that was put in on purpose, after {result:?}");
}

#[test]
fn a_panic_in_the_thread_of_a_job_is_an_error_for_its_ranks_and_nothing_to_other_jobs() {
    let daemon = start();
    let switch = daemon.control_address();
    thread::scope(|scope| {
        scope.spawn(move || run_job(switch, "healthy", 2, 40_000, 20));
        for rank in 0..2 {
            scope.spawn(move || {
                let mut rank = Rank::join(switch, join(DOOMED, rank, 2));
                let admitted = rank.admitted().unwrap();
                let mut driver = rank.driver(&admitted);
                rank.start().unwrap();
                let (stop, waker) = (driver.stop_flag(), driver.waker());
                let caller = Rank {
                    stream: rank.stream.try_clone().unwrap(),
                    session: fanin_control::ClientSession::new(),
                    socket: None,
                    wish: rank.wish,
                    heard: Vec::new(),
                    rank: rank.rank,
                    world: rank.world,
                };
                thread::scope(|scope| {
                    let sums = scope.spawn(|| (0..).find_map(|operation| allreduce(&mut driver, &caller, operation, 20_000, 1).err()));
                    let ClientError::Failed(failed) = rank.end() else { panic!("not a failure") };
                    stop.store(true, Ordering::Relaxed);
                    waker.wake();
                    assert!(sums.join().unwrap().is_some());
                    assert_eq!(failed.kind, FailureKind::Switch);
                    assert!(failed.text.contains("it ended by a bug"), "{}", failed.text);
                });
            });
        }
    });
    until("the healthy job has ended", || metric(&daemon, "fanin_switch_jobs_ended_total", "") == 1.0);
    assert_eq!(metric(&daemon, "fanin_switch_jobs_failed_total", "reason=\"switch\""), 1.0);
    // The switch goes on.
    run_job(switch, "later", 2, 1_000, 1);
}
