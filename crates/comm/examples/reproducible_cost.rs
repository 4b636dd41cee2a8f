//! What reproducible sums cost: allreduces of f32 vectors between two ranks of this process, plain and reproducible by turns, so that what
//! disturbs one disturbs the other. The fastest of each counts.
//!
//! `cargo run --locked --profile test -p fanin-comm --example reproducible_cost`, or `--release`

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use fanin_comm::{CommError, Communicator, Config, Meeting, Operator, ReproducibleBy, Transport};

const WORLD: u32 = 2;
/// Lengths in bytes, and how often each is reduced.
const SIZES: [(usize, u32); 4] = [(4 << 10, 600), (64 << 10, 400), (1 << 20, 120), (16 << 20, 20)];

/// One rank: the fastest times by size, plain and reproducible.
fn rank(configs: [Config; 2]) -> Result<Vec<[Duration; 2]>, CommError> {
    let [plain, reproducible] = configs;
    // In this order at both, as each waits for the other.
    let both = [Communicator::join(plain)?, Communicator::join(reproducible)?];
    let mut fastest = Vec::new();
    for (bytes, times) in SIZES {
        let mut best = [Duration::MAX; 2];
        for _ in 0..times {
            for (comm, best) in both.iter().zip(&mut best) {
                let mut vector: Vec<f32> = (0..bytes / 4).map(|index| index as f32 + comm.rank() as f32).collect();
                comm.barrier()?;
                let start = Instant::now();
                comm.allreduce(&mut vector, Operator::Sum)?;
                *best = (*best).min(start.elapsed());
            }
        }
        fastest.push(best);
    }
    Ok(fastest)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:>6} {:>10} {:>12} {:>16} {:>7}", "path", "bytes", "plain us", "reproducible us", "ratio");
    for (name, transport) in [("shm", Transport::Memory), ("udp", Transport::Udp)] {
        let meeting = Meeting::Rendezvous(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string());
        let ranks: Vec<_> = (0..WORLD)
            .map(|index| {
                let config = |job: &str, reproducible| Config {
                    job: job.into(),
                    transport,
                    reproducible,
                    ..Config::new(index, WORLD, meeting.clone())
                };
                let configs = [config("plain", None), config("reproducible", Some(ReproducibleBy::Element))];
                thread::spawn(move || rank(configs))
            })
            .collect();
        let mut results = ranks.into_iter().map(|rank| rank.join().map_err(|_| "a rank has panicked"));
        let first = results.next().ok_or("there are two ranks")???;
        results.try_for_each(|result| result.map(drop))?;
        for ((bytes, _), [plain, reproducible]) in SIZES.into_iter().zip(first) {
            let [plain, reproducible] = [plain, reproducible].map(|time| time.as_secs_f64() * 1e6);
            println!("{name:>6} {bytes:>10} {plain:>12.1} {reproducible:>16.1} {:>7.2}", reproducible / plain);
        }
    }
    Ok(())
}
