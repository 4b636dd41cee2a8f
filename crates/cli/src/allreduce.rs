//! `fanin bench allreduce`: how long collectives take between real processes, in the terms of nccl-tests, and whether every element is
//! right.

mod nccl_tests;

use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::{Args, ValueEnum};
use comfy_table::{CellAlignment, Table, presets};
use fanin_comm::{CollectiveKind, CommError, Communicator, Config, DType, ElementOp, Operator, PathReport, Rank, Transport};
use fanin_control::WORLD_MAX;
use fanin_net::aligned::Aligned;
use fanin_plan::units::{bytes_about, bytes_text};
use fanin_testbed::memory::available_bytes;
use serde::{Deserialize, Serialize};

use crate::quantities;

/// Measure collectives between processes: of this machine (`--workers`), or this process as one rank of many (`--rank`, `--world` and a
/// place to meet, or the variables FANIN_*).
#[derive(Args, Clone, Debug)]
pub struct AllreduceArgs {
    /// Start so many processes on this machine, at most as many as a switch admits to a job. [default: 4]
    #[arg(long, value_name = "N", value_parser = workers, conflicts_with_all = ["rank", "world"])]
    pub workers: Option<u32>,
    /// This process is one rank; others are started elsewhere.
    #[arg(long, value_name = "R", requires = "world")]
    pub rank: Option<u32>,
    /// Number of ranks.
    #[arg(long, value_name = "N", requires = "rank")]
    pub world: Option<u32>,
    /// The switch, HOST:PORT. Without it rank 0 runs one.
    #[arg(long, value_name = "HOST:PORT")]
    pub switch: Option<String>,
    /// Where rank 0 listens if there is no switch, HOST:PORT.
    #[arg(long, value_name = "HOST:PORT", conflicts_with = "switch")]
    pub rendezvous: Option<String>,
    /// The manager of a fabric of several switches, HOST:PORT, in place of one switch.
    #[arg(long, value_name = "HOST:PORT", conflicts_with_all = ["switch", "rendezvous"])]
    pub fabric: Option<String>,
    /// The system that sums, with --fabric: canary, tree, switchml, rina, atp, a2tp, ring, ..., or auto; at one switch switchml, canary, tree, atp or a2tp.
    #[arg(long, value_name = "NAME")]
    pub system: Option<String>,
    /// Message sizes: one, a list (`4B,64KiB,1MiB`), or a range that doubles (`4B..256MiB`). Those of reduce-scatter and all-gather are
    /// rounded up to the same number of elements, one or more, for every rank.
    #[arg(long, value_name = "SIZES", default_value = "4B..64MiB")]
    pub sizes: String,
    /// Element type: f32 f64 f16 bf16 i8 i16 i32 i64 u8.
    #[arg(long, default_value = "f32")]
    pub dtype: DType,
    /// Operator: sum avg min max minimum maximum prod and or xor; not with broadcast and all-gather, which reduce nothing. A NaN loses
    /// against numbers in min and max, and wins in minimum and maximum. [default: sum]
    #[arg(long)]
    pub op: Option<Operator>,
    /// Which collective.
    #[arg(long, value_enum, default_value_t = Kind::Allreduce)]
    pub collective: Kind,
    /// The result takes the input's place, as in PyTorch. Zeros are timed, since every result is the next input; what is checked is one
    /// more call. Not with reduce-scatter and all-gather.
    #[arg(long)]
    pub in_place: bool,
    /// How vectors travel.
    #[arg(long, value_enum, default_value_t = Way::Auto)]
    pub transport: Way,
    /// Runs of each size; by default as many as take about half a second, at least 5.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub iterations: Option<u32>,
    /// How long ranks wait for one another, as 30s.
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = quantities::seconds)]
    pub timeout: f64,
    /// Sum binary32 floats as block fixed point, as hardware switches do.
    #[arg(long)]
    pub fixed_point: bool,
    /// The rate of a rank's link, as 100Gb/s, to compare bandwidths with. In a fabric the rate of its host's link is known.
    #[arg(long, value_name = "RATE", value_parser = quantities::rate)]
    pub link: Option<u64>,
    /// How to print the result.
    #[arg(long, value_enum, default_value_t = Format::Table)]
    pub format: Format,
    /// Also writes the result as nccl-tests do with -J: what reads their files reads this one.
    #[arg(long, value_name = "FILE")]
    pub json_nccl_tests: Option<PathBuf>,
}

