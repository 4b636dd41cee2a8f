//! What reproducible sums lose: errors of f32 sums of eight ranks of this process against exact sums, plain (in shared memory: in the order of
//! ranks, in f32), by element and by block, for several kinds of vectors; and of how many elements nothing is left.
//!
//! An error is given relative to the largest summand of its element, since that is what bounds are relative to; and relative to the exact sum
//! in the last column.
//!
//! `cargo run --locked --profile test -p fanin-comm --example reproducible_losses`

use std::net::TcpListener;
use std::thread;

use fanin_comm::{CommError, Communicator, Config, Meeting, Operator, ReproducibleBy, Transport};
use fanin_core::hash::mix;

const WORLD: u32 = 8;
const ELEMENTS: usize = 1 << 16;
const MODES: [(&str, Option<ReproducibleBy>); 3] =
    [("plain", None), ("element", Some(ReproducibleBy::Element)), ("block", Some(ReproducibleBy::Block))];

/// A kind of vectors: its name, and an element by rank and index.
type Kind = (&'static str, fn(u32, usize) -> f32);

const KINDS: [Kind; 4] = [
    ("uniform in -1..1", |rank, index| uniform(rank, index) as f32),
    ("wide range, 2^-40..1", |rank, index| (uniform(rank, index) * f64::from(magnitude(index))) as f32),
    ("cancellation", |rank, index| {
        // Ranks 2 r and 2 r + 1 cancel but for a millionth of what they have.
        let large = uniform(rank / 2, index);
        (if rank % 2 == 0 { large } else { -large * (1.0 + 1e-6 * uniform(rank, index + ELEMENTS)) }) as f32
    }),
    ("1e-10 beside 1.0", |_, index| if index % 256 == 0 { 1.0 } else { 1e-10 }),
];

/// In -1..1.
fn uniform(rank: u32, index: usize) -> f64 {
    (mix(u64::from(rank), index as u64) as i64 >> 11) as f64 / (1u64 << 52) as f64
}

/// A power of two of an element's own, the same at all ranks.
fn magnitude(index: usize) -> f32 {
    f32::from_bits((127 - (mix(99, index as u64) % 41) as u32) << 23)
}

/// The sum of floats, rounded once, as Python's `math.fsum`: partial sums that do not overlap.
fn exact(values: impl Iterator<Item = f64>) -> f64 {
    let mut partials: Vec<f64> = Vec::new();
    for mut x in values {
        let mut kept = 0;
        for index in 0..partials.len() {
            let mut y = partials[index];
            if x.abs() < y.abs() {
                (x, y) = (y, x);
            }
            let high = x + y;
            let low = y - (high - x);
            if low != 0.0 {
                partials[kept] = low;
                kept += 1;
            }
            x = high;
        }
        partials.truncate(kept);
        partials.push(x);
    }
    // From the smallest on; what is rounded away here is less than a unit in the last place of binary64.
    partials.iter().sum()
}

/// The sums of one kind at a rank, by mode.
fn rank(configs: [Config; 3]) -> Result<Vec<[Vec<f32>; 3]>, CommError> {
    let [plain, element, block] = configs;
    let comms = [Communicator::join(plain)?, Communicator::join(element)?, Communicator::join(block)?];
    let mut all = Vec::new();
    for (_, value) in KINDS {
        let mut sums = [const { Vec::new() }; 3];
        for (comm, sum) in comms.iter().zip(&mut sums) {
            *sum = (0..ELEMENTS).map(|index| value(comm.rank(), index)).collect::<Vec<f32>>();
            comm.allreduce(sum, Operator::Sum)?;
        }
        all.push(sums);
    }
    Ok(all)
}

/// A row: the largest and the mean error relative to the largest summand, the median and the largest relative to the sum, and lost elements.
fn row(kind: Kind, mode: &str, sums: &[f32]) -> String {
    let (mut of_largest, mut of_sum, mut lost) = (Vec::new(), Vec::new(), 0);
    for (index, got) in sums.iter().enumerate() {
        let summands = || (0..WORLD).map(|rank| f64::from(kind.1(rank, index)));
        let (sum, largest) = (exact(summands()), summands().fold(0.0, |largest: f64, x| largest.max(x.abs())));
        let error = (f64::from(*got) - sum).abs();
        of_largest.push(error / largest);
        of_sum.push(if sum == 0.0 { 0.0 } else { error / sum.abs() });
        lost += usize::from(*got == 0.0 && sum != 0.0);
    }
    of_sum.sort_by(f64::total_cmp);
    let worst = of_largest.iter().fold(0.0, |worst: f64, error| worst.max(*error));
    let mean = of_largest.iter().sum::<f64>() / ELEMENTS as f64;
    let (median, most) = (of_sum[ELEMENTS / 2], of_sum[ELEMENTS - 1]);
    format!("| {} | {mode} | {worst:.1e} | {mean:.1e} | {median:.1e} | {most:.1e} | {lost} |", kind.0)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let meeting = Meeting::Rendezvous(TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string());
    let ranks: Vec<_> = (0..WORLD)
        .map(|index| {
            let configs = MODES.map(|(job, reproducible)| Config {
                job: job.into(),
                transport: Transport::Memory,
                reproducible,
                ..Config::new(index, WORLD, meeting.clone())
            });
            thread::spawn(move || rank(configs))
        })
        .collect();
    let mut results = ranks.into_iter().map(|rank| rank.join().map_err(|_| "a rank has panicked"));
    let first = results.next().ok_or("there are eight ranks")???;
    results.try_for_each(|result| result.map(drop))?;
    println!("| vectors | sums | error / largest summand: most | mean | error / sum: median | most | of {ELEMENTS}, become 0 |");
    println!("|---|---|---|---|---|---|---|");
    for (kind, sums) in KINDS.into_iter().zip(first) {
        for ((mode, _), sums) in MODES.into_iter().zip(sums) {
            println!("{}", row(kind, mode, &sums));
        }
    }
    Ok(())
}
