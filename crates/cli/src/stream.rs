//! `fanin bench stream`: one worker of a ring of plain TCP connections, whose sums a transparent switch makes on the way; and what that is
//! measured against, over the same connections: ring allreduce by the workers themselves, and one TCP flow.

use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use fanin_comm::{DType, ElementOp, Operator};
use fanin_runtime::clock::process_cpu_time;
use fanin_transparent::RingStream;
use fanin_transparent::worker::{RingPlace, agree};
use serde::Serialize;

use crate::allreduce::parse_sizes;
use crate::bench::BenchFormat;
use crate::quantities;

/// Measure sums inside TCP connections: one process is one worker, which listens for its predecessor and connects to its successor.
///
/// Between the workers there must be a switch that joins their links: `fanin switch --transparent`.
#[derive(Args, Clone, Debug)]
pub struct StreamArgs {
    /// This worker's rank.
    #[arg(long, value_name = "R")]
    pub rank: u16,
    /// Number of workers.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(2..=1024))]
    pub world: u16,
    /// Where this worker listens for its predecessor.
    #[arg(long, value_name = "IP:PORT")]
    pub listen: SocketAddr,
    /// Where its successor listens.
    #[arg(long, value_name = "IP:PORT")]
    pub successor: SocketAddr,
    /// Which workers belong together: a number that these have, and no others at the same switch. Without it they agree on one by themselves.
    #[arg(long, value_name = "NUMBER")]
    pub ring: Option<u32>,
    /// Who sums.
    #[arg(long, value_enum, default_value_t = Mode::Transparent)]
    pub mode: Mode,
    /// Message sizes: one, a list (`4B,64KiB,1MiB`), or a range that doubles (`4B..256MiB`).
    #[arg(long, value_name = "SIZES", default_value = "64MiB")]
    pub sizes: String,
    /// Element type; vectors hold small whole numbers, so that sums are exact.
    #[arg(long, default_value = "f32")]
    pub dtype: DType,
    /// Runs of each size.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: u32,
    /// This worker is so much late in the first run of each size, as 500ms.
    #[arg(long, value_name = "TIME", default_value = "0s", value_parser = quantities::seconds)]
    pub late: f64,
    /// How long nothing may move, as 30s.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = quantities::seconds)]
    pub timeout: f64,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = BenchFormat::Table)]
    pub format: BenchFormat,
}

/// Who sums.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// The switch, inside the connections.
    Transparent,
    /// The workers: ring allreduce.
    Ring,
    /// Nobody: rank 0 sends as many bytes to rank 1.
    Flow,
}

/// One size.
#[derive(Clone, Debug, Serialize)]
struct Row {
    mode: Mode,
    rank: u16,
    size_bytes: u64,
    /// Of this rank, from a barrier to the end, for each run.
    time_s: Vec<f64>,
    /// Bytes of the vector over the mean time, in 10^6 bits a second.
    goodput_mbit_s: f64,
    /// Elements that are not what they must be.
    wrong: u64,
    /// Processor time of this process, for each GiB of vector.
    cpu_s_per_gib: f64,
}

/// Runs the benchmark.
///
/// # Errors
/// Where a size makes no sense, workers do not meet, a collective fails or an element is wrong.
pub fn run(args: &StreamArgs) -> Result<()> {
    let sizes = parse_sizes(&args.sizes, args.dtype)?;
    ensure!(args.rank < args.world, "field `rank` is {}, and there are {} workers: 0 to {}", args.rank, args.world, args.world - 1);
    ensure!(args.timeout > 0.0 && args.timeout < 1e6, "field `timeout` is {}, and must be a positive number of seconds", args.timeout);
    ensure!((0.0..1e6).contains(&args.late), "field `late` is {}, and must be a number of seconds", args.late);
    let listener = TcpListener::bind(args.listen).with_context(|| format!("cannot listen at {}", args.listen))?;
    let mut place = RingPlace {
        ring: args.ring.unwrap_or_default(),
        rank: args.rank,
        world: args.world,
        successor: args.successor,
        patience: Duration::from_secs_f64(args.timeout),
    };
    if args.ring.is_none() && args.mode == Mode::Transparent {
        place.ring = agree(&place, &listener)?;
    }
    let mut stream = RingStream::connect(place, &listener)?;
    let rows = sizes.iter().map(|&size| measure(args, &mut stream, size)).collect::<Result<Vec<Row>>>()?;
    // Nobody leaves while others still wait for what this one has acknowledged.
    barrier(args.mode, &mut stream, args.world)?;
    print(args, &rows)?;
    let wrong: u64 = rows.iter().map(|row| row.wrong).sum();
    ensure!(wrong == 0, "{wrong} elements are wrong");
    Ok(())
}

