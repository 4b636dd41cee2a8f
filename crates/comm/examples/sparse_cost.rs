//! What sparse allreduces cost by the switch, as lists, and as dense vectors: f32, each rank with indices of its own. The median of some runs,
//! the ways by turns, so that what disturbs one disturbs the others.
//!
//! `cargo run --locked --release -p fanin-comm --example sparse_cost`: four ranks of this process by UDP. With `FANIN_RANK` and what else
//! the environment says, it is one rank of several processes: `scripts/sparse_real.py`.

use std::net::TcpListener;
use std::thread;
use std::time::Instant;

use fanin_comm::{CommError, Communicator, Config, Meeting, Operator, SparsePath, Transport};

const WORLD: u32 = 4;
/// Elements of the vector.
const SIZE: u64 = 4 << 20;
/// Shares of them that each rank has, in millionths.
const SHARES: [u64; 5] = [100, 1_000, 10_000, 50_000, 200_000];
const RUNS: usize = 7;

/// The indices of a rank: pseudo-random, each once.
fn indices(rank: u32, share: u64) -> Vec<u64> {
    // A hash of the index: its top bits against the share.
    let is_there = |index: &u64| {
        let hash = (index ^ u64::from(rank) << 40).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash ^ hash >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 32 < (share << 32) / 1_000_000
    };
    (0..SIZE).filter(is_there).collect()
}

/// What a way takes at this rank, in seconds.
type Times = [Vec<f64>; 3];

fn measure(comms: &[Communicator; 2], share: u64) -> Result<(Times, String), CommError> {
    let [switch, lists] = comms;
    let indices = indices(switch.rank(), share);
    let values: Vec<f32> = indices.iter().map(|index| *index as f32).collect();
    let mut dense = vec![1.0f32; SIZE as usize];
    let (mut times, mut report) = (Times::default(), String::new());
    for run in 0..=RUNS {
        for (way, times) in times.iter_mut().enumerate() {
            switch.barrier()?;
            let start = Instant::now();
            match way {
                0 => report = switch.allreduce_sparse(&indices, &values, SIZE, Operator::Sum)?.report.to_string(),
                1 => drop(lists.allreduce_sparse(&indices, &values, SIZE, Operator::Sum)?),
                _ => lists.allreduce(&mut dense, Operator::Max)?,
            }
            // The first run opens jobs and touches memory.
            if run > 0 {
                times.push(start.elapsed().as_secs_f64());
            }
        }
    }
    Ok((times, report))
}

fn rank(config: Config) -> Result<(), CommError> {
    let of = |name: &str, sparse| Config { job: format!("{}-{name}", config.job), sparse, ..config.clone() };
    let comms = [Communicator::join(of("switch", SparsePath::Switch))?, Communicator::join(of("lists", SparsePath::Lists))?];
    let says = config.rank == 0;
    if says {
        println!("{:>9} {:>10} {:>10} {:>10} {:>14}", "share", "switch ms", "lists ms", "dense ms", "lists / switch");
    }
    for share in SHARES {
        let (mut times, report) = measure(&comms, share)?;
        let [switch, lists, dense] = times.each_mut().map(|times| {
            times.sort_by(f64::total_cmp);
            times[RUNS / 2] * 1e3
        });
        if says {
            println!("{:>8.2}% {switch:>10.2} {lists:>10.2} {dense:>10.2} {:>14.2}  {report}", share as f64 / 1e4, lists / switch);
        }
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if std::env::var_os("FANIN_RANK").is_some() {
        return Ok(rank(Config::from_env()?)?);
    }
    let meeting = Meeting::Rendezvous(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string());
    let config = |rank| Config { transport: Transport::Udp, ..Config::new(rank, WORLD, meeting.clone()) };
    let ranks: Vec<_> = (0..WORLD).map(config).map(|config| thread::spawn(move || rank(config))).collect();
    for rank in ranks {
        rank.join().map_err(|_| "a rank has panicked")??;
    }
    Ok(())
}