/// How many processes are started unless it is said.
const WORKERS_DEFAULT: u32 = 4;

/// A number of workers.
fn workers(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|number| (1..=WORLD_MAX).contains(number));
    number.ok_or_else(|| format!("expected 1 to {WORLD_MAX}, the most ranks that a switch admits to a job"))
}

impl AllreduceArgs {
    fn workers(&self) -> u32 {
        self.workers.unwrap_or(WORKERS_DEFAULT)
    }

    fn operator(&self) -> Operator {
        self.op.unwrap_or(Operator::Sum)
    }

    /// Whether the options make sense together.
    fn check(&self) -> Result<()> {
        let apart = matches!(self.collective, Kind::ReduceScatter | Kind::AllGather);
        ensure!(
            !(self.in_place && apart),
            "--in-place with --collective {}: expected one whose vectors are equally long",
            name(&self.collective)
        );
        let copies = matches!(self.collective, Kind::Broadcast | Kind::AllGather);
        if let Some(op) = self.op.filter(|_| copies) {
            bail!("--op {} with --collective {}: expected none, for nothing is reduced", op.name(), name(&self.collective));
        }
        let scaled = self.dtype == DType::F32 && matches!(self.operator(), Operator::Sum | Operator::Avg) && !copies;
        ensure!(!self.fixed_point || scaled, "--fixed-point: expected --dtype f32, and sums or means of it");
        if let (Some(workers), Some(rank)) = (self.workers, std::env::var_os("FANIN_RANK")) {
            bail!("--workers {workers}: expected none beside FANIN_RANK={}, by which this process is one rank", rank.display());
        }
        Ok(())
    }
}

/// Collectives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Kind {
    /// Every rank gets the reduction of all vectors.
    Allreduce,
    /// Rank 0 gets it.
    Reduce,
    /// Every rank gets rank 0's vector.
    Broadcast,
    /// Every rank gets its part of the reduction.
    ReduceScatter,
    /// Every rank gets all vectors.
    AllGather,
}

/// How vectors travel.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Way {
    /// Shared memory on one host, UDP otherwise.
    Auto,
    /// UDP.
    Udp,
    /// Shared memory.
    Shm,
}

impl From<Way> for Transport {
    fn from(way: Way) -> Self {
        match way {
            Way::Auto => Transport::Auto,
            Way::Udp => Transport::Udp,
            Way::Shm => Transport::Memory,
        }
    }
}

/// Output formats.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Format {
    /// For people.
    Table,
    /// An array with an object a size.
    Json,
}

/// One size.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Row {
    size_bytes: u64,
    elements: u64,
    dtype: String,
    op: String,
    iterations: u32,
    /// Of the slowest rank, on average over all iterations.
    time_us: f64,
    /// Bytes of the vector over the time, in 10^6 bytes a second.
    algbw_mb_s: f64,
    /// What nccl-tests call bus bandwidth: what the links of a ring would carry.
    busbw_mb_s: f64,
    /// That, over the one before.
    bus_factor: f64,
    /// Bits of the vector over the time, over the rate of a rank's link, where that is known: 1 where each link carries the vector once and is full.
    of_link: Option<f64>,
    /// Whether the result takes the input's place.
    in_place: bool,
    /// Elements that are not what they must be, at all ranks together.
    wrong: u64,
    /// Processor time of all ranks, for each GiB of vector.
    cpu_s_per_gib: f64,
    path: String,
}

