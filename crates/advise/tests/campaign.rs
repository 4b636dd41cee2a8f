//! Predictions on drawn cases, held against simulation.

use fanin_advise::check::{regrets, table, trials};
use fanin_advise::setting::SYSTEMS;

fn env(name: &str, or: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(or)
}

#[test]
#[ignore = "minutes"]
fn campaign() {
    let (seed, from, cases) = (env("SEED", 1), env("FROM", 0), env("CASES", 20));
    let folder = std::env::temp_dir().join("fanin-advise-campaign");
    let only = std::env::var("ONLY").ok();
    let systems: Vec<&'static str> =
        SYSTEMS.iter().copied().filter(|name| only.as_ref().is_none_or(|only| only.split(',').any(|one| one == *name))).collect();
    let mut all = Vec::new();
    for number in from..from + cases {
        let begun = std::time::Instant::now();
        for trial in trials(&folder, seed, number, &systems).unwrap() {
            if !trial.is_within() {
                println!(
                    "{} {:?} {:>9} jobs {} workers {} predicted {:.2} simulated {:.2?} error {:.2?} [{}] {:?}",
                    trial.case,
                    trial.network,
                    trial.system,
                    trial.jobs,
                    trial.workers,
                    trial.predicted,
                    trial.simulated,
                    trial.error(),
                    trial.bound,
                    trial.unknown
                );
            }
            all.push(trial);
        }
        if begun.elapsed().as_secs() > 3 {
            println!("{number} took {:?}", begun.elapsed());
        }
    }
    for row in table(&all) {
        println!(
            "{:>10} {:>4} within {:>4} ({:.0} %) known {:>4} within {:>4} ({:.0} %) median {:+.3} p90 {:.3}",
            row.system,
            row.trials,
            row.within,
            100.0 * row.within as f64 / row.trials as f64,
            row.known,
            row.known_within,
            100.0 * row.known_within as f64 / row.known as f64,
            row.median,
            row.p90
        );
    }
    for simulates in [false, true] {
        let regrets = regrets(&all, simulates);
        println!("regret <= 5 %: {} of {} (simulates {simulates})", regrets.iter().filter(|one| **one <= 0.05).count(), regrets.len());
    }
}
