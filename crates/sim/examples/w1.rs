//! Runs workload W1 for profilers: `valgrind --tool=callgrind target/release/examples/w1 census`.

use fanin_core::{Census, Length};
use fanin_sim::vectors::Simulated;
use fanin_sim::workloads::{Nobody, w1};
use fanin_sim::{RunResult, Simulation, Topology};

fn run<P: Simulated + ?Sized>() -> RunResult {
    let scenario = w1(1);
    let topology = Topology::new(&scenario.network.shape).expect("a network");
    Simulation::<Nobody, P>::new(topology, scenario, Vec::new(), &[]).expect("a scenario").run()
}

#[allow(clippy::disallowed_methods, reason = "a program, not the simulator, reads its arguments")]
fn main() {
    let result = match std::env::args().nth(1).as_deref() {
        Some("census") => run::<Census>(),
        Some("length") | None => run::<Length>(),
        Some(other) => {
            eprintln!("payload = {other}: expected census or length");
            std::process::exit(2);
        }
    };
    println!("packet_hops {} events {} wrong {}", result.packet_hops, result.events, result.verdict.wrong);
}