/// Runs the benchmark.
///
/// # Errors
/// Where a size makes no sense, ranks do not meet, a collective fails or an element is wrong.
pub fn run(args: &AllreduceArgs) -> Result<()> {
    let sizes = parse_sizes(&args.sizes, args.dtype)?;
    ElementOp::new(args.dtype, args.operator())?;
    args.check()?;
    match config(args)? {
        Some(config) => {
            check_memory(&args.sizes, &sizes, 1)?;
            let file = args.json_nccl_tests.as_ref().filter(|_| config.rank == 0);
            file.map_or(Ok(()), |file| nccl_tests::check(file))?;
            let (world, begun) = (config.world, nccl_tests::now());
            let rows = measure(args, &sizes, config)?;
            if let Some(file) = file {
                nccl_tests::write(file, args, world, &rows, begun)?;
            }
            print(args, &rows)
        }
        None => {
            check_memory(&args.sizes, &sizes, args.workers())?;
            conduct(args)
        }
    }
}

/// This process's part, where it is one rank; `None` where it is to start all of them.
fn config(args: &AllreduceArgs) -> Result<Option<Config>> {
    let own = |name: &str| std::env::var(name).ok();
    let places = args.switch.is_some() || args.rendezvous.is_some() || args.fabric.is_some();
    let mut config = match (args.rank, args.world) {
        // What is not said on the command line is as the environment says.
        (Some(rank), Some(world)) => Config::from_variables(|name| match name {
            "FANIN_RANK" => Some(rank.to_string()),
            "FANIN_WORLD" => Some(world.to_string()),
            "FANIN_SWITCH" if places => args.switch.clone(),
            "FANIN_RENDEZVOUS" if places => args.rendezvous.clone(),
            "FANIN_FABRIC" if places => args.fabric.clone(),
            "FANIN_SYSTEM" if args.system.is_some() => args.system.clone(),
            "FANIN_JOB" => own(name).or_else(|| Some("bench".into())),
            name => own(name),
        })?,
        _ if std::env::var_os("FANIN_RANK").is_some() => Config::from_env()?,
        _ => return Ok(None),
    };
    ensure!(args.timeout.is_finite() && (0.1..=86_400.0).contains(&args.timeout), "--timeout {}: expected 0.1 to 86400 s", args.timeout);
    config.timeout = Duration::from_secs_f64(args.timeout);
    config.fixed_point |= args.fixed_point;
    if args.transport != Way::Auto {
        config.transport = args.transport.into();
    }
    config.check()?;
    Ok(Some(config))
}

/// Starts all ranks and shows what rank 0 measures. A rank whose process dies is named by the others.
fn conduct(args: &AllreduceArgs) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program's own file")?;
    let mut place = args.rendezvous.clone();
    if args.switch.is_none() && args.fabric.is_none() && place.is_none() {
        // Rank 0 listens where the kernel has just found a free port.
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).context("no free port on 127.0.0.1")?;
        place = Some(free.to_string());
    }
    args.json_nccl_tests.as_ref().map_or(Ok(()), |file| nccl_tests::check(file))?;
    let begun = nccl_tests::now();
    let mut crew = Crew(Vec::new());
    for rank in 0..args.workers() {
        let mut command = Command::new(&program);
        command.args(["bench", "allreduce", "--rank", &rank.to_string(), "--world", &args.workers().to_string(), "--format", "json"]);
        match (&args.switch, &place) {
            (Some(switch), _) => command.args(["--switch", switch]),
            (None, Some(place)) => command.args(["--rendezvous", place]),
            (None, None) => &mut command,
        };
        for (value, flag) in [(&args.fabric, "--fabric"), (&args.system, "--system")] {
            if let Some(value) = value {
                command.args([flag, value]);
            }
        }
        command.args(["--sizes", &args.sizes, "--dtype", args.dtype.name(), "--timeout", &args.timeout.to_string()]);
        if let Some(op) = args.op {
            command.args(["--op", op.name()]);
        }
        command.args(["--collective", &name(&args.collective), "--transport", &name(&args.transport)]);
        if let Some(iterations) = args.iterations {
            command.args(["--iterations", &iterations.to_string()]);
        }
        if let Some(link) = args.link {
            command.args(["--link", &format!("{link}b/s")]);
        }
        for (given, flag) in [(args.fixed_point, "--fixed-point"), (args.in_place, "--in-place")] {
            if given {
                command.arg(flag);
            }
        }
        let output = if rank == 0 { Stdio::piped() } else { Stdio::null() };
        let child = command.stdin(Stdio::null()).stdout(output).spawn().with_context(|| format!("cannot start rank {rank}"))?;
        crew.0.push(child);
    }
    let output = crew.0[0].stdout.take().context("rank 0 has no output")?;
    let mut text = String::new();
    for line in BufReader::new(output).lines() {
        text.push_str(&line?);
        text.push('\n');
    }
    for (rank, child) in crew.0.iter_mut().enumerate() {
        let status = child.wait().with_context(|| format!("cannot wait for rank {rank}"))?;
        ensure!(status.success(), "rank {rank}: {status}");
    }
    let rows = serde_json::from_str::<Vec<Row>>(&text).context("rank 0 has printed nonsense")?;
    if let Some(file) = &args.json_nccl_tests {
        nccl_tests::write(file, args, args.workers(), &rows, begun)?;
    }
    print(args, &rows)
}