fn measure(args: &StreamArgs, stream: &mut RingStream, size: u64) -> Result<Row> {
    let op = ElementOp::new(args.dtype, Operator::Sum)?;
    let elements = size / args.dtype.bytes() as u64;
    // Small enough for every type's sum to be exact.
    let value = |rank: u16, index: u64| ((index * 7 + u64::from(rank) * 5) % 3) as i64;
    let vector = |values: &dyn Fn(u64) -> i64| {
        let mut bytes = Vec::with_capacity(size as usize);
        (0..elements).for_each(|index| args.dtype.push_i64(values(index), &mut bytes));
        bytes
    };
    let input = vector(&|index| value(args.rank, index));
    let expected = vector(&|index| (0..args.world).map(|rank| value(rank, index)).sum());
    let mut output = vec![0; input.len()];
    let (mut times, mut wrong) = (Vec::new(), 0);
    let cpu = process_cpu_time();
    for iteration in 0..args.iterations {
        barrier(args.mode, stream, args.world)?;
        let start = Instant::now();
        if iteration == 0 && args.late > 0.0 {
            std::thread::sleep(Duration::from_secs_f64(args.late));
        }
        match args.mode {
            Mode::Transparent => stream.allreduce(op, &input, &mut output)?,
            Mode::Ring => {
                output.copy_from_slice(&input);
                stream.ring_allreduce(op, &mut output)?;
            }
            Mode::Flow => match args.rank {
                0 => stream.exchange(&[&input], &mut [])?,
                1 => stream.exchange(&[], &mut [&mut output])?,
                _ => {}
            },
        }
        times.push(start.elapsed().as_secs_f64());
        if args.mode != Mode::Flow {
            let width = args.dtype.bytes();
            wrong += output.chunks_exact(width).zip(expected.chunks_exact(width)).filter(|(got, right)| got != right).count() as u64;
            output.fill(0);
        }
    }
    let cpu = (process_cpu_time() - cpu).as_secs_f64();
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    let gib = size as f64 * f64::from(args.iterations) / f64::from(1u32 << 30);
    Ok(Row {
        mode: args.mode,
        rank: args.rank,
        size_bytes: size,
        goodput_mbit_s: size as f64 * 8.0 / mean / 1e6,
        time_s: times,
        wrong,
        cpu_s_per_gib: cpu / gib,
    })
}

/// All workers are here.
fn barrier(mode: Mode, stream: &mut RingStream, world: u16) -> Result<()> {
    let mut vector = vec![0; 4 * usize::from(world)];
    match mode {
        Mode::Transparent => stream.allreduce(ElementOp::I32_SUM, &vector.clone(), &mut vector)?,
        Mode::Ring | Mode::Flow => stream.ring_allreduce(ElementOp::I32_SUM, &mut vector)?,
    }
    Ok(())
}

fn print(args: &StreamArgs, rows: &[Row]) -> Result<()> {
    if args.format == BenchFormat::Json {
        println!("{}", serde_json::to_string(rows)?);
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    table.set_header(["size, B", "time, s", "goodput, Mb/s", "wrong", "CPU-s/GiB"]);
    for row in rows {
        let mean = row.time_s.iter().sum::<f64>() / row.time_s.len() as f64;
        let cells = [row.size_bytes as f64, mean, row.goodput_mbit_s, row.wrong as f64, row.cpu_s_per_gib];
        let digits = [0, 4, 1, 0, 3];
        table.add_row(cells.iter().zip(digits).map(|(cell, digits)| format!("{cell:.digits$}")));
    }
    table.column_iter_mut().for_each(|column| column.set_cell_alignment(CellAlignment::Right));
    println!("{table}");
    Ok(())
}
