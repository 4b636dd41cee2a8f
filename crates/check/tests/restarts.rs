//! A switch restarts in the middle of an operation and has forgotten all: what that costs, that sums are right, and who is named where patience
//! is shorter than it takes.

use fanin_check::{Recipe, run};
use fanin_core::{Census, Duration, Instant, NodeId, Suspect};
use fanin_sim::faults::TimedFault;
use fanin_systems::System;

use crate::lossless::systems;

const AWAY: Duration = Duration::from_us(500);

/// 8 MiB by 16 hosts of 4 leaves, packets of 1 KiB, as plans have it.
fn recipe(system: System, patience: Duration) -> Recipe {
    let mut recipe = Recipe::fat_tree(system, 4, 4, 2 << 20);
    recipe.network.queue_bytes = 4 << 20;
    recipe.network.ecn_mark_bytes = 400_000;
    recipe.drain = false;
    let job = &mut recipe.jobs[0];
    (job.payload_bytes, job.window, job.patience) = (1_024, 256, patience);
    (job.rto_initial, job.rto_min) = (Duration::from_ms(1), Duration::from_us(100));
    if system.servers() > 0 {
        job.servers = vec![NodeId(15)];
        job.hosts.pop();
        job.start.pop();
    }
    recipe
}

#[test]
fn table() {
    let only = std::env::var("ONLY").unwrap_or_default();
    for system in systems().into_iter().filter(|system| system.name().contains(&only)) {
        let end = |recipe: &Recipe| {
            let result = run::<Census>(recipe, |_| ()).expect("a run");
            assert_eq!(result.verdict.wrong, 0);
            let own = |(rank, worker): (usize, &fanin_sim::metrics::WorkerResult)| {
                let failure = worker.operations[0].failure?;
                Some((rank, failure.suspect, failure.reason))
            };
            let failures: Vec<_> = result.jobs[0].workers.iter().enumerate().filter_map(own).collect();
            let selves = failures.iter().filter(|(rank, suspect, _)| *suspect == Suspect::Rank(fanin_core::Rank(*rank as u32))).count();
            let end = result.jobs[0].workers.iter().map(|worker| worker.operations[0].ended).max().flatten();
            (end.map(|end| end.since(Instant::ZERO).as_ps() / 1_000_000), failures.len(), selves, failures.first().copied(), result.counters.retransmitted_total())
        };
        let calm = end(&recipe(system, Duration::from_ms(5_000)));
        print!("{system:?}: {calm:?}: ");
        for part in [5, 25, 50, 75, 95] {
            for leaf in [17] {
                let mut recipe = recipe(system, Duration::from_ms(if std::env::var("SHORT").is_ok() { 20 } else { 5_000 }));
                let from = Instant::ZERO + Duration::from_us(calm.0.unwrap() * part / 100);
                recipe.faults.timed.push(TimedFault::SwitchDown { switch: NodeId(leaf), from, until: from + AWAY });
                let ended = end(&recipe);
                print!("{part}%: {:?}; ", (ended.0.map(|end| end - calm.0.unwrap()), ended.1, ended.2, ended.3, ended.4));
            }
        }
        println!();
    }
}