/// The processes of all ranks; none outlives this one.
struct Crew(Vec<Child>);

impl Drop for Crew {
    fn drop(&mut self) {
        for child in &mut self.0 {
            if !matches!(child.try_wait(), Ok(Some(_))) {
                let _ = child.kill();
                let _ = child.wait();
            }
        }
    }
}

/// The name of an option's value.
fn name(value: &impl ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_string()).unwrap_or_default()
}

/// One rank's part. Every rank gets the same rows.
fn measure(args: &AllreduceArgs, sizes: &[u64], config: Config) -> Result<Vec<Row>> {
    let comm = Communicator::join(config)?;
    let work = Work::new(args, &comm)?;
    let mut rows = Vec::new();
    for size in work.rounded(sizes) {
        rows.push(work.measure(args, &comm, size)?);
    }
    comm.barrier()?;
    Ok(rows)
}

/// One rank's vectors, which begin a cache line as PyTorch's tensors do.
struct Vectors {
    input: Aligned,
    output: Aligned,
    /// Only the output takes part.
    in_place: bool,
}

impl Vectors {
    fn call(&mut self, work: &Work, comm: &Communicator, share: u64) -> Result<(), CommError> {
        if self.in_place {
            comm.call_bytes_in_place(work.kind, work.op, share, self.output.bytes_mut())
        } else {
            comm.call_bytes(work.kind, work.op, share, self.input.bytes(), self.output.bytes_mut())
        }
    }
}

struct Work {
    kind: CollectiveKind,
    op: ElementOp,
    rank: u32,
    world: u32,
}

impl Work {
    fn new(args: &AllreduceArgs, comm: &Communicator) -> Result<Self> {
        let op = ElementOp::new(args.dtype, args.operator())?;
        let kind = match args.collective {
            Kind::Allreduce => CollectiveKind::Allreduce,
            Kind::Reduce => CollectiveKind::Reduce { root: Rank(0) },
            Kind::Broadcast => CollectiveKind::Broadcast { root: Rank(0) },
            Kind::ReduceScatter => CollectiveKind::ReduceScatter,
            Kind::AllGather => CollectiveKind::AllGather,
        };
        Ok(Work { kind, op, rank: comm.rank(), world: comm.world() })
    }

    /// Sizes of vectors of which every rank has a share of the same number of elements, one or more, each once; none at all stays that.
    fn rounded(&self, sizes: &[u64]) -> Vec<u64> {
        let step = self.op.dtype.bytes() as u64 * u64::from(self.kind.shares(self.world));
        let mut rounded: Vec<u64> = sizes.iter().map(|size| size.next_multiple_of(step)).collect();
        rounded.dedup();
        rounded
    }

