//! What reproducible sums cost: allreduces of f32 vectors between two ranks of this process, plain, by element and by block in turns, so that
//! what disturbs one disturbs the others. The fastest of each counts. Over UDP also the payload that a rank sends, in bytes for each element.
//!
//! `cargo run --locked --profile test -p fanin-comm --example reproducible_cost`, or `--release`

use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use fanin_comm::{CollectiveKind, CommError, Communicator, Config, DType, ElementOp, Meeting, Operator, ReproducibleBy, Transport};

const WORLD: u32 = 2;
/// Lengths in bytes, and how often each is reduced.
const SIZES: [(usize, u32); 4] = [(4 << 10, 600), (64 << 10, 400), (1 << 20, 120), (16 << 20, 20)];
/// Elements of the vectors whose bytes are counted.
const COUNTED: u64 = 100_000;
const MODES: [(&str, Option<ReproducibleBy>); 3] =
    [("plain", None), ("element", Some(ReproducibleBy::Element)), ("block", Some(ReproducibleBy::Block))];
const FLOATS: [DType; 4] = [DType::F32, DType::F64, DType::F16, DType::BF16];

/// What one rank has measured: the fastest times by size and mode, and bytes sent for each element by mode and type.
struct Measured {
    fastest: Vec<[Duration; 3]>,
    bytes: [[f64; 4]; 3],
}

fn rank(configs: [Config; 3]) -> Result<Measured, CommError> {
    let [plain, element, block] = configs;
    // In this order at both, as each waits for the other.
    let comms = [Communicator::join(plain)?, Communicator::join(element)?, Communicator::join(block)?];
    let mut fastest = Vec::new();
    for (bytes, times) in SIZES {
        let mut best = [Duration::MAX; 3];
        for _ in 0..times {
            for (comm, best) in comms.iter().zip(&mut best) {
                let mut vector: Vec<f32> = (0..bytes / 4).map(|index| index as f32 + comm.rank() as f32).collect();
                comm.barrier()?;
                let start = Instant::now();
                comm.allreduce(&mut vector, Operator::Sum)?;
                *best = (*best).min(start.elapsed());
            }
        }
        fastest.push(best);
    }
    let mut bytes = [[0.0; 4]; 3];
    for (comm, bytes) in comms.iter().zip(&mut bytes) {
        for (dtype, bytes) in FLOATS.into_iter().zip(bytes) {
            // What was lost and sent again does not count.
            let sent = (0..5).map(|_| sent(comm, dtype)).collect::<Result<Vec<_>, _>>()?;
            *bytes = sent.into_iter().min().unwrap_or_default() as f64 / COUNTED as f64;
        }
    }
    Ok(Measured { fastest, bytes })
}

/// Bytes of payload that a sum takes.
fn sent(comm: &Communicator, dtype: DType) -> Result<u64, CommError> {
    let mut vector = Vec::new();
    (0..COUNTED).for_each(|index| dtype.push_f64((index % 1_000) as f64 - 100.5, &mut vector));
    let before = comm.statistics().counters.payload_bytes_sent;
    comm.call_bytes_in_place(CollectiveKind::Allreduce, ElementOp { dtype, operator: Operator::Sum }, COUNTED, &mut vector)?;
    Ok(comm.statistics().counters.payload_bytes_sent - before)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("{:>6} {:>10} {:>12} {:>22} {:>22}", "path", "bytes", "plain us", "by element us (times)", "by block us (times)");
    for (name, transport) in [("shm", Transport::Memory), ("udp", Transport::Udp)] {
        let meeting = Meeting::Rendezvous(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string());
        let ranks: Vec<_> = (0..WORLD)
            .map(|index| {
                let configs = MODES.map(|(job, reproducible)| Config {
                    job: job.into(),
                    transport,
                    reproducible,
                    ..Config::new(index, WORLD, meeting.clone())
                });
                thread::spawn(move || rank(configs))
            })
            .collect();
        let mut results = ranks.into_iter().map(|rank| rank.join().map_err(|_| "a rank has panicked"));
        let first = results.next().ok_or("there are two ranks")???;
        results.try_for_each(|result| result.map(drop))?;
        for ((bytes, _), times) in SIZES.into_iter().zip(first.fastest) {
            let [plain, element, block] = times.map(|time| time.as_secs_f64() * 1e6);
            let [of_element, of_block] = [element, block].map(|time| format!("{time:.1} ({:.2})", time / plain));
            println!("{name:>6} {bytes:>10} {plain:>12.1} {of_element:>22} {of_block:>22}");
        }
        if transport == Transport::Udp {
            println!("\n{:>22} {}", "bytes of an element", FLOATS.map(|dtype| format!("{:>8}", dtype.to_string())).join(" "));
            for ((mode, _), bytes) in MODES.into_iter().zip(first.bytes) {
                println!("{mode:>22} {}", bytes.map(|bytes| format!("{bytes:>8.3}")).join(" "));
            }
        }
    }
    Ok(())
}