    fn measure(&self, args: &AllreduceArgs, comm: &Communicator, size: u64) -> Result<Row> {
        // As in nccl-tests, the size is that of the longer vector.
        let width = self.op.dtype.bytes() as u64;
        let share = size / width / u64::from(self.kind.shares(self.world));
        let whole = share * u64::from(self.kind.shares(self.world));
        let input = self.input(self.rank, share, whole);
        let output_bytes = (self.output_elements(share, whole) * width) as usize;
        let mut vectors = Vectors { input: Aligned::new(input.len(), 0), output: Aligned::new(output_bytes, 0), in_place: args.in_place };
        vectors.input.bytes_mut().copy_from_slice(&input);
        drop(input);
        vectors.call(self, comm, share)?;
        let iterations = self.iterations(args, comm, || vectors.call(self, comm, share))?;
        comm.barrier()?;
        let (start, cpu) = (Instant::now(), fanin_runtime::clock::process_cpu_time());
        for _ in 0..iterations {
            vectors.call(self, comm, share)?;
        }
        let seconds = start.elapsed().as_secs_f64() / f64::from(iterations);
        let cpu = (fanin_runtime::clock::process_cpu_time() - cpu).as_secs_f64();
        if args.in_place {
            vectors.output.bytes_mut().copy_from_slice(vectors.input.bytes());
            vectors.call(self, comm, share)?;
        }
        let wrong = self.wrong(share, whole, vectors.output.bytes());
        let mut slowest = [seconds];
        comm.allreduce(&mut slowest, Operator::Max)?;
        let mut cpu = [cpu];
        comm.allreduce(&mut cpu, Operator::Sum)?;
        let mut wrong = [wrong as i64];
        comm.allreduce(&mut wrong, Operator::Sum)?;
        let bytes = (whole * width) as f64;
        let algbw = bytes / slowest[0] / 1e6;
        Ok(Row {
            size_bytes: whole * width,
            elements: whole,
            dtype: self.op.dtype.name().into(),
            op: self.op.operator.name().into(),
            iterations,
            time_us: slowest[0] * 1e6,
            algbw_mb_s: algbw,
            busbw_mb_s: algbw * self.bus_factor(),
            bus_factor: self.bus_factor(),
            of_link: args.link.or_else(|| link_of(&comm.path())).map(|rate| algbw * 8e6 / rate as f64),
            in_place: args.in_place,
            wrong: wrong[0] as u64,
            cpu_s_per_gib: if bytes > 0.0 { cpu[0] / f64::from(iterations) / (bytes / f64::from(1u32 << 30)) } else { 0.0 },
            path: comm.path().to_string(),
        })
    }

    /// How often the call is made: as asked, or so often that it takes half a second; rank 0 decides.
    fn iterations(&self, args: &AllreduceArgs, comm: &Communicator, mut call: impl FnMut() -> Result<(), CommError>) -> Result<u32> {
        if let Some(iterations) = args.iterations {
            return Ok(iterations);
        }
        let start = Instant::now();
        for _ in 0..3 {
            call()?;
        }
        let each = start.elapsed().as_secs_f64() / 3.0;
        let mut decided = [((0.5 / each) as i32).clamp(5, 5_000)];
        comm.broadcast(&mut decided, 0)?;
        Ok(decided[0] as u32)
    }

    /// Factors of nccl-tests (its PERFORMANCE.md).
    fn bus_factor(&self) -> f64 {
        let n = f64::from(self.world);
        match self.kind {
            CollectiveKind::Allreduce => 2.0 * (n - 1.0) / n,
            CollectiveKind::ReduceScatter | CollectiveKind::AllGather => (n - 1.0) / n,
            _ => 1.0,
        }
    }

    fn output_elements(&self, share: u64, whole: u64) -> u64 {
        if self.kind == CollectiveKind::ReduceScatter { share } else { whole }
    }

    /// Element `index` of rank `rank`'s vector, small enough that every type and operator is exact with 256 ranks.
    fn element(&self, rank: u32, index: u64) -> i64 {
        match self.op.operator {
            Operator::Prod if rank == 0 => 1 + (index % 3) as i64,
            Operator::Prod => 1,
            // With 256 ranks a sum of zeros and ones is exact in bfloat16.
            Operator::Sum | Operator::Avg => i64::from((index * 7 + u64::from(rank) * 3).is_multiple_of(11)),
            _ => ((index * 7 + u64::from(rank) * 3) % 11) as i64,
        }
    }

    fn input(&self, rank: u32, share: u64, whole: u64) -> Vec<u8> {
        let (first, count) = if self.kind == CollectiveKind::AllGather { (u64::from(rank) * share, share) } else { (0, whole) };
        let mut bytes = Vec::with_capacity(count as usize * self.op.dtype.bytes());
        (first..first + count).for_each(|index| self.op.dtype.push_i64(self.element(rank, index), &mut bytes));
        bytes
    }

    /// Elements of this rank's output that are not what they must be.
    fn wrong(&self, share: u64, whole: u64, output: &[u8]) -> u64 {
        if !self.kind.receives(Rank(self.rank), if self.kind == CollectiveKind::ReduceScatter { self.rank } else { 0 }) {
            return 0;
        }
        let first = if self.kind == CollectiveKind::ReduceScatter { u64::from(self.rank) * share } else { 0 };
        let mut expected = Vec::with_capacity(8);
        let width = self.op.dtype.bytes();
        let count = self.output_elements(share, whole);
        (0..count)
            .filter(|&at| {
                expected.clear();
                self.push_expected(first + at, share, &mut expected);
                expected != output[at as usize * width..(at as usize + 1) * width]
            })
            .count() as u64
    }

    fn push_expected(&self, index: u64, share: u64, out: &mut Vec<u8>) {
        let dtype = self.op.dtype;
        let values = (0..self.world).map(|rank| self.element(rank, index));
        match self.kind {
            CollectiveKind::Broadcast { root } => return dtype.push_i64(self.element(root.0, index), out),
            CollectiveKind::AllGather => return dtype.push_i64(self.element((index / share) as u32, index), out),
            _ => {}
        }
        match self.op.operator {
            Operator::Sum => dtype.push_i64(values.sum(), out),
            Operator::Avg => dtype.push_f64(values.sum::<i64>() as f64 / f64::from(self.world), out),
            Operator::Prod => dtype.push_i64(values.product(), out),
            Operator::Min | Operator::Minimum => dtype.push_i64(values.min().unwrap_or(0), out),
            Operator::Max | Operator::Maximum => dtype.push_i64(values.max().unwrap_or(0), out),
            Operator::And => dtype.push_i64(values.fold(-1, |sum, value| sum & value), out),
            Operator::Or => dtype.push_i64(values.fold(0, |sum, value| sum | value), out),
            Operator::Xor => dtype.push_i64(values.fold(0, |sum, value| sum ^ value), out),
        }
    }
}

/// Shows the rows; it is an error if an element was wrong.
fn print(args: &AllreduceArgs, rows: &[Row]) -> Result<()> {
    match args.format {
        Format::Json => println!("{}", serde_json::to_string(rows)?),
        Format::Table => print!("{}", table(args, rows)),
    }
    match rows.iter().find(|row| row.wrong > 0) {
        Some(row) => bail!("{} wrong elements with {} bytes", row.wrong, row.size_bytes),
        None => Ok(()),
    }
}

fn table(args: &AllreduceArgs, rows: &[Row]) -> String {
    let mut out = String::new();
    let path = rows.first().map_or("", |row| &row.path);
    let _ = writeln!(out, "{}{} over {path}\n", name(&args.collective), if args.in_place { " in place" } else { "" });
    let mut table = Table::new();
    table.load_style(presets::ASCII_MARKDOWN);
    let has_link = rows.iter().any(|row| row.of_link.is_some());
    let link = has_link.then_some("algbw of link");
    table.set_header(
        ["size, B", "elements", "type", "op", "time, us", "algbw, MB/s", "busbw, MB/s", "CPU-s/GiB", "wrong"].into_iter().chain(link),
    );
    for row in rows {
        let cells = [
            row.size_bytes.to_string(),
            row.elements.to_string(),
            row.dtype.clone(),
            row.op.clone(),
            format!("{:.2}", row.time_us),
            format!("{:.1}", row.algbw_mb_s),
            format!("{:.1}", row.busbw_mb_s),
            format!("{:.2}", row.cpu_s_per_gib),
            row.wrong.to_string(),
        ];
        table.add_row(cells.into_iter().chain(row.of_link.map(|share| format!("{:.1} %", share * 100.0))));
    }
    for column in [0, 1, 4, 5, 6, 7, 8, 9] {
        if let Some(column) = table.column_mut(column) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    let _ = writeln!(out, "{table}");
    if let Some(factor) = rows.first().map(|row| row.bus_factor).filter(|factor| *factor != 1.0) {
        let _ = writeln!(
            out,
            "busbw is {factor:.3} times algbw: what each link of a ring of these ranks carries. Where switches sum, a link carries the vector once:"
        );
        let _ = writeln!(out, "compare algbw with its rate (--link RATE); busbw may exceed that.");
    }
    let asked = parse_sizes(&args.sizes, args.dtype).unwrap_or_default();
    if rows.iter().any(|row| !asked.contains(&row.size_bytes)) {
        let _ = writeln!(out, "Sizes are rounded up, so that every rank has the same number of elements, one or more.");
    }
    out
}

/// The rate of the link of this rank's host in bits per second, where the fabric's file says it.
fn link_of(path: &PathReport) -> Option<u64> {
    match path {
        PathReport::Fabric { link_bits_per_second, by_hosts: None, .. } => Some(*link_bits_per_second),
        PathReport::Hierarchy { between: Some(between), .. } => link_of(between),
        _ => None,
    }
}

/// Vectors that a rank has at the same time at most: the input, as it was made and where it is sent from, and the output.
const VECTORS: u64 = 3;

/// Refuses vectors that this machine has no memory for. Where nothing says how much it has, all are taken.
fn check_memory(text: &str, sizes: &[u64], workers: u32) -> Result<()> {
    let longest = sizes.iter().max().copied().unwrap_or(0);
    let needed = longest.saturating_mul(VECTORS).saturating_mul(u64::from(workers));
    match available_bytes() {
        Some(available) if needed > available => bail!(
            "--sizes {text}: expected less: {workers} ranks with vectors of {} take about {}, and {} of memory are available",
            bytes_text(longest),
            bytes_about(needed),
            bytes_about(available)
        ),
        _ => Ok(()),
    }
}

/// Reads sizes: whole numbers of elements, ascending in a range.
pub fn parse_sizes(text: &str, dtype: DType) -> Result<Vec<u64>> {
    let size = |text: &str| -> Result<u64> {
        let bytes = quantities::bytes(text).map_err(|error| anyhow::anyhow!("--sizes {text}: {error}"))?;
        Ok(bytes.next_multiple_of(dtype.bytes() as u64))
    };
    let Some((first, last)) = text.split_once("..") else { return text.split(',').map(size).collect() };
    let (first, last) = (size(first)?, size(last)?);
    ensure!(first > 0 && first <= last, "--sizes {text}: expected a range that begins above 0 and does not end before it begins");
    Ok(std::iter::successors(Some(first), |size| size.checked_mul(2)).take_while(|size| *size <= last).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_lists_or_ranges() {
        assert_eq!(parse_sizes("4B..32B", DType::F32).unwrap(), [4, 8, 16, 32]);
        assert_eq!(parse_sizes("4KiB,1MiB", DType::F32).unwrap(), [4_096, 1 << 20]);
        assert_eq!(parse_sizes("0", DType::F64).unwrap(), [0]);
        assert!(parse_sizes("8B..4B", DType::F32).unwrap_err().to_string().contains("range"));
        assert!(parse_sizes("x", DType::F32).is_err());
    }
}
